import numpy as np
import pytest
import torch

from sswim import SpikingNetwork, Steps, sample_spikes
from sswim.evaluate.metrics import coincidence, van_rossum
from sswim.network.kernels import Hat, Refractory, kernel_taps, toeplitz
from sswim.spiking.judge import Judge
from sswim.spiking.projections import Bordered, Fit, Group, Projections, SpikeSums, refractory_traces
from sswim.spiking.targets import TRAIN_STEPS
from sswim.steps import Euclidean, FixedSupports, TemporalGrid, VanRossum

STEPS = 40


def network(hidden=(60,), **options):
    options = {"inputs": 2, "outputs": 2, "window": STEPS, "horizon": STEPS, "start": 0, "hidden": hidden} | options
    return SpikingNetwork(**{"spiking_output": True} | options)


def signals(samples=400, seed=0):
    """Smooth random inputs (samples, steps, 2)."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, 2, STEPS + 12, generator=g)
    bump = torch.hann_window(15, periodic=False)[1:-1]
    return torch.nn.functional.conv1d(noise.flatten(0, 1)[:, None], bump[None, None]).view(samples, 2, -1).mT / 2


def integrators(x):
    """Trains of two leaky integrators, with a reset, that see a nonlinear function of the input."""
    drive = torch.stack([x[:, :, 0].abs().tanh(), (x[:, :, 0] - x[:, :, 1]).tanh()], dim=2).clamp_min(0)
    v, trains = torch.zeros(len(x), 2), []
    for t in range(x.shape[1]):
        v = 0.7 * v + 0.5 * drive[:, t]
        trains.append((v >= 1).float())
        v = v * (v < 1)
    return torch.stack(trains, dim=1)


def far(a, b):
    return van_rossum(a, b) / van_rossum(torch.zeros_like(b), b)


def problem(samples=30, neurons=6, outputs=3, seed=0):
    """Hidden spikes and trains of chance, and the group that sees them."""
    g = torch.Generator().manual_seed(seed)
    spikes = (torch.rand(neurons, STEPS, samples, generator=g) < 0.2).double()
    trains = (torch.rand(outputs, STEPS, samples, generator=g) < torch.tensor([0.1, 0.2, 0.05])[:outputs, None, None]).double()
    tau, sigma = torch.tensor([1.0]).double(), torch.tensor([4.0]).double()
    K = toeplitz(kernel_taps(Hat(), tau, sigma, STEPS), STEPS)[0]
    group = Group(torch.arange(outputs), K, 0, torch.full((neurons,), 0.7, dtype=torch.float64))
    return group, spikes, trains, refractory_traces(Refractory(), torch.tensor([2.0, 3.0, 5.0])[:outputs], trains)


def dense_solution(group, spikes, trains, eta, z, weight, penalty, i, excite=False):
    """Weighted ridge regression of one output on a dense design, bias and cost free."""
    psi = torch.einsum("ts,nsb->ntb", group.K, spikes).flatten(1).T  # (rows, N)
    A = torch.cat([psi - group.means, torch.ones(len(psi), 1), eta[i].reshape(-1, 1)], dim=1).double()
    rows = (1 + (weight - 1) * trains[i].flatten()).sqrt()
    neurons = len(spikes)
    ridge = torch.cat([torch.eye(neurons) * penalty**0.5, torch.zeros(neurons, 2)], dim=1).double()
    A = torch.cat([A * rows[:, None], ridge])
    y = torch.cat([z.flatten() * rows, torch.zeros(neurons)]).double()
    found = torch.linalg.lstsq(A, y[:, None], driver="gelsd").solution[:, 0]
    if found[-1] > 0 and not excite:
        found = torch.cat([torch.linalg.lstsq(A[:, :-1], y[:, None], driver="gelsd").solution[:, 0], torch.zeros(1).double()])
    return found[:-1], found[-1]


def summed(group, spikes, trains, eta, batch=7):
    sums = SpikeSums(group.means, len(trains))
    for part in (slice(k, k + batch) for k in range(0, spikes.shape[2], batch)):
        sums.update(group.psi(spikes[:, :, part]), eta[:, :, part], trains[:, :, part])
    return sums


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("lambda_", [1e-9, 0.3])
def test_bordered_normal_equations_are_the_dense_ridge_regression(balance, lambda_):
    group, spikes, trains, eta = problem()
    sums = summed(group, spikes, trains, eta)
    weight = sums.balanced(balance)
    p, c = Bordered(sums, weight, lambda_).solve(*sums.constant(weight))
    for i in range(len(trains)):
        z = 2 * trains[i] - 1
        penalty = lambda_ * spikes.shape[2] * float(sums.total(weight)[i]) / sums.rows
        expected, cost = dense_solution(group, spikes, trains, eta, z, float(weight[i]), penalty, i)
        torch.testing.assert_close(p[i], expected, atol=1e-8, rtol=1e-7)
        torch.testing.assert_close(c[i], cost, atol=1e-8, rtol=1e-7)


def test_a_cost_that_would_excite_is_set_to_0_and_the_rest_solved_again():
    group, spikes, trains, _ = problem()
    trains[0] = (torch.roll(trains[0], 1, dims=0) + trains[0]).clamp_max(1)  # spikes in pairs: a trace that excites
    eta = refractory_traces(Refractory(), torch.tensor([2.0, 3.0, 5.0]), trains)
    sums = summed(group, spikes, trains, eta)
    weight = sums.balanced(0.0)
    p, c = Bordered(sums, weight, 1e-3).solve(*sums.constant(weight))
    arguments = (group, spikes, trains, eta, 2 * trains[0] - 1, 1.0, 1e-3 * spikes.shape[2], 0)
    assert dense_solution(*arguments, excite=True)[1] > 0 and c[0] == 0
    torch.testing.assert_close(p[0], dense_solution(*arguments)[0], atol=1e-8, rtol=1e-7)


def test_rounds_are_alternating_projections():
    """The right-hand sides from batches, with momentum, equal the dense computation that holds all voltages."""
    group, spikes, trains, eta = problem()
    sums = summed(group, spikes, trains, eta)
    balances, lambda_ = (0.0, 1.0), 1e-2
    rounds = Projections(group, sums, lambda_, balances)
    at = [(p.clone(), c.clone()) for p, c in zip(rounds.fit.p, rounds.fit.c, strict=True)]
    before = list(at)
    psi = group.psi(spikes) - group.means[:, None, None]
    for k in range(4):
        for part in (slice(20, 30), slice(0, 20)):
            rounds.see(spikes[:, :, part], eta[:, :, part], trains[:, :, part])
        rounds.project()
        for v, (p, c) in enumerate(list(at)):
            i, weight = v // 2, sums.balanced(balances[v % 2])
            u = torch.einsum("n,ntb->tb", p[:-1], psi) + p[-1] + c * eta[i]
            z = torch.where(trains[i] > 0, u.clamp_min(1), u.clamp_max(-1))
            penalty = lambda_ * spikes.shape[2] * float(sums.total(weight)[i]) / sums.rows
            p, c = dense_solution(group, spikes, trains, eta, z, float(weight[i]), penalty, i)
            torch.testing.assert_close(rounds.fit.p[v], p, atol=1e-7, rtol=1e-6)
            torch.testing.assert_close(rounds.fit.c[v], c, atol=1e-7, rtol=1e-6)
            at[v] = p + k / (k + 3) * (p - before[v][0]), c + k / (k + 3) * (c - before[v][1])
            before[v] = p, c


def test_the_sums_do_not_grow():
    sizes = []
    for samples in (10, 200):
        sums = summed(*problem(samples))
        sizes.append({name: value.shape for name, value in vars(sums).items() if isinstance(value, torch.Tensor)})
        assert sums.samples == samples and sums.rows == samples * STEPS
    assert sizes[0] == sizes[1]
    assert not len(SpikeSums(torch.zeros(5), 4, weighted=False).spike_gram)


def test_refractory_traces_follow_the_definition():
    _, _, trains, eta = problem(samples=2)
    for i, support in enumerate([2.0, 3.0, 5.0]):
        for m in range(2):
            fired = trains[i, :, m].nonzero()[:, 0].tolist()
            for t in range(STEPS):
                expected = sum(float(Refractory()(torch.tensor((t - f) / support))) for f in fired if f < t)
                assert eta[i, t, m] == pytest.approx(expected, abs=1e-6)


def test_the_judge_simulates_what_the_network_puts_out():
    net, x = network(dtype=torch.float64), signals(50)
    y = integrators(x).double()
    sample_spikes(net, x, y, random_state=0, rounds=1, supports=FixedSupports(4.0), delays="zero")
    readout = net.readout
    with torch.no_grad():
        K = toeplitz(kernel_taps(readout.kernel, readout.delays[:1], readout.supports[:1], STEPS), STEPS)[0]
        group = Group(torch.arange(2), K, 0, torch.zeros(60, dtype=torch.float64))
        fit = Fit(torch.cat([readout.weights, readout.biases[:, None] - 1], dim=1), readout.costs)
        judge = Judge(net, [(net.hidden_spikes(x)[0], y.permute(2, 1, 0))], [group])
        relative = judge.distances([fit], torch.zeros(1), torch.ones(1))[0][:, 0].sqrt()
        np.testing.assert_allclose(relative.numpy(), far(net(x), y), rtol=1e-10)


@pytest.fixture(scope="module")
def fitted():
    """Both methods on the integrators' trains, with the trains on new samples."""
    x, new = signals(500), signals(200, seed=1)
    y = integrators(x)
    found = {}
    for method in ("surrogate", "glm"):
        net = network(hidden=(100,))
        report = sample_spikes(net, x, y, method=method, random_state=0)
        with torch.no_grad():
            found[method] = report, net(new), integrators(new)
    return found


