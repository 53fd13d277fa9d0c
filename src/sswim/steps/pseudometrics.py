r"""Distances between signals, for the distribution from which pairs are drawn.

Each is a pseudometric :math:`d(x, y) = \|E(x) - E(y)\|` given by an embedding `E` (appendix ``app:sswim_h_dist``). Embeddings
act channel by channel on the mean-free signal, so squared distances add up over channels and can be computed block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from sswim.kernels import Hat, Kernel
from sswim.simulate import kernel_taps, toeplitz

__all__ = [
    "EMBEDDINGS",
    "METRICS",
    "Band",
    "ClassDistance",
    "Cosine",
    "Euclidean",
    "Magnitude",
    "Metric",
    "Phase",
    "VanRossum",
    "mean_free",
]

BLOCK_BYTES = 128e6


class Metric(Protocol):
    """What a distance must offer: `pairwise` maps (samples, time, channels) to the (samples, samples) distances."""

    def pairwise(self, x: Tensor) -> Tensor:
        """Return all distances between samples."""
        ...


def mean_free(x: Tensor) -> Tensor:
    """Subtract each channel's temporal mean from (samples, time, channels).

    A single step is left alone: without its mean nothing would remain of it.
    """
    return x if x.shape[1] == 1 else x - x.mean(dim=1, keepdim=True)


def _spectrum(x: Tensor) -> Tensor:
    """Return the unitary Fourier transform (samples, frequencies, channels) of the mean-free signal.

    What float32 input can not resolve is set to exactly 0: noise has a phase too.
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
class _Embedded:
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
    >>> Euclidean().pairwise(x)[0, 1].item() ** 2
    8.000000000000002
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
class ClassDistance:
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

    metric: _Embedded = Euclidean()
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


EMBEDDINGS: dict[str, _Embedded] = {
    "l2": Euclidean(),
    "cosine": Cosine(),
    "magnitude": Magnitude(),
    "phase": Phase(),
    "low": Band(0.0, 0.5),
    "high": Band(0.5, 1.0),
}
METRICS: dict[str, Metric] = {**EMBEDDINGS, "class": ClassDistance()}
