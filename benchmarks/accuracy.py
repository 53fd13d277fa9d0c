"""Test RSE of several forecasters on three real sets and four horizons, with the time and peak memory of each fit.

    python benchmarks/accuracy.py --out benchmarks/results/accuracy.json
    python benchmarks/accuracy.py --sets aemo_solar_10min --horizons 24 --models shared "shared, spikes only" --seeds 1

Windows of 168 rows (12 for the highway set, whose days are apart), split 0.6/0.2/0.2 in time. Every model is fitted on the
training and validation part, chooses its penalty on the latter, and scales by the former only. A zero in the highway set is
a missing value and is filled linearly in time, alike for all. Each fit runs in a process of its own.
The data is read from the folder named by the environment variable SSWIM_DATA.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sswim import Forecaster
from sswim._scaling import standard_scales
from sswim._tracking import peak_memory
from sswim.baselines import Persistence, RidgeOnLags, SeasonalNaive
from sswim.bench import _alone
from sswim.metrics import Evaluation

SETS = {"aemo_solar_10min": 168, "aemo_units_hourly": 168, "la_highway_april_5min": 12}
HORIZONS = (6, 24, 48, 96)
SEASONS = {"aemo_solar_10min": 144, "aemo_units_hourly": 24, "la_highway_april_5min": 12}


def load(name: str) -> tuple[np.ndarray, int | None]:
    """Return the rows of a set, and every how many of them a new stretch begins."""
    path = Path(os.environ.get("SSWIM_DATA", ".")) / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is missing: set SSWIM_DATA to the folder that holds it.")
    with np.load(path) as data:
        x, day = data["x"].astype(float), int(data["steps_per_day"]) if "steps_per_day" in data else None
    if day is None:
        return x, None
    rows = np.arange(day)
    for first, channel in itertools.product(range(0, len(x), day), range(x.shape[1])):
        part = x[first : first + day, channel]
        known = part != 0
        if known.any():
            part[:] = np.interp(rows, rows[known], part[known])
    return x, day


def split(
    stretches: list[np.ndarray], span: int, train: float, test: float
) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Split the windows (of `span` rows with their horizon) in time.

    Returns
    -------
    The stretches for fitting, those for testing, and the part of the former's windows that is for validation.
    """
    each = [max(len(s) - span + 1, 0) for s in stretches]
    total = sum(each)
    trained, tested = int(total * train), int(total * test)
    known, later, left = [], [], total - tested
    for s, count in zip(stretches, each, strict=True):
        here = min(count, max(left, 0))
        left -= count
        if here:
            known.append(s[: here + span - 1])
        if here < count:
            later.append(s[here:])
    return known, later, (total - trained - tested) / (total - tested)


def scaled_rse(scores: Evaluation, known: list[np.ndarray], validation: float) -> float:
    """Return the RSE with every channel divided by its deviation in the training rows, so that all weigh alike."""
    rows = np.concatenate(known)
    _, scale = standard_scales(torch.from_numpy(rows[: int(len(rows) * (1 - validation))]))
    rse, squared = scores.per_channel["rse"].to_numpy(), scores.per_channel["rmse"].to_numpy() ** 2
    spread = np.where(rse > 0, squared / np.where(rse > 0, rse, 1) ** 2, 0.0)
    weight = scale.numpy() ** -2.0
    return float(np.sqrt((squared * weight).sum() / (spread * weight).sum()))


def make(model: str, window: int, horizon: int, validation: float, season: int, seed: int, tuned: Any = None) -> Any:
    """Return an unfitted model by its name in the table."""
    plain = {
        "persistence": lambda: Persistence(window, horizon),
        "seasonal naive": lambda: SeasonalNaive(window, horizon, season),
        "ridge per channel": lambda: RidgeOnLags(window, horizon, validation=validation),
        "shared ridge": lambda: RidgeOnLags(window, horizon, shared=True, validation=validation),
    }
    if model in plain:
        return plain[model]()
    if model == "echo state network":
        from echo_state import EchoState  # needs reservoirpy: make peers

        return EchoState(window, horizon, validation=validation, seed=seed, options=tuned)
    if model == "paper":
        return Forecaster.paper(window, horizon, validation=validation, random_state=seed, verbose=0)
    options = {"sswim": {}, "sswim, spikes only": {"skip": False, "hidden": (200,)}}[model]
    return Forecaster(window, horizon, validation=validation, random_state=seed, verbose=0, **options)


