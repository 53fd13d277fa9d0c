"""Data sets of `tonic`, taken as they are. Nothing of it is imported."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sswim.options import check_integer

__all__ = ["from_tonic"]


def from_tonic(dataset: Sequence[tuple[np.ndarray, object]], limit: int | None = None) -> tuple[list[np.ndarray], np.ndarray]:
    """Return events and labels of a data set of `tonic`, or of any with a length and items (events, label).

    Parameters
    ----------
    dataset : object
        Its items are pairs of a structured array, with the fields ``t`` and ``x``, and a label.
    limit : int, optional
        Number of samples. They are spread evenly over the data set: many are sorted by label.

    Returns
    -------
    events : list of structured arrays
        For `Classifier`, whose encoder `ExactEvents(scale=...)` turns times, mostly microseconds, into steps.
    labels : array of shape (samples,)

    Examples
    --------
    >>> sample = np.array([(0, 10), (3, 25)], dtype=[("x", "i2"), ("t", "i8")])
    >>> events, labels = from_tonic([(sample, 7), (sample, 8)], limit=1)
    >>> len(events), labels
    (1, array([7]))
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"dataset must have a length and items, got {type(dataset).__name__}.")
    count = len(dataset)
    if not count:
        raise ValueError("dataset must hold at least one sample, got none.")
    take = count if limit is None else min(count, check_integer("limit", limit, 1))
    events, labels = [], []
    for place in range(take):
        number = place * count // take
        try:
            sample, label = dataset[number]
        except (TypeError, ValueError):
            raise ValueError(f"dataset: item {number} must be a pair (events, label).") from None
        if not isinstance(sample, np.ndarray) or not {"t", "x"} <= set(sample.dtype.names or ()):
            what = f"array of {sample.dtype}" if isinstance(sample, np.ndarray) else type(sample).__name__
            raise ValueError(
                f"dataset: events of item {number} must be a structured array with the fields 't' and 'x', got {what}. Leave "
                "out a `transform` that makes frames or tensors."
            )
        events.append(sample)
        labels.append(label)
    return events, np.asarray(labels)
