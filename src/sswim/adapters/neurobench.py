r"""Networks for NeuroBench, whose harness counts operations of torch's own ``Linear`` and ``Conv`` modules only.

A layer of leaky integrate-and-fire neurons has an exponential kernel, an exponential refractory kernel of the same support,
costs of -1, no biases and whole delays. It is a ``torch.nn.Linear`` and a recursion:

.. math:: u_i(t) = \beta_i (u_i(t - 1) - s_i(t - 1)) + \sum_j W_{ij} x_j(t - \tau_i), \quad s_i(t) = [u_i(t) \ge 1],

with :math:`\beta_i = e^{-1/\sigma_i}`. `linear_lif` writes a network that way. NeuroBench is not needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from sswim.classes import ClassModel
from sswim.classifier import Classifier
from sswim.data.windows import SeriesWindows
from sswim.forecaster import Forecaster
from sswim.network.events import dense
from sswim.network.kernels import Exponential
from sswim.network.layer import SpikingLayer, decays
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.readout.decaying import TraceReadout
from sswim.steps.leaky import is_leaky

__all__ = ["LIF", "Leaky", "LinearLIF", "Traces", "linear_lif", "neurobench_data", "neurobench_model"]


class _Delayed(nn.Module):
    """Leaky neurons with whole delays: what they share, whether they spike or not.

    Attributes
    ----------
    decay : Tensor of shape (neurons,)
    delays : Tensor of shape (neurons,), if any is not 0
    """

    decay: Tensor
    delays: Tensor | None

    def __init__(self, layer: SpikingLayer) -> None:
        super().__init__()
        self.register_buffer("decay", torch.exp(-1 / layer.supports.detach()))
        late = bool(layer.delays.any())
        self.register_buffer("delays", layer.delays.detach().clone() if late else None)

    def late(self, x: Tensor) -> Tensor:
        """Return currents (batch, steps, neurons) that arrive after each neuron's delay."""
        if self.delays is None:
            return x
        at = torch.arange(x.shape[1], device=x.device)[:, None] - self.delays.long()  # (T, N)
        return torch.where(at >= 0, x.gather(1, at.clamp_min(0).expand_as(x)), 0.0)


class LIF(_Delayed):
    """Leaky integrate-and-fire neurons with threshold 1, whose spikes are subtracted from the potential."""

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes (batch, steps, neurons) from currents of the same shape."""
        x, u, spikes = self.late(x), torch.zeros_like(x[:, 0]), []
        s = u
        for t in range(x.shape[1]):
            u = self.decay * (u - s) + x[:, t]
            s = (u >= 1).to(u)
            spikes.append(s)
        return torch.stack(spikes, dim=1)


class Leaky(_Delayed):
    """Leaky neurons that put out their potential."""

    def forward(self, x: Tensor) -> Tensor:
        """Return potentials (batch, steps, neurons) from currents of the same shape."""
        x, u, found = self.late(x), torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            u = self.decay * u + x[:, t]
            found.append(u)
        return torch.stack(found, dim=1)


class Traces(nn.Module):
    """Traces of spikes that fade, at the last step; infinite time constants count spikes.

    Attributes
    ----------
    constants : Tensor of shape (constants,)
    """

    constants: Tensor

    def __init__(self, constants: Sequence[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("constants", torch.tensor(constants, dtype=dtype))

    def forward(self, spikes: Tensor) -> Tensor:
        """Return traces (batch, neurons * constants) of spikes (batch, steps, neurons)."""
        age = torch.arange(spikes.shape[1] - 1, -1, -1)
        decay = decays(self.constants.cpu(), age).to(spikes)  # (K, T)
        return torch.matmul(decay, spikes.permute(2, 1, 0)).flatten(0, 1).T


class LinearLIF(nn.Module):
    """A network as ``Linear`` modules with leaky neurons between them; see `linear_lif`.

    Parameters
    ----------
    network : SpikingNetwork
    """

    traces: Traces | None
    neuron: LIF | Leaky | None
    biases: nn.Parameter | None

    def __init__(self, network: SpikingNetwork) -> None:
        super().__init__()
        readout = network.readout
        self.steps = readout.reader(network.window)[0]  # of the hidden layers, as many as the output sees
        self.start, self.horizon, self.outputs = network.start, network.horizon, network.outputs
        self.connections = nn.ModuleList(_linear(layer.weights, None) for layer in network.layers)
        self.neurons = nn.ModuleList(LIF(layer) for layer in network.layers)
        self.traces = self.neuron = self.biases = None
        if isinstance(readout, TraceReadout):
            self.traces, self.output = (
                Traces(readout.constants, readout.weights.dtype),
                _linear(readout.weights, readout.biases),
            )
            return
        assert isinstance(readout, VoltageReadout)
        self.output, self.neuron = _linear(readout.weights, None), LIF(readout) if readout.spiking else Leaky(readout)
        if not readout.spiking:
            self.biases = nn.Parameter(readout.biases.detach().clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network returns, (batch, horizon, outputs), from inputs (batch, window, inputs)."""
        spikes, every = x[:, : self.steps].to(self.output.weight), []
        for connection, neuron in zip(self.connections, self.neurons, strict=True):
            spikes = neuron(_until(connection(spikes), self.steps))
            every.append(spikes)
        if self.traces is not None:
            return self.output(torch.cat([self.traces(a) for a in every], dim=1)).unflatten(1, (self.horizon, self.outputs))
        assert self.neuron is not None
        found = self.neuron(_until(self.output(spikes), self.start + self.horizon))[:, self.start :]
        return found if self.biases is None else found + self.biases


