"""Experiments: stopped in the middle they go on, and tables come from the files alone."""

import dataclasses
import gzip
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from sswim.cli import app
from sswim.experiments import EXPERIMENTS, Experiment, forecasts, published, render, run
from sswim.experiments import classification as experiment
from sswim.experiments.experiment import count_seeds
from sswim.experiments.forecasts import ORIGINAL, task
from sswim.experiments.runner import load_runs, markdown


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
        lambda data, seeds, *, sizes=(0, 1, 2): [{"x": x, "seed": s} for x in sizes for s in range(seeds)],
        measure,
        lambda runs: runs.groupby("x")[["score"]].mean().reset_index(),
        lambda runs: Figure(),
        order={"x": None, "seed": None},
        quick={"sizes": (7,), "seeds": 1},
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
    record = json.loads(next((tmp_path / "b" / "runs").glob("*.json")).read_text())
    assert {"settings", "scores", "seconds", "peak_memory", "sswim", "torch", "machine", "threads"} <= set(record)
    next((tmp_path / "b" / "runs").glob("*.json")).write_text("{")
    with pytest.raises(ValueError, match="not the file of a run, or damaged"):
        run("toy", tmp_path / "b", seeds=2, verbose=0)
    with pytest.raises(ValueError, match="unknown name 'tay'. Valid names: 'forecasting', 'timing', 'splits'"):
        run("tay", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["scores"].update(score=7.0), "it has changed since it was written"),
        (lambda r: r.pop("torch"), "it has changed since it was written"),
        (lambda r: [r.pop("torch"), r.pop("checksum")], "it lacks torch"),
        (lambda r: [r.update(settings=[1]), r.pop("checksum")], r"settings must be .* got \[1\]"),
        (lambda r: [r["scores"].update(score=[[1]]), r.pop("checksum")], "scores must be"),
        (lambda r: [r.clear(), r.update(a=1)], "it lacks experiment, settings"),
    ],
)
def test_a_damaged_run_is_told_before_any_work(toy, tmp_path, change, message):
    run("toy", tmp_path, seeds=1, verbose=0)
    first, *others = sorted((tmp_path / "runs").glob("*.json"))
    record = json.loads(first.read_text())
    change(record)
    first.write_text(json.dumps(record))
    others[0].unlink()
    toy.calls.clear()
    told = rf"{first.name}: not the file of a run, or damaged \({message}.*Remove it, and run again"
    with pytest.raises(ValueError, match=told):
        run("toy", tmp_path, seeds=1, verbose=0)
    assert not toy.calls
    first.unlink()
    assert len(run("toy", tmp_path, seeds=1, verbose=0)) == 3 and len(toy.calls) == 2


def test_a_folder_that_cannot_be_made_is_told(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="--out: the folder .*file cannot be made"):
        run("toy", tmp_path / "file", verbose=0)


