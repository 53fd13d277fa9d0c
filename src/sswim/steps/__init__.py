"""The steps of the algorithm, each a small frozen object that can be swapped for another or for one of your own."""

from sswim.steps.delays import DELAYS, CorrelationDelays, FixedDelays
from sswim.steps.depth import DEPTH, PlainDepth, ResidualDepth
from sswim.steps.normalizers import NORMALIZERS, Diverse, Fluctuation, MeanStd, PotentialStatistics
from sswim.steps.pairs import PAIRS, GradientPairs
from sswim.steps.pseudometrics import (
    EMBEDDINGS,
    METRICS,
    Band,
    ClassDistance,
    Cosine,
    Euclidean,
    Magnitude,
    Phase,
    VanRossum,
)
from sswim.steps.supports import SUPPORTS, FixedSupports, SupportSearch
from sswim.steps.temporal import TEMPORAL, TemporalGrid, TemporalMemory, TemporalSpread
from sswim.steps.weights import WEIGHTS, DistWeights, DotWeights, RandomWeights, ReceptiveFields

__all__ = [
    "DELAYS",
    "DEPTH",
    "EMBEDDINGS",
    "METRICS",
    "NORMALIZERS",
    "PAIRS",
    "SUPPORTS",
    "TEMPORAL",
    "WEIGHTS",
    "Band",
    "ClassDistance",
    "CorrelationDelays",
    "Cosine",
    "DistWeights",
    "Diverse",
    "DotWeights",
    "Euclidean",
    "FixedDelays",
    "FixedSupports",
    "Fluctuation",
    "GradientPairs",
    "Magnitude",
    "MeanStd",
    "Phase",
    "PlainDepth",
    "PotentialStatistics",
    "RandomWeights",
    "ReceptiveFields",
    "ResidualDepth",
    "SupportSearch",
    "TemporalGrid",
    "TemporalMemory",
    "TemporalSpread",
    "VanRossum",
]
