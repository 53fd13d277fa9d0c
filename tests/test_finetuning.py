"""Fine-tuning and training from scratch."""

import copy
import json
import math
import time

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from sswim import Direct, Forecaster, FromScratch, Gradient, SpikingNetwork, Trajectory, finetune, initialize, sample
from sswim.gradient import EpochRecord, TrainingDiverged
from sswim.gradient.finetune import LOSSES, Schedule
from sswim.gradient.initialize import fluctuation_weights
from sswim.network import KERNELS, SlayerExponential
from sswim.network.kernels import kernel_taps
from sswim.sealed import seal

WINDOW, HORIZON = 20, 4


def data(count=160, channels=2, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(WINDOW + HORIZON) + rng.uniform(0, 50, (count, 1))
    x = np.stack([np.sin(t / (3 + c)) ** 2 + 0.02 * rng.standard_normal(t.shape) for c in range(channels)], axis=2)
    x = torch.from_numpy(x).float()
    return x[:, :WINDOW], x[:, WINDOW:]


def sampled(hidden=(40,), seed=0, **options):
    net = SpikingNetwork(2, 2, window=WINDOW, horizon=HORIZON, hidden=hidden, **options)
    sample(net, *data(), random_state=seed)
    return net


def parameters(net):
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def loss(net, x, y):
    with torch.no_grad():
        return float(torch.nn.functional.mse_loss(net(x), y))


def test_fine_tuning_improves_a_sampled_network_and_tells_of_it():
    net, (x, y) = sampled(seed=1), data(300)
    held_out = data(100, seed=1)
    before = loss(net, *held_out)
    report = finetune(net, x, y, validation=held_out, epochs=8, learning_rate=1e-3, penalty=0.0)
    assert loss(net, *held_out) == pytest.approx(report.best.validation_loss, rel=1e-4) and report.stopped == "epochs"
    assert report.best.validation_loss < 0.95 * before
    history = report.history
    assert list(history.index) == list(range(9)) and isinstance(history, pd.DataFrame)
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-4)
    assert history.validation_loss.min() == report.best.validation_loss
    assert (np.diff(history.learning_rate[1:]) < 0).all() and (np.diff(history.seconds) > 0).all()
    spikes = net.simulate(held_out[0]).spikes[0]
    assert report.best.firing_rate == pytest.approx(float(spikes.mean()), rel=1e-4)
    assert report.best.silent == int((spikes.sum(dim=(0, 1)) == 0).sum())


def test_all_parameters_move_and_stay_where_they_make_sense():
    net = sampled((20, 10))
    with torch.no_grad():
        net.layers[0].delays[:5] = 0
        net.layers[0].supports[:5] = 1
        net.layers[0].supports[5] = 0.4  # not pushed up by the bound
    before = parameters(net)
    finetune(net, *data(), epochs=3, learning_rate=5e-3, min_improvement=0.0, validation=None)
    after = parameters(net)
    assert all(not torch.equal(before[name], after[name]) for name in before), "every parameter is trained"
    for layer in [*net.layers, net.readout]:
        assert float(layer.delays.detach().min()) >= 0
        assert float(layer.supports.detach().min()) >= 0.4 and float(layer.supports.detach()[:5].min()) >= 1
    assert all(float(layer.costs.detach().max()) <= 0 for layer in net.layers)


def test_never_worse_than_before_on_validation():
    net, (x, y) = sampled(), data()
    before = parameters(net)
    held_out = data(60, seed=1)
    report = finetune(net, x, -y, validation=held_out, epochs=3, learning_rate=1e-2)  # towards something else
    assert report.best_epoch == 0 and same(parameters(net), before)


