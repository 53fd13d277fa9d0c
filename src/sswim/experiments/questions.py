"""The open points of the paper's last section, each as a variant of its model with one step changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from sswim.data.scaling import Scaling
from sswim.datasets.series import SERIES
from sswim.drawing import legend_below, marked
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import PARTS, STAND_INS, Task, chosen, fit_and_test, label, task
from sswim.forecaster import Forecaster
from sswim.paper import Switches
from sswim.sampling import STEPS
from sswim.steps.pairs import EMBEDDINGS
from sswim.steps.weights import MeanStd

__all__ = ["questions"]

# What each changes: steps of the hidden layer, switches, the readout, or the forecaster.
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "delays from the autocorrelation": {"steps": {"temporal": "memory"}},
    "times spread over a plane": {"steps": {"temporal": "spread"}},
    **{f"metrics: {name}": {"steps": {"input_metric": name, "output_metric": name}} for name in ("l2", "cosine", "high")},
    "metrics by the residual": {},
    "supports from the correlation": {"readout": {"supports": "width"}},
    "silence corrected by the scale": {"steps": {"normalizer": MeanStd(silence="scale")}},
    "free bias": {"switches": {"bias": "free"}},
    "extended grid": {"switches": {"grid": "extended"}},
    "free bias and extended grid": {"switches": {"bias": "free", "grid": "extended"}},
    "float64": {"model": {"dtype": "float64"}},
    "two layers of half the width": {"layers": (0.5, 0.5)},
    "two layers of the same width": {"layers": (1.0, 1.0)},
}
# Neurons of the small networks that metrics are compared by.
FEW = 100


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = (24,),
    variants: Sequence[str] = tuple(VARIANTS),
    neurons: int = 400,
    stride: int = 8,
) -> list[Settings]:
    """Return the settings of all runs. Every `stride`-th window is used for fitting."""
    return [
        {"data": name, "horizon": horizon, "variant": variant, "neurons": neurons, "stride": stride, "seed": seed}
        for seed in range(seeds)
        for name in chosen(data, PARTS, STAND_INS)
        for variant in variants
        for horizon in horizons
    ]


def _model(cut: Task, horizon: int, variant: str, neurons: int, stride: int, seed: int, **steps: object) -> Forecaster:
    changes = VARIANTS[variant]
    widths = tuple(round(part * neurons) for part in changes.get("layers", (1.0,)))
    return Forecaster.paper(
        cut.window,
        horizon,
        hidden=widths,
        steps=STEPS["paper"].replace(**{**changes.get("steps", {}), **steps}),
        readout=Switches(**changes.get("switches", {})).trajectory.replace(stride=stride, **changes.get("readout", {})),
        scaling=Scaling("none", clip=False, floor=False, trim=False),
        validation=cut.validation,
        random_state=seed,
        verbose=0,
        **changes.get("model", {}),
    )


def _best_metric(data: str, horizon: int, stride: int, seed: int) -> str:
    """Return the metric, for inputs and targets, with which a small network has the least error on validation windows."""
    cut = task(data, horizon, scaling="series", part="validation")
    found = {}
    for name in EMBEDDINGS:
        small = _model(cut, horizon, "paper", FEW, stride, seed, input_metric=name, output_metric=name)
        found[name] = fit_and_test(small, cut)["rse"]
    return min(found, key=lambda name: found[name])


def measure(data: str, horizon: int, variant: str, neurons: int, stride: int, seed: int) -> Settings:
    """Return the test scores of a variant, the condition of its output's systems with the paper's bound, and the metrics."""
    chosen_metric: Settings = {}
    if variant == "metrics by the residual":
        name = _best_metric(data, horizon, stride, seed)
        chosen_metric = {"input_metric": name, "output_metric": name}
    cut = task(data, horizon, scaling="series")
    model = _model(cut, horizon, variant, neurons, stride, seed, **chosen_metric)
    found = fit_and_test(model, cut)
    solution, layers = model.report_.solution, model.report_.layers
    return found | {
        "condition": solution.condition,
        "condition_bound": solution.condition_bound,
        "input_metric": layers[0].input_metric,
        "output_metric": layers[0].output_metric,
        "rate": float(layers[-1].rates.mean()),
    }


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds of each variant, how much it differs from the paper's on average, and the conditions."""
    runs = runs.assign(cell=label(runs))
    order = list(dict.fromkeys(runs["cell"]))
    runs = runs.assign(seeds=count_seeds(runs, ["variant"], "cell"))
    wide = runs.pivot_table("rse", ["variant", "seeds"], "cell", sort=False)[order]
    base = runs[runs["variant"] == "paper"].set_index(["cell", "seed"])["rse"]
    if len(base):
        ratio = runs.assign(ratio=runs["rse"] / base.reindex(list(zip(runs["cell"], runs["seed"], strict=True))).to_numpy())
        by_run = ratio.groupby("variant", sort=False)["ratio"]
        counts = by_run.agg(lambda r: f"{int((r < 1).sum())} of {int(r.notna().sum())}")
        logs = ratio.assign(ratio=ratio["ratio"].map(lambda r: math.log(r) if r > 0 else math.nan))
        change = logs.groupby("variant", sort=False)["ratio"].mean().map(lambda r: f"{100 * (math.exp(r) - 1):+.1f} %")
        names = wide.index.get_level_values("variant")
        wide = wide.assign(change=[change[n] for n in names], better=[counts[n] for n in names])
    for column in ("condition", "condition_bound"):
        medians = runs.groupby("variant", sort=False)[column].median()
        names = wide.index.get_level_values("variant")
        wide[column.replace("_", " ")] = [f"{medians[n]:.0e}" for n in names]
    return wide.reset_index().rename_axis(columns=None)


def draw(runs: pd.DataFrame) -> Figure:
    """Draw each run's error as a part of the paper's model's, with the same data and seed."""
    names = list(dict.fromkeys(runs["variant"]))
    cells_ = list(dict.fromkeys(label(runs)))
    base = runs[runs["variant"] == "paper"].assign(cell=label).set_index(["cell", "seed"])["rse"]
    figure = Figure(figsize=(7, 0.32 * len(names) + 1.2), layout="constrained")
    ax = figure.subplots()
    for i, cell in enumerate(cells_):
        part = runs[label(runs) == cell]
        part = part[[(cell, seed) in base.index for seed in part["seed"]]]
        ratio = [rse / base[cell, seed] for rse, seed in zip(part["rse"], part["seed"], strict=True)]
        ax.plot(ratio, [names.index(v) + 0.15 * (i - 1) for v in part["variant"]], ls="", ms=4, label=cell, **marked(i))
    ax.axvline(1, color="0.6", lw=1)
    ax.set_yticks(range(len(names)), labels=names)
    ax.invert_yaxis()
    ax.set_xlabel("test RSE, relative to the paper's model")
    legend_below(figure, [ax])
    return figure


questions = Experiment(
    cells,
    measure,
    table,
    draw,
    order={"data": list(SERIES), "variant": list(VARIANTS), "horizon": None, "seed": None},
    quick={"data": ("wind-farm",), "seeds": 1, "neurons": 60, "stride": 16, "variants": ("paper", "free bias", "float64")},
    choices={"variants": list(VARIANTS)},
)
