"""What a page is made of: sections of words, figures, tables, and things to step through."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sswim.report import Facts

__all__ = [
    "Block",
    "Figure",
    "Key",
    "Section",
    "Stepper",
    "Table",
    "Tiles",
    "Words",
    "packed",
    "plain",
    "plain_facts",
    "plain_rows",
    "shown",
]


@dataclass(frozen=True)
class Words:
    """Paragraphs."""

    kind: ClassVar[str] = "words"
    paragraphs: Sequence[str]


@dataclass(frozen=True)
class Tiles:
    """A few numbers that matter most: (name, value, what it means)."""

    kind: ClassVar[str] = "tiles"
    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Table:
    """A table of text. The first column names the rows. Rows of a table inside of a stepper come from the page's script."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: the name of a colour, a shape (``"line"``, ``"band"``, ``"bar"`` or ``"dot"``), and words."""

    color: str
    shape: str
    words: str


@dataclass(frozen=True)
class Figure:
    """A chart with words that describe it, a legend, and its numbers as a table.

    Attributes
    ----------
    name : str
        Unique on the page.
    spec : dict
        A Vega-Lite chart from `sswim.page.charts`.
    title, text : str
        What it shows, and how to read it.
    table : Table, optional
        The same as numbers.
    canvas : bool
        Whether it is drawn as pixels: for thousands of marks.
    """

    kind: ClassVar[str] = "figure"
    name: str
    spec: Facts
    title: str
    text: str
    keys: Sequence[Key] = ()
    table: Table | None = None
    canvas: bool = False


@dataclass(frozen=True)
class Stepper:
    """Figures of one thing at a time, with buttons to step through all of them.

    Attributes
    ----------
    name : str
        Unique on the page.
    what : str
        What is stepped through: ``"forecast"``, ``"sample"`` or ``"neuron"``.
    script : str
        The function of ``page.js`` that shows one of them.
    choice : str
        What can be chosen as well, such as ``"Channel"``; nothing if empty.
    choices : sequence of str
    figures : sequence of Figure
    data : dict
        What the script reads.
    """

    kind: ClassVar[str] = "stepper"
    name: str
    what: str
    script: str
    figures: Sequence[Figure]
    data: Facts
    choice: str = ""
    choices: Sequence[str] = ()


Block = Words | Tiles | Table | Figure | Stepper


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    name: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        """Return all figures, those inside of steppers too."""
        found: list[Figure] = []
        for block in self.blocks:
            found += [block] if isinstance(block, Figure) else list(block.figures) if isinstance(block, Stepper) else []
        return found


def plain(value: object, digits: int = 5) -> object:
    """Return numbers as JSON has them, inside of arrays, lists and dictionaries too: rounded, and None where not finite.

    Examples
    --------
    >>> plain({"a": np.array([1 / 3, np.nan]), "b": (np.int64(2), "x")})
    {'a': [0.33333, None], 'b': [2, 'x']}
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), digits)
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def plain_facts(facts: Facts, digits: int = 5) -> Facts:
    """Return facts as JSON has them, see `plain`."""
    return {name: plain(value, digits) for name, value in facts.items()}


def plain_rows(rows: Sequence[Facts], digits: int = 5) -> list[Facts]:
    """Return the rows of a chart as JSON has them, see `plain`."""
    return [plain_facts(row, digits) for row in rows]


def shown(value: float | None, digits: int = 4) -> str:
    """Return a number as it is written on the page.

    Examples
    --------
    >>> shown(12345.678), shown(0.123456), shown(3), shown(float("nan"))
    ('12,346', '0.1235', '3', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if isinstance(value, (int, np.integer)) or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def packed(bits: npt.ArrayLike) -> str:
    """Return an array of 0 and 1, or of bytes, as text: eight of them to a byte if they are bool.

    Examples
    --------
    >>> packed(np.array([True, False, True])), packed(np.array([1, 255], dtype=np.uint8))
    ('oA==', 'Af8=')
    """
    values = np.ascontiguousarray(bits)
    found = np.packbits(values.ravel()) if values.dtype == bool else values.astype(np.uint8, casting="equiv")
    return base64.b64encode(found.tobytes()).decode("ascii")