def run(name: str, horizon: int, model: str, seed: int, part: str = "test", tuned: Any = None) -> dict[str, Any]:
    """Fit and test one model.

    With ``part="validation"`` the test windows are cut off first, and the rest is split anew. `tuned` are options that a run
    with another seed has chosen.
    """
    window = SETS[name]
    x, day = load(name)
    stretches = [x] if day is None else [x[i : i + day] for i in range(0, len(x), day)]
    known, later, validation = split(stretches, window + horizon, 0.6, 0.2)
    if part == "validation":
        known, later, validation = split(known, window + horizon, 0.6, 0.2)
    fitted = make(model, window, horizon, validation, SEASONS[name], seed, tuned)
    begin = time.perf_counter()
    if hasattr(fitted, "fit"):
        fitted.fit(known)
    seconds, memory = time.perf_counter() - begin, peak_memory()
    scores = fitted.evaluate(later)
    return {
        "set": name,
        "horizon": horizon,
        "model": model,
        "seed": seed,
        "part": part,
        "rse": scores.rse,
        "rse_scaled": scaled_rse(scores, known, validation),
        "seconds": seconds,
        "peak_memory_gib": (memory or 0) / 2**30,
        "windows": scores.windows,
        "coverage": scores.coverage,
        "tuned": getattr(fitted, "options", None),
    }


MODELS = [
    "persistence",
    "seasonal naive",
    "ridge per channel",
    "shared ridge",
    "echo state network",
    "paper",
    "sswim, spikes only",
    "sswim",
]
FIXED = MODELS[:4]  # without anything random


def table(runs: list[dict[str, Any]]) -> str:
    """Return the mean RSE over seeds as a Markdown table, models as columns."""
    models = [m for m in MODELS if any(r["model"] == m for r in runs)]
    lines = ["| set | horizon | " + " | ".join(models) + " |", "| --- | --- |" + " --- |" * len(models)]
    cells = sorted({(r["set"], r["horizon"]) for r in runs})
    for name, horizon in cells:
        scores = []
        for model in models:
            found = [r["rse"] for r in runs if (r["set"], r["horizon"], r["model"]) == (name, horizon, model)]
            scores.append(f"{statistics.mean(found):.3f}" if found else "-")
        lines.append(f"| {name} | {horizon} | " + " | ".join(scores) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--horizons", nargs="+", type=int, default=list(HORIZONS))
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="'validation' is for choosing.")
    parser.add_argument("--out", type=Path, help="where to write all runs; those that are there already are not repeated")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(args.out.read_text())["runs"] if args.out and args.out.exists() else []
    keys = ("set", "horizon", "model", "seed", "part")
    for name, horizon, model in itertools.product(args.sets, args.horizons, args.models):
        for seed in range(1 if model in FIXED else args.seeds):
            what = dict(zip(keys, (name, horizon, model, seed, args.part), strict=True))
            if any(all(r[k] == what[k] for k in keys) for r in runs):
                continue
            same = [r.get("tuned") for r in runs if all(r[k] == what[k] for k in keys if k != "seed")]
            told = _alone(run, {"name" if k == "set" else k: v for k, v in what.items()} | {"tuned": same[0] if same else None})
            runs.append(told)
            print(f"{name} {horizon} {model} {seed}: RSE {told['rse']:.4f}, {told['seconds']:.0f} s", file=sys.stderr)
            if args.out:
                args.out.write_text(json.dumps({"command": " ".join(["python", *sys.argv]), "runs": runs}, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
