r"""Least squares from sums: regularised normal equations, accumulated in batches (appendix ``app:sswim_o_weights``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sswim.algebra import gram, index_of_least, pivoted_cholesky, safe_eigh
from sswim.options import Options, check_integer, check_positive

__all__ = [
    "REGULARIZATION",
    "FixedLambda",
    "LambdaSearch",
    "Regularization",
    "Sums",
]

# How far a search for the regularisation may leave its grid.
FLOOR, CEILING = 1e-8, 1e6


class Sums:
    r"""Sufficient statistics of linear regressions that share their features, centred batch by batch.

    With :math:`\psi` the features and `y` the targets of all rows, and a bar for the mean over rows, they are
    :math:`\sum (\psi - \bar\psi)(\psi - \bar\psi)^\top`, :math:`\sum (\psi - \bar\psi)(y - \bar y)` and
    :math:`\sum (y - \bar y)^2`, in float64. With `groups`, every tensor has a leading dimension: one regression per group.

    Parameters
    ----------
    features, outputs : int
    horizon : int
        Rows per sample. The penalty counts samples, not rows.
    groups : int, optional
        Number of separate regressions. Default: one, without a leading dimension.

    Notes
    -----
    The mean-corrected form leaves the bias free, so that forecasts do not depend on where zero lies. In the paper the bias is
    an ordinary, regularised weight: `with_constant` returns the sums for that.
    """

    def __init__(
        self, features: int, outputs: int, horizon: int = 1, *, groups: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        lead = () if groups is None else (groups,)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*lead, *shape, dtype=torch.float64, device=device)

        self.horizon, self.samples = horizon, 0.0
        self.epsilon = torch.finfo(torch.float64).eps  # precision of the coarsest products
        self.gram, self.cross, self.energy = zeros(features, features), zeros(features, outputs), zeros(outputs)
        self.feature_mean, self.target_mean = zeros(features), zeros(outputs)
        self._eigen: tuple[Tensor, Tensor] | None = None
        self._whole: Sums | None = None

    def update(self, features: Tensor, targets: Tensor, outside: Tensor | float = 0.0, weights: Tensor | None = None) -> None:
        """Add a batch of samples in the basis of `Trace`: coordinate 0 is the constant function's, the others have no mean.

        Plain rows are the special case of one coordinate and ``horizon=1``.

        Parameters
        ----------
        features : Tensor of shape (features, rank, batch)
            Overwritten. Its products are computed in its own dtype and summed in float64.
        targets : Tensor of shape (outputs, rank, batch), float64
        outside : Tensor of shape (outputs,)
            Energy of the targets outside of the basis.
        weights : Tensor of shape (batch,), optional
            How many times each sample counts. Default: once.
        """
        n, rank, batch = features.shape
        if batch == 0:
            return
        level = features[:, 0]  # (N, B), a view
        if weights is None:
            mean, target_mean, total = level.double().mean(dim=1), targets[:, 0].mean(dim=1), float(batch)
        else:
            weights = weights.double()
            total = float(weights.sum())
            if total == 0:
                return
            mean, target_mean = level.double() @ weights / total, targets[:, 0] @ weights / total
        level -= mean[:, None].to(level.dtype)
        y = targets.clone()
        y[:, 0] -= target_mean[:, None]
        if weights is not None:
            features *= weights.sqrt().to(features.dtype)
            y *= weights.sqrt()
        rows, y = features.reshape(n, rank * batch), y.reshape(-1, rank * batch)
        cross, energy = (rows @ y.T.to(rows.dtype)).double(), y.square().sum(dim=1) + outside
        self.epsilon = max(self.epsilon, torch.finfo(features.dtype).eps)
        root = self.horizon**0.5  # coordinate 0 of a constant
        self.add(gram(rows).double(), cross, energy, mean / root, target_mean / root, total)

    def update_groups(self, features: Tensor, targets: Tensor) -> None:
        """Add rows to every group: features (features, rows, groups) and targets (outputs, rows, groups)."""
        f, y = features.permute(2, 0, 1), targets.permute(2, 0, 1).to(features.dtype)
        rows = f.shape[2]
        if not rows:
            return
        mean, target_mean = f.mean(dim=2), y.mean(dim=2)
        f, y = f - mean[:, :, None], y - target_mean[:, :, None]
        energy = y.double().square().sum(dim=2)
        self.add(torch.bmm(f, f.mT), torch.bmm(f, y.mT), energy, mean.double(), target_mean.double(), rows)

    def add(self, gram_: Tensor, cross: Tensor, energy: Tensor, mean: Tensor, target_mean: Tensor, samples: float) -> None:
        """Add sums that are centred at means of their own, of some samples."""
        if self.samples + samples <= 0:  # nothing but what is forgotten
            return
        self._eigen = self._whole = None
        total, features = self.samples + samples, mean.shape[-1]
        between = self.horizon * self.samples * samples / total
        shift, target_shift = mean - self.feature_mean, target_mean - self.target_mean
        column = shift.reshape(-1, features, 1)
        for sums, part, row in ((self.gram, gram_, shift), (self.cross, cross, target_shift)):
            each = sums.add_(part).view(-1, *sums.shape[-2:])
            each.baddbmm_(column, row.reshape(len(each), 1, -1), alpha=between)
        self.energy += energy + between * target_shift**2
        # New tensors, for others may hold the means as they were.
        self.feature_mean = self.feature_mean + shift * (samples / total)
        self.target_mean = self.target_mean + target_shift * (samples / total)
        self.samples = total

    def merge(self, other: Sums) -> None:
        """Add the sums of `other`, as if its batches had been added here."""
        if other.gram.shape != self.gram.shape or other.horizon != self.horizon:
            raise ValueError("merge: both must have the same number of features and the same horizon.")
        if other.samples:
            self.epsilon = max(self.epsilon, other.epsilon)
            self.add(other.gram, other.cross, other.energy, other.feature_mean, other.target_mean, other.samples)

    def with_constant(self) -> Sums:
        """Return the sums of the same rows as they are, with 1 as a further feature, the last one: its weight is the bias.

        They have no means, so that `solve` penalises that weight as all others. Kept until samples are added.
        """
        if self._whole is None:
            (features, outputs), rows = self.cross.shape, self.horizon * self.samples
            whole = Sums(features + 1, outputs, self.horizon, device=self.gram.device)
            mean = torch.cat([self.feature_mean, self.feature_mean.new_ones(1)])
            whole.gram[:-1, :-1], whole.cross[:-1] = self.gram, self.cross
            whole.gram.addr_(mean, mean, alpha=rows), whole.cross.addr_(mean, self.target_mean, alpha=rows)
            whole.energy = self.energy + rows * self.target_mean**2
            whole.samples, whole.epsilon = self.samples, self.epsilon
            self._whole = whole
        return self._whole

    def eigen(self) -> tuple[Tensor, Tensor]:
        """Return eigenvalues, none below 0, and eigenvectors of the Gram matrices; kept until samples are added."""
        if self._eigen is None:
            values, vectors = safe_eigh(self.gram)
            self._eigen = values.clamp_min(0), vectors
        return self._eigen

    def newton(self, slope: Tensor, lambda_: float) -> Tensor:
        r"""Return a slope (outputs, features) times :math:`(G / 2 M + \lambda)^{-1}`, with `G` the Gram matrix."""
        values, vectors = self.eigen()
        curvature = values / (2 * max(self.samples, 1e-300))
        return (slope @ vectors / (curvature + lambda_).clamp_min(1e-300)) @ vectors.T

    def condition(self, lambda_: Tensor) -> Tensor:
        r"""Return the condition number of the Gram matrix plus :math:`M \lambda`, for each lambda."""
        values, penalty = self.eigen()[0], self.samples * lambda_
        return (values.max() + penalty) / (values.min() + penalty)

    def noise(self) -> float:
        """Return how far rounding may have moved the eigenvalues of the Gram matrix."""
        return self.epsilon * float(self.eigen()[0].max()) if len(self.gram) else 0.0

    def solve(self, lambda_: float | Tensor) -> tuple[Tensor, Tensor]:
        r"""Return weights (..., features, outputs) and biases (..., outputs) with penalty :math:`M \lambda |w|^2`.

        One :math:`\lambda` for all, or a tensor: one per output, or with groups one per group. Infinity leaves no weights.
        """
        values, vectors = self.eigen()
        lambdas = torch.as_tensor(lambda_, device=values.device)
        lambdas = lambdas.reshape(-1, 1, 1) if self.gram.ndim == 3 else lambdas
        damping = (values[..., None] + self.samples * lambdas).clamp_min(1e-300)
        weights = vectors @ ((vectors.mT @ self.cross) / damping)
        return weights, self.bias(weights)

    def bias(self, weights: Tensor) -> Tensor:
        """Return the best biases (..., outputs) for weights (..., features, outputs)."""
        return self.target_mean - torch.einsum("...f,...fo->...o", self.feature_mean, weights)

    def squared_error(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Return the sums of squared residuals (..., outputs) of given weights (..., features, outputs) on this data."""
        centred = (weights * (self.gram @ weights - 2 * self.cross)).sum(dim=-2) + self.energy
        offset = bias - self.bias(weights)
        return centred + self.samples * self.horizon * offset**2

    def least_residual(self) -> tuple[Tensor, bool]:
        r"""Return the least sum of squared residuals (outputs,) that any weights reach, and whether it is sharp.

        With the Cholesky factor of the Gram matrix :math:`A^\top A = L L^\top`, the projection of `y` on the range of `A` has
        the norm :math:`|Q^\top y| = |L^{-1} A^\top y|`. The factor is pivoted: columns that depend on others, up to the
        precision of the sums, are left out. The residual is sharp if rounding did not matter for any column.
        """
        size = self.gram.diagonal().clamp_min(0).sqrt()
        seen = size > 1e-6 * size.max().clamp_min(1e-300)  # neurons without a spike near the horizon say nothing
        unit = self.gram[seen][:, seen] / (size[seen, None] * size[None, seen])
        factor, order = pivoted_cholesky(unit, max(25 * self.epsilon, 1e-12))
        cross = (self.cross[seen] / size[seen, None])[order]
        explained = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(dim=0)
        clear = len(order) == len(unit) and bool((factor.diagonal() ** 2 > 1e4 * self.epsilon).all())
        return (self.energy - explained).clamp_min(0), self.epsilon < 1e-12 or clear


