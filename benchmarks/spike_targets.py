"""How near a sampled network comes to the trains of integrate-and-fire neurons, by both methods, on new inputs.

    python benchmarks/spike_targets.py --hidden 200 --samples 1000 --out benchmarks/results/spike_targets.json

Three smooth random inputs of 60 steps drive three leaky integrators, with a reset, through products of hyperbolic tangents.
Distances are divided by that of a silent train; chance is the train of another input.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from torch import Tensor

from sswim import SpikingNetwork, sample_spikes
from sswim.evaluate import coincidence, van_rossum

STEPS, INPUTS, OUTPUTS, TEST = 60, 3, 3, 500


def inputs(samples: int, seed: int) -> Tensor:
    """Return smooth random signals (samples, steps, inputs) of unit variance."""
    noise = torch.randn(samples * INPUTS, 1, STEPS + 24, generator=torch.Generator().manual_seed(seed))
    bump = torch.exp(-0.5 * (torch.arange(-12, 13) / 3) ** 2)
    smooth = torch.nn.functional.conv1d(noise, (bump / bump.norm())[None, None])
    return smooth.view(samples, INPUTS, STEPS).mT.contiguous()


def integrators(x: Tensor, seed: int) -> Tensor:
    """Return the trains (samples, steps, outputs) of neurons with random weights."""
    g = torch.Generator().manual_seed(seed)
    W, V = torch.randn(2, OUTPUTS, INPUTS, generator=g)
    drive = (torch.tanh(x @ W.T) * (1 + 0.7 * torch.tanh(x @ V.T))).clamp_min(0)
    v, trains = torch.zeros(len(x), OUTPUTS), []
    for t in range(STEPS):
        v = 0.8 * v + 0.35 * drive[:, t]
        trains.append((v >= 1).float())
        v = v * (v < 1)
    return torch.stack(trains, dim=1)


def main() -> None:
    """Fit by both methods and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for seed in range(given.seeds):
        x, new = inputs(given.samples, 100 + seed), inputs(TEST, 200 + seed)
        trains, wanted = integrators(x, seed), integrators(new, seed)
        silence = van_rossum(torch.zeros_like(wanted), wanted)
        for method in ("chance", "surrogate", "glm"):
            begin = time.perf_counter()
            line = {"seed": seed, "method": method, "hidden": given.hidden, "samples": given.samples}
            made = wanted.roll(1, dims=0)
            if method != "chance":
                net = SpikingNetwork(
                    INPUTS, OUTPUTS, window=STEPS, horizon=STEPS, start=0, hidden=(given.hidden,), spiking_output=True
                )
                report = sample_spikes(net, x, trains, method=method, random_state=seed)
                line["seconds"] = round(time.perf_counter() - begin, 1)
                with torch.no_grad():
                    made = net(new)
                if method == "surrogate":
                    names = ("plain", "shifted", "distance")
                    line["validation"] = {name: round(float(report.outputs[name].mean()), 3) for name in names}
            line["distance"] = round(float((van_rossum(made, wanted) / silence).mean()), 3)
            line["coincidence"] = round(float(coincidence(made, wanted).mean()), 3)
            line["rate"] = round(float(made.mean()), 4)
            line["target_rate"] = round(float(wanted.mean()), 4)
            print(line, flush=True)
            lines.append(line)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"machine": platform.processor() or platform.machine(), "runs": lines}, indent=1))


if __name__ == "__main__":
    main()
