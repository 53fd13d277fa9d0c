"""Damaged and edited files: model files, checkpoints, runs of experiments, tables.

    python -m tests.fuzz.files --cases 2000 --seed 0

prints what became of them, and ends with 1 if anything is bad. A damaged file must be read as it was, or be refused by an error
that names it and says what is wrong. A file that was edited and sealed anew may be another valid one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import io
import json
import math
import random
import re
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as to_bytes

from sswim import Classifier, Forecaster, Gradient, SpikingNetwork, finetune, initialize
from sswim.data import ExactEvents
from sswim.datasets import read_series
from sswim.experiments.catalogue import find
from sswim.experiments.runner import forget_peak_memory, load_runs
from sswim.options import peak_memory
from sswim.report import TrainingDiverged
from sswim.sealed import seal

OUTCOMES = ("ok", "clear error", "another", "unclear error", "silently different", "hang", "memory")
BAD = OUTCOMES[3:]
SECONDS, ROOM = 60, 2**30
RAW = (AttributeError, LookupError, RecursionError, MemoryError, NameError, NotImplementedError, RuntimeError)
WORDS = re.compile(
    r"has no attribute|out of range|unexpected keyword|missing \d+ required|NoneType|not subscriptable|not iterable|unhashable|"
    r"unsupported operand|expected .*Tensor|size mismatch for|can't allocate|must match the size|"
    r"mat1 and mat2|cannot be multiplied"
)
# Values of every type and size, to stand where others are expected.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 10**9, 2**63, 10**400, 0.5, -0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf,
    "", "x", "é\ud800", "x" * 1000, "cuda", "/tmp/somewhere", [], {}, [[]], [1, 2, 3], {"tuple": []}, {"tuple": [1, None]},
    {"dict": []}, {"dict": [[[], 1]]}, {"dict": [["a", 1], ["a", 2]]}, {"tensor": "nowhere"}, {"tensor": 3},
    {"array": "nowhere"},
    {"labels": ["a", "b"], "text": True}, {"labels": [None], "text": False}, {"labels": "ab", "text": True}, {"unsaved": "x"},
    {"unsaved": 3}, {"class": "os.system", "fields": {}}, {"class": "Hat", "fields": {}}, {"class": "Hat", "fields": []},
    {"class": "Morlet", "fields": {"decay": math.inf}}, {"class": "Morlet", "fields": {"decay": "x"}},
    {"class": "Population", "fields": {"neurons": 10**9}}, {"class": "Gradient", "fields": {"checkpoint": "/tmp/somewhere"}},
    {"class": "FunctionKernel", "fields": {"function": {"class": "Hat", "fields": {}}, "peak": 0.0, "breaks": None}},
    {"network": "model.network", "settings": None}, {"network": "", "settings": {}},
]  # fmt: skip


class Hang(BaseException):
    """A case that takes too long."""


@dataclass
class Case:
    """One damaged file: what it is, what was done to it, and what reading it comes to."""

    kind: str
    damage: str
    suffix: str
    data: bytes
    read: Callable[[Path], Any]
    answer: Any
    may_differ: bool = False
    must_fail: bool = False


# --- what is damaged ------------------------------------------------------------------------------------------------


def waves(rows: int = 120) -> pd.DataFrame:
    """Return a small series of three channels."""
    t, rng = np.arange(rows)[:, None], np.random.default_rng(0)
    values = 10 + np.sin(2 * np.pi * t / np.array([12, 17, 30])) + 0.1 * rng.standard_normal((rows, 3))
    return pd.DataFrame(values, columns=["a", "b", "c"], index=pd.date_range("2024-01-01", periods=rows, freq="h", name="time"))


@functools.cache
def models() -> list[tuple[bytes, Callable[[Path], Any]]]:
    """Return files of small models, each with what it is read by: everything that it tells."""
    x = waves()
    forecasters = [
        Forecaster(12, 4, hidden=(5,), random_state=0, verbose=0),
        Forecaster(12, 4, hidden=(5, 3), channels="joint", covariates=("c",), dtype="float64", random_state=0, verbose=0),
        Forecaster.paper(12, 4, hidden=(8,), training=Gradient(epochs=1), random_state=0, verbose=0),
    ]
    rng = np.random.default_rng(0)
    images, labels = rng.random((40, 6)), np.array(["cat", "dog"])[np.arange(40) % 2]
    events = [(np.sort(rng.random(9) * 20), rng.integers(0, 5, 9)) for _ in range(40)]
    classifiers = [
        (Classifier((8,), random_state=0, verbose=0), images, labels),
        (Classifier.paper((8,), readout="spikes", random_state=0, verbose=0), images, np.arange(40) % 3),
        (Classifier((6,), encoder=ExactEvents(steps=20, inputs=5), random_state=0, verbose=0), events, labels),
    ]

    def forecast(path: Path) -> Any:
        model = Forecaster.load(path)
        answer = [model.predict(x).to_numpy(), model.predict_windows(x), str(model.summary())]
        return [*answer, *(model.predict_interval(x) if model.model_.has_intervals else ())]

    def classify(X: Any) -> Callable[[Path], Any]:
        def read(path: Path) -> Any:
            model = Classifier.load(path)
            return [model.predict_proba(X), model.predict(X), str(model.summary())]

        return read

    def go_on(path: Path) -> Any:
        model = Forecaster.load(path)
        if model.report_.solution.record is None:
            raise ValueError(f"{path}: has no sums.")
        return [model.partial_fit(x.to_numpy()[:8]).predict(x).to_numpy(), model.predict_interval(x)[0]]

    found = [(saved(model.fit(x)), forecast) for model in forecasters]
    found += [(saved(model, updatable=True), go_on) for model in forecasters[:2]]
    return found + [(saved(model.fit(X, y)), classify(X)) for model, X, y in classifiers]


def saved(model: Any, **options: Any) -> bytes:
    """Return the bytes of a model's file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "m.sswim", **options)
        return (Path(folder) / "m.sswim").read_bytes()


