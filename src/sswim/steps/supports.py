"""Kernel supports of the output layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.options import Options, check_integer, check_positive
from sswim.regression import index_of_least
from sswim.steps.base import Supports

__all__ = ["SUPPORTS", "FixedSupports", "SupportSearch"]


# Residuals that differ by less than this part are equally good: rounding must not choose.
MARGIN = 1e-5


@dataclass(frozen=True)
class SupportSearch(Options):
    r"""Try candidates, keep for each output the one of least residual (equations ``op_sig_simple``, ``op_sig``).

    The candidates :math:`P_\alpha(\sigma_{\min}, \sigma_{\max}, N)` are evenly spaced after taking the root of order
    :math:`\alpha`. All outputs share one delay during the search.

    Parameters
    ----------
    smallest, largest : float
        :math:`\sigma_{\min}` and :math:`\sigma_{\max}` in steps. Default of the latter: twice the horizon.
    exponent : float
        :math:`\alpha`.
    count : int
        Number of candidates.
    aggregate : {"median", "min"}
        How the outputs' lags become one.

    Examples
    --------
    >>> [round(s, 2) for s in SupportSearch(count=4).candidates(8).tolist()]
    [1.0, 3.57, 7.04, 11.22]
    """

    smallest: float = 1.0
    largest: float | None = None
    exponent: float = 1.5
    count: int = 30
    aggregate: str = "median"

    def __post_init__(self) -> None:
        check_positive("SupportSearch: smallest", self.smallest)
        if self.largest is not None:
            check_positive("SupportSearch: largest", self.largest)
        check_positive("SupportSearch: exponent", self.exponent)
        check_integer("SupportSearch: count", self.count, 1)
        if self.aggregate not in ("median", "min"):
            raise ValueError(f"SupportSearch: aggregate must be 'median' or 'min', got {self.aggregate!r}.")

    def candidates(self, horizon: int) -> Tensor:
        """Return the candidate supports, ascending."""
        root = 1 / self.exponent
        a, b = self.smallest, max(self.largest if self.largest is not None else 2 * horizon, self.smallest)
        m = torch.arange(self.count, dtype=torch.float64) / self.count
        return ((1 - m) * a**root + m * b**root) ** self.exponent

    def shared_lag(self, lags: Tensor) -> float:
        """Return the one lag that stands for all outputs during the search."""
        return float(lags.median() if self.aggregate == "median" else lags.min())

    def choose(self, candidates: Tensor, residuals: Tensor) -> Tensor:
        """Return each output's support from residuals of shape (candidates, outputs); of equally good ones the largest."""
        return candidates[index_of_least(residuals, MARGIN).cpu()]


@dataclass(frozen=True)
class FixedSupports(Options):
    """The same support for every output, in steps."""

    value: float = 15.0

    def __post_init__(self) -> None:
        check_positive("FixedSupports: value", self.value)

    def candidates(self, horizon: int) -> Tensor:
        """Return the one candidate."""
        return torch.tensor([self.value], dtype=torch.float64)

    def shared_lag(self, lags: Tensor) -> float:
        """Return the median lag (not used: there is one candidate only)."""
        return float(lags.median())

    def choose(self, candidates: Tensor, residuals: Tensor) -> Tensor:
        """Return the fixed support for each output."""
        return candidates[:1].expand(residuals.shape[1]).clone()


SUPPORTS: dict[str, Supports] = {"search": SupportSearch(), "fixed": FixedSupports()}