class Regularization(Protocol):
    """How the penalty of each output is chosen."""

    def basis(self, train: Sums) -> Tensor | None:
        """Return an orthonormal basis (features, few) of all weights that `solve` may compare, or None for all features.

        It has one row more if the bias is penalised: that of the constant.
        """
        ...

    def solve(self, train: Sums, validation: Sums, basis: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (features, outputs), biases (outputs,) and the lambda of each output.

        With a `basis` from the method of that name, `validation` holds the sums of the features multiplied by it.
        """
        ...


@dataclass(frozen=True)
class LambdaSearch(Options):
    r"""Choose the regularisation of each output by its error on validation samples.

    One eigendecomposition :math:`F = \Gamma \Lambda \Gamma^\top` serves all candidates:
    :math:`w = \Gamma (\Lambda + M \lambda)^{-1} \Gamma^\top A^\top y`.

    Parameters
    ----------
    low, high : float
        Ends of the grid.
    count : int
        Number of logarithmically spaced candidates.
    extend : bool
        Whether to go on past an end of the grid while the error still falls there. The paper does not, but its upper end is
        too low for some series.
    penalize_bias : bool
        Whether the bias is penalised like the weights, as in the paper.
    """

    low: float = 1e-5
    high: float = 0.5
    count: int = 32
    extend: bool = True
    penalize_bias: bool = False

    def __post_init__(self) -> None:
        check_positive("LambdaSearch: low", self.low)
        if not check_positive("LambdaSearch: high", self.high) >= self.low:
            raise ValueError(f"LambdaSearch: high must be >= low, got {self.high} < {self.low}.")
        check_integer("LambdaSearch: count", self.count, 1)

    def basis(self, train: Sums) -> Tensor | None:
        r"""Return an orthonormal basis (features, few) of all weights that the search may meet; None if that is not few.

        In the basis of eigenvectors these weights are one vector times the functions :math:`1 / (\Lambda + M \lambda)` of
        the eigenvalue, and over all :math:`\lambda` these functions span some twenty dimensions. So validation samples
        need no Gram matrix of all features, but only one of the predictions by that basis.
        """
        train = train.with_constant() if self.penalize_bias else train
        values, vectors = train.eigen()
        low, high = (min(self.low, FLOOR), max(self.high, CEILING)) if self.extend else (self.low, self.high)
        penalties = train.samples * torch.logspace(math.log10(low), math.log10(high), 64, dtype=torch.float64)
        damping = values[:, None] + penalties.to(values)  # (N, 64)
        U, s, _ = torch.linalg.svd(damping[:, :1] / damping, full_matrices=False)
        U = U[:, s > 1e-10 * s[0]] / damping[:, :1]
        if U.shape[1] * train.cross.shape[1] > 0.3 * len(values):  # where multiplying by the basis takes as long as a Gram
            return None
        spanned = (vectors.T @ train.cross)[:, :, None] * U[:, None, :]  # (N, C, .)
        size = torch.linalg.vector_norm(spanned, dim=0).clamp_min(1e-300)
        return vectors @ torch.linalg.qr((spanned / size).flatten(1)).Q

    def solve(self, train: Sums, validation: Sums, basis: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (features, outputs), biases (outputs,) and the chosen lambda of each output."""
        if self.penalize_bias:
            train, validation = train.with_constant(), validation.with_constant() if basis is None else validation
        values, vectors = train.eigen()
        values, target = values[:, None], vectors.T @ train.cross  # (N, 1), (N, C)
        grid = torch.logspace(math.log10(self.low), math.log10(self.high), self.count, dtype=torch.float64).tolist()
        floor = max(FLOOR, train.noise() / max(train.samples, 1))  # below that, rounding would choose the weights
        grid = [lambda_ for lambda_ in grid if lambda_ >= floor] or [floor]
        # From the basis of eigenvectors, where solving is a division, to that of the validation sums.
        there = vectors if basis is None else basis.T @ vectors  # (few, N)
        mean = train.feature_mean if basis is None else basis.T @ train.feature_mean

        def error(lambda_: float) -> Tensor:
            w = there @ (target / (values + train.samples * lambda_).clamp_min(1e-300))
            return validation.squared_error(w, train.target_mean - mean @ w)

        errors = torch.stack([error(lambda_) for lambda_ in grid])
        best = index_of_least(errors)
        least = errors.gather(0, best[None])[0]
        chosen = torch.tensor(grid, dtype=torch.float64, device=best.device)[best]  # (C,)
        if self.extend and len(grid) > 1:
            # Each output goes on alone, so that its choice does not depend on the outputs that share its traces.
            for end, factor in ((len(grid) - 1, grid[-1] / grid[-2]), (0, grid[0] / grid[1])):
                lambda_, falling = grid[end] * factor, best == end
                while bool(falling.any()) and floor <= lambda_ <= CEILING:
                    now = error(lambda_)
                    falling &= now < (1 - 1e-6) * least
                    least, chosen = torch.where(falling, now, least), torch.where(falling, lambda_, chosen)
                    lambda_ *= factor
        weights = vectors @ (target / (values + train.samples * chosen).clamp_min(1e-300))
        return (weights[:-1], weights[-1], chosen) if self.penalize_bias else (weights, train.bias(weights), chosen)


@dataclass(frozen=True)
class FixedLambda(Options):
    """The same regularisation `value` for every output, without a search; see `LambdaSearch` for `penalize_bias`."""

    value: float = 1e-2
    penalize_bias: bool = False

    def __post_init__(self) -> None:
        check_positive("FixedLambda: value", self.value, zero=True)

    def basis(self, train: Sums) -> Tensor | None:
        """Return a basis of nothing: no validation samples are needed."""
        return train.gram[:, :0]

    def solve(self, train: Sums, validation: Sums, basis: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (features, outputs), biases (outputs,) and the lambda of each output."""
        weights, bias = (train.with_constant() if self.penalize_bias else train).solve(self.value)
        weights, bias = (weights[:-1], weights[-1]) if self.penalize_bias else (weights, bias)
        return weights, bias, torch.full_like(bias, self.value)


REGULARIZATION: dict[str, Regularization] = {
    "search": LambdaSearch(),
    "paper": LambdaSearch(extend=False, penalize_bias=True),
    "fixed": FixedLambda(),
}
