"""How forecasts are measured in the tables of SeqSNN (Lv et al., 2024), from which the paper takes its reference values.

Split the windows in time, scale the series, and score all test windows at once:

>>> series = np.sin(np.arange(100.0))[:, None]
>>> scaled, offset, scale = scale_series(series, "series")
>>> known, later, validation = split_series(scaled, window=12, horizon=6, split=(0.7, 0.2, 0.1))
>>> [len(part) for part in known], [len(part) for part in later]
([92], [25])

A model is fitted on `known`, with the last part `validation` of its windows for validation, and evaluated on `later`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sswim.data.tensors import split_windows
from sswim.data.times import even_times
from sswim.options import check_fraction, check_integer

__all__ = ["SCALINGS", "count_training_rows", "r2", "rse", "scale_series", "split_series"]

Table = Any  # a DataFrame or an array (rows, channels); what comes out is of the same kind
SCALINGS = ("series", "training", "maximum", "channel-maximum", "standard", "none")


def split_series(
    series: Table, window: int, horizon: int, split: Sequence[float] = (0.6, 0.2, 0.2), breaks: int | None = None
) -> tuple[list[Table], list[Table], float]:
    r"""Split the windows of a series in time: first those for training, then for validation, then for test.

    .. math::
        M = n - O - H + 1, \qquad M_{\mathrm{train}} = \lfloor r_1 M \rfloor, \qquad
        M_{\mathrm{test}} = \lfloor r_3 M \rfloor, \qquad M_{\mathrm{val}} = M - M_{\mathrm{train}} - M_{\mathrm{test}}

    The windows of two parts differ, but their rows overlap, as in the reference.

    Parameters
    ----------
    series : DataFrame or array of shape (rows, channels)
        `n` rows. The reference's windows cross gaps of a time index, so a DataFrame's times are counted on from the first
        row, without gaps. Other labels are replaced by row numbers.
    window, horizon : int
        `O` rows of input, and `H` rows of target right after them.
    split : three numbers that sum to 1
        :math:`r_1, r_2, r_3`, for training, validation and test.
    breaks : int, optional
        Length of a segment in rows. No window crosses from one into the next: `M` is the sum over segments.

    Returns
    -------
    known, later : lists of DataFrames or arrays, like `series`
        Stretches that hold the windows for training and validation, and those for test.
    validation : float
        The part of the known windows that is for validation, for the option of that name. ``int(windows * validation)`` is
        their number.

    Examples
    --------
    >>> known, later, validation = split_series(np.arange(13.0)[:, None], window=2, horizon=2)
    >>> known[0].ravel().tolist(), later[0].ravel().tolist(), validation
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], [8.0, 9.0, 10.0, 11.0, 12.0], 0.25)
    """
    rows: Table = _values(series)
    if isinstance(series, pd.DataFrame):
        rows = pd.DataFrame(rows, index=even_times(series.index), columns=series.columns)
    train, held_out, test = _counts(len(rows), window, horizon, split, breaks)
    known, later = split_windows([rows[s.start : s.stop] for s in _segments(len(rows), breaks)], window + horizon, test)
    validation = held_out / (train + held_out)
    while int((train + held_out) * validation) < held_out:  # rounding must not take a window away
        validation = float(np.nextafter(validation, 1))
    return known, later, validation


def count_training_rows(
    rows: int, window: int, horizon: int, split: Sequence[float] = (0.6, 0.2, 0.2), breaks: int | None = None
) -> int:
    """Return how many rows, from the first on, the training windows of `split_series` and their targets reach over.

    Examples
    --------
    >>> count_training_rows(13, window=2, horizon=2)
    9
    """
    train, held_out, test = _counts(rows, window, horizon, split, breaks)
    first, _ = split_windows(_segments(rows, breaks), window + horizon, held_out + test)
    return first[-1].stop


def _segments(rows: int, breaks: int | None) -> list[range]:
    length = rows if breaks is None else check_integer("breaks", breaks, 1)
    return [range(first, min(first + length, rows)) for first in range(0, rows, max(length, 1))]


def _counts(rows: int, window: int, horizon: int, split: Sequence[float], breaks: int | None) -> tuple[int, int, int]:
    """Return the numbers of windows for training, validation and test."""
    check_integer("rows", rows, 0)
    span = check_integer("window", window, 1) + check_integer("horizon", horizon, 1)
    if len(split) != 3 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split must be three numbers that sum to 1 (training, validation, test), got {tuple(split)}.")
    train_part, _, test_part = (check_fraction(f"split[{n}]", part) for n, part in enumerate(split))
    total = sum(max(len(segment) - span + 1, 0) for segment in _segments(rows, breaks))
    train, test = int(total * train_part), int(total * test_part)
    counts = train, total - train - test, test
    if min(counts) < 1:
        apart = "" if breaks is None else f" in segments of {breaks}"
        raise ValueError(
            f"series must hold at least one window for training, validation and test each, but its {rows} rows{apart} hold "
            f"{total} windows of {window} + {horizon} rows, which the split {tuple(split)} makes {counts[0]}, {counts[1]} and "
            f"{counts[2]}. Pass more rows, or a shorter window or horizon."
        )
    return counts


def scale_series(series: Table, how: str = "series", training_rows: int | None = None) -> tuple[Table, np.ndarray, np.ndarray]:
    r"""Return a series scaled channel by channel, and how to undo it.

    .. math:: \tilde x_c = (x_c - a_c) / b_c, \qquad x_c = b_c \tilde x_c + a_c

    ================= ==================== ============================ ==========================
    `how`             offset :math:`a_c`   scale :math:`b_c`            of
    ================= ==================== ============================ ==========================
    "series"          :math:`\min x_c`     :math:`\max x_c - \min x_c`  each channel, all rows
    "training"        :math:`\min x_c`     :math:`\max x_c - \min x_c`  each channel, training rows
    "maximum"         0                    :math:`\max x`               all channels, all rows
    "channel-maximum" 0                    :math:`\max |x_c|`           each channel, all rows
    "standard"        mean of `x`          deviation of `x`             all channels, all rows
    "none"            0                    1
    ================= ==================== ============================ ==========================

    "series" is how we read the paper's "normalised to lie in the range [0, 1]". It looks at rows that are forecast later, as
    do "maximum", "channel-maximum" and "standard", which are SeqSNN's ``normalize`` 1, 2 and 3; "training" does not. A
    forecast has the same RSE under "maximum", "standard" and "none", which map all channels alike.

    Parameters
    ----------
    series : DataFrame or array of shape (rows, channels)
    how : str
        One of the table.
    training_rows : int, optional
        For "training": how many of the first rows to take the range from, see `count_training_rows`.

    Returns
    -------
    scaled : DataFrame or array, like `series`
    offset, scale : arrays of shape (channels,)
        Where a scale would be 0 it is 1, so that a constant channel becomes 0 ("channel-maximum": where it is 0).

    Examples
    --------
    >>> scaled, offset, scale = scale_series(np.array([[2.0, 7.0], [4.0, 7.0], [3.0, 7.0]]))
    >>> scaled.tolist(), offset.tolist(), scale.tolist()
    ([[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]], [2.0, 7.0], [2.0, 1.0])
    """
    if how not in SCALINGS:
        raise ValueError(f"how must be one of {', '.join(map(repr, SCALINGS))}, got {how!r}.")
    x = _values(series)
    if how == "training":
        if training_rows is None:
            raise ValueError("training_rows must be given for how='training': see count_training_rows.")
        if check_integer("training_rows", training_rows, 1) > len(x):
            raise ValueError(f"training_rows must be at most the {len(x)} rows of the series, got {training_rows}.")
    elif training_rows is not None:
        raise ValueError(f"training_rows is for how='training' only, got {training_rows!r} with how={how!r}. Omit it.")
    offset, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if how in ("series", "training"):
        seen = x[:training_rows]
        offset = seen.min(axis=0)
        scale = seen.max(axis=0) - offset
    elif how == "maximum":
        scale = np.full(x.shape[1], x.max())
    elif how == "channel-maximum":
        scale = np.abs(x).max(axis=0)
    elif how == "standard":
        mean, deviation = (x.mean(), x.std()) if (x != x[0, 0]).any() else (x[0, 0], 0.0)  # exact for constants
        offset, scale = np.full(x.shape[1], mean), np.full(x.shape[1], deviation)
    if (scale < 0).any():
        raise ValueError(f"series must reach above 0 for how='maximum', but its maximum is {scale[0]}. Use how='series'.")
    scale = np.where(scale > 0, scale, 1.0)
    scaled = (x - offset) / scale
    if isinstance(series, pd.DataFrame):
        return pd.DataFrame(scaled, index=series.index, columns=series.columns), offset, scale
    return scaled, offset, scale


def rse(truth: npt.ArrayLike, forecast: npt.ArrayLike) -> float:
    r"""Return the root relative squared error: 0 is perfect, 1 is as good as knowing the mean.

    .. math::
        \mathrm{RSE} = \sqrt{\frac{\sum_{m,l,c} (Y_{mlc} - \hat Y_{mlc})^2}{\sum_{m,l,c} (Y_{mlc} - \bar Y_{lc})^2}},
        \qquad \bar Y_{lc} = \frac1M \sum_m Y_{mlc}

    It is what `Evaluation.rse` accumulates batch by batch. It does not change if one affine map is applied to all values, but
    does if each channel has its own.

    Parameters
    ----------
    truth, forecast : arrays of shape (windows, horizon, channels)
        `Y` and :math:`\hat Y`.

    Examples
    --------
    >>> truth = np.array([[[0.0]], [[2.0]]])
    >>> rse(truth, truth), rse(truth, np.ones_like(truth)), rse(truth, 2 - truth)
    (0.0, 1.0, 2.0)
    """
    y, y_hat = _windows("rse", truth, forecast)
    if (y == y[0]).all():
        raise ValueError(
            f"rse: truth must vary, but in each step and channel it is the same in all of {len(y)} windows. Pass more windows."
        )
    squared = sum(((a - b) ** 2).sum() for a, b in _steps(y, y_hat))
    spread = sum(((a - a.mean(axis=0)) ** 2).sum() for a, _ in _steps(y, y_hat))
    return float(np.sqrt(squared / spread))


def r2(truth: npt.ArrayLike, forecast: npt.ArrayLike) -> float:
    r"""Return the coefficient of determination over all values at once, as SeqSNN's code computes it.

    .. math::
        R^2 = 1 - \frac{\sum_{m,l,c} (Y_{mlc} - \hat Y_{mlc})^2}{\sum_{m,l,c} (Y_{mlc} - \bar Y)^2},
        \qquad \bar Y = \frac1{MHC} \sum_{m,l,c} Y_{mlc}

    Unlike in `rse`, one mean stands for all steps and channels: knowing each channel's level counts as skill. Where channels
    have the same level it is :math:`1 - \mathrm{RSE}^2`.

    Parameters
    ----------
    truth, forecast : arrays of shape (windows, horizon, channels)
        `Y` and :math:`\hat Y`.

    Examples
    --------
    >>> truth = np.array([[[0.0, 10.0]], [[2.0, 12.0]]])
    >>> r2(truth, truth), round(r2(truth, np.array([[[1.0, 11.0]]] * 2)), 4), r2(truth, np.full_like(truth, 6.0))
    (1.0, 0.9615, 0.0)
    """
    y, y_hat = _windows("r2", truth, forecast)
    if (y == y[0, 0, 0]).all():
        raise ValueError(f"r2: truth must vary, but all of its {y.size} values are {y[0, 0, 0]}. Pass more windows.")
    mean = sum(a.sum() for a, _ in _steps(y, y_hat)) / y.size
    squared = sum(((a - b) ** 2).sum() for a, b in _steps(y, y_hat))
    spread = sum(((a - mean) ** 2).sum() for a, _ in _steps(y, y_hat))
    return float(1 - squared / spread)


def _steps(truth: np.ndarray, forecast: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (windows, channels) in float64, step by step: whole copies of all windows may not fit into memory."""
    for step in range(truth.shape[1]):
        yield truth[:, step].astype(np.float64), forecast[:, step].astype(np.float64)


