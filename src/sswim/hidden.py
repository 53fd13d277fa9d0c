"""How hidden layers are sampled: one after the other, each from what the layers before make of an initial batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sswim._checks import check_result, resolve
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.events import dense
from sswim.network import SpikingNetwork
from sswim.report import LayerReport
from sswim.simulate import Workspace, filter_signals, fire, refractory_taps
from sswim.steps import (
    DEPTH,
    EMBEDDINGS,
    METRICS,
    NORMALIZERS,
    PAIRS,
    TEMPORAL,
    WEIGHTS,
    PlainDepth,
    PotentialStatistics,
    VanRossum,
)
from sswim.steps.depth import cross_fitted_residuals, left_out_residuals
from sswim.steps.pairs import lower_triangle
from sswim.steps.pseudometrics import mean_free
from sswim.windows import Samples, Subset, batches, require_finite

__all__ = ["HiddenSteps", "batch_size", "resolve_metrics", "sample_from", "sample_hidden"]


def resolve_metrics(argument: str, value: Any, choices: dict[str, Any], *methods: str) -> dict[str, Any]:
    """Return named candidate metrics: all of them for "entropy", those of a sequence, or the one given."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given:
        raise ValueError(f"{argument}: needs at least one metric, got {value!r}.")
    found: dict[str, Any] = {}
    for metric in given:
        chosen = resolve(argument, metric, {"entropy": EMBEDDINGS, **choices}, *methods)
        found |= chosen if chosen is EMBEDDINGS else {metric if isinstance(metric, str) else repr(metric): chosen}
    return found


def batch_size(network: SpikingNetwork, memory: int) -> int:
    """Return how many samples to simulate at once within a memory budget in bytes."""
    itemsize = network.readout.weights.element_size()
    fixed = sum(layer.neurons * network.steps * network.steps for layer in network.layers) * itemsize
    # Projection, potentials and spikes of the widest layer, its traces, and what the layer before still holds.
    each = 5 * max(network.hidden) * network.steps * itemsize
    return max(8, min(512, int((memory - fixed) / each)))


@dataclass(frozen=True)
class HiddenSteps:
    """The steps that make a hidden layer, each resolved to an object.

    With several `blocks`, a layer is sampled in as many parts, each by what a direct output leaves unexplained so far. With
    another than `PlainDepth` deeper layers are sampled by that, unless weights are random.
    """

    temporal: Any
    input_metrics: dict[str, Any]
    deeper_metrics: dict[str, Any]
    output_metrics: dict[str, Any]
    pairs: Any
    weights: Any
    normalizer: Any
    depth: Any
    blocks: int = 1

    @classmethod
    def named(
        cls,
        *,
        temporal: Any,
        input_metric: Any,
        deeper_metric: Any,
        output_metric: Any,
        pairs: Any,
        weights: Any,
        normalizer: Any,
        depth: Any = "plain",
        blocks: int = 1,
    ) -> HiddenSteps:
        """Return the steps that names, or objects of the user's own, stand for."""
        return cls(
            resolve("temporal", temporal, TEMPORAL, "assign"),
            resolve_metrics("input_metric", input_metric, METRICS, "pairwise"),
            resolve_metrics("deeper_metric", deeper_metric, EMBEDDINGS, "pairwise", "embed"),
            resolve_metrics("output_metric", output_metric, METRICS, "pairwise"),
            resolve("pairs", pairs, PAIRS, "admissible", "log_probabilities", "entropy", "choose", "draw"),
            resolve("weights", weights, WEIGHTS, "directions"),
            resolve("normalizer", normalizer, NORMALIZERS, "scale"),
            depth if isinstance(depth, PlainDepth) else resolve("depth", depth, DEPTH, "draw", "directions"),
            blocks,
        )

    @property
    def sees_residuals(self) -> bool:
        """Whether deeper layers are sampled by what the layers before leave unexplained."""
        return not isinstance(self.depth, PlainDepth) and getattr(self.weights, "sampled", True)


