r"""Weights of a classifier's readout that make the training classes likely, found from those of least squares.

For features :math:`\psi_i` of classes :math:`y_i` and weights :math:`W_0` of least squares, the mean log loss

.. math:: \frac{1}{M} \sum_i -\log \mathrm{softmax}(W (\psi_i - \bar\psi) + c)_{y_i} + \frac{\lambda}{2} |W - W_0|^2

is convex, and its curvature is nowhere more than half that of least squares (Böhning, 1992): :math:`F / (2 M) + \lambda`, with
the Gram matrix `F` that the normal equations hold already. So one eigendecomposition gives steps of the right size for every
:math:`\lambda`. Where samples are few, a large :math:`\lambda` stays near least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sswim.algebra import index_of_least
from sswim.regression import CEILING, FLOOR, FixedLambda, LambdaSearch, Regularization, Sums

__all__ = ["Descent", "KeptFeatures", "Softmax", "first_minimum", "fit_temperature", "likeliest", "search_penalty"]

# Steps per candidate of a search, each of which starts from the one before; it ends after PATIENCE in a row that are no better.
STEPS, PATIENCE = 2, 3
# Steps on all samples, from the weights of the training part.
REFIT_STEPS = 8


class KeptFeatures:
    """Features of the samples seen and their classes, of up to `limit` samples, in half precision.

    Half precision is exact for counts up to 2,048, and fading traces keep three digits.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.samples, self.dtype = limit, 0, torch.float32
        self._batches: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, features: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        """Keep a batch: features (features, batch), classes (batch,) and how much each sample counts (batch,)."""
        room = self.limit - self.samples
        if room > 0:
            self.dtype = features.dtype
            weights = None if weights is None else weights[:room].to(features)
            self._batches.append((features[:, :room].half(), labels[:room].to(features.device), weights))
            self.samples += self._batches[-1][0].shape[1]

    def joined(self, other: KeptFeatures, fade: float = 1.0, limit: int | None = None) -> KeptFeatures:
        """Return the features of both; those kept here count `fade` times.

        The first ones go if there are more than `limit` samples. Default: there is room for all.
        """
        found = KeptFeatures(self.limit + other.limit if limit is None else limit)
        for features, labels, weights in self._batches:
            here = torch.ones_like(labels, dtype=torch.float32) if weights is None and fade != 1 else weights
            found._batches.append((features, labels, here if here is None else fade * here))
        found._batches += other._batches
        found.samples, found.dtype = self.samples + other.samples, torch.promote_types(self.dtype, other.dtype)
        while found.samples > found.limit:
            features, labels, weights = found._batches[0]
            gone = min(len(labels), found.samples - found.limit)
            left = features[:, gone:], labels[gone:], weights if weights is None else weights[gone:]
            found._batches[:1] = [left] if gone < len(labels) else []
            found.samples -= gone
        return found

    def joint(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the features (features, samples), the classes, and how much samples count, None if all count alike."""
        if not self._batches:
            return torch.zeros(0, 0, dtype=torch.float16), torch.zeros(0, dtype=torch.long), None
        alike = all(weights is None for _, _, weights in self._batches)
        counts = [torch.ones(len(labels)).double() if w is None else w.double().cpu() for _, labels, w in self._batches]
        features = torch.cat([features for features, _, _ in self._batches], dim=1)
        return features.cpu(), self.labels.cpu(), None if alike else torch.cat(counts)

    @property
    def sizes(self) -> list[int]:
        """Numbers of samples that were added at once."""
        return [len(labels) for _, labels, _ in self._batches]

    @property
    def size(self) -> int:
        """Bytes that the features take."""
        return sum(features.nbytes for features, _, _ in self._batches)

    @property
    def labels(self) -> Tensor:
        """The classes of all samples, (samples,)."""
        return torch.cat([labels for _, labels, _ in self._batches])

    @property
    def weights(self) -> Tensor:
        """How much the samples count, (samples,), 1 in all."""
        parts = [torch.ones(len(labels)).to(labels.device) if w is None else w for _, labels, w in self._batches]
        weights = torch.cat(parts).double()
        return weights / weights.sum().clamp_min(1e-300)

    def loss(self, found: Softmax) -> float:
        """Return the mean log loss."""
        return float(cross_entropy(self.logits(found), self.labels, reduction="none") @ self.weights)

    def logits(self, found: Softmax) -> Tensor:
        """Return the logits of all samples, (samples, classes)."""
        W, shift = found.matrix(self.dtype)
        return torch.cat([torch.addmm(shift, W, features.to(self.dtype)).T for features, _, _ in self._batches]).double()

    def slope(self, found: Softmax) -> tuple[Tensor, Tensor]:
        """Return the slopes of the mean log loss by the weights (classes, features) and by the biases (classes,)."""
        W, shift = found.matrix(self.dtype)
        total, slope, bias_slope = 0.0, torch.zeros_like(W), torch.zeros_like(shift[:, 0])
        place = W.new_empty(0)
        for half, labels, weights in self._batches:
            place = place if place.shape == half.shape else torch.empty_like(half, dtype=W.dtype)
            features = place.copy_(half)
            error = torch.softmax(torch.addmm(shift, W, features), dim=0)  # (C, B)
            error[labels, torch.arange(len(labels), device=labels.device)] -= 1
            if weights is not None:
                error *= weights
            total += len(labels) if weights is None else float(weights.sum())
            slope.addmm_(error, features.T)
            bias_slope += error.sum(dim=1)
        slope, bias_slope = slope.double() / max(total, 1e-300), bias_slope.double() / max(total, 1e-300)
        return slope.addr_(bias_slope, found.mean, alpha=-1), bias_slope


@dataclass(frozen=True)
class Softmax:
    """Logits of features that `mean` (features,) was taken from: weights (classes, features), biases (classes,), float64."""

    weights: Tensor
    biases: Tensor
    mean: Tensor

    def matrix(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return weights (classes, features) and biases (classes, 1) of the features as they are."""
        return self.weights.to(dtype), (self.biases - self.weights @ self.mean).to(dtype)[:, None]

    def moved(self, weights: Tensor, biases: Tensor) -> Softmax:
        """Return the weights and biases moved by differences."""
        return Softmax(self.weights + weights, self.biases + biases, self.mean)

    def scaled(self, factor: float) -> Softmax:
        """Return weights and biases multiplied by a factor."""
        return Softmax(factor * self.weights, factor * self.biases, self.mean)

    def about(self, mean: Tensor) -> Softmax:
        """Return the same, of features that another mean was taken from."""
        return Softmax(self.weights, self.biases + self.weights @ (mean - self.mean), mean)

    @classmethod
    def from_regression(cls, sums: Curved, weights: Tensor, biases: Tensor) -> Softmax:
        """Take over the weights (features, classes) and biases (classes,) of a regression."""
        return cls(weights.T, biases, torch.zeros_like(sums.feature_mean)).about(sums.feature_mean)


class Curved(Protocol):
    """Sums of features that bound the curvature of the log loss."""

    def newton(self, slope: Tensor, lambda_: float) -> Tensor:
        r"""Return a slope (classes, features) times :math:`(G / 2 M + \lambda)^{-1}`, with `G` the Gram matrix."""
        ...

    @property
    def feature_mean(self) -> Tensor:
        """Mean of the features."""
        ...


class Descent:
    """Accelerated steps (Nesterov's) towards the likeliest weights.

    Parameters
    ----------
    kept : KeptFeatures
    sums : Sums or another with these methods
        Of the same features, or of more of them.
    start : Softmax
        Where it starts.
    centre : Softmax
        What the penalty draws the weights to. Default: `start`.
    """

    def __init__(self, kept: KeptFeatures, sums: Curved, start: Softmax, centre: Softmax | None = None) -> None:
        self._sums = sums
        self._kept, self._centre = kept, start if centre is None else centre
        self.found = self._before = start
        self._count = 0

    def step(self, lambda_: float) -> float:
        """Take a step with the penalty given, and return its length relative to that of the weights."""
        self._count += 1
        momentum, now, before = (self._count - 1) / (self._count + 2), self.found, self._before
        ahead = now.moved(momentum * (now.weights - before.weights), momentum * (now.biases - before.biases))
        slope, bias_slope = self._kept.slope(ahead)
        slope += lambda_ * (ahead.weights - self._centre.weights)
        down = self._sums.newton(slope, lambda_)
        self._before, self.found = now, ahead.moved(-down, -2 * bias_slope)
        length = torch.linalg.vector_norm(self.found.weights - now.weights)
        return float(length / torch.linalg.vector_norm(now.weights).clamp_min(1e-300))

    def settle(self, lambda_: float, steps: int = 500, tolerance: float = 1e-5) -> Softmax:
        """Return where it comes to rest, or where it is after `steps` steps."""
        for _ in range(steps):
            if self.step(lambda_) < tolerance:
                break
        return self.found


def search_penalty(descent: Descent, held_out: KeptFeatures, search: Regularization) -> tuple[Softmax, float]:
    r"""Return the weights of least loss on the samples held out, and their :math:`\lambda`.

    From a large :math:`\lambda` on, each candidate starts where the one before arrived, until the loss stops falling.
    """
    if isinstance(search, FixedLambda):
        return descent.settle(search.value), search.value
    if not isinstance(search, LambdaSearch):
        raise TypeError(f"regularization: the log loss needs a LambdaSearch or FixedLambda, got {search!r}.")
    return first_minimum(descent, held_out, _candidates(search), STEPS, PATIENCE)


def first_minimum(
    descent: Descent, held_out: KeptFeatures, penalties: Sequence[float], steps: int, patience: int
) -> tuple[Softmax, float]:
    """Return the weights of least loss on samples held out, and their penalty, until `patience` in a row are no better."""
    chosen, best, worse = (descent.found, penalties[0]), math.inf, 0
    for lambda_ in penalties:
        for _ in range(steps):
            descent.step(lambda_)
        loss = held_out.loss(descent.found)
        better = loss < (1 - 1e-6) * best  # rounding must not choose
        worse = 0 if better else worse + 1
        if better:
            best, chosen = loss, (descent.found, lambda_)
        elif worse == patience:
            break
    return chosen


def _candidates(search: LambdaSearch) -> list[float]:
    """Return the search's grid, largest first, and what is past its ends if it may be extended."""
    grid = torch.logspace(math.log10(search.high), math.log10(search.low), search.count, dtype=torch.float64).tolist()
    if search.extend and len(grid) > 1:
        ratio = grid[1] / grid[0]
        while grid[0] / ratio <= min(10 * search.high, CEILING):
            grid.insert(0, grid[0] / ratio)
        while grid[-1] * ratio >= FLOOR:
            grid.append(grid[-1] * ratio)
    return grid


def fit_temperature(values: Tensor, labels: Tensor) -> float:
    """Return what decision values (samples, classes) are divided by for probabilities of least log loss."""
    grid = torch.logspace(-3, 3, 61, dtype=torch.float64) * float(values.std().clamp_min(1e-12))
    losses = torch.stack([cross_entropy(values / t, labels) for t in grid])
    return float(grid[index_of_least(losses)])


def likeliest(
    sums: Sequence[Sums],
    kept: Sequence[KeptFeatures],
    every: Sums,
    regularization: Regularization,
    weights: Tensor,
    biases: Tensor,
    lambdas: Tensor,
) -> tuple[Tensor, Tensor, float, Tensor]:
    """Return weights (features, classes), biases, their temperature, and the penalty of each class.

    The penalty and the temperature are chosen on validation samples; then the weights are fitted to all samples, whose sums are
    `every`.
    """
    (train, _), (seen, held_out) = sums, kept
    start = Softmax.from_regression(train, weights, biases)
    scale = 1 / fit_temperature(held_out.logits(start), held_out.labels)
    found, lambda_ = search_penalty(Descent(seen, train, start.scaled(scale)), held_out, regularization)
    temperature = fit_temperature(held_out.logits(found), held_out.labels)
    centre = Softmax.from_regression(every, *every.solve(lambdas)).scaled(scale)
    found = Descent(seen.joined(held_out), every, found.about(centre.mean), centre).settle(lambda_, REFIT_STEPS)
    return found.weights.T, found.biases - found.weights @ found.mean, temperature, torch.full_like(lambdas, lambda_)
