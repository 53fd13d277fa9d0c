"""How many steps and channels events may make by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from sswim.options import check_integer

__all__ = ["MOST_CHANNELS", "MOST_STEPS", "check_inputs", "check_sizes", "refuse_channels", "refuse_steps"]

MOST_STEPS, MOST_CHANNELS = 5_000, 1_000_000


def check_inputs(inputs: int | None, most: int) -> None:
    """Refuse fewer channels than occur."""
    if inputs is not None and most > check_integer("inputs", inputs, 1):
        raise ValueError(f"X: channel {most - 1} is out of range: there are {inputs} channels, numbered from 0.")


def check_sizes(times: Sequence[np.ndarray], channels: Sequence[np.ndarray], steps: int, inputs: int) -> None:
    """Refuse numbers of steps and channels that follow from the events, and that no network could take."""
    if steps > MOST_STEPS:
        number, late = max(enumerate(float(t.max()) if len(t) else 0.0 for t in times), key=lambda found: found[1])
        refuse_steps(number, late, float(np.median(np.concatenate(times))))
    if inputs > MOST_CHANNELS:
        refuse_channels(*max(enumerate(int(c.max()) if len(c) else 0 for c in channels), key=lambda found: found[1]))


def refuse_steps(number: int, late: float, usual: float) -> NoReturn:
    """Say that a sample has an event too late, and that half of all come before `usual`."""
    raise ValueError(
        f"X: events reach step {late:.6g} (sample {number}; half of all come before {usual:.6g}), and a network is "
        f"simulated on {MOST_STEPS} steps at most. Multiply times by a scale, such as "
        f"ExactEvents(scale={100 / max(usual, 1):.1g}) for times in small units, or leave late events out with "
        "ExactEvents(steps=...)."
    )


def refuse_channels(number: int, most: int) -> NoReturn:
    """Say that a sample has a channel of too high a number."""
    raise ValueError(
        f"X: channel {most} (sample {number}) would make {most + 1} channels, and a network has {MOST_CHANNELS} at most. "
        "Drop stray events, or let neighbouring channels become one with ExactEvents(merge=...)."
    )
