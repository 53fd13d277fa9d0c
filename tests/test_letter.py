"""The paper to the letter: `sample` against a twin in numpy, and every value of the paper's tables."""

import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import twin

from sswim import Classifier, Forecaster, FromScratch, Gradient, LambdaSearch, SpikingNetwork, initialize, sample
from sswim.data import ExactEvents, Poisson, Scaling
from sswim.data.events import EventStreams
from sswim.data.labelled import LabelledSamples
from sswim.data.spikes import ENCODERS
from sswim.data.windows import Part
from sswim.datasets import load_shd
from sswim.datasets.classified import CLASSIFIED
from sswim.gradient.finetune import _start
from sswim.network import Hat, Morlet, SlayerExponential
from sswim.network.kernels import KERNELS, REFRACTORY_KERNELS, Refractory
from sswim.network.network import resolve_kernels
from sswim.options import Randomness, Run
from sswim.paper import PAPER_CLASSES, Switches
from sswim.readout import Spikes, Trajectory, Voltage, default_readout
from sswim.regression import REGULARIZATION
from sswim.sampling import STEPS
from sswim.steps import CorrelationDelays, DotWeights, MeanStd
from sswim.steps.residual import PlainDepth
from sswim.steps.supports import SUPPORTS

O, H, D = 12, 5, 3
HIDDEN = (9, 7)
NAMES = ("l2", "cosine", "magnitude", "phase", "low", "high")
SEED = 3


def draws(samples, batch):
    """Return what a fit draws: the order of the samples, uniform numbers of pairs, and signs of neurons."""
    random = Randomness(SEED)
    order = torch.randperm(samples, generator=random("batch")).numpy()
    pairs = batch * (batch - 1) // 2
    uniforms = [torch.rand(pairs, dtype=torch.float64, generator=random("pairs", l)).numpy() for l in (1, 2)]
    signs = [
        np.where(torch.rand(n, 2, generator=random("weights", l), dtype=torch.float64)[:, 0].numpy() < 0.5, -1.0, 1.0)
        for l, n in enumerate(HIDDEN, start=1)
    ]
    return {"order": order, "batch": batch, "uniforms": uniforms, "signs": signs}


def values():
    """Return samples (time, channels) of waves with noise, and what follows them."""
    rng = np.random.default_rng(0)
    t = np.arange(O + H)[:, None]
    waves = [
        np.sin(2 * np.pi * (t / rng.uniform(4, 15, D) + rng.uniform(0, 1, D))) + 0.3 * rng.standard_normal((O + H, D))
        for _ in range(60)
    ]
    x, y = [w[:O] / 2 + 0.5 for w in waves], [w[O:, :2] / 2 + 0.5 for w in waves]
    return x, y


def events():
    """Return samples of events at exact times, three classes, and the surrogate voltages."""
    rng = np.random.default_rng(1)
    labels, x = np.arange(60) % 3, []
    for label in labels:
        n = rng.integers(8, 15)
        channel = np.where(rng.random(n) < 0.6, label, rng.integers(0, D, n))
        x.append((np.sort(rng.uniform(0, O - 0.01, n)), channel))
    y = [np.where(np.arange(3) == label, 2.0, -2.0) * np.ones((H, 1)) for label in labels]
    return x, y, labels