def test_processes_share_a_folder(toy, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    runs = tmp_path / "runs"
    run("toy", tmp_path, seeds=2, verbose=0)
    other = max(runs.glob("*.json"))
    other.unlink()
    toy.calls.clear()
    with other.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.warns(UserWarning, match="1 of 6 runs are still under way in other processes"):
            assert len(run("toy", tmp_path, seeds=2, verbose=0)) == 5
        assert not toy.calls
    # The other process is dead, and its lock with it.
    assert len(run("toy", tmp_path, seeds=2, verbose=0)) == 6 and len(toy.calls) == 1
    assert not list(runs.glob("*.lock"))


def test_two_processes_do_each_run_once(tmp_path):
    code = f"""
import time
from pathlib import Path
from matplotlib.figure import Figure
from sswim.experiments import EXPERIMENTS, run
from sswim.experiments.experiment import Experiment

def measure(x, seed):
    with open(r"{tmp_path}/log", "a") as log:
        log.write(f"{{x}}\\n")
    time.sleep(0.05)
    return {{"score": x}}

EXPERIMENTS["toy"] = Experiment(
    lambda data, seeds: [{{"x": x, "seed": 0}} for x in range(20)], measure, lambda runs: runs, lambda runs: Figure()
)
run("toy", Path(r"{tmp_path}"), verbose=0)
"""
    processes = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", code]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == list(range(20))
    assert len(list((tmp_path / "runs").iterdir())) == 20


def test_a_run_that_fails_does_not_end_the_others(toy, tmp_path, monkeypatch):
    def measure(x, seed):
        if x == 1:
            raise ArithmeticError("The loss became NaN.")
        return toy.measure(x, seed)

    monkeypatch.setitem(EXPERIMENTS, "toy", dataclasses.replace(toy, measure=measure))
    with pytest.warns(UserWarning, match=r"2 of 6 runs failed, the first \(x=1, seed=0\) with: The loss became NaN."):
        assert run("toy", tmp_path, seeds=2, verbose=0)["x"].tolist() == [0, 0, 2, 2]
    with pytest.raises(ArithmeticError, match="The loss became NaN"):  # and nothing is there
        run("toy", tmp_path / "b", seeds=1, options={"sizes": 1}, verbose=0)


def test_markdown():
    assert markdown(pd.DataFrame({"a": ["x"], "b": [0.12345], "c": [None]})).splitlines()[2] == "| x | 0.123 | None |"


def test_classification(tmp_path, monkeypatch):
    cells = experiment.cells(data=("digits",), seeds=1, widths=(64,), samples=600, metrics=("L2",))
    small = [c for c in cells if sum(c["hidden"]) == 64 and (c["sampling"] != "random" or c["model"] == "paper")]
    whole = EXPERIMENTS["classification"]
    monkeypatch.setitem(EXPERIMENTS, "small", dataclasses.replace(whole, cells=lambda data, seeds: small))
    answer = CliRunner().invoke(app, ["experiment", "small", "--out", str(tmp_path), "--json"])
    assert answer.exit_code == 0, answer.output
    runs = pd.DataFrame(json.loads(answer.stdout))
    assert runs["model"].tolist() == ["paper", "paper", "ours", "regression", "ours", "regression", "plain"]
    assert (runs[["voltage", "spikes_normalized", "ours", "regression", "plain"]].max() > 0.6).all()
    assert "paper, voltage" in (tmp_path / "table.md").read_text() and (tmp_path / "picture.png").stat().st_size > 10_000
    assert render("small", tmp_path).count("\n") == 4
    assert len(experiment.cells(data=(), seeds=3)) == 2 * 3 * (3 * 2 * 3 + 2 * 3 * 2 + 3 * 3 + 3 * 2)
    shallow = experiment.cells(data=("digits",), seeds=1, widths=(64,), layers=(1,))
    assert {len(c["hidden"]) for c in shallow} == {1} and len(shallow) == 3 + 4 + 2 * 2
    filters = experiment.measure("digits", "filters", [20], "random", 0, 600)
    assert filters["filters"] > 0.8 and filters["seconds"] > 0
    with pytest.raises(ValueError, match=r"classification: these options leave nothing to run: .*layers=\(3,\)"):
        run("classification", tmp_path / "none", options={"models": "ours", "layers": 3})
    with pytest.raises(ValueError, match="data: unknown name 'mnisst'"):
        experiment.cells(data=("mnisst",), seeds=1)


def test_options_are_checked(tmp_path):
    assert EXPERIMENTS["forecasting"].check_options({"horizons": 6, "kernels": ["hat", "morlet"], "stride": 4}) == {
        "horizons": (6,),
        "kernels": ("hat", "morlet"),
        "stride": 4,
    }
    for options, message in [
        ({"horizon": 6}, "forecasting: unknown option 'horizon'. Valid ones: 'horizons', 'kernels'"),
        ({"horizons": "six"}, r"forecasting: horizons takes values of type int, such as \(6, 24, 48, 96\), got 'six'"),
        ({"stride": [1, 2]}, r"forecasting: stride takes one value of type int, such as 1, got \[1, 2\]"),
        ({"stride": 0}, "forecasting: stride: each value must be at least 1, got 0"),
        ({"scalings": "serie"}, "forecasting: scalings: each value must be one of 'series', 'training', got 'serie'"),
    ]:
        with pytest.raises(ValueError, match=message):
            run("forecasting", tmp_path, options=options)
    assert not list(tmp_path.iterdir())
    # Every option with names says which, and every default and quick value is valid.
    for name, one in EXPERIMENTS.items():
        for options in ({k: v for k, v in one.options.items() if v}, one.quick):
            values = {k: v for k, v in options.items() if k not in ("data", "seeds")}
            assert one.check_options(values) == values, name
    assert all("," not in value for e in EXPERIMENTS.values() for values in e.choices.values() for value in values)
    answer = CliRunner().invoke(app, ["experiment", "timing", "--set", "horizons"])
    assert answer.exit_code == 2 and "--set takes name=value, or name=value,value, got 'horizons'" in answer.output


def test_again_runs_again_and_render_only_runs_nothing(toy, tmp_path):
    run("toy", tmp_path, seeds=1, verbose=0)
    run("toy", tmp_path, seeds=1, verbose=0, resume=False)
    assert len(toy.calls) == 6
    answer = CliRunner().invoke(app, ["experiment", "toy", "--render-only", "--out", str(tmp_path)])
    assert answer.exit_code == 0 and "\n2    2.000\n" in answer.output and len(toy.calls) == 6
    with pytest.raises(ValueError, match="holds no runs. Run the experiment first"):
        render("toy", tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="a run of 'toy', not of 'timing'. Name another folder"):
        render("timing", tmp_path)


def test_quick_changes_defaults_only(toy, tmp_path):
    run("toy", tmp_path / "a", quick=True, verbose=0)
    run("toy", tmp_path / "b", quick=True, seeds=2, options={"sizes": 3}, verbose=0)
    assert toy.calls == [(7, 0), (3, 0), (3, 1)]


def test_means_are_over_seeds_and_what_differs_is_told_apart_or_refused(tmp_path):
    table, sort = EXPERIMENTS["ablation"].table, EXPERIMENTS["ablation"].sort
    same = {"data": "solar", "horizon": 24, "weights": "dot", "normalizer": "MS", "grid": "paper", "stride": 1}
    runs = pd.DataFrame([{**same, "neurons": n, "seed": s, "rse": r} for n, s, r in [(9, 0, 0.5), (9, 1, 0.7), (100, 0, 0.4)]])
    runs.attrs["settings"] = [*same, "neurons", "seed"]
    (row,) = table(sort(runs.iloc[::-1])).to_dict("records")
    assert row == {**same, "seeds": "1 to 2", 9: pytest.approx(0.6), 100: pytest.approx(0.4)}
    mixed = runs.assign(stride=[1, 4, 1])
    mixed.attrs["settings"] = runs.attrs["settings"]
    with pytest.raises(ValueError, match=r"runs of solar differ in stride \(1, 4\), which the table does not tell apart"):
        sort(mixed)
    assert count_seeds(runs, ["weights"], "neurons").tolist() == ["1 to 2"] * 3
    assert count_seeds(runs[:2], ["weights"], "neurons").tolist() == ["2", "2"]


def test_a_changed_file_and_another_version_are_noticed(series, tmp_path, monkeypatch):
    options = {"models": "persistence", "horizons": 6}
    one = run("beyond", tmp_path / "out", data=[str(series)], seeds=1, options=options, verbose=0)
    pd.read_csv(series).iloc[::-1].to_csv(series, index=False)
    forecasts._load.cache_clear()
    other = run("beyond", tmp_path / "out", data=[str(series)], seeds=1, options=options, verbose=0)
    assert one["rse"][0] != other["rse"][0] and len(list((tmp_path / "out" / "runs").iterdir())) == 2
    monkeypatch.setattr("sswim.experiments.runner.__version__", "99")
    with pytest.warns(UserWarning, match="2 of 2 runs are of sswim .*, not 99: --again does them anew"):
        load_runs("beyond", tmp_path / "out")


def test_a_killed_training_goes_on(series, tmp_path, monkeypatch):
    """The third of four epochs is as far as the first attempt comes."""
    from sswim.gradient.descent import Descent

    options = {"horizons": 6, "kernels": "hat", "trainings": "gradient", "scalings": "series", "window": 20, "stride": 16}
    arguments = {"data": [str(series)], "seeds": 1, "options": {**options, "neurons": 10, "epochs": 4}, "verbose": 0}
    whole = run("forecasting", tmp_path / "whole", **arguments)
    save, saved = Descent.save, []

    def dying(self, path, asked):
        save(self, path, asked)
        saved.append(path)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Descent, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        run("forecasting", tmp_path / "broken", **arguments)
    assert [p.suffix for p in (tmp_path / "broken" / "runs").iterdir()] == [".checkpoint"]
    broken = run("forecasting", tmp_path / "broken", **arguments)
    assert len(saved) == 3 + 1, "the fourth epoch only"
    assert broken["rse"][0] == whole["rse"][0] and broken["epochs_run"][0] == 4
    (file,) = (tmp_path / "broken" / "runs").iterdir()
    assert json.loads(file.read_text())["resumed"] is True


def test_tables_of_the_documentation_are_those_of_the_runs():
    document = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "document.py"))
    found = {path.name: path.read_text() for path in document["PAGES"]}
    assert {name: len(document["TABLE"].findall(page)) for name, page in found.items()} == {
        "reproduction.md": 7,
        "accuracy.md": 4,
        "ltsf.md": 1,
    }
    for page in found.values():
        assert document["documented"](page) == page, "run benchmarks/document.py"


