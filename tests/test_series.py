"""Series by name, in the files they are published in."""

import gzip
import io
import re
import sys

import numpy as np
import pandas as pd
import pytest

from sswim import Forecaster
from sswim.data.series import as_series
from sswim.data.times import continue_index
from sswim.datasets import SERIES, SeriesSet, fill_zeros, load_series, read_series, read_text, series_set, write_series

TRAFFIC = {"metr-la": ("df", ["773869", "767541", "767542"]), "pems-bay": ("speed", [400001, 400017, 400030])}
TEXTS = {"solar": "solar_AL.txt", "electricity": "electricity.txt", "exchange-rate": "exchange_rate.txt"}


def speeds(columns, rows=30, unit="ns"):
    """Speeds of some of which are missing, from an hour that the clock skips."""
    rng = np.random.default_rng(0)
    values = rng.uniform(20, 70, (rows, len(columns)))
    values[rng.random(values.shape) < 0.2] = 0
    index = pd.date_range("2017-03-12 01:00", periods=rows, freq="5min", unit=unit)
    return pd.DataFrame(values, index=index[:12].append(index[12:] + pd.Timedelta("1h")), columns=columns)


def write_hdf(frame, path, key, kind="datetime64", lose=None):
    """Write what pandas does, with h5py."""
    h5py = pytest.importorskip("h5py", reason="pip install 'sswim[hdf5]' to run this test")
    texts = isinstance(frame.columns[0], str)
    columns = frame.columns.to_numpy(dtype="S") if texts else frame.columns.to_numpy(dtype=np.int64)
    data = {
        "axis0": (columns, "string" if texts else "integer"),
        "axis1": (frame.index.to_numpy().view(np.int64), kind),
        "block0_items": (columns, "string" if texts else "integer"),
        "block0_values": (frame.to_numpy(), None),
    }
    with h5py.File(path, "w") as file:
        group = file.create_group(key)
        group.attrs["pandas_type"] = np.bytes_(b"frame")
        for name, (values, what) in data.items():
            if name != lose:
                node = group.create_dataset(name, data=values[1:] if lose == f"a row of {name}" else values)
                if what is not None:
                    node.attrs["kind"] = np.bytes_(what)


def same(found, frame):
    pd.testing.assert_frame_equal(found, frame, check_freq=False, check_index_type=False, check_column_type=False)
    assert isinstance(found.index, pd.DatetimeIndex) and list(found.columns) == list(frame.columns)


@pytest.mark.parametrize("name", TRAFFIC)
@pytest.mark.parametrize(("unit", "kind"), [("ns", "datetime64"), ("ns", "datetime64[ns]"), ("us", "datetime64[us]")])
@pytest.mark.parametrize("inside", ["", "folder"])
def test_traffic_is_read_back_with_its_zeros(tmp_path, monkeypatch, name, unit, kind, inside):
    key, columns = TRAFFIC[name]
    frame = speeds(columns, unit=unit)
    folder = tmp_path / name if inside else tmp_path
    folder.mkdir(exist_ok=True)
    write_hdf(frame, folder / f"{name}.h5", key, kind)
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    same(load_series(name), frame)
    same(load_series(name, tmp_path), frame)
    same(load_series(folder / f"{name}.h5"), frame)
    assert (load_series(name) == 0).any(axis=None)


@pytest.mark.parametrize("name", TRAFFIC)
@pytest.mark.parametrize("unit", ["ns", "us"])
def test_traffic_as_pandas_writes_it(tmp_path, name, unit):
    pytest.importorskip("h5py", reason="pip install 'sswim[hdf5]' to run this test")
    pytest.importorskip("tables", reason="pip install tables to run this test")
    key, columns = TRAFFIC[name]
    path, frame = tmp_path / f"{name}.h5", speeds(columns, unit=unit)
    for other in (key, "some/other"):
        frame.to_hdf(path, key=other, format="fixed", mode="w")
        same(load_series(name, tmp_path), frame)
        same(load_series(name, tmp_path), pd.read_hdf(path))
    mixed = frame.assign(count=np.arange(30), short=np.float32(0.5))[["short", *columns[:2], "count", columns[2]]]
    mixed.columns = mixed.columns.map(str)
    mixed.index = mixed.index.tz_localize("Europe/Berlin")
    mixed.to_hdf(path, key=key, format="fixed", mode="w")
    same(load_series(path), mixed)
    numbered = frame.reset_index(drop=True)
    numbered.to_hdf(path, key=key, format="fixed", mode="w")
    assert load_series(path).index.tolist() == list(range(30))
    for broken, options, message in (
        (frame, {"format": "table"}, "holds a table of pandas, which only PyTables reads. Write it with"),
        (frame.assign(road="I-5").rename(columns=str), {}, "all columns must be numbers, but 'road' hold objects. Drop them."),
        (frame.iloc[:0], {}, "damaged"),
    ):
        broken.to_hdf(path, key=key, mode="w", **options)
        with pytest.raises(ValueError, match=f"{name}.h5: {message}"):
            load_series(name, tmp_path)
    frame.to_hdf(path, key="a", format="fixed", mode="w")
    frame.to_hdf(path, key="b", format="fixed")
    with pytest.raises(ValueError, match=r"h5: must hold one DataFrame, but holds '/a', '/b'. Keep one of them in a file"):
        load_series(name, tmp_path)


