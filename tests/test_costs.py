"""What forecasts and samples cost: laws, hand counts on toy networks, and a literal count for every kind of output."""

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from sswim import Classifier, Direct, Forecaster, SpikingNetwork
from sswim.data.windows import SeriesWindows
from sswim.evaluate.costs import Comparison, Costs
from sswim.evaluate.counted_layers import Seen, Setting
from sswim.evaluate.counting import count_network
from sswim.evaluate.energy import FIGURES, in_units
from sswim.evaluate.operations import LayerCosts, dense_layer
from sswim.network.events import EventBatch
from sswim.profiles import Profile
from sswim.readout import Traces
from sswim.readout.decaying import TraceReadout
from sswim.readout.voltage import Spikes, Voltage

WINDOW, INPUTS, HIDDEN, OUTPUTS = 7, 3, (5, 4), 2
COUNTS = ("spikes", "accumulates", "multiply_accumulates", "updates", "neuron_accumulates", "neuron_multiply_accumulates")


def lif(readout=None, horizon=2, delays=False, hidden=HIDDEN, scale=1.0, seed=0):
    """A network of leaky integrate-and-fire neurons with random weights, a fifth of which are 0."""
    generator = torch.Generator().manual_seed(seed)
    options = {"kernel": ["exponential"] * len(hidden), "refractory": "exponential", "output_kernel": "exponential"}
    sizes = {"window": WINDOW, "horizon": horizon, "hidden": hidden, "dtype": torch.float64}
    network = SpikingNetwork(INPUTS, OUTPUTS, **sizes, **options, readout=readout)
    with torch.no_grad():
        for layer in (*network.layers, network.readout):
            draw = torch.rand(layer.weights.shape, generator=generator, dtype=torch.float64)
            layer.weights.copy_(scale * torch.where(draw < 0.2, 0.0, draw - 0.3))
            if isinstance(layer, TraceReadout):
                continue
            layer.supports.copy_(2 + 3 * torch.rand(layer.neurons, generator=generator, dtype=torch.float64))
            if delays:
                layer.delays.copy_(torch.randint(0, 3, (layer.neurons,), generator=generator).double())
            if layer.spiking:
                layer.refractory_supports.copy_(layer.supports), layer.costs.fill_(-1)
    return network


def traced(constants=(2.0, math.inf), hidden=HIDDEN, **options):
    readout = TraceReadout(sum(hidden) * len(constants), OUTPUTS, 2, constants=constants, dtype=torch.float64)
    return lif(readout, hidden=hidden, **options)


def some(batch=6, seed=1, spikes=True):
    draw = torch.rand(batch, WINDOW, INPUTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draw < 0.4).double() if spikes else draw


