"""How the times of a series go on, when few of them do not tell: weekdays, months, changes of the clock, zones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sswim import Forecaster
from sswim.data.series import as_series
from sswim.data.times import Pace, continue_index

BERLIN = "Europe/Berlin"
INDEXES = {
    "hours": pd.date_range("2024-01-01", periods=400, freq="h"),
    "hours over a change of the clock": pd.date_range("2024-03-20", periods=400, freq="h", tz=BERLIN),
    "days": pd.date_range("2023-01-01", periods=400),
    "days in a zone": pd.date_range("2023-01-01", periods=400, tz=BERLIN),
    "weekdays": pd.bdate_range("2022-01-03", periods=400),
    "weeks": pd.date_range("2020-01-01", periods=200, freq="W-WED"),
    "first days of months": pd.date_range("1990-01-01", periods=300, freq="MS"),
    "last days of months": pd.date_range("1990-01-31", periods=300, freq="ME", tz=BERLIN),
    "quarters": pd.date_range("1950-03-31", periods=250, freq="QE"),
}


def rows(index):
    values = np.sin(np.arange(len(index)) / 7) + 0.1 * np.random.default_rng(0).normal(size=len(index))
    return pd.DataFrame({"a": values}, index=index)


def bare(index):
    """Return an index as a file gives it, which knows no step."""
    return index[np.arange(len(index))]


def fitted(frame, **options):
    return Forecaster(8, 3, random_state=0, verbose=0, **options).fit(frame)


@pytest.mark.parametrize("name", INDEXES)
def test_labels_go_on_as_the_series_did_from_any_row(name):
    index = INDEXES[name]
    pace = Pace.of(bare(index))
    for end in range(1, len(index) - 3, 7):
        for seen in (1, 2, 5, 9):
            known = bare(index[max(0, end - seen) : end])
            assert continue_index(known, 3, pace).equals(index[end : end + 3]), (end, seen)


@pytest.mark.parametrize("name", INDEXES)
def test_rows_one_by_one_are_those_of_a_fit_to_all(name):
    frame = rows(INDEXES[name])
    frame.index = bare(frame.index)
    model = fitted(frame[:150])
    for k in range(150, 185):
        model.partial_fit(frame[k : k + 1])
    assert model.model_.past.seen == fitted(frame[:185]).model_.past.seen


@pytest.mark.parametrize("name", INDEXES)
def test_a_stream_knows_what_follows_from_its_first_row_on(name):
    frame = rows(INDEXES[name])
    frame.index = bare(frame.index)
    model = fitted(frame, missing="interpolate")
    stream = model.stream()
    for k in range(20, 60):
        forecast = stream(frame.iloc[k])
    assert stream.rows == 40
    np.testing.assert_array_equal(forecast, model.predict(frame[20:60]))


def test_the_pace_is_kept_in_files(tmp_path):
    model = fitted(rows(INDEXES["weekdays"]))
    model.save(tmp_path / "m.sswim")
    loaded = Forecaster.load(tmp_path / "m.sswim")
    assert loaded.model_.pace == model.model_.pace == Pace("B")
    week = rows(INDEXES["weekdays"])[:5].set_axis(bare(INDEXES["weekdays"][:5]))  # four steps of a day
    alone = Forecaster(5, 3, random_state=0, verbose=0).fit(rows(INDEXES["weekdays"]))
    assert alone.predict(week).index[0].day_name() == "Monday"


@pytest.mark.parametrize("step, zone", [("no step", None), ("-1h", None), ("h", "Nowhere/Land"), (None, None)])
def test_a_wrong_pace_is_refused(step, zone):
    with pytest.raises(ValueError, match="of times must"):
        Pace(step, zone)


@pytest.fixture(scope="module")
def hours():
    """Return a load that follows clocks on the wall, over a change of the clock."""
    index = pd.date_range("2023-09-01", periods=24 * 120, freq="h", tz=BERLIN)
    busy = (index.hour >= 7) & (index.hour < 9) & (index.day_of_week < 5)
    return pd.DataFrame({"load": 10.0 * busy + 0.3 * np.random.default_rng(0).normal(size=len(index))}, index=index)


def test_the_same_moments_have_the_same_forecast_in_any_zone(hours):
    model = Forecaster(24, 12, random_state=0, verbose=0).fit(hours[:2400])
    assert model.model_.reads_calendar
    later = hours[2400:2700]
    expected = model.predict(later).to_numpy()
    for zone in ("UTC", "America/New_York", "UTC+01:00"):
        moved = later.tz_convert(zone)
        forecast = model.predict(moved)
        np.testing.assert_array_equal(forecast.to_numpy(), expected)
        assert forecast.index[0] == moved.index[-1] + pd.Timedelta("1h")
        assert str(forecast.index.tz) == str(moved.index.tz)
        assert model.evaluate(moved).rse == model.evaluate(later).rse
        stream = model.stream(moved[:-1])
        np.testing.assert_array_equal(stream(moved.iloc[-1]), expected)


def test_updates_read_the_clocks_of_the_fit(hours):
    one, two = (Forecaster(24, 12, random_state=0, verbose=0).fit(hours[:2000]) for _ in range(2))
    one.partial_fit(hours[2000:2400])
    two.partial_fit(hours[2000:2400].tz_convert("UTC"))
    np.testing.assert_allclose(one.predict(hours[:2500]), two.predict(hours[:2500]), rtol=1e-6)


def test_an_update_right_after_a_change_of_the_clock(hours):
    after = hours.index.get_loc(pd.Timestamp("2023-10-29 03:00", tz=BERLIN))
    model = Forecaster(24, 6, random_state=0, verbose=0).fit(hours[: after + 1])
    seen = model.model_.past.seen
    model.partial_fit(hours[after + 1 : after + 25])
    assert model.model_.past.seen == seen + 24


def test_series_in_several_zones_keep_their_own_clocks(hours):
    other = hours[:1300].tz_localize(None).tz_localize("Asia/Tokyo")
    assert as_series([hours, other]).pace() == Pace("h", None)
    assert as_series([hours]).pace() == Pace("h", BERLIN)
    assert as_series([hours.to_numpy()]).pace() is None


def test_labels_that_cannot_be_told(hours):
    frame = rows(INDEXES["days"])
    ambiguous = frame[:9].set_axis([f"{5 + k // 3:02d}/06/2024 {k % 3:02d}:00" for k in range(9)])
    with pytest.raises(ValueError, match="may begin with the day or with the month"):
        as_series(ambiguous)
    lost = frame.set_axis(frame.index.where(np.arange(len(frame)) != 7, pd.NaT))
    with pytest.raises(ValueError, match="row 7 has none"):
        as_series(lost)
    with pytest.raises(ValueError, match="times must increase"):
        as_series(frame[:2][::-1])


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([0, 0, 0], [1, 2]),
        ([True, False, True], [1, 2]),
        (np.array([253, 254, 255], dtype=np.uint8), [256, 257]),
        ([0.5, np.nan], [1, 2]),
        ([0.5, 1.0], [1.5, 2.0]),
        ([7], [1, 2]),
    ],
)
def test_other_labels_go_on_too(labels, expected):
    assert continue_index(pd.Index(labels), 2).tolist() == expected


def test_columns_of_several_levels_stay():
    frame = rows(INDEXES["hours"])
    frame.columns = pd.MultiIndex.from_tuples([("a", "x")])
    forecast = fitted(frame).predict(frame)
    assert isinstance(forecast.columns, pd.MultiIndex)
    assert forecast["a"].shape == (3, 1)


def test_days_in_a_zone_break_only_where_days_are_absent():
    index = pd.date_range("2023-01-01", periods=600, tz=BERLIN).delete(80)
    assert as_series(rows(index)).gaps == 1
    hourly = pd.date_range("2023-03-20", periods=600, freq="h", tz=BERLIN).delete([100, 101])
    assert as_series(rows(hourly)).gaps == 1
