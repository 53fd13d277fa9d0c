"""Demonstrations: flights and a wind farm, forecast a day ahead and compared with others' forecasts; and images, classified."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from sswim.classifier import Classifier
from sswim.datasets import load_departures, load_wind_farm
from sswim.datasets.classified import classified
from sswim.evaluate.baselines import Persistence, RidgeOnLags, SeasonalNaive
from sswim.evaluate.metrics import Evaluation
from sswim.forecaster import Forecaster
from sswim.plots import plot_class_rates, plot_confusion, plot_errors, plot_forecast, plot_raster, plot_spikes
from sswim.report import Facts
from sswim.writing import whole_file

__all__ = ["run_classification", "run_demo", "typical_row"]

HORIZON = 24
# The paper's model has this many times as many neurons as the default one has sampled neurons.
WIDER = 15


@dataclass(frozen=True)
class Story:
    """A series of the demonstration: its title, hourly rows, the window, the channel that is drawn, and what that measures."""

    title: str
    load: Callable[[], pd.DataFrame]
    window: int
    channel: str
    measures: str


STORIES = {
    "flights": Story("Flights that leave New York's airports", load_departures, 168, "JFK", "departures from JFK per hour"),
    "wind": Story(
        "Power and wind at La Haute Borne, four turbines",
        lambda: load_wind_farm().resample("h").mean(),
        48,
        "power_R80711",
        "power of turbine R80711, kW",
    ),
}


def run_demo(out: Path | None, verbose: int = 1, hidden: int = 20, hours: int | None = None) -> Facts:
    """Fit the embedded series, and return the scores on the last fifth of each; draw a picture into `out`.

    Parameters
    ----------
    out : Path, optional
        Where the picture goes. The last model and its test rows go beside it, as a model file and a table.
    verbose : int
        1 shows progress bars.
    hidden : int
        Number of sampled neurons.
    hours : int, optional
        Use this many first hours only.
    """
    results: Facts = {}
    figure = Figure(figsize=(11, 9), layout="constrained")
    axes = figure.subplots(3, 2, height_ratios=[1, 1, 1])
    for number, (name, story) in enumerate(STORIES.items()):
        series = story.load().iloc[:hours]
        cut = int(len(series) * 0.8)
        train, test = series.iloc[:cut], series.iloc[cut:]
        begin = time.perf_counter()
        model = Forecaster(story.window, HORIZON, hidden=(hidden,), random_state=0, verbose=verbose).fit(train)
        seconds = time.perf_counter() - begin
        scores = _scores(story, model, train, test, hidden, verbose)
        if out is not None:
            at = typical_row(model, test, story.channel)
            above, middle, below = axes[:, number]
            plot_forecast(model, test, story.channel, at, above)
            inside = _hours_inside(model, test, story.channel, at)
            above.set_ylabel(story.measures)
            above.set_title(
                f"{story.title}\na typical test day: {inside} of {HORIZON} hours lie within the interval", fontsize=11
            )
            plot_spikes(model, test, at, channel=story.channel, ax=middle)
            middle.set_title("the spikes behind it", fontsize=10)
            for ax in (above, middle):  # the last two days of the window: more of them would squeeze the forecast
                ax.set_xlim(*date2num(test.index[[at - 2 * HORIZON, at + HORIZON - 1]]))
            plot_errors({key: score.per_step["rse"] for key, score in scores.items()}, below)
            below.set(xlabel="hours ahead", title="all channels, all test windows")
        results[name] = {
            "title": story.title,
            "seconds": seconds,
            "windows": scores["sswim"].windows,
            "scores": {key: {"rse": e.rse, "mae": e.mae, "rmse": e.rmse} for key, e in scores.items()},
            "costs": str(model.costs(test)),
            "summary": model.summary(),
        }
    if out is not None:
        with whole_file(out) as part:
            figure.savefig(part, dpi=110)
        model.save(out.with_suffix(".sswim"))
        with whole_file(out.with_suffix(".csv")) as part:
            test.to_csv(part)
    return results


def _scores(
    story: Story, model: Forecaster, train: pd.DataFrame, test: pd.DataFrame, hidden: int, verbose: int
) -> dict[str, Evaluation]:
    """Return the scores of several models on the test part; ours last."""
    paper = Forecaster.paper(story.window, HORIZON, hidden=(WIDER * hidden,), random_state=0, verbose=verbose).fit(train)
    return {
        "persistence": Persistence(story.window, HORIZON).evaluate(test),
        "the day before": SeasonalNaive(story.window, HORIZON, 24).evaluate(test),
        "ridge per channel": RidgeOnLags(story.window, HORIZON).fit(train).evaluate(test),
        "the paper's model": paper.evaluate(test),
        "sswim": model.evaluate(test),
    }


def _hours_inside(model: Forecaster, test: pd.DataFrame, channel: str, at: int) -> int:
    """Return how many of the hours from row `at` on lie within the 90 % interval."""
    low, high = model.predict_interval(test.iloc[:at])
    return int(test[channel].iloc[at : at + HORIZON].between(low[channel], high[channel]).sum())


def typical_row(model: Forecaster, test: pd.DataFrame, channel: str) -> int:
    """Return the row of a midnight from which the forecast is neither better nor worse than usual.

    Of all midnights, the third with the middle errors is looked at. From these, the one is taken whose truth lies within the
    90 % interval about as often as it does from all midnights, and of several such the one with the error nearest the median.
    """
    window, number = model.model_.window, list(test.columns).index(channel)
    truth = np.lib.stride_tricks.sliding_window_view(test[channel].to_numpy(), HORIZON)[window:]
    difference = np.abs(model.predict_windows(test)[:, :, number] - truth)
    midnights = np.flatnonzero(pd.DatetimeIndex(test.index[window : window + len(truth)]).hour == 0)
    errors = np.square(difference[midnights]).mean(axis=1)
    inside = (difference[midnights] <= model.model_.half_width(0.9)[:, number]).mean(axis=1)
    rank = np.argsort(np.argsort(errors, kind="stable"))
    count = len(midnights)
    middle = np.flatnonzero((rank >= count // 3) & (rank < count - count // 3))
    unusual = np.abs(inside - inside.mean()).round(6)
    best = min(middle, key=lambda day: (unusual[day], abs(rank[day] - count // 2)))
    return window + int(midnights[best])


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
        Train on this many samples only: the first ones, or every few if the first ones are all of one class.
    paper : bool
        Fit the paper's classifier.
    inside : dict, optional
        Options inside of option objects, such as ``{"steps__weights": "random"}``.
    options
        Of `Classifier`, past those that suit the data.
    """
    source = classified(data)
    make, suited = (Classifier.paper, source.paper) if paper else (Classifier, source.ours)
    best = not paper and "hidden" not in options
    suited = {**suited, **source.suited} if best else suited
    X, y, test_X, test_y = source.best() if best else source.load()
    every = 1 if samples is None or len(set(np.asarray(y[:samples]).tolist())) > 1 else max(1, len(y) // samples)
    train, test = (X[::every][:samples], y[::every][:samples]), (test_X, test_y)
    begin = time.perf_counter()
    model = make(**{**suited, **options}).set_params(**(inside or {})).fit(*train)
    seconds = time.perf_counter() - begin
    if model_file is not None:
        model.save(model_file)
    if out is not None:
        figure = Figure(figsize=(12, 6.5), layout="constrained")
        axes = figure.subplot_mosaic([["raster", "confusion"], ["rates", "confusion"]], width_ratios=[1, 1.1])
        plot_raster(model, test[0][0], axes["raster"])
        axes["raster"].set_title(f"one sample through the network (class {test[1][0]})")
        plot_class_rates(model, test[0][:1000], test[1][:1000], ax=axes["rates"])
        plot_confusion(model, *test, ax=axes["confusion"])
        with whole_file(out) as part:
            figure.savefig(part, dpi=120)
    return {
        "data": data,
        "accuracy": float(model.score(*test)),
        "samples": len(train[0]),
        "test_samples": len(test[0]),
        "seconds": seconds,
        "summary": model.summary(),
    }
