import dataclasses
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from sswim import Classifier, Counts, Direct, Forecaster, Gradient, Scaling, Steps, Trajectory
from sswim.evaluate import Persistence, RidgeOnLags
from sswim.sampling import STEPS
from sswim.steps import MeanStd, RandomWeights, TemporalGrid

SMALL = {"window": 24, "horizon": 6, "hidden": (40,), "random_state": 0, "verbose": 0}


def small(**options):
    return Forecaster.paper(**SMALL | options)


@pytest.fixture(scope="module")
def fitted():
    t = np.arange(400)[:, None]
    x = 10 + np.sin(2 * np.pi * t / np.array([12, 17, 30])) + 0.1 * np.random.default_rng(0).standard_normal((400, 3))
    frame = pd.DataFrame(x, index=pd.date_range("2024-01-01", periods=400, freq="h"), columns=["a", "b", "c"])
    return small().fit(frame), frame


def rse(y, p):
    return np.sqrt(((y - p) ** 2).sum() / ((y - y.mean(axis=0)) ** 2).sum())


def test_forecasts_continue_index_columns_and_units(fitted):
    model, frame = fitted
    forecast = model.predict(frame)
    assert list(forecast.columns) == ["a", "b", "c"]
    assert list(forecast.index) == list(pd.date_range(frame.index[-1], periods=7, freq="h")[1:])
    assert np.abs(forecast.to_numpy() - 10).max() < 2
    truth = 10 + np.sin(2 * np.pi * np.arange(400, 406)[:, None] / np.array([12, 17, 30]))
    assert np.abs(forecast.to_numpy() - truth).mean() < 0.4
    pd.testing.assert_frame_equal(model.predict(frame.tail(24)), forecast)


def test_arrays_lists_and_batches_of_windows(fitted):
    model, frame = fitted
    x = frame.to_numpy()
    one = model.predict(x)
    assert one.shape == (6, 3)
    np.testing.assert_allclose(model.predict(frame).to_numpy(), one)
    many = model.predict(np.stack([x[:24], x[-24:]]))
    assert many.shape == (2, 6, 3)
    np.testing.assert_allclose(many[1], one, rtol=1e-5)
    listed = model.predict([frame.head(30), frame])
    assert [f.index[0] for f in listed] == [frame.index[30], frame.index[-1] + pd.Timedelta("1h")]
    np.testing.assert_allclose(model.predict(x.tolist()), one)


def test_predict_windows_are_the_windows_of_the_series(fitted):
    model, frame = fitted
    windows = model.predict_windows(frame)
    assert windows.shape == (400 - 24 - 6 + 1, 6, 3)
    for m in (0, 100, 370):
        np.testing.assert_allclose(windows[m], model.predict(frame.iloc[m : m + 24]), rtol=1e-4, atol=1e-4)


def test_evaluate_equals_the_formula(fitted):
    model, frame = fitted
    forecast = model.predict_windows(frame)
    truth = np.stack([frame.to_numpy()[m + 24 : m + 30] for m in range(371)])
    result = model.evaluate(frame)
    assert result.rse == pytest.approx(rse(truth, forecast))
    scale = model.model_.encoder.high - model.model_.encoder.low
    assert result.rse_scaled == pytest.approx(rse(truth / scale, forecast / scale))
    assert result.mae == pytest.approx(np.abs(truth - forecast).mean())
    assert result.rmse == pytest.approx(np.sqrt(((truth - forecast) ** 2).mean()))
    assert result.windows == 371
    for h in (1, 6):
        assert result.per_step.loc[h, "rse"] == pytest.approx(rse(truth[:, h - 1], forecast[:, h - 1]))
    assert result.per_channel.loc["b", "rse"] == pytest.approx(rse(truth[:, :, 1], forecast[:, :, 1]))
    assert result.per_channel.loc["b", "mae"] == pytest.approx(np.abs(truth - forecast)[:, :, 1].mean())
    assert model.score(frame) == pytest.approx(1 - result.rse**2)
    assert result.rse < 0.5
    assert str(result).startswith("RSE 0.")
    assert result.to_dict()["per_channel"]["c"]["rse"] == pytest.approx(result.per_channel.loc["c", "rse"])


