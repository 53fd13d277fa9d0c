"""Spike trains as targets: a network learns, without gradients, to fire when another neuron does.

python examples/spike_trains.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from sswim import SpikingNetwork, sample_spikes
from sswim.evaluate import coincidence

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
STEPS = 60
noise = torch.randn(500, 2, STEPS + 8, generator=torch.Generator().manual_seed(0))
x = 3 * torch.nn.functional.avg_pool1d(noise, 9, stride=1).mT  # (samples, steps, inputs), smooth

# The neuron to be copied: a leaky integrator of both inputs that starts anew after each spike.
trains, v = torch.zeros(500, STEPS, 1), torch.zeros(500)
for t in range(STEPS):
    v = 0.8 * v + 0.5 * x[:, t, 0] - 0.3 * x[:, t, 1]
    trains[:, t, 0] = (v > 1).float()
    v = torch.where(v > 1, torch.zeros_like(v), v)

# Input and trains live on the same steps, hence start=0 and horizon=window.
network = SpikingNetwork(2, 1, window=STEPS, horizon=STEPS, start=0, hidden=(150,), spiking_output=True)
report = sample_spikes(network, x[:400], trains[:400], random_state=0)
print(report.outputs[["distance", "coincidence", "rate", "target_rate"]].round(3).to_string())

made = network(x[400:])
gamma = float(coincidence(made, trains[400:], window=2)[0])
print(f"coincidence on new inputs {gamma:.3f} (0 is chance, 1 the same train)")

figure = Figure(figsize=(9, 3.4), layout="constrained")
ax = figure.subplots()
for row in range(8):
    for spikes, color, shift in ((trains[400 + row], "black", 0.18), (made[row], "#D55E00", -0.18)):
        ax.eventplot(spikes[:, 0].nonzero()[:, 0], lineoffsets=row + shift, linelengths=0.3, color=color, lw=1.6)
ax.set(xlabel="step", ylabel="sample", title="target (black) and output (orange), new inputs", yticks=range(8))
figure.savefig(folder / "spike_trains.png", dpi=110)
