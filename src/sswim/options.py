"""Checks of users' options, option objects, and the settings of a fit (memory, seed, progress)."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import numbers
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from sswim.machine import Addable, StepRecord, on_threads, peak_memory, sums_on_threads

__all__ = [
    "LOG", "Mistakes", "Options", "Randomness", "Run", "Seed", "StepRecord", "check_choice", "check_constants",
    "check_device", "check_estimator", "check_fraction", "check_integer", "check_positive", "check_result",
    "check_seed", "check_widths", "nearest", "parse_memory", "resolve", "resolve_kind", "resolve_several", "warn"
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
A = TypeVar("A", bound=Addable)
Adder = Callable[..., Iterator]  # such as `sums_on_threads`
Seed = int | np.random.RandomState | np.random.Generator | None
# Progress and warnings, for whoever listens.
LOG = logging.getLogger("sswim")
LOG.addHandler(logging.NullHandler())


def warn(message: str, stacklevel: int = 2) -> None:
    """Warn, and tell the log."""
    LOG.warning(message)
    warnings.warn(message, stacklevel=stacklevel + 1)


def check_integer(name: str, value: object, least: int) -> int:
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


def check_positive(name: str, value: object, *, zero: bool = False) -> float:
    """Return `value` as a finite float above 0 (or at 0, with `zero`)."""
    rule = ">= 0" if zero else "> 0"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {rule}, got {value!r}.")
    number = float(value)
    if not (number > 0 or (zero and number == 0)) or number == float("inf"):
        raise ValueError(f"{name} must be a finite number {rule}, got {number!r}.")
    return number


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number between 0 and 1 (both excluded), got {value!r}.")
    return float(value)


def check_widths(name: str, value: object) -> tuple[int, ...]:
    """Return one width per hidden layer."""
    widths = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ()
    if not widths:
        raise ValueError(f"{name} must list one width per hidden layer, such as (750,), got {value!r}.")
    return tuple(check_integer(name, width, 1) for width in widths)


def check_constants(name: str, value: object) -> tuple[float, ...]:
    """Return time constants in steps, from one number or several; infinity never fades."""
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    constants = tuple(float(c) for c in given if isinstance(c, (int, float, np.number)) and c > 0)
    if not given or len(constants) < len(given):
        raise ValueError(f"{name} must be numbers > 0, such as (1, 5), got {value!r}.")
    return constants


def check_device(name: str, value: object) -> str:
    """Return the name of a device that torch knows and can compute on."""
    try:
        device = torch.device(value) if isinstance(value, (str, torch.device)) else None
    except RuntimeError:
        device = None
    if device is None:
        raise ValueError(f"{name} must be the name of a device, such as 'cpu' or 'cuda', got {value!r}.")
    try:
        torch.ones(1, device=device).item()
    except (AssertionError, NotImplementedError, RuntimeError):
        raise ValueError(f"{name} must be one that torch can compute on here, as 'cpu' always is, got {value!r}.") from None
    return str(device)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint at the known name that is most like `name`, or nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return `value` if it is one of several names."""
    if isinstance(value, str) and value in choices:
        return value
    hint = nearest(value, choices) if isinstance(value, str) else ""
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.{hint}")


def resolve(argument: str, value: object, choices: Mapping[str, T], *methods: str) -> T:
    """Return the step that a name stands for, or `value` itself if it is a step object with all `methods`.

    Examples
    --------
    >>> resolve("weights", "dott", {"dot": 1, "random": 2}, "__call__")
    Traceback (most recent call last):
    ...
    ValueError: weights: unknown name 'dott'. Did you mean 'dot'? Valid names: 'dot', 'random'.
    """
    names = ", ".join(map(repr, choices))
    if isinstance(value, str):
        if value in choices:
            return choices[value]
        raise ValueError(f"{argument}: unknown name {value!r}.{nearest(value, list(choices))} Valid names: {names}.")
    lacking = methods if isinstance(value, type) else [name for name in methods if not callable(getattr(value, name, None))]
    if lacking:
        needed = ", ".join(f"`{name}`" for name in methods)
        lack = f", which lacks {', '.join(f'`{name}`' for name in lacking)}" if len(lacking) < len(methods) else ""
        a = "a method" if len(methods) == 1 else "the methods"
        raise TypeError(f"{argument} must be one of the names {names}, or an object with {a} {needed}, got {value!r}{lack}.")
    return value  # type: ignore[return-value]


