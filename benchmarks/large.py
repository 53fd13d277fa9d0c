"""How models go on, and how fits of large series grow: ``python benchmarks/large.py CASE [--out FILE]``.

Cases: update, backtest, executors, kills, driver, stored, statistics, growth. Run them on an otherwise idle machine.
``--who dask`` or ``--who processes`` runs `executors` or `kills` with one kind of workers alone.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import torch

from sswim import Forecaster, Trajectory
from sswim.data import open_rows
from sswim.data.encoder import SeriesEncoder
from sswim.data.scaling import SCALINGS
from sswim.data.series import as_series
from sswim.machine import peak_memory
from sswim.scale import Processes

SETTINGS = {"random_state": 0, "verbose": 0}
WHO = ("processes", "dask")


def series(rows, channels, seed=0, dtype=np.float64):
    """Return a day, a week, slow changes and noise, in every channel another mixture."""
    rng, t = np.random.default_rng(seed), np.arange(rows)[:, None]
    phase, size = rng.uniform(0, 2 * np.pi, channels), rng.uniform(0.5, 2, channels)
    slow = np.cumsum(rng.normal(size=(rows, channels)) * 0.015, axis=0)
    x = size * np.sin(2 * np.pi * t / 24 + phase) + 0.5 * np.sin(2 * np.pi * t / 168 + phase) + slow
    return (x + 0.3 * rng.normal(size=(rows, channels))).astype(dtype)


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def update():
    """One day on a year of 288 channels, against a fit."""
    rows = series(8760 + 24 * 8, 288)
    model = Forecaster(168, 24, **SETTINGS)
    fit = seconds(lambda: model.fit(rows[:8760]))
    days = [rows[8760 + 24 * d : 8784 + 24 * d] for d in range(8)]
    updates = [seconds(lambda day=day: model.partial_fit(day)) for day in days]
    return {"fit": fit, "update": float(np.median(updates)), "ratio": fit / float(np.median(updates)), "updates": updates}


def backtest():
    """Many fits in one pass, against fits one after the other with the same hidden layers."""
    rows, folds = series(8760, 11), 12
    model = Forecaster(168, 24, **SETTINGS).fit(rows[:4380])
    found = {}
    one = seconds(lambda: found.update(one=model.cross_validate(rows, folds=folds)))
    table = found["one"].folds

    def naive():
        found["naive"] = []
        for _, row in table.iterrows():
            again = copy.deepcopy(model).refit(rows[: int(row.train_last)])
            found["naive"].append(again.evaluate(rows[int(row.test_first) - 168 : int(row.test_last)]).rmse)

    many = seconds(naive)
    difference = float(np.abs(table.rmse / np.array(found["naive"]) - 1).max())
    evaluation = found["one"].evaluation
    figures = {"rmse": evaluation.rmse, "rse": evaluation.rse, "peak_memory": peak_memory()}
    return {"folds": folds, "one_pass": one, "refits": many, "ratio": many / one, "difference": difference, **figures}


def sums_of(executor, rows, **options):
    """Return the seconds of the sums and of the whole fit, and a forecast."""
    model = Forecaster(168, 24, executor=executor, **SETTINGS, **options)
    whole = seconds(lambda: model.fit(rows))
    step = next(s.seconds for s in model.report_.steps if s.name == "output weights")
    return step, whole, model.predict(rows)


@contextmanager
def workers(who, number):
    """Yield an executor of so many workers, one thread each, and a function that returns the processes that work."""
    if who == "processes":
        # Workers are children of the process that has loaded the libraries.
        me = psutil.Process()
        yield Processes(number), lambda: [p for p in me.children(recursive=True) if p.ppid() != me.pid]
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):

        def at_work():
            busy = [address for address, tasks in client.processing().items() if tasks]
            return [psutil.Process(pid) for pid in client.run(os.getpid, workers=busy).values()] if busy else []

        yield client, at_work


def executors(who=WHO):
    """One and two workers, and none, on one thread each."""
    torch.set_num_threads(1)
    found = {}
    for name, rows, options in (
        ("default, 32 channels, 18,700 rows", series(18700, 32), {}),
        (
            "paper's model, 4 channels, 24,000 rows",
            series(24000, 4),
            {"readout": Trajectory(assembly="exact"), "channels": "joint", "hidden": (500,)},
        ),
    ):
        results = {"none": sums_of(None, rows, **options)}
        for kind in who:
            for number in (1, 2):
                with workers(kind, number) as (executor, _):
                    results[f"{kind}, {number}"] = sums_of(executor, rows, **options)
        found[name] = {key: {"sums": step, "fit": whole} for key, (step, whole, _) in results.items()}
        here, *forecasts = [forecast for _, _, forecast in results.values()]
        found[name]["equal"] = all(np.array_equal(forecasts[0], other) for other in forecasts[1:])
        found[name]["apart"] = float(np.abs(here - forecasts[0]).max())
        print(json.dumps(found[name], indent=1), flush=True)
    return found


def kills(who=WHO, runs=10):
    """Kill a worker of two at a random time."""
    rows, random_ = series(9000, 16), random.Random(0)
    torch.set_num_threads(1)
    expected = Forecaster(168, 24, **SETTINGS).fit(rows).predict(rows)
    return {kind: kills_of(kind, rows, expected, runs, random_) for kind in who}


def kills_of(who, rows, expected, runs, random_):
    """Kill a worker of one kind. Each fit has new workers."""

    def fit(executor, found):
        model = Forecaster(168, 24, executor=executor, **SETTINGS)
        found["seconds"] = seconds(lambda: model.fit(rows))
        step = next(s.seconds for s in model.report_.steps if s.name == "output weights")
        return step, bool(np.array_equal(model.predict(rows), expected))

    usual, found = [{} for _ in range(2)], []
    for result in usual:
        with workers(who, 2) as (executor, _):
            step, result["equal"] = fit(executor, result)
    for _ in range(runs):
        with workers(who, 2) as (executor, processes):
            result = {}
            thread = threading.Thread(target=kill_one, args=(processes, random_.uniform(0, 0.9) * step, result, random_))
            thread.start()
            _, result["equal"] = fit(executor, result)
            thread.join()
        found.append(result)
        print(found[-1], flush=True)
    return {"usual": usual, "sums": step, "runs": found}


def kill_one(processes, after, result, random_):
    """Wait until there are workers at work, and kill one some seconds later."""
    while not (there := processes()):
        time.sleep(0.01)
    time.sleep(after)
    there = processes() or there
    victim = random_.choice(there)
    os.kill(victim.pid, signal.SIGKILL)
    result |= {"after": after, "killed": victim.pid}


def driver(runs=4):
    """Kill the process that fits, and start it again."""
    code = (
        "import sys; sys.path.insert(0, {here!r}); from large import *\n"
        "rows = series(16000, 24); torch.set_num_threads(1)\n"
        "model = Forecaster(168, 24, **SETTINGS).fit(rows, checkpoint={folder!r})\n"
        "np.save({out!r}, model.predict(rows)); print(sum(s.seconds for s in model.report_.steps))\n"
    )
    found, random_ = [], random.Random(1)
    with tempfile.TemporaryDirectory() as place:
        here, out = str(Path(__file__).parent), f"{place}/forecast.npy"

        def start(folder):
            text = code.format(here=here, folder=folder, out=out)
            return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.DEVNULL)

        whole = seconds(lambda: start(f"{place}/whole").wait())
        expected = np.load(out)
        for run in range(runs):
            Path(out).unlink()
            process, after = start(f"{place}/{run}"), random_.uniform(0.5, 0.8) * whole
            time.sleep(after)
            process.kill()
            process.wait()
            kept = len(list(Path(f"{place}/{run}").glob("*"))) if Path(f"{place}/{run}").exists() else 0
            again = seconds(lambda run=run: start(f"{place}/{run}").wait())
            found.append(
                {"killed_after": after, "kept": kept, "again": again, "equal": bool(np.array_equal(np.load(out), expected))}
            )
            print(found[-1], flush=True)
    return {"whole": whole, "runs": found}


@contextmanager
def written(gigabytes):
    """Yield the path of a series of 50 channels in a Zarr array, and what is known of it: reading it takes some seconds."""
    import zarr

    channels, chunk = 50, 20_000
    rows = int(gigabytes * 1e9 / 4 / channels) // chunk * chunk
    with tempfile.TemporaryDirectory() as place:
        array = zarr.create_array(f"{place}/rows.zarr", shape=(rows, channels), chunks=(chunk, channels), dtype="float32")
        base = series(chunk, channels, dtype=np.float32)
        rng = np.random.default_rng(1)
        write = time.perf_counter()
        for number in range(rows // chunk):
            noise = rng.standard_normal((chunk // 8, channels), dtype=np.float32).repeat(8, axis=0)
            array[number * chunk : (number + 1) * chunk] = base + noise * 0.3
        write = time.perf_counter() - write
        size = sum(f.stat().st_size for f in Path(place).rglob("*") if f.is_file())
        source = open_rows(f"{place}/rows.zarr")

        def read():
            for first in range(0, rows, 40_000):
                source.read(first, min(first + 40_000, rows))

        values = {"rows": rows, "channels": channels, "gigabytes": rows * channels * 4 / 1e9, "on_disk": size}
        values |= {"write": write, "reading": seconds(read)}
        print(values, flush=True)
        yield f"{place}/rows.zarr", values


def statistics(gigabytes=2.0):
    """Range, mean and deviation of each channel of a stored series."""
    with written(gigabytes) as (path, values):
        every = as_series(path).rows()
        options = {"covariates": (), "shared": True, "window": 168, "precise": False}
        trained = int(0.8 * len(every))
        times = [seconds(lambda: SeriesEncoder.fit(every, trained, SCALINGS["adaptive"], **options)) for _ in range(3)]
    return {**values, "statistics": times, "threads": torch.get_num_threads()}


def stored(gigabytes=20.0):
    """Fit a Zarr array on disk, and read it alone."""
    with written(gigabytes) as (path, values):
        code = (
            "import time, json; from sswim import Forecaster; from sswim.machine import peak_memory\n"
            "begin = time.perf_counter(); before = peak_memory()\n"
            f"model = Forecaster(168, 24, random_state=0, verbose=0).fit({path!r})\n"
            "steps = {s.name: s.seconds for s in model.report_.steps}\n"
            "print(json.dumps({'fit': time.perf_counter() - begin, 'peak': peak_memory(), 'before': before, 'steps': steps}))\n"
        )
        answer = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    rates = {"rows_per_second": values["rows"] / answer["fit"], "rows_per_second_reading": values["rows"] / values["reading"]}
    return {**values, **rates, **answer}


def growth():
    """Seconds of the sums by rows, channels and features."""
    torch.set_num_threads(1)
    found = []
    for rows, channels, horizon in (
        (5000, 8, 24),
        (10000, 8, 24),
        (20000, 8, 24),
        (10000, 16, 24),
        (10000, 32, 24),
        (10000, 8, 96),
    ):
        model = Forecaster(168, horizon, **SETTINGS)
        whole = seconds(lambda model=model, rows=rows, channels=channels: model.fit(series(rows, channels)))
        steps = {s.name: s.seconds for s in model.report_.steps}
        ledger = model.report_.solution.record.ledger
        found.append({"rows": rows, "channels": channels, "horizon": horizon, "fit": whole, "sums": steps["output weights"],
                      "weighing": steps["weighing"], "features": ledger.whole.gram.shape[1], "bytes": ledger.size})  # fmt: skip
        print(found[-1], flush=True)
    return found


CASES = {
    "update": update,
    "backtest": backtest,
    "executors": executors,
    "kills": kills,
    "driver": driver,
    "stored": stored,
    "statistics": statistics,
    "growth": growth,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--who", choices=WHO, help="executors and kills: one kind of workers")
    parser.add_argument("--runs", type=int, help="kills and driver: how often")
    parser.add_argument("--gigabytes", type=float, help="stored and statistics: size of the series")
    chosen = parser.parse_args()
    case = CASES[chosen.case]
    given = {"who": chosen.who and (chosen.who,), "runs": chosen.runs, "gigabytes": chosen.gigabytes}
    given = {name: value for name, value in given.items() if value}
    if unknown := given.keys() - inspect.signature(case).parameters.keys():
        parser.error(f"{chosen.case} takes no --{', --'.join(sorted(unknown))}.")
    result = case(**given)
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n")
