"""Forecasts by the paper's output, whose voltage draws the horizon: every window is simulated from its first row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sswim._checks import parse_memory
from sswim.hidden import batch_size
from sswim.report import SamplingReport
from sswim.sampling import sample
from sswim.windows import Subset, Windows, batches

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["backtest", "fit", "forecast"]


def fit(model: Forecaster, rows: Sequence[Tensor], kept: int) -> SamplingReport:
    """Set the network of `model` from rows in the data's own units; the first `kept` windows are for training."""
    encoded, scaled = [model._encode(r) for r in rows], [model._scale(r) for r in rows]
    samples = Windows(encoded, model.window, model.horizon, model.stride, scaled)
    return sample(
        model.network_,
        Subset(samples, torch.arange(kept)),
        validation=Subset(samples, torch.arange(kept, len(samples))),
        temporal="grid" if model.temporal == "auto" else model.temporal,
        input_metric=model.input_metric,
        deeper_metric=model.deeper_metric,
        output_metric=model.output_metric,
        pairs=model.pairs,
        weights=model.weights,
        normalizer="mean-std" if model.normalizer == "auto" else model.normalizer,
        delays=model.delays,
        supports=model.supports,
        regularization=model.regularization,
        assembly=model.assembly,
        initial_batch=model.initial_batch,
        memory=model.memory,
        random_state=model.random_state,
        verbose=model.verbose,
    )


def backtest(model: Forecaster, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""
    windows = Windows([model._encode(r) for r in rows], model.window, model.horizon, targets=rows)
    predict = model.network_.predictor()
    for part in batches(len(windows), batch_size(model.network_, parse_memory(model.memory))):
        yield windows.targets(part).numpy(), _to_units(model, predict(windows.inputs(part)))


def forecast(model: Forecaster, rows: Sequence[Tensor]) -> np.ndarray:
    """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, channels)."""
    x = model._encode(torch.stack([r[-model.window :] for r in rows]))
    predict = model.network_.predictor()
    parts = batches(len(x), batch_size(model.network_, parse_memory(model.memory)))
    return np.concatenate([_to_units(model, predict(x[part])) for part in parts])


def _to_units(model: Forecaster, y: Tensor) -> np.ndarray:
    return y.double().cpu().numpy() * model.span_ + model.offset_
