"""Spikes of exported networks in sswim, in its interpreter of NIR, and in snnTorch, Norse and SpikingJelly: how many differ.

    make peers
    .venv-peers/bin/python benchmarks/nir_readers.py
    .venv-peers/bin/python benchmarks/nir_readers.py --out benchmarks/results/nir_readers.json

Two real sets: scikit-learn's digits, each shown for 20 steps, and hourly means of the embedded wind farm, windows of 48 hours.
Networks are sampled, brought to LIF or CubaLIF form with various times, exported, written to a file and read again; and so are
estimators that are fitted with a profile. Every spike of every layer is compared. A program that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Forecaster, SpikingNetwork, sample
from sswim.bench.measure import say, setting
from sswim.bench.readers import RUNNERS, reader_spikes
from sswim.data.windows import SeriesWindows
from sswim.datasets import load_wind_farm
from sswim.export import read_nir, read_spikes, run_nir, to_nir, write_nir
from sswim.network.events import EventBatch
from sswim.profiles import Profile
from sswim.readout import TraceReadout
from sswim.writing import whole_file

STEPS, WINDOW, HORIZON = 20, 48, 24
# Layers' kernels and widths, the longest delay of the first layer, and least and largest supports.
NETWORKS = {
    "LIF": (("exponential",), (300,), 0, (2, 8)),
    "LIF, delays": (("exponential",), (300,), 6, (2, 8)),
    "LIF, 2 layers": (("exponential", "exponential"), (200, 150), 0, (2, 8)),
    "LIF, 2 layers, one time constant": (("exponential", "exponential"), (200, 150), 0, (5, 5)),
    "CubaLIF": (("alpha",), (300,), 0, (2, 8)),
    "CubaLIF, 2 layers, delays": (("alpha", "alpha"), (200, 150), 6, (2, 8)),
    "CubaLIF, one time constant": (("alpha",), (300,), 0, (5, 5)),
}


# Estimators with a profile.
FITTED = {
    "LIF": {"profile": "nir"},
    "CubaLIF": {"profile": "nir", "kernel": "alpha"},
    "LIF, 8 bits": {"profile": Profile(bits=8)},
    "LIF, 4 bits": {"profile": Profile(bits=4)},
}


def fitted(data: str, options: dict, precision: str) -> tuple[SpikingNetwork, torch.Tensor]:
    """Fit an estimator with a profile; return its network, and what enters it in the test part."""
    given = {"random_state": 0, "verbose": 0, "dtype": precision, **options}
    if data == "digits":
        images, labels = load_digits(return_X_y=True)
        classifier = Classifier((200, 200), **given).fit(images[:1200], labels[:1200])
        x = classifier.model_.samples(images[1200:]).inputs(slice(None))
        return classifier.network_, x.dense() if isinstance(x, EventBatch) else x
    hourly = load_wind_farm().resample("h").mean()
    cut = int(0.8 * len(hourly))
    model = Forecaster(WINDOW, HORIZON, hidden=(300,), channels="joint", **given).fit(hourly[:cut]).model_
    windows = SeriesWindows(model.encoder, [model.encoder(torch.from_numpy(hourly[cut:].to_numpy()))], WINDOW, 0)
    return model.network, windows.inputs(slice(None))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images as constant currents (1797, 20, 64), and classes as rows of 0 and 1, (1797, 1, 10)."""
    images, labels = load_digits(return_X_y=True)
    x = torch.as_tensor(images / 16, dtype=torch.float32)[:, None].expand(-1, STEPS, -1).contiguous()
    return x, torch.nn.functional.one_hot(torch.as_tensor(labels), 10)[:, None].float()


def wind() -> tuple[torch.Tensor, torch.Tensor]:
    """Windows (samples, 48, 8) and the day after each, (samples, 24, 8), in standard units."""
    hourly = load_wind_farm().resample("h").mean().to_numpy()
    z = torch.as_tensor((hourly - hourly.mean(0)) / hourly.std(0), dtype=torch.float32)
    windows = z.unfold(0, WINDOW + HORIZON, 5).permute(0, 2, 1)
    return windows[:, :WINDOW].contiguous(), windows[:, WINDOW:].contiguous()


