r"""Weights of the output layer: regularised normal equations, accumulated in batches (appendix ``app:sswim_o_weights``).

The features are the traces of `sswim.traces`. Outputs with the same trace share all sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim._checks import check_integer, check_positive
from sswim._linalg import gram, pivoted_cholesky, safe_eigh

__all__ = ["REGULARIZATION", "FixedLambda", "LambdaSearch", "NormalEquations"]

# How far a search for the regularisation may leave its grid.
FLOOR, CEILING = 1e-8, 1e6


class NormalEquations:
    r"""Sufficient statistics of linear regressions that share their features, centred batch by batch.

    With :math:`\psi` the features and `y` the targets of all rows, and a bar for the mean over rows, it holds
    :math:`\sum (\psi - \bar\psi)(\psi - \bar\psi)^\top`, :math:`\sum (\psi - \bar\psi)(y - \bar y)` and
    :math:`\sum (y - \bar y)^2`. Batches arrive in the basis of `Trace`: coordinate 0 is the constant function's, the rest
    have no mean. Plain rows are the special case of one coordinate and ``horizon=1``.

    Parameters
    ----------
    features, outputs : int
    horizon : int
        Rows per sample.

    Notes
    -----
    Deviation from the paper: its bias is an ordinary, regularised weight. Here the mean-corrected form leaves the bias
    free, so that forecasts do not depend on where zero lies.
    """

    def __init__(self, features: int, outputs: int, horizon: int = 1, device: torch.device | str = "cpu") -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.horizon = horizon
        self.samples = 0.0
        self._epsilon = torch.finfo(torch.float64).eps  # of the coarsest products
        self.gram = zeros(features, features)
        self.cross = zeros(features, outputs)
        self.energy = zeros(outputs)
        self._mean = zeros(features)  # of coordinate 0, so sqrt(H) times the mean over rows
        self._target_mean = zeros(outputs)
        self._eigen: tuple[Tensor, Tensor] | None = None

    @property
    def feature_mean(self) -> Tensor:
        """Mean of the features over rows, of shape (features,)."""
        return self._mean / self.horizon**0.5

    @property
    def target_mean(self) -> Tensor:
        """Mean of the targets over rows, of shape (outputs,)."""
        return self._target_mean / self.horizon**0.5

    def update(self, features: Tensor, targets: Tensor, outside: Tensor | float = 0.0, weights: Tensor | None = None) -> None:
        """Add a batch.

        Parameters
        ----------
        features : Tensor of shape (features, rank, batch)
            Overwritten. Its products are computed in its own dtype and summed in float64.
        targets : Tensor of shape (outputs, rank, batch), float64
        outside : Tensor of shape (outputs,)
            Energy of the targets outside of the basis.
        weights : Tensor of shape (batch,), optional
            How many times each sample counts, once unless told.
        """
        n, rank, batch = features.shape
        if batch == 0:
            return
        self._epsilon = max(self._epsilon, torch.finfo(features.dtype).eps)
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
        rows = features.reshape(n, rank * batch)
        y = y.reshape(-1, rank * batch)
        self._add(
            gram(rows).double(),
            (rows @ y.T.to(rows.dtype)).double(),
            y.square().sum(dim=1) + outside,
            mean,
            target_mean,
            total,
        )

    def merge(self, other: NormalEquations) -> None:
        """Add the sums of `other`, as if its batches had been added here."""
        if other.gram.shape != self.gram.shape or other.horizon != self.horizon:
            raise ValueError("merge: both must have the same number of features and the same horizon.")
        if other.samples:
            self._epsilon = max(self._epsilon, other._epsilon)
            self._add(other.gram, other.cross, other.energy, other._mean, other._target_mean, other.samples)

    def _add(self, gram_: Tensor, cross: Tensor, energy: Tensor, mean: Tensor, target_mean: Tensor, samples: float) -> None:
        """Add sums that are centred at means of their own."""
        self._eigen = None
        total = self.samples + samples
        shift, target_shift = mean - self._mean, target_mean - self._target_mean
        between = self.samples * samples / total
        self.gram += gram_
        self.gram.addr_(shift, shift, alpha=between)
        self.cross += cross
        self.cross.addr_(shift, target_shift, alpha=between)
        self.energy += energy + between * target_shift**2
        self._mean += shift * (samples / total)
        self._target_mean += target_shift * (samples / total)
        self.samples = total

    def load(
        self,
        *,
        gram: Tensor,
        cross: Tensor,
        energy: Tensor,
        feature_mean: Tensor,
        target_mean: Tensor,
        samples: float,
        epsilon: float,
    ) -> None:
        """Take over sums that were made elsewhere, centred at the means given; `epsilon` is the products' precision."""
        self._eigen, self._epsilon, self.samples = None, epsilon, samples
        self.gram, self.cross, self.energy = gram, cross, energy
        self._mean, self._target_mean = feature_mean * self.horizon**0.5, target_mean * self.horizon**0.5

    def rescaled(self, size: Tensor) -> NormalEquations:
        """Return the sums of features multiplied by `size` (features,): a penalty then bears less on the larger ones."""
        other = NormalEquations(0, 0, self.horizon)
        other.load(
            gram=self.gram * size[:, None] * size,
            cross=self.cross * size[:, None],
            energy=self.energy,
            feature_mean=self.feature_mean * size,
            target_mean=self.target_mean,
            samples=self.samples,
            epsilon=self._epsilon,
        )
        return other

    def eigen(self) -> tuple[Tensor, Tensor]:
        """Return eigenvalues (features,), none below 0, and eigenvectors (features, features) of the Gram matrix."""
        if self._eigen is None:
            values, vectors = safe_eigh(self.gram)
            self._eigen = values.clamp_min(0), vectors
        return self._eigen

    def noise(self) -> float:
        """Return how far rounding may have moved the eigenvalues of the Gram matrix."""
        return self._epsilon * float(self.eigen()[0].max()) if len(self.gram) else 0.0

    def bias(self, weights: Tensor) -> Tensor:
        """Return the best biases (outputs,) for weights (features, outputs)."""
        return self.target_mean - self.feature_mean @ weights

    def solve(self, lambda_: float | Tensor) -> tuple[Tensor, Tensor]:
        r"""Return weights (features, outputs) and biases (outputs,) with penalty :math:`M \lambda |w|^2`.

        One :math:`\lambda` for all outputs, or a tensor of shape (outputs,).
        """
        values, vectors = self.eigen()
        damping = (values[:, None] + self.samples * torch.as_tensor(lambda_, device=values.device)).clamp_min(1e-300)
        weights = vectors @ ((vectors.T @ self.cross) / damping)
        return weights, self.bias(weights)

    def squared_error(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Return the sum of squared residuals (outputs,) of given weights (features, outputs) on this data."""
        centred = (weights * (self.gram @ weights - 2 * self.cross)).sum(dim=0) + self.energy
        offset = self.feature_mean @ weights + bias - self.target_mean
        return centred + self.samples * self.horizon * offset**2

    def least_residual(self) -> tuple[Tensor, bool]:
        r"""Return the least sum of squared residuals (outputs,) that any weights reach, and whether it is sharp.

        With the Cholesky factor of the Gram matrix :math:`A^\top A = L L^\top`, the projection of `y` on the range of `A` has
        the norm :math:`|Q^\top y| = |L^{-1} A^\top y|`. The factor is pivoted: columns that depend on others, up to the
        precision of the sums, are left out. It is sharp unless columns came so near to that that rounding is felt.
        """
        size = self.gram.diagonal().clamp_min(0).sqrt()
        seen = size > 1e-6 * size.max().clamp_min(1e-300)  # neurons without a spike near the horizon say nothing
        unit = self.gram[seen][:, seen] / (size[seen, None] * size[None, seen])
        factor, order = pivoted_cholesky(unit, max(25 * self._epsilon, 1e-12))
        cross = (self.cross[seen] / size[seen, None])[order]
        explained = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(dim=0)
        sharp = self._epsilon < 1e-12 or (
            len(order) == len(unit) and bool((factor.diagonal() ** 2 > 1e4 * self._epsilon).all())
        )
        return (self.energy - explained).clamp_min(0), sharp


@dataclass(frozen=True)
class LambdaSearch:
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
        Whether to go on past an end of the grid while the error still falls there. Deviation from the paper, whose upper
        end is too low for real series.
    """

    low: float = 1e-5
    high: float = 0.5
    count: int = 32
    extend: bool = True

    def __post_init__(self) -> None:
        check_positive("LambdaSearch: low", self.low)
        if not check_positive("LambdaSearch: high", self.high) >= self.low:
            raise ValueError(f"LambdaSearch: high must be >= low, got {self.high} < {self.low}.")
        check_integer("LambdaSearch: count", self.count, 1)

    def basis(self, train: NormalEquations) -> Tensor | None:
        r"""Return an orthonormal basis (features, few) of all weights that the search may meet; None if that is not few.

        In the basis of eigenvectors these weights are one vector times the functions :math:`1 / (\Lambda + M \lambda)` of
        the eigenvalue, and over all :math:`\lambda` these functions span some twenty dimensions. So validation samples
        need no Gram matrix of all features, but only one of the predictions by that basis.
        """
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

    def solve(
        self, train: NormalEquations, validation: NormalEquations, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (features, outputs), biases (outputs,) and the chosen lambda of each output.

        With a `basis` from the method of that name, `validation` holds the sums of the features multiplied by it.
        """
        values, vectors = train.eigen()
        values = values[:, None]
        target = vectors.T @ train.cross  # (N, C)
        grid = torch.logspace(math.log10(self.low), math.log10(self.high), self.count, dtype=torch.float64).tolist()
        floor = max(FLOOR, train.noise() / max(train.samples, 1))  # a penalty below that leaves it to rounding
        grid = [lambda_ for lambda_ in grid if lambda_ >= floor] or [floor]

        # From the basis of eigenvectors, where solving is a division, to that of the validation sums.
        there = vectors if basis is None else basis.T @ vectors  # (few, N)
        mean = train.feature_mean if basis is None else basis.T @ train.feature_mean

        def error(lambda_: float) -> Tensor:
            w = there @ (target / (values + train.samples * lambda_).clamp_min(1e-300))
            return validation.squared_error(w, train.target_mean - mean @ w)

        errors = torch.stack([error(lambda_) for lambda_ in grid])
        least, best = errors.min(dim=0)
        chosen = torch.tensor(grid, dtype=torch.float64, device=best.device)[best]  # (C,)
        if self.extend and len(grid) > 1:
            # Each output goes on alone, so that its choice does not hang on what others share its traces.
            for end, factor in ((len(grid) - 1, grid[-1] / grid[-2]), (0, grid[0] / grid[1])):
                lambda_, falling = grid[end] * factor, best == end
                while bool(falling.any()) and floor <= lambda_ <= CEILING:
                    now = error(lambda_)
                    falling &= now < least
                    least, chosen = torch.where(falling, now, least), torch.where(falling, lambda_, chosen)
                    lambda_ *= factor
        weights = vectors @ (target / (values + train.samples * chosen).clamp_min(1e-300))
        return weights, train.bias(weights), chosen


@dataclass(frozen=True)
class FixedLambda:
    """The same regularisation for every output, without a search."""

    value: float = 1e-2

    def __post_init__(self) -> None:
        check_positive("FixedLambda: value", self.value, zero=True)

    def basis(self, train: NormalEquations) -> Tensor:
        """Return a basis of nothing: no validation samples are needed."""
        return train.gram[:, :0]

    def solve(
        self, train: NormalEquations, validation: NormalEquations, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (features, outputs), biases (outputs,) and the lambda of each output."""
        weights, bias = train.solve(self.value)
        return weights, bias, torch.full_like(bias, self.value)


REGULARIZATION: dict[str, LambdaSearch | FixedLambda] = {"search": LambdaSearch(), "fixed": FixedLambda()}
