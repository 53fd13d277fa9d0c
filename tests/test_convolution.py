"""Convolutions: a layer equals a loop over places, filters come from pairs of patches, wide outputs equal narrow ones."""

import itertools
import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from sswim import Classifier, Convolution, Counts, FixedLambda, SpikingNetwork, Steps, sample
from sswim.classes import samples_seed, training_order
from sswim.data import ExactEvents
from sswim.export import to_nir, to_onnx
from sswim.network.convolution import ConvolutionLayer, constant_in_time, integrated
from sswim.network.grid import Grid, hidden_shapes, split_layout
from sswim.network.kernels import KERNELS, Exponential, kernel_taps, refractory_taps, toeplitz
from sswim.network.layer import SpikingLayer, fire
from sswim.readout import wide
from sswim.readout.wide import WideSums, solve_wide
from sswim.regression import Sums
from sswim.sampling import STEPS
from sswim.steps.patches import Patches, whitening

DIGITS, LABELS = load_digits(return_X_y=True)
IMAGES = DIGITS.reshape(-1, 8, 8)
TWENTY = (Convolution(20),)
# Layers over one and two axes, several maps, strides, edges and sizes of regions.
GRIDS = [
    (Convolution(3, 3, pool=2), (6, 5)),
    (Convolution(2, (3, 2), pool=(1, 2), stride=2), (7, 6)),
    (Convolution(4, 4, pool=3, padding=False), (11,)),
    (Convolution(2, 3, pool=2, overlap=1.0), (2, 6, 6)),
    (Convolution(2, 2, pool=2), (5, 6, 3)),
]


def random_layer(shape, layout, kernel="hat", refractory="exponential-cut", seed=0):
    """Return a convolution with random parameters, float64."""
    generator = torch.Generator().manual_seed(seed)
    (grid,) = hidden_shapes(int(np.prod(layout)), [shape], layout)
    q = Exponential() if refractory == "exponential" else SpikingNetwork(1, 1, window=2, horizon=1, hidden=(1,)).refractory
    layer = ConvolutionLayer(grid, KERNELS[kernel], q, dtype=torch.float64).requires_grad_(False)
    layer.weights.normal_(generator=generator)
    layer.biases.uniform_(-0.5, 0.9, generator=generator)
    layer.delays.uniform_(0, 2, generator=generator)
    layer.supports.uniform_(1, 4, generator=generator)
    return layer


