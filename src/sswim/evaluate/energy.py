"""Energy from counted operations, as a range between published figures. Every figure has its source here.

None of them was measured with this library. They say what one operation takes, in one technology, and nothing of clocks, idle
cores, leakage or the host. Read them as orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sswim.evaluate.operations import LayerCosts

__all__ = ["FIGURES", "Energy", "Figure", "energies", "in_units"]

HOROWITZ = (
    "M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014, figure 1.1.9: 45 nm, 0.9 V, "
    "doi 10.1109/ISSCC.2014.6757323"
)
DAVIES = (
    "M. Davies et al., Loihi: a neuromorphic manycore processor with on-chip learning, IEEE Micro 38(1), 2018, table 2, "
    "doi 10.1109/MM.2018.112130359"
)
MEROLLA = (
    "P. A. Merolla et al., A million spiking-neuron integrated circuit with a scalable communication network and interface, "
    "Science 345, 2014, doi 10.1126/science.1254642"
)
SHARP = (
    "T. Sharp et al., Power-efficient simulation of detailed cortical microcircuits on SpiNNaker, Journal of Neuroscience "
    "Methods 210, 2012, doi 10.1016/j.jneumeth.2012.03.001"
)
HOEPPNER = (
    "S. Höppner et al., Dynamic power management for neuromorphic many-core systems, IEEE TCAS-I 66(8), 2019, arXiv "
    "1903.08941, as KerasSpiking's ModelEnergy quotes it"
)


@dataclass(frozen=True)
class Figure:
    """What one operation takes.

    Attributes
    ----------
    low, high : float
        In picojoules; the same where the source has one number.
    per : str
        What it is the energy of.
    source, note : str
        Where it was published, and what to know of it.
    """

    low: float
    high: float
    per: str
    source: str
    note: str = ""


# Per access of 64 bits, as in the source; divided by 8 for a byte.
_CACHE = "access of 64 bits"
FIGURES: dict[str, Figure] = {
    "int8 add": Figure(0.03, 0.03, "addition", HOROWITZ),
    "int32 add": Figure(0.1, 0.1, "addition", HOROWITZ),
    "float16 add": Figure(0.4, 0.4, "addition", HOROWITZ),
    "float32 add": Figure(0.9, 0.9, "addition", HOROWITZ),
    "int8 multiply": Figure(0.2, 0.2, "multiplication", HOROWITZ),
    "int32 multiply": Figure(3.1, 3.1, "multiplication", HOROWITZ),
    "float16 multiply": Figure(1.1, 1.1, "multiplication", HOROWITZ),
    "float32 multiply": Figure(3.7, 3.7, "multiplication", HOROWITZ),
    "SRAM 8 KB": Figure(10.0, 10.0, _CACHE, HOROWITZ),
    "SRAM 32 KB": Figure(20.0, 20.0, _CACHE, HOROWITZ),
    "SRAM 1 MB": Figure(100.0, 100.0, _CACHE, HOROWITZ),
    "DRAM": Figure(1300.0, 2600.0, _CACHE, HOROWITZ),
    "Loihi synapse": Figure(23.6, 23.6, "synaptic operation", DAVIES, "a minimum, simulated before the chip was made"),
    "Loihi neuron": Figure(52.0, 81.0, "neuron update", DAVIES, "inactive and active neuron, simulated likewise"),
    "TrueNorth synapse": Figure(
        26.0, 26.0, "synaptic event", MEROLLA, "power of the whole chip over its events, at 20 Hz and 128 synapses per neuron"
    ),
    "SpiNNaker synapse": Figure(13_300.0, 43_000.0, "synaptic event", f"{HOEPPNER}; {SHARP}"),
    "SpiNNaker neuron": Figure(26_000.0, 100_000.0, "neuron update", f"{HOEPPNER}; {SHARP}", "a step of 1 ms"),
    "SpiNNaker 2 synapse": Figure(450.0, 450.0, "synaptic event", HOEPPNER, "prototype"),
    "SpiNNaker 2 neuron": Figure(2_190.0, 2_190.0, "neuron update", HOEPPNER, "prototype"),
}
# Bytes of the on-chip memories, from the smallest to the largest.
MEMORIES = {"SRAM 8 KB": 8 * 2**10, "SRAM 32 KB": 32 * 2**10, "SRAM 1 MB": 2**20}
CHIPS = ("Loihi", "TrueNorth", "SpiNNaker 2", "SpiNNaker")
PICO = 1e-12


@dataclass(frozen=True)
class Energy:
    """The energy of one forecast or sample on some hardware, in joules.

    Attributes
    ----------
    hardware : str
    low, high : float
    memory : bool
        Whether access to memory is included.
    """

    hardware: str
    low: float
    high: float
    memory: bool

    def __str__(self) -> str:
        low, high = in_units(self.low), in_units(self.high)
        return low if low == high else f"{low} to {high}"


def in_units(joules: float) -> str:
    """Return an energy with a unit that suits it.

    Examples
    --------
    >>> in_units(2.36e-11), in_units(1.2e-7), in_units(0)
    ('24 pJ', '120 nJ', '0 pJ')
    """
    for unit, size in (("J", 1.0), ("mJ", 1e-3), ("µJ", 1e-6), ("nJ", 1e-9)):
        if joules >= size:
            return f"{joules / size:.2g} {unit}" if joules < 99.5 * size else f"{round(joules / size, -1):.0f} {unit}"
    return f"{joules / PICO:.2g} pJ" if joules < 99.5 * PICO else f"{round(joules / PICO, -1):.0f} pJ"


def _formats(bits: int) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Return the cheapest and the dearest formats for weights of `bits` bits: of products, of their sums, and of neurons."""
    if bits <= 8:
        return ("int8", "int8", "int32"), ("int8", "int32", "int32")
    if bits <= 16:
        return ("float16", "float16", "float16"), ("float16", "float32", "float32")
    return ("int32", "int32", "int32"), ("float32", "float32", "float32")


