"""Run an experiment's cells one after the other; each writes a file of its own as it ends."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from sswim._tracking import Tracker, peak_memory
from sswim._version import __version__

__all__ = ["EXPERIMENTS", "Experiment", "load_runs", "render", "run"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """What an experiment is made of.

    Attributes
    ----------
    cells : callable
        Maps ``data``, ``seeds`` and ``quick`` to the settings of all runs, as plain JSON.
    measure : callable
        Maps the settings of one run to its scores, as plain JSON.
    table : callable
        Maps all runs, one row each, to the table that is shown.
    draw : callable
        Maps all runs to a picture.
    """

    cells: Callable[..., list[Settings]]
    measure: Callable[..., dict[str, Any]]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]


EXPERIMENTS: dict[str, Experiment] = {}


def _file(folder: Path, settings: Settings) -> Path:
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return folder / "runs" / f"{name}.json"


def run(
    name: str, out: Path, *, data: Sequence[str] = (), seeds: int = 3, quick: bool = False, verbose: int = 1
) -> pd.DataFrame:
    """Run what of an experiment is not there yet, and return all runs.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    out : Path
        Folder of the runs, and of the table and the picture that are made of them. An experiment that was stopped goes on
        there.
    data : sequence of str
        Data sets, the experiment's own unless told.
    seeds : int
    quick : bool
        A small version that takes a minute or two.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: unknown name {name!r}. Valid names: {', '.join(map(repr, EXPERIMENTS))}.")
    experiment = EXPERIMENTS[name]
    cells = experiment.cells(data=tuple(data), seeds=seeds, quick=quick)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    with Tracker(verbose) as tracker, tracker.step(name):
        for settings in tracker.count(cells):
            path = _file(out, settings)
            if path.exists():
                continue
            begin = time.perf_counter()
            scores = experiment.measure(**settings)
            told = {
                "experiment": name,
                "settings": settings,
                "scores": scores,
                "seconds": time.perf_counter() - begin,
                "peak_memory": peak_memory(),
                "sswim": __version__,
                "torch": torch.__version__,
                "machine": platform.machine(),
                "threads": torch.get_num_threads(),
            }
            part = path.with_suffix(".part")
            part.write_text(json.dumps(told, indent=1) + "\n")
            os.replace(part, path)
    return load_runs(out, [_file(out, settings) for settings in cells])


def load_runs(out: Path, files: Sequence[Path] | None = None) -> pd.DataFrame:
    """Return the runs in a folder, one row each: settings, scores, seconds and peak memory."""
    rows = []
    for path in sorted((out / "runs").glob("*.json")) if files is None else files:
        try:
            told = json.loads(path.read_text())
            rows.append({**told["settings"], **told["scores"], "seconds": told["seconds"], "peak_memory": told["peak_memory"]})
        except (ValueError, KeyError) as error:
            raise ValueError(f"{path}: not the file of a run, or damaged ({error}). Remove it, and run again.") from error
    if not rows:
        raise ValueError(f"{out}: holds no runs. Run the experiment first.")
    return pd.DataFrame(rows)


def render(name: str, out: Path, runs: pd.DataFrame | None = None) -> str:
    """Write the table of an experiment (``table.md``, ``runs.csv``) and its picture from its runs alone; return the table."""
    runs = load_runs(out) if runs is None else runs
    experiment = EXPERIMENTS[name]
    text = markdown(experiment.table(runs))
    (out / "table.md").write_text(text + "\n")
    runs.to_csv(out / "runs.csv", index=False)
    experiment.draw(runs).savefig(out / "picture.png", dpi=130)
    return text


def markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown, numbers with three digits."""

    def cell(value: Any) -> str:
        return ("-" if pd.isna(value) else f"{value:.3f}") if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(map(str, table.columns)) + " |", "|" + " --- |" * len(table.columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in table.itertuples(index=False))])
