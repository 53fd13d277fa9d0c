"""Direct outputs: forecasts from the spikes of a window, weighed on blocks in time, and what they do when a channel drifts."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sswim import Direct, Forecaster, Trajectory
from sswim.data.windows import SeriesWindows
from sswim.evaluate import Persistence, RidgeOnLags
from sswim.options import Run
from sswim.readout.lags import UNBOUNDED
from sswim.readout.look import Source, principal_directions, range_of, separate_directions, set_directions
from sswim.readout.record import LEVELS, _calibrated, _ranked_quantiles, block_count
from sswim.sealed import read_sealed, write_sealed

WINDOW, HORIZON, CHANNELS = 16, 3, 4


def waves(rows=400, channels=CHANNELS, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None]
    x = np.sin(2 * np.pi * t / (8 + np.arange(channels))) + 0.3 * np.sin(t / 7) + noise * rng.standard_normal((rows, channels))
    return 10 * x + 5 * np.arange(channels)


def source_of(model, rows, memory=10**9):
    """Return the windows of a fit as its readout sees them."""
    fitted = model.model_
    samples = SeriesWindows(fitted.encoder, [fitted.encoder(torch.from_numpy(rows))], WINDOW, HORIZON)
    return Source(fitted.network, samples, memory)


@pytest.fixture(scope="module", params=[("shared", True), ("shared", False), ("joint", True), ("joint", False)])
def fitted(request):
    channels, skip = request.param
    readout = Direct(skip=skip)
    model = Forecaster(WINDOW, HORIZON, hidden=(40,), channels=channels, readout=readout, random_state=0, verbose=0)
    return model.fit(waves()[:300])


def test_beats_persistence_by_far(fitted):
    assert fitted.evaluate(waves()[300:]).rse < 0.5 * Persistence(WINDOW, HORIZON).evaluate(waves()[300:]).rse


def streamed(model, rows):
    stream, found = model.stream(), []
    for row in rows:
        forecast = stream(row)
        assert (forecast is None) == (stream.rows < WINDOW)
        if forecast is not None:
            found.append(forecast)
    return np.stack(found)


def test_stream_equals_batch_prediction(fitted):
    rows = waves(200, seed=3)
    batch = fitted.predict_windows(rows)
    np.testing.assert_allclose(streamed(fitted, rows)[: len(batch)], batch, rtol=1e-9, atol=1e-9 * np.abs(rows).max())


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("scaling", ["adaptive", "window", "standard"])
def test_stream_equals_batch_prediction_in_double_precision(skip, scaling):
    model = Forecaster(
        WINDOW,
        HORIZON,
        hidden=(20, 10),
        readout=Direct(skip=skip),
        scaling=scaling,
        covariates=(3,),
        dtype="float64",
        random_state=0,
        verbose=0,
    ).fit(waves()[:300])
    rows = waves(200, seed=3)
    batch = model.predict_windows(rows)
    np.testing.assert_allclose(streamed(model, rows)[: len(batch)], batch, rtol=1e-9)


def test_a_stream_keeps_one_window(fitted):
    stream = fitted.stream()
    sizes = []
    for row in waves(60):
        stream(row)
        sizes.append(stream._past.shape)
    assert set(sizes[WINDOW:]) == {(WINDOW, CHANNELS)}


def test_the_papers_forecaster_streams_too():
    paper = Forecaster.paper(WINDOW, HORIZON, hidden=(10,), random_state=0, verbose=0).fit(waves())
    rows = waves(60, seed=2)
    batch = paper.predict_windows(rows)
    np.testing.assert_allclose(streamed(paper, rows)[: len(batch)], batch, rtol=1e-4, atol=1e-4 * np.abs(rows).max())


def test_a_forecast_depends_on_the_last_window_alone(fitted):
    rows, other = waves(80, seed=3), waves(80, seed=4)
    other[-WINDOW:] = rows[-WINDOW:]
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(other))
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(rows[-WINDOW:]))


def test_predict_continues_the_series_and_equals_the_stream(fitted):
    frame = pd.DataFrame(waves(90), index=pd.date_range("2024-01-01", periods=90, freq="h"))
    frame.columns = [str(c) for c in frame]
    forecast = fitted.predict(frame)
    assert forecast.index[0] == pd.Timestamp("2024-01-04 18:00") and list(forecast.columns) == list(frame.columns)
    np.testing.assert_allclose(forecast, streamed(fitted, frame.to_numpy())[-1], rtol=1e-9)
    several = fitted.predict(np.stack([waves(50), waves(50, seed=1)]))
    assert several.shape == (2, HORIZON, CHANNELS)


def test_saved_and_loaded_forecasts_are_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "m.sswim")
    again = Forecaster.load(tmp_path / "m.sswim")
    rows = waves(100, seed=5)
    np.testing.assert_array_equal(again.predict_windows(rows), fitted.predict_windows(rows))
    for mine, expected in zip(again.predict_interval(rows), fitted.predict_interval(rows), strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert str(again.summary()) == str(fitted.summary())


def test_files_of_earlier_versions_have_no_ranges(fitted, tmp_path):
    path = tmp_path / "m.sswim"
    fitted.save(path)
    file = read_sealed(path, "sswim")
    tensors = {name: value for name, value in file.tensors.items() if not name.endswith("_range")}
    assert len(file.tensors) - len(tensors) == 3
    write_sealed(path, "sswim", {k: v for k, v in file.header.items() if k != "checksum"}, tensors)
    earlier, x = Forecaster.load(path), waves()
    np.testing.assert_allclose(earlier.predict(x[:290]), fitted.predict(x[:290]), rtol=1e-6)
    free = copy.deepcopy(fitted)
    free.network_.readout.unbound()
    assert np.array_equal(earlier.predict(1.5 * x), free.predict(1.5 * x))


def test_summary_tells_what_was_kept(fitted):
    kept = fitted.summary().to_dict()["output"]["kept"]
    assert sum(kept.values()) == pytest.approx(1) and min(kept.values()) >= 0
    text = " ".join(str(fitted.summary()).split())
    assert all(name.split(",")[0] in text for name, share in kept.items() if share > 0)


def test_intervals_cover_what_they_say():
    rows = waves(3000, noise=0.5)
    model = Forecaster(WINDOW, HORIZON, hidden=(40,), random_state=0, verbose=0).fit(rows[:2000])
    test = rows[2000:]
    forecasts, half = model.predict_windows(test), model.model_.half_width(0.9)
    truth = np.lib.stride_tricks.sliding_window_view(test, HORIZON, axis=0)[WINDOW:].transpose(0, 2, 1)
    assert 0.87 < (np.abs(truth - forecasts) <= half).mean() < 0.93
    low, high = model.predict_interval(test)
    np.testing.assert_allclose(high - low, 2 * half)
    assert (model.model_.half_width(0.5) < model.model_.half_width(0.72)).all()
    with pytest.raises(ValueError, match=r"coverage must be a number between 0.5 and 0.99, got 0.2"):
        model.predict_interval(test, 0.2)


def test_levels_are_raised_where_errors_drift_and_else_hardly():
    rng = np.random.default_rng(0)
    levels = np.array([0.5, 0.8, 0.9])
    steady = np.abs(rng.standard_normal((1000, 4, 50)))
    assert np.all(_calibrated(steady, levels) >= levels) and np.abs(_calibrated(steady, levels) - levels).max() < 0.02
    growing = steady * np.linspace(1, 2, 1000)[:, None, None]
    raised = _calibrated(growing, levels)
    assert np.all(raised > levels + 0.03)
    first, second = growing[:500], growing[500:]
    covered = (second <= np.quantile(first, raised[2], axis=0)).mean()
    assert covered == pytest.approx(0.9, abs=0.01)
    assert np.all(_calibrated(growing[:1], levels) == levels)  # one error alone has no halves


def test_quantiles_are_those_of_split_conformal():
    sizes = np.sort(np.random.default_rng(0).random((99, 3)), axis=0)
    found = _ranked_quantiles(sizes, np.array([0.5, 0.9, 1.0]))
    np.testing.assert_array_equal(found, sizes[[49, 89, 98]])  # ranks 50, 90 and the last of 99


def test_same_seed_same_model_and_memory_changes_nothing():
    def fit(memory):
        model = Forecaster(WINDOW, HORIZON, hidden=(30,), memory=memory, random_state=3, verbose=0)
        return model.fit(waves()[:300]).predict_windows(waves()[300:])

    np.testing.assert_array_equal(fit("1GB"), fit("1GB"))
    np.testing.assert_allclose(fit("50MB"), fit("1GB"), atol=0.05)  # other chunks, other rounding


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"channels": "both"}, "channels must be one of 'shared', 'joint', got 'both'"),
        ({"readout": "late"}, "readout: unknown name 'late'. Valid names: 'direct', 'traces', 'trajectory'"),
        ({"readout": "directt"}, "readout: unknown name 'directt'. Did you mean 'direct'"),
        ({"readout": object()}, "readout must be one of the names 'direct', 'traces', 'trajectory', or a Direct or"),
        ({"scaling": "log"}, "scaling: unknown name 'log'. Valid names: 'adaptive', 'window', 'standard', 'channel', 'none'"),
        ({"covariates": [7]}, "covariates: 7 is not a column of the series; there are 4 columns"),
        ({"covariates": [0, 1, 2, 3]}, "leave one to forecast"),
        ({"covariates": [0, 0]}, "must name different columns"),
    ],
)
def test_bad_choices_are_named(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Forecaster(WINDOW, HORIZON, verbose=0, **params).fit(waves())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Direct(singles=-1), "singles must be a whole number >= 0, got -1"),
        (lambda: Direct(population=0), "population must be a whole number >= 1, got 0"),
        *((lambda t=t: Direct(traces=t), "traces must be") for t in ("long", (), (0.0,), (-1.0,), (float("nan"),), ("a",))),
        (lambda: Direct(blocks=1, singles=-1), r"2 mistakes:\n- singles must be .*\n- blocks must be a whole number >= 2"),
        (lambda: Forecaster().set_params(readout__stride=2), "Direct has no option 'stride'. .*Valid names: 'skip', "),
        (lambda: Trajectory(stride=0), "stride must be a whole number >= 1, got 0"),
    ],
)
def test_bad_choices_of_a_readout_are_named_at_once(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_stream_refuses_what_it_cannot_use(fitted):
    stream = fitted.stream()
    with pytest.raises(ValueError, match="row must hold 4 channels"):
        stream(np.zeros(3))
    with pytest.raises(ValueError, match="row must be finite"):
        stream(np.full(4, np.nan))


def test_clone_keeps_the_choices(fitted):
    assert clone(fitted).get_params()["channels"] == fitted.channels


def test_blocks_are_fewer_for_few_windows_and_more_where_they_overlap():
    span = WINDOW + HORIZON
    assert [block_count(8, windows, span) for windows in (282, 3000, 3, 30)] == [12, 8, 2, 3]


def test_sums_are_those_of_all_windows_whatever_the_chunks(fitted):
    rows = waves(200)
    source, small = source_of(fitted, rows), source_of(fitted, rows, memory=10**6)
    assert small.chunk < source.chunk
    sums, others = (s.part(torch.arange(s.windows)) for s in (source, small))
    torch.testing.assert_close(sums.gram, others.gram, rtol=1e-4, atol=1e-3)
    readout = fitted.network_.readout
    seen, y = source_of(fitted, rows[:60]).look(torch.arange(3))
    level = rows[:WINDOW].mean(axis=0)
    shared = readout.outputs == 1
    first = y[0].view(HORIZON, -1)[:, 0].double().numpy() * fitted.model_.encoder.span[0]
    np.testing.assert_allclose(first, rows[WINDOW : WINDOW + HORIZON, 0] - level[0], rtol=1e-4, atol=1e-4)
    assert len(y) == 3 * (CHANNELS if shared else 1) and readout.reduced(seen).shape[1] == sums.gram.shape[1]


def test_ranges_are_those_of_the_training_windows(fitted):
    """So no training window is changed by them."""
    source = source_of(fitted, waves()[:300])
    readout = source.readout
    bound, _ = source.look(torch.arange(source.windows))
    kept = {name: getattr(readout, f"{name}_range").clone() for name in ("height", "extra", "common")}
    for name in kept:
        getattr(readout, f"{name}_range").mul_(0.5)  # what was found before must not count
    set_directions(readout, source, Run(10**9, 0))
    free = copy.deepcopy(source)
    free.readout.unbound()
    seen, _ = free.look(torch.arange(source.windows))
    heights = seen.heights.unflatten(0, (-1, source.group)).flatten(1)
    for name, values, same in (
        ("height", heights, bound.heights.unflatten(0, (-1, source.group)).flatten(1)),
        ("extra", seen.extra, bound.extra),
        ("common", seen.together, bound.together),
    ):
        assert torch.equal(getattr(readout, f"{name}_range"), kept[name]), "found anew they are the same"
        assert torch.equal(values, same)
        if values.numel():
            assert torch.equal(kept[name], torch.stack([values.amin(dim=0), values.amax(dim=0)]))


@pytest.mark.parametrize("channels", ["shared", "joint"])
def test_beyond_its_range_a_level_says_no_more(channels):
    """A weight that was found in the training range may be wrong beyond: forecasts then move along with the series."""
    rng = np.random.default_rng(0)
    x = np.zeros((1200, 2))
    for n in range(1, len(x)):
        x[n] = 0.9 * x[n - 1] + rng.standard_normal(2)  # returns to 0
    model = Forecaster(24, 12, channels=channels, random_state=0, verbose=0).fit(x)
    change = {shift: model.predict(x[-24:] + shift * x.std()) - shift * x.std() for shift in (0.0, 5.0, 6.0, 7.0)}
    assert np.abs(change[5.0] - change[0.0]).max() > 0.3, "the level is read"
    np.testing.assert_allclose(change[5.0], change[6.0], atol=1e-3)
    np.testing.assert_allclose(change[6.0], change[7.0], atol=1e-3)


def test_what_trends_in_training_has_no_bound_on_that_side():
    t = torch.arange(40.0, dtype=torch.float64)
    up, turned, late = t, (t - 20).abs(), torch.where(t < 36, 0.0, t)
    found = range_of(torch.stack([up, -up, turned, late], dim=1))
    assert found.tolist() == [[0.0, -UNBOUNDED, 0.0, 0.0], [UNBOUNDED, 0.0, 20.0, 39.0]]
    assert range_of(up[:, None], trends=False).tolist() == [[0.0], [39.0]]
    assert range_of(up[:1, None]).tolist() == [[0.0], [0.0]]


def test_directions_of_lags_are_orthonormal_recent_lags_and_principal_ones():
    rows = waves(900, noise=0.5)
    model = Forecaster(250, HORIZON, hidden=(2,), random_state=0, verbose=0).fit(rows)
    directions = model.network_.readout.lag_directions.double()
    assert directions.shape == (250, 192)
    torch.testing.assert_close(directions.T @ directions, torch.eye(192, dtype=torch.float64), rtol=0, atol=1e-5)
    assert torch.equal(directions[-48:, -48:], torch.eye(48, dtype=torch.float64)), "the most recent lags stand alone"
    assert model.network_.readout.spreads.shape == (CHANNELS, 1)


def test_principal_directions_are_those_of_the_covariance(generator):
    values = torch.randn(400, 6, generator=generator, dtype=torch.float64) @ torch.randn(6, 6, generator=generator).double()
    values[:, 5] = 3.0  # never moves
    mean, directions = principal_directions(values, 6)
    reduced = (values - mean) @ directions
    spread = reduced.square().mean(dim=0)
    assert float(directions[5].abs().max()) == 0 and float(spread[5]) == 0
    assert bool((spread[:4] >= spread[1:5]).all()), "the leading one first"
    cross = reduced.T @ reduced / len(reduced) - torch.diag(spread)
    assert float(cross.abs().max()) < 1e-9, "uncorrelated"
    wide = torch.cat([values] * 100, dim=1)[:50]
    narrow = principal_directions(wide, 4)[1]
    assert narrow.shape == (600, 4) and bool(torch.isfinite(narrow).all())


def drifting():
    rng = np.random.default_rng(1)
    t = np.arange(1500)[:, None]
    x = np.sin(2 * np.pi * (t + 3 * np.arange(4)) / 24) + 0.2 * rng.standard_normal((1500, 4)) + 3
    return x * np.array([1.0, 20.0, 0.1, 5.0])


def _doubled(x):
    x[1100:, 0] *= 2


def _shifted(x):
    x[1100:, 0] += 1e6


def _dead(x):
    x[1100:, 0] = 0.0


def _frozen(x):
    x[1100:, 0] = x[1099, 0]


def _huge(x):
    x[1000:, 0] *= 1e6


def _tiny(x):
    x[1000:, 0] *= 1e-6


def _late(x):
    x[:1000, 0] = 1.0


CHANGES = {f.__name__[1:]: f for f in (_doubled, _shifted, _dead, _frozen, _huge, _tiny, _late)}


@pytest.mark.filterwarnings("ignore:series")
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_channel_that_drifts_is_forecast_sensibly_and_the_others_as_before(change, skip):
    rows = drifting()
    CHANGES[change](rows)
    model = Forecaster(48, 12, readout=Direct(skip=skip), random_state=0, verbose=0).fit(rows[:1000])
    forecasts = model.predict_windows(rows[1000:])
    later = rows[1000:]
    truth = np.lib.stride_tricks.sliding_window_view(later, 12, axis=0)[48:].transpose(0, 2, 1)
    last = later[47 : 47 + len(truth), None]
    assert np.isfinite(forecasts).all()
    error, usual = (np.sqrt(((truth - f) ** 2).mean(axis=(0, 1))) for f in (forecasts, last))
    assert error[0] < 3 * usual[0]
    assert (error[1:] < 0.6 * usual[1:]).all(), "one channel's drift does not spoil the others"


@pytest.mark.filterwarnings("ignore:series")
def test_a_constant_column_is_forecast_as_itself_and_changes_little_elsewhere():
    rows = np.column_stack([waves(), np.ones(400)])
    model = Forecaster(WINDOW, HORIZON, random_state=0, verbose=0).fit(rows[:300])
    assert np.array_equal(model.predict_windows(rows[300:])[:, :, -1], np.ones((82, HORIZON)))


def test_outliers_of_training_rows_do_not_spoil_the_fit():
    rows = waves(1500)
    broken = rows.copy()
    broken[[100, 500, 900], 1] = -9999.0
    plain, other = (Forecaster(WINDOW, HORIZON, random_state=0, verbose=0).fit(r[:1200]) for r in (rows, broken))
    assert other.evaluate(rows[1200:]).rse < 1.1 * plain.evaluate(rows[1200:]).rse


def test_spikes_alone_are_as_good_as_the_ridges():
    rows = waves(1500, noise=0.3)
    known, later = rows[:1200], rows[1200:]
    ours = Forecaster(WINDOW, HORIZON, random_state=0, verbose=0).fit(known).evaluate(later).rse
    ridges = [RidgeOnLags(WINDOW, HORIZON, shared=s).fit(known).evaluate(later).rse for s in (True, False)]
    assert ours < 1.01 * min(ridges)


def test_costs_count_spikes_of_populations_and_sampled_neurons(fitted):
    costs, rows = fitted.costs(waves(100)), waves(100)
    network, encoder = fitted.network_, fitted.model_.encoder
    samples = SeriesWindows(encoder, [encoder(torch.from_numpy(rows))], WINDOW, 0)
    everything = slice(0, len(samples))
    sampled = sum(float(a.sum()) for a in network.hidden_spikes(samples.inputs(everything)))
    populations = network.readout.spikes(samples.past(everything).to(network.readout.weights).transpose(1, 2)).sum()
    forecasts = 85 * CHANNELS
    assert costs.sampled_spikes == pytest.approx(sampled / forecasts)
    assert costs.population_spikes == pytest.approx(float(populations) / forecasts)
    assert costs.synaptic_operations >= HORIZON * costs.spikes and "synaptic operations" in str(costs)
    with pytest.raises(ValueError, match="needs 16 rows"):
        fitted.costs(rows[:5])


def test_many_hidden_neurons_stay_within_memory(fitted):
    """Directions are found from as many windows as fit, whatever the number of features."""
    source = source_of(fitted, waves(200), memory=10**6)
    before = fitted.network_.readout.lag_directions.clone()
    set_directions(fitted.network_.readout, source, Run(10**6))
    assert fitted.network_.readout.lag_directions.shape == before.shape
    assert LEVELS[0] == 0.5


@pytest.mark.parametrize("validation", [0.01, 0.5, 0.95])
def test_any_part_may_be_for_validation(validation):
    model = Forecaster(WINDOW, HORIZON, hidden=(5,), validation=validation, random_state=0, verbose=0).fit(waves(120))
    assert np.isfinite(model.predict(waves(120))).all() and model.model_.half_width(0.9).shape == (HORIZON, CHANNELS)


def test_covariates_have_directions_of_their_own(generator):
    values = torch.randn(300, 8, generator=generator, dtype=torch.float64)
    mean, directions = separate_directions(values, 5, slice(6, 8))
    torch.testing.assert_close(mean, values.mean(dim=0))
    assert bool((directions[6:, 2:] == 0).all()) and bool((directions[:6, :2] == 0).all())
    assert torch.linalg.matrix_rank(directions) == 5
    own = principal_directions(values[:, 6:], 2)[1]
    torch.testing.assert_close(directions[6:, :2], own)


TIME = np.arange(1000.0)
SURE = {
    "sine": np.sin(TIME / 24 * 2 * np.pi),
    "two sines": np.sin(TIME / 24 * 2 * np.pi) + np.sin(TIME / 7.3 * 2 * np.pi),
    "nearly a sine": np.sin(TIME / 24 * 2 * np.pi) + 1e-6 * np.random.default_rng(0).standard_normal(1000),
    "line": 0.1 * TIME,
    "parabola": 1e-4 * TIME**2,
    "square wave": (TIME // 12) % 2,
    "growing sine": np.sin(TIME / 24 * 2 * np.pi) * (1 + TIME / 500),
}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", SURE)
def test_a_series_without_noise_is_foretold(name, skip):
    """Its errors are rounding errors, which must not decide what is kept."""
    rows = SURE[name][:, None]
    model = Forecaster(48, 12, readout=Direct(skip=skip), random_state=0, verbose=0).fit(rows[:800])
    assert model.evaluate(rows[800 - 48 :]).rmse < 0.01 * np.ptp(rows[800:])


def test_a_stretch_at_rest_does_not_decide_alone():
    """In a block in which nothing happens, the last value makes no error at all."""
    rng = np.random.default_rng(0)
    rows = 10.0 * (rng.random((1600, 1)) < 0.02)
    rows[250:650] = 0.0  # longer than two of the blocks
    model = Forecaster(48, 12, random_state=0, verbose=0).fit(rows[:1200])
    assert model.evaluate(rows[1200 - 48 :]).rse < 1.03  # the mean has 1, the last value 1.4
