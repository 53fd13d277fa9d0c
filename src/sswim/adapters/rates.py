"""Potentials of another library's neurons, and the scale that gives them healthy firing rates."""

from __future__ import annotations

import torch
from torch import Tensor

from sswim.adapters.dialects import Response
from sswim.network.kernels import toeplitz
from sswim.steps.base import Normalizer

__all__ = ["Pooled", "channels", "filtered", "scales"]

# Without a bias, the least part of its largest potential that a neuron may fire at.
LEAST_LEVEL = 0.25


def channels(x: Tensor) -> Tensor:
    """Return (channels, time, samples) from (samples, time, channels, ...); other places count as other samples."""
    return x.flatten(3).permute(2, 1, 0, 3).flatten(2) if x.ndim > 3 else x.permute(2, 1, 0)


def filtered(x: Tensor, response: Response) -> Tensor:
    """Return the potentials without spikes (channels, time, samples) that inputs (samples, time, channels, ...) cause."""
    taps = response.taps
    taps = taps[:1] if bool((taps == taps[:1]).all()) else taps
    return toeplitz(taps, x.shape[1]).to(x) @ channels(x)


class Pooled:
    """One pass over potentials: mean, deviation and maximum over all steps of all samples, tensors of shape (neurons,).

    Unlike `PotentialStatistics`, whose deviation is that within a sample: static samples differ from each other only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: Tensor = torch.zeros(1, dtype=torch.float64)
        self._squares: Tensor = torch.zeros(1, dtype=torch.float64)
        self._maximum: Tensor = torch.tensor(-torch.inf, dtype=torch.float64)

    def update(self, potentials: Tensor) -> None:
        """Add a batch of shape (neurons, steps, batch)."""
        x = potentials.flatten(1).double().cpu()
        count, mean = x.shape[1], x.mean(dim=1)
        shift, total = mean - self._mean, self._count + x.shape[1]
        self._squares = self._squares + (x - mean[:, None]).square().sum(dim=1) + shift**2 * self._count * count / total
        self._mean, self._count = self._mean + shift * count / total, total
        self._maximum = torch.maximum(self._maximum, x.amax(dim=1))

    @property
    def mean(self) -> Tensor:
        """Mean."""
        return self._mean

    @property
    def deviation(self) -> Tensor:
        """Standard deviation."""
        return (self._squares / self._count).sqrt()

    @property
    def maximum(self) -> Tensor:
        """Maximum."""
        return self._maximum


class _Relative:
    """Statistics in units of the gap to the threshold; of the last step nothing more is known."""

    steps = 1

    def __init__(self, sums: Pooled, gap: Tensor) -> None:
        self.mean, self.deviation, self.maximum = sums.mean / gap, sums.deviation / gap, sums.maximum / gap
        self.last_mean, self.last_deviation = self.mean, self.deviation


def scales(sums: Pooled, normalizer: Normalizer, response: Response, *, biased: bool) -> tuple[Tensor, Tensor]:
    r"""Return the scale of the weights and the bias of the input, both of shape (neurons,).

    Let a `normalizer` make the potential :math:`\alpha u + \beta`, with a threshold of 1 and spikes that cost
    :math:`|\gamma|`. Spikes stay the same if the distance to the threshold and the cost are divided by :math:`|\gamma|`. Then
    a spike costs 1, the whole way from rest to threshold, as in these neurons. Without a bias, the neuron fires at the same
    potential :math:`(1 - \beta) / \alpha` as with one.

    Parameters
    ----------
    sums : Pooled
        Statistics of the potential.
    normalizer : Normalizer
    response : Response
    biased : bool
        Whether there is a bias to set.
    """
    gap, ramp = response.gap, response.ramp.mean(dim=1)
    relative = _Relative(sums, gap)
    alpha, beta, gamma = normalizer.scale(relative)
    cost = torch.where(gamma.abs() > 1e-6, gamma.abs(), torch.ones_like(gamma))
    alpha, beta = alpha / cost, 1 + (beta - 1) / cost
    if biased and bool((ramp > 1e-9).all()):
        return alpha, beta * gap / ramp
    level = torch.maximum((1 - beta) / alpha, LEAST_LEVEL * relative.maximum)
    return torch.where(level > 0, 1 / level.clamp_min(1e-300), alpha), torch.zeros_like(alpha)
