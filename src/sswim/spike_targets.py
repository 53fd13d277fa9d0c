r"""Output layers that spike like given trains: regression of spike trains (appendix ``app:sswim_o_spikes``).

An output puts out the train `y` exactly if its voltage is at least 1 at the spikes of `y` and below 1 elsewhere, where

.. math:: v_i(t) = \sum_j W_{ij} \psi_{ij}(t) + b_i + c_i \eta_i(t), \quad \eta_i(t) = \sum_{t^f < t} q((t - t^f) / \varsigma_i)

with :math:`\psi` the filtered hidden spikes and :math:`\eta` the refractory trace of the *target* train: what the output would
feel of its own spikes if it had put out the right ones so far. This is linear in `W`, `b` and `c`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from sswim._checks import check_integer, check_positive, parse_memory, resolve
from sswim._random import Randomness
from sswim._tracking import StepRecord, Tracker
from sswim.hidden import HiddenSteps, batch_size, sample_from
from sswim.kernels import kernel_peak
from sswim.metrics import coincidence, van_rossum
from sswim.network import SpikingNetwork
from sswim.readout import NormalEquations
from sswim.report import LayerReport
from sswim.sampling import as_samples, split_samples
from sswim.simulate import kernel_taps, toeplitz
from sswim.spike_glm import fit_glm
from sswim.spike_judge import Judge
from sswim.spike_regression import Group, Projections, SpikeSums, refractory_traces
from sswim.spike_source import SpikeSource, check_trains
from sswim.steps import DELAYS, SUPPORTS, VanRossum
from sswim.traces import Assembly, Trace
from sswim.windows import Samples, batches

__all__ = ["SpikeReport", "sample_spikes"]

# Distance of trains that pairs are drawn by.
TRAIN_METRIC = VanRossum()
# How rows at spikes weigh: powers of the number of other rows per spike. 0 is plain, 1 makes both classes weigh alike.
BALANCES = (0.0, 0.5, 1.0)
# Supports of the refractory kernel that are compared unless told, in steps.
REFRACTORY_SUPPORTS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
# Outputs see at most so many different (delay, support) pairs, found on so many samples.
TRACES, COMPARED = 4, 300
# Rounds after which refractory supports are compared.
TRIED_ROUNDS = 16


@dataclass
class SpikeReport:
    """What `sample_spikes` did.

    Attributes
    ----------
    layers : list of LayerReport
    outputs : DataFrame
        For each output, on the validation samples: ``distance``, its van Rossum distance divided by that of a silent train;
        ``plain``, the same for least squares on constant voltages as it stands, and ``shifted``, for that with shift and cost
        chosen as for the result; ``coincidence``, see `sswim.metrics.coincidence`; ``rate`` and ``target_rate`` in spikes per
        step. Of the fit: ``cost``, ``refractory_support``, ``lag``, ``support``, ``balance`` and ``round``.
    method : str
    samples, validation_samples, batch_size : int
    steps : list of StepRecord
        Seconds and peak memory per step.
    """

    layers: list[LayerReport]
    outputs: pd.DataFrame
    method: str
    samples: int
    validation_samples: int
    batch_size: int
    steps: list[StepRecord] = field(default_factory=list)


@torch.no_grad()
def sample_spikes(
    network: SpikingNetwork,
    X: Any,
    trains: Any = None,
    *,
    method: str = "surrogate",
    validation: Any = 0.2,
    rounds: int = 20,
    temporal: Any = "grid",
    input_metric: Any = "entropy",
    deeper_metric: Any = "entropy",
    output_metric: Any = TRAIN_METRIC,
    pairs: Any = "gradient",
    weights: Any = "dot",
    normalizer: Any = "mean-std",
    delays: Any = "correlation",
    supports: Any = "search",
    refractory_supports: float | Sequence[float] = REFRACTORY_SUPPORTS,
    regularization: float = 1e-3,
    initial_batch: int = 1000,
    memory: str | int = "1GB",
    random_state: Any = None,
    verbose: int = 0,
) -> SpikeReport:
    r"""Set all parameters of a network with a spiking output from spike trains, without gradients.

    Hidden layers, output delays and supports come about as in `sswim.sample`. Then `W`, `b` and the spike costs `c`:

    ``"surrogate"`` starts from the voltages that the paper suggests, one constant at spikes and another elsewhere, and solves
    for the least squares. That asks for more than a train needs. So voltages that already lie on the right side are let free,
    the others are set to the nearest admissible one, and the equations are solved again, round by round: alternating
    projections between the voltages that the layer can have and those that produce the trains. Only right-hand sides change.

    ``"glm"`` fits a Poisson generalised linear model of the spikes to the same functions, and takes its log-rate as voltage.

    Either way the threshold and the factor of the spike cost are set on validation samples, by the van Rossum distance of what
    the network really puts out, with its own spikes fed back; so are the weight of steps with a spike and the round.

    Parameters
    ----------
    network : SpikingNetwork
        With ``spiking_output=True``; its parameters are overwritten. With ``start=0, horizon=window`` input and target trains
        live on the same steps.
    X : array or Tensor of shape (samples, window, inputs), or a source of samples
        Real-valued or spikes.
    trains : array or Tensor of shape (samples, horizon, outputs)
        0 and 1. Left out if `X` is a source of samples, whose targets then are the trains.
    method : {"surrogate", "glm"}
    validation : float, or a source of samples, or a pair (X, trains)
    rounds : int
        Number of projections; 0 leaves it at least squares.
    temporal, input_metric, deeper_metric, output_metric, pairs, weights, normalizer, delays, supports
        As in `sswim.sample`.
    refractory_supports : float or sequence of float
        :math:`\varsigma` in steps; of several, each output takes the one that brings it nearest on the initial batch.
    regularization : float
        :math:`\lambda`. It matters little, for few rounds regularise as well. For ``"surrogate"`` alone.
    initial_batch, memory, random_state, verbose
        As in `sswim.sample`.

    Returns
    -------
    SpikeReport

    Notes
    -----
    Projections are extrapolated by Nesterov's momentum: they minimise the sum of squared violations, plus penalty, by steps
    whose curvature is the Gram matrix, and momentum reaches in 20 rounds what takes about 100 without.

    Examples
    --------
    >>> x = torch.rand(200, 20, 1, generator=torch.Generator().manual_seed(0))
    >>> network = SpikingNetwork(1, 1, window=20, horizon=20, start=0, hidden=(20,), spiking_output=True)
    >>> report = sample_spikes(network, x, (x > 0.9).float(), random_state=0)
    >>> bool(report.outputs["distance"][0] < 1), network(x).unique().tolist()
    (True, [0.0, 1.0])
    """
    if not getattr(network.readout, "spiking", False):
        raise ValueError("network: its output must spike. Build it with SpikingNetwork(..., spiking_output=True).")
    if method not in ("surrogate", "glm"):
        raise ValueError(f"method must be 'surrogate' or 'glm', got {method!r}.")
    steps = HiddenSteps.named(
        temporal=temporal,
        input_metric=input_metric,
        deeper_metric=deeper_metric,
        output_metric=output_metric,
        pairs=pairs,
        weights=weights,
        normalizer=normalizer,
    )
    delays = resolve("delays", delays, DELAYS, "correlate")
    supports = resolve("supports", supports, SUPPORTS, "choose")
    check_positive("regularization", regularization, zero=True)
    refractory = [refractory_supports] if isinstance(refractory_supports, (int, float)) else list(refractory_supports)
    if not refractory:
        raise ValueError("refractory_supports: needs at least one support, in steps, got none.")
    refractory = [check_positive("refractory_supports", support) for support in refractory]
    check_integer("rounds", rounds, 0)
    check_integer("initial_batch", initial_batch, 2)
    budget, random = parse_memory(memory), Randomness(random_state)
    train, held_out = _split(network, X, trains, validation)

    size = batch_size(network, budget)
    readout = network.readout
    device, dtype = readout.weights.device, readout.weights.dtype
    C = network.outputs
    with Tracker(verbose) as tracker:
        with tracker.step("check"):
            for samples in (train, held_out):
                for part in batches(len(samples), size):
                    check_trains(samples.targets(part))
        spikes, targets, layers = sample_from(network, train, initial_batch, steps, budget, random, tracker)

        with tracker.step("output delays and supports"):
            lags, sigmas = _temporal(network, spikes[:, :, :COMPARED], targets[:COMPARED], delays, supports)
            readout.delays.copy_((lags - kernel_peak(readout.kernel) * sigmas).clamp_min(0))
            readout.supports.copy_(sigmas)
            weighted = (len(BALANCES) * C + 1) * network.hidden[-1] ** 2 * 8 <= budget
            some, y = spikes[:, :, :COMPARED].to(dtype), targets[:COMPARED].permute(2, 1, 0).contiguous()
            groups = _groups(network, some)
            _refractory(network, groups, some, y, refractory, regularization, BALANCES[1 if weighted else 0])
            spikes = some = torch.empty(0)

        source, checked = (SpikeSource(network, samples, size, budget) for samples in (train, held_out))
        with tracker.step("sums"):
            sums = [SpikeSums(group.means, len(group.outputs), weighted=weighted) for group in groups]
            for A, y in source:
                eta = refractory_traces(readout.refractory, readout.refractory_supports, y)
                for group, total in zip(groups, sums, strict=True):
                    total.update(group.psi(A), eta[group.outputs], y[group.outputs])
            rate = torch.zeros(C, dtype=torch.float64, device=device)
            for group, total in zip(groups, sums, strict=True):
                rate[group.outputs] = total.spikes / total.rows
            for i in ((rate == 0) | (rate == 1)).nonzero()[:, 0].tolist():
                always = rate[i] == 1
                told = f"output {i} {'spikes at every step' if always else 'never spikes'} in the training trains"
                warnings.warn(f"trains: {told}: it will always do so.", UserWarning, stacklevel=2)

        judge = Judge(network, checked, groups)
        balances = BALANCES if weighted else BALANCES[:1]
        if method == "surrogate":
            with tracker.step("output weights"):
                problems = [Projections(g, total, regularization, balances) for g, total in zip(groups, sums, strict=True)]
                for round_ in tracker.count(range(rounds + 1)):
                    if round_:
                        _project(network, source, problems)
                    if round_ & (round_ - 1) == 0 or round_ == rounds:  # powers of two: neighbours hardly differ
                        judge.compare(round_, [problem.fit for problem in problems])
        else:
            with tracker.step("output weights"):
                judge.compare(0, fit_glm(network, source, groups, rate, budget, random("shuffle")))
        with tracker.step("threshold"):
            judge.refine()

        with tracker.step("validation"):
            for group, best in zip(groups, judge.best, strict=True):
                ever = (rate[group.outputs] > 0) & (rate[group.outputs] < 1)
                b = 1 + best.p[:, -1] - best.p[:, :-1] @ group.means
                readout.weights[group.outputs] = torch.where(ever[:, None], best.p[:, :-1], 0.0).to(dtype)
                readout.biases[group.outputs] = torch.where(ever, b, 2 * rate[group.outputs]).to(dtype)
                readout.costs[group.outputs] = torch.where(ever, best.c, 0.0).to(dtype)
            table = _validate(network, held_out, size)
            table["cost"] = readout.costs.tolist()
            table["refractory_support"] = readout.refractory_supports.tolist()
            table["lag"], table["support"] = lags.tolist(), sigmas.tolist()
            if method == "surrogate":
                table["balance"] = [balances[int(k)] for k in judge.candidate]
                table["round"] = judge.round.tolist()
                table["plain"], table["shifted"] = judge.plain.tolist(), judge.shifted.tolist()

    return SpikeReport(
        layers=layers,
        outputs=table,
        method=method,
        samples=len(train),
        validation_samples=len(held_out),
        batch_size=size,
        steps=tracker.records,
    )


def _split(network: SpikingNetwork, X: Any, trains: Any, validation: Any) -> tuple[Samples, Samples]:
    """Return training and validation samples whose trains have the network's shape."""
    if trains is not None:
        trains = torch.as_tensor(trains)
        if trains.ndim != 3 or tuple(trains.shape[1:]) != (network.horizon, network.outputs):
            wanted = f"(samples, {network.horizon}, {network.outputs})"
            raise ValueError(f"trains must have the network's shape {wanted}, got {tuple(trains.shape)}.")
    return split_samples(as_samples(X, trains, network), validation, network)