def train(path: Path | None, callback: Callable[..., Any] | None = None) -> list[np.ndarray]:
    """Train a small network, perhaps from a checkpoint on, and return its parameters."""
    x = torch.rand(40, 8, 2, generator=torch.Generator().manual_seed(0))
    network = SpikingNetwork(inputs=2, outputs=1, window=8, horizon=2, hidden=(4,))
    initialize(network, x, random_state=0)
    finetune(network, x, x[:, -2:, :1], epochs=3, batch_size=16, checkpoint=path, callback=callback)
    return [p.detach().numpy() for p in network.parameters()]


@functools.cache
def checkpoint() -> bytes:
    """Return a checkpoint after the first of three epochs."""
    with tempfile.TemporaryDirectory() as folder:
        path, kept = Path(folder) / "c", []

        def keep(record: Any) -> None:
            if record.epoch == 2:
                kept.append(path.read_bytes())

        train(path, keep)
        return kept[0]


@functools.cache
def runs() -> list[bytes]:
    """Return the files of runs of an experiment."""
    cells = [
        {"data": "wind-farm", "model": "sswim", "training": "sample", "horizon": h, "seed": s} for h in (6, 24) for s in (0, 1)
    ]
    about = {"seconds": 1.5, "peak_memory": 10**8, "sswim": "0.1.0", "torch": "2", "machine": "Linux", "threads": 1}
    names = find("forecasting").order
    found = []
    for number, cell in enumerate(cells):
        settings = {**dict.fromkeys(names, "x"), **cell}
        scores = {"rse": 0.25 + number / 100, "mae": 1.5, "fit_seconds": 2.0}
        record = {"experiment": "forecasting", "settings": settings, "scores": scores, **about, "resumed": False}
        found.append((json.dumps(seal(record), indent=1) + "\n").encode())
    return found


