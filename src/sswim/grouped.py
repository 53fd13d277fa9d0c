"""Regressions of many groups side by side, each with sums of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from sswim._linalg import safe_eigh

__all__ = ["GroupedEquations"]


class GroupedEquations:
    """Centred sums of one regression per group: what `NormalEquations` holds, with a leading dimension of groups.

    Parameters
    ----------
    groups, features, outputs : int
    """

    def __init__(self, groups: int, features: int, outputs: int, device: torch.device | str = "cpu") -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.samples = 0
        self._factors: tuple[Tensor, Tensor] | None = None
        self.gram = zeros(groups, features, features)
        self.cross = zeros(groups, features, outputs)
        self.energy = zeros(groups, outputs)
        self.feature_mean = zeros(groups, features)
        self.target_mean = zeros(groups, outputs)

    def update(self, features: Tensor, targets: Tensor) -> None:
        """Add features (features, rows, groups) and targets (outputs, rows, groups)."""
        f, y = features.permute(2, 0, 1), targets.permute(2, 0, 1).to(features.dtype)
        rows = f.shape[2]
        if not rows:
            return
        mean, target_mean = f.mean(dim=2), y.mean(dim=2)
        f, y = f - mean[:, :, None], y - target_mean[:, :, None]
        self._add(
            torch.bmm(f, f.mT).double(),
            torch.bmm(f, y.mT).double(),
            y.double().square().sum(dim=2),
            mean.double(),
            target_mean.double(),
            rows,
        )

    def merge(self, other: GroupedEquations) -> None:
        """Add the sums of `other`, as if its rows had been added here."""
        if other.samples:
            self._add(other.gram, other.cross, other.energy, other.feature_mean, other.target_mean, other.samples)

    def _eigen(self) -> tuple[Tensor, Tensor]:
        """Return eigenvalues, none below 0, and eigenvectors of the Gram matrices; kept until rows are added."""
        if self._factors is None:
            values, vectors = safe_eigh(self.gram)
            self._factors = values.clamp_min(0), vectors
        return self._factors

    def _add(self, gram: Tensor, cross: Tensor, energy: Tensor, mean: Tensor, target_mean: Tensor, samples: int) -> None:
        self._factors = None
        total = self.samples + samples
        between = self.samples * samples / total
        shift, target_shift = mean - self.feature_mean, target_mean - self.target_mean
        self.gram += gram + between * shift[:, :, None] * shift[:, None]
        self.cross += cross + between * shift[:, :, None] * target_shift[:, None]
        self.energy += energy + between * target_shift**2
        self.feature_mean += shift * (samples / total)
        self.target_mean += target_shift * (samples / total)
        self.samples = total

    def joined(self) -> GroupedEquations:
        """Return the sums of all groups' rows as those of one group."""
        _, features, outputs = self.cross.shape
        one = GroupedEquations(1, features, outputs, self.gram.device)
        for g in range(len(self.gram)):
            gram, cross, energy = self.gram[[g]], self.cross[[g]], self.energy[[g]]
            one._add(gram, cross, energy, self.feature_mean[[g]], self.target_mean[[g]], self.samples)
        return one

    def solve(self, lambda_: float | Tensor) -> tuple[Tensor, Tensor]:
        r"""Return weights (groups, features, outputs) and biases (groups, outputs) with penalty :math:`M \lambda |w|^2`.

        One :math:`\lambda` for all groups, or a tensor of shape (groups,).
        """
        values, vectors = self._eigen()
        damping = (values + self.samples * torch.as_tensor(lambda_).reshape(-1, 1)).clamp_min(1e-300)
        weights = vectors @ ((vectors.mT @ self.cross) / damping[:, :, None])
        return weights, self.bias(weights)

    def bias(self, weights: Tensor) -> Tensor:
        """Return the best biases (groups, outputs) for weights (groups, features, outputs)."""
        return self.target_mean - torch.einsum("gf,gfo->go", self.feature_mean, weights)

    def squared_error(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Return the sums of squared residuals (groups, outputs) of given weights on this data."""
        centred = (weights * (self.gram @ weights - 2 * self.cross)).sum(dim=1) + self.energy
        offset = torch.einsum("gf,gfo->go", self.feature_mean, weights) + bias - self.target_mean
        return centred + self.samples * offset**2

    def search(self, validation: GroupedEquations, lambdas: list[float]) -> tuple[float | None, Tensor]:
        """Choose one penalty for all groups, and the groups it helps, by the error on validation rows.

        Errors count relative to those without any weights, so that no group outweighs the others by its size.

        Returns
        -------
        lambda_ : float or None
            None if no penalty helps on average.
        helps : Tensor of shape (groups,), bool
        """
        nothing = validation.squared_error(torch.zeros_like(self.cross), torch.zeros_like(self.target_mean)).sum(dim=1)
        values, vectors = self._eigen()
        target = vectors.mT @ self.cross
        best, chosen, helps = 1.0, None, torch.zeros(len(nothing), dtype=torch.bool, device=nothing.device)
        for lambda_ in lambdas:
            damping = (values + self.samples * lambda_).clamp_min(1e-300)
            weights = vectors @ (target / damping[:, :, None])
            relative = validation.squared_error(weights, self.bias(weights)).sum(dim=1) / nothing.clamp_min(1e-300)
            average = float(relative.clamp_max(2).mean())
            if average < best:
                best, chosen, helps = average, lambda_, relative < 1
        return chosen, helps
