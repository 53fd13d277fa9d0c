"""Outputs of thousands of features in small memory: one Gram matrix, and a Cholesky factor for each penalty."""

from __future__ import annotations

from collections.abc import Iterator

import scipy.linalg
import torch
from torch import Tensor

from sswim.data.windows import Samples, Split, batches
from sswim.network.network import SpikingNetwork
from sswim.options import Run
from sswim.readout.decaying import TraceReadout
from sswim.readout.likelihood import Descent, KeptFeatures, Softmax, first_minimum, fit_temperature
from sswim.regression import FixedLambda, Regularization
from sswim.report import Solution

__all__ = ["WIDE", "WideSums", "solve_wide", "wide_memory"]

# Features from which on eigenvectors take too long.
WIDE = 3000
# Samples whose products are computed at once, and features of a block of them.
ROWS, BLOCK = 2048, 2048
# Penalties, as parts of the mean variance of a feature: from the first on by a factor, until the error rises this often.
FIRST, FACTOR, PATIENCE = 1e-2, 10**-0.5, 2
# Steps of the log loss with each penalty, and on all samples at the end.
STEPS, LAST_STEPS = 4, 8


def wide_memory(features: int) -> int:
    """Return the bytes that a wide output needs at least: Gram matrix, factor, and a batch of features."""
    return 16 * features**2 + 8 * ROWS * features


class WideSums:
    r"""Sums of features and classes for one ridge regression, as `sswim.regression.Sums`, with only half of the Gram matrix.

    Products are computed in the features' dtype and summed in float64. Features are taken relative to their mean over the first
    batch, so that no digits are lost; the exact mean is taken off at the end.

    Parameters
    ----------
    features, classes : int
    voltage : float
        Target of the right class, and minus that of the others.
    """

    def __init__(self, features: int, classes: int, voltage: float) -> None:
        self.gram = torch.zeros(features, features, dtype=torch.float64)  # on and below the diagonal
        self._cross = torch.zeros(features, classes, dtype=torch.float64)
        self._total, self._targets = torch.zeros(features, dtype=torch.float64), torch.zeros(classes, dtype=torch.float64)
        self.samples, self._voltage = 0.0, voltage
        self._shift: Tensor | None = None
        self._factor: tuple[float, Tensor] | None = None

    def add(self, features: Tensor, labels: Tensor, weights: Tensor | None) -> None:
        """Add features (features, batch), classes (batch,) and how much samples count (batch,). Overwrites the features."""
        if self._shift is None:
            self._shift = features.double().mean(dim=1)
        features -= self._shift[:, None].to(features.dtype)
        y = self.targets(labels)  # (C, B), float64
        counts = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.double()
        self._total += features.double() @ counts
        self._targets += y @ counts
        self.samples += float(counts.sum())
        if weights is not None:
            features *= counts.sqrt().to(features.dtype)
            y *= counts.sqrt()
        self._cross += (features @ y.T.to(features.dtype)).double()
        for first in range(0, len(features), BLOCK):
            rows = features[first : first + BLOCK]
            for start in range(0, first + 1, BLOCK):
                stop = min(start + BLOCK, len(features))
                self.gram[first : first + BLOCK, start:stop] += rows @ features[start:stop].T
        self._factor = None

    def targets(self, labels: Tensor) -> Tensor:
        """Return the targets (classes, batch) of some labels."""
        hot = torch.nn.functional.one_hot(labels, self._cross.shape[1]).T.double()
        return self._voltage * (2 * hot - 1)

    @property
    def feature_mean(self) -> Tensor:
        """Mean of the features."""
        return self._mean + (0.0 if self._shift is None else self._shift)

    @property
    def _mean(self) -> Tensor:
        return self._total / max(self.samples, 1e-300)

    @property
    def variance(self) -> float:
        """Mean variance of a feature."""
        return float(self.gram.diagonal().mean() / self.samples - self._mean.square().mean())

    def divide(self, right: Tensor, penalty: float) -> Tensor:
        r"""Return :math:`(G + p)^{-1}` times `right` (features, any), with `G` the centred Gram matrix and `p` a number.

        A penalty that is lost in the rounding of `G` becomes larger, by factors of 10.
        """
        if self._factor is None or self._factor[0] != penalty:
            self._factor = None  # makes room
            self._factor = penalty, self._upper(penalty)
        upper = self._factor[1].numpy()
        return torch.from_numpy(scipy.linalg.cho_solve((upper, False), right.numpy(), check_finite=False))

    def _upper(self, penalty: float) -> Tensor:
        """Return the upper factor of the centred Gram matrix plus a penalty."""
        for _ in range(20):
            lower = self.gram.numpy().copy()
            for first in range(0, len(lower), BLOCK):  # G - M m m^T, in the lower half
                rows = slice(first, first + BLOCK)
                mean = self._mean[: first + BLOCK].numpy()
                lower[rows, : first + BLOCK] -= self.samples * mean[rows, None] * mean[None, :]
            lower.ravel()[:: len(lower) + 1] += penalty
            # The transposed matrix is in the order of LAPACK, which then needs no copy.
            try:
                return torch.from_numpy(scipy.linalg.cholesky(lower.T, lower=False, overwrite_a=True, check_finite=False))
            except scipy.linalg.LinAlgError:
                penalty *= 10
        raise ValueError("X: its features cannot be told apart, whatever the penalty. Look for constant or enormous values.")

    def solve(self, lambda_: float) -> tuple[Tensor, Tensor]:
        r"""Return weights (features, classes) and biases (classes,) with penalty :math:`M \lambda |w|^2`."""
        mean = self._targets / self.samples
        cross = self._cross - torch.outer(self._total, mean)
        weights = self.divide(cross, self.samples * lambda_)
        return weights, mean - self.feature_mean @ weights

    def newton(self, slope: Tensor, lambda_: float) -> Tensor:
        """Return what `Descent` divides a slope (classes, features) by: the bound of the log loss's curvature, plus lambda."""
        return 2 * self.samples * self.divide(slope.T, 2 * self.samples * lambda_).T


