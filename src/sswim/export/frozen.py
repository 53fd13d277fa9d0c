"""Networks with their present parameters as constants, in operations that `torch.export` and ONNX know: whole windows.

Signals have the layout (neurons, time, batch), as inside of `sswim.network`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sswim.network.convolution import ConvolutionLayer
from sswim.network.kernels import exporting, kernel_taps, refractory_taps, toeplitz
from sswim.network.layer import SpikingLayer, decays, fire
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.network.plain import fire_steps
from sswim.readout.decaying import TraceReadout
from sswim.readout.lags import LagReadout

__all__ = ["FrozenFilters", "FrozenLayer", "FrozenNetwork", "FrozenVoltage", "Traces", "frozen_readout"]


def refractory_costs(layer: SpikingLayer, steps: int) -> Tensor:
    """Return what a spike adds to its neuron's potential 1, 2, ... steps later, (neurons, lags), within `steps` steps."""
    inhibition = refractory_taps(layer.refractory, layer.refractory_supports.detach(), steps)
    return layer.costs.detach()[:, None] * inhibition


class FrozenLayer(nn.Module):
    """A layer of spike response neurons on a fixed number of steps.

    Parameters
    ----------
    layer : SpikingLayer
    steps_in, steps_out : int
        Steps of the signals that come, later ones being 0, and of the spikes or potentials that go.
    start : int
        First step of potentials that are returned.
    """

    taps: Tensor
    weights: Tensor
    biases: Tensor
    cost: Tensor

    def __init__(self, layer: SpikingLayer, steps_in: int, steps_out: int, start: int = 0) -> None:
        super().__init__()
        self.steps_in, self.start, self.spiking = steps_in, start, layer.spiking
        taps = kernel_taps(layer.kernel, layer.delays.detach(), layer.supports.detach(), steps_out)
        self.register_buffer("taps", taps)  # (N, S)
        self.register_buffer("weights", layer.weights.detach().clone())
        self.register_buffer("biases", layer.biases.detach().clone()[:, None, None])
        if layer.spiking:
            self.register_buffer("cost", refractory_costs(layer, steps_out))  # (N, R)

    def forward(self, signals: Tensor) -> Tensor:
        """Map signals (senders, steps_in, batch) to spikes or potentials (neurons, steps_out - start, batch)."""
        senders, steps, batch = signals.shape
        projected = (self.weights @ signals.reshape(senders, steps * batch)).reshape(-1, steps, batch)
        filters = toeplitz(self.taps, self.steps_in)
        if not self.spiking:
            return torch.bmm(filters[:, self.start :], projected) + self.biases
        v = torch.bmm(filters, projected) + self.biases
        spikes = fire_steps(v, self.cost) if exporting() else fire(v, v.new_ones(len(v)), self.cost)
        return spikes[:, self.start :]


class FrozenFilters(FrozenLayer):
    """Filters at all places, and the sums of their spikes over regions, on a fixed number of steps.

    Parameters
    ----------
    layer : ConvolutionLayer
    steps_in, steps_out : int
    """

    index: Tensor
    regions: Tensor

    def __init__(self, layer: ConvolutionLayer, steps_in: int, steps_out: int) -> None:
        super().__init__(layer, steps_in, steps_out)
        self.register_buffer("index", layer.index.clone())  # (senders, P)
        self.register_buffer("regions", layer.regions.clone())  # (R, P)

    def forward(self, signals: Tensor) -> Tensor:
        """Map signals (channels, steps_in, batch) to pooled spikes (filters * regions, steps_out, batch)."""
        (_, steps, batch), (senders, places) = signals.shape, self.index.shape
        seen = torch.cat([signals, torch.zeros_like(signals[:1])])[self.index.flatten()]  # beyond the edge there is nothing
        side = seen.reshape(senders, places, steps, batch).transpose(1, 2).reshape(senders, steps, places * batch)
        spikes = super().forward(side)  # (K, S, P B)
        each = spikes.reshape(*spikes.shape[:2], places, batch)
        return (self.regions @ each).transpose(1, 2).flatten(0, 1)  # (K R, S, B)


