"""Commands of `sswim` whose work is done elsewhere: what they take and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sswim.arguments import Breaks, Dates, Json, Time, columns_of, plain_errors, setting

__all__ = ["export", "report"]


def export(
    model: Annotated[Path, typer.Argument(help="A model that `sswim fit` or `sswim classify --model` wrote.")],
    to: Annotated[str, typer.Option(help="Format: nir or onnx.")],
    out: Annotated[Path, typer.Option(help="Where it goes.")],
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of the format, such as reader=norse or form=step; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a model in a format that other programs read."""
    with plain_errors():
        from sswim.export.command import export_model

        facts = export_model(model, to, out, dict(setting(text) for text in options or ()))
        typer.echo(json.dumps(facts, indent=2) if as_json else f"Saved: {out}")


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
            places = [None if place is None else Path(place) for place in (data, train)]
            names = columns_of(fitted)
            rows, seen = (p and read_series(p, time=time, date_format=date_format, columns=names) for p in places)
            page = fitted.report(rows, train=seen, breaks=breaks)
        else:
            assert isinstance(fitted, Classifier)
            from sswim.datasets.samples import samples_at

            shape = fitted.model_.inputs.shape
            X, y = samples_at(data, shape, label, test=True)
            known = None if train is None else samples_at(train, shape, label, test=False)
            page = fitted.report(X, y, train=known, breaks=breaks)
        page.save(out)
        size = out.stat().st_size
        facts = {"report": str(out), "title": page.title, "bytes": size}
        typer.echo(json.dumps(facts, indent=2) if as_json else f"Saved: {out} ({size / 1e6:.1f} MB). Open it in a browser.")
