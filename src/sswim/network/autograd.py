r"""Filtering and firing that gradients pass through: exactly through the kernels, by a surrogate through the threshold.

Autograd could do all of it, at several times the time and memory. Here both are functions with backward passes of their
own. Convolutions are cut into blocks of time, so that nothing has a size of time by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sswim.network.kernels import exporting, toeplitz
from sswim.network.plain import fire_steps, spike
from sswim.network.surrogates import Surrogate

__all__ = ["convolve", "fire_through"]

Context = Any  # what torch.autograd passes
# Steps of a block.
BLOCK = 64


def convolve(taps: Tensor, signals: Tensor, start: int = 0) -> Tensor:
    r"""Filter signals causally, :math:`y_i(t) = \sum_{s \le t} taps_i(t - s) x_i(s)`, with gradients for both.

    Parameters
    ----------
    taps : Tensor of shape (neurons, steps_out)
        Kernels at the lags 0, 1, ..., from `sswim.network.layer.kernel_taps`.
    signals : Tensor of shape (neurons, steps_in, batch)
        Later input counts as 0.
    start : int
        First step to return.

    Returns
    -------
    Tensor of shape (neurons, steps_out - start, batch)

    Examples
    --------
    >>> convolve(torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([1.0, 0.0, 2.0]).reshape(1, 3, 1)).flatten()
    tensor([1.0000, 0.5000, 2.0000])
    """
    if exporting():
        return torch.bmm(toeplitz(taps, signals.shape[1])[:, start:], signals)
    return _Convolve.apply(taps, signals, start)


class _Blocks:
    """The blocks that a convolution is cut into, those alone that the kernels reach."""

    def __init__(self, taps: Tensor, steps_in: int, start: int) -> None:
        self.taps, self.steps_in, self.start = taps, steps_in, start
        used = (taps != 0).any(dim=0).nonzero()
        self.first, self.last = (int(used.min()), int(used.max())) if len(used) else (0, 0)

    def __iter__(self) -> Iterator[tuple[int, list[tuple[slice, slice]]]]:
        """Yield a distance of blocks in time, and the pairs of output and input steps that are so far apart."""
        steps_out = self.taps.shape[1] - self.start
        ends_out = [slice(t, min(t + BLOCK, steps_out)) for t in range(0, steps_out, BLOCK)]
        ends_in = [slice(s, min(s + BLOCK, self.steps_in)) for s in range(0, self.steps_in, BLOCK)]
        for k in range(-len(ends_in) + 1, len(ends_out)):
            distance = self.start + k * BLOCK
            if distance + BLOCK - 1 < self.first or distance - BLOCK + 1 > self.last:
                continue
            yield distance, [(out, ends_in[i - k]) for i, out in enumerate(ends_out) if 0 <= i - k < len(ends_in)]

    def matrix(self, distance: int) -> Tensor:
        """Return ``[i, t, s] = taps[i, distance + t - s]``, and 0 for lags that are none, for one block's steps."""
        low, high = distance - BLOCK + 1, distance + BLOCK
        lags = self.taps[:, max(low, 0) : min(high, self.taps.shape[1])]
        lags = torch.nn.functional.pad(lags, (max(-low, 0), max(high - max(self.taps.shape[1], low), 0)))
        return lags.unfold(1, BLOCK, 1).flip(2)


class _Parts:
    """A sum of products, block of time by block of time: products into a part of a tensor are slow."""

    def __init__(self, like: Tensor, steps: int) -> None:
        self._like, self._steps = like, steps
        self._sums: dict[int, Tensor | None] = dict.fromkeys(range(0, steps, BLOCK))

    def add(self, steps: slice, a: Tensor, b: Tensor) -> None:
        """Add the product of `a` and `b` to a block."""
        known = self._sums[steps.start]
        self._sums[steps.start] = torch.bmm(a, b) if known is None else known.baddbmm_(a, b)

    def joined(self) -> Tensor:
        """Return the sums of all blocks, (neurons, steps, batch)."""
        neurons, _, batch = self._like.shape
        parts = [
            self._like.new_zeros(neurons, min(BLOCK, self._steps - t), batch) if known is None else known
            for t, known in self._sums.items()
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if total.is_contiguous():
        total.baddbmm_(a, b)
    else:
        total += torch.bmm(a, b)


def _sum_diagonals(matrices: Tensor) -> Tensor:
    """Sum square blocks (neurons, n, m) along their diagonals: entry ``m - 1 + t - s`` of (neurons, n + m - 1)."""
    neurons, rows, columns = matrices.shape
    wide = torch.nn.functional.pad(matrices.flip(2), (0, rows))  # a row longer than the result shifts each row by one
    flat = wide.reshape(neurons, -1)[:, : rows * (rows + columns - 1)]
    return flat.reshape(neurons, rows, rows + columns - 1).sum(dim=1)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, taps: Tensor, signals: Tensor, start: int) -> Tensor:
        blocks = _Blocks(taps, signals.shape[1], start)
        ctx.save_for_backward(taps, signals)
        ctx.start = start
        parts = _Parts(signals, taps.shape[1] - start)
        for distance, pairs in blocks:
            matrix = blocks.matrix(distance)
            for out, seen in pairs:
                parts.add(out, matrix[:, : out.stop - out.start, : seen.stop - seen.start], signals[:, seen])
        return parts.joined()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        taps, signals = ctx.saved_tensors
        blocks = _Blocks(taps, signals.shape[1], ctx.start)
        by_signals = _Parts(signals, signals.shape[1]) if ctx.needs_input_grad[1] else None
        by_taps = torch.zeros_like(taps) if ctx.needs_input_grad[0] else None
        # Taps that are 0 have a gradient too, next to a kernel's edge: a kernel may grow by less than a step at a time.
        if by_taps is not None:
            blocks.first, blocks.last = max(blocks.first - 2, 0), min(blocks.last + 2, taps.shape[1] - 1)
        for distance, pairs in blocks:
            matrix = blocks.matrix(distance)
            products = signals.new_zeros(len(taps), BLOCK, BLOCK) if by_taps is not None else None
            for out, seen in pairs:
                g = gradient[:, out]
                rows, columns = g.shape[1], seen.stop - seen.start
                if by_signals is not None:
                    by_signals.add(seen, matrix[:, :rows, :columns].mT, g)
                if products is not None:
                    _add_product(products[:, :rows, :columns], g, signals[:, seen].mT)
            if by_taps is not None and products is not None:
                lag = distance - BLOCK + 1  # of the first diagonal
                low, high = max(lag, 0), min(lag + 2 * BLOCK - 1, taps.shape[1])
                by_taps[:, low:high] += _sum_diagonals(products)[:, low - lag : high - lag]
        return by_taps, None if by_signals is None else by_signals.joined(), None


