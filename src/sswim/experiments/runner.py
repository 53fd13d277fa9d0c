"""Run an experiment's cells one after the other; each writes a file of its own as it ends."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import platform
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console

from sswim._version import __version__
from sswim.datasets.series import find_own
from sswim.experiments.catalogue import find
from sswim.experiments.experiment import Settings
from sswim.machine import peak_memory
from sswim.options import Run, check_integer, warn
from sswim.sealed import Damaged, check_type, is_whole, parse_json, seal
from sswim.writing import check_place, whole_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# What is recorded of every run besides its settings and scores.
ABOUT = ("seconds", "peak_memory", "sswim", "torch", "machine", "threads")
Plain = str | float | bool | None | list[str | float | bool | None]
TYPES: dict[str, Any] = {
    "experiment": str,
    "settings": dict[str, Plain],
    "scores": dict[str, Plain],
    "seconds": float,
    "peak_memory": int | None,
    "sswim": str,
    "torch": str,
    "machine": str,
    "threads": int,
}
# What ends one run and not the others: a diverging training, a series too short for a horizon, too little memory.
FAILURES = (ValueError, ArithmeticError, RuntimeError, MemoryError)

__all__ = ["load_runs", "render", "run"]


def forget_peak_memory() -> None:
    """Let `peak_memory` count from now on, where the system can do that (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _file(folder: Path, settings: Settings) -> Path:
    """Return where a run is kept: its name stands for its settings, and for what a user's own file holds."""
    text, own = json.dumps(settings, sort_keys=True), find_own(settings["data"]) if "data" in settings else None
    if own is not None:
        text += hashlib.sha256(own.read_bytes()).hexdigest()
    return folder / "runs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def run(
    name: str,
    out: Path,
    *,
    data: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
    resume: bool = True,
    options: Settings | None = None,
    verbose: int = 1,
) -> pd.DataFrame:
    """Run what of an experiment is not there yet, and return all runs.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    out : Path
        Folder of the runs, and of the table and the picture that are made of them. An experiment that was stopped goes on
        there. Several processes may share it: each takes runs that no other is at.
    data : sequence of str
        Data sets. Default: the experiment's own.
    seeds : int, optional
        How many. Default: 3.
    quick : bool
        A small version that takes a minute at most: other defaults for `data`, `seeds` and `options`.
    resume : bool
        Whether runs that are there already are kept, or done again.
    options : mapping
        The experiment's own, by name.
    """
    experiment = find(name)
    try:
        chosen = {"seeds": 3, "data": (), **(experiment.quick if quick else {}), **experiment.check_options(options or {})}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    chosen["seeds"] = check_integer("seeds", chosen["seeds"] if seeds is None else seeds, 1)
    chosen["data"] = tuple(data) or chosen["data"]
    cells = experiment.cells(**chosen)
    if not cells:
        raise ValueError(f"{name}: these options leave nothing to run: {', '.join(f'{k}={v!r}' for k, v in chosen.items())}.")
    if verbose:
        shown = ", ".join(dict.fromkeys(str(settings.get("data", "")) for settings in cells))
        Console(stderr=True).print(f"{len(cells)} runs on {shown}, kept in {out}", highlight=False, markup=False)
    _check_folder(out)
    files = [_file(out, settings) for settings in cells]
    for path in files if resume else ():
        if path.exists():
            _record(path, name)  # a damaged one is told before hours of work
    failed: dict[Path, tuple[Settings, Exception]] = {}
    with Run(verbose=verbose) as progress, progress.step(name):
        for settings, path in progress.count(list(zip(cells, files, strict=True))):
            if resume and path.exists():
                continue
            with _claim(path) as ours:
                if not ours or (resume and path.exists()):  # done by another meanwhile
                    continue
                try:
                    _measure(name, settings, path, resume)
                except FAILURES as error:
                    traceback.clear_frames(error.__traceback__)  # what the run held in memory
                    failed[path] = (settings, error)
    there = [path for path in files if path.exists() and path not in failed]
    if failed:
        settings, first = next(iter(failed.values()))
        if not there:
            raise first
        told_of = ", ".join(f"{k}={v!r}" for k, v in settings.items())
        warn(
            f"{out}: {len(failed)} of {len(files)} runs failed, the first ({told_of}) with: {first} The table has the others.",
            stacklevel=2,
        )
    elsewhere = len(files) - len(there) - len(failed)
    if elsewhere:
        warn(
            f"{out}: {elsewhere} of {len(files)} runs are still under way in other processes. The table has the others; "
            "--render-only makes it anew.",
            stacklevel=2,
        )
    return load_runs(name, out, there)


