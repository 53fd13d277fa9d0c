"""Deeper layers by what is left to explain, and receptive fields."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Counts
from sswim.data.labelled import digests
from sswim.options import Randomness
from sswim.sampling import STEPS
from sswim.steps import DotWeights, RandomWeights, ReceptiveFields, ResidualDepth
from sswim.steps.residual import _principal_directions, cross_fitted_residuals


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1200], y[:1200], X[1200:], y[1200:]


def classifier(hidden=(60, 40), *, random_state=0, fields="auto", encoder="auto", readout="direct", memory="1GB", **steps):
    """Return a small classifier; further options are those of the steps."""
    steps = STEPS["classify"].replace(**{"initial_batch": 400, **steps})
    options = {"fields": fields, "encoder": encoder, "readout": readout, "memory": memory, "steps": steps}
    return Classifier(hidden, random_state=random_state, verbose=0, **options)


def rare(samples, seed):
    """Channels tell four classes apart, but one of them falls into two by an interaction of two further bits."""
    rng = np.random.default_rng(seed)
    kind, bits = rng.integers(0, 4, samples), rng.integers(0, 2, (samples, 2))
    plain = 2 * np.eye(4)[kind].repeat(4, axis=1) + 0.3 * rng.standard_normal((samples, 16))
    X = np.hstack([plain, bits.repeat(2, axis=1) + 0.1 * rng.standard_normal((samples, 4))])
    return X, np.where(kind == 0, 4 + (bits[:, 0] ^ bits[:, 1]), kind)


def test_residuals_are_those_of_the_other_half(generator):
    x = torch.randn(61, 5, generator=generator, dtype=torch.float64)
    x[:, 3] = 2.0  # says nothing
    y = x[:, :2] @ torch.randn(2, 3, generator=generator, dtype=torch.float64)
    y += torch.randn(61, 3, generator=generator, dtype=torch.float64)
    left = cross_fitted_residuals(x, y)

    unit = x[:, [0, 1, 2, 4]] / x[:, [0, 1, 2, 4]].std(dim=0)
    even = torch.arange(61) % 2 == 0
    for other in (even, ~even):
        a, mean, level = unit[~other] - unit[~other].mean(dim=0), unit[~other].mean(dim=0), y[~other].mean(dim=0)
        tried = []
        for penalty in int((~other).sum()) * torch.logspace(-3, 1, 5, dtype=torch.float64):
            w = torch.linalg.solve(a.T @ a + penalty * torch.eye(4, dtype=a.dtype), a.T @ (y[~other] - level))
            tried.append(y[other] - level - (unit[other] - mean) @ w)
        torch.testing.assert_close(left[other], min(tried, key=lambda r: float(r.square().sum())), rtol=1e-8, atol=1e-10)
    nothing = cross_fitted_residuals(torch.ones(4, 2), y[:4])
    torch.testing.assert_close(nothing, y[:4] - y[:4].mean(dim=0))


@pytest.mark.parametrize("components", [2, 300], ids=["few components", "all"])
def test_the_direction_in_which_what_is_left_changes_around_a_sample(components, generator):
    """What is left is a bent line of the first count, and the second one is noise: neurons look along the first."""
    x = torch.randn(400, 5, generator=generator) * torch.tensor([3.0, 3.0, 0.1, 0.1, 0.1])
    left = torch.stack([x[:, 0].abs(), -0.2 * x[:, 0].abs()], dim=1).double()
    step, centres = ResidualDepth(shrinkage=0.1, share=0.2, components=components), torch.tensor([3, 3, *range(20, 48)])
    w = step.directions(x, left, centres, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.linalg.vector_norm(w, dim=1), torch.ones(30, dtype=torch.float64))
    steep = x[centres, 0].abs() > 2.5  # away from the bend
    assert steep.sum() > 5 and (w[steep, 0].abs() > 0.9).all() and len(w[steep, 0].sign().unique()) == 2, "both signs"
    torch.testing.assert_close(w[0].abs(), w[1].abs(), msg="the same surroundings, the same direction")

    # The literal twin of one neuron, over all senders.
    a, n = x.double(), int(centres[7])
    U = (a - a[n]).square().sum(dim=1).argsort()[:80]
    r, c = left[U] - left[U].mean(dim=0), a[U] - a[U].mean(dim=0)
    u = torch.linalg.svd(r).Vh[0]
    S = sum(torch.outer(row, row) for row in c) / 80
    literal = torch.linalg.solve(
        S + 0.1 * S.trace() / 5 * torch.eye(5), sum(row * (u @ t) for row, t in zip(c, r, strict=True))
    )
    tolerance = 1e-5 if components > 5 else 0.05  # two components hold nearly all that varies
    torch.testing.assert_close(w[7].abs(), (literal / literal.norm()).abs(), rtol=0, atol=tolerance)


def test_samples_are_drawn_by_what_is_left_of_them(generator):
    left = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    times = 4000
    first = torch.stack([ResidualDepth(power=2.0).draw(left, 1, generator) for _ in range(times)]).flatten()
    share = torch.bincount(first, minlength=3) / times
    torch.testing.assert_close(share, torch.tensor([0.0, 0.1, 0.9]), rtol=0, atol=0.03)
    many = ResidualDepth().draw(left, 7, generator)  # more neurons than samples
    assert torch.bincount(many, minlength=3).min() >= 2 and len(many) == 7
    assert sorted(ResidualDepth().draw(torch.zeros(5, 2), 5, generator).tolist()) == [0, 1, 2, 3, 4], "nothing is left"


def test_principal_directions(generator):
    x = torch.randn(300, 60, generator=generator) * torch.logspace(0, -3, 60)
    found = _principal_directions(x, 10, generator)
    torch.testing.assert_close(found.T @ found, torch.eye(10), rtol=0, atol=1e-5)
    exact = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False).Vh[:10]
    assert float(torch.linalg.svdvals(exact @ found).min()) > 0.999, "the same space"
    assert torch.equal(_principal_directions(x, 60, generator), torch.eye(60))


def test_depth_of_a_classifier(digits):
    X, y, Xt, yt = digits
    plain, residual = (classifier(depth=d).fit(X, y) for d in ("plain", "residual"))
    assert torch.equal(plain.network_.layers[0].weights, residual.network_.layers[0].weights), "the first layer is the same"
    assert not torch.equal(plain.network_.layers[1].weights, residual.network_.layers[1].weights)
    assert residual.report_.layers[1].output_metric == "residual" and plain.report_.layers[1].output_metric == "class"
    pairs = residual.report_.layers[1].pairs
    assert pairs.shape == (40, 2)
    assert min(plain.score(Xt, yt), residual.score(Xt, yt)) > 0.85
    # Random weights are left random, so that they can be compared with.
    random = [classifier(depth=d, weights="random").fit(X, y) for d in ("plain", "residual")]
    assert torch.equal(random[0].network_.layers[1].weights, random[1].network_.layers[1].weights)


def test_residual_depth_finds_what_few_samples_need():
    """The first layer explains most classes. What is left is an interaction that matters to a quarter of the samples."""
    (X, y), (Xt, yt) = rare(1000, 0), rare(2000, 1)
    X, Xt = X.clip(-1, 3), Xt.clip(-1, 3)
    gains = []
    for seed in range(4):
        model = classifier((30, 80), initial_batch=300, random_state=seed)
        plain, residual = (model.set_params(steps__depth=d).fit(X, y).score(Xt, yt) for d in ("plain", "residual"))
        gains.append(residual - plain)
    assert min(gains) > 0 and np.mean(gains) > 0.03


def test_what_a_deeper_layer_sees():
    """It is sampled from more samples than the first one, by what the first one's traces leave of their classes."""
    X, y = load_digits(return_X_y=True)
    seen = {}

    class Spy(ResidualDepth):
        def directions(self, counts, left, centres, generator):
            seen.update(counts=counts, left=left, centres=centres)
            return super().directions(counts, left, centres, generator)

    model = classifier(depth=Spy(samples=700), initial_batch=100, readout=Counts((2.0, 5.0))).fit(X[:1200], y[:1200])
    assert seen["counts"].shape == (700, 60) and seen["left"].shape == (700, 10) and seen["centres"].shape == (40,)
    assert torch.equal(seen["counts"], seen["counts"].round()) and seen["counts"].sum() > 0
    pairs = model.report_.layers[1].pairs
    assert torch.equal(pairs[:, 0], pairs[:, 1]) and len(pairs.unique()) == 40
    # The report tells the samples' numbers in the order that they were shuffled into.
    seed = int(np.random.SeedSequence(Randomness(0).seed).generate_state(1)[0])
    shuffled = torch.randperm(1200, generator=torch.Generator().manual_seed(seed))
    shuffled = shuffled[~(digests(torch.as_tensor(X[:1200])) < model.validation)[shuffled]]  # those for training
    spikes = model.network_.simulate(model.model_.samples(X[shuffled[pairs[:, 0]]]).inputs(slice(None))).spikes[0]
    assert torch.equal(spikes.sum(dim=1), seen["counts"][seen["centres"]])
    assert "l2, residual" in str(model.summary())
    small = classifier(depth=Spy(samples=700), initial_batch=100, readout=Counts((2.0, 5.0)), memory="1MB")
    small.fit(X[:1200], y[:1200])
    assert len(seen["counts"]) == 10**6 // (40 * 60 * 2), "as many as there is memory for"


