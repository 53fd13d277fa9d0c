"""Times of rows: read from text, checked for gaps, and continued."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

__all__ = ["Pace", "continue_index", "even_times", "in_zone", "index_breaks", "parse_times", "possible_times", "step_of"]

Step = pd.offsets.BaseOffset | pd.Timedelta
# Days and months, in either order, and a year.
EITHER = re.compile(r"\s*(\d{1,2})[/.-](\d{1,2})[/.-](\d{4}|\d{2})\b")
# Last rows whose steps are compared with those of a fit.
COMPARED = 64


@dataclass(frozen=True)
class Pace:
    """How the times of a series go on: by which step, and on which clock.

    Few rows do not tell: four weekdays look like days, and a day around a change of the clock is longer than others.

    Attributes
    ----------
    step : str
        From one row to the next, as pandas writes it: an hour, a business day, the end of a month.
    zone : str or None
        Their zone. None: they have none, or several.

    Examples
    --------
    >>> weekdays = pd.bdate_range("2024-01-01", periods=20)
    >>> pace = Pace.of(weekdays)
    >>> pace
    Pace(step='B', zone=None)
    >>> continue_index(weekdays[:5], 1, pace)[0].day_name()
    'Monday'
    """

    step: str
    zone: str | None = None

    def __post_init__(self) -> None:
        try:
            forward = pd.Timestamp("2024-01-01") + self.offset > pd.Timestamp("2024-01-01")
            pd.Timestamp("2024-01-01", tz=self.zone)
        except Exception as error:  # of pandas, zoneinfo and pytz
            raise ValueError(f"step and zone of times must be known to pandas, got {self.step!r}, {self.zone!r}.") from error
        if not forward:
            raise ValueError(f"step of times must lead ahead, got {self.step!r}.")

    @property
    def offset(self) -> pd.offsets.BaseOffset:
        """The step."""
        return to_offset(self.step)

    @classmethod
    def of(cls, index: pd.Index) -> Self | None:
        """Return the pace of a series; None if its labels are no times, or one only."""
        index = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
        if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
            return None
        try:
            return cls(to_offset(_commonest(index)).freqstr, None if index.tz is None else str(index.tz))
        except ValueError:  # a zone that has no name
            return None


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


def possible_times(text: pd.Series) -> list[pd.Series]:
    """Return the times that text may stand for: none if it is none, two if days and months could be exchanged.

    With dots days come first. Else the reading in which rows follow each other in equal steps is taken, if there is one.

    Examples
    --------
    >>> [times.dt.month.tolist() for times in possible_times(pd.Series(["05/06/2024", "06/06/2024", "07/06/2024"]))]
    [[6, 6, 6]]
    >>> len(possible_times(pd.Series(["05/06/2024"]))), len(possible_times(pd.Series(["no time"])))
    (2, 0)
    """
    either = EITHER.match(text.iloc[0]) if len(text) and isinstance(text.iloc[0], str) else None
    ways = (False,) if either is None else (True,) if "." in either[0] else (False, True)
    found: list[pd.Series] = []
    for day_first in ways:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the format is unknown: it may be no time at all
                parsed = parse_times(text, day_first=day_first)
        except (ValueError, TypeError):
            continue
        if not any(parsed.equals(other) for other in found):
            found.append(parsed)
    regular = [times for times in found if _regular(times)]
    return regular if len(regular) == 1 else found


def _regular(times: pd.Series) -> bool:
    """Return whether times follow each other in equal steps."""
    steps = times.diff().iloc[1:]
    return len(steps) > 1 and steps.nunique() == 1 and bool(steps.iloc[0] > pd.Timedelta(0))


def in_zone(times: pd.DatetimeIndex, zone: str | None) -> pd.DatetimeIndex:
    """Return times in a zone, if they have one and that is known."""
    return times if times.tz is None or zone is None else times.tz_convert(zone)


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
            "Resample the series first, as by `resample('1h').mean()`. Of months or business days, insert the absent rows, as "
            "by `asfreq('MS')` or `asfreq('B')`, and pass missing='interpolate' (--missing interpolate)."
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
        step = times.to_series().diff().iloc[1:]
        if times.tz is not None:  # a day is a day, though some have an hour more or less
            wall = times.tz_localize(None).to_series().diff().iloc[1:].set_axis(step.index)
            step = step.mask((wall > pd.Timedelta(0)) & (wall.dt.total_seconds() % 86_400 == 0), wall)
        yield rows - (last is not None), times, step
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


def _commonest(index: pd.DatetimeIndex) -> Step:
    """Return the step of at least two times: the commonest one if they differ."""
    return (_frequency(index) if len(index) > 2 else index.freq) or index.to_series().diff().mode().iloc[0]


def _goes_by(index: pd.DatetimeIndex, step: Step) -> bool:
    """Return whether the last ones of some times follow each other by a step."""
    last = index[-COMPARED:]
    expected = pd.date_range(last[0], periods=len(last), freq=step)
    return len(expected) == len(last) and bool((expected == last).all())


def step_of(index: pd.DatetimeIndex, pace: Pace | None = None) -> Step:
    """Return what lies between neighbouring times: the step of a `pace`, if they go by it, or what two of them tell."""
    if pace is not None and (len(index) < 2 or _goes_by(index, pace.offset)):
        return pace.offset
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
    return pd.date_range(index[0], periods=len(index), freq=_commonest(index))


def continue_index(index: pd.Index | None, steps: int, pace: Pace | None = None) -> pd.Index:
    """Return the labels of the `steps` rows that follow on `index`; `pace` is that of the series it belongs to, if known.

    Examples
    --------
    >>> continue_index(pd.date_range("2024-01-01", periods=3, freq="h"), 2)
    DatetimeIndex(['2024-01-01 03:00:00', '2024-01-01 04:00:00'], dtype='datetime64[us]', freq='h')
    >>> continue_index(pd.RangeIndex(5), 2)
    RangeIndex(start=5, stop=7, step=1)
    """
    if isinstance(index, pd.DatetimeIndex) and (len(index) > 1 or (pace is not None and len(index))):
        step = step_of(index, pace)
        following = pd.date_range(index[-1], periods=steps + 1, freq=step)
        # A lone time between two ends of months, say: the first step leads to the end of its own.
        return following[1:] if following[0] == index[-1] else following[:-1]
    if isinstance(index, pd.PeriodIndex):
        return pd.period_range(index[-1], periods=steps + 1)[1:]
    if index is not None and len(index) > 1 and pd.api.types.is_integer_dtype(index):
        number, by = int(index[-1]), int(index[-1]) - int(index[-2])
        if by:
            return pd.RangeIndex(number + by, number + by * (steps + 1), by)
    elif index is not None and len(index) > 1 and pd.api.types.is_float_dtype(index):
        last, distance = float(index[-1]), float(index[-1] - index[-2])
        if np.isfinite(last) and np.isfinite(distance) and distance:
            return pd.Index(last + distance * np.arange(1, steps + 1))
    return pd.RangeIndex(1, steps + 1)
