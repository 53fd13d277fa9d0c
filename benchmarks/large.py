"""How models go on, and how fits of large series grow: ``python benchmarks/large.py CASE [--out FILE]``.

Cases: update, backtest, executors, kills, driver, stored, growth. Run them on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import torch

from sswim import Forecaster, Trajectory
from sswim.data import open_rows
from sswim.machine import peak_memory
from sswim.scale import Processes

SETTINGS = {"random_state": 0, "verbose": 0}


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


def executors():
    """One and two workers, and none, on one thread each."""
    from distributed import Client, LocalCluster

    torch.set_num_threads(1)
    found, forecasts = {}, {}
    for name, rows, options in (
        ("default, 32 channels, 18,700 rows", series(18700, 32), {}),
        (
            "paper's model, 4 channels, 8,000 rows",
            series(8000, 4),
            {"readout": Trajectory(assembly="exact"), "channels": "joint", "hidden": (500,)},
        ),
    ):
        results = {
            "none": sums_of(None, rows, **options),
            "1 process": sums_of(1, rows, **options),
            "2 processes": sums_of(2, rows, **options),
        }
        for workers in (1, 2):
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                results[f"dask, {workers}"] = sums_of(client, rows, **options)
        found[name] = {key: {"sums": step, "fit": whole} for key, (step, whole, _) in results.items()}
        forecasts = [forecast for _, _, forecast in results.values()]
        found[name]["equal"] = all(np.array_equal(forecasts[1], other) for other in forecasts[2:])
        found[name]["apart"] = float(np.abs(forecasts[0] - forecasts[1]).max())
        print(json.dumps(found[name], indent=1), flush=True)
    return found


def workers_of(pid):
    """Return the worker processes: children of the process that has loaded the libraries."""
    return [p for p in psutil.Process(pid).children(recursive=True) if p.ppid() != pid]


def kills(runs=20):
    """Kill a worker of two at a random time."""
    rows, random_ = series(9000, 16), random.Random(0)
    torch.set_num_threads(1)
    options = {"executor": Processes(2)}
    usual = Forecaster(168, 24, **SETTINGS, **options)
    times = [seconds(lambda: usual.fit(rows)) for _ in range(2)]
    step = next(s.seconds for s in usual.report_.steps if s.name == "output weights")
    expected = Forecaster(168, 24, **SETTINGS).fit(rows).predict(rows)
    found = []
    for _ in range(runs):
        delay, killed = random_.uniform(0, 0.9 * step), []

        def kill(delay=delay, killed=killed):
            while not workers_of(os.getpid()):
                time.sleep(0.01)
            time.sleep(delay)
            there = workers_of(os.getpid())
            if there:
                victim = random_.choice(there)
                os.kill(victim.pid, signal.SIGKILL)
                killed.append(victim.pid)

        thread = threading.Thread(target=kill)
        thread.start()
        result = {}
        taken = seconds(lambda result=result: result.update(model=Forecaster(168, 24, **SETTINGS, **options).fit(rows)))
        thread.join()
        equal = bool(np.array_equal(result["model"].predict(rows), expected))
        found.append({"after": delay, "killed": len(killed), "seconds": taken, "equal": equal})
        print(found[-1], flush=True)
    return {"usual": times, "sums": step, "runs": found}


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


def stored(gigabytes=20.0):
    """Fit a Zarr array on disk, and read it alone."""
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
        print({"rows": rows, "on disk": size, "write": write}, flush=True)
        source = open_rows(f"{place}/rows.zarr")

        def read():
            for first in range(0, rows, 40_000):
                source.read(first, min(first + 40_000, rows))

        reading = seconds(read)
        print({"reading": reading}, flush=True)
        code = (
            "import time, json; from sswim import Forecaster; from sswim.machine import peak_memory\n"
            "begin = time.perf_counter(); before = peak_memory()\n"
            f"model = Forecaster(168, 24, random_state=0, verbose=0).fit({place + '/rows.zarr'!r})\n"
            "steps = {s.name: s.seconds for s in model.report_.steps}\n"
            "print(json.dumps({'fit': time.perf_counter() - begin, 'peak': peak_memory(), 'before': before, 'steps': steps}))\n"
        )
        answer = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    rates = {"rows_per_second": rows / answer["fit"], "rows_per_second_reading": rows / reading}
    values = {"rows": rows, "channels": channels, "gigabytes": rows * channels * 4 / 1e9, "on_disk": size}
    return {**values, "write": write, "reading": reading, **rates, **answer}


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
    "growth": growth,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    result = CASES[chosen.case]()
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n")
