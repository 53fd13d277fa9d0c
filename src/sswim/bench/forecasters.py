"""What people would pick instead of sswim, measured in one run: errors, seconds and memory of each, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from sswim.bench.measure import alone, middle, say
from sswim.bench.rivals import BoostedTrees, DeepNetwork
from sswim.datasets import LTSF, SERIES, load_ltsf, load_series, ltsf_set
from sswim.evaluate.baselines import DLinear, NLinear, Persistence, RidgeOnLags
from sswim.evaluate.ltsf import LtsfSplit, split_ltsf
from sswim.evaluate.metrics import Evaluation
from sswim.forecaster import Forecaster
from sswim.machine import peak_memory
from sswim.options import check_integer
from sswim.report import Facts

__all__ = ["MODELS", "bench_forecasters"]

# What is changed in `Forecaster(window, horizon, random_state=seed, verbose=0)`, as `set_params` takes it.
SSWIM: dict[str, Facts] = {"sswim": {}, "sswim with rows": {"readout__skip": True}}
PACKAGES = ("numpy", "pandas", "scikit-learn", "torch", "lightgbm", "neuralforecast")


@dataclass(frozen=True)
class Setting:
    """What every model is told: rows it sees and forecasts, the part of the windows to validate on, seed and steps."""

    window: int
    horizon: int
    validation: float
    seed: int
    max_steps: int


class Model(Protocol):
    """A forecaster of any library."""

    def fit(self, series: np.ndarray, /) -> object:
        """Fit to rows (rows, channels)."""
        ...

    def predict_windows(self, series: np.ndarray, /) -> np.ndarray:
        """Return the forecasts (windows, horizon, channels) from every window."""
        ...

    def evaluate(self, series: np.ndarray, /) -> Evaluation:
        """Return the errors over every window."""
        ...


def _sswim(name: str) -> Callable[[Setting], Model]:
    def make(s: Setting) -> Model:
        model = Forecaster(s.window, s.horizon, validation=s.validation, random_state=s.seed, verbose=0)
        return model.set_params(**SSWIM[name])

    return make


def _deep(kind: str) -> Callable[[Setting], Model]:
    return lambda s: DeepNetwork(s.window, s.horizon, kind=kind, steps=s.max_steps, seed=s.seed)


MODELS: dict[str, Callable[[Setting], Model]] = {
    "persistence": lambda s: Persistence(s.window, s.horizon),
    "NLinear": lambda s: NLinear(s.window, s.horizon, validation=s.validation),
    "DLinear": lambda s: DLinear(s.window, s.horizon, validation=s.validation),
    "shared ridge": lambda s: RidgeOnLags(s.window, s.horizon, shared=True, validation=s.validation),
    "ridge per channel": lambda s: RidgeOnLags(s.window, s.horizon, validation=s.validation),
    "LightGBM": lambda s: BoostedTrees(s.window, s.horizon, validation=s.validation, seed=s.seed),
    "NHITS": _deep("NHITS"),
    "PatchTST": _deep("PatchTST"),
    "TSMixer": _deep("TSMixer"),
    **{name: _sswim(name) for name in SSWIM},
}
# Libraries that a model needs besides those of sswim.
NEEDS = {"LightGBM": "lightgbm", **dict.fromkeys(("NHITS", "PatchTST", "TSMixer"), "neuralforecast")}


def bench_forecasters(
    data: str = "wind-farm",
    window: int | None = None,
    horizon: int = 24,
    max_steps: int = 1000,
    seeds: int = 1,
    models: Sequence[str] = (),
) -> Facts:
    """Errors, seconds of fit and of prediction, and peak memory of sswim and of other forecasters on one series.

    Each model runs in a process of its own, one after the other. Rows are cut and standardised as in `sswim.evaluate.ltsf`,
    and errors are in standardised units. A model is fitted on the rows for training and validation, and tested on every window
    whose horizon lies in the test rows. A model that needs validation takes the last windows for it: linear models and sswim
    for their penalties, LightGBM for its number of trees. All of them then use both parts for their final weights. The
    networks of neuralforecast train on both parts from the start.

    Parameters
    ----------
    data : str
        A name or a file, see `sswim.datasets.load_ltsf` and `load_series`.
    window : int, optional
        Rows that models look at. Default: the data set's own.
    horizon : int
        Rows that they forecast.
    max_steps : int
        Training steps of the networks of neuralforecast.
    seeds : int
        Number of runs with seeds 0, 1, ...
    models : sequence of str
        Which of `MODELS` to run. Default: all.
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown:
        raise ValueError(f"models: unknown name {unknown[0]!r}. Valid names: {', '.join(map(repr, MODELS))}.")
    if window is None:
        window = SERIES[data].window if _other(data) else ltsf_set(data).windows[0]
    for name, value in (("window", window), ("horizon", horizon), ("max_steps", max_steps), ("seeds", seeds)):
        check_integer(name, value, 1)
    cut = _split(data, window, horizon)
    found: dict[str, Facts] = {}
    for name in models or MODELS:
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            found[name] = {"absent": "not installed"}
            say(f"{name}: {NEEDS[name]} is not installed")
            continue
        runs = []
        for seed in range(seeds):
            setting = Setting(window, horizon, cut.validation, seed, max_steps)
            try:
                runs.append(alone(_measure, {"name": name, "data": data, "setting": setting}))
            except (ValueError, TypeError, RuntimeError, ArithmeticError, MemoryError, BrokenProcessPool) as error:
                found[name] = {"absent": f"failed: {type(error).__name__}: {error}"}
                break
            say(f"{name}: {runs[-1]}")
        else:
            found[name] = {"runs": runs}
    return {
        "data": data,
        "shape": {"known_rows": len(cut.known), "test_windows": cut.windows, "channels": cut.known.shape[1]},
        "borders": asdict(cut.borders),
        "options": {"window": window, "horizon": horizon, "max_steps": max_steps, "seeds": seeds},
        "sswim_settings": SSWIM,
        "versions": {name: _version(name) for name in PACKAGES},
        "models": found,
        "result": {name: facts.get("absent") or _row(facts["runs"]) for name, facts in found.items()},
    }


