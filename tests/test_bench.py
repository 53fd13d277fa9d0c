import json

import pytest
import torch
from typer.testing import CliRunner

from sswim import initialize
from sswim.bench import synthetic_series
from sswim.bench.cases import bench_assembly, bench_fit, bench_training
from sswim.cli import app


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
