"""Gradient training of a `Forecaster`'s network, for both kinds of readout."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sswim._tracking import StepRecord, peak_memory
from sswim.finetuning import TrainingDiverged, finetune
from sswim.initialization import initialize
from sswim.report import LayerReport, SamplingReport
from sswim.windows import Index

if TYPE_CHECKING:
    from sswim.estimators import Forecaster
    from sswim.trajectory import EncodedWindows

__all__ = ["WholeTargets", "from_scratch", "train"]

# What training from scratch has other than fine-tuning, by the paper's table.
SCRATCH = {"learning_rate": 5e-4, "epochs": 750, "penalty": 1e-4}
# Samples that weights are scaled by, and firing rates are told of.
FEW = 1000


class WholeTargets:
    """Windows ``[first, last)`` of others, with all that is to be forecast as targets, and what a skip connection sees."""

    def __init__(self, samples: EncodedWindows, first: int, last: int) -> None:
        self._samples, self._first, self._count = samples, first, last - first
        self.together = samples.batch

    def __len__(self) -> int:
        return self._count

    def _numbers(self, index: Index) -> Tensor:
        return torch.arange(self._first, self._first + self._count)[index]

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, inputs)."""
        return self._samples.inputs(self._numbers(index))

    def targets(self, index: Index) -> Tensor:
        """Return what is to be forecast (batch, horizon, outputs)."""
        return self._samples.ahead(self._numbers(index))

    def context(self, index: Index) -> dict[str, Tensor]:
        """Return what else the network is told."""
        return {"past": self._samples.past(self._numbers(index))} if self._samples.network.skip else {}


def from_scratch(model: Forecaster, samples: EncodedWindows, kept: int) -> SamplingReport:
    """Set the network's parameters at random."""
    few = torch.randperm(kept, generator=torch.Generator().manual_seed(0))[:FEW]
    initialize(model.network_, samples.inputs(few), random_state=model.random_state)
    rows = len(model.network_.readout.weights)
    layers = [LayerReport("", "", {}, torch.zeros(0, 2, dtype=torch.long), torch.zeros(n), True) for n in model.network_.hidden]
    return SamplingReport(
        layers, torch.zeros(0), torch.full((rows,), SCRATCH["penalty"]), 1, None, kept, len(samples) - kept, 64
    )


def train(model: Forecaster, samples: EncodedWindows, kept: int, report: SamplingReport, **defaults: Any) -> None:
    """Train the network on the first `kept` samples, compare epochs on the rest, and tell `report` of it."""
    options = {"random_state": model.random_state, "memory": model.memory, "verbose": model.verbose, **defaults}
    if model.train == "gradient":
        options |= SCRATCH
    begin = time.perf_counter()
    try:
        model.training_ = finetune(
            model.network_,
            WholeTargets(samples, 0, kept),
            validation=WholeTargets(samples, kept, len(samples)),
            **{**options, **(model.gradient or {})},
        )
    except TrainingDiverged as error:
        warnings.warn(str(error), stacklevel=5)
        model.training_ = error.report
    few = WholeTargets(samples, 0, kept)
    index = torch.arange(min(kept, max(FEW // 5, few.together)))
    spikes = model.network_.simulate(few.inputs(index[: len(index) // few.together * few.together])).spikes
    for layer, a in zip(report.layers, spikes, strict=True):
        layer.rates = a.double().mean(dim=(0, 1)).cpu()
    report.steps.append(StepRecord("gradient training", time.perf_counter() - begin, peak_memory()))