def read_run(path: Path) -> Any:
    """Return the runs of a folder that holds the damaged one and whole ones."""
    folder = path.parent / "runs"
    folder.mkdir(exist_ok=True)
    for number, data in enumerate(runs()[1:]):
        (folder / f"{number}.json").write_bytes(data)
    (folder / path.name).write_bytes(path.read_bytes())
    found = find("forecasting").sort(load_runs("forecasting", path.parent))
    return [found.astype(str).to_numpy()]


# --- damage to bytes ------------------------------------------------------------------------------------------------


def flip(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        # The header is as likely as all numbers.
        at = rng.randrange(min(len(out), rng.choice([8, 200, 4000, len(out), len(out)])))
        out[at] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(rng.choice([10, 1000, len(data)]))]


def extend(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.choice([1, 8, 1000]))


def blank(data: bytes, rng: random.Random) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice([1, 8, 512, 4096])
    return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]


def exchange(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 8, 512])
    a, b = sorted(rng.sample(range(0, max(len(data) - size, 2)), 2))
    if b - a < size:
        return data
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def noise(data: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"", rng.randbytes(rng.randrange(1, 2000)), b"PK\x03\x04" + data, struct.pack("<Q", 2**62) + data[8:]])


BYTES = (flip, flip, flip, cut, extend, blank, exchange, noise)


# --- damage to JSON and tensors, sealed anew or not -----------------------------------------------------------------


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place inside JSON: what holds it, and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from places(item)


def edit_json(value: Any, rng: random.Random) -> tuple[Any, str]:
    """Change JSON at one place, and tell what was done."""
    value = copy.deepcopy(value)
    found = list(places(value))
    if not found:
        return rng.choice(ODD), "replace all"
    holder, key = rng.choice(found)
    damage = rng.choice(["remove", "replace", "replace", "replace", "retype", "nest", "add", "exchange"])
    if damage == "remove":
        del holder[key]
    elif damage == "replace":
        holder[key] = copy.deepcopy(rng.choice(ODD))
    elif damage == "retype":
        old = holder[key]
        holder[key] = rng.choice([str(old), [old], {"tuple": [old]}, {"x": old}, -old if isinstance(old, (int, float)) else {}])
    elif damage == "nest":
        for _ in range(rng.choice([3, 60, 300])):
            holder[key] = [holder[key]]
    elif damage == "add":
        inside = holder[key] if isinstance(holder[key], (dict, list)) else holder
        if isinstance(inside, dict):
            inside[rng.choice(["more", "checkpoint", "device", "n_jobs"])] = copy.deepcopy(rng.choice(ODD))
        else:
            inside.append(copy.deepcopy(rng.choice([*ODD, *inside])))
    else:
        other, place = rng.choice(found)
        holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
    return value, f"{damage} {key}"