@pytest.mark.parametrize("memory", [10**6, 10**5])
@pytest.mark.parametrize("make", [Forecaster, Forecaster.paper], ids=["direct", "paper"])
def test_predictions_do_not_depend_on_the_batch_size(fitted, make, memory):
    _, frame = fitted
    model = make(**SMALL, dtype="float64").fit(frame)
    expected, score = model.predict_windows(frame), model.evaluate(frame)
    model.model_ = dataclasses.replace(model.model_, memory=memory)
    # Matrix products of other sizes round differently, by 1e-15 here. In float64 no potential comes so near to the threshold
    # that this decides about a spike, which float32 could not promise on every processor.
    np.testing.assert_allclose(model.predict_windows(frame), expected, rtol=1e-6)
    assert model.evaluate(frame).rse == pytest.approx(score.rse, rel=1e-6)


def test_memory_does_not_change_the_model_and_too_little_is_refused(walk):
    whole, little = Forecaster(**SMALL).fit(walk), Forecaster(**SMALL, memory="1MB").fit(walk)
    assert whole.network_.readout.weights.shape == little.network_.readout.weights.shape
    wide = np.tile(walk, (1, 40))
    with pytest.raises(ValueError, match="memory: 120 channels and a horizon of 6 need about 0.* GB, got 0.2 GB"):
        Forecaster(**SMALL, memory="200MB").fit(wide)


