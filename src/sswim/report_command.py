"""The command `sswim report`: a page on a model, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sswim.arguments import Breaks, Dates, Json, Time, columns_of, plain_errors

if TYPE_CHECKING:
    import numpy as np

    from sswim.classifier import Classifier

__all__ = ["report", "samples_at"]

# How a column of classes may be called.
LABELS = ("label", "class", "target", "y")


def report(
    model: Annotated[Path, typer.Argument(help="A model that `sswim fit` or `sswim classify --model` wrote.")],
    data: Annotated[
        str,
        typer.Option(help="What to test on: a series, or samples as CSV, Parquet or npz; or a named data set such as digits."),
    ],
    out: Annotated[Path, typer.Option(help="Where the page goes, as html.")] = Path("report.html"),
    train: Annotated[
        str | None, typer.Option(help="What the model was fitted to: shows the pair of samples that made each neuron.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column with the classes of samples. Default: label, class, target or y.")
    ] = None,
    breaks: Breaks = None,
    time: Time = None,
    date_format: Dates = None,
    as_json: Json = False,
) -> None:
    """Write a page to look at: what a model is, its forecasts or samples one by one, its errors, spikes, neurons and costs."""
    with plain_errors():
        from sswim import io
        from sswim.classifier import Classifier
        from sswim.forecaster import Forecaster
        from sswim.writing import check_place

        read = [Path(place) for place in (data, train) if place is not None]
        check_place(out, model, *read, endings=(".html", ".htm"))
        fitted: object = io.load(model, Forecaster, Classifier)
        if isinstance(fitted, Forecaster):
            from sswim.datasets import read_series

            if label is not None:
                raise ValueError("--label is for classifiers, and the model is a Forecaster. Omit it.")
            names = columns_of(fitted)
            rows, seen = (
                None if place is None else read_series(place, time=time, date_format=date_format, columns=names)
                for place in (data, train)
            )
            page = fitted.report(rows, train=seen, breaks=breaks)
        else:
            assert isinstance(fitted, Classifier)
            X, y = samples_at(data, fitted, label, test=True)
            page = fitted.report(
                X, y, train=None if train is None else samples_at(train, fitted, label, test=False), breaks=breaks
            )
        page.save(out)
        size = out.stat().st_size
        facts = {"report": str(out), "title": page.title, "bytes": size}
        typer.echo(json.dumps(facts, indent=2) if as_json else f"Saved: {out} ({size / 1e6:.1f} MB). Open it in a browser.")


def samples_at(place: str, model: Classifier, label: str | None, *, test: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Return samples and their classes, from a file or the test or training part of a named data set.

    A table holds one sample per row, and its classes in one column. An npz file holds the arrays ``X`` and ``y``. Samples are
    brought to the shape of those that the model was fitted to.
    """
    import numpy as np

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
    shape = model.model_.inputs.shape
    same = X.ndim == 2 and len(shape) > 1 and X.shape[1] == int(np.prod(shape))
    return X.reshape(len(X), *shape) if same else X, y


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the arrays ``X`` and ``y`` of a file."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in ("X", "y") if name in held}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a readable npz file ({error}).") from None
    if "X" not in found:
        raise ValueError(f"{path}: must hold the array 'X' (samples, ...), and 'y' with their classes if known.")
    return found["X"], found.get("y")


def _table(path: Path, label: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return samples and classes of a table."""
    import numpy as np
    import pandas as pd

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
