"""The paper's classification experiments (figures ``fig:class_v`` and ``fig:class_s``), and the default classifier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sswim.classifier import Classifier
from sswim.datasets.classified import CLASSIFIED, classified
from sswim.drawing import legend_below, marked
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.network.grid import Convolution
from sswim.network.output import VoltageReadout
from sswim.readout.voltage import voltages

__all__ = ["classification"]

WIDTHS = (256, 512, 1000)
# Filters for images: in a minute, and in minutes.
FILTERS = (150, 400)
# The paper's; ours; ours with the weights of a regression; that with deeper layers sampled as in the paper; and filters for
# images, or what suits other data best.
MODELS = ("paper", "ours", "regression", "plain", "filters")
# Loss of the readout, and how deeper layers are sampled.
OURS = {"ours": ("log_loss", "residual"), "regression": ("squared_error", "residual"), "plain": ("squared_error", "plain")}
# What is sampled by: metrics of the input and of deeper layers, and weights. Random weights do not depend on metrics.
SAMPLINGS = {
    "dot, L2": (("l2", "l2"), "dot"),
    "dot, mag/phase": (("magnitude", "phase"), "dot"),
    "random": (("l2", "l2"), "random"),
}
READOUTS = {
    "voltage": "paper, voltage",
    "spikes": "paper, spikes",
    "spikes_normalized": "spikes, normalised",
    "ours": "sswim",
    "regression": "sswim, regression",
    "plain": "sswim, regression, plain depth",
    "filters": "sswim, filters",
}
# Of the output's spikes, where they are not normalised: the paper names none, and this is the hidden layers'.
PAPER_COST = -1.5


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    widths: Sequence[int] = WIDTHS,
    layers: Sequence[int] = (1, 2),
    models: Sequence[str] = MODELS,
    metrics: Sequence[str] = ("L2", "mag/phase"),
    filters: Sequence[int] = FILTERS,
    samples: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs, seed by seed: the paper's grid and ours. Default: on MNIST and Fashion-MNIST.

    The paper's deeper networks have as many neurons in each layer as the shallow ones, ours as many in all, one in eight of
    them in the second layer; ours have one or two. Of `filters` a fifth makes room for neurons in the second layer: the output
    reads 16 regions of each filter, so there are 16 times as many. `samples` is how many of the training samples are used.
    """
    names = data or ("mnist", "fashion-mnist")
    for name in names:
        classified(name)
    samplings = [name for name in SAMPLINGS if name == "random" or name.removeprefix("dot, ") in metrics]
    grid = [("paper", [n] * l, s) for n in widths for l in layers for s in samplings]
    grid += [(m, [n], s) for m in ("ours", "regression") for n in widths for s in ("dot, L2", "random") if 1 in layers]
    grid += [(m, [n - n // 8, n // 8], "dot, L2") for m in OURS for n in widths if 2 in layers]
    grid = [(m, h, s) for m, h, s in grid if m in models]
    return [
        {"data": d, "model": m, "hidden": h, "sampling": s, "seed": seed, "samples": samples}
        for seed in range(seeds)
        for d in names
        for m, h, s in [*grid, *(_filters(d, filters, layers) if "filters" in models else ())]
    ]


def _filters(data: str, filters: Sequence[int], layers: Sequence[int]) -> list[tuple[str, list[int], str]]:
    """Return model, layers and sampling of what suits the data best, and the same with random weights."""
    suited = classified(data).suited.get("hidden")
    found = [[n] for n in filters] + [[n - n // 5, 16 * (n // 5)] for n in filters[:1]]
    if suited is not None:
        found = [[n.filters if isinstance(n, Convolution) else n for n in suited]]
    return [("filters", h, sampling) for h in found if len(h) in layers for sampling in ("dot, L2", "random")]


def _best(data: str, hidden: list[int]) -> Classifier:
    """Return the classifier that suits the data best, with this many filters and neurons."""
    source = classified(data)
    if source.suited:
        return Classifier(**{**source.ours, **source.suited})
    return Classifier([Convolution(hidden[0]), *hidden[1:]], **source.ours, memory="3GB")


@lru_cache(maxsize=1)
def _load(name: str, best: bool) -> tuple[Any, ...]:
    return classified(name).best() if best else classified(name).load()


def measure(data: str, model: str, hidden: list[int], sampling: str, seed: int, samples: int | None) -> Settings:
    """Return the test accuracy of the paper's readouts and of the normalised spike readout, or of the default classifier.

    The paper's two readouts, and the normalised one, are of one and the same network.
    """
    X, y, test, labels = _load(data, model == "filters" and classified(data).load_suited is not None)
    X, y = X[:samples], y[:samples]
    metrics, weights = SAMPLINGS[sampling]
    sampling_steps = {
        "steps__input_metric": metrics[0],
        "steps__deeper_metric": metrics[1],
        "steps__weights": weights,
        "random_state": seed,
        "verbose": 0,
    }
    if model == "filters":
        given = {name: sampling_steps[name] for name in ("steps__weights", "random_state", "verbose")}
        begin = time.perf_counter()
        best = _best(data, hidden).set_params(**given).fit(X, y)
        return {model: float(best.score(test, labels)), "seconds": time.perf_counter() - begin}
    if model != "paper":
        loss, depth = OURS[model]
        ours = Classifier(hidden, **classified(data).ours).set_params(**sampling_steps)
        ours.set_params(readout__loss=loss, steps__depth=depth)
        return {model: float(ours.fit(X, y).score(test, labels))}
    paper = Classifier.paper(hidden, readout="spikes", **classified(data).paper).set_params(**sampling_steps)
    fitted = paper.set_params(readout__normalize=True).fit(X, y).model_
    scale, shift, _ = fitted.report.solution.normalization or (1.0, 0.0, 0.0)
    v, readout = voltages(fitted.network, fitted.samples(test), fitted.memory), fitted.network.readout
    assert isinstance(readout, VoltageReadout)
    found = {"spikes_normalized": readout.fire(v.clone()), "voltage": v.sub_(shift).div_(scale)}
    readout.costs.data.fill_(PAPER_COST)
    found["spikes"] = readout.fire(v.clone())
    answers = {name: fitted.classes[output.sum(dim=1).argmax(dim=0).numpy()] for name, output in found.items()}
    return {name: float(np.mean(answer == labels)) for name, answer in answers.items()}


def _long(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run and readout."""
    width = [sum(h) if m != "paper" else h[0] for h, m in zip(runs["hidden"], runs["model"], strict=True)]
    neurons = runs["hidden"].map(lambda h: "+".join(map(str, h)))
    runs = runs.assign(layers=runs["hidden"].map(len), width=width, neurons=neurons)
    runs = runs.reindex(columns=list(dict.fromkeys([*runs.columns, *READOUTS])))
    keys = ["data", "layers", "width", "neurons", "sampling", "seed"]
    long = runs.melt(keys, list(READOUTS), "readout", "accuracy").dropna(subset="accuracy")
    return long.assign(readout=pd.Categorical(long["readout"].map(READOUTS), list(READOUTS.values())))


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean accuracies over seeds."""
    long, row = _long(runs), ["data", "layers", "width", "neurons", "sampling"]
    long = long.assign(seeds=count_seeds(long, row, "readout"))
    means = long.pivot_table("accuracy", [*row, "seeds"], "readout", observed=True)
    return means.rename_axis(columns=None).reset_index().drop(columns=["layers", "width"])


def draw(runs: pd.DataFrame) -> Figure:
    """Draw accuracy over width, a panel per readout and data set, as the paper's figures do."""
    long, names = _long(runs), list(dict.fromkeys(runs["data"]))
    readouts = list(long["readout"].cat.remove_unused_categories().cat.categories)
    figure = Figure(figsize=(3.2 * len(readouts), 3.2 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(readouts), squeeze=False, sharex=True, sharey="row")
    for row, name in zip(axes, names, strict=True):
        for ax, readout in zip(row, readouts, strict=True):
            here = long[(long["data"] == name) & (long["readout"] == readout)]
            ax.set_visible(len(here) > 0)
            for (layers, sampling), part in here.groupby(["layers", "sampling"]):
                mean = part.groupby("width")["accuracy"].agg(["mean", "min", "max"])
                style = {**marked(list(SAMPLINGS).index(sampling)), "ls": "-" if layers == 1 else ":"}
                ax.plot(
                    mean.index, mean["mean"], ms=4, lw=1.2, label=f"{layers} layer{'s' * (layers > 1)}, {sampling}", **style
                )
                ax.fill_between(mean.index, mean["min"], mean["max"], color=style["color"], alpha=0.12, lw=0)
            ax.set(title=f"{name}\n{readout}", xlabel="neurons" if readout.startswith("sswim") else "neurons per layer")
        row[0].set_ylabel("test accuracy")
    legend_below(figure, axes.flat, size=11)
    return figure


_order = {
    "data": list(CLASSIFIED),
    "seed": None,
    "model": MODELS,
    "hidden": None,
    "sampling": list(SAMPLINGS),
}
classification = Experiment(
    cells,
    measure,
    table,
    draw,
    order=_order,
    quick={"data": ("digits",), "seeds": 2, "widths": (64, 128), "samples": 600, "metrics": ("L2",), "models": MODELS[:-1]},
    choices={"models": MODELS, "metrics": ("L2", "mag/phase")},
)
