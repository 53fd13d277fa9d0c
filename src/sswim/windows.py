"""Where samples come from: tensors, or windows cut from series without copying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

__all__ = ["Samples", "Subset", "TensorSamples", "Windows", "batches", "require_finite", "split_windows"]


Index = Tensor | slice
Rows = TypeVar("Rows", bound=Any)


class Samples(Protocol):
    """Samples that can be asked for by number."""

    def __len__(self) -> int: ...

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, channels) of the samples numbered `index`."""
        ...

    def targets(self, index: Index) -> Tensor:
        """Return the targets (batch, horizon, outputs) of the samples numbered `index`."""
        ...


class TensorSamples:
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


class Windows:
    """Every `stride`-th window of one or several series; no window crosses from one series into the next.

    Parameters
    ----------
    segments : sequence of Tensor of shape (rows, channels)
        The series. Segments too short for a window are passed over.
    targets : sequence of Tensor of shape (rows, outputs), optional
        The same rows as targets, where these differ from the inputs.
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

    def __init__(
        self,
        segments: Sequence[Tensor],
        window: int,
        horizon: int,
        stride: int = 1,
        targets: Sequence[Tensor] | None = None,
    ) -> None:
        self.rows = _join(segments)
        self.target_rows = self.rows if targets is None else _join(targets)
        self.window, self.horizon = window, horizon
        starts, first = [], 0
        for segment in segments:
            starts.append(torch.arange(first, first + max(len(segment) - window - horizon + 1, 0), stride))
            first += len(segment)
        self.starts = torch.cat(starts)

    def covered(self, count: int) -> Tensor:
        """Tell for each row whether one of the first `count` windows or its horizon holds it."""
        starts = self.starts[:count]
        change = torch.zeros(len(self.rows) + 1, dtype=torch.int64)
        change.index_add_(0, starts, torch.ones_like(starts))
        change.index_add_(0, starts + self.window + self.horizon, -torch.ones_like(starts))
        return change[:-1].cumsum(dim=0) > 0

    def __len__(self) -> int:
        return len(self.starts)

    def _numbers(self, index: Index, offset: int, length: int) -> Tensor:
        return self.starts[index][:, None] + torch.arange(offset, offset + length)

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, channels) of the windows numbered `index`."""
        return self.rows[self._numbers(index, 0, self.window)]

    def targets(self, index: Index) -> Tensor:
        """Return the targets (batch, horizon, channels) of the windows numbered `index`."""
        return self.target_rows[self._numbers(index, self.window, self.horizon)]


def _join(segments: Sequence[Tensor]) -> Tensor:
    return segments[0] if len(segments) == 1 else torch.cat(list(segments))


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


class Subset:
    """Some of the samples of another source."""

    def __init__(self, samples: Samples, index: Tensor) -> None:
        self._samples, self._index = samples, index

    def __len__(self) -> int:
        return len(self._index)

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs of the samples numbered `index`."""
        return self._samples.inputs(self._index[index])

    def targets(self, index: Index) -> Tensor:
        """Return the targets of the samples numbered `index`."""
        return self._samples.targets(self._index[index])


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


def require_finite(x: Tensor, y: Tensor) -> None:
    """Refuse inputs or targets that hold NaN or infinity."""
    for name, values in (("X", x), ("Y", y)):
        if isinstance(values, Tensor) and not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite, but holds NaN or infinite values: fill or drop them first.")
