"""NIR: exported networks have the same spikes, here and in other simulators; what has no exact form is refused."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from sswim import Classifier, Forecaster, SpikingNetwork
from sswim.bench.readers import RUNNERS, reader_spikes
from sswim.cli import app
from sswim.export import from_nir, lag_line, read_nir, read_spikes, run_nir, to_nir, write_nir
from sswim.export.command import FORMATS
from sswim.export.graph import METADATA, NODES
from sswim.export.neurons import leaky_layers
from sswim.export.nir import READERS
from sswim.export.spatial import AXES
from sswim.network import Alpha, Hat, Refractory
from sswim.network.kernels import kernel_taps
from sswim.profiles import PROFILES
from sswim.readout import TraceReadout, Traces
from sswim.steps.leaky import FOREVER

nir = pytest.importorskip("nir", reason="`pip install 'sswim[nir]'` installs it")
h5py = pytest.importorskip("h5py")

WINDOW, INPUTS, OUTPUTS, HORIZON = 40, 4, 3, 2
# Kernels and widths of layers, longest delay of the first, least and largest support, constants of the readout's traces.
NETWORKS = {
    "lif": (["exponential"], (20,), 0, (1, 7), (3.0,)),
    "lif, delays": (["exponential"], (20,), 5, (1, 7), (3.0, math.inf)),
    "lif, one time constant": (["exponential"] * 2, (12, 9), 0, (4, 4), (math.inf,)),
    "2 lif": (["exponential"] * 2, (12, 9), 3, (1, 7), (2.0, 9.0)),
    "cuba": (["alpha"], (20,), 0, (1, 7), (5.0,)),
    "2 cuba, at once": (["alpha"] * 2, (12, 9), -1, (1, 7), (5.0,)),
    "2 cuba, delays": (["alpha"] * 2, (12, 9), 4, (1, 7), (5.0, math.inf)),
    "3 mixed, delays": (["alpha", "exponential", "alpha"], (12, 9, 7), 4, (2, 5), (1.0, 4.0)),
}
# Potentials stay this far from the threshold, so that rounding matters nowhere.
MARGIN = 2e-5


def leaky(name, dtype=torch.float32, seed=0):
    """A network whose layers are LIF or CubaLIF, with random parameters."""
    kernels, hidden, delay, (least, largest), constants = NETWORKS[name]
    draw = torch.Generator().manual_seed(seed)
    readout = TraceReadout(sum(hidden) * len(constants), OUTPUTS, HORIZON, constants=constants, dtype=dtype)
    sizes = {"window": WINDOW, "horizon": HORIZON, "hidden": hidden}
    network = SpikingNetwork(INPUTS, OUTPUTS, kernel=kernels, refractory="exponential", readout=readout, dtype=dtype, **sizes)
    with torch.no_grad():
        for number, layer in enumerate(network.layers):
            layer.weights.copy_(1.2 * torch.randn(layer.weights.shape, generator=draw))
            layer.supports.copy_(least + (largest - least) * torch.rand(layer.neurons, generator=draw))
            layer.refractory_supports.copy_(layer.supports), layer.costs.fill_(-1)
            if delay == -1:
                layer.delays.fill_(-1)
            elif number == 0 and delay:
                layer.delays.copy_(torch.randint(0, delay + 1, (layer.neurons,), generator=draw))
        readout.weights.copy_(torch.randn(readout.weights.shape, generator=draw) / 10)
        readout.biases.copy_(torch.randn(readout.biases.shape, generator=draw))
    return network


def inputs_for(network, count=4):
    """Inputs on which no potential is within MARGIN of the threshold."""
    exact = SpikingNetwork(
        network.inputs,
        network.outputs,
        window=network.window,
        horizon=network.horizon,
        hidden=network.hidden,
        kernel=network.kernels,
        refractory=network.refractory,
        readout=TraceReadout(network.readout.weights.shape[1], OUTPUTS, HORIZON, constants=network.readout.constants),
        dtype=torch.float64,
    )
    exact.layers.load_state_dict(network.layers.state_dict())
    x = torch.randn(60, WINDOW, INPUTS, generator=torch.Generator().manual_seed(1))
    exact.readout.double()
    near = torch.stack([(v - 1).abs().amin(dim=(0, 1)) for v in exact.hidden_potentials(x)]).amin(dim=0)
    kept = x[near > MARGIN][:count]
    assert len(kept) == count
    return kept


def stored(graph, folder):
    write_nir(graph, folder / "network.nir")
    return read_nir(folder / "network.nir")


def check_spikes(network, graph, spikes, x):
    """Every spike is there, in a layer that is `lead` steps early; some neurons fire, and none fires always."""
    expected = [a.numpy() for a in network.simulate(x).spikes]
    leads = [int(n) for n in graph.metadata.get("leads", [0] * len(expected))]
    for found, true, lead in zip(spikes, expected, leads, strict=True):
        assert 0.05 < true.mean() < 0.6
        np.testing.assert_array_equal(found[:, : WINDOW - lead], true[:, lead:])


@pytest.mark.parametrize("reader", [None, "snntorch", "norse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_exported_graphs_have_the_same_spikes_and_outputs(name, dtype, reader, tmp_path):
    network = leaky(name, dtype)
    x = inputs_for(network).to(dtype)
    graph = stored(to_nir(network, reader=reader), tmp_path)
    found = run_nir(graph, lag_line(graph, x.numpy()))
    spikes = [found[f"layer_{number + 1}"] for number in range(len(network.layers))]
    check_spikes(network, graph, spikes, x)
    expected = network.simulate(x).output.numpy()
    outputs = found["output"][:, -1].reshape(expected.shape) if reader is None else read_spikes(graph, spikes)
    np.testing.assert_allclose(outputs, expected, atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("reader", RUNNERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_other_simulators_have_the_same_spikes(name, reader, tmp_path):
    pytest.importorskip(reader, reason="`make peers` installs it, in .venv-peers")
    network = leaky(name)
    if reader == "spikingjelly" and "one time constant" not in name:
        with pytest.raises(ValueError, match="needs one time constant per layer"):
            to_nir(network, reader=reader)
        return
    x = inputs_for(network)
    graph = stored(to_nir(network, reader=reader), tmp_path)
    spikes = reader_spikes(reader, graph, x.numpy(), len(network.layers))
    check_spikes(network, graph, spikes, x)
    np.testing.assert_allclose(read_spikes(graph, spikes), network.simulate(x).output.numpy(), atol=1e-5)


def test_every_reader_can_be_run():
    assert set(READERS) == set(RUNNERS)


def test_a_potential_at_the_threshold_fires():
    network = leaky("lif")
    with torch.no_grad():
        network.layers[0].weights.fill_(1.0)
    x = torch.zeros(1, WINDOW, INPUTS)
    x[0, 3, 0] = 1.0  # the potential is exactly 1
    for kind in ("float32", "float64"):
        found = run_nir(to_nir(network), x.numpy(), dtype=kind)["layer_1"]
        np.testing.assert_array_equal(found, network.simulate(x).spikes[0].numpy())
        assert found[:, 3].all() and found.sum() == 20


@pytest.mark.parametrize("reader", ["snntorch", "norse"])
def test_a_potential_at_the_threshold_fires_elsewhere(reader):
    pytest.importorskip(reader, reason="`make peers` installs it, in .venv-peers")
    network = SpikingNetwork(
        1, 1, window=5, horizon=1, hidden=(400,), kernel="exponential", refractory="exponential",
        readout=TraceReadout(400, 1, 1, constants=[1.0]),
    )  # fmt: skip
    with torch.no_grad():
        for parameter in (network.layers[0].supports, network.layers[0].refractory_supports):
            parameter.copy_(torch.linspace(0.5, 60, 400))
        network.layers[0].weights.fill_(0.5), network.layers[0].costs.fill_(-1)
    x = torch.tensor([0.0, 2.0, 0.0, 0.0, 0.0]).reshape(1, 5, 1)
    spikes = reader_spikes(reader, to_nir(network, reader=reader), x.numpy(), 1)[0]
    np.testing.assert_array_equal(spikes, network.simulate(x).spikes[0].numpy())
    assert spikes.sum() == 400


def test_delays_as_a_lag_line_are_the_same_network():
    network = leaky("2 lif")
    x, graph = inputs_for(network).numpy(), to_nir(network, delays="input")
    assert not any(isinstance(node, nir.Delay) for node in graph.nodes.values())
    assert graph.metadata["lags"].tolist() == [0, 1, 2, 3] and lag_line(graph, x).shape == (4, WINDOW, 4 * INPUTS)
    expected = run_nir(to_nir(network), x)["output"]
    np.testing.assert_allclose(run_nir(graph, lag_line(graph, x))["output"], expected, atol=1e-12)


@pytest.mark.parametrize("reader", [None, "snntorch", "norse"])
@pytest.mark.parametrize("name", NETWORKS)
def test_there_and_back(name, reader, tmp_path):
    network = leaky(name)
    graph = stored(to_nir(network, reader=reader), tmp_path)
    back = from_nir(tmp_path / "network.nir")
    assert (back.window, back.horizon, back.kernels) == (network.window, network.horizon, network.kernels)
    assert back.readout.constants == network.readout.constants
    for (key, value), found in zip(network.state_dict().items(), back.state_dict().values(), strict=True):
        assert torch.equal(found, value), key  # to the last bit
    again = to_nir(back, reader=reader)
    for key, node in graph.nodes.items():
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(again.nodes[key], field.name), value)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0, 300.0])
def test_alpha_kernels_are_two_integrators_in_a_row(sigma):
    network = leaky("cuba", torch.float64)
    with torch.no_grad():
        network.layers[0].supports.fill_(sigma), network.layers[0].refractory_supports.fill_(sigma)
    layer = leaky_layers(network, "")[0]
    beta, gain, current, potential, taps = layer.decays[0], layer.gains[0], 0.0, 0.0, [0.0]
    for t in range(50):
        current = beta * current + gain * (t == 0)
        potential = beta * potential + current
        taps.append(potential)  # one step late
    expected = kernel_taps(Alpha(), torch.zeros(1, dtype=torch.float64), torch.tensor([sigma], dtype=torch.float64), 51)[0]
    np.testing.assert_allclose(taps, expected.numpy(), rtol=1e-11, atol=1e-300)
    assert set(layer.lags) == {1}


# The interpreter, against scalar loops of NIR's equations.


def array(*values):
    return np.array(values, dtype=float)


def literal(node, x, dt, reset):
    """One neuron, one Euler step per time step, as the interpreter's docstring says."""
    kind, out = type(node).__name__, []
    leak = float(node.v_leak[0]) if hasattr(node, "v_leak") else 0.0
    current, v = 0.0, leak
    for value in x:
        if kind.startswith("Cuba"):
            current += dt / node.tau_syn[0] * (node.w_in[0] * value - current)
            v += dt / node.tau_mem[0] * (leak - v + node.r[0] * current)
        elif kind in ("I", "IF"):
            v += dt * node.r[0] * value
        else:
            v += dt / node.tau[0] * (leak - v + node.r[0] * value)
        if not kind.endswith("IF"):
            out.append(v)
            continue
        out.append(float(v > node.v_threshold[0]))
        if out[-1]:
            v = v - node.v_threshold[0] if reset == "subtract" else node.v_reset[0]
    return out


