r"""NIR graphs, run step by step as NIR defines its nodes: what an exported network does, without any other simulator.

NIR says what a neuron is in continuous time. Its differential equations are solved by one Euler step per time step `dt`:

.. math::
    I \leftarrow I + \tfrac{dt}{\tau_{syn}} (w_{in} x - I), \qquad
    v \leftarrow v + \tfrac{dt}{\tau} (v_{leak} - v + R I), \qquad
    z = [v > v_{threshold}],

the synapse first, so that the membrane sees its new current. After a spike, `v` is set to `v_reset` as NIR says, or
`v_threshold` is subtracted from it where the graph's metadata say so. snnTorch, Norse and SpikingJelly take the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from sswim.export.graph import Plan, facts_of, plan
from sswim.export.spatial import Cuts, sliding
from sswim.options import check_choice, check_positive

if TYPE_CHECKING:
    from nir import NIRGraph, NIRNode

__all__ = ["RESETS", "run_nir", "time_step"]

RESETS = ("subtract", "value")
# Delays are whole steps if they are that close to it.
WHOLE = 1e-6


def time_step(graph: NIRGraph, dt: float | None) -> float:
    """Return the time step of a graph in seconds: `dt`, or what the metadata say."""
    given = facts_of(graph).get("dt") if dt is None else dt
    if given is None:
        raise ValueError("dt: the graph's metadata do not tell its time step. Pass dt, in seconds.")
    return check_positive("dt", given.item() if isinstance(given, np.generic) else given)


def reset_of(graph: NIRGraph, reset: str | None) -> str:
    """Return what happens to a potential after a spike: `reset`, what the metadata say, or what NIR says."""
    told = facts_of(graph).get("reset", "value")
    return check_choice("reset", told if reset is None else reset, RESETS)


def run_nir(
    graph: NIRGraph,
    inputs: npt.ArrayLike,
    *,
    dt: float | None = None,
    reset: str | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> dict[str, np.ndarray]:
    """Run a graph on a batch of inputs.

    Parameters
    ----------
    graph : nir.NIRGraph
        Without cycles. See `sswim.export.graph.NODES` for the nodes that are known.
    inputs : array of shape (batch, time, *shape of the Input node)
    dt : float, optional
        Time step in seconds. Default: what the graph's metadata say.
    reset : {"subtract", "value"}, optional
        Whether a spike subtracts the threshold or sets the potential to `v_reset`. Default: what the graph's metadata say,
        else "value", which is NIR's definition.
    dtype : dtype
        float64 or float32: what is computed in.

    Returns
    -------
    dict of str to array of shape (batch, time, *shape)
        What each node puts out, by its name.

    Examples
    --------
    >>> import nir
    >>> lif = nir.LIF(*(np.array([value]) for value in (2e-4, 2.0, 0.0, 0.9, 0.0)))  # decay 1/2
    >>> graph = nir.NIRGraph.from_list(nir.Linear(np.array([[0.6]])), lif)
    >>> run_nir(graph, np.ones((1, 6, 1)), dt=1e-4)["lif"].ravel()
    array([0., 0., 1., 0., 0., 1.])
    """
    found, step, how = plan(graph), time_step(graph, dt), reset_of(graph, reset)
    name = next(name for name in found.order if type(graph.nodes[name]).__name__ == "Input")
    x = np.asarray(inputs)
    if x.ndim < 2 or x.shape[2:] != found.shapes[name] or x.dtype.kind not in "biuf":
        wanted = ", ".join(map(str, ("batch", "time", *found.shapes[name])))
        raise ValueError(f"inputs must be numbers of shape ({wanted}), got {x.dtype} of shape {x.shape}.")
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {kind}.")
    signals = _run(graph, found, np.moveaxis(x, 1, 0).astype(kind), step, how)
    return {name: np.moveaxis(signal, 0, 1) for name, signal in signals.items()}


def _run(graph: NIRGraph, found: Plan, x: np.ndarray, dt: float, reset: str) -> dict[str, np.ndarray]:
    """Return what each node puts out, (time, batch, *shape)."""
    signals: dict[str, np.ndarray] = {}
    for name in found.order:
        node, sources = graph.nodes[name], found.sources[name]
        kind = type(node).__name__
        came = x if kind == "Input" else sum((signals[s] for s in sources[1:]), start=signals[sources[0]])
        try:
            signals[name] = _STEPS[kind](_Numbers(node, found.shapes[name], came.dtype, dt, reset), came)
        except ValueError as error:
            raise ValueError(f"graph: {name!r}: {error}") from None
    return signals


class _Numbers:
    """A node's parameters in float64, the shape and type of its output, the time step and the reset."""

    def __init__(self, node: NIRNode, shape: tuple[int, ...], dtype: np.dtype, dt: float, reset: str) -> None:
        self.node, self.shape, self.dtype, self.dt, self.reset = node, shape, dtype, dt, reset

    def __call__(self, name: str) -> np.ndarray:
        return np.asarray(getattr(self.node, name)).astype(np.float64)

    def cast(self, name: str) -> np.ndarray:
        """Return a parameter in the type that is computed in."""
        return self(name).astype(self.dtype)

    def rate(self, name: str) -> np.ndarray:
        """Return dt / tau."""
        rate = self.dt / self(name)
        if (rate > 1 + 1e-12).any():
            raise ValueError(f"{name} must be at least dt = {self.dt}, got {self.dt / rate.max():.3g}. Use a smaller dt.")
        return rate


