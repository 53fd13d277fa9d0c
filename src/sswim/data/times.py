"""Times of rows: read from text, checked for gaps, and continued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

__all__ = ["continue_index", "even_times", "index_breaks", "parse_times", "step_of"]


def parse_times(text: pd.Series, *, day_first: bool = False) -> pd.Series:
    """Return text as times; those whose offsets from UTC differ, as around a change of the clock, in UTC.

    Examples
    --------
    >>> parse_times(pd.Series(["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"])).diff().iloc[1]
    Timedelta('0 days 01:00:00')
    """
    try:
        return pd.to_datetime(text, dayfirst=day_first)
    except ValueError:
        if not text.astype(str).str.fullmatch(r".*\d(?:[+-]\d\d:?\d\d|Z)").all():
            raise
        return pd.to_datetime(text, dayfirst=day_first, utc=True)


def index_breaks(runs: Callable[[], Iterable[pd.Index | None]], name: str) -> list[int]:
    """Return the rows before which a time index jumps by something other than its usual step.

    Parameters
    ----------
    runs : function
        Returns the labels of all rows, run by run.
    name : str
        Name of the argument, for errors.
    """
    steps, total, frequency = Counter[pd.Timedelta](), 0, None
    for first, times, step in _steps(runs()):
        _check_increasing(first, times, step, lambda: sum(int(_back(s).sum()) for _, _, s in _steps(runs())), name)
        counts, total = step.value_counts(), total + len(step)
        steps.update(dict(zip(counts.index, counts.tolist(), strict=True)))
        # Months and business days are regular too, though their steps differ.
        if first == 0:
            frequency = _frequency(times) if len(times) > 2 else None
        elif frequency is not None and not times.equals(pd.date_range(times[0], periods=len(times), freq=frequency)):
            frequency = None
    if total < 2 or frequency is not None:
        return []
    usual = min(step for step, count in steps.items() if count == max(steps.values()))
    share = steps[usual] / total
    if share < 0.8:
        raise ValueError(
            f"{name}: times must have a usual step, but the commonest, {usual}, is that of {share:.0%} of all rows only. "
            "Resample the series first, as by `resample('1h').mean()`."
        )
    return [int(first + row) for first, _, step in _steps(runs()) for row in np.flatnonzero((step != usual).to_numpy()) + 1]


def _steps(runs: Iterable[pd.Index | None]) -> Iterable[tuple[int, pd.DatetimeIndex, pd.Series]]:
    """Yield each run of times with the last one of the run before, the row that it begins with, and the steps in it."""
    rows, last = 0, None
    for run in runs:
        if isinstance(run, pd.PeriodIndex):
            run = run.to_timestamp()
        if not isinstance(run, pd.DatetimeIndex):
            return
        times = run if last is None else pd.DatetimeIndex(last.append(run))
        yield rows - (last is not None), times, times.to_series().diff().iloc[1:]
        rows, last = rows + len(run), times[-1:]


def _back(steps: pd.Series) -> np.ndarray:
    """Return which steps do not lead ahead."""
    return (steps <= pd.Timedelta(0)).to_numpy()


def _check_increasing(first: int, times: pd.DatetimeIndex, steps: pd.Series, count: Callable[[], int], name: str) -> None:
    """Refuse times that do not increase. `count` returns how many of all times do not."""
    back = _back(steps)
    if not back.any():
        return
    row = int(back.argmax()) + 1
    remedy = "Sort the rows and drop duplicates; if several series are stacked, pass a list of them."
    if times.tz is None and times[row - 1] - times[row] <= pd.Timedelta("1h") and count() <= 2:
        remedy = "If clocks go back here, give times their zone (`tz_localize('Europe/Berlin', ambiguous='infer')`)."
    raise ValueError(f"{name}: times must increase, but row {first + row} ({times[row]}) does not. {remedy}")


def _frequency(index: pd.DatetimeIndex) -> pd.offsets.BaseOffset | None:
    """Return the offset between neighbours, which may be a month or a business day, or None if there is none."""
    return index.freq or pd.DatetimeIndex(index, freq="infer").freq


def step_of(index: pd.DatetimeIndex) -> pd.offsets.BaseOffset | pd.Timedelta:
    """Return what lies between neighbouring times of at least two."""
    return (_frequency(index) if len(index) > 2 else index.freq) or index[-1] - index[-2]


def even_times(index: pd.Index) -> pd.DatetimeIndex | None:
    """Return as many times from the first one of `index` on, at its commonest step; None if its labels are no times.

    Examples
    --------
    >>> with_gap = pd.date_range("2024-01-01", periods=4, freq="h").delete(2)
    >>> even_times(with_gap)[-1]
    Timestamp('2024-01-01 02:00:00')
    """
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return None
    frequency = _frequency(index) if len(index) > 2 else None
    usual = index.to_series().diff().mode().iloc[0] if frequency is None else frequency
    return pd.date_range(index[0], periods=len(index), freq=usual)


def continue_index(index: pd.Index | None, steps: int) -> pd.Index:
    """Return the labels of the `steps` rows that follow on `index`.

    Examples
    --------
    >>> continue_index(pd.date_range("2024-01-01", periods=3, freq="h"), 2)
    DatetimeIndex(['2024-01-01 03:00:00', '2024-01-01 04:00:00'], dtype='datetime64[us]', freq='h')
    >>> continue_index(pd.RangeIndex(5), 2)
    RangeIndex(start=5, stop=7, step=1)
    """
    if isinstance(index, pd.DatetimeIndex) and len(index) > 1:
        return pd.date_range(index[-1], periods=steps + 1, freq=step_of(index))[1:]
    if isinstance(index, pd.PeriodIndex):
        return pd.period_range(index[-1], periods=steps + 1)[1:]
    if index is not None and len(index) > 1 and pd.api.types.is_numeric_dtype(index):
        step = index[-1] - index[-2]
        if isinstance(step, (int, np.integer)):
            first = int(index[-1] + step)
            return pd.RangeIndex(first, first + steps * int(step), int(step))
        return pd.Index(index[-1] + step * np.arange(1, steps + 1))
    return pd.RangeIndex(1, steps + 1)