NEURONS = {
    "LI": nir.LI(tau=array(4e-3), r=array(2.0), v_leak=array(0.3)),
    "LIF": nir.LIF(tau=array(4e-3), r=array(3.0), v_leak=array(0.2), v_threshold=array(0.7), v_reset=array(-0.1)),
    "I": nir.I(r=array(250.0)),
    "IF": nir.IF(r=array(250.0), v_threshold=array(0.7), v_reset=array(0.1)),
    "CubaLI": nir.CubaLI(tau_syn=array(3e-3), tau_mem=array(5e-3), r=array(2.0), v_leak=array(0.1), w_in=array(1.5)),
    "CubaLIF": nir.CubaLIF(
        tau_syn=array(3e-3),
        tau_mem=array(5e-3),
        r=array(4.0),
        v_leak=array(-0.1),
        v_threshold=array(0.5),
        v_reset=array(0.05),
        w_in=array(1.5),
    ),
}


@pytest.mark.parametrize("reset", ["subtract", "value"])
@pytest.mark.parametrize("kind", NEURONS)
def test_neurons_are_those_of_a_literal_loop(kind, reset):
    x = np.random.default_rng(0).standard_normal((3, 60, 1)) + 0.4
    found = run_nir(nir.NIRGraph.from_list(NEURONS[kind]), x, dt=1e-3, reset=reset)[kind.lower()]
    expected = np.array([literal(NEURONS[kind], series[:, 0], 1e-3, reset) for series in x])
    np.testing.assert_allclose(found[:, :, 0], expected, rtol=1e-12, atol=1e-12)
    if kind.endswith("IF"):
        other = run_nir(nir.NIRGraph.from_list(NEURONS[kind]), x, dt=1e-3, reset={"value": "subtract"}.get(reset, "value"))
        assert 5 < expected.sum() < 150 and (other[kind.lower()] != found).any()


