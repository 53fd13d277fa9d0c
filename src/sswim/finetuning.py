r"""Train a network by surrogate gradients: from where sampling left it, or from scratch.

The settings are those of the paper's table ``tab:sgd_params``: Adam with a cosine schedule, the mean squared error plus a
penalty on the output weights, early stopping, and all parameters at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sswim._batches import training_batches
from sswim._checks import check_integer, check_positive, parse_memory, parse_seconds
from sswim._random import Randomness
from sswim._tracking import Tracker
from sswim.network import SpikingNetwork

__all__ = ["EpochRecord", "TrainingDiverged", "TrainingReport", "finetune"]

Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"mse": torch.nn.functional.mse_loss}
# Parameters in steps of time, which are larger numbers than weights and have further to go.
TEMPORAL = ("delays", "supports", "refractory_supports")
# No kernel may shrink below so many steps, where the grid of lags would begin to miss it.
LEAST_SUPPORT = 1.0


class TrainingDiverged(ArithmeticError):
    """The loss became NaN or infinite. The network holds the best parameters so far; `report` tells of all epochs."""

    def __init__(self, message: str, report: TrainingReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch showed; epoch 0 is the network before training."""

    epoch: int
    loss: float
    validation_loss: float
    learning_rate: float
    firing_rate: float
    silent: int
    gradient_norm: float
    seconds: float


