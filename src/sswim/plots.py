"""Pictures of what a fitted model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["plot_errors", "plot_forecast", "plot_growth", "plot_spikes"]


def plot_forecast(model: Forecaster, series: Any, channel: int | str = 0, at: int | None = None, ax: Any = None) -> Any:
    """Draw one forecast with the window it saw and, where known, the truth.

    Parameters
    ----------
    model : Forecaster
        Fitted.
    series : DataFrame or array
    channel : int or str
        Number or name of the channel.
    at : int, optional
        Row at which the forecast begins; the last one that leaves a whole horizon of truth unless told.

    Returns
    -------
    matplotlib Axes
    """
    data, column = _pick(model, series, channel)
    at = len(data) - model.horizon if at is None else at
    if not model.window <= at <= len(data):
        raise ValueError(f"at must lie between window={model.window} and the number of rows, {len(data)}, got {at}.")
    if column not in (channels := model._encoder.channels):
        raise ValueError(f"channel: {channel!r} is a covariate, which is not forecast.")
    number = channels.index(column)
    forecast = np.asarray(model.predict(data[:at]))[:, number]
    ax = Figure(figsize=(9, 3)).subplots() if ax is None else ax
    past, ahead = np.arange(-model.window, 0), np.arange(model.horizon)
    truth = data[at : at + model.horizon, column]
    ax.plot(past, data[at - model.window : at, column], color="0.45", lw=1, label="window")
    ax.plot(ahead[: len(truth)], truth, color="black", lw=1.4, label="truth")
    ax.plot(ahead, forecast, color="C3", lw=1.8, label="forecast")
    if hasattr(model, "error_quantiles_"):
        low, high = (np.asarray(bound)[:, number] for bound in model.predict_interval(data[:at]))
        ax.fill_between(ahead, low, high, color="C3", alpha=0.15, lw=0, label="90 % interval")
    ax.axvline(-0.5, color="0.8", lw=0.8)
    name = model.columns_[column] if model.columns_ is not None else f"channel {column}"
    ax.set(xlabel="steps from the forecast's origin", ylabel=str(name))
    ax.legend(loc="upper left", frameon=False, fontsize=8)
    return ax


def plot_spikes(
    model: Forecaster, series: Any, at: int | None = None, layer: int = -1, channel: int | str = 0, ax: Any = None
) -> Any:
    """Draw the hidden spikes behind the forecast that begins at row `at`, neurons sorted by delay.

    Where channels share the network, it is the one of `channel`.
    """
    data, column = _pick(model, series, channel)
    at = len(data) - model.horizon if at is None else at
    encoder = model._encoder
    x = encoder(torch.from_numpy(data[:at])).signals[:, -model.window :].permute(2, 1, 0)  # (B, window, inputs)
    member = encoder.channels.index(column) if encoder.shared else 0
    spikes = model.network_.simulate(x).spikes[layer][member].cpu().numpy()  # (S, N)
    order = np.argsort(model.network_.layers[layer].delays.detach().cpu().numpy(), kind="stable")
    step, neuron = np.nonzero(spikes[:, order])
    ax = Figure(figsize=(9, 3)).subplots() if ax is None else ax
    ax.scatter(step - model.window, neuron, s=1.2, color="C0", linewidths=0)
    ax.axvline(-0.5, color="0.8", lw=0.8)
    ax.set(xlabel="steps from the forecast's origin", ylabel="hidden neuron, by delay", xlim=(-model.window, model.horizon))
    return ax


def plot_errors(per_step: dict[str, Any], ax: Any = None) -> Any:
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


def plot_growth(result: dict[str, Any]) -> Figure:
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


def _pick(model: Forecaster, series: Any, channel: int | str) -> tuple[np.ndarray, int]:
    """Return the last stretch of a series as an array, and the number of a channel."""
    data = model._series(series).segments[-1]
    if isinstance(channel, str):
        if model.columns_ is None or channel not in model.columns_:
            raise ValueError(f"channel: no column {channel!r}; there are {model.columns_}.")
        return data, model.columns_.index(channel)
    if not 0 <= channel < model.n_features_in_:
        raise ValueError(f"channel must be between 0 and {model.n_features_in_ - 1}, got {channel}.")
    return data, channel
