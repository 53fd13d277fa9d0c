"""The public sets of long-term forecasting, in the files that they are published in."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sswim.datasets._files import find_folder
from sswim.datasets.series import READERS, load_series
from sswim.options import warn

__all__ = ["LTSF", "LtsfSet", "find_ltsf", "load_ltsf", "ltsf_set"]

PUBLISHED = "the folder of data sets that https://github.com/thuml/Autoformer names"
ETT = f"https://github.com/zhouhaoyi/ETDataset, or from {PUBLISHED}"


@dataclass(frozen=True)
class LtsfSet:
    """A set of the public benchmark of long-term forecasting, and how the benchmark measures on it.

    Attributes
    ----------
    rows, channels : int
        Size of the published file; 0 for the wind farm, which is part of the package, and for a user's own file.
    season : int
        Rows after which the seasonal naive forecast repeats the series.
    month : int or None
        Rows of a month of 30 days, if 12, 4 and 4 months are for training, validation and test. Default: 70, 10 and 20 % of
        the rows.
    windows, horizons : tuples of int
        The benchmark's own.
    folder : str
        In the published archive.
    source : str
        Where to get the file.
    """

    rows: int = 0
    channels: int = 0
    season: int = 24
    month: int | None = None
    windows: tuple[int, ...] = (96, 336)
    horizons: tuple[int, ...] = (96, 192, 336, 720)
    folder: str = ""
    source: str = PUBLISHED


LTSF: dict[str, LtsfSet] = {
    "ETTh1": LtsfSet(17_420, 7, 24, 30 * 24, folder="ETT-small", source=ETT),
    "ETTh2": LtsfSet(17_420, 7, 24, 30 * 24, folder="ETT-small", source=ETT),
    "ETTm1": LtsfSet(69_680, 7, 96, 30 * 96, folder="ETT-small", source=ETT),
    "ETTm2": LtsfSet(69_680, 7, 96, 30 * 96, folder="ETT-small", source=ETT),
    "weather": LtsfSet(52_696, 21, 144, folder="weather"),
    "exchange_rate": LtsfSet(7_588, 8, 7, folder="exchange_rate"),
    "electricity": LtsfSet(26_304, 321, folder="electricity"),
    "traffic": LtsfSet(17_544, 862, folder="traffic"),
    "national_illness": LtsfSet(966, 7, 52, windows=(36, 104), horizons=(24, 36, 48, 60), folder="illness"),
    "wind-farm": LtsfSet(source="part of the package"),
}


def ltsf_set(name: str | os.PathLike[str]) -> LtsfSet:
    """Return how the benchmark measures on a set.

    Parameters
    ----------
    name : str or path
        A name of `LTSF`, or a file of the user's own, which is split by 70, 10 and 20 %.

    Examples
    --------
    >>> ltsf_set("ETTm1").month, ltsf_set("weather").month, ltsf_set("load.csv").horizons
    (2880, None, (96, 192, 336, 720))
    """
    text = os.fspath(name)
    if text in LTSF:
        return LTSF[text]
    if text.lower().endswith(tuple(READERS)):
        stem = Path(text).stem
        if stem in LTSF:  # the benchmark splits it in its own way
            raise ValueError(
                f"data: {text!r} looks like a file of the benchmark. Write {stem!r}, and set SSWIM_DATA to the file's folder."
            )
        return LtsfSet()
    close = difflib.get_close_matches(text, LTSF, n=1)
    raise ValueError(
        f"data: unknown name {text!r}.{f' Did you mean {close[0]!r}?' if close else ''} Valid names: "
        f"{', '.join(map(repr, LTSF))}; or pass a file that ends in {', '.join(READERS)}."
    )


def find_ltsf(name: str, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the path of a published file, or None if it is missing.

    It may lie in the data folder, or in there in a folder of its name or of the name that the published archive has.
    """
    place = find_folder(folder)
    paths = (place / where / f"{name}.csv" for where in ("", name, LTSF[name].folder))
    return next((path for path in paths if path.is_file()), None)


def load_ltsf(name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Return a set of the benchmark, time x channels, exactly as its file has it.

    Nothing is scaled, filled or removed. In ``weather`` 81 values are -9999, which stands for a missing reading. The
    benchmark keeps them as values, so they are kept here. All of them are in the training part, where they enlarge the
    deviation of three channels.

    Parameters
    ----------
    name : str or path
        See `ltsf_set`. ``"wind-farm"`` needs no file.
    folder : path, optional
        Where the file lies; default: `data_folder()`.

    Raises
    ------
    FileNotFoundError
        Says which file is missing, where it goes and where to get it.
    ValueError
        Says what is wrong with the name or the file.

    Warns
    -----
    UserWarning
        If the file has more or fewer rows than the published one: results are then not comparable.
    """
    text, found = os.fspath(name), ltsf_set(name)
    if not found.channels:
        return load_series(text, folder)
    path = find_ltsf(text, folder)
    if path is None:
        place, inner = find_folder(folder), " or ".join(dict.fromkeys((text, found.folder)))
        raise FileNotFoundError(
            f"{text}: no file {text}.csv in {place}, nor in a folder {inner} in there. Get {text}.csv from "
            f"{found.source}. Put it into {place}, or set SSWIM_DATA to the folder that holds it."
        )
    frame = _read(path, found.channels)
    if len(frame) != found.rows:
        warn(
            f"{path}: holds {len(frame):,} rows, but the published file holds {found.rows:,}. Results on it are not comparable "
            "with published ones.",
            stacklevel=2,
        )
    return frame


def _read(path: Path, channels: int) -> pd.DataFrame:
    """Return the numbers of a published file, with the column ``date`` as the index."""
    try:
        frame = pd.read_csv(path, encoding_errors="replace", low_memory=False)  # some names are not in UTF-8
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable csv file ({error}). Fetch it again.") from error
    names = [str(column) for column in frame.columns]
    if names[0].strip().lower() != "date":
        raise ValueError(f"{path}: the first column must be 'date', but is {names[0]!r}. Fetch the published file again.")
    if len(names) != 1 + channels:
        raise ValueError(
            f"{path}: must have the column 'date' and {channels} channels, but has {len(names) - 1} channels. Fetch the "
            "published file again."
        )
    if frame.empty:
        raise ValueError(f"{path}: holds no rows. Fetch it again.")
    numbers = frame.iloc[:, 1:].apply(pd.to_numeric, errors="coerce")
    bad = np.argwhere(~np.isfinite(numbers.to_numpy(dtype=float)))
    if len(bad):
        row, column = map(int, bad[0])
        value = str(frame.iloc[row, 1 + column])
        raise ValueError(
            f"{path}: all channels must be numbers, but {names[1 + column]!r} is "
            f"{'missing' if value == 'nan' else repr(value)} in data row {row + 1}. Mend the value, or fetch the file "
            "again."
        )
    times = pd.to_datetime(frame.iloc[:, 0].astype(str), errors="coerce", format="mixed")
    if times.isna().any():
        row = int(np.flatnonzero(times.isna())[0])
        raise ValueError(
            f"{path}: the column 'date' must hold times, but is {frame.iloc[row, 0]!r} in data row {row + 1}. Mend the value, "
            "or fetch the file again."
        )
    return numbers.astype(float).set_axis(pd.DatetimeIndex(times, name="date"), axis=0)
