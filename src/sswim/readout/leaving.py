"""A penalty for groups that were never seen: groups are left out in turn. Sums add up, so this takes one pass over samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from sswim.data.windows import Samples, Split, Subset
from sswim.options import Run
from sswim.readout.gathered import joined
from sswim.regression import CEILING, FLOOR, FixedLambda, LambdaSearch, Regularization, Sums

__all__ = ["best_penalty", "leave_groups_out", "parts_of"]

# Groups are left out in at most this many parts.
MOST = 10


def leave_groups_out(
    split: Split, features: int, search: Regularization, sums_of: Callable[[Samples], Sums], run: Run
) -> Regularization:
    """Return the penalty of least error on groups of samples that are left out in turn.

    If there are no groups, or `search` compares no penalties, it is returned as it is. So it is where memory has no room for
    the sums of two parts: then it looks at the groups that are held out for validation.

    Parameters
    ----------
    split : Split
        Copies of samples are left aside.
    features : int
        Number of features that the sums have.
    search : Regularization
        A `LambdaSearch` has penalties to compare.
    sums_of : callable
        Returns the sums of some samples.
    run : Run
    """
    room = run.budget // (24 * features**2)  # sums of a part, those of all others, and their eigenvectors
    grouped = split.whole is not None and split.whole.groups(slice(0)) is not None
    if not grouped or not isinstance(search, LambdaSearch) or room < 2:
        return search
    with run.step("groups left out"):
        return best_penalty([sums_of(part) for part in parts_of(split, min(MOST, room))], search)


def parts_of(split: Split, most: int) -> list[Samples]:
    """Return the samples of each part of the groups; group `n` is in part ``n % most``."""
    whole = split.whole
    assert whole is not None
    groups = whole.groups(slice(None))
    assert groups is not None
    return [Subset(whole, (groups % most == part).nonzero()[:, 0]) for part in (groups % most).unique().tolist()]


def best_penalty(parts: list[Sums], search: LambdaSearch) -> FixedLambda:
    """Return the penalty of least squared error, over all outputs, on parts that are left out in turn.

    It is one of the candidates of `search`, or past their ends if the error still falls there.
    """
    left_out = [(_others(parts, number), part) for number, part in enumerate(parts)]
    if search.penalize_bias:
        left_out = [(rest.with_constant(), part.with_constant()) for rest, part in left_out]

    def error(penalty: float) -> float:
        return float(sum(part.squared_error(*rest.solve(penalty)).sum() for rest, part in left_out))

    grid = torch.logspace(math.log10(search.high), math.log10(search.low), search.count, dtype=torch.float64).tolist()
    best, least, place = grid[0], math.inf, 0
    for number, penalty in enumerate(grid):  # the largest first: of two that are as good, the larger one is taken
        now = error(penalty)
        if now < (1 - 1e-6) * least:
            best, least, place = penalty, now, number
    for end, factor in ((0, grid[0] / grid[-1]), (len(grid) - 1, grid[-1] / grid[0])):
        if search.extend and len(grid) > 1 and place == end:
            ratio = factor ** (1 / (len(grid) - 1))
            while FLOOR <= best * ratio <= CEILING and (now := error(best * ratio)) < (1 - 1e-6) * least:
                best, least = best * ratio, now
    return FixedLambda(best, search.penalize_bias)


def _others(parts: list[Sums], number: int) -> Sums:
    """Return the sums of all parts but one."""
    rest = [part for other, part in enumerate(parts) if other != number]
    found = rest[0]
    for part in rest[1:]:
        found = joined(found, part)
    return found
