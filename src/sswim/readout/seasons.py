"""Seasonal naive forecasts: what was a period ago. The period is found from the sums of blocks, as all else is.

Two forecasts repeat the last period of a window: as it was, or moved to the last value. They read the spikes of single lags,
and other models may add weights to them. A few dozen rows tell a period, where a regression on all lags takes hundreds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sswim.readout.blocks import Part
from sswim.readout.lags import LagReadout

__all__ = ["find_seasons", "season_name", "season_named", "season_weights"]

NAME = re.compile(r"what was (\d{1,9}) rows before(, moved to the last value)?")


def season_name(period: int, moved: bool) -> str:
    """Return what the forecast is called.

    Examples
    --------
    >>> season_name(24, moved=True)
    'what was 24 rows before, moved to the last value'
    """
    return f"what was {period} rows before" + (", moved to the last value" if moved else "")


def season_weights(readout: LagReadout, period: int, moved: bool) -> Tensor:
    """Return the weights (features, horizon * outputs) of the forecast that repeats the last `period` rows of a window."""
    directions, window, outputs = readout.lag_directions.double(), readout.sizes.window, readout.outputs
    found = torch.zeros(*readout.weights.shape[1:], dtype=torch.float64, device=directions.device)
    rows = window - period + torch.arange(readout.horizon) % period
    shape = directions[rows] - directions[window - 1 - period] if moved else directions[rows]  # (horizon, lags)
    first, last, count = readout.parts["lags"].start, readout.parts["last"].start, directions.shape[1]
    for c in range(outputs):
        found[first + c * count : first + (c + 1) * count, c::outputs] = shape.T
        if moved:
            found[last + c, c::outputs] = 1.0
    return found


def season_named(readout: LagReadout, name: str) -> Tensor | None:
    """Return the weights of the forecast of a name; None if there is none."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    period, moved = int(match[1]), match[2] is not None
    return season_weights(readout, period, moved) if 2 <= period <= readout.sizes.window - moved else None


def find_seasons(readout: LagReadout) -> Callable[[Sequence[Part], Tensor, Sequence[float]], dict[str, Tensor]]:
    """Return a function that finds, from the sums of blocks, the forecasts of each kind with the least error.

    It takes the sums for some of the outputs, their numbers, and how much each block counts, and returns weights for all
    outputs, by name.
    """

    def find(blocks: Sequence[Part], outputs: Tensor, say: Sequence[float]) -> dict[str, Tensor]:
        errors: dict[bool, Tensor] = {}
        for block, part in zip(blocks, say, strict=True):
            for moved, found in _errors(readout, block.pooled(), outputs.cpu()).items():
                errors[moved] = errors.get(moved, 0.0) + part * found
        best = [(int(e.argmin()) + 2, moved) for moved, e in errors.items() if len(e)]
        return {season_name(*one): season_weights(readout, *one) for one in best}

    return find


def _errors(readout: LagReadout, block: Part, outputs: Tensor) -> dict[bool, Tensor]:
    """Return the squared errors on a block for periods from 2 on, (periods,): repeated as it was, and moved."""
    directions, window = readout.lag_directions.double().cpu(), readout.sizes.window
    gram, cross, energy = (v[0].double().cpu() for v in (block.gram, block.cross, block.energy))
    first, last, count = readout.parts["lags"].start, readout.parts["last"].start, directions.shape[1]
    longest = {False: window, True: window - 1}
    found = {moved: torch.zeros(max(most - 1, 0), dtype=torch.float64) for moved, most in longest.items()}
    for c in range(readout.outputs):
        mine = (outputs % readout.outputs == c).nonzero()[:, 0]
        at = slice(first + c * count, first + (c + 1) * count)
        # Products of the window's rows with each other, with its last value, and with what came.
        rows, now = directions @ gram[at, at] @ directions.T, directions @ gram[at, last + c]
        came, last_came, square = directions @ cross[at][:, mine], cross[last + c, mine], gram[last + c, last + c]
        own, steps = rows.diagonal(), outputs[mine] // readout.outputs
        for moved, sums in found.items():
            period = torch.arange(len(sums))[:, None] + 2
            repeated = window - period + steps % period  # (periods, outputs): the row that is repeated
            error = own[repeated] - 2 * came[repeated, torch.arange(len(mine))] + energy[mine]
            if moved:
                before = window - 1 - period
                error += square + own[before] - 2 * (last_came - came[before[:, 0]])
                error += 2 * (now[repeated] - now[before] - rows[repeated, before])
            sums += error.sum(dim=1)
    return found
