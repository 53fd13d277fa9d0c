"""Small linear algebra that must neither fail nor go slow."""

from __future__ import annotations

import scipy.linalg
import torch
from torch import Tensor

__all__ = ["gram", "safe_eigh"]


def gram(a: Tensor) -> Tensor:
    """Return ``a @ a.T`` for `a` of shape (n, rows).

    NumPy sees that the product is symmetric and does half the work; torch does not.
    """
    if a.device.type == "cpu":
        array = a.numpy()
        return torch.from_numpy(array @ array.T)
    return a @ a.T


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
