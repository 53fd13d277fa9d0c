"""Experiments: stopped in the middle they go on, and tables come from the files alone."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sswim.cli import app
from sswim.experiments import EXPERIMENTS, Experiment, published, render, run
from sswim.experiments import classification as experiment
from sswim.experiments.forecasts import ORIGINAL, task
from sswim.experiments.runner import check_options, markdown


@pytest.fixture
def toy(monkeypatch):
    """An experiment that counts its runs, and may be killed."""
    calls = []

    def measure(x, seed):
        if len(calls) == toy.limit:
            raise KeyboardInterrupt
        calls.append((x, seed))
        return {"score": x + 0.1 * seed}

    toy = Experiment(
        lambda data, seeds, quick: [{"x": x, "seed": s} for x in range(2 if quick else 3) for s in range(seeds)],
        measure,
        lambda runs: runs.groupby("x")[["score"]].mean().reset_index(),
        experiment.draw,
    )
    object.__setattr__(toy, "limit", -1)
    object.__setattr__(toy, "calls", calls)
    monkeypatch.setitem(EXPERIMENTS, "toy", toy)
    return toy


def test_a_stopped_experiment_goes_on_with_the_same_table(toy, tmp_path):
    whole = run("toy", tmp_path / "a", seeds=2, verbose=0)
    assert len(toy.calls) == 6
    toy.calls.clear()
    object.__setattr__(toy, "limit", 4)
    with pytest.raises(KeyboardInterrupt):
        run("toy", tmp_path / "b", seeds=2, verbose=0)
    object.__setattr__(toy, "limit", -1)
    again = run("toy", tmp_path / "b", seeds=2, verbose=0)
    assert len(toy.calls) == 6, "none twice"
    columns = ["x", "seed", "score"]
    pd.testing.assert_frame_equal(again[columns], whole[columns])
    told = json.loads(next((tmp_path / "b" / "runs").glob("*.json")).read_text())
    assert {"settings", "scores", "seconds", "peak_memory", "sswim", "torch", "machine", "threads"} <= set(told)
    next((tmp_path / "b" / "runs").glob("*.json")).write_text("{")
    with pytest.raises(ValueError, match="not the file of a run, or damaged"):
        run("toy", tmp_path / "b", seeds=2, verbose=0)
    with pytest.raises(ValueError, match="unknown name 'tay'. Valid names: 'forecasting', 'timing', 'classification'"):
        run("tay", tmp_path)


def test_markdown():
    assert markdown(pd.DataFrame({"a": ["x"], "b": [0.12345], "c": [None]})).splitlines()[2] == "| x | 0.123 | None |"


def test_classification(tmp_path, monkeypatch):
    cells = experiment.cells(data=("digits",), seeds=1, quick=True)
    small = [c for c in cells if sum(c["hidden"]) == 64 and (c["sampling"] != "random" or c["model"] == "paper")]
    monkeypatch.setitem(
        EXPERIMENTS, "small", Experiment(lambda **_: small, experiment.measure, experiment.table, experiment.draw)
    )
    answer = CliRunner().invoke(app, ["experiment", "small", "--out", str(tmp_path), "--json"])
    assert answer.exit_code == 0, answer.output
    runs = pd.DataFrame(json.loads(answer.stdout))
    assert runs["model"].tolist() == ["paper", "paper", "ours", "ours", "plain"]
    assert (runs[["voltage", "spikes_normalized", "direct", "plain_depth"]].max() > 0.6).all()
    assert "paper, voltage" in (tmp_path / "table.md").read_text() and (tmp_path / "picture.png").stat().st_size > 10_000
    assert render("small", tmp_path).count("\n") == 4
    assert len(experiment.cells(data=(), seeds=3, quick=False)) == 2 * 3 * (3 * 2 * 3 + 3 * 2 + 3 * 2)
    with pytest.raises(ValueError, match="data: unknown name 'mnisst'"):
        experiment.cells(data=("mnisst",), seeds=1, quick=True)


def test_options_are_checked():
    assert check_options("forecasting", {"horizons": 6, "kernels": ["hat", "morlet"], "stride": 4}) == {
        "horizons": (6,),
        "kernels": ("hat", "morlet"),
        "stride": 4,
    }
    for options, message in [
        ({"horizon": 6}, "forecasting: unknown option 'horizon'. Valid ones: 'horizons', 'kernels'"),
        ({"horizons": "six"}, r"forecasting: horizons takes values of type int, such as \(6, 24, 48, 96\), got 'six'"),
        ({"stride": [1, 2]}, r"forecasting: stride takes one value of type int, such as 1, got \[1, 2\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_options("forecasting", options)
    answer = CliRunner().invoke(app, ["experiment", "timing", "--set", "horizons"])
    assert answer.exit_code == 2 and "--set takes name=value, or name=value,value, got 'horizons'" in answer.output


def test_again_runs_again_and_render_only_runs_nothing(toy, tmp_path):
    run("toy", tmp_path, seeds=1, verbose=0)
    run("toy", tmp_path, seeds=1, verbose=0, resume=False)
    assert len(toy.calls) == 6
    with pytest.raises(ValueError, match="holds no runs. Run the experiment first"):
        render("toy", tmp_path / "elsewhere")


def test_published_numbers():
    told = published()
    assert len(told) == 19 * 16 and set(told["data"]) == set(ORIGINAL) and told["rse"].between(0.2, 1).all()
    means = told.groupby("model")["rse"].mean().round(3)
    # The column "Avg." of the paper's table.
    assert means["SSWIM (Morlet)"] == 0.492 and means["SSWIM (Hat)"] == 0.502 and means["SGD (Morlet)"] == 0.462
    assert abs(means["SSWIM+SGD (Morlet)"] - 0.437) < 0.0011 and abs(means["Transformer w/ RoPE"] - 0.507) < 0.0011


@pytest.fixture
def series(tmp_path):
    """A file of a user's own: two noisy waves, 900 rows."""
    t, noise = np.arange(900), np.random.default_rng(0).normal(size=(900, 2))
    waves = pd.DataFrame({"a": 5 + np.sin(t / 4), "b": 90 + 30 * np.cos(t / 9)}) + 0.1 * noise
    path = tmp_path / "waves.csv"
    waves.to_csv(path, index=False)
    return path


