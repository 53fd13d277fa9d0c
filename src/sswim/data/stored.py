"""What may hold series or samples outside of memory: maps of files, Zarr, dask and Parquet, opened as sources of rows."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sswim.data.rows import Chunked, MemmapRows, RowSource

__all__ = ["ArrayRows", "ParquetRows", "open_array", "open_rows"]

# Columns of numbers as the file and as pandas call them, and the column that labels rows, if there is one.
Fields = tuple[list[str], tuple[Hashable, ...], str | None]
KINDS = "a .npy file, a Zarr array, a .parquet file, or a directory of .parquet files"


class ChunkedArray(Protocol):
    """What is used of an array of Zarr or dask."""

    dtype: np.dtype
    shape: tuple[int, ...]

    def __getitem__(self, part: slice) -> object: ...


class ArrayRows(Chunked):
    """The rows of an array of Zarr or dask."""

    def __init__(self, array: ChunkedArray, name: str = "series") -> None:
        self._array, self._row_shape = array, array.shape[1:]
        super().__init__(_chunk_rows(array, name), array.dtype.itemsize * math.prod(array.shape[1:]))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return ArrayRows, (self._array,)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return self._array.shape[0], math.prod(self._row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row in the array."""
        return self._row_shape

    def load(self, first: int, last: int) -> np.ndarray:
        """Return the rows of some whole chunks."""
        return np.asarray(self._array[first:last]).reshape(last - first, self.shape[1])


def _chunk_rows(array: ChunkedArray, name: str) -> list[int]:
    """Return the number of rows of each chunk."""
    rows = array.shape[0] if array.shape else 0
    sizes = (getattr(array, "shards", None) or getattr(array, "chunks", None) or [rows])[0]  # shards of chunks are read whole
    if not isinstance(sizes, tuple):
        sizes = tuple(min(sizes, rows - first) for first in range(0, rows, max(sizes, 1)))
    if any(size != size for size in sizes):  # dask: NaN
        raise ValueError(f"{name}: the lengths of a dask array's chunks must be known: call its `compute_chunk_sizes()` first.")
    return [int(size) for size in sizes]


class ParquetRows(Chunked):
    """The rows of a Parquet file, or of all Parquet files in a directory one after the other, by their names.

    A time index that pandas wrote, or a single column of times, labels the rows.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._files = sorted(self._path.glob("*.parquet"), key=_by_number) if self._path.is_dir() else [self._path]
        if not self._files:
            raise ValueError(f"{path}: there are no .parquet files in this directory.")
        groups, kinds = list[tuple[Path, int, int]](), list[Fields]()  # file, number and rows of each group
        for file in self._files:
            with _opened(file) as found:
                kinds.append(_fields(file, found.schema_arrow))
                counts = [found.metadata.row_group(g).num_rows for g in range(found.num_row_groups)]
            if kinds[-1] != kinds[0]:
                wanted, got = _shown(kinds[0]), _shown(kinds[-1])
                raise ValueError(f"{file}: its columns must be those of {self._files[0].name}, {wanted}, got {got}.")
            groups += [(file, g, rows) for g, rows in enumerate(counts) if rows]
        self._names, self._columns, self._label = kinds[0]
        self._groups, self._group_ends = groups, np.cumsum([0, *(rows for _, _, rows in groups)])
        super().__init__([rows for _, _, rows in groups], 8 * len(self._names))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return ParquetRows, (self._path,)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and channels."""
        return int(self._group_ends[-1]), len(self._names)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """The channels' names."""
        return self._columns

    def _tables(self, first: int, last: int, names: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the groups of rows that hold some rows, and where each begins."""
        low, high = np.searchsorted(self._group_ends, first, side="right") - 1, np.searchsorted(self._group_ends, last)
        for (file, group, _), begin in zip(self._groups[low:high], self._group_ends[low:high].tolist(), strict=True):
            with _opened(file) as found:
                try:
                    yield begin, found.read_row_group(group, columns=names, use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    raise ValueError(f"{file}: its rows cannot be read. ({error})") from None

    def load(self, first: int, last: int) -> np.ndarray:
        """Return the rows of some whole groups."""
        found = np.empty((last - first, len(self._names)))
        for begin, table in self._tables(first, last, self._names):
            for c, name in enumerate(self._names):
                values = table.column(name).to_numpy()  # NaN where there is none
                found[begin - first : begin - first + len(values), c] = values
        return found

    def index(self, first: int, last: int) -> pd.Index:
        """Return the labels of some rows: times or numbers."""
        if self._label is None:
            return pd.RangeIndex(first, last)
        parts = []
        for begin, table in self._tables(first, last, [self._label]):
            column = table.column(self._label).slice(max(first - begin, 0), last - max(first, begin))
            parts.append(pd.Index(column.to_pandas()))
        return parts[0].append(parts[1:])


def _by_number(file: Path) -> list[str | int]:
    """Return what files are sorted by: part.10 comes after part.9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.name)]


