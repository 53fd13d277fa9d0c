"""Events: spikes with exact times, not bound to the grid of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["EventBatch", "SortedEvents", "dense", "join_events", "project_events"]


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


class SortedEvents:
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


def project_events(weights: Tensor, events: EventBatch, out: Tensor | None = None) -> Tensor:
    r"""Sum up the weights of events on whole steps: :math:`\sum_{t_e = t} W_{i c_e}`, of shape (neurons, window, samples).

    The same as the product of `weights` (neurons, inputs) with `events.dense()`, in a time that goes with the events alone.
    """
    # Numbers that hold place and channel are sorted as they are: several times as fast as finding an order and following it.
    low = (events.inputs - 1).bit_length()
    dtype = torch.int32 if (events.window * events.count - 1).bit_length() + low < 32 else torch.int64
    place = events.times.to(dtype) * events.count + events.samples.to(dtype)
    key = torch.from_numpy(np.sort(((place << low) + events.channels.to(dtype)).numpy())).to(weights.device)
    ordered = SortedEvents(key >> low, key & ((1 << low) - 1), events.window, events.count)
    return ordered.project(weights.T.contiguous(), out=out)
