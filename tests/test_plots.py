import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Direct, Forecaster
from sswim.data import ExactEvents
from sswim.data.windows import SeriesWindows
from sswim.plots import (
    plot_backtest,
    plot_class_rates,
    plot_confusion,
    plot_contributions,
    plot_errors,
    plot_forecast,
    plot_growth,
    plot_mistakes,
    plot_raster,
    plot_spikes,
)


@pytest.fixture(scope="module")
def model(wind):
    return Forecaster.paper(24, 6, hidden=(30,), random_state=0, verbose=0).fit(wind)


def test_forecast_plot_shows_window_truth_and_forecast(model, wind):
    ax = plot_forecast(model, wind, "wind_R80711", at=100)
    window, truth, forecast = (line.get_ydata() for line in ax.lines[:3])
    np.testing.assert_allclose(window, wind["wind_R80711"].iloc[76:100])
    np.testing.assert_allclose(truth, wind["wind_R80711"].iloc[100:106])
    np.testing.assert_allclose(forecast, model.predict(wind.iloc[:100])["wind_R80711"], rtol=1e-5)
    assert ax.get_ylabel() == "wind_R80711"


def window_of(model, wind, at):
    """Return the 24 rows before row `at`, as windows of the model."""
    encoder = model.model_.encoder
    rows = torch.from_numpy(wind.iloc[at - 24 : at].to_numpy(dtype=float, copy=True))
    return SeriesWindows(encoder, [encoder(rows)], 24, 0)


def test_spike_plot_shows_every_spike(model, wind):
    ax = plot_spikes(model, wind, at=100)
    x = window_of(model, wind, 100).inputs(slice(None))
    assert len(ax.collections[0].get_offsets()) == int(model.network_.simulate(x).spikes[0].sum())
    assert len(ax.collections) == 1  # the paper's readout has no population


@pytest.mark.parametrize("channels", ["shared", "joint"])
def test_spike_plot_shows_the_population_above_the_sampled_neurons(wind, channels):
    model = Forecaster(24, 6, channels=channels, readout=Direct(population=16), random_state=0, verbose=0).fit(wind)
    ax = plot_spikes(model, wind, at=100, channel="wind_R80711")
    place = list(wind.columns).index("wind_R80711")
    samples = window_of(model, wind, 100)
    spikes = model.network_.simulate(samples.inputs(slice(None))).spikes[0][place if channels == "shared" else 0]
    assert len(ax.collections[0].get_offsets()) == int(spikes.sum())
    x = wind["wind_R80711"].to_numpy()[76:100]
    thresholds = (np.arange(16) - 7.5) / 2  # between -4 and 4; half of the neurons fire below theirs
    reached = ((x - x.mean()) / x.std())[:, None] >= thresholds
    steps, neurons = np.nonzero(np.where(thresholds < 0, ~reached, reached))
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), np.stack([steps - 24, neurons + 20], axis=1))


def test_forecast_plot_of_a_direct_output_has_its_interval(wind):
    model = Forecaster(24, 6, hidden=(20,), covariates=["wind_R80711"], random_state=0, verbose=0).fit(wind)
    ax = plot_forecast(model, wind, "power_R80711", at=200)
    low, high = model.predict_interval(wind.iloc[:200])
    band = ax.collections[0].get_paths()[0].get_extents()
    assert band.ymin == pytest.approx(low["power_R80711"].min()) and band.ymax == pytest.approx(high["power_R80711"].max())
    with pytest.raises(ValueError, match="'wind_R80711' is a covariate"):
        plot_forecast(model, wind, "wind_R80711")


def test_spike_plot_of_a_shared_network_shows_one_channel(wind):
    model = Forecaster(24, 6, hidden=(30,), random_state=0, verbose=0).fit(wind)
    one, other = (len(plot_spikes(model, wind, at=100, channel=c).collections[0].get_offsets()) for c in (0, "wind_R80711"))
    assert one > 0 and other > 0 and one != other


def test_error_plot_has_a_line_per_model(model, wind):
    scores = model.evaluate(wind).per_step["rse"]
    assert len(plot_errors({"a": scores, "b": scores}).lines) == 2


def test_bad_places_are_named(model, wind):
    with pytest.raises(ValueError, match="at must lie between window=24"):
        plot_forecast(model, wind, at=3)
    with pytest.raises(ValueError, match="no column 'nix'"):
        plot_forecast(model, wind, "nix")
    with pytest.raises(ValueError, match="channel must be between 0 and 7"):
        plot_forecast(model, wind, 8)


def test_growth_plot_shows_every_point_and_exponent():
    points = {"windows": [{"size": n, "seconds": n / 100, "memory": 2.0**30} for n in (100, 200, 400)]}
    figure = plot_growth({"points": points, "result": {"windows": {"seconds": 1.0, "memory": 0.0}}})
    time, memory = figure.axes
    assert time.get_xscale() == time.get_yscale() == memory.get_yscale() == "log"
    np.testing.assert_allclose(time.lines[0].get_xydata(), [[100, 1], [200, 2], [400, 4]])
    np.testing.assert_allclose(memory.lines[0].get_ydata(), 1024)
    assert "exponent 1.00" in time.get_legend().get_texts()[0].get_text()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return Classifier(hidden=(30, 20), random_state=0, verbose=0).fit(X[:500], y[:500]), X[500:], y[500:]


