"""Sums of samples as an output voltage sees them, and the record that its weights are solved from, again and again."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sswim.data.tensors import require_finite
from sswim.data.windows import Part, Samples, Split, batches
from sswim.network.kernels import delay_of_lag
from sswim.network.layer import Workspace
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Run
from sswim.readout.sliding import SlidingSums, shiftable
from sswim.readout.traces import ASSEMBLIES, Assembly, Trace
from sswim.regression import Regularization, Sums
from sswim.report import Solution

__all__ = ["TraceSource", "VoltageRecord", "joined"]


# What sums hold, and the number of samples that are summed up elsewhere in one piece.
SUMMED, ITEM = ("gram", "cross", "energy", "feature_mean", "target_mean"), 2048


def joined(one: Sums, two: Sums, fade: float = 1.0) -> Sums:
    """Return the sums over the samples of both; those of `one` count `fade` times."""
    (features, outputs), device = one.cross.shape, one.gram.device
    found = Sums(features, outputs, one.horizon, device=device)
    if one.samples:
        found.add(fade * one.gram, fade * one.cross, fade * one.energy, one.feature_mean, one.target_mean, fade * one.samples)
    found.epsilon = one.epsilon
    found.merge(two)
    return found


@dataclass(frozen=True)
class SampleSums:
    """Sums of some samples, one for each trace, and of the squared numbers of their spikes: they add up."""

    sums: tuple[Sums, ...]
    squared_counts: float = 0.0

    def __add__(self, other: SampleSums) -> SampleSums:
        """Return the sums over the samples of both."""
        both = tuple(joined(one, two) for one, two in zip(self.sums, other.sums, strict=True))
        return SampleSums(both, self.squared_counts + other.squared_counts)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that they hold, by name."""
        found = {"squared_counts": torch.tensor(self.squared_counts, dtype=torch.float64)}
        for number, sums in enumerate(self.sums):
            plain = torch.tensor([sums.horizon, sums.samples, sums.epsilon], dtype=torch.float64)
            found |= {f"{number}.{name}": getattr(sums, name) for name in SUMMED} | {f"{number}.plain": plain}
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> SampleSums:
        """Return the sums that `tensors` gave."""
        found = []
        for number in range((len(tensors) - 1) // (len(SUMMED) + 1)):
            horizon, samples, epsilon = tensors[f"{number}.plain"].tolist()
            features, outputs = tensors[f"{number}.cross"].shape
            sums = Sums(features, outputs, int(horizon))
            for name in SUMMED:
                setattr(sums, name, tensors[f"{number}.{name}"])
            sums.samples, sums.epsilon = samples, epsilon
            found.append(sums)
        return cls(tuple(found), float(tensors["squared_counts"]))


@dataclass(frozen=True)
class SampleWork:
    """What is needed to sum up training and validation samples elsewhere."""

    kind = SampleSums
    source: TraceSource
    split: Split

    def digest(self, groups: Sequence[Sequence[tuple[bool, slice]]]) -> str:
        """Return a text that tells these sums from others."""
        inputs = self.split.train.inputs(slice(0, 2))
        shown = inputs.numpy().tobytes() if isinstance(inputs, Tensor) else inputs.times.numpy().tobytes()
        return self.source.network.digest(groups, self.source.memory, shown, self.split.train.marks)


def _sum_samples(common: SampleWork, item: tuple[bool, slice]) -> SampleSums:
    """Return the sums of a run of training samples, or of validation samples."""
    source, (train, part) = common.source.again(), item
    samples = Part(common.split.train if train else common.split.held_out, part.start, part.stop)
    run = Run(source.memory)
    if train:
        return SampleSums(tuple(source.train_sums(samples, run)), source.squared_counts)
    return SampleSums(tuple(source.held_out_sums(samples, [None] * len(source.traces), run)))


class _TraceSums:
    """The sums of one trace, compressed to its rank."""

    def __init__(self, trace: Trace, outputs: Tensor, neurons: int, horizon: int) -> None:
        self._trace, self._outputs = trace, outputs
        self._sums = Sums(neurons, len(outputs), horizon, device=outputs.device)

    def update(self, spikes: Tensor, targets: Tensor, work: Workspace, weights: Tensor | None = None) -> None:
        inside, outside = self._trace.targets(targets[:, :, self._outputs], weights)
        self._sums.update(self._trace.features(spikes, work), inside, outside, weights)

    def result(self) -> list[Sums]:
        return [self._sums]


class TraceSource:
    """What an output voltage of given lags and supports sees of samples.

    Parameters
    ----------
    network : SpikingNetwork
    lags, supports : Tensor of shape (outputs,)
    assembly : Assembly
    memory : int
        Budget in bytes.

    Attributes
    ----------
    traces : list of Trace
        The different pairs of lag and support.
    members : list of Tensor
        The outputs that have each of them.
    squared_counts : float
        Sum of the squared numbers of spikes of every neuron and training sample, so far.
    """

    def __init__(self, network: SpikingNetwork, lags: Tensor, supports: Tensor, assembly: Assembly, memory: int) -> None:
        if not isinstance(network.readout, VoltageReadout):
            raise TypeError("network: its output must be a VoltageReadout.")
        self.network, self.readout, self.assembly, self.memory = network, network.readout, assembly, memory
        each = torch.stack([lags, supports], dim=1).to(self.readout.weights.device)
        pairs = each.unique(dim=0)
        self.members = [(each == pair).all(dim=1).nonzero()[:, 0] for pair in pairs]
        kernel = self.readout.kernel
        self.traces = [
            Trace(kernel, float(delay_of_lag(kernel, *pair)), pair[1], network.start, network.horizon, assembly.tolerance)
            for pair in pairs.tolist()
        ]
        self._work = [Workspace() for _ in network.layers]
        self.squared_counts = 0.0

    @cached_property
    def _filters(self) -> list[Tensor]:
        return self.network.hidden_filters(steps=max(trace.last for trace in self.traces))

    def again(self) -> TraceSource:
        """Return the same, with workspaces and counts of its own."""
        found = copy.copy(self)
        found._work, found._filters = [Workspace() for _ in self.network.layers], self._filters
        found.squared_counts = 0.0
        return found

    def __getstate__(self) -> dict[str, object]:
        # Filters may take a hundred times as many bytes as all else, and are soon computed where they are needed.
        return {name: value for name, value in vars(self).items() if name not in ("_work", "_filters")}

    @property
    def size(self) -> int:
        """Bytes that the sums of training and validation samples take."""
        return 2 * len(self.traces) * self.network.hidden[-1] ** 2 * 8

    def both_sums(self, split: Split, run: Run) -> tuple[SampleSums, SampleSums]:
        """Return the sums of training and of validation samples for each trace."""
        if run.elsewhere and len(split.train) and len(split.held_out):
            parts = (True, split.train), (False, split.held_out)
            groups = [[(train, part) for part in batches(len(samples), ITEM)] for train, samples in parts]
            found = run.sums(_sum_samples, groups, SampleWork(self, split))
            return next(found), next(found)
        train = tuple(self.train_sums(split.train, run))
        held_out = self.held_out_sums(split.held_out, [None] * len(self.traces), run)
        return SampleSums(train, self.squared_counts), SampleSums(tuple(held_out))

    def train_sums(self, samples: Samples, run: Run) -> list[Sums]:
        """Return the sums of training samples for each trace."""
        gathered = self._gather()
        for part in run.count(batches(len(samples), self.network.batch_size(self.memory))):
            x, y = samples.inputs(part), samples.targets(part).to(self.readout.weights.device)
            require_finite(x, y)
            weights = samples.weights(part)
            A = self.network.hidden_spikes(x, self._filters, self._work)[-1]  # (N, S, B)
            counts = A.sum(dim=1).square()
            counts = counts if weights is None else counts * weights.to(counts)
            self.squared_counts += float(counts.sum(dtype=torch.float64))
            for _, place in gathered:
                place.update(A, y, self._work[-1], weights)
        by_number = {i: sums for numbers, place in gathered for i, sums in zip(numbers, place.result(), strict=True)}
        return [by_number[i] for i in range(len(self.traces))]

    def _gather(self) -> list[tuple[list[int], _TraceSums | SlidingSums]]:
        """Return where to sum up, with the numbers of the traces that come out: alone, or if exact those that only shift."""
        network, kernel, neurons = self.network, self.readout.kernel, self.network.hidden[-1]
        together: dict[tuple[float, float], list[int]] = {}
        for i, trace in enumerate(self.traces):
            shifts = self.assembly.tolerance == 0 and shiftable(kernel, trace.delay, trace.support, network.steps)
            together.setdefault((trace.support, trace.delay % 1) if shifts else (-1.0 - i, 0.0), []).append(i)
        found: list[tuple[list[int], _TraceSums | SlidingSums]] = []
        for numbers in together.values():
            numbers = sorted(numbers, key=lambda i: self.traces[i].delay)
            traces, members = [self.traces[i] for i in numbers], [self.members[i] for i in numbers]
            if len(numbers) == 1 or 2 * len(numbers) * neurons**2 * 8 > self.memory:
                pairs = zip(numbers, traces, members, strict=True)
                found += [([i], _TraceSums(trace, of, neurons, network.horizon)) for i, trace, of in pairs]
                continue
            delays, support, device = [t.delay for t in traces], traces[0].support, members[0].device
            sums = SlidingSums(kernel, delays, support, network.start, network.horizon, members, neurons, device)
            found.append((numbers, sums))
        return found

    def held_out_sums(self, samples: Samples, bases: Sequence[Tensor | None], run: Run) -> list[Sums]:
        """Return the sums of validation samples for each trace, of the features multiplied by its basis, if there is one."""
        network, neurons = self.network, self.network.hidden[-1]
        sizes = [neurons if basis is None else basis.shape[1] for basis in bases]
        device = self.readout.weights.device
        sums = [Sums(n, len(m), network.horizon, device=device) for n, m in zip(sizes, self.members, strict=True)]
        needed = len(samples) if any(sizes) else 0
        for part in run.count(batches(needed, network.batch_size(self.memory))):
            x, y, weights = samples.inputs(part), samples.targets(part).to(device), samples.weights(part)
            require_finite(x, y)
            A = network.hidden_spikes(x, self._filters, self._work)[-1]  # (N, S, B)
            for trace, outputs, total, basis in zip(self.traces, self.members, sums, bases, strict=True):
                features = trace.features(A, self._work[-1])
                if basis is not None:
                    constant = basis[neurons:].to(features)  # its row, if the bias is penalised
                    features = (basis[:neurons].T.to(features) @ features.flatten(1)).unflatten(1, features.shape[1:])
                    features[:, 0] += network.horizon**0.5 * constant.sum(dim=0)[:, None]
                total.update(features, *trace.targets(y[:, :, outputs], weights), weights)
        return sums


@dataclass(frozen=True)
class VoltageRecord:
    """Sums of samples, from which the weights of an output voltage can be solved for anew. It never changes.

    Attributes
    ----------
    lags, supports : Tensor of shape (outputs,)
    assembly : Assembly
    regularization : Regularization
    train, held_out : tuple of Sums
        For each trace, those of training and of validation samples.
    squared_counts : float
        Sum of the squared numbers of spikes of every neuron and training sample.
    """

    lags: Tensor
    supports: Tensor
    assembly: Assembly
    regularization: Regularization
    train: tuple[Sums, ...] = ()
    held_out: tuple[Sums, ...] = ()
    squared_counts: float = 0.0

    def emptied(self) -> VoltageRecord:
        """Return a record of no samples."""
        return replace(self, train=(), held_out=(), squared_counts=0.0)

    def _source(self, network: SpikingNetwork, memory: int) -> TraceSource:
        return TraceSource(network, self.lags, self.supports, self.assembly, memory)

    @torch.no_grad()
    def fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        """Set a network's output weights from all samples at once."""
        source = self._source(network, run.budget)
        if run.keeps(source.size):
            return self.emptied().extended(network, split, run).solve(network, run)
        with run.step("output weights"):
            train = source.train_sums(split.train, run)
        with run.step("regularisation"):
            bases = [self.regularization.basis(sums) for sums in train]
            held_out = source.held_out_sums(split.held_out, bases, run)
            return self._set(source, train, held_out, bases, source.squared_counts)

    @torch.no_grad()
    def extended(
        self, network: SpikingNetwork, split: Split, run: Run, *, begins: bool = True, forget: float | None = None
    ) -> VoltageRecord:
        """Return the record with new samples."""
        source, new = self._source(network, run.budget), split.faded(forget)
        with run.step("output weights"):
            train, held_out = source.both_sums(new, run)
        record = replace(self, train=train.sums, held_out=held_out.sums, squared_counts=train.squared_counts)
        return self.merged(record, split.fade(forget))

    def merged(self, other: VoltageRecord, fade: float = 1.0) -> VoltageRecord:
        """Return the record of these samples and those of another; these count `fade` times."""
        if not self.train:
            return other
        train, held_out = (
            tuple(joined(one, two, fade) for one, two in zip(mine, theirs, strict=True))
            for mine, theirs in ((self.train, other.train), (self.held_out, other.held_out))
        )
        return replace(self, train=train, held_out=held_out, squared_counts=fade * self.squared_counts + other.squared_counts)

    @torch.no_grad()
    def solve(self, network: SpikingNetwork, run: Run) -> Solution:
        """Set an output's weights from the sums."""
        with run.step("regularisation"):
            source = self._source(network, run.budget)
            solution = self._set(source, self.train, self.held_out, [None] * len(self.train), self.squared_counts)
        return replace(solution, record=self)

    def _set(
        self,
        source: TraceSource,
        train: Sequence[Sums],
        held_out: Sequence[Sums],
        bases: Sequence[Tensor | None],
        squared_counts: float,
    ) -> Solution:
        """Set weights and biases, and return what is told of them."""
        network, readout, regularization = source.network, source.readout, self.regularization
        lambdas = torch.empty(network.outputs, dtype=torch.float64, device=readout.weights.device)
        for outputs, sums, checked, basis in zip(source.members, train, held_out, bases, strict=True):
            w, b, lambdas[outputs] = regularization.solve(sums, checked, basis)
            readout.weights[outputs] = w.T.to(readout.weights)
            readout.biases[outputs] = b.to(readout.biases)
        names = {known: name for name, known in ASSEMBLIES.items()}
        solution = Solution(lambdas.cpu(), self.lags, len(source.traces), names.get(self.assembly, str(self.assembly)))
        condition, bound = _conditions(source, train, lambdas, regularization, squared_counts)
        return replace(solution, condition=condition, condition_bound=bound)


def _conditions(
    source: TraceSource, train: Sequence[Sums], lambdas: Tensor, regularization: Regularization, squared_counts: float
) -> tuple[float, float]:
    r"""Return the largest condition number of the systems that were solved, and the largest of the paper's bounds.

    .. math:: \kappa(F) \le 1 + H / \lambda + \frac{|k|^2}{M \lambda} \sum_n \sum_j |T_j^n|^2
    """
    condition = largest = 1.0
    for trace, sums, outputs in zip(source.traces, train, source.members, strict=True):
        solved = sums.with_constant() if getattr(regularization, "penalize_bias", False) else sums
        lambda_, spikes = lambdas[outputs], trace.energy * squared_counts / sums.samples
        bound = 1 + (source.network.horizon + spikes) / lambda_.clamp_min(1e-300)
        condition, largest = max(condition, float(solved.condition(lambda_).max())), max(largest, float(bound.max()))
    return condition, largest
