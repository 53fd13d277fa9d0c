"""Series that lie elsewhere, on disk or in the chunks of another library: their rows are read in runs."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

__all__ = [
    "Chunked",
    "MemmapRows",
    "RowSource",
    "Rows",
    "RunsOfRows",
    "StoredRows",
    "Unread",
    "check_values",
    "find_runs",
    "read_windows",
]

# Larger values would overflow once they are squared.
MOST = 1e150
# Chunks are read together up to this many bytes, and pieces of this many bytes are kept.
PIECE, KEPT = 8_000_000, 64_000_000
# Statistics of a stored series are taken from runs of this many values.
RUN = 2_000_000
# Labels of a series' last rows that are kept, for the labels of a forecast follow from them.
LABELS = 10_000


class RowSource(ABC):
    """A series that lies elsewhere, whose rows are read in runs.

    It is sent to other processes, so it must be possible to pickle it: as a path, not as data. Several threads read at once.
    Derive from it to fit a series from a place of your own.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""

    @abstractmethod
    def read(self, first: int, last: int) -> np.ndarray:
        """Return the rows ``[first, last)`` as an array (rows, channels), float64."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row before its values were put side by side: (height, width) of images, for example."""
        return self.shape[1:]

    @property
    def columns(self) -> tuple[Hashable, ...] | None:
        """The channels' names, if they have any."""
        return None

    def index(self, first: int, last: int) -> pd.Index | None:
        """Return the labels of the rows ``[first, last)``, if they have any."""
        return None


