"""Run a network of another library as it is: find its layers, record what passes through them, leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sswim.adapters.dialects import dialect_of, first_tensor, reset_states
from sswim.options import check_choice

__all__ = ["FORWARD", "Foreign", "Forward", "Kept", "Link"]

Forward = str | Callable[[nn.Module, Tensor], object]
FORWARD = ("auto", "step", "time-first", "batch-first")
# Samples that run at once.
PART = 128
REFUSED = (nn.Conv1d, nn.Conv3d, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear, nn.Embedding)


@dataclass(frozen=True)
class Link:
    """One layer: weights, perhaps a normalisation of their output, and the neurons that listen.

    Attributes
    ----------
    name : str
        The weights' name within the model.
    synapse : nn.Linear or nn.Conv2d
    norm : batch normalisation or None
    neuron : nn.Module or None
    """

    name: str
    synapse: nn.Linear | nn.Conv2d
    norm: _BatchNorm | None
    neuron: nn.Module | None

    @property
    def neurons(self) -> int:
        """Number of outputs: neurons, or channels of a convolution."""
        return len(self.synapse.weight)


class Kept:
    """Inside, a model is in evaluation mode. Afterwards all but its weights is as before; after an error, its weights too."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self.changed = model, set[int]()

    def __enter__(self) -> Kept:
        self._before = []
        for module in self._model.modules():
            held = [module._buffers] + [module.__dict__[name] for name in ("_memories",) if name in module.__dict__]
            plain = {k: v for k, v in module.__dict__.items() if k not in ("_parameters", "_modules")}
            self._before.append((module, plain, [(names, dict(names)) for names in held]))
        tensors = [*self._model.parameters(), *self._model.buffers()]
        self._values = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
        self._model.eval()
        return self

    def changes(self, *tensors: Tensor | None) -> None:
        """Say which tensors are changed for good."""
        self.changed |= {id(tensor) for tensor in tensors if tensor is not None}

    @torch.no_grad()
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for module, plain, held in self._before:
            for name in module.__dict__.keys() - plain.keys() - {"_parameters", "_modules"}:
                del module.__dict__[name]
            module.__dict__.update(plain)
            for names, values in held:
                names.clear()
                names.update(values)
        for tensor, version, value in self._values:
            if tensor._version != version and (error is not None or id(tensor) not in self.changed):
                tensor.copy_(value)


