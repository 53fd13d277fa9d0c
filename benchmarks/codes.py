r"""What different spike codes of a channel bring for forecasting, and how many spikes they take.

    SSWIM_DATA=... python benchmarks/codes.py --out benchmarks/results/codes.json

Every channel of a window of 336 rows is a sample, relative to the window's mean and in units of its deviation. A code turns it
into spikes, and one ridge regression, shared by all channels, maps these to the next 96 rows. Parts and units are those of the
long-term benchmark (`sswim.evaluate.ltsf`). The ridge is fitted on training windows, and its penalty is the one with the least
validation error. All validation and test windows count. Nothing is random.

The fit counts errors in standardised units, too. In units of the window, a window in which a channel hardly moves (no rain for
two days, then rain) has a huge target, and a few of them would decide the fit. Training rows are clipped to the bounds of
`find_outliers`, because 81 values of `weather` are -9999. All other rows are as in the file.

Codes of a *running level* encode each row once, when it comes: relative to running means of the channel and of its squared
distance from the former. A stream need not encode the whole window anew for each forecast, so its spikes are those of one row.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sswim.bench.measure import setting
from sswim.data.statistics import find_outliers
from sswim.datasets.ltsf import load_ltsf, ltsf_set
from sswim.evaluate.ltsf import split_ltsf
from sswim.network.population import Population
from sswim.readout.lags import lag_bins

SETS = ("ETTh1", "exchange_rate", "weather", "wind-farm")
WINDOW, HORIZON = 336, 96
# Training samples (windows of a channel), about: of more, every n-th window is used.
SAMPLES = 50_000
PENALTIES = torch.logspace(-6, 2, 33, dtype=torch.float64)
# Penalties whose validation error is higher by less than this part count as equally good in `test_near`.
NEAR = 0.005
# Size of single neurons' features compared with the lags: a smaller one is shrunk more by the ridge.
SINGLE = 0.3

# Features (samples, features), and the number of spikes of each sample (samples,).
Coded = tuple[Tensor, Tensor]
Code = Callable[[Tensor], Coded]


def rows(z: Tensor) -> Coded:
    """Return samples (samples, window) as they are: a linear model without spikes."""
    return z, torch.zeros(len(z))


def levels(z: Tensor, neurons: int = 64, signed: bool = False) -> Coded:
    """Return how many neurons with evenly spaced thresholds from -4 to 4 fire, at every lag.

    If `signed`, neurons with a threshold below 0 see the negative of the sample: they fire where they otherwise would not. The
    features are the same, but a value near the mean takes few spikes.
    """
    population = Population(neurons)
    counts = population.counts(z)
    return population.rounded(z), (counts - neurons / 2 if signed else counts).abs().sum(dim=1)


def differences(z: Tensor) -> Tensor:
    """Return the changes since the last step; the first is 0."""
    return torch.diff(z, dim=1, prepend=z[:, :1])


def level_changes(z: Tensor, step: float = 1 / 16) -> Coded:
    """Return how many of 32 neurons for each sign fire at a change since the last step, and the levels at the last step."""
    counts = (differences(z) / step).round().clamp(-32, 32)
    last, spikes = levels(z[:, -1:])
    return torch.cat([step * counts, last], dim=1), counts.abs().sum(dim=1) + spikes


def self_inhibited(z: Tensor, constant: float, neurons: int = 8) -> Coded:
    """Return the traces of neurons that each inhibit themselves by the same decaying exponential, at every lag.

    There are `neurons` for each sign: some see the sample, the others its negative. A neuron fires if its input, less what is
    left of its own spikes, reaches its threshold. The output reads the mean trace of one sign less that of the other.
    """
    keep, thresholds = math.exp(-1 / constant), (torch.arange(neurons) + 0.5) / neurons
    signed = torch.stack([z, -z], dim=1)  # (samples, 2, window)
    trace, spikes, read = torch.zeros(len(z), 2, neurons), torch.zeros(len(z)), []
    for t in range(z.shape[1]):
        fired = (signed[:, :, t, None] - keep * trace >= thresholds).float()
        trace = keep * trace + fired
        spikes += fired.sum(dim=(1, 2))
        read.append((trace[:, 0] - trace[:, 1]).mean(dim=1))
    return torch.stack(read, dim=1), spikes


def delta_modulator(z: Tensor, step: float, constant: float = 24.0, most: int = 16) -> Coded:
    """Return the trace that spikes of both signs keep near the sample, at every lag.

    Each spike moves the common trace by `step`, at most `most` of them in a step of time, and the trace decays exponentially.
    """
    keep = math.exp(-1 / constant)
    trace, spikes, read = torch.zeros(len(z)), torch.zeros(len(z)), []
    for t in range(z.shape[1]):
        fired = ((z[:, t] - keep * trace) / step).round().clamp(-most, most)
        trace = keep * trace + step * fired
        spikes += fired.abs()
        read.append(trace)
    return torch.stack(read, dim=1), spikes


def in_bins(spikes: Tensor) -> Tensor:
    """Return how often each neuron of (samples, window, neurons) fires in bins of lags, as features."""
    ends, latest_first = lag_bins(spikes.shape[1]), spikes.float().flip(1)
    return SINGLE * torch.cat([latest_first[:, a:b].mean(dim=1) for a, b in zip(ends, ends[1:], strict=False)], dim=1)


def single_neurons(z: Tensor) -> Coded:
    """Return 8 neurons of the population in bins of lags. The population fires anyway, so they cost no spikes."""
    population = Population(64)
    return in_bins(z[:, :, None] >= population.thresholds[population.spread_out(8)].to(z)), torch.zeros(len(z))


def single_changes(z: Tensor) -> Coded:
    """Return 8 neurons that see changes since the last step, in bins of lags: 4 for each sign."""
    change, thresholds = differences(z)[:, :, None], torch.tensor([0.1, 0.25, 0.5, 1.0])
    fired = torch.cat([change >= thresholds, -change >= thresholds], dim=2)
    return in_bins(fired), fired.sum(dim=(1, 2)).float()


def together(*codes: Code) -> Code:
    """Return the code that has the features and the spikes of several."""

    def code(z: Tensor) -> Coded:
        features, spikes = zip(*(each(z) for each in codes), strict=True)
        return torch.cat(features, dim=1), torch.stack(spikes).sum(dim=0)

    return code


CODES: dict[str, Code] = {
    "rows, no spikes": rows,
    "levels": levels,
    "levels, 16 neurons": partial(levels, neurons=16),
    "levels of both signs": partial(levels, signed=True),
    "levels of both signs, 16 neurons": partial(levels, neurons=16, signed=True),
    "level changes": level_changes,
    "self-inhibited, 2 steps": partial(self_inhibited, constant=2.0),
    "self-inhibited, 4 steps": partial(self_inhibited, constant=4.0),
    "delta modulator, step 1/4": partial(delta_modulator, step=1 / 4),
    "delta modulator, step 1/8": partial(delta_modulator, step=1 / 8),
    "levels + single neurons": together(levels, single_neurons),
    "levels + single changes": together(levels, single_changes),
    "levels + both": together(levels, single_neurons, single_changes),
}


class Sums(NamedTuple):
    """Products (1 + features + horizon, same) of one, features and targets, the spikes, and the number of samples."""

    products: Tensor
    spikes: float
    samples: int


def add_up(series: np.ndarray, code: Code, every: int = 1) -> Sums:
    """Return the sums of all windows of standardised rows (rows, channels), or of every n-th."""
    products, spikes, samples = torch.zeros(1, 1, dtype=torch.float64), 0.0, 0
    for channel in torch.from_numpy(series).T:
        windows = channel.unfold(0, WINDOW + HORIZON, every)  # (samples, window + horizon)
        mean = windows[:, :WINDOW].mean(dim=1, keepdim=True)
        x, y = (windows - mean).split([WINDOW, HORIZON], dim=1)
        unit = x.square().mean(dim=1, keepdim=True).sqrt()
        unit = torch.where(unit > 1e-9, unit, 0.0)  # a window that rests is forecast to stay at its mean
        z = torch.where(unit > 0, x / unit, 0.0)
        features, fired = code(z.float())
        table = torch.cat([unit, unit * features.double(), y], dim=1)
        products = products + table.T @ table
        spikes, samples = spikes + float(fired.double().sum()), samples + len(table)
    return Sums(products, spikes, samples)


def running_mean(x: Tensor, constant: float) -> Tensor:
    """Return the running mean of rows (rows,), a decaying exponential with a time constant; it begins with the first row."""
    keep, mean, found = math.exp(-1 / constant), x[0], []
    for value in x:
        mean = keep * mean + (1 - keep) * value
        found.append(mean)
    return torch.stack(found)


def add_up_running(series: np.ndarray, constant: float, every: int = 1) -> Sums:
    """Return the sums of all windows, of rows that are encoded once: by 64 neurons, relative to running level and deviation."""
    products, spikes, samples = torch.zeros(1, 1, dtype=torch.float64), 0.0, 0
    for channel in torch.from_numpy(series).T:
        level = running_mean(channel, constant)
        unit = running_mean((channel - level).square(), constant).sqrt()
        z = torch.where(unit > 1e-9, (channel - level) / unit.clamp_min(1e-9), 0.0)
        coded, fired = levels(z.float()[:, None], signed=True)
        features = coded[:, 0].double().unfold(0, WINDOW, every)
        ends = torch.arange(WINDOW - 1, len(channel) - HORIZON, every)  # the last row of each window
        y = channel[WINDOW:].unfold(0, HORIZON, every) - level[ends, None]
        units = unit[ends, None]
        table = torch.cat([units, units * features[: len(ends)], y], dim=1)
        products = products + table.T @ table
        spikes, samples = spikes + float(fired.double().mean()) * len(table), samples + len(table)
    return Sums(products, spikes, samples)


# How a code's sums are taken. Running levels have time constants of half a window, a window, and three windows.
RUNNING = {f"running level, {constant} rows": constant for constant in (168, 336, 1008)}
ADDED = {name: partial(add_up, code=code) for name, code in CODES.items()}
ADDED |= {name: partial(add_up_running, constant=constant) for name, constant in RUNNING.items()}


def solve(train: Sums) -> list[Tensor]:
    """Return the weights (1 + features, horizon) of the ridge for each penalty; the first row is not penalised."""
    mean = train.products / train.products[0, 0]
    centred = mean - mean[:, :1] * mean[:1]
    gram, cross = centred[1:-HORIZON, 1:-HORIZON], centred[1:-HORIZON, -HORIZON:]
    values, vectors = torch.linalg.eigh(gram)
    weights = [vectors @ ((vectors.T @ cross) / (values.clamp_min(0) + p)[:, None]) for p in PENALTIES]
    return [torch.cat([mean[:1, -HORIZON:] - mean[:1, 1:-HORIZON] @ w, w]) for w in weights]


def mse(part: Sums, weights: Tensor) -> float:
    """Return the mean squared error of weights on a part, in standardised units."""
    error = torch.cat([-weights, torch.eye(HORIZON, dtype=torch.float64)])  # targets less forecasts, of a row of the table
    return float((error * (part.products @ error)).sum() / (part.samples * HORIZON))


def measure(name: str, codes: Sequence[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the facts of a set, and one line for each of some codes."""
    cut = split_ltsf(load_ltsf(name).to_numpy(), WINDOW, HORIZON, ltsf_set(name).month)
    train, held_out = cut.known[: cut.borders.train], cut.known[cut.borders.train - WINDOW :]
    clipped = train.clip(*find_outliers(torch.from_numpy(train)))
    every = max(1, train.size // SAMPLES)
    facts = {"data": name, "channels": train.shape[1], "every": every, "clipped": int((clipped != train).sum())}
    lines = []
    for code_name in codes:
        add, begin = ADDED[code_name], time.perf_counter()
        fitted, validation, test = add(clipped, every=every), add(held_out), add(cut.later)
        weights = solve(fitted)
        errors = [mse(validation, w) for w in weights]
        best = int(np.argmin(errors))
        line = {"data": name, "code": code_name, "validation": errors[best], "test": mse(test, weights[best])}
        # How much the test error depends on the choice among penalties that validate as well.
        near = [mse(test, w) for w, error in zip(weights, errors, strict=True) if error < (1 + NEAR) * errors[best]]
        line |= {"test_near": [min(near), max(near)], "spikes": test.spikes / test.samples, "penalty": float(PENALTIES[best])}
        print({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in line.items()}, file=sys.stderr, flush=True)
        lines.append(line | {"seconds": round(time.perf_counter() - begin, 1)})
        facts |= {"windows": [fitted.samples, validation.samples, test.samples]}
    return facts, lines


def table(lines: list[dict[str, Any]]) -> str:
    """Return validation MSE, test MSE and spikes of each code as a table, with sets as columns."""
    found = {(line["data"], line["code"]): line for line in lines}
    sets = list(dict.fromkeys(line["data"] for line in lines))
    text = ["| code | " + " | ".join(f"{s}, validation | {s}, test | {s}, spikes" for s in sets) + " |"]
    text.append("| --- |" + " --- |" * 3 * len(sets))
    for code in dict.fromkeys(line["code"] for line in lines):
        cells = (found[s, code] for s in sets)
        text.append(
            f"| {code} | " + " | ".join(f"{c['validation']:.3f} | {c['test']:.3f} | {c['spikes']:,.0f}" for c in cells) + " |"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", choices=SETS, help="a set; may be repeated (default: all)")
    parser.add_argument("--code", action="append", choices=list(ADDED), help="a code; may be repeated (default: all)")
    parser.add_argument("--out", type=Path, help="where to write all numbers, as JSON")
    given = parser.parse_args()
    sets, lines = [], []
    for name in given.data or SETS:
        facts, found = measure(name, given.code or list(ADDED))
        sets.append(facts)
        lines += found
    print(table(lines))
    if given.out:
        command = " ".join(["python", *sys.argv])
        result = {"command": command, "setting": setting(), "window": WINDOW, "horizon": HORIZON, "sets": sets, "runs": lines}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
