"""Sums computed by other processes of this machine."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import torch

from sswim.machine import add_up
from sswim.options import LOG, check_integer
from sswim.scale.base import Advance, Executor, Groups, Shared, Summand, cut, skip

__all__ = ["Processes"]

C = TypeVar("C")
I = TypeVar("I")
T = TypeVar("T", bound=Summand)
# Deaths of workers, one after the other without a result in between, after which it makes no sense to go on.
DEATHS = 5
# Whether processes can be copies of one that has loaded the libraries.
FORKS = "forkserver" in get_all_start_methods()


@dataclass(frozen=True)
class Processes(Executor):
    """Computes in several processes. If one of them is killed, what it did is done again.

    A script must start its work under ``if __name__ == "__main__":``, because each process imports the script.

    Parameters
    ----------
    workers : int
        Number of processes. Each computes on one thread, and holds a copy of what all items need.
    """

    workers: int

    def __post_init__(self) -> None:
        check_integer("workers", self.workers, 1)

    def prepare(self) -> None:
        """Begin to load libraries, where a system can fork: processes start from there at once, also in place of dead ones."""
        if FORKS:
            from multiprocessing import forkserver

            forkserver.set_forkserver_preload(["sswim.forecaster", "sswim.classifier"])
            forkserver.ensure_running()

    def sums(
        self, work: Callable[[C, I], T], groups: Groups[I], common: C, advance: Advance | None = None
    ) -> Generator[T, None, None]:
        """Yield the sum of each group; see `Executor.sums`."""
        self.prepare()
        groups_of_pieces = cut(groups, self.workers)
        pieces = [piece for group in groups_of_pieces for piece in group]
        with _folder() as folder:
            with open(folder / "shared", "wb") as file:
                pickle.dump(Shared(work, common), file, protocol=5)
            totals: Generator[T, None, None]
            with closing(self._totals(folder, pieces, advance or skip)) as totals:
                for group in groups_of_pieces:
                    yield add_up(len(group), totals)

    def _totals(self, folder: Path, pieces: Sequence[Sequence[I]], advance: Advance) -> Generator[T, None, None]:
        """Yield the sum of each piece, in their order. A few pieces ahead are under way at the same time."""
        futures: dict[int, Future[Path]] = {}
        done = deaths = 0
        while done < len(pieces):
            with _pool(self.workers, folder) as pool:
                try:
                    while done < len(pieces):
                        for number in range(done, min(done + 2 * self.workers, len(pieces))):
                            if number not in futures:
                                futures[number] = pool.submit(_total, folder, number, pieces[number])
                        place = futures.pop(done).result()
                        for _ in pieces[done]:
                            advance()
                        done, deaths = done + 1, 0
                        yield torch.load(place, weights_only=False)
                        place.unlink()
                except BrokenProcessPool as error:
                    deaths += 1
                    LOG.warning("a worker process died; its work is done again")
                    if deaths == DEATHS:
                        raise RuntimeError(_why(deaths)) from error
            futures = {n: f for n, f in futures.items() if f.done() and not isinstance(f.exception(), BrokenProcessPool)}


def _why(deaths: int) -> str:
    return (
        f"executor: worker processes died {deaths} times in a row. Most often memory ran out: "
        "use fewer processes, or a smaller `memory`. A script must start its work under `if __name__ == '__main__':`."
    )


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder of our own, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="sswim-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _pool(workers: int, folder: Path) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end as soon as this process closes its end of a pipe, or ends itself."""
    context = get_context("forkserver" if FORKS else "spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _begin, (theirs, folder))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _begin(pipe: Connection, folder: Path) -> None:
    """Begin a worker: only the end of the main process ends it, not an interrupt from the keyboard."""

    def watch() -> None:
        try:
            pipe.poll(None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # should the main process have been killed
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


@lru_cache(maxsize=1)
def _load(folder: Path) -> Shared[object, object, Summand]:
    with open(folder / "shared", "rb") as file:
        return pickle.load(file)


def _total(folder: Path, number: int, items: Sequence[object]) -> Path:
    """Write the sum of a piece to a file, and return the file.

    Only its name goes through the pool's pipe: the pool would wait forever for a worker that died while it sent a large result.
    """
    place = folder / f"{number}-{os.getpid()}"
    try:
        torch.save(_load(folder).total(items), place)
    except Exception as error:
        raise _portable(error) from error.__cause__
    return place


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent: itself if possible, because a broken one would break the pool."""
    try:
        same = str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")
