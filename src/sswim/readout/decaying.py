"""The readout of traces: at the window's end, every output reads what is left of all spikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sswim.network.layer import SpikingLayer, decays
from sswim.network.output import Reader

__all__ = ["TraceReadout", "check_memory"]


def check_memory(features: int, budget: int, remedy: str) -> None:
    """Refuse to sum up products of more features than memory has room for."""
    if 24 * features**2 > budget:
        need = f"{24 * features**2 / 1e9:.1f} GB"
        raise ValueError(f"memory: the sums of {features:,} features take {need}, got {budget / 1e9:g} GB. {remedy}")


class TraceReadout(nn.Module):
    r"""Read the traces of all hidden layers' spikes at one step, the window's end (see `sswim.network.Stream`).

    Parameters
    ----------
    traces, outputs, horizon : int
        Number of traces, of outputs, and of steps that each output has weights for.
    constants : sequence of float
        Time constants of the traces, in steps.
    roots : bool
        Whether the outputs read the square roots of the traces.

    Attributes
    ----------
    weights : Parameter of shape (horizon * outputs, traces)
    biases : Parameter of shape (horizon * outputs,)
    """

    def __init__(
        self,
        traces: int,
        outputs: int,
        horizon: int,
        *,
        constants: Sequence[float],
        roots: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.outputs, self.horizon, self.roots = outputs, horizon, roots
        self.constants = tuple(float(c) for c in constants)
        self.weights = nn.Parameter(torch.zeros(horizon * outputs, traces, dtype=dtype))
        self.biases = nn.Parameter(torch.zeros(horizon * outputs, dtype=dtype))

    def simulated(self, window: int) -> int:
        """Return how many steps of the hidden layers matter: those of the window."""
        return window

    def reader(self, window: int, start: int | None = None) -> tuple[int, Reader]:
        """Return how many steps have to be simulated, and a function that reads them."""
        return window, self._read

    def read_through(
        self, spikes: Sequence[Tensor], rows: Tensor | None, fire: Callable[[SpikingLayer, Tensor], Tensor]
    ) -> Tensor:
        """Return the output (batch, horizon, outputs) with gradients."""
        return self._read(spikes, rows)

    def _read(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return the output (batch, horizon, outputs) from spikes (neurons, window, batch)."""
        age = torch.arange(spikes[0].shape[1] - 1, -1, -1)
        decay = decays(torch.tensor(self.constants), age).to(self.weights)  # (K, O)
        traces = torch.cat([torch.matmul(decay, a.to(decay)).flatten(0, 1) for a in spikes])  # (N K, B)
        return self(traces[:, None])[:, 0].T.reshape(-1, self.horizon, self.outputs)

    def clear(self) -> None:
        """Set weights and biases to 0, before training from scratch."""
        self.weights.zero_(), self.biases.zero_()

    def features(self, traces: Tensor) -> Tensor:
        """Return what the weights are multiplied by, from traces: these, or their roots."""
        return traces.sqrt() if self.roots else traces

    def forward(self, traces: Tensor) -> Tensor:
        """Map traces (traces, steps, batch) to outputs (horizon * outputs, steps, batch)."""
        found = torch.addmm(self.biases[:, None], self.weights, self.features(traces).flatten(1))
        return found.view(-1, *traces.shape[1:])
