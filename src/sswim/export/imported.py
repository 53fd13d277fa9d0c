"""NIR graphs as networks of sswim: the way back from `to_nir`, and into sswim for feed-forward graphs of other programs."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from sswim.export.files import read_nir
from sswim.export.filters import convolution_of, layout_of
from sswim.export.graph import NODES, Plan, facts_of, plan
from sswim.export.interpreter import WHOLE, reset_of, time_step
from sswim.network.grid import Convolution
from sswim.network.network import SpikingNetwork
from sswim.options import check_integer
from sswim.readout.decaying import TraceReadout
from sswim.report import Facts
from sswim.steps.leaky import FOREVER

if TYPE_CHECKING:
    from nir import NIRGraph, NIRNode

__all__ = ["from_nir"]

NEURONS = ("LIF", "CubaLIF", "IF")
MAPS = ("Affine", "Linear", "Scale", "Flatten")
FILTERS = ("Conv1d", "Conv2d")
# Features that a readout is followed through at most: it is computed with square matrices of that size.
MOST = 20_000


def from_nir(
    graph: NIRGraph | str | os.PathLike[str],
    *,
    window: int | None = None,
    dt: float | None = None,
    reset: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> SpikingNetwork:
    """Return the network of an NIR graph: layers of LIF, CubaLIF or IF neurons one after the other, and what reads them.

    Parameters
    ----------
    graph : nir.NIRGraph, or a path
    window : int, optional
        Steps of the input. Default: what the metadata say.
    dt : float, optional
        Time step in seconds. Default: what the metadata say.
    reset : {"subtract"}, optional
        sswim's neurons subtract the threshold after a spike. A graph whose metadata do not say so is refused, unless this says
        that it is meant so.
    dtype : torch.dtype

    Returns
    -------
    SpikingNetwork
        Its outputs are those of the graph at the window's last step. If the graph ends with spikes, they are the number of
        spikes of each neuron of the last layer. Conv1d or Conv2d, neurons and SumPool2d are a `Convolution`.
    """
    if isinstance(graph, (str, os.PathLike)):
        graph = read_nir(graph)
    found, facts = plan(graph), facts_of(graph)
    step = time_step(graph, dt)
    if reset_of(graph, reset) != "subtract":
        raise ValueError(
            "reset: this graph sets potentials to v_reset after a spike, and sswim's neurons subtract the threshold. Pass "
            "reset='subtract' if that is what was meant: NIR has no parameter for it."
        )
    if window is None and "window" not in facts:
        raise ValueError("window: the graph's metadata do not tell it. Pass the number of steps of the input.")
    chain, ends = _chain(graph, found)
    if len(facts.get("leads", chain)) != len(chain):
        raise ValueError(f"graph: leads in the metadata must be one number for each of {len(chain)} layers.")
    ways = list(zip(chain, ends, strict=True))
    layers = [_layer(graph, found, names, end, step, facts, number) for number, (names, end) in enumerate(ways)]
    readout = _readout(graph, found, chain, ends, step, facts, dtype)
    entered = next(found.shapes[name] for name in found.order if _kind(graph, name) == "Input")
    filters = isinstance(layers[0].shape, Convolution)
    network = SpikingNetwork(
        math.prod(entered) if filters else layers[0].weights.shape[1],
        readout.outputs,
        window=check_integer("window", int(facts["window"]) if window is None else window, 1),
        horizon=readout.horizon,
        hidden=[layer.shape for layer in layers],
        layout=layout_of(entered, facts.get("layout")) if filters else None,
        kernel=[layer.kernel for layer in layers],
        refractory="exponential",
        readout=readout,
        dtype=dtype,
    )
    with torch.no_grad():
        for layer, parts in zip(network.layers, layers, strict=True):
            for name in ("weights", "supports", "delays"):
                getattr(layer, name).copy_(torch.from_numpy(getattr(parts, name)))
            layer.refractory_supports.copy_(layer.supports), layer.costs.fill_(-1)
    return network


@dataclass(frozen=True)
class _Layer:
    """A layer's width or filters, its kernel by name, and its parameters in float64."""

    shape: int | Convolution
    kernel: str
    weights: np.ndarray
    supports: np.ndarray
    delays: np.ndarray


def _kind(graph: NIRGraph, name: str) -> str:
    return type(graph.nodes[name]).__name__


