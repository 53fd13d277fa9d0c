"""The paper's readout: an output's voltage draws the horizon. Its delays, supports and weights (lines 16 to 18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.algebra import index_of_least
from sswim.data.windows import Split, batches
from sswim.network.kernels import REFRACTORY_KERNELS, delay_of_lag, resolve_kernel
from sswim.network.layer import Workspace
from sswim.network.network import KernelName, SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Mistakes, Options, Run, check_integer, resolve
from sswim.readout.base import Shape, Training
from sswim.readout.gathered import VoltageRecord
from sswim.readout.traces import ASSEMBLIES, Assembly, Trace
from sswim.regression import REGULARIZATION, Regularization, Sums
from sswim.report import Solution
from sswim.steps.base import Delays, InitialBatch, Supports
from sswim.steps.delays import DELAYS
from sswim.steps.supports import SUPPORTS

__all__ = ["Trajectory", "output_times"]

# Multiply-adds up to which one Gram matrix per output is quick enough: seconds on two cores.
EXACT_WORK = 5e11
# Residuals that differ by less than this part may differ by rounding.
CLOSE = 0.01


@dataclass(frozen=True)
class Trajectory(Options):
    """An output's voltage draws the horizon, as in the paper.

    Parameters
    ----------
    kernel : str or callable
        Of the output layer.
    delays, supports, regularization : str or object
        The steps that find delays, supports and weights; see `sswim.steps` and `sswim.LambdaSearch`.
    assembly : {"auto", "fast", "exact"} or Assembly
        How far the sums over all samples are thinned out; see `sswim.readout.Assembly`. ``"auto"`` is exact where that
        takes seconds, and fast otherwise.
    stride : int
        A forecaster uses every `stride`-th window for fitting.
    """

    kernel: KernelName = "hat"
    delays: str | Delays = "correlation"
    supports: str | Supports = "search"
    regularization: str | Regularization = "search"
    assembly: str | Assembly = "auto"
    stride: int = 1

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        check = mistakes.check
        check(resolve_kernel, self.kernel, "kernel")
        check(resolve, "delays", self.delays, DELAYS, "within", "correlate", "lags")
        check(resolve, "supports", self.supports, SUPPORTS, "find")
        check(resolve, "regularization", self.regularization, REGULARIZATION, "basis", "solve")
        check(resolve, "assembly", self.assembly, {"auto": None, **ASSEMBLIES}, "representatives")
        check(check_integer, "stride", self.stride, 1)
        mistakes.report()

    def build(self, shape: Shape) -> VoltageReadout:
        """Return an output layer of the right sizes, right after the window."""
        kernel, refractory = resolve_kernel(self.kernel), REFRACTORY_KERNELS["exponential-cut"]
        sizes = shape.hidden[-1], shape.outputs
        return VoltageReadout(*sizes, kernel, refractory, start=shape.window, horizon=shape.horizon, dtype=shape.dtype)

    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set delays and supports from the initial batch, and the weights from all samples."""
        readout, assembly = _voltage(network), self._assembly(network, len(split.train))
        delays = resolve("delays", self.delays, DELAYS)
        supports = resolve("supports", self.supports, SUPPORTS)
        lags, sigmas = output_times(network, spikes, batch.targets, delays, supports, assembly, run)
        readout.supports.copy_(sigmas), readout.delays.copy_(delay_of_lag(readout.kernel, lags, sigmas))
        regularization = resolve("regularization", self.regularization, REGULARIZATION)
        record = VoltageRecord(lags.cpu(), sigmas.cpu(), assembly, regularization)
        return record.fit(network, split, run)

    def _assembly(self, network: SpikingNetwork, samples: int) -> Assembly:
        if self.assembly == "auto":
            work = samples * network.horizon * network.hidden[-1] ** 2 * network.outputs
            return ASSEMBLIES["exact" if work <= EXACT_WORK else "fast"]
        return resolve("assembly", self.assembly, ASSEMBLIES)

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network; the loss is the one that sampling minimised, with the same penalty."""
        penalty = None if training.from_scratch else solution.lambdas
        report = training.descend(network, split.train, split.held_out, run, penalty=penalty)
        return replace(solution, training=report, record=None)


def _voltage(network: SpikingNetwork) -> VoltageReadout:
    if not isinstance(network.readout, VoltageReadout):
        raise TypeError(
            "network: its output reads traces at the window's end, but this readout sets a voltage. Build the network without "
            "readout=..., or pass readout=Counts(loss='squared_error') to sample."
        )
    return network.readout


@torch.no_grad()
def output_times(
    network: SpikingNetwork,
    spikes: Tensor,
    targets: Tensor,
    delays: Delays,
    supports: Supports,
    assembly: Assembly,
    run: Run,
) -> tuple[Tensor, Tensor]:
    """Return lag and support of each output, from spikes (neurons, steps, batch) and targets (batch, horizon, outputs)."""
    compared, work = slice(0, assembly.samples), Workspace()

    def residuals(traces: Sequence[Trace], precision: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        return _least_residuals(network, spikes[:, :, compared], targets[compared], traces, run, work, precision)

    def trace(lag: float, support: float) -> Trace:
        readout = _voltage(network)
        delay = float(delay_of_lag(readout.kernel, lag, support))
        return Trace(readout.kernel, delay, support, network.start, network.horizon, assembly.tolerance)

    def compare(candidates: Tensor, lag: float) -> Tensor:
        table = torch.full((len(candidates), network.outputs), torch.inf, dtype=torch.float64, device=spikes.device)
        sharp = torch.ones(len(candidates), dtype=torch.bool)

        def look(numbers: Tensor) -> None:
            table[numbers], sharp[numbers] = residuals([trace(lag, float(sigma)) for sigma in candidates[numbers]])

        if len(candidates) > 1:
            _coarse_to_fine(table, assembly.skip, look)
        if assembly.tolerance == 0:  # close calls among nearly dependent traces: float64 decides
            near = table <= (1 + CLOSE) * table.min(dim=0).values
            close = ~sharp & (near & (near.sum(dim=0) > 1)).any(dim=1).cpu()
            again = [trace(lag, float(sigma)) for sigma in candidates[close]]
            if again:
                table[close] = residuals(again, torch.float64)[0]
        return table

    with run.step("output delays"):
        lags, correlation = _find_lags(network, spikes, targets, delays, run)
    with run.step("output supports"):
        chosen = supports.find(correlation, lags, network.horizon, compare).to(lags)
    with run.step("output traces"):
        distinct = assembly.representatives(lags, chosen)
        own = (torch.stack([lags, chosen], dim=1)[:, None] == distinct).all(dim=2)  # (C, traces)
        # Each output keeps its own pair if that is there, and takes the one of least residual otherwise.
        group = own.int().argmax(dim=1)
        if not bool(own.any(dim=1).all()):
            group = index_of_least(residuals([trace(*pair) for pair in distinct.tolist()])[0], 1e-5)
    return distinct[group, 0], distinct[group, 1]


def _find_lags(network: SpikingNetwork, spikes: Tensor, targets: Tensor, delays: Delays, run: Run) -> tuple[Tensor, Tensor]:
    """Return the lag at which hidden spikes best predict each output (``op_c``), and the correlations (outputs, lags)."""
    count, correlation = len(targets), torch.zeros(())
    delays = delays.within(count, len(spikes), network.outputs * network.window * network.horizon)
    used = count if delays.samples is None else min(count, delays.samples)
    for part in run.count(batches(used, network.batch_size(run.budget))):
        seen = spikes[:, :, part].to(network.readout.weights)
        correlation = correlation + delays.correlate(seen, targets[part], network.start, network.window, part.start)
    return delays.lags(correlation), correlation


def _coarse_to_fine(table: Tensor, skip: int, look: Callable[[Tensor], None]) -> None:
    """Fill the rows of a table (candidates, outputs) near each column's minimum: every `skip`-th first, then neighbours.

    `look` fills the rows of given numbers; rows that were not looked at stay infinite.
    """
    wanted = torch.arange(0, len(table), skip)
    while len(wanted):
        look(wanted)
        best = table.argmin(dim=0).unique().cpu()
        near = (best[:, None] + torch.arange(1 - skip, skip)).unique()
        near = near[(near >= 0) & (near < len(table))]
        wanted = near[table[near, 0].cpu().isinf()]


def _least_residuals(
    network: SpikingNetwork,
    spikes: Tensor,
    targets: Tensor,
    traces: Sequence[Trace],
    run: Run,
    work: Workspace,
    precision: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """Return the least residuals (traces, outputs) if all outputs saw the same trace, and which of the traces' are sharp."""
    weights = network.readout.weights
    like = weights.new_empty(0, dtype=weights.dtype if precision is None else precision)
    tried = [Sums(len(spikes), network.outputs, network.horizon, device=like.device) for _ in traces]
    for part in run.count(batches(spikes.shape[2], network.batch_size(run.budget))):
        batch, y = spikes[:, :, part], targets[part]
        A = work.take("potentials", like, *batch.shape).copy_(batch)
        for trace, sums in zip(traces, tried, strict=True):
            sums.update(trace.features(A, work), *trace.targets(y))
    found = [sums.least_residual() for sums in tried]
    return torch.stack([residual for residual, _ in found]), torch.tensor([sharp for _, sharp in found])
