"""A stand-in for the Spiking Heidelberg Digits at their size, and a fit of it.

``python benchmarks/shd_size.py make --folder FOLDER`` writes ``shd_train.h5`` and ``shd_test.h5`` in SHD's format: 8,156 and
2,264 recordings of about 8,000 events each on 700 channels. They are spoken digits (FSDD) through the cochlea model. Each
recording comes several times: with other filters, at another speed, and backwards for the labels 10 to 19. All last 1.03 to
1.37 s. The test set has speakers of its own.

``python benchmarks/shd_size.py fit --folder FOLDER [--out FILE]`` reads these files with `load_shd` and fits the paper's
classifier as ``sswim classify shd --paper --hidden 1000`` does. Accuracies must not be compared with those on SHD.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from sswim import Classifier
from sswim.data import Cochlea
from sswim.datasets import load_shd
from sswim.datasets.audio import FILE
from sswim.datasets.classified import CLASSIFIED
from sswim.machine import peak_memory

SIZES = {"train": 8156, "test": 2264}
TEST_SPEAKERS = ("theo", "yweweler")
LONGEST = 1.37  # seconds, as in SHD
# One for each time that a recording is repeated, both ways.
COCHLEAS = [
    Cochlea(channels=700, low=low, high=high, floor=floor, fastest=fastest)
    for low, high, floor, fastest in ((80, 3600, 0.1, 120), (70, 3300, 0.12, 128), (95, 3850, 0.09, 114))
]


def events_of(job):
    """Return times, units and label of one recording, repeated for the `turn`-th time."""
    audio, digit, turn, number = job
    backwards, rng = turn % 2, np.random.default_rng([number, turn])
    times, units = COCHLEAS[turn // 2](audio[::-1] if backwards else audio, 8000.0)
    # The paper's output reads what neurons do at the end of the window: recordings must reach it.
    times *= rng.uniform(0.75, 1) * LONGEST / times.max()
    return times.astype(np.float16), units.astype(np.uint16), digit + 10 * backwards


def jobs(source, part, count):
    """Return the recordings of a part, in random order."""
    data = np.load(source / FILE)
    first = np.cumsum(data["length"]) - data["length"]
    own = np.flatnonzero(np.isin(data["speaker"], TEST_SPEAKERS) == (part == "test"))
    order = np.concatenate([np.random.default_rng([len(own), turn]).permutation(own) for turn in range(2 * len(COCHLEAS))])
    turns = np.repeat(np.arange(2 * len(COCHLEAS)), len(own))
    chosen = np.random.default_rng(SIZES[part]).permutation(min(SIZES[part], len(order)))[:count]
    audio = data["audio"]
    for place in chosen.tolist():
        n = int(order[place])
        yield audio[first[n] : first[n] + data["length"][n]], int(data["label"][n]), int(turns[place]), n


def make(folder, source, sizes):
    """Write both files."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    workers, found = len(os.sched_getaffinity(0)), {}
    for part, count in sizes.items():
        begin, total, labels = time.perf_counter(), 0, []
        with ProcessPoolExecutor(workers) as pool, h5py.File(folder / f"shd_{part}.h5", "w") as file:
            times = file.create_dataset("spikes/times", (count,), dtype=h5py.vlen_dtype(np.float16))
            units = file.create_dataset("spikes/units", (count,), dtype=h5py.vlen_dtype(np.uint16))
            for n, (time_, unit, label) in enumerate(pool.map(events_of, jobs(source, part, count), chunksize=8)):
                times[n], units[n] = time_, unit
                labels.append(label)
                total += len(time_)
            file["labels"] = np.array(labels, dtype=np.uint16)
        found[part] = {"recordings": len(labels), "events": total, "seconds": time.perf_counter() - begin}
    return found


def fit(folder, samples, neurons, memory):
    """Load, fit and predict."""
    begin = time.perf_counter()
    X, y, test_X, test_y = load_shd(folder)
    loaded = time.perf_counter()
    X, y, test_X, test_y = X[:samples], y[:samples], test_X[:samples], test_y[:samples]
    model = Classifier.paper((neurons,), **CLASSIFIED["shd"].paper, random_state=0, verbose=0, memory=memory).fit(X, y)
    fitted, peak = time.perf_counter(), peak_memory()
    decisions = model.decision_function(test_X)
    predicted = time.perf_counter()
    events = [sum(len(times) for times, _ in some) for some in (X, test_X)]
    return {
        "recordings": {"train": len(X), "test": len(test_X)},
        "events": dict(zip(SIZES, events, strict=True)),
        "neurons": neurons,
        "channels": model.network_.inputs,
        "steps": model.network_.window,
        "traces": model.report_.solution.traces,
        "load_seconds": loaded - begin,
        "fit_seconds": fitted - loaded,
        "predict_seconds": predicted - fitted,
        "steps_seconds": {step.name: step.seconds for step in model.report_.steps},
        "fit_peak_gib": peak / 2**30,
        "peak_gib": peak_memory() / 2**30,
        "test_accuracy": float((model.classes_[decisions.argmax(axis=1)] == test_y).mean()),
        "decisions": hashlib.sha256(decisions.tobytes()).hexdigest()[:16],
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("make", "fit"))
    parser.add_argument("--folder", type=Path, required=True, help="Of the two files.")
    parser.add_argument("--source", type=Path, default=os.environ.get("SSWIM_DATA"), help=f"make: folder of {FILE}.")
    parser.add_argument("--train", type=int, default=SIZES["train"], help="make: number of training recordings.")
    parser.add_argument("--test", type=int, default=SIZES["test"], help="make: number of test recordings.")
    parser.add_argument("--samples", type=int, help="fit: use this many first recordings of each file only.")
    parser.add_argument("--hidden", type=int, default=1000)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--out", type=Path, help="Where the figures go, as JSON.")
    chosen = parser.parse_args()
    if chosen.task == "make":
        if chosen.source is None:
            parser.error(f"--source: the folder of {FILE} is needed, or set SSWIM_DATA to it.")
        result = make(chosen.folder, Path(chosen.source), {"train": chosen.train, "test": chosen.test})
    else:
        result = fit(chosen.folder, chosen.samples, chosen.hidden, chosen.memory)
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n")
