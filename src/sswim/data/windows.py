"""Where samples come from: tensors, windows cut from series without copying them, and the rows along a series."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from sswim.data.encoder import Encoded
from sswim.network.events import EventBatch
from sswim.network.layer import Stream
from sswim.network.network import Inputs, SpikingNetwork

__all__ = [
    "Index",
    "Origins",
    "Part",
    "Samples",
    "SeriesWindows",
    "Split",
    "Subset",
    "TensorSamples",
    "Windows",
    "batches",
    "kept_for_training",
    "require_finite",
    "split_windows",
]

Index = Tensor | slice
Rows = TypeVar("Rows", np.ndarray, Tensor, range, list)
# Rows that are simulated at once along a series: the time of filters and traces grows with its square.
CHUNK = 32


class Samples(ABC):
    """Samples that can be asked for by number.

    Attributes
    ----------
    together : int
        How many consecutive samples belong together and must stay in one batch, in order.
    """

    together: int = 1

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def inputs(self, index: Index) -> Inputs:
        """Return the inputs (batch, window, channels), or the events, of the samples numbered `index`."""

    @abstractmethod
    def targets(self, index: Index) -> Tensor:
        """Return the targets (batch, horizon, outputs) of the samples numbered `index`."""

    def past(self, index: Index) -> Tensor | None:
        """Return the rows that a skip connection sees (batch, window, outputs). Default: none but the inputs."""
        return None

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count (batch,). Default: all alike."""
        return None


class TensorSamples(Samples):
    """Samples that lie in memory: `X` (samples, window, channels) and `Y` (samples, horizon, outputs)."""

    def __init__(self, X: Tensor, Y: Tensor) -> None:
        if X.ndim != 3 or Y.ndim != 3 or len(X) != len(Y):
            raise ValueError(
                "X and Y must have shapes (samples, window, channels) and (samples, horizon, outputs) with equally many "
                f"samples, got {tuple(X.shape)} and {tuple(Y.shape)}."
            )
        self.X, self.Y = X, Y

    def __len__(self) -> int:
        return len(self.X)

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs of the samples numbered `index`."""
        return self.X[index]

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self.Y[index]


class Subset(Samples):
    """Some of the samples of another source."""

    def __init__(self, samples: Samples, index: Tensor) -> None:
        self.samples, self.index = samples, index

    def __len__(self) -> int:
        return len(self.index)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs of the samples numbered `index`."""
        return self.samples.inputs(self.index[index])

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self.samples.targets(self.index[index])

    def past(self, index: Index) -> Tensor | None:
        """Return the rows that a skip connection sees."""
        return self.samples.past(self.index[index])

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count."""
        return self.samples.weights(self.index[index])


class Part(Subset):
    """A run of the samples ``[first, last)`` of another source: what belongs together stays together."""

    def __init__(self, samples: Samples, first: int, last: int) -> None:
        super().__init__(samples, torch.arange(first, last))
        self.together = samples.together


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return parts as one tensor, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def kept_for_training(total: int, validation: float) -> int:
    """Return how many of `total` samples are for training, if the last part `validation` is for validation, and at least one.

    Examples
    --------
    >>> kept_for_training(10, 0.25), kept_for_training(2, 0.1)
    (8, 1)
    """
    return total - max(1, int(total * validation))


@dataclass(frozen=True)
class Split:
    """Samples for training, and those that the regularisation is chosen on.

    Attributes
    ----------
    train, held_out : Samples
    whole : Samples or None
        The source that both are runs of, one right after the other.
    """

    train: Samples
    held_out: Samples
    whole: Samples | None = None

    @classmethod
    def at(cls, samples: Samples, kept: int) -> Self:
        """Return the first `kept` samples for training, and the others."""
        return cls(Part(samples, 0, kept), Part(samples, kept, len(samples)), samples)


class Windows(Samples):
    """Every `stride`-th window of one or several series; no window crosses from one series into the next.

    Parameters
    ----------
    segments : sequence of Tensor of shape (rows, channels)
        The series. Segments that are too short for a window are ignored.
    window, horizon : int
        Rows of input, and rows of target right after them.
    stride : int
        Distance between the first rows of neighbouring windows.

    Examples
    --------
    >>> windows = Windows([torch.arange(6.0)[:, None]], window=3, horizon=2)
    >>> len(windows), windows.inputs(slice(1, 2)).flatten().tolist(), windows.targets(slice(1, 2)).flatten().tolist()
    (2, [1.0, 2.0, 3.0], [4.0, 5.0])
    """

    def __init__(self, segments: Sequence[Tensor], window: int, horizon: int, stride: int = 1) -> None:
        self.rows = _joined(segments)
        self.window, self.horizon = window, horizon
        starts, first = [], 0
        for segment in segments:
            starts.append(torch.arange(first, first + max(len(segment) - window - horizon + 1, 0), stride))
            first += len(segment)
        self.starts = torch.cat(starts)

    def __len__(self) -> int:
        return len(self.starts)

    def covered(self, count: int) -> Tensor:
        """Return for each row whether one of the first `count` windows or its horizon holds it."""
        starts, change = self.starts[:count], torch.zeros(len(self.rows) + 1, dtype=torch.int64)
        change.index_add_(0, starts, torch.ones_like(starts))
        change.index_add_(0, starts + self.window + self.horizon, -torch.ones_like(starts))
        return change[:-1].cumsum(dim=0) > 0

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, channels) of the windows numbered `index`."""
        return self.rows[self.starts[index][:, None] + torch.arange(self.window)]

    def targets(self, index: Index) -> Tensor:
        """Return the targets (batch, horizon, channels) of the windows numbered `index`."""
        return self.rows[self.starts[index][:, None] + torch.arange(self.window, self.window + self.horizon)]


