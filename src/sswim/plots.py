"""Pictures of what a fitted model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from sswim.classifier import Classifier
from sswim.data.events import ExactEvents
from sswim.data.future import Ahead, Future
from sswim.data.series import SeriesLike
from sswim.data.times import continue_index
from sswim.data.windows import SeriesWindows, batches
from sswim.drawing import BLUE, COLORS, EMPHASIS, RED, axes, legend_above, legend_above_the_data, log_ticks, marked, name_groups
from sswim.forecaster import Forecaster
from sswim.network.events import dense
from sswim.options import check_integer
from sswim.readout.lags import LagReadout
from sswim.report import Facts

__all__ = [
    "plot_backtest",
    "plot_class_rates",
    "plot_confusion",
    "plot_contributions",
    "plot_errors",
    "plot_forecast",
    "plot_growth",
    "plot_mistakes",
    "plot_raster",
    "plot_spikes",
]


def plot_forecast(
    model: Forecaster,
    series: SeriesLike,
    channel: int | str = 0,
    at: int | None = None,
    ax: Axes | None = None,
    *,
    future: Future = None,
) -> Axes:
    """Draw one forecast with the window it saw and, where known, the truth; over time if the series has times.

    Parameters
    ----------
    model : Forecaster
        Fitted.
    series : DataFrame or array
    channel : int or str
        Number or name of the channel.
    at : int, optional
        Row at which the forecast begins, counted from the last gap of the series. Default: the last one that leaves a whole
        horizon of truth.
    future : DataFrame or array, optional
        That of `Forecaster.predict`. Default: the rows of the series itself.

    Returns
    -------
    matplotlib Axes
    """
    data, column = _pick(model, series, channel)
    window, horizon = model.model_.window, model.model_.horizon
    at = len(data) - horizon if at is None else at
    if not window <= at <= len(data):
        raise ValueError(f"at must lie between window={window} and the number of rows, {len(data)}, got {at}.")
    number, rows = _forecast_number(model, column, channel), [torch.from_numpy(data[at - window : at])]
    given = model.model_.future(future) if model.model_.encoder.known and future is not None else None
    forecasts = model.model_.forecast(rows, _ahead(model, series, data, [at], given))
    forecast = forecasts[0, :, number]
    ax = axes(ax, (9, 3))
    places = _time_axis(ax, model, series, at)
    past, ahead = places[:window], places[window:]
    truth = data[at : at + horizon, column]
    ax.plot(past, data[at - window : at, column], color="0.45", lw=1, label="window")
    ax.plot(ahead[: len(truth)], truth, color="black", lw=1.4, label="truth")
    ax.plot(ahead, forecast, color=RED, lw=1.8, label="forecast")
    if model.model_.has_intervals:
        low, high = (bound[:, number] for bound in model.model_.bounds(forecasts[0], 0.9, rows))
        ax.fill_between(ahead, low, high, color=RED, alpha=0.18, lw=0, label="90 % interval")
    ax.axvline((past[-1] + ahead[0]) / 2, color="0.8", lw=0.8)
    ax.set_ylabel(_name(model, column))
    legend_above_the_data(ax, columns=4)
    return ax


def plot_backtest(
    model: Forecaster,
    series: SeriesLike,
    channel: int | str = 0,
    *,
    step: int | None = None,
    coverage: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the forecasts of a series, one after the other, with intervals and what came.

    Parameters
    ----------
    model : Forecaster
        Fitted.
    series : DataFrame or array
        Rows that the model has not seen; the last segment is drawn. The first `window` rows have no forecast.
    channel : int or str
        Number or name of the channel.
    step : int, optional
        Rows from one forecast to the next. Default: `horizon`, so that forecasts do not overlap.
    coverage : float
        Of the intervals, where the readout has any. They are drawn up to the next forecast.

    Returns
    -------
    matplotlib Axes
        With dates, if the series has any.
    """
    fitted = model.model_
    data, column = _pick(model, series, channel)
    window, horizon = fitted.window, fitted.horizon
    step = check_integer("step", horizon if step is None else step, 1)
    number = _forecast_number(model, column, channel)
    starts = range(window, len(data) - horizon + 1, step)
    if not starts:
        raise ValueError(f"series: too short. A window and its horizon take {window} + {horizon} rows, got {len(data)}.")
    rows = [torch.from_numpy(data[at - window : at]) for at in starts]
    forecasts = fitted.forecast(rows, _ahead(model, series, data, starts))
    ax, times = axes(ax, (10, 3.4)), _times(model, series)
    when = np.arange(len(data)) if times is None else _at_dates(ax, times)
    ax.plot(when[window:], data[window:, column], color="black", lw=1, label="what came")
    for n, (at, forecast) in enumerate(zip(starts, forecasts, strict=True)):
        there = when[at : at + horizon]
        ax.plot(there, forecast[:, number], color=RED, lw=1.6, label="forecasts" if n == 0 else None)
        if fitted.has_intervals:
            low, high = (bound[:, number] for bound in fitted.bounds(forecast, coverage, [rows[n]]))
            label = f"{100 * coverage:g} % intervals" if n == 0 else None
            shown = slice(horizon if at == starts[-1] else step)  # up to the next forecast
            ax.fill_between(there[shown], low[shown], high[shown], color=RED, alpha=0.18, lw=0, label=label)
    ax.set(xlabel="row" if times is None else ax.get_xlabel(), ylabel=_name(model, column))
    ax.margins(x=0.01)
    legend_above(ax)
    return ax