def leaky_network(x, y, kernels, hidden, delay, supports, constants, dtype=torch.float32, seed=0) -> SpikingNetwork:
    """Sample a network, bring it to LIF or CubaLIF form layer by layer, and solve for its readout."""
    least, largest = supports
    inner = dict(kernel=list(kernels), refractory="exponential", window=x.shape[1], horizon=y.shape[1], hidden=hidden)
    readout = TraceReadout(sum(hidden) * len(constants), y.shape[2], y.shape[1], constants=constants, dtype=dtype)
    network = SpikingNetwork(x.shape[2], y.shape[2], readout=readout, dtype=dtype, **inner)
    sample(network, x, y, random_state=seed)
    draw, signals = torch.Generator().manual_seed(seed), network.signals(x)
    with torch.no_grad():
        for number, layer in enumerate(network.layers):
            n = layer.neurons
            layer.supports.copy_(torch.rand(n, generator=draw) * (largest - least) + least)
            layer.refractory_supports.copy_(layer.supports)
            layer.delays.copy_(torch.randint(0, delay + 1, (n,), generator=draw) if number == 0 else torch.zeros(n))
            layer.biases.zero_(), layer.costs.fill_(-1)
            v = layer.potentials(signals, layer.filters(x.shape[1], x.shape[1]))  # (N, T, B)
            layer.weights.div_(torch.quantile(v[:, :, :200].flatten(1), 0.9, dim=1).clamp_min(1e-3)[:, None])
            signals = layer.fire(layer.potentials(signals, layer.filters(x.shape[1], x.shape[1])))
        z = network.trace_reader(constants)(x).double().T  # (B, N K)
        z1, flat = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], dim=1), y.flatten(1).double()
        w = torch.linalg.solve(z1.T @ z1 + 0.3 * len(z) * torch.eye(z1.shape[1]), z1.T @ flat)
        readout.weights.copy_(w[:-1].T), readout.biases.copy_(w[-1])
    return network


def _exact(values) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


def _thresholds(node) -> torch.Tensor:
    """Return the largest float64 below 1 for each neuron: graphs for readers have that of float32."""
    return torch.full(node.v_threshold.shape, np.nextafter(1.0, 0.0), dtype=torch.float64)


def _snntorch_in_double(module, node, dt: float) -> None:
    module.threshold = _thresholds(node)
    module.beta = 1 - dt / _exact(node.tau_mem if hasattr(node, "tau_mem") else node.tau)
    if hasattr(node, "tau_syn"):
        module.alpha = 1 - dt / _exact(node.tau_syn)


def _norse_in_double(module, node, dt: float) -> None:
    cell, tau = (module.lif, node.tau_mem) if hasattr(node, "tau_mem") else (module, node.tau)
    leak = _exact(node.v_leak)
    cell.p = cell.p._replace(tau_mem_inv=1 / _exact(tau), v_th=_thresholds(node), v_leak=leak, v_reset=leak[:1])
    if hasattr(node, "tau_syn"):
        module.synapse.p = module.synapse.p._replace(tau_mem_inv=1 / _exact(node.tau_syn), v_leak=leak)
        module.w_in, module.r = _exact(node.w_in), _exact(node.r)


def _spikingjelly_in_double(module, node, dt: float) -> None:
    module.module.v_threshold = float(np.nextafter(1.0, 0.0))


IN_DOUBLE = {"snntorch": _snntorch_in_double, "norse": _norse_in_double, "spikingjelly": _spikingjelly_in_double}


def in_double(reader: str, graph):
    """Return what brings a reader's network to float64. Readers round the numbers of a graph: they are read again."""

    def change(net: torch.nn.Module) -> torch.Tensor:
        net.double()
        for name, node in graph.nodes.items():
            if hasattr(node, "weight"):
                linear = net.get_submodule(name)
                neurons = graph.nodes[name.replace("weights", "layer")]
                ignored = _exact(neurons.r)[:, None] if reader == "norse" and not hasattr(neurons, "w_in") else 1
                linear.weight.data = _exact(node.weight) * ignored  # Norse ignores r of LIF, which takes back its rounding
                linear.register_forward_pre_hook(lambda _module, given: (given[0].double(),))  # spikes are float32
            elif hasattr(node, "v_threshold"):
                IN_DOUBLE[reader](net.get_submodule(name), node, float(graph.metadata["dt"]))
        return torch.zeros(0, dtype=torch.float64)

    return change


