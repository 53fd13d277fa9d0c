"""Baselines: compared with their definition, written out slowly, and with scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from sswim.evaluate import DLinear, NLinear, Persistence, RidgeOnLags, SeasonalNaive, baselines
from sswim.evaluate.baselines import LinearBaseline

WINDOW, HORIZON, KERNEL = 8, 3, 5


@pytest.fixture
def rows(generator):
    rng = np.random.default_rng(0)
    return rng.standard_normal((200, 3)).cumsum(axis=0) * [1, 10, 100] + 5


def cut(rows):
    """All windows and what follows them."""
    view = np.lib.stride_tricks.sliding_window_view(rows, WINDOW + HORIZON, axis=0).transpose(0, 2, 1)
    return view[:, :WINDOW], view[:, WINDOW:]


def test_naive_forecasts_repeat(rows):
    x, _ = cut(rows)
    np.testing.assert_array_equal(Persistence(WINDOW, HORIZON).forecast(x), np.repeat(x[:, -1:], HORIZON, axis=1))
    season = SeasonalNaive(WINDOW, HORIZON, 4).forecast(x)
    np.testing.assert_array_equal(season, x[:, 4:7])
    short = SeasonalNaive(WINDOW, HORIZON, 2).forecast(x)
    np.testing.assert_array_equal(short, x[:, [6, 7, 6]])
    np.testing.assert_array_equal(SeasonalNaive(WINDOW, HORIZON, 9).forecast(x), np.repeat(x[:, -1:], HORIZON, axis=1))


def no_level(a):
    return np.zeros_like(a[:, :1])


def lags(a):
    return a


def trend_and_remainder(a):
    """Return (windows, 2 window, channels): a moving average with both ends repeated, and what it leaves."""
    half = KERNEL // 2
    padded = np.pad(a, ((0, 0), (half, half), (0, 0)), mode="edge")
    trend = np.stack([padded[:, t : t + KERNEL].mean(axis=1) for t in range(WINDOW)], axis=1)
    return np.concatenate([trend, a - trend], axis=1)


# Each linear baseline: how it is made, the level that it subtracts, and its features.
VARIANTS = {
    "ridge": (RidgeOnLags, {}, no_level, lags),
    "ridge, last": (RidgeOnLags, {"relative": "last"}, lambda a: a[:, -1:], lags),
    "ridge, mean": (RidgeOnLags, {"relative": "mean"}, lambda a: a.mean(axis=1, keepdims=True), lags),
    "NLinear": (NLinear, {}, lambda a: a[:, -1:], lags),
    "DLinear": (DLinear, {"kernel": KERNEL}, no_level, trend_and_remainder),
}


def test_the_table_holds_all_linear_baselines():
    public = {getattr(baselines, name) for name in baselines.__all__}
    linear = {kind for kind in public if issubclass(kind, LinearBaseline)} - {LinearBaseline}
    assert linear == {kind for kind, *_ in VARIANTS.values()}


def literal(rows, shared, level, features, validation):
    """Return the forecasts of all windows by scikit-learn's ridge, with the penalty of the least validation error."""
    x, y = cut(rows)
    kept = len(x) - int(len(x) * validation)
    seen = rows[: kept + WINDOW + HORIZON - 1]
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    spread = np.maximum(spread, 0.1 * np.median(spread))
    a, b = (x - mean) / spread, (y - mean) / spread
    base = level(a)
    a, b = features(a - base), b - base

    def rows_of(values, channels):
        return np.concatenate([values[:, :, c] for c in channels])

    forecasts = np.empty_like(y)
    for channels in ([0, 1, 2],) if shared else ([0], [1], [2]):
        errors = {}
        for lambda_ in np.logspace(-8, 1, 19):
            fit = Ridge(alpha=lambda_ * kept * len(channels)).fit(rows_of(a[:kept], channels), rows_of(b[:kept], channels))
            errors[lambda_] = ((fit.predict(rows_of(a[kept:], channels)) - rows_of(b[kept:], channels)) ** 2).sum()
        best = min(errors, key=errors.get)
        fit = Ridge(alpha=best * len(x) * len(channels)).fit(rows_of(a, channels), rows_of(b, channels))
        for c in channels:
            forecasts[:, :, c] = (fit.predict(a[:, :, c]) + base[:, :, c]) * spread[c] + mean[c]
    return forecasts


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", VARIANTS)
def test_linear_baselines_are_the_ridge_of_scikit_learn_with_the_penalty_of_least_validation_error(rows, name, shared):
    kind, options, level, features = VARIANTS[name]
    model = kind(WINDOW, HORIZON, shared=shared, validation=0.25, **options).fit(rows)
    expected = literal(rows, shared, level, features, 0.25)
    np.testing.assert_allclose(model.forecast(cut(rows)[0]), expected, rtol=1e-6, atol=1e-6 * np.abs(rows).max())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", VARIANTS)
