"""The default forecaster compared with the paper's, baselines and an echo state network; and what each idea brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sswim.data.scaling import Scaling
from sswim.datasets.series import SERIES
from sswim.drawing import EMPHASIS, legend_below, log_ticks, marked, over_horizon, panels
from sswim.evaluate.baselines import Persistence, RidgeOnLags, SeasonalNaive
from sswim.experiments.echo_state import EchoState
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import ORIGINAL, STAND_INS, Task, chosen, fit_and_test, given, label, task, thrown
from sswim.forecaster import Forecaster
from sswim.readout.direct import Direct
from sswim.sampling import STEPS

__all__ = ["beyond", "ideas"]

HORIZONS = (6, 24, 48, 96)
OURS: dict[str, Settings] = {
    "sswim": {},
    "sswim with rows": {"readout": Direct(skip=True)},
}
TIMED = "with times of rows"
# The default with one thing changed. All but one get rows without times.
IDEAS: dict[str, Settings] = {
    "sswim": {},
    TIMED: {},
    "with rows (skip)": {"readout": Direct(skip=True)},
    "1 sampled neuron": {"hidden": (1,)},
    "100 sampled neurons": {"hidden": (100,)},
    "2 layers of 20": {"hidden": (20, 20)},
    "random weights": {"steps": STEPS["forecast"].replace(weights="random")},
    "no single neurons": {"readout": Direct(singles=0)},
    "no single and no sampled neurons": {"readout": Direct(singles=0), "hidden": (1,)},
    "nothing of other channels": {"readout": Direct(common=False)},
    "16 neurons a population": {"readout": Direct(population=16)},
    "32 neurons a population": {"readout": Direct(population=32)},
    "128 neurons a population": {"readout": Direct(population=128)},
    "4 blocks": {"readout": Direct(blocks=4)},
    "12 blocks": {"readout": Direct(blocks=12)},
    "no floor": {"scaling": Scaling(floor=False)},
    "one network for all channels": {"channels": "joint", "hidden": (100,)},
}
BASELINES: dict[str, Callable[[Task, int], Any]] = {
    "persistence": lambda t, h: Persistence(t.window, h),
    "seasonal naive": lambda t, h: SeasonalNaive(t.window, h, t.season),
    "ridge per channel": lambda t, h: RidgeOnLags(t.window, h, validation=t.validation),
    "shared ridge": lambda t, h: RidgeOnLags(t.window, h, shared=True, validation=t.validation),
}
# Defaults of an earlier version: recorded, and not measured again.
BEFORE = ("spikes only, before", "sswim, before")
MODELS = (*BASELINES, "echo state network", "paper", *BEFORE, *reversed(OURS))


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = HORIZONS,
    models: Sequence[str] = (),
    neurons: int | None = None,
    stride: int = 1,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs; models without anything random take part once.

    The echo state network takes part if reservoirpy is installed. `neurons` and `stride` make the networks, and the set of
    windows that the paper's is fitted on, smaller.
    """
    there = [m for m in MODELS if m not in BEFORE and (m != "echo state network" or find_spec("reservoirpy"))]
    models = models or there
    same = {"neurons": neurons, "stride": stride, **given(window=window)}
    return [
        {"data": name, "horizon": horizon, "model": model, **same, "seed": seed}
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, STAND_INS)
        for horizon in horizons
        for model in models
        if seed == 0 or model not in BASELINES
    ]


@cache
def _reservoir(data: str, horizon: int, units: int, window: int | None) -> dict[str, float]:
    """Return the options of an echo state network, chosen on validation windows with one seed."""
    cut = task(data, horizon, window=window)
    return EchoState(cut.window, horizon, units=units, validation=cut.validation, seed=0).fit(cut.known).options or {}


