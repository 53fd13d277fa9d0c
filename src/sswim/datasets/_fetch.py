"""Downloads, checked against known sums."""

from __future__ import annotations

import logging
import os
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
    Console(stderr=True).print(f"Fetching {url} into {folder}", highlight=False, soft_wrap=True)
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(pooch.retrieve(url, f"md5:{md5}", fname=name, path=folder))
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
            path.unlink()
    except (OSError, ValueError, zipfile.BadZipFile) as error:  # requests' errors are OSErrors
        return f"{url} could not be downloaded: {str(error).splitlines()[0][:200]}"
    return ""
