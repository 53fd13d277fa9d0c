r"""The calendar: where a row lies in the day, the week and the year, as clock neurons tell it.

People and the sun keep hours. A window of some rows does not tell which day of the week it ends on, nor what the same hour was
like on all earlier Mondays; its times do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sswim.data.rows import Following, Rows, StoredRows
from sswim.data.times import in_zone, step_of
from sswim.options import check_integer

__all__ = ["Calendar", "RowTimes", "WindowEnds", "row_times", "wall_clock"]

DAY = 86_400
WEEK, YEAR = 7 * DAY, round(365.2425 * DAY)
# Waves in a week: its own, those of a day, and their sidebands, by which days of the week have other shapes of the day.
WEEKLY, YEARLY = (1, 2, 3, 6, 7, 8, 13, 14, 15, 21, 28), (1, 2, 3)
# How many days, weeks and years a series must hold before forecasts may depend on the time of one.
DAYS, WEEKS, YEARS = 3, 3, 2
# Clock neurons of a week, at most: one every five minutes. A year has one for each day.
NEURONS = 2016

Labels = Callable[[int, int], pd.Index | None]
WindowEnds = Callable[[Tensor], Tensor]  # times of the last rows of windows (n,), in seconds, by the windows' numbers


@dataclass(frozen=True)
class Calendar:
    r"""Clock neurons, and the waves through which the output reads them.

    A clock of the week has one neuron for each time of the week that rows have, and one of the year has one for each day. At a
    row, one neuron of each clock fires. The output's weight of neuron `n` of `N` is a sum of few waves

    .. math:: \sum_k a_k \cos(2 \pi k n / N) + b_k \sin(2 \pi k n / N) ,

    so that neighbouring times have similar weights. Not in the paper.

    Parameters
    ----------
    neurons : int
        Number of neurons of the clock of the week.
    week, year : tuple of int
        Waves `k` in a week and in a year. None of a year: there is no such clock.

    Examples
    --------
    >>> hourly = Calendar.of_step(3600, 30 * 24)
    >>> hourly.neurons, hourly.features
    (168, 22)
    >>> monday = int(pd.Timestamp("2024-01-01 12:00").timestamp())
    >>> code = hourly(torch.tensor([monday, monday + 7 * 86400, monday + 86400]))
    >>> bool(torch.equal(code[0], code[1])), bool(torch.equal(code[0], code[2]))
    (True, False)
    """

    neurons: int
    week: tuple[int, ...]
    year: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if check_integer("neurons", self.neurons, 1) > NEURONS:
            raise ValueError(f"neurons: a week has at most {NEURONS:,} of them, got {self.neurons:,}.")
        for name, waves, known in (("week", self.week, WEEKLY), ("year", self.year, YEARLY)):
            if not set(waves) <= set(known) or len(set(waves)) < len(waves):
                raise ValueError(f"{name}: waves must be some of {known}, each once, got {waves}.")

    @classmethod
    def of_step(cls, step: float, rows: int) -> Calendar | None:
        """Return the calendar of a series of rows that lie `step` seconds apart; None if no cycle is within reach."""
        span = step * rows
        waves = WEEKLY if span >= WEEKS * WEEK else [k for k in WEEKLY if k % 7 == 0] if span >= DAYS * DAY else []
        week = tuple(k for k in waves if 2 * k * step < WEEK)  # a wave has more than two rows
        year = tuple(k for k in YEARLY if 2 * k * step < YEAR) if span >= YEARS * YEAR else ()
        neurons = max(1, min(NEURONS, round(WEEK / step)))
        return cls(neurons, week, year) if week or year else None

    @classmethod
    def of(cls, times: Sequence[RowTimes], rows: Sequence[int]) -> Calendar | None:
        """Return the calendar of a series with segments of some rows; None if no cycle is within reach."""
        longest = int(np.argmax(rows))
        step = times[longest].seconds
        return cls.of_step(step, sum(rows)) if step > 0 else None

    @property
    def features(self) -> int:
        """Number of waves, cosines and sines."""
        return 2 * (len(self.week) + len(self.year))

    @property
    def clocks(self) -> list[int]:
        """Number of neurons of each clock."""
        return [self.neurons] * bool(self.week) + [math.ceil(YEAR / DAY)] * bool(self.year)

    @cached_property
    def waves(self) -> list[Tensor]:
        """Waves at each neuron of each clock: (neurons, waves) each, cosines first, float64."""
        cycles = [(self.week, float(self.neurons))] * bool(self.week) + [(self.year, YEAR / DAY)] * bool(self.year)
        found = []
        for neurons, (waves, length) in zip(self.clocks, cycles, strict=True):
            turns = torch.arange(neurons)[:, None] * torch.tensor(waves)
            angle = 2 * math.pi / length * turns.double()
            found.append(torch.cat([angle.cos(), angle.sin()], dim=1))
        return found

    def firing(self, times: Tensor) -> list[Tensor]:
        """Return the neuron of each clock that fires at times (n,), in whole seconds: (n,) each."""
        week = torch.div(times.remainder(WEEK) * self.neurons, WEEK, rounding_mode="floor")
        year = torch.div(times.remainder(YEAR), DAY, rounding_mode="floor")
        return [week] * bool(self.week) + [year] * bool(self.year)

    def __call__(self, times: Tensor) -> Tensor:
        """Return the waves (n, features), float64, at times (n,): wall-clock time in whole seconds since 1970."""
        return torch.cat([table[n] for table, n in zip(self.waves, self.firing(times), strict=True)], dim=1)


@dataclass(frozen=True, eq=False)
class RowTimes:
    """Times of the rows of a segment, by few numbers if they are regular.

    Attributes
    ----------
    first : pandas.Timestamp
    step : pandas.Timedelta or None
        None if steps differ, as those of months and business days do.
    wall : array of shape (rows,), int64
        Wall-clock times in seconds, if steps differ.
    missing : int
        Rows at the beginning of the segment that are before `first`.
    """

    first: pd.Timestamp
    step: pd.Timedelta | None
    wall: np.ndarray
    missing: int = 0

    @classmethod
    def of(cls, labels: Labels, rows: int, missing: int = 0) -> RowTimes | None:
        """Return the times of a segment; None if it has none.

        Parameters
        ----------
        labels : callable
            Returns the labels of the rows ``[first, last)`` of `rows` rows, without the `missing` ones before them.
        """
        begin, end = _times(labels(0, 2)), _times(labels(rows - 1, rows))
        if begin is None or end is None:
            return None
        step = begin[-1] - begin[0]
        if end[-1] == begin[0] + (rows - 1) * step:
            return cls(begin[0], step, np.zeros(0, dtype=np.int64), missing)
        every = _times(labels(0, rows))
        assert every is not None
        if missing:
            before = pd.date_range(end=every[0], periods=missing + 1, freq=step_of(every))[:-1]
            every = pd.DatetimeIndex(before.append(every))
        return cls(every[0], None, wall_clock(every))

    @property
    def seconds(self) -> float:
        """Seconds from one row to the next; the least, if steps differ: a day for business days."""
        if self.step is not None:
            return self.step.total_seconds()
        return float(np.diff(self.wall).min())

    def at(self, rows: np.ndarray) -> np.ndarray:
        """Return wall-clock times in seconds of some rows of the segment, which may lie beyond its end if it is regular."""
        if self.step is None:
            return self.wall[rows]
        since = pd.to_timedelta((rows - self.missing) * self.step.as_unit("ns").value, unit="ns")
        return wall_clock(pd.DatetimeIndex(self.first + since))


def row_times(
    segments: Sequence[Rows],
    indexes: Sequence[pd.Index | None],
    read: Callable[[pd.Index, str], pd.Index],
    zone: str | None = None,
) -> list[RowTimes] | None:
    """Return the times of all segments, by their labels; None if some have none.

    `read` brings stored labels to their form. Clocks are those of the `zone`, if there is one.
    """
    found = []
    for segment, index in zip(segments, indexes, strict=True):
        rows: StoredRows | pd.Index | None = index
        if isinstance(segment, StoredRows):
            rows = segment.source.rows if isinstance(segment.source, Following) else segment
        times = None if rows is None else RowTimes.of(partial(_labels, rows, read, zone), len(rows), len(segment) - len(rows))
        if times is None:
            return None
        found.append(times)
    return found


def _labels(
    rows: StoredRows | pd.Index, read: Callable[[pd.Index, str], pd.Index], zone: str | None, first: int, last: int
) -> pd.Index | None:
    """Return the labels of the rows ``[first, last)``, times in a zone."""
    if isinstance(rows, pd.Index):
        found: pd.Index | None = rows[first:last]
    else:
        found = rows.source.index(rows.first + first, min(rows.first + last, rows.last))
        found = None if found is None else read(found, rows.name)
    return in_zone(found, zone) if isinstance(found, pd.DatetimeIndex) else found


def _times(index: pd.Index | None) -> pd.DatetimeIndex | None:
    times = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
    return times if isinstance(times, pd.DatetimeIndex) and len(times) else None


def wall_clock(times: pd.DatetimeIndex) -> np.ndarray:
    """Return what clocks show at some times, in seconds since 1970."""
    return times.tz_localize(None).as_unit("s").asi8
