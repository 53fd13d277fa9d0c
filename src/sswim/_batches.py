"""What a training goes through: batches drawn from samples, or as a loader has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from sswim._random import Randomness
from sswim.events import dense
from sswim.network import SpikingNetwork
from sswim.sampling import as_samples, split_samples
from sswim.windows import Samples, require_finite

__all__ = ["Batch", "LoaderBatches", "SampleBatches", "training_batches"]

Batch = tuple[Tensor, Tensor, dict[str, Tensor]]


class SampleBatches:
    """Batches drawn from a source of samples. Those that belong together, by its `together`, stay in one batch, in order."""

    def __init__(self, samples: Samples, size: int, parts: int, random: Randomness) -> None:
        self.samples, self.random = samples, random
        self.group = getattr(samples, "together", 1)
        self.size = max(size // self.group, 1)
        self.parts = max(parts // self.group, 1)

    def __call__(self, epoch: int | None) -> Iterator[list[tuple[float, Batch]]]:
        """Yield batches as lists of parts with their weights: shuffled in an epoch, and in order without one."""
        count = len(self.samples) // self.group
        order = torch.arange(count) if epoch is None else torch.randperm(count, generator=self.random("shuffle", epoch))
        for batch in order.split(self.size):
            yield [(len(part) / len(batch), self._batch(part)) for part in batch.split(self.parts)]

    def fingerprint(self) -> str:
        """Return a hash of how many samples there are, and of the first and the last: other data has another."""
        count = len(self.samples) // self.group
        x, y, _ = self._batch(torch.arange(count)[:: max(count - 1, 1)])
        told = repr((count, tuple(x.shape), tuple(y.shape))).encode()
        return hashlib.sha256(told + x.cpu().numpy().tobytes() + y.cpu().numpy().tobytes()).hexdigest()

    def _batch(self, numbers: Tensor) -> Batch:
        index = (numbers[:, None] * self.group + torch.arange(self.group)).flatten()
        x, y = dense(self.samples.inputs(index)), self.samples.targets(index)
        require_finite(x, y)
        context = getattr(self.samples, "context", None)
        return x, y, {} if context is None else context(index)


class LoaderBatches:
    """Batches as a loader has them. What it draws at random is drawn by epoch, whatever was drawn before."""

    def __init__(self, loader: Iterable[Any], parts: int, random: Randomness) -> None:
        self.loader, self.parts, self.random = loader, parts, random

    def fingerprint(self) -> str:
        """Return nothing: what a loader has first may be another thing each time."""
        return ""

    def __call__(self, epoch: int | None) -> Iterator[list[tuple[float, Batch]]]:
        """Yield batches as lists of parts with their weights."""
        seed = self.random("shuffle", 0 if epoch is None else epoch).initial_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for x, y in self.loader:
                require_finite(x, y)
                parts = zip(x.split(self.parts), y.split(self.parts), strict=True)
                yield [(len(part) / len(x), (part, target, {})) for part, target in parts]


def training_batches(
    network: SpikingNetwork, X: Any, Y: Any, validation: Any, size: int, parts: int, random: Randomness
) -> tuple[Any, Any]:
    """Return training and validation batches; the latter may be None."""

    def is_loader(data: Any) -> bool:
        return not hasattr(data, "inputs") and not hasattr(data, "shape") and hasattr(data, "__iter__")

    if Y is None and is_loader(X):
        if isinstance(validation, float):
            raise ValueError("validation: a loader can not be split. Pass validation samples, a loader of them, or None.")
        first = _first(X)
        if first is None:
            raise ValueError("X: the loader is empty: it must hold at least one batch (x, y).")
        x, y = first
        as_samples(x, y, network)
        train: Any = LoaderBatches(X, parts, random)
        if validation is None:
            return train, None
        if is_loader(validation) and not isinstance(validation, tuple):
            if _first(validation) is None:
                raise ValueError("validation: the loader is empty: it must hold at least one batch (x, y).")
            return train, LoaderBatches(validation, parts, random)
        inputs, targets = validation if isinstance(validation, tuple) else (validation, None)
        return train, SampleBatches(as_samples(inputs, targets, network), size, parts, random)
    samples = as_samples(X, Y, network)
    if validation is None:
        return SampleBatches(samples, size, parts, random), None
    samples, held_out = split_samples(samples, validation, network)
    return SampleBatches(samples, size, parts, random), SampleBatches(held_out, size, parts, random)


def _first(loader: Iterable[Any]) -> Any:
    """Return a loader's first batch, or None, and leave the user's random numbers alone."""
    with torch.random.fork_rng(devices=[]):
        return next(iter(loader), None)
