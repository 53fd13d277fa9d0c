"""Batches for training: drawn from samples, or from a loader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.tensors import as_samples, as_split, require_finite
from sswim.data.windows import Samples
from sswim.network.events import dense
from sswim.network.network import SpikingNetwork
from sswim.options import Randomness

__all__ = ["Batch", "Batches", "Data", "LoaderBatches", "SampleBatches", "training_batches"]

# Inputs, targets, and the rows that a readout with lags sees.
Batch = tuple[Tensor, Tensor, Tensor | None]
Loader = Iterable[tuple[Tensor, Tensor]]
Data = npt.ArrayLike | Samples | Loader


class Batches(Protocol):
    """Batches that can be iterated several times."""

    def __call__(self, epoch: int | None) -> Iterator[list[tuple[float, Batch]]]:
        """Yield batches as lists of parts with their weights: shuffled in an epoch, and in order without one."""
        ...

    def fingerprint(self) -> str:
        """Return a hash of the data, or nothing if it is not the same each time."""
        ...


class SampleBatches:
    """Batches drawn from samples. Those that belong together, by their `together`, stay in one batch, in order."""

    def __init__(self, samples: Samples, size: int, parts: int, random: Randomness) -> None:
        self.samples, self.random, self.group = samples, random, samples.together
        self.size = max(size // self.group, 1)
        self.parts = max(parts // self.group, 1)

    def __call__(self, epoch: int | None) -> Iterator[list[tuple[float, Batch]]]:
        """Yield batches as lists of parts with their weights: shuffled in an epoch, and in order without one."""
        count = len(self.samples) // self.group
        order = torch.arange(count) if epoch is None else torch.randperm(count, generator=self.random("shuffle", epoch))
        for batch in order.split(self.size):
            yield [(len(part) / len(batch), self._batch(part)) for part in batch.split(self.parts)]

    def fingerprint(self) -> str:
        """Return a hash of the number of samples, and of the first and the last: other data has another."""
        count = len(self.samples) // self.group
        x, y, _ = self._batch(torch.arange(count)[:: max(count - 1, 1)])
        shape = repr((count, tuple(x.shape), tuple(y.shape))).encode()
        return hashlib.sha256(shape + x.cpu().numpy().tobytes() + y.cpu().numpy().tobytes()).hexdigest()

    def _batch(self, numbers: Tensor) -> Batch:
        index = (numbers[:, None] * self.group + torch.arange(self.group)).flatten()
        x, y = dense(self.samples.inputs(index)), self.samples.targets(index)
        require_finite(x, y)
        return x, y, self.samples.past(index)


class LoaderBatches:
    """Batches as a loader has them. What it draws at random depends on the epoch alone."""

    def __init__(self, loader: Loader, parts: int, random: Randomness) -> None:
        self.loader, self.parts, self.random = loader, parts, random

    def fingerprint(self) -> str:
        """Return nothing: a loader may begin with another batch each time."""
        return ""

    def __call__(self, epoch: int | None) -> Iterator[list[tuple[float, Batch]]]:
        """Yield batches as lists of parts with their weights."""
        seed = self.random("shuffle", 0 if epoch is None else epoch).initial_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for x, y in self.loader:
                require_finite(x, y)
                parts = zip(x.split(self.parts), y.split(self.parts), strict=True)
                yield [(len(part) / len(x), (part, target, None)) for part, target in parts]


def _is_loader(data: object) -> bool:
    """Return whether data is an iterable of batches rather than an array, samples, or a pair of arrays."""
    return isinstance(data, Iterable) and not isinstance(data, (Samples, tuple)) and not hasattr(data, "shape")


def training_batches(
    network: SpikingNetwork,
    X: Data,
    Y: npt.ArrayLike | None,
    validation: float | Samples | Loader | tuple[npt.ArrayLike, npt.ArrayLike] | None,
    size: int,
    parts: int,
    random: Randomness,
) -> tuple[Batches, Batches | None]:
    """Return training and validation batches; the latter may be None."""
    if Y is None and _is_loader(X):
        if isinstance(validation, float):
            raise ValueError("validation: a loader cannot be split. Pass validation samples, a loader of them, or None.")
        as_samples(*_first("X", X), network)  # type: ignore[arg-type]
        train: Batches = LoaderBatches(X, parts, random)  # type: ignore[arg-type]
        if validation is None:
            return train, None
        if _is_loader(validation):
            _first("validation", validation)  # type: ignore[arg-type]
            return train, LoaderBatches(validation, parts, random)  # type: ignore[arg-type]
        inputs, targets = validation if isinstance(validation, tuple) else (validation, None)
        return train, SampleBatches(as_samples(inputs, targets, network), size, parts, random)
    samples = as_samples(X, Y, network)  # type: ignore[arg-type]
    if validation is None:
        return SampleBatches(samples, size, parts, random), None
    split = as_split(samples, validation, network)  # type: ignore[arg-type]
    return SampleBatches(split.train, size, parts, random), SampleBatches(split.held_out, size, parts, random)


def _first(name: str, loader: Loader) -> tuple[Tensor, Tensor]:
    """Return a loader's first batch, and leave the user's random numbers alone."""
    with torch.random.fork_rng(devices=[]):
        first = next(iter(loader), None)
    if first is None:
        raise ValueError(f"{name}: the loader is empty: it must hold at least one batch (x, y).")
    return first