@pytest.mark.parametrize("method", ["surrogate", "glm"])
def test_trains_of_new_inputs_are_met(fitted, method):
    report, output, wanted = fitted[method]
    chance = wanted[torch.randperm(len(wanted), generator=torch.Generator().manual_seed(0))]
    assert (far(output, wanted) < 0.85).all() and (far(chance, wanted) > 1).all()
    assert (coincidence(output, wanted) > 0.4).all() and (np.abs(coincidence(chance, wanted)) < 0.3).all()
    outputs = report.outputs
    assert (outputs["cost"] <= 0).all() and report.method == method
    np.testing.assert_allclose(outputs["rate"], outputs["target_rate"], rtol=0.4)
    np.testing.assert_allclose(far(output, wanted), outputs["distance"], atol=0.1)


def test_projections_beat_least_squares(fitted):
    outputs = fitted["surrogate"][0].outputs
    assert (outputs["distance"] < 0.85 * outputs["plain"]).all()
    assert (outputs["distance"] < outputs["shifted"]).all() and (outputs["shifted"] <= outputs["plain"]).all()


@pytest.fixture(scope="module")
def teacher():
    """Trains made by a known output layer; a student gets the same hidden layer, as random weights see no targets."""
    x = signals(400)
    options = {
        "steps": TRAIN_STEPS.replace(weights="random"),
        "random_state": 0,
        "supports": FixedSupports(4.0),
        "delays": "zero",
    }
    net = network(hidden=(15,), dtype=torch.float64)
    sample_spikes(net, x, integrators(x), rounds=0, **options)
    g = torch.Generator().manual_seed(4)
    with torch.no_grad():
        net.readout.weights.copy_(torch.randn(2, 15, generator=g) / 2)
        net.readout.biases.fill_(0.8)
        net.readout.costs.copy_(torch.tensor([-3.0, -1.5]))
        net.readout.refractory_supports.copy_(torch.tensor([3.0, 5.0]))
        return x, net, net(x), options


