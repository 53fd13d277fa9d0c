"""Back-tests with many fits that cost one pass: rows are added to the sums, and taken out of them again in blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sswim.data.rows import StoredRows
from sswim.data.series import Series, SeriesLike
from sswim.evaluate.metrics import Evaluation
from sswim.forecasts import ForecastModel
from sswim.options import Run, check_fraction, check_integer
from sswim.readout.ledger import Ledger
from sswim.readout.record import LagRecord
from sswim.updates import refit_series, update_series

__all__ = ["CrossValidation", "Folds", "cross_validate", "in_blocks"]


@dataclass(frozen=True)
class Folds:
    """How a series is cut.

    Attributes
    ----------
    folds : int
        Number of test parts, equally long, one after the other.
    start : float
        Part of the rows before the first of them.
    train : int or None
        Rows before each test part that the model knows, in whole blocks. None: all rows before it.
    refit : int
        The output is solved for again before every `refit`-th test part.
    stride : int or None
        Distance between forecasts that are returned. None: the horizon.
    """

    folds: int = 5
    start: float = 0.5
    train: int | None = None
    refit: int = 1
    stride: int | None = None

    def __post_init__(self) -> None:
        check_integer("folds", self.folds, 1)
        check_fraction("start", self.start)
        check_integer("refit", self.refit, 1)
        for name in ("train", "stride"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)

    def origins(self, rows: int) -> list[int]:
        """Return the first row of each test part, and the end of the last."""
        first = int(rows * self.start)
        return [first + (rows - first) * number // self.folds for number in range(self.folds + 1)]


@dataclass(frozen=True)
class CrossValidation:
    """Errors of forecasts of rows that the model did not know.

    Attributes
    ----------
    folds : DataFrame
        For each test part: the rows that the model knew (``train_first`` up to, not including, ``train_last``), those that were
        forecast, the errors, and the seconds that learning and forecasting took.
    evaluation : Evaluation
        Errors over all test parts.
    forecasts : DataFrame with levels ``cutoff`` and ``time``, or array of shape (forecasts, horizon, channels)
        The cutoff is the last row that the forecast knew.
    """

    folds: pd.DataFrame
    evaluation: Evaluation
    forecasts: pd.DataFrame | np.ndarray

    def __str__(self) -> str:
        return f"{self.folds.to_string(float_format='{:.4g}'.format)}\n\nall: {self.evaluation}"


def cross_validate(model: ForecastModel, X: SeriesLike, folds: Folds, run: Run) -> CrossValidation:
    """Return the errors of a fitted model whose output is solved for again from the rows before each test part."""
    series, span = model.series(X), model.window + model.horizon
    if len(series.segments) > 1:
        raise ValueError(
            f"series: a back-test needs one series without a gap, got {len(series.segments)} segments. Insert the absent rows "
            "(`asfreq`) and pass missing='interpolate'."
        )
    origins = folds.origins(len(series.segments[0]))
    shortest = min(b - a for a, b in zip(origins, origins[1:], strict=False))
    if origins[0] < span + 2 or shortest < model.horizon:
        raise ValueError(
            f"series: too short. {folds.folds} test parts of {shortest} rows must hold a horizon of {model.horizon} each, and "
            f"follow on {origins[0]} rows, of which {span + 2} are needed. Use fewer folds or more data."
        )
    errors, table, forecasts = None, [], []
    stride = model.horizon if folds.stride is None else folds.stride
    for (first, known), (start, end), fitted, seconds in _models(model, series, folds, origins, run):
        part, begin = _cut(series, start - model.window, end), time.perf_counter()
        of_part, all_errors = fitted.new_errors(), errors or fitted.new_errors()
        made = 0
        for truth, forecast in fitted.backtest_of(part):
            of_part.update(truth, forecast)
            all_errors.update(truth, forecast)
            forecasts += [(start - 1 + made + i, forecast[i]) for i in range(-made % stride, len(forecast), stride)]
            made += len(forecast)
        errors, found = all_errors, of_part.result(None)
        ends = {"train_first": first, "train_last": known, "test_first": start, "test_last": end}
        measured = {name: getattr(found, name) for name in ("rse", "mae", "rmse", "coverage")}
        table.append({**ends, **measured, "seconds": seconds + time.perf_counter() - begin})
    names = None if model.columns is None else [model.columns[c] for c in model.encoder.channels]
    assert errors is not None
    return CrossValidation(
        pd.DataFrame(table).rename_axis("fold"), errors.result(names), _labelled(forecasts, series, names, model.horizon)
    )


def _models(
    model: ForecastModel, series: Series, folds: Folds, origins: list[int], run: Run
) -> Iterator[tuple[tuple[int, int], tuple[int, int], ForecastModel, float]]:
    """Yield for each test part the rows that the model knows, those of the part, the model, and the seconds of learning."""
    begin = time.perf_counter()
    first, known = 0, origins[0]
    if folds.train is not None:
        model = in_blocks(model, folds.train)
        first = max(0, known - folds.train)
    fitted = refit_series(model, _cut(series, first, known), run)
    for number, part in enumerate(zip(origins, origins[1:], strict=False)):
        if number and number % folds.refit == 0:
            new, known = (known, part[0]), part[0]
            if folds.train is not None and new[1] - new[0] > folds.train // 2:  # next to nothing stays
                first = known - folds.train
                fitted = refit_series(model, _cut(series, first, known), run)
            else:
                fitted = update_series(fitted, _cut(series, *new), None, run)
                if folds.train is not None:
                    gone, fitted = _without_old(fitted, folds.train, run)
                    first += gone
        seconds = time.perf_counter() - begin
        yield (first, known), part, fitted, seconds
        begin = time.perf_counter()


def in_blocks(model: ForecastModel, train: int) -> ForecastModel:
    """Return a model with a new layout of blocks: as many as in its fit, equally long, for a training part of `train` rows."""
    record = model.report.solution.record
    if not isinstance(record, LagRecord):
        raise ValueError("train: rows can be taken out of the sums of a direct readout only. Use train=None.")
    ledger = record.ledger
    length = (train - model.window - model.horizon + 1) // ledger.count // ledger.stride * ledger.stride
    if length < ledger.stride:
        raise ValueError(f"train: too few rows, {train}, for {ledger.count} blocks of windows. Use more, or train=None.")
    empty = Ledger(length * ledger.count, ledger.count, ledger.stride)
    report = replace(model.report, solution=replace(model.report.solution, record=replace(record, ledger=empty)))
    return replace(model, report=report)


def _without_old(model: ForecastModel, train: int, run: Run) -> tuple[int, ForecastModel]:
    """Return how many of its first rows a model can do without, and the model without them."""
    record = model.report.solution.record
    assert isinstance(record, LagRecord)
    ledger, wanted = record.ledger, train - model.window - model.horizon + 1
    blocks = max(0, (ledger.windows - wanted) // ledger.length)
    if not blocks:
        return 0, model
    shorter = replace(record, ledger=ledger.without_first(blocks), weighed=None)
    report = replace(model.report, solution=shorter.solve(model.network, run))
    return blocks * ledger.length, replace(model, report=report)


def _cut(series: Series, first: int, last: int) -> Series:
    """Return some rows of a series of one segment."""
    rows, index = series.segments[0], series.labels(0)
    part = rows.cut(first, last) if isinstance(rows, StoredRows) else rows[first:last]
    return replace(series, segments=[part], indexes=[None if index is None else index[first:last]])


def _labelled(
    forecasts: list[tuple[int, np.ndarray]], series: Series, names: list | None, horizon: int
) -> pd.DataFrame | np.ndarray:
    """Return forecasts (cutoff, array of shape (horizon, channels)) as the user gave the series."""
    values = np.stack([forecast for _, forecast in forecasts])
    if names is None:
        return values
    index = series.labels(0)
    assert index is not None
    cutoffs = np.repeat([cutoff for cutoff, _ in forecasts], horizon)
    times = cutoffs + np.tile(np.arange(1, horizon + 1), len(forecasts))
    levels = pd.MultiIndex.from_arrays([index[cutoffs], index[times]], names=["cutoff", "time"])
    return pd.DataFrame(values.reshape(len(times), -1), index=levels, columns=names)
