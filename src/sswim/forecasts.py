"""A fitted forecaster: everything that a forecast, a stream, a file or an export needs."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.encoder import SeriesEncoder
from sswim.data.windows import SeriesWindows, Windows, batches
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.readout.direct import LEVELS
from sswim.readout.lags import LagReadout
from sswim.report import SamplingReport

__all__ = ["Costs", "ForecastModel", "ForecastStream"]


@dataclass(frozen=True)
class Costs:
    """What the forecast of one channel costs, on average.

    Attributes
    ----------
    population_spikes, sampled_spikes : float
        Spikes of the populations and of the sampled neurons.
    synaptic_operations : float
        Spikes times the outputs that each of them reaches.
    """

    population_spikes: float
    sampled_spikes: float
    synaptic_operations: float

    @property
    def spikes(self) -> float:
        """All spikes."""
        return self.population_spikes + self.sampled_spikes

    def __str__(self) -> str:
        return (
            f"{self.spikes:,.0f} spikes a forecast of one channel ({self.population_spikes:,.0f} of populations, "
            f"{self.sampled_spikes:,.0f} of sampled neurons), {self.synaptic_operations:,.0f} synaptic operations"
        )


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
    """

    encoder: SeriesEncoder
    network: SpikingNetwork
    report: SamplingReport
    columns: tuple[Hashable, ...] | None
    missing: str
    memory: int

    @property
    def window(self) -> int:
        """Rows that the model looks at."""
        return self.network.window

    @property
    def horizon(self) -> int:
        """Rows that it forecasts."""
        return self.network.horizon

    @property
    def has_intervals(self) -> bool:
        """Whether errors on validation rows are known, which intervals come from."""
        return self.report.solution.quantiles is not None

    def half_width(self, coverage: float) -> np.ndarray:
        """Return half the width of intervals, (horizon, channels), in the data's own units."""
        quantiles = self.report.solution.quantiles
        if quantiles is None:
            raise ValueError("predict_interval needs a Forecaster fitted with readout='direct'.")
        number = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
        if not number or not LEVELS[0] <= coverage <= LEVELS[-1]:
            raise ValueError(f"coverage must be a number between {LEVELS[0]} and {LEVELS[-1]}, got {coverage!r}.")
        above = int(np.searchsorted(LEVELS, coverage).clip(1))
        part = (coverage - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        low, high = quantiles[above - 1], quantiles[above]
        return self.encoder.spread((low + part * (high - low)) * self.encoder.span[self.encoder.moving])

    @torch.no_grad()
    def _forecasts(self, samples: SeriesWindows) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the numbers of windows and their forecasts (windows, horizon, channels), scaled, batch by batch."""
        network, readout = self.network, self.network.readout
        if not isinstance(readout, VoltageReadout):
            # In float64 after the spikes: forecasts then do not depend on how many windows are read at once.
            readout = copy.deepcopy(readout).double()  # type: ignore[attr-defined]
        steps, read = readout.reader(self.window)
        filters = network.hidden_filters(steps=steps)
        size = max(samples.batch, network.batch_size(self.memory) // samples.batch * samples.batch)
        for part in batches(len(samples), size, even=False):
            x, past = samples.inputs(part), samples.past(part)
            inputs = network.outputs if samples.shared else past.shape[2]
            rows = torch.cat([past, x[:, :, inputs:].to(past)], dim=2)
            y = samples.level(part) + read(network.hidden_spikes(x, filters), rows).cpu()
            if samples.shared:
                y = y[:, :, 0].unflatten(0, (-1, samples.batch)).transpose(1, 2)
            yield torch.arange(part.start // samples.batch, part.stop // samples.batch), y

    def backtest(self, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""
        whole = Windows(rows, self.window, self.horizon)
        segments = [self.encoder(r) for r in rows]
        for n, y in self._forecasts(SeriesWindows(self.encoder, segments, self.window, self.horizon)):
            last = whole.rows[whole.starts[n] + self.window - 1]
            yield whole.targets(n)[:, :, self.encoder.channels].numpy(), self.encoder.forecast(y, last)

    def forecast(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
        segments = [self.encoder(r[-self.window :]) for r in rows]
        samples = SeriesWindows(self.encoder, segments, self.window, 0)
        last = torch.stack([r[-1] for r in rows])
        return np.concatenate([self.encoder.forecast(y, last[n]) for n, y in self._forecasts(samples)])

    @torch.no_grad()
    def costs(self, rows: Sequence[Tensor], windows: int = 200) -> Costs:
        """Return what forecasts from some windows of several series (rows, columns) cost."""
        network, readout = self.network, self.network.readout
        samples = SeriesWindows(self.encoder, [self.encoder(r) for r in rows], self.window, 0)
        count = len(samples) // samples.batch
        picked = torch.linspace(0, count - 1, min(windows, count)).round().long().unique()
        sampled = populations = 0.0
        for part in picked.split(max(1, 512 // samples.batch)):
            index = (part[:, None] * samples.batch + torch.arange(samples.batch)).flatten()
            sampled += float(sum(a.sum() for a in network.hidden_spikes(samples.inputs(index))))
            if isinstance(readout, LagReadout):
                populations += float(readout.spikes(samples.past(index).to(readout.weights).transpose(1, 2)).sum())
        forecasts = len(picked) * len(self.encoder.moving)
        reached = self.horizon * network.outputs
        if isinstance(readout, LagReadout) and bool((readout.weights[:, readout.parts["common"]] != 0).any()):
            reached *= readout.sizes.groups  # spikes of one channel reach the outputs of all
        spikes = sampled + populations
        return Costs(populations / forecasts, sampled / forecasts, spikes * reached / forecasts)

    def stream(self) -> ForecastStream:
        """Return a stream that takes one new row at a time."""
        return ForecastStream(self)


class ForecastStream:
    """Takes rows as they come and forecasts the next `horizon` after each, in constant time and memory.

    Returned by `Forecaster.stream`. Its forecasts are those of `Forecaster.predict`: it keeps the last `window` rows.

    Examples
    --------
    >>> from sswim import Forecaster
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:1000].to_numpy()
    >>> model = Forecaster(24, 6, random_state=0).fit(wind[:900])
    >>> stream = model.stream()
    >>> for row in wind[900:]:
    ...     forecast = stream(row)
    >>> forecast.shape
    (6, 8)
    """

    def __init__(self, model: ForecastModel) -> None:
        self._model = model
        self._past = torch.zeros(0, model.encoder.columns, dtype=torch.float64)
        self.rows = 0

    def __call__(self, row: npt.ArrayLike) -> np.ndarray | None:
        """Take one row (channels,) and return the forecast (horizon, channels), or None before `window` rows have come."""
        new, columns = torch.from_numpy(np.array(row, dtype=np.float64)), self._model.encoder.columns
        if new.shape != (columns,):
            raise ValueError(f"row must hold {columns} channels, got shape {tuple(new.shape)}.")
        if not bool(torch.isfinite(new).all()):
            raise ValueError("row must be finite, but holds NaN or infinity: a stream cannot look ahead to fill a gap.")
        self._past = torch.cat([self._past, new[None]])[-self._model.window :]
        self.rows += 1
        return None if self.rows < self._model.window else self._model.forecast([self._past])[0]