def test_nir_fires_above_the_threshold_only():
    node = nir.IF(r=array(2.0), v_threshold=array(1.0))
    found = run_nir(nir.NIRGraph.from_list(node), np.ones((1, 3, 1)), dt=0.5, reset="value")["if"]
    assert found.ravel().tolist() == [0, 1, 0]  # the potential is 1, 2, and 1 again


def test_maps_delays_and_sums():
    rng, x = np.random.default_rng(0), np.random.default_rng(1).standard_normal((2, 9, 2, 3))
    W, V, b, s = rng.standard_normal((4, 6)), rng.standard_normal((4, 6)), rng.standard_normal(4), rng.standard_normal(4)
    late = array(0.0, 2e-3, 20e-3, 1e-3)
    nodes = {
        "input": nir.Input(np.array([2, 3])),
        "flat": nir.Flatten({"input": np.array([2, 3])}, start_dim=0, end_dim=-1),
        "affine": nir.Affine(W, b),
        "linear": nir.Linear(V),
        "scale": nir.Scale(s),  # reads the sum
        "delay": nir.Delay(late),
        "output": nir.Output(np.array([4])),
    }
    pairs = "input flat, flat affine, flat linear, affine scale, linear scale, scale delay, delay output"
    graph = nir.NIRGraph(nodes, [tuple(pair.split()) for pair in pairs.split(", ")])
    found = run_nir(graph, x, dt=1e-3)
    flat = x.reshape(2, 9, 6)
    expected = (flat @ (W + V).T + b) * s
    np.testing.assert_allclose(found["scale"], expected, rtol=1e-12)
    for j, lag in enumerate([0, 2, 20, 1]):
        padded = np.concatenate([np.zeros((2, lag)), expected[:, :, j]], axis=1)[:, :9]
        np.testing.assert_allclose(found["output"][:, :, j], padded, rtol=1e-12)


