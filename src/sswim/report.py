"""What sampling did, and what a fitted model has to tell about itself."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from torch import Tensor

from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import StepRecord

__all__ = [
    "EpochRecord",
    "Facts",
    "LayerReport",
    "SamplingReport",
    "Solution",
    "Summary",
    "TrainingDiverged",
    "TrainingReport",
    "summarize",
]

# Values by name, of many types.
Facts = dict[str, Any]


@dataclass
class LayerReport:
    """How one hidden layer was sampled, and how it behaves on the initial batch.

    Attributes
    ----------
    input_metric, output_metric : str
        The distances between inputs and between targets that decide how likely a pair of samples is.
    entropies : dict
        Entropy of the pair distribution for each candidate (input metric, output metric), on the samples they were compared on.
    pairs : Tensor of shape (neurons, 2)
        Numbers, within the training samples, of the two samples that made each neuron; twice the same for a neuron of a deeper
        layer that was made of one sample's surroundings (`sswim.steps.ResidualDepth`).
    rates : Tensor of shape (neurons,)
        Spikes per step.
    every_channel : bool
        Whether the minimum-norm rule was applied to every channel; if too few samples met it, to at least one.
    """

    input_metric: str
    output_metric: str
    entropies: dict[tuple[str, str], float]
    pairs: Tensor
    rates: Tensor
    every_channel: bool

    @property
    def silent(self) -> int:
        """Number of neurons that never fired."""
        return int((self.rates == 0).sum())

    @property
    def saturated(self) -> int:
        """Number of neurons that fired in more than half of all steps."""
        return int((self.rates > 0.5).sum())


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
        The epoch whose parameters the network has; 0: those before training.
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


@dataclass(frozen=True)
class Solution:
    """What was found for an output.

    Attributes
    ----------
    lambdas : Tensor of shape (outputs,), or (horizon * outputs,) for a readout at the window's end
        Chosen regularisation.
    lags : Tensor of shape (outputs,)
        Lag of the largest correlation, from which the output delays follow; empty for a readout at the window's end.
    traces : int
        Number of different (delay, support) pairs among the outputs, or of time constants.
    sums : str
        Which part of all steps the sums are taken over: ``"exact"`` (all), ``"fast"``, or the settings.
    score : float
        Mean squared error on validation rows, of weights that had not seen these.
    quantiles : array of shape (levels, horizon, channels), optional
        Calibrated quantiles of the absolute errors on these rows, for intervals.
    temperature : float
        What decision values are divided by for probabilities.
    normalization : tuple of float, optional
        What a spiking output's voltages were multiplied by and shifted by, and its spike cost.
    training : TrainingReport, optional
        What a training by gradients did.
    condition, condition_bound : float
        For a voltage, the largest condition number of the outputs' regularised systems, and the paper's bound of it.
    kept : dict, optional
        For a readout with lags, the models that were weighed, by name, and the mean share of each.
    gains : dict, optional
        The part of the plainest linear model's error that each of them saves on blocks that it has not seen.
    record : object, optional
        The sums that the output was solved from, for updates.
    """

    lambdas: Tensor
    lags: Tensor = torch.zeros(0)
    traces: int = 1
    sums: str = "exact"
    score: float = float("nan")
    quantiles: np.ndarray | None = None
    temperature: float = 1.0
    normalization: tuple[float, float, float] | None = None
    training: TrainingReport | None = None
    condition: float = float("nan")
    condition_bound: float = float("nan")
    kept: dict[str, float] | None = None
    gains: dict[str, float] | None = None
    record: object = field(default=None, repr=False, compare=False, metadata={"in_files": False})


@dataclass(frozen=True)
class SamplingReport:
    """What a fit did.

    Attributes
    ----------
    layers : list of LayerReport
    solution : Solution
    samples, validation_samples, batch_size : int
    steps : list of StepRecord
        Seconds and peak memory per step.
    """

    layers: list[LayerReport]
    solution: Solution
    samples: int
    validation_samples: int
    batch_size: int
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def lambdas(self) -> Tensor:
        """Chosen regularisation of each output."""
        return self.solution.lambdas

    @property
    def lags(self) -> Tensor:
        """Lag of each output's largest correlation."""
        return self.solution.lags

    @property
    def traces(self) -> int:
        """Number of different (delay, support) pairs among the outputs, or of time constants."""
        return self.solution.traces


