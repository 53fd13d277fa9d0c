"""A forecaster's readout of fading traces: leaky integrators and an affine map, which chips and other simulators have too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from sswim.data.windows import Split
from sswim.network.network import SpikingNetwork
from sswim.options import Mistakes, Options, Run, check_constants, resolve
from sswim.readout.base import Shape, Training
from sswim.readout.counts import CountsRecord
from sswim.readout.decaying import TraceReadout, check_memory
from sswim.readout.direct import default_constants
from sswim.regression import REGULARIZATION, Regularization
from sswim.report import Solution
from sswim.steps.base import InitialBatch
from sswim.steps.leaky import check_bits

__all__ = ["Traces"]


@dataclass(frozen=True)
class Traces(Options):
    """Read each step ahead with weights of its own, from the fading traces of all hidden neurons at the window's end.

    Nothing else reaches the output: neither rows nor populations. Channels that share a network share its weights.

    Parameters
    ----------
    traces : float or sequence of float, optional
        Time constants of the traces, in steps. Default: 1, and two longer ones that suit the window.
    regularization : str or object
        ``"search"``, ``"fixed"``, or a `LambdaSearch` or `FixedLambda`.
    bits : int, optional
        Round the weights of each output to integers of this many bits times a number. Default: not rounded.
    """

    traces: float | Sequence[float] | None = None
    regularization: str | Regularization = "search"
    bits: int | None = None
    stride: ClassVar[int] = 1

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        if self.traces is not None:
            mistakes.check(check_constants, "traces", self.traces)
        mistakes.check(resolve, "regularization", self.regularization, REGULARIZATION, "basis", "solve")
        mistakes.check(check_bits, "bits", self.bits)
        mistakes.report()

    def build(self, shape: Shape) -> TraceReadout:
        """Return an output of the right sizes."""
        constants = default_constants(shape.window) if self.traces is None else check_constants("traces", self.traces)
        traces = sum(shape.hidden) * len(constants)
        check_memory(traces, shape.memory, "Use fewer neurons or traces, or allow more.")
        return TraceReadout(traces, shape.outputs, shape.horizon, constants=constants, dtype=shape.dtype)

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the weights that read the traces, from all windows."""
        regularization = resolve("regularization", self.regularization, REGULARIZATION)
        return CountsRecord("forecast", regularization, bits=self.bits).fit(network, split, run)

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network; the loss is the one that sampling minimised, with the same penalty."""
        penalty = None if training.from_scratch else solution.lambdas
        report = training.descend(network, split.train, split.held_out, run, penalty=penalty)
        return replace(solution, training=report, record=None)
