r"""Fit a direct output: the hidden layers run along the series once, and all steps ahead are read at every row.

One Gram matrix serves all outputs, and a row costs one step of simulation instead of a window's. Channels that share a
network run side by side, as a batch; then each is a sample at every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sswim._tracking import Tracker
from sswim.grouped import GroupedEquations
from sswim.network import SpikingNetwork
from sswim.readout import NormalEquations
from sswim.stream import Stream

__all__ = ["DirectFit", "Origins", "fit_direct"]

# Penalties tried for the groups' own corrections.
OWN_LAMBDAS = torch.logspace(-5, 2, 22, dtype=torch.float64).tolist()
# Validation rows that errors are kept of, for intervals.
KEPT = 1000


class Origins:
    """All rows of some series from which a whole horizon lies ahead and a whole window behind, in order.

    Parameters
    ----------
    network : SpikingNetwork
        With a direct output.
    segments : sequence of Tensor of shape (rows, channels)
        What the hidden layers see. If the network has one input, channels share it.
    targets : sequence of Tensor of shape (rows, channels), optional
        What is to be forecast, and what a skip connection sees, where that differs.
    memory : int
        Budget in bytes for features.
    """

    def __init__(
        self, network: SpikingNetwork, segments: Sequence[Tensor], targets: Sequence[Tensor] | None = None, memory: int = 10**9
    ) -> None:
        self.network, self.segments = network, segments
        self.targets = segments if targets is None else targets
        channels = segments[0].shape[1]
        self.shared = network.inputs == 1 and network.outputs == 1
        self.batch = channels if self.shared else 1
        features = network.readout.weights.shape[1]
        self.chunk = max(1, min(128, memory // (16 * features * self.batch)))
        self.counts = [max(len(s) - network.window - network.horizon + 1, 0) for s in segments]

    def __len__(self) -> int:
        return sum(self.counts)

    def arrange(self, rows: Tensor) -> Tensor:
        """Bring rows (rows, channels) to the network's layout (inputs, rows, batch)."""
        w = self.network.readout.weights
        rows = rows.to(dtype=w.dtype, device=w.device)
        return rows[None] if self.shared else rows.T[:, :, None].contiguous()

    def features(self, stream: Stream, signals: Tensor, lagged: Tensor, first: int, last: int) -> Tensor:
        """Run a stream over rows ``[first, last)`` of signals (inputs, rows, batch): features (features, rows, batch).

        A skip connection sees the rows of `lagged`, and 0 before the first one.
        """
        traces = stream.advance(signals[:, first:last])
        if not self.network.skip:
            return traces
        window = self.network.window
        seen = lagged[:, max(first - window + 1, 0) : last]
        seen = torch.nn.functional.pad(seen, (0, 0, window - 1 - min(first, window - 1), 0))
        lags = seen.unfold(1, window, 1).permute(0, 3, 1, 2).flatten(0, 1)  # (D O, T, B), the oldest row first
        return torch.cat([traces, lags])

    def ahead(self, rows: Tensor, first: int, last: int) -> Tensor:
        """Return what follows on rows ``[first, last)``: (horizon * outputs, rows, batch)."""
        y = rows[first + 1 : last + self.network.horizon].unfold(0, self.network.horizon, 1)  # (T, C, H)
        return y.permute(2, 0, 1) if self.shared else y.permute(2, 1, 0).flatten(0, 1)[:, :, None]

    def initial(self, kept: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw windows that end at the first `kept` origins, of one channel each where channels share the network.

        Returns
        -------
        inputs : Tensor of shape (inputs, window, samples)
        targets : Tensor of shape (samples, horizon, outputs)
        numbers : Tensor of shape (samples,)
            Of the origin, or ``origin * channels + channel``.
        """
        network, channels = self.network, self.batch
        drawn = torch.randperm(kept * channels, generator=generator)[:count]
        ends = torch.tensor([0, *self.counts]).cumsum(dim=0)
        origin, channel = drawn // channels, drawn % channels
        segment = torch.bucketize(origin, ends[1:], right=True)
        x, y = [], []
        for s, row, c in zip(segment.tolist(), (origin - ends[segment]).tolist(), channel.tolist(), strict=True):
            pick = slice(c, c + 1) if self.shared else slice(None)
            x.append(self.segments[s][row : row + network.window, pick])
            y.append(self.targets[s][row + network.window : row + network.window + network.horizon, pick])
        w = network.readout.weights
        return torch.stack(x).permute(2, 1, 0).to(w).contiguous(), torch.stack(y).to(w), drawn

    def __call__(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the number of the first origin, features and targets, chunk by chunk, of origins ``[first, last)``."""
        last = len(self) if last is None else last
        number, window = 0, self.network.window
        for rows, targets, count in zip(self.segments, self.targets, self.counts, strict=True):
            begin, end = max(first - number, 0), min(last - number, count)  # among this segment's origins
            number += count
            if begin >= end:
                continue
            signals, lagged, stream = self.arrange(rows), self.arrange(targets), self.network.stream(self.batch)
            # Origin 0 stands at row window - 1. What lies more than two windows back is forgotten.
            at, stop = max(begin + window - 1 - 2 * window, 0), end + window - 1
            while at < stop:
                until = min(at + self.chunk, stop)
                features = self.features(stream, signals, lagged, at, until)
                skipped = max(begin + window - 1 - at, 0)
                if skipped < until - at:
                    y = self.ahead(targets, at + skipped, until)
                    yield number - count + at + skipped - window + 1, features[:, skipped:], y.to(features.device)
                at = until


@dataclass
class DirectFit:
    """What a fit of a direct output chose.

    Attributes
    ----------
    lambdas : Tensor of shape (horizon * outputs,)
    own_lambda : float or None
        Penalty of the groups' own corrections; None if there are none.
    own : int
        Number of groups that have one.
    errors : Tensor of shape (kept, horizon * outputs, batch)
        Errors on validation rows, of weights that had not seen these.
    """

    lambdas: Tensor
    own_lambda: float | None
    own: int
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

    def through(span: tuple[int, int]) -> Any:
        return tracker.count(origins(*span), total=-(-(span[1] - span[0]) // origins.chunk))

    with tracker.step("output weights"):
        sums = [NormalEquations(features, rows, device=device) for _ in spans]
        for equations, span in zip(sums, spans, strict=True):
            for _, f, y in through(span):
                equations.update(f.reshape(features, 1, -1), y.double().reshape(rows, 1, -1))
    with tracker.step("regularisation"):
        train, held_out = sums
        w, b, lambdas = regularization.solve(train, held_out)
        readout.weights.copy_(w.T), readout.biases.copy_(b)

    groups, rank = readout.own_weights.shape[:2]
    own_lambda, helps = None, torch.zeros(groups, dtype=torch.bool, device=device)
    if groups and rank:
        with tracker.step("own corrections"):
            readout.directions.copy_(train.eigen()[1][:, -rank:])
            readout.own_weights.zero_(), readout.own_biases.zero_()
            own = [GroupedEquations(groups, rank, rows, device) for _ in spans]
            for apart, span in zip(own, spans, strict=True):
                for _, f, y in through(span):
                    few = (readout.directions.T @ f.flatten(1)).view(rank, -1, groups)
                    apart.update(few, y.to(f) - readout(f))
            own_lambda, helps = own[0].search(own[1], OWN_LAMBDAS)
            helps &= _lively(origins, kept).to(device)
            if own_lambda is not None:
                _set_own(readout, own[0], own_lambda, helps)

    with tracker.step("intervals"):
        errors, every = [], max(1, -(-(total - kept) // KEPT))
        for first, f, y in through(spans[1]):
            picked = torch.arange(first, first + f.shape[1])
            picked = ((picked - kept) % every == 0).nonzero()[:, 0].to(device)
            errors.append((y[:, picked].to(f) - readout(f[:, picked])).permute(1, 0, 2).cpu())

    with tracker.step("final weights"):
        train.merge(held_out)
        w, b = train.solve(lambdas)
        readout.weights.copy_(w.T), readout.biases.copy_(b)
        if own_lambda is not None:
            own[0].merge(own[1])
            _set_own(readout, own[0], own_lambda, helps)
    return DirectFit(lambdas.cpu(), own_lambda, int(helps.sum()), torch.cat(errors))


def _lively(origins: Origins, kept: int) -> Tensor:
    """Tell which channels moved in training: one that rested has shown too little of itself to be corrected."""
    last, left = [], kept
    for rows, count in zip(origins.targets, origins.counts, strict=True):
        if count and left > 0:
            last.append(rows[: min(left, count) + origins.network.window + origins.network.horizon - 1])
        left -= count
    spread = torch.cat(last).std(dim=0, correction=0)
    return spread > 0.2 * spread.median()


def _set_own(readout: Any, equations: GroupedEquations, lambda_: float, helps: Tensor) -> None:
    weights, biases = equations.solve(lambda_)
    readout.own_weights.copy_(weights * helps[:, None, None])
    readout.own_biases.copy_(biases * helps[:, None])
