"""What is shown of a forecaster: forecasts one by one, their errors, and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from sswim.contributions import SOURCES, contributions_of
from sswim.data.future import Ahead
from sswim.data.rows import read_windows
from sswim.data.series import Breaks, Series, SeriesLike
from sswim.data.starts import Starts, TimedWindows
from sswim.evaluate.metrics import Evaluation, ForecastErrors
from sswim.forecasts import ForecastModel
from sswim.page import charts
from sswim.page.blocks import Block, Figure, Key, Section, Stepper, Table, Words, packed, plain_facts, plain_rows, shown
from sswim.page.limits import Found, Limits
from sswim.page.neurons import Watched, firing, kernel_section, spread_out, watch
from sswim.page.origins import SeriesPairs, row_name
from sswim.page.series_neurons import neuron_section
from sswim.page.words import cost_section
from sswim.profiles import bits_of
from sswim.readout.lags import LagReadout
from sswim.report import Facts

__all__ = ["series_sections"]

# Neurons of a population in a raster.
POPULATION = 16


@dataclass(frozen=True)
class _Tested:
    """Forecasts of a series, some of them to be shown.

    Attributes
    ----------
    model : ForecastModel
    series : Series
    result, naive : Evaluation
        Errors over every window, of the model and of the last value.
    starts : array of shape (forecasts,)
        First rows of the windows that are shown.
    rows : array of shape (forecasts, window + horizon, columns)
        These windows, and what came.
    forecasts : array of shape (forecasts, horizon, channels)
    times : list of int
        Of the windows' last rows, in seconds, if forecasts depend on them.
    """

    model: ForecastModel
    series: Series
    result: Evaluation
    naive: Evaluation
    starts: np.ndarray
    rows: np.ndarray
    forecasts: np.ndarray
    times: list[int]

    @property
    def channels(self) -> list[int]:
        """Columns that are forecast."""
        return self.model.encoder.channels

    @property
    def names(self) -> list[str]:
        """Names of these columns."""
        columns = self.model.columns
        return [str(c if columns is None else columns[c]) for c in self.channels]

    @property
    def past(self) -> np.ndarray:
        """What the model saw of the channels, (forecasts, window, channels)."""
        return self.rows[:, : self.model.window, self.channels]

    @property
    def truth(self) -> np.ndarray:
        """What came, (forecasts, horizon, channels)."""
        return self.rows[:, self.model.window :, self.channels]

    @cached_property
    def windows(self) -> list[torch.Tensor]:
        """The windows, all columns."""
        return [torch.from_numpy(rows[: self.model.window]) for rows in self.rows]

    @cached_property
    def ahead(self) -> Ahead:
        """What was known ahead of each window."""
        known = list(self.model.encoder.known)
        return Ahead([rows[self.model.window :, known] for rows in self.rows] if known else [], self.times)


def _test(model: ForecastModel, X: SeriesLike, breaks: Breaks, most: int) -> _Tested:
    """Forecast from every window of a series, and keep some forecasts."""
    series = model.series(X, breaks)
    errors, naive, span = model.new_errors(), ForecastErrors(), model.window + model.horizon
    starts = Starts([len(segment) for segment in series.segments], span)
    chosen, done, kept = spread_out(max(len(starts), 1), most), 0, []
    for truth, forecast in model.backtest_of(series):
        errors.update(truth, forecast)
        here = starts[torch.arange(done, done + len(truth))]
        last = read_windows(series.segments, here + (model.window - 1), 1)[:, :, model.encoder.channels].numpy()
        naive.update(truth, np.repeat(last, model.horizon, axis=1))
        kept.append(forecast[chosen[(chosen >= done) & (chosen < done + len(truth))] - done])
        done += len(truth)
    first = starts[torch.from_numpy(chosen)]
    columns = model.columns
    names = None if columns is None else [columns[c] for c in model.encoder.channels]
    rows = read_windows(series.segments, first, span).numpy()
    labels = series.times() if model.reads_calendar else None
    times = [] if labels is None else TimedWindows(starts, labels, model.window)(torch.from_numpy(chosen)).tolist()
    found = errors.result(names), naive.result(names), first.numpy(), rows, np.concatenate(kept), times
    return _Tested(model, series, *found)


def series_sections(
    model: ForecastModel, X: SeriesLike, breaks: Breaks, train: SeriesLike | None, params: Mapping[str, object], most: Limits
) -> Found:
    """Return what is shown of a forecaster on a series."""
    pairs = None if train is None else SeriesPairs.find(model, train, breaks)
    channels, window = min(len(model.encoder.channels), most.channels), min(model.window, most.rows)
    each = channels * (window + 2 * model.horizon)
    found = _test(model, X, breaks, max(1, min(most.items, most.values // each)))
    columns = spread_out(len(model.encoder.channels), max(1, min(channels, most.values // (window + 2 * model.horizon))))
    samples = model.last_windows(found.windows, found.ahead)
    rasters = len(found.starts) * (len(columns) if model.encoder.shared else 1)
    seen = watch(model.network, samples, model.memory, most.in_rasters(rasters * window * len(model.network.layers)), window)
    sections = [
        _forecasts(found, seen, columns, window),
        _errors(found, columns),
        firing(model.network, model.report.layers, seen, "window"),
        neuron_section(model, seen, found.past, found.truth, most.one_by_one(model.window + model.horizon), pairs),
        kernel_section(model.network),
        _sources(found),
        cost_section(model.costs(X, breaks, bits=bits_of(params.get("profile")))),
    ]
    return Found(sections, _tiles(found), _notes(found, columns, window), _data(found))


def _data(found: _Tested) -> str:
    rows = sum(len(segment) for segment in found.series.segments)
    return f"{shown(rows)} rows of {shown(len(found.channels))} channels, with {shown(found.result.windows)} windows"


def _notes(found: _Tested, columns: np.ndarray, window: int) -> list[str]:
    """Return what is not shown."""
    notes = [f"It was tested on {_data(found)}."]
    if len(found.starts) < found.result.windows:
        notes.append(
            f"{shown(len(found.starts))} of {shown(found.result.windows)} forecasts are shown one by one, evenly spread. "
            "Errors are those of all of them."
        )
    if len(columns) < len(found.channels):
        notes.append(
            f"{shown(len(columns))} of {shown(len(found.channels))} channels are shown, evenly spread. Errors are of all."
        )
    if window < found.model.window:
        notes.append(f"Of each window, the last {shown(window)} of {shown(found.model.window)} rows are drawn.")
    return notes


def _tiles(found: _Tested) -> list[tuple[str, str, str]]:
    result, naive = found.result, found.naive
    tiles = [
        ("RSE", shown(result.rse), "0 is perfect, 1 is as good as knowing the mean"),
        ("MAE", shown(result.mae), "mean absolute error, in the data's units"),
        ("RMSE", shown(result.rmse), "root mean squared error, in the data's units"),
    ]
    if naive.rmse > 0:
        tiles.append(
            (
                "vs. the last value",
                f"{100 * (result.rmse / naive.rmse - 1):+.1f} %",
                "RMSE, compared with a forecast that nothing changes",
            )
        )
    if result.coverage is not None:
        tiles.append(("Coverage", f"{100 * result.coverage:.1f} %", "of the values lie within the 90 % intervals"))
    return tiles


def _times(found: _Tested, window: int) -> tuple[list[Facts], bool, list[str]]:
    """Return where the rows of each forecast lie on the x axis, whether these are times, and the name of its last known row."""
    model, bounds = found.model, np.cumsum([0, *(len(s) for s in found.series.segments)])
    places, names, labels = list[Facts](), list[str](), dict[int, pd.Index | None]()
    for start in found.starts:
        number = int(np.searchsorted(bounds, start, side="right")) - 1
        if number not in labels:
            labels[number] = found.series.labels(number)
        first, index = start - bounds[number] + model.window - window, labels[number]
        here = None if index is None else index[first : first + window + model.horizon]
        stamps = here.to_timestamp() if isinstance(here, pd.PeriodIndex) else here
        names.append(f"row {start + model.window - 1}" if stamps is None else row_name(stamps[window - 1]))
        if isinstance(stamps, pd.DatetimeIndex):
            at = stamps.tz_localize(None).as_unit("ms").asi8  # the time on the wall
        else:
            at = np.arange(start + model.window - window, start + model.window + model.horizon)
        steps = np.unique(np.diff(at))
        regular = {"from": int(at[0]), "step": int(steps[0])} if len(steps) == 1 else {"at": [int(t) for t in at]}
        places.append(regular)
    return places, all(isinstance(i, (pd.DatetimeIndex, pd.PeriodIndex)) for i in labels.values()), names


def _forecasts(found: _Tested, seen: Watched, columns: np.ndarray, window: int) -> Section:
    """Return the section with forecasts one by one, and the spikes behind each."""
    model, names = found.model, [found.names[c] for c in columns]
    places, time, ends = _times(found, window)
    half = model.half_width(0.9) if model.has_intervals else None
    error = found.forecasts - found.truth  # (n, H, C)
    rasters, groups = _rasters(found, seen, columns, window)
    data: Facts = {
        "window": window,
        "time": time,
        "places": places,
        "ends": ends,
        "channels": names,
        "past": found.past[:, -window:, columns].transpose(0, 2, 1),  # (n, C, W)
        "truth": found.truth[:, :, columns].transpose(0, 2, 1),
        "forecast": found.forecasts[:, :, columns].transpose(0, 2, 1),
        "half": None if half is None else half[:, columns].T,
        "floor": model.floors(found.windows)[:, columns],
        "rmse": np.sqrt((error**2).mean(axis=1))[:, columns],
        "inside": None if half is None else (np.abs(error) <= half).sum(axis=1)[:, columns],
        "rasters": rasters,
        "groups": groups,
        "shared": model.encoder.shared,
    }
    keys = [Key("muted", "line", "window"), Key("ink", "line", "what came"), Key("second", "line", "forecast")]
    columns_of_table = ["time" if time else "row", "forecast", "what came"]
    if half is not None:
        keys.append(Key("second", "band", "90 % interval"))
        columns_of_table[2:2] = ["low", "high"]
    text = "The window that the model saw, its forecast, and what came."
    chart = Figure(
        "fan",
        charts.fan(text, time=time, points=model.horizon <= charts.SHORT, interval=half is not None),
        "Forecast",
        text,
        keys,
        Table("This forecast in numbers", columns_of_table),
    )
    text = "Each dot is a spike, each line a neuron; sampled neurons with short delays are at the bottom."
    dots = [
        Key(charts.COLORS[g % 8].removeprefix("@"), "dot", f"{name}, {count} neurons") for g, (name, count) in enumerate(groups)
    ]
    table = Table("Spikes in this window", ("group", "neurons shown", "spikes"))
    spikes = Figure("raster", charts.raster(text, time=time), "Spikes behind it", text, dots, table, canvas=True)
    words = "Step through forecasts with the buttons, the slider or the arrow keys. Forecasts are in the order of time."
    stepper = Stepper("forecasts", "forecast", "forecasts", [chart, spikes], plain_facts(data), "Channel", names)
    return Section("forecasts", "Forecasts, one by one", [Words([words]), stepper])


def _rasters(
    found: _Tested, seen: Watched, columns: np.ndarray, window: int
) -> tuple[list[list[list[str]]], list[tuple[str, int]]]:
    """Return the spikes of each forecast and channel, group by group, and the groups: sampled layers, and the population."""
    model, encoder = found.model, found.model.encoder
    batch = len(encoder.moving) if encoder.shared else 1
    groups = [(f"hidden {l + 1}", len(s)) for l, s in enumerate(seen.shown)]
    bits = [r.reshape(len(found.starts), batch, *r.shape[1:]) for r in seen.rasters]  # (n, batch, N, W)
    readout, population = model.network.readout, None
    if isinstance(readout, LagReadout) and encoder.shared and not readout.skip:
        rows = model.last_windows(found.windows, found.ahead).past(slice(None)).transpose(1, 2)  # (n * batch, outputs, W)
        some = spread_out(readout.population.neurons, POPULATION)
        fires = (
            readout.raster(rows.to(readout.weights))[..., some][:, :, -window:].cpu().numpy() > 0
        )  # (n * batch, outputs, W, K)
        population = fires.reshape(len(found.starts), -1, window, len(some))
        groups.append(("population", len(some)))
    packed_bits = []
    for n in range(len(found.starts)):
        of_channels = list[list[str]]()
        for c in columns if encoder.shared else columns[:1]:
            column = encoder.channels[c]
            member = encoder.moving.index(column) if column in encoder.moving else None
            if member is None:  # a channel that rests: nothing sees it
                of_channels.append([])
                continue
            parts = [packed(b[n, member if encoder.shared else 0]) for b in bits]
            of_channels.append(parts + ([] if population is None else [packed(population[n, member].T)]))
        packed_bits.append(of_channels)
    return packed_bits, groups


def _errors(found: _Tested, columns: np.ndarray) -> Section:
    """Return the section on errors per step ahead and per channel."""
    steps, naive = found.result.per_step, found.naive.per_step
    both = [t["rse"].to_numpy() for t in (steps, naive)]
    rows = [{"x": s + 1, "y": float(v), "line": line} for line, values in enumerate(both) for s, v in enumerate(values)]
    text = "Root relative squared error at each step ahead: lower is better, and 1 is as good as knowing the mean."
    figures = ("rse", "mae", "rmse", "deviation")
    table = Table(
        "Errors per step ahead",
        ("steps ahead", "RSE", "MAE", "RMSE", "deviation of the data", "RSE of the last value"),
        [
            (str(s + 1), *(shown(float(steps[f].iloc[s])) for f in figures), shown(float(last)))
            for s, last in enumerate(both[1])
        ],
    )
    keys = [Key("first", "line", "this model"), Key("second", "line", "the last value goes on")]
    spec = charts.lines(plain_rows(rows), ["model", "last value"], "steps ahead", "RSE", text, zero=True)
    per_step = Figure("steps", spec, "Errors per step ahead", text, keys, table)
    names, channel = [found.names[c] for c in columns], found.result.per_channel.iloc[columns]
    order = np.argsort(-channel["rse"].fillna(0).to_numpy(), kind="stable")
    bars = [{"name": names[i], "y": float(channel["rse"].iloc[i])} for i in order]
    text = "Root relative squared error of each channel, the worst first."
    table = Table(
        "Errors per channel",
        ("channel", "RSE", "MAE", "RMSE", "deviation of the data"),
        [(names[i], *(shown(float(channel[f].iloc[i])) for f in figures)) for i in order],
    )
    spec = charts.bars(plain_rows(bars), "RSE", text)
    return Section("errors", "Errors", [per_step, Figure("channels", spec, "Errors per channel", text, (), table)])


def _sources(found: _Tested) -> Section:
    """Return the section on what spikes bring: models that were weighed, and what forecasts are made of."""
    model, solution, blocks = found.model, found.model.report.solution, list[Block]()
    readout = model.network.readout
    if solution.kept is not None and solution.gains is not None:
        rows = [(name, f"{100 * share:.1f} %", f"{100 * solution.gains[name]:+.1f} %") for name, share in solution.kept.items()]
        best = max(solution.gains, key=lambda name: solution.gains[name])  # type: ignore[index]
        read = (
            "rows themselves"
            if isinstance(readout, LagReadout) and readout.skip
            else "a finely quantised copy of the rows, carried by spikes"
        )
        blocks.append(Words([
            f"The plainest linear model reads {read}, with the same weights for all channels. The others add more of what "
            f"spikes carry. On rows of the fit that they had not seen, the best ({best}) has "
            f"{100 * solution.gains[best]:.1f} % less squared error than the plainest linear model. The forecast is a "
            "mixture, with these shares."
        ]))  # fmt: skip
        text = "How much less squared error than the plainest linear model, on rows of the fit that it had not seen."
        bars = [
            {"name": name, "y": 100 * gain, "mark": solution.kept.get(name, 0) >= 0.0005}
            for name, gain in solution.gains.items()
        ]
        keys = [Key("second", "bar", "part of the forecast"), Key("first", "bar", "weighed, but not used")]
        spec = charts.bars(plain_rows(bars), "gain, %", text)
        table = Table("What the forecast is made of", ("model", "share", "gain"), rows)
        blocks.append(Figure("gains", spec, "Gains", text, keys, table))
    if isinstance(readout, LagReadout):
        blocks.append(_contributions(found))
    if not blocks:
        blocks.append(Words(["This readout has no linear part: everything in a forecast comes from spikes of hidden neurons."]))
    return Section("sources", "What spikes bring", blocks)


def _contributions(found: _Tested) -> Figure:
    """Return the figure on what forecasts are made of."""
    model, many = found.model, len(found.starts)
    tables = contributions_of(model, found.windows, found.ahead, [None] * many)
    parts = np.stack([t.to_numpy() for t in tables]).reshape(many, model.horizon, len(found.channels), len(SOURCES))
    sizes = (np.abs(parts) / model.encoder.span[found.channels][:, None]).mean(axis=(0, 2))  # (H, sources)
    used = [s for s in range(len(SOURCES)) if SOURCES[s] != "level" and sizes[:, s].max() > 1e-3 * sizes[:, 1:].max()][:8]
    rows = [{"x": h + 1, "y": sizes[h, s], "line": line} for line, s in enumerate(used) for h in range(model.horizon)]
    text = f"Mean size of what each source adds to the window's level, in deviations of a channel, over {many} forecasts."
    keys = [Key(charts.COLORS[line].removeprefix("@"), "line", SOURCES[s]) for line, s in enumerate(used)]
    table = Table(text, ("steps ahead", *(SOURCES[s] for s in used)), [
        (str(h + 1), *(shown(float(sizes[h, s]), 3) for s in used)) for h in range(model.horizon)
    ])  # fmt: skip
    names = [SOURCES[s] for s in used]
    spec = charts.lines(plain_rows(rows), names, "steps ahead", "mean size, deviations", text, zero=True)
    return Figure("sources", spec, "What a forecast is made of", text, keys, table)