def _shown(fields: Fields) -> str:
    """Return names of columns as text, some of them if there are many."""
    names = [*fields[0], *([] if fields[2] is None else [fields[2]])]
    return f"[{', '.join(map(repr, names[:6]))}{', ...' * (len(names) > 6)}]"


def _opened(file: Path) -> pq.ParquetFile:
    """Return a Parquet file, opened."""
    try:
        return pq.ParquetFile(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"{file}: there is no such file.") from None
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{file}: cannot be read as Parquet. ({error})") from None


def _fields(file: Path, schema: pa.Schema) -> Fields:
    """Return the columns of numbers as the file and as pandas call them, and the column that labels rows, if there is one."""
    index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
    if len(index) > 1:
        raise TypeError(f"{file}: rows must have one label each, a time or a number, but have {len(index)} ({index}).")
    frame = schema.empty_table().to_pandas()
    names = [field.name for field in schema if field.name not in index]
    columns = dict(zip(names, frame.columns, strict=True))
    times = [
        name for name in names if pa.types.is_timestamp(schema.field(name).type) or pa.types.is_date(schema.field(name).type)
    ]
    label = index[0] if index else None
    if label is None and len(times) == 1:
        label = times[0]
        names.remove(label)
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise TypeError(f"{file}: all columns must be numbers, but {name!r} is of type {kind}.")
    if not names:
        raise ValueError(f"{file}: holds no columns of numbers.")
    return names, tuple(columns[name] for name in names), label


def _zarr(name: str) -> ModuleType:
    """Return the package zarr."""
    try:
        return importlib.import_module("zarr")
    except ImportError:
        raise ImportError(f"{name}: Zarr arrays need the package zarr: pip install sswim[zarr].") from None


def _open_path(path: Path, name: str) -> RowSource | None:
    """Return the rows of a file or a directory."""
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no file or directory {str(path)!r}. Pass {KINDS}.")
    if any((path / file).exists() for file in ("zarr.json", ".zarray", ".zgroup")):
        return open_array(_zarr(name).open(str(path), mode="r"), name)
    if path.is_dir() or path.suffix in (".parquet", ".pq"):
        return ParquetRows(path)
    if path.suffix == ".npy":
        try:
            return open_array(np.load(path, mmap_mode="r"), name)
        except ValueError as error:
            raise ValueError(f"{path}: cannot be read as an array of numbers. ({error})") from None
    remedy = (
        "Read it with sswim.datasets.read_series" if path.suffix in (".csv", ".txt", ".tsv") else "Store it as one of these"
    )
    raise ValueError(f"{name}: a path must be that of {KINDS}, got {str(path)!r}. {remedy}.")


def open_array(data: object, name: str = "series") -> RowSource | None:
    """Return the rows of what lies outside of memory, whatever the shape of a row; None for anything else."""
    if isinstance(data, RowSource):
        return data
    if isinstance(data, (str, Path)):
        return _open_path(Path(data), name)
    if getattr(data, "shape", None) == ():
        raise ValueError(f"{name} must have the shape (rows, channels), got ().")
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if library in ("zarr", "dask") and kind != "Array":
        remedy = "one of its arrays" if library == "zarr" else "a dask array, such as `.to_dask_array(lengths=True)` returns"
        held = f" that holds {sorted(data)}" if kind == "Group" else ""  # type: ignore[call-overload]
        raise TypeError(f"{name}: got a {kind} of {library}{held}. Pass {remedy}.")
    found: RowSource | None = None
    if isinstance(data, np.memmap):
        found = MemmapRows.of(data)
    elif library in ("zarr", "dask"):
        found = ArrayRows(data, name)  # type: ignore[arg-type]
    if found is not None and data.dtype.kind not in "buif":  # type: ignore[attr-defined]
        raise TypeError(f"{name} must be numbers, got dtype {data.dtype}.")  # type: ignore[attr-defined]
    return found


def open_rows(data: object, name: str = "series") -> RowSource | None:
    """Return the rows of a series that lies outside of memory; None for anything else, such as an ordinary array.

    Parameters
    ----------
    data : numpy.memmap, Zarr array, dask array, RowSource, or a path
        Arrays have the shape (rows, channels) or (rows,). A path is that of a ``.npy`` file, a Zarr array, a ``.parquet`` file,
        or a directory of ``.parquet`` files that continue each other.
    name : str
        Name of the argument, for errors.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/load.npy", np.arange(6.0).reshape(3, 2))
    ...     rows = open_rows(f"{folder}/load.npy")
    ...     rows.shape, rows.read(1, 3).tolist()
    ((3, 2), [[2.0, 3.0], [4.0, 5.0]])
    """
    found = open_array(data, name)
    if found is not None and (len(found.row_shape) > 1 or len(found.shape) != 2):
        shape = (found.shape[0], *found.row_shape)
        raise ValueError(f"{name} must have the shape (rows, channels) or (rows,), got {shape}. Pass several series in a list.")
    if found is not None and found.shape[1] == 0:
        raise ValueError(f"{name} has 0 feature(s) (shape={found.shape}) while a minimum of 1 is required.")
    return found