@dataclass(frozen=True)
class Summary:
    """A fitted network in numbers. Printing it draws tables; `to_dict` gives the same as plain data."""

    title: str
    data: Facts
    unit: str = "window"
    units: str = "windows"

    def to_dict(self) -> Facts:
        """Return everything as plain numbers, lists and dictionaries."""
        return self.data

    def __rich__(self) -> RenderableType:
        layers = Table(title=self.title, box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("layer", "neurons", "kernel", "spikes/step", "silent", "saturated"):
            layers.add_column(name, no_wrap=True)
        layers.add_column("distances", overflow="fold")  # of the pairs; the only one that may need two lines
        for number, layer in enumerate(self.data["layers"], start=1):
            layers.add_row(
                f"hidden {number}",
                f"{layer['neurons']:,}",
                layer["kernel"].partition("(")[0],
                f"{layer['rate']:.3f}",
                str(layer["silent"]),
                str(layer["saturated"]),
                f"{layer['input_metric']}, {layer['output_metric']}" if layer["output_metric"] else "random",
            )
        out = self.data["output"]
        if out.get("population"):
            layers.add_row("population", f"2 x {out['population']}", "-", "-", "-", "-", "-")
        layers.add_row("output", f"{out['neurons']:,}", out["kernel"].partition("(")[0], "-", "-", "-", "-")

        readout = Table("output", "smallest", "median", "largest", box=box.SIMPLE_HEAD)
        for name in (name for name in ("delay", "support", "lambda") if name in out):
            low, middle, high = out[name]
            readout.add_row(name, f"{low:.4g}", f"{middle:.4g}", f"{high:.4g}")

        steps = Table("step", "seconds", "peak memory", box=box.SIMPLE_HEAD)
        for step in self.data["steps"]:
            peak = step["peak_memory"]
            steps.add_row(step["name"], f"{step['seconds']:.2f}", "-" if peak is None else f"{peak / 2**20:,.0f} MiB")
        steps.add_row("all", f"{self.data['seconds']:.2f}", "", style="bold")

        made_of = [_made_of(out["kept"], out["gains"])] if "kept" in out else []
        return Group(layers, *made_of, readout, steps, self._note())

    def _note(self) -> str:
        """Return sizes in words."""
        d, out, unit, units = self.data, self.data["output"], self.unit, self.units
        spikes, samples, held_out = d["spikes_per_window"], d["samples"], d["validation_samples"]
        decaying = [f"{c:.3g}" for c in out.get("constants", ()) if c != float("inf")]
        traces = [f"traces with time constants of {', '.join(decaying)} steps"] if decaying else []
        counts = ["spike counts"] if len(decaying) < len(out.get("constants", ())) else []
        constants = f"read as {' and '.join(counts + traces)}."
        if out["kernel"] == "lags":
            return (
                f"{d['parameters']:,} parameters; two populations per channel; fitted on {samples + held_out:,} {units}; "
                f"sampled neurons: {spikes:,.0f} spikes per {unit}, {constants}"
            )
        note = f"{d['parameters']:,} parameters, {spikes:,.0f} spikes per {unit}; fitted on {samples:,} {units}, "
        note += f"lambda chosen on {held_out:,} more; "
        return note + (
            constants if "constants" in out else f"{out['traces']} different (delay, support) pairs, sums {d['sums']}."
        )

    def __str__(self) -> str:
        wide = min(110, shutil.get_terminal_size((110, 24)).columns)
        console = Console(width=wide, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    __repr__ = __str__


def _three(values: Tensor) -> list[float]:
    values = values.detach().double()
    return [float(values.min()), float(values.median()), float(values.max())]


def _made_of(kept: dict[str, float], gains: dict[str, float]) -> Table:
    """Return a table of the models that were weighed: the share of each, and its gain."""
    caption = "gain: how much less squared error than the plainest linear model, on rows it has not seen"
    table = Table("what the forecast is made of", "share", "gain", box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    for name, share in kept.items():
        shown = "nothing" if share == 0 else "< 0.1 %" if share < 0.0005 else f"{100 * share:.1f} %"
        table.add_row(name, shown, f"{100 * gains[name]:.1f} %".replace("-0.0 %", "0.0 %"))
    return table


def _output(network: SpikingNetwork, report: SamplingReport, population: int | None) -> Facts:
    """Return the facts about the output."""
    readout = network.readout
    facts = {"neurons": network.outputs, "lambda": _three(report.lambdas), "traces": report.traces}
    if isinstance(readout, VoltageReadout):
        return {"kernel": str(readout.kernel), **facts, "delay": _three(readout.delays), "support": _three(readout.supports)}
    facts["constants"] = list(readout.constants)
    if population is None:
        return {"kernel": "traces", **facts}
    kept = {} if report.solution.kept is None else {"kept": report.solution.kept, "gains": report.solution.gains}
    return {"kernel": "lags", **facts, "population": population, **kept}


def summarize(
    network: SpikingNetwork,
    report: SamplingReport,
    title: str,
    unit: str = "window",
    units: str = "windows",
    population: int | None = None,
) -> Summary:
    """Return the summary of a sampled network, one of whose samples is called `unit`, several `units`.

    For a readout with lags, `population` is the number of neurons in each of a channel's two populations that are read.
    """
    layers = [
        {
            "kernel": str(layer.kernel),
            "neurons": layer.neurons,
            "rate": float(made.rates.mean()),
            "silent": made.silent,
            "saturated": made.saturated,
            "input_metric": made.input_metric,
            "output_metric": made.output_metric,
            "entropy": made.entropies.get((made.input_metric, made.output_metric)),
            "every_channel": made.every_channel,
        }
        for layer, made in zip(network.layers, report.layers, strict=True)
    ]
    data = {
        "layers": layers,
        "output": _output(network, report, population),
        "parameters": sum(p.numel() for p in network.parameters()),
        "spikes_per_window": network.steps
        * sum(layer.places * float(made.rates.sum()) for layer, made in zip(network.layers, report.layers, strict=True)),
        "samples": report.samples,
        "validation_samples": report.validation_samples,
        "batch_size": report.batch_size,
        "sums": report.solution.sums,
        "seconds": sum(step.seconds for step in report.steps),
        "steps": [{"name": step.name, "seconds": step.seconds, "peak_memory": step.peak_memory} for step in report.steps],
    }
    return Summary(title, data, unit, units)
