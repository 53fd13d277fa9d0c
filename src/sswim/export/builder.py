"""Puts the nodes and edges of an NIR graph together, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sswim.export.filters import kernels_of, poolings_of
from sswim.export.graph import nir_package
from sswim.export.neurons import LeakyLayer
from sswim.network.grid import Grid
from sswim.readout.decaying import TraceReadout
from sswim.report import Facts

if TYPE_CHECKING:
    from nir import NIRGraph, NIRNode

__all__ = ["Builder"]


@dataclass(frozen=True)
class Features:
    """What a node puts out of a layer, in a row.

    Attributes
    ----------
    node : str
    width : int
        Length of the row.
    own, at : array of shape (features,)
        Numbers of the layer's features that are here, and where in the row.
    """

    node: str
    width: int
    own: np.ndarray
    at: np.ndarray

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (readers, width) of the row, from those (readers, features) of the layer."""
        if np.array_equal(self.own, self.at) and self.width == weights.shape[1]:
            return weights.copy()
        found = np.zeros((self.width, len(weights)), dtype=weights.dtype)
        np.add.at(found, self.at, weights.T[self.own])
        return found.T.copy()


class Builder:
    """Puts nodes and edges together.

    Parameters
    ----------
    dt : float
    scaled : set of str
        Kinds of neurons whose input is scaled by the weights.
    threshold : float
    """

    def __init__(self, dt: float, scaled: frozenset[str], threshold: float) -> None:
        self.dt, self.scaled, self.threshold, self.nir = dt, scaled, threshold, nir_package()
        self.nodes: dict[str, NIRNode] = {}
        self.edges: list[tuple[str, str]] = []
        self.last = ""
        self.layers: list[list[Features]] = []
        self._before: list[Features] = []

    def _add(self, name: str, node: NIRNode, *sources: str) -> None:
        self.nodes[name], self.last = node, name
        self.edges += [(source, name) for source in sources]

    def add_input(self, first: LeakyLayer) -> None:
        """Add what the first layer reads: channels in a row, or maps."""
        width = first.weights.shape[1]
        shape = (width,) if first.grid is None else (first.grid.maps, *kernels_of(first.grid, first.weights).space)
        self._add("input", self.nir.Input(np.array(shape)))
        self._before = [Features("input", width, np.arange(width), np.arange(width))]

    def add_layer(self, layer: LeakyLayer) -> None:
        """Add weights, lags, neurons, and the sums over the regions of filters."""
        number = len(self.layers) + 1
        scale = self._scale(layer)
        weights = layer.weights if scale is None else layer.weights * scale[:, None]
        across: tuple[int, ...] = ()
        if layer.grid is None:
            maps = self._dense(number, weights)
        else:
            maps = [self._filters(number, layer.grid, weights)]
            across = (1, *layer.grid.across)[-2:]
        if layer.lags.any():
            self._add(f"delay_{number}", self.nir.Delay(_everywhere(layer.lags * self.dt, across)), *maps)
            maps = [self.last]
        self._add(f"layer_{number}", self._neurons(layer, scale, across), *maps)
        self._before = [Features(self.last, len(weights), np.arange(len(weights)), np.arange(len(weights)))]
        if layer.grid is not None:
            self._before = self._regions(number, layer.grid, len(weights))
        self.layers.append(self._before)

    def _scale(self, layer: LeakyLayer) -> np.ndarray | None:
        """Return what the weights of a layer are multiplied by, if a program wants its input scaled there."""
        if layer.kind not in self.scaled:
            return None
        return layer.gains if layer.kind == "CubaLIF" else 1 / _rounded_rate(self.dt / (1 - layer.decays), self.dt)

    def _dense(self, number: int, weights: np.ndarray) -> list[str]:
        """Add the weights of a dense layer: a node for each node that it reads."""
        names = []
        for part, features in enumerate(self._before, start=1):
            name = f"weights_{number}" if len(self._before) == 1 else f"weights_{number}_{part}"
            self._add(name, self.nir.Linear(features.spread(weights)), features.node)
            names.append(name)
        return names

    def _filters(self, number: int, grid: Grid, weights: np.ndarray) -> str:
        """Add the weights of filters, which read maps: the input, or the regions of the layer before."""
        kernels, name = kernels_of(grid, weights), f"weights_{number}"
        source = "input" if number == 1 else f"pool_{number - 1}"
        self._add(
            name,
            self.nir.Conv2d(
                input_shape=kernels.space,
                weight=kernels.weights,
                stride=kernels.stride,
                padding=kernels.padding,
                dilation=(1, 1),
                groups=1,
                bias=np.zeros(len(weights), dtype=weights.dtype),
            ),
            source,
        )
        return name

    def _regions(self, number: int, grid: Grid, filters: int) -> list[Features]:
        """Add sums over regions, and return them as features."""
        layer, found, first = self.last, [], 0
        poolings = poolings_of(grid)
        for part, pooling in enumerate(poolings, start=1):
            tail = f"{number}" if len(poolings) == 1 else f"{number}_{part}"
            window = [np.array(pair) for pair in (pooling.kernel, pooling.stride, (0, 0))]
            self._add(f"pool_{tail}", self.nir.SumPool2d(*window), layer)
            shape = np.array([filters, *pooling.shape])
            self._add(f"flat_{tail}", self.nir.Flatten({"input": shape}, start_dim=0, end_dim=-1), self.last)
            each, k = int(np.prod(pooling.shape)), np.arange(filters)
            own = np.add.outer(k * grid.regions, first + np.arange(len(pooling.at))).ravel()
            found.append(Features(self.last, filters * each, own, np.add.outer(k * each, pooling.at).ravel()))
            first += len(pooling.at)
        return found

    def _neurons(self, layer: LeakyLayer, scale: np.ndarray | None, across: tuple[int, ...]) -> NIRNode:
        """Return the neurons of a layer; those of filters are at all places."""
        ones = np.ones(len(layer.weights))
        rest = {"v_threshold": self.threshold * ones, "v_reset": 0 * ones}
        if layer.kind == "IF":
            kind, values = self.nir.IF, {"r": ones / self.dt, **rest}
        else:
            tau = self.dt / (1 - layer.decays)  # (N,), float64
            r, rest = tau / self.dt, {"v_leak": 0 * ones, **rest}
            if layer.kind == "LIF":
                kind, values = self.nir.LIF, {"tau": tau, "r": r if scale is None else r / scale, **rest}
            else:
                w_in = r * (layer.gains if scale is None else ones)
                kind, values = self.nir.CubaLIF, {"tau_syn": tau, "tau_mem": tau, "r": r, "w_in": w_in, **rest}
        return kind(**{name: _everywhere(value, across) for name, value in values.items()})

    def add_readout(self, readout: TraceReadout) -> None:
        """Add one leaky integrator per layer and time constant, and the affine map that reads them all."""
        W, b = (p.detach().cpu().numpy() for p in (readout.weights, readout.biases))  # (R, N K), (R,)
        K, branches, first = len(readout.constants), [], 0
        for number, parts in enumerate(self.layers, start=1):
            width = sum(len(features.own) for features in parts)
            for part, features in enumerate(parts, start=1):
                for k, constant in enumerate(readout.constants):
                    tail = f"{number}_{k + 1}" if len(parts) == 1 else f"{number}_{part}_{k + 1}"
                    self._add(f"trace_{tail}", self._integrator(constant, features.width), features.node)
                    weights = features.spread(W[:, first + k : first + width * K : K])
                    branches.append((f"trace_{tail}", f"readout_{tail}", weights))
            first += width * K
        if len(branches) == 1:
            trace, name, weights = branches[0]
            return self._add(name, self.nir.Affine(weights, b), trace)
        for trace, name, weights in branches:
            self._add(name, self.nir.Linear(weights), trace)
        self._add("sum", self.nir.Affine(np.eye(len(b), dtype=b.dtype), b), *(name for _, name, _ in branches))

    def _integrator(self, constant: float, width: int) -> NIRNode:
        """Return the traces of a layer: leaky integrators, or integrators if nothing fades."""
        ones = np.ones(width)
        if constant == np.inf:
            return self.nir.I(r=ones / self.dt)
        tau = self.dt / (1 - np.exp(-1 / constant)) * ones
        return self.nir.LI(tau=tau, r=tau / self.dt, v_leak=0 * ones)

    def finish(self, facts: Facts) -> NIRGraph:
        """Return the graph."""
        width = next(iter(self.nodes[self.last].output_type.values()))
        self._add("output", self.nir.Output(np.asarray(width)), self.last)
        return self.nir.NIRGraph(self.nodes, self.edges, metadata=facts)


def _everywhere(values: np.ndarray, across: tuple[int, ...]) -> np.ndarray:
    """Return values (filters,) at all places, (filters, *across)."""
    return np.broadcast_to(values.reshape(-1, *[1] * len(across)), (len(values), *across)).copy()


def _rounded_rate(tau: np.ndarray, dt: float) -> np.ndarray:
    """Return dt / tau as a reader in float32 has it: weights over this, times it, are the weights again, to the last bit."""
    return (np.float32(dt) * (np.float32(1) / tau.astype(np.float32))).astype(np.float64)