def test_depth_by_name(digits):
    with pytest.raises(ValueError, match="depth: unknown name 'residue'. Did you mean 'residual'"):
        classifier(depth="residue").fit(*digits[:2])
    with pytest.raises(TypeError, match="depth must be one of the names 'plain', 'residual'.*got 3"):
        classifier(depth=3).fit(*digits[:2])


def test_fields_are_boxes(generator):
    step = ReceptiveFields((2, 9, 12), low=0.25, high=0.5)
    fields = step.fields(200, generator).view(200, 2, 9, 12)
    assert torch.equal(fields[:, 0], fields[:, 1]), "short axes are seen whole"
    for axis, least, most in ((1, 3, 5), (2, 3, 6)):
        line = fields[:, 0].amax(dim=3 - axis)  # (neurons, axis)
        sizes = line.sum(dim=1)
        assert sizes.min() >= least and sizes.max() <= most and len(sizes.unique()) == most - least + 1
        assert ((line.diff(dim=1) != 0).sum(dim=1) <= 2).all(), "in one piece"
        assert (line.sum(dim=0) > 0).all(), "everywhere"
    assert torch.equal(fields[:, 0], fields[:, 0].amax(dim=2, keepdim=True) * fields[:, 0].amax(dim=1, keepdim=True))


@pytest.mark.parametrize("chunk", [16, 48])
def test_weights_within_fields(chunk, generator):
    step = ReceptiveFields((6, 6))
    first, second = (torch.rand(48, 36, 10, generator=generator) for _ in range(2))
    w = torch.cat(
        [
            step.directions(a, b, g)
            for g in [torch.Generator().manual_seed(5)]
            for a, b in zip(first.split(chunk), second.split(chunk), strict=True)
        ]
    )
    whole = step.directions(first, second, torch.Generator().manual_seed(5))
    assert torch.equal(w, whole), "whatever number of neurons comes at once"
    torch.testing.assert_close(torch.linalg.vector_norm(w, dim=1), torch.ones(48, dtype=torch.float64))
    box = w[0].view(6, 6) != 0
    assert box.any(dim=1).sum() <= 3 and box.any(dim=0).sum() <= 3
    inside = (w[0] != 0).nonzero()[:, 0]
    alone = DotWeights().directions(first[:1, inside], second[:1, inside], torch.Generator())
    torch.testing.assert_close(w[0, inside].abs(), alone[0].abs(), rtol=1e-5, atol=1e-7)
    # Other senders than the channels have no fields.
    few, generators = first[:, :7], [torch.Generator().manual_seed(1) for _ in range(2)]
    assert torch.equal(step.directions(few, few * 2, generators[0]), DotWeights().directions(few, few * 2, generators[1]))


