"""A penalty for groups that were never seen: groups are left out in turn. Sums add up, so this takes one pass over samples."""

from __future__ import annotations

import math

import torch

from sswim.data.windows import Part, Split, batches
from sswim.network.network import SpikingNetwork
from sswim.options import Run
from sswim.readout.gathered import joined
from sswim.regression import CEILING, FLOOR, FixedLambda, LambdaSearch, Regularization, Sums

__all__ = ["best_penalty", "leave_groups_out", "sums_of_parts"]

# Groups are left out in at most this many parts.
MOST = 10


def leave_groups_out(network: SpikingNetwork, split: Split, search: LambdaSearch, run: Run) -> Regularization:
    """Return the penalty of least error on groups of samples that are left out in turn.

    Copies of samples are left aside. Where memory has no room for the sums of two parts, the search itself is returned: it
    looks at the groups that are held out for validation.
    """
    features = network.readout.weights.shape[1]
    room = run.budget // (24 * features**2)  # sums of a part, those of all others, and their eigenvectors
    if room < 2:
        return search
    with run.step("groups left out"):
        return best_penalty(sums_of_parts(network, split, min(MOST, room), run), search)


def sums_of_parts(network: SpikingNetwork, split: Split, most: int, run: Run) -> list[Sums]:
    """Return the sums of each part of the groups; group `n` is in part ``n % most``."""
    readout = network.readout
    outputs, features = readout.weights.shape
    found: dict[int, Sums] = {}
    read, size = network.trace_reader(readout.constants), network.batch_size(run.budget)
    for samples in (Part(split.train, 0, split.train.originals), split.held_out):
        for rows in run.count(batches(len(samples), size)):
            f, y, weights = read(samples.inputs(rows)), samples.targets(rows).flatten(1).T.double(), samples.weights(rows)
            groups = samples.groups(rows)
            assert groups is not None
            for part in (groups % most).unique().tolist():
                mine = (groups % most == part).nonzero()[:, 0]
                sums = found.setdefault(part, Sums(features, outputs, device=f.device))
                here = mine.to(f.device)
                counts = None if weights is None else weights[mine].to(f.device)
                sums.update(f[:, None, here], y[:, None, mine].to(f.device), weights=counts)
    return [found[part] for part in sorted(found)]


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
