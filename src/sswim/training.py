"""Gradient training of an estimator's network."""

from __future__ import annotations

import inspect
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sswim._tracking import StepRecord, peak_memory
from sswim.finetuning import TrainingDiverged, finetune
from sswim.initialization import initialize
from sswim.network import SpikingNetwork
from sswim.report import LayerReport, SamplingReport
from sswim.windows import Index, Samples

if TYPE_CHECKING:
    from sswim.estimators import Forecaster
    from sswim.trajectory import EncodedWindows

__all__ = ["SCRATCH", "WholeTargets", "check_gradient", "from_scratch", "train", "train_further", "untrained_report"]

# What training from scratch has other than fine-tuning, by the paper's table.
SCRATCH = {"learning_rate": 5e-4, "epochs": 750, "penalty": 1e-4}
# Samples that weights are scaled by, and firing rates are told of.
FEW, FEWER = 1000, 200
# Options of `finetune` that a user may set; the others are the estimator's.
GRADIENT = set(inspect.signature(finetune).parameters) - {"network", "X", "Y", "validation"}


def check_gradient(gradient: dict[str, Any] | None, train: str) -> None:
    """Check an estimator's options of gradient training."""
    if gradient is not None and train == "sample":
        raise ValueError("gradient: options of a training that train='sample' does without. Set train='sample+gradient'.")
    unknown = sorted(set(gradient or {}) - GRADIENT)
    if unknown:
        raise ValueError(f"gradient: unknown options {unknown}. Valid ones: {sorted(GRADIENT)}.")


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


def untrained_report(network: SpikingNetwork, penalty: float, samples: int, validation_samples: int) -> SamplingReport:
    """Return the report of a network whose parameters are drawn at random."""
    none, lambdas = torch.zeros(0, 2, dtype=torch.long), torch.full((len(network.readout.weights),), penalty)
    layers = [LayerReport("", "", {}, none, torch.zeros(n), True) for n in network.hidden]
    return SamplingReport(layers, torch.zeros(0), lambdas, 1, None, samples, validation_samples, 64)


def from_scratch(model: Forecaster, samples: EncodedWindows, kept: int) -> SamplingReport:
    """Set the network's parameters at random."""
    few = torch.randperm(kept, generator=torch.Generator().manual_seed(0))[:FEW]
    initialize(model.network_, samples.inputs(few), random_state=model.random_state)
    return untrained_report(model.network_, SCRATCH["penalty"], kept, len(samples) - kept)


def train(model: Forecaster, samples: EncodedWindows, kept: int, report: SamplingReport, **defaults: Any) -> None:
    """Train on the first `kept` samples, and compare epochs on the rest."""
    options = {**defaults, **(SCRATCH if model.train == "gradient" else {})}
    first, rest = WholeTargets(samples, 0, kept), WholeTargets(samples, kept, len(samples))
    train_further(model, first, rest, report, options)


def train_further(model: Any, samples: Samples, held_out: Samples, report: SamplingReport, options: dict[str, Any]) -> None:
    """Train an estimator's network by gradients, and tell `report` of it.

    `options` of `finetune` give way to the user's. A training that diverges ends with a warning and the best epoch.
    """
    begin = time.perf_counter()
    usual = {"random_state": model.random_state, "memory": model.memory, "verbose": model.verbose}
    try:
        model.training_ = finetune(
            model.network_, samples, validation=held_out, **{**usual, **options, **(model.gradient or {})}
        )
    except TrainingDiverged as error:
        warnings.warn(str(error), stacklevel=5)
        model.training_ = error.report
    group = getattr(samples, "together", 1)
    few = torch.arange(min(len(samples), max(FEWER // group, 1) * group))
    spikes = model.network_.simulate(samples.inputs(few)).spikes
    for layer, a in zip(report.layers, spikes, strict=True):
        layer.rates = a.double().mean(dim=(0, 1)).cpu()
    report.steps.append(StepRecord("gradient training", time.perf_counter() - begin, peak_memory()))
