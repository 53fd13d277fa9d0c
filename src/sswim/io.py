"""Model files: tensors in safetensors form, everything else as JSON in its header. Nothing is executed on load."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from sswim import classes, data, forecasts, gradient, network, options, readout, regression, report, sampling, steps
from sswim._version import __version__
from sswim.data import encoder, inputs
from sswim.network import SpikingNetwork, VoltageReadout
from sswim.options import warn
from sswim.readout import LagReadout, TraceReadout
from sswim.readout.lags import LagSizes
from sswim.writing import check_place, whole_file

__all__ = ["FORMAT_VERSION", "load", "save"]

FORMAT_VERSION = 2
E = TypeVar("E")
Json = Any  # what the json module writes and reads

# The only classes that a file can name.
CLASSES: dict[str, type] = {
    name: getattr(module, name)
    for module in (
        classes, data, encoder, forecasts, gradient, inputs, network, options, readout, regression, report, sampling, steps
    )
    for name in module.__all__
    if isinstance(getattr(module, name), type) and dataclasses.is_dataclass(getattr(module, name))
}  # fmt: skip


class _Writer:
    """Turns values into JSON; tensors go into a table of their own."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, name: str, value: object, *, leave_out: bool = False) -> Json:
        """Return `value` as JSON. With `leave_out`, objects that a file cannot hold are only named."""
        if isinstance(value, (np.integer, np.floating, np.bool_)):
            return value.item()
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Tensor):
            self.tensors[name] = value.detach().cpu().contiguous()
            return {"tensor": name}
        if isinstance(value, np.ndarray):
            return self._array(name, value)
        if isinstance(value, (list, tuple)):
            items = [self(f"{name}.{i}", item, leave_out=leave_out) for i, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, Mapping):
            pairs = list(value.items())
            return {"dict": [[self(name, k), self(f"{name}.{i}", v, leave_out=leave_out)] for i, (k, v) in enumerate(pairs)]}
        if isinstance(value, SpikingNetwork):
            return self._network(name, value)
        if dataclasses.is_dataclass(value) and CLASSES.get(type(value).__name__) is type(value):
            names = [field.name for field in dataclasses.fields(value)]
            # A fitted model's readout may hold steps of the user's own, which predictions do not need.
            optional = {key: leave_out or key == "readout" for key in names}
            fields = {key: self(f"{name}.{key}", getattr(value, key), leave_out=optional[key]) for key in names}
            return {"class": type(value).__name__, "fields": fields}
        if leave_out:
            return {"unsaved": repr(value)}
        raise TypeError(
            f"save: {name} is an object of your own ({value!r}), and a model file holds no code. Use one of sswim's, or save "
            "the network's `state_dict()` and your code."
        )

    def _array(self, name: str, value: np.ndarray) -> Json:
        if value.dtype.kind in "biuf":
            self.tensors[name] = torch.from_numpy(np.ascontiguousarray(value).copy())
            return {"array": name}
        labels = value.tolist()
        if not all(isinstance(label, (str, int, float, bool)) for label in labels):
            raise TypeError(f"save: {name} must be text or numbers, got {value!r}. Rename them first.")
        return {"labels": labels, "dtype": value.dtype.str}

    def _network(self, name: str, value: SpikingNetwork) -> Json:
        """Return the settings of a network; its sizes are those of its tensors."""
        for key, tensor in value.state_dict().items():
            self.tensors[f"{name}.{key}"] = tensor.detach().cpu().contiguous()
        out = value.readout
        if isinstance(out, VoltageReadout):
            read = {"kernel": self("kernel", out.kernel), "spiking": out.spiking}
        elif isinstance(out, LagReadout):
            read = {"sizes": dataclasses.asdict(out.sizes), "constants": list(out.constants)}
            read |= {"population": out.population.neurons, "singles": out.singles}
            read |= {"skip": out.skip, "absolute": out.absolute, "heights": out.heights}
        else:
            read = {"constants": list(out.constants)}
        settings = {key: getattr(value, key) for key in ("window", "horizon", "start", "detach_refractory", "checkpoint")}
        settings |= {key: self(key, getattr(value, key)) for key in ("kernels", "refractory", "surrogate")}
        return {"network": name, "settings": settings, "readout": read}