def _until(currents: Tensor, steps: int) -> Tensor:
    """Return currents (batch, some steps, neurons) until a step: nothing comes after their last."""
    return nn.functional.pad(currents, (0, 0, 0, steps - currents.shape[1]))


def _linear(weights: Tensor, biases: Tensor | None) -> nn.Linear:
    """Return a Linear module with copies of weights (outputs, inputs) and biases."""
    outputs, inputs = weights.shape
    found = nn.Linear(inputs, outputs, bias=biases is not None, dtype=weights.dtype, device=weights.device)
    with torch.no_grad():
        found.weight.copy_(weights)
        if biases is not None:
            found.bias.copy_(biases)
    return found.requires_grad_(False)


def linear_lif(model: SpikingNetwork | Forecaster | Classifier) -> LinearLIF:
    """Return a network of leaky integrate-and-fire neurons as ``torch.nn.Linear`` modules and recursions between them.

    Its spikes are those of the network, up to rounding where a potential meets the threshold. The output must read traces, or
    be a voltage with an exponential kernel.

    Parameters
    ----------
    model : SpikingNetwork, or a fitted Forecaster or Classifier

    Examples
    --------
    >>> network = SpikingNetwork(3, 2, window=10, horizon=4, hidden=(5,), kernel="exponential", refractory="exponential",
    ...     output_kernel="exponential")
    >>> _ = network.layers[0].costs.data.fill_(-1)
    >>> linear_lif(network)(torch.zeros(6, 10, 3)).shape
    torch.Size([6, 4, 2])
    """
    network = model if isinstance(model, SpikingNetwork) else model.network_
    wrong = [f"hidden layer {number}: {why}" for number, layer in enumerate(network.layers, 1) if (why := _why_not(layer))]
    readout = network.readout
    if isinstance(readout, VoltageReadout):
        why = _why_not(readout)
        wrong += [f"output: {why}"] if why else []
    elif not isinstance(readout, TraceReadout):
        wrong.append(f"output: it must read traces or be a voltage, got a {type(readout).__name__}")
    elif readout.roots:
        wrong.append("output: it reads roots of traces: fit with readout=Counts(roots=False)")
    if wrong:
        raise ValueError(
            "model: NeuroBench needs leaky integrate-and-fire neurons. "
            + "; ".join(wrong)
            + ". Use kernel='exponential', refractory='exponential' and an output of such neurons or of traces."
        )
    return LinearLIF(network)


