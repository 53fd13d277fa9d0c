"""Benchmarks: speedups are ratios inside one run, and the answer is checked before a time is reported.

Cases, each also a command (`sswim bench NAME`):

- ``fit``: the output step as it is implemented against the paper read literally, on the same hidden layer and data.
- ``assembly``: Gram matrices from spikes against the machine's own rate of multiplying matrices.
- ``simulation``: windows per second against other simulators, where these are installed.
- ``training``: a training step by gradients against other libraries', where these are installed.
- ``growth``: how time and memory grow with windows, horizon, outputs and neurons.
- ``electricity``: a fit of the full shape of the Electricity data.
- ``company``: a fit on one thread and on several, alone and beside busy processes.
- ``forecasters``: error, time and memory of sswim and of what people would pick instead, where that is installed.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sswim.bench.company import bench_company
from sswim.bench.forecasters import bench_forecasters
from sswim.bench.literal import literal_output_layer, synthetic_problem, synthetic_series
from sswim.bench.measure import alone, best, middle, say, setting
from sswim.bench.peers import PEERS
from sswim.data.windows import Samples, batches
from sswim.gradient.initialize import initialize
from sswim.machine import peak_memory
from sswim.network.layer import Workspace
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Randomness
from sswim.paper import Switches
from sswim.readout.traces import Trace
from sswim.readout.trajectory import Trajectory
from sswim.regression import Sums
from sswim.report import Facts
from sswim.sampling import sample
from sswim.writing import whole_file

__all__ = ["CASES", "run", "synthetic_series"]


def _network(outputs: int, window: int, horizon: int, neurons: int) -> SpikingNetwork:
    return SpikingNetwork(outputs, outputs, window=window, horizon=horizon, hidden=(neurons,))


def _output(network: SpikingNetwork) -> VoltageReadout:
    return network.readout  # type: ignore[return-value]


def _predictions(network: SpikingNetwork, samples: Samples) -> Tensor:
    predict = network.predictor()
    return torch.cat([predict(samples.inputs(part), None) for part in batches(len(samples), 256)]).double()


def _rse(network: SpikingNetwork, samples: Samples) -> float:
    y = samples.targets(slice(None)).double()
    error = ((_predictions(network, samples) - y) ** 2).sum()
    return float((error / ((y - y.mean(dim=0)) ** 2).sum()).sqrt())


def bench_fit(
    windows: int = 2000, window: int = 168, horizon: int = 96, outputs: int = 64, neurons: int = 750, repeats: int = 3
) -> Facts:
    """Fit as implemented, fast and exact, against the literal reading of the output step."""
    train, held_out, test = synthetic_problem(windows, 500, outputs, window, horizon)
    rows: list[Facts] = []
    for seed in range(repeats):
        seconds, rse, predictions = {}, {}, {}
        for assembly in ("fast", "exact"):
            network = _network(outputs, window, horizon, neurons)
            readout = Switches(assembly=assembly).trajectory
            begin = time.perf_counter()
            report = sample(network, train, validation=held_out, readout=readout, random_state=seed)
            seconds[assembly] = time.perf_counter() - begin
            rse[assembly], predictions[assembly] = _rse(network, test), _predictions(network, test)
            exact_supports = _output(network).supports.detach().clone()
        # The hidden layer is the same. Its own steps count for the literal reading too.
        hidden = sum(step.seconds for step in report.steps if step.name.startswith(("initial", "layer")))
        initial = torch.randperm(len(train), generator=Randomness(seed)("batch"))[: min(1000, len(train))]
        literal = literal_output_layer(network, train, held_out, initial)
        seconds["literal"] = hidden + sum(literal.values())
        rse["literal"] = _rse(network, test)
        change = (_predictions(network, test) - predictions["exact"]).abs()
        others = int((_output(network).supports - exact_supports).abs().gt(1e-3).sum())
        difference = float(change.max())
        rows.append(
            {
                "seed": seed,
                "seconds": seconds,
                "rse": rse,
                "fast_speedup": seconds["literal"] / seconds["fast"],
                "exact_speedup": seconds["literal"] / seconds["exact"],
                "fast_rse_change": rse["fast"] / rse["literal"] - 1,
                "exact_largest_difference": difference,
                "other_supports": others,
            }
        )
        say(f"{seed + 1} of {repeats}: {rows[-1]}")
    return {
        "shape": {"windows": windows, "window": window, "horizon": horizon, "outputs": outputs, "neurons": neurons},
        "runs": rows,
        "result": {key: middle(row[key] for row in rows) for key in rows[0] if key not in ("seed", "seconds", "rse")},
    }


def bench_assembly(neurons: int = 750, steps: int = 192, batch: int = 256, repeats: int = 3) -> Facts:
    """Gram matrices from spikes, rank and all, against one plain product of matrices of the same shape."""
    generator = torch.Generator().manual_seed(0)
    spikes = (torch.rand(neurons, steps, batch, generator=generator) < 0.05).float()
    kernel = _output(_network(1, steps - 24, 24, 1)).kernel
    trace = Trace(kernel, 20.0, 20.0, steps - 24, 24)
    equations = Sums(neurons, 1, 24)
    targets = torch.zeros(1, trace.basis.shape[1], batch, dtype=torch.float64)
    features = trace.features(spikes)
    rows = features.reshape(neurons, -1).clone()
    check = Sums(neurons, 1, 24)
    check.update(features.clone(), targets)
    centred = rows.double().reshape(features.shape)
    centred[:, 0] -= centred[:, 0].mean(dim=1, keepdim=True)
    expected = centred.reshape(neurons, -1) @ centred.reshape(neurons, -1).T
    if not torch.allclose(check.gram, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
        raise RuntimeError("the assembled Gram matrix is wrong: nothing was timed.")
    both = rows.T.contiguous()
    work = 2.0 * neurons * neurons * rows.shape[1]
    product = work / best(lambda: rows @ both, 5 * repeats)
    update = work / best(lambda: equations.update(features, targets), 5 * repeats)

    def whole() -> None:
        equations.update(trace.features(spikes), targets)

    all_work = work + 2.0 * neurons * trace._matrix.numel() * batch
    everything = all_work / best(whole, 5 * repeats)
    return {
        "shape": {"neurons": neurons, "rows": rows.shape[1]},
        "gemm_gflops": product / 1e9,
        "result": {"gram_over_gemm": update / product, "traces_and_gram_over_gemm": everything / product},
    }


def bench_simulation(batch: int = 64, inputs: int = 137, steps: int = 168, neurons: int = 750, repeats: int = 3) -> Facts:
    """One layer's forward pass over a batch: ours with kernels, delays and refractoriness, others with plain neurons.

    Others are measured where they are installed: ``make peers`` makes an environment that has them all.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, steps, inputs, generator=generator)
    network = SpikingNetwork(inputs, 1, window=steps, horizon=1, start=steps - 1, hidden=(neurons,))
    layer = network.layers[0]
    with torch.no_grad():
        layer.weights.normal_(0, 0.05, generator=generator)
        layer.biases.fill_(0.3)
        layer.delays.uniform_(0, steps / 2, generator=generator)
        layer.supports.uniform_(5, 50, generator=generator)
    filters, work = network.hidden_filters(), [Workspace()]
    rate = float(network.hidden_spikes(x, filters)[0].mean())
    if not 0.001 < rate < 0.5 or not torch.equal(
        network.hidden_spikes(x, filters, work)[0], network.hidden_spikes(x, filters)[0]
    ):
        raise RuntimeError("the simulated layer is silent, saturated or wrong: nothing was timed.")
    runs: dict[str, Callable[[], object]] = {"sswim": lambda: network.hidden_spikes(x, filters, work)}
    absent = []
    for name, make in PEERS.items():
        try:
            runs[name], _ = make(x, neurons)
        except ImportError as error:
            absent.append(f"{name} ({error})")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for run_ in runs.values():
            run_()
        for _ in range(5 * repeats):  # in turn, so that whatever else the machine does falls on all
            for name, run_ in runs.items():
                begin = time.perf_counter()
                run_()
                seconds[name].append(time.perf_counter() - begin)
    rates = {name: batch / statistics.median(times) for name, times in seconds.items()}
    return {
        "shape": {"batch": batch, "inputs": inputs, "steps": steps, "neurons": neurons, "firing_rate": rate},
        "absent": absent,
        "windows_per_second": rates,
        "result": {f"sswim over {name}": rates["sswim"] / value for name, value in rates.items() if name != "sswim"}
        or {"no peer installed": "run `make peers`, then .venv-peers/bin/sswim bench simulation"},
    }


