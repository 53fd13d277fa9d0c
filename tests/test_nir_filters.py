"""NIR graphs of networks with filters: the same spikes at every place, there and back; what has no exact form is refused."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from sswim import Classifier, Convolution, SpikingNetwork
from sswim.cli import app
from sswim.export import from_nir, lag_line, read_nir, run_nir, to_nir, write_nir
from sswim.export.filters import check_filters, poolings_of
from sswim.export.spatial import AXES
from sswim.network.convolution import ConvolutionLayer
from sswim.network.layer import SpikingLayer
from sswim.readout import TraceReadout
from sswim.steps.leaky import FOREVER

nir = pytest.importorskip("nir", reason="`pip install 'sswim[nir]'` installs it")

WINDOW, OUTPUTS = 12, 3
# Layout of the inputs, hidden layers, kernels, constants of the readout's traces, longest delay, whether neurons leak.
NETWORKS = {
    "one map": ((8, 8), [Convolution(4, size=3, pool=3)], ["exponential"], (5.0,), 0, True),
    "no leak": ((8, 8), [Convolution(4, size=3, pool=2, overlap=1.0)], ["exponential"], (math.inf,), 0, False),
    "synapses": ((8, 8), [Convolution(4, size=3, pool=2)], ["alpha"], (5.0, math.inf), 0, True),
    "delays": ((8, 8), [Convolution(4, size=3, pool=2)], ["exponential"], (5.0,), 4, True),
    "uneven regions": ((8, 8), [Convolution(4, size=3, pool=4)], ["exponential"], (2.0, 5.0), 0, True),
    "regions that coincide": ((5, 5), [Convolution(3, size=3, pool=5, overlap=3.0)], ["exponential"], (5.0,), 0, True),
    "several sizes": ((8, 8), [Convolution(4, size=3, pool=(1, 3, 4)), 6], ["exponential"] * 2, (5.0, 9.0), 0, True),
    "maps first": ((2, 7, 9), [Convolution(4, size=(3, 5), pool=2)], ["exponential"], (5.0,), 0, True),
    "maps last": ((9, 7, 3), [Convolution(4, size=3, pool=2, padding=False)], ["exponential"], (5.0,), 0, True),
    "even length": ((8, 8), [Convolution(4, size=4, pool=2)], ["exponential"], (5.0,), 0, True),
    "unequal lengths": ((9, 9), [Convolution(4, size=(2, 4), pool=2, padding=False)], ["exponential"], (5.0,), 0, True),
    "even length, stride": ((9, 9), [Convolution(4, size=(2, 4), pool=2, stride=2)], ["exponential"], (5.0,), 0, True),
    "stride, no padding": ((9, 9), [Convolution(4, size=3, pool=2, stride=2, padding=False)], ["exponential"], (5.0,), 0, True),
    "one axis": ((20,), [Convolution(4, size=5, pool=4)], ["exponential"], (5.0,), 0, True),
    "one axis, maps": ((3, 1, 20), [Convolution(4, size=4, pool=3), 5], ["exponential"] * 2, (5.0,), 0, True),
    "filters, filters": (
        (8, 8), [Convolution(4, size=3, pool=4, overlap=1.0), Convolution(5, size=2, pool=2)], ["exponential"] * 2, (5.0,), 0,
        True,
    ),
    "filters, dense": ((8, 8), [Convolution(4, size=3, pool=4), 6, 5], ["alpha", "exponential"], (5.0,), 0, True),
}  # fmt: skip


def network_of(name, dtype=torch.float64, seed=0):
    """A network with random filters."""
    layout, hidden, kernels, constants, delay, leak = NETWORKS[name]
    draw = torch.Generator().manual_seed(seed)
    sizes = {"window": WINDOW, "horizon": 1, "hidden": hidden, "layout": layout}

    def build(readout):
        return SpikingNetwork(
            math.prod(layout), OUTPUTS, kernel=kernels, refractory="exponential", readout=readout, dtype=dtype, **sizes
        )

    features = sum(layer.outputs for layer in build(TraceReadout(1, OUTPUTS, 1, constants=constants)).layers)
    readout = TraceReadout(features * len(constants), OUTPUTS, 1, constants=constants, dtype=dtype)
    network = build(readout)
    with torch.no_grad():
        for layer in network.layers:
            layer.weights.copy_(1.5 * torch.randn(layer.weights.shape, generator=draw) / layer.senders**0.5)
            layer.supports.copy_(
                1 + 5 * torch.rand(layer.neurons, generator=draw)
                if leak
                else torch.full((layer.neurons,), FOREVER, dtype=dtype)
            )
            layer.refractory_supports.copy_(layer.supports), layer.costs.fill_(-1)
            if delay:
                layer.delays.copy_(torch.randint(0, delay + 1, (layer.neurons,), generator=draw))
        readout.weights.copy_(torch.randn(readout.weights.shape, generator=draw) / 10)
        readout.biases.copy_(torch.randn(readout.biases.shape, generator=draw))
    return network


def inputs_for(network, count=5):
    return torch.randn(count, WINDOW, network.inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def stored(graph, folder):
    write_nir(graph, folder / "network.nir")
    return read_nir(folder / "network.nir")


def everywhere(network, x):
    """Spikes of each layer: at all places of filters, (batch, time, filters, places), before they are pooled."""
    signals, found = network.signals(x), []
    for layer in network.layers:
        filters = layer.filters(network.window, network.window)
        spikes = SpikingLayer.fire(layer, layer.potentials(signals, filters).clone())  # (K, T, places B) or (N, T, B)
        apart = spikes.unflatten(2, (layer.places, len(x))) if isinstance(layer, ConvolutionLayer) else spikes[:, :, None]
        found.append(apart.permute(3, 1, 0, 2).numpy())
        signals = layer.spikes(signals, filters)
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_every_spike_at_every_place_is_the_same(name, tmp_path):
    network = network_of(name)
    x = inputs_for(network)
    graph = stored(to_nir(network), tmp_path)
    found = run_nir(graph, lag_line(graph, x.numpy()))
    with torch.no_grad():
        expected, activity = everywhere(network, x), network.simulate(x)
    for number, spikes in enumerate(expected, start=1):
        assert 0.03 < spikes.mean() < 0.7
        np.testing.assert_array_equal(found[f"layer_{number}"].reshape(spikes.shape), spikes)
    np.testing.assert_allclose(found["output"][:, -1], activity.output[:, 0].numpy(), atol=1e-12)
    # The sums over regions are the layer's outputs, where each output is a region.
    for number, layer in enumerate(network.layers, start=1):
        if isinstance(layer, ConvolutionLayer) and len(poolings := poolings_of(layer.grid)) == 1 and poolings[0].even:
            np.testing.assert_array_equal(found[f"flat_{number}"], activity.spikes[number - 1].numpy())


@pytest.mark.parametrize("name", NETWORKS)
def test_nir_reads_them_itself(name, tmp_path):
    write_nir(to_nir(network_of(name)), tmp_path / "a.nir")
    nir.read(tmp_path / "a.nir")  # checks types


BACK = [name for name in NETWORKS if name not in ("several sizes", "regions that coincide")]


@pytest.mark.parametrize("name", BACK)
def test_there_and_back(name, tmp_path):
    network = network_of(name)
    x, graph = inputs_for(network), stored(to_nir(network), tmp_path)
    back = from_nir(tmp_path / "network.nir", dtype=torch.float64)
    assert (back.window, back.kernels, back.inputs) == (network.window, network.kernels, network.inputs)
    with torch.no_grad():
        expected, found = network.simulate(x), back.simulate(x)
        for spikes, same in zip(everywhere(network, x), everywhere(back, x), strict=True):
            np.testing.assert_array_equal(same, spikes)
    np.testing.assert_allclose(found.output.numpy(), expected.output.numpy(), atol=1e-12)
    again = to_nir(back)
    for key, node in graph.nodes.items():
        for field, value in vars(node).items():
            if isinstance(value, np.ndarray) and field not in ("stride", "padding", "input_shape"):
                np.testing.assert_allclose(getattr(again.nodes[key], field), value, rtol=1e-12, err_msg=f"{key} {field}")
    if back.hidden == network.hidden and all(a.senders == b.senders for a, b in zip(back.layers, network.layers, strict=True)):
        for (key, value), same in zip(network.state_dict().items(), back.state_dict().values(), strict=True):
            torch.testing.assert_close(same, value, rtol=1e-9, atol=0, msg=key)


def test_most_networks_come_back_with_the_same_regions():
    pairs = {name: (network_of(name), from_nir(to_nir(network_of(name)))) for name in BACK}
    shapes = {n: [[(l.senders, l.outputs) for l in network.layers] for network in pair] for n, pair in pairs.items()}
    same = {name for name, (before, after) in shapes.items() if before == after}
    others = {"uneven regions", "one axis", "one axis, maps", "even length", "even length, stride", "maps first"}
    assert same == {*BACK} - others - {"filters, dense", "filters, filters"}  # more regions or longer filters, with zeros


# The interpreter, against literal loops.


def literal(node, x):
    """One sample (maps, *space), point by point."""
    kind = type(node).__name__
    axes, space = AXES[kind], x.shape[1:]
    two = lambda value: [int(n) for n in np.broadcast_to(np.ravel(value), (axes,))]  # noqa: E731
    kernel = two(node.kernel_size) if kind == "SumPool2d" else node.weight.shape[2:]
    dilation = [1] * axes if kind == "SumPool2d" else two(node.dilation)
    stride = two(node.stride)
    if isinstance(node.padding, str):
        total = [d * (k - 1) if node.padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
        before, after = [n // 2 for n in total], [n - n // 2 for n in total]
    else:
        before = after = two(node.padding)
    maps = x.shape[0] if kind == "SumPool2d" else len(node.weight)
    found = {}
    for k in range(maps):
        starts = [
            range(-b, n + a - d * (s - 1), t)
            for n, b, a, d, s, t in zip(space, before, after, dilation, kernel, stride, strict=True)
        ]
        for place in itertools.product(*[list(enumerate(r)) for r in starts]):
            value = 0.0 if kind == "SumPool2d" else float(node.bias[k])
            for point in itertools.product(*map(range, kernel)):
                at = tuple(p + d * i for (_, p), d, i in zip(place, dilation, point, strict=True))
                if any(not 0 <= a < n for a, n in zip(at, space, strict=True)):
                    continue
                if kind == "SumPool2d":
                    value += x[(k, *at)]
                else:
                    width = node.weight.shape[1]
                    group = k // (maps // int(node.groups))
                    for c in range(width):
                        value += node.weight[(k, c, *point)] * x[(group * width + c, *at)]
            found[(k, *(i for i, _ in place))] = value
    out = np.zeros(np.max(list(found), axis=0) + 1)
    for at, value in found.items():
        out[at] = value
    return out


RANDOM = np.random.default_rng(0)


def conv(shape, stride=1, padding=0, dilation=1, groups=1, space=None):
    kind = nir.Conv2d if len(shape) == 4 else nir.Conv1d
    bias = RANDOM.standard_normal(shape[0])
    return kind(space, RANDOM.standard_normal(shape), stride, padding, dilation, groups, bias)


SLIDING = {
    "Conv2d": (conv((3, 2, 3, 3)), (2, 6, 7)),
    "Conv2d, padding": (conv((3, 2, 3, 2), padding=(1, 2)), (2, 6, 7)),
    "Conv2d, stride": (conv((3, 2, 3, 3), stride=(2, 3), padding=1), (2, 6, 7)),
    "Conv2d, dilation": (conv((3, 2, 3, 2), dilation=(2, 3), padding=1), (2, 6, 7)),
    "Conv2d, groups": (conv((4, 1, 3, 3), groups=2, padding=1), (2, 6, 7)),
    "Conv2d, same": (conv((3, 2, 2, 3), padding="same", dilation=2), (2, 6, 7)),
    "Conv2d, valid": (conv((3, 2, 2, 3), padding="valid"), (2, 6, 7)),
    "Conv1d": (conv((3, 2, 4), stride=2, padding=1), (2, 9)),
    "Conv1d, same": (conv((3, 2, 4), padding="same"), (2, 9)),
    "SumPool2d": (nir.SumPool2d(*map(np.array, ([3, 2], [2, 2], [0, 0]))), (2, 7, 8)),
    "SumPool2d, padding": (nir.SumPool2d(*map(np.array, ([3, 2], [1, 3], [1, 1]))), (2, 7, 8)),
}


@pytest.mark.parametrize("name", SLIDING)
def test_windows_that_slide_are_those_of_literal_loops(name):
    node, shape = SLIDING[name]
    x = np.random.default_rng(1).standard_normal((2, 3, *shape))
    expected = np.array([[literal(node, step) for step in sample] for sample in x])
    nodes = {"input": nir.Input(np.array(shape)), "a": node, "output": nir.Output(np.array(expected.shape[2:]))}
    graph = nir.NIRGraph(nodes, [("input", "a"), ("a", "output")], type_check=False)
    np.testing.assert_allclose(run_nir(graph, x, dt=1e-3)["output"], expected, rtol=1e-12, atol=1e-12)
    if isinstance(node, nir.Conv2d):
        padding = tuple(node.padding) if not isinstance(node.padding, str) else node.padding
        options = {"stride": node.stride, "padding": padding, "dilation": node.dilation, "groups": node.groups}
        other = torch.conv2d(*map(torch.from_numpy, (x.reshape(-1, *shape), node.weight, node.bias)), **options)
        np.testing.assert_allclose(other.numpy().reshape(expected.shape), expected, atol=1e-12)


def test_every_window_that_slides_is_tested():
    assert {name.partition(",")[0] for name in SLIDING} == set(AXES)


def line(*nodes, shape=(1, 6, 6), out=(2, 4, 4)):
    names = [f"n{i}" for i in range(len(nodes))]
    every = {"input": nir.Input(np.array(shape)), **dict(zip(names, nodes, strict=True)), "output": nir.Output(np.array(out))}
    return nir.NIRGraph(every, list(itertools.pairwise(["input", *names, "output"])), type_check=False)


def broken(node, **values):
    for name, value in values.items():
        setattr(node, name, value)
    return node


WRONG = {
    "'n0' reads maps of 2 axes, (maps, ...), but gets the shape (36,)": line(conv((2, 1, 3, 3)), shape=(36,)),
    "'n0' takes the shape (2, 6, 6), but 'input' puts out (1, 6, 6)": line(conv((2, 2, 3, 3))),
    "'n0': input_shape is (5, 5), but its maps are laid out as (6, 6)": line(conv((2, 1, 3, 3), space=(5, 5))),
    "'n0': its window is longer than the maps": line(conv((2, 1, 7, 7))),
    "'n0': stride must be 2 whole numbers >= 1, got": line(broken(conv((2, 1, 3, 3)), stride=np.array([0, 1]))),
    "'n0': padding must be 2 whole numbers >= 0, got": line(broken(conv((2, 1, 3, 3)), padding="full")),
    "'n0': padding 'same' needs a stride of 1": line(broken(conv((2, 1, 3, 3), stride=2), padding=b"same")),
    "'n0': kernel_size must be 2 whole numbers >= 1": line(
        nir.SumPool2d(np.array([1.5, 2]), np.array([1, 1]), np.array([0, 0]))
    ),
    "'n0': groups must be a whole number that divides 2 filters": line(broken(conv((2, 1, 3, 3)), groups=3)),
    "'n0': bias must have the shape (2,), got (3,)": line(broken(conv((2, 1, 3, 3)), bias=np.zeros(3))),
    "'n0': weight must have the shape (filters, maps, 2 lengths)": line(broken(conv((2, 1, 3, 3)), weight=np.ones((2, 3, 3)))),
    "'n0': weight must be finite numbers": line(broken(conv((2, 1, 3, 3)), weight=np.full((2, 1, 3, 3), np.nan))),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_windows_are_refused(message, tmp_path):
    graph = WRONG[message]
    shape = tuple(graph.nodes["input"].input_type["input"])
    for use in (
        lambda: run_nir(graph, np.zeros((1, 3, *shape)), dt=1e-3),
        lambda: from_nir(graph, window=3, dt=1e-3, reset="subtract"),
        lambda: write_nir(graph, tmp_path / "a.nir"),
    ):
        with pytest.raises(ValueError) as error:
            use()
        assert message in str(error.value)
    assert not list(tmp_path.iterdir())


# Graphs of others.


def plain(shape, **options):
    node = conv(shape, **options)
    node.bias = np.zeros(len(node.bias))
    return node


def neurons(*shape):
    return nir.IF(r=np.full(shape, 1000.0), v_threshold=np.ones(shape))


def test_graphs_of_others_become_networks():
    graph = line(
        plain((3, 2, 3, 3), padding=1),
        neurons(3, 6, 6),
        nir.SumPool2d(*map(np.array, ([2, 2], [2, 2], [0, 0]))),
        nir.Flatten({"input": np.array([3, 3, 3])}, start_dim=0),
        nir.Linear(RANDOM.standard_normal((4, 27))),
        neurons(4),
        shape=(2, 6, 6),
        out=(4,),
    )
    x = np.random.default_rng(0).standard_normal((5, 9, 72))
    network = from_nir(graph, window=9, dt=1e-3, reset="subtract", dtype=torch.float64)
    assert network.layers[0].grid.shape == Convolution(3, size=(3, 3), pool=3, overlap=1.0)
    found = run_nir(graph, lag_line(graph, x), dt=1e-3, reset="subtract")
    activity = network.simulate(torch.from_numpy(x))
    np.testing.assert_array_equal(activity.spikes[0].numpy(), found["n3"])
    np.testing.assert_array_equal(activity.spikes[1].numpy(), found["n5"])
    np.testing.assert_allclose(activity.output[:, 0].numpy(), found["n5"].sum(axis=1))
    assert found["n5"].sum() > 10


def test_filters_that_nothing_pools_over():
    graph = line(
        plain((3, 1, 3)), neurons(3, 7), nir.Flatten({"input": np.array([3, 7])}, start_dim=0), shape=(1, 9), out=(21,)
    )
    x = np.random.default_rng(0).standard_normal((5, 9, 9))
    network = from_nir(graph, window=9, dt=1e-3, reset="subtract", dtype=torch.float64)
    found = run_nir(graph, x[:, :, None], dt=1e-3, reset="subtract")
    np.testing.assert_array_equal(network.simulate(torch.from_numpy(x)).spikes[0].numpy(), found["n2"])
    assert found["n2"].sum() > 10


def pooled(size=(2, 2), stride=(2, 2), padding=(0, 0)):
    return nir.SumPool2d(*map(np.array, (size, stride, padding)))


def differing(*shape):
    node = neurons(*shape)
    node.r[0, 0, 0] = 500.0
    return node


FOREIGN = {
    "'n0': filters must have biases of 0": line(conv((2, 1, 3, 3)), neurons(2, 4, 4)),
    "'n0': filters must have biases of 0, one group, and no dilation": line(
        plain((2, 1, 3, 3), dilation=2), neurons(2, 2, 2), out=(2, 2, 2)
    ),
    "must have one stride for all axes": line(plain((2, 1, 3, 3), stride=(1, 2)), neurons(2, 4, 2), out=(2, 4, 2)),
    "no padding or half of their odd length, got": line(plain((2, 1, 3, 3), padding=2), neurons(2, 8, 8), out=(2, 8, 8)),
    "regions must cover all places": line(plain((2, 1, 3, 3)), neurons(2, 4, 4), pooled((1, 1)), out=(2, 2, 2)),
    "without padding": line(plain((2, 1, 3, 3)), neurons(2, 4, 4), pooled(padding=(1, 1)), out=(2, 3, 3)),
    "r must be the same at all places of a filter": line(plain((2, 1, 3, 3)), differing(2, 4, 4)),
    "there must be one Conv1d or Conv2d before 'n2'": line(
        plain((2, 1, 3, 3)), plain((2, 2, 3, 3)), neurons(2, 2, 2), out=(2, 2, 2)
    ),
    "sswim takes at most as many maps as columns": line(plain((2, 9, 3, 3)), neurons(2, 4, 4), shape=(9, 6, 6)),
    "'n1' reads 'n0'. Layers must follow one after the other": line(
        pooled(), plain((2, 1, 2, 2)), neurons(2, 2, 2), out=(2, 2, 2)
    ),
}


@pytest.mark.parametrize("message", FOREIGN)
def test_graphs_of_others_that_are_refused(message):
    with pytest.raises(ValueError) as error:
        from_nir(FOREIGN[message], window=5, dt=1e-3, reset="subtract")
    assert message in str(error.value)


def test_features_that_are_too_many():
    graph = line(plain((30, 1, 1, 1)), neurons(30, 30, 30), shape=(1, 30, 30), out=(30, 30, 30))
    with pytest.raises(ValueError, match="27,000 features, more than 20,000. Add a SumPool2d"):
        from_nir(graph, window=5, dt=1e-3, reset="subtract")


# What is refused.


def test_what_has_no_exact_form_is_refused():
    with pytest.raises(ValueError, match=r"layers\[0\]: its regions begin at 0, 2, 3, 5.*such as 3 or 2 or 1, or another"):
        to_nir(_chained(pool=4))
    to_nir(_chained(pool=3))
    odd = SpikingNetwork(
        64, OUTPUTS, window=WINDOW, horizon=1, hidden=[Convolution(4, size=(2, 3), padding=False)], layout=(8, 8)
    )
    with pytest.raises(ValueError, match=r"filters of 2 x 3 without padding cannot be made square.*Use padding=True"):
        check_filters([layer.grid for layer in odd.layers])
    network = network_of("one map")
    for reader in ("snntorch", "norse"):
        with pytest.raises(ValueError, match=rf"reader: {reader} gets dense layers alone, and layers\[0\] is a Convolution"):
            to_nir(network, reader=reader)
    with pytest.raises(ValueError, match=r"a lag line is for dense layers alone.*Use delays='nodes'"):
        to_nir(network, delays="input")
    with torch.no_grad():
        network.layers[0].biases[1] = 0.5
    with pytest.raises(ValueError, match=r"layers\[0\]: biases must be 0, got 0.5 of neuron 1.*profile='nir'"):
        to_nir(network)
    with pytest.raises(ValueError, match="Filters must be read by one SumPool2d alone"):
        from_nir(to_nir(network_of("several sizes")))
    graph = to_nir(network_of("one map"))
    graph.metadata["layout"] = np.array([9])
    with pytest.raises(ValueError, match="layout in the metadata"):
        lag_line(graph, np.zeros((1, WINDOW, 64)))


def _chained(pool):
    network = SpikingNetwork(
        64, OUTPUTS, window=WINDOW, horizon=1, hidden=[Convolution(4, size=3, pool=pool), Convolution(2, size=2)],
        layout=(8, 8), kernel="exponential", refractory="exponential",
    )  # fmt: skip
    readout = TraceReadout(sum(layer.outputs for layer in network.layers), OUTPUTS, 1, constants=(5.0,))
    network.readout = readout
    for layer in network.layers:
        layer.kernel = network.kernels[0]
        layer.costs.data.fill_(-1), layer.refractory_supports.data.copy_(layer.supports)
    return network


# Models.


@pytest.mark.parametrize("profile", ["speck", "nir", "loihi"])
def test_a_classifier_with_filters(profile, tmp_path):
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    options = {"encoder": "image", "random_state": 0, "verbose": 0, "dtype": "float64"}
    model = Classifier([Convolution(20, size=3), 15], profile=profile, **options).fit(images[:600], y[:600])
    model.save(tmp_path / "m.sswim")
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "m.sswim"), "--to", "nir", "--out", str(tmp_path / "m.nir"), "--json"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["layers"] == [20 * 64, 15]
    graph, x = read_nir(tmp_path / "m.nir"), model.model_.samples(images[600:700]).inputs(slice(None))
    found = run_nir(graph, lag_line(graph, x.numpy()))
    with torch.no_grad():
        expected = model.network_.simulate(x)
        for number, spikes in enumerate(everywhere(model.network_, x), start=1):
            np.testing.assert_array_equal(found[f"layer_{number}"].reshape(spikes.shape), spikes)
            assert spikes.sum() > 500
    np.testing.assert_allclose(found["output"][:, -1], expected.output[:, 0].numpy(), atol=1e-9)
    assert (model.classes_[found["output"][:, -1].argmax(axis=1)] == model.predict(images[600:700])).all()


def test_filters_without_a_profile_say_what_to_change():
    X, y = load_digits(return_X_y=True)
    model = Classifier([Convolution(10)], fields=(8, 8), random_state=0, verbose=0).fit(X[:300], y[:300])
    with pytest.raises(ValueError, match=r"biases must be 0.*profile='nir'"):
        to_nir(model)
