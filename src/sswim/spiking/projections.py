r"""Linear regressions of spike trains on filtered spikes and a refractory trace; see `sswim.spiking.targets`.

Inside, voltages are counted from the threshold, :math:`u = v - 1`, and features from means that were fixed beforehand. Whatever
a margin might be, only its ratio to the weights' scale shows in the spikes, so it is 1: spikes ask for :math:`u \ge 1`, other
steps for :math:`u \le -1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.algebra import gram
from sswim.network.kernels import Kernel, refractory_taps, toeplitz

__all__ = ["Bordered", "Fit", "Group", "Projections", "SpikeSums", "refractory_traces"]


def refractory_traces(kernel: Kernel, supports: Tensor, trains: Tensor) -> Tensor:
    r"""Return :math:`\eta_i(t) = \sum_{t^f < t} q((t - t^f) / \varsigma_i)` of trains (outputs, steps, batch), same shape.

    Examples
    --------
    >>> from sswim.network.kernels import Refractory
    >>> train = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]).reshape(1, 5, 1)
    >>> refractory_traces(Refractory(), torch.tensor([2.0]), train).flatten()
    tensor([0.0000, 0.0000, 0.6065, 0.3679, 0.0000])
    """
    steps = trains.shape[1]
    taps = refractory_taps(kernel, supports.to(trains), steps)
    taps = torch.nn.functional.pad(taps, (1, steps - 1 - taps.shape[1]))  # lag 0 does not count
    return torch.bmm(toeplitz(taps, steps), trains)


class SpikeSums:
    r"""Sums over all rows, and over rows at spikes, that the regressions of several outputs on the same traces follow from.

    A row is one step of one sample, with the features :math:`\phi = (\psi - \mu, 1)`, and :math:`\eta_i` for output `i`.
    :math:`\sum \phi \phi^\top` is shared by all outputs, and :math:`\sum \phi \eta_i` borders it. The same sums over the rows
    at which output `i` spikes make any weight for those rows possible. Sizes do not depend on the number of rows.

    Parameters
    ----------
    means : Tensor of shape (features,)
        :math:`\mu`, near the features' means: late centring would cost digits.
    outputs : int
    weighted : bool
        Whether to keep a Gram matrix per output of its rows at spikes, which weights need.
    """

    def __init__(self, means: Tensor, outputs: int, *, weighted: bool = True) -> None:
        size = len(means) + 1

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=means.device)

        self.means, self.samples, self.weighted = means.double(), 0, weighted
        self.gram, self.border, self.square = zeros(size, size), zeros(outputs, size), zeros(outputs)
        self.spike_gram = zeros(outputs if weighted else 0, size, size)
        self.spike_border, self.spike_square = zeros(outputs, size), zeros(outputs)
        self.spike_sum, self.spike_eta = zeros(outputs, size), zeros(outputs)

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.gram[-1, -1])

    @property
    def spikes(self) -> Tensor:
        """Number of rows at spikes, of shape (outputs,)."""
        return self.spike_sum[:, -1]

    def update(self, psi: Tensor, eta: Tensor, trains: Tensor) -> None:
        """Add a batch.

        Parameters
        ----------
        psi : Tensor of shape (features, steps, batch)
            Overwritten. Products are computed in its dtype and summed in float64.
        eta, trains : Tensor of shape (outputs, steps, batch)
        """
        self.samples += psi.shape[2]
        psi -= self.means[:, None, None].to(psi)
        phi = torch.cat([psi.flatten(1), psi.new_ones(1, psi[0].numel())])
        eta = eta.flatten(1).to(phi)
        self.gram += gram(phi).double()
        self.border += (eta @ phi.T).double()
        self.square += eta.double().square().sum(dim=1)
        for i, spiking in enumerate(trains.flatten(1)):
            at = spiking.nonzero()[:, 0]
            here, own = phi[:, at], eta[i, at]
            if self.weighted:
                self.spike_gram[i] += gram(here).double()
            self.spike_border[i] += (here @ own).double()
            self.spike_square[i] += own.double().square().sum()
            self.spike_sum[i] += here.double().sum(dim=1)
            self.spike_eta[i] += own.double().sum()

    def balanced(self, balance: float) -> Tensor:
        """Return the weight (outputs,) of rows at spikes: that power of the number of other rows per spike."""
        return ((self.rows - self.spikes) / self.spikes.clamp_min(1)).clamp_min(1e-9) ** balance

    def constant(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the right-hand sides (outputs, features + 1) and (outputs,) for 1 at spikes and -1 elsewhere."""
        return (
            (1 + weight[:, None]) * self.spike_sum - self.gram[-1],
            (1 + weight) * self.spike_eta - self.border[:, -1],
        )

    def total(self, weight: Tensor) -> Tensor:
        """Return the sum of all rows' weights, of shape (outputs,)."""
        return self.rows + (weight - 1) * self.spikes

    def normal(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Gram matrices (outputs or 1, n, n), borders (outputs, n) and corners (outputs,) for weights of spikes."""
        more = weight - 1
        matrix = self.gram[None]
        if bool((more != 0).any()):
            matrix = matrix + more[:, None, None] * self.spike_gram
        return matrix, self.border + more[:, None] * self.spike_border, self.square + more * self.spike_square


class Bordered:
    r"""Solver of regularised normal equations, with one bordering column for the spike cost, by block elimination.

    With :math:`F` the regularised Gram matrix, `e` the border, `d` the corner, and right-hand sides `r`, `s`:
    :math:`c = (s - e^\top F^{-1} r) / (d - e^\top F^{-1} e)` and :math:`p = F^{-1} r - c F^{-1} e`. A positive spike cost would
    excite: it is set to 0, and then :math:`p = F^{-1} r` is the solution. Bias and cost are free of the penalty.
    """

    def __init__(self, sums: SpikeSums, weight: Tensor, lambda_: float) -> None:
        matrix, self._border, corner = sums.normal(weight)
        total = sums.total(weight) / sums.rows
        penalty = sums.samples * lambda_ * (total if len(matrix) > 1 else torch.ones_like(total[:1]))
        matrix = matrix.clone()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        least = 1e-12 * diagonal.amax(dim=1)
        diagonal[:, :-1] += torch.maximum(penalty, least)[:, None]
        self._factor, failed = torch.linalg.cholesky_ex(matrix)
        while bool(failed.any()):  # rounding made it indefinite
            least = 100 * least
            diagonal += torch.where(failed > 0, least, 0.0)[:, None]
            self._factor, failed = torch.linalg.cholesky_ex(matrix)
        self._eliminated = self._divide(self._border)
        schur = corner - (self._border * self._eliminated).sum(dim=1)
        # An output without any spike before another step has no trace to regress on.
        self._schur = torch.where(schur > 1e-9 * corner.clamp_min(1e-300), schur, torch.inf)

    def _divide(self, r: Tensor) -> Tensor:
        if len(self._factor) == 1:
            return torch.cholesky_solve(r.T, self._factor[0]).T
        return torch.cholesky_solve(r[:, :, None], self._factor)[:, :, 0]

    def solve(self, r: Tensor, r_eta: Tensor) -> tuple[Tensor, Tensor]:
        """Return parameters (outputs, features + 1) and costs (outputs,) for right-hand sides of the same shapes."""
        p = self._divide(r)
        c = ((r_eta - (self._border * p).sum(dim=1)) / self._schur).clamp_max(0)
        return p - c[:, None] * self._eliminated, c


@dataclass
class Fit:
    """Several candidates for each output, which come one after the other: output 0's, output 1's, and so on.

    Attributes
    ----------
    p : Tensor of shape (candidates, features + 1)
        Weights of the features, counted from their means, and bias.
    c : Tensor of shape (candidates,)
        Spike costs.
    """

    p: Tensor
    c: Tensor


@dataclass
class Group:
    """Outputs that see the hidden spikes through the same matrix.

    Attributes
    ----------
    outputs : Tensor
        Their numbers.
    K : Tensor of shape (steps, steps)
        The filter as a matrix; its rows from `start` on are the horizon's.
    start : int
    means : Tensor of shape (features,)
        What the traces are counted from.
    """

    outputs: Tensor
    K: Tensor
    start: int
    means: Tensor

    def psi(self, spikes: Tensor) -> Tensor:
        """Return the traces (N, H, B) on the horizon of spikes (N, S, B)."""
        return torch.matmul(self.K[self.start :], spikes)

    def respond(self, p: Tensor, spikes: Tensor, *, whole: bool = False) -> Tensor:
        """Return potentials (V, H, B) of parameters (V, N + 1), or on all steps: project first, filter after."""
        seen = (p[:, :-1].to(spikes) @ spikes.flatten(1)).unflatten(1, spikes.shape[1:])
        bias = p[:, -1] - p[:, :-1] @ self.means
        return torch.matmul(self.K if whole else self.K[self.start :], seen).add_(bias[:, None, None].to(spikes))

    def products(self, rows: Tensor, spikes: Tensor) -> Tensor:
        """Return the products (V, N + 1) of rows (V, H, B) with all features, without forming these."""
        seen = (torch.matmul(self.K[self.start :].T, rows).flatten(1) @ spikes.flatten(1).T).double()
        total = rows.double().sum(dim=(1, 2))[:, None]
        return torch.cat([seen - total * self.means, total], dim=1)


class Projections:
    r"""Alternating projections between the voltages that a group's outputs can have and those that produce the trains.

    :math:`u` is what the layer gives. The nearest voltages that produce the trains are :math:`z = \max(u, 1)` at spikes and
    :math:`z = \min(u, -1)` elsewhere. The least squares for `z` are the next `u`. Each output is fitted once per balance.

    Parameters
    ----------
    group : Group
    sums : SpikeSums
        Of all training rows.
    lambda_ : float
        The penalty is :math:`M \lambda |w|^2` for `M` samples.
    balances : sequence of float
        See `SpikeSums.balanced`.

    Attributes
    ----------
    fit : Fit
        With one candidate per balance; before the first round, least squares for constant voltages.
    """

    def __init__(self, group: Group, sums: SpikeSums, lambda_: float, balances: Sequence[float]) -> None:
        self.group, self._projected = group, 0
        weights = [sums.balanced(balance) for balance in balances]
        self._solvers = [Bordered(sums, weight, lambda_) for weight in weights]
        found = [solver.solve(*sums.constant(w)) for solver, w in zip(self._solvers, weights, strict=True)]
        self._weight = torch.stack(weights, dim=1).flatten()  # (V,)
        p, c = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*found, strict=True))
        self.fit = self._at = Fit(p, c)
        self._clear()

    def _clear(self) -> None:
        self._r, self._r_eta = torch.zeros_like(self.fit.p), torch.zeros_like(self.fit.c)

    def see(self, spikes: Tensor, eta: Tensor, trains: Tensor) -> None:
        """Add up the projected voltages of a batch: spikes (N, S, B), traces and trains (all outputs, H, B)."""
        each = len(self._solvers)
        eta, spiking = (rows[self.group.outputs].repeat_interleave(each, dim=0) for rows in (eta, trains > 0))
        u = self.group.respond(self._at.p, spikes).addcmul_(self._at.c[:, None, None].to(eta), eta)  # (V, H, B)
        z = torch.where(spiking, u.clamp_min(1) * self._weight[:, None, None].to(u), u.clamp_max(-1))
        self._r += self.group.products(z, spikes)
        self._r_eta += (z * eta).double().sum(dim=(1, 2))

    def project(self) -> None:
        """Solve for the voltages seen, and go on from there with momentum."""
        each, before = len(self._solvers), self.fit
        p, c = torch.empty_like(before.p), torch.empty_like(before.c)
        for k, solver in enumerate(self._solvers):
            p[k::each], c[k::each] = solver.solve(self._r[k::each], self._r_eta[k::each])
        self.fit = Fit(p, c)
        beta = self._projected / (self._projected + 3)
        self._at = Fit(p + beta * (p - before.p), c + beta * (c - before.c))
        self._projected += 1
        self._clear()
