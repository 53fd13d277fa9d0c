"""Series and samples outside of memory: every kind of source gives the fit of the array, in few reads, within the memory."""

import functools
import operator
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import dask.array
import numpy as np
import pandas as pd
import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import sswim.data.encoder
import sswim.data.filled
import sswim.data.rows
import sswim.data.statistics
from sswim import Classifier, Forecaster
from sswim.data import RowSource, StoredEvents, open_rows
from sswim.data.encoder import SeriesEncoder
from sswim.data.filled import FilledRows
from sswim.data.rows import RunsOfRows, StoredRows, Unread, find_runs
from sswim.data.scaling import SCALINGS
from sswim.data.series import as_series
from sswim.data.starts import Starts
from sswim.data.statistics import BlockStatistics
from sswim.data.windows import SeriesWindows
from sswim.datasets import load_wind_farm
from sswim.machine import one_thread
from sswim.sampling import random_order

WINDOW, HORIZON = 24, 6
IN_RUNS = 50_000  # so small a part of the memory that nothing is encoded as a whole
WIND = load_wind_farm().iloc[:900].astype(np.float64)
VALUES = WIND.to_numpy().copy()


def as_memmap(folder, values=VALUES):
    np.save(folder / "rows.npy", values)
    return np.load(folder / "rows.npy", mmap_mode="r")


def as_fortran(folder):
    return as_memmap(folder, np.asfortranarray(VALUES))


def as_slice(folder):
    wide = np.zeros((1000, 10))
    wide[50:950, 1:9] = VALUES
    return as_memmap(folder, wide)[50:950, 1:9]


def as_path(folder):
    as_memmap(folder)
    return str(folder / "rows.npy")


def as_zarr(folder, chunks=(70, 3)):
    array = zarr.create_array(folder / "rows.zarr", shape=VALUES.shape, chunks=chunks, dtype="f8")
    array[:] = VALUES
    return array


def as_shards(folder):
    array = zarr.create_array(folder / "rows.zarr", shape=VALUES.shape, chunks=(10, 8), shards=(100, 8), dtype="f8")
    array[:] = VALUES
    return array


def as_zarr_path(folder):
    as_zarr(folder)
    return folder / "rows.zarr"


def as_dask(folder):
    return dask.array.from_array(VALUES, chunks=(200, 5))


def as_parquet(folder):
    WIND.to_parquet(folder / "rows.parquet", row_group_size=130)
    return folder / "rows.parquet"


def as_parts(folder):
    for n, first in enumerate(range(0, 900, 75)):  # part.10 comes after part.9
        WIND.iloc[first : first + 75].to_parquet(folder / f"part.{n}.parquet")
    return str(folder)


KINDS = [as_memmap, as_fortran, as_slice, as_path, as_zarr, as_shards, as_zarr_path, as_dask, as_parquet, as_parts]
TABLES = [as_parquet, as_parts]


class Counting(RowSource):
    """Rows in memory that count how they are read."""

    def __init__(self, values):
        self.values, self.reads = values, []

    @property
    def shape(self):
        return self.values.shape

    def read(self, first, last):
        self.reads.append((first, last))
        return self.values[first:last].copy()


def forecaster(**options):
    return Forecaster(WINDOW, HORIZON, hidden=(10,), random_state=0, verbose=0, **options)


def state(model):
    encoder = model.model_.encoder
    return [encoder.low, encoder.high, encoder.outliers, encoder.offset, encoder.span, encoder.floor, np.array(encoder.moving)]


@pytest.fixture(scope="module")
def fitted():
    return forecaster().fit(WIND, breaks=[400])