def test_damaged_traffic(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="pip install 'sswim[hdf5]' to run this test")
    path, frame = tmp_path / "metr-la.h5", speeds(["a", "b"])
    for lose, message in (
        ("axis1", r"must hold a DataFrame as `to_hdf\(..., format='fixed'\)` writes it \(axis0, .*\), but holds df\."),
        ("block0_values", "must hold a DataFrame"),
        (
            "a row of axis1",
            r"damaged, /df has 29 times and 2 columns in block 0, but values of shape \(30, 2\). Fetch it again",
        ),
        ("a row of block0_values", r"damaged, /df has 30 times .* values of shape \(29, 2\)"),
        ("a row of block0_items", "damaged, /df has 30 times and 1 columns in block 0"),
        ("a row of axis0", "damaged, /df has 30 times and 1 columns, of which 2 have values"),
    ):
        write_hdf(frame, path, "df", lose=lose)
        with pytest.raises(ValueError, match=f"metr-la.h5: {message}"):
            load_series("metr-la", tmp_path)
    write_hdf(frame, path, "df")
    with h5py.File(path, "a") as file:
        del file["df/axis0"]
        file["df/axis0"] = [np.bytes_(b"a"), np.bytes_(b"b")]
        file["df/axis0"].attrs["kind"] = np.bytes_(b"string")
    same(load_series("metr-la", tmp_path), frame)
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"something", b""):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="metr-la.h5: damaged, it cannot be read as an HDF5 file .* Fetch it again"):
            load_series("metr-la", tmp_path)
    with h5py.File(path, "w"):
        pass
    with pytest.raises(ValueError, match="metr-la.h5: must hold a DataFrame .*, but holds nothing"):
        load_series("metr-la", tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"metr-la.h5: reading it needs h5py, run `pip install 'sswim\[hdf5\]'`"):
        load_series("metr-la", tmp_path)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_texts_are_read_back(tmp_path, name, packed):
    values = np.random.default_rng(0).normal(size=(20, 8)).round(6)
    text = "".join(",".join(f"{v:.6f}" for v in row) + "\n" for row in values)
    path = tmp_path / f"{TEXTS[name]}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    for found in (load_series(name, tmp_path), load_series(path)):
        assert found.to_numpy().tolist() == values.tolist() and found.columns.tolist() == list(range(8))
        assert found.index.tolist() == list(range(20))
    if packed:  # the file as it is published goes first
        (tmp_path / TEXTS[name]).write_text("1,2\n")
        assert load_series(name, tmp_path).shape == (20, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3\n4,5\n", "all lines must hold equally many numbers, but line 2 holds 1 and line 1 holds 2. Mend it, or fetch"),
        ("\n1,2\n3,4\n5,6,7\n", "line 4 holds 3 and line 2 holds 2"),
        ("1,2\n3,x y\n", "must hold nothing but numbers with commas between them, but value 2 in line 2 is 'x y'. Mend it"),
        ("time,load\n1,2\n", "value 1 in line 1 is 'time'. Mend it, fetch the file again, or use .csv for files with a header"),
        ("1,2\n3,\n", "value 2 in line 2 is ''"),
        ("1 2\n3 4\n", "value 1 in line 1 is '1 2'"),
        ("\n  \n", "holds no rows. Fetch it again."),
    ],
)
def test_texts_that_are_not_like_that(tmp_path, text, message):
    path = tmp_path / "solar_AL.txt"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        load_series("solar", tmp_path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


def test_damaged_texts(tmp_path):
    path = tmp_path / "electricity.txt.gz"
    whole = gzip.compress(b"1,2\n" * 100)
    for broken in (whole[:-10], b"1,2\n"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="electricity.txt.gz: damaged, it cannot be decompressed .* Fetch it again"):
            load_series("electricity", tmp_path)
    (tmp_path / "a.txt").write_bytes(b"1,\xff\n")
    with pytest.raises(ValueError, match="value 2 in line 1"):
        read_text(tmp_path / "a.txt")


def test_highway_zeros_are_filled_within_a_day(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(20, 70, (360, 4)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = 0
    x[:180, 1] = 0  # nothing to go by
    path = tmp_path / "la_highway_april_5min.npz"
    np.savez(path, x=x, steps_per_day=180)
    expected = x.astype(np.float64)
    for first in (0, 180):
        for channel in range(4):
            known = [t for t in range(first, first + 180) if x[t, channel] != 0]
            for t in range(first, first + 180):
                if known and x[t, channel] == 0:
                    expected[t, channel] = np.interp(t, known, [float(x[k, channel]) for k in known])
    found = load_series("la-highway", tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not found.iloc[:180, 1].any() and SERIES["la-highway"].breaks == 180
    for change, message in (
        ({"steps_per_day": 90}, r"must hold whole days of 180 rows, but steps_per_day is 90 and x has the shape \(360, 4\)"),
        ({"x": x[1:]}, r"steps_per_day is 180 and x has the shape \(359, 4\)"),
    ):
        np.savez(path, **{"x": x, "steps_per_day": 180, **change})
        with pytest.raises(ValueError, match=f"la_highway_april_5min.npz: .*{message}"):
            load_series("la-highway", tmp_path)
    np.savez(path, x=x)
    with pytest.raises(ValueError, match="must hold the arrays x, steps_per_day, but steps_per_day is missing"):
        load_series("la-highway", tmp_path)


def test_filling_zeros_leaves_what_came_and_its_labels():
    frame = speeds(["a", "b"])
    before = frame.copy()
    filled = fill_zeros(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert filled.index.equals(frame.index) and (filled != 0).all(axis=None)
    pd.testing.assert_frame_equal(filled[frame != 0], frame[frame != 0])
    pd.testing.assert_frame_equal(fill_zeros(filled), filled)
    assert fill_zeros(frame, breaks=10).iloc[:10].equals(fill_zeros(frame.iloc[:10]))
    with pytest.raises(ValueError, match="breaks must be a whole number >= 1, got 0"):
        fill_zeros(frame, breaks=0)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz", ".txt", ".txt.gz", ".h5"])
def test_files_of_the_users_own(tmp_path, monkeypatch, ending):
    frame = speeds(["a", "b"]).reset_index(drop=True)
    path = tmp_path / f"Load{ending}"
    text = io.StringIO()
    frame.to_csv(text, header=False, index=False)
    if ending == ".h5":
        write_hdf(speeds(["a", "b"]), path, "anything")
    elif ending.startswith(".txt"):
        path.write_bytes(gzip.compress(text.getvalue().encode()) if ending == ".txt.gz" else text.getvalue().encode())
    else:
        write_series(frame, path)
    found = series_set(path)
    assert (found.window, found.split, found.season, found.breaks) == (168, (0.6, 0.2, 0.2), 24, None)
    np.testing.assert_allclose(load_series(str(path)), frame, rtol=1e-15)
    np.testing.assert_allclose(load_series(f"Load{ending}", tmp_path), frame, rtol=1e-15)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_allclose(load_series(f"Load{ending}", tmp_path / "elsewhere"), frame, rtol=1e-15)


def test_names_are_those_of_the_literature():
    assert list(SERIES) == [
        "metr-la", "pems-bay", "solar", "electricity", "exchange-rate", "aemo-solar", "aemo-units", "la-highway", "wind-farm",
        "metr-la-10", "metr-la-week", "electricity-6", "solar-12",
    ]  # fmt: skip
    for name, known in SERIES.items():
        assert isinstance(known, SeriesSet) and series_set(name) is known
        whole = next((one for one in TRAFFIC if name.startswith(one)), name)  # parts are split as the whole
        assert known.split == ((0.7, 0.2, 0.1) if whole in TRAFFIC else (0.6, 0.2, 0.2))
        assert known.window == {"metr-la": 12, "pems-bay": 12, "la-highway": 12, "wind-farm": 48}.get(whole, 168)
        assert all(known.source.startswith(file.removesuffix(".gz")) for file in known.files)
    assert {name: known.season for name, known in SERIES.items()} == {
        "metr-la": 288, "pems-bay": 288, "solar": 144, "electricity": 24, "exchange-rate": 1, "aemo-solar": 144,
        "aemo-units": 24, "la-highway": 12, "wind-farm": 24, "metr-la-10": 288, "metr-la-week": 288, "electricity-6": 24,
        "solar-12": 144,
    }  # fmt: skip


def test_the_embedded_series_needs_no_file(tmp_path, wind):
    found = load_series("wind-farm", tmp_path)
    assert found.shape == (17_520, 8)
    pd.testing.assert_frame_equal(found.iloc[: len(wind)], wind, check_freq=False)


def test_missing_files_and_unknown_names(tmp_path, monkeypatch):
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as error:
        load_series("solar")
    assert str(error.value) == (
        f"solar: no file solar_AL.txt.gz or solar_AL.txt in {tmp_path} or {tmp_path / 'solar'} (downloads are "
        "switched off by SSWIM_OFFLINE). Get solar_AL.txt.gz from the "
        "folder solar-energy of https://github.com/laiguokun/multivariate-time-series-data. Put it into "
        f"{tmp_path}, or set SSWIM_DATA to the folder that holds it."
    )
    for name in set(SERIES) - {"wind-farm"}:
        with pytest.raises(FileNotFoundError) as error:
            load_series(name, tmp_path / "none")
        for part in (SERIES[name].source, *SERIES[name].files, str(tmp_path / "none"), str(tmp_path / "none" / name)):
            assert part in str(error.value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        load_series("load.csv", tmp_path / "none")
    assert str(error.value) == f"load.csv: no such file, neither in {tmp_path} nor in {tmp_path / 'none'}. Mend the path."
    with pytest.raises(FileNotFoundError) as error:
        load_series(tmp_path / "load.csv")
    assert str(error.value) == f"{tmp_path / 'load.csv'}: no such file. Mend the path."
    with pytest.raises(ValueError) as error:
        load_series("metr_la")
    assert str(error.value) == (
        "series: unknown name 'metr_la'. Did you mean 'metr-la'? Valid names: 'metr-la', 'pems-bay', 'solar', 'electricity', "
        "'exchange-rate', 'aemo-solar', 'aemo-units', 'la-highway', 'wind-farm', 'metr-la-10', 'metr-la-week', "
        "'electricity-6', 'solar-12'; or pass a file that ends in .csv, .parquet, .npz, .txt, .txt.gz, .h5."
    )
    with pytest.raises(ValueError, match="series: unknown name 'some/folder'. Valid names: 'metr-la', "):
        series_set("some/folder")
    with pytest.raises(TypeError, match="int"):
        series_set(3)


@pytest.mark.parametrize(
    ("name", "shape"), [("aemo-solar", (56_880, 41)), ("aemo-units", (9_480, 288)), ("la-highway", (4_140, 215))]
)
def test_stand_ins(real_data, name, shape):
    series = load_series(name, real_data)
    assert series.shape == shape and np.isfinite(series).all(axis=None)
    assert SERIES[name].breaks is None or len(series) % SERIES[name].breaks == 0
    assert isinstance(series.index, pd.DatetimeIndex) == name.startswith("aemo")


# --- tables of all kinds ---------------------------------------------------------------------------------------------


def csv_file(folder, *lines):
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


HOURS = pd.date_range("2024-02-01", periods=400, freq="h")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_european_tables(tmp_path, mark):
    values = [1234.5, 2.25, -0.5, 1e6 + 0.125]
    cells = ["1.234,5", "2,25", "-0,5", "1.000.000,125"]
    rows = [mark.join([f"{t:%d.%m.%Y %H:%M}", cells[i % 4], cells[(i + 1) % 4]]) for i, t in enumerate(HOURS)]
    found = read_series(csv_file(tmp_path, mark.join(["Zeit", "Last", "Wind"]), *rows))
    pd.testing.assert_index_equal(found.index, HOURS, check_names=False, exact="equiv", check_freq=False)
    assert found["Last"].tolist() == [values[i % 4] for i in range(400)] and list(found) == ["Last", "Wind"]


def test_tables_without_a_header_keep_their_first_row(tmp_path):
    assert read_series(csv_file(tmp_path, "1,2", "3,4", "5,6")).to_numpy().tolist() == [[1, 2], [3, 4], [5, 6]]
    found = read_series(csv_file(tmp_path, "2024-01-01,1,2", "2024-01-02,3,4", "2024-01-03,5,6"))
    assert found.to_numpy().tolist() == [[1, 2], [3, 4], [5, 6]] and found.index[0] == pd.Timestamp("2024-01-01")
    numbered = read_series(csv_file(tmp_path, "0,1,2", "5,6,7", "8,9,10"))  # a header of numbers, as pandas writes it
    assert list(numbered) == ["0", "1", "2"] and len(numbered) == 2


@pytest.mark.parametrize("form", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d-%m-%Y %H:%M"])
def test_days_and_months_are_told_apart_by_regular_steps(tmp_path, form):
    rows = [f"{t.strftime(form)},{i}" for i, t in enumerate(HOURS[: 24 * 10])]  # the days 1 to 10 could be months
    found = read_series(csv_file(tmp_path, "time,load", *rows))
    assert found.index[0] == HOURS[0] and found.index[-1] == HOURS[239]
    few = csv_file(tmp_path, "time,load", *rows[:20])  # one day alone does not tell
    with pytest.raises(ValueError, match="may begin with the day or with the month. Say which: date_format="):
        read_series(few)
    assert read_series(few, date_format=form).index[0] == HOURS[0]
    with pytest.raises(ValueError, match="times in 'time' are not written as '%Y' says"):
        read_series(few, date_format="%Y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1,2\n3\n5,6\n", "line 3 has 1 cell, but the first line has 2 cells (parted by ',')."),
        (b"a;b;c\n1;2;3\n\n4;5\n6;7;8\n", "line 4 has 2 cells, but the first line has 3 cells (parted by ';')."),
        (b"a,b\n1,2,3\n4,5,6\n", "line 2 has 3 cells, but the first line has 2 cells (parted by ',')."),
        (b"a,b\n" + b"1,2\n" * 30_000 + b"3\n", "line 30002 has 1 cell, but the first line has 2 cells"),
        (b"a\n1\n\n3\n", "line 3 is empty, and lines follow. Write nan for a value that is missing."),
        (b'a,b\n1,"2\n3,4\n', "line 3: unexpected end of data."),
        (b"a,b\n1,2\nM\xfcnchen,4\n", "is not text in UTF-8: line 3 holds the byte 0xfc. Save it as UTF-8."),
        ("a,b\n1,2\n".encode("utf-16"), "is not text in UTF-8: line 1 holds the byte 0xff"),
        (b"a,b\n1,2\n3,\x00\n", "is not text: line 3 holds a NUL byte."),
        (b"a,b\n1,2\n3,1e400\n", "'b' must be finite, but is infinite or too large in data row 2."),
        (b"time,b\n2024-01-01,2\n2024-01-02,3\n7 o'clock,4\n", "times in 'time' must be written alike, but data row 3 has"),
        (b"time,b\n2024-01-01,2\n,3\n2024-01-03,4\n", "has no time in 'time' in data row 2."),
        (b"", "holds no rows or no columns."),
        (b"a,b\n", "holds no rows or no columns."),
    ],
)
def test_damaged_tables_are_told_with_the_place(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        read_series(path)


def test_tables_that_look_odd_are_read(tmp_path):
    path = tmp_path / "table.csv"
    for text in (b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4\r\n\r\n", b"a,b\r1,2\r3,4", b'"a","b"\n"1","2"\n3,4\n\n', b"a|b\n1|2\n3|4"):
        path.write_bytes(text)
        assert read_series(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    path.write_bytes(b"1,5;2,5\n3,5;4,5\n5,5;6,5\n")  # decimal commas, no header
    assert read_series(path).to_numpy().tolist() == [[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]]
    path.write_bytes(b"a,b\n123456789012345678901234567890,2\n3,4\n")
    assert read_series(path)["a"].tolist() == [123456789012345678901234567890.0, 3.0]


def test_columns_are_chosen_by_name(tmp_path):
    path = csv_file(tmp_path, "load,when,town,wind", "1,2024-01-01,Ulm,3", "2,2024-01-02,Ulm,4", "3,2024-01-03,Ulm,5")
    found = read_series(path, time="when", drop=["town"])
    assert list(found) == ["load", "wind"] and isinstance(found.index, pd.DatetimeIndex)
    assert list(read_series(path, time="when", columns=["wind", "load"])) == ["wind", "load"]
    for options, message in (
        ({"columns": ["lod"]}, "table.csv: has no column 'lod'. Did you mean 'load'. Its columns: 'load', 'when'"),
        ({"time": "wen"}, "table.csv: has no column 'wen' of times. Did you mean 'when'"),
        ({"time": "when"}, "but 'town' holds text, first 'Ulm' in data row 1. Leave the column out"),
    ):
        with pytest.raises(ValueError, match=message.replace("'. Its", "'[?.] Its")):
            read_series(path, **options)
    with pytest.raises(ValueError, match="has 2 columns called 'a'. Rename all but one."):
        read_series(csv_file(tmp_path, "a,b,a", "1,2,3", "4,5,6"))


@pytest.mark.parametrize("kind", [str, object, "timestamp[ns][pyarrow]"])
def test_times_of_any_type_are_times(kind):
    index = HOURS.astype(str) if kind is str else pd.Index(list(map(str, HOURS)), dtype=object) if kind is object else HOURS
    index = index if kind in (str, object) else pd.Index(index, dtype=kind)
    found = as_series(pd.DataFrame({"a": np.arange(400.0)}, index=index).drop(index=index[50:60]))
    assert found.gaps == 1 and [len(s) for s in found.segments] == [50, 340]
    assert continue_index(found.indexes[-1], 1)[0] == HOURS[-1] + pd.Timedelta("1h")


def test_labels_that_say_nothing_are_refused():
    x = np.zeros((4, 2))
    for index, message in (
        (pd.MultiIndex.from_product([["a", "b"], [1, 2]]), "as stacked series do. Pass a list of series, one for each."),
        (pd.Index(list("abcd")), "labels of rows must be times or numbers, but are of type .*, such as 'a'"),
    ):
        with pytest.raises(TypeError, match=message):
            as_series(pd.DataFrame(x, index=index))
    with pytest.raises(ValueError, match="several columns are called 'a'. Rename them."):
        as_series(pd.DataFrame(x, columns=["a", "a"]))
    mixed = HOURS[:100].append(HOURS[99] + pd.to_timedelta(np.cumsum([30, 45] * 100), unit="min"))
    with pytest.raises(ValueError, match="times must have a usual step, but the commonest, .*, is that of 33% of all rows"):
        as_series(pd.DataFrame({"a": np.zeros(300)}, index=mixed))


def test_windows_that_gaps_cost_are_told():
    frame = pd.DataFrame({"a": np.sin(np.arange(400.0)), "b": np.cos(np.arange(400.0))}, index=HOURS)
    with pytest.warns(UserWarning, match="4 gaps in the time index split it into 5 segments, and 1.% of all windows"):
        Forecaster(12, 6, hidden=(5,), random_state=0, verbose=0).fit(frame.drop(index=HOURS[[60, 130, 200, 280]]))


def test_a_last_window_with_a_gap_is_told_with_its_time_and_its_number(wind):
    short = wind.drop(wind.index[-10])
    with pytest.raises(
        ValueError, match=rf"^series: .* only 9 follow the last gap, which ends at {re.escape(str(wind.index[-9]))}\.$"
    ):
        as_series(short).check_window(24, "series")
    model = Forecaster(24, 6, hidden=(4,), random_state=0, verbose=0).fit(wind)
    with pytest.raises(ValueError, match=r"^series\[1\]: a forecast needs the last 24 rows .* but it has 5\.$"):
        model.predict([wind, wind[:5]])


def test_a_column_of_nothing_is_told_by_its_name(wind):
    with pytest.raises(ValueError, match="channel 'power_R80711' has no values but NaN"):
        as_series(wind.assign(power_R80711=np.nan), missing="interpolate")


def test_times_around_a_change_of_the_clock_are_times(tmp_path):
    times = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")  # the 31st has 23 hours
    frame = pd.DataFrame({"time": [t.isoformat() for t in times], "a": np.arange(60.0)})
    frame.to_csv(tmp_path / "load.csv", index=False)
    for index in (read_series(tmp_path / "load.csv").index, as_series(frame.set_index("time")).indexes[0]):
        assert str(index.tz) == "UTC" and (index == times).all()
    with pytest.raises(TypeError, match="labels of rows must be times or numbers"):
        as_series(frame.set_index("time").rename(index={frame["time"][3]: "noon"}))
