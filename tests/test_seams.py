"""Where two features meet: what is known ahead, gaps, resting columns, streams, threads, pictures."""

import numpy as np
import pandas as pd
import pytest
import torch

from sswim import Forecaster, FromScratch
from sswim.algebra import safe_eigh
from sswim.machine import on_threads
from sswim.plots import plot_forecast, plot_spikes
from sswim.readout.blocks import Part, Solver

WINDOW, HORIZON = 12, 4


def small(**options):
    return Forecaster(WINDOW, HORIZON, hidden=(5,), random_state=0, verbose=0, **options)


@pytest.fixture(scope="module")
def driven():
    """Columns y = u, u and v, all known."""
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((2, 400))
    return np.stack([u + 0.01 * rng.standard_normal(400), u, v], axis=1)


def test_an_array_ahead_has_the_order_of_known(driven):
    rows, ahead = driven[:396], driven[396:]
    for known in ([1, 2], [2, 1]):
        model = small(known=known).fit(rows)
        forecast = model.predict(rows, ahead[:, known])
        assert np.abs(forecast[:, 0] - ahead[:, 0]).max() < 0.5
    names = ["y", "u", "v"]
    model = small(known=["v", "u"]).fit(pd.DataFrame(rows, columns=names))
    np.testing.assert_allclose(model.predict(pd.DataFrame(rows, columns=names), ahead[:, [2, 1]]), forecast, rtol=1e-6)


@pytest.mark.parametrize("known", [np.array([2]), [2], (2,)], ids=["array", "list", "tuple"])
def test_nothing_but_a_direct_readout_sees_rows_ahead(driven, known):
    for options in ({"readout": "trajectory"}, {"training": FromScratch(epochs=1)}):
        with pytest.raises(ValueError, match="known needs readout='direct'"):
            small(known=known, **options).fit(driven)


def test_mistakes_in_what_is_known_ahead(driven):
    model = small(known=[2]).fit(driven)
    with pytest.raises(ValueError, match="pass one for each of the 2 series"):
        model.predict([driven, driven], 3.0)
    frame = pd.DataFrame(driven, index=pd.date_range("2024-01-01", periods=400, freq="h"), columns=["y", "u", "v"])
    short = Forecaster(1, HORIZON, hidden=(5,), known=["v"], random_state=0, verbose=0).fit(frame)
    assert short.predict(frame[:100].tail(1), frame[100:104]).shape == (HORIZON, 2)  # one time has no step


def test_contributions_of_a_network_from_scratch_add_up():
    rows = np.random.default_rng(0).standard_normal((120, 3)).cumsum(axis=0)
    rows[:, 1] = 4.0
    model = small(training=FromScratch(epochs=1)).fit(rows)
    for X in (rows, [rows, rows[:60]]):
        parts, forecasts = model.contributions(X), model.predict(X)
        for part, forecast in zip(*([p] if isinstance(X, np.ndarray) else p for p in (parts, forecasts)), strict=True):
            np.testing.assert_allclose(part.sum(axis=1).to_numpy().reshape(HORIZON, 3), forecast, atol=1e-9)


def test_a_stream_begins_with_what_predict_takes():
    rows = np.random.default_rng(0).standard_normal((100, 2)).cumsum(axis=0)
    model = small(missing="interpolate").fit(rows)
    masked = np.ma.masked_array(rows.copy(), mask=np.zeros_like(rows, dtype=bool))
    masked[90, 0] = 1e6
    masked.mask[90, 0] = True
    expected = model.predict(np.ma.concatenate([masked, rows[:1]]))
    np.testing.assert_array_equal(model.stream(masked)(rows[0]), expected)
    absent = pd.DataFrame(rows).astype("Float64")
    absent.iloc[95, 1] = pd.NA
    np.testing.assert_array_equal(model.stream(absent).past[:5], rows[-WINDOW : -WINDOW + 5])
    with pytest.raises(ValueError, match="continues one series, got several"):
        model.stream([rows, rows])


@pytest.mark.parametrize("gap", [slice(-30, -2), slice(-30, -1), slice(-99, -1), slice(-14, -5)])
def test_a_stream_fills_long_gaps_as_predict_does(gap):
    rows = np.random.default_rng(0).standard_normal((100, 2)).cumsum(axis=0)
    model = small(missing="interpolate").fit(rows)
    rows[gap, 1] = np.nan
    np.testing.assert_allclose(model.stream(rows[:-1])(rows[-1]), model.predict(rows), rtol=1e-12)


def test_periods_have_gaps_too():
    rows = np.random.default_rng(0).standard_normal((300, 2)).cumsum(axis=0)
    whole = pd.DataFrame(rows, index=pd.period_range("2024-01-01", periods=300, freq="h"))
    parted = whole.drop(whole.index[100:150])
    stamped = parted.set_axis(parted.index.to_timestamp())
    model = small().fit(whole)
    assert len(model.predict_windows(parted)) == len(model.predict_windows(stamped)) < 250 - WINDOW - HORIZON + 1
    stream = model.stream(whole[:100])
    with pytest.raises(ValueError, match="rows are missing"):
        stream(whole.iloc[105])


@pytest.mark.parametrize("options", [{}, {"channels": "joint"}, {"scaling": "none"}])
def test_windows_at_rest_cost_no_spikes_of_populations_that_see_deviations(options):
    rows = np.zeros((200, 2))
    rows[100:, 0] = np.sin(np.arange(100))
    rows[:, 1] = np.cos(np.arange(200))
    costs = small(**options).fit(rows).costs(rows)
    assert np.isfinite([costs.population_spikes, costs.sampled_spikes, costs.synaptic_operations]).all()
    readout = small(**options).fit(rows).network_.readout
    still = torch.full((4, readout.outputs, WINDOW), 0.3, dtype=readout.weights.dtype)
    assert not bool(readout.raster(still).any())


def test_generators_that_take_turns_leave_the_threads_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        a, b = (on_threads(lambda i: i, range(n)) for n in (3, 9))
        assert list(zip(a, b, strict=False)) == [(0, 0), (1, 1), (2, 2)]
        b.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_pictures_of_models_that_know_ahead(driven):
    model = small(known=[2]).fit(driven[:380])
    with pytest.raises(ValueError, match="is a covariate"):
        plot_spikes(model, driven, channel=2)
    at_the_end = plot_forecast(model, driven[:396], at=396, future=driven[396:, [2]])
    inside = plot_forecast(model, driven, at=396)
    np.testing.assert_allclose(at_the_end.lines[2].get_ydata(), inside.lines[2].get_ydata())


def test_eigenvectors_of_huge_matrices_that_defeat_the_fast_solver(monkeypatch):
    def fails(a):
        raise torch.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    root = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for size in (1.0, 1e265, 1e-280, 0.0):
        a = size * root @ root.mT
        values, vectors = safe_eigh(a)
        assert float(((vectors * values[:, None]) @ vectors.mT - a).abs().max()) <= 1e-13 * max(size, 1e-290) * 20


def test_blocks_in_which_no_window_moves_leave_no_huge_numbers():
    """What is left of a sum from which all has been subtracted is rounding, and must not be divided by."""
    gram = torch.full((1, 3, 3), 1e-18, dtype=torch.float64)
    part = Part(gram, torch.zeros(1, 3, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64), 50.0)
    gram[0, 0, 0] = 0.0
    values, basis = Solver(lambda: part, 0).basis(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), False)
    assert float(values.max()) < 1e-6 and float(basis.abs().max()) < 10
