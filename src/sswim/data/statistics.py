"""Range, mean and deviation of the columns of a series: in one pass over blocks of rows, on any number of workers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from sswim.data import rows as stored
from sswim.data.rows import RunsOfRows
from sswim.machine import sums_on_threads

__all__ = ["BlockStatistics", "find_outliers", "look_through", "look_trimmed", "standard_scales"]

# About this many rows tell what is usual.
SPREAD = 10_000
# Values that are looked at together: they stay in a processor's cache.
CACHED = 100_000
# Statistics of this many blocks are kept, at least; of more if there are few columns.
BLOCKS = 64
# Fewer blocks than this are not worth the way to other processes.
WORTH = 8

# First and last row of a block, and the state of the generator there.
Block = tuple[int, int, Mapping[str, object] | None]
Adder = Callable[..., Iterator["BlockStatistics"]]


@dataclass(frozen=True)
class BlockStatistics:
    """Statistics of the columns of one or several blocks of rows. Those of further blocks are appended by ``+``.

    Attributes
    ----------
    rows : Tensor of shape (blocks,)
        Number of rows.
    low, high, mean, square : Tensor of shape (blocks, columns)
        Range, mean, and mean squared deviation from the mean.
    lowest : Tensor of shape (blocks, columns)
        Number of rows that have the least value.
    drawn : Tensor of shape (blocks,)
        Sum of one random number for each row.
    along : Tensor of shape (blocks, columns)
        Sum of deviations from the mean, each multiplied by the random number of its row.
    few : Tensor of shape (some, columns)
        Some rows, evenly spread.
    """

    rows: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    square: Tensor
    lowest: Tensor
    drawn: Tensor
    along: Tensor
    few: Tensor

    @classmethod
    def of(cls, rows: Tensor, drawn: np.ndarray | None = None, few: slice = slice(0)) -> BlockStatistics:
        """Return the statistics of one block of rows (rows, columns)."""
        # Each column lies in one piece of memory: rounding is the same then, whatever its place.
        x = rows.T.double().contiguous()  # (columns, rows)
        low, high = x.amin(dim=1), x.amax(dim=1)
        mean = torch.where(low < high, x.mean(dim=1), low)
        apart, each = x - mean[:, None], torch.zeros(1) if drawn is None else torch.from_numpy(drawn)
        # Sums by torch, for BLAS adds in another order where it has more threads.
        square, along = apart.square().sum(dim=1) / len(rows), (apart * each).sum(dim=1)
        lowest = (x == low[:, None]).sum(dim=1).double()
        count, total = (torch.tensor([float(v)], dtype=torch.float64) for v in (len(rows), each.sum()))
        low, high, mean, square, lowest, along = (v[None] for v in (low, high, mean, square, lowest, along))
        some = rows[few].double().clone()
        return cls(count, low, high, mean, square, lowest, total, along, some)

    def __add__(self, other: BlockStatistics) -> BlockStatistics:
        """Return the statistics of the blocks of both."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return BlockStatistics(*(torch.cat(pair) for pair in pairs))

    def first(self, count: int) -> BlockStatistics:
        """Return those of the first `count` blocks."""
        every = {f.name: getattr(self, f.name)[:count] for f in fields(self) if f.name != "few"}
        return replace(self, **every)

    def merged(self) -> BlockStatistics:
        """Return the statistics of all blocks taken as one [Chan, Golub and LeVeque 1979].

        Examples
        --------
        >>> parts = [BlockStatistics.of(rows) for rows in torch.tensor([[0.0], [2.0], [7.0]]).split(2)]
        >>> found = (parts[0] + parts[1]).merged()
        >>> found.mean.item(), round(found.square.item(), 6)
        (3.0, 8.666667)
        """
        share = (self.rows / self.rows.sum())[:, None]
        low, center = self.low.amin(dim=0), self.mean[0]
        mean = center + (share * (self.mean - center)).sum(dim=0)
        apart = self.mean - mean
        return BlockStatistics(
            self.rows.sum()[None],
            low[None],
            self.high.amax(dim=0)[None],
            mean[None],
            (share * (self.square + apart**2)).sum(dim=0)[None],
            torch.where(self.low == low, self.lowest, 0).sum(dim=0)[None],
            self.drawn.sum()[None],
            (self.along + apart * self.drawn[:, None]).sum(dim=0)[None],
            self.few,
        )

    def scales(self) -> tuple[Tensor, Tensor]:
        """Return each column's mean and a deviation to divide by.

        A channel that hardly moved would be magnified without bound once it does: its deviation counts as a tenth of the
        usual one at least. One that rested is taken to move like the others.
        """
        whole = self.merged()
        deviation = whole.square[0].sqrt()
        moving = deviation[deviation > 0]
        usual = moving.median() if len(moving) else torch.ones_like(deviation[0])
        return whole.mean[0], torch.where(deviation > 0, torch.maximum(deviation, 0.1 * usual), usual)

    def floors(self, share: float = 0.01) -> np.ndarray:
        """Return each column's least value, where a part `share` of the rows has it; else minus infinity.

        Power, counts and rain rest at zero again and again, and never go below.

        Examples
        --------
        >>> BlockStatistics.of(torch.tensor([[0.0, 1.0], [3.0, 2.0], [0.0, 3.0]])).floors(share=0.5).tolist()
        [0.0, -inf]
        """
        whole = self.merged()
        often = whole.lowest[0] / whole.rows[0] >= share
        return torch.where(often & (whole.low[0] < whole.high[0]), whole.low[0], -torch.inf).numpy()

    def sort(self, columns: Sequence[int]) -> list[int]:
        """Return some columns in an order that depends on their values alone, not on their units or places."""
        whole = self.merged()
        low, high, mean, along = (v[0].numpy() for v in (whole.low, whole.high, whole.mean, whole.along))
        places = along / np.maximum(np.maximum(high - mean, mean - low), 1e-300)
        return sorted(columns, key=places.__getitem__)


