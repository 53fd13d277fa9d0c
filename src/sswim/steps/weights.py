r"""Hidden weights: directions from the potentials that a pair of samples would cause, and the scale that lets a neuron fire.

Directions come for a batch of neurons: ``first`` and ``second`` are :math:`\psi_1, \psi_2` of shape (neurons, senders, steps).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.algebra import safe_eigh
from sswim.options import Options, check_choice, check_positive
from sswim.steps.base import Normalizer, Statistics, Weights
from sswim.steps.leaky import IntegrateScale, LeakyScale

__all__ = [
    "NORMALIZERS",
    "WEIGHTS",
    "DistWeights",
    "Diverse",
    "DotWeights",
    "Fluctuation",
    "MeanStd",
    "PotentialStatistics",
    "RandomWeights",
    "fix_signs",
]

# Eigenvalues below this part of the largest count as 0: float64 rounding, with room.
RELATIVE_ZERO = 1e-11
# Eigenvalues that differ by less than this part of the largest count as the same: eigenvectors of others are the same on every
# processor, up to 1e-8.
NEARLY_EQUAL = 1e-8


def _extreme(values: Tensor, vectors: Tensor, reference: Tensor, *, least: bool) -> Tensor:
    """Return a vector of the least or largest eigenvalue of each matrix, of shape (neurons, n), not normalised.

    Where several eigenvalues are the same, or nearly, solvers return any basis of their space. So a rule chooses: the
    projection of a `reference` (neurons, n), drawn from the seed, onto that space.
    """
    scale = values.abs().amax(dim=1, keepdim=True).clamp_min(1e-300)
    extreme = values[:, :1] if least else values[:, -1:]
    same = (values - extreme).abs() <= NEARLY_EQUAL * scale  # (n, N)
    alone = vectors[:, :, 0 if least else -1]
    projected = ((vectors * same[:, None]) @ (vectors.mT @ reference[:, :, None]))[:, :, 0]
    return torch.where(same.sum(dim=1, keepdim=True) > 1, projected, alone)


def _reference(phases: Tensor, senders: int) -> Tensor:
    """Return a direction per neuron (neurons, senders), another for each of the phases (neurons,) between 0 and 1."""
    spread = torch.arange(1, senders + 1, dtype=torch.float64) * 0.6180339887498949
    return (spread + phases[:, None]) % 1 - 0.5


def fix_signs(w: Tensor) -> Tensor:
    """Return rows of unit length whose largest component is positive; of several that are nearly as large, the first."""
    w = torch.nn.functional.normalize(w, eps=1e-300)
    size = w.abs()
    first = (size >= (1 - 1e-6) * size.amax(dim=1, keepdim=True)).int().argmax(dim=1, keepdim=True)
    return torch.where(w.gather(1, first) < 0, -w, w)


def _draw(neurons: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a sign and a phase per neuron; what is drawn does not depend on how many neurons come at once."""
    signs, phases = torch.rand(neurons, 2, generator=generator, dtype=torch.float64).T
    return torch.where(signs < 0.5, -1.0, 1.0), phases


