"""Sums of a fit that can go on: blocks in time that are laid out by one rule, whenever and wherever their windows come.

Windows are numbered within each recording, and blocks end at the same numbers in all of them, so that it does not matter in
how many parts a recording comes. Once there are too many blocks, they become twice as long: neighbours are added up. What
follows the last whole block of a recording counts for weights, and not for what is chosen on blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.readout.blocks import Part, total

__all__ = ["Block", "Cut", "Ledger"]


@dataclass(frozen=True)
class Block:
    """Sums of a block: of how many windows, of which recording, and how many times they count by now."""

    sums: Part
    windows: int
    recording: int
    fade: float = 1.0

    @property
    def part(self) -> Part:
        """The sums, as far as they are not forgotten."""
        return self.sums.scaled(self.fade)


@dataclass(frozen=True)
class Cut:
    """New windows that belong to one block.

    Attributes
    ----------
    windows : Tensor of shape (windows,)
        Those whose sums are taken, as numbers among the new windows.
    recording : int
    whole : bool
        Whether they complete the block.
    """

    windows: Tensor
    recording: int
    whole: bool


@dataclass(frozen=True)
class Ledger:
    """Sums of blocks in time. It never changes: `extended` and `merged` return others.

    Attributes
    ----------
    first, count : int
        Windows of the first fit, and its number of blocks, which all others are laid out by.
    stride : int
        Every `stride`-th window counts.
    step : int
        Length of a block, in blocks of the first fit: a power of 2.
    recordings : tuple of int
        Number of windows of each recording. The last one goes on.
    blocks : tuple of Block
    tail : Part or None
        Sums of the windows after the last whole block of the last recording.
    tail_windows : int
        How many of them were summed up.
    whole : Part or None
        Sums of all windows.
    """

    first: int
    count: int
    stride: int = 1
    step: int = 1
    recordings: tuple[int, ...] = (0,)
    blocks: tuple[Block, ...] = ()
    tail: Part | None = None
    tail_windows: int = 0
    whole: Part | None = None

    def emptied(self) -> Ledger:
        """Return an empty ledger with the same layout."""
        return Ledger(self.first, self.count, self.stride)

    @property
    def windows(self) -> int:
        """Number of windows so far."""
        return sum(self.recordings)

    @property
    def size(self) -> int:
        """Bytes that the sums take."""
        parts = [*(block.sums for block in self.blocks), *(part for part in (self.tail, self.whole) if part is not None)]
        return sum(part.gram.nbytes + part.cross.nbytes for part in parts)

    @property
    def length(self) -> int:
        """Number of windows of a block."""
        return self._end(self.step)

    @property
    def decided(self) -> int:
        """Number of blocks, the first ones, that something is chosen on: a quarter more each time, so it is seldom done."""
        found = following = self.count
        while following <= len(self.blocks):
            found, following = following, max(following + 1, round(1.25 * following))
        return min(found, len(self.blocks))

    @property
    def says(self) -> list[float]:
        """How much each block counts in what is chosen: 1, less if its windows are being forgotten."""
        return [block.fade * block.sums.rows / block.windows for block in self.blocks]

    def parts(self) -> list[Part]:
        """Return the sums of the blocks, as far as they are not forgotten."""
        return [block.part for block in self.blocks]

    def _end(self, number: int) -> int:
        """Return the window of a recording at which its first `number` blocks end, each as long as those of the first fit."""
        return self.first * number // (self.count * self.stride) * self.stride

    def _ended(self, windows: int, step: int) -> int:
        """Return how many blocks have ended after some windows, each as long as `step` blocks of the first fit."""
        found = windows * self.count // (self.first * step)
        while self._end((found + 1) * step) <= windows:
            found += 1
        while self._end(found * step) > windows:
            found -= 1
        return found

    def _fitting(self, recordings: Sequence[int]) -> int:
        """Return the step at which recordings have few enough blocks."""
        step = self.step
        while sum(self._ended(windows, step) for windows in recordings) > 2 * self.count:
            step *= 2
        return step

    def _with_lengths(self, lengths: Iterable[tuple[bool, int]]) -> tuple[int, ...]:
        """Return the lengths of all recordings once new windows have come."""
        found = list(self.recordings)
        for begins, count in lengths:
            if begins and found[-1] >= self._end(1):
                found.append(0)
            found[-1] += count
        return tuple(found)

    def plan(self, lengths: Sequence[tuple[bool, int]]) -> list[Cut]:
        """Return where new windows go, for a layout that holds all of them.

        Parameters
        ----------
        lengths : sequence of (bool, int)
            Of each stretch of new windows, whether a new recording begins with it, and how many there are. A recording that is
            shorter than a block goes on with the next one.
        """
        after = self._with_lengths(lengths)
        step, found, number = self._fitting(after), [], 0
        for r in range(len(self.recordings) - 1, len(after)):
            at = self.recordings[r] if r < len(self.recordings) else 0
            while at < after[r]:
                stop = self._end((self._ended(at, step) + 1) * step)
                end = min(stop, after[r])
                windows = torch.tensor(range(at + -at % self.stride, end, self.stride), dtype=torch.long) - at + number
                found.append(Cut(windows, r, end == stop))
                at, number = end, number + end - at
        return found

    def extended(
        self,
        lengths: Sequence[tuple[bool, int]],
        sums: Callable[[Sequence[Tensor], Sequence[Tensor | None]], Iterable[Part]],
        forget: float | None = None,
    ) -> Ledger:
        """Return the ledger with new windows.

        Parameters
        ----------
        lengths : sequence of (bool, int)
            As in `plan`.
        sums : callable
            Returns the sums of several sets of windows, given the sets and the weights of their windows.
        forget : float, optional
            Half-life: a window counts half as much after this many further windows.
        """
        cuts, count, recordings = self.plan(lengths), sum(n for _, n in lengths), self._with_lengths(lengths)

        def weights(windows: Tensor) -> Tensor | None:
            return None if forget is None else torch.exp2(-(count - 1 - windows.double()) / forget)

        now = self.faded(1.0 if forget is None else 2.0 ** (-count / forget)).lengthened(self._fitting(recordings))
        wanted = [cut.windows for cut in cuts if len(cut.windows)]
        parts = iter(sums(wanted, [weights(windows) for windows in wanted]))
        blocks, added, recording = [*now.blocks], [] if now.whole is None else [now.whole], len(self.recordings) - 1
        tail, inside = now.tail, now.tail_windows
        for cut in cuts:
            if cut.recording != recording:
                tail, inside, recording = None, 0, cut.recording
            if len(cut.windows):
                part, inside = next(parts), inside + len(cut.windows)
                tail, added = part if tail is None else tail + part, [*added, part]
            if cut.whole and tail is not None:
                blocks.append(Block(tail, inside, recording))
                tail, inside = None, 0
        whole = total(added) if added else None
        return replace(now, recordings=recordings, blocks=tuple(blocks), tail=tail, tail_windows=inside, whole=whole)

    def faded(self, factor: float) -> Ledger:
        """Return the ledger with everything counting `factor` times."""
        if factor == 1:
            return self
        tail, whole = (None if part is None else part.scaled(factor) for part in (self.tail, self.whole))
        blocks = tuple(replace(block, fade=factor * block.fade) for block in self.blocks)
        return replace(self, blocks=blocks, tail=tail, whole=whole)

    def without_first(self, count: int) -> Ledger:
        """Return the ledger of one recording, of equally long blocks, without its first ones."""
        if len(self.recordings) > 1 or self.first % (self.count * self.stride):
            raise ValueError("blocks can be taken out of one recording only, and if all are equally long.")
        left = self.blocks[count:]
        parts = [*(block.part for block in left), *([] if self.tail is None else [self.tail])]
        recordings = (self.recordings[0] - count * self.length,)
        return replace(self, recordings=recordings, blocks=left, whole=total(parts) if parts else None)

    def lengthened(self, step: int) -> Ledger:
        """Return the ledger with longer blocks; `step` is the present one times a power of 2."""
        now = self
        while now.step < step:
            now = now._doubled()
        return now

    def _doubled(self) -> Ledger:
        blocks, tail, inside = [], self.tail, self.tail_windows
        for recording in range(len(self.recordings)):
            mine = [block for block in self.blocks if block.recording == recording]
            for a, b in zip(mine[::2], mine[1::2], strict=False):
                blocks.append(Block(a.part + b.part, a.windows + b.windows, recording))
            if len(mine) % 2 and recording == len(self.recordings) - 1:
                last = mine[-1].part
                tail, inside = last if tail is None else last + tail, inside + mine[-1].windows
        return replace(self, step=2 * self.step, blocks=tuple(blocks), tail=tail, tail_windows=inside)

    def merged(self, other: Ledger) -> Ledger:
        """Return the ledger of this one's recordings and then those of another one with the same layout at first."""
        if (self.first, self.count, self.stride) != (other.first, other.count, other.stride):
            raise ValueError("merge: the sums are of blocks of other lengths. Both models must come from one fit.")
        if not other.windows or not self.windows:
            return self if self.windows else other
        recordings = self.recordings + other.recordings
        step = replace(self, step=max(self.step, other.step))._fitting(recordings)
        # What belongs to no whole block of a recording that ended counts for weights only.
        one, two = self.lengthened(step), other.lengthened(step)
        assert one.whole is not None and two.whole is not None
        later = tuple(replace(block, recording=block.recording + len(self.recordings)) for block in two.blocks)
        return replace(two, recordings=recordings, blocks=one.blocks + later, whole=one.whole + two.whole)
