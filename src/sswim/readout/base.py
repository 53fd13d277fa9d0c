"""What a readout's settings must offer: they build the output, solve for it, and let gradients improve it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sswim.data.windows import Samples, Split
from sswim.network.network import SpikingNetwork
from sswim.network.output import Readout
from sswim.options import Run
from sswim.report import Solution, TrainingReport
from sswim.steps.base import InitialBatch

__all__ = ["ClassReadoutOptions", "ForecastReadoutOptions", "Loss", "ReadoutOptions", "Shape", "Solver", "Training"]

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes that an output is built for.

    Attributes
    ----------
    inputs, outputs, window, horizon : int
    hidden : sequence of int
    channels : int
        Number of channels that share the network, 0 if none do.
    memory : int
        Budget in bytes.
    dtype : torch.dtype
    covariates : int
        Number of inputs, the last ones, that are not forecast.
    known : int
        Number of these that are known ahead.
    clock : int
        Number of waves of the calendar.
    scaling : str
        Kind of scaling of a series, which says whether targets are relative to the window's mean.
    """

    inputs: int
    outputs: int
    window: int
    horizon: int
    hidden: Sequence[int]
    channels: int
    memory: int
    dtype: torch.dtype
    covariates: int = 0
    known: int = 0
    clock: int = 0
    scaling: str = "none"


class Training(Protocol):
    """A training by gradients."""

    @property
    def from_scratch(self) -> bool:
        """Whether the network starts from random parameters instead of sampled ones."""
        ...

    def descend(
        self,
        network: SpikingNetwork,
        train: Samples,
        held_out: Samples,
        run: Run,
        *,
        loss: str | Loss = "mse",
        penalty: float | Tensor | None = None,
    ) -> TrainingReport:
        """Train the network; `penalty` on the output weights replaces the default one."""
        ...


class Solver(Protocol):
    """Finds the parameters of an output."""

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the output's parameters, for hidden layers that are set.

        `spikes` (neurons, steps, batch), uint8, are those of the last hidden layer on the initial batch.
        """
        ...


class ReadoutOptions(Solver, Protocol):
    """A readout's settings."""

    def build(self, shape: Shape) -> Readout:
        """Return an output of the right sizes, its parameters still to be set."""
        ...

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network by gradients, and return what the output is then."""
        ...


class ForecastReadoutOptions(ReadoutOptions, Protocol):
    """The settings of a forecaster's readout."""

    @property
    def stride(self) -> int:
        """Distance between neighbouring windows that are used for fitting."""
        ...


class ClassReadoutOptions(ReadoutOptions, Protocol):
    """The settings of a classifier's readout."""

    @property
    def horizon(self) -> int:
        """Steps that targets live on."""
        ...

    @property
    def voltage(self) -> float:
        """Target of the right class, and minus that of the others."""
        ...

    def finish(self, network: SpikingNetwork, split: Split, solution: Solution, run: Run) -> Solution:
        """Do what comes after sampling and training: what follows from validation samples alone."""
        ...

    def decisions(self, network: SpikingNetwork, samples: Samples, memory: int) -> Tensor:
        """Return the decision value of each class, (samples, classes)."""
        ...
