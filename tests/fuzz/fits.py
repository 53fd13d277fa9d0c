"""Random fits, predictions and mistakes: everything must end well, or with an error that says what to do.

``python -m tests.fuzz.fits --cases 10000 --seed 0`` prints how they ended, and the first offenders with their seeds;
``python -m tests.fuzz.fits --only SEED`` runs one of them here and shows its traceback.
"""

import argparse
import collections
import multiprocessing
import re
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import sswim
from sswim.options import peak_memory

from .problems import Problem, problem

SECONDS, ROOM, LIMIT = 60.0, 2**30, 12 * 2**30
GOOD = ("ok", "clear error", "no pairs")
BAD = ("unclear error", "accepted a mistake", "not finite", "hang", "memory", "crash")
LIBRARY = str(Path(sswim.__file__).parent)
# What a message may call what it is about: arguments of the estimators and of `sample`, and fields of option objects.
NAMES = """series X Y y row breaks coverage window horizon hidden kernel readout steps channels covariates scaling validation
training missing dtype device memory random_state verbose encoder fields class_weight classes network inputs outputs temporal
input_metric output_metric deeper_metric pairs weights normalizer span depth initial_batch lift population singles blocks traces
common skip stride delays supports regularization assembly loss delta integrate epochs learning_rate batch_size surrogate rate
scale merge kind samples""".split()
RULE = re.compile(
    r"must|should|needs?\b|requires?|cannot|at least|at most|unknown|too |only|not |several|expect|contains|has \d|but "
)


def clear(error: BaseException) -> bool:
    """Return whether an error names an argument, says a rule, and is the library's own or scikit-learn's about its input."""
    if not isinstance(error, (ValueError, TypeError)):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    raised = frames[-1].filename
    if not raised.startswith(LIBRARY) and "/sklearn/utils/" not in raised:
        return False
    lines = str(error).splitlines()
    lines = (
        [line.removeprefix("- ") for line in lines[1:]] if re.match(r"\d+ mistakes:", lines[0] if lines else "") else lines[:1]
    )
    named = re.compile(r"\b(" + "|".join(NAMES) + r")\b")
    return bool(lines) and all(named.search(line) and RULE.search(str(error)) and len(line) > 15 for line in lines)


def finite(value: object) -> bool:
    """Return whether all numbers are finite, in arrays, tensors, frames, and lists of these."""
    if isinstance(value, (list, tuple)):
        return all(finite(v) for v in value)
    if isinstance(value, torch.Tensor):
        return bool(torch.isfinite(value).all())
    return bool(np.isfinite(value.to_numpy() if isinstance(value, pd.DataFrame) else np.asarray(value, dtype=np.float64)).all())


def judged(found: Problem) -> tuple[str, str]:
    """Solve a problem, and return how it ended and what there is to say about it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = found.solve()
    except MemoryError as error:
        return "memory", repr(error)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if clear(error):
            return ("no pairs" if "admissible" in text or "draw a pair" in text else "clear error"), text
        return "unclear error", text + "\n" + "".join(traceback.format_tb(error.__traceback__)[-2:])
    spoiled = [name for name, value in values.items() if not finite(value)]
    if spoiled:
        return "not finite", ", ".join(spoiled)
    return ("accepted a mistake", "") if found.wrong else ("ok", "")


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak is then that of all cases so far


def _work(pipe) -> None:
    """Solve problems as their seeds come through a pipe."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    pipe.send("ready")
    while (seed := pipe.recv()) is not None:
        found = problem(seed)
        _reset_peak()
        outcome, text = judged(found)
        peak = peak_memory() or 0
        if peak > 1.5 * found.memory + ROOM:
            outcome, text = "memory", f"{peak / 1e9:.1f} GB, where memory is {found.memory / 1e9:.3f} GB. {text}"
        pipe.send((outcome, text))


class Worker:
    """A process that solves problems, and is replaced when it hangs or dies."""

    def __init__(self) -> None:
        self._pipe = self._process = None

    def __call__(self, seed: int) -> tuple[str, str]:
        """Return how the problem of a seed ended."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=_work, args=(other,), daemon=True)
            self._process.start()
            other.close()
            self._pipe.recv()  # imports are not part of the first case's time
        self._pipe.send(seed)
        try:
            if self._pipe.poll(SECONDS):
                return self._pipe.recv()
            ended = "hang", f"over {SECONDS:.0f} s"
        except (EOFError, ConnectionResetError):
            self._process.join()
            ended = "crash", f"exit code {self._process.exitcode}"
        self._process.kill()
        self._process = None
        return ended

    def close(self) -> None:
        """Let the process end."""
        if self._process is not None:
            self._pipe.send(None)
            self._process.join()


def run(seeds, solve) -> tuple[collections.Counter, list[tuple[int, str, str]]]:
    """Return how often each ending occurred, and the bad ones with their seeds."""
    counts, offenders = collections.Counter(), []
    for seed in seeds:
        outcome, text = solve(seed)
        counts[outcome] += 1
        if outcome not in BAD:
            counts[re.sub(r"\d[\d.e+-]*|'[^']*'", "#", text)[:60]] += bool(text)
        if outcome in BAD:
            offenders.append((seed, outcome, text))
    return counts, offenders


def _run_here(job) -> tuple[collections.Counter, list, int]:
    first, last, until = job
    worker, counts, offenders, done = Worker(), collections.Counter(), [], 0
    for seed in range(first, last):
        if time.time() > until:
            break
        found, bad = run([seed], worker)
        counts, offenders, done = counts + found, offenders + bad, done + 1
    worker.close()
    return counts, offenders, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this many minutes")
    parser.add_argument("--show", type=int, default=20, help="number of offenders that are shown")
    parser.add_argument("--only", type=int, help="run one problem here, with its traceback")
    chosen = parser.parse_args()
    if chosen.only is not None:
        found = problem(chosen.only)
        print(found)
        print(*judged(found), sep="\n")
        return 0
    begin, until = time.time(), time.time() + 60 * chosen.minutes
    ends = [chosen.seed + chosen.cases * i // chosen.processes for i in range(chosen.processes + 1)]
    jobs = [(a, b, until) for a, b in zip(ends, ends[1:], strict=False)]
    if chosen.processes == 1:
        results = [_run_here(jobs[0])]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(chosen.processes) as pool:
            results = list(pool.map(_run_here, jobs))
    counts = sum((c for c, _, _ in results), collections.Counter())
    offenders, total = [o for _, bad, _ in results for o in bad], sum(done for _, _, done in results)
    print(f"{total} problems from seed {chosen.seed}, {time.time() - begin:.0f} s")
    for name in (*GOOD, *BAD):
        print(f"{name:20}{counts[name]:7}{counts[name] / max(total, 1):9.2%}")
    errors = {name: n for name, n in counts.items() if name not in (*GOOD, *BAD)}
    for name in sorted(errors, key=errors.get, reverse=True)[: chosen.show]:
        print(f"{errors[name]:7}  {name!r}")
    for seed, outcome, text in offenders[: chosen.show]:
        print(f"\n{outcome}: {problem(seed)}\n{text}")
    return 1 if offenders or counts["no pairs"] > 0.15 * total else 0


if __name__ == "__main__":
    sys.exit(main())