class MemmapRows(RowSource):
    """The rows of an array in a file. It is mapped for each read alone: pages that stay mapped count as memory."""

    def __init__(self, file: str, dtype: np.dtype, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self._file, self._dtype, self._offset, self._shape, self._strides = file, dtype, offset, shape, strides

    @classmethod
    def of(cls, array: np.memmap) -> MemmapRows | None:
        """Return the rows of a map; None if it is not one of a file that could be opened again."""
        whole: np.ndarray = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if not isinstance(whole, np.memmap) or array.filename is None or array.mode == "c":
            return None
        # A slice of a map still has the offset of the whole.
        offset = whole.offset + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return cls(os.fspath(array.filename), array.dtype, offset, array.shape, array.strides)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return self._shape[0], math.prod(self._shape[1:])

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row in the file."""
        return self._shape[1:]

    def read(self, first: int, last: int) -> np.ndarray:
        """Return some rows."""
        try:
            file = np.memmap(self._file, np.uint8, mode="r")
            rows = np.ndarray(self._shape, self._dtype, file, self._offset, self._strides)[first:last]
        except (OSError, TypeError, ValueError) as error:
            raise type(error)(f"{self._file}: cannot be read any more. ({error})") from None
        return rows.reshape(last - first, self.shape[1]).astype(np.float64)


class Chunked(RowSource):
    """A source that is stored in chunks of whole rows, and decoded chunk by chunk: the last ones are kept.

    Parameters
    ----------
    lengths : sequence of int
        Number of rows of each chunk.
    each : int
        Bytes of a row.
    """

    def __init__(self, lengths: Sequence[int], each: int) -> None:
        ends, pieces = np.cumsum([0, *lengths]), [0]
        for end, following in zip(ends[1:], [*ends[2:], None], strict=True):
            if following is None or (following - pieces[-1]) * each > PIECE:
                pieces.append(int(end))
        self._ends, self._kept_pieces, self._lock = np.array(pieces), OrderedDict[int, np.ndarray](), threading.Lock()

    @abstractmethod
    def load(self, first: int, last: int) -> np.ndarray:
        """Return the rows ``[first, last)`` of some whole chunks, in the type that they are stored in."""

    def read(self, first: int, last: int) -> np.ndarray:
        """Return some rows."""
        found = np.empty((last - first, self.shape[1]))
        low, high = np.searchsorted(self._ends, first, side="right") - 1, np.searchsorted(self._ends, last)
        for piece in range(low, high) if last > first else ():
            begin, end = int(self._ends[piece]), int(self._ends[piece + 1])
            a, b = max(first, begin), min(last, end)
            found[a - first : b - first] = self._piece(piece)[a - begin : b - begin]
        return found

    def _piece(self, number: int) -> np.ndarray:
        """Return the rows of some neighbouring chunks."""
        kept = self._kept_pieces
        with self._lock:  # else two threads would decode the same chunk
            if number in kept:
                kept.move_to_end(number)
                return kept[number]
            kept[number] = self.load(int(self._ends[number]), int(self._ends[number + 1]))
            while len(kept) > 1 and sum(piece.nbytes for piece in kept.values()) > KEPT:
                kept.popitem(last=False)
            return kept[number]


@dataclass(frozen=True)
class StoredRows:
    """Some neighbouring rows of a source. Values are checked as they are read: ``rows[first:last]`` is an array.

    Attributes
    ----------
    source : RowSource
    first, last : int
        Where they begin and end in the source.
    name : str
        Name of the argument, for errors.
    """

    source: RowSource
    first: int
    last: int
    name: str = "series"

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return len(self), self.source.shape[1]

    def cut(self, first: int, last: int) -> StoredRows:
        """Return the rows ``[first, last)`` of these, without reading them."""
        return replace(self, first=self.first + first, last=self.first + last)

    def __getitem__(self, part: slice) -> np.ndarray:
        first, last, _ = part.indices(len(self))
        first, last = self.first + first, self.first + max(first, last)
        values = np.asarray(self.source.read(first, last), dtype=np.float64)
        if values.shape != (last - first, self.source.shape[1]):
            shape = (last - first, self.source.shape[1])
            raise ValueError(f"{self.name}: its rows {first} to {last} must have the shape {shape}, got {values.shape}.")
        check_values(values, first, self.source.columns, self.name)
        return values

    def labels(self) -> pd.Index | None:
        """Return the labels of the last rows."""
        return self.source.index(max(self.first, self.last - LABELS), self.last)


class Following(RowSource):
    """Rows in memory, and the stored rows that follow on them."""

    def __init__(self, before: np.ndarray, rows: StoredRows) -> None:
        self.before, self.rows = before, rows

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return len(self.before) + len(self.rows), self.before.shape[1]

    @property
    def columns(self) -> tuple[Hashable, ...] | None:
        """The channels' names, if they have any."""
        return self.rows.source.columns

    def read(self, first: int, last: int) -> np.ndarray:
        """Return some rows."""
        begin = len(self.before)
        return np.concatenate([self.before[first:last], self.rows[max(first - begin, 0) : max(last - begin, 0)]])


# Both have a length and a shape, and `rows[first:last]` is an array.
Rows = np.ndarray | StoredRows


def after(before: np.ndarray, rows: Rows) -> Rows:
    """Return rows that follow on others, as one segment."""
    if isinstance(rows, np.ndarray):
        return np.concatenate([before, rows])
    source = Following(before, rows)
    return StoredRows(source, 0, source.shape[0], rows.name)


@dataclass(frozen=True)
class Unread:
    """A segment of a series that is read and scaled as windows of it are asked for.

    Attributes
    ----------
    rows : array of shape (rows, columns), or StoredRows
    trim : bool
        Whether outliers are brought back to the usual range, as in a fit.
    most : int
        Number of rows to read at once.
    """

    rows: Rows
    trim: bool
    most: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, first: int, last: int) -> Unread:
        """Return the rows ``[first, last)``, still not read."""
        rows = self.rows.cut(first, last) if isinstance(self.rows, StoredRows) else self.rows[first:last]
        return replace(self, rows=rows)


