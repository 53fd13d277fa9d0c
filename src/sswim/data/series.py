"""What users pass as a series, checked once and brought to one form."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sswim.data.calendar import RowTimes, row_times
from sswim.data.filled import FilledRows
from sswim.data.rows import MOST, Rows, RowSource, RunsOfRows, StoredRows
from sswim.data.stored import open_rows
from sswim.data.times import Pace, index_breaks, possible_times
from sswim.options import warn

__all__ = ["Breaks", "Series", "SeriesLike", "as_series", "find_columns", "is_several", "is_stored"]

One = npt.ArrayLike | pd.DataFrame | pd.Series | RowSource | Path
SeriesLike = One | Sequence[One]
Breaks = int | Sequence[int] | None
Columns = list[Hashable]
# Labels that are looked at at once.
LABELS = 1_000_000


@dataclass
class Series:
    """One or several gap-free segments of the same channels.

    Attributes
    ----------
    segments : list of arrays of shape (rows, channels), float64, or StoredRows
        ``segment[first:last]`` is an array either way.
    indexes : list of pandas.Index or None
        The rows' labels, where the user gave any. Of a stored series, those of the last rows of its last segment.
    columns : list or None
        The channels' names, where the user gave any.
    gaps : int
        How often a time index jumps.
    parts : list of int
        How many segments each of the series that were given has.
    zone : str or None
        The zone on whose clocks times are read. None: that of each segment.
    """

    segments: Sequence[Rows]
    indexes: Sequence[pd.Index | None]
    columns: Columns | None
    gaps: int = 0
    parts: list[int] = field(default_factory=lambda: [1])
    zone: str | None = None

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self.segments[0].shape[1]

    @property
    def names(self) -> tuple[Hashable, ...] | None:
        """The channels' names, where the user gave any."""
        return None if self.columns is None else tuple(self.columns)

    def labels(self, number: int, most: int | None = None) -> pd.Index | None:
        """Return the labels of all rows of a segment; of a stored one, those of its first `most` rows."""
        segment, index = self.segments[number], self.indexes[number]
        if isinstance(segment, np.ndarray):
            return index
        found = segment.source.index(segment.first, segment.last if most is None else min(segment.first + most, segment.last))
        return None if found is None else _labels(found, segment.name)

    def times(self) -> list[RowTimes] | None:
        """Return the times of all rows; None if some have none."""
        return row_times(self.segments, self.indexes, _labels, self.zone)

    def pace(self) -> Pace | None:
        """Return how times go on, in the longest segment; without a zone if segments differ in theirs."""
        longest = max(range(len(self.segments)), key=lambda n: len(self.segments[n]))
        labels = self.labels(longest, LABELS)
        found = None if labels is None else Pace.of(labels)
        zones = {str(getattr(index, "tz", None)) for index in self.indexes if index is not None}
        return replace(found, zone=None) if found is not None and len(zones) > 1 else found

    def rows(self, ranges: Sequence[tuple[int, int, int]] | None = None) -> Tensor | RunsOfRows:
        """Return all rows, or some given as (segment, first, last), joined: not read yet, if any segment is stored."""
        ranges = [(n, 0, len(segment)) for n, segment in enumerate(self.segments)] if ranges is None else ranges
        if any(isinstance(segment, StoredRows) for segment in self.segments):
            return RunsOfRows(self.segments, ranges)
        return torch.from_numpy(np.concatenate([self.segments[n][first:last] for n, first, last in ranges]))

    def check_length(self, window: int, horizon: int, windows: int) -> None:
        """Refuse series with fewer than three windows."""
        if windows >= 3:
            return
        total, count = sum(map(len, self.segments)), len(self.segments)
        parts = f" in {count} segments, split by gaps in the time index or breaks" if count > 1 else ""
        raise ValueError(
            f"series: too short. A window and its horizon take {window} + {horizon} rows, and at least 3 windows are needed, "
            f"but only {windows} fit into {total} rows{parts} (n_samples = {total}). Use a shorter window, horizon or stride, "
            "or more data."
        )

    def check_window(self, window: int, name: str) -> None:
        """Refuse a series whose last segment is shorter than a window."""
        rows, index = len(self.segments[-1]), self.indexes[-1]
        if rows < window:
            came = f"it has {rows}" if len(self.segments) == 1 else f"only {rows} follow the last gap"
            came += f", which ends at {index[0]}" if len(self.segments) > 1 and index is not None else ""
            raise ValueError(f"{name}: a forecast needs the last {window} rows (window) without a gap, but {came}.")

    def warn_of_gaps(self, window: int, horizon: int) -> None:
        """Warn if gaps in a time index cost more than a tenth of all windows."""
        rows, length = sum(map(len, self.segments)), window + horizon - 1
        used = sum(max(len(segment) - length, 0) for segment in self.segments)
        lost = 1 - used / max(rows - length, 1)
        if self.gaps and lost > 0.1:
            warn(
                f"series: {self.gaps} gaps in the time index split it into {len(self.segments)} segments, and {lost:.0%} of "
                "all windows would cross one: these are not used. To use them, insert the absent rows (`asfreq`) and pass "
                "missing='interpolate' (--missing interpolate).",
                stacklevel=4,
            )

    def check_channels(self, count: int, columns: Sequence[Hashable] | None, model: str) -> None:
        """Check that there are as many channels, of the same names, as a model was fitted to."""
        if self.channels != count:
            raise ValueError(
                f"X has {self.channels} features, but {model} is expecting {count} features as input: pass the same channels "
                "as to fit."
            )
        if self.columns is not None and columns is not None and self.columns != list(columns):
            came, was = next((a, b) for a, b in zip(self.columns, columns, strict=True) if a != b)
            raise ValueError(f"X: columns must be the same, in the same order, as in fit, but {came!r} came where {was!r} was.")


