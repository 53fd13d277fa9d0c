"""A classifier's readouts as in the paper: output voltages that follow a surrogate, integrated or made spikes of."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sswim.labelled import LabelledSamples, voltage_output
from sswim.report import SamplingReport
from sswim.sampling import sample
from sswim.windows import Subset

if TYPE_CHECKING:
    from sswim.classifier import Classifier

__all__ = ["fit", "normalize", "voltages"]

# Spike costs of an output layer that are tried.
COSTS = (-0.1, -0.25, -0.5, -1.0, -1.5)


def fit(model: Classifier, train: Subset, held_out: Subset) -> SamplingReport:
    """Fit the network as in the paper, its output voltages to the surrogate."""
    return sample(
        model.network_,
        train,
        validation=held_out,
        **model._hidden_options(),
        delays=model.delays,
        supports=model.supports,
        regularization=model.regularization,
        assembly=model.assembly,
        initial_batch=model.initial_batch,
        memory=model.memory,
        random_state=model.random_state,
        verbose=model.verbose,
    )


def voltages(model: Classifier, samples: LabelledSamples | Subset) -> Tensor:
    """Return the output layer's voltages (classes, steps, samples), before any spikes."""
    with voltage_output(model.network_):
        look = model.network_.predictor(0)
        found = [look(samples.inputs(part)) for part in model._batches(len(samples))]
    return torch.cat(found).permute(2, 1, 0)


@torch.no_grad()
def normalize(model: Classifier, held_out: Subset) -> None:
    """Scale and shift the output's voltages, and set its spike costs, such that spikes tell the classes apart best.

    Voltages of plus or minus ``1 + delta`` make a neuron fire as often as it can, or never: numbers of spikes say little.
    Judged on the validation part.
    """
    readout, few = model.network_.readout, Subset(held_out, torch.arange(min(len(held_out), 1000)))
    v = voltages(model, few)
    label = few.targets(slice(None))[:, 0].argmax(dim=1).to(v.device)
    grid = itertools.product(COSTS, torch.logspace(-1, 0.5, 10).tolist(), torch.linspace(-0.5, 1.25, 8).tolist())
    best, chosen = -1.0, (-1.0, 1.0, 0.0)
    for cost, alpha, beta in grid:
        readout.costs.fill_(cost)
        counts = readout.fire(alpha * v + beta)[:, model._first :].sum(dim=1)  # (C, B)
        right = float((counts.argmax(dim=0) == label).double().mean())
        if right > best:
            best, chosen = right, (cost, alpha, beta)
    cost, alpha, beta = chosen
    readout.costs.fill_(cost)
    readout.weights *= alpha
    readout.biases.mul_(alpha).add_(beta)
    model.normalization_ = (alpha, beta, cost)
