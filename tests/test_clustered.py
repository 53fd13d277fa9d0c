"""Fits whose sums are computed elsewhere, out of order and in copies, or kept in files: the same result."""

import pickle
import random

import numpy as np
import pytest
from sklearn.datasets import load_digits

from sswim import Classifier, Counts, Forecaster, Trajectory
from sswim.data import open_rows
from sswim.datasets import load_wind_farm
from sswim.machine import add_up
from sswim.readout import gathered, look
from sswim.scale import Executor, Kept, Processes, Threads

WIND = load_wind_farm().iloc[:900, :4]
SETTINGS = {"random_state": 0, "verbose": 0}
FORECASTERS = {
    "default": {},
    "covariates": {"covariates": [1], "hidden": (10, 8)},
    "trajectory": {"readout": Trajectory(assembly="exact"), "hidden": (30,), "channels": "joint"},
    "paper": {"paper": True, "hidden": (30,)},
}
CLASSIFIERS = {
    "default": {},
    "squared": {"readout": Counts(loss="squared_error")},
    "weighted": {"class_weight": "balanced"},
    "voltage": {"readout": "voltage"},
}
X, y = load_digits(return_X_y=True)
X, y = X[:500], y[:500]


class Elsewhere(Executor):
    """Works on copies, in a random order."""

    def __init__(self, seed):
        self.seed, self.items = seed, 0

    def sums(self, work, groups, common, advance=None):
        shared = pickle.dumps((work, common))
        places = [(g, i) for g, group in enumerate(groups) for i in range(len(group))]
        random.Random(self.seed).shuffle(places)
        self.items += len(places)
        found = {}
        for g, i in places:
            function, known = pickle.loads(shared)
            found[g, i] = pickle.loads(pickle.dumps(function(known, pickle.loads(pickle.dumps(groups[g][i])))))
        for g, group in enumerate(groups):
            yield add_up(len(group), (found[g, i] for i in range(len(group))))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(look, "PIECE", 60)
    monkeypatch.setattr(gathered, "ITEM", 50)
    monkeypatch.setattr("sswim.readout.counts.ITEM", 50)


def forecast(name, rows=WIND, checkpoint=None, **options):
    options = {**SETTINGS, **FORECASTERS[name], **options}
    build = Forecaster.paper if options.pop("paper", False) else Forecaster
    return build(24, 6, **options).fit(rows, checkpoint=checkpoint).predict(WIND).to_numpy()


def decisions(name, checkpoint=None, **options):
    options = {"hidden": (30,), **SETTINGS, **CLASSIFIERS[name], **options}
    return Classifier(**options).fit(X, y, checkpoint=checkpoint).decision_function(X)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "result"), [(n, forecast) for n in FORECASTERS] + [(n, decisions) for n in CLASSIFIERS])
def test_it_does_not_matter_where_and_in_which_order_sums_are_computed(name, result, dtype):
    one, two = Elsewhere(1), Elsewhere(2)
    found = result(name, dtype=dtype, executor=one)
    assert one.items > 3 and np.array_equal(found, result(name, dtype=dtype, executor=two))
    plain = result(name, dtype=dtype)
    np.testing.assert_allclose(found, plain, atol=(1e-8 if dtype == "float64" else 2e-3) * np.abs(plain).max())


def test_what_workers_can_compute_is_not_sent(monkeypatch):
    """A worker gets the network and the rows. Filters of the hidden layers would take several times as much."""
    sent = []
    monkeypatch.setattr(pickle, "dumps", lambda thing, *a, dumps=pickle.dumps: sent.append(dumps(thing, *a)) or sent[-1])
    forecast("trajectory", executor=Elsewhere(0))
    assert WIND.to_numpy().nbytes < max(map(len, sent)) < 8 * WIND.to_numpy().nbytes


@pytest.mark.parametrize(
    ("name", "result"), [("default", forecast), ("trajectory", forecast), ("default", decisions), ("weighted", decisions)]
)
def test_a_fit_goes_on_from_the_sums_that_it_kept(name, result, tmp_path):
    """Once all sums are kept, nothing is computed again; a damaged one is."""
    first = result(name, checkpoint=tmp_path / "sums")
    files = sorted((tmp_path / "sums").iterdir())
    counting = Elsewhere(0)
    assert np.array_equal(result(name, executor=counting, checkpoint=tmp_path / "sums"), first) and counting.items == 0
    files[0].write_bytes(files[0].read_bytes()[:-5])
    with pytest.warns(UserWarning, match="computed again"):
        assert np.array_equal(result(name, executor=counting, checkpoint=tmp_path / "sums"), first)
    assert counting.items > 0


def test_sums_of_other_series_are_not_taken(tmp_path):
    one, other = WIND, WIND.iloc[::-1].set_axis(WIND.index)
    forecast("default", one, checkpoint=tmp_path)
    counting = Elsewhere(0)
    found = forecast("default", other, executor=counting, checkpoint=tmp_path)
    assert counting.items and np.array_equal(found, forecast("default", other, executor=Elsewhere(1)))


def test_two_processes_read_a_stored_series(tmp_path):
    WIND.to_parquet(tmp_path / "wind.parquet")
    found = forecast("default", tmp_path / "wind.parquet", executor=Processes(2), memory="40MB")
    assert np.array_equal(found, forecast("default", open_rows(tmp_path / "wind.parquet"), memory="40MB"))


def test_sums_cannot_be_taken_up_without_a_seed(tmp_path):
    with pytest.raises(ValueError, match="checkpoint needs a number as random_state, got None"):
        forecast("default", random_state=None, checkpoint=tmp_path)


def test_wrong_executors_are_refused():
    for executor in ("cluster", 0, 1.5, object()):
        with pytest.raises((TypeError, ValueError), match="executor"):
            forecast("default", executor=executor)
    assert isinstance(Kept(Threads(), "folder"), Executor)
