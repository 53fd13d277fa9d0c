"""Where files are written: looked at before the work, and whole or not at all after it."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PICTURES", "check_place", "whole_file"]

Place = str | os.PathLike[str]
# How pictures may end.
PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps", ".ps")
# Bytes that are written for a trial.
TRIAL = 2**20


def check_place(path: Place, *inputs: Place | None, name: str = "--out", endings: Sequence[str] = ()) -> Path:
    """Return where something is to be written, if that can be done; meant for before the work.

    `inputs` are files that must not be lost. `endings` are those that the file's name may have. Default: any.
    """
    place = Path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{name}: the folder {place.parent} does not exist.")
    if place.is_dir():
        raise IsADirectoryError(f"{name}: {place} is a folder. Name a file in it.")
    for other in inputs:
        if other is not None and place.exists() and Path(other).exists() and place.samefile(other):
            raise ValueError(f"{name}: {place} is a file that is read here, and would be lost. Name another.")
    if endings and place.suffix.lower() not in endings:
        raise ValueError(f"{name}: unknown format {place.suffix!r} of {place}. Use one of {', '.join(endings)}.")
    probe = _beside(place)
    try:
        probe.write_bytes(bytes(TRIAL))
    except OSError as error:
        raise OSError(f"{name}: nothing can be written to the folder {place.parent} ({error.strerror}).") from error
    finally:
        probe.unlink(missing_ok=True)
    return place


@contextmanager
def whole_file(path: Place) -> Iterator[Path]:
    """Yield a file to write, which takes the place of `path` afterwards: it is there whole, or as it was before.

    Its name, which ends as that of `path`, is nobody else's. Should the process be killed, it stays behind, and the next one
    that writes to `path` removes it.
    """
    place = Path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place}: the folder {place.parent} does not exist.")
    for left in place.parent.glob(f".{glob.escape(place.name)}.*.part{glob.escape(place.suffix)}"):
        owner = left.name.removeprefix(f".{place.name}.").split(".")[0]
        if owner.isdigit() and not _runs(int(owner)):
            left.unlink(missing_ok=True)
    part = _beside(place)
    try:
        yield part
        os.replace(part, place)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{place}: could not be written ({why}). What was there before is unchanged.") from error
    finally:
        part.unlink(missing_ok=True)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.part{place.suffix}")


def _runs(process: int) -> bool:
    """Return whether a process of that number runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not ours to ask about
        pass
    return True
