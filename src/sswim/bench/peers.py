"""One layer in other libraries, for `sswim.bench`: its forward pass and parameters. What is not installed fails as usual."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["PEERS"]

# A function that returns the spikes (time, batch, neurons), and what it learns.
Layer = tuple[Callable[[], Tensor], list[torch.nn.Parameter]]


def _spikingjelly(x: Tensor, neurons: int) -> Layer:
    from spikingjelly.activation_based import functional, layer, neuron

    model = torch.nn.Sequential(layer.Linear(x.shape[2], neurons), neuron.LIFNode())
    functional.set_step_mode(model, "m")
    signal = x.permute(1, 0, 2).contiguous()  # (T, B, D)

    def forward() -> Tensor:
        functional.reset_net(model)
        return model(signal)

    return forward, list(model.parameters())


def _snntorch(x: Tensor, neurons: int) -> Layer:
    import snntorch

    linear, leaky = torch.nn.Linear(x.shape[2], neurons), snntorch.Leaky(beta=0.9)

    def forward() -> Tensor:
        membrane, spikes = leaky.init_leaky(), []
        for t in range(x.shape[1]):
            spike, membrane = leaky(linear(x[:, t]), membrane)
            spikes.append(spike)
        return torch.stack(spikes)

    return forward, [*linear.parameters(), *leaky.parameters()]


def _norse(x: Tensor, neurons: int) -> Layer:
    from norse.torch import LIFCell

    linear, cell = torch.nn.Linear(x.shape[2], neurons), LIFCell()

    def forward() -> Tensor:
        state, spikes = None, []
        for t in range(x.shape[1]):
            spike, state = cell(linear(x[:, t]), state)
            spikes.append(spike)
        return torch.stack(spikes)

    return forward, [*linear.parameters(), *cell.parameters()]


def _lava(x: Tensor, neurons: int) -> Layer:
    import sys
    import types

    # lava-dl imports its object detection, which wants packages that have nothing to do with a layer.
    sys.modules.setdefault("lava.lib.dl.slayer.object_detection", types.ModuleType("object_detection"))
    from lava.lib.dl import slayer

    settings = {"threshold": 1.0, "current_decay": 0.25, "voltage_decay": 0.03}
    block = slayer.block.cuba.Dense(settings, x.shape[2], neurons, delay=True)
    signal = x.permute(0, 2, 1).contiguous()  # (B, D, T)
    return lambda: block(signal).permute(2, 0, 1), list(block.parameters())


PEERS = {"SpikingJelly LIF": _spikingjelly, "snnTorch Leaky": _snntorch, "Norse LIF": _norse, "lava-dl CUBA": _lava}
