"""S-SWIM: algorithm ``alg:sswim`` of the paper, its steps in its order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sswim._checks import check_fraction, check_integer, parse_memory, resolve
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.kernels import kernel_peak
from sswim.network import SpikingNetwork
from sswim.readout import REGULARIZATION, NormalEquations
from sswim.report import LayerReport, SamplingReport
from sswim.simulate import Workspace, filter_signals
from sswim.steps import (
    DELAYS,
    EMBEDDINGS,
    METRICS,
    NORMALIZERS,
    PAIRS,
    SUPPORTS,
    TEMPORAL,
    WEIGHTS,
    PotentialStatistics,
    VanRossum,
)
from sswim.steps.pairs import lower_triangle
from sswim.steps.pseudometrics import mean_free
from sswim.traces import ASSEMBLIES, Trace
from sswim.windows import Samples, Subset, TensorSamples, batches

__all__ = ["batch_size", "sample"]


# Multiply-adds up to which one Gram matrix per output is quick enough: seconds on two cores.
EXACT_WORK = 5e11


def _candidates(argument: str, value: Any, choices: dict[str, Any]) -> dict[str, Any]:
    """Return named candidate metrics: all of them for "entropy", those of a sequence, or the one given."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given:
        raise ValueError(f"{argument}: needs at least one metric, got {value!r}.")
    found: dict[str, Any] = {}
    for metric in given:
        chosen = resolve(argument, metric, {"entropy": EMBEDDINGS, **choices}, "pairwise")
        found |= chosen if chosen is EMBEDDINGS else {metric if isinstance(metric, str) else repr(metric): chosen}
    return found


def _as_samples(X: Any, Y: Any, network: SpikingNetwork) -> Samples:
    if Y is None and not hasattr(X, "inputs"):
        raise TypeError(f"Y must be given with X, unless X is a source of samples such as Windows, got X of {type(X)}.")
    samples = X if Y is None else TensorSamples(torch.as_tensor(X), torch.as_tensor(Y))
    first = slice(0, 1)
    if not len(samples):
        raise ValueError("X must hold at least two samples, got none.")
    for name, shape, rule in (
        ("X", samples.inputs(first).shape[1:], (network.window, network.inputs)),
        ("Y", samples.targets(first).shape[1:], (network.horizon, network.outputs)),
    ):
        if tuple(shape) != rule:
            raise ValueError(
                f"{name} must have the network's shape (samples, {rule[0]}, {rule[1]}), got (samples, *{tuple(shape)})."
            )
    return samples


def batch_size(network: SpikingNetwork, memory: int) -> int:
    """Return how many samples to simulate at once within a memory budget in bytes."""
    itemsize = network.readout.weights.element_size()
    fixed = sum(layer.neurons * network.steps * network.steps for layer in network.layers) * itemsize
    # Projection, potentials and spikes of the widest layer, its traces, and what the layer before still holds.
    each = 5 * max(network.hidden) * network.steps * itemsize
    return max(8, min(512, int((memory - fixed) / each)))