def fire_through(
    potentials: Tensor,
    costs: Tensor,
    inhibition: Tensor,
    surrogate: Surrogate,
    *,
    detach: bool = False,
    soft: bool = False,
) -> Tensor:
    r"""Threshold potentials as `sswim.network.layer.fire` does, with gradients for all three.

    With :math:`\rho` the surrogate, `v` the potential that a spike is decided by and :math:`g_a` the gradient by the spikes,
    that by the potential is :math:`\delta(t) = \rho(v(t)) \, (g_a(t) + \sum_r c\,q(r)\,\delta(t + r))`: a spike changes later
    ones by its inhibition.

    Parameters
    ----------
    potentials : Tensor of shape (neurons, steps, batch)
        Response plus bias. Overwritten.
    costs, inhibition : Tensor of shape (neurons,) and (neurons, lags)
    surrogate : Surrogate
    detach : bool
        Leave out the sum above: inhibition acts, but no gradient passes through it back in time. Costs and refractory
        supports still have theirs.
    soft : bool
        Put out ``surrogate.smooth(v)`` instead of spikes: then gradients are true derivatives.

    Returns
    -------
    Tensor of shape (neurons, steps, batch)
    """
    if exporting():
        return fire_steps(potentials, costs[:, None] * inhibition, surrogate.smooth if soft else spike)
    return _Fire.apply(potentials, costs, inhibition, surrogate, detach, soft)


class _Fire(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, v: Tensor, costs: Tensor, inhibition: Tensor, surrogate: Surrogate, detach: bool, soft: bool
    ) -> Tensor:
        cost = (costs[:, None] * inhibition)[:, :, None]  # (N, R, 1)
        steps, reach = v.shape[1], cost.shape[1]
        a = torch.empty_like(v)
        for t in range(steps):
            now = a[:, t : t + 1]
            if soft:
                now.copy_(surrogate.smooth(v[:, t : t + 1]))
            else:
                torch.ge(v[:, t : t + 1], 1, out=now)
            ahead = min(reach, steps - 1 - t)
            if ahead:
                v[:, t + 1 : t + 1 + ahead].addcmul_(cost[:, :ahead], now)
        ctx.save_for_backward(v, a, costs, inhibition)
        ctx.surrogate, ctx.detach = surrogate, detach
        return a

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        v, a, costs, inhibition = ctx.saved_tensors
        rho = ctx.surrogate.derivative(v)
        steps, reach = v.shape[1], inhibition.shape[1]
        if ctx.detach or not reach:
            delta = rho.mul_(gradient)
        else:
            delta = gradient.clone(memory_format=torch.contiguous_format)
            # [i, r] belongs to the step r - reach from now.
            cost = (costs[:, None] * inhibition).flip(1)[:, :, None]
            for t in range(steps - 1, -1, -1):
                now = delta[:, t : t + 1]
                now.mul_(rho[:, t : t + 1])
                before = min(reach, t)
                if before:
                    delta[:, t - before : t].addcmul_(cost[:, reach - before :], now)
        by_costs = by_inhibition = None
        if reach and (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            together = _lagged_products(delta, a, reach)
            by_costs, by_inhibition = (inhibition * together).sum(dim=1), costs[:, None] * together
        return delta, by_costs, by_inhibition, None, None, None


def _lagged_products(late: Tensor, early: Tensor, reach: int) -> Tensor:
    """Return (neurons, reach) sums over time and batch of ``late(t) * early(t - r)`` for the lags r = 1, ..., reach."""
    neurons, steps, _ = late.shape
    products = late.new_zeros(neurons, BLOCK, BLOCK + reach)  # [i, t, s]: steps t and s - reach from a block's first
    for first in range(0, steps, BLOCK):
        g, missing = late[:, first : first + BLOCK], max(reach - first, 0)
        seen = early[:, first - reach + missing : first + g.shape[1]]
        _add_product(products[:, : g.shape[1], missing : missing + seen.shape[1]], g, seen.mT)
    # The lag t - (s - reach) is entry lag + BLOCK - 1 of the diagonals.
    return _sum_diagonals(products)[:, BLOCK : BLOCK + reach]
