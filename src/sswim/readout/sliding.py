r"""Exact sums for outputs whose traces differ by their delay only.

A trace with delay :math:`\tau + 1` shows at step `t` what one with delay :math:`\tau` shows at :math:`t - 1`. So over a horizon
of `H` steps, the Gram matrices of two such traces have all steps in common but one at either end. Here every step is multiplied
once, whatever the number of delays, and each Gram matrix is put together from the stretches between their ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.algebra import gram
from sswim.network.kernels import Kernel, kernel_taps, toeplitz
from sswim.network.layer import Workspace
from sswim.regression import Sums

__all__ = ["SlidingSums", "shiftable"]


def shiftable(kernel: Kernel, delay: float, support: float, steps: int) -> bool:
    """Return whether delaying a kernel by one step more shifts it as a whole, without cutting off a part at lag 0."""
    tau, sigma = torch.tensor([delay, delay + 1], dtype=torch.float64), torch.full((2,), support, dtype=torch.float64)
    here, later = kernel_taps(kernel, tau, sigma, steps)
    return bool(later[0] == 0) and bool(torch.allclose(here[:-1], later[1:], rtol=0, atol=1e-12))


def _sum(rows: Tensor, root: Tensor | None) -> Tensor:
    """Return the sums of rows (n, steps * batch), multiplied by a number for each of the batch."""
    return rows.sum(dim=1) if root is None else rows.unflatten(1, (-1, len(root))).sum(dim=1) @ root.to(rows)


class SlidingSums:
    """Sums of several traces with the same support and whole steps between their delays.

    Parameters
    ----------
    kernel : callable
    delays : sequence of float
        Ascending, whole steps apart, and `shiftable` from the first one on.
    support : float
    start, horizon : int
        The output steps.
    members : sequence of Tensor
        For each delay, the numbers of the outputs that have it.
    neurons : int
    """

    def __init__(
        self,
        kernel: Kernel,
        delays: Sequence[float],
        support: float,
        start: int,
        horizon: int,
        members: Sequence[Tensor],
        neurons: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.horizon, self.members, steps = horizon, members, start + horizon
        longest = delays[-1]
        self._first = [round(longest - delay) for delay in delays]  # where each delay's horizon begins among all rows
        # With the longest delay, steps before the horizon show nothing that a shorter one needs; steps after it do.
        rows = self._first[0] + horizon
        tau, sigma = (torch.tensor([value], dtype=torch.float64) for value in (longest, support))
        taps = kernel_taps(kernel, tau, sigma, steps + self._first[0])
        K = toeplitz(taps, steps)[0, start : start + rows]  # (rows, S)
        seen = (K != 0).any(dim=0).nonzero()[:, 0].tolist() or [0]
        self.first, self.last = seen[0], seen[-1] + 1
        self._matrix = K[:, self.first : self.last].contiguous()
        ends = sorted({*self._first, *(first + horizon for first in self._first)})
        self._stretches = list(zip(ends, ends[1:], strict=False))

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self._reference: Tensor | None = None  # near the mean, so that products are of small numbers
        self._target_reference: Tensor | None = None
        self.samples = 0.0
        self._gram = zeros(len(self._stretches), neurons, neurons)
        self._sum = zeros(len(self._stretches), neurons)
        self._cross = [zeros(neurons, len(m)) for m in members]
        self._target_sum, self._energy = ([zeros(len(m)) for m in members] for _ in range(2))

    def update(self, spikes: Tensor, targets: Tensor, work: Workspace, weights: Tensor | None = None) -> None:
        """Add spikes (neurons, steps, batch) and targets (batch, horizon, all outputs); samples count `weights` times."""
        matrix, seen = self._matrix.to(spikes), spikes[:, self.first : self.last]
        n, rows, batch = len(spikes), len(matrix), spikes.shape[2]
        x = torch.bmm(matrix.expand(n, -1, -1), seen, out=work.take("features", spikes, n, rows, batch))
        y = targets.permute(2, 1, 0).double()  # (C, H, B)
        if self._reference is None or self._target_reference is None:
            self._reference, self._target_reference = x.mean(dim=(1, 2)), y.mean(dim=(1, 2))
        x -= self._reference[:, None, None]
        y = y - self._target_reference[:, None, None]
        root = None if weights is None else weights.double().sqrt()
        if root is not None:
            x, y = x.mul_(root.to(x)), y * root
        for i, (first, last) in enumerate(self._stretches):
            part = x[:, first:last].reshape(n, -1)
            self._gram[i] += gram(part)
            self._sum[i] += _sum(part.double(), root)
        for i, (first, outputs) in enumerate(zip(self._first, self.members, strict=True)):
            target = y[outputs].flatten(1)
            self._cross[i] += x[:, first : first + self.horizon].reshape(n, -1) @ target.T.to(x.dtype)
            self._target_sum[i] += _sum(target, root)
            self._energy[i] += target.square().sum(dim=1)
        self.samples += batch if weights is None else float(weights.double().sum())

    def result(self) -> list[Sums]:
        """Return the sums of each delay."""
        found = []
        count = self.samples * self.horizon
        for i, (first, outputs) in enumerate(zip(self._first, self.members, strict=True)):
            inside = [j for j, (a, b) in enumerate(self._stretches) if a >= first and b <= first + self.horizon]
            mean, target_mean = self._sum[inside].sum(dim=0) / count, self._target_sum[i] / count
            sums = Sums(len(mean), len(outputs), self.horizon, device=mean.device)
            assert self._reference is not None and self._target_reference is not None
            sums.epsilon = torch.finfo(self._reference.dtype).eps
            sums.add(
                self._gram[inside].sum(dim=0) - count * torch.outer(mean, mean),
                self._cross[i] - count * torch.outer(mean, target_mean),
                self._energy[i] - count * target_mean**2,
                mean + self._reference.double(),
                target_mean + self._target_reference[outputs],
                self.samples,
            )
            found.append(sums)
        return found