class FrozenVoltage(nn.Module):
    """The paper's output layer: reads the last hidden layer."""

    def __init__(self, readout: VoltageReadout, window: int, start: int | None = None) -> None:
        super().__init__()
        self.steps, _ = readout.reader(window, start)
        first = readout.start if start is None else start
        self.layer = FrozenLayer(readout, self.steps, readout.start + readout.horizon, first)

    def forward(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return voltages or spikes (batch, steps, outputs)."""
        return self.layer(spikes[-1]).permute(2, 1, 0)


class Traces(nn.Module):
    """Reads decaying traces of all hidden layers at the window's end, with an affine map."""

    decay: Tensor
    weights: Tensor
    biases: Tensor

    def __init__(self, readout: TraceReadout, window: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.steps, self.horizon, self.outputs, self.roots = window, readout.horizon, readout.outputs, readout.roots
        age = torch.arange(window - 1, -1, -1)
        self.register_buffer("decay", decays(torch.tensor(readout.constants), age).to(dtype))  # (K, O)
        self.register_buffer("weights", readout.weights.detach().to(dtype, copy=True))
        self.register_buffer("biases", readout.biases.detach().to(dtype, copy=True))

    def forward(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return the output (batch, horizon, outputs)."""
        traces = torch.cat([torch.matmul(self.decay, a.to(self.decay.dtype)).flatten(0, 1) for a in spikes])  # (N K, B)
        return self._affine(self._features(traces).T)  # onnxruntime crashes if the root comes after the transposition

    def _features(self, traces: Tensor) -> Tensor:
        return traces.sqrt() if self.roots else traces

    def _affine(self, features: Tensor) -> Tensor:
        return (features @ self.weights.T + self.biases).unflatten(1, (self.horizon, self.outputs))

    def affine(self, traces: Tensor) -> Tensor:
        """Map traces (batch, traces) to the output (batch, horizon, outputs)."""
        return self._affine(self._features(traces))


class Lags(nn.Module):
    """Reads rows and spikes through lags, as the default forecaster does."""

    def __init__(self, readout: LagReadout, window: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.steps, self.readout = window, copy.deepcopy(readout).to(dtype).requires_grad_(False)

    def forward(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return the output (batch, horizon, outputs)."""
        return self.readout.read(spikes, rows, ahead)


def frozen_readout(network: SpikingNetwork, dtype: torch.dtype, start: int | None = None) -> FrozenVoltage | Traces | Lags:
    """Return a network's output with constant parameters; a voltage is read from step `start` on."""
    readout = network.readout
    if isinstance(readout, VoltageReadout):
        return FrozenVoltage(readout, network.window, start)
    if isinstance(readout, TraceReadout):
        return Traces(readout, network.window, dtype)
    if isinstance(readout, LagReadout):
        return Lags(readout, network.window, dtype)
    raise ValueError(
        f"model: its output is a {type(readout).__name__}, and only voltages, traces and lags can be exported. Build the "
        "network with a VoltageReadout, a TraceReadout or a LagReadout."
    )


def frozen_layer(layer: SpikingLayer, steps_in: int, steps_out: int) -> FrozenLayer:
    """Return a hidden layer with constant parameters."""
    kind = FrozenFilters if isinstance(layer, ConvolutionLayer) else FrozenLayer
    return kind(layer, steps_in, steps_out)  # type: ignore[arg-type]


class FrozenNetwork(nn.Module):
    """A network on whole windows, with constant parameters.

    Parameters
    ----------
    network : SpikingNetwork
    dtype : torch.dtype, optional
        Of what is read of the spikes. Default: the network's own.
    start : int, optional
        First step of a voltage that is returned. Default: the network's own.
    """

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype | None = None, start: int | None = None) -> None:
        super().__init__()
        self.dtype = network.readout.weights.dtype
        self.read = frozen_readout(network, self.dtype if dtype is None else dtype, start)
        steps = self.read.steps
        self.seen = min(network.window, steps)
        widths = [self.seen if l == 0 else steps for l in range(len(network.layers))]
        self.layers = nn.ModuleList(
            frozen_layer(layer, width, steps) for layer, width in zip(network.layers, widths, strict=True)
        )

    def forward(self, x: Tensor, rows: Tensor | None = None, ahead: Tensor | None = None) -> Tensor:
        """Map (batch, window, inputs) to the output (batch, horizon, outputs); `rows` are what a readout with lags sees."""
        return self.read(self.spikes(x), x if rows is None else rows, ahead)

    def spikes(self, x: Tensor) -> list[Tensor]:
        """Return the spikes (neurons, steps, batch) of every hidden layer."""
        signals, found = x.to(self.dtype)[:, : self.seen].permute(2, 1, 0), []
        for layer in self.layers:
            signals = layer(signals)
            found.append(signals)
        return found
