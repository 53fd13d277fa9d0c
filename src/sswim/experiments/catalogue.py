"""All experiments, by name."""

from __future__ import annotations

from sswim.experiments.ablation import ablation, entropy
from sswim.experiments.beyond import beyond, ideas
from sswim.experiments.classification import classification
from sswim.experiments.economy import economy
from sswim.experiments.experiment import Experiment
from sswim.experiments.forecasting import forecasting, timing
from sswim.experiments.ltsf import ltsf
from sswim.experiments.questions import questions
from sswim.experiments.splits import splits

__all__ = ["EXPERIMENTS", "find"]

EXPERIMENTS: dict[str, Experiment] = {
    "forecasting": forecasting,
    "timing": timing,
    "splits": splits,
    "questions": questions,
    "classification": classification,
    "ablation": ablation,
    "entropy": entropy,
    "beyond": beyond,
    "ideas": ideas,
    "ltsf": ltsf,
    "economy": economy,
}


def find(name: str) -> Experiment:
    """Return the experiment of a name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: unknown name {name!r}. Valid names: {', '.join(map(repr, EXPERIMENTS))}.")
    return EXPERIMENTS[name]