def _chain(graph: NIRGraph, found: Plan) -> tuple[list[list[str]], list[str]]:
    """Return the nodes of each layer, those between it and the layer before included; its neurons come last.

    Return also the node that each layer ends with: its neurons, or the sums of filters over regions.
    """
    chain: list[list[str]] = []
    ends = [next(n for n in found.order if _kind(graph, n) == "Input")]
    for name in (n for n in found.order if _kind(graph, n) in NEURONS):
        names, start = [name], ends[-1]
        while names[0] != start:
            sources = found.sources[names[0]]
            kinds = (*MAPS, *FILTERS, "Delay", "Input", *NEURONS)
            if len(sources) != 1 or (sources[0] != start and _kind(graph, sources[0]) not in kinds):
                raise ValueError(
                    f"graph: {names[0]!r} reads {', '.join(map(repr, sources))}. Layers must follow one after the other, each "
                    "with one map (Affine, Linear, Conv1d, Conv2d) and possibly a Delay before it, and filters with one "
                    "SumPool2d after them."
                )
            if sources[0] != start and _kind(graph, sources[0]) in (*NEURONS, "Input"):
                raise ValueError(f"graph: {names[0]!r} reads {sources[0]!r}, not the layer before it, {start!r}.")
            names.insert(0, sources[0])
        chain.append(names[1:])
        ends.append(_end(graph, found, chain[-1]))
    if not chain:
        raise ValueError(f"graph: it must have neurons ({' or '.join(NEURONS)}), got none.")
    return chain, ends[1:]


def _end(graph: NIRGraph, found: Plan, names: list[str]) -> str:
    """Return the node that a layer ends with."""
    name = names[-1]
    readers = found.targets(name)
    pools = [other for other in readers if _kind(graph, other) == "SumPool2d"]
    if not pools or not {_kind(graph, other) for other in names} & set(FILTERS):
        return name
    if len(readers) > 1:
        raise ValueError(f"graph: {', '.join(map(repr, readers))} read {name!r}. Filters must be read by one SumPool2d alone.")
    return pools[0]


def _filters(graph: NIRGraph, found: Plan, names: list[str], end: str) -> tuple[Convolution, np.ndarray] | None:
    """Return the filters of a layer and their weights; None for a dense layer."""
    kinds = [_kind(graph, name) for name in names]
    if not set(kinds) & set(FILTERS):
        return None
    if kinds[0] not in FILTERS or set(kinds[1:-1]) - {"Delay"}:
        raise ValueError(f"graph: there must be one Conv1d or Conv2d before {names[-1]!r}, and at most a Delay between them.")
    came = found.shapes[found.sources[names[0]][0]]
    try:
        return convolution_of(graph.nodes[names[0]], None if end == names[-1] else graph.nodes[end], came[1:])
    except ValueError as error:
        raise ValueError(f"graph: {names[0]!r}: {error}") from None


def _of_filters(name: str, node: NIRNode) -> NIRNode:
    """Return neurons with one number for each filter, from those at all places; refuse places that differ."""
    values = {}
    for parameter in NODES[type(node).__name__]:
        value = np.asarray(getattr(node, parameter), dtype=float)
        flat = value.reshape(len(value), -1)
        if (flat != flat[:, :1]).any():
            raise ValueError(f"graph: {name!r}: {parameter} must be the same at all places of a filter.")
        values[parameter] = flat[:, 0]
    return type(node)(**values)


def _matrix(node: NIRNode) -> tuple[np.ndarray, np.ndarray | float]:
    """Return a map's weights (outputs, inputs) and biases."""
    match type(node).__name__:
        case "Affine":
            return np.asarray(node.weight, dtype=float), np.asarray(node.bias, dtype=float)
        case "Linear":
            return np.asarray(node.weight, dtype=float), 0.0
    return np.diag(np.asarray(node.scale, dtype=float).ravel()), 0.0