def test_a_teacher_is_recovered(teacher):
    x, net, y, options = teacher
    student = network(hidden=(15,), dtype=torch.float64)
    report = sample_spikes(student, x, y, rounds=64, **options)
    assert torch.equal(student.layers[0].weights, net.layers[0].weights)
    assert (report.outputs["coincidence"] > 0.97).all() and (report.outputs["distance"] < 0.25).all()
    assert (report.outputs["distance"] < 0.6 * report.outputs["shifted"]).all()
    assert report.outputs["refractory_support"].tolist() == [3.0, 5.0]
    for i in range(2):  # up to the voltage's scale, which no train tells
        (found, cost), (true, true_cost) = (
            (torch.cat([n.readout.weights[i], n.readout.biases[i : i + 1] - 1]).detach(), float(n.readout.costs[i].detach()))
            for n in (student, net)
        )
        assert torch.cosine_similarity(found, true, dim=0) > 0.99
        assert cost / float(found.norm()) == pytest.approx(true_cost / float(true.norm()), rel=0.35)


def test_a_teacher_is_not_recovered_without_the_refractory_trace(teacher):
    x, _, y, options = teacher
    far_off = []
    for supports in (0.5, (3.0, 5.0)):  # a support of half a step reaches no later step: there is no trace
        student = network(hidden=(15,), dtype=torch.float64)
        far_off.append(sample_spikes(student, x, y, rounds=64, refractory_supports=supports, **options).outputs["distance"])
    assert (far_off[0] > 2 * far_off[1]).all()


