"""Weights for other people's networks: epochs to a target accuracy from four starts, in snnTorch, SpikingJelly and Norse.

    make peers
    SSWIM_DATA=... .venv-peers/bin/python benchmarks/others.py --out benchmarks/results/others.json

Two hidden layers of spiking neurons, surrogate gradients, Adam, each library's own neurons and the loss of its own tutorial:

- snnTorch: `Leaky(beta=0.9)`, also as output; cross entropy of the output spikes, averaged over steps
- SpikingJelly: `LIFNode(tau=2.0)`, also as output; mean squared error of firing rates
- Norse: `LIFCell()`, output by `LICell()`; cross entropy of the largest voltage over time

Starts: torch's default for `Linear`; Kaiming's normal weights without biases; fluctuation-driven weights (Rossbroich et al.
2022, what snnTorch's issue 450 asks for); `sswim.sample_into`. Data: scikit-learn's digits, shown as constant currents, and
the Free Spoken Digit Dataset as spikes of a cochlea, two of six speakers held out for the test. The learning rate of every
start, library and data set is chosen by one run on held-out training samples (in FSDD: a held-out training speaker), by the
mean accuracy over all epochs. Cells that are in the file already are not computed again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sswim.adapters import sample_into
from sswim.adapters.dialects import dialect_of, measure, reset_states
from sswim.datasets import data_folder, load_fsdd
from sswim.gradient.initialize import fluctuation_weights
from sswim.steps import Diverse

STEPS = {"digits": 20, "fsdd": 20}
HIDDEN, BATCH = 100, 128
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
TEST_SPEAKERS = ("theo", "yweweler")
LIBRARIES = ("snnTorch", "SpikingJelly", "Norse")
Data = tuple[Tensor, Tensor, Tensor, Tensor]


# --- data -------------------------------------------------------------------------------------------------------------------


@functools.cache
def load(name: str, tuning: bool) -> Data:
    """Return X (samples, time, features) and labels of training and test; for tuning, the test is part of the training set."""
    if name == "digits":
        digits = load_digits()
        X = torch.tensor(digits.data / 16, dtype=torch.float32)[:, None].expand(-1, STEPS[name], -1)
        y = torch.tensor(digits.target)
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
        test = order[:597]
        train = order[597:]
        if tuning:
            test, train = train[:300], train[300:]
        return X[train], y[train], X[test], y[test]
    events, labels, others, other_labels = _fsdd()
    X, y, speakers = _binned(events), torch.tensor(labels), _speakers()
    if tuning:
        held = torch.tensor(speakers == "nicolas")
        return X[~held], y[~held], X[held], y[held]
    return X, y, _binned(others), torch.tensor(other_labels)


@functools.cache
def _fsdd() -> Any:
    """Return events and labels of four training speakers, and those of two others."""
    return load_fsdd(test_speakers=TEST_SPEAKERS)


def _speakers() -> np.ndarray:
    """Return who speaks in each training recording."""
    with np.load(data_folder() / "fsdd_8khz.npz") as file:
        speakers = file["speaker"]
    return speakers[~np.isin(speakers, TEST_SPEAKERS)]


def _binned(events: list[tuple[np.ndarray, np.ndarray]], length: float = 0.75) -> Tensor:
    """Return the numbers of spikes (samples, steps, channels) in equal bins, later ones dropped, at most 4."""
    steps = STEPS["fsdd"]
    X = np.zeros((len(events), steps, 70), dtype=np.float32)
    for x, (times, channels) in zip(X, events, strict=True):
        at = (times / length * steps).astype(int)
        np.add.at(x, (at[at < steps], channels[at < steps]), 1)
    return torch.from_numpy(np.minimum(X, 4))


# --- networks ---------------------------------------------------------------------------------------------------------------


def linears(inputs: int) -> list[nn.Linear]:
    return [nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 10)]


def build(
    library: str, inputs: int
) -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """Return a network, a function that returns its outputs (batch, classes) or (time, batch, classes), and its loss."""
    a, b, c = linears(inputs)
    if library == "snnTorch":
        import snntorch
        from snntorch import functional, surrogate

        def leaky(**options: bool) -> nn.Module:
            return snntorch.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid(), init_hidden=True, **options)

        def spikes(model: nn.Module, x: Tensor) -> Tensor:
            reset_states(model)
            return torch.stack([model(x[:, t])[0] for t in range(x.shape[1])])

        return nn.Sequential(a, leaky(), b, leaky(), c, leaky(output=True)), spikes, functional.ce_rate_loss()
    if library == "SpikingJelly":
        from spikingjelly.activation_based import functional, neuron

        model = nn.Sequential(a, neuron.LIFNode(tau=2.0), b, neuron.LIFNode(tau=2.0), c, neuron.LIFNode(tau=2.0))
        functional.set_step_mode(model, "m")

        def rates(model: nn.Module, x: Tensor) -> Tensor:
            functional.reset_net(model)
            return model(x.transpose(0, 1))

        def loss(output: Tensor, y: Tensor) -> Tensor:
            return nn.functional.mse_loss(output.mean(dim=0), nn.functional.one_hot(y, 10).float())

        return model, rates, loss
    import norse.torch as norse

    def voltages(model: nn.Module, x: Tensor) -> Tensor:
        state, found = None, []
        for t in range(x.shape[1]):
            output, state = model(x[:, t], state)
            found.append(output)
        return torch.stack(found)

    def largest(output: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output.amax(dim=0), y)

    return norse.SequentialState(a, norse.LIFCell(), b, norse.LIFCell(), c, norse.LICell()), voltages, largest


def predict(library: str, output: Tensor) -> Tensor:
    """Return the class of each sample from outputs (time, batch, classes)."""
    return (output.amax(dim=0) if library == "Norse" else output.sum(dim=0)).argmax(dim=1)


# --- starts -----------------------------------------------------------------------------------------------------------------


def start_default(model: nn.Module, X: Tensor, y: Tensor, seed: int) -> None:
    """Leave the weights as torch drew them."""


@torch.no_grad()
def start_kaiming(model: nn.Module, X: Tensor, y: Tensor, seed: int) -> None:
    for module in model:  # type: ignore[attr-defined]
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)


@torch.no_grad()
def start_fluctuation(model: nn.Module, X: Tensor, y: Tensor, seed: int) -> None:
    """Draw weights that let potentials fluctuate below the threshold, with the response measured on the neurons themselves."""
    modules, senders = list(model), float(X.abs().mean())  # type: ignore[call-overload]
    for linear, neuron in zip(modules[::2], modules[1::2], strict=True):
        response = measure("neurons", neuron, (linear.out_features,), X.shape[1], linear.weight)
        reset_states(neuron)
        gap = torch.where(torch.isinf(response.gap), 1.0, response.gap)
        mean, deviation, bias = fluctuation_weights(response.taps / gap[:, None], linear.in_features, senders, 0.0, 1.0)
        linear.weight.copy_(mean[:, None] + deviation[:, None] * torch.randn_like(linear.weight))
        linear.bias.copy_(bias)
        senders = 0.1  # a tenth of all steps has a spike


def start_sampled(model: nn.Module, X: Tensor, y: Tensor, seed: int) -> None:
    sample_into(model, X, y, random_state=seed)


STARTS: dict[str, Callable[[nn.Module, Tensor, Tensor, int], None]] = {
    "default": start_default,
    "Kaiming": start_kaiming,
    "fluctuation": start_fluctuation,
    "sample_into": start_sampled,
}


def variant(**options: Any) -> Callable[[nn.Module, Tensor, Tensor, int], None]:
    """Return a start with other settings, for `--variants`."""

    def start(model: nn.Module, X: Tensor, y: Tensor, seed: int) -> None:
        from sswim.adapters.others import LABELS

        readout = options.get("readout", "ridge")
        changes = {k: v for k, v in options.items() if k != "readout"}
        sample_into(model, X, y, random_state=seed, steps=LABELS.replace(**changes), readout=readout)

    return start


VARIANTS: dict[str, Callable[[nn.Module, Tensor, Tensor, int], None]] = {
    "default start": start_default,
    "as it is": start_sampled,
    "last layer as torch drew it": variant(readout="keep"),
    "Diverse()": variant(normalizer=Diverse()),
    "Diverse(0.03, 0.3)": variant(normalizer=Diverse(0.03, 0.3)),
    "Diverse(cost=1)": variant(normalizer=Diverse(cost=1.0)),
    "Diverse(0.03, 0.3, cost=1)": variant(normalizer=Diverse(0.03, 0.3, cost=1.0)),
    "weights='dist'": variant(weights="dist"),
    "weights='random'": variant(weights="random"),
}


# --- training ---------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def silent(library: str, model: nn.Module, run: Callable[[nn.Module, Tensor], Tensor], X: Tensor) -> list[float]:
    """Return the part of silent neurons in each hidden layer: those without a spike on all samples."""
    neurons = [module for module in model if dialect_of(module)][:-1]  # type: ignore[attr-defined]
    found = [torch.zeros(HIDDEN) for _ in neurons]

    def hook(number: int) -> Callable[..., None]:
        def add(module: nn.Module, inputs: object, output: Any) -> None:
            s = output[0] if isinstance(output, tuple) else output
            found[number] += s.reshape(-1, HIDDEN).sum(dim=0)

        return add

    hooks = [neuron.register_forward_hook(hook(n)) for n, neuron in enumerate(neurons)]
    for x in X.split(256):
        run(model, x)
    for handle in hooks:
        handle.remove()
    return [float((spikes == 0).float().mean()) for spikes in found]


@torch.no_grad()
def accuracy(library: str, model: nn.Module, run: Callable[[nn.Module, Tensor], Tensor], X: Tensor, y: Tensor) -> float:
    guess = torch.cat([predict(library, run(model, x)) for x in X.split(256)])
    return float((guess == y).float().mean())


def train(library: str, data: Data, start: Callable[..., None], seed: int, rate: float, epochs: int) -> dict[str, Any]:
    """Return accuracies after every epoch, the first before training, and the parts of silent neurons before and after."""
    X, y, test, labels = data
    torch.manual_seed(seed)
    model, run, loss = build(library, X.shape[2])
    begin = time.perf_counter()
    start(model, X, y, seed)
    started = time.perf_counter() - begin
    quiet = silent(library, model, run, X)
    curve = [accuracy(library, model, run, test, labels)]
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    spent = 0.0
    for _ in range(epochs):
        begin = time.perf_counter()
        for some in torch.randperm(len(X), generator=generator).split(BATCH):
            value = loss(run(model, X[some]), y[some])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        spent += time.perf_counter() - begin
        curve.append(accuracy(library, model, run, test, labels))
    seconds = {"start": started, "epoch": spent / max(epochs, 1)}
    return {"curve": curve, "silent": quiet, "silent_after": silent(library, model, run, X), "seconds": seconds}


# --- results ----------------------------------------------------------------------------------------------------------------


def reached(curve: list[float], level: float) -> int | None:
    """Return the first epoch whose accuracy is at least `level`."""
    return next((epoch for epoch, value in enumerate(curve) if value >= level), None)


def table(cells: list[dict[str, Any]]) -> str:
    """Return a row per data set, library and start: mean over seeds."""
    lines = [
        "| data | library | start | silent 1 / 2 | before | after 1 epoch | after all | epochs to 90 % | to 95 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for data in STEPS:
        for library in LIBRARIES:
            here = [c for c in cells if c["data"] == data and c["library"] == library]
            for name in STARTS:
                runs = [c for c in here if c["start"] == name]
                if not runs:
                    continue
                curves, epochs = [c["curve"] for c in runs], []
                for part in (0.90, 0.95):
                    best = {c["seed"]: max(max(o["curve"]) for o in here if o["seed"] == c["seed"]) for c in runs}
                    at = [reached(c["curve"], part * best[c["seed"]]) for c in runs]
                    missed = sum(a is None for a in at)
                    shown = sorted(len(curves[0]) if a is None else a for a in at)
                    middle = shown[len(shown) // 2]
                    epochs.append((f"> {len(curves[0]) - 1}" if middle == len(curves[0]) else str(middle)) + "*" * bool(missed))
                quiet = " / ".join(f"{np.mean([c['silent'][l] for c in runs]):.0%}" for l in (0, 1))
                a, b, c = (100 * np.mean([curve[i] for curve in curves]) for i in (0, 1, -1))
                lines.append(
                    f"| {data} | {library} | {name} | {quiet} | {a:.1f} | {b:.1f} | {c:.1f} | {epochs[0]} | {epochs[1]} |"
                )
    return "\n".join(lines)


def write(path: Path, result: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(path)


def about() -> dict[str, Any]:
    """Return versions, commit and hardware."""
    from importlib.metadata import version

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    names = ("torch", "snntorch", "spikingjelly", "norse")
    return {
        "command": "python benchmarks/others.py",
        "commit": commit,
        "versions": {name: version(name) for name in names},
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--out", type=Path, help="where to write all runs")
    parser.add_argument("--variants", action="store_true", help="compare settings of sample_into on held-out samples instead")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after the cell that passes this time")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    begin = time.perf_counter()
    if args.variants:
        for data in args.data:
            for library in args.libraries:
                for name, start in VARIANTS.items():
                    found = [train(library, load(data, True), start, seed, 2e-3, args.epochs) for seed in range(args.seeds)]
                    curve = np.mean([f["curve"] for f in found], axis=0)
                    quiet = np.mean([f["silent"] for f in found], axis=0)
                    print(data, library, f"{name:28}", np.round(100 * curve, 1), np.round(quiet, 2), flush=True)
        return
    result = json.loads(args.out.read_text()) if args.out and args.out.exists() else {**about(), "rates": [], "cells": []}
    for data in args.data:
        for library in args.libraries:
            for name, start in STARTS.items():
                key = {"data": data, "library": library, "start": name}
                chosen = next((r["rate"] for r in result["rates"] if key.items() <= r.items()), None)
                if chosen is None:
                    tried = {r: train(library, load(data, True), start, 100, r, args.epochs // 3)["curve"] for r in RATES}
                    means = {rate: float(np.mean(curve)) for rate, curve in tried.items()}
                    chosen = max(means, key=means.__getitem__)
                    result["rates"].append({**key, "rate": chosen, "accuracies": {str(r): m for r, m in means.items()}})
                for seed in range(args.seeds):
                    if any({**key, "seed": seed}.items() <= cell.items() for cell in result["cells"]):
                        continue
                    found = train(library, load(data, False), start, seed, chosen, args.epochs)
                    result["cells"].append({**key, "seed": seed, "rate": chosen, **found})
                    print(data, library, name, seed, chosen, [round(v, 3) for v in found["curve"]], file=sys.stderr, flush=True)
                    if args.out:
                        write(args.out, result)
                    if time.perf_counter() - begin > 60 * args.minutes:
                        return
    print(table(result["cells"]))


if __name__ == "__main__":
    main()
