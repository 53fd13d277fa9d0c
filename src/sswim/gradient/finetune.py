r"""Train a network by surrogate gradients: from where sampling left it, or from scratch.

The settings are those of the paper's table ``tab:sgd_params``: Adam with a cosine schedule, the mean squared error plus a
penalty on the output weights, early stopping, and all parameters at once.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy.typing as npt
import torch
from torch import Tensor

from sswim.data.windows import Samples
from sswim.gradient.batches import Batches, Data, training_batches
from sswim.gradient.descent import Asked, Descent, Loss
from sswim.network.network import SpikingNetwork
from sswim.options import Mistakes, Options, Run, Seed, check_integer, check_positive
from sswim.report import EpochRecord, TrainingReport
from sswim.writing import check_place

__all__ = ["Schedule", "finetune", "train_network"]

LOSSES: dict[str, Loss] = {"mse": torch.nn.functional.mse_loss}
Path_ = str | os.PathLike[str]


def parse_seconds(name: str, value: object) -> float:
    """Return a time budget in seconds, from a number or text such as ``"30s"`` or ``"5min"``.

    Examples
    --------
    >>> parse_seconds("time_limit", "1.5min")
    90.0
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|min|m|h)\s*", value) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{name} must be a time such as '30s' or '5min', or None, got {value!r}.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2][0]]


