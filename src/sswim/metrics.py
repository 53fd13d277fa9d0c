r"""Errors of forecasts, accumulated batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Evaluation", "ForecastErrors"]


class ForecastErrors:
    r"""Sums from which all errors follow, in memory that does not grow with the number of windows.

    .. math::
        \mathrm{RSE} = \sqrt{\frac{\sum_m \|Y_m - \hat Y_m\|^2}{\sum_m \|Y_m - \bar Y\|^2}}

    with :math:`\bar Y` the mean over the evaluation windows, separately for each step ahead and channel.

    Parameters
    ----------
    scale : array of shape (channels,), optional
        What to divide each channel by for the scaled RSE.
    half_width : array of shape (horizon, channels), optional
        How far an error may lie from 0 to be within a forecast's interval.
    """

    def __init__(self, scale: Any = None, half_width: Any = None) -> None:
        self._half_width = half_width
        self._within = 0
        self._scale = None if scale is None else np.asarray(scale, dtype=np.float64)
        self.windows = 0
        self._squared: Any = 0.0  # (H, C)
        self._absolute: Any = 0.0
        self._spread: Any = 0.0
        self._mean: Any = 0.0

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

    def result(self, columns: list[Any] | None = None) -> Evaluation:
        """Return the errors: overall, per step ahead, and per channel."""
        if not self.windows:
            raise ValueError("no windows to evaluate.")
        squared, absolute, spread = self._squared, self._absolute, self._spread
        horizon, channels = squared.shape
        names = list(range(channels)) if columns is None else columns

        def rse(e: Any, s: Any) -> Any:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.sqrt(np.where(s > 0, e / np.where(s > 0, s, 1), np.nan))

        def table(axis: int, index: pd.Index) -> pd.DataFrame:
            count = self.windows * squared.shape[axis]
            columns = {
                "rse": rse(squared.sum(axis=axis), spread.sum(axis=axis)),
                "mae": absolute.sum(axis=axis) / count,
                "rmse": np.sqrt(squared.sum(axis=axis) / count),
            }
            return pd.DataFrame(columns, index=index)

        scale = np.ones(channels) if self._scale is None else self._scale
        count = self.windows * horizon * channels
        return Evaluation(
            rse=float(rse(squared.sum(), spread.sum())),
            rse_scaled=float(rse((squared / scale**2).sum(), (spread / scale**2).sum())),
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
    rse_scaled : float
        The same after scaling each channel to its training range, so that all channels weigh alike.
    mae, rmse : float
        Mean absolute and root mean squared error, in the data's units.
    windows : int
        Number of windows evaluated.
    coverage : float or None
        Part of the values that lie within the forecasts' 90 % intervals, if there are any.
    per_step, per_channel : DataFrame
        ``rse``, ``mae`` and ``rmse`` for each step ahead, and for each channel.
    """

    rse: float
    rse_scaled: float
    mae: float
    rmse: float
    windows: int
    coverage: float | None
    per_step: pd.DataFrame
    per_channel: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and dictionaries, NaN as None."""

        def plain(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
            return {
                str(label): {str(k): None if pd.isna(v) else float(v) for k, v in row.items()}
                for label, row in frame.iterrows()
            }

        overall = {k: getattr(self, k) for k in ("rse", "rse_scaled", "mae", "rmse", "windows", "coverage")}
        overall = {k: None if pd.isna(v) else v for k, v in overall.items()}
        return {**overall, "per_step": plain(self.per_step), "per_channel": plain(self.per_channel)}

    def __str__(self) -> str:
        return (
            f"RSE {self.rse:.4f} (channels scaled alike {self.rse_scaled:.4f})  MAE {self.mae:.4g}  "
            f"RMSE {self.rmse:.4g}  over {self.windows:,} windows"
        )