class SeriesWindows(Samples):
    """Windows of encoded series: of all channels at once, or one channel after the other where they share a network.

    Sample ``n * batch + b`` is member `b` of window `n`, so samples are in the order of time.

    Parameters
    ----------
    segments : sequence of Encoded
    window, horizon, stride : int
    """

    def __init__(self, segments: Sequence[Encoded], window: int, horizon: int, stride: int = 1) -> None:
        self.segments, self.window = segments, window
        self._signals = _joined([s.signals for s in segments], dim=1)  # (D, rows, B)
        self._windows = Windows([s.lagged for s in segments], window, horizon, stride)
        self._levels, self._bases = _joined([s.level for s in segments]), _joined([s.base for s in segments])
        self.batch = self.together = self._signals.shape[2]
        self.shared = self.batch == self._levels.shape[1]

    def __len__(self) -> int:
        return len(self._windows) * self.batch

    def _find(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return the windows and members of some samples."""
        number = torch.arange(len(self))[index]
        return number // self.batch, number % self.batch

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, inputs) of the samples numbered `index`."""
        window, member = self._find(index)
        steps = self._windows.starts[window][:, None] + torch.arange(self.window)
        return self._signals[:, steps, member[:, None]].permute(1, 2, 0)

    def _of_member(self, values: Tensor, member: Tensor) -> Tensor:
        """Pick from values (batch, steps, channels) what belongs to each sample: (batch, steps, outputs)."""
        return values.gather(2, member[:, None, None].expand(-1, values.shape[1], 1)) if self.shared else values

    def _at_origin(self, values: Tensor, index: Index) -> Tensor:
        window, member = self._find(index)
        return self._of_member(values[self._windows.starts[window] + self.window - 1][:, None], member)

    def level(self, index: Index) -> Tensor:
        """Return what forecasts are relative to: (batch, 1, outputs)."""
        return self._at_origin(self._levels, index)

    def past(self, index: Index) -> Tensor:
        """Return the rows that a skip connection sees: (batch, window, outputs)."""
        window, member = self._find(index)
        return self._of_member(self._windows.inputs(window), member) - self._at_origin(self._bases, index)

    def targets(self, index: Index) -> Tensor:
        """Return what is to be forecast, relative to the level: (batch, horizon, outputs)."""
        window, member = self._find(index)
        return self._of_member(self._windows.targets(window), member) - self.level(index)


class Origins:
    """All rows of encoded series from which a whole horizon lies ahead and a whole window behind, in order.

    A direct readout reads the network at every such row: the network runs along the series once.

    Parameters
    ----------
    network : SpikingNetwork
        Its readout reads traces.
    segments : sequence of Encoded
        The series as the network sees them.
    skip : bool
        Whether the window's own rows are features too.
    memory : int
        Budget in bytes for features.
    dtype : torch.dtype, optional
        Of the features. Default: the network's.
    """

    def __init__(
        self,
        network: SpikingNetwork,
        segments: Sequence[Encoded],
        *,
        skip: bool,
        memory: int = 10**9,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.network, self.segments, self.skip, self.dtype = network, segments, skip, dtype
        self.batch = segments[0].signals.shape[2]
        self.shared = self.batch == segments[0].lagged.shape[1]
        features = network.readout.weights.shape[1]
        self.chunk = max(1, min(CHUNK, memory // (16 * features * self.batch)))
        self.counts = [max(len(s) - network.window - network.horizon + 1, 0) for s in segments]

    def __len__(self) -> int:
        return sum(self.counts)

    def _arranged(self, values: Tensor) -> Tensor:
        """Bring values (..., rows, channels) of all channels to the layout (outputs, ..., rows, batch)."""
        return values[None] if self.shared else values.movedim(-1, 0)[..., None]

    def features(self, stream: Stream, seen: Encoded, first: int, last: int) -> Tensor:
        """Run a stream over rows and return the features (features, rows, batch) at each; a skip sees 0 before row 0."""
        signals = seen.signals[:, first:last].to(self.network.readout.weights)
        traces = stream.advance(signals)
        if not self.skip:
            return traces
        window = self.network.window
        rows = seen.lagged[max(first - window + 1, 0) : last]
        rows = torch.nn.functional.pad(rows, (0, 0, window - 1 - min(first, window - 1), 0))
        lags = rows.unfold(0, window, 1).movedim(2, 0) - seen.base[first:last]  # (O, T, C), the oldest row first
        lags = self._arranged(lags).flatten(0, 1).to(traces)
        return torch.cat([traces, lags, signals[self.network.outputs :].to(traces)])

    def ahead(self, seen: Encoded, first: int, last: int) -> Tensor:
        """Return what follows on rows ``[first, last)``: (horizon * outputs, rows, batch)."""
        y = seen.lagged[first + 1 : last + self.network.horizon].unfold(0, self.network.horizon, 1)  # (T, C, H)
        y = y.movedim(2, 0) - seen.level[first:last]
        return self._arranged(y).transpose(0, 1).flatten(0, 1).to(self.network.readout.weights.device)

    def rows(self, last: int) -> Tensor:
        """Return the scaled rows (rows, channels) that the first `last` origins or their horizons lie in."""
        network, parts = self.network, []
        for seen, count in zip(self.segments, self.counts, strict=True):
            if count and last > 0:
                parts.append(seen.lagged[: min(last, count) + network.window + network.horizon - 1])
            last -= count
        return torch.cat(parts)

    def __call__(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the number of the first origin, features and targets, chunk by chunk, of origins ``[first, last)``."""
        last = len(self) if last is None else last
        number, window = 0, self.network.window
        for seen, count in zip(self.segments, self.counts, strict=True):
            begin, end = max(first - number, 0), min(last - number, count)  # among this segment's origins
            number += count
            if begin >= end:
                continue
            stream = self.network.stream(self.batch, self.dtype)
            # Origin 0 stands at row window - 1. Two earlier windows warm the network up.
            at, stop = max(begin + window - 1 - 2 * window, 0), end + window - 1
            while at < stop:
                until = min(at + self.chunk, stop)
                features = self.features(stream, seen, at, until)
                skipped = max(begin + window - 1 - at, 0)
                if skipped < until - at:
                    origin = number - count + at + skipped - window + 1
                    yield origin, features[:, skipped:], self.ahead(seen, at + skipped, until)
                at = until


def split_windows(segments: Sequence[Rows], span: int, last: int) -> tuple[list[Rows], list[Rows]]:
    """Cut series in time such that the second part holds the `last` windows, of `span` rows with their horizon.

    Examples
    --------
    >>> split_windows([list(range(6)), list(range(4))], span=3, last=3)
    ([[0, 1, 2, 3, 4]], [[3, 4, 5], [0, 1, 2, 3]])
    """
    counts = [max(len(rows) - span + 1, 0) for rows in segments]
    left, first, second = sum(counts) - last, [], []
    for rows, count in zip(segments, counts, strict=True):
        here = min(count, max(left, 0))
        left -= count
        if here:
            first.append(rows[: here + span - 1])
        if here < count:
            second.append(rows[here:])
    return first, second


def batches(count: int, size: int, *, even: bool = True) -> list[slice]:
    """Cut the numbers 0, ..., count - 1 into runs of `size`, or of a bit less where that makes them equally long.

    Examples
    --------
    >>> batches(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if even:
        runs = max(1, -(-count // size))
        size = max(1, -(-count // runs))
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def require_finite(x: Inputs, y: Tensor) -> None:
    """Refuse inputs or targets that hold NaN or infinity."""
    for name, values in (("X", x), ("Y", y)):
        if not isinstance(values, EventBatch) and not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite, but holds NaN or infinite values: fill or drop them first.")