def _finish(w: Tensor, signs: Tensor, idle: Tensor, generator: torch.Generator) -> Tensor:
    """Give each row a random sign, as an eigenvector has none of its own, and idle rows a random direction."""
    w = fix_signs(w) * signs[:, None].to(w)
    if idle.any():
        spare = torch.randn(int(idle.sum()), w.shape[1], generator=generator, dtype=torch.float64)
        w[idle] = torch.nn.functional.normalize(spare).to(w.device)
    return w


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the symmetric part of the integral of a(t) b(t)^T, for (neurons, n, steps)."""
    q = a @ b.mT
    return (q + q.mT) / 2


@dataclass(frozen=True)
class DotWeights(Options):
    r"""Least inner product of the two potentials (equations ``op_w_dist``, ``eq:dot_A``).

    .. math:: w = w_{\min}\Big\{\tfrac12 \int \psi_1(t) \psi_2(t)^\top + \psi_2(t) \psi_1(t)^\top dt\Big\}

    The eigenvector is looked for in the range of :math:`[\psi_1\ \psi_2]`. If the matrix has a negative eigenvalue that
    changes nothing. If it has none, the least eigenvalue of all would be the 0 of some direction in which both
    potentials vanish: a neuron that separates nothing.
    """

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors of shape (neurons, senders), with random signs."""
        neurons, senders, steps = first.shape
        a, b, basis = first.double(), second.double(), None
        signs, phases = _draw(neurons, generator)
        reference = _reference(phases, senders).to(a)
        if senders > 2 * steps:  # the range has at most 2 S dimensions
            basis, r = torch.linalg.qr(torch.cat([a, b], dim=2))  # (n, D, 2S), (n, 2S, 2S)
            a, b = r[:, :, :steps], r[:, :, steps:]
            reference = (basis.mT @ reference[:, :, None])[:, :, 0]
        matrix = _outer(a, b)
        values, vectors = safe_eigh(matrix)
        scale = values.abs().amax(dim=1).clamp_min(1e-300)
        w = _extreme(values, vectors, reference, least=True)
        stuck = (values[:, 0] > -RELATIVE_ZERO * scale).nonzero()[:, 0]  # no negative eigenvalue
        if len(stuck):
            a, b, matrix = a[stuck], b[stuck], matrix[stuck]
            energy, axes = safe_eigh(_outer(a, a) + _outer(b, b))
            outside = energy <= RELATIVE_ZERO * energy[:, -1:].clamp_min(1e-300)  # (n, D)
            # Lift the directions outside of the range above all others.
            lift = 2 * energy[:, -1] + 1
            matrix = matrix + (axes * (outside * lift[:, None])[:, None, :]) @ axes.mT
            w[stuck] = _extreme(*safe_eigh(matrix), reference[stuck], least=True)
        if basis is not None:
            w = (basis @ w[:, :, None])[:, :, 0]
        idle = (first.abs().amax(dim=(1, 2)) == 0) & (second.abs().amax(dim=(1, 2)) == 0)
        return _finish(w, signs, idle, generator)


@dataclass(frozen=True)
class DistWeights(Options):
    r"""Largest distance of the two potentials (equations ``op_w_dist``, ``eq:dist_A``).

    .. math:: w = w_{\max}\Big\{\int (\psi_1(t) - \psi_2(t)) (\psi_1(t) - \psi_2(t))^\top dt\Big\}
    """

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors of shape (neurons, senders), with random signs."""
        neurons, senders, steps = first.shape
        d = first.double() - second.double()  # (n, D, S)
        signs, phases = _draw(neurons, generator)
        reference = _reference(phases, senders).to(d)
        if senders <= steps:
            w = _extreme(*safe_eigh(_outer(d, d)), reference, least=False)
        else:  # the same vector from the smaller of the two Gram matrices
            reference = (d.mT @ reference[:, :, None])[:, :, 0]
            w = (d @ _extreme(*safe_eigh(_outer(d.mT, d.mT)), reference, least=False)[:, :, None])[:, :, 0]
        idle = d.abs().amax(dim=(1, 2)) == 0
        return _finish(w, signs, idle, generator)


@dataclass(frozen=True)
class RandomWeights(Options):
    """Standard normal weights that ignore the pair: what data-driven weights are measured against."""

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return normal vectors of shape (neurons, senders)."""
        return torch.randn(first.shape[:2], generator=generator, dtype=torch.float64).to(first.device)


WEIGHTS: dict[str, Weights] = {
    "dot": DotWeights(),
    "dist": DistWeights(),
    "random": RandomWeights(),
}


