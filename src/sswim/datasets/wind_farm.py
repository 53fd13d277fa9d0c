"""The embedded series: a real wind farm."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pandas as pd

__all__ = ["load_wind_farm"]


def load_wind_farm() -> pd.DataFrame:
    """Return two years of ten-minute power (kW) and wind speed (m/s) of the four turbines of La Haute Borne.

    Source: ENGIE, La Haute Borne open data, Licence Ouverte 2.0; gaps filled and values rounded by the tool named in
    ``wind_farm.LICENSE.md`` beside the file.

    Returns
    -------
    DataFrame of 105,120 rows and 8 columns
        ``power_*`` and ``wind_*`` per turbine, with a time index in UTC.

    Examples
    --------
    >>> wind = load_wind_farm()
    >>> wind.shape, str(wind.index[0]), wind.columns[0]
    ((105120, 8), '2014-01-01 00:00:00+00:00', 'power_R80711')
    """
    with (
        files("sswim.datasets").joinpath("wind_farm.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as data,
    ):
        values = (data["x"].T * data["unit"]).astype(np.float32)
        index = pd.date_range(str(data["start"]), periods=len(values), freq=f"{int(data['step_minutes'])}min", tz="UTC")
        return pd.DataFrame(values, index=index, columns=list(map(str, data["columns"])))
