"""How a fit fares with more threads, and beside other busy processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sswim.bench.literal import synthetic_series
from sswim.bench.measure import alone, say
from sswim.forecaster import Forecaster
from sswim.report import Facts

__all__ = ["bench_company"]


def bench_company(rows: int = 11_500, channels: int = 7, window: int = 336, horizon: int = 96, repeats: int = 3) -> Facts:
    """Fit the default forecaster on one thread and on several, alone and beside processes that keep a core busy each.

    Also the time of a forecast from one window, alone and in company. Each figure is the least of several runs.
    """
    threads, found = torch.get_num_threads(), {}
    problem = {"rows": rows, "channels": channels, "window": window, "horizon": horizon, "repeats": repeats}
    cases = [("one thread, alone", 1, 0), *((f"{threads} threads, beside {n} busy", threads, n) for n in (0, 1, 2))]
    for name, count, company in cases:
        say(f"company: {name}")
        with _busy(company):
            found[name] = alone(_timed, {**problem, "threads": count})
    one, alone_, *beside = (figures["fit, s"] for figures in found.values())
    found["one thread : several, alone"] = {"fit, s": one / alone_}
    found |= {f"beside {n} busy : alone": {"fit, s": seconds / alone_} for n, seconds in enumerate(beside, 1)}
    return {"problem": problem, "result": found}


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep `count` processes busy."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count_forever, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _count_forever() -> None:
    n = 0
    while True:
        n += 1


def _timed(rows: int, channels: int, window: int, horizon: int, repeats: int, threads: int) -> Facts:
    torch.set_num_threads(threads)
    x, fits, forecasts = synthetic_series(rows, channels).numpy(), [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        model = Forecaster(window, horizon, random_state=0, verbose=0).fit(x)
        fits.append(time.perf_counter() - begin)
    for _ in range(20):
        begin = time.perf_counter()
        model.predict(x[-window:])
        forecasts.append(time.perf_counter() - begin)
    return {"fit, s": min(fits), "forecast, ms": 1000 * min(forecasts)}
