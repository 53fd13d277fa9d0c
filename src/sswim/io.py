"""Model files: tensors in safetensors form, everything else as JSON in its header. Nothing is executed on load."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sswim._version import __version__
from sswim.network import SpikingNetwork
from sswim.records import SavedUpdates, pack, unpack
from sswim.schema import CLASSES, NetworkSettings, build, check_model, file_fields
from sswim.sealed import Damaged, check_keys, check_type, fits, parse_json, read_sealed, write_sealed
from sswim.writing import check_place

__all__ = ["FORMAT_VERSION", "load", "save"]

# Of models, and of models with the sums that they can be updated from.
FORMAT_VERSION, UPDATABLE_VERSION = FORMATS = 3, 4
E = TypeVar("E")
Json = Any  # what the json module writes and reads
# Values within values, at most.
DEPTH = 40
# Parameters that are of a machine, not of a model: a file does not hold them.
LOCAL = ("device", "executor")
# Parameters that files of earlier versions lack, and what these had.
LATER: dict[str, Json] = {"profile": None, "augment": None}
# How checks of a file's contents fail, theirs or those of the classes that it names.
FAILURES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, RuntimeError, TypeError, ValueError)


class _Writer:
    """Turns values into JSON; tensors go into a table of their own."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._places: set[int] = set()

    def _add(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor; a copy of it if it lies in memory where another one does."""
        found = tensor.detach().cpu().contiguous()
        found = found.clone() if found.untyped_storage().data_ptr() in self._places else found
        self._places.add(found.untyped_storage().data_ptr())
        self.tensors[name] = found

    def __call__(self, name: str, value: object, *, leave_out: bool = False) -> Json:
        """Return `value` as JSON. With `leave_out`, objects that a file cannot hold are only named."""
        if isinstance(value, (np.integer, np.floating, np.bool_)):
            return value.item()
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Tensor):
            self._add(name, value)
            return {"tensor": name}
        if isinstance(value, np.ndarray):
            return self._array(name, value, leave_out)
        if isinstance(value, (list, tuple)):
            items = [self(f"{name}.{i}", item, leave_out=leave_out) for i, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, Mapping) and fits(tuple(value), Hashable):
            pairs = list(value.items())
            return {"dict": [[self(name, k), self(f"{name}.{i}", v, leave_out=leave_out)] for i, (k, v) in enumerate(pairs)]}
        if isinstance(value, SpikingNetwork):
            for key, tensor in value.state_dict().items():
                self._add(f"{name}.{key}", tensor)
            return {"network": name, "settings": self(name, NetworkSettings.of(value))}
        if dataclasses.is_dataclass(value) and CLASSES.get(type(value).__name__) is type(value):
            # A fitted model's readout may hold steps of the user's own, which predictions do not need.
            optional = {key: leave_out or _may_lack(value, key) for key in file_fields(type(value))}
            fields = {key: self(f"{name}.{key}", getattr(value, key), leave_out=lack) for key, lack in optional.items()}
            return {"class": type(value).__name__, "fields": fields}
        if leave_out:
            return {"unsaved": repr(value)[:200]}
        raise TypeError(
            f"save: {name} is an object of your own ({value!r}), and a model file holds no code. Use one of sswim's, or save "
            "the network's `state_dict()` and your code."
        )

    def _array(self, name: str, value: np.ndarray, leave_out: bool) -> Json:
        if value.dtype.kind in "biuf":
            self.tensors[name] = torch.from_numpy(np.ascontiguousarray(value).copy())
            return {"array": name}
        labels = value.tolist()
        if value.dtype.kind not in "OU" or not all(isinstance(label, (str, int, float, bool)) for label in labels):
            if leave_out:
                return {"unsaved": repr(value)[:200]}
            raise TypeError(f"save: {name} must be text or numbers, got {value!r}. Rename them first.")
        return {"labels": labels, "text": value.dtype.kind == "U"}


def _may_lack(value: object, key: str) -> bool:
    return key == "readout" and type(value).__name__ == "ClassModel"


class _Reader:
    """Turns JSON and tensors back into values. Each tensor is used once."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    def __call__(self, value: Json, name: str, depth: int = 0, *, leave_out: bool = False) -> Json:
        """Return the value that JSON stands for. With `leave_out`, there may be objects that are only named."""
        if depth > DEPTH:
            raise Damaged(f"{name[:100]}: nested deeper than {DEPTH} levels")

        def read(item: Json, key: object) -> Json:
            return self(item, f"{name}.{key}", depth + 1, leave_out=leave_out)

        if isinstance(value, list):
            return [read(item, i) for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        match value:
            case {"tensor": str(key)} if len(value) == 1:
                return self._take(key)
            case {"array": str(key)} if len(value) == 1:
                return self._take(key).numpy()
            case {"labels": list(labels), "text": bool(text)} if len(value) == 2:
                if not all(isinstance(label, str if text else (str, int, float)) for label in labels):
                    raise Damaged(f"{name} must be text or numbers, got {short(labels)}")
                return np.asarray(labels, dtype=str if text else object)
            case {"tuple": list(items)} if len(value) == 1:
                return tuple(read(item, i) for i, item in enumerate(items))
            case {"dict": list(pairs)} if len(value) == 1 and all(isinstance(p, list) and len(p) == 2 for p in pairs):
                keys = [read(key, i) for i, (key, _) in enumerate(pairs)]
                check_type(f"{name}: keys", keys, list[Hashable])
                return {key: read(item, i) for i, (key, (_, item)) in enumerate(zip(keys, pairs, strict=True))}
            case {"network": str(key), "settings": settings} if len(value) == 2:
                return self._network(key, read(settings, "settings"))
            case {"class": kind, "fields": dict(fields)} if len(value) == 2:
                return self._object(kind, fields, name, depth, leave_out)
        raise Damaged(f"{name} is {short(value)}, which stands for nothing")

    def _take(self, key: str) -> Tensor:
        if key not in self.tensors:
            raise Damaged(f"the tensor {key!r} is missing, or used twice")
        return self.tensors.pop(key)

    def _object(self, kind: Json, fields: Json, name: str, depth: int, leave_out: bool) -> object:
        known = {}
        for key, item in fields.items():
            lack = leave_out or (kind == "ClassModel" and key == "readout")
            if not (lack and _unsaved(f"{name}.{key}", item)):
                known[key] = self(item, f"{name}.{key}", depth + 1, leave_out=lack)
        return build(name, kind, known, set(fields) - set(known))

    def _network(self, key: str, settings: object) -> SpikingNetwork:
        if not isinstance(settings, NetworkSettings):
            raise Damaged(f"the settings of a network are {short(settings)}")
        names = [name for name in self.tensors if name.startswith(f"{key}.")]
        return settings.build({name.removeprefix(f"{key}."): self._take(name) for name in names})


def _unsaved(name: str, value: Json) -> bool:
    """Return whether a value was an object of the user's own, and warn of it."""
    if not (isinstance(value, dict) and list(value) == ["unsaved"]):
        return False
    warnings.warn(
        f"load: {name} was an object of your own ({str(value['unsaved'])[:200]}), which a model file does not hold. "
        "Predictions do not need it; a new fit will use the default.",
        stacklevel=2,
    )
    return True


def save(model: Any, path: str | os.PathLike[str], *, updatable: bool = False) -> None:
    """Write a fitted estimator to `path`: its `model_`, its parameters for a new fit, and its sums if it shall be `updatable`.

    What is written can be read: it is tried before.
    """
    path, write = check_place(path, name="save"), _Writer()
    updates = pack(model.model_) if updatable else None
    params = {k: v for k, v in model.get_params(deep=False).items() if k not in LOCAL}
    header = {
        "format_version": UPDATABLE_VERSION if updatable else FORMAT_VERSION,
        "sswim_version": __version__,
        "kind": type(model).__name__,
        "model": write("model", model.model_.told()),
        "params": {k: write(f"params.{k}", v, leave_out=True) for k, v in params.items()},
    }
    if updates is not None:
        header["updates"] = write("updates", updates)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _rebuild(type(model), parse_json(json.dumps(header)), _Reader(write.tensors))
    except FAILURES as error:
        raise ValueError(f"save: the model could not be read again, and is not written: {str(error).rstrip('.')}.") from error
    write_sealed(path, "sswim", header, write.tensors)


def load(path: str | os.PathLike[str], cls: type[E], *others: type[E]) -> E:
    """Read an estimator of class `cls`, or of one of some `others`, from `path`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        file = read_sealed(path, "sswim")
    except Damaged as error:
        raise ValueError(f"{path}: not a model file, or damaged ({error}).") from None
    except OSError as error:
        raise OSError(f"{path}: cannot be read ({error.strerror}).") from error
    header = file.header if isinstance(file.header, dict) else {}
    version = header.get("format_version")
    if isinstance(version, int) and version not in FORMATS:
        remedy = "Upgrade sswim" if version > FORMATS[-1] else "Fit the model anew"
        raise ValueError(
            f"{path}: written in format {version} by sswim {str(header.get('sswim_version'))[:20]}, this is sswim "
            f"{__version__} and reads formats {FORMATS[0]} and {FORMATS[-1]}. {remedy}."
        )
    if not file.whole:
        raise ValueError(f"{path}: damaged, it has changed since it was written.")
    kind = header.get("kind")
    cls = next((other for other in others if other.__name__ == kind), cls)
    if isinstance(kind, str) and kind != cls.__name__:
        raise ValueError(f"{path}: holds a {kind[:100]}, not a {cls.__name__}. Use {kind[:100]}.load.")
    try:
        return _rebuild(cls, header, _Reader(file.tensors))
    except FAILURES as error:
        raise ValueError(f"{path}: damaged, its parts do not fit together ({str(error).rstrip('.')}).") from error


def _rebuild(cls: type[E], header: Json, read: _Reader) -> E:
    """Return an estimator with its parameters and its fitted model."""
    keys = ["format_version", "sswim_version", "kind", "model", "params"]
    keys += ["updates"] * (isinstance(header, dict) and header.get("format_version") == UPDATABLE_VERSION)
    header = check_keys("the file", header, keys)
    names = [name for name in cls().get_params(deep=False) if name not in LOCAL]  # type: ignore[attr-defined]
    given, earlier = header["params"], {name: value for name, value in LATER.items() if name in names}
    params = check_keys("params", {**earlier, **given} if isinstance(given, dict) else given, names)
    known = {k: read(v, k, leave_out=True) for k, v in params.items() if not _unsaved(k, v)}
    estimator: Any = cls(**known)
    model = read(header["model"], "model")
    if not isinstance(model, estimator.model_type):
        raise Damaged(f"the model must be a {estimator.model_type.__name__}, got {short(model)}")
    updates = read(header["updates"], "updates") if "updates" in header else None
    if read.tensors:
        raise Damaged(f"nothing uses the tensor {short(min(read.tensors))}")
    check_model(model)
    estimator.model_ = model if updates is None else model.updatable(_record(updates, model), updates.past)
    return estimator


def _record(updates: object, model: Any) -> object:
    """Return the sums of a model."""
    if not isinstance(updates, SavedUpdates):
        raise Damaged(f"updates must be sums, got {short(updates)}")
    return unpack(updates, model)
