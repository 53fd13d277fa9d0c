"""Windows that slide over maps: what NIR's Conv1d, Conv2d and SumPool2d share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nir import NIRNode

__all__ = ["AXES", "Cuts", "Sliding", "sliding"]

# What picks a part of the last axes of an array.
Cuts = tuple[EllipsisType | slice | int, ...]
# Nodes whose windows slide, and the number of axes that they slide along.
AXES = {"Conv1d": 1, "Conv2d": 2, "SumPool2d": 2}


@dataclass(frozen=True)
class Sliding:
    """How a window slides, with one entry for each axis of space.

    Attributes
    ----------
    kernel, stride, dilation : tuple of int
        Length of the window, distance between its places, and between its own points.
    padding : tuple of (int, int)
        Zeros before and after.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    def places(self, space: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many places there are along each axis.

        Examples
        --------
        >>> Sliding((3, 3), (2, 1), (1, 1), ((1, 1), (0, 0))).places((8, 8))
        (4, 6)
        """
        every = zip(space, self.kernel, self.stride, self.dilation, self.padding, strict=True)
        return tuple((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in every)

    def views(self, x: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Yield each point of the window, and what it sees of x (..., *space) at all places, (..., *places)."""
        axes = len(self.kernel)
        places = self.places(x.shape[-axes:])
        x = np.pad(x, [*[(0, 0)] * (x.ndim - axes), *self.padding])
        for point in product(*map(range, self.kernel)):
            every = zip(point, places, self.stride, self.dilation, strict=True)
            cuts: Cuts = (..., *(slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in every))
            yield point, x[cuts]


def sliding(node: NIRNode) -> Sliding:
    """Return how the window of a node slides; refuse numbers that say nothing of the kind."""
    axes = AXES[type(node).__name__]
    if type(node).__name__ == "SumPool2d":
        kernel, dilation = _whole(node, "kernel_size", axes, 1), (1,) * axes
    else:
        kernel, dilation = np.shape(node.weight)[2:], _whole(node, "dilation", axes, 1)
    stride, padding = _whole(node, "stride", axes, 1), node.padding
    named = padding.decode(errors="replace") if isinstance(padding, bytes) else padding if isinstance(padding, str) else ""
    if named == "same":
        if set(stride) != {1}:
            raise ValueError(f"padding 'same' needs a stride of 1, got {stride}.")
        whole = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return Sliding(kernel, stride, dilation, tuple((n // 2, n - n // 2) for n in whole))
    both = (0,) * axes if named == "valid" else _whole(node, "padding", axes, 0)
    return Sliding(kernel, stride, dilation, tuple((n, n) for n in both))


def _whole(node: NIRNode, name: str, axes: int, least: int) -> tuple[int, ...]:
    """Return a parameter as one whole number for each axis."""
    value = np.asarray(getattr(node, name))
    if value.dtype.kind not in "iu" or value.size not in (1, axes) or (value < least).any():
        raise ValueError(f"{name} must be {axes} whole numbers >= {least}, got {getattr(node, name)!r:.60}.")
    return tuple(int(n) for n in np.broadcast_to(value.ravel(), (axes,)))