def test_scaling_comes_from_the_training_windows_only(walk):
    spiked = walk.copy()
    spiked[-1] = 1e6  # inside the validation part
    model, other = small().fit(walk), small().fit(spiked)
    one, two = model.model_.encoder, other.model_.encoder
    for name in ("low", "high", "offset", "span"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    covered = int(371 * 0.8) + 1 + 24 + 6 - 1
    np.testing.assert_array_equal(one.high, walk[:covered].max(axis=0))


def test_clipping_keeps_a_runaway_channel_from_shouting_down_the_others(walk):
    run = walk.copy()
    run[-60:, 0] += 40
    clipped, open_ = small(clip=True).fit(walk), small().fit(walk)
    calm = clipped.predict(walk)
    assert (
        np.abs(clipped.predict(run)[:, 1:] - calm[:, 1:]).mean() < 0.5 * np.abs(open_.predict(run)[:, 1:] - calm[:, 1:]).mean()
    )


def test_units_do_not_matter(walk):
    forecast = small().fit(walk).predict(walk)
    np.testing.assert_allclose(small().fit(1000 * walk - 5).predict(1000 * walk - 5), 1000 * forecast - 5, rtol=1e-2)


def test_same_seed_same_forecast(walk):
    np.testing.assert_array_equal(small().fit(walk).predict(walk), small().fit(walk).predict(walk))
    assert not np.array_equal(small().fit(walk).predict(walk), small(random_state=1).fit(walk).predict(walk))


def test_float64_and_no_scaling(walk):
    unscaled = (walk - walk.min(axis=0)) / np.ptp(walk, axis=0)
    model = small(dtype="float64", scaling="none").fit(unscaled)
    assert model.network_.readout.weights.dtype == torch.float64
    assert model.evaluate(unscaled).rse < 0.5


def test_several_series_and_breaks_give_the_same_windows(walk):
    days = [walk[:150], walk[150:290], walk[290:]]
    by_list = small().fit(days)
    by_breaks = small().fit(walk, breaks=[150, 290])
    assert by_list.report_.samples == by_breaks.report_.samples == (121 + 111 + 81) - int(313 * 0.2)
    np.testing.assert_array_equal(by_list.predict(walk), by_breaks.predict(walk))
    assert by_list.evaluate(days).windows == by_list.evaluate(walk, breaks=[150, 290]).windows == 313
    assert by_list.predict_windows(walk, breaks=100).shape == (4 * 71, 6, 3)


def test_a_gap_in_the_time_index_is_a_break(walk):
    index = pd.date_range("2024-01-01", periods=500, freq="10min").delete(slice(200, 300))
    frame = pd.DataFrame(walk, index=index)
    assert small().fit(frame).report_.samples == (171 + 171) - int(342 * 0.2)
    with pytest.raises(ValueError, match="last 24 rows .* but only 10 follow the last gap, which ends at 2024-01-03"):
        small().fit(frame).predict(frame.iloc[:210])


@pytest.mark.parametrize("freq", ["MS", "B", "D"])
@pytest.mark.parametrize("known", [True, False])
def test_months_and_business_days_are_regular(walk, freq, known):
    index = pd.date_range("1980-01-01", periods=406, freq=freq)
    frame = pd.DataFrame(walk, index=index[:400] if known else pd.DatetimeIndex(list(index[:400])))
    model = small(hidden=(10,)).fit(frame)
    assert model.report_.samples == 371 - int(371 * 0.2)
    assert list(model.predict(frame).index) == list(index[400:])


def test_times_that_go_back_are_refused(walk):
    frame = pd.DataFrame(walk, index=pd.date_range("2024-01-01", periods=400, freq="h"))
    with pytest.raises(ValueError, match="times must increase, but row 1 "):
        small().fit(frame.iloc[::-1])


def test_pandas_series_one_channel_and_integer_index(walk):
    model = small().fit(pd.Series(walk[:, 0], name="load"))
    forecast = model.predict(pd.Series(walk[:, 0], name="load"))
    assert forecast.shape == (6, 1) and list(forecast.index) == list(range(400, 406))
    assert small().fit(walk[:, 0]).predict(walk[:, 0]).shape == (6, 1)


def test_stride_uses_every_so_many_windows(walk):
    model = small(readout=Trajectory(stride=4)).fit(walk)
    assert model.report_.samples + model.report_.validation_samples == int(np.ceil(371 / 4))


def test_constant_channels_work_with_a_warning(walk):
    frame = pd.DataFrame(walk, columns=["a", "b", "c"]).assign(dead=3.5, zero=0.0)
    with pytest.warns(UserWarning, match="2 of 5 channels are constant in the training windows \\('dead', 'zero'\\)"):
        model = small().fit(frame)
    forecast = model.predict(frame)
    np.testing.assert_allclose(forecast["dead"], 3.5, atol=1e-5)
    np.testing.assert_allclose(forecast["zero"], 0, atol=1e-5)
    result = model.evaluate(frame)
    assert np.isnan(result.per_channel.loc["dead", "rse"])
    assert result.rse < 0.5
    assert result.to_dict()["per_channel"]["dead"]["rse"] is None


def test_missing_values(walk):
    holes = walk.copy()
    holes[50:53, 1] = np.nan
    holes[-1, 0] = np.nan
    with pytest.raises(
        ValueError, match=r"holds NaN \(4 of 1200 values, first in row 50, channel 1\). Fit with missing='interpolate'"
    ):
        small().fit(holes)
    model = small(missing="interpolate").fit(holes)
    filled = holes.copy()
    filled[50:53, 1] = np.interp([50, 51, 52], [49, 53], walk[[49, 53], 1])
    filled[-1, 0] = filled[-2, 0]
    np.testing.assert_array_equal(model.predict(holes), small().fit(filled).predict(filled))
    assert np.isnan(holes).sum() == 4  # the user's array is left alone


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            lambda x: np.where(x == x[7, 2], np.inf, x),
            {},
            r"holds infinity \(1 of 1200 values, first in row 7, channel 2\)",
        ),
        (lambda x: np.full_like(x, np.nan), {"missing": "interpolate"}, "channel 0 has no values but NaN"),
        (lambda x: x[:20], {}, "series: too short. A window and its horizon take 24 \\+ 6 rows"),
        (lambda x: x[:0], {}, "series: too short"),
        (lambda x: x[:, :0], {}, r"0 feature\(s\) \(shape=\(400, 0\)\) while a minimum of 1"),
        (lambda x: x + 1j, {}, "Complex data not supported"),
        (lambda x: np.full(x.shape, "a"), {}, "series must be numbers"),
        (lambda x: pd.DataFrame(x).assign(name="wind"), {}, "all columns must be numbers, but 'name' is of type"),
        (lambda x: [x, x[:, :2]], {}, "all series must have the same channels"),
        (lambda x: [], {}, "series"),
        (lambda x: x, {"horizon": 0}, "horizon must be a whole number >= 1, got 0"),
        (lambda x: x, {"window": 2.5}, "window must be a whole number >= 1, got 2.5"),
        (lambda x: x, {"validation": 0}, "validation must be a number between 0 and 1"),
        (lambda x: x, {"steps": Steps(weights="dott")}, "weights: unknown name 'dott'. Did you mean 'dot'"),
        (lambda x: x, {"steps": "papr"}, "steps: unknown name 'papr'. Did you mean 'paper'"),
        (lambda x: x, {"kernel": "gauss"}, "kernel: unknown name 'gauss'. Valid names: 'hat'"),
        (lambda x: x, {"kernel": ()}, "kernel: needs at least one kernel"),
        (lambda x: x, {"scaling": "z"}, "scaling: unknown name 'z'. Valid names: 'adaptive', .*'none'"),
        (lambda x: x, {"missing": "drop"}, "missing must be one of 'error', 'interpolate', got 'drop'"),
        (lambda x: x, {"missing": "interpolat"}, "got 'interpolat'. Did you mean 'interpolate'"),
        (lambda x: x, {"dtype": "half"}, "dtype must be one of 'float32', 'float64', got 'half'"),
        (lambda x: x, {"training": "gradients"}, "training: unknown name 'gradients'. Did you mean 'gradient'"),
        (lambda x: x, {"memory": "much"}, "memory must be a size such as"),
        (lambda x: x, {"random_state": -1}, "random_state must be a whole number >= 0, got -1"),
        (lambda x: x, {"hidden": 750}, r"hidden must list one width per hidden layer, such as \(750,\)"),
        (lambda x: x, {"hidden": ()}, r"hidden must list one width per hidden layer, such as \(750,\), got \(\)"),
        (lambda x: x, {"hidden": (2.5,)}, "hidden must be a whole number >= 1, got 2.5"),
    ],
)
def test_bad_input_is_refused(walk, data, options, message):
    model = small(**options)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(data(walk))
    with pytest.raises(NotFittedError):
        model.predict(walk)