@dataclass(frozen=True)
class Schedule(Options):
    """Options of a training by gradients, as in `finetune`."""

    epochs: int = 250
    batch_size: int = 64
    learning_rate: float = 2.5e-4
    final_learning_rate: float = 1e-5
    temporal_rate: float = 30.0
    penalty: float | Tensor | None = None
    patience: int = 30
    min_improvement: float = 1e-6
    clip: float | None = 1.0
    time_limit: str | float | None = None
    # Of a process, not of a model: a model file that named a path would make a later fit write there.
    checkpoint: Path_ | None = field(default=None, metadata={"in_files": False})
    callback: Callable[[EpochRecord], bool | None] | None = field(default=None, metadata={"in_files": False})

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        for name in ("epochs", "batch_size", "patience"):
            mistakes.check(check_integer, name, getattr(self, name), 1)
        mistakes.check(check_positive, "learning_rate", self.learning_rate)
        for name in ("final_learning_rate", "temporal_rate", "min_improvement"):
            mistakes.check(check_positive, name, getattr(self, name), zero=True)
        if self.clip is not None:
            mistakes.check(check_positive, "clip", self.clip)
        if self.penalty is not None and not isinstance(self.penalty, Tensor):
            mistakes.check(check_positive, "penalty", self.penalty, zero=True)
        if self.time_limit is not None:
            mistakes.check(parse_seconds, "time_limit", self.time_limit)
        mistakes.report()

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1: a cosine from the first to the last."""
        part = 0.5 * (1 + math.cos(math.pi * (epoch - 1) / max(self.epochs - 1, 1)))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * part


def finetune(
    network: SpikingNetwork,
    X: Data,
    Y: npt.ArrayLike | None = None,
    *,
    validation: float | Samples | tuple[npt.ArrayLike, npt.ArrayLike] | Iterable[tuple[Tensor, Tensor]] | None = 0.2,
    loss: str | Loss = "mse",
    epochs: int = 250,
    batch_size: int = 64,
    learning_rate: float = 2.5e-4,
    final_learning_rate: float = 1e-5,
    temporal_rate: float = 30.0,
    penalty: float | Tensor = 1e-4,
    patience: int = 30,
    min_improvement: float = 1e-6,
    clip: float | None = 1.0,
    time_limit: str | float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[EpochRecord], bool | None] | None = None,
    memory: str | int = "1GB",
    random_state: Seed = 0,
    verbose: int = 0,
) -> TrainingReport:
    r"""Train all parameters of `network` that require a gradient, and leave it with those that were best on validation data.

    The network as it came takes part in that: it is never returned worse than it was.

    Parameters
    ----------
    network : SpikingNetwork
        From `sswim.sample`, for fine-tuning, or from `sswim.initialize`. Freeze a parameter with ``requires_grad_(False)``.
    X : array or Tensor of shape (samples, window, inputs), `Samples` such as `sswim.data.Windows`, or a loader
        A loader is any iterable of pairs (x, y) of batches that can be iterated several times, such as a
        ``torch.utils.data.DataLoader``; `batch_size` is the loader's own then.
    Y : array or Tensor of shape (samples, horizon, outputs)
        Omitted if `X` is `Samples` or a loader.
    validation : float, `Samples`, a pair (X, Y), a loader, or None
        What epochs are compared on; a number takes that fraction from the end of `X`. With None, epochs are compared by their
        training loss.
    loss : "mse" or callable
        Maps outputs and targets to the mean loss of a batch.
    epochs, batch_size : int
    learning_rate, final_learning_rate : float
        First and last of the cosine schedule. For training from scratch the paper has 5e-4.
    temporal_rate : float
        Delays, supports and refractory supports, which count in steps, learn this many times as fast; 1 in the paper.
    penalty : float or Tensor
        :math:`\lambda |W_{out}|^2` is added to the loss. A tensor of one value per row of the output's weights, such as the
        ``lambdas`` of a `SamplingReport`, gives each row its own penalty. It is divided by the number of values per sample,
        so that the loss is the one that sampling minimised. It may also have one value per weight.
    patience : int
        Stop after this many epochs without an improvement by more than `min_improvement`.
    min_improvement : float
    clip : float, optional
        Gradients are scaled down to this norm, over all parameters.
    time_limit : str or float, optional
        Such as ``"5min"``. An epoch that is under way ends with the batch it is at, and is the last one.
    checkpoint : path, optional
        A file that is written after every epoch, whole or not at all. If it is there already, training goes on from it, to
        the same result as if it had never been interrupted.
    callback : callable, optional
        Called with the `EpochRecord` of each epoch, for a logger of your own. Training stops if it returns True.
    memory : str or int
        Batches that would take more are cut, and their gradients added.
    random_state : int
        Of the order of the samples.
    verbose : int
        1 shows a progress bar with loss, firing rate and silent neurons, 0 nothing.

    Returns
    -------
    TrainingReport

    Raises
    ------
    TrainingDiverged
        If the loss becomes NaN or infinite. The network then holds the best parameters so far.

    Notes
    -----
    After each step delays are brought back to at least 0, supports to at least one step (or what they were, if that was
    less), and spike costs to at most 0.

    Examples
    --------
    >>> from sswim import initialize
    >>> x = torch.rand(200, 12, 2, generator=torch.Generator().manual_seed(0))
    >>> network = SpikingNetwork(inputs=2, outputs=2, window=12, horizon=3, hidden=(30,))
    >>> initialize(network, x, random_state=0)
    >>> report = finetune(network, x, x[:, -3:], epochs=5, learning_rate=1e-3)
    >>> report.best.validation_loss < report.records[0].validation_loss
    True
    """
    schedule = Schedule(
        epochs, batch_size, learning_rate, final_learning_rate, temporal_rate, penalty, patience, min_improvement, clip,
        time_limit, checkpoint, callback,
    )  # fmt: skip
    with Run(memory, random_state, verbose) as run:
        parts = _parts(network, batch_size, run.budget)
        train, held_out = training_batches(network, X, Y, validation, batch_size, parts, run.random)
        with run.step("training"):
            return train_network(network, train, held_out, schedule, loss, run)


def train_network(
    network: SpikingNetwork, train: Batches, held_out: Batches | None, schedule: Schedule, loss: str | Loss, run: Run
) -> TrainingReport:
    """Train a network inside a step of a run; see `finetune`."""
    state = _start(network, schedule, loss)
    path = None if schedule.checkpoint is None else Path(schedule.checkpoint)
    asked = _asked(schedule, run, state)
    if path is not None:
        check_place(path, name="checkpoint")
        asked["data"] = [part.fingerprint() for part in (train, held_out) if part is not None]
    if path is not None and path.exists():
        state.load(path, asked)
    else:
        first, firing, silent = state.validate(held_out or train)
        state.keep(EpochRecord(0, math.nan, first, 0.0, firing, silent, math.nan, 0.0), 0.0)
    limit = math.inf if schedule.time_limit is None else parse_seconds("time_limit", schedule.time_limit)
    before, begin = state.report.records[-1].seconds, time.perf_counter()
    for epoch in run.count(range(len(state.report.records), schedule.epochs + 1)):
        if state.report.stopped:
            break
        if epoch - 1 - state.last_gain >= schedule.patience:
            state.report.stopped = "patience"
            break
        if before + time.perf_counter() - begin > limit:
            state.report.stopped = "time"
            break
        rate = schedule.rate(epoch)
        mean_loss, norm = state.epoch(train, epoch, rate, begin + limit - before)
        reached, firing, silent = state.validate(held_out) if held_out else (mean_loss, *state.seen)
        passed = before + time.perf_counter() - begin
        record = EpochRecord(epoch, mean_loss, reached, rate, firing, silent, norm, passed)
        state.keep(record, schedule.min_improvement)
        run.describe(f"loss {mean_loss:.3g}, validation {reached:.3g}, firing {firing:.2f}, {silent} silent")
        if schedule.callback is not None and schedule.callback(record) is True:
            state.report.stopped = "callback"
        if path is not None:
            state.save(path, asked)
    state.report.stopped = state.report.stopped or "epochs"
    state.restore()
    return state.report


def _start(network: SpikingNetwork, schedule: Schedule, loss: str | Loss) -> Descent:
    """Check what depends on the network, and return the state before the first epoch."""
    penalty, weights = 1e-4 if schedule.penalty is None else schedule.penalty, network.readout.weights
    if isinstance(penalty, Tensor) and penalty.shape not in (weights.shape[:1], weights.shape):
        shape, came = tuple(weights.shape), tuple(penalty.shape)
        raise ValueError(f"penalty must be a number or of the output weights' shape {shape} or {shape[:1]}, got {came}.")
    measure = LOSSES.get(loss) if isinstance(loss, str) else loss
    if measure is None or not callable(measure):
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}, or a callable, got {loss!r}.")
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad and p.numel()}
    if not trained:
        raise ValueError("network: none of its parameters requires a gradient, so there is nothing to train.")
    return Descent(network, trained, schedule.learning_rate, schedule.temporal_rate, measure, penalty, schedule.clip)


def _asked(schedule: Schedule, run: Run, state: Descent) -> Asked:
    """Return the options of a training, to be kept with its checkpoint."""
    names = ("epochs", "batch_size", "learning_rate", "final_learning_rate", "temporal_rate", "clip", "min_improvement")
    asked: Asked = {name: getattr(schedule, name) for name in names}
    asked["penalty"] = repr(state.penalty)
    asked["random_state"] = str(run.random.seed)
    asked["network"] = [f"{name} {tuple(p.shape)}" for name, p in state.trained.items()]
    return asked


def _parts(network: SpikingNetwork, batch_size: int, memory: int) -> int:
    """Return how many samples fit into memory at once: projections, potentials and spikes of all layers, their gradients."""
    each = 8 * sum(network.hidden) * network.steps * network.readout.weights.element_size()
    return max(1, min(batch_size, memory // each))