def test_patience_time_and_callback_stop():
    net, (x, y) = sampled(), data()
    report = finetune(net, x, -y, validation=data(60, seed=1), epochs=50, patience=2)
    assert report.stopped == "patience" and len(report.records) == 3
    assert finetune(sampled(), x, y, epochs=50, time_limit=1e-9).stopped == "time"
    steps = []

    def slow(a, b):
        if torch.is_grad_enabled():
            steps.append(time.sleep(0.05))
        return torch.nn.functional.mse_loss(a, b)

    report = finetune(sampled(), x, y, epochs=50, batch_size=8, loss=slow, time_limit=0.12)
    assert report.stopped == "time" and len(report.records) == 2 and len(steps) < 6, "the epoch was cut short"
    seen = []

    def log(record):
        seen.append(record)
        return len(seen) == 2

    report = finetune(sampled(), x, y, epochs=50, callback=log)
    assert report.stopped == "callback" and [r.epoch for r in seen] == [1, 2] and isinstance(seen[0], EpochRecord)
    # Gains below the least one do not count against patience, but the best network is still kept.
    report = finetune(sampled(), x, y, epochs=50, patience=2, min_improvement=1e3)
    assert report.stopped == "patience" and len(report.records) == 3


def test_cosine_schedule():
    schedule = Schedule(learning_rate=1.0, final_learning_rate=0.1, epochs=11)
    rates = [schedule.rate(epoch) for epoch in range(1, 12)]
    assert rates[0] == 1.0 and rates[-1] == pytest.approx(0.1) and rates[5] == pytest.approx(0.55)
    assert Schedule(learning_rate=1.0, final_learning_rate=0.1, epochs=1).rate(1) == 1.0


def test_one_step_of_adam_by_hand():
    """The first step of Adam moves each parameter by its rate against the gradient's sign."""
    net, (x, y) = sampled(), data(32)
    before = parameters(net)
    torch.nn.functional.mse_loss(net(x), y).backward()
    gradient = net.layers[0].weights.grad.clone()
    net.zero_grad()
    after = {}  # as the callback sees it, for a step that makes it worse is taken back

    def look(record):
        after.update(parameters(net))

    finetune(net, x, y, validation=None, epochs=1, batch_size=32, learning_rate=1e-3, penalty=0.0, clip=None, callback=look)
    moved = after["layers.0.weights"] - before["layers.0.weights"]
    clear = gradient.abs() > 1e-5
    assert clear.float().mean() > 0.5
    # Adam adds 1e-8 to the gradient's size, and float32 rounds weights of size 1 by 1e-7.
    torch.testing.assert_close(moved[clear], -1e-3 * gradient.sign()[clear], rtol=2e-3, atol=1e-6)


def test_penalty_is_the_one_of_sampling():
    """Of a network whose weights sampling has solved for, the gradient by the output weights vanishes with its lambdas."""
    torch.manual_seed(0)
    x, y = (v.double() for v in data(400))
    net = SpikingNetwork(2, 2, window=WINDOW, horizon=HORIZON, hidden=(30,), dtype=torch.float64)
    readout = Trajectory(assembly="exact", regularization="fixed")
    report = sample(net, x[:300], y[:300], validation=(x[300:], y[300:]), random_state=0, readout=readout)
    torch.nn.functional.mse_loss(net(x[:300]), y[:300]).backward()
    penalty = 2 * report.lambdas[:, None] * net.readout.weights.detach() / (HORIZON * 2)
    assert float((net.readout.weights.grad + penalty).abs().max()) < 1e-3 * float(net.readout.weights.grad.abs().max())


