"""Leaky integrate-and-fire neurons, weights of few bits, and the limits of chips."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Counts, Direct, Forecaster, SpikingNetwork, Steps, Traces, Trajectory, sample
from sswim.data import ExactEvents
from sswim.evaluate.counted_layers import Neurons
from sswim.network import SpikingLayer
from sswim.network.kernels import Alpha, Exponential
from sswim.profiles import PROFILES, Profile
from sswim.readout.rounding import _again, rounded_output
from sswim.regression import Sums
from sswim.steps import LeakyScale, LeakyTimes, PotentialStatistics
from sswim.steps.leaky import DECAYS, FOREVER, is_leaky, rounded, rounded_times


def leaky_layer(kernel, supports, generator, senders=4):
    """Return a layer of leaky neurons with random weights."""
    layer = SpikingLayer(senders, len(supports), kernel, Exponential(), dtype=torch.float64).requires_grad_(False)
    layer.weights.copy_(torch.randn(len(supports), senders, generator=generator, dtype=torch.float64))
    layer.supports.copy_(torch.tensor(supports)), layer.refractory_supports.copy_(layer.supports)
    layer.delays.fill_(-1.0 if isinstance(kernel, Alpha) else 0.0), layer.costs.fill_(-1.0)
    return layer


def integrate_and_fire(layer, x):
    """The literal twin: potentials that leak, synapses that fade if there are any, and a threshold that is subtracted."""
    beta = torch.exp(-1 / layer.supports)[:, None]
    v = current = torch.zeros(layer.neurons, x.shape[2], dtype=torch.float64)
    reset = torch.zeros_like(v)
    spikes = []
    # The alpha kernel is (s + 1) beta^s one step early, times this.
    gain = torch.e * beta / layer.supports[:, None]
    for t in range(x.shape[1]):
        drive = layer.weights @ x[:, t]
        if isinstance(layer.kernel, Alpha):
            current = beta * current + drive
            v = beta * v + gain * current
        else:
            v = beta * v + drive
        reset = beta * reset
        spikes.append((v - reset >= 1).double())
        reset = reset + spikes[-1]
    return torch.stack(spikes, dim=1)


@pytest.mark.parametrize("kernel", [Exponential(), Alpha()], ids=["LIF", "CubaLIF"])
def test_leaky_layers_integrate_and_fire(kernel, generator):
    supports = [0.5, 1.0, 3.0, 20.0, FOREVER] if isinstance(kernel, Exponential) else [0.5, 1.0, 3.0, 20.0]
    layer = leaky_layer(kernel, supports, generator)
    x = torch.randn(4, 60, 30, generator=generator, dtype=torch.float64)
    spikes = layer.fire(layer.potentials(x, layer.filters(60, 60)))
    assert torch.equal(spikes, integrate_and_fire(layer, x)) and 0.02 < spikes.mean() < 0.6
    assert is_leaky(layer)
    for name, value in (("biases", 0.1), ("costs", -1.1), ("delays", 0.5), ("refractory_supports", 2.0)):
        other = leaky_layer(kernel, supports, generator)
        getattr(other, name)[1] = value
        assert not is_leaky(other), name


def test_no_leak_is_exact_in_single_precision():
    layer = SpikingLayer(1, 1, Exponential(), Exponential()).requires_grad_(False)
    layer.supports.fill_(FOREVER), layer.refractory_supports.fill_(FOREVER)
    assert torch.equal(layer.filters(50, 50), torch.ones(50, 50).tril()[None])


def test_sampled_layers_are_leaky(generator):
    x = torch.randn(300, 20, 3, generator=generator).cumsum(dim=1)
    network = SpikingNetwork(3, 3, window=20, horizon=2, hidden=(40, 30), kernel=["exponential"], refractory="exponential")
    report = sample(network, x, x[:, -2:], steps=Steps(temporal="leaky", normalizer="leaky"), random_state=0)
    assert all(map(is_leaky, network.layers)) and all(layer.silent == 0 for layer in report.layers)
    assert network.layers[0].supports.min() < 1.2 < 10 < network.layers[0].supports.max() <= 12


def test_two_leaks_have_half_the_constants():
    one, two = (
        LeakyTimes(2.0, 0.5, lead=lead).assign(1, 1, neurons=9, window=40, horizon=1, signals=torch.zeros(1, 40, 1))
        for lead in (0, 1)
    )
    assert (one[0] == 0).all() and (two[0] == -1).all()
    torch.testing.assert_close(two[1], one[1] / 2)
    torch.testing.assert_close(two[2], two[1])


def nearest_shift(time):
    """The number of shifts whose power of 2 is nearest on a logarithmic scale, at least 1."""
    return min(range(1, 60), key=lambda n: abs(math.log2(time) - n))


def nearest_twelfth(time):
    return min(range(1, 4096), key=lambda d: abs(1 - d / 4096 - math.exp(-1 / time)))


def test_decays_that_chips_have():
    times = [0.3, 1.0, 1.3, 2.7, 5.0, 11.0, 23.5, 90.0, 200.0, 1500.0]
    given = torch.tensor([*times, FOREVER, math.inf], dtype=torch.float64)
    for decays, wanted in (
        ("shift", [1 - 2.0 ** -nearest_shift(t) for t in times]),
        ("12 bits", [1 - nearest_twelfth(t) / 4096 for t in times]),
    ):
        found = rounded_times(given, decays)
        np.testing.assert_allclose(torch.exp(-1 / found[:-2]).numpy(), wanted, rtol=1e-12)
        assert found[-2:].tolist() == [FOREVER, math.inf]
        torch.testing.assert_close(rounded_times(found, decays), found, rtol=1e-9, atol=0)  # once is enough
    assert rounded_times(given, "any") is given
    assert {"shift", "12 bits", "any"} == set(DECAYS)
    with pytest.raises(
        ValueError, match="LeakyTimes: decays must be one of 'any', 'shift', '12 bits', got 'shfit'. Did you mean"
    ):
        LeakyTimes(decays="shfit")
    with pytest.raises(ValueError, match="Profile: decays must be one of"):
        Profile(decays=12)


@pytest.mark.parametrize(
    ("profile", "kernel"), [("loihi", "auto"), ("loihi", "alpha"), (Profile(bits=8, decays="shift"), "auto")]
)
def test_networks_of_a_profile_have_its_decays(profile, kernel, series, tmp_path):
    model = forecaster(profile=profile, kernel=kernel, dtype="float64").fit(series[:700])
    network, step = model.network_, 1 / 4096 if profile == "loihi" else 0
    beta = torch.exp(-1 / network.layers[0].supports.detach())
    traces = torch.exp(-1 / torch.tensor(network.readout.constants, dtype=torch.float64))
    for decays in (beta, traces):
        lost = (1 - decays) / step if step else (1 - decays).log2()
        torch.testing.assert_close(lost, lost.round(), rtol=0, atol=1e-3)  # constants of traces are float32
    assert len(beta.unique()) > 3
    model.save(tmp_path / "m.sswim")
    again = Forecaster.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(again.predict(series), model.predict(series))
    assert again.network_.readout.constants == network.readout.constants


def statistics(response):
    found = PotentialStatistics()
    found.update(response.clone())
    return found


def test_leaky_scale(generator):
    """Without refractoriness, neuron i is above its threshold in the wanted part of the time, or in that of its negative."""
    mean = torch.tensor([0.0, 5.0, -5.0, 0.2, -0.2], dtype=torch.float64)
    r = torch.randn(5, 400, 200, generator=generator, dtype=torch.float64) + mean[:, None, None]
    step = LeakyScale(low=0.2, high=0.2)
    alpha, beta, gamma = step.scale(statistics(r))
    assert (beta == 0).all() and (gamma == -1).all() and alpha.sign().tolist() == [1, 1, -1, 1, 1]
    above = (alpha[:, None, None] * r >= 1).double().mean(dim=(1, 2))
    torch.testing.assert_close(above, torch.full((5,), 0.2, dtype=torch.float64), rtol=0, atol=0.01)
    # Scales follow units, and weights of the other sign are turned back.
    for factor in (1e-6, 1e6):
        torch.testing.assert_close(step.scale(statistics(factor * r))[0], alpha / factor)
    torch.testing.assert_close(step.scale(statistics(-r))[0][1:3], -alpha[1:3], rtol=1e-3, atol=0)
    # A response that is nearly always the same, and lies low where it is not: the largest value still fires.
    rare = torch.zeros(1, 100, 10, dtype=torch.float64)
    rare[:, ::10] = 1e-3
    assert float((LeakyScale(low=0.001, high=0.001).scale(statistics(rare))[0][:, None, None] * rare).max()) >= 1


def test_mistakes_of_leaky_steps():
    for wrong, text in (
        ({"low": 0.0}, "0 < low"),
        ({"high": 0.6}, "high <= 0.5"),
        ({"bits": 1}, "integer from 2 to 16, got 1"),
    ):
        with pytest.raises(ValueError, match=text):
            LeakyScale(**wrong)
    with pytest.raises(ValueError, match="LeakyTimes: low must be"):
        LeakyTimes(low=0.0)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounded_weights(bits, generator):
    w = torch.randn(20, 50, generator=generator, dtype=torch.float64)
    w[3] = 0.0
    found, most = rounded(w, bits), 2 ** (bits - 1) - 1
    unit = w.abs().amax(dim=1, keepdim=True) / most
    levels = found / unit.clamp_min(1e-300)
    torch.testing.assert_close(levels, levels.round())
    assert levels.abs().max() <= most + 1e-9 and (found[3] == 0).all()
    assert ((found - w).abs() <= unit / 2 * (1 + 1e-9)).all()
    torch.testing.assert_close(found.abs().amax(dim=1), w.abs().amax(dim=1))
    torch.testing.assert_close(rounded(-3 * w, bits), -3 * found)


def correlated(generator, features=30, outputs=4, samples=400):
    """Return sums of features that resemble each other, the features (samples, features), and the ridge's penalties."""
    a = torch.randn(samples, features, generator=generator, dtype=torch.float64).cumsum(dim=1)
    y = a @ torch.randn(features, outputs, generator=generator, dtype=torch.float64) + 1.0
    sums = Sums(features, outputs)
    sums.update(a.T[:, None].clone(), y.T[:, None].clone())
    return sums, a, y, torch.full((outputs,), 1e-4, dtype=torch.float64)


