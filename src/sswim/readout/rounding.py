"""Output weights of few bits: rounded one after the other, the rest making up for it."""

from __future__ import annotations

import torch
from torch import Tensor

from sswim.regression import Sums

__all__ = ["rounded_output"]

# Largest weights that have an integer of their own, as parts of the largest of all: larger ones are cut off.
REACHES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3)
# How often all weights are looked at again.
ROUNDS = 3


def rounded_output(
    sums: Sums, weights: Tensor, biases: Tensor, lambdas: Tensor, bits: int, traces: int = 1
) -> tuple[Tensor, Tensor]:
    r"""Round output weights to integers of `bits` bits times a number for each output and time constant of its traces.

    With :math:`H = A^\top A + M \lambda` the squared error grows by :math:`\delta^\top H \delta` if the solution is changed by
    :math:`\delta`. Weights are rounded one after the other, and each time those that are left are moved to where that is least:
    by the rows of the Cholesky factor of :math:`H^{-1}`. Then each weight takes the best integer for the present others, a few
    times. The units of an output are the best of a few.

    Parameters
    ----------
    sums : Sums
        Of the samples that the weights were solved for.
    weights : Tensor of shape (features, outputs)
    biases : Tensor of shape (outputs,)
    lambdas : Tensor of shape (outputs,)
        Their geometric mean serves all outputs here.
    bits : int
    traces : int
        Number of time constants; feature ``i * traces + k`` is the trace of neuron `i` with constant `k`.

    Returns
    -------
    Tensor of shape (features, outputs), Tensor of shape (outputs,)
        Weights, and biases with which the mean output is as before.
    """
    most, w = 2 ** (bits - 1) - 1, weights.double()
    H = sums.gram.double().clone()
    H.diagonal().add_(sums.samples * float(lambdas.clamp_min(1e-12).log().mean().exp()) + 1e-9 * H.diagonal().mean())
    largest = w.unflatten(0, (-1, traces)).abs().amax(dim=0).clamp_min(1e-300).repeat(len(w) // traces, 1)  # (F, C)
    # Features that matter most come first: those after them can make up for more.
    order = H.diagonal().argsort(descending=True)
    H, w, largest = H[order][:, order], w[order], largest[order]
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    best, least = torch.zeros_like(w), torch.full_like(biases.double(), torch.inf)
    for reach in REACHES:
        unit = reach * largest / most
        found = _again(H, w, _one_by_one(U, w, unit, most), unit, most)
        error = ((found - w) * (H @ (found - w))).sum(dim=0)
        best, least = torch.where(error < least, found, best), torch.minimum(error, least)
    result = torch.empty_like(best)
    result[order] = best
    return result, biases + sums.feature_mean @ (weights.double() - result)


def _one_by_one(U: Tensor, w: Tensor, unit: Tensor, most: int) -> Tensor:
    """Return rounded weights (features, outputs); those after each one make up for its rounding."""
    left, found = w.clone(), torch.empty_like(w)
    for i in range(len(w)):
        found[i] = (left[i] / unit[i]).round().clamp(-most, most) * unit[i]
        left[i + 1 :] -= U[i, i + 1 :, None] * ((left[i] - found[i]) / U[i, i])
    return found


def _again(H: Tensor, w: Tensor, found: Tensor, unit: Tensor, most: int) -> Tensor:
    """Return rounded weights (features, outputs) of which none alone could be a better integer, or nearly none."""
    found, slope = found.clone(), H @ (found - w)  # half the derivative of the error
    for _ in range(ROUNDS):
        for i in range(len(w)):
            wanted = ((found[i] - slope[i] / H[i, i]) / unit[i]).round().clamp(-most, most) * unit[i]
            slope += H[:, i, None] * (wanted - found[i])
            found[i] = wanted
    return found
