"""A fitted forecaster: everything that a forecast, a stream, a file or an export needs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.encoder import Encoded, SeriesEncoder
from sswim.data.windows import Origins, SeriesWindows, Windows, batches
from sswim.network.network import SpikingNetwork
from sswim.readout.corrections import TraceReadout
from sswim.readout.direct import LEVELS
from sswim.report import SamplingReport

__all__ = ["DirectForecasts", "ForecastModel", "ForecastStream", "TrajectoryForecasts"]

# How many windows a forecast looks at: its own, and two earlier ones that warm the network up.
MEMORY = 3


@dataclass(frozen=True)
class ForecastModel(ABC):
    """A fitted forecaster.

    Attributes
    ----------
    encoder : SeriesEncoder
        Turns rows into a network's inputs, and outputs into forecasts.
    network : SpikingNetwork
    report : SamplingReport
        What the fit did.
    columns : tuple or None
        Names of the columns, if a DataFrame was given.
    missing : {"error", "interpolate"}
        What happens to NaN.
    memory : int
        Budget in bytes.
    """

    encoder: SeriesEncoder
    network: SpikingNetwork
    report: SamplingReport
    columns: tuple[Hashable, ...] | None
    missing: str
    memory: int

    @property
    def window(self) -> int:
        """Rows that the model looks at."""
        return self.network.window

    @property
    def horizon(self) -> int:
        """Rows that it forecasts."""
        return self.network.horizon

    @property
    def has_intervals(self) -> bool:
        """Whether errors on validation rows are known, which intervals come from."""
        return self.report.solution.quantiles is not None

    def half_width(self, coverage: float) -> np.ndarray:
        """Return half the width of intervals, (horizon, channels), in the data's own units."""
        quantiles = self.report.solution.quantiles
        if quantiles is None:
            raise ValueError("predict_interval needs a Forecaster fitted with readout='direct'.")
        if not LEVELS[0] <= coverage <= LEVELS[-1]:
            raise ValueError(f"coverage must lie between {LEVELS[0]} and {LEVELS[-1]}, got {coverage!r}.")
        above = int(np.searchsorted(LEVELS, coverage).clip(1))
        part = (coverage - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        low, high = quantiles[above - 1], quantiles[above]
        return (low + part * (high - low)) * self.encoder.span[self.encoder.channels]

    @abstractmethod
    def forecast(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""

    @abstractmethod
    def backtest(self, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""

    def stream(self) -> ForecastStream:
        """Return a stream that takes one new row at a time."""
        raise ValueError("stream needs readout='direct': the paper's readout starts anew for every window.")


@dataclass(frozen=True)
class TrajectoryForecasts(ForecastModel):
    """Forecasts by the paper's output, whose voltage draws the horizon: every window is simulated from its first row."""

    def _forecasts(self, samples: SeriesWindows) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the numbers of windows and their forecasts (windows, horizon, channels), scaled, batch by batch."""
        predict = self.network.predictor()
        size = max(samples.batch, self.network.batch_size(self.memory) // samples.batch * samples.batch)
        for part in batches(len(samples), size, even=False):
            y = samples.level(part) + predict(samples.inputs(part), None).cpu()
            if samples.shared:
                y = y[:, :, 0].unflatten(0, (-1, samples.batch)).transpose(1, 2)
            yield torch.arange(part.start // samples.batch, part.stop // samples.batch), y

    def backtest(self, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""
        truth = Windows([r[:, self.encoder.channels] for r in rows], self.window, self.horizon)
        for numbers, y in self._forecasts(SeriesWindows([self.encoder(r) for r in rows], self.window, self.horizon)):
            yield truth.targets(numbers).numpy(), self.encoder.forecast(y)

    def forecast(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
        # A running level looks one window further back. The rows to be forecast are not known: zeros stand for them.
        known = [self.encoder(r[-2 * self.window :]) for r in rows]

        def cut(values: Tensor) -> Tensor:
            return torch.nn.functional.pad(values[..., -self.window :, :], (0, 0, 0, self.horizon))

        segments = [Encoded(*map(cut, (s.signals, s.lagged, s.level, s.base))) for s in known]
        samples = SeriesWindows(segments, self.window, self.horizon)
        return np.concatenate([self.encoder.forecast(y) for _, y in self._forecasts(samples)])


@dataclass(frozen=True)
class DirectForecasts(ForecastModel):
    """Forecasts by a direct output: the network runs along a series, and every row is an origin."""

    @property
    def readout(self) -> TraceReadout:
        """The output in float64: forecasts then do not depend on how many rows are read at once."""
        return copy.deepcopy(self.network.readout).double()  # type: ignore[attr-defined]

    def origins(self, rows: Sequence[Tensor], dtype: torch.dtype | None = None) -> Origins:
        """Return the origins in rows (rows, columns) of the data's own units."""
        skip = self.network.readout.lags > 0  # type: ignore[attr-defined]
        segments = [self.encoder(r) for r in rows]
        return Origins(self.network, segments, skip=skip, memory=self.memory // 4, dtype=dtype)

    def arranged(self, y: Tensor, level: Tensor) -> Tensor:
        """Bring outputs (horizon * outputs, rows, batch) to (rows, horizon, channels), and add the level (rows, channels)."""
        y = y.unflatten(0, (self.horizon, -1)).permute(2, 0, 1, 3).flatten(2)  # (T, H, O B)
        return y.cpu() + level[:, None].cpu()

    @torch.no_grad()
    def backtest(self, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every origin, in the data's own units."""
        origins, readout = self.origins(rows, torch.float64), self.readout
        parts = zip(origins.segments, origins.counts, strict=True)
        levels = torch.cat([seen.level[self.window - 1 :][:count] for seen, count in parts])
        for first, features, y in origins():
            level = levels[first : first + y.shape[1]]
            forecasts = self.encoder.forecast(self.arranged(readout(features), level))
            yield self.encoder.decode(self.arranged(y, level)), forecasts

    def forecast(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
        return np.stack([self.stream().advance(r[-MEMORY * self.window :].numpy())[-1] for r in rows])

    def stream(self) -> ForecastStream:
        """Return a stream that takes one new row at a time."""
        return ForecastStream(self)


class ForecastStream:
    """Takes rows as they come and forecasts the next `horizon` after each, in constant time and memory.

    Returned by `Forecaster.stream`.

    Examples
    --------
    >>> from sswim import Forecaster
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:1000].to_numpy()
    >>> model = Forecaster(24, 6, hidden=(50,), random_state=0).fit(wind[:900])
    >>> stream = model.stream()
    >>> for row in wind[900:]:
    ...     forecast = stream(row)
    >>> forecast.shape
    (6, 8)
    """

    def __init__(self, model: DirectForecasts) -> None:
        self._model, self._readout = model, model.readout
        self._past = torch.zeros(0, model.encoder.columns, dtype=torch.float64)
        self._origins = model.origins([self._past])
        self._stream = model.network.stream(self._origins.batch, torch.float64)
        self.rows = 0

    def __call__(self, row: npt.ArrayLike) -> np.ndarray | None:
        """Take one row (channels,) and return the forecast (horizon, channels), or None before `window` rows have come."""
        forecast = self.advance(np.asarray(row, dtype=np.float64)[None])[0]
        return None if self.rows < self._model.window else forecast

    @torch.no_grad()
    def advance(self, rows: npt.ArrayLike) -> np.ndarray:
        """Take several rows (rows, channels) and return the forecasts (rows, horizon, channels)."""
        new, encoder = torch.from_numpy(np.array(rows, dtype=np.float64)), self._model.encoder
        if new.ndim != 2 or new.shape[1] != encoder.columns:
            raise ValueError(f"row must hold {encoder.columns} channels, got shape {tuple(new.shape[1:])}.")
        if not bool(torch.isfinite(new).all()):
            raise ValueError("row must be finite, but holds NaN or infinity: a stream cannot look ahead to fill a gap.")
        before, window = len(self._past), self._model.window
        known = torch.cat([self._past, new])
        seen = encoder(known)
        features = self._origins.features(self._stream, seen, before, len(known))
        self._past = known[-(window - 1) :] if window > 1 else known[:0]
        self.rows += len(new)
        return encoder.forecast(self._model.arranged(self._readout(features), seen.level[before:]))
