"""Exported graphs in other simulators: the spikes that they have. What is not installed fails as usual."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sswim.export import lag_line

if TYPE_CHECKING:
    from nir import NIRGraph

__all__ = ["RUNNERS", "reader_spikes"]


def _snntorch(graph: NIRGraph) -> nn.Module:
    import snntorch
    from snntorch.import_nir import import_from_nir

    with redirect_stdout(StringIO()):  # it prints what it does
        net = import_from_nir(graph)
    for module in net.modules():
        if isinstance(module, (snntorch.Leaky, snntorch.Synaptic)):
            module.reset_mechanism = "subtract"  # not to zero
            module.mem_reset = torch.zeros_like  # a spike resets once, right away
    return net


def _norse(graph: NIRGraph) -> nn.Module:
    from norse.torch import from_nir
    from norse.torch.functional.reset import reset_subtract

    net = from_nir(graph, dt=float(graph.metadata["dt"]), reset_method=reset_subtract)  # CubaLIF has it from here
    for module in net.modules():
        if hasattr(getattr(module, "p", None), "reset_method"):
            module.p = module.p._replace(reset_method=reset_subtract)  # LIF needs this
    return net


def _spikingjelly(graph: NIRGraph) -> nn.Module:
    from spikingjelly.activation_based import neuron
    from spikingjelly.activation_based.nir_exchange import import_from_nir

    net = import_from_nir(graph, dt=float(graph.metadata["dt"]))
    for module in net.modules():
        if isinstance(module, neuron.BaseNode):
            module.v_reset = None  # subtract the threshold
    return net


RUNNERS: dict[str, Callable[[NIRGraph], nn.Module]] = {
    "snntorch": _snntorch,
    "norse": _norse,
    "spikingjelly": _spikingjelly,
}


@contextmanager
def _recorded(net: nn.Module, names: list[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Keep what modules put out inside."""
    kept: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, out: kept[name].append((out[0] if isinstance(out, tuple) else out).detach())

    handles = [net.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def reader_spikes(
    reader: str, graph: NIRGraph, inputs: np.ndarray, layers: int, change: Callable[[nn.Module], Tensor] | None = None
) -> list[np.ndarray]:
    """Return the spikes (batch, time, neurons) of each layer of a graph, as a reader computes them.

    Parameters
    ----------
    reader : {"snntorch", "norse", "spikingjelly"}
    graph : nir.NIRGraph
        From ``to_nir(..., reader=reader)``.
    inputs : array of shape (batch, time, inputs)
        Of the network; the graph's lag line is added here.
    layers : int
        Number of hidden layers.
    change : callable, optional
        Changes the reader's network, and returns an empty tensor of the type that it takes. Default: float32.
    """
    logging.getLogger("spikingjelly").setLevel(logging.ERROR)
    net, state = RUNNERS[reader](graph), None
    x = torch.as_tensor(lag_line(graph, inputs)).to(torch.zeros(0) if change is None else change(net))
    names = [f"layer_{number + 1}" for number in range(layers)]
    with _recorded(net, names) as kept:
        for t in range(x.shape[1]):
            state = net(x[:, t], state)[1]
    return [torch.stack(kept[name], dim=1).numpy() for name in names]
