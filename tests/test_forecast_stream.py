"""Forecasts row by row are those of `predict`, through gaps and restarts, and a forecast sees the last `window` rows only."""

import numpy as np
import pandas as pd
import pytest

from sswim import Direct, Forecaster, Scaling, Trajectory

WINDOW, HORIZON = 12, 4
# Every readout, and every way to scale and share.
FORECASTERS = {
    "direct": Forecaster(WINDOW, HORIZON),
    "direct, rows": Forecaster(WINDOW, HORIZON, readout=Direct(skip=True)),
    "direct, joint": Forecaster(WINDOW, HORIZON, channels="joint"),
    "direct, standard": Forecaster(WINDOW, HORIZON, scaling="standard"),
    "direct, two layers": Forecaster(WINDOW, HORIZON, hidden=(9, 8), kernel="alpha", scaling=Scaling("window", clip=False)),
    "trajectory": Forecaster(WINDOW, HORIZON, hidden=(15,), readout=Trajectory()),
    "paper": Forecaster.paper(WINDOW, HORIZON, hidden=(15,)),
}


@pytest.mark.parametrize("name", FORECASTERS)
def test_a_forecast_depends_on_the_last_window_only(name, walk):
    model = FORECASTERS[name].set_params(random_state=0).fit(walk[:300])
    end = 250
    last = model.predict(walk[end - WINDOW : end])
    other = np.concatenate([100 + walk[300:], walk[end - WINDOW : end]])
    stream = model.stream()
    for row in walk[:end]:
        streamed = stream(row)
    begun = model.stream(walk[: end - 1])(walk[end - 1])
    for found in (model.predict(walk[:end]), model.predict(other), streamed, begun, model.predict([walk[:end]])[0]):
        np.testing.assert_array_equal(found, last)
    tolerance = 1e-9 if name.startswith("direct") else 1e-4  # a batch of windows adds in another order, in float32
    np.testing.assert_allclose(model.predict_windows(walk)[end - WINDOW], last, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def filling():
    rng = np.random.default_rng(0)
    t = np.arange(300)[:, None]
    rows = 10 + np.sin(2 * np.pi * t / np.array([12, 17])) + 0.1 * rng.standard_normal((300, 2))
    return rows, Forecaster(WINDOW, HORIZON, missing="interpolate", random_state=0).fit(rows)


GAPS = {
    "one value": [(20, 21, 0)],
    "a row": [(20, 21, slice(None))],
    "two that overlap": [(18, 24, 0), (21, 26, 1)],
    "longer than the window": [(14, 30, 1)],
    "from the first row on": [(0, 5, 0)],
    "to the last row": [(37, 40, slice(None))],
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_filled_as_predict_fills_them(name, filling):
    rows, model = filling
    holes = rows[:40].copy()
    for first, last, column in GAPS[name]:
        holes[first:last, column] = np.nan
    stream = model.stream()
    for t, row in enumerate(holes, 1):
        forecast = stream(row)
        assert (forecast is None) == (t < WINDOW)
        if forecast is not None:
            np.testing.assert_allclose(forecast, model.predict(holes[:t]), rtol=1e-9)


@pytest.mark.parametrize("end", [10, 13, 22, 25, 28, 40])
def test_the_past_is_all_that_a_stream_needs(filling, end):
    rows, model = filling
    holes = rows[:60].copy()
    holes[20:24, 0] = holes[23:27, 1] = np.nan
    stream = model.stream()
    for row in holes[:end]:
        stream(row)
    resumed = model.stream(stream.past)
    assert len(stream.past) == min(end, WINDOW)
    for row in holes[end:]:
        one, other = stream(row), resumed(row)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_column_without_any_value_has_no_forecast_yet(filling):
    _, model = filling
    stream = model.stream()
    for _ in range(WINDOW + 3):
        assert stream([1.0, np.nan]) is None
    assert stream([1.0, 2.0]) is not None


def test_missing_times_are_missing_rows(filling):
    rows, model = filling
    frame = pd.DataFrame(rows, index=pd.date_range("2024-01-01", periods=300, freq="h"))
    named = Forecaster(WINDOW, HORIZON, missing="interpolate", random_state=0).fit(frame)
    stream = named.stream(frame[:100])
    expected = named.stream(frame[:100])
    for row in (*frame.iloc[100:105].to_numpy(), *np.full((2, 2), np.nan), frame.iloc[107].to_numpy()):
        wanted = expected(row)
    for t in (100, 101, 102, 103, 104, 107):
        found = stream(frame.iloc[t])
    np.testing.assert_array_equal(found, wanted)
    assert stream.rows == 108
    with pytest.raises(ValueError, match="does not follow in steps of"):
        stream(pd.Series([1.0, 2.0], name=pd.Timestamp("2024-01-05 12:30")))
    with pytest.raises(ValueError, match=r"came after 2024-01-05 11:00:00, and its time does not follow"):
        stream(frame.iloc[107])  # once more
    with pytest.raises(ValueError, match=r"at least 12 rows are missing.*restart\(\)"):
        stream(frame.iloc[150])  # the gap is as long as a window
    stream.restart()
    assert stream(frame.iloc[150]) is None and stream.rows == 1
    for t in range(151, 150 + WINDOW):
        found = stream(frame.iloc[t])
    np.testing.assert_array_equal(found, named.predict(frame[150 : 150 + WINDOW]))


def test_months_are_steps_too():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(200)}, index=pd.date_range("2000-01-31", periods=200, freq="ME"))
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(frame)
    stream = model.stream(frame[:150])
    for t in range(150, 160):
        forecast = stream(frame.iloc[t])
    np.testing.assert_array_equal(forecast, model.predict(frame[:160]))
    with pytest.raises(ValueError, match="1 rows are missing"):
        stream(frame.iloc[161])
    assert stream(frame.iloc[160]) is not None  # nothing was taken


def test_intervals_are_those_of_predict(walk):
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(walk)
    stream = model.stream()
    with pytest.raises(ValueError, match="no forecast yet, 0 of 12 rows have come"):
        stream.interval()
    for row in walk[:50]:
        stream(row)
    for found, expected in zip(stream.interval(0.7), model.predict_interval(walk[:50], 0.7), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_stream_refuses_what_it_cannot_use(walk, filling):
    frame = pd.DataFrame(walk, columns=["a", "b", "c"])
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(frame)
    with pytest.raises(ValueError, match=r"holds nan in column 'b'. Fill it, fit with missing='interpolate', or call restart"):
        model.stream()([1.0, np.nan, 2.0])
    with pytest.raises(ValueError, match=r"row must hold the columns \['a', 'b', 'c'\]"):
        model.stream()(frame.iloc[0, ::-1])
    with pytest.raises(ValueError, match="holds inf in column 1"):
        filling[1].stream()([1.0, np.inf])
    with pytest.raises(ValueError, match="row must hold 3 numbers, got 'a'"):
        model.stream()("a")
    with pytest.raises(ValueError, match="holds NaN"):
        model.stream(frame.mask(frame > 11))
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.stream(walk[:, :2])
