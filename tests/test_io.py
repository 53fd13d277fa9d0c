import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from sswim import Classifier, Counts, Direct, FixedLambda, Forecaster, Gradient, Scaling, Steps, Trajectory
from sswim.io import FORMAT_VERSION
from sswim.network import Morlet
from sswim.sampling import STEPS
from sswim.steps import Band, MeanStd, SupportSearch, TemporalGrid


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.standard_normal((200, 2)).cumsum(axis=0), columns=["a", "b"])
    settings = {
        "kernel": Morlet(decay=1.0),
        "steps": Steps(
            temporal=TemporalGrid(max_support=20), input_metric=("l2", Band(0.1, 0.4)), normalizer=MeanStd(0.4, 0.6)
        ),
        "readout": Trajectory(supports=SupportSearch(count=5), regularization=FixedLambda(0.1)),
    }
    return Forecaster.paper(12, 4, hidden=(20, 10), random_state=0, verbose=0, **settings).fit(x), x


def test_saved_and_loaded_forecasts_are_bit_equal(model, tmp_path):
    fitted, x = model
    fitted.save(tmp_path / "m.sswim")
    loaded = Forecaster.load(tmp_path / "m.sswim")
    pd.testing.assert_frame_equal(loaded.predict(x), fitted.predict(x), check_exact=True)
    np.testing.assert_array_equal(loaded.predict_windows(x), fitted.predict_windows(x))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.summary().to_dict() == fitted.summary().to_dict()
    assert str(loaded.summary()) == str(fitted.summary())
    assert torch.equal(loaded.report_.layers[1].pairs, fitted.report_.layers[1].pairs)
    assert list(loaded.feature_names_in_) == ["a", "b"]
    assert [p.name for p in tmp_path.iterdir()] == ["m.sswim"]  # no leftovers
    refit = loaded.fit(x)
    np.testing.assert_array_equal(refit.predict_windows(x), fitted.predict_windows(x))


@pytest.mark.parametrize(
    "options",
    [
        {"readout": Direct(skip=True, traces=(1.0, 4.0)), "scaling": Scaling("window", clip=False), "hidden": (10, 5)},
        {"readout": Direct(population=16, singles=3, common=False, blocks=3), "scaling": "standard"},
        {"channels": "joint", "readout": Direct(singles=0)},
        {"kernel": ("hat", "alpha"), "hidden": (10, 5), "covariates": ("b",), "dtype": "float64"},
        {"training": Gradient(epochs=1), "missing": "interpolate", "readout": "trajectory", "steps": "paper"},
    ],
)
def test_every_option_comes_back(tmp_path, model, options):
    x = model[1]
    fitted = Forecaster(**{"window": 12, "horizon": 4, "hidden": (10,), "random_state": 0, "verbose": 0} | options).fit(x)
    fitted.save(tmp_path / "m.sswim")
    loaded = Forecaster.load(tmp_path / "m.sswim")
    assert loaded.get_params() == fitted.get_params()
    pd.testing.assert_frame_equal(loaded.predict(x), fitted.predict(x), check_exact=True)
    np.testing.assert_array_equal(loaded.predict_windows(x), fitted.predict_windows(x))
    assert loaded.evaluate(x).to_dict() == fitted.evaluate(x).to_dict()
    assert str(loaded.summary()) == str(fitted.summary())
    assert (loaded.training_ is None) == ("training" not in options)
    if "training" in options:
        pd.testing.assert_frame_equal(loaded.training_.history, fitted.training_.history)
    loaded.save(tmp_path / "again.sswim")  # the same numbers once more
    assert (tmp_path / "again.sswim").read_bytes() == (tmp_path / "m.sswim").read_bytes()


def test_a_kernel_of_the_users_own_cannot_be_saved(tmp_path):
    x = np.random.default_rng(0).standard_normal((200, 1)).cumsum(axis=0)
    fitted = Forecaster(12, 4, hidden=(10,), kernel=lambda v: torch.exp(-(v**2)), verbose=0).fit(x)
    with pytest.raises(TypeError, match="save: kernel.* is an object of your own .* a model file holds no code"):
        fitted.save(tmp_path / "m.sswim")
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_the_users_own_is_left_out_with_a_warning(tmp_path):
    class Mine:
        def directions(self, first, second, generator):
            return torch.ones(first.shape[:2], dtype=torch.float64)

    x = np.random.default_rng(0).standard_normal((200, 2)).cumsum(axis=0)
    fitted = Forecaster(12, 4, hidden=(10,), steps=STEPS["forecast"].replace(weights=Mine()), verbose=0).fit(x)
    fitted.save(tmp_path / "m.sswim")
    with pytest.warns(UserWarning, match="load: steps.weights was an object of your own"):
        loaded = Forecaster.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(loaded.predict(x), fitted.predict(x))
    assert loaded.steps == STEPS["forecast"]  # the other steps are those that were saved


