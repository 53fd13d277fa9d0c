"""Covariates that are known ahead: each step ahead sees them at its own row, and they get nothing if they do not help."""

import numpy as np
import pandas as pd
import pytest
import torch

from sswim import Direct, Forecaster
from sswim.data.future import FutureReader
from sswim.data.windows import SeriesWindows
from sswim.plots import plot_forecast
from sswim.readout import LagReadout
from sswim.readout.lags import LagSizes

WINDOW, HORIZON, ROWS = 24, 12, 1500


def white(columns=1, seed=0):
    return np.random.default_rng(seed).normal(size=(ROWS, columns))


def fitted(y, z, readout="direct", **options):
    X = np.concatenate([y, z], axis=1)
    known = list(range(y.shape[1], X.shape[1]))
    return X, Forecaster(WINDOW, HORIZON, known=known, readout=readout, random_state=0, **options).fit(X[:1200])


@pytest.mark.parametrize("channels", ["shared", "joint"])
@pytest.mark.parametrize("skip", [False, True])
def test_a_function_of_the_row_ahead_is_forecast(skip, channels):
    """White noise tells nothing about the next row: all comes from the rows ahead. A population rounds to an eighth."""
    z = white()
    X, model = fitted(np.concatenate([5 + 3 * z, 1 - z], axis=1), z, Direct(skip=skip), channels=channels)
    assert model.evaluate(X[1200:]).rse < (0.01 if skip else 0.05)
    blind = Forecaster(WINDOW, HORIZON, covariates=[2], channels=channels, random_state=0).fit(X[:1200])
    assert blind.evaluate(X[1200:]).rse > 0.95


def test_a_daily_course_is_read_off_the_clock():
    hour = (np.arange(ROWS) % 24.0)[:, None]
    course = np.random.default_rng(1).normal(size=24)[hour.astype(int)]
    X, model = fitted(course + 0.5 * white(), hour)
    assert model.evaluate(X[1200:]).rse < 1.05 * 0.5 / np.sqrt(course.var() + 0.25)


def test_what_does_not_help_gets_next_to_nothing():
    walk = np.zeros((ROWS, 1))
    for row, noise in enumerate(white(seed=2)[1:], start=1):
        walk[row] = 0.8 * walk[row - 1] + noise
    X, model = fitted(walk, white())
    one, other = (model.predict(X[:1200], white(seed=seed)[:HORIZON]) for seed in (3, 4))
    assert np.abs(one - other).mean() < 0.03 * walk.std()
    blind = Forecaster(WINDOW, HORIZON, random_state=0).fit(walk[:1200])
    assert model.evaluate(X[1200:]).rse < 1.01 * blind.evaluate(walk[1200:]).rse


def test_without_known_columns_nothing_changes(walk):
    plain, empty = (Forecaster(WINDOW, HORIZON, random_state=0, **o).fit(walk) for o in ({}, {"known": ()}))
    np.testing.assert_array_equal(plain.predict(walk), empty.predict(walk))
    assert not any("ahead" in name for name in plain.network_.state_dict())


