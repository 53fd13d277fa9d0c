"""What a network sees of a series: scales, running levels, covariates; and every combination of options that uses them."""

import numpy as np
import pandas as pd
import pytest
import torch

from sswim import Direct, Forecaster, Gradient, Scaling, Trajectory
from sswim.data.encoder import SCALINGS, SeriesEncoder, moving_mean
from sswim.gradient.finetune import parse_seconds
from sswim.readout import TraceReadout

WINDOW, HORIZON = 12, 3


def walks(rows=300, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows)[:, None] * (0.3 + 0.1 * np.arange(columns)))
    return 10 * wave + rng.standard_normal((rows, columns)).cumsum(axis=0) + 100


def encoder(scaling="adaptive", shared=True, covariates=(), clip=True, columns=4):
    rows = walks(columns=columns)
    return SeriesEncoder(
        low=rows.min(axis=0), high=rows.max(axis=0), offset=rows.mean(axis=0), span=rows.std(axis=0),
        floor=np.full(columns, -np.inf), covariates=covariates, scaling=Scaling(scaling, clip=clip), shared=shared,
        window=WINDOW, precise=True,
    )  # fmt: skip


def small(**options):
    return Forecaster(**{"window": WINDOW, "horizon": HORIZON, "hidden": (15,), "random_state": 0, "verbose": 0, **options})


@pytest.mark.parametrize("window", [1, 5, 50])
def test_moving_mean_is_the_mean_of_the_last_rows(window):
    rows = torch.from_numpy(walks(30))
    for t, level in enumerate(moving_mean(rows, window)):
        torch.testing.assert_close(level, rows[max(t - window + 1, 0) : t + 1].mean(dim=0))


@pytest.mark.parametrize("scaling", ["channel", "adaptive", "window"])
@pytest.mark.parametrize("shared", [True, False])
def test_encoder_puts_inputs_where_it_says(scaling, shared):
    e, rows = encoder(scaling, shared, covariates=(1,)), walks()
    seen = e(torch.from_numpy(rows))
    z = ((rows - e.offset) / e.span)[:, [0, 2, 3]]
    level = np.stack([z[max(t - WINDOW + 1, 0) : t + 1].mean(axis=0) for t in range(len(z))])
    parts = {"channel": [z], "adaptive": [z, z - level], "window": [z - level]}[scaling]
    assert seen.signals.shape[0] == e.inputs
    values = seen.signals.numpy() if shared else seen.signals[:-1, :, 0].unflatten(0, (len(parts), 3)).permute(0, 2, 1).numpy()
    for found, expected in zip(values, parts, strict=False):
        np.testing.assert_allclose(found, expected)
    covariate = ((rows - e.offset) / e.span)[:, 1]
    np.testing.assert_allclose(seen.signals[-1], np.repeat(covariate[:, None], seen.signals.shape[2], axis=1))
    np.testing.assert_allclose(seen.lagged, z)
    np.testing.assert_allclose(seen.level, level if scaling != "channel" else 0 * level, atol=1e-12)
    np.testing.assert_allclose(seen.base, level if scaling == "window" else 0 * level, atol=1e-12)
    np.testing.assert_allclose(e.decode(seen.lagged), rows[:, [0, 2, 3]])


def test_only_what_the_network_sees_is_clipped():
    rows = torch.from_numpy(walks() * 3)
    clipped, free = encoder(clip=True)(rows), encoder(clip=False)(rows)
    assert clipped.signals.max() < free.signals.max()
    torch.testing.assert_close(clipped.lagged, free.lagged)


@pytest.mark.parametrize("channels", ["shared", "joint"])
@pytest.mark.parametrize("readout", [Direct(), Direct(skip=False), Trajectory()], ids=["skip", "no skip", "trajectory"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_combination_forecasts_saves_and_tests(channels, readout, scaling, tmp_path):
    rows = walks() / 100
    steps = "paper" if isinstance(readout, Trajectory) else "forecast"
    model = small(channels=channels, readout=readout, steps=steps, scaling=scaling, covariates=(3,)).fit(rows)
    result = model.evaluate(rows)
    assert result.rse < 1 and len(result.per_channel) == 3
    forecast = model.predict(rows)
    assert forecast.shape == (HORIZON, 3)
    windows = model.predict_windows(rows)
    # What lies further back than three windows is forgotten, up to that all rows count.
    np.testing.assert_allclose(model.predict(rows[: WINDOW + 20]), windows[20], rtol=1e-4)
    model.save(tmp_path / "m.sswim")
    np.testing.assert_array_equal(Forecaster.load(tmp_path / "m.sswim").predict(rows), forecast)


@pytest.mark.parametrize("readout", ["direct", "trajectory"])
def test_forecasts_relative_to_the_window_move_along_with_the_series(readout):
    rows = walks()
    steps = "paper" if readout == "trajectory" else "forecast"
    model = small(readout=readout, steps=steps, scaling=Scaling("window", clip=False), dtype="float64").fit(rows)
    np.testing.assert_allclose(model.predict(rows + 1000), model.predict(rows) + 1000, rtol=1e-6)


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


def test_corrections_lean_on_the_weighted_means_of_all_groups(generator):
    readout = TraceReadout(6, 1, 2, constants=(1.0,), groups=3, rank=2, factors=2, common=4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.normal_(generator=generator)
    f = torch.randn(6, 5, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        found = readout(f)
        several = readout(torch.cat([f, 2 * f], dim=2))
        torch.testing.assert_close(several[:, :, :3], found)
        torch.testing.assert_close(several[:, :, 3:], readout(2 * f))
        for t in range(5):
            means = [sum(readout.pool[g, k] * f[i, t, g] for g in range(3)) for i in range(6) for k in range(2)]
            together = readout.common_directions.T @ torch.stack(means)
            for g in range(3):
                own = torch.cat([readout.directions.T @ f[:, t, g], together])
                y = readout.weights @ f[:, t, g] + readout.biases + own @ readout.own_weights[g] + readout.own_biases[g]
                torch.testing.assert_close(found[:, t, g], y)
    with pytest.raises(ValueError, match="one member of each of 3 groups, in order, got 4"):
        readout(f[:, :, [0, 1, 2, 0]])


def test_what_all_channels_do_together_helps_the_one_that_follows():
    rng = np.random.default_rng(0)
    leader = rng.standard_normal((900, 1))
    rows = np.concatenate([leader, np.roll(leader, 1, axis=0), rng.standard_normal((900, 2))], axis=1)
    models = [small(horizon=1, readout=Direct(common=n)).fit(rows[:700]) for n in (0, 40)]
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


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("2 min", 120), ("0.5h", 1800), (4, 4)])
def test_times(text, seconds):
    assert parse_seconds("time_limit", text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "s", "-3s", True, 0, "3 days"])
def test_bad_times(text):
    with pytest.raises(ValueError, match="time_limit must be a time"):
        Gradient(time_limit=text)
