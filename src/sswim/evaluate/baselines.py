"""Plain forecasters to compare a model with, evaluated on the same windows."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from sswim.data.series import Breaks, SeriesLike, as_series
from sswim.data.statistics import standard_scales
from sswim.data.tensors import Windows
from sswim.data.windows import batches, kept_for_training
from sswim.evaluate.metrics import Evaluation, ForecastErrors, range_scale
from sswim.options import check_choice, check_integer
from sswim.regression import Sums

__all__ = ["Baseline", "DLinear", "LinearBaseline", "NLinear", "Persistence", "RidgeOnLags", "SeasonalNaive"]

# Numbers in a batch of windows at most: 32 MB in float64.
BATCH = 2**22


class Baseline:
    """Common parts: windows of a series, and errors over them.

    Attributes
    ----------
    scale : array of shape (channels,) or None
        Training range of each channel, for `Evaluation.rse_scaled`. None if the baseline is not fitted.
    """

    scale: np.ndarray | None = None

    def __init__(self, window: int, horizon: int) -> None:
        self.window, self.horizon = window, horizon

    def fit(self, series: SeriesLike, *, breaks: Breaks = None) -> Self:
        """Return the baseline itself: there is nothing to fit."""
        return self

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        raise TypeError("forecast is for the baselines to define")

    def windows(self, series: SeriesLike, breaks: Breaks = None, stride: int = 1) -> Windows:
        """Return every `stride`-th window of a series."""
        rows = [torch.from_numpy(segment[:]) for segment in as_series(series, breaks=breaks).segments]
        return Windows(rows, self.window, self.horizon, stride)

    def parts(self, windows: Windows, count: int) -> list[slice]:
        """Return `count` windows in batches of bounded memory."""
        size = BATCH // (windows.rows.shape[1] * (self.window + self.horizon))
        return batches(count, min(max(size, 1), 1024))

    def predict_windows(self, series: SeriesLike, *, breaks: Breaks = None) -> np.ndarray:
        """Return the forecasts (windows, horizon, channels) from every window of `series`."""
        windows = self.windows(series, breaks)
        return np.concatenate([self.forecast(windows.inputs(p).numpy()) for p in self.parts(windows, len(windows))])

    def evaluate(self, series: SeriesLike, *, breaks: Breaks = None) -> Evaluation:
        """Return the errors over every window of `series`."""
        errors, windows = ForecastErrors(self.scale), self.windows(series, breaks)
        for part in self.parts(windows, len(windows)):
            errors.update(windows.targets(part).numpy(), self.forecast(windows.inputs(part).numpy()))
        return errors.result()


class Persistence(Baseline):
    """The last value goes on."""

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        return np.repeat(x[:, -1:], self.horizon, axis=1)


class SeasonalNaive(Baseline):
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


class LinearBaseline(Baseline):
    """Ridge regressions of a channel's next values on features that are linear in its own last `window` values.

    Channels are standardised. The penalty is chosen on the last part of the windows, and the weights are those of all
    windows. Subclasses say what the features are, and which level the forecasts are relative to.

    Parameters
    ----------
    window, horizon : int
    shared : bool
        Whether all channels have the same weights, or each its own.
    validation : float
        Part of the windows that the penalty is chosen on.
    """

    def __init__(self, window: int, horizon: int, *, shared: bool, validation: float) -> None:
        super().__init__(window, horizon)
        self.shared, self.validation = shared, validation

    def level(self, z: Tensor) -> Tensor:
        """Return what is subtracted from windows (windows, window, channels) and added to their forecasts. Default: 0."""
        return torch.zeros_like(z[:, :1])

    def features(self, z: Tensor) -> Tensor:
        """Return features (windows, window, channels) of windows from which the level was subtracted. Default: their rows."""
        return z

    def fit(self, series: SeriesLike, *, breaks: Breaks = None, stride: int = 1) -> Self:
        """Fit on every `stride`-th window of `series`, in memory that does not grow with their number."""
        windows = self.windows(series, breaks, stride)
        channels, kept = windows.rows.shape[1], kept_for_training(len(windows), self.validation)
        seen = windows.rows[windows.covered(kept)]
        self.mean, self.spread = standard_scales(seen)
        self.scale = range_scale(seen.amin(dim=0).numpy(), seen.amax(dim=0).numpy())
        train, held_out = self._sums(windows, 0, kept), self._sums(windows, kept, len(windows))
        best = torch.full((len(train.gram),), torch.inf, dtype=torch.float64)
        lambdas = torch.zeros_like(best)
        for lambda_ in torch.logspace(-8, 1, 19, dtype=torch.float64).tolist():
            error = held_out.squared_error(*train.solve(lambda_)).sum(dim=1)
            lambdas[error < best] = lambda_
            best = torch.minimum(best, error)
        train.merge(held_out)
        weights, biases = train.solve(lambdas)
        self.weights, self.biases = weights.expand(channels, -1, -1), biases.expand(channels, -1)  # (C, F, H), (C, H)
        return self

    def _sums(self, windows: Windows, first: int, last: int) -> Sums:
        """Return the sums over the windows ``[first, last)``: one group for each channel, or one for all."""
        sums = Sums(self.window, self.horizon, groups=1 if self.shared else windows.rows.shape[1])
        for part in self.parts(windows, last - first):
            index = slice(first + part.start, first + part.stop)
            z, y = ((v - self.mean) / self.spread for v in (windows.inputs(index), windows.targets(index)))
            level = self.level(z)
            x, y = (v.permute(1, 0, 2) for v in (self.features(z - level), y - level))  # (F, B, C), (H, B, C)
            if self.shared:
                x, y = (v.reshape(len(v), -1, 1) for v in (x, y))
            sums.update_groups(x, y)
        return sums

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        z = (torch.from_numpy(np.ascontiguousarray(x)) - self.mean) / self.spread
        level = self.level(z)
        y = torch.einsum("nfc,cfh->nhc", self.features(z - level), self.weights) + self.biases.T + level
        return (y * self.spread + self.mean).numpy()


class RidgeOnLags(LinearBaseline):
    """Ridge regression of a channel's next values on its own last `window` values.

    The penalty is chosen on the last part of the windows, and the weights are those of all windows.

    Parameters
    ----------
    window, horizon : int
    shared : bool
        Whether all channels have the same weights, or each its own.
    validation : float
        Part of the windows that the penalty is chosen on.
    relative : {None, "last", "mean"}
        Whether windows and forecasts are relative to the window's last value or mean. Default: neither.
    """

    def __init__(
        self, window: int, horizon: int, *, shared: bool = False, validation: float = 0.2, relative: str | None = None
    ) -> None:
        super().__init__(window, horizon, shared=shared, validation=validation)
        self.relative = relative if relative is None else check_choice("relative", relative, ("last", "mean"))

    def level(self, z: Tensor) -> Tensor:
        """Return what is subtracted from windows (windows, window, channels) and added to their forecasts."""
        if self.relative is None:
            return super().level(z)
        return z[:, -1:] if self.relative == "last" else z.mean(dim=1, keepdim=True)


class NLinear(RidgeOnLags):
    """NLinear in closed form: a ridge regression on the window relative to its last value, which is added back.

    Zeng et al., "Are Transformers Effective for Time Series Forecasting?" (2023), train the same linear map by gradients.

    Parameters
    ----------
    window, horizon : int
    shared : bool
        Whether all channels have the same weights, as in the publication, or each its own.
    validation : float
        Part of the windows that the penalty is chosen on.
    """

    def __init__(self, window: int, horizon: int, *, shared: bool = True, validation: float = 0.2) -> None:
        super().__init__(window, horizon, shared=shared, validation=validation, relative="last")


class DLinear(LinearBaseline):
    r"""DLinear in closed form: a ridge regression on the window's trend and on the remainder.

    The trend is a moving average :math:`A x` of the window `x`, whose ends are repeated. The remainder is :math:`x - A x`.
    Zeng et al., "Are Transformers Effective for Time Series Forecasting?" (2023), train one linear map of each by gradients.

    Parameters
    ----------
    window, horizon : int
    kernel : int
        Odd number of rows in the moving average.
    shared : bool
        Whether all channels have the same weights, as in the publication, or each its own.
    validation : float
        Part of the windows that the penalty is chosen on.

    Notes
    -----
    Trend and remainder are linear in the window. Their sum of two maps is therefore one linear map, and least squares would
    give the same forecasts as a regression on the window itself. Only the penalty differs. The ridge on the `2 window`
    features :math:`B x = (A x, x - A x)` equals the ridge on the `window` features :math:`R x` with
    :math:`R^\top R = B^\top B`, because both have the same inner products. The latter is what is solved.
    """

    def __init__(self, window: int, horizon: int, *, kernel: int = 25, shared: bool = True, validation: float = 0.2) -> None:
        super().__init__(window, horizon, shared=shared, validation=validation)
        if check_integer("kernel", kernel, 1) % 2 == 0:
            raise ValueError(f"kernel must be odd, so that the moving average has a middle, got {kernel}.")
        A, one = moving_average(window, kernel), torch.eye(window, dtype=torch.float64)
        self.kernel = kernel
        self.root = torch.linalg.cholesky(A.T @ A + (one - A).T @ (one - A)).T.contiguous()  # R, upper triangle

    def features(self, z: Tensor) -> Tensor:
        """Return `R x` of every window `x` (windows, window, channels)."""
        return torch.einsum("fw,nwc->nfc", self.root.to(z.dtype), z)


def moving_average(window: int, kernel: int) -> Tensor:
    """Return the matrix (window, window) of a centred moving average over `kernel` rows, with both ends repeated.

    Examples
    --------
    >>> (3 * moving_average(4, 3)).int().tolist()
    [[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]
    """
    half = kernel // 2
    at = (torch.arange(window)[:, None] + torch.arange(-half, half + 1)).clamp(0, window - 1)  # (W, K)
    ones = torch.full(at.shape, 1 / kernel, dtype=torch.float64)
    return torch.zeros(window, window, dtype=torch.float64).scatter_add_(1, at, ones)
