"""S-SWIM: algorithm ``alg:sswim`` of the paper, its steps in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sswim._checks import check_fraction, check_integer, parse_memory, resolve
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.events import dense
from sswim.hidden import HiddenSteps, batch_size, sample_from
from sswim.kernels import kernel_peak
from sswim.network import SpikingNetwork
from sswim.readout import REGULARIZATION, NormalEquations
from sswim.report import SamplingReport
from sswim.simulate import Workspace
from sswim.sliding import SlidingEquations, shiftable
from sswim.steps import (
    DELAYS,
    SUPPORTS,
)
from sswim.traces import ASSEMBLIES, Trace
from sswim.windows import Samples, Subset, TensorSamples, batches, require_finite

__all__ = ["as_samples", "sample", "split_samples"]


# Multiply-adds up to which one Gram matrix per output is quick enough: seconds on two cores.
EXACT_WORK = 5e11


def as_samples(X: Any, Y: Any, network: SpikingNetwork) -> Samples:
    """Return samples that fit the network, from arrays or a source of samples."""
    if Y is None and not hasattr(X, "inputs"):
        raise TypeError(f"Y must be given with X, unless X is a source of samples such as Windows, got X of {type(X)}.")
    samples = X if Y is None else TensorSamples(torch.as_tensor(X), torch.as_tensor(Y))
    first = slice(0, 1)
    if not len(samples):
        raise ValueError("X must hold at least two samples, got none.")
    for name, shape, rule in (
        ("X", dense(samples.inputs(first)).shape[1:], (network.window, network.inputs)),
        ("Y", samples.targets(first).shape[1:], (network.horizon, network.outputs)),
    ):
        if tuple(shape) != rule:
            raise ValueError(
                f"{name} must have the network's shape (samples, {rule[0]}, {rule[1]}), got (samples, *{tuple(shape)})."
            )
    return samples


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
    steps = HiddenSteps.named(
        temporal=temporal,
        input_metric=input_metric,
        deeper_metric=deeper_metric,
        output_metric=output_metric,
        pairs=pairs,
        weights=weights,
        normalizer=normalizer,
    )
    if network.direct:
        raise ValueError(
            "network: its output reads traces directly, but sample sets one whose voltage draws the horizon. Build it with "
            "SpikingNetwork(..., output='trajectory'), or use Forecaster or Classifier, which fit direct outputs."
        )
    delays = resolve("delays", delays, DELAYS, "correlate")
    supports = resolve("supports", supports, SUPPORTS, "choose")
    regularization = resolve("regularization", regularization, REGULARIZATION, "basis")
    check_integer("initial_batch", initial_batch, 2)
    budget = parse_memory(memory)
    random = Randomness(random_state)
    train, held_out = split_samples(as_samples(X, Y, network), validation, network)
    if isinstance(assembly, str) and assembly == "auto":
        work_exact = len(train) * network.horizon * network.hidden[-1] ** 2 * network.outputs
        assembly = "exact" if work_exact <= EXACT_WORK else "fast"
    assembly = resolve("assembly", assembly, {"auto": None, **ASSEMBLIES}, "representatives")

    size = batch_size(network, budget)
    device, dtype = network.readout.weights.device, network.readout.weights.dtype
    work = [Workspace() for _ in network.layers]

    with Tracker(verbose) as tracker:
        spikes, targets, layer_reports = sample_from(network, train, initial_batch, steps, budget, random, tracker)
        count = len(targets)

        with tracker.step("output delays"):
            correlation: Tensor | float = 0.0
            if hasattr(delays, "within"):
                delays = delays.within(count, len(spikes), network.outputs * network.window * network.horizon)
            for part in tracker.count(batches(min(count, getattr(delays, "samples", None) or count), size)):
                correlation = correlation + delays.correlate(
                    spikes[:, :, part].to(dtype), targets[part], network.start, network.window, part.start
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
                near_best = table <= 1.01 * table.min(dim=0).values
                close = ~sharp & (near_best & (near_best.sum(dim=0) > 1)).any(dim=1).cpu()
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
            spikes = torch.empty(0)  # the initial batch has done its part

        with tracker.step("output weights"):
            filters_all = network.hidden_filters(steps=max(seen.last for seen in traces))
            gathered = _gather(network, traces, members, exact=assembly.tolerance == 0, budget=budget)
            for part in tracker.count(batches(len(train), size)):
                x, y = train.inputs(part), train.targets(part).to(device)
                require_finite(x, y)
                A = network.hidden_spikes(x, filters_all, work)  # (N, S, B)
                for _, place in gathered:
                    place.update(A, y, work[-1])
            made = {i: equations for of, place in gathered for i, equations in zip(of, place.result(), strict=True)}
            on_train = [made[i] for i in range(len(traces))]
            del gathered, made

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
                require_finite(x, y)
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


def split_samples(samples: Samples, validation: Any, network: SpikingNetwork) -> tuple[Samples, Samples]:
    """Return training and validation samples."""
    if isinstance(validation, tuple):
        held_out = as_samples(validation[0], validation[1], network)
    elif not isinstance(validation, (int, float)):
        held_out = as_samples(validation, None, network)
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


class _OneTrace:
    """The sums of one trace, compressed to its rank."""

    def __init__(self, network: SpikingNetwork, trace: Trace, outputs: Tensor) -> None:
        self._trace, self._outputs, self._equations = trace, outputs, _equations(network, len(outputs))

    def update(self, spikes: Tensor, targets: Tensor, work: Workspace) -> None:
        self._equations.update(self._trace.features(spikes, work), *self._trace.targets(targets[:, :, self._outputs]))

    def result(self) -> list[NormalEquations]:
        return [self._equations]


def _gather(
    network: SpikingNetwork, traces: Sequence[Trace], members: Sequence[Tensor], *, exact: bool, budget: int
) -> list[tuple[list[int], _OneTrace | SlidingEquations]]:
    """Return where to sum up, with the numbers of the traces that come out: alone, or if exact those that only shift."""
    kernel, steps, neurons = network.readout.kernel, network.steps, network.hidden[-1]
    together: dict[tuple[float, float], list[int]] = {}
    for i, trace in enumerate(traces):
        shifts = exact and shiftable(kernel, trace.delay, trace.support, steps)
        together.setdefault((trace.support, trace.delay % 1) if shifts else (-1.0 - i, 0.0), []).append(i)
    found: list[tuple[list[int], _OneTrace | SlidingEquations]] = []
    for numbers in together.values():
        numbers = sorted(numbers, key=lambda i: traces[i].delay)
        if len(numbers) == 1 or 2 * len(numbers) * neurons**2 * 8 > budget:
            found += [([i], _OneTrace(network, traces[i], members[i])) for i in numbers]
            continue
        delays, of = [traces[i].delay for i in numbers], [members[i] for i in numbers]
        support, device = traces[numbers[0]].support, network.readout.weights.device
        found.append((numbers, SlidingEquations(kernel, delays, support, network.start, network.horizon, of, neurons, device)))
    return found


def _equations(network: SpikingNetwork, outputs: int, features: int | None = None) -> NormalEquations:
    features = network.hidden[-1] if features is None else features
    return NormalEquations(features, outputs, network.horizon, network.readout.weights.device)
