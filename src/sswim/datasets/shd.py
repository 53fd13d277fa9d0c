"""The Spiking Heidelberg Digits, in the HDF5 files they are published in."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path

import numpy as np

from sswim.datasets._fetch import fetch
from sswim.datasets._files import find_folder
from sswim.options import check_integer

__all__ = ["load_shd"]

Events = list[tuple[np.ndarray, np.ndarray]]

CHANNELS = 700
SOURCE = "https://zenkelab.org/datasets/"
# MD5 sums of the published zip files.
SUMS = {"shd_train.h5": "f3252aeb598ac776c1b526422d90eecb", "shd_test.h5": "1503a5064faa34311c398fb0a1ed0a6f"}
DATA = ("spikes/times", "spikes/units", "labels")


def load_shd(folder: str | os.PathLike[str] | None = None, *, merge: int = 10) -> tuple[Events, np.ndarray, Events, np.ndarray]:
    """Return the Spiking Heidelberg Digits: training events and labels, and test events and labels.

    Digits from zero to nine in English (labels 0 to 9) and German (10 to 19). Needs ``pip install 'sswim[hdf5]'``.

    Parameters
    ----------
    folder : path, optional
        Where ``shd_train.h5`` and ``shd_test.h5`` lie, or the originals ``shd_train.h5.gz`` and ``shd_test.h5.gz``;
        Default: `data_folder()`. They are downloaded if they are not there.
    merge : int
        This many neighbouring channels of the 700 become one: 10 leave 70, as in the paper.

    Returns
    -------
    events : list of pairs (times, channels)
        Times in seconds.
    labels : array of shape (samples,), int64
    test_events, test_labels
        The same of the test set, with speakers of which two are not in the training set.

    Raises
    ------
    FileNotFoundError
        Says which file is missing, where it goes and where to get it.
    """
    check_integer("merge", merge, 1)
    place = find_folder(folder)
    paths = []
    for name in ("shd_train.h5", "shd_test.h5"):
        places = [place / name, place / f"{name}.gz"]
        reason = "" if any(path.is_file() for path in places) else fetch(f"{SOURCE}{name}.zip", SUMS[name], place)
        found = [path for path in places if path.is_file()]
        if not found:
            raise FileNotFoundError(
                f"shd: neither {name} nor {name}.gz in {place} ({reason}). Get {SOURCE}{name}.gz and put it there, or set "
                "SSWIM_DATA to the folder that holds it."
            )
        paths.append(found[0])
    train, test = (_read(path, merge) for path in paths)
    return *train, *test


def _read(path: Path, merge: int) -> tuple[Events, np.ndarray]:
    try:
        import h5py
    except ImportError:
        raise ImportError("load_shd needs h5py: run `pip install 'sswim[hdf5]'`.") from None

    try:
        file: io.BytesIO | Path = io.BytesIO(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else path
        with h5py.File(file, "r") as data:
            missing = [name for name in DATA if not isinstance(data.get(name), h5py.Dataset)]
            if not missing:
                times, units, labels = (data[name][:] for name in DATA)
    except (OSError, EOFError, RuntimeError, KeyError, zlib.error) as error:
        raise ValueError(f"{path}: damaged, it cannot be read as an HDF5 file ({error}). Fetch it again.") from error
    if missing:
        raise ValueError(f"{path}: must hold {', '.join(DATA)}, but {', '.join(missing)} is missing. Fetch it again.")
    if not len(times) == len(units) == len(labels):
        raise ValueError(
            f"{path}: damaged, {len(times)} samples of times, {len(units)} of units and {len(labels)} labels. Fetch it again."
        )
    events = []
    for number, (time, unit) in enumerate(zip(times, units, strict=True)):
        if len(time) != len(unit):
            raise ValueError(f"{path}: damaged, sample {number} has {len(time)} times but {len(unit)} units. Fetch it again.")
        if len(unit) and int(unit.max()) >= CHANNELS:
            raise ValueError(f"{path}: sample {number} has unit {unit.max()}, but there are {CHANNELS}, numbered from 0.")
        events.append((np.asarray(time, dtype=np.float64), np.asarray(unit, dtype=np.int64) // merge))
    return events, np.asarray(labels, dtype=np.int64)
