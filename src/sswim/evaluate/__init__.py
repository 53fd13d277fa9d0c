"""How good forecasts are, and what they cost: errors, baselines, the protocol of reference tables, operations and energy."""

from sswim.evaluate.baselines import DLinear, NLinear, Persistence, RidgeOnLags, SeasonalNaive
from sswim.evaluate.costs import Comparison, Costs, LayerCosts
from sswim.evaluate.metrics import Evaluation, ForecastErrors, coincidence, van_rossum

__all__ = [
    "Comparison",
    "Costs",
    "DLinear",
    "Evaluation",
    "ForecastErrors",
    "LayerCosts",
    "NLinear",
    "Persistence",
    "RidgeOnLags",
    "SeasonalNaive",
    "coincidence",
    "van_rossum",
]
