"""What sources add to a forecast sums up to it, and each source is what it says."""

import numpy as np
import pandas as pd
import pytest

from sswim import Direct, Forecaster, Scaling
from sswim.contributions import SOURCES

WINDOW, HORIZON = 24, 6


@pytest.fixture
def frame(walk):
    index = pd.date_range("2024-01-01", periods=len(walk), freq="h")
    found = pd.DataFrame(walk, columns=["z", "a", "m"], index=index)
    found["z"] = np.maximum(found["z"] - 10, 0)  # has a floor
    found["hour"], found["other"] = index.hour.astype(float), np.roll(walk[:, 0], 3)
    return found


MODELS = {
    "default": {},
    "rows": {"readout": Direct(skip=True)},
    "joint": {"channels": "joint"},
    "alone": {"readout": Direct(common=False)},
    "no single neurons": {"readout": Direct(singles=0)},
    "standard": {"scaling": "standard"},
    "window": {"scaling": Scaling("window", floor=False)},
}


@pytest.mark.parametrize("covariates", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up_to_the_forecast(name, covariates, frame):
    options = {"covariates": ["other"], "known": ["hour"]} if covariates else {}
    data = frame if covariates else frame[["z", "a", "m"]]
    model = Forecaster(WINDOW, HORIZON, random_state=0, **options, **MODELS[name]).fit(data[:330])
    for end in (100, 200, 333):
        future = data[end : end + HORIZON] if covariates else None
        forecast, parts = model.predict(data[:end], future), model.contributions(data[:end], future)
        assert tuple(parts.columns) == SOURCES
        total = parts.sum(axis=1).unstack("channel")[list(forecast.columns)]
        np.testing.assert_allclose(total, forecast, rtol=1e-9, atol=1e-9)
        assert total.index.equals(forecast.index)
        if not covariates:
            assert (parts[["covariates", "known ahead"]] == 0).all(axis=None)
        if name == "alone":
            assert (parts["other channels"] == 0).all()
        if name in ("no single neurons", "joint"):
            assert (parts["single neurons"] == 0).all()


def test_each_source_is_what_it_says(frame):
    model = Forecaster(WINDOW, HORIZON, covariates=["other"], known=["hour"], random_state=0).fit(frame[:330])
    past, future = frame[:300], frame[300 : 300 + HORIZON]
    plain = model.contributions(past, future)
    assert plain.drop(columns=["last value", "floor", "calendar"]).abs().sum().gt(0).all(), "nearly every source takes part"
    ahead = model.contributions(past, future.assign(hour=0.0))
    moved = (ahead - plain).abs().max()
    assert moved["known ahead"] > 0 and moved.drop(["known ahead", "floor"]).max() < 1e-12
    other = past.assign(a=past["a"] * 1.3)  # one channel is another: to the others, it is another channel
    moved = (model.contributions(other, future) - plain).xs("m", level="channel").abs().max()
    assert moved["other channels"] > 0 and moved.drop(["other channels", "floor"]).max() < 1e-12


def test_what_the_floor_adds(frame):
    data = frame[["z", "a"]].assign(a=lambda f: f["a"] - 10)
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(data[:330])
    floors = [model.contributions(data[:end]).xs("z", level="channel") for end in range(100, 330, 7)]
    table = pd.concat(floors)
    total, below = table.sum(axis=1), table.drop(columns="floor").sum(axis=1) < 0
    assert below.any() and (total >= -1e-12).all() and (table["floor"][~below] == 0).all()


def test_several_series_and_arrays(walk):
    model = Forecaster(WINDOW, HORIZON, random_state=0).fit(walk)
    one, two = model.contributions([walk[:100], walk[:200]])
    pd.testing.assert_frame_equal(two, model.contributions(walk[:200]))
    assert one.index.names == ["row", "channel"] and list(one.index[0]) == [0, 0] and one.shape == (HORIZON * 3, len(SOURCES))
    with pytest.raises(ValueError, match="contributions needs a Forecaster fitted with readout='direct'"):
        Forecaster.paper(WINDOW, HORIZON, hidden=(9,), random_state=0).fit(walk).contributions(walk)
