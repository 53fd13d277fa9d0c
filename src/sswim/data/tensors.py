"""Samples and windows of arrays that lie in memory, and what is checked of samples that a user passes to a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.windows import MOST, Index, Samples, Split, kept_for_training
from sswim.network.events import EventBatch, dense
from sswim.network.network import Inputs, SpikingNetwork
from sswim.options import check_fraction

__all__ = ["TensorSamples", "Windows", "as_samples", "as_split", "require_finite", "split_windows"]

Cut = TypeVar("Cut", np.ndarray, range, list)


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
        self.rows = segments[0] if len(segments) == 1 else torch.cat(list(segments))
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


def split_windows(segments: Sequence[Cut], span: int, last: int) -> tuple[list[Cut], list[Cut]]:
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


def require_finite(x: Inputs, y: Tensor) -> None:
    """Refuse inputs or targets that hold NaN or infinity, or whose squares would overflow in float32."""
    for name, values in (("X", x), ("Y", y)):
        if isinstance(values, EventBatch):
            continue
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite, but holds NaN or infinite values: fill or drop them first.")
        if values.numel() and float(values.abs().max()) > MOST:
            raise ValueError(f"{name} must lie between -{MOST:g} and {MOST:g}, got {float(values.abs().max()):g}: scale it.")
