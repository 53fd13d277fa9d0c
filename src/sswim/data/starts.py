"""Where windows begin in a series of several segments, and when they end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.data.calendar import RowTimes

__all__ = ["Starts", "TimedWindows"]


class Starts:
    """The first row of every `stride`-th window, counted over all segments, without a list of them.

    Parameters
    ----------
    lengths : sequence of int
        Rows of each segment. Segments that are too short for a window are ignored.
    span : int
        Rows of a window and its horizon.
    stride : int

    Examples
    --------
    >>> starts = Starts([6, 2, 5], span=4, stride=2)
    >>> len(starts), starts[torch.tensor([1, 2])].tolist(), starts.covered(3)
    (3, [2, 8], [(0, 0, 6), (2, 0, 4)])
    """

    def __init__(self, lengths: Sequence[int], span: int, stride: int = 1) -> None:
        self._span, self._stride = span, stride
        self._counts = [max(-(-(length - span + 1) // stride), 0) for length in lengths]
        self._before = torch.tensor([0, *self._counts]).cumsum(dim=0)  # windows before each segment
        self._first = torch.tensor([0, *lengths]).cumsum(dim=0)

    def __len__(self) -> int:
        return int(self._before[-1])

    def __getitem__(self, windows: Tensor) -> Tensor:
        segment, row = self.find(windows)
        return self._first[segment] + row

    def find(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the segment of each window, and the row in it that the window begins with."""
        segment = torch.searchsorted(self._before, windows.contiguous(), right=True) - 1
        return segment, (windows - self._before[segment]) * self._stride

    def covered(self, count: int) -> list[tuple[int, int, int]]:
        """Return the rows that the first `count` windows and their horizons hold, as (segment, first, last)."""
        found = []
        for number, there in enumerate(self._counts):
            here, count = min(there, count), max(count - there, 0)
            if self._stride > self._span:
                found += [(number, n * self._stride, n * self._stride + self._span) for n in range(here)]
            elif here:
                found.append((number, 0, (here - 1) * self._stride + self._span))
        return found


class TimedWindows:
    """Tells the times of the last rows of windows.

    Parameters
    ----------
    starts : Starts
    times : sequence of RowTimes
        Of each segment.
    window : int
    """

    def __init__(self, starts: Starts, times: Sequence[RowTimes], window: int) -> None:
        self._starts, self._times, self._window = starts, times, window

    def __call__(self, windows: Tensor) -> Tensor:
        """Return wall-clock times in seconds (n,) of the windows of some numbers (n,)."""
        segment, row = self._starts.find(windows)
        found = torch.zeros(len(windows), dtype=torch.long)
        for number in segment.unique().tolist():
            here = segment == number
            found[here] = torch.from_numpy(self._times[number].at((row[here] + self._window - 1).numpy()))
        return found
