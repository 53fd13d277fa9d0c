"""Run an experiment's cells one after the other; each writes a file of its own as it ends."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from sswim._checks import check_integer
from sswim._tracking import Tracker, forget_peak_memory, peak_memory
from sswim._version import __version__
from sswim.experiments.catalogue import find
from sswim.experiments.experiment import Settings

__all__ = ["check_options", "load_runs", "render", "run"]


def _file(folder: Path, settings: Settings) -> Path:
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return folder / "runs" / f"{name}.json"


def run(
    name: str,
    out: Path,
    *,
    data: Sequence[str] = (),
    seeds: int = 3,
    quick: bool = False,
    resume: bool = True,
    options: Mapping[str, Any] | None = None,
    verbose: int = 1,
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
    resume : bool
        Whether runs that are there already are kept, or done again.
    options : mapping
        The experiment's own, by name.
    """
    experiment = find(name)
    options = check_options(name, options or {})
    check_integer("seeds", seeds, 1)
    cells = experiment.cells(data=tuple(data), seeds=seeds, quick=quick, **options)
    interruptible = "checkpoint" in inspect.signature(experiment.measure).parameters
    (out / "runs").mkdir(parents=True, exist_ok=True)
    with Tracker(verbose) as tracker, tracker.step(name):
        for settings in tracker.count(cells):
            path = _file(out, settings)
            if resume and path.exists():
                continue
            checkpoint = path.with_suffix(".checkpoint")
            forget_peak_memory()
            begin = time.perf_counter()
            scores = experiment.measure(**settings, **({"checkpoint": checkpoint} if interruptible else {}))
            told = {
                "experiment": name,
                "settings": settings,
                "scores": scores,
                "seconds": time.perf_counter() - begin,
                "peak_memory": peak_memory(),
                "sswim": __version__,
                "torch": torch.__version__,
                "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
                "threads": torch.get_num_threads(),
            }
            part = path.with_suffix(".part")
            part.write_text(json.dumps(told, indent=1) + "\n")
            os.replace(part, path)
            checkpoint.unlink(missing_ok=True)
    return load_runs(out, [_file(out, settings) for settings in cells])


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an experiment, those with several values as tuples; values of the wrong kind are refused."""
    known, checked = find(name).options, {}
    for key, value in options.items():
        if key not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise ValueError(f"{name}: unknown option {key!r}. Valid ones: {there}.")
        default = known[key]
        several = isinstance(default, tuple)
        values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        kind = type(default[0]) if several and default else str if several else int
        if (not several and len(values) != 1) or not values or any(type(v) is not kind for v in values):
            rule = f"{'values' if several else 'one value'} of type {kind.__name__}"
            raise ValueError(f"{name}: {key} takes {rule}, such as {default!r}, got {value!r}.")
        checked[key] = values if several else values[0]
    return checked


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
    experiment = find(name)
    runs = experiment.sort(load_runs(out) if runs is None else runs)
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
