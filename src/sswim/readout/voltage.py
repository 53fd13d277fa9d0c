"""A classifier's readouts as in the paper: output voltages that follow a surrogate, integrated or turned into spikes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.data.windows import Samples, Split, batches
from sswim.network.kernels import REFRACTORY_KERNELS, resolve_kernel
from sswim.network.network import KernelName, SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Mistakes, Options, Run, check_choice, check_integer, check_positive
from sswim.readout.base import Shape, Training
from sswim.readout.counts import cross_entropy, few_of
from sswim.readout.likelihood import fit_temperature
from sswim.readout.traces import Assembly
from sswim.readout.trajectory import Trajectory
from sswim.regression import Regularization
from sswim.report import Solution
from sswim.steps.base import Delays, InitialBatch, Supports

__all__ = ["Spikes", "Voltage", "voltages"]

# Spike costs of an output layer that are tried.
COSTS = (-0.1, -0.25, -0.5, -1.0, -1.5)


@dataclass(frozen=True)
class Voltage(Options):
    """Output voltages follow the paper's surrogate of plus or minus ``1 + delta``; the class is that of the largest integral.

    Parameters
    ----------
    horizon : int
        Steps that the voltages are fitted on.
    delta : float
        The paper's Delta.
    integrate : {"horizon", "all"}
        Whether voltages are integrated, or spikes counted, over the steps that they were fitted on, or over all, as in the
        paper. Nothing determines what the output does before the horizon.
    kernel, delays, supports, regularization, assembly
        As in `Trajectory`.
    """

    horizon: int = 15
    delta: float = 1.0
    integrate: str = "horizon"
    kernel: KernelName = "hat"
    delays: str | Delays = "zero"
    supports: str | Supports = "search"
    regularization: str | Regularization = "search"
    assembly: str | Assembly = "auto"

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        mistakes.check(check_integer, "horizon", self.horizon, 1)
        mistakes.check(check_positive, "delta", self.delta)
        mistakes.check(check_choice, "integrate", self.integrate, ("horizon", "all"))
        mistakes.check(self._trajectory)
        mistakes.report()

    def _trajectory(self) -> Trajectory:
        return Trajectory(self.kernel, self.delays, self.supports, self.regularization, self.assembly)

    @property
    def voltage(self) -> float:
        """Target of the right class, and minus that of the others."""
        return 1 + self.delta

    def build(self, shape: Shape, *, spiking: bool = False) -> VoltageReadout:
        """Return an output layer of the right sizes, right after the window."""
        return VoltageReadout(
            shape.hidden[-1],
            shape.outputs,
            resolve_kernel(self.kernel),
            REFRACTORY_KERNELS["exponential-cut"],
            start=shape.window,
            horizon=shape.horizon,
            spiking=spiking,
            dtype=shape.dtype,
        )

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Fit the voltages to the surrogate, as in the paper."""
        return self._trajectory().solve(network, split, batch, spikes, run)

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network down the cross entropy of the mean voltages."""
        with _voltage(network).as_voltage():
            report = training.descend(network, split.train, split.held_out, run, loss=cross_entropy, penalty=0.0)
        return replace(solution, training=report)

    def finish(self, network: SpikingNetwork, split: Split, solution: Solution, run: Run) -> Solution:
        """Fit the temperature of probabilities on validation samples."""
        few = few_of(split.held_out, 5000)
        values, labels = self.decisions(network, few, run.budget), few.targets(slice(None))[:, 0].argmax(dim=1)
        return replace(solution, temperature=fit_temperature(values, labels))

    @torch.no_grad()
    def decisions(self, network: SpikingNetwork, samples: Samples, memory: int) -> Tensor:
        """Return the integrated voltages or the numbers of spikes, (samples, classes)."""
        look, parts = network.predictor(self.first(network)), batches(len(samples), network.batch_size(memory))
        return torch.cat([look(samples.inputs(part)).sum(dim=1).double() for part in parts]).cpu()

    def first(self, network: SpikingNetwork) -> int:
        """Return the step from which on the output is integrated."""
        return network.start if self.integrate == "horizon" else 0


@dataclass(frozen=True)
class Spikes(Voltage):
    """As `Voltage`, but the output layer spikes, and the class is that of the most spikes.

    Parameters
    ----------
    normalize : bool
        Whether voltages are scaled and shifted, and spike costs set, such that the numbers of spikes tell the classes apart;
        the paper leaves them as they are. Judged on validation samples.
    horizon, delta, integrate, kernel, delays, supports, regularization, assembly
        As in `Voltage`.
    """

    normalize: bool = True

    def build(self, shape: Shape, *, spiking: bool = True) -> VoltageReadout:
        """Return a spiking output layer of the right sizes, right after the window."""
        return super().build(shape, spiking=spiking)

    def finish(self, network: SpikingNetwork, split: Split, solution: Solution, run: Run) -> Solution:
        """Normalise the output, and fit the temperature of probabilities."""
        if self.normalize:
            solution = replace(solution, normalization=self._normalize(network, split.held_out, run))
        return super().finish(network, split, solution, run)

    @torch.no_grad()
    def _normalize(self, network: SpikingNetwork, held_out: Samples, run: Run) -> tuple[float, float, float]:
        """Set scale, shift and spike cost of the output, and return them.

        Voltages of plus or minus ``1 + delta`` let a neuron fire as often as it can, or never: the numbers of spikes would
        say little.
        """
        readout, few = _voltage(network), few_of(held_out, 1000)
        v = voltages(network, few, run.budget)
        label = few.targets(slice(None))[:, 0].argmax(dim=1).to(v.device)
        grid = itertools.product(COSTS, torch.logspace(-1, 0.5, 10).tolist(), torch.linspace(-0.5, 1.25, 8).tolist())
        best, chosen = -1.0, (-1.0, 1.0, 0.0)
        for cost, alpha, beta in grid:
            readout.costs.fill_(cost)
            counts = readout.fire(alpha * v + beta)[:, self.first(network) :].sum(dim=1)  # (C, B)
            right = float((counts.argmax(dim=0) == label).double().mean())
            if right > best:
                best, chosen = right, (cost, alpha, beta)
        cost, alpha, beta = chosen
        readout.costs.fill_(cost)
        readout.weights.mul_(alpha)
        readout.biases.mul_(alpha).add_(beta)
        return alpha, beta, cost


def voltages(network: SpikingNetwork, samples: Samples, memory: int) -> Tensor:
    """Return the output layer's voltages (classes, steps, samples), before any spikes."""
    with _voltage(network).as_voltage():
        look, parts = network.predictor(0), batches(len(samples), network.batch_size(memory))
        found = [look(samples.inputs(part)) for part in parts]
    return torch.cat(found).permute(2, 1, 0)


def _voltage(network: SpikingNetwork) -> VoltageReadout:
    if not isinstance(network.readout, VoltageReadout):
        raise TypeError("network: its output must be a VoltageReadout.")
    return network.readout
