"""How much a page shows, so that it stays small whatever the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sswim.options import Options, check_integer
from sswim.page.blocks import Section

__all__ = ["Found", "Limits"]


@dataclass(frozen=True)
class Limits(Options):
    """How much a page shows at most.

    Parameters
    ----------
    items : int
        Forecasts or samples to step through.
    channels : int
        Channels of a series.
    rows : int
        Last rows of a window.
    neurons : int
        Neurons per layer to step through, and in rasters.
    values : int
        Numbers in all forecasts together: with many channels or long horizons fewer forecasts are shown.
    """

    items: int = 60
    channels: int = 40
    rows: int = 336
    neurons: int = 60
    values: int = 250_000

    def __post_init__(self) -> None:
        for name, value in self.get_params().items():
            check_integer(f"Limits: {name}", value, 1)

    def in_rasters(self, steps: int) -> int:
        """Return how many neurons per layer are shown in rasters that have `steps` steps in all."""
        return max(1, min(self.neurons, 40 * self.values // max(steps, 1)))

    def one_by_one(self, steps: int) -> int:
        """Return how many neurons per layer are shown one by one, with some curves of `steps` steps each."""
        return max(1, min(self.neurons, self.values // (6 * steps)))


@dataclass(frozen=True)
class Found:
    """What data showed: sections, the numbers that matter most, notes on what is not shown, and a name of the data."""

    sections: Sequence[Section]
    tiles: Sequence[tuple[str, str, str]]
    notes: Sequence[str]
    data: str
