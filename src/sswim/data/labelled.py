"""Samples with a class each."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from sswim.data.events import EventStreams
from sswim.data.rows import RowSource, find_runs
from sswim.data.spikes import SpikeEncoder
from sswim.data.windows import Index, Samples
from sswim.network.events import EventBatch, join_events
from sswim.network.network import Inputs

__all__ = ["LabelledSamples", "StoredSamples", "digests"]


class StoredSamples:
    """Samples that lie outside of memory, which batches are read from.

    Parameters
    ----------
    source : RowSource
        One row for each sample.
    shape : tuple of int
        Of a sample.
    index : Tensor of shape (samples,), optional
        Numbers of the samples in the source. Default: all.
    """

    def __init__(self, source: RowSource, shape: tuple[int, ...], index: Tensor | None = None) -> None:
        self.source, self.shape = source, shape
        self._index = torch.arange(source.shape[0]) if index is None else index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, index: Index) -> StoredSamples:
        """Return some of the samples, without reading them."""
        return StoredSamples(self.source, self.shape, self._index[index])

    def batch(self, index: Tensor) -> Tensor:
        """Return the samples numbered `index`: neighbours are read in one run."""
        runs, at = find_runs([self.source.shape[0]], self._index[index], 1)
        parts = [np.zeros((0, self.source.shape[1])), *(self.source.read(first, last) for _, first, last in runs)]
        return torch.from_numpy(np.concatenate(parts))[at].reshape(-1, *self.shape)


class LabelledSamples(Samples):
    """Inputs with a class each, encoded as they are asked for.

    Parameters
    ----------
    X : Tensor of shape (samples, channels), intensities, or (samples, steps, channels), or EventStreams, or StoredSamples
    labels : Tensor of shape (samples,)
    classes, horizon : int
    voltage : float
        Target of the right class, and minus that of the others (the paper's surrogate voltage).
    encoder : SpikeEncoder, optional
        For intensities.
    seed : int
        Of what the encoder draws.
    scale : tuple of float, optional
        Intensities that are brought to 0 and 1; beyond, they are cut off.
    class_weights : Tensor of shape (classes,), optional
        How much samples of each class count. Default: all alike.
    first : int
        Number of the first sample, for what the encoder draws.
    groups : Tensor of shape (samples,), optional
        The number of each sample's group, such as its speaker. Default: there are no groups.
    """

    def __init__(
        self,
        X: Tensor | EventStreams | StoredSamples,
        labels: Tensor,
        classes: int,
        horizon: int,
        voltage: float,
        *,
        encoder: SpikeEncoder | None = None,
        seed: int = 0,
        scale: tuple[float, float] | None = None,
        class_weights: Tensor | None = None,
        first: int = 0,
        groups: Tensor | None = None,
    ) -> None:
        self.X, self.labels, self.classes, self.horizon, self.voltage = X, labels, classes, horizon, voltage
        self._encoder, self._seed, self._scale, self._class_weights = encoder, seed, scale, class_weights
        self._first, self._groups = first, groups
        self.spiking = encoder is not None or isinstance(X, EventStreams)

    def __len__(self) -> int:
        return len(self.X)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs (batch, window, channels), or the events, of the samples numbered `index`."""
        numbers = torch.arange(len(self.X))[index]
        return self.encode(self.values(numbers), numbers)

    def values(self, numbers: Tensor, stretch: Tensor | None = None) -> Tensor | EventBatch:
        """Return the samples of some numbers as they are; times of events are multiplied by `stretch` (samples,)."""
        if isinstance(self.X, EventStreams):
            return self.X.batch(numbers, stretch)
        return self.X[numbers] if isinstance(self.X, Tensor) else self.X.batch(numbers)

    @property
    def blank(self) -> float:
        """The value of a channel that shows nothing."""
        return 0.0 if self._scale is None else self._scale[0]

    def encode(self, values: Tensor | EventBatch, numbers: Tensor, copies: Tensor | None = None) -> Inputs:
        """Return values as the network takes them. The numbers of samples, and of copies, decide about what is drawn."""
        if isinstance(values, EventBatch):
            return values
        if self._encoder is None:
            return values.float()
        intensity = self._intensities(values)
        if not self._encoder.draws:
            return self._encoder.encode(intensity, torch.Generator())
        # Each with a generator of its own, so that a sample's spikes are the same whoever asks for it.
        found: list[Tensor] = []
        events: list[EventBatch] = []
        which = torch.zeros_like(numbers) if copies is None else copies
        for number, copy, one in zip(numbers.tolist(), which.tolist(), intensity[:, None], strict=True):
            key = (self._first + number, copy) if copy else (self._first + number,)
            state = np.random.SeedSequence(self._seed, spawn_key=key).generate_state(1)
            spikes = self._encoder.encode(one, torch.Generator().manual_seed(int(state[0])))
            events.append(spikes) if isinstance(spikes, EventBatch) else found.append(spikes)
        if events:
            return join_events(events)
        return torch.cat(found) if found else torch.zeros(0, self._encoder.steps, values.shape[1])

    def _intensities(self, values: Tensor) -> Tensor:
        """Return intensities (samples, channels) in [0, 1]."""
        if self._scale is None:
            return values.float()
        # In float64: the range of the intensities may be beyond that of float32.
        return ((values.double() - self._scale[0]) / (self._scale[1] - self._scale[0])).clamp(0, 1).float()

    def targets(self, index: Index) -> Tensor:
        """Return the surrogate voltages (batch, horizon, classes)."""
        hot = torch.nn.functional.one_hot(self.labels[index], self.classes).float()
        return (self.voltage * (2 * hot - 1))[:, None].expand(-1, self.horizon, -1)

    def weights(self, index: Index) -> Tensor | None:
        """Return how much samples count (batch,)."""
        return None if self._class_weights is None else self._class_weights[self.labels[index]]

    def groups(self, index: Index) -> Tensor | None:
        """Return the number of each sample's group (batch,)."""
        return None if self._groups is None else self._groups[index]


def digests(values: Tensor | EventStreams | StoredSamples) -> Tensor:
    """Return a number in [0, 1) for each sample, which its own contents determine: as good as random.

    So a sample is for validation whenever and in whose company it comes, and so are copies of it. The order of its channels
    does not matter, nor do silent ones, nor its unit.
    """
    found = torch.empty(len(values), dtype=torch.float64)
    for part in torch.arange(len(values)).split(1024):
        batch = values[part] if isinstance(values, Tensor) else values.batch(part)
        if isinstance(batch, EventBatch):
            sizes = torch.bincount(batch.samples, minlength=len(part)).tolist()
            ranked = [times.sort().values for times in batch.times.float().split(sizes)]
        else:
            flat = batch.flatten(1).double()
            most = flat.abs().amax(dim=1, keepdim=True)
            flat = (flat / torch.where(most > 0, most, 1.0)).float()
            ranked = [sample[sample != 0] for sample in flat.sort(dim=1).values]
        hashed = [int.from_bytes(blake2b(r.numpy().tobytes(), digest_size=4).digest(), "little") for r in ranked]
        found[part] = torch.tensor(hashed, dtype=torch.float64) / 2**32
    return found
