"""Seeded predictions of many configurations: what a change of the code must not change.

``python tests/frozen.py FILE`` writes them anew; `test_frozen.py` compares them with those in ``frozen.npz``.
"""

import sys
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits

from sswim import (
    Classifier,
    Counts,
    Direct,
    Forecaster,
    FromScratch,
    Gradient,
    Scaling,
    Spikes,
    SpikingNetwork,
    Steps,
    Trajectory,
    sample,
    sample_spikes,
)
from sswim.data import ExactEvents
from sswim.datasets import load_wind_farm
from sswim.sampling import STEPS

COMMON = {"random_state": 0, "verbose": 0}
OURS, CLASSES = STEPS["forecast"], STEPS["classify"]
FORECASTERS = {
    "default": {},
    "rows": {"readout": Direct(skip=True)},
    "joint": {"channels": "joint"},
    "joint-skip": {"channels": "joint", "readout": Direct(skip=True)},
    "covariates": {"covariates": [1, 3]},
    "two-layers": {"hidden": (20, 15)},
    "no-singles": {"readout": Direct(singles=0)},
    "no-common": {"readout": Direct(common=False)},
    "population-16": {"readout": Direct(population=16)},
    "scaling-window": {"scaling": "window"},
    "scaling-standard": {"scaling": Scaling("standard", clip=False, floor=False)},
    "traces-random": {
        "readout": Direct(traces=(1.0, 5.0), blocks=4),
        "steps": Steps(weights="random", normalizer="mean-std", temporal="memory"),
        "kernel": "hat",
    },
    "float64": {"dtype": "float64"},
    # Without single neurons, so that the trained layers are better than the sampled ones, and kept.
    # In float64: a step of the descent that rounds otherwise moves single spikes of float32 networks on another processor.
    "direct-tuned": {"readout": Direct(singles=0), "training": Gradient(epochs=2, learning_rate=1e-3), "dtype": "float64"},
    "direct-scratch": {"training": FromScratch(epochs=2)},
}
PAPERS = {
    "paper": {},
    "paper-ours": {"assembly": "fast", "bias": "free", "grid": "extended", "clip": True},
    "paper-two": {"hidden": (20, 15), "kernel": ("alpha", "exponential"), "readout": Trajectory(kernel="alpha")},
    "paper-fast": {"steps": Steps(weights="dist"), "readout": Trajectory(assembly="fast", stride=3)},
    "paper-shared": {"channels": "shared", "scaling": Scaling("window", floor=False)},
    "paper-standard": {
        "scaling": Scaling("none", clip=False, floor=False),
        "steps": Steps(normalizer="fluctuation", input_metric="l2", output_metric=("phase", "low")),
        "readout": Trajectory(supports="fixed", delays="zero", regularization="fixed"),
    },
    "paper-tuned": {"training": Gradient(epochs=2, learning_rate=1e-3), "dtype": "float64"},
    "paper-scratch": {"training": FromScratch(epochs=2)},
}
CLASSIFIERS = {
    "digits": {},
    "digits-images": {"encoder": "rate"},
    "digits-squared": {"readout": Counts(loss="squared_error", traces=(float("inf"), 5.0)), "class_weight": "balanced"},
    "digits-deep": {"hidden": (40, 20)},
    "digits-plain-deep": {"hidden": (40, 20), "steps": CLASSES.replace(depth="plain"), "fields": (8, 8)},
    "digits-tuned": {"training": Gradient(epochs=2)},
    "digits-scratch": {"training": FromScratch(epochs=2)},
    "events": {},
    "events-whole": {"encoder": ExactEvents(exact=False, steps=20)},
    "signals": {"kernel": "morlet"},
}
PAPER_CLASSIFIERS = {
    "digits-voltage": {},
    "digits-spikes": {"readout": "spikes"},
    "digits-spikes-normal": {"readout": Spikes(normalize=True, integrate="horizon")},
    "events-voltage": {"encoder": "auto"},
}
NAMES = [*FORECASTERS, *PAPERS, *CLASSIFIERS, *PAPER_CLASSIFIERS, "sample", "spikes-surrogate", "spikes-glm"]


def event_data():
    """Return events of three classes, their labels, and the same as counts in time."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 440)
    events = [(np.sort(rng.uniform(0, 20, 30)), rng.integers(0, 4, 30) + 2 * c) for c in labels]
    counts = [np.histogram2d(t, c, bins=(20, 8), range=((0, 20), (0, 8)))[0] for t, c in events]
    return events, labels, np.stack(counts)


def forecasts(name):
    wind = load_wind_farm().resample("h").mean().to_numpy()[:700]
    make, options = (Forecaster, FORECASTERS[name]) if name in FORECASTERS else (Forecaster.paper, PAPERS[name])
    model = make(24, 6, **{"hidden": (30,), **COMMON, **options}).fit(wind[:600])
    found = {"predict": model.predict(wind), "windows": model.predict_windows(wind[560:])[::40]}
    if model.model_.has_intervals:
        found["low"], found["high"] = model.predict_interval(wind)
    stream = model.stream()
    found["stream"] = [stream(row) for row in wind[-24:]][-1]
    return found


def classes(name):
    X, y = load_digits(return_X_y=True)
    events, labels, counts = event_data()
    data = {"digits-images": (X.reshape(-1, 8, 8), y), "signals": (counts, labels)}
    X, y = (events, labels) if name.startswith("events") else data.get(name, (X, y))
    make, options = (Classifier, CLASSIFIERS) if name in CLASSIFIERS else (Classifier.paper, PAPER_CLASSIFIERS)
    model = make(**{"hidden": (40,), **COMMON, **options[name]}).fit(X[:400], y[:400])
    return {"proba": model.predict_proba(X[400:440]), "decision": model.decision_function(X[400:440])}


def networks(name):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 20, 2, generator=generator).cumsum(dim=1)
    trains = (torch.rand(200, 20, 2, generator=generator) < 0.2).float()
    if name == "sample":
        network = SpikingNetwork(2, 2, window=20, horizon=4, hidden=(25, 10))
        sample(network, x, x[:, -4:] * 2, random_state=0)
        return {"forward": network(x[:20]).detach()}
    network = SpikingNetwork(2, 2, window=20, horizon=20, start=0, hidden=(25,), spiking_output=True)
    sample_spikes(network, x, trains, method=name.removeprefix("spikes-"), random_state=0, rounds=6)
    return {"forward": network(x[:20]).detach(), "weights": network.readout.weights.detach()}


def predictions(name):
    """Return the seeded predictions of one configuration, by what they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in FORECASTERS or name in PAPERS:
            found = forecasts(name)
        else:
            found = classes(name) if name in CLASSIFIERS or name in PAPER_CLASSIFIERS else networks(name)
    return {f"{name}/{key}": np.asarray(value, dtype=np.float64) for key, value in found.items()}


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **{k: v for name in NAMES for k, v in predictions(name).items()})
