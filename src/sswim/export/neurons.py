r"""Layers of sswim as neurons that are simulated step by step; or why a layer is none of them.

With :math:`\beta_i = e^{-1/\sigma_i}`, a layer of exponential kernels whose spikes cost 1 is a leaky integrate-and-fire layer
with subtractive reset:

.. math:: u_i(t) = \beta_i (u_i(t-1) - z_i(t-1)) + (W x)_i(t - \tau_i), \qquad z_i(t) = [u_i(t) \ge 1].

The alpha kernel's taps :math:`(s / \sigma) e^{1 - s / \sigma} = (e \beta / \sigma)\, s \beta^{s-1}` are those of two such
integrators in a row, :math:`I(t) = \beta I(t-1) + x(t)` and :math:`u(t) = \beta u(t-1) + I(t)`, whose taps are
:math:`(s+1) \beta^s`: one step later, and :math:`e \beta / \sigma` times as high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sswim.network.convolution import ConvolutionLayer
from sswim.network.grid import Grid
from sswim.network.kernels import Alpha, Exponential
from sswim.network.layer import SpikingLayer
from sswim.network.network import SpikingNetwork
from sswim.options import Mistakes
from sswim.readout.decaying import TraceReadout

__all__ = ["LeakyLayer", "leaky_layers"]

KINDS = {Exponential: "LIF", Alpha: "CubaLIF"}


@dataclass(frozen=True)
class LeakyLayer:
    """A layer as step-by-step simulators have it.

    Attributes
    ----------
    kind : {"LIF", "CubaLIF", "IF"}
        The last one has no leak.
    weights : array of shape (neurons, senders)
    decays : array of shape (neurons,), float64
        What is left of a potential, and of a synapse's current, after one step.
    gains : array of shape (neurons,), float64
        What the projected input is multiplied by.
    lags : array of shape (neurons,), int
        Steps by which the projected input comes later. The step of the alpha kernel is part of it.
    grid : Grid, optional
        Where filters look. Then neurons are filters, and each is there at all places.
    """

    kind: str
    weights: np.ndarray
    decays: np.ndarray
    gains: np.ndarray
    lags: np.ndarray
    grid: Grid | None = None


def leaky_layers(network: SpikingNetwork, remedy: str) -> list[LeakyLayer]:
    """Return the layers of a network that reads traces; refuse other networks, with all reasons and a remedy."""
    mistakes, layers = Mistakes(), []
    for number, layer in enumerate(network.layers):
        with mistakes.collect():
            layers.append(_leaky(layer, f"layers[{number}]"))
    if type(network.readout) is not TraceReadout:
        mistakes.check(_refuse, f"readout: a {type(network.readout).__name__} has no such form; a TraceReadout has.")
    elif network.readout.roots:
        mistakes.check(_refuse, "readout: it reads roots of traces, which have no such form; pass readout=Counts(roots=False).")
    try:
        mistakes.report()
    except (TypeError, ValueError) as error:
        text = str(error)
        gap = "\n" if "\n" in text else " "
        raise ValueError(f"This network cannot be exported exactly. {text}{gap}{remedy}") from None
    return layers


def _refuse(text: str) -> None:
    raise ValueError(text)


def _leaky(layer: SpikingLayer, name: str) -> LeakyLayer:
    mistakes = Mistakes()
    kind = KINDS.get(type(layer.kernel))
    if kind is None:
        mistakes.check(_refuse, f"{name}: kernel must be Exponential() or Alpha(), got {layer.kernel}.")
    if type(layer.refractory) is not Exponential:
        mistakes.check(_refuse, f"{name}: the refractory kernel must be Exponential(), got {layer.refractory}.")
    sigma, delays = _double(layer.supports), _double(layer.delays)  # (N,)
    cascade = kind == "CubaLIF"
    least = -int(cascade)
    rules = [
        ("refractory_supports", _double(layer.refractory_supports), sigma, "those of the kernel (supports)"),
        ("costs", _double(layer.costs), torch.full_like(sigma, -1), "-1, a subtractive reset"),
        ("biases", _double(layer.biases), torch.zeros_like(sigma), "0"),
        ("delays", delays, delays.round().clamp_min(least), f"whole steps >= {least}"),
    ]
    for what, found, wanted, words in rules:
        odd = (found != wanted).nonzero().flatten()
        if len(odd):
            where = f"of neuron {int(odd[0])}" + (f" and {len(odd) - 1} others" if len(odd) > 1 else "")
            mistakes.check(_refuse, f"{name}: {what} must be {words}, got {float(found[odd[0]]):.6g} {where}.")
    for what, values in [("supports", sigma), ("weights", _double(layer.weights))]:
        if not bool(torch.isfinite(values).all()) or (what == "supports" and not bool((sigma > 0).all())):
            mistakes.check(_refuse, f"{name}: {what} must be finite{' and > 0' if what == 'supports' else ''}.")
    mistakes.report()
    beta = torch.exp(-1 / sigma)
    kind = "IF" if kind == "LIF" and bool((beta == 1).all()) else kind
    gains = math.e * beta / sigma if cascade else torch.ones_like(beta)
    weights = layer.weights.detach().cpu().numpy().copy()
    lags, grid = delays.numpy().astype(int) + cascade, layer.grid if isinstance(layer, ConvolutionLayer) else None
    return LeakyLayer(str(kind), weights, beta.numpy(), gains.numpy(), lags, grid)


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()
