r"""The network of definition ``def:ff_snn``: layers of spike response neurons as one torch module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from sswim._checks import check_integer, resolve
from sswim.events import EventBatch
from sswim.kernels import REFRACTORY_KERNELS, Kernel, resolve_kernel
from sswim.layers import DirectReadout, SpikingLayer, default_constants
from sswim.simulate import Workspace
from sswim.stream import Stream
from sswim.surrogates import SURROGATES, Surrogate

__all__ = ["Activity", "SpikingNetwork"]


@dataclass
class Activity:
    """What a simulation showed: `spikes` per hidden layer (batch, time, neurons) and the `output` (batch, time, outputs).

    The output of a direct readout lives on the horizon, any other on all steps.
    """

    spikes: list[Tensor]
    output: Tensor


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
    hidden : sequence of int
        One width per hidden layer.
    start : int, optional
        First output step :math:`T`, `window` unless told.
    kernel : str or callable
        Kernel of the first hidden layer: a name from ``sswim.kernels.KERNELS`` or any callable.
    deeper_kernel, output_kernel : str or callable
        Kernel of the further hidden layers and of the output layer.
    refractory : str or callable
        Refractory kernel of all spiking layers.
    output : {"trajectory", "direct"}
        Whether an output's voltage draws the horizon, as in the paper, or all steps ahead are read at the window's end.
    traces : sequence of float
        Time constants, in steps, of the traces that a direct output reads; those that suit the window unless told.
    skip : bool
        Whether the window's own rows reach the output too, past the spikes. A direct output reads all rows of the first
        `outputs` inputs, which are the outputs' past then, and the last row of any further inputs. To a trajectory, a linear
        map of each output's own past is added.
    groups, rank, factors, common : int
        Of a direct output's corrections for groups that share the network, see `DirectReadout`.
    spiking_output : bool
        Whether the output layer spikes (remark ``rem:ff_snn``) or puts out its voltage.
    surrogate : str or Surrogate
        What stands for the threshold's derivative: ``"exponential"``, ``"fast-sigmoid"``, ``"triangular"``, ``"arctan"``, or an
        object such as ``sswim.surrogates.Arctan(width=0.5)``.
    detach_refractory : bool
        Whether gradients stop at the inhibition that spikes cause, instead of passing through it back in time.
    checkpoint : bool
        Whether a layer's potentials are computed again for the gradient instead of kept: less memory, more time.
    dtype : torch.dtype
        ``torch.float32`` or ``torch.float64``.

    Notes
    -----
    A new network has zero weights: set its parameters with `sswim.sample`, `sswim.initialize`, or by hand.

    `forward` knows gradients for all parameters where autograd is on. They are exact but for the threshold, whose derivative
    is that of the `surrogate`: delays and supports need no rounding to whole steps, for a kernel is a function of both.
    Setting the attribute `soft` puts the surrogate's smooth step in place of the threshold, so that all of them are exact.

    Examples
    --------
    >>> network = SpikingNetwork(inputs=3, outputs=2, window=10, horizon=4, hidden=(20, 10))
    >>> network(torch.zeros(5, 10, 3)).shape
    torch.Size([5, 4, 2])
    """

    layers: Sequence[SpikingLayer]
    readout: Any  # SpikingLayer or DirectReadout

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        window: int,
        horizon: int,
        hidden: Sequence[int] = (750,),
        start: int | None = None,
        kernel: str | Kernel = "morlet",
        deeper_kernel: str | Kernel = "hat",
        output_kernel: str | Kernel = "hat",
        refractory: str | Kernel = "exponential-cut",
        output: str = "trajectory",
        traces: Sequence[float] | None = None,
        skip: bool = False,
        groups: int = 0,
        rank: int = 0,
        factors: int = 0,
        common: int = 0,
        spiking_output: bool = False,
        surrogate: str | Surrogate = "exponential",
        detach_refractory: bool = False,
        checkpoint: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if output not in ("trajectory", "direct"):
            raise ValueError(f"output must be 'trajectory' or 'direct', got {output!r}.")
        if isinstance(hidden, int) or not hidden:
            raise ValueError(f"hidden must list one width per hidden layer, such as (750,), got {hidden!r}.")
        widths = [check_integer("inputs", inputs, 1), *(check_integer("hidden", n, 1) for n in hidden)]
        self.window = check_integer("window", window, 1)
        self.horizon = check_integer("horizon", horizon, 1)
        self.start = self.window if start is None else check_integer("start", start, 0)
        if self.start + self.horizon < self.window:
            raise ValueError(
                f"start + horizon must reach the end of the window ({self.window}), got {self.start} + {self.horizon}."
            )
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        refractory = resolve_kernel(refractory, "refractory", REFRACTORY_KERNELS)
        first = resolve_kernel(kernel)
        deeper = resolve_kernel(deeper_kernel, "deeper_kernel")
        self.layers = nn.ModuleList(  # type: ignore[assignment]
            SpikingLayer(senders, neurons, first if depth == 0 else deeper, refractory, dtype=dtype)
            for depth, (senders, neurons) in enumerate(zip(widths, widths[1:], strict=False))
        )
        outputs = check_integer("outputs", outputs, 1)
        self.direct, self.skip = output == "direct", skip
        self.surrogate = resolve("surrogate", surrogate, SURROGATES, "derivative")
        self.detach_refractory, self.checkpoint, self.soft = detach_refractory, checkpoint, False
        # So many features of a direct output, the last ones, are input rows.
        self.lags = window * outputs + inputs - outputs if self.direct and skip else 0
        if skip and inputs < outputs:
            raise ValueError(f"skip: the first inputs must be the outputs' past, got {inputs} inputs, {outputs} outputs.")
        if self.direct:
            if spiking_output or (start is not None and start != window):
                raise ValueError("a direct output reads voltages at the window's end: leave spiking_output and start away.")
            constants = default_constants(window) if traces is None else traces
            features = sum(widths[1:]) * len(constants) + self.lags
            self.readout = DirectReadout(
                features,
                outputs,
                horizon,
                constants=constants,
                groups=groups,
                rank=min(rank, features),
                factors=factors,
                common=common,
                dtype=dtype,
            )
            return
        if skip:
            if spiking_output:
                raise ValueError("skip: an output that spikes can not be added to a voltage. Leave one of both away.")
            self.skip_weights = nn.Parameter(torch.zeros(horizon, window, dtype=dtype))
            self.skip_biases = nn.Parameter(torch.zeros(horizon, dtype=dtype))
        self.readout = SpikingLayer(
            widths[-1],
            outputs,
            resolve_kernel(output_kernel, "output_kernel"),
            refractory,
            spiking=spiking_output,
            dtype=dtype,
        )

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.layers[0].senders

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.readout.neurons

    @property
    def hidden(self) -> tuple[int, ...]:
        """One width per hidden layer."""
        return tuple(layer.neurons for layer in self.layers)

    @property
    def steps(self) -> int:
        """Number of simulated steps: `start` + `horizon`, and with a direct output `window`."""
        return self.window if self.direct else self.start + self.horizon

    def stream(self, batch: int, dtype: torch.dtype | None = None) -> Stream:
        """Return the hidden layers as a stream for `batch` series, to be read by a direct output; see `Stream`."""
        return Stream(self.layers, self.readout.constants.tolist(), self.window, batch, dtype)

    def _signals(self, x: Tensor | EventBatch) -> Any:
        """Check a batch (batch, window, inputs) and bring it to the layout (inputs, window, batch); events stay as they are."""
        if isinstance(x, EventBatch):
            if (x.window, x.inputs) != (self.window, self.inputs):
                came, wanted = (x.window, x.inputs), (self.window, self.inputs)
                raise ValueError(f"x: events must be on (window, inputs) = {wanted}, got {came}.")
            return x
        if x.ndim != 3 or x.shape[1:] != (self.window, self.inputs):
            raise ValueError(f"x must have shape (batch, window={self.window}, inputs={self.inputs}), got {tuple(x.shape)}.")
        w = self.readout.weights
        return x.to(dtype=w.dtype, device=w.device).permute(2, 1, 0).contiguous()

    def hidden_filters(self, depth: int | None = None, steps: int | None = None) -> list[Tensor]:
        """Return the convolution matrices of the first `depth` hidden layers: compute them once, simulate many batches.

        With `steps`, only the first so many steps are simulated. The past does not depend on the future.
        """
        steps = self.steps if steps is None else steps
        window = min(self.window, steps)
        return [layer.filters(window if l == 0 else steps, steps) for l, layer in enumerate(self.layers[:depth])]

    @torch.no_grad()
    def hidden_spikes(
        self, x: Tensor | EventBatch, filters: Sequence[Tensor] | None = None, work: Sequence[Workspace] | None = None
    ) -> Tensor:
        """Return the spikes of hidden layer ``len(filters)``, the last one unless told.

        Parameters
        ----------
        x : Tensor of shape (batch, window, inputs), or EventBatch
        filters : list of Tensor, optional
            From `hidden_filters`; an empty list returns the input itself.
        work : list of Workspace, optional
            One per layer; what is returned then lives in the last one.

        Returns
        -------
        Tensor of shape (neurons, steps, batch)
        """
        signals = self._signals(x)
        filters = self.hidden_filters() if filters is None else filters
        if filters and isinstance(signals, Tensor):
            signals = signals[:, : filters[0].shape[2]]
        places = [None] * len(filters) if work is None else work
        for layer, matrices, place in zip(self.layers, filters, places, strict=False):
            signals = layer.fire(layer.potentials(signals, matrices, place))
        return signals

    def _read_filters(self, start: int) -> Tensor:
        """Return the output layer's convolution matrices from step `start` on; a spiking output needs its past too.

        They end with the last hidden step that any output sees: spikes after it need not be simulated.
        """
        filters = self.readout.filters(self.steps, self.steps, 0 if self.readout.spiking else start)
        seen = (filters != 0).any(dim=1).any(dim=0).nonzero()
        return filters[:, :, : int(seen.max()) + 1 if len(seen) else 1]

    def _read(self, spikes: Tensor, start: int, filters: Tensor) -> Tensor:
        """Return the output from step `start` on, of shape (batch, steps, outputs)."""
        readout = self.readout
        v = readout.potentials(spikes, filters)
        if readout.spiking:
            with torch.no_grad():
                v = readout.fire(v.detach().clone())[:, start:]
        return v.permute(2, 1, 0)

    def skipped(self, past: Tensor) -> Tensor:
        """Return what a skip connection adds to trajectories (batch, horizon, outputs), from (batch, window, outputs)."""
        past = past.to(self.skip_weights)
        return torch.einsum("bwo,hw->bho", past, self.skip_weights) + self.skip_biases[:, None]

    def forward(self, x: Any, groups: Tensor | None = None, past: Tensor | None = None) -> Tensor:
        """Map (batch, window, inputs), or events, to the outputs on ``[start, start + horizon)``: (batch, horizon, outputs).

        `groups` is for direct outputs that correct groups, see `DirectReadout`. `past` (batch, window, outputs) is what a skip
        connection sees, the first inputs unless told.
        """
        traced = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        if traced or self.soft:
            return self.activity(x, groups, past).output
        if self.direct:
            return self._read_traces(self.features()(x), x, groups, past)
        output = self._read_filters(self.start)
        y = self._read(self.hidden_spikes(x, self.hidden_filters(steps=output.shape[2])), self.start, output)
        return y + self.skipped(x[:, :, : self.outputs] if past is None else past) if self.skip else y

    def _read_traces(self, traces: Tensor, x: Any, groups: Tensor | None, past: Tensor | None = None) -> Tensor:
        """Return a direct output (batch, horizon, outputs) from traces (features, batch)."""
        features = traces[:, None]
        if self.skip:
            own = (x[:, :, : self.outputs] if past is None else past).to(traces).permute(2, 1, 0).flatten(0, 1)
            others = x[:, -1, self.outputs :].to(traces).T
            features = torch.cat([features, torch.cat([own, others])[:, None]])
        return self.readout(features, groups)[:, 0].T.reshape(len(x), self.horizon, self.outputs)

    def activity(self, x: Tensor, groups: Tensor | None = None, past: Tensor | None = None) -> Activity:
        """Return every layer's spikes and the output as `forward` puts it out, all of them with gradients."""
        if isinstance(x, EventBatch):
            if not x.whole:
                raise TypeError("x: gradients need events on whole steps: pass `x.dense()`.")
            x = x.dense()
        signals, spikes = self._signals(x), []
        for layer in self.layers:
            signals = self._through(layer, signals)
            spikes.append(signals)
        if self.direct:
            traces = torch.matmul(self._decay(signals), torch.cat(spikes)).flatten(0, 1)  # (N K, B)
            y = self._read_traces(traces, x, groups, past)
        else:
            if self.readout.spiking:
                y = self._through(self.readout, signals)[:, self.start :].permute(2, 1, 0)
            else:
                y = self.readout.respond(signals, self.steps, self.start).permute(2, 1, 0)
            y = y + self.skipped(x[:, :, : self.outputs] if past is None else past) if self.skip else y
        return Activity([a.permute(2, 1, 0) for a in spikes], y)

    def _through(self, layer: SpikingLayer, signals: Tensor) -> Tensor:
        """Return a layer's spikes (neurons, steps, batch) with gradients."""

        def run(signals: Tensor) -> Tensor:
            v = layer.respond(signals, self.steps)
            return layer.fire_through(v, self.surrogate, detach=self.detach_refractory, soft=self.soft)

        if self.checkpoint:
            return torch.utils.checkpoint.checkpoint(run, signals, use_reentrant=False)
        return run(signals)

    @torch.no_grad()
    def features(self, depth: int | None = None, constants: Sequence[float] | None = None) -> Callable[[Any], Tensor]:
        """Return a function that maps batches (batch, window, inputs) to what a direct output reads, (traces, batch).

        It keeps the parameters' values of now, and what many batches share is computed once. `depth` is the number of layers
        that are read, and `constants` are the traces' time constants: all, and the output's, unless told.
        """
        filters, work = self.hidden_filters(depth=depth), [Workspace() for _ in self.layers]
        decay = self._decay(filters[0], constants)

        @torch.no_grad()
        def read(x: Tensor | EventBatch) -> Tensor:
            signals, traces = self._signals(x), []
            for layer, matrices, place in zip(self.layers, filters, work, strict=False):
                signals = layer.fire(layer.potentials(signals, matrices, place))
                traces.append(torch.matmul(decay, signals).flatten(0, 1))  # (N K, B)
            return torch.cat(traces)

        return read

    def _decay(self, like: Tensor, constants: Sequence[float] | None = None) -> Tensor:
        """Return what of a spike at each step of the window is left in each trace at its end: (constants, window)."""
        age = torch.arange(self.window - 1, -1, -1, dtype=like.dtype, device=like.device)
        told = self.readout.constants if constants is None else torch.tensor(constants)
        return torch.exp(-age / told.to(like)[:, None])

    @torch.no_grad()
    def predictor(self, start: int | None = None) -> Callable[[Any], Tensor]:
        """Return a function that maps batches as `forward` does, for many of them: what they share is computed once.

        A trajectory is read from step `start` on, that of the network unless told.

        A trajectory's skip connection is left to `skipped`. It keeps the parameters' values of now, and knows no gradients.
        """
        if self.direct:
            return torch.no_grad()(self.forward)
        start = self.start if start is None else start
        output = self._read_filters(start).contiguous()
        hidden = self.hidden_filters(steps=output.shape[2])
        work = [Workspace() for _ in self.layers]

        def predict(x: Any) -> Tensor:
            with torch.no_grad():
                return self._read(self.hidden_spikes(x, hidden, work), start, output)

        return predict

    @torch.no_grad()
    def simulate(self, x: Tensor | EventBatch, groups: Tensor | None = None) -> Activity:
        """Run a batch (batch, window, inputs) or events; return every layer's spikes and the output on ``[0, steps)``."""
        signals, spikes = self._signals(x), []
        for layer, filters in zip(self.layers, self.hidden_filters(), strict=True):
            signals = layer.fire(layer.potentials(signals, filters))
            spikes.append(signals.permute(2, 1, 0))
        if self.direct:
            return Activity(spikes, self.forward(x, groups))
        filters = self._read_filters(0)
        return Activity(spikes, self._read(signals[:, : filters.shape[2]], 0, filters))
