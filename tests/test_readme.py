"""The code of the README and the docs runs as it stands and prints what it says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/algorithm.md",
    "docs/chips.md",
    "docs/classification.md",
    "docs/convolutions.md",
    "docs/costs.md",
    "docs/export-nir.md",
    "docs/export-onnx.md",
    "docs/extending.md",
    "docs/forecasting.md",
    "docs/gradients.md",
    "docs/index.md",
    "docs/others.md",
    "docs/quickstart.md",
    "docs/reports.md",
    "docs/service.md",
    "docs/spike_targets.md",
]
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


def blocks(page):
    """Code with what it prints, or nothing."""
    return re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", (ROOT / page).read_text(), flags=re.DOTALL)


def test_there_is_code():
    assert all(blocks(page) for page in PAGES) and any(printed for _, printed in blocks("README.md"))


@pytest.mark.parametrize("page", PAGES)
def test_code_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, printed in blocks(page):
        exec(compile(code, page, "exec"), names)
        shown = capsys.readouterr().out
        if printed:
            assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split()
            values, expected = ([float(v.replace(",", "")) for v in NUMBER.findall(text)] for text in (shown, printed))
            assert values == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("page", sorted(p.relative_to(ROOT).as_posix() for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")]))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
