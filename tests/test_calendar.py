"""The calendar: clock neurons tell the time of day, week and year, and get nothing if it does not matter."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sswim import Direct, Forecaster
from sswim.data.calendar import Calendar, RowTimes, wall_clock
from sswim.data.series import as_series
from sswim.export.onnx import to_exported, to_onnx
from sswim.readout.base import Shape

WINDOW, HORIZON = 12, 6
BERLIN = "Europe/Berlin"


def seconds(*times):
    return torch.tensor([int((pd.Timestamp(t) - pd.Timestamp("1970-01-01")).total_seconds()) for t in times])


def working_hours(index, channels=2, noise=0.1, seed=0):
    """Noise that is high in working hours, from Monday to Friday: windows of 12 hours do not show which day comes next."""
    busy = (index.day_of_week < 5) & (index.hour >= 8) & (index.hour < 18)
    level = 3.0 * np.asarray(busy)[:, None] * np.arange(1, channels + 1)
    rows = 10 + level + noise * np.random.default_rng(seed).normal(size=(len(index), channels))
    return pd.DataFrame(rows, index=index, columns=list("abcdef")[:channels])


@pytest.fixture(scope="module")
def weeks():
    return working_hours(pd.date_range("2024-01-03", periods=14 * 168, freq="h"))


@pytest.fixture(scope="module")
def fitted(weeks):
    return Forecaster(WINDOW, HORIZON, random_state=0).fit(weeks[:2000])


def test_neurons_tell_the_time_of_the_week_and_the_day_of_the_year():
    hourly = Calendar.of_step(3600, 3 * 8766)
    assert hourly is not None and hourly.clocks == [168, 366]
    week, year = hourly.firing(seconds("2024-01-01 00:00", "2024-01-01 00:59", "2024-01-08 01:00", "2025-01-01 12:00"))
    thursday = 4 * 24  # 1970 began with a Thursday, and so do the numbers of neurons
    assert week.tolist() == [thursday, thursday, thursday + 1, (6 * 24 + 12) % 168]
    assert (year[3] - year[0]) % 365 in (0, 1, 364)  # years are of their mean length


@given(step=st.sampled_from([300, 600, 1800, 3600, 7200]), first=st.integers(0, 10**9), count=st.integers(2, 50))
@settings(max_examples=30, deadline=None)
def test_waves_are_sums_over_neurons_one_by_one(step, first, count):
    calendar = Calendar.of_step(step, math.ceil(2.1 * 366 * 86400 / step))
    times = first + step * torch.arange(count)
    code = calendar(times)
    both = zip(calendar.firing(times), calendar.clocks, strict=True)
    spikes = [torch.nn.functional.one_hot(n, length).double() for n, length in both]
    expected = []
    for fires, waves, turn in zip(spikes, (calendar.week, calendar.year), (calendar.neurons, 365.2425), strict=True):
        for wave in (math.cos, math.sin):
            for k in waves:
                weights = torch.tensor([wave(2 * math.pi * k * n / turn) for n in range(fires.shape[1])], dtype=torch.float64)
                expected.append(fires @ weights)
    torch.testing.assert_close(code, torch.stack(expected, dim=1), rtol=0, atol=1e-12)


def test_cycles_that_were_hardly_seen_are_not_read():
    assert Calendar.of_step(3600, 2 * 24) is None
    assert Calendar.of_step(3600, 4 * 24) == Calendar(168, (7, 14, 21, 28))
    assert Calendar.of_step(3600, 200 * 24).year == ()
    daily = Calendar.of_step(86400, 800)
    assert daily.week == (1, 2, 3) and daily.year == (1, 2, 3)
    assert Calendar.of_step(7 * 86400, 60) is None  # weekly rows have no day of the week
    assert Calendar.of_step(7 * 86400, 200).week == ()
    assert Calendar.of_step(365 * 86400, 50) is None


def test_times_of_rows_are_labels_of_rows():
    indexes = [
        pd.date_range("2024-03-30", periods=60, freq="h", tz=BERLIN),  # clocks go forward
        pd.date_range("2024-10-26", periods=60, freq="h", tz=BERLIN),  # and back
        pd.date_range("1969-12-30", periods=60, freq="h"),
        pd.date_range("2024-01-31", periods=60, freq="ME"),
        pd.bdate_range("2024-01-01", periods=60),
        pd.period_range("2024-01", periods=60, freq="M"),
        pd.date_range("2024-01-01", periods=60, freq="250ms"),
    ]
    for index in indexes:
        series = as_series(pd.DataFrame({"x": np.arange(60.0)}, index=index))
        (times,) = series.times()
        labels = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
        expected = [math.floor((t.tz_localize(None) - pd.Timestamp("1970-01-01")).total_seconds()) for t in labels]
        assert times.at(np.arange(60)).tolist() == expected
        assert wall_clock(pd.DatetimeIndex(labels)).tolist() == expected
    assert as_series(np.zeros((5, 1))).times() is None


def test_rows_before_the_first_label_have_times_too():
    for freq in ("h", "ME"):
        index = pd.date_range("2024-01-31", periods=40, freq=freq)
        whole = RowTimes.of(lambda a, b, i=index: i[a:b], 40)
        part = RowTimes.of(lambda a, b, i=index[7:]: i[a:b], 33, missing=7)
        np.testing.assert_array_equal(part.at(np.arange(40)), whole.at(np.arange(40)))


@pytest.mark.parametrize("channels", ["shared", "joint"])
@pytest.mark.parametrize("skip", [False, True])
def test_the_week_is_forecast(weeks, skip, channels):
    options = {"channels": channels, "random_state": 0}
    with_times = Forecaster(WINDOW, HORIZON, readout=Direct(skip=skip), **options).fit(weeks[:2000])
    blind = Forecaster(WINDOW, HORIZON, readout=Direct(skip=skip, calendar=False), **options).fit(weeks[:2000])
    assert with_times.evaluate(weeks[2000:]).rse < 0.75 * blind.evaluate(weeks[2000:]).rse


@pytest.mark.parametrize("channels", [1, 7, 100, 288, 321, 862, 2000, 5000])
@pytest.mark.parametrize("horizon", [6, 96])
def test_a_calendar_never_takes_memory_that_is_not_there(channels, horizon):
    readout, waves = Direct(), Calendar.of_step(3600, 3 * 8766).features

    def built(clock):
        shape = Shape(1, 1, 168, horizon, (20,), channels, 2 * 10**9, torch.float32, clock=clock, scaling="window")
        return readout.build(shape)  # refuses what does not fit

    alone = built(0)
    if readout.has_room(waves, channels, horizon):
        both = built(waves)
        assert both.weights.shape[1] <= alone.weights.shape[1] + waves
        assert both.sizes.lags >= 0.6 * alone.sizes.lags
    else:
        assert channels > 800
    assert readout.has_room(waves, 321, 96)  # as many as Electricity has


def test_a_calendar_without_room_is_left_out(weeks, monkeypatch):
    monkeypatch.setattr("sswim.readout.direct.WAVES", 0.0)
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(weeks[:2000])
    plain = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(weeks[:2000])
    assert model.model_.encoder.calendar is None
    pd.testing.assert_frame_equal(model.predict(weeks[:2000]), plain.predict(weeks[:2000]))


@pytest.mark.slow
def test_wide_tables_with_times_are_fitted_within_the_default_memory():
    index = pd.date_range("2024-01-01", periods=1200, freq="h")
    rows = np.random.default_rng(0).normal(size=(1200, 321)).cumsum(axis=0)
    model = Forecaster(168, 24, random_state=0, verbose=0).fit(pd.DataFrame(rows, index=index))
    assert model.model_.encoder.calendar is not None
    assert np.isfinite(model.predict(pd.DataFrame(rows, index=index)).to_numpy()).all()


def test_only_the_clock_on_the_wall_counts(weeks, fitted):
    """Four weeks later nothing differs. Twelve hours later all does."""
    past = weeks[:2100]
    later, other = past.set_index(past.index + pd.Timedelta("28D")), past.set_index(past.index + pd.Timedelta("12h"))
    np.testing.assert_array_equal(fitted.predict(later), fitted.predict(past))
    assert np.abs(fitted.predict(other).to_numpy() - fitted.predict(past).to_numpy()).max() > 0.5
    local = past.tz_localize(BERLIN)
    np.testing.assert_array_equal(fitted.predict(local), fitted.predict(past))
    utc, shifted = local.tz_convert("UTC"), past.set_index(past.index - pd.Timedelta("1h"))  # winter time
    np.testing.assert_array_equal(fitted.predict(utc), fitted.predict(shifted))
    # A night when clocks go forward: windows end at the time that clocks show.
    spring = pd.DataFrame(
        past.to_numpy(), columns=past.columns, index=pd.date_range(end="2024-03-31 09:00", periods=2100, freq="h", tz=BERLIN)
    )
    shown = spring.set_index(pd.date_range(end="2024-03-31 09:00", periods=2100, freq="h"))
    np.testing.assert_array_equal(fitted.predict(spring), fitted.predict(shown))


def test_without_times_nothing_changes(weeks):
    rows = weeks[:1000]
    plain = Forecaster(WINDOW, HORIZON, random_state=0).fit(rows.to_numpy())
    off = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(rows)
    np.testing.assert_array_equal(plain.predict(rows.to_numpy()), off.predict(rows))
    assert plain.model_.encoder.calendar is None and off.model_.encoder.calendar is None


def test_what_does_not_help_gets_nothing_and_arrays_are_forecast():
    rng, walk = np.random.default_rng(1), np.zeros((3000, 2))
    for row in range(1, 3000):
        walk[row] = 0.8 * walk[row - 1] + rng.normal(size=2)
    frame = pd.DataFrame(walk, index=pd.date_range("2024-01-01", periods=3000, freq="h"))
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(frame[:2500])
    blind = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(frame[:2500])
    assert model.evaluate(frame[2500:]).rse < 1.01 * blind.evaluate(frame[2500:]).rse
    shares = model.model_.report.solution.kept
    assert sum(share for name, share in shares.items() if name.startswith("calendar")) < 0.1


def test_rows_without_times_are_forecast_as_by_a_model_without_a_calendar(weeks, fitted, tmp_path):
    blind = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(weeks[:2000])
    rows = weeks.to_numpy()
    wanted = blind.predict(weeks).to_numpy()
    assert np.abs(wanted - fitted.predict(weeks)).to_numpy().max() > 0.1
    np.testing.assert_allclose(fitted.predict(rows), wanted, rtol=1e-6)
    np.testing.assert_allclose(fitted.predict_windows(rows), blind.predict_windows(rows), rtol=1e-5)
    assert fitted.evaluate(rows).rse == pytest.approx(blind.evaluate(rows).rse, rel=1e-6)
    stream = fitted.stream()
    for row in rows[-WINDOW:]:
        found = stream(row)
    np.testing.assert_allclose(found, fitted.predict(rows), rtol=1e-9)
    parts = fitted.contributions(rows)
    np.testing.assert_allclose(parts.sum(axis=1).unstack("channel"), fitted.predict(rows), rtol=1e-9)
    assert (parts["calendar"] == 0).all()
    fitted.save(tmp_path / "model.sswim")
    np.testing.assert_array_equal(Forecaster.load(tmp_path / "model.sswim").predict(rows), fitted.predict(rows))
    one, other = fitted.costs(rows), blind.costs(rows)
    assert one.layers == other.layers
    exported = to_exported(fitted).module()(rows=torch.from_numpy(rows[None, -WINDOW:]))
    np.testing.assert_allclose(exported[0], fitted.predict(rows), rtol=1e-9)


def test_what_needs_times_says_so(weeks, fitted):
    before = fitted.predict(weeks)
    with pytest.warns(UserWarning, match=r"X: this model reads the time.*intervals are those of rows with times"):
        low, high = fitted.predict_interval(weeks.to_numpy())
    np.testing.assert_allclose((low + high) / 2, fitted.predict(weeks.to_numpy()), rtol=1e-9)
    with pytest.raises(ValueError, match="some of these series have times, and others have none"):
        fitted.predict([weeks, weeks.to_numpy()])
    blind = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(weeks[:500])
    with pytest.raises(ValueError, match="times: forecasts of this model do not depend on the time"):
        to_exported(blind, times=True)
    pd.testing.assert_frame_equal(fitted.predict(weeks), before)


def test_rows_without_times_that_come_later_go_on(weeks):
    model = Forecaster(WINDOW, HORIZON, dtype="float64", random_state=0).fit(weeks[:1500])
    other = copy.deepcopy(model)
    for first, last in ((1500, 1503), (1503, 1700), (1700, 2000)):
        model.partial_fit(weeks[first:last])
        other.partial_fit(weeks.to_numpy()[first:last])
    np.testing.assert_array_equal(model.predict_windows(weeks[2000:]), other.predict_windows(weeks[2000:]))
    with pytest.raises(ValueError, match=r"fitted to rows with times, and updates need them too"):
        model.partial_fit([weeks.to_numpy()[2000:2100], weeks.to_numpy()[2100:2200]])


def test_all_ways_to_forecast_agree(weeks, fitted, tmp_path):
    past = weeks[:2100]
    forecast, windows = fitted.predict(past), fitted.predict_windows(weeks)
    np.testing.assert_allclose(windows[2100 - WINDOW], forecast, rtol=1e-9)
    several = fitted.predict([past, weeks[:2050]])
    np.testing.assert_allclose(several[0], forecast, rtol=1e-9)
    np.testing.assert_allclose(several[1], windows[2050 - WINDOW], rtol=1e-9)
    gap = pd.concat([weeks[:2000], weeks[2030:2100]])
    np.testing.assert_allclose(fitted.predict(gap), forecast, rtol=1e-9)
    stream = fitted.stream(weeks[:2090])
    for number in range(2090, 2100):  # the first with their times, the others without
        found = stream(weeks.iloc[number] if number < 2095 else weeks.to_numpy()[number])
    np.testing.assert_allclose(found, forecast, rtol=1e-9)
    fitted.save(tmp_path / "model.sswim")
    np.testing.assert_array_equal(Forecaster.load(tmp_path / "model.sswim").predict(past), forecast)
    parts = fitted.contributions(past)
    np.testing.assert_allclose(parts.sum(axis=1).unstack("channel"), forecast, rtol=1e-9)
    assert parts["calendar"].abs().max() > 0.1


def test_a_skipped_row_of_a_stream_is_an_hour_all_the_same(weeks, fitted):
    model = Forecaster(WINDOW, HORIZON, missing="interpolate", random_state=0).fit(weeks[:2000])
    stream, filled = model.stream(weeks[:2090]), weeks[:2093].copy()
    stream(weeks.iloc[2090])
    found = stream(weeks.iloc[2092])  # a row was lost: its time tells
    filled.iloc[2091] = np.nan
    np.testing.assert_allclose(found, model.predict(filled), rtol=1e-2)
    assert np.abs(found - stream(weeks.iloc[2093])).max() > 0.2  # an hour matters


def test_gaps_and_lists_of_series_keep_their_times(weeks):
    """Segments that begin at any time are as good as one: windows know when they end."""
    cut = pd.concat([weeks[:700], weeks[731:1500], weeks[1515:2000]])
    for data in (cut, [weeks[:700], weeks[731:1500], weeks[1515:2000]]):
        model = Forecaster(WINDOW, HORIZON, random_state=0).fit(data)
        blind = Forecaster(WINDOW, HORIZON, readout=Direct(calendar=False), random_state=0).fit(data)
        assert model.evaluate(weeks[2000:]).rse < 0.75 * blind.evaluate(weeks[2000:]).rse


def test_back_tests_are_refits(weeks):
    model = Forecaster(WINDOW, HORIZON, dtype="float64", random_state=0).fit(weeks[:1200])
    found = model.cross_validate(weeks, folds=2, start=0.75)
    for part in found.folds.itertuples():
        fitted = copy.deepcopy(model).refit(weeks[: part.train_last])
        assert fitted.model_.reads_calendar
        later = weeks[part.test_first - WINDOW : part.test_last]
        assert part.rmse == pytest.approx(fitted.evaluate(later).rmse, rel=1e-8)


def test_business_days_are_told_apart():
    index = pd.bdate_range("2020-01-01", periods=400)
    (times,) = as_series(pd.DataFrame({"x": np.arange(400.0)}, index=index)).times()
    calendar = Calendar.of([times], [400])
    assert calendar.neurons == 7
    week = calendar.firing(torch.from_numpy(times.at(np.arange(5))))[0]
    assert len(week.unique()) == 5


def test_months_are_of_the_year():
    index = pd.date_range("1980-01-31", periods=480, freq="ME")
    rng = np.random.default_rng(0)
    season = np.array([0, 0, 5, 0, 0, 0, -4, 0, 0, 2, 0, 0.0])[index.month - 1]
    frame = pd.DataFrame({"x": season + rng.normal(size=480)}, index=index)
    model = Forecaster(4, 3, random_state=0).fit(frame[:400])
    blind = Forecaster(4, 3, readout=Direct(calendar=False), random_state=0).fit(frame[:400])
    assert model.model_.encoder.calendar.clocks == [366]
    assert model.evaluate(frame[400:]).rse < 0.95 * blind.evaluate(frame[400:]).rse
    np.testing.assert_allclose(model.predict_windows(frame)[-1], model.predict(frame[:-3]), rtol=1e-9)


def test_rows_that_come_later_are_rows_of_a_fit(weeks):
    model = Forecaster(WINDOW, HORIZON, dtype="float64", random_state=0).fit(weeks[:1500])
    expected = copy.deepcopy(model).refit(weeks[:2000])
    for first, last in ((1500, 1503), (1503, 1700), (1700, 2000)):
        model.partial_fit(weeks[first:last])
    np.testing.assert_allclose(model.predict_windows(weeks[2000:]), expected.predict_windows(weeks[2000:]), rtol=1e-8)
    away = copy.deepcopy(model).partial_fit(weeks[2050:2300])  # after a gap
    assert away.model_.reads_calendar


def test_merged_models_are_one_fit(weeks):
    model = Forecaster(WINDOW, HORIZON, dtype="float64", random_state=0).fit(weeks[:1200])
    parts = [weeks[:1100], weeks[1100:2000]]
    one, other = (copy.deepcopy(model).refit(part) for part in parts)
    expected = copy.deepcopy(model).refit(parts)
    np.testing.assert_allclose(one.merge(other).predict_windows(weeks), expected.predict_windows(weeks), rtol=1e-8)


def test_processes_and_stored_rows_give_the_fit_of_the_table(weeks, fitted, tmp_path):
    weeks[:2000].to_parquet(tmp_path / "weeks.parquet")
    stored = Forecaster(WINDOW, HORIZON, random_state=0).fit(tmp_path / "weeks.parquet")
    np.testing.assert_array_equal(stored.predict(weeks), fitted.predict(weeks))
    assert stored.model_.reads_calendar
    spread = Forecaster(WINDOW, HORIZON, executor=2, random_state=0).fit(weeks[:2000])
    np.testing.assert_array_equal(spread.predict(weeks), fitted.predict(weeks))


def test_clocks_are_counted(weeks, fitted):
    def layers(model):
        return {layer.name: layer for layer in model.costs(weeks[2000:]).layers}

    blind = copy.deepcopy(fitted)
    readout = blind.network_.readout
    with torch.no_grad():
        readout.weights[:, readout.parts["clock"]] = 0
    one, other = layers(fitted), layers(blind)
    groups, rows = readout.sizes.groups, HORIZON * readout.sizes.outputs
    assert one["populations"].neurons - other["populations"].neurons == 168
    # One spike for all channels; and each output reads one weight.
    assert one["populations"].spikes - other["populations"].spikes == pytest.approx(1 / groups)
    assert one["output"].accumulates - other["output"].accumulates == pytest.approx(rows)
    assert one["output"].weights - other["output"].weights == groups * 168 * rows


def test_an_exported_program_asks_for_the_time(weeks, fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted, tmp_path / "weeks.onnx", times=True))
    times = wall_clock(weeks.index)
    ends = np.array([100, 777, 2100])
    rows = np.stack([weeks.to_numpy()[end - WINDOW : end] for end in ends])
    found = session.run(None, {"rows": rows, "time": times[ends - 1]})[0]
    for end, forecast in zip(ends, found, strict=True):
        np.testing.assert_allclose(forecast, fitted.predict(weeks[:end]), rtol=1e-9)


def test_a_calendar_of_a_file_is_checked():
    with pytest.raises(ValueError, match="neurons: a week has at most 2,016 of them, got 3,000"):
        Calendar(3000, (7,))
    with pytest.raises(ValueError, match=r"year: waves must be some of \(1, 2, 3\), each once, got \(1, 1\)"):
        Calendar(168, (7,), (1, 1))
    with pytest.raises(ValueError, match="week: waves must be some of"):
        Calendar(168, (4,))


@pytest.mark.parametrize("seed", [1, 3])
def test_what_a_calendar_seems_to_bring_by_chance_is_not_enough(seed):
    """Random walks: one seems to follow the calendar (3), or weights of the level that come with it seem to help (1)."""
    rng = np.random.default_rng(seed)
    walks = pd.DataFrame(rng.normal(size=(1500, 6)).cumsum(axis=0), index=pd.date_range("2010-01-01", periods=1500, freq="D"))
    model = Forecaster(30, 20, random_state=0).fit(walks)
    assert model.model_.encoder.calendar is not None and not model.model_.reads_calendar
    shares = model.model_.report.solution.kept
    assert all(share == 0 for name, share in shares.items() if name.startswith("calendar"))
