"""What the host computes for programs that know neither delays nor leaky integrators: a lag line before, a readout after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sswim.export.graph import facts_of

if TYPE_CHECKING:
    from nir import NIRGraph

__all__ = ["lag_line", "read_spikes"]


def lag_line(graph: NIRGraph, inputs: npt.ArrayLike) -> np.ndarray:
    """Return what the Input node of a graph is fed with: the inputs once for every lag that the metadata list, or as maps.

    Parameters
    ----------
    graph : nir.NIRGraph
        From `to_nir`.
    inputs : array of shape (batch, time, inputs)

    Returns
    -------
    array of shape (batch, time, lags * inputs)
        Channel ``k * inputs + j`` is input `j`, `lags[k]` steps late. The inputs themselves if there is no lag line. For
        filters: (batch, time, maps, rows, columns).

    Examples
    --------
    >>> import nir
    >>> graph = nir.NIRGraph.from_list(nir.Linear(np.eye(2)))
    >>> graph.metadata = {"lags": np.array([0, 2])}
    >>> lag_line(graph, np.arange(1.0, 5.0).reshape(1, 4, 1))[0].T
    array([[1., 2., 3., 4.],
           [0., 0., 1., 2.]])
    """
    x = np.asarray(inputs)
    lags = [int(lag) for lag in facts_of(graph).get("lags", [0])]
    if x.ndim != 3:
        raise ValueError(f"inputs must have the shape (batch, time, inputs), got {x.shape}.")
    width = int(np.prod(next(iter(graph.inputs.values())).input_type["input"]))
    if x.shape[2] * len(lags) != width:
        raise ValueError(f"inputs must have {width // len(lags)} channels, got {x.shape[2]}.")
    shape = tuple(int(n) for n in next(iter(graph.inputs.values())).input_type["input"])
    if len(shape) > 1:
        return _as_maps(x, shape, facts_of(graph).get("layout"))
    late = [np.pad(x, ((0, 0), (lag, 0), (0, 0)))[:, : x.shape[1]] for lag in lags]
    return np.concatenate(late, axis=2)


def _as_maps(x: np.ndarray, shape: tuple[int, ...], given: np.ndarray | None) -> np.ndarray:
    """Return inputs (batch, time, channels) as maps (batch, time, *shape); their layout may number maps last."""
    layout = shape if given is None else tuple(int(n) for n in given)
    if np.prod(layout) != np.prod(shape):
        raise ValueError(f"graph: layout in the metadata is {layout}, which does not fit its Input node of shape {shape}.")
    every = x.reshape(*x.shape[:2], *layout)
    if len(layout) == 3 and layout[0] != shape[0]:
        every = np.moveaxis(every, -1, 2)
    return every.reshape(*x.shape[:2], *shape)


def read_spikes(graph: NIRGraph, spikes: np.ndarray | Tensor | Sequence[npt.ArrayLike]) -> np.ndarray:
    """Return the outputs at the window's end, from the spikes of the hidden layers.

    Parameters
    ----------
    graph : nir.NIRGraph
        From `to_nir` with a `reader`: its metadata hold the readout.
    spikes : array of shape (batch, window, neurons), or one per hidden layer
        What the layers of the graph put out, from the first step to the last.

    Returns
    -------
    array of shape (batch, horizon, outputs), float64
    """
    facts = facts_of(graph)
    needed = ["readout_constants", "readout_weights", "readout_biases", "horizon", "outputs", "window"]
    lacking = [name for name in needed if name not in facts]
    if lacking:
        raise ValueError(
            f"graph: its metadata have no {', '.join(lacking)}. Make it by to_nir(..., reader=...); without a reader, the "
            "graph itself computes the outputs."
        )
    layers = [np.asarray(a) for a in ([spikes] if isinstance(spikes, (np.ndarray, Tensor)) else spikes)]
    early = [int(n) for n in facts.get("leads", [0] * len(layers))]
    constants, W = np.asarray(facts["readout_constants"], dtype=float), np.asarray(facts["readout_weights"], dtype=float)
    widths = [a.shape[2] if a.ndim == 3 else 0 for a in layers]
    wrong = any(a.ndim != 3 or a.shape[1] != facts["window"] for a in layers)
    if wrong or len(layers) != len(early) or sum(widths) * len(constants) != W.shape[1]:
        raise ValueError(
            f"spikes must be {len(early)} arrays of shape (batch, {facts['window']}, neurons), one per hidden layer, with "
            f"{W.shape[1] // len(constants)} neurons in all, got {[a.shape for a in layers]}."
        )
    traces = []
    for a, lead in zip(layers, early, strict=True):
        age = np.arange(a.shape[1])[::-1] - lead  # of a step, at the layer's own end
        left = np.where(age >= 0, np.exp(-np.maximum(age, 0) / constants[:, None]), 0.0)  # (K, T)
        traces.append(np.einsum("kt,btn->bnk", left, a.astype(float)).reshape(len(a), -1))
    y = np.concatenate(traces, axis=1) @ W.T + np.asarray(facts["readout_biases"], dtype=float)
    return y.reshape(len(y), int(facts["horizon"]), int(facts["outputs"]))
