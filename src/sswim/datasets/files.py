"""Reading and writing series as CSV, Parquet and npz."""

from __future__ import annotations

import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import pandas as pd

from sswim.data import RowSource, open_rows
from sswim.data.times import parse_times, possible_times
from sswim.datasets.text import Unfit, moment, read_csv
from sswim.options import nearest, warn
from sswim.writing import whole_file

__all__ = ["read_series", "series_at", "write_series"]


# How damaged CSV, npz and Parquet files fail, in pandas, numpy, zipfile and pyarrow.
UNREADABLE = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unknown format {path.suffix!r}. Use one of {', '.join(READERS)}.")
    return path.suffix.lower()


@dataclass(frozen=True)
class _Wanted:
    """What a user says of a table."""

    time: str | None = None
    date_format: str | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()


def series_at(path: Path, reading: Mapping[str, object]) -> tuple[pd.DataFrame | RowSource, list[str]]:
    """Return the series of a file, or of a folder or array that is read as it is needed, and the names of its columns.

    `reading` are options of `read_series`, None where they are not given.
    """
    given = {name: value for name, value in reading.items() if value is not None}
    if path.suffix in ("", ".npy", ".zarr") and not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder.")
    if not path.is_dir() and path.suffix != ".npy":
        frame = read_series(path, **given)  # type: ignore[arg-type]
        return frame, list(map(str, frame.columns))
    source = open_rows(path)
    assert source is not None
    names = [] if source.columns is None else list(map(str, source.columns))
    if given and given != {"columns": names}:
        raise ValueError(f"{path}: {', '.join(given)} is for files that are read whole. Store the columns that you need.")
    return source, names


