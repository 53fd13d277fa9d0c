"""What sampling did, and what a fitted model has to tell about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from torch import Tensor

from sswim._tracking import StepRecord
from sswim.layers import SpikingLayer
from sswim.network import SpikingNetwork
from sswim.traces import ASSEMBLIES

__all__ = ["LayerReport", "SamplingReport", "Summary", "summarize"]


@dataclass
class LayerReport:
    """How one hidden layer came about, and how it behaves on the initial batch.

    Attributes
    ----------
    input_metric, output_metric : str
        The distances that the pairs were drawn by.
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


@dataclass
class SamplingReport:
    """What `sample` did.

    Attributes
    ----------
    layers : list of LayerReport
    lags : Tensor of shape (outputs,)
        Lag of the largest correlation, from which the output delays follow.
    lambdas : Tensor of shape (outputs,)
        Chosen regularisation.
    traces : int
        Number of different (delay, support) pairs among the outputs.
    assembly : Assembly
        How far the sums were thinned out.
    samples, validation_samples, batch_size : int
    steps : list of StepRecord
        Seconds and peak memory per step.
    """

    layers: list[LayerReport]
    lags: Tensor
    lambdas: Tensor
    traces: int
    assembly: Any
    samples: int
    validation_samples: int
    batch_size: int
    steps: list[StepRecord] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """A fitted network in numbers. Printing it draws tables; `to_dict` gives the same as plain data."""

    title: str
    data: dict[str, Any]
    unit: str = "window"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and dictionaries."""
        return self.data

    def __rich__(self) -> RenderableType:
        layers = Table(
            "layer",
            "kernel",
            "neurons",
            "rate",
            "silent",
            "saturated",
            "drawn by",
            title=self.title,
            box=box.SIMPLE_HEAD,
        )
        for number, layer in enumerate(self.data["layers"], start=1):
            layers.add_row(
                f"hidden {number}",
                layer["kernel"],
                f"{layer['neurons']:,}",
                f"{layer['rate']:.3f} / step",
                str(layer["silent"]),
                str(layer["saturated"]),
                _drawn_by(layer),
            )
        out = self.data["output"]
        layers.add_row("output", out["kernel"], f"{out['neurons']:,}", "-", "-", "-", "-")

        readout = Table("output", "smallest", "median", "largest", box=box.SIMPLE_HEAD)
        for name in (name for name in ("delay", "support", "lambda") if name in out):
            low, middle, high = out[name]
            readout.add_row(name, f"{low:.4g}", f"{middle:.4g}", f"{high:.4g}")

        steps = Table("step", "seconds", "peak memory", box=box.SIMPLE_HEAD)
        for step in self.data["steps"]:
            peak = step["peak_memory"]
            steps.add_row(step["name"], f"{step['seconds']:.2f}", "-" if peak is None else f"{peak / 2**20:,.0f} MiB")
        steps.add_row("all", f"{self.data['seconds']:.2f}", "", style="bold")

        d = self.data
        note = (
            f"{d['parameters']:,} parameters, {d['spikes_per_window']:,.0f} spikes per {self.unit}; fitted on {d['samples']:,} "
            f"{self.unit}s, regularised on {d['validation_samples']:,}; "
        )
        if "constants" in out:
            note += f"traces with time constants {', '.join(f'{c:.3g}' for c in out['constants'])}."
        else:
            note += f"{out['traces']} different (delay, support) pairs, sums {d['assembly']}."
        return Group(layers, readout, steps, note)

    def __str__(self) -> str:
        console = Console(width=110, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    __repr__ = __str__


def _three(values: Tensor) -> list[float]:
    values = values.detach().double()
    return [float(values.min()), float(values.median()), float(values.max())]


def _output(network: SpikingNetwork, report: SamplingReport) -> dict[str, Any]:
    """Return what there is to tell about the output."""
    readout = network.readout
    told = {"neurons": network.outputs, "lambda": _three(report.lambdas), "traces": report.traces}
    if isinstance(readout, SpikingLayer):
        return {"kernel": str(readout.kernel), **told, "delay": _three(readout.delays), "support": _three(readout.supports)}
    kernel = "direct" + (" with skip" if network.skip else "")
    return {"kernel": kernel, **told, "constants": [float(c) for c in readout.constants]}


def _drawn_by(layer: dict[str, Any]) -> str:
    """Tell what a layer's neurons were drawn by."""
    metrics = f"{layer['input_metric']}, {layer['output_metric']}" if layer["output_metric"] else "chance"
    return metrics if layer["entropy"] is None else f"{metrics} (entropy {layer['entropy']:.2f})"


def summarize(network: SpikingNetwork, report: SamplingReport, title: str, unit: str = "window") -> Summary:
    """Return the summary of a sampled network, whose samples are called `unit`."""
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
        "output": _output(network, report),
        "parameters": sum(p.numel() for p in network.parameters()),
        "spikes_per_window": sum(float(made.rates.sum()) for made in report.layers) * network.steps,
        "samples": report.samples,
        "validation_samples": report.validation_samples,
        "batch_size": report.batch_size,
        "assembly": next((name for name, known in ASSEMBLIES.items() if known == report.assembly), str(report.assembly)),
        "seconds": sum(step.seconds for step in report.steps),
        "steps": [{"name": step.name, "seconds": step.seconds, "peak_memory": step.peak_memory} for step in report.steps],
    }
    return Summary(title, data, unit)
