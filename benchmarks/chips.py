"""What leaky integrate-and-fire neurons, weights of few bits and decays of chips cost.

    python benchmarks/chips.py --out benchmarks/results/chips.json
    python benchmarks/chips.py --out benchmarks/results/chips.json --only Loihi  # measures these again, and keeps the others

Forecasts of the wind farm (the last fifth of its rows is the test part) and the digits (the README's split), three seeds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from sswim import Classifier, Forecaster
from sswim.datasets import load_wind_farm
from sswim.profiles import Profile

SEEDS = range(3)
NETWORKS = {
    "Hat": {"kernel": "hat"},
    "Morlet": {"kernel": "morlet"},
    "LIF": {"profile": "nir"},
    "CubaLIF": {"profile": "nir", "kernel": "alpha"},
    "LIF, 8 bits": {"profile": Profile(bits=8)},
    "LIF, 4 bits": {"profile": Profile(bits=4)},
    "CubaLIF, 8 bits": {"profile": Profile(bits=8), "kernel": "alpha"},
    "CubaLIF, 4 bits": {"profile": Profile(bits=4), "kernel": "alpha"},
    "LIF, 8 bits, decays by shifts": {"profile": Profile(bits=8, decays="shift")},
    "CubaLIF, 8 bits, decays by shifts": {"profile": Profile(bits=8, decays="shift"), "kernel": "alpha"},
    "Loihi (8 bits, decays of 12 bits)": {"profile": "loihi"},
    "Speck (no leak, 8 bits)": {"profile": "speck"},
}


def wind(options):
    """Return the RMSE and the rate of spikes of forecasts of two hours from eight."""
    rows = load_wind_farm()
    cut, found = int(0.8 * len(rows)), []
    for seed in SEEDS:
        given = {"readout": "traces", **options} if "profile" not in options else options
        model = Forecaster(48, 12, hidden=(300,), channels="joint", random_state=seed, verbose=0, **given).fit(rows[:cut])
        found.append((model.evaluate(rows[cut - 48 :]).rmse, float(model.report_.layers[0].rates.mean())))
    return np.array(found)


def digits(options):
    """Return accuracy and rate of spikes of two hidden layers."""
    X, y = load_digits(return_X_y=True)
    found = []
    for seed in SEEDS:
        model = Classifier((200, 200), random_state=seed, verbose=0, **options).fit(X[:1200], y[:1200])
        found.append((100 * model.score(X[1200:], y[1200:]), float(model.report_.layers[0].rates.mean())))
    return np.array(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="measure networks whose names contain this, and keep the others")
    chosen = parser.parse_args()
    place = chosen.out
    warnings.simplefilter("ignore")
    result = json.loads(place.read_text()) if chosen.only and place is not None and place.exists() else {}
    for network, options in NETWORKS.items():
        if chosen.only not in network:
            continue
        errors, accuracies = wind(options), digits(options)
        result[network] = {
            "wind farm, RMSE": errors[:, 0].tolist(),
            "wind farm, spikes per step": errors[:, 1].tolist(),
            "digits, accuracy": accuracies[:, 0].tolist(),
            "digits, spikes per step": accuracies[:, 1].tolist(),
        }
        print(network, {name: round(float(np.mean(values)), 3) for name, values in result[network].items()}, flush=True)
    if place is not None:
        place.write_text(json.dumps(result, indent=1) + "\n")
