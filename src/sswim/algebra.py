"""Linear algebra whose results do not depend on the processor: products, eigenvectors, factors, ties."""

from __future__ import annotations

import scipy.linalg
import torch
from torch import Tensor

__all__ = ["gram", "index_of_least", "pivoted_cholesky", "safe_eigh"]


def gram(a: Tensor) -> Tensor:
    """Return ``a @ a.T`` for `a` of shape (n, rows).

    torch has no symmetric product, so only the blocks on and below the diagonal are multiplied.
    """
    n = len(a)
    block = max(64, -(-n // 6))
    result = a.new_empty(n, n)
    for first in range(0, n, block):
        last = min(first + block, n)
        torch.mm(a[first:last], a[:last].T, out=result[first:last, :last])
        result[:first, first:last] = result[first:last, :first].T
    return result


def safe_eigh(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (ascending) and eigenvectors of symmetric float64 matrices of shape (..., n, n).

    Divide-and-conquer is fast, but fails on some rank-deficient matrices. Then QR iteration takes over, on matrices of size 1.
    """
    try:
        values, vectors = torch.linalg.eigh(a)
        if torch.isfinite(values).all() and torch.isfinite(vectors).all():
            return values, vectors
    except torch.linalg.LinAlgError:
        pass
    flat = a.reshape(-1, *a.shape[-2:]).cpu().numpy()
    sizes = abs(flat).max(axis=(1, 2), initial=1e-300)
    pairs = [scipy.linalg.eigh(matrix / size, driver="ev") for matrix, size in zip(flat, sizes, strict=True)]
    values, vectors = (torch.stack([torch.from_numpy(pair[i]) for pair in pairs]) for i in (0, 1))
    values *= torch.from_numpy(sizes)[:, None]
    return values.reshape(a.shape[:-1]).to(a.device), vectors.reshape(a.shape).to(a.device)


def index_of_least(values: Tensor, margin: float = 1e-6) -> Tensor:
    """Return where values (candidates, ...) are least; of equally good candidates, within a relative margin, the last."""
    least = values.amin(dim=0)
    near = values <= least + margin * least.abs()
    return len(values) - 1 - near.flip(0).int().argmax(dim=0)


def pivoted_cholesky(a: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Factor the largest independent part of a symmetric positive semi-definite float64 matrix.

    Returns
    -------
    factor : Tensor of shape (rank, rank)
        Lower triangle `L` with ``a[order][:, order] = L L^T``, its squared diagonal descending and above `tolerance`.
    order : Tensor of shape (rank,)
        Rows that are independent.
    """
    if not len(a):
        return a, torch.empty(0, dtype=torch.long, device=a.device)
    factor, order, rank, info = scipy.linalg.lapack.dpstrf(a.cpu().numpy(), tol=tolerance, lower=1)
    if info < 0:
        raise ValueError(f"pivoted_cholesky: argument {-info} is not finite.")
    return torch.from_numpy(factor[:rank, :rank]).tril().to(a.device), torch.from_numpy(order[:rank] - 1).long().to(a.device)
