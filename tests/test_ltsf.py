"""The public benchmark of long-term forecasting: its files, its protocol written out, the experiment, published numbers."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from sswim.cli import app
from sswim.datasets.ltsf import LTSF, LtsfSet, find_ltsf, load_ltsf, ltsf_set
from sswim.evaluate.baselines import Persistence
from sswim.evaluate.ltsf import find_borders, split_ltsf
from sswim.experiments import EXPERIMENTS, ltsf, published_ltsf

SETS = [name for name, one in LTSF.items() if one.channels]


def published_file(folder, name, rows=8, **changes):
    """Write a small file in the format of a published one."""
    channels = LTSF[name].channels
    values = np.random.default_rng(0).normal(size=(rows, channels)).round(3)
    columns = [*map(str, range(channels - 1)), "OT"]
    frame = pd.DataFrame(values, columns=columns).astype(object)
    frame.insert(0, "date", pd.date_range("2016-07-01", periods=rows, freq="h").strftime("%Y-%m-%d %H:%M:%S"))
    for column, value in changes.items():
        frame.loc[3, column] = value
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{name}.csv", index=False)
    return folder / f"{name}.csv", values


@pytest.mark.parametrize("name", SETS)
def test_published_files_are_read_as_they_are(name, tmp_path, monkeypatch):
    path, values = published_file(tmp_path, name)
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    with pytest.warns(UserWarning, match=f"{name}.csv: holds 8 rows, but the published file holds .* not comparable"):
        frame = load_ltsf(name)
    np.testing.assert_array_equal(frame.to_numpy(), values)
    assert frame.columns[-1] == "OT" and frame.index[1] - frame.index[0] == pd.Timedelta("1h")
    assert find_ltsf(name) == path
    path.unlink()
    assert find_ltsf(name) is None
    with pytest.raises(FileNotFoundError, match=f"{name}: no file {name}.csv in .* Get {name}.csv from .*https://github.com/"):
        load_ltsf(name)
    for folder in (name, LTSF[name].folder):  # as in the published archive
        path, _ = published_file(tmp_path / folder, name)
        assert find_ltsf(name) == path
        path.unlink()


def test_the_whole_file_comes_without_a_warning(tmp_path):
    published_file(tmp_path, "national_illness", rows=966)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_ltsf("national_illness", tmp_path).shape == (966, 7)


def test_missing_readings_and_odd_names_are_kept(tmp_path):
    path, _ = published_file(tmp_path, "weather", **{"OT": -9999.0})
    path.write_bytes(path.read_bytes().replace(b",0,", b",SWDR (W/m\xb2),", 1))  # Latin-1, as some copies have it
    with pytest.warns(UserWarning, match="holds 8 rows"):
        frame = load_ltsf("weather", tmp_path)
    assert frame["OT"].iloc[3] == -9999 and frame.columns[0].startswith("SWDR (W/m")


def test_damaged_files_are_refused(tmp_path):
    for change, message in [
        ({"2": "n/a?"}, r"all channels must be numbers, but '2' is 'n/a\?' in data row 4"),
        ({"OT": None}, "all channels must be numbers, but 'OT' is missing in data row 4"),
        ({"date": "yesterday"}, "the column 'date' must hold times, but is 'yesterday' in data row 4"),
    ]:
        published_file(tmp_path, "ETTh1", **change)
        with pytest.raises(ValueError, match=message):
            load_ltsf("ETTh1", tmp_path)
    path, _ = published_file(tmp_path, "ETTh1")
    lines = path.read_text().splitlines()
    for text, message in [
        ("\n".join(line.rsplit(",", 1)[0] for line in lines), "must have the column 'date' and 7 channels, but has 6 channels"),
        ("\n".join(line.split(",", 1)[1] for line in lines), "the first column must be 'date', but is '0'"),
        (lines[0], "holds no rows"),
        ("", "not a readable csv file"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            load_ltsf("ETTh1", tmp_path)


def test_names():
    with pytest.raises(ValueError, match="unknown name 'ETTh3'. Did you mean 'ETTh[12]'.* Valid names: 'ETTh1', 'ETTh2'"):
        ltsf_set("ETTh3")
    with pytest.raises(ValueError, match="looks like a file of the benchmark. Write 'ETTm1', and set SSWIM_DATA"):
        ltsf_set("somewhere/ETTm1.csv")
    assert ltsf_set("load.csv") == LtsfSet() and load_ltsf("wind-farm").shape == (17_520, 8)


def literal_borders(name, n, window):
    """First and last row of each part, as the benchmark's loaders write them."""
    if name.startswith("ETT"):
        month = 30 * 24 * (4 if name.startswith("ETTm") else 1)
        return [0, 12 * month - window, 16 * month - window], [12 * month, 16 * month, 20 * month]
    train, test = int(n * 0.7), int(n * 0.2)
    validation = n - train - test
    return [0, train - window, n - test - window], [train, train + validation, n]


