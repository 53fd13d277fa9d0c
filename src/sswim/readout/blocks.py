"""Sums of blocks in time, and ridge regressions on the sums of some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.regression import safe_eigh

__all__ = ["BlockSums", "Part", "Solver", "without"]

# The constant bears less penalty than other features.
ONE = 3.0


@dataclass(frozen=True)
class Part:
    """Sums over some rows: gram (C, q, q), cross (C, q, R), energy (C, R) and the number of rows of each of C channels."""

    gram: Tensor
    cross: Tensor
    energy: Tensor
    rows: float

    @classmethod
    def of(cls, features: Tensor, targets: Tensor) -> Part:
        """Return the sums of features (C, rows, features) and targets (C, rows, outputs)."""
        energy = targets.double().square().sum(dim=1)
        return cls(torch.bmm(features.mT, features), torch.bmm(features.mT, targets), energy, features.shape[1])

    def pooled(self) -> Part:
        """Return the sums of all channels as those of one."""
        gram, cross, energy = (v.sum(dim=0, keepdim=True) for v in (self.gram, self.cross, self.energy))
        return Part(gram, cross, energy, self.rows * len(self.gram))

    def errors(self, weights: Tensor) -> Tensor:
        """Return the sums of squared errors (C,) of weights (C, q, R)."""
        return (weights * (self.gram @ weights - 2 * self.cross)).sum(dim=(1, 2)) + self.energy.sum(dim=1)


class BlockSums:
    """Sums of each of several blocks in time, for each channel.

    Parameters
    ----------
    channels, blocks, features, outputs : int
    """

    def __init__(self, channels: int, blocks: int, features: int, outputs: int, device: torch.device | str = "cpu") -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(channels, blocks, *shape, dtype=torch.float64, device=device)

        self.gram, self.cross, self.energy = zeros(features, features), zeros(features, outputs), zeros(outputs)
        self.rows = torch.zeros(blocks, dtype=torch.float64)

    def add(self, block: int, part: Part) -> None:
        """Add the sums of some rows to a block."""
        self.gram[:, block] += part.gram
        self.cross[:, block] += part.cross
        self.energy[:, block] += part.energy
        self.rows[block] += part.rows

    def part(self, blocks: Sequence[int], outputs: Tensor | slice = slice(None)) -> Part:
        """Return the sums over some blocks, for some of the outputs."""
        first, *others = (self._of(b, outputs) for b in blocks)
        gram, cross, energy = (v.clone() for v in first[:3])
        for other in others:
            gram += other[0]
            cross += other[1]
            energy += other[2]
        return Part(gram, cross, energy, float(self.rows[list(blocks)].sum()))

    def block(self, number: int, outputs: Tensor | slice = slice(None)) -> Part:
        """Return the sums of one block, without a copy of the Gram matrices."""
        return Part(*self._of(number, outputs), float(self.rows[number]))

    def _of(self, block: int, outputs: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram[:, block], self.cross[:, block][:, :, outputs], self.energy[:, block][:, outputs]


def without(whole: Part, parts: Sequence[Part]) -> Part:
    """Return the sums over all rows but those of some parts."""
    gram, cross, energy, rows = whole.gram, whole.cross, whole.energy, whole.rows
    for p in parts:
        gram, cross, energy, rows = gram - p.gram, cross - p.cross, energy - p.energy, rows - p.rows
    return Part(gram, cross, energy, rows)


class Solver:
    """Ridge regressions on the sums of some rows; what they share is kept.

    Parameters
    ----------
    load : callable
        Returns the sums. They are added up anew each time: those of all folds would need many times the memory.
    one : int
        Number of the feature that is constant, as long as a window moves.
    """

    def __init__(self, load: Callable[[], Part], one: int) -> None:
        self._load, self.one = load, one
        self._pooled: Part | None = None
        self._bases: dict[tuple[bool, bytes], tuple[Tensor, Tensor]] = {}

    def sums(self, shared: bool) -> Part:
        """Return the sums, of all channels as one if `shared`."""
        if not shared:
            return self._load()
        if self._pooled is None:
            self._pooled = self._load().pooled()
        return self._pooled

    def basis(self, size: Tensor, shared: bool) -> tuple[Tensor, Tensor]:
        """Return eigenvalues (C, k) and a basis (C, q, k) of the weights of the features whose `size` is not 0.

        The first direction is the constant. The others diagonalise the Gram matrix of the features without their mean: a change
        along them changes the constant too, such that the mean error stays. So features that hardly move get no large
        weights that the constant makes up for.
        """
        key = shared, size.cpu().numpy().tobytes()
        if key not in self._bases:
            part, keep, unit = self.sums(shared), size > 0, size[size > 0]
            gram = part.gram
            row = gram[:, self.one, keep] * unit  # (C, k)
            total = gram[:, self.one, self.one].clamp_min(max(1e-9 * part.rows, 1e-300))[:, None]  # 0 if nothing moves
            centred = gram[:, keep][:, :, keep] * unit[:, None] * unit - row[:, :, None] * (row / total)[:, None]
            values, vectors = safe_eigh(centred)
            found = torch.zeros(*gram.shape[:2], vectors.shape[2] + 1, dtype=gram.dtype, device=gram.device)
            found[:, keep, 1:] = vectors * unit[:, None]
            found[:, self.one, 1:] = -((row / total)[:, None] @ vectors)[:, 0]
            found[:, self.one, 0] = ONE
            self._bases[key] = torch.cat([ONE**2 * total, values.clamp_min(0)], dim=1), found
        return self._bases[key]

    def solve(self, size: Tensor, shared: bool, start: Tensor, penalty: Tensor) -> Tensor:
        """Return `start` (C, q, R) plus weights of some features, with a penalty (C,) per channel."""
        part, (values, basis) = self.sums(shared), self.basis(size, shared)
        damping = (values + penalty[:, None] * part.rows).clamp_min(1e-300)
        return start + basis @ ((basis.mT @ (part.cross - part.gram @ start)) / damping[:, :, None])
