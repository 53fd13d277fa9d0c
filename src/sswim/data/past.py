"""Where a series that a model was fitted to ended, so that new rows can follow on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd

from sswim.data.encoder import SeriesEncoder
from sswim.data.series import Series
from sswim.data.times import Pace, continue_index, in_zone, parse_times, step_of
from sswim.data.windows import SeriesWindows

__all__ = ["SeriesPast", "cut_windows"]

# Labels that are kept.
LABELS = 4


@dataclass(frozen=True)
class SeriesPast:
    """The end of a series, and how many of its windows were seen.

    Attributes
    ----------
    rows : array of shape (rows, columns)
        The last rows, as far as windows of new rows need them.
    labels : tuple of str
        The last rows' times, if they have any.
    seen : int
        Number of windows so far.
    period, kept : int
        Of every `period` windows, the first `kept` are for training, and the others for validation, in a fit with such a part.
    stride : int
        Distance between the first rows of neighbouring windows.
    """

    rows: np.ndarray
    labels: tuple[str, ...]
    seen: int
    period: int
    kept: int
    stride: int = 1

    @classmethod
    def nothing(cls, columns: int, period: int, kept: int, stride: int) -> Self:
        """Return the past of a series that begins."""
        return cls(np.zeros((0, columns)), (), 0, period, kept, stride)

    def forgotten(self) -> SeriesPast:
        """Return the past of another series that begins."""
        return replace(self, rows=self.rows[:0], labels=(), seen=0)

    def windows(self, rows: int, span: int) -> int:
        """Return the number of windows in a segment of `rows` rows, if each takes `span` rows with its horizon."""
        return max(-(-(rows - span + 1) // self.stride), 0)

    def held_out(self, windows: int) -> np.ndarray:
        """Return which of the windows that come next are for validation."""
        return (self.seen + np.arange(windows)) % self.period >= self.kept

    def _known(self, pace: Pace | None) -> pd.DatetimeIndex:
        """Return the last rows' times, in the zone of the fit."""
        return in_zone(pd.DatetimeIndex(parse_times(pd.Series(self.labels))), None if pace is None else pace.zone)

    def follows(self, index: pd.Index | None, pace: Pace | None) -> bool:
        """Return whether new rows follow right on the last ones; refuse rows that came before, or with another step."""
        times = _times(index)
        if times is None or not self.labels:
            return True
        before, times = self._known(pace), in_zone(times, None if pace is None else pace.zone)
        if (before.tz is None) != (times.tz is None):
            raise ValueError(f"series: times must have a zone if those of the fit had one, which ended at {before[-1]}.")
        if times[0] <= before[-1]:
            raise ValueError(
                f"series: rows up to {before[-1]} are known already, but these begin at {times[0]}, and would count twice. "
                "Pass the rows after that time."
            )
        if len(times) > 1 and len(before) > 1:
            was, now = step_of(before, pace), step_of(times, pace)
            if was != now and pd.Timedelta(before[-1] - before[-2]) != pd.Timedelta(times[1] - times[0]):
                raise ValueError(f"series: rows must have the step of the fit, {was}, got {now}. Resample them.")
        return bool(times[0] == continue_index(before, 1, pace)[0])

    def before(self, index: pd.Index | None, rows: int, pace: Pace | None) -> pd.Index | None:
        """Return the labels of new rows that follow right on the last ones, with those of these. Those without go on."""
        times, count = _times(index), min(len(self.labels), len(self.rows))
        if not count or (times is None and len(self.labels) < 2):
            return index
        if times is None:
            times = pd.DatetimeIndex(continue_index(self._known(pace), rows, pace))
        known = self._known(pace)[-count:]
        return (known if times.tz is None else known.tz_convert(times.tz)).append(times)

    def after(self, series: Series, counts: Sequence[int], span: int) -> SeriesPast:
        """Return where a series ends whose first segment begins with the rows of this one; `counts` of windows are new."""
        last = series.segments[-1]
        rows = last[self.windows(len(last), span) * self.stride :]
        times = _times(series.indexes[-1])
        labels = () if times is None else tuple(time.isoformat() for time in times[-LABELS:])
        if labels and len(series.segments) == 1:
            labels = (*self.labels, *labels)[-LABELS:]
        return replace(self, rows=rows.copy(), labels=labels, seen=self.seen + sum(counts))


def cut_windows(
    encoder: SeriesEncoder, series: Series, past: SeriesPast, window: int, horizon: int, memory: int
) -> tuple[SeriesWindows, SeriesPast]:
    """Return the windows of a series that follows on what is past, without outliers, and where it ends; `memory` in bytes."""
    segments = encoder.segments(series.segments, memory, trim=True)
    times = None if encoder.calendar is None else series.times()
    samples = SeriesWindows(encoder, segments, window, horizon, past.stride, times)
    counts = [past.windows(len(segment), window + horizon) for segment in series.segments]
    ends = np.cumsum([0, *series.parts])
    samples.recordings = [sum(counts[a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    return samples, past.after(series, counts, window + horizon)


def _times(index: pd.Index | None) -> pd.DatetimeIndex | None:
    """Return the times of rows, if they have any."""
    times = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
    return times if isinstance(times, pd.DatetimeIndex) and len(times) else None
