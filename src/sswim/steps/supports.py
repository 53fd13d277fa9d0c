"""Kernel supports of the output layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.algebra import index_of_least
from sswim.options import Options, check_integer, check_positive
from sswim.steps.base import Supports

__all__ = ["SUPPORTS", "FixedSupports", "SupportSearch", "WidthSupports"]


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

    def find(self, correlation: Tensor, lags: Tensor, horizon: int, residuals: Callable[[Tensor, float], Tensor]) -> Tensor:
        """Return each output's support of least residual."""
        candidates = self.candidates(horizon)
        return self.choose(candidates, residuals(candidates, self.shared_lag(lags)))


@dataclass(frozen=True)
class WidthSupports(Options):
    r"""Read the supports off the correlations' peaks, instead of a search.

    Around the lag of the largest correlation, the paper's sum is roughly a multiple of the output kernel's absolute value, on
    top of what all other spikes bring. The hat of support :math:`\sigma` is above half of its height on a width of
    :math:`\sigma`. So the support is the width of the peak at half of its height above the median of all lags, between
    `smallest` and twice the horizon.

    Examples
    --------
    >>> peak = (1 - (torch.arange(40.0) - 20).abs() / 8).clamp_min(0)
    >>> WidthSupports().find(peak[None], torch.tensor([20.0]), horizon=24).tolist()
    [8.0]
    """

    smallest: float = 1.0

    def __post_init__(self) -> None:
        check_positive("WidthSupports: smallest", self.smallest)

    def find(self, correlation: Tensor, lags: Tensor, horizon: int, residuals: object = None) -> Tensor:
        """Return each output's support, from correlations (outputs, lags) and the lag of each one's largest."""
        base = correlation.median(dim=1, keepdim=True).values
        peak = correlation.gather(1, lags.long()[:, None])
        height = (correlation - base) / (peak - base).clamp_min(1e-300) - 0.5  # 0 at half of the height
        found = []
        for row, lag in zip(height.tolist(), lags.long().tolist(), strict=True):
            sides = []
            for way in (-1, 1):
                at = lag
                while 0 <= at + way < len(row) and row[at + way] > 0:
                    at += way
                beyond = row[at + way] if 0 <= at + way < len(row) else None
                sides.append(abs(at - lag) + (0.0 if beyond is None else row[at] / (row[at] - beyond)) if row[at] > 0 else 0.0)
            found.append(sum(sides))
        return torch.tensor(found, dtype=torch.float64).clamp(self.smallest, max(2.0 * horizon, self.smallest))


@dataclass(frozen=True)
class FixedSupports(Options):
    """The same support for every output, in steps."""

    value: float = 15.0

    def __post_init__(self) -> None:
        check_positive("FixedSupports: value", self.value)

    def find(self, correlation: Tensor, lags: Tensor, horizon: int, residuals: object = None) -> Tensor:
        """Return the fixed support for each output."""
        return torch.full((len(lags),), float(self.value), dtype=torch.float64)


SUPPORTS: dict[str, Supports] = {"search": SupportSearch(), "width": WidthSupports(), "fixed": FixedSupports()}
