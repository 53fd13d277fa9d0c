"""The source distribution has all that its tests need."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")
ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "examples", "src", "tests", "tools")
FILES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "mkdocs.yml",
    "pyproject.toml",
)
LEFT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")


def test_the_source_distribution_has_every_file(tmp_path):
    copy = tmp_path / "copy"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=LEFT)
    for file in (*FILES, "MANIFEST.in"):
        shutil.copy(ROOT / file, copy / file)
    there = {p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file()}
    code = f"from setuptools.build_meta import build_sdist; print(build_sdist({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert there - held == set()
    assert not [name for name in held if name.endswith(".pyc")]
