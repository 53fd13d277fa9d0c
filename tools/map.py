"""Write docs/map.md: the walk of one fit and one forecast through the code, as a trace of the calls shows it.

python tools/map.py
"""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sswim"
# They call what they are given: whoever gave it counts as the caller.
CARRIERS = (
    "Run.map",
    "Run.sums",
    "sums_on_threads",
    "sums_on_threads.<locals>.count",
    "add_up",
    "on_threads",
    "on_threads.<locals>.work",
    "total",
    "SupportSearch.find",
)


@dataclass
class Walk:
    """Files in the order in which calls enter them, with the function entered first, and which file calls which."""

    files: dict[str, str] = field(default_factory=dict)
    calls: set[tuple[str, str]] = field(default_factory=set)


def _file(code_file: str) -> str | None:
    return os.path.relpath(code_file, SOURCE) if code_file.startswith(f"{SOURCE}{os.sep}") else None


def trace(function: Callable[[], object]) -> Walk:
    """Return the walk of one call."""
    walk = Walk()

    def enter(frame, event, _):
        here = _file(frame.f_code.co_filename) if event == "call" else None
        if here is None:
            return
        walk.files.setdefault(here, frame.f_code.co_qualname)
        caller = frame.f_back
        while caller is not None and (_file(caller.f_code.co_filename) is None or caller.f_code.co_qualname in CARRIERS):
            caller = caller.f_back
        above = None if caller is None else _file(caller.f_code.co_filename)
        if above not in (None, here):
            walk.calls.add((above, here))

    sys.setprofile(enter)
    try:
        function()
    finally:
        sys.setprofile(None)
    return walk


def walks() -> dict[str, Walk]:
    """Return the walks of the default forecaster's fit and forecast, and of the paper's fit."""
    import torch

    from sswim import Forecaster
    from sswim.datasets import load_wind_farm

    wind = load_wind_farm().resample("h").mean().to_numpy()[:400]
    options = {"window": 24, "horizon": 6, "hidden": (20,), "random_state": 0, "verbose": 0}
    model, paper = Forecaster(**options), Forecaster.paper(**options)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what other threads do is not traced
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {
            "Data in: `Forecaster(...).fit(series)`": trace(lambda: model.fit(wind)),
            "Forecast out: `model.predict(series)`": trace(lambda: model.predict(wind)),
            "The paper's model: `Forecaster.paper(...).fit(series)`": trace(lambda: paper.fit(wind)),
        }
    torch.set_num_threads(threads)
    return found


def _what(file: str) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / file).read_text())) or ""
    return text.split("\n")[0]


def page(found: dict[str, Walk]) -> str:
    """Return the page."""
    lines = [
        "# Map of the code",
        "",
        "Where data goes, file by file, in the order of the calls. `tools/map.py` writes this page from a trace,",
        "and a test keeps it true. Calls go one way: no file calls one that called it.",
    ]
    for title, walk in found.items():
        lines += [
            "",
            f"## {title}",
            "",
            f"{len(walk.files)} files.",
            "",
            "| file | entered by | what it holds |",
            "| --- | --- | --- |",
        ]
        lines += [f"| `{file}` | `{name}` | {_what(file)} |" for file, name in walk.files.items()]
    lines += [
        "",
        "## From the paper to the code",
        "",
        "`sample_network` in `sampling.py` has the lines of the paper's algorithm 1 in its order.",
        "",
        "| line of the algorithm | in `sample_network` | one jump further |",
        "| --- | --- | --- |",
        "| 1: the initial batch X_I, Y_I | `draw_batch` | `sampling.draw_batch` |",
        "| 3: temporal parameters (`op_t`) | `set_times` | `steps/temporal.py` |",
        "| 4 to 11: distribution P, one pair per neuron | `way.draw_pairs` | `sampling.ByPairs`, `steps/pairs.py` |",
        "| 12, 13: weights (`op_w`) | `way.set_weights` | `steps/weights.py`: `DotWeights`, `DistWeights` |",
        "| 14, 15: normalisation (`op_n`) | `normalize` | `steps/weights.py`: `MeanStd`, `Fluctuation` |",
        "| 16: output delays (`op_c`) | `readout.solve` | `readout/trajectory.py`, `steps/delays.py` |",
        "| 17: output supports (`op_sig`) | `readout.solve` | `readout/trajectory.py`, `steps/supports.py` |",
        "| 18: output weights | `readout.solve` | `readout/trajectory.py`, `regression.py` |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "map.md").write_text(page(walks()))
