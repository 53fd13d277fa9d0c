"""What a network sees of a series, and how its outputs come back to the data's own units."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sswim.options import Options, check_choice

__all__ = ["SCALINGS", "Encoded", "Scaling", "SeriesEncoder", "find_columns", "find_floors", "moving_mean", "standard_scales"]

# Deviations from a running level are limited to this many of a channel's usual deviations.
LIMIT = 5.0


@dataclass(frozen=True)
class Scaling(Options):
    """How channels are scaled before they enter the network, from the rows of the training windows.

    Parameters
    ----------
    kind : {"adaptive", "window", "standard", "channel", "none"}
        ``"channel"`` brings each channel to [0, 1] by its range in the training windows, ``"standard"`` to mean 0 and deviation
        1 there. ``"adaptive"`` also shows the network each channel relative to its running level, the mean of the last
        `window` rows, and forecasts are relative to that level. With ``"window"`` it sees nothing else, so that forecasts move
        along with the series. ``"none"`` leaves the data as it is.
    clip : bool
        Whether input beyond a channel's training range is brought back to it before it enters the network (forecasts are
        not limited). Otherwise a channel that leaves its range drives every neuron that listens to it out of its own.
    floor : bool
        Whether forecasts stay above a channel's least value in the training windows where that is reached again and again,
        as zero is by power, counts and rain.
    """

    kind: str = "adaptive"
    clip: bool = True
    floor: bool = True

    def __post_init__(self) -> None:
        check_choice("scaling", self.kind, KINDS)


KINDS = ("adaptive", "window", "standard", "channel", "none")
SCALINGS: dict[str, Scaling] = {kind: Scaling(kind) for kind in KINDS}


@dataclass(frozen=True)
class Encoded:
    """A stretch of a series as a network sees it.

    Attributes
    ----------
    signals : Tensor of shape (inputs, rows, batch)
        What enters the hidden layers. Channels that share a network are a batch; otherwise that is 1.
    lagged : Tensor of shape (rows, channels)
        The channels, scaled: what is to be forecast, and what a skip connection sees.
    level : Tensor of shape (rows, channels)
        What a forecast made at that row is relative to.
    base : Tensor of shape (rows, channels)
        What a skip connection sees its window relative to, at the window's last row.
    """

    signals: Tensor
    lagged: Tensor
    level: Tensor
    base: Tensor

    def __len__(self) -> int:
        return len(self.lagged)


@dataclass(frozen=True)
class SeriesEncoder:
    """Scales rows, turns them into a network's inputs, and turns its outputs into forecasts.

    Attributes
    ----------
    low, high : array of shape (columns,)
        Range in the training windows.
    offset, span : array of shape (columns,)
        What is subtracted, and what is divided by then.
    floor : array of shape (columns,)
        Below which no forecast goes; minus infinity where there is no such value.
    covariates : tuple of int
        Columns that are seen but not forecast.
    scaling : Scaling
    shared : bool
        Whether channels share the network, each with inputs of its own.
    window : int
    precise : bool
        Whether the network computes in float64.
    """

    low: np.ndarray
    high: np.ndarray
    offset: np.ndarray
    span: np.ndarray
    floor: np.ndarray
    covariates: tuple[int, ...]
    scaling: Scaling
    shared: bool
    window: int
    precise: bool

    @classmethod
    def fit(
        cls, rows: Tensor, scaling: Scaling, *, covariates: Sequence[int], shared: bool, window: int, precise: bool
    ) -> Self:
        """Take range, scale and floor from the rows (rows, columns) of the training windows."""
        low, high = rows.amin(dim=0).numpy(), rows.amax(dim=0).numpy()
        offset, span = _scales(scaling.kind, rows, low, high)
        floor = find_floors(rows) if scaling.floor else np.full(len(low), -np.inf)
        return cls(low, high, offset, span, floor, tuple(covariates), scaling, shared, window, precise)

    def warn_of_constants(self, names: Sequence[Hashable] | None) -> None:
        """Warn of columns that never move in the training windows."""
        flat = np.flatnonzero(self.low == self.high)
        if len(flat):
            shown = [repr(names[i] if names is not None else int(i)) for i in flat[:5]] + ["..."] * (len(flat) > 5)
            warnings.warn(
                f"series: {len(flat)} of {self.columns} channels are constant in the training windows ({', '.join(shown)}): "
                "nothing can be learnt about how they move.",
                stacklevel=4,
            )

    @property
    def columns(self) -> int:
        """Number of columns of a series."""
        return len(self.low)

    @property
    def channels(self) -> list[int]:
        """Columns that are forecast."""
        return np.setdiff1d(np.arange(len(self.low)), np.asarray(self.covariates, dtype=int)).tolist()

    @property
    def inputs(self) -> int:
        """How many inputs the network has."""
        views = 2 if self.scaling.kind == "adaptive" else 1
        return (1 if self.shared else len(self.channels)) * views + len(self.covariates)

    def __call__(self, rows: Tensor) -> Encoded:
        """Encode rows (rows, columns) in the data's own units; a running level begins with the first of them."""
        channels, covariates, clip = self.channels, list(self.covariates), self.scaling.clip
        seen = rows.clamp(torch.from_numpy(self.low), torch.from_numpy(self.high)) if clip else rows
        scaled, seen = ((r - torch.from_numpy(self.offset)) / torch.from_numpy(self.span) for r in (rows, seen))
        lagged, parts = scaled[:, channels], [seen[:, channels]]
        level = base = torch.zeros(1, dtype=rows.dtype).expand_as(lagged)
        if self.scaling.kind in ("adaptive", "window"):
            level = moving_mean(lagged, self.window)
            relative = (lagged - level).clamp(-LIMIT, LIMIT) if clip else lagged - level
            if self.scaling.kind == "window":
                parts, base = [relative], level
            else:
                parts.append(relative)
        if self.shared:
            each = [p[None] for p in parts] + [seen[:, [c]].T[:, :, None].expand(-1, -1, len(channels)) for c in covariates]
        else:
            each = [p.T[:, :, None] for p in parts] + [seen[:, covariates].T[:, :, None]]
        dtype = torch.float64 if self.precise else torch.float32
        return Encoded(torch.cat(each).to(dtype).contiguous(), *(v.to(dtype) for v in (lagged, level, base)))

    def decode(self, values: Tensor) -> np.ndarray:
        """Bring scaled values (..., channels) back to the data's own units."""
        channels = self.channels
        return values.double().cpu().numpy() * self.span[channels] + self.offset[channels]

    def forecast(self, values: Tensor) -> np.ndarray:
        """Bring forecasts (..., channels) to the data's own units, and none below its floor."""
        return np.maximum(self.decode(values), self.floor[self.channels])