def literal(layer, shape, layout, x):
    """Return pooled spikes (filters, regions, steps) of one sample x (channels, steps), place by place."""
    maps, space = split_layout(layout)
    image = x.numpy().reshape(*layout, -1)
    image = np.moveaxis(image, 2, 0) if len(layout) == 3 and space == tuple(layout[:2]) else image
    image = image.reshape(maps, *space, -1)
    size = layer.grid.size
    starts = [range(0, n if shape.padding else n - s + 1, shape.stride) for n, s in zip(space, size, strict=True)]
    steps, spikes = x.shape[1], {}
    taps = toeplitz(kernel_taps(layer.kernel, layer.delays, layer.supports, steps), steps)
    inhibition = refractory_taps(layer.refractory, layer.refractory_supports, steps)
    for place in itertools.product(*starts):
        patch = np.zeros((maps, *size, steps))
        for m, at in itertools.product(range(maps), itertools.product(*map(range, size))):
            where = [p + a - ((s - 1) // 2 if shape.padding else 0) for p, a, s in zip(place, at, size, strict=True)]
            if all(0 <= w < n for w, n in zip(where, space, strict=True)):
                patch[(m, *at)] = image[(m, *where)]
        drive = layer.weights @ torch.from_numpy(patch.reshape(-1, steps))  # (K, steps)
        v = (taps @ drive[:, :, None]) + layer.biases[:, None, None]
        spikes[place] = fire(v, layer.costs, inhibition)[:, :, 0]
    found = []
    for pool in layer.grid.pools:
        bounds = []
        for axis in starts:
            width = min(len(axis), max(1, round(shape.overlap * len(axis) / (pool - 1 + shape.overlap))))
            firsts = [round(i * (len(axis) - width) / max(pool - 1, 1)) for i in range(pool)]
            bounds.append([set(list(axis)[first : first + width]) for first in firsts])
        for region in itertools.product(*bounds):
            inside = [s for p, s in spikes.items() if all(q in r for q, r in zip(p, region, strict=True))]
            found.append(torch.stack(inside).sum(dim=0))
    return torch.stack(found, dim=1)


@pytest.mark.parametrize(("shape", "layout"), GRIDS)
@pytest.mark.parametrize("kernel", ["hat", "exponential"])
def test_layer_equals_a_loop_over_places(shape, layout, kernel):
    layer = random_layer(shape, layout, kernel)
    x = torch.randn(int(np.prod(layout)), 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = layer.fire(layer.potentials(x, layer.filters(7, 7)))
    assert found.sum() > 0
    assert len(found) == layer.outputs
    for number in range(3):
        wanted = literal(layer, shape, layout, x[:, :, number]).flatten(0, 1)
        assert torch.equal(found[:, :, number], wanted)


@pytest.mark.parametrize(("shape", "layout"), GRIDS)
def test_every_place_lies_in_a_region_and_every_channel_in_a_patch(shape, layout):
    (grid,) = hidden_shapes(int(np.prod(layout)), [shape], layout)
    assert bool((grid.regions_of_places().sum(dim=0) >= 1).all())
    assert grid.regions_of_places().shape == (grid.regions, grid.places)
    assert grid.patches().shape == (grid.senders, grid.places)
    if shape.stride == 1:
        assert set(range(grid.channels)) <= set(grid.patches().flatten().tolist())


def test_neurons_without_a_leak_count_in_closed_form():
    generator = torch.Generator().manual_seed(0)
    u = torch.cat([torch.linspace(-1, 3, 801), torch.rand(400, generator=generator) * 2]).double()[None].repeat(6, 1)
    b = torch.tensor([-9.3, -2.0, -0.5, 0.0, 0.5, 0.99], dtype=torch.float64)
    for steps in (1, 2, 8, 15):
        v = b[:, None, None] + u[:, None] * torch.arange(1, steps + 1, dtype=torch.float64)[:, None]
        near = ((v - v.round()).abs() < 1e-9).any(dim=1)  # there rounding decides
        wanted = fire(v, -torch.ones(6).double(), torch.ones(6, max(steps - 1, 0), dtype=torch.float64)).sum(dim=1)
        found = integrated(u.clone(), b, steps)
        assert torch.equal(found[~near], wanted[~near])
        assert (~near).sum() > 1000
        assert found.max() == steps


def test_constant_input_needs_no_simulation():
    layer = random_layer(Convolution(5, 3, pool=2), (6, 6), "exponential", "exponential")
    x = torch.rand(36, 1, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64).expand(-1, 8, -1)
    filters = layer.filters(8, 8)
    assert constant_in_time(x)
    assert not constant_in_time(x.contiguous())
    assert torch.allclose(layer.potentials(x, filters), layer.potentials(x.contiguous(), filters), rtol=1e-12, atol=1e-12)
    assert layer.counts(x, filters) is None  # there is a leak
    for name, value in (("supports", 1e30), ("refractory_supports", 1e30), ("costs", -1.0), ("delays", 0.0)):
        getattr(layer, name).fill_(value)
    counts, spikes = layer.counts(x, layer.filters(8, 8)), layer.fire(layer.potentials(x, layer.filters(8, 8)))
    assert counts is not None
    assert torch.equal(counts, spikes.sum(dim=1))
    assert torch.equal(layer.spikes(x, layer.filters(8, 8)), spikes)
    assert counts.max() > 3
    layer.biases[0] = 1.0
    assert layer.counts(x, filters) is None


def test_whitened_patches_vary_alike():
    a = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = a @ a.T
    z = whitening(covariance, 1e-12)
    assert torch.allclose(z @ covariance @ z, torch.eye(5).double() * covariance.diagonal().mean(), atol=1e-6)
    assert torch.equal(whitening(covariance, float("inf")), torch.eye(5).double())
    assert torch.equal(whitening(torch.zeros(3, 3).double(), 0.1), torch.eye(3).double())


def fitted(hidden=TWENTY, **options):
    """Return a classifier of digits."""
    given = {"encoder": "image", "random_state": 0, "verbose": 0, **options}
    return Classifier(hidden, **given).fit(IMAGES[:600], LABELS[:600])


def test_filters_separate_whitened_patches():
    """With `dist` weights a filter is Z Z (p - q), of two patches of samples with different classes: its report names them."""
    steps = STEPS["classify"].replace(weights="dist", patches=Patches(count=10**6, compared=300))
    model = fitted(steps=steps, dtype="float64")
    layer, report = model.network_.layers[0].requires_grad_(False), model.report_.layers[0]
    order, kept = training_order(torch.from_numpy(DIGITS[:600]), torch.from_numpy(LABELS[:600]), 1 / 6, samples_seed(0))
    x = torch.from_numpy(DIGITS[:600])[order[:kept]].float().double().T / 16
    flat = layer.patches(x[:, None])[:, 0]  # (senders, P, B)
    z = whitening(torch.cov(flat.flatten(1)), 0.1)
    classes = LABELS[:600][order]
    for filter_, (first, second) in zip(layer.weights, report.pairs.tolist(), strict=True):
        assert classes[first] != classes[second]
        differences = (flat[:, :, first, None] - flat[:, None, :, second]).flatten(1)  # of all pairs of places
        candidates = torch.nn.functional.normalize(z @ z @ differences, dim=0)
        assert (candidates.T @ torch.nn.functional.normalize(filter_, dim=0)).abs().max() > 0.999999


def test_pairs_can_lie_at_the_same_place():
    one = fitted(steps=STEPS["classify"].replace(patches=Patches(same_place=True)))
    other = fitted()
    assert not torch.equal(one.network_.layers[0].weights, other.network_.layers[0].weights)
    assert one.score(IMAGES[600:900], LABELS[600:900]) > 0.85


def test_same_seed_same_network_and_neighbouring_options_change_it():
    one, two = fitted(), fitted()
    assert torch.equal(one.network_.layers[0].weights, two.network_.layers[0].weights)
    assert np.array_equal(one.decision_function(IMAGES[600:650]), two.decision_function(IMAGES[600:650]))
    for steps in (Steps(patches="plain"), STEPS["classify"].replace(weights="random")):
        assert not torch.equal(one.network_.layers[0].weights, fitted(steps=steps).network_.layers[0].weights)


def test_sampled_filters_are_ahead_of_random_ones_on_digits():
    found = {"dot": [], "random": []}
    for weights, seed in itertools.product(found, range(3)):
        model = fitted((Convolution(30),), steps=STEPS["classify"].replace(weights=weights), random_state=seed)
        found[weights].append(model.score(IMAGES[600:], LABELS[600:]))
    assert np.mean(found["dot"]) > np.mean(found["random"])


def test_images_get_a_convolution_and_currents():
    model = Classifier(encoder="image", random_state=0, verbose=0).fit(IMAGES[:1200], LABELS[:1200])
    assert isinstance(model.network_.layers[0], ConvolutionLayer)
    assert model.score(IMAGES[1200:], LABELS[1200:]) > 0.96
    flat = Classifier(fields=(8, 8), random_state=0, verbose=0).fit(DIGITS[:1200], LABELS[:1200])
    assert np.array_equal(flat.predict(DIGITS[1200:]), model.predict(IMAGES[1200:]))
    dense = Classifier(random_state=0, verbose=0).fit(DIGITS[:300], LABELS[:300])
    assert type(dense.network_.layers[0]) is SpikingLayer
    assert dense.network_.hidden == (1000,)


@pytest.mark.parametrize("hidden", [(Convolution(10), 20), (Convolution(8, pool=3), Convolution(10, 2, pool=1))])
def test_deeper_layers_files_costs_and_updates(hidden, tmp_path):
    model = fitted(hidden)
    assert model.score(IMAGES[600:900], LABELS[600:900]) > 0.8
    model.save(tmp_path / "digits.sswim", updatable=True)
    again = Classifier.load(tmp_path / "digits.sswim")
    assert np.array_equal(again.decision_function(IMAGES[:99]), model.decision_function(IMAGES[:99]))
    assert again.network_.convolutions == model.network_.convolutions
    updated = again.partial_fit(IMAGES[600:900], LABELS[600:900]).predict(IMAGES[900:])
    assert (updated == LABELS[900:]).mean() > 0.85
    shown = model.simulate(IMAGES[:3]).spikes
    assert [s.shape for s in shown] == [(3, 8, n) for n in model.network_.hidden]
    with pytest.raises(ValueError, match="has no membrane potential|have no membrane potential"):
        model.simulate(IMAGES[:3], potentials=True)


def test_costs_are_those_of_a_count_by_hand():
    model = fitted((Convolution(4, 3, pool=2),))
    X, layer = IMAGES[:5], model.network_.layers[0]
    first = model.costs(X).layers[0]
    x = torch.from_numpy(X.reshape(5, -1) / 16)
    spikes = arrived = 0
    for image in x:
        patches = layer.patches(image[:, None, None].float())[:, 0, :, 0]  # (9, 64)
        arrived += 8 * 4 * int((patches != 0).sum())
        spikes += float(integrated((layer.weights @ patches).detach(), layer.biases.detach(), 8).sum())
    assert first.neurons == 4 * 64
    assert first.spikes == pytest.approx(spikes / 5)
    assert first.multiply_accumulates == arrived / 5
    assert first.updates == 4 * 64 * 8


def test_events_of_a_camera_and_empty_recordings():
    rng = np.random.default_rng(0)
    kinds = np.dtype([("x", "i2"), ("y", "i2"), ("p", "i2"), ("t", "f8")])

    def recording(label):
        events = np.zeros(60, dtype=kinds)
        events["x"], events["y"] = rng.integers(0, 4, 60) + 5 * label, rng.integers(0, 9, 60)
        events["p"], events["t"] = rng.integers(0, 2, 60), rng.uniform(0, 10, 60)
        return events

    labels = np.arange(60) % 2
    X = [recording(label) for label in labels]
    X[0] = X[0][:0]
    model = Classifier([Convolution(12, 3, pool=2)], random_state=0, verbose=0).fit(X, labels)
    assert model.score(X[1:], labels[1:]) > 0.9
    assert model.predict([X[0]]).shape == (1,)
    assert model.network_.layers[0].grid.maps == 2
    exact = Classifier([Convolution(12, 3, pool=2)], encoder=ExactEvents(), verbose=0)
    with pytest.raises(ValueError, match=re.escape("needs events on whole steps: pass encoder=ExactEvents(exact=False")):
        exact.fit(X, labels)


def test_signals_in_time_are_convolved_over_channels():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    X = rng.random((80, 12, 20)) * 0.2
    for signal, label, place in zip(X, labels, rng.integers(0, 14, 80), strict=True):
        signal[3:9, place : place + 6] += [1, 1, 1, 0, 0, 0] if label else [0, 0, 1, 1, 0, 1]
    model = Classifier([Convolution(30, 7, pool=1)], random_state=0, verbose=0).fit(X[:60], labels[:60])
    assert model.network_.layers[0].grid.space == (20,)
    assert model.score(X[60:], labels[60:]) >= 0.9


ERRORS = [
    ({"hidden": (Convolution(5, 9),)}, IMAGES, "hidden: Convolution(size=9) does not fit channels laid out as (8, 8)."),
    ({"hidden": (Convolution(5, 3, pool=9),)}, IMAGES, "asks for 9 regions along an axis of 8 places. Use fewer regions."),
    (
        {"hidden": (10, Convolution(5)), "encoder": "image"},
        IMAGES,
        "hidden: layer 2 is a Convolution but follows a dense layer",
    ),
    ({"hidden": (Convolution(5, pool=(1, 2)), Convolution(5))}, IMAGES, "or one with regions of several sizes"),
    ({"hidden": (Convolution(5, (3, 3, 3)),)}, IMAGES, "Give one size, or one along each axis"),
    (
        {"hidden": (Convolution(5),)},
        np.zeros((9, 3, 3, 3)) + np.arange(9).reshape(9, 1, 1, 1),
        "a short first or last axis of maps",
    ),
    ({"hidden": (Convolution(5),), "training": "sample+gradient"}, IMAGES, "training: a Convolution is sampled, not trained"),
    ({"hidden": (Convolution(5),), "fields": (7, 9)}, DIGITS, "fields: a layout of (7, 9) has 63 channels"),
    ({"hidden": (Convolution(5, 3),)}, IMAGES[:, :2, :1], "does not fit channels laid out as (2, 1)"),
    ({"hidden": (3.5,)}, IMAGES, "hidden"),
]


@pytest.mark.parametrize(("options", "X", "text"), ERRORS)
def test_what_does_not_fit_is_refused(options, X, text):
    options = {"encoder": "image", **options}
    with pytest.raises((TypeError, ValueError), match=re.escape(text)):
        Classifier(**options, verbose=0).fit(X, np.arange(len(X)) % 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"filters": 0}, "filters must be"),
        ({"filters": 5, "size": 0}, "size must be"),
        ({"filters": 5, "pool": ()}, "pool must be a number of regions"),
        ({"filters": 5, "stride": 0}, "stride must be"),
        ({"filters": 5, "overlap": 0.5}, "overlap must be at least 1"),
    ],
)
def test_a_convolution_checks_itself(given, text):
    with pytest.raises((TypeError, ValueError), match=text):
        Convolution(**given)


