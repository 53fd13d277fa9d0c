"""What was fitted does not depend on parameters that are set afterwards: neither predictions nor what a file holds of it."""

import json
import warnings

import numpy as np
import pytest
from safetensors import safe_open

from sswim import Classifier, Forecaster, Gradient

# Of every type that some parameter has, valid or not: a fit checks them, not `set_params`.
VALUES = [
    None, True, 3, 0.25, -7, "hat", "paper", "log_loss", "squared_error", "window", "zero", "correlation", "horizon", "all",
    "search", "width", "exact", "fast", "float64", "interpolate", "1MB", (7, 5), ["a"], {"a": 1.0}, {("a",): 1}, {object(): 1},
    np.arange(3), np.array([None, object()]), np.float32(2.0), object(), print, Gradient(epochs=3),
]  # fmt: skip


def forecasters():
    x = np.random.default_rng(0).standard_normal((150, 2)).cumsum(axis=0)
    made = [
        Forecaster(12, 4, hidden=(6,), random_state=0, verbose=0),
        Forecaster.paper(12, 4, hidden=(6,), training=Gradient(epochs=1), random_state=0, verbose=0),
    ]
    return [(model.fit(x), lambda m: [m.predict(x), m.predict_windows(x)]) for model in made]


def classifiers():
    X, y = np.random.default_rng(0).random((40, 5)), np.array(["cat", "dog", "cow", "hen"])[np.arange(40) % 4]
    made = [Classifier((6,), random_state=0, verbose=0), Classifier.paper((6,), random_state=0, verbose=0)]
    return [(model.fit(X, y), lambda m: [m.predict_proba(X), m.predict(X)]) for model in made]


def fitted_part(path):
    """Return what a file holds of the fitted model: JSON and tensors."""
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name).tobytes() for name in file.keys() if name.startswith("model.")}
        return json.dumps(json.loads(file.metadata()["sswim"])["model"]), tensors


@pytest.mark.parametrize("make", [forecasters, classifiers])
def test_parameters_set_after_a_fit_change_nothing(make, tmp_path):
    for fitted, answer in make():
        before, params = answer(fitted), fitted.get_params(deep=True)
        fitted.save(tmp_path / "m.sswim")
        part = fitted_part(tmp_path / "m.sswim")
        for number, name in enumerate(params):
            accepted, top = 0, name.partition("__")[0]
            for value in (VALUES * 2)[number % len(VALUES) :][: len(VALUES)]:  # each parameter with others first
                try:
                    fitted.set_params(**{name: value})
                except (TypeError, ValueError):
                    assert "__" in name  # an option object checks itself
                    continue
                accepted += 1
                np.testing.assert_equal(answer(fitted), before)
                fitted.save(tmp_path / "m.sswim")
                assert fitted_part(tmp_path / "m.sswim") == part, (name, value)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of objects that a file does not hold
                    np.testing.assert_equal(answer(type(fitted).load(tmp_path / "m.sswim")), before)
                fitted.set_params(**{top: params[top]})
                if accepted == 2:
                    break
            assert accepted, name
