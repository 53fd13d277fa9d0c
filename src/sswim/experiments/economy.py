"""How many spikes a forecast needs: the error over the size of the populations."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from sswim.datasets.series import SERIES
from sswim.drawing import legend_below, log_ticks, marked
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import ORIGINAL, STAND_INS, chosen, fit_and_test, given, label, task
from sswim.forecaster import Forecaster
from sswim.readout.direct import Direct

__all__ = ["economy"]

POPULATIONS = (2, 4, 8, 16, 32, 64, 128)


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = (24,),
    populations: Sequence[int] = POPULATIONS,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs."""
    return [
        {"data": name, "horizon": horizon, "population": population, "seed": seed, **given(window=window)}
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, STAND_INS)
        for horizon in horizons
        for population in populations
    ]


def measure(data: str, horizon: int, population: int, seed: int, window: int | None = None) -> Settings:
    """Return the test scores of the default forecaster with populations of some size, and what its spikes cost."""
    cut = task(data, horizon, window=window)
    options: Settings = {"validation": cut.validation, "random_state": seed, "verbose": 0}
    model = Forecaster(cut.window, horizon, readout=Direct(population=population, singles=min(8, population)), **options)
    scores = fit_and_test(model, cut)
    costs = model.costs(cut.later)
    return {**scores, "spikes": costs.spikes, "synaptic_operations": costs.synaptic_operations}


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return RSE, spikes and synaptic operations of a forecast of one channel, means over seeds, populations as rows."""
    runs = runs.assign(cell=label(runs))
    runs = runs.assign(seeds=count_seeds(runs, ["population"], "cell"))
    parts = {}
    for cell in dict.fromkeys(runs["cell"]):
        mean = runs[runs["cell"] == cell].groupby(["population", "seeds"])
        parts[f"{cell}, RSE"] = mean["rse_units"].mean()
        parts[f"{cell}, spikes"] = mean["spikes"].mean().map(lambda v: f"{v:,.0f}")
        parts[f"{cell}, operations"] = mean["synaptic_operations"].mean().map(lambda v: f"{v:,.0f}")
    return pd.DataFrame(parts).reset_index()


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the error over the spikes of a forecast, a line per data set and horizon."""
    runs = runs.assign(cell=label(runs))
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    ax = figure.subplots()
    for i, cell in enumerate(dict.fromkeys(runs["cell"])):
        mean = runs[runs["cell"] == cell].groupby("population")[["spikes", "rse_units"]].mean()
        ax.plot(mean["spikes"], mean["rse_units"] / mean["rse_units"].min(), ms=5, label=cell, **marked(i))
        for population, (spikes, error) in (mean / [1, mean["rse_units"].min()]).iterrows():
            ax.annotate(str(population), (spikes, error), xytext=(2, 4), textcoords="offset points", fontsize=8)
    ax.set(xlabel="spikes per forecast of one channel", ylabel="test RSE, relative to the lowest")
    ax.set_title("numbers: neurons per population", fontsize=9)
    ax.margins(0.07)
    log_ticks(ax, "x")
    legend_below(figure, [ax])
    return figure


economy = Experiment(
    cells,
    measure,
    table,
    draw,
    order={"data": list(SERIES), "horizon": None, "population": None, "seed": None},
    quick={"data": ("wind-farm",), "seeds": 1, "populations": (4, 16, 64)},
    choices={},
)