def test_a_fit_that_fails_loses_nothing(fitted):
    model, frame = fitted
    expected = model.predict(frame)
    with pytest.raises(ValueError, match="holds NaN"):
        model.fit(frame.mask(frame > 11))
    too_many = clone(model).fit(frame).set_params(hidden=(50_000,))
    with pytest.raises(ValueError, match=r"hidden: 50000 neurons on .* steps need about .* GB, but memory is 2 GB. Use fewer"):
        too_many.fit(frame.iloc[:100])
    pd.testing.assert_frame_equal(model.predict(frame), expected)
    pd.testing.assert_frame_equal(too_many.predict(frame), expected)


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"window": 0}, lambda x: x),
        ({"steps": "papr", "validation": 3}, lambda x: x),
        ({"hidden": (50_000,)}, lambda x: x[:100]),
        ({"kernel": "gauss"}, lambda x: x[:, :2]),
        ({"memory": "1KB"}, lambda x: x),
        ({}, lambda x: np.where(x > 11, np.nan, x)),
        ({}, lambda x: x[:, :2][:20]),
        ({"kernel": lambda v: v * np.nan}, lambda x: x[:, :1]),
    ],
)
def test_a_refit_that_fails_keeps_the_whole_model(walk, options, data):
    model = Forecaster(**SMALL).fit(walk)
    before, expected, summary = model.model_, model.predict_windows(walk), str(model.summary())
    with pytest.raises((ValueError, TypeError)):
        model.set_params(**options).fit(data(walk))
    assert model.model_ is before and str(model.summary()) == summary
    np.testing.assert_array_equal(model.predict_windows(walk), expected)


@pytest.mark.parametrize("breaks", [0, -3, [0], [400], 1.5])
def test_bad_breaks_are_refused(walk, breaks):
    with pytest.raises(ValueError, match="breaks must be"):
        small().fit(walk, breaks=breaks)


def test_other_channels_at_predict_than_at_fit(fitted):
    model, frame = fitted
    with pytest.raises(ValueError, match="X has 2 features, but Forecaster is expecting 3 features"):
        model.predict(frame[["a", "b"]])
    with pytest.raises(ValueError, match="but 'c' came where 'a' was"):
        model.predict(frame[["c", "b", "a"]])
    with pytest.raises(ValueError, match="needs the last 24 rows"):
        model.predict(frame.tail(23))
    with pytest.raises(ValueError, match="too short to test on. .* 24 \\+ 6 rows without a gap, the longest segment has 29"):
        model.evaluate(frame.tail(29))


