r"""Pure functions that simulate spike response neurons on a grid of whole time steps.

Inside the library every signal of a layer has the shape ``(neurons, time, batch)``. In that order the projection by the
weights, the filtering by the kernels, the threshold and the next layer's projection are plain matrix products on
contiguous memory, and nothing is ever transposed.

The response of neuron ``i`` is :math:`\sum_j W_{ij} (k_i * x_j) = k_i * (W x)_i`, because its kernel does not depend on the
sender: project first, filter after.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sswim.kernels import Kernel

__all__ = ["Workspace", "filter_signals", "fire", "kernel_taps", "refractory_taps", "toeplitz"]


def kernel_taps(kernel: Kernel, delays: Tensor, supports: Tensor, steps: int) -> Tensor:
    r"""Evaluate :math:`k_i(s) = k((s - \tau_i) / \sigma_i)` at the lags ``s = 0, ..., steps - 1``.

    Parameters
    ----------
    kernel : callable
        The kernel `k`.
    delays, supports : Tensor of shape (neurons,)
        :math:`\tau_i \ge 0` and :math:`\sigma_i > 0`, in steps.
    steps : int
        Number of lags.

    Returns
    -------
    Tensor of shape (neurons, steps)

    Examples
    --------
    >>> from sswim.kernels import Hat
    >>> kernel_taps(Hat(), torch.tensor([1.0]), torch.tensor([2.0]), 4)
    tensor([[0.5000, 1.0000, 0.5000, 0.0000]])
    """
    lags = torch.arange(steps, dtype=delays.dtype, device=delays.device)  # (S,)
    return kernel((lags - delays[:, None]) / supports[:, None])


def refractory_taps(kernel: Kernel, supports: Tensor, steps: int) -> Tensor:
    r"""Evaluate :math:`q(s / \varsigma_i)` at the lags ``s = 1, 2, ...``, up to the last one that is not 0 for every neuron.

    Returns
    -------
    Tensor of shape (neurons, lags), with at most ``steps - 1`` lags.
    """
    lags = torch.arange(1, max(steps, 2), dtype=supports.dtype, device=supports.device)
    taps = kernel(lags / supports[:, None])
    used = (taps != 0).any(dim=0).nonzero()
    return taps[:, : int(used.max()) + 1 if len(used) else 0]


def toeplitz(taps: Tensor, steps_in: int) -> Tensor:
    r"""Turn taps into the causal convolution matrices ``K[i, t, s] = taps[i, t - s]`` for ``t >= s``, else 0.

    Parameters
    ----------
    taps : Tensor of shape (neurons, steps_out)
    steps_in : int
        Length of the signals to be filtered; later input counts as 0.

    Returns
    -------
    Tensor of shape (neurons, steps_out, steps_in)

    Examples
    --------
    >>> toeplitz(torch.tensor([[3.0, 2.0, 1.0]]), 2)
    tensor([[[3., 0.],
             [2., 3.],
             [1., 2.]]])
    """
    padded = torch.nn.functional.pad(taps, (steps_in - 1, 0))  # (N, I - 1 + S)
    return padded.unfold(1, steps_in, 1).flip(2)  # [i, t, s] = padded[i, t + I - 1 - s]


class Workspace:
    """Memory that one batch after the other is computed in, for asking the system for it anew takes a third of the time.

    What a function computed in a workspace is overwritten by the next call with the same workspace. Not for gradients.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return an uninitialised tensor of `shape`, of the dtype and device of `like`."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size or memory.dtype != like.dtype or memory.device != like.device:
            memory = self._memory[name] = like.new_empty(size)
        return memory[:size].view(shape)


def filter_signals(filters: Tensor, weights: Tensor, signals: Tensor, work: Workspace | None = None) -> Tensor:
    r"""Respond to the signals of the layer before: :math:`\sum_j W_{ij} (k_i * x_j)(t)`.

    Parameters
    ----------
    filters : Tensor of shape (neurons, steps_out, steps_in)
        From `toeplitz`, or a part of its rows.
    weights : Tensor of shape (neurons, senders)
    signals : Tensor of shape (senders, steps_in, batch)
    work : Workspace, optional
        Where to compute.

    Returns
    -------
    Tensor of shape (neurons, steps_out, batch)
    """
    senders, steps_in, batch = signals.shape
    neurons, steps_out, _ = filters.shape
    signals = signals.reshape(senders, steps_in * batch)
    if work is None:
        return torch.bmm(filters, (weights @ signals).view(neurons, steps_in, batch))
    projected = torch.mm(weights, signals, out=work.take("projected", signals, neurons, steps_in * batch))
    result = work.take("potentials", signals, neurons, steps_out, batch)
    return torch.bmm(filters, projected.view(neurons, steps_in, batch), out=result)


def fire(potentials: Tensor, costs: Tensor, inhibition: Tensor) -> Tensor:
    r"""Threshold potentials at 1, each spike adding :math:`c_i q_i(t - t^f)` to its own neuron afterwards.

    Parameters
    ----------
    potentials : Tensor of shape (neurons, steps, batch)
        Response plus bias. Overwritten by the result: a second array of this size would cost more time than all sums here.
    costs : Tensor of shape (neurons,)
        Spike costs :math:`c_i`.
    inhibition : Tensor of shape (neurons, lags)
        From `refractory_taps`.

    Returns
    -------
    Tensor of shape (neurons, steps, batch), of the potentials' dtype
        1 where the neuron fires and 0 elsewhere.

    Examples
    --------
    >>> v = torch.tensor([1.0, 1.5, 0.0, 2.0]).reshape(1, 4, 1)
    >>> fire(v, torch.tensor([-1.0]), torch.tensor([[1.0, 0.5]])).flatten()
    tensor([1., 0., 0., 1.])
    """
    v = potentials
    cost = (costs[:, None] * inhibition)[:, :, None]  # (N, R, 1)
    steps, reach = v.shape[1], cost.shape[1]
    for t in range(steps):
        now = v[:, t : t + 1]  # (N, 1, B), a view: the potential becomes the spike
        torch.ge(now, 1, out=now)
        ahead = min(reach, steps - 1 - t)
        if ahead:
            v[:, t + 1 : t + 1 + ahead].addcmul_(cost[:, :ahead], now)
    return v
