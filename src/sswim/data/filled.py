"""Stored series with gaps, which are filled linearly in time as rows are read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
import pandas as pd

from sswim.data.rows import RowSource, check_values

__all__ = ["FilledRows"]

# Rows that are read at once in search of the values around a gap, if a row has few columns, and how many values that are then.
BLOCK, VALUES = 4096, 500_000
# Blocks without values of some column that are remembered, at most.
REMEMBERED = 10_000


class FilledRows(RowSource):
    """Rows of a source in which NaN is replaced by linear interpolation between the values before and after it.

    Before the first value of a column there is the first, and after the last value the last. The values around a gap that goes
    beyond the rows asked for are searched block by block, however long it is. Memory does not grow with its length.

    Parameters
    ----------
    source : RowSource
    name : str
        Name of the argument, for errors.

    Examples
    --------
    >>> import tempfile
    >>> from sswim.data import open_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/load.npy", np.array([1.0, np.nan, np.nan, 4.0, np.nan]))
    ...     FilledRows(open_rows(f"{folder}/load.npy")).read(1, 5)[:, 0].tolist()
    [2.0, 3.0, 4.0, 4.0]
    """

    def __init__(self, source: RowSource, name: str = "series") -> None:
        self._source, self._name = source, name
        self._block = max(1, min(BLOCK, VALUES // source.shape[1]))
        self._ends: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return FilledRows, (self._source, self._name)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return self._source.shape

    @property
    def columns(self) -> tuple[Hashable, ...] | None:
        """The channels' names, if they have any."""
        return self._source.columns

    def index(self, first: int, last: int) -> pd.Index | None:
        """Return the labels of some rows, if they have any."""
        return self._source.index(first, last)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return some rows, without gaps."""
        values = np.asarray(self._source.read(first, last), dtype=np.float64)
        gaps = np.isnan(values)
        if not gaps.any():
            return values
        self._check(values, first)
        values, count = values.copy(), self.shape[0]
        before = self._nearest(gaps[0], range((first - 1) // self._block, -1, -1), 0, first, latest=True)
        after = self._nearest(gaps[-1], range(last // self._block, (count - 1) // self._block + 1), last, count, latest=False)
        rows = np.arange(first, last)
        for c in np.flatnonzero(gaps.any(axis=0)).tolist():
            known = ~gaps[:, c]
            around = [(end[0][c], end[1][c]) for end in (before, after)]
            at = [rows[known], *(np.array([row]) for row, _ in around if row >= 0)]
            value = [values[known, c], *(np.array([value]) for row, value in around if row >= 0)]
            order = np.argsort(np.concatenate(at))
            if not len(order):
                label = c if self.columns is None else self.columns[c]
                raise ValueError(
                    f"{self._name}: channel {label!r} has no values but NaN, so nothing can be interpolated. Drop it."
                )
            values[~known, c] = np.interp(rows[~known], np.concatenate(at)[order], np.concatenate(value)[order])
        return values

    def _nearest(
        self, wanted: np.ndarray, blocks: Iterable[int], low: int, high: int, *, latest: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return row and value of the latest or earliest values of `wanted` columns in rows ``[low, high)``; row -1: none."""
        rows, values = np.full(len(wanted), -1), np.zeros(len(wanted))
        for block in blocks:
            lacking = wanted & (rows < 0)
            if not lacking.any() or low == high:
                break
            begin, end = max(block * self._block, low), min((block + 1) * self._block, high)
            at, value = self._end(block, begin, end, latest=latest)
            rows[lacking], values[lacking] = at[lacking], value[lacking]
        return rows, values

    def _end(self, block: int, begin: int, end: int, *, latest: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return row and value of each column's latest or earliest value in a part of a block. Whole blocks are remembered."""
        whole = end - begin == min(self._block, self.shape[0] - block * self._block)
        if whole and (block, latest) in self._ends:
            return self._ends[block, latest]
        values = np.asarray(self._source.read(begin, end), dtype=np.float64)
        self._check(values, begin)
        known = ~np.isnan(values)
        at = end - begin - 1 - known[::-1].argmax(axis=0) if latest else known.argmax(axis=0)
        found = np.where(known.any(axis=0), begin + at, -1), values[at, np.arange(len(at))]
        if whole:
            if len(self._ends) >= REMEMBERED:
                self._ends.clear()
            self._ends[block, latest] = found
        return found

    def _check(self, values: np.ndarray, first: int) -> None:
        """Refuse values that are infinite or too large, before they fill gaps."""
        check_values(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), first, self.columns, self._name)
