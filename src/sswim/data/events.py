"""Event data: ragged samples of spikes with exact times, as cameras and cochleas record them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.network.events import EventBatch
from sswim.options import Options, check_integer, check_positive

__all__ = ["EventStreams", "ExactEvents", "Sample", "as_events", "is_events"]

Layout = tuple[int, ...]
# How many steps and channels events may make by themselves.
MOST_STEPS, MOST_CHANNELS = 5_000, 1_000_000
# Times and channels, or a structured array.
Sample = tuple[npt.ArrayLike, npt.ArrayLike] | np.ndarray


class EventStreams:
    """Ragged samples of events, which batches are taken from.

    Parameters
    ----------
    times, channels : sequence of array
        Of each sample: times in steps, and whole numbers of channels.
    inputs, window : int
        Number of channels and of steps; later events are ignored.

    Attributes
    ----------
    exact : bool
        Whether batches keep the exact times, or the nearest steps.
    layout : tuple of int
        How channels are laid out: polarity, height and width of an event camera's.
    pixels : tuple of int or None
        Numbers of polarities, rows and columns of an event camera, whatever becomes of its channels later.
    """

    def __init__(self, times: Sequence[np.ndarray], channels: Sequence[np.ndarray], inputs: int, window: int) -> None:
        self.inputs, self.window, self.exact = inputs, window, True
        self.layout: tuple[int, ...] = (inputs,)
        self.pixels: tuple[int, ...] | None = None
        ends = torch.tensor([0, *(len(t) for t in times)]).cumsum(dim=0)
        self._first, self._last = ends[:-1], ends[1:]
        self._times = torch.from_numpy(np.concatenate([np.zeros(0), *times]).astype(np.float64))
        self._channels = torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *channels]).astype(np.int64))

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, index: Tensor | slice) -> EventStreams:
        """Return some of the samples, without copying events."""
        some = copy.copy(self)
        some._first, some._last = self._first[index], self._last[index]
        return some

    def batch(self, index: Tensor) -> EventBatch:
        """Return the events of the samples numbered `index`."""
        first, last = self._first[index], self._last[index]
        sample = torch.arange(len(index)).repeat_interleave(last - first)
        place = torch.arange(len(sample)) - (last - first).cumsum(dim=0)[sample] + last[sample]
        times, channels = self._times[place], self._channels[place]
        seen = times < self.window
        times = times if self.exact else times.round().clamp_max(self.window - 1)
        return EventBatch(times[seen], channels[seen], sample[seen], len(index), self.inputs, self.window, whole=not self.exact)


@dataclass(frozen=True)
class ExactEvents(Options):
    """How a `Classifier` takes events: at their exact times, or on the nearest steps.

    Parameters
    ----------
    steps, inputs : int, optional
        Number of steps and of channels. Default: as many as occur in the training samples. Later events are ignored.
    scale : float
        What times are multiplied by to become steps: 100 in the paper's experiments with spoken digits in seconds.
    merge : int
        This many neighbouring channels become one: 10 in the same experiments.
    exact : bool
        Whether times stay exact, or are rounded to whole steps: that is much faster, and gradients need it.
    """

    steps: int | None = None
    scale: float = 1.0
    inputs: int | None = None
    merge: int = 1
    exact: bool = True

    def __post_init__(self) -> None:
        check_positive("ExactEvents: scale", self.scale)
        check_integer("ExactEvents: merge", self.merge, 1)
        for name in ("steps", "inputs"):
            if getattr(self, name) is not None:
                check_integer(f"ExactEvents: {name}", getattr(self, name), 1)

    def encode(
        self, X: Iterable[Sample], window: int | None = None, inputs: int | None = None, pixels: Layout | None = None
    ) -> EventStreams:
        """Return the events of samples; `window`, `inputs` and `pixels` are those of the samples of a fit."""
        streams = as_events(X, scale=self.scale, inputs=self.inputs, window=window or self.steps, pixels=pixels)
        streams.exact = self.exact
        if self.merge > 1:
            streams._channels = streams._channels // self.merge
            streams.inputs = -(-streams.inputs // self.merge)
            streams.layout = (streams.inputs,)
        if inputs is not None:
            if streams.inputs > inputs:
                raise ValueError(f"X: channel {streams.inputs - 1} is out of range: there are {inputs} channels, from 0 on.")
            streams.inputs = inputs
        return streams


def is_events(X: object) -> bool:
    """Return whether samples look like events: pairs (times, channels), or structured arrays."""
    if not isinstance(X, (list, tuple)) or not len(X):
        return False
    first = X[0]
    if isinstance(first, np.ndarray):
        return bool(first.dtype.names)
    return isinstance(first, tuple) and len(first) == 2 and all(np.ndim(part) == 1 for part in first)


def as_events(
    X: Iterable[Sample],
    *,
    scale: float = 1.0,
    inputs: int | None = None,
    window: int | None = None,
    pixels: Layout | None = None,
) -> EventStreams:
    """Return events of samples, from pairs (times, channels) or structured arrays.

    Parameters
    ----------
    X : sequence
        Of each sample a pair of equally long sequences (times, channels), or a structured array as event cameras and `tonic`
        have them: with the field ``t`` (or ``ts``), and ``x``, ``y``, ``p`` as far as they are there. A pixel's channel is
        ``(p * height + y) * width + x``.
    scale : float
        What times are multiplied by to become steps.
    inputs, window : int, optional
        Number of channels and of steps. Default: as many as occur.
    pixels : tuple of int, optional
        Numbers of polarities, rows and columns of a camera. Default: as many as occur.

    Examples
    --------
    >>> streams = as_events([([0.5, 2.0], [0, 1]), ([], [])])
    >>> len(streams), streams.inputs, streams.window, streams.batch(torch.tensor([0])).times.tolist()
    (2, 2, 3, [0.5, 2.0])
    """
    check_positive("scale", scale)
    if isinstance(X, (str, bytes)) or not isinstance(X, Iterable):
        raise TypeError(f"X must be a list of samples of events, pairs (times, channels) or structured arrays, got {X!r}.")
    pairs = [_pair(number, sample) for number, sample in enumerate(X)]
    if not pairs:
        raise ValueError("X must hold at least one sample of events, got none.")
    fields = [places.shape[1] for _, places in pairs if len(places)]
    if len(set(fields)) > 1:
        raise ValueError("X: some samples have other fields than others.")
    if fields and fields[0] == 3:  # x, y, p
        size = tuple(int(n) + 1 for n in np.max([places.max(axis=0) for _, places in pairs if len(places)], axis=0)[::-1])
        pixels = size if pixels is None else pixels
        if any(n > known for n, known in zip(size, pixels, strict=True)):
            raise ValueError(f"X: pixels must lie within (polarities, rows, columns) = {pixels}, got {size}.")
        channels = [(p[:, 2] * pixels[1] + p[:, 1]) * pixels[2] + p[:, 0] if len(p) else p[:, 0] for _, p in pairs]
    else:
        pixels, channels = None, [places[:, 0] for _, places in pairs]
    times = [t * scale for t, _ in pairs]
    most = 1 + max((int(c.max()) for c in channels if len(c)), default=0)
    if inputs is not None and most > check_integer("inputs", inputs, 1):
        raise ValueError(f"X: channel {most - 1} is out of range: there are {inputs} channels, numbered from 0.")
    last = 1 + int(max((float(t.max()) for t in times if len(t)), default=0.0))
    _check_sizes(times, channels, last if window is None else 1, most if inputs is None else 1)
    streams = EventStreams(times, channels, inputs or most, last if window is None else check_integer("window", window, 1))
    streams.pixels = pixels
    if pixels is not None and inputs in (None, math.prod(pixels)):
        streams.layout, streams.inputs = pixels, math.prod(pixels)
    return streams


def _check_sizes(times: Sequence[np.ndarray], channels: Sequence[np.ndarray], steps: int, inputs: int) -> None:
    """Refuse numbers of steps and channels that follow from the events, and that no network could take."""
    if steps > MOST_STEPS:
        number, late = max(enumerate(float(t.max()) if len(t) else 0.0 for t in times), key=lambda found: found[1])
        usual = float(np.median(np.concatenate(times)))
        raise ValueError(
            f"X: events reach step {late:.6g} (sample {number}; half of all come before {usual:.6g}), and a network is "
            f"simulated on {MOST_STEPS} steps at most. Multiply times by a scale, such as "
            f"ExactEvents(scale={100 / max(usual, 1):.1g}) for times in small units, or leave late events out with "
            "ExactEvents(steps=...)."
        )
    if inputs > MOST_CHANNELS:
        number, most = max(enumerate(int(c.max()) if len(c) else 0 for c in channels), key=lambda found: found[1])
        raise ValueError(
            f"X: channel {most} (sample {number}) would make {most + 1} channels, and a network has {MOST_CHANNELS} at most. "
            "Drop stray events, or let neighbouring channels become one with ExactEvents(merge=...)."
        )


def _numbers(sample: int, values: npt.ArrayLike) -> np.ndarray:
    """Return the times or channels of a sample as float64."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"X: times and channels of sample {sample} must be numbers, got {values!r}.") from None


