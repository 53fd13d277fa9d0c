r"""Layers of spike response neurons: simulated window by window, or row by row as hardware would.

Inside the library every signal of a layer has the shape ``(neurons, time, batch)``. In that order the projection by the
weights, the filtering by the kernels, the threshold and the next layer's projection are plain matrix products on
contiguous memory, and nothing is ever transposed.

The response of neuron ``i`` is :math:`\sum_j W_{ij} (k_i * x_j) = k_i * (W x)_i`, because its kernel does not depend on the
sender: project first, filter after.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor, nn

from sswim.network.autograd import convolve, fire_through
from sswim.network.events import EventBatch, project_events
from sswim.network.exact import event_response
from sswim.network.kernels import Kernel, exporting, kernel_taps, refractory_taps, toeplitz
from sswim.network.surrogates import SURROGATES, Surrogate

__all__ = ["SpikingLayer", "Workspace", "charge", "decays", "filter_signals", "fire"]


class Workspace(threading.local):
    """Memory that is used again for every batch: asking the system for it takes a third of the time.

    A result that lives in a workspace is overwritten by the next call with the same workspace. Every thread has memory of its
    own. Not for gradients.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return an uninitialised tensor of `shape`, of the dtype and device of `like`."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size or memory.dtype != like.dtype or memory.device != like.device:
            memory = self._memory[name] = like.new_empty(size)
        return memory[:size].view(shape)


def filter_signals(filters: Tensor, weights: Tensor, signals: Tensor, work: Workspace | None = None) -> Tensor:
    r"""Respond to the signals of the layer before: :math:`\sum_j W_{ij} (k_i * x_j)(t)`.

    Parameters
    ----------
    filters : Tensor of shape (neurons, steps_out, steps_in)
        From `toeplitz`, or a part of its rows.
    weights : Tensor of shape (neurons, senders)
    signals : Tensor of shape (senders, steps_in, batch)
    work : Workspace, optional
        Where to compute.

    Returns
    -------
    Tensor of shape (neurons, steps_out, batch)
    """
    senders, steps_in, batch = signals.shape
    neurons, steps_out, _ = filters.shape
    signals = signals.reshape(senders, steps_in * batch)
    if work is None:
        return torch.bmm(filters, (weights @ signals).view(neurons, steps_in, batch))
    projected = torch.mm(weights, signals, out=work.take("projected", signals, neurons, steps_in * batch))
    result = work.take("potentials", signals, neurons, steps_out, batch)
    return torch.bmm(filters, projected.view(neurons, steps_in, batch), out=result)


def fire(potentials: Tensor, costs: Tensor, inhibition: Tensor) -> Tensor:
    r"""Threshold potentials at 1, each spike adding :math:`c_i q_i(t - t^f)` to its own neuron afterwards.

    Parameters
    ----------
    potentials : Tensor of shape (neurons, steps, batch)
        Response plus bias. Overwritten by the result: a second array of this size would cost more time than all sums here.
    costs : Tensor of shape (neurons,)
        Spike costs :math:`c_i`.
    inhibition : Tensor of shape (neurons, lags)
        From `refractory_taps`.

    Returns
    -------
    Tensor of shape (neurons, steps, batch), of the potentials' dtype
        1 where the neuron fires and 0 elsewhere.

    Examples
    --------
    >>> v = torch.tensor([1.0, 1.5, 0.0, 2.0]).reshape(1, 4, 1)
    >>> fire(v, torch.tensor([-1.0]), torch.tensor([[1.0, 0.5]])).flatten()
    tensor([1., 0., 0., 1.])
    """
    v = potentials
    cost = (costs[:, None] * inhibition)[:, :, None]  # (N, R, 1)
    steps, reach = v.shape[1], cost.shape[1]
    for t in range(steps):
        now = v[:, t : t + 1]  # (N, 1, B), a view: the potential becomes the spike
        torch.ge(now, 1, out=now)
        ahead = min(reach, steps - 1 - t)
        if ahead:
            v[:, t + 1 : t + 1 + ahead].addcmul_(cost[:, :ahead], now)
    return v


