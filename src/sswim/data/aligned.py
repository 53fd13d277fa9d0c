"""Times of recordings: different lengths are brought to one, and stretches are laid side by side."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["align", "fold"]

# Where recordings of all lengths begin and end once they are aligned, as parts of the window.
MARGIN = 0.05


def align(times: Tensor, samples: Tensor, count: int, window: int, part: float) -> Tensor:
    """Bring samples of different lengths to one length.

    Of each sample, the times that all but a `part` of the events lie after, and before, become 5 % and 95 % of the window.

    Examples
    --------
    >>> align(torch.tensor([2.0, 3.0, 4.0, 9.0, 5.0]), torch.tensor([0, 0, 0, 1, 1]), 2, 100, 0.0).tolist()
    [5.0, 50.0, 95.0, 95.0, 5.0]
    """
    sizes = torch.bincount(samples, minlength=count)
    order = torch.from_numpy(np.lexsort((times.numpy(), samples.numpy())))
    before, last = sizes.cumsum(dim=0) - sizes, (sizes - 1).clamp_min(0)
    ranked = torch.cat([times[order], times.new_zeros(1)])  # the last one is for samples without events
    begin = ranked[before + (part * last).floor().long()]
    end = ranked[before + ((1 - part) * last).ceil().long()]
    rate = (1 - 2 * MARGIN) * window / (end - begin).clamp_min(1e-12)
    return MARGIN * window + (times - begin[samples]) * rate[samples]


def fold(times: Tensor, channels: Tensor, length: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Lay stretches of `length` steps side by side: those of stretch `k` get the channels from ``k * inputs`` on.

    Examples
    --------
    >>> fold(torch.tensor([1.0, 4.5, 9.0]), torch.tensor([0, 1, 1]), 4, 2)
    (tensor([1.0000, 0.5000, 1.0000]), tensor([0, 3, 5]))
    """
    stretch = torch.div(times, length, rounding_mode="floor").long()
    return times.remainder(length), channels + stretch * inputs
