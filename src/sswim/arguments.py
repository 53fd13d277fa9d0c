"""What words of the command line mean, and how numbers are printed there."""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    import pandas as pd

    from sswim.data import RowSource
    from sswim.forecaster import Forecaster
    from sswim.network.grid import Convolution

__all__ = [
    "aligned",
    "columns_of",
    "covariates_of",
    "executor_of",
    "figures",
    "layers",
    "next_steps",
    "option",
    "plain_errors",
    "rows_for",
    "setting",
    "widths",
]

errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Data = Annotated[
    Path, typer.Argument(help="Series as CSV, Parquet or npz, one row per time step; or a folder of Parquet, or Zarr.")
]
Model = Annotated[Path, typer.Argument(help="A model that `sswim fit` wrote.")]
Breaks = Annotated[
    int | None,
    typer.Option(
        help="Cut the series into segments of this many rows, such as steps per day; no window crosses from one into the next."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any option of the estimator, such as kernel=hat or steps__weights=random; may be repeated."),
]
Time = Annotated[str | None, typer.Option(help="Column that holds the times. Default: the first, if it looks like times.")]
Dates = Annotated[str | None, typer.Option(help="How times are written, such as '%d/%m/%Y %H:%M'.")]
Covariate = Annotated[list[str] | None, typer.Option(help="A column that is an input but is not forecast; may be repeated.")]
Known = Annotated[list[str] | None, typer.Option(help="A covariate that is known ahead; may be repeated.")]
Target = Annotated[list[str] | None, typer.Option(help="A column to forecast, all others being covariates; may be repeated.")]
Columns = Annotated[list[str] | None, typer.Option(help="A column to use; may be repeated. Default: all.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Missing = Annotated[str, typer.Option(help="What to do about missing values: error or interpolate.")]
Updatable = Annotated[bool, typer.Option("--updatable", help="Save the sums too, so that `sswim update` can go on.")]


def columns_of(model: Forecaster) -> list[str] | None:
    """Return the columns that a model was fitted to, if they have names: others in a file do not matter."""
    names = model.model_.columns
    return None if names is None or not all(isinstance(name, str) for name in names) else [str(name) for name in names]


def rows_for(model: Forecaster, data: Path, time: str | None, date_format: str | None) -> pd.DataFrame | RowSource:
    """Return the rows of a file for a model, its columns alone; a folder or an array is read as it is needed."""
    from sswim.datasets.files import series_at

    return series_at(data, {"time": time, "date_format": date_format, "columns": columns_of(model)})[0]


def covariates_of(columns: list[str], covariates: list[str] | None, targets: list[str] | None) -> tuple[str, ...]:
    """Return the columns that are seen but not forecast."""
    if targets is None:
        return tuple(covariates or ())
    if covariates is not None:
        raise ValueError("--target makes all other columns covariates: omit --covariate.")
    for name in targets:
        if name not in columns:
            raise ValueError(f"--target: {name!r} is not a column. The columns are {', '.join(map(repr, columns))}.")
    return tuple(name for name in columns if name not in targets)


def executor_of(workers: int | None, cluster: str | None) -> int | str | None:
    """Return who computes sums."""
    if workers is not None and cluster is not None:
        raise ValueError("--workers and --cluster: name one of them.")
    return workers if cluster is None else cluster


def widths(text: str | None) -> tuple[int, ...] | None:
    """Return the neurons per hidden layer."""
    try:
        return None if text is None else tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ValueError(f"--hidden must be whole numbers separated by commas, got {text!r}.") from None


def layers(text: str) -> tuple[int | Convolution, ...]:
    """Return the hidden layers of a classifier: neurons, or filters such as 400x7 and, pooled over 4 regions, 400x7/4."""
    from sswim.network.grid import Convolution  # torch takes seconds

    found: list[int | Convolution] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:x(\d+)(?:/(\d+))?)?", part.strip())
        if match is None:
            raise ValueError(
                "--hidden must be 'auto', or neurons or filters of each layer with commas between, such as 1000, 400x7 or "
                f"400x7/4,500, got {text!r}."
            )
        count, size, pool = (None if n is None else int(n) for n in match.groups())
        assert count is not None
        found.append(count if size is None else Convolution(count, size, pool))
    return tuple(found)


def setting(text: str) -> tuple[str, object]:
    """Return name and value of ``name=value``: numbers, true, false, none, text, or several of these with commas between."""
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ValueError(f"--set takes name=value, or name=value,value, got {text!r}.")

    def value(word: str) -> str | int | float | bool | None:
        named = {"true": True, "false": False, "none": None}
        if word.lower() in named:
            return named[word.lower()]
        for kind in (int, float):
            try:
                return kind(word)
            except ValueError:
                pass
        return word

    found = tuple(value(word.strip()) for word in values.split(","))
    return name.strip(), found[0] if len(found) == 1 else found


def option(text: str) -> tuple[str, object]:
    """Return name and value of ``name=value``, or of ``name=value,value``."""
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ValueError(f"--set takes name=value, or name=value,value, got {text!r}.")
    found = [int(v) if v.strip().lstrip("-").isdigit() else v.strip() for v in values.split(",")]
    return name.strip(), found[0] if len(found) == 1 else found


def aligned(table: str) -> str:
    """Return a Markdown table with columns of equal width, for reading."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows[1] = ["-" * width for width in widths]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def figures(value: object) -> str:
    """Return a number, or several, as text."""
    if isinstance(value, list):
        return " .. ".join(figures(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say what is wrong with the user's input in one line, without a traceback, and warn of the same thing once."""
    said: set[str] = set()

    def say(text: str, style: str) -> None:
        if text not in said:
            errors.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
        said.add(text)

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"Warning: {message}", "yellow")
        try:
            yield
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            say(f"Error: {error}", "red")
            raise typer.Exit(2) from None


def next_steps(picture: Path) -> str:
    """Return commands to try after the demonstration, with the files that it wrote beside its picture."""
    model, table = picture.with_suffix(".sswim"), picture.with_suffix(".csv")
    # As it was called, where the shell does not find it by its name.
    sswim = sys.argv[0] if Path(sys.argv[0]).name == "sswim" and shutil.which("sswim") is None else "sswim"
    return (
        "Try next:\n"
        f"  {sswim} report {model} --data {table} --out report.html    # a page to look at\n"
        f"  {sswim} fit {table} --window 48 --horizon 24 --hidden 200 --profile nir --out chip.sswim\n"
        f"  {sswim} export chip.sswim --to nir --out chip.nir    # for other simulators, and chips"
    )
