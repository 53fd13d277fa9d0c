"""How good forecasts are: errors, baselines, and the protocol of reference tables."""

from sswim.evaluate.baselines import DLinear, NLinear, Persistence, RidgeOnLags, SeasonalNaive
from sswim.evaluate.metrics import Evaluation, ForecastErrors, coincidence, van_rossum

__all__ = [
    "DLinear",
    "Evaluation",
    "ForecastErrors",
    "NLinear",
    "Persistence",
    "RidgeOnLags",
    "SeasonalNaive",
    "coincidence",
    "van_rossum",
]