@pytest.mark.parametrize("part", [8, IN_RUNS], ids=["encoded once", "read in runs"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_fit_of_the_array(fitted, tmp_path, kind, part, monkeypatch):
    source = kind(tmp_path)
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", part)
    model = forecaster().fit(source, breaks=[400])
    for one, other in zip(state(model), state(fitted), strict=True):
        np.testing.assert_array_equal(one, other)
    given = WIND if kind in TABLES else VALUES
    forecast = model.predict(source)
    np.testing.assert_allclose(np.asarray(forecast), np.asarray(fitted.predict(given)), rtol=1e-12)
    if kind in TABLES:
        pd.testing.assert_index_equal(forecast.index, fitted.predict(WIND).index, check_exact=False)
        assert list(forecast.columns) == list(WIND.columns)
    assert model.evaluate(source).rmse == pytest.approx(fitted.evaluate(given).rmse, rel=1e-12)


@pytest.mark.parametrize("options", [{"channels": "joint"}, {"covariates": [0]}, {"scaling": "channel"}, {"dtype": "float64"}])
def test_every_way_to_fit_reads_rows_in_runs(options, monkeypatch):
    source, one = Counting(VALUES), forecaster(**options).fit(VALUES)
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    other = forecaster(**options).fit(source)
    np.testing.assert_allclose(other.predict(source), one.predict(VALUES), rtol=1e-12)
    np.testing.assert_allclose(other.predict_windows(source), one.predict_windows(VALUES), rtol=1e-12)


def test_the_papers_fit_and_known_columns_from_rows_in_runs(monkeypatch):
    ahead = VALUES[:HORIZON, [2]]
    papers = [Forecaster.paper(WINDOW, HORIZON, hidden=(20,), random_state=0, verbose=0) for _ in range(2)]
    paper, one = papers[0].fit(VALUES).predict(VALUES), forecaster(known=[2]).fit(VALUES).predict(VALUES, ahead)
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    np.testing.assert_allclose(papers[1].fit(Counting(VALUES)).predict(VALUES), paper, rtol=1e-12)
    other = forecaster(known=[2]).fit(Counting(VALUES))
    np.testing.assert_allclose(other.predict(Counting(VALUES), ahead), one, rtol=1e-12)


def test_large_arrays_in_memory_are_not_encoded_as_a_whole(monkeypatch):
    known, longest, call = forecaster().fit(VALUES), [], SeriesEncoder.__call__
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    monkeypatch.setattr(SeriesEncoder, "__call__", lambda self, rows: longest.append(len(rows)) or call(self, rows))
    model = forecaster(memory="100MB").fit(VALUES)
    assert len(longest) > 10 and max(longest) < len(VALUES) / 2
    np.testing.assert_allclose(model.predict(VALUES), known.predict(VALUES), rtol=1e-5)  # other batches, in float32
    np.testing.assert_array_equal(forecaster().fit(VALUES).predict(VALUES), known.predict(VALUES))


def test_several_stored_series_and_breaks(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", VALUES[:400])
    np.save(tmp_path / "b.npy", VALUES[400:])
    paths = [tmp_path / "a.npy", str(tmp_path / "b.npy")]
    one = forecaster().fit([VALUES[:400], VALUES[400:]], breaks=150)
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    other = forecaster().fit(paths, breaks=150)
    for a, b in zip(one.predict([VALUES[:400], VALUES[400:]]), other.predict(paths), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    mixed = forecaster().fit([VALUES[:400], paths[1]], breaks=150)
    np.testing.assert_array_equal(mixed.predict(VALUES), other.predict(VALUES))
    stacked = as_memmap(tmp_path, VALUES[:800].reshape(2, 400, 8))
    np.testing.assert_array_equal(other.predict(stacked), other.predict(np.array(stacked)))


def test_stored_rows_go_on_where_a_fit_ended(tmp_path, monkeypatch):
    WIND.iloc[:600].to_parquet(tmp_path / "first.parquet")
    WIND.iloc[600:].to_parquet(tmp_path / "second.parquet", row_group_size=100)
    known = forecaster().fit(WIND.iloc[:600]).partial_fit(WIND.iloc[600:])
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    model = forecaster().fit(tmp_path / "first.parquet").partial_fit(tmp_path / "second.parquet")
    for one, other in zip(state(model), state(known), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(model.predict(WIND), known.predict(WIND), rtol=1e-12)
    WIND.to_parquet(tmp_path / "whole.parquet")
    one, other = (m.cross_validate(x, folds=2) for m, x in ((known, WIND), (model, tmp_path / "whole.parquet")))
    pd.testing.assert_frame_equal(one.forecasts, other.forecasts, check_index_type=False)


def test_gaps_in_the_times_of_parquet_files_split_a_series(tmp_path, monkeypatch):
    gappy = WIND.drop(index=WIND.index[[100, 101, 500]])
    gappy.reset_index(names="when").to_parquet(tmp_path / "rows.parquet", row_group_size=64)  # a column, not an index
    monkeypatch.setattr("sswim.data.series.LABELS", 50)
    found, known = as_series(tmp_path / "rows.parquet"), as_series(gappy)
    assert found.gaps == known.gaps == 2
    assert [len(s) for s in found.segments] == [len(s) for s in known.segments] == [100, 398, 399]
    for number in range(3):
        np.testing.assert_array_equal(found.labels(number), known.indexes[number])
        np.testing.assert_array_equal(found.segments[number][:], known.segments[number])
    monthly = pd.DataFrame({"a": np.arange(300.0)}, index=pd.date_range("2000-01-31", periods=300, freq="ME"))
    monthly.to_parquet(tmp_path / "months.parquet")
    assert as_series(tmp_path / "months.parquet").gaps == 0
    monthly.iloc[[*range(200), 205, *range(201, 300)]].to_parquet(tmp_path / "months.parquet")
    with pytest.raises(ValueError, match=r"times must increase, but row 201 "):
        as_series(tmp_path / "months.parquet")


# Gaps


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 60),
    block=st.integers(1, 20),
    remembered=st.integers(1, 4),
    part=st.floats(0, 0.98),
    seed=st.integers(0, 10**6),
)
def test_gaps_are_filled_as_in_memory(rows, block, remembered, part, seed):
    """Bit for bit, whichever rows are read, and wherever a gap begins and ends."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, 3)) * 1000
    for column in values.T:
        while random.random() < part:  # gaps of any length
            first = random.integers(0, rows)
            column[first : first + 1 + random.integers(0, rows)] = np.nan
        if np.isnan(column).all():
            column[random.integers(0, rows)] = 7.0
    wanted, source = as_series(values, missing="interpolate").segments[0], Counting(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sswim.data.filled, "BLOCK", block)
        patch.setattr(sswim.data.filled, "REMEMBERED", remembered)
        filled = FilledRows(source)
        for first, last in np.sort(random.integers(0, rows + 1, (12, 2)), axis=1).tolist():
            source.reads.clear()
            np.testing.assert_array_equal(filled.read(first, last), wanted[first:last])
            assert all(b - a <= max(block, last - first) for a, b in source.reads)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(filled)).read(first, last), wanted[first:last])


def test_a_long_gap_is_searched_once():
    values = np.random.default_rng(0).standard_normal((200_000, 2))
    values[10:199_000, 1] = np.nan
    source = Counting(values)
    filled = FilledRows(source)
    for first in range(50_000, 150_000, 500):
        np.testing.assert_array_equal(filled.read(first, first + 5)[:, 0], values[first : first + 5, 0])
    line = values[9, 1] + (values[199_000, 1] - values[9, 1]) * (90_000 - 9) / (199_000 - 9)
    assert filled.read(90_000, 90_001)[0, 1] == pytest.approx(line, rel=1e-12)
    assert sum(last - first for first, last in source.reads) < 10 * len(values)


@pytest.mark.parametrize("kind", [as_memmap, as_zarr_path, as_dask, as_parquet, as_parts])
def test_a_stored_series_with_gaps_gives_the_fit_of_the_array(tmp_path, kind, monkeypatch):
    holes = WIND.copy()
    holes.iloc[:4, 0] = holes.iloc[50:310, 1] = holes.iloc[395:405, 2] = holes.iloc[880:, 3] = np.nan
    monkeypatch.setitem(globals(), "WIND", holes)
    monkeypatch.setitem(globals(), "VALUES", holes.to_numpy())
    given, source = holes if kind in TABLES else holes.to_numpy(), kind(tmp_path) if kind is not as_memmap else None
    source = as_memmap(tmp_path, holes.to_numpy()) if source is None else source
    monkeypatch.setattr(sswim.data.filled, "BLOCK", 64)
    known = forecaster(missing="interpolate").fit(given, breaks=[400])
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    model = forecaster(missing="interpolate").fit(source, breaks=[400])
    for one, other in zip(state(model), state(known), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(model.predict(source), known.predict(given), rtol=1e-12)
    assert model.evaluate(source).rmse == pytest.approx(known.evaluate(given).rmse, rel=1e-12)


def test_gaps_that_cannot_be_filled(tmp_path):
    values = VALUES.copy()
    values[:, 3] = np.nan
    with pytest.raises(ValueError, match="series: channel 3 has no values but NaN, so nothing can be interpolated. Drop it."):
        forecaster(missing="interpolate").fit(as_memmap(tmp_path, values))
    values[:, 3], values[60:70, 2], values[70, 2] = VALUES[:, 3], np.nan, np.inf
    with pytest.raises(ValueError, match="series must be finite, but holds inf in row 70, channel 2. Fill or drop"):
        forecaster(missing="interpolate").fit(as_memmap(tmp_path, values))
    with pytest.raises(ValueError, match="holds nan in row 60, channel 2. Pass missing='interpolate' to a forecaster, or fill"):
        forecaster().fit(as_memmap(tmp_path, values))


# Windows


def encoder_of(rows, **options):
    kind = {"covariates": (), "known": (), "shared": True, "window": 5, "precise": False} | options
    return SeriesEncoder.fit(torch.from_numpy(rows), len(rows), SCALINGS["adaptive"], **kind)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    window=st.integers(1, 6),
    horizon=st.integers(0, 4),
    stride=st.integers(1, 15),
    shared=st.booleans(),
    most=st.integers(1, 80),
    seed=st.integers(0, 10**6),
)
def test_windows_that_are_read_are_those_in_memory(lengths, window, horizon, stride, shared, most, seed):
    random = np.random.default_rng(seed)
    rows = [random.standard_normal((n, 3)) for n in lengths]
    options = {"covariates": (1,), "known": (1,), "shared": shared, "window": window}
    encoder = encoder_of(np.concatenate([*rows, random.standard_normal((5, 3))]), **options)
    whole = SeriesWindows(encoder, [encoder(torch.from_numpy(r)) for r in rows], window, horizon, stride)
    stored = [Unread(StoredRows(Counting(r), 0, len(r)), False, most) for r in rows]
    lazy = SeriesWindows(encoder, stored, window, horizon, stride)
    assert len(whole) == len(lazy)
    count = len(whole) // whole.batch
    if not count:
        return
    index = torch.from_numpy(random.integers(0, len(whole), size=random.integers(1, 20)))
    for some in (index, slice(None), slice(0, 2 * whole.batch), torch.arange(len(whole))):
        for name in ("inputs", "past", "targets", "level"):
            assert getattr(whole, name)(some).equal(getattr(lazy, name)(some)), name
    windows = torch.from_numpy(random.integers(0, count, size=random.integers(1, 9)))
    members = (windows[:, None] * whole.batch + torch.arange(whole.batch)).flatten()
    for part in (lazy.part(windows), lazy.read(windows), whole.part(windows), whole.read(windows)):
        sent = pickle.loads(pickle.dumps(part))
        assert len(sent) == len(members)
        for name in ("inputs", "past", "targets", "ahead"):
            assert getattr(whole, name)(members).equal(getattr(sent, name)(slice(None))), name


@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    span=st.integers(1, 8),
    stride=st.integers(1, 12),
    part=st.floats(0, 1),
)
def test_starts_and_covered_rows_are_those_of_the_definition(lengths, span, stride, part):
    firsts = np.cumsum([0, *lengths])
    wanted = [f + s for f, n in zip(firsts, lengths, strict=False) for s in range(0, max(n - span + 1, 0), stride)]
    starts = Starts(lengths, span, stride)
    assert starts[torch.arange(len(starts))].tolist() == wanted
    count = round(part * len(wanted))
    rows = {r for s in wanted[:count] for r in range(s, s + span)}
    assert [firsts[n] + r for n, a, b in starts.covered(count) for r in range(a, b)] == sorted(rows)
    if wanted:
        picked = torch.tensor(wanted[: count + 1])
        runs, at = find_runs(lengths, picked, span)
        joined = np.concatenate([firsts[n] + np.arange(a, b) for n, a, b in runs])
        for start, place in zip(picked.tolist(), at.tolist(), strict=True):
            assert joined[place : place + span].tolist() == list(range(start, start + span))


def test_reads_are_few_and_short(monkeypatch):
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", 64)
    source = Counting(np.random.default_rng(0).standard_normal((6000, 3)).cumsum(axis=0))
    model = forecaster(memory="4MB").fit(source)
    windows = 6000 - WINDOW - HORIZON + 1
    assert len(source.reads) < windows / 5
    longest = max(last - first for first, last in source.reads[4:])  # after the statistics
    assert longest * 3 * 8 * 4 <= 4_000_000  # values, and three copies while they are encoded
    source.reads.clear()
    model.predict(source)
    assert source.reads == [(6000 - WINDOW, 6000)]
    source.reads.clear()
    model.evaluate(source)
    assert len(source.reads) < windows / 5


def test_windows_are_read_by_several_threads(tmp_path):
    encoder = encoder_of(VALUES, window=WINDOW)
    whole = SeriesWindows(encoder, [encoder(torch.from_numpy(VALUES))], WINDOW, HORIZON)
    for kind in (as_zarr, as_parquet, as_memmap):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        rows = StoredRows(open_rows(kind(folder)), 0, len(VALUES))
        lazy = SeriesWindows(encoder, [Unread(rows, False, 100)], WINDOW, HORIZON)
        parts = torch.arange(len(whole)).split(37)
        with ThreadPoolExecutor(4) as pool:
            for part, found in zip(parts, pool.map(lazy.inputs, parts), strict=True):
                assert found.equal(whole.inputs(part))


# Statistics


def troubled():
    """Return rows with outliers, a channel that rests, and one with a floor."""
    values = VALUES.copy()
    values[[90, 700], 2] = -9999.0
    values[:, 4] = 3.1
    values[:, 5] = np.maximum(values[:, 5], np.quantile(values[:, 5], 0.3))
    return values


def in_runs(values):
    source = Counting(values)
    segments = [StoredRows(source, 0, 333), StoredRows(source, 333, 900)]
    return source, RunsOfRows(segments, [(0, 0, 333), (1, 0, 567)])


def literal_statistics(values, trained, kind):
    """All statistics by their definitions, from all rows at once. Every third row tells what is usual."""
    low, high = np.quantile(values[::3], [0.01, 0.99], axis=0)
    width = np.where(high > low, 2 * (high - low), np.inf)
    kept = np.clip(values[:trained], low - width, high + width)
    mean, deviation = kept.mean(axis=0), np.where(np.ptp(kept, axis=0) > 0, kept.std(axis=0), 0)
    usual = np.sort(deviation[deviation > 0])[(np.sum(deviation > 0) - 1) // 2]
    span = np.where(deviation > 0, np.maximum(deviation, usual / 10), usual)
    least, range_ = kept.min(axis=0), np.ptp(kept, axis=0)
    if kind in ("channel", "none"):
        mean, span = (least, np.where(range_ > 0, range_, 1)) if kind == "channel" else (0 * least, 0 * least + 1)
    floor = np.where(((kept == least).mean(axis=0) >= 0.01) & (range_ > 0) & (values.min(axis=0) >= least), least, -np.inf)
    drawn, apart = np.random.default_rng(0).standard_normal(len(values)), values - values.mean(axis=0)
    place = drawn @ (apart / np.maximum(np.abs(apart).max(axis=0), 1e-300))
    moving = sorted((c for c in range(8) if np.ptp(values[:, c]) > 0), key=place.__getitem__)
    return {"low": least, "high": kept.max(axis=0), "offset": mean, "span": span, "floor": floor, "moving": moving}


@pytest.mark.parametrize("run", [8, 100, 2000, 10**6])
@pytest.mark.parametrize("kind", SCALINGS)
def test_statistics_of_blocks_are_those_of_all_rows(kind, run, monkeypatch):
    monkeypatch.setattr(sswim.data.rows, "RUN", run)
    monkeypatch.setattr(sswim.data.statistics, "CACHED", 7 * 8)
    monkeypatch.setattr(sswim.data.statistics, "SPREAD", 300)
    values, options = troubled(), {"covariates": (), "shared": True, "window": 5, "precise": False}
    _, runs = in_runs(values)
    one, other = (SeriesEncoder.fit(v, 600, SCALINGS[kind], **options) for v in (torch.from_numpy(values), runs))
    for name, wanted in literal_statistics(values, 600, kind).items():
        np.testing.assert_allclose(getattr(one, name), wanted, rtol=1e-12, err_msg=name)
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)
    assert one.moving == other.moving and one.resting == other.resting == (4,) and np.isfinite(one.floor[5])


def test_rows_are_read_once_and_those_with_outliers_twice(monkeypatch):
    monkeypatch.setattr(sswim.data.rows, "RUN", 400)
    source, runs = in_runs(troubled())
    SeriesEncoder.fit(runs, 600, SCALINGS["adaptive"], covariates=(), shared=True, window=5, precise=False)
    reads = np.zeros(900, dtype=int)
    for first, last in source.reads:
        reads[first:last] += 1
        assert last - first <= 50
    assert (np.delete(reads, np.s_[50:100]) == 1).all() and (reads[50:100] == 2).all()  # the other outlier is not of the fit


@pytest.mark.parametrize("most", [4, 10**6])
def test_statistics_do_not_depend_on_who_computes_them(most, monkeypatch):
    """Also where several runs make up a block, because there are many columns."""
    monkeypatch.setattr(sswim.data.rows, "RUN", 100)
    monkeypatch.setattr(sswim.data.statistics, "BLOCKS", most)
    called = []

    def backwards(work, groups, common):
        called.append(len(groups[0]))
        common = pickle.dumps(common)
        found = [work(pickle.loads(common), pickle.loads(pickle.dumps(item))) for item in reversed(groups[0])]
        return iter([functools.reduce(operator.add, reversed(found))])

    options = {"covariates": (), "shared": True, "window": 5, "precise": False}
    every = [(torch.from_numpy(troubled()), None), (in_runs(troubled())[1], None), (in_runs(troubled())[1], backwards)]
    found = [SeriesEncoder.fit(rows, 600, SCALINGS["adaptive"], add=add, **options) for rows, add in every]
    for name in ("low", "high", "outliers", "offset", "span", "floor", "moving"):
        assert all(np.array_equal(getattr(f, name), getattr(found[0], name)) for f in found), name
    assert called[0] >= (9 if most == 4 else 75)


def test_statistics_do_not_depend_on_threads_of_libraries():
    rows = torch.from_numpy(np.tile(VALUES, (60, 1)))
    drawn = np.random.default_rng(0).standard_normal(len(rows))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads), one_thread():
            found.append(BlockStatistics.of(rows, drawn))
    for name in ("mean", "square", "along"):
        assert getattr(found[0], name).equal(getattr(found[1], name)), name


def test_slices_of_joined_rows():
    _, runs = in_runs(VALUES)
    for first, last in ((0, 900), (0, 333), (333, 900), (332, 334), (899, 900), (5, 6)):
        assert runs[first:last].equal(torch.from_numpy(VALUES[first:last])) and len(runs) == 900


def test_the_first_of_a_random_order():
    for count in (4_000_001, 4_500_000):
        whole = torch.randperm(count, generator=torch.Generator().manual_seed(1))
        assert random_order(count, 3000, torch.Generator().manual_seed(1)).equal(whole[:3000])


# Pickles and memory


@pytest.mark.parametrize("kind", KINDS)
def test_sources_are_sent_as_references(tmp_path, kind):
    source = open_rows(kind(tmp_path))
    source.read(3, 80)
    sent = pickle.dumps(source)
    assert kind is as_dask or len(sent) < 3000
    again = pickle.loads(sent)
    np.testing.assert_array_equal(again.read(0, 900), VALUES)
    np.testing.assert_array_equal(again.read(899, 900), VALUES[899:])
    assert again.shape == (900, 8) and again.read(5, 5).shape == (0, 8)


PEAK = """
    import sys
    import numpy as np
    import torch
    from sswim import Forecaster
    from sswim.machine import peak_memory

    torch.set_num_threads(1)
    Forecaster(24, 6, hidden=(10,), random_state=0, verbose=0, memory="50MB").fit(np.random.rand(500, 5))
    before = peak_memory()
    rows = np.load(sys.argv[1], mmap_mode="r")
    Forecaster(24, 6, hidden=(10,), random_state=0, verbose=0, memory="50MB").fit(rows).predict(rows)
    print(peak_memory() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is that of Linux")
def test_memory_does_not_grow_with_the_series(tmp_path):
    file = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float32, shape=(15_000_000, 5))  # 300 MB
    for first in range(0, len(file), 500_000):
        time = np.arange(first, first + 500_000)[:, None]
        file[first : first + 500_000] = np.sin(time / [5, 7, 11, 13, 17]) + 0.1 * np.sin(time**2)
    file.flush()
    run = [sys.executable, "-c", textwrap.dedent(PEAK), str(tmp_path / "rows.npy")]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    # 600 MB in float64, and several times as much encoded. Pages of the mapped file may count too, as the system likes.
    assert int(found.stdout) < 750e6


# Samples


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:300].reshape(-1, 8, 8), y[:300]


def stored_images(X, kind, folder):
    if kind == "memmap":
        return as_memmap(folder, X.astype(np.uint8))
    if kind == "path":
        as_memmap(folder, X)
        return str(folder / "rows.npy")
    if kind == "zarr":
        array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(32, 4, 8), dtype="i2")
        array[:] = X
        return array
    return dask.array.from_array(X, chunks=(50, 8, 8))


@pytest.mark.parametrize("encoder", ["image", "poisson", None])
@pytest.mark.parametrize("kind", ["memmap", "path", "zarr", "dask"])
def test_stored_images_and_signals_give_the_classifier_of_the_array(digits, tmp_path, kind, encoder):
    X, y = digits
    stored = stored_images(X, kind, tmp_path)
    one, other = (Classifier((30,), encoder=encoder, random_state=0, verbose=0).fit(x, y) for x in (X, stored))
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(stored))
    assert other.score(stored, y) == one.score(X, y) and other.n_features_in_ == one.n_features_in_


