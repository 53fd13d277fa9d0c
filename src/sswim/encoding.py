"""What a network gets to see of a series, and how its outputs come back to the data's own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Encoded", "Encoder", "find_floors", "moving_mean"]

# Deviations from a running level are limited to so many of a channel's usual deviations.
LIMIT = 5.0


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
class Encoder:
    """Scales rows, and makes a network's inputs of them.

    Parameters
    ----------
    low, high : array of shape (columns,)
        Range in the training windows.
    offset, span : array of shape (columns,)
        What is subtracted, and what is divided by then.
    floor : array of shape (columns,)
        Below which no forecast goes; minus infinity where there is no such value.
    covariates : sequence of int
        Columns that are seen but not forecast.
    scaling : str
        With ``"adaptive"`` forecasts are relative to a channel's running level, the mean of its last `window` rows, and the
        network sees each channel twice: scaled, and relative to that level. With ``"window"`` it sees the latter only.
    shared : bool
        Whether channels share the network, each with inputs of its own.
    window : int
    clip : bool
        Whether what the network sees is limited to the training range.
    dtype : torch.dtype
    """

    low: np.ndarray
    high: np.ndarray
    offset: np.ndarray
    span: np.ndarray
    floor: np.ndarray
    covariates: Sequence[int]
    scaling: str
    shared: bool
    window: int
    clip: bool
    dtype: torch.dtype

    @property
    def channels(self) -> list[int]:
        """Columns that are forecast."""
        return np.setdiff1d(np.arange(len(self.low)), np.asarray(self.covariates, dtype=int)).tolist()

    @property
    def inputs(self) -> int:
        """How many inputs the network has."""
        return (1 if self.shared else len(self.channels)) * (2 if self.scaling == "adaptive" else 1) + len(self.covariates)

    def __call__(self, rows: Tensor) -> Encoded:
        """Encode rows (rows, columns) in the data's own units; a running level begins with the first of them."""
        channels, covariates = self.channels, list(self.covariates)
        seen = rows.clamp(torch.from_numpy(self.low), torch.from_numpy(self.high)) if self.clip else rows
        scaled, seen = ((r - torch.from_numpy(self.offset)) / torch.from_numpy(self.span) for r in (rows, seen))
        lagged, parts = scaled[:, channels], [seen[:, channels]]
        level = base = torch.zeros(1, dtype=rows.dtype).expand_as(lagged)
        if self.scaling in ("adaptive", "window"):
            level = moving_mean(lagged, self.window)
            relative = (lagged - level).clamp(-LIMIT, LIMIT) if self.clip else lagged - level
            if self.scaling == "window":
                parts, base = [relative], level
            else:
                parts.append(relative)
        if self.shared:
            each = [p[None] for p in parts] + [seen[:, [c]].T[:, :, None].expand(-1, -1, len(channels)) for c in covariates]
        else:
            each = [p.T[:, :, None] for p in parts] + [seen[:, covariates].T[:, :, None]]
        return Encoded(torch.cat(each).to(self.dtype).contiguous(), *(v.to(self.dtype) for v in (lagged, level, base)))

    def decode(self, values: Tensor) -> np.ndarray:
        """Bring scaled values (..., channels) back to the data's own units."""
        channels = self.channels
        return values.double().cpu().numpy() * self.span[channels] + self.offset[channels]

    def forecast(self, values: Tensor) -> np.ndarray:
        """Bring forecasts (..., channels) to the data's own units, and none below its floor."""
        return np.maximum(self.decode(values), self.floor[self.channels])


def find_columns(covariates: Sequence[Any], names: Sequence[Any] | None, columns: int) -> list[int]:
    """Return the numbers of columns that are given by name or number.

    Examples
    --------
    >>> find_columns(["noon"], ["wind", "noon"], 2)
    [1]
    """
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
