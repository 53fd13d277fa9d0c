"""What an NIR graph is made of: its nodes, their sizes, and an order to compute them in; or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from sswim.export.spatial import AXES, sliding
from sswim.report import Facts

if TYPE_CHECKING:
    from nir import NIRGraph, NIRNode

__all__ = ["NODES", "Plan", "facts_of", "nir_package", "plan"]

Shape = tuple[int, ...]
# Nodes that are known here, and their parameters that have one number for each neuron. Those in `POSITIVE` must be > 0.
NODES: dict[str, tuple[str, ...]] = {
    "Input": (),
    "Output": (),
    "Affine": (),
    "Linear": (),
    "Conv1d": (),
    "Conv2d": (),
    "SumPool2d": (),
    "Flatten": (),
    "Scale": ("scale",),
    "Delay": ("delay",),
    "I": ("r",),
    "IF": ("r", "v_threshold", "v_reset"),
    "LI": ("tau", "r", "v_leak"),
    "LIF": ("tau", "r", "v_leak", "v_threshold", "v_reset"),
    "CubaLI": ("tau_syn", "tau_mem", "r", "v_leak", "w_in"),
    "CubaLIF": ("tau_syn", "tau_mem", "r", "v_leak", "w_in", "v_threshold", "v_reset"),
}
POSITIVE = ("tau", "tau_syn", "tau_mem", "v_threshold")
# What `to_nir` tells in a graph's metadata: number of axes, types, least value.
METADATA = {
    "window": (0, "iu", 1),
    "horizon": (0, "iu", 1),
    "outputs": (0, "iu", 1),
    "fires_at": (0, "iuf", 1e-30),
    "layout": (1, "iu", 1),
    "lags": (1, "iu", 0),
    "leads": (1, "iu", 0),
    "readout_constants": (1, "iuf", 1e-30),
    "readout_weights": (2, "iuf", -np.inf),
    "readout_biases": (1, "iuf", -np.inf),
}
# Mistakes that are listed at most.
LISTED = 10


@dataclass(frozen=True)
class Plan:
    """A graph that can be computed.

    Attributes
    ----------
    order : tuple of str
        Names of nodes; each comes after the nodes that it reads.
    sources : dict
        Names of the nodes that each node reads; it reads their sum.
    shapes : dict
        Shape of what each node puts out, without batch and time.
    """

    order: tuple[str, ...]
    sources: dict[str, tuple[str, ...]]
    shapes: dict[str, Shape]

    def targets(self, name: str) -> list[str]:
        """Return the nodes that read a node, in order."""
        return [other for other in self.order if name in self.sources[other]]


def nir_package() -> ModuleType:
    """Return the package `nir`, or say how to get it."""
    try:
        import nir
    except ImportError:
        raise ImportError("NIR graphs need the package nir: run `pip install 'sswim[nir]'`.") from None
    return nir


def facts_of(graph: NIRGraph) -> Facts:
    """Return the metadata of a graph; refuse what `to_nir` would not have written."""
    facts = graph.metadata if isinstance(graph.metadata, dict) else {}
    for name, (axes, kinds, least) in METADATA.items():
        if name not in facts:
            continue
        value = np.asarray(facts[name])
        known = value.ndim == axes and value.dtype.kind in kinds and value.size > 0 and not np.isnan(value).any()
        if not known or value.min() < least:
            what = "whole numbers" if kinds == "iu" else "numbers"
            rule = f"{what} of {axes} axes" + (f", >= {least:g}" if least > -np.inf else "")
            raise ValueError(f"graph: {name} in the metadata must be {rule}, got {facts[name]!r:.60}.")
    return facts


def plan(graph: NIRGraph) -> Plan:
    """Return in which order the nodes of a graph are computed, and their shapes. Refuse a graph that is not whole.

    `nir` itself accepts unknown edges, cycles and wrong shapes where it was asked not to check types.
    """
    nir = nir_package()
    if not isinstance(graph, nir.NIRGraph):
        raise TypeError(f"graph must be a nir.NIRGraph, got {type(graph).__name__}. Read a file with read_nir(path).")
    wrong = _kinds(graph.nodes)
    _refuse(wrong)
    sources: dict[str, list[str]] = {name: [] for name in graph.nodes}
    wrong += _edges(graph, sources)
    _refuse(wrong)
    try:
        order = tuple(TopologicalSorter(sources).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ValueError(f"graph: {cycle} is a cycle. Recurrent networks are not supported: remove one of its edges.") from None
    shapes: dict[str, Shape] = {}
    for name in order:
        try:
            shapes[name] = _shape(name, graph.nodes[name], [(other, shapes[other]) for other in sources[name]])
        except ValueError as error:
            raise ValueError(f"graph: {error}") from None
    return Plan(order, {name: tuple(others) for name, others in sources.items()}, shapes)


def _refuse(wrong: list[str]) -> None:
    if wrong:
        more = f" And {len(wrong) - LISTED} more." if len(wrong) > LISTED else ""
        raise ValueError("graph: " + " ".join(wrong[:LISTED]) + more)


def _kinds(nodes: Mapping[str, NIRNode]) -> list[str]:
    """Return what is wrong with the kinds of nodes."""
    kinds = {name: type(node).__name__ for name, node in nodes.items()}
    wrong = [f"the node {n!r} is a {k}, which is not supported." for n, k in kinds.items() if k not in NODES]
    if wrong:
        return [*wrong, f"Supported are {', '.join(NODES)}."]
    inputs = [name for name, kind in kinds.items() if kind == "Input"]
    if len(inputs) != 1:
        wrong.append(f"it must have one Input node, got {inputs or 'none'}.")
    if "Output" not in kinds.values():
        wrong.append("it must have an Output node, got none.")
    return wrong


def _edges(graph: NIRGraph, sources: dict[str, list[str]]) -> list[str]:
    """Fill in the nodes that each node reads; return what is wrong with the edges."""
    wrong = []
    for edge in graph.edges:
        if not (isinstance(edge, (tuple, list)) and len(edge) == 2):
            wrong.append(f"an edge must be two names, got {edge!r}.")
            continue
        source, target = edge
        unknown = [name for name in (source, target) if name not in sources]
        if unknown:
            wrong.append(f"the edge {source!r} -> {target!r} names {unknown[0]!r}, which is not a node.")
        elif source == target:
            wrong.append(f"the edge {source!r} -> {target!r} is recurrent, which is not supported.")
        elif source in sources[target]:
            wrong.append(f"the edge {source!r} -> {target!r} is there twice.")
        else:
            sources[target].append(source)
    read = {name for names in sources.values() for name in names}
    for name, node in graph.nodes.items():
        kind = type(node).__name__
        if kind == "Input" and sources[name]:
            wrong.append(f"the Input node {name!r} reads {sources[name][0]!r}: it must read nothing.")
        if kind != "Input" and not sources[name]:
            wrong.append(f"nothing leads to the node {name!r}.")
        if kind == "Output" and name in read:
            wrong.append(f"an edge leaves the Output node {name!r}.")
        if kind != "Output" and name not in read:
            wrong.append(f"no edge leaves the node {name!r}.")
    return wrong


def _shape(name: str, node: NIRNode, sources: list[tuple[str, Shape]]) -> Shape:
    """Return the shape of what a node puts out; refuse parameters and inputs that do not fit it."""
    kind = type(node).__name__
    if kind == "Input":
        return _declared(name, node.input_type)
    came = sources[0][1]
    for other, shape in sources[1:]:
        if shape != came:
            raise ValueError(f"{name!r} reads {sources[0][0]!r} of shape {came} and {other!r} of shape {shape}.")
    takes, gives = _WIDTHS.get(kind, _neurons)(name, node, came)
    if takes != came:
        raise ValueError(f"{name!r} takes the shape {takes}, but {sources[0][0]!r} puts out {came}.")
    return gives


def _declared(name: str, types: Mapping[str, object] | None) -> Shape:
    """Return the shape that a node says it has."""
    found = list((types or {}).values())
    array = np.asarray(found[0] if len(found) == 1 else None)
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size or (array < 1).any():
        raise ValueError(f"{name!r} must say one shape of whole numbers >= 1, got {found}.")
    return tuple(int(n) for n in array)


def _numbers(name: str, node: NIRNode, parameter: str) -> np.ndarray:
    """Return a node's parameter, if it is finite numbers."""
    value = np.asarray(getattr(node, parameter, None))
    if value.dtype.kind not in "iuf" or not np.isfinite(value).all():
        raise ValueError(f"{name!r}: {parameter} must be finite numbers, got {value.dtype} {value!r:.60}.")
    if parameter in POSITIVE and (value <= 0).any():
        raise ValueError(f"{name!r}: {parameter} must be > 0, got {value.min()}.")
    if parameter == "delay" and (value < 0).any():
        raise ValueError(f"{name!r}: delay must be >= 0, got {value.min()}.")
    return value


