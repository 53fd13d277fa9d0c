"""The paper's main table (``tab:results_table``) and its times (figure ``fig:time``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sswim.data.scaling import Scaling
from sswim.data.windows import kept_for_training
from sswim.datasets.series import SERIES
from sswim.drawing import BLUE, COLORS, ORANGE, legend_below, over_horizon, panels
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasts import GRIDS, ORIGINAL, PARTS, SCALINGS, STAND_INS, chosen, fit_and_test, given, label, task
from sswim.forecaster import Forecaster
from sswim.gradient.training import PAPER_TRAININGS, FromScratch
from sswim.network.kernels import KERNELS
from sswim.paper import Switches
from sswim.readout.trajectory import Trajectory

__all__ = ["forecasting", "published", "timing"]

HORIZONS = (6, 24, 48, 96)
TRAININGS = {"sample": "SSWIM", "gradient": "SGD", "sample+gradient": "SSWIM+SGD"}
# Windows that the time of an epoch is measured on.
TIMED = 1024


def published() -> pd.DataFrame:
    """Return the numbers of the paper's table ``tab:results_table``: model, kernel, spiking, data, horizon, rse.

    Gollwitzer & Dietrich, "Random Feature Spiking Neural Networks"; its reference values are those of table 1 of the work it
    cites there.
    """
    with files("sswim.experiments").joinpath("published.csv").open() as file:
        return pd.read_csv(file)


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = HORIZONS,
    kernels: Sequence[str] = ("morlet", "hat"),
    trainings: Sequence[str] = ("sample", "sample+gradient", "gradient"),
    scalings: Sequence[str] = ("series",),
    neurons: int = 750,
    stride: int = 1,
    epochs: int | None = None,
    window: int | None = None,
    assembly: str = "exact",
    bias: str = "penalized",
    grid: str = "paper",
) -> list[Settings]:
    """Return the settings of all runs: first sampled networks, then those that gradients train.

    The defaults are the paper's, to the letter. `window` is by default that of the data set. Every `stride`-th window is used
    for fitting. `epochs` is the most that gradients train for. `assembly`, `bias` and `grid` are the switches of
    `Forecaster.paper`.
    """
    return [
        {
            "data": name,
            "horizon": horizon,
            "kernel": kernel,
            "training": training,
            "scaling": scaling,
            "neurons": neurons,
            "stride": stride,
            "epochs": None if training == "sample" else epochs,
            "seed": seed,
            **given(window=window),
            **_switched(assembly=assembly, bias=bias, grid=grid),
        }
        for training in trainings
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, PARTS, STAND_INS)
        for kernel in kernels
        for scaling in scalings
        for horizon in horizons
    ]


def _switched(**switches: str) -> Settings:
    """Return the switches that are not the paper's."""
    return {name: value for name, value in switches.items() if value != getattr(Switches(), name)}


def measure(
    data: str,
    horizon: int,
    kernel: str,
    training: str,
    scaling: str,
    neurons: int,
    stride: int,
    epochs: int | None,
    seed: int,
    window: int | None = None,
    checkpoint: Path | None = None,
    **switches: str,
) -> Settings:
    """Return the test scores of the paper's network in one training, and how well its output's systems were conditioned."""
    cut = task(data, horizon, window=window, scaling=scaling)
    trained = None
    if training != "sample":
        trained = PAPER_TRAININGS[training].replace(**given(epochs=epochs), checkpoint=checkpoint)
    model = Forecaster.paper(
        cut.window,
        horizon,
        hidden=(neurons,),
        kernel=kernel,
        validation=cut.validation,
        readout=Switches(**switches).trajectory.replace(stride=stride),  # type: ignore[arg-type]
        **({"scaling": Scaling("none", clip=False, floor=False, trim=False)} if scaling == "series" else {}),
        training=trained,
        random_state=seed,
        verbose=0,
    )
    found = fit_and_test(model, cut) | {"train_windows": model.report_.samples}
    solution = model.report_.solution
    if training != "gradient":
        found |= {"condition": solution.condition, "condition_bound": solution.condition_bound}
    history = model.training_
    if history is not None:
        found |= {"epochs_run": len(history.records) - 1, "best_epoch": history.best_epoch, "stopped": history.stopped}
    return found


def _named(runs: pd.DataFrame) -> pd.Series:
    return runs["training"].map(TRAININGS) + " (" + runs["kernel"].str.capitalize() + ")"


