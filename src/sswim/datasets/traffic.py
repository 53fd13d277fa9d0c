"""DataFrames in the HDF5 files that METR-LA and PEMS-BAY are published in, read without PyTables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["read_hdf"]

Node = Any  # a group or a data set of h5py, which has no types

FRAME = ("axis0", "axis1", "block0_items", "block0_values")


def read_hdf(path: Path) -> pd.DataFrame:
    """Read the only DataFrame of an HDF5 file that pandas wrote, with ``to_hdf(format="fixed")``.

    Its key may have any name: METR-LA's is ``df``, PEMS-BAY's ``speed``. Values are read as they are, so zeros stay. Needs
    ``pip install 'sswim[hdf5]'``.

    Raises
    ------
    ImportError, ValueError
        With the file's name, what is wrong with it, and what to do.
    """
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{path}: reading it needs h5py, run `pip install 'sswim[hdf5]'`.") from None

    try:
        with h5py.File(path, "r") as file:
            groups = [file, *_groups(file, h5py.Group)]
            frames = [group for group in groups if all(isinstance(group.get(name), h5py.Dataset) for name in FRAME)]
            if len(frames) != 1:
                raise _Unfit(_no_frame(groups, frames))
            return _frame(frames[0])
    except _Unfit as error:
        raise ValueError(f"{path}: {error}") from None
    except (OSError, EOFError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path}: damaged, it cannot be read as an HDF5 file ({error}). Fetch it again.") from error


class _Unfit(Exception):
    """A file that can be read, but not used."""


def _groups(group: Node, kind: type) -> list[Node]:
    """Return the groups within a group, at any depth."""
    here = [part for part in group.values() if isinstance(part, kind)]
    return [found for part in here for found in (part, *_groups(part, kind))]


def _no_frame(groups: list[Node], frames: list[Node]) -> str:
    if frames:
        return f"must hold one DataFrame, but holds {', '.join(repr(f.name) for f in frames)}. Keep one of them in a file."
    if any("table" in group for group in groups):
        return "holds a table of pandas, which only PyTables reads. Write it with `to_hdf(..., format='fixed')`."
    return (
        f"must hold a DataFrame as `to_hdf(..., format='fixed')` writes it ({', '.join(FRAME)}), but holds "
        f"{', '.join(sorted(groups[0])) or 'nothing'}."
    )


def _frame(group: Node) -> pd.DataFrame:
    """Return the DataFrame of a group: columns of one type lie in a block of shape (rows, columns)."""
    columns, index = _labels(group["axis0"]), _labels(group["axis1"])
    blocks = []
    for number in range(len(columns)):
        if f"block{number}_values" not in group:
            break
        items, values = _labels(group[f"block{number}_items"]), group[f"block{number}_values"]
        if values.dtype.kind not in "fiub":
            raise _Unfit(f"all columns must be numbers, but {', '.join(map(repr, items[:3]))} hold objects. Drop them.")
        if values.shape != (len(index), len(items)):
            raise _Unfit(
                f"damaged, {group.name} has {len(index)} times and {len(items)} columns in block {number}, but values of "
                f"shape {values.shape}. Fetch it again."
            )
        blocks.append(pd.DataFrame(values[()], index=index, columns=items))
    if sum(block.shape[1] for block in blocks) != len(columns) or not len(index):
        found = sum(block.shape[1] for block in blocks)
        raise _Unfit(
            f"damaged, {group.name} has {len(index)} times and {len(columns)} columns, of which {found} have values. Fetch it "
            "again."
        )
    return blocks[0] if len(blocks) == 1 else pd.concat(blocks, axis=1)[columns]


def _labels(node: Node) -> pd.Index:
    """Return times, texts or numbers; pandas wrote in the attribute ``kind`` which of them they are."""
    data, kind = node[()], _text(node.attrs.get("kind"))
    if kind.startswith("datetime64"):  # without a unit before pandas 2: nanoseconds
        times = pd.DatetimeIndex(data.astype(np.int64).view(kind if "[" in kind else "datetime64[ns]"))
        zone = _text(node.attrs.get("tz"))
        return times.tz_localize("UTC").tz_convert(zone) if zone else times
    if data.dtype.kind == "S":
        return pd.Index([_text(label) for label in data])
    if data.ndim != 1 or data.dtype.kind not in "fiub":
        raise _Unfit(f"the labels {node.name} must be times, texts or numbers, got {kind or data.dtype}. Rename them.")
    return pd.Index(data)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
