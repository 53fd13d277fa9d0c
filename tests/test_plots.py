import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from sswim import Classifier, Direct, Forecaster
from sswim.data import ExactEvents
from sswim.data.windows import SeriesWindows
from sswim.drawing import COLORS, legend_below, log_ticks, panels
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
    times = date2num(wind.index[76:100])
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), np.stack([times[steps], neurons + 20], axis=1))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["sampled\n(20)", "population\n(16)"]


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
    assert [t.get_text() for t in ax.get_yticklabels()] == ["input\n(64)", "hidden 1\n(30)", "hidden 2\n(20)"]


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
    shown = {t.get_position()[::-1]: int(t.get_text()) for t in ax.texts}
    found = model.predict(X)
    for i, j in np.ndindex(10, 10):
        assert shown.get((i, j), 0) == ((y == i) & (found == j)).sum()
    shares = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == np.arange(10)).all(), "the diagonal is the darkest"
    assert f"{(found == y).sum():,} of {len(y):,} right" in ax.get_title()
    shown = plot_class_rates(model, X, y, layer=0).images[0].get_array()
    assert shown.shape == (10, 30) and float(shown.max()) > 0
    figure = plot_mistakes(model, X, y, count=5)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    pairs = [t.removeprefix("is ").split(",\npredicted ") for t in titles]
    assert len(pairs) == 5 and all(len(set(pair)) == 2 for pair in pairs)
    right = found == y
    assert plot_mistakes(model, X[right], y[right]).axes[0].texts[0].get_text() == "no mistakes"
    with pytest.raises(ValueError, match="shape must be that of an image of 64 pixels"):
        plot_mistakes(model, X, y, shape=(3, 3))


def drawn(ax):
    """Return a renderer that has drawn the figure of some axes."""
    figure = ax.get_figure(root=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def all_inside(ax):
    """Assert that titles, labels and ticks lie inside of the figure, and the legend inside of its axes."""
    renderer, figure = drawn(ax), ax.get_figure(root=True)
    box, whole = ax.get_tightbbox(renderer), figure.bbox
    assert box.x0 >= whole.x0 and box.y0 >= whole.y0 and box.x1 <= whole.x1 and box.y1 <= whole.y1, (box, whole)
    return renderer


def legend_is_clear(ax):
    """Assert that no line passes below the legend, which lies within the axes."""
    renderer = all_inside(ax)
    box, frame = ax.get_legend().get_window_extent(renderer), ax.get_window_extent(renderer)
    assert box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y1 <= frame.y1
    for line in ax.lines:
        if line.get_label().startswith("_"):
            continue  # the mark between window and forecast
        assert ax.transData.transform(line.get_xydata())[:, 1].max() < box.y0


def test_forecasts_and_spikes_stand_at_their_times(model, wind):
    ax = plot_forecast(model, wind, at=100)
    times = pd.date_range(wind.index[76], periods=30, freq=wind.index[1] - wind.index[0])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), date2num(times[:24]))
    np.testing.assert_allclose(ax.lines[2].get_xdata(), date2num(times[24:]))
    drawn(ax)
    labels = [t.get_text() for t in ax.get_xticklabels()]
    assert any(":" in label for label in labels), labels
    assert ax.get_xlabel() == "time (UTC)"
    assert plot_spikes(model, wind, at=100).get_xlim() == pytest.approx((date2num(times[0]), date2num(times[-1])))


def test_hours_are_those_of_the_series(wind):
    local = wind.tz_convert("Australia/Sydney")
    model = Forecaster(24, 6, hidden=(4,), random_state=0, verbose=0).fit(local)
    ax = plot_forecast(model, local, at=len(local))  # nothing of the truth is known
    drawn(ax)
    assert ax.get_xlabel() == "time (Australia/Sydney)" and ax.lines[1].get_xdata().size == 0
    mark, text = ax.get_xticks()[0], ax.get_xticklabels()[0].get_text()
    there = pd.Timestamp(mark, unit="D", tz="UTC").round("s").tz_convert("Australia/Sydney")
    assert text in (f"{there:%H:%M}", f"{there:%b-%d}"), (text, there)


@pytest.mark.parametrize("index", ["none", "numbers", "periods"])
def test_series_without_times_are_drawn_over_steps(wind, index):
    frame = wind.reset_index(drop=True) if index == "numbers" else wind
    if index == "periods":
        frame = wind.tz_localize(None).set_axis(pd.period_range("2020-01-01", periods=len(wind), freq="D"))
    series = wind.to_numpy() if index == "none" else frame
    model = Forecaster(24, 6, hidden=(4,), random_state=0, verbose=0).fit(series)
    ax = plot_forecast(model, series, at=100)
    if index == "periods":
        assert ax.get_xlabel() == "time" and ax.lines[0].get_xdata()[0] == date2num(np.datetime64("2020-01-01")) + 76
    else:
        assert ax.get_xlabel() == "steps from the start of the forecast" and ax.lines[0].get_xdata()[0] == -24


