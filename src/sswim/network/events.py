r"""Events: spikes with exact times, not bound to the grid of steps.

A neuron's response to an event at :math:`t_e` is its kernel at the exact lag, :math:`k_i(t - t_e)` at every step `t` after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sswim.network.kernels import Kernel, toeplitz

__all__ = ["EventBatch", "dense", "event_response", "filter_events", "join_events", "project_events"]

# Numbers that are computed with at once.
CHUNK = 4_000_000


@dataclass(frozen=True)
class EventBatch:
    """Events of several samples.

    Attributes
    ----------
    times : Tensor of shape (events,), float64
        In steps, within ``[0, window)``.
    channels, samples : Tensor of shape (events,), int64
    count, inputs, window : int
        Number of samples, of channels, and of steps.
    whole : bool
        Whether all times are whole steps.
    """

    times: Tensor
    channels: Tensor
    samples: Tensor
    count: int
    inputs: int
    window: int
    whole: bool = False
    requires_grad: ClassVar[bool] = False

    def __len__(self) -> int:
        return self.count

    def dense(self) -> Tensor:
        """Return the numbers of events (samples, window, inputs) on the nearest steps."""
        step = self.times.round().long().clamp(max=self.window - 1)
        counts = torch.zeros(self.count * self.window * self.inputs)
        place = (self.samples * self.window + step) * self.inputs + self.channels
        counts.index_add_(0, place, torch.ones(len(place)))
        return counts.view(self.count, self.window, self.inputs)

    @cached_property
    def _by_sample(self) -> tuple[Tensor, Tensor]:
        """The order of events by sample, found once however often samples are taken, and where each sample begins in it."""
        counts = torch.bincount(self.samples, minlength=self.count)
        return self.samples.argsort(stable=True), torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])

    def take(self, numbers: Tensor) -> EventBatch:
        """Return the events of the samples numbered `numbers`, in that order; a sample may come several times."""
        order, ends = self._by_sample
        first, length = ends[numbers], ends[numbers + 1] - ends[numbers]
        sample = torch.arange(len(numbers)).repeat_interleave(length)
        place = order[torch.arange(len(sample)) - (length.cumsum(dim=0) - length)[sample] + first[sample]]
        times, channels = self.times[place], self.channels[place]
        return EventBatch(times, channels, sample, len(numbers), self.inputs, self.window, self.whole)


def join_events(batches: Sequence[EventBatch]) -> EventBatch:
    """Return the events of several batches as one, samples in order."""
    before = np.cumsum([0, *(batch.count for batch in batches)]).tolist()
    first = batches[0]
    return EventBatch(
        torch.cat([batch.times for batch in batches]),
        torch.cat([batch.channels for batch in batches]),
        torch.cat([batch.samples + shift for batch, shift in zip(batches, before, strict=False)]),
        before[-1],
        first.inputs,
        first.window,
        whole=all(batch.whole for batch in batches),
    )


def dense(x: Tensor | EventBatch) -> Tensor:
    """Return inputs on the grid of steps, (samples, window, inputs)."""
    return x.dense() if isinstance(x, EventBatch) else x


class _Sorted:
    """Events in the order of the steps that they are first seen at, and of samples: their sums are sums of neighbours."""

    def __init__(self, place: Tensor, channels: Tensor, steps: int, samples: int) -> None:
        self.channels = channels
        self.counts = torch.bincount(place, minlength=steps * samples)
        self._first = (self.counts.cumsum(dim=0) - self.counts).to(channels.dtype)
        self._steps, self._samples = steps, samples

    def project(self, columns: Tensor, values: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Sum up rows of `columns` (inputs, neurons), times values (events,) if there are any: (neurons, steps, samples)."""
        sums = torch.nn.functional.embedding_bag(
            self.channels, columns, self._first, mode="sum", per_sample_weights=values
        )  # (S B, N)
        out = columns.new_empty(columns.shape[1], len(sums)) if out is None else out
        return out.copy_(sums.T).view(-1, self._steps, self._samples)

    def add_up(self, values: Tensor) -> Tensor:
        """Sum up values (neurons, events): (neurons, steps, samples)."""
        counts = self.counts.expand(len(values), -1)
        sums = torch.segment_reduce(values, "sum", lengths=counts, axis=1, unsafe=True)
        return sums.view(-1, self._steps, self._samples)