def test_exports_refuse_what_filters_cannot_do(tmp_path):
    model = fitted((Convolution(5),))
    with pytest.raises(ValueError, match=r"(?s)biases must be 0.*profile='nir'"):
        to_nir(model)
    with pytest.raises(ValueError, match="this network has a Convolution. Use form='window'"):
        to_onnx(model, tmp_path / "model.onnx", form="step")
    assert not list(tmp_path.iterdir())


def features(samples=300, width=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (samples,), generator=generator)
    f = torch.poisson(torch.rand(width, samples, generator=generator) * 5 + labels * (torch.arange(width) % 3 == 0)[:, None])
    return f.double(), labels


@pytest.mark.parametrize("weighted", [False, True])
def test_wide_sums_are_those_of_a_ridge(weighted, monkeypatch):
    monkeypatch.setattr(wide, "BLOCK", 16)  # so that there are several blocks
    f, labels = features()
    counts = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)).double() + 0.5 if weighted else None
    one, two = WideSums(40, 3, 2.0), Sums(40, 3)
    for part in (slice(0, 100), slice(100, 300)):
        some = None if counts is None else counts[part]
        one.add(f[:, part].clone(), labels[part], some)
        two.update(f[:, part].clone()[:, None], one.targets(labels[part])[:, None], weights=some)
    w, b = one.solve(0.05)
    wanted = two.solve(0.05)
    assert torch.allclose(w, wanted[0], atol=1e-10)
    assert torch.allclose(b, wanted[1], atol=1e-10)
    slope = torch.randn(3, 40, generator=torch.Generator().manual_seed(3)).double()
    assert torch.allclose(one.newton(slope, 0.02), two.newton(slope, 0.02), atol=1e-9)
    weights = None if counts is None else counts.numpy()
    total = len(labels) if counts is None else float(counts.sum())
    ridge = Ridge(alpha=total * 0.05).fit(f.T.numpy(), one.targets(labels).T.numpy(), sample_weight=weights)
    assert np.allclose(w.T.numpy(), ridge.coef_, atol=1e-8)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_a_wide_output_is_as_good_as_a_narrow_one(loss, monkeypatch):
    narrow = fitted((Convolution(20),), readout=Counts(loss=loss))
    monkeypatch.setattr("sswim.readout.counts.WIDE", 10)
    called = []
    monkeypatch.setattr("sswim.readout.counts.solve_wide", lambda *given: called.append(1) or solve_wide(*given))
    found = fitted((Convolution(20),), readout=Counts(loss=loss))
    assert called
    X, y = IMAGES[600:], LABELS[600:]
    assert abs(found.score(X, y) - narrow.score(X, y)) < 0.01
    agree = (found.predict(X) == narrow.predict(X)).mean()
    assert agree > 0.975
    lost = [-np.log(m.predict_proba(X)[np.arange(len(y)), y].clip(1e-12)).mean() for m in (found, narrow)]
    assert lost[0] < 1.15 * lost[1]


