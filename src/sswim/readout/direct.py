r"""The direct readout: each step ahead has weights of its own, which read the spikes of a whole window at its end.

What is read is in `sswim.readout.lags`; how the weights are found, and what of them is kept, in `sswim.readout.weighing`.
Channels that share a network are a batch, and each has weights of its own, as far as the data speaks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sswim.data.encoder import RELATIVE
from sswim.data.windows import SeriesWindows, Split
from sswim.machine import PIECES
from sswim.network.network import SpikingNetwork
from sswim.network.population import Population
from sswim.options import Mistakes, Options, Run, check_constants, check_integer
from sswim.readout.base import Shape, Training
from sswim.readout.blocks import BlockSums, Part
from sswim.readout.lags import Features, LagReadout, LagSizes, lag_bins
from sswim.readout.weighing import Model, Weighed, weigh
from sswim.regression import safe_eigh
from sswim.report import Solution
from sswim.steps.base import InitialBatch

__all__ = ["LEVELS", "Direct", "default_constants", "held_out_errors"]

# Coverages that quantiles of the errors are kept for.
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99])
# Directions of lags, of single neurons with traces and covariates, of what all channels do together, and of what is known
# ahead, at most.
LAGS, EXTRA, COMMON, AHEAD = 192, 64, 80, 96
# Of the directions of lags, the part that is single lags, the most recent ones. The others are principal directions.
RECENT = 0.25
# Samples (windows of a channel) for the sums, and for directions, at most; windows whose errors are kept for intervals.
SAMPLES, LOOKED, KEPT = 600_000, 60_000, 1000
# Bytes that the sums of all blocks may take before there are fewer directions, and bytes that need not be asked for.
ROOM, FREE = 2_000_000_000, 128_000_000
# Part of a block that may overlap with its neighbours.
OVERLAP = 0.25
# Part of the windows that move less than usual, and the least deviation that counts as usual.
QUIET, SMALLEST = 0.05, 0.02


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
    """Read each step ahead with weights of its own, from the spikes of a whole window.

    Parameters
    ----------
    skip : bool
        Whether the window's rows reach the output themselves, instead of the population's spikes. Without, the network is
        purely spiking.
    population : int
        Number of neurons that carry each channel. More neurons carry it more precisely, and cost more spikes.
    singles : int
        Number of these neurons that also have weights of their own, for what is not linear; 0 for none.
    common : bool
        Whether a channel's forecast may lean on what all channels do together.
    traces : float or sequence of float, optional
        Time constants of the sampled neurons' traces, in steps. Default: 1, and two longer ones that suit the window.
    blocks : int
        Number of blocks in time on which everything is weighed. Fewer if they would be shorter than a window and horizon.
    """

    skip: bool = False
    population: int = 64
    singles: int = 8
    common: bool = True
    traces: float | Sequence[float] | None = None
    blocks: int = 8
    stride: ClassVar[int] = 1

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        mistakes.check(Population, self.population)
        mistakes.check(check_integer, "singles", self.singles, 0)
        mistakes.check(check_integer, "blocks", self.blocks, 2)
        if self.traces is not None:
            mistakes.check(check_constants, "traces", self.traces)
        mistakes.report()

    def build(self, shape: Shape) -> LagReadout:
        """Return an output of the right sizes. With very many channels there are fewer directions, whatever the memory."""
        constants = default_constants(shape.window) if self.traces is None else check_constants("traces", self.traces)
        groups, rows, bins = max(shape.channels, 1), shape.horizon * shape.outputs, len(lag_bins(shape.window)) - 1
        # For every block and channel: sums, eigenvectors, and weights of a dozen models for a dozen outputs.
        each, linear = 8 * groups * self.blocks * 1.5, rows + 144
        most = int((linear**2 + 8 * ROOM / each) ** 0.5 - linear) // 4 - 2
        together = groups * (bins + 1) if shape.channels > 1 and self.common else 0
        traces = sum(shape.hidden) * len(constants)
        singles = self.singles if shape.outputs == 1 else 0
        extra = (2 * singles + shape.covariates) * bins + traces
        codes = shape.known * shape.horizon * (1 + singles)
        wanted = min(LAGS, shape.window), min(EXTRA, extra), min(COMMON, together), min(AHEAD, codes)
        part = min(1.0, max(most, 8) / sum(wanted))
        lags, extra, common, ahead = max(1, int(part * wanted[0])), *(int(part * count) for count in wanted[1:])
        if shape.outputs * (lags + 1) > most:
            lags = max(1, most // shape.outputs - 1)
        features = (lags + 2) * shape.outputs + 1 + extra + common + ahead
        needed = each * features * (2 * features + linear)
        if needed > max(shape.memory, FREE):
            raise ValueError(
                f"memory: {groups * shape.outputs} channels and a horizon of {shape.horizon} need about {needed / 1e9:.2g} GB, "
                f"got {shape.memory / 1e9:.3g} GB. Pass more, or use fewer blocks (Direct(blocks=...)) or a shorter horizon."
            )
        sizes = LagSizes(
            shape.window,
            shape.horizon,
            shape.outputs,
            groups,
            shape.covariates,
            traces,
            lags,
            extra,
            common,
            shape.known,
            ahead,
        )
        options = {"population": self.population, "singles": singles, "skip": self.skip}
        options |= {"absolute": shape.scaling not in RELATIVE, "heights": shape.scaling != "window"}
        return LagReadout(sizes, constants=constants, **options, dtype=shape.dtype)  # type: ignore[arg-type]

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the output's directions and weights from all windows; blocks in time decide what is kept."""
        return self._fit(network, split, run)

    @torch.no_grad()
    def _fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        source = Source(network, split, run)
        readout, blocks = source.readout, source.blocks(self.blocks)
        with run.step("directions"):
            set_directions(readout, source)
        with run.step("output weights"):
            sums = source.sums(blocks)
        with run.step("weighing"):
            options = {"gap": source.gap(len(blocks)), "height": network.window**0.5}
            weighed = weigh(sums, readout.parts, source.naive(), **options, compared=min(12 * readout.outputs, 400))
        held = min(max(1, round(len(blocks) * source.held_out)), len(blocks) - 1)
        with run.step("intervals"):
            readout.weights.copy_(weighed.weights(sums.part(range(len(blocks) - held))))
            score, quantiles = held_out_errors(source, torch.cat(blocks[-held:]))
        with run.step("final weights"):
            readout.weights.copy_(weighed.weights(sums.part(range(len(blocks)))))
        gains = {m.name: float(g) for m, g in zip(weighed.models, weighed.gains, strict=True)}
        lambdas = torch.cat([m.penalty for m in _used(weighed)]) if _used(weighed) else torch.zeros(1)
        return Solution(
            lambdas.cpu(),
            traces=len(readout.constants),
            score=score,
            quantiles=quantiles,
            kept=weighed.kept(),
            gains=gains,
        )

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the hidden layers; go back to the sampled ones if these forecast the held-out windows better."""
        readout: LagReadout = network.readout  # type: ignore[assignment]
        if training.from_scratch:
            report = training.descend(network, split.train, split.held_out, run)
            source = Source(network, split, run)
            score, quantiles = held_out_errors(source, torch.arange(source.kept, source.windows))
            return replace(solution, score=score, quantiles=quantiles, training=report)
        before = {name: v.clone() for name, v in network.state_dict().items()}
        # Weights are solved for anew afterwards. Gradients would let a channel's own ones learn single windows by heart.
        readout.weights.requires_grad_(False)
        report = training.descend(network, split.train, split.held_out, run, penalty=0.0)
        readout.weights.requires_grad_(True)
        trained = self._fit(network, split, run)
        if trained.score < solution.score:
            return replace(trained, training=report)
        network.load_state_dict(before)
        return replace(solution, training=replace(report, best_epoch=0))


def _used(weighed: Weighed) -> list[Model]:
    """Return the models that have penalties, and a share."""
    return [m for m, share in zip(weighed.models, weighed.shares.T, strict=True) if len(m.penalty) and bool((share > 0).any())]


class Source:
    """The windows of a fit, as a readout with lags sees them."""

    def __init__(self, network: SpikingNetwork, split: Split, run: Run) -> None:
        if not isinstance(split.whole, SeriesWindows):
            raise TypeError(
                "Direct reads windows of series: use it through Forecaster, or pass readout=Counts(loss='squared_error') for "
                "samples."
            )
        self.samples, self.run, self.network = split.whole, run, network
        self.readout: LagReadout = network.readout  # type: ignore[assignment]
        self.group = self.samples.batch
        self.windows, self.kept = len(self.samples) // self.group, len(split.train) // self.group
        self.held_out = 1 - self.kept / self.windows
        self._traces = network.trace_reader(self.readout.constants)
        each = self.group * (6 * network.window + network.horizon + sum(network.hidden) * network.window + 1000) * 8
        each += 8 * self.readout.codes
        self.chunk = max(1, min(4096 // self.group + 1, run.budget // PIECES // each))

    def count(self, most: int) -> int:
        """Return the number of blocks: `most`, half as many again if neighbours overlap too much, or fewer for few windows."""
        span = self.network.window + self.network.horizon
        overlap = span * most / self.windows
        return int(min(most if overlap < OVERLAP else most * 3 // 2, max(2, 2 * self.windows // span), self.windows))

    def gap(self, count: int) -> int:
        """Return how many neighbours of a held-out block are left out, for their windows overlap with its own."""
        span = self.network.window + self.network.horizon
        return 1 if count >= 5 and span * count / self.windows >= OVERLAP else 0

    def blocks(self, most: int) -> list[Tensor]:
        """Return the numbers of the windows of each block in time, thinned out where there are very many."""
        count = self.count(most)
        stride = max(1, -(-self.windows * self.group // SAMPLES))
        ends = [self.windows * b // count for b in range(count + 1)]
        return [torch.arange(first, last, stride) for first, last in zip(ends, ends[1:], strict=False)]

    def look(self, windows: Tensor) -> tuple[Features, Tensor]:
        """Return what is seen of some windows, and targets (samples, horizon * outputs), relative to the mean."""
        like = self.readout.weights
        index = (windows[:, None] * self.group + torch.arange(self.group)).flatten()
        x, past, ahead = self.samples.inputs(index).to(like), self.samples.past(index), self.samples.ahead(index)
        rows = past.to(like).transpose(1, 2)
        covariates = x.transpose(1, 2)[:, x.shape[2] - self.readout.sizes.covariates :]
        seen = self.readout.features(rows, covariates, self._traces(x).T, None if ahead is None else ahead.to(like))
        y = self.samples.targets(index)
        if not self.samples.relative:
            y = y - past.mean(dim=1, keepdim=True)
        return seen, y.flatten(1).to(like)

    def _part(self, windows: Tensor) -> Part:
        """Return the sums of some windows."""
        seen, y = self.look(windows)
        groups = len(self.readout.weights)
        f, y = (v.unflatten(0, (-1, groups)).transpose(0, 1).contiguous() for v in (self.readout.reduced(seen), y))
        return Part.of(f, y)

    def sums(self, blocks: Sequence[Tensor]) -> BlockSums:
        """Return the sums of every block."""
        groups, features, rows = self.readout.weights.shape
        sums = BlockSums(groups, len(blocks), features, rows, self.readout.weights.device)
        chunks = [(number, windows) for number, block in enumerate(blocks) for windows in block.split(self.chunk)]
        parts = self.run.map(self._part, [windows for _, windows in chunks])
        for (number, _), part in zip(chunks, parts, strict=True):
            sums.add(number, part)
        return sums

    def naive(self) -> dict[str, Tensor]:
        """Return the weights (features, horizon * outputs) of naive forecasts, by name."""
        _, features, rows = self.readout.weights.shape
        names = ("the last value", "the window's mean", "the training rows' mean")
        last, mean, usual = found = torch.zeros(3, features, rows, dtype=torch.float64, device=self.readout.weights.device)
        heights = self.readout.parts["heights"].start
        for c in range(self.readout.outputs):
            last[c, c :: self.readout.outputs] = 1.0
            usual[heights + c, c :: self.readout.outputs] = -1.0
        return dict(zip(names, found, strict=True))


@torch.no_grad()
def set_directions(readout: LagReadout, source: Source) -> None:
    """Set the directions of lags, extra features, what all channels do together, and what is known ahead, from some windows."""
    sizes, window = readout.sizes, readout.sizes.window
    wanted = min(max(LOOKED // source.group, 400), 1500, source.windows)
    numbers = torch.linspace(0, source.windows - 1, wanted).round().long().unique()
    gram = torch.zeros(window, window, dtype=torch.float64)
    extra, together, ahead, spreads = [], [], [], []
    # All samples share these directions, so a part of many is enough: every few windows, with all their channels.
    features, done = max(len(readout.extra_mean), 1), 0
    most = 2000 if features > 2000 else min(20_000, 2**24 // features)
    every = max(1, -(-len(numbers) * source.group // most))
    for seen, _ in source.run.map(source.look, numbers.split(source.chunk)):
        windows = torch.arange(done, done + len(seen.extra) // source.group)
        few, done = (windows % every == 0).repeat_interleave(source.group).to(seen.extra.device), done + len(windows)
        lags = seen.lags[few].flatten(0, 1).double().cpu()
        gram += lags.T @ lags
        extra.append((seen.extra * seen.moving)[few].double().cpu())
        together.append(seen.together.double().cpu())
        ahead.append(seen.ahead.double().cpu())
        spreads.append(seen.lags.double().square().mean(dim=2).sqrt().cpu().unflatten(0, (-1, source.group)))
    least = torch.quantile(torch.cat(spreads), QUIET, dim=0)
    readout.spreads.copy_(least.clamp_min(SMALLEST))
    if sizes.lags < window:
        recent = round(RECENT * sizes.lags)
        older = window - recent
        _, vectors = safe_eigh(gram[:older, :older])
        found = torch.zeros(window, sizes.lags, dtype=torch.float64)
        found[:older, : sizes.lags - recent] = _signed(vectors[:, older - (sizes.lags - recent) :])
        found[older:, sizes.lags - recent :] = torch.eye(recent, dtype=torch.float64)
        readout.lag_directions.copy_(found)
    values_ahead = slice(sizes.known * sizes.horizon)  # before single neurons
    for name, values, own in (
        ("extra", extra, readout.covariates),
        ("common", together, slice(0)),
        ("ahead", ahead, values_ahead),
    ):
        wanted = getattr(sizes, name)
        if wanted:
            mean, directions = separate_directions(torch.cat(values), wanted, own)
            getattr(readout, f"{name}_mean").copy_(mean)
            getattr(readout, f"{name}_directions").copy_(directions)


def _signed(vectors: Tensor) -> Tensor:
    """Return vectors (n, k) with signs by a rule: the largest entry is positive."""
    at = vectors.abs().argmax(dim=0)
    return vectors * vectors.gather(0, at[None]).sign()


def principal_directions(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the mean, and directions (features, count) in which values (rows, features) vary most.

    Features are divided by their deviation first. Directions are scaled between what principal components have, where the first
    outweighs all, and equal deviations.
    """
    mean = values.mean(dim=0)
    size = (values - mean).square().mean(dim=0).sqrt()
    size = torch.where(size > 1e-6 * size.max().clamp_min(1e-300), size, torch.inf)
    unit = (values - mean) / size
    few = len(unit) < unit.shape[1]
    square, vectors = safe_eigh(unit @ unit.T if few else unit.T @ unit)
    square, vectors = square.flip(0)[:count], vectors.flip(1)[:, :count]
    keep = square > 1e-6 * square[:1].clamp_min(1e-300)
    square, vectors = square[keep], vectors[:, keep]
    if few:
        vectors = unit.T @ vectors / square**0.5
    directions = _signed(vectors) * (len(unit) / square) ** 0.25 / size[:, None]
    return mean, torch.nn.functional.pad(directions, (0, count - directions.shape[1]))


