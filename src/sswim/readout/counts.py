"""A classifier's readout of the traces of all hidden layers: one regression, and the likeliest weights from there."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sswim.data.windows import Part, Samples, Split, batches
from sswim.machine import PIECES, on_threads
from sswim.network.network import SpikingNetwork
from sswim.options import Mistakes, Options, Run, check_choice, check_constants, resolve
from sswim.readout.base import Shape, Training
from sswim.readout.decaying import TraceReadout, check_memory
from sswim.readout.gathered import ITEM, SampleSums, joined
from sswim.readout.leaving import leave_groups_out
from sswim.readout.likelihood import KeptFeatures, fit_temperature, likeliest
from sswim.readout.record import KEPT, quantiles_of
from sswim.readout.rounding import rounded_output
from sswim.readout.wide import WIDE, solve_wide, wide_memory
from sswim.regression import REGULARIZATION, FixedLambda, LambdaSearch, Regularization, Sums
from sswim.report import Solution
from sswim.steps.base import InitialBatch
from sswim.steps.leaky import check_bits

__all__ = ["Counts", "cross_entropy", "few_of"]

LOSSES = ("log_loss", "squared_error")
# With more features than this, this many samples are added to the sums at once.
MANY, TOGETHER = 1500, 1024


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross entropy of voltages (batch, steps, classes), by their means over time."""
    return torch.nn.functional.cross_entropy(output.mean(dim=1), target.mean(dim=1).argmax(dim=1))


def few_of(samples: Samples, count: int) -> Samples:
    """Return the first `count` samples, or all if there are fewer."""
    return Part(samples, 0, min(len(samples), count))


@dataclass(frozen=True)
class Counts(Options):
    """Read how often each neuron of every layer fired, or its spikes' fading traces.

    Parameters
    ----------
    traces : float or sequence of float
        Time constants in steps of the traces that are read; infinity counts spikes.
    loss : {"log_loss", "squared_error"}
        Whether the weights make the training samples' classes likely, or are those of a regression. The former start from
        the latter, and keep the traces of all samples, or of as many as memory has room for.
    regularization : str or object
        ``"search"``, ``"fixed"``, or a `LambdaSearch` or `FixedLambda`.
    bits : int, optional
        Round the weights of each class to integers of this many bits times a number. Default: not rounded.
    roots : bool or "auto"
        Whether square roots of counts and traces are read. Large counts vary more than small ones; their roots vary alike.
        ``"auto"``: for images that a `Convolution` sees and pools over at least 16 places, without a `profile`.
    """

    traces: float | Sequence[float] = (math.inf,)
    loss: str = "log_loss"
    regularization: str | Regularization = "search"
    bits: int | None = None
    roots: bool | str = field(default="auto", metadata={"later": True})

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        with mistakes.collect():
            if not (isinstance(self.roots, bool) or self.roots == "auto"):
                raise ValueError(f"roots must be True, False or 'auto', got {self.roots!r}.")
        mistakes.check(check_choice, "loss", self.loss, LOSSES)
        mistakes.check(check_constants, "traces", self.traces)
        mistakes.check(check_bits, "bits", self.bits)
        mistakes.check(resolve, "regularization", self.regularization, REGULARIZATION, "basis", "solve")
        mistakes.report()

    @property
    def horizon(self) -> int:
        """Steps that targets live on: the window's end alone."""
        return 1

    @property
    def voltage(self) -> float:
        """Target of the right class, and minus that of the others."""
        return 2.0

    def build(self, shape: Shape) -> TraceReadout:
        """Return an output of the right sizes."""
        constants = check_constants("traces", self.traces)
        traces = sum(shape.hidden) * len(constants)
        if traces <= WIDE or self.bits is not None or wide_memory(traces) > shape.memory:
            check_memory(traces, shape.memory, "Use fewer neurons or traces, or allow more.")
        roots = self.roots is True
        return TraceReadout(traces, shape.outputs, shape.horizon, constants=constants, roots=roots, dtype=shape.dtype)

    @torch.no_grad()
    def solve(self, network: SpikingNetwork, split: Split, batch: InitialBatch, spikes: Tensor, run: Run) -> Solution:
        """Set the weights that read the traces, from all samples."""
        readout = network.readout
        if not isinstance(readout, TraceReadout):
            raise TypeError("network: Counts reads traces alone. Build it with readout=TraceReadout(...).")
        if self.loss == "log_loss" and network.horizon != 1:
            raise ValueError("loss: 'log_loss' needs one class per sample. Use Counts(loss='squared_error') for real targets.")
        regularization = resolve("regularization", self.regularization, REGULARIZATION)
        features = readout.weights.shape[1]
        if self.loss == "squared_error" and features <= WIDE:
            work, size = CountsWork(network, split.train, 0, run.budget), network.batch_size(run.budget)

            def sums_of(part: Samples) -> Sums:
                return replace(work, samples=part).sums(batches(len(part), size)).sums

            regularization = leave_groups_out(split, features, regularization, sums_of, run)
        plain = isinstance(regularization, FixedLambda) and not regularization.penalize_bias
        plain = plain or regularization == LambdaSearch()  # a search of the user's own has a grid of its own
        wide = readout.weights.shape[1] > WIDE and network.horizon == 1 and self.bits is None and plain
        if wide and not run.elsewhere and len(split.held_out):
            return solve_wide(network, split, regularization, self.loss, self.voltage, run)
        return CountsRecord(self.loss, regularization, bits=self.bits).fit(network, split, run)

    def improve(self, network: SpikingNetwork, split: Split, solution: Solution, training: Training, run: Run) -> Solution:
        """Train the network down the cross entropy."""
        report = training.descend(network, split.train, split.held_out, run, loss=cross_entropy, penalty=0.0)
        few = few_of(split.held_out, 5000)
        temperature = fit_temperature(decisions(network, few, run.budget), few.targets(slice(None))[:, 0].argmax(dim=1))
        return replace(solution, temperature=temperature, training=report, record=None)

    def finish(self, network: SpikingNetwork, split: Split, solution: Solution, run: Run) -> Solution:
        """Return the solution: there is nothing left to do."""
        return solution

    def decisions(self, network: SpikingNetwork, samples: Samples, memory: int) -> Tensor:
        """Return the decision value of each class, (samples, classes)."""
        return decisions(network, samples, memory)


