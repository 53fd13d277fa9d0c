"""Sums computed on the machines of a Dask cluster."""

from __future__ import annotations

import ctypes
import operator
import pickle
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from sswim.machine import add_up
from sswim.scale.base import Advance, Executor, Groups, Shared, Summand, cut, skip

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Dask"]

C = TypeVar("C")
I = TypeVar("I")
T = TypeVar("T", bound=Summand)
# Seconds until a scheduler must answer, and until it must have a worker.
ANSWER, WORKER = 10, 60


@dataclass(frozen=True)
class Dask(Executor):
    """Computes on a Dask cluster, and adds results there. Dask does again what a dead worker did.

    All machines need the same versions of sswim and torch.

    Parameters
    ----------
    client : str or distributed.Client
        Address of a scheduler, such as ``"tcp://host:8786"``, or a client that is connected to one.
    """

    client: str | Client

    def __post_init__(self) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ImportError("executor: a Dask cluster needs distributed, run `pip install 'sswim[dask]'`.") from None
        if isinstance(self.client, Client) and self.client.asynchronous:
            raise TypeError("executor must be a synchronous client: make it with `Client(asynchronous=False)`.")
        if not isinstance(self.client, Client) and not (isinstance(self.client, str) and "://" in self.client):
            raise TypeError(
                f"client must be an address such as 'tcp://host:8786' or a distributed.Client, got {self.client!r}."
            )

    def sums(
        self, work: Callable[[C, I], T], groups: Groups[I], common: C, advance: Advance | None = None
    ) -> Generator[T, None, None]:
        """Yield the sum of each group; see `Executor.sums`."""
        with self._connected() as client, _clear_errors():
            flow = _Flow(client, Shared(work, common), advance or skip)
            groups_of_pieces = cut(groups, flow.threads())
            pieces = map(flow.submit, chain.from_iterable(groups_of_pieces))
            waiting: deque[Future] = deque()
            try:
                for group in groups_of_pieces:
                    waiting.append(flow.watch(add_up(len(group), pieces, flow.add)))
                    while waiting and str(waiting[0].key) in flow.ready:
                        yield waiting.popleft().result()
                while waiting:
                    while str(waiting[0].key) not in flow.ready:
                        flow.wait()
                    yield waiting.popleft().result()
            finally:
                flow.stop()

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        """Yield a client whose cluster can do the work. One that was made here is closed afterwards."""
        from distributed import Client

        if isinstance(self.client, Client):
            _check(self.client)
            yield self.client
            return
        try:
            client = Client(self.client, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"executor: no Dask scheduler answered at {self.client} within {ANSWER} s. Start one with `dask scheduler`, "
                f"or check the address ({error})."
            ) from error
        with client:
            _check(client)
            yield client


class _Flow:
    """Work on its way to a cluster and back: a few pieces at a time are under way."""

    def __init__(self, client: Client, shared: Shared[C, I, T], advance: Advance) -> None:
        import dask

        self.client, self.advance, self.under_way = client, advance, 0
        self.ready: set[str] = set()  # keys of the sums of groups that are there
        self._watched: WeakSet[Future] = WeakSet()  # Dask frees the results of those that nobody holds
        self._events: SimpleQueue[tuple[int, Future | str]] = SimpleQueue()
        # A task can be done again if a worker dies. Data that `scatter` sends would be lost.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            self.shared = client.submit(pickle.loads, pickle.dumps(shared, protocol=5), pure=False)
        # Dask gives work to whoever has what it needs: let all have it.
        client.replicate([self.shared])

    def threads(self) -> int:
        """Return how many tasks the cluster can run at the same time. Workers come and go."""
        return max(1, sum(self.client.nthreads().values()))

    def submit(self, piece: Sequence[I]) -> Future:
        """Return the sum of a piece to come, after waiting until few others are under way."""
        while self.under_way >= 2 * self.threads():
            self.wait()
        self.under_way += 1
        return self.watch(self.client.submit(_total, self.shared, piece, pure=False), len(piece))

    def add(self, one: Future, other: Future) -> Future:
        """Return the sum of two results to come."""
        return self.client.submit(operator.add, one, other, pure=False)

    def watch(self, future: Future, items: int = 0) -> Future:
        """Have `wait` return when a piece of some items, or the sum of a group, is done."""

        def tell(future: Future) -> None:
            self._events.put((items, str(future.key) if future.status == "finished" else future))

        self._watched.add(future)
        future.add_done_callback(tell)
        return future

    def wait(self) -> None:
        """Wait until something is done, and raise its error if it failed."""
        items, event = self._events.get()
        if not isinstance(event, str):
            event.result()
        elif not items:
            self.ready.add(event)
        else:
            self.under_way -= 1
            for _ in range(items):
                self.advance()

    def stop(self) -> None:
        """Cancel what is still under way after an error or an interrupt."""
        pending = [future for future in self._watched if future.status == "pending"]
        if pending and self.client.status == "running":
            self.client.cancel(pending)


def _total(shared: Shared[C, I, T], items: Sequence[I]) -> T:
    """Return the sum of some items, on a worker."""
    _keep_memory()
    return shared.total(items)


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Let the C library use freed memory again.

    Dask starts workers such that it goes back to the system at once; asking for it again takes a third of the time here.
    """
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        for option, size in ((-3, 32 * 2**20), (-1, 2**30)):  # M_MMAP_THRESHOLD, at its most, and M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(option, size)


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Say what to do about errors of the cluster itself."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise RuntimeError(
            "executor: several workers of the cluster died on the same work. Most often memory ran out: "
            "give workers more memory, or use a smaller `memory`."
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise RuntimeError(f"executor: the work was cancelled, or the cluster's scheduler ended ({error}).") from error


def _check(client: Client) -> None:
    """Refuse a cluster without workers, or one whose machines lack this version of the library."""
    try:
        client.wait_for_workers(1, timeout=WORKER)
    except TimeoutError:
        raise ConnectionError(
            "executor: the cluster has no worker. Start one with `dask worker ADDRESS`, or let an adaptive cluster keep one."
        ) from None
    versions = _versions()
    here, found = versions(), {"the scheduler": client.run_on_scheduler(versions), **client.run(versions, on_error="ignore")}
    others = [f"{place} has {there}" for place, there in found.items() if there != here]
    if others:
        more = f" (and {len(others) - 3} more)" if len(others) > 3 else ""
        raise RuntimeError(
            f"executor: all machines of a Dask cluster need {here}, but {', '.join(others[:3])}{more}. "
            f"Run `pip install {here.replace(' and ', ' ')}` there, and start them again."
        )


def _versions() -> Callable[[], str]:
    """Return a function that tells versions. It has no name in this module, so it also runs where the library is absent."""

    def versions() -> str:
        try:
            from importlib.metadata import version

            from sswim._version import __version__
        except ImportError:
            return "no sswim"
        return f"sswim=={__version__} and torch=={version('torch').split('+')[0]}"

    return versions
