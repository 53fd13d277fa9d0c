"""Demonstrations: a real wind farm, forecast a day ahead and compared with others' forecasts, and images, classified."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sswim.classifier import Classifier
from sswim.datasets import load_wind_farm
from sswim.datasets.classified import classified
from sswim.evaluate.baselines import Persistence, RidgeOnLags
from sswim.forecaster import Forecaster
from sswim.plots import plot_class_rates, plot_confusion, plot_errors, plot_forecast, plot_raster, plot_spikes
from sswim.report import Facts

__all__ = ["run_classification", "run_demo"]

WINDOW, HORIZON = 48, 24


def run_demo(out: Path | None, verbose: int = 1, hidden: int = 100, hours: int | None = None) -> Facts:
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
        Use this many first hours only.
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


def run_classification(
    data: str,
    out: Path | None = None,
    model_file: Path | None = None,
    samples: int | None = None,
    paper: bool = False,
    inside: Facts | None = None,
    **options: Any,
) -> Facts:
    """Fit samples of a data set and return the accuracy on others; draw a raster, rates and confusions into `out`.

    Parameters
    ----------
    data : str
        One of `sswim.datasets.classified.CLASSIFIED`.
    out, model_file : Path, optional
        Where the picture and the model go.
    samples : int, optional
        Train on this many first samples only.
    paper : bool
        Fit the paper's classifier.
    inside : dict, optional
        Options inside of option objects, such as ``{"steps__weights": "random"}``.
    options
        Of `Classifier`, past those that suit the data.
    """
    source = classified(data)
    X, y, test_X, test_y = source.load()
    train, test = (X[:samples], y[:samples]), (test_X, test_y)
    make, suited = (Classifier.paper, source.paper) if paper else (Classifier, source.ours)
    begin = time.perf_counter()
    model = make(**{**suited, **options}).set_params(**(inside or {})).fit(*train)
    seconds = time.perf_counter() - begin
    if model_file is not None:
        model.save(model_file)
    if out is not None:
        figure = Figure(figsize=(11, 8), layout="constrained")
        axes = figure.subplot_mosaic([["raster", "confusion"], ["rates", "confusion"]])
        plot_raster(model, test[0][0], axes["raster"])
        axes["raster"].set_title(f"one sample through the network (class {test[1][0]})")
        plot_class_rates(model, test[0][:1000], test[1][:1000], ax=axes["rates"])
        plot_confusion(model, *test, ax=axes["confusion"])
        figure.savefig(out, dpi=120)
    return {
        "data": data,
        "accuracy": float(model.score(*test)),
        "samples": len(train[0]),
        "test_samples": len(test[0]),
        "seconds": seconds,
        "summary": model.summary(),
    }
