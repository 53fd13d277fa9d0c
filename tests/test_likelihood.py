"""The likeliest weights of a classifier's readout."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from sswim import Classifier, Counts, FixedLambda, LambdaSearch
from sswim.readout.likelihood import Descent, KeptFeatures, Softmax, fit_temperature, search_penalty
from sswim.regression import Sums

FEATURES, CLASSES = 6, 3


def problem(generator, samples=200, weighted=False, parts=(0, 70, 200)):
    """Counts of three classes that overlap, kept and summed up in two batches."""
    labels = torch.randint(0, CLASSES, (samples,), generator=generator)
    centres = 4 * torch.rand(CLASSES, FEATURES, generator=generator)
    counts = (centres[labels] + 2 * torch.randn(samples, FEATURES, generator=generator)).round().clamp_min(0)
    weights = torch.rand(samples, generator=generator).double() + 0.5 if weighted else None
    kept, sums = KeptFeatures(10**6), Sums(FEATURES, CLASSES)
    targets = torch.nn.functional.one_hot(labels, CLASSES).T.double()[:, None] * 2 - 1
    for first, last in zip(parts[:-1], parts[1:], strict=True):
        part = slice(first, last)
        w = None if weights is None else weights[part]
        kept.add(counts[part].T, labels[part], w)
        sums.update(counts[part].T.double()[:, None].clone(), targets[:, :, part], weights=w)
    return kept, sums, counts.double(), labels, weights


def zero(sums):
    return Softmax(torch.zeros(CLASSES, FEATURES).double(), torch.zeros(CLASSES).double(), sums.feature_mean)


def some(sums, generator):
    weights = torch.randn(CLASSES, FEATURES, generator=generator, dtype=torch.float64)
    return Softmax(weights, torch.randn(CLASSES, generator=generator, dtype=torch.float64), sums.feature_mean)


def literal_loss(weights, biases, mean, counts, labels, sample_weights):
    """Return the mean log loss, sample by sample."""
    losses = []
    for x, y in zip(counts, labels, strict=True):
        logits = weights @ (x - mean) + biases
        losses.append(torch.logsumexp(logits, 0) - logits[y])
    w = torch.ones(len(counts)).double() if sample_weights is None else sample_weights
    return (torch.stack(losses) * w).sum() / w.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_those_of_the_literal_loss(generator, weighted):
    kept, sums, counts, labels, weights = problem(generator, weighted=weighted)
    found = some(sums, generator)
    w, b = found.weights.clone().requires_grad_(), found.biases.clone().requires_grad_()
    loss = literal_loss(w, b, found.mean, counts, labels, weights)
    loss.backward()
    assert kept.loss(found) == pytest.approx(loss.item(), rel=1e-5)
    for ours, theirs in zip(kept.slope(found), (w.grad, b.grad), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lambda_", [1e-3, 0.1])
def test_it_settles_where_logistic_regression_does(generator, weighted, lambda_):
    kept, sums, counts, labels, weights = problem(generator, weighted=weighted)
    total = len(counts) if weights is None else float(weights.sum())
    literal = LogisticRegression(C=1 / (total * lambda_), tol=1e-10, max_iter=10_000).fit(counts, labels, weights)
    found = Descent(kept, sums, zero(sums)).settle(lambda_, tolerance=1e-7)
    np.testing.assert_allclose(found.weights, literal.coef_, atol=2e-3 * np.abs(literal.coef_).max())
    p = torch.softmax(kept.logits(found), dim=1)
    np.testing.assert_allclose(p, literal.predict_proba(counts), atol=2e-3)


@pytest.mark.parametrize("lambda_", [1e-6, 1e-2, 1.0, 100.0])
def test_a_step_never_goes_up(generator, lambda_):
    """The curvature is bounded by half of the regression's: a first step, which has no momentum, lowers the penalised loss."""
    kept, sums, *_ = problem(generator)
    for _ in range(10):
        start, centre = some(sums, generator), some(sums, generator)

        def total(found, centre=centre):
            return kept.loss(found) + lambda_ / 2 * float((found.weights - centre.weights).square().sum())

        descent = Descent(kept, sums, start, centre)
        descent.step(lambda_)
        assert total(descent.found) < total(start)


