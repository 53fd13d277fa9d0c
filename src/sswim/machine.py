"""The machine that a fit runs on: its threads and its memory."""

from __future__ import annotations

import operator
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol, Self, TypeVar

import torch

__all__ = [
    "PIECES",
    "Addable",
    "StepRecord",
    "add_up",
    "on_threads",
    "one_thread",
    "peak_memory",
    "split",
    "sums_on_threads",
]

T = TypeVar("T")
R = TypeVar("R")
# Pieces of work that may be under way at the same time: each may take this part of a memory budget.
PIECES = 4
_lock, _users, _usual = threading.Lock(), 0, 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside; the last of several users restores what was usual."""
    global _users, _usual
    with _lock:
        if not _users:
            _usual = torch.get_num_threads()
        torch.set_num_threads(1)  # each thread has a number of its own
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                torch.set_num_threads(_usual)


def on_threads(function: Callable[[T], R], items: Sequence[T]) -> Generator[R, None, None]:
    """Yield what `function` makes of each item, in their order. Each of torch's threads takes an item of its own."""
    threads, gradients = min(torch.get_num_threads(), PIECES), torch.is_grad_enabled()

    def work(item: T) -> R:
        with torch.set_grad_enabled(gradients):
            return function(item)

    with one_thread():
        if threads == 1 or len(items) == 1:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting: deque[Future[R]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


@dataclass(frozen=True)
class StepRecord:
    """One step: its name, its seconds, and the process's peak memory in bytes by its end."""

    name: str
    seconds: float
    peak_memory: int | None


class Addable(Protocol):
    """What can be added up."""

    def __add__(self, other: Self, /) -> Self:
        """Return the sum of both, and leave them as they are."""


A = TypeVar("A", bound=Addable)
C = TypeVar("C")
F = TypeVar("F")


def sums_on_threads(
    work: Callable[[C, T], A], groups: Sequence[Sequence[T]], common: C, advance: Callable[[], object] = lambda: None
) -> Generator[A, None, None]:
    """Yield the sum of ``work(common, item)`` over the items of each group, in the order of the groups."""

    def count(result: A) -> A:
        advance()
        return result

    with closing(on_threads(partial(work, common), list(chain.from_iterable(groups)))) as results:
        counted = map(count, results)
        for group in groups:
            yield add_up(len(group), counted)


def add_up(count: int, results: Iterator[F], add: Callable[[F, F], F] = operator.add) -> F:
    """Return the sum of the next `count` results, added in pairs, pairs of pairs, and so on.

    The order of the additions depends on `count` alone. A result is taken when its turn comes: about ``log2(count)`` wait.

    Examples
    --------
    >>> add_up(7, iter("abcdefg"), lambda one, other: f"({one}{other})")
    '(((ab)(cd))((ef)g))'
    """
    if count == 1:
        return next(results)
    half = split(count)
    first = add_up(half, results, add)
    return add(first, add_up(count - half, results, add))


def split(count: int) -> int:
    """Return how many of `count` results are added before the others are: the largest power of 2 below `count`."""
    return 1 << (count - 1).bit_length() - 1


def peak_memory() -> int | None:
    """Return the most memory in bytes that this process has held so far, or None where the system does not tell."""
    try:  # Linux. What `getrusage` tells there counts the process that started this one, too.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
