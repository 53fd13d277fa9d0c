"""What a direct readout is solved from, again and again: sums of blocks in time, what was chosen on them, and past errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sswim.data.windows import Split
from sswim.network.network import SpikingNetwork
from sswim.options import Run
from sswim.readout.blocks import Part, total
from sswim.readout.lags import LagReadout
from sswim.readout.ledger import Ledger
from sswim.readout.look import Source
from sswim.readout.seasons import find_seasons
from sswim.readout.weighing import OVERLAP, USUAL, Model, Weighed, weigh
from sswim.report import Solution

__all__ = ["KEPT", "LEVELS", "LagRecord", "block_count", "errors_of", "quantiles_of"]

# Coverages that quantiles of the errors are kept for.
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99])
# Windows whose errors are kept for intervals.
KEPT = 1000


def block_count(most: int, windows: int, span: int) -> int:
    """Return the number of blocks: `most`, half as many again if neighbours overlap too much, or fewer for few windows.

    `span` is the length of a window and its horizon.
    """
    return int(min(most if span * most / windows < OVERLAP else most * 3 // 2, max(2, 2 * windows // span), windows))


@dataclass(frozen=True)
class LagRecord:
    """Sums of a fit with lags, from which its output can be solved for anew. It never changes.

    Attributes
    ----------
    ledger : Ledger
    held_out : float
        Part of the blocks, the last ones, that errors of a fit are measured on.
    weighed : Weighed or None
        The models and their shares, chosen on the ledger's blocks.
    errors : Tensor of shape (windows, horizon, channels)
        Errors of past forecasts, made by weights that had not seen what came, in the order of time.
    every : int
        Distance in windows between errors that are kept.
    """

    ledger: Ledger
    held_out: float
    weighed: Weighed | None = None
    errors: Tensor = torch.zeros(0)
    every: int = 1

    def emptied(self) -> LagRecord:
        """Return a record of no windows, with the same layout."""
        return replace(self, ledger=self.ledger.emptied(), errors=self.errors[:0])

    @torch.no_grad()
    def fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        """Set a network's output from all windows at once; blocks in time decide what is kept."""
        source = Source(network, split.whole, run.budget)
        readout, lengths = source.readout, stretches(source.samples.recordings)
        with run.step("output weights"):
            ledger = self.ledger.emptied().extended(lengths, partial(source.sums, run=run))
        with run.step("weighing"):
            weighed = self._weigh(ledger, readout)
        errors, every, held = self.errors, self.every, round(len(ledger.blocks) * self.held_out)
        if len(ledger.blocks) > 1:
            held = min(max(1, held), len(ledger.blocks) - 1)
            with run.step("intervals"):
                _set(readout, weighed, total(ledger.parts()[:-held]))
                cuts = ledger.emptied().plan(lengths)
                begin = [number for number, cut in enumerate(cuts) if cut.whole][-held]
                windows = torch.cat([cut.windows for cut in cuts[begin:]])
                every = max(1, -(-len(windows) // KEPT))
                errors = errors_of(source, windows[::every], run)
                every *= ledger.stride
        with run.step("final weights"):
            assert ledger.whole is not None
            _set(readout, weighed, ledger.whole)
        solution = replace(self, ledger=ledger, weighed=weighed, errors=errors, every=every).solution(readout)
        return replace(solution, quantiles=quantiles_of(errors), record=solution.record if run.keeps(ledger.size) else None)

    @torch.no_grad()
    def extended(
        self, network: SpikingNetwork, split: Split, run: Run, *, begins: bool = True, forget: float | None = None
    ) -> LagRecord:
        """Return the record with new windows; their errors are those of the output as it is."""
        source = Source(network, split.whole, run.budget)
        lengths = stretches(source.samples.recordings, begins)
        with run.step("output weights"):
            ledger = self.ledger.extended(lengths, partial(source.sums, run=run), forget)
        first = -self.ledger.windows % self.every
        with run.step("intervals"):
            new = errors_of(source, torch.arange(first, source.windows, self.every), run)
        return self._with(ledger, torch.cat([self.errors.to(new), new])[-KEPT:])

    def merged(self, other: LagRecord) -> LagRecord:
        """Return the record of this one's windows and those of another."""
        return self._with(self.ledger.merged(other.ledger), torch.cat([self.errors, other.errors])[-KEPT:])

    def _with(self, ledger: Ledger, errors: Tensor) -> LagRecord:
        """Return the record with another ledger: what was chosen stays as long as the blocks that decide are the same."""
        same = (ledger.step, ledger.decided) == (self.ledger.step, self.ledger.decided) or len(ledger.blocks) < 2
        return replace(self, ledger=ledger, weighed=self.weighed if same else None, errors=errors)

    @torch.no_grad()
    def solve(self, network: SpikingNetwork, run: Run) -> Solution:
        """Set an output's weights from the sums."""
        readout: LagReadout = network.readout  # type: ignore[assignment]
        assert self.ledger.whole is not None
        weighed = self.weighed
        if weighed is None:
            with run.step("weighing"):
                weighed = self._weigh(self.ledger, readout)
        with run.step("final weights"):
            _set(readout, weighed, self.ledger.whole)
        return replace(self, weighed=weighed).solution(readout)  # quantiles are found when asked for

    def quantiles(self) -> np.ndarray:
        """Return calibrated quantiles (levels, horizon, channels) of past errors."""
        return quantiles_of(self.errors)

    def _weigh(self, ledger: Ledger, readout: LagReadout) -> Weighed:
        """Return what is chosen on blocks; what was chosen before if there is one block only."""
        if len(ledger.blocks) < 2:
            if self.weighed is None:
                raise ValueError("series: too short, its windows fill no two blocks.")
            return self.weighed
        sizes = readout.sizes
        return weigh(
            ledger.parts()[: ledger.decided],
            readout.parts,
            naive_weights(readout),
            span=(sizes.window + sizes.horizon) / ledger.length,
            height=sizes.window**0.5,
            compared=min(12 * readout.outputs, 400),
            says=ledger.says[: ledger.decided],
            seasons=find_seasons(readout),
        )

    def solution(self, readout: LagReadout) -> Solution:
        """Return what is told of the output."""
        weighed = self.weighed
        assert weighed is not None
        gains = {m.name: float(g) for m, g in zip(weighed.models, weighed.gains, strict=True)}
        used = _used(weighed)
        lambdas = torch.cat([m.penalty for m in used]) if used else torch.zeros(1)
        return Solution(
            lambdas.cpu(),
            traces=len(readout.constants),
            score=float(self.errors.double().square().mean()),
            kept=weighed.kept(),
            gains=gains,
            record=self,
        )


def _set(readout: LagReadout, weighed: Weighed, part: Part) -> None:
    """Set an output's weights from the sums of some rows."""
    weights, timeless = weighed.solved(part)
    readout.weights.copy_(weights)
    if timeless is not None:
        readout.timeless.copy_(timeless[:, : readout.parts["clock"].start])


def stretches(recordings: Sequence[int], begins: bool = True) -> list[tuple[bool, int]]:
    """Return the lengths of recordings, and whether each begins anew: all but perhaps the first one."""
    return [(begins if number == 0 else True, count) for number, count in enumerate(recordings)]


def _used(weighed: Weighed) -> list[Model]:
    """Return the models that have penalties, and a share."""
    return [m for m, share in zip(weighed.models, weighed.shares.T, strict=True) if len(m.penalty) and bool((share > 0).any())]


def naive_weights(readout: LagReadout) -> dict[str, Tensor]:
    """Return the weights (features, horizon * outputs) of naive forecasts, by name."""
    _, features, rows = readout.weights.shape
    names = ("the last value", "the window's mean", USUAL)
    last, mean, usual = found = torch.zeros(3, features, rows, dtype=torch.float64, device=readout.weights.device)
    heights = readout.parts["heights"].start
    for c in range(readout.outputs):
        last[c, c :: readout.outputs] = 1.0
        usual[heights + c, c :: readout.outputs] = -1.0
    return dict(zip(names, found, strict=True))


@torch.no_grad()
def errors_of(source: Source, windows: Tensor, run: Run) -> Tensor:
    """Return the errors (windows, horizon, channels) of the present output on some windows."""
    readout, errors = source.readout, []
    for seen, y in run.map(source.look, windows.split(source.chunk) if len(windows) else []):
        errors.append((y - readout(readout.reduced(seen))).cpu())
    if not errors:
        return torch.zeros(0, readout.horizon, source.group * readout.outputs)
    error = torch.cat(errors).unflatten(0, (-1, source.group)).unflatten(2, (readout.horizon, -1))  # (n, G, H, O)
    return error.transpose(1, 2).flatten(2)


def quantiles_of(errors: Tensor) -> np.ndarray:
    """Return calibrated quantiles (levels, horizon, channels) of the sizes of errors (windows, horizon, channels)."""
    sizes = errors.abs().double().numpy()
    return _ranked_quantiles(np.sort(sizes, axis=0), _calibrated(sizes, LEVELS))


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
