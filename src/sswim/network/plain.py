"""The neurons' loop over time as an operator that `torch.export` can follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["fire_steps", "spike"]


def spike(v: Tensor) -> Tensor:
    """Return 1 where a potential is at least 1, and 0 elsewhere."""
    return (v >= 1).to(v.dtype)


def fire_steps(potentials: Tensor, cost: Tensor, threshold: Callable[[Tensor], Tensor] = spike) -> Tensor:
    r"""Threshold potentials as `sswim.network.layer.fire` does, as one ``scan`` over time, and only inside of `torch.export`.

    The loop carries the potentials of the next `R` steps, and a spike adds its costs to them. So every potential is summed up
    in the same order as in `fire`, and spikes are the same, bit for bit.

    Parameters
    ----------
    potentials : Tensor of shape (neurons, steps, batch)
        Response plus bias. Not changed.
    cost : Tensor of shape (neurons, R)
        :math:`c_i q_i(s)` at the lags `s` = 1, ..., R.
    threshold : callable
        What turns potentials into spikes.
    """
    from torch._higher_order_ops.scan import scan_op

    reach = min(cost.shape[1], potentials.shape[1] - 1)
    if not reach:
        return threshold(potentials)
    # The loop has no gradient: a spike has none.
    u = torch.nn.functional.pad(potentials.detach(), (0, 0, 0, reach)).transpose(0, 1)  # (steps + R, N, B)
    added = cost.detach()[:, :reach].T[:, :, None].contiguous()  # (R, N, 1)

    def step(ahead: Tensor, new: Tensor, added: Tensor) -> list[Tensor]:
        now = threshold(ahead[0])  # (N, B)
        return [torch.cat([ahead[1:], new[None]]) + added * now, now]

    # The operator itself: `scan` around it would compile the step with sizes that it remembers of other networks.
    _, spikes = scan_op(step, [u[:reach].contiguous()], [u[reach:].contiguous()], [added])  # (steps, N, B)
    return spikes.transpose(0, 1)
