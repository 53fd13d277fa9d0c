r"""How well the default forecaster does on rows that are no test rows: forecasts from several origins within the known part.

    SSWIM_DATA=... python benchmarks/rolling.py --out benchmarks/results/rolling.json
    SSWIM_DATA=... python benchmarks/rolling.py --times --out benchmarks/results/rolling_times.json

Rules by which a forecaster chooses must not be settled on test parts. So the last 20 % of each series are put aside, or the
test part of the long-term benchmark. Of the rest, models are fitted on the first 50, 68 and 85 %, and tested on the 15 % that
follow. Errors are mean squared errors of channels in units of the deviation of their fitted rows. "best simple" is the best of
persistence, seasonal naive, a shared ridge and a ridge per channel (relative to the window's last value), picked with hindsight
for each origin. Models get rows without times. With ``--times`` the forecaster gets the same rows with and without their times
instead: this is what its calendar brings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
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


# Cases whose rows have times.
TIMED = (
    Case("ETTh1", 336, 96, 24),
    Case("exchange_rate", 336, 96, 7),
    Case("random walks", 96, 96, 24),
    Case("wind-farm", 48, 24, 24),
    Case("wind-farm, daily", 36, 24, 7),
    Case("departures", 168, 24, 24),
    Case("metr-la-10", 12, 24, 288),
    Case("aemo-units", 168, 24, 24),
)


def known_rows(case: Case) -> pd.DataFrame:
    """Return the rows before the test part, (rows, channels)."""
    if case.data in ("ETTh1", "exchange_rate"):
        return split_ltsf(load_ltsf(case.data), case.window, case.horizon, ltsf_set(case.data).month).known
    if case.data == "random walks":
        walks = np.random.default_rng(0).normal(size=(4000, 8)).cumsum(axis=0)
        return pd.DataFrame(walks, index=pd.date_range("2020-01-01", periods=4000, freq="h"))
    if case.data.startswith("wind-farm"):
        rows = load_wind_farm().resample("D" if "daily" in case.data else "h").mean().interpolate().bfill()
    elif case.data == "departures":
        rows = load_departures()
    else:
        rows = load_series(case.data)
    every = 9 if case.data == "aemo-units" else 1  # of its channels
    return rows.astype(float).iloc[: int(KNOWN * len(rows)), ::every]


def cut(rows: pd.DataFrame, case: Case) -> Iterator[tuple[float, pd.DataFrame, pd.DataFrame]]:
    """Yield origins, the rows for fitting, and those for test with a window before them, in units of the fitted deviation."""
    for origin in ORIGINS:
        end = int(origin * len(rows))
        fitted, later = rows[:end], rows[end - case.window : end + int(TESTED * len(rows))]
        scale = fitted.to_numpy().std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        yield origin, fitted / scale, later / scale


def measure_times(case: Case) -> list[dict[str, Any]]:
    """Return the errors of the forecaster from each origin, with the rows' times and without."""
    found = []
    for origin, fitted, later in cut(known_rows(case), case):
        model = Forecaster(case.window, case.horizon, random_state=0, verbose=0)
        blind = model.fit(fitted.to_numpy()).evaluate(later.to_numpy()).rmse ** 2
        timed = model.fit(fitted).evaluate(later).rmse ** 2
        line: dict[str, Any] = {**case._asdict(), "origin": origin, "rows": len(fitted)}
        line |= {"errors": {"without times": blind, "with times": timed}, "reads_calendar": model.model_.reads_calendar}
        found.append(line)
        print(line, file=sys.stderr, flush=True)
    return found


def table_times(lines: list[dict[str, Any]]) -> str:
    """Return by how much times change the error, origin by origin, in %."""
    text = ["| case | " + " | ".join(f"{origin:.0%} of the rows" for origin in ORIGINS) + " |", "| --- |" + " --- |" * 3]
    for case in dict.fromkeys((line["data"], line["window"], line["horizon"]) for line in lines):
        errors = [line["errors"] for line in lines if (line["data"], line["window"], line["horizon"]) == case]
        changes = [f"{100 * (e['with times'] / e['without times'] - 1):+.1f} %" for e in errors]
        text.append(f"| {case[0]} {case[1]} -> {case[2]} | " + " | ".join(changes) + " |")
    return "\n".join(text)


def measure(case: Case) -> list[dict[str, Any]]:
    """Return the errors of all models from each origin."""
    found = []
    shape = case.window, case.horizon
    for origin, table, test in cut(known_rows(case), case):
        fitted, later, end = table.to_numpy(), test.to_numpy(), len(table)
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
    names = sorted({c.data for c in (*CASES, *TIMED)})
    parser.add_argument("--data", action="append", choices=names, help="a set; may be repeated")
    parser.add_argument("--times", action="store_true", help="measure what times of rows bring")
    parser.add_argument("--out", type=Path, help="where to write all numbers, as JSON")
    given = parser.parse_args()
    cases, run, show = (TIMED, measure_times, table_times) if given.times else (CASES, measure, table)
    lines = [line for case in cases if not given.data or case.data in given.data for line in run(case)]
    print(show(lines))
    if given.out:
        result = {"command": " ".join(["python", *sys.argv]), "setting": setting(), "runs": lines}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