def test_rounded_outputs_make_up_for_each_other(generator):
    sums, a, y, lambdas = correlated(generator)
    w, b = sums.solve(lambdas)
    found, biases = rounded_output(sums, w, b, lambdas, bits=4)
    plain = rounded(w.T, 4).T

    def error(weights, bias):
        return (y - a @ weights - bias).square().mean(dim=0)

    assert all(len(column.unique()) <= 15 for column in found.T)
    assert (error(found, biases) < 0.8 * error(plain, sums.bias(plain))).all()
    torch.testing.assert_close((a @ found + biases).mean(dim=0), (a @ w + b).mean(dim=0))
    precise, _ = rounded_output(sums, w, b, lambdas, bits=16)
    torch.testing.assert_close(precise, w, rtol=0, atol=float(w.abs().max()) / 1000)


def test_rounding_one_after_the_other(generator, monkeypatch):
    """The literal twin: fix the weights rounded so far, and solve for those that are left."""
    monkeypatch.setattr("sswim.readout.rounding.REACHES", (1.0,))
    monkeypatch.setattr("sswim.readout.rounding.ROUNDS", 0)
    sums, *_, lambdas = correlated(generator, features=8, outputs=1)
    w, b = sums.solve(lambdas)
    H = sums.gram + (sums.samples * 1e-4 + 1e-9 * sums.gram.diagonal().mean()) * torch.eye(8, dtype=torch.float64)
    order = H.diagonal().argsort(descending=True)
    unit, fixed = w.abs().max() / 7, {}
    for k, i in enumerate(order.tolist()):
        left = order[k:]
        delta = torch.stack([fixed[j] - w[j, 0] for j in order[:k].tolist()]) if k else torch.zeros(0, dtype=torch.float64)
        # The best change of those left, given the changes of the others.
        moved = -torch.linalg.solve(H[left][:, left], H[left][:, order[:k]] @ delta)
        fixed[i] = ((w[i, 0] + moved[0]) / unit).round().clamp(-7, 7) * unit
    literal = torch.stack([fixed[i] for i in range(8)])
    torch.testing.assert_close(rounded_output(sums, w, b, lambdas, bits=4)[0][:, 0], literal)


