"""Same seed, same model, on every processor and number of threads: part of the suite runs under each kind that is here."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parent
KINDS = ["DEFAULT", "AVX2", "AVX512"]  # what torch can be made to be, from least to most
NATIVE = torch.backends.cpu.get_cpu_capability()
HERE = KINDS[: KINDS.index(NATIVE) + 1] if NATIVE in KINDS else []
# MKL's own switch works on Intel processors. Its mode for comparable results takes other code on all of them.
INSTRUCTIONS = {
    "DEFAULT": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "MKL_CBWR": "COMPATIBLE"},
    "AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}

# One of each kind: both estimators, all readouts, depth, events, spike trains.
FROZEN = [
    "default",
    "rows",
    "joint",
    "two-layers",
    "paper",
    "paper-two",
    "digits",
    "digits-deep",
    "digits-voltage",
    "digits-spikes",
    "events",
    "sample",
    "spikes-surrogate",
]


def environment(kind):
    """Return the environment of a process that computes as a processor of another kind would."""
    return {**os.environ, "ATEN_CPU_CAPABILITY": kind.lower(), **INSTRUCTIONS.get(kind, {})}


def run(kind, *arguments):
    """Run Python as a processor of another kind would, and require that it succeeds."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment(kind), cwd=FOLDER.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.skipif(not HERE, reason="torch does not know this processor's kind")
def test_models_are_the_same_on_every_processor(tmp_path):
    found = {}
    cases = [(kind, 1) for kind in HERE[:-1]] + [(HERE[-1], 2)] + [(HERE[-1], 1)] * (len(HERE) == 1)
    for kind, threads in cases:
        file = tmp_path / f"{kind}-{threads}.npz"
        run(kind, FOLDER / "fit_for_cpus.py", file, threads)
        found[kind, threads] = np.load(file)
    first = next(iter(found.values()))
    for case, other in found.items():
        for key, value in first.items():
            if key.endswith("/rse"):
                # Output weights are solved from float32 sums, whose last digits differ.
                assert other[key] == pytest.approx(value, rel=2e-3), (case, key)
            else:
                apart = np.abs(other[key] - value).reshape(len(value), -1).max(axis=1)
                differ = apart > 1e-5 * np.abs(value).max()
                assert not differ.any(), f"{case}: {key} of {differ.sum()} of {len(value)} neurons differ"


@pytest.mark.parametrize("kind", HERE[:-1])
def test_part_of_the_suite_passes_as_another_processor(kind):
    kept = [f"{FOLDER / 'test_frozen.py'}::test_predictions_are_those_kept[{name}]" for name in FROZEN]
    run(kind, "-m", "pytest", "-x", "-p", "no:cacheprovider", FOLDER / "test_steps.py", FOLDER / "test_rules.py", *kept)
