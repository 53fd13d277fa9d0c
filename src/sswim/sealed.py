"""Files of tensors and JSON under a checksum, and whether what comes out of JSON has the types that it should have."""

from __future__ import annotations

import hashlib
import json
import os
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from sswim.writing import whole_file

__all__ = [
    "Damaged",
    "Sealed",
    "check_keys",
    "check_type",
    "fits",
    "is_whole",
    "parse_json",
    "read_sealed",
    "seal",
    "write_sealed",
]

Json = Any  # what the json module writes and reads
DTYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64"}


class Damaged(ValueError):
    """A file that does not hold what it should. Its reader names the file."""


@dataclass(frozen=True)
class Sealed:
    """What a file holds. If it is not `whole`, something in it has changed since it was written."""

    header: Json
    tensors: dict[str, Tensor]
    whole: bool


def seal(header: Mapping[str, Json], tensors: Mapping[str, Tensor] | None = None) -> dict[str, Json]:
    """Return a header with a checksum of all else in it, and of tensors: their names, types, shapes and numbers."""
    rest = {key: value for key, value in header.items() if key != "checksum"}
    sha = hashlib.sha256(json.dumps(rest).encode())
    for name, tensor in sorted((tensors or {}).items()):
        sha.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(tensor.numpy().tobytes())
    return {**rest, "checksum": sha.hexdigest()}


def is_whole(header: Json, tensors: Mapping[str, Tensor] | None = None) -> bool:
    """Return whether a header and tensors are those that were sealed."""
    try:
        return isinstance(header, dict) and header.get("checksum") == seal(header, tensors)["checksum"]
    except RecursionError:
        return False


def write_sealed(path: str | os.PathLike[str], name: str, header: Mapping[str, Json], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors in safetensors form, with JSON under `name` and a checksum of all."""
    kept = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    with whole_file(path) as part:
        part.write_bytes(to_bytes(kept, metadata={name: json.dumps(seal(header, kept))}))


def read_sealed(path: Path, name: str) -> Sealed:
    """Read what `write_sealed` wrote. Nothing stays open: the file may be overwritten later.

    Nothing is believed about sizes that the file is not long enough for.
    """
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or end > len(raw):
        raise Damaged("it is cut off, or holds something else")
    entries = parse_json(raw[8:end])
    if not isinstance(entries, dict):
        raise Damaged("it holds something else")
    metadata = entries.pop("__metadata__", {})
    for key, entry in entries.items():
        shape, dtype = (entry.get("shape"), entry.get("dtype")) if isinstance(entry, dict) else (None, None)
        if dtype not in DTYPES or not isinstance(shape, list) or not all(type(n) is int and 0 <= n <= len(raw) for n in shape):
            raise Damaged(f"the tensor {key!r} has the type {short(dtype)} and the shape {short(shape)}")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(name), str):
        raise Damaged("a safetensors file, but of something else")
    try:
        header, tensors = parse_json(metadata[name]), from_bytes(raw)
        whole = is_whole(header, tensors)
        return Sealed({k: v for k, v in header.items() if k != "checksum"} if whole else header, tensors, whole)
    except (SafetensorError, UnicodeError) as error:
        raise Damaged(str(error)) from None


def parse_json(text: str | bytes) -> Json:
    """Return what JSON stands for, if it is JSON, not too deep, and names nothing twice."""

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Damaged("it names the same thing twice")
        return found

    try:
        text = text if isinstance(text, str) else text.decode()
        found = json.loads(text, object_pairs_hook=unique)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()  # halves of characters are refused
        return found
    except Damaged:
        raise
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except ValueError as error:
        raise Damaged(f"it is not JSON in Unicode: {error}") from None


def check_keys(where: str, value: object, keys: Sequence[str]) -> dict[str, Json]:
    """Return a mapping, if it has all of some keys and no others."""
    if not isinstance(value, dict):
        raise Damaged(f"{where} must have {', '.join(keys)}, got {short(value)}")
    lacking, others = [k for k in keys if k not in value], [k for k in value if k not in keys]
    if lacking or others:
        raise Damaged(f"{where} lacks {', '.join(lacking)}" if lacking else f"{where} has an unknown {short(others[0])}")
    return value


def check_type(where: str, value: object, hint: Any) -> None:
    """Refuse a value that is not of the type that an annotation says."""
    if not fits(value, hint):
        raise Damaged(f"{where} must be {getattr(hint, '__name__', None) or hint}, got {short(value)}")


def fits(value: object, hint: Any) -> bool:
    """Return whether a value is of the type that an annotation says. Functions never are: a file holds none."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return isinstance(value, tuple) and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        several = value if isinstance(value, tuple) else ()
        return len(several) == len(inner) and all(map(fits, several, inner))
    if origin in (list, Sequence):
        return isinstance(value, list if origin is list else (list, tuple)) and all(fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if hint is Hashable:
        simple = value is None or isinstance(value, (str, int, float))
        return simple or (isinstance(value, tuple) and all(fits(item, Hashable) for item in value))
    if hint in (int, float):
        number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        return number or (hint is float and isinstance(value, float))
    if hint is None or hint is types.NoneType:
        return value is None
    if getattr(hint, "_is_protocol", False):
        members = [name for base in hint.__mro__ if getattr(base, "_is_protocol", False) for name in vars(base)]
        asked = [name for name in members if name == "__call__" or not name.startswith("_")]
        return not isinstance(value, (str, int, float, np.ndarray, Tensor)) and all(hasattr(value, name) for name in asked)
    return isinstance(hint, type) and isinstance(value, hint)