def _row(runs: Sequence[Facts]) -> Facts:
    """Return the figures of a table's row: one number, or the least, middle and largest of several runs."""
    names = {"MSE": "mse", "MAE": "mae", "fit s": "fit_seconds", "predict s": "predict_seconds", "peak MiB": "peak_mib"}
    spread = {shown: middle(run[key] for run in runs) for shown, key in names.items()}
    return {shown: values[1] if values[0] == values[2] else values for shown, values in spread.items()}


def _measure(name: str, data: str, setting: Setting) -> Facts:
    """Fit and test one model; its output is checked on a few windows before anything is timed."""
    cut = _split(data, setting.window, setting.horizon)
    _check(name, cut.known, setting)
    before, model = peak_memory() or math.nan, MODELS[name](setting)
    begin = time.perf_counter()
    model.fit(cut.known)
    fitted = time.perf_counter()
    errors = model.evaluate(cut.later)
    end = time.perf_counter()
    if not np.isfinite([errors.rmse, errors.mae]).all():
        raise RuntimeError("the errors are not finite.")
    return {
        "seed": setting.seed,
        "mse": errors.rmse**2,
        "mae": errors.mae,
        "fit_seconds": fitted - begin,
        "predict_seconds": end - fitted,
        "peak_mib": (peak_memory() or math.nan) / 2**20,
        "peak_mib_before": before / 2**20,
    }


def _check(name: str, rows: np.ndarray, setting: Setting) -> None:
    """Fit a model to the last few windows, which also loads all libraries, and check the forecasts of five windows."""
    span = setting.window + setting.horizon
    model = MODELS[name](replace(setting, max_steps=1))
    model.fit(rows[-span - 200 :])
    forecasts, shape = model.predict_windows(rows[-span - 4 :]), (5, setting.horizon, rows.shape[1])
    if forecasts.shape != shape or not np.isfinite(forecasts).all():
        raise RuntimeError(f"forecasts must be finite and have the shape {shape}, got {forecasts.shape}: nothing was timed.")


def _other(data: str) -> bool:
    """Return whether a name is that of a series which is not part of the public benchmark."""
    return data in SERIES and data not in LTSF


def _split(data: str, window: int, horizon: int) -> LtsfSplit:
    """Return the standardised rows for fitting and for test, as the public benchmark of long-term forecasting cuts them."""
    if _other(data):
        if SERIES[data].breaks is not None:
            raise ValueError(f"data must be one segment of rows, but {data!r} begins anew every {SERIES[data].breaks} rows.")
        return split_ltsf(load_series(data).to_numpy(), window, horizon)
    return split_ltsf(load_ltsf(data).to_numpy(), window, horizon, ltsf_set(data).month)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