def test_parts_of_a_batch_add_up():
    x, y = data()
    one, other = sampled(), sampled()
    options = {"epochs": 2, "validation": (x, y), "learning_rate": 1e-3}
    finetune(one, x, y, **options)
    finetune(other, x, y, memory="1MB", **options)  # a few samples at a time
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_killed_and_resumed_is_bit_equal(tmp_path):
    x, y = data()
    options = {"epochs": 6, "learning_rate": 2e-3, "random_state": 3, "validation": data(50, seed=1)}
    whole = sampled()
    expected = finetune(whole, x, y, **options)

    class Killed(Exception):
        pass

    def kill(record):
        if record.epoch == 4:  # before its checkpoint is written
            raise Killed

    path, net = tmp_path / "run.ckpt", sampled()
    with pytest.raises(Killed):
        finetune(net, x, y, checkpoint=path, callback=kill, **options)
    again = sampled()
    report = finetune(again, x, y, checkpoint=path, **options)
    assert same(parameters(again), parameters(whole))
    columns = ["loss", "validation_loss", "firing_rate", "silent", "gradient_norm"]
    pd.testing.assert_frame_equal(report.history[columns], expected.history[columns], check_exact=True)
    assert report.best_epoch == expected.best_epoch
    # Once finished, nothing is left to do.
    third = sampled()
    assert len(finetune(third, x, y, checkpoint=path, **options).records) == 7 and same(parameters(third), parameters(whole))
    with pytest.raises(ValueError, match="is of a training with learning_rate=0.002. Train with the same"):
        finetune(sampled(), x, y, checkpoint=path, **{**options, "learning_rate": 1e-3})
    with pytest.raises(ValueError, match="another network"):
        finetune(sampled((30,)), x, y, checkpoint=path, **options)
    with pytest.raises(ValueError, match="is of a training with other data. Train with the same, remove it"):
        finetune(sampled(), x + 1e-3, y, checkpoint=path, **options)
    with pytest.raises(ValueError, match="is of a training with other data"):
        finetune(sampled(), x[1:], y[1:], checkpoint=path, **options)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a checkpoint of a training, or damaged"):
        finetune(sampled(), x, y, checkpoint=path, **options)
    with pytest.raises(FileNotFoundError, match="checkpoint: the folder .* does not exist"):
        finetune(sampled(), x, y, checkpoint=tmp_path / "no" / "run.ckpt", **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.pop("records"), "the header lacks records"),
        (lambda h, t: h.update(best_epoch="1"), "best_epoch must be int, got '1'"),
        (lambda h, t: h.update(last_gain=9), "its epochs are not in order"),
        (lambda h, t: h["records"][1].update(loss=None), "loss must be float, got None"),
        (lambda h, t: h["records"].clear(), "its epochs are not in order"),
        (lambda h, t: t.pop("best.layers.0.weights"), "best.layers.0.weights is not that of the network"),
        (lambda h, t: t["now.layers.0.weights"].fill_(float("nan")), "now.layers.0.weights is not that of the network"),
        (lambda h, t: t["adam.layers.0.weights.exp_avg_sq"].fill_(-1.0), "exp_avg_sq is not that of the network"),
        (lambda h, t: t.update({"adam.layers.0.biases.step": torch.zeros(2)}), "step is not that of the network"),
        (lambda h, t: t["adam.layers.0.biases.step"].fill_(1e30), "step is not that of the network"),
        (lambda h, t: t.update(more=torch.zeros(2)), "more is not that of the network"),
        (None, "it has changed since it was written"),
    ],
)
def test_damaged_checkpoints_are_refused_and_stay(tmp_path, change, message):
    (x, y), path = data(), tmp_path / "run.ckpt"
    finetune(sampled(), x, y, checkpoint=path, epochs=1)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["sswim-training"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    if change is None:
        tensors["now.layers.0.weights"] += 1e-6
    else:
        change(header, tensors)
        header = seal(header, tensors)
    save_file(tensors, path, metadata={"sswim-training": json.dumps(header)})
    harmed, net = path.read_bytes(), sampled()
    before = parameters(net)
    told = rf"checkpoint: .*run.ckpt is .*damaged \(.*{message}.*\)\. Remove it, or name another"
    with pytest.raises(ValueError, match=told):
        finetune(net, x, y, checkpoint=path, epochs=1)
    assert path.read_bytes() == harmed and same(parameters(net), before)


def test_loaders():
    x, y = data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)
    state = torch.random.get_rng_state()
    one, other = sampled(), sampled()
    first = finetune(one, loader, validation=data(40, seed=1), epochs=2)
    finetune(other, loader, validation=data(40, seed=1), epochs=2)
    assert same(parameters(one), parameters(other)) and len(first.records) == 3
    assert torch.equal(torch.random.get_rng_state(), state), "the user's own random numbers are left alone"
    finetune(sampled(), loader, validation=loader, epochs=1), finetune(sampled(), loader, validation=None, epochs=1)
    with pytest.raises(ValueError, match="X: the loader is empty"):
        finetune(sampled(), [], validation=None)
    with pytest.raises(ValueError, match="validation: the loader is empty"):
        finetune(sampled(), loader, validation=[])
    with pytest.raises(ValueError, match="a loader cannot be split"):
        finetune(sampled(), loader)


