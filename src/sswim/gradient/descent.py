"""The state of a training by gradients: what an epoch does to it, and how it is kept in a file."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from sswim.gradient.batches import Batches
from sswim.network.network import SpikingNetwork
from sswim.report import EpochRecord, TrainingDiverged, TrainingReport
from sswim.sealed import Damaged, check_keys, check_type, read_sealed, write_sealed

__all__ = ["Asked", "Descent", "Loss"]

Loss = Callable[[Tensor, Tensor], Tensor]
# Options of a training as JSON, to tell whether a checkpoint is of the same one.
Asked = dict[str, int | float | str | None | list[str]]
# Parameters in steps of time, which are larger numbers than weights and have further to go.
TEMPORAL = ("delays", "supports", "refractory_supports")
# No kernel may shrink below this many steps, where the grid of lags would begin to miss it.
LEAST_SUPPORT = 1.0
# What Adam keeps of each parameter, and between which bounds.
ADAM = ("step", "exp_avg", "exp_avg_sq")
LIMITS = {"step": (0.0, 1e12), "exp_avg_sq": (0.0, math.inf)}


class Descent:
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

    def epoch(self, data: Batches, epoch: int, rate: float, deadline: float = math.inf) -> tuple[float, float]:
        """Go through the training data once, or until the deadline, and return the mean loss and the mean gradient norm."""
        for group, factor in zip(self.optimizer.param_groups, self.factors, strict=True):
            group["lr"] = rate * factor
        losses, norms, sizes, spikes = 0.0, 0.0, 0, SpikeCount(self.network)
        for batch in data(epoch):
            self.optimizer.zero_grad(set_to_none=True)
            total, count = 0.0, sum(len(x) for _, (x, _, _) in batch)
            for weight, (x, y, past) in batch:
                activity = self.network.activity(x, past)
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
    def validate(self, data: Batches) -> tuple[float, float, int]:
        """Return the loss on validation data, the part of steps that neurons fire at, and how many never do."""
        losses, sizes, spikes = 0.0, 0, SpikeCount(self.network)
        for batch in data(None):
            for _, (x, y, past) in batch:
                activity = self.network.activity(x, past)
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

    def save(self, path: Path, asked: Asked) -> None:
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
        write_sealed(path, "sswim-training", header, tensors)

    def _fingerprint(self) -> str:
        """Return a hash of the parameters that are not trained: a checkpoint of another network has another."""
        frozen = {k: v for k, v in self.network.state_dict().items() if k not in self.trained}
        return hashlib.sha256(repr([(k, v.tolist()) for k, v in frozen.items()]).encode()).hexdigest()

    @torch.no_grad()
    def load(self, path: Path, asked: Asked) -> None:
        """Go on from a checkpoint. Nothing changes if it is not one of this training."""
        try:
            header, tensors = self._checked(path)
        except OSError as error:
            raise OSError(f"checkpoint: {path} cannot be read ({error.strerror}).") from error
        except Damaged as error:
            raise ValueError(
                f"checkpoint: {path} is not a checkpoint of a training, or damaged ({error}). Remove it, or name another."
            ) from None
        wanted = json.loads(json.dumps(asked))
        wrong = [k for k in wanted if header["asked"].get(k) != wanted[k]]
        if wrong or header["values"] != self._fingerprint():
            named = {"network": "another network", "data": "other data"}
            changed = ", ".join(named.get(k, f"{k}={header['asked'].get(k)!r}") for k in wrong) or "another network"
            raise ValueError(
                f"checkpoint: {path} is of a training with {changed}. Train with the same, remove it, or name another."
            )
        self._check_sizes(path, tensors)
        for name, p in self.trained.items():
            p.copy_(tensors[f"now.{name}"]), self.best[name].copy_(tensors[f"best.{name}"])
            kept = {k: tensors[f"adam.{name}.{k}"] for k in ADAM}
            self.optimizer.state[p] = {k: v if k == "step" else v.to(p.device) for k, v in kept.items()}
        self.report.records = [EpochRecord(**r) for r in header["records"]]
        self.report.best_epoch, self.last_gain = header["best_epoch"], header["last_gain"]
        self.report.stopped = header["stopped"] if header["stopped"] != "time" else ""

    @staticmethod
    def _checked(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the header and the tensors of a checkpoint, if they are whole and of the right types."""
        file = read_sealed(path, "sswim-training")
        if not file.whole:
            raise Damaged("it has changed since it was written")
        types = {"asked": dict, "values": str, "records": list, "best_epoch": int, "last_gain": int, "stopped": str}
        header, hints = check_keys("the header", file.header, list(types)), get_type_hints(EpochRecord)
        for key, kind in types.items():
            check_type(key, header[key], kind)
        for record in header["records"]:
            for key, value in check_keys("an epoch", record, list(hints)).items():
                check_type(key, value, hints[key])
        epochs = [record["epoch"] for record in header["records"]]
        if epochs != list(range(len(epochs))) or not {header["best_epoch"], header["last_gain"]} <= set(epochs):
            raise Damaged("its epochs are not in order")
        return header, file.tensors

    def _check_sizes(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Refuse tensors that are not of the sizes of this training, or not finite."""
        wanted = {f"{part}.{name}": p for name, p in self.trained.items() for part in ("now", "best")}
        for name, p in self.trained.items():
            wanted |= {f"adam.{name}.{key}": p if key != "step" else torch.zeros(()) for key in ADAM}
        for name in sorted(wanted.keys() | tensors.keys()):
            found, like = tensors.get(name), wanted.get(name)
            least, most = LIMITS.get(name.rpartition(".")[2], (-math.inf, math.inf))
            if found is None or like is None or found.shape != like.shape or found.dtype != like.dtype:
                right = False
            else:
                right = bool((torch.isfinite(found) & (found >= least) & (found <= most)).all())
            if not right:
                raise ValueError(
                    f"checkpoint: {path} is damaged ({name} is not that of the network). Remove it, or name another."
                )


class SpikeCount:
    """Counts how often neurons fire, and which never do."""

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
