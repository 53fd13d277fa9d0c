"""Test RSE of several forecasters on three real sets and four horizons, with the time and peak memory of each fit.

    python benchmarks/accuracy.py --out benchmarks/results/accuracy.json
    python benchmarks/accuracy.py --ablation --horizons 24 --thin 4 --seeds 2 --out benchmarks/results/ablation.json
    python benchmarks/accuracy.py --sets aemo_solar_10min --horizons 24 --models sswim "shared ridge" --seeds 1

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
from sswim.steps import Diverse
from sswim.windows import split_windows

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
    total = sum(max(len(s) - span + 1, 0) for s in stretches)
    trained, tested = int(total * train), int(total * test)
    known, later = split_windows(stretches, span, tested)
    return known, later, (total - trained - tested) / (total - tested)


def scaled_rse(scores: Evaluation, known: list[np.ndarray], validation: float) -> float:
    """Return the RSE with every channel divided by its deviation in the training rows, so that all weigh alike."""
    rows = np.concatenate(known)
    _, scale = standard_scales(torch.from_numpy(rows[: int(len(rows) * (1 - validation))]))
    rse, squared = scores.per_channel["rse"].to_numpy(), scores.per_channel["rmse"].to_numpy() ** 2
    spread = np.where(rse > 0, squared / np.where(rse > 0, rse, 1) ** 2, 0.0)
    weight = scale.numpy() ** -2.0
    return float(np.sqrt((squared * weight).sum() / (spread * weight).sum()))


OURS: dict[str, dict[str, Any]] = {
    "sswim": {},
    "sswim, spikes only": {"skip": False},
    "sswim, tuned for a minute": {"tune": "60s"},
    # What each idea brings: the default with one thing changed.
    "no spikes: 1 neuron": {"hidden": (1,)},
    "scaling standard": {"scaling": "standard"},
    "scaling window": {"scaling": "window"},
    "no corrections per channel": {"corrections": 0},
    "nothing of other channels": {"common": 0},
    "neither of both": {"corrections": 0, "common": 0},
    "all channels enter one network, spikes only": {"channels": "joint", "skip": False, "hidden": (300,)},
    "no floor": {"floor": False},
    "200 neurons": {"hidden": (200,)},
    "2 layers of 50": {"hidden": (50, 50)},
    "2 layers of 100": {"hidden": (100, 100)},
    "1 trace": {"traces": (3.0,)},
    "5 traces": {"traces": (1.0, 3.0, 8.0, 20.0, 50.0)},
    "random weights": {"weights": "random"},
    "blocks by what is left": {"blocks": 4},
    "the paper's grid of delays": {"temporal": "grid"},
    "delays from the data": {"temporal": "memory"},
    "the paper's firing": {"normalizer": "mean-std"},
    "half the firing": {"normalizer": Diverse(high=0.3)},
    "more firing": {"normalizer": Diverse(low=0.2, high=0.9, cost=1.0)},
    "hat kernel": {"kernel": "hat"},
    "exponential kernel": {"kernel": "exponential"},
}


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
    options = OURS[model]
    return Forecaster(window, horizon, validation=validation, random_state=seed, verbose=0, **options)


def run(name: str, horizon: int, model: str, seed: int, part: str = "test", thin: int = 1, tuned: Any = None) -> dict[str, Any]:
    """Fit and test one model.

    With ``part="validation"`` the test windows are cut off first, and the rest is split anew. Of the channels every
    `thin`-th is used. `tuned` are options that a run with another seed has chosen.
    """
    window = SETS[name]
    x, day = load(name)
    x = x[:, ::thin]
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
        "thin": thin,
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
VARIANTS = [name for name in OURS if name != "sswim"]
FIXED = MODELS[:4]  # without anything random


def ablation(runs: list[dict[str, Any]]) -> str:
    """Return how much each variant's error differs from the default's, in percent, as a Markdown table, sets as columns."""
    cells = sorted({(r["set"], r["horizon"]) for r in runs})

    def mean(model: str, cell: tuple[str, int], what: str) -> float:
        return statistics.mean(r[what] for r in runs if (r["model"], r["set"], r["horizon"]) == (model, *cell))

    lines = [
        "| variant | " + " | ".join(f"{name} {h}" for name, h in cells) + " | mean |",
        "| --- |" + " --- |" * (len(cells) + 1),
    ]
    lines.append("| sswim, RSE | " + " | ".join(f"{mean('sswim', cell, 'rse'):.3f}" for cell in cells) + " | |")
    for model in [m for m in VARIANTS if any(r["model"] == m for r in runs)]:
        there = [cell for cell in cells if any((r["model"], r["set"], r["horizon"]) == (model, *cell) for r in runs)]
        change = {cell: 100 * (mean(model, cell, "rse") / mean("sswim", cell, "rse") - 1) for cell in there}
        shown = [f"{change[cell]:+.1f} %" if cell in change else "-" for cell in cells]
        lines.append(f"| {model} | " + " | ".join(shown) + f" | {statistics.mean(change.values()):+.1f} % |")
    return "\n".join(lines)


def table(runs: list[dict[str, Any]]) -> str:
    """Return the mean RSE over seeds as a Markdown table, models as columns."""
    models = [m for m in dict.fromkeys([*MODELS, *VARIANTS]) if any(r["model"] == m for r in runs)]
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
    parser.add_argument("--models", nargs="+", default=MODELS, choices=[*MODELS, *VARIANTS])
    parser.add_argument("--ablation", action="store_true", help="all variants of ours instead, on the validation part")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="'validation' is for choosing.")
    parser.add_argument("--thin", type=int, default=1, help="use every so many channels, for quick comparisons")
    parser.add_argument("--out", type=Path, help="where to write all runs; those that are there already are not repeated")
    args = parser.parse_args()
    if args.ablation:
        args.models, args.part = ["sswim", *VARIANTS], "validation"
    runs: list[dict[str, Any]] = json.loads(args.out.read_text())["runs"] if args.out and args.out.exists() else []
    keys = ("set", "horizon", "model", "seed", "part", "thin")
    for name, horizon, model in itertools.product(args.sets, args.horizons, args.models):
        for seed in range(1 if model in FIXED else args.seeds):
            what = dict(zip(keys, (name, horizon, model, seed, args.part, args.thin), strict=True))
            if any(all(r.get(k, 1) == what[k] for k in keys) for r in runs):
                continue
            same = [r.get("tuned") for r in runs if all(r.get(k, 1) == what[k] for k in keys if k != "seed")]
            told = _alone(run, {"name" if k == "set" else k: v for k, v in what.items()} | {"tuned": same[0] if same else None})
            runs.append(told)
            print(f"{name} {horizon} {model} {seed}: RSE {told['rse']:.4f}, {told['seconds']:.0f} s", file=sys.stderr)
            if args.out:
                args.out.write_text(json.dumps({"command": " ".join(["python", *sys.argv]), "runs": runs}, indent=1) + "\n")
    print(ablation(runs) if args.ablation else table(runs))


if __name__ == "__main__":
    main()
