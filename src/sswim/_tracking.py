"""Progress bars, and a record of the time and memory that each step took."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["StepRecord", "Tracker", "forget_peak_memory", "peak_memory"]

T = TypeVar("T")


def peak_memory() -> int | None:
    """Return the most memory in bytes that this process has held so far, or None where that can not be known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak_memory() -> None:
    """Let `peak_memory` count from now on, where the system can do that (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@dataclass(frozen=True)
class StepRecord:
    """One step: its name, its seconds, and the process's peak memory in bytes by its end."""

    name: str
    seconds: float
    peak_memory: int | None


class Tracker:
    """Shows a bar per step on a terminal if `verbose`, and keeps the records either way."""

    def __init__(self, verbose: int = 0) -> None:
        self.records: list[StepRecord] = []
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not verbose or not (console.is_terminal or console.is_jupyter),
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Tracker:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside and record it under `name`."""
        begin = time.perf_counter()
        task = self._task = self._progress.add_task(name, total=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)
        self.records.append(StepRecord(name, time.perf_counter() - begin, peak_memory()))

    def tell(self, what: str) -> None:
        """Show how the current step is going."""
        if self._task is not None:
            self._progress.update(self._task, description=what)

    def count(self, items: Iterable[T], total: int | None = None) -> Iterator[T]:
        """Yield `items`, moving the current step's bar by one each; `total` of them if they can not tell."""
        if self._task is not None:
            self._progress.reset(self._task, total=len(items) if isinstance(items, Sized) else total)
        for item in items:
            yield item
            if self._task is not None:
                self._progress.advance(self._task)
