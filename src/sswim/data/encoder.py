"""What a network sees of a series, and how its outputs come back to the data's own units."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.rows import Rows, RunsOfRows, Unread
from sswim.data.scaling import RELATIVE, Scaling
from sswim.options import warn

__all__ = [
    "ColumnStatistics",
    "Encoded",
    "SeriesEncoder",
    "find_outliers",
    "sort_by_values",
    "standard_scales",
]

# Deviations from a window's mean are limited to this many of a channel's usual deviations.
LIMIT = 5.0
# Scaled values are limited to this: their squares must not overflow in float32.
FAR = 1e12
# Rows that may tell what an outlier is, at least.
FEW = 100
# About this many rows tell what is usual.
SPREAD = 10_000
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
    ) -> Self:
        """Take range, scale and floor from the rows (rows, columns) of the training windows: the first `trained` of all rows.

        Every row has a say in what an outlier is, for a series may have moved elsewhere since; and no row lies below a floor.
        """
        runs = [every] if isinstance(every, Tensor) else every
        least, largest, mean, few = _look_through(runs, len(every))
        outliers = find_outliers(few) if scaling.trim else np.array([[-np.inf], [np.inf]]).repeat(len(least), axis=1)
        rows = ColumnStatistics(_trimmed(runs, trained, torch.from_numpy(outliers)))
        low, high = rows.low.numpy(), rows.high.numpy()
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
            moving = sort_by_values(runs, moving, mean, np.maximum(largest - mean, mean - least))
        seen = tuple(covariates), scaling, shared, window, precise, tuple(known), tuple(resting), tuple(moving)
        return cls(low, high, outliers, offset, span, floor, *seen)

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
        least, _, _, few = _look_through([every] if isinstance(every, Tensor) else every, len(every))
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


class ColumnStatistics:
    """Range, mean and deviation of columns, and the part of the rows that have the least value, from runs of rows."""

    def __init__(self, runs: Iterable[Tensor]) -> None:
        self.count = 0
        for rows in runs:
            n, low, mean = len(rows), rows.amin(dim=0), rows.mean(dim=0)
            found = low, rows.amax(dim=0), mean, rows.std(dim=0, correction=0), (rows == low).double().sum(dim=0)
            if not self.count:
                self.low, self.high, self.mean, self.deviation, self._lowest = found
            else:
                self._merge(n / (self.count + n), *found)
            self.count += n

    def _merge(self, part: float, low: Tensor, high: Tensor, mean: Tensor, deviation: Tensor, lowest: Tensor) -> None:
        """Add the statistics of further rows, which make up a `part` of all then."""
        self._lowest = torch.where(self.low <= low, self._lowest, 0) + torch.where(low <= self.low, lowest, 0)
        self.low, self.high, apart = torch.minimum(self.low, low), torch.maximum(self.high, high), mean - self.mean
        square = (1 - part) * self.deviation**2 + part * deviation**2 + part * (1 - part) * apart**2
        self.mean, self.deviation = self.mean + part * apart, square.sqrt()

    def scales(self) -> tuple[Tensor, Tensor]:
        """Return each column's mean and a deviation to divide by.

        A channel that hardly moved would be magnified without bound once it does: its deviation counts as a tenth of the
        usual one at least. One that rested is taken to move like the others.
        """
        moving = self.deviation[self.deviation > 0]
        usual = moving.median() if len(moving) else torch.ones_like(self.deviation[0])
        return self.mean, torch.where(self.deviation > 0, torch.maximum(self.deviation, 0.1 * usual), usual)

    def floors(self, share: float = 0.01) -> np.ndarray:
        """Return each column's least value, where a part `share` of the rows has it; else minus infinity.

        Power, counts and rain rest at zero again and again, and never go below.

        Examples
        --------
        >>> ColumnStatistics([torch.tensor([[0.0, 1.0], [3.0, 2.0], [0.0, 3.0]])]).floors(share=0.5).tolist()
        [0.0, -inf]
        """
        often = self._lowest / self.count >= share
        return torch.where(often & (self.low < self.high), self.low, -torch.inf).numpy()


def standard_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and deviation, from rows (rows, channels), see `ColumnStatistics.scales`."""
    return ColumnStatistics([rows]).scales()


def _scales(kind: str, rows: ColumnStatistics) -> tuple[np.ndarray, np.ndarray]:
    """Return each column's offset and span, from training rows (rows, columns)."""
    if kind in ("standard", "adaptive", "window"):
        mean, span = rows.scales()
        return mean.numpy(), span.numpy()
    low, width = rows.low.numpy(), (rows.high - rows.low).numpy()
    if kind == "channel":
        return low.copy(), np.where(width > 0, width, 1.0)
    return np.zeros_like(low), np.ones_like(low)


def _look_through(runs: Iterable[Tensor], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Tensor]:
    """Return the least and largest value and the mean of each column, and about 10,000 of `count` rows, evenly spread."""
    step, done, few, low, high, mean = max(1, count // SPREAD), 0, [], [], [], np.zeros(())
    for rows in runs:
        few.append(rows[-done % step :: step].clone())
        low.append(rows.amin(dim=0).numpy())
        high.append(rows.amax(dim=0).numpy())
        here, done = _columns(rows).mean(axis=1), done + len(rows)
        mean = here if done == len(rows) else mean + len(rows) / done * (here - mean)
    return np.min(low, axis=0), np.max(high, axis=0), mean, torch.cat(few)


def _trimmed(runs: Iterable[Tensor], count: int, bounds: Tensor) -> Iterator[Tensor]:
    """Yield the first `count` of all rows, brought back to `bounds` (2, columns)."""
    for rows in runs:
        if count > 0:
            yield rows[:count].clamp(*bounds)
        count -= len(rows)


def sort_by_values(runs: Iterable[Tensor], columns: Sequence[int], mean: np.ndarray, reach: np.ndarray) -> list[int]:
    """Return some columns of runs of rows in an order that depends on their values alone, not on their units or places.

    `mean` holds the mean of every column, and `reach` the largest deviation from it.
    """
    random, places = np.random.default_rng(0), dict.fromkeys(columns, 0.0)
    for rows in runs:
        drawn, seen = random.standard_normal(len(rows)), _columns(rows)
        for c in columns:
            places[c] += drawn @ ((seen[c] - mean[c]) / max(reach[c], 1e-300))
    return sorted(columns, key=places.__getitem__)


def _columns(rows: Tensor) -> np.ndarray:
    """Return the columns (columns, rows), each in one piece of memory: rounding is the same then, whatever its place."""
    return rows.T.double().contiguous().numpy()


def find_outliers(rows: Tensor, reach: float = 2.0) -> np.ndarray:
    """Return bounds (2, columns): the usual range of rows (rows, columns), extended by `reach` times its width on either side.

    The usual range holds all but one in a hundred rows at either end. A column that rests all that time has no bounds.

    Examples
    --------
    >>> rows = torch.arange(2000.0)[:, None] % 10
    >>> rows[7] = -9999.0
    >>> find_outliers(rows).flatten().tolist()
    [-18.0, 27.0]
    """
    few = rows[:: max(1, len(rows) // SPREAD)].double().numpy()
    low, high = np.quantile(few, [0.01, 0.99], axis=0)
    width = np.where(high > low, reach * (high - low), np.inf)
    return np.stack([low - width, high + width])
