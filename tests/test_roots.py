"""Outputs that read the roots of counts: they equal the literal formula, wherever a model goes."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Convolution, Counts, FixedLambda, SpikingNetwork
from sswim.adapters.neurobench import linear_lif
from sswim.data import ExactEvents
from sswim.export import to_nir
from sswim.export.plans import plan
from sswim.readout import TraceReadout
from sswim.readout.wide import WideSums
from sswim.sealed import read_sealed, write_sealed

DIGITS, LABELS = load_digits(return_X_y=True)
IMAGES = DIGITS.reshape(-1, 8, 8)
ROOTS = Counts(roots=True)
EIGHT, FOUR = (Convolution(8),), (Convolution(4, 3, pool=2),)


def fitted(hidden=EIGHT, **options):
    """Return a classifier of digits."""
    given = {"encoder": "image", "random_state": 0, "verbose": 0, "readout": ROOTS, **options}
    return Classifier(hidden, **given).fit(IMAGES[:600], LABELS[:600])


def literal(model, X):
    """Return decisions (samples, classes): weights times the root of each neuron's number of spikes, plus biases."""
    network, found = model.network_, []
    spikes = network.hidden_spikes(model.model_.samples(X).inputs(slice(None)))
    counts = torch.cat([a.sum(dim=1) for a in spikes]).double()  # (features, samples)
    for sample in counts.T:
        root = torch.tensor([float(n) ** 0.5 for n in sample], dtype=torch.float64)
        found.append(network.readout.weights.double() @ root + network.readout.biases.double())
    return torch.stack(found).detach().numpy()


@pytest.mark.parametrize("hidden", [(Convolution(8),), (30,), (Convolution(5), 20)])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_decisions_are_those_of_the_roots_of_counts(hidden, loss):
    model = fitted(hidden, readout=Counts(roots=True, loss=loss))
    X = IMAGES[600:640]
    assert np.allclose(model.decision_function(X), literal(model, X), atol=1e-4)
    plain = fitted(hidden, readout=Counts(roots=False, loss=loss))
    assert not np.allclose(plain.decision_function(X), literal(plain, X), atol=1e-2)
    assert model.score(IMAGES[600:], LABELS[600:]) > 0.8


def test_weights_are_those_of_a_ridge_on_roots():
    model = fitted(readout=Counts(roots=True, loss="squared_error", regularization=FixedLambda(0.3)), dtype="float64")
    network, X = model.network_, IMAGES[:600]
    spikes = network.hidden_spikes(model.model_.samples(X).inputs(slice(None)))
    f = torch.cat([a.sum(dim=1) for a in spikes]).T.sqrt()  # (samples, features)
    y = 2.0 * (2 * torch.eye(10).double()[torch.from_numpy(LABELS[:600])] - 1)
    centred = f - f.mean(dim=0)
    wanted = torch.linalg.solve(centred.T @ centred + 600 * 0.3 * torch.eye(f.shape[1]), centred.T @ y)
    assert torch.allclose(network.readout.weights.detach().T, wanted, atol=1e-9)


def test_a_network_reads_roots_at_the_windows_end():
    readout = TraceReadout(6, 2, 1, constants=(3.0, float("inf")), roots=True, dtype=torch.float64).requires_grad_(False)
    readout.weights.normal_(generator=torch.Generator().manual_seed(0))
    spikes = (torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(1)) > 0.5).double()
    for b in range(4):
        traces = [sum(float(spikes[n, t, b]) * np.exp(-(4 - t) / c) for t in range(5)) for n in range(3) for c in (3.0, np.inf)]
        wanted = readout.weights @ torch.tensor(traces).double().sqrt()
        assert torch.allclose(readout._read([spikes], None)[b, 0], wanted, atol=1e-6)


