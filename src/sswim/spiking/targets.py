r"""Output layers that spike like given trains: regression of spike trains (appendix ``app:sswim_o_spikes``).

An output puts out the train `y` exactly if its voltage is at least 1 at the spikes of `y` and below 1 elsewhere, where

.. math:: v_i(t) = \sum_j W_{ij} \psi_{ij}(t) + b_i + c_i \eta_i(t), \quad \eta_i(t) = \sum_{t^f < t} q((t - t^f) / \varsigma_i)

with :math:`\psi` the filtered hidden spikes and :math:`\eta` the refractory trace of the *target* train: what the output would
feel of its own spikes if it had put out the right ones so far. This is linear in `W`, `b` and `c`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sswim.data.tensors import as_samples, as_split
from sswim.data.windows import Samples, Split, batches
from sswim.evaluate.metrics import coincidence, van_rossum
from sswim.network.kernels import delay_of_lag, kernel_taps, toeplitz
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import (
    Mistakes,
    Run,
    Seed,
    StepRecord,
    check_choice,
    check_integer,
    check_positive,
    resolve,
    resolve_kind,
    warn,
)
from sswim.readout.traces import Assembly
from sswim.readout.trajectory import output_times
from sswim.report import LayerReport, Solution
from sswim.sampling import STEPS, Steps, sample_network
from sswim.spiking.glm import fit_glm
from sswim.spiking.judge import Judge
from sswim.spiking.projections import Group, Projections, SpikeSums, refractory_traces
from sswim.spiking.source import SpikeSource, check_trains
from sswim.steps.base import Delays, InitialBatch, Supports
from sswim.steps.delays import DELAYS
from sswim.steps.pairs import VanRossum
from sswim.steps.supports import SUPPORTS

__all__ = ["SpikeReport", "TrainReadout", "sample_spikes"]

# Pairs are drawn by the distance of trains.
TRAIN_STEPS = STEPS["paper"].replace(output_metric=VanRossum())
# How rows at spikes weigh: powers of the number of other rows per spike. 0 is plain, 1 makes both classes weigh alike.
BALANCES = (0.0, 0.5, 1.0)
# Supports of the refractory kernel that are compared by default, in steps.
REFRACTORY_SUPPORTS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
# Samples that delays, supports and refractory supports are found on.
COMPARED = 300
# Outputs see at most four different (delay, support) pairs.
ASSEMBLY = Assembly(tolerance=0.0, traces=4, skip=4, samples=COMPARED)
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
        chosen as for the result; ``coincidence``, see `sswim.evaluate.metrics.coincidence`; ``rate`` and ``target_rate`` in
        spikes per step. Of the fit: ``cost``, ``refractory_support``, ``lag``, ``support``, ``balance`` and ``round``.
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


def sample_spikes(
    network: SpikingNetwork,
    X: npt.ArrayLike | Samples,
    trains: npt.ArrayLike | None = None,
    *,
    method: str = "surrogate",
    validation: float | Samples | tuple[npt.ArrayLike, npt.ArrayLike] = 0.2,
    rounds: int = 20,
    steps: str | Steps = TRAIN_STEPS,
    delays: str | Delays = "correlation",
    supports: str | Supports = "search",
    refractory_supports: float | Sequence[float] = REFRACTORY_SUPPORTS,
    regularization: float = 1e-3,
    memory: str | int = "1GB",
    random_state: Seed = None,
    verbose: int = 0,
) -> SpikeReport:
    r"""Set all parameters of a network with a spiking output from spike trains, without gradients.

    Hidden layers, output delays and supports are set as in `sswim.sample`. Then `W`, `b` and the spike costs `c`:

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
    X : array or Tensor of shape (samples, window, inputs), or `Samples`
        Real-valued or spikes.
    trains : array or Tensor of shape (samples, horizon, outputs)
        0 and 1. Omitted if `X` is `Samples`, whose targets then are the trains.
    method : {"surrogate", "glm"}
    validation : float, `Samples`, or a pair (X, trains)
    rounds : int
        Number of projections; 0 leaves it at least squares.
    steps : Steps or str
        The steps that sample the hidden layers. Default: the paper's, with pairs drawn by the distance of trains.
    delays, supports : str or object
        The steps that find the output's delays and supports, as in `sswim.readout.Trajectory`.
    refractory_supports : float or sequence of float
        :math:`\varsigma` in steps; of several, each output takes the one that brings it nearest on the initial batch.
    regularization : float
        :math:`\lambda`. It matters little, for few rounds regularise as well. For ``"surrogate"`` alone.
    memory, random_state, verbose
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
    if not isinstance(network.readout, VoltageReadout) or not network.readout.spiking:
        raise ValueError("network: its output must spike. Build it with SpikingNetwork(..., spiking_output=True).")
    mistakes = Mistakes()
    check = mistakes.check
    check(check_choice, "method", method, ("surrogate", "glm"))
    check(check_positive, "regularization", regularization, zero=True)
    check(check_integer, "rounds", rounds, 0)
    several = [refractory_supports] if isinstance(refractory_supports, (int, float)) else list(refractory_supports)
    for support in several:
        check(check_positive, "refractory_supports", support)
    readout = TrainReadout(
        method,
        rounds,
        check(resolve, "delays", delays, DELAYS, "within", "correlate", "lags"),
        check(resolve, "supports", supports, SUPPORTS, "find"),
        several,
        regularization,
    )
    chosen = resolve_kind("steps", steps, STEPS, Steps).resolved(mistakes)
    mistakes.report()
    if not several:
        raise ValueError("refractory_supports: needs at least one support, in steps, got none.")
    split = _split(network, X, trains, validation)
    with Run(memory, random_state, verbose) as run:
        with run.step("check"):
            for samples in (split.train, split.held_out):
                for part in batches(len(samples), network.batch_size(run.budget)):
                    check_trains(samples.targets(part))
        report = sample_network(network, split, chosen, readout, run)
    counts = report.samples, report.validation_samples, report.batch_size
    return SpikeReport(report.layers, readout.table, method, *counts, report.steps)


