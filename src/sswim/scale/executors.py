"""The executor that users name: threads of this process, other processes, or a Dask cluster."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from sswim.machine import sums_on_threads
from sswim.options import check_integer
from sswim.scale.base import Advance, Executor, Groups, Summand, check_groups, skip
from sswim.scale.cluster import Dask
from sswim.scale.processes import Processes

__all__ = ["Threads", "resolve_executor"]

C = TypeVar("C")
I = TypeVar("I")
T = TypeVar("T", bound=Summand)


@dataclass(frozen=True)
class Threads(Executor):
    """Computes in this process, on as many threads as torch has.

    Examples
    --------
    >>> list(Threads().sums(pow, [[1, 2, 3], [4]], common=2))
    [14, 16]
    """

    def sums(
        self, work: Callable[[C, I], T], groups: Groups[I], common: C, advance: Advance | None = None
    ) -> Generator[T, None, None]:
        """Yield the sum of each group; see `Executor.sums`."""
        check_groups(groups)
        return sums_on_threads(work, groups, common, advance or skip)


def resolve_executor(value: object) -> Executor:
    """Return the executor that a user's value stands for.

    Parameters
    ----------
    value : None, int, str, distributed.Client or Executor
        None stands for threads of this process, a number for as many processes, and an address for the Dask cluster there.

    Examples
    --------
    >>> resolve_executor(2)
    Processes(workers=2)
    """
    distributed = sys.modules.get("distributed")  # a client exists only if it was imported
    if value is None:
        return Threads()
    if isinstance(value, Executor):
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return Processes(check_integer("executor", value, 1))
    if (isinstance(value, str) and "://" in value) or (distributed and isinstance(value, distributed.Client)):
        return Dask(value)
    raise TypeError(
        "executor must be None, a number of processes >= 1, the address of a Dask scheduler such as 'tcp://host:8786', "
        f"a distributed.Client or an Executor object, got {value!r}."
    )
