"""Temporal parameters of the hidden layers: delays, supports and refractory supports."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.options import Options, check_integer, check_positive
from sswim.steps.base import Temporal
from sswim.steps.leaky import LeakyTimes

__all__ = ["TEMPORAL", "TemporalGrid", "TemporalMemory", "TemporalShare", "TemporalSpread"]

Times = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class TemporalGrid(Options):
    r"""Delays spread evenly, supports cycling from small to large (equation ``op_t``).

    .. math::
        \tau_i = \frac{i - 1}{N_l} \frac{l}{L} \tau_{\max}, \quad
        \sigma_i = \sigma_{\min} + \frac{(i - 1) \bmod N_\sigma}{N_\sigma - 1} (\sigma_{\max} - \sigma_{\min}), \quad
        \varsigma_i = \sigma_{\min}

    Parameters
    ----------
    max_delay : float, optional
        :math:`\tau_{\max}`. Default: `horizon` if that is longer than `window`, else half of `window`.
    min_support, max_support : float
        :math:`\sigma_{\min}` and :math:`\sigma_{\max}`, in steps.
    cycle : int
        :math:`N_\sigma`, the number of different supports.
    growing : bool
        Whether earlier layers have shorter delays, the factor :math:`l / L` of the paper. Where all layers are read the first
        one's may as well be long.

    Examples
    --------
    >>> delays, supports, refractory = TemporalGrid(cycle=3).assign(
    ...     1, 1, neurons=4, window=8, horizon=2, signals=torch.zeros(1, 8, 1)
    ... )
    >>> delays.tolist(), supports.tolist(), refractory.tolist()
    ([0.0, 1.0, 2.0, 3.0], [5.0, 27.5, 50.0, 5.0], [5.0, 5.0, 5.0, 5.0])
    """

    max_delay: float | None = None
    min_support: float = 5.0
    max_support: float = 50.0
    cycle: int = 10
    growing: bool = True

    def __post_init__(self) -> None:
        if self.max_delay is not None:
            check_positive("TemporalGrid: max_delay", self.max_delay, zero=True)
        check_positive("TemporalGrid: min_support", self.min_support)
        if not check_positive("TemporalGrid: max_support", self.max_support) >= self.min_support:
            raise ValueError(f"TemporalGrid: max_support must be >= min_support, got {self.max_support} < {self.min_support}.")
        check_integer("TemporalGrid: cycle", self.cycle, 1)

    def assign(self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor) -> Times:
        """Return delays, supports and refractory supports of hidden layer `layer` (counted from 1) of `layers`."""
        tau_max = self.max_delay if self.max_delay is not None else (horizon if horizon > window else window / 2)
        i = torch.arange(neurons, dtype=torch.float64)
        tau = i / neurons * (tau_max * layer / layers if self.growing else tau_max)
        sigma = self.min_support + (i % self.cycle) / max(self.cycle - 1, 1) * (self.max_support - self.min_support)
        return tau, sigma, torch.full_like(tau, self.min_support)


@dataclass(frozen=True)
class TemporalSpread(Options):
    r"""Delays and supports spread evenly over a plane, short ones more often, all within the window.

    Not in the paper, for readouts at one step: its grid ties each delay to one support, and its supports of 5 to 50 steps suit
    long windows only. With :math:`u_i, v_i` an evenly spread sequence in the unit square,

    .. math::
        \tau_i = \tau_{\max} u_i^{3/2}, \quad
        \sigma_i = \sigma_{\min} (\sigma_{\max} / \sigma_{\min})^{v_i}, \quad
        \varsigma_i = \varsigma

    Parameters
    ----------
    max_delay, max_support : float
        As parts of the window.
    min_support, refractory : float
        In steps.

    Examples
    --------
    >>> delays, supports, _ = TemporalSpread().assign(
    ...     1, 1, neurons=100, window=50, horizon=5, signals=torch.zeros(1, 50, 1)
    ... )
    >>> bool((delays + supports <= 50).all()), float(supports.min().round()), float(supports.max().round())
    (True, 1.0, 15.0)
    """

    max_delay: float = 0.6
    min_support: float = 1.0
    max_support: float = 0.3
    refractory: float = 3.0

    def __post_init__(self) -> None:
        check_positive("TemporalSpread: max_delay", self.max_delay, zero=True)
        check_positive("TemporalSpread: min_support", self.min_support)
        check_positive("TemporalSpread: max_support", self.max_support)
        check_positive("TemporalSpread: refractory", self.refractory)

    def assign(self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor) -> Times:
        """Return delays, supports and refractory supports of hidden layer `layer` (counted from 1) of `layers`."""
        i = torch.arange(1, neurons + 1, dtype=torch.float64)
        root = 1.324717957244746  # of x^3 = x + 1: multiples of its powers spread evenly over a square
        u, v = (i / root) % 1, (i / root**2) % 1
        low, high = self.min_support, max(self.max_support * window / layers, self.min_support)
        tau, sigma = self.max_delay * window / layers * u**1.5, low * (high / low) ** v
        return tau, sigma, torch.full_like(tau, self.refractory)


@dataclass(frozen=True)
class TemporalShare(Options):
    """The paper's grid with delays and supports as parts of the window, for samples of any number of steps.

    Delays do not grow with the layer: where all layers are read, the delays of the first layer can be long too.

    Parameters
    ----------
    max_delay, max_support : float
        As parts of the window.
    min_support : float
        In steps.
    """

    max_delay: float = 0.3
    min_support: float = 3.0
    max_support: float = 0.6

    def __post_init__(self) -> None:
        check_positive("TemporalShare: max_delay", self.max_delay, zero=True)
        check_positive("TemporalShare: min_support", self.min_support)
        check_positive("TemporalShare: max_support", self.max_support)

    def assign(self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor) -> Times:
        """Return delays, supports and refractory supports of hidden layer `layer` (counted from 1) of `layers`."""
        longest = max(self.max_support * window, self.min_support + 1)
        grid = TemporalGrid(self.max_delay * window, self.min_support, longest, growing=False)
        return grid.assign(layer, layers, neurons=neurons, window=window, horizon=horizon, signals=signals)


@dataclass(frozen=True)
class TemporalMemory(Options):
    r"""Delays where the series remember themselves, supports up to half of their dominant period.

    Not in the paper. With :math:`r(k)` the autocorrelation at lag `k`, mean over all signals of the initial batch, delays are
    spread such that equally many lie in stretches with the same sum of :math:`|r(k)|`, and supports as in `TemporalSpread`
    between `min_support` and half of the period with the largest power.

    Parameters
    ----------
    max_delay : float
        As a part of the window.
    min_support, refractory : float
        In steps.
    """

    max_delay: float = 0.8
    min_support: float = 1.0
    refractory: float = 3.0

    def __post_init__(self) -> None:
        check_positive("TemporalMemory: max_delay", self.max_delay)
        check_positive("TemporalMemory: min_support", self.min_support)
        check_positive("TemporalMemory: refractory", self.refractory)

    @staticmethod
    def observe(signals: Tensor) -> tuple[Tensor, float]:
        """Return autocorrelation (steps,) and dominant period of signals (senders, steps, samples)."""
        steps = signals.shape[1]
        x = signals.double() - signals.double().mean(dim=1, keepdim=True)
        power = torch.fft.rfft(x, n=2 * steps, dim=1).abs().square().mean(dim=(0, 2))  # (steps + 1,)
        memory = torch.fft.irfft(power, n=2 * steps)[:steps]
        memory = (memory / memory[0].clamp_min(1e-300)).abs() if memory[0] > 0 else torch.ones(steps, dtype=torch.float64)
        period = 2 * steps / (1 + int(power[1:].argmax()))
        return memory.cpu(), min(period, float(steps))

    def assign(self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor) -> Times:
        """Return delays, supports and refractory supports of hidden layer `layer` (counted from 1) of `layers`."""
        memory, period = self.observe(signals)
        longest = max(period / 2, self.min_support) / window
        spread = TemporalSpread(min_support=self.min_support, max_support=longest, refractory=self.refractory)
        _, sigma, varsigma = spread.assign(layer, layers, neurons=neurons, window=window, horizon=horizon, signals=signals)
        most = max(1, round(self.max_delay * window / layers))
        share = memory[:most].cumsum(dim=0)
        share = share / share[-1]
        u = (torch.arange(neurons, dtype=torch.float64) + 0.5) / neurons
        tau = torch.searchsorted(share, u).clamp_max(most - 1).double()
        return tau, sigma, varsigma


TEMPORAL: dict[str, Temporal] = {
    "grid": TemporalGrid(),
    "spread": TemporalSpread(),
    "share": TemporalShare(),
    "memory": TemporalMemory(),
    "leaky": LeakyTimes(),
}
