"""Where samples come from: tensors, and windows cut from series without copying them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Self

import torch
from torch import Tensor

from sswim.data.calendar import RowTimes, WindowEnds
from sswim.data.encoder import Encoded, SeriesEncoder
from sswim.data.rows import Unread, find_runs
from sswim.data.starts import Starts, TimedWindows
from sswim.network.network import Inputs

__all__ = ["Index", "Part", "Samples", "SeriesWindows", "Split", "Subset", "batches", "kept_for_training"]

Index = Tensor | slice
Look = Callable[["SeriesWindows", Index], Tensor]
# The largest input or target.
MOST = 1e15


class Samples(ABC):
    """Samples that can be asked for by number.

    Attributes
    ----------
    together : int
        How many consecutive samples belong together and must stay in one batch, in order.
    spiking : bool
        Whether inputs are spikes, not values.
    """

    together: int = 1
    spiking: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def originals(self) -> int:
        """Number of samples at the beginning that are no copies of others. Default: all."""
        return len(self)

    @property
    def marks(self) -> str:
        """What tells the samples from others with the same targets, as a text. Default: nothing."""
        return ""

    @abstractmethod
    def inputs(self, index: Index) -> Inputs:
        """Return the inputs (batch, window, channels), or the events, of the samples numbered `index`."""

    @abstractmethod
    def targets(self, index: Index) -> Tensor:
        """Return the targets (batch, horizon, outputs) of the samples numbered `index`."""

    def past(self, index: Index) -> Tensor | None:
        """Return the rows that a readout with lags sees (batch, window, outputs). Default: none but the inputs."""
        return None

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count (batch,). Default: all alike."""
        return None

    def groups(self, index: Index) -> Tensor | None:
        """Return the number of each sample's group (batch,). Default: there are no groups."""
        return None


class Subset(Samples):
    """Some of the samples of another source."""

    def __init__(self, samples: Samples, index: Tensor) -> None:
        self.samples, self.index, self.spiking = samples, index, samples.spiking

    def __len__(self) -> int:
        return len(self.index)

    def numbers(self, index: Index) -> Index:
        """Return the numbers of some samples in the other source."""
        return self.index[index]

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs of the samples numbered `index`."""
        return self.samples.inputs(self.numbers(index))

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self.samples.targets(self.numbers(index))

    def past(self, index: Index) -> Tensor | None:
        """Return the rows that a readout with lags sees."""
        return self.samples.past(self.numbers(index))

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count."""
        return self.samples.weights(self.numbers(index))

    @property
    def marks(self) -> str:
        """What tells the samples from others with the same targets."""
        return self.samples.marks


class Part(Subset):
    """A run of the samples ``[first, last)`` of another source: what belongs together stays together."""

    def __init__(self, samples: Samples, first: int, last: int) -> None:
        self.samples, self.spiking, self.together, self._run = samples, samples.spiking, samples.together, range(first, last)

    def __len__(self) -> int:
        return len(self._run)

    def numbers(self, index: Index) -> Index:
        """Return the numbers of some samples in the other source."""
        if isinstance(index, slice):
            run = self._run[index]
            return slice(run.start, run.stop, run.step)
        return index + self._run.start


class Faded(Part):
    """Samples of which earlier ones count less.

    Parameters
    ----------
    samples : Samples
    ages : Tensor of shape (samples,)
        How many have come after each of them.
    half_life : float
    """

    def __init__(self, samples: Samples, ages: Tensor, half_life: float) -> None:
        super().__init__(samples, 0, len(samples))
        self._counts = torch.exp2(-ages.double() / half_life)

    def weights(self, index: Index) -> Tensor:
        """Return how much samples count."""
        weights = self.samples.weights(index)
        return self._counts[index] if weights is None else self._counts[index] * weights


def _numbers(index: Index, count: int) -> Tensor:
    """Return the numbers of some of `count` samples."""
    return torch.arange(*index.indices(count)) if isinstance(index, slice) else index


