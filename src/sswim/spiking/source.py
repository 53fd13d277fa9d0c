"""Hidden spikes and target trains, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sswim.data.tensors import require_finite
from sswim.data.windows import Samples, batches
from sswim.network.layer import Workspace
from sswim.network.network import SpikingNetwork

__all__ = ["SpikeSource", "check_trains"]


class SpikeSource:
    """Hidden spikes and target trains, batch by batch; the spikes are kept where that takes a quarter of the memory."""

    def __init__(self, network: SpikingNetwork, samples: Samples, size: int, budget: int) -> None:
        self._network, self._samples, self._size = network, samples, size
        self._filters, self._work = network.hidden_filters(), [Workspace() for _ in network.layers]
        keep = len(samples) * network.hidden[-1] * network.steps <= budget / 4
        self._kept: list[Tensor] | None = [] if keep else None

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield spikes (N, S, B) and trains (C, H, B), in the network's dtype."""
        like = self._network.readout.weights
        parts = batches(len(self._samples), self._size)
        seen = self._kept is not None and len(self._kept) == len(parts)
        for number, part in enumerate(parts):
            y = self._samples.targets(part)
            if seen:
                assert self._kept is not None
                spikes = self._kept[number].to(like.dtype)
            else:
                x = self._samples.inputs(part)
                require_finite(x, y)
                spikes = self._network.hidden_spikes(x, self._filters, self._work)[-1]
                if self._kept is not None:
                    self._kept.append(spikes.to(torch.uint8))
            yield spikes, y.to(like).permute(2, 1, 0).contiguous()


def check_trains(trains: Tensor) -> None:
    """Refuse trains that hold anything but 0 and 1."""
    if not bool(((trains == 0) | (trains == 1)).all()):
        odd = trains[(trains != 0) & (trains != 1)].flatten()[0]
        raise ValueError(f"trains must hold 0 and 1 only, 1 at steps with a spike, got {float(odd):g}.")
