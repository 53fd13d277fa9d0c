"""What a network sees of a series, and how its outputs come back to the data's own units."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.options import Options, check_choice, warn

__all__ = [
    "SCALINGS",
    "Encoded",
    "Scaling",
    "SeriesEncoder",
    "find_columns",
    "find_floors",
    "find_outliers",
    "find_resting",
    "sort_by_values",
    "standard_scales",
]

# Deviations from a window's mean are limited to this many of a channel's usual deviations.
LIMIT = 5.0
# Scaled values are limited to this: their squares must not overflow in float32.
FAR = 1e12
# Rows that may tell what an outlier is, at least.
FEW = 100


@dataclass(frozen=True)
class Scaling(Options):
    """How channels are scaled before they enter the network, from the rows of the training windows.

    Parameters
    ----------
    kind : {"adaptive", "window", "standard", "channel", "none"}
        ``"channel"`` brings each channel to [0, 1] by its range in the training windows, ``"standard"`` to mean 0 and deviation
        1 there. ``"adaptive"`` also shows the sampled neurons each channel relative to the window's mean, and forecasts are
        relative to that mean. With ``"window"`` the network sees nothing else, so that forecasts move along with the series.
        ``"none"`` leaves the data as it is.
    clip : bool
        Whether input beyond a channel's training range is brought back to it before it enters the network (forecasts are
        not limited). Otherwise a channel that leaves its range drives every neuron that listens to it out of its own.
    floor : bool
        Whether forecasts stay above a channel's least value where that is reached again and again, as zero is by power, counts
        and rain. A window that goes below it has no floor but its own least value.
    trim : bool
        Whether rows of the fit that lie far outside of a channel's usual range are brought back to bounds around it.
    """

    kind: str = "adaptive"
    clip: bool = True
    floor: bool = True
    trim: bool = True

    def __post_init__(self) -> None:
        check_choice("scaling", self.kind, KINDS)


KINDS = ("adaptive", "window", "standard", "channel", "none")
RELATIVE = ("adaptive", "window")
SCALINGS: dict[str, Scaling] = {kind: Scaling(kind) for kind in KINDS}


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
        rows: Tensor,
        every: Tensor,
        scaling: Scaling,
        *,
        covariates: Sequence[int],
        known: Sequence[int] = (),
        shared: bool,
        window: int,
        precise: bool,
    ) -> Self:
        """Take range, scale and floor from the rows (rows, columns) of the training windows.

        Every row has a say in what an outlier is, for a series may have moved elsewhere since; and no row lies below a floor.
        """
        outliers = find_outliers(every) if scaling.trim else np.array([[-np.inf], [np.inf]]).repeat(rows.shape[1], axis=1)
        rows = rows.clamp(*torch.from_numpy(outliers))
        low, high = rows.amin(dim=0).numpy(), rows.amax(dim=0).numpy()
        most = max(high.max(), -low.min())
        if scaling.kind == "none" and most > FAR:
            raise ValueError(f"scaling: 'none' needs series between -{FAR:g} and {FAR:g}, got {most:g}. Use another scaling.")
        offset, span = _scales(scaling.kind, rows, low, high)
        floor = find_floors(rows) if scaling.floor else np.full(len(low), -np.inf)
        floor = np.where(every.amin(dim=0).numpy() < floor, -np.inf, floor)
        resting = find_resting(every, covariates)
        moving = [c for c in range(len(low)) if c not in {*covariates, *resting}]
        moving = sort_by_values(every, moving) if shared else moving
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

    def moved(self, rows: np.ndarray) -> SeriesEncoder:
        """Return the encoder after new rows (rows, columns): what is an outlier, and below which no forecast goes.

        What the network sees is scaled as before. Bounds of outliers only widen, for the series may have moved elsewhere.
        """
        floor = np.where(rows.min(axis=0) < self.floor, -np.inf, self.floor) if len(rows) else self.floor
        outliers = self.outliers
        if self.scaling.trim and len(rows) >= FEW:
            new = find_outliers(torch.from_numpy(rows))
            new = np.where(np.isinf(new), outliers, new)
            outliers = np.stack([np.minimum(outliers[0], new[0]), np.maximum(outliers[1], new[1])])
        return replace(self, floor=floor, outliers=outliers)

    def joined(self, other: SeriesEncoder) -> SeriesEncoder:
        """Return the encoder after the rows that another one, scaled alike, has seen too."""
        (low, high), (other_low, other_high) = self.outliers, other.outliers
        outliers = np.stack([np.minimum(low, other_low), np.maximum(high, other_high)])
        return replace(self, floor=np.minimum(self.floor, other.floor), outliers=outliers)

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


def find_columns(
    wanted: Sequence[Hashable], names: Sequence[Hashable] | None, columns: int, argument: str = "covariates"
) -> list[int]:
    """Return the numbers of columns that are given by name or number, in the order given.

    Examples
    --------
    >>> find_columns(["noon"], ["wind", "noon"], 2)
    [1]
    """
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise TypeError(f"{argument} must be a sequence of columns, such as ['hour'], got {wanted!r}.")
    found = []
    for c in wanted:
        number = list(names).index(c) if names is not None and c in names else c
        if not isinstance(number, (int, np.integer)) or not 0 <= number < columns:
            there = f"the columns are {names!r}" if names is not None else f"there are {columns} columns"
            raise ValueError(f"{argument}: {c!r} is not a column of the series; {there}.")
        found.append(int(number))
    if len(set(found)) < len(found) or len(found) == columns:
        raise ValueError(f"{argument}: must name different columns, and leave one to forecast, got {wanted!r}.")
    return found


def find_resting(rows: Tensor, covariates: Sequence[int]) -> list[int]:
    """Return the columns of (rows, columns) that never move, without covariates; none if there is no other column left.

    Examples
    --------
    >>> find_resting(torch.tensor([[1.0, 2.0], [1.0, 3.0]]), []), find_resting(torch.ones(5, 2), [])
    ([0], [])
    """
    still = (rows.amin(dim=0) == rows.amax(dim=0)).tolist() if len(rows) else []
    channels = [c for c in range(rows.shape[1]) if c not in covariates]
    found = [c for c in channels if still and still[c]]
    return found if len(found) < len(channels) else []


def sort_by_values(rows: Tensor, columns: Sequence[int]) -> list[int]:
    """Return some columns of (rows, columns) in an order that depends on their values alone, not on their units or places.

    Examples
    --------
    >>> rows = torch.tensor([[1.0, 5.0], [2.0, 3.0], [4.0, 4.0]])
    >>> rows[:, sort_by_values(rows, [0, 1])].equal(rows.flip(1)[:, sort_by_values(rows.flip(1), [0, 1])])
    True
    """
    random = np.random.default_rng(0).standard_normal(len(rows))

    def place(column: int) -> float:
        values = rows[:, column].double().numpy().copy()  # side by side, so that rounding is the same in every place
        values -= values.mean()
        return float(random @ (values / max(np.abs(values).max(), 1e-300)))

    return sorted(columns, key=place)


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
    few = rows[:: max(1, len(rows) // 10_000)].double().numpy()
    low, high = np.quantile(few, [0.01, 0.99], axis=0)
    width = np.where(high > low, reach * (high - low), np.inf)
    return np.stack([low - width, high + width])
