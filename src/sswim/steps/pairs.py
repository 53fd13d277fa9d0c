r"""Pairs of samples: distances between signals, the distribution over pairs that follows from them, and drawing from it.

Each distance is a pseudometric :math:`d(x, y) = \|E(x) - E(y)\|` given by an embedding `E` (appendix ``app:sswim_h_dist``).
Embeddings act channel by channel on the mean-free signal, so squared distances add up over channels and can be computed block
by block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sswim.network.kernels import Hat, Kernel, kernel_taps, toeplitz
from sswim.options import Options, check_integer, check_positive
from sswim.report import LayerReport
from sswim.steps.base import Embedding, Metric, Pairs

__all__ = [
    "EMBEDDINGS",
    "METRICS",
    "PAIRS",
    "Band",
    "ClassDistance",
    "Cosine",
    "Euclidean",
    "GradientPairs",
    "Magnitude",
    "Phase",
    "VanRossum",
    "draw_pairs",
    "lower_triangle",
    "mean_free",
]

BLOCK_BYTES = 128e6


def mean_free(x: Tensor) -> Tensor:
    """Subtract each channel's temporal mean from (samples, time, channels).

    A single step is left alone: without its mean nothing would remain of it.
    """
    return x if x.shape[1] == 1 else x - x.mean(dim=1, keepdim=True)


def _spectrum(x: Tensor) -> Tensor:
    """Return the unitary Fourier transform (samples, frequencies, channels) of the mean-free signal.

    Amplitudes below the resolution of float32 are set to exactly 0: noise has a phase too.
    """
    f = torch.fft.rfft(mean_free(x), dim=1, norm="ortho")
    noise = 1e-7 * torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return torch.where(f.abs() > noise, f, torch.zeros_like(f))


def _fold(f: Tensor, steps: int) -> Tensor:
    """Weigh the half spectrum so that its norm is that of the whole one: inner frequencies stand for two."""
    k = torch.arange(f.shape[1], device=f.device)
    inner = (k > 0) & (2 * k != steps)
    f = f * torch.where(inner, 2.0, 1.0).sqrt().to(f.real.dtype)[None, :, None]
    return torch.view_as_real(f) if f.is_complex() else f


@dataclass(frozen=True)
class _Embedded(Options):
    """A pseudometric given by `embed`, from (samples, time, channels) to real features of any shape per sample."""

    normalized: ClassVar[bool] = False

    def embed(self, x: Tensor) -> Tensor:
        raise TypeError("embed is for the embeddings to define")

    def pairwise(self, x: Tensor) -> Tensor:
        """Return the (samples, samples) distances in float64, computed over blocks of channels."""
        samples, steps, channels = x.shape
        block = max(1, int(BLOCK_BYTES / (64 * samples * steps)))
        gram = torch.zeros(samples, samples, dtype=torch.float64, device=x.device)
        for part in x.split(block, dim=2):
            e = self.embed(part.to(torch.float64)).reshape(samples, -1)
            gram += e @ e.T
        if self.normalized:  # E(x) = x / |x|, and 0 for x = 0
            norm = gram.diagonal().sqrt()
            inverse = torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))
            gram *= inverse[:, None] * inverse[None, :]
        energy = gram.diagonal().clone()
        squared = energy[:, None] + energy[None, :] - 2 * gram
        # Identical samples differ by rounding only: without this they would be a distance of 1e-8 apart.
        squared[squared < 1e-14 * (energy[:, None] + energy[None, :])] = 0
        return squared.sqrt().fill_diagonal_(0)


@dataclass(frozen=True)
class Euclidean(_Embedded):
    r"""The :math:`L^2` distance: :math:`E(x) = x`.

    Examples
    --------
    >>> x = torch.tensor([[[0.0], [2.0]], [[2.0], [0.0]]])  # two samples, two steps, one channel
    >>> round(Euclidean().pairwise(x)[0, 1].item() ** 2, 6)
    8.0
    """

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean-free signal."""
        return mean_free(x)


