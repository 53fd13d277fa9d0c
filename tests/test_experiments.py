"""Experiments: stopped in the middle they go on, and tables come from the files alone."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from sswim.cli import app
from sswim.experiments import EXPERIMENTS, Experiment, render, run
from sswim.experiments import classification as experiment
from sswim.experiments.runner import markdown


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
    with pytest.raises(ValueError, match="unknown name 'tay'. Valid names: 'classification'"):
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
