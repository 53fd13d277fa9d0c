"""What a forecast or a sample costs, layer by layer, and what other models of the same job would cost."""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table

from sswim.evaluate.energy import Energy, energies
from sswim.evaluate.operations import LayerCosts, dense_layer
from sswim.report import Facts

__all__ = ["Comparison", "Costs", "Job", "LayerCosts"]

# Columns of the table of layers: what stands above, and the attribute below.
COLUMNS = {
    "neurons": "neurons",
    "parameters": "parameters",
    "spikes": "spikes",
    "accumulates": "accumulates",
    "multiply-acc.": "multiply_accumulates",
    "updates": "updates",
    "bytes moved": "traffic",
}


@dataclass(frozen=True)
class Job:
    """What a model is for, whatever it is made of.

    Attributes
    ----------
    ridge_inputs, ridge_outputs, ridges : int
        Numbers that a linear model sees and puts out, and how many such models there are: one for each channel.
    inputs, outputs : int
        Numbers that a network sees and puts out.
    hidden : tuple of int
        Widths of its hidden layers.
    share : int
        Number of forecasts that one run of it makes: the channels, where all enter one network.
    """

    ridge_inputs: int
    ridge_outputs: int
    ridges: int
    inputs: int
    outputs: int
    hidden: tuple[int, ...]
    share: int = 1