def resolve_kind(argument: str, value: object, choices: Mapping[str, T], *kinds: type) -> T:
    """Return the option object that a name stands for, or `value` itself if it is of one of the kinds."""
    if isinstance(value, str) or isinstance(value, kinds):
        return resolve(argument, value, choices)
    names, objects = ", ".join(map(repr, choices)), " or ".join(f"a {kind.__name__}" for kind in kinds)
    raise TypeError(f"{argument} must be one of the names {names}, or {objects} object, got {value!r}.")


def resolve_several(
    argument: str, value: object, choices: Mapping[str, T], groups: Mapping[str, Mapping[str, T]], *methods: str
) -> dict[str, T]:
    """Return the steps that one or several names or objects stand for, by name; a name of `groups` stands for several."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given:
        raise ValueError(f"{argument}: needs at least one of {', '.join(map(repr, choices))}, got {value!r}.")
    found: dict[str, T] = {}
    for one in given:
        if isinstance(one, str) and one in groups:
            found |= groups[one]
        else:
            step = resolve(argument, one, {**dict.fromkeys(groups), **choices}, *methods)
            found[one if isinstance(one, str) else repr(one)] = step  # type: ignore[assignment]
    return found


def check_result(step: str, value: object, *shape: int) -> Tensor:
    """Return what a step returned, if it is a finite tensor of the right shape; a user's own step may be wrong."""
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{step} must return a tensor of shape {shape}, got {got}.")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{step} must return finite values, but some are NaN or infinite.")
    return value


def parse_memory(memory: object) -> int:
    """Return a memory budget in bytes, from a number or text such as ``"1.5GB"``."""
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


