"""Readouts: how hidden spikes become forecasts or classes, and how their weights are found."""

import math

from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.readout.base import ReadoutOptions
from sswim.readout.counts import Counts
from sswim.readout.decaying import TraceReadout
from sswim.readout.direct import Direct
from sswim.readout.fading import Traces
from sswim.readout.lags import LagReadout
from sswim.readout.traces import ASSEMBLIES, Assembly
from sswim.readout.trajectory import Trajectory
from sswim.readout.voltage import Spikes, Voltage
from sswim.steps.delays import CorrelationDelays

__all__ = [
    "ASSEMBLIES",
    "Assembly",
    "Counts",
    "Direct",
    "LagReadout",
    "ReadoutOptions",
    "Spikes",
    "TraceReadout",
    "Traces",
    "Trajectory",
    "Voltage",
    "default_readout",
]


def default_readout(network: SpikingNetwork) -> ReadoutOptions:
    """Return the settings by which `sample` solves for a network's output, if none are given: of a voltage the paper's."""
    if isinstance(network.readout, VoltageReadout):
        return Trajectory(delays=CorrelationDelays(work=math.inf), regularization="paper", assembly="exact")
    readout = network.readout
    assert isinstance(readout, TraceReadout)
    return Counts(traces=network.readout.constants, loss="squared_error", roots=readout.roots)
