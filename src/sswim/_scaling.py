"""How channels are scaled, from the rows of the training windows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["scales", "standard_scales"]


def standard_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and deviation, from rows (rows, channels).

    A channel that hardly moved would be magnified without bound once it does: its deviation counts as a tenth of the usual
    one at least. One that rested is taken to move like the others.
    """
    deviation = rows.std(dim=0, correction=0)
    moving = deviation[deviation > 0]
    usual = moving.median() if len(moving) else torch.ones_like(deviation[0])
    return rows.mean(dim=0), torch.where(deviation > 0, torch.maximum(deviation, 0.1 * usual), usual)


def scales(scaling: str, rows: Tensor, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each column's offset and span, from training rows (rows, columns) and their range, by a scaling's name."""
    if scaling in ("standard", "adaptive", "window"):
        mean, span = standard_scales(rows)
        return mean.numpy(), span.numpy()
    if scaling == "channel":
        width = high - low
        return low.copy(), np.where(width > 0, width, 1.0)
    return np.zeros_like(low), np.ones_like(low)
