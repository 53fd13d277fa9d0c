"""How layers are counted: synapses by what arrives, neurons by the recursion or the taps that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.evaluate.operations import LayerCosts
from sswim.network.kernels import Alpha, Exponential, kernel_taps, refractory_taps
from sswim.network.layer import SpikingLayer, decays
from sswim.network.network import Inputs, SpikingNetwork
from sswim.options import check_integer
from sswim.steps.leaky import FOREVER, is_leaky

__all__ = ["Neurons", "Seen", "Setting", "active_traces", "spiking_layer", "trace_layer"]


@dataclass(frozen=True)
class Seen:
    """Some samples, as a network gets them.

    Attributes
    ----------
    inputs : Tensor of shape (batch, window, inputs), or EventBatch
    rows : Tensor of shape (batch, window, outputs), optional
        What a readout with lags sees.
    ahead : Tensor of shape (sets, known * horizon + waves), optional
        What is known ahead, and the waves of the calendar.
    """

    inputs: Inputs
    rows: Tensor | None = None
    ahead: Tensor | None = None


@dataclass(frozen=True)
class Setting:
    """How to count.

    Attributes
    ----------
    bits, word : int
        Bits of a weight, and of all other numbers.
    sparse : bool
        Whether weights of 0 count as no operations.
    share : int
        Number of forecasts that a sample makes: operations are divided by it.
    clocks : tuple of int
        Number of neurons of each clock that the output reads, `sswim.data.calendar`.
    """

    bits: int
    word: int
    sparse: bool = False
    share: int = 1
    clocks: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, network: SpikingNetwork, bits: int | None, sparse: bool, share: int = 1, clocks: tuple[int, ...] = ()
    ) -> Setting:
        """Return how to count. Default of `bits`: as many as the network's numbers have."""
        word = 8 * network.readout.weights.element_size()
        if bits is not None and check_integer("bits", bits, 1) > word:
            raise ValueError(f"bits: a weight of this network has {word} bits, so bits must be at most that, got {bits}.")
        return cls(word if bits is None else bits, word, sparse, share, clocks)

    def synapses(self, weights: Tensor, arrived: Tensor, steps: int, *, spikes: bool) -> dict[str, float]:
        """Return the operations of `weights` (neurons, senders), of whose senders `arrived` (senders,) inputs were not 0."""
        weights = weights.cpu()
        fan_out = (weights != 0).sum(dim=0) if self.sparse else torch.full_like(arrived, len(weights))
        operations = float((fan_out.double() * arrived.double()).sum()) / self.share
        found = {"accumulates" if spikes else "multiply_accumulates": operations}
        return found | {
            "weights": weights.numel(),
            "zero_weights": int((weights == 0).sum()),
            "dense": weights.numel() * steps / self.share,
        }


@dataclass(frozen=True)
class Neurons:
    """How the neurons of a layer can be computed, step by step.

    Attributes
    ----------
    state : int
        Numbers that all of them remember.
    per_update : Tensor of shape (neurons,)
        Multiply-accumulates of an update: decays, or the taps of a kernel that no recursion computes.
    per_spike : Tensor of shape (neurons,)
        Additions that a neuron's own spike takes: the reset, or the taps of its refractory kernel.
    """

    state: int
    per_update: Tensor
    per_spike: Tensor

    @classmethod
    def of(cls, layer: SpikingLayer, steps: int) -> Neurons:
        """Return how the neurons of a layer are computed."""
        delays, supports = layer.delays.detach().cpu(), layer.supports.detach().cpu()
        recursive = {Exponential: 1, Alpha: 2}.get(type(layer.kernel), 0)
        if recursive:
            per_update = torch.where(supports < FOREVER / 2, float(recursive), 0.0).to(delays)  # nothing fades without a leak
            state = recursive * layer.neurons + int(delays.clamp_min(0).floor().sum())  # and a line of inputs that wait
        else:
            taps = kernel_taps(layer.kernel, delays, supports, steps) != 0  # (N, S)
            per_update = taps.sum(dim=1).to(delays)
            state = int((taps * torch.arange(1, steps + 1)).amax(dim=1).sum())
        if not layer.spiking:
            return cls(state, per_update, torch.zeros_like(per_update))
        fires, varsigma = layer.costs.detach().cpu() != 0, layer.refractory_supports.detach().cpu()
        if isinstance(layer.refractory, Exponential):
            apart = fires & ((varsigma != supports) | (recursive == 0))  # else it decays with the potential
            return cls(state + int(apart.sum()), per_update + apart.to(per_update), fires.to(per_update))
        reach = (refractory_taps(layer.refractory, varsigma, steps) != 0).sum(dim=1) * fires
        return cls(state + int(reach.sum()), per_update, reach.to(per_update))


