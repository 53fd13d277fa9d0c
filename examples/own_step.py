"""Steps of your own: weights and a kernel, passed to a forecaster like any that comes with the library.

python examples/own_step.py
"""

from dataclasses import dataclass

import torch

from sswim import Forecaster
from sswim.datasets import load_wind_farm


@dataclass(frozen=True)
class DifferenceWeights:
    """Weigh each sender by how far its two potentials lie apart: no eigenvectors, half of the signs flipped."""

    power: float = 1.0

    def directions(self, first, second, generator):
        """Map potentials of both samples (neurons, senders, steps) to weights (neurons, senders)."""
        apart = (first - second).double().mean(dim=2)
        w = apart.sign() * apart.abs() ** self.power
        flip = torch.rand(len(w), 1, generator=generator, dtype=torch.float64) < 0.5  # draw from this generator only
        return torch.nn.functional.normalize(torch.where(flip, -w, w))


@dataclass(frozen=True)
class Bump:
    """A smooth bump, cos^2 on |x| <= 1."""

    peak = 0.0  # where it is largest

    def __call__(self, x):
        return torch.where(x.abs() <= 1, torch.cos(torch.pi / 2 * x) ** 2, torch.zeros_like(x))


wind = load_wind_farm().resample("h").mean().filter(like="power")
train, test = wind["2015":"2015-08"], wind["2015-09":]
options = {"window": 48, "horizon": 24, "hidden": (50,), "random_state": 0, "verbose": 0}

for name, own in {
    "as it comes": {},
    "own weights": {"steps__weights": DifferenceWeights()},  # one of the steps; the others stay as they are
    "own kernel": {"kernel": Bump()},
}.items():
    score = Forecaster(**options).set_params(**own).fit(train).evaluate(test)
    print(f"{name:12} RSE {score.rse:.4f}")
