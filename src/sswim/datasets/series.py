"""Series to forecast by name: those of the literature, in the files they are published in, and stand-ins for them."""

from __future__ import annotations

import difflib
import gzip
import io
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from sswim.datasets._fetch import fetch
from sswim.datasets._files import find_folder, read_npz
from sswim.datasets.files import read_series
from sswim.datasets.traffic import read_hdf
from sswim.datasets.wind_farm import load_wind_farm
from sswim.options import check_integer

__all__ = ["SERIES", "SeriesSet", "fill_zeros", "find_own", "find_series", "load_series", "read_text", "series_set"]


@dataclass(frozen=True)
class SeriesSet:
    """A series to forecast, and how the literature splits it.

    Attributes
    ----------
    read : callable
        Returns the series, time x channels, from the path of its file.
    files : tuple of str
        Names that the file may have in the data folder, or in a folder of the set's name in there; none if no file is needed.
    window : int
        Rows that models look at.
    split : tuple of three floats
        Which parts of the windows are for training, validation and test, in this order in time: see `sswim.evaluate.protocol`.
    season : int
        Rows after which the seasonal naive forecast repeats the series: a day, where windows allow it.
    breaks : int or None
        Every how many rows a new segment begins.
    source : str
        Which file to get, and where.
    url, md5 : str
        Whence it is downloaded if it is missing, and its sum; empty if there is no lasting address.
    """

    read: Callable[[Path], pd.DataFrame]
    files: tuple[str, ...] = ()
    window: int = 168
    split: tuple[float, float, float] = (0.6, 0.2, 0.2)
    season: int = 24
    breaks: int | None = None
    source: str = ""
    url: str = ""
    md5: str = ""


