"""Weights for networks of other libraries: on stand-ins with their attribute names, and on the libraries where installed."""

import copy
import importlib
import math
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from sswim.adapters import SampledInto, sample_into
from sswim.adapters.dialects import dialect_of, measure
from sswim.adapters.foreign import Foreign
from sswim.adapters.layers import LayerSampler
from sswim.adapters.others import LABELS
from sswim.adapters.patches import Patches
from sswim.adapters.rates import Pooled, channels
from sswim.options import Mistakes, Randomness
from sswim.steps import Diverse, DotWeights, GradientPairs, MeanStd

STEPS = 12
BETA, THRESHOLD = 0.8, 1.5


class Leaky(nn.Module):
    """As snnTorch's: keeps `mem`, spikes above `threshold`, subtracts it one step later."""

    def __init__(self, beta=BETA, threshold=THRESHOLD):
        super().__init__()
        self.register_buffer("beta", torch.as_tensor(beta))
        self.register_buffer("threshold", torch.as_tensor(threshold))
        self.register_buffer("mem", torch.zeros(0), persistent=False)

    def reset_mem(self):
        self.mem = torch.zeros_like(self.mem)

    def forward(self, x):
        if self.mem.shape != x.shape:
            self.mem = torch.zeros_like(x)
        reset = (self.mem > self.threshold).to(x)
        self.mem = self.beta * self.mem + x - reset * self.threshold
        return (self.mem > self.threshold).to(x)


class LIFNode(nn.Module):
    """As SpikingJelly's: keeps `v`, spikes at `v_threshold`, resets to `v_reset` at once; one step or many."""

    def __init__(self, step_mode="s", v_reset=0.0, decay=1 - BETA):
        super().__init__()
        self.v_threshold, self.v_reset, self.decay, self.step_mode = THRESHOLD, v_reset, decay, step_mode
        self._memories = {"v": v_reset}

    @property
    def v(self):
        return self._memories["v"]

    def reset(self):
        self._memories["v"] = self.v_reset

    def _one(self, x):
        v = self.v + x - self.decay * (self.v - self.v_reset)
        s = (v >= self.v_threshold).to(x)
        self._memories["v"] = s * self.v_reset + (1 - s) * v
        return s

    def forward(self, x):
        return torch.stack([self._one(x_t) for x_t in x]) if self.step_mode == "m" else self._one(x)


State = namedtuple("State", "v i")


class Cell(nn.Module):
    """As Norse's `LIFCell`: synaptic current and potential in a state that is passed on."""

    def __init__(self, spiking=True):
        super().__init__()
        self.p = SimpleNamespace(v_leak=torch.tensor(0.0), tau=0.1, syn=0.2)
        if spiking:
            self.p.v_th = torch.tensor(THRESHOLD)

    def state_fallback(self, x):
        return State(torch.zeros_like(x), torch.zeros_like(x))

    def forward(self, x, state=None):
        state = self.state_fallback(x) if state is None else state
        i = state.i + x
        v = state.v + self.p.tau * (self.p.v_leak - state.v + i)
        if not hasattr(self.p, "v_th"):
            return v, State(v, (1 - self.p.syn) * i)
        s = (v > self.p.v_th).to(x)
        return s, State((1 - s) * v, (1 - self.p.syn) * i)


class Stateful(nn.Sequential):
    """As Norse's `SequentialState`."""

    def forward(self, x, state=None):
        state = [None] * len(self) if state is None else list(state)
        for n, module in enumerate(self):
            x, state[n] = module(x, state[n]) if dialect_of(module) else (module(x), None)
        return x, state


Stateful.__module__ = "norse.stand_in"


def stand_ins(*modules, neuron, container=nn.Sequential):
    return container(*[neuron() if module is None else module for module in modules])


def peer(name):
    return pytest.importorskip(name, reason=f"needs {name}: `make peers`")


def snntorch_net(*modules):
    snn = peer("snntorch")
    return stand_ins(*modules, neuron=lambda: snn.Leaky(beta=BETA, threshold=THRESHOLD, init_hidden=True))


def synaptic_net(*modules):
    snn = peer("snntorch")
    return stand_ins(*modules, neuron=lambda: snn.Synaptic(alpha=0.7, beta=BETA, init_hidden=True))


def jelly_net(*modules, mode="s", kind="LIFNode"):
    jelly = importlib.import_module if peer("spikingjelly") else None
    neuron, functional = (jelly(f"spikingjelly.activation_based.{part}") for part in ("neuron", "functional"))
    model = stand_ins(*modules, neuron=getattr(neuron, kind))
    functional.set_step_mode(model, mode)
    return model


