"""Classification: encoders, readouts, labels, files of images."""

import gzip

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from sswim import Classifier, Counts, Direct, FixedLambda, FromScratch, Gradient, Spikes, Voltage
from sswim.data import Latency, Poisson, Rate, Shifts
from sswim.data.labelled import LabelledSamples
from sswim.datasets import load_images, read_idx
from sswim.regression import Sums
from sswim.sampling import STEPS

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1200], NAMES[y[:1200]], X[1200:], NAMES[y[1200:]]


def classifier(**options):
    return Classifier(**{"hidden": (150,), "random_state": 0, "verbose": 0, **options})


@pytest.fixture(scope="module")
def fitted(digits):
    return classifier().fit(*digits[:2])


def test_poisson_spikes_have_the_papers_distribution(generator):
    p = torch.tensor([[0.0, 0.1, 0.5, 1.0]]).expand(4000, -1)
    counts = Poisson(steps=50, rate=0.2).encode(p, generator).dense().sum(dim=1)  # (samples, channels)
    expected = 0.2 * 50 * p[0]
    torch.testing.assert_close(counts.mean(dim=0), expected, rtol=0.05, atol=1e-6)
    torch.testing.assert_close(counts.var(dim=0), expected, rtol=0.1, atol=1e-6)
    when = Poisson(steps=50, rate=0.2).encode(p, generator).dense()[:, :, 3].mean(dim=0)
    assert float((when - 0.2).abs().max()) < 0.05, "spread uniformly"


def test_rate_and_latency_by_hand():
    p = torch.tensor([[0.0, 0.25, 1.0]])
    spikes = Rate(steps=40, rate=0.5).encode(p, torch.Generator())[0]
    assert spikes[:, 0].sum() == 0 and spikes[:, 2].sum() == 20
    assert abs(float(spikes[:, 1].sum()) - 5) <= 1
    gaps = spikes[:, 1].nonzero().flatten().diff()
    assert set(gaps.tolist()) == {8}
    late = Latency(steps=11).encode(p, torch.Generator())[0]
    assert late.sum(dim=0).tolist() == [0, 1, 1] and late[:, 2].argmax() == 0 and late[:, 1].argmax() == 8
    for bad in (lambda: Rate(steps=0), lambda: Poisson(rate=0.0), lambda: Rate(rate=-1.0)):
        with pytest.raises(ValueError, match="must be a"):
            bad()


def test_a_samples_spikes_do_not_depend_on_who_asks():
    X = torch.rand(307, 5, generator=torch.Generator().manual_seed(0))
    samples = LabelledSamples(X, torch.zeros(len(X), dtype=torch.long), 2, 1, 2.0, encoder=Poisson(steps=20), seed=3)
    whole = samples.inputs(slice(None)).dense()
    index = torch.tensor([250, 3, 306, 120, 3])
    assert torch.equal(samples.inputs(index).dense(), whole[index])
    assert torch.equal(samples.inputs(slice(90, 110)).dense(), whole[90:110])
    same = LabelledSamples(X[:1].expand(2, -1), torch.zeros(2, dtype=torch.long), 2, 1, 2.0, encoder=Poisson(steps=20), seed=3)
    assert not torch.equal(*same.inputs(slice(None)).dense()), "equal samples draw apart"
    assert samples.inputs(slice(0, 0)).shape == (0, 20, 5)
    assert samples.targets(slice(0, 2)).tolist() == [[[2, -2]], [[2, -2]]]