def test_legends_leave_the_data_free_and_labels_are_not_cut(model, wind):
    for row in (30, 100, 200):
        legend_is_clear(plot_forecast(model, wind, at=row))
    rse = model.evaluate(wind).per_step["rse"]
    legend_is_clear(
        plot_errors({"persistence": rse + 1, "ridge per channel": rse + 0.9, "the paper's model": rse, "sswim": rse})
    )
    all_inside(plot_spikes(model, wind, at=100))


def test_labels_of_classifiers_are_not_cut(digits):
    model, X, y = digits
    for ax in (plot_raster(model, X[0]), plot_confusion(model, X, y), plot_class_rates(model, X, y)):
        all_inside(ax)


def test_many_classes_have_a_colour_bar_instead_of_numbers():
    X = np.eye(40).repeat(4, axis=0)
    y = np.array([f"class {i:02}" for i in range(40)]).repeat(4)
    model = Classifier(hidden=(20,), random_state=0, verbose=0).fit(X, y)
    ax = plot_confusion(model, X, y)
    assert not ax.texts and len(ax.figure.axes) == 2
    all_inside(ax)


@pytest.mark.parametrize("count, shape", [(1, (1, 1)), (4, (1, 4)), (5, (2, 3)), (7, (2, 4)), (9, (3, 3))])
def test_panels_stand_in_rows(count, shape):
    figure, axes = panels(count)
    grid = axes[0].get_gridspec()
    assert len(axes) == count == len(figure.axes) and (grid.nrows, grid.ncols) == shape
    assert figure.get_size_inches()[0] >= 5.5


@pytest.mark.parametrize("count", [1, 3])
def test_a_legend_below_is_as_wide_as_the_figure_at_most(count):
    figure, axes = panels(count)
    for ax in axes:
        for number in range(9):
            ax.plot([0, 1], [0, number], label=f"a model with a name, {number}")
    legend_below(figure, axes)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and len(figure.legends[0].get_texts()) == 9


@pytest.mark.parametrize("low, high", [(1.0, 1.02), (0.58, 0.97), (0.3, 1.3), (0.07, 1.1), (0.08, 7.0), (1, 1e6)])
def test_logarithmic_axes_have_numbers_that_do_not_overlap(low, high):
    ax = Figure(figsize=(3.6, 3.4), layout="constrained").subplots()
    ax.plot([0, 1], [low, high])
    log_ticks(ax)
    renderer = drawn(ax)
    bottom, top = ax.get_ylim()
    marks = [t for t, place in zip(ax.get_yticklabels(), ax.get_yticks(), strict=True) if bottom <= place <= top]
    boxes = sorted((t.get_window_extent(renderer) for t in marks), key=lambda box: box.y0)
    assert len(boxes) >= 2 and len({t.get_text() for t in marks}) == len(marks)
    assert all(a.y1 <= b.y0 for a, b in zip(boxes, boxes[1:], strict=False))


def test_colours_differ_in_lightness_or_for_the_colour_blind():
    # Deuteranopia, Machado et al. (2009), severity 1; sRGB taken as linear, which is enough to tell colours apart.
    seen = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    colors = np.array([to_rgb(color) for color in COLORS]) @ seen.T
    apart = np.linalg.norm(colors[:, None] - colors, axis=2) + 2 * np.eye(len(COLORS))
    assert len(set(COLORS)) == len(COLORS) and apart.min() > 0.1


@pytest.fixture(scope="module")
def direct(wind):
    return Forecaster(24, 6, random_state=0, verbose=0).fit(wind[:1500])


@pytest.mark.parametrize("step", [None, 2, 9])
def test_backtest_shows_rolling_forecasts_at_their_dates(direct, wind, step):
    rows = wind[1500:1560]
    ax = plot_backtest(direct, rows, "wind_R80711", step=step, coverage=0.8)
    starts = range(24, 55, 6 if step is None else step)
    came, *forecasts = ax.lines
    dates = date2num(rows.index.to_pydatetime())
    np.testing.assert_allclose(came.get_ydata(), rows["wind_R80711"].iloc[24:])
    np.testing.assert_array_equal(came.get_xdata(), dates[24:])
    assert ax.get_xlabel() == "time (UTC)"
    assert len(forecasts) == len(starts)
    for line, at in zip(forecasts, starts, strict=True):
        np.testing.assert_allclose(line.get_ydata(), direct.predict(rows[:at])["wind_R80711"], rtol=1e-6)
        np.testing.assert_array_equal(line.get_xdata(), dates[at : at + 6])
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
