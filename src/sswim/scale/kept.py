"""Sums that are kept in files, so that a fit that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from sswim._version import __version__
from sswim.machine import split
from sswim.options import warn
from sswim.scale.base import Advance, Executor, Groups, Summand, check_groups, skip
from sswim.sealed import Damaged, read_sealed, write_sealed

__all__ = ["Kept"]

C = TypeVar("C")
I = TypeVar("I")
T = TypeVar("T", bound=Summand)
# Sums of this many items are kept. A power of 2: then they are whole branches of the tree of additions.
BRANCH = 8


class Named(Protocol):
    """What names its work: all that items have in common."""

    kind: type[Summand]

    def digest(self, groups: Groups) -> str:
        """Return a text that differs where the work or the items do."""


@dataclass(frozen=True)
class _Branch:
    """Items from `begin` to `end` of a group."""

    group: int
    begin: int
    end: int

    def halves(self) -> list[_Branch]:
        """Return the two branches that add up to this one, or none if it is so short that they are not kept."""
        if self.end - self.begin <= BRANCH:
            return []
        middle = self.begin + split(self.end - self.begin)
        return [_Branch(self.group, self.begin, middle), _Branch(self.group, middle, self.end)]


@dataclass(frozen=True)
class Kept(Executor):
    """Lets another executor compute, and keeps sums in a folder. A later run with the same key goes on from them.

    Few files stay: the sum of each finished group, and some branches of those under way. They may be removed at any time.

    Parameters
    ----------
    executor : Executor
        Computes the sums.
    folder : str or path
        Where files are written. It is made if it does not exist.
    key : str, optional
        Names the work. It must differ where the work, the items or what they have in common differ. Default: what all items
        have in common tells, by its method `digest`.
    kind : type, optional
        Class of the results. Its `from_tensors` makes them from files. Default: ``common.kind``.
    """

    executor: Executor
    folder: str | os.PathLike[str]
    key: str | None = None
    kind: type[Summand] | None = None

    def prepare(self) -> None:
        """Let the other executor get ready."""
        self.executor.prepare()

    def sums(
        self, work: Callable[[C, I], T], groups: Groups[I], common: C, advance: Advance | None = None
    ) -> Generator[T, None, None]:
        """Yield the sum of each group; see `Executor.sums`."""
        if self.key is None:
            named: Named = common  # type: ignore[assignment]
            yield from replace(self, key=named.digest(groups), kind=named.kind).sums(work, groups, common, advance)
            return
        check_groups(groups)
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        there: set[_Branch] = set()
        lacking: list[_Branch] = []

        def compute(branches: list[_Branch], advance: Advance | None) -> Generator[T, None, None]:
            items = [groups[branch.group][branch.begin : branch.end] for branch in branches]
            return self.executor.sums(work, items, common, advance)

        def plan(branch: _Branch) -> None:
            if self._place(branch).exists():
                there.add(branch)
            elif branch.halves():
                for half in branch.halves():
                    plan(half)
            else:
                lacking.append(branch)

        def total(branch: _Branch) -> T:
            if branch in there:
                for _ in range(branch.begin, branch.end):
                    (advance or skip)()
                found: T | None = self._read(branch)  # type: ignore[assignment]
                return self._write(branch, next(compute([branch], None))) if found is None else found
            if not branch.halves():
                return self._write(branch, next(results))
            first, second = branch.halves()
            one = total(first)
            return self._write(branch, one + total(second))

        trees = [_Branch(number, 0, len(group)) for number, group in enumerate(groups)]
        for tree in trees:
            plan(tree)
        with closing(compute(lacking, advance)) as results:
            yield from map(total, trees)

    def _header(self, branch: _Branch) -> dict[str, str | int]:
        assert self.key is not None and self.kind is not None
        return {"key": self.key, "kind": self.kind.__qualname__, "version": __version__, **vars(branch)}

    def _place(self, branch: _Branch) -> Path:
        digest = hashlib.sha256(json.dumps(self._header(branch)).encode()).hexdigest()
        return Path(self.folder) / f"{digest[:32]}.safetensors"

    def _read(self, branch: _Branch) -> Summand | None:
        """Return a sum that was kept, or None if its file is damaged or gone."""
        place = self._place(branch)
        try:
            kept = read_sealed(place, "sums")
            if kept.whole and kept.header == self._header(branch) and self.kind is not None:
                return self.kind.from_tensors(kept.tensors)
            why = "it has changed since it was written"
        except (Damaged, OSError) as error:
            why = str(error)
        warn(f"{place}: this kept sum cannot be used ({why}). It is computed again.")
        return None

    def _write(self, branch: _Branch, total: T) -> T:
        """Keep the sum of a branch instead of those of its halves, and return it."""
        try:
            write_sealed(self._place(branch), "sums", self._header(branch), total.tensors())
            for half in branch.halves():
                self._place(half).unlink(missing_ok=True)
        except OSError as error:
            warn(f"{error} The sum is not kept.")
        return total
