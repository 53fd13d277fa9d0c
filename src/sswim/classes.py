"""A fitted classifier: everything that a prediction, a file or an export needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sswim.data.events import EventStreams
from sswim.data.inputs import InputEncoder
from sswim.data.labelled import LabelledSamples
from sswim.network.network import SpikingNetwork
from sswim.readout.base import ClassReadoutOptions
from sswim.report import SamplingReport

__all__ = ["ClassModel", "labelled_samples"]


@dataclass(frozen=True)
class ClassModel:
    """A fitted classifier: everything that a prediction, a file or an export needs.

    Attributes
    ----------
    inputs : InputEncoder
    network : SpikingNetwork
    readout : Counts, Voltage or Spikes
    report : SamplingReport
        What the fit did.
    classes : array of shape (classes,)
    memory : int
        Budget in bytes.
    """

    inputs: InputEncoder
    network: SpikingNetwork
    readout: ClassReadoutOptions
    report: SamplingReport
    classes: np.ndarray
    memory: int

    def samples(self, X: object, model: str = "Classifier") -> LabelledSamples:
        """Return samples to be classified as the network takes them."""
        values = self.inputs(X, model)
        return labelled_samples(
            self.inputs, values, torch.zeros(len(values), dtype=torch.long), len(self.classes), self.readout
        )

    def decisions(self, samples: LabelledSamples) -> Tensor:
        """Return the decision value of each class, (samples, classes)."""
        return self.readout.decisions(self.network, samples, self.memory)


def labelled_samples(
    inputs: InputEncoder,
    values: Tensor | EventStreams,
    labels: Tensor,
    classes: int,
    readout: ClassReadoutOptions,
    seed: int = 0,
    class_weights: Tensor | None = None,
) -> LabelledSamples:
    """Return samples as the network takes them."""
    return LabelledSamples(
        values,
        labels,
        classes,
        readout.horizon,
        readout.voltage,
        encoder=inputs.spikes,
        seed=seed,
        scale=inputs.scale,
        class_weights=class_weights,
    )
