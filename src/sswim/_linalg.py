"""Small linear algebra that must neither fail nor go slow."""

from __future__ import annotations

import scipy.linalg
import torch
from torch import Tensor

__all__ = ["gram", "pivoted_cholesky", "safe_eigh"]


def gram(a: Tensor) -> Tensor:
    """Return ``a @ a.T`` for `a` of shape (n, rows).

    torch has no symmetric product, so only the blocks on and below the diagonal are multiplied. NumPy has one, but changing
    between the two libraries' threads costs more than it saves.
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

    Divide-and-conquer is fast but is known not to converge on some rank-deficient matrices. Then plain QR iteration takes
    over, matrix by matrix.
    """
    try:
        values, vectors = torch.linalg.eigh(a)
        if torch.isfinite(values).all() and torch.isfinite(vectors).all():
            return values, vectors
    except torch.linalg.LinAlgError:
        pass
    flat = a.reshape(-1, *a.shape[-2:]).cpu().numpy()
    pairs = [scipy.linalg.eigh(matrix, driver="ev") for matrix in flat]
    values = torch.stack([torch.from_numpy(value) for value, _ in pairs])
    vectors = torch.stack([torch.from_numpy(vector) for _, vector in pairs])
    return values.reshape(a.shape[:-1]).to(a.device), vectors.reshape(a.shape).to(a.device)


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
