r"""Kernels as polynomials of the lag, cell by cell.

An event lies a part `a` of a step before the step that it is first seen at. So it is seen at the lags :math:`m + a` with
:math:`m = 0, 1, \dots`, one in each cell :math:`[m, m + 1)`. Where a kernel is smooth in a cell it is a short sum of
Chebyshev's polynomials there, up to rounding:

.. math:: k((m + a - \tau) / \sigma) = \sum_r c_{mr} T_r(2 a - 1)

Then a response needs the sums of :math:`W T_r` over events, and not the kernel at every event. A cell with a break is cut into
equal parts. Only events in the part with the break need the kernel itself. Before and after it the kernel is smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.network.kernels import Kernel

__all__ = ["Pieces", "chebyshev", "join_pieces", "kernel_pieces"]

# Nodes in a cell, and the largest number of terms: the last two coefficients must vanish.
NODES, TERMS = 20, 18
# Sizes of coefficients beyond this lose digits.
LARGE = 100.0


@dataclass(frozen=True)
class Pieces:
    """The kernels of some neurons as polynomials.

    Attributes
    ----------
    coefficients : Tensor of shape (neurons, cells, terms), float64
        Of polynomials that all events of a cell are counted with.
    neurons, cells : Tensor of shape (rough,), int64
        Cells that are not smooth.
    rows, before : Tensor of shape (corrections,), int64
        Corrections: number of the rough cell, and the part that they end before.
    corrections : Tensor of shape (corrections, terms), float64
        Of polynomials that events in the parts ahead of `before` are counted with, too.
    single : Tensor of shape (rough, parts), bool
        Parts whose events need the kernel itself.
    """

    coefficients: Tensor
    neurons: Tensor
    cells: Tensor
    rows: Tensor
    before: Tensor
    corrections: Tensor
    single: Tensor

    @property
    def terms(self) -> int:
        """Number of polynomials."""
        return self.coefficients.shape[2]


def chebyshev(at: Tensor, terms: int) -> Tensor:
    """Return Chebyshev's polynomials on [0, 1], (terms, *points).

    Examples
    --------
    >>> chebyshev(torch.tensor([0.0, 0.5, 1.0]), 3)
    tensor([[ 1.,  1.,  1.],
            [-1.,  0.,  1.],
            [ 1., -1.,  1.]])
    """
    x = 2 * at - 1
    found = [torch.ones_like(x), x]
    for _ in range(terms - 2):
        found.append(2 * x * found[-1] - found[-2])
    return torch.stack(found[:terms])


def kernel_pieces(kernel: Kernel, delays: Tensor, supports: Tensor, steps: int, parts: int) -> Pieces:
    """Cut kernels into polynomials.

    Parameters
    ----------
    kernel : callable
    delays, supports : Tensor of shape (neurons,)
        The dtype says how exact polynomials are.
    steps : int
        Number of cells.
    parts : int
        Number of parts of a cell with a break. With 1, all of its events need the kernel itself.
    """
    tolerance = max(4 * torch.finfo(delays.dtype).eps, 1e-13)  # in float64, rounding leaves more than eps of coefficients
    tau, sigma, count = delays.double(), supports.double(), len(delays)
    if kernel.breaks is None:
        every = torch.arange(count * steps, device=tau.device)
        single = torch.ones(len(every), parts, dtype=torch.bool, device=tau.device)
        none = tau.new_zeros(count, steps, 0)
        return Pieces(none, every // steps, every % steps, every[:0], every[:0], none[0, :0], single)
    nodes = _nodes(tau)
    lags = torch.arange(steps, dtype=torch.float64, device=tau.device)[:, None]
    c = kernel((lags + nodes - tau[:, None, None]) / sigma[:, None, None]) @ _transform(nodes)  # (N, S, nodes)
    number, single = _rough_cells(kernel.breaks, tau, sigma, steps, parts)
    flat = c.view(count * steps, NODES)
    flat[number] = 0
    steep = (flat[:, TERMS:].abs().sum(dim=1) > tolerance).nonzero()[:, 0]
    flat[steep] = 0
    left = flat.abs().flip(1).cumsum(dim=1).flip(1).amax(dim=0)  # what leaving out terms from r on costs at most
    terms = max(1, int((left > tolerance).sum()))
    whole = torch.ones(len(steep), parts, dtype=torch.bool, device=tau.device)
    number, single = torch.cat([number, steep]), torch.cat([single, whole])
    return _with_runs(kernel, tau, sigma, c[:, :, :terms].contiguous(), number, single, 4 * tolerance)


def _nodes(like: Tensor) -> Tensor:
    """Return Chebyshev's nodes on [0, 1]."""
    k = torch.arange(NODES, dtype=torch.float64, device=like.device)
    return (1 - torch.cos((2 * k + 1) * torch.pi / (2 * NODES))) / 2


