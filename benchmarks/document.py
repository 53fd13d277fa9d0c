"""Write the tables and pictures of docs/reproduction.md from the runs in benchmarks/results, and from nothing else.

    python benchmarks/document.py

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``. Pictures go to docs/experiments.
"""

from __future__ import annotations

import re
from pathlib import Path

from sswim.experiments import EXPERIMENTS
from sswim.experiments.runner import load_runs, markdown

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, PICTURES = ROOT / "docs" / "reproduction.md", ROOT / "benchmarks" / "results", ROOT / "docs" / "experiments"
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def documented(page: str) -> str:
    """Return the page with all tables as the runs have them."""

    def table(found: re.Match[str]) -> str:
        experiment = EXPERIMENTS[found[2]]
        runs = experiment.sort(load_runs(found[2], RESULTS / found[2]))
        return f"{found[1]}\n{markdown(experiment.table(runs))}\n\n{found[3]}"

    return TABLE.sub(table, page)


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(documented(page))
    PICTURES.mkdir(exist_ok=True)
    for _, name, _ in TABLE.findall(page):
        experiment = EXPERIMENTS[name]
        experiment.draw(experiment.sort(load_runs(name, RESULTS / name))).savefig(PICTURES / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