def check_values(values: np.ndarray, first: int, columns: Sequence[Hashable] | None, name: str, most: float = MOST) -> None:
    """Refuse stored values (rows, channels) that are not finite or too large; `first` is the number of their first row."""
    if not values.size or (values.min() >= -most and values.max() <= most):  # false for NaN, too
        return
    bad = ~(np.abs(values) <= most)
    row, channel = map(int, np.argwhere(bad)[0])
    value, label = values[row, channel], channel if columns is None else columns[channel]
    where = f"{value:g} in row {first + row}, channel {label!r}"
    if np.isfinite(value):
        raise ValueError(f"{name} must lie between -{most:g} and {most:g}, but holds {where}. Use larger units.")
    fill = "Pass missing='interpolate' to a forecaster, or fill" if np.isnan(value) else "Fill"
    raise ValueError(f"{name} must be finite, but holds {where}. {fill} or drop such rows before they are stored.")


def find_runs(lengths: Sequence[int], starts: Tensor, span: int) -> tuple[list[tuple[int, int, int]], Tensor]:
    """Return the rows that windows of `span` rows need, in as few runs as possible, and where windows begin in all runs joined.

    Rows between two windows are read too if they are fewer than `span`.

    Parameters
    ----------
    lengths : sequence of int
        Rows of each segment; no run crosses from one into the next.
    starts : Tensor of shape (windows,)
        First rows of windows, counted over all segments.

    Returns
    -------
    list of (segment, first, last)
    Tensor of shape (windows,)

    Examples
    --------
    >>> find_runs([20, 9], torch.tensor([11, 0, 1, 20]), span=3)
    ([(0, 0, 4), (0, 11, 14), (1, 0, 3)], tensor([4, 0, 1, 7]))
    """
    ends, order = np.cumsum(lengths), np.unique(starts.numpy())
    if not len(order):
        return [], starts
    segment = np.searchsorted(ends, order, side="right")
    new = np.flatnonzero(np.concatenate([[True], (np.diff(order) >= 2 * span) | (np.diff(segment) > 0)]))
    first, last = order[new], order[np.append(new[1:], len(order)) - 1] + span
    before = np.concatenate([[0], ends])[segment[new]]
    shift = np.concatenate([[0], np.cumsum(last - first)[:-1]]) - first
    run = np.searchsorted(first, starts.numpy(), side="right") - 1
    runs = zip(segment[new].tolist(), (first - before).tolist(), (last - before).tolist(), strict=True)
    return list(runs), starts + torch.from_numpy(shift[run])


def read_windows(segments: Sequence[Rows], starts: Tensor, span: int) -> Tensor:
    """Return the rows (windows, span, channels) of windows that begin at `starts`, counted over all segments."""
    runs, starts = find_runs([len(segment) for segment in segments], starts, span)
    rows = torch.from_numpy(np.concatenate([segments[n][first:last] for n, first, last in runs]))
    return rows[starts[:, None] + torch.arange(span)]


@dataclass(frozen=True)
class RunsOfRows:
    """Rows of some segments, joined. They are read as slices of them are asked for.

    Attributes
    ----------
    segments : list of arrays or StoredRows
    ranges : list of (segment, first, last)
    """

    segments: Sequence[Rows]
    ranges: Sequence[tuple[int, int, int]]

    def __len__(self) -> int:
        return sum(last - first for _, first, last in self.ranges)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), self.segments[0].shape[1]

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([0, *(last - first for _, first, last in self.ranges)])

    def __getitem__(self, part: slice) -> Tensor:
        """Read the rows of a slice."""
        begin, end, _ = part.indices(len(self))
        low, high = int(np.searchsorted(self._ends, begin, side="right")) - 1, int(np.searchsorted(self._ends, end))
        parts = []
        for (number, first, last), start in zip(self.ranges[low:high], self._ends[low:high].tolist(), strict=True):
            parts.append(self.segments[number][first + max(begin - start, 0) : min(last, first + end - start)])
        return torch.from_numpy(np.concatenate(parts))