@dataclass(frozen=True)
class _Looked:
    """What is looked at: rows, of which every `step`-th is kept (0: none), after they were brought back to `bounds`."""

    rows: Tensor | RunsOfRows
    step: int
    bounds: Tensor | None


def look_through(
    every: Tensor | RunsOfRows, border: int, *, draw: bool, add: Adder | None = None
) -> tuple[list[Block], BlockStatistics]:
    """Return blocks of all rows (rows, columns), one of which ends at the row `border`, and their statistics.

    Blocks depend on the number of rows and columns alone. So does the result: it does not matter who computes it.

    Parameters
    ----------
    every : Tensor or RunsOfRows
    border : int
    draw : bool
        Whether a random number for each row is needed, to sort columns by.
    add : callable, optional
        Who computes, such as `sums` of an executor. Default: threads of this process.
    """
    count, columns = every.shape
    size = _length(columns)
    size *= max(1, -(-count // (size * max(BLOCKS, size))))  # what is kept of all blocks stays small
    cuts = sorted({*range(0, count, size), min(border, count), count})
    random, blocks = np.random.default_rng(0), list[Block]()
    for first, last in zip(cuts, cuts[1:], strict=False):
        blocks.append((first, last, random.bit_generator.state if draw else None))
        if draw:
            random.standard_normal(last - first)
    return blocks, _looked(_Looked(every, max(1, count // SPREAD), None), blocks, add)


def look_trimmed(
    every: Tensor | RunsOfRows, blocks: Sequence[Block], found: BlockStatistics, bounds: np.ndarray, add: Adder | None = None
) -> BlockStatistics:
    """Return the statistics of blocks whose rows are brought back to bounds (2, columns).

    Only blocks with a value beyond them are looked at again: outliers are rare.
    """
    low, high = torch.from_numpy(bounds)
    beyond = ((found.low < low) | (found.high > high)).any(dim=1).nonzero()[:, 0]
    if not len(beyond):
        return found
    again = _looked(_Looked(every, 0, torch.from_numpy(bounds)), [(*blocks[i][:2], None) for i in beyond.tolist()], add)
    changed = {f.name: getattr(found, f.name).clone() for f in fields(found) if f.name != "few"}
    for name, values in changed.items():
        values[beyond] = getattr(again, name)
    return replace(found, **changed)


def _length(columns: int) -> int:
    """Return how many rows are read at once."""
    return max(1, stored.RUN // columns)


def _looked(what: _Looked, blocks: Sequence[Block], add: Adder | None) -> BlockStatistics:
    """Return the statistics of some blocks. Rows in memory do not travel."""
    elsewhere = add is not None and isinstance(what.rows, RunsOfRows) and len(blocks) >= WORTH
    return next(iter((add if elsewhere and add is not None else sums_on_threads)(_look, [blocks], what)))


def _look(what: _Looked, block: Block) -> BlockStatistics:
    """Return the statistics of one block, which is read in runs."""
    first, last, state = block
    random = np.random.default_rng(0)
    if state is not None:
        random.bit_generator.state = state
    parts, size = list[BlockStatistics](), _length(what.rows.shape[1])
    for begin in range(first, last, size):
        for rows in what.rows[begin : min(begin + size, last)].split(max(1, CACHED // what.rows.shape[1])):
            drawn = None if state is None else random.standard_normal(len(rows))
            few = slice(-begin % what.step, None, what.step) if what.step else slice(0)
            parts.append(BlockStatistics.of(rows if what.bounds is None else rows.clamp(*what.bounds), drawn, few))
            begin += len(rows)
    return reduce(operator.add, parts).merged()


def standard_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and deviation, from rows (rows, channels), see `BlockStatistics.scales`."""
    mean, deviation = BlockStatistics.of(rows).scales()
    return mean.to(rows.dtype), deviation.to(rows.dtype)


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
