r"""How the public benchmark of long-term forecasting measures.

The rows are split in time. Each channel is standardised by the training rows. Every test window counts, and the errors are
means over windows, steps ahead and channels, in standardised units:

.. math::
    \mathrm{MSE} = \frac1{MHC} \sum_{m,l,c} (Y_{mlc} - \hat Y_{mlc})^2, \qquad
    \mathrm{MAE} = \frac1{MHC} \sum_{m,l,c} |Y_{mlc} - \hat Y_{mlc}|

>>> series = np.sin(np.arange(1000.0))[:, None]
>>> cut = split_ltsf(series, window=96, horizon=24)
>>> len(cut.known), len(cut.later), cut.windows
(800, 296, 177)

A model is fitted on `known`, with the last part `validation` of its windows for validation, and evaluated on `later`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from sswim.data.times import even_times
from sswim.evaluate.protocol import Table
from sswim.options import check_choice, check_integer

__all__ = ["Borders", "LtsfSplit", "find_borders", "split_ltsf"]

# Which rows a model may use: training and validation, or training only.
FITTED = ("both", "training")


@dataclass(frozen=True)
class Borders:
    """Where the parts of a series begin and end, in rows.

    Attributes
    ----------
    train : int
        Training rows are ``[0, train)``.
    test, end : int
        Validation rows are ``[train, test)``, and test rows are ``[test, end)``.
    """

    train: int
    test: int
    end: int


def find_borders(rows: int, month: int | None = None) -> Borders:
    r"""Return the benchmark's parts of a series.

    Of `n` rows, :math:`\lfloor 0.7 n \rfloor` are for training and the last :math:`\lfloor 0.2 n \rfloor` for test; what is
    between them is for validation. The transformer sets (ETT) have 12, 4 and 4 months of 30 days instead, and later rows are
    not used.

    Parameters
    ----------
    rows : int
        `n`.
    month : int, optional
        Rows of 30 days, for parts of 12, 4 and 4 months.

    Examples
    --------
    >>> find_borders(17_420, month=720), find_borders(7_588)
    (Borders(train=8640, test=11520, end=14400), Borders(train=5311, test=6071, end=7588))
    """
    check_integer("rows", rows, 1)
    if month is None:
        return Borders(int(rows * 0.7), rows - int(rows * 0.2), rows)
    check_integer("month", month, 1)
    if rows < 20 * month:
        raise ValueError(
            f"series must hold 20 months of {month:,} rows for training, validation and test, but holds {rows:,} rows. Pass "
            "the whole series."
        )
    return Borders(12 * month, 16 * month, 20 * month)


@dataclass(frozen=True)
class LtsfSplit:
    """A standardised series, cut for fitting and for testing.

    Attributes
    ----------
    known : DataFrame or array of shape (rows, channels)
        Rows for fitting.
    later : DataFrame or array of shape (rows, channels)
        The test rows, and `window` rows before them: the first target is the first test row.
    validation : float
        Part of the windows of `known` that is for validation. ``int(windows * validation)`` is their number.
    windows : int
        Number of test windows: all of them, one for each row at which a forecast can begin.
    mean, deviation : arrays of shape (channels,)
        What was subtracted from the rows, and what they were divided by.
    borders : Borders
    """

    known: Table
    later: Table
    validation: float
    windows: int
    mean: np.ndarray
    deviation: np.ndarray
    borders: Borders


def split_ltsf(
    series: npt.ArrayLike | pd.DataFrame, window: int, horizon: int, month: int | None = None, fitted: str = "both"
) -> LtsfSplit:
    """Standardise a series by its training rows, and cut it for fitting and for testing.

    A model gets training and validation rows together. `validation` is the share of windows whose last target is a
    validation row. So the windows that a model uses for training are exactly those of the training rows. A model may
    afterwards use all known windows, which models that stop a training by the validation part cannot.

    Parameters
    ----------
    series : DataFrame or array of shape (rows, channels)
        Gaps in a time index are ignored, as in the benchmark: times are counted on from the first row.
    window, horizon : int
        Rows of input, and rows of target right after them.
    month : int, optional
        See `find_borders`.
    fitted : {"both", "training"}
        Whether models get training and validation rows, or the training rows only. Then the last windows of the training rows
        are for validation, as many as the validation part is of both parts.
    """
    rows = np.asarray(series, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"series must have the shape (rows, channels), got {rows.shape}.")
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, channel = map(int, bad[0])
        raise ValueError(
            f"series must be finite, but is {rows[row, channel]} in row {row}, channel {channel}. Fill or drop such values "
            "first."
        )
    check_integer("window", window, 1)
    check_integer("horizon", horizon, 1)
    check_choice("fitted", fitted, FITTED)
    cut = find_borders(len(rows), month)
    training, held_out, test = cut.train - window - horizon + 1, cut.test - cut.train, cut.end - cut.test - horizon + 1
    if min(training, held_out, test) < 1 or (fitted == "training" and training < 2):
        raise ValueError(
            f"series must hold windows of {window} + {horizon} rows for training and test, but its {len(rows):,} rows give "
            f"{cut.train:,} for training, {held_out:,} for validation and {cut.end - cut.test:,} for test. Pass more rows, or "
            "a shorter window or horizon."
        )
    seen = rows[: cut.train]
    deviation = np.where(np.ptp(seen, axis=0) > 0, seen.std(axis=0), 1.0)  # a constant channel stays in its own units
    mean = seen.mean(axis=0)
    scaled: Table = (rows - mean) / deviation
    if isinstance(series, pd.DataFrame):
        scaled = pd.DataFrame(scaled, index=even_times(series.index), columns=series.columns)
    known, total = scaled[: cut.test], training + held_out
    if fitted == "training":
        known, total, held_out = scaled[: cut.train], training, max(1, training * held_out // cut.test)
    validation = held_out / total
    while int(total * validation) < held_out:  # rounding must not take a window away
        validation = float(np.nextafter(validation, 1))
    return LtsfSplit(known, scaled[cut.test - window : cut.end], validation, test, mean, deviation, cut)
