"""Filters as NIR has them: a Conv2d, neurons at every place, and a SumPool2d over regions; or why they have no such form.

NIR has no sum over regions along one axis, so channels along one axis become maps of height 1. Its convolutions pad both
sides alike, and nir 1.0.8 takes every filter for square when it checks types. So filters get rows of zeros where they are not
square, and in front where their length is even and they reach over the edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sswim.export.spatial import Cuts, Sliding, sliding
from sswim.network.grid import Convolution, Grid, region_starts, split_layout

if TYPE_CHECKING:
    from nir import NIRNode

__all__ = ["Kernels", "Pooling", "check_filters", "convolution_of", "kernels_of", "layout_of", "poolings_of"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Kernels:
    """The weights of filters, and where they look.

    Attributes
    ----------
    weights : array of shape (filters, maps, rows, columns)
    stride, padding, space : (int, int)
        Distance of places, zeros on each side, and how the channels of a map are laid out.
    """

    weights: np.ndarray
    stride: Pair
    padding: Pair
    space: Pair


@dataclass(frozen=True)
class Pooling:
    """Sums over regions of one size.

    Regions of sswim may be spaced unevenly, those of a SumPool2d may not. Its stride is the greatest one that meets all of
    them. Then some of its outputs may be no region: nothing reads these.

    Attributes
    ----------
    kernel, stride, shape : (int, int)
        Of the SumPool2d, and how its outputs are laid out.
    at : array of shape (regions,)
        Which output each region is.
    """

    kernel: Pair
    stride: Pair
    shape: Pair
    at: np.ndarray

    @property
    def even(self) -> bool:
        """Whether its outputs are the regions, in their order."""
        return np.array_equal(self.at, np.arange(math.prod(self.shape)))


def _two(values: Sequence[int], one: int = 1) -> Pair:
    """Return a number for each of two axes; one axis becomes the second."""
    first, second = (one, *values)[-2:]
    return int(first), int(second)


def kernels_of(grid: Grid, weights: np.ndarray) -> Kernels:
    """Return weights (filters, senders) as those of a Conv2d."""
    size, stride = _two(grid.size), grid.shape.stride
    w = weights.reshape(len(weights), grid.maps, *size)
    if grid.shape.padding:
        w = np.pad(w, [(0, 0), (0, 0), *((int(n % 2 == 0), 0) for n in size)])
    longest = max(w.shape[2:])
    more = [(longest - n) // 2 for n in w.shape[2:]]
    w = np.pad(w, [(0, 0), (0, 0), *((n, n) for n in more)])
    return Kernels(w, (stride, stride), _two([longest // 2] * 2 if grid.shape.padding else more), _two(grid.space))


def poolings_of(grid: Grid) -> list[Pooling]:
    """Return the sums over regions of each size."""
    found = []
    for pool in grid.pools:
        along = [region_starts(length, pool, grid.shape.overlap) for length in grid.across]
        (high, rows), (wide, columns) = [(1, (0,)), *along][-2:]
        down, right = (math.gcd(*np.diff(starts).tolist()) or width for width, starts in ((high, rows), (wide, columns)))
        shape = rows[-1] // down + 1, columns[-1] // right + 1
        at = np.add.outer(np.array(rows) // down * shape[1], np.array(columns) // right).ravel()
        found.append(Pooling((high, wide), (down, right), shape, at))
    return found


def check_filters(grids: Sequence[Grid | None]) -> None:
    """Refuse filters that NIR has no form for."""
    for number, grid in enumerate(grids):
        if grid is None:
            continue
        name, shape = f"This network cannot be exported exactly. layers[{number}]", grid.shape
        size = _two(grid.size)
        if not shape.padding and (size[0] - size[1]) % 2:
            raise ValueError(
                f"{name}: filters of {' x '.join(map(str, size))} without padding cannot be made square, as nir needs them. "
                "Use padding=True, or an odd size."
            )
        after = grids[number + 1] if number + 1 < len(grids) else None
        if after is not None and not poolings_of(grid)[0].even:
            pools = [p for p in range(1, min(grid.across) + 1) if _evenly(grid, p)]
            nearest = sorted(pools, key=lambda p, pool=grid.pools[0]: abs(p - pool))[:3]  # type: ignore[misc]
            _, starts = region_starts(grid.across[-1], grid.pools[0], shape.overlap)
            raise ValueError(
                f"{name}: its regions begin at {', '.join(map(str, starts))}. Another Convolution reads them, so they must be "
                f"spaced evenly, as those of a SumPool2d are. Use another pool, such as {' or '.join(map(str, nearest))}, or "
                "another overlap."
            )


def _evenly(grid: Grid, pool: int) -> bool:
    """Return whether regions would be spaced evenly if there were `pool` of them along each axis."""
    return poolings_of(Grid(grid.shape.replace(pool=pool), grid.maps, grid.space))[0].even


# The way back.


def layout_of(shape: tuple[int, ...], given: Sequence[int] | None) -> tuple[int, ...]:
    """Return how the inputs of a network are laid out whose filters read maps of this shape; `given` is preferred."""
    maps, *axes = shape
    space = tuple(axes[1:] if len(axes) == 2 and axes[0] == 1 else axes)
    usual = space if maps == 1 else (maps, *([1] * (2 - len(space))), *space)
    layout = usual if given is None else tuple(int(n) for n in given)
    try:
        fits = split_layout(layout) == (maps, space)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"graph: its filters read {maps} maps of {' x '.join(map(str, space))}, laid out as {layout}: sswim takes at most "
            "as many maps as columns for a first layer."
        )
    return layout


def convolution_of(conv: NIRNode, pool: NIRNode | None, space: tuple[int, ...]) -> tuple[Convolution, np.ndarray]:
    """Return what a Conv1d or Conv2d over maps laid out as `space`, and the sums over its regions, are in sswim.

    Returns
    -------
    Convolution
    array of shape (filters, senders)
        The weights.
    """
    slide, W = sliding(conv), np.asarray(conv.weight, dtype=float)
    if np.any(conv.bias) or int(conv.groups) != 1 or set(slide.dilation) != {1}:
        raise ValueError("filters must have biases of 0, one group, and no dilation.")
    kernel, stride, padding, across = slide.kernel, slide.stride, slide.padding, slide.places(space)
    if len(space) == 2 and space[0] == across[0] == 1 and padding[0][0] < kernel[0]:  # one axis, which one row sees
        W, kernel, stride, padding, across = W[:, :, padding[0][0]], kernel[1:], stride[1:], padding[1:], across[1:]
    W, padding = _without_edges(W, padding)
    kernel = W.shape[2:]
    full = all(both == (k // 2, k // 2) and k % 2 for k, both in zip(kernel, padding, strict=True))
    if len(set(stride)) > 1 or not (full or not np.any(padding)):
        raise ValueError(
            f"filters of {' x '.join(map(str, kernel))} must have one stride for all axes, and no padding or half of their "
            f"odd length, got stride {stride} and padding {tuple(p for p, _ in padding)}."
        )
    count, overlap = _regions(None if pool is None else sliding(pool), across)
    shape = Convolution(
        len(W), size=kernel, pool=count, stride=stride[0], padding=full and bool(np.any(padding)), overlap=overlap
    )
    return shape, W.reshape(len(W), -1)


def _without_edges(weights: np.ndarray, padding: tuple[Pair, ...]) -> tuple[np.ndarray, tuple[Pair, ...]]:
    """Return filters without the zeros at both edges that made them square, if these are all that reaches over the edge."""
    ends = zip(weights.shape[2:], padding, strict=True)
    cuts: Cuts = (..., *(slice(before, n - after) for n, (before, after) in ends))
    inner = weights[cuts]
    if not inner.size or np.count_nonzero(inner) != np.count_nonzero(weights):
        return weights, padding
    return inner, ((0, 0),) * len(padding)


def _regions(pool: Sliding | None, across: tuple[int, ...]) -> tuple[int, float]:
    """Return how many regions there are along each axis, and their overlap."""
    wanted = [(1, tuple(range(n))) for n in across]
    if pool is not None:
        every = zip(pool.kernel, pool.stride, pool.places(_two(across)), strict=True)
        wanted = [(k, tuple(s * i for i in range(n))) for k, s, n in every][-len(across) :]
    tried = [Convolution.overlap, *(width / starts[1] if len(starts) > 1 else 1.0 for width, starts in wanted)]
    count = len(wanted[0][1])
    if pool is None or not np.any(pool.padding):
        for overlap in tried:
            if overlap >= 1 and [region_starts(n, count, overlap) for n in across] == wanted:
                return count, overlap
    raise ValueError(
        "regions must cover all places without padding, be at least as long as their stride, and be as many along each axis; "
        f"got {[starts for _, starts in wanted]} of lengths {[width for width, _ in wanted]} on {across} places."
    )
