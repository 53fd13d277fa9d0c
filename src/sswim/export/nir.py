"""A network as a graph of the Neuromorphic Intermediate Representation (NIR), exact or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from sswim._version import __version__
from sswim.classes import ClassModel
from sswim.export.builder import Builder
from sswim.export.filters import check_filters
from sswim.export.graph import plan
from sswim.export.neurons import LeakyLayer, leaky_layers
from sswim.forecasts import ForecastModel
from sswim.network.network import SpikingNetwork
from sswim.options import check_choice, check_positive
from sswim.readout.decaying import TraceReadout
from sswim.report import Facts

if TYPE_CHECKING:
    from nir import NIRGraph

__all__ = ["READERS", "Reader", "network_of", "to_nir"]

DELAYS = ("nodes", "input")
REMEDY = "Fit the model with profile='nir', which samples such networks."
EULER = (
    "One Euler step per dt: I += dt / tau_syn * (w_in * x - I); v += dt / tau * (v_leak - v + r * I), with the new I; spike "
    "where v > v_threshold; then v -= v_threshold."
)


@dataclass(frozen=True)
class Reader:
    """What a program makes of NIR.

    Attributes
    ----------
    scaled : set of str
        Neurons whose input is scaled by the weights, because the program ignores or refuses the parameter for it: `r` of LIF,
        `w_in` of CubaLIF.
    uniform : bool
        Whether all neurons of a layer need the same time constant.
    threshold : float
        Just below 1, so that a potential of 1 fires after all rounding.
    """

    scaled: frozenset[str] = frozenset()
    uniform: bool = False
    threshold: float = 1 - 2.0**-24


# Programs that know neither Delay nor LI. They get the hidden layers alone: the host delays inputs and reads spikes.
READERS = {
    "snntorch": Reader(frozenset({"CubaLIF"})),
    "norse": Reader(frozenset({"LIF"}), threshold=1 - 2.0**-23),
    "spikingjelly": Reader(frozenset({"CubaLIF"}), uniform=True),
}


def network_of(model: object) -> tuple[SpikingNetwork, dict[str, str]]:
    """Return the network of a fitted estimator, of its `model_`, or the network itself; and what its outputs are called."""
    found = getattr(model, "model_", model)
    if isinstance(found, ClassModel):
        return found.network, {"classes": json.dumps(found.classes.tolist())}
    if isinstance(found, ForecastModel):
        columns = None if found.columns is None else [str(name) for name in found.columns]
        return found.network, {} if columns is None else {"columns": json.dumps(columns)}
    if isinstance(found, SpikingNetwork):
        return found, {}
    raise TypeError(f"model must be a fitted Forecaster or Classifier, or a SpikingNetwork, got {type(model).__name__}.")


def to_nir(model: object, *, dt: float = 1e-4, reader: str | None = None, delays: str | None = None) -> NIRGraph:
    r"""Return a network as an NIR graph that has the same spikes and outputs.

    Parameters
    ----------
    model : Forecaster, Classifier or SpikingNetwork
        With LIF layers (`Exponential` kernels) or CubaLIF layers (`Alpha` kernels), a subtractive reset, whole delays, and a
        `TraceReadout`; dense layers or a `Convolution`. Others are refused, with the reasons.
    dt : float
        Time step in seconds that one step of the network stands for. snnTorch takes no other than 1e-4.
    reader : {"snntorch", "norse", "spikingjelly"}, optional
        Write the graph as this program reads it: the hidden layers alone, as a chain, with the input's scale where the
        program looks for it. Then use `lag_line` for the inputs and `read_spikes` for the outputs. Default: the whole
        network, as NIR defines its nodes.
    delays : {"nodes", "input"}, optional
        Whether delays are Delay nodes, or a lag line that the host feeds the input with. Default: nodes, or a lag line for
        a `reader`.

    Returns
    -------
    nir.NIRGraph
        One step of the graph is one step of the window. The outputs at the window's last step are those of the network, one
        after the other: (horizon * outputs,). Inputs and outputs are those of the network, in its units. Filters read maps
        (maps, rows, columns), which `lag_line` lays inputs out as.

    Notes
    -----
    A decay by :math:`\beta` is written as :math:`\tau = dt / (1 - \beta)`, so that an Euler step of `dt` is exact. NIR's
    neurons fire above a threshold, sswim's at it: `v_threshold` is the number just below 1. NIR sets a potential to `v_reset`
    after a spike. sswim subtracts the threshold: the metadata say so (``reset``), and a reader must be told.
    """
    network, names = network_of(model)
    dt = check_positive("dt", dt)
    rules = None if reader is None else READERS[check_choice("reader", reader, tuple(READERS))]
    where = check_choice("delays", ("nodes" if rules is None else "input") if delays is None else delays, DELAYS)
    layers = leaky_layers(network, REMEDY)
    check_filters([layer.grid for layer in layers])
    _check_reader(layers, reader, where, dt)
    facts: Facts = {
        "writer": f"sswim {__version__}",
        "dt": dt,
        "discretisation": EULER,
        "reset": "subtract",
        "fires_at": 1.0,
        "window": network.window,
        "horizon": network.horizon,
        "outputs": network.outputs,
        **names,
    }
    if layers[0].grid is not None:
        facts["layout"] = np.array(network.layout or [network.inputs])
    builder = Builder(dt, (rules or Reader()).scaled, _just_below_one(network, reader))
    if where == "input":
        layers, facts["lags"], facts["leads"] = _with_lag_line(layers)
    builder.add_input(layers[0])
    for layer in layers:
        builder.add_layer(layer)
    assert isinstance(network.readout, TraceReadout)
    if rules is None:
        builder.add_readout(network.readout)
    else:
        facts |= {"reader": reader, **_told(network.readout)}
    graph = builder.finish(facts)
    plan(graph)
    return graph


def _check_reader(layers: list[LeakyLayer], reader: str | None, where: str, dt: float) -> None:
    """Refuse what a program cannot take."""
    if reader is not None and where == "nodes" and any(layer.lags.any() for layer in layers):
        raise ValueError(f"delays: {reader} takes no Delay nodes. Use delays='input'.")
    if reader == "snntorch" and dt != 1e-4:
        raise ValueError(f"dt: snnTorch takes no time step but 1e-4, got {dt}. Omit dt.")
    for number, layer in enumerate(layers):
        extra = layer.lags - (layer.kind == "CubaLIF")
        if layer.grid is not None and (reader is not None or where == "input"):
            what = f"reader: {reader} gets" if reader is not None else "delays: a lag line is for"
            remedy = "Omit reader and delays." if reader is not None else "Use delays='nodes'."
            raise ValueError(f"{what} dense layers alone, and layers[{number}] is a Convolution. {remedy}")
        if reader is not None and layer.kind == "IF":
            raise ValueError(
                f"reader: {reader} has no neurons without a leak. Omit reader, or use a profile whose neurons leak."
            )
        if where == "input" and number and (extra > 0).any():
            raise ValueError(
                f"delays: layers[{number}] has delays, got {extra.max()} steps, and a lag line delays the input alone. Use "
                "delays='nodes', or delays in the first layer only."
            )
        if where == "input" and reader is None and number and layer.lags.any():
            raise ValueError(f"delays: layers[{number}] has Alpha kernels, which need a Delay node. Use delays='nodes'.")
        if reader is not None and READERS[reader].uniform and len(set(layer.decays)) > 1:
            raise ValueError(
                f"reader: {reader} needs one time constant per layer, and layers[{number}] has {len(set(layer.decays))}. Use "
                "another reader, or the same supports for all neurons of a layer."
            )


def _just_below_one(network: SpikingNetwork, reader: str | None) -> float:
    """Return a number just below 1: the largest one of float32, in which readers compute too, or four steps of float64."""
    if reader is not None:
        return READERS[reader].threshold
    return 1 - (2.0**-24 if network.readout.weights.dtype == torch.float32 else 2.0**-51)


def _with_lag_line(layers: list[LeakyLayer]) -> tuple[list[LeakyLayer], np.ndarray, np.ndarray]:
    """Return layers without lags, the first of which reads a lag line; its lags; and the steps by which layers are early.

    Channel ``k * inputs + j`` of the line is input `j`, `lags[k]` steps late. A neuron reads its own lag alone. Deeper layers
    of alpha kernels without a lead answer one step early each, and so does all that follows on them.
    """
    first = layers[0]
    lags = np.unique(first.lags)
    N, D = first.weights.shape
    line = np.zeros((N, len(lags), D), dtype=first.weights.dtype)
    line[np.arange(N), np.searchsorted(lags, first.lags)] = first.weights
    weights = [line.reshape(N, -1), *(layer.weights for layer in layers[1:])]
    early = np.cumsum([0, *(int(layer.lags.max()) for layer in layers[1:])])
    bare = [LeakyLayer(l.kind, w, l.decays, l.gains, 0 * l.lags) for l, w in zip(layers, weights, strict=True)]
    return bare, lags, early


def _told(readout: TraceReadout) -> dict[str, np.ndarray]:
    """Return a readout that the host computes, for the metadata."""
    return {
        "readout_constants": np.asarray(readout.constants),
        "readout_weights": readout.weights.detach().cpu().numpy(),
        "readout_biases": readout.biases.detach().cpu().numpy(),
    }
