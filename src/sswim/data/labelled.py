"""Samples with a class each."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from sswim.data.events import EventStreams
from sswim.data.spikes import SpikeEncoder
from sswim.data.windows import Index, Samples
from sswim.network.events import EventBatch, join_events
from sswim.network.network import Inputs

__all__ = ["LabelledSamples", "digests"]


class LabelledSamples(Samples):
    """Inputs with a class each, encoded as they are asked for.

    Parameters
    ----------
    X : Tensor of shape (samples, channels), intensities, or (samples, steps, channels), or EventStreams
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
    """

    def __init__(
        self,
        X: Tensor | EventStreams,
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
    ) -> None:
        self.X, self.labels, self.classes, self.horizon, self.voltage = X, labels, classes, horizon, voltage
        self._encoder, self._seed, self._scale, self._class_weights = encoder, seed, scale, class_weights
        self._first = first
        self.spiking = encoder is not None or isinstance(X, EventStreams)

    def __len__(self) -> int:
        return len(self.X)

    def inputs(self, index: Index) -> Inputs:
        """Return the inputs (batch, window, channels), or the events, of the samples numbered `index`."""
        numbers = torch.arange(len(self.X))[index]
        if isinstance(self.X, EventStreams):
            return self.X.batch(numbers)
        if self._encoder is None:
            return self.X[index].float()
        intensity = self._intensities(self.X[numbers])
        if not self._encoder.draws:
            return self._encoder.encode(intensity, torch.Generator())
        # Each with a generator of its own, so that a sample's spikes are the same whoever asks for it.
        found: list[Tensor] = []
        events: list[EventBatch] = []
        for number, one in zip(numbers.tolist(), intensity[:, None], strict=True):
            state = np.random.SeedSequence(self._seed, spawn_key=(self._first + number,)).generate_state(1)
            spikes = self._encoder.encode(one, torch.Generator().manual_seed(int(state[0])))
            events.append(spikes) if isinstance(spikes, EventBatch) else found.append(spikes)
        if events:
            return join_events(events)
        return torch.cat(found) if found else torch.zeros(0, self._encoder.steps, self.X.shape[1])

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


def digests(values: Tensor | EventStreams) -> Tensor:
    """Return a number in [0, 1) for each sample, which its own contents determine: as good as random.

    So a sample is for validation whenever and in whose company it comes, and so are copies of it.
    """

    def contents(sample: Tensor | EventBatch) -> bytes:
        if isinstance(sample, EventBatch):
            return sample.times.float().numpy().tobytes() + sample.channels.int().numpy().tobytes()
        return sample.float().numpy().tobytes()

    found = torch.empty(len(values), dtype=torch.float64)
    for part in torch.arange(len(values)).split(1024):
        batch = values[part]
        single = torch.arange(len(part))[:, None]
        samples = [batch.batch(one) for one in single] if isinstance(batch, EventStreams) else list(batch)
        hashed = [int.from_bytes(blake2b(contents(s), digest_size=4).digest(), "little") for s in samples]
        found[part] = torch.tensor(hashed, dtype=torch.float64) / 2**32
    return found
