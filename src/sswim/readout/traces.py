r"""What the output layer sees of the hidden spikes, and how to see less of it at little cost.

An output with delay ``tau`` and support ``sigma`` sees the hidden spikes `S` through one matrix: its traces on the horizon
are ``K S`` with ``K[h, s] = k((T + h - s - tau) / sigma)``. Outputs with the same pair (tau, sigma) share their traces.

Only inner products over the horizon enter the normal equations. So traces and targets are first written in an orthonormal
basis `Q` of the range of `K`, whose first vector is constant: ``Q^T K S`` has as many rows as `K` has singular values that
matter, often far fewer than there are steps, and centring concerns its first row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.network.kernels import Kernel, kernel_taps, toeplitz
from sswim.network.layer import Workspace
from sswim.options import Options, check_integer

__all__ = ["ASSEMBLIES", "Assembly", "Trace"]


class Trace:
    r"""What outputs with one delay and one support see of the hidden spikes, in the basis described above.

    Parameters
    ----------
    kernel : callable
    delay, support : float
        :math:`\tau` and :math:`\sigma`.
    start, horizon : int
        The output steps :math:`[T, T + H)`.
    tolerance : float
        Singular values of `K` below this part of the largest are dropped; 0 drops only rounding errors.

    Attributes
    ----------
    basis : Tensor of shape (horizon, rank)
        `Q`, float64; its first column is constant.
    first, last : int
        Spikes on the steps ``[first, last)`` are seen.
    energy : float
        The squared norm of the kernel, over whole steps.
    """

    def __init__(self, kernel: Kernel, delay: float, support: float, start: int, horizon: int, tolerance: float = 0.0) -> None:
        self.delay, self.support, steps = delay, support, start + horizon
        tau, sigma = (torch.tensor([v], dtype=torch.float64) for v in (delay, support))
        taps = kernel_taps(kernel, tau, sigma, steps)
        K, self.energy = toeplitz(taps, steps)[0, start:], float(taps.square().sum())  # (H, S)
        constant = torch.full((horizon, 1), horizon**-0.5, dtype=torch.float64)
        U, s, _ = torch.linalg.svd(K - constant @ (constant.T @ K), full_matrices=False)
        rank = min(int((s > max(tolerance, 1e-13) * torch.linalg.matrix_norm(K, 2).clamp_min(1e-300)).sum()), horizon - 1)
        self.basis = torch.cat([constant, U[:, :rank]], dim=1)  # (H, R)
        seen = (K != 0).any(dim=0).nonzero()[:, 0].tolist() or [0]
        self.first, self.last = seen[0], seen[-1] + 1
        self._matrix = (self.basis.T @ K[:, self.first : self.last]).contiguous()  # (R, last - first)

    def features(self, spikes: Tensor, work: Workspace | None = None) -> Tensor:
        """Map spikes (neurons, steps, batch), at least `last` steps, to traces in the basis, (neurons, rank, batch)."""
        matrix, spikes = self._matrix.to(spikes), spikes[:, self.first : self.last]
        if work is None:
            return torch.matmul(matrix, spikes)
        out = work.take("features", spikes, len(spikes), len(matrix), spikes.shape[2])
        return torch.bmm(matrix.expand(len(spikes), -1, -1), spikes, out=out)

    def targets(self, y: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map targets (batch, horizon, outputs) to the basis, (outputs, rank, batch), and sum up the energy left outside.

        There, samples count `weights` (batch,) times.
        """
        y = y.double()
        inside = torch.einsum("hr,bhc->crb", self.basis.to(y.device), y)
        if weights is None:
            return inside, (y.square().sum(dim=(0, 1)) - inside.square().sum(dim=(1, 2))).clamp_min(0)
        return inside, ((y.square().sum(dim=1).T - inside.square().sum(dim=1)) @ weights.to(y)).clamp_min(0)


@dataclass(frozen=True)
class Assembly(Options):
    r"""How far the sums over all windows are thinned out.

    Parameters
    ----------
    tolerance : float
        Singular values of a trace's matrix below this part of its largest are dropped; 0 keeps all.
    traces : int, optional
        Outputs share at most this many different (delay, support) pairs, each taking the one of least residual on the
        initial batch. None gives every output its own pair, as in the paper.
    skip : int
        In the search for supports, every `skip`-th candidate is tried first, and then the neighbours of the best.
    samples : int, optional
        Number of samples of the initial batch that delays' and supports' residuals are compared on; all if None.
    """

    tolerance: float = 5e-2
    traces: int | None = 2
    skip: int = 4
    samples: int | None = 500

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"Assembly: tolerance must be at least 0 and below 1, got {self.tolerance!r}.")
        if self.traces is not None:
            check_integer("Assembly: traces", self.traces, 1)
        check_integer("Assembly: skip", self.skip, 1)
        if self.samples is not None:
            check_integer("Assembly: samples", self.samples, 1)

    def representatives(self, lags: Tensor, supports: Tensor) -> Tensor:
        r"""Choose few (lag, support) pairs that lie near to those of all outputs.

        The distance of two pairs is :math:`|\Delta lag| / \sigma + |\Delta \log \sigma|`; pairs are added one by one, each
        time the one that brings all outputs nearest.

        Parameters
        ----------
        lags, supports : Tensor of shape (outputs,)

        Returns
        -------
        Tensor of shape (pairs, 2)
        """
        pairs, count = torch.stack([lags, supports], dim=1).unique(dim=0, return_counts=True)
        if self.traces is None or len(pairs) <= self.traces:
            return pairs
        lag, sigma = pairs.T
        far = (lag[:, None] - lag).abs() / torch.minimum(sigma[:, None], sigma) + (sigma[:, None] / sigma).log().abs()
        nearest, chosen = torch.full_like(lag, torch.inf), []
        for _ in range(self.traces):
            best = int((torch.minimum(nearest[:, None], far) * count[:, None]).sum(dim=0).argmin())
            chosen.append(best)
            nearest = torch.minimum(nearest, far[:, best])
        return pairs[sorted(set(chosen))]


ASSEMBLIES: dict[str, Assembly] = {"fast": Assembly(), "exact": Assembly(tolerance=0.0, traces=None, skip=1, samples=None)}