@pytest.mark.parametrize("method", ["predict", "predict_windows", "evaluate", "score"])
def test_before_fit(method, walk):
    with pytest.raises(NotFittedError, match="This Forecaster instance is not fitted yet"):
        getattr(small(), method)(walk)
    with pytest.raises(NotFittedError):
        small().summary()


def test_clone_and_set_params_take_effect(walk):
    model = small(steps=Steps(temporal=TemporalGrid(max_support=20)))
    copy = clone(model).set_params(hidden=(10,), steps__normalizer=MeanStd(0.3, 0.4))
    assert copy.get_params()["steps__temporal"] == TemporalGrid(max_support=20)
    assert copy.steps == Steps(temporal=TemporalGrid(max_support=20), normalizer=MeanStd(0.3, 0.4))
    copy.fit(walk)
    assert copy.network_.hidden == (10,) and model.hidden == (40,) and model.steps.normalizer == "mean-std"


def test_grid_search(walk):
    search = GridSearchCV(small(), {"hidden": [(5,), (40,)], "steps__weights": ["dot", "random"]}, cv=TimeSeriesSplit(2))
    search.fit(walk)
    assert search.best_params_["hidden"] == (40,)
    assert search.best_score_ > 0.5
    assert search.best_estimator_.steps == Steps(weights=search.best_params_["steps__weights"])
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all() and len(set(scores)) == 4  # each choice had an effect


def test_summary_tells_what_happened(fitted):
    model, _ = fitted
    text, data = str(model.summary()), model.summary().to_dict()
    for word in ("hidden 1", "Morlet", "silent", "saturated", "delay", "support", "lambda", "output weights", "MiB"):
        assert word in text
    assert data["layers"][0]["neurons"] == 40 and data["layers"][0]["silent"] == 0
    assert data["parameters"] == sum(p.numel() for p in model.network_.parameters())
    assert [s["name"] for s in data["steps"]][:2] == ["initial batch", "layer 1: pairs"]
    assert data["samples"] == model.report_.samples


def test_baselines_know_the_truth_they_should(walk):
    line = np.arange(100.0)[:, None] * np.array([1.0, -2.0])
    result = Persistence(5, 3).evaluate(line)
    assert result.per_channel["mae"].tolist() == [2.0, 4.0]
    assert RidgeOnLags(5, 3).fit(line[:60]).evaluate(line[60:]).rse < 1e-2


# --- options inside options ----------------------------------------------------------------------------------------


def test_there_are_few_parameters():
    for estimator in (Forecaster, Classifier):
        assert len(inspect.signature(estimator).parameters) <= 20


OURS = {"temporal": "spread", "pairs": "spread", "normalizer": "diverse", "span": "window"}


@pytest.mark.parametrize("steps", ["forecast", STEPS["forecast"], Steps(**OURS)])
def test_set_params_reaches_inside_the_steps(walk, steps):
    before = STEPS["forecast"]
    model = Forecaster(**SMALL, steps=steps).set_params(steps__weights="random")
    assert model.steps == before.replace(weights="random") and model.get_params()["steps__weights"] == "random"
    assert STEPS["forecast"] == before and before.weights == "dot"  # the named steps stay as they are
    same = Forecaster(**SMALL, steps=Steps(**OURS, weights=RandomWeights()))
    expected = same.fit(walk).predict(walk)
    np.testing.assert_array_equal(model.fit(walk).predict(walk), expected)
    np.testing.assert_array_equal(clone(model).fit(walk).predict(walk), expected)
    assert not np.array_equal(expected, Forecaster(**SMALL).fit(walk).predict(walk))


@pytest.mark.parametrize("readout", ["direct", Direct(), Direct(common=False)])
def test_set_params_reaches_inside_the_readout(walk, readout):
    given = Direct() if readout == "direct" else readout
    model = Forecaster(**SMALL, readout=readout).set_params(readout__skip=True, readout__population=16)
    assert model.readout == given.replace(skip=True, population=16) and model.readout.common == given.common
    assert given.skip is False and given.population is None
    fitted, before = (m.fit(walk).network_.readout for m in (model, Forecaster(**SMALL, readout=readout)))
    assert (fitted.skip, fitted.population.neurons) == (True, 16)
    assert before.skip is False and before.population.neurons >= 64
    assert (fitted.sizes.common > 0) == (before.sizes.common > 0) == given.common


