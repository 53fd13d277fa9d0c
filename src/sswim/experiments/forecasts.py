"""What the forecasting experiments share: a series cut by the protocol of the reference tables, and the scores of a model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from sswim.data.statistics import standard_scales
from sswim.data.tensors import split_windows
from sswim.datasets.images import data_folder
from sswim.datasets.series import find_series, load_series, series_set
from sswim.evaluate.metrics import Evaluation
from sswim.evaluate.protocol import Table, scale_series, split_series
from sswim.experiments.experiment import Settings
from sswim.options import warn
from sswim.paper import Switches

__all__ = [
    "GRIDS",
    "LONG",
    "ORIGINAL",
    "PARTS",
    "SCALINGS",
    "SHORT",
    "STAND_INS",
    "Task",
    "chosen",
    "fit_and_test",
    "given",
    "label",
    "task",
    "thrown",
]

ORIGINAL = ("metr-la", "pems-bay", "solar", "electricity")
PARTS = ("metr-la-10", "solar-12", "electricity-6")  # of the original sets
STAND_INS = ("la-highway", "aemo-solar", "aemo-units")
SHORT = ("pems-bay", "metr-la", "metr-la-10", "la-highway")
LONG = ("electricity", "solar", "electricity-6", "solar-12", "aemo-solar", "aemo-units")
# By the range of the whole series, as reference tables do, or by that of the training part.
SCALINGS = ("series", "training")
# Of the search for lambda: the paper's, up to 0.5, or one that goes on while the validation error falls.
GRIDS = ("paper", "extended")


def chosen(data: Sequence[str], *choices: Sequence[str], every: bool = True) -> tuple[str, ...]:
    """Return the data sets that were asked for, or those of the first of `choices` of which there are any, or the embedded one.

    With ``every=False`` the first one of each of `choices` is taken instead.
    """
    if data:
        for name in data:
            series_set(name)
        return tuple(data)
    there = [[name for name in names if find_series(name) is not None] for names in choices]
    found = next((names for names in there if names), []) if every else [names[0] for names in there if names]
    found = found or ["wind-farm"]
    missing = [name for name in ORIGINAL if name not in found and find_series(name) is None]
    if missing:
        warn(
            f"data: {', '.join(missing)} of the paper's sets are not in {data_folder()}: this runs on {', '.join(found)}. Name "
            "sets with --data; `--data solar` and `--data electricity` are downloaded.",
            stacklevel=3,
        )
    return tuple(found)


@dataclass(frozen=True)
class Task:
    """A series, cut in time.

    Attributes
    ----------
    known, later : list of arrays or DataFrames
        Stretches for fitting, and for testing.
    validation : float
        Part of the former's windows that is for validation.
    window, season : int
    span : array
        Each channel's range in the whole series, 1 where it is constant.
    unit : array
        What the rows were divided by, per channel.
    """

    known: list[Table]
    later: list[Table]
    validation: float
    window: int
    season: int
    span: np.ndarray
    unit: np.ndarray

    def scores(self, errors: Evaluation) -> Settings:
        """Return the RSE with each channel in units of its range, in the data's units, and in units of its deviation.

        R2 is of the rows as they were fitted: in [0, 1] where they were scaled by the whole series, else in the data's units.
        """
        squared, spread = (errors.per_channel[name].to_numpy() ** 2 for name in ("rmse", "deviation"))
        rows = np.concatenate(self.known)
        _, deviation = standard_scales(torch.from_numpy(rows[: int(len(rows) * (1 - self.validation))]))

        def weighted(scale: np.ndarray) -> float:
            return float(np.sqrt((squared * scale**2).sum() / (spread * scale**2).sum()))

        return {
            "rse": weighted(self.unit / self.span),
            "rse_units": weighted(self.unit),
            "rse_alike": weighted(1 / deviation.numpy()),
            "r2": errors.r2,
            "windows": errors.windows,
            "coverage": errors.coverage,
        }


@lru_cache(maxsize=1)
def _load(data: str) -> pd.DataFrame:
    return load_series(data)


def task(
    data: str,
    horizon: int,
    *,
    window: int | None = None,
    scaling: str = "training",
    part: str = "test",
    thin: int = 1,
    times: bool = False,
) -> Task:
    """Return a data set cut for a horizon, by default with the data set's own window.

    With ``scaling="series"`` every channel is brought to [0, 1] by its range in the whole series. With ``part="validation"``
    the test part is cut off first, and the rest is split anew: what is chosen there has not seen the test part. Of the
    channels every `thin`-th is used. With `times`, rows keep their times, if the data set has any.
    """
    kind, frame = series_set(data), _load(data)
    window = kind.window if window is None else window
    frame = frame.iloc[:, ::thin]
    rows = frame.to_numpy(dtype=float)
    span = np.ptp(rows, axis=0)
    span = np.where(span > 0, span, 1.0)
    unit = span if scaling == "series" else np.ones_like(span)
    if scaling == "series":
        frame = scale_series(frame, "series")[0]
    table = frame.astype(float) if times and isinstance(frame.index, pd.DatetimeIndex) else frame.to_numpy(dtype=float)
    known, later, validation = split_series(table, window, horizon, kind.split, kind.breaks)
    if part == "validation":
        total = sum(max(len(s) - window - horizon + 1, 0) for s in known)
        trained, tested = int(total * kind.split[0]), int(total * kind.split[2])
        known, later = split_windows(known, window + horizon, tested)
        validation = np.nextafter((total - trained - tested) / (total - tested), 1)  # estimators round down
    return Task(known, later, validation, window, kind.season, span, unit)


def fit_and_test(model: Any, given: Task) -> Settings:
    """Fit a model, unless it needs none, and return its test scores and what the fit took."""
    begin = time.perf_counter()
    if hasattr(model, "fit"):
        model.fit(given.known)
    return {"fit_seconds": time.perf_counter() - begin, **given.scores(model.evaluate(given.later))}


def given(**options: Any) -> Settings:
    """Return the options that were given, for settings that are recorded only where they differ from the default."""
    return {name: value for name, value in options.items() if value is not None}


def thrown(stride: int) -> Settings:
    """Return options of `Forecaster.paper` with all switches to ours thrown: the paper's model at its best."""
    switches = Switches(assembly="auto", bias="free", grid="extended", clip=True)
    return {"readout": switches.trajectory.replace(stride=stride), "scaling": switches.scaling}


def label(runs: pd.DataFrame) -> pd.Series:
    """Return a name for the columns of a table: data set and horizon."""
    return runs["data"] + " " + runs["horizon"].astype(str)