def norse_net(*modules, kind="LIFCell"):
    norse = peer("norse.torch")
    return stand_ins(*modules, neuron=getattr(norse, kind), container=norse.SequentialState)


# Every kind of network, from a list of modules in which None stands for neurons.
KINDS = {
    "Leaky stand-in": lambda *m: stand_ins(*m, neuron=Leaky),
    "LIFNode stand-in": lambda *m: stand_ins(*m, neuron=LIFNode),
    "multi-step LIFNode stand-in": lambda *m: stand_ins(*m, neuron=lambda: LIFNode("m")),
    "Cell stand-in": lambda *m: stand_ins(*m, neuron=Cell, container=Stateful),
    "snnTorch Leaky": snntorch_net,
    "snnTorch Synaptic": synaptic_net,
    "SpikingJelly LIFNode": jelly_net,
    "SpikingJelly LIFNode, multi-step": lambda *m: jelly_net(*m, mode="m"),
    "SpikingJelly IFNode": lambda *m: jelly_net(*m, kind="IFNode"),
    "Norse LIFCell": norse_net,
    "Norse LIFBoxCell": lambda *m: norse_net(*m, kind="LIFBoxCell"),
    "Norse LIF": lambda *m: norse_net(*m, kind="LIF"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def data(samples=80, features=6, classes=3, seed=0):
    """Spikes whose rates depend on the class."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % classes
    rates = 0.1 + 0.6 * torch.rand(classes, features, generator=random)
    return (torch.rand(samples, STEPS, features, generator=random) < rates[y][:, None]).float(), y


def layers(features=6, hidden=(20, 15), classes=3, bias=True):
    torch.manual_seed(0)
    widths, made = [features, *hidden], []
    for a, b in zip(widths, widths[1:], strict=False):
        made += [nn.Linear(a, b, bias=bias), None]
    return [*made, nn.Linear(widths[-1], classes, bias=bias)]


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


# --- the literal twin ------------------------------------------------------------------------------------------------------


def literal_potential(x, w):
    """The potential of a `Leaky` stand-in without spikes, step by step."""
    v, found = 0.0, []
    for x_t in x:
        v = BETA * v + float(x_t @ w)
        found.append(v)
    return np.array(found)


def literal_layer(x, y, neurons, seed, l):
    """Weights and biases of one layer of `Leaky` stand-ins from its input (samples, time, senders), pair by pair."""
    M, T, D = x.shape
    psi = np.stack([np.stack([literal_potential(s, np.eye(D)[d]) for d in range(D)], axis=1) for s in x])  # (M, T, D)
    free = psi - psi.mean(axis=1, keepdims=True)
    log_p, pairs = [], []
    moves = np.sqrt((free**2).sum(axis=1)) >= 1e-6  # (M, D)
    able = moves.all(axis=1) if l == 1 else moves.any(axis=1)
    for n in range(M):
        for m in range(n):
            pairs.append((n, m))
            distance = np.sqrt(((free[n] - free[m]) ** 2).sum())
            log_p.append(-math.log(distance + 1e-6) if y[n] != y[m] and able[n] and able[m] else -math.inf)
    assert sum(p > -math.inf for p in log_p) >= neurons
    random = Randomness(seed)
    uniform = torch.rand(len(log_p), dtype=torch.float64, generator=random("pairs", l)).numpy()
    scores = np.array(log_p) - np.log(np.exp(log_p).sum()) - np.log(-np.log(uniform))
    drawn = [pairs[n] for n in np.argsort(-scores)[:neurons]]
    signs = torch.rand(neurons, 2, generator=random("weights", l), dtype=torch.float64)[:, 0].numpy()
    W, b = [], []
    for i, (n, m) in enumerate(drawn):
        q = psi[n].T @ psi[m]
        w = np.linalg.eigh((q + q.T) / 2)[1][:, 0]
        w *= np.sign(w[np.argmax(abs(w))]) * (-1 if signs[i] < 0.5 else 1)
        u = np.stack([literal_potential(s, w) for s in x]) / THRESHOLD
        part = 0.03 + 0.57 * ((i + 1) * 0.6180339887498949 % 1)  # of the time above the threshold
        z = float(torch.special.ndtri(torch.tensor(1 - part, dtype=torch.float64)))
        alpha = 1 / u.std()
        beta = 1 - z - alpha * u.mean()
        beta += max(0.0, 1 + 1e-4 - alpha * u.max() - beta)
        ramp = np.mean([sum(BETA**s for s in range(t + 1)) for t in range(T)])
        W.append(w * alpha / 2)  # a spike costs 2 in `Diverse`, 1 in these neurons
        b.append((1 + (beta - 1) / 2) * THRESHOLD / ramp)
    return np.array(W), np.array(b), drawn


def literal_spikes(x, W, b):
    found = np.zeros((len(x), x.shape[1], len(W)))
    for s, out in zip(x, found, strict=True):
        v = np.zeros(len(W))
        for t in range(len(s)):
            v = BETA * v + W @ s[t] + b - THRESHOLD * (v > THRESHOLD)
            out[t] = v > THRESHOLD
    return found


def test_weights_are_those_of_the_literal_twin():
    X, y = data(40)
    model = stand_ins(*layers(hidden=(8, 6)), neuron=Leaky).double()
    report = sample_into(model, X.double(), y, random_state=3, readout="keep", steps=LABELS.replace(normalizer=Diverse()))
    order = torch.randperm(40, generator=Randomness(3)("batch")).numpy()
    x, labels = X.double().numpy()[order], y.numpy()[order]
    for l, number in ((1, 0), (2, 2)):
        W, b, drawn = literal_layer(x, labels, len(model[number].bias), 3, l)
        assert report.layers[str(number)].pairs.tolist() == [[order[n], order[m]] for n, m in drawn]
        lifted = report.layers[str(number)].rates.numpy() == 0
        assert not lifted.any()
        close = np.isclose(model[number].weight.detach().numpy(), W, rtol=1e-5, atol=1e-7).all(axis=1)
        # A bias is a ramp, which may keep a neuron silent that a constant would not: that one is lifted as a whole.
        spikes = literal_spikes(x, W, b)
        assert (close | (spikes.sum(axis=(0, 1)) == 0)).all() and close.mean() > 0.7
        assert np.allclose(model[number].bias.detach().numpy()[close], b[close], rtol=1e-5, atol=1e-7)
        x = literal_spikes(x, model[number].weight.detach().numpy(), model[number].bias.detach().numpy())
        assert np.allclose(x.mean(axis=(0, 1)), report.layers[str(number)].rates.numpy())


def test_statistics_are_those_of_all_steps():
    u = torch.randn(3, 5, 40, dtype=torch.float64) * 2 + 1
    sums = Pooled()
    for part in u.split([7, 30, 3], dim=2):
        sums.update(part)
    flat = u.flatten(1)
    assert torch.allclose(sums.mean, flat.mean(1)) and torch.allclose(sums.deviation, flat.std(1, correction=0))
    assert torch.equal(sums.maximum, flat.amax(1))


# --- every kind of neuron --------------------------------------------------------------------------------------------------


@each_kind
def test_neurons_fire_at_healthy_rates_in_every_layer(kind):
    X, y = data()
    model = KINDS[kind](*layers(hidden=(20, 15, 10)))
    report = sample_into(model, X, y, random_state=0)
    assert isinstance(report, SampledInto) and report.steps == STEPS and report.silent == 0
    assert list(report.layers) == ["0", "2", "4"]
    for found in report.layers.values():
        assert 0.01 < float(found.rates.mean()) < 0.6 and float(found.rates.max()) < 0.95
    assert report.score is not None and report.score > 0.6  # a third by chance


@each_kind
def test_same_seed_same_weights(kind):
    X, y = data()
    models = [KINDS[kind](*layers()) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        before = torch.get_rng_state()
        sample_into(model, X, y, random_state=seed)
        assert torch.equal(torch.get_rng_state(), before)
    a, b, c = map(weights, models)
    assert same(a, b) and not any(torch.equal(p, q) for p, q in zip(a, c, strict=True) if p.ndim > 1)


@each_kind
def test_all_else_stays(kind):
    X, y = data()
    model = KINDS[kind](*layers())
    x = X[:5].transpose(0, 1)
    whole = any(getattr(m, "step_mode", "s") == "m" or hasattr(m, "record_states") for m in model.modules())
    model.train()
    model[1].eval()
    model(x if whole else x[0])  # states are not at their beginning
    held = [
        (m, name, value)
        for m in model.modules()
        for name, value in [*vars(m).items(), *m._buffers.items(), *getattr(m, "_memories", {}).items()]
        if name not in ("_parameters", "_buffers", "_modules", "_memories")
    ]
    values = [v.clone() if isinstance(v, torch.Tensor) else copy.copy(v) for _, _, v in held]
    fixed = {name: p.clone() for name, p in model.named_parameters() if not isinstance(model[int(name[0])], nn.Linear)}
    names = [sorted(vars(m)) for m in model.modules()]
    sample_into(model, X, y, random_state=0)
    assert names == [sorted(vars(m)) for m in model.modules()]
    for (module, name, value), old in zip(held, values, strict=True):
        now = getattr(module, name) if name in vars(module) or name in module._buffers else module._memories[name]
        assert now is value
        assert torch.equal(now, old) if isinstance(now, torch.Tensor) else True
    assert model.training and not model[1].training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(dict(model.named_parameters())[name], p) for name, p in fixed.items())


@each_kind
def test_the_response_is_that_of_the_module(kind):
    model = KINDS[kind](*layers())
    neuron, w = model[1], torch.randn(STEPS, 1, 20, generator=torch.Generator().manual_seed(0)) * 1e-3
    response = measure("1", neuron, (20,), STEPS, w)
    assert response.taps.shape == (20, STEPS) and bool((response.gap > 0).all())
    dialect, state, found = dialect_of(neuron), None, []
    with torch.no_grad():
        for part in (getattr(neuron, "reset_mem", None), getattr(neuron, "reset", None)):
            if callable(part):
                part()
        for x in w:
            _, v, state = dialect.step(neuron, x, state)
            found.append(v[0])
    literal = torch.zeros(STEPS, 20, dtype=torch.float64)
    for t in range(STEPS):
        for s in range(t + 1):
            literal[t] += response.taps[:, s] * w[t - s, 0]
    assert torch.allclose(torch.stack(found).double(), literal, atol=1e-8, rtol=1e-3)


def test_the_response_of_stand_ins_is_known():
    t = torch.arange(STEPS, dtype=torch.float64)
    for neuron, taps in ((Leaky(), BETA**t), (LIFNode(), BETA**t), (LIFNode("m"), BETA**t)):
        found = measure("n", neuron, (2,), STEPS, torch.zeros(1))
        assert torch.allclose(found.taps, taps.expand(2, -1), atol=1e-5) and found.gap.tolist() == [THRESHOLD, THRESHOLD]
    shifted = measure("n", LIFNode(v_reset=0.5), (2,), STEPS, torch.zeros(1))
    assert torch.allclose(shifted.taps, (BETA**t).expand(2, -1), atol=1e-5) and float(shifted.gap[0]) == pytest.approx(1.0)
    each = measure("n", Leaky(beta=torch.tensor([0.5, 0.9])), (2,), STEPS, torch.zeros(1))
    assert torch.allclose(each.taps, torch.stack([0.5**t, 0.9**t]), atol=1e-5)
    assert torch.isinf(measure("n", Cell(spiking=False), (2,), STEPS, torch.zeros(1)).gap).all()


def test_each_neuron_may_have_its_own_decay():
    X, y = data()
    model = stand_ins(*layers(), neuron=Leaky)
    model[1] = Leaky(beta=torch.linspace(0.1, 0.95, 20), threshold=torch.linspace(0.5, 2.0, 20))
    report = sample_into(model, X, y, random_state=0)
    rates = report.layers["0"].rates
    assert report.silent == 0 and float(rates.max()) < 0.95


# --- how models are called -------------------------------------------------------------------------------------------------


class Looped(nn.Module):
    """Runs all steps in its forward pass: time first, batch first, or one static sample again and again."""

    def __init__(self, kind):
        super().__init__()
        self.kind, (self.a, _, self.b, _, self.c) = kind, layers()
        self.first, self.second = Leaky(), Leaky()

    def forward(self, x):
        for neuron in (self.first, self.second):
            neuron.reset_mem()
        steps = {"time": x, "batch": x.transpose(0, 1) if x.ndim > 2 else None, "static": [x] * STEPS}[self.kind]
        return torch.stack([self.c(self.second(self.b(self.first(self.a(x_t))))) for x_t in steps]).mean(dim=0)


def test_ways_to_call_give_the_same_weights():
    X, y = data()
    one = stand_ins(*layers(), neuron=Leaky)
    sample_into(one, X, y, random_state=0)
    for kind, forward in (
        ("time", "time-first"),
        ("batch", "batch-first"),
        ("batch", lambda model, x: model(x)),
        ("time", lambda model, x: [model(x.transpose(0, 1)), model]),
    ):
        model = Looped(kind)
        sample_into(model, X, y, random_state=0, forward=forward)
        assert same(weights(one), weights(model)), kind
    many = stand_ins(*layers(), neuron=lambda: LIFNode("m"))
    single = stand_ins(*layers(), neuron=LIFNode)
    for model in (many, single):
        sample_into(model, X, y, random_state=0)
    for a, b in zip(weights(many), weights(single), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_static_samples_are_repeated():
    X, y = data()
    still = X.mean(dim=1)
    models = [stand_ins(*layers(), neuron=Leaky), stand_ins(*layers(), neuron=Leaky), Looped("static")]
    sample_into(models[0], still, y, repeat=STEPS, random_state=0)
    sample_into(models[1], still[:, None].expand(-1, STEPS, -1), y, random_state=0)
    report = sample_into(models[2], still, y, forward="batch-first", random_state=0)
    assert report.steps == STEPS and report.silent == 0
    assert all(same(weights(models[0]), weights(model)) for model in models[1:])
    once = sample_into(models[0], still, y, repeat=1, random_state=0)
    assert once.steps == 1 and once.silent == 0


# --- convolutions and what stands in between -------------------------------------------------------------------------------


def images(samples=60):
    X, y = data(samples, features=2 * 7 * 6)
    return X.reshape(samples, STEPS, 2, 7, 6), y


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    "options",
    [{}, {"padding": "same"}, {"padding": 1}, {"stride": 2, "padding": (1, 0)}, {"dilation": 2}, {"padding": "valid"},
     {"padding": 1, "padding_mode": "circular"}],
)  # fmt: skip
def test_patches_are_what_the_convolution_sees(options):
    conv = nn.Conv2d(2, 3, (3, 2), bias=False, **options)
    x = torch.randn(4, 5, 2, 7, 6)
    with torch.no_grad():
        whole = conv(x.flatten(0, 1)).unflatten(0, (4, 5))  # (M, T, C, H, W)
        for i in range(whole.shape[-2]):
            for j in range(whole.shape[-1]):
                seen = Patches(conv).at(x, (i, j)) @ conv.weight.flatten(1).T
                assert torch.allclose(seen, whole[..., i, j], atol=1e-5)


def test_filters_separate_a_pair_of_patches():
    X, y = images()
    conv = nn.Conv2d(2, 5, 3, padding=1)
    model = nn.Sequential(conv, Leaky(), nn.Flatten(), nn.Linear(5 * 7 * 6, 3))
    report = sample_into(model, X, y, random_state=4).layers["0"]
    random = Randomness(4)
    order = torch.randperm(60, generator=random("batch"))
    z, labels, pairs, signs = X[order], y[order], random("pairs", 1), random("weights", 1)
    filters = (BETA ** (torch.arange(STEPS)[:, None] - torch.arange(STEPS)).double()).tril()
    for n, place in enumerate(Patches(conv).places(z, 5, pairs)):
        patches = nn.functional.unfold(z.flatten(0, 1), 3, padding=1)[:, :, place[0] * 6 + place[1]]
        psi = filters @ patches.unflatten(0, (60, STEPS)).double()
        free = psi - psi.mean(dim=1, keepdim=True)
        near = torch.cdist(free.flatten(1), free.flatten(1))
        moves = free.square().sum(dim=1).sqrt() >= 1e-6
        ok = (moves | ~moves.any(dim=0)).all(dim=1)  # what lies in the padding never moves
        i, j = torch.tril_indices(60, 60, offset=-1)
        log_p = torch.where((labels[i] != labels[j]) & ok[i] & ok[j], -(near[i, j] + 1e-6).log(), -math.inf)
        (pair,) = GradientPairs().draw(log_p, 1, pairs)
        assert order[pair].tolist() == report.pairs[n].tolist()
        w = DotWeights().directions(psi[pair[0]].T[None], psi[pair[1]].T[None], signs)[0]
        found = conv.weight[n].detach().flatten().double()
        assert torch.allclose(found / found.norm(), w, atol=1e-5) or torch.allclose(-found / found.norm(), w, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "multi" not in kind and kind != "Norse LIF"])
@pytest.mark.parametrize("norm", [False, True])
def test_convolutions_with_all_that_stands_in_between(kind, norm):
    X, y = images()
    torch.manual_seed(0)
    between = [nn.BatchNorm2d(4)] if norm else []
    model = KINDS[kind](
        nn.Conv2d(2, 4, 3, padding=1, bias=not norm), *between, nn.MaxPool2d(2), None, nn.Dropout(0.5),
        nn.Conv2d(4, 6, 2, bias=False), nn.AvgPool2d((1, 2)), None, nn.Flatten(), nn.Linear(12, 8), None, nn.Linear(8, 3),
    )  # fmt: skip
    report = sample_into(model, X, y, random_state=0)
    assert report.silent == 0 and [len(r.rates) for r in report.layers.values()] == [4, 6, 8]
    assert all(0.005 < float(r.rates.mean()) < 0.8 for r in report.layers.values())


def test_a_batch_normalisation_has_the_statistics_of_its_input():
    X, y = images(90)
    norm = nn.BatchNorm2d(4)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), norm, Leaky(), nn.Flatten(), nn.Linear(80, 3))
    sample_into(model, X, y, random_state=0, steps=LABELS.replace(initial_batch=90))
    with torch.no_grad():
        x = channels(model[0](X.flatten(0, 1)).unflatten(0, X.shape[:2])).flatten(1)
    assert torch.allclose(norm.running_mean, x.mean(dim=1), atol=1e-5)
    assert torch.allclose(norm.running_var, x.var(dim=1, correction=0), rtol=1e-4)
    assert int(norm.num_batches_tracked) == 0 and not model[0].bias.any()


# --- the last layer --------------------------------------------------------------------------------------------------------


def hidden_means(model, X):
    """Return what the last layer reads: mean spikes of the stand-in network's last hidden layer."""
    seen = []
    handle = model[-1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    for neuron in (model[1], model[3]):
        neuron.reset_mem()
    with torch.no_grad():
        for t in range(STEPS):
            model(X[:, t])
    handle.remove()
    return torch.stack(seen).mean(dim=0).double()


@pytest.mark.parametrize("bias", [True, False])
def test_the_last_layer_solves_the_normal_equations(bias):
    X, _ = data()
    Y = torch.stack([X[:, :, 0].mean(dim=1), X[:, :, 1:3].sum(dim=(1, 2)), X[:, 0, 3] - X[:, 1, 3]], dim=1)
    model = stand_ins(*layers(bias=bias), neuron=Leaky)
    report = sample_into(model, X, Y, random_state=0)
    f, w = hidden_means(model, X), model[-1].weight.detach().double().T
    left = Y.double() - f @ w - (model[-1].bias.detach().double() if bias else 0)
    assert float(left.mean(dim=0).abs().max()) < 1e-5 or not bias
    gradient = f.T @ left  # penalty times weights
    for c in range(3):
        penalty = float((gradient[:, c] @ w[:, c]) / (w[:, c] @ w[:, c]))
        small = 1e-4 * float(gradient[:, c].abs().max()) + 1e-5
        assert penalty > 0 and torch.allclose(gradient[:, c], penalty * w[:, c], atol=small)
    assert report.score is not None and report.score < 1


def test_an_integrator_is_read_by_its_mean_voltage():
    X, y = data()
    model = Stateful(*stand_ins(*layers(), neuron=Cell, container=Stateful), Cell(spiking=False))
    report = sample_into(model, X, y, random_state=0)
    state, total = None, 0.0
    with torch.no_grad():
        for t in range(STEPS):
            v, state = model(X[:, t], state)
            total = total + v / STEPS
    accuracy = float((total.argmax(dim=1) == y).double().mean())
    assert accuracy >= report.score - 0.1 and accuracy > 0.7
    losses = [float(nn.functional.cross_entropy(total * s, y)) for s in (0.3, 1.0, 3.0)]
    assert losses[1] < losses[0]  # scaled for the cross entropy


def test_an_integrators_mean_voltage_fits_values():
    X, _ = data()
    Y = 3 + torch.stack([X[:, :, 0].mean(dim=1), X[:, :, 1:3].sum(dim=(1, 2))], dim=1)
    model = Stateful(*stand_ins(*layers(classes=2), neuron=Cell, container=Stateful), Cell(spiking=False))
    sample_into(model, X, Y, random_state=0)
    state, total = None, 0.0
    with torch.no_grad():
        for t in range(STEPS):
            v, state = model(X[:, t], state)
            total = total + v / STEPS
    assert torch.allclose((total - Y).mean(dim=0), torch.zeros(2), atol=1e-3)  # least squares with a free bias


def test_spiking_outputs_count_for_the_right_class():
    X, y = data()
    model = nn.Sequential(*stand_ins(*layers(), neuron=Leaky), Leaky())
    report = sample_into(model, X, y, random_state=0)
    model[1].reset_mem(), model[3].reset_mem(), model[5].reset_mem()
    with torch.no_grad():
        counts = sum(model(X[:, t]) for t in range(STEPS))
    assert float((counts.argmax(dim=1) == y).double().mean()) > 0.7 and report.score > 0.6
    wide = nn.Sequential(*stand_ins(*layers(classes=5), neuron=Leaky))  # two outputs that stand for no class
    sample_into(wide, X, y, random_state=0)
    f = hidden_means(wide, X).float()
    assert int(wide[-1](f).argmax(dim=1).max()) < 3


def test_the_last_layer_may_stay_or_be_sampled():
    X, y = data()
    model = stand_ins(*layers(), neuron=Leaky)
    last = weights(model)[-2:]
    report = sample_into(model, X, y, random_state=0, readout="keep")
    assert same(weights(model)[-2:], last) and report.score is None
    model = nn.Sequential(*stand_ins(*layers(), neuron=Leaky), Leaky())
    report = sample_into(model, X, y, random_state=0, readout="sample")
    assert list(report.layers) == ["0", "2", "4"] and report.silent == 0


def test_steps_are_taken():
    X, y = data()
    found = []
    for normalizer in (Diverse(0.02, 0.1), Diverse(0.5, 0.9), MeanStd(0.2, 0.5)):
        model = stand_ins(*layers(), neuron=Leaky)
        steps = LABELS.replace(normalizer=normalizer)
        found.append(float(sample_into(model, X, y, random_state=0, steps=steps).layers["0"].rates.mean()))
    assert found[0] < found[2] < found[1]
    model = stand_ins(*layers(), neuron=Leaky)
    report = sample_into(model, X, y, random_state=0, steps="paper").layers["0"]
    assert len(report.entropies) > 1


class Fixed:
    """Potentials far too small, or shifted far below rest."""

    def __init__(self, alpha, beta):
        self.alpha, self.beta = alpha, beta

    def scale(self, statistics):
        like = torch.ones_like(statistics.mean)
        return self.alpha * like, self.beta * like, -like


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("normalizer", [Fixed(1e-6, 0.0), Fixed(1e-3, -50.0)])
@pytest.mark.parametrize("kind", ["Leaky stand-in", "Cell stand-in", "SpikingJelly IFNode"])
def test_neurons_that_would_not_fire_are_lifted(kind, normalizer, bias):
    X, y = data()
    model = KINDS[kind](*layers(bias=bias))
    report = sample_into(model, X, y, random_state=0, steps=LABELS.replace(normalizer=normalizer))
    assert report.silent == 0 and all(float(found.rates.max()) < 0.95 for found in report.layers.values())


# --- mistakes --------------------------------------------------------------------------------------------------------------


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b, self.m, self.c = nn.Linear(6, 6), Leaky(), nn.Linear(6, 6), Leaky(), nn.Linear(6, 3)

    def forward(self, x):
        h = self.n(self.a(x))
        return self.c(self.m(self.b(h) + h))


class Clipped(Leaky):
    def forward(self, x):
        return super().forward(torch.tanh(5 * x))


class Restless(Leaky):
    def forward(self, x):
        return super().forward(x + 1.0)


class Recurrent(Leaky):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.Linear(20, 20)


def with_neuron(neuron):
    return stand_ins(*layers(), neuron=neuron)


def X_of(**changes):
    X, y = data()
    return {"X": X, "y": y} | changes


NAN = data()[0].clone()
NAN[3, 2, 1] = math.nan
MISTAKES = {
    "no module": (lambda: "net", {}, TypeError, "model must be a torch module, got str"),
    "no parameters": (lambda: nn.Flatten(), {}, ValueError, "model has no parameters"),
    "no LIF": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
        {},
        ValueError,
        "no spiking neurons were found behind '0'",
    ),
    "no layers": (lambda: nn.Sequential(nn.LayerNorm(6)), {}, ValueError, "no Linear or Conv2d layer was called"),
    "skip connection": (Skip, {}, ValueError, "behind 'b' get more than its output"),
    "not linear": (lambda: with_neuron(Clipped), {}, ValueError, "'0' .Clipped. is not linear in their input"),
    "restless": (lambda: with_neuron(Restless), {}, ValueError, "'0' fire without input"),
    "recurrent": (lambda: with_neuron(Recurrent), {}, ValueError, "the neurons '1' are recurrent"),
    "other convolution": (
        lambda: nn.Sequential(nn.Conv1d(6, 4, 1), Leaky(), nn.Flatten(), nn.Linear(4, 3)),
        {"X": data()[0][..., None]},
        ValueError,
        "'0' is a Conv1d. Only Linear and Conv2d",
    ),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), Leaky(), nn.Flatten(), nn.Linear(80, 3)),
        {"X": images(80)[0]},
        ValueError,
        "'0' has groups=2",
    ),
    "normalised late": (
        lambda: nn.Sequential(nn.Linear(6, 5), Leaky(), nn.BatchNorm1d(5), nn.Linear(5, 3)),
        {},
        ValueError,
        "'2' must stand between",
    ),
    "normalised without scale": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False), Leaky(), nn.Linear(5, 3)),
        {},
        ValueError,
        "affine=True",
    ),
    "own loop": (
        lambda: Looped("static"),
        {},
        ValueError,
        "one call runs 'a' 12 times, so the model has its own loop over time",
    ),
    "parametrised": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), Leaky(), nn.Linear(5, 3)),
        {},
        ValueError,
        "computed from others",
    ),
    "shape": (lambda: with_neuron(Leaky), {"X": data(features=7)[0]}, ValueError, "running it on X with forward='step' fails"),
    "two axes": (lambda: with_neuron(Leaky), {"X": data()[0][:, 0]}, ValueError, "X must have the shape .samples, time"),
    "NaN": (lambda: with_neuron(Leaky), {"X": NAN}, ValueError, "X must be finite"),
    "constant": (lambda: with_neuron(Leaky), {"X": torch.ones(80, STEPS, 6)}, ValueError, "X: all samples are the same"),
    "one sample": (lambda: with_neuron(Leaky), {"X": data()[0][:1], "y": data()[1][:1]}, ValueError, "two samples at least"),
    "lengths": (lambda: with_neuron(Leaky), {"y": data()[1][:7]}, ValueError, "X has 80 samples, y 7"),
    "one class": (
        lambda: with_neuron(Leaky),
        {"y": torch.zeros(80, dtype=torch.long)},
        ValueError,
        "all samples have the class 0",
    ),
    "negative labels": (lambda: with_neuron(Leaky), {"y": data()[1] - 1}, ValueError, "whole numbers from 0 on"),
    "text": (lambda: with_neuron(Leaky), {"y": ["a"] * 80}, TypeError, "y must hold numbers"),
    "NaN targets": (lambda: with_neuron(Leaky), {"y": torch.full((80, 3), math.nan)}, ValueError, "finite values"),
    "many classes": (
        lambda: with_neuron(Leaky),
        {"y": torch.arange(80) % 5},
        ValueError,
        "has 3 outputs, but y has labels up to 4",
    ),
    "many values": (lambda: with_neuron(Leaky), {"y": torch.rand(80, 2)}, ValueError, "has 3 outputs, but y has 2 values"),
    "class of values": (lambda: with_neuron(Leaky), {"y": torch.rand(80, 3), "steps": "classify"}, ValueError, "needs labels"),
    "forward": (lambda: with_neuron(Leaky), {"forward": "steps"}, ValueError, "forward must be one of .* Did you mean 'step'"),
    "readout": (lambda: with_neuron(Leaky), {"readout": "rigde"}, ValueError, "readout must be one of .* Did you mean 'ridge'"),
    "sampled readout": (
        lambda: with_neuron(Leaky),
        {"readout": "sample"},
        ValueError,
        "'sample' needs neurons behind the last",
    ),
    "repeat": (lambda: with_neuron(Leaky), {"repeat": 0}, ValueError, "repeat must be"),
    "silent input": (
        lambda: nn.Sequential(nn.Linear(6, 5), Leaky(), nn.Threshold(2.0, 0.0), nn.Linear(5, 4), Leaky(), nn.Linear(4, 3)),
        {},
        ValueError,
        "what reaches '3' is the same for all samples",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_and_change_nothing(mistake):
    build, changes, kind, message = MISTAKES[mistake]
    model = build()
    before = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else None
    if before is not None:
        model.train()
        held = {name: vars(module).copy() for name, module in model.named_modules()}
    options = X_of() | changes
    with pytest.raises(kind, match=message):
        sample_into(model, options.pop("X"), options.pop("y"), **options)
    if before is not None:
        assert model.training and same(before.values(), model.state_dict().values())
        assert all(vars(module).keys() == held[name].keys() for name, module in model.named_modules())


def test_a_failure_on_the_way_restores_weights_and_statistics(monkeypatch):
    X, y = images()
    front = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), Leaky(), nn.Flatten()
    model = nn.Sequential(*front, nn.Linear(80, 6), Leaky(), nn.Linear(6, 3))
    before = copy.deepcopy(model.state_dict())
    done = LayerSampler.fit

    def fail(self, *arguments):
        found = done(self, *arguments)
        if self._l == 2:
            assert not torch.equal(model[0].weight, before["0.weight"])
            raise RuntimeError("power cut")
        return found

    monkeypatch.setattr(LayerSampler, "fit", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        sample_into(model, X, y, random_state=0)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert model.training and not any(m._forward_hooks for m in model.modules())


def test_several_mistakes_come_at_once():
    X, y = data()
    with pytest.raises(ValueError, match="3 mistakes"):
        sample_into(nn.Flatten(), NAN, y, readout="none")


def test_layers_are_found_in_the_order_of_their_calls():
    X, _ = data()
    model = Looped("time")
    links = Foreign(model, X, "time-first").links
    assert [(link.name, link.neuron) for link in links] == [("a", model.first), ("b", model.second), ("c", None)]


def test_default_steps_are_valid():
    mistakes = Mistakes()
    resolved = LABELS.resolved(mistakes)
    mistakes.report()
    assert list(resolved.output_metrics) == ["class"] and isinstance(resolved.normalizer, Diverse)
    assert replace(resolved.normalizer) == Diverse(low=0.03, high=0.3, cost=1.0)
