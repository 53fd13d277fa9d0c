"""Looking inside: layers as torch modules, membrane potentials, and the log of a fit."""

import logging
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from sswim import Classifier, Forecaster, SpikingNetwork, sample
from sswim.data.windows import SeriesWindows
from sswim.network.events import EventBatch
from sswim.network.layer import charge, fire


def sampled(hidden=(9, 7), kernel="morlet", dtype=torch.float64, window=20):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, window, 3, generator=generator, dtype=dtype).cumsum(dim=1)
    network = SpikingNetwork(3, 2, window=window, horizon=5, hidden=hidden, kernel=kernel, dtype=dtype)
    sample(network, x, x[:, -5:, :2] ** 2, random_state=0)
    return network, x


@pytest.mark.parametrize("kernel", ["morlet", "hat", "exponential", "alpha"])
def test_layers_in_a_row_are_the_network(kernel):
    network, x = sampled(kernel=kernel)
    padded = nn.functional.pad(x, (0, 0, 0, 5))  # a network runs on through its horizon, where input is 0
    first, second = network.simulate(x).spikes
    assert 0.01 < float(first.mean()) < 0.6 and float(second.sum()) > 0
    with torch.no_grad():
        assert torch.equal(network.layers[0](padded), first)
        assert torch.equal(nn.Sequential(*network.layers)(padded), second)
    model = nn.Sequential(*network.layers, network.readout)  # the voltage is a layer that does not spike
    torch.testing.assert_close(model(padded)[:, 20:], network(x))


def test_layers_have_the_gradients_of_the_network():
    network, x = sampled()
    padded = nn.functional.pad(x, (0, 0, 0, 5))
    nn.Sequential(*network.layers, network.readout)(padded)[:, 20:].square().mean().backward()
    found = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    network(x).square().mean().backward()
    expected = [p.grad for p in network.parameters() if p.grad is not None]
    assert len(found) == len(expected) > 8 and float(found[0].abs().max()) > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_layer_says_what_it_takes():
    network, x = sampled()
    with pytest.raises(ValueError, match=r"x must have shape \(batch, time, senders=3\), got \(40, 20, 2\)"):
        network.layers[0](x[:, :, :2])


def literal_potentials(network, x):
    """v_i(t) of def:ff_snn by loops: sum_j W_ij psi_ij(t) + c_i eta_i(t) + b_i, for one sample (window, inputs)."""
    value = lambda kernel, at: float(kernel(torch.tensor([at], dtype=torch.float64)))  # noqa: E731
    signals, found = x.numpy().T, []
    for layer in network.layers:
        W, b, tau, sigma = (p.tolist() for p in (layer.weights, layer.biases, layer.delays, layer.supports))
        c, varsigma = layer.costs.tolist(), layer.refractory_supports.tolist()
        v = np.zeros((layer.neurons, network.steps))
        for i in range(layer.neurons):
            fired = []
            for t in range(network.steps):
                for j in range(layer.senders):
                    for s in range(min(t + 1, signals.shape[1])):
                        v[i, t] += W[i][j] * value(layer.kernel, (t - s - tau[i]) / sigma[i]) * signals[j, s]
                v[i, t] += b[i] + sum(c[i] * value(layer.refractory, (t - f) / varsigma[i]) for f in fired)
                if v[i, t] >= 1:
                    fired.append(t)
        signals = (v >= 1).astype(float)
        found.append(v)
    return found


def test_potentials_are_those_of_the_definition():
    network, x = sampled(hidden=(4, 3), window=12)
    shown = network.simulate(x[:3], potentials=True)
    for n in range(3):
        for found, expected in zip(shown.potentials, literal_potentials(network, x[n]), strict=True):
            np.testing.assert_allclose(found[n].T.numpy(), expected, rtol=1e-9, atol=1e-9)
    assert any(bool((v[:, 1:] < 0).any()) for v in shown.potentials)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_potentials_reach_the_threshold_where_neurons_fire(dtype):
    network, x = sampled(dtype=dtype)
    plain, shown = network.simulate(x), network.simulate(x, potentials=True)
    assert plain.potentials is None
    assert torch.equal(plain.output, shown.output)
    for spikes, again, v in zip(plain.spikes, shown.spikes, shown.potentials, strict=True):
        assert torch.equal(spikes, again) and torch.equal((v >= 1).to(v), spikes) and v.shape == spikes.shape


def test_charge_fires_as_fire_does(generator):
    v = torch.randn(6, 30, 8, generator=generator) + 0.5
    costs, inhibition = -torch.rand(6, generator=generator), torch.rand(6, 4, generator=generator)
    assert torch.equal((charge(v.clone(), costs, inhibition) >= 1).to(v), fire(v.clone(), costs, inhibition))


