r"""Directions of the hidden weights, from the potentials that a pair of samples would cause.

All work on a batch of neurons: ``first`` and ``second`` are :math:`\psi_1, \psi_2` of shape (neurons, senders, steps).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sswim._checks import check_integer
from sswim._linalg import safe_eigh

__all__ = ["WEIGHTS", "DistWeights", "DotWeights", "RandomWeights", "ReceptiveFields"]

# Neurons that receptive fields are drawn for at once: callers come with multiples of it.
GROUP = 16
# Eigenvalues below this part of the largest count as 0: float64 rounding, with room.
RELATIVE_ZERO = 1e-11


def _finish(w: Tensor, idle: Tensor, generator: torch.Generator) -> Tensor:
    """Give each row a random sign, as an eigenvector has none of its own, and idle rows a random direction."""
    signs = torch.where(torch.rand(len(w), 1, generator=generator, dtype=torch.float64) < 0.5, -1.0, 1.0)
    w = w * signs.to(w.device)
    if idle.any():
        spare = torch.randn(int(idle.sum()), w.shape[1], generator=generator, dtype=torch.float64)
        w[idle] = torch.nn.functional.normalize(spare).to(w.device)
    return w


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the symmetric part of the integral of a(t) b(t)^T, for (neurons, n, steps)."""
    q = a @ b.mT
    return (q + q.mT) / 2


@dataclass(frozen=True)
class DotWeights:
    r"""Least inner product of the two potentials (equations ``op_w_dist``, ``eq:dot_A``).

    .. math:: w = w_{\min}\Big\{\tfrac12 \int \psi_1(t) \psi_2(t)^\top + \psi_2(t) \psi_1(t)^\top dt\Big\}

    The eigenvector is looked for in the range of :math:`[\psi_1\ \psi_2]`. If the matrix has a negative eigenvalue that
    changes nothing. If it has none, the least eigenvalue of all would be the 0 of some direction in which both
    potentials vanish: a neuron that separates nothing.
    """

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors of shape (neurons, senders), with random signs."""
        _, senders, steps = first.shape
        a, b, basis = first.double(), second.double(), None
        if senders > 2 * steps:  # the range has at most 2 S dimensions
            basis, r = torch.linalg.qr(torch.cat([a, b], dim=2))  # (n, D, 2S), (n, 2S, 2S)
            a, b = r[:, :, :steps], r[:, :, steps:]
        matrix = _outer(a, b)
        values, vectors = safe_eigh(matrix)
        scale = values.abs().amax(dim=1).clamp_min(1e-300)
        w = vectors[:, :, 0]
        stuck = (values[:, 0] > -RELATIVE_ZERO * scale).nonzero()[:, 0]  # no negative eigenvalue
        if len(stuck):
            a, b, matrix = a[stuck], b[stuck], matrix[stuck]
            energy, axes = safe_eigh(_outer(a, a) + _outer(b, b))
            outside = energy <= RELATIVE_ZERO * energy[:, -1:].clamp_min(1e-300)  # (n, D)
            # Lift the directions outside of the range above all others.
            lift = 2 * energy[:, -1] + 1
            matrix = matrix + (axes * (outside * lift[:, None])[:, None, :]) @ axes.mT
            w[stuck] = safe_eigh(matrix)[1][:, :, 0]
        if basis is not None:
            w = (basis @ w[:, :, None])[:, :, 0]
        idle = (first.abs().amax(dim=(1, 2)) == 0) & (second.abs().amax(dim=(1, 2)) == 0)
        return _finish(w, idle, generator)


@dataclass(frozen=True)
class DistWeights:
    r"""Largest distance of the two potentials (equations ``op_w_dist``, ``eq:dist_A``).

    .. math:: w = w_{\max}\Big\{\int (\psi_1(t) - \psi_2(t)) (\psi_1(t) - \psi_2(t))^\top dt\Big\}
    """

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors of shape (neurons, senders), with random signs."""
        _, senders, steps = first.shape
        d = first.double() - second.double()  # (n, D, S)
        if senders <= steps:
            w = safe_eigh(_outer(d, d))[1][:, :, -1]
        else:  # the same vector from the smaller of the two Gram matrices
            w = (d @ safe_eigh(_outer(d.mT, d.mT))[1][:, :, -1:])[:, :, 0]
        idle = d.abs().amax(dim=(1, 2)) == 0
        return _finish(torch.nn.functional.normalize(w, eps=1e-300), idle, generator)


@dataclass(frozen=True)
class RandomWeights:
    """Standard normal weights that ignore the pair: what data-driven weights are measured against.

    Attributes
    ----------
    sampled : bool
        False tells that pairs do not matter. Steps without this attribute look at them.
    """

    sampled: ClassVar[bool] = False

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return normal vectors of shape (neurons, senders)."""
        return torch.randn(first.shape[:2], generator=generator, dtype=torch.float64).to(first.device)


@dataclass(frozen=True)
class ReceptiveFields:
    """Each neuron sees a box of channels that lie together, such as a patch of an image. Past the paper.

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
    weights: DotWeights | DistWeights | RandomWeights = DotWeights()
    low: float = 1 / 7
    high: float = 1 / 2

    def __post_init__(self) -> None:
        for length in self.shape:
            check_integer("ReceptiveFields: shape", length, 1)
        if not 0 < self.low <= self.high <= 1:
            raise ValueError(f"ReceptiveFields: 0 < low <= high <= 1 must hold, got low={self.low!r}, high={self.high!r}.")

    @property
    def sampled(self) -> bool:
        """Whether weights depend on pairs."""
        return getattr(self.weights, "sampled", True)

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


WEIGHTS: dict[str, DotWeights | DistWeights | RandomWeights] = {
    "dot": DotWeights(),
    "dist": DistWeights(),
    "random": RandomWeights(),
}
