"""Downloads, checked against known sums."""

from __future__ import annotations

import logging
import os
import shutil
import zipfile
from pathlib import Path

import pooch
from rich.console import Console

__all__ = ["fetch"]


def fetch(url: str, md5: str, folder: Path) -> str:
    """Download a file into a folder, and unpack it there if it is a zip file; nothing is left there if its sum is wrong.

    Returns
    -------
    str
        Empty, or why it could not be had: no network, a wrong sum, or ``SSWIM_OFFLINE`` is set, which forbids downloads.
    """
    if os.environ.get("SSWIM_OFFLINE"):
        return "downloads are switched off by SSWIM_OFFLINE"
    name = url.rsplit("/", 1)[1]
    Console(stderr=True).print(f"Fetching {url} into {folder}", highlight=False, markup=False, soft_wrap=True)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(pooch.retrieve(url, f"md5:{md5}", fname=name, path=folder))
        if path.suffix == ".zip":
            _unpack(path)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # requests' errors are OSErrors
        return f"{url} could not be downloaded: {str(error).splitlines()[0][:200]}"
    finally:
        logger.setLevel(level)
    return ""


def _unpack(path: Path) -> None:
    """Replace ``name.zip`` by the file ``name`` in it, which appears whole or not at all."""
    target, part = path.with_suffix(""), path.with_suffix(".part")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(target.name) as packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