def _layer(graph: NIRGraph, found: Plan, names: list[str], end: str, dt: float, facts: Facts, number: int) -> _Layer:
    """Return one layer, from its maps, delays and neurons."""
    *before, name = names
    node, cascade = graph.nodes[name], _kind(graph, name) == "CubaLIF"
    filters = _filters(graph, found, names, end)
    if filters is None:
        W, lags = _before(graph, found, before, name, dt)  # (N, D), (N,)
        shape: int | Convolution = len(W)
    else:
        (shape, W), node, lags = filters, _of_filters(name, node), np.zeros(len(filters[1]))
        if len(before) == 2:
            lags = _of_filters(before[1], graph.nodes[before[1]]).delay / dt
    if number == 0 and "lags" in facts:
        W, late = _without_lag_line(W, np.asarray(facts["lags"]))
        lags = lags + late
    elif "leads" in facts:
        lags = lags + facts["leads"][number] - facts["leads"][max(number - 1, 0)]
    if np.any(np.asarray(getattr(node, "v_leak", 0.0))):
        raise ValueError(f"graph: {name!r}: v_leak must be 0, got {np.abs(node.v_leak).max():.3g}.")
    sigma, gain = _times(name, node, dt, cascade)
    threshold = facts.get("fires_at", np.asarray(node.v_threshold, dtype=float).ravel())
    delays = np.rint(lags) - cascade
    if np.abs(lags - np.rint(lags)).max() > WHOLE * max(1, lags.max()):
        raise ValueError(f"graph: delays before {name!r} must be whole steps of dt = {dt}, got {lags.max():.6g} steps.")
    return _Layer(shape, "alpha" if cascade else "exponential", W * (gain / threshold)[:, None], sigma, delays)