class Foreign:
    """A network of another library, and how it is run.

    Parameters
    ----------
    model : nn.Module
    X : Tensor of shape (samples, time, ...), or (samples, ...) if the model repeats a static sample itself
    forward : str or callable
        How the model is called, see `sample_into`.

    Attributes
    ----------
    links : list of Link
        In the order in which they are called.
    steps : int
        Number of time steps.
    """

    def __init__(self, model: nn.Module, X: Tensor, forward: Forward) -> None:
        self.model, self._forward = model, forward
        parameter = next(model.parameters())
        self.like = parameter
        if forward == "auto":
            whole = any(getattr(m, "step_mode", "s") == "m" or hasattr(m, "record_states") for m in model.modules())
            self._forward = "time-first" if whole else "step"
        elif not callable(forward):
            check_choice("forward", forward, FORWARD)
        few = X[: 3 if X.shape[1:2] != (3,) else 4]
        self._find(few)

    def run(self, x: Tensor) -> object:
        """Run the model from its initial state on samples (batch, time, ...), and return what it returns last."""
        reset_states(self.model)
        x = x.to(self.like)
        if not isinstance(self._forward, str):
            return self._forward(self.model, x)
        if self._forward != "step":
            return self.model(x.transpose(0, 1) if self._forward == "time-first" else x)
        output: object = None
        passes_state = type(self.model).__module__.startswith("norse.")
        for t in range(x.shape[1]):
            output = self.model(x[:, t]) if t == 0 or not passes_state else self.model(x[:, t], output[1])  # type: ignore[index]
        return output

    def record(self, X: Tensor, *wanted: tuple[nn.Module, str]) -> Iterator[list[Tensor]]:
        """Run samples part by part, and yield what enters (``"input"``) or leaves (``"output"``) some modules.

        Yields
        ------
        list of Tensor of shape (batch, time, ...)
        """
        for x in X.split(PART):
            calls: dict[tuple[int, str], list[Tensor]] = {(id(module), what): [] for module, what in wanted}
            hooks = []
            for module, what in wanted:
                hooks.append(module.register_forward_hook(_keep(calls[id(module), what], what)))
            try:
                self.run(x)
            finally:
                for hook in hooks:
                    hook.remove()
            yield [self._series(calls[id(module), what], len(x)) for module, what in wanted]

    def _series(self, calls: list[Tensor], batch: int) -> Tensor:
        """Return (batch, time, ...) from the tensors of all calls, which hold one step each, or one call all steps."""
        if len(calls) == self.steps and len(calls[0]) == batch:
            return torch.stack(calls, dim=1)
        (whole,) = calls
        leading = (batch, self.steps) if self._batch_first else (self.steps, batch)
        if whole.shape[:2] != leading:  # samples and steps in one axis
            whole = whole.unflatten(0, leading)
        return whole if self._batch_first else whole.transpose(0, 1)

    def _find(self, few: Tensor) -> None:
        """Run a few samples, and find the layers in the order of their calls."""
        names = {module: name or type(module).__name__ for name, module in self.model.named_modules()}
        calls: list[tuple[nn.Module, Tensor]] = []

        def note(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
            calls.append((module, first_tensor(list(inputs))))

        for module, name in names.items():
            inside = any(isinstance(inner, (nn.Linear, nn.modules.conv._ConvNd)) for inner in module.modules())
            if dialect_of(module) and (inside or hasattr(module, "recurrent_weights")):
                raise ValueError(f"model: the neurons {name!r} are recurrent. Only layers without recurrence can be sampled.")
        watched = [
            m for m in names if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd, _BatchNorm, *REFUSED)) or dialect_of(m)
        ]
        hooks = [module.register_forward_hook(note) for module in watched]
        try:
            self.run(few)
        except Exception as error:
            given = f"forward={self._forward!r}" if isinstance(self._forward, str) else "forward"
            raise ValueError(
                f"model: running it on X with {given} fails ({type(error).__name__}: {error}). X must have the shape "
                "(samples, time, features...), or pass `repeat` for static samples; `forward` says how the model wants its "
                "input: 'step', 'time-first', 'batch-first', or a function of (model, samples)."
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        self.links = _chained(calls, names)
        counts = [sum(m is link.synapse for m, _ in calls) for link in self.links]
        if self._forward == "step" and counts[0] > few.shape[1] and counts[0] % few.shape[1] == 0:
            raise ValueError(
                f"model: one call runs {self.links[0].name!r} {counts[0] // few.shape[1]} times, so the model has its own loop "
                "over time. Pass forward='time-first' or 'batch-first', or a function of (model, samples)."
            )
        x = next(x for m, x in calls if m is self.links[0].synapse)
        self.steps, self._batch_first = max(counts), self._forward == "batch-first"
        if self.steps == 1 and self._forward != "step":  # all steps in one call
            features = 1 if isinstance(self.links[0].synapse, nn.Linear) else 3
            apart = x.ndim == features + 2
            self._batch_first |= apart and len(x) == len(few) and callable(self._forward)
            self.steps = x.shape[int(self._batch_first)] if apart else len(x) // len(few)
        for link, count in zip(self.links, counts, strict=True):
            if count not in (1, self.steps):
                raise ValueError(
                    f"model: {link.name!r} is called {count} times in {self.steps} steps. "
                    "Each layer must be called once per step."
                )


def _keep(calls: list[Tensor], what: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
    """Return a hook that keeps what enters or leaves a module."""

    def hook(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        calls.append(first_tensor(list(inputs) if what == "input" else output).detach())

    return hook


def _chained(calls: Sequence[tuple[nn.Module, Tensor]], names: dict[nn.Module, str]) -> list[Link]:
    """Return the layers in the order of their first calls, each with what follows until the next one."""
    order = list(dict.fromkeys(module for module, _ in calls))
    links: list[Link] = []
    for module in order:
        name = names[module]
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            _check_synapse(name, module)
            links.append(Link(name, module, None, None))
        elif dialect_of(module) is not None:
            if links and links[-1].neuron is None:
                links[-1] = Link(links[-1].name, links[-1].synapse, links[-1].norm, module)
        elif isinstance(module, _BatchNorm):
            if not links or links[-1].neuron is not None or links[-1].norm is not None:
                raise ValueError(f"model: {name!r} must stand between a layer and its neurons. Move or remove it.")
            if not module.affine:
                raise ValueError(f"model: {name!r} undoes every scale of the weights. Build it with affine=True, or remove it.")
            links[-1] = Link(links[-1].name, links[-1].synapse, module, None)
        else:
            kind = type(module).__name__
            raise ValueError(f"model: {name!r} is a {kind}. Only Linear and Conv2d layers can be sampled.")
    if not links:
        raise ValueError("model: no Linear or Conv2d layer was called when the model ran.")
    for link in links[:-1]:
        if link.neuron is None:
            raise ValueError(
                f"model: no spiking neurons were found behind {link.name!r}. Known are modules of snnTorch (`threshold`, "
                "`mem`), SpikingJelly (`v_threshold`, `v`) and Norse (`p.v_th`, a state with `v`)."
            )
    return links


def _check_synapse(name: str, module: nn.Linear | nn.Conv2d) -> None:
    if not isinstance(module._parameters.get("weight"), nn.Parameter):
        raise ValueError(f"model: the weights of {name!r} are computed from others (a parametrisation). Remove that first.")
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        raise ValueError(f"model: {name!r} has groups={module.groups}. Only convolutions with groups=1 can be sampled.")
