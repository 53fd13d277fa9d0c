r"""Leaky integrate-and-fire neurons: times and scales with which a layer of spike response neurons is one of these.

With an exponential kernel and an exponential refractory kernel of the same support :math:`\sigma`, no bias, and spike cost -1,
the potential of definition ``def:ff_snn`` follows a recursion with :math:`\beta = e^{-1 / \sigma}`,

.. math:: u(t) = \beta \, (u(t - 1) - s(t - 1)) + (W x)(t), \quad s(t) = [u(t) \ge 1],

which is a leaky integrate-and-fire neuron that subtracts its threshold after each spike. With the alpha kernel one step early
the input passes two such leaks, one after the other: a synapse and a membrane. A support of 1e30 steps has no leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sswim.network.kernels import Alpha, Exponential
from sswim.network.layer import SpikingLayer
from sswim.options import Options, check_choice, check_integer, check_positive
from sswim.steps.base import Statistics

__all__ = ["BITS", "DECAYS", "IntegrateScale", "LeakyScale", "LeakyTimes", "check_bits", "is_leaky", "rounded", "rounded_times"]

# Bits that weights may have.
BITS = range(2, 17)
# Support of neurons without a leak, in steps.
FOREVER = 1e30
# What a potential may be multiplied by at each step: any number; 1 - 1 / 2^n, by a shift of its bits; 1 - d / 4096.
DECAYS = ("any", "shift", "12 bits")


@dataclass(frozen=True)
class LeakyTimes(Options):
    r"""Time constants of leaky integrate-and-fire neurons: their logarithms are spread evenly.

    Parameters
    ----------
    low : float
        The shortest one, in steps; infinite for neurons without a leak.
    high : float
        The longest one, as a part of the window.
    lead : int
        Steps by which kernels come early: 1 for synapse and membrane (the alpha kernel), else 0. Two leaks take twice as long
        as one: their constants are half as long.
    decays : {"any", "shift", "12 bits"}
        Round time constants to those that a chip has, see `rounded_times`.

    Examples
    --------
    >>> times = LeakyTimes(low=2.0).assign(1, 1, neurons=50, window=30, horizon=1, signals=torch.zeros(1, 30, 1))
    >>> [(round(float(t.min())), round(float(t.max()))) for t in times]
    [(0, 0), (2, 17), (2, 17)]
    """

    low: float = 1.0
    high: float = 0.6
    lead: int = 0
    decays: str = field(default="any", metadata={"later": True})

    def __post_init__(self) -> None:
        if self.low != math.inf:
            check_positive("LeakyTimes: low", self.low)
        check_positive("LeakyTimes: high", self.high)
        check_integer("LeakyTimes: lead", self.lead, 0)
        check_choice("LeakyTimes: decays", self.decays, DECAYS)

    def assign(
        self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return delays, supports and refractory supports of hidden layer `layer` (counted from 1) of `layers`."""
        delays = torch.full((neurons,), 0.0 - self.lead, dtype=torch.float64)  # not -0.0
        if self.low == math.inf:
            forever = torch.full_like(delays, FOREVER)
            return delays, forever, forever.clone()
        spread = (torch.arange(1, neurons + 1, dtype=torch.float64) * 0.6180339887498949) % 1
        supports = self.low * (max(self.high * window, self.low) / self.low) ** spread / (1 + self.lead)
        supports = rounded_times(supports, self.decays)
        return delays, supports, supports.clone()


@dataclass(frozen=True)
class LeakyScale(Options):
    r"""Scale weights such that a neuron without bias is above its threshold in another part of the time than its neighbours.

    If the response `r` of a neuron to its weights were normal with mean `E` and deviation `S`, it would be above

    .. math:: \theta_i = E + \Phi^{-1}(1 - q_i) \, S

    in a part :math:`q_i` of all steps, with :math:`q_i` spread evenly between `low` and `high`. Weights are divided by
    :math:`\theta_i`, so that the threshold is 1. Where it would lie below `least` deviations, weights change their signs: a
    pair of samples is told apart as well the other way round.

    Parameters
    ----------
    low, high : float
        Least and largest part of the time, above 0 and at most a half.
    least : float
        Least threshold, in deviations.
    margin : float
        How far above the threshold the largest response of a neuron lies at least, so that none is silent.
    bits : int, optional
        Round each neuron's weights to this many bits before they are scaled: integers times a number that the neuron has for
        itself. Default: not rounded.
    """

    low: float = 0.03
    high: float = 0.45
    least: float = 0.3
    margin: float = 1e-4
    bits: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 0.5:
            raise ValueError(f"LeakyScale: 0 < low <= high <= 0.5 must hold, got low={self.low!r}, high={self.high!r}.")
        check_positive("LeakyScale: least", self.least)
        check_positive("LeakyScale: margin", self.margin, zero=True)
        check_bits("LeakyScale: bits", self.bits)

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        E, S, M = statistics.mean, statistics.deviation.clamp_min(1e-12), statistics.maximum
        i = torch.arange(1, len(S) + 1, dtype=S.dtype, device=S.device)
        q = self.low + (self.high - self.low) * ((i * 0.7548776662466927) % 1)
        above = torch.special.ndtri(1 - q) * S
        turned = E + above < self.least * S
        threshold = torch.where(turned, above - E, E + above).clamp_min(self.least * S)
        # A neuron whose response never reaches that gets a lower threshold. Of turned ones the maximum is not known.
        within = torch.where(turned | (M <= 0), threshold, M / (1 + self.margin))
        threshold = torch.minimum(threshold, within)
        alpha = torch.where(turned, -1, 1) / threshold
        return alpha, torch.zeros_like(alpha), -torch.ones_like(alpha)


