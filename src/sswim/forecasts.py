"""A fitted forecaster: everything that a forecast, a stream, a file or an export needs."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sswim.data.encoder import SeriesEncoder
from sswim.data.future import NOTHING, Ahead, Future, FutureReader
from sswim.data.past import SeriesPast
from sswim.data.rows import read_windows
from sswim.data.series import Breaks, Series, SeriesLike, as_series, is_several
from sswim.data.times import Pace, continue_index
from sswim.data.windows import SeriesWindows, batches
from sswim.evaluate.costs import Costs, Job
from sswim.evaluate.counted_layers import Seen, Setting
from sswim.evaluate.counting import count_network
from sswim.evaluate.metrics import Evaluation, ForecastErrors
from sswim.machine import PIECES, on_threads
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import warn
from sswim.readout.lags import LagReadout
from sswim.readout.record import LEVELS, LagRecord
from sswim.report import SamplingReport, Summary, summarize

__all__ = ["Costs", "ForecastModel", "Forecasts"]

Forecasts = Any  # a DataFrame, an array, or a list of either, as the series are


@dataclass(frozen=True)
class ForecastModel:
    """A fitted forecaster. A forecast depends on the last `window` rows and on nothing else.

    Attributes
    ----------
    encoder : SeriesEncoder
        Turns rows into a network's inputs, and outputs into forecasts.
    network : SpikingNetwork
    report : SamplingReport
        What the fit did.
    columns : tuple or None
        Names of the columns, if a DataFrame was given.
    missing : {"error", "interpolate"}
        What happens to NaN.
    memory : int
        Budget in bytes.
    past : SeriesPast or None
        Where the series ended, if the model can be updated.
    pace : Pace or None
        How the times of the series went on, if it had any.
    """

    encoder: SeriesEncoder
    network: SpikingNetwork
    report: SamplingReport
    columns: tuple[Hashable, ...] | None
    missing: str
    memory: int
    past: SeriesPast | None = field(default=None, repr=False, metadata={"in_files": False})
    pace: Pace | None = field(default=None, metadata={"later": True})

    def told(self) -> Self:
        """Return the model with all that a file holds of it: quantiles of errors that were not asked for yet."""
        if self.quantiles is self.report.solution.quantiles:
            return self
        solution = replace(self.report.solution, quantiles=self.quantiles)
        return replace(self, report=replace(self.report, solution=solution))

    def updatable(self, record: object, past: SeriesPast) -> Self:
        """Return the model with the sums that it can be updated from."""
        report = replace(self.report, solution=replace(self.report.solution, record=record))
        return replace(self, report=report, past=past)

    @property
    def window(self) -> int:
        """Rows that the model looks at."""
        return self.network.window

    @property
    def horizon(self) -> int:
        """Rows that it forecasts."""
        return self.network.horizon

    @property
    def future(self) -> FutureReader:
        """What reads covariates that are known ahead."""
        names = [c if self.columns is None else self.columns[c] for c in self.encoder.known]
        return FutureReader(names, self.horizon, self.columns is not None, self.missing, self.pace)

    def series(self, X: SeriesLike, breaks: Breaks = None) -> Series:
        """Check a series against what was fitted."""
        series = as_series(X, breaks=breaks, missing=self.missing)
        series.check_channels(self.encoder.columns, self.columns, "Forecaster")
        series.zone = None if self.pace is None else self.pace.zone
        return series

    @property
    def reads_calendar(self) -> bool:
        """Whether forecasts depend on the time of day, week or year."""
        readout = self.network.readout
        return isinstance(readout, LagReadout) and bool((readout.weights[:, readout.parts["clock"]] != 0).any())

    def timeless(self) -> ForecastModel:
        """Return the model for rows whose times are not known."""
        if self.encoder.calendar is None:
            return self
        network = copy.copy(self.network)
        if isinstance(readout := self.network.readout, LagReadout):
            network._modules = {**network._modules, "readout": readout.without_clock()}
        return replace(self, network=network, encoder=replace(self.encoder, calendar=None))

    def check_times(self, series: Series, what: str) -> None:
        """Refuse a series whose rows have no times, if `what` the model does needs them."""
        if self.encoder.calendar is not None and series.times() is None:
            raise ValueError(
                f"X: this model was fitted to rows with times, and {what} need them too: pass a DataFrame with a "
                "DatetimeIndex, or fit with readout=Direct(calendar=False)."
            )

    def last(self, X: SeriesLike, future: Future = None) -> tuple[list[Series], list[Tensor], Ahead]:
        """Return each of one or several series, the rows of its last segment, and what is known ahead of it."""
        several = is_several(X)
        parts = [self.series(part) for part in (list(X) if several else [X])]  # type: ignore[arg-type]
        for number, series in enumerate(parts):
            series.check_window(self.window, f"series[{number}]" if several else "series")
        known = self.future.several(future, parts, one=not several)
        ahead = Ahead(known, self._last_times(parts) if self.reads_calendar else [])
        return parts, [torch.from_numpy(series.segments[-1][-self.window :]) for series in parts], ahead

    def _last_times(self, parts: Sequence[Series]) -> list[int]:
        """Return the wall-clock times of the last rows of several series; none if none of them has times."""
        found = [Ahead.last_time(series) for series in parts]
        times = [time for time in found if time is not None]
        if times and len(times) < len(found):
            raise ValueError(
                "X: some of these series have times, and others have none. Pass those without in a list of their own."
            )
        return times

    def predict(self, X: SeriesLike, future: Future = None, *, timed: bool = False) -> tuple[Forecasts, list[Tensor]]:
        """Return the forecasts that follow on one or several series, as the user gave these, and the rows they follow on.

        With `timed`, warn of rows without times if forecasts depend on them.
        """
        several, (series, rows, ahead) = is_several(X), self.last(X, future)
        if timed and self.reads_calendar and not ahead.times:
            warn(
                "X: this model reads the time of day, week or year, and its intervals are those of rows with times. Without, "
                "forecasts are worse, and intervals cover less than they should. Pass a DataFrame with a DatetimeIndex.",
                stacklevel=3,
            )
        values = self.forecast(rows, ahead)
        if several and not isinstance(X, (list, tuple)):
            return values, rows
        results = [self._labelled(value, part) for value, part in zip(values, series, strict=True)]
        return results if several else results[0], rows

    def _labelled(self, value: np.ndarray, series: Series) -> pd.DataFrame | np.ndarray:
        """Return a forecast (horizon, channels) as the user gave the series."""
        if series.columns is None:
            return value
        names = [series.columns[c] for c in self.encoder.channels]
        return pd.DataFrame(value, index=continue_index(series.indexes[-1], len(value), self.pace), columns=pd.Index(names))

    @property
    def has_intervals(self) -> bool:
        """Whether errors on validation rows are known, which intervals come from."""
        return self.quantiles is not None

    @cached_property
    def quantiles(self) -> np.ndarray | None:
        """Calibrated quantiles (levels, horizon, channels) of errors, if any are known."""
        solution = self.report.solution
        if solution.quantiles is None and isinstance(solution.record, LagRecord):
            return solution.record.quantiles()
        return solution.quantiles

    def half_width(self, coverage: float) -> np.ndarray:
        """Return half the width of intervals, (horizon, channels), in the data's own units."""
        quantiles = self.quantiles
        if quantiles is None:
            raise ValueError("predict_interval needs a Forecaster fitted with readout='direct'.")
        number = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
        if not number or not LEVELS[0] <= coverage <= LEVELS[-1]:
            raise ValueError(f"coverage must be a number between {LEVELS[0]} and {LEVELS[-1]}, got {coverage!r}.")
        above = int(np.searchsorted(LEVELS, coverage).clip(1))
        part = (coverage - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        low, high = quantiles[above - 1], quantiles[above]
        return self.encoder.spread((low + part * (high - low)) * self.encoder.span[list(self.encoder.moving)])

    def bounds(self, forecast: Forecasts, coverage: float, rows: Sequence[Tensor]) -> tuple[Forecasts, Forecasts]:
        """Return the lower and upper bounds of a forecast, or of several, that follow on series (rows, columns)."""
        half, floors = self.half_width(coverage), self.floors(rows)

        def low(f: Forecasts, floor: np.ndarray) -> Forecasts:
            return (f - half).clip(lower=floor, axis=1) if isinstance(f, pd.DataFrame) else np.maximum(f - half, floor)

        if isinstance(forecast, list):
            return [low(f, floor) for f, floor in zip(forecast, floors, strict=True)], [f + half for f in forecast]
        return low(forecast, floors[:, None] if forecast.ndim == 3 else floors[0]), forecast + half

    @torch.no_grad()
    def _forecasts(self, samples: SeriesWindows) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the numbers of windows and their forecasts (windows, horizon, channels), scaled, batch by batch."""
        network, readout = self.network, self.network.readout
        if not isinstance(readout, VoltageReadout):
            # In float64 after the spikes: forecasts then do not depend on how many windows are read at once.
            readout = copy.deepcopy(readout).double()  # type: ignore[attr-defined]
        steps, read = readout.reader(self.window)
        filters = network.hidden_filters(steps=steps)
        size = max(samples.batch, network.batch_size(self.memory // PIECES) // samples.batch * samples.batch)

        def forecast(part: slice) -> tuple[Tensor, Tensor]:
            windows = torch.arange(part.start // samples.batch, part.stop // samples.batch)
            some, every = samples.read(windows), slice(None)
            x = some.inputs(every)
            rows, spikes = self.rows_read(some, every, x), network.hidden_spikes(x, filters)
            y = some.level(every) + read(spikes, rows, some.ahead(every)).cpu()
            if samples.shared:
                y = y[:, :, 0].unflatten(0, (-1, samples.batch)).transpose(1, 2)
            return windows, y

        yield from on_threads(forecast, batches(len(samples), size, even=False))

    def rows_read(self, samples: SeriesWindows, part: slice, x: Tensor) -> Tensor:
        """Return the rows that a readout with lags sees of some samples: the channels, not clipped, and the other inputs."""
        past = samples.past(part)
        inputs = self.network.outputs if samples.shared else past.shape[2]
        return torch.cat([past, x[:, :, inputs:].to(past)], dim=2)

    def backtest(self, X: SeriesLike, breaks: Breaks = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""
        return self.backtest_of(self.series(X, breaks))

    def backtest_of(self, series: Series) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every window of a series that was checked."""
        rows = series.segments
        longest = max(map(len, rows))
        if longest < self.window + self.horizon:
            raise ValueError(
                f"series: too short to test on. A window and its horizon take {self.window} + {self.horizon} rows without a "
                f"gap, the longest segment has {longest}."
            )
        segments, times = self.encoder.segments(rows, self.memory), series.times() if self.reads_calendar else None
        samples = SeriesWindows(self.encoder, segments, self.window, self.horizon, ends=times)
        for index, y in self._forecasts(samples):
            seen = read_windows(rows, samples.starts[index], self.window + self.horizon)[:, :, self.encoder.channels]
            yield seen[:, self.window :].numpy(), self.encoder.forecast(y, seen[:, : self.window])

    def new_errors(self) -> ForecastErrors:
        """Return what errors of this model's forecasts can be added to."""
        width = (self.encoder.high - self.encoder.low)[self.encoder.channels]
        usual = np.median(width[width > 0]) if (width > 0).any() else 1.0
        return ForecastErrors(np.where(width > 0, width, usual), self.half_width(0.9) if self.has_intervals else None)

    def evaluate(self, X: SeriesLike, breaks: Breaks = None) -> Evaluation:
        """Return the errors of the forecasts from every window of a series."""
        errors = self.new_errors()
        for truth, forecast in self.backtest(X, breaks):
            errors.update(truth, forecast)
        return errors.result(None if self.columns is None else [self.columns[c] for c in self.encoder.channels])

    def forecast(self, rows: Sequence[Tensor], ahead: Ahead = NOTHING) -> np.ndarray:
        """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
        last = torch.stack([r[-self.window :, self.encoder.channels] for r in rows])
        found = self._forecasts(self.last_windows(rows, ahead))
        return np.concatenate([self.encoder.forecast(y, last[index]) for index, y in found])

    def floors(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Return what the forecasts that follow on several series (rows, columns) stay above, (series, channels)."""
        return self.encoder.floors(torch.stack([r[-self.window :, self.encoder.channels] for r in rows]))

    def last_windows(self, rows: Sequence[Tensor], ahead: Ahead = NOTHING) -> SeriesWindows:
        """Return the last window of each of several series (rows, columns)."""
        last = [r[-self.window :] for r in rows]
        if self.encoder.known:
            # What is not known of the rows ahead is never looked at.
            after = torch.zeros(len(rows), self.horizon, self.encoder.columns, dtype=torch.float64)
            after[:, :, list(self.encoder.known)] = torch.from_numpy(np.stack(ahead.known))
            last = [torch.cat([r, a]) for r, a in zip(last, after, strict=True)]
        segments = [self.encoder(r) for r in last]
        times = torch.tensor(ahead.times, dtype=torch.long)
        ends = times.__getitem__ if len(times) else None
        return SeriesWindows(self.encoder, segments, self.window, self.horizon if self.encoder.known else 0, ends=ends)

    def summary(self) -> Summary:
        """Return what was fitted and how."""
        network, read = self.network if self.reads_calendar else self.timeless().network, None
        if isinstance(readout := network.readout, LagReadout):
            read = readout.singles if readout.skip else readout.population.neurons
        title = f"Forecaster, {self.window} -> {self.horizon} steps"
        units = "windows of one channel" if self.encoder.shared else "windows"
        return summarize(network, self.report, title, units=units, population=read)

    def costs(
        self, X: SeriesLike, breaks: Breaks = None, *, windows: int = 200, bits: int | None = None, sparse: bool = False
    ) -> Costs:
        """Return what forecasts from some windows of a series cost, at most `windows` of them, evenly spaced.

        `bits` are those of a weight. Default: 32, or 64 with float64. With `sparse`, weights of 0 cost no operations.
        """
        series, ahead = self.series(X, breaks), self.horizon if self.encoder.known else 0
        needed = self.window + ahead
        rows = [segment for segment in series.segments if len(segment) >= needed]
        if not rows:
            what = "window and horizon" if ahead else "window"
            raise ValueError(f"series: a forecast needs {needed} rows ({what}) without a gap.")
        times = series.times() if self.reads_calendar else None
        network, encoder = self.network if times else self.timeless().network, self.encoder
        times = times and [t for t, segment in zip(times, series.segments, strict=True) if len(segment) >= needed]
        samples = SeriesWindows(encoder, encoder.segments(rows, self.memory), self.window, ahead, ends=times)
        count = len(samples) // samples.batch
        picked = torch.linspace(0, count - 1, min(windows, count)).round().long().unique()

        def batches() -> Iterator[Seen]:
            for part in picked.split(max(1, 512 // samples.batch)):
                index = (part[:, None] * samples.batch + torch.arange(samples.batch)).flatten()
                yield Seen(samples.inputs(index), samples.past(index), samples.ahead(index))

        clocks = () if times is None or encoder.calendar is None else tuple(encoder.calendar.clocks)
        layers, seen = count_network(network, batches(), Setting.of(network, bits, sparse, network.outputs, clocks))
        channels, others, outputs = len(encoder.moving), len(encoder.covariates), network.outputs
        job = Job(
            ridge_inputs=self.window * (1 + others),  # a channel's own rows, and covariates
            ridge_outputs=self.horizon,
            ridges=channels,
            inputs=self.window * (outputs + others),
            outputs=self.horizon * outputs,
            hidden=network.hidden,
            share=outputs,
        )
        title = f"Forecaster, {self.window} -> {self.horizon} steps"
        return Costs(title, "forecast of one channel", layers, seen * outputs, job)
