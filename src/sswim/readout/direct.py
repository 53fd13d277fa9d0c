r"""The direct readout: each step ahead has weights of its own, which read the spikes of a whole window at its end.

What is read is in `sswim.readout.lags`; how the weights are found, and what of them is kept, in `sswim.readout.weighing`.
Channels that share a network are a batch, and each has weights of its own, as far as the data speaks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from sswim.data.scaling import RELATIVE
from sswim.data.windows import Split
from sswim.network.network import SpikingNetwork
from sswim.network.population import Population
from sswim.options import Mistakes, Options, Run, check_constants, check_integer
from sswim.readout.base import Shape, Training
from sswim.readout.lags import LagReadout, LagSizes, lag_bins
from sswim.readout.ledger import Ledger
from sswim.readout.look import Source, set_directions
from sswim.readout.precision import SIZES, size_of_population
from sswim.readout.record import KEPT, LagRecord, block_count, errors_of, quantiles_of
from sswim.report import Solution
from sswim.steps.base import InitialBatch

__all__ = ["Direct", "default_constants"]

# Directions of lags, of single neurons with traces and covariates, of what all channels do together, and of what is known
# ahead, at most.
LAGS, EXTRA, COMMON, AHEAD = 192, 64, 80, 96
# Samples (windows of a channel) for the sums, at most.
SAMPLES = 600_000
# Bytes that the sums of all blocks may take before there are fewer directions, and bytes that need not be asked for.
ROOM, FREE = 2_000_000_000, 128_000_000
# Part of all features that the waves of a calendar may be.
WAVES = 1 / 3


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
    population : int, optional
        Number of neurons that carry each channel. More neurons carry it more precisely, and cost more spikes. Default: 64, or
        more if rounding to 64 steps would cost more than 1 % of the squared error, as with smooth series; at most 4,096, see
        `sswim.readout.precision`.
    singles : int
        Number of these neurons that also have weights of their own, for what is not linear; 0 for none.
    common : bool
        Whether a channel's forecast may lean on what all channels do together.
    traces : float or sequence of float, optional
        Time constants of the sampled neurons' traces, in steps. Default: 1, and two longer ones that suit the window.
    calendar : bool
        Whether forecasts may depend on the time of day, week and year, if the rows of a series have times. Clock neurons tell
        it, see `sswim.data.calendar`. Not with training by gradients, and not where its waves would take the place of more than
        a third of all features, as with thousands of channels.
    blocks : int
        Number of blocks in time on which everything is weighed. Fewer if they would be shorter than a window and horizon.
    """

    skip: bool = False
    population: int | None = None
    singles: int = 8
    common: bool = True
    traces: float | Sequence[float] | None = None
    blocks: int = 8
    calendar: bool = field(default=True, metadata={"later": True})
    stride: ClassVar[int] = 1

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        if self.population is not None:
            mistakes.check(Population, self.population)
        mistakes.check(check_integer, "singles", self.singles, 0)
        mistakes.check(check_integer, "blocks", self.blocks, 2)
        if self.traces is not None:
            mistakes.check(check_constants, "traces", self.traces)
        mistakes.report()

    def _costs(self, groups: int, rows: int) -> tuple[float, int]:
        """Return the bytes `each` and the number `linear` for ``each * f * (2 * f + linear)`` bytes with `f` features.

        For every block and channel: sums, eigenvectors, and weights of a dozen models for a dozen outputs.
        """
        return 8 * groups * self.blocks * 1.5, rows + 144

    def most_features(self, groups: int, rows: int) -> int:
        """Return how many features there may be, for `groups` channels with weights of their own and `rows` values ahead."""
        each, linear = self._costs(groups, rows)
        return int((linear**2 + 8 * ROOM / each) ** 0.5 - linear) // 4 - 2

    def has_room(self, waves: int, groups: int, rows: int) -> bool:
        """Return whether a calendar of some waves leaves room for what else is read; see `most_features`."""
        return waves <= WAVES * self.most_features(groups, rows)

    def build(self, shape: Shape) -> LagReadout:
        """Return an output of the right sizes. With very many channels there are fewer directions, whatever the memory."""
        constants = default_constants(shape.window) if self.traces is None else check_constants("traces", self.traces)
        groups, rows, bins = max(shape.channels, 1), shape.horizon * shape.outputs, len(lag_bins(shape.window)) - 1
        each, linear = self._costs(groups, rows)
        most = self.most_features(groups, rows) - shape.clock
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
        features = (lags + 2) * shape.outputs + 1 + extra + common + ahead + shape.clock
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
            shape.clock,
        )
        options = {"population": self.population or SIZES[0], "singles": singles, "skip": self.skip}
        options |= {"absolute": shape.scaling not in RELATIVE, "heights": shape.scaling != "window"}
        return LagReadout(sizes, constants=constants, **options, dtype=shape.dtype)  # type: ignore[arg-type]

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the output's directions and weights from all windows; blocks in time decide what is kept."""
        return self._fit(network, split, run)

    @torch.no_grad()
    def _fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        source = Source(network, split.whole, run.budget)
        with run.step("directions"):
            if self.population is None and not self.skip:
                source.readout.resize(size_of_population(*source.some_rows()))
            set_directions(source.readout, source, run)
        stride = max(1, -(-source.windows * source.group // SAMPLES))
        count = min(block_count(self.blocks, source.windows, network.window + network.horizon), source.windows // stride)
        held_out = 1 - len(split.train) / len(source.samples)
        return LagRecord(Ledger(source.windows, count, stride), held_out).fit(network, split, run)

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the hidden layers; go back to the sampled ones if these forecast the held-out windows better."""
        readout: LagReadout = network.readout  # type: ignore[assignment]
        if training.from_scratch:
            report = training.descend(network, split.train, split.held_out, run)
            source = Source(network, split.whole, run.budget)
            kept = len(split.train) // source.group
            windows = torch.arange(kept, source.windows)
            errors = errors_of(source, windows[:: max(1, -(-len(windows) // KEPT))], run)
            score = float(errors.double().square().mean())
            return replace(solution, score=score, quantiles=quantiles_of(errors), training=report)
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