def test_published_numbers():
    numbers = published()
    assert len(numbers) == 19 * 16 and set(numbers["data"]) == set(ORIGINAL) and numbers["rse"].between(0.2, 1).all()
    means = numbers.groupby("model")["rse"].mean().round(3)
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
    from sswim.evaluate.baselines import Persistence

    one, other = (t.scores(Persistence(168, 6).evaluate(t.later)) for t in (raw, scaled))
    for key in ("rse", "rse_units", "rse_alike"):
        assert one[key] == pytest.approx(other[key]), key
    assert one["rse"] != pytest.approx(one["rse_units"], rel=1e-3)


def test_scores_are_those_of_the_definition_even_where_a_channel_is_forecast_exactly(tmp_path):
    from sswim.evaluate.baselines import Persistence
    from sswim.evaluate.protocol import rse

    levels = np.repeat(np.random.default_rng(1).normal(size=30), 100)  # persistence is right within a stretch of 100 rows
    noise = np.random.default_rng(0).normal(size=3000).cumsum()
    series = pd.DataFrame({"steps": 100 * levels, "walk": noise})
    series.to_csv(tmp_path / "steps.csv", index=False)
    cut = task(str(tmp_path / "steps.csv"), 6, window=20)
    later = [series.to_numpy()[i : i + 100] for i in range(2000, 3000, 100)]
    windows = np.concatenate([np.lib.stride_tricks.sliding_window_view(s, 26, axis=0).transpose(0, 2, 1) for s in later])
    truth, forecast = windows[:, 20:], np.repeat(windows[:, 19:20], 6, axis=1)
    found = cut.scores(Persistence(20, 6).evaluate(later))
    assert found["rse_units"] == pytest.approx(rse(truth, forecast))
    assert found["rse"] == pytest.approx(rse(truth / cut.span, forecast / cut.span))
    assert found["rse_units"] < 0.9 * rse(truth[:, :, 1:], forecast[:, :, 1:]), "the other channel counts"


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("forecasting", ["--set", "horizons=6", "--set", "kernels=hat", "--set", "window=50"], 3),
        ("timing", ["--set", "horizons=6"], 1),
        ("splits", ["--set", "horizons=6", "--set", "window=20", "--set", "stride=1"], 6),
        (
            "questions",
            ["--set", "horizons=6", "--set", "variants=paper,metrics by the residual,extended grid"],
            3,
        ),
        ("ablation", ["--seeds", "1", "--set", "weights=dot,random", "--set", "horizon=6"], 4),
        ("entropy", ["--seeds", "1", "--set", "horizons=6", "--set", "metrics=l2,cosine,entropy"], 1),
        ("beyond", ["--set", "horizons=6", "--set", "models=persistence,shared ridge,paper,sswim", "--set", "window=40"], 4),
        ("ideas", ["--set", "horizons=6", "--set", "variants=with rows (skip),1 sampled neuron", "--set", "thin=1"], 2),
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
    assert table.count("| SSWIM (Morlet) |") == 2, "ours, and the published row"
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
    while not list(tmp_path.glob("broken/runs/[!.]*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(broken.pid, signal.SIGKILL)
    broken.wait()
    done = {path: path.stat().st_mtime_ns for path in tmp_path.glob("broken/runs/[!.]*.json")}
    assert 1 <= len(done) < 4
    subprocess.run(command(tmp_path / "broken"), check=True, capture_output=True)
    assert all(path.stat().st_mtime_ns == changed for path, changed in done.items()), "none twice"
    assert (tmp_path / "broken" / "table.md").read_text() == (tmp_path / "whole" / "table.md").read_text()
