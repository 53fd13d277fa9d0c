"""Tables of other programs: dates of other countries, decimal commas, Parquet with a column of times, npz files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sswim.datasets import read_series, write_series

DAYS = pd.date_range("2024-01-01", periods=60)


def german(path, dates, cells):
    path.write_text("Datum;Wert;Menge\n" + "\n".join(f"{d};{c};7" for d, c in zip(dates, cells, strict=True)))
    return path


def test_dots_of_dates_are_no_dots_of_thousands(tmp_path):
    path = german(tmp_path / "g.csv", DAYS.strftime("%d.%m.%Y"), [f"{k},25" for k in range(60)])
    for found in (read_series(path), read_series(path, time="Datum", date_format="%d.%m.%Y")):
        assert (found.index == DAYS).all() and list(found) == ["Wert", "Menge"]
        assert found["Wert"].tolist() == [k + 0.25 for k in range(60)]


def test_dots_of_thousands_beside_decimal_commas(tmp_path):
    cells = ["1.234,5", "999,5", "-12.345.678,25", "2.000", "3", ""] * 10
    found = read_series(german(tmp_path / "g.csv", DAYS.strftime("%Y-%m-%d"), cells))["Wert"]
    np.testing.assert_array_equal(found[:6], [1234.5, 999.5, -12345678.25, 2000.0, 3.0, np.nan])
    with pytest.raises(ValueError, match="'Wert' has decimal commas, but data row 1 has '1.5'"):
        read_series(german(tmp_path / "g.csv", DAYS.strftime("%Y-%m-%d"), ["1.5", "2,5"] * 30))


def test_days_as_digits_are_days(tmp_path):
    path = tmp_path / "d.csv"
    pd.DataFrame({"date": DAYS.strftime("%Y%m%d"), "a": range(60)}).to_csv(path, index=False)
    for found in (read_series(path), read_series(path, time="date", date_format="%Y%m%d")):
        assert (found.index == DAYS).all()
    pd.DataFrame({"date": range(2000, 2060), "a": range(60)}).to_csv(path, index=False)
    assert read_series(path).index.tolist() == list(range(2000, 2060))
    assert read_series(path, time="date", date_format="%Y").index[1] == pd.Timestamp("2001-01-01")


def test_parquet_files_may_hold_times_in_a_column(tmp_path):
    path, frame = tmp_path / "t.parquet", pd.DataFrame({"a": np.arange(60.0), "when": DAYS})
    frame.to_parquet(path)
    for found in (read_series(path), read_series(path, time="when")):
        assert (found.index == DAYS).all() and list(found) == ["a"]
    frame.assign(until=DAYS + pd.Timedelta("1h")).to_parquet(path)
    with pytest.raises(ValueError, match="'when' holds times. Name the column of times"):
        read_series(path)
    assert list(read_series(path, time="when", drop=["until"])) == ["a"]


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-01-31", periods=9, freq="ME"),
        pd.bdate_range("2024-01-01", periods=9),
        pd.date_range("2024-01-01", periods=9, freq="30s"),
        pd.date_range("2024-03-29", periods=9, tz="Europe/Berlin"),
        pd.date_range("2024-03-29", periods=1),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_times_come_back_from_files(tmp_path, index, suffix):
    path, frame = tmp_path / f"t.{suffix}", pd.DataFrame({"a": np.arange(float(len(index)))}, index=index)
    write_series(frame, path)
    found = read_series(path)
    assert (found.index == index).all() and found["a"].tolist() == frame["a"].tolist()


def test_steps_of_npz_files(tmp_path):
    path = tmp_path / "s.npz"
    np.savez(path, x=np.zeros((3, 1)), start="2024-01-01", step_minutes=2.5)
    assert read_series(path).index[1] == pd.Timestamp("2024-01-01 00:02:30")
    np.savez(path, x=np.zeros((3, 1)), start="2024-01-01", step_minutes=-5)
    with pytest.raises(ValueError, match="'step_minutes' must be above 0, got -5"):
        read_series(path)
    np.savez(path, x=np.zeros((3, 1)), times=["2024-01-01"])
    with pytest.raises(ValueError, match="as many times as rows, but 'times' has 1 and 'x' has 3"):
        read_series(path)