def costs_of(network, x, *, bits=None, sparse=False, parts=1):
    seen = [Seen(part) for part in (x if isinstance(x, list) else x.split(-(-len(x) // parts)))]
    layers, samples = count_network(network, seen, Setting.of(network, bits, sparse))
    return Costs("network", "sample", layers, samples)


def literal(network, x, sparse):
    """Accumulates and multiply-accumulates of every layer, by loops over samples, steps, senders and neurons."""
    spikes = [a.permute(2, 1, 0) for a in network.hidden_spikes(x)]
    found = []
    for layer, sent in zip(network.layers, (x, *spikes), strict=False):
        adds = products = 0
        for sample in sent.tolist():
            for row in sample:
                for j, value in enumerate(row):
                    for w in layer.weights[:, j].tolist():
                        if value != 0 and (w != 0 or not sparse):
                            adds, products = adds + (value == 1), products + (value != 1)
        found.append((adds / len(x), products / len(x)))
    return found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("spikes", [False, True])
def test_operations_are_those_of_loops_over_every_synapse(spikes, sparse):
    network, x = traced(), some(spikes=spikes)
    costs = costs_of(network, x, sparse=sparse)
    for layer, (adds, products) in zip(costs.layers, literal(network, x, sparse), strict=False):
        assert (layer.accumulates, layer.multiply_accumulates) == pytest.approx((adds, products))
    assert costs.layers[1].accumulates > 0 and (costs.layers[0].multiply_accumulates == 0) is spikes


def test_values_among_spikes_make_products_of_all():
    """A few samples may happen to be 0 and 1 only. Whether inputs are spikes is for all samples to say."""
    values, spikes = some(4, spikes=False), some(4)
    one, two = (costs_of(traced(), x).layers[0] for x in ([values, spikes], [spikes, values]))
    assert one.multiply_accumulates == two.multiply_accumulates > 0 == one.accumulates


def test_hand_count_of_two_neurons():
    """One input fires at steps 0 and 1; neuron 0 answers each spike with one (weight 1.25), neuron 1 has weight 0.

    Neuron 0: u = 1.25 fires, u = 0.25 e^{-1/5} + 1.25 = 1.45 fires, then u = 0.37 and 0.30.
    """
    readout = TraceReadout(2, 3, 1, constants=(math.inf,), dtype=torch.float64)
    sizes = {"window": 4, "horizon": 1, "hidden": (2,), "dtype": torch.float64, "readout": readout}
    network = SpikingNetwork(1, 3, **sizes, kernel="exponential", refractory="exponential")
    with torch.no_grad():
        layer = network.layers[0]
        layer.weights[0, 0], layer.weights[1, 0] = 1.25, 0.0
        layer.costs.fill_(-1), readout.weights.fill_(0.5)
    x = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64).reshape(1, 4, 1)
    hidden, traces, output = costs_of(network, x, bits=8).layers
    assert (hidden.neurons, hidden.spikes, hidden.updates) == (2, 2, 8)
    assert (hidden.accumulates, hidden.multiply_accumulates, hidden.dense) == (4, 0, 8)  # 2 spikes reach 2 neurons
    assert (hidden.neuron_multiply_accumulates, hidden.neuron_accumulates) == (8, 10)  # decays; thresholds and two resets
    assert (hidden.weights, hidden.zero_weights, hidden.parameters, hidden.state) == (2, 1, 4, 2)
    assert hidden.parameter_bits == 2 * 8 + 2 * 64 and hidden.state_bits == 2 * 64
    assert hidden.traffic == 4 * (1 + 2 * 8) + 8 * 16 + 8 * 16
    assert (traces.updates, traces.neuron_accumulates, traces.neuron_multiply_accumulates) == (2, 2, 0)
    assert (output.multiply_accumulates, output.dense, output.parameters) == (3, 6, 9)  # one trace is not 0
    assert costs_of(network, x, sparse=True).layers[0].accumulates == 2


@pytest.mark.parametrize("make", [traced, lif])
def test_batches_copies_and_their_order_leave_costs(make):
    network, x = make(), some(spikes=False)
    whole = costs_of(network, x)
    for other in (costs_of(network, torch.cat([x, x])), costs_of(network, x, parts=3), costs_of(network, x.flip(0))):
        for one, two in zip(whole.layers, other.layers, strict=True):
            assert [getattr(one, name) for name in COUNTS] == pytest.approx([getattr(two, name) for name in COUNTS])
    assert costs_of(network, torch.cat([x, x])).samples == 2 * whole.samples


@pytest.mark.parametrize("make", [traced, lif])
def test_a_silent_network_costs_no_synaptic_operations(make):
    network, nothing = make(), torch.zeros(3, WINDOW, INPUTS)
    costs = costs_of(network, nothing)
    assert costs.spikes == costs.synaptic_operations == 0 and costs.activation_sparsity == 1
    assert costs.updates > 0 and costs.dense > 0


def test_costs_are_sums_over_layers_and_over_networks():
    """A network's costs are those of its first layer, and of what follows with its spikes as inputs."""
    network, x = lif(), some()
    costs = costs_of(network, x)
    for name in (*COUNTS, "parameters", "neurons", "traffic", "footprint", "dense", "state_bits", "parameter_bits"):
        assert getattr(costs, name) == pytest.approx(sum(getattr(layer, name) for layer in costs.layers))
    assert sum(e.high for e in costs.energy) > 0
    alone = [Costs("layer", "sample", (layer,), costs.samples) for layer in costs.layers]
    for number in (0, 2):  # operations alone, and external memory: both do not depend on what else is there
        assert costs.energy[number].high == pytest.approx(sum(one.energy[number].high for one in alone))


def test_sparsities():
    network, x = traced(), some()
    costs = costs_of(network, x)
    spikes = [a.sum() for a in network.hidden_spikes(x)]
    assert costs.activation_sparsity == pytest.approx(1 - float(sum(spikes)) / (len(x) * WINDOW * sum(HIDDEN)))
    weights = torch.cat([layer.weights.flatten() for layer in (*network.layers, network.readout)])
    assert costs.connection_sparsity == pytest.approx(float((weights == 0).double().mean()))


def test_kernels_without_a_recursion_cost_their_taps():
    sizes = {"window": 10, "horizon": 3, "hidden": (2,), "dtype": torch.float64}
    network = SpikingNetwork(1, 1, **sizes, kernel="hat", refractory="exponential-cut")
    with torch.no_grad():
        layer = network.layers[0]
        layer.weights.fill_(2.0), layer.delays.copy_(torch.tensor([0.0, 4.0])), layer.supports.fill_(3.0)
        layer.refractory_supports.fill_(2.0), network.readout.supports.fill_(2.0)
    hidden, output = costs_of(network, torch.ones(2, 10, 1, dtype=torch.float64)).layers
    # Lags 0, 1, 2 of the first, lags 2 to 6 of the second: of 1 to 5 those below the support of 3, at 13 steps.
    assert hidden.neuron_multiply_accumulates == 13 * (3 + 5) and hidden.state == (3 + 7) + 2 * 2
    assert hidden.neuron_accumulates == 2 * 13 + 2 * hidden.spikes  # thresholds, and two lags of inhibition
    assert output.updates == 3 and output.neuron_multiply_accumulates == 3 * 2
    assert output.accumulates == hidden.spikes and output.neuron_accumulates == 0  # one output, without a threshold
    assert not hidden.chip_neurons and [e.hardware for e in costs_of(network, torch.ones(2, 10, 1)).energy if e.memory] == [
        "45 nm, with on-chip memory",
        "45 nm, with external memory",
    ]


def test_neurons_of_chips():
    assert [layer.chip_neurons for layer in costs_of(lif(), some()).layers] == [True, True, False]
    names = [e.hardware for e in costs_of(traced(), some()).energy]
    assert names[3:] == ["Loihi", "TrueNorth", "SpiNNaker 2", "SpiNNaker"]
    late, alpha = lif(delays=True), lif()
    assert costs_of(late, some()).layers[0].parameters == 15 + 2 * 5
    assert costs_of(late, some()).layers[0].state == 5 + int(late.layers[0].delays.sum())
    alpha.layers[0].kernel = SpikingNetwork(1, 1, window=2, horizon=1, hidden=(1,), kernel="alpha").kernels[0]
    first = costs_of(alpha, some()).layers[0]
    assert first.chip_neurons and first.neuron_multiply_accumulates == 2 * 5 * 9 and first.state == 10
    for change in ("biases", "costs", "delays", "refractory_supports"):
        other = lif()
        with torch.no_grad():
            getattr(other.layers[1], change).add_(0.25)
        assert not costs_of(other, some()).layers[1].chip_neurons
        assert len(costs_of(other, some()).energy) == 3


def test_events_cost_as_their_frames_do():
    times, channels = torch.tensor([0.0, 1.0, 1.0, 5.0], dtype=torch.float64), torch.tensor([0, 1, 2, 1])
    events = EventBatch(times, channels, torch.tensor([0, 0, 0, 1]), 2, INPUTS, WINDOW, whole=True)
    network = traced()
    one, two = (costs_of(network, [x]) for x in (events, events.dense().double()))
    assert [getattr(one, name) for name in COUNTS] == pytest.approx([getattr(two, name) for name in COUNTS])
    assert one.layers[0].accumulates == 2 * 5


def test_spiking_outputs_are_counted():
    network, x = lif(), some()
    network.readout.spiking = True
    network.readout.costs = torch.nn.Parameter(-torch.ones(OUTPUTS, dtype=torch.float64))
    network.readout.refractory_supports = torch.nn.Parameter(network.readout.supports.detach().clone())
    output = costs_of(network, x).layers[-1]
    assert output.kind == "spiking" and output.spikes == pytest.approx(float(network.simulate(x).output.sum()) / len(x))
    assert output.updates == OUTPUTS * (WINDOW + 2)


# Energy


def test_energy_is_what_the_figures_say():
    """100 accumulates and 10 multiply-accumulates of 8-bit weights: 100 and 10 int8 additions, 10 int8 products."""
    layer = LayerCosts("x", "spiking", 4, accumulates=100, multiply_accumulates=10, bits=8)
    alone, near, far = Costs("x", "sample", (layer,), 1).energy
    assert alone.low == pytest.approx(110 * 0.03e-12 + 10 * 0.2e-12)
    assert alone.high == pytest.approx(110 * 0.1e-12 + 10 * 0.2e-12)
    traffic = 100 * (1 + 8) + 10 * (1 + 4)
    assert layer.traffic == traffic and not alone.memory and near.memory
    assert near.low - alone.low == pytest.approx(traffic * 10e-12 / 8)
    assert near.high - alone.high == pytest.approx(traffic * 100e-12 / 8)
    assert (far.low - alone.low, far.high - alone.high) == pytest.approx((traffic * 1300e-12 / 8, traffic * 2600e-12 / 8))


def test_energy_on_chips_adds_what_a_host_does():
    chip = LayerCosts("a", "spiking", 4, accumulates=100, updates=40, neuron_accumulates=9, bits=8, chip_neurons=True)
    host = LayerCosts("b", "readout", 2, multiply_accumulates=10, bits=8)
    encoder = LayerCosts("c", "encoder", 2, updates=30, neuron_accumulates=30, bits=8)
    found = {e.hardware: e for e in Costs("x", "sample", (encoder, chip, host), 1).energy}
    products = 10 * 0.23e-12 + 30 * 0.1e-12, 10 * 0.3e-12 + 30 * 0.1e-12
    assert found["Loihi"].low == pytest.approx(100 * 23.6e-12 + 40 * 52e-12 + products[0])
    assert found["Loihi"].high == pytest.approx(100 * 23.6e-12 + 40 * 81e-12 + products[1])
    assert found["TrueNorth"].low == pytest.approx(100 * 26e-12 + products[0])
    assert found["SpiNNaker"].high == pytest.approx(100 * 43e-9 + 40 * 100e-9 + products[1])


@pytest.mark.parametrize(
    ("size", "figure"), [(1000, 10), (2048, 10), (3000, 20), (8 * 1024, 20), (9000, 100), (200_000, 100), (10_000_000, 100)]
)
def test_larger_models_need_larger_memories(size, figure):
    layer = LayerCosts("x", "dense", 1, weights=size, parameters=size, multiply_accumulates=1)
    alone, near, _ = Costs("x", "sample", (layer,), 1).energy
    assert near.low - alone.low == pytest.approx(layer.traffic * figure * 1e-12 / 8)


def test_fewer_bits_cost_less():
    network, x = traced(), some()
    four, eight, sixteen, all64 = (costs_of(network, x, bits=bits) for bits in (4, 8, 16, None))
    assert four.parameter_bits < eight.parameter_bits < sixteen.parameter_bits < all64.parameter_bits
    assert four.traffic < eight.traffic < all64.traffic
    assert eight.energy[0].high < sixteen.energy[0].high < all64.energy[0].high
    assert four.spikes == all64.spikes and four.energy[0].low == eight.energy[0].low


def test_every_figure_has_a_source_and_a_range():
    assert all(
        0 < f.low <= f.high and "20" in f.source and ("doi" in f.source or "arXiv" in f.source) for f in FIGURES.values()
    )
    pinned = {"int8 add": 0.03, "int32 add": 0.1, "float16 add": 0.4, "float32 add": 0.9}
    pinned |= {"int8 multiply": 0.2, "int32 multiply": 3.1, "float16 multiply": 1.1, "float32 multiply": 3.7}
    pinned |= {"SRAM 8 KB": 10, "SRAM 32 KB": 20, "SRAM 1 MB": 100, "DRAM": 1300, "Loihi synapse": 23.6, "Loihi neuron": 52}
    pinned |= {"TrueNorth synapse": 26, "SpiNNaker synapse": 13_300, "SpiNNaker neuron": 26_000}
    assert {name: f.low for name, f in FIGURES.items()} == pinned | {"SpiNNaker 2 synapse": 450, "SpiNNaker 2 neuron": 2190}
    assert [FIGURES[n].high for n in ("DRAM", "Loihi neuron", "SpiNNaker synapse", "SpiNNaker neuron")] == [
        2600,
        81,
        43_000,
        100_000,
    ]


@pytest.mark.parametrize(("joules", "text"), [(3e-13, "0.3 pJ"), (9.96e-11, "100 pJ"), (1.23e-8, "12 nJ"), (0.45, "450 mJ")])
def test_units(joules, text):
    assert in_units(joules) == text


# Estimators


def waves(rows=400, channels=2):
    t, noise = np.arange(rows)[:, None], np.random.default_rng(0).standard_normal((rows, channels))
    return np.sin(t / (3 + np.arange(channels))) + 0.2 * noise


@pytest.fixture(scope="module")
def forecaster():
    return Forecaster(12, 3, hidden=(6,), readout=Direct(population=8, singles=2), random_state=0, verbose=0).fit(waves())


def seen_by(model, rows):
    encoder = model.model_.encoder
    samples = SeriesWindows(encoder, [encoder(torch.from_numpy(rows))], model.model_.window, 0)
    every = slice(0, len(samples))
    return samples.inputs(every), samples.past(every)


def test_costs_of_lags_are_those_of_loops(forecaster):
    """Every spike of a population adds a weight to every output; each channel's spikes go into bins if all lean on all."""
    rows, (x, past) = waves(60), seen_by(forecaster, waves(60))
    costs, readout = forecaster.costs(rows), forecaster.network_.readout
    assert costs.samples == len(x) and costs.unit == "forecast of one channel"
    few = set(readout.population.spread_out(2).tolist())
    thresholds, horizon, groups = readout.population.thresholds.tolist(), 3, 2
    relative = absolute = own = 0
    for window in past[:, :, 0].tolist():
        mean = sum(window) / 12
        deviation = math.sqrt(sum((v - mean) ** 2 for v in window) / 12)
        for value in window:
            for i, theta in enumerate(thresholds):
                one = (value - mean) / deviation >= theta if theta >= 0 else (value - mean) / deviation < theta
                two = value >= theta if theta >= 0 else value < theta
                relative, absolute, own = relative + one, absolute + two, own + (i in few) * (one + two)
    assert costs.population_spikes == pytest.approx((relative + absolute) / len(x))
    used = {name: bool((readout.weights[:, part] != 0).any()) for name, part in readout.parts.items()}
    assert used["lags"] and used["extra"] and (readout.weights[:, readout.parts["lags"]] != 0).flatten(1).any(dim=1).all()
    populations, hidden, traces, output = costs.layers
    reached = relative * used["lags"] + absolute * used["heights"] + own
    expected = (horizon * reached + used["common"] * (relative + absolute)) / len(x)
    assert output.accumulates == pytest.approx(expected)
    spikes = forecaster.network_.hidden_spikes(x)[0]  # (N, W, B)
    active = 3 * float((spikes.sum(dim=1) > 0).sum()) / len(x)
    bins = 8 - 2  # ends of bins of 12 lags: 0, 1, 2, 3, 4, 7, 10, 12
    values = active + used["last"] + used["common"] * groups * (bins + 1 + 1)
    assert output.multiply_accumulates == pytest.approx(horizon * values)
    assert populations.updates == 2 * 8 * 12 and populations.neuron_accumulates == 2 * 8 * 12 + 24
    assert hidden.multiply_accumulates == pytest.approx(6 * float((x != 0).sum()) / len(x)) and traces.updates == 18 * 12


def test_parts_without_weights_are_not_there(forecaster):
    rows, readout = waves(60), forecaster.network_.readout
    before, weights = forecaster.costs(rows), readout.weights.detach().clone()
    try:
        with torch.no_grad():
            readout.weights[:, readout.parts["extra"]] = 0
            plain = forecaster.costs(rows)
            readout.weights.zero_()
            nothing = forecaster.costs(rows)
    finally:
        with torch.no_grad():
            readout.weights.copy_(weights)
    assert [layer.name for layer in plain.layers] == ["populations", "hidden 1", "output"]
    assert plain.accumulates < before.accumulates and plain.parameters < before.parameters
    assert nothing.layers[-1].synaptic_operations == nothing.layers[-1].weights == 0


def test_rows_are_multiplied():
    model = Forecaster(12, 3, hidden=(6,), readout=Direct(skip=True, singles=0), random_state=0, verbose=0).fit(waves())
    costs = model.costs(waves(60))
    assert costs.population_spikes == costs.accumulates == 0 and costs.layers[-1].multiply_accumulates >= 12 * 3


def test_populations_that_are_not_read_cost_nothing():
    """Relative to each window, nothing is seen in units of the training rows."""
    options = {"hidden": (6,), "readout": Direct(population=8, singles=2), "random_state": 0, "verbose": 0}
    model = Forecaster(12, 3, scaling="window", **options).fit(waves())
    costs, (_, past) = model.costs(waves(60)), seen_by(model, waves(60))
    raster = model.network_.readout.raster(past.to(model.network_.readout.weights).transpose(1, 2))
    assert costs.layers[0].neurons == 8 and costs.layers[0].updates == 8 * 12
    assert costs.population_spikes == pytest.approx(float(raster.sum()) / len(past))


def test_covariates_and_what_is_known_ahead():
    rows = waves(300, 4)
    names = {"covariates": [2], "known": [3], "hidden": (4,), "readout": Direct(population=8, singles=2)}
    model = Forecaster(12, 3, **names, random_state=0, verbose=0).fit(rows)
    costs = model.costs(rows[:60])
    populations = costs.layers[0]
    assert populations.neurons == 8 * (2 + 2 + 1)  # two of the channel, one of each covariate, one of what is known ahead
    assert populations.updates == 8 * ((2 + 2) * 12 + 3 / 2)
    assert costs.samples == (60 - 12 - 3 + 1) * 2
    assert costs.compare().models[1].multiply_accumulates == 12 * 3 * 3  # own lags, and those of two covariates
    with pytest.raises(ValueError, match=r"needs 15 rows \(window and horizon\)"):
        model.costs(rows[:14])


def test_all_channels_in_one_network():
    model = Forecaster(12, 3, hidden=(6,), channels="joint", random_state=0, verbose=0).fit(waves())
    paper = Forecaster.paper(12, 3, hidden=(6,), random_state=0, verbose=0).fit(waves())
    assert model.costs(waves(60)).layers[1].multiply_accumulates == pytest.approx(12 * model.network_.inputs * 6 / 2)
    costs = paper.costs(waves(60))
    assert [layer.name for layer in costs.layers] == ["hidden 1", "output"]
    hidden, output = costs.layers
    assert output.accumulates == pytest.approx(hidden.spikes * 2) and output.updates == 3  # one forecast of one channel
    assert costs.samples == (60 - 12 + 1) * 2
    ridge, dense = costs.compare().models[1:]
    assert ridge.multiply_accumulates == 36 and ridge.parameters == 2 * (36 + 3)
    assert dense.multiply_accumulates == (24 * 6 + 6 * 6) / 2 and dense.parameters == 24 * 6 + 6 + 6 * 6 + 6


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


@pytest.mark.parametrize("readout", ["direct", Voltage(), Voltage(integrate="all"), Spikes()])
def test_costs_of_a_classifier(digits, readout):
    X, y = digits[0][:200], digits[1][:200]
    model = Classifier(hidden=(20,), readout=readout, random_state=0, verbose=0).fit(X, y)
    costs, network = model.costs(X[:50]), model.network_
    samples = model.model_.samples(X[:50])
    x = samples.inputs(slice(None))
    first, last = costs.layers[0], costs.layers[-1]
    steps = network.readout.reader(network.window, model.model_.readout.first(network) if readout != "direct" else None)[0]
    spikes = network.hidden_spikes(x, network.hidden_filters(steps=steps))[0]
    assert first.accumulates == pytest.approx(20 * float(x[:, :steps].sum()) / 50) and first.multiply_accumulates == 0
    assert first.spikes == pytest.approx(float(spikes.sum()) / 50)
    if readout == "direct":
        assert last.multiply_accumulates == pytest.approx(10 * float((spikes.sum(dim=1) > 0).sum()) / 50)
    else:
        assert last.accumulates == pytest.approx(10 * first.spikes)
    assert costs.unit == "sample" and costs.samples == 50
    ridge, dense = costs.compare().models[1:]
    assert ridge.multiply_accumulates == 640 and dense.multiply_accumulates == 64 * 20 + 20 * 10
    assert dense.updates == 20


@pytest.mark.parametrize(("profile", "bits"), [(None, 32), ("nir", 32), ("xylo", 8), (Profile(bits=4), 4)])
def test_weights_have_the_bits_of_the_profile(digits, profile, bits, tmp_path):
    X, y = digits[0][:200], digits[1][:200]
    few = y < 8  # Xylo has 8 outputs
    x = X[few][:, 24:40]  # and 16 inputs
    model = Classifier(hidden=(20,), profile=profile, random_state=0, verbose=0).fit(x, y[few])
    costs = model.costs(x[:20])
    assert {layer.bits for layer in costs.layers if layer.weights} == {bits}
    assert costs.to_dict() == model.costs(x[:20], bits=bits).to_dict()
    assert {layer.bits for layer in model.costs(x[:20], bits=16).layers if layer.weights} == {16}  # what is asked for wins
    assert [m.layers[0].bits for m in costs.compare().models[1:]] == [bits, bits]  # others for the same job have them too
    model.save(tmp_path / "m.sswim")
    assert Classifier.load(tmp_path / "m.sswim").costs(x[:20]).to_dict() == costs.to_dict()
    series = Forecaster(12, 2, hidden=(6,), channels="joint", profile=profile, readout=Traces((4.0,)) if profile else "direct",
                        random_state=0, verbose=0).fit(waves(200))  # fmt: skip
    costs = series.costs(waves(60))
    assert {layer.bits for layer in costs.layers if layer.weights} == {bits}


# What is shown


def test_tables_sentences_and_dictionaries(forecaster):
    costs = forecaster.costs(waves(60), bits=8)
    text = costs.table()
    for name in ("populations", "hidden 1", "traces", "output", "all", "45 nm, operations alone", "bytes of state", "updates"):
        assert name.split()[0] in text
    assert f"{costs.accumulates:,.0f}" in text and max(map(len, text.splitlines())) <= 110
    assert "spikes per forecast of one channel (" in str(costs) and "synaptic operations (" in str(costs)
    facts = costs.to_dict()
    assert facts["spikes"] == costs.spikes and len(facts["layers"]) == 4 and facts["energy"][0]["low"] == costs.energy[0].low
    assert facts["layers"][1]["bits"] == 8 and costs.to_frame().loc["hidden 1", "neurons"] == 6
    page = costs._repr_html_()
    assert "<table" in page and "hidden 1" in page and "<td>" in page
    both = costs.compare()
    assert isinstance(both, Comparison) and {"ridge", "dense network"} <= set(both.to_dict()) == set(both.to_frame().index)
    assert "ridge" in str(both) and "<table" in both._repr_html_() and repr(both) == str(both)
    with Console().capture() as shown:
        Console().print(costs)
    assert shown is not None


def test_mistakes_are_named(forecaster):
    with pytest.raises(ValueError, match="bits: a weight of this network has 32 bits"):
        forecaster.costs(waves(60), bits=64)
    with pytest.raises(ValueError, match="bits must be"):
        forecaster.costs(waves(60), bits=0)
    with pytest.raises(ValueError, match="no job to compare"):
        costs_of(traced(), some()).compare()
    network = traced()
    network.readout = torch.nn.Linear(2, 2)
    with pytest.raises(TypeError, match="what a Linear does is not known"):
        count_network(network, [], Setting(8, 32))
    with pytest.raises(Exception, match="not fitted"):
        Classifier().costs(np.zeros((3, 4)))


def test_dense_layers_are_matrix_products():
    layer = dense_layer("x", 5, 3, share=2, copies=4)
    assert (layer.multiply_accumulates, layer.weights, layer.parameters) == (7.5, 60, 72)


def test_tables_of_the_page_are_those_of_the_results():
    """Run `python benchmarks/costs.py --document` after a change."""
    root = Path(__file__).parents[1]
    spec = importlib.util.spec_from_file_location("costs_benchmark", root / "benchmarks" / "costs.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page, results = made.PAGE.read_text(), json.loads(made.RESULTS.read_text())
    assert made.documented(page, results) == page and "| wind farm, default |" in page and "| DRAM | 1,300 to 2,600 |" in page
