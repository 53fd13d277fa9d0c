"""Which options suit a series: tried on a part of it within a time budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from sswim._checks import parse_seconds
from sswim.metrics import ForecastErrors
from sswim.windows import split_windows

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["TUNED", "tune"]

# Options that may be chosen, in the order in which they are tried. Each is judged with the best of those before it.
TUNED: dict[str, tuple[Any, ...]] = {
    "skip": (True, False),
    "scaling": ("adaptive", "window", "standard"),
    "common": (100, 0),
    "hidden": ((200,), (50,), (100, 100), (400,)),
    "corrections": (0, 120),
}
# By which part an option must be better than what is there: one stretch of a series is little evidence.
MARGIN = 0.005
# Channels and rows that trials make do with.
CHANNELS, ROWS = 32, 20_000


def tune(model: Forecaster, segments: Sequence[np.ndarray], covariates: Sequence[int]) -> dict[str, Any]:
    """Return the options that forecast the last part of the windows best, from fits to what lies before.

    Options are tried one at a time, each with the best of those before, until the time is over; a trial that would not end
    in time is not begun. What is not tried stays as the model has it.

    Parameters
    ----------
    model : Forecaster
        Unfitted, with a time budget `tune`.
    segments : sequence of array of shape (rows, columns)
    covariates : sequence of int
    """
    begin, budget = time.perf_counter(), parse_seconds("tune", model.tune)
    known, later, channels = _part(model, segments, covariates)
    scores: dict[tuple[Any, ...], float] = {}

    def trial(options: dict[str, Any]) -> float:
        key = tuple(sorted(options.items()))
        if key not in scores:
            fresh = clone(model).set_params(tune=None, verbose=0, covariates=range(channels, known[0].shape[1]), **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fresh.fit(known)
            errors = ForecastErrors(fresh.span_[:channels])
            for truth, forecast in fresh._backtest(later, None):
                errors.update(truth, forecast)
            scores[key] = errors.result().rse_scaled
        return scores[key]

    best = {name: getattr(model, name) for name in TUNED}
    best["hidden"] = tuple(best["hidden"])
    if best["scaling"] == "auto":
        best["scaling"] = model._scaling
    least, longest = trial(best), time.perf_counter() - begin
    for name, values in TUNED.items():
        for value in values:
            if time.perf_counter() - begin + longest > budget:
                return best
            start = time.perf_counter()
            score = trial({**best, name: value})
            longest = max(longest, time.perf_counter() - start)
            if score < (1 - MARGIN) * least:
                least, best = score, {**best, name: value}
    return best


def _part(
    model: Forecaster, segments: Sequence[np.ndarray], covariates: Sequence[int]
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Return some columns of the last rows, forecast ones first, cut in time; and how many of the columns are forecast."""
    forecast = [c for c in range(segments[0].shape[1]) if c not in set(covariates)]
    picked = [forecast[i] for i in np.unique(np.linspace(0, len(forecast) - 1, CHANNELS).astype(int))]
    span = model.window + model.horizon
    kept: list[np.ndarray] = []
    for rows in reversed(segments):
        left = ROWS - sum(map(len, kept))
        if left >= span:
            kept.insert(0, rows[-left:][:, [*picked, *covariates]])
    total = sum(max(len(rows) - span + 1, 0) for rows in kept)
    last = max(1, int(total * model.validation))
    known, later = split_windows(kept, span, last)
    if total - last < 3:
        raise ValueError("tune: the series is too short to try options on a part of it. Use tune=None, or more data.")
    return known, later, len(picked)
