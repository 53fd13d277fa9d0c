r"""Surrogates: what stands for the derivative of the threshold when gradients are taken.

A spike is a step of the potential `v` at 1, whose derivative is 0 or undefined. A surrogate puts a bump around the threshold
in its place: :math:`\rho(v)`, with a `width` in units of the potential and a `scale`, its integral. With scale 1 it is the
derivative of a smooth step from 0 to 1, and `smooth` is that step.

Any object with these two methods serves as a surrogate too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sswim.options import check_positive

__all__ = ["SURROGATES", "Arctan", "FastSigmoid", "SlayerExponential", "Surrogate", "Triangular"]


class Surrogate(Protocol):
    """What stands for the threshold's derivative."""

    def derivative(self, v: Tensor) -> Tensor:
        """Return the surrogate derivative at potentials `v`."""
        ...

    def smooth(self, v: Tensor) -> Tensor:
        """Return the smooth step whose derivative it is."""
        ...


@dataclass(frozen=True)
class _Bump:
    width: float = 0.3
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(f"{type(self).__name__}: width", self.width)
        check_positive(f"{type(self).__name__}: scale", self.scale)

    def _distance(self, v: Tensor) -> Tensor:
        """Return how far potentials are from the threshold, in widths."""
        return (v - 1).div_(self.width)


@dataclass(frozen=True)
class SlayerExponential(_Bump):
    r"""The one of SLAYER, :math:`\rho(v) = \frac{scale}{2 \, width} e^{-|v - 1| / width}`.

    Examples
    --------
    >>> SlayerExponential(width=0.5)(torch.tensor([0.5, 1.0]))
    tensor([0.3679, 1.0000])
    """

    def derivative(self, v: Tensor) -> Tensor:
        """Return the surrogate derivative at potentials `v`."""
        return self._distance(v).abs_().neg_().exp_().mul_(self.scale / (2 * self.width))

    def smooth(self, v: Tensor) -> Tensor:
        """Return the smooth step whose derivative it is."""
        x = self._distance(v)
        tail = 0.5 * torch.exp(-x.abs())
        return self.scale * torch.where(x < 0, tail, 1 - tail)

    __call__ = derivative


@dataclass(frozen=True)
class FastSigmoid(_Bump):
    r"""Heavy tails, :math:`\rho(v) = \frac{scale}{2 \, width} (1 + |v - 1| / width)^{-2}`.

    Examples
    --------
    >>> FastSigmoid(width=0.5)(torch.tensor([0.5, 1.0]))
    tensor([0.2500, 1.0000])
    """

    def derivative(self, v: Tensor) -> Tensor:
        """Return the surrogate derivative at potentials `v`."""
        return self._distance(v).abs_().add_(1).square_().reciprocal_().mul_(self.scale / (2 * self.width))

    def smooth(self, v: Tensor) -> Tensor:
        """Return the smooth step whose derivative it is."""
        x = self._distance(v)
        return self.scale * (0.5 + 0.5 * x / (1 + x.abs()))

    __call__ = derivative


@dataclass(frozen=True)
class Triangular(_Bump):
    r"""A hat, 0 further than `width` from the threshold: :math:`\rho(v) = \frac{scale}{width} \max(1 - |v - 1| / width, 0)`.

    Examples
    --------
    >>> Triangular(width=0.5)(torch.tensor([0.25, 0.75, 1.0]))
    tensor([0., 1., 2.])
    """

    def derivative(self, v: Tensor) -> Tensor:
        """Return the surrogate derivative at potentials `v`."""
        return self._distance(v).abs_().neg_().add_(1).clamp_(min=0).mul_(self.scale / self.width)

    def smooth(self, v: Tensor) -> Tensor:
        """Return the smooth step whose derivative it is."""
        x = self._distance(v).clamp(-1, 1)
        return self.scale * (0.5 + x - 0.5 * x * x.abs())

    __call__ = derivative


@dataclass(frozen=True)
class Arctan(_Bump):
    r"""A Cauchy bump, :math:`\rho(v) = \frac{scale}{\pi \, width} (1 + (v - 1)^2 / width^2)^{-1}`.

    Examples
    --------
    >>> Arctan(width=0.5)(torch.tensor([0.5, 1.0]))
    tensor([0.3183, 0.6366])
    """

    def derivative(self, v: Tensor) -> Tensor:
        """Return the surrogate derivative at potentials `v`."""
        return self._distance(v).square_().add_(1).reciprocal_().mul_(self.scale / (math.pi * self.width))

    def smooth(self, v: Tensor) -> Tensor:
        """Return the smooth step whose derivative it is."""
        return self.scale * (0.5 + torch.atan(self._distance(v)) / math.pi)

    __call__ = derivative


SURROGATES: dict[str, Surrogate] = {
    "exponential": SlayerExponential(),
    "fast-sigmoid": FastSigmoid(),
    "triangular": Triangular(),
    "arctan": Arctan(),
}
