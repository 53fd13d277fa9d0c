"""The paper's settings to the letter, and the switches that lead from there to ours.

`Forecaster.paper` and `Classifier.paper` are made of these. Every switch is in the table of `docs/notation.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sswim.data.scaling import Scaling
from sswim.gradient.training import PAPER_TRAININGS, Gradient
from sswim.options import Options, check_choice
from sswim.readout.traces import ASSEMBLIES, Assembly
from sswim.readout.trajectory import Trajectory
from sswim.readout.voltage import Spikes, Voltage
from sswim.regression import LambdaSearch
from sswim.sampling import STEPS, Steps
from sswim.steps.delays import CorrelationDelays
from sswim.steps.temporal import TemporalGrid

__all__ = ["PAPER_CLASSES", "Switches", "paper_training"]

# How the paper samples a classifier (table ``tab:class_config``).
PAPER_CLASSES: Steps = STEPS["paper"].replace(
    temporal=TemporalGrid(max_delay=30.0, min_support=3.0, max_support=25.0),
    input_metric="l2",
    deeper_metric="l2",
    output_metric="class",
    initial_batch=900,
)


@dataclass(frozen=True)
class Switches(Options):
    """Points where ours may replace the paper's way. Defaults: the paper's.

    Parameters
    ----------
    assembly : {"exact", "fast", "auto"} or Assembly
        How far the output's sums, and the correlations of its delays, are thinned out.
    bias : {"penalized", "free"}
        Whether the output bias is penalised like the weights.
    grid : {"paper", "extended"}
        Whether the search for lambda ends at the ends of its grid.
    clip : bool
        Whether input beyond a channel's training range is brought back to it.
    """

    assembly: str | Assembly = "exact"
    bias: str = "penalized"
    grid: str = "paper"
    clip: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.assembly, str):
            check_choice("assembly", self.assembly, ("exact", "fast", "auto"))
        check_choice("bias", self.bias, ("penalized", "free"))
        check_choice("grid", self.grid, ("paper", "extended"))

    @property
    def regularization(self) -> LambdaSearch:
        """How lambda is searched for."""
        return LambdaSearch(extend=self.grid == "extended", penalize_bias=self.bias == "penalized")

    @property
    def trajectory(self) -> Trajectory:
        """A forecaster's readout."""
        exact = self.assembly in ("exact", ASSEMBLIES["exact"])
        delays = CorrelationDelays(work=math.inf) if exact else CorrelationDelays()
        return Trajectory(delays=delays, regularization=self.regularization, assembly=self.assembly)

    @property
    def scaling(self) -> Scaling:
        """How a forecaster's channels are scaled."""
        return Scaling("channel", clip=self.clip, floor=False, trim=False)

    def voltage(self, readout: object) -> object:
        """Return a classifier's readout of the paper, if it is named."""
        same = {"integrate": "all", "regularization": self.regularization, "assembly": self.assembly}
        named = {"voltage": lambda: Voltage(**same), "spikes": lambda: Spikes(**same, normalize=False)}  # type: ignore[arg-type]
        return named[readout]() if isinstance(readout, str) and readout in named else readout


def paper_training(training: str | Gradient | None) -> str | Gradient | None:
    """Return the paper's training that a name stands for."""
    return PAPER_TRAININGS.get(training, training) if isinstance(training, str) else training
