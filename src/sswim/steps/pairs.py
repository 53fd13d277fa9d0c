"""The distribution over pairs of samples, and drawing from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim._checks import check_integer, check_positive

__all__ = ["PAIRS", "GradientPairs", "lower_triangle"]


def lower_triangle(matrix: Tensor) -> Tensor:
    """Return the entries below the diagonal of (samples, samples), row by row, as one vector."""
    n, m = torch.tril_indices(len(matrix), len(matrix), offset=-1, device=matrix.device)
    return matrix[n, m]


@dataclass(frozen=True)
class GradientPairs:
    r"""Pairs with similar inputs and different targets are likely: algorithm ``alg:sswim``, lines 4 to 10.

    .. math:: P_{nm} \propto \frac{d_Y(y_n, y_m)}{d_X(x_n, x_m) + \epsilon}

    Parameters
    ----------
    epsilon : float
        Bounds the distribution where inputs coincide.
    power : float
        What the ratio is raised to, past the paper: more than 1 draws the most telling pairs more often.
    minimum_norm : float
        A sample with a mean-free input channel of smaller :math:`L^2` norm is never drawn. Channels that are flat in every
        sample do not count.
    minimum_entropy : float, optional
        Among several candidate distances those with a smaller entropy are passed over. Unless told, the logarithm of the
        number of neurons: a distribution must spread over as many pairs as are drawn from it.
    entropy_samples : int, optional
        Number of samples on which candidate distances are compared (the paper's :math:`X_s`); all if None.
    """

    epsilon: float = 1e-6
    minimum_norm: float = 1e-6
    minimum_entropy: float | None = None
    entropy_samples: int | None = 300
    power: float = 1.0

    def __post_init__(self) -> None:
        check_positive("GradientPairs: epsilon", self.epsilon)
        check_positive("GradientPairs: power", self.power)
        check_positive("GradientPairs: minimum_norm", self.minimum_norm, zero=True)
        if self.minimum_entropy is not None:
            check_positive("GradientPairs: minimum_entropy", self.minimum_entropy, zero=True)
        if self.entropy_samples is not None:
            check_integer("GradientPairs: entropy_samples", self.entropy_samples, 2)

    def admissible(self, norms: Tensor, *, every_channel: bool = True) -> Tensor:
        """Tell which samples may be drawn, from the (samples, channels) norms of their mean-free channels.

        With `every_channel` all channels that move in any sample must move in this one, without it one is enough.
        """
        moving = norms >= self.minimum_norm if self.minimum_norm else torch.ones_like(norms, dtype=torch.bool)
        if not every_channel:
            return moving.any(dim=1)
        return (moving | ~moving.any(dim=0)).all(dim=1) & moving.any()

    def log_probabilities(self, input_distance: Tensor, output_distance: Tensor, admissible: Tensor) -> Tensor:
        """Return the logarithm of the normalised distribution over pairs.

        Parameters
        ----------
        input_distance, output_distance : Tensor of shape (pairs,)
            Distances of all pairs, in the order of `lower_triangle`.
        admissible : Tensor of bool, shape (samples,)

        Returns
        -------
        Tensor of shape (pairs,), float64, minus infinity where a pair can not be drawn. All of it if none can.
        """
        ok = lower_triangle(admissible[:, None] & admissible[None, :])
        log_p = output_distance.double().log() - (input_distance.double() + self.epsilon).log()
        log_p = torch.where(ok, self.power * log_p, -math.inf)
        total = torch.logsumexp(log_p, dim=0)
        return log_p - total if total > -math.inf else log_p

    @staticmethod
    def entropy(log_p: Tensor) -> float:
        r"""Return the Shannon entropy :math:`-\sum p \log p`; minus infinity if no pair can be drawn.

        Examples
        --------
        >>> round(GradientPairs.entropy(torch.full((4,), 0.25).log()) / math.log(4), 6)
        1.0
        """
        reachable = log_p > -math.inf
        if not reachable.any():
            return -math.inf
        return float(-(log_p[reachable].exp() * log_p[reachable]).sum())

    def choose(self, entropies: dict[tuple[str, str], float], neurons: int, share: float = 1.0) -> tuple[str, str]:
        """Return the candidate of least entropy that is above the minimum, or the one of most entropy if none is.

        `share` tells which part of all pairs the entropies were computed on.
        """
        least = math.log(neurons) if self.minimum_entropy is None else self.minimum_entropy
        least += math.log(share)
        enough = {pair: h for pair, h in entropies.items() if h >= least}
        return min(enough, key=lambda pair: enough[pair]) if enough else max(entropies, key=lambda pair: entropies[pair])

    def draw(self, log_p: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` different pairs, one after the other, each with probability proportional to what is left.

        Adding Gumbel noise to the logarithms and taking the largest does exactly that.

        Returns
        -------
        Tensor of shape (count, 2), the samples of each pair
        """
        reachable = int((log_p > -math.inf).sum())
        if count > reachable:
            raise ValueError(
                f"hidden: {count} neurons need as many different pairs of samples, but only {reachable} of {len(log_p)} "
                "pairs are admissible (both inputs vary in time, and the targets differ by more than a constant). Use fewer "
                "neurons, a larger initial_batch, more data, or GradientPairs(minimum_norm=0)."
            )
        uniform = torch.rand(len(log_p), dtype=torch.float64, generator=generator).to(log_p.device)
        scores = log_p - torch.log(-torch.log(uniform.clamp_min(1e-300)))
        flat = scores.topk(count).indices
        n = ((1 + torch.sqrt(1 + 8 * flat.double())) / 2).floor().long()  # row of the lower triangle
        n = torch.where(n * (n - 1) // 2 > flat, n - 1, n)  # the square root may round up
        return torch.stack([n, flat - n * (n - 1) // 2], dim=1)


PAIRS: dict[str, GradientPairs] = {"gradient": GradientPairs()}