def _arithmetic(layer: LayerCosts, *, synapses: bool = True) -> tuple[float, float]:
    """Return the picojoules of a layer's operations, low and high; without those of arriving spikes if a chip does them."""
    found = []
    for product, total, state in _formats(layer.bits):
        multiply, add, own = (FIGURES[name].low for name in (f"{product} multiply", f"{total} add", f"{state} add"))
        spent = layer.multiply_accumulates * (multiply + add)
        if synapses:
            spent += layer.accumulates * add
        if synapses or layer.kind == "encoder":
            spent += layer.neuron_accumulates * own
            spent += layer.neuron_multiply_accumulates * (FIGURES[f"{state} multiply"].low + own)
        found.append(spent)
    return found[0], found[1]


def _on_chip(name: str, layers: Sequence[LayerCosts]) -> Energy:
    """Return the energy on a neuromorphic chip, with what a host has to do: encoders, and all multiply-accumulates."""
    synapse, neuron = FIGURES[f"{name} synapse"], FIGURES.get(f"{name} neuron")
    low = high = 0.0
    for layer in layers:
        updates = 0.0 if layer.kind == "encoder" or neuron is None else layer.updates
        host = _arithmetic(layer, synapses=False)
        each = (neuron.low, neuron.high) if neuron is not None else (0.0, 0.0)
        low += layer.accumulates * synapse.low + updates * each[0] + host[0]
        high += layer.accumulates * synapse.high + updates * each[1] + host[1]
    return Energy(name, PICO * low, PICO * high, memory=True)


def energies(layers: Sequence[LayerCosts]) -> list[Energy]:
    """Return the energy of one forecast or sample, on several kinds of hardware.

    Operations alone; with every access to on-chip memory, in the smallest one that holds parameters and state, or in the
    largest; with every access to external memory. Neuromorphic chips are named where they have such neurons: all spiking layers
    are LIF or CubaLIF.
    """
    spent = [_arithmetic(layer) for layer in layers]
    low, high = (PICO * sum(side) for side in zip(*spent, strict=True))
    traffic, size = sum(layer.traffic for layer in layers), sum(layer.footprint for layer in layers)
    fits = next((name for name, room in MEMORIES.items() if size <= room), "SRAM 1 MB")
    least, most = (PICO * traffic * FIGURES[name].low / 8 for name in (fits, "SRAM 1 MB"))
    nearest, farthest = (PICO * traffic * figure / 8 for figure in (FIGURES["DRAM"].low, FIGURES["DRAM"].high))
    found = [
        Energy("45 nm, operations alone", low, high, memory=False),
        Energy("45 nm, with on-chip memory", low + least, high + most, memory=True),
        Energy("45 nm, with external memory", low + nearest, high + farthest, memory=True),
    ]
    spiking = [layer for layer in layers if layer.kind == "spiking"]
    if spiking and all(layer.chip_neurons for layer in spiking):
        found += [_on_chip(name, layers) for name in CHIPS]
    return found
