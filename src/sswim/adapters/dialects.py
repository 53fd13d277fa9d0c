"""How neurons of other libraries are driven step by step, and where they keep threshold and potential.

Modules are recognised by their attributes: none of the libraries is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = ["DIALECTS", "Dialect", "Response", "dialect_of", "first_tensor", "measure", "reset_states"]

# How far two measured responses may differ, as a part of their largest value, and still count as those of a linear neuron.
LINEAR = 1e-3


class Dialect(Protocol):
    """How the neurons of one library are used."""

    @property
    def name(self) -> str:
        """The library."""
        ...

    def speaks(self, module: nn.Module) -> bool:
        """Return whether a module is such a neuron: one that spikes, or one that only integrates."""
        ...

    def threshold(self, module: nn.Module) -> Tensor | None:
        """Return what the potential must reach for a spike; None if the module never fires."""
        ...

    def step(self, module: nn.Module, x: Tensor, state: object) -> tuple[Tensor, Tensor, object]:
        """Return output, potential and state after one step with input x (batch, ...); the first state is None."""
        ...


@dataclass(frozen=True)
class SnnTorch:
    """`Leaky`, `Synaptic` and others of snnTorch: a `threshold`, and a potential `mem` that the module keeps itself."""

    name: str = "snnTorch"

    def speaks(self, module: nn.Module) -> bool:
        """Return whether a module has threshold and membrane under snnTorch's names."""
        return hasattr(module, "threshold") and hasattr(module, "mem")

    def threshold(self, module: nn.Module) -> Tensor | None:
        """Return the threshold."""
        return torch.as_tensor(module.threshold).detach()

    def step(self, module: nn.Module, x: Tensor, state: object) -> tuple[Tensor, Tensor, object]:
        """Advance by one step; the state is the module's own."""
        return first_tensor(module(x)), _tensor(module.mem), None


@dataclass(frozen=True)
class SpikingJelly:
    """`LIFNode`, `IFNode` and others of SpikingJelly: `v_threshold`, and a potential `v` that the module keeps itself."""

    name: str = "SpikingJelly"

    def speaks(self, module: nn.Module) -> bool:
        """Return whether a module has threshold and potential under SpikingJelly's names."""
        return hasattr(module, "v_threshold") and hasattr(module, "v")

    def threshold(self, module: nn.Module) -> Tensor | None:
        """Return the threshold."""
        return torch.as_tensor(module.v_threshold).detach()

    def step(self, module: nn.Module, x: Tensor, state: object) -> tuple[Tensor, Tensor, object]:
        """Advance by one step; the state is the module's own."""
        if getattr(module, "step_mode", "s") == "m":
            return first_tensor(module(x[None]))[0], _tensor(module.v), None
        return first_tensor(module(x)), _tensor(module.v), None


@dataclass(frozen=True)
class Norse:
    """`LIFCell`, `LIFBoxCell`, `LIF`, `LICell` and others of Norse: parameters `p`, and a state with `v` that is passed on."""

    name: str = "Norse"

    def speaks(self, module: nn.Module) -> bool:
        """Return whether a module has parameters under Norse's names."""
        return hasattr(getattr(module, "p", None), "v_leak") and hasattr(module, "state_fallback")

    def threshold(self, module: nn.Module) -> Tensor | None:
        """Return the threshold; a leaky integrator has none."""
        found = getattr(module.p, "v_th", None)
        return None if found is None else torch.as_tensor(found).detach()

    def step(self, module: nn.Module, x: Tensor, state: object) -> tuple[Tensor, Tensor, object]:
        """Advance by one step. Modules such as `LIF` take a time axis, their cells do not."""
        if hasattr(module, "record_states"):
            output, state = module(x[None], state)
            return output[0], _tensor(getattr(state, "v", None)), state
        output, state = module(x, state)
        return output, _tensor(getattr(state, "v", None)), state


DIALECTS: tuple[Dialect, ...] = (SnnTorch(), SpikingJelly(), Norse())


