import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sswim.datasets import load_wind_farm


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Tests do not download anything, except those that allow it."""
    monkeypatch.setenv("SSWIM_OFFLINE", "1")


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def wind():
    """The embedded series, hourly, four months of it."""
    return load_wind_farm().iloc[: 6 * 24 * 120].resample("h").mean()


@pytest.fixture
def walk():
    """A small array: three channels, each a noisy wave of its own period."""
    rng = np.random.default_rng(0)
    t = np.arange(400)[:, None]
    return 10 + np.sin(2 * np.pi * t / np.array([12, 17, 30])) + 0.1 * rng.standard_normal((400, 3))


def data_folder():
    places = [os.environ.get("SSWIM_DATA"), Path(__file__).parents[2] / "shared" / "data"]
    return next((Path(p) for p in places if p and Path(p).is_dir()), None)


@pytest.fixture(scope="session")
def real_data():
    folder = data_folder()
    if folder is None:
        pytest.skip("set SSWIM_DATA to the folder with the measured series to run this test")
    return folder
