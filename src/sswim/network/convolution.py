r"""Convolutions: layers whose neurons look at every place of an image, a cochlea or a camera with the same weights.

A filter is a neuron of definition ``def:ff_snn`` that exists once at each place. It listens to the patch of channels around
that place. The spikes of neighbouring places are added up, *pooled*, and these sums are what the layer puts out. So a layer of
filters is a dense layer whose samples are patches, followed by a sum; this module adds nothing to the dynamics of a neuron.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.network.events import EventBatch
from sswim.network.grid import Grid, widths_of
from sswim.network.kernels import Exponential, Kernel
from sswim.network.layer import SpikingLayer, Workspace, filter_signals

__all__ = ["NO_LEAK", "ConvolutionLayer", "constant_in_time", "hidden_layers", "integrated"]

# Samples, and filters, that are simulated at once where nothing but a sum is remembered.
FEW, TOGETHER = 16, 32
# A support beyond this, in steps, has no leak that a float could show.
NO_LEAK = 1e20


def constant_in_time(signals: Tensor | EventBatch) -> bool:
    """Return whether signals (senders, steps, batch) are one step that was expanded: the same at all times."""
    return isinstance(signals, Tensor) and signals.shape[1] > 1 and signals.stride(1) == 0


def integrated(current: Tensor, biases: Tensor, steps: int) -> Tensor:
    r"""Count the spikes of integrate-and-fire neurons whose input does not change.

    Without a leak, and with spikes that cost 1, the potential before inhibition is :math:`v(t) = b + u t` at the steps
    :math:`t = 1, \dots, T`, with :math:`b < 1`. A neuron fires at most once a step, from the first step on with
    :math:`v(t) \ge 1`, so that it fires

    .. math:: n = \min\big(\lfloor b + u T \rfloor,\ T + 1 - \lceil (1 - b) / u \rceil\big)

    times if :math:`u > 0` and that is above 0, and never otherwise.

    Parameters
    ----------
    current : Tensor of shape (neurons, any)
        `u`. Overwritten by the result.
    biases : Tensor of shape (neurons,)
        `b`.

    Examples
    --------
    >>> integrated(torch.tensor([[-1.0, 0.1, 0.25, 0.5, 3.0]]), torch.tensor([0.0]), 4)
    tensor([[0., 0., 1., 2., 4.]])
    """
    b = biases[:, None]
    u = current.clamp_(min=1e-30)
    late = ((1 - b) / u).ceil_()
    u.mul_(steps).add_(b).floor_()
    return torch.minimum(u, late.neg_().add_(steps + 1), out=u).clamp_(min=0)


class ConvolutionLayer(SpikingLayer):
    r"""Filters over all places, and the sums of their spikes over regions.

    Signals have the shape (channels, steps, batch). Potentials are those of every filter at every place, with places and
    samples side by side: (filters, steps, places * batch). What comes out are pooled spikes: (filters * regions, steps, batch).

    Parameters
    ----------
    grid : Grid
    kernel, refractory : Kernel
    """

    index: Tensor
    regions: Tensor

    def __init__(self, grid: Grid, kernel: Kernel, refractory: Kernel, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(grid.senders, grid.shape.filters, kernel, refractory, dtype=dtype)
        self.grid = grid
        self.register_buffer("index", grid.patches(), persistent=False)  # (senders, P)
        self.register_buffer("regions", grid.regions_of_places().to(dtype), persistent=False)  # (R, P)

    @property
    def inputs(self) -> int:
        """Number of channels that it takes."""
        return self.grid.channels

    @property
    def outputs(self) -> int:
        """Number of pooled spike trains that it puts out."""
        return self.neurons * self.grid.regions

    @property
    def places(self) -> int:
        """Number of places: each filter is a neuron at each of them."""
        return self.grid.places

    def arrivals(self, active: Tensor) -> Tensor:
        """Return how often synapses of each sender get an input at all places, from how often channels are active."""
        return torch.cat([active, active.new_zeros(1)])[self.index.cpu()].sum(dim=1)

    def per_neuron(self, spikes: Tensor) -> Tensor:
        """Return spikes (filters, steps, batch) of each filter at all places, from pooled ones: exact but for overlaps."""
        each = spikes.unflatten(0, (self.neurons, -1)).sum(dim=1)
        return each * (self.places / float(self.regions.sum()))

    def fired(self, signals: Tensor | EventBatch, filters: Tensor, spikes: Tensor) -> Tensor:
        """Return how many spikes each filter makes at all places, (filters,), float64."""
        return super().fire(self.potentials(signals, filters)).sum(dim=(1, 2)).double().cpu()

    def charge(self, potentials: Tensor) -> Tensor:
        """Refuse: what a convolution puts out are pooled spikes, which have no potential."""
        raise ValueError("potentials: a Convolution puts out pooled spikes, which have no membrane potential of their own.")

    def forward(self, x: Tensor) -> Tensor:
        """Map values or spikes (batch, time, channels) to pooled spikes (batch, time, filters * regions), without gradients."""
        if x.ndim != 3 or x.shape[2] != self.inputs:
            raise ValueError(f"x must have shape (batch, time, channels={self.inputs}), got {tuple(x.shape)}.")
        with torch.no_grad():
            signals = x.to(self.weights).permute(2, 1, 0)
            return self.spikes(signals, self.filters(x.shape[1], x.shape[1])).permute(2, 1, 0)

    def respond(self, signals: Tensor, steps: int, start: int = 0) -> Tensor:
        """Refuse: a convolution has no gradients."""
        raise ValueError("a Convolution is sampled and has no gradients: use torch.no_grad(), or dense layers.")

    def numbers(self, steps: int) -> int:
        """Return how many numbers a sample takes while the layer is simulated."""
        return (self.senders + 3 * self.neurons) * self.grid.places * steps + self.outputs * steps

    @property
    def spike_dtype(self) -> torch.dtype:
        """Integers that hold the pooled spikes of a step."""
        return torch.int32 if self.grid.places > 2**15 else torch.int16

    def rates(self, spikes: Tensor) -> Tensor:
        """Return spikes per step of each filter at a place, (filters,), from pooled ones. Places in two regions count twice."""
        each = spikes.unflatten(0, (self.neurons, -1)).sum(dim=(1, 2, 3), dtype=torch.float64)
        return (each / (float(self.regions.sum()) * spikes[0].numel())).cpu()

    def patches(self, signals: Tensor, places: Tensor | None = None) -> Tensor:
        """Return what filters see of signals (channels, steps, batch): (senders, steps, places, batch). Default: all places."""
        if constant_in_time(signals):
            return self.patches(signals[:, :1], places).expand(-1, signals.shape[1], -1, -1)
        channels, steps, batch = signals.shape
        index = self.index if places is None else self.index[:, places]
        rows = signals.reshape(channels * steps, batch)
        if self.grid.shape.padding:
            rows = torch.cat([rows, rows.new_zeros(steps, batch)])
        at = index[:, None] * steps + torch.arange(steps, device=index.device)[:, None]  # (senders, steps, P)
        return rows[at.flatten()].view(*at.shape, batch)

    def potentials(self, signals: Tensor | EventBatch, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return response plus bias, without refractory part, of shape (filters, steps, places * batch)."""
        signals = self._dense(signals)[:, : filters.shape[2]]
        if constant_in_time(signals):
            u = self.currents(signals)  # (K, P B)
            reached = filters.sum(dim=2)  # (K, S), the response to a constant 1
            return torch.addcmul(self.biases[:, None, None], reached[:, :, None], u[:, None])
        seen = self.patches(signals.to(self.weights)).flatten(2)  # (senders, I, P B)
        return filter_signals(filters, self.weights, seen, work).add_(self.biases[:, None, None])

    def currents(self, signals: Tensor) -> Tensor:
        """Return the weighted input (filters, places * batch) of signals that are constant in time."""
        return self.weights @ self.patches(signals[:, :1].to(self.weights)).flatten(1)

    def spikes(self, signals: Tensor | EventBatch, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return the pooled spikes (filters * regions, steps, batch) for signals (channels, steps, batch)."""
        if not (isinstance(signals, Tensor) and constant_in_time(signals[:, : filters.shape[2]]) and self.integrates()):
            return super().spikes(signals, filters, work)
        # Without a leak: v grows by u at each step, and falls by 1 with each spike.
        steps, batch = filters.shape[1], signals.shape[2]
        found = self.weights.new_empty(steps, self.grid.regions, self.neurons, batch)
        for first in range(0, batch, FEW):  # few samples at a time stay in the processor's cache
            u = self._place_by_place(self.currents(signals[:, :, first : first + FEW]))  # (P, K, B)
            v, fired = self.biases[:, None].expand_as(u).contiguous(), torch.empty_like(u)
            for t in range(steps):
                v.add_(u)
                torch.ge(v, 1, out=fired)
                v.sub_(fired)
                found[t, :, :, first : first + FEW] = (self.regions @ fired.flatten(1)).view(-1, *u.shape[1:])
        return found.permute(2, 1, 0, 3).reshape(self.outputs, steps, batch)

    def _place_by_place(self, values: Tensor, steps: int = 1) -> Tensor:
        """Return values (steps * filters, places * batch) as (places, steps * filters, batch), for one product with regions."""
        return values.view(steps * self.neurons, self.grid.places, -1).transpose(0, 1).contiguous()

    def fire(self, potentials: Tensor) -> Tensor:
        """Return the pooled spikes, of shape (filters * regions, steps, batch). Overwrites `potentials`."""
        return self.pool(super().fire(potentials))

    def pool(self, spikes: Tensor) -> Tensor:
        """Add up spikes (filters, steps, places * batch) over regions: (filters * regions, steps, batch)."""
        steps = spikes.shape[1]
        each = self._place_by_place(spikes.transpose(0, 1).flatten(0, 1), steps)  # (P, S K, B)
        found = (self.regions.to(each) @ each.flatten(1)).view(-1, steps, self.neurons, each.shape[2])  # (R, S, K, B)
        return found.permute(2, 0, 1, 3).flatten(0, 1)

    def counts(self, signals: Tensor | EventBatch, filters: Tensor) -> Tensor | None:
        """Return how often neurons fire at all steps, pooled, (filters * regions, batch), if that needs no simulation."""
        steps = filters.shape[1]
        if not isinstance(signals, Tensor) or not (constant_in_time(signals[:, : filters.shape[2]]) and self.integrates()):
            return None
        found = self.weights.new_empty(self.neurons, self.grid.regions, signals.shape[2])
        # Few samples and filters at a time stay in the processor's cache.
        for first in range(0, signals.shape[2], FEW):
            x = self.patches(signals[:, :1, first : first + FEW].to(self.weights)).flatten(1)  # (senders, P B)
            for k in range(0, self.neurons, TOGETHER):
                n = integrated(self.weights[k : k + TOGETHER] @ x, self.biases[k : k + TOGETHER], steps)  # (K, P B)
                found[k : k + TOGETHER, :, first : first + FEW] = self.regions @ n.unflatten(1, (self.places, -1))
        return found.flatten(0, 1)

    def integrates(self) -> bool:
        """Return whether the neurons integrate without a leak, and each spike subtracts the threshold 1."""
        kernels = isinstance(self.kernel, Exponential) and isinstance(self.refractory, Exponential)
        return kernels and bool(
            (self.supports > NO_LEAK).all()
            and (self.refractory_supports > NO_LEAK).all()
            and (self.costs == -1).all()
            and (self.delays == 0).all()
            and (self.biases < 1).all()
        )

    def _dense(self, signals: Tensor | EventBatch) -> Tensor:
        """Return signals (channels, steps, batch); events go to their nearest steps."""
        if isinstance(signals, EventBatch):
            return signals.dense().permute(2, 1, 0).to(self.weights).contiguous()
        return signals

    def extra_repr(self) -> str:
        """Describe the layer in the module's repr."""
        size, space = "x".join(map(str, self.grid.size)), "x".join(map(str, self.grid.space))
        return f"{self.neurons} filters of {size} over {self.grid.maps} maps of {space}, {self.grid.regions} regions"


def hidden_layers(
    inputs: int, shapes: Sequence[int | Grid], kernels: Sequence[Kernel], refractory: Kernel, dtype: torch.dtype
) -> list[SpikingLayer]:
    """Return hidden layers, their parameters still to be set."""
    layers: list[SpikingLayer] = []
    for shape, kernel, senders in zip(shapes, kernels, [inputs, *widths_of(shapes)], strict=False):
        if isinstance(shape, Grid):
            layers.append(ConvolutionLayer(shape, kernel, refractory, dtype=dtype))
        else:
            layers.append(SpikingLayer(senders, shape, kernel, refractory, dtype=dtype))
    return layers
