import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import sswim.schema
from sswim import Classifier, Counts, Direct, FixedLambda, Forecaster, Gradient, Scaling, Steps, Trajectory
from sswim.io import FORMAT_VERSION
from sswim.network import Morlet
from sswim.sampling import STEPS
from sswim.sealed import seal
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
    with pytest.raises(TypeError, match="save: .*kernels.* is an object of your own .* a model file holds no code"):
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


def rewritten(path, change, sealed=True):
    """Write the file again with a changed header and changed tensors, and with a checksum that is right or the old one."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["sswim"])
        tensors = {k: file.get_tensor(k) for k in file.keys()}
    change(header, tensors)
    save_file(tensors, path, metadata={"sswim": json.dumps(seal(header, tensors) if sealed else header)})


def inside(header, *keys):
    """Return a part of the header, by the names of fields."""
    found = header["model"]
    for key in keys:
        found = found["settings" if key == "settings" else "fields"]
        found = found if key == "settings" else found[key]
    return found


CUT = "not a model file, or damaged .*cut off"
CHANGED = "damaged, it has changed since it was written"
UNFIT = "damaged, its parts do not fit together"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:1000]), CUT),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "not a model file, or damaged"),
        (lambda p: p.write_bytes(b""), CUT),
        (lambda p: p.write_bytes(b"PK\x03\x04 a zip file, perhaps a pickle"), CUT),
        (lambda p: save_file({"w": torch.zeros(2)}, p), "a safetensors file, but of something else"),
        (lambda p: p.write_bytes((1 << 62).to_bytes(8, "little") + p.read_bytes()[8:]), CUT),
        (lambda p: p.write_bytes(b"\x02" + bytes(7) + b"[]"), "it holds something else"),
        (lambda p: save_file({"w": torch.zeros(2)}, p, metadata={"sswim": "[" * 100_000}), "nested too deeply"),
        (lambda p: save_file({"w": torch.zeros(2)}, p, metadata={"sswim": '{"a": 1, "a": 2}'}), "names the same thing twice"),
        (lambda p: save_file({"w": torch.zeros(2, dtype=torch.complex64)}, p), "tensor 'w' has the type 'C64'"),
    ],
)
def test_foreign_and_cut_files_are_refused(model, tmp_path, damage, message):
    path = tmp_path / "m.sswim"
    model[0].save(path)
    damage(path)
    with pytest.raises(ValueError, match=f"m.sswim: .*{message}"):
        Forecaster.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, t: t.pop("model.encoder.low"),
        lambda h, t: t["model.encoder.low"].add_(1e-9),
        lambda h, t: t["model.network.layers.0.weights"].mul_(-1),
        lambda h, t: t.update({"model.encoder.low": t["model.encoder.high"], "model.encoder.high": t["model.encoder.low"]}),
        lambda h, t: t.update({"model.encoder.low": t["model.encoder.low"].view(torch.int64)}),
        lambda h, t: t.update({"model.encoder.outliers": t["model.encoder.outliers"].T.contiguous()}),
        lambda h, t: h["params"].update(verbose=1),
        lambda h, t: inside(h, "encoder", "scaling")["fields"].update(clip=True),
        lambda h, t: h.pop("checksum"),
        lambda h, t: h.update(kind="Classifier"),
        lambda h, t: h.clear(),
    ],
)
def test_whatever_changes_in_a_file_is_noticed(model, tmp_path, change):
    path = tmp_path / "m.sswim"
    model[0].save(path)
    rewritten(path, change, sealed=False)
    with pytest.raises(ValueError, match=f"m.sswim: {CHANGED}"):
        Forecaster.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(format_version=99), "written in format 99 .* Upgrade sswim"),
        (lambda h, t: h.update(kind="Classifier"), "holds a Classifier, not a Forecaster. Use Classifier.load"),
        (lambda h, t: h.clear(), f"{UNFIT} .*lacks format_version, sswim_version, kind, model, params"),
        (lambda h, t: inside(h)["fields"].pop("memory"), f"{UNFIT} .model lacks memory"),
        (lambda h, t: inside(h)["fields"].update(more=1), f"{UNFIT} .model has an unknown 'more'"),
        (lambda h, t: inside(h, "network", "settings")["fields"].update(window=0), "window must be a whole number >= 1, got 0"),
        (lambda h, t: inside(h, "network", "settings")["fields"].update(window="12"), "window must be int, got '12'"),
        (
            lambda h, t: inside(h, "network", "settings")["fields"].update(window=10**6, start=10**6),
            "30 neurons on 1000004 steps take 1.2e.05 GB",
        ),
        (lambda h, t: inside(h)["fields"].update(network=3), "model.network must be SpikingNetwork, got 3"),
        (lambda h, t: inside(h)["fields"].update(network={"unsaved": "x"}), "which stands for nothing"),
        (lambda h, t: h["params"].update(kernel={"class": "os.system", "fields": {}}), "unknown class 'os.system'"),
        (lambda h, t: h["params"].update(kernel={"class": ["Hat"], "fields": {}}), r"unknown class \['Hat'\]"),
        (lambda h, t: h["params"].update(skip=True), "params has an unknown 'skip'"),
        (lambda h, t: h["params"].update(device="cuda"), "params has an unknown 'device'"),
        (lambda h, t: h["params"].pop("window"), "params lacks window"),
        (lambda h, t: h["params"].update(kernel=eval("[" * 60 + "]" * 60)), "nested deeper than 40 levels"),
        (lambda h, t: h.update(model={"class": "Hat", "fields": {}}), "the model must be a ForecastModel"),
        (lambda h, t: t.update(more=torch.zeros(1)), "nothing uses the tensor 'more'"),
        (lambda h, t: inside(h, "encoder")["fields"].update(low={"array": "model.encoder.high"}), "is missing, or used twice"),
        (lambda h, t: inside(h, "encoder")["fields"].update(covariates={"tuple": [7]}), "covariates must be some of 2 columns"),
        (lambda h, t: t["model.encoder.low"].fill_(float("nan")), "encoder.low must be finite"),
        (lambda h, t: t["model.encoder.span"].zero_(), "span must be > 0"),
        (lambda h, t: t["model.network.layers.0.biases"].fill_(float("inf")), "network.layers.0.biases must be finite"),
        (lambda h, t: t["model.network.layers.0.supports"].zero_(), "network.layers.0.supports must be > 0"),
        (lambda h, t: t.update({"model.network.layers.0.weights": torch.zeros(3, 3)}), "layer 1 listens to 20 neurons"),
        (lambda h, t: t.update({"model.network.layers.0.delays": torch.zeros(3)}), r"delays must have the shape \(20,\)"),
        (lambda h, t: t.update({"model.network.readout.weights": torch.zeros(2, 9)}), r"readout.weights must have the shape"),
        (lambda h, t: t.pop("model.network.readout.biases"), "the network lacks readout.biases"),
        (lambda h, t: inside(h, "report", "layers").pop(), "nothing uses the tensor 'model.report.layers.1.pairs'"),
    ],
)
def test_edited_files_are_refused(model, tmp_path, change, message):
    path = tmp_path / "m.sswim"
    model[0].save(path)
    rewritten(path, change)
    with pytest.raises(ValueError, match=f"m.sswim: .*{message}"):
        Forecaster.load(path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"window": 10**9}, "the output is for other sizes than the network"),
        ({"groups": 10**9}, "must have the shape"),
        ({"lags": 10**9}, "must have the shape"),
        ({"extra": 10**12}, "must have the shape"),
        ({"outputs": 0}, "outputs must be a whole number >= 1, got 0"),
        ({"population": 10**9}, "population must be at most 1,000,000"),
        ({"singles": 10**12}, "must have the shape"),
        ({"window": 10**5, "network": 10**5}, "must have the shape"),
    ],
)
def test_sizes_are_not_believed(walk, tmp_path, monkeypatch, sizes, message):
    fitted = Forecaster(12, 4, hidden=(10,), random_state=0, verbose=0).fit(walk)
    fitted.save(tmp_path / "m.sswim")

    def change(header, tensors):
        network = inside(header, "network", "settings")["fields"]
        read = network["readout"]["fields"]
        for name, size in sizes.items():
            (network if name == "network" else read if name in read else read["sizes"]["fields"])[
                "window" if name == "network" else name
            ] = size

    rewritten(tmp_path / "m.sswim", change)
    monkeypatch.setattr(sswim.schema, "LagReadout", None)  # nothing is built
    with pytest.raises(ValueError, match=f"m.sswim: .*{message}"):
        Forecaster.load(tmp_path / "m.sswim")


def test_a_file_sets_no_path_and_no_device(walk, tmp_path):
    training = Gradient(epochs=1, checkpoint=tmp_path / "mine.checkpoint", callback=lambda record: None)
    fitted = Forecaster(12, 4, hidden=(10,), training=training, random_state=0, verbose=0).fit(walk)
    fitted.set_params(device="cuda").save(tmp_path / "m.sswim")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Forecaster.load(tmp_path / "m.sswim")
    assert loaded.training == Gradient(epochs=1) and loaded.device == "cpu"
    path = {"checkpoint": str(tmp_path / "theirs")}
    rewritten(tmp_path / "m.sswim", lambda h, t: h["params"]["training"]["fields"].update(path))
    with pytest.raises(ValueError, match="training has an unknown 'checkpoint'"):
        Forecaster.load(tmp_path / "m.sswim")


def test_a_model_that_could_not_be_read_again_is_not_written(walk, tmp_path):
    fitted = Forecaster(12, 4, hidden=(10,), random_state=0, verbose=0).fit(walk)
    with torch.no_grad():
        fitted.network_.layers[0].weights[0, 0] = float("nan")
    with pytest.raises(ValueError, match="save: .* is not written: network.layers.0.weights must be finite"):
        fitted.save(tmp_path / "m.sswim")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Forecaster.load(tmp_path / "none.sswim")


def test_files_of_an_older_format_are_refused(model, tmp_path):
    assert FORMAT_VERSION == 3
    path = tmp_path / "m.sswim"
    model[0].save(path)
    rewritten(path, lambda header, tensors: header.update(format_version=1, sswim_version="0.1.0"))
    with pytest.raises(ValueError, match=r"written in format 1 by sswim 0.1.0, .* reads formats 3 and 4\. Fit"):
        Forecaster.load(path)


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
