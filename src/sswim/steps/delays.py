"""Delays of the output layer: the lag at which hidden spikes best predict the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from sswim.options import Options, check_integer, check_positive
from sswim.steps.base import Delays

__all__ = ["DELAYS", "CorrelationDelays", "FixedDelays"]

# Correlations that differ by less than this part are equally large: rounding must not choose.
MARGIN = 1e-5
# Numbers that fit in the processor's cache.
CACHED = 1_500_000


@dataclass(frozen=True)
class CorrelationDelays(Options):
    r"""Delays by cross-correlation (equations ``op_c``, ``eq:corr_agg``).

    .. math::
        C_{ij}^n(\tau) = \sum_{s \in T_j^n} \tilde y_i^n(s + \tau), \qquad
        \text{lag}_i = \arg\max_{0 \le \tau < O} \sum_n \sum_j |C_{ij}^n(\tau)|

    with :math:`\tilde y` the target minus its mean over the horizon, and 0 outside of it.

    Parameters
    ----------
    samples : int, optional
        Number of samples of the initial batch to aggregate over. None takes as many as `work` allows.
    neurons : int, optional
        Number of neurons that each sample contributes; the next sample contributes others, so that all take part. None takes
        as many as `work` allows: neurons that see the same sample say much the same, so that samples come first.
    work : float
        Multiply-adds to spend; infinity for all samples and neurons.

    Notes
    -----
    Deviation from the paper: it writes :math:`\tilde y(\tau - s)`, which no kernel that looks back could realise; a spike at
    `s` explains the target at :math:`s + \tau`.
    """

    samples: int | None = None
    neurons: int | None = None
    work: float = 3e10

    def __post_init__(self) -> None:
        if self.samples is not None:
            check_integer("CorrelationDelays: samples", self.samples, 1)
        if self.neurons is not None:
            check_integer("CorrelationDelays: neurons", self.neurons, 1)
        if not self.work > 0:
            raise ValueError(f"CorrelationDelays: work must be above 0, got {self.work!r}.")

    def within(self, samples: int, neurons: int, products: int) -> CorrelationDelays:
        """Return this step with its numbers of samples and neurons set, where one of each pair takes `products`."""
        pairs = self.work / products
        many = min(samples, max(150, pairs / neurons)) if self.samples is None else min(samples, self.samples)
        each = min(neurons, max(128, pairs / many)) if self.neurons is None else min(neurons, self.neurons)
        return replace(self, samples=int(many), neurons=int(each))

    def correlate(self, spikes: Tensor, targets: Tensor, start: int, lags: int, first: int = 0) -> Tensor:
        """Return the sum of absolute correlations over a batch; batches add up.

        Parameters
        ----------
        spikes : Tensor of shape (neurons, steps, batch)
        targets : Tensor of shape (batch, horizon, outputs), on the steps from `start` on
        start, lags : int
            First target step :math:`T`, and number of lags (0, ..., lags - 1).
        first : int
            Number of samples in the batches before.

        Returns
        -------
        Tensor of shape (outputs, lags), float64
        """
        horizon, outputs = targets.shape[1:]
        y = targets if horizon == 1 else targets - targets.mean(dim=1, keepdim=True)
        total = torch.zeros(outputs, lags, dtype=torch.float64, device=spikes.device)
        before = max(lags - 1 - start, 0)  # lags that reach back before the first step meet silence
        part = torch.nn.functional.pad(spikes, (0, 0, before, 0))[:, start + before - lags + 1 :]
        apart = 1 if self.neurons is None else -(-len(spikes) // self.neurons)
        chunk = max(16, CACHED // (outputs * lags))
        # One sample at a time, because of the absolute value. A direct sliding product: with at most some hundred lags it
        # is several times faster than multiplying Fourier transforms, one inverse per neuron and output. Results that stay
        # in the cache make it three times faster still.
        for m, (train, target) in enumerate(zip(part.permute(2, 0, 1), y.mT.to(part.dtype), strict=True), start=first):
            rows = train[m % apart :: apart, None].contiguous()  # (n, 1, .)
            target = target[:, None].contiguous()
            for i in range(0, len(rows), chunk):
                c = torch.nn.functional.conv1d(rows[i : i + chunk], target)  # (n, C, lags)
                total += c.abs_().sum(dim=0).flip(1)
        return total

    def lags(self, correlation: Tensor) -> Tensor:
        """Return the lag of the largest correlation of each output, (outputs,); of equally large ones the shortest."""
        near = correlation >= (1 - MARGIN) * correlation.amax(dim=1, keepdim=True)
        return near.int().argmax(dim=1).double()


@dataclass(frozen=True)
class FixedDelays(Options):
    """The same delay for every output, in steps: 0 in the paper's classification experiments."""

    value: float = 0.0
    samples: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        check_positive("FixedDelays: value", self.value, zero=True)

    def within(self, samples: int, neurons: int, products: int) -> FixedDelays:
        """Return this step: there is nothing to compute."""
        return self

    def correlate(self, spikes: Tensor, targets: Tensor, start: int, lags: int, first: int = 0) -> Tensor:
        """Return zeros: there is nothing to learn from the data."""
        return torch.zeros(targets.shape[2], 1, dtype=torch.float64, device=spikes.device)

    def lags(self, correlation: Tensor) -> Tensor:
        """Return the fixed lag for each output."""
        return torch.full_like(correlation[:, 0], self.value)


DELAYS: dict[str, Delays] = {"correlation": CorrelationDelays(), "zero": FixedDelays(0.0)}
