"""Forecasts by the paper's output, whose voltage draws the horizon: every window is simulated from its first row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sswim import training
from sswim._checks import parse_memory
from sswim.encoding import Encoded
from sswim.hidden import batch_size
from sswim.network import SpikingNetwork
from sswim.readout import LambdaSearch, NormalEquations
from sswim.report import SamplingReport
from sswim.sampling import sample
from sswim.windows import Index, Subset, Windows, batches

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["EncodedWindows", "backtest", "fit", "forecast"]


class EncodedWindows:
    """Windows of encoded series as samples: of all channels at once, or one after the other where they share a network.

    Sample ``n * batch + b`` is member `b` of window `n`, so samples are in the order of time.

    Parameters
    ----------
    network : SpikingNetwork
        Whose skip connection, if there, leaves the rest of the targets to the spikes.
    segments : sequence of Encoded
    stride : int
    """

    def __init__(self, network: SpikingNetwork, segments: Sequence[Encoded], stride: int = 1) -> None:
        self.network = network
        self._signals = torch.cat([s.signals for s in segments], dim=1)  # (D, rows, B)
        self._windows = Windows([s.lagged for s in segments], network.window, network.horizon, stride)
        self._levels, self._bases = (torch.cat(list(v)) for v in zip(*((s.level, s.base) for s in segments), strict=True))
        self.batch = self._signals.shape[2]
        self.shared = self.batch == self._levels.shape[1]

    def __len__(self) -> int:
        return len(self._windows) * self.batch

    def _find(self, index: Index) -> tuple[Tensor, Tensor]:
        """Return the windows and members of some samples."""
        number = torch.arange(len(self))[index]
        return number // self.batch, number % self.batch

    def inputs(self, index: Index) -> Tensor:
        """Return the inputs (batch, window, inputs) of the samples numbered `index`."""
        window, member = self._find(index)
        steps = self._windows.starts[window][:, None] + torch.arange(self.network.window)
        return self._signals[:, steps, member[:, None]].permute(1, 2, 0)

    def _of_member(self, values: Tensor, member: Tensor) -> Tensor:
        """Pick from values (batch, steps, channels) what belongs to each sample: (batch, steps, outputs)."""
        return values.gather(2, member[:, None, None].expand(-1, values.shape[1], 1)) if self.shared else values

    def _at_origin(self, values: Tensor, index: Index) -> Tensor:
        window, member = self._find(index)
        return self._of_member(values[self._windows.starts[window] + self.network.window - 1][:, None], member)

    def level(self, index: Index) -> Tensor:
        """Return what forecasts are relative to: (batch, 1, outputs)."""
        return self._at_origin(self._levels, index)

    def past(self, index: Index) -> Tensor:
        """Return the rows that a skip connection sees: (batch, window, outputs)."""
        window, member = self._find(index)
        return self._of_member(self._windows.inputs(window), member) - self._at_origin(self._bases, index)

    def ahead(self, index: Index) -> Tensor:
        """Return what is to be forecast: (batch, horizon, outputs)."""
        window, member = self._find(index)
        return self._of_member(self._windows.targets(window), member) - self.level(index)

    def targets(self, index: Index) -> Tensor:
        """Return what the spikes are to draw: what a skip connection, if there, leaves of `ahead`."""
        y = self.ahead(index)
        if not self.network.skip:
            return y
        with torch.no_grad():
            return y - self.network.skipped(self.past(index)).to(y)


def fit(model: Forecaster, rows: Sequence[Tensor], kept: int) -> SamplingReport:
    """Set the network of `model` from rows in the data's own units; the first `kept` windows are for training."""
    encoder = model._encoder
    samples = EncodedWindows(model.network_, [encoder(r) for r in rows], model.stride)
    kept *= samples.batch
    if model.train == "gradient":
        report = training.from_scratch(model, samples, kept)
    else:
        report = _sample(model, samples, kept)
    if model.train != "sample":
        training.train(model, samples, kept, report, penalty=report.lambdas)
    return report


def _sample(model: Forecaster, samples: EncodedWindows, kept: int) -> SamplingReport:
    if model.network_.skip:
        _fit_skip(model.network_, samples, kept)
    return sample(
        model.network_,
        Subset(samples, torch.arange(kept)),
        validation=Subset(samples, torch.arange(kept, len(samples))),
        temporal="grid" if model.temporal == "auto" else model.temporal,
        input_metric=model.input_metric,
        deeper_metric=model.deeper_metric,
        output_metric=model.output_metric,
        pairs=model.pairs,
        weights=model.weights,
        normalizer="mean-std" if model.normalizer == "auto" else model.normalizer,
        delays=model.delays,
        supports=model.supports,
        regularization=model.regularization,
        assembly=model.assembly,
        initial_batch=model.initial_batch,
        memory=model.memory,
        random_state=model.random_state,
        verbose=model.verbose,
    )


@torch.no_grad()
def _fit_skip(network: SpikingNetwork, samples: EncodedWindows, kept: int) -> None:
    """Set the skip connection by ridge regression; all outputs share its weights."""
    train, held_out = (NormalEquations(network.window, network.horizon) for _ in range(2))
    for equations, first, last in ((train, 0, kept), (held_out, kept, len(samples))):
        for part in batches(last - first, 2048):
            index = slice(first + part.start, first + part.stop)
            x, y = (v.double().transpose(1, 2).flatten(0, 1).T[:, None] for v in (samples.past(index), samples.ahead(index)))
            equations.update(x.contiguous(), y.contiguous())
    weights, biases, _ = LambdaSearch().solve(train, held_out)
    network.skip_weights.copy_(weights.T), network.skip_biases.copy_(biases)


def _forecasts(model: Forecaster, samples: EncodedWindows) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the numbers of windows and their forecasts (windows, horizon, channels), scaled, batch by batch."""
    network, predict = model.network_, model.network_.predictor()
    size = max(samples.batch, batch_size(network, parse_memory(model.memory)) // samples.batch * samples.batch)
    for part in batches(len(samples), size, even=False):
        y = samples.level(part) + predict(samples.inputs(part)).cpu()
        if network.skip:
            with torch.no_grad():
                y = y + network.skipped(samples.past(part)).cpu()
        if samples.shared:
            y = y[:, :, 0].unflatten(0, (-1, samples.batch)).transpose(1, 2)
        yield torch.arange(part.start // samples.batch, part.stop // samples.batch), y


def backtest(model: Forecaster, rows: Sequence[Tensor]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield truth and forecast (windows, horizon, channels) from every window, in the data's own units."""
    encoder = model._encoder
    truth = Windows([r[:, encoder.channels] for r in rows], model.window, model.horizon)
    for numbers, y in _forecasts(model, EncodedWindows(model.network_, [encoder(r) for r in rows])):
        yield truth.targets(numbers).numpy(), encoder.forecast(y)


def forecast(model: Forecaster, rows: Sequence[Tensor]) -> np.ndarray:
    """Return the forecasts (series, horizon, channels) that follow on each of several series (rows, columns)."""
    encoder = model._encoder
    # A running level looks one window further back. What is to be forecast is not there: zeros stand for it.
    known = [encoder(r[-2 * model.window :]) for r in rows]

    def cut(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values[..., -model.window :, :], (0, 0, 0, model.horizon))

    samples = EncodedWindows(model.network_, [Encoded(*map(cut, (s.signals, s.lagged, s.level, s.base))) for s in known])
    return np.concatenate([encoder.forecast(y) for _, y in _forecasts(model, samples)])
