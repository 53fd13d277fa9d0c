"""What a network sees of a series: scales, levels of windows, covariates; and every combination of options that uses them."""

import numpy as np
import pandas as pd
import pytest
import torch

from sswim import Direct, Forecaster, Gradient, Scaling, Trajectory
from sswim.data.encoder import LIMIT, SeriesEncoder
from sswim.data.scaling import SCALINGS
from sswim.data.windows import SeriesWindows
from sswim.gradient.finetune import parse_seconds

WINDOW, HORIZON = 12, 3


def walks(rows=300, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows)[:, None] * (0.3 + 0.1 * np.arange(columns)))
    return 10 * wave + rng.standard_normal((rows, columns)).cumsum(axis=0) + 100


def encoder(scaling="adaptive", shared=True, covariates=(), clip=True, columns=4):
    rows = walks(columns=columns)
    return SeriesEncoder(
        low=rows.min(axis=0), high=rows.max(axis=0), outliers=np.stack([rows.min(axis=0) - 1e3, rows.max(axis=0) + 1e3]),
        offset=rows.mean(axis=0), span=rows.std(axis=0), floor=np.full(columns, -np.inf), covariates=covariates,
        scaling=Scaling(scaling, clip=clip), shared=shared,
        window=WINDOW, precise=True, moving=tuple(c for c in range(columns) if c not in covariates),
    )  # fmt: skip


def small(**options):
    return Forecaster(**{"window": WINDOW, "horizon": HORIZON, "hidden": (15,), "random_state": 0, "verbose": 0, **options})