def differing(spikes: list[np.ndarray], expected: list[np.ndarray], leads: list[int]) -> list[int]:
    """Return how many spikes of each layer differ; a layer may be some steps early."""
    pairs = zip(spikes, expected, leads, strict=True)
    return [int((found[:, : found.shape[1] - lead] != true[:, lead:]).sum()) for found, true, lead in pairs]


def compare(network: SpikingNetwork, x: torch.Tensor, folder: Path) -> dict:
    """Return the number of spikes, and how many differ in each program."""
    activity, inputs = network.simulate(x), x.numpy()
    expected, scale = [a.numpy() for a in activity.spikes], float(activity.output.abs().max())
    facts: dict = {"spikes": [int(a.sum()) for a in expected], "places": [a.size for a in expected], "programs": {}}

    def note(name, graph, spikes, outputs):
        leads = [int(n) for n in graph.metadata.get("leads", [0] * len(spikes))]
        off = float(np.abs(outputs - activity.output.numpy()).max()) / scale
        facts["programs"][name] = {"differing": differing(spikes, expected, leads), "output_error": off}

    def stored(graph):
        write_nir(graph, folder / "network.nir")
        return read_nir(folder / "network.nir")

    names = [f"layer_{number + 1}" for number in range(len(network.layers))]
    graph = stored(to_nir(network))
    for kind in ("float64", "float32"):
        found = run_nir(graph, inputs, dtype=kind)
        outputs = found["output"][:, -1].reshape(activity.output.shape)
        note(f"interpreter, {kind}", graph, [found[name] for name in names], outputs)
    for reader in RUNNERS:
        if find_spec(reader) is None:
            continue
        try:
            graph = stored(to_nir(network, reader=reader))
        except ValueError as error:
            facts["programs"][reader] = {"refused": str(error)}
            continue
        for kind in ("float32", "float64"):
            spikes = reader_spikes(reader, graph, inputs, len(names), None if kind == "float32" else in_double(reader, graph))
            note(f"{reader}, {kind}", graph, spikes, read_spikes(graph, spikes))
    return facts


def quality(network: SpikingNetwork, x: torch.Tensor, y: torch.Tensor) -> dict:
    """Return what the network is worth on the samples that it was not fitted to."""
    with torch.no_grad():
        found = network(x).to(y)
    if y.shape[1:] == (1, 10):
        return {"accuracy": float((found.argmax(2) == y.argmax(2)).float().mean())}
    return {"rse": float((found - y).square().sum().sqrt() / (y - y.mean()).square().sum().sqrt())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--samples", type=int, default=1000, help="test samples that are compared")
    parser.add_argument("--fitted", action="store_true", help="estimators with a profile alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    result: dict = {"versions": {n: version(n) for n in ("nir", "nirtorch", *RUNNERS) if find_spec(n)}, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        for data, (x, y) in ({} if options.fitted else {"digits": digits(), "wind farm": wind()}).items():
            half, constants = len(x) // 2, (math.inf,) if data == "digits" else (2.0, 12.0)
            for name, form in NETWORKS.items():
                for dtype in (torch.float32, torch.float64):
                    say(f"{data}, {name}, {dtype}")
                    network = leaky_network(x[:half].to(dtype), y[:half].to(dtype), *form, constants, dtype)
                    facts = compare(network, x[half : half + options.samples].to(dtype), Path(folder))
                    facts |= quality(network, x[half:].to(dtype), y[half:].to(dtype))
                    result["runs"][f"{data}, {name}, {str(dtype).removeprefix('torch.')}"] = facts
        for data in ("digits", "wind farm"):
            for name, given in FITTED.items():
                for precision in ("float32", "float64"):
                    say(f"{data}, fitted {name}, {precision}")
                    network, x = fitted(data, given, precision)
                    x = x[: options.samples].to(network.readout.weights.dtype)
                    result["runs"][f"{data}, fitted {name}, {precision}"] = compare(network, x, Path(folder))
    print("| network | spikes | program | differing spikes | output error |\n| --- | --- | --- | --- | --- |")
    for run, facts in result["runs"].items():
        for program, found in facts["programs"].items():
            if "differing" in found:
                counts = " + ".join(map(str, found["differing"]))
                print(f"| {run} | {sum(facts['spikes']):,} | {program} | {counts} | {found['output_error']:.1e} |")
    if options.out is not None:
        with whole_file(options.out) as part:
            part.write_text(json.dumps({**setting(), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
