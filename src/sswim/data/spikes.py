r"""Encoders: from intensities, such as pixels, to spikes in time.

An encoder maps intensities in [0, 1] of shape (samples, channels) to spike counts (samples, steps, channels), or to events on
whole steps, which is quicker if they are few. Any object with the members of `SpikeEncoder` serves as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from sswim.network.events import EventBatch
from sswim.options import Options, check_integer, check_positive

__all__ = ["ENCODERS", "Current", "Latency", "Poisson", "Rate", "SpikeEncoder"]


class SpikeEncoder(Protocol):
    """Turns intensities into spikes.

    Where nothing is random, many samples are encoded at once.
    """

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def draws(self) -> bool:
        """Whether anything is random."""
        ...

    def encode(self, intensity: Tensor, generator: torch.Generator) -> Tensor | EventBatch:
        """Map intensities (samples, channels) in [0, 1] to spike counts (samples, steps, channels), or to events if few."""
        ...


@dataclass(frozen=True)
class _Timed(Options):
    draws: ClassVar[bool] = False
    steps: int = 100

    def __post_init__(self) -> None:
        check_integer(f"{type(self).__name__}: steps", self.steps, 1)


@dataclass(frozen=True)
class Poisson(_Timed):
    r"""As in the paper: :math:`\text{Poisson}(\alpha \cdot O \cdot p)` spikes, spread uniformly over the `O` steps.

    On the grid of steps, where they are spread over, that is the same as an independent :math:`\text{Poisson}(\alpha p)` number
    of spikes in each step.

    Parameters
    ----------
    steps : int
        The paper's `O`.
    rate : float
        Its :math:`\alpha`, spikes per step of the brightest pixel.

    Examples
    --------
    >>> spikes = Poisson(steps=1000).encode(torch.tensor([[0.0, 1.0]]), torch.Generator().manual_seed(0)).dense()
    >>> spikes.shape, float(spikes[0, :, 0].sum()), 150 < float(spikes[0, :, 1].sum()) < 250
    (torch.Size([1, 1000, 2]), 0.0, True)
    """

    draws: ClassVar[bool] = True
    rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("Poisson: rate", self.rate)

    def encode(self, intensity: Tensor, generator: torch.Generator) -> EventBatch:
        """Map intensities (samples, channels) in [0, 1] to spikes as events on whole steps."""
        samples, channels = intensity.shape
        number = torch.poisson(self.rate * self.steps * intensity, generator=generator).long().flatten()
        place = torch.arange(samples * channels).repeat_interleave(number)
        times = torch.randint(self.steps, (len(place),), generator=generator).double()
        return EventBatch(times, place % channels, place // channels, samples, channels, self.steps, whole=True)


@dataclass(frozen=True)
class Rate(_Timed):
    r"""Spikes at equal distances, :math:`\alpha p` per step, each channel with a phase of its own.

    Examples
    --------
    >>> Rate(steps=8, rate=0.5).encode(torch.tensor([[1.0]]), torch.Generator()).flatten()
    tensor([0., 1., 0., 1., 0., 1., 0., 1.])
    """

    rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("Rate: rate", self.rate)

    def encode(self, intensity: Tensor, generator: torch.Generator) -> Tensor:
        """Map intensities (samples, channels) in [0, 1] to spike counts (samples, steps, channels)."""
        return self.counts(intensity.double()).to(intensity.dtype)

    def counts(self, intensity: Tensor) -> Tensor:
        """Return the spike counts, computed in the dtype of the intensities."""
        t = torch.arange(self.steps + 1, dtype=intensity.dtype)
        # Multiples of the golden ratio: neighbouring channels do not fire together.
        phase = (torch.arange(intensity.shape[1], dtype=torch.float64) * 0.6180339887498949 % 1).to(intensity.dtype)
        return torch.floor(self.rate * intensity[:, None] * t[:, None] + phase).diff(dim=1)


@dataclass(frozen=True)
class Latency(_Timed):
    """One spike per channel, the brighter the earlier; none where there is nothing.

    Examples
    --------
    >>> Latency(steps=5).encode(torch.tensor([[1.0, 0.5, 0.0]]), torch.Generator())[0].T
    tensor([[1., 0., 0., 0., 0.],
            [0., 0., 1., 0., 0.],
            [0., 0., 0., 0., 0.]])
    """

    def encode(self, intensity: Tensor, generator: torch.Generator) -> Tensor:
        """Map intensities (samples, channels) in [0, 1] to spike counts (samples, steps, channels)."""
        time = ((1 - intensity) * (self.steps - 1)).round().long()
        spikes = intensity.new_zeros(intensity.shape[0], self.steps, intensity.shape[1])
        return spikes.scatter_(1, time[:, None], (intensity > 0).to(intensity.dtype)[:, None])


@dataclass(frozen=True)
class Current(_Timed):
    """No spikes: each channel is a current that stays the same at all steps. The first hidden layer makes the first spikes.

    Examples
    --------
    >>> Current(steps=3).encode(torch.tensor([[0.5, 1.0]]), torch.Generator())[0].T
    tensor([[0.5000, 0.5000, 0.5000],
            [1.0000, 1.0000, 1.0000]])
    """

    steps: int = 8

    def encode(self, intensity: Tensor, generator: torch.Generator) -> Tensor:
        """Map intensities (samples, channels) to currents (samples, steps, channels), without a copy."""
        return intensity[:, None].expand(-1, self.steps, -1)


# Images do with few steps, which is quick and loses nothing.
ENCODERS: dict[str, SpikeEncoder] = {
    "image": Rate(steps=15, rate=1.0),
    "poisson": Poisson(),
    "rate": Rate(),
    "latency": Latency(),
    "current": Current(),
}
