"""What users get wrong about data and devices: errors name the argument, the rule and what came."""

import numpy as np
import pandas as pd
import pytest
import torch

from sswim import Classifier, Direct, Forecaster, SpikingNetwork, Steps, Trajectory, plots, sample
from sswim.data import ExactEvents

COMMON = {"hidden": (5,), "random_state": 0, "verbose": 0}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return np.sin(np.arange(120)[:, None] / [2.0, 3.0]) + 0.1 * rng.standard_normal((120, 2))


@pytest.fixture
def hours(rows):
    return pd.DataFrame(rows, columns=["a", "b"], index=pd.date_range("2024-01-01", periods=120, freq="h"))


def small(**options):
    return Forecaster(8, 3, **COMMON | options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            lambda x: {"north": x, "south": x},
            "series must be a table, an array, or a list of these, got a dict: pass a list of",
        ),
        (lambda x: None, "series must be a table, an array, or a list of these, got NoneType"),
        (lambda x: (row for row in x), "series must be a table, .*, got generator"),
        (lambda x: [[1.0, 2.0], [3.0]] * 30, "series: all rows must have equally many channels"),
        (lambda x: [x, x, x[:, :1]], r"series\[2\]: all series must have the same channels, got 1 after 2"),
        (
            lambda x: [pd.DataFrame(x), x],
            r"series\[1\]: all series must have the same column names .*, got no names after \[0, 1\]",
        ),
        (lambda x: pd.DataFrame(x, columns=["a", "a"]), "series: several columns are called 'a'. Rename them"),
        (
            lambda x: 1e160 * x,
            r"series must lie between -1e\+150 and 1e\+150, but holds more \(240 of 240 values, first in row 0",
        ),
        (lambda x: np.ma.array(x, mask=x > 1), "series must be finite, but holds NaN"),
    ],
)
def test_series_that_are_none(rows, data, message):
    with pytest.raises((TypeError, ValueError), match=message):
        small().fit(data(rows))


def test_names_of_columns_are_told(hours):
    with pytest.raises(ValueError, match="channel 'b' has no values but NaN"):
        small(missing="interpolate").fit(hours.assign(b=np.nan))


@pytest.mark.parametrize("breaks", ["a", ["a"], [1.5], [[1, 2]], {5: 1}, np.nan, 2.5, True, "", object()])
def test_breaks_that_are_none(rows, breaks):
    with pytest.raises(ValueError, match="breaks must be a whole number of rows >= 1 or a list of row numbers, got"):
        small().fit(rows, breaks=breaks)