def test_fields_are_drawn_where_the_pair_shows_something(generator):
    first = torch.zeros(160, 100, 5)
    first[:, 11] = 1.0  # one pixel
    w = ReceptiveFields((10, 10), RandomWeights()).directions(first, first, generator)
    assert (w[:, 11] != 0).float().mean() > 0.5


def test_fields_of_a_classifier(digits, tmp_path):
    X, y, Xt, yt = digits
    images = X.reshape(-1, 8, 8)
    given, found, none = (
        classifier(hidden=(80,), fields=(8, 8)).fit(X, y),
        classifier(hidden=(80,), encoder="image").fit(images, y),
        classifier(hidden=(80,)).fit(X, y),
    )
    w = given.network_.layers[0].weights
    assert torch.equal(w, found.network_.layers[0].weights)
    assert (w == 0).float().mean() > 0.7 and (none.network_.layers[0].weights == 0).float().mean() < 0.2
    assert given.score(Xt, yt) > 0.85
    given.save(tmp_path / "m")
    np.testing.assert_array_equal(Classifier.load(tmp_path / "m").predict(Xt[:20]), given.predict(Xt[:20]))
    with pytest.raises(ValueError, match=r"fields: a layout of \(7, 8\) has 56 channels, but X has 64"):
        classifier(fields=(7, 8)).fit(X, y)
    with pytest.raises(ValueError, match="fields must be 'auto', None or a layout"):
        classifier(fields="yes").fit(X, y)
    camera = np.zeros(5, dtype=[("x", int), ("y", int), ("p", int), ("t", float)])
    camera["x"], camera["y"], camera["p"], camera["t"] = [0, 5, 2, 3, 1], [1, 0, 7, 2, 3], [0, 1, 0, 1, 0], [0, 3, 4, 5, 9]
    model = classifier(hidden=(20,)).fit([camera, camera[1:], camera[::2], camera[2:]] * 5, [0, 1, 0, 1] * 5)
    assert model.model_.inputs.layout == (2, 8, 6) and (model.network_.layers[0].weights == 0).float().mean() > 0.5
