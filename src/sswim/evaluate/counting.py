"""Count what a network does with samples: spikes, operations of synapses and of neurons, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from sswim.evaluate.counted_layers import Seen, Setting, active_traces, spiking_layer, trace_layer
from sswim.evaluate.counting_lags import LagCounter
from sswim.evaluate.operations import LayerCosts
from sswim.network.events import EventBatch
from sswim.network.network import Inputs, SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.readout.decaying import TraceReadout
from sswim.readout.lags import LagReadout

__all__ = ["Counter", "count_network"]


class Counter(Protocol):
    """Counts what an output does."""

    def add(self, seen: Seen, spikes: Sequence[Tensor]) -> None:
        """Count samples, with the spikes (neurons, steps, batch) of all hidden layers."""
        ...

    def before(self, samples: int) -> list[LayerCosts]:
        """Return the layers that come before the hidden ones."""
        ...

    def after(self, samples: int, sent: Sequence[Tensor]) -> list[LayerCosts]:
        """Return the layers that come after them; `sent` are the mean numbers of spikes of their neurons."""
        ...


class VoltageCounter:
    """Counts what an output voltage does, or a layer of spiking outputs."""

    def __init__(self, network: SpikingNetwork, readout: VoltageReadout, setting: Setting, start: int | None) -> None:
        self.readout, self.setting, self.window = readout, setting, network.window
        # Spikes depend on their past.
        self.start = 0 if readout.spiking else readout.start if start is None else start
        self.steps, self._read = readout.reader(network.window, self.start)
        self._sent = torch.zeros(readout.outputs, dtype=torch.float64)

    def add(self, seen: Seen, spikes: Sequence[Tensor]) -> None:
        """Count samples."""
        if self.readout.spiking:
            self._sent += self._read(spikes, None).sum(dim=(0, 1)).double().cpu()

    def before(self, samples: int) -> list[LayerCosts]:
        """Return nothing: inputs reach the hidden layers as they are."""
        return []

    def after(self, samples: int, sent: Sequence[Tensor]) -> list[LayerCosts]:
        """Return the output layer."""
        last = self.readout.start + self.readout.horizon
        steps = self.steps, last, last - self.start
        found = spiking_layer("output", self.readout, sent[-1], self._sent / samples, steps, True, self.setting)
        return [found]


class TraceCounter:
    """Counts what a readout of traces does."""

    def __init__(self, network: SpikingNetwork, readout: TraceReadout, setting: Setting) -> None:
        self.readout, self.setting, self.steps = readout, setting, network.window
        self._active = torch.zeros(readout.weights.shape[1], dtype=torch.float64)

    def add(self, seen: Seen, spikes: Sequence[Tensor]) -> None:
        """Count samples."""
        self._active += active_traces(spikes, self.readout.constants).sum(dim=1).cpu()

    def before(self, samples: int) -> list[LayerCosts]:
        """Return nothing: inputs reach the hidden layers as they are."""
        return []

    def after(self, samples: int, sent: Sequence[Tensor]) -> list[LayerCosts]:
        """Return the traces, and the map from there to the outputs."""
        readout, setting = self.readout, self.setting
        spikes, weights = float(sum(s.sum() for s in sent)), readout.weights.detach()
        output = LayerCosts(
            "output",
            "readout",
            len(weights),
            parameters=weights.numel() + readout.biases.numel(),
            bits=setting.bits,
            word=setting.word,
            **setting.synapses(weights, self._active / samples, 1, spikes=False),  # type: ignore[arg-type]
        )
        neurons = weights.shape[1] // len(readout.constants)
        return [trace_layer(neurons, readout.constants, self.steps, spikes, setting), output]


def counter_of(network: SpikingNetwork, setting: Setting, start: int | None) -> tuple[int, Counter]:
    """Return how many steps of the hidden layers are simulated, and what counts an output's operations."""
    readout = network.readout
    if isinstance(readout, VoltageReadout):
        counter = VoltageCounter(network, readout, setting, start)
        return counter.steps, counter
    if isinstance(readout, TraceReadout):
        return network.window, TraceCounter(network, readout, setting)
    if isinstance(readout, LagReadout):
        return network.window, LagCounter(readout, setting)
    raise TypeError(f"costs: what a {type(readout).__name__} does is not known. Known are voltages, traces and lags.")


def _arrivals(x: Inputs, steps: int) -> tuple[Tensor, bool]:
    """Return how often each input (inputs,) is not 0, and whether all of them are spikes."""
    if isinstance(x, EventBatch):
        return torch.bincount(x.channels[x.times < steps], minlength=x.inputs).double(), True
    seen = x[:, :steps]
    return (seen != 0).sum(dim=(0, 1)).double(), bool(((seen == 0) | (seen.abs() == 1)).all())


@torch.no_grad()
def count_network(
    network: SpikingNetwork, batches: Iterable[Seen], setting: Setting, start: int | None = None
) -> tuple[tuple[LayerCosts, ...], int]:
    """Return what every layer of a network does with a sample, on average, and how many samples there were.

    Parameters
    ----------
    network : SpikingNetwork
    batches : iterable of Seen
    setting : Setting
    start : int, optional
        Step from which on an output voltage is read. Default: where the horizon begins.
    """
    steps, counter = counter_of(network, setting, start)
    filters, steps_in = network.hidden_filters(steps=steps), min(network.window, steps)
    arrived, spiking, samples = torch.zeros(network.inputs, dtype=torch.float64), True, 0
    sent = [torch.zeros(n, dtype=torch.float64) for n in network.hidden]
    fired = [torch.zeros(layer.neurons, dtype=torch.float64) for layer in network.layers]
    for seen in batches:
        spikes = network.hidden_spikes(seen.inputs, filters)
        counts, binary = _arrivals(seen.inputs, steps_in)
        arrived, spiking, samples = arrived + counts.cpu(), spiking and binary, samples + len(seen.inputs)
        for total, a in zip(sent, spikes, strict=True):
            total += a.sum(dim=(1, 2)).double().cpu()
        for total, layer, x, f, a in zip(
            fired, network.layers, [network.signals(seen.inputs), *spikes], filters, spikes, strict=False
        ):
            total += layer.fired(x, f, a)
        counter.add(seen, spikes)
    means = [total / samples for total in (arrived, *sent)]
    layers = [
        spiking_layer(
            f"hidden {number}",
            layer,
            means[number - 1],
            fired[number - 1] / samples,
            (steps_in if number == 1 else steps, steps, steps),
            spiking or number > 1,
            setting,
        )
        for number, layer in enumerate(network.layers, start=1)
    ]
    return (*counter.before(samples), *layers, *counter.after(samples, means[1:])), samples
