"""`sswim export`: a model file in, a file in another format out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

from sswim import io
from sswim.classifier import Classifier
from sswim.export.files import write_nir
from sswim.export.nir import to_nir
from sswim.export.onnx import write_onnx
from sswim.forecaster import Forecaster
from sswim.options import nearest, resolve
from sswim.writing import check_place

__all__ = ["FORMATS", "export_model"]

Model = Forecaster | Classifier


def _write_nir(
    model: Model, out: Path, *, dt: float = 1e-4, reader: str | None = None, delays: str | None = None
) -> dict[str, object]:
    """Write a model as an NIR graph; the options are those of `to_nir`."""
    graph = to_nir(model, dt=dt, reader=reader, delays=delays)
    write_nir(graph, out)
    neurons = [int(node.r.size) for name, node in graph.nodes.items() if name.startswith("layer_")]
    return {"nodes": len(graph.nodes), "layers": neurons, "dt": dt, "reader": reader}


# Formats by name: a function that writes a fitted model to a place and returns facts about it. Its keywords are the options.
FORMATS: dict[str, Callable[..., dict[str, object]]] = {"nir": _write_nir, "onnx": write_onnx}


def export_model(model: Path, to: str, out: Path, options: Mapping[str, object]) -> dict[str, object]:
    """Write the model of a file in another format; return facts about what was written.

    Parameters
    ----------
    model, out : path
    to : str
        A key of `FORMATS`.
    options : mapping
        Keywords of the format's function.
    """
    write = resolve("--to", to, FORMATS, "__call__")
    known = [p.name for p in inspect.signature(write).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ValueError(f"--set: {to} has no option {name!r}. It has {', '.join(known)}.{nearest(name, known)}")
    check_place(out, model)
    return {
        "model": str(model),
        "format": to,
        "file": str(out),
        **write(io.load(model, Forecaster, Classifier), out, **options),
    }
