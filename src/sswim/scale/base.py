"""The contract of all executors, and the one order in which they add results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from sswim.machine import add_up, one_thread

__all__ = ["Advance", "Executor", "Groups", "Shared", "Summand", "check_groups", "cut", "skip"]

# A worker takes up to this many items at a time: it adds their results, so that few of them travel.
MOST = 8


class Summand(Protocol):
    """A result that can be added to another. Its tensors hold all of it, for those that write it to a file."""

    def __add__(self, other: Self, /) -> Self:
        """Return the sum of both, and leave them as they are."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all that the result holds."""

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the result that held these tensors."""


C = TypeVar("C")
I = TypeVar("I")
T = TypeVar("T", bound=Summand)
F = TypeVar("F")
Groups = Sequence[Sequence[I]]
Advance = Callable[[], object]


class Executor(ABC):
    """Computes sums of many results: in this process, in others, or on other machines.

    The result is the same bit for bit, however many workers there are and in whatever order they finish.
    """

    def prepare(self) -> None:  # noqa: B027
        """Begin to get ready, while the caller does something else. Nothing by default."""

    @abstractmethod
    def sums(
        self, work: Callable[[C, I], T], groups: Groups[I], common: C, advance: Advance | None = None
    ) -> Generator[T, None, None]:
        """Yield the sum of ``work(common, item)`` over the items of each group, in the order of the groups.

        Few results are held at the same time, however many items there are. An error that `work` raises reaches the caller.

        Parameters
        ----------
        work : callable
            A function at the top level of a module. It returns a `Summand`; without `Kept`, any object with ``+`` will do.
        groups : sequence of sequences
            Items of each group, at least one. They should be small, such as ranges of rows.
        common : object
            What all items need. It is sent to each worker once, and may be large.
        advance : callable, optional
            Called without arguments once for each item that is done.
        """


@dataclass(frozen=True)
class Shared(Generic[C, I, T]):
    """What each worker needs: the work, and what all items have in common."""

    work: Callable[[C, I], T]
    common: C

    def total(self, items: Sequence[I]) -> T:
        """Return the sum of the results of some items, computed on one thread."""
        with one_thread(), torch.no_grad():
            return add_up(len(items), map(partial(self.work, self.common), items))


def check_groups(groups: Groups[I]) -> None:
    """Refuse groups without items: nothing says what their sum is."""
    empty = [number for number, group in enumerate(groups) if not len(group)]
    if empty:
        raise ValueError(f"groups: each must have at least one item, but group {empty[0]} is empty.")


def cut(groups: Groups[I], workers: int) -> list[list[Sequence[I]]]:
    """Return each group cut into pieces, one for a worker at a time.

    Pieces are whole branches of the tree of additions, whatever their size. Each worker gets several of them if it can.

    Examples
    --------
    >>> cut(["abcdefg", "hij"], workers=1)
    [['ab', 'cd', 'ef', 'g'], ['hi', 'j']]
    """
    check_groups(groups)
    size = MOST
    while size > 1 and sum(-(-len(group) // size) for group in groups) < 4 * workers:
        size //= 2
    return [[group[i : i + size] for i in range(0, len(group), size)] for group in groups]


def skip() -> None:
    """Do nothing: how to advance without a progress bar."""