@torch.no_grad()
def solve_wide(
    network: SpikingNetwork, split: Split, regularization: Regularization, loss: str, voltage: float, run: Run
) -> Solution:
    """Set the weights of an output that reads traces, by least squares or to make classes likely."""
    features, classes = network.readout.weights.shape[1], network.outputs
    sums = WideSums(features, classes, voltage)
    room = max(0, run.budget - wide_memory(features)) // (2 * features)
    # Validation samples first: they choose the penalty.
    held_out = KeptFeatures(min(len(split.held_out), max(1000, room // 4)))
    seen = KeptFeatures(max(0, room - held_out.limit) if loss == "log_loss" else 0)
    with run.step("output weights"):
        for f, labels, weights in _features(network, split.held_out, held_out.limit, run):
            held_out.add(f, labels, weights)
        for f, labels, weights in _features(network, split.train, len(split.train), run):
            seen.add(f, labels, weights)
            sums.add(f, labels, weights)
    with run.step("regularisation"):
        found, lambda_ = _search(sums, held_out, regularization)
        scale = 1 / fit_temperature(held_out.logits(found), held_out.labels)
    if loss == "log_loss" and seen.samples:
        with run.step("likelihood"):
            found, penalty = _likelier(Descent(seen, sums, found.scaled(scale)), held_out, regularization, lambda_)
    temperature = fit_temperature(held_out.logits(found), held_out.labels)
    with run.step("all samples"):
        for f, labels, weights in _features(network, split.held_out, len(split.held_out), run):
            sums.add(f, labels, weights)
        centre = Softmax.from_regression(sums, *sums.solve(lambda_))
        if loss == "log_loss" and seen.samples:
            descent = Descent(seen.joined(held_out), sums, found.about(centre.mean), centre.scaled(scale))
            found, lambda_ = descent.settle(penalty, LAST_STEPS), penalty
        else:
            found = centre
    network.readout.weights.copy_(found.weights), network.readout.biases.copy_(found.biases - found.weights @ found.mean)  # type: ignore[attr-defined]
    return Solution(torch.full((classes,), lambda_), traces=len(network.readout.constants), temperature=temperature)


def _features(
    network: SpikingNetwork, samples: Samples, count: int, run: Run
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield features (features, many), classes and weights of the first `count` samples, many at a time."""
    readout = network.readout
    assert isinstance(readout, TraceReadout)
    read, size = network.trace_reader(readout.constants), network.batch_size(run.budget // 2)
    for part in run.count(batches(count, ROWS)):
        runs = [slice(r.start + part.start, r.stop + part.start) for r in batches(part.stop - part.start, size)]
        f = torch.empty(readout.weights.shape[1], part.stop - part.start, dtype=readout.weights.dtype)
        for one in runs:
            f[:, one.start - part.start : one.stop - part.start] = readout.features(read(samples.inputs(one)))
        yield f, samples.targets(part).flatten(1).argmax(dim=1), samples.weights(part)


def _error(held_out: KeptFeatures, found: Softmax, sums: WideSums) -> float:
    """Return the mean squared error on samples held out."""
    left = held_out.logits(found).T - sums.targets(held_out.labels)
    return float(left.square().sum(dim=0) @ held_out.weights)


def _search(sums: WideSums, held_out: KeptFeatures, regularization: Regularization) -> tuple[Softmax, float]:
    """Return the regression of least error on samples held out, and its penalty."""
    if isinstance(regularization, FixedLambda):
        return Softmax.from_regression(sums, *sums.solve(regularization.value)), regularization.value
    tried: dict[int, tuple[float, Softmax]] = {}

    def error(k: int) -> float:
        if k not in tried:
            found = Softmax.from_regression(sums, *sums.solve(_penalty(sums, k)))
            tried[k] = _error(held_out, found, sums), found
        return tried[k][0]

    best = 0
    way = 1 if error(1) < error(0) else -1
    while -8 < best < 12 and error(best + way) < (1 - 1e-6) * error(best):
        best += way
    return tried[best][1], _penalty(sums, best)


def _penalty(sums: WideSums, k: int) -> float:
    return max(sums.variance, 1e-12) * FIRST * FACTOR**k


def _likelier(
    descent: Descent, held_out: KeptFeatures, regularization: Regularization, lambda_: float
) -> tuple[Softmax, float]:
    """Return the weights of least log loss on samples held out, and their penalty. Each candidate starts from the last one."""
    if isinstance(regularization, FixedLambda):
        return descent.settle(regularization.value, 4 * STEPS), regularization.value
    return first_minimum(descent, held_out, [lambda_ / 10 * FACTOR**k for k in range(12)], STEPS, PATIENCE)
