"""What an experiment is made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

__all__ = ["Experiment", "Settings"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """What an experiment is made of.

    Attributes
    ----------
    cells : callable
        Maps ``data``, ``seeds`` and ``quick`` to the settings of all runs, as plain JSON. What else it takes by name are the
        experiment's options.
    measure : callable
        Maps the settings of one run to its scores, as plain JSON. If it takes a ``checkpoint``, that is a file by which a run
        that was stopped may go on.
    table : callable
        Maps all runs, one row each, to the table that is shown.
    draw : callable
        Maps all runs to a picture.
    order : mapping
        Columns by which runs are sorted before they are shown, and the order of their values, by size if None.
    """

    cells: Callable[..., list[Settings]]
    measure: Callable[..., dict[str, Any]]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    order: Mapping[str, Sequence[Any] | None] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The experiment's options and their defaults."""
        told = inspect.signature(self.cells).parameters.values()
        return {p.name: p.default for p in told if p.kind is p.KEYWORD_ONLY}

    def sort(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return the runs in the experiment's order, so that what is shown does not depend on when they were done."""
        keys = []
        for column, values in self.order.items():
            found = [tuple(v) if isinstance(v, list) else v for v in runs[column]]
            places = {value: place for place, value in enumerate(values or sorted(set(found)))}
            keys.append([(places.get(value, len(places)), str(value)) for value in found])
        order = sorted(range(len(runs)), key=lambda row: [key[row] for key in keys])
        return runs.iloc[order].reset_index(drop=True)
