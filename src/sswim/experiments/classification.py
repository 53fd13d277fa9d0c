"""The paper's classification experiments (figures ``fig:class_v`` and ``fig:class_s``), and ours beside them."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from sswim.classifier import Classifier
from sswim.datasets import load_images
from sswim.experiments.runner import EXPERIMENTS, Experiment
from sswim.labelled import voltage_output

__all__ = ["classification"]

WIDTHS, METRICS = (256, 512, 1000), (("l2", "l2"), ("magnitude", "phase"))
SCORES = {
    "voltage": "paper, voltage",
    "spikes": "paper, spikes",
    "spikes_normalized": "spikes, normalised",
    "direct": "ours, direct",
}


def cells(data: tuple[str, ...], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Return the settings of all runs: the paper's grid, or one that is over in a minute."""
    names = data or (("digits",) if quick else ("mnist", "fashion-mnist"))
    widths = (64, 128) if quick else WIDTHS
    metrics = METRICS[:1] if quick else METRICS
    grid = itertools.product(names, widths, (1, 2), metrics, ("dot", "random"), range(min(seeds, 2) if quick else seeds))
    return [
        {"data": d, "width": n, "layers": l, "metrics": list(m), "weights": w, "seed": s, "samples": 600 if quick else None}
        for d, n, l, m, w, s in grid
    ]


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[np.ndarray, ...]:
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X[:1200], y[:1200], X[1200:], y[1200:]
    X, y, test, labels = load_images(name)
    return X.reshape(len(X), -1), y, test.reshape(len(test), -1), labels


def measure(
    data: str, width: int, layers: int, metrics: list[str], weights: str, seed: int, samples: int | None
) -> dict[str, Any]:
    """Return the test accuracy of the paper's readouts, of the normalised spike readout, and of ours, all of one width.

    The paper's two readouts, and the normalised one, are of one and the same network.
    """
    X, y, test, labels = _load(data)
    X, y = X[:samples], y[:samples]
    options: dict[str, Any] = {
        "input_metric": metrics[0],
        "deeper_metric": metrics[1],
        "weights": weights,
        "random_state": seed,
        "verbose": 0,
    }
    model = Classifier.paper((width,) * layers, readout="spikes", **options).fit(X, y)
    scores = {"spikes": float(model.score(test, labels))}
    with voltage_output(model.network_):
        scores["voltage"] = float(model.score(test, labels))
    model.renormalize(X[-len(X) // 6 :], y[-len(X) // 6 :])
    scores["spikes_normalized"] = float(model.score(test, labels))
    scores["direct"] = float(Classifier((width,) * layers, **options).fit(X, y).score(test, labels))
    return scores


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean accuracies over seeds."""
    runs = runs.assign(metrics=runs["metrics"].map(", ".join))
    keys = ["data", "layers", "width", "metrics", "weights"]
    means = runs.groupby(keys, sort=True)[list(SCORES)].mean().reset_index()
    return means.rename(columns=SCORES)


def draw(runs: pd.DataFrame) -> Figure:
    """Draw accuracy over width, a panel per readout and data set, as the paper's figures do."""
    names = list(dict.fromkeys(runs["data"]))
    figure = Figure(figsize=(3.2 * len(SCORES), 3 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(SCORES), squeeze=False, sharey="row")
    runs = runs.assign(metrics=runs["metrics"].map(", ".join))
    for row, name in zip(axes, names, strict=True):
        for ax, (score, title) in zip(row, SCORES.items(), strict=True):
            lines = runs[runs["data"] == name].groupby(["layers", "metrics", "weights"])
            for number, ((layers, metrics, weights), part) in enumerate(lines):
                mean = part.groupby("width")[score].agg(["mean", "min", "max"])
                style = {"color": f"C{number // 2}", "ls": "-" if weights == "dot" else ":"}
                ax.plot(mean.index, mean["mean"], "o", ms=3, label=f"{layers} x, {metrics}, {weights}", **style)
                ax.plot(mean.index, mean["mean"], lw=1.2, **style)
                ax.fill_between(mean.index, mean["min"], mean["max"], color=style["color"], alpha=0.12, lw=0)
            ax.set(title=f"{name}: {title}", xlabel="neurons per layer")
        row[0].set_ylabel("test accuracy")
    axes[0, 0].legend(frameon=False, fontsize=6)
    return figure


classification = EXPERIMENTS["classification"] = Experiment(cells, measure, table, draw)
