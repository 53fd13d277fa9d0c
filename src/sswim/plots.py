"""Pictures of what a fitted model does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sswim.classifier import Classifier
from sswim.data.events import ExactEvents
from sswim.data.series import SeriesLike
from sswim.data.windows import SeriesWindows, batches
from sswim.forecaster import Forecaster
from sswim.network.events import dense
from sswim.readout.lags import LagReadout
from sswim.report import Facts

__all__ = [
    "plot_class_rates",
    "plot_confusion",
    "plot_errors",
    "plot_forecast",
    "plot_growth",
    "plot_mistakes",
    "plot_raster",
    "plot_spikes",
]


def plot_forecast(
    model: Forecaster, series: SeriesLike, channel: int | str = 0, at: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw one forecast with the window it saw and, where known, the truth.

    Parameters
    ----------
    model : Forecaster
        Fitted.
    series : DataFrame or array
    channel : int or str
        Number or name of the channel.
    at : int, optional
        Row at which the forecast begins. Default: the last one that leaves a whole horizon of truth.

    Returns
    -------
    matplotlib Axes
    """
    data, column = _pick(model, series, channel)
    window, horizon = model.model_.window, model.model_.horizon
    at = len(data) - horizon if at is None else at
    if not window <= at <= len(data):
        raise ValueError(f"at must lie between window={window} and the number of rows, {len(data)}, got {at}.")
    if column not in (channels := model.model_.encoder.channels):
        raise ValueError(f"channel: {channel!r} is a covariate, which is not forecast.")
    number = channels.index(column)
    forecast = np.asarray(model.predict(data[:at]))[:, number]
    ax = Figure(figsize=(9, 3)).subplots() if ax is None else ax
    past, ahead = np.arange(-window, 0), np.arange(horizon)
    truth = data[at : at + horizon, column]
    ax.plot(past, data[at - window : at, column], color="0.45", lw=1, label="window")
    ax.plot(ahead[: len(truth)], truth, color="black", lw=1.4, label="truth")
    ax.plot(ahead, forecast, color="C3", lw=1.8, label="forecast")
    if model.model_.has_intervals:
        low, high = (np.asarray(bound)[:, number] for bound in model.predict_interval(data[:at]))
        ax.fill_between(ahead, low, high, color="C3", alpha=0.15, lw=0, label="90 % interval")
    ax.axvline(-0.5, color="0.8", lw=0.8)
    columns = model.model_.columns
    name = columns[column] if columns is not None else f"channel {column}"
    ax.set(xlabel="steps from the forecast's origin", ylabel=str(name))
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return ax