def compare(network, report, layers, output, spikes, order, spikes_here):
    """Everything the library set against everything the twin found."""
    for layer, ours, drawn in zip(layers, network.layers, report.layers, strict=True):
        assert drawn.pairs.tolist() == order[layer["pairs"]].tolist()
        assert (drawn.input_metric, drawn.output_metric) == layer["metrics"]
        np.testing.assert_allclose(ours.delays.detach(), layer["delays"], rtol=1e-12)
        np.testing.assert_allclose(ours.supports.detach(), layer["supports"], rtol=1e-12)
        np.testing.assert_allclose(ours.refractory_supports.detach(), layer["varsigma"], rtol=1e-12)
        np.testing.assert_allclose(ours.costs.detach(), layer["costs"], rtol=1e-12)
        np.testing.assert_allclose(ours.weights.detach(), layer["weights"], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(ours.biases.detach(), layer["biases"], rtol=1e-6, atol=1e-8)
    assert spikes.sum() > 0.02 * spikes.size
    np.testing.assert_array_equal(spikes_here, spikes)
    np.testing.assert_allclose(network.readout.delays.detach(), output["delays"])
    np.testing.assert_allclose(network.readout.supports.detach(), output["supports"], rtol=1e-9)
    np.testing.assert_allclose(report.lambdas, output["lambdas"], rtol=1e-9)
    np.testing.assert_allclose(network.readout.weights.detach(), output["weights"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(network.readout.biases.detach(), output["biases"], rtol=1e-5, atol=1e-7)


def test_a_forecaster_is_the_papers_algorithm():
    x, y = values()
    cut, drawn = 45, draws(45, 30)
    layers, output, spikes = twin.sswim(
        x[:cut], y[:cut], x[cut:], y[cut:], inputs=D, O=O, H=H, hidden=HIDDEN, kernels=(twin.morlet, twin.hat), **drawn,
        spiking=False, delays="correlation", labels=None,
        max_delay=None, min_support=5.0, max_support=50.0, cycle=10, metrics=NAMES,
    )  # fmt: skip
    network = SpikingNetwork(D, 2, window=O, horizon=H, hidden=HIDDEN, kernel="morlet", dtype=torch.float64)
    X, Y = torch.from_numpy(np.stack(x)), torch.from_numpy(np.stack(y))
    model = Forecaster.paper(O, H, hidden=HIDDEN)
    steps = model._resolved().steps
    assert steps.initial_batch == 1000  # only the number of samples is smaller here
    report = sample(
        network,
        X[:cut],
        Y[:cut],
        validation=(X[cut:], Y[cut:]),
        steps=STEPS["paper"].replace(initial_batch=30),
        readout=model.readout,
        random_state=SEED,
    )
    first = drawn["order"][:30]
    compare(network, report, layers, output, spikes, drawn["order"], network.simulate(X[first]).spikes[-1].numpy())


def test_a_classifier_of_events_is_the_papers_algorithm():
    x, y, labels = events()
    cut, drawn = 45, draws(45, 30)
    layers, output, spikes = twin.sswim(
        x[:cut], y[:cut], x[cut:], y[cut:], inputs=D, O=O, H=H, hidden=HIDDEN, kernels=(twin.hat, twin.hat), **drawn,
        spiking=True, delays="zero", labels=labels[:cut],
        max_delay=6.0, min_support=3.0, max_support=25.0, cycle=10, metrics=("l2",),  # a delay of 30 is for 100 steps
    )  # fmt: skip
    network = SpikingNetwork(D, 3, window=O, horizon=H, hidden=HIDDEN, kernel="hat", dtype=torch.float64)
    streams = EventStreams([t for t, _ in x], [c for _, c in x], D, O)
    samples = LabelledSamples(streams, torch.from_numpy(labels), 3, H, 2.0)
    model = Classifier.paper(HIDDEN)
    readout = model.readout.replace(horizon=H)
    steps = PAPER_CLASSES.replace(initial_batch=30, temporal=PAPER_CLASSES.temporal.replace(max_delay=6.0))
    report = sample(
        network, Part(samples, 0, cut), validation=Part(samples, cut, 60), steps=steps, readout=readout, random_state=SEED
    )
    first = torch.from_numpy(drawn["order"][:30])
    compare(network, report, layers, output, spikes, drawn["order"], network.simulate(samples.inputs(first)).spikes[-1].numpy())


def test_the_forecasters_settings_are_the_papers():
    """Table tab:sswim_params, and the settings that the text gives."""
    model = Forecaster.paper(168, 24)
    steps, readout = model._resolved().steps, model.readout
    assert model.hidden == (750,) and model.channels == "joint" and steps.initial_batch == 1000
    assert [Forecaster.paper(12, h).horizon for h in (6, 24, 48, 96)] == [6, 24, 48, 96]
    for O, H, longest in ((168, 24, 84), (12, 6, 6), (12, 24, 24), (12, 12, 6)):
        for l, L in ((1, 1), (1, 2), (2, 2)):
            tau, sigma, varsigma = steps.temporal.assign(
                l, L, neurons=20, window=O, horizon=H, signals=torch.zeros(1, O, 1, dtype=torch.float64)
            )
            np.testing.assert_allclose(tau, np.arange(20) / 20 * l / L * longest)
            np.testing.assert_allclose(sigma, np.tile(np.linspace(5, 50, 10), 2))
            np.testing.assert_allclose(varsigma, 5)
    for metrics in (steps.input_metrics, steps.deeper_metrics, steps.output_metrics):
        assert list(metrics) == list(NAMES)
    assert (metrics["low"].low, metrics["low"].high, metrics["high"].low, metrics["high"].high) == (0, 0.5, 0.5, 1)
    assert steps.weights == DotWeights() and steps.normalizer == MeanStd(mean=0.5, deviation=0.5, cost=3.0, silence="bias")
    assert (steps.pairs.epsilon, steps.pairs.minimum_entropy) == (1e-6, 0.0) and steps.depth == PlainDepth()
    assert steps.lift and steps.span == "all"
    assert readout.stride == 1 and readout.kernel == "hat" and readout.assembly == "exact"
    assert readout.delays == CorrelationDelays(samples=None, neurons=None, work=math.inf)
    search = SUPPORTS[readout.supports]
    assert (search.smallest, search.largest, search.exponent, search.count) == (1.0, None, 1.5, 30)
    assert float(search.candidates(24)[0]) == 1 and search.aggregate == "median"
    np.testing.assert_allclose(float(search.candidates(24)[-1]), (1 / 30 + 29 / 30 * 48 ** (2 / 3)) ** 1.5)
    penalty = readout.regularization
    assert (penalty.low, penalty.high, penalty.count, penalty.extend, penalty.penalize_bias) == (1e-5, 0.5, 32, False, True)
    assert model.scaling == Scaling("channel", clip=False, floor=False, trim=False)
    network = model._network(
        SimpleNamespace(inputs=3, moving=[0, 1, 2], covariates=(), known=(), scaling=model.scaling, calendar=None),
        model._resolved(),
        Run(),
    )
    assert network.kernels == (Morlet(3.0),) and network.readout.kernel == Hat() and network.start == 168
    assert Forecaster.paper(kernel="hat").kernel == "hat" and network.layers[0].refractory == Refractory()


def test_the_kernels_are_the_papers():
    x = torch.linspace(-1.2, 2, 200, dtype=torch.float64)
    inside = x.abs() <= 1
    for kernel, values in (
        (KERNELS["hat"], (1 - x.abs()).clamp_min(0)),
        (KERNELS["morlet"], torch.exp(-3 * x**2) * torch.cos(2 * torch.pi * x) * inside),
        (KERNELS["morlet-wide"], torch.exp(-(x**2)) * torch.cos(2 * torch.pi * x) * inside),
    ):
        torch.testing.assert_close(kernel(x), values)
    later = x[x > 0]
    torch.testing.assert_close(REFRACTORY_KERNELS["exponential-cut"](later), torch.exp(-later) * (later <= 1))


def test_the_trainings_are_the_papers():
    """Table tab:sgd_params, and what the text says of the start."""
    for name, epochs, rate in (("gradient", 750, 5e-4), ("sample+gradient", 250, 2.5e-4)):
        training = Forecaster.paper(training=name).training
        assert training == Classifier.paper(training=name).training
        assert (training.batch_size, training.epochs, training.patience) == (64, epochs, 30)
        assert (training.rate(1), training.rate(epochs)) == (pytest.approx(rate), pytest.approx(1e-5))
        assert training.rate((1 + epochs) / 2) == pytest.approx((rate + 1e-5) / 2)  # a cosine
        assert training.min_improvement == 1e-6 and training.clip is None and training.temporal_rate == 1
        assert training.penalty is None and training.plain_penalty and training.surrogate == SlayerExponential(1.0, 1.0)
    assert Forecaster.paper(training=None).training is None and isinstance(
        Forecaster.paper(training="gradient").training, FromScratch
    )
    own = Gradient(epochs=3)
    assert Forecaster.paper(training=own).training is own


@pytest.mark.parametrize(("name", "used"), [("gradient", 1e-4), ("sample+gradient", "lambdas")])
def test_the_penalty_of_a_training_is_the_papers(name, used, monkeypatch):
    """The penalty's gradient is 2 lambda w, with lambda as it is."""
    seen = []

    def train(network, train, held_out, schedule, loss, run):
        state = _start(network, schedule, loss)
        with torch.no_grad():
            network.readout.weights.fill_(1.0)
        state._penalize()
        seen.append(network.readout.weights.grad[:, 0].clone())
        return state.report

    monkeypatch.setattr("sswim.gradient.training.train_network", train)
    rows = np.random.default_rng(0).random((300, 2)).cumsum(axis=0) % 3
    training = Forecaster.paper(training=name).training.replace(epochs=1)
    sampled, trained = (Forecaster.paper(12, 4, hidden=(15,), training=t, random_state=0, verbose=0) for t in (None, training))
    trained.fit(rows)
    lambdas = 1e-4 if used == 1e-4 else sampled.fit(rows).report_.lambdas
    torch.testing.assert_close(seen[0].double(), 2 * torch.as_tensor(lambdas).double().expand(2), rtol=1e-5, atol=0)


def test_training_from_scratch_starts_as_the_paper_says():
    network = SpikingNetwork(3, 2, window=40, horizon=5, hidden=(400,), kernel="hat", dtype=torch.float64)
    x = torch.rand(1200, 40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    training = Forecaster.paper(training="gradient").training
    assert training.consistent is False
    defaults = {k: p.default for k, p in inspect.signature(initialize).parameters.items()}
    assert (defaults["mean"], defaults["spread"], defaults["initial_batch"]) == (0.5, 1.0, 1000)
    with torch.no_grad():
        network.layers[0].refractory_supports.fill_(9.0)  # set anew
    initialize(network, x, consistent=training.consistent, random_state=0)
    layer, readout = network.layers[0], network.readout
    for values, low, high in ((layer.delays, 0, 15), (layer.supports, 5, 15)):
        assert low <= values.min() < low + 1 and high - 1 < values.max() <= high
    assert (layer.costs == -1).all() and (layer.refractory_supports == 5).all()
    assert (readout.delays == 0).all() and (readout.supports == 15).all()
    # b = 2 ((xi sqrt(e^) / (e sqrt(n nu)) + 1)^-1 - mu), or 0 where the weights' distribution is defined.
    nu = float(x[torch.randperm(1200, generator=Randomness(0)("batch"))[:1000]].abs().mean())
    lags, delays, supports = np.arange(45), layer.delays.tolist(), layer.supports.tolist()
    for i in range(400):
        k = twin.hat((lags - delays[i]) / supports[i])
        critical = 1 / (np.sqrt((k**2).sum()) / (k.sum() * np.sqrt(3 * nu)) + 1)
        b = 0.0 if critical > 0.5 else 2 * (critical - 0.5)
        np.testing.assert_allclose(layer.biases[i].item(), b, atol=1e-6)
    few = SpikingNetwork(1, 1, window=40, horizon=5, hidden=(50,), kernel="hat", dtype=torch.float64)
    initialize(few, 0.05 * x[:, :, :1], consistent=False, random_state=0)
    signs = set(few.layers[0].biases.detach().sign().tolist())
    initialize(few, 0.05 * x[:, :, :1], consistent=True, random_state=0)
    assert signs <= {-1.0, 0.0} and -1.0 in signs and set(few.layers[0].biases.detach().sign().tolist()) <= {0.0, 1.0}


def test_the_classifiers_settings_are_the_papers():
    """Table tab:class_config, and the settings that the text gives."""
    model = Classifier.paper()
    steps, readout = model._resolved().steps, model.readout
    assert steps.initial_batch == 900 and model.fields is None and model.kernel == "hat"
    for l, L in ((1, 1), (1, 2), (2, 2)):
        tau, sigma, varsigma = steps.temporal.assign(
            l, L, neurons=20, window=100, horizon=15, signals=torch.zeros(1, 100, 1, dtype=torch.float64)
        )
        np.testing.assert_allclose(tau, np.arange(20) / 20 * l / L * 30)
        np.testing.assert_allclose(sigma, np.tile(np.linspace(3, 25, 10), 2))
        np.testing.assert_allclose(varsigma, 3)
    assert list(steps.input_metrics) == list(steps.deeper_metrics) == ["l2"] and list(steps.output_metrics) == ["class"]
    assert steps.weights == DotWeights() and steps.normalizer == MeanStd(mean=0.5, deviation=0.5, cost=3.0, silence="bias")
    assert steps.depth == PlainDepth() and steps.lift and steps.span == "all"
    assert readout == Voltage(15, 1.0, "all", "hat", "zero", "search", Switches().regularization, "exact")
    assert readout.voltage == 2.0
    assert Classifier.paper(readout="spikes").readout == Spikes(
        15, 1.0, "all", "hat", "zero", "search", Switches().regularization, "exact", normalize=False
    )
    assert ENCODERS[model.encoder] == Poisson(steps=100, rate=0.2) and model.validation == 1 / 6
    shd = Classifier.paper(**CLASSIFIED["shd"].paper)
    assert shd.encoder == ExactEvents(steps=140, scale=100.0, exact=True)
    assert resolve_kernels("kernel", shd.kernel, 2) == (Morlet(1.0), Hat())
    assert inspect.signature(load_shd).parameters["merge"].default == 10


def test_sample_solves_for_the_output_as_the_paper_does_by_itself():
    network = SpikingNetwork(2, 2, window=10, horizon=3, hidden=(5,))
    usual, named = default_readout(network), Forecaster.paper().readout
    assert usual.replace(regularization=REGULARIZATION[usual.regularization]) == named


def test_switches_lead_from_the_paper_to_ours():
    ours = Forecaster.paper(assembly="fast", bias="free", grid="extended", clip=True)
    assert ours.readout == Trajectory(delays=CorrelationDelays(), regularization=LambdaSearch(), assembly="fast")
    assert ours.scaling == Scaling("channel", floor=False, trim=False)
    assert Classifier.paper(bias="free", grid="extended", assembly="auto").readout == Voltage(
        integrate="all", regularization=LambdaSearch()
    )
    for switch, words in (({"bias": "fre"}, "bias"), ({"grid": 3}, "grid"), ({"assembly": "exakt"}, "assembly")):
        with pytest.raises(ValueError, match=words):
            Forecaster.paper(**switch)
