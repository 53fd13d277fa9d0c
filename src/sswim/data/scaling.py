"""How channels are scaled before they enter a network."""

from __future__ import annotations

from dataclasses import dataclass

from sswim.options import Options, check_choice

__all__ = ["RELATIVE", "SCALINGS", "Scaling"]


@dataclass(frozen=True)
class Scaling(Options):
    """How channels are scaled before they enter the network, from the rows of the training windows.

    Parameters
    ----------
    kind : {"adaptive", "window", "standard", "channel", "none"}
        ``"channel"`` brings each channel to [0, 1] by its range in the training windows, ``"standard"`` to mean 0 and deviation
        1 there. ``"adaptive"`` also shows the sampled neurons each channel relative to the window's mean, and forecasts are
        relative to that mean. With ``"window"`` the network sees nothing else, so that forecasts move along with the series.
        ``"none"`` leaves the data as it is.
    clip : bool
        Whether input beyond a channel's training range is brought back to it before it enters the network (forecasts are
        not limited). Otherwise a channel that leaves its range drives every neuron that listens to it out of its own.
    floor : bool
        Whether forecasts stay above a channel's least value where that is reached again and again, as zero is by power, counts
        and rain. A window that goes below it has no floor but its own least value.
    trim : bool
        Whether rows of the fit that lie far outside of a channel's usual range are brought back to bounds around it.
    """

    kind: str = "adaptive"
    clip: bool = True
    floor: bool = True
    trim: bool = True

    def __post_init__(self) -> None:
        check_choice("scaling", self.kind, KINDS)


KINDS = ("adaptive", "window", "standard", "channel", "none")
RELATIVE = ("adaptive", "window")
SCALINGS: dict[str, Scaling] = {kind: Scaling(kind) for kind in KINDS}
