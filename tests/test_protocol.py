"""The protocol of the reference tables: laws, the definitions written out, and messages."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from sswim.evaluate import ForecastErrors, Persistence
from sswim.evaluate.protocol import SCALINGS, count_training_rows, r2, rse, scale_series, split_series

SPLITS = [(0.7, 0.2, 0.1), (0.6, 0.2, 0.2)]


def numbered(rows, channels=1):
    """Every value tells its row."""
    return np.repeat(np.arange(float(rows))[:, None], channels, axis=1)


def windows(stretches, span):
    """All windows with their horizon, in order: (windows, span, channels)."""
    parts = [np.asarray(s)[i : i + span] for s in stretches for i in range(len(s) - span + 1)]
    return np.stack(parts)


@settings(max_examples=200, deadline=None)
@given(st.integers(20, 400), st.integers(1, 12), st.integers(1, 8), st.sampled_from(SPLITS), st.none() | st.integers(5, 90))
def test_splits_are_disjoint_and_cover_all_windows_in_order(rows, window, horizon, split, breaks):
    series, span = numbered(rows), window + horizon
    cuts = [series] if breaks is None else [series[i : i + breaks] for i in range(0, rows, breaks)]
    starts = [int(s[i, 0]) for s in cuts for i in range(len(s) - span + 1)]
    train, test = int(len(starts) * split[0]), int(len(starts) * split[2])  # as the reference counts
    if min(train, test, len(starts) - train - test) < 1:
        with pytest.raises(ValueError, match="at least one window for training, validation and test each"):
            split_series(series, window, horizon, split, breaks)
        return
    known, later, validation = split_series(series, window, horizon, split, breaks)
    first, second = (windows(part, span)[:, 0, 0].astype(int).tolist() for part in (known, later))
    assert first + second == starts
    assert len(second) == test
    assert len(first) - max(1, int(len(first) * validation)) == train  # as estimators count
    assert count_training_rows(rows, window, horizon, split, breaks) == starts[train - 1] + span


def test_the_split_of_metr_la_by_hand():
    known, later, validation = split_series(numbered(34_272), 12, 24, (0.7, 0.2, 0.1))
    assert len(windows(known, 36)) == 34_237 - 3_423 and len(windows(later, 36)) == 3_423
    assert int((34_237 - 3_423) * validation) == 34_237 - 23_965 - 3_423
    assert later[0][0, 0] == 34_237 - 3_423 and later[0][-1, 0] == 34_271


def test_frames_stay_frames_and_their_windows_cross_gaps_in_time():
    index = pd.date_range("2017-03-11", periods=60, freq="5min").delete(range(20, 32))
    frame = pd.DataFrame(numbered(48, 2), index=index, columns=["a", "b"])
    known, later, validation = split_series(frame, 4, 2)
    arrays = split_series(frame.to_numpy(), 4, 2)
    assert arrays[2] == validation and len(known) == len(later) == 1
    for part, array in zip([*known, *later], [*arrays[0], *arrays[1]], strict=True):
        assert list(part.columns) == ["a", "b"] and part.index.freq == pd.Timedelta("5min")
        np.testing.assert_array_equal(part, array)
    assert Persistence(4, 2).evaluate(later).windows == int((48 - 6 + 1) * 0.2)


@pytest.fixture
def moving():
    rng = np.random.default_rng(0)
    return rng.normal(size=(50, 4)) * [1.0, 5.0, 0.1, 30.0] + [0.0, 9.0, -3.0, 100.0]


@pytest.mark.parametrize("how", SCALINGS)
def test_scaling_can_be_undone(moving, how):
    rows = {"training_rows": 30} if how == "training" else {}
    moving[:, 2] = 7.0  # constant
    scaled, offset, scale = scale_series(moving, how, **rows)
    assert offset.shape == scale.shape == (4,) and (scale > 0).all()
    np.testing.assert_allclose(scaled * scale + offset, moving, rtol=1e-12)
    frame = pd.DataFrame(moving, index=pd.date_range("2024", periods=50, freq="h"), columns=list("abcd"))
    again, *_ = scale_series(frame, how, **rows)
    pd.testing.assert_frame_equal(again, pd.DataFrame(scaled, index=frame.index, columns=frame.columns))
    assert (moving[:, 2] == 7.0).all()  # what came is left alone


def test_scalings_are_what_they_are_called(moving):
    def literal(how):
        out = np.empty_like(moving)
        for c in range(4):
            x = moving[:, c]
            seen = x[:30] if how == "training" else x
            out[:, c] = {
                "series": (x - seen.min()) / (seen.max() - seen.min()),
                "training": (x - seen.min()) / (seen.max() - seen.min()),
                "maximum": x / moving.max(),
                "channel-maximum": x / np.abs(x).max(),
                "standard": (x - moving.mean()) / moving.std(),
                "none": x,
            }[how]
        return out

    for how in SCALINGS:
        found = scale_series(moving, how, 30 if how == "training" else None)[0]
        np.testing.assert_allclose(found, literal(how), rtol=1e-12, atol=1e-12)
    assert scale_series(moving)[0].min(axis=0).tolist() == [0] * 4 and scale_series(moving)[0].max(axis=0).tolist() == [1] * 4
    first = scale_series(moving, "training", 30)[0]
    moving[30:] += 1000
    np.testing.assert_array_equal(first[:30], scale_series(moving, "training", 30)[0][:30])  # nothing of later rows


def test_constant_channels_become_zero():
    constant = np.tile([0.0, 7.0, -2.5], (6, 1))
    for how in ("series", "training"):
        assert not scale_series(constant, how, 4 if how == "training" else None)[0].any()
    assert not scale_series(np.full((6, 2), 0.1), "standard")[0].any()
    assert scale_series(constant, "channel-maximum")[0][0].tolist() == [0.0, 1.0, -1.0]
    later = constant.copy()
    later[5] += 1
    assert scale_series(later, "training", 5)[0].tolist() == [[0.0] * 3] * 5 + [[1.0] * 3]


@pytest.fixture
def scored(moving):
    rng = np.random.default_rng(1)
    truth = windows([moving], 5)[:, 2:]  # (46, 3, 4)
    return truth, truth + rng.normal(size=truth.shape)


def test_the_mean_has_an_error_of_one(scored):
    truth, _ = scored
    assert rse(truth, np.broadcast_to(truth.mean(axis=0), truth.shape)) == pytest.approx(1, abs=1e-14)
    assert r2(truth, np.full_like(truth, truth.mean())) == pytest.approx(0, abs=1e-14)
    assert rse(truth, truth) == 0 and r2(truth, truth) == 1


def test_scores_are_the_same_after_one_map_of_all_values_and_not_of_each_channel(scored):
    truth, forecast = scored
    for score in (rse, r2):
        assert score(-3 * truth + 5, -3 * forecast + 5) == pytest.approx(score(truth, forecast), rel=1e-12)
        weights = np.array([1.0, 10.0, 100.0, 1000.0])
        assert score(truth * weights, forecast * weights) != pytest.approx(score(truth, forecast), rel=1e-5)


def test_scores_are_their_definitions(scored):
    truth, forecast = scored
    M, H, C = truth.shape
    above = below = total = 0.0
    everything = math.fsum(truth.ravel()) / truth.size
    for m in range(M):
        for l in range(H):
            for c in range(C):
                mean = math.fsum(truth[:, l, c]) / M
                above += (truth[m, l, c] - forecast[m, l, c]) ** 2
                below += (truth[m, l, c] - mean) ** 2
                total += (truth[m, l, c] - everything) ** 2
    assert rse(truth, forecast) == pytest.approx(math.sqrt(above / below), rel=1e-12)
    assert r2(truth, forecast) == pytest.approx(1 - above / total, rel=1e-12)
    assert r2(truth, forecast) == pytest.approx(r2_score(truth.ravel(), forecast.ravel()), rel=1e-12)
    centred, shift = truth - truth.mean(axis=0), truth.mean(axis=0)
    assert r2(centred, forecast - shift) == pytest.approx(1 - rse(truth, forecast) ** 2, rel=1e-12)


def test_scores_are_those_of_evaluations(scored):
    truth, forecast = scored
    errors = ForecastErrors()
    for part in (slice(0, 7), slice(7, 30), slice(30, None)):
        errors.update(truth[part], forecast[part])
    assert rse(truth, forecast) == pytest.approx(errors.result().rse, rel=1e-12)
    single = (truth.astype(np.float32), forecast.astype(np.float32))
    assert rse(*single) == pytest.approx(rse(*(a.astype(np.float64) for a in single)), rel=1e-12)


@pytest.mark.parametrize("breaks", [None, 40])
def test_a_model_evaluated_on_the_split_has_that_error(walk, breaks):
    _, later, _ = split_series(walk, 12, 6, (0.7, 0.2, 0.1), breaks)
    cut = windows(later, 18)
    forecast = np.repeat(cut[:, 11:12], 6, axis=1)
    found = Persistence(12, 6).evaluate(later)
    assert found.windows == len(cut) and found.rse == pytest.approx(rse(cut[:, 12:], forecast), rel=1e-9)


def test_messages():
    series = numbered(40, 2)
    with pytest.raises(ValueError) as error:
        split_series(series[:20], 12, 6, (0.7, 0.2, 0.1))
    assert str(error.value) == (
        "series must hold at least one window for training, validation and test each, but its 20 rows hold 3 windows of 12 + 6 "
        "rows, which the split (0.7, 0.2, 0.1) makes 2, 1 and 0. Pass more rows, or a shorter window or horizon."
    )
    holes = series.copy()
    holes[3, 1] = np.nan
    truth = np.random.default_rng(0).normal(size=(4, 2, 3))
    broken = truth.copy()
    broken[2, 1, 0] = np.inf
    for call, message in (
        (lambda: split_series(series, 12, 6, breaks=17), "but its 40 rows in segments of 17 hold 0 windows"),
        (lambda: split_series(series, 0, 6), "window must be a whole number >= 1, got 0."),
        (lambda: split_series(series, 12, 0), "horizon must be a whole number >= 1, got 0."),
        (lambda: split_series(series, 12, 6, breaks=0), "breaks must be a whole number >= 1, got 0."),
        (
            lambda: split_series(series, 12, 6, (0.7, 0.2)),
            "split must be three numbers that sum to 1 (training, validation, test), got (0.7, 0.2).",
        ),
        (lambda: split_series(series, 12, 6, (0.7, 0.2, 0.2)), "sum to 1 (training, validation, test), got (0.7, 0.2, 0.2)."),
        (
            lambda: split_series(series, 12, 6, (0.8, 0.0, 0.2)),
            "split[1] must be a number between 0 and 1 (both excluded), got 0.0.",
        ),
        (lambda: split_series(series[:, 0], 12, 6), "series must have the shape (rows, channels), got (40,)."),
        (
            lambda: split_series(holes, 12, 6),
            "series must be finite, but is nan in row 3, channel 1. Fill or drop such values first.",
        ),
        (lambda: scale_series(pd.DataFrame(holes, columns=["a", "b"])), "is nan in row 3, channel 'b'. Fill or drop"),
        (
            lambda: scale_series(series, "max"),
            "how must be one of 'series', 'training', 'maximum', 'channel-maximum', 'standard', 'none', got 'max'.",
        ),
        (lambda: scale_series(series, "training"), "training_rows must be given for how='training': see count_training_rows."),
        (lambda: scale_series(series, "training", 41), "training_rows must be at most the 40 rows of the series, got 41."),
        (lambda: scale_series(series, "training", 0), "training_rows must be a whole number >= 1, got 0."),
        (lambda: scale_series(series, "series", 5), "training_rows is for how='training' only, got 5 with how='series'."),
        (
            lambda: scale_series(series - 50, "maximum"),
            "series must reach above 0 for how='maximum', but its maximum is -11.0.",
        ),
        (
            lambda: rse(truth, truth[:3]),
            "rse: truth and forecast must both have the shape (windows, horizon, channels), got (4, 2, 3) and (3, 2, 3).",
        ),
        (lambda: r2(truth[0], truth[0]), "r2: truth and forecast must both have the shape (windows, horizon, channels)"),
        (lambda: rse(truth[:0], truth[:0]), "got (0, 2, 3) and (0, 2, 3)."),
        (lambda: rse(truth, broken), "rse: forecast must be finite, but is inf in window 2, step 1, channel 0. Leave such"),
        (lambda: r2(broken, truth), "r2: truth must be finite, but is inf in window 2, step 1, channel 0."),
        (
            lambda: rse(np.full((3, 2, 1), 0.1), truth[:3, :, :1]),
            "rse: truth must vary, but in each step and channel it is the same in all of 3 windows. Pass more windows.",
        ),
        (lambda: rse(truth[:1], truth[:1]), "it is the same in all of 1 windows"),
        (lambda: r2(np.full((3, 2, 1), 0.1), truth[:3, :, :1]), "r2: truth must vary, but all of its 6 values are 0.1."),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert message in str(error.value)
    with pytest.raises(TypeError, match="series must be numbers, got DataFrame: could not convert string to float: 'x'"):
        scale_series(pd.DataFrame({"a": ["x", "y"]}))
