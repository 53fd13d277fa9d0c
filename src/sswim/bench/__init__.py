"""Benchmarks: `sswim bench NAME`."""

from sswim.bench.cases import CASES, run
from sswim.bench.literal import synthetic_series

__all__ = ["CASES", "run", "synthetic_series"]