@dataclass(frozen=True)
class _Step:
    """One Euler step, v + rate * (leak - v + gain * x), as v * kept + pulled + x * pushed: that rounds least."""

    kept: np.ndarray
    pulled: np.ndarray
    pushed: np.ndarray
    start: np.ndarray

    @classmethod
    def leaky(cls, n: _Numbers, rate: np.ndarray, gain: np.ndarray, leak: np.ndarray) -> Self:
        return cls(*(part.astype(n.dtype) for part in (1 - rate, rate * leak, rate * gain, leak)))

    @classmethod
    def whole(cls, n: _Numbers) -> Self:
        """Return the step of an integrator, which nothing leaks from."""
        zero = np.zeros_like(n("r"))
        return cls(*(part.astype(n.dtype) for part in (zero + 1, zero, n.dt * n("r"), zero)))

    def run(self, x: np.ndarray) -> np.ndarray:
        """Return the potentials at each step."""
        out, v = np.empty_like(x), self.start
        for t, now in enumerate(x):
            out[t] = v = v * self.kept + self.pulled + now * self.pushed
        return out

    def fire(self, x: np.ndarray, n: _Numbers) -> np.ndarray:
        """Return the spikes."""
        threshold, value = n.cast("v_threshold"), n.cast("v_reset")
        out, v = np.empty_like(x), self.start
        for t, now in enumerate(x):
            v = v * self.kept + self.pulled + now * self.pushed
            z = v > threshold
            out[t] = z
            v = v - threshold * z if n.reset == "subtract" else np.where(z, value, v)
        return out


def _membrane(n: _Numbers, tau: str) -> _Step:
    return _Step.leaky(n, n.rate(tau), n("r"), n("v_leak"))


def _synapse(n: _Numbers) -> _Step:
    return _Step.leaky(n, n.rate("tau_syn"), n("w_in"), np.zeros_like(n("w_in")))


def _delay(n: _Numbers, x: np.ndarray) -> np.ndarray:
    steps = n("delay") / n.dt
    off = np.abs(steps - np.rint(steps)) / np.maximum(1, steps)
    if off.max() > WHOLE:
        raise ValueError(f"delay must be whole steps of dt = {n.dt}, got {steps.flat[off.argmax()]:.6g} steps.")
    out = np.zeros_like(x)
    for late in {int(s) for s in np.rint(steps).flat if s < len(x)}:
        chosen = np.rint(steps) == late
        out[late:, :, chosen] = x[: len(x) - late, :, chosen]
    return out


def _convolve(n: _Numbers, x: np.ndarray) -> np.ndarray:
    """Add up weights times what each point of the filters sees: x (time, batch, maps, *space)."""
    W = n.cast("weight")  # (K, C, *kernel)
    groups = int(n.node.groups)
    out = np.zeros((*x.shape[:2], *n.shape), dtype=n.dtype)
    parts = zip(np.split(W, groups), np.split(x, groups, axis=2), np.split(out, groups, axis=2), strict=True)
    for weights, maps, found in parts:
        for point, seen in sliding(n.node).views(maps):
            here: Cuts = (..., *point)
            found += np.moveaxis(np.tensordot(weights[here], seen, axes=(1, 2)), 0, 2)
    return out + n.cast("bias").reshape(-1, *[1] * (len(n.shape) - 1))


def _sum_pool(n: _Numbers, x: np.ndarray) -> np.ndarray:
    """Add up what each point of a region has: x (time, batch, maps, *space)."""
    return sum((seen for _, seen in sliding(n.node).views(x)), start=np.zeros((*x.shape[:2], *n.shape), dtype=n.dtype))


_STEPS: dict[str, Callable[[_Numbers, np.ndarray], np.ndarray]] = {
    "Input": lambda n, x: x,
    "Output": lambda n, x: x,
    "Affine": lambda n, x: x @ n.cast("weight").T + n.cast("bias"),
    "Linear": lambda n, x: x @ n.cast("weight").T,
    "Conv1d": _convolve,
    "Conv2d": _convolve,
    "SumPool2d": _sum_pool,
    "Scale": lambda n, x: x * n.cast("scale"),
    "Flatten": lambda n, x: x.reshape(*x.shape[:2], *n.shape),
    "Delay": _delay,
    "I": lambda n, x: _Step.whole(n).run(x),
    "IF": lambda n, x: _Step.whole(n).fire(x, n),
    "LI": lambda n, x: _membrane(n, "tau").run(x),
    "LIF": lambda n, x: _membrane(n, "tau").fire(x, n),
    "CubaLI": lambda n, x: _membrane(n, "tau_mem").run(_synapse(n).run(x)),
    "CubaLIF": lambda n, x: _membrane(n, "tau_mem").fire(_synapse(n).run(x), n),
}
