"""Forecasts row by row: a stream keeps the last rows, and forecasts after each new one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sswim.data.calendar import wall_clock
from sswim.data.future import Ahead, Future
from sswim.data.times import in_zone, step_of
from sswim.forecasts import ForecastModel

__all__ = ["ForecastStream"]

Step = pd.offsets.BaseOffset | pd.Timedelta


class ForecastStream:
    """Takes rows as they come and forecasts the next `horizon` after each, in constant time and memory.

    Returned by `Forecaster.stream`. Its forecasts are those of `Forecaster.predict`: it keeps the last `window` rows.

    Parameters
    ----------
    model : ForecastModel
    rows : array of shape (rows, columns), optional
        Rows that came before.
    index : pandas.Index, optional
        Their labels. If these are times, later rows may have times too, and a missing one is noticed.

    Attributes
    ----------
    rows : int
        Number of rows that have come since the start.

    Notes
    -----
    A row with NaN is refused, or filled if the model was fitted with ``missing="interpolate"``: a value that is missing is
    taken to be the last one, until the next one comes; then the gap is filled linearly in time, as `predict` does.

    Examples
    --------
    >>> from sswim import Forecaster
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:1000].to_numpy()
    >>> model = Forecaster(24, 6, random_state=0).fit(wind[:900])
    >>> stream = model.stream(wind[:900])
    >>> for row in wind[900:]:
    ...     forecast = stream(row)
    >>> low, high = stream.interval(0.8)
    >>> forecast.shape, bool((low <= forecast).all())
    ((6, 8), True)
    """

    def __init__(self, model: ForecastModel, rows: npt.ArrayLike | None = None, index: pd.Index | None = None) -> None:
        self._model = model
        self._forecast: np.ndarray | None = None
        self._time: pd.Timestamp | None = None
        self._step: Step | None = None
        self.restart()
        if rows is not None:
            index = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
            if isinstance(index, pd.DatetimeIndex) and (len(index) > 1 or (model.pace is not None and len(index))):
                self._time, self._step = index[-1], step_of(index, model.pace)
            before = np.asarray(rows, dtype=np.float64)
            for row in before[_first_needed(before, model.window) :]:
                self._take(row)
            self.rows = len(before)

    def restart(self) -> None:
        """Forget all rows, as after a gap: forecasts begin again once `window` new rows have come."""
        columns = self._model.encoder.columns
        self._past = np.zeros((0, columns))
        self._held = np.zeros((0, columns), dtype=bool)  # values that are missing, and taken to be the last ones so far
        self._age = np.zeros(columns, dtype=int)  # rows since the last value
        self._forecast = self._time = self._step = None
        self.rows = 0

    @property
    def past(self) -> np.ndarray:
        """The last rows, at most `window`: all that a stream needs. ``model.stream(stream.past)`` goes on from here.

        A value that is still missing is NaN.
        """
        past = self._past.copy()
        held = self._held.copy()
        held[:1] = False  # what a gap as long as the window began with
        past[held] = np.nan
        return past

    def __call__(self, row: npt.ArrayLike | pd.Series, *, future: Future = None) -> np.ndarray | None:
        """Take one row and return the forecast that follows it.

        Parameters
        ----------
        row : array of shape (columns,), or a row of a DataFrame
            If its name is a time, it must follow on the row before. Rows between are missing: rows of NaN.
        future : array of shape (horizon, known), or DataFrame, optional
            Covariates that are known ahead, if the model has any.

        Returns
        -------
        array of shape (horizon, channels), or None before `window` rows have come, and a value of every column
        """
        values, model = self._values(row), self._model
        self._check(values)
        name = row.name if isinstance(row, pd.Series) else None
        name = name.to_timestamp() if isinstance(name, pd.Period) else name
        time = name if isinstance(name, pd.Timestamp) else None
        missing = 0 if time is None else self._missing(time)
        before = self._past[-1] if len(self._past) else values
        complete = not np.isnan(np.where(np.isnan(values), before, values)).any()  # every column has had a value
        ready = complete and len(self._past) + missing + 1 >= model.window
        # Everything is checked before the row is taken: a call that fails changes nothing.
        known = [model.future(future, self._following(time))] if ready and model.encoder.known else []
        now = self._now(time)
        zone = None if model.pace is None else model.pace.zone
        ahead = Ahead(known, [] if now is None else wall_clock(in_zone(pd.DatetimeIndex([now]), zone)).tolist())
        for _ in range(missing):
            self._take(np.full_like(values, np.nan))
        self._take(values)
        self._time, self._step = self._after(now)
        self._forecast = model.forecast([torch.from_numpy(self._past)], ahead)[0] if ready else None
        return self._forecast

    def interval(self, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (horizon, channels) of the last forecast, as `Forecaster.predict_interval` does."""
        if self._forecast is None:
            raise ValueError(f"interval: there is no forecast yet, {len(self._past)} of {self._model.window} rows have come.")
        return self._model.bounds(self._forecast, coverage, [torch.from_numpy(self._past)])

    def _values(self, row: npt.ArrayLike | pd.Series) -> np.ndarray:
        columns, names = self._model.encoder.columns, self._model.columns
        if isinstance(row, pd.Series) and names is not None and list(row.index) != list(names):
            raise ValueError(f"row must hold the columns {list(names)}, in this order, got {list(row.index)}.")
        try:
            values = np.array(row, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"row must hold {columns} numbers, got {row!r}.") from None
        if values.shape != (columns,):
            raise ValueError(f"row must hold {columns} channels, got shape {values.shape}.")
        return values

    def _check(self, values: np.ndarray) -> None:
        """Refuse infinity, and NaN if nothing is to fill it."""
        bad = np.isinf(values) if self._model.missing == "interpolate" else ~np.isfinite(values)
        if bad.any():
            column, names = int(bad.argmax()), self._model.columns
            raise ValueError(
                f"row must be finite, but holds {values[column]} in column {column if names is None else names[column]!r}. "
                "Fill it, fit with missing='interpolate', or call restart() to begin anew after a gap."
            )

    def _after(self, time: pd.Timestamp | None) -> tuple[pd.Timestamp | None, Step | None]:
        """Return the time of the last row, and the step of times, once a row at `time` has come."""
        if time is None or self._time is None or self._step is not None:
            return time, self._step
        return time, step_of(pd.DatetimeIndex([self._time, time]), self._model.pace)

    def _now(self, time: pd.Timestamp | None) -> pd.Timestamp | None:
        """Return the time of a row: its own, or that which follows on the last one; None if neither is known."""
        if time is not None or self._time is None or self._step is None:
            return time
        return self._time + self._step

    def _following(self, time: pd.Timestamp | None) -> pd.DatetimeIndex | None:
        """Return the times of the rows ahead of one at `time`, if the step is known."""
        step = self._after(time)[1]
        return None if time is None or step is None else pd.date_range(time, periods=self._model.horizon + 1, freq=step)[1:]

    def _missing(self, time: pd.Timestamp) -> int:
        """Return how many rows are missing before one at `time`."""
        last, step = self._time, self._after(time)[1]
        if last is None or step is None:
            return 0
        count, following = 0, last + step
        while following < time and count < self._model.window:
            count, following = count + 1, following + step
        if following == time and (not count or self._model.missing == "interpolate"):
            return count
        what = f"its time does not follow in steps of {step}"
        if following <= time:
            what = f"{'at least ' * (following < time)}{count} rows are missing"
        raise ValueError(
            f"row: {time} came after {last}, and {what}. Pass the missing rows, fit with missing='interpolate' to fill gaps "
            "shorter than the window, or call restart() to begin anew."
        )

    def _take(self, values: np.ndarray) -> None:
        """Keep one more row, and fill the gaps that it ends."""
        window, absent = self._model.window, np.isnan(values)
        before = self._past[-1] if len(self._past) else np.full_like(values, np.nan)
        for c in np.flatnonzero(~absent & (self._age > 0)):
            gap = min(int(self._age[c]), len(self._past))
            first = values[c] if np.isnan(before[c]) else before[c]  # a column that begins with a gap has no earlier value
            part = np.arange(self._age[c] - gap + 1, self._age[c] + 1) / (self._age[c] + 1)
            self._past[-gap:, c] = first + part * (values[c] - first)
            self._held[-gap:, c] = False
        self._age = np.where(absent, self._age + 1, 0)
        self._past = np.concatenate([self._past, np.where(absent, before, values)[None]])[-window:]
        self._held = np.concatenate([self._held, absent[None]])[-window:]
        self.rows += 1


def _first_needed(rows: np.ndarray, window: int) -> int:
    """Return the row that a stream has to begin with: of rows before the last window, values before a gap matter."""
    first = max(len(rows) - window, 0)
    there = ~np.isnan(rows[: first + 1])
    last = first - there[::-1].argmax(axis=0)  # of each column, the last value there
    return int(np.where(there.any(axis=0), last, 0).min(initial=first))