def test_saving_over_a_file_replaces_it_whole(model, tmp_path):
    path = tmp_path / "m.sswim"
    path.write_text("something else")
    model[0].save(path)
    Forecaster.load(path)
    with pytest.raises(FileNotFoundError, match="save: the folder .*nowhere does not exist"):
        model[0].save(tmp_path / "nowhere" / "m.sswim")


def rewritten(path, change):
    """Write the file again with a changed header."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["sswim"])
        tensors = {k: file.get_tensor(k) for k in file.keys()}
    change(header, tensors)
    save_file(tensors, path, metadata={"sswim": json.dumps(header)})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:1000]), "not a model file, or damaged"),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "not a model file, or damaged"),
        (lambda p: p.write_bytes(b""), "not a model file, or damaged"),
        (lambda p: p.write_bytes(b"PK\x03\x04 a zip file, perhaps a pickle"), "not a model file, or damaged"),
        (lambda p: save_file({"w": torch.zeros(2)}, p), "a safetensors file, but not written by sswim"),
        (lambda p: rewritten(p, lambda h, t: h.update(format_version=99)), "written in format 99 .* Upgrade sswim"),
        (lambda p: rewritten(p, lambda h, t: h.update(kind="Classifier")), "holds a Classifier, not a Forecaster"),
        (lambda p: rewritten(p, lambda h, t: t.pop("model.encoder.low")), "its parts do not fit together .*have changed since"),
        (lambda p: rewritten(p, lambda h, t: t["model.encoder.low"].add_(1e-9)), "its numbers have changed since"),
        (lambda p: rewritten(p, lambda h, t: t["model.network.layers.0.weights"].mul_(-1)), "its numbers have changed since"),
        (lambda p: rewritten(p, lambda h, t: h["model"]["fields"].pop("memory")), "its parts do not fit together"),
        (
            lambda p: rewritten(p, lambda h, t: h["model"]["fields"]["network"]["settings"].update(window=0)),
            "its parts do not fit together .*window must be a whole number >= 1, got 0",
        ),
        (
            lambda p: rewritten(p, lambda h, t: h["params"].update(kernel={"class": "os.system", "fields": {}})),
            "its parts do not fit together .*os.system",
        ),
        (lambda p: rewritten(p, lambda h, t: h["params"].update(skip=True)), "its parts do not fit together .*skip"),
    ],
)
def test_damaged_and_foreign_files_are_refused(model, tmp_path, damage, message):
    path = tmp_path / "m.sswim"
    model[0].save(path)
    damage(path)
    with pytest.raises(ValueError, match=message):
        Forecaster.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Forecaster.load(tmp_path / "none.sswim")


def test_files_of_an_older_format_are_refused(model, tmp_path):
    assert FORMAT_VERSION == 2
    path = tmp_path / "m.sswim"
    model[0].save(path)
    rewritten(path, lambda header, tensors: header.update(format_version=1, sswim_version="0.1.0"))
    with pytest.raises(ValueError, match=r"written in format 1 by sswim 0.1.0, .* reads format 2\. Fit the model anew\."):
        Forecaster.load(path)


def test_a_file_with_an_empty_header_is_damaged(tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "m.sswim", metadata={"sswim": "{}"})
    with pytest.raises(ValueError, match="damaged, its parts do not fit together"):
        Forecaster.load(tmp_path / "m.sswim")


def test_a_readout_with_a_step_of_the_users_own_is_saved_without_it(tmp_path):
    class Mine(FixedLambda):
        pass

    X, y = np.random.default_rng(0).random((60, 5)), np.arange(60) % 2
    fitted = Classifier((10,), readout=Counts(regularization=Mine(0.1), loss="squared_error"), random_state=0, verbose=0).fit(
        X, y
    )
    fitted.save(tmp_path / "m.sswim")
    with pytest.warns(UserWarning, match="regularization was an object of your own"):
        loaded = Classifier.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