@dataclass
class TrainReadout:
    """Solves for a spiking output layer that puts out given trains; see `sample_spikes`.

    Attributes
    ----------
    table : DataFrame
        How near each output comes to its trains, once `solve` is done.
    """

    method: str
    rounds: int
    delays: Delays
    supports: Supports
    refractory_supports: Sequence[float]
    regularization: float
    table: pd.DataFrame = field(default_factory=pd.DataFrame)

    @torch.no_grad()
    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set all parameters of the output layer."""
        readout: VoltageReadout = network.readout  # type: ignore[assignment]
        some, targets, dtype = spikes[:, :, :COMPARED], batch.targets[:COMPARED], readout.weights.dtype
        lags, sigmas = output_times(network, some, targets, self.delays, self.supports, ASSEMBLY, run)
        readout.delays.copy_(delay_of_lag(readout.kernel, lags, sigmas)), readout.supports.copy_(sigmas)
        weighted = (len(BALANCES) * network.outputs + 1) * network.hidden[-1] ** 2 * 8 <= run.budget
        with run.step("refractory supports"):
            groups, y = _groups(network, some.to(dtype)), targets.permute(2, 1, 0).contiguous()
            balance = BALANCES[1 if weighted else 0]
            _refractory(network, groups, some.to(dtype), y, self.refractory_supports, self.regularization, balance)
        size = network.batch_size(run.budget)
        source, checked = (SpikeSource(network, part, size, run.budget) for part in (split.train, split.held_out))
        with run.step("sums"):
            sums = _sums(network, source, groups, weighted=weighted)
            rate = _rates(network, groups, sums)
        judge, balances = Judge(network, checked, groups), BALANCES if weighted else BALANCES[:1]
        with run.step("output weights"):
            if self.method == "surrogate":
                self._project(network, source, groups, sums, balances, judge, run)
            else:
                judge.compare(0, fit_glm(network, source, groups, rate, run.budget, run.random("shuffle")))
        with run.step("threshold"):
            judge.refine()
        with run.step("validation"):
            _set_output(readout, groups, judge, rate)
            self.table = _validate(network, split.held_out, size)
            self.table["cost"] = readout.costs.tolist()
            self.table["refractory_support"] = readout.refractory_supports.tolist()
            self.table["lag"], self.table["support"] = lags.tolist(), sigmas.tolist()
            if self.method == "surrogate":
                self.table["balance"] = [balances[int(k)] for k in judge.candidate]
                self.table["round"] = judge.round.tolist()
                self.table["plain"], self.table["shifted"] = judge.plain.tolist(), judge.shifted.tolist()
        return Solution(torch.full((network.outputs,), self.regularization), lags.cpu(), len(groups))

    def _project(
        self,
        network: SpikingNetwork,
        source: SpikeSource,
        groups: Sequence[Group],
        sums: Sequence[SpikeSums],
        balances: Sequence[float],
        judge: Judge,
        run: Run,
    ) -> None:
        """Do all rounds of projections, and let `judge` compare some of them."""
        pairs = zip(groups, sums, strict=True)
        problems = [Projections(group, total, self.regularization, balances) for group, total in pairs]
        for round_ in run.count(range(self.rounds + 1)):
            if round_:
                _project(network, source, problems)
            if round_ & (round_ - 1) == 0 or round_ == self.rounds:  # powers of two: neighbours hardly differ
                judge.compare(round_, [problem.fit for problem in problems])


def _split(
    network: SpikingNetwork,
    X: npt.ArrayLike | Samples,
    trains: npt.ArrayLike | None,
    validation: float | Samples | tuple[npt.ArrayLike, npt.ArrayLike],
) -> Split:
    """Return training and validation samples whose trains have the network's shape."""
    if trains is not None:
        trains = torch.as_tensor(trains)
        if trains.ndim != 3 or tuple(trains.shape[1:]) != (network.horizon, network.outputs):
            wanted = f"(samples, {network.horizon}, {network.outputs})"
            raise ValueError(f"trains must have the network's shape {wanted}, got {tuple(trains.shape)}.")
    return as_split(as_samples(X, trains, network), validation, network)