def charge(potentials: Tensor, costs: Tensor, inhibition: Tensor) -> Tensor:
    r"""Return the membrane potentials :math:`v_i(t)` with refractory part, whose spikes are those of `fire`.

    A neuron fires where its potential is at least 1. The arguments are those of `fire`; `potentials` is overwritten too.

    Examples
    --------
    >>> v = torch.tensor([1.0, 1.5, 0.0, 2.0]).reshape(1, 4, 1)
    >>> charge(v, torch.tensor([-1.0]), torch.tensor([[1.0, 0.5]])).flatten()
    tensor([ 1.0000,  0.5000, -0.5000,  2.0000])
    """
    v, cost = potentials, (costs[:, None] * inhibition)[:, :, None]  # (N, R, 1)
    steps, reach = v.shape[1], cost.shape[1]
    for t in range(steps):
        ahead = min(reach, steps - 1 - t)
        if ahead:
            v[:, t + 1 : t + 1 + ahead].addcmul_(cost[:, :ahead], (v[:, t : t + 1] >= 1).to(v))
    return v


def decays(constants: Tensor, ages: Tensor) -> Tensor:
    r"""Return what is left of a spike in a decaying trace: :math:`e^{-age / \theta}`, of shape (constants, *ages), float64.

    An infinite constant :math:`\theta` counts spikes. Ages below 0 lie in the future and leave 0.
    """
    rate = 1 / constants.double().reshape(-1, *[1] * ages.ndim)
    return torch.where(ages >= 0, torch.exp(-ages.double() * rate), 0.0)


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
    surrogate : Surrogate
        What stands for the threshold's derivative in `forward`. A network's own setting is for the network's `forward`.
    weights : Parameter of shape (neurons, senders), the paper's `W`
    biases, delays, supports : Parameter of shape (neurons,), the paper's `b`, `tau` and `sigma`
    costs, refractory_supports : Parameter of shape (neurons,), the paper's `c` and `varsigma`

    Examples
    --------
    >>> from sswim import SpikingNetwork
    >>> layer = SpikingNetwork(inputs=3, outputs=2, window=10, horizon=4, hidden=(20,)).layers[0]
    >>> nn.Sequential(layer, nn.Linear(20, 5))(torch.zeros(8, 10, 3)).shape
    torch.Size([8, 10, 5])
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
        self.surrogate: Surrogate = SURROGATES["exponential"]

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

    @property
    def inputs(self) -> int:
        """Number of signals that it takes: one from each sender."""
        return self.senders

    @property
    def outputs(self) -> int:
        """Number of spike trains that it puts out: one of each neuron."""
        return self.neurons

    @property
    def places(self) -> int:
        """Number of copies of each neuron: one, but for a convolution."""
        return 1

    def arrivals(self, active: Tensor) -> Tensor:
        """Return how often synapses of each sender (senders,) get an input, from how often inputs (inputs,) are active."""
        return active

    def per_neuron(self, spikes: Tensor) -> Tensor:
        """Return spikes (neurons, steps, batch) of each neuron, from what it puts out."""
        return spikes

    def fired(self, signals: Tensor | EventBatch, filters: Tensor, spikes: Tensor) -> Tensor:
        """Return how many spikes each neuron makes, (neurons,), float64; `spikes` are what it puts out for these signals."""
        return spikes.sum(dim=(1, 2)).double().cpu()

    def numbers(self, steps: int) -> int:
        """Return how many numbers a sample takes while the layer is simulated: projection, potentials, spikes, traces."""
        return 5 * self.neurons * steps

    @property
    def spike_dtype(self) -> torch.dtype:
        """Integers that hold what the layer puts out at a step."""
        return torch.uint8

    def rates(self, spikes: Tensor) -> Tensor:
        """Return spikes per step of each neuron (neurons,), float64, from those that it puts out, (neurons, steps, batch)."""
        return (spikes.sum(dim=(1, 2), dtype=torch.float64) / spikes[0].numel()).cpu()

    def counts(self, signals: Tensor | EventBatch, filters: Tensor) -> Tensor | None:
        """Return how often neurons fire at all steps (neurons, batch), if that needs no simulation. Here it does."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        """Map values or spikes (batch, time, senders) to spikes, or potentials, (batch, time, neurons), with gradients."""
        if x.ndim != 3 or x.shape[2] != self.senders:
            raise ValueError(f"x must have shape (batch, time, senders={self.senders}), got {tuple(x.shape)}.")
        signals = x.to(self.weights).permute(2, 1, 0).contiguous()
        if torch.is_grad_enabled() or exporting():
            v = self.respond(signals, x.shape[1])
            v = self.fire_through(v, self.surrogate) if self.spiking else v
        else:
            v = self.potentials(signals, self.filters(x.shape[1], x.shape[1]))
            v = self.fire(v) if self.spiking else v
        return v.permute(2, 1, 0)

    def filters(self, steps_in: int, steps_out: int, start: int = 0) -> Tensor:
        """Return the convolution matrices for the steps ``start, ..., steps_out - 1``."""
        taps = kernel_taps(self.kernel, self.delays, self.supports, steps_out)  # (N, S)
        return toeplitz(taps, steps_in)[:, start:]  # (N, S - start, I)

    def potentials(self, signals: Tensor | EventBatch, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return response plus bias, without refractory part, of shape (neurons, steps, batch)."""
        if isinstance(signals, EventBatch) and signals.whole:
            neurons, _, seen = filters.shape
            work = Workspace() if work is None else work
            place = work.take("projected", self.weights, neurons, signals.window * signals.count)
            projected = project_events(self.weights.detach(), signals, place)[:, :seen]
            potentials = work.take("potentials", projected, neurons, filters.shape[1], signals.count)
            return torch.bmm(filters, projected, out=potentials).add_(self.biases[:, None, None])
        if isinstance(signals, EventBatch):
            y = event_response(self.kernel, self.delays, self.supports, self.weights, signals, filters.shape[1])
            return y.add_(self.biases[:, None, None])
        return filter_signals(filters, self.weights, signals, work).add_(self.biases[:, None, None])

    def spikes(self, signals: Tensor | EventBatch, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return what the layer puts out for signals (inputs, steps, batch): (outputs, steps, batch)."""
        return self.fire(self.potentials(signals, filters, work))

    def fire(self, potentials: Tensor) -> Tensor:
        """Return the spikes, of shape (neurons, steps, batch). Overwrites `potentials`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return fire(potentials, self.costs, inhibition)

    def charge(self, potentials: Tensor) -> Tensor:
        """Return the membrane potentials with refractory part, (neurons, steps, batch). Overwrites `potentials`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return charge(potentials, self.costs, inhibition)

    def respond(self, signals: Tensor, steps: int, start: int = 0) -> Tensor:
        """Return the potentials of the steps ``start, ..., steps - 1`` as `potentials` does, with gradients."""
        taps = kernel_taps(self.kernel, self.delays, self.supports, steps)
        # What lies before the reach of all kernels need not be projected.
        used = (taps.detach() != 0).any(dim=0).nonzero() if start and not exporting() else None
        first = 0 if used is None else max(start - (int(used.max()) + 2 if len(used) else 1), 0)
        senders, seen, batch = signals[:, first:].shape
        projected = (self.weights @ signals[:, first:].reshape(senders, seen * batch)).view(-1, seen, batch)
        return convolve(taps[:, : steps - first], projected, start - first).add_(self.biases[:, None, None])

    def fire_through(self, potentials: Tensor, surrogate: Surrogate, *, detach: bool = False, soft: bool = False) -> Tensor:
        """Return the spikes as `fire` does, with gradients by a surrogate; see `sswim.network.autograd.fire_through`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return fire_through(potentials, self.costs, inhibition, surrogate, detach=detach, soft=soft)

    def extra_repr(self) -> str:
        """Describe the layer in the module's repr."""
        return f"{self.senders} -> {self.neurons}, kernel={self.kernel}, spiking={self.spiking}"
