"""Sums over rows, which add up, and ridge regressions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.algebra import safe_eigh

__all__ = ["Part", "Solver", "total", "without"]

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
    def of(cls, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> Part:
        """Return the sums of features (C, rows, features) and targets (C, rows, outputs); rows count `weights` times."""
        if weights is not None:
            root = weights.sqrt().to(features)[:, None]
            features, targets = features * root, targets * root
        energy = targets.double().square().sum(dim=1)
        rows = features.shape[1] if weights is None else float(weights.sum())
        return cls(torch.bmm(features.mT, features), torch.bmm(features.mT, targets), energy, rows)

    def __add__(self, other: Part) -> Part:
        """Return the sums over the rows of both, in float64."""
        return total([self, other])

    def scaled(self, factor: float) -> Part:
        """Return the sums of rows that count `factor` times."""
        if factor == 1:
            return self
        gram, cross, energy = (factor * v.double() for v in self._sums())
        return Part(gram, cross, energy, factor * self.rows)

    def of_outputs(self, outputs: Tensor | slice) -> Part:
        """Return the sums for some of the outputs, without a copy of the Gram matrices."""
        return Part(self.gram, self.cross[:, :, outputs], self.energy[:, outputs], self.rows)

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram, self.cross, self.energy

    def pooled(self) -> Part:
        """Return the sums of all channels as those of one."""
        gram, cross, energy = (v.sum(dim=0, keepdim=True) for v in self._sums())
        return Part(gram, cross, energy, self.rows * len(self.gram))

    def errors(self, weights: Tensor) -> Tensor:
        """Return the sums of squared errors (C,) of weights (C, q, R)."""
        return (weights * (self.gram @ weights - 2 * self.cross)).sum(dim=(1, 2)) + self.energy.sum(dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return {"gram": self.gram, "cross": self.cross, "energy": self.energy, "rows": torch.tensor(float(self.rows)).double()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Part:
        """Return the sums that `tensors` gave."""
        return cls(tensors["gram"], tensors["cross"], tensors["energy"], float(tensors["rows"]))


def total(parts: Iterable[Part]) -> Part:
    """Return the sums over the rows of some parts, one at least, in float64."""
    found: Part | None = None
    for part in parts:
        if found is None:
            gram, cross, energy = (v.to(torch.float64, copy=True) for v in part._sums())
            found = Part(gram, cross, energy, part.rows)
        else:
            found.gram.add_(part.gram), found.cross.add_(part.cross), found.energy.add_(part.energy)
            found = replace(found, rows=found.rows + part.rows)
    assert found is not None
    return found


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
            centred, row, total = self._centred(size, shared)
            values, vectors = safe_eigh(centred)
            self._bases[key] = torch.cat([ONE**2 * total, values.clamp_min(0)], dim=1), self._spread(vectors, size, row / total)
        return self._bases[key]

    def _centred(self, size: Tensor, shared: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the Gram matrix (C, k, k) of some features without their mean, their sums (C, k) and the constant's (C, 1)."""
        part, keep, unit = self.sums(shared), size > 0, size[size > 0]
        gram = part.gram
        row = gram[:, self.one, keep] * unit
        total = gram[:, self.one, self.one].clamp_min(max(1e-9 * part.rows, 1e-300))[:, None]  # 0 if nothing moves
        return gram[:, keep][:, :, keep] * unit[:, None] * unit - row[:, :, None] * (row / total)[:, None], row, total

    def _spread(self, vectors: Tensor, size: Tensor, mean: Tensor) -> Tensor:
        """Return weights (C, q, 1 + n) of all features, first of the constant, from those of some without `mean`, (C, k, n)."""
        found = torch.zeros(len(vectors), len(size), vectors.shape[2] + 1, dtype=vectors.dtype, device=vectors.device)
        found[:, size > 0, 1:] = vectors * size[size > 0][:, None]
        found[:, self.one, 1:] = -(mean[:, None] @ vectors)[:, 0]
        found[:, self.one, 0] = ONE
        return found

    def solve(self, size: Tensor, shared: bool, start: Tensor, penalty: Tensor) -> Tensor:
        """Return `start` (C, q, R) plus weights of some features, with a penalty (C,) per channel."""
        part = self.sums(shared)
        left, damping = part.cross - part.gram @ start, penalty[:, None] * part.rows
        if (shared, size.cpu().numpy().tobytes()) not in self._bases:
            centred, row, total = self._centred(size, shared)
            centred.diagonal(dim1=1, dim2=2).add_(damping)
            factor, failed = torch.linalg.cholesky_ex(centred)
            if not bool(failed.any()):
                # One penalty is all that is asked for, so no eigenvectors are needed.
                target = size[size > 0][:, None] * left[:, size > 0] - (row / total)[:, :, None] * left[:, self.one, None]
                found = self._spread(torch.cholesky_solve(target, factor), size, row / total)[:, :, 1:]
                found[:, self.one] += ONE**2 * left[:, self.one] / (ONE**2 * total + damping).clamp_min(1e-300)
                return start + found
        values, basis = self.basis(size, shared)
        return start + basis @ ((basis.mT @ left) / (values + damping).clamp_min(1e-300)[:, :, None])