def edit_tensors(tensors: dict[str, torch.Tensor], rng: random.Random) -> str:
    """Change a tensor, and tell how."""
    name = rng.choice(sorted(tensors))
    tensor, other = tensors[name], rng.choice(sorted(tensors))
    damage = rng.choice(
        ["remove", "add", "exchange", "nan", "infinity", "huge", "dtype", "shape", "longer", "shorter", "empty"]
    )
    if damage == "remove":
        del tensors[name]
    elif damage == "add":
        tensors[name + rng.choice([".more", "x"])] = tensor.clone()
    elif damage == "exchange":
        tensors[name], tensors[other] = tensors[other].clone(), tensor.clone()
    elif damage in ("nan", "infinity", "huge") and tensor.is_floating_point() and tensor.numel():
        tensors[name] = tensor.clone()
        number = {"nan": math.nan, "infinity": math.inf, "huge": 1e30}[damage] * rng.choice([1, -1])
        tensors[name].view(-1)[rng.randrange(tensor.numel())] = number
    elif damage == "dtype":
        kinds = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool, torch.bfloat16]
        tensors[name] = tensor.to(rng.choice(kinds))
    elif damage == "shape":
        tensors[name] = rng.choice(
            [tensor.flatten(), tensor[None], tensor.T.contiguous() if tensor.ndim == 2 else tensor[..., None]]
        )
    elif damage == "longer":
        tensors[name] = torch.cat([tensor, tensor]) if tensor.ndim else tensor.repeat(3)
    elif damage == "shorter":
        tensors[name] = tensor[: len(tensor) // 2].clone() if tensor.ndim else tensor.repeat(0)
    else:
        tensors[name] = torch.zeros(rng.choice([(0,), (10**9, 0), (0, 3), ()]), dtype=tensor.dtype)
    return f"{damage} {name}"


def edited(data: bytes, name: str, rng: random.Random) -> tuple[bytes, str, bool]:
    """Return a file with a changed header or tensors, what was done, and whether the checksum is that of the change."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][name])
    tensors, told = tensors_of(data), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.7:
            header, damage = edit_json(header, rng)
        else:
            damage = edit_tensors(tensors, rng)
        told.append(damage)
        if not tensors:
            break
    sealed = rng.random() < 0.7
    if sealed and isinstance(header, dict):
        header = seal(header, {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in tensors.items()})
    text = json.dumps(header)
    if rng.random() < 0.03:
        text, sealed = '{"kind": 1, ' + text[1:], False  # named twice
        told.append("twice")
    return to_bytes({k: v.contiguous() for k, v in tensors.items()}, metadata={name: text}), ", ".join(told), sealed


# --- tables ---------------------------------------------------------------------------------------------------------


def table_text() -> str:
    return waves(60).round(3).to_csv(date_format="%Y-%m-%d %H:%M")


def insert(text: str, line: int, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    lines[line] = change(lines[line])
    return "\n".join(lines)


def european(text: str) -> str:
    return text.replace(".", "#").replace(",", ";").replace("#", ",")


# Each maps the text of a table and a line to bytes; the first ones leave it the same table, the others must be refused.
SAME: dict[str, Callable[[str, int], bytes]] = {
    "byte order mark": lambda t, n: t.encode("utf-8-sig"),
    "Windows": lambda t, n: t.replace("\n", "\r\n").encode(),
    "old Mac": lambda t, n: t.replace("\n", "\r").encode(),
    "semicolons": lambda t, n: t.replace(",", ";").encode(),
    "tabs": lambda t, n: t.replace(",", "\t").encode(),
    "bars": lambda t, n: t.replace(",", "|").encode(),
    "decimal commas": lambda t, n: european(t).encode(),
    "quotes": lambda t, n: re.sub(r"[^,\n]+", r'"\g<0>"', t).encode(),
    "empty lines at the end": lambda t, n: t.encode() + b"\n\n  \n",
    "an empty line": lambda t, n: insert(t, n, lambda line: line + "\n").encode(),
}
WRONG: dict[str, Callable[[str, int], bytes]] = {
    "short line": lambda t, n: insert(t, n, lambda line: line.rsplit(",", 1)[0]).encode(),
    "short line, semicolons": lambda t, n: european(insert(t, n, lambda line: line.rsplit(",", 1)[0])).encode(),
    "long line": lambda t, n: insert(t, n, lambda line: line + ",7").encode(),
    "long lines": lambda t, n: t.replace("\n", ",7\n").replace(",7\n", "\n", 1).encode(),
    "short lines": lambda t, n: re.sub(r",[^,\n]*\n", "\n", t).replace("time,a,b", "time,a,b,c", 1).encode(),
    "cut": lambda t, n: t[: t.index("\n", len(t) // 2) - 8].rsplit(",", 1)[0].encode(),
    "mixed delimiters": lambda t, n: insert(t, n, lambda line: line.replace(",", ";")).encode(),
    "NUL": lambda t, n: insert(t, n, lambda line: line[:-2] + "\0" + line[-2:]).encode(),
    "UTF-16": lambda t, n: t.encode("utf-16"),
    "Latin-1": lambda t, n: t.replace("a,b", "Öl,b").encode("latin-1"),
    "binary": lambda t, n: t[: n * 20].encode() + bytes(range(256)) + t[n * 20 :].encode(),
    "empty": lambda t, n: b"",
    "blank": lambda t, n: b" \n\n",
    "header alone": lambda t, n: t.split("\n")[0].encode(),
    "open quote": lambda t, n: insert(t, n, lambda line: line.replace(",", ',"', 1)).encode(),
    "text": lambda t, n: insert(t, n, lambda line: re.sub(r",[^,]*$", ",off", line)).encode(),
    "too large": lambda t, n: insert(t, n, lambda line: re.sub(r",[^,]*$", ",1e999", line)).encode(),
    "column twice": lambda t, n: t.replace("a,b", "b,b", 1).encode(),
    "no time": lambda t, n: insert(t, n, lambda line: re.sub(r"^[^,]*", "", line)).encode(),
    "another time": lambda t, n: insert(t, n, lambda line: re.sub(r"^[^,]*", "noon", line)).encode(),
    "mixed dates": lambda t, n: insert(t, n, lambda line: re.sub(r"^[^,]*", "13.02.24 at 7", line)).encode(),
    "semicolons with commas": lambda t, n: insert(european(t), n, lambda line: line.replace(";", ",")).encode(),
}


def other_formats(rng: random.Random) -> tuple[str, bytes]:
    """Return an npz or Parquet file of the table."""
    frame, out = waves(60).round(3), io.BytesIO()
    if rng.random() < 0.5:
        np.savez_compressed(out, x=frame.to_numpy(), columns=list(frame), start=str(frame.index[0]), step_minutes=60)
        return ".npz", out.getvalue()
    frame.to_parquet(out)
    return ".parquet", out.getvalue()


def read_table(path: Path) -> Any:
    frame = read_series(path)
    return [frame.to_numpy(dtype=float), frame.index.astype(str).to_numpy(), np.array(list(map(str, frame)))]


def table_case(rng: random.Random) -> Case:
    answer = table_answer()
    if rng.random() < 0.2:
        suffix, data = other_formats(rng)
        damage = rng.choice(BYTES)
        return Case("table", f"{damage.__name__} {suffix}", suffix, damage(data, rng), read_table, answer, may_differ=True)
    text, line = table_text(), rng.randrange(1, 60)
    if rng.random() < 0.2:
        damage = rng.choice(BYTES)
        return Case("table", damage.__name__, ".csv", damage(text.encode(), rng), read_table, answer, may_differ=True)
    table = rng.choice([SAME, WRONG, WRONG])
    name = rng.choice(list(table))
    return Case("table", name, ".csv", table[name](text, line), read_table, answer, must_fail=table is WRONG)


@functools.cache
def table_answer() -> Any:
    return answered(table_text().encode(), ".csv", read_table)


# --- cases and what becomes of them ---------------------------------------------------------------------------------


def answered(data: bytes, suffix: str, read: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"subject{suffix}"
        path.write_bytes(data)
        return read(path)


@functools.cache
def model_answer(number: int) -> Any:
    return answered(models()[number][0], ".sswim", models()[number][1])


def model_case(rng: random.Random) -> Case:
    number = rng.randrange(len(models()))
    data, read = models()[number]
    if rng.random() < 0.4:
        damage = rng.choice(BYTES)
        return Case("model", f"{number}: {damage.__name__}", ".sswim", damage(data, rng), read, model_answer(number))
    data, told, sealed = edited(data, "sswim", rng)
    kind = "model, sealed anew" if sealed else "model"
    return Case(kind, f"{number}: {told}", ".sswim", data, read, model_answer(number), may_differ=sealed)


@functools.cache
def trained() -> Any:
    return train(None)


def checkpoint_case(rng: random.Random) -> Case:
    if rng.random() < 0.4:
        damage = rng.choice(BYTES)
        return Case("checkpoint", damage.__name__, ".checkpoint", damage(checkpoint(), rng), train, trained())
    data, told, sealed = edited(checkpoint(), "sswim-training", rng)
    kind = "checkpoint, sealed anew" if sealed else "checkpoint"
    return Case(kind, told, ".checkpoint", data, train, trained(), may_differ=sealed)


def run_case(rng: random.Random) -> Case:
    data, answer = runs()[0], run_answer()
    if rng.random() < 0.4:
        damage = rng.choice(BYTES)
        return Case("run", damage.__name__, ".json", damage(data, rng), read_run, answer)
    record, told = edit_json(json.loads(data), rng)
    # Without a checksum, as older files and those written by hand are, the file is believed.
    free = isinstance(record, dict) and "checksum" not in record
    if rng.random() < 0.7 and isinstance(record, dict):
        record, free = seal(record), True
    kind = "run, sealed anew" if free else "run"
    return Case(kind, told, ".json", json.dumps(record).encode(), read_run, answer, may_differ=free)


@functools.cache
def run_answer() -> Any:
    return answered(runs()[0], ".json", read_run)


MAKERS = (model_case, model_case, model_case, checkpoint_case, run_case, table_case, table_case)


def make(seed: int, number: int) -> Case:
    """Return a case by its number: the same one, but for the seconds of a fit that a model file tells."""
    rng = random.Random(f"{seed} {number}")
    return rng.choice(MAKERS)(rng)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, (np.ndarray, pd.DataFrame)):
        return type(a) is type(b) and a.shape == b.shape and bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return bool(a == b)


def is_clear(error: BaseException, path: Path) -> bool:
    """Return whether an error is one that a user understands: it names the file, unless the file was read."""
    known = isinstance(error, (ValueError, OSError, TrainingDiverged))
    raw = isinstance(error, RAW) or isinstance(error.__cause__, RAW) or not known
    read = any(frame.name in ("load", "read_series", "load_runs") for frame in traceback.extract_tb(error.__traceback__))
    return not raw and not WORDS.search(str(error)) and (str(path.stem) in str(error) or not read)


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Raise `Hang` inside after a minute."""

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(case: Case) -> tuple[str, str]:
    """Return what becomes of a case, and the error if there is one."""
    forget_peak_memory()
    start = peak_memory() or 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"subject{case.suffix}"
        path.write_bytes(case.data)
        try:
            with limits():
                found = case.read(path)
        except Hang:
            return "hang", ""
        except Exception as error:  # every kind is counted
            told = f"{type(error).__name__}: {error}"
            if (peak_memory() or 0) - start > ROOM:
                return "memory", told
            return ("clear error" if is_clear(error, path) else "unclear error"), told
    if (peak_memory() or 0) - start > ROOM:
        return "memory", ""
    if equal(case.answer, found):
        return ("silently different", "read without an error") if case.must_fail else ("ok", "")
    return ("another" if case.may_differ else "silently different"), ""


def count(cases: int, seed: int, first: int = 0, tell: Callable[[str], None] = lambda text: None) -> dict[str, Counter[str]]:
    """Return how many cases of each kind came to what; `tell` is called with what is bad."""
    counts: dict[str, Counter[str]] = {}
    for number in range(first, first + cases):
        case = make(seed, number)
        result, error = outcome(case)
        counts.setdefault(case.kind, Counter())[result] += 1
        if result in BAD:
            tell(f"{result}: case {number} of seed {seed}, {case.kind} ({case.damage}) {error[:300]}")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    counts = count(args.cases, args.seed, args.first, lambda text: print(text, file=sys.stderr, flush=True))
    table = pd.DataFrame(counts, index=list(OUTCOMES)).fillna(0).astype(int).T.sort_index()
    table.loc["all"] = table.sum()
    print(table.to_string())
    return int(table.loc["all", list(BAD)].sum() > 0)


if __name__ == "__main__":
    sys.exit(main())