def test_parquet_with_a_row_for_each_sample(digits, tmp_path):
    X, y = digits
    pd.DataFrame(X.reshape(300, -1)).rename(columns=str).to_parquet(tmp_path / "x.parquet", row_group_size=70)
    one, other = (Classifier((30,), random_state=0, verbose=0).fit(x, y) for x in (X.reshape(300, -1), tmp_path / "x.parquet"))
    np.testing.assert_array_equal(one.decision_function(X.reshape(300, -1)), other.decision_function(tmp_path / "x.parquet"))


def events_of(samples=60):
    random = np.random.default_rng(0)
    sizes = random.integers(0, 30, samples)
    return [(np.sort(random.random(n) * 30), random.integers(0, 10, n) + 5 * (i % 2)) for i, n in enumerate(sizes)]


@pytest.mark.parametrize("kind", ["array", "memmap", "zarr", "path"])
def test_stored_events_give_the_classifier_of_the_list(tmp_path, kind):
    events, y = events_of(), np.arange(60) % 2
    times, channels = (np.concatenate([e[i] for e in events]) for i in (0, 1))
    ends = np.cumsum([len(t) for t, _ in events])
    if kind != "array":
        stored = []
        for name, values in (("times", times), ("channels", channels.astype(np.int16))):
            np.save(tmp_path / f"{name}.npy", values)
            stored.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r") if kind == "memmap" else tmp_path / f"{name}.npy")
            if kind == "zarr":
                stored[-1] = zarr.create_array(tmp_path / f"{name}.zarr", shape=values.shape, chunks=(64,), dtype=values.dtype)
                stored[-1][:] = values
        times, channels = stored
    for options in ({}, {"encoder": sswim.data.ExactEvents(scale=0.5, merge=3, exact=False)}):
        one, other = (Classifier((20,), random_state=0, verbose=0, **options) for _ in range(2))
        one.fit(events, y), other.fit(StoredEvents(times, channels, ends), y)
        np.testing.assert_array_equal(
            one.decision_function(events[:30]), other.decision_function(StoredEvents(times, channels, ends))[:30]
        )


