"""Models that go on: whatever way rows and samples come, the output is that of one fit with the same hidden layers."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from sswim import Classifier, Counts, Direct, Forecaster, Gradient, Trajectory
from sswim.datasets import load_wind_farm

WIND = load_wind_farm().iloc[:1500]
SETTINGS = {"random_state": 0, "verbose": 0, "dtype": "float64"}
FORECASTERS = {
    "default": {},
    "joint": {"channels": "joint", "hidden": (15,)},
    "rows": {"readout": Direct(skip=True), "scaling": "standard"},
    "covariates": {"covariates": [1, 2], "hidden": (10, 8)},
    "trajectory": {"readout": Trajectory(assembly="exact"), "hidden": (30,)},
    "stride": {"readout": Trajectory(assembly="fast", stride=3), "hidden": (30,), "channels": "joint"},
    "paper": {"paper": True, "hidden": (40,)},
}
CLASSIFIERS = {
    "default": {},
    "squared": {"readout": Counts(loss="squared_error", traces=(2.0, np.inf))},
    "deep": {"hidden": (40, 30)},
    "weighted": {"class_weight": "balanced"},
    "voltage": {"readout": "voltage"},
    "spikes": {"readout": "spikes"},
}


def forecaster(name, **options):
    options = {**SETTINGS, **FORECASTERS[name], **options}
    build = Forecaster.paper if options.pop("paper", False) else Forecaster
    return build(24, 6, **options)


@pytest.fixture(scope="module", params=FORECASTERS)
def fitted(request):
    return forecaster(request.param).fit(WIND.iloc[:700])


def again(model):
    return copy.deepcopy(model)


def assert_same(one, two, rows=WIND, tolerance=1e-8):
    a, b = (np.concatenate([f for _, f in model.model_.backtest(rows.iloc[-200:])]) for model in (one, two))
    np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())


def test_fitting_again_with_the_same_hidden_layers_is_the_fit(fitted):
    same = again(fitted).refit(WIND.iloc[:700])
    assert_same(fitted, same)
    if fitted.model_.has_intervals:
        np.testing.assert_allclose(fitted.model_.half_width(0.9), same.model_.half_width(0.9), rtol=1e-8)


@pytest.mark.parametrize("ends", [(701,), (720, 730, 1100), (705, 1499)])
def test_rows_that_come_later_are_rows_of_the_fit(fitted, ends):
    model = again(fitted)
    for first, last in zip((700, *ends), (*ends, 1500), strict=True):
        model.partial_fit(WIND.iloc[first:last])
    assert_same(model, again(fitted).refit(WIND))
    assert not np.allclose(model.predict(WIND), fitted.predict(WIND), rtol=1e-6), "new rows change the forecasts"


def test_arrays_follow_on_too(fitted):
    rows = WIND.to_numpy()
    model = clone(fitted).fit(rows[:700])
    expected = again(model).refit(rows)
    model.partial_fit(rows[700:703]).partial_fit(rows[703:])
    np.testing.assert_allclose(model.predict(rows), expected.predict(rows), rtol=1e-7, atol=1e-7)


def test_merged_models_are_one_fit(fitted):
    if fitted.get_params()["readout"] == Trajectory() or not fitted.model_.has_intervals:
        pytest.skip("validation windows of a list are the last ones of all, not of each")
    parts = [WIND.iloc[:600], WIND.iloc[600:1500]]
    apart = [again(fitted).refit(part) for part in parts]
    assert_same(apart[0].merge(apart[1]), again(fitted).refit(parts))


def test_sums_of_voltages_add_up():
    """Where the second part begins with a whole period of training and validation windows, merging is one fit."""
    fitted = forecaster("trajectory").fit(WIND.iloc[:600])
    parts = [WIND.iloc[:600], WIND.iloc[600:1500]]
    apart = [again(fitted).refit(part) for part in parts]
    assert_same(apart[0].merge(apart[1]), again(fitted).refit(parts))


def test_many_updates_keep_few_blocks_and_choose_again():
    model = forecaster("default", readout=Direct(blocks=2)).fit(WIND.iloc[:200])
    first = len(model.report_.solution.record.ledger.blocks)
    for start in range(200, 1500, 100):
        model.partial_fit(WIND.iloc[start : start + 100])
    ledger = model.report_.solution.record.ledger
    assert 2 <= len(ledger.blocks) <= 2 * first and ledger.step > 1 and ledger.windows == 1500 - 29
    assert_same(model, forecaster("default", readout=Direct(blocks=2)).fit(WIND.iloc[:200]).refit(WIND))


def test_forgetting_is_weighing_rows_by_their_age(fitted):
    """However rows come, and a long half-life is none."""
    ways = []
    for ends in ((1200,), (800, 801, 1200)):
        model = again(fitted)
        for first, last in zip((700, *ends), ends, strict=False):
            model.partial_fit(WIND.iloc[first:last], forget=150)
        ways.append(model)
    assert_same(*ways)
    never = again(fitted).partial_fit(WIND.iloc[700:1200], forget=1e12)
    assert_same(never, again(fitted).partial_fit(WIND.iloc[700:1200]), tolerance=1e-7)
    assert not np.allclose(ways[0].predict(WIND), never.predict(WIND), rtol=1e-3)


def drifting(rows, seed):
    rng, t = np.random.default_rng(seed), np.arange(rows)[:, None]
    before, after = np.sin(2 * np.pi * t / 24 + np.arange(3)), 0.5 * np.sin(2 * np.pi * t / 15 + np.arange(3)) + 8
    return np.where(t < 1500, before, after) + 0.1 * rng.standard_normal((rows, 3))


def test_drift_of_level_and_period_is_learnt_and_sooner_with_forgetting():
    rows = drifting(2400, 0)
    fitted = Forecaster(48, 12, **SETTINGS).fit(rows[:1500])
    errors = {}
    for name, forget in (("never", None), ("forget", 200)):
        model = again(fitted)
        for first in range(1500, 2100, 50):
            model.partial_fit(rows[first : first + 50], forget=forget)
        errors[name] = model.evaluate(rows[2100:]).rmse
    stale, fresh = (
        fitted.evaluate(rows[2100:]).rmse,
        Forecaster(48, 12, **SETTINGS).fit(rows[1500:2100]).evaluate(rows[2100:]).rmse,
    )
    # What is read of a window was chosen before the drift, so a new fit is still a bit better.
    assert errors["forget"] < 0.95 * errors["never"] < 0.45 * stale and errors["forget"] < 1.4 * fresh, (stale, errors, fresh)


def test_intervals_follow_the_errors_that_were_made():
    rows = drifting(1500, 1)
    model = Forecaster(48, 12, **SETTINGS).fit(rows[:1000])
    before = model.model_.half_width(0.9)
    noisy = rows[1000:] + 2 * np.random.default_rng(2).standard_normal((500, 3))
    for first in range(0, 500, 25):
        model.partial_fit(noisy[first : first + 25])
    assert (model.model_.half_width(0.9) > 2 * before).mean() > 0.9
    assert len(model.report_.solution.record.errors) <= 1000


def test_a_forecaster_that_is_not_fitted_is_fitted():
    rows = WIND.iloc[:400]
    one, two = forecaster("default").partial_fit(rows), forecaster("default").fit(rows)
    assert np.array_equal(one.predict(rows), two.predict(rows))


def test_a_gap_is_not_crossed_and_a_list_begins_anew(fitted):
    later, other = WIND.iloc[900:1100], WIND.iloc[1200:1500]
    model = again(fitted).partial_fit([later, other])
    assert_same(model, again(fitted).partial_fit(later).partial_fit([other.iloc[:0], other][1]), tolerance=1e-1)
    samples = model.model_.past.seen - fitted.model_.past.seen
    stride = fitted.model_.past.stride
    assert samples == -(-(200 - 29) // stride) + -(-(300 - 29) // stride)


def test_rows_too_few_for_a_window_wait_for_more(fitted):
    model = again(fitted).partial_fit(WIND.iloc[900:910])
    assert model.model_.past.seen == fitted.model_.past.seen and len(model.model_.past.rows) == 10
    model.partial_fit(WIND.iloc[910:1000])
    assert_same(model, again(fitted).partial_fit(WIND.iloc[900:1000]))


@pytest.mark.parametrize("updatable", [True, False])
def test_a_saved_model_goes_on_where_it_stopped_if_its_sums_are_saved(fitted, updatable, tmp_path):
    fitted.save(tmp_path / "model.sswim", updatable=updatable)
    loaded = type(fitted).load(tmp_path / "model.sswim")
    assert np.array_equal(loaded.predict(WIND.iloc[:700]), fitted.predict(WIND.iloc[:700]))
    if not updatable:
        with pytest.raises(
            ValueError, match=r"partial_fit: this model cannot be updated, for its sums were not kept.*updatable=True"
        ):
            loaded.partial_fit(WIND.iloc[700:])
        return
    assert_same(loaded.partial_fit(WIND.iloc[700:]), again(fitted).partial_fit(WIND.iloc[700:]), tolerance=1e-12)
    loaded.save(tmp_path / "later.sswim")
    later = type(fitted).load(tmp_path / "later.sswim")
    assert later.model_.has_intervals == loaded.model_.has_intervals
    if loaded.model_.has_intervals:
        np.testing.assert_array_equal(later.model_.half_width(0.9), loaded.model_.half_width(0.9))


def test_wrong_rows_are_refused_and_nothing_is_lost():
    model = forecaster("default").fit(WIND.iloc[:400])
    before, state = model.predict(WIND), model.model_
    for rows, error in (
        (WIND.iloc[400:450, ::-1], "columns must be the same"),
        (WIND.iloc[400:450, :3], "3 features"),
        (WIND.iloc[390:450], r"rows up to .* are known already, but these begin at .*would count twice"),
        (WIND.iloc[401:450:2], "rows must have the step of the fit"),
        (WIND.iloc[400:450].tz_localize(None), "zone"),
        (WIND.iloc[400:450].assign(**{WIND.columns[0]: np.nan}), "NaN"),
    ):
        with pytest.raises(ValueError, match=error):
            model.partial_fit(rows)
    for forget in (0, -1, np.nan, "soon"):
        with pytest.raises((TypeError, ValueError), match="forget"):
            model.partial_fit(WIND.iloc[400:450], forget=forget)
    other = forecaster("default", random_state=1).fit(WIND.iloc[:400])
    with pytest.raises(ValueError, match="merge: the models have other hidden layers"):
        model.merge(other)
    with pytest.raises(ValueError, match="merge: the models"):
        model.merge(forecaster("default").fit(2 * WIND.iloc[100:500]))
    with pytest.raises(TypeError, match="other must be a fitted Forecaster"):
        model.merge(Classifier())
    assert model.model_ is state and np.array_equal(model.predict(WIND), before)


def test_sums_that_are_not_kept_are_said_to_be_missing(tmp_path):
    model = forecaster("default", memory="16MB").fit(WIND.iloc[:300])
    assert model.report_.solution.record is None
    with pytest.raises(ValueError, match="sums were not kept"):
        model.partial_fit(WIND.iloc[300:])
    with pytest.raises(ValueError, match="save: this model has no sums"):
        model.save(tmp_path / "model.sswim", updatable=True)
    assert not list(tmp_path.iterdir())
    tuned = forecaster("trajectory", training=Gradient(epochs=1), channels="joint").fit(WIND.iloc[:300])
    with pytest.raises(ValueError, match="trained by gradients"):
        tuned.refit(WIND)
    small = forecaster("default", memory="16MB").fit(WIND.iloc[:300, :1])
    assert small.report_.solution.record is not None, "they take little"


def test_the_month_after_follows_on():
    months = pd.date_range("2001-01-01", periods=200, freq="MS")
    rows = pd.DataFrame({"a": np.sin(np.arange(200)), "b": np.cos(np.arange(200) / 3)}, index=months)
    model = Forecaster(12, 3, **SETTINGS).fit(rows.iloc[:150])
    assert_same(again(model).partial_fit(rows.iloc[150:160]).partial_fit(rows.iloc[160:]), again(model).refit(rows), rows)


X, y = load_digits(return_X_y=True)
X, y = X[:900], np.array(list("abcdefghij"))[y[:900]]


@pytest.fixture(scope="module", params=CLASSIFIERS)
def classifier(request):
    return Classifier(**{"hidden": (50,), **SETTINGS, **CLASSIFIERS[request.param]}).fit(X[:400], y[:400])


def assert_same_classes(one, two, tolerance=1e-8):
    a, b = one.decision_function(X), two.decision_function(X)
    np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())


def test_samples_that_come_later_are_samples_of_the_fit(classifier):
    model = again(classifier).partial_fit(X[400:500], y[400:500]).partial_fit(X[500:], y[500:])
    assert_same_classes(model, again(classifier).refit(X, y))
    assert_same_classes(classifier, again(classifier).refit(X[:400], y[:400]))


def test_merged_classifiers_are_one_fit_in_any_order(classifier):
    apart = [again(classifier).refit(X[part], y[part]) for part in (slice(0, 300), slice(300, 900))]
    whole = again(classifier).refit(X[::-1], y[::-1])
    assert_same_classes(again(apart[0]).merge(apart[1]), whole)
    assert_same_classes(again(apart[1]).merge(apart[0]), whole)


def test_samples_are_forgotten_by_their_age(classifier):
    ways = [again(classifier).partial_fit(X[400:], y[400:], forget=200) for _ in range(2)]
    ways[1] = again(classifier).partial_fit(X[400:620], y[400:620], forget=200).partial_fit(X[620:], y[620:], forget=200)
    assert_same_classes(*ways)
    assert not np.allclose(ways[0].decision_function(X), again(classifier).refit(X, y).decision_function(X), rtol=1e-3)


def test_a_saved_classifier_goes_on(classifier, tmp_path):
    classifier.save(tmp_path / "model.sswim", updatable=True)
    loaded = Classifier.load(tmp_path / "model.sswim").partial_fit(X[400:], y[400:])
    assert_same_classes(loaded, again(classifier).partial_fit(X[400:], y[400:]), tolerance=1e-12)


def test_wrong_samples_are_refused():
    model = Classifier(hidden=(20,), **SETTINGS).fit(X[:200], y[:200])
    state = model.model_
    for values, labels, error in (
        (X[:5, :9], y[:5], "9 features"),
        (X[:5], y[:4], "equally many"),
        (X[:2], ["a", "z"], "'z' is none of the classes of the fit"),
    ):
        with pytest.raises(ValueError, match=error):
            model.partial_fit(values, labels)
    with pytest.raises(ValueError, match="merge: the models have other hidden layers"):
        model.merge(Classifier(hidden=(20,), **{**SETTINGS, "random_state": 1}).fit(X[:200], y[:200]))
    assert model.model_ is state