def test_weighted_sums_are_those_of_repeated_rows(generator):
    f = torch.randn(4, 1, 30, generator=generator, dtype=torch.float64) + 1
    y = torch.randn(2, 1, 30, generator=generator, dtype=torch.float64)
    times = torch.randint(0, 4, (30,), generator=generator)
    weighted, repeated = Sums(4, 2), Sums(4, 2)
    for part in (slice(0, 10), slice(10, 30)):
        weighted.update(f[:, :, part].clone(), y[:, :, part], weights=times[part])
    repeated.update(f.repeat_interleave(times, dim=2), y.repeat_interleave(times, dim=2))
    for a, b in zip(weighted.solve(0.1), repeated.solve(0.1), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(weighted.energy, repeated.energy)


def test_a_direct_readout_is_a_ridge_on_spike_counts(digits):
    X, y, _, _ = digits
    readout, inputs = Counts(loss="squared_error", regularization=FixedLambda(0.02)), torch.from_numpy(X[:300])
    model = classifier(hidden=(30, 20), readout=readout).fit(X[:300], y[:300])
    assert model.model_.inputs.encoder == Rate(steps=15, rate=1.0) and model.model_.inputs.scale == (0.0, 16.0)
    encoder = {"encoder": Rate(steps=15, rate=1.0), "scale": (0.0, 16.0)}
    encoded = LabelledSamples(inputs, torch.zeros(300).long(), 10, 1, 2.0, **encoder)
    # The encoder draws nothing, so that counts are the same in any order.
    spikes = model.network_.simulate(encoded.inputs(slice(None))).spikes
    counts = torch.cat([a.sum(dim=1) for a in spikes], dim=1).double()
    targets = np.where(y[:300, None] == model.classes_, 2.0, -2.0)
    ridge = Ridge(alpha=0.02 * 250).fit(counts.numpy(), targets)
    ours = model.decision_function(X[:300])
    literal = Ridge(alpha=0.02 * 300).fit(counts.numpy(), targets).predict(counts.numpy())
    np.testing.assert_allclose(ours, literal, atol=1e-3)
    assert np.abs(ridge.predict(counts.numpy()) - ours).max() > 1e-3, "validation samples take part in the final weights"


def test_digits(fitted, digits):
    _, _, X, y = digits
    assert fitted.score(X, y) > 0.9
    assert set(fitted.predict(X)) <= set(NAMES) and list(fitted.classes_) == sorted(NAMES)
    p = fitted.predict_proba(X)
    assert p.shape == (len(X), 10)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (fitted.classes_[p.argmax(axis=1)] == fitted.predict(X)).all()
    truth = p[np.arange(len(y)), np.searchsorted(fitted.classes_, y)]
    assert -np.log(truth).mean() < 0.5, "calibrated"
    assert abs(p.max(axis=1).mean() - fitted.score(X, y)) < 0.05
    assert "Classifier, 10 classes" in str(fitted.summary()) and "fitted on " in str(fitted.summary())


@pytest.mark.parametrize(
    "options", [{"readout": "voltage"}, {"readout": "spikes"}, {"hidden": (60, 60)}, {"readout": Counts((4.0, 20.0))}]
)
def test_other_readouts_and_depth(options, digits, tmp_path):
    X, y, Xt, yt = digits
    model = classifier(**options).fit(X, y)
    assert model.score(Xt, yt) > 0.85
    model.save(tmp_path / "m.sswim")
    loaded = Classifier.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(loaded.decision_function(Xt), model.decision_function(Xt))
    np.testing.assert_array_equal(loaded.predict_proba(Xt[:9]), model.predict_proba(Xt[:9]))
    assert loaded.predict(Xt[:5]).dtype == y.dtype


def test_spike_readout_needs_its_normalisation(digits):
    X, y, Xt, yt = digits
    voltage, plain, ours = (
        classifier(**options).fit(X, y).score(Xt, yt)
        for options in ({"readout": "voltage"}, {"readout": Spikes(normalize=False)}, {"readout": "spikes"})
    )
    assert ours > voltage - 0.03 and plain < ours - 0.03


def test_a_spike_readout_counts_spikes(digits):
    X, y, Xt, _ = digits
    model = classifier(hidden=(40,), readout="spikes").fit(X[:300], y[:300])
    counts = model.decision_function(Xt[:20])
    assert (counts == counts.round()).all() and counts.max() > 1


def test_the_papers_classifier_takes_options():  # its settings are in test_letter.py
    own = Spikes(horizon=3)
    assert Classifier.paper(readout=own).readout is own and Classifier.paper(encoder="rate").encoder == "rate"
    assert Classifier.paper((256,)).hidden == (256,)


def test_signals_in_time_and_two_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 240)
    t = np.arange(30)
    x = np.stack([np.sin(t / (2 + 2 * c) + rng.uniform(0, 6)) + 0.1 * rng.standard_normal(30) for c in y])[:, :, None]
    model = classifier(hidden=(60,), kernel="morlet").fit(x[:180], y[:180])
    assert model.model_.inputs.encoder is None and model.score(x[180:], y[180:]) > 0.9
    assert model.decision_function(x[180:]).shape == (60,) and model.predict_proba(x[180:]).shape == (60, 2)
    same = classifier(hidden=(60,), kernel="morlet").fit(torch.from_numpy(x[:180]), y[:180])
    np.testing.assert_array_equal(same.predict(torch.from_numpy(x[180:])), model.predict(x[180:]))