def test_same_seed_same_network_whatever_the_memory():
    x = signals(120)
    y, nets = integrators(x), []
    for seed, memory in ((0, "1GB"), (0, "1GB"), (0, "1MB"), (1, "1GB")):
        nets.append(network(hidden=(20,), dtype=torch.float64))
        sample_spikes(nets[-1], x, y, random_state=seed, memory=memory, rounds=3, steps=TRAIN_STEPS.replace(initial_batch=60))
    state = [net.state_dict() for net in nets]
    assert all(torch.equal(state[0][k], state[1][k]) for k in state[0])
    for k in state[0]:
        torch.testing.assert_close(state[0][k], state[2][k], atol=1e-6, rtol=1e-6)
    assert not torch.equal(state[0]["readout.weights"], state[3]["readout.weights"])


def test_inputs_may_be_spikes():
    x = (torch.rand(400, STEPS, 2, generator=torch.Generator().manual_seed(0)) < 0.15).float()
    v, trains = torch.zeros(400, 2), []
    for t in range(STEPS):  # one output fires after two of its input's spikes, the other after both inputs'
        v = 0.8 * v + torch.stack([x[:, t, 0], x.mean(dim=2)[:, t]], dim=1) * 0.65
        trains.append((v >= 1).float())
        v = v * (v < 1)
    net = network(hidden=(60,))
    report = sample_spikes(net, x, torch.stack(trains, dim=1), random_state=0, rounds=8)
    assert report.outputs["distance"][0] < 0.9 and report.outputs["coincidence"][0] > 0.3


def test_pairs_are_drawn_by_the_distance_of_trains():
    x = signals(60)
    reports = [
        sample_spikes(network(hidden=(10,)), x, integrators(x), random_state=0, rounds=0, **options)
        for options in ({}, {"steps": Steps(output_metric=VanRossum(Euclidean(), Hat(), 5.0))}, {"steps": "paper"})
    ]
    pairs = [report.layers[0].pairs for report in reports]
    assert torch.equal(pairs[0], pairs[1]) and not torch.equal(pairs[0], pairs[2])


def pulses(samples, seed):
    """Each input has one pulse in a window of 25 steps, and its output spikes 12 steps later, after the window."""
    g = torch.Generator().manual_seed(seed)
    x, y, n = torch.zeros(samples, 25, 2), torch.zeros(samples, 15, 2), torch.arange(samples)
    for c, at in enumerate(torch.randint(15, 25, (2, samples), generator=g)):
        x[n, at - 1, c], x[n, at, c], y[n, at + 12 - 25, c] = 0.5, 1.0, 1.0
    return x, y


def test_trains_may_follow_the_window_and_layers_be_several():
    (x, y), (new, wanted) = pulses(300, 0), pulses(200, 1)
    net = network(hidden=(60, 30), window=25, horizon=15, start=25, kernel="hat")
    steps = TRAIN_STEPS.replace(temporal=TemporalGrid(max_delay=20.0, min_support=2.0, max_support=6.0))
    report = sample_spikes(net, x, y, steps=steps, random_state=0, rounds=16)
    with torch.no_grad():
        output = net(new)
    assert len(report.layers) == 2 and output.shape == (200, 15, 2)
    assert (far(output, wanted) < 0.6).all() and (coincidence(output, wanted) > 0.85).all()