# Mistakes


def test_values_far_inside_are_checked(tmp_path):
    for value, said in ((np.nan, "finite, but holds nan"), (-np.inf, "finite, but holds -inf"), (1e200, "lie between")):
        values = VALUES.copy()
        values[777, 3] = value
        with pytest.raises(ValueError, match=f"series .*{said}.* in row 777, channel 3"):
            forecaster().fit(as_memmap(tmp_path, values))
        with pytest.raises(ValueError, match="X .* in row 777, channel 3"):
            Classifier((10,), verbose=0).fit(as_memmap(tmp_path, values), np.arange(900) % 2)
    gap = WIND.copy()
    gap.iloc[600] = np.nan
    gap.to_parquet(tmp_path / "gap.parquet")
    name = WIND.columns[0]
    with pytest.raises(ValueError, match=f"series must be finite, but holds nan in row 600, channel '{name}'"):
        forecaster().fit(tmp_path / "gap.parquet")
    with pytest.raises(ValueError, match="row 600"):
        forecaster().fit(WIND).evaluate(tmp_path / "gap.parquet")


def test_integers_do_not_overflow(tmp_path, monkeypatch):
    whole = np.round(VALUES).clip(-127, 127)
    one = forecaster().fit(whole)
    monkeypatch.setattr(sswim.data.encoder, "ENCODED", IN_RUNS)
    other = forecaster().fit(as_memmap(tmp_path, whole.astype(np.int8)))
    np.testing.assert_allclose(other.predict(as_memmap(tmp_path, whole.astype(np.int8))), one.predict(whole), rtol=1e-12)