def sample_from(
    network: SpikingNetwork,
    train: Samples,
    initial_batch: int,
    steps: HiddenSteps,
    budget: int,
    random: Randomness,
    tracker: Tracker,
) -> tuple[Tensor, Tensor, list[LayerReport]]:
    """Draw an initial batch of samples, and set the hidden layers' parameters from it, deeper ones' by more samples if told.

    Returns
    -------
    spikes : Tensor of shape (neurons, steps, batch), uint8
        Of the last layer.
    targets : Tensor of shape (batch, horizon, outputs)
    reports : list of LayerReport
        Their pairs are numbers of samples.
    """
    like = network.readout.weights
    with tracker.step("initial batch"):  # X_I, Y_I
        order = torch.randperm(len(train), generator=random("batch"))
        chosen = order[:initial_batch]
        signals = dense(train.inputs(chosen)).to(like).permute(2, 1, 0).contiguous()  # (D, O, M)
        targets = train.targets(chosen).to(like)  # (M, H, C)
        require_finite(signals, targets)
    more = None
    if steps.sees_residuals:
        each = 16 * sum(network.hidden[:-1]) * len(network.readout.constants)  # traces of a sample, and copies of them
        room = max(len(chosen), budget // max(each, 1))
        more = Subset(train, order[: min(getattr(steps.depth, "samples", len(chosen)), room)])
    spikes, reports = sample_hidden(network, signals, targets, steps, budget, random, tracker, more)
    for report in reports:
        report.pairs = order[report.pairs]
    return spikes, targets, reports


def sample_hidden(
    network: SpikingNetwork,
    signals: Tensor,
    targets: Tensor,
    steps: HiddenSteps,
    budget: int,
    random: Randomness,
    tracker: Tracker,
    more: Samples | None = None,
) -> tuple[Tensor, list[LayerReport]]:
    """Set the hidden layers' parameters from an initial batch.

    Parameters
    ----------
    signals : Tensor of shape (inputs, window, samples)
    targets : Tensor of shape (samples, horizon, outputs)
    steps : HiddenSteps
    budget : int
        Memory in bytes.
    random, tracker
        Source of generators, and progress.
    more : Samples, optional
        What deeper layers are sampled from by `steps.depth`; as the first one is unless given.

    Returns
    -------
    spikes : Tensor of shape (neurons, steps, samples), uint8
        Of the last layer.
    reports : list of LayerReport
        Their pairs are numbers within the batch, or of `more`.
    """
    size, count, work = batch_size(network, budget), signals.shape[2], Workspace()
    device, dtype = network.readout.weights.device, network.readout.weights.dtype
    L, S = len(network.layers), network.steps
    unexplained = _Unexplained(network, signals, targets) if steps.blocks > 1 else None
    reports = []
    for l, layer in enumerate(network.layers, start=1):
        temporal = steps.temporal.observe(signals) if hasattr(steps.temporal, "observe") else steps.temporal
        tau, sigma, varsigma = temporal.assign(l, L, neurons=layer.neurons, window=network.window, horizon=network.horizon)
        for name, value in (("delays", tau), ("supports", sigma), ("refractory supports", varsigma)):
            check_result(f"temporal: {name}", value, layer.neurons)
            least = float(value.min())
            if least < 0 or (least == 0 and name != "delays"):
                rule = "at least 0" if name == "delays" else "above 0"
                raise ValueError(f"temporal: {name} must be {rule}, in steps, got {least:g}.")
        layer.delays.copy_(tau), layer.supports.copy_(sigma), layer.refractory_supports.copy_(varsigma)
        filters = layer.filters(signals.shape[1], S)  # (N, S, I)
        metrics = steps.input_metrics
        if l > 1:
            h = float(layer.supports.median())
            metrics = {name: VanRossum(m, layer.kernel, h) for name, m in steps.deeper_metrics.items()}
        spikes = torch.empty(layer.neurons, S, count, dtype=torch.uint8, device=device)
        drawing, directing, blocks = random("pairs", l), random("weights", l), []
        for block in batches(layer.neurons, -(-layer.neurons // steps.blocks)):
            neurons = block.stop - block.start
            wider = more if l > 1 else None
            with tracker.step(f"layer {l}: pairs"):
                if wider is not None:
                    counts, left = _left_unexplained(network, wider, l - 1, size, tracker)
                    centres = check_result("depth", steps.depth.draw(left, neurons, drawing), neurons)
                    pairs = centres[:, None].expand(-1, 2).cpu()
                    report = LayerReport("l2", "residual", {}, pairs, torch.empty(0), every_channel=False)
                else:
                    left = targets if unexplained is None else unexplained.targets()
                    args = (metrics, steps.output_metrics, steps.pairs, neurons, drawing)
                    report = _draw_pairs(signals, left, *args, first=l == 1)

            with tracker.step(f"layer {l}: weights"):
                # A multiple of 16, for then torch draws the same normal numbers whatever the chunk.
                chunk = max(16, int(budget / 4 / (96 * layer.senders * S)) // 16 * 16)
                if wider is not None:
                    made = steps.depth.directions(counts, left, centres, directing)
                    layer.weights[block] = check_result("depth", made, neurons, layer.senders).to(dtype)
                for part in tracker.count(batches(neurons, chunk, even=False) if wider is None else []):
                    here = slice(block.start + part.start, block.start + part.stop)
                    pair = signals[:, :, report.pairs[part]].to(dtype)  # (D, I, n, 2)
                    psi_1, psi_2 = (filters[here] @ pair[:, :, :, k].permute(2, 1, 0) for k in (0, 1))  # (n, S, D)
                    made = steps.weights.directions(psi_1.mT, psi_2.mT, directing)  # (n, D)
                    layer.weights[here] = check_result("weights", made, len(pair[0, 0]), layer.senders).to(dtype)

            with tracker.step(f"layer {l}: normalisation"):
                statistics = PotentialStatistics()
                for part in tracker.count(batches(count, size)):
                    sent = signals[:, :, part].to(dtype)
                    statistics.update(filter_signals(filters[block], layer.weights[block], sent, work))
                alpha, beta, gamma = steps.normalizer.scale(statistics)
                layer.weights[block] *= alpha[:, None].to(dtype)
                layer.biases[block] = beta.to(dtype)
                layer.costs[block] = (gamma / float(layer.refractory(torch.zeros(1)))).to(dtype)

            with tracker.step(f"layer {l}: spikes"):
                for part in tracker.count(batches(count, size)):
                    v = filter_signals(filters[block], layer.weights[block], signals[:, :, part].to(dtype), work)
                    v += layer.biases[block, None, None]
                    inhibition = refractory_taps(layer.refractory, layer.refractory_supports[block], S)
                    spikes[block, :, part] = fire(v, layer.costs[block], inhibition).to(torch.uint8)
                if unexplained is not None:
                    unexplained.add(spikes[block])
            blocks.append(report)
        report = blocks[0]
        report.pairs = torch.cat([b.pairs for b in blocks])
        report.every_channel = all(b.every_channel for b in blocks)
        report.rates = (spikes.sum(dim=(1, 2), dtype=torch.float64) / (S * count)).cpu()
        signals = spikes  # (N, S, M)
        reports.append(report)
    return signals, reports


class _Unexplained:
    """What a direct output would not yet explain of an initial batch, from the neurons that are there.

    Parameters
    ----------
    network : SpikingNetwork
    signals : Tensor of shape (inputs, window, samples)
    targets : Tensor of shape (samples, horizon, outputs)

    """

    def __init__(self, network: SpikingNetwork, signals: Tensor, targets: Tensor) -> None:
        back = torch.arange(network.steps - 1, -1, -1, dtype=torch.float64)
        self._decay = torch.exp(-back[:, None] / network.readout.constants.cpu()).to(signals)  # (S, K)
        self._all = targets
        self._features = [signals[: network.outputs].flatten(0, 1)] if network.skip else []

    def add(self, spikes: Tensor) -> None:
        """Take in more neurons' spikes (neurons, steps, samples)."""
        self._features.append(torch.einsum("nsm,sk->nkm", spikes.to(self._decay), self._decay).flatten(0, 1))

    def targets(self) -> Tensor:
        """Return what is left, (samples, horizon, outputs)."""
        if not self._features:
            return self._all
        left = left_out_residuals(torch.cat(self._features).T, self._all.flatten(1))
        return left.view_as(self._all).to(self._all)


def _left_unexplained(
    network: SpikingNetwork, samples: Samples, depth: int, size: int, tracker: Tracker
) -> tuple[Tensor, Tensor]:
    """Return samples' spike counts in layer `depth` (samples, neurons), and what all layers up to it leave of their targets.

    What is left of them has the shape (samples, horizon * outputs).
    """
    constants, width = network.readout.constants.tolist(), network.layers[depth - 1].neurons
    seen = [*constants, *([] if math.inf in constants else [math.inf])]  # the trace that never fades is the count
    look, counts, traces, targets = network.features(depth, seen), [], [], []
    for part in tracker.count(batches(len(samples), size)):
        found = look(samples.inputs(part)).unflatten(0, (-1, len(seen)))  # (N, K, B)
        counts.append(found[-width:, seen.index(math.inf)].T)
        traces.append(found[:, : len(constants)].flatten(0, 1).T)
        targets.append(samples.targets(part).flatten(1).to(found))
    return torch.cat(counts), cross_fitted_residuals(torch.cat(traces), torch.cat(targets))


def _draw_pairs(
    signals: Tensor,
    targets: Tensor,
    input_metrics: dict[str, Any],
    output_metrics: dict[str, Any],
    pairs: Any,
    neurons: int,
    generator: torch.Generator,
    *,
    first: bool,
) -> LayerReport:
    """Choose the metrics by entropy and draw one pair per neuron, from signals (senders, steps, samples)."""
    x = signals.permute(2, 1, 0)  # (M, I, D)
    norms = torch.stack([torch.linalg.vector_norm(mean_free(c.T[:, :, None].float()), dim=(1, 2)) for c in signals], dim=1)
    named = [(i, o) for i in input_metrics for o in output_metrics]

    def distributions(names: list[tuple[str, str]], rows: Tensor | slice, ok: Tensor) -> dict[tuple[str, str], Tensor]:
        d_in = {i: lower_triangle(input_metrics[i].pairwise(x[rows])) for i in {i for i, _ in names}}
        d_out = {o: lower_triangle(output_metrics[o].pairwise(targets[rows])) for o in {o for _, o in names}}
        return {(i, o): pairs.log_probabilities(d_in[i], d_out[o], ok[rows]) for i, o in names}

    # Deviation from the paper: where some channel or other always rests, too few samples have all channels moving. Then,
    # and in deeper layers, where some neuron or other is always silent, one moving channel is enough.
    for every_channel in (True, False) if first else (False,):
        ok = pairs.admissible(norms, every_channel=every_channel)
        good = int(ok.sum())
        if good * (good - 1) // 2 < neurons and every_channel:
            continue
        best, entropies = named[0], {}
        few = ok.nonzero()[:, 0].cpu()[: getattr(pairs, "entropy_samples", None)]
        if len(named) > 1 and len(few) > 1:
            entropies = {pair: pairs.entropy(log_p) for pair, log_p in distributions(named, few, ok).items()}
            best = pairs.choose(entropies, neurons, len(few) * (len(few) - 1) / (good * (good - 1)))
        log_p = distributions([best], slice(None), ok)[best]
        entropies[best] = entropies.get(best, pairs.entropy(log_p))
        if not every_channel or int((log_p > -math.inf).sum()) >= neurons:
            break
    drawn = pairs.draw(log_p, neurons, generator)
    return LayerReport(best[0], best[1], entropies, drawn.cpu(), torch.empty(0), every_channel)
