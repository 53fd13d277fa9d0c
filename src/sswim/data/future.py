"""What users pass as known ahead, checked against the series that it follows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from sswim.data.series import Series, as_series
from sswim.data.times import Pace, continue_index

__all__ = ["NOTHING", "Ahead", "Future", "FutureReader"]

Future = npt.ArrayLike | pd.DataFrame | pd.Series | Sequence[npt.ArrayLike | pd.DataFrame | pd.Series] | None
TIMES = (pd.DatetimeIndex, pd.PeriodIndex)


@dataclass(frozen=True)
class Ahead:
    """What is known ahead of several series.

    Attributes
    ----------
    known : sequence of array of shape (horizon, known)
        Covariates that are known ahead of each series; empty if there are none.
    times : sequence of int
        Wall-clock time of each series' last row, in seconds; empty if nothing depends on it.
    """

    known: Sequence[np.ndarray] = ()
    times: Sequence[int] = ()

    @staticmethod
    def last_time(series: Series) -> int | None:
        """Return the wall-clock time of a series' last row, if it has one."""
        times = series.times()
        return None if times is None else int(times[-1].at(np.array([len(series.segments[-1]) - 1]))[0])


NOTHING = Ahead()


@dataclass(frozen=True)
class FutureReader:
    """Reads the values ahead of covariates that are known.

    Attributes
    ----------
    names : list
        The columns that are known ahead: by number, if a model was fitted to an array.
    horizon : int
        Number of rows ahead.
    named : bool
        Whether columns have names.
    missing : {"error", "interpolate"}
        What happens to NaN.
    pace : Pace, optional
        How the times of the series that a model was fitted to went on.
    """

    names: list[Hashable]
    horizon: int
    named: bool
    missing: str
    pace: Pace | None = None

    def several(self, future: Future, series: Sequence[Series], *, one: bool) -> list[np.ndarray]:
        """Return the rows ahead (horizon, columns) of each series, or nothing if nothing is known ahead."""
        parts, found = self._parts(future, len(series), one=one), []
        for i, (part, past) in enumerate(zip(parts, series, strict=False)):
            index = past.indexes[-1]
            stepped = isinstance(index, pd.DatetimeIndex) and (len(index) > 1 or self.pace is not None)  # one time has no step
            timed = isinstance(index, pd.PeriodIndex) or stepped
            following = continue_index(index, self.horizon, self.pace) if timed else None
            found.append(self(part, following, "future" if one else f"future[{i}]"))
        return found

    def _parts(self, future: Future, count: int, *, one: bool) -> list[object]:
        if not self.names:
            if future is not None:
                raise ValueError("future: this model knows no covariates ahead. Fit it with known=[...], or omit future.")
            return []
        if future is None or one:
            return [future] * count
        given = len(future) if isinstance(future, (Sequence, np.ndarray)) else 0
        if isinstance(future, (pd.DataFrame, pd.Series)) or given != count:
            raise ValueError(f"future: pass one for each of the {count} series, in a list.")
        return list(future)  # type: ignore[arg-type]

    def __call__(self, future: object, following: pd.Index | None = None, name: str = "future") -> np.ndarray:
        """Return the rows ahead (horizon, columns) of one series; their times, if they have any, must be those `following`."""
        columns = ", ".join(map(repr, self.names))
        wanted = f"the {self.horizon} rows that follow X, with the columns {columns}"
        if future is None:
            raise ValueError(
                f"{name}: this model was fitted with known=[{columns}]. Pass {wanted}: a DataFrame, or an array of shape "
                f"({self.horizon}, {len(self.names)})."
            )
        if isinstance(future, pd.DataFrame) and self.named:
            lacking = [c for c in self.names if c not in future.columns]
            if lacking:
                raise ValueError(f"{name}: must hold {wanted}, but lacks {', '.join(map(repr, lacking))}.")
            future = future[self.names]
        ahead = as_series(future, missing=self.missing, name=name)  # type: ignore[arg-type]
        values, labels = np.concatenate([segment[:] for segment in ahead.segments]), ahead.indexes[0]
        if values.shape != (self.horizon, len(self.names)):
            raise ValueError(f"{name}: must hold {wanted}, got shape {values.shape}.")
        if following is not None and isinstance(labels, TIMES):
            given = labels.append([i for i in ahead.indexes[1:] if i is not None])
            if not following.equals(given):
                raise ValueError(
                    f"{name}: must hold the rows from {following[0]} to {following[-1]}, which follow X, got {given[0]} to "
                    f"{given[-1]}."
                )
        return values