@dataclass(frozen=True)
class Cosine(_Embedded):
    r"""Distance of directions: :math:`E(x) = x / \|x\|`, blind to positive scalar multiples."""

    normalized: ClassVar[bool] = True

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean-free signal, still to be normalised over all channels together."""
        return mean_free(x)


@dataclass(frozen=True)
class Magnitude(_Embedded):
    r"""Distance of amplitude spectra: :math:`E(x)(\omega) = |F x(\omega)|`, blind to shifts in time."""

    def embed(self, x: Tensor) -> Tensor:
        """Return the amplitude spectrum."""
        return _fold(_spectrum(x).abs(), x.shape[1])


@dataclass(frozen=True)
class Phase(_Embedded):
    r"""Distance of phases: :math:`E(x)(\omega) = F x(\omega) / |F x(\omega)|`, and 0 where the spectrum is 0."""

    def embed(self, x: Tensor) -> Tensor:
        """Return the phase factors."""
        return _fold(torch.sgn(_spectrum(x)), x.shape[1])


@dataclass(frozen=True)
class Band(_Embedded):
    r"""Distance within a band of frequencies: :math:`E(x)(\omega) = 1_B(\omega) F x(\omega)`.

    Parameters
    ----------
    low, high : float
        The band, as fractions of the highest frequency; `low` belongs to the band, `high` does not unless it is 1.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"Band: must satisfy 0 <= low < high <= 1, got low={self.low!r}, high={self.high!r}.")

    def embed(self, x: Tensor) -> Tensor:
        """Return the spectrum within the band."""
        f = _spectrum(x)
        omega = torch.arange(f.shape[1], device=f.device) / max(x.shape[1] / 2, 1)
        inside = (omega >= self.low) & ((omega < self.high) | (self.high == 1))
        return _fold(f * inside[None, :, None], x.shape[1])


@dataclass(frozen=True)
class ClassDistance(Options):
    """0 within a class and 1 between classes, the class being the output with the largest mean.

    Examples
    --------
    >>> voltages = torch.tensor([[[2.0, -2.0]], [[2.0, -2.0]], [[-2.0, 2.0]]])  # three samples, one step, two classes
    >>> ClassDistance().pairwise(voltages).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """

    def pairwise(self, x: Tensor) -> Tensor:
        """Return the (samples, samples) distances from targets of shape (samples, time, classes)."""
        label = x.mean(dim=1).argmax(dim=1)
        return (label[:, None] != label[None, :]).to(torch.float64)


@dataclass(frozen=True)
class VanRossum(_Embedded):
    r"""Lift of a pseudometric to spike trains (equation ``eq:metr_ind``): :math:`d(S_1, S_2) = d_f(S_1 * h, S_2 * h)`.

    Parameters
    ----------
    metric : embedding
        The pseudometric :math:`d_f` of real-valued signals.
    kernel : callable
        The kernel `h`.
    support : float
        Its support in steps.
    """

    metric: Embedding = Euclidean()
    kernel: Kernel = Hat()
    support: float = 5.0

    @property
    def normalized(self) -> bool:  # type: ignore[override]
        """Whether the lifted metric normalises over all channels."""
        return self.metric.normalized

    def embed(self, x: Tensor) -> Tensor:
        """Filter the trains, then embed the result."""
        zero, sigma = x.new_zeros(1), x.new_tensor([self.support])
        h = toeplitz(kernel_taps(self.kernel, zero, sigma, x.shape[1]), x.shape[1])[0]  # (S, S)
        return self.metric.embed(torch.einsum("ts,nsc->ntc", h, x))


EMBEDDINGS: dict[str, Embedding] = {
    "l2": Euclidean(),
    "cosine": Cosine(),
    "magnitude": Magnitude(),
    "phase": Phase(),
    "low": Band(0.0, 0.5),
    "high": Band(0.5, 1.0),
}
METRICS: dict[str, Metric] = {**EMBEDDINGS, "class": ClassDistance()}


def lower_triangle(matrix: Tensor) -> Tensor:
    """Return the entries below the diagonal of (samples, samples), row by row, as one vector."""
    n, m = torch.tril_indices(len(matrix), len(matrix), offset=-1, device=matrix.device)
    return matrix[n, m]


