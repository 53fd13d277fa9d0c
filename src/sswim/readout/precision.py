r"""How many neurons a population needs, for its rounding to cost next to nothing.

A population of `K` neurons rounds a window to steps of :math:`8 / K` of the window's deviation :math:`s`. That is noise of
variance :math:`q_K s^2`, with :math:`q_K = (8 / K)^2 / 12`. A linear forecast with weights `w` then errs by

.. math:: J_K = \min_w \; E |y - w^\top x|^2 + q_K \, E s^2 \, |w|^2 .

Noisy series hide this: to tell their windows apart takes no more than a few neurons. Smooth series do not, because weights that
continue a smooth curve are large and of both signs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sswim.algebra import safe_eigh
from sswim.network.population import REACH

__all__ = ["SIZES", "rounding_costs", "size_of_population"]

# Numbers of neurons to choose from.
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
# How much more squared error rounding may cause, as a part of the error without rounding.
ALLOWED = 0.01
# What a channel counts at most: of many channels, one without noise does not decide for all.
MOST = 2.0
# Errors below this part of the targets' squares are as good as none.
SMALLEST = 1e-6
# The first part of the windows gives weights. Their errors are measured on the rest.
FITTED = 2 / 3


def size_of_population(rows: Tensor, targets: Tensor) -> int:
    """Return the least number of neurons for which rounding costs at most 1 % of the squared error, 64 to 4,096.

    Parameters
    ----------
    rows : Tensor of shape (windows, channels, window)
        Windows in the order of time.
    targets : Tensor of shape (windows, channels, steps)
        Some of the rows that follow, relative to the window's mean.
    """
    if len(rows) < 3:
        return SIZES[0]
    costs = rounding_costs(rows, targets, SIZES)
    return next((size for size, cost in zip(SIZES, costs, strict=True) if cost <= 1 + ALLOWED), SIZES[-1])


def rounding_costs(rows: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> list[float]:
    """Return by how much rounding to some numbers of neurons multiplies the squared error, as a mean over channels.

    Of linear forecasts whose weights all channels share, on later windows than the weights come from. Each channel has the
    penalty that suits it and the rounding best.
    """
    x = rows.double() - rows.double().mean(dim=2, keepdim=True)  # (n, C, W)
    y, first = targets.double(), int(len(x) * FITTED)
    power = x.square().mean(dim=2)[first:].mean(dim=0)  # (C,), E s^2
    seen, following = x[:first].flatten(0, 1), y[:first].flatten(0, 1)
    values, vectors = safe_eigh(seen.T @ seen)
    turned = vectors.T @ (seen.T @ following)
    errors, sensitivities = [], []
    for penalty in torch.logspace(-10, 0, 21, dtype=torch.float64) * values.mean().clamp_min(1e-300):
        w = vectors @ (turned / (values.clamp_min(0) + penalty)[:, None])  # (W, steps)
        errors.append((y[first:] - x[first:] @ w).square().sum(dim=2).mean(dim=0))
        sensitivities.append(power * w.square().sum())
    error, sensitivity = torch.stack(errors), torch.stack(sensitivities)  # (penalties, C)
    none = SMALLEST * y[first:].square().sum(dim=2).mean(dim=0).clamp_min(1e-300)
    costs = []
    for size in sizes:
        noise = (2 * REACH / size) ** 2 / 12  # q_K
        rounded = (error + noise * sensitivity).amin(dim=0)
        ratio = (rounded + none) / (error.amin(dim=0) + none)
        costs.append(float(ratio.clamp_max(MOST).mean()))
    return costs
