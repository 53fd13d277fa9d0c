"""Random numbers: a generator of its own for each step, all from one seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sswim._checks import check_integer

__all__ = ["Randomness"]


class Randomness:
    """One generator per step and layer, all from one seed: swapping one step leaves the others' draws alone."""

    STEPS = ("batch", "pairs", "weights", "temporal", "shuffle")

    def __init__(self, random_state: Any) -> None:
        if random_state is None:
            seed = np.random.SeedSequence().entropy
        elif isinstance(random_state, np.random.RandomState):
            seed = int(random_state.randint(2**31))
        elif isinstance(random_state, np.random.Generator):
            seed = int(random_state.integers(2**31))
        else:
            seed = check_integer("random_state", random_state, 0)
        self._seed = seed

    def __call__(self, step: str, layer: int = 0) -> torch.Generator:
        """Return the generator of one step."""
        state = np.random.SeedSequence(self._seed, spawn_key=(self.STEPS.index(step), layer)).generate_state(2)
        return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))
