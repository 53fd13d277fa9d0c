r"""How well the default forecaster does on rows that are no test rows: forecasts from several origins within the known part.

    SSWIM_DATA=... python benchmarks/rolling.py --out benchmarks/results/rolling.json

Rules by which a forecaster chooses must not be settled on test parts. So the last 20 % of each series are put aside, or the
test part of the long-term benchmark. Of the rest, models are fitted on the first 50, 68 and 85 %, and tested on the 15 % that
follow. Errors are mean squared errors of channels in units of the deviation of their fitted rows. "best simple" is the best of
persistence, seasonal naive, a shared ridge and a ridge per channel (relative to the window's last value), picked with hindsight
for each origin.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sswim import Forecaster
from sswim.bench.measure import setting
from sswim.datasets import load_departures, load_wind_farm
from sswim.datasets.ltsf import load_ltsf, ltsf_set
from sswim.datasets.series import load_series
from sswim.evaluate.baselines import NLinear, Persistence, RidgeOnLags, SeasonalNaive
from sswim.evaluate.ltsf import split_ltsf

ORIGINS, TESTED = (0.5, 0.68, 0.85), 0.15
KNOWN = 0.8


class Case(NamedTuple):
    """A series, and what is forecast of it."""

    data: str
    window: int
    horizon: int
    season: int


CASES = (
    Case("ETTh1", 336, 96, 24),
    Case("ETTh1", 336, 720, 24),
    Case("exchange_rate", 336, 96, 7),
    Case("exchange_rate", 336, 336, 7),
    Case("exchange_rate", 336, 720, 7),
    Case("random walks", 96, 96, 24),
    Case("wind-farm", 48, 24, 24),
    Case("wind-farm, daily", 36, 24, 7),
    Case("departures", 168, 24, 24),
    Case("electricity-6", 168, 24, 24),
    Case("metr-la-10", 12, 24, 288),
)


def known_rows(case: Case) -> np.ndarray:
    """Return the rows before the test part, (rows, channels)."""
    if case.data in ("ETTh1", "exchange_rate"):
        return split_ltsf(load_ltsf(case.data), case.window, case.horizon, ltsf_set(case.data).month).known
    if case.data == "random walks":
        return np.random.default_rng(0).normal(size=(4000, 8)).cumsum(axis=0)
    if case.data.startswith("wind-farm"):
        rows = load_wind_farm().resample("D" if "daily" in case.data else "h").mean().interpolate().bfill()
    elif case.data == "departures":
        rows = load_departures()
    else:
        rows = load_series(case.data)
    values = rows.to_numpy(dtype=float)
    return values[: int(KNOWN * len(values))]


def measure(case: Case) -> list[dict[str, Any]]:
    """Return the errors of all models from each origin."""
    rows, found = known_rows(case), []
    shape = case.window, case.horizon
    for origin in ORIGINS:
        end = int(origin * len(rows))
        fitted, later = rows[:end], rows[end - case.window : end + int(TESTED * len(rows))]
        scale = fitted.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        fitted, later = fitted / scale, later / scale
        simple = {
            "persistence": Persistence(*shape),
            "seasonal naive": SeasonalNaive(*shape, case.season),
            "shared ridge": NLinear(*shape),
            "ridge per channel": RidgeOnLags(*shape, relative="last"),
        }
        begin = time.perf_counter()
        model = Forecaster(*shape, random_state=0, verbose=0).fit(fitted)
        line: dict[str, Any] = {**case._asdict(), "origin": origin, "rows": end, "seconds": time.perf_counter() - begin}
        line["errors"] = {name: float(m.fit(fitted).evaluate(later).rmse ** 2) for name, m in simple.items()}
        line["errors"]["sswim"] = float(model.evaluate(later).rmse ** 2)
        found.append(line)
        print(line, file=sys.stderr, flush=True)
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """Return for each case how much sswim's error is above that of each simple model, as a mean over origins, in %."""
    rows = []
    for line in lines:
        errors = dict(line["errors"])
        ours, best = errors.pop("sswim"), min(line["errors"][m] for m in line["errors"] if m != "sswim")
        ratios = {name: ours / e for name, e in errors.items()} | {"best simple": ours / best}
        rows.append({"case": f"{line['data']} {line['window']} -> {line['horizon']}"} | ratios)
    means = pd.DataFrame(rows).groupby("case", sort=False).agg(lambda v: 100 * (np.exp(np.log(v).mean()) - 1))
    means.loc["mean"] = means.mean()
    text = ["| sswim's error against | " + " | ".join(means.columns) + " |", "| --- |" + " --- |" * len(means.columns)]
    text += [f"| {name} | " + " | ".join(f"{v:+.1f} %" for v in row) + " |" for name, row in means.iterrows()]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", choices=sorted({c.data for c in CASES}), help="a set; may be repeated")
    parser.add_argument("--out", type=Path, help="where to write all numbers, as JSON")
    given = parser.parse_args()
    lines = [line for case in CASES if not given.data or case.data in given.data for line in measure(case)]
    print(table(lines))
    if given.out:
        result = {"command": " ".join(["python", *sys.argv]), "setting": setting(), "runs": lines}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