def test_a_large_penalty_stays_where_the_regression_is(generator):
    kept, sums, *_ = problem(generator)
    start = Softmax.from_regression(sums, *sums.solve(0.1))
    near, far = (Descent(kept, sums, start).settle(lambda_) for lambda_ in (1e6, 1e-4))
    torch.testing.assert_close(near.weights, start.weights, atol=1e-5, rtol=0)
    assert (far.weights - start.weights).abs().max() > 0.05


def test_a_search_takes_what_samples_held_out_like_best(generator):
    kept, sums, counts, labels, _ = problem(generator, samples=60, parts=(0, 20, 60))
    held_out = KeptFeatures(100)
    held_out.add(counts[:50].T + torch.randn(FEATURES, 50, generator=generator).round(), labels[:50])
    start = Softmax.from_regression(sums, *sums.solve(0.1))
    found, lambda_ = search_penalty(Descent(kept, sums, start), held_out, LambdaSearch())
    assert held_out.loss(found) <= held_out.loss(start)
    assert held_out.loss(found) < held_out.loss(Descent(kept, sums, start).settle(1e-8))
    assert 1e-8 <= lambda_ <= 5.0
    _, fixed = search_penalty(Descent(kept, sums, start), held_out, FixedLambda(0.3))
    assert fixed == 0.3


def test_what_is_kept_is_exact_and_bounded(generator):
    counts = torch.randint(0, 2049, (FEATURES, 50), generator=generator).float()
    labels = torch.randint(0, CLASSES, (50,), generator=generator)
    kept, other = KeptFeatures(30), KeptFeatures(5)
    for part in (slice(0, 20), slice(20, 50)):
        kept.add(counts[:, part], labels[part])
    other.add(counts[:, :9], labels[:9])
    assert (kept.samples, other.samples) == (30, 5)
    kept = kept.joined(other)
    identity = Softmax(torch.eye(FEATURES).double(), torch.zeros(FEATURES).double(), torch.zeros(FEATURES).double())
    assert torch.equal(kept.logits(identity), torch.cat([counts[:, :30], counts[:, :5]], dim=1).T.double())
    assert torch.equal(kept.labels, torch.cat([labels[:30], labels[:5]]))
    few = kept.joined(other, fade=0.5, limit=32)
    assert few.samples == 32 and torch.equal(few.labels, torch.cat([labels[8:30], labels[:5], labels[:5]]))
    assert float(few.weights[0] / few.weights[-1]) == 0.5


def test_the_mean_that_is_taken_off_changes_nothing(generator):
    kept, sums, *_ = problem(generator)
    found = some(sums, generator)
    same = found.about(torch.zeros(FEATURES).double())
    torch.testing.assert_close(kept.logits(same), kept.logits(found), atol=1e-4, rtol=1e-4)


def test_temperature(generator):
    logits = 3 * torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    assert fit_temperature(7 * logits, labels) == pytest.approx(7, rel=0.3)
    assert cross_entropy(logits, labels) < cross_entropy(logits / 3, labels)


def toy(samples=400):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, samples)
    return rng.random((samples, 12)) + 0.8 * np.eye(3)[y].repeat(4, axis=1) * rng.random((samples, 1)), y


def test_a_classifier_has_the_better_likelihood():
    X, y = toy()

    def log_loss(**options):
        model = Classifier((40,), random_state=0, verbose=0, **options).fit(X, y)
        return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean(), model

    likely, model = log_loss()
    squares, _ = log_loss(readout=Counts(loss="squared_error"))
    assert likely < squares
    assert model.report_.lambdas.unique().numel() == 1 and model.model_.report.solution.temperature == pytest.approx(1, rel=0.5)


def test_memory_bounds_what_is_kept(monkeypatch):
    X, y = toy(4000)
    kept = []
    monkeypatch.setattr("sswim.readout.counts.KeptFeatures", lambda limit: kept.append(KeptFeatures(limit)) or kept[-1])
    model = Classifier((200,), random_state=0, verbose=0, memory="1MB").fit(X, y)
    train, held_out = kept
    assert 2500 <= train.samples + held_out.samples <= 2502 and 300 < held_out.samples < 500  # 1 MB for traces of 400 bytes
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="loss must be one of 'log_loss', 'squared_error', got 'hinge'"):
        Counts(loss="hinge")