def _neurons(name: str, node: NIRNode, came: Shape) -> tuple[Shape, Shape]:
    parameters = {p: _numbers(name, node, p).shape for p in NODES[type(node).__name__]}
    shape = next(iter(parameters.values()))
    odd = [f"{p} {s}" for p, s in parameters.items() if s != shape]
    if odd:
        raise ValueError(f"{name!r}: all parameters must have the shape {shape}, got {', '.join(odd)}.")
    return shape, shape


def _map(name: str, node: NIRNode, came: Shape) -> tuple[Shape, Shape]:
    weight = _numbers(name, node, "weight")
    if weight.ndim != 2:
        raise ValueError(f"{name!r}: weight must have the shape (outputs, inputs), got {weight.shape}.")
    if type(node).__name__ == "Affine" and _numbers(name, node, "bias").shape != weight.shape[:1]:
        raise ValueError(f"{name!r}: bias must have the shape {weight.shape[:1]}, got {np.shape(node.bias)}.")
    return weight.shape[1:], weight.shape[:1]


def _slide(name: str, node: NIRNode, came: Shape) -> tuple[Shape, Shape]:
    """Return the shapes of a convolution, or of sums over regions: maps first, then the axes of space."""
    axes = AXES[type(node).__name__]
    if len(came) != axes + 1:
        raise ValueError(f"{name!r} reads maps of {axes} axes, (maps, ...), but gets the shape {came}.")
    maps = taken = came[0]
    if type(node).__name__ != "SumPool2d":
        maps, taken = _filters(name, node, axes)
    given = getattr(node, "input_shape", None)
    if given is not None and tuple(np.ravel(given).tolist()) != came[1:]:
        told = tuple(np.ravel(given).tolist())
        raise ValueError(f"{name!r}: input_shape is {told}, but its maps are laid out as {came[1:]}.")
    try:
        places = sliding(node).places(came[1:])
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    if min(places) < 1:
        raise ValueError(f"{name!r}: its window is longer than the maps that it reads, {came[1:]}.")
    return (taken, *came[1:]), (maps, *places)


