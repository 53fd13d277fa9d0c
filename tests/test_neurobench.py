"""Networks as Linear modules and leaky neurons: the same spikes and outputs, and NeuroBench counts what we count."""

import builtins
import math

import numpy as np
import pytest
import torch
from test_costs import HIDDEN, INPUTS, OUTPUTS, WINDOW, costs_of, lif, some, traced
from torch.utils.data import DataLoader, TensorDataset

from sswim import Classifier, Forecaster, SpikingNetwork
from sswim.adapters.neurobench import LIF, linear_lif, neurobench_data, neurobench_model
from sswim.readout.decaying import TraceReadout

# With one layer and two, delays, few or all kinds of traces, an output voltage, and outputs that spike.
NETWORKS = {
    "traces": lambda: traced(),
    "one layer": lambda: traced(hidden=(5,)),
    "counts": lambda: traced(constants=(math.inf,)),
    "delays": lambda: traced(delays=True, scale=2.0),
    "voltage": lambda: lif(),
    "late voltage": lambda: lif(delays=True, scale=2.0),
    "spiking output": lambda: spiking_output(),
}


def spiking_output():
    network = lif(scale=2.0)
    sizes = {"window": WINDOW, "horizon": 2, "hidden": HIDDEN, "dtype": torch.float64, "spiking_output": True}
    other = SpikingNetwork(
        INPUTS, OUTPUTS, **sizes, kernel=["exponential"] * 2, refractory="exponential", output_kernel="exponential"
    )
    other.load_state_dict(network.state_dict(), strict=False)
    with torch.no_grad():
        other.readout.costs.fill_(-1), other.readout.refractory_supports.copy_(other.readout.supports)
    return other


