"""Forecasts by a direct output: what `Forecaster` does with it, in scaled units inside and the data's own outside."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sswim import training
from sswim._checks import parse_memory, resolve
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.direct import DirectFit, Origins, fit_direct, held_out_errors
from sswim.hidden import HiddenSteps, batch_size, sample_hidden
from sswim.layers import DirectReadout
from sswim.readout import REGULARIZATION
from sswim.report import SamplingReport
from sswim.trajectory import EncodedWindows

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["LEVELS", "ForecastStream", "backtest", "fit", "forecast", "half_width"]

# How many windows back a forecast looks: two for what the network still knows, one more for its running level.
MEMORY = 3
# Coverages that quantiles of the errors are kept for.
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99])


def _origins(model: Forecaster, rows: Sequence[Tensor], dtype: torch.dtype | None = None) -> Origins:
    """Return the origins in rows (rows, columns) of the data's own units."""
    encoder = model._encoder
    return Origins(model.network_, [encoder(r) for r in rows], parse_memory(model.memory) // 4, dtype)


def _precise(model: Forecaster) -> DirectReadout:
    """Return the readout in float64: forecasts then do not depend on how many rows are read at once."""
    return copy.deepcopy(model.network_.readout).double()


@torch.no_grad()
def fit(model: Forecaster, rows: Sequence[Tensor], kept: int) -> SamplingReport:
    """Set the network of `model` from rows in the data's own units; the first `kept` origins are for training."""
    network, budget, random = model.network_, parse_memory(model.memory), Randomness(model.random_state)
    features = network.readout.weights.shape[1]
    if 24 * features**2 > budget:
        raise ValueError(
            f"memory: the sums of {features:,} features take {24 * features**2 / 1e9:.1f} GB, got memory={model.memory!r}. Use "
            "channels='shared', skip=False or fewer neurons, or allow more."
        )
    regularization = resolve("regularization", model.regularization, REGULARIZATION, "basis")
    steps = HiddenSteps.named(
        temporal="spread" if model.temporal == "auto" else model.temporal,
        input_metric=model.input_metric,
        deeper_metric=model.deeper_metric,
        output_metric=model.output_metric,
        pairs=model.pairs,
        weights=model.weights,
        normalizer="diverse" if model.normalizer == "auto" else model.normalizer,
        blocks=model.blocks,
    )
    origins = _origins(model, rows)
    if model.train == "gradient":
        samples = EncodedWindows(network, origins.segments)
        report = training.from_scratch(model, samples, kept * samples.batch)
        with torch.enable_grad():
            training.train(model, samples, kept * samples.batch, report)
        _set_intervals(model, held_out_errors(origins, kept, Tracker()))
        return report
    with Tracker(model.verbose) as tracker:
        with tracker.step("initial batch"):
            signals, targets, drawn = origins.initial(kept, model.initial_batch, random("batch"))
        _, layers = sample_hidden(network, signals, targets, steps, budget, random, tracker)
        for layer in layers:
            layer.pairs = drawn[layer.pairs]
        told = fit_direct(origins, kept, regularization, tracker)
    report = SamplingReport(
        layers=layers,
        lags=torch.zeros(0),
        lambdas=told.lambdas,
        traces=len(network.readout.constants),
        assembly=None,
        samples=kept * origins.batch,
        validation_samples=(len(origins) - kept) * origins.batch,
        batch_size=batch_size(network, budget),
        steps=tracker.records,
    )
    if model.train == "sample+gradient":
        told = _train_further(model, origins, kept, regularization, report, told)
    _set_intervals(model, told.errors)
    return report


def _train_further(
    model: Forecaster, origins: Origins, kept: int, regularization: Any, report: SamplingReport, sampled: DirectFit
) -> DirectFit:
    """Train the sampled network, then solve for its output once more; go back if that forecasts validation rows worse."""
    network = model.network_
    before = {name: v.clone() for name, v in network.state_dict().items()}
    samples = EncodedWindows(network, origins.segments)
    # Corrections are solved for anew afterwards. They would learn single windows by heart.
    corrections = [p for name, p in network.readout.named_parameters() if name not in ("weights", "biases")]
    for p in corrections:
        p.requires_grad_(False)
    penalty = sampled.lambdas[:, None] / sampled.sizes**2
    with torch.enable_grad():
        training.train(model, samples, kept * samples.batch, report, penalty=penalty)
    for p in corrections:
        p.requires_grad_(True)
    with Tracker(model.verbose) as tracker:
        trained = fit_direct(origins, kept, regularization, tracker)
    report.steps += tracker.records
    if trained.errors.square().mean() < sampled.errors.square().mean():
        report.lambdas = trained.lambdas
        return trained
    network.load_state_dict(before)
    return sampled


def _set_intervals(model: Forecaster, errors: Tensor) -> None:
    sizes = errors.abs().unflatten(1, (model.horizon, -1)).flatten(2).numpy()  # (n, H, C)
    model.error_quantiles_ = _ranked_quantiles(np.sort(sizes, axis=0), _calibrated(sizes, LEVELS))


def _ranked_quantiles(ranked: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return quantiles (levels, ...) of sorted values (n, ...): as split conformal has it, a new value ranks among them."""
    n = len(ranked)
    return ranked[np.clip(np.ceil(levels * (n + 1)).astype(int) - 1, 0, n - 1)]


def _calibrated(sizes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the levels at which quantiles of errors (n, ...), in the order of time, cover what they should.

    Errors change in the course of time, so quantiles of one half cover less, or more, of the other half. Each level is
    raised to what one half needs to cover the other, whichever needs more, and never lowered.
    """
    first, second = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    if not len(first):
        return levels
    grid = np.unique(np.concatenate([levels, np.linspace(levels[0], 0.999, 40)]))
    needed = [levels]
    for known, new in ((first, second), (second, first)):
        ranked = np.sort(known, axis=0)
        covered = [(new <= _ranked_quantiles(ranked, np.array([level]))).mean() for level in grid]
        needed.append(np.interp(levels, np.maximum.accumulate(covered), grid))
    return np.max(needed, axis=0)


def _arranged(model: Forecaster, y: Tensor, level: Tensor) -> Tensor:
    """Bring outputs (horizon * outputs, rows, batch), relative to a level (rows, channels), to (rows, horizon, channels)."""
    y = y.unflatten(0, (model.horizon, -1)).permute(2, 0, 1, 3).flatten(2)  # (T, H, O B)
    return y.cpu() + level[:, None].cpu()


@torch.no_grad()
def backtest(model: Forecaster, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield truth and forecast (windows, horizon, channels) from every origin, in the data's own units."""
    origins, encoder, readout = _origins(model, rows, torch.float64), model._encoder, _precise(model)
    parts = zip(origins.segments, origins.counts, strict=True)
    levels = torch.cat([seen.level[model.window - 1 :][:count] for seen, count in parts])
    for first, features, y in origins():
        level = levels[first : first + y.shape[1]]
        forecasts = encoder.forecast(_arranged(model, readout(features), level))
        yield encoder.decode(_arranged(model, y, level)), forecasts


def forecast(model: Forecaster, rows: Sequence[Tensor]) -> np.ndarray:
    """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
    return np.stack([ForecastStream(model).advance(r[-MEMORY * model.window :].numpy())[-1] for r in rows])


def half_width(model: Forecaster, coverage: float) -> np.ndarray:
    """Return half the width of intervals, (horizon, channels), in the data's own units."""
    if not LEVELS[0] <= coverage <= LEVELS[-1]:
        raise ValueError(f"coverage must lie between {LEVELS[0]} and {LEVELS[-1]}, got {coverage!r}.")
    above = int(np.searchsorted(LEVELS, coverage).clip(1))
    part = (coverage - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
    low, high = model.error_quantiles_[above - 1], model.error_quantiles_[above]
    return (low + part * (high - low)) * model.span_[model._encoder.channels]


class ForecastStream:
    """Takes rows as they come and forecasts the next `horizon` after each, in constant time and memory.

    Made by `Forecaster.stream`.

    Examples
    --------
    >>> from sswim import Forecaster
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:1000].to_numpy()
    >>> model = Forecaster(24, 6, hidden=(50,), random_state=0).fit(wind[:900])
    >>> stream = model.stream()
    >>> for row in wind[900:]:
    ...     forecast = stream(row)
    >>> forecast.shape
    (6, 8)
    """

    def __init__(self, model: Forecaster) -> None:
        self._model, self._encoder = model, model._encoder
        empty = torch.zeros(0, model.n_features_in_, dtype=torch.float64)
        self._origins, self._readout = _origins(model, [empty]), _precise(model)
        self._stream = model.network_.stream(self._origins.batch, torch.float64)
        self._past = empty
        self.rows = 0

    def __call__(self, row: Any) -> np.ndarray | None:
        """Take one row (channels,) and return the forecast (horizon, channels), or None before `window` rows have come."""
        forecast = self.advance(np.asarray(row, dtype=np.float64)[None])[0]
        return None if self.rows < self._model.window else forecast

    @torch.no_grad()
    def advance(self, rows: Any) -> np.ndarray:
        """Take several rows (rows, channels) and return the forecasts (rows, horizon, channels)."""
        rows = torch.from_numpy(np.array(rows, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != self._model.n_features_in_:
            raise ValueError(f"row must hold {self._model.n_features_in_} channels, got shape {tuple(rows.shape[1:])}.")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("row must be finite, but holds NaN or infinity: a stream can not look ahead to fill a gap.")
        model, before = self._model, len(self._past)
        known = torch.cat([self._past, rows])
        seen = self._encoder(known)
        features = self._origins.features(self._stream, seen, before, len(known))
        self._past = known[-(model.window - 1) :] if model.window > 1 else known[:0]
        self.rows += len(rows)
        return self._encoder.forecast(_arranged(model, self._readout(features), seen.level[before:]))
