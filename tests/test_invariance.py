"""What must not matter does not: laws over all readouts. `docs/promises.md` lists them."""

import functools
import warnings

import numpy as np
import pytest
import torch

from sswim import Classifier, Counts, Direct, Forecaster, SpikingNetwork
from sswim.readout import direct
from sswim.sampling import STEPS

# Of a channel's range, and of the range of decision values.
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
FORECASTERS = {
    "direct": {},
    "direct, rows": {"readout": Direct(skip=True)},
    "direct, joint": {"channels": "joint"},
    "direct, rows, joint": {"channels": "joint", "readout": Direct(skip=True)},
    "trajectory": {"readout": "trajectory"},
    "trajectory, joint": {"readout": "trajectory", "channels": "joint"},
    "paper": None,
}
CLASSIFIERS = {
    "direct": {},
    "direct, squared error": {"readout": Counts(loss="squared_error", traces=(np.inf, 5.0))},
    "direct, two layers": {"hidden": (12, 8)},
    "voltage": {"readout": "voltage"},
    "spikes": {"readout": "spikes"},
    "paper": None,
}
forecasters = pytest.mark.parametrize("variant", FORECASTERS)
classifiers = pytest.mark.parametrize("variant", CLASSIFIERS)
dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


def _rows():
    rng = np.random.default_rng(0)
    t = np.arange(220)[:, None]
    waves = np.sin(2 * np.pi * t / np.array([12, 24, 17, 9])) + 0.2 * rng.standard_normal((220, 4)).cumsum(axis=0)
    return waves * [1.0, 3.0, 0.7, 2.0] + [5.0, -40.0, 0.0, 1.0]


def _signals():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    waves = np.sin(np.arange(15)[:, None] / (2 + y[:, None, None]) + np.arange(4))
    return waves + 0.3 * rng.standard_normal((90, 15, 4)), y


ROWS, (X, Y) = _rows(), _signals()


def forecasts(variant, dtype, rows=ROWS, **options):
    """Return forecasts from the last windows of `rows`, (windows, horizon, channels)."""
    chosen = FORECASTERS[variant]
    steps = STEPS["paper" if chosen is None else "forecast"].replace(initial_batch=60)  # not all samples
    options = {"hidden": (12,), "random_state": 0, "verbose": 0, "dtype": dtype, "steps": steps} | options
    model = Forecaster.paper(12, 3, **options) if chosen is None else Forecaster(12, 3, **options | chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows).predict_windows(rows[-60:])


def decisions(variant, dtype, samples=X, **options):
    """Return the decision values of some samples, (samples, classes)."""
    options = {"hidden": (12,), "encoder": None, "random_state": 0, "verbose": 0, "dtype": dtype} | options
    chosen = CLASSIFIERS[variant]
    model = Classifier.paper(**options) if chosen is None else Classifier(**options | chosen)
    return model.fit(samples, Y).decision_function(samples[:40])


usual_forecasts, usual_decisions = functools.cache(forecasts), functools.cache(decisions)


def same_forecasts(found, variant, dtype, tolerance=None):
    apart = np.abs(found - usual_forecasts(variant, dtype)) / np.ptp(ROWS, axis=0)
    assert apart.max() < TOLERANCE[tolerance or dtype]


def same_decisions(found, variant, dtype, tolerance=None):
    expected = usual_decisions(variant, dtype)
    assert np.abs(found - expected).max() < TOLERANCE[tolerance or dtype] * np.ptp(expected)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def with_one_thread(make, *arguments):
    """Return what `make` returns on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return make(*arguments)
    finally:
        torch.set_num_threads(before)


@dtypes
@forecasters
def test_the_order_of_columns(variant, dtype):
    order = [2, 0, 3, 1]
    found = forecasts(variant, dtype, ROWS[:, order])
    same_forecasts(found[:, :, np.argsort(order)], variant, dtype)


@dtypes
@forecasters
def test_a_constant_column(variant, dtype):
    """It is forecast as itself, and the others as without it."""
    found = forecasts(variant, dtype, np.insert(ROWS, 1, 7.3, axis=1))
    np.testing.assert_array_equal(found[:, :, 1], 7.3)
    same_forecasts(np.delete(found, 1, axis=2), variant, dtype)


@dtypes
@forecasters
@pytest.mark.parametrize("memory", ["1MB", "64MB"])
def test_memory(variant, dtype, memory):
    same_forecasts(forecasts(variant, dtype, memory=memory), variant, dtype)


@forecasters
def test_threads(variant, two_threads):
    found = forecasts(variant, "float32")
    with_one_thread(usual_forecasts, variant, "float32")
    same_forecasts(found, variant, "float32")


@dtypes
@forecasters
def test_sizes_of_batches(variant, dtype, monkeypatch):
    usual_forecasts(variant, dtype)
    monkeypatch.setattr(SpikingNetwork, "batch_size", lambda network, memory: 13)
    make = direct.Source.__init__

    def few_at_once(source, *arguments):
        make(source, *arguments)
        source.chunk = 7

    monkeypatch.setattr(direct.Source, "__init__", few_at_once)
    same_forecasts(forecasts(variant, dtype), variant, dtype)


@forecasters
def test_precision(variant):
    same_forecasts(forecasts(variant, "float32"), variant, "float64", "float32")


@dtypes
@forecasters
def test_units(variant, dtype):
    """Channels may be in other units, as long as no deviation is below a tenth of the median one."""
    scale, offset = np.array([2.0, 0.6, 3.0, 0.9]), np.array([30.0, 0.0, -7.0, 400.0])
    same_forecasts((forecasts(variant, dtype, ROWS * scale + offset) - offset) / scale, variant, dtype)


@dtypes
@forecasters
def test_one_unit_for_all(variant, dtype):
    same_forecasts((forecasts(variant, dtype, 1e6 * ROWS - 5e5) + 5e5) / 1e6, variant, dtype)


@dtypes
@classifiers
def test_the_order_of_channels_of_signals(variant, dtype):
    same_decisions(decisions(variant, dtype, X[:, :, [2, 0, 3, 1]]), variant, dtype)


@dtypes
@classifiers
def test_a_silent_channel_of_signals(variant, dtype):
    same_decisions(decisions(variant, dtype, np.insert(X, 1, 0.0, axis=2)), variant, dtype)


@dtypes
@classifiers
@pytest.mark.parametrize("memory", ["1MB", "64MB"])
def test_memory_of_classifiers(variant, dtype, memory):
    same_decisions(decisions(variant, dtype, memory=memory), variant, dtype)


@classifiers
def test_threads_of_classifiers(variant, two_threads):
    found = decisions(variant, "float32")
    with_one_thread(usual_decisions, variant, "float32")
    same_decisions(found, variant, "float32")


@classifiers
def test_precision_of_classifiers(variant):
    same_decisions(decisions(variant, "float32"), variant, "float64", "float32")
