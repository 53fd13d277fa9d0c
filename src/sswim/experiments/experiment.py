"""What an experiment is made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

__all__ = ["Experiment", "Settings", "count_seeds"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """What an experiment is made of.

    Attributes
    ----------
    cells : callable
        Maps ``data`` and ``seeds`` to the settings of all runs, as plain JSON. What else it takes by name are the experiment's
        options.
    measure : callable
        Maps the settings of one run to its scores, as plain JSON. If it takes a ``checkpoint``, that is a file by which a run
        that was stopped may go on.
    table : callable
        Maps all runs, one row each, to the table that is shown.
    draw : callable
        Maps all runs to a picture.
    order : mapping
        All settings that the table tells apart, by which runs are sorted before they are shown, and the order of their values,
        by size if None.
    quick : mapping
        ``data``, ``seeds`` and options of a version that takes a minute at most.
    choices : mapping
        What values options with names may have.
    note : str
        What a star in the table means.
    """

    cells: Callable[..., list[Settings]]
    measure: Callable[..., Settings]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    order: Mapping[str, Sequence[object] | None] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""

    @property
    def options(self) -> Settings:
        """The experiment's options and their defaults."""
        parameters = inspect.signature(self.cells).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def check_options(self, options: Settings) -> Settings:
        """Return options, those with several values as tuples, if there are such options and values."""
        known, checked = self.options, {}
        for key, value in options.items():
            if key not in known:
                there = ", ".join(map(repr, known)) or "none"
                raise ValueError(f"unknown option {key!r}. Valid ones: {there}.")
            default = known[key]
            several = isinstance(default, tuple)
            values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
            kind = str if key in self.choices else int
            if (not several and len(values) != 1) or not values or any(type(v) is not kind for v in values):
                rule = f"{'values' if several else 'one value'} of type {kind.__name__}"
                raise ValueError(f"{key} takes {rule}, such as {default!r}, got {value!r}.")
            wrong = [v for v in values if (v not in self.choices[key] if kind is str else v < 1)]
            if wrong:
                rule = f"one of {', '.join(map(repr, self.choices[key]))}" if kind is str else "at least 1"
                raise ValueError(f"{key}: each value must be {rule}, got {wrong[0]!r}.")
            checked[key] = values if several else values[0]
        return checked

    def sort(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return the runs in the experiment's order, so that what is shown does not depend on when they were done.

        Runs of one data set that differ in what the table does not tell apart are refused: it would average them.
        """
        for name in sorted(set(runs.attrs.get("settings", ())) - set(self.order)):
            for data, part in runs.groupby("data", sort=False):
                values = sorted(set(map(str, part[name])))
                if len(values) > 1:
                    raise ValueError(
                        f"runs of {data} differ in {name} ({', '.join(values)}), which the table does not tell apart. Keep "
                        "them in folders of their own."
                    )
        keys = []
        for column, order in self.order.items():
            found: list[object] = [tuple(v) if isinstance(v, list) else None if pd.isna(v) else v for v in runs[column]]
            there = sorted((v for v in set(found) if v is not None), key=lambda v: (str(type(v)), v))
            places = {value: place for place, value in enumerate([None, *(there if order is None else order)])}
            keys.append([(places.get(value, len(places)), str(value)) for value in found])
        rows = sorted(range(len(runs)), key=lambda row: [key[row] for key in keys])
        return runs.iloc[rows].reset_index(drop=True)


def count_seeds(runs: pd.DataFrame, row: Sequence[str], column: str) -> pd.Series:
    """Return, for every run, how many seeds the cells of its row of a table have: their number, or the least and the most."""
    runs = runs.assign(**{name: runs[name].map(str) for name in (*row, column)})
    each = runs.groupby([*row, column])["seed"].transform("nunique")
    rows = each.groupby([runs[name] for name in row])
    least, most = rows.transform("min"), rows.transform("max")
    return least.map(str).where(least == most, least.map(str) + " to " + most.map(str))