def _pair(number: int, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Return times (events,) and channels (events, 1), or pixels and polarities (events, 3)."""
    if isinstance(sample, np.ndarray) and sample.dtype.names:
        names = sample.dtype.names
        clock = next((n for n in ("t", "ts") if n in names), None)
        if clock is None or "x" not in names:
            raise ValueError(f"X: sample {number} must have the fields 't' and 'x', got {names}.")
        time: npt.ArrayLike = sample[clock]
        pixels = [sample[n] if n in names else np.zeros(len(sample)) for n in ("x", "y", "p")]
        places = np.stack([np.asarray(v, dtype=np.float64) for v in (pixels if "y" in names else pixels[:1])], axis=1)
    else:
        try:
            time, channel = sample
        except (TypeError, ValueError):
            raise ValueError(f"X: sample {number} must be a pair (times, channels) or a structured array.") from None
        places = _numbers(number, channel).reshape(-1, 1)
    times = _numbers(number, time).ravel()
    if len(times) != len(places):
        raise ValueError(f"X: sample {number} has {len(times)} times but {len(places)} channels.")
    if not np.isfinite(times).all() or (times < 0).any():
        raise ValueError(
            f"X: times of sample {number} must be finite and >= 0: shift them such that the first is not negative."
        )
    if (places < 0).any() or (places != np.round(places)).any():
        raise ValueError(f"X: channels of sample {number} must be whole numbers >= 0.")
    return times, places.astype(np.int64)
