"""The README's code runs as it stands and prints what it says."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", README, flags=re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


def test_there_is_code():
    assert BLOCKS and any(printed for _, printed in BLOCKS)


def test_code_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, printed in BLOCKS:
        exec(compile(code, "README.md", "exec"), names)
        shown = capsys.readouterr().out
        if printed:
            assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split()
            values, expected = ([float(v.replace(",", "")) for v in NUMBER.findall(text)] for text in (shown, printed))
            assert values == pytest.approx(expected, rel=0.02)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (Path(__file__).parents[1] / target).exists(), target