def as_series(data: SeriesLike, *, breaks: Breaks = None, missing: str = "error", name: str = "series") -> Series:
    """Check a series and cut it where it breaks.

    Parameters
    ----------
    data : DataFrame, pandas.Series, array of shape (rows, channels) or (rows,), or several of these in a list
        Or what `open_rows` opens: a series outside of memory. Its values are checked as they are read.
    breaks : int or sequence of int, optional
        Rows at which a new segment begins; a single number is the length of all segments.
    missing : {"error", "interpolate"}
        What to do about NaN.
    name : str
        Name of the argument, for errors.
    """
    if missing not in ("error", "interpolate"):
        raise ValueError(f"missing must be 'error' or 'interpolate', got {missing!r}.")
    parts = list(data) if is_several(data) else [data]  # type: ignore[arg-type]
    names = [f"{name}[{i}]" if len(parts) > 1 else name for i in range(len(parts))]
    frames = [_one(part, called, missing) for part, called in zip(parts, names, strict=True)]
    channels, columns = frames[0][0].shape[1], frames[0][2]
    for called, (values, _, other) in zip(names, frames, strict=True):
        if values.shape[1] != channels:
            raise ValueError(f"{called}: all series must have the same channels, got {values.shape[1]} after {channels}.")
        if other != columns:
            raise ValueError(
                f"{called}: all series must have the same column names in the same order, got {_shown(other)} after "
                f"{_shown(columns)}."
            )
    segments, indexes, gaps, counts = list[Rows](), list[pd.Index | None](), 0, list[int]()
    for called, (values, index, _) in zip(names, frames, strict=True):
        jumps = _jumps(values, index, called)
        gaps += len(jumps)
        cuts = sorted({*_given_breaks(breaks, len(values)), *jumps})
        for first, last in zip([0, *cuts], [*cuts, len(values)], strict=True):
            if isinstance(values, StoredRows):
                segments.append(values.cut(first, last))
                indexes.append(None)
            else:
                segments.append(values[first:last])
                indexes.append(None if index is None else index[first:last])
        if isinstance(values, StoredRows):
            labels = segments[-1].labels()  # type: ignore[union-attr]
            indexes[-1] = None if labels is None else _labels(labels, called)
        counts.append(len(cuts) + 1)
    return Series(segments, indexes, columns, gaps, counts)


def _jumps(values: Rows, index: pd.Index | None, name: str) -> Sequence[int]:
    """Return the rows before which the times of a series jump."""

    def stored() -> Iterator[pd.Index | None]:
        for first in range(0, len(values), LABELS):
            labels = values.source.index(first, min(first + LABELS, len(values)))  # type: ignore[union-attr]
            yield None if labels is None else _labels(labels, name)

    if len(values) < 2 or (index is None and not isinstance(values, StoredRows)):
        return []
    return index_breaks(stored if isinstance(values, StoredRows) else lambda: [index], name)


def with_gaps(data: object, name: str = "series") -> Rows:
    """Return the values (rows, channels) of one series, NaN where it has none."""
    return _one(data, name, "keep")[0]


