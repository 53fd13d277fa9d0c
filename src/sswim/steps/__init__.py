"""The steps of the algorithm, each a small frozen object that can be swapped for another or for one of your own."""

from sswim.steps.delays import DELAYS, CorrelationDelays, FixedDelays
from sswim.steps.fields import ReceptiveFields
from sswim.steps.leaky import IntegrateScale, LeakyScale, LeakyTimes
from sswim.steps.pairs import (
    EMBEDDINGS,
    METRICS,
    PAIRS,
    Band,
    ClassDistance,
    Cosine,
    Euclidean,
    GradientPairs,
    Magnitude,
    Phase,
    VanRossum,
)
from sswim.steps.patches import PATCHES, Patches
from sswim.steps.residual import DEPTH, PlainDepth, ResidualDepth
from sswim.steps.supports import SUPPORTS, FixedSupports, SupportSearch, WidthSupports
from sswim.steps.temporal import TEMPORAL, TemporalGrid, TemporalMemory, TemporalShare, TemporalSpread
from sswim.steps.weights import (
    NORMALIZERS,
    WEIGHTS,
    DistWeights,
    Diverse,
    DotWeights,
    Fluctuation,
    MeanStd,
    PotentialStatistics,
    RandomWeights,
)

__all__ = [
    "DELAYS",
    "DEPTH",
    "EMBEDDINGS",
    "METRICS",
    "NORMALIZERS",
    "PAIRS",
    "PATCHES",
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
    "IntegrateScale",
    "LeakyScale",
    "LeakyTimes",
    "Magnitude",
    "MeanStd",
    "Patches",
    "Phase",
    "PlainDepth",
    "PotentialStatistics",
    "RandomWeights",
    "ReceptiveFields",
    "ResidualDepth",
    "SupportSearch",
    "TemporalGrid",
    "TemporalMemory",
    "TemporalShare",
    "TemporalSpread",
    "VanRossum",
    "WidthSupports",
]
