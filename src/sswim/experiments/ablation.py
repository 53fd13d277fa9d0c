"""The paper's ablation study (figure ``fig:abl_study``) and its test of the entropy criterion (figure ``fig:entropy``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from sswim.data.scaling import Scaling
from sswim.datasets.series import SERIES
from sswim.drawing import legend_below, marked, panels
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import GRIDS, LONG, ORIGINAL, PARTS, SHORT, STAND_INS, chosen, fit_and_test, given, task
from sswim.forecaster import Forecaster
from sswim.paper import Switches
from sswim.sampling import STEPS
from sswim.steps import EMBEDDINGS, Fluctuation, MeanStd

__all__ = ["ablation", "entropy"]

WEIGHTS, METRICS = ("dot", "dist", "random"), (*EMBEDDINGS, "entropy")
# The paper does not name its r. With r = 1 its FL makes the very spikes of its MS, see `sswim.steps.Fluctuation`.
NORMALIZERS = {"MS": MeanStd(), "FL r=2": Fluctuation(distance=2.0)}


def _fit(
    data: str,
    horizon: int,
    neurons: int,
    stride: int,
    seed: int,
    window: int | None = None,
    grid: str = "paper",
    **steps: Any,
) -> Settings:
    """Return the test scores of the paper's network with some of its steps changed."""
    cut = task(data, horizon, window=window, scaling="series")
    model = Forecaster.paper(
        cut.window,
        horizon,
        hidden=(neurons,),
        validation=cut.validation,
        scaling=Scaling("none", clip=False, floor=False, trim=False),
        random_state=seed,
        verbose=0,
        readout=Switches(grid=grid).trajectory.replace(stride=stride),
        steps=STEPS["paper"].replace(**steps),
    )
    return fit_and_test(model, cut)


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    widths: Sequence[int] = (100, 250, 500, 1000),
    weights: Sequence[str] = WEIGHTS,
    normalizers: Sequence[str] = tuple(NORMALIZERS),
    grids: Sequence[str] = ("paper",),
    horizon: int = 24,
    stride: int = 1,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs, on one set with short and one with long windows.

    The paper names neither the horizon nor, in its text, the widths. The regularisation is searched for on the paper's grid, up
    to 0.5, and on one that goes on while the validation error falls.
    """
    names = chosen(data, SHORT, LONG, every=False)
    return [
        {
            "data": name,
            "horizon": horizon,
            "weights": weight,
            "normalizer": normalizer,
            "grid": grid,
            "neurons": width,
            "stride": stride,
            "seed": seed,
            **given(window=window),
        }
        for seed in range(seeds)
        for grid in grids
        for name in names
        for width in widths
        for normalizer in normalizers
        for weight in weights
    ]


def measure(grid: str, normalizer: str, **settings: Any) -> Settings:
    """Return the test scores of one combination."""
    return _fit(grid=grid, normalizer=NORMALIZERS[normalizer], **settings)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds, widths as columns."""
    keys = ["data", "horizon", "stride", "grid", "normalizer", "weights"]
    runs = runs.assign(seeds=count_seeds(runs, keys, "neurons"))
    keys.append("seeds")
    return runs.pivot_table("rse", keys, "neurons", sort=False).rename_axis(columns=None).reset_index()


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the error over the width, a panel per data set and normaliser."""
    names, columns = list(dict.fromkeys(runs["data"])), list(dict.fromkeys(zip(runs["grid"], runs["normalizer"], strict=True)))
    figure = Figure(figsize=(3.2 * len(columns), 2.9 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(columns), squeeze=False, sharey="row")
    for row, name in zip(axes, names, strict=True):
        here = runs[runs["data"] == name]
        # A model that fails is cut off, as in the paper.
        top = float(here.groupby(["grid", "normalizer", "weights", "neurons"])["rse"].mean().quantile(0.9)) * 1.15
        for ax, (grid, normalizer) in zip(row, columns, strict=True):
            part = here[(here["grid"] == grid) & (here["normalizer"] == normalizer)]
            for i, (weights, lines) in enumerate(part.groupby("weights", sort=False)):
                mean = lines.groupby("neurons")["rse"].agg(["mean", "min", "max"])
                ax.plot(mean.index, mean["mean"], ms=4, label=weights, **marked(i))
                ax.fill_between(mean.index, mean["min"], mean["max"], color=marked(i)["color"], alpha=0.15, lw=0)
            ax.set_title(f"{name}\n{normalizer}, {grid} grid", fontsize=10)
            ax.set_xlabel("neurons")
            if here["rse"].max() > top:
                ax.set_ylim(top=top)
        row[0].set_ylabel("test RSE")
    legend_below(figure, axes.flat)
    return figure


def entropy_cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = (6, 24, 48),
    metrics: Sequence[str] = METRICS,
    neurons: int = 750,
    stride: int = 1,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs: one embedding for inputs and targets, or the pair of least entropy."""
    same = {"neurons": neurons, "stride": stride, **given(window=window)}
    return [
        {"data": name, "horizon": horizon, "metric": metric, **same, "seed": seed}
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, PARTS, STAND_INS)
        for horizon in horizons
        for metric in metrics
    ]