@pytest.mark.parametrize("name", SETS)
def test_borders_are_those_of_the_benchmark(name):
    one = LTSF[name]
    for window in one.windows:
        first, last = literal_borders(name, one.rows, window)
        found = find_borders(one.rows, one.month)
        assert (found.train, found.test, found.end) == (last[0], last[1], last[2])
        assert found.train - window == first[1] and found.test - window == first[2]
        for horizon in one.horizons:  # every cell of the benchmark has windows
            assert found.train - window - horizon + 1 > 0 and found.end - found.test - horizon + 1 > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 400), st.integers(1, 12), st.integers(1, 6), st.sampled_from(["both", "training"]))
def test_the_split_is_the_literal_one(rows, window, horizon, fitted):
    rng = np.random.default_rng(rows)
    series = rng.normal(size=(rows, 3)) * [1, 9, 0] + [0, 5, 7]
    first, last = literal_borders("weather", rows, window)
    scaled = StandardScaler().fit(series[: last[0]]).transform(series)
    cut = split_ltsf(series, window, horizon, fitted=fitted)
    np.testing.assert_allclose(cut.known, scaled[: last[1] if fitted == "both" else last[0]], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(cut.later, scaled[first[2] : last[2]], rtol=1e-12, atol=1e-12)
    assert cut.windows == len(cut.later) - window - horizon + 1
    total = len(cut.known) - window - horizon + 1
    held_out = int(total * cut.validation)  # as estimators count
    if fitted == "both":  # training windows do not reach beyond the training rows, and all of those are there
        assert total - held_out == last[0] - window - horizon + 1
    else:
        assert 1 <= max(1, held_out) < total


def literal_errors(series, month, window, horizon, forecast):
    """MSE and MAE, window by window and number by number."""
    cut = find_borders(len(series), month)
    mean, deviation = series[: cut.train].mean(axis=0), series[: cut.train].std(axis=0)
    squared, absolute = [], []
    for begin in range(cut.test, cut.end - horizon + 1):
        past = [[(series[t, c] - mean[c]) / deviation[c] for c in range(2)] for t in range(begin - window, begin)]
        for step in range(horizon):
            for c in range(2):
                error = (series[begin + step, c] - mean[c]) / deviation[c] - forecast(past, step, c)
                squared.append(error * error)
                absolute.append(abs(error))
    return np.mean(squared), np.mean(absolute)


@pytest.mark.parametrize("month", [None, 12])
def test_errors_are_the_definition(month):
    series = np.random.default_rng(0).normal(size=(260, 2)).cumsum(axis=0) * [1, 20] + [0, 100]
    cut = split_ltsf(series, 8, 5, month)
    errors = Persistence(8, 5).evaluate(cut.later)
    mse, mae = literal_errors(series, month, 8, 5, lambda past, step, c: past[-1][c])
    assert (errors.rmse**2, errors.mae) == pytest.approx((mse, mae), rel=1e-12) and errors.windows == cut.windows


def test_series_that_cannot_be_split():
    for series, options, message in [
        (np.zeros(5), {}, r"series must have the shape \(rows, channels\), got \(5,\)"),
        (np.full((50, 1), np.nan), {}, "series must be finite, but is nan in row 0, channel 0"),
        (
            np.zeros((50, 1)),
            {"window": 40},
            r"40 \+ 2 rows .* 50 rows give 35 for training, 5 for validation and 10",
        ),
        (np.zeros((50, 1)), {"horizon": 11}, r"windows of 3 \+ 11 rows"),
        (np.zeros((50, 1)), {"month": 3}, "must hold 20 months of 3 rows .* but holds 50 rows"),
        (np.zeros((50, 1)), {"fitted": "all"}, "fitted"),
    ]:
        with pytest.raises(ValueError, match=message):
            split_ltsf(series, **{"window": 3, "horizon": 2, **options})


@pytest.mark.parametrize("name", ["ETTh1", "exchange_rate"])
def test_published_persistence_is_ours_without_the_last_incomplete_batch(name, real_data):
    """The protocol against published numbers: they left out the windows that do not fill a batch of 32."""
    if find_ltsf(name, real_data) is None:
        pytest.skip(f"{name}.csv is not in the data folder")
    series, theirs = load_ltsf(name, real_data), published_ltsf()
    theirs = theirs[theirs["model"].str.startswith("Repeat") & (theirs["data"] == name)]
    assert len(theirs) == 4
    for row in theirs.itertuples():
        cut = split_ltsf(series, 96, row.horizon, LTSF[name].month)
        windows = cut.windows // 32 * 32
        assert windows != cut.windows
        errors = Persistence(96, row.horizon).evaluate(cut.later[: 96 + row.horizon - 1 + windows])
        assert errors.windows == windows
        assert (round(errors.rmse**2, 3), round(errors.mae, 3)) == (row.mse, row.mae)


@pytest.fixture
def waves(tmp_path):
    """A file of a user's own: two noisy waves, 700 rows."""
    t, noise = np.arange(700), np.random.default_rng(0).normal(size=(700, 2))
    frame = pd.DataFrame({"a": 5 + np.sin(t / 4), "b": 90 + 30 * np.cos(t / 9)}) + 0.1 * noise
    frame.to_csv(tmp_path / "waves.csv", index=False)
    return tmp_path / "waves.csv"


def test_quick_experiment(waves, tmp_path):
    ltsf._load.cache_clear()
    options = ["--set", "windows=20", "--set", "horizons=4,8", "--set", "neurons=10", "--set", "paper_windows=60"]
    command = ["experiment", "ltsf", "--quick", "--data", str(waves), "--out", str(tmp_path / "out"), *options]
    answer = CliRunner().invoke(app, [*command, "--json"])
    assert answer.exit_code == 0, answer.output
    runs = pd.DataFrame(json.loads(answer.stdout))
    assert runs.groupby("horizon")["model"].apply(set).tolist() == [set(ltsf.MODELS)] * 2
    assert (runs["test_windows"] == 140 - runs["horizon"] + 1).all() and (runs["peak_memory"] > 0).all()
    mse = runs.set_index(["model", "horizon"])["mse"]
    assert (mse["shared ridge (NLinear)"] < mse["persistence"]).all() and ((mse > 0) & (mse < 20)).all()
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith("| data | model | window | fitted | seeds | MSE 4 | MAE 4 | MSE 8 | MAE 8 | MSE mean | MAE mean |")
    assert text.count("\n") == 2 + len(ltsf.MODELS) and (tmp_path / "out" / "picture.png").stat().st_size > 10_000


def test_training_rows_only_is_another_row_of_the_table(waves, tmp_path):
    ltsf._load.cache_clear()
    options = [
        "--set",
        "windows=20,30",
        "--set",
        "horizons=4",
        "--set",
        "models=absolute shared ridge",
        "--set",
        "fitted=both,training",
    ]
    command = ["experiment", "ltsf", "--data", str(waves), "--out", str(tmp_path / "out"), *options]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 0, answer.output
    rows = [line.split("|") for line in (tmp_path / "out" / "table.md").read_text().splitlines()[2:]]
    assert [[cell.strip() for cell in row[3:6]] for row in rows] == [
        [window, fitted, "1"] for window in ("20", "30") for fitted in ("both", "training")
    ]


def test_without_any_file_it_runs_on_the_wind_farm(tmp_path, monkeypatch):
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    with pytest.warns(UserWarning, match="ETTh1, .* are not in .*: this runs on wind-farm"):
        cells = ltsf.cells(data=(), seeds=3)
    random = len(ltsf.MODELS) - len(ltsf.BASELINES)
    assert len(cells) == 2 * 4 * (len(ltsf.MODELS) + 2 * random) and {cell["data"] for cell in cells} == {"wind-farm"}
    published_file(tmp_path, "national_illness")
    with pytest.warns(UserWarning, match="this runs on national_illness"):
        cells = ltsf.cells(data=(), seeds=1)
    assert {cell["horizon"] for cell in cells} == {24, 36, 48, 60} and {cell["window"] for cell in cells} == {36, 104}
    assert EXPERIMENTS["ltsf"].quick["data"] == ("wind-farm",)


def test_the_table_shows_published_results_of_the_same_set_and_horizon():
    settings = {"window": 336, "fitted": "both", "seed": 0}
    runs = pd.DataFrame(
        [
            {"data": "ETTh1", "horizon": h, "model": m, "mse": e, "mae": e, **settings}
            for m in ("persistence", "sswim")
            for h, e in ((96, 0.3), (192, 0.5))
        ]
        + [{"data": "wind-farm", "horizon": 96, "model": "sswim", "mse": 0.9, "mae": 0.8, **settings}]
    )
    runs.attrs["settings"] = ["data", "horizon", "model", *settings]
    shown = ltsf.table(EXPERIMENTS["ltsf"].sort(runs)).set_index(["data", "model", "window"])
    assert list(dict.fromkeys(shown.index.get_level_values("data"))) == ["ETTh1", "wind-farm"]
    assert shown.loc[("ETTh1", "sswim", "336"), "MSE mean"] == pytest.approx(0.4)
    assert shown["seeds"].iloc[:2].tolist() == ["1", "1"]
    linear = shown.loc[("ETTh1", "DLinear", "336")]
    assert linear["seeds"] == "published" and (linear["MSE 96"], linear["MAE 192"]) == (0.375, 0.416)
    assert shown.loc[("ETTh1", "SpikF (spiking)", "96"), "MSE 96"] == 0.379
    farm = shown.loc[[("wind-farm", "sswim", "336")]]
    assert len(shown.loc["wind-farm"]) == 1 and farm["MSE 96"].item() == 0.9 and farm["MSE 192"].isna().all()
    assert len(ltsf.draw(runs).axes) == 2


def test_published_results_are_well_formed():
    numbers = published_ltsf()
    assert list(numbers) == ["model", "spiking", "data", "window", "horizon", "mse", "mae", "source", "seen", "note"]
    assert numbers[["source", "seen", "note"]].map(lambda text: isinstance(text, str) and len(text) > 10).all(axis=None)
    assert set(numbers["data"]) == set(SETS) and set(numbers["spiking"]) == {"yes", "no"}
    assert not numbers.duplicated(["model", "data", "window", "horizon"]).any()
    for name, part in numbers.groupby("data"):
        assert set(part["horizon"]) == set(LTSF[name].horizons)
    assert numbers["mse"].between(0.05, 8).all() and numbers["mae"].between(0.15, 2.2).all()
    # Where errors spread over channels and windows, the mean absolute one is below the root of the mean squared one.
    assert (numbers["mae"] <= np.sqrt(numbers["mse"])).all()
    known = numbers["window"].notna()
    assert numbers.loc[~known, "model"].isin({"Repeat (persistence)", "PatchTST/42", "PatchTST/64"}).all()
    assert set(numbers.loc[known, "window"]) == {96, 104, 336, 512}
    # The averages that iTransformer's table gives.
    means = numbers[numbers["model"] == "iTransformer"].groupby("data")[["mse", "mae"]].mean()
    for name, mse, mae in [("ETTh1", 0.454, 0.447), ("weather", 0.258, 0.278), ("traffic", 0.428, 0.282)]:
        assert abs(means["mse"][name] - mse) < 0.0011 and abs(means["mae"][name] - mae) < 0.0011
