"""Plain forecasters to compare a model with, evaluated on the same windows."""

from __future__ import annotations

import numpy as np
import torch

from sswim.data.encoder import standard_scales
from sswim.data.series import Breaks, SeriesLike, as_series
from sswim.data.windows import Windows, batches, kept_for_training
from sswim.evaluate.metrics import Evaluation, ForecastErrors
from sswim.regression import Sums

__all__ = ["Persistence", "RidgeOnLags", "SeasonalNaive"]


class _Baseline:
    """Common parts: windows of a series, and errors over them."""

    def __init__(self, window: int, horizon: int) -> None:
        self.window, self.horizon = window, horizon

    def forecast(self, x: np.ndarray) -> np.ndarray:
        raise TypeError("forecast is for the baselines to define")

    def _windows(self, series: SeriesLike, breaks: Breaks, stride: int = 1) -> Windows:
        rows = [torch.from_numpy(segment) for segment in as_series(series, breaks=breaks).segments]
        return Windows(rows, self.window, self.horizon, stride)

    def evaluate(self, series: SeriesLike, *, breaks: Breaks = None) -> Evaluation:
        """Return the errors over every window of `series`."""
        errors, windows = ForecastErrors(), self._windows(series, breaks)
        for part in batches(len(windows), 1024):
            errors.update(windows.targets(part).numpy(), self.forecast(windows.inputs(part).numpy()))
        return errors.result()


class Persistence(_Baseline):
    """The last value goes on."""

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        return np.repeat(x[:, -1:], self.horizon, axis=1)


class SeasonalNaive(_Baseline):
    """What was a season ago, in rows; the last value where a window does not reach back that far."""

    def __init__(self, window: int, horizon: int, season: int) -> None:
        super().__init__(window, horizon)
        self.season = season

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        ahead = np.arange(self.horizon) % self.season
        return (
            x[:, self.window - self.season + ahead]
            if self.season <= self.window
            else np.repeat(x[:, -1:], self.horizon, axis=1)
        )


class RidgeOnLags(_Baseline):
    """Ridge regression of a channel's next values on its own last `window` values.

    The penalty is chosen on the last part of the windows, and the weights are those of all windows.

    Parameters
    ----------
    window, horizon : int
    shared : bool
        Whether all channels have the same weights, or each its own.
    validation : float
        Part of the windows that the penalty is chosen on.
    """

    def __init__(self, window: int, horizon: int, *, shared: bool = False, validation: float = 0.2) -> None:
        super().__init__(window, horizon)
        self.shared, self.validation = shared, validation

    def fit(self, series: SeriesLike, *, breaks: Breaks = None, stride: int = 1) -> RidgeOnLags:
        """Fit on every `stride`-th window of `series`, in memory that does not grow with their number."""
        windows = self._windows(series, breaks, stride)
        channels, kept = windows.rows.shape[1], kept_for_training(len(windows), self.validation)
        seen = windows.rows[windows.covered(kept)]
        self.mean, self.spread = standard_scales(seen)
        train, held_out = (Sums(self.window, self.horizon, groups=channels) for _ in range(2))
        for sums, first, last in ((train, 0, kept), (held_out, kept, len(windows))):
            for part in batches(last - first, 256):
                index = slice(first + part.start, first + part.stop)
                x, y = ((v - self.mean) / self.spread for v in (windows.inputs(index), windows.targets(index)))
                sums.update_groups(x.permute(1, 0, 2), y.permute(1, 0, 2))
        if self.shared:
            train, held_out = train.joined(), held_out.joined()
        best = torch.full((len(train.gram),), torch.inf, dtype=torch.float64)
        lambdas = torch.zeros_like(best)
        for lambda_ in torch.logspace(-8, 1, 19, dtype=torch.float64).tolist():
            error = held_out.squared_error(*train.solve(lambda_)).sum(dim=1)
            lambdas[error < best] = lambda_
            best = torch.minimum(best, error)
        train.merge(held_out)
        weights, biases = train.solve(lambdas)
        self.weights, self.biases = weights.expand(channels, -1, -1), biases.expand(channels, -1)
        return self

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        z = (torch.from_numpy(np.ascontiguousarray(x)) - self.mean) / self.spread
        y = torch.einsum("nwc,cwh->nhc", z, self.weights) + self.biases.T
        return (y * self.spread + self.mean).numpy()
