"""Gradient training as an option of an estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from sswim.data.windows import Part, Samples, Split
from sswim.gradient.batches import SampleBatches
from sswim.gradient.finetune import Schedule, _parts, train_network
from sswim.gradient.initialize import initialize
from sswim.network.events import dense
from sswim.network.network import SpikingNetwork
from sswim.network.surrogates import SURROGATES, SlayerExponential, Surrogate
from sswim.options import Run, resolve, warn
from sswim.readout.base import Loss, ReadoutOptions
from sswim.report import LayerReport, SamplingReport, Solution, TrainingDiverged, TrainingReport

__all__ = ["PAPER_TRAININGS", "TRAININGS", "FromScratch", "Gradient", "improve", "start_from_scratch"]

# Samples that weights are scaled by, and firing rates are reported of.
FEW, FEWER = 1000, 200


@dataclass(frozen=True)
class Gradient(Schedule):
    """Train the sampled network further, by surrogate gradients.

    A direct readout is solved for once more afterwards, and the sampled network is kept where training brought nothing on the
    validation part.

    Parameters
    ----------
    epochs, batch_size, learning_rate, final_learning_rate, temporal_rate, patience, min_improvement, clip, time_limit
        As in `sswim.finetune`.
    penalty : float or Tensor, optional
        On the output weights. Default: that of the sampled readout; 0 for classifiers, 1e-4 from scratch.
    checkpoint, callback
        As in `sswim.finetune`.
    plain_penalty : bool
        Whether the lambdas of the sampled readout are the penalty as they are, as in the paper. Otherwise they are divided by
        the number of values per sample: then the loss is the one that sampling minimised.
    surrogate : str or Surrogate, optional
        What stands for the threshold's derivative, see `sswim.SpikingNetwork`. Default: the network's.
    """

    from_scratch: ClassVar[bool] = False
    plain_penalty: bool = False
    surrogate: str | Surrogate | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.surrogate is not None:
            resolve("surrogate", self.surrogate, SURROGATES, "derivative")

    def descend(
        self,
        network: SpikingNetwork,
        train: Samples,
        held_out: Samples,
        run: Run,
        *,
        loss: str | Loss = "mse",
        penalty: float | Tensor | None = None,
    ) -> TrainingReport:
        """Train the network. A training that diverges ends with a warning and the best epoch."""
        if self.surrogate is not None:
            network.surrogate = resolve("surrogate", self.surrogate, SURROGATES, "derivative")
        if isinstance(penalty, Tensor) and self.plain_penalty:
            penalty = penalty * (network.horizon * network.outputs)
        schedule = replace(self, penalty=penalty) if self.penalty is None else self
        parts = _parts(network, self.batch_size, run.budget)
        seen, checked = (SampleBatches(samples, self.batch_size, parts, run.random) for samples in (train, held_out))
        with run.step("gradient training"), torch.enable_grad():
            try:
                return train_network(network, seen, checked, schedule, loss, run)
            except TrainingDiverged as error:
                warn(str(error), stacklevel=6)
                return error.report


@dataclass(frozen=True)
class FromScratch(Gradient):
    """Train a network of random parameters by surrogate gradients, as the paper does for comparison.

    Options are those of `Gradient`, with the paper's values for training from scratch, and `consistent` of `sswim.initialize`.
    """

    from_scratch: ClassVar[bool] = True
    epochs: int = 750
    learning_rate: float = 5e-4
    consistent: bool = True


TRAININGS: dict[str, Gradient] = {"gradient": FromScratch(), "sample+gradient": Gradient()}
# As in the paper: nothing is clipped, all parameters learn alike, and the bump is as wide as lava-dl's.
_LETTER: dict[str, Any] = {"temporal_rate": 1.0, "clip": None, "plain_penalty": True, "surrogate": SlayerExponential(width=1.0)}
PAPER_TRAININGS: dict[str, Gradient] = {
    "gradient": FromScratch(**_LETTER, consistent=False),
    "sample+gradient": Gradient(**_LETTER),
}


@torch.no_grad()
def start_from_scratch(network: SpikingNetwork, split: Split, training: Gradient, run: Run) -> SamplingReport:
    """Set a network's parameters at random."""
    consistent = getattr(training, "consistent", True)
    few = torch.randperm(len(split.train), generator=torch.Generator().manual_seed(0))[:FEW]
    initialize(network, dense(split.train.inputs(few)), consistent=consistent, random_state=run.random.seed)
    none, lambdas = torch.zeros(0, 2, dtype=torch.long), torch.full((len(network.readout.weights),), 1e-4)
    layers = [LayerReport("", "", {}, none, torch.zeros(n), True) for n in network.hidden]
    size = network.batch_size(run.budget)
    return SamplingReport(layers, Solution(lambdas), split.train.originals, len(split.held_out), size, run.records)


def improve(
    network: SpikingNetwork,
    split: Split,
    readout: ReadoutOptions,
    training: Gradient,
    report: SamplingReport,
    run: Run,
) -> SamplingReport:
    """Train a network by gradients, and return the report of the fit with what changed."""
    solution = readout.improve(network, split, report.solution, training, run)
    group = split.train.together
    few = Part(split.train, 0, min(len(split.train), max(FEWER // group, 1) * group))
    spikes = network.simulate(few.inputs(slice(None))).spikes
    rates = [a.double().mean(dim=(0, 1)).cpu() for a in spikes]
    layers = [replace(layer, rates=rate) for layer, rate in zip(report.layers, rates, strict=True)]
    return replace(report, layers=layers, solution=solution)