def _temporal(network: SpikingNetwork, spikes: Tensor, targets: Tensor, delays: Any, supports: Any) -> tuple[Tensor, Tensor]:
    """Return lag and support of each output, few different pairs, from spikes (N, S, M) and trains (M, H, C)."""
    kernel, dtype, count = network.readout.kernel, network.readout.weights.dtype, spikes.shape[2]
    if hasattr(delays, "within"):
        delays = delays.within(count, len(spikes), network.outputs * network.window * network.horizon)
    lags = delays.lags(delays.correlate(spikes.to(dtype), targets, network.start, network.window, 0))
    sigmas, lag = supports.candidates(network.horizon), supports.shared_lag(lags)

    def residuals(pairs: Sequence[tuple[float, float]]) -> Tensor:
        found = []
        for at, sigma in pairs:
            delay = max(at - kernel_peak(kernel) * sigma, 0.0)
            trace = Trace(kernel, delay, sigma, network.start, network.horizon)
            equations = NormalEquations(len(spikes), network.outputs, network.horizon, spikes.device)
            for part in batches(count, 64):
                equations.update(trace.features(spikes[:, :, part].to(dtype)), *trace.targets(targets[part]))
            found.append(equations.least_residual()[0])
        return torch.stack(found)  # (pairs, C)

    table = torch.full((len(sigmas), network.outputs), torch.inf, dtype=torch.float64, device=spikes.device)
    wanted = torch.arange(0, len(sigmas) if len(sigmas) > 1 else 0, 4)
    while len(wanted):
        table[wanted] = residuals([(float(lag), float(sigma)) for sigma in sigmas[wanted]])
        near = (table.argmin(dim=0).unique().cpu()[:, None] + torch.arange(-3, 4)).unique()
        near = near[(near >= 0) & (near < len(sigmas))]
        wanted = near[table[near, 0].cpu().isinf()]
    chosen = supports.choose(sigmas, table).to(lags)
    pairs = Assembly(traces=TRACES).representatives(lags, chosen)
    best = residuals([(at, sigma) for at, sigma in pairs.tolist()]).argmin(dim=0) if len(pairs) > 1 else torch.zeros_like(lags)
    return pairs[best.long(), 0], pairs[best.long(), 1]