def _windows(name: str, truth: npt.ArrayLike, forecast: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, y_hat = np.asarray(truth), np.asarray(forecast)
    if y.ndim != 3 or y.shape != y_hat.shape or not y.size:
        came = f"{y.shape} and {y_hat.shape}"
        raise ValueError(f"{name}: truth and forecast must both have the shape (windows, horizon, channels), got {came}.")
    for what, values in (("truth", y), ("forecast", y_hat)):
        bad = ~np.isfinite(values)
        if bad.any():
            window, step, channel = map(int, np.argwhere(bad)[0])
            raise ValueError(
                f"{name}: {what} must be finite, but is {values[window, step, channel]} in window {window}, step {step}, "
                f"channel {channel}. Leave such windows out of both arrays."
            )
    return y, y_hat


def _values(series: Table) -> np.ndarray:
    """Return the finite numbers of a series, (rows, channels), float64."""
    try:
        values = np.asarray(series, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"series must be numbers, got {type(series).__name__}: {error}.") from error
    if values.ndim != 2 or not values.size:
        raise ValueError(f"series must have the shape (rows, channels), got {values.shape}.")
    bad = ~np.isfinite(values)
    if bad.any():
        row, channel = map(int, np.argwhere(bad)[0])
        label = series.columns[channel] if isinstance(series, pd.DataFrame) else channel
        raise ValueError(
            f"series must be finite, but is {values[row, channel]} in row {row}, channel {label!r}. Fill or drop such values "
            "first."
        )
    return values
