"""How pictures look: colours that people with any colour vision can tell apart, panels, legends and axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter

__all__ = [
    "BLUE", "COLORS", "EMPHASIS", "ORANGE", "RED", "axes", "legend_above", "legend_above_the_data", "legend_below", "log_ticks",
    "marked", "name_groups", "over_horizon", "panels"
]  # fmt: skip

# Okabe and Ito (2008) without their yellow, which is faint on white, and two more.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C6D31", "#882255")
BLUE, ORANGE, RED = COLORS[0], COLORS[1], COLORS[5]
MARKERS = "os^Dv<>PX"
# The line that a picture is about, among others.
EMPHASIS: dict[str, Any] = {"color": RED, "lw": 2.4, "marker": None}


def marked(number: int) -> dict[str, Any]:
    """Return the colour and the marker of the line of that number; `EMPHASIS` stands out among them."""
    others = [color for color in COLORS if color != RED]
    return {"color": others[number % len(others)], "marker": MARKERS[number % len(MARKERS)]}


def panels(count: int, size: tuple[float, float] = (3.6, 3.4), columns: int = 4) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, in rows of as equal length as possible, none longer than `columns`."""
    rows = math.ceil(count / columns)
    across = math.ceil(count / rows)
    figure = Figure(figsize=(max(size[0] * across, 5.5), size[1] * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False).flat)
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def legend_below(figure: Figure, axes: Iterable[Axes], size: float = 8) -> None:
    """Add one legend of the lines of all panels below them, in as many columns as the figure has room for."""
    shown = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    inches = size / 72 * (0.62 * max(map(len, shown)) + 4.5)  # of the longest label, its line and a gap
    columns = max(1, min(len(shown), int(figure.get_size_inches()[0] / inches)))
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=size, columnspacing=1.5
    )


def over_horizon(ax: Axes, horizons: Iterable[int]) -> None:
    """Make the x axis one of horizons, evenly spaced when they double."""
    ticks = sorted({int(h) for h in horizons})
    ax.set(xlabel="horizon, steps", xscale="log")
    ax.set_xticks(ticks, labels=[str(h) for h in ticks])
    ax.xaxis.set_minor_locator(FixedLocator([]))


def log_ticks(ax: Axes, axis: str = "y") -> None:
    """Make an axis logarithmic, with as many plain numbers on it as can be read."""
    ax.set(**{f"{axis}scale": "log"})
    low, high = np.log10(ax.get_ylim() if axis == "y" else ax.get_xlim())
    line, decades = (ax.yaxis if axis == "y" else ax.xaxis), high - low
    if decades < 0.2:
        line.set_major_locator(MaxNLocator(5))  # nearly linear
    else:
        subs = range(1, 10) if decades < 0.6 else (1, 2, 3, 4, 5, 7) if decades < 0.9 else (1, 2, 5) if decades < 3 else (1,)
        line.set_major_locator(LogLocator(subs=subs, numticks=99))
    line.set_minor_locator(FixedLocator([]))
    line.set_major_formatter(lambda value, _: f"{value:,.6g}")
    line.set_minor_formatter(NullFormatter())


def name_groups(ax: Axes, groups: Mapping[str, int]) -> None:
    """Name groups of neurons, one above the other, on the y axis, with the number of neurons in each."""
    tops = np.cumsum(list(groups.values()))
    for top in tops[:-1]:
        ax.axhline(top - 0.5, color="0.8", lw=0.8)
    places = [top - count / 2 - 0.5 for top, count in zip(tops, groups.values(), strict=True)]
    names = [f"{name}\n({count:,})" for name, count in groups.items()]
    ax.set(ylim=(-0.5, tops[-1] - 0.5), yticks=places, yticklabels=names, ylabel="spikes of neurons")


def legend_above_the_data(ax: Axes, columns: int, size: float = 8) -> None:
    """Add a legend at the top of the axes, and make room for it there."""
    rows = -(-len(ax.get_legend_handles_labels()[1]) // columns)
    figure = ax.get_figure(root=True)
    assert figure is not None
    inches = ax.get_position().height * figure.get_size_inches()[1]
    part = min(0.6, (rows * 1.6 * size + 12) / 72 / inches)
    scale = ax.yaxis.get_transform()
    low, high = scale.transform(np.array(ax.get_ylim()))
    ax.set_ylim(top=float(scale.inverted().transform(np.array([low + (high - low) / (1 - part)]))[0]))
    ax.legend(loc="upper left", ncols=columns, frameon=False, fontsize=size)


def axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return axes that were given, or those of a new figure, which has room for all labels."""
    return Figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def legend_above(ax: Axes) -> None:
    """Put the legend above the axes, where it hides nothing."""
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, frameon=False, fontsize=8, borderaxespad=0.2)