def read_text(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read rows of numbers with commas between them, without a header, from a text file, compressed (``.gz``) or not.

    Raises
    ------
    ValueError
        With the file's name, and the line that is not like the others or holds something else.
    """
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged, it cannot be decompressed ({error}). Fetch it again.") from error
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise ValueError(f"{path}: holds no rows. Fetch it again.")
    try:
        return pd.DataFrame(np.loadtxt(io.StringIO(text), delimiter=",", comments=None, ndmin=2))
    except ValueError as error:
        raise ValueError(f"{path}: {_first_bad_line(text) or error}") from None


def _first_bad_line(text: str) -> str | None:
    """Say what is wrong with which line, counted from 1."""
    width, first = 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split(",")
        for place, cell in enumerate(cells, start=1):
            try:
                float(cell)
            except ValueError:
                if line.strip():
                    return (
                        f"must hold nothing but numbers with commas between them, but value {place} in line {number} is "
                        f"{cell.strip()[:40]!r}. Mend it, fetch the file again, or use .csv for files with a header."
                    )
        if line.strip() and not width:
            width, first = len(cells), number
        elif line.strip() and len(cells) != width:
            return (
                f"all lines must hold equally many numbers, but line {number} holds {len(cells)} and line {first} holds "
                f"{width}. Mend it, or fetch the file again."
            )
    return None


def fill_zeros(series: pd.DataFrame, breaks: int | None = None) -> pd.DataFrame:
    """Return a series whose zeros, which stand for missing readings, are filled linearly in time.

    Channel by channel, and within a segment of `breaks` rows. A channel that is 0 throughout a segment stays so.

    Examples
    --------
    >>> fill_zeros(pd.DataFrame({"speed": [60.0, 0.0, 64.0, 0.0]}))["speed"].tolist()
    [60.0, 62.0, 64.0, 64.0]
    """
    length = len(series) if breaks is None else check_integer("breaks", breaks, 1)
    values = series.to_numpy(dtype=np.float64, copy=True)
    for first in range(0, len(values), max(length, 1)):
        part = values[first : first + length]
        rows, known = np.arange(len(part)), part != 0
        for channel in np.flatnonzero(known.any(axis=0) & ~known.all(axis=0)):
            there = known[:, channel]
            part[~there, channel] = np.interp(rows[~there], rows[there], part[there, channel])
    return pd.DataFrame(values, index=series.index, columns=series.columns)


DAY = 180  # rows of a day of `la-highway`, which lacks the nights


def _highway(path: Path) -> pd.DataFrame:
    data = read_npz(path, ["x", "steps_per_day"])
    x, day = data["x"], int(data["steps_per_day"])
    if x.ndim != 2 or day != DAY or len(x) % day:
        raise ValueError(
            f"{path}: must hold whole days of {DAY} rows, but steps_per_day is {day} and x has the shape {x.shape}. Fetch it "
            "again."
        )
    return fill_zeros(pd.DataFrame(x), breaks=DAY)


def _traffic(name: str, sensors: str) -> SeriesSet:
    drive = "https://drive.google.com/drive/folders/10FOTa6HXPqX8Pf5WRoRwcFnW9BrNZEIX"
    source = f"{name}.h5 ({sensors}) from {drive}, the folder that https://github.com/microsoft/SeqSNN names"
    return SeriesSet(read_hdf, (f"{name}.h5",), window=12, split=(0.7, 0.2, 0.1), season=288, source=source)


def _lstnet(file: str, folder: str, season: int, md5: str) -> SeriesSet:
    source = f"{file}.gz from the folder {folder} of https://github.com/laiguokun/multivariate-time-series-data"
    url = f"https://raw.githubusercontent.com/laiguokun/multivariate-time-series-data/master/{folder}/{file}.gz"
    return SeriesSet(read_text, (f"{file}.gz", file), season=season, source=source, url=url, md5=md5)


def _part(file: str, what: str, whole: str) -> SeriesSet:
    """Return a part of a set, split as the whole."""
    source = f"{file}, which holds {what} of {whole} as `x` (time x channels)"
    return replace(SERIES[whole], read=read_series, files=(file,), source=source, url="", md5="")


def _stand_in(
    file: str,
    what: str,
    season: int,
    read: Callable[[Path], pd.DataFrame] = read_series,
    window: int = 168,
    breaks: int | None = None,
) -> SeriesSet:
    source = f"{file} from the authors of sswim, who made it of {what}: it is not published"
    return SeriesSet(read, (file,), window=window, season=season, breaks=breaks, source=source)


SERIES: dict[str, SeriesSet] = {
    "metr-la": _traffic("metr-la", "speeds at 207 sensors"),
    "pems-bay": _traffic("pems-bay", "speeds at 325 sensors"),
    "solar": _lstnet("solar_AL.txt", "solar-energy", 144, "41ef7fdc958c2ca3fac9cd06d6227073"),
    "electricity": _lstnet("electricity.txt", "electricity", 24, "07d51dc39c404599ead932937985957b"),
    "exchange-rate": _lstnet("exchange_rate.txt", "exchange_rate", 1, "9dd5a9c8f8f324e234938400f232fa08"),
    "aemo-solar": _stand_in("aemo_solar_10min.npz", "AEMO's records of Australian solar farms", 144),
    "aemo-units": _stand_in("aemo_units_hourly.npz", "AEMO's records of Australian power stations", 24),
    "la-highway": _stand_in("la_highway_april_5min.npz", "speeds on Los Angeles highways", 12, _highway, 12, DAY),
    "wind-farm": SeriesSet(lambda folder: load_wind_farm().resample("h").mean(), window=48),
}
# Parts of the paper's sets.
SERIES |= {
    "metr-la-10": _part("metr_la_10of207_5min.npz", "the first 10 sensors", "metr-la"),
    "metr-la-week": _part("metr_la_week1_5min.npz", "the first week, its gaps filled", "metr-la"),
    "electricity-6": _part("electricity_6of321_hourly.npz", "the first 6 clients", "electricity"),
    "solar-12": _part("solar_al_12of137_10min.npz", "12 plants", "solar"),
}

READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": read_series,
    ".parquet": read_series,
    ".npz": read_series,
    ".txt": read_text,
    ".txt.gz": read_text,
    ".h5": read_hdf,
}


def series_set(name: str | os.PathLike[str]) -> SeriesSet:
    """Return how to read and split a series.

    Parameters
    ----------
    name : str or path
        A name of `SERIES`, or a file of the user's own: CSV, Parquet and npz as `read_series` reads them, txt and txt.gz as
        `read_text` does, h5 as pandas writes it. These have windows of 168 rows, 60, 20 and 20 % of them for training,
        validation and test, and a season of 24 rows; `dataclasses.replace` changes that.

    Examples
    --------
    >>> series_set("metr-la").window, series_set("load.csv").window
    (12, 168)
    """
    text = os.fspath(name)
    if text in SERIES:
        return SERIES[text]
    for ending, read in READERS.items():
        if text.lower().endswith(ending):
            return SeriesSet(read, (text,))
    close = difflib.get_close_matches(text, SERIES, n=1)
    raise ValueError(
        f"series: unknown name {text!r}.{f' Did you mean {close[0]!r}?' if close else ''} Valid names: "
        f"{', '.join(map(repr, SERIES))}; or pass a file that ends in {', '.join(READERS)}."
    )


def find_series(name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the path of a series' file, or None if it is missing; a series that needs no file is in the data folder."""
    found, place = series_set(name), find_folder(folder)
    if not found.files:
        return place
    paths = (where / file for where in _folders(os.fspath(name), place) for file in found.files)
    return next((path for path in paths if path.is_file()), None)


def find_own(name: str | os.PathLike[str]) -> Path | None:
    """Return the path of a file of the user's own; None for names of `SERIES` and for anything else."""
    if os.fspath(name) in SERIES or not os.fspath(name).lower().endswith(tuple(READERS)):
        return None
    return find_series(name)


def _folders(name: str, place: Path) -> list[Path]:
    """Return where the file of a series may lie."""
    return [place, place / name] if name in SERIES else [Path(), place]


def load_series(name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Return a series, time x channels, by its name in `SERIES` or from a file of the user's own.

    ``solar``, ``electricity`` and ``exchange-rate`` are downloaded if they are missing; set ``SSWIM_OFFLINE`` to forbid that.
    Nothing is scaled. In ``metr-la`` and ``pems-bay`` a 0 is a missing reading; it is left there, because the reference tables
    count it as a value: `fill_zeros` fills it. In ``la-highway`` it is filled already, within each day. The files of ``solar``,
    ``electricity`` and ``exchange-rate`` have neither times nor names: rows and channels are numbered.

    Parameters
    ----------
    name : str or path
        See `series_set`.
    folder : path, optional
        Where the file lies, there or in a folder of the set's name; default: `data_folder()`. A path of the user's own is
        tried as it is first.

    Raises
    ------
    FileNotFoundError
        Says which file is missing, where it goes and where to get it.
    ValueError
        With what is wrong with the name or the file.

    Examples
    --------
    >>> load_series("wind-farm").shape
    (17520, 8)
    """
    found, place, text = series_set(name), find_folder(folder), os.fspath(name)
    path, reason = find_series(name, folder), ""
    if path is None and found.url:
        reason = fetch(found.url, found.md5, place)
        path = find_series(name, folder)
    if path is not None:
        return found.read(path)
    folders = _folders(text, place)
    if text not in SERIES:
        where = "" if Path(text).is_absolute() else f", neither in {Path.cwd()} nor in {place}"
        raise FileNotFoundError(f"{text}: no such file{where}. Mend the path.")
    why = f" ({reason})" if reason else ""
    raise FileNotFoundError(
        f"{text}: no file {' or '.join(found.files)} in {' or '.join(map(str, folders))}{why}. Get {found.source}. Put it into "
        f"{place}, or set SSWIM_DATA to the folder that holds it."
    )
