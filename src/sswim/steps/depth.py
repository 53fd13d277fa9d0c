"""What makes deeper layers add something: they look at what the layers before leave unexplained. Past the paper."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sswim._checks import check_integer, check_positive
from sswim._linalg import safe_eigh
from sswim.steps.pairs import GradientPairs

__all__ = ["DEPTH", "PlainDepth", "ResidualDepth", "left_out_residuals"]


def left_out_residuals(features: Tensor, targets: Tensor) -> Tensor:
    r"""Return what of each sample a ridge regression on all *other* samples leaves unexplained.

    With :math:`h_n` the diagonal of the hat matrix, that is the ordinary residual divided by :math:`1 - h_n`: no sample needs
    to be left out in fact. The penalty is the one of the least sum of squares of what is returned.

    Parameters
    ----------
    features : Tensor of shape (samples, features)
    targets : Tensor of shape (samples, outputs)

    Returns
    -------
    Tensor of shape (samples, outputs), float64
    """
    x, y = features.double(), targets.double()
    x, y, count = x - x.mean(dim=0), y - y.mean(dim=0), len(x)
    size = torch.linalg.vector_norm(x, dim=0)
    x = x[:, size > 1e-9] / size[size > 1e-9]
    if not x.shape[1]:
        return y * (count / (count - 1))
    wide = x.shape[1] > count
    values, vectors = safe_eigh(x @ x.T if wide else x.T @ x)
    kept = values > 1e-12 * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    u = vectors if wide else x @ vectors / values.sqrt()  # (M, rank), orthonormal columns
    seen, best, left = u.T @ y, torch.inf, y
    for penalty in values[-1] * torch.logspace(-6, 0, 13, dtype=torch.float64, device=values.device):
        part = values / (values + penalty)
        hat = (u.square() * part).sum(dim=1) + 1 / count
        found = (y - (u * part) @ seen) / (1 - hat).clamp_min(1e-9)[:, None]
        if (error := float(found.square().mean())) < best:
            best, left = error, found
    return left


@dataclass(frozen=True)
class PlainDepth:
    """As in the paper: deeper layers are sampled as the first one is."""

    def sharpen(self, pairs: Any) -> Any:
        """Return the step that draws pairs as it is."""
        return pairs


@dataclass(frozen=True)
class ResidualDepth:
    r"""Deeper layers of a direct readout are sampled for what the layers before leave unexplained.

    With :math:`r_n` what is left of a sample's target after a regression on all other samples, from the spike counts of the
    layers before, pairs are drawn from

    .. math:: P_{nm} \propto \Big(\frac{|r_n - r_m|}{d_X(x_n, x_m) + \epsilon}\Big)^p

    and a neuron's weights are Fisher's direction between the surroundings of both: with :math:`m_n` the mean spike counts of
    the sample's nearest neighbours of the same class, and `S` the covariance within classes,

    .. math:: w = (S + \lambda \operatorname{tr}(S) / N)^{-1} (m_n - m_m)

    Parameters
    ----------
    power : float
        `p`.
    neighbours : int
    shrinkage : float
        :math:`\lambda`.
    samples : int
        The initial batch has at least so many samples, for the covariance's sake.
    """

    power: float = 4.0
    neighbours: int = 20
    shrinkage: float = 1.0
    samples: int = 3000

    def __post_init__(self) -> None:
        check_positive("ResidualDepth: power", self.power)
        check_integer("ResidualDepth: neighbours", self.neighbours, 1)
        check_positive("ResidualDepth: shrinkage", self.shrinkage)
        check_integer("ResidualDepth: samples", self.samples, 2)

    def sharpen(self, pairs: Any) -> Any:
        """Return the step that draws pairs, with the power of this one."""
        return dataclasses.replace(pairs, power=self.power) if isinstance(pairs, GradientPairs) else pairs

    def directions(self, counts: Tensor, labels: Tensor, pairs: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors (neurons, senders) with random signs.

        Parameters
        ----------
        counts : Tensor of shape (samples, senders)
            Spikes of the layer before.
        labels : Tensor of shape (samples,)
        pairs : Tensor of shape (neurons, 2)
        """
        counts = counts.double()
        _, label = labels.unique(return_inverse=True)
        member = torch.nn.functional.one_hot(label).double()  # (M, classes)
        mean = (member.T @ counts) / member.sum(dim=0)[:, None]
        within = counts - mean[label]
        covariance = within.T @ within / len(counts)
        lift = self.shrinkage * covariance.diagonal().mean().clamp_min(1e-12)
        used, place = pairs.to(counts.device).unique(return_inverse=True)
        distance = torch.cdist(counts[used], counts).masked_fill(label[used, None] != label, torch.inf)
        nearest, index = distance.topk(min(self.neighbours, len(counts)), largest=False)
        share = torch.zeros_like(distance).scatter_(1, index, torch.isfinite(nearest).double())
        around = (share / share.sum(dim=1, keepdim=True)) @ counts  # (used, N)
        difference = around[place[:, 0]] - around[place[:, 1]]
        w = torch.linalg.solve(covariance + lift * torch.eye(len(covariance)).to(counts), difference.T).T
        signs = torch.where(torch.rand(len(w), 1, generator=generator, dtype=torch.float64) < 0.5, -1.0, 1.0)
        return torch.nn.functional.normalize(w, eps=1e-300) * signs.to(w.device)


DEPTH: dict[str, PlainDepth | ResidualDepth] = {"plain": PlainDepth(), "residual": ResidualDepth()}
