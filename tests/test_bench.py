import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from sswim import initialize
from sswim.bench import forecasters, rivals, synthetic_series
from sswim.bench.cases import bench_assembly, bench_fit, bench_training
from sswim.cli import app
from sswim.evaluate import Persistence
from sswim.machine import peak_memory


def test_the_literal_reading_and_the_exact_fit_give_the_same_forecasts():
    """The library against the paper's words: stacked design matrices, QR, one Gram matrix per output."""
    result = bench_fit(windows=120, window=24, horizon=6, outputs=3, neurons=25, repeats=1)["runs"][0]
    assert result["exact_largest_difference"] < 1e-4
    assert abs(result["fast_rse_change"]) < 0.15  # a small problem: every choice shows


def test_the_assembly_is_checked_before_it_is_timed():
    result = bench_assembly(neurons=60, steps=40, batch=20, repeats=1)
    assert set(result["result"]) == {"gram_over_gemm", "traces_and_gram_over_gemm"} and result["shape"]["neurons"] == 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sswim.regression.gram", lambda rows: 1.01 * rows @ rows.T)
        with pytest.raises(RuntimeError, match="the assembled Gram matrix is wrong: nothing was timed"):
            bench_assembly(neurons=60, steps=40, batch=20, repeats=1)


def test_a_training_step_reaches_all_parameters_before_it_is_timed():
    result = bench_training(batch=8, inputs=5, steps=20, neurons=30, horizon=4, repeats=1)
    assert "sswim" in result["seconds_per_step"] and result["result"]
    with pytest.MonkeyPatch.context() as patch:

        def freeze(network, *arguments, **options):
            initialize(network, *arguments, **options)
            network.layers[0].delays.requires_grad_(False)

        patch.setattr("sswim.bench.cases.initialize", freeze)
        with pytest.raises(RuntimeError, match="a parameter has no finite gradient: nothing was timed"):
            bench_training(batch=8, inputs=5, steps=20, neurons=30, horizon=4, repeats=1)


def test_the_synthetic_series_is_like_loads():
    x = synthetic_series(2000, 3)
    assert x.shape == (2000, 3) and x.amin() == 0 and x.amax() == 1
    daily = torch.corrcoef(torch.stack([x[:-24, 0], x[24:, 0]]))[0, 1]
    assert daily > 0.5
    torch.testing.assert_close(x, synthetic_series(2000, 3))


