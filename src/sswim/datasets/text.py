"""Tables of text, as other programs and countries write them: what parts their cells, decimal commas, headers or none."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Unfit", "moment", "read_csv"]


class Unfit(Exception):
    """A file that can be read, but not used."""


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table whose cells are parted in any of the usual ways, with a header or none."""
    text = _text(path)
    lines = [line for line in text[:65536].split("\n")[:50] if line.strip()]
    if not lines:
        raise Unfit("holds no rows or no columns.")
    lines = lines[:-1] if len(lines) > 2 else lines  # the last one may be cut
    mark = _mark(lines)
    rows = [line.split(mark) for line in lines]
    decimal = "," if mark != "," and any(COMMA.fullmatch(cell.strip(' "')) for row in rows[1:] for cell in row) else "."
    first = _lines_alike(text, mark)
    header = None if _is_data(first, decimal) and not _counts(first) else 0
    names = [cell.strip() for cell in first] if header == 0 else []
    twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if twice:
        raise Unfit(f"has {names.count(twice[0])} columns called {twice[0]!r}. Rename all but one.")
    # The cells are as many in all lines, so pandas need not guess which are labels.
    options: dict[str, Any] = {"sep": mark, "decimal": decimal, "index_col": False}
    frame = pd.read_csv(io.StringIO(text), header=header, low_memory=False, **options)
    return frame.apply(_without_dots) if decimal == "," else frame


def _without_dots(column: pd.Series) -> pd.Series:
    """Return a column of numbers whose thousands dots part; others stay as they are, such as those of dates."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    cells = column.dropna().astype(str).str.strip()
    known = cells.str.fullmatch(f"{COMMA.pattern}|{WHOLE.pattern}")
    if not known.all():
        odd = cells[~known]
        if known.any() and odd.str.fullmatch(NUMBER.pattern).all():
            raise Unfit(f"{column.name!r} has decimal commas, but data row {odd.index[0] + 1} has {odd.iloc[0]!r}. Mend it.")
        return column
    plain = cells.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return plain.astype(np.float64).reindex(column.index)


def _text(path: Path) -> str:
    """Return the text of a file, with the line ends of Unix."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unfit(f"is not text in UTF-8: line {line} holds the byte 0x{raw[error.start]:02x}. Save it as UTF-8.") from None
    if "\0" in text:
        raise Unfit(f"is not text: line {text.count(chr(10), 0, text.index(chr(0))) + 1} holds a NUL byte.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _mark(lines: Sequence[str]) -> str:
    """Return what parts the cells: most lines have as many as the first one then, and most of these are numbers."""

    def rank(mark: str) -> tuple[int, float, int, bool]:
        rows = [line.split(mark) for line in lines]
        alike = [row for row in rows if len(row) == len(rows[0])]
        cells = [cell.strip(' "') for row in alike[1:] or alike for cell in row]
        numbers = sum(bool(NUMBER.fullmatch(cell) or (mark != "," and COMMA.fullmatch(cell))) for cell in cells)
        return len(alike), numbers / len(cells), len(rows[0]), mark == ","

    return max((mark for mark in ",;\t|" if mark in lines[0]), key=rank, default=",")


def _lines_alike(text: str, mark: str) -> list[str]:
    """Return the first line's cells, if all lines have as many: pandas would fill short ones with missing values."""
    first: list[str] = []
    empty = 0
    lines = csv.reader(io.StringIO(text), delimiter=mark, strict=True)
    try:
        for cells in lines:
            if not cells or (len(cells) == 1 and not cells[0].strip()):
                empty = empty or lines.line_num
                continue
            first = first or cells
            if len(cells) != len(first):
                many, here = (f"{n} cell" + "s" * (n != 1) for n in (len(first), len(cells)))
                raise Unfit(f"line {lines.line_num} has {here}, but the first line has {many} (parted by {mark!r}).")
            if empty and len(first) == 1:
                raise Unfit(f"line {empty} is empty, and lines follow. Write nan for a value that is missing.")
    except csv.Error as error:
        raise Unfit(f"line {lines.line_num}: {error}.") from None
    return first


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
WHOLE = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)")  # beside decimal commas


def _is_data(cells: Sequence[str], decimal: str) -> bool:
    """Return whether a line holds numbers, perhaps after a time, and so is no header."""

    def number(cell: str) -> bool:
        try:
            float(cell.replace(",", ".") if decimal == "," else cell)
        except ValueError:
            return False
        return True

    first, *others = cells
    return (number(first) or moment(first)) and all(number(cell) or not cell.strip() for cell in others)


def moment(cell: str) -> bool:
    """Return whether a cell begins like a time."""
    return bool(re.match(r"\s*(\d{4}-\d{1,2}|\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4})", cell))


def _counts(cells: Sequence[str]) -> bool:
    """Return whether a line numbers its columns, from 0 on, or from 1 on if there are several, and so is a header."""
    given = [cell.strip() for cell in cells]
    from_0, from_1 = ([str(i + first) for i in range(len(given))] for first in (0, 1))
    return (len(given) > 1 and given == from_0) or (len(given) > 4 and given == from_1)