def measure(
    data: str, horizon: int, model: str, neurons: int | None, stride: int, seed: int, window: int | None = None
) -> Settings:
    """Return the test scores of a model."""
    cut = task(data, horizon, window=window, times=model in OURS)
    common: Settings = {"validation": cut.validation, "random_state": seed, "verbose": 0}
    made: Any
    if model in BASELINES:
        made = BASELINES[model](cut, horizon)
    elif model == "echo state network":
        units = neurons or 750
        options = _reservoir(data, horizon, units, window)
        made = EchoState(cut.window, horizon, units=units, validation=cut.validation, seed=seed, options=options)
    elif model == "paper":
        made = Forecaster.paper(cut.window, horizon, hidden=(neurons or 750,), **thrown(stride), **common)
    else:
        made = Forecaster(cut.window, horizon, hidden=(neurons or 20,), **OURS[model], **common)
    return fit_and_test(made, cut)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds, in the data's units, models as rows."""
    runs = runs.assign(cell=label(runs))
    runs = runs.assign(seeds=count_seeds(runs, ["model"], "cell"))
    order = list(dict.fromkeys(runs["cell"]))
    wide = runs.pivot_table("rse_units", ["model", "seeds"], "cell", sort=False)[order]
    wide["mean"] = wide.mean(axis=1, skipna=False)
    return wide.rename_axis(columns=None).reset_index()


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the error over the horizon, a panel per data set."""
    names, models = list(dict.fromkeys(runs["data"])), [m for m in MODELS if (runs["model"] == m).any()]
    figure, axes = panels(len(names), (3.8, 3.6), columns=3)
    for ax, name in zip(axes, names, strict=True):
        for model in models:
            mean = runs[(runs["data"] == name) & (runs["model"] == model)].groupby("horizon")["rse_units"].mean()
            style = EMPHASIS if model == "sswim" else {**marked(MODELS.index(model)), "lw": 1.2}
            sampled = model.startswith("sswim") or model == "paper"
            ax.plot(mean.index, mean, label=model, ms=4, ls="-" if sampled else "--", **style)
        ax.set_title(name)
        over_horizon(ax, runs["horizon"])
        log_ticks(ax)
    axes[0].set_ylabel("test RSE, data's units")
    legend_below(figure, axes)
    return figure


def ideas_cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = (24,),
    variants: Sequence[str] = tuple(IDEAS),
    thin: int = 4,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs: ours, and with one thing changed, on the validation part and every `thin`-th channel."""
    return [
        {"data": name, "horizon": horizon, "variant": variant, "thin": thin, "seed": seed, **given(window=window)}
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, STAND_INS)
        for horizon in horizons
        for variant in dict.fromkeys(["sswim", *variants])
    ]


def ideas_measure(data: str, horizon: int, variant: str, thin: int, seed: int, window: int | None = None) -> Settings:
    """Return the validation scores of a variant."""
    cut = task(data, horizon, window=window, part="validation", thin=thin, times=variant == TIMED)
    options: Settings = {"validation": cut.validation, "random_state": seed, "verbose": 0, **IDEAS[variant]}
    return fit_and_test(Forecaster(cut.window, horizon, **options), cut)


def _changes(runs: pd.DataFrame) -> pd.DataFrame:
    """Return by how many percent each variant's mean error differs from the default's."""
    runs = runs.assign(cell=label(runs))
    wide = runs.pivot_table("rse_units", "variant", "cell", sort=False)[list(dict.fromkeys(runs["cell"]))]
    return 100 * (wide.div(wide.loc["sswim"]) - 1).drop(index="sswim")


def ideas_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return by how many percent each variant's error differs from the default's."""
    change = _changes(runs)
    change["mean"] = change.mean(axis=1, skipna=False)
    shown = change.map(lambda value: "-" if np.isnan(value) else f"{value:+.1f} %")
    return shown.rename_axis(columns=None).reset_index()


def ideas_draw(runs: pd.DataFrame) -> Figure:
    """Draw the changes, a row per variant."""
    change = _changes(runs)
    figure = Figure(figsize=(7, 0.26 * len(change) + 1.2), layout="constrained")
    ax = figure.subplots()
    for i, cell in enumerate(change.columns):
        ax.plot(change[cell], range(len(change)), ls="", ms=5, label=cell, **marked(i))
    ax.axvline(0, color="0.6", lw=0.8)
    ax.set_yticks(range(len(change)), labels=list(change.index))
    ax.set(xlabel="change of the RSE, percent (right is worse)", xscale="symlog")
    ax.margins(x=0.05)
    low, high = ax.get_xlim()
    ticks = [tick for tick in (-30, -10, -3, -1, 0, 1, 3, 10, 30) if low <= tick <= high]
    ax.set_xticks(ticks, labels=[f"{tick:+d}" if tick else "0" for tick in ticks])
    ax.invert_yaxis()
    legend_below(figure, [ax])
    return figure


_cell: Settings = {"data": list(SERIES), "horizon": None}
_quick = {"data": ("wind-farm",), "seeds": 1}
beyond = Experiment(
    cells,
    measure,
    table,
    draw,
    order={**_cell, "model": MODELS, "seed": None},
    quick={**_quick, "neurons": 30, "stride": 8, "horizons": (6, 24)},
    choices={"models": [m for m in MODELS if m not in BEFORE]},
)
ideas = Experiment(
    ideas_cells,
    ideas_measure,
    ideas_table,
    ideas_draw,
    order={**_cell, "variant": list(IDEAS), "seed": None},
    quick={**_quick, "variants": ("with rows (skip)", "1 sampled neuron", "no single neurons", "16 neurons a population")},
    choices={"variants": list(IDEAS)},
)