def plot_spikes(
    model: Forecaster,
    series: SeriesLike,
    at: int | None = None,
    layer: int = -1,
    channel: int | str = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw the spikes behind the forecast that begins at row `at`: sampled neurons by delay, and the population above them.

    Where channels share the network, the spikes are those of `channel`. The population is the one that sees the channel
    relative to the window's mean; the paper's readout has none.
    """
    data, column = _pick(model, series, channel)
    window, horizon, encoder = model.model_.window, model.model_.horizon, model.model_.encoder
    at = len(data) - horizon if at is None else at
    samples = SeriesWindows(encoder, [encoder(torch.from_numpy(data[at - window : at]))], window, 0)
    if column in encoder.resting:
        raise ValueError(f"channel: {channel!r} never moved in the rows of the fit, so that no neuron sees it. Choose another.")
    member = encoder.moving.index(column) if encoder.shared else 0
    spikes = model.network_.hidden_spikes(samples.inputs(slice(None)))[layer][:, :, member].T.cpu().numpy()  # (S, N)
    order = np.argsort(model.network_.layers[layer].delays.detach().cpu().numpy(), kind="stable")
    step, neuron = np.nonzero(spikes[:, order])
    ax = Figure(figsize=(9, 3)).subplots() if ax is None else ax
    ax.scatter(step - window, neuron, s=1.2, color="C0", linewidths=0)
    label, readout = "hidden neuron, by delay", model.network_.readout
    if isinstance(readout, LagReadout):
        place = 0 if encoder.shared else encoder.moving.index(column)
        population = readout.raster(samples.past(slice(None)).transpose(1, 2))[member, place].numpy()  # (W, K)
        step, neuron = np.nonzero(population)
        ax.scatter(step - window, neuron + spikes.shape[1], s=1.2, color="C3", linewidths=0)
        label = "sampled neurons, population"
    ax.axvline(-0.5, color="0.8", lw=0.8)
    ax.set(xlabel="steps from the forecast's origin", ylabel=label, xlim=(-window, horizon))
    return ax


def plot_errors(per_step: Mapping[str, npt.ArrayLike], ax: Axes | None = None) -> Axes:
    """Draw the RSE over steps ahead of several models, from their ``Evaluation.per_step["rse"]``; the last one stands out."""
    others = ["0.6", "C0", "C1", "C2", "C4", "C5"]
    ax = Figure(figsize=(5, 3)).subplots() if ax is None else ax
    for number, (name, rse) in enumerate(per_step.items()):
        values = np.asarray(rse)
        color = "C3" if number == len(per_step) - 1 else others[number % len(others)]
        ax.plot(np.arange(1, len(values) + 1), values, label=name, color=color, lw=1.6)
    ax.set(xlabel="steps ahead", ylabel="RSE (lower is better)")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_raster(model: Classifier, sample: object, ax: Axes | None = None) -> Axes:
    """Draw the spikes of one sample through the input and all hidden layers of a classifier, layer above layer."""
    one = [sample] if isinstance(model.model_.inputs.encoder, ExactEvents) else np.asarray(sample)[None]
    x = model.model_.samples(one).inputs(slice(0, 1))
    layers = [dense(x), *model.network_.simulate(x).spikes]
    ax = Figure(figsize=(6, 4)).subplots() if ax is None else ax
    below, places, names = 0, [], []
    for number, spikes in enumerate(layers):
        step, neuron = np.nonzero(spikes[0].cpu().numpy())
        ax.scatter(step, neuron + below, s=2, color=f"C{number}", linewidths=0)
        places.append(below + spikes.shape[2] / 2)
        names.append("input" if number == 0 else f"hidden {number}")
        below += spikes.shape[2]
        ax.axhline(below - 0.5, color="0.8", lw=0.8)
    ax.set(xlabel="step", ylim=(-0.5, below - 0.5), yticks=places, yticklabels=names)
    return ax


def plot_confusion(model: Classifier, X: npt.ArrayLike, y: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw how often each class is taken for which, in percent of its samples."""
    from sklearn.metrics import confusion_matrix

    table = confusion_matrix(y, model.predict(X), labels=model.classes_).astype(float)
    table *= 100 / np.maximum(table.sum(axis=1, keepdims=True), 1)
    ax = Figure(figsize=(5, 5)).subplots() if ax is None else ax
    wrong = table.copy()
    np.fill_diagonal(wrong, 0)  # or the right ones would outshine all
    ax.imshow(wrong, cmap="Reds", vmin=0, vmax=max(wrong.max(), 1))
    for i, j in np.ndindex(*table.shape):
        if table[i, j] >= 0.5:
            color = "w" if wrong[i, j] > 0.6 * max(wrong.max(), 1) else "k"
            text = ax.text(j, i, f"{table[i, j]:.0f}", ha="center", va="center", fontsize=7, color=color)
            text.set_fontweight("bold" if i == j else "normal")
    marks = np.arange(len(model.classes_))
    ax.set(xlabel="taken for", ylabel="class, % of its samples", xticks=marks, yticks=marks)
    ax.set_xticklabels(model.classes_, rotation=90), ax.set_yticklabels(model.classes_)
    return ax


def plot_class_rates(model: Classifier, X: npt.ArrayLike, y: npt.ArrayLike, layer: int = -1, ax: Axes | None = None) -> Axes:
    """Draw the mean number of spikes per sample of each hidden neuron by class, neurons sorted by the class they favour."""
    fitted, y = model.model_, np.asarray(y)
    samples, network = fitted.samples(X), fitted.network
    cut = batches(len(samples), network.batch_size(fitted.memory))
    parts = [network.simulate(samples.inputs(p)).spikes[layer].sum(dim=1) for p in cut]
    counts = torch.cat(parts).cpu().numpy()  # (samples, neurons)
    means = np.stack([counts[y == c].mean(axis=0) if (y == c).any() else np.zeros(counts.shape[1]) for c in model.classes_])
    relative = means - means.mean(axis=0)
    order = np.lexsort((-relative.max(axis=0), relative.argmax(axis=0)))
    ax = Figure(figsize=(6, 3)).subplots() if ax is None else ax
    ax.imshow(means[:, order], aspect="auto", cmap="viridis", interpolation="nearest")
    ax.set(xlabel="hidden neuron, by the class it favours", ylabel="class", yticks=np.arange(len(model.classes_)))
    ax.set_yticklabels(model.classes_)
    return ax


def plot_mistakes(
    model: Classifier, X: npt.ArrayLike, y: npt.ArrayLike, shape: tuple[int, int] | None = None, count: int = 12
) -> Figure:
    """Draw images that the classifier is most wrong about, with their class and what they are taken for.

    `shape` is that of an image. Default: that of the samples, or a square.
    """
    X, y = np.asarray(X), np.asarray(y)
    p, found = model.predict_proba(X), model.predict(X)
    wrong = np.flatnonzero(found != y)
    worst = wrong[np.argsort(-p.max(axis=1)[wrong], kind="stable")][:count]
    if shape is None:
        side = int(round(np.prod(X.shape[1:]) ** 0.5))
        shape = X.shape[1:] if X.ndim == 3 else (side, side)
    if int(np.prod(shape)) != int(np.prod(X.shape[1:])):
        raise ValueError(f"shape must be that of an image of {int(np.prod(X.shape[1:]))} pixels, got {shape}.")
    columns = min(6, max(len(worst), 1))
    figure = Figure(figsize=(1.5 * columns, 1.8 * max(-(-len(worst) // columns), 1)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(max(-(-len(worst) // columns), 1), columns)).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, number in zip(axes, worst, strict=False):
        ax.imshow(X[number].reshape(shape), cmap="gray_r")
        ax.set_title(f"{y[number]}, not {found[number]}", fontsize=8)
    return figure


def plot_growth(result: Facts) -> Figure:
    """Draw how time and peak memory grow, on logarithmic axes, from what ``sswim bench growth`` measured."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, key, label, unit in zip(axes, ("seconds", "memory"), ("seconds", "peak memory, MiB"), (1, 2**20), strict=True):
        for number, (name, points) in enumerate(result["points"].items()):
            sizes, values = (np.array([point[k] for point in points], dtype=float) for k in ("size", key))
            exponent = result["result"][name][key]
            ax.loglog(sizes, values / unit, "o-", ms=3, lw=1.2, color=f"C{number}", label=f"{name}: exponent {exponent:.2f}")
        ax.set(xlabel="size", ylabel=label)
        ax.legend(frameon=False, fontsize=7)
    return figure


def _pick(model: Forecaster, series: SeriesLike, channel: int | str) -> tuple[np.ndarray, int]:
    """Return the last stretch of a series as an array, and the number of a channel."""
    data = model._series(series).segments[-1]
    columns = model.model_.columns
    if isinstance(channel, str):
        if columns is None or channel not in columns:
            raise ValueError(f"channel: no column {channel!r}; there are {columns}.")
        return data, columns.index(channel)
    if not 0 <= channel < model.n_features_in_:
        raise ValueError(f"channel must be between 0 and {model.n_features_in_ - 1}, got {channel}.")
    return data, channel