@pytest.mark.parametrize("coverage", ["a", [0.9], None, np.array([0.5, 0.9]), True])
def test_coverage_that_is_no_number(rows, coverage):
    with pytest.raises(ValueError, match="coverage must be a number between 0.5 and 0.99, got"):
        small().fit(rows).predict_interval(rows, coverage)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Direct(traces=(-1.0,)), r"traces must be numbers > 0, such as \(1, 5\), got \(-1.0,\)"),
        (lambda: small(covariates=None), r"covariates must be a sequence of columns, such as \['hour'\], got None"),
        (lambda: small(steps=Steps(initial_batch=2.5)), "initial_batch must be a whole number >= 2, got 2.5"),
        (lambda: small(device="tpu"), "device must be the name of a device, such as 'cpu' or 'cuda', got 'tpu'"),
        (lambda: small(device=None), "device must be the name of a device, .* got None"),
        (lambda: small(device="meta"), "device must be one that torch can compute on here, as 'cpu' always is, got 'meta'"),
        (lambda: small(scaling="none"), "scaling: 'none' needs series between -1e[+]12 and 1e[+]12, got 1"),
    ],
)
def test_options_that_are_none(rows, make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make().fit(1e20 * rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(rows):
    with pytest.raises(ValueError, match="device must be one that torch can compute on here, as 'cpu' always is, got 'cuda'"):
        small(device="cuda").fit(rows)


def test_the_series_that_is_too_short_is_named(rows):
    model = small().fit([rows, rows[:5], rows])
    with pytest.raises(ValueError, match=r"series\[1\]: a forecast needs the last 8 rows \(window\) .* it has 5\."):
        model.predict([rows, rows[:5], rows])


def test_the_time_of_a_gap_is_told(hours):
    with pytest.raises(ValueError, match="without a gap, but only 4 follow the last gap, which ends at 2024-01-05 20:00:00"):
        small().fit(hours).predict(hours.drop(hours.index[115]))


def test_times_over_a_change_of_clocks_are_times(hours):
    there = pd.date_range("2024-10-25", periods=120, freq="h", tz="Europe/Berlin")
    texts = hours.set_axis(pd.Index([time.isoformat() for time in there]))
    forecast = small().fit(texts).predict(texts)
    assert forecast.index[0] == there[-1] + pd.Timedelta("1h")
    objects = hours.set_axis(pd.Index([pd.Timestamp(time.isoformat()) for time in there], dtype=object))
    pd.testing.assert_frame_equal(small().fit(objects).predict(objects), forecast)
    with pytest.raises(
        ValueError, match=r"row 51 \(2024-10-27 02:00:00\) does not. If clocks go back here, give times their zone"
    ):
        small().fit(hours.set_axis(there.tz_localize(None)))


def test_a_masked_array_has_gaps(rows):
    masked = np.ma.array(rows, mask=np.zeros_like(rows))
    masked[50, 0] = np.ma.masked
    holes = rows.copy()
    holes[50, 0] = np.nan
    one, two = (small(missing="interpolate").fit(x).predict(rows) for x in (masked, holes))
    np.testing.assert_array_equal(one, two)


def test_a_tensor_of_a_graph_is_a_series(rows):
    tensor = torch.tensor(rows, requires_grad=True)
    np.testing.assert_array_equal(small().fit(tensor).predict(tensor), small().fit(rows).predict(rows))


@pytest.mark.filterwarnings("ignore:series")
@pytest.mark.parametrize("readout", ["direct", "trajectory"])
def test_a_series_that_rests_is_forecast_without_an_error(readout):
    still = np.full((60, 2), 3.5)
    model = small(readout=readout).fit(still)
    assert 0 <= model.score(still) <= 1
    assert model.score(still) == 1 or readout == "trajectory"


@pytest.mark.filterwarnings("ignore:series")
@pytest.mark.parametrize("options", [{}, {"readout": Trajectory()}, {"channels": "joint"}])
def test_what_rests_has_no_spikes_to_draw_and_no_width(rows, options):
    model = small(**options).fit(np.insert(rows, 1, 4.0, axis=1))
    later = np.insert(rows, 1, np.arange(120), axis=1)
    assert (model.predict(later)[:, 1] == 119).all(), "it stays where it was last"
    assert np.array_equal(model.predict_windows(later)[0, :, 1], [7.0, 7.0, 7.0])
    if model.model_.has_intervals:
        low, high = model.predict_interval(later)
        assert np.array_equal(low[:, 1], high[:, 1]) and (low[:, [0, 2]] < high[:, [0, 2]]).all()
    with pytest.raises(ValueError, match="channel: 1 never moved in the rows of the fit"):
        plots.plot_spikes(model, later, channel=1)


def test_rows_far_beyond_the_training_rows_are_forecast_by_something_finite(rows):
    far = rows.copy()
    far[-3:] = 1e140
    for options in ({}, {"readout": "trajectory"}, {"channels": "joint"}, {"scaling": "none"}):
        assert np.isfinite(small(**options).fit(rows).predict(far)).all(), options


@pytest.mark.parametrize("which", ["X", "Y"])
def test_samples_that_would_overflow_leave_the_network_alone(which):
    x, y = torch.rand(40, 8, 2), torch.rand(40, 3, 2)
    network = SpikingNetwork(2, 2, window=8, horizon=3, hidden=(5,))
    big = (1e38 * x, y) if which == "X" else (x, 1e38 * y)
    with pytest.raises(ValueError, match=rf"{which} must lie between -1e\+15 and 1e\+15, got .*e\+3\d: scale it"):
        sample(network, *big, random_state=0)
    assert all(bool(torch.isfinite(v).all()) for v in network.state_dict().values())


def classify(X, y=None, **options):
    return Classifier(**COMMON | options).fit(X, np.arange(len(X)) % 2 if y is None else y)


@pytest.mark.parametrize("scale", [1e-300, 1e38, 1e149])
def test_intensities_of_any_unit(scale):
    X = np.random.default_rng(0).random((20, 6))
    plain, scaled = classify(X).predict_proba(X), classify(scale * X).predict_proba(scale * X)
    np.testing.assert_allclose(scaled, plain, atol=1e-6)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.full((20, 4), 1e300), {}, r"X must lie between -1e\+150 and 1e\+150, got 1e\+300: scale it"),
        (np.full((20, 4, 2), 1e30), {}, r"X must lie between -1e\+15 and 1e\+15, got 1e\+30: scale it"),
        (np.zeros((20, 0)), {}, r"X: .*0 feature\(s\) \(shape=\(20, 0\)\)"),
        (np.zeros((20, 4, 0)), {"encoder": "image"}, r"X: samples must hold at least one number, got 0 feature\(s\)"),
        (np.zeros((20, 0, 4)), {"encoder": None}, r"X: samples must hold at least one number, got 0 feature\(s\)"),
        (np.ones((20, 4)), {}, "X: all intensities are the same, 1, but must differ to tell classes apart"),
        (
            np.zeros((20, 3, 2, 4, 4)),
            {},
            r"X: an array .* may be frames in time or images, and 'auto' cannot tell. Pass frames as",
        ),
        ([[1.0], [1.0, 2.0]] * 10, {}, "X: samples must all have the same shape"),
        ({"a": [1.0]}, {}, "X must be an array, a table, or a list of events, got a dict"),
        ([([0.5], [1])] * 20, {"encoder": "poisson"}, "encoder must be 'auto' or an ExactEvents object where X holds events"),
        (5.0, {"encoder": ExactEvents(), "y": [0, 1]}, "X must be a list of samples of events, .*, got 5.0"),
        ([("a", "b")] * 20, {"encoder": ExactEvents()}, "X: times and channels of sample 0 must be numbers, got 'b'"),
        (np.ones((20, 4)), {"fields": (2.5,)}, "fields must be 'auto', None or a layout of channels"),
        (np.ones((20, 4)), {"y": 3}, "y must hold one label per sample, all of one type"),
    ],
)
def test_samples_that_are_none(X, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        classify(X, **options)