def _filters(name: str, node: NIRNode, axes: int) -> tuple[int, int]:
    """Return how many filters a convolution has, and how many maps it reads."""
    weight, groups = _numbers(name, node, "weight"), np.asarray(node.groups)
    if weight.ndim != axes + 2 or not weight.size:
        raise ValueError(f"{name!r}: weight must have the shape (filters, maps, {axes} lengths), got {weight.shape}.")
    if groups.shape != () or groups.dtype.kind not in "iu" or groups < 1 or weight.shape[0] % groups:
        raise ValueError(
            f"{name!r}: groups must be a whole number that divides {weight.shape[0]} filters, got {node.groups!r}."
        )
    if _numbers(name, node, "bias").shape != weight.shape[:1]:
        raise ValueError(f"{name!r}: bias must have the shape {weight.shape[:1]}, got {np.shape(node.bias)}.")
    return weight.shape[0], weight.shape[1] * int(groups)


def _output(name: str, node: NIRNode, came: Shape) -> tuple[Shape, Shape]:
    shape = _declared(name, node.output_type)
    return shape, shape


def _flatten(name: str, node: NIRNode, came: Shape) -> tuple[Shape, Shape]:
    start, end = (int(d) + len(came) * (int(d) < 0) for d in (node.start_dim, node.end_dim))
    if not 0 <= start <= end < len(came):
        raise ValueError(f"{name!r} flattens the axes {node.start_dim} to {node.end_dim}, but reads {len(came)} axes.")
    return came, (*came[:start], int(np.prod(came[start : end + 1])), *came[end + 1 :])


_WIDTHS: dict[str, Callable[[str, NIRNode, Shape], tuple[Shape, Shape]]] = {
    "Affine": _map,
    "Linear": _map,
    **dict.fromkeys(AXES, _slide),
    "Output": _output,
    "Flatten": _flatten,
}
