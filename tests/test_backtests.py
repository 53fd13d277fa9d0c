"""Back-tests in one pass: each test part sees what a model sees that is solved for anew from the rows before it."""

import copy

import numpy as np
import pytest

from sswim import Direct, Forecaster, Trajectory
from sswim.backtests import in_blocks
from sswim.datasets import load_wind_farm

WIND = load_wind_farm().iloc[:1600, :3]
SETTINGS = {"random_state": 0, "verbose": 0, "dtype": "float64"}


@pytest.fixture(scope="module", params=["direct", "trajectory"])
def fitted(request):
    readout = Direct() if request.param == "direct" else Trajectory(assembly="exact")
    return Forecaster(24, 6, hidden=(15,), readout=readout, **SETTINGS).fit(WIND.iloc[:600])


def naive(model, row, rows=WIND):
    """Return the test part's forecasts by a model that is solved for anew."""
    part = rows.iloc[int(row.test_first) - 24 : int(row.test_last)]
    again = copy.deepcopy(model).refit(rows.iloc[int(row.train_first) : int(row.train_last)])
    return np.concatenate([f for _, f in again.model_.backtest(part)]), again.evaluate(part)


def forecasts_of(found, row, rows=WIND):
    inside = rows.index[int(row.test_first) - 1 : int(row.test_last)]
    chosen = found.forecasts[found.forecasts.index.get_level_values("cutoff").isin(inside)]
    cutoffs = [
        c for c in chosen.index.get_level_values("cutoff").unique() if c + 6 * (rows.index[1] - rows.index[0]) <= inside[-1]
    ]
    return np.stack([chosen.loc[c].to_numpy() for c in cutoffs])


def test_every_part_is_forecast_as_after_a_refit(fitted):
    found = fitted.cross_validate(WIND, folds=4, start=0.4, stride=1)
    assert len(found.folds) == 4 and (found.folds.train_last == found.folds.test_first).all()
    for _, row in found.folds.iterrows():
        expected, errors = naive(fitted, row)
        np.testing.assert_allclose(forecasts_of(found, row), expected, atol=1e-8 * np.abs(expected).max())
        assert row.rmse == pytest.approx(errors.rmse, rel=1e-8) and row.rse == pytest.approx(errors.rse, rel=1e-8)
    rows = found.folds
    counts = rows.test_last - rows.test_first - 6 + 1
    assert found.evaluation.rmse**2 == pytest.approx(float((rows.rmse**2 * counts).sum() / counts.sum()), rel=1e-9)
    assert found.evaluation.windows == counts.sum()


@pytest.mark.parametrize(("train", "folds"), [(500, 6), (300, 20), (200, 3)])
def test_old_rows_are_taken_out_of_the_sums(train, folds):
    model = Forecaster(24, 6, hidden=(10,), readout=Direct(blocks=4), **SETTINGS).fit(WIND.iloc[:600])
    found = model.cross_validate(WIND, folds=folds, train=train)
    known = found.folds.train_last - found.folds.train_first
    assert (known >= train - 1).all() and (known <= 1.5 * train).all()
    laid_out = copy.deepcopy(model)
    laid_out.model_ = in_blocks(model.model_, train)
    for _, row in found.folds.iterrows():
        expected, errors = naive(laid_out, row)
        assert row.rmse == pytest.approx(errors.rmse, rel=1e-8), row


def test_the_output_may_be_solved_for_less_often(fitted):
    found = fitted.cross_validate(WIND, folds=4, refit=2)
    assert found.folds.train_last.tolist() == [800, 800, 1200, 1200]


def test_an_unfitted_model_learns_from_the_first_part_alone_and_stays_unfitted():
    model = Forecaster(24, 6, hidden=(10,), **SETTINGS)
    found = model.cross_validate(WIND.to_numpy(), folds=2, start=0.6)
    assert not hasattr(model, "model_") and found.forecasts.shape[1:] == (6, 3)
    first = Forecaster(24, 6, hidden=(10,), **SETTINGS).fit(WIND.to_numpy()[:960])
    assert found.folds.rmse[0] == pytest.approx(first.evaluate(WIND.to_numpy()[936:1280]).rmse, rel=1e-8)
    assert "rmse" in str(found)


def test_what_cannot_be_tested_is_refused(fitted):
    for options, error in (
        ({"folds": 0}, "folds"),
        ({"start": 1.5}, "start"),
        ({"folds": 400}, "too short"),
        ({"refit": 0}, "refit"),
        ({"train": 30}, "train"),
        ({"stride": 0}, "stride"),
    ):
        with pytest.raises(ValueError, match=error):
            fitted.cross_validate(WIND, **options)
    with pytest.raises(ValueError, match="without a gap"):
        fitted.cross_validate(WIND.drop(WIND.index[900:910]))