def test_rounded_weights_are_looked_at_again(generator, monkeypatch):
    """Afterwards no weight alone has a better integer."""
    sums, *_, lambdas = correlated(generator)
    w, _ = sums.solve(lambdas)
    H = sums.gram + (sums.samples * 1e-4 + 1e-9 * sums.gram.diagonal().mean()) * torch.eye(30, dtype=torch.float64)

    def error(weights):
        return ((weights - w) * (H @ (weights - w))).sum(dim=0)

    monkeypatch.setattr("sswim.readout.rounding.ROUNDS", 50)
    unit = w.abs().amax(dim=0) / 7
    plain = (w / unit).round() * unit
    before, found = error(plain), _again(H, w, plain, unit.expand_as(w), most=7)
    assert (error(found) < 0.8 * before).all()
    for i in range(30):
        for step in (-1, 1):
            other = found.clone()
            other[i] = (other[i] + step * unit).clamp(-7 * unit, 7 * unit)
            assert (error(other) >= error(found) * (1 - 1e-9)).all()


@pytest.fixture(scope="module")
def series():
    rng, t = np.random.default_rng(0), np.arange(900)[:, None]
    x = np.sin(2 * np.pi * t / 24 + np.arange(3)) + 0.1 * rng.normal(size=(900, 3))
    return pd.DataFrame(x, columns=["a", "b", "c"], index=pd.date_range("2026-01-01", periods=900, freq="h"))


