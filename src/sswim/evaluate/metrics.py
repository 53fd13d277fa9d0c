r"""Errors of forecasts, accumulated batch by batch, and distances of spike trains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sswim.network.kernels import Kernel, kernel_taps, resolve_kernel, toeplitz
from sswim.options import check_integer, check_positive
from sswim.report import Facts

__all__ = ["Evaluation", "ForecastErrors", "coincidence", "range_scale", "van_rossum"]


def range_scale(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return each channel's training range (channels,); for a channel that rested, the median range of the others.

    Examples
    --------
    >>> range_scale(np.array([0.0, 5.0, -1.0]), np.array([2.0, 5.0, 3.0])).tolist()
    [2.0, 3.0, 4.0]
    """
    width = high - low
    moving = width[width > 0]
    return np.where(width > 0, width, np.median(moving) if len(moving) else 1.0)


class ForecastErrors:
    r"""Sums from which all errors follow, in memory that does not grow with the number of windows.

    .. math::
        \mathrm{RSE} = \sqrt{\frac{\sum_m \|Y_m - \hat Y_m\|^2}{\sum_m \|Y_m - \bar Y\|^2}}

    with :math:`\bar Y` the mean over the evaluation windows, separately for each step ahead and channel.

    Parameters
    ----------
    scale : array of shape (channels,), optional
        What to divide each channel by for the scaled RSE, see `range_scale`. Default: there is no scaled RSE.
    half_width : array of shape (horizon, channels), optional
        How far an error may lie from 0 to be within a forecast's interval.
    """

    def __init__(self, scale: npt.ArrayLike | None = None, half_width: np.ndarray | None = None) -> None:
        self._half_width = half_width
        self._within = 0
        self._scale = None if scale is None else np.asarray(scale, dtype=np.float64)
        self.windows = 0
        self._squared: np.ndarray = np.zeros(())  # (H, C)
        self._absolute: np.ndarray = np.zeros(())
        self._spread: np.ndarray = np.zeros(())
        self._mean: np.ndarray = np.zeros(())

    def update(self, truth: np.ndarray, forecast: np.ndarray) -> None:
        """Add windows of shape (windows, horizon, channels)."""
        truth, error = truth.astype(np.float64), forecast.astype(np.float64) - truth
        n = len(truth)
        if n == 0:
            return
        if self._half_width is not None:
            self._within += int((np.abs(error) <= self._half_width).sum())
        total, mean = self.windows + n, truth.mean(axis=0)
        shift = mean - self._mean
        self._squared = self._squared + (error**2).sum(axis=0)
        self._absolute = self._absolute + np.abs(error).sum(axis=0)
        # Parts centred at their own means, joined: the mean over all windows is known only at the end.
        self._spread = self._spread + ((truth - mean) ** 2).sum(axis=0) + shift**2 * (self.windows * n / total)
        self._mean = self._mean + shift * (n / total)
        self.windows = total

    def result(self, columns: Sequence[Hashable] | None = None) -> Evaluation:
        """Return the errors: overall, per step ahead, and per channel."""
        if not self.windows:
            raise ValueError("no windows to evaluate.")
        squared, absolute, spread = self._squared, self._absolute, self._spread
        horizon, channels = squared.shape
        names = list(range(channels)) if columns is None else columns

        def rse(e: np.ndarray, s: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.sqrt(np.where(s > 0, e / np.where(s > 0, s, 1), np.nan))

        def table(axis: int, index: pd.Index) -> pd.DataFrame:
            count = self.windows * squared.shape[axis]
            columns = {
                "rse": rse(squared.sum(axis=axis), spread.sum(axis=axis)),
                "mae": absolute.sum(axis=axis) / count,
                "rmse": np.sqrt(squared.sum(axis=axis) / count),
                "deviation": np.sqrt(spread.sum(axis=axis) / count),
            }
            return pd.DataFrame(columns, index=index)

        weight = None if self._scale is None else self._scale**-2.0
        count = self.windows * horizon * channels
        around = spread.sum() + self.windows * ((self._mean - self._mean.mean()) ** 2).sum()
        return Evaluation(
            rse=float(rse(squared.sum(), spread.sum())),
            rse_scaled=None if weight is None else float(rse((squared * weight).sum(), (spread * weight).sum())),
            r2=float(1 - squared.sum() / around) if around > 0 else float("nan"),
            mae=float(absolute.sum() / count),
            rmse=float(np.sqrt(squared.sum() / count)),
            windows=self.windows,
            coverage=None if self._half_width is None else self._within / count,
            per_step=table(1, pd.RangeIndex(1, horizon + 1, name="step")),
            per_channel=table(0, pd.Index(names, name="channel")),
        )


@dataclass(frozen=True)
class Evaluation:
    """Errors of a model over all windows of a series.

    Attributes
    ----------
    rse : float
        Root relative squared error in the data's units: 0 is perfect, 1 is as good as knowing the mean.
    rse_scaled : float or None
        The same after scaling each channel to its training range, so that all channels weigh alike. None if the forecaster
        knows no training range.
    r2 : float
        Coefficient of determination over all values at once, around their one mean: see `sswim.evaluate.protocol.r2`.
    mae, rmse : float
        Mean absolute and root mean squared error, in the data's units.
    windows : int
        Number of windows evaluated.
    coverage : float or None
        Part of the values that lie within the forecasts' 90 % intervals, if there are any.
    per_step, per_channel : DataFrame
        ``rse``, ``mae``, ``rmse`` and ``deviation`` for each step ahead, and for each channel; the last is how far values are
        from their mean, so that the RSE is RMSE over deviation.
    """

    rse: float
    rse_scaled: float | None
    r2: float
    mae: float
    rmse: float
    windows: int
    coverage: float | None
    per_step: pd.DataFrame
    per_channel: pd.DataFrame

    def to_dict(self) -> Facts:
        """Return everything as plain numbers, lists and dictionaries, NaN as None."""

        def plain(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
            return {
                str(label): {str(k): None if pd.isna(v) else float(v) for k, v in row.items()}
                for label, row in frame.iterrows()
            }

        overall = {k: getattr(self, k) for k in ("rse", "rse_scaled", "r2", "mae", "rmse", "windows", "coverage")}
        overall = {k: None if pd.isna(v) else v for k, v in overall.items()}
        return {**overall, "per_step": plain(self.per_step), "per_channel": plain(self.per_channel)}

    def __str__(self) -> str:
        alike = "" if self.rse_scaled is None else f" (channels scaled alike {self.rse_scaled:.4f})"
        return f"RSE {self.rse:.4f}{alike}  MAE {self.mae:.4g}  RMSE {self.rmse:.4g}  over {self.windows:,} windows"


def _trains(name: str, a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Tensor, Tensor]:
    """Return two collections of trains as float64, of one shape (samples, steps, outputs)."""
    first, second = (torch.as_tensor(train).detach().double() for train in (a, b))
    if first.ndim != 3 or first.shape != second.shape:
        came = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"{name}: a and b must both have the shape (samples, steps, outputs), got {came}.")
    return first, second


def van_rossum(a: npt.ArrayLike, b: npt.ArrayLike, support: float = 5.0, kernel: str | Kernel = "hat") -> np.ndarray:
    r"""Return the van Rossum distance of two collections of spike trains, for each output.

    .. math:: d(a, b)^2 = \frac1M \sum_m \sum_t \bigl((a_m - b_m) * h\bigr)(t)^2, \qquad h(t) = k(t / \sigma), \ t \ge 0

    Parameters
    ----------
    a, b : array or Tensor of shape (samples, steps, outputs)
    support : float
        :math:`\sigma`, in steps: spikes nearer than that count as partly the same.
    kernel : str or callable
        `k`.

    Returns
    -------
    array of shape (outputs,)

    Examples
    --------
    >>> a, b = np.zeros((1, 6, 1)), np.zeros((1, 6, 1))
    >>> a[0, 2], b[0, 3] = 1, 1
    >>> van_rossum(a, b, support=1.0), van_rossum(a, b, support=4.0).round(3)
    (array([1.41421356]), array([1.09]))
    """
    first, second = _trains("van_rossum", a, b)
    samples, steps, _ = first.shape
    sigma = torch.tensor([check_positive("van_rossum: support", support)], dtype=torch.float64)
    h = toeplitz(kernel_taps(resolve_kernel(kernel), torch.zeros_like(sigma), sigma, steps), steps)[0]  # (S, S)
    apart = torch.einsum("ts,nsc->ntc", h, (first - second).cpu())
    return (apart.square().sum(dim=(0, 1)) / max(samples, 1)).sqrt().numpy()


def coincidence(a: npt.ArrayLike, b: npt.ArrayLike, window: int = 2) -> np.ndarray:
    r"""Return how many spikes coincide beyond chance, for each output: the factor :math:`\Gamma` of Jolivet et al.

    .. math:: \Gamma = \frac{N_c - p N_b}{\frac12 (N_a + N_b)} \, \frac1{1 - p}, \qquad p = 1 - (1 - \nu_a)^{2 w + 1}

    with :math:`N_a, N_b` the numbers of spikes, :math:`N_c` that of pairs at most `w` steps apart, nearest first and each
    spike in one pair at most, and `p` the chance that a train of the same rate has a spike that near. 1 is the same train, 0
    chance.

    Parameters
    ----------
    a, b : array or Tensor of shape (samples, steps, outputs)
        Trains of 0 and 1, `b` those to be met.
    window : int
        `w`, in steps.

    Returns
    -------
    array of shape (outputs,)
        NaN where neither has a spike, or where chance explains all.

    Examples
    --------
    >>> b = np.zeros((1, 50, 1))
    >>> b[0, [10, 20, 40]] = 1
    >>> coincidence(b, b), coincidence(np.roll(b, 1, axis=1), b), coincidence(np.roll(b, 5, axis=1), b).round(2)
    (array([1.]), array([1.]), array([-0.36]))
    """
    first, second = (train > 0 for train in _trains("coincidence", a, b))
    check_integer("coincidence: window", window, 0)
    in_a, in_b = (train.sum(dim=(0, 1)).double() for train in (first, second))
    p = 1 - (1 - first.double().mean(dim=(0, 1))) ** (2 * window + 1)
    steps, met = first.shape[1], torch.zeros_like(in_a)
    first, second = first.clone(), second.clone()
    for lag in sorted(range(-window, window + 1), key=abs):
        late, early = slice(max(lag, 0), steps + min(lag, 0)), slice(max(-lag, 0), steps + min(-lag, 0))
        pair = first[:, late] & second[:, early]
        first[:, late] &= ~pair
        second[:, early] &= ~pair
        met += pair.sum(dim=(0, 1))
    gamma = (met - p * in_b) / (0.5 * (in_a + in_b) * (1 - p))
    return torch.where(gamma.isfinite(), gamma, torch.nan).cpu().numpy()
