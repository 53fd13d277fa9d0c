"""NIR files: written whole or not at all, and looked at before anything in them is believed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sswim.export.graph import NODES, nir_package, plan
from sswim.writing import check_place, whole_file

if TYPE_CHECKING:
    from h5py import Dataset, Group
    from nir import NIRGraph

__all__ = ["read_nir", "write_nir"]

# How h5py and nir fail on files that hold something else.
FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(OSError, RecursionError, RuntimeError, TypeError, ValueError),
)
# Groups within groups, at most: a network needs three.
DEPTH = 8


def write_nir(graph: NIRGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph to an HDF5 file. It is checked and read again before it takes its place.

    Parameters
    ----------
    graph : nir.NIRGraph
    path : str or path
    """
    nir = nir_package()
    plan(graph)
    with whole_file(check_place(path, name="write_nir")) as part:
        nir.write(part, graph)
        try:
            read_nir(part)
        except ValueError as error:
            raise ValueError(f"write_nir: the graph could not be read again, and is not written: {error}") from error


def read_nir(path: str | os.PathLike[str]) -> NIRGraph:
    """Read a graph from an HDF5 file, and check it: its nodes, edges and shapes.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    nir.NIRGraph
    """
    nir, place = nir_package(), Path(path)
    if not place.is_file():
        raise FileNotFoundError(f"{place}: no such file.")
    try:
        _check_kinds(place)
        graph = nir.read(place, type_check=False)
    except FAILURES as error:
        raise ValueError(f"{place}: not an NIR file, or damaged ({_first_line(error)}).") from error
    try:
        plan(graph)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error
    return graph


def _check_kinds(path: Path) -> None:
    """Refuse a file whose nodes nir does not know: it would say nothing about them."""
    import h5py

    with h5py.File(path, "r") as file:
        if not isinstance(file.get("node"), h5py.Group):
            raise ValueError("it has no group 'node'")
        _check_links(file, "", DEPTH)
        root = file["node"]
        if _text(root.get("type")) != "NIRGraph":
            raise ValueError(f"its root is a {_text(root.get('type'))}, not a NIRGraph")
        if not isinstance(root.get("nodes"), h5py.Group) or not isinstance(root.get("edges"), h5py.Dataset):
            raise ValueError("it lacks nodes or edges")
        for name, node in root["nodes"].items():
            kind = _text(node.get("type")) if isinstance(node, h5py.Group) else "dataset"
            if kind not in NODES:
                raise ValueError(f"the node {name!r} is a {kind}, which is not supported; supported are {', '.join(NODES)}")


def _check_links(group: Group, name: str, depth: int) -> None:
    """Refuse links, which may lead in circles or out of the file, and groups that are too deep."""
    import h5py

    if depth == 0:
        raise ValueError(f"{name}: nested deeper than {DEPTH} groups")
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"{name}/{key} is a link")
        if isinstance(group[key], h5py.Group):
            _check_links(group[key], f"{name}/{key}", depth - 1)


def _text(dataset: Dataset | None) -> str:
    """Return the text in a dataset."""
    value = None if dataset is None else dataset[()]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _first_line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