def test_images_of_any_shape_with_an_encoder(digits):
    X, y, Xt, yt = digits
    flat, square = (
        classifier(fields=(8, 8)).fit(X[:300], y[:300]),
        classifier(encoder=Rate(steps=15, rate=1.0)).fit(X[:300].reshape(-1, 8, 8), y[:300]),
    )
    np.testing.assert_array_equal(flat.predict(Xt), square.predict(Xt.reshape(-1, 8, 8)))


def test_class_weights_shift_the_decision(digits):
    X, y, Xt, yt = digits
    keep = (y != "one") | (np.cumsum(y == "one") <= 8)
    right = {}
    for weight in (None, "balanced"):
        models = [
            classifier(hidden=(60,), class_weight=weight).set_params(random_state=s).fit(X[keep], y[keep]) for s in range(3)
        ]
        right[weight] = np.mean([(m.predict(Xt[yt == "one"]) == "one").mean() for m in models])
    assert right["balanced"] > right[None], right


@pytest.mark.parametrize("training", [FromScratch(epochs=4, learning_rate=1e-2), Gradient(epochs=4, learning_rate=1e-3)])
def test_gradients(training, digits, tmp_path):
    X, y, Xt, yt = digits
    model = classifier(hidden=(60,), training=training).fit(X[:600], y[:600])
    history = model.training_.history
    assert len(history) == 5 and model.training_.best.validation_loss == history.validation_loss.min()
    if training.from_scratch:
        assert history.validation_loss.min() < 0.3 * history.validation_loss[0]
    elif model.training_.best_epoch == 0:  # where training brings nothing, the sampled network is kept
        plain = classifier(hidden=(60,)).fit(X[:600], y[:600])
        np.testing.assert_array_equal(model.decision_function(Xt), plain.decision_function(Xt))
    assert model.score(Xt, yt) > 0.8
    model.save(tmp_path / "m.sswim")
    assert len(Classifier.load(tmp_path / "m.sswim").training_.history) == 5


def test_same_seed_same_model(digits):
    X, y, Xt, _ = digits
    one, other = (classifier(hidden=(30,), encoder="poisson").fit(X[:200], y[:200]) for _ in range(2))
    np.testing.assert_array_equal(one.decision_function(Xt), other.decision_function(Xt))


