import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from sswim import Classifier, Direct, Forecaster, Scaling, Steps, __version__
from sswim.arguments import aligned
from sswim.cli import app
from sswim.datasets import load_departures, load_wind_farm, read_series, write_series
from sswim.demo import typical_row
from sswim.experiments import EXPERIMENTS
from sswim.sampling import STEPS

FIT = ["--window", "12", "--horizon", "3", "--hidden", "20", "--seed", "0"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def frame():
    x = np.random.default_rng(0).standard_normal((150, 2)).cumsum(axis=0)
    return pd.DataFrame(x, index=pd.date_range("2024-03-01", periods=150, freq="h"), columns=["north", "south"])


@pytest.mark.parametrize("format_", ["csv", "parquet", "npz"])
def test_fit_forecast_evaluate(format_, frame, tmp_path):
    data, model, out = tmp_path / f"d.{format_}", tmp_path / "m.sswim", tmp_path / f"f.{format_}"
    write_series(frame, data)
    pd.testing.assert_frame_equal(read_series(data), frame, check_freq=False, check_names=False, check_index_type=False)
    assert "Saved" in run("fit", data, *FIT, "--out", model).output
    run("forecast", model, data, "--out", out)
    forecast = read_series(out)
    expected = Forecaster.load(model).predict(frame)
    np.testing.assert_allclose(forecast.to_numpy(), expected.to_numpy(), rtol=1e-6)
    assert list(forecast.index) == list(expected.index)
    assert list(forecast.columns) == ["north", "south"]
    assert "RSE" in run("evaluate", model, data).output


def test_fit_takes_the_options_of_the_forecaster(frame, tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    write_series(frame, data)
    run("fit", data, *FIT, "--out", model, "--skip", "--scaling", "window", "--covariate", "south")
    loaded = Forecaster.load(model)
    assert (loaded.readout, loaded.scaling, loaded.hidden) == (Direct(skip=True), "window", (20,))
    assert loaded.network_.readout.skip
    assert list(loaded.predict(frame).columns) == ["north"]
    assert "RSE" in run("evaluate", model, data).output
    run("fit", data, *FIT, "--out", model, "--paper")
    assert (Forecaster.load(model).readout, Forecaster.load(model).steps) == (Forecaster.paper().readout, "paper")
    assert "not a column" in run("fit", data, *FIT, "--out", model, "--covariate", "west", code=2).output
    run("fit", data, *FIT, "--out", model, "--paper", "--training", "sample+gradient", "--epochs", "2")
    assert len(Forecaster.load(model).training_.history) == 3
    assert Forecaster.load(model).training == Forecaster.paper(training="sample+gradient").training.replace(epochs=2)
    assert "name one with --training" in run("fit", data, *FIT, "--out", model, "--epochs", "2", code=2).output


def test_any_option_can_be_set_by_name(frame, tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    write_series(frame, data)

    def fitted(*settings, paper=False):
        words = [word for setting in settings for word in ("--set", setting)]
        run("fit", data, *FIT, "--out", model, *words, *(["--paper"] if paper else []))
        return Forecaster.load(model)

    first = fitted("kernel=hat", "steps__weights=random", "validation=0.3", "readout__skip=true", "readout__traces=2,5.5")
    assert (first.kernel, first.steps) == ("hat", STEPS["forecast"].replace(weights="random"))
    assert (first.validation, first.readout) == (0.3, Direct(skip=True, traces=(2, 5.5)))
    paper = fitted("readout__stride=4", "readout__assembly=exact", "steps__initial_batch=50", "hidden=10,5", paper=True)
    assert paper.readout == Forecaster.paper().readout.replace(stride=4) and paper.steps == Steps(initial_batch=50)
    assert paper.network_.hidden == (10, 5) and paper.report_.solution.sums == "exact"
    assert paper.report_.samples + paper.report_.validation_samples == 34  # every fourth of 136 windows
    assert fitted("scaling__floor=False", "training=none").scaling == Scaling("adaptive", floor=False)
    for setting, message in (
        ("kernle=hat", "Forecaster has no parameter 'kernle'. Did you mean 'kernel'?"),
        ("steps__weigths=dot", "Steps has no option 'weigths'. Did you mean 'weights'?"),
        ("readout__stride=4", "Direct has no option 'stride'."),
        ("kernel", "--set takes name=value, or name=value,value, got 'kernel'."),
        ("kernel=", "--set takes name=value"),
        ("=3", "--set takes name=value"),
    ):
        assert message in run("fit", data, *FIT, "--out", model, "--set", setting, code=2).output


def test_json_answers(frame, tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    write_series(frame, data)
    fitted = json.loads(run("fit", data, *FIT, "--out", model, "--json").stdout)
    assert fitted["layers"][0]["neurons"] == 20 and fitted["model"] == str(model)
    forecast = json.loads(run("forecast", model, data, "--json").stdout)
    assert forecast["index"][0] == "2024-03-07 06:00:00" and set(forecast["forecast"][0]) == {"north", "south"}
    scores = json.loads(run("evaluate", model, data, "--json").stdout)
    assert scores["rse"] == pytest.approx(Forecaster.load(model).evaluate(frame).rse)
    assert "north" in run("forecast", model, data).output


def test_demo_draws_and_scores(tmp_path):
    picture = tmp_path / "demo.png"
    result = json.loads(run("demo", "--out", picture, "--hidden", "4", "--hours", "1500", "--json").stdout)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for name in ("flights", "wind"):
        scores = result[name]["scores"]
        assert set(scores) == {"persistence", "the day before", "ridge per channel", "the paper's model", "sswim"}
        assert scores["sswim"]["rse"] < 1.05 * scores["ridge per channel"]["rse"]
    table = run("demo", "--out", picture, "--hidden", "4", "--hours", "1500").output
    model, rows, chip = (str(picture.with_suffix(ending)) for ending in (".sswim", ".csv", ".chip"))
    for line in (
        f"sswim report {model} --data {rows} --out report.html",
        f"sswim fit {rows} ",
        "sswim export chip.sswim --to nir",
    ):
        assert line in table
    assert run("evaluate", model, rows, "--json").exit_code == 0
    run("fit", rows, "--window", "48", "--horizon", "24", "--hidden", "20", "--profile", "nir", "--out", chip)
    assert "Saved" in run("export", chip, "--to", "nir", "--out", picture.with_suffix(".nir")).output
    refused = run(
        "fit", rows, "--hidden", "20,2000", "--window", "48", "--horizon", "24", "--profile", "xylo", "--out", chip, code=2
    )
    assert "profile: 'xylo' has no room" in refused.output
    assert "ridge per channel" in table and "test windows" in table and "synaptic operations" in table


def test_the_demo_draws_a_typical_day():
    flights = load_departures()
    model = Forecaster(48, 24, random_state=0, verbose=0).fit(flights[:1500])
    test = flights[1500:2200]
    at = typical_row(model, test, "JFK")
    assert test.index[at].hour == 0

    def judged(row):
        truth = test["JFK"].to_numpy()[row : row + 24]
        low, high = (bound["JFK"].to_numpy() for bound in model.predict_interval(test[:row]))
        error = np.square(model.predict(test[:row])["JFK"].to_numpy() - truth).mean()
        return error, ((truth >= low) & (truth <= high)).mean()

    days = np.array([judged(row) for row in range(48, 700 - 23) if test.index[row].hour == 0])
    error, inside = judged(at)
    assert np.quantile(days[:, 0], 1 / 3) <= error <= np.quantile(days[:, 0], 2 / 3)
    middle = days[np.abs(days[:, 0].argsort().argsort() - (len(days) - 1) / 2) < len(days) / 6]
    assert abs(inside - days[:, 1].mean()) == pytest.approx(np.abs(middle[:, 1] - days[:, 1].mean()).min())


def test_days_are_not_crossed(frame, tmp_path):
    data, model = tmp_path / "d.npz", tmp_path / "m.sswim"
    np.savez(data, x=frame.to_numpy())
    fitted = json.loads(run("fit", data, *FIT, "--paper", "--breaks", "30", "--out", model, "--json").stdout)
    assert fitted["samples"] + fitted["validation_samples"] == 5 * 16
    assert json.loads(run("evaluate", model, data, "--breaks", "30", "--json").stdout)["windows"] == 5 * 16


def test_version():
    assert run("--version").output.strip() == __version__


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time,a,b\n2024-01-01,1,2\n2024-01-02,x,3\n", "'a' holds text, first 'x' in data row 2"),
        ("a,b\n1,2\nfoo,3\n", "'a' holds text, first 'foo' in data row 2"),
        ("", "holds no rows or no columns"),
        ("a,b\n", "holds no rows"),
        ("a,b\n1,2\n3,4\n", "too short"),
        ("a,b\n" + "1,\n" * 40, "holds NaN .* Fit with missing='interpolate'"),
    ],
)
def test_bad_csv_files(content, message, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text(content)
    result = run("fit", data, *FIT, "--out", tmp_path / "m.sswim", code=2)
    assert pd.Series([result.stderr.replace("\n", " ")]).str.contains(message).all(), result.stderr
    assert not (tmp_path / "m.sswim").exists()


def test_other_bad_input(frame, tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    write_series(frame, data)
    assert "no such file" in run("fit", tmp_path / "none.csv", "--out", model, code=2).stderr
    assert "unknown format '.xls'" in run("fit", tmp_path / "d.xls", "--out", model, code=2).stderr
    assert "does not exist" in run("fit", data, "--out", tmp_path / "no" / "m.sswim", code=2).stderr
    assert "whole numbers" in run("fit", data, *FIT[:-3], "a,b", "--out", model, code=2).stderr
    assert "horizon must be" in run("fit", data, "--horizon", "0", "--out", model, code=2).stderr
    assert "not a model file" in run("forecast", data, data, code=2).stderr
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not really")
    assert "bad.npz" in run("fit", tmp_path / "bad.npz", "--out", model, code=2).stderr
    np.savez(tmp_path / "y.npz", y=np.zeros(3))
    assert "must hold the array 'x'" in run("fit", tmp_path / "y.npz", "--out", model, code=2).stderr
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    assert "not a readable parquet" in run("fit", tmp_path / "bad.parquet", "--out", model, code=2).stderr.replace("\n", " ")


def test_plain_csv_without_times(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n3,4\n")
    frame = read_series(tmp_path / "d.csv")
    assert frame.to_numpy().tolist() == [[1, 2], [3, 4]] and list(frame.index) == [0, 1]
    (tmp_path / "one.csv").write_text("a\n1\n3\n")
    assert read_series(tmp_path / "one.csv").shape == (2, 1)


def test_classify(tmp_path):
    out, model = tmp_path / "c.png", tmp_path / "m.sswim"
    answer = CliRunner().invoke(
        app, ["classify", "digits", "--hidden", "60", "--samples", "400", "--out", str(out), "--model", str(model), "--json"]
    )
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["accuracy"] > 0.75 and found["samples"] == 400 and out.stat().st_size > 10_000
    assert Classifier.load(model).network_.hidden == (60,)
    shown = CliRunner().invoke(app, ["classify", "digits", "--hidden", "30", "--samples", "200"])
    assert shown.exit_code == 0 and "test samples" in shown.stdout
    deep = ["--hidden", "20,10", "--samples", "200", "--no-fields", "--json"]
    deep += ["--set", "readout__traces=inf,5", "--set", "steps__depth=plain"]
    found = json.loads(CliRunner().invoke(app, ["classify", "digits", *deep]).stdout)
    assert found["accuracy"] > 0.3 and found["samples"] == 200
    few = ["--hidden", "20", "--samples", "200"]
    paper = ["--paper", "--readout", "spikes", "--set", "readout__normalize=true", *few, "--json"]
    assert json.loads(CliRunner().invoke(app, ["classify", "digits", *paper]).stdout)["accuracy"] > 0.3
    wrong = CliRunner().invoke(app, ["classify", "digits", "--set", "readout__trace=inf"])
    assert wrong.exit_code == 2 and "Counts has no option 'trace'. Did you mean 'traces'?" in wrong.output
    wrong = CliRunner().invoke(app, ["classify", "digits", *few, "--set", "readout__traces=long"])
    assert wrong.exit_code == 2 and "traces must be" in wrong.output
    one = ["classify", "digits", *few, "--set", "readout__traces=8", "--json"]
    assert json.loads(CliRunner().invoke(app, one).stdout)["samples"] == 200
    assert CliRunner().invoke(app, ["classify", "digits", "--hidden", "many"]).exit_code == 2
    assert CliRunner().invoke(app, ["classify", "cats"]).exit_code == 2


def test_a_warning_is_shown_once_and_unchanged(frame, tmp_path):
    frame.assign(flat=1.0).rename(columns={"flat": "[red]flat"}).to_csv(tmp_path / "flat.csv")
    settings = ("trainings=sample", "horizons=3,6", "window=12", "neurons=10")
    options = ["--seeds", "1", *(word for setting in settings for word in ("--set", setting))]
    result = run("experiment", "forecasting", "--data", tmp_path / "flat.csv", "--out", tmp_path / "out", *options)
    assert result.output.count("1 of 3 channels are constant in the training windows") == 1
    fitted = run("fit", tmp_path / "flat.csv", *FIT, "--out", tmp_path / "m.sswim")
    assert "1 of 3 channels are constant in the training windows ('[red]flat')" in fitted.output


def test_nothing_that_is_read_is_overwritten(frame, tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    write_series(frame, data)
    before = data.read_bytes()
    assert "is a file that is read here" in run("fit", data, *FIT, "--out", data, code=2).output
    run("fit", data, *FIT, "--out", model)
    kept = model.read_bytes()
    for out in (data, model):
        assert "is a file that is read here" in run("forecast", model, data, "--out", out, code=2).output
    assert data.read_bytes() == before and model.read_bytes() == kept


def test_help_needs_nothing_heavy():
    code = "import sys, sswim.cli; print([m for m in ('torch', 'pandas', 'sklearn', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_european_table_from_end_to_end(tmp_path):
    hours = pd.date_range("2024-02-01", periods=300, freq="h")
    load = 100 + 20 * np.sin(np.arange(300) / 24 * 2 * np.pi)
    rows = [
        f"{t:%d.%m.%Y %H:%M};{v:.2f};{w:.1f};Ulm".replace(".", ",", 0) for t, v, w in zip(hours, load, load / 3, strict=True)
    ]
    rows = [";".join([cells[0], *(c.replace(".", ",") for c in cells[1:])]) for cells in (row.split(";") for row in rows)]
    data, model, out = tmp_path / "last.csv", tmp_path / "m.sswim", tmp_path / "next.csv"
    data.write_text("\n".join(["Zeit;Last;Wind;Stadt", *rows]) + "\n")
    assert "'Stadt' holds text" in run("fit", data, *FIT, "--out", model, code=2).output
    run("fit", data, *FIT, "--out", model, "--drop", "Stadt", "--target", "Last")
    assert Forecaster.load(model).covariates == ("Wind",)
    run(
        "forecast", model, data, "--out", out, "--coverage", "0.8"
    )  # the text in a column that the model has not seen is no matter
    found = read_series(out)
    assert list(found) == ["Last", "Last low", "Last high"] and found.index[0] == hours[-1] + pd.Timedelta("1h")
    assert (found["Last low"] <= found["Last"]).all() and (found["Last"] <= found["Last high"]).all()
    np.testing.assert_allclose(found["Last"], 100 + 20 * np.sin(np.arange(300, 300 + len(found)) / 24 * 2 * np.pi), atol=8)
    assert "RSE" in run("evaluate", model, data).output
    for words, message in (
        (("--target", "Lst"), "--target: 'Lst' is not a column"),
        (("--target", "Last", "--covariate", "Wind"), "omit --covariate"),
        (("--time", "when"), "has no column 'when' of times"),
        (("--columns", "Lasst"), "Did you mean 'Last'?"),
    ):
        assert message in run("fit", data, *FIT, "--out", model, "--drop", "Stadt", *words, code=2).output


def test_tables_of_experiments_are_aligned_and_stars_explained():
    assert aligned("| a | long name |\n| --- | --- |\n| value |  |") == "a      long name\n-----  ---------\nvalue"
    assert "has not converged" in EXPERIMENTS["forecasting"].note


@pytest.mark.parametrize("width", [80, 120])
def test_summaries_are_not_cut(frame, tmp_path, monkeypatch, width):
    monkeypatch.setattr("sswim.cli.console", Console(width=width))
    monkeypatch.setenv("COLUMNS", str(width))
    data, model = tmp_path / "d.csv", tmp_path / "m.sswim"
    frame.to_csv(data)
    for options in ([], ["--paper"]):
        printed = run("fit", data, *FIT, *options, "--out", model).stdout
        assert "…" not in printed and "Morlet" in printed and "saturated" in printed and f"Saved: {model}" in printed
        assert max(map(len, printed.replace(str(model), "").splitlines())) <= width
        summary = Forecaster.load(model).summary()
        layer, shown = summary.to_dict()["layers"][0], str(summary)
        assert all(layer[metric] in printed.split("output", 1)[0] for metric in ("input_metric", "output_metric"))
        assert "Morlet(" not in printed  # with its parameters, a row does not fit
        assert "…" not in shown and max(map(len, shown.splitlines())) <= min(width, 110)
    assert "windows of one channel" not in shown  # all channels enter the paper's network


def test_forecasts_are_printed_whole_or_in_the_width_of_a_terminal(frame, tmp_path, monkeypatch):
    data, model, out = tmp_path / "d.csv", tmp_path / "m.sswim", tmp_path / "o.csv"
    frame.to_csv(data)
    run("fit", data, *FIT, "--out", model)
    monkeypatch.setattr("sswim.cli.console", Console(width=40, force_terminal=True))
    assert max(map(len, run("forecast", model, data, "--coverage", "0.9").stdout.splitlines())) <= 42  # pandas adds a backslash
    monkeypatch.setattr("sswim.cli.console", Console(width=40, force_terminal=False))
    lines = run("forecast", model, data, "--coverage", "0.9").stdout.splitlines()
    assert len(lines) == 1 + len(run("forecast", model, data).stdout.splitlines()[1:])
    columns = 3 * frame.shape[1]
    assert f"{columns} columns" in run("forecast", model, data, "--coverage", "0.9", "--out", out).stdout


def test_covariates_that_are_known_ahead_come_from_a_file(frame, tmp_path):
    data, model, ahead, out = (tmp_path / name for name in ("d.csv", "m.sswim", "ahead.csv", "next.csv"))
    rows = frame.assign(noon=abs(frame.index.hour - 12.0))
    write_series(rows[:-6], data)
    run("fit", data, *FIT, "--out", model, "--known", "noon")
    horizon = Forecaster.load(model).horizon
    write_series(rows[-6 : len(rows) - 6 + horizon], ahead)
    assert "known=['noon']" in run("forecast", model, data, code=2).output
    run("forecast", model, data, "--future", ahead, "--out", out, "--coverage", "0.9")
    expected = Forecaster.load(model).predict(rows[:-6], rows[-6 : len(rows) - 6 + horizon])
    np.testing.assert_allclose(read_series(out)[["north", "south"]].to_numpy(), expected.to_numpy(), rtol=1e-6)
    assert "would be lost" in run("forecast", model, data, "--future", ahead, "--out", ahead, code=2).output


def test_a_model_is_updated_by_files_as_by_rows(tmp_path):
    wind = load_wind_farm().iloc[:700]
    first, second, model, later = (tmp_path / name for name in ("first.csv", "second.csv", "wind.sswim", "later.sswim"))
    write_series(wind.iloc[:500], first), write_series(wind.iloc[500:], second)
    run("fit", first, "--out", model, *FIT)
    assert "its sums were not kept" in run("update", model, second, code=2).output
    run("fit", first, "--out", model, *FIT, "--updatable")
    assert json.loads(run("update", model, second, "--out", later, "--json").stdout)["windows"] == 700 - 14
    expected = Forecaster.load(model).partial_fit(wind.iloc[500:]).predict(wind)
    np.testing.assert_allclose(Forecaster.load(later).predict(wind), expected, rtol=1e-6)
    assert "686 windows, up to" in run("update", model, second, "--forget", "100").output
    assert "known already" in run("update", model, second, code=2).output
    assert "forget" in run("update", model, second, "--forget", "0", code=2).output


def test_a_folder_of_parquet_files_is_a_series(tmp_path):
    wind, folder, model = load_wind_farm().iloc[:600], tmp_path / "wind", tmp_path / "a.sswim"
    folder.mkdir()
    for number in range(3):
        wind.iloc[200 * number : 200 * number + 200].to_parquet(folder / f"{number}.parquet")
    run("fit", folder, "--out", model, *FIT, "--checkpoint", tmp_path / "sums")
    expected = Forecaster(12, 3, hidden=(20,), random_state=0, verbose=0).fit(wind).predict(wind)
    np.testing.assert_allclose(Forecaster.load(model).predict(wind), expected, rtol=1e-5)
    assert list((tmp_path / "sums").iterdir())
    run("forecast", model, folder, "--out", tmp_path / "next.csv", "--coverage", "0.9")
    np.testing.assert_allclose(read_series(tmp_path / "next.csv")[list(expected)], expected, rtol=1e-5)
    assert "RSE" in run("evaluate", model, folder).output
    both = run("fit", folder, "--out", model, "--workers", "2", "--cluster", "tcp://nowhere:1", code=2)
    assert "name one of them" in both.output
    assert "read whole" in run("fit", folder, "--out", model, "--drop", "x", code=2).output