def _why_not(layer: SpikingLayer) -> str:
    """Return why a layer is not one of leaky neurons with whole delays, or nothing."""
    if not isinstance(layer.kernel, Exponential):
        return f"its kernel must be Exponential(), got {layer.kernel}"
    if not torch.equal(layer.delays, layer.delays.round()):
        return "its delays must be whole numbers"
    if not layer.spiking or is_leaky(layer):
        return ""
    if not isinstance(layer.refractory, Exponential) or not torch.equal(layer.refractory_supports, layer.supports):
        return f"its refractory kernel must be Exponential() with the supports of its kernel, got {layer.refractory}"
    return "its spike costs must be -1" if bool((layer.costs != -1).any()) else "its biases must be 0"


class HarnessModel(Protocol):
    """What NeuroBench's harness takes."""

    def __call__(self, batch: Tensor) -> Tensor:
        """Return predictions."""
        ...

    def __net__(self) -> nn.Module:
        """Return the module that is counted."""
        ...


def neurobench_model(model: SpikingNetwork | Forecaster | Classifier) -> HarnessModel:
    """Return a network as a NeuroBench model, for ``neurobench.benchmarks.Benchmark``.

    It maps inputs (batch, window, inputs), such as those of `neurobench_data`, to what the network puts out. NeuroBench's
    ``MembraneUpdates`` and ``NeuronOperations`` know neurons of snnTorch only, and are 0 here: use `costs`.

    Parameters
    ----------
    model : SpikingNetwork, or a fitted Forecaster or Classifier
        With leaky integrate-and-fire neurons, see `linear_lif`.
    """
    try:
        from neurobench.models import TorchModel
    except ImportError as error:
        raise ImportError("neurobench_model needs NeuroBench: pip install 'sswim[neurobench]'.") from error
    wrapped = TorchModel(linear_lif(model))
    wrapped.add_activation_module(LIF)
    return wrapped


def neurobench_data(model: Forecaster | Classifier, X: object, y: object = None) -> torch.utils.data.TensorDataset:
    """Return encoded samples and their targets, for a ``DataLoader``: what the network of a fitted model sees and should say.

    Parameters
    ----------
    model : fitted Forecaster or Classifier
    X : series, or samples
        As for `evaluate` or `predict`.
    y : array of shape (samples,), optional
        Labels, for a classifier; their numbers are the targets.
    """
    if isinstance(model, Classifier):
        return _labelled(model.model_, X, y)
    fitted = model.model_
    encoder, series = fitted.encoder, fitted.series(X)  # type: ignore[arg-type]
    samples = SeriesWindows(encoder, encoder.segments(series.segments, fitted.memory), fitted.window, fitted.horizon)
    if not len(samples):
        raise ValueError(f"X: a window and its horizon take {fitted.window} + {fitted.horizon} rows without a gap.")
    every = slice(0, len(samples))
    return torch.utils.data.TensorDataset(samples.inputs(every), samples.targets(every))


def _labelled(model: ClassModel, X: object, y: object) -> torch.utils.data.TensorDataset:
    """Return encoded samples, and the numbers of their classes; 0 if there are no labels."""
    samples = model.samples(X)
    inputs = dense(samples.inputs(slice(None)))
    if y is None:
        return torch.utils.data.TensorDataset(inputs, torch.zeros(len(inputs), dtype=torch.long))
    numbers = {label: number for number, label in enumerate(model.classes.tolist())}
    labels = torch.as_tensor(y).tolist() if isinstance(y, Tensor) else list(y)  # type: ignore[call-overload]
    unknown = [label for label in labels if label not in numbers]
    if unknown or len(labels) != len(inputs):
        raise ValueError(
            f"y must hold one of the {len(numbers)} classes for each of {len(inputs)} samples, got {len(labels)} labels"
            + (f", {unknown[0]!r} among them." if unknown else ".")
        )
    return torch.utils.data.TensorDataset(inputs, torch.tensor([numbers[label] for label in labels]))
