"""How `sswim.bench` measures: processes of their own, least and middle times, and the setting of a run."""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from sswim._version import __version__
from sswim.report import Facts

__all__ = ["alone", "best", "middle", "say", "setting"]


def say(text: str) -> None:
    """Print how far a long case is, on the error stream."""
    print(text, file=sys.stderr, flush=True)


def alone(function: Callable[..., Facts], arguments: Facts) -> Facts:
    """Run in a process of its own, so that peak memory is this run's alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, **arguments).result()


def best(function: Callable[[], object], repeats: int) -> float:
    """Return the least seconds of several runs, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def middle(values: Iterable[float]) -> list[float]:
    """Return smallest, median and largest."""
    ordered = sorted(values)
    return [ordered[0], statistics.median(ordered), ordered[-1]]


def setting() -> Facts:
    """Return what a measurement depends on: versions, the commit if this is a checkout, and the machine."""
    return {
        "sswim": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _commit() -> str | None:
    """Return the commit, with a mark if files were changed since; None outside of a checkout."""
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        return None
    try:
        command = ["git", "describe", "--always", "--dirty=+changes", "--exclude=*"]
        answer = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
