"""S-SWIM with the paper's settings on aemo_solar_10min: test RSE of sampled and of random weights, time and memory.

    python benchmarks/solar.py --out benchmarks/results/solar.json
    python benchmarks/solar.py --stride 1 --seeds 1 --weights dot --out benchmarks/results/solar_all_windows.json

Window 168, horizon 24, split 0.6/0.2/0.2 in time, 750 neurons, Morlet kernel, table `tab:sswim_params`. Two protocols: `train`
scales each channel by its range in the training windows, `seqsnn` by its range in the whole series, as the reference
tables of the literature do. Two grids for lambda: the paper's, up to 0.5, and ours, which goes on while the validation
error falls. RSE is given in the data's units and with every channel scaled alike.
The data is read from the folder named by the environment variable SSWIM_DATA.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import sswim
from sswim import Forecaster, LambdaSearch, Scaling, Steps, Trajectory
from sswim.datasets import read_series
from sswim.evaluate import Persistence
from sswim.machine import peak_memory

WINDOW, HORIZON = 168, 24


def setting() -> dict:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit,
        "sswim": sswim.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stride", type=int, default=8, help="use every n-th window for fitting")
    parser.add_argument("--weights", nargs="+", default=["dot", "random"])
    parser.add_argument("--protocols", nargs="+", default=["seqsnn", "train"])
    parser.add_argument("--grids", nargs="+", default=["paper", "extended"], help="lambda grid: the paper's, or extended")
    parser.add_argument("--neurons", type=int, default=750)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    path = Path(os.environ.get("SSWIM_DATA", ".")) / "aemo_solar_10min.npz"
    if not path.is_file():
        sys.exit(f"{path} is missing: set SSWIM_DATA to the folder that holds it.")
    raw = read_series(path)
    total = len(raw) - WINDOW - HORIZON + 1
    n_train, n_test = int(total * 0.6), int(total * 0.2)
    n_held_out = total - n_train - n_test
    runs = []
    for protocol in args.protocols:
        series = raw if protocol == "train" else (raw - raw.min()) / (raw.max() - raw.min())
        unit = np.ones(raw.shape[1]) if protocol == "train" else (raw.max() - raw.min()).to_numpy()
        fitted = series.iloc[: n_train + n_held_out + WINDOW + HORIZON - 1]
        test = series.iloc[n_train + n_held_out :]
        for grid, weights in itertools.product(args.grids, args.weights):
            for seed in range(args.seeds):
                model = Forecaster.paper(
                    WINDOW,
                    HORIZON,
                    hidden=(args.neurons,),
                    steps=Steps(weights=weights),
                    readout=Trajectory(regularization=LambdaSearch(extend=grid == "extended"), stride=args.stride),
                    scaling=Scaling("channel", floor=False) if protocol == "train" else Scaling("none", False, False),
                    validation=n_held_out / (n_train + n_held_out),
                    random_state=seed,
                )
                begin = time.perf_counter()
                model.fit(fitted)
                seconds = time.perf_counter() - begin
                score = model.evaluate(test)
                # Channels weigh by their size in the data's units and alike in scaled units, whatever the protocol.
                mse = score.per_channel["rmse"].to_numpy() ** 2
                spread = mse / score.per_channel["rse"].to_numpy() ** 2
                run = {
                    "protocol": protocol,
                    "grid": grid,
                    "weights": weights,
                    "seed": seed,
                    "rse": float(np.sqrt((mse * unit**2).sum() / (spread * unit**2).sum())),
                    "rse_scaled": score.rse_scaled if protocol == "train" else score.rse,
                    "train_windows": model.report_.samples,
                    "test_windows": score.windows,
                    "fit_seconds": seconds,
                    "peak_memory_gib": (peak_memory() or 0) / 2**30,
                    "lambda": float(model.report_.lambdas.median()),
                    "firing_rate": float(model.report_.layers[0].rates.mean()),
                }
                runs.append(run)
                print(json.dumps(run), flush=True)
    means = {}
    for protocol, grid, weights in itertools.product(args.protocols, args.grids, args.weights):
        chosen = [r for r in runs if (r["protocol"], r["grid"], r["weights"]) == (protocol, grid, weights)]
        for key in ("rse", "rse_scaled"):
            values = np.array([r[key] for r in chosen])
            means[f"{protocol}, {grid}, {weights}, {key}"] = [round(values.mean(), 4), round(values.std(), 4)]
    persistence = Persistence(WINDOW, HORIZON).evaluate(raw.iloc[n_train + n_held_out :])
    result = {**setting(), "persistence_rse": persistence.rse, "mean_and_deviation": means, "runs": runs}
    print(json.dumps(means, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