@dataclass(frozen=True)
class GradientPairs(Options):
    r"""Pairs with similar inputs and different targets are likely: algorithm ``alg:sswim``, lines 4 to 11.

    .. math:: P_{nm} \propto \frac{d_Y(y_n, y_m)}{d_X(x_n, x_m) + \epsilon}

    Parameters
    ----------
    epsilon : float
        Bounds the distribution where inputs coincide.
    minimum_norm : float
        A sample with a mean-free input channel of smaller :math:`L^2` norm is never drawn. Channels that are flat in every
        sample do not count.
    minimum_entropy : float, optional
        Among several candidate distances those with a smaller entropy are ignored. None stands for the logarithm of the
        number of neurons: a distribution then spreads over as many pairs as are drawn from it.
    entropy_samples : int, optional
        Number of samples on which candidate distances are compared (the paper's :math:`X_s`); all if None.
    """

    epsilon: float = 1e-6
    minimum_norm: float = 1e-6
    minimum_entropy: float | None = 0.0
    entropy_samples: int | None = 300

    def __post_init__(self) -> None:
        check_positive("GradientPairs: epsilon", self.epsilon)
        check_positive("GradientPairs: minimum_norm", self.minimum_norm, zero=True)
        if self.minimum_entropy is not None:
            check_positive("GradientPairs: minimum_entropy", self.minimum_entropy, zero=True)
        if self.entropy_samples is not None:
            check_integer("GradientPairs: entropy_samples", self.entropy_samples, 2)

    def admissible(self, norms: Tensor, *, every_channel: bool = True) -> Tensor:
        """Return which samples may be drawn, from the (samples, channels) norms of their mean-free channels.

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
        Tensor of shape (pairs,), float64, minus infinity where a pair cannot be drawn. All of it if none can.
        """
        ok = lower_triangle(admissible[:, None] & admissible[None, :])
        log_p = output_distance.double().log() - (input_distance.double() + self.epsilon).log()
        log_p = torch.where(ok, log_p, -math.inf)
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

        `share` is the part of all pairs that the entropies were computed on.
        """
        least = math.log(neurons) if self.minimum_entropy is None else self.minimum_entropy
        least += math.log(share)
        enough = {pair: h for pair, h in entropies.items() if h >= least}
        best = min(enough.values()) if enough else max(entropies.values())
        # Of equally good candidates the first: rounding must not choose.
        return next(pair for pair, h in (enough or entropies).items() if abs(h - best) <= 1e-9 * abs(best) or h == best)

    def draw(self, log_p: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` different pairs, one after the other, each with probability proportional to what is left.

        Adding Gumbel noise to the logarithms and taking the largest does exactly that. If there are fewer pairs, they are
        drawn again in the same order; if none is admissible, as for a straight line, all are drawn alike.

        Returns
        -------
        Tensor of shape (count, 2), the samples of each pair
        """
        reachable = int((log_p > -math.inf).sum())
        if not len(log_p):
            raise ValueError("X: at least two training samples are needed to draw a pair.")
        if not reachable:
            log_p, reachable = torch.zeros_like(log_p), len(log_p)
        uniform = torch.rand(len(log_p), dtype=torch.float64, generator=generator).to(log_p.device)
        scores = log_p - torch.log(-torch.log(uniform.clamp_min(1e-300)))
        flat = scores.topk(min(count, reachable)).indices
        flat = flat.repeat(-(-count // len(flat)))[:count]
        n = ((1 + torch.sqrt(1 + 8 * flat.double())) / 2).floor().long()  # row of the lower triangle
        n = torch.where(n * (n - 1) // 2 > flat, n - 1, n)  # the square root may round up
        return torch.stack([n, flat - n * (n - 1) // 2], dim=1)


PAIRS: dict[str, Pairs] = {"gradient": GradientPairs(), "spread": GradientPairs(minimum_entropy=None)}


def draw_pairs(
    x: Tensor,
    targets: Tensor,
    input_metrics: dict[str, Metric],
    output_metrics: dict[str, Metric],
    pairs: Pairs,
    neurons: int,
    generator: torch.Generator,
    *,
    first: bool,
) -> LayerReport:
    """Return one pair of samples (samples, time, senders) per neuron, as numbers; `first`: whether x is the network's input."""
    channels = x.float().split(1, dim=2)  # one by one, for there may be many
    norms = torch.cat([torch.linalg.vector_norm(mean_free(c), dim=1) for c in channels], dim=1)
    named = [(i, o) for i in input_metrics for o in output_metrics]

    def distributions(names: list[tuple[str, str]], rows: Tensor | slice, ok: Tensor) -> dict[tuple[str, str], Tensor]:
        d_in = {i: lower_triangle(input_metrics[i].pairwise(x[rows])) for i in {i for i, _ in names}}
        d_out = {o: lower_triangle(output_metrics[o].pairwise(targets[rows])) for o in {o for _, o in names}}
        return {(i, o): pairs.log_probabilities(d_in[i], d_out[o], ok[rows]) for i, o in names}

    # Deviation from the paper: where some channel or other always rests, too few samples have all channels moving. Then,
    # and in deeper layers, where some neuron or other is always silent, one moving channel is enough.
    for every_channel in (True, False) if first else (False,):
        ok = pairs.admissible(norms, every_channel=every_channel)
        good = int(ok.sum())
        if good * (good - 1) // 2 < neurons and every_channel:
            continue
        best, entropies = named[0], {}
        few = ok.nonzero()[:, 0].cpu()[: pairs.entropy_samples]
        if len(named) > 1 and len(few) > 1:
            entropies = {pair: pairs.entropy(log_p) for pair, log_p in distributions(named, few, ok).items()}
            best = pairs.choose(entropies, neurons, len(few) * (len(few) - 1) / (good * (good - 1)))
        log_p = distributions([best], slice(None), ok)[best]
        entropies[best] = entropies.get(best, pairs.entropy(log_p))
        if not every_channel or int((log_p > -math.inf).sum()) >= neurons:
            break
    drawn = pairs.draw(log_p, neurons, generator)
    return LayerReport(best[0], best[1], entropies, drawn.cpu(), torch.empty(0), every_channel)
