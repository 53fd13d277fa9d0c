r"""Layers of spike response neurons, and the readout that is none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sswim.events import EventBatch, event_response, project_events
from sswim.gradients import convolve, fire_through
from sswim.kernels import Kernel
from sswim.simulate import Workspace, filter_signals, fire, kernel_taps, refractory_taps, toeplitz
from sswim.surrogates import Surrogate

__all__ = ["DirectReadout", "SpikingLayer", "default_constants"]


def default_constants(window: int) -> tuple[float, ...]:
    """Return time constants of traces that suit a window: one step, and longer ones that fade within it.

    Examples
    --------
    >>> [round(c, 1) for c in default_constants(168)], [round(c, 1) for c in default_constants(12)]
    ([1.0, 5.3, 28.0], [1.0, 1.4, 2.0])
    """
    longest = max(window / 6, 2.0)
    return (1.0, longest**0.5, longest)


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

    def fire(self, potentials: Tensor) -> Tensor:
        """Return the spikes, of shape (neurons, steps, batch). Overwrites `potentials`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return fire(potentials, self.costs, inhibition)

    def respond(self, signals: Tensor, steps: int, start: int = 0) -> Tensor:
        """Return the potentials of the steps ``start, ..., steps - 1`` as `potentials` does, with gradients."""
        taps = kernel_taps(self.kernel, self.delays, self.supports, steps)
        # What lies before the reach of all kernels need not be projected.
        used = (taps.detach() != 0).any(dim=0).nonzero() if start else None
        first = 0 if used is None else max(start - (int(used.max()) + 2 if len(used) else 1), 0)
        senders, seen, batch = signals[:, first:].shape
        projected = (self.weights @ signals[:, first:].reshape(senders, seen * batch)).view(-1, seen, batch)
        return convolve(taps[:, : steps - first], projected, start - first).add_(self.biases[:, None, None])

    def fire_through(self, potentials: Tensor, surrogate: Surrogate, *, detach: bool = False, soft: bool = False) -> Tensor:
        """Return the spikes as `fire` does, with gradients by a surrogate; see `sswim.gradients.fire_through`."""
        inhibition = refractory_taps(self.refractory, self.refractory_supports, potentials.shape[1])
        return fire_through(potentials, self.costs, inhibition, surrogate, detach=detach, soft=soft)

    def extra_repr(self) -> str:
        """Describe the layer in the module's repr."""
        return f"{self.senders} -> {self.neurons}, kernel={self.kernel}, spiking={self.spiking}"


class DirectReadout(nn.Module):
    r"""Read features at one step, the forecast's origin, with separate weights for each step ahead.

    Features are the traces of all hidden layers' spikes (see `sswim.stream.Stream`) and, with a skip connection, the
    window's own rows. Several groups, such as channels that share a network, share the weights. Each may have a correction
    of its own, on few directions of its features and of what all groups do together: their features, pooled.

    Parameters
    ----------
    features, outputs, horizon : int
    constants : sequence of float
        Time constants of the traces, in steps.
    groups, rank : int
        Number of groups, and of directions of a group's features that its correction is made of.
    factors, common : int
        How many weighted means over all groups are taken of every feature, and how many directions of these enter the
        corrections.

    Attributes
    ----------
    weights : Parameter of shape (horizon * outputs, features)
    biases : Parameter of shape (horizon * outputs,)
    directions : Parameter of shape (features, rank)
    pool : Parameter of shape (groups, factors)
    common_directions : Parameter of shape (features * factors, common)
    own_weights : Parameter of shape (groups, rank + common, horizon * outputs)
    own_biases : Parameter of shape (groups, horizon * outputs)
    """

    constants: Tensor

    def __init__(
        self,
        features: int,
        outputs: int,
        horizon: int,
        *,
        constants: Sequence[float],
        groups: int = 0,
        rank: int = 0,
        factors: int = 0,
        common: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.neurons, self.spiking, rows = outputs, False, horizon * outputs

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape, dtype=dtype))

        self.weights, self.biases = zeros(rows, features), zeros(rows)
        self.directions = zeros(features, rank)
        self.pool, self.common_directions = zeros(groups, factors), zeros(features * factors, common)
        self.own_weights, self.own_biases = zeros(groups, rank + common, rows), zeros(groups, rows)
        self.register_buffer("constants", torch.as_tensor(constants, dtype=torch.float64))

    def shared(self, features: Tensor) -> Tensor:
        """Return the outputs (horizon * outputs, steps, batch) without corrections."""
        return torch.addmm(self.biases[:, None], self.weights, features.flatten(1)).view(-1, *features.shape[1:])

    def pooled(self, features: Tensor) -> Tensor:
        """Return the weighted means (features * factors, steps, 1) of features (features, steps, groups)."""
        return (features @ self.pool).permute(0, 2, 1).flatten(0, 1)[:, :, None]

    def own_features(self, features: Tensor) -> Tensor:
        """Return what corrections are made of, (rank + common, steps, groups), from features (features, steps, groups)."""
        _, steps, batch = features.shape
        few = (self.directions.T @ features.flatten(1)).view(-1, steps, batch)
        if not self.common_directions.shape[1]:
            return few
        together = self.common_directions.T @ self.pooled(features)[:, :, 0]  # (common, T)
        return torch.cat([few, together[:, :, None].expand(-1, -1, batch)])

    def forward(self, features: Tensor, groups: Tensor | None = None) -> Tensor:
        """Map features (features, steps, batch) to outputs (horizon * outputs, steps, batch).

        With corrections, a batch holds one member of each group, in order, or several such sets one after the other. Unless
        corrections lean on all groups, it may hold any: `groups` then tells the group of each member.
        """
        y, batch = self.shared(features), features.shape[2]
        known = len(self.own_weights)
        if not known:
            return y
        if groups is not None:
            if self.common_directions.shape[1]:
                raise ValueError("groups: corrections lean on all groups together, so a batch must hold each, in order.")
            sets, weights, biases = [features], self.own_weights[groups], self.own_biases[groups]
        else:
            if batch % known:
                raise ValueError(f"x: a batch must hold one member of each of {known} groups, in order, got {batch} members.")
            sets, weights, biases = list(features.split(known, dim=2)), self.own_weights, self.own_biases
        own = [torch.bmm(self.own_features(f).permute(2, 1, 0), weights) + biases[:, None] for f in sets]  # (B, T, H O)
        return y + torch.cat(own).permute(2, 1, 0)