@torch.no_grad()
def decisions(network: SpikingNetwork, samples: Samples, memory: int) -> Tensor:
    """Return what a network that reads traces says of each class, (samples, classes)."""
    # In float64, so that a sample's values do not depend on the batch it comes in.
    readout = copy.deepcopy(network.readout).double()  # type: ignore[attr-defined]
    look = network.trace_reader(network.readout.constants)

    def decide(part: slice) -> Tensor:
        return readout(look(samples.inputs(part)).double()[:, None])[:, 0].T

    return torch.cat(list(on_threads(decide, batches(len(samples), network.batch_size(memory // PIECES))))).cpu()


@dataclass(frozen=True)
class CountsSums:
    """Sums of some samples' traces, and those that were kept: they add up."""

    sums: Sums
    kept: KeptFeatures

    def __add__(self, other: CountsSums) -> CountsSums:
        """Return the sums over the samples of both."""
        return CountsSums(joined(self.sums, other.sums), self.kept.joined(other.kept, limit=self.kept.limit))

    def tensors(self) -> dict[str, Tensor]:
        """Return all that they hold, by name."""
        features, labels, weights = self.kept.joint()
        plain = [self.kept.limit, self.kept.dtype == torch.float64, weights is not None, *self.kept.sizes]
        counts = torch.zeros(0) if weights is None else weights
        kept = {"features": features, "labels": labels, "weights": counts, "plain": torch.tensor(plain, dtype=torch.float64)}
        return SampleSums((self.sums,)).tensors() | {f"kept.{name}": value for name, value in kept.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> CountsSums:
        """Return the sums that `tensors` gave."""
        features, labels, weights, plain = (tensors[f"kept.{name}"] for name in ("features", "labels", "weights", "plain"))
        kept, dtype = KeptFeatures(int(plain[0])), torch.float64 if plain[1] else torch.float32
        sizes = plain[3:].int().tolist()  # as before: the order of additions must not change
        counts = weights.split(sizes) if plain[2] else [None] * len(sizes)
        for f, l, w in zip(features.split(sizes, dim=1), labels.split(sizes), counts, strict=True):
            kept.add(f.to(dtype), l, w)
        sums = SampleSums.from_tensors({name: v for name, v in tensors.items() if not name.startswith("kept.")})
        return cls(sums.sums[0], kept)


@dataclass(frozen=True)
class CountsWork:
    """What is needed to sum up samples' traces: of the first `limit` samples they are kept."""

    network: SpikingNetwork
    samples: Samples
    limit: int
    memory: int

    def sums(self, parts: Iterable[slice]) -> CountsSums:
        """Return the sums of runs of samples."""
        readout, samples = self.network.readout, self.samples
        assert isinstance(readout, TraceReadout)
        outputs, features = readout.weights.shape
        sums, kept = Sums(features, outputs, device=readout.weights.device), KeptFeatures(self.limit)
        read = self.network.trace_reader(readout.constants)
        waiting: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for part in parts:
            f = readout.features(read(samples.inputs(part)))
            y, weights = samples.targets(part).flatten(1), samples.weights(part)
            weights = None if weights is None else weights.to(f.device)
            if part.start < self.limit:
                kept.add(f, y.argmax(dim=1), weights)
            waiting.append((f, y.T.double().to(f.device), weights))
            # Adding up large matrices takes long, so small batches wait for each other.
            if features <= MANY or sum(f.shape[1] for f, _, _ in waiting) >= TOGETHER:
                _add(sums, waiting)
        _add(sums, waiting)
        return CountsSums(sums, kept)


def _add(sums: Sums, waiting: list[tuple[Tensor, Tensor, Tensor | None]]) -> None:
    """Add batches of features, targets (outputs, batch) and weights (batch,) to sums at once, and empty the list."""
    if waiting:
        f, y = (torch.cat([batch[k] for batch in waiting], dim=1) for k in (0, 1))  # type: ignore[misc]
        weights = [batch[2] for batch in waiting if batch[2] is not None]
        sums.update(f[:, None], y[:, None], weights=torch.cat(weights) if weights else None)
        waiting.clear()


@dataclass(frozen=True)
class BothCounts:
    """What is needed to sum up training and validation samples elsewhere."""

    kind = CountsSums
    works: tuple[CountsWork, ...]

    def digest(self, groups: Sequence[Sequence[tuple[int, slice]]]) -> str:
        """Return a text that tells these sums from others."""
        first = self.works[0]
        shown = first.samples.targets(slice(0, 1000)).argmax(dim=2).tolist()
        sizes = [(len(work.samples), work.limit, work.memory) for work in self.works]
        return first.network.digest(sizes, groups, shown, first.samples.marks)


def _sum_counts(both: BothCounts, item: tuple[int, slice]) -> CountsSums:
    """Return the sums of a run of training samples, or of validation samples."""
    work, part = both.works[item[0]], item[1]
    runs = batches(part.stop - part.start, work.network.batch_size(work.memory // PIECES))
    return work.sums(slice(run.start + part.start, run.stop + part.start) for run in runs)


@dataclass(frozen=True)
class CountsRecord:
    """Sums of samples' traces, from which their weights can be solved for anew. It never changes.

    Attributes
    ----------
    loss : {"log_loss", "squared_error", "forecast"}
        The last one is the squared error of forecasts, whose errors are kept for intervals.
    regularization : Regularization
    sums : tuple of Sums
        Of training and of validation samples.
    kept : tuple of KeptFeatures
        The traces of both, for the log loss.
    temperature : float
        What decision values of least squares are divided by for probabilities.
    bits : int, optional
        Of the weights.
    errors : Tensor of shape (windows, horizon, channels)
        Of forecasts, on validation samples, by weights that have not seen them.
    """

    loss: str
    regularization: Regularization
    sums: tuple[Sums, ...] = ()
    kept: tuple[KeptFeatures, ...] = ()
    temperature: float = 1.0
    bits: int | None = None
    errors: Tensor = torch.zeros(0)

    def emptied(self) -> CountsRecord:
        """Return a record of no samples."""
        return replace(self, sums=(), kept=())

    @torch.no_grad()
    def fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        """Set a network's weights from all samples at once."""
        record = self.emptied().extended(network, split, run)
        if self.loss == "squared_error" and network.horizon == 1:
            with run.step("temperature"):
                # While the weights have not seen these samples.
                record._solve_half(network)
                few = few_of(split.held_out, 5000)
                labels = few.targets(slice(None))[:, 0].argmax(dim=1)
                record = replace(record, temperature=fit_temperature(decisions(network, few, run.budget), labels))
        if self.loss == "forecast" and len(split.held_out):
            with run.step("intervals"):
                record._solve_half(network)
                record = replace(record, errors=_errors(network, split.held_out))
        solution = record.solve(network, run)
        return solution if run.keeps(record.size) else replace(solution, record=None)

    def _solve_half(self, network: SpikingNetwork) -> None:
        """Set weights that have not seen the validation samples, but for their penalty."""
        train, validation = self.sums
        w, b, lambdas = self.regularization.solve(train, validation)
        _set(
            network,
            *(w, b) if self.bits is None else rounded_output(train, w, b, lambdas, self.bits, len(network.readout.constants)),
        )

    @property
    def size(self) -> int:
        """Bytes that the sums and the kept traces take."""
        return sum(sums.gram.nbytes + sums.cross.nbytes for sums in self.sums) + sum(kept.size for kept in self.kept)

    @torch.no_grad()
    def extended(
        self, network: SpikingNetwork, split: Split, run: Run, *, begins: bool = True, forget: float | None = None
    ) -> CountsRecord:
        """Return the record with new samples."""
        with run.step("output weights"):
            sums, kept = self._gather(network, split.faded(forget), run)
        return self.merged(replace(self, sums=tuple(sums), kept=tuple(kept)), split.fade(forget))

    def merged(self, other: CountsRecord, fade: float = 1.0) -> CountsRecord:
        """Return the record of these samples and those of another; these count `fade` times."""
        if not self.sums:
            return other
        sums = tuple(joined(one, two, fade) for one, two in zip(self.sums, other.sums, strict=True))
        pairs = zip(self.kept, other.kept, strict=True)
        return replace(self, sums=sums, kept=tuple(a.joined(b, fade, max(a.limit, b.limit)) for a, b in pairs))

    def _gather(self, network: SpikingNetwork, split: Split, run: Run) -> tuple[list[Sums], list[KeptFeatures]]:
        """Return sums and kept features of the training and of the validation samples."""
        features = network.readout.weights.shape[1]
        # Samples come in random order, so the first ones stand for all.
        total = len(split.train) + len(split.held_out)
        room = run.budget / (2 * features * max(total, 1)) if self.loss == "log_loss" else 0.0
        parts = split.train, split.held_out
        works = [CountsWork(network, samples, math.ceil(room * len(samples)), run.budget) for samples in parts]
        if run.elsewhere and all(map(len, parts)):
            groups = [[(number, part) for part in batches(len(samples), ITEM)] for number, samples in enumerate(parts)]
            found = list(run.sums(_sum_counts, groups, BothCounts(tuple(works))))
        else:
            size = network.batch_size(run.budget)
            found = [work.sums(run.count(batches(len(work.samples), size))) for work in works]
        return [part.sums for part in found], [part.kept for part in found]

    @torch.no_grad()
    def solve(self, network: SpikingNetwork, run: Run) -> Solution:
        """Set an output's weights from the sums."""
        with run.step("regularisation"):
            train, validation = self.sums
            w, b, lambdas = self.regularization.solve(train, validation)
            temperature, every = self.temperature, joined(train, validation)
        if self.loss != "log_loss":
            w, b = every.solve(lambdas)
        else:
            with run.step("likelihood"):
                w, b, temperature, lambdas = likeliest(self.sums, self.kept, every, self.regularization, w, b, lambdas)
        if self.bits is not None:
            with run.step("rounding"):
                w, b = rounded_output(every, w, b, lambdas, self.bits, len(network.readout.constants))
        _set(network, w, b)
        found = Solution(lambdas.cpu(), traces=len(network.readout.constants), temperature=temperature, record=self)
        return replace(found, quantiles=quantiles_of(self.errors)) if len(self.errors) else found


def _set(network: SpikingNetwork, weights: Tensor, biases: Tensor) -> None:
    """Set the weights (features, outputs) and biases of a network that reads traces."""
    assert isinstance(network.readout, TraceReadout)
    network.readout.weights.copy_(weights.T), network.readout.biases.copy_(biases)


def _errors(network: SpikingNetwork, samples: Samples) -> Tensor:
    """Return the errors (windows, horizon, channels) of forecasts from some samples: windows of one channel, or of all."""
    group, forecast = samples.together, network.predictor()
    windows = torch.arange(len(samples) // group)
    errors = []
    for few in windows[:: -(-len(windows) // KEPT)].split(max(1, 256 // group)):
        index = (few[:, None] * group + torch.arange(group)).flatten()
        y = samples.targets(index)
        errors.append((y - forecast(samples.inputs(index)).to(y)).unflatten(0, (-1, group)))  # (n, G, H, O)
    return torch.cat(errors).transpose(1, 2).flatten(2)
