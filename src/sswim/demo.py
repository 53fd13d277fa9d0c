"""The demonstration: a real wind farm, forecast a day ahead, beside the two baselines everybody has and the paper's model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sswim.baselines import Persistence, RidgeOnLags
from sswim.datasets import load_wind_farm
from sswim.estimators import Forecaster
from sswim.plots import plot_errors, plot_forecast, plot_spikes

__all__ = ["run_demo"]

WINDOW, HORIZON = 48, 24


def run_demo(out: Path | None, verbose: int = 1, hidden: int = 100, hours: int | None = None) -> dict[str, Any]:
    """Fit the embedded wind farm, hourly, and return the scores on its last fifth; draw a picture into `out`.

    Parameters
    ----------
    out : Path, optional
        Where the picture goes.
    verbose : int
        1 shows progress bars.
    hidden : int
        Number of hidden neurons.
    hours : int, optional
        Use the first so many hours only.
    """
    series = load_wind_farm().resample("h").mean().iloc[:hours]
    cut = int(len(series) * 0.8)
    train, test = series.iloc[:cut], series.iloc[cut:]
    begin = time.perf_counter()
    model = Forecaster(WINDOW, HORIZON, hidden=(hidden,), random_state=0, verbose=verbose).fit(train)
    seconds = time.perf_counter() - begin
    paper = Forecaster.paper(WINDOW, HORIZON, hidden=(3 * hidden,), random_state=0, verbose=verbose).fit(train)
    scores = {
        "persistence": Persistence(WINDOW, HORIZON).evaluate(test),
        "ridge on lags": RidgeOnLags(WINDOW, HORIZON).fit(train).evaluate(test),
        "the paper's model": paper.evaluate(test),
        "sswim": model.evaluate(test),
    }
    if out is not None:
        figure = Figure(figsize=(10, 8), layout="constrained")
        axes = figure.subplot_mosaic([["forecast", "forecast"], ["spikes", "errors"]], height_ratios=[1, 1.2])
        at = WINDOW + len(test) // 3
        plot_forecast(model, test, "power_R80711", at, axes["forecast"])
        axes["forecast"].set_title("Wind farm La Haute Borne, one turbine's power in kW, hourly")
        plot_spikes(model, test, at, ax=axes["spikes"])
        plot_errors({name: score.per_step["rse"] for name, score in scores.items()}, axes["errors"])
        figure.savefig(out, dpi=120)
    return {
        "seconds": seconds,
        "windows": scores["sswim"].windows,
        "scores": {name: {"rse": e.rse, "mae": e.mae, "rmse": e.rmse} for name, e in scores.items()},
        "summary": model.summary(),
    }
