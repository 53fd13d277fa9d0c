"""Commands of `sswim` whose work is done elsewhere: what they take and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sswim.arguments import Json, Model, plain_errors, setting

__all__ = ["export"]


def export(
    model: Model,
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