def _unfinished(runs: pd.DataFrame) -> pd.Series:
    """Return which trainings had their best epoch within 30 of the last one allowed: in the paper they have not converged."""
    most = runs["epochs"].fillna(runs["training"].map({name: t.epochs for name, t in PAPER_TRAININGS.items()}))
    best = runs["best_epoch"] if "best_epoch" in runs else pd.Series(np.nan, runs.index)
    return ((best - most).fillna(-np.inf) > -30).astype(float)  # some CPUs warn of comparisons with NaN


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds, one row per model and scaling, and the published ones for the same data sets.

    A star marks trainings that had not converged.
    """
    runs = runs.assign(model=_named(runs), cell=label(runs), late=_unfinished(runs))
    order = list(dict.fromkeys(runs["cell"]))
    index = ["model", "scaled by", "epochs", "windows", "seeds"]
    runs = runs.assign(
        seeds=count_seeds(runs, ["model", "scaling", "epochs", "stride"], "cell"),
        windows=runs["stride"].map(lambda s: "all" if s == 1 else f"1 of {s}"),
        epochs=runs["epochs"].map(lambda e: "" if pd.isna(e) else f"{int(e)}"),
    ).rename(columns={"scaling": "scaled by"})
    means = runs.pivot_table("rse", index, "cell", sort=False)[order]
    means["mean"] = means.mean(axis=1, skipna=False)
    late = runs.pivot_table("late", index, "cell", sort=False, aggfunc="max")[order]
    marked = means[order].map("{:.3f}".format).where(~late.fillna(0).astype(bool), means[order].map("{:.3f} *".format))
    means[order] = marked.where(means[order].notna(), None) if late.to_numpy().any() else means[order]
    measured = means.reset_index()
    theirs = published().assign(cell=label)
    theirs = theirs[theirs["cell"].isin(order)]
    if len(theirs):
        wide = theirs.pivot_table("rse", "model", "cell", sort=False).reindex(columns=order)
        wide["mean"] = wide.mean(axis=1, skipna=False)
        wide = wide.reset_index().assign(scaling="published", epochs="", windows="all", seeds="3")
        wide = wide.rename(columns={"scaling": "scaled by"})
        measured = pd.concat([measured, wide], ignore_index=True)[[*index, *order, "mean"]]
    return measured.rename_axis(columns=None)


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the error over the horizon, a panel per data set; published results of the same data in grey."""
    runs = runs.assign(model=_named(runs))
    names = list(dict.fromkeys(runs["data"]))
    figure, axes = panels(len(names))
    theirs = published()
    for ax, name in zip(axes, names, strict=True):
        for model, part in theirs[theirs["data"] == name].groupby("model", sort=False):
            ours = str(model).startswith("S") and "(" in str(model)
            ax.plot(part["horizon"], part["rse"], color="0.55" if ours else "0.85", lw=1, ls="-" if ours else ":")
        here = runs[runs["data"] == name]
        for keys, part in here.groupby(["training", "kernel", "scaling", "stride", "epochs"], sort=False, dropna=False):
            training, kernel, scaling, stride, epochs = keys
            mean = part.groupby("horizon")["rse"].mean()
            few = ("" if stride == 1 else f", 1 of {stride}") + ("" if pd.isna(epochs) else f", {epochs:.0f} epochs")
            style: Settings = {"color": COLORS[list(TRAININGS).index(training)], "ls": "-" if kernel == "morlet" else "--"}
            style |= {"marker": "o" if scaling == "series" else "x", "ms": 4, "lw": 1.3, "alpha": 1 if stride == 1 else 0.6}
            ax.plot(mean.index, mean, label=f"{TRAININGS[training]} ({kernel}), {scaling}{few}", **style)
        ax.set_title(name)
        over_horizon(ax, runs["horizon"])
    axes[0].set_ylabel("test RSE, channels in [0, 1]")
    legend_below(figure, axes)
    return figure


