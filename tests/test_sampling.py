from types import SimpleNamespace

import literal
import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from sswim import Counts, FixedLambda, LambdaSearch, SpikingNetwork, Steps, Trajectory, sample
from sswim.data.tensors import TensorSamples, Windows
from sswim.data.windows import Subset, batches
from sswim.network.kernels import kernel_taps
from sswim.options import Randomness
from sswim.readout import Assembly, TraceReadout
from sswim.readout.traces import Trace
from sswim.regression import Sums
from sswim.sampling import STEPS
from sswim.steps import (
    DELAYS,
    EMBEDDINGS,
    NORMALIZERS,
    SUPPORTS,
    TEMPORAL,
    WEIGHTS,
    Cosine,
    Euclidean,
    FixedDelays,
    FixedSupports,
    GradientPairs,
    MeanStd,
    SupportSearch,
    TemporalGrid,
)
from sswim.steps.pairs import lower_triangle

WINDOW, HORIZON = 20, 5


def waves(samples=120, seed=0):
    """Windows of two noisy waves and what follows them."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples + WINDOW + HORIZON)[:, None]
    x = np.sin(2 * np.pi * t / np.array([9, 14])) + 0.1 * rng.standard_normal((len(t), 2))
    return Windows([torch.from_numpy(x).float()], WINDOW, HORIZON)


def network(hidden=(30,), **options):
    return SpikingNetwork(**{"inputs": 2, "outputs": 2, "window": WINDOW, "horizon": HORIZON, "hidden": hidden} | options)


def sample_with(options):
    """Sample a network with options that belong to the steps, to the readout, or to `sample` itself."""
    hidden = {k: v for k, v in options.items() if k in Steps.__dataclass_fields__}
    output = {k: v for k, v in options.items() if k in Trajectory.__dataclass_fields__}
    others = {k: v for k, v in options.items() if k not in hidden | output}
    return sample(network(), waves(), steps=Steps(**hidden), readout=Trajectory(**output), **others)


def error(net, samples):
    with torch.no_grad():
        y = samples.targets(slice(None))
        return float(((net(samples.inputs(slice(None))) - y) ** 2).mean() / y.var())


@pytest.mark.parametrize("hidden", [(30,), (30, 20), (20, 20, 20)])
@pytest.mark.parametrize("kernel", ["morlet", "alpha"])
def test_a_sampled_network_forecasts(hidden, kernel):
    net = network(hidden, kernel=kernel, output_kernel="hat" if kernel == "morlet" else "alpha")
    report = sample(net, waves(), random_state=0)
    shallow, deep = (0.25, 0.7) if kernel == "morlet" else (0.6, 0.9)  # alpha kernels smear these fast waves
    assert error(net, waves(seed=1)) < (shallow if len(hidden) == 1 else deep)
    assert len(report.layers) == len(hidden)
    for layer, sampled in zip(net.layers, report.layers, strict=True):
        assert sampled.silent == 0
        assert sampled.pairs.shape == (layer.neurons, 2)
        assert len({tuple(p) for p in sampled.pairs.tolist()}) == layer.neurons
        assert sampled.pairs.max() < report.samples
    assert all(torch.isfinite(p).all() for p in net.parameters())
    assert (report.samples, report.validation_samples) == (97, 24)


def literal_first_layer(report, steps, samples, net):
    """Set the first hidden layer by the definition, from the steps' own methods and the pairs of the report."""
    temporal, weights, normalizer = TEMPORAL[steps.temporal], WEIGHTS[steps.weights], NORMALIZERS[steps.normalizer]
    random, n = Randomness(0), net.hidden[0]
    order = torch.randperm(report.samples, generator=random("batch"))[: steps.initial_batch]
    x = samples.inputs(order).double()  # (M, O, D)
    signals = x.permute(2, 1, 0)
    tau, sigma, varsigma = temporal.assign(1, 1, neurons=n, window=WINDOW, horizon=HORIZON, signals=signals)
    taps = kernel_taps(net.layers[0].kernel, tau, sigma, WINDOW + HORIZON).numpy()

    def filtered(sample, i):  # (D, steps)
        return torch.stack([torch.from_numpy(np.convolve(channel, taps[i])[: WINDOW + HORIZON]) for channel in sample.T])

    pairs = [samples.inputs(report.layers[0].pairs[:, k]).double().numpy() for k in (0, 1)]  # (N, O, D) each
    first, second = (torch.stack([filtered(one[i], i) for i in range(n)]) for one in pairs)
    w = weights.directions(first, second, random("weights", 1))
    v = torch.stack(
        [torch.stack([w[i] @ filtered(sample.numpy(), i) for sample in x], dim=1) for i in range(n)]
    )  # (N, steps, M)
    statistics = SimpleNamespace(
        mean=v.mean(dim=(1, 2)),
        deviation=v.std(dim=1, correction=0).mean(dim=1),
        maximum=v.amax(dim=(1, 2)),
        steps=v.shape[1],
        last_mean=v[:, -1].mean(dim=1),
        last_deviation=v[:, -1].std(dim=1, correction=0),
    )
    alpha, beta, gamma = normalizer.scale(statistics)
    return {
        "weights": alpha[:, None] * w,
        "biases": beta,
        "costs": gamma,
        "delays": tau,
        "supports": sigma,
        "refractory_supports": varsigma,
    }


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_hidden_parameters_are_those_of_the_steps(weights, normalizer):
    net = network((12,), dtype=torch.float64)
    steps = Steps(weights=weights, normalizer=normalizer, initial_batch=40)
    report = sample(net, waves(), steps=steps, random_state=0)
    expected = literal_first_layer(report, steps, waves(), net)
    for name, value in expected.items():
        # Both are in float64. Rounding is amplified by the eigenvectors, by far less than 1e-6.
        torch.testing.assert_close(getattr(net.layers[0], name).detach(), value, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("span", ["all", "window"])
def test_pairs_are_drawn_by_the_distances_of_the_initial_batch(span):
    steps = Steps(input_metric="cosine", output_metric="l2", span=span, initial_batch=40)
    report, samples = sample(network((12,)), waves(), steps=steps, random_state=0), waves()
    order = torch.randperm(report.samples, generator=Randomness(0)("batch"))[:40]
    x = samples.inputs(order)
    x = torch.cat([x, torch.zeros(40, HORIZON, x.shape[2])], dim=1) if span == "all" else x  # nothing follows the window
    d_x, d_y = Cosine().pairwise(x), Euclidean().pairwise(samples.targets(order))
    pairs = GradientPairs()
    log_p = pairs.log_probabilities(lower_triangle(d_x), lower_triangle(d_y), torch.ones(40, dtype=torch.bool))
    assert torch.equal(report.layers[0].pairs, order[pairs.draw(log_p, 12, Randomness(0)("pairs", 1))])
    assert report.layers[0].entropies == {("cosine", "l2"): pytest.approx(pairs.entropy(log_p))}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_all_weights_and_normalizers_forecast_new_data(weights, normalizer):
    net = network()
    sample(net, waves(), steps=Steps(weights=weights, normalizer=normalizer), random_state=0)
    assert error(net, waves(seed=1)) < 0.3  # predicting the mean has an error of 1


@pytest.mark.parametrize("temporal", TEMPORAL)
def test_all_temporal_steps_forecast_new_data(temporal):
    net = network()
    sample(net, waves(), steps=Steps(temporal=temporal), random_state=0)
    assert error(net, waves(seed=1)) < 0.3


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("supports", [name for name in SUPPORTS if name != "width"])
def test_output_delays_and_supports_are_those_of_the_steps(delays, supports):
    net, samples = network(dtype=torch.float64), waves()
    report = sample(net, samples, readout=Trajectory(delays=delays, supports=supports), random_state=0)
    order = torch.randperm(report.samples, generator=Randomness(0)("batch"))
    spikes, y = net.hidden_spikes(samples.inputs(order).double())[0], samples.targets(order).double()
    lags = DELAYS[delays].lags(DELAYS[delays].correlate(spikes, y, WINDOW, WINDOW))
    assert torch.equal(report.lags, lags)
    assert torch.equal(net.readout.delays.detach(), lags)  # the hat kernel peaks at its delay

    def residuals(candidates, shared):
        found, target = [], y.reshape(-1, 2).numpy()
        for sigma in candidates.tolist():
            A = literal.design(net.readout.kernel, shared, sigma, spikes.permute(2, 1, 0), WINDOW, HORIZON)
            found.append(((A @ np.linalg.lstsq(A, target, rcond=None)[0] - target) ** 2).sum(axis=0))
        return torch.from_numpy(np.stack(found))

    expected = SUPPORTS[supports].find(torch.zeros(0), lags, HORIZON, residuals)
    torch.testing.assert_close(net.readout.supports.detach(), expected)
    assert error(net, waves(seed=1)) < 0.6  # predicting the mean has an error of 1


def test_supports_can_be_read_off_the_correlations():
    net, samples = network(dtype=torch.float64), waves()
    report = sample(net, samples, readout=Trajectory(supports="width"), random_state=0)
    order = torch.randperm(report.samples, generator=Randomness(0)("batch"))
    spikes, y = net.hidden_spikes(samples.inputs(order).double())[0], samples.targets(order).double()
    correlation = torch.from_numpy(literal.correlation(spikes.permute(2, 1, 0).numpy(), y.numpy(), WINDOW, WINDOW))
    expected = SUPPORTS["width"].find(correlation, report.lags, HORIZON)
    torch.testing.assert_close(net.readout.supports.detach(), expected)
    assert error(net, waves(seed=1)) < 0.6  # predicting the mean has an error of 1


@pytest.mark.parametrize("metric", EMBEDDINGS)
def test_every_metric_serves_inputs_targets_and_spikes(metric):
    steps = Steps(input_metric=metric, deeper_metric=metric, output_metric=metric)
    report = sample(network((20, 10)), waves(), steps=steps, random_state=0)
    assert [(r.input_metric, r.output_metric) for r in report.layers] == [(metric, metric)] * 2


def test_the_entropy_choice_is_the_least_of_the_table():
    steps = Steps(input_metric=["l2", "phase"], output_metric=("cosine", "low"))
    report = sample(network(), waves(), steps=steps, random_state=0)
    layer = report.layers[0]
    assert set(layer.entropies) == {(i, o) for i in ("l2", "phase") for o in ("cosine", "low")}
    assert layer.entropies[layer.input_metric, layer.output_metric] == min(layer.entropies.values())


def test_entropy_may_stand_among_candidates():
    steps = Steps(input_metric=["entropy"], output_metric=["class", "l2"])
    report = sample(network(), waves(), steps=steps, random_state=0)
    assert {i for i, _ in report.layers[0].entropies} == set(EMBEDDINGS)


def test_class_distance_draws_between_classes():
    samples = waves()
    x = samples.inputs(slice(None))
    labels = torch.arange(len(x)) % 2
    y = torch.where(torch.nn.functional.one_hot(labels, 2).bool(), 2.0, -2.0)[:, None, :].repeat(1, HORIZON, 1)
    report = sample(network(), x, y, steps=Steps(output_metric="class"), readout=Trajectory(delays="zero"), random_state=0)
    drawn = labels[report.layers[0].pairs]
    assert (drawn[:, 0] != drawn[:, 1]).all()


def test_same_seed_same_network_whatever_the_memory():
    nets = [network(), network(), network(), network()]
    for net, seed, memory in zip(nets, [0, 0, 0, 1], ["1GB", "1GB", "1MB", "1GB"], strict=True):
        sample(net, waves(), random_state=seed, memory=memory)
    state = [net.state_dict() for net in nets]
    assert all(torch.equal(state[0][k], state[1][k]) for k in state[0])
    for k in state[0]:
        torch.testing.assert_close(state[0][k], state[2][k], atol=1e-4, rtol=1e-3)
    assert not torch.equal(state[0]["layers.0.weights"], state[3]["layers.0.weights"])


def test_swapping_one_step_leaves_the_draws_of_others_alone():
    pairs = [sample(network(), waves(), steps=Steps(weights=w), random_state=0).layers[0].pairs for w in WEIGHTS]
    assert torch.equal(pairs[0], pairs[1]) and torch.equal(pairs[0], pairs[2])


def test_random_state_accepts_numpy_generators_and_none():
    def weights(state):
        net = network((10,))
        sample(net, waves(), random_state=state)
        return net.layers[0].weights.detach()

    for make in (np.random.RandomState, np.random.default_rng):
        generator = make(0)
        first, second = weights(generator), weights(generator)
        assert torch.equal(first, weights(make(0))), "same state, same network"
        assert not torch.equal(first, second), "the generator has moved on"
        assert not torch.equal(first, weights(make(1)))
    assert not torch.equal(weights(None), weights(None))


def test_a_teacher_output_layer_is_recovered():
    """Targets made by a network: sampled again, from the same seed, the output layer gives them back.

    Random weights do not look at targets, so that teacher and student get the same hidden layer.
    """
    samples = waves(400)
    x = samples.inputs(slice(None))
    teacher, student = (network(hidden=(15,), dtype=torch.float64) for _ in range(2))
    sample(teacher, samples, steps=Steps(weights="random"), random_state=0)
    with torch.no_grad():
        teacher.readout.weights.normal_(generator=torch.Generator().manual_seed(1))
        teacher.readout.biases.copy_(torch.tensor([1.0, -2.0]))
        teacher.readout.supports.fill_(4.0)
        teacher.readout.delays.fill_(3.0)
        y = teacher(x)
    readout = Trajectory(delays=FixedDelays(3.0), supports=FixedSupports(4.0), regularization=FixedLambda(1e-12))
    sample(student, x, y, steps=Steps(weights="random"), readout=readout, random_state=0)
    for name, value in teacher.state_dict().items():
        torch.testing.assert_close(student.state_dict()[name], value, atol=1e-6, rtol=1e-6)


def test_a_teacher_delay_is_found_where_spikes_are_sparse():
    """A target that is one neuron's trace shifted by 7 steps: the correlation peaks at lag 7."""
    g = torch.Generator().manual_seed(0)
    spikes = (torch.rand(1, WINDOW + HORIZON, 300, generator=g) < 0.08).double()
    trace = Trace(network().readout.kernel, 7.0, 1.5, WINDOW, HORIZON)
    y = (trace.basis @ trace.features(spikes)[0]).T[:, :, None]
    step = DELAYS["correlation"]
    assert step.lags(step.correlate(spikes, y, WINDOW, WINDOW)).tolist() == [7.0]


def test_a_teacher_support_is_found():
    samples = waves(400)
    net = network(hidden=(15,), dtype=torch.float64)
    sample(net, samples, random_state=0)
    x = samples.inputs(slice(None))
    with torch.no_grad():
        candidates = SupportSearch(count=6).candidates(HORIZON)
        net.readout.supports.copy_(candidates[[2, 4]])
        net.readout.delays.fill_(2.0)
        y = net(x)
    spikes, residuals = net.hidden_spikes(x)[0], []
    for sigma in candidates.tolist():
        trace = Trace(net.readout.kernel, 2.0, sigma, WINDOW, HORIZON)
        equations = Sums(15, 2, HORIZON)
        equations.update(trace.features(spikes), *trace.targets(y))
        residuals.append(equations.least_residual()[0])
    assert torch.equal(SupportSearch().choose(candidates, torch.stack(residuals)), candidates[[2, 4]])


def test_output_parameters_are_those_of_the_report():
    net = network(output_kernel="alpha")
    report = sample(net, waves(), random_state=0)
    expected = (report.lags - net.readout.supports.detach()).clamp_min(0)  # alpha peaks one support after the delay
    torch.testing.assert_close(net.readout.delays.detach(), expected.float())
    distinct = torch.stack([report.lags, net.readout.supports.detach().double()]).unique(dim=1)
    assert report.traces == distinct.shape[1]


def test_the_output_layer_is_the_ridge_solution_on_all_training_windows():
    net = network(hidden=(12,), dtype=torch.float64)
    samples = waves(150)
    readout = Trajectory(regularization=FixedLambda(0.05), assembly="exact")
    report = sample(net, samples, readout=readout, random_state=0, memory="1MB")
    train = Subset(samples, torch.arange(report.samples))
    spikes = net.hidden_spikes(train.inputs(slice(None)))[0].permute(2, 1, 0)
    y = train.targets(slice(None)).double().numpy()
    for i in range(2):
        tau, sigma = float(net.readout.delays[i].detach()), float(net.readout.supports[i].detach())
        A = literal.design(net.readout.kernel, tau, sigma, spikes, WINDOW, HORIZON)[:, 1:]
        ridge = Ridge(alpha=0.05 * report.samples).fit(A, y[:, :, i].reshape(-1))
        np.testing.assert_allclose(net.readout.weights[i].detach(), ridge.coef_, atol=1e-6)
        np.testing.assert_allclose(float(net.readout.biases[i].detach()), ridge.intercept_, atol=1e-6)


def test_fast_and_exact_assembly_agree():
    errors = {"fast": 0.0, "exact": 0.0}
    for seed in range(3):
        for assembly in errors:
            net = network(hidden=(40,))
            report = sample(net, waves(300), readout=Trajectory(assembly=assembly), random_state=seed)
            errors[assembly] += error(net, waves(300, seed=1)) / 3
            assert report.traces == len(torch.stack([report.lags, net.readout.supports.detach().double()]).unique(dim=1).T)
    # Fast sums drop small singular values and compare fewer supports: a few percent on single seeds.
    assert errors["fast"] == pytest.approx(errors["exact"], rel=0.06)


def test_outputs_share_no_more_traces_than_asked_for():
    net = network(hidden=(40,))
    report = sample(net, waves(300), readout=Trajectory(assembly=Assembly(tolerance=0.0, traces=1, skip=2)), random_state=0)
    assert report.traces == 1 and len(report.lags.unique()) == len(net.readout.supports.unique()) == 1
    assert error(net, waves(300, seed=1)) < 0.3


@pytest.mark.parametrize("penalize_bias", [False, True])
def test_validation_sums_of_few_directions_choose_as_those_of_all(penalize_bias, monkeypatch):
    nets = [SpikingNetwork(2, 1, window=WINDOW, horizon=HORIZON, hidden=(120,), dtype=torch.float64) for _ in range(2)]
    x, y = waves(300).inputs(slice(None)), waves(300).targets(slice(None))[:, :, :1] + 3
    search = LambdaSearch(extend=False, penalize_bias=penalize_bias)
    few = []
    for net, basis in zip(nets, (LambdaSearch.basis, lambda self, train: None), strict=True):
        monkeypatch.setattr(LambdaSearch, "basis", lambda self, train, basis=basis: few.append(basis(self, train)) or few[-1])
        sample(net, x, y, readout=Trajectory(regularization=search), random_state=0)
    assert few[0].shape[0] == 120 + penalize_bias and few[0].shape[1] < 40 and few[1] is None
    torch.testing.assert_close(nets[0].readout.weights, nets[1].readout.weights, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(nets[0].readout.biases, nets[1].readout.biases, rtol=1e-7, atol=1e-9)


def test_small_problems_are_assembled_exactly(monkeypatch):
    assert sample(network(), waves(), readout=Trajectory(), random_state=0).solution.sums == "exact"
    monkeypatch.setattr("sswim.readout.trajectory.EXACT_WORK", 1)
    assert sample(network(), waves(), readout=Trajectory(), random_state=0).solution.sums == "fast"
    assert sample(network(), waves(), random_state=0).solution.sums == "exact"  # the paper's
    own = Assembly(traces=1)
    assert sample(network(), waves(), readout=Trajectory(assembly=own), random_state=0).solution.sums == str(own)
    with pytest.raises(ValueError, match="assembly: unknown name 'fats'. Did you mean 'fast'"):
        Trajectory(assembly="fats")


def test_skipping_candidates_finds_the_same_minimum_where_there_is_one():
    nets = [network(hidden=(40,)) for _ in range(2)]
    for net, skip in zip(nets, (1, 4), strict=True):
        readout = Trajectory(assembly=Assembly(tolerance=0.0, traces=None, skip=skip))
        sample(net, waves(300), readout=readout, random_state=0)
    torch.testing.assert_close(nets[0].readout.supports, nets[1].readout.supports)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_short_horizons_work(horizon):
    x, new = torch.randn(2, 60, 8, 1, generator=torch.Generator().manual_seed(0)).cumsum(dim=2)
    net = SpikingNetwork(1, 1, window=8, horizon=horizon, hidden=(20,))
    sample(net, x, x[:, -horizon:], random_state=0)
    assert error(net, TensorSamples(new, new[:, -horizon:])) < 0.4


def test_channels_that_always_rest_somewhere_relax_the_minimum_norm_rule():
    x = torch.randn(40, 10, 40, generator=torch.Generator().manual_seed(0))
    for n in range(40):
        x[n, :, n] = 1.0  # every sample has one flat channel
    net = SpikingNetwork(40, 1, window=10, horizon=2, hidden=(15,))
    report = sample(net, x, x[:, -2:, :1], steps=Steps(span="window"), random_state=0)
    assert report.layers[0].every_channel is False
    assert sample(network(), waves(), random_state=0).layers[0].every_channel is True


def test_rank_deficient_data_gives_no_nan():
    g = torch.Generator().manual_seed(0)
    one = torch.randn(80, 12, 1, generator=g).cumsum(dim=1)
    x = torch.cat([one, one, 2 * one, torch.zeros_like(one)], dim=2)
    net = SpikingNetwork(4, 4, window=12, horizon=3, hidden=(25, 10))
    sample(net, x, x[:, -3:], random_state=0)
    assert all(torch.isfinite(p).all() for p in net.parameters())
    assert torch.isfinite(net(x)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weights": "dots"},
            "weights: unknown name 'dots'. Did you mean 'dot'\\? Valid names: 'dot', 'dist', 'random'",
        ),
        ({"normalizer": "MS"}, "normalizer: unknown name 'MS'. Valid names: 'mean-std', 'fluctuation'"),
        ({"input_metric": "l3"}, "input_metric: unknown name 'l3'. Valid names: 'entropy', 'l2', 'cosine'"),
        ({"deeper_metric": "class"}, "deeper_metric: unknown name 'class'"),
        ({"input_metric": ["l2", "nope"]}, "input_metric: unknown name 'nope'"),
        ({"input_metric": []}, "input_metric: needs at least one of 'l2', 'cosine'"),
        ({"delays": "corr"}, "delays: unknown name 'corr'"),
        (
            {"supports": 3},
            "supports must be one of the names 'search', 'width', 'fixed', or an object with a method `find`, got 3",
        ),
        ({"temporal": TemporalGrid}, "temporal must be one of the names 'grid'"),
        ({"regularization": 0.1}, "regularization must be one of the names 'search', 'paper', 'fixed'"),
        ({"initial_batch": 1}, "initial_batch must be a whole number >= 2"),
        ({"memory": "lots"}, 'memory must be a size such as "2GB"'),
        ({"validation": 1.5}, "validation must be a number between 0 and 1"),
        ({"random_state": "x"}, "random_state must be a whole number"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sample_with(options)


def test_several_mistakes_are_reported_at_once():
    with pytest.raises(ValueError, match="^2 mistakes:\n- weights: unknown name 'dots'.*\n- initial_batch must be"):
        sample(network(), waves(), steps=Steps(weights="dots", initial_batch=1))
    with pytest.raises(ValueError, match="^2 mistakes:\n- delays: unknown name 'corr'.*\n- stride must be"):
        Trajectory(delays="corr", stride=0)
    with pytest.raises(ValueError, match="steps: unknown name 'papers'. Did you mean 'paper'"):
        sample(network(), waves(), steps="papers")


def test_names_stand_for_steps():
    assert STEPS["paper"] == Steps()
    nets = [network((10,)) for _ in range(3)]
    for net, steps in zip(nets, ("forecast", STEPS["forecast"], "paper"), strict=True):
        sample(net, waves(), steps=steps, random_state=0)
    assert torch.equal(nets[0].layers[0].weights, nets[1].layers[0].weights)
    assert not torch.equal(nets[0].layers[0].weights, nets[2].layers[0].weights)


class Own:
    """A step of the user's own: one function under a name."""

    def __init__(self, **functions):
        self.__dict__.update(functions)

    def __repr__(self):
        return "Own()"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pairs": Own(draw=max)},
            "pairs must be .*`draw`, got Own\\(\\), which lacks `admissible`, `log_probabilities`, `entropy`",
        ),
        (
            {"deeper_metric": Own(pairwise=max)},
            "deeper_metric must be .*`pairwise`, `embed`, got Own\\(\\), which lacks `embed`",
        ),
        (
            {"weights": Own(directions=lambda a, b, g: a[:, :, 0].T)},
            r"weights must return a tensor of shape \(30, 2\), got \(2, 30\)",
        ),
        ({"weights": Own(directions=lambda a, b, g: None)}, r"weights must return a tensor of shape \(30, 2\), got NoneType"),
        ({"weights": Own(directions=lambda a, b, g: a[:, :, 0] / 0)}, "weights must return finite values"),
        (
            {
                "temporal": Own(
                    assign=lambda *_, neurons, **__: (torch.ones(neurons), torch.zeros(neurons), torch.ones(neurons))
                )
            },
            "temporal: supports must be above 0, in steps, got 0",
        ),
        (
            {
                "temporal": Own(
                    assign=lambda *_, neurons, **__: (-2 * torch.ones(neurons), torch.ones(neurons), torch.ones(neurons))
                )
            },
            "temporal: delays must be at least 0, or -1 for a kernel that acts at once, in steps, got -2",
        ),
        (
            {"temporal": Own(assign=lambda *_, neurons, **__: (torch.ones(3), torch.ones(3), torch.ones(3)))},
            r"temporal: delays must return a tensor of shape \(30,\), got \(3,\)",
        ),
    ],
)
def test_own_steps_that_are_wrong(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sample(network(), waves(), steps=Steps(**options))


def test_traces_of_a_network_are_read_by_a_ridge_regression():
    readout = TraceReadout(2 * 12, 2, HORIZON, constants=(3.0, float("inf")), dtype=torch.float64)
    net = network((12,), readout=readout, dtype=torch.float64)
    solve = Counts(traces=readout.constants, loss="squared_error", regularization=FixedLambda(0.05))
    sample(net, waves(), readout=solve, random_state=0)
    x, y = waves().inputs(slice(None)), waves().targets(slice(None))
    spikes = net.simulate(x.double()).spikes[0]  # (M, O, N)
    age = torch.arange(WINDOW - 1, -1, -1).double()
    decay = torch.stack([torch.exp(-age / 3), torch.ones_like(age)])  # (K, O)
    features = torch.einsum("kt,mtn->mnk", decay, spikes[:, :WINDOW])
    ridge = Ridge(alpha=0.05 * len(x)).fit(features.flatten(1).numpy(), y.flatten(1).double().numpy())
    np.testing.assert_allclose(net.readout.weights.detach(), ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(net.readout.biases.detach(), ridge.intercept_, atol=1e-8)
    assert error(net, waves(seed=1)) < 0.5


def test_an_output_that_reads_traces_has_no_voltage_to_set():
    net = network((5,), readout=TraceReadout(5, 2, HORIZON, constants=(3.0,)))
    with pytest.raises(
        TypeError, match="network: its output reads traces at the window's end, but this readout sets a voltage"
    ):
        sample(net, waves(), readout=Trajectory())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    samples = waves()
    x, y = samples.inputs(slice(None)).clone(), samples.targets(slice(None)).clone()
    x[3, 4, 1] = bad
    with pytest.raises(ValueError, match="X must be finite"):
        sample(network(), x, y)
    x[3, 4, 1], y[100, 0, 0] = 0, bad
    with pytest.raises(ValueError, match="Y must be finite"):
        sample(network(), x, y)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"X must have the network's shape \(samples, 20, 2\)"):
        sample(network(), torch.zeros(9, 20, 3), torch.zeros(9, 5, 2))
    with pytest.raises(TypeError, match="Y must be given with X"):
        sample(network(), torch.zeros(9, 20, 2))
    with pytest.raises(ValueError, match="X and Y must have shapes"):
        sample(network(), torch.zeros(9, 20, 2), torch.zeros(8, 5, 2))
    with pytest.raises(ValueError, match="at least two training samples"):
        sample(network(), torch.zeros(2, 20, 2), torch.zeros(2, 5, 2))


def test_a_step_of_the_users_own_works():
    class Constant:
        def directions(self, first, second, generator):
            return torch.ones(first.shape[:2], dtype=torch.float64)

    net = network()
    sample(net, waves(), steps=Steps(weights=Constant(), normalizer=MeanStd(0.4, 0.6)), random_state=0)
    w = net.layers[0].weights.detach()
    torch.testing.assert_close(w[:, 0], w[:, 1])


def test_windows_are_those_of_the_series_and_cross_no_break():
    a, b, c = (torch.arange(n, dtype=torch.float32)[:, None] + 100 * k for k, n in enumerate((9, 4, 7)))
    windows = Windows([a, b, c], window=3, horizon=2, stride=2)
    seen = [
        torch.cat([windows.inputs(slice(i, i + 1)), windows.targets(slice(i, i + 1))], dim=1).flatten()
        for i in range(len(windows))
    ]
    assert [s.tolist() for s in seen] == [
        [0, 1, 2, 3, 4],
        [2, 3, 4, 5, 6],
        [4, 5, 6, 7, 8],
        [200, 201, 202, 203, 204],
        [202, 203, 204, 205, 206],
    ]
    assert windows.covered(1).nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert windows.covered(5).nonzero().flatten().tolist() == [*range(9), *range(13, 20)]


def test_batches_cover_everything_once():
    for count in (1, 7, 16, 100):
        for size in (1, 3, 16, 1000):
            for even in (True, False):
                parts = batches(count, size, even=even)
                assert [i for p in parts for i in range(p.start, p.stop)] == list(range(count))
                assert max(p.stop - p.start for p in parts) <= size


def test_tensor_samples_need_matching_shapes():
    with pytest.raises(ValueError, match="with equally many samples"):
        TensorSamples(torch.zeros(3, 2, 1), torch.zeros(4, 2, 1))