@pytest.mark.parametrize("skip", [True, False])
def test_codes_are_spikes_one_by_one(skip, generator):
    sizes = LagSizes(8, 4, 1, groups=2, covariates=2, traces=0, lags=8, extra=3, common=0, known=2, ahead=7)
    made = LagReadout(sizes, constants=(1.0,), population=16, singles=3, skip=skip, dtype=torch.float64)
    with torch.no_grad():
        for value in (made.ahead_mean, made.ahead_directions):
            value.copy_(torch.rand(value.shape, generator=generator, dtype=torch.float64))
    rows = torch.randn(6, 1, 8, generator=generator, dtype=torch.float64)
    rows[1] = 2.0  # rests
    covariates = torch.randn(6, 2, 8, generator=generator, dtype=torch.float64)
    ahead = 2 * torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    seen = made.features(rows, covariates, torch.zeros(6, 0, dtype=torch.float64), ahead.flatten(1))
    found = made.reduced(seen)[:, made.parts["ahead"]]
    thresholds, chosen = made.population.thresholds.tolist(), made.population.spread_out(3).tolist()
    for i in range(6):
        x = ahead[i // 2].numpy()  # both members of a set see the same
        values = [[v if skip else (sum(v >= t for t in thresholds) - 8) * 0.5 for v in row] for row in x]
        spikes = [[float(v >= thresholds[k]) for k in chosen] for row in x for v in row]
        codes = np.concatenate([np.ravel(values), np.ravel(spikes)]) - made.ahead_mean.numpy()
        np.testing.assert_allclose(found[i].detach().numpy(), codes @ made.ahead_directions.numpy(), rtol=1e-9, atol=1e-9)


def test_windows_know_the_rows_after_them(walk):
    model = Forecaster(WINDOW, HORIZON, known=[2], covariates=[1], random_state=0).fit(walk)
    encoder = model.model_.encoder
    encoded = encoder(torch.from_numpy(walk))
    samples = SeriesWindows(encoder, [encoded], WINDOW, HORIZON)
    assert encoder.covariates == (1, 2) and encoder.known == (2,)
    ahead = samples.ahead(slice(3, 5))
    assert ahead.shape == (2, HORIZON)
    torch.testing.assert_close(ahead[1], encoded.covariates[4 + WINDOW : 4 + WINDOW + HORIZON, 1].double())


@pytest.fixture(scope="module")
def hourly():
    index = pd.date_range("2024-01-01", periods=600, freq="h")
    warm = np.convolve(np.random.default_rng(3).normal(size=620), np.ones(20) / 4, "valid")[:600]
    frame = pd.DataFrame({"load": 50 + 8 * warm, "noon": abs(index.hour - 12.0), "warm": warm, "seen": warm + 1}, index=index)
    model = Forecaster(WINDOW, HORIZON, known=["noon", "warm"], covariates=["seen"], random_state=0).fit(frame[:500])
    return frame, model


def test_all_ways_to_forecast_agree(hourly, tmp_path):
    frame, model = hourly
    past, following = frame[:550], frame[550 : 550 + HORIZON]
    forecast = model.predict(past, future=following)
    assert list(forecast.columns) == ["load"] and forecast.index.equals(following.index)
    columns = ["noon", "warm"]
    for future in (following[columns], following[columns].to_numpy(), following[["warm", "seen", "noon"]]):
        pd.testing.assert_frame_equal(model.predict(past, future), forecast)
    windows = model.predict_windows(frame)
    np.testing.assert_allclose(windows[550 - WINDOW], forecast, rtol=1e-9)
    several = model.predict([past, frame[:530]], [following, frame[530 : 530 + HORIZON]])
    np.testing.assert_allclose(several[0], forecast, rtol=1e-9)
    np.testing.assert_allclose(several[1], windows[530 - WINDOW], rtol=1e-9)
    stream = model.stream(frame[:549])
    with pytest.raises(ValueError, match="this model was fitted with known"):
        stream(frame.iloc[549])
    with pytest.raises(ValueError, match="must hold the rows from 2024-01-23 22:00:00"):
        stream(frame.iloc[549], future=frame[551 : 551 + HORIZON])
    np.testing.assert_allclose(stream(frame.iloc[549], future=following), forecast, rtol=1e-9)  # nothing was taken before
    assert stream.rows == 550
    low, high = model.predict_interval(past, 0.8, following)
    np.testing.assert_allclose((low + high) / 2, forecast, rtol=1e-9)
    model.save(tmp_path / "m")
    loaded = Forecaster.load(tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(past, following), forecast, check_exact=True)
    assert loaded.known == ["noon", "warm"]


def test_only_the_rows_ahead_of_known_columns_matter(hourly):
    frame, model = hourly
    past, following = frame[:550], frame[550 : 550 + HORIZON].copy()
    forecast = model.predict(past, following)
    following["load"] = following["seen"] = -999.0
    pd.testing.assert_frame_equal(model.predict(past, following), forecast)
    following["warm"] += 1.0
    assert (model.predict(past, following)["load"] > forecast["load"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: None, r"fitted with known=\['noon', 'warm'\]. Pass the 12 rows that follow X.*shape \(12, 2\)"),
        (lambda f: f[:5], r"must hold the 12 rows that follow X, with the columns 'noon', 'warm', got shape \(5, 2\)"),
        (lambda f: f.drop(columns="warm"), "lacks 'warm'"),
        (lambda f: f.to_numpy(), r"got shape \(12, 4\)"),
        (lambda f: f.shift(1, freq="h"), "must hold the rows from 2024-01-23 22:00:00 to 2024-01-24 09:00:00"),
        (lambda f: f.assign(warm=np.nan), "future must be finite, but holds NaN"),
        (lambda f: [f, f], "future"),
    ],
)
def test_what_is_wrong_with_the_future_is_said(hourly, change, message):
    frame, model = hourly
    with pytest.raises(ValueError, match=message):
        model.predict(frame[:550], change(frame[550 : 550 + HORIZON]))


def test_mistakes_of_known_columns(walk, hourly):
    frame, model = hourly
    with pytest.raises(ValueError, match="known needs readout='direct' and training=None"):
        Forecaster.paper(WINDOW, HORIZON, known=[1]).fit(walk)
    with pytest.raises(ValueError, match="known needs readout='direct' and training=None"):
        Forecaster(WINDOW, HORIZON, known=[1], training="sample+gradient").fit(walk)
    with pytest.raises(ValueError, match="known: 7 is not a column"):
        Forecaster(WINDOW, HORIZON, known=[7]).fit(walk)
    with pytest.raises(ValueError, match="leave one to forecast"):
        Forecaster(WINDOW, HORIZON, known=[0, 1], covariates=[2]).fit(walk)
    with pytest.raises(TypeError, match="known must be a sequence"):
        Forecaster(WINDOW, HORIZON, known="noon").fit(frame)
    with pytest.raises(ValueError, match="one for each of the 2 series"):
        model.predict([frame, frame], frame[:HORIZON])
    with pytest.raises(ValueError, match="knows no covariates ahead"):
        Forecaster(WINDOW, HORIZON, random_state=0).fit(walk).predict(walk, walk[:HORIZON])
    with pytest.raises(ValueError, match="this model was fitted with known"):
        model.stream(frame[:100])(frame.iloc[100])
    with pytest.raises(TypeError, match="known ahead"):
        model.network_.simulate(torch.zeros(1, WINDOW, model.network_.inputs))


def test_gaps_ahead_are_filled_like_all_gaps():
    reader = FutureReader([0], 3, False, "interpolate")
    assert reader([1.0, np.nan, 3.0]).ravel().tolist() == [1.0, 2.0, 3.0]


def test_a_forecast_with_rows_ahead_is_drawn(hourly):
    frame, model = hourly
    ax = plot_forecast(model, frame, "load", at=550)
    drawn = next(line for line in ax.lines if line.get_label() == "forecast")
    np.testing.assert_allclose(drawn.get_ydata(), model.predict(frame[:550], frame[550 : 550 + HORIZON])["load"])