@pytest.mark.parametrize(
    "options, change, message",
    [
        ({}, lambda X, y: (X, np.full(len(y), "one")), "y must hold at least two classes, got one class: .*'one'"),
        ({}, lambda X, y: (X[:-1], y), "X and y must hold equally many samples, got 199 and 200"),
        ({}, lambda X, y: (np.where(X == 3, np.nan, X), y), "Input X contains NaN"),
        ({}, lambda X, y: (X, np.linspace(0, 1, len(y))), "Unknown label type"),
        ({}, lambda X, y: (np.ones_like(X), y), "all intensities are the same, 1"),
        ({"encoder": None}, lambda X, y: (X, y), r"encoder=None needs X of shape \(samples, steps, channels\)"),
        ({"encoder": "poison"}, lambda X, y: (X, y), "encoder: unknown name 'poison'. Did you mean 'poisson'"),
        (
            {"readout": "count"},
            lambda X, y: (X, y),
            "readout: unknown name 'count'. Valid names: 'direct', 'voltage', 'spikes'",
        ),
        (
            {"training": "sgd"},
            lambda X, y: (X, y),
            "training: unknown name 'sgd'. Valid names: 'gradient', 'sample\\+gradient'",
        ),
        (
            {"readout": 3},
            lambda X, y: (X, y),
            "readout must be one of the names 'direct', 'voltage', 'spikes', or a Counts or a Voltage object",
        ),
        ({"validation": 0.0, "dtype": "half"}, lambda X, y: (X, y), "2 mistakes:\n- validation must .*\n- dtype must be one"),
        ({"class_weight": "balanced", "readout": "voltage"}, lambda X, y: (X, y), "class_weight needs readout='direct'"),
        ({"validation": 0.0}, lambda X, y: (X, y), "validation must be a number between 0 and 1"),
        ({"hidden": (9000,), "memory": "1GB"}, lambda X, y: (X, y), "memory: the sums of 9,000 features take 1.9 GB"),
    ],
)
def test_bad_input(options, change, message, digits):
    with pytest.raises((ValueError, TypeError), match=message):
        classifier(**{"hidden": (20,), **options}).fit(*change(digits[0][:200], digits[1][:200]))


def test_bad_input_to_a_fitted_model_loses_nothing(fitted, digits):
    _, _, X, _ = digits
    before = fitted.predict(X[:20])
    with pytest.raises(ValueError, match="X has 60 features, but Classifier is expecting 64 features as input"):
        fitted.predict(X[:, :60])
    with pytest.warns(UserWarning, match="intensities from 0 to 32 leave the range of the training samples, 0 to 16"):
        bright = fitted.predict(np.where(X[:20] == 16, 32, X[:20]))
    np.testing.assert_array_equal(bright, before)
    with pytest.raises(ValueError, match="two classes"):
        fitted.fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(fitted.predict(X[:20]), before)
    assert fitted.score(X[:20], np.full(20, "never seen")) == 0


FEW = {
    "direct": {"readout": "direct", "hidden": (12, 8)},
    "voltage": {"readout": Voltage(horizon=4, integrate="all"), "encoder": Poisson(steps=15, rate=0.5)},
    "spikes": {"readout": Spikes(horizon=4)},
}
# Of each parameter another value that could be fitted with, which differs from those of all models above.
OTHERS = {
    "hidden": (3,),
    "encoder": "latency",
    "fields": (8, 8),
    "kernel": ("alpha", "morlet"),
    "readout": Spikes(horizon=2, delta=5.0, integrate="all", normalize=False),
    "steps": "paper",
    "class_weight": "balanced",
    "augment": Shifts(2),
    "validation": 0.9,
    "training": "gradient",
    "profile": "nir",
    "dtype": "float64",
    "device": "meta",
    "memory": "1MB",
    "executor": 2,
    "random_state": 99,
    "verbose": 0.5,
}


@pytest.fixture(scope="module", params=FEW)
def small(request, digits):
    """A small classifier with each readout."""
    return classifier(**{"hidden": (12,), **FEW[request.param]}).fit(digits[0][:150], digits[1][:150])


def results(model, X, path):
    """Return what a model predicts, and what it predicts once it is saved and loaded."""
    model.save(path)
    loaded = Classifier.load(path)
    return [one for m in (model, loaded) for one in (m.predict_proba(X), m.decision_function(X))]


