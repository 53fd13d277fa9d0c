"""A fitted classifier: everything that a prediction, a file or an export needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.inputs import InputEncoder, Values
from sswim.data.labelled import LabelledSamples, digests
from sswim.data.windows import Samples, batches, kept_for_training
from sswim.evaluate.costs import Costs, Job
from sswim.evaluate.counted_layers import Seen, Setting
from sswim.evaluate.counting import count_network
from sswim.network.network import SpikingNetwork
from sswim.readout.base import ClassReadoutOptions
from sswim.readout.voltage import Voltage
from sswim.report import SamplingReport

__all__ = ["ClassModel", "SamplesPast", "check_groups", "labelled_samples", "samples_seed", "training_order"]


@dataclass(frozen=True)
class SamplesPast:
    """What samples of an update need to know of those before.

    Attributes
    ----------
    seen : int
        Number of samples so far.
    seed : int
        Of what an encoder draws.
    validation : float
        Part of the samples that the regularisation is chosen on.
    class_weights : Tensor of shape (classes,) or None
        How much samples of each class count.
    """

    seen: int
    seed: int
    validation: float
    class_weights: Tensor | None = None


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
    past : SamplesPast or None
        What an update needs to know, if the model can be updated.
    """

    inputs: InputEncoder
    network: SpikingNetwork
    readout: ClassReadoutOptions
    report: SamplingReport
    classes: np.ndarray
    memory: int
    past: SamplesPast | None = field(default=None, repr=False, metadata={"in_files": False})

    def told(self) -> Self:
        """Return the model with all that a file holds of it."""
        return self

    def updatable(self, record: object, past: SamplesPast) -> Self:
        """Return the model with the sums that it can be updated from."""
        report = replace(self.report, solution=replace(self.report.solution, record=record))
        return replace(self, report=report, past=past)

    def samples(self, X: object, model: str = "Classifier") -> LabelledSamples:
        """Return samples to be classified as the network takes them."""
        values = self.inputs(X, model)
        return labelled_samples(
            self.inputs, values, torch.zeros(len(values), dtype=torch.long), len(self.classes), self.readout
        )

    def decisions(self, samples: LabelledSamples) -> Tensor:
        """Return the decision value of each class, (samples, classes)."""
        return self.readout.decisions(self.network, samples, self.memory)

    def costs(self, samples: Samples, bits: int | None = None, sparse: bool = False) -> Costs:
        """Return what samples cost."""
        network, outputs = self.network, len(self.classes)
        start = self.readout.first(network) if isinstance(self.readout, Voltage) else None
        parts = batches(len(samples), min(512, network.batch_size(self.memory)))
        seen = (Seen(samples.inputs(part)) for part in parts)
        layers, count = count_network(network, seen, Setting.of(network, bits, sparse), start)
        numbers = int(np.prod(self.inputs.shape))
        job = Job(numbers, outputs, 1, numbers, outputs, network.hidden)
        return Costs(f"Classifier, {outputs} classes", "sample", layers, count, job)


def labelled_samples(
    inputs: InputEncoder,
    values: Values,
    labels: Tensor,
    classes: int,
    readout: ClassReadoutOptions,
    seed: int = 0,
    class_weights: Tensor | None = None,
    first: int = 0,
    groups: Tensor | None = None,
) -> LabelledSamples:
    """Return samples as the network takes them; `first` is the number of the first one, for what an encoder draws."""
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
        first=first,
        groups=groups,
    )


def samples_seed(seed: int) -> int:
    """Return the seed of the samples' order, and of what an encoder draws, from that of a fit."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def check_groups(groups: npt.ArrayLike | None, samples: int) -> Tensor | None:
    """Return the number of each sample's group, (samples,); None if there are no groups.

    Examples
    --------
    >>> check_groups(["theo", "lucas", "theo"], 3).tolist()
    [1, 0, 1]
    """
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (samples,):
        raise ValueError(
            f"groups must hold one label per sample, of shape ({samples},), got the shape {given.shape}. Pass the group of "
            "each sample of X, in the same order."
        )
    if (given != given).any() or (given.dtype.kind == "O" and any(label is None for label in given)):
        raise ValueError("groups must name a group for each sample, got missing values. Name a group for each.")
    names, numbers = np.unique(given.astype(str) if given.dtype.kind == "O" else given, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"groups must hold at least two groups, got one: {names[0]!r}. Omit groups.")
    return torch.from_numpy(numbers)


def training_order(
    values: Values, labels: Tensor, validation: float, seed: int, groups: Tensor | None = None
) -> tuple[Tensor, int]:
    """Return samples in random order, those for training first, and how many these are.

    With the numbers of `groups` (samples,), whole groups are held out: in random order, as many as it takes for a part
    `validation` of the samples, and never all.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    if groups is None:
        held_out = digests(values) < validation
    else:
        sizes = torch.bincount(groups)
        drawn = torch.randperm(len(sizes), generator=generator)
        chosen = sizes[drawn].cumsum(dim=0) - sizes[drawn] < validation * len(labels)
        chosen[-1] = False
        held_out = torch.isin(groups, drawn[chosen])
    kept = len(labels) - int(held_out.sum())
    if groups is None and (kept == len(labels) or len(labels[~held_out].unique()) < 2):  # few samples, or nearly all alike
        return order, kept_for_training(len(labels), validation)
    return torch.cat([order[~held_out[order]], order[held_out[order]]]), kept
