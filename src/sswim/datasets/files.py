"""Reading and writing series as CSV, Parquet and npz."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sswim.writing import whole_file

__all__ = ["read_series", "write_series"]


class _Unfit(Exception):
    """A file that can be read, but not used."""


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unknown format {path.suffix!r}. Use one of {', '.join(READERS)}.")
    return path.suffix.lower()


def read_series(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a series, one row per time step, from a CSV, Parquet or npz file.

    A first CSV column that holds times, or is called like one (``time``, ``date``, ``timestamp``, ``index``), becomes the
    index. An npz file holds the array ``x`` (time x channels), and if it likes ``columns``, ``start`` and ``step_minutes``.

    Raises
    ------
    FileNotFoundError, ValueError
        With the file's name, what is wrong with it, and where.
    """
    path = Path(path)
    suffix = _suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        frame = READERS[suffix](path)
    except _Unfit as error:
        raise ValueError(f"{path}: {error}") from None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a readable {suffix[1:]} file ({error}).") from error
    if frame.empty:
        raise ValueError(f"{path}: holds no rows or no columns.")
    text = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    if text:
        column = frame[text[0]]
        bad = np.flatnonzero(pd.to_numeric(column, errors="coerce").isna() & column.notna())
        where = f", first {column.iloc[bad[0]]!r} in data row {bad[0] + 1}" if len(bad) else ""
        raise ValueError(
            f"{path}: all columns but the time must be numbers, but {text[0]!r} holds text{where}. "
            "Remove the column or mend the value."
        )
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path)
    if frame.shape[1] < 2:
        return frame
    first = frame.columns[0]
    named = str(first).strip().lower() in {"time", "date", "datetime", "timestamp", "index"}
    if not named and not str(first).startswith("Unnamed") and pd.api.types.is_numeric_dtype(frame[first]):
        return frame
    if not pd.api.types.is_numeric_dtype(frame[first]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the format is unknown: it may be no time at all
                frame[first] = pd.to_datetime(frame[first])
        except (ValueError, TypeError):
            return frame  # text that is no time: the caller says so
    return frame.set_index(first)


def _read_npz(path: Path) -> pd.DataFrame:
    if not zipfile.is_zipfile(path):  # numpy would advise to load it as a pickle
        raise _Unfit("not a readable npz file.")
    with np.load(path, allow_pickle=False) as data:
        if "x" not in data:
            raise _Unfit(f"must hold the array 'x' (time x channels), but holds {', '.join(data) or 'nothing'}.")
        x = data["x"]
        if x.ndim not in (1, 2):
            raise _Unfit(f"the array 'x' must have the shape (time, channels), got {x.shape}.")
        x = x[:, None] if x.ndim == 1 else x
        columns = list(map(str, data["columns"])) if "columns" in data else list(range(x.shape[1]))
        index = None
        if "start" in data and "step_minutes" in data:
            index = pd.date_range(str(data["start"]), periods=len(x), freq=f"{int(data['step_minutes'])}min")
        return pd.DataFrame(x, index=index, columns=columns)


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _read_csv,
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
            if isinstance(frame.index, pd.DatetimeIndex) and len(frame) > 1:
                step = (frame.index[1] - frame.index[0]).total_seconds() / 60
                extra = {"start": str(frame.index[0]), "step_minutes": int(step)}
            np.savez_compressed(part, x=frame.to_numpy(), columns=list(map(str, frame.columns)), **extra)
