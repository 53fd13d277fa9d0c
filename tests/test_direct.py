"""Direct outputs: features from a stream, solved for at once, with corrections per channel."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge

from sswim import Direct, FixedLambda, Forecaster, LambdaSearch, SpikingNetwork, Trajectory
from sswim.data.encoder import Encoded
from sswim.data.windows import Origins, SeriesWindows, Split
from sswim.evaluate import Persistence
from sswim.options import Run
from sswim.readout import TraceReadout
from sswim.readout.corrections import Corrections, search_penalties
from sswim.readout.direct import LEVELS, TRACE_WEIGHTS, _calibrated, _ranked_quantiles, default_constants
from sswim.regression import Sums
from sswim.steps.base import InitialBatch

WINDOW, HORIZON, CHANNELS = 16, 3, 4
ALL = torch.ones(3, dtype=torch.bool)  # three groups, all of which moved in training


def waves(rows=400, channels=CHANNELS, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None]
    x = np.sin(2 * np.pi * t / (8 + np.arange(channels))) + 0.3 * np.sin(t / 7) + noise * rng.standard_normal((rows, channels))
    return 10 * x + 5 * np.arange(channels)


def network(shared=True, skip=True, hidden=(12,), seed=0):
    count, constants = 1 if shared else CHANNELS, default_constants(WINDOW)
    readout = TraceReadout(
        sum(hidden) * len(constants),
        count,
        HORIZON,
        constants=constants,
        lags=WINDOW * count if skip else 0,
        dtype=torch.float64,
    )
    net = SpikingNetwork(count, count, window=WINDOW, horizon=HORIZON, hidden=hidden, readout=readout, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net.layers:
            layer.weights.normal_(0, 1, generator=generator)
            layer.biases.uniform_(0, 0.8, generator=generator)
            layer.delays.uniform_(0, 5, generator=generator)
            layer.supports.uniform_(1, 6, generator=generator)
    return net


def scaled(rows):
    return torch.from_numpy((rows - rows.mean(axis=0)) / rows.std(axis=0))


def seen(rows, shared=True):
    """Rows as they are, for a network that sees nothing else."""
    zero = torch.zeros_like(rows)
    return Encoded(rows[None] if shared else rows.T[:, :, None], rows, zero, zero)


def along(net, segments, shared=True, memory=10**9):
    """Return the origins of rows that the network sees as they are."""
    return Origins(net, [seen(s, shared) for s in segments], skip=net.readout.lags > 0, memory=memory)


def solved(net, rows, kept, regularization):
    """Solve for the output from all rows, the first `kept` origins being for training; return what was found."""
    samples = SeriesWindows([seen(rows)], WINDOW, HORIZON)
    split = Split.at(samples, kept * samples.batch)
    nothing = InitialBatch(*(torch.empty(0) for _ in range(3)))  # a direct output needs no initial batch
    return Direct(regularization=regularization).solve(net, split, nothing, torch.empty(0), Run())


def literal_features(origins, net, segments):
    """Features of every origin by simulating each segment from its first row to the origin, one origin at a time."""
    found, ahead = [], []
    for rows in segments:
        for t in range(WINDOW - 1, len(rows) - HORIZON):
            signals = rows[: t + 1][None] if origins.shared else rows[: t + 1].T[:, :, None]
            stream = net.stream(signals.shape[2])
            traces = stream.advance(signals)[:, -1]
            lags = signals[:, -WINDOW:].flatten(0, 1)
            found.append(torch.cat([traces, lags]) if net.readout.lags else traces)
            y = rows[t + 1 : t + 1 + HORIZON]
            ahead.append(y if origins.shared else y.reshape(-1, 1))
    return torch.stack(found, dim=1), torch.stack(ahead, dim=1)  # (F, T, B), (H O, T, B)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("memory", [1, 10**5, 10**9])
def test_origins_are_those_of_a_simulation_from_the_first_row(shared, skip, memory):
    net = network(shared, skip, hidden=(7, 5))
    segments = [scaled(waves(60)), scaled(waves(10, seed=1)), scaled(waves(35, seed=2))]  # the second one is too short
    origins = along(net, segments, shared, memory)
    features, targets = literal_features(origins, net, segments)
    numbers, f, y = zip(*origins(), strict=True)
    assert len(origins) == features.shape[1] == (60 - 18) + (35 - 18)
    assert numbers[0] == 0 and np.diff([*numbers, len(origins)]).tolist() == [part.shape[1] for part in f]
    torch.testing.assert_close(torch.cat(f, dim=1), features)
    torch.testing.assert_close(torch.cat(y, dim=1), targets)


def test_part_of_the_origins_differs_by_what_is_forgotten_only():
    net = network()
    segments = [scaled(waves(120)), scaled(waves(60, seed=2))]
    origins = along(net, segments)
    whole = torch.cat([f for _, f, _ in origins()], dim=1)
    for first, last in [(0, 20), (70, 110), (102, 103), (130, 144)]:
        part = list(origins(first, last))
        assert part[0][0] == first
        torch.testing.assert_close(torch.cat([f for _, f, _ in part], dim=1), whole[:, first:last], atol=1e-3, rtol=0)
    assert list(origins(5, 5)) == []


@pytest.mark.parametrize("shared", [True, False])
def test_the_first_origin_is_the_windowed_network(shared):
    net = network(shared)
    rows = scaled(waves(60))
    with torch.no_grad():
        net.readout.weights.normal_(0, 1)
        net.readout.biases.normal_(0, 1)
        _, f, _ = next(iter(along(net, [rows], shared)()))
        stream = net.readout(f)[:, 0]  # (H O, B)
        x = rows[:WINDOW].T[:, :, None] if shared else rows[None, :WINDOW]
        windowed = net(x)  # (B, H, O)
    torch.testing.assert_close(windowed.permute(1, 2, 0).flatten(0, 1), stream)


def test_grouped_sums_are_one_regression_per_group(generator):
    f = torch.randn(5, 90, 3, generator=generator, dtype=torch.float64) + 2
    y = torch.randn(2, 90, 3, generator=generator, dtype=torch.float64) + f[:2]
    grouped = Sums(5, 2, groups=3)
    for part in torch.arange(90).split(40):
        grouped.update_groups(f[:, part], y[:, part])
    other, rest = Sums(5, 2, groups=3), Sums(5, 2, groups=3)
    other.update_groups(f[:, :30], y[:, :30]), rest.update_groups(f[:, 30:], y[:, 30:])
    other.merge(rest)
    weights, biases = grouped.solve(0.1)
    torch.testing.assert_close(other.solve(0.1)[0], weights)
    errors = grouped.squared_error(weights, biases)
    for g in range(3):
        model = Ridge(alpha=0.1 * 90).fit(f[:, :, g].T, y[:, :, g].T)
        np.testing.assert_allclose(weights[g].T, model.coef_)
        np.testing.assert_allclose(biases[g], model.intercept_)
        np.testing.assert_allclose(errors[g], ((model.predict(f[:, :, g].T) - y[:, :, g].T.numpy()) ** 2).sum(axis=0))


def test_corrections_are_two_regressions_one_on_what_the_other_leaves(generator):
    f = torch.randn(5, 90, 3, generator=generator, dtype=torch.float64) + 2
    y = torch.randn(2, 90, 3, generator=generator, dtype=torch.float64) + f[:2]
    grouped = Sums(5, 2, groups=3)
    grouped.update_groups(f, y)
    penalties = [torch.tensor([0.1, 1.0, torch.inf]).double(), torch.tensor([0.3, torch.inf, 0.2]).double()]
    weights, biases = Corrections(2, penalties, ALL).solve(grouped)
    for g in range(3):
        x, left, expected = f[:, :, g].T.numpy(), y[:, :, g].T.numpy(), []
        for part, penalty in ((slice(0, 2), penalties[0][g]), (slice(2, 5), penalties[1][g])):
            model = Ridge(alpha=min(float(penalty), 1e15) * 90).fit(x[:, part], left)
            left = left - model.predict(x[:, part])
            expected.append(model.coef_.T)
        np.testing.assert_allclose(weights[g], np.concatenate(expected), atol=1e-10)
        np.testing.assert_allclose(f[:, :, g].T @ weights[g] + biases[g], y[:, :, g].T.numpy() - left, atol=1e-8)


def test_penalties_are_those_with_the_least_error_on_later_rows(generator):
    f = torch.randn(4, 400, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(1, 400, 3, generator=generator, dtype=torch.float64)
    y[:, :, 0] += 3 * f[0, :, 0] + 2 * f[3, :, 0]
    train, held_out = Sums(4, 1, groups=3), Sums(4, 1, groups=3)
    train.update_groups(f[:, :20], y[:, :20]), held_out.update_groups(f[:, 200:], y[:, 200:])
    grid = [1e-3, 1e-1, 1.0]
    first, second = search_penalties(train, held_out, 2, grid, company=0.0)

    def error(g, a, b):
        pair = [torch.full((3,), v, dtype=torch.float64) for v in (a, b)]
        return float(held_out.squared_error(*Corrections(2, pair, ALL).solve(train))[g].sum())

    for g in range(3):
        assert first[g] == min([*grid, torch.inf], key=lambda v: error(g, v, torch.inf))
        assert second[g] == min([*grid, torch.inf], key=lambda v: error(g, float(first[g]), v))
    assert first[0] < torch.inf and second[0] < torch.inf
    together, _ = search_penalties(train, held_out, 2, grid, company=1e9)
    assert len(set(together.tolist())) == 1


@pytest.mark.parametrize("skip", [True, False])
def test_weights_are_a_ridge_on_the_features_of_all_rows(skip):
    net = network(skip=skip)
    segments = [scaled(waves(150))]
    origins = along(net, segments)
    found = solved(net, segments[0], 100, FixedLambda(0.01))
    features, targets = literal_features(origins, net, segments)
    rows = features.shape[1] * CHANNELS

    def sized(weight, part=slice(None)):
        scaled_features = features[:, part].clone()
        scaled_features[: len(features) - net.readout.lags] *= weight
        return scaled_features.flatten(1).T

    # How traces weigh against rows is chosen by weights that have seen the first 100 origins only, and errors are theirs.
    errors = {}
    for weight in TRACE_WEIGHTS if skip else (1.0,):
        early = Ridge(alpha=0.01 * 100 * CHANNELS).fit(sized(weight, slice(0, 100)), targets[:, :100].flatten(1).T)
        y = early.predict(sized(weight, slice(100, None))).T.reshape(HORIZON, -1, CHANNELS)
        errors[weight] = targets[:, 100:].numpy() - y
    assert float(found.sizes[0]) == min(errors, key=lambda weight: (errors[weight] ** 2).sum())
    error = errors[float(found.sizes[0])].transpose(1, 0, 2)  # (rows, horizon, channels)
    # A simulation of the later rows starts two windows before them, so features differ by what is forgotten until then.
    assert found.score == pytest.approx((error**2).mean(), rel=1e-2)
    sizes = np.abs(error)
    expected = _ranked_quantiles(np.sort(sizes, axis=0), _calibrated(sizes, LEVELS))
    np.testing.assert_allclose(found.quantiles, expected, atol=1e-2)
    model = Ridge(alpha=0.01 * rows).fit(sized(float(found.sizes[0])), targets.flatten(1).T)
    coefficients = model.coef_.copy()
    coefficients[:, : len(features) - net.readout.lags] *= float(found.sizes[0])
    np.testing.assert_allclose(net.readout.weights.detach(), coefficients, atol=1e-4)
    np.testing.assert_allclose(net.readout.biases.detach(), model.intercept_, atol=1e-4)


def test_lambda_of_each_step_is_chosen_on_the_later_rows():
    net = network()
    rows = scaled(waves(300))
    origins, found = along(net, [rows]), solved(net, rows, 200, LambdaSearch())
    train, held_out = (Sums(net.readout.weights.shape[1], HORIZON) for _ in range(2))
    for sums, span in ((train, (0, 200)), (held_out, (200, len(origins)))):
        for _, f, y in origins(*span):
            sums.update(f.reshape(len(f), 1, -1), y.reshape(HORIZON, 1, -1))
    torch.testing.assert_close(found.lambdas, LambdaSearch().solve(train, held_out)[2])


def test_corrections_fit_channels_that_behave_otherwise():
    rows = waves(900, noise=0.5)
    for t in range(1, 900):
        rows[t, 0] = -0.95 * rows[t - 1, 0] + np.sin(t * t)  # turns at every step
    common, own = (
        Forecaster(WINDOW, HORIZON, hidden=(20,), readout=Direct(corrections=r, common=0), random_state=0, verbose=0).fit(
            rows[:700]
        )
        for r in (0, 20)
    )
    a, b = (m.evaluate(rows[700:]).per_channel["rse"] for m in (common, own))
    assert b.iloc[0] < 0.9 * a.iloc[0]


def test_a_channel_that_rested_in_training_is_not_corrected():
    rows = waves(600)
    rows[:450, 1] = 3.0  # rests, and moves from then on
    readout = Direct(corrections=20)
    model = Forecaster(WINDOW, HORIZON, hidden=(20,), readout=readout, validation=0.3, random_state=0, verbose=0)
    with pytest.warns(UserWarning, match="1 of 4 channels are constant"):
        model.fit(rows)
    own = model.network_.readout.own_weights.detach().abs().sum(dim=(1, 2))
    assert own[1] == 0 and model.network_.readout.own_biases[1].abs().sum() == 0


# --- the estimator -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[("shared", True), ("shared", False), ("joint", True), ("joint", False)])
def fitted(request):
    channels, skip = request.param
    readout = Direct(skip=skip, corrections=10)
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


def test_a_stream_remembers_a_fixed_amount(fitted):
    def held(thing):
        if isinstance(thing, torch.Tensor):
            return thing.numel()
        if isinstance(thing, dict):
            return sum(map(held, thing.values()))
        if isinstance(thing, list):
            return sum(map(held, thing))
        return held(vars(thing)) if type(thing).__module__ == "sswim.network.layer" else 0

    stream = fitted.stream()
    sizes = []
    for row in waves(120):
        stream(row)
        sizes.append(held(stream._stream) + stream._past.numel())
    assert len(set(sizes[WINDOW:])) == 1 and sizes[-1] > stream._past.numel()


def test_predict_continues_the_series_and_equals_the_stream(fitted):
    frame = pd.DataFrame(waves(90), index=pd.date_range("2024-01-01", periods=90, freq="h"))
    frame.columns = [str(c) for c in frame]
    forecast = fitted.predict(frame)
    assert forecast.index[0] == pd.Timestamp("2024-01-04 18:00") and list(forecast.columns) == list(frame.columns)
    np.testing.assert_allclose(forecast, fitted.stream().advance(frame.to_numpy()[-3 * WINDOW :])[-1])
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


def test_summary_tells_of_the_direct_output(fitted):
    text = " ".join(str(fitted.summary()).split())
    assert "direct" in text and "time constants 1, " in text and ("with skip" in text) == fitted.readout.skip


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
    with pytest.raises(ValueError, match=r"coverage must lie between 0.5 and 0.99, got 0.2"):
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
        ({"readout": "late"}, "readout: unknown name 'late'. Valid names: 'direct', 'trajectory'"),
        ({"readout": "directt"}, "readout: unknown name 'directt'. Did you mean 'direct'"),
        ({"readout": object()}, "readout must be one of the names 'direct', 'trajectory', or a Direct or a Trajectory object"),
        ({"scaling": "log"}, "scaling: unknown name 'log'. Valid names: 'adaptive', 'window', 'standard', 'channel', 'none'"),
        ({"covariates": [7]}, "covariates: 7 is not a column of the series; there are 4 columns"),
        ({"covariates": [0, 1, 2, 3]}, "leave one to forecast"),
        ({"covariates": [0, 0]}, "must name different columns"),
        ({"hidden": (3000,)}, "the sums of 9,017 features take 2.0 GB, got 1 GB. Use channels='shared', skip=False or fewer"),
    ],
)
def test_bad_choices_are_named(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Forecaster(WINDOW, HORIZON, verbose=0, **params).fit(waves())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Direct(corrections=-1), "corrections must be a whole number >= 0, got -1"),
        *((lambda t=t: Direct(traces=t), "traces must be") for t in ("long", (), (0.0,), (-1.0,), (float("nan"),), ("a",))),
        (lambda: Direct(common=-1), "common must be a whole number >= 0, got -1"),
        (lambda: Direct(regularization="serch"), "regularization: unknown name 'serch'. Did you mean 'search'"),
        (lambda: Direct(common=-1, corrections=-1), r"2 mistakes:\n- corrections must be .*\n- common must be"),
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
    paper = Forecaster.paper(WINDOW, HORIZON, hidden=(10,), random_state=0, verbose=0).fit(waves())
    with pytest.raises(ValueError, match="stream needs readout='direct'"):
        paper.stream()


def test_clone_keeps_the_choices(fitted):
    assert clone(fitted).get_params()["channels"] == fitted.channels
