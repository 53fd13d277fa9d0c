"""Populations are as large as a series needs: rounding costs at most 1 % of the error, and noisy series get 64 neurons."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from sswim import Direct, Forecaster
from sswim.evaluate.baselines import NLinear
from sswim.readout.precision import MOST, SIZES, SMALLEST, rounding_costs, size_of_population

WINDOW, HORIZON = 32, 8


def smooth(rows, channels=2, seed=0):
    """Return series whose next values a linear map of the last ones knows well: the third sums of noise, which fade."""
    noise = np.random.default_rng(seed).normal(size=(rows, channels))
    return lfilter([1], np.poly([0.95, 0.95, 0.9]), noise, axis=0)


def noisy(rows, channels=2, seed=0):
    noise = np.random.default_rng(seed).normal(size=(rows, channels))
    return np.sin(2 * np.pi * np.arange(rows) / 12)[:, None] + 0.5 * noise


def pieces(x, steps=HORIZON):
    """Return windows (n, C, W) of rows, and the rows that follow, relative to their mean."""
    x = torch.as_tensor(x)
    rows = x.unfold(0, WINDOW + HORIZON, 1)
    past = rows[:, :, :WINDOW]
    return past, rows[:, :, WINDOW : WINDOW + steps] - past.mean(dim=2, keepdim=True)


def literal_costs(rows, targets, sizes):
    """Return what `rounding_costs` returns, by loops."""
    x = (rows - rows.mean(dim=2, keepdim=True)).numpy()
    y, n, channels = targets.numpy(), len(rows), rows.shape[1]
    first = int(n * 2 / 3)
    seen, following = (np.concatenate([v[i] for i in range(first)]) for v in (x, y))
    gram = seen.T @ seen
    weights = [
        np.linalg.solve(gram + p * np.trace(gram) / len(gram) * np.eye(len(gram)), seen.T @ following)
        for p in np.logspace(-10, 0, 21)
    ]
    costs = []
    for size in sizes:
        ratios = []
        for c in range(channels):
            errors = [np.mean([((y[i, c] - x[i, c] @ w) ** 2).sum() for i in range(first, n)]) for w in weights]
            power = np.mean([(x[i, c] ** 2).mean() for i in range(first, n)])
            rounded = [e + (8 / size) ** 2 / 12 * power * (w**2).sum() for e, w in zip(errors, weights, strict=True)]
            none = SMALLEST * np.mean([(y[i, c] ** 2).sum() for i in range(first, n)])
            ratios.append(min(MOST, (min(rounded) + none) / (min(errors) + none)))
        costs.append(np.mean(ratios))
    return costs


@pytest.mark.parametrize("series", [smooth, noisy])
def test_costs_of_rounding_are_those_written_out(series):
    rows, targets = pieces(series(200))
    np.testing.assert_allclose(rounding_costs(rows, targets, SIZES), literal_costs(rows, targets, SIZES), rtol=1e-6)


def test_costs_are_what_noise_of_that_size_costs():
    """A ridge on windows to which as much noise is added errs by as much more."""
    rows, targets = pieces(smooth(40_000, channels=1))
    x, y = (rows - rows.mean(dim=2, keepdim=True))[:, 0], targets[:, 0]
    units = x.square().mean(dim=1, keepdim=True).sqrt()
    (cost,), spread = rounding_costs(rows, targets, (128,)), 8 / 128
    generator = torch.Generator().manual_seed(0)
    rounded = x + units * spread * (torch.rand(x.shape, generator=generator, dtype=x.dtype) - 0.5)
    first, errors = int(len(x) * 2 / 3), []
    for values in (x, rounded):
        weights = torch.linalg.lstsq(values[:first], y[:first]).solution
        errors.append(float((y[first:] - values[first:] @ weights).square().mean()))
    assert cost == pytest.approx(errors[1] / errors[0], rel=0.02) and 1.2 < cost < MOST


def test_more_neurons_never_cost_more_and_units_do_not_matter():
    rows, targets = pieces(smooth(600))
    costs = rounding_costs(rows, targets, SIZES)
    assert costs == sorted(costs, reverse=True) and costs[0] > 1.05 and costs[-1] >= 1
    np.testing.assert_allclose(rounding_costs(1e3 * rows - 7, 1e3 * targets, SIZES), costs, rtol=1e-5)


def test_noise_hides_rounding():
    assert size_of_population(*pieces(noisy(600))) == 64
    assert size_of_population(*pieces(smooth(600))) > 64
    assert size_of_population(*pieces(np.sin(np.arange(600) / 7)[:, None])) == 4096


def test_one_channel_of_many_does_not_decide():
    x = noisy(600, channels=200)
    x[:, :1] = np.sin(np.arange(600) / 7)[:, None]
    assert size_of_population(*pieces(x)) == 64


def test_series_at_rest_or_of_few_windows_get_the_usual_size():
    assert size_of_population(*pieces(np.ones((200, 2)))) == 64
    assert size_of_population(*pieces(smooth(WINDOW + HORIZON + 1))) == 64


def forecaster(**direct):
    return Forecaster(WINDOW, HORIZON, readout=Direct(**direct), random_state=0, verbose=0)


@pytest.fixture(scope="module")
def precise():
    return forecaster().fit(smooth(1600)[:1200])


def test_smooth_series_are_forecast_as_well_as_by_a_ridge(precise):
    x = smooth(1600)
    ridge, coarse = NLinear(WINDOW, HORIZON).fit(x[:1200]), forecaster(population=64).fit(x[:1200])
    ours, theirs, before = (m.evaluate(x[1200 - WINDOW :]).rmse for m in (precise, ridge, coarse))
    assert precise.network_.readout.population.neurons > 64
    assert ours < 1.03 * theirs, "1.00 here"
    assert before > 1.05 * theirs, "a test that 64 neurons pass would show nothing"


@pytest.mark.parametrize("channels", ["shared", "joint"])
def test_the_size_is_a_choice_of_the_fit(channels):
    x = smooth(400)
    sizes = {}
    for name, readout in {"default": Direct(), "given": Direct(population=32), "rows": Direct(skip=True)}.items():
        model = Forecaster(WINDOW, HORIZON, readout=readout, channels=channels, random_state=0, verbose=0).fit(x)
        sizes[name] = model.network_.readout.population.neurons
        assert model.get_params()["readout"] == readout
    assert sizes["default"] > 64 and sizes["given"] == 32 and sizes["rows"] == 64


def test_large_populations_stream_and_come_back_from_a_file(precise, tmp_path):
    x = smooth(1600)[1200:]
    path = tmp_path / "smooth.sswim"
    precise.save(path)
    again = Forecaster.load(path)
    assert again.network_.readout.population == precise.network_.readout.population
    assert np.array_equal(again.predict(x), precise.predict(x))
    stream = precise.stream(x[:-1])
    np.testing.assert_allclose(stream(x[-1]), precise.predict(x), rtol=1e-6)
    assert f"2 x {precise.network_.readout.population.neurons}" in str(precise.summary())
    few, many = forecaster(population=64).fit(x).costs(x), precise.costs(x)
    assert many.population_spikes > 2 * few.population_spikes


def test_what_is_chosen_does_not_depend_on_memory():
    x = smooth(700, channels=3)
    sizes = {forecaster().set_params(memory=m).fit(x).network_.readout.population.neurons for m in ("2GB", "130MB")}
    assert len(sizes) == 1 and min(sizes) > 64
