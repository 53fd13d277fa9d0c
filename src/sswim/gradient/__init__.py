"""Training by surrogate gradients: fine-tuning, training from scratch, and where that begins."""

from sswim.gradient.finetune import finetune
from sswim.gradient.initialize import initialize
from sswim.gradient.training import TRAININGS, FromScratch, Gradient
from sswim.report import EpochRecord, TrainingDiverged, TrainingReport

__all__ = [
    "TRAININGS",
    "EpochRecord",
    "FromScratch",
    "Gradient",
    "TrainingDiverged",
    "TrainingReport",
    "finetune",
    "initialize",
]