def test_every_node_that_is_known_is_tested():
    maps = {"Input", "Output", "Affine", "Linear", "Scale", "Delay", "Flatten"}
    assert set(NODES) == {*NEURONS, *maps, *AXES}  # the last ones in test_nir_filters.py


# Graphs of other programs.


def lif(size, tau=5e-3, threshold=1.0, r=None):
    ones = np.ones(size)
    return nir.LIF(tau=tau * ones, r=(tau / 1e-3 if r is None else r) * ones, v_leak=0 * ones, v_threshold=threshold * ones)


def test_graphs_of_others_become_networks():
    rng = np.random.default_rng(0)
    graph = nir.NIRGraph.from_list(
        nir.Affine(rng.standard_normal((8, 3)), np.zeros(8)),
        nir.Delay(1e-3 * rng.integers(0, 3, 8)),
        lif(8, threshold=1.7, r=4.0),
        nir.Linear(rng.standard_normal((5, 8))),
        lif(5, tau=8e-3),
    )
    x = rng.standard_normal((6, 30, 3))
    network = from_nir(graph, window=30, dt=1e-3, reset="subtract", dtype=torch.float64)
    found = run_nir(graph, x, dt=1e-3, reset="subtract")
    activity = network.simulate(torch.from_numpy(x))
    np.testing.assert_array_equal(activity.spikes[0].numpy(), found["lif"])
    np.testing.assert_array_equal(activity.spikes[1].numpy(), found["lif_1"])
    np.testing.assert_allclose(activity.output[:, 0].numpy(), found["lif_1"].sum(axis=1), atol=1e-12)  # spikes are counted
    assert found["lif_1"].sum() > 20


def test_a_map_before_the_integrators_is_a_readout_too():
    rng = np.random.default_rng(0)
    leaks = nir.LI(tau=np.array([4e-3, 9e-3]), r=np.array([1.0, 2.0]), v_leak=np.zeros(2))
    graph = nir.NIRGraph.from_list(
        nir.Linear(rng.standard_normal((8, 3))),
        lif(8),
        nir.Linear(rng.standard_normal((2, 8))),
        leaks,
        nir.Scale(array(2.0, 3.0)),
    )
    x = rng.standard_normal((6, 30, 3))
    network = from_nir(graph, window=30, dt=1e-3, reset="subtract", dtype=torch.float64)
    found = run_nir(graph, x, dt=1e-3, reset="subtract")["output"]
    np.testing.assert_allclose(network(torch.from_numpy(x))[:, 0].detach().numpy(), found[:, -1], atol=1e-6)


def changed(node, **values):
    parameters = {field.name: getattr(node, field.name) for field in dataclasses.fields(node) if field.init}
    return type(node)(**{**parameters, **values})


FOREIGN = {
    "sets potentials to v_reset": ({"reset": None}, [nir.Linear(np.eye(2)), lif(2)]),
    "window: the graph's metadata do not tell it": ({"window": None}, [nir.Linear(np.eye(2)), lif(2)]),
    "dt: the graph's metadata do not tell its time step": ({"dt": None}, [nir.Linear(np.eye(2)), lif(2)]),
    "must have neurons": ({}, [nir.Linear(np.eye(2))]),
    "its bias must be 0": ({}, [nir.Affine(np.eye(2), np.ones(2)), lif(2)]),
    "v_leak must be 0": ({}, [nir.Linear(np.eye(2)), changed(lif(2), v_leak=np.ones(2))]),
    "time constants must be > dt": ({}, [nir.Linear(np.eye(2)), lif(2, tau=1e-3)]),
    "must be whole steps": ({}, [nir.Linear(np.eye(2)), nir.Delay(np.full(2, 1.5e-3)), lif(2)]),
    "must come right before the neurons": ({}, [nir.Delay(np.zeros(2)), nir.Linear(np.eye(2)), lif(2)]),
    "A readout is made of": ({}, [nir.Linear(np.eye(1)), lif(1), NEURONS["I"], NEURONS["CubaLI"]]),
}


@pytest.mark.parametrize("message", FOREIGN)
def test_graphs_of_others_that_are_refused(message):
    options, nodes = FOREIGN[message]
    nodes = [changed(n, v_leak=0 * n.v_leak, tau_syn=n.tau_mem) if isinstance(n, nir.CubaLIF) else n for n in nodes]
    given = {"window": 10, "dt": 1e-3, "reset": "subtract", **options}
    with pytest.raises(ValueError, match=message):
        from_nir(nir.NIRGraph.from_list(*nodes), **given)


# What is refused.


def set_value(name, value):
    def change(network):
        with torch.no_grad():
            getattr(network.layers[0], name)[3] = value

    return change


def set_kernel(kind, kernel):
    return lambda network: setattr(network.layers[0], kind, kernel)


def with_voltage(network):
    network.readout = SpikingNetwork(INPUTS, OUTPUTS, window=WINDOW, horizon=HORIZON, hidden=(20,)).readout


