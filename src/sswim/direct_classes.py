"""A classifier's direct readout of the traces of all hidden layers: one regression, and the likeliest weights from there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from sswim._checks import parse_memory, resolve
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.hidden import HiddenSteps, sample_from
from sswim.labelled import LabelledSamples
from sswim.likelihood import Descent, KeptFeatures, Softmax, fit_temperature, search_penalty
from sswim.readout import REGULARIZATION, FixedLambda, LambdaSearch, NormalEquations
from sswim.report import SamplingReport
from sswim.windows import Subset

if TYPE_CHECKING:
    from sswim.classifier import Classifier

__all__ = ["fit"]

# Steps on all samples, from the weights that the training part has.
REFIT_STEPS = 8


def fit(model: Classifier, samples: LabelledSamples, train: Subset, held_out: Subset) -> SamplingReport:
    """Sample the hidden layers of `model`, and solve for the weights that read their traces."""
    network, budget, random = model.network_, parse_memory(model.memory), Randomness(model.random_state)
    readout = network.readout
    count = readout.weights.shape[1]
    if 24 * count**2 > budget:
        raise ValueError(
            f"memory: the sums of {count:,} features take {24 * count**2 / 1e9:.1f} GB, got memory={model.memory!r}. Use "
            "fewer neurons or traces, or allow more."
        )
    regularization = resolve("regularization", model.regularization, REGULARIZATION, "basis")
    steps = HiddenSteps.named(**model._hidden_options(), depth=model.depth)
    weight = torch.ones(len(model.classes_), dtype=torch.float64)
    if model.class_weight is not None:
        names = model.classes_[samples.labels.numpy()]
        weight = torch.from_numpy(compute_class_weight(model.class_weight, classes=model.classes_, y=names))
    with Tracker(model.verbose) as tracker, torch.no_grad():
        _, _, layers = sample_from(network, train, model.initial_batch, steps, budget, random, tracker)
        sums = [NormalEquations(count, len(model.classes_), device=readout.weights.device) for _ in range(2)]
        # Samples come in random order, so the first ones stand for all.
        room = budget / (2 * count * len(samples)) if model.loss == "log_loss" else 0.0
        kept = [KeptFeatures(math.ceil(room * len(part))) for part in (train, held_out)]
        with tracker.step("output weights"):
            read = network.features()
            for equations, keep, part in zip(sums, kept, (train, held_out), strict=True):
                for index in tracker.count(model._batches(len(part))):
                    f, y = read(part.inputs(index)), part.targets(index)[:, 0]
                    weights = None if model.class_weight is None else weight[y.argmax(dim=1)].to(f.device)
                    keep.add(f, y.argmax(dim=1), weights)
                    equations.update(f[:, None], y.T.double()[:, None].to(f.device), weights=weights)
        with tracker.step("regularisation"):
            w, b, lambdas = regularization.solve(*sums)
            if model.loss == "squared_error":
                readout.weights.copy_(w.T), readout.biases.copy_(b)
                model.temperature_ = model._fit_temperature(held_out)  # while the weights have not seen these samples
                sums[0].merge(sums[1])
                w, b = sums[0].solve(lambdas)
        if model.loss == "log_loss":
            with tracker.step("likelihood"):
                w, b, model.temperature_, lambdas = _likeliest(sums, kept, regularization, w, b, lambdas)
        readout.weights.copy_(w.T), readout.biases.copy_(b)
    return SamplingReport(
        layers=layers,
        lags=torch.zeros(0),
        lambdas=lambdas.cpu(),
        traces=len(readout.constants),
        assembly=None,
        samples=len(train),
        validation_samples=len(held_out),
        batch_size=model._size,
        steps=tracker.records,
    )


def _likeliest(
    sums: Sequence[NormalEquations],
    kept: Sequence[KeptFeatures],
    regularization: LambdaSearch | FixedLambda,
    weights: Tensor,
    biases: Tensor,
    lambdas: Tensor,
) -> tuple[Tensor, Tensor, float, Tensor]:
    """Return weights (features, classes), biases, their temperature, and the penalty of each class.

    The penalty and the temperature are chosen on samples held out; the weights are fitted to all then.
    """
    (train, validation), (seen, held_out) = sums, kept
    start = Softmax.from_regression(train, weights, biases)
    scale = 1 / fit_temperature(held_out.logits(start), held_out.labels)
    found, lambda_ = search_penalty(Descent(seen, train, start.scaled(scale)), held_out, regularization)
    temperature = fit_temperature(held_out.logits(found), held_out.labels)
    train.merge(validation)
    seen.merge(held_out)
    centre = Softmax.from_regression(train, *train.solve(lambdas)).scaled(scale)
    found = Descent(seen, train, found.about(centre.mean), centre).settle(lambda_, REFIT_STEPS)
    return found.weights.T, found.biases - found.weights @ found.mean, temperature, torch.full_like(lambdas, lambda_)
