"""Samples with a class each, and an output layer that may be kept from spiking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sswim.events import EventStreams, join_events
from sswim.network import SpikingNetwork
from sswim.windows import Index

__all__ = ["LabelledSamples", "voltage_output"]


class LabelledSamples:
    """Inputs with a class each, encoded as they are asked for.

    Parameters
    ----------
    X : Tensor of shape (samples, channels), intensities, or (samples, steps, channels), or EventStreams
    labels : Tensor of shape (samples,)
    classes, horizon : int
    voltage : float
        Target of the right class, and minus that of the others (the paper's surrogate voltage).
    encoder : Encoder, optional
        For intensities.
    seed : int
        Of what the encoder draws.
    scale : tuple of float, optional
        Intensities that are brought to 0 and 1; beyond, they are cut off.
    """

    def __init__(
        self,
        X: Any,
        labels: Tensor,
        classes: int,
        horizon: int,
        voltage: float,
        encoder: Any = None,
        seed: int = 0,
        scale: tuple[float, float] | None = None,
    ) -> None:
        self.X, self.labels, self.classes, self.horizon, self.voltage = X, labels, classes, horizon, voltage
        self.encoder, self._seed, self._scale = encoder, seed, scale

    def __len__(self) -> int:
        return len(self.X)

    def inputs(self, index: Index) -> Any:
        """Return the inputs (batch, window, channels), or the events, of the samples numbered `index`."""
        numbers = torch.arange(len(self.X))[index]
        if isinstance(self.X, EventStreams):
            return self.X.batch(numbers)
        if self.encoder is None:
            return self.X[index].float()
        if not getattr(self.encoder, "draws", True):
            return self.encoder.encode(self._intensities(numbers), torch.Generator())
        # Each with a generator of its own, so that a sample's spikes are the same whoever asks for it.
        encode, found = getattr(self.encoder, "events", self.encoder.encode), []
        for number, intensity in zip(numbers.tolist(), self._intensities(numbers)[:, None], strict=True):
            state = np.random.SeedSequence(self._seed, spawn_key=(number,)).generate_state(1)
            generator = torch.Generator().manual_seed(int(state[0]))
            found.append(encode(intensity, generator))
        if not found:
            return torch.zeros(0, self.encoder.steps, self.X.shape[1])
        return torch.cat(found) if isinstance(found[0], Tensor) else join_events(found)

    def _intensities(self, numbers: Tensor) -> Tensor:
        """Return intensities (samples, channels) in [0, 1]."""
        values = self.X[numbers].float()
        if self._scale is None:
            return values
        return ((values - self._scale[0]) / (self._scale[1] - self._scale[0])).clamp(0, 1)

    def targets(self, index: Index) -> Tensor:
        """Return the surrogate voltages (batch, horizon, classes)."""
        hot = torch.nn.functional.one_hot(self.labels[index], self.classes).float()
        return (self.voltage * (2 * hot - 1))[:, None].expand(-1, self.horizon, -1)


@contextmanager
def voltage_output(network: SpikingNetwork) -> Iterator[None]:
    """Let the output layer put out its voltages inside, whether it spikes or not."""
    spiking, network.readout.spiking = network.readout.spiking, False
    try:
        yield
    finally:
        network.readout.spiking = spiking
