"""Test RSE against wall-clock time of the paper's network on real solar power: sampled, trained from scratch, and both.

    python benchmarks/gradient.py --out benchmarks/results/gradient.json --picture docs/gradient.png
    python benchmarks/gradient.py --variants

41 solar farms, 10 minutes (`aemo_solar_10min`); windows of 168 rows, horizon 24; [0, 1] scaling by the training part. Of the
windows (0.6/0.2/0.2 in time) every n-th is used, see --every. Each epoch that is the best so far on validation windows is
tested; what testing takes is not counted. With --variants, surrogates and learning rates are compared on validation windows
instead, by 10 epochs of fine-tuning. The data is read from the folder named by the environment variable SSWIM_DATA.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sswim import SpikingNetwork, finetune, initialize, sample
from sswim.data import Subset, Windows
from sswim.gradient import TrainingDiverged
from sswim.network import Arctan, FastSigmoid, SlayerExponential, Triangular

WINDOW, HORIZON = 168, 24


def load(every: int) -> tuple[Subset, Subset, Subset]:
    """Return training, validation and test windows."""
    path = Path(os.environ.get("SSWIM_DATA", ".")) / "aemo_solar_10min.npz"
    if not path.is_file():
        sys.exit(f"{path} is missing: set SSWIM_DATA to the folder that holds it.")
    x = np.load(path)["x"].astype(np.float64)
    total = len(x) - WINDOW - HORIZON + 1
    trained, tested = int(0.6 * total), int(0.2 * total)
    known = x[: trained + WINDOW + HORIZON - 1]
    low, width = known.min(axis=0), np.ptp(known, axis=0)
    windows = Windows([torch.from_numpy((x - low) / np.where(width > 0, width, 1.0)).float()], WINDOW, HORIZON)
    ends = (0, trained, total - tested, total)
    train, validation, test = (Subset(windows, torch.arange(a, b, every)) for a, b in zip(ends, ends[1:], strict=False))
    return train, validation, test


def rse(network: SpikingNetwork, samples: Subset) -> float:
    """Return the RSE, with every channel in units of its range."""
    predict = network.predictor()
    index = torch.arange(len(samples)).split(128)
    y = torch.cat([samples.targets(i) for i in index]).double()
    error = torch.cat([predict(samples.inputs(i)) for i in index]).double() - y
    return float(torch.sqrt(error.square().sum() / (y - y.mean(dim=0)).square().sum()))


def train_and_test(network: SpikingNetwork, data: tuple[Subset, Subset, Subset], **options: Any) -> list[list[float]]:
    """Train and return pairs of seconds and test RSE, one for each epoch that is the best so far."""
    train, validation, test = data
    points: list[list[float]] = []
    testing, best = 0.0, float("inf")

    def log(record: Any) -> None:
        nonlocal testing, best
        if record.validation_loss < best:
            begin = time.perf_counter()
            best = record.validation_loss
            points.append([record.seconds - testing, rse(network, test)])
            testing += time.perf_counter() - begin

    finetune(network, train, validation=validation, callback=log, **options)
    return points


def run(seed: int, every: int, neurons: int, tuned: int, scratch: int) -> dict[str, Any]:
    """Return seconds and test RSE of the three trainings with one seed."""
    data = train, validation, test = load(every)
    outputs = train.inputs(slice(0, 1)).shape[2]
    network = SpikingNetwork(outputs, outputs, window=WINDOW, horizon=HORIZON, hidden=(neurons,))
    begin = time.perf_counter()
    report = sample(network, train, validation=validation, random_state=seed)
    seconds = time.perf_counter() - begin
    result: dict[str, Any] = {"seed": seed, "windows": [len(d) for d in data], "neurons": neurons}
    result["sampled"] = [seconds, rse(network, test)]
    points = train_and_test(network, data, epochs=tuned, penalty=report.lambdas, random_state=seed)
    result["sampled + fine-tuned"] = [[seconds + t, e] for t, e in points] or [result["sampled"]]
    begin = time.perf_counter()
    initialize(network, train.inputs(torch.arange(0, len(train), max(1, len(train) // 1000))), random_state=seed)
    seconds = time.perf_counter() - begin
    points = train_and_test(
        network, data, epochs=scratch, learning_rate=5e-4, penalty=1e-4, random_state=seed, patience=scratch
    )
    result["from scratch"] = [[seconds + t, e] for t, e in points]
    return result


def reached(points: list[list[float]], level: float) -> float | None:
    """Return the first time at which the error is at most `level`."""
    return next((t for t, e in points if e <= level), None)


def table(runs: list[dict[str, Any]]) -> str:
    """Return seconds and final RSE of each training, and when the one from scratch has reached the sampled one."""
    lines = ["| training | seconds | test RSE (seeds) |", "| --- | --- | --- |"]
    for name in ("sampled", "from scratch", "sampled + fine-tuned"):
        last = [r[name] if name == "sampled" else r[name][-1] for r in runs]
        errors = ", ".join(f"{e:.3f}" for _, e in last)
        lines.append(f"| {name} | {statistics.median(t for t, _ in last):.0f} | {errors} |")
    for r in runs:
        t = reached(r["from scratch"], r["sampled"][1])
        ratio = "not within its epochs" if t is None else f"after {t:.0f} s, {t / r['sampled'][0]:.0f} times the sampling time"
        lines.append(f"\nSeed {r['seed']}: from scratch reaches the sampled network's error {ratio}.")
    return "\n".join(lines)


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw RSE against time, all seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, colour in (("from scratch", "C3"), ("sampled + fine-tuned", "C0")):
        for i, r in enumerate(runs):
            t, e = zip(*([r["sampled"], *r[name]] if "sampled" in name else r[name]), strict=True)
            axes.step(t, e, where="post", color=colour, label=name if i == 0 else None)
    t, e = zip(*(r["sampled"] for r in runs), strict=True)
    axes.plot(t, e, "o", color="C0", label="sampled")
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="test RSE", title="Solar power, 4 hours ahead")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2f}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:.2f}")
    axes.legend()
    figure.savefig(path, dpi=150)


VARIANTS: dict[str, dict[str, Any]] = {
    "exponential, width 0.3 (default)": {},
    "exponential, width 0.5": {"surrogate": SlayerExponential(0.5)},
    "exponential, width 1": {"surrogate": SlayerExponential(1.0)},
    "exponential, width 0.3, detach_refractory=True": {"detach_refractory": True},
    "exponential, width 0.1, detach_refractory=True": {"surrogate": SlayerExponential(0.1), "detach_refractory": True},
    "exponential, width 0.1": {"surrogate": SlayerExponential(0.1)},
    "fast sigmoid, width 0.3": {"surrogate": FastSigmoid(0.3)},
    "arctan, width 0.3": {"surrogate": Arctan(0.3)},
    "triangular, width 1": {"surrogate": Triangular(1.0)},
    "temporal_rate 0": {"temporal_rate": 0.0},
    "temporal_rate 1": {"temporal_rate": 1.0},
    "temporal_rate 200": {"temporal_rate": 200.0},
    "learning rate 1e-3": {"learning_rate": 1e-3},
}


def variants(every: int, neurons: int) -> None:
    """Print the best validation loss of every variant, from one and the same sampled network."""
    train, validation, _ = load(every)
    outputs = train.inputs(slice(0, 1)).shape[2]
    network = SpikingNetwork(outputs, outputs, window=WINDOW, horizon=HORIZON, hidden=(neurons,))
    report = sample(network, train, validation=validation, random_state=0)
    start = copy.deepcopy(network.state_dict())
    print("| variant | validation loss before | best |\n| --- | --- | --- |")
    for name, variant in VARIANTS.items():
        options = dict(variant)
        network.load_state_dict(start)
        network.surrogate = options.pop("surrogate", SlayerExponential())
        network.detach_refractory = options.pop("detach_refractory", False)
        try:
            done = finetune(network, train, validation=validation, epochs=10, penalty=report.lambdas, **options)
            best = f"{done.best.validation_loss:.5f}"
        except TrainingDiverged as error:
            done, best = error.report, "diverges"
        print(f"| {name} | {done.records[0].validation_loss:.5f} | {best} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=32, help="use every n-th window")
    parser.add_argument("--neurons", type=int, default=200)
    parser.add_argument("--tuned", type=int, default=60, help="epochs of fine-tuning")
    parser.add_argument("--scratch", type=int, default=300, help="epochs of training from scratch")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write all runs; seeds that are there already are not repeated")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--variants", action="store_true", help="compare surrogates and learning rates instead")
    args = parser.parse_args()
    if args.variants:
        return variants(args.every, args.neurons)
    runs: list[dict[str, Any]] = []
    if args.out and args.out.exists():
        try:
            runs = json.loads(args.out.read_text())["runs"]
            table(runs)
        except (ValueError, LookupError, TypeError) as error:
            parser.error(f"--out: {args.out} does not hold runs of this script ({error!r}). Remove it, or name another.")
    for seed in range(args.seeds):
        if any(r["seed"] == seed for r in runs):
            continue
        runs.append(run(seed, args.every, args.neurons, args.tuned, args.scratch))
        print(table(runs[-1:]), file=sys.stderr)
        if args.out:
            result = {"command": " ".join(["python", *sys.argv]), "threads": torch.get_num_threads(), "runs": runs}
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(runs))
    if args.picture:
        draw(runs, args.picture)


if __name__ == "__main__":
    main()