def _parameters(layer: SpikingLayer) -> int:
    """Return the number of parameters. Leaky neurons need few: a decay, delays if there are any, and an output its bias."""
    if is_leaky(layer) or (isinstance(layer.kernel, Exponential) and not layer.spiking):
        each = 1 + bool((layer.delays > 0).any()) + (not layer.spiking)
        return layer.weights.numel() + each * layer.neurons
    return sum(p.numel() for p in layer.parameters())


def spiking_layer(
    name: str, layer: SpikingLayer, arrived: Tensor, sent: Tensor, steps: tuple[int, int, int], spikes: bool, setting: Setting
) -> LayerCosts:
    """Return the costs of a layer, or of an output voltage.

    Of its inputs (inputs,) and its neurons (neurons,), `arrived` and `sent` say how often they were active. The `steps` are
    those of the input, those that are simulated, and those that its neurons are updated at.
    """
    neurons, chip, places = Neurons.of(layer, steps[1]), is_leaky(layer), layer.places
    updates, share = layer.neurons * places * steps[2], setting.share
    compared = updates if layer.spiking else 0
    return LayerCosts(
        name,
        "spiking" if layer.spiking else "readout",
        layer.neurons * places,
        parameters=_parameters(layer),
        state=neurons.state * places,
        spikes=float(sent.sum()) / share,
        updates=updates / share,
        neuron_accumulates=(compared + float((neurons.per_spike * sent.to(neurons.per_spike)).sum())) / share,
        neuron_multiply_accumulates=float(neurons.per_update.sum()) * places * steps[2] / share,
        bits=setting.bits,
        word=setting.word,
        chip_neurons=chip,
        **setting.synapses(layer.weights.detach(), layer.arrivals(arrived), steps[0] * places, spikes=spikes),  # type: ignore[arg-type]
    )


def trace_layer(neurons: int, constants: Sequence[float], steps: int, spikes: float, setting: Setting) -> LayerCosts:
    """Return the costs of the traces of some neurons: each is a leaky integrator that adds its neuron's spikes.

    A trace that does not fade counts spikes. It is updated when there is one.
    """
    traces, fading = neurons * len(constants), sum(c != float("inf") for c in constants)
    counted = spikes * (len(constants) - fading)
    return LayerCosts(
        "traces",
        "readout",
        traces,
        parameters=len(constants),
        state=traces,
        updates=(neurons * fading * steps + counted) / setting.share,
        neuron_accumulates=spikes * len(constants) / setting.share,
        neuron_multiply_accumulates=neurons * fading * steps / setting.share,
        bits=setting.bits,
        word=setting.word,
    )


def active_traces(spikes: Sequence[Tensor], constants: Sequence[float]) -> Tensor:
    """Return which traces (traces, batch) are not 0 at the window's end."""
    decay = decays(torch.tensor(constants), torch.arange(spikes[0].shape[1] - 1, -1, -1)).to(spikes[0])  # (K, O)
    return torch.cat([torch.matmul(decay, a).flatten(0, 1) for a in spikes]) != 0