def read_series(
    path: str | os.PathLike[str],
    *,
    time: str | None = None,
    date_format: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a series, one row per time step, from a CSV, Parquet or npz file.

    A CSV file may have commas, semicolons, tabs or bars between its cells, decimal commas if not commas between cells, and a
    header or none. Its column of times is the one that `time` names, or the first one, if it holds times or is called like one
    (``time``, ``date``, ``timestamp``, ``index``). An npz file holds the array ``x`` (time x channels), and if it likes
    ``columns``, and ``times`` as text, or ``start`` and ``step_minutes``.

    Parameters
    ----------
    path : str or path
    time : str, optional
        Column that holds the times.
    date_format : str, optional
        How times are written, such as ``"%d/%m/%Y %H:%M"``. Days and months that could be exchanged are told apart by the
        regular steps that they make, and refused if these do not tell.
    columns, drop : sequence of str
        Columns to keep, in this order, or to leave out. Default: all are kept.

    Raises
    ------
    FileNotFoundError, ValueError
        With the file's name, what is wrong with it, and where.
    """
    path = Path(path)
    suffix, wanted = _suffix(path), _Wanted(time, date_format, columns, drop)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        frame = _indexed(READERS[suffix](path), wanted, text=suffix == ".csv")
        frame = _chosen(frame, wanted)
    except Unfit as error:
        raise ValueError(f"{path}: {error}") from None
    except UNREADABLE as error:
        raise ValueError(f"{path}: not a readable {suffix[1:]} file ({error}).") from None
    if frame.empty:
        raise ValueError(f"{path}: holds no rows or no columns.")
    return _as_numbers(path, frame)


def _as_numbers(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table, if all its columns hold numbers."""
    for name in frame:
        column = frame[name]
        if column.dtype.kind in "mM" or isinstance(column.dtype, pd.PeriodDtype):
            raise ValueError(
                f"{path}: all columns but the time must be numbers, but {name!r} holds times. Name the column of times (time, "
                "--time), or leave this one out (drop, --drop)."
            )
        if not pd.api.types.is_numeric_dtype(column):
            numbers = pd.to_numeric(column, errors="coerce")
            bad = np.flatnonzero(numbers.isna() & column.notna())
            if len(bad):
                raise ValueError(
                    f"{path}: all columns but the time must be numbers, but {name!r} holds text, first "
                    f"{short(column.iloc[bad[0]])} in data row {bad[0] + 1}. Leave the column out (drop, --drop), or mend the "
                    "value."
                )
            frame = frame.copy()
            frame[name] = numbers  # whole numbers beyond 64 bits
        large = np.flatnonzero(np.isinf(frame[name].to_numpy(dtype=np.float64, na_value=np.nan)))
        if len(large):
            raise ValueError(f"{path}: {name!r} must be finite, but is infinite or too large in data row {large[0] + 1}.")
    return frame


def _chosen(frame: pd.DataFrame, wanted: _Wanted) -> pd.DataFrame:
    """Return the columns that are wanted."""
    names = {str(name): name for name in frame.columns}
    for name in [*(wanted.columns or ()), *wanted.drop]:
        if name not in names:
            raise Unfit(f"has no column {name!r}.{nearest(name, list(names))} Its columns: {', '.join(map(repr, names))}.")
    kept = list(names) if wanted.columns is None else list(wanted.columns)
    return frame[[names[name] for name in kept if name not in wanted.drop]]


def _indexed(frame: pd.DataFrame, wanted: _Wanted, *, text: bool) -> pd.DataFrame:
    """Return the table with its times as the index, if it has any. A table of `text` is searched for them."""
    if len(set(map(str, frame.columns))) < frame.shape[1]:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise Unfit(f"has two columns called {twice!r}. Rename one.")
    names = {str(name): name for name in frame.columns}
    if wanted.time is not None and wanted.time not in names:
        raise Unfit(f"has no column {wanted.time!r} of times.{nearest(wanted.time, list(names))} Its columns: {list(names)}.")
    timed = [name for name in frame if frame[name].dtype.kind == "M"]
    if wanted.time is None and len(timed) == 1 and isinstance(frame.index, pd.RangeIndex):
        return frame.set_index(timed[0])
    if wanted.time is None and (not text or frame.shape[1] < 2):
        return frame
    first = frame.columns[0] if wanted.time is None else names[wanted.time]
    if first in timed:
        return frame.set_index(first)
    numbers = pd.api.types.is_numeric_dtype(frame[first])
    named = str(first).strip().lower() in {"time", "date", "datetime", "timestamp", "index"} or str(first).startswith("Unnamed")
    if wanted.time is None and numbers and not named:
        return frame
    if not numbers or wanted.date_format is not None or _digits(frame[first]):
        times = _times(frame[first], wanted)
        if times is None:
            if named or wanted.time is not None or moment(str(frame[first].iloc[0])):
                raise Unfit(_no_time(frame[first]))
            return frame  # text that is no time: the caller says so
        if times.isna().any():
            raise Unfit(f"has no time in {first!r} in data row {int(times.isna().argmax()) + 1}.")
        name = first if isinstance(first, str) else None
        return frame.drop(columns=first).set_index(pd.DatetimeIndex(times, name=name))
    return frame.set_index(first)


def _no_time(column: pd.Series) -> str:
    """Return what is wrong with a column of times."""
    text = column.astype(str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        parsed = pd.to_datetime(text, errors="coerce", utc=True)
    wrong = np.flatnonzero(parsed.isna())
    row = int(wrong[0]) if len(wrong) else 0
    return (
        f"times in {column.name!r} must be written alike, but data row {row + 1} has {text.iloc[row]!r}. Mend it, or say how "
        "times are written (date_format, --date-format)."
    )


def _times(column: pd.Series, wanted: _Wanted) -> pd.Series | None:
    """Return a column of text as times, or None if it holds none."""
    text = column.astype(str)
    if wanted.date_format is None and _digits(column):
        wanted = replace(wanted, date_format="%Y%m%d")
    if wanted.date_format is not None:
        try:
            return pd.to_datetime(text, format=wanted.date_format)
        except ValueError as error:
            raise Unfit(f"times in {column.name!r} are not written as {wanted.date_format!r} says ({error}).") from None
    found = possible_times(text)
    if len(found) < 2:
        return found[0] if found else None
    raise Unfit(
        f"times such as {text.iloc[0]!r} may begin with the day or with the month. Say which: date_format='%d/%m/%Y' or "
        "'%m/%d/%Y' (--date-format), with %H:%M if there are hours."
    )


def _digits(column: pd.Series) -> bool:
    """Return whether a column holds days as digits, 20240131."""
    if not pd.api.types.is_integer_dtype(column) or not column.between(19_000_101, 21_001_231).all():
        return False
    return bool(pd.to_datetime(column.astype(str), format="%Y%m%d", errors="coerce").notna().all())


def _read_npz(path: Path) -> pd.DataFrame:
    if not zipfile.is_zipfile(path):  # numpy would advise to load it as a pickle
        raise Unfit("not a readable npz file.")
    with np.load(path, allow_pickle=False) as data:
        if "x" not in data:
            raise Unfit(f"must hold the array 'x' (time x channels), but holds {', '.join(data) or 'nothing'}.")
        x = data["x"]
        if x.ndim not in (1, 2):
            raise Unfit(f"the array 'x' must have the shape (time, channels), got {x.shape}.")
        x = x[:, None] if x.ndim == 1 else x
        columns = list(map(str, data["columns"])) if "columns" in data else list(range(x.shape[1]))
        index = None
        if "times" in data:
            index = pd.DatetimeIndex(parse_times(pd.Series(data["times"].astype(str))))
            if len(index) != len(x):
                raise Unfit(f"must hold as many times as rows, but 'times' has {len(index)} and 'x' has {len(x)}.")
        elif "start" in data and "step_minutes" in data:
            start = pd.to_datetime(str(data["start"]), errors="coerce")
            if pd.isna(start):
                warn(f"{path}: 'start' is no time ({str(data['start'])!r}): rows are numbered.", stacklevel=4)
            else:
                step = pd.Timedelta(minutes=float(data["step_minutes"]))
                if not step > pd.Timedelta(0):
                    raise Unfit(f"'step_minutes' must be above 0, got {data['step_minutes']}.")
                index = pd.date_range(start, periods=len(x), freq=step)
        return pd.DataFrame(x, index=index, columns=columns)


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": read_csv,
    ".parquet": pd.read_parquet,
    ".npz": _read_npz,
}


def write_series(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a series to a CSV, Parquet or npz file; the file appears whole or not at all."""
    path = Path(path)
    suffix = _suffix(path)
    with whole_file(path) as part:
        if suffix == ".csv":
            frame.to_csv(part, index_label="time" if isinstance(frame.index, pd.DatetimeIndex) else "index")
        elif suffix == ".parquet":
            frame.rename(columns=str).to_parquet(part)
        else:
            extra: dict[str, Any] = {}
            if isinstance(frame.index, pd.DatetimeIndex):
                extra = {"times": [time.isoformat() for time in frame.index]}
            np.savez_compressed(part, x=frame.to_numpy(), columns=list(map(str, frame.columns)), **extra)