@pytest.mark.parametrize("spikes", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_spikes_and_outputs_are_those_of_the_network(name, spikes):
    network, x = NETWORKS[name](), some(40, spikes=spikes)
    modules, found = linear_lif(network), []
    for neuron in modules.neurons:
        neuron.register_forward_hook(lambda module, x, y: found.append(y))
    torch.testing.assert_close(modules(x), network(x).detach(), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(network.hidden_spikes(x), found, strict=True):
        assert torch.equal(ours.permute(2, 1, 0)[:, : theirs.shape[1]], theirs) and theirs.any()


def test_a_neuron_is_the_recursion():
    """beta (u - s) + x, by hand for one neuron with support 2: 1.5 fires, 0.5 b + 0.9 = 1.2 fires, 0.2 b + 0.1 does not."""
    network = lif(hidden=(1,))
    with torch.no_grad():
        network.layers[0].supports.fill_(2.0)
    found = LIF(network.layers[0])(torch.tensor([1.5, 0.9, 0.1, 0.0], dtype=torch.float64).reshape(1, 4, 1))
    assert found.flatten().tolist() == [1, 1, 0, 0] and 0.5 * math.exp(-0.5) + 0.9 == pytest.approx(1.2032653)


def test_float32_networks_give_float32_outputs():
    network, x = traced().float(), some(40).float()
    assert linear_lif(network)(x).dtype == torch.float32
    torch.testing.assert_close(linear_lif(network)(x), network(x).detach())


@pytest.mark.parametrize("name", NETWORKS)
def test_modules_hold_as_many_numbers_as_are_counted(name):
    network = NETWORKS[name]()
    modules, costs = linear_lif(network), costs_of(network, some())
    held = sum(t.numel() * t.element_size() for t in (*modules.parameters(), *modules.buffers()))
    assert held == costs.parameter_bits / 8


# NeuroBench itself


def harness(model, data, batch=7):
    """Return what NeuroBench says of a model."""
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.static import ConnectionSparsity, Footprint, ParameterCount
    from neurobench.metrics.workload import ActivationSparsity, SynapticOperations

    static, workload = [Footprint, ConnectionSparsity, ParameterCount], [ActivationSparsity, SynapticOperations]
    return Benchmark(model, DataLoader(data, batch_size=batch), [], [], [static, workload]).run(quiet=True)


def compare(found, costs):
    """Check that NeuroBench's numbers are ours."""
    assert found["Footprint"] == costs.parameter_bits / 8
    assert found["ConnectionSparsity"] == round(costs.connection_sparsity, 4)
    assert found["ActivationSparsity"] == pytest.approx(costs.activation_sparsity, abs=1e-12)
    operations = found["SynapticOperations"]
    assert operations["Effective_ACs"] == pytest.approx(costs.accumulates)
    assert operations["Effective_MACs"] == pytest.approx(costs.multiply_accumulates)
    assert operations["Dense"] == pytest.approx(costs.dense)


@pytest.mark.parametrize("spikes", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_neurobench_counts_what_we_count(name, spikes):
    pytest.importorskip("neurobench", reason="`make peers` installs it, in .venv-peers")
    network, x = NETWORKS[name](), some(35, spikes=spikes)
    model = neurobench_model(network)
    if name == "spiking output":  # NeuroBench takes the output's neurons for hidden ones, and so do we
        assert len(model.activation_layers()) == 3
    found = harness(model, TensorDataset(x, torch.zeros(len(x))))
    compare(found, costs_of(network, x, sparse=True))


@pytest.fixture(scope="module")
def digits():
    """A classifier of digits whose hidden neurons are made leaky, and digits that it was not fitted to."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    model = Classifier(hidden=(30,), kernel="exponential", random_state=0, verbose=0).fit(X[:300], y[:300])
    network = model.network_
    other = SpikingNetwork(
        network.inputs,
        network.outputs,
        window=network.window,
        horizon=1,
        hidden=network.hidden,
        kernel="exponential",
        refractory="exponential",
        readout=network.readout,
    )
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        layer = other.layers[0]
        layer.biases.zero_(), layer.delays.round_(), layer.costs.fill_(-1), layer.refractory_supports.copy_(layer.supports)
    model.model_ = type(model.model_)(**{**vars(model.model_), "network": other})
    return model, X[300:350], y[300:350]


def test_predictions_of_a_classifier(digits):
    model, X, y = digits
    x, labels = neurobench_data(model, X, y)[:]
    decided = linear_lif(model)(x)[:, 0]
    np.testing.assert_allclose(decided.numpy(), model.decision_function(X), rtol=1e-3, atol=1e-3)
    assert (model.classes_[decided.argmax(dim=1)] == model.predict(X)).all() and labels.tolist() == y.tolist()


def test_neurobench_of_a_classifier(digits):
    pytest.importorskip("neurobench", reason="`make peers` installs it, in .venv-peers")
    model, X, y = digits
    found = harness(neurobench_model(model), neurobench_data(model, X, y), batch=20)
    compare(found, model.costs(X, sparse=True))


def test_data_of_a_forecaster_are_its_windows():
    t = np.arange(200)[:, None]
    model = Forecaster(12, 3, hidden=(5,), random_state=0, verbose=0).fit(np.sin(t / [3, 4]))
    x, y = neurobench_data(model, np.sin(t[:40] / [3, 4]))[:]
    assert x.shape == (26 * 2, 12, model.network_.inputs) and y.shape == (26 * 2, 3, 1)
    with pytest.raises(ValueError, match=r"X: a window and its horizon take 12 \+ 3 rows"):
        neurobench_data(model, np.sin(t[:14] / [3, 4]))
    with pytest.raises(ValueError, match="output: it must read traces or be a voltage, got a LagReadout"):
        linear_lif(model)


def test_what_is_not_leaky_is_refused_with_all_reasons():
    network = SpikingNetwork(2, 1, window=5, horizon=1, hidden=(3, 3))
    with pytest.raises(ValueError, match=r"layer 1: its kernel must be Expon.*layer 2: its kernel.*output: its kernel"):
        linear_lif(network)
    reasons = {
        "delays": "its delays must be whole numbers",
        "refractory_supports": "with the supports of its kernel",
        "costs": "its spike costs must be -1",
        "biases": "its biases must be 0",
    }
    for name, reason in reasons.items():
        other = traced()
        with torch.no_grad():
            getattr(other.layers[1], name).add_(0.5)
        with pytest.raises(ValueError, match=f"hidden layer 2: .*{reason}"):
            linear_lif(other)


def test_labels_are_checked(digits):
    model, X, _ = digits
    with pytest.raises(ValueError, match="one of the 10 classes for each of 50 samples, got 50 labels, 11 among them"):
        neurobench_data(model, X, [11] * 50)
    with pytest.raises(ValueError, match="got 3 labels"):
        neurobench_data(model, X, [1, 2, 3])
    assert neurobench_data(model, X)[:][1].tolist() == [0] * 50


def test_a_missing_harness_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("neurobench"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install 'sswim\[neurobench\]'"):
        neurobench_model(traced())


def test_trace_readouts_are_read_in_the_order_of_the_network():
    """Traces of the first layer come first; of a neuron, all of its constants."""
    network, x = traced(constants=(1.5, 4.0)), some(3)
    assert isinstance(network.readout, TraceReadout)
    spikes = torch.cat([a.permute(2, 1, 0) for a in network.hidden_spikes(x)], dim=2)
    expected = []
    for sample in spikes:
        z = [sum(sample[t, n] * math.exp(-(WINDOW - 1 - t) / c) for t in range(WINDOW)) for n in range(9) for c in (1.5, 4.0)]
        expected.append(network.readout.weights.detach() @ torch.stack(z) + network.readout.biases.detach())
    torch.testing.assert_close(linear_lif(network)(x).flatten(1), torch.stack(expected))