def is_several(data: object) -> bool:
    """Return whether data holds several series: a list of frames, arrays or stored series, or a 3-d array."""
    if isinstance(data, (pd.DataFrame, pd.Series)):
        return False
    if isinstance(data, (list, tuple)):
        return any(isinstance(part, (pd.DataFrame, pd.Series)) or is_stored(part) or _dimensions(part) == 2 for part in data)
    return _dimensions(data) == 3 and (isinstance(data, np.memmap) or not is_stored(data))


def is_stored(data: object) -> bool:
    """Return whether data lies outside of memory, or is the path of what does."""
    known = isinstance(data, (str, Path, np.memmap, RowSource))
    return known or type(data).__module__.partition(".")[0] in ("zarr", "dask")


def _dimensions(data: object) -> int:
    """Return the number of dimensions of an array, or of lists in lists by their first entries: others may be longer."""
    if isinstance(data, (list, tuple)):
        return 1 + (_dimensions(data[0]) if data else 0)
    return int(getattr(data, "ndim", 0))


def find_columns(
    wanted: Sequence[Hashable], names: Sequence[Hashable] | None, columns: int, argument: str = "covariates"
) -> list[int]:
    """Return the numbers of columns that are given by name or number, in the order given.

    Examples
    --------
    >>> find_columns(["noon"], ["wind", "noon"], 2)
    [1]
    """
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise TypeError(f"{argument} must be a sequence of columns, such as ['hour'], got {wanted!r}.")
    found = []
    for c in wanted:
        number = list(names).index(c) if names is not None and c in names else c
        if not isinstance(number, (int, np.integer)) or not 0 <= number < columns:
            there = f"the columns are {names!r}" if names is not None else f"there are {columns} columns"
            raise ValueError(f"{argument}: {c!r} is not a column of the series; {there}.")
        found.append(int(number))
    if len(set(found)) < len(found) or len(found) == columns:
        raise ValueError(f"{argument}: must name different columns, and leave one to forecast, got {wanted!r}.")
    return found


def _shown(columns: Columns | None) -> str:
    """Return names of columns as text, some of them if there are many."""
    if columns is None:
        return "no names"
    return f"[{', '.join(map(repr, columns[:6]))}{', ...' * (len(columns) > 6)}]"


def _one(data: object, name: str, missing: str) -> tuple[Rows, pd.Index | None, Columns | None]:
    """Return the values, index and columns of one series, checked; those of a stored series are not read yet."""
    source = open_rows(data, name) if is_stored(data) else None
    if source is None:
        return _in_memory(data, name, missing)
    if not source.shape[0]:
        raise ValueError(f"{name}: holds no rows.")
    columns = None if source.columns is None else list(source.columns)
    source = FilledRows(source, name) if missing == "interpolate" else source
    return StoredRows(source, 0, source.shape[0], name), None, columns


def _in_memory(data: object, name: str, missing: str) -> tuple[np.ndarray, pd.Index | None, Columns | None]:
    """Return the values, index and columns of one series in memory."""
    index: pd.Index | None = None
    columns: Columns | None = None
    if isinstance(data, pd.Series):
        data = data.to_frame()
    if isinstance(data, pd.DataFrame):
        index, columns = _labels(data.index, name), list(data.columns)
        if data.columns.has_duplicates:
            raise ValueError(f"{name}: several columns are called {data.columns[data.columns.duplicated()][0]!r}. Rename them.")
        text = [c for c in data if not pd.api.types.is_numeric_dtype(data[c])]
        if text:
            raise TypeError(f"{name}: all columns must be numbers, but {text[0]!r} is of type {data[text[0]].dtype}.")
        values = data.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)  # torch wants it writable
    else:
        if hasattr(data, "toarray"):
            raise TypeError(f"{name}: sparse input is not supported, pass a dense array (`.toarray()`).")
        values = _numbers(data, name)
        if values.ndim == 1:
            values = values[:, None]
    if values.ndim != 2:
        raise ValueError(f"{name} must have the shape (rows, channels), got {values.shape}.")
    if values.shape[1] == 0:
        raise ValueError(f"{name} has 0 feature(s) (shape={values.shape}) while a minimum of 1 is required.")
    return _finite(values, columns, name, missing), index, columns