@pytest.mark.parametrize("method", ["surrogate", "glm"])
def test_outputs_that_never_or_always_spike_stay_so_with_a_warning(method):
    x = signals(100)
    y = torch.stack([torch.zeros(100, STEPS), torch.ones(100, STEPS), integrators(x)[:, :, 1]], dim=2)
    net = network(outputs=3)
    with pytest.warns(UserWarning) as caught:
        sample_spikes(net, x, y, method=method, random_state=0, rounds=1)
    messages = [str(w.message) for w in caught]
    assert any("output 0 never spikes in the training trains" in m for m in messages)
    assert any("output 1 spikes at every step in the training trains" in m for m in messages)
    with torch.no_grad():
        output = net(x)
    assert output[:, :, 0].sum() == 0 and (output[:, :, 1] == 1).all() and 0 < output[:, :, 2].mean() < 0.5
    assert all(torch.isfinite(p).all() for p in net.parameters())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"trains": torch.full((9, STEPS, 2), 0.5)}, {}, "trains must hold 0 and 1 only, 1 at steps with a spike, got 0.5"),
        ({"trains": torch.full((9, STEPS, 2), torch.nan)}, {}, "trains must hold 0 and 1 only"),
        (
            {"trains": torch.zeros(9, STEPS, 3)},
            {},
            r"trains must have the network's shape \(samples, 40, 2\), got \(9, 40, 3\)",
        ),
        ({"trains": torch.zeros(9, STEPS)}, {}, "trains must have the network's shape"),
        ({"trains": torch.zeros(8, STEPS, 2)}, {}, "equally many samples"),
        ({"X": torch.zeros(9, STEPS, 1)}, {}, r"X must have the network's shape \(samples, 40, 2\)"),
        ({"X": torch.full((9, STEPS, 2), torch.nan)}, {}, "X must be finite"),
        ({"network": network(spiking_output=False)}, {}, "network: its output must spike"),
        ({}, {"method": "poisson"}, "method must be one of 'surrogate', 'glm', got 'poisson'"),
        ({}, {"rounds": -1}, "rounds must be a whole number >= 0"),
        ({}, {"refractory_supports": []}, "refractory_supports: needs at least one support"),
        ({}, {"refractory_supports": 0.0}, "refractory_supports must be a finite number > 0"),
        ({}, {"regularization": -1.0}, "regularization must be a finite number >= 0"),
        ({}, {"method": "glm?", "rounds": -1}, "2 mistakes:\n- method must be .*\n- rounds must be"),
        ({}, {"steps": TRAIN_STEPS.replace(weights="dots")}, "weights: unknown name 'dots'"),
        ({}, {"validation": 2.0}, "validation must be a number between 0 and 1"),
    ],
)
def test_bad_arguments(change, options, message):
    given = {"network": network(), "X": signals(9), "trains": torch.zeros(9, STEPS, 2)} | change
    with pytest.raises((ValueError, TypeError), match=message):
        sample_spikes(given["network"], given["X"], given["trains"], **options)


def test_van_rossum_follows_the_definition():
    g = np.random.default_rng(0)
    a, b = (g.random((3, 12, 2)) < 0.3).astype(float), (g.random((3, 12, 2)) < 0.3).astype(float)
    total = np.zeros(2)
    for m in range(3):
        for t in range(12):
            total += sum(max(1 - (t - s) / 4, 0) * (a[m, s] - b[m, s]) for s in range(t + 1)) ** 2
    np.testing.assert_allclose(van_rossum(a, b, support=4.0), np.sqrt(total / 3))
    assert (van_rossum(a, a) == 0).all()
    np.testing.assert_allclose(van_rossum(a, b), van_rossum(torch.from_numpy(b), torch.from_numpy(a)))


def test_coincidence_is_1_for_the_same_train_0_for_chance_and_pairs_each_spike_once():
    g = np.random.default_rng(0)
    a, b = (g.random((200, 100, 2)) < 0.03 for _ in range(2))
    np.testing.assert_allclose(coincidence(a, a), 1.0)
    np.testing.assert_allclose(coincidence(a, b), 0.0, atol=0.05)
    burst, one = np.zeros((1, 50, 1)), np.zeros((1, 50, 1))
    burst[0, 20:25], one[0, 22] = 1, 1
    p = 1 - 0.9**5
    assert coincidence(burst, one)[0] == pytest.approx((1 - p) / 3 / (1 - p))
    assert coincidence(np.roll(one, 2, axis=1), one)[0] > 0.9 and coincidence(np.roll(one, 3, axis=1), one)[0] < 0
    assert np.isnan(coincidence(0 * one, 0 * one)[0])
    with pytest.raises(ValueError, match="coincidence: a and b must both have the shape"):
        coincidence(one, one[0])
    with pytest.raises(ValueError, match="van_rossum: support must be a finite number > 0"):
        van_rossum(one, one, support=0)
