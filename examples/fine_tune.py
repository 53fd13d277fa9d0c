"""Sample a network, then go on with surrogate gradients, and draw the loss per epoch.

python examples/fine_tune.py [FOLDER]
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from sswim import Forecaster, Gradient, Trajectory
from sswim.datasets import load_wind_farm

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
wind = load_wind_farm().resample("3h").mean()
train, test = wind[:"2015-08"], wind["2015-09":]

# The paper's network: all channels enter every neuron, an output's voltage draws the horizon.
options = {"window": 24, "horizon": 8, "hidden": (60,), "readout": Trajectory(stride=2), "random_state": 0, "verbose": 0}
sampled = Forecaster.paper(**options).fit(train)
tuned = Forecaster.paper(**options, training=Gradient(epochs=8, learning_rate=1e-3)).fit(train)

history = tuned.training_.history  # one row per epoch, 0 is the sampled network
print(history[["loss", "validation_loss", "firing_rate", "silent"]].round(5).to_string())
print(f"kept: epoch {tuned.training_.best_epoch}")
print(f"test RSE sampled {sampled.evaluate(test).rse:.4f}, fine-tuned {tuned.evaluate(test).rse:.4f}")

figure = Figure(figsize=(6, 3.4), layout="constrained")
ax = figure.subplots()
ax.plot(history.index, history["loss"], "o-", ms=4, color="0.5", label="training windows")
ax.plot(history.index, history["validation_loss"], "o-", ms=4, color="#D55E00", label="validation windows")
ax.set(xlabel="epoch (0: as sampled)", ylabel="mean squared error, scaled")
ax.legend(frameon=False)
figure.savefig(folder / "fine_tune.png", dpi=110)