def test_set_params_reaches_inside_scaling_and_training():
    model = Forecaster(training="sample+gradient").set_params(training__epochs=3, scaling__kind="window", scaling__clip=False)
    assert model.training == Gradient(epochs=3) and model.scaling == Scaling("window", clip=False)


def test_an_object_and_what_is_inside_it_can_be_set_together():
    for names in (("readout", "readout__stride"), ("readout__stride", "readout")):
        values = {"readout": "trajectory", "readout__stride": 4}
        assert Forecaster().set_params(**{name: values[name] for name in names}).readout == Trajectory(stride=4)


def test_deep_parameters_are_those_of_all_objects():
    deep, flat = Forecaster.paper().get_params(), Forecaster.paper().get_params(deep=False)
    assert set(flat) == set(inspect.signature(Forecaster).parameters)
    inside = {f"steps__{f.name}" for f in dataclasses.fields(Steps)}
    inside |= {f"readout__{f.name}" for f in dataclasses.fields(Trajectory)}
    inside |= {f"scaling__{f.name}" for f in dataclasses.fields(Scaling)}
    assert set(deep) - set(flat) == inside  # without training there is nothing inside it
    for name, value in deep.items():
        assert Forecaster.paper().set_params(**{name: value}).get_params()[name] == value


def test_grid_search_reaches_inside(walk):
    grid = {"steps__weights": ["dot", "random"], "readout__skip": [True, False]}
    search = GridSearchCV(Forecaster(**SMALL), grid, cv=TimeSeriesSplit(2), error_score="raise").fit(walk)
    best = search.best_estimator_
    assert {"steps__weights": best.steps.weights, "readout__skip": best.readout.skip} == search.best_params_
    assert best.network_.readout.skip == search.best_params_["readout__skip"]
    assert len(set(search.cv_results_["mean_test_score"])) == 4  # each choice had an effect


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"hiden": (3,)},
            "Forecaster has no parameter 'hiden'. Did you mean 'hidden'. Valid names: 'channels', 'covariates', ",
        ),
        ({"step__weights": "dot"}, "Forecaster has no parameter 'step'. Did you mean 'steps'"),
        ({"steps__weigths": "dot"}, "Steps has no option 'weigths'. Did you mean 'weights'. Valid names: 'temporal', "),
        ({"readout__skp": True}, "Direct has no option 'skp'. Did you mean 'skip'. Valid names: 'skip', 'population', "),
        ({"scaling__clp": True}, "Scaling has no option 'clp'. Did you mean 'clip'"),
        ({"scaling__kind": "windw"}, "scaling must be one of .*, got 'windw'. Did you mean 'window'"),
        ({"training__epochs": 3}, "training: None has no options to set. Set training to an object first"),
        ({"hidden__first": 3}, r"hidden: \(20,\) has no options to set"),
        ({"readout": "late", "readout__skip": True}, "readout: 'late' has no options to set"),
    ],
)
def test_unknown_parameters_are_named_with_the_nearest_valid_one(params, message):
    with pytest.raises(ValueError, match=message):
        Forecaster().set_params(**params)


WRONG = {
    "window": (0, "window must be a whole number >= 1, got 0."),
    "horizon": (2.5, "horizon must be a whole number >= 1, got 2.5."),
    "hidden": (750, "hidden must list one width per hidden layer, such as (750,), got 750."),
    "kernel": ("gauss", "kernel: unknown name 'gauss'. "),
    "readout": ("late", "readout: unknown name 'late'. "),
    "steps": (Steps(weights="dott"), "weights: unknown name 'dott'. Did you mean 'dot'? "),
    "channels": ("both", "channels must be one of 'shared', 'joint', got 'both'."),
    "scaling": ("windoww", "scaling: unknown name 'windoww'. Did you mean 'window'? "),
    "validation": (1.5, "validation must be a number between 0 and 1 (both excluded), got 1.5."),
    "training": ("much", "training: unknown name 'much'. "),
    "missing": ("drop", "missing must be one of 'error', 'interpolate', got 'drop'."),
    "dtype": ("half", "dtype must be one of 'float32', 'float64', got 'half'."),
    "device": ("absurd", "device must be the name of a device, such as 'cpu' or 'cuda', got 'absurd'."),
    "memory": ("much", 'memory must be a size such as "2GB" or "500MB", got \'much\'.'),
    "random_state": (-1, "random_state must be a whole number >= 0, got -1."),
}