def timing_cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = HORIZONS,
    neurons: int = 750,
    epochs: int = 1,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs: sampling on all windows, and `epochs` on a part of them, both with hat kernels."""
    same = {"neurons": neurons, "epochs": epochs, **given(window=window)}
    return [
        {"data": name, "horizon": horizon, "training": training, **same, "seed": seed}
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, STAND_INS)
        for horizon in horizons
        for training in ("sample", "gradient")
    ]


def timing_measure(
    data: str, horizon: int, training: str, neurons: int, epochs: int, seed: int, window: int | None = None
) -> Settings:
    """Return the seconds of a fit, or of an epoch over all training windows as far as a part of them tells."""
    cut = task(data, horizon, window=window, scaling="series")
    total = sum(max(len(s) - cut.window - horizon + 1, 0) for s in cut.known)
    trained = kept_for_training(total, cut.validation)
    same: Settings = {"kernel": "hat", "scaling": "series", "neurons": neurons, "seed": seed, "window": window}
    if training == "sample":
        found = measure(data, horizon, training=training, stride=1, epochs=None, **same)
        return {"seconds_needed": found["fit_seconds"], "rse": found["rse"], "train_windows": found["train_windows"]}
    stride = max(1, trained // TIMED)
    model = Forecaster.paper(
        cut.window,
        horizon,
        hidden=(neurons,),
        kernel="hat",
        validation=cut.validation,
        readout=Trajectory(stride=stride),
        scaling=Scaling("none", clip=False, floor=False, trim=False),
        training=PAPER_TRAININGS["gradient"].replace(epochs=epochs),
        random_state=seed,
        verbose=0,
    )
    history = model.fit(cut.known).training_
    records = history.records if history is not None else []
    epoch = (records[-1].seconds - records[0].seconds) / max(len(records) - 1, 1)
    scale = trained / model.report_.samples
    return {"epoch_seconds": epoch * scale, "train_windows": trained, "timed_windows": model.report_.samples}


def timing_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return seconds of sampling and of gradients, and how many times as long the latter take.

    The paper's training stops after 30 epochs without improvement, so it takes at least 31, and at most 750.
    """
    keys = ["data", "horizon"]
    sampled = runs[runs["training"] == "sample"].groupby(keys, sort=False)[["seconds_needed"]].mean()
    epoch = runs[runs["training"] == "gradient"].groupby(keys, sort=False)[["epoch_seconds"]].mean()
    both = sampled.join(epoch)
    most = FromScratch().epochs
    times = {
        "sampling, s": both["seconds_needed"],
        "one epoch, s": both["epoch_seconds"],
        "31 epochs, s": 31 * both["epoch_seconds"],
        f"{most} epochs, s": most * both["epoch_seconds"],
        "times faster, at least": 31 * both["epoch_seconds"] / both["seconds_needed"],
        "at most": most * both["epoch_seconds"] / both["seconds_needed"],
    }
    return pd.DataFrame(times).reset_index()


def timing_draw(runs: pd.DataFrame) -> Figure:
    """Draw both times over the horizon on a logarithmic scale, a panel per data set."""
    shown = timing_table(runs)
    names = list(dict.fromkeys(shown["data"]))
    figure = Figure(figsize=(max(3.4 * len(names), 5), 3.4), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, names, strict=True):
        here = shown[shown["data"] == name]
        at = np.arange(len(here))
        ax.bar(at - 0.2, here["sampling, s"], 0.4, color=BLUE, label="sampled")
        low, high = here["31 epochs, s"], here[f"{FromScratch().epochs} epochs, s"]
        ax.bar(
            at + 0.2,
            high - low,
            0.4,
            bottom=low,
            color=ORANGE,
            alpha=0.8,
            label=f"gradients, 31 to {FromScratch().epochs} epochs",
        )
        ax.set(title=name, xlabel="horizon, steps", yscale="log")
        ax.set_xticks(at, labels=here["horizon"].astype(str))
    axes[0].set_ylabel("training time, seconds")
    legend_below(figure, axes)
    return figure


_cell: Settings = {"data": list(SERIES), "horizon": None}
_models = {"training": list(TRAININGS), "kernel": ("morlet", "hat"), "scaling": SCALINGS, "stride": None, "epochs": None}
_choices = {
    "kernels": list(KERNELS),
    "trainings": list(TRAININGS),
    "scalings": SCALINGS,
    "assembly": ("exact", "fast", "auto"),
    "bias": ("penalized", "free"),
    "grid": GRIDS,
}
_quick = {"data": ("wind-farm",), "seeds": 1, "neurons": 60, "horizons": (6, 24)}
forecasting = Experiment(
    cells,
    measure,
    table,
    draw,
    order={**_cell, **_models, "seed": None},
    quick={**_quick, "stride": 32, "epochs": 5, "scalings": ("series",)},
    choices=_choices,
    note="* the best epoch is one of the last 30, so the training has not converged.",
)
timing = Experiment(
    timing_cells,
    timing_measure,
    timing_table,
    timing_draw,
    order={**_cell, "training": None, "seed": None},
    quick=_quick,
)
