"""What a network sees of a series, and how its outputs come back to the data's own units."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.calendar import Calendar
from sswim.data.rows import Rows, RunsOfRows, Unread
from sswim.data.scaling import RELATIVE, Scaling
from sswim.data.statistics import Adder, BlockStatistics, find_outliers, look_through, look_trimmed
from sswim.options import warn

__all__ = ["Encoded", "SeriesEncoder"]

# Deviations from a window's mean are limited to this many of a channel's usual deviations.
LIMIT = 5.0
# Scaled values are limited to this: their squares must not overflow in float32.
FAR = 1e12
# Rows that may tell what an outlier is, at least.
FEW = 100
# Encoded rows may take an eighth of the memory.
ENCODED = 8


@dataclass(frozen=True)
class Encoded:
    """A segment of a series, scaled.

    Attributes
    ----------
    rows : Tensor of shape (rows, channels), float64
        The channels: what is to be forecast, and what a readout with lags sees.
    seen : Tensor of shape (rows, channels)
        The channels as the hidden layers see them: brought back to their training range, if the scaling says so.
    covariates : Tensor of shape (rows, covariates)
    """

    rows: Tensor
    seen: Tensor
    covariates: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, first: int, last: int) -> Encoded:
        """Return a copy of the rows ``[first, last)``."""
        return Encoded(*(v[first:last].clone() for v in (self.rows, self.seen, self.covariates)))


@dataclass(frozen=True)
class SeriesEncoder:
    """Scales rows, turns them into a network's inputs, and turns its outputs into forecasts.

    Attributes
    ----------
    low, high : array of shape (columns,)
        Range in the training windows, without outliers.
    outliers : array of shape (2, columns)
        Bounds far beyond the usual range. Rows of the fit are brought back to them: one sensor's error code would outweigh
        all other rows.
    offset, span : array of shape (columns,)
        What is subtracted, and what is divided by then.
    floor : array of shape (columns,)
        Below which no forecast goes, unless its window does; minus infinity where there is no such value.
    covariates : tuple of int
        Columns that are seen but not forecast.
    scaling : Scaling
    shared : bool
        Whether channels share the network, each with inputs of its own.
    window : int
    precise : bool
        Whether the network computes in float64.
    known : tuple of int
        Covariates that are known ahead, in the order in which arrays of them are given.
    resting : tuple of int
        Columns that never move in the rows of the fit. They stay where they are, and the network does not see them: what it
        learns of the others does not depend on them.
    moving : tuple of int
        Columns that the network forecasts, in its own order. Channels that share a network have an order that their values
        tell, so that it does not matter in which order they are given.
    calendar : Calendar or None
        What the output knows of the time of day, week and year.
    """

    low: np.ndarray
    high: np.ndarray
    outliers: np.ndarray
    offset: np.ndarray
    span: np.ndarray
    floor: np.ndarray
    covariates: tuple[int, ...]
    scaling: Scaling
    shared: bool
    window: int
    precise: bool
    known: tuple[int, ...] = ()
    resting: tuple[int, ...] = ()
    moving: tuple[int, ...] = ()
    calendar: Calendar | None = field(default=None, metadata={"later": True})

    @classmethod
    def fit(
        cls,
        every: Tensor | RunsOfRows,
        trained: int,
        scaling: Scaling,
        *,
        covariates: Sequence[int],
        known: Sequence[int] = (),
        shared: bool,
        window: int,
        precise: bool,
        calendar: Calendar | None = None,
        add: Adder | None = None,
    ) -> Self:
        """Take range, scale and floor from the rows (rows, columns) of the training windows: the first `trained` of all rows.

        Every row has a say in what an outlier is, for a series may have moved elsewhere since; and no row lies below a floor.
        `add` computes statistics of stored rows elsewhere, see `look_through`.
        """
        blocks, found = look_through(every, trained, draw=shared, add=add)
        whole = found.merged()
        least, largest = whole.low[0].numpy(), whole.high[0].numpy()
        outliers = find_outliers(found.few) if scaling.trim else np.array([[-np.inf], [np.inf]]).repeat(len(least), axis=1)
        count = sum(last <= trained for _, last, _ in blocks)
        rows = look_trimmed(every, blocks[:count], found.first(count), outliers, add).merged()
        low, high = rows.low[0].numpy(), rows.high[0].numpy()
        most = max(high.max(), -low.min())
        if scaling.kind == "none" and most > FAR:
            raise ValueError(f"scaling: 'none' needs series between -{FAR:g} and {FAR:g}, got {most:g}. Use another scaling.")
        offset, span = _scales(scaling.kind, rows)
        floor = rows.floors() if scaling.floor else np.full(len(low), -np.inf)
        floor = np.where(least < floor, -np.inf, floor)
        channels = [c for c in range(len(low)) if c not in covariates]
        moving = [c for c in channels if least[c] < largest[c]] or channels
        resting = [c for c in channels if c not in moving]
        if shared and len(moving) > 1:
            moving = whole.sort(moving)
        seen = tuple(covariates), scaling, shared, window, precise, tuple(known), tuple(resting), tuple(moving)
        return cls(low, high, outliers, offset, span, floor, *seen, calendar)

    def warn_of_constants(self, names: Sequence[Hashable] | None) -> None:
        """Warn of columns that never move in the training windows."""
        flat = np.flatnonzero(self.low == self.high)
        if len(flat):
            shown = [repr(names[i] if names is not None else int(i)) for i in flat[:5]] + ["..."] * (len(flat) > 5)
            warn(
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
        return (1 if self.shared else len(self.moving)) * views + len(self.covariates)

    @property
    def ahead(self) -> list[int]:
        """Where those that are known ahead lie among the covariates."""
        return [self.covariates.index(column) for column in self.known]

    @property
    def relative(self) -> bool:
        """Whether forecasts are relative to the window's mean."""
        return self.scaling.kind in RELATIVE

    def without_outliers(self, rows: Tensor) -> Tensor:
        """Bring rows (rows, columns) of the fit back to their usual range, generously."""
        return rows.clamp(*torch.from_numpy(self.outliers))

    def moved(self, every: Tensor | RunsOfRows) -> SeriesEncoder:
        """Return the encoder after new rows (rows, columns): what is an outlier, and below which no forecast goes.

        What the network sees is scaled as before. Bounds of outliers only widen, for the series may have moved elsewhere.
        """
        if not len(every):
            return self
        _, found = look_through(every, len(every), draw=False)
        least, few = found.low.amin(dim=0).numpy(), found.few
        floor, outliers = np.where(least < self.floor, -np.inf, self.floor), self.outliers
        if self.scaling.trim and len(every) >= FEW:
            new = find_outliers(few)
            new = np.where(np.isinf(new), outliers, new)
            outliers = np.stack([np.minimum(outliers[0], new[0]), np.maximum(outliers[1], new[1])])
        return replace(self, floor=floor, outliers=outliers)

    def joined(self, other: SeriesEncoder) -> SeriesEncoder:
        """Return the encoder after the rows that another one, scaled alike, has seen too."""
        (low, high), (other_low, other_high) = self.outliers, other.outliers
        outliers = np.stack([np.minimum(low, other_low), np.maximum(high, other_high)])
        return replace(self, floor=np.minimum(self.floor, other.floor), outliers=outliers)

    def segments(self, rows: Sequence[Rows], memory: int, *, trim: bool = False) -> list[Encoded] | list[Unread]:
        """Return segments of a series (rows, columns), encoded; not read yet if that would take much of `memory`, in bytes.

        With `trim`, rows are those of the fit, and outliers are brought back to the usual range.
        """
        if sum(map(len, rows)) * self.columns * (16 if self.precise else 12) > memory // ENCODED:
            return [Unread(r, trim, max(1, memory // ENCODED // (32 * self.columns))) for r in rows]
        return [self.read([Unread(r, trim)]) for r in rows]

    def read(self, segments: Sequence[Unread]) -> Encoded:
        """Read some segments, and return them encoded, as one."""
        parts = [torch.from_numpy(segment.rows[:]) for segment in segments]
        rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self(self.without_outliers(rows) if segments[0].trim else rows)

    def __call__(self, rows: Tensor) -> Encoded:
        """Encode rows (rows, columns) in the data's own units."""
        moving, covariates = list(self.moving), list(self.covariates)
        clipped = rows.clamp(torch.from_numpy(self.low), torch.from_numpy(self.high)) if self.scaling.clip else rows
        offset, span = torch.from_numpy(self.offset), torch.from_numpy(self.span)
        scaled, seen = (((r - offset) / span).clamp(-FAR, FAR) for r in (rows, clipped))
        dtype = torch.float64 if self.precise else torch.float32
        return Encoded(scaled[:, moving], seen[:, moving].to(dtype), seen[:, covariates].to(dtype))

    def views(self, seen: Tensor, rows: Tensor) -> Tensor:
        """Return what the hidden layers see of windows (..., window), scaled and not clipped: (views, ..., window)."""
        if not self.relative:
            return seen[None]
        relative = (rows - rows.mean(dim=-1, keepdim=True)).to(seen.dtype)
        relative = relative.clamp(-LIMIT, LIMIT) if self.scaling.clip else relative
        return relative[None] if self.scaling.kind == "window" else torch.stack([seen, relative])

    def decode(self, values: Tensor) -> np.ndarray:
        """Bring scaled values (..., moving columns) back to the data's own units."""
        moving = list(self.moving)
        return values.double().cpu().numpy() * self.span[moving] + self.offset[moving]

    def forecast(self, values: Tensor, windows: Tensor) -> np.ndarray:
        """Return forecasts (batch, horizon, channels) in the data's own units, none below its floor.

        Parameters
        ----------
        values : Tensor of shape (batch, horizon, moving columns)
            The network's.
        windows : Tensor of shape (batch, window, channels)
            What they follow on, in the data's own units. A column that rests stays where it is.
        """
        found = self.spread(self.decode(values), windows[:, -1:].numpy())
        return np.maximum(found, self.floors(windows)[:, None])

    def floors(self, windows: Tensor) -> np.ndarray:
        """Return what forecasts from windows (batch, window, channels) in their units stay above: (batch, channels)."""
        return np.minimum(self.floor[self.channels], windows.amin(dim=1).double().numpy())

    def spread(self, values: np.ndarray, others: npt.ArrayLike = 0.0) -> np.ndarray:
        """Return values (..., channels) from those of the moving columns, (..., moving columns), and those of `others`."""
        found = np.empty((*values.shape[:-1], len(self.channels)))
        found[...] = others
        found[..., np.searchsorted(self.channels, self.moving)] = values
        return found


def _scales(kind: str, rows: BlockStatistics) -> tuple[np.ndarray, np.ndarray]:
    """Return each column's offset and span, from statistics of training rows, merged."""
    if kind in ("standard", "adaptive", "window"):
        mean, span = rows.scales()
        return mean.numpy(), span.numpy()
    low, width = rows.low[0].numpy(), (rows.high - rows.low)[0].numpy()
    if kind == "channel":
        return low.copy(), np.where(width > 0, width, 1.0)
    return np.zeros_like(low), np.ones_like(low)
