"""What a readout with lags sees of windows: its sizes, bins of lags, and features before directions are taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

__all__ = ["Features", "LagSizes", "lag_bins"]

# Neighbouring bins of lags differ in their ends by this factor.
GROWTH = 1.6


def lag_bins(window: int) -> list[int]:
    """Return the ends of bins of lags, from lag 0 to the window's length: fine near the origin, coarse further back.

    Examples
    --------
    >>> lag_bins(24)
    [0, 1, 2, 3, 4, 7, 10, 17, 24]
    """
    ends, end = [0], 1.0
    while end < window:
        ends.append(max(round(end), ends[-1] + 1))
        end *= GROWTH
    return [e for e in ends if e < window] + [window]


@dataclass(frozen=True)
class LagSizes:
    """Sizes of a `LagReadout`.

    Attributes
    ----------
    window, horizon, outputs : int
        Rows of a window, steps ahead, and channels of a window: 1 where channels share the network.
    groups : int
        Number of channels that share the network, each with weights of its own; 1 if none do.
    covariates, traces : int
        Number of covariates, and of traces of the sampled neurons.
    lags, extra, common : int
        Number of directions of lags, of single neurons with traces and covariates, and of what all channels do together.
    known, ahead : int
        Number of covariates that are known ahead, and of directions of them.
    clock : int
        Number of waves through which clock neurons are read.
    """

    window: int
    horizon: int
    outputs: int
    groups: int
    covariates: int
    traces: int
    lags: int
    extra: int
    common: int
    known: int = 0
    ahead: int = 0
    clock: int = field(default=0, metadata={"later": True})


@dataclass(frozen=True)
class Features:
    """What is seen of some windows, before directions are taken.

    Attributes
    ----------
    level : Tensor of shape (batch, outputs)
        Mean of each window, which forecasts are relative to.
    moving : Tensor of shape (batch, 1)
        How far the window moves: 1 as usual, less where it moves less than nearly all training windows, 0 where it rests.
    last : Tensor of shape (batch, outputs)
        Last row, relative to the mean.
    lags : Tensor of shape (batch, outputs, window)
    heights : Tensor of shape (batch, outputs)
        Level in units of the training rows, as a population shows it.
    extra : Tensor of shape (batch, extra features)
    together : Tensor of shape (sets, groups * (bins + 1))
    ahead : Tensor of shape (sets, known * (1 + singles) * horizon)
        Codes of what is known ahead.
    clock : Tensor of shape (sets, waves)
    """

    level: Tensor
    moving: Tensor
    last: Tensor
    lags: Tensor
    heights: Tensor
    extra: Tensor
    together: Tensor
    ahead: Tensor
    clock: Tensor