def test_every_parameter_has_another_value():
    assert OTHERS.keys() == Classifier().get_params(deep=False).keys()


@pytest.mark.parametrize("name", OTHERS)
def test_predictions_and_files_depend_on_the_fitted_state_only(name, small, digits, tmp_path):
    X, kept = digits[2][:12], getattr(small, name)
    before = results(small, X, tmp_path / "before")
    try:
        for value in (OTHERS[name], "nonsense"):
            assert value != kept
            small.set_params(**{name: value})
            for found, expected in zip(results(small, X, tmp_path / "after"), before, strict=True):
                np.testing.assert_array_equal(found, expected, strict=True)
    finally:
        setattr(small, name, kept)


def test_a_loaded_model_predicts_the_same_and_fits_the_same(small, digits, tmp_path):
    X, y, Xt, _ = digits
    small.save(tmp_path / "m")
    loaded = Classifier.load(tmp_path / "m")
    assert loaded.get_params() == small.get_params()
    again = loaded.fit(X[:150], y[:150])
    np.testing.assert_array_equal(again.decision_function(Xt[:20]), small.decision_function(Xt[:20]))


@pytest.mark.parametrize(
    "options, change, message",
    [
        ({}, lambda X, y: (X, y[:-1]), "equally many samples"),
        ({}, lambda X, y: (X * np.nan, y), "Input X contains NaN"),
        ({}, lambda X, y: (X, np.full(len(y), "one")), "at least two classes"),
        ({}, lambda X, y: (X[:3], y[:3]), "at least 4 samples"),
        ({}, lambda X, y: (X, None), "requires y to be passed"),
        ({"fields": (7, 8)}, lambda X, y: (X, y), "a layout of"),
        ({"readout": "sum", "dtype": "int"}, lambda X, y: (X, y), "2 mistakes"),
    ],
)
def test_a_refit_that_fails_loses_nothing(options, change, message, small, digits, tmp_path):
    X, before = digits[2][:12], results(small, digits[2][:12], tmp_path / "before")
    kept, held = small.get_params(deep=False), dict(vars(small))
    assert set(held) == {*kept, "model_"}, "one attribute holds all that was fitted"
    small.set_params(**options)
    try:
        with pytest.raises(ValueError, match=message):
            small.fit(*change(digits[0][:150], digits[1][:150]))
    finally:
        small.set_params(**kept)
    assert vars(small) == held and small.model_ is held["model_"]
    for found, expected in zip(results(small, X, tmp_path / "after"), before, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_a_first_fit_that_fails_leaves_nothing_behind(digits):
    model = classifier()
    held = dict(vars(model))
    with pytest.raises(ValueError, match="equally many samples"):
        model.fit(digits[0][:50], digits[1][:49])
    assert vars(model) == held and not hasattr(model, "classes_")
    with pytest.raises(NotFittedError):
        model.predict(digits[0][:5])


def test_fitting_does_not_change_parameters(small):
    for name, value in classifier().get_params(deep=False).items():
        if name not in ("readout", "encoder", "hidden"):
            assert getattr(small, name) == value


def test_options_are_reached_by_name(digits):
    model = classifier().set_params(steps__weights="random", readout__loss="squared_error")
    assert model.steps == STEPS["classify"].replace(weights="random") and model.readout == Counts(loss="squared_error")
    with pytest.raises(ValueError, match="Counts has no option 'los'. Did you mean 'loss'"):
        model.set_params(readout__los="log_loss")
    with pytest.raises(ValueError, match="Classifier has no parameter 'reedout'. Did you mean 'readout'"):
        model.set_params(reedout="direct")
    search = GridSearchCV(classifier(hidden=(15,)), {"steps__weights": ["random", "dot"]}, cv=2).fit(
        digits[0][:200], digits[1][:200]
    )
    assert search.best_estimator_.steps.weights == search.best_params_["steps__weights"]


def idx(array, kind=0x08):
    header = bytes([0, 0, kind, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def test_idx_files(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError,
        match=r"mnist: train-images-idx3-ubyte.gz, .* missing in .*mnist .*SSWIM_OFFLINE.*Get them from http.*SSWIM_DATA",
    ):
        load_images("mnist")
    expected = []
    for part, count in (("train", 6), ("t10k", 4)):
        expected += [rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), rng.integers(0, 10, count, dtype=np.uint8)]
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(expected[-2])))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(expected[-1])))
    for one, other in zip(load_images("mnist"), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    plain = tmp_path / "x.idx"
    plain.write_bytes(idx(np.arange(6, dtype=">i4").reshape(2, 3), 0x0C))
    np.testing.assert_array_equal(read_idx(plain), np.arange(6).reshape(2, 3))
    plain.write_bytes(plain.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"damaged, its length does not fit the shape \(2, 3\)"):
        read_idx(plain)
    plain.write_bytes(b"something")
    with pytest.raises(ValueError, match="not an idx file"):
        read_idx(plain)
    broken = folder / "t10k-labels-idx1-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-12])
    with pytest.raises(ValueError, match="damaged, it can ?not be decompressed"):
        load_images("mnist")
    with pytest.raises(ValueError, match="name must be one of 'mnist', 'fashion-mnist', got 'cifar'"):
        load_images("cifar")


def test_mnist(real_data, monkeypatch):
    monkeypatch.setenv("SSWIM_DATA", str(real_data))
    X, y, Xt, yt = load_images("mnist")
    assert X.shape == (60000, 28, 28) and Xt.shape == (10000, 28, 28)
    model = classifier(hidden=(200,), encoder=Rate(steps=15, rate=1.0)).fit(X[:3000], y[:3000])
    assert model.score(Xt[:1000], yt[:1000]) > 0.82


@parametrize_with_checks([Classifier(hidden=(20,), random_state=0, verbose=0)])
def test_sklearn_checks(estimator, check):
    check(estimator)


def test_all_mistakes_are_reported_at_once(digits):
    model = Classifier(hidden=(0,), fields="bogus", encoder="imag", validation=3, readout="voltage", class_weight="balanced")
    with pytest.raises(ValueError, match="5 mistakes") as error:
        model.fit(*digits[:2])
    for part in ("hidden must be", "fields must be 'auto'", "Did you mean 'image'", "validation must be", "class_weight needs"):
        assert part in str(error.value)
    with pytest.raises(ValueError, match="fields must be 'auto', None or a layout of channels such as .28, 28., got 6"):
        classifier(fields=6).fit(*digits[:2])


def test_mistakes_inside_of_an_option_are_listed_with_the_others():
    with pytest.raises(ValueError, match="3 mistakes:\n- horizon.*\n- delays.*\n- supports.*$"):
        Voltage(horizon=0, delays="corr", supports="none")


@pytest.mark.parametrize("training", ["gradient", "sample+gradient"])
def test_gradients_do_not_weigh_classes(digits, training):
    with pytest.raises(ValueError, match="class_weight needs readout='direct' and training=None"):
        classifier(class_weight="balanced", training=training).fit(*digits[:2])


@pytest.mark.parametrize("readout", ["direct", "voltage"])
def test_residuals_are_for_readouts_of_all_layers(digits, readout):
    model = classifier(hidden=(30, 20), readout=readout).fit(*digits[:2])
    assert (model.report_.layers[1].output_metric == "residual") == (readout == "direct")


def test_an_option_of_another_kind_is_refused(digits):
    with pytest.raises(
        TypeError, match="readout must be one of the names 'direct', 'voltage', 'spikes', or a Counts or a Voltage"
    ):
        classifier(readout=Direct()).fit(*digits[:2])
    with pytest.raises(
        TypeError, match="steps must be one of the names 'paper', 'forecast', 'classify', or a Steps object, got 3"
    ):
        classifier(steps=3).fit(*digits[:2])
