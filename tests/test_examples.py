"""The examples run as they are, write their pictures, and print good scores."""

import re
import runpy
import sys
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# Script, pictures, the text in front of a printed number, and the bounds of this number.
EXAMPLES = {
    "forecast_wind_farm": (["forecast_wind_farm"], r"sswim +RSE ", 0.7, 0.8),
    "classify_digits": (["classify_digits"], r"accuracy ", 0.94, 1.0),
    "spike_trains": (["spike_trains"], r"coincidence on new inputs ", 0.55, 1.0),
    "fine_tune": (["fine_tune"], r"fine-tuned ", 0.8, 0.95),
    "own_step": ([], r"own weights +RSE ", 0.7, 0.85),
    "algorithm_step_by_step": (
        [
            f"algorithm_{step}"
            for step in (
                "temporal",
                "distribution",
                "entropies",
                "pair",
                "neuron",
                "normalisation",
                "delays",
                "supports",
                "lambda",
                "forecast",
            )
        ],
        r"validation RSE ",
        0.75,
        0.88,
    ),
}


def test_all_are_listed():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)


def test_pictures_of_the_site_are_those_of_the_examples():
    made = {f"{picture}.png" for pictures, *_ in EXAMPLES.values() for picture in pictures}
    assert {path.name for path in (FOLDER.parent / "docs" / "figures").glob("*.png")} <= made


@pytest.mark.parametrize("name", EXAMPLES)
def test_runs(name, tmp_path, monkeypatch, capsys):
    pictures, before, low, high = EXAMPLES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", str(tmp_path)])
    with matplotlib.rc_context():
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    found = re.search(before + r"([\d.]*\d)", printed)
    assert found and low <= float(found[1]) <= high
    if name == "fine_tune":  # the epoch is chosen on other windows than those of the test, hence the margin
        sampled = re.search(r"sampled ([\d.]*\d)", printed)
        assert sampled and float(found[1]) <= float(sampled[1]) + 0.01
    assert {path.name for path in tmp_path.iterdir()} == {f"{picture}.png" for picture in pictures}
    assert all(4e3 < path.stat().st_size < 120e3 for path in tmp_path.iterdir())
