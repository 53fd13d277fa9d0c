"""The machine that a fit runs on: its threads and its memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch

__all__ = ["on_threads", "peak_memory"]

T = TypeVar("T")
R = TypeVar("R")


def on_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield what `function` makes of each item, in their order. Each of torch's threads takes an item of its own."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()

    def work(item: T) -> R:
        with torch.set_grad_enabled(gradients):
            return function(item)

    torch.set_num_threads(1)
    try:
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
    finally:
        torch.set_num_threads(threads)


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