@dataclass
class TrainingReport:
    """What a training did.

    Attributes
    ----------
    records : list of EpochRecord
    best_epoch : int
        Whose parameters the network holds; 0 if training brought nothing.
    stopped : str
        Why it ended: ``"epochs"``, ``"patience"``, ``"time"``, ``"callback"`` or ``"diverged"``.
    """

    records: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = ""

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch: losses, learning rate, firing rate, number of silent neurons, gradient norm, seconds so far."""
        return pd.DataFrame([asdict(r) for r in self.records]).set_index("epoch")

    @property
    def best(self) -> EpochRecord:
        """The epoch whose parameters the network holds."""
        return self.records[self.best_epoch]


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

    state = _Training(network, trained, learning_rate, temporal_rate, measure, penalty, clip)
    asked: dict[str, Any] = {
        k: v if isinstance(v, (int, float, str, type(None))) else repr(v)
        for k, v in dict(
            epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, final_learning_rate=final_learning_rate,
            temporal_rate=temporal_rate, penalty=penalty, clip=clip, random_state=random_state, min_improvement=min_improvement,
        ).items()
    }  # fmt: skip
    asked["network"] = [[name, list(p.shape)] for name, p in trained.items()]
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"checkpoint: the folder {path.parent} does not exist.")

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


class _Training:
    """The state of a training between two epochs."""

    def __init__(
        self,
        network: SpikingNetwork,
        trained: Mapping[str, Tensor],
        rate: float,
        temporal_rate: float,
        measure: Loss,
        penalty: float | Tensor,
        clip: float | None,
    ) -> None:
        self.network, self.trained, self.measure, self.clip = network, trained, measure, clip
        self.penalty = penalty.to(network.readout.weights) if isinstance(penalty, Tensor) else penalty
        self.factors = [temporal_rate if name.split(".")[-1] in TEMPORAL else 1.0 for name in trained]
        self.optimizer = torch.optim.Adam(
            [{"params": [p], "lr": rate * f} for p, f in zip(trained.values(), self.factors, strict=True)]
        )
        self.bounds = [
            (p, p.detach().clamp(max=LEAST_SUPPORT)) for name, p in trained.items() if name.split(".")[-1].endswith("supports")
        ]
        self.report = TrainingReport()
        self.best = self._copy()
        self.last_gain = 0
        self.seen: tuple[float, int] = (math.nan, 0)

    def _copy(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.trained.items()}

    def epoch(self, data: Any, epoch: int, rate: float, deadline: float = math.inf) -> tuple[float, float]:
        """Go through the training data once, or until the deadline, and return the mean loss and the mean gradient norm."""
        for group, factor in zip(self.optimizer.param_groups, self.factors, strict=True):
            group["lr"] = rate * factor
        losses, norms, sizes, spikes = 0.0, 0.0, 0, _SpikeCount(self.network)
        for batch in data(epoch):
            self.optimizer.zero_grad(set_to_none=True)
            total, count = 0.0, sum(len(x) for _, (x, _, _) in batch)
            for weight, (x, y, context) in batch:
                activity = self.network.activity(x, **context)
                loss = weight * self.measure(activity.output, y.to(activity.output))
                loss.backward()
                total += float(loss.detach())
                spikes.add(activity.spikes)
            punished = self._penalize()
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.trained.values() if p.grad is not None])
            if not math.isfinite(total) or not math.isfinite(float(norm)) or not math.isfinite(punished):
                self._diverged(epoch)
            if self.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(self.trained.values(), self.clip, norm)
            self.optimizer.step()
            self._project()
            losses, norms, sizes = losses + total * count, norms + float(norm) * count, sizes + count
            if time.perf_counter() > deadline:
                break
        if not sizes:
            raise ValueError("X: the loader is empty: it must hold at least one batch (x, y), in every epoch.")
        self.seen = spikes.result()
        return losses / sizes, norms / sizes

    def _penalize(self) -> float:
        """Add the penalty's gradient, and return the penalty."""
        weights = self.network.readout.weights
        if not weights.requires_grad:
            return 0.0
        factor = self.penalty
        if isinstance(factor, Tensor):
            factor = factor.reshape(len(weights), -1) / (self.network.horizon * self.network.outputs)
        with torch.no_grad():
            if weights.grad is None:
                weights.grad = torch.zeros_like(weights)
            weights.grad += 2 * factor * weights
            return float((factor * weights.square()).sum())

    @torch.no_grad()
    def _project(self) -> None:
        """Bring parameters back to where they make sense."""
        for p, least in self.bounds:
            p.copy_(torch.maximum(p, least))
        for name, p in self.trained.items():
            if name.endswith(".delays"):
                p.clamp_(min=0)
            elif name.endswith(".costs"):
                p.clamp_(max=0)

    @torch.no_grad()
    def validate(self, data: Any) -> tuple[float, float, int]:
        """Return the loss on validation data, the part of steps that neurons fire at, and how many never do."""
        losses, sizes, spikes = 0.0, 0, _SpikeCount(self.network)
        for batch in data(None):
            for _, (x, y, context) in batch:
                activity = self.network.activity(x, **context)
                losses += float(self.measure(activity.output, y.to(activity.output))) * len(x)
                sizes += len(x)
                spikes.add(activity.spikes)
        if not sizes:
            raise ValueError("validation: holds no samples.")
        return losses / sizes, *spikes.result()

    def keep(self, record: EpochRecord, least: float) -> None:
        """Record an epoch, and its parameters if they are the best so far."""
        records = self.report.records
        records.append(record)
        best = records[self.report.best_epoch].validation_loss
        if record.epoch == 0 or record.validation_loss < best:
            if record.epoch == 0 or record.validation_loss < best - least:
                self.last_gain = record.epoch
            self.report.best_epoch, self.best = record.epoch, self._copy()

    @torch.no_grad()
    def restore(self) -> None:
        """Give the network its best parameters."""
        for name, p in self.trained.items():
            p.copy_(self.best[name])

    def _diverged(self, epoch: int) -> None:
        culprits = [
            name
            for name, p in self.trained.items()
            if not bool(torch.isfinite(p).all()) or (p.grad is not None and not bool(torch.isfinite(p.grad).all()))
        ]
        self.restore()
        self.report.stopped = "diverged"
        if not culprits:  # their sum is too large, though each is not
            culprits = [max(self.trained, key=lambda name: self._gradient_size(name))]
        raise TrainingDiverged(
            f"The loss or its gradient became NaN or infinite in epoch {epoch}, first in {culprits[0]}. The network holds the "
            f"parameters of epoch {self.report.best_epoch}, the best so far. Try a smaller learning_rate, a wider surrogate, "
            "or detach_refractory=True.",
            self.report,
        )

    def _gradient_size(self, name: str) -> float:
        gradient = self.trained[name].grad
        return 0.0 if gradient is None else float(gradient.double().norm())

    def save(self, path: Path, asked: dict[str, Any]) -> None:
        """Write a checkpoint."""
        tensors: dict[str, Tensor] = {}
        for name, p in self.trained.items():
            tensors[f"now.{name}"], tensors[f"best.{name}"] = p.detach(), self.best[name]
            tensors |= {f"adam.{name}.{k}": v for k, v in self.optimizer.state[p].items()}
        header = {
            "asked": asked,
            "values": self._fingerprint(),
            "records": [asdict(r) for r in self.report.records],
            "best_epoch": self.report.best_epoch,
            "last_gain": self.last_gain,
            "stopped": self.report.stopped,
        }
        part = path.with_name(f".{path.name}.part")
        try:
            metadata = {"sswim-training": json.dumps(header)}
            save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, part, metadata=metadata)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _fingerprint(self) -> str:
        """Return a hash of what is not trained, to tell whether a checkpoint is of this network."""
        frozen = {k: v for k, v in self.network.state_dict().items() if k not in self.trained}
        return hashlib.sha256(repr([(k, v.tolist()) for k, v in frozen.items()]).encode()).hexdigest()

    @torch.no_grad()
    def load(self, path: Path, asked: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["sswim-training"])
                tensors = {k: file.get_tensor(k) for k in file.keys()}
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"checkpoint: {path} is not a checkpoint of a training, or damaged ({error}). Remove it, or name another."
            ) from error
        told = json.loads(json.dumps(asked))
        wrong = [k for k in told if header["asked"].get(k) != told[k]]
        if wrong or header["values"] != self._fingerprint():
            changed = ", ".join(f"{k}={header['asked'].get(k)!r}" for k in wrong if k != "network") or "another network"
            raise ValueError(
                f"checkpoint: {path} is of a training with {changed}. Train with the same, remove it, or name another."
            )
        for name, p in self.trained.items():
            p.copy_(tensors[f"now.{name}"]), self.best[name].copy_(tensors[f"best.{name}"])
            kept = {k.rsplit(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"adam.{name}.")}
            self.optimizer.state[p] = {k: v if k == "step" else v.to(p.device) for k, v in kept.items()}
        self.report.records = [EpochRecord(**r) for r in header["records"]]
        self.report.best_epoch, self.last_gain = header["best_epoch"], header["last_gain"]
        self.report.stopped = header["stopped"] if header["stopped"] != "time" else ""


class _SpikeCount:
    """How often neurons fire, and which never do."""

    def __init__(self, network: SpikingNetwork) -> None:
        self._fired = [torch.zeros(n, dtype=torch.float64) for n in network.hidden]
        self._samples, self._steps = 0, network.steps

    def add(self, spikes: list[Tensor]) -> None:
        """Add spikes (batch, time, neurons) of each layer."""
        self._samples += len(spikes[0])
        for fired, layer in zip(self._fired, spikes, strict=True):
            fired += layer.detach().sum(dim=(0, 1)).double().cpu()

    def result(self) -> tuple[float, int]:
        """Return the part of all steps that neurons fire at, and the number of neurons that never do."""
        fired = torch.cat(self._fired)
        return float(fired.mean()) / max(self._samples * self._steps, 1), int((fired == 0).sum())