def test_a_wide_output_with_a_fixed_penalty_is_a_ridge_of_all_samples(monkeypatch):
    readout = Counts(loss="squared_error", regularization=FixedLambda(0.3))
    narrow = fitted((Convolution(10),), readout=readout, dtype="float64")
    monkeypatch.setattr("sswim.readout.counts.WIDE", 10)
    found = fitted((Convolution(10),), readout=readout, dtype="float64")
    assert np.allclose(found.decision_function(IMAGES[600:]), narrow.decision_function(IMAGES[600:]), atol=1e-7)


def test_a_bare_network_is_sampled_and_runs():
    x = torch.rand(200, 6, 24, generator=torch.Generator().manual_seed(0))
    y = torch.stack([x[:, :, :12].mean(dim=(1, 2)), x[:, :, 12:].mean(dim=(1, 2))], dim=1)[:, None]
    network = SpikingNetwork(24, 2, window=6, horizon=1, hidden=(Convolution(15, 3, pool=2), 10), layout=(4, 6))
    report = sample(network, x, y, random_state=0, steps="classify")
    assert network(x).shape == (200, 1, 2)
    assert not network(x).requires_grad
    assert network.layers[0](x).shape == (200, 6, 15 * 4)
    assert len(report.layers[0].rates) == 15
    assert len(report.layers[1].rates) == 10
    with pytest.raises(ValueError, match="layout"):
        SpikingNetwork(24, 2, window=6, horizon=1, hidden=(Convolution(5),), layout=(5, 5))
    with pytest.raises(ValueError, match=re.escape("x must have shape (batch, time, channels=24)")):
        network.layers[0](x[:, :, :5])


