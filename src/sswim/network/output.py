"""What a network needs of its output, and the paper's output layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from sswim.network.kernels import Kernel
from sswim.network.layer import SpikingLayer

__all__ = ["Reader", "Readout", "VoltageReadout"]


class Reader(Protocol):
    """Reads what the hidden layers did."""

    def __call__(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return the output (batch, time, outputs) from the spikes (neurons, steps, batch) of all hidden layers.

        A readout with lags also needs the window's rows (batch, window, inputs), and what is known ahead, (sets, known,
        horizon), if anything is.
        """
        ...


class Readout(Protocol):
    """What a network needs of its output: a torch module that reads the hidden spikes."""

    weights: nn.Parameter

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        ...

    @property
    def constants(self) -> tuple[float, ...]:
        """Time constants of the traces that are read, none for a voltage."""
        ...

    def simulated(self, window: int) -> int:
        """Return how many steps of the hidden layers matter at most."""
        ...

    def reader(self, window: int, start: int | None = None) -> tuple[int, Reader]:
        """Return how many steps have to be simulated, and a function that reads them, without gradients.

        A voltage is read from step `start` on. Default: where the horizon begins.
        """
        ...

    def read_through(
        self, spikes: Sequence[Tensor], rows: Tensor | None, fire: Callable[[SpikingLayer, Tensor], Tensor]
    ) -> Tensor:
        """Return the output on the horizon (batch, horizon, outputs) with gradients; `fire` simulates a layer with them."""
        ...

    def clear(self) -> None:
        """Forget what was fitted, before training from scratch."""
        ...


class VoltageReadout(SpikingLayer):
    """The paper's output layer: its voltage draws the horizon, or it spikes (remark ``rem:ff_snn``).

    Parameters
    ----------
    senders, outputs : int
    kernel, refractory : Kernel
    start, horizon : int
        The output lives on the steps ``[start, start + horizon)``.
    spiking : bool
        Whether the output layer spikes or puts out its voltage.
    """

    def __init__(
        self,
        senders: int,
        outputs: int,
        kernel: Kernel,
        refractory: Kernel,
        *,
        start: int,
        horizon: int,
        spiking: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(senders, outputs, kernel, refractory, spiking=spiking, dtype=dtype)
        self.start, self.horizon = start, horizon

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.neurons

    @property
    def constants(self) -> tuple[float, ...]:
        """No traces are read."""
        return ()

    def simulated(self, window: int) -> int:
        """Return how many steps of the hidden layers matter at most."""
        return self.start + self.horizon

    def reader(self, window: int, start: int | None = None) -> tuple[int, Reader]:
        """Return how many steps have to be simulated, and a function that reads the last layer's spikes."""
        steps, start = self.start + self.horizon, self.start if start is None else start
        filters = self.filters(steps, steps, 0 if self.spiking else start)  # spikes depend on their past
        used = (filters != 0).any(dim=1).any(dim=0).nonzero()
        last = int(used.max()) + 1 if len(used) else 1  # no output sees a hidden step after it
        filters = filters[:, :, :last].contiguous()

        def read(spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
            v = self.potentials(spikes[-1][:, :last], filters)
            if self.spiking:
                v = self.fire(v.detach().clone())[:, start:]
            return v.permute(2, 1, 0)

        return last, read

    def read_through(
        self, spikes: Sequence[Tensor], rows: Tensor | None, fire: Callable[[SpikingLayer, Tensor], Tensor]
    ) -> Tensor:
        """Return the output on the horizon, (batch, horizon, outputs), with gradients."""
        if self.spiking:
            return fire(self, spikes[-1])[:, self.start :].permute(2, 1, 0)
        return self.respond(spikes[-1], self.start + self.horizon, self.start).permute(2, 1, 0)

    def clear(self) -> None:
        """Do nothing: `initialize` draws new weights for this layer too."""

    @contextmanager
    def as_voltage(self) -> Iterator[None]:
        """Put out voltages inside, whether the layer spikes or not."""
        spiking, self.spiking = self.spiking, False
        try:
            yield
        finally:
            self.spiking = spiking
