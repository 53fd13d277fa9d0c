"""What forecasts cost, and their errors: the default forecaster, smaller ones, the paper's, a ridge and a dense network.

    SSWIM_DATA=... python benchmarks/costs.py               # measures all, writes the JSON and the table of docs/costs.md
    SSWIM_DATA=... python benchmarks/costs.py --only paper  # measures models of this name again
    python benchmarks/costs.py --document                   # writes the table from the JSON

The first 80 % of the rows are for fitting, the others for testing. Errors are those of all test windows. Costs are means over
200 test windows. Seed 0. A model is fitted once, so differences of errors below 1 % mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor

from sswim import Direct, Forecaster
from sswim.bench.measure import setting
from sswim.datasets import load_ltsf, load_wind_farm
from sswim.evaluate import RidgeOnLags
from sswim.evaluate.baselines import Baseline
from sswim.evaluate.costs import Costs, Job
from sswim.evaluate.energy import FIGURES, Energy

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "costs.md", ROOT / "benchmarks" / "results" / "costs.json"
PART = re.compile(r"(<!-- (costs|figures) -->\n).*?(<!-- end -->)", re.DOTALL)
WINDOW, HORIZON, HIDDEN = 168, 24, (20,)
DATA: dict[str, Callable[[], pd.DataFrame]] = {"wind farm": load_wind_farm, "ETTh1": lambda: load_ltsf("ETTh1")}
COMMON: dict[str, Any] = {"random_state": 0, "verbose": 0}
MODELS: dict[str, Callable[[], Forecaster]] = {
    "default": lambda: Forecaster(WINDOW, HORIZON, **COMMON),
    "populations of 16": lambda: Forecaster(WINDOW, HORIZON, readout=Direct(population=16), **COMMON),
    "populations of 4": lambda: Forecaster(WINDOW, HORIZON, readout=Direct(population=4, singles=4), **COMMON),
    "exponential kernel": lambda: Forecaster(WINDOW, HORIZON, kernel="exponential", **COMMON),
    "rows (`skip=True`)": lambda: Forecaster(WINDOW, HORIZON, readout=Direct(skip=True), **COMMON),
    "300 LIF neurons (`profile='nir'`)": lambda: Forecaster(WINDOW, HORIZON, hidden=(300,), profile="nir", **COMMON),
    "paper": lambda: Forecaster.paper(WINDOW, HORIZON, **COMMON),
}
COLUMNS = ("parameters", "spikes", "accumulates", "multiply_accumulates", "updates", "neuron_multiply_accumulates")
OTHERS = ("ridge per channel", "dense network")


class Dense(Baseline):
    """A dense network with one hidden layer, shared by all channels: it sees standardised windows relative to their mean."""

    def fit(self, series: pd.DataFrame) -> Dense:
        """Fit to every second window. A tenth of them decides when to stop."""
        windows = self.windows(series, stride=2)
        every = slice(0, len(windows))
        x, y = windows.inputs(every).numpy(), windows.targets(every).numpy()
        self.spread = x.std(axis=(0, 1)) + 1e-12
        mean = x.mean(axis=1, keepdims=True)
        flat = [((v - mean) / self.spread).transpose(0, 2, 1).reshape(-1, v.shape[1]) for v in (x, y)]
        self.network = MLPRegressor(hidden_layer_sizes=HIDDEN, early_stopping=True, random_state=0, max_iter=100).fit(*flat)
        return self

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        mean = x.mean(axis=1, keepdims=True)
        flat = ((x - mean) / self.spread).transpose(0, 2, 1).reshape(-1, self.window)
        y = self.network.predict(flat).reshape(len(x), -1, self.horizon).transpose(0, 2, 1)
        return y * self.spread + mean


def row_of(error: float, costs: Costs, seconds: float) -> dict[str, Any]:
    """Return a row: an error, and all costs."""
    facts = costs.to_dict()
    return {"rse": error, "seconds": seconds, **{name: value for name, value in facts.items() if name != "title"}}


def measured(name: str, series: pd.DataFrame, only: str) -> dict[str, Any]:
    """Return the rows of all models, or of those whose name contains `only`, by name."""
    cut = int(0.8 * len(series))
    train, test = series.iloc[:cut], series.iloc[cut:]
    found: dict[str, Any] = {}
    job = Job(WINDOW, HORIZON, series.shape[1], WINDOW, HORIZON, HIDDEN)
    others = Costs("", "forecast of one channel", (), 200 * series.shape[1], job).compare().models[1:]
    baselines = dict(zip(OTHERS, zip((RidgeOnLags, Dense), others, strict=True), strict=True))
    for key in (*MODELS, *OTHERS):
        if only not in key:
            continue
        begin = time.perf_counter()
        model = MODELS[key]() if key in MODELS else baselines[key][0](WINDOW, HORIZON)
        model.fit(train)
        seconds = time.perf_counter() - begin
        costs = model.costs(test) if isinstance(model, Forecaster) else baselines[key][1]
        found[key] = row_of(model.evaluate(test).rse, costs, seconds)
        print(name, key, found[key]["rse"], f"{seconds:.1f} s", flush=True)
    return found


def table(results: dict[str, Any]) -> str:
    """Return the table of all models and data sets."""
    lines = [
        "| data, model | RSE | parameters | spikes | accumulates | multiply-acc. | updates | multiply-acc. in neurons "
        "| kilobytes moved | energy of operations | with on-chip memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for data, rows in results["data"].items():
        order = [name for name in (*MODELS, *OTHERS) if name in rows] + [
            name for name in rows if name not in (*MODELS, *OTHERS)
        ]
        for name in order:
            row = rows[name]
            numbers = [f"{row[key]:,.0f}" for key in COLUMNS]
            energy = [str(Energy(**each)) for each in row["energy"][:2]]
            cells = [f"{data}, {name}", f"{row['rse']:.3f}", *numbers, f"{row['traffic'] / 1000:,.0f}", *energy]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figures() -> str:
    """Return the table of published figures."""
    lines = ["| | picojoules | of one | source |", "| --- | --- | --- | --- |"]
    for name, figure in FIGURES.items():
        size = f"{figure.low:,g}" if figure.low == figure.high else f"{figure.low:,g} to {figure.high:,g}"
        lines.append(f"| {name} | {size} | {figure.per} | {'; '.join(filter(None, (figure.source, figure.note)))} |")
    return "\n".join(lines)


def documented(page: str, results: dict[str, Any]) -> str:
    """Return the page with its tables as the results and the figures have them."""
    made = {"costs": table(results), "figures": figures()}
    return PART.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", action="store_true", help="write the table from the JSON, and measure nothing")
    parser.add_argument("--only", default="", help="measure models whose names contain this, and keep the others")
    parser.add_argument("--data", choices=DATA, help="measure on this set, and keep the others")
    chosen = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"data": {}}
    if not chosen.document:
        torch.set_num_threads(1)
        for name, load in DATA.items():
            if chosen.data in (None, name):
                results["data"][name] = results["data"].get(name, {}) | measured(name, load(), chosen.only)
                write(
                    RESULTS,
                    json.dumps({**results, "setting": setting(), "window": WINDOW, "horizon": HORIZON}, indent=1) + "\n",
                )
        results = json.loads(RESULTS.read_text())
    if PAGE.exists():
        write(PAGE, documented(PAGE.read_text(), results))


if __name__ == "__main__":
    main()
