"""Patches: what one output of a convolution sees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Patches"]


class Patches:
    """Cuts the patches of a convolution out of its input.

    Parameters
    ----------
    conv : nn.Conv2d
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        self._size, self._stride, self._dilation = conv.kernel_size, conv.stride, conv.dilation
        self._mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        if conv.padding == "same":
            total = [d * (k - 1) for d, k in zip(self._dilation, self._size, strict=True)]
            self._padding = [(n // 2, n - n // 2) for n in total]
        else:
            each = (0, 0) if isinstance(conv.padding, str) else conv.padding
            self._padding = [(n, n) for n in each]

    def pad(self, x: Tensor) -> Tensor:
        """Return the padded input (samples, ..., height, width)."""
        (top, bottom), (left, right) = self._padding
        flat = x.flatten(0, -4) if x.ndim > 4 else x
        return nn.functional.pad(flat, (left, right, top, bottom), mode=self._mode).reshape(
            *x.shape[:-2], x.shape[-2] + top + bottom, x.shape[-1] + left + right
        )

    def places(self, z: Tensor, count: int, generator: torch.Generator) -> list[tuple[int, int]]:
        """Draw places of outputs, in proportion to how much samples differ there.

        Parameters
        ----------
        z : Tensor of shape (samples, time, channels, height, width)
        count : int
        generator : torch.Generator
        """
        spread = self.pad(z.double().mean(dim=1)).var(dim=0, correction=0).sum(dim=0)  # (H, W)
        box = torch.ones(1, 1, *self._size, dtype=torch.float64, device=z.device)
        seen = nn.functional.conv2d(spread[None, None], box, stride=self._stride, dilation=self._dilation)[0, 0].cpu()
        # Where samples differ in their timing alone, all places are alike.
        chances = seen.flatten() if float(seen.sum()) > 0 else torch.ones(seen.numel(), dtype=torch.float64)
        drawn = torch.multinomial(chances, count, replacement=True, generator=generator)
        return [(int(n) // seen.shape[1], int(n) % seen.shape[1]) for n in drawn]

    def at(self, z: Tensor, place: tuple[int, int]) -> Tensor:
        """Return the patches (samples, time, channels * height * width) of one place, in the order of the weights."""
        rows, columns = (
            slice(i * s, i * s + d * (k - 1) + 1, d)
            for i, s, d, k in zip(place, self._stride, self._dilation, self._size, strict=True)
        )
        return self.pad(z)[..., rows, columns].flatten(2)