def test_raster_shows_every_spike_of_every_layer(digits):
    model, X, _ = digits
    ax = plot_raster(model, X[0])
    shown = [len(c.get_offsets()) for c in ax.collections]
    x = model.model_.samples(X[:1]).inputs(slice(None))
    spikes = model.network_.simulate(x).spikes
    assert shown == [int((x > 0).sum()), *(int(a.sum()) for a in spikes)]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["input", "hidden 1", "hidden 2"]


@pytest.mark.parametrize("exact", [True, False])
def test_raster_of_events(exact):
    events = [([0.2, 3.0, 5.4], [0, 1, 2]), ([1.0, 2.0], [2, 0])] * 10
    model = Classifier((8,), encoder=ExactEvents(exact=exact), random_state=0, verbose=0).fit(events, [0, 1] * 10)
    ax = plot_raster(model, events[0])
    assert ax.collections[0].get_offsets().tolist() == [[0, 0], [3, 1], [5, 2]], "on the nearest steps"
    assert plot_class_rates(model, events, [0, 1] * 10).images[0].get_array().shape == (2, 8)


def test_confusions_rates_and_mistakes(digits):
    model, X, y = digits
    ax = plot_confusion(model, X, y)
    right = {t.get_position()[0]: int(t.get_text()) for t in ax.texts if t.get_position()[0] == t.get_position()[1]}
    for c in range(10):
        assert right[c] == pytest.approx(100 * (model.predict(X[y == c]) == c).mean(), abs=0.51)
    shown = plot_class_rates(model, X, y, layer=0).images[0].get_array()
    assert shown.shape == (10, 30) and float(shown.max()) > 0
    figure = plot_mistakes(model, X, y, count=5)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert len(titles) == 5 and all(len(set(t.split(", not "))) == 2 for t in titles)
    with pytest.raises(ValueError, match="shape must be that of an image of 64 pixels"):
        plot_mistakes(model, X, y, shape=(3, 3))


@pytest.fixture(scope="module")
def direct(wind):
    return Forecaster(24, 6, random_state=0, verbose=0).fit(wind[:1500])


@pytest.mark.parametrize("step", [None, 2, 9])
def test_backtest_shows_rolling_forecasts_at_their_dates(direct, wind, step):
    rows = wind[1500:1560]
    ax = plot_backtest(direct, rows, "wind_R80711", step=step, coverage=0.8)
    starts = range(24, 55, 6 if step is None else step)
    came, *forecasts = ax.lines
    dates = rows.index.tz_localize(None)
    np.testing.assert_allclose(came.get_ydata(), rows["wind_R80711"].iloc[24:])
    assert (pd.DatetimeIndex(came.get_xdata()) == dates[24:]).all()
    assert len(forecasts) == len(starts)
    for line, at in zip(forecasts, starts, strict=True):
        np.testing.assert_allclose(line.get_ydata(), direct.predict(rows[:at])["wind_R80711"], rtol=1e-6)
        assert (pd.DatetimeIndex(line.get_xdata()) == dates[at : at + 6]).all()
    assert len(ax.collections) == len(starts)
    low, high = (bound["wind_R80711"].to_numpy() for bound in direct.predict_interval(rows[: starts[0]], 0.8))
    drawn = ax.collections[0].get_paths()[0].vertices[:, 1]
    shown = slice(6 if step is None else step)
    assert drawn.min() == pytest.approx(low[shown].min()) and drawn.max() == pytest.approx(high[shown].max())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["what came", "forecasts", "80 % intervals"]


def above_the_axes(ax):
    ax.figure.draw_without_rendering()
    box, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    return box.y0 >= inside.y1 - 1 and ax.get_tightbbox().x0 >= 0 and box.y1 <= ax.figure.bbox.y1 + 1


def test_legends_hide_nothing_and_nothing_is_cut(direct, wind):
    assert above_the_axes(plot_backtest(direct, wind[1500:1600]))
    assert above_the_axes(plot_contributions(direct, wind[1500:1600]))


def test_backtest_of_an_array_and_its_mistakes(model, direct, wind):
    rows = wind[1500:1560].to_numpy()
    ax = plot_backtest(direct, rows, 2)
    assert ax.get_xlabel() == "row" and list(ax.lines[1].get_xdata()) == list(range(24, 30))
    assert not plot_backtest(model, rows, 2).collections  # the paper's readout has no intervals
    with pytest.raises(ValueError, match=r"take 24 \+ 6 rows, got 29"):
        plot_backtest(direct, rows[:29])
    with pytest.raises(ValueError, match="step must be a whole number >= 1"):
        plot_backtest(direct, rows, step=0)


def test_contributions_are_drawn_up_to_the_forecast(direct, wind):
    ax = plot_contributions(direct, wind[1500:1600], "power_R80711")
    table = direct.contributions(wind[1500:1600]).xs("power_R80711", level="channel")
    level, forecast = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(level, table["level"])
    np.testing.assert_allclose(forecast, direct.predict(wind[1500:1600])["power_R80711"], rtol=1e-6)
    bars = {group.get_label(): [bar.get_height() for bar in group] for group in ax.containers}
    assert "own lags" in bars
    for name, heights in bars.items():
        np.testing.assert_allclose(heights, table[name])
    ends = [bar.get_y() + bar.get_height() for group in ax.containers for bar in group][:6]
    np.testing.assert_allclose(ends, level + next(iter(bars.values())))  # the first bars begin at the level
    with pytest.raises(ValueError, match="one series"):
        plot_contributions(direct, [wind[1500:1600]] * 2)