def literal_sample(e, rows, first, channel):
    """Return inputs, past rows, level and targets of one window, as the definition says; `channel` is None for all at once."""
    z = (rows - e.offset) / e.span
    seen = (np.clip(rows, e.low, e.high) - e.offset) / e.span if e.scaling.clip else z
    columns = e.channels if channel is None else [e.channels[channel]]
    past, seen_past = z[first : first + WINDOW][:, columns], seen[first : first + WINDOW]
    relative = past - past.mean(axis=0)
    relative = relative.clip(-LIMIT, LIMIT) if e.scaling.clip else relative
    views = {"adaptive": [seen_past[:, columns], relative], "window": [relative]}.get(e.scaling.kind, [seen_past[:, columns]])
    level = past.mean(axis=0) if e.scaling.kind in ("adaptive", "window") else np.zeros(len(columns))
    targets = z[first + WINDOW : first + WINDOW + HORIZON][:, columns] - level
    return np.concatenate([*views, seen_past[:, list(e.covariates)]], axis=1), past, level[None], targets


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("covariates", [(), (1,)])
def test_windows_hold_what_the_definition_says(scaling, shared, clip, covariates):
    e, series = encoder(scaling, shared, covariates, clip), [walks() * 1.2, walks(rows=40, seed=1)]
    samples = SeriesWindows(e, [e(torch.from_numpy(rows)) for rows in series], WINDOW, HORIZON)
    members = len(e.channels) if shared else 1
    starts = [(rows, first) for rows in series for first in range(len(rows) - WINDOW - HORIZON + 1)]
    assert len(samples) == len(starts) * members and samples.batch == samples.together == members
    index = torch.tensor([0, 1, members + 1, len(samples) // 2, len(samples) - 1])
    found = samples.inputs(index), samples.past(index), samples.level(index), samples.targets(index)
    assert found[0].shape[2] == e.inputs
    for at, number in enumerate(index.tolist()):
        expected = literal_sample(e, *starts[number // members], number % members if shared else None)
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(value[at], wanted, atol=1e-12)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_encoded_rows_come_back_in_the_units_of_the_data(scaling):
    e, rows = encoder(scaling, covariates=(1,)), walks() * 1.2
    encoded = e(torch.from_numpy(rows))
    np.testing.assert_allclose(e.decode(encoded.rows), rows[:, [0, 2, 3]])
    assert len(encoded) == len(rows) and encoded.covariates.shape == (len(rows), 1)


def test_only_what_the_hidden_layers_see_is_clipped():
    rows = torch.from_numpy(walks() * 3)
    clipped, free = encoder(clip=True)(rows), encoder(clip=False)(rows)
    assert clipped.seen.max() < free.seen.max()
    torch.testing.assert_close(clipped.rows, free.rows, rtol=0, atol=0)


@pytest.mark.parametrize("channels", ["shared", "joint"])
@pytest.mark.parametrize("readout", [Direct(), Direct(skip=True), Trajectory()], ids=["spikes", "rows", "trajectory"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_combination_forecasts_saves_and_tests(channels, readout, scaling, tmp_path):
    rows = walks() / 100
    steps = "paper" if isinstance(readout, Trajectory) else "forecast"
    model = small(channels=channels, readout=readout, steps=steps, scaling=scaling, covariates=(3,)).fit(rows)
    result = model.evaluate(rows)
    assert result.rse < 1 and len(result.per_channel) == 3
    forecast = model.predict(rows)
    assert forecast.shape == (HORIZON, 3)
    # What lies before the window changes nothing, bit for bit.
    np.testing.assert_array_equal(model.predict(np.concatenate([9 * rows[:30], rows[-WINDOW:]])), forecast)
    # Matrix products of many windows round differently from those of one, in float32.
    np.testing.assert_allclose(model.predict(rows[: WINDOW + 20]), model.predict_windows(rows)[20], rtol=1e-4)
    model.save(tmp_path / "m.sswim")
    np.testing.assert_array_equal(Forecaster.load(tmp_path / "m.sswim").predict(rows), forecast)


@pytest.mark.parametrize("skip", [True, False])
def test_direct_forecasts_relative_to_the_window_move_along_with_the_series(skip):
    """Spikes are the same wherever the series lies, up to rounding at a threshold."""
    rows = np.random.default_rng(0).standard_normal((200, 2)).cumsum(axis=0)
    options = {"scaling": Scaling("window", clip=False, floor=False), "dtype": "float64", "readout": Direct(skip=skip)}
    model = small(**options).fit(rows)
    moved = rows + [1000.0, -70.0]
    np.testing.assert_allclose(model.predict_windows(moved) - [1000.0, -70.0], model.predict_windows(rows), atol=1e-6)


def test_the_papers_forecasts_relative_to_the_window_move_along_with_the_series():
    rows = walks()
    model = small(readout="trajectory", steps="paper", scaling=Scaling("window", clip=False), dtype="float64").fit(rows)
    np.testing.assert_allclose(model.predict(rows + 1000), model.predict(rows) + 1000, rtol=1e-6)


@pytest.mark.parametrize("channels", ["shared", "joint"])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_direct_forecasts_move_along_with_a_series_that_has_left_its_range(scaling, skip, channels):
    """The level is read by a population, or limited: beyond its reach, one level is like another."""
    rows = walks() / 100
    model = small(readout=Direct(skip=skip), scaling=scaling, channels=channels, dtype="float64").fit(rows)
    once, twice = model.predict(rows + 100), model.predict(rows + 200)
    np.testing.assert_allclose(twice, once + 100, rtol=1e-9)
    assert np.abs(once - rows[-1] - 100).max() < 3 * np.ptp(rows, axis=0).max()


def test_a_covariate_that_tells_the_future_helps():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((800, 1)).repeat(2, axis=1)
    x[:, 1] = np.roll(x[:, 0], -1)  # known one row ahead
    frame = pd.DataFrame(x[:-1], columns=["value", "known ahead"])
    model = small(horizon=1, covariates=["known ahead"]).fit(frame[:600])
    result = model.evaluate(frame[600:])
    assert result.rse < 0.2 and list(result.per_channel.index) == ["value"]
    assert list(model.predict(frame).columns) == ["value"]
    with pytest.raises(ValueError, match="covariates: 'hour' is not a column of the series; the columns are"):
        small(covariates=["hour"]).fit(frame)


def test_what_all_channels_do_together_helps_the_one_that_follows():
    rng = np.random.default_rng(0)
    leader = rng.standard_normal((900, 1))
    rows = np.concatenate([leader, np.roll(leader, 1, axis=0), rng.standard_normal((900, 2))], axis=1)
    models = [small(horizon=1, readout=Direct(common=common)).fit(rows[:700]) for common in (False, True)]
    alone, leaning = (model.evaluate(rows[700:]).per_channel["rse"] for model in models)
    assert alone[1] > 0.9 and leaning[1] < 0.7


@pytest.mark.parametrize(("make", "kind"), [(Forecaster, "adaptive"), (Forecaster.paper, "channel")], ids=["direct", "paper"])
def test_forecasts_stay_above_a_floor_that_was_reached_often(make, kind):
    rows = walks() - 100
    rows[:, 1] = rows[:, 1].clip(min=0)
    options = {"hidden": (15,), "random_state": 0, "verbose": 0}
    model = make(WINDOW, HORIZON, scaling=Scaling(kind, floor=True), **options).fit(rows)
    floor = model.model_.encoder.floor
    np.testing.assert_array_equal(floor, [-np.inf, 0, -np.inf, -np.inf])
    forecasts = model.predict_windows(rows)
    assert forecasts[:, :, 1].min() >= 0 and forecasts[:, :, 0].min() < 0
    assert make is not Forecaster or forecasts[:, :, 1].min() == 0
    free = make(WINDOW, HORIZON, scaling=Scaling(kind, floor=False), **options).fit(rows).predict_windows(rows)
    np.testing.assert_allclose(forecasts, np.maximum(free, floor))
    if make is Forecaster:
        for X in (rows[:60], pd.DataFrame(rows[:60])):
            low, high = (np.asarray(bound) for bound in model.predict_interval(X))
            assert (low[:, 1] >= 0).all() and (low <= high).all()


def test_a_window_below_the_floor_has_none_but_its_own_least_value():
    rows = (walks() - 100).clip(min=0)
    options = {"hidden": (5,), "random_state": 0, "verbose": 0}
    model, free = (Forecaster(WINDOW, HORIZON, scaling=Scaling(floor=floor), **options).fit(rows) for floor in (True, False))
    assert (model.model_.encoder.floor[:2] == 0).all()
    later = rows.copy()
    later[len(rows) // 2 :, 1] -= 30
    forecasts, unbound = model.predict_windows(later), free.predict_windows(later)
    least = np.lib.stride_tricks.sliding_window_view(later, WINDOW, axis=0)[: len(forecasts)].min(axis=2)
    np.testing.assert_allclose(
        forecasts, np.maximum(unbound, np.minimum(model.model_.encoder.floor, least)[:, None]), atol=1e-9
    )
    assert forecasts[-1, :, 1].max() < 0, "it follows the series"
    low, high = model.predict_interval([later, rows])[0], model.predict_interval([later, rows])[1]
    assert low[0][:, 1].min() >= later[-WINDOW:, 1].min() and (low[1] >= 0).all() and (low[0] < high[0]).any()
    np.testing.assert_array_equal(low[0], model.predict_interval(later)[0])
    np.testing.assert_array_equal(np.stack(low), model.predict_interval(np.stack([later, rows]))[0])
    held_out = rows.copy()
    held_out[-10:, 0] = -1.0  # in the validation part
    assert Forecaster(WINDOW, HORIZON, **options).fit(held_out).model_.encoder.floor[0] == -np.inf


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("2 min", 120), ("0.5h", 1800), (4, 4)])
def test_times(text, seconds):
    assert parse_seconds("time_limit", text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "s", "-3s", True, 0, "3 days"])
def test_bad_times(text):
    with pytest.raises(ValueError, match="time_limit must be a time"):
        Gradient(time_limit=text)
