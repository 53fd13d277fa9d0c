"""What the readers of data sets share: finding a set's folder, and reading npz files."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sswim.datasets.images import data_folder

__all__ = ["cut", "find_folder", "read_npz"]


def find_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder to read from: by default `data_folder()`."""
    return data_folder() if folder is None else Path(folder)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays `names` of an npz file."""
    try:
        if not zipfile.is_zipfile(path):  # numpy would advise to load it as a pickle
            raise ValueError("it is no zip file")
        with np.load(path, allow_pickle=False) as data:
            missing = [name for name in names if name not in data]
            found = {name: data[name] for name in names if name in data}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged, it cannot be read as an npz file ({error}). Fetch it again.") from error
    if missing:
        raise ValueError(f"{path}: must hold the arrays {', '.join(names)}, but {', '.join(missing)} is missing.")
    return found


def cut(path: Path, name: str, values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the consecutive parts of an array that have these lengths."""
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != len(values):
        raise ValueError(f"{path}: damaged, {name} holds {len(values)} values but should hold {lengths.sum()}. Fetch it again.")
    return np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []
