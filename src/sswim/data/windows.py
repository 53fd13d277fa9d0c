"""Where samples come from: tensors, and windows cut from series without copying them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.encoder import Encoded, SeriesEncoder
from sswim.network.events import EventBatch, dense
from sswim.network.network import Inputs, SpikingNetwork
from sswim.options import check_fraction

__all__ = [
    "Index",
    "Part",
    "Samples",
    "SeriesWindows",
    "Split",
    "Subset",
    "TensorSamples",
    "Windows",
    "as_samples",
    "as_split",
    "batches",
    "kept_for_training",
    "require_finite",
    "split_windows",
]

Index = Tensor | slice
# The largest input or target.
MOST = 1e15
Rows = TypeVar("Rows", np.ndarray, Tensor, range, list)


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
        self.samples, self.index, self.spiking = samples, index, samples.spiking

    def __len__(self) -> int:
        return len(self.index)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs of the samples numbered `index`."""
        return self.samples.inputs(self.index[index])

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self.samples.targets(self.index[index])

    def past(self, index: Index) -> Tensor | None:
        """Return the rows that a readout with lags sees."""
        return self.samples.past(self.index[index])

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count."""
        return self.samples.weights(self.index[index])


class Part(Subset):
    """A run of the samples ``[first, last)`` of another source: what belongs together stays together."""

    def __init__(self, samples: Samples, first: int, last: int) -> None:
        super().__init__(samples, torch.arange(first, last))
        self.together = samples.together


class Faded(Samples):
    """Samples of which earlier ones count less.

    Parameters
    ----------
    samples : Samples
    ages : Tensor of shape (samples,)
        How many have come after each of them.
    half_life : float
    """

    def __init__(self, samples: Samples, ages: Tensor, half_life: float) -> None:
        self.samples, self.spiking, self.together = samples, samples.spiking, samples.together
        self._counts = torch.exp2(-ages.double() / half_life)

    def __len__(self) -> int:
        return len(self.samples)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs of the samples numbered `index`."""
        return self.samples.inputs(index)

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self.samples.targets(index)

    def weights(self, index: Index) -> Tensor:
        """Return how much samples count."""
        weights = self.samples.weights(index)
        return self._counts[index] if weights is None else self._counts[index] * weights


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

    @classmethod
    def by(cls, samples: Samples, held_out: Tensor) -> Self:
        """Return the samples for training and the others, as (samples,) says."""
        return cls(Subset(samples, (~held_out).nonzero()[:, 0]), Subset(samples, held_out.nonzero()[:, 0]), samples)

    def fade(self, half_life: float | None) -> float:
        """Return how much samples count that came before all of these."""
        assert self.whole is not None
        return 1.0 if half_life is None else 2.0 ** (-(len(self.whole) // self.whole.together) / half_life)

    def faded(self, half_life: float | None) -> Split:
        """Return the same samples, of which earlier ones count less: half as much if so many come after them."""
        if half_life is None:
            return self
        parts, whole = (self.train, self.held_out), self.whole
        assert whole is not None
        indexes = [part.index for part in parts if isinstance(part, Subset)]
        ages = [(len(whole) - 1 - index) // whole.together for index in indexes]
        train, held_out = (Faded(part, age, half_life) for part, age in zip(parts, ages, strict=True))
        return Split(train, held_out, whole)


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
    encoder : SeriesEncoder
    segments : sequence of Encoded
    window, horizon, stride : int
    """

    def __init__(self, encoder: SeriesEncoder, segments: Sequence[Encoded], window: int, horizon: int, stride: int = 1) -> None:
        self.encoder, self.window, self.horizon = encoder, window, horizon
        self.shared, self.relative = encoder.shared, encoder.relative
        self._windows = Windows([s.rows for s in segments], window, horizon, stride)
        self._seen, self._covariates = _joined([s.seen for s in segments]), _joined([s.covariates for s in segments])
        self.batch = self.together = self._seen.shape[1] if self.shared else 1
        self.recordings: Sequence[int] = [len(self._windows)]  # windows of each series that came by itself

    def __len__(self) -> int:
        return len(self._windows) * self.batch

    def _find(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return the windows and members of some samples."""
        number = torch.arange(len(self))[index]
        return number // self.batch, number % self.batch

    def _steps(self, window: Tensor, first: int, last: int) -> Tensor:
        """Return the rows ``[first, last)`` of some windows, as numbers (batch, rows)."""
        return self._windows.starts[window][:, None] + torch.arange(first, last)

    def _pick(self, values: Tensor, steps: Tensor, member: Tensor) -> Tensor:
        """Pick what belongs to each sample, (batch, outputs, steps), from values (rows, channels)."""
        return values[steps, member[:, None]][:, None] if self.shared else values[steps].transpose(1, 2)

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, inputs) of the samples numbered `index`."""
        window, member = self._find(index)
        steps = self._steps(window, 0, self.window)
        seen, rows = (self._pick(v, steps, member) for v in (self._seen, self._windows.rows))
        views = self.encoder.views(seen, rows).transpose(0, 1).flatten(1, 2)  # (batch, views * outputs, W)
        return torch.cat([views, self._covariates[steps].transpose(1, 2)], dim=1).transpose(1, 2)

    def past(self, index: Index) -> Tensor:
        """Return the rows that a readout with lags sees, scaled: (batch, window, outputs), float64."""
        window, member = self._find(index)
        return self._pick(self._windows.rows, self._steps(window, 0, self.window), member).transpose(1, 2)

    def ahead(self, index: Index) -> Tensor | None:
        """Return what is known ahead, for each window of whole sets of samples: (windows, known, horizon); None if nothing."""
        columns = self.encoder.ahead
        if not columns:
            return None
        window = self._find(index)[0][:: self.batch]
        steps = self._steps(window, self.window, self.window + self.horizon)
        return self._covariates[:, columns][steps].transpose(1, 2)

    def level(self, index: Index) -> Tensor:
        """Return what forecasts are relative to: (batch, 1, outputs)."""
        past = self.past(index)
        return past.mean(dim=1, keepdim=True) if self.relative else torch.zeros_like(past[:, :1])

    def targets(self, index: Index) -> Tensor:
        """Return what is to be forecast, relative to the level: (batch, horizon, outputs), float64."""
        window, member = self._find(index)
        steps = self._steps(window, self.window, self.window + self.horizon)
        return self._pick(self._windows.rows, steps, member).transpose(1, 2) - self.level(index)


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
    """Refuse inputs or targets that hold NaN or infinity, or whose squares would overflow in float32."""
    for name, values in (("X", x), ("Y", y)):
        if isinstance(values, EventBatch):
            continue
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite, but holds NaN or infinite values: fill or drop them first.")
        if values.numel() and float(values.abs().max()) > MOST:
            raise ValueError(f"{name} must lie between -{MOST:g} and {MOST:g}, got {float(values.abs().max()):g}: scale it.")


def as_samples(X: npt.ArrayLike | Samples, Y: npt.ArrayLike | None, network: SpikingNetwork) -> Samples:
    """Return samples that fit the network, from arrays or samples."""
    if isinstance(X, Samples):
        samples = X
    elif Y is None:
        raise TypeError(f"Y must be given with X, or X must be Samples such as sswim.data.Windows, got X of {type(X)}.")
    else:
        samples = TensorSamples(torch.as_tensor(X), torch.as_tensor(Y))
    first = slice(0, 1)
    if not len(samples):
        raise ValueError("X must hold at least two samples, got none.")
    for name, shape, rule in (
        ("X", dense(samples.inputs(first)).shape[1:], (network.window, network.inputs)),
        ("Y", samples.targets(first).shape[1:], (network.horizon, network.outputs)),
    ):
        if tuple(shape) != rule:
            raise ValueError(
                f"{name} must have the network's shape (samples, {rule[0]}, {rule[1]}), got (samples, *{tuple(shape)})."
            )
    return samples


def as_split(
    samples: Samples, validation: float | Samples | tuple[npt.ArrayLike, npt.ArrayLike], network: SpikingNetwork
) -> Split:
    """Return training and validation samples."""
    if isinstance(validation, tuple):
        split = Split(samples, as_samples(validation[0], validation[1], network))
    elif isinstance(validation, Samples):
        split = Split(samples, as_samples(validation, None, network))
    else:
        split = Split.at(samples, kept_for_training(len(samples), check_fraction("validation", validation)))
    if len(split.train) < 2:
        raise ValueError(f"X: at least two training samples are needed to draw a pair, got {len(split.train)}.")
    return split
