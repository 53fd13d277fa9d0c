"""What a training by gradients did, epoch by epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import pandas as pd

__all__ = ["EpochRecord", "TrainingDiverged", "TrainingReport"]


class TrainingDiverged(ArithmeticError):
    """The loss became NaN or infinite. The network holds the best parameters so far; `report` tells of all epochs."""

    def __init__(self, message: str, report: TrainingReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch showed; epoch 0 is the network before training."""

    epoch: int
    loss: float
    validation_loss: float
    learning_rate: float
    firing_rate: float
    silent: int
    gradient_norm: float
    seconds: float


@dataclass
class TrainingReport:
    """What a training did.

    Attributes
    ----------
    records : list of EpochRecord
    best_epoch : int
        Whose parameters the network holds; 0 if training brought nothing.
    stopped : str
        Why it ended: ``"epochs"``, ``"patience"``, ``"time"``, ``"callback"`` or ``"diverged"``.
    """

    records: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = ""

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch: losses, learning rate, firing rate, number of silent neurons, gradient norm, seconds so far."""
        return pd.DataFrame([asdict(r) for r in self.records]).set_index("epoch")

    @property
    def best(self) -> EpochRecord:
        """The epoch whose parameters the network holds."""
        return self.records[self.best_epoch]