def bench_training(
    batch: int = 64, inputs: int = 137, steps: int = 168, neurons: int = 750, horizon: int = 24, repeats: int = 3
) -> Facts:
    """One training step over a batch: forward, backward and Adam.

    Ours is the whole network with its output layer on the horizon, all parameters learnable: weights, biases, delays,
    supports, spike costs and refractory supports. Others have one layer of their plain neurons (lava-dl's with delays) and a
    linear readout of the spikes' means. They are measured where they are installed.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, steps, inputs, generator=generator)
    network = SpikingNetwork(inputs, inputs, window=steps, horizon=horizon, hidden=(neurons,))
    initialize(network, x, random_state=0)
    rate = float(network.simulate(x).spikes[0].mean())
    if not 0.001 < rate < 0.5:
        raise RuntimeError("the simulated layer is silent or saturated: nothing was timed.")
    target = torch.rand(batch, horizon, inputs, generator=generator)

    def stepper(forward: Callable[[], Tensor], y: Tensor, parameters: list[torch.nn.Parameter]) -> Callable[[], None]:
        optimizer = torch.optim.Adam(parameters, lr=1e-5)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.mse_loss(forward(), y).backward()
            optimizer.step()

        return step

    runs = {"sswim": stepper(lambda: network(x), target, list(network.parameters()))}
    absent = []
    for name, make in PEERS.items():
        try:
            layer, parameters = make(x, neurons)
        except ImportError as error:
            absent.append(f"{name} ({error})")
            continue
        readout = torch.nn.Linear(neurons, inputs)

        def forward(layer: Callable[[], Tensor] = layer, readout: torch.nn.Linear = readout) -> Tensor:
            return readout(layer().mean(dim=0))

        runs[name] = stepper(forward, target[:, 0], [*parameters, *readout.parameters()])
    for run_ in runs.values():
        run_()
    if not all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in network.parameters()):
        raise RuntimeError("a parameter has no finite gradient: nothing was timed.")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(3 * repeats):  # in turn, so that whatever else the machine does falls on all
        for name, run_ in runs.items():
            begin = time.perf_counter()
            run_()
            seconds[name].append(time.perf_counter() - begin)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "shape": {"batch": batch, "inputs": inputs, "steps": steps, "neurons": neurons, "horizon": horizon},
        "firing_rate": rate,
        "absent": absent,
        "seconds_per_step": median,
        "result": {f"{name} over sswim": value / median["sswim"] for name, value in median.items() if name != "sswim"}
        or {"no peer installed": "run `make peers`, then .venv-peers/bin/sswim bench training"},
    }


def bench_growth(repeats: int = 1) -> Facts:
    """Time and peak memory of whole fits while one size grows, as exponents of a power law."""
    base = {"windows": 2000, "horizon": 24, "outputs": 16, "neurons": 300}
    sizes = {
        "windows": [2000, 4000, 8000, 16000],
        "horizon": [12, 24, 48, 96],
        "outputs": [8, 16, 32, 64],
        "neurons": [150, 300, 600, 1200],
    }
    points: dict[str, list[dict[str, float]]] = {}
    exponents: dict[str, dict[str, float]] = {}
    for name, values in sizes.items():
        points[name] = []
        for value in values:
            measured = [alone(_timed_fit, {**base, name: value}) for _ in range(repeats)]
            seconds, output, memory = (statistics.median(m[k] for m in measured) for k in ("seconds", "output", "memory"))
            points[name].append({"size": value, "seconds": seconds, "output_seconds": output, "memory": memory})
        at = np.log([p["size"] for p in points[name]])
        exponents[name] = {
            key: float(np.polyfit(at, np.log([p[key] for p in points[name]]), 1)[0])
            for key in ("seconds", "output_seconds", "memory")
        }
    return {"base": base, "points": points, "result": exponents}


def bench_electricity(windows: int = 15_600, outputs: int = 321, horizon: int = 96, neurons: int = 750) -> Facts:
    """Fit the full shape of the Electricity data: hours of work when read literally."""
    measured = alone(_timed_fit, {"windows": windows, "outputs": outputs, "horizon": horizon, "neurons": neurons})
    return {
        "shape": {"windows": windows, "window": 168, "horizon": horizon, "outputs": outputs, "neurons": neurons},
        "result": {"minutes": measured["seconds"] / 60, "peak_memory_gib": measured["memory"] / 2**30, "rse": measured["rse"]},
        "steps": measured["steps"],
    }


def _timed_fit(windows: int, outputs: int, horizon: int, neurons: int, window: int = 168) -> Facts:
    train, held_out, test = synthetic_problem(windows, 500, outputs, window, horizon)
    network = _network(outputs, window, horizon, neurons)
    begin = time.perf_counter()
    report = sample(network, train, validation=held_out, readout=Trajectory(assembly="fast"), random_state=0)
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "output": next(step.seconds for step in report.steps if step.name == "output weights"),
        "memory": peak_memory() or math.nan,
        "rse": _rse(network, test),
        "steps": {step.name: round(step.seconds, 2) for step in report.steps},
    }


CASES: dict[str, Callable[..., Facts]] = {
    "fit": bench_fit,
    "assembly": bench_assembly,
    "simulation": bench_simulation,
    "training": bench_training,
    "growth": bench_growth,
    "electricity": bench_electricity,
    "company": bench_company,
    "forecasters": bench_forecasters,
}


def run(name: str, out: Path | None = None, **options: object) -> Facts:
    """Run one case and return its figures with the setting they were measured in; write them to `out` as JSON."""
    result = {"case": name, **setting(), **CASES[name](**options)}
    if out is not None:
        with whole_file(out) as part:
            part.write_text(json.dumps(result, indent=2) + "\n")
    return result