def _sums(
    network: SpikingNetwork, source: Iterable[tuple[Tensor, Tensor]], groups: Sequence[Group], *, weighted: bool
) -> list[SpikeSums]:
    """Return the sums of all samples, for the outputs of each group."""
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    sums = [SpikeSums(group.means, len(group.outputs), weighted=weighted) for group in groups]
    for A, y in source:
        eta = refractory_traces(readout.refractory, readout.refractory_supports, y)
        for group, total in zip(groups, sums, strict=True):
            total.update(group.psi(A), eta[group.outputs], y[group.outputs])
    return sums


def _rates(network: SpikingNetwork, groups: Sequence[Group], sums: Sequence[SpikeSums]) -> Tensor:
    """Return the part of all steps at which each output spikes; warn of outputs that never or always do."""
    rate = torch.zeros(network.outputs, dtype=torch.float64, device=network.readout.weights.device)
    for group, total in zip(groups, sums, strict=True):
        rate[group.outputs] = total.spikes / total.rows
    for i in ((rate == 0) | (rate == 1)).nonzero()[:, 0].tolist():
        does = "spikes at every step" if rate[i] == 1 else "never spikes"
        warn(f"trains: output {i} {does} in the training trains: it will always do so.", stacklevel=5)
    return rate


def _set_output(readout: VoltageReadout, groups: Sequence[Group], judge: Judge, rate: Tensor) -> None:
    """Set weights, biases and costs to the best candidates; outputs that never or always spike get constants."""
    for group, best in zip(groups, judge.best, strict=True):
        of = rate[group.outputs]
        ever = (of > 0) & (of < 1)
        b = 1 + best.p[:, -1] - best.p[:, :-1] @ group.means
        readout.weights[group.outputs] = torch.where(ever[:, None], best.p[:, :-1], 0.0).to(readout.weights)
        readout.biases[group.outputs] = torch.where(ever, b, 2 * of).to(readout.weights)
        readout.costs[group.outputs] = torch.where(ever, best.c, 0.0).to(readout.weights)


def _groups(network: SpikingNetwork, spikes: Tensor) -> list[Group]:
    """Return the outputs by what they see, with the means of that over spikes (N, S, M)."""
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    steps = network.steps
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
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    least = []
    source = [(spikes[:, :, part], trains[:, :, part]) for part in batches(spikes.shape[2], 64)]
    for support in supports if len(supports) > 1 else ():
        readout.refractory_supports.fill_(support)
        sums = _sums(network, source, groups, weighted=balance > 0)
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
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
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
        made.append(predict(samples.inputs(part), None).to(torch.uint8).cpu())
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