@dataclass(frozen=True)
class IntegrateScale(Options):
    r"""Scale neurons without a leak such that they count: how far above its threshold the sum of a neuron's input ends.

    Without a leak the potential at the last step is the sum `r` of the input, and spikes of cost 1 take 1 away each. With `E`
    and `S` the mean and deviation of `r` over samples, and `T` steps, a neuron fires about

    .. math:: n = T \frac{r - \theta_i}{\theta^{top} - \theta_i}, \quad
        \theta_i = \max(E + \Phi^{-1}(q_i) S, 0), \quad \theta^{top} = E + z S

    times, if that is between 0 and `T`: never at the threshold :math:`\theta_i`, at all steps at the top. The parts
    :math:`q_i` are spread evenly between `low` and `high`.

    Parameters
    ----------
    low, high : float
        Least and largest part of the samples that are below the threshold, if `r` were normal.
    top : float
        `z`, in deviations.
    margin : float
        As in `LeakyScale`.
    bits : int, optional
        As in `LeakyScale`.
    """

    low: float = 0.45
    high: float = 0.95
    top: float = 3.5
    margin: float = 1e-4
    bits: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < 1:
            raise ValueError(f"IntegrateScale: 0 < low <= high < 1 must hold, got low={self.low!r}, high={self.high!r}.")
        check_positive("IntegrateScale: top", self.top)
        check_bits("IntegrateScale: bits", self.bits)

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        E, S, M = statistics.last_mean, statistics.last_deviation.clamp_min(1e-12), statistics.maximum
        i = torch.arange(1, len(S) + 1, dtype=S.dtype, device=S.device)
        q = self.low + (self.high - self.low) * ((i * 0.7548776662466927) % 1)
        threshold = (E + torch.special.ndtri(q) * S).clamp_min(0)
        # A threshold that no sample reaches comes down, and so does a top.
        threshold = torch.where(threshold < M, threshold, M.clamp_min(0) / 2)
        top = torch.minimum(torch.maximum(E + self.top * S, threshold + S), torch.where(M > threshold, M, threshold + S))
        alpha = statistics.steps / (top - threshold).clamp_min(1e-12)
        # From 0.5 on, so that a count is that of the nearest integer. A neuron that no sample excites fires by itself.
        beta = 0.5 - alpha * threshold
        return alpha, beta + (1 + self.margin - alpha * M - beta).clamp_min(0), -torch.ones_like(alpha)


def check_bits(argument: str, bits: int | None) -> None:
    """Refuse numbers of bits that weights cannot have."""
    if bits is not None and not (isinstance(bits, int) and bits in BITS):
        raise ValueError(f"{argument} must be None or an integer from {BITS[0]} to {BITS[-1]}, got {bits!r}.")


def rounded_times(times: Tensor, decays: str) -> Tensor:
    r"""Return time constants in steps as a chip has them. Those without a leak stay.

    With ``"shift"``, a potential is multiplied by :math:`1 - 2^{-n}`, with `n` the integer next to the base-2 logarithm of the
    time constant, at least 1. With ``"12 bits"``, by :math:`1 - d / 4096`, with `d` the nearest integer, at least 1.

    Examples
    --------
    >>> times = torch.tensor([1.0, 3.0, 20.0, 1000.0, math.inf])
    >>> (1 - torch.exp(-1 / rounded_times(times, "shift"))).reciprocal().round()
    tensor([   2.,    4.,   16., 1024.,   inf])
    >>> (4096 * (1 - torch.exp(-1 / rounded_times(times, "12 bits")))).round(decimals=2)
    tensor([2589., 1161.,  200.,    4.,    0.])
    """
    if decays == "any":
        return times
    if decays == "shift":
        lost = 2.0 ** -times.double().log2().round().clamp_min(1)
    else:
        lost = (4096 * -torch.expm1(-1 / times.double())).round().clamp(1, 4095) / 4096
    return torch.where(times < 1e20, -1 / torch.log1p(-lost), times.double()).to(times)


def rounded(weights: Tensor, bits: int) -> Tensor:
    """Return weights (neurons, senders) as integers of `bits` bits times a number for each neuron, the largest kept as it is.

    Examples
    --------
    >>> rounded(torch.tensor([[0.7, -0.32, 0.04]]), bits=4)
    tensor([[ 0.7000, -0.3000,  0.0000]])
    """
    unit = weights.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    unit = torch.where(unit > 0, unit, 1.0)
    return (weights / unit).round() * unit


def is_leaky(layer: SpikingLayer) -> bool:
    """Return whether a layer consists of leaky integrate-and-fire neurons, with or without synapses, and whole delays.

    Examples
    --------
    >>> layer = SpikingLayer(3, 5, Exponential(), Exponential())
    >>> is_leaky(layer)
    False
    >>> _ = layer.requires_grad_(False).costs.fill_(-1.0)
    >>> is_leaky(layer)
    True
    """
    if not isinstance(layer.kernel, Exponential | Alpha) or not isinstance(layer.refractory, Exponential) or not layer.spiking:
        return False
    plain = not bool(layer.biases.any()) and bool((layer.costs == -1).all())
    return plain and torch.equal(layer.refractory_supports, layer.supports) and torch.equal(layer.delays, layer.delays.round())