def project_events(weights: Tensor, events: EventBatch, out: Tensor | None = None) -> Tensor:
    r"""Sum up the weights of events on whole steps: :math:`\sum_{t_e = t} W_{i c_e}`, of shape (neurons, window, samples).

    The same as the product of `weights` (neurons, inputs) with `events.dense()`, in a time that goes with the events alone.
    """
    # Numbers that hold place and channel are sorted as they are: several times as fast as finding an order and following it.
    low = (events.inputs - 1).bit_length()
    dtype = torch.int32 if (events.window * events.count - 1).bit_length() + low < 32 else torch.int64
    place = events.times.to(dtype) * events.count + events.samples.to(dtype)
    key = torch.from_numpy(np.sort(((place << low) + events.channels.to(dtype)).numpy())).to(weights.device)
    ordered = _Sorted(key >> low, key & ((1 << low) - 1), events.window, events.count)
    return ordered.project(weights.T.contiguous(), out=out)


@torch.no_grad()
def event_response(kernel: Kernel, delays: Tensor, supports: Tensor, weights: Tensor, events: EventBatch, steps: int) -> Tensor:
    r"""Respond to events at their exact times: :math:`\sum_{t_e \le t} W_{i c_e} k((t - t_e - \tau_i) / \sigma_i)`.

    Parameters
    ----------
    kernel : callable
    delays, supports : Tensor of shape (neurons,)
    weights : Tensor of shape (neurons, inputs)
    events : EventBatch
    steps : int
        Number of steps to respond at.

    Returns
    -------
    Tensor of shape (neurons, steps, samples)

    Notes
    -----
    An event lies between two steps, a part `a` of a step before the later one, so that it is seen at the lags
    :math:`m + a, m = 0, 1, \dots` Where the kernel is smooth between `m` and `m + 1`, its values there are those of a
    polynomial through few nodes, up to rounding. Thus events are projected once for each node, weighed by how near they lie
    to it, and filtered by the kernel's values at that node. Where it is not, they are evaluated one by one.
    """
    y = weights.new_zeros(len(weights), steps, events.count)
    step = events.times.ceil().long()
    seen = step < steps
    if not bool(seen.any()):
        return y
    place, order = (step * events.count + events.samples)[seen].int().sort()
    channels = events.channels[seen][order].int().to(weights.device)
    ordered = _Sorted(place.to(weights.device), channels, steps, events.count)
    ahead = (step - events.times)[seen][order].to(weights.device)  # how long before that step, float64
    lags = torch.arange(steps, device=delays.device)
    rough, nodes = lags.expand(len(weights), -1), None  # all one by one
    if kernel.breaks is not None:
        few = _rough_cells(kernel.breaks, delays, supports, steps)
        nodes = _nodes(kernel, delays, supports, few, steps)
        rough = rough if nodes is None else few
    if nodes is not None:
        smooth = torch.ones(len(weights), steps + 1, dtype=torch.bool, device=weights.device)
        smooth = smooth.scatter_(1, rough % (steps + 1), False)[:, :steps]  # -1 falls on the column too many
        columns = weights.T.contiguous()
        for node, near in zip(nodes.tolist(), _lagrange(nodes, ahead), strict=True):
            taps = kernel((lags.to(delays.dtype) + node - delays[:, None]) / supports[:, None]) * smooth
            y.baddbmm_(toeplitz(taps, steps), ordered.project(columns, near.to(weights.dtype)))
    neurons, column = (rough >= 0).nonzero().T
    cells, ahead = rough[neurons, column], ahead.to(weights.dtype)  # (n,), (E,)
    width = max(1, CHUNK // len(ahead))
    for i, m in zip(neurons.split(width), cells.split(width), strict=True):
        values = ahead + (m - delays[i])[:, None]
        values = kernel(values.div_(supports[i, None])).mul_(weights[i].index_select(1, ordered.channels))  # (n, E)
        for neuron, cell, sums in zip(i.tolist(), m.tolist(), ordered.add_up(values), strict=True):
            y[neuron, cell:] += sums[: steps - cell]
    return y


@torch.no_grad()
def filter_events(kernel: Kernel, delays: Tensor, supports: Tensor, events: EventBatch, steps: int) -> Tensor:
    r"""Filter each channel alone, at the events' exact times: :math:`\sum_{t_e \le t} k((t - t_e - \tau) / \sigma)`.

    Parameters
    ----------
    kernel : callable
    delays, supports : Tensor of shape (samples,), float64
        One for each sample.
    events : EventBatch
    steps : int
        Number of steps to respond at.

    Returns
    -------
    Tensor of shape (samples, steps, inputs), float64
    """
    y = torch.zeros(events.count, steps, events.inputs, dtype=torch.float64, device=delays.device)
    step = events.times.ceil().long()
    lags = torch.arange(steps, dtype=torch.float64, device=delays.device)
    size = max(1, CHUNK // steps)
    for i in range(0, len(step), size):
        first, sample, channel = (v[i : i + size].to(delays.device) for v in (step, events.samples, events.channels))
        ahead = first - events.times[i : i + size].to(delays.device)
        values = kernel((lags + (ahead - delays[sample])[:, None]) / supports[sample, None])  # (E, S)
        at = first[:, None] + torch.arange(steps, device=delays.device)
        use = (at < steps) & (values != 0)
        place = ((sample * steps)[:, None] + at) * events.inputs + channel[:, None]
        y.view(-1).index_add_(0, place[use], values[use])
    return y


def _rough_cells(breaks: Sequence[float], delays: Tensor, supports: Tensor, steps: int) -> Tensor:
    """Return the lags `m` (neurons, few) such that a kernel may not be smooth between `m` and `m + 1`; -1 stands for none."""
    at = delays.double()[:, None] + supports.double()[:, None] * torch.tensor(breaks, dtype=torch.float64, device=delays.device)
    slack = 1e-4 * (1 + at.abs())  # a break so near to a step may lie on either side
    cells = torch.cat([(at - slack).floor(), (at + slack).floor()], dim=1).long()
    cells = cells.masked_fill((cells < 0) | (cells >= steps), -1).sort(dim=1).values
    again = torch.cat([torch.zeros_like(cells[:, :1], dtype=torch.bool), cells.diff(dim=1) == 0], dim=1)
    cells = cells.masked_fill(again, -1).sort(dim=1, descending=True).values
    return cells[:, : max(1, int((cells >= 0).sum(dim=1).max()))]


def _nodes(kernel: Kernel, delays: Tensor, supports: Tensor, rough: Tensor, steps: int) -> Tensor | None:
    """Return as few nodes in [0, 1] as it takes for the narrowest kernels; None if that is too many."""
    order = supports.argsort()
    within = int((supports < 1).sum())  # narrower than a step: little of them is smooth, so several are looked at
    some = torch.cat([order[:within][:: max(1, within // 32)], order[within : within + 8]])
    tau, sigma, rough = delays[some, None, None].double(), supports[some, None, None].double(), rough[some]
    lags = torch.arange(steps, dtype=torch.float64, device=delays.device)[:, None]
    smooth = (lags != rough[:, None]).all(dim=2)  # (n, S)
    between = torch.linspace(0, 1, 33, dtype=torch.float64, device=delays.device)[:-1]
    true = kernel((lags + between - tau) / sigma)[smooth]  # (., 32)
    tolerance = 4 * torch.finfo(delays.dtype).eps
    for count in (1, 2, 3, 4, 6, 8, 10, 12, 16):
        k = torch.arange(count, dtype=torch.float64, device=delays.device)
        nodes = (1 - torch.cos((2 * k + 1) * torch.pi / (2 * count))) / 2  # Chebyshev's
        found = kernel((lags + nodes - tau) / sigma)[smooth] @ _lagrange(nodes, between)
        if not true.numel() or float((found - true).abs().max()) <= tolerance:
            return nodes
    return None


def _lagrange(nodes: Tensor, at: Tensor) -> Tensor:
    """Return the polynomials (nodes, points) that are 1 at one of the nodes and 0 at the others."""
    rows = []
    for q, node in enumerate(nodes):
        others = torch.cat([nodes[:q], nodes[q + 1 :]])
        rows.append(((at[:, None] - others) / (node - others)).prod(dim=1))
    return torch.stack(rows)
