"""Hidden layers along a series, row by row as hardware would run them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.network.kernels import kernel_taps, refractory_taps
from sswim.network.layer import SpikingLayer, decays, fire

__all__ = ["Stream"]


class Stream:
    r"""Simulate hidden layers along a series, row by row or chunk by chunk, and filter their spikes with decaying exponentials.

    The trace of neuron `i` with time constant :math:`\theta` is :math:`z_i(t) = \sum_{s \le t} a_i(s) e^{-(t - s) / \theta}`.

    Parameters
    ----------
    layers : sequence of SpikingLayer
        The hidden layers, their parameters as they are now.
    constants : sequence of float
        Time constants :math:`\theta` of the traces, in steps.
    reach : int
        Number of steps that a kernel looks back at most; the part of a kernel beyond that is cut off.
    batch : int
        How many series run side by side.
    dtype : torch.dtype, optional
        Of the traces. Default: that of the layers. Spikes are the same in all.

    Notes
    -----
    A windowed network starts anew for every window. A stream starts once: before its first row it has seen zeros and no
    spikes. At a row it shows what a window that ends there shows, except for what lies before that window's first row, and
    that is forgotten: an input is seen for ``delay + support`` steps of each layer, for ``reach`` steps if its kernel has no
    end, and a trace decays exponentially. Time and memory of a step do not depend on how many steps came before.
    """

    def __init__(
        self,
        layers: Sequence[SpikingLayer],
        constants: Sequence[float],
        reach: int,
        batch: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._layers = [_LayerStream(layer, reach, batch) for layer in layers]
        like = layers[0].weights.detach()
        self._constants = torch.as_tensor(constants, dtype=torch.float64)  # (K,)
        neurons = sum(layer.neurons for layer in layers)
        self._traces = like.new_zeros(neurons, len(self._constants), batch, dtype=dtype)  # (N, K, B)
        self._matrices: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def features(self) -> int:
        """Number of traces: neurons of all layers times time constants."""
        return self._traces.shape[0] * self._traces.shape[1]

    @torch.no_grad()
    def advance(self, rows: Tensor) -> Tensor:
        """Take the next rows and return the traces at each of them.

        Parameters
        ----------
        rows : Tensor of shape (inputs, steps, batch)

        Returns
        -------
        Tensor of shape (features, steps, batch)
            Feature ``i * K + k`` is the trace of neuron `i` with constant `k`, neurons of the first layer first.
        """
        spikes, signals = [], rows
        for layer in self._layers:
            signals = layer.advance(signals)
            spikes.append(signals)
        a = spikes[0] if len(spikes) == 1 else torch.cat(spikes)  # (N, T, B)
        n, steps, batch = a.shape
        inside, carried = self._decays(steps)
        z = torch.matmul(inside, a.to(inside.dtype)).view(n, -1, steps, batch)
        z += carried * self._traces[:, :, None, :]
        self._traces = z[:, :, -1].clone()
        return z.view(-1, steps, batch)

    def _decays(self, steps: int) -> tuple[Tensor, Tensor]:
        """Return how spikes of a chunk (K * T, T) and the traces before it (K, T, 1) reach each of its steps."""
        if steps not in self._matrices:
            t = torch.arange(steps)
            inside = decays(self._constants, t[:, None] - t).to(self._traces).reshape(-1, steps)
            carried = decays(self._constants, t + 1).to(self._traces)[:, :, None]
            self._matrices = {steps: (inside, carried)}  # of the last length only, or memory would grow with their number
        return self._matrices[steps]


class _LayerStream:
    """One layer's state: its input within the reach of its kernels, and the inhibition that its spikes have left."""

    def __init__(self, layer: SpikingLayer, reach: int, batch: int) -> None:
        taps = kernel_taps(layer.kernel, layer.delays.detach(), layer.supports.detach(), reach)
        used = (taps != 0).any(dim=0).nonzero()
        self._taps = taps[:, : int(used.max()) + 1 if len(used) else 1]  # (N, R)
        self._weights, self._biases = layer.weights.detach(), layer.biases.detach()[:, None, None]
        self._costs = layer.costs.detach()
        self._inhibition = refractory_taps(layer.refractory, layer.refractory_supports.detach(), reach)  # (N, r)
        n, lags = self._inhibition.shape
        # What spikes b + 1 steps before the end of a chunk still cost j steps after it: lag j + b + 1.
        ahead = torch.nn.functional.pad(self._costs[:, None] * self._inhibition, (0, lags))
        self._after = ahead.unfold(1, lags, 1)[:, :lags] if lags else ahead[:, :, None]  # (N, j, b)
        self._sent = taps.new_zeros(n, self._taps.shape[1] - 1, batch)  # projected input of the last steps
        self._left = taps.new_zeros(n, lags, batch)
        self._filters: dict[int, Tensor] = {}

    def advance(self, signals: Tensor) -> Tensor:
        """Return the spikes (neurons, steps, batch) that answer signals (senders, steps, batch)."""
        senders, steps, batch = signals.shape
        sent = torch.mm(self._weights, signals.reshape(senders, steps * batch)).view(-1, steps, batch)
        sent = torch.cat([self._sent, sent], dim=1)  # (N, R - 1 + T, B)
        v = torch.bmm(self._band(steps), sent).add_(self._biases)
        lags = self._left.shape[1]
        now = min(lags, steps)
        v[:, :now] += self._left[:, :now]
        spikes = fire(v, self._costs, self._inhibition)
        self._sent = sent[:, steps:].clone()
        if lags:
            left = torch.bmm(self._after[:, :, :now], spikes[:, steps - now :].flip(1))
            left[:, : lags - now] += self._left[:, now:]
            self._left = left
        return spikes

    def _band(self, steps: int) -> Tensor:
        """Return the matrices (neurons, steps, R - 1 + steps) that filter a chunk and what was sent before it."""
        if steps not in self._filters:
            reach = self._taps.shape[1]
            padded = torch.nn.functional.pad(self._taps.flip(1), (steps - 1, steps - 1))  # (N, R + 2 T - 2)
            rows = padded.unfold(1, reach + steps - 1, 1).flip(1)  # row t begins with t zeros
            self._filters = {steps: rows.contiguous()}
        return self._filters[steps]