def forecaster(**options):
    return Forecaster(24, 6, random_state=0, verbose=0, **{"hidden": (60,), "profile": "nir", **options})


@pytest.mark.parametrize("channels", ["joint", "shared"])
@pytest.mark.parametrize("kernel", ["auto", "alpha"])
def test_forecasters_of_leaky_neurons(channels, kernel, series, tmp_path):
    model = forecaster(channels=channels, kernel=kernel).fit(series[:700])
    assert all(map(is_leaky, model.network_.layers)) and model.report_.layers[0].silent == 0
    found = model.evaluate(series[700:])
    assert found.rmse < 0.2 and found.coverage > 0.7
    low, high = model.predict_interval(series[:800])
    assert ((low <= model.predict(series[:800])) & (model.predict(series[:800]) <= high)).to_numpy().all()
    model.save(tmp_path / "model", updatable=True)
    again = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(series), model.predict(series))
    pd.testing.assert_frame_equal(again.predict_interval(series)[0], model.predict_interval(series)[0])


@pytest.mark.parametrize("channels", ["joint", "shared"])
@pytest.mark.parametrize("bits", [None, 8])
def test_forecasters_of_traces_go_on(channels, bits, series):
    model = forecaster(channels=channels, profile=Profile(bits=bits), dtype="float64").fit(series[:700])
    width = np.subtract(*model.predict_interval(series)[::-1])
    updated = copy.deepcopy(model).partial_fit(series[700:])
    again = copy.deepcopy(model).refit(series)
    pd.testing.assert_frame_equal(updated.predict(series), again.predict(series), rtol=1e-7, atol=1e-7)
    assert not np.allclose(updated.predict(series), model.predict(series), rtol=1e-7)
    np.testing.assert_allclose(np.subtract(*updated.predict_interval(series)[::-1]), width)


def levels(weights, bits):
    """Return weights (neurons, senders) as integers."""
    unit = weights.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / (2 ** (bits - 1) - 1)
    return weights / unit


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_few_bits(bits, series):
    options = {"hidden": (200,), "channels": "joint"}
    exact = forecaster(**options).fit(series[:700]).evaluate(series[700:]).rmse
    model = forecaster(profile=Profile(bits=bits), **options).fit(series[:700])
    hidden, output = model.network_.layers[0].weights.detach().double(), model.network_.readout.weights.detach().double()
    found = levels(hidden, bits)
    torch.testing.assert_close(found, found.round(), rtol=0, atol=1e-4)
    assert all(len(part.unique()) <= 2**bits - 1 for row in output for part in row.view(-1, 3).T), "for each time constant"
    assert model.evaluate(series[700:]).rmse < (1.03 if bits == 4 else 1.005) * exact

    X, y = load_digits(return_X_y=True)
    clf = Classifier((100,), profile=Profile(bits=bits), random_state=0, verbose=0).fit(X[:900], y[:900])
    assert clf.score(X[1200:], y[1200:]) > 0.9
    assert all(len(row.unique()) <= 2**bits - 1 for row in clf.network_.readout.weights)


def test_a_readout_may_be_coarser_than_its_profile(series):
    model = forecaster(profile="loihi", readout=Traces((4.0,), bits=3)).fit(series[:700])
    assert max(len(row.unique()) for row in model.network_.readout.weights) <= 7
    assert max(len(row.unique()) for row in forecaster(profile="loihi").fit(series[:700]).network_.readout.weights) > 7


def test_profiles_of_classifiers(tmp_path):
    X, y = load_digits(return_X_y=True)
    for profile in PROFILES:
        if profile == "xylo":
            continue
        model = Classifier((80, 40), profile=profile, random_state=0, verbose=0).fit(X[:900], y[:900])
        assert all(map(is_leaky, model.network_.layers)) and model.score(X[1200:], y[1200:]) > 0.88, profile
        assert model.network_.readout.constants == tuple(
            rounded_times(torch.tensor([200.0]), PROFILES[profile].decays).tolist()
        )
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(Classifier.load(tmp_path / "model").predict(X[1200:]), model.predict(X[1200:]))
    model = Classifier((9,), profile="speck", verbose=0).fit(X[:300], y[:300])
    assert (model.network_.layers[0].supports > 0.99 * FOREVER).all()