@torch.no_grad()
def sample(
    network: SpikingNetwork,
    X: Any,
    Y: Any = None,
    *,
    validation: Any = 0.2,
    temporal: Any = "grid",
    input_metric: Any = "entropy",
    deeper_metric: Any = "entropy",
    output_metric: Any = "entropy",
    pairs: Any = "gradient",
    weights: Any = "dot",
    normalizer: Any = "mean-std",
    delays: Any = "correlation",
    supports: Any = "search",
    regularization: Any = "search",
    assembly: Any = "auto",
    initial_batch: int = 1000,
    memory: str | int = "1GB",
    random_state: Any = None,
    verbose: int = 0,
) -> SamplingReport:
    r"""Set all parameters of `network` from data, without gradients (algorithm ``alg:sswim``).

    Parameters
    ----------
    network : SpikingNetwork
        Its parameters are overwritten.
    X : array or Tensor of shape (samples, window, inputs), or a source of samples such as `sswim.windows.Windows`
    Y : array or Tensor of shape (samples, horizon, outputs)
        Left out if `X` is a source of samples.
    validation : float, or a source of samples, or a pair (X, Y)
        Samples on which the regularisation is chosen; a number takes that fraction from the end of `X`.
    temporal, pairs, weights, normalizer, delays, supports, regularization : str or object
        The steps, by name or as objects from `sswim.steps` and `sswim.readout`.
    input_metric, output_metric : str, object, or sequence of these
        Distances between inputs and between targets. Of several candidates the pair of least entropy is taken;
        ``"entropy"`` stands for all that are known by name.
    deeper_metric : str, object, or sequence of these
        Distances between the spike trains that reach the second and further hidden layers, each lifted by `VanRossum`.
    assembly : {"auto", "fast", "exact"} or Assembly
        How far the sums over all samples are thinned out; see `sswim.traces.Assembly`. ``"auto"`` is exact where that
        takes seconds, and fast otherwise.
    initial_batch : int
        :math:`\tilde M`, the number of samples that everything but the output weights is computed from.
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
    temporal = resolve("temporal", temporal, TEMPORAL, "assign")
    input_metrics = _candidates("input_metric", input_metric, METRICS)
    deeper_metrics = _candidates("deeper_metric", deeper_metric, EMBEDDINGS)
    output_metrics = _candidates("output_metric", output_metric, METRICS)
    pairs = resolve("pairs", pairs, PAIRS, "draw")
    weights = resolve("weights", weights, WEIGHTS, "directions")
    normalizer = resolve("normalizer", normalizer, NORMALIZERS, "scale")
    delays = resolve("delays", delays, DELAYS, "correlate")
    supports = resolve("supports", supports, SUPPORTS, "choose")
    regularization = resolve("regularization", regularization, REGULARIZATION, "basis")
    check_integer("initial_batch", initial_batch, 2)
    budget = parse_memory(memory)
    random = Randomness(random_state)
    train, held_out = _split(_as_samples(X, Y, network), validation, network)
    if isinstance(assembly, str) and assembly == "auto":
        work_exact = len(train) * network.horizon * network.hidden[-1] ** 2 * network.outputs
        assembly = "exact" if work_exact <= EXACT_WORK else "fast"
    assembly = resolve("assembly", assembly, {"auto": None, **ASSEMBLIES}, "representatives")

    size = batch_size(network, budget)
    device, dtype = network.readout.weights.device, network.readout.weights.dtype
    L, S = len(network.layers), network.steps
    work = [Workspace() for _ in network.layers]
    layer_reports = []

    with Tracker(verbose) as tracker:
        with tracker.step("initial batch"):  # X_I, Y_I
            count = min(initial_batch, len(train))
            chosen = torch.randperm(len(train), generator=random("batch"))[:count]
            signals = train.inputs(chosen).to(device, dtype).permute(2, 1, 0).contiguous()  # (D, O, M)
            targets = train.targets(chosen).to(device, dtype)  # (M, H, C)
            _require_finite(signals, targets)

        for l, layer in enumerate(network.layers, start=1):
            with tracker.step(f"layer {l}: pairs"):
                tau, sigma, varsigma = temporal.assign(
                    l, L, neurons=layer.neurons, window=network.window, horizon=network.horizon
                )
                layer.delays.copy_(tau), layer.supports.copy_(sigma), layer.refractory_supports.copy_(varsigma)
                metrics = input_metrics
                if l > 1:
                    h = float(layer.supports.median())
                    metrics = {name: VanRossum(m, layer.kernel, h) for name, m in deeper_metrics.items()}
                report = _draw_pairs(
                    signals, targets, metrics, output_metrics, pairs, layer.neurons, random("pairs", l), first=l == 1
                )

            with tracker.step(f"layer {l}: weights"):
                filters = layer.filters(signals.shape[1], S)  # (N, S, I)
                # A multiple of 16, for then torch draws the same normal numbers whatever the chunk.
                chunk = max(16, int(budget / 4 / (96 * layer.senders * S)) // 16 * 16)
                directions = random("weights", l)
                for part in tracker.count(batches(layer.neurons, chunk, even=False)):
                    pair = signals[:, :, report.pairs[part]].to(dtype)  # (D, I, n, 2)
                    psi_1, psi_2 = (filters[part] @ pair[:, :, :, k].permute(2, 1, 0) for k in (0, 1))  # (n, S, D)
                    layer.weights[part] = weights.directions(psi_1.mT, psi_2.mT, directions).to(dtype)
                report.pairs = chosen[report.pairs]

            with tracker.step(f"layer {l}: normalisation"):
                statistics = PotentialStatistics()
                for part in tracker.count(batches(count, size)):
                    statistics.update(filter_signals(filters, layer.weights, signals[:, :, part].to(dtype), work[0]))
                alpha, beta, gamma = normalizer.scale(statistics)
                layer.weights.mul_(alpha[:, None].to(dtype))
                layer.biases.copy_(beta)
                layer.costs.copy_(gamma / float(layer.refractory(torch.zeros(1))))

            with tracker.step(f"layer {l}: spikes"):
                spikes = torch.empty(layer.neurons, S, count, dtype=torch.uint8, device=device)
                fired = torch.zeros(layer.neurons, dtype=torch.float64, device=device)
                for part in tracker.count(batches(count, size)):
                    A = layer.fire(layer.potentials(signals[:, :, part].to(dtype), filters, work[0]))  # (N, S, B)
                    fired += A.sum(dim=(1, 2))
                    spikes[:, :, part] = A
                signals = spikes  # (N, S, M)
                report.rates = (fired / (S * count)).cpu()
            layer_reports.append(report)

        with tracker.step("output delays"):
            correlation: Tensor | float = 0.0
            for part in tracker.count(batches(min(count, getattr(delays, "samples", None) or count), size)):
                correlation = correlation + delays.correlate(
                    signals[:, :, part].to(dtype), targets[part], network.start, network.window, part.start
                )
            lags = delays.lags(correlation)

        kernel = network.readout.kernel

        def trace(lag: float, support: float) -> Trace:
            # The kernel, not its onset, has to stand at the lag.
            delay = max(lag - kernel_peak(kernel) * support, 0.0)
            return Trace(kernel, delay, support, network.start, network.horizon, assembly.tolerance)

        compared = slice(0, assembly.samples)

        def residuals(seen: Sequence[Trace], precision: torch.dtype = dtype) -> tuple[Tensor, Tensor]:
            A, y = spikes[:, :, compared], targets[compared]
            return _least_residuals(network, A, y, seen, size, tracker, work[-1], precision)

        with tracker.step("output supports"):
            candidates, lag = supports.candidates(network.horizon), supports.shared_lag(lags)
            table = torch.full((len(candidates), network.outputs), torch.inf, dtype=torch.float64, device=device)
            wanted = torch.arange(0, len(candidates) if len(candidates) > 1 else 0, assembly.skip)
            sharp = torch.ones(len(candidates), dtype=torch.bool)
            while len(wanted):
                table[wanted], sharp[wanted] = residuals([trace(lag, float(sigma_c)) for sigma_c in candidates[wanted]])
                best = table.argmin(dim=0).unique().cpu()
                near = (best[:, None] + torch.arange(1 - assembly.skip, assembly.skip)).unique()
                near = near[(near >= 0) & (near < len(candidates))]
                wanted = near[table[near, 0].cpu().isinf()]
            if assembly.tolerance == 0:  # close calls among nearly dependent traces: float64 decides
                close = ~sharp & (table <= 1.02 * table.min(dim=0).values).any(dim=1).cpu()
                again = [trace(lag, float(sigma_c)) for sigma_c in candidates[close]]
                if again:
                    table[close] = residuals(again, torch.float64)[0]
            chosen_supports = supports.choose(candidates, table).to(lags)

        with tracker.step("output traces"):
            distinct = assembly.representatives(lags, chosen_supports)
            traces = [trace(lag, support) for lag, support in distinct.tolist()]
            own = (torch.stack([lags, chosen_supports], dim=1)[:, None] == distinct).all(dim=2)  # (C, traces)
            # Each output keeps its own pair if that is there, and takes the one of least residual otherwise.
            group = own.int().argmax(dim=1)
            if not bool(own.any(dim=1).all()):
                group = residuals(traces)[0].argmin(dim=0)
            lags, chosen_supports = distinct[group].T
            used = group.unique().tolist()
            traces, members = [traces[g] for g in used], [(group == g).nonzero()[:, 0] for g in used]
            signals = spikes = torch.empty(0)  # the initial batch has done its part

        with tracker.step("output weights"):
            filters_all = network.hidden_filters(steps=max(seen.last for seen in traces))
            on_train = [_equations(network, len(m)) for m in members]
            for part in tracker.count(batches(len(train), size)):
                x, y = train.inputs(part), train.targets(part).to(device)
                _require_finite(x, y)
                A = network.hidden_spikes(x, filters_all, work)  # (N, S, B)
                for seen, outputs, equations in zip(traces, members, on_train, strict=True):
                    equations.update(seen.features(A, work[-1]), *seen.targets(y[:, :, outputs]))

        with tracker.step("regularisation"):
            readout = network.readout
            lambdas = torch.empty(network.outputs, dtype=torch.float64, device=device)
            bases = [regularization.basis(equations) for equations in on_train]
            on_held_out = [
                _equations(network, len(m), basis.shape[1] if basis is not None else None)
                for m, basis in zip(members, bases, strict=True)
            ]
            needed = len(held_out) if any(len(sums.gram) for sums in on_held_out) else 0
            for part in tracker.count(batches(needed, size)):
                x, y = held_out.inputs(part), held_out.targets(part).to(device)
                _require_finite(x, y)
                A = network.hidden_spikes(x, filters_all, work)  # (N, S, B)
                for seen, outputs, sums, basis in zip(traces, members, on_held_out, bases, strict=True):
                    features = seen.features(A, work[-1])
                    if basis is not None:
                        features = (basis.T.to(dtype) @ features.flatten(1)).unflatten(1, features.shape[1:])
                    sums.update(features, *seen.targets(y[:, :, outputs]))
            for g, outputs in enumerate(members):
                w, b, lambdas[outputs] = regularization.solve(on_train[g], on_held_out[g], bases[g])
                readout.weights[outputs] = w.T.to(dtype)
                readout.biases[outputs] = b.to(dtype)
            readout.supports.copy_(chosen_supports)
            readout.delays.copy_((lags - kernel_peak(kernel) * chosen_supports).clamp_min(0))

    return SamplingReport(
        layers=layer_reports,
        lags=lags.cpu(),
        lambdas=lambdas.cpu(),
        traces=len(traces),
        assembly=assembly,
        samples=len(train),
        validation_samples=len(held_out),
        batch_size=size,
        steps=tracker.records,
    )


def _split(samples: Samples, validation: Any, network: SpikingNetwork) -> tuple[Samples, Samples]:
    """Return training and validation samples."""
    if isinstance(validation, tuple):
        held_out = _as_samples(validation[0], validation[1], network)
    elif not isinstance(validation, (int, float)):
        held_out = _as_samples(validation, None, network)
    else:
        total = len(samples)
        kept = total - max(1, int(total * check_fraction("validation", validation)))
        held_out = Subset(samples, torch.arange(kept, total))
        samples = Subset(samples, torch.arange(kept))
    if len(samples) < 2:
        raise ValueError(f"X: at least two training samples are needed to draw a pair, got {len(samples)}.")
    return samples, held_out


def _least_residuals(
    network: SpikingNetwork,
    spikes: Tensor,
    targets: Tensor,
    traces: Sequence[Trace],
    size: int,
    tracker: Tracker,
    work: Workspace,
    precision: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the least residuals (traces, outputs) if all outputs saw the same trace, and which of the traces' are sharp."""
    tried = [_equations(network, network.outputs) for _ in traces]
    for part in tracker.count(batches(spikes.shape[2], size)):
        batch, y = spikes[:, :, part], targets[part]
        A = work.take("potentials", targets.new_empty(0, dtype=precision), *batch.shape).copy_(batch)
        for trace, equations in zip(traces, tried, strict=True):
            equations.update(trace.features(A, work), *trace.targets(y))
    found = [equations.least_residual() for equations in tried]
    return torch.stack([residual for residual, _ in found]), torch.tensor([sharp for _, sharp in found])


def _require_finite(x: Tensor, y: Tensor) -> None:
    for name, values in (("X", x), ("Y", y)):
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite, but holds NaN or infinite values: fill or drop them first.")


def _equations(network: SpikingNetwork, outputs: int, features: int | None = None) -> NormalEquations:
    features = network.hidden[-1] if features is None else features
    return NormalEquations(features, outputs, network.horizon, network.readout.weights.device)


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