def test_events_have_potentials_too():
    network, _ = sampled()
    x = (torch.rand(5, 20, 3, generator=torch.Generator().manual_seed(1)) < 0.2).to(torch.float64)
    samples, steps, channels = x.nonzero(as_tuple=True)
    batch = EventBatch(steps.double(), channels, samples, 5, 3, 20, whole=True)
    shown, expected = (network.simulate(one, potentials=True).potentials for one in (batch, x))
    for one, other in zip(shown, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("channels", "kind"), [("shared", "direct"), ("joint", "direct"), ("joint", "paper")])
def test_a_forecaster_shows_its_neurons_in_every_window(channels, kind, walk):
    frame = pd.DataFrame(walk[:120], columns=["a", "b", "c"], index=pd.date_range("2024-01-01", periods=120, freq="h"))
    make = Forecaster.paper if kind == "paper" else Forecaster
    model = make(12, 4, hidden=(6, 5), channels=channels, covariates=["b"], random_state=0).fit(frame)
    shown = model.simulate(frame[:40], potentials=True)
    axes = ("window", "channel", "step", "neuron") if channels == "shared" else ("window", "step", "neuron")
    steps = 16 if kind == "paper" else 12
    assert shown.axes == axes
    assert [a.shape for a in shown.spikes] == [(29, *((2,) if channels == "shared" else ()), steps, n) for n in (6, 5)]
    assert list(shown.labels["window"]) == list(frame.index[11:40])
    if channels == "shared":
        assert list(shown.labels["channel"]) == ["a", "c"]
    encoder = model.model_.encoder
    samples = SeriesWindows(encoder, [encoder(torch.from_numpy(walk[7:19]))], 12, 0)  # window 7
    single = model.network_.hidden_spikes(samples.inputs(slice(None)))
    for found, v, one in zip(shown.spikes, shown.potentials, single, strict=True):
        expected = one.permute(2, 1, 0).numpy() == 1
        np.testing.assert_array_equal(found[7] if channels == "shared" else found[7][None], expected)
        np.testing.assert_array_equal(v >= 1, found)
    table = shown.events(layer=1)
    assert len(table) == shown.spikes[1].sum() and list(table.columns) == list(axes)
    plain = model.simulate(frame[:40])
    assert plain.potentials is None
    np.testing.assert_array_equal(plain.spikes[0], shown.spikes[0])


def test_windows_do_not_cross_breaks(walk):
    model = Forecaster(12, 4, random_state=0).fit(walk)
    shown = model.simulate(walk[:60], breaks=20)
    assert shown.spikes[0].shape == (27, 3, 12, 20)
    assert list(shown.labels["window"]) == [*range(11, 20), *range(31, 40), *range(51, 60)]
    with pytest.raises(ValueError, match="a window takes 12 rows without a gap"):
        model.simulate(walk[:11])


def test_a_classifier_shows_its_neurons(generator):
    X = torch.rand(60, 10, 4, generator=generator).numpy()
    model = Classifier(hidden=(8, 6), random_state=0).fit(X, np.arange(60) % 2)
    shown = model.simulate(X[:7])
    expected = model.network_.simulate(model.model_.samples(X[:7]).inputs(slice(None))).spikes
    assert shown.axes == ("sample", "step", "neuron")
    for found, spikes in zip(shown.spikes, expected, strict=True):
        np.testing.assert_array_equal(found, spikes.numpy() == 1)


def test_activity_beyond_the_memory_is_refused(walk):
    model = Forecaster(12, 4, random_state=0, memory="1MB").fit(walk)
    assert len(model.simulate(walk[:100]).spikes[0]) == 89
    message = "activity of 3989 windows of 3 channels takes 0.0144 GB, but memory is 0.001 GB. Pass fewer rows"
    with pytest.raises(ValueError, match=message):
        model.simulate(np.tile(walk, (10, 1)), potentials=True)


def test_a_fit_tells_the_log(caplog, walk):
    with caplog.at_level(logging.INFO, logger="sswim"):
        Forecaster(12, 4, random_state=0).fit(walk)
    said = [record.getMessage() for record in caplog.records]
    begun = [text.removesuffix(": begun") for text in said if text.endswith(": begun")]
    finished = [text.split(": finished in ")[0] for text in said if ": finished in " in text]
    assert begun == finished and {"directions", "output weights", "weighing"} <= set(begun)
    assert {record.name for record in caplog.records} == {"sswim"}


def test_warnings_reach_the_log(caplog, walk):
    walk[:, 1] = 3.0
    with caplog.at_level(logging.WARNING, logger="sswim"), pytest.warns(UserWarning, match="1 of 3 channels are constant"):
        Forecaster(12, 4, random_state=0).fit(walk)
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "constant" in caplog.text


def test_nothing_is_printed_by_default():
    code = "import numpy as np, warnings; warnings.simplefilter('ignore'); from sswim import Forecaster; "
    code += "Forecaster(4, 2, random_state=0).fit(np.column_stack([np.sin(np.arange(99.0)), np.ones(99)]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