def plot_contributions(
    model: Forecaster, series: SeriesLike, channel: int | str = 0, *, future: Future = None, ax: Axes | None = None
) -> Axes:
    """Draw what the forecast that follows on a series is made of: bars on the window's level, which add up to the forecast.

    Sources that add less than a hundredth of the largest are not drawn. `future` is that of `Forecaster.predict`.
    """
    data, column = _pick(model, series, channel)
    _forecast_number(model, column, channel)
    columns = model.model_.columns
    parts = model.contributions(series, future)
    if isinstance(parts, list):
        raise ValueError("series: pass one series, not several.")
    inside = parts.index.get_level_values("channel") == (column if columns is None else columns[column])
    table = parts[inside]
    level, others = table["level"].to_numpy(), table.drop(columns="level")
    sizes = others.abs().mean()
    drawn = others.loc[:, (sizes > 0.01 * sizes.max()) & (sizes > 0)]
    ax, ahead = axes(ax, (9, 3.4)), np.arange(1, len(table) + 1)
    above, below = level.copy(), level.copy()
    for n, (name, values) in enumerate(drawn.items()):
        added = values.to_numpy()
        bottom = np.where(added >= 0, above, below)
        ax.bar(ahead, added, bottom=bottom, width=0.8, color=COLORS[n % len(COLORS)], label=name)
        above, below = above + np.maximum(added, 0), below + np.minimum(added, 0)
    ax.plot(ahead, level, color="0.5", lw=1, label="level")
    ax.plot(ahead, table.sum(axis=1), color="black", lw=1.6, marker=".", ms=4, label="forecast")
    ax.set(xlabel="steps ahead", ylabel=_name(model, column))
    legend_above(ax)
    return ax


