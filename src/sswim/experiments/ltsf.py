"""The public benchmark of long-term forecasting: our models, baselines, and published results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sswim.datasets.images import data_folder
from sswim.datasets.ltsf import LTSF, find_ltsf, load_ltsf, ltsf_set
from sswim.drawing import EMPHASIS, legend_below, log_ticks, marked, over_horizon, panels
from sswim.evaluate.baselines import Baseline, DLinear, NLinear, Persistence, RidgeOnLags, SeasonalNaive
from sswim.evaluate.ltsf import FITTED, split_ltsf
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import given, thrown
from sswim.forecaster import Forecaster
from sswim.options import warn
from sswim.readout.direct import Direct

__all__ = ["ltsf", "published_ltsf"]

# Ours: all options that differ from the forecaster's defaults.
OURS: dict[str, Settings] = {
    "sswim with rows": {"readout": Direct(skip=True)},
    "sswim": {},
}
# Each maps window, horizon, season and the part of the windows for validation to a model.
BASELINES: dict[str, Callable[[int, int, int, float], Baseline]] = {
    "persistence": lambda w, h, season, v: Persistence(w, h),
    "seasonal naive": lambda w, h, season, v: SeasonalNaive(w, h, season),
    "ridge per channel": lambda w, h, season, v: RidgeOnLags(w, h, relative="last", validation=v),
    "shared ridge (NLinear)": lambda w, h, season, v: NLinear(w, h, validation=v),
    "absolute ridge per channel": lambda w, h, season, v: RidgeOnLags(w, h, validation=v),
    "absolute shared ridge": lambda w, h, season, v: RidgeOnLags(w, h, shared=True, validation=v),
    "dlinear": lambda w, h, season, v: DLinear(w, h, validation=v),
}
MODELS = (*BASELINES, "paper", *OURS)
NEURONS, PAPER_WINDOWS = 750, 1000


def published_ltsf() -> pd.DataFrame:
    """Return published results: model, spiking, data, window, horizon, mse, mae, source, seen, note.

    `source` is the publication, `seen` is where the number was read, and `note` says how the protocol differs from ours. The
    window is missing where it is not known.
    """
    with files("sswim.experiments").joinpath("published_ltsf.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype={"window": "Int64"})


def chosen(data: Sequence[str]) -> tuple[str, ...]:
    """Return the sets that were asked for, or those of the benchmark whose files are there, or the embedded wind farm."""
    if data:
        for name in data:
            ltsf_set(name)
        return tuple(data)
    names = [name for name, one in LTSF.items() if one.channels]
    found = [name for name in names if find_ltsf(name) is not None]
    missing = [name for name in names if name not in found]
    if missing:
        warn(
            f"data: {', '.join(missing)} of the benchmark's sets are not in {data_folder()}: this runs on "
            f"{', '.join(found or ['wind-farm'])}. The error for `--data NAME` says where to get a set.",
            stacklevel=3,
        )
    return tuple(found or ["wind-farm"])


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = (),
    windows: Sequence[int] = (),
    models: Sequence[str] = MODELS,
    fitted: Sequence[str] = ("both",),
    neurons: int = NEURONS,
    paper_windows: int = PAPER_WINDOWS,
) -> list[Settings]:
    """Return the settings of all runs; models without anything random take part once.

    `horizons` and `windows` are by default those of each set. With ``fitted="training"`` models do not get the validation
    rows, as in the published results. `neurons` is the width of the paper's network, which is fitted on about
    `paper_windows` windows, evenly spaced.
    """
    same = given(
        neurons=None if neurons == NEURONS else neurons,
        paper_windows=None if paper_windows == PAPER_WINDOWS else paper_windows,
    )
    return [
        {"data": name, "window": window, "horizon": horizon, "model": model, "fitted": rows, **same, "seed": seed}
        for seed in range(seeds)
        for name in chosen(data)
        for window in windows or ltsf_set(name).windows
        for horizon in horizons or ltsf_set(name).horizons
        for rows in fitted
        for model in models
        if seed == 0 or model not in BASELINES
    ]


@lru_cache(maxsize=1)
def _load(data: str) -> pd.DataFrame:
    return load_ltsf(data)


def economy(model: Baseline | Forecaster, later: pd.DataFrame | np.ndarray) -> Settings:
    """Return what a fitted model's spikes cost on test windows, as plain numbers to record with a run."""
    if not isinstance(model, Forecaster):
        return {}
    costs = model.costs(later)
    return {"spikes": costs.spikes, "synaptic_operations": costs.synaptic_operations}


