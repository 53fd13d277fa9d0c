"""What classifiers take: tables, arrays of any kind, signals, events; and what they refuse with a reason."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from sswim import Classifier, Counts
from sswim.demo import run_classification
from sswim.export import to_onnx

X, y = load_digits(return_X_y=True)
NAMES = [f"pixel {k}" for k in range(64)]


def fitted(X=X[:200], y=y[:200], **options):
    return Classifier((15,), random_state=0, verbose=0, **options).fit(X, y)


def test_columns_are_those_of_the_fit(tmp_path):
    table = pd.DataFrame(X, columns=NAMES)
    model = fitted(table[:200])
    assert list(model.feature_names_in_) == NAMES
    model.save(tmp_path / "m.sswim")
    for one in (model, Classifier.load(tmp_path / "m.sswim")):
        np.testing.assert_array_equal(one.predict_proba(table[200:300]), fitted().predict_proba(X[200:300]))
        with pytest.raises(ValueError, match=r"but 'pixel 63' came where 'pixel 0' was. Pass X\[model.feature_names_in_\]"):
            one.predict(table[200:300][NAMES[::-1]])
        one.predict(X[200:300])
        one.predict(pd.DataFrame(X[200:300]))
    assert not hasattr(fitted(), "feature_names_in_")


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2", "longdouble"])
def test_numbers_of_any_kind_are_the_same(kind, tmp_path):
    model = fitted(X[:200].astype(kind), y[:200].astype(">i4"))
    model.save(tmp_path / "m.sswim")
    np.testing.assert_array_equal(
        Classifier.load(tmp_path / "m.sswim").predict(X[200:].astype(kind)), fitted().predict(X[200:])
    )


def test_values_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="X: some values are masked. Fill them first"):
        fitted(np.ma.masked_equal(X[:200], 0))
    with pytest.raises(ValueError, match="X: all values are the same, 1, but must differ"):
        fitted(np.ones((40, 30, 4)), y[:40])


def test_an_offset_of_signals_is_told():
    moving = np.sin(np.arange(20)[None, :, None] * (1 + y[:60, None, None]) * 0.3)
    with pytest.warns(UserWarning, match="X: channel 0 has a mean of 3. and a deviation of 0.7.*. Subtract the mean"):
        fitted(moving + 30, y[:60])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(moving, y[:60])
        fitted((np.random.default_rng(0).random((60, 20, 3)) < 0.95).astype(float), y[:60])  # spikes have no offset


@pytest.mark.parametrize("channel", [np.inf, 1e30, -1.0, 0.5])
def test_channels_that_are_none_are_refused(channel):
    with pytest.raises(ValueError, match="channels of sample 0 must be whole numbers >= 0. Polarities"):
        fitted([(np.array([1.0]), np.array([channel]))] * 8, np.arange(8) % 2)


def test_events_of_a_camera_are_no_pairs():
    rng = np.random.default_rng(0)
    pairs = [(np.sort(rng.uniform(0, 20, 30)), rng.integers(0, 24, 30)) for _ in range(20)]
    camera = np.zeros(5, dtype=[("t", float), ("x", int), ("y", int), ("p", int)])
    with pytest.raises(ValueError, match="events of a camera .* fitted to pairs"):
        fitted(pairs, np.arange(20) % 2).predict([camera])


@pytest.mark.parametrize("weights", [{0: 1, 1: -1}, {0: 0, 1: 0}, {0: 1, 1: np.nan}, {0: 1, 1: 1e300}])
def test_weights_of_classes_are_checked(weights):
    with pytest.raises(ValueError, match="class_weight: weights must lie between 0 and 1e\\+12, and one above 0"):
        fitted(X[:60], y[:60] % 2, class_weight=weights)


def test_all_that_is_known_may_be_forgotten():
    model = fitted(readout=Counts(loss="squared_error"))
    with pytest.raises(ValueError, match="forget must be a half-life of at least 1, got 1e-09"):
        model.partial_fit(X[200:300], y[200:300], forget=1e-9)
    model.partial_fit(X[200:1700], y[200:1700], forget=1)  # the first ones count 2 ** -1500 times, which is 0
    assert np.isfinite(model.predict_proba(X[1700:])).all()


@pytest.mark.parametrize("roots", [False, True])
def test_roots_go_out_as_onnx(roots, tmp_path):
    pytest.importorskip("onnxruntime")
    to_onnx(fitted(readout=Counts(roots=roots)), tmp_path / "m.onnx")


def test_few_samples_of_a_sorted_set_hold_several_classes(monkeypatch):
    order = np.argsort(y, kind="stable")
    source = type(
        "Sorted", (), {"ours": {}, "paper": {}, "suited": {}, "load": lambda self: (X[order], y[order], X[:50], y[:50])}
    )
    monkeypatch.setattr("sswim.demo.classified", lambda name: source())
    found = run_classification("sorted", samples=100, hidden=(10,), random_state=0, verbose=0)
    assert found["samples"] == 100 and found["accuracy"] > 0.3
