"""Places: where the filters of a convolution look, and which of them are added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from sswim.options import Options, check_integer, check_positive

__all__ = ["Convolution", "Grid", "check_hidden", "hidden_shapes", "region_starts", "split_layout", "widths_of"]


@dataclass(frozen=True)
class Convolution(Options):
    """A hidden layer of filters: each has one set of weights for all places, and its spikes are pooled over regions.

    Parameters
    ----------
    filters : int
        Number of filters.
    size : int or sequence of int, optional
        Length of a patch along each axis, in pixels or channels. Default: about half of the shortest axis, odd, at most 7.
    pool : int or sequence of int, optional
        Number of regions along each axis that spikes are added up over. Several numbers give several sizes of regions at once.
        A further `Convolution` needs one number. Default: half as many as places along the axis, at most 4.
    stride : int
        Distance between neighbouring places.
    padding : bool
        Whether patches may reach over the edge, where they see nothing: then there are as many places as channels.
    overlap : float
        Length of a region divided by the distance between regions. 1 is a partition.

    Examples
    --------
    >>> grid = Convolution(10, size=3, pool=2).over(1, (8, 8))
    >>> grid.senders, grid.places, grid.regions
    (9, 64, 4)
    """

    filters: int
    size: int | Sequence[int] | None = None
    pool: int | Sequence[int] | None = None
    stride: int = 1
    padding: bool = True
    overlap: float = 1.6

    def __post_init__(self) -> None:
        check_integer("Convolution: filters", self.filters, 1)
        for size in () if self.size is None else several(self.size):
            check_integer("Convolution: size", size, 1)
        if self.pool is not None and not several(self.pool):
            raise ValueError(f"Convolution: pool must be a number of regions, or several, got {self.pool!r}.")
        for pool in () if self.pool is None else several(self.pool):
            check_integer("Convolution: pool", pool, 1)
        check_integer("Convolution: stride", self.stride, 1)
        if not check_positive("Convolution: overlap", self.overlap) >= 1:
            raise ValueError(f"Convolution: overlap must be at least 1, got {self.overlap!r}.")

    def over(self, maps: int, space: Sequence[int]) -> Grid:
        """Return the places and regions on `maps` maps of channels that are laid out as `space`, such as (28, 28)."""
        return Grid(self, maps, tuple(space))


def several(value: object) -> tuple[int, ...]:
    """Return one or several numbers as a tuple."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)  # type: ignore[return-value]


