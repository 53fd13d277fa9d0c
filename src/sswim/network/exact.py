r"""Responses to events at their exact times.

A neuron's response to an event at :math:`t_e` is its kernel at the exact lag, :math:`k_i(t - t_e)` at every step `t` after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sswim.machine import on_threads
from sswim.network.events import EventBatch, SortedEvents
from sswim.network.kernels import Kernel
from sswim.network.pieces import Pieces, chebyshev, join_pieces, kernel_pieces

__all__ = ["event_response", "filter_events"]

# Numbers that are computed with at once.
CHUNK = 4_000_000
# Channels times steps, for each event, up to which sums over channels are products of full matrices.
FULL = 16
# Parts of cells with a break; samples and neurons that are worked on at once, at most; steps in a block of a filter's matrix.
PARTS, SAMPLES, NEURONS, BLOCK = 32, 32, 128, 64


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
    Kernels are cut into polynomials, see `sswim.network.pieces`. Events are summed up once for each polynomial, projected by
    the weights, and filtered by the coefficients. Where there are many events for each channel and step, the projections are
    products of full matrices, and cells with a break need the kernel itself for few events only.

    Threads take neurons or samples of their own, so results do not depend on the number of threads.
    """
    y = weights.new_zeros(len(weights), steps, events.count)
    seen = int((events.times.ceil() < steps).sum())
    if not seen:
        return y
    size = events.inputs * min(steps, events.window) * events.count
    full = kernel.breaks is not None and size <= FULL * seen
    # Wide kernels need fewer polynomials: they come together.
    groups = supports.argsort(stable=True).split(max(8, min(NEURONS, CHUNK // (steps * events.count))))

    def cut(some: Tensor) -> Pieces:
        return kernel_pieces(kernel, delays[some], supports[some], steps, PARTS if full else 1)

    pieces = list(on_threads(cut, groups))
    rough = join_pieces(pieces, groups)
    each = max(1, rough.terms) * events.inputs * min(steps, events.window + 1)  # numbers that the sums of a sample take
    room = max(1, 8 * CHUNK // each) if full else events.count
    for first in range(0, events.count, room):
        last = min(first + room, events.count)
        some = events if last - first == events.count else events.take(torch.arange(first, last))
        samples = max(1, min(SAMPLES, CHUNK // each)) if full else events.count
        ordered = _Ordered(some, steps, samples, rough.single.shape[1], weights)
        sums = (_FullSums if full else _SparseSums)(ordered, rough.terms)
        part = y[:, :, first:last]
        _add_rough(_Neurons(kernel, delays, supports, weights), rough, ordered, sums, part)
        _add_smooth(weights, groups, pieces, sums, part)
    return y


class _Ordered:
    """Events in the order of runs of samples, then of parts of a step, of steps, and of samples.

    Parameters
    ----------
    events : EventBatch
    steps : int
        Events that are first seen later are left out.
    samples : int
        Number of samples in a run.
    parts : int
        Number of parts of a step.
    like : Tensor
        Its device is that of the result, and its dtype that of sums.

    Attributes
    ----------
    place, channels : Tensor of shape (events,), int64
        The place is that among the steps and samples of a run.
    ahead : Tensor of shape (events,), float64
        How long before a step events lie.
    """

    def __init__(self, events: EventBatch, steps: int, samples: int, parts: int, like: Tensor) -> None:
        self.steps, self.inputs, self.parts, self.like = min(steps, events.window + 1), events.inputs, parts, like
        self.runs = [(first, min(first + samples, events.count)) for first in range(0, events.count, samples)]
        self.count = events.count
        step = events.times.ceil()
        kept = (step < steps).nonzero()[:, 0]
        step, sample = step[kept].long(), events.samples[kept]
        ahead, run = step - events.times[kept], sample // samples
        width = torch.tensor([last - first for first, last in self.runs])[run]
        place = step * width + sample - run * samples
        part = run * parts + (ahead * parts).long().clamp_max(parts - 1)
        order = torch.from_numpy(np.argsort((part * (self.steps * samples) + place).numpy(), kind="stable"))
        self._bounds = [0, *torch.bincount(part, minlength=len(self.runs) * parts).cumsum(dim=0).tolist()]
        self.place, self.ahead = place[order].to(like.device), ahead[order].to(like.device)
        self.channels = events.channels[kept][order].to(like.device)

    def bounds(self, run: int) -> list[int]:
        """Return where the parts of a run begin, and where the last one ends."""
        return self._bounds[run * self.parts : (run + 1) * self.parts + 1]


class _FullSums:
    """Sums of events for each polynomial, channel, step and sample."""

    def __init__(self, ordered: _Ordered, terms: int) -> None:
        self._moments = ordered.like.new_empty(terms, ordered.inputs, ordered.steps, ordered.count)

    def keep(self, run: tuple[int, int], moments: Tensor) -> None:
        """Keep the sums (terms, inputs, steps * samples) of a run of samples."""
        self._moments[..., slice(*run)] = moments.unflatten(2, (self._moments.shape[2], -1))

    def project(self, weights: Tensor, term: int) -> Tensor:
        """Return the sums of weights times a polynomial, (neurons, steps, samples)."""
        return (weights @ self._moments[term].flatten(1)).unflatten(1, self._moments.shape[2:])


class _SparseSums:
    """Sums of few events, each projected by itself."""

    def __init__(self, ordered: _Ordered, terms: int) -> None:
        self._sorted = SortedEvents(ordered.place, ordered.channels.int(), ordered.steps, ordered.count)
        self._values = chebyshev(ordered.ahead, max(1, terms)).to(ordered.like.dtype)

    def keep(self, run: tuple[int, int], moments: Tensor) -> None:
        """Keep nothing."""

    def project(self, weights: Tensor, term: int) -> Tensor:
        """Return the sums of weights times a polynomial, (neurons, steps, samples)."""
        return self._sorted.project(weights.T.contiguous(), self._values[term])


def _add_smooth(
    weights: Tensor, groups: Sequence[Tensor], pieces: Sequence[Pieces], sums: _FullSums | _SparseSums, y: Tensor
) -> None:
    """Add the responses by the polynomials of whole cells to `y` (neurons, steps, samples)."""

    def work(number: int) -> None:
        own, taps = weights[groups[number]], pieces[number].coefficients.to(weights.dtype)  # (n, D), (n, S, terms)
        used = (taps != 0).any(dim=2).any(dim=0).nonzero()[:, 0].tolist()
        if not used:
            return
        found = y.new_zeros(len(own), *y.shape[1:])
        for term in range(taps.shape[2]):
            _filter(taps[:, :, term], used[-1], sums.project(own, term), found)
        y[groups[number]] += found

    list(on_threads(work, range(len(groups))))


def _filter(taps: Tensor, reach: int, signals: Tensor, out: Tensor) -> None:
    """Add signals (neurons, steps_in, samples), filtered by taps (neurons, steps) that vanish past `reach`, to `out`."""
    steps, steps_in = taps.shape[1], signals.shape[1]
    backwards = torch.nn.functional.pad(taps.flip(1), (0, BLOCK))
    for first in range(0, steps, BLOCK):
        last = min(first + BLOCK, steps)
        begin, end = max(0, first - reach), min(last, steps_in)
        if begin < end:
            matrix = backwards.unfold(1, end - begin, 1)[:, steps - last + begin : steps - first + begin].flip(1)
            out[:, first:last].baddbmm_(matrix, signals[:, begin:end])  # matrix[i, t, s] = taps[i, t - s]


@dataclass(frozen=True)
class _Neurons:
    """What neurons make of events."""

    kernel: Kernel
    delays: Tensor
    supports: Tensor
    weights: Tensor

    def respond(self, neurons: Tensor, cells: Tensor, ahead: Tensor, channels: Tensor, counts: Tensor) -> Tensor:
        """Return the sums over neighbouring events of the responses in a cell, one for each row: (rows, sums)."""
        found = []
        width = max(1, CHUNK // max(1, len(ahead)))
        for i, m in zip(neurons.split(width), cells.split(width), strict=True):
            values = ahead + (m - self.delays[i])[:, None]
            values = self.kernel(values.div_(self.supports[i, None])).mul_(self.weights[i].index_select(1, channels))
            found.append(torch.segment_reduce(values, "sum", lengths=counts.expand(len(i), -1), axis=1, unsafe=True))
        return torch.cat(found)


def _add_rough(neurons: _Neurons, rough: Pieces, ordered: _Ordered, sums: _FullSums | _SparseSums, y: Tensor) -> None:
    """Add to `y` what polynomials of whole cells lack in cells with a break, and let `sums` keep those of all events."""
    weights = neurons.weights
    longest = max(last - first for first, last in ordered.runs)
    rows = max(1, 2 * CHUNK // (ordered.steps * longest))
    size = max(1, len(weights) * rows // max(1, len(rough.cells)))  # neurons at a time
    blocks = [_Block(weights, rough, first, first + size) for first in range(0, len(weights), size)]
    ahead = ordered.ahead.to(weights.dtype)
    full = isinstance(sums, _FullSums)

    def work(item: tuple[int, int]) -> None:
        run, number = item
        (first, last), block, bounds = ordered.runs[run], blocks[number], ordered.bounds(run)
        places = ordered.steps * (last - first)
        moments = weights.new_zeros(rough.terms, ordered.inputs, places if full else 0)
        found = weights.new_zeros(len(block.cells), places)
        for part, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
            here, (single, (corrected, matrix)) = slice(begin, end), (block.single[part], block.corrections[part])
            if len(corrected):
                found.index_add_(0, corrected, matrix @ moments.flatten(0, 1))
            if begin == end:
                continue
            if len(single):
                counts = torch.bincount(ordered.place[here], minlength=places)
                which = block.neurons[single], block.cells[single]
                found.index_add_(0, single, neurons.respond(*which, ahead[here], ordered.channels[here], counts))
            if full:
                at = ordered.channels[here] * places + ordered.place[here]
                for moment, values in zip(moments, chebyshev(ordered.ahead[here], rough.terms), strict=True):
                    moment.view(-1).index_add_(0, at, values.to(weights.dtype))
        if number == 0:
            sums.keep((first, last), moments)
        block.add_to(y[:, :, first:last], found.unflatten(1, (ordered.steps, -1)))

    list(on_threads(work, [(run, block) for run in range(len(ordered.runs)) for block in range(len(blocks))]))


class _Block:
    """The cells with a break of the neurons ``[first, last)``."""

    def __init__(self, weights: Tensor, rough: Pieces, first: int, last: int) -> None:
        own = (rough.neurons >= first) & (rough.neurons < last)
        place, rows = own.cumsum(dim=0) - 1, own.nonzero()[:, 0]
        self.neurons, self.cells, single = rough.neurons[rows], rough.cells[rows], rough.single[rows]
        self.single = [column.nonzero()[:, 0] for column in single.T]
        mine = own[rough.rows]
        corrected, before, alpha = place[rough.rows[mine]], rough.before[mine], rough.corrections[mine].to(weights.dtype)
        self.corrections = []
        for part in range(single.shape[1]):
            here = before == part
            matrix = alpha[here, :, None] * weights[self.neurons[corrected[here]], None]  # (rows, terms, D)
            self.corrections.append((corrected[here], matrix.flatten(1)))

    def add_to(self, y: Tensor, found: Tensor) -> None:
        """Add what was found in each cell (rows, steps_in, samples) to `y` (neurons, steps, samples)."""
        for cell in self.cells.unique().tolist():
            here = self.cells == cell
            seen = found[here, : y.shape[1] - cell]
            y[self.neurons[here], cell : cell + seen.shape[1]] += seen


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
    low, high = _reach(kernel)
    first = ((delays + low * supports).clamp(0, steps).floor() - 1).clamp_min(0).long()  # cells of lags that matter
    length = (delays + high * supports).clamp(0, steps).floor().long() + 2 - first
    by_length = length.argsort(stable=True).cpu()
    size = max(1, CHUNK * events.count // (steps * max(1, len(events.times))))

    def work(samples: Tensor) -> None:
        some, samples = events.take(samples), samples.to(delays.device)
        seen, which, channel = (v.to(delays.device) for v in (some.times.ceil(), some.samples, some.channels))
        own, lags = samples[which], torch.arange(int(length[samples[-1]]), device=delays.device)
        ahead = seen - some.times.to(delays.device) + first[own]
        values = kernel((lags + (ahead - delays[own])[:, None]) / supports[own, None])  # (E, L)
        # What comes too late goes to a step too many.
        at = (lags + (seen.long() + first[own])[:, None]).clamp_max_(steps)
        place = at.mul_(events.inputs).add_((which * ((steps + 1) * events.inputs) + channel)[:, None])
        found = y.new_zeros(len(samples), steps + 1, events.inputs)
        found.view(-1).index_add_(0, place.view(-1), values.view(-1))
        y[samples] = found[:, :steps]

    list(on_threads(work, by_length.split(size)))
    return y


def _reach(kernel: Kernel) -> tuple[float, float]:
    """Return the multiples of the support that a kernel is 0 before and after, as far as its breaks tell."""
    if kernel.breaks is None:
        return -torch.inf, torch.inf
    beyond, (first, *_, last) = torch.logspace(-6, 6, 200, dtype=torch.float64), (*kernel.breaks, kernel.breaks[-1])
    low = -torch.inf if bool(kernel(first - beyond).any()) else first
    return low, torch.inf if bool(kernel(last + beyond).any()) else last
