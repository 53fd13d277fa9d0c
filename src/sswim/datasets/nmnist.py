"""N-MNIST: handwritten digits, seen by an event camera."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sswim.datasets._files import cut, find_folder, read_npz

__all__ = ["load_nmnist"]

FILE, ORIGINAL = "nmnist_small.npz", "N-MNIST"
SOURCE = "https://www.garrickorchard.com/datasets/n-mnist"
EVENT = np.dtype([("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "i2")])
# An event in this row is none: later times are this many microseconds larger.
OVERFLOW_ROW, OVERFLOW = 240, 2**13


def load_nmnist(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    """Return N-MNIST, 34 x 34 pixels and two polarities: training events and labels, and test events and labels.

    Parameters
    ----------
    folder : path, optional
        Where ``nmnist_small.npz`` lies, a part of the set; or else the original folders ``N-MNIST/Train/<digit>`` and
        ``N-MNIST/Test/<digit>``, which take 4 GB of memory. Default: `data_folder()`.

    Returns
    -------
    events : list of structured arrays
        With the fields ``x``, ``y``, ``t`` (in microseconds) and ``p`` (0 or 1), as `tonic` has them.
    labels : array of shape (samples,), int64
    test_events, test_labels
        The same of the test set.

    Raises
    ------
    FileNotFoundError
        Says what is missing, where it goes and where to get it.
    """
    place = find_folder(folder)
    if (place / FILE).is_file():
        return _read_npz(place / FILE)
    for part in ("Train", "Test"):
        if not any((place / ORIGINAL / part).glob("[0-9]/*.bin")):
            raise FileNotFoundError(
                f"nmnist: neither {FILE} nor {ORIGINAL}/{part}/<digit>/*.bin in {place}. Get Train.zip and Test.zip from "
                f"{SOURCE} and unpack them in {place / ORIGINAL}, or set SSWIM_DATA to the folder that holds {ORIGINAL!r}."
            )
    train, test = (_read_folder(place / ORIGINAL / part) for part in ("Train", "Test"))
    return *train, *test


def _read_npz(path: Path) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    data = read_npz(path, ["px", "py", "pol", "t_us", "n_events", "label", "is_test"])
    for names in (("px", "py", "pol", "t_us"), ("n_events", "label", "is_test")):
        counts = {name: len(data[name]) for name in names}
        if len(set(counts.values())) > 1:
            raise ValueError(f"{path}: damaged, unequal lengths {counts}. Fetch it again.")
    events = np.empty(len(data["px"]), dtype=EVENT)
    for field, name in (("x", "px"), ("y", "py"), ("t", "t_us"), ("p", "pol")):
        events[field] = data[name]
    samples = cut(path, "px", events, data["n_events"])
    labels, test = data["label"].astype(np.int64), data["is_test"].astype(bool)
    train_events = [samples[n] for n in np.flatnonzero(~test)]
    return train_events, labels[~test], [samples[n] for n in np.flatnonzero(test)], labels[test]


def _read_folder(folder: Path) -> tuple[list[np.ndarray], np.ndarray]:
    paths = sorted(folder.glob("[0-9]/*.bin"))
    return [_read_bin(path) for path in paths], np.array([int(path.parent.name) for path in paths], dtype=np.int64)


def _read_bin(path: Path) -> np.ndarray:
    """Read events of 40 bits: 8 of x, 8 of y, 1 of polarity and 23 of time."""
    data = path.read_bytes()
    if len(data) % 5:
        raise ValueError(f"{path}: damaged, its length must be a multiple of 5 bytes, got {len(data)}. Fetch it again.")
    x, y, high, middle, low = np.frombuffer(data, dtype=np.uint8).reshape(-1, 5).T.astype(np.int64)
    overflow = y == OVERFLOW_ROW
    events = np.empty(len(x), dtype=EVENT)
    events["x"], events["y"], events["p"] = x, y, high >> 7
    events["t"] = ((high & 127) << 16 | middle << 8 | low) + OVERFLOW * np.cumsum(overflow)
    return events[~overflow]