def test_both_scalings_have_the_same_windows_and_errors_in_all_units(series):
    raw, scaled = (task(str(series), 6, scaling=scaling) for scaling in ("training", "series"))
    assert raw.window == 168 and len(raw.later) == len(scaled.later) == 1
    np.testing.assert_allclose(scaled.later[0] * scaled.span, raw.later[0] - raw.later[0][0] + scaled.later[0][0] * scaled.span)
    whole = np.concatenate([scaled.known[0], scaled.later[0]])
    assert whole.min() == 0 and whole.max() == 1
    from sswim.baselines import Persistence

    one, other = (t.scores(Persistence(168, 6).evaluate(t.later)) for t in (raw, scaled))
    for key in ("rse", "rse_units", "rse_alike"):
        assert one[key] == pytest.approx(other[key]), key
    assert one["rse"] != pytest.approx(one["rse_units"], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("forecasting", ["--set", "horizons=6", "--set", "kernels=hat", "--set", "window=50"], 3),
        ("timing", ["--set", "horizons=6"], 1),
        ("ablation", ["--seeds", "1", "--set", "weights=dot,random", "--set", "horizon=6"], 4),
        ("entropy", ["--seeds", "1", "--set", "horizons=6", "--set", "metrics=l2,cosine,entropy"], 1),
        ("beyond", ["--set", "horizons=6", "--set", "models=persistence,shared ridge,paper,sswim", "--set", "window=40"], 4),
        ("ideas", ["--set", "horizons=6", "--set", "variants=spikes only,hat kernel", "--set", "thin=1"], 2),
    ],
)
def test_quick_versions_on_a_file_of_the_users_own(name, options, rows, series, tmp_path):
    command = ["experiment", name, "--quick", "--data", str(series), "--out", str(tmp_path / "out"), *options]
    answer = CliRunner().invoke(app, [*command, "--json"])
    assert answer.exit_code == 0, answer.output
    runs = pd.DataFrame(json.loads(answer.stdout))
    errors = runs["rse_units"] if "rse_units" in runs else runs["rse"].dropna()
    assert ((errors > 0) & (errors < 20)).all()
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.count("\n") == rows + 2, text
    assert (tmp_path / "out" / "picture.png").stat().st_size > 5_000
    assert len(pd.read_csv(tmp_path / "out" / "runs.csv")) == len(runs)
    again = CliRunner().invoke(app, ["experiment", name, "--render-only", "--out", str(tmp_path / "out")])
    assert again.exit_code == 0 and (tmp_path / "out" / "table.md").read_text() == text


def test_the_papers_table_from_the_original_files(tmp_path, monkeypatch):
    """Small files in the formats that the four sets are published in, and the documented command."""
    h5py = pytest.importorskip("h5py")
    g = np.random.default_rng(0)

    def values(rows, channels):
        return 50 + 10 * np.sin(np.arange(rows)[:, None] / 6 + np.arange(channels)) + g.normal(size=(rows, channels))

    for name, key, columns in (
        ("metr-la", "df", np.array([b"773869", b"767541"])),
        ("pems-bay", "speed", np.array([400001, 400017])),
    ):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            frame = file.create_group(key)
            frame.attrs["pandas_type"] = "frame"
            frame["axis0"] = frame["block0_items"] = columns
            frame["axis1"] = 1_330_560_000_000_000_000 + 300_000_000_000 * np.arange(400)
            frame["block0_values"] = values(400, 2)
    for name in ("solar_AL", "electricity"):
        rows = "\n".join(",".join(f"{v:.2f}" for v in row) for row in values(700, 3))
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(rows.encode()))
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    small = ["--seeds", "1", "--set", "trainings=sample", "--set", "neurons=20", "--set", "horizons=6,24"]
    answer = CliRunner().invoke(app, ["experiment", "forecasting", "--out", str(tmp_path / "out"), *small])
    assert answer.exit_code == 0, answer.output
    table = (tmp_path / "out" / "table.md").read_text()
    for name in ORIGINAL:
        assert f"| {name} 6 | {name} 24 |" in table
    assert table.count("| SSWIM (Morlet) |") == 3, "two scalings, and the published row"
    assert (
        "| SSWIM (Morlet) | published |  | all | 3 | 0.507 | 0.651 | 0.416 | 0.514 | 0.428 | 0.371 | 0.378 | 0.363 |" in table
    )
    assert table.count("published") == 19


def test_killed_and_restarted_it_ends_with_the_same_table(series, tmp_path):
    options = ["--quick", "--data", str(series), "--set", "horizons=6", "--set", "models=persistence,shared ridge,paper,sswim"]

    def command(out):
        return [sys.executable, "-m", "sswim.cli", "experiment", "beyond", "--out", str(out), *options]

    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    broken = subprocess.Popen(command(tmp_path / "broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("broken/runs/*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(broken.pid, signal.SIGKILL)
    broken.wait()
    done = len(list(tmp_path.glob("broken/runs/*.json")))
    assert 1 <= done < 4
    subprocess.run(command(tmp_path / "broken"), check=True, capture_output=True)
    assert (tmp_path / "broken" / "table.md").read_text() == (tmp_path / "whole" / "table.md").read_text()
