"""S-SWIM: algorithm ``alg:sswim`` of the paper, its steps in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.tensors import as_samples, as_split, require_finite
from sswim.data.windows import Samples, Split, batches
from sswim.network.convolution import ConvolutionLayer
from sswim.network.events import EventBatch
from sswim.network.exact import event_response, filter_events
from sswim.network.kernels import kernel_taps, toeplitz
from sswim.network.layer import Workspace, filter_signals
from sswim.network.network import SpikingNetwork
from sswim.options import (
    Mistakes,
    Options,
    Run,
    Seed,
    check_choice,
    check_integer,
    check_result,
    resolve,
    resolve_kind,
    resolve_several,
)
from sswim.readout import default_readout
from sswim.readout.base import Solver
from sswim.report import LayerReport, SamplingReport
from sswim.steps.base import Depth, Embedding, InitialBatch, LayerState, Metric, Normalizer, Pairs, Temporal, Way, Weights
from sswim.steps.leaky import rounded
from sswim.steps.pairs import EMBEDDINGS, METRICS, PAIRS, VanRossum, draw_pairs
from sswim.steps.patches import PATCHES, ByPatches, Patches, patches_of
from sswim.steps.residual import DEPTH
from sswim.steps.temporal import TEMPORAL
from sswim.steps.weights import NORMALIZERS, WEIGHTS, PotentialStatistics, RandomWeights

__all__ = ["STEPS", "ResolvedSteps", "Steps", "sample", "sample_network"]

# Samples whose random order is kept, where there are more than can be listed.
ORDERED, LISTED = 20_000, 4_000_000


@torch.no_grad()
def sample_network(network: SpikingNetwork, split: Split, steps: ResolvedSteps, readout: Solver, run: Run) -> SamplingReport:
    """Set all parameters of a network from samples (algorithm ``alg:sswim``)."""
    network.check_memory(run.budget)
    batch = draw_batch(network, split.train, steps.initial_batch, run)  # line 1: X_I, Y_I
    signals, reports = batch.signals, []  # (D, O, M)
    for l, layer in enumerate(network.layers, start=1):  # line 2
        set_times(network, l, signals, steps.temporal)  # line 3, op_t: tau, sigma, varsigma
        filters = layer.filters(signals.shape[1], network.steps)  # (N, S, I)
        state = LayerState(network, l, layer, filters, signals, batch, split.train, run, batch.events if l == 1 else None)
        seen = (
            patches_of(state, layer, steps.patches) if isinstance(layer, ConvolutionLayer) else state
        )  # its samples are patches
        way = steps.way(seen)
        report = way.draw_pairs()  # lines 4 to 11: P and one pair per neuron
        way.set_weights()  # lines 12 and 13, op_w: w~
        normalize(seen, steps.normalizer)  # lines 14 and 15, op_n: W, b, c
        signals = fire_layer(state)  # (N, S, M), the input of the next layer
        reports.append(replace(report, rates=layer.rates(signals)))
    solution = readout.solve(network, split, batch, signals, run)  # lines 16 to 18: the output layer
    size = network.batch_size(run.budget)
    return SamplingReport(reports, solution, split.train.originals, len(split.held_out), size, run.records)


def sample(
    network: SpikingNetwork,
    X: npt.ArrayLike | Samples,
    Y: npt.ArrayLike | None = None,
    *,
    validation: float | Samples | tuple[npt.ArrayLike, npt.ArrayLike] = 0.2,
    steps: str | Steps = "paper",
    readout: Solver | None = None,
    memory: str | int = "1GB",
    random_state: Seed = None,
    verbose: int = 0,
) -> SamplingReport:
    r"""Set all parameters of `network` from data, without gradients (algorithm ``alg:sswim``).

    Parameters
    ----------
    network : SpikingNetwork
        Its parameters are overwritten.
    X : array or Tensor of shape (samples, window, inputs), or `Samples` such as `sswim.data.Windows`
    Y : array or Tensor of shape (samples, horizon, outputs)
        Omitted if `X` holds targets too.
    validation : float, `Samples`, or a pair (X, Y)
        Samples on which the regularisation is chosen; a number takes that fraction from the end of `X`.
    steps : Steps or str
        The steps that sample the hidden layers.
    readout : Trajectory, Counts or another readout, optional
        The steps that solve for the output. Default: the paper's `Trajectory`, or `Counts` with least squares for a network
        that reads traces.
    memory : str or int
        Budget that the batch size is chosen by.
    random_state : int, optional
        Same seed, same network.
    verbose : int
        1 shows progress bars, 0 nothing.

    Returns
    -------
    SamplingReport

    Examples
    --------
    >>> x = torch.rand(200, 12, 2, generator=torch.Generator().manual_seed(0)).cumsum(dim=1)
    >>> network = SpikingNetwork(inputs=2, outputs=2, window=12, horizon=3, hidden=(30,))
    >>> report = sample(network, x, 2 * x[:, -3:], random_state=0)
    >>> report.samples, report.layers[0].silent
    (160, 0)
    """
    mistakes = Mistakes()
    chosen = resolve_kind("steps", steps, STEPS, Steps).resolved(mistakes)
    usual = default_readout(network)
    solver: Solver = usual if readout is None else mistakes.check(resolve, "readout", readout, {}, "solve")
    mistakes.report()
    split = as_split(as_samples(X, Y, network), validation, network)
    with Run(memory, random_state, verbose) as run:
        return sample_network(network, split, chosen, solver, run)


@dataclass(frozen=True)
class Steps(Options):
    r"""The steps that sample the hidden layers, by name or as objects from `sswim.steps`. Defaults: the paper's.

    Parameters
    ----------
    temporal, pairs, weights, normalizer : str or object
        Delays and supports, distribution over pairs, weights, and normalisation.
    input_metric, output_metric : str, object, or sequence of these
        Distances between inputs and between targets. Of several candidates the pair of least entropy is taken;
        ``"entropy"`` stands for all that have a name.
    deeper_metric : str, object, or sequence of these
        Distances between the spike trains that reach the second and further hidden layers, each lifted by `VanRossum`.
    lift : bool
        Whether inputs that are spikes are filtered by the layer's kernel before distances are taken, as those of deeper layers
        always are (`VanRossum`).
    span : {"all", "window"}
        Whether distances between inputs are taken on all simulated steps, where nothing follows the window, or on the window.
    depth : str or object
        How deeper layers are sampled: ``"plain"`` as in the paper, or ``"residual"``, by what the layers before leave
        unexplained, for a readout that reads all layers.
    initial_batch : int
        :math:`\tilde M`, the number of samples that everything but the output weights is computed from.
    patches : str or Patches
        How the patches are drawn that a `Convolution` is sampled from: ``"whitened"`` or ``"plain"``.
    """

    temporal: str | Temporal = "grid"
    input_metric: str | Metric | Sequence[str | Metric] = "entropy"
    deeper_metric: str | Embedding | Sequence[str | Embedding] = "entropy"
    output_metric: str | Metric | Sequence[str | Metric] = "entropy"
    pairs: str | Pairs = "gradient"
    weights: str | Weights = "dot"
    normalizer: str | Normalizer = "mean-std"
    lift: bool = True
    span: str = "all"
    depth: str | Depth = "plain"
    initial_batch: int = 1000
    patches: str | Patches = field(default="whitened", metadata={"later": True})

    def resolved(self, mistakes: Mistakes) -> ResolvedSteps:
        """Return the objects that all names stand for; what is wrong goes to `mistakes`."""
        check = mistakes.check
        methods = ("admissible", "log_probabilities", "entropy", "choose", "draw")
        all_named: dict[str, dict[str, Embedding]] = {"entropy": EMBEDDINGS}
        return ResolvedSteps(
            check(resolve, "temporal", self.temporal, TEMPORAL, "assign"),
            check(resolve_several, "input_metric", self.input_metric, METRICS, all_named, "pairwise"),
            check(resolve_several, "deeper_metric", self.deeper_metric, EMBEDDINGS, all_named, "pairwise", "embed"),
            check(resolve_several, "output_metric", self.output_metric, METRICS, all_named, "pairwise"),
            check(resolve, "pairs", self.pairs, PAIRS, *methods),
            check(resolve, "weights", self.weights, WEIGHTS, "directions"),
            check(resolve, "normalizer", self.normalizer, NORMALIZERS, "scale"),
            bool(self.lift),
            check(check_choice, "span", self.span, ("all", "window")),
            check(resolve, "depth", self.depth, DEPTH, "way"),
            check(check_integer, "initial_batch", self.initial_batch, 2),
            check(resolve_kind, "patches", self.patches, PATCHES, Patches),
        )


STEPS: dict[str, Steps] = {
    "paper": Steps(),
    "forecast": Steps(temporal="spread", pairs="spread", normalizer="diverse", span="window"),
    "classify": Steps(
        temporal="share",
        input_metric="l2",
        deeper_metric="l2",
        output_metric="class",
        pairs="spread",
        normalizer="diverse",
        lift=False,
        span="window",
        depth="residual",
        initial_batch=900,
    ),
}


@dataclass(frozen=True)
class ResolvedSteps:
    """The steps of `Steps` as objects, metrics with their names."""

    temporal: Temporal
    input_metrics: dict[str, Metric]
    deeper_metrics: dict[str, Embedding]
    output_metrics: dict[str, Metric]
    pairs: Pairs
    weights: Weights
    normalizer: Normalizer
    lift: bool
    span: str
    depth: Depth
    initial_batch: int
    patches: Patches

    def way(self, state: LayerState) -> Way:
        """Return how the weights of a layer are found: by pairs, or in deeper layers by residuals if `depth` says so."""
        if isinstance(state.layer, ConvolutionLayer):
            return ByPatches(self.patches, state, self._by_pairs)
        found = None if state.l == 1 or isinstance(self.weights, RandomWeights) else self.depth.way(state)
        return ByPairs(self, state) if found is None else found

    def _by_pairs(self, state: LayerState, lift: Callable[[Metric], Metric]) -> Way:
        return ByPairs(replace(self, output_metrics={name: lift(m) for name, m in self.output_metrics.items()}), state)


def random_order(count: int, most: int, generator: torch.Generator) -> Tensor:
    """Return the first numbers of ``torch.randperm(count)``, `most` of them at least, without a list of very many.

    Examples
    --------
    >>> many = torch.randperm(5_000_000, generator=torch.Generator().manual_seed(0))
    >>> random_order(5_000_000, 10, torch.Generator().manual_seed(0)).equal(many[:10])
    True
    """
    if count <= LISTED:
        return torch.randperm(count, generator=generator)
    moved: dict[int, int] = {}
    found = []
    for i in range(most):
        j = i + int(torch.randint(count - i, (1,), generator=generator))
        found.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return torch.tensor(found)


def draw_batch(network: SpikingNetwork, train: Samples, count: int, run: Run) -> InitialBatch:
    """Draw the initial batch: :math:`X_I, Y_I`."""
    like = network.readout.weights
    with run.step("initial batch"):
        order = random_order(train.originals, max(count, ORDERED), run.random("batch"))
        x, targets = train.inputs(order[:count]), train.targets(order[:count])  # (M, O, D), (M, H, C)
        require_finite(x, targets)
        signals = network.signals(x if isinstance(x, Tensor) else x.dense())  # (D, O, M)
        assert isinstance(signals, Tensor)
    return InitialBatch(order, signals, targets.to(like), x if isinstance(x, EventBatch) and not x.whole else None)


def set_times(network: SpikingNetwork, l: int, signals: Tensor, step: Temporal) -> None:
    """Set delays, supports and refractory supports of layer `l` (``op_t``)."""
    layer, L = network.layers[l - 1], len(network.layers)
    tau, sigma, varsigma = step.assign(
        l, L, neurons=layer.neurons, window=network.window, horizon=network.horizon, signals=signals
    )
    for name, value in (("delays", tau), ("supports", sigma), ("refractory supports", varsigma)):
        check_result(f"temporal: {name}", value, layer.neurons)
        least = float(value.min())
        if least < -1 or (least <= 0 and name != "delays"):
            rule = "at least 0, or -1 for a kernel that acts at once" if name == "delays" else "above 0"
            raise ValueError(f"temporal: {name} must be {rule}, in steps, got {least:g}.")
    layer.delays.copy_(tau), layer.supports.copy_(sigma), layer.refractory_supports.copy_(varsigma)


class ByPairs:
    """Samples the weights of one layer from pairs of samples, as in the paper."""

    def __init__(self, steps: ResolvedSteps, state: LayerState) -> None:
        self._steps, self._state = steps, state

    def draw_pairs(self) -> LayerReport:
        """Choose the metrics by entropy and draw one pair per neuron (lines 4 to 11)."""
        state = self._state
        with state.run.step(f"layer {state.l}: pairs"):
            x, metrics = self._compared()
            generator, neurons = state.run.random("pairs", state.l), state.layer.neurons
            outputs, pairs = self._steps.output_metrics, self._steps.pairs
            report = draw_pairs(x, state.batch.targets, metrics, outputs, pairs, neurons, generator, first=state.l == 1)
        self._pairs = report.pairs
        return replace(report, pairs=state.batch.order[report.pairs])

    def _compared(self) -> tuple[Tensor, dict[str, Metric]]:
        """Return what distances are taken of, (samples, time, senders), and the metrics: spikes are lifted."""
        steps, state, layer = self._steps, self._state, self._state.layer
        metrics: dict[str, Metric] = steps.input_metrics
        x, after = state.signals.permute(2, 1, 0), state.network.steps - state.signals.shape[1]  # (M, I, D)
        if after and steps.span == "all":
            x = torch.nn.functional.pad(x, (0, 0, 0, after))
        if state.l == 1 and not (steps.lift and state.train.spiking):
            return x, metrics
        h = float(layer.supports.median())
        if state.events is None:
            lifted = steps.input_metrics if state.l == 1 else steps.deeper_metrics
            return x, {name: VanRossum(m, layer.kernel, h) if _liftable(m) else m for name, m in lifted.items()}
        zeros = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        return filter_events(layer.kernel, zeros, zeros + h, state.events, x.shape[1]).to(x), metrics

    def set_weights(self) -> None:
        """Set the weights to the direction that separates each neuron's pair (lines 12 and 13)."""
        layer, run, l = self._state.layer, self._state.run, self._state.l
        S, generator = self._state.filters.shape[1], self._state.run.random("weights", self._state.l)
        # In float64, so that an eigenvector does not depend on the processor's rounding.
        taps = kernel_taps(layer.kernel, layer.delays.double(), layer.supports.double(), S)  # (N, S)
        with run.step(f"layer {l}: weights"):
            # A multiple of 16, for then torch draws the same normal numbers whatever the chunk.
            chunk = max(16, int(run.budget / 4 / (96 * layer.senders * S)) // 16 * 16)
            for part in run.count(batches(layer.neurons, chunk, even=False)):
                psi_1, psi_2 = (self._potentials(taps, part, k) for k in (0, 1))  # (n, S, D)
                w = self._steps.weights.directions(psi_1.mT, psi_2.mT, generator)  # (n, D)
                layer.weights[part] = check_result("weights", w, len(self._pairs[part]), layer.senders).to(layer.weights)

    def _potentials(self, taps: Tensor, part: slice, which: int) -> Tensor:
        """Return the filtered inputs (neurons, steps, senders) of one sample of each neuron's pair, float64."""
        layer, signals, events, pairs = self._state.layer, self._state.signals, self._state.events, self._pairs[part]
        if events is not None:
            tau, sigma = layer.delays[part].double(), layer.supports[part].double()
            return filter_events(layer.kernel, tau, sigma, events.take(pairs[:, which]), taps.shape[1])
        return toeplitz(taps[part], signals.shape[1]) @ signals[:, :, pairs[:, which]].to(taps).permute(2, 1, 0)


def _liftable(metric: Metric) -> TypeGuard[Embedding]:
    """Return whether a metric is given by an embedding; one between classes, say, has nothing to filter."""
    return callable(getattr(metric, "embed", None))


def normalize(state: LayerState, step: Normalizer) -> None:
    """Scale the weights of a layer, and set its biases and spike costs, by its potentials on the initial batch."""
    layer, work, statistics = state.layer, Workspace(), PotentialStatistics()
    with state.run.step(f"layer {state.l}: normalisation"):
        if (bits := getattr(step, "bits", None)) is not None:
            layer.weights.copy_(rounded(layer.weights, bits))
        for part in state.run.count(_parts(state)):
            statistics.update(_response(state, part, work))
        alpha, beta, gamma = step.scale(statistics)
        layer.weights.mul_(alpha[:, None].to(layer.weights)), layer.biases.copy_(beta)
        layer.costs.copy_(gamma / float(layer.refractory(torch.zeros(1))))


def fire_layer(state: LayerState) -> Tensor:
    """Return the spikes (neurons, steps, batch) of a layer on the initial batch, or pooled ones, as small integers."""
    layer, filters, work = state.layer, state.filters, Workspace()
    shape = layer.outputs, state.network.steps, state.signals.shape[2]
    spikes = torch.empty(shape, dtype=layer.spike_dtype, device=filters.device)
    with state.run.step(f"layer {state.l}: spikes"):
        for part in state.run.count(_parts(state)):
            if isinstance(layer, ConvolutionLayer):
                found = layer.spikes(state.signals[:, :, part], filters)
            else:
                found = layer.fire(_response(state, part, work).add_(layer.biases[:, None, None]))
            spikes[:, :, part] = found.to(spikes.dtype)
    return spikes


def _response(state: LayerState, part: slice, work: Workspace) -> Tensor:
    """Return a layer's weighted and filtered input (neurons, steps, batch), for a part of the initial batch."""
    layer, filters = state.layer, state.filters
    if state.events is None:
        return filter_signals(filters, layer.weights, state.signals[:, :, part].to(filters), work)
    some = state.events.take(torch.arange(state.events.count)[part])
    return event_response(layer.kernel, layer.delays, layer.supports, layer.weights, some, filters.shape[1])


def _parts(state: LayerState) -> list[slice]:
    """Cut the initial batch into parts that fit into memory."""
    return batches(state.signals.shape[2], state.network.batch_size(state.run.budget))
