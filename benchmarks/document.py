"""Write the tables and pictures of experiments in the docs from the runs in benchmarks/results, and from nothing else.

    python benchmarks/document.py

A table stands between ``<!-- table: EXPERIMENT -->`` and ``<!-- end -->``; its runs are in the folder of that name, or in
another with ``<!-- table: EXPERIMENT in FOLDER -->``. Pictures go to docs/experiments.
"""

from __future__ import annotations

import re
from pathlib import Path

from sswim.experiments import EXPERIMENTS
from sswim.experiments.runner import load_runs, markdown

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
PAGES = (DOCS / "reproduction.md", DOCS / "accuracy.md", DOCS / "ltsf.md")
TABLE = re.compile(r"(<!-- table: (\w+)(?: in ([\w-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def documented(page: str) -> str:
    """Return the page with all tables as the runs have them."""

    def table(found: re.Match[str]) -> str:
        experiment = EXPERIMENTS[found[2]]
        runs = experiment.sort(load_runs(found[2], RESULTS / (found[3] or found[2])))
        return f"{found[1]}\n{markdown(experiment.table(runs))}\n\n{found[4]}"

    return TABLE.sub(table, page)


def main() -> None:
    (DOCS / "experiments").mkdir(exist_ok=True)
    for path in PAGES:
        page = path.read_text()
        path.write_text(documented(page))
        for _, name, folder, _ in TABLE.findall(page):
            experiment, folder = EXPERIMENTS[name], folder or name
            picture = experiment.draw(experiment.sort(load_runs(name, RESULTS / folder)))
            picture.savefig(DOCS / "experiments" / f"{folder}.png", dpi=110)


if __name__ == "__main__":
    main()