def separate_directions(values: Tensor, count: int, own: slice) -> tuple[Tensor, Tensor]:
    """Return `principal_directions` in which the features `own` have directions for themselves, up to half of all.

    Covariates are few. What they know would else be lost among the many other features, which vary together.
    """
    inside = torch.zeros(values.shape[1], dtype=torch.bool)
    inside[own] = True
    first = min(int(inside.sum()), count if bool(inside.all()) else max(1, count // 2))
    directions = torch.zeros(len(inside), count, dtype=values.dtype)
    if first:
        directions[inside, :first] = principal_directions(values[:, inside], first)[1]
    if first < count and not bool(inside.all()):
        directions[~inside, first:] = principal_directions(values[:, ~inside], count - first)[1]
    return values.mean(dim=0), directions


@torch.no_grad()
def held_out_errors(source: Source, windows: Tensor) -> tuple[float, np.ndarray]:
    """Return the mean squared error on some windows, and calibrated quantiles (levels, horizon, channels)."""
    readout, errors = source.readout, []
    picked = windows[:: max(1, -(-len(windows) // KEPT))]
    for seen, y in source.run.map(source.look, picked.split(source.chunk)):
        errors.append((y - readout(readout.reduced(seen))).cpu())
    error = torch.cat(errors).unflatten(0, (-1, source.group)).unflatten(2, (readout.horizon, -1))  # (n, G, H, O)
    sizes = error.abs().transpose(1, 2).flatten(2).double().numpy()  # (n, H, channels)
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