def test_command_line(tmp_path):
    out = tmp_path / "b.json"
    answer = CliRunner().invoke(app, ["bench", "assembly", "--out", str(out), "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["case"] == json.loads(out.read_text())["case"] == "assembly"
    assert CliRunner().invoke(app, ["bench", "nothing"]).exit_code == 2


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    """A small file of loads whose channels have other units."""
    path = tmp_path_factory.mktemp("data") / "loads.csv"
    values = synthetic_series(400, 2).numpy() * [10, 1000] + [5, -3]
    pd.DataFrame(values, columns=["a", "b"]).to_csv(path, index=False)
    return str(path)


def setting(seed=0, max_steps=2):
    return forecasters.Setting(window=24, horizon=6, validation=0.1, seed=seed, max_steps=max_steps)


def test_the_split_is_by_rows_and_standardised_by_training_rows(loads):
    cut = forecasters._split(loads, 24, 6)
    rows = pd.read_csv(loads).to_numpy()
    rows = (rows - rows[:280].mean(axis=0)) / rows[:280].std(axis=0)
    np.testing.assert_allclose(cut.known, rows[:320])
    np.testing.assert_allclose(cut.later, rows[320 - 24 :])
    with pytest.raises(ValueError, match="data must be one segment of rows, but 'la-highway' begins anew every 180 rows"):
        forecasters._split("la-highway", 12, 6)


@pytest.mark.parametrize("name", [name for name in forecasters.MODELS if name not in forecasters.NEEDS])
def test_every_model_is_measured_alike(loads, name):
    found = forecasters._measure(name, loads, setting())
    assert set(found) == {
        "seed", "mse", "mae", "fit_seconds", "predict_seconds", "peak_mib", "peak_mib_before"
    }  # fmt: skip
    cut = forecasters._split(loads, 24, 6)
    model = forecasters.MODELS[name](forecasters.Setting(24, 6, 0.1, 0, 2))
    model.fit(cut.known)
    truth = np.lib.stride_tricks.sliding_window_view(cut.later[24:], 6, axis=0).transpose(0, 2, 1)
    error = model.predict_windows(cut.later) - truth
    assert found["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)


def test_a_wrong_output_is_found_before_anything_is_timed(loads, monkeypatch):
    class Late(Persistence):
        def forecast(self, x):
            return super().forecast(x)[:, 1:]

    class Blank(Persistence):
        def forecast(self, x):
            return super().forecast(x) * np.nan

    for kind in (Late, Blank):
        monkeypatch.setitem(forecasters.MODELS, "persistence", lambda s, kind=kind: kind(s.window, s.horizon))
        with pytest.raises(
            RuntimeError, match=r"forecasts must be finite and have the shape \(5, 6, 2\), got .* nothing was timed"
        ):
            forecasters._measure("persistence", loads, setting())


def test_the_command_compares_forecasters_and_lists_what_is_not_installed(loads, tmp_path, monkeypatch):
    monkeypatch.setattr(forecasters, "find_spec", lambda name: None)
    ballast = np.ones(600 * 2**17)  # 600 MiB that are not the model's
    out = tmp_path / "f.json"
    command = ["bench", "forecasters", "--data", loads, "--window", "24", "--horizon", "6", "--out", str(out)]
    answer = CliRunner().invoke(app, [*command, "--model", "NLinear", "--model", "NHITS", "--model", "LightGBM"])
    assert answer.exit_code == 0, answer.output
    shown = answer.stdout.split()
    assert shown.count("installed") == 2 and "MSE" in shown and "NLinear" in shown
    found = json.loads(out.read_text())
    assert {"commit", "processor", "torch", "versions", "threads"} <= set(found)
    assert found["result"]["NHITS"] == "not installed" and found["options"]["window"] == 24
    [run] = found["models"]["NLinear"]["runs"]
    here = forecasters._measure(
        "NLinear", loads, forecasters.Setting(24, 6, forecasters._split(loads, 24, 6).validation, 0, 1000)
    )
    assert run["mse"] == pytest.approx(here["mse"]) and run["seed"] == 0
    if sys.platform.startswith("linux"):
        assert run["peak_mib"] < peak_memory() / 2**20 - 300 and ballast[0] == 1


def test_a_model_that_fails_is_named_and_the_others_go_on(loads, monkeypatch):
    def fail(function, arguments):
        if arguments["name"] == "NLinear":
            raise MemoryError("too large")
        return {**function(**arguments), "fit_seconds": 1.0 + arguments["setting"].seed}

    monkeypatch.setattr(forecasters, "alone", fail)
    found = forecasters.bench_forecasters(loads, 24, 6, models=["NLinear", "persistence"], seeds=3)
    assert found["result"]["NLinear"] == "failed: MemoryError: too large"
    assert found["result"]["persistence"]["fit s"] == [1.0, 2.0, 3.0]  # least, middle, largest
    assert isinstance(found["result"]["persistence"]["MSE"], float)  # the same for every seed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["forecasters", "--model", "ARIMA"], "models: unknown name 'ARIMA'"),
        (["forecasters", "--window", "0"], "window must be"),
        (["forecasters", "--horizon", "9000"], "its 17,520 rows give"),
        (["assembly", "--horizon", "6"], "horizon is for 'forecasters', 'assembly' has no such option"),
    ],
)
def test_wrong_options_are_named(options, message):
    answer = CliRunner().invoke(app, ["bench", *options])
    assert answer.exit_code == 2 and message in answer.output


class Ahead:
    """Trees that know what the target is: the step ahead plus ten times the channel, relative to the last value."""

    def predict(self, features):
        assert features.shape[1] == 24 + 3 and (features[:, 23] == 0).all()  # the last value relative to itself
        return features[:, -1] + 10 * features[:, -2]


def test_boosted_trees_forecast_every_step_of_every_channel():
    model = rivals.BoostedTrees(24, 6, block=4)
    model.models = [Ahead(), Ahead()]
    x = np.random.default_rng(0).standard_normal((5, 24, 3))
    expected = x[:, -1:] + np.arange(6)[:, None] + 10 * np.arange(3)
    np.testing.assert_allclose(model.forecast(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [50, 10**6])
def test_boosted_trees_see_windows_relative_to_their_last_value(rows):
    series = np.arange(60.0)[:, None] * [1, 100]
    model = rivals.BoostedTrees(4, 6, block=4)
    windows, rng = model.windows(series), np.random.default_rng(0)
    x, y = model._table(windows, 10, 30, range(4, 6), rows, rng)
    assert len(x) == min(rows, 20 * 2 * 2)
    unit = np.where(x[:, 5] == 0, 1, 100)
    np.testing.assert_allclose(x[:, :4], unit[:, None] * np.arange(-3, 1))
    np.testing.assert_allclose(y, unit * (x[:, 6] + 1))
    start = x[:, 4] / unit - 3
    assert start.min() >= 10 and start.max() < 30 and set(x[:, 6]) == {4, 5}


def test_long_table_is_channel_after_channel():
    frame = rivals.long_table(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert frame["y"].tolist() == [1, 3, 5, 2, 4, 6]
    assert frame["unique_id"].tolist() == [0, 0, 0, 1, 1, 1] and frame["ds"].tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("kind", ["NHITS", "PatchTST", "TSMixer"])
def test_the_output_of_a_network_is_what_its_library_predicts(kind):
    pytest.importorskip("neuralforecast", reason="`make peers` installs it, in .venv-peers")
    rows = synthetic_series(150, 2).numpy()
    model = rivals.DeepNetwork(24, 6, kind=kind, steps=1).fit(rows)
    expected = model.library.predict(rivals.long_table(rows[-24:]))[kind].to_numpy().reshape(2, 6).T
    np.testing.assert_allclose(model.forecast(rows[None, -24:])[0], expected, atol=1e-5)


def test_boosted_trees_find_a_pattern():
    pytest.importorskip("lightgbm", reason="`make peers` installs it, in .venv-peers")
    rows = synthetic_series(600, 2).numpy()
    model = rivals.BoostedTrees(24, 6, block=4, rows=4000, trees=40).fit(rows[:450])
    assert model.evaluate(rows[450:]).rse < 0.9 * Persistence(24, 6).evaluate(rows[450:]).rse