def _transform(nodes: Tensor) -> Tensor:
    """Return the matrix (nodes, terms) that turns values at the nodes into coefficients."""
    weights = torch.full((NODES,), 2 / NODES, dtype=torch.float64, device=nodes.device)
    weights[0] /= 2
    return (chebyshev(nodes, NODES) * weights[:, None]).T


def _rough_cells(breaks: Sequence[float], tau: Tensor, sigma: Tensor, steps: int, parts: int) -> tuple[Tensor, Tensor]:
    """Return the cells with a break, as ``neuron * steps + cell``, and in which of their parts breaks are."""
    at = tau[:, None] + sigma[:, None] * torch.tensor(breaks, dtype=torch.float64, device=tau.device)
    slack = 1e-5 * (1 + at.abs())  # a break so near to the end of a part may lie on either side, in float32
    fine = torch.cat([(at - slack) * parts, (at + slack) * parts], dim=1).floor().long()  # (N, 2 breaks)
    neuron = torch.arange(len(tau), device=tau.device)[:, None].expand_as(fine)
    inside = (fine >= 0) & (fine < steps * parts)
    key = (neuron * (steps * parts) + fine)[inside]
    number, place = (key // parts).unique(return_inverse=True)
    single = torch.zeros(len(number), parts, dtype=torch.bool, device=tau.device)
    single[place, key % parts] = True
    return number, single


def _with_runs(
    kernel: Kernel, tau: Tensor, sigma: Tensor, c: Tensor, number: Tensor, single: Tensor, tolerance: float
) -> Pieces:
    """Add polynomials for the runs of smooth parts between the breaks of cells."""
    count, steps, terms = c.shape
    parts, neurons, cells = single.shape[1], number // steps, number % steps
    edge = torch.nn.functional.pad(~single, (1, 1)).int().diff(dim=1)  # (rough, parts + 1)
    rows, first = (edge == 1).nonzero().T
    last = (edge == -1).nonzero()[:, 1]
    # A polynomial of least size through the values on each run.
    nodes, (spans, which) = _nodes(tau), torch.stack([first, last], dim=1).unique(dim=0, return_inverse=True)
    at = (spans[:, :1] + (spans[:, 1:] - spans[:, :1]) * torch.cat([nodes, (nodes[1:] + nodes[:-1]) / 2])) / parts
    basis = chebyshev(at, terms).permute(1, 2, 0)  # (spans, points, terms)
    x = (cells[rows, None] + at[which] - tau[neurons[rows], None]) / sigma[neurons[rows], None]
    values = kernel(x)  # (runs, points)
    U, sizes, V = torch.linalg.svd(basis[:, :NODES], full_matrices=False)
    inverse = torch.where(sizes > tolerance / 10 * sizes[:, :1], 1 / sizes, 0.0)
    # Product by product: the product of the matrices would lose digits.
    alpha = torch.einsum("spt,sp->st", U[which], values[:, :NODES]) * inverse[which]
    alpha = torch.einsum("srt,sr->st", V[which], alpha)
    error = (torch.einsum("spt,st->sp", basis[which], alpha) - values).abs().amax(dim=1)
    good = (error <= tolerance) & (alpha.abs().sum(dim=1) <= LARGE)
    bad = torch.zeros(len(number), dtype=torch.bool, device=tau.device)
    bad[rows[~good]] = True
    single = single | bad[:, None]
    use = ~bad[rows] & (alpha != 0).any(dim=1)
    rows, first, last, alpha = rows[use], first[use], last[use], alpha[use]
    # A run counts up to its end and not up to its beginning; one that reaches the cell's end counts with all events.
    reaches = last == parts
    c.view(count * steps, terms)[number[rows[reaches]]] = alpha[reaches]
    later = first > 0
    corrected = torch.cat([rows[~reaches], rows[later]])
    before = torch.cat([last[~reaches], first[later]])
    return Pieces(c, neurons, cells, corrected, before, torch.cat([alpha[~reaches], -alpha[later]]), single)


def join_pieces(found: Sequence[Pieces], neurons: Sequence[Tensor]) -> Pieces:
    """Return the rough cells of several groups of neurons as one; `neurons` are their numbers. There are no coefficients."""
    terms = max(pieces.terms for pieces in found)
    shift, rows = 0, []
    for pieces in found:
        rows.append(pieces.rows + shift)
        shift += len(pieces.cells)
    padded = [torch.nn.functional.pad(p.corrections, (0, terms - p.terms)) for p in found]
    return Pieces(
        found[0].coefficients.new_zeros(0, 0, terms),
        torch.cat([numbers[p.neurons] for p, numbers in zip(found, neurons, strict=True)]),
        torch.cat([p.cells for p in found]),
        torch.cat(rows),
        torch.cat([p.before for p in found]),
        torch.cat(padded),
        torch.cat([p.single for p in found]),
    )