def _joined(segments: Sequence[Encoded | Unread]) -> Sequence[Encoded | Unread]:
    """Return segments that are encoded as one."""
    if len(segments) == 1 or not isinstance(segments[0], Encoded):
        return segments
    return [Encoded(*(torch.cat([getattr(s, name) for s in segments]) for name in ("rows", "seen", "covariates")))]


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

    @classmethod
    def by(cls, samples: Samples, held_out: Tensor) -> Self:
        """Return the samples for training and the others, as (samples,) says."""
        return cls(Subset(samples, (~held_out).nonzero()[:, 0]), Subset(samples, held_out.nonzero()[:, 0]), samples)

    def fade(self, half_life: float | None) -> float:
        """Return how much samples count that came before all of these."""
        assert self.whole is not None
        return 1.0 if half_life is None else 2.0 ** (-(len(self.whole) // self.whole.together) / half_life)

    def faded(self, half_life: float | None) -> Split:
        """Return the same samples, weighted by age: a sample counts half as much if `half_life` others follow it."""
        if half_life is None:
            return self
        parts, whole = (self.train, self.held_out), self.whole
        assert whole is not None
        indexes = [_numbers(part.numbers(slice(None)), len(whole)) for part in parts if isinstance(part, Subset)]
        ages = [(len(whole) - 1 - index) // whole.together for index in indexes]
        train, held_out = (Faded(part, age, half_life) for part, age in zip(parts, ages, strict=True))
        return Split(train, held_out, whole)


def _in_parts(look: Look) -> Look:
    """Let `look` see rows in memory: of rows that are not read yet, as many at once as there is room for."""

    @wraps(look)
    def look_at(self: SeriesWindows, index: Index) -> Tensor:
        most = self.most
        if most is None:
            return look(self, index)
        numbers = _numbers(index, len(self))
        windows, at = (numbers // self.batch).unique(return_inverse=True)
        rows = self.starts[windows].diff().clamp_max(self.window + self.horizon).cumsum(dim=0)
        ends = (torch.nn.functional.pad(rows, (1, 0)) // most).unique_consecutive(return_counts=True)[1].cumsum(dim=0).tolist()
        found = torch.empty(0)
        for first, last in zip([0, *ends], ends, strict=False):
            mine = (at >= first) & (at < last)
            some = look(self.read(windows[first:last]), (at[mine] - first) * self.batch + numbers[mine] % self.batch)
            found = some.new_empty(len(numbers), *some.shape[1:]) if not first else found
            found[mine] = some
        return found

    return look_at


class SeriesWindows(Samples):
    """Windows of encoded series: of all channels at once, or one channel after the other where they share a network.

    Sample ``n * batch + b`` is member `b` of window `n`, so samples are in the order of time. Segments that are not read yet
    are read as their windows are asked for: neighbouring windows in one run.

    Parameters
    ----------
    encoder : SeriesEncoder
    segments : sequence of Encoded, or of Unread
    window, horizon, stride : int
    ends : sequence of RowTimes, or callable, optional
        Times of the segments' rows, or of the windows' last rows, for an encoder with a calendar. Default: not known.
    """

    def __init__(
        self,
        encoder: SeriesEncoder,
        segments: Sequence[Encoded | Unread],
        window: int,
        horizon: int,
        stride: int = 1,
        ends: Sequence[RowTimes] | WindowEnds | None = None,
    ) -> None:
        self.encoder, self.window, self.horizon = encoder, window, horizon
        self.shared, self.relative = encoder.shared, encoder.relative
        self.starts: Starts | Tensor = Starts([len(s.rows) for s in segments], window + horizon, stride)
        self._segments = _joined(segments)
        self.ends = TimedWindows(self.starts, ends, window) if isinstance(ends, Sequence) else ends
        self._numbers: Tensor | None = None  # of the windows, in the series that `ends` is of
        self.batch = self.together = len(encoder.moving) if self.shared else 1
        self.recordings: Sequence[int] = [len(self.starts)]  # windows of each series that came by itself

    def __len__(self) -> int:
        return len(self.starts) * self.batch

    @property
    def most(self) -> int | None:
        """Number of rows to read at once; None if all are in memory."""
        first = self._segments[0]
        return None if isinstance(first, Encoded) else first.most

    def part(self, windows: Tensor) -> Self:
        """Return some of the windows, with the rows that they need and no others; stored rows are still not read."""
        span, lengths = self.window + self.horizon, [len(s.rows) for s in self._segments]
        runs, starts = find_runs(lengths, self.starts[windows], span)
        return self._with(windows, [self._segments[n].cut(first, last) for n, first, last in runs], starts)

    def read(self, windows: Tensor) -> Self:
        """Return some of the windows, with their rows in memory."""
        if self.most is None:
            return self._with(windows, self._segments, self.starts[windows])
        part = self.part(windows)
        return self._with(windows, [self.encoder.read(part._segments)], part.starts)  # type: ignore[arg-type]

    def _with(self, windows: Tensor, segments: Sequence[Encoded | Unread], starts: Starts | Tensor) -> Self:
        """Return some of the windows, which begin elsewhere, of other segments."""
        other = copy.copy(self)
        other._segments, other.starts = _joined(segments), starts
        other._numbers = windows if self._numbers is None else self._numbers[windows]
        return other

    def _find(self, index: Index) -> tuple[Encoded, Tensor, Tensor]:
        """Return the rows, and the windows and members of some samples."""
        number = _numbers(index, len(self))
        return self._segments[0], number // self.batch, number % self.batch  # type: ignore[return-value]

    def _steps(self, window: Tensor, first: int, last: int) -> Tensor:
        """Return the rows ``[first, last)`` of some windows, as numbers (batch, rows)."""
        return self.starts[window][:, None] + torch.arange(first, last)

    def _pick(self, values: Tensor, steps: Tensor, member: Tensor) -> Tensor:
        """Pick what belongs to each sample, (batch, outputs, steps), from values (rows, channels)."""
        return values[steps, member[:, None]][:, None] if self.shared else values[steps].transpose(1, 2)

    @_in_parts
    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, inputs) of the samples numbered `index`."""
        encoded, window, member = self._find(index)
        steps = self._steps(window, 0, self.window)
        seen, rows = (self._pick(v, steps, member) for v in (encoded.seen, encoded.rows))
        views = self.encoder.views(seen, rows).transpose(0, 1).flatten(1, 2)  # (batch, views * outputs, W)
        return torch.cat([views, encoded.covariates[steps].transpose(1, 2)], dim=1).transpose(1, 2)

    @_in_parts
    def past(self, index: Index) -> Tensor:
        """Return the rows that a readout with lags sees, scaled: (batch, window, outputs), float64."""
        encoded, window, member = self._find(index)
        return self._pick(encoded.rows, self._steps(window, 0, self.window), member).transpose(1, 2)

    def ahead(self, index: Index) -> Tensor | None:
        """Return what is known ahead, for each window of whole sets of samples, side by side: (windows, numbers).

        These are the covariates that are known, (known, horizon), and the waves of the calendar at the last row, 0 where times
        are not known. None if nothing is known ahead.
        """
        columns, calendar, found = self.encoder.ahead, self.encoder.calendar, []
        window = _numbers(index, len(self))[:: self.batch] // self.batch
        if columns:
            part = self.read(window)
            steps = part._steps(torch.arange(len(window)), self.window, self.window + self.horizon)
            found.append(part._find(slice(0))[0].covariates[:, columns][steps].transpose(1, 2).flatten(1).double())
        if calendar is not None and self.ends is not None:
            found.append(calendar(self.ends(window if self._numbers is None else self._numbers[window])))
        return torch.cat(found, dim=1) if found else None

    def level(self, index: Index) -> Tensor:
        """Return what forecasts are relative to: (batch, 1, outputs)."""
        past = self.past(index)
        return past.mean(dim=1, keepdim=True) if self.relative else torch.zeros_like(past[:, :1])

    @_in_parts
    def targets(self, index: Index) -> Tensor:
        """Return what is to be forecast, relative to the level: (batch, horizon, outputs), float64."""
        encoded, window, member = self._find(index)
        steps = self._steps(window, self.window, self.window + self.horizon)
        return self._pick(encoded.rows, steps, member).transpose(1, 2) - self.level(index)


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
