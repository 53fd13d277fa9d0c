"""Baselines: what they are compared with the definition or scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from sswim.evaluate import Persistence, RidgeOnLags, SeasonalNaive

WINDOW, HORIZON = 8, 3


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


@pytest.mark.parametrize("shared", [True, False])
def test_ridge_is_that_of_scikit_learn_with_the_penalty_of_least_validation_error(rows, shared):
    model = RidgeOnLags(WINDOW, HORIZON, shared=shared, validation=0.25).fit(rows)
    x, y = cut(rows)
    kept = len(x) - int(len(x) * 0.25)
    seen = rows[: kept + WINDOW + HORIZON - 1]
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    spread = np.maximum(spread, 0.1 * np.median(spread))
    a, b = (x - mean) / spread, (y - mean) / spread

    def rows_of(values, channels):
        return np.concatenate([values[:, :, c] for c in channels])

    expected = np.empty_like(y)
    for channels in ([0, 1, 2],) if shared else ([0], [1], [2]):
        errors = {}
        for lambda_ in np.logspace(-8, 1, 19):
            fit = Ridge(alpha=lambda_ * kept * len(channels)).fit(rows_of(a[:kept], channels), rows_of(b[:kept], channels))
            errors[lambda_] = ((fit.predict(rows_of(a[kept:], channels)) - rows_of(b[kept:], channels)) ** 2).sum()
        best = min(errors, key=errors.get)
        fit = Ridge(alpha=best * len(x) * len(channels)).fit(rows_of(a, channels), rows_of(b, channels))
        for c in channels:
            expected[:, :, c] = fit.predict(a[:, :, c]) * spread[c] + mean[c]
    np.testing.assert_allclose(model.forecast(x), expected, rtol=1e-6, atol=1e-6 * np.abs(rows).max())
