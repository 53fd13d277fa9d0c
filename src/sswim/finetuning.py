r"""Train a network by surrogate gradients: from where sampling left it, or from scratch.

The settings are those of the paper's table ``tab:sgd_params``: Adam with a cosine schedule, the mean squared error plus a
penalty on the output weights, early stopping, and all parameters at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sswim._batches import training_batches
from sswim._checks import check_integer, check_positive, parse_memory, parse_seconds
from sswim._descent import Loss, Training
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.network import SpikingNetwork
from sswim.training_report import EpochRecord, TrainingDiverged, TrainingReport

__all__ = ["EpochRecord", "TrainingDiverged", "TrainingReport", "finetune"]

LOSSES: dict[str, Loss] = {"mse": torch.nn.functional.mse_loss}


def finetune(
    network: SpikingNetwork,
    X: Any,
    Y: Any = None,
    *,
    validation: Any = 0.2,
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
    callback: Callable[[EpochRecord], Any] | None = None,
    memory: str | int = "1GB",
    random_state: Any = 0,
    verbose: int = 0,
) -> TrainingReport:
    r"""Train all parameters of `network` that require a gradient, and leave it with those that were best on validation data.

    The network as it came takes part in that: it is never returned worse than it was.

    Parameters
    ----------
    network : SpikingNetwork
        From `sswim.sample`, for fine-tuning, or from `sswim.initialize`. Freeze a parameter with ``requires_grad_(False)``.
    X : array or Tensor of shape (samples, window, inputs), a source of samples such as `sswim.windows.Windows`, or a loader
        A loader is any iterable of pairs (x, y) of batches that can be gone through again and again, such as a
        ``torch.utils.data.DataLoader``; `batch_size` is the loader's own then.
    Y : array or Tensor of shape (samples, horizon, outputs)
        Left out if `X` is a source of samples or a loader.
    validation : float, a source of samples, a pair (X, Y), a loader, or None
        What epochs are compared on; a number takes that fraction from the end of `X`. With None, that is the training loss.
    loss : "mse" or callable
        Maps outputs and targets to the mean loss of a batch.
    epochs, batch_size : int
    learning_rate, final_learning_rate : float
        First and last of the cosine schedule. For training from scratch the paper has 5e-4.
    temporal_rate : float
        Delays, supports and refractory supports, which count in steps, learn so many times as fast; 1 in the paper.
    penalty : float or Tensor
        :math:`\lambda |W_{out}|^2` is added to the loss. A tensor of one value per row of the output's weights, such as the
        ``lambdas`` of a `SamplingReport`, bears on each row by its own and is divided by the number of values per sample,
        so that the loss is what sampling minimised. It may also have one value per weight.
    patience : int
        Stop after so many epochs without an improvement by more than `min_improvement`.
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
    check_integer("epochs", epochs, 1), check_integer("batch_size", batch_size, 1), check_integer("patience", patience, 1)
    check_positive("learning_rate", learning_rate), check_positive("final_learning_rate", final_learning_rate, zero=True)
    check_positive("temporal_rate", temporal_rate, zero=True), check_positive("min_improvement", min_improvement, zero=True)
    if clip is not None:
        check_positive("clip", clip)
    if not isinstance(penalty, Tensor):
        check_positive("penalty", penalty, zero=True)
    elif penalty.shape not in (network.readout.weights.shape[:1], network.readout.weights.shape):
        shape, came = tuple(network.readout.weights.shape), tuple(penalty.shape)
        raise ValueError(f"penalty must be a number or of the output weights' shape {shape} or {shape[:1]}, got {came}.")
    limit = math.inf if time_limit is None else parse_seconds("time_limit", time_limit)
    measure = LOSSES.get(loss) if isinstance(loss, str) else loss
    if measure is None or not callable(measure):
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}, or a callable, got {loss!r}.")
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad and p.numel()}
    if not trained:
        raise ValueError("network: none of its parameters requires a gradient, so there is nothing to train.")
    parts = _parts(network, batch_size, parse_memory(memory))
    train, held_out = training_batches(network, X, Y, validation, batch_size, parts, Randomness(random_state))

    state = Training(network, trained, learning_rate, temporal_rate, measure, penalty, clip)
    asked: dict[str, Any] = {
        k: v if isinstance(v, (int, float, str, type(None))) else repr(v)
        for k, v in dict(
            epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, final_learning_rate=final_learning_rate,
            temporal_rate=temporal_rate, penalty=penalty, clip=clip, random_state=random_state, min_improvement=min_improvement,
        ).items()
    }  # fmt: skip
    asked["network"] = [[name, list(p.shape)] for name, p in trained.items()]
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint: the folder {path.parent} does not exist.")
        asked["data"] = [part.fingerprint() for part in (train, held_out) if part is not None]

    with Tracker(verbose) as tracker, tracker.step("training"):
        if path is not None and path.exists():
            state.load(path, asked)
        else:
            first, firing, silent = state.validate(held_out or train)
            state.keep(EpochRecord(0, math.nan, first, 0.0, firing, silent, math.nan, 0.0), 0.0)
        before, begin = state.report.records[-1].seconds, time.perf_counter()
        for epoch in tracker.count(range(len(state.report.records), epochs + 1)):
            if state.report.stopped:
                break
            if epoch - 1 - state.last_gain >= patience:
                state.report.stopped = "patience"
                break
            if before + time.perf_counter() - begin > limit:
                state.report.stopped = "time"
                break
            rate = _cosine(learning_rate, final_learning_rate, epoch, epochs)
            mean_loss, norm = state.epoch(train, epoch, rate, begin + limit - before)
            reached, firing, silent = state.validate(held_out) if held_out else (mean_loss, *state.seen)
            passed = before + time.perf_counter() - begin
            record = EpochRecord(epoch, mean_loss, reached, rate, firing, silent, norm, passed)
            state.keep(record, min_improvement)
            tracker.tell(
                f"loss {record.loss:.3g}, validation {record.validation_loss:.3g}, firing {record.firing_rate:.2f}, "
                f"{record.silent} silent"
            )
            if callback is not None and callback(record) is True:
                state.report.stopped = "callback"
            if path is not None:
                state.save(path, asked)
        state.report.stopped = state.report.stopped or "epochs"
        state.restore()
    return state.report


def _cosine(first: float, last: float, epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch, counted from 1."""
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / max(epochs - 1, 1)))


def _parts(network: SpikingNetwork, batch_size: int, memory: int) -> int:
    """Return how many samples fit into memory at once: projections, potentials and spikes of all layers, their gradients."""
    each = 8 * sum(network.hidden) * network.steps * network.readout.weights.element_size()
    return max(1, min(batch_size, memory // each))
