"""Networks and estimators that take one row at a time: (row, state) -> (output, new state).

A state is a dictionary of tensors (batch, ...), whose names and shapes never change. All of them are 0 at the start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sswim.classes import ClassModel
from sswim.export.estimators import FrozenForecasts
from sswim.export.frozen import Traces, refractory_costs
from sswim.network.kernels import kernel_taps
from sswim.network.layer import SpikingLayer, decays
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.network.plain import spike
from sswim.readout.decaying import TraceReadout

__all__ = ["ClassStep", "ForecastStep", "NetworkStep", "State", "Stepwise"]

State = dict[str, Tensor]
# By name: the shape without the batch, and the dtype.
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


class Stepwise(nn.Module, ABC):
    """Maps a row and a state to an output and the next state."""

    @abstractmethod
    def shapes(self) -> Shapes:
        """Return the shape of each tensor of the state, without the batch, and its dtype."""

    def start(self, batch: int) -> State:
        """Return the state before the first row."""
        return {name: torch.zeros(batch, *shape, dtype=dtype) for name, (shape, dtype) in self.shapes().items()}


class LayerStep(Stepwise):
    """A layer's next step.

    The state ``sent`` holds the projected input of the last steps, oldest first, and ``left`` what spikes still cost in the
    next steps. A state that would be empty does not exist.
    """

    taps: Tensor
    weights: Tensor
    biases: Tensor
    cost: Tensor

    def __init__(self, layer: SpikingLayer, reach: int, name: str) -> None:
        super().__init__()
        taps = kernel_taps(layer.kernel, layer.delays.detach(), layer.supports.detach(), reach)
        used = (taps != 0).any(dim=0).nonzero()
        taps = taps[:, : int(used.max()) + 1 if len(used) else 1]
        self.name, self.spiking = name, layer.spiking
        self.register_buffer("taps", taps.T.flip(0).contiguous())  # (R, N), oldest first
        self.register_buffer("weights", layer.weights.detach().T.contiguous())
        self.register_buffer("biases", layer.biases.detach().clone())
        cost = refractory_costs(layer, reach) if layer.spiking else taps[:, :0]
        self.register_buffer("cost", cost.T.contiguous())  # (r, N)

    def shapes(self) -> Shapes:
        """Return the shape of each tensor of the state, without the batch, and its dtype."""
        sizes = {"sent": self.taps.shape[0] - 1, "left": self.cost.shape[0]}
        neurons, dtype = self.taps.shape[1], self.taps.dtype
        return {f"{self.name}_{kind}": ((size, neurons), dtype) for kind, size in sizes.items() if size}

    def forward(self, signals: Tensor, state: State) -> tuple[Tensor, State]:
        """Map signals (batch, senders) to spikes or potentials (batch, neurons)."""
        new: State = {}
        sent, left = f"{self.name}_sent", f"{self.name}_left"
        every = (signals @ self.weights)[:, None]  # (B, 1, N)
        if sent in state:
            every = torch.cat([state[sent], every], dim=1)  # (B, R, N)
            new[sent] = every[:, 1:]
        v = (every * self.taps).sum(dim=1) + self.biases
        if left in state:
            v = v + state[left][:, 0]
        a = spike(v) if self.spiking else v
        if left in state:
            ahead = torch.nn.functional.pad(state[left][:, 1:], (0, 0, 0, 1))
            new[left] = ahead + self.cost * a[:, None]
        return a, new


class NetworkStep(Stepwise):
    """A network's next step: as `SpikingNetwork.stream`, and the output read at every step.

    An output of traces is that of a window that ends at this row. An output voltage is that of this step, counted from the
    first row. Rows after the window's end are rows of 0.

    Parameters
    ----------
    network : SpikingNetwork
        Its output must be a `TraceReadout` or a `VoltageReadout`.
    dtype : torch.dtype, optional
        Of the traces and of what is read of them. Default: the network's own.
    """

    fading: Tensor

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        readout, self.dtype = network.readout, network.readout.weights.dtype
        self.layers = nn.ModuleList(LayerStep(layer, network.steps, f"layer{l}") for l, layer in enumerate(network.layers, 1))
        self.output: LayerStep | None = None
        self.traces: Traces | None = None
        if isinstance(readout, VoltageReadout):
            self.output = LayerStep(readout, network.steps, "output")
        elif isinstance(readout, TraceReadout):
            read = self.dtype if dtype is None else dtype
            self.traces = Traces(readout, network.window, read)
            self.register_buffer("fading", decays(torch.tensor(readout.constants), torch.ones(1)).to(read)[:, 0])  # (K,)
            self.neurons = sum(network.hidden)
        else:
            raise ValueError(
                "form: 'step' needs a network whose output is a voltage or traces; a readout with lags sees a whole window, "
                "relative to its mean. Export the Forecaster instead of its network, or use form='window'."
            )

    def shapes(self) -> Shapes:
        """Return the shape of each tensor of the state, without the batch, and its dtype."""
        found: Shapes = {}
        for layer in [*self.layers, *([] if self.output is None else [self.output])]:
            found |= layer.shapes()
        if self.traces is not None:
            found["traces"] = (self.neurons, len(self.fading)), self.fading.dtype
        return found

    def forward(self, row: Tensor, state: State) -> tuple[Tensor, State]:
        """Map a row (batch, inputs) to the output, (batch, horizon, outputs) of traces or (batch, outputs) of a voltage."""
        new: State = {}
        signals, spikes = row.to(self.dtype), []
        for layer in self.layers:
            signals, changed = layer(signals, state)
            new |= changed
            spikes.append(signals)
        if self.output is not None:
            y, changed = self.output(signals, state)
            return y, new | changed
        assert self.traces is not None
        every = torch.cat(spikes, dim=1).to(self.fading.dtype)  # (B, N)
        traces = new["traces"] = state["traces"] * self.fading + every[:, :, None]
        return self.traces.affine(traces.flatten(1)), new


class ForecastStep(Stepwise):
    """A forecast after each row, as `Forecaster.stream` makes it, from the last `window` rows.

    The state ``past`` holds these rows, and ``rows`` their number, at most `window`. Forecasts are NaN until `window` rows have
    come.
    """

    def __init__(self, window: FrozenForecasts) -> None:
        super().__init__()
        self.window = window

    def shapes(self) -> Shapes:
        """Return the shape of each tensor of the state, without the batch, and its dtype."""
        past = (self.window.window, self.window.encoder.columns), self.window.dtype
        return {"past": past, "rows": ((1,), torch.int64)}

    def forward(
        self, row: Tensor, state: State, future: Tensor | None = None, time: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Map a row (batch, columns) to forecasts (batch, horizon, channels); `future` and `time` as for whole windows."""
        past = torch.cat([state["past"][:, 1:], row[:, None]], dim=1)
        rows = (state["rows"] + 1).clamp(max=self.window.window)
        forecast = self.window(past, future, time)
        ready = (rows == self.window.window)[:, :, None]
        return torch.where(ready, forecast, float("nan")), {"past": past, "rows": rows}


class ClassStep(Stepwise):
    """Probabilities after each row of a sample that has a time of its own, by the spikes so far.

    After a row that holds NaN or infinity, probabilities are NaN until the state is set back to 0.
    """

    def __init__(self, model: ClassModel, dtype: torch.dtype) -> None:
        super().__init__()
        self.step, self.temperature = NetworkStep(model.network, dtype), model.report.solution.temperature

    def shapes(self) -> Shapes:
        """Return the shape of each tensor of the state, without the batch, and its dtype."""
        return self.step.shapes()

    def forward(self, row: Tensor, state: State) -> tuple[Tensor, State]:
        """Map a row (batch, channels) to probabilities (batch, classes)."""
        fine = torch.isfinite(row).all(dim=1)
        traces = torch.where(fine[:, None, None], state["traces"], float("nan"))
        y, new = self.step(torch.where(fine[:, None], row, 0.0).float(), state | {"traces": traces})
        return torch.softmax(y[:, 0] / self.temperature, dim=1), new