def measure(
    data: str,
    window: int,
    horizon: int,
    model: str,
    fitted: str,
    seed: int,
    neurons: int = NEURONS,
    paper_windows: int = PAPER_WINDOWS,
) -> Settings:
    """Return the errors of a model over all test windows, in standardised units, and the seconds that it took."""
    kind = ltsf_set(data)
    cut = split_ltsf(_load(data), window, horizon, kind.month, fitted)
    common: Settings = {"validation": cut.validation, "random_state": seed, "verbose": 0}
    made: Baseline | Forecaster
    if model in BASELINES:
        made = BASELINES[model](window, horizon, kind.season, cut.validation)
    elif model == "paper":
        stride = max(1, (len(cut.known) - window - horizon + 1) // paper_windows)
        made = Forecaster.paper(window, horizon, hidden=(neurons,), **thrown(stride), **common)
    else:
        made = Forecaster(window, horizon, **OURS[model], **common)
    begin = time.perf_counter()
    made.fit(cut.known)
    end = time.perf_counter()
    errors = made.evaluate(cut.later)
    if errors.windows != cut.windows:
        raise RuntimeError(f"{model}: was evaluated on {errors.windows} windows, but the test part has {cut.windows}.")
    return {
        "mse": errors.rmse**2,
        "mae": errors.mae,
        "test_windows": errors.windows,
        "fit_seconds": end - begin,
        "test_seconds": time.perf_counter() - end,
        **economy(made, cut.later),
    }


def _theirs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the published results for the sets and horizons that were measured."""
    measured = set(zip(runs["data"], runs["horizon"], strict=True))
    theirs = published_ltsf()
    return theirs[[pair in measured for pair in zip(theirs["data"], theirs["horizon"], strict=True)]]


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean errors over seeds, one row per set, model and window, and the published ones below those of each set."""
    row = ["data", "model", "window", "fitted", "seeds"]
    ours = runs.assign(seeds=count_seeds(runs, row[:-1], "horizon"), window=runs["window"].map(str))
    theirs = _theirs(runs)
    theirs = theirs.assign(
        model=theirs["model"].where(theirs["spiking"] == "no", theirs["model"] + " (spiking)"),
        window=theirs["window"].map(lambda w: "-" if pd.isna(w) else str(w)),
        fitted="training",
        seeds="published",
    )
    parts = []
    for name in dict.fromkeys(runs["data"]):
        horizons = sorted(set(runs.loc[runs["data"] == name, "horizon"]))
        for part in (ours[ours["data"] == name], theirs[theirs["data"] == name]):
            if len(part):
                wide = part.pivot_table(["mse", "mae"], row, "horizon", sort=False)
                wide = wide.reindex(columns=pd.MultiIndex.from_product([["mse", "mae"], horizons]))
                means = {f"{e.upper()} mean": wide.loc[:, e].mean(axis=1, skipna=False) for e in ("mse", "mae")}
                shown = {f"{e.upper()} {h}": wide[e, h] for h in horizons for e in ("mse", "mae")}
                parts.append(pd.DataFrame({**shown, **(means if len(horizons) > 1 else {})}).reset_index())
    whole = pd.concat(parts, ignore_index=True)
    return whole[sorted(whole, key=lambda column: str(column).endswith(" mean"))]  # means last


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the MSE over the horizon, a panel per set and window; published results in grey, spiking ones dotted."""
    places = list(dict.fromkeys(zip(runs["data"], runs["window"], strict=True)))
    figure, axes = panels(len(places))
    theirs = _theirs(runs)
    for ax, (name, window) in zip(axes, places, strict=True):
        for keys, part in theirs[theirs["data"] == name].groupby(["model", "window"], sort=False, dropna=False):
            if not str(keys[0]).startswith("Repeat"):
                spiking = (part["spiking"] == "yes").any()
                ax.plot(part["horizon"], part["mse"], color="0.75", lw=1, ls=":" if spiking else "-")
        here = runs[(runs["data"] == name) & (runs["window"] == window)]
        for (model, rows), part in here.groupby(["model", "fitted"], sort=False):
            mean = part.groupby("horizon")["mse"].mean()
            style = EMPHASIS if model == "sswim" else {**marked(MODELS.index(str(model))), "lw": 1.2}
            text = str(model) if rows == "both" else f"{model}, training rows only"
            ax.plot(mean.index, mean, label=text, ms=4, ls="-" if rows == "both" else "--", **style)
        ax.set_title(f"{name}, window {window}")
        over_horizon(ax, here["horizon"])
        log_ticks(ax)
    figure.supylabel("test MSE, standardised (grey: published)")
    legend_below(figure, axes)
    return figure


ltsf = Experiment(
    cells,
    measure,
    table,
    draw,
    order={"data": list(LTSF), "model": MODELS, "window": None, "fitted": FITTED, "horizon": None, "seed": None},
    quick={"data": ("wind-farm",), "seeds": 1, "windows": (96,), "horizons": (96,), "neurons": 60, "paper_windows": 200},
    choices={"models": MODELS, "fitted": FITTED},
)