class PotentialStatistics:
    r"""One pass over the potentials :math:`\langle \tilde w_i, \psi_{i,n}(t) \rangle` of whole samples, batch by batch.

    Attributes
    ----------
    mean, deviation, maximum : Tensor of shape (neurons,)
        Expected temporal mean :math:`E`, expected temporal standard deviation :math:`S`, and maximum :math:`M`.
    steps : int
    last_mean, last_deviation : Tensor of shape (neurons,)
        Mean and standard deviation, over samples, of the potential at the last step.
    """

    def __init__(self) -> None:
        self.samples = self.steps = 0
        self._last: tuple[Tensor | float, Tensor | float] = 0.0, 0.0
        self._mean: Tensor | float = 0.0
        self._deviation: Tensor | float = 0.0
        self.maximum: Tensor = torch.tensor(-torch.inf)

    def update(self, potentials: Tensor) -> None:
        """Add a batch of shape (neurons, steps, batch), which is overwritten."""
        last = potentials[:, -1].double()
        self._last, self.steps = (
            (self._last[0] + last.sum(dim=1), self._last[1] + last.square().sum(dim=1)),
            potentials.shape[1],
        )
        top, mean = potentials.amax(dim=(1, 2)), potentials.mean(dim=1, keepdim=True)  # (N,), (N, 1, B)
        deviation = potentials.sub_(mean).square_().mean(dim=1).sqrt()  # four times as fast as torch.std
        self._mean = self._mean + mean.double().sum(dim=(1, 2))
        self._deviation = self._deviation + deviation.double().sum(dim=1)
        self.maximum = torch.maximum(self.maximum.to(potentials.device), top.double())
        self.samples += potentials.shape[2]

    @property
    def mean(self) -> Tensor:
        """Expected temporal mean."""
        return torch.as_tensor(self._mean) / self.samples

    @property
    def deviation(self) -> Tensor:
        """Expected temporal standard deviation."""
        return torch.as_tensor(self._deviation) / self.samples

    @property
    def last_mean(self) -> Tensor:
        """Mean of the potential at the last step."""
        return torch.as_tensor(self._last[0]) / self.samples

    @property
    def last_deviation(self) -> Tensor:
        """Standard deviation of the potential at the last step."""
        return (torch.as_tensor(self._last[1]) / self.samples - self.last_mean.square()).clamp_min(0).sqrt()


def _silence_correction(maximum: Tensor, margin: float) -> Tensor:
    r"""Return :math:`\Delta^{SC}`: what lifts a maximum to ``1 + margin``, or 0 where it is higher.

    Deviation from the paper: maxima between 1 and ``1 + margin`` are lifted too, as rounding may put them below 1.
    """
    return (1 + margin - maximum).clamp_min(0)


@dataclass(frozen=True)
class MeanStd(Options):
    r"""Prescribe mean and standard deviation of the potential (equation ``op_n_ms``).

    .. math::
        \alpha = s_t / S, \quad \beta = \mu_t - \alpha E + \Delta^{SC}, \quad \gamma = -3 s_t

    Parameters
    ----------
    mean, deviation : float
        :math:`\mu_t < 1` and :math:`s_t > 0`.
    cost : float
        How many deviations a spike costs, 3 in the paper.
    margin : float
        How far above the threshold the silence correction lifts, the paper's epsilon.
    silence : {"bias", "scale"}
        Whether a neuron that would never fire gets a larger bias, as in the paper, or larger weights, which keep its mean.
    """

    mean: float = 0.5
    deviation: float = 0.5
    cost: float = 3.0
    margin: float = 1e-4
    silence: str = "bias"

    def __post_init__(self) -> None:
        if not self.mean < 1:
            raise ValueError(f"MeanStd: mean must be below the threshold 1, got {self.mean!r}.")
        check_positive("MeanStd: deviation", self.deviation)
        check_positive("MeanStd: cost", self.cost, zero=True)
        check_positive("MeanStd: margin", self.margin, zero=True)
        check_choice("MeanStd: silence", self.silence, ("bias", "scale"))

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        E, S, M = statistics.mean, statistics.deviation, statistics.maximum
        # A potential that never moves cannot be given a deviation: it keeps its size.
        alpha = torch.where(S > 1e-12, self.deviation / S.clamp_min(1e-12), torch.ones_like(S))
        if self.silence == "scale":  # the scale that brings the maximum to the threshold: mean + alpha (M - E) = 1 + margin
            lifted = (1 + self.margin - self.mean) / (M - E).clamp_min(1e-12)
            alpha = torch.where(S > 1e-12, torch.maximum(alpha, lifted), alpha)
        beta = self.mean - alpha * E
        beta = beta + _silence_correction(alpha * M + beta, self.margin)
        moved = alpha * S if self.silence == "scale" else torch.full_like(S, self.deviation)
        return alpha, beta, -self.cost * moved