def _groups(network: SpikingNetwork, spikes: Tensor) -> list[Group]:
    """Return the outputs by what they see, with the means of that over spikes (N, S, M)."""
    readout, steps = network.readout, network.steps
    found = []
    for pair in torch.stack([readout.delays, readout.supports], dim=1).unique(dim=0):
        outputs = ((readout.delays == pair[0]) & (readout.supports == pair[1])).nonzero()[:, 0]
        K = toeplitz(kernel_taps(readout.kernel, pair[:1], pair[1:], steps), steps)[0].contiguous()
        seen = K[network.start :].double().mean(dim=0)  # (S,)
        means = torch.einsum("s,ns->n", seen, spikes.double().mean(dim=2))
        found.append(Group(outputs, K, network.start, means))
    return found


def _refractory(
    network: SpikingNetwork,
    groups: Sequence[Group],
    spikes: Tensor,
    trains: Tensor,
    supports: Sequence[float],
    lambda_: float,
    balance: float,
) -> None:
    """Set each output's refractory support to the one with which some rounds come nearest to the trains.

    Residuals would not do: they see the target's spikes fed back, not the network's own.
    """
    readout, least = network.readout, []
    source = [(spikes[:, :, part], trains[:, :, part]) for part in batches(spikes.shape[2], 64)]
    for support in supports if len(supports) > 1 else ():
        readout.refractory_supports.fill_(support)
        sums = [SpikeSums(group.means, len(group.outputs), weighted=balance > 0) for group in groups]
        for A, y in source:
            eta = refractory_traces(readout.refractory, readout.refractory_supports, y)
            for group, total in zip(groups, sums, strict=True):
                total.update(group.psi(A), eta[group.outputs], y[group.outputs])
        problems = [Projections(group, total, lambda_, (balance,)) for group, total in zip(groups, sums, strict=True)]
        for _ in range(TRIED_ROUNDS):
            _project(network, source, problems)
        judge = Judge(network, source, groups)
        judge.compare(0, [problem.fit for problem in problems])
        least.append(judge.least)
    best = torch.stack(least).argmin(dim=0) if least else torch.zeros(network.outputs, dtype=torch.int64)
    readout.refractory_supports.copy_(torch.tensor(supports)[best.cpu()])


def _project(network: SpikingNetwork, source: Iterable[tuple[Tensor, Tensor]], problems: Sequence[Projections]) -> None:
    """Do one round over all samples."""
    readout = network.readout
    for A, y in source:
        eta = refractory_traces(readout.refractory, readout.refractory_supports, y)
        for problem in problems:
            problem.see(A, eta, y)
    for problem in problems:
        problem.project()


def _validate(network: SpikingNetwork, samples: Samples, size: int) -> pd.DataFrame:
    """Return a table of how near the network's trains come to those of samples."""
    predict, made, wanted = network.predictor(), [], []
    for part in batches(len(samples), size):
        made.append(predict(samples.inputs(part)).to(torch.uint8).cpu())
        wanted.append(samples.targets(part).to(torch.uint8).cpu())
    a, b = torch.cat(made), torch.cat(wanted)
    silence = van_rossum(torch.zeros_like(b), b)
    silence[silence == 0] = float("nan")
    columns = {
        "distance": van_rossum(a, b) / silence,
        "coincidence": coincidence(a, b),
        "rate": a.double().mean(dim=(0, 1)).numpy(),
        "target_rate": b.double().mean(dim=(0, 1)).numpy(),
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(network.outputs, name="output"))
