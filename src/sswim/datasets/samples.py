"""Samples and their classes, from files or named data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["samples_at"]

# How a column of classes may be called.
LABELS = ("label", "class", "target", "y")
Samples = tuple[np.ndarray, np.ndarray | None]


def samples_at(place: str, shape: tuple[int, ...], label: str | None, *, test: bool) -> Samples:
    """Return samples and their classes, from a file or the test or training part of a named data set.

    A table holds one sample per row, and its classes in one column. An npz file holds the arrays ``X`` and ``y``. Samples are
    brought to a `shape`, that of those that a model was fitted to.
    """
    from sswim.datasets.classified import CLASSIFIED

    if place in CLASSIFIED:
        X, y, test_X, test_y = CLASSIFIED[place].load()
        return (test_X, test_y) if test else (X, y)
    path = Path(place)
    if path.suffix.lower() not in (".csv", ".parquet", ".npz"):
        names = ", ".join(CLASSIFIED)
        raise ValueError(f"--data: {place} is neither a data set ({names}) nor a file that ends with .csv, .parquet or .npz.")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    X, y = _arrays(path) if path.suffix.lower() == ".npz" else _table(path, label)
    same = X.ndim == 2 and len(shape) > 1 and X.shape[1] == int(np.prod(shape))
    return X.reshape(len(X), *shape) if same else X, y


def _arrays(path: Path) -> Samples:
    """Return the arrays ``X`` and ``y`` of a file."""
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in ("X", "y") if name in held}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a readable npz file ({error}).") from None
    if "X" not in found:
        raise ValueError(f"{path}: must hold the array 'X' (samples, ...), and 'y' with their classes if known.")
    return found["X"], found.get("y")


def _table(path: Path, label: str | None) -> Samples:
    """Return samples and classes of a table."""
    try:
        frame = pd.read_parquet(path) if path.suffix.lower() == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a readable {path.suffix[1:]} file ({error}).") from None
    name = label if label is not None else next((n for n in LABELS if n in frame), None)
    if label is not None and label not in frame:
        raise ValueError(
            f"--label: {path} has no column {label!r}. Its columns: {', '.join(map(repr, map(str, frame.columns[:20])))}."
        )
    X = frame if name is None else frame.drop(columns=name)
    text = [str(n) for n in X if not pd.api.types.is_numeric_dtype(X[n])]
    if text:
        remedy = "Name the column of classes with --label." if name is None else "Leave it out."
        raise ValueError(f"{path}: samples must be numbers, but the column {text[0]!r} holds text. {remedy}")
    return X.to_numpy(dtype=np.float64), None if name is None else frame[name].to_numpy()
