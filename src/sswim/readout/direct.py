r"""The direct readout: each step ahead has weights of its own, which read the traces of all spikes at the forecast's origin.

The hidden layers run along the series once. One Gram matrix serves all outputs, and a row costs one step of simulation instead
of a window's. Channels that share a network run side by side, as a batch; then each is a sample at every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sswim.data.windows import Origins, SeriesWindows, Split
from sswim.network.network import SpikingNetwork
from sswim.options import Mistakes, Options, Run, check_constants, check_integer, resolve
from sswim.readout.base import Shape, Training
from sswim.readout.corrections import (
    Corrections,
    TraceReadout,
    check_memory,
    common_directions,
    leading_directions,
    loadings,
)
from sswim.regression import REGULARIZATION, Regularization, Sums, index_of_least
from sswim.report import Solution
from sswim.steps.base import InitialBatch

__all__ = ["LEVELS", "Direct", "TraceReadout", "default_constants", "held_out_errors"]

# Rows of which sums per group are made at once.
GATHERED = 128
# Coverages that quantiles of the errors are kept for.
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99])
# How much more a trace may weigh than a row of the window, and from where on traces matter to a channel's correction.
TRACE_WEIGHTS, TRACES_LEAD = (0.3, 1.0, 3.0, 10.0, 30.0), 10.0
# Weighted means over all channels that are taken of every feature, and training rows that they are judged by.
FACTORS, POOLED = 5, 1000
# Validation rows whose errors are kept, for intervals.
KEPT = 1000


def default_constants(window: int) -> tuple[float, ...]:
    """Return time constants of traces that suit a window: one step, and longer ones that fade within it.

    Examples
    --------
    >>> [round(c, 1) for c in default_constants(168)], [round(c, 1) for c in default_constants(12)]
    ([1.0, 5.3, 28.0], [1.0, 1.4, 2.0])
    """
    longest = max(window / 6, 2.0)
    return (1.0, longest**0.5, longest)


@dataclass(frozen=True)
class Direct(Options):
    """Read each step ahead with weights of its own, at the forecast's origin.

    Parameters
    ----------
    skip : bool
        Whether the window's own rows reach the output too, so that the spikes only have to explain what a linear model
        cannot. Without, the network is purely spiking.
    corrections : int
        Where channels share the network, number of directions of a channel's features on which its weights may differ from
        the common ones; 0 for none. Fewer if the sums of all channels would not fit into memory.
    common : int
        In the same case, number of directions of what all channels do together that each channel's forecast may lean on; 0
        for forecasts of each channel from itself alone.
    traces : float or sequence of float, optional
        Time constants of the spikes' traces, in steps. Default: 1, and two longer ones that suit the window.
    regularization : str or object
        ``"search"``, ``"fixed"``, or a `LambdaSearch` or `FixedLambda`.
    """

    skip: bool = True
    corrections: int = 60
    common: int = 100
    traces: float | Sequence[float] | None = None
    regularization: str | Regularization = "search"
    stride: ClassVar[int] = 1  # the network runs along all rows once

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        mistakes.check(check_integer, "corrections", self.corrections, 0)
        if self.traces is not None:
            mistakes.check(check_constants, "traces", self.traces)
        mistakes.check(check_integer, "common", self.common, 0)
        mistakes.check(resolve, "regularization", self.regularization, REGULARIZATION, "basis", "solve")
        mistakes.report()

    def build(self, shape: Shape) -> TraceReadout:
        """Return an output of the right sizes; corrections take no more than memory has room for."""
        constants = default_constants(shape.window) if self.traces is None else check_constants("traces", self.traces)
        lags = shape.window * shape.outputs + shape.inputs - shape.outputs if self.skip else 0
        # Every channel has sums of its own over the features that correct it, and these must fit into memory twice.
        most = int((shape.memory / (64 * max(shape.channels, 1))) ** 0.5)
        rank = min(self.corrections, most // 2)
        common = min(self.common, most - rank) if shape.channels > 1 else 0
        corrected = shape.channels > 0 and rank + common > 0
        traces = sum(shape.hidden) * len(constants)
        check_memory(traces + lags, shape.memory, "Use channels='shared', skip=False or fewer neurons, or allow more.")
        return TraceReadout(
            traces,
            shape.outputs,
            shape.horizon,
            constants=constants,
            lags=lags,
            groups=shape.channels if corrected else 0,
            rank=rank if corrected else 0,
            factors=min(FACTORS, shape.channels) if corrected and common else 0,
            common=common if corrected else 0,
            dtype=shape.dtype,
        )

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the output's weights and corrections from all rows; penalties are chosen on the validation rows."""
        return self._fit(network, split, run)

    def _fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        regularization = resolve("regularization", self.regularization, REGULARIZATION)
        return _Fit(*_origins(network, split, run), regularization, run).solution()

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network; go back to the sampled one if that forecasts the validation rows better."""
        readout: TraceReadout = network.readout  # type: ignore[assignment]
        before = {name: v.clone() for name, v in network.state_dict().items()}
        penalty = None if solution.sizes is None else solution.lambdas[:, None] / solution.sizes**2
        # Corrections are solved for anew afterwards. Gradients would let them learn single windows by heart.
        corrections = [p for name, p in readout.named_parameters() if name not in ("weights", "biases")]
        for p in corrections:
            p.requires_grad_(False)
        report = training.descend(network, split.train, split.held_out, run, penalty=penalty)
        for p in corrections:
            p.requires_grad_(True)
        if training.from_scratch:
            score, quantiles = held_out_errors(*_origins(network, split, run), run)
            return replace(solution, score=score, quantiles=quantiles, training=report)
        trained = self._fit(network, split, run)
        if trained.score < solution.score:
            return replace(trained, training=report)
        network.load_state_dict(before)
        return replace(solution, training=replace(report, best_epoch=0))


def _origins(network: SpikingNetwork, split: Split, run: Run) -> tuple[Origins, int]:
    """Return the rows along the series, and how many of the first ones are for training."""
    if not isinstance(split.whole, SeriesWindows):
        raise TypeError(
            "Direct runs along series: use it through Forecaster, or pass readout=Counts(loss='squared_error') for samples."
        )
    lags = network.readout.weights.shape[1] - sum(network.hidden) * len(network.readout.constants)
    origins = Origins(network, split.whole.segments, skip=lags > 0, memory=run.budget // 4)
    return origins, len(split.train) // origins.batch


class _Fit:
    """One fit of a direct output whose hidden layers are set."""

    def __init__(self, origins: Origins, kept: int, regularization: Regularization, run: Run) -> None:
        self.origins, self.kept, self.regularization, self.run = origins, kept, regularization, run
        self.readout: TraceReadout = origins.network.readout  # type: ignore[assignment]
        self.spans = ((0, kept), (kept, len(origins)))

    @torch.no_grad()
    def solution(self) -> Solution:
        """Set all weights: first from training rows, to choose penalties and know errors, then from all rows."""
        readout, run = self.readout, self.run
        with run.step("output weights"):
            pooled, (train, held_out) = self._sums()
        with run.step("regularisation"):
            weight, w, b, lambdas = _weigh(train, held_out, self.regularization, readout.lags)
            size = _sizes(len(train.gram), readout.lags, weight).to(train.gram)
            readout.weights.copy_(w.T), readout.biases.copy_(b)
        corrections = None
        if len(readout.own_weights):
            with run.step("own corrections"):
                # Where the window's own rows are read and weigh enough, a channel is corrected on these.
                readout.directions.copy_(
                    leading_directions(train, readout.directions.shape[1], readout.lags if weight < TRACES_LEAD else 0)
                )
                if pooled is not None:
                    readout.common_directions.copy_(common_directions(pooled, readout.common_directions.shape[1]))
                own, checked = (self._own_sums(span) for span in self.spans)
                corrections = Corrections.search(own, checked, readout.directions.shape[1], self.origins.rows(self.kept))
                self._correct(corrections, own)
        score, quantiles = held_out_errors(self.origins, self.kept, run)
        with run.step("final weights"):
            train.merge(held_out)
            w, b = train.rescaled(size).solve(lambdas)
            readout.weights.copy_((w * size[:, None]).T), readout.biases.copy_(b)
            if corrections is not None:  # anew, for they must fit the weights that they correct
                self._correct(corrections, self._own_sums((0, len(self.origins))))
        found = Solution(lambdas.cpu(), traces=len(readout.constants), sizes=size.cpu())
        return replace(found, score=score, quantiles=quantiles)

    def _sums(self) -> tuple[Tensor | None, list[Sums]]:
        """Return the sums of training and of validation rows, and features pooled over groups at some training rows."""
        readout = self.readout
        rows, features = readout.weights.shape
        common = readout.common_directions.shape[1]
        if common:
            readout.pool.copy_(loadings(self.origins.rows(self.kept), readout.pool.shape[1]))
        together, every = [], max(1, self.kept // POOLED)
        sums = [Sums(features, rows, device=readout.weights.device) for _ in self.spans]
        for total, span in zip(sums, self.spans, strict=True):
            self.run.expect(-(-(span[1] - span[0]) // self.origins.chunk))
            for first, f, y in self.origins(*span):
                if common and span[0] == 0:
                    together.append(readout.pooled(f[:, (-first) % every :: every])[:, :, 0].T)
                total.update(f.reshape(features, 1, -1), y.double().reshape(rows, 1, -1))
                self.run.advance()
        return torch.cat(together) if common else None, sums

    def _own_sums(self, span: tuple[int, int]) -> Sums:
        """Return each group's sums of what corrections are made of, and what the shared weights leave to them."""
        readout = self.readout
        groups, features, rows = readout.own_weights.shape
        sums, waiting = Sums(features, rows, groups=groups, device=readout.weights.device), []
        self.run.expect(-(-(span[1] - span[0]) // self.origins.chunk))
        for first, f, y in self.origins(*span):
            waiting.append((readout.own_features(f), y - readout.shared(f)))
            last = first + f.shape[1] == span[1]
            if last or sum(left.shape[1] for _, left in waiting) >= GATHERED:
                sums.update_groups(*(torch.cat(parts, dim=1) for parts in zip(*waiting, strict=True)))
                waiting = []
            self.run.advance()
        return sums

    def _correct(self, corrections: Corrections, sums: Sums) -> None:
        weights, biases = corrections.solve(sums)
        self.readout.own_weights.copy_(weights), self.readout.own_biases.copy_(biases)


@torch.no_grad()
def held_out_errors(origins: Origins, kept: int, run: Run) -> tuple[float, np.ndarray]:
    """Return the mean squared error on rows after the first `kept`, and calibrated quantiles (levels, horizon, channels)."""
    readout: TraceReadout = origins.network.readout  # type: ignore[assignment]
    count = len(origins) - kept
    errors, every = [], max(1, -(-count // KEPT))
    with run.step("intervals"):
        run.expect(-(-count // origins.chunk))
        for first, f, y in origins(kept):
            picked = torch.arange(first, first + f.shape[1])
            picked = ((picked - kept) % every == 0).nonzero()[:, 0].to(f.device)
            errors.append((y[:, picked] - readout(f[:, picked])).permute(1, 0, 2).cpu())
            run.advance()
        error = torch.cat(errors)
        sizes = error.abs().unflatten(1, (origins.network.horizon, -1)).flatten(2).numpy()  # (n, H, C)
        quantiles = _ranked_quantiles(np.sort(sizes, axis=0), _calibrated(sizes, LEVELS))
    return float(error.square().mean()), quantiles


def _ranked_quantiles(ranked: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return quantiles (levels, ...) of sorted values (n, ...): as in split conformal, a new value ranks among them."""
    n = len(ranked)
    return ranked[np.clip(np.ceil(levels * (n + 1)).astype(int) - 1, 0, n - 1)]


def _calibrated(sizes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the levels at which quantiles of errors (n, ...), in the order of time, cover what they should.

    Errors change in the course of time, so quantiles of one half cover less, or more, of the other half. Each level is
    raised to what one half needs to cover the other, whichever needs more, and never lowered.
    """
    first, second = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    if not len(first):
        return levels
    grid = np.unique(np.concatenate([levels, np.linspace(levels[0], 0.999, 40)]))
    needed = [levels]
    for known, new in ((first, second), (second, first)):
        ranked = np.sort(known, axis=0)
        covered = [(new <= _ranked_quantiles(ranked, np.array([level]))).mean() for level in grid]
        needed.append(np.interp(levels, np.maximum.accumulate(covered), grid))
    return np.max(needed, axis=0)


def _sizes(features: int, lags: int, weight: float) -> Tensor:
    """Return `weight` for every trace and 1 for each of the `lags` last features, which are rows."""
    return torch.where(torch.arange(features) < features - lags, weight, 1.0).double()


def _weigh(train: Sums, held_out: Sums, regularization: Regularization, lags: int) -> tuple[float, Tensor, Tensor, Tensor]:
    """Choose by validation rows how traces weigh against rows in the penalty: a factor of the former.

    Returns
    -------
    The factor, and weights, biases and lambdas that go with it; the latter are for features multiplied by `_sizes`.
    """
    features, found = len(train.gram), []
    for weight in TRACE_WEIGHTS if 0 < lags < features else (1.0,):
        size = _sizes(features, lags, weight).to(train.gram)
        w, b, lambdas = regularization.solve(train.rescaled(size), held_out.rescaled(size))
        w = w * size[:, None]
        found.append((float(held_out.squared_error(w, b).sum()), weight, w, b, lambdas))
    errors = torch.tensor([error for error, *_ in found], dtype=torch.float64)
    return found[int(index_of_least(errors))][1:]
