r"""Populations: neurons with evenly spaced thresholds, which together carry a signal.

A neuron of a population has a kernel shorter than one step, no delay and no spike cost (definition ``def:ff_snn``). With weight
1 and bias :math:`1 - \theta` it fires at every step at which its input is at least its threshold :math:`\theta`. Neurons with
thresholds below 0 have weight -1 and bias :math:`1 + \theta`: they fire at every step at which the input is below
:math:`\theta`. So none fires at 0, and the number of the former that fire, minus that of the latter, is the input, rounded to
the distance of two thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.network.kernels import REFRACTORY_KERNELS, Hat
from sswim.network.layer import SpikingLayer
from sswim.options import check_integer

__all__ = ["REACH", "Population"]

# Thresholds lie between minus this and this, in deviations.
REACH = 4.0
# Neurons of a population, at most: float32 tells their thresholds apart.
MOST = 1_000_000


@dataclass(frozen=True)
class Population:
    r"""Neurons whose thresholds lie evenly spaced between -4 and 4: :math:`\theta_i = (i - (K - 1) / 2) \, 8 / K`.

    Parameters
    ----------
    neurons : int
        `K`.

    Examples
    --------
    >>> Population(4).thresholds.tolist()
    [-3.0, -1.0, 1.0, 3.0]
    >>> Population(4).counts(torch.tensor([-9.0, 0.0, 1.0, 9.0])).tolist()
    [0.0, 2.0, 3.0, 4.0]
    >>> Population(4).spikes(torch.tensor([-9.0, 0.0, 1.0, 9.0])).tolist()
    [2.0, 0.0, 1.0, 2.0]
    """

    neurons: int

    def __post_init__(self) -> None:
        if check_integer("population", self.neurons, 1) > MOST:
            raise ValueError(f"population must be at most {MOST:,}, got {self.neurons!r}.")

    @property
    def distance(self) -> float:
        """Distance of two neighbouring thresholds."""
        return 2 * REACH / self.neurons

    @property
    def thresholds(self) -> Tensor:
        """The thresholds (neurons,), ascending, float64."""
        return (torch.arange(self.neurons, dtype=torch.float64) - (self.neurons - 1) / 2) * self.distance

    def counts(self, signal: Tensor) -> Tensor:
        """Return how many thresholds a signal reaches, for each of its values: all that the spikes tell."""
        return (signal / self.distance + (self.neurons - 1) / 2).floor_().add_(1).clamp_(0, self.neurons)

    def spikes(self, signal: Tensor) -> Tensor:
        """Return how many neurons fire, for each value of a signal."""
        return (self.counts(signal) - self.neurons // 2).abs_()

    def fires(self, signal: Tensor) -> Tensor:
        """Return which neurons fire, (..., neurons), for each value of a signal."""
        thresholds = self.thresholds.to(signal)
        return (signal[..., None] >= thresholds) ^ (thresholds < 0)

    def values(self, counts: Tensor) -> Tensor:
        """Return what a signal is, in its units, that reaches some numbers of thresholds."""
        return (counts - self.neurons / 2).mul_(self.distance)

    def rounded(self, signal: Tensor) -> Tensor:
        """Return the signal as the population's spikes show it, in the signal's units."""
        return self.values(self.counts(signal))

    def spread_out(self, count: int) -> Tensor:
        """Return the numbers (count,) of neurons that lie evenly spaced over the middle half of the population."""
        count = min(count, self.neurons)
        first, last = 0.25 * (self.neurons - 1), 0.75 * (self.neurons - 1)
        return torch.linspace(first, last, count, dtype=torch.float64).round().long().unique()

    def layer(self) -> SpikingLayer:
        """Return the population as a layer of the network's neurons with one input, for simulators and chips."""
        layer = SpikingLayer(1, self.neurons, Hat(), REFRACTORY_KERNELS["exponential-cut"], dtype=torch.float64)
        with torch.no_grad():
            below = self.thresholds < 0
            layer.weights.copy_(torch.where(below, -1.0, 1.0)[:, None])
            # A threshold that the input just meets is reached: a neuron for what lies below it is silent then.
            layer.biases.copy_(1 - self.thresholds.abs() - 1e-12 * below)
            layer.supports.fill_(0.5)  # shorter than a step: only the present counts
            layer.costs.zero_()
        return layer