def _numbers(data: object, name: str) -> np.ndarray:
    """Return an array of float64 from what a user gave, other than a table."""
    if isinstance(data, Mapping):
        kinds = "a list of its values if these are series, or pandas.DataFrame(it) if these are columns"
        raise TypeError(f"{name} must be a table, an array, or a list of these, got a {type(data).__name__}: pass {kinds}.")
    if not hasattr(data, "__array__") and not isinstance(data, (Sequence, numbers.Real)):
        raise TypeError(f"{name} must be a table, an array, or a list of these, got {type(data).__name__}.")
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(data.astype(np.float64), np.nan)
    detached = getattr(data, "detach", None)  # a tensor, which may be part of a graph
    try:
        values = np.asarray(detached().cpu() if callable(detached) else data)
    except ValueError as error:  # numpy: an inhomogeneous shape
        raise ValueError(f"{name}: all rows must have equally many channels, but they have not. ({error})") from None
    if np.iscomplexobj(values):
        raise ValueError(f"{name}: Complex data not supported, got dtype {values.dtype}.")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must be numbers, got dtype {values.dtype}: {error}") from error


def _labels(index: pd.Index, name: str) -> pd.Index:
    """Return the labels of rows: times as such, whatever they came as, or numbers."""
    if isinstance(index, pd.MultiIndex):
        raise TypeError(
            f"{name}: rows must have one label each, a time or a number, but have {index.nlevels} ({list(index.names)}), as "
            "stacked series do. Pass a list of series, one for each."
        )
    if pd.api.types.is_numeric_dtype(index.dtype):
        return index
    if not isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)):
        shown = f"{index[0]!r}" if len(index) else index.dtype
        found = possible_times(index.to_series())
        if not found:
            raise TypeError(
                f"{name}: labels of rows must be times or numbers, but are of type {index.dtype}, such as {shown}. Set times "
                "as the index, or drop it (`reset_index(drop=True)`)."
            )
        if len(found) > 1:
            raise ValueError(
                f"{name}: labels of rows such as {shown} may begin with the day or with the month. Say which, by "
                "`pd.to_datetime(index, dayfirst=True)` or `dayfirst=False`."
            )
        index = pd.DatetimeIndex(found[0])
    if index.hasnans:
        raise ValueError(f"{name}: each row must have a time, but row {int(index.isna().argmax())} has none (NaT). Drop it.")
    return index


def _finite(values: np.ndarray, columns: Columns | None, name: str, missing: str) -> np.ndarray:
    """Refuse infinities; refuse NaN, interpolate over it, or keep it."""

    def where(bad: np.ndarray) -> str:
        row, channel = map(int, np.argwhere(bad)[0])
        label = columns[channel] if columns is not None else channel
        return f"{int(bad.sum())} of {bad.size} values, first in row {row}, channel {label!r}"

    infinite = np.isinf(values)
    if infinite.any():
        raise ValueError(f"{name} must be finite, but holds infinity ({where(infinite)}). Fix or drop these rows.")
    huge = np.abs(values) > MOST
    if huge.any():
        raise ValueError(f"{name} must lie between -{MOST:g} and {MOST:g}, but holds more ({where(huge)}). Use larger units.")
    absent = np.isnan(values)
    if not absent.any() or missing == "keep":
        return values
    if missing == "error":
        raise ValueError(
            f"{name} must be finite, but holds NaN ({where(absent)}). Fit with missing='interpolate' (`sswim fit --missing "
            "interpolate`) to fill gaps linearly in time, or fill or drop them yourself."
        )
    if absent.all(axis=0).any():
        channel = int(absent.all(axis=0).argmax())
        label = columns[channel] if columns is not None else channel
        raise ValueError(f"{name}: channel {label!r} has no values but NaN, so nothing can be interpolated. Drop it.")
    values = values.copy()
    rows = np.arange(len(values))
    for c in np.flatnonzero(absent.any(axis=0)):
        gap = absent[:, c]
        values[gap, c] = np.interp(rows[gap], rows[~gap], values[~gap, c])
    return values


def _given_breaks(breaks: Breaks, rows: int) -> Sequence[int]:
    """Return the rows at which the user wants a new segment to begin."""
    if breaks is None:
        return []
    given: Any = breaks.tolist() if isinstance(breaks, np.ndarray) else breaks
    several = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    cuts = list(given) if several else [given]
    if any(isinstance(b, bool) or not isinstance(b, numbers.Integral) for b in cuts):
        raise ValueError(f"breaks must be a whole number of rows >= 1 or a list of row numbers, got {breaks!r}.")
    if not several:
        if cuts[0] < 1:
            raise ValueError(f"breaks must be a whole number of rows >= 1 or a list of row numbers, got {breaks!r}.")
        return list(range(int(cuts[0]), rows, int(cuts[0])))
    if any(not 0 < b < rows for b in cuts):
        raise ValueError(f"breaks must be row numbers between 1 and {rows - 1}, got {list(cuts)!r}.")
    return [int(b) for b in cuts]
