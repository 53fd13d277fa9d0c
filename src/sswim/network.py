r"""The network of definition ``def:ff_snn``: layers of spike response neurons as one torch module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sswim._checks import check_integer
from sswim.kernels import REFRACTORY_KERNELS, Kernel, resolve_kernel
from sswim.simulate import Workspace, filter_signals, fire, kernel_taps, refractory_taps, toeplitz

__all__ = ["Activity", "SpikingLayer", "SpikingNetwork"]


class SpikingLayer(nn.Module):
    r"""Parameters of one layer of spike response neurons.

    Parameters
    ----------
    senders, neurons : int
        Widths :math:`N_{l-1}` and :math:`N_l`.
    kernel, refractory : callable
        The kernels `k` and `q`.
    spiking : bool
        A layer that does not spike has no spike costs and no refractory supports, and puts out its potential.

    Attributes
    ----------
    weights : Parameter of shape (neurons, senders), the paper's `W`
    biases, delays, supports : Parameter of shape (neurons,), the paper's `b`, `tau` and `sigma`
    costs, refractory_supports : Parameter of shape (neurons,), the paper's `c` and `varsigma`
    """

    def __init__(
        self,
        senders: int,
        neurons: int,
        kernel: Kernel,
        refractory: Kernel,
        *,
        spiking: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kernel, self.refractory, self.spiking = kernel, refractory, spiking

        def constant(value: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, value, dtype=dtype))

        self.weights = constant(0.0, neurons, senders)
        self.biases = constant(0.0, neurons)
        self.delays = constant(0.0, neurons)
        self.supports = constant(5.0, neurons)
        if spiking:
            self.costs = constant(-1.5, neurons)
            self.refractory_supports = constant(5.0, neurons)

    @property
    def neurons(self) -> int:
        """Number of neurons in this layer."""
        return self.weights.shape[0]

    @property
    def senders(self) -> int:
        """Number of neurons (or channels) that this layer listens to."""
        return self.weights.shape[1]

    def filters(self, steps_in: int, steps_out: int, start: int = 0) -> Tensor:
        """Return the convolution matrices for the steps ``start, ..., steps_out - 1``."""
        taps = kernel_taps(self.kernel, self.delays, self.supports, steps_out)  # (N, S)
        return toeplitz(taps, steps_in)[:, start:]  # (N, S - start, I)

    def potentials(self, signals: Tensor, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return response plus bias, without refractory part, of shape (neurons, steps, batch)."""
        return filter_signals(filters, self.weights, signals, work).add_(self.biases[:, None, None])

    def fire(self, potentials: Tensor) -> Tensor:
        """Return the spikes, of shape (neurons, steps, batch). Overwrites `potentials`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return fire(potentials, self.costs, inhibition)

    def extra_repr(self) -> str:
        """Describe the layer in the module's repr."""
        return f"{self.senders} -> {self.neurons}, kernel={self.kernel}, spiking={self.spiking}"


@dataclass
class Activity:
    """What a simulation showed: `spikes` per hidden layer (batch, time, neurons) and the `output` (batch, time, outputs)."""

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
    spiking_output : bool
        Whether the output layer spikes (remark ``rem:ff_snn``) or puts out its voltage.
    dtype : torch.dtype
        ``torch.float32`` or ``torch.float64``.

    Notes
    -----
    A new network has zero weights: set its parameters with `sswim.sample`, or by hand. The threshold's derivative is zero
    almost everywhere, so plain autograd reaches the parameters of the output layer and those of no other layer.

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
        hidden: Sequence[int] = (750,),
        start: int | None = None,
        kernel: str | Kernel = "morlet",
        deeper_kernel: str | Kernel = "hat",
        output_kernel: str | Kernel = "hat",
        refractory: str | Kernel = "exponential-cut",
        spiking_output: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
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
        self.readout = SpikingLayer(
            widths[-1],
            check_integer("outputs", outputs, 1),
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
        """Number of simulated steps, `start` + `horizon`."""
        return self.start + self.horizon

    def _signals(self, x: Tensor) -> Tensor:
        """Check a batch (batch, window, inputs) and bring it to the layout (inputs, window, batch)."""
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
        self, x: Tensor, filters: Sequence[Tensor] | None = None, work: Sequence[Workspace] | None = None
    ) -> Tensor:
        """Return the spikes of hidden layer ``len(filters)``, the last one unless told.

        Parameters
        ----------
        x : Tensor of shape (batch, window, inputs)
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
        if filters:
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

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch (batch, window, inputs) to the outputs on ``[start, start + horizon)``: (batch, horizon, outputs)."""
        output = self._read_filters(self.start)
        return self._read(self.hidden_spikes(x, self.hidden_filters(steps=output.shape[2])), self.start, output)

    @torch.no_grad()
    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Return a function that maps batches as `forward` does, for many of them: what they share is computed once.

        It keeps the parameters' values of now, and knows no gradients.
        """
        output = self._read_filters(self.start).contiguous()
        hidden = self.hidden_filters(steps=output.shape[2])
        work = [Workspace() for _ in self.layers]

        def predict(x: Tensor) -> Tensor:
            with torch.no_grad():
                return self._read(self.hidden_spikes(x, hidden, work), self.start, output)

        return predict

    @torch.no_grad()
    def simulate(self, x: Tensor) -> Activity:
        """Run a batch (batch, window, inputs) and return every layer's spikes and the output on ``[0, steps)``."""
        signals, spikes = self._signals(x), []
        for layer, filters in zip(self.layers, self.hidden_filters(), strict=True):
            signals = layer.fire(layer.potentials(signals, filters))
            spikes.append(signals.permute(2, 1, 0))
        filters = self._read_filters(0)
        return Activity(spikes, self._read(signals[:, : filters.shape[2]], 0, filters))