class SeveralMistakes(ValueError):
    """Several mistakes in a user's options."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__(f"{len(errors)} mistakes:" + "".join(f"\n- {error}" for error in errors))
        self.errors = errors


class Mistakes:
    """Collects what is wrong with a user's options, to report all of it at once."""

    def __init__(self) -> None:
        self._found: list[Exception] = []

    def check(self, rule: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return what a check returns. If it fails, keep the error and return the value that was checked."""
        try:
            return rule(*arguments, **options)
        except (TypeError, ValueError) as error:
            self._add(error)
            return arguments[1] if len(arguments) > 1 else None  # type: ignore[return-value]

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep an error that is raised inside."""
        try:
            yield
        except (TypeError, ValueError) as error:
            self._add(error)

    def _add(self, error: Exception) -> None:
        self._found += error.errors if isinstance(error, SeveralMistakes) else [error]

    def report(self) -> None:
        """Raise what was found: the one error itself, or one error that lists several."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise SeveralMistakes(self._found)


def check_estimator(
    mistakes: Mistakes,
    *,
    validation: object,
    dtype: object,
    device: object,
    memory: object,
    random_state: object,
) -> None:
    """Check the parameters that both estimators have."""
    mistakes.check(check_fraction, "validation", validation)
    mistakes.check(check_choice, "dtype", dtype, ("float32", "float64"))
    mistakes.check(check_device, "device", device)
    mistakes.check(parse_memory, memory)
    mistakes.check(check_seed, "random_state", random_state)


@dataclass(frozen=True)
class Options:
    """Settings that belong together. They never change: `replace` returns others.

    scikit-learn's `get_params` makes ``estimator.set_params(steps__weights="random")`` reach inside.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def replace(self, **changes: object) -> Self:
        """Return the same settings with some changed."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                kind, valid = type(self).__name__, ", ".join(map(repr, known))
                raise ValueError(f"{kind} has no option {name!r}.{nearest(name, known)} Valid names: {valid}.")
        return dataclasses.replace(self, **changes)


def check_seed(name: str, value: object) -> object:
    """Return `value` if it can seed a fit, without drawing from it."""
    if value is None or isinstance(value, (np.random.RandomState, np.random.Generator)):
        return value
    return check_integer(name, value, 0)


class Randomness:
    """One generator per step and layer, all from one seed: swapping one step leaves the draws of the others alone."""

    STEPS = ("batch", "pairs", "weights", "temporal", "shuffle", "patches")

    def __init__(self, random_state: Seed = None) -> None:
        if random_state is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        elif isinstance(random_state, (np.random.RandomState, np.random.Generator)):
            draw = random_state.randint if isinstance(random_state, np.random.RandomState) else random_state.integers
            seed = int(draw(2**31))
        else:
            seed = check_integer("random_state", random_state, 0)
        self.seed = seed

    def __call__(self, step: str, layer: int = 0) -> torch.Generator:
        """Return the generator of one step."""
        state = np.random.SeedSequence(self.seed, spawn_key=(self.STEPS.index(step), layer)).generate_state(2)
        return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


class Run:
    """How a fit is run: `budget` of memory in bytes, `random` generators, progress bars if `verbose`, `records` of steps."""

    def __init__(
        self,
        memory: str | int = "1GB",
        random_state: Seed = None,
        verbose: int = 0,
        keep_sums: bool = False,
        adder: Adder | None = None,
    ) -> None:
        self.budget, self.random, self.verbose = parse_memory(memory), Randomness(random_state), verbose
        self.keep_sums, self._adder = keep_sums, adder
        self.records: list[StepRecord] = []
        console, text = Console(stderr=True), TextColumn("{task.description:<32}")
        columns = text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        hidden = not verbose or not (console.is_terminal or console.is_jupyter)
        self._progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self._task: TaskID | None = None

    def __enter__(self) -> Run:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def elsewhere(self) -> bool:
        """Whether sums are computed elsewhere, or kept in files."""
        return self._adder is not None

    def keeps(self, size: int) -> bool:
        """Return whether sums of `size` bytes are kept after a fit, for updates: if they take at most half of the budget."""
        return self.keep_sums and 2 * size <= self.budget

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside and record it under `name`."""
        begin = time.perf_counter()
        LOG.info("%s: begun", name)
        task = self._task = self._progress.add_task(name, total=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)
            self._task = None
        self.records.append(StepRecord(name, time.perf_counter() - begin, peak_memory()))
        LOG.info("%s: finished in %.2f s", name, self.records[-1].seconds)

    def describe(self, text: str) -> None:
        """Show how the current step is going."""
        if self._task is not None:
            self._progress.update(self._task, description=text)

    def expect(self, total: int) -> None:
        """Start the current step's bar anew, for `total` calls of `advance`."""
        if self._task is not None:
            self._progress.reset(self._task, total=total)

    def advance(self) -> None:
        """Move the current step's bar by one."""
        if self._task is not None:
            self._progress.advance(self._task)

    def count(self, items: Sequence[T]) -> Iterator[T]:
        """Yield `items`, moving the current step's bar by one each."""
        self.expect(len(items))
        for item in items:
            yield item
            self.advance()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Yield what `function` makes of each item, in their order, moving the bar; items are worked on at the same time.

        Each of torch's threads takes an item of its own. So results do not depend on the number of threads, and threads do not
        wait for each other after every small operation, which takes very long beside other busy processes.
        """
        self.expect(len(items))
        for result in on_threads(function, items):
            yield result
            self.advance()

    def sums(self, work: Callable[[C, T], A], groups: Sequence[Sequence[T]], common: C) -> Iterator[A]:
        """Yield for each group the sum of what `work` makes of `common` and each of its items, in a fixed order."""
        self.expect(sum(map(len, groups)))
        yield from (sums_on_threads if self._adder is None else self._adder)(work, groups, common, self.advance)
