"""Plain forecasters to set a model beside, evaluated on the same windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeCV

from sswim._series import as_series
from sswim.metrics import Evaluation, ForecastErrors
from sswim.windows import Windows, batches

__all__ = ["Persistence", "RidgeOnLags"]


class _Baseline:
    """Common parts: windows of a series, and errors over them."""

    def __init__(self, window: int, horizon: int) -> None:
        self.window, self.horizon = window, horizon

    def forecast(self, x: np.ndarray) -> np.ndarray:
        raise TypeError("forecast is for the baselines to define")

    def _windows(self, series: Any, breaks: Any, stride: int = 1) -> Windows:
        rows = [torch.from_numpy(segment) for segment in as_series(series, breaks=breaks).segments]
        return Windows(rows, self.window, self.horizon, stride)

    def evaluate(self, series: Any, *, breaks: Any = None) -> Evaluation:
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


class RidgeOnLags(_Baseline):
    """Ridge regression of each channel's next values on its own last `window` values, penalty by cross-validation."""

    def fit(self, series: Any, *, breaks: Any = None, stride: int = 1) -> RidgeOnLags:
        """Fit one regression per channel on every `stride`-th window of `series`."""
        windows = self._windows(series, breaks, stride)
        x, y = windows.inputs(slice(None)).numpy(), windows.targets(slice(None)).numpy()
        self._models = []
        for channel in range(x.shape[2]):
            scale = x[:, :, channel].std() or 1.0
            model = RidgeCV(np.logspace(-2, 4, 13)).fit(x[:, :, channel] / scale, y[:, :, channel])
            self._models.append((model, scale))
        return self

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        parts = [model.predict(x[:, :, c] / scale).reshape(len(x), -1) for c, (model, scale) in enumerate(self._models)]
        return np.stack(parts, axis=2)
