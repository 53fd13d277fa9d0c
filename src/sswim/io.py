"""Model files: tensors in safetensors form, everything else as JSON in its header. Nothing is executed on load."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sswim import encoders, events, kernels, readout, steps, traces
from sswim._forecaster import build_network
from sswim._scaling import scales
from sswim._tracking import StepRecord
from sswim._version import __version__
from sswim.finetuning import EpochRecord, TrainingReport
from sswim.report import LayerReport, SamplingReport

__all__ = ["load", "save"]

FORMAT_VERSION = 1
Model = TypeVar("Model")

# The only classes that a file can name.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for module in (encoders, events, kernels, readout, steps, traces)
    for cls in vars(module).values()
    if isinstance(cls, type) and dataclasses.is_dataclass(cls)
}
# Attributes of an estimator that are arrays, without the underscore at the end.
ARRAYS = ("low", "high", "offset", "span", "floor", "error_quantiles")
KERNEL_ARGUMENTS = ("kernel", "deeper_kernel", "output_kernel")


def _encode(name: str, value: Any) -> Any:
    """Turn an estimator's parameter into JSON."""
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (tuple, list)):
        return [_encode(name, v) for v in value]
    if name == "gradient":
        return {"options": {k: _encode(k, v) for k, v in value.items()}}
    if dataclasses.is_dataclass(value) and CLASSES.get(type(value).__name__) is type(value):
        fields = {f.name: _encode(name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    if name in KERNEL_ARGUMENTS:
        raise TypeError(
            f"save: {name} is a callable of your own ({value!r}), and a model file holds no code. Use a kernel from "
            "sswim.kernels, or save the network's `state_dict()` beside your code."
        )
    return {"unsaved": repr(value)}


def _decode(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(name, v) for v in value)
    if isinstance(value, dict) and "options" in value:
        return {k: v for k, v in value["options"].items() if not isinstance(v, dict)}
    if isinstance(value, dict) and "class" in value:
        return CLASSES[value["class"]](**{k: _decode(name, v) for k, v in value["fields"].items()})
    return value


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to `path`."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save: the folder {path.parent} does not exist.")
    report: SamplingReport = model.report_
    tensors = {f"network.{k}": v.detach().cpu().contiguous() for k, v in model.network_.state_dict().items()}
    tensors |= {name: torch.from_numpy(getattr(model, f"{name}_").copy()) for name in ARRAYS if hasattr(model, f"{name}_")}
    tensors |= {"report.lags": report.lags, "report.lambdas": report.lambdas}
    for i, layer in enumerate(report.layers):
        tensors |= {f"report.{i}.pairs": layer.pairs, f"report.{i}.rates": layer.rates}
    header = {
        "format_version": FORMAT_VERSION,
        "sswim_version": __version__,
        "kind": type(model).__name__,
        "params": {k: _encode(k, v) for k, v in model.get_params(deep=False).items()},
        "channels": model.n_features_in_,
        **(_of_classifier(model) if hasattr(model, "classes_") else _of_forecaster(model)),
        "training": dataclasses.asdict(model.training_) if hasattr(model, "training_") else None,
        "report": {
            "layers": [
                {
                    "input_metric": layer.input_metric,
                    "output_metric": layer.output_metric,
                    "entropies": [[*names, h] for names, h in layer.entropies.items() if np.isfinite(h)],
                    "every_channel": layer.every_channel,
                }
                for layer in report.layers
            ],
            "assembly": _encode("assembly", report.assembly),
            **{k: getattr(report, k) for k in ("traces", "samples", "validation_samples", "batch_size")},
            "steps": [dataclasses.asdict(step) for step in report.steps],
        },
    }
    part = path.with_name(f".{path.name}.part")
    try:
        save_file({k: v.contiguous() for k, v in tensors.items()}, part, metadata={"sswim": json.dumps(header)})
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _of_forecaster(model: Any) -> dict[str, Any]:
    """Return what a fitted `Forecaster` holds besides arrays."""
    columns = model.columns_
    if columns is not None:
        columns = [_encode("columns", c) for c in columns]
        if any(isinstance(c, (list, dict)) for c in columns):
            raise TypeError(f"save: column names must be text or numbers, got {model.columns_!r}. Rename them first.")
    return {"tuned": {k: _encode(k, v) for k, v in model.tuned_.items()}, "columns": columns}


def _of_classifier(model: Any) -> dict[str, Any]:
    """Return what a fitted `Classifier` holds besides its network."""
    classes = [_encode("classes", c) for c in model.classes_.tolist()]
    if any(isinstance(c, (list, dict)) for c in classes):
        raise TypeError(f"save: labels must be text or numbers, got {model.classes_!r}. Rename them first.")
    encoder = _encode("encoder", model.encoder_)
    if isinstance(encoder, dict) and "unsaved" in encoder:
        raise TypeError(f"save: encoder is an object of your own ({model.encoder_!r}), and a model file holds no code.")
    return {
        "classes": {"values": classes, "dtype": model.classes_.dtype.str},
        "shape": list(model.shape_),
        "encoder": encoder,
        "range": list(model.range_) if hasattr(model, "range_") else None,
        "temperature": model.temperature_,
        "normalization": getattr(model, "normalization_", None),
    }


def load(path: str | os.PathLike[str], cls: type[Model]) -> Model:
    """Read an estimator of class `cls` from `path`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata["sswim"]) if "sswim" in metadata else None
            tensors: dict[str, Tensor] = {k: file.get_tensor(k) for k in file.keys()} if header else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a model file, or damaged ({error}).") from error
    if header is None:
        raise ValueError(f"{path}: a safetensors file, but not written by sswim.")
    if header["format_version"] > FORMAT_VERSION:
        raise ValueError(
            f"{path}: written in format {header['format_version']} by sswim {header['sswim_version']}, this is sswim "
            f"{__version__} and reads up to format {FORMAT_VERSION}. Upgrade sswim."
        )
    if header["kind"] != cls.__name__:
        raise ValueError(f"{path}: holds a {header['kind']}, not a {cls.__name__}. Use {header['kind']}.load.")
    try:
        return _rebuild(cls, header, tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: damaged, its parts do not fit together ({error}).") from error


def _rebuild(cls: type[Model], header: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    params = {k: v for k, v in header["params"].items() if not (isinstance(v, dict) and "unsaved" in v)}
    for name in header["params"].keys() - params.keys():
        warnings.warn(
            f"load: {name} was an object of your own ({header['params'][name]['unsaved']}), which a model file does not hold. "
            "Predictions do not need it; a new fit will use the default.",
            stacklevel=4,
        )
    # The paper's model was the only one before 0.2, and the default.
    before = (
        {} if "readout" in header["params"] else {"channels": "joint", "readout": "trajectory", "skip": False, "floor": False}
    )
    model: Any = cls(**{k: _decode(k, v) for k, v in {**before, **params}.items()})
    model.device = "cpu"
    model.n_features_in_ = header["channels"]
    if "classes" in header:
        _restore_classifier(model, header)
    else:
        _restore_forecaster(model, header, tensors)
    state = {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
    model.network_.load_state_dict(state)
    if header.get("training"):
        records = [EpochRecord(**r) for r in header["training"].pop("records")]
        model.training_ = TrainingReport(records, **header["training"])
    told = header["report"]
    told.pop("cholesky", None)  # of files from before 0.2
    model.report_ = SamplingReport(
        layers=[
            LayerReport(
                layer["input_metric"],
                layer["output_metric"],
                {(i, o): h for i, o, h in layer["entropies"]},
                tensors[f"report.{i}.pairs"],
                tensors[f"report.{i}.rates"],
                layer["every_channel"],
            )
            for i, layer in enumerate(told.pop("layers"))
        ],
        lags=tensors["report.lags"],
        lambdas=tensors["report.lambdas"],
        assembly=_decode("assembly", told.pop("assembly")),
        steps=[StepRecord(**step) for step in told.pop("steps")],
        **told,
    )
    return model


def _restore_classifier(model: Any, header: dict[str, Any]) -> None:
    model.classes_ = np.asarray(header["classes"]["values"], dtype=np.dtype(header["classes"]["dtype"]))
    model.shape_ = tuple(header["shape"])
    model.encoder_ = _decode("encoder", header["encoder"])
    if header["range"] is not None:
        model.range_ = tuple(header["range"])
    model.temperature_ = header["temperature"]
    if header.get("normalization"):
        model.normalization_ = tuple(header["normalization"])
    model.network_ = model._build_network(*model._input_shape)


def _restore_forecaster(model: Any, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    model.columns_ = header["columns"]
    model.tuned_ = {k: _decode(k, v) for k, v in header.get("tuned", {}).items()}
    if model.columns_ is not None and all(isinstance(c, str) for c in model.columns_):
        model.feature_names_in_ = np.asarray(model.columns_, dtype=object)
    for name in ARRAYS:
        if name in ("low", "high") or name in tensors:
            setattr(model, f"{name}_", tensors[name].numpy())
    if len(model.low_) != model.n_features_in_:
        raise KeyError(f"{len(model.low_)} ranges of {model.n_features_in_} columns")
    if "offset" not in tensors:  # of files from before 0.2
        model.offset_, model.span_ = scales("channel", torch.zeros(0, model.n_features_in_), model.low_, model.high_)
    if "floor" not in tensors:
        model.floor_ = np.full(model.n_features_in_, -np.inf)
    model.network_ = build_network(model)