def test_all_mistakes_are_reported_at_once(walk):
    with pytest.raises(ValueError) as error:
        Forecaster(**{name: value for name, (value, _) in WRONG.items()}).fit(walk)
    first, *lines = str(error.value).split("\n")
    assert first == f"{len(WRONG)} mistakes:"
    for _, message in WRONG.values():
        assert sum(line.startswith(f"- {message}") for line in lines) == 1, message


@pytest.mark.parametrize("name", WRONG)
def test_one_mistake_is_reported_as_it_is(walk, name):
    value, message = WRONG[name]
    with pytest.raises((ValueError, TypeError)) as error:
        Forecaster(**{"verbose": 0, name: value}).fit(walk)
    assert str(error.value).startswith(message)


def test_a_generator_is_drawn_from_once(walk):
    given, expected = np.random.default_rng(5), np.random.default_rng(5)
    seed = int(expected.integers(2**31))
    forecast = Forecaster(**SMALL | {"random_state": given}).fit(walk).predict(walk)
    assert given.bit_generator.state == expected.bit_generator.state
    np.testing.assert_array_equal(forecast, Forecaster(**SMALL | {"random_state": seed}).fit(walk).predict(walk))


def test_all_mistakes_inside_steps_are_reported_at_once(walk):
    steps = Steps(temporal="gird", weights="dott", initial_batch=1, depth="deep")
    with pytest.raises(ValueError, match=r"^4 mistakes:\n- temporal: .*'grid'.*\n- weights: .*'dot'.*\n- depth: .*\n- initial"):
        Forecaster(steps=steps).fit(walk)


# --- what predictions depend on ------------------------------------------------------------------------------------


def answers(model, frame, folder):
    """Return all that a fitted forecaster says about a series, as exact values."""

    def exact(value):
        return np.asarray(value).tobytes()

    found = {
        "predict": exact(model.predict(frame)),
        "predict_windows": exact(model.predict_windows(frame)),
        "evaluate": str(model.evaluate(frame).to_dict()),
        "score": model.score(frame),
        "summary": str(model.summary()),
    }
    stream = model.stream()
    found["stream"] = [exact(y) for row in frame.tail(26).to_numpy() if (y := stream(row)) is not None]
    try:
        found["predict_interval"] = [exact(bound) for bound in model.predict_interval(frame)]
    except ValueError as error:  # the paper's readout has none
        found["predict_interval"] = str(error)
    model.save(folder / "m.sswim")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "load: .* was an object of your own")
        loaded = Forecaster.load(folder / "m.sswim")
    found["load"] = (exact(loaded.predict(frame)), exact(loaded.predict_windows(frame)), str(loaded.evaluate(frame).to_dict()))
    return found


@pytest.fixture(scope="module", params=[Forecaster, Forecaster.paper], ids=["direct", "paper"])
def answered(request, fitted, tmp_path_factory):
    _, frame = fitted
    model, later = request.param(**SMALL, covariates=("c",)).fit(frame), frame.tail(90)
    return model, later, answers(model, later, tmp_path_factory.mktemp("models"))


OTHER = {
    "window": 5,
    "horizon": 2,
    "hidden": (7, 7),
    "kernel": "alpha",
    "readout": Direct(skip=True, traces=(3.0,)),
    "steps": Steps(weights="random"),
    "channels": "joint",
    "covariates": (),
    "known": (1,),
    "scaling": Scaling("none", clip=False),
    "validation": 0.5,
    "training": "gradient",
    "profile": "nir",
    "missing": "interpolate",
    "dtype": "float64",
    "device": "meta",
    "memory": 10**6,
    "executor": 2,
    "random_state": 7,
    "verbose": 3,
}