def entropy_measure(metric: str, **settings: Any) -> Settings:
    """Return the test scores with one metric."""
    return _fit(input_metric=metric, output_metric=metric, **settings)


def entropy_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds, metrics as columns, with the best single one and how far the entropy's choice is off."""
    runs = runs.assign(seeds=count_seeds(runs, ["data", "horizon"], "metric"))
    wide = runs.pivot_table("rse", ["data", "horizon", "stride", "seeds"], "metric", sort=False)
    single = wide.drop(columns="entropy", errors="ignore")
    shown = wide.assign(best=single.idxmin(axis=1), spread=single.max(axis=1) - single.min(axis=1))
    if "entropy" in wide:
        shown["entropy - best"] = wide["entropy"] - single.min(axis=1)
    return shown.rename_axis(columns=None).reset_index()


def entropy_draw(runs: pd.DataFrame) -> Figure:
    """Draw the error of every metric, a panel per data set."""
    names, metrics = list(dict.fromkeys(runs["data"])), list(dict.fromkeys(runs["metric"]))
    figure, axes = panels(len(names), (4, 3.2), columns=3)
    for ax, name in zip(axes, names, strict=True):
        for i, (horizon, part) in enumerate(runs[runs["data"] == name].groupby("horizon")):
            mean = part.groupby("metric")["rse"].agg(["mean", "min", "max"]).reindex(metrics)
            bars = [mean["mean"] - mean["min"], mean["max"] - mean["mean"]]
            ax.errorbar(range(len(metrics)), mean["mean"], yerr=bars, ls="", ms=5, label=f"{horizon} steps ahead", **marked(i))
            if "entropy" in mean.index:
                ax.axhline(mean["mean"]["entropy"], color=marked(i)["color"], lw=0.7, ls=":")
        ax.set(title=name, xlabel="distance between samples")
        ax.set_xticks(range(len(metrics)), labels=metrics, rotation=45, ha="right")
    axes[0].set_ylabel("test RSE")
    legend_below(figure, axes)
    return figure


_cell: Settings = {"data": list(SERIES), "horizon": None}
_models = {"grid": GRIDS, "normalizer": list(NORMALIZERS), "weights": WEIGHTS, "neurons": None}
_quick = {"data": ("wind-farm",), "seeds": 2, "stride": 16}
ablation = Experiment(
    cells,
    measure,
    table,
    draw,
    order={**_cell, **_models, "seed": None},
    quick={**_quick, "widths": (25, 50, 100), "grids": ("paper",)},
    choices={"weights": WEIGHTS, "normalizers": list(NORMALIZERS), "grids": GRIDS},
)
entropy = Experiment(
    entropy_cells,
    entropy_measure,
    entropy_table,
    entropy_draw,
    order={**_cell, "metric": METRICS, "seed": None},
    quick={**_quick, "horizons": (6, 24), "neurons": 60},
    choices={"metrics": METRICS},
)
