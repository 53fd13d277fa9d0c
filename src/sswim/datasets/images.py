"""Images in the idx files that MNIST and Fashion-MNIST come in."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np
import pooch

from sswim.datasets._fetch import fetch

__all__ = ["data_folder", "load_images", "read_idx"]

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
SETS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
}
FILES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
# MD5 sums of the published files, in that order.
SUMS = {
    "mnist": (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion-mnist": (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}


def data_folder() -> Path:
    """Return where data sets lie: the folder named by ``SSWIM_DATA``, or else one in the user's cache."""
    return Path(os.environ.get("SSWIM_DATA") or pooch.os_cache("sswim"))


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an array from an idx file, compressed (``.gz``) or not."""
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged, it cannot be decompressed ({error}). Fetch it again.") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPES:
        raise ValueError(f"{path}: not an idx file.")
    dimensions = data[3]
    shape = tuple(np.frombuffer(data, ">u4", count=dimensions, offset=4).tolist()) if len(data) >= 4 + 4 * dimensions else ()
    dtype = np.dtype(TYPES[data[2]])
    if len(shape) != dimensions or len(data) != 4 + 4 * dimensions + dtype.itemsize * int(np.prod(shape)):
        raise ValueError(f"{path}: damaged, its length does not fit the shape {shape} that it names. Fetch it again.")
    return np.frombuffer(data, dtype, offset=4 + 4 * dimensions).reshape(shape).astype(dtype.newbyteorder("="))


def load_images(name: str = "mnist") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images (60000, 28, 28) and labels, and test images (10000, 28, 28) and labels.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist"}
        The four original files are read from the folder of that name in `data_folder()`, and downloaded if they are not there.

    Raises
    ------
    FileNotFoundError
        Says which files are missing, where they go and where to get them.
    """
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(map(repr, SETS))}, got {name!r}.")
    folder = data_folder() / name
    missing = {file: md5 for file, md5 in zip(FILES, SUMS[name], strict=True) if not (folder / file).is_file()}
    reason = next((why for file, md5 in missing.items() if (why := fetch(SETS[name] + file, md5, folder))), "")
    if reason:
        raise FileNotFoundError(
            f"{name}: {', '.join(missing)} missing in {folder} ({reason}). Get them from {SETS[name]} and put them there, or "
            f"set SSWIM_DATA to the folder that holds '{name}'."
        )
    images, labels, test_images, test_labels = (read_idx(folder / file) for file in FILES)
    for x, y in ((images, labels), (test_images, test_labels)):
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise ValueError(f"{folder}: images of shape {x.shape} and labels of shape {y.shape} do not fit together.")
    return images, labels, test_images, test_labels
