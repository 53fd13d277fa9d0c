"""Checks of what users pass in: each error names the argument, the rule, what came, and what to do."""

from __future__ import annotations

import difflib
import numbers
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["check_fraction", "check_integer", "check_positive", "check_result", "parse_memory", "parse_seconds", "resolve"]


def check_integer(name: str, value: Any, least: int) -> int:
    """Return `value` as an int that is at least `least`.

    Examples
    --------
    >>> check_integer("horizon", 0, 1)
    Traceback (most recent call last):
    ...
    ValueError: horizon must be a whole number >= 1, got 0.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number >= {least}, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}.")
    return int(value)


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as a finite float above 0 (or at 0, with `zero`)."""
    rule = ">= 0" if zero else "> 0"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {rule}, got {value!r}.")
    value = float(value)
    if not (value > 0 or (zero and value == 0)) or value == float("inf"):
        raise ValueError(f"{name} must be a finite number {rule}, got {value!r}.")
    return value


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number between 0 and 1 (both excluded), got {value!r}.")
    return float(value)


def resolve(argument: str, value: Any, choices: Mapping[str, Any], *methods: str) -> Any:
    """Return the step that a name stands for, or `value` itself if it is a step object.

    Parameters
    ----------
    argument : str
        Name of the argument, for the error.
    value : str or object
        What the user passed.
    choices : mapping of str to object
        The named variants.
    *methods : str
        The methods a step object of the user's own must have.

    Examples
    --------
    >>> resolve("weights", "dott", {"dot": 1, "random": 2}, "__call__")
    Traceback (most recent call last):
    ...
    ValueError: weights: unknown name 'dott'. Did you mean 'dot'? Valid names: 'dot', 'random'.
    """
    if isinstance(value, str):
        if value in choices:
            return choices[value]
        close = difflib.get_close_matches(value, choices, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join(map(repr, choices))
        raise ValueError(f"{argument}: unknown name {value!r}.{hint} Valid names: {names}.")
    lacking = methods if isinstance(value, type) else [name for name in methods if not callable(getattr(value, name, None))]
    if lacking:
        names, needed = ", ".join(map(repr, choices)), ", ".join(f"`{name}`" for name in methods)
        lack = f", which lacks {', '.join(f'`{name}`' for name in lacking)}" if len(lacking) < len(methods) else ""
        a = "a method" if len(methods) == 1 else "the methods"
        raise TypeError(f"{argument} must be one of the names {names}, or an object with {a} {needed}, got {value!r}{lack}.")
    return value


def check_result(step: str, value: Any, *shape: int) -> Tensor:
    """Return what a step has made, if it is a finite tensor of that shape; steps of the user's own may be wrong."""
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{step} must return a tensor of shape {shape}, got {got}.")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{step} must return finite values, but some are NaN or infinite.")
    return value


def parse_seconds(name: str, value: Any) -> float:
    """Return a time budget in seconds, from a number or text such as ``"30s"`` or ``"5min"``.

    Examples
    --------
    >>> parse_seconds("tune", "1.5min")
    90.0
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|min|m|h)\s*", value) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{name} must be a time such as '30s' or '5min', or None, got {value!r}.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2][0]]


def parse_memory(memory: str | int | float) -> int:
    """Return a memory budget in bytes.

    Examples
    --------
    >>> parse_memory("1.5GB")
    1500000000
    """
    units = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "b": 1.0, "": 1.0}
    if isinstance(memory, str):
        text = memory.strip().lower()
        number = text.rstrip("bgikm")
        try:
            size = float(number) * units[text[len(number) :].strip()]
        except (KeyError, ValueError):
            raise ValueError(f'memory must be a size such as "2GB" or "500MB", got {memory!r}.') from None
    else:
        size = check_positive("memory", memory)
    if not 1e6 <= size < float("inf"):
        raise ValueError(f"memory must be at least 1 MB, got {memory!r}.")
    return int(size)
