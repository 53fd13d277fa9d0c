"""Regressions of many groups side by side, each with sums of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim._linalg import safe_eigh

__all__ = ["GroupedEquations", "correct", "search_penalties"]


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
            torch.bmm(f, f.mT),
            torch.bmm(f, y.mT),
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
        self.gram.add_(gram).baddbmm_(shift[:, :, None], shift[:, None], alpha=between)
        self.cross.add_(cross).baddbmm_(shift[:, :, None], target_shift[:, None], alpha=between)
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

        One :math:`\lambda` for all groups, or a tensor of shape (groups,); infinity leaves no weights.
        """
        values, vectors = self._eigen()
        damping = (values + self.samples * torch.as_tensor(lambda_, device=values.device).reshape(-1, 1)).clamp_min(1e-300)
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

    def part(self, features: slice) -> GroupedEquations:
        """Return the sums of some of the features."""
        some = GroupedEquations(0, 0, 0, self.gram.device)
        some.samples, some.energy, some.target_mean = self.samples, self.energy, self.target_mean
        some.gram, some.cross = self.gram[:, features, features], self.cross[:, features]
        some.feature_mean = self.feature_mean[:, features]
        return some

    def after(self, weights: Tensor) -> GroupedEquations:
        """Return the sums of the remaining features with what weights of the first ones (groups, first, outputs) leave.

        For `solve`: the energy is still that of the targets.
        """
        first = weights.shape[1]
        rest = self.part(slice(first, None))
        rest.cross = rest.cross - self.gram[:, first:, :first] @ weights
        rest.target_mean = rest.target_mean - torch.einsum("gf,gfo->go", self.feature_mean[:, :first], weights)
        return rest


def correct(equations: GroupedEquations, split: int, penalties: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Solve for the first `split` features, and then for the others on what these leave, each with penalties of its own.

    Returns
    -------
    weights : Tensor of shape (groups, features, outputs)
    biases : Tensor of shape (groups, outputs)
    """
    first, _ = equations.part(slice(0, split)).solve(penalties[0])
    second, _ = equations.after(first).solve(penalties[1])
    weights = torch.cat([first, second], dim=1)
    return weights, equations.bias(weights)


def search_penalties(
    train: GroupedEquations, validation: GroupedEquations, split: int, lambdas: Sequence[float], company: float = 2.0
) -> list[Tensor]:
    """Choose each group's penalties for `correct` by the error on validation rows, those of the first features first.

    A group's own error is uncertain, so what suits all of them counts too.

    Parameters
    ----------
    split : int
        Number of first features.
    lambdas : sequence of float
        Candidates. Infinity, so no weights at all, is always one.
    company : float
        Weight of all groups' relative error beside that of the group.

    Returns
    -------
    list of two Tensor of shape (groups,)
    """
    grid = torch.tensor([*lambdas, torch.inf], dtype=torch.float64, device=train.gram.device)
    first, equations, chosen = train.cross[:, :0], train.part(slice(0, split)), []
    for part in (slice(0, split), slice(split, None)):
        errors = []
        for lambda_ in grid:
            weights = torch.zeros_like(train.cross)
            weights[:, : first.shape[1]] = first
            if torch.isfinite(lambda_):
                weights[:, part] = equations.solve(lambda_)[0]
            errors.append(validation.squared_error(weights, train.bias(weights)).sum(dim=1))
        error = torch.stack(errors)  # (lambdas, groups)
        usual = error[-1].mean().clamp_min(1e-300)
        relative = error / error[-1].clamp_min(1e-6 * usual)
        best = (relative + company * (error.sum(dim=1) / error[-1].sum().clamp_min(1e-300))[:, None]).argmin(dim=0)
        chosen.append(grid[best])
        if len(chosen) == 1:
            first, _ = equations.solve(chosen[0])
            equations = train.after(first)
    return chosen
