"""Milliseconds that a row takes in `Forecaster.stream()`, after more and more rows: it should not grow.

    python benchmarks/stream.py

41 solar farms, 10 minutes (`aemo-solar`), windows of 168 rows, horizon 24; fitted on the first 8,000 rows. The data is read
from the folder named by the environment variable SSWIM_DATA.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from sswim import Forecaster
from sswim.datasets import load_series

AFTER, TIMED = (1000, 5000, 20000, 35000, 50000), 200


def main() -> None:
    x = load_series("aemo-solar").to_numpy(dtype=np.float64)
    model = Forecaster(168, 24, random_state=0).fit(x[:8000])
    stream = model.stream()
    print("| rows before | milliseconds per row (median) |\n| --- | --- |")
    for after in AFTER:
        for row in x[stream.rows : after]:
            stream(row)
        seconds = []
        for row in x[after : after + TIMED]:
            begin = time.perf_counter()
            forecast = stream(row)
            seconds.append(time.perf_counter() - begin)
        if after == AFTER[0]:  # the answer is that of all rows at once
            expected = model.predict_windows(x[: stream.rows + 24])[-1]
            np.testing.assert_allclose(forecast, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
        print(f"| {after:,} | {1e3 * statistics.median(seconds):.2f} |")


if __name__ == "__main__":
    main()