def split_layout(layout: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return the number of maps and the axes in space of a layout of channels.

    One axis and two axes are space. Of three axes the shortest one, which must be the first or the last, numbers the maps, such
    as colours or polarities. A second of three axes that has the length 1 is none: ``(folds, 1, channels)`` are channels along
    one axis.

    Examples
    --------
    >>> split_layout((28, 28)), split_layout((32, 32, 3)), split_layout((2, 34, 34))
    ((1, (28, 28)), (3, (32, 32)), (2, (34, 34)))
    >>> split_layout((6, 1, 70))
    (6, (70,))
    """
    axes = tuple(int(n) for n in layout)
    if len(axes) < 3:
        return 1, axes
    if len(axes) == 3 and axes[1] == 1:
        return axes[0], axes[2:]
    if len(axes) > 3 or axes[1] < min(axes[0], axes[2]) or axes[0] == axes[1] == axes[2]:
        raise ValueError(
            "hidden: a Convolution takes channels laid out along 1 or 2 axes, and a short first or last axis of maps "
            f"(colours, polarities), got {axes}."
        )
    return (axes[0], axes[1:]) if axes[0] <= axes[2] else (axes[2], axes[:2])


class Grid:
    """Where the filters of a `Convolution` look, and what is added up.

    Parameters
    ----------
    shape : Convolution
    maps : int
    space : tuple of int
        How the channels of a map are laid out.
    last : bool
        Whether maps are numbered along the last axis of the layout, as colours often are.

    Attributes
    ----------
    size : tuple of int
        Length of a patch along each axis.
    pools : tuple of int
        Numbers of regions along each axis.
    pooled : tuple of int or None
        How regions are laid out; None if they have several sizes.
    """

    def __init__(self, shape: Convolution, maps: int, space: tuple[int, ...], *, last: bool = False) -> None:
        self.shape, self.maps, self.space, self._last = shape, maps, space, last
        self.size = _patch(shape, space)
        starts = [range(0, (n if shape.padding else n - s + 1), shape.stride) for n, s in zip(space, self.size, strict=True)]
        self._starts = [np.asarray(r) for r in starts]
        self.across = tuple(len(r) for r in starts)
        usual = max(1, min(4, min(self.across) // 2))
        self.pools = (usual,) if shape.pool is None else several(shape.pool)
        for pool in self.pools:
            if pool > min(self.across):
                raise ValueError(
                    f"hidden: Convolution(pool={pool}) asks for {pool} regions along an axis of {min(self.across)} places. Use "
                    "fewer regions."
                )
        self.pooled = (self.pools[0],) * len(space) if len(self.pools) == 1 else None

    @property
    def senders(self) -> int:
        """Number of channels in a patch."""
        return self.maps * math.prod(self.size)

    @property
    def channels(self) -> int:
        """Number of channels of all maps."""
        return self.maps * math.prod(self.space)

    @property
    def places(self) -> int:
        """Number of places."""
        return math.prod(self.across)

    @property
    def regions(self) -> int:
        """Number of regions, of all sizes."""
        return sum(pool ** len(self.space) for pool in self.pools)

    @property
    def smallest(self) -> int:
        """Number of places in the smallest region."""
        most = max(self.pools)
        return math.prod(region_starts(length, most, self.shape.overlap)[0] for length in self.across)

    @property
    def middle(self) -> int:
        """Number of the place in the middle."""
        return int(np.ravel_multi_index([n // 2 for n in self.across], self.across))

    def patches(self) -> Tensor:
        """Return the channels (senders, places) of the patch at each place; beyond the edge it is the number of channels."""
        numbers = np.arange(self.channels).reshape((*self.space, self.maps) if self._last else (self.maps, *self.space))
        numbers = np.moveaxis(numbers, -1, 0) if self._last else numbers
        before = [(s - 1) // 2 if self.shape.padding else 0 for s in self.size]
        at = []
        for number, (starts, size, first) in enumerate(zip(self._starts, self.size, before, strict=True)):
            along = starts[None, :] - first + np.arange(size)[:, None]  # (size, places along the axis)
            shape = [1] * (2 * len(self.size))
            shape[number], shape[len(self.size) + number] = along.shape
            at.append(along.reshape(shape))
        inside = np.ones([*self.size, *self.across], dtype=bool)
        flat = np.zeros([*self.size, *self.across], dtype=np.int64)
        for along, length in zip(at, self.space, strict=True):
            inside &= (along >= 0) & (along < length)
            flat = flat * length + along.clip(0, length - 1)
        found = numbers.reshape(self.maps, -1)[:, flat]  # (maps, *size, *across)
        found = np.where(inside, found, self.channels)
        return torch.from_numpy(found.reshape(self.senders, self.places))

    def regions_of_places(self) -> Tensor:
        """Return which places belong to which regions: (regions, places), 1 inside and 0 outside."""
        found = []
        for pool in self.pools:
            along = [_intervals(length, pool, self.shape.overlap) for length in self.across]
            for rows in product(*along):
                box = torch.ones(1)
                for inside in rows:
                    box = (box[:, None] * inside).flatten()
                found.append(box)
        return torch.stack(found)


def _patch(shape: Convolution, space: tuple[int, ...]) -> tuple[int, ...]:
    """Return the length of a patch along each axis."""
    usual = max(3, min(7, min(space) // 4 * 2 + 1))
    given = (min(usual, *space),) if shape.size is None else several(shape.size)
    size = given * len(space) if len(given) == 1 else given
    if len(size) != len(space) or any(s > n for s, n in zip(size, space, strict=False)):
        raise ValueError(
            f"hidden: Convolution(size={shape.size!r}) does not fit channels laid out as {space}. Give one size, or one along "
            "each axis, at most as long as the axis."
        )
    return size


def region_starts(length: int, count: int, overlap: float) -> tuple[int, tuple[int, ...]]:
    """Return the common length of `count` intervals that cover an axis, and where each of them begins.

    Examples
    --------
    >>> region_starts(28, 5, 1.6), region_starts(8, 4, 1.6)
    ((8, (0, 5, 10, 15, 20)), (3, (0, 2, 3, 5)))
    """
    distance = length / (count - 1 + overlap)
    width = min(length, max(1, round(overlap * distance)))
    return width, tuple(round(i * (length - width) / max(count - 1, 1)) for i in range(count))


def _intervals(length: int, count: int, overlap: float) -> Tensor:
    """Return `count` intervals of equal length that cover an axis: (count, length), 1 inside and 0 outside."""
    width, starts = region_starts(length, count, overlap)
    at, first = torch.arange(length), torch.tensor(starts)[:, None]
    return ((at >= first) & (at < first + width)).float()


def check_hidden(name: str, value: object) -> tuple[int | Convolution, ...]:
    """Return one width or `Convolution` per hidden layer."""
    given = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ()
    if not given:
        raise ValueError(f"{name} must list one width per hidden layer, such as (750,), got {value!r}.")
    return tuple(item if isinstance(item, Convolution) else check_integer(name, item, 1) for item in given)


def hidden_shapes(inputs: int, hidden: Sequence[int | Convolution], layout: Sequence[int] | None) -> list[int | Grid]:
    """Return the width of each dense layer and the grid of each convolution.

    `inputs` channels are laid out as `layout`. Default: in a row.
    """
    here: tuple[int, ...] | None = (inputs,) if layout is None else tuple(layout)
    if layout is not None and math.prod(layout) != inputs:
        raise ValueError(f"layout: {tuple(layout)} has {math.prod(layout)} channels, but there are {inputs}.")
    found: list[int | Grid] = []
    maps = 0
    for number, shape in enumerate(check_hidden("hidden", hidden), start=1):
        if not isinstance(shape, Convolution):
            found.append(shape)
            here = None
            continue
        if here is None:
            reason = "follows a dense layer, or one with regions of several sizes"
            raise ValueError(f"hidden: layer {number} is a Convolution but {reason}: its inputs have no places.")
        if number == 1:
            maps, space = split_layout(here)
            grid = Grid(shape, maps, space, last=len(here) == 3 and space == here[:2])
        else:
            grid = Grid(shape, maps, here)
        found.append(grid)
        here, maps = grid.pooled, shape.filters
    return found


def widths_of(shapes: Sequence[int | Grid]) -> list[int]:
    """Return how many spike trains each hidden layer puts out."""
    return [shape.shape.filters * shape.regions if isinstance(shape, Grid) else shape for shape in shapes]