def test_other_values_are_of_all_parameters():
    assert set(OTHER) == set(Forecaster().get_params(deep=False))


@pytest.mark.parametrize("name", Forecaster().get_params(deep=False))
def test_predictions_streams_and_files_depend_on_the_fitted_state_only(answered, name, tmp_path):
    model, frame, expected = answered
    before = getattr(model, name)
    try:
        for value in (OTHER[name], "absurd", None, object()):
            assert answers(model.set_params(**{name: value}), frame, tmp_path) == expected, value
    finally:
        setattr(model, name, before)


def test_a_stream_says_what_predict_says_and_forgets_what_lies_before_the_window(answered):
    model, frame, _ = answered
    stream, rows = model.stream(), frame.to_numpy()
    for t, row in enumerate(rows[:40], 1):
        forecast = stream(row)
        assert stream.rows == t and (forecast is None) == (t < 24)
        if forecast is not None:
            np.testing.assert_array_equal(forecast, model.predict(rows[:t]))
            np.testing.assert_array_equal(forecast, model.predict(np.concatenate([-5 * rows[40:], rows[t - 24 : t]])))


def test_a_stream_checks_its_rows_and_keeps_its_state(answered):
    model, frame, _ = answered
    stream, rows = model.stream(), frame.to_numpy()
    for row in rows[:30]:
        stream(row)
    with pytest.raises(ValueError, match=r"row must hold 3 channels, got shape \(2,\)"):
        stream(rows[30, :2])
    with pytest.raises(ValueError, match="row must be finite, but holds nan in column"):
        stream([1.0, np.nan, 2.0])
    np.testing.assert_array_equal(stream(rows[30]), model.predict(rows[:31]))


def test_missing_values_are_treated_as_at_fit(fitted):
    _, frame = fitted
    holes = frame.mask(frame > 11)
    assert holes.isna().any(axis=None)
    refusing, filling = Forecaster(**SMALL).fit(frame), Forecaster(**SMALL, missing="interpolate").fit(holes)
    expected = filling.predict(holes)
    pd.testing.assert_frame_equal(filling.set_params(missing="error").predict(holes), expected)
    with pytest.raises(ValueError, match="holds NaN"):
        refusing.set_params(missing="interpolate").predict(holes)


# --- scikit-learn's own checks -------------------------------------------------------------------------------------

SERIES_NOT_SAMPLES = "rows are time steps of one series, not samples: predict returns `horizon` rows, not one per row"
EXPECTED = {
    "check_methods_sample_order_invariance": SERIES_NOT_SAMPLES,
    "check_methods_subset_invariance": SERIES_NOT_SAMPLES,
    "check_fit1d": "a 1-d array is welcome: it is a series of one channel",
    "check_fit2d_predict1d": "a 1-d array is a series of one channel; the error speaks of channels, not of reshaping",
}


def expected_failures(estimator):
    return EXPECTED


@parametrize_with_checks(
    [Forecaster(window=3, horizon=1, hidden=(2,), verbose=0, random_state=0)], expected_failed_checks=expected_failures
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def test_set_params_changes_all_or_nothing():
    model = small()
    with pytest.raises(ValueError, match="no parameter 'hiden'. Did you mean 'hidden'"):
        model.set_params(window=3, hiden=(1,))
    with pytest.raises(ValueError, match="Trajectory has no option 'skip'"):
        model.set_params(window=3, readout__skip=True)
    assert model.window == 24


@pytest.mark.parametrize("covariates", ["a", None, 3])
def test_covariates_must_be_a_sequence(walk, covariates):
    with pytest.raises(TypeError, match=r"covariates must be a sequence of columns, such as \['hour'\], got"):
        small(covariates=covariates).fit(walk)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": Counts()}, "readout must be one of the names 'direct', 'traces', 'trajectory', or a Direct or"),
        ({"scaling": Steps()}, "scaling must be one of the names .*, or a Scaling object"),
        ({"training": 3}, "training must be one of the names 'gradient', 'sample.gradient', or a Gradient object, got 3"),
    ],
)
def test_an_option_of_another_kind_is_refused(walk, options, message):
    with pytest.raises(TypeError, match=message):
        small(**options).fit(walk)
