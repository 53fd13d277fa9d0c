"""Event data: ragged samples of spikes with exact times, as cameras and cochleas record them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.aligned import align, fold
from sswim.data.limits import MOST_CHANNELS, MOST_STEPS, check_inputs, check_sizes, refuse_channels, refuse_steps
from sswim.data.rows import Rows, StoredRows, find_runs
from sswim.data.stored import open_rows
from sswim.network.events import EventBatch
from sswim.options import Options, check_integer, check_positive

__all__ = ["EventStreams", "ExactEvents", "Sample", "StoredEvents", "as_events", "is_events"]

Layout = tuple[int, ...]
# Events that are looked through at once.
RUN = 1_000_000
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
    aligned : float or None
        Part of the events before and after which samples are aligned, see `ExactEvents`.
    steps, folds : int
        Steps of a sample, and stretches it is cut into: `window` is that of one stretch, `inputs` those of all.
    layout : tuple of int
        How channels are laid out: polarity, height and width of an event camera's.
    pixels : tuple of int or None
        Numbers of polarities, rows and columns of an event camera, whatever becomes of its channels later.
    """

    def __init__(self, times: Sequence[np.ndarray], channels: Sequence[np.ndarray], inputs: int, window: int) -> None:
        self._set(np.cumsum([0, *(len(t) for t in times)]), inputs, window)
        kind = np.int32 if inputs <= 2**31 else np.int64
        self._times = torch.from_numpy(np.concatenate([np.zeros(0), *times], dtype=np.float64))
        self._channels = torch.from_numpy(np.concatenate([np.zeros(0, dtype=kind), *channels], dtype=kind, casting="unsafe"))

    def _set(self, ends: np.ndarray, inputs: int, window: int) -> None:
        """Set where samples end, and what batches are like."""
        self.inputs, self.window, self.exact, self.merge = inputs, window, True, 1
        self.steps, self.folds = window, 1
        self.aligned: float | None = None
        self.layout: tuple[int, ...] = (inputs,)
        self.pixels: tuple[int, ...] | None = None
        self._first, self._last = torch.from_numpy(ends[:-1]), torch.from_numpy(ends[1:])

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, index: Tensor | slice) -> EventStreams:
        """Return some of the samples, without copying events."""
        some = copy.copy(self)
        some._first, some._last = self._first[index], self._last[index]
        return some

    def batch(self, index: Tensor, stretch: Tensor | None = None) -> EventBatch:
        """Return the events of the samples numbered `index`, with times multiplied by `stretch` (samples,). Default: by 1."""
        first, last = self._first[index], self._last[index]
        sample = torch.arange(len(index)).repeat_interleave(last - first)
        place = torch.arange(len(sample)) - (last - first).cumsum(dim=0)[sample] + last[sample]
        times, channels = self._events(place)
        if self.aligned is not None:
            times = align(times, sample, len(index), self.steps, self.aligned)
        times, channels = times if stretch is None else times * stretch[sample], channels.long() // self.merge
        seen = (times >= 0) & (times < self.steps)
        times, channels, sample = times[seen], channels[seen], sample[seen]
        times = times if self.exact else times.round().clamp_max(self.steps - 1)
        times, channels = fold(times, channels, self.window, self.inputs // self.folds)
        return EventBatch(times, channels, sample, len(index), self.inputs, self.window, whole=not self.exact)

    def fold(self, folds: int, steps: int | None = None) -> None:
        """Cut samples into stretches whose channels enter side by side; `steps` of a sample. Default: a multiple of `folds`."""
        if folds > self.steps:
            raise ValueError(f"ExactEvents: folds must be at most the number of steps, {self.steps}, got {folds}.")
        maps, *space = self.layout if len(self.layout) == 3 else (1, 1, *self.layout)
        layout = (folds * maps, *space)
        if space[0] > 1 and layout[0] >= min(space):
            raise ValueError(
                f"ExactEvents: folds={folds} makes {layout[0]} maps of {space[0]} x {space[1]} pixels, but there must be fewer "
                "maps than rows and columns. Use fewer folds."
            )
        self.window, self.inputs, self.folds = -(-self.steps // folds), folds * self.inputs, folds
        self.steps, self.layout = steps or folds * self.window, layout

    @property
    def silent(self) -> bool:
        """Whether no sample has an event within the window."""
        return not bool((self._times < (self.steps if self.aligned is None else math.inf)).any())

    def _events(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return the times and channels of the events numbered `place`."""
        return self._times[place], self._channels[place]


class StoredEvents:
    """Events that lie outside of memory: those of all samples, one sample after the other. They are read batch by batch.

    Parameters
    ----------
    times, channels : array of shape (events,), numpy.memmap, Zarr or dask array, or the path of one
        The times, finite and not negative, and the whole numbers of the channels.
    ends : array of shape (samples,)
        Where each sample ends: sample `n` has the events from ``ends[n - 1]`` (0 for the first) to ``ends[n]``.

    Examples
    --------
    >>> events = StoredEvents(np.array([0.5, 2.0, 1.0]), np.array([0, 1, 1]), ends=[2, 3])
    >>> len(events), as_events(events).batch(torch.tensor([1])).times.tolist()
    (2, [1.0])
    """

    def __init__(self, times: object, channels: object, ends: npt.ArrayLike) -> None:
        self._times, self._channels = _flat(times, "times"), _flat(channels, "channels")
        given = np.asarray(ends)
        if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
            raise ValueError(f"ends must hold a whole number for each sample, got an array {given.shape} of {given.dtype}.")
        self.ends = np.concatenate([[0], given.astype(np.int64)])
        count = len(self._times)
        if len(self._channels) != count:
            raise ValueError(f"times and channels must be equally many, got {count} and {len(self._channels)}.")
        if (np.diff(self.ends) < 0).any() or self.ends[-1] != count:
            raise ValueError(
                f"ends must not decrease, and the last must be the number of events, {count}, got {self.ends[-1]}."
            )

    def __len__(self) -> int:
        return len(self.ends) - 1

    def read(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the times and channels of the events ``[first, last)``."""
        times, places = self._times[first:last][:, 0], self._channels[first:last][:, 0]
        for bad, rule in (
            (
                ~((times >= 0) & (times < np.inf)),
                "times must be finite and >= 0: shift them such that the first is not negative",
            ),
            ((places < 0) | (places != np.round(places)), "channels must be whole numbers >= 0"),
        ):
            if bad.any():
                event = first + int(bad.argmax())
                sample = int(np.searchsorted(self.ends, event, side="right")) - 1
                raise ValueError(f"X: {rule}, but event {event} (sample {sample}) is not.")
        return times, places.astype(np.int64)

    def streams(self, scale: float, inputs: int | None, window: int | None) -> EventStreams:
        """Return samples that batches are taken from, with steps and channels for all events."""
        latest = most = (0.0, 0)  # the largest, and where
        for first in range(0, len(self._times), RUN):
            times, channels = self.read(first, min(first + RUN, len(self._times)))
            latest = max(latest, (float(times.max()), -first - int(times.argmax())))
            most = max(most, (int(channels.max()), -first - int(channels.argmax())))
        at_last, at_most = (int(np.searchsorted(self.ends, -place, side="right")) - 1 for _, place in (latest, most))
        steps, found = 1 + int(latest[0] * scale), 1 + int(most[0])
        if window is None and steps > MOST_STEPS:
            spread = np.concatenate([self.read(n, n + 1)[0] for n in np.linspace(0, len(self._times) - 1, 1001).astype(int)])
            refuse_steps(at_last, latest[0] * scale, float(np.median(spread)) * scale)
        if inputs is None and found > MOST_CHANNELS:
            refuse_channels(at_most, found - 1)
        check_inputs(inputs, found)
        return StoredStreams(self, scale, inputs or found, steps if window is None else check_integer("window", window, 1))


class StoredStreams(EventStreams):
    """Samples of stored events: each batch reads its own, those of neighbouring samples in one run."""

    def __init__(self, events: StoredEvents, scale: float, inputs: int, window: int) -> None:
        self._stored, self._scale = events, scale
        self._set(events.ends, inputs, window)

    @property
    def silent(self) -> bool:
        """Whether there are no events at all. Stored events are not read for this."""
        return not self._stored.ends[-1]

    def _events(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return the times and channels of the events numbered `place`."""
        runs, at = find_runs([int(self._stored.ends[-1])], place, 1)
        parts = [(np.zeros(0), np.zeros(0, dtype=np.int64)), *(self._stored.read(first, last) for _, first, last in runs)]
        times, channels = (torch.from_numpy(np.concatenate(some)) for some in zip(*parts, strict=True))
        return (times * self._scale)[at], channels[at]


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
    align : float, optional
        Bring recordings of different lengths to one length: of each, the times that all but this part of the events lie after,
        and before, become 5 % and 95 % of the steps. Default: times stay as they are.
    folds : int
        Cut the steps into this many stretches of equal length, which enter at the same time, each as channels of its own, as if
        delays brought them together. So a neuron sees when things happen as a pattern over channels, and the network runs for
        the steps of one stretch only. A `Convolution` takes the stretches as maps.

    Examples
    --------
    >>> streams = ExactEvents(steps=6, inputs=2, exact=False, folds=3).encode([([0.0, 3.0, 5.0], [0, 1, 0])])
    >>> batch = streams.batch(torch.tensor([0]))
    >>> streams.layout, batch.window, batch.times.tolist(), batch.channels.tolist()
    ((3, 1, 2), 2, [0.0, 1.0, 1.0], [0, 3, 4])
    """

    steps: int | None = None
    scale: float = 1.0
    inputs: int | None = None
    merge: int = 1
    exact: bool = True
    align: float | None = field(default=None, metadata={"later": True})
    folds: int = field(default=1, metadata={"later": True})

    def __post_init__(self) -> None:
        check_positive("ExactEvents: scale", self.scale)
        if self.align is not None and not check_positive("ExactEvents: align", self.align, zero=True) < 0.5:
            raise ValueError(f"ExactEvents: align must be below 0.5, got {self.align!r}.")
        check_integer("ExactEvents: merge", self.merge, 1)
        check_integer("ExactEvents: folds", self.folds, 1)
        for name in ("steps", "inputs"):
            if getattr(self, name) is not None:
                check_integer(f"ExactEvents: {name}", getattr(self, name), 1)

    def encode(
        self,
        X: Iterable[Sample] | StoredEvents,
        window: int | None = None,
        inputs: int | None = None,
        pixels: Layout | None = None,
    ) -> EventStreams:
        """Return the events of samples; `window`, `inputs` and `pixels` are those of the samples of a fit."""
        steps = self.steps if window is None or self.steps else window * self.folds
        streams = as_events(X, scale=self.scale, inputs=self.inputs, window=steps, pixels=pixels)
        streams.exact, streams.aligned = self.exact, self.align
        if self.merge > 1:
            streams.merge = self.merge
            streams.inputs = -(-streams.inputs // self.merge)
            streams.layout = (streams.inputs,)
        if inputs is not None:
            known = inputs // self.folds
            if streams.inputs > known:
                raise ValueError(f"X: channel {streams.inputs - 1} is out of range: there are {known} channels, from 0 on.")
            streams.inputs = known
            streams.layout = streams.layout if len(streams.layout) > 1 else (known,)
        if self.folds > 1:
            streams.fold(self.folds, self.steps)
        return streams


def is_events(X: object) -> bool:
    """Return whether samples look like events: pairs (times, channels), structured arrays, or stored events."""
    if isinstance(X, StoredEvents):
        return True
    if not isinstance(X, (list, tuple)) or not len(X):
        return False
    first = X[0]
    if isinstance(first, np.ndarray):
        return bool(first.dtype.names)
    return isinstance(first, tuple) and len(first) == 2 and all(np.ndim(part) == 1 for part in first)


def as_events(
    X: Iterable[Sample] | StoredEvents,
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
        ``(p * height + y) * width + x``. Or `StoredEvents`.
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
    if isinstance(X, StoredEvents):
        return X.streams(scale, inputs, window)
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
    check_inputs(inputs, most)
    last = 1 + int(max((float(t.max()) for t in times if len(t)), default=0.0))
    check_sizes(times, channels, last if window is None else 1, most if inputs is None else 1)
    streams = EventStreams(times, channels, inputs or most, last if window is None else check_integer("window", window, 1))
    streams.pixels = pixels
    if pixels is not None and inputs in (None, math.prod(pixels)):
        streams.layout, streams.inputs = pixels, math.prod(pixels)
    return streams


def _flat(values: object, name: str) -> Rows:
    """Return times or channels (events,) as rows of one number each, checked as they are read if they are stored."""
    source = open_rows(values, name) if isinstance(values, (str, Path)) or not isinstance(values, (list, tuple)) else None
    if source is None:
        found = np.asarray(values, dtype=np.float64)
        shape = found.shape
    else:
        shape = (source.shape[0],) if not source.row_shape else source.shape
    if len(shape) != 1:
        raise ValueError(f"{name} must have the shape (events,), got {shape}.")
    return found[:, None] if source is None else StoredRows(source, 0, shape[0], name)


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
    if not ((places >= 0) & (places < 2**62) & (places == np.round(places))).all():
        rule = "must be whole numbers >= 0. Polarities of -1 and 1 become 0 and 1 by p > 0."
        raise ValueError(f"X: channels of sample {number} {rule}")
    return times, places.astype(np.int64)
