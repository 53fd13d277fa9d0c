"""Spikes of exported networks with filters, at every place, in sswim and in its interpreter of NIR: how many differ.

    SSWIM_DATA=... python benchmarks/nir_filters.py
    python benchmarks/nir_filters.py --only digits  # measures these again, and keeps the others

scikit-learn's digits (1,200 images for fitting, 500 for testing) and MNIST (2,000 and 200). Each classifier is fitted with a
profile, exported, written to a file and read again. Seed 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Convolution
from sswim.bench.measure import say, setting
from sswim.datasets import load_images
from sswim.export import lag_line, read_nir, run_nir, to_nir, write_nir
from sswim.network.convolution import ConvolutionLayer
from sswim.network.layer import SpikingLayer
from sswim.network.network import SpikingNetwork
from sswim.writing import whole_file

RESULTS = Path(__file__).parent / "results" / "nir_filters.json"
# Data, hidden layers, profile.
MODELS = {
    "digits, 100 filters": ("digits", [Convolution(100)], "nir"),
    "digits, 100 filters, no leak, 8 bits": ("digits", [Convolution(100)], "speck"),
    "digits, regions that do not overlap": ("digits", [Convolution(100, pool=4, overlap=1.0)], "speck"),
    "digits, filters and 100 neurons": ("digits", [Convolution(50, size=3), 100], "speck"),
    "MNIST, 50 filters": ("mnist", [Convolution(50)], "nir"),
    "MNIST, 50 filters, no leak, 8 bits": ("mnist", [Convolution(50)], "speck"),
    "MNIST, filters and filters": ("mnist", [Convolution(20, pool=7, overlap=1.0), Convolution(30, size=3)], "speck"),
}


def images(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels for fitting, and for testing."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = X.reshape(-1, 8, 8)
        return X[:1200], y[:1200], X[1200:1700], y[1200:1700]
    X, y, X_test, y_test = load_images(name)
    return X[:2000], y[:2000], X_test[:200], y_test[:200]


@torch.no_grad()
def everywhere(network: SpikingNetwork, x: torch.Tensor) -> list[np.ndarray]:
    """Return the spikes of each layer (batch, time, neurons * places), those of filters before they are pooled."""
    signals, found = network.signals(x), []
    for layer in network.layers:
        filters = layer.filters(network.window, network.window)
        spikes = SpikingLayer.fire(layer, layer.potentials(signals, filters).clone())
        if isinstance(layer, ConvolutionLayer):
            spikes = spikes.unflatten(2, (layer.places, len(x))).permute(0, 2, 1, 3).flatten(0, 1)
        found.append(spikes.permute(2, 1, 0).numpy())
        signals = layer.spikes(signals, filters)
    return found


def compared(name: str, precision: str) -> dict[str, object]:
    """Return how many spikes there are, how many differ, and how far outputs are apart."""
    data, hidden, profile = MODELS[name]
    X, y, X_test, y_test = images(data)
    options = {"encoder": "image", "random_state": 0, "verbose": 0}
    model = Classifier(hidden, profile=profile, dtype=precision, **options).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        write_nir(to_nir(model), Path(folder) / "m.nir")
        graph = read_nir(Path(folder) / "m.nir")
    spikes, differing, answers, off = 0, 0, 0, 0.0
    for first in range(0, len(X_test), 50):
        some = X_test[first : first + 50]
        x = model.model_.samples(some).inputs(slice(None))
        found = run_nir(graph, lag_line(graph, x.numpy()), dtype=precision)
        for number, wanted in enumerate(everywhere(model.network_, x), start=1):
            got = found[f"layer_{number}"].reshape(wanted.shape)
            spikes, differing = spikes + int(wanted.sum()), differing + int((got != wanted).sum())
        outputs = model.network_.simulate(x).output[:, 0].detach().numpy()
        off = max(off, float(np.abs(found["output"][:, -1] - outputs).max() / np.abs(outputs).max()))
        answers += int((found["output"][:, -1].argmax(axis=1) != outputs.argmax(axis=1)).sum())
    facts = {"spikes": spikes, "differing": differing, "output": off, "other answers": answers, "tested": len(X_test)}
    return {**facts, "accuracy": float(model.score(X_test, y_test))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="measure models whose names contain this, and keep the others")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    found: dict[str, object] = json.loads(RESULTS.read_text())["models"] if only and RESULTS.exists() else {}
    for name in (name for name in MODELS if only in name):
        found[name] = {precision: compared(name, precision) for precision in ("float32", "float64")}
        say(f"{name}: {found[name]}")
    with whole_file(RESULTS) as part:
        part.write_text(json.dumps({"models": found, "setting": setting(), "seed": 0}, indent=1) + "\n")


if __name__ == "__main__":
    main()
