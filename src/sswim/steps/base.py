"""What each step of the algorithm must offer: the protocols that callers rely on, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sswim.data.windows import Samples
from sswim.network.events import EventBatch
from sswim.network.layer import SpikingLayer
from sswim.network.network import SpikingNetwork
from sswim.options import Run
from sswim.report import LayerReport

__all__ = [
    "Delays",
    "Depth",
    "Embedding",
    "InitialBatch",
    "LayerState",
    "Metric",
    "Normalizer",
    "Pairs",
    "Statistics",
    "Supports",
    "Temporal",
    "Way",
    "Weights",
]


@dataclass(frozen=True)
class InitialBatch:
    """The samples that everything but the output weights is computed from: X_I and Y_I.

    Attributes
    ----------
    order : Tensor of shape (samples,)
        Numbers of training samples in random order: of all, or of many. The batch holds the first ones.
    signals : Tensor of shape (inputs, window, batch)
        Events are on the nearest steps here.
    targets : Tensor of shape (batch, horizon, outputs)
    events : EventBatch or None
        The inputs, if they are events at exact times.
    """

    order: Tensor
    signals: Tensor
    targets: Tensor
    events: EventBatch | None = None


@dataclass(frozen=True)
class LayerState:
    r"""Where the sampling of a network stands, before the weights of hidden layer `l` (counted from 1).

    Attributes
    ----------
    network : SpikingNetwork
    l : int
    layer : SpikingLayer
        The layer that is sampled.
    filters : Tensor of shape (neurons, steps, steps before)
        The kernels of the layer as matrices, the paper's :math:`\psi`.
    signals : Tensor of shape (senders, steps, batch)
        What reaches the layer on the initial batch.
    batch : InitialBatch
    train : Samples
    run : Run
    events : EventBatch or None
        What reaches the layer, if that is events at exact times.
    places : Tensor of shape (batch,) or None
        The place of each patch, if samples are patches.
    """

    network: SpikingNetwork
    l: int
    layer: SpikingLayer
    filters: Tensor
    signals: Tensor
    batch: InitialBatch
    train: Samples
    run: Run
    events: EventBatch | None = None
    places: Tensor | None = None


class Way(Protocol):
    """How the weights of one hidden layer are found: by pairs, as in the paper, or by what the layers before leave."""

    def draw_pairs(self) -> LayerReport:
        """Draw the samples that each neuron looks at."""
        ...

    def set_weights(self) -> None:
        """Set the weights, still to be normalised."""
        ...


class Depth(Protocol):
    """How deeper layers are sampled."""

    def way(self, state: LayerState) -> Way | None:
        """Return how the weights of a deeper layer are found, or None if pairs serve it too."""
        ...


class Temporal(Protocol):
    """Delays, supports and refractory supports of a hidden layer (``op_t``)."""

    def assign(
        self, layer: int, layers: int, *, neurons: int, window: int, horizon: int, signals: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return three tensors (neurons,), in steps, for hidden layer `layer` (counted from 1) of `layers`.

        `signals` (senders, steps, samples) is what reaches the layer.
        """
        ...


class Metric(Protocol):
    """A distance between samples."""

    def pairwise(self, x: Tensor) -> Tensor:
        """Return the distances (samples, samples) between samples (samples, time, channels)."""
        ...


class Embedding(Metric, Protocol):
    """A distance given by an embedding, which can be lifted to spike trains."""

    @property
    def normalized(self) -> bool:
        """Whether the embedding is divided by its norm over all channels."""
        ...

    def embed(self, x: Tensor) -> Tensor:
        """Map (samples, time, channels) to real features of any shape per sample."""
        ...


class Pairs(Protocol):
    """The distribution over pairs of samples, and how pairs are drawn from it (lines 4 to 11 of ``alg:sswim``)."""

    @property
    def entropy_samples(self) -> int | None:
        """Number of samples on which candidate distances are compared; None for all."""
        ...

    def admissible(self, norms: Tensor, *, every_channel: bool = True) -> Tensor:
        """Return which samples may be drawn, from the (samples, channels) norms of their mean-free channels."""
        ...

    def log_probabilities(self, input_distance: Tensor, output_distance: Tensor, admissible: Tensor) -> Tensor:
        """Return the logarithm of the distribution over all pairs, from their distances (pairs,)."""
        ...

    def entropy(self, log_p: Tensor) -> float:
        """Return the entropy of a distribution."""
        ...

    def choose(self, entropies: dict[tuple[str, str], float], neurons: int, share: float = 1.0) -> tuple[str, str]:
        """Return the pair of distances to use."""
        ...

    def draw(self, log_p: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw different pairs: (count, 2)."""
        ...


class Weights(Protocol):
    """Directions of the hidden weights (``op_w_dist``, ``op_w_dot``)."""

    def directions(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return vectors (neurons, senders) from the filtered pairs (neurons, senders, steps), float64."""
        ...


class Statistics(Protocol):
    """Temporal mean, temporal deviation and maximum of each neuron's potential, tensors of shape (neurons,)."""

    @property
    def mean(self) -> Tensor:
        """Expected temporal mean."""
        ...

    @property
    def deviation(self) -> Tensor:
        """Expected temporal deviation."""
        ...

    @property
    def maximum(self) -> Tensor:
        """Maximum."""
        ...

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def last_mean(self) -> Tensor:
        """Mean, over samples, of the potential at the last step."""
        ...

    @property
    def last_deviation(self) -> Tensor:
        """Standard deviation, over samples, of the potential at the last step."""
        ...


class Normalizer(Protocol):
    """Scale and bias that give each hidden neuron a healthy potential (``op_n_ms``, ``op_n_fl``)."""

    def scale(self, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """Return scale, bias and initial refractory potential, each of shape (neurons,)."""
        ...


class Delays(Protocol):
    """Lags of the output layer (``op_c``)."""

    @property
    def samples(self) -> int | None:
        """Number of samples of the initial batch that correlations are summed over; None for all."""
        ...

    def within(self, samples: int, neurons: int, products: int) -> Delays:
        """Return this step, limited to a budget of its own; one pair of sample and neuron takes `products` operations."""
        ...

    def correlate(self, spikes: Tensor, targets: Tensor, start: int, lags: int, first: int = 0) -> Tensor:
        """Return correlations (outputs, lags) of a batch; batches add up."""
        ...

    def lags(self, correlation: Tensor) -> Tensor:
        """Return the lag of each output, (outputs,)."""
        ...


class Supports(Protocol):
    """Kernel supports of the output layer (``op_sig``)."""

    def find(self, correlation: Tensor, lags: Tensor, horizon: int, residuals: Callable[[Tensor, float], Tensor]) -> Tensor:
        """Return the support of each output, (outputs,).

        Parameters
        ----------
        correlation : Tensor of shape (outputs, lags)
            Of hidden spikes and targets, summed up.
        lags : Tensor of shape (outputs,)
            The lag of each output.
        horizon : int
        residuals : callable
            Maps supports, ascending, and one lag for all outputs to least squared residuals (supports, outputs). It looks
            closer near each output's best one; those of others may be infinite.
        """
        ...
