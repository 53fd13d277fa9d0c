"""Seasonal naive forecasts are those written out, their period is found from sums, and short seasonal series gain by them."""

import numpy as np
import pytest
import torch

from sswim import Direct, Forecaster
from sswim.evaluate.baselines import NLinear, Persistence, SeasonalNaive
from sswim.readout.blocks import Part
from sswim.readout.lags import LagReadout, LagSizes
from sswim.readout.look import RARE, principal_directions
from sswim.readout.record import naive_weights
from sswim.readout.seasons import _errors, find_seasons, season_name, season_named, season_weights

WINDOW, HORIZON = 14, 9


def readout(outputs=1, skip=True):
    sizes = LagSizes(WINDOW, HORIZON, outputs, 1, 0, 0, WINDOW, 0, 0)
    return LagReadout(sizes, constants=(1.0,), singles=0, skip=skip, dtype=torch.float64)


def seen(model, rows):
    return model.features(rows, rows[:, :0], rows.new_zeros(len(rows), 0))


def repeated(rows, period, moved):
    """Return the last period of windows (batch, outputs, window) again and again, step by step."""
    steps = []
    for h in range(HORIZON):
        back = period - h % period  # rows before the end of the window
        step = rows[:, :, WINDOW - back]
        if moved:
            step = step + rows[:, :, WINDOW - 1] - rows[:, :, WINDOW - 1 - period]
        steps.append(step)
    return torch.stack(steps, dim=1)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("period", "moved"), [(2, False), (5, False), (14, False), (2, True), (5, True), (13, True)])
def test_weights_repeat_the_last_period(generator, outputs, period, moved):
    model = readout(outputs)
    rows = torch.randn(6, outputs, WINDOW, generator=generator, dtype=torch.float64)
    features = seen(model, rows)
    found = (model.reduced(features) @ season_weights(model, period, moved)).unflatten(1, (HORIZON, outputs))
    torch.testing.assert_close(found + features.level[:, None], repeated(rows, period, moved))
    assert torch.equal(season_named(model, season_name(period, moved)), season_weights(model, period, moved))


@pytest.mark.parametrize("outputs", [1, 2])
def test_errors_of_every_period_are_those_of_its_forecasts(generator, outputs):
    model = readout(outputs, skip=False)
    rows = torch.randn(40, outputs, WINDOW, generator=generator, dtype=torch.float64)
    y = torch.randn(40, HORIZON * outputs, generator=generator, dtype=torch.float64)
    f, picked = model.reduced(seen(model, rows)), torch.tensor([0, 3, HORIZON * outputs - 1])
    block = Part.of(f[None], y[None]).of_outputs(picked)
    for moved, errors in _errors(model, block, picked).items():
        literal = [
            float((y - f @ season_weights(model, period, moved))[:, picked].square().sum())
            for period in range(2, WINDOW + 1 - moved)
        ]
        np.testing.assert_allclose(errors.numpy(), literal, rtol=1e-9)


def test_the_period_is_found():
    model, t = readout(), torch.arange(400, dtype=torch.float64)
    x = torch.sin(2 * torch.pi * t / 6) + 0.02 * t
    rows = torch.stack([x[i : i + WINDOW] for i in range(360)])[:, None]
    y = torch.stack([x[i + WINDOW : i + WINDOW + HORIZON] for i in range(360)]) - rows.mean(dim=2)
    f = model.reduced(seen(model, rows))
    blocks = [Part.of(f[None, part], y[None, part]) for part in (slice(0, 180), slice(180, 360))]
    found = find_seasons(model)(blocks, torch.arange(HORIZON), [1.0, 1.0])
    once, moved = found
    assert once == "what was 6 rows before" and moved in {f"what was {p} rows before, moved to the last value" for p in (6, 12)}
    assert all(weights.shape == (f.shape[1], HORIZON) for weights in found.values())


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_of_few_rows_have_few_periods_or_none(window):
    x = np.tile([0.0, 3.0, 1.0], 60)[:, None] + np.random.default_rng(0).normal(0, 0.01, (180, 1))
    model = Forecaster(window, 2, random_state=0, verbose=0).fit(x)
    names = {name for name in model.report_.solution.kept if "rows before" in name}
    assert names == {1: set(), 2: {season_name(2, False)}, 3: {season_name(3, False), season_name(2, True)}}[window]
    assert np.isfinite(model.predict(x)).all()


def test_names_of_other_forecasts_have_no_weights():
    model = readout()
    names = ("what was 1 rows before", "what was 15 rows before", "what was 14 rows before, moved to the last value", "what")
    assert [season_named(model, name) for name in (*names, *naive_weights(model))] == [None] * (len(names) + 3)


def months(count, seed):
    """Return a series that grows, and swings more and more with the months, as sales do."""
    t = np.arange(count)
    noise = np.random.default_rng(seed).normal(0, 0.03, count)
    return (np.exp(0.02 * t + 0.25 * np.sin(2 * np.pi * t / 12) + 0.1 * np.cos(4 * np.pi * t / 12) + noise))[:, None]


def test_six_years_of_months_are_forecast_as_well_as_by_what_is_simple():
    """Some seventy rows, whose swings grow."""
    ratios = []
    for seed in range(4):
        x = months(120, seed)
        model = Forecaster(24, 12, random_state=0, verbose=0).fit(x[:72])
        simple = [Persistence(24, 12), SeasonalNaive(24, 12, 12), NLinear(24, 12)]
        best = min(m.fit(x[:72]).evaluate(x[48:]).rmse for m in simple)
        ratios.append(model.evaluate(x[48:]).rmse / best)
    assert np.mean(ratios) < 1.08, "1.01 here; 1.15 without forecasts that repeat a period"


def test_models_on_top_of_a_period_come_back_from_a_file(tmp_path):
    x = months(168, 0)
    model = Forecaster(24, 12, readout=Direct(singles=0), random_state=0, verbose=0).fit(x[:120])
    kept = model.report_.solution.kept
    assert any("rows before" in name or "period" in name for name, share in kept.items() if share > 0), kept
    path = tmp_path / "months.sswim"
    model.save(path, updatable=True)
    again = Forecaster.load(path)
    assert np.array_equal(again.predict(x[:120]), model.predict(x[:120]))
    both = [m.partial_fit(x[120:150]).predict(x[:150]) for m in (model, again)]
    np.testing.assert_allclose(*both, rtol=1e-9)


def test_what_is_hardly_ever_seen_is_not_magnified(generator):
    """A feature moves by a millionth once. Divided by its deviation, it would outweigh all else once it really moves."""
    values = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    values[:, 7] = 0.0
    values[0, 7] = 1e-5
    _, directions = principal_directions(values, 8)
    assert float(directions[7].abs().max()) < float(directions[:7].abs().max()) / RARE
