"""Augmentation: changed copies of training samples. Sums add up, so copies cost a pass over them and no memory.

A copy is made when a batch asks for it: its channels move, or its time runs faster or slower.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from sswim.data.labelled import LabelledSamples
from sswim.data.windows import Index, Split, Subset
from sswim.network.events import EventBatch
from sswim.network.grid import split_layout
from sswim.network.network import Inputs
from sswim.options import Options, check_integer, check_positive

__all__ = [
    "Augmentation",
    "Augmented",
    "Change",
    "Mirror",
    "Scene",
    "Shifts",
    "Stretch",
    "augmented",
    "check_augment",
    "combine",
]


@dataclass(frozen=True)
class Scene:
    """What samples show.

    Attributes
    ----------
    layout : tuple of int or None
        How channels are laid out; None if that is not known.
    timed : bool
        Whether samples have a time of their own: signals and events do, images do not.
    """

    layout: tuple[int, ...] | None
    timed: bool

    def numbers(self, who: str) -> np.ndarray:
        """Return the numbers of the channels, of shape (maps, rows, columns) or (maps, channels); `who` asks for them."""
        if self.layout is None:
            raise ValueError(
                f"augment: {who} must know how channels are laid out. Pass images (samples, rows, columns), or a layout such "
                "as fields=(28, 28)."
            )
        axes = self.layout
        try:
            maps, space = split_layout(axes)
        except ValueError:
            raise ValueError(
                f"augment: {who} takes channels laid out along 1 or 2 axes, and a short first or last axis of maps (colours, "
                f"polarities), got {axes}."
            ) from None
        numbers = np.arange(int(np.prod(axes)))
        last = len(axes) == 3 and space == axes[:2]  # as colours often are
        return np.moveaxis(numbers.reshape(*space, maps), -1, 0) if last else numbers.reshape(maps, *space)


@dataclass(frozen=True)
class Change:
    """What is done to a sample.

    Attributes
    ----------
    source : Tensor of shape (channels,) or None
        Which channel each channel takes its values from; -1 for one that shows nothing. None: channels stay.
    stretch : float
        What times are multiplied by.
    """

    source: Tensor | None = None
    stretch: float = 1.0

    def then(self, other: Change) -> Change:
        """Return both changes, one after the other."""
        first, second = self.source, other.source
        if first is not None and second is not None:
            second = torch.cat([first, torch.tensor([-1])])[second]
        return Change(first if second is None else second, self.stretch * other.stretch)

    def target(self) -> Tensor:
        """Return where each channel goes, (channels,); -1 for nowhere."""
        assert self.source is not None
        found = torch.full_like(self.source, -1)
        to = (self.source >= 0).nonzero()[:, 0]
        found[self.source[to]] = to
        return found

    def values(self, values: Tensor, blank: float) -> Tensor:
        """Return changed intensities (samples, channels), or signals (samples, steps, channels); `blank` shows nothing."""
        if self.source is not None:
            values = torch.cat([values, values.new_full((*values.shape[:-1], 1), blank)], dim=-1)[..., self.source]
        if self.stretch == 1:
            return values
        steps = values.shape[1]
        at = torch.arange(steps, dtype=torch.float64) / self.stretch
        low = at.floor().long().clamp(max=steps - 1)
        part = (at - low)[:, None]
        early, late = values[:, low].double(), values[:, (low + 1).clamp(max=steps - 1)].double()
        return early + part.clamp(max=1) * (late - early)


@dataclass(frozen=True)
class Augmentation(Options):
    """Changed copies of training samples. Variants are `Shifts`, `Mirror` and `Stretch`."""

    @abstractmethod
    def changes(self, scene: Scene) -> list[Change]:
        """Return what is done to a sample, one change for each copy; refuse samples that this does not suit."""


@dataclass(frozen=True)
class Shifts(Augmentation):
    """Copies that are moved along the axes of an image, a camera or a cochlea. Nothing comes in from the other side.

    Parameters
    ----------
    reach : int
        The largest distance, in pixels or channels. All distances up to it are taken, in both directions.
    diagonal : bool
        Whether copies move along several axes at once too: 8 copies and not 4, for an image and a reach of 1.

    Examples
    --------
    >>> [change.source.tolist() for change in Shifts(1).changes(Scene((3,), timed=True))]
    [[1, 2, -1], [-1, 0, 1]]
    """

    reach: int = 1
    diagonal: bool = False

    def __post_init__(self) -> None:
        check_integer("Shifts: reach", self.reach, 1)

    def changes(self, scene: Scene) -> list[Change]:
        """Return one change for each direction and distance."""
        numbers = scene.numbers("Shifts")
        space = numbers.shape[1:]
        if self.reach >= min(space):
            raise ValueError(
                f"augment: Shifts({self.reach}) moves everything out of an axis of {min(space)} channels. Use a shorter reach."
            )
        found = []
        for by in product(range(-self.reach, self.reach + 1), repeat=len(space)):
            axes = sum(step != 0 for step in by)
            if axes == 1 or (axes and self.diagonal):
                found.append(Change(_by_number(numbers, _moved(numbers, by))))
        return found


@dataclass(frozen=True)
class Mirror(Augmentation):
    """One copy with left and right exchanged. Not for digits and letters, which do not stay what they are.

    Examples
    --------
    >>> Mirror().changes(Scene((2, 2), timed=False))[0].source.tolist()
    [1, 0, 3, 2]
    """

    def changes(self, scene: Scene) -> list[Change]:
        """Return the one change."""
        numbers = scene.numbers("Mirror")
        if numbers.ndim < 3:
            raise ValueError(
                f"augment: Mirror needs an image with rows and columns, got channels in a row, {scene.layout}. Pass a layout "
                "such as fields=(28, 28)."
            )
        return [Change(_by_number(numbers, numbers[..., ::-1]))]


@dataclass(frozen=True)
class Stretch(Augmentation):
    """Copies whose time runs slower or faster: the times of events are multiplied, and signals are interpolated.

    Samples keep their number of steps: later events are ignored, and the last row of a signal that has become shorter stays.

    Parameters
    ----------
    factors : sequence of float
        What times are multiplied by, one factor for each copy. Above 1, samples become longer.

    Examples
    --------
    >>> signal = torch.tensor([[[0.0], [1.0], [2.0], [3.0]]])
    >>> [change.values(signal, 0.0).flatten().tolist() for change in Stretch((0.5, 2.0)).changes(Scene(None, timed=True))]
    [[0.0, 2.0, 3.0, 3.0], [0.0, 0.5, 1.0, 1.5]]
    """

    factors: Sequence[float] = (0.9, 1.1)

    def __post_init__(self) -> None:
        if isinstance(self.factors, str) or not isinstance(self.factors, Iterable) or not list(self.factors):
            raise ValueError(f"Stretch: factors must hold at least one number, such as (0.9, 1.1), got {self.factors!r}.")
        for factor in self.factors:
            check_positive("Stretch: factors", factor)

    def changes(self, scene: Scene) -> list[Change]:
        """Return one change for each factor."""
        if not scene.timed:
            raise ValueError("augment: Stretch needs samples with a time of their own, signals or events, got intensities.")
        return [Change(stretch=float(factor)) for factor in self.factors]


def _moved(numbers: np.ndarray, by: Sequence[int]) -> np.ndarray:
    """Return channels (maps, *space) moved `by` so much along each axis in space; -1 comes in."""
    found = np.full_like(numbers, -1)
    to = tuple(slice(max(step, 0), n + min(step, 0)) for step, n in zip(by, numbers.shape[1:], strict=True))
    origin = tuple(slice(max(-step, 0), n + min(-step, 0)) for step, n in zip(by, numbers.shape[1:], strict=True))
    found[(slice(None), *to)] = numbers[(slice(None), *origin)]
    return found


def _by_number(numbers: np.ndarray, sources: np.ndarray) -> Tensor:
    """Return the source of each channel, in the order of their numbers."""
    found = np.empty(numbers.size, dtype=np.int64)
    found[numbers.ravel()] = sources.ravel()
    return torch.from_numpy(found)


def check_augment(name: str, value: object) -> tuple[Augmentation, ...]:
    """Return augmentations: none, one, or several."""
    given = () if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for one in given:
        if not isinstance(one, Augmentation):
            raise TypeError(
                f"{name} must be None, an object such as Shifts(1), Mirror() or Stretch((0.9, 1.1)) from sswim.data, or a list "
                f"of these, got {one!r}."
            )
    return given


def combine(augment: Sequence[Augmentation], scene: Scene) -> tuple[Change, ...]:
    """Return the changes of all copies, the original first. Several augmentations are combined in all ways."""
    found = [Change()]
    for one in augment:
        found = [first.then(second) for second in (Change(), *one.changes(scene)) for first in found]
    return tuple(found)


class Augmented(Subset):
    """Some samples of another source, and their changed copies.

    The originals come first. Then each sample comes again and again, every time with another change. Neighbours have different
    changes, so that any run of samples that are in random order stands for all copies.

    Parameters
    ----------
    samples : LabelledSamples
    index : Tensor of shape (originals,)
        The samples that copies are made of.
    changes : sequence of Change
        The first one changes nothing.
    """

    samples: LabelledSamples

    def __init__(self, samples: LabelledSamples, index: Tensor, changes: Sequence[Change]) -> None:
        super().__init__(samples, index)
        self._changes = tuple(changes)

    def __len__(self) -> int:
        return len(self.index) * len(self._changes)

    @property
    def originals(self) -> int:
        """Number of samples at the beginning that are no copies."""
        return len(self.index)

    @property
    def marks(self) -> str:
        """What was done to the samples, as a text."""
        return str([(change.stretch, None if change.source is None else change.source.tolist()) for change in self._changes])

    def numbers(self, index: Index) -> Tensor:
        """Return the numbers of the originals in the other source."""
        return self._find(index)[0]

    def _find(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return the original of some samples, and which change makes them of it."""
        number = torch.arange(*index.indices(len(self))) if isinstance(index, slice) else index
        place, turn = number % max(len(self.index), 1), number // max(len(self.index), 1)
        change = 1 + (turn - 1 + place) % max(len(self._changes) - 1, 1)
        return self.index[place], torch.where(turn == 0, 0, change)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs of the samples numbered `index`."""
        numbers, which = self._find(index)
        stretch = torch.tensor([change.stretch for change in self._changes], dtype=torch.float64)[which]
        values = self.samples.values(numbers, stretch)
        if isinstance(values, EventBatch):
            return self._events(values, which)
        if bool((stretch != 1).any()):
            values = values.double()
        for number in which.unique().tolist():
            rows = (which == number).nonzero()[:, 0]
            values[rows] = self._changes[number].values(values[rows], self.samples.blank)
        return self.samples.encode(values, numbers, which)

    def _events(self, events: EventBatch, which: Tensor) -> EventBatch:
        """Return events whose channels have moved; their times are already those of the copies."""
        channels, change = events.channels.clone(), which[events.samples]
        for number in which.unique().tolist():
            if self._changes[number].source is not None:
                mine = (change == number).nonzero()[:, 0]
                channels[mine] = self._changes[number].target()[channels[mine]]
        seen = channels >= 0
        return replace(events, times=events.times[seen], channels=channels[seen], samples=events.samples[seen])


def augmented(split: Split, changes: Sequence[Change]) -> Split:
    """Return a split with copies of its training samples."""
    if len(changes) < 2:
        return split
    whole, train = split.whole, split.train
    assert isinstance(whole, LabelledSamples) and isinstance(train, Subset)
    return replace(split, train=Augmented(whole, torch.arange(len(whole))[train.numbers(slice(None))], changes))