class _Reader:
    """Turns JSON and tensors back into values."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def __call__(self, value: Json, name: str = "") -> Json:
        """Return the value that JSON stands for."""
        if isinstance(value, list):
            return [self(item, name) for item in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return self.tensors[value["tensor"]]
        if "array" in value:
            return self.tensors[value["array"]].numpy()
        if "labels" in value:
            return np.asarray(value["labels"], dtype=np.dtype(value["dtype"]))
        if "tuple" in value:
            return tuple(self(item, name) for item in value["tuple"])
        if "dict" in value:
            return {self(key): self(item, name) for key, item in value["dict"]}
        if "network" in value:
            return self._network(value)
        fields = {key: self(item, f"{name}.{key}") for key, item in value["fields"].items() if not _unsaved(item)}
        for key, item in value["fields"].items():
            if _unsaved(item):
                _warn_unsaved(f"{name}.{key}", item)
        return CLASSES[value["class"]](**fields)

    def _network(self, value: Json) -> SpikingNetwork:
        prefix = value["network"] + "."
        state = {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)}
        settings, read = {key: self(item) for key, item in value["settings"].items()}, value["readout"]
        weights = [state[f"layers.{i}.weights"] for i in range(len(settings["kernels"]))]
        hidden, dtype, out = [len(w) for w in weights], weights[0].dtype, state["readout.weights"]
        if "spiking" in read:
            made: VoltageReadout | TraceReadout | LagReadout = VoltageReadout(
                hidden[-1],
                len(out),
                self(read["kernel"]),
                settings["refractory"],
                start=settings["start"],
                horizon=settings["horizon"],
                spiking=read["spiking"],
                dtype=dtype,
            )
        elif "sizes" in read:
            made = LagReadout(LagSizes(**read.pop("sizes")), **read, dtype=dtype)
        else:
            outputs = len(out) // settings["horizon"]
            made = TraceReadout(out.shape[1], outputs, settings["horizon"], constants=read["constants"], dtype=dtype)
        kernels = settings.pop("kernels")
        found = SpikingNetwork(
            weights[0].shape[1], made.outputs, hidden=hidden, kernel=kernels, readout=made, dtype=dtype, **settings
        )
        found.load_state_dict(state)
        return found


def _unsaved(value: Json) -> bool:
    return isinstance(value, dict) and "unsaved" in value


def _warn_unsaved(name: str, value: Json) -> None:
    warn(
        f"load: {name} was an object of your own ({value['unsaved']}), which a model file does not hold. Predictions do not "
        "need it; a new fit will use the default.",
        stacklevel=2,
    )


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of all tensors, by which damage is noticed."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].numpy().tobytes())
    return sha.hexdigest()


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to `path`: its `model_`, and its parameters for a new fit."""
    path, write = check_place(path, name="save"), _Writer()
    header = {
        "format_version": FORMAT_VERSION,
        "sswim_version": __version__,
        "kind": type(model).__name__,
        "model": write("model", model.model_),
        "params": {k: write(f"params.{k}", v, leave_out=True) for k, v in model.get_params(deep=False).items()},
    }
    header["checksum"] = _checksum(write.tensors)
    with whole_file(path) as part:
        part.write_bytes(to_bytes(write.tensors, metadata={"sswim": json.dumps(header)}))


def load(path: str | os.PathLike[str], cls: type[E]) -> E:
    """Read an estimator of class `cls` from `path`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata["sswim"]) if "sswim" in metadata else None
            # Copies, for the file may be overwritten later.
            tensors = {k: file.get_tensor(k).clone() for k in file.keys()} if header else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a model file, or damaged ({error}).") from error
    if header is None:
        raise ValueError(f"{path}: a safetensors file, but not written by sswim.")
    version, kind = header.get("format_version"), header.get("kind")
    if isinstance(version, int) and version != FORMAT_VERSION:
        remedy = "Upgrade sswim" if version > FORMAT_VERSION else "Fit the model anew"
        raise ValueError(
            f"{path}: written in format {version} by sswim {header.get('sswim_version')}, this is sswim {__version__} and "
            f"reads format {FORMAT_VERSION}. {remedy}."
        )
    if kind is not None and kind != cls.__name__:
        raise ValueError(f"{path}: holds a {kind}, not a {cls.__name__}. Use {kind}.load.")
    try:
        if header["checksum"] != _checksum(tensors):
            raise ValueError("its numbers have changed since it was written")
        return _rebuild(cls, header, _Reader(tensors))
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: damaged, its parts do not fit together ({error}).") from error


def _rebuild(cls: type[E], header: Json, read: _Reader) -> E:
    """Return an estimator with its parameters and its fitted model."""
    for name, value in header["params"].items():
        if _unsaved(value):
            _warn_unsaved(name, value)
    params = {name: read(value, name) for name, value in header["params"].items() if not _unsaved(value)}
    estimator: Any = cls(**params)
    estimator.device = "cpu"
    estimator.model_ = read(header["model"], "model")
    return estimator