REFUSED = {
    "kernel must be Exponential() or Alpha(), got Hat()": set_kernel("kernel", Hat()),
    "the refractory kernel must be Exponential(), got Refractory()": set_kernel("refractory", Refractory()),
    "refractory_supports must be those of the kernel (supports), got 2 of neuron 3": set_value("refractory_supports", 2.0),
    "costs must be -1, a subtractive reset, got -1.5 of neuron 3": set_value("costs", -1.5),
    "biases must be 0, got 0.25 of neuron 3": set_value("biases", 0.25),
    "delays must be whole steps >= 0, got 1.5 of neuron 3": set_value("delays", 1.5),
    "weights must be finite": set_value("weights", math.nan),
    "a VoltageReadout has no such form": with_voltage,
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_exact_form_is_refused(message):
    network = leaky("lif")
    REFUSED[message](network)
    with pytest.raises(ValueError) as error:
        to_nir(network)
    assert message in str(error.value) and "profile='nir'" in str(error.value)
    assert str(error.value).startswith("This network cannot be exported exactly. ")


def test_all_reasons_are_told_at_once():
    network = leaky("2 lif")
    for change in REFUSED.values():
        change(network)
    with pytest.raises(ValueError) as error:
        to_nir(network)
    assert all(message in str(error.value) for message in REFUSED)


def test_options_of_to_nir():
    network = leaky("2 lif")
    with pytest.raises(ValueError, match="reader must be one of .* Did you mean 'norse'"):
        to_nir(network, reader="nors")
    with pytest.raises(ValueError, match="delays must be one of"):
        to_nir(network, delays="somewhere")
    with pytest.raises(ValueError, match="dt must be a finite number > 0"):
        to_nir(network, dt=0.0)
    with pytest.raises(ValueError, match="snnTorch takes no time step but 1e-4"):
        to_nir(network, reader="snntorch", dt=1e-3)
    with pytest.raises(ValueError, match="norse takes no Delay nodes"):
        to_nir(network, reader="norse", delays="nodes")
    with pytest.raises(ValueError, match="need a Delay node"):
        to_nir(leaky("2 cuba, delays"), delays="input")
    with torch.no_grad():
        network.layers[1].delays[0] = 2
    to_nir(network)
    with pytest.raises(ValueError, match=r"layers\[1\] has delays, got 2 steps"):
        to_nir(network, reader="norse")
    with pytest.raises(TypeError, match="must be a fitted Forecaster"):
        to_nir(Forecaster())


def test_neurons_without_a_leak(tmp_path):
    network = leaky("lif")
    with torch.no_grad():
        network.layers[0].supports.fill_(FOREVER), network.layers[0].refractory_supports.fill_(FOREVER)
        network.layers[0].weights.mul_(0.3)
    x = inputs_for(network)
    graph = stored(to_nir(network), tmp_path)
    assert isinstance(graph.nodes["layer_1"], nir.IF)
    found = run_nir(graph, x.numpy())
    np.testing.assert_array_equal(found["layer_1"], network.simulate(x).spikes[0].numpy())
    back = from_nir(graph)
    assert torch.equal(back.simulate(x).spikes[0], network.simulate(x).spikes[0])
    with pytest.raises(ValueError, match="reader: norse has no neurons without a leak"):
        to_nir(network, reader="norse")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kernel", ["auto", "alpha"])
def test_models_with_a_profile(profile, kernel, tmp_path):
    if kernel not in ("auto", *PROFILES[profile].kernels):
        pytest.skip("this chip has no such neurons")
    t = np.arange(600)[:, None]
    rows = np.sin(2 * np.pi * t / 24 + np.arange(2)) + 0.1 * np.random.default_rng(0).normal(size=(600, 2))
    options = {"hidden": (30, 20), "channels": "joint", "readout": Traces((6.0,)), "random_state": 0, "verbose": 0}
    model = Forecaster(20, 3, profile=profile, kernel=kernel, dtype="float64", **options).fit(rows)
    graph = stored(to_nir(model), tmp_path)
    x = torch.randn(30, 20, model.network_.inputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, wanted = run_nir(graph, x.numpy()), model.network_.simulate(x)
    for number, spikes in enumerate(wanted.spikes, start=1):
        np.testing.assert_array_equal(found[f"layer_{number}"], spikes.numpy())
    last = found["output"][:, -1].reshape(30, 3, 2)
    np.testing.assert_allclose(last, wanted.output.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_a_delay_in_a_deeper_layer_is_a_node():
    network = leaky("2 lif", torch.float64)
    with torch.no_grad():
        network.layers[1].delays[:4] = 2
    x = inputs_for(network).double()
    found = run_nir(to_nir(network, dt=0.5), x.numpy())
    check_spikes(network, to_nir(network), [found["layer_1"], found["layer_2"]], x)
    assert torch.equal(from_nir(to_nir(network), dtype=torch.float64).layers[1].delays, network.layers[1].delays)


def small(**nodes):
    return {"input": nir.Input(np.array([2])), **nodes, "output": nir.Output(np.array([2]))}


LINE = [("input", "a"), ("a", "output")]
TWO = small(a=nir.Linear(np.eye(2)), b=nir.Linear(np.eye(2)))
WRONG = {
    "the node 'a' is a Threshold, which is not supported": (small(a=nir.Threshold(np.ones(2))), LINE),
    "the node 'a' is a AvgPool2d": (small(a=nir.AvgPool2d(*[np.array([2, 2])] * 3)), LINE),
    "the node 'a' is a NIRGraph": (small(a=nir.NIRGraph.from_list(nir.Linear(np.eye(2)))), LINE),
    "'a' -> 'a' is recurrent": (small(a=nir.Linear(np.eye(2))), [*LINE, ("a", "a")]),
    "a -> b -> a is a cycle": (TWO, [("input", "a"), ("a", "b"), ("b", "a"), ("b", "output")]),
    "names 'c', which is not a node": (small(a=nir.Linear(np.eye(2))), [*LINE, ("a", "c")]),
    "'a' -> 'output' is there twice": (small(a=nir.Linear(np.eye(2))), [*LINE, ("a", "output")]),
    "an edge must be two names": (small(a=nir.Linear(np.eye(2))), [*LINE, ("a", "output", "x")]),
    "nothing leads to the node 'b'": (TWO, [*LINE, ("b", "output")]),
    "no edge leaves the node 'b'": (TWO, [*LINE, ("a", "b")]),
    "the Input node 'input' reads 'a'": (small(a=nir.Linear(np.eye(2))), [*LINE, ("a", "input")]),
    "an edge leaves the Output node": (TWO, [*LINE, ("output", "b"), ("b", "output")]),
    "must have one Input node, got none": ({"a": nir.Linear(np.eye(2)), "output": nir.Output(np.array([2]))}, LINE[1:]),
    "must have one Input node, got ['input', 'b']": (small(a=nir.Linear(np.eye(2)), b=nir.Input(np.array([2]))), LINE),
    "must have an Output node": ({"input": nir.Input(np.array([2])), "a": nir.Linear(np.eye(2))}, LINE[:1]),
    "'a' takes the shape (3,), but 'input' puts out (2,)": (small(a=nir.Linear(np.ones((2, 3)))), LINE),
    "'output' takes the shape (2,), but 'a' puts out (5,)": (small(a=nir.Linear(np.ones((5, 2)))), LINE),
    "bias must have the shape (2,), got (3,)": (small(a=nir.Affine(np.eye(2), np.ones(3))), LINE),
    "weight must have the shape (outputs, inputs)": (small(a=nir.Linear(np.ones((2, 2, 2)))), LINE),
    "weight must be finite numbers": (small(a=nir.Linear(np.full((2, 2), np.nan))), LINE),
    "tau must be > 0, got -0.005": (small(a=lif(2, tau=-5e-3)), LINE),
    "delay must be >= 0": (small(a=nir.Delay(-np.ones(2))), LINE),
    "reads 'a' of shape (2,) and 'b' of shape (3,)": (
        small(a=nir.Linear(np.eye(2)), b=nir.Linear(np.ones((3, 2)))),
        [("input", "a"), ("input", "b"), ("a", "output"), ("b", "output")],
    ),
    "flattens the axes 1 to -1, but reads 1 axes": (small(a=nir.Flatten({"input": np.array([2])})), LINE),
    "must say one shape": ({**small(a=nir.Linear(np.eye(2))), "input": nir.Input(np.array([0]))}, LINE),
}


@pytest.mark.parametrize("message", WRONG)
def test_graphs_that_are_not_whole_are_refused(message, tmp_path):
    graph = nir.NIRGraph(*WRONG[message], type_check=False)
    for use in (
        lambda: run_nir(graph, np.zeros((1, 5, 2)), dt=1e-3),
        lambda: from_nir(graph, window=5, dt=1e-3, reset="subtract"),
        lambda: write_nir(graph, tmp_path / "a.nir"),
    ):
        with pytest.raises(ValueError) as error:
            use()
        assert message in str(error.value)
    assert not list(tmp_path.iterdir())


def test_wrong_parameters_of_one_node():
    node = lif(2)
    node.r = np.ones(3)  # nir checks this when a node is made, and never again
    with pytest.raises(ValueError, match=r"all parameters must have the shape \(2,\), got r \(3,\)"):
        run_nir(nir.NIRGraph(small(a=node), LINE, type_check=False), np.zeros((1, 5, 2)), dt=1e-3)


def test_wrong_inputs_of_the_interpreter():
    graph = nir.NIRGraph.from_list(nir.Linear(np.eye(2)), lif(2), nir.Delay(np.full(2, 2.5e-3)))
    with pytest.raises(
        ValueError, match=r"inputs must be numbers of shape \(batch, time, 2\), got float64 of shape \(1, 5, 3\)"
    ):
        run_nir(graph, np.zeros((1, 5, 3)), dt=1e-3)
    with pytest.raises(ValueError, match="do not tell its time step"):
        run_nir(graph, np.zeros((1, 5, 2)))
    with pytest.raises(ValueError, match="reset must be one of 'subtract', 'value', got 'zero'"):
        run_nir(graph, np.zeros((1, 5, 2)), dt=1e-3, reset="zero")
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        run_nir(graph, np.zeros((1, 5, 2)), dt=1e-3, dtype="float16")
    with pytest.raises(ValueError, match="'delay': delay must be whole steps of dt = 0.001, got 2.5 steps"):
        run_nir(graph, np.zeros((1, 5, 2)), dt=1e-3)
    with pytest.raises(ValueError, match="'lif': tau must be at least dt = 0.1, got 0.005"):
        run_nir(graph, np.zeros((1, 5, 2)), dt=0.1)
    with pytest.raises(TypeError, match="graph must be a nir.NIRGraph, got str"):
        run_nir("a.nir", np.zeros((1, 5, 2)), dt=1e-3)


def test_wrong_inputs_of_the_host():
    network = leaky("2 lif")
    graph = to_nir(network, reader="norse")
    with pytest.raises(ValueError, match="inputs must have 4 channels, got 5"):
        lag_line(graph, np.zeros((1, WINDOW, 5)))
    with pytest.raises(ValueError, match="spikes must be 2 arrays of shape .*, with 21 neurons in all"):
        read_spikes(graph, np.zeros((1, WINDOW, 12)))
    with pytest.raises(ValueError, match="its metadata have no readout_constants"):
        read_spikes(to_nir(network), [np.zeros((1, WINDOW, 12)), np.zeros((1, WINDOW, 9))])


JUNK = ["x", -1, 1.5, np.zeros(0), np.array([[1]]), np.array([-1]), np.array([np.nan]), np.array(["a"]), None, {"a": 1}]


@pytest.mark.parametrize("name", [*METADATA, "dt", "reset"])
def test_metadata_that_nobody_wrote(name):
    network = leaky("2 lif")
    for junk in JUNK:
        graph = to_nir(network, reader="norse")
        graph.metadata[name] = junk
        if name in ("readout_weights", "readout_biases", "fires_at") and isinstance(junk, (float, np.ndarray)):
            continue  # numbers like any others, as far as one number goes
        if junk is None and name == "dt":
            junk = "nothing"
        with pytest.raises((TypeError, ValueError), match=name):
            from_nir(graph)
    graph = to_nir(network, reader="norse")
    graph.metadata["readout_weights"] = np.ones((3, 2))
    with pytest.raises(ValueError, match="does not fit 21 neurons"):
        from_nir(graph)
    graph.metadata["leads"] = np.array([0])
    with pytest.raises(ValueError, match="one number for each of 2 layers"):
        from_nir(graph)


# Files.


@pytest.fixture
def file(tmp_path):
    write_nir(to_nir(leaky("2 lif")), tmp_path / "a.nir")
    return tmp_path / "a.nir"


def test_truncated_files(file):
    whole = file.read_bytes()
    for length in [0, 1, 7, 8, 100, *range(500, len(whole), len(whole) // 23)]:
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="a.nir: not an NIR file, or damaged"):
            read_nir(file)
    file.write_bytes(whole)
    assert from_nir(file).hidden == (12, 9)


def test_files_of_something_else(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_nir(tmp_path / "b.nir")
    place = tmp_path / "b.nir"
    place.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not an NIR file, or damaged"):
        from_nir(str(place))
    with h5py.File(place, "w") as other:
        other["x"] = np.arange(3)
    with pytest.raises(ValueError, match="no group 'node'"):
        read_nir(place)


def test_damaged_parts_of_files(file, tmp_path):
    def damage(change, message):
        place = tmp_path / "b.nir"
        place.write_bytes(file.read_bytes())
        with h5py.File(place, "r+") as inside:
            change(inside["node"])
        with pytest.raises(ValueError, match=message):
            read_nir(place)

    def replace(group, key, value):
        del group[key]
        group[key] = value

    nodes = "nodes/layer_1"
    damage(
        lambda node: replace(node[nodes], "type", "Izhikevich"), "the node 'layer_1' is a Izhikevich, which is not supported"
    )
    damage(lambda node: replace(node, "type", "LIF"), "its root is a LIF")
    damage(lambda node: node.pop("edges"), "it lacks nodes or edges")
    damage(lambda node: node[nodes].pop("tau"), "not an NIR file, or damaged")
    damage(lambda node: replace(node[nodes], "tau", np.ones(5)), "not an NIR file, or damaged .*same shape")
    damage(
        lambda node: replace(node[nodes], "more", 1.0) if "more" in node[nodes] else node[nodes].create_dataset("more", data=1),
        "damaged",
    )
    damage(lambda node: replace(node["nodes/weights_1"], "weight", np.ones((12, 9))), "'weights_1' takes the shape")
    damage(lambda node: replace(node["nodes"], "sum", h5py.ExternalLink("c.h5", "/x")), "is a link")
    damage(lambda node: node["nodes"].__setitem__("more", h5py.SoftLink("/node")), "is a link")
    deep = "/".join("abcdefghij")
    damage(lambda node: node.create_group(f"metadata/{deep}"), "nested deeper than")


def test_nothing_is_half_written(file, monkeypatch):
    before, graph = file.read_bytes(), to_nir(leaky("lif"))

    def fail(path, _graph):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nir, "write", fail)
    with pytest.raises(OSError, match="could not be written"):
        write_nir(graph, file)
    monkeypatch.setattr(nir, "write", lambda path, _graph: Path(path).write_bytes(b"half"))
    with pytest.raises(ValueError, match="could not be read again, and is not written"):
        write_nir(graph, file)
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_nir(graph, file.parent / "nowhere" / "a.nir")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "nir", None)
    with pytest.raises(ImportError, match=r"pip install 'sswim\[nir\]'"):
        to_nir(leaky("lif"))


# Models and the command line.


def fitted_classifier(dtype="float32"):
    """A classifier of digits whose network is brought to LIF form; its readout is a ridge on the spikes' counts."""
    images, labels = load_digits(return_X_y=True)
    rows = images.reshape(-1, 8, 8)[:400] / 16
    model = Classifier(hidden=(60,), kernel="exponential", random_state=0, verbose=0).fit(rows, labels[:400])
    old = model.model_.network
    readout = TraceReadout(60, 10, 1, constants=(math.inf,))
    sizes = {"window": old.window, "horizon": 1, "hidden": (60,)}
    network = SpikingNetwork(old.inputs, 10, kernel="exponential", refractory="exponential", readout=readout, **sizes)
    x = model.model_.samples(rows).inputs(slice(None))
    with torch.no_grad():
        layer = network.layers[0]
        layer.weights.copy_(old.layers[0].weights), layer.supports.fill_(3.0), layer.refractory_supports.fill_(3.0)
        layer.costs.fill_(-1)
        peak = layer.potentials(network.signals(x), layer.filters(old.window, old.window)).amax(dim=(1, 2))
        layer.weights.mul_(3 / peak.clamp_min(1e-3)[:, None])
        z = network.trace_reader((math.inf,))(x).T.double()
        target = torch.nn.functional.one_hot(torch.as_tensor(labels[:400]), 10).double()
        w = torch.linalg.solve(z.T @ z + 5 * torch.eye(60), z.T @ (target - target.mean(0)))
        readout.weights.copy_(w.T), readout.biases.copy_(target.mean(0))
    model.model_ = dataclasses.replace(model.model_, network=network)
    return model, rows, labels[:400], x


def test_a_classifier_of_digits(tmp_path):
    model, rows, labels, x = fitted_classifier()
    assert (model.predict(rows) == labels).mean() > 0.7
    model.save(tmp_path / "digits.sswim")
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "digits.sswim"), "--to", "nir", "--out", str(tmp_path / "digits.nir")]
    )
    assert result.exit_code == 0, result.output
    graph = read_nir(tmp_path / "digits.nir")
    assert json.loads(graph.metadata["classes"]) == list(range(10))
    found = run_nir(graph, x.numpy())
    expected = model.model_.network.simulate(x)
    off = int((found["layer_1"] != expected.spikes[0].numpy()).sum())
    assert off <= 2 and expected.spikes[0].sum() > 5000  # rounding may decide where a potential is within 1e-6 of 1
    if off == 0:
        np.testing.assert_allclose(found["output"][:, -1], expected.output[:, 0].numpy(), atol=1e-5)
    assert (found["output"][:, -1].argmax(axis=1) == model.predict(rows)).mean() > 0.99