def plot_spikes(
    model: Forecaster,
    series: SeriesLike,
    at: int | None = None,
    layer: int = -1,
    channel: int | str = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw the spikes behind the forecast that begins at row `at`: sampled neurons, by delay, and the population above them.

    Where channels share the network, the spikes are those of `channel`. The population is the one that sees the channel
    relative to the window's mean; the paper's readout has none.
    """
    data, column = _pick(model, series, channel)
    window, horizon, encoder = model.model_.window, model.model_.horizon, model.model_.encoder
    at = len(data) - horizon if at is None else at
    samples = SeriesWindows(encoder, [encoder(torch.from_numpy(data[at - window : at]))], window, 0)
    _forecast_number(model, column, channel)
    if column in encoder.resting:
        raise ValueError(f"channel: {channel!r} never moved in the rows of the fit, so that no neuron sees it. Choose another.")
    member = encoder.moving.index(column) if encoder.shared else 0
    spikes = model.network_.hidden_spikes(samples.inputs(slice(None)))[layer][:, :, member].T.cpu().numpy()  # (S, N)
    order = np.argsort(model.network_.layers[layer].delays.detach().cpu().numpy(), kind="stable")
    step, neuron = np.nonzero(spikes[:, order])
    ax = axes(ax, (9, 3))
    places, readout = _time_axis(ax, model, series, at), model.network_.readout
    ax.scatter(places[step], neuron, s=3, color=BLUE, linewidths=0)
    groups = {"sampled": spikes.shape[1]}
    if isinstance(readout, LagReadout):
        place = 0 if encoder.shared else encoder.moving.index(column)
        population = readout.raster(samples.past(slice(None)).transpose(1, 2))[member, place].numpy()  # (W, K)
        step, neuron = np.nonzero(population)
        ax.scatter(places[step], neuron + spikes.shape[1], s=3, color=RED, linewidths=0)
        groups["population"] = population.shape[1]
    ax.axvline((places[window - 1] + places[window]) / 2, color="0.8", lw=0.8)
    ax.set_xlim(places[0], places[-1])
    name_groups(ax, groups)
    return ax


def plot_errors(per_step: Mapping[str, npt.ArrayLike], ax: Axes | None = None) -> Axes:
    """Draw the RSE over steps ahead of several models, from their ``Evaluation.per_step["rse"]``; the last one stands out."""
    ax = axes(ax, (5, 3))
    for number, (name, rse) in enumerate(per_step.items()):
        values = np.asarray(rse)
        style = EMPHASIS if number == len(per_step) - 1 else {**marked(number), "lw": 1.2}
        ax.plot(np.arange(1, len(values) + 1), values, label=name, ms=4, markevery=max(1, len(values) // 8), **style)
    ax.set(xlabel="steps ahead", ylabel="RSE (lower is better)")
    legend_above_the_data(ax, columns=2)
    return ax


def plot_raster(model: Classifier, sample: object, ax: Axes | None = None) -> Axes:
    """Draw the spikes of one sample through the input and all hidden layers of a classifier, layer above layer."""
    one = [sample] if isinstance(model.model_.inputs.encoder, ExactEvents) else np.asarray(sample)[None]
    x = model.model_.samples(one).inputs(slice(0, 1))
    layers = [dense(x), *model.network_.simulate(x).spikes]
    ax = axes(ax, (6, 4))
    groups: dict[str, int] = {}
    for number, spikes in enumerate(layers):
        step, neuron = np.nonzero(spikes[0].cpu().numpy())
        ax.scatter(step, neuron + sum(groups.values()), s=3, color=COLORS[number % len(COLORS)], linewidths=0)
        groups["input" if number == 0 else f"hidden {number}"] = spikes.shape[2]
    ax.set_xlabel("step")
    name_groups(ax, groups)
    return ax


def plot_confusion(model: Classifier, X: npt.ArrayLike, y: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw how many samples of each class are predicted to be of which; dark cells hold a large part of a class."""
    from sklearn.metrics import confusion_matrix

    table = confusion_matrix(y, model.predict(X), labels=model.classes_)
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    count = len(table)
    ax = axes(ax, (5.5, 5))
    # The square root of the share, or few mistakes would look like none.
    image = ax.imshow(share, cmap="Blues", norm=PowerNorm(0.5, 0, 1))
    if count > 30:  # too many to write numbers
        bar = ax.figure.colorbar(image, ax=ax, label="part of the class", shrink=0.8)
        bar.set_ticks([0, 0.05, 0.25, 0.5, 1], labels=["0", "5 %", "25 %", "50 %", "100 %"])
    else:
        for i, j in np.argwhere(table):
            color = "white" if share[i, j] > 0.3 else "black"
            ax.text(j, i, f"{table[i, j]}", ha="center", va="center", fontsize=8 if count <= 12 else 6, color=color)
    marks = np.arange(0, count, -(-count // 40))
    ax.set(xlabel="predicted class", ylabel="true class", xticks=marks, yticks=marks)
    turn = 0 if max(len(str(c)) for c in model.classes_) <= 2 and count <= 30 else 90
    ax.set_xticklabels(model.classes_[marks], rotation=turn), ax.set_yticklabels(model.classes_[marks])
    ax.set_title(f"{np.trace(table):,} of {table.sum():,} right ({np.trace(table) / table.sum():.1%})", fontsize=10)
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
    ax = axes(ax, (6, 3))
    image = ax.imshow(means[:, order], aspect="auto", cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="spikes per sample")
    ax.set(xlabel="hidden neuron, by the class it favours", ylabel="class", yticks=np.arange(len(model.classes_)))
    ax.set_yticklabels(model.classes_)
    return ax


def plot_mistakes(
    model: Classifier, X: npt.ArrayLike, y: npt.ArrayLike, shape: tuple[int, int] | None = None, count: int = 12
) -> Figure:
    """Draw images that the classifier is most wrong about, with their class and the predicted one.

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
    if not len(worst):
        axes[0].text(0.5, 0.5, "no mistakes", ha="center", va="center")
    for ax, number in zip(axes, worst, strict=False):
        ax.imshow(X[number].reshape(shape), cmap="gray_r")
        ax.set_title(f"is {y[number]},\npredicted {found[number]}", fontsize=8)
    return figure


def plot_growth(result: Facts) -> Figure:
    """Draw how time and peak memory grow, on logarithmic axes, from what ``sswim bench growth`` measured."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, key, label, unit in zip(axes, ("seconds", "memory"), ("seconds", "peak memory, MiB"), (1, 2**20), strict=True):
        for number, (name, points) in enumerate(result["points"].items()):
            sizes, values = (np.array([point[k] for point in points], dtype=float) for k in ("size", key))
            exponent = result["result"][name][key]
            ax.loglog(sizes, values / unit, ms=4, lw=1.2, label=f"{name}: exponent {exponent:.2f}", **marked(number))
        ax.set(xlabel="size of what grows", ylabel=label)
        log_ticks(ax)
        legend_above_the_data(ax, columns=2)
    return figure


def _time_axis(ax: Axes, model: Forecaster, series: SeriesLike, at: int) -> np.ndarray:
    """Return where the rows of a window and of the forecast stand on the x axis: at their times, or steps without any."""
    window, horizon = model.model_.window, model.model_.horizon
    index = _times(model, series)
    if index is None:
        ax.set_xlabel("steps from the start of the forecast")
        return np.arange(-window, horizon, dtype=float)
    known = index[at - window : at + horizon]
    return _at_dates(ax, pd.DatetimeIndex(known.append(continue_index(index, window + horizon - len(known)))))


def _times(model: Forecaster, series: SeriesLike) -> pd.DatetimeIndex | None:
    """Return the times of the last segment of a series, if it has any."""
    index = model.model_.series(series).labels(-1)
    index = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
    return index if isinstance(index, pd.DatetimeIndex) else None


def _ahead(
    model: Forecaster, series: SeriesLike, data: np.ndarray, starts: Sequence[int], future: np.ndarray | None = None
) -> Ahead:
    """Return what is known ahead of forecasts that start at some rows of the last segment; default: the rows themselves."""
    fitted = model.model_
    known, checked = list(fitted.encoder.known), fitted.series(series)
    ahead = [data[at : at + fitted.horizon, known] if future is None else future for at in starts] if known else []
    times = checked.times() if fitted.reads_calendar else None
    return Ahead(ahead, [] if times is None else times[-1].at(np.array(starts) - 1).tolist())


def _at_dates(ax: Axes, times: pd.DatetimeIndex) -> np.ndarray:
    """Return where times stand on the x axis, which gets marks at dates, in the zone of the times."""
    locator = AutoDateLocator(tz=times.tz)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times.tz))
    ax.set_xlabel("time" if times.tz is None else f"time ({times.tz})")
    return np.asarray(date2num(times.to_pydatetime()))


def _pick(model: Forecaster, series: SeriesLike, channel: int | str) -> tuple[np.ndarray, int]:
    """Return the last segment of a series as an array, and the number of a channel."""
    data = model.model_.series(series).segments[-1][:]
    columns = model.model_.columns
    if isinstance(channel, str):
        if columns is None or channel not in columns:
            raise ValueError(f"channel: no column {channel!r}; there are {columns}.")
        return data, columns.index(channel)
    if not 0 <= channel < model.n_features_in_:
        raise ValueError(f"channel must be between 0 and {model.n_features_in_ - 1}, got {channel}.")
    return data, channel


def _forecast_number(model: Forecaster, column: int, channel: int | str) -> int:
    """Return the place of a column among those that are forecast."""
    if column not in (channels := model.model_.encoder.channels):
        raise ValueError(f"channel: {channel!r} is a covariate, which is not forecast.")
    return channels.index(column)


def _name(model: Forecaster, column: int) -> str:
    columns = model.model_.columns
    return f"channel {column}" if columns is None else str(columns[column])
