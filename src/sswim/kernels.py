r"""Kernels: the shapes of a spike's effect on a membrane potential.

A kernel is a function of one dimensionless variable ``x``. Neuron ``i`` with delay ``tau_i`` and support ``sigma_i`` uses
``k_i(s) = k((s - tau_i) / sigma_i)`` for lags ``s >= 0`` and 0 before (definition ``def:ff_snn`` of the paper). Kernels work
elementwise on tensors of any shape, on any device, and let gradients through.

Any callable that maps a tensor to a tensor of the same shape serves as a kernel too. Give it an attribute ``peak`` (where
it is largest, default 0) if its maximum is not at 0, and ``breaks`` (where it or its derivative jumps, in order) if it is
smooth elsewhere: responses to events at exact times are computed many times as fast then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

__all__ = [
    "KERNELS",
    "REFRACTORY_KERNELS",
    "Alpha",
    "Exponential",
    "Hat",
    "Kernel",
    "Morlet",
    "Refractory",
    "kernel_peak",
    "resolve_kernel",
]

Kernel = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Hat:
    r"""Piecewise linear bump, :math:`k(x) = \max(1 - |x|, 0)`.

    At its kinks the derivative is taken as 0 at the top, and at both feet as that of the slope inside.

    Examples
    --------
    >>> Hat()(torch.tensor([-2.0, -0.5, 0.0, 0.25]))
    tensor([0.0000, 0.5000, 1.0000, 0.7500])
    """

    peak: ClassVar[float] = 0.0
    breaks: ClassVar[tuple[float, ...]] = (-1.0, 0.0, 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        return (1 - x.abs()).clamp_min(0)


@dataclass(frozen=True)
class Morlet:
    r"""Rectified wavelet, :math:`k(x) = e^{-a x^2} \cos(2 \pi x)` for :math:`|x| \le 1`, else 0.

    Parameters
    ----------
    decay : float
        The paper's `a`: 3 in its forecasting experiments (the default), 1 in its classification experiments.

    Examples
    --------
    >>> Morlet()(torch.tensor([0.0, 0.5, 1.5]))
    tensor([ 1.0000, -0.4724,  0.0000])
    """

    decay: float = 3.0
    peak: ClassVar[float] = 0.0
    breaks: ClassVar[tuple[float, ...]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        if not self.decay >= 0:
            raise ValueError(f"Morlet: decay must be >= 0, got {self.decay!r}; the paper uses 3 or 1.")

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        inside = x.abs() <= 1
        x = torch.where(inside, x, torch.zeros_like(x))  # keeps exp(-a x^2) and its gradient finite outside
        return torch.where(inside, torch.exp(-self.decay * x**2) * torch.cos(2 * math.pi * x), torch.zeros_like(x))


@dataclass(frozen=True)
class Exponential:
    r"""One-sided decay, :math:`k(x) = e^{-x}` for :math:`x \ge 0`, else 0: a leaky integrate-and-fire membrane.

    Examples
    --------
    >>> Exponential()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 1.0000, 0.3679])
    """

    peak: ClassVar[float] = 0.0
    breaks: ClassVar[tuple[float, ...]] = (0.0,)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        return torch.where(x >= 0, torch.exp(-x.clamp_min(0)), torch.zeros_like(x))


@dataclass(frozen=True)
class Alpha:
    r"""Rise and decay, :math:`k(x) = x e^{1 - x}` for :math:`x \ge 0`, else 0: synapse and membrane of equal time constant.

    Its maximum 1 lies at ``x = 1``, one support after the delay.

    Examples
    --------
    >>> Alpha()(torch.tensor([-1.0, 0.0, 1.0, 2.0]))
    tensor([0.0000, 0.0000, 1.0000, 0.7358])
    """

    peak: ClassVar[float] = 1.0
    breaks: ClassVar[tuple[float, ...]] = (0.0,)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        x = x.clamp_min(0)
        return x * torch.exp(1 - x)


@dataclass(frozen=True)
class Refractory:
    r"""Refractory kernel, :math:`q(x) = e^{-x}` for :math:`0 \le x \le 1`, else 0.

    The network evaluates it at lags of one step and more, so a spike never inhibits itself.

    Examples
    --------
    >>> Refractory()(torch.tensor([0.0, 0.5, 1.0, 1.1]))
    tensor([1.0000, 0.6065, 0.3679, 0.0000])
    """

    peak: ClassVar[float] = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        inside = (x >= 0) & (x <= 1)
        return torch.where(inside, torch.exp(-x.clamp(0, 1)), torch.zeros_like(x))


KERNELS: dict[str, Kernel] = {
    "hat": Hat(),
    "morlet": Morlet(),
    "morlet-wide": Morlet(decay=1.0),
    "exponential": Exponential(),
    "alpha": Alpha(),
}


REFRACTORY_KERNELS: dict[str, Kernel] = {"exponential-cut": Refractory(), "exponential": Exponential()}


def kernel_peak(kernel: Kernel) -> float:
    r"""Return where `kernel` is largest, in multiples of the support (the paper's :math:`\Delta^k` over sigma)."""
    return float(getattr(kernel, "peak", 0.0))


def resolve_kernel(kernel: str | Kernel, argument: str = "kernel", choices: dict[str, Kernel] = KERNELS) -> Kernel:
    """Return the kernel that a name or a callable stands for.

    Examples
    --------
    >>> resolve_kernel("hat")
    Hat()
    """
    if isinstance(kernel, str):
        if kernel not in choices:
            names = ", ".join(map(repr, choices))
            raise ValueError(f"{argument}: unknown name {kernel!r}. Choose one of {names}, or pass a callable.")
        return choices[kernel]
    if isinstance(kernel, type) or not callable(kernel):
        raise TypeError(f"{argument} must be a name or a kernel object such as Hat(), got {kernel!r}.")
    return kernel