@pytest.mark.parametrize("reader", RUNNERS)
def test_digits_elsewhere(reader):
    pytest.importorskip(reader, reason="`make peers` installs it, in .venv-peers")
    model, _, _, x = fitted_classifier()
    graph = to_nir(model, reader=reader)
    spikes = reader_spikes(reader, graph, x.numpy(), 1)
    assert (spikes[0] != model.model_.network.simulate(x).spikes[0].numpy()).sum() <= 2


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_refuses(walk, tmp_path):
    model, out = tmp_path / "m.sswim", tmp_path / "m.nir"
    Forecaster(12, 3, hidden=(10,), random_state=0, verbose=0).fit(walk).save(model)
    assert "profile='nir'" in run("export", model, "--to", "nir", "--out", out, code=2)
    assert "'nir'" in run("export", model, "--to", "nri", "--out", out, code=2)
    assert "nir has no option 'readr'. It has dt, reader, delays. Did you mean 'reader'?" in " ".join(
        run("export", model, "--to", "nir", "--out", out, "--set", "readr=norse", code=2).split()
    )
    assert "would be lost" in run("export", model, "--to", "nir", "--out", model, code=2)
    assert "no such file" in run("export", tmp_path / "x.sswim", "--to", "nir", "--out", out, code=2)
    model.write_bytes(model.read_bytes()[:-10])
    assert "damaged" in run("export", model, "--to", "nir", "--out", out, code=2)
    assert list(tmp_path.iterdir()) == [model]


def test_the_command_takes_options(tmp_path):
    model = fitted_classifier()[0]
    model.save(tmp_path / "m.sswim")
    out = tmp_path / "m.nir"
    facts = json.loads(
        run("export", tmp_path / "m.sswim", "--to", "nir", "--out", out, "--set", "reader=norse", "--set", "dt=0.001", "--json")
    )
    assert (facts["reader"], facts["dt"], facts["layers"]) == ("norse", 0.001, [60])
    assert float(read_nir(out).metadata["dt"]) == 0.001 and "readout_weights" in read_nir(out).metadata
    assert set(FORMATS) >= {"nir"}
