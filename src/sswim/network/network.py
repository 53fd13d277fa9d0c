r"""The network of definition ``def:ff_snn``: layers of spike response neurons as one torch module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from sswim.network.convolution import ConvolutionLayer, constant_in_time, hidden_layers
from sswim.network.events import EventBatch
from sswim.network.grid import Convolution, check_hidden, hidden_shapes
from sswim.network.kernels import REFRACTORY_KERNELS, Kernel, exporting, resolve_kernel
from sswim.network.layer import SpikingLayer, Workspace, decays
from sswim.network.output import Readout, VoltageReadout
from sswim.network.stream import Stream
from sswim.network.surrogates import SURROGATES, Surrogate
from sswim.options import check_integer, resolve

__all__ = ["SOLVED", "Activity", "Inputs", "KernelName", "SpikingNetwork", "resolve_kernels"]

Inputs = Tensor | EventBatch
# What an output is solved for; all else is set before.
SOLVED = ("readout.weights", "readout.biases", "readout.timeless")


class Predictor(Protocol):
    """Maps batches as `SpikingNetwork.forward` does."""

    def __call__(self, x: Inputs, past: Tensor | None = None) -> Tensor: ...


KernelName = str | Kernel | Callable[[Tensor], Tensor]


@dataclass
class Activity:
    """What a simulation showed.

    Attributes
    ----------
    spikes : list of Tensor of shape (batch, time, neurons)
        1 where a neuron fires, else 0; one tensor per hidden layer.
    output : Tensor of shape (batch, time, outputs)
    potentials : list of Tensor of shape (batch, time, neurons), or None
        Membrane potentials with refractory part, if asked for. A neuron fires where its potential is at least 1.
    """

    spikes: list[Tensor]
    output: Tensor
    potentials: list[Tensor] | None = None


class SpikingNetwork(nn.Module):
    r"""A feed-forward network of spike response neurons (definition ``def:ff_snn``).

    Input lives on the steps ``[0, window)`` and is 0 afterwards, the network runs on ``[0, start + horizon)``, and `forward`
    returns the output on ``[start, start + horizon)``. For forecasting ``start = window``.

    Parameters
    ----------
    inputs, outputs : int
        Number of input channels :math:`D_{in}` and of outputs :math:`D_{out}`.
    window, horizon : int
        Length :math:`O` of the input and :math:`H` of the output.
    hidden : sequence of int or Convolution
        One width, or `Convolution`, per hidden layer.
    layout : sequence of int, optional
        How inputs are laid out, such as (28, 28), for a `Convolution`. Default: in a row.
    start : int, optional
        First output step :math:`T`. Default: `window`.
    kernel : str, callable, or sequence of these
        Kernels of the hidden layers, one each: names from ``sswim.network.KERNELS`` or callables. The last one of a sequence
        serves all further layers. One alone is for the first layer, and further layers have ``"hat"``, as in the paper.
    output_kernel, refractory : str or callable
        Kernel of the output layer, and refractory kernel of all spiking layers.
    readout : Readout, optional
        A module that reads the hidden spikes, such as `sswim.readout.TraceReadout`. Default: a `VoltageReadout`.
    spiking_output : bool
        Whether that output layer spikes (remark ``rem:ff_snn``) or puts out its voltage.
    surrogate : str or Surrogate
        What stands for the threshold's derivative: ``"exponential"``, ``"fast-sigmoid"``, ``"triangular"``, ``"arctan"``, or an
        object such as ``sswim.network.Arctan(width=0.5)``.
    detach_refractory : bool
        Whether gradients stop at the inhibition that spikes cause, instead of passing through it back in time.
    checkpoint : bool
        Whether a layer's potentials are computed again for the gradient instead of kept: less memory, more time.
    dtype : torch.dtype
        ``torch.float32`` or ``torch.float64``.

    Notes
    -----
    A new network has zero weights: set its parameters with `sswim.sample`, `sswim.initialize`, or by hand.

    `forward` has gradients for all parameters where autograd is on. They are exact except at the threshold, whose derivative
    is that of the `surrogate`: delays and supports need no rounding to whole steps, for a kernel is a function of both.
    Setting the attribute `soft` puts the surrogate's smooth step in place of the threshold; then all gradients are exact.

    Examples
    --------
    >>> network = SpikingNetwork(inputs=3, outputs=2, window=10, horizon=4, hidden=(20, 10))
    >>> network(torch.zeros(5, 10, 3)).shape
    torch.Size([5, 4, 2])
    """

    layers: Sequence[SpikingLayer]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        window: int,
        horizon: int,
        hidden: Sequence[int | Convolution] = (750,),
        layout: Sequence[int] | None = None,
        start: int | None = None,
        kernel: KernelName | Sequence[KernelName] = "morlet",
        output_kernel: KernelName = "hat",
        refractory: KernelName = "exponential-cut",
        readout: Readout | None = None,
        spiking_output: bool = False,
        surrogate: str | Surrogate = "exponential",
        detach_refractory: bool = False,
        checkpoint: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_integer("inputs", inputs, 1)
        self.window, self.horizon = check_integer("window", window, 1), check_integer("horizon", horizon, 1)
        self.start = self.window if start is None else check_integer("start", start, 0)
        if self.start + self.horizon < self.window:
            raise ValueError(
                f"start + horizon must reach the end of the window ({self.window}), got {self.start} + {self.horizon}."
            )
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        given = check_hidden("hidden", hidden)
        self.kernels = resolve_kernels("kernel", kernel, len(given))
        self.refractory = resolve_kernel(refractory, "refractory", REFRACTORY_KERNELS)
        self.layout = None if layout is None else tuple(int(n) for n in layout)
        shapes = hidden_shapes(inputs, given, self.layout)
        self.layers = nn.ModuleList(  # type: ignore[assignment]
            hidden_layers(inputs, shapes, self.kernels, self.refractory, dtype)
        )
        check_integer("outputs", outputs, 1)
        if readout is None:
            readout = VoltageReadout(
                self.layers[-1].outputs,
                outputs,
                resolve_kernel(output_kernel, "output_kernel"),
                self.refractory,
                start=self.start,
                horizon=self.horizon,
                spiking=spiking_output,
                dtype=dtype,
            )
        if readout.outputs != outputs:
            raise ValueError(f"readout must have as many outputs as the network, {outputs}, got {readout.outputs}.")
        self.readout: Readout = readout
        self.surrogate = resolve("surrogate", surrogate, SURROGATES, "derivative")
        self.detach_refractory, self.checkpoint, self.soft = detach_refractory, checkpoint, False

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.readout.outputs

    @property
    def hidden(self) -> tuple[int, ...]:
        """Number of spike trains that each hidden layer puts out: its width, or that of its pooled spikes."""
        return tuple(layer.outputs for layer in self.layers)

    @property
    def convolutions(self) -> tuple[Convolution | None, ...]:
        """The `Convolution` of each hidden layer, None for a dense one; nothing if all are dense."""
        found = tuple(layer.grid.shape if isinstance(layer, ConvolutionLayer) else None for layer in self.layers)
        return found if any(found) else ()

    @property
    def steps(self) -> int:
        """Number of simulated steps: `start` + `horizon`, or `window` if the output is read at the window's end."""
        return self.readout.simulated(self.window)

    def batch_size(self, memory: int) -> int:
        """Return how many samples to simulate at once within a memory budget in bytes."""
        itemsize = self.readout.weights.element_size()
        fixed = sum(layer.neurons * self.steps * self.steps for layer in self.layers) * itemsize
        # What the widest layer takes, and what the layer before still holds.
        each = max(layer.numbers(self.steps) for layer in self.layers) * itemsize
        return max(8, min(512, int((memory - fixed) / each)))

    def check_memory(self, memory: int) -> None:
        """Refuse hidden layers whose kernels, and whose products, take far more than a memory budget in bytes."""
        itemsize = self.readout.weights.element_size()
        neurons = [layer.neurons for layer in self.layers]
        kernels = sum(n * self.steps * (self.steps if l else self.window) for l, n in enumerate(neurons)) * itemsize
        needed = kernels + 8 * sum(self.hidden) ** 2
        if needed > 4 * memory:
            raise ValueError(
                f"hidden: {sum(self.hidden)} neurons on {self.steps} steps need about {needed / 1e9:.1f} GB, but memory is "
                f"{memory / 1e9:.3g} GB. Use fewer neurons or steps, or more memory."
            )

    def stream(self, batch: int, dtype: torch.dtype | None = None) -> Stream:
        """Return the hidden layers as a stream for `batch` series, with the traces that the output reads; see `Stream`."""
        return Stream(self.layers, self.readout.constants, self.window, batch, dtype)

    def signals(self, x: Inputs) -> Inputs:
        """Check a batch (batch, window, inputs) and bring it to the layout (inputs, window, batch); events stay as they are."""
        if isinstance(x, EventBatch):
            if (x.window, x.inputs) != (self.window, self.inputs):
                came, wanted = (x.window, x.inputs), (self.window, self.inputs)
                raise ValueError(f"x: events must be on (window, inputs) = {wanted}, got {came}.")
            return x
        if x.ndim != 3 or x.shape[1:] != (self.window, self.inputs):
            raise ValueError(f"x must have shape (batch, window={self.window}, inputs={self.inputs}), got {tuple(x.shape)}.")
        if isinstance(self.layers[0], ConvolutionLayer) and constant_in_time(x):
            return self.signals_of(x[:, :1]).expand(-1, self.window, -1)
        return self.signals_of(x)

    def signals_of(self, x: Tensor) -> Tensor:
        """Bring values (batch, steps, inputs) to the layout (inputs, steps, batch), dtype and device of the network."""
        w = self.readout.weights
        return x.to(dtype=w.dtype, device=w.device).permute(2, 1, 0).contiguous()

    def hidden_filters(self, depth: int | None = None, steps: int | None = None) -> list[Tensor]:
        """Return the convolution matrices of the first `depth` hidden layers: compute them once, simulate many batches.

        With `steps`, only that many first steps are simulated. The past does not depend on the future.
        """
        steps = self.steps if steps is None else steps
        window = min(self.window, steps)
        return [layer.filters(window if l == 0 else steps, steps) for l, layer in enumerate(self.layers[:depth])]

    @torch.no_grad()
    def hidden_spikes(
        self, x: Inputs, filters: Sequence[Tensor] | None = None, work: Sequence[Workspace] | None = None
    ) -> list[Tensor]:
        """Return the spikes (neurons, steps, batch) of the first ``len(filters)`` hidden layers. Default: of all.

        Parameters
        ----------
        x : Tensor of shape (batch, window, inputs), or EventBatch
        filters : list of Tensor, optional
            From `hidden_filters`.
        work : list of Workspace, optional
            One per layer, where the results then live.
        """
        signals, spikes = self.signals(x), []
        filters = self.hidden_filters() if filters is None else filters
        if filters and isinstance(signals, Tensor):
            signals = signals[:, : filters[0].shape[2]]
        places = [None] * len(filters) if work is None else work
        for layer, matrices, place in zip(self.layers, filters, places, strict=False):
            signals = layer.spikes(signals, matrices, place)
            spikes.append(signals)
        return spikes

    def forward(self, x: Inputs, past: Tensor | None = None) -> Tensor:
        """Map (batch, window, inputs), or events, to the outputs on ``[start, start + horizon)``: (batch, horizon, outputs).

        `past` (batch, window, outputs) is what a readout with lags sees. Default: the first inputs.
        """
        traced = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        traced = (traced or self.soft or exporting()) and not self.convolutions  # which have no gradients
        return self.activity(x, past).output if traced else self.predictor()(x, past)

    def activity(self, x: Inputs, past: Tensor | None = None) -> Activity:
        """Return every layer's spikes and the output as `forward` returns it, all of them with gradients."""
        if isinstance(x, EventBatch):
            if not x.whole:
                raise TypeError("x: gradients need events on whole steps: pass `x.dense()`.")
            x = x.dense()
        signals: Tensor = self.signals(x)  # type: ignore[assignment]
        spikes = []
        for layer in self.layers:
            signals = self._through(layer, signals)
            spikes.append(signals)
        y = self.readout.read_through(spikes, self._rows(x, past), self._through)
        return Activity([a.permute(2, 1, 0) for a in spikes], y)

    def _rows(self, x: Inputs, past: Tensor | None) -> Tensor | None:
        """Return the rows (batch, window, inputs) that a readout with lags sees; events have none."""
        if isinstance(x, EventBatch) or past is None:
            return None if isinstance(x, EventBatch) else x
        return torch.cat([past.to(x), x[:, :, self.outputs :]], dim=2)

    def _through(self, layer: SpikingLayer, signals: Tensor) -> Tensor:
        """Return a layer's spikes (neurons, steps, batch) with gradients."""

        def run(signals: Tensor) -> Tensor:
            v = layer.respond(signals, self.steps)
            return layer.fire_through(v, self.surrogate, detach=self.detach_refractory, soft=self.soft)

        return torch.utils.checkpoint.checkpoint(run, signals, use_reentrant=False) if self.checkpoint else run(signals)

    @torch.no_grad()
    def predictor(self, start: int | None = None) -> Predictor:
        """Return a function that maps batches as `forward` does, for many of them: what they share is computed once.

        A voltage is read from step `start` on. Default: that of the network. The function keeps the parameters' present
        values and has no gradients.
        """
        steps, read = self.readout.reader(self.window, start)
        filters, work = self.hidden_filters(steps=steps), [Workspace() for _ in self.layers]

        @torch.no_grad()
        def predict(x: Inputs, past: Tensor | None = None) -> Tensor:
            return read(self.hidden_spikes(x, filters, work), self._rows(x, past))

        return predict

    @torch.no_grad()
    def trace_reader(self, constants: Sequence[float], depth: int | None = None) -> Callable[[Inputs], Tensor]:
        """Return a function that maps batches (batch, window, inputs) to decaying traces at the window's end, (traces, batch).

        It keeps the parameters' present values. `depth` is the number of layers that are read. Default: all.
        """
        filters, work = self.hidden_filters(depth, self.window), [Workspace() for _ in self.layers]
        age = torch.arange(self.window - 1, -1, -1)
        decay = decays(torch.tensor(constants), age).to(filters[0])  # (K, O)

        def read(x: Inputs) -> Tensor:
            if len(filters) == 1 and bool((decay == 1).all()):
                counts = self.layers[0].counts(self.signals(x), filters[0])  # (N, B)
                if counts is not None:
                    return counts.repeat_interleave(len(decay), dim=0)
            spikes = self.hidden_spikes(x, filters, work)
            return torch.cat([torch.matmul(decay, a).flatten(0, 1) for a in spikes])  # (N K, B)

        return read

    def digest(self, *more: object) -> str:
        """Return a text that tells this network from others, by all parameters but those that an output is solved for."""
        found = hashlib.sha256(repr((self.window, self.horizon, self.start, *more)).encode())
        for name, tensor in self.state_dict().items():
            if name not in SOLVED:
                found.update(f"{name} {tuple(tensor.shape)}".encode() + tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    @torch.no_grad()
    def simulate(self, x: Inputs, *, potentials: bool = False) -> Activity:
        """Run a batch (batch, window, inputs) or events; return every layer's spikes and the output.

        A voltage is returned from step 0 on, a readout at the window's end on the horizon. With `potentials`, the hidden
        layers' membrane potentials are returned too.
        """
        voltages = self.hidden_potentials(x) if potentials else None
        spikes = self.hidden_spikes(x) if voltages is None else [(v >= 1).to(v) for v in voltages]
        output = self.readout.reader(self.window, 0)[1](spikes, self._rows(x, None))
        shown = None if voltages is None else [v.permute(2, 1, 0) for v in voltages]
        return Activity([a.permute(2, 1, 0) for a in spikes], output, shown)

    @torch.no_grad()
    def hidden_potentials(self, x: Inputs, filters: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the membrane potentials (neurons, steps, batch) of the hidden layers, with refractory part."""
        signals, found = self.signals(x), []
        for layer, matrices in zip(self.layers, self.hidden_filters() if filters is None else filters, strict=False):
            v = layer.charge(layer.potentials(signals, matrices))
            found.append(v)
            signals = (v >= 1).to(v)
        return found


def resolve_kernels(argument: str, kernel: KernelName | Sequence[KernelName], layers: int) -> tuple[Kernel, ...]:
    """Return one kernel per hidden layer, from one or several names or objects."""
    several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
    given = list(kernel) if several else [kernel, "hat"]  # type: ignore[arg-type]
    if not given:
        raise ValueError(f"{argument}: needs at least one kernel, got an empty sequence.")
    if several and len(given) > max(layers, 1):
        raise ValueError(f"{argument} lists {len(given)} kernels for {layers} hidden layers: list at most one per layer.")
    kernels = [resolve_kernel(k, argument) for k in given]  # type: ignore[arg-type]
    return tuple(kernels[min(l, len(kernels) - 1)] for l in range(layers))