@dataclass(frozen=True)
class Costs:
    """What one forecast of one channel, or one sample, costs: means over those that were looked at.

    ``print(costs)`` says it in a sentence, ``print(costs.table())`` layer by layer and with energies. The attributes of
    `LayerCosts` are there as sums over all layers, such as ``costs.spikes`` and ``costs.traffic``.

    Attributes
    ----------
    title, unit : str
    layers : tuple of LayerCosts
    samples : int
        Number of forecasts or samples that were looked at.
    job : Job
        For `compare`.
    """

    title: str
    unit: str
    layers: tuple[LayerCosts, ...]
    samples: int
    job: Job | None = None

    def _sum(self, name: str, *kinds: str) -> float:
        return sum(getattr(layer, name) for layer in self.layers if not kinds or layer.kind in kinds)

    @property
    def neurons(self) -> int:
        """Neurons of all layers."""
        return int(self._sum("neurons"))

    @property
    def parameters(self) -> int:
        """Parameters of all layers."""
        return int(self._sum("parameters"))

    @property
    def parameter_bits(self) -> int:
        """Bits of all parameters."""
        return int(self._sum("parameter_bits"))

    @property
    def state_bits(self) -> int:
        """Bits that are remembered from step to step."""
        return int(self._sum("state_bits"))

    @property
    def footprint(self) -> float:
        """Bytes of parameters and state."""
        return self._sum("footprint")

    @property
    def spikes(self) -> float:
        """All spikes."""
        return self._sum("spikes")

    @property
    def population_spikes(self) -> float:
        """Spikes of populations, which carry the channels."""
        return self._sum("spikes", "encoder")

    @property
    def sampled_spikes(self) -> float:
        """Spikes of all other neurons."""
        return self.spikes - self.population_spikes

    @property
    def accumulates(self) -> float:
        """Additions of a weight, one for each spike and neuron that it reaches."""
        return self._sum("accumulates")

    @property
    def multiply_accumulates(self) -> float:
        """Products of a weight and a value that is no spike."""
        return self._sum("multiply_accumulates")

    @property
    def synaptic_operations(self) -> float:
        """Accumulates and multiply-accumulates."""
        return self._sum("synaptic_operations")

    @property
    def dense(self) -> float:
        """Synaptic operations if every input were active at every step and no weight 0."""
        return self._sum("dense")

    @property
    def updates(self) -> float:
        """Neuron updates."""
        return self._sum("updates")

    @property
    def neuron_accumulates(self) -> float:
        """Additions in neuron updates."""
        return self._sum("neuron_accumulates")

    @property
    def neuron_multiply_accumulates(self) -> float:
        """Multiply-accumulates in neuron updates."""
        return self._sum("neuron_multiply_accumulates")

    @property
    def traffic(self) -> float:
        """Bytes that are read and written, if nothing is cached."""
        return self._sum("traffic")

    @property
    def connection_sparsity(self) -> float:
        """Part of the weights that are 0."""
        return self._sum("zero_weights") / max(self._sum("weights"), 1)

    @property
    def activation_sparsity(self) -> float:
        """Part of the steps of spiking neurons without a spike. Populations, which encode, do not count."""
        updates = self._sum("updates", "spiking")
        return 1 - self._sum("spikes", "spiking") / updates if updates else 0.0

    @property
    def energy(self) -> list[Energy]:
        """Energy on several kinds of hardware, as ranges from published figures (`sswim.evaluate.energy`)."""
        return energies(self.layers)

    def compare(self) -> Comparison:
        """Return the costs together with those of a ridge and a dense network of the same job, hidden widths and bits."""
        if self.job is None:
            raise ValueError("compare: these costs are not those of a fitted model, so there is no job to compare.")
        return Comparison((self, self._ridge(self.job), self._network(self.job)))

    @property
    def _bits(self) -> int:
        """Bits of a weight, at most the 32 that other models need."""
        return min([32, *(layer.bits for layer in self.layers)])

    def _ridge(self, job: Job) -> Costs:
        layer = dense_layer("output", job.ridge_inputs, job.ridge_outputs, copies=job.ridges, bits=self._bits)
        return Costs("ridge", self.unit, (layer,), self.samples)

    def _network(self, job: Job) -> Costs:
        """Return the costs of a dense network. A hidden neuron's activation counts as one update and one comparison."""
        layers = []
        for number, (inputs, outputs) in enumerate(zip((job.inputs, *job.hidden), (*job.hidden, job.outputs), strict=True), 1):
            last = number > len(job.hidden)
            layer = dense_layer("output" if last else f"hidden {number}", inputs, outputs, share=job.share, bits=self._bits)
            active = 0.0 if last else outputs / job.share
            layers.append(LayerCosts(**{**asdict(layer), "updates": active, "neuron_accumulates": active}))
        return Costs("dense network", self.unit, tuple(layers), self.samples)

    def __str__(self) -> str:
        made_of = ""
        if self.population_spikes:
            made_of = f" ({self.population_spikes:,.0f} of populations, {self.sampled_spikes:,.0f} of sampled neurons)"
        return (
            f"{self.spikes:,.0f} spikes per {self.unit}{made_of}, {self.synaptic_operations:,.0f} synaptic operations "
            f"({self.accumulates:,.0f} accumulates, {self.multiply_accumulates:,.0f} multiply-accumulates)"
        )

    def table(self) -> str:
        """Return the costs of every layer, and energies, as a table in plain text."""
        return _plain(self)

    def __rich__(self) -> RenderableType:
        layers = Table(title=f"{self.title}: one {self.unit}", box=box.SIMPLE_HEAD, pad_edge=False)
        layers.add_column("layer")
        for name in COLUMNS:
            layers.add_column(name, justify="right", no_wrap=True)
        for layer in self.layers:
            layers.add_row(layer.name, *(f"{getattr(layer, key):,.0f}" for key in COLUMNS.values()))
        layers.add_row("all", *(f"{getattr(self, key):,.0f}" for key in COLUMNS.values()), style="bold")
        energy = Table("energy by published figures", "from", "to", box=box.SIMPLE_HEAD, pad_edge=False)
        for each in self.energy:
            low, _, high = str(each).partition(" to ")
            energy.add_row(each.hardware, low, high or low)
        return Group(layers, energy, self._note())

    def _note(self) -> str:
        return (
            f"{self.parameter_bits / 8:,.0f} bytes of parameters, {self.state_bits / 8:,.0f} of state. In the neurons: "
            f"{self.neuron_accumulates:,.0f} additions, {self.neuron_multiply_accumulates:,.0f} multiply-accumulates. "
            f"Means over {self.samples:,}. What is counted: docs/costs.md."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return all counts, a row for each layer."""
        return pd.DataFrame([_facts(layer) for layer in self.layers]).set_index("name")

    def to_dict(self) -> Facts:
        """Return everything as plain numbers, lists and dictionaries."""
        names = [*COLUMNS.values(), "parameter_bits", "state_bits", "synaptic_operations", "dense"]
        names += ["neuron_accumulates", "neuron_multiply_accumulates", "connection_sparsity", "activation_sparsity"]
        return {
            "title": self.title,
            "unit": self.unit,
            "samples": self.samples,
            **{name: getattr(self, name) for name in names},
            "energy": [asdict(each) for each in self.energy],
            "layers": [_facts(layer) for layer in self.layers],
        }

    def _repr_html_(self) -> str:
        shown = self.to_frame()[list(COLUMNS.values())]
        shown.loc["all"] = [getattr(self, name) for name in COLUMNS.values()]
        shown.columns = pd.Index(COLUMNS)
        energy = pd.DataFrame({"energy": {each.hardware: str(each) for each in self.energy}})
        return _html(f"{self.title}: one {self.unit}", [shown, energy], self._note())


@dataclass(frozen=True)
class Comparison:
    """The costs of several models for the same job, the first of which is the one that was asked."""

    models: tuple[Costs, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each model: counts, and energies in joules."""
        rows = {}
        for costs in self.models:
            row: Facts = {name: getattr(costs, key) for name, key in COLUMNS.items()}
            for each in costs.energy[:3]:
                row |= {f"{each.hardware}, low": each.low, f"{each.hardware}, high": each.high}
            rows[costs.title] = row
        return pd.DataFrame(rows).T

    def to_dict(self) -> dict[str, Facts]:
        """Return the costs of all models as plain numbers, lists and dictionaries."""
        return {costs.title: costs.to_dict() for costs in self.models}

    def _shown(self) -> pd.DataFrame:
        found = {}
        for costs in self.models:
            counts = {name: f"{getattr(costs, key):,.0f}" for name, key in COLUMNS.items()}
            found[costs.title] = counts | {each.hardware: str(each) for each in costs.energy[:3]}
        return pd.DataFrame(found)

    def __rich__(self) -> RenderableType:
        table = Table(title=f"one {self.models[0].unit}", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("")
        for costs in self.models:
            table.add_column(costs.title, justify="right")
        for name, row in self._shown().iterrows():
            table.add_row(str(name), *row.tolist())
        return table

    def __str__(self) -> str:
        return _plain(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(f"one {self.models[0].unit}", [self._shown()], "")


def _facts(layer: LayerCosts) -> Facts:
    """Return all that is known of a layer, by name."""
    more = ("parameter_bits", "state_bits", "synaptic_operations", "traffic")
    return asdict(layer) | {name: getattr(layer, name) for name in more}


def _plain(shown: Costs | Comparison) -> str:
    """Return what rich draws, as plain text."""
    console = Console(width=min(110, shutil.get_terminal_size((110, 24)).columns), color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _html(title: str, frames: Sequence[pd.DataFrame], note: str) -> str:
    """Return tables for a notebook."""
    parts = [f"<p><strong>{html.escape(title)}</strong></p>"]
    parts += [frame.to_html(float_format=lambda value: f"{value:,.0f}") for frame in frames]
    return "\n".join([*parts, f"<p>{html.escape(note)}</p>"])