def standard_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and deviation, from rows (rows, channels).

    A channel that hardly moved would be magnified without bound once it does: its deviation counts as a tenth of the usual
    one at least. One that rested is taken to move like the others.
    """
    deviation = rows.std(dim=0, correction=0)
    moving = deviation[deviation > 0]
    usual = moving.median() if len(moving) else torch.ones_like(deviation[0])
    return rows.mean(dim=0), torch.where(deviation > 0, torch.maximum(deviation, 0.1 * usual), usual)


def _scales(kind: str, rows: Tensor, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each column's offset and span, from training rows (rows, columns) and their range."""
    if kind in ("standard", "adaptive", "window"):
        mean, span = standard_scales(rows)
        return mean.numpy(), span.numpy()
    if kind == "channel":
        width = high - low
        return low.copy(), np.where(width > 0, width, 1.0)
    return np.zeros_like(low), np.ones_like(low)


def find_columns(covariates: Sequence[Hashable], names: Sequence[Hashable] | None, columns: int) -> list[int]:
    """Return the numbers of columns that are given by name or number.

    Examples
    --------
    >>> find_columns(["noon"], ["wind", "noon"], 2)
    [1]
    """
    if isinstance(covariates, str) or not isinstance(covariates, Iterable):
        raise TypeError(f"covariates must be a sequence of columns, such as ['hour'], got {covariates!r}.")
    found = []
    for c in covariates:
        number = list(names).index(c) if names is not None and c in names else c
        if not isinstance(number, (int, np.integer)) or not 0 <= number < columns:
            known = f"the columns are {names!r}" if names is not None else f"there are {columns} columns"
            raise ValueError(f"covariates: {c!r} is not a column of the series; {known}.")
        found.append(int(number))
    if len(set(found)) < len(found) or len(found) == columns:
        raise ValueError(f"covariates: must name different columns, and leave one to forecast, got {covariates!r}.")
    return sorted(found)


def find_floors(rows: Tensor, share: float = 0.01) -> np.ndarray:
    """Return each column's least value, where a part `share` of the rows (rows, columns) has it; else minus infinity.

    Power, counts and rain rest at zero again and again, and never go below.

    Examples
    --------
    >>> find_floors(torch.tensor([[0.0, 1.0], [3.0, 2.0], [0.0, 3.0]]), share=0.5).tolist()
    [0.0, -inf]
    """
    low = rows.amin(dim=0)
    often = (rows == low).double().mean(dim=0) >= share
    return torch.where(often & (low < rows.amax(dim=0)), low, -torch.inf).numpy()


def moving_mean(rows: Tensor, window: int) -> Tensor:
    """Return the mean of each row (rows, channels) and those before it, `window` in all, or as many as there are.

    Examples
    --------
    >>> moving_mean(torch.tensor([[1.0], [3.0], [5.0]]), 2).flatten().tolist()
    [1.0, 2.0, 4.0]
    """
    sums = torch.nn.functional.pad(rows.double().cumsum(dim=0), (0, 0, 1, 0))
    last = torch.arange(1, len(rows) + 1)
    first = (last - window).clamp_min(0)
    return ((sums[last] - sums[first]) / (last - first)[:, None]).to(rows.dtype)