def bad(folder, name):
    """Return what is wrong, an error, and a part of its message."""
    table = pd.DataFrame({"a": np.arange(50.0), "b": 1.0})
    if name == "other columns":
        table.to_parquet(folder / "part-1.parquet")
        table.rename(columns={"b": "c"}).to_parquet(folder / "part-2.parquet")
        return (
            folder,
            ValueError,
            r"part-2\.parquet: its columns must be .* part-1\.parquet, \['a', 'b'\], got \['a', 'c'\]",
        )
    if name == "unreadable part":
        table.to_parquet(folder / "part-1.parquet")
        (folder / "part-2.parquet").write_bytes(b"PAR1 and nothing else")
        return folder, ValueError, r"part-2\.parquet: cannot be read as Parquet"
    if name == "text":
        table.assign(c="x").to_parquet(folder / "t.parquet")
        return folder / "t.parquet", TypeError, r"t\.parquet: all columns must be numbers, but 'c' is of type"
    if name == "empty directory":
        return folder, ValueError, r"there are no \.parquet files in this directory"
    if name == "no file":
        return folder / "none.parquet", FileNotFoundError, "there is no file or directory"
    if name == "csv":
        table.to_csv(folder / "t.csv")
        return (
            str(folder / "t.csv"),
            ValueError,
            r"a path must be that of a \.npy file.*got .*t\.csv.*datasets\.read_series",
        )
    if name == "zarr group":
        zarr.create_group(folder / "g.zarr").create_array("load", shape=(5, 2), dtype="f8")
        return folder / "g.zarr", TypeError, r"got a Group of zarr that holds \['load'\]. Pass one of its arrays"
    if name == "3-d":
        return dask.array.zeros((5, 4, 3)), ValueError, r"must have the shape \(rows, channels\) or \(rows,\), got \(5, 4, 3\)"
    if name == "complex":
        return as_memmap(folder, np.zeros((50, 2), dtype=complex)), TypeError, "must be numbers, got dtype complex128"
    if name == "unknown chunks":
        x = dask.array.from_array(np.arange(50.0))
        return x[x > 3], ValueError, r"call its `compute_chunk_sizes\(\)` first"
    if name == "no channels":
        return as_memmap(folder, np.zeros((50, 0))), ValueError, r"0 feature\(s\)"
    if name == "objects":
        np.save(folder / "o.npy", np.array([None, 1]))
        return folder / "o.npy", ValueError, r"o\.npy: cannot be read as an array of numbers"
    two = [as_memmap(folder), dask.array.zeros((50, 3))]
    return two, ValueError, r"series\[1\]: all series must have the same channels, got 3 after 8"