def _check_folder(out: Path) -> None:
    """Make the folder of an experiment, and try to write there."""
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"--out: the folder {out} cannot be made ({error.strerror}).") from error
    check_place(out / "table.md")


def _measure(name: str, settings: Settings, path: Path, resume: bool) -> None:
    """Do a run, and write its file."""
    measure, checkpoint = find(name).measure, path.with_suffix(".checkpoint")
    interruptible = "checkpoint" in inspect.signature(measure).parameters
    if not resume:
        checkpoint.unlink(missing_ok=True)
    resumed = checkpoint.exists()
    forget_peak_memory()
    begin = time.perf_counter()
    scores = measure(**settings, **({"checkpoint": checkpoint} if interruptible else {}))
    answer = {
        "experiment": name,
        "settings": settings,
        "scores": scores,
        "seconds": time.perf_counter() - begin,
        "peak_memory": peak_memory(),
        "sswim": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "resumed": resumed,  # then the seconds are those of its last part
    }
    with whole_file(path) as part:
        part.write_text(json.dumps(seal(answer), indent=1) + "\n")
    checkpoint.unlink(missing_ok=True)


@contextmanager
def _claim(path: Path) -> Iterator[bool]:
    """Yield whether a run is ours to do, and keep other processes from it inside.

    The system lets go of a lock when its process ends, however it ends. Where there are no such locks, every run is ours.
    """
    if fcntl is None:
        yield True
        return
    lock = path.with_suffix(".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            lock.unlink(missing_ok=True)


def _record(path: Path, name: str) -> Settings:
    """Return what the file of a run holds, checked."""
    try:
        record = parse_json(path.read_bytes())
        check_type("a run", record, dict[str, object])
        if "checksum" in record and not is_whole(record):  # runs of sswim 0.1 have none
            raise Damaged("it has changed since it was written")
        lacking = [key for key in TYPES if key not in record]
        if lacking:
            raise Damaged(f"it lacks {', '.join(lacking)}")
        for key, kind in TYPES.items():
            check_type(key, record[key], kind)
        check_type("data", record["settings"].get("data", ""), str)
        lacking = [key for key in find(name).order if key not in record["settings"] and key not in record["scores"]]
        if record["experiment"] == name and lacking:
            raise Damaged(f"it lacks {', '.join(lacking)}")
    except Damaged as error:
        raise ValueError(f"{path}: not the file of a run, or damaged ({error}). Remove it, and run again.") from None
    if record["experiment"] != name:
        raise ValueError(f"{path}: a run of {record['experiment']!r}, not of {name!r}. Name another folder.")
    return record


def load_runs(name: str, out: Path, files: Sequence[Path] | None = None) -> pd.DataFrame:
    """Return the runs of an experiment in a folder, one row each: settings, scores, seconds, memory and machine."""
    find(name)
    rows: list[Settings] = []
    settings: dict[str, None] = {}
    for path in sorted((out / "runs").glob("[!.]*.json")) if files is None else files:
        record = _record(path, name)
        rows.append({**record["settings"], **record["scores"], **{key: record[key] for key in ABOUT}})
        settings |= dict.fromkeys(record["settings"])
    if not rows:
        raise ValueError(f"{out}: holds no runs. Run the experiment first.")
    versions = sorted({row["sswim"] for row in rows} - {__version__})
    if versions:
        old = sum(row["sswim"] != __version__ for row in rows)
        warn(
            f"{out}: {old} of {len(rows)} runs are of sswim {', '.join(versions)}, not {__version__}: --again does them anew.",
            stacklevel=2,
        )
    runs = pd.DataFrame(rows)
    runs.attrs["settings"] = list(settings)
    return runs


def render(name: str, out: Path, runs: pd.DataFrame | None = None) -> str:
    """Write the table of an experiment (``table.md``, ``runs.csv``) and its picture from its runs alone; return the table."""
    experiment = find(name)
    runs = experiment.sort(load_runs(name, out) if runs is None else runs)
    text = markdown(experiment.table(runs))
    figure = experiment.draw(runs)
    with whole_file(out / "table.md") as part:
        part.write_text(text + "\n")
    with whole_file(out / "runs.csv") as part:
        runs.to_csv(part, index=False)
    with whole_file(out / "picture.png") as part:
        figure.savefig(part, dpi=130)
    return text


def markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown, numbers with three digits or more."""

    def cell(value: object) -> str:
        if not isinstance(value, float):
            return str(value)
        if pd.isna(value):
            return "-"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"

    lines = ["| " + " | ".join(map(str, table.columns)) + " |", "|" + " --- |" * len(table.columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in table.itertuples(index=False))])