def test_divergence_keeps_the_best_network():
    net, (x, y) = sampled(), data()
    calls = {"n": 0}

    def loss_that_breaks(a, b):
        calls["n"] += torch.is_grad_enabled()
        value = torch.nn.functional.mse_loss(a, b)
        return value * (math.nan if calls["n"] > 9 else 1.0)

    options = {"epochs": 9, "learning_rate": 2e-3, "validation": data(60, seed=1)}
    with pytest.raises(
        TrainingDiverged, match=r"NaN or infinite in epoch 4, first in layers.0.weights.*smaller learning_rate"
    ) as caught:
        finetune(net, x, y, loss=loss_that_breaks, batch_size=64, **options)  # three batches per epoch
    assert caught.value.report.stopped == "diverged" and len(caught.value.report.records) == 4
    assert loss(net, *options["validation"]) == pytest.approx(caught.value.report.best.validation_loss, rel=1e-4)


def test_an_exploding_gradient_is_named():
    net = sampled(surrogate=SlayerExponential(width=1e-3))
    with torch.no_grad():
        net.layers[0].weights.zero_(), net.layers[0].biases.fill_(1.0), net.layers[0].costs.fill_(-1e-6)
        net.layers[0].weights.fill_(1e-12)
        net.layers[0].costs.fill_(-1e25)
    with pytest.raises(TrainingDiverged, match="first in "):
        finetune(net, *data(), epochs=1, batch_size=16)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"learning_rate": 0}, "learning_rate must be a finite number > 0, got 0.0"),
        ({"learning_rate": -1e-3}, "learning_rate must be a finite number > 0"),
        ({"final_learning_rate": -1.0}, "final_learning_rate must be a finite number >= 0"),
        ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1"),
        ({"patience": 0}, "patience must be a whole number >= 1"),
        ({"clip": 0.0}, "clip must be a finite number > 0"),
        ({"penalty": -1.0}, "penalty must be a finite number >= 0"),
        (
            {"penalty": torch.ones(5)},
            r"penalty must be a number or of the output weights' shape \(2, 40\) or \(2,\), got \(5,\)",
        ),
        ({"loss": "mae"}, "loss must be one of 'mse', or a callable, got 'mae'"),
        ({"time_limit": "soon"}, "time_limit must be a time such as '30s' or '5min', or None, got 'soon'"),
        ({"memory": "1"}, "memory must be at least 1 MB"),
        ({"validation": 1.5}, "validation must be a number between 0 and 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        finetune(sampled(), *data(), **options)


def test_bad_data():
    x, y = data()
    with pytest.raises(ValueError, match="X must hold at least two samples, got none"):
        finetune(sampled(), x[:0], y[:0])
    with pytest.raises(ValueError, match="X must be finite, but holds NaN"):
        finetune(sampled(), x.clone().fill_(torch.nan), y)
    with pytest.raises(ValueError, match=r"Y must have the network's shape \(samples, 4, 2\)"):
        finetune(sampled(), x, y[:, :2])
    with pytest.raises(ValueError, match="none of its parameters requires a gradient"):
        finetune(sampled().requires_grad_(False), x, y)


def test_frozen_parameters_stay():
    net = sampled()
    net.layers[0].delays.requires_grad_(False)
    before = parameters(net)
    finetune(net, *data(300), epochs=4, learning_rate=2e-3, penalty=0.0, validation=data(100, seed=1))
    after = parameters(net)
    assert torch.equal(before["layers.0.delays"], after["layers.0.delays"])
    assert not torch.equal(before["layers.0.supports"], after["layers.0.supports"])


SEARCH = {"learning_rate": 2e-2, "temporal_rate": 2.0, "penalty": 0.0, "final_learning_rate": 1e-4}


def test_a_teachers_delays_and_supports_are_recovered():
    """From a perturbed start gradients find the kernels that made the data, to a tenth of a step."""
    generator = torch.Generator().manual_seed(0)
    teacher = SpikingNetwork(1, 6, window=60, horizon=60, start=0, hidden=(1,), dtype=torch.float64)
    readout = teacher.readout
    with torch.no_grad():
        (
            teacher.layers[0].weights.fill_(1.5),
            teacher.layers[0].supports.fill_(1.0),
            teacher.layers[0].refractory_supports.fill_(1.1),
        )
        readout.weights.fill_(1.0)
        readout.delays.copy_(torch.tensor([1.3, 3.7, 6.2, 9.9, 12.5, 4.4]))
        readout.supports.copy_(torch.tensor([2.6, 4.1, 3.3, 6.7, 5.2, 8.4]))
    x = (torch.rand(64, 60, 1, generator=generator) < 0.08).double()
    with torch.no_grad():
        y = teacher(x)
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.readout.delays += torch.tensor([0.9, -1.2, 1.1, -1.4, 1.0, -1.0])
        student.readout.supports += torch.tensor([-0.8, 1.0, 1.2, -1.5, 1.3, -1.1])
    for layer in student.layers:
        layer.requires_grad_(False)
    finetune(
        student,
        x,
        y,
        validation=(x, y),
        epochs=200,
        learning_rate=2e-2,
        temporal_rate=2.0,
        penalty=0.0,
        final_learning_rate=1e-4,
    )
    assert float((student.readout.delays - readout.delays).detach().abs().max()) < 0.1
    assert float((student.readout.supports - readout.supports).detach().abs().max()) < 0.1


def test_a_hidden_teachers_delays_and_supports_are_recovered():
    """The same through the threshold, by the surrogate's smooth step in its place."""
    generator = torch.Generator().manual_seed(0)
    teacher = SpikingNetwork(4, 4, window=40, horizon=40, start=0, hidden=(4,), kernel="hat", dtype=torch.float64)
    teacher.soft = True
    hidden = teacher.layers[0]
    with torch.no_grad():
        hidden.weights.copy_(1.5 * torch.eye(4)), hidden.biases.fill_(0.3)
        hidden.delays.copy_(torch.tensor([1.3, 3.7, 6.2, 9.9])), hidden.supports.copy_(torch.tensor([2.6, 4.1, 3.3, 6.7]))
        teacher.readout.weights.copy_(torch.eye(4)), teacher.readout.supports.fill_(1.5)
    x = (torch.rand(64, 40, 4, generator=generator) < 0.06).double()
    with torch.no_grad():
        y = teacher(x)
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.layers[0].delays += torch.tensor([0.9, -1.2, 1.1, -1.4])
        student.layers[0].supports += torch.tensor([-0.8, 1.0, 1.2, -1.5])
    for name, p in student.named_parameters():
        p.requires_grad_(name in ("layers.0.delays", "layers.0.supports"))
    finetune(
        student,
        x,
        y,
        validation=(x, y),
        epochs=150,
        learning_rate=2e-2,
        temporal_rate=2.0,
        penalty=0.0,
        final_learning_rate=1e-4,
    )
    assert float((student.layers[0].delays - hidden.delays).detach().abs().max()) < 0.1
    assert float((student.layers[0].supports - hidden.supports).detach().abs().max()) < 0.1


@pytest.mark.parametrize("kernel", ["hat", "exponential", "morlet"])
def test_fluctuation_driven_weights_give_potentials_the_mean_and_spread_asked_for(kernel):
    """By simulation: many neurons that listen to Poisson spikes."""
    neurons, senders, rate, mean, spread = 400, 200, 0.1, 0.3, 1.5
    generator = torch.Generator().manual_seed(0)
    delays, supports = torch.full((neurons,), 2.0).double(), torch.full((neurons,), 6.0).double()
    taps = kernel_taps(KERNELS[kernel], delays, supports, 40)
    mu, sigma, bias = fluctuation_weights(taps, senders, rate, mean, spread, consistent=True)
    weights = mu[:, None] + sigma[:, None] * torch.randn(neurons, senders, generator=generator).double()
    spikes = (torch.rand(senders, 40, 200, generator=generator) < rate).double()
    k = taps[0].flip(0)  # the potential at the last of 40 steps
    v = weights @ torch.einsum("stb,t->sb", spikes, k) + bias[:, None]
    assert float(v.mean()) == pytest.approx(mean, abs=0.05)
    # A neuron's fluctuation by its input. Spikes on a grid of steps are a little more regular than Poisson's.
    given = mean - float(bias[0])  # by the weights
    assert float(v.var(dim=1).mean().sqrt()) == pytest.approx((1 - given) / spread * (1 - rate) ** 0.5, rel=0.05)


def test_fluctuation_driven_weights_beyond_their_range():
    taps = kernel_taps(KERNELS["hat"], torch.zeros(1), torch.full((1,), 5.0), 20).double()
    eps, eps_hat = float(taps.sum()), float(taps.square().sum())
    for senders, rate in ((1000, 0.2), (3, 0.05)):
        kappa = math.sqrt(eps_hat) / (eps * math.sqrt(senders * rate))
        mu, sigma, bias = (float(v) for v in fluctuation_weights(taps, senders, rate, 0.5, 1.0, consistent=False))
        if 0.5 < 1 / (kappa + 1):
            inner = 0.5
        else:
            inner = 2 / (kappa + 1) - 0.5
            assert 0.5 >= 1 / (kappa + 1)
        assert mu == pytest.approx(inner / (senders * rate * eps)) and bias == pytest.approx(inner - 0.5)  # the paper's sign
        assert float(fluctuation_weights(taps, senders, rate, 0.5, 1.0)[2]) == pytest.approx(0.5 - inner)
        assert sigma**2 == pytest.approx((1 - inner) ** 2 / (senders * rate * eps_hat) - mu**2) and sigma > 0
    flat = torch.tensor([[1.0, -1.0, 0.0]]).double()  # a wavelet: no mean can be given through it
    mu, sigma, bias = fluctuation_weights(flat, 10, 0.1, 0.5, 1.0)
    assert float(mu) == 0 and float(bias) == 0.5 and float(sigma) == pytest.approx(math.sqrt(1 / (10 * 0.1 * 2)))


def test_initialized_networks_fire_and_are_reproducible():
    x, _ = data(100)
    nets = [SpikingNetwork(2, 2, window=WINDOW, horizon=HORIZON, hidden=(50, 30), kernel=k) for k in ("hat", "hat", "morlet")]
    for net in nets:
        initialize(net, x, random_state=1)
        rates = [float(a.mean()) for a in net.simulate(x).spikes]
        assert all(0.005 < r < 0.6 for r in rates), rates
        assert 0 <= float(net.layers[0].delays.detach().min()) and float(net.layers[0].delays.detach().max()) <= 15
        assert 5 <= float(net.layers[0].supports.detach().min()) and float(net.layers[0].supports.detach().max()) <= 15
        assert float(net.readout.supports.detach()[0]) == 15 and set(net.layers[0].costs.tolist()) == {-1.0}
    assert same(parameters(nets[0]), parameters(nets[1]))
    for options in ({"mean": 1.0}, {"spread": 0.0}, {"delays": (3.0, 1.0)}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
            initialize(nets[0], x, **options)
    with pytest.raises(ValueError, match="X must be finite"):
        initialize(nets[0], x * torch.nan)


def waves(rows=400):
    rng = np.random.default_rng(0)
    t = np.arange(rows)[:, None]
    return np.sin(2 * np.pi * t / (9 + np.arange(3))) + 0.1 * rng.standard_normal((rows, 3)) + 3


@pytest.mark.parametrize("kind", [FromScratch, Gradient])
@pytest.mark.parametrize("readout", ["paper", Direct(), Direct(skip=True)], ids=["paper", "spikes", "rows"])
def test_forecaster_trains_with_gradients(kind, readout, tmp_path):
    make = Forecaster.paper if readout == "paper" else Forecaster
    options = {"hidden": (15,), "random_state": 0, "verbose": 0} | ({} if readout == "paper" else {"readout": readout})
    training = kind(epochs=3, learning_rate=3e-3)
    model = make(WINDOW, HORIZON, training=training, **options).fit(waves()[:300])
    history = model.training_.history
    assert len(history) == 4 and model.training_.best.validation_loss == history.validation_loss.min()
    if kind is FromScratch:
        assert history.validation_loss.min() < history.validation_loss[0], "from scratch anything helps"
    assert np.isfinite(model.evaluate(waves()[300:]).rse)
    model.save(tmp_path / "m.sswim")
    loaded = Forecaster.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(loaded.predict(waves()), model.predict(waves()))
    pd.testing.assert_frame_equal(loaded.training_.history, history)
    assert loaded.training == training
    assert "gradient training" in str(model.summary())
    if kind is Gradient:
        plain = make(WINDOW, HORIZON, **options).fit(waves()[:300])
        assert plain.training_ is None
        # The validation part decides, so that the error on other rows may rise a little.
        assert model.evaluate(waves()[:300]).rse < 1.2 * plain.evaluate(waves()[:300]).rse


@pytest.mark.parametrize(("name", "training"), [("gradient", FromScratch()), ("sample+gradient", Gradient())])
def test_names_stand_for_trainings(name, training):
    """The paper's values: 750 epochs at 5e-4 from scratch, and 250 at 2.5e-4 for a sampled network."""
    model = Forecaster(training=name)
    assert model.get_params()["training__epochs"] == training.epochs == (750 if name == "gradient" else 250)
    assert training.learning_rate == (5e-4 if name == "gradient" else 2.5e-4)
    assert model.set_params(training__epochs=3).training == training.replace(epochs=3)


def test_forecaster_refuses_trainings_that_do_not_exist():
    with pytest.raises(ValueError, match="training: unknown name 'sgd'. Valid names: 'gradient', 'sample\\+gradient'"):
        Forecaster(WINDOW, HORIZON, verbose=0, training="sgd").fit(waves())
    with pytest.raises(ValueError, match="Gradient has no option 'epoch'. Did you mean 'epochs'"):
        Forecaster(training="sample+gradient").set_params(training__epoch=3)
    with pytest.raises(ValueError, match="2 mistakes:\n- epochs must be a whole number >= 1, got 0.\n- learning_rate must"):
        Gradient(epochs=0, learning_rate=-1.0)
    with pytest.raises(ValueError, match="training: None has no options to set"):
        Forecaster().set_params(training__epochs=3)


def test_forecaster_survives_divergence(monkeypatch):
    options = {"hidden": (10,), "random_state": 0, "verbose": 0}

    def breaks(a, b):
        return (a * math.nan).mean() if torch.is_grad_enabled() else ((a - b) ** 2).mean()

    monkeypatch.setitem(LOSSES, "mse", breaks)
    with pytest.warns(UserWarning, match="NaN or infinite in epoch 1"):
        model = Forecaster.paper(WINDOW, HORIZON, training=Gradient(epochs=2), **options).fit(waves())
    assert model.training_.stopped == "diverged"
    expected = Forecaster.paper(WINDOW, HORIZON, **options).fit(waves())
    np.testing.assert_array_equal(model.predict(waves()), expected.predict(waves()))
