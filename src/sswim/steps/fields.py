"""Receptive fields: neurons that see a part of the channels only. Not in the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.options import Options, check_integer
from sswim.steps.base import Weights
from sswim.steps.weights import DotWeights

__all__ = ["ReceptiveFields"]

# Neurons that receptive fields are drawn for at once: callers come with multiples of it.
GROUP = 16


@dataclass(frozen=True)
class ReceptiveFields(Options):
    """Each neuron sees a box of channels that lie together, such as a patch of an image. Not in the paper.

    What delays and supports are in time, places and sizes of these boxes are in space. Layers that see other than these
    channels have no fields.

    Parameters
    ----------
    shape : sequence of int
        How the channels are laid out, such as (28, 28); the last axis runs fastest. Axes shorter than four are seen whole.
    weights : step
        Makes the weights within a field.
    low, high : float
        Least and largest size of a field along each axis, as parts of it.
    """

    shape: Sequence[int]
    weights: Weights = DotWeights()
    low: float = 1 / 7
    high: float = 1 / 2

    def __post_init__(self) -> None:
        for length in self.shape:
            check_integer("ReceptiveFields: shape", length, 1)
        if not 0 < self.low <= self.high <= 1:
            raise ValueError(f"ReceptiveFields: 0 < low <= high <= 1 must hold, got low={self.low!r}, high={self.high!r}.")

    def fields(self, neurons: int, generator: torch.Generator) -> Tensor:
        """Draw the fields of some neurons: (neurons, channels), 1 inside and 0 outside."""
        boxes = torch.ones(neurons, 1)
        for length in self.shape:
            at = torch.arange(length)
            inside = torch.ones(neurons, length)
            if length > 3:
                least, most = math.ceil(self.low * length), math.ceil(self.high * length)
                size = torch.randint(least, most + 1, (neurons, 1), generator=generator)
                first = (torch.rand(neurons, 1, generator=generator) * (length - size + 1)).long()
                inside = ((at >= first) & (at < first + size)).float()
            boxes = (boxes[:, :, None] * inside[:, None]).flatten(1)
        return boxes

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return vectors of shape (neurons, senders), 0 outside of the fields."""
        if first.shape[1] != math.prod(self.shape):
            return self.weights.directions(first, second, generator)
        # Few at a time, so that what is drawn does not depend on how many neurons come at once.
        parts = zip(first.split(GROUP), second.split(GROUP), strict=True)
        return torch.cat([self._within_fields(*part, generator) for part in parts])

    def _within_fields(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        fields = self.fields(len(first), generator).to(first)
        active = first.abs().sum(dim=2) + second.abs().sum(dim=2)  # (n, D)
        for _ in range(8):  # a field where the pair shows nothing is drawn again
            blind = ((active * fields).sum(dim=1) == 0).nonzero()[:, 0]
            if not len(blind):
                break
            fields[blind] = self.fields(len(blind), generator).to(fields)
        seen = fields[:, :, None]
        return self.weights.directions(first * seen, second * seen, generator) * fields
