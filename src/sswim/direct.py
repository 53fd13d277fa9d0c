r"""Fit a direct output: the hidden layers run along the series once, and all steps ahead are read at every row.

One Gram matrix serves all outputs, and a row costs one step of simulation instead of a window's. Channels that share a
network run side by side, as a batch; then each is a sample at every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sswim._linalg import safe_eigh
from sswim._tracking import Tracker
from sswim.encoding import Encoded
from sswim.grouped import GroupedEquations, correct, search_penalties
from sswim.network import SpikingNetwork
from sswim.readout import NormalEquations
from sswim.stream import Stream

__all__ = ["DirectFit", "Origins", "fit_direct", "held_out_errors"]

# Rows that are simulated at once: filters and traces take time with its square. Sums per group are made of more.
CHUNK, GATHERED = 32, 128
# Penalties tried for the groups' own corrections.
OWN_LAMBDAS = torch.logspace(-3, 3, 19, dtype=torch.float64).tolist()
# How much more a trace may weigh than a row of the window, and from where on traces matter to a channel's correction.
TRACE_WEIGHTS, TRACES_LEAD = (0.3, 1.0, 3.0, 10.0, 30.0), 10.0
# Training rows that what all groups do together is judged by.
POOLED = 1000
# Validation rows that errors are kept of, for intervals.
KEPT = 1000


class Origins:
    """All rows of some series from which a whole horizon lies ahead and a whole window behind, in order.

    Parameters
    ----------
    network : SpikingNetwork
        With a direct output.
    segments : sequence of Encoded
        The series as the network sees them.
    memory : int
        Budget in bytes for features.
    dtype : torch.dtype, optional
        Of the features, the network's unless told.
    """

    def __init__(
        self,
        network: SpikingNetwork,
        segments: Sequence[Encoded],
        memory: int = 10**9,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.network, self.segments, self.dtype = network, segments, dtype
        self.batch = segments[0].signals.shape[2]
        self.shared = self.batch == segments[0].lagged.shape[1]
        features = network.readout.weights.shape[1]
        self.chunk = max(1, min(CHUNK, memory // (16 * features * self.batch)))
        self.counts = [max(len(s) - network.window - network.horizon + 1, 0) for s in segments]

    def __len__(self) -> int:
        return sum(self.counts)

    def _arranged(self, values: Tensor) -> Tensor:
        """Bring values (..., rows, channels) of all channels to the layout (outputs, ..., rows, batch)."""
        return values[None] if self.shared else values.movedim(-1, 0)[..., None]

    def features(self, stream: Stream, seen: Encoded, first: int, last: int) -> Tensor:
        """Run a stream over rows ``[first, last)`` and return the features (features, rows, batch) at each.

        A skip connection sees 0 before the first row.
        """
        signals = seen.signals[:, first:last].to(self.network.readout.weights)
        traces = stream.advance(signals)
        if not self.network.skip:
            return traces
        window = self.network.window
        rows = seen.lagged[max(first - window + 1, 0) : last]
        rows = torch.nn.functional.pad(rows, (0, 0, window - 1 - min(first, window - 1), 0))
        lags = rows.unfold(0, window, 1).movedim(2, 0) - seen.base[first:last]  # (O, T, C), the oldest row first
        lags = self._arranged(lags).flatten(0, 1).to(traces)
        return torch.cat([traces, lags, signals[self.network.outputs :].to(traces)])

    def ahead(self, seen: Encoded, first: int, last: int) -> Tensor:
        """Return what follows on rows ``[first, last)``: (horizon * outputs, rows, batch)."""
        y = seen.lagged[first + 1 : last + self.network.horizon].unfold(0, self.network.horizon, 1)  # (T, C, H)
        y = y.movedim(2, 0) - seen.level[first:last]
        return self._arranged(y).transpose(0, 1).flatten(0, 1).to(self.network.readout.weights.device)

    def rows(self, last: int) -> Tensor:
        """Return the scaled rows (rows, channels) that the first `last` origins or their horizons lie in."""
        network, parts = self.network, []
        for seen, count in zip(self.segments, self.counts, strict=True):
            if count and last > 0:
                parts.append(seen.lagged[: min(last, count) + network.window + network.horizon - 1])
            last -= count
        return torch.cat(parts)

    def initial(self, kept: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw windows that end at the first `kept` origins, of one channel each where channels share the network.

        Returns
        -------
        inputs : Tensor of shape (inputs, window, samples)
        targets : Tensor of shape (samples, horizon, outputs)
        numbers : Tensor of shape (samples,)
            Of the origin, or ``origin * channels + channel``.
        """
        network = self.network
        drawn = torch.randperm(kept * self.batch, generator=generator)[:count]
        ends = torch.tensor([0, *self.counts]).cumsum(dim=0)
        origin, member = drawn // self.batch, drawn % self.batch
        segment = torch.bucketize(origin, ends[1:], right=True)
        x, y = [], []
        for s, first, m in zip(segment.tolist(), (origin - ends[segment]).tolist(), member.tolist(), strict=True):
            end = first + network.window
            x.append(self.segments[s].signals[:, first:end, m])
            y.append(self.ahead(self.segments[s], end - 1, end)[:, 0, m].view(network.horizon, network.outputs))
        w = network.readout.weights
        return torch.stack(x, dim=2).to(w), torch.stack(y).to(w), drawn

    def __call__(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the number of the first origin, features and targets, chunk by chunk, of origins ``[first, last)``."""
        last = len(self) if last is None else last
        number, window = 0, self.network.window
        for seen, count in zip(self.segments, self.counts, strict=True):
            begin, end = max(first - number, 0), min(last - number, count)  # among this segment's origins
            number += count
            if begin >= end:
                continue
            stream = self.network.stream(self.batch, self.dtype)
            # Origin 0 stands at row window - 1. What lies more than two windows back is forgotten.
            at, stop = max(begin + window - 1 - 2 * window, 0), end + window - 1
            while at < stop:
                until = min(at + self.chunk, stop)
                features = self.features(stream, seen, at, until)
                skipped = max(begin + window - 1 - at, 0)
                if skipped < until - at:
                    yield (
                        number - count + at + skipped - window + 1,
                        features[:, skipped:],
                        self.ahead(seen, at + skipped, until),
                    )
                at = until


@dataclass
class DirectFit:
    """What a fit of a direct output chose.

    Attributes
    ----------
    lambdas : Tensor of shape (horizon * outputs,)
    sizes : Tensor of shape (features,)
        What features were multiplied by before the regression: traces may bear more or less of the penalty than rows.
    errors : Tensor of shape (kept, horizon * outputs, batch)
        Errors on validation rows, of weights that had not seen these.
    """

    lambdas: Tensor
    sizes: Tensor
    errors: Tensor


@torch.no_grad()
def fit_direct(origins: Origins, kept: int, regularization: Any, tracker: Tracker) -> DirectFit:
    """Set the direct output of `origins.network`, whose hidden layers are there.

    Parameters
    ----------
    origins : Origins
    kept : int
        The first so many origins are for training, the rest for validation; the final weights come from both.
    regularization : LambdaSearch or FixedLambda
    tracker : Tracker
    """
    network, total = origins.network, len(origins)
    readout = network.readout
    rows, features = readout.weights.shape
    device = readout.weights.device
    spans = ((0, kept), (kept, total))
    groups, rank = len(readout.own_weights), readout.directions.shape[1]
    common = readout.common_directions.shape[1]

    def through(span: tuple[int, int]) -> Any:
        return tracker.count(origins(*span), total=-(-(span[1] - span[0]) // origins.chunk))

    with tracker.step("output weights"):
        if common:
            readout.pool.copy_(_loadings(origins.rows(kept), readout.pool.shape[1]))
        together, every = [], max(1, kept // POOLED)
        sums = [NormalEquations(features, rows, device=device) for _ in spans]
        for equations, span in zip(sums, spans, strict=True):
            for first, f, y in through(span):
                if common and span[0] == 0:
                    together.append(readout.pooled(f[:, (-first) % every :: every])[:, :, 0].T)
                equations.update(f.reshape(features, 1, -1), y.double().reshape(rows, 1, -1))
    with tracker.step("regularisation"):
        train, held_out = sums
        weight, w, b, lambdas = _weigh(train, held_out, regularization, network.lags)
        size = _sizes(features, network.lags, weight).to(device)
        readout.weights.copy_(w.T), readout.biases.copy_(b)

    if groups:
        with tracker.step("own corrections"):
            # Where the window's own rows are read and weigh enough, a channel is corrected on these.
            readout.directions.copy_(_directions(train, rank, network.lags if weight < TRACES_LEAD else 0))
            if common:
                readout.common_directions.copy_(_common_directions(torch.cat(together), common))
            own = [GroupedEquations(groups, rank + common, rows, device) for _ in spans]
            for apart, span in zip(own, spans, strict=True):
                _update(apart, readout, through(span))
            penalties = search_penalties(own[0], own[1], rank, OWN_LAMBDAS)
            lively = _lively(origins.rows(kept)).to(device)
            _set_own(readout, own[0], penalties, lively)

    errors = held_out_errors(origins, kept, tracker)

    with tracker.step("final weights"):
        train.merge(held_out)
        w, b = train.rescaled(size).solve(lambdas)
        readout.weights.copy_((w * size[:, None]).T), readout.biases.copy_(b)
        if groups:
            # Anew, for corrections must fit the weights that they correct.
            final = GroupedEquations(groups, rank + common, rows, device)
            _update(final, readout, through((0, total)))
            _set_own(readout, final, penalties, lively)
    return DirectFit(lambdas.cpu(), size.cpu(), errors)


@torch.no_grad()
def held_out_errors(origins: Origins, kept: int, tracker: Tracker) -> Tensor:
    """Return the errors (kept, horizon * outputs, batch) on rows after the first `kept`, at most so many as intervals need."""
    readout, count = origins.network.readout, len(origins) - kept
    errors, every = [], max(1, -(-count // KEPT))
    with tracker.step("intervals"):
        for first, f, y in tracker.count(origins(kept), total=-(-count // origins.chunk)):
            picked = torch.arange(first, first + f.shape[1])
            picked = ((picked - kept) % every == 0).nonzero()[:, 0].to(f.device)
            errors.append((y[:, picked] - readout(f[:, picked])).permute(1, 0, 2).cpu())
    return torch.cat(errors)


def _sizes(features: int, lags: int, weight: float) -> Tensor:
    """Return `weight` for every trace and 1 for each of the `lags` last features, which are rows."""
    return torch.where(torch.arange(features) < features - lags, weight, 1.0).double()


def _weigh(
    train: NormalEquations, held_out: NormalEquations, regularization: Any, lags: int
) -> tuple[float, Tensor, Tensor, Tensor]:
    """Choose by validation rows how traces weigh against rows in the penalty: a factor of the former.

    Returns
    -------
    The factor, and weights, biases and lambdas that go with it; these of the features multiplied by `_sizes`.
    """
    features, found = len(train.gram), []
    for weight in TRACE_WEIGHTS if 0 < lags < features else (1.0,):
        size = _sizes(features, lags, weight).to(train.gram.device)
        w, b, lambdas = regularization.solve(train.rescaled(size), held_out.rescaled(size))
        w = w * size[:, None]
        found.append((float(held_out.squared_error(w, b).sum()), weight, w, b, lambdas))
    return min(found, key=lambda choice: choice[0])[1:]


def _update(equations: GroupedEquations, readout: Any, origins: Iterable[tuple[int, Tensor, Tensor]]) -> None:
    """Add what corrections are made of, and what the shared weights leave to them."""
    waiting: list[tuple[Tensor, Tensor]] = []

    def flush() -> None:
        if waiting:
            features, left = (torch.cat(parts, dim=1) for parts in zip(*waiting, strict=True))
            equations.update(features, left)
            waiting.clear()

    for _, f, y in origins:
        waiting.append((readout.own_features(f), y - readout.shared(f)))
        if sum(left.shape[1] for _, left in waiting) >= GATHERED:
            flush()
    flush()


def _lively(rows: Tensor) -> Tensor:
    """Tell which channels moved in training: one that rested has shown too little of itself to be corrected."""
    spread = rows.std(dim=0, correction=0)
    return spread > 0.2 * spread.median()


def _set_own(readout: Any, equations: GroupedEquations, penalties: list[Tensor], lively: Tensor) -> None:
    weights, biases = correct(equations, readout.directions.shape[1], penalties)
    readout.own_weights.copy_(weights * lively[:, None, None]), readout.own_biases.copy_(biases * lively[:, None])


def _loadings(rows: Tensor, factors: int) -> Tensor:
    """Return weights (channels, factors) of the channels' principal components, from scaled rows (rows, channels)."""
    few = rows[:: max(1, len(rows) // 2000)].double().clamp(-5, 5)
    vectors = torch.linalg.svd(few - few.mean(dim=0), full_matrices=False)[2][:factors].T
    return torch.nn.functional.pad(vectors, (0, factors - vectors.shape[1]))


def _directions(equations: NormalEquations, rank: int, last: int) -> Tensor:
    """Return the directions (features, rank) in which features vary most, among the `last` ones if that is not 0.

    Traces differ in size by what neuron they are of, and are divided by their deviation first; rows are alike.
    """
    gram = equations.gram / max(equations.samples, 1)
    size = gram.diagonal().clamp_min(0).sqrt()
    size = torch.where(size > 1e-6 * size.max(), size, torch.inf)
    if last:
        size = torch.where(torch.arange(len(size), device=size.device) < len(size) - last, torch.inf, torch.ones_like(size))
    _, vectors = safe_eigh(gram / size[:, None] / size)
    return vectors[:, vectors.shape[1] - rank :] / size[:, None]


def _common_directions(pooled: Tensor, count: int) -> Tensor:
    """Return directions (features, count) in which pooled features (rows, features) vary most.

    They are scaled between what principal components have, where the first outweighs all, and equal deviations.
    """
    pooled = pooled.double() - pooled.double().mean(dim=0)
    size = pooled.square().mean(dim=0).sqrt()
    size = torch.where(size > 1e-6 * size.max(), size, torch.inf)
    unit = pooled / size
    values, left = safe_eigh(unit @ unit.T)  # a row each: fewer than features
    values, left = values.flip(0)[:count], left.flip(1)[:, :count]
    values, left = values[values > 1e-6 * values[0]], left[:, values > 1e-6 * values[0]]
    # Principal directions are unit.T @ left / values ** (1 / 2), with the deviation (values / rows) ** (1 / 2).
    directions = (unit.T @ left) / values**0.5 * (len(unit) / values) ** 0.25 / size[:, None]
    return torch.nn.functional.pad(directions, (0, count - directions.shape[1]))