@dataclass(frozen=True)
class Fluctuation(Options):
    r"""Keep the deviation and put the mean `distance` deviations below the threshold (equation ``op_n_fl``).

    .. math::
        \alpha = 1, \quad \beta = 1 - r S - E + \Delta^{SC}, \quad \gamma = -3 S

    Spikes are those of `MeanStd` with :math:`(1 - \mu_t) / s_t = r`, which scales potential, threshold distance and cost alike:
    the two differ in how large the potentials are, not in when they cross the threshold, up to the silence correction.

    Parameters
    ----------
    distance : float
        The paper's :math:`r > 0`.
    cost, margin : float
        As in `MeanStd`.
    """

    distance: float = 1.0
    cost: float = 3.0
    margin: float = 1e-4

    def __post_init__(self) -> None:
        check_positive("Fluctuation: distance", self.distance)
        check_positive("Fluctuation: cost", self.cost, zero=True)
        check_positive("Fluctuation: margin", self.margin, zero=True)

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        E, S, M = statistics.mean, statistics.deviation, statistics.maximum
        beta = 1 - self.distance * S - E
        beta = beta + _silence_correction(M + beta, self.margin)
        return torch.ones_like(S), beta, -self.cost * S


@dataclass(frozen=True)
class Diverse(Options):
    r"""Give the potential unit deviation, and each neuron another part of the time above the threshold.

    Not in the paper, where all neurons fire alike. If the potential were normal, neuron `i` would be above the threshold in a
    part :math:`q_i` of all steps, with :math:`q_i` spread evenly between `low` and `high`:

    .. math::
        \alpha = 1 / S, \quad \beta = 1 - \Phi^{-1}(1 - q_i) - \alpha E + \Delta^{SC}, \quad \gamma = -c

    Parameters
    ----------
    low, high : float
        Least and largest part of the time, between 0 and 1.
    cost : float
        How many deviations a spike costs.
    margin : float
        As in `MeanStd`.
    """

    low: float = 0.03
    high: float = 0.6
    cost: float = 2.0
    margin: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < 1:
            raise ValueError(f"Diverse: 0 < low <= high < 1 must hold, got low={self.low!r}, high={self.high!r}.")
        check_positive("Diverse: cost", self.cost, zero=True)
        check_positive("Diverse: margin", self.margin, zero=True)

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        E, S, M = statistics.mean, statistics.deviation, statistics.maximum
        i = torch.arange(1, len(S) + 1, dtype=S.dtype, device=S.device)
        q = self.low + (self.high - self.low) * ((i * 0.6180339887498949) % 1)
        alpha = torch.where(S > 1e-12, 1 / S.clamp_min(1e-12), torch.ones_like(S))
        beta = 1 - torch.special.ndtri(1 - q) - alpha * E
        beta = beta + _silence_correction(alpha * M + beta, self.margin)
        return alpha, beta, torch.full_like(alpha, -self.cost)


NORMALIZERS: dict[str, Normalizer] = {
    "mean-std": MeanStd(),
    "fluctuation": Fluctuation(),
    "diverse": Diverse(),
    "leaky": LeakyScale(),
    "integrate": IntegrateScale(),
}