def test_broken_limits_are_told(series):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError) as error:
        Classifier((1200,), profile="xylo", verbose=0).fit(X[:100], y[:100])
    for text in (
        "profile: 'xylo' has no room for this network: 64 channels, 48 more than the 16 there are; ",
        "1,200 hidden neurons, 200 more than the 1,000",
        "10 outputs (numbers to put out, times traces), 2 more than the 8",
        "88,800 weights, 24,800 more than the 64,000",
    ):
        assert text in str(error.value)
    with pytest.raises(ValueError, match="54 outputs .*46 more than the 8"):
        forecaster(profile="xylo", channels="joint").fit(series)
    forecaster(profile="xylo", channels="joint", readout=Traces((4.0,)), hidden=(20,)).set_params(horizon=2).fit(series)
    with pytest.raises(ValueError, match="this profile has no room.*60 neurons in a layer, or filters, 10 more than the 50"):
        forecaster(profile=Profile(width=50)).fit(series)
    with pytest.raises(ValueError, match="3 hidden layers, 1 more than the 2"):
        forecaster(profile=Profile(layers=2)).set_params(hidden=(9, 9, 9)).fit(series)
    with pytest.raises(ValueError, match="60 senders of a neuron, 40 more than the 20"):
        forecaster(profile=Profile(fan_in=20)).set_params(hidden=(60, 10)).fit(series)


def test_what_does_not_go_with_a_profile(series):
    for options, text in (
        ({"kernel": "hat"}, "kernel: 'nir' has leaky .* which need 'auto' or 'exponential' or 'alpha', got 'hat'"),
        ({"kernel": ["exponential", "hat"]}, "kernel: 'nir' has leaky"),
        ({"training": "sample+gradient"}, "training: 'nir' needs training=None"),
        ({"readout": Direct()}, r"readout: a profile needs 'direct' or Traces\(...\), which read traces alone, got Direct"),
        ({"readout": "trajectory"}, "readout: a profile needs 'direct' or Traces"),
        ({"readout": Trajectory()}, "readout: a profile needs"),
        ({"profile": "zylo"}, "profile: unknown name 'zylo'. Did you mean 'xylo'"),
        ({"profile": 8}, "profile must be one of the names"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=text):
            forecaster(**options).fit(series)
    with pytest.raises(ValueError, match="readout: a profile needs 'direct' or Counts"):
        Classifier(profile="nir", readout="voltage", verbose=0).fit(np.eye(8), [0, 1] * 4)
    events = [(np.array([0.1, 0.2]), np.array([0, 1]))] * 8
    with pytest.raises(ValueError, match="profile: 'nir' needs events on whole steps"):
        Classifier((5,), profile="nir", encoder=ExactEvents(10), verbose=0).fit(events, [0, 1] * 4)
    with pytest.raises(ValueError, match="Profile: kernels must be"):
        Profile(kernels=("hat",))
    with pytest.raises(ValueError, match="bits must be None or an integer from 2 to 16, got 64"):
        Profile(bits=64)
    with pytest.raises(ValueError, match="bits must be None"):
        Counts(bits=1)
    assert math.isinf(Counts().traces[0])


def test_files_of_profiles(series, tmp_path, monkeypatch):
    own = Profile(bits=6, hidden=100, source="a chip of ours")
    model = forecaster(profile=own, readout=Traces((4.0,), bits=5)).fit(series[:300])
    model.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    assert again.profile == own and again.readout == Traces((4.0,), bits=5)
    # Files of earlier versions know no profiles.
    plain = Forecaster(24, 6, random_state=0, verbose=0).fit(series[:300])
    known = {name: value for name, value in plain.get_params(deep=False).items() if name != "profile"}
    with monkeypatch.context() as patch:
        patch.setattr(plain, "get_params", lambda deep=True: known)
        plain.save(tmp_path / "before")
    again = Forecaster.load(tmp_path / "before")
    assert again.profile is None
    pd.testing.assert_frame_equal(again.predict(series), plain.predict(series))


def test_costs_of_leaky_neurons(generator):
    """A synapse and a membrane remember two numbers and fade twice; without a leak nothing fades. No delay line waits."""
    for kernel, support, state, fading in ((Exponential(), 3.0, 1, 1), (Alpha(), 3.0, 2, 2), (Exponential(), FOREVER, 1, 0)):
        layer = leaky_layer(kernel, [support] * 6, generator)
        found = Neurons.of(layer, 20)
        assert found.state == 6 * state and found.per_update.tolist() == [fading] * 6 and found.per_spike.tolist() == [1] * 6