@pytest.mark.parametrize(
    "name",
    ["other columns", "unreadable part", "text", "empty directory", "no file", "csv", "zarr group", "3-d", "complex"]
    + ["unknown chunks", "no channels", "objects", "other channels"],
)
def test_mistakes_are_told(tmp_path, name):
    data, kind, message = bad(tmp_path, name)
    with pytest.raises(kind, match=f"(?s){message}"):
        forecaster().fit(data)


def test_a_part_that_vanishes_is_named(tmp_path):
    source = open_rows(as_parts(tmp_path))
    (tmp_path / "part.4.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"part\.4\.parquet: there is no such file"):
        source.read(0, 900)
    rows = open_rows(as_memmap(tmp_path))
    (tmp_path / "rows.npy").write_bytes(b"short")
    with pytest.raises((TypeError, ValueError), match=r"rows\.npy: cannot be read any more"):
        rows.read(0, 900)


@pytest.mark.parametrize(
    "times, channels, ends, message",
    [
        ([0.0, 1.0], [0], [1, 2], "equally many, got 2 and 1"),
        ([0.0, 1.0], [0, 1], [1, 3], "the last must be the number of events, 2, got 3"),
        ([0.0, 1.0], [0, 1], [2, 1], "must not decrease"),
        ([0.0, 1.0], [0, 1], [0.5, 2.0], "ends must hold a whole number"),
        ([[0.0], [1.0]], [0, 1], [1, 2], r"times must have the shape \(events,\), got \(2, 1\)"),
    ],
)
def test_events_that_do_not_fit_together(times, channels, ends, message):
    with pytest.raises(ValueError, match=message):
        StoredEvents(np.array(times), np.array(channels), ends)


def test_wrong_events_are_found():
    for times, channels, message in (
        ([0.0, -1.0, 1.0], [0, 1, 1], r"times must be finite and >= 0.*event 1 \(sample 0\)"),
        ([0.0, 1.0, np.nan], [0, 1, 1], r"times must be finite and >= 0.*event 2 \(sample 1\)"),
        ([0.0, 1.0, 1.0], [0, 1, 1.5], r"channels must be whole numbers >= 0, but event 2 \(sample 1\)"),
        ([0.0, 1.0, 1e9], [0, 1, 1], r"events reach step 1e\+09 \(sample 1"),
        ([0.0, 1.0, 1.0], [0, 10**8, 1], r"channel 100000000 \(sample 0\)"),
    ):
        with pytest.raises(ValueError, match=message):
            sswim.data.as_events(StoredEvents(np.array(times), np.array(channels), [2, 3]))