def test_layouts():
    assert split_layout((5,)) == (1, (5,))
    assert split_layout((3, 8, 9)) == (3, (8, 9))
    assert split_layout((8, 9, 3)) == (3, (8, 9))
    assert split_layout((6, 1, 9)) == (6, (9,)) and split_layout((9, 1, 6)) == (9, (6,)) and split_layout((1, 9)) == (1, (1, 9))
    with pytest.raises(ValueError, match="maps"):
        split_layout((9, 3, 9))
    assert isinstance(hidden_shapes(64, [Convolution(3)], (8, 8))[0], Grid)


def test_a_chip_with_convolutions_gets_filters_of_few_bits():
    model = fitted((Convolution(10),), profile="speck")
    w = model.network_.layers[0].weights.detach().double()
    units = w / (w.abs().amax(dim=1, keepdim=True) / 127)
    assert torch.allclose(units, units.round(), atol=1e-3)
    assert bool((model.network_.layers[0].biases == 0).all())
    assert model.score(IMAGES[600:900], LABELS[600:900]) > 0.8
    with pytest.raises(ValueError, match=r"2,000 neurons in a layer, or filters, 976 more than the 1,024 there are"):
        fitted((Convolution(2000),), profile="speck", memory="100GB")


def test_batches_that_wait_for_each_other_give_the_same_sums(monkeypatch):
    model = fitted(readout=Counts(loss="squared_error", regularization=FixedLambda(0.3)), class_weight="balanced")
    monkeypatch.setattr("sswim.readout.counts.MANY", 10)
    monkeypatch.setattr("sswim.readout.counts.TOGETHER", 170)
    monkeypatch.setattr(SpikingNetwork, "batch_size", lambda self, memory: 50)
    other = fitted(readout=Counts(loss="squared_error", regularization=FixedLambda(0.3)), class_weight="balanced")
    assert np.allclose(model.decision_function(IMAGES[600:]), other.decision_function(IMAGES[600:]), atol=1e-4)