def test_roots_are_read_where_images_are_pooled_over_large_regions(tmp_path):
    def reads(X, y, hidden=FOUR, **options):
        return Classifier(hidden, random_state=0, verbose=0, **options).fit(X, y).network_.readout.roots

    few, labels = IMAGES[:100], LABELS[:100]
    large = few.repeat(3, axis=1).repeat(3, axis=2)
    assert reads(large, labels, encoder="image")
    assert not reads(large, labels, encoder="image", readout=Counts(roots=False))
    assert not reads(large, labels, encoder="image", profile="nir")
    assert not reads(large, labels, (20,), encoder="image")
    assert not reads(few, labels, (Convolution(4, 3, pool=4),), encoder="image")  # regions of 3 x 3 places
    assert reads(few, labels, (Convolution(4, 3, pool=4),), encoder="image", readout=ROOTS)
    assert not reads(large.reshape(100, 24, 24), labels, (20,), encoder=None)
    events = [(np.sort(np.flatnonzero(x) % 7).astype(float), np.flatnonzero(x)) for x in few]
    coded = ExactEvents(steps=7, inputs=64, exact=False)
    assert not reads(events, labels, encoder=coded, fields=(8, 8))


def test_files_keep_roots(tmp_path):
    model, X = fitted(), IMAGES[600:700]
    path = tmp_path / "model.sswim"
    model.save(path)
    again = Classifier.load(path)
    assert again.network_.readout.roots
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_files_of_earlier_versions_read_counts(tmp_path):
    model, path = fitted(readout=Counts(roots=False)), tmp_path / "model.sswim"
    model.save(path)
    file, changed = read_sealed(path, "sswim"), 0

    def without(value):
        nonlocal changed
        if isinstance(value, dict):
            changed += "roots" in value
            return {key: without(inner) for key, inner in value.items() if key != "roots"}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    write_sealed(path, "sswim", without({k: v for k, v in file.header.items() if k != "checksum"}), file.tensors)
    assert changed >= 2
    assert np.array_equal(Classifier.load(path).predict_proba(IMAGES[600:]), model.predict_proba(IMAGES[600:]))


def test_updates_add_roots():
    model = fitted()
    model.partial_fit(IMAGES[600:900], LABELS[600:900])
    X = IMAGES[900:940]
    assert np.allclose(model.decision_function(X), literal(model, X), atol=1e-4)


def test_a_frozen_network_reads_roots():
    model = fitted()
    found = plan(model, "window", None, None).module(torch.from_numpy(DIGITS[600:700].reshape(-1, 8, 8)))
    assert np.allclose(found.detach().numpy(), model.predict_proba(IMAGES[600:700]), atol=1e-5)


def test_roots_are_refused_where_they_have_no_form():
    for wrong in ("yes", 1, None):
        with pytest.raises(ValueError, match="roots must be True, False or 'auto', got"):
            Counts(roots=wrong)
    with pytest.raises(ValueError, match=r"root of a count of 0 has no slope: pass Counts\(roots=False\), or training=None"):
        fitted((10,), training="sample+gradient")
    with pytest.raises(ValueError, match=r"roots of traces, which have no such form; pass readout=Counts\(roots=False\)"):
        to_nir(fitted((10,), profile="nir"))
    network = SpikingNetwork(
        3, 2, window=5, horizon=1, hidden=(4,), kernel="exponential", refractory="exponential",
        readout=TraceReadout(4, 2, 1, constants=(3.0,), roots=True),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"roots of traces: fit with readout=Counts\(roots=False\)"):
        linear_lif(network)


def test_a_penalty_that_rounding_hides_becomes_larger():
    """More features than samples, and products in float32: the Gram matrix has eigenvalues just below 0."""
    generator = torch.Generator().manual_seed(0)
    f, labels = 100 + torch.randn(200, 50, generator=generator), torch.arange(50) % 3
    sums = WideSums(200, 3, 2.0)
    sums.add(f.clone(), labels, None)
    found = sums.solve(1e-16)[0]
    assert bool(torch.isfinite(found).all())
    sums.gram[:] = -torch.eye(200) * 1e30
    sums._factor = None
    with pytest.raises(ValueError, match="cannot be told apart, whatever the penalty"):
        sums.solve(1e-16)