def _before(graph: NIRGraph, found: Plan, before: list[str], name: str, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the product of all maps before neurons, and how many steps late it comes."""
    size = math.prod(found.shapes[name])
    W, lags = None, np.zeros(size)
    for other in before:
        node = graph.nodes[other]
        if _kind(graph, other) == "Delay":
            if other != before[-1]:
                raise ValueError(f"graph: the Delay node {other!r} must come right before the neurons {name!r}.")
            lags = np.asarray(node.delay, dtype=float).ravel() / dt
            continue
        if _kind(graph, other) == "Flatten":
            continue
        matrix, bias = _matrix(node)
        if np.any(bias):
            raise ValueError(f"graph: {other!r} leads to neurons, so its bias must be 0, got {np.abs(bias).max():.3g}.")
        W = matrix if W is None else matrix @ W
    return np.eye(size) if W is None else W, lags


def _times(name: str, node: NIRNode, dt: float, cascade: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the supports of a layer, and what its weights are multiplied by."""
    if not hasattr(node, "tau") and not cascade:  # IF
        gain = np.asarray(node.r, dtype=float).ravel() * dt
        return np.full_like(gain, FOREVER), gain
    tau, r = (np.asarray(getattr(node, p), dtype=float).ravel() for p in ("tau_mem" if cascade else "tau", "r"))
    if cascade and not np.allclose(node.tau_syn, tau.reshape(np.shape(node.tau_syn)), rtol=1e-6):
        raise ValueError(f"graph: {name!r}: tau_syn and tau_mem must be equal, as in sswim's alpha kernel.")
    if (tau <= dt).any():
        raise ValueError(f"graph: {name!r}: time constants must be > dt = {dt}, got {tau.min():.3g}. Use a smaller dt.")
    sigma = -1 / np.log1p(-dt / tau)
    gain = r * dt / tau
    if cascade:
        gain = gain * np.asarray(node.w_in, dtype=float).ravel() * dt / tau * sigma / (math.e * (1 - dt / tau))
    return sigma, gain


def _without_lag_line(W: np.ndarray, lags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (neurons, inputs) that read a lag line, and the lag that each neuron reads."""
    if W.shape[1] % len(lags):
        raise ValueError(f"graph: the metadata list {len(lags)} lags, but the input has {W.shape[1]} channels.")
    line = W.reshape(len(W), len(lags), -1)  # (N, L, D)
    used = line.any(axis=2)
    if (used.sum(axis=1) > 1).any():
        raise ValueError(f"graph: neuron {int(used.sum(axis=1).argmax())} of the first layer reads several lags of the input.")
    own = used.argmax(axis=1)
    return line[np.arange(len(W)), own], lags[own].astype(float)


# What a node puts out, as a map of spikes of layers (None) or of their traces (a time constant): (size, neurons) each.
_Parts = dict[tuple[int, float | None], np.ndarray]


def _readout(
    graph: NIRGraph, found: Plan, chain: list[list[str]], ends: list[str], dt: float, facts: Facts, dtype: torch.dtype
) -> TraceReadout:
    """Return the readout: what leads from the spikes of all layers to the output."""
    widths = [math.prod(found.shapes[end]) for end in ends]
    if max(widths) > MOST:
        raise ValueError(
            f"graph: a layer puts out {max(widths):,} features, more than {MOST:,}. Add a SumPool2d, or larger regions."
        )
    outputs = [name for name in found.order if _kind(graph, name) == "Output"]
    if len(outputs) != 1:
        raise ValueError(f"graph: it must have one Output node, got {', '.join(map(repr, outputs))}.")
    if all(f"readout_{part}" in facts for part in ("constants", "weights", "biases")):
        constants, W, b = (np.asarray(facts[f"readout_{p}"], dtype=float) for p in ("constants", "weights", "biases"))
    else:
        parts, b = _followed(graph, found, chain, ends, dt)[outputs[0]]
        if {constant for _, constant in parts} == {None}:
            parts = {(layer, math.inf): matrix for (layer, _), matrix in parts.items()}  # spikes are counted
        if any(constant is None for _, constant in parts):
            raise ValueError("graph: the output reads spikes as well as traces of spikes (LI, I). It must read one of them.")
        constants = np.array(sorted({float(constant) for _, constant in parts if constant is not None}))
        zeros = [np.zeros((len(b), width, len(constants))) for width in widths]
        for (layer, constant), matrix in parts.items():
            zeros[layer][:, :, int(np.searchsorted(constants, float(constant)))] = matrix  # type: ignore[arg-type]
        W = np.concatenate([block.reshape(len(b), -1) for block in zeros], axis=1)
    horizon = int(facts.get("horizon", 1))
    if len(b) % horizon or W.shape != (len(b), sum(widths) * len(constants)):
        raise ValueError(f"graph: its readout has the shape {W.shape}, which does not fit {sum(widths)} neurons.")
    readout = TraceReadout(W.shape[1], len(b) // horizon, horizon, constants=constants.tolist(), dtype=dtype)
    with torch.no_grad():
        readout.weights.copy_(torch.from_numpy(W)), readout.biases.copy_(torch.from_numpy(b))
    return readout


def _followed(
    graph: NIRGraph, found: Plan, chain: list[list[str]], ends: list[str], dt: float
) -> dict[str, tuple[_Parts, np.ndarray]]:
    """Return what each node after the layers puts out, as a map of their spikes or traces, and its constant part."""
    known: dict[str, tuple[_Parts, np.ndarray]] = {}
    for l, end in enumerate(ends):
        width = math.prod(found.shapes[end])
        known[end] = {(l, None): np.eye(width)}, np.zeros(width)
    inside = {name for names in chain for name in names} | set(ends)
    for name in found.order:
        sources = found.sources[name]
        flat = _kind(graph, name) == "Flatten" and sources[0] in known  # what a next layer reads, a readout may read too
        if (name in inside and not flat) or not sources:
            continue
        for source in sources:
            if source not in known:
                raise ValueError(f"graph: {name!r} reads {source!r}, which is not the output of a layer.")
        parts: _Parts = {}
        for source in sources:
            for key, matrix in known[source][0].items():
                parts[key] = parts[key] + matrix if key in parts else matrix
        b = sum((known[source][1] for source in sources[1:]), start=known[sources[0]][1])
        node, kind = graph.nodes[name], _kind(graph, name)
        if kind in ("Output", "Flatten"):
            known[name] = parts, b
        elif kind in MAPS:
            matrix, bias = _matrix(node)
            known[name] = {key: matrix @ part for key, part in parts.items()}, matrix @ b + bias
        elif kind in ("LI", "I") and not b.any() and all(constant is None for _, constant in parts):
            known[name] = _traced(name, node, parts, dt), b
        else:
            raise ValueError(
                f"graph: the {kind} {name!r} comes after the layers. A readout is made of LI or I, with biases of 0 before "
                f"them, and of {', '.join(MAPS)}."
            )
    return known


def _traced(name: str, node: NIRNode, parts: _Parts, dt: float) -> _Parts:
    """Return the traces that integrators have of spikes."""
    r = np.asarray(node.r, dtype=float).ravel()
    if type(node).__name__ == "I":
        return {(layer, math.inf): (r * dt)[:, None] * part for (layer, _), part in parts.items()}
    tau = np.asarray(node.tau, dtype=float).ravel()
    if (tau <= dt).any() or np.any(np.asarray(node.v_leak)):
        raise ValueError(f"graph: {name!r} must have time constants larger than dt = {dt}, and v_leak = 0.")
    constants = np.array([float(f"{c:.10g}") for c in -1 / np.log1p(-dt / tau)])
    gain = (r * dt / tau)[:, None]
    return {
        (layer, float(c)): np.where((constants == c)[:, None], gain * part, 0.0)
        for (layer, _), part in parts.items()
        for c in np.unique(constants)
    }
