r"""Kernels: the shapes of a spike's effect on a membrane potential.

A kernel is a function of one dimensionless variable ``x``. Neuron ``i`` with delay ``tau_i`` and support ``sigma_i`` uses
``k_i(s) = k((s - tau_i) / sigma_i)`` for lags ``s >= 0`` and 0 before (definition ``def:ff_snn`` of the paper). Kernels work
elementwise on tensors of any shape, on any device, and let gradients through.

Any callable that maps a tensor to a tensor of the same shape serves as a kernel too. Wrap it in `FunctionKernel` if its maximum
is not at 0, or to say where it is smooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from sswim.options import resolve

__all__ = [
    "KERNELS",
    "REFRACTORY_KERNELS",
    "Alpha",
    "Exponential",
    "FunctionKernel",
    "Hat",
    "Kernel",
    "Morlet",
    "Refractory",
    "delay_of_lag",
    "exporting",
    "kernel_taps",
    "refractory_taps",
    "resolve_kernel",
    "toeplitz",
]


class Kernel(Protocol):
    r"""A kernel `k` of one variable.

    Responses to events at exact times are many times as fast where a kernel is known to be smooth.
    """

    @property
    def peak(self) -> float:
        r"""Where it is largest, in multiples of the support: the paper's :math:`\Delta^k` over sigma."""
        ...

    @property
    def breaks(self) -> tuple[float, ...] | None:
        """Where it or its derivative jumps, in order; None if that is not known."""
        ...

    def __call__(self, x: Tensor, /) -> Tensor:
        """Evaluate the kernel elementwise."""
        ...


@dataclass(frozen=True)
class FunctionKernel:
    """A kernel from a function of the user's own.

    Examples
    --------
    >>> FunctionKernel(lambda x: torch.exp(-(x**2)))(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.3679])
    """

    function: Callable[[Tensor], Tensor]
    peak: float = 0.0
    breaks: tuple[float, ...] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the kernel elementwise."""
        return self.function(x)


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
        if not 0 <= self.decay < math.inf:
            raise ValueError(f"Morlet: decay must be a finite number >= 0, got {self.decay!r}; the paper uses 3 or 1.")

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
    breaks: ClassVar[tuple[float, ...]] = (0.0, 1.0)

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


def resolve_kernel(
    kernel: str | Kernel | Callable[[Tensor], Tensor], argument: str = "kernel", choices: dict[str, Kernel] = KERNELS
) -> Kernel:
    """Return the kernel that a name or a callable stands for.

    Examples
    --------
    >>> resolve_kernel("hat")
    Hat()
    """
    if isinstance(kernel, type):
        raise TypeError(f"{argument} must be a name or a kernel object such as Hat(), got {kernel!r}.")
    found = resolve(argument, kernel, choices, "__call__")
    if hasattr(found, "peak") and hasattr(found, "breaks"):
        return found
    return FunctionKernel(found, getattr(found, "peak", 0.0), getattr(found, "breaks", None))


def exporting() -> bool:
    """Return whether `torch.export` is looking on: then no length may depend on values."""
    asked = getattr(torch.compiler, "is_exporting", None)  # older versions of torch cannot tell
    return bool(asked()) if asked is not None else False


def delay_of_lag(kernel: Kernel, lag: float | Tensor, support: float | Tensor) -> Tensor:
    """Return the delay with which a kernel has its peak, not its onset, at a lag; no delay is below 0."""
    return torch.as_tensor(lag - kernel.peak * support).clamp_min(0)


def kernel_taps(kernel: Kernel, delays: Tensor, supports: Tensor, steps: int) -> Tensor:
    r"""Evaluate :math:`k_i(s) = k((s - \tau_i) / \sigma_i)` at the lags ``s = 0, ..., steps - 1``.

    Parameters
    ----------
    kernel : callable
        The kernel `k`.
    delays, supports : Tensor of shape (neurons,)
        :math:`\tau_i \ge 0` and :math:`\sigma_i > 0`, in steps.
    steps : int
        Number of lags.

    Returns
    -------
    Tensor of shape (neurons, steps)

    Examples
    --------
    >>> kernel_taps(Hat(), torch.tensor([1.0]), torch.tensor([2.0]), 4)
    tensor([[0.5000, 1.0000, 0.5000, 0.0000]])
    """
    lags = torch.arange(steps, dtype=delays.dtype, device=delays.device)  # (S,)
    return kernel((lags - delays[:, None]) / supports[:, None])


def refractory_taps(kernel: Kernel, supports: Tensor, steps: int) -> Tensor:
    r"""Evaluate :math:`q(s / \varsigma_i)` at the lags ``s = 1, 2, ...``, up to the last one that is not 0 for every neuron.

    Returns
    -------
    Tensor of shape (neurons, lags), with at most ``steps - 1`` lags; inside of `torch.export` with all of them.
    """
    lags = torch.arange(1, max(steps, 2), dtype=supports.dtype, device=supports.device)
    taps = kernel(lags / supports[:, None])
    if exporting():  # a length must not depend on values
        return taps
    used = (taps != 0).any(dim=0).nonzero()
    return taps[:, : int(used.max()) + 1 if len(used) else 0]


def toeplitz(taps: Tensor, steps_in: int) -> Tensor:
    r"""Turn taps into the causal convolution matrices ``K[i, t, s] = taps[i, t - s]`` for ``t >= s``, else 0.

    Parameters
    ----------
    taps : Tensor of shape (neurons, steps_out)
    steps_in : int
        Length of the signals to be filtered; later input counts as 0.

    Returns
    -------
    Tensor of shape (neurons, steps_out, steps_in)

    Examples
    --------
    >>> toeplitz(torch.tensor([[3.0, 2.0, 1.0]]), 2)
    tensor([[[3., 0.],
             [2., 3.],
             [1., 2.]]])
    """
    padded = torch.nn.functional.pad(taps, (steps_in - 1, 0))  # (N, I - 1 + S)
    return padded.unfold(1, steps_in, 1).flip(2)  # [i, t, s] = padded[i, t + I - 1 - s]