def test_small_batches_equal_large_ones(rows, name, shared, monkeypatch):
    kind, options, *_ = VARIANTS[name]

    def run():
        model = kind(WINDOW, HORIZON, shared=shared, **options).fit(rows[:150])
        return model.forecast(cut(rows)[0]), model.evaluate(rows[150:]).to_dict()

    whole, errors = run()
    monkeypatch.setattr(baselines, "BATCH", 7 * 3 * (WINDOW + HORIZON))
    parts, same = run()
    np.testing.assert_allclose(parts, whole, rtol=1e-6, atol=1e-6 * np.abs(rows).max())
    assert same["rse"] == pytest.approx(errors["rse"], rel=1e-6) and same["windows"] == errors["windows"]


@pytest.mark.parametrize("relative", ["last", "mean"])
def test_relative_forecasts_move_with_the_window(rows, relative):
    model = RidgeOnLags(WINDOW, HORIZON, relative=relative).fit(rows)
    x, _ = cut(rows)
    np.testing.assert_allclose(model.forecast(x + 1000), model.forecast(x) + 1000, rtol=1e-9)


def test_nlinear_and_dlinear_share_their_weights_by_default_as_published(rows):
    assert NLinear(WINDOW, HORIZON).shared and NLinear(WINDOW, HORIZON).relative == "last"
    assert DLinear(WINDOW, HORIZON).shared and DLinear(WINDOW, HORIZON).kernel == 25
    weights = DLinear(WINDOW, HORIZON).fit(rows).weights
    assert torch.equal(weights[0], weights[2])


def test_channels_are_scaled_alike_only_if_their_training_range_is_known(rows):
    train, test = rows[:120], rows[120:]
    text = str(Persistence(WINDOW, HORIZON).evaluate(test))
    assert "scaled alike" not in text and text.startswith("RSE 0.")
    assert Persistence(WINDOW, HORIZON).evaluate(test).to_dict()["rse_scaled"] is None
    model = RidgeOnLags(WINDOW, HORIZON, validation=0.25).fit(train)
    x, y = cut(train)
    seen = train[: len(x) - int(len(x) * 0.25) + WINDOW + HORIZON - 1]
    scale = seen.max(axis=0) - seen.min(axis=0)
    x, y = cut(test)
    error, around = (model.forecast(x) - y) / scale, (y - y.mean(axis=0)) / scale
    result = model.evaluate(test)
    assert result.rse_scaled == pytest.approx(np.sqrt((error**2).sum() / (around**2).sum()))
    assert f"(channels scaled alike {result.rse_scaled:.4f})" in str(result)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="relative must be one of 'last', 'mean', got 'first'."):
        RidgeOnLags(WINDOW, HORIZON, relative="first")
    with pytest.raises(ValueError, match="kernel must be odd, so that the moving average has a middle, got 24."):
        DLinear(WINDOW, HORIZON, kernel=24)