def dialect_of(module: nn.Module) -> Dialect | None:
    """Return how a module is used, or None if it is no neuron."""
    return next((dialect for dialect in DIALECTS if dialect.speaks(module)), None)


def reset_states(model: nn.Module) -> None:
    """Put all modules that keep a state themselves at its beginning."""
    for module in model.modules():
        for name in ("reset_mem", "reset"):
            # snnTorch keeps a tensor called `reset`, and other modules may have a `reset` that wants arguments.
            if callable(getattr(module, name, None)) and (name == "reset_mem" or hasattr(module, "_memories")):
                getattr(module, name)()
                break


def first_tensor(output: object) -> Tensor:
    """Return the tensor that a module passes on: its output, or the first of several."""
    while isinstance(output, Sequence) and len(output):
        output = output[0]
    return _tensor(output)


def _tensor(value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"model: a module returned {type(value).__name__} where a tensor was expected.")
    return value


@dataclass(frozen=True)
class Response:
    """What a neuron's potential does between spikes.

    Attributes
    ----------
    taps : Tensor of shape (neurons, steps), float64
        The potential after an input of 1 in the first step alone.
    gap : Tensor of shape (neurons,), float64
        From the potential at rest to the threshold; infinite if the neuron never fires.
    """

    taps: Tensor
    gap: Tensor

    @property
    def common(self) -> Tensor:
        """The taps (1, steps) of all neurons together: their mean."""
        return self.taps.mean(dim=0, keepdim=True)

    @property
    def ramp(self) -> Tensor:
        """The potential (neurons, steps) under an input of 1 in every step."""
        return self.taps.cumsum(dim=1)


@torch.no_grad()
def measure(name: str, module: nn.Module, shape: Sequence[int], steps: int, like: Tensor) -> Response:
    """Drive a neuron with a small input in the first step, and return its response.

    Parameters
    ----------
    name : str
        What errors call the module.
    module : nn.Module
        A neuron that `dialect_of` knows.
    shape : sequence of int
        Of its input without the batch: (neurons,) or (channels, height, width). A channel counts as one neuron.
    steps : int
    like : Tensor
        Its device and dtype are taken.
    """
    dialect = dialect_of(module)
    assert dialect is not None

    def potentials(size: Tensor | float) -> tuple[Tensor, bool]:
        reset_states(module)
        x, state, found, fired = like.new_zeros(1, *shape), None, [], False
        for t in range(steps):
            output, v, state = dialect.step(module, x + size if t == 0 else x, state)
            found.append(v.detach().double().cpu().expand(1, *shape)[0])
            fired |= bool((output != 0).any())
        return torch.stack(found), fired  # (T, N, ...)

    threshold = dialect.threshold(module)
    rest, restless = potentials(0.0)
    level = rest + 1.0 if threshold is None else threshold.double().cpu().expand(*shape)[None]
    gap = (level - rest).amin(dim=0)  # (N, ...)
    if restless and threshold is not None or bool((gap <= 0).any()):
        raise ValueError(f"model: the neurons {name!r} fire without input, so weights cannot give them a firing rate.")
    size = 0.5 * float(gap.min())
    for _ in range(40):
        (v, fired), (half, _) = potentials(size), potentials(size / 2)
        if not fired or threshold is None:
            break
        size /= 2
    taps, again = (v - rest) / size, (half - rest) / (size / 2)
    largest = float(taps.abs().max())
    if not largest > 0:
        raise ValueError(f"model: the potential of the neurons {name!r} does not react to their input.")
    if not float((taps - again).abs().max()) <= LINEAR * largest:
        raise ValueError(
            f"model: the potential of the neurons {name!r} ({type(module).__name__}) is not linear in their input between "
            "spikes. Weights can be sampled for leaky and plain integrate-and-fire neurons, with or without a synaptic current."
        )
    flat = taps.flatten(2).mean(dim=2).T if taps.ndim > 2 else taps.T  # (N, T)
    near = gap.flatten(1).mean(dim=1) if gap.ndim > 1 else gap
    return Response(flat.contiguous(), near if threshold is not None else torch.full_like(near, torch.inf))
