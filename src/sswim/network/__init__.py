"""Networks of spike response neurons: kernels, layers, simulation, and gradients through them."""

from sswim.network.convolution import ConvolutionLayer
from sswim.network.grid import Convolution
from sswim.network.kernels import (
    KERNELS,
    REFRACTORY_KERNELS,
    Alpha,
    Exponential,
    FunctionKernel,
    Hat,
    Kernel,
    Morlet,
    Refractory,
)
from sswim.network.layer import SpikingLayer
from sswim.network.network import Activity, SpikingNetwork
from sswim.network.output import Readout, VoltageReadout
from sswim.network.population import Population
from sswim.network.stream import Stream
from sswim.network.surrogates import SURROGATES, Arctan, FastSigmoid, SlayerExponential, Surrogate, Triangular

__all__ = [
    "KERNELS",
    "REFRACTORY_KERNELS",
    "SURROGATES",
    "Activity",
    "Alpha",
    "Arctan",
    "Convolution",
    "ConvolutionLayer",
    "Exponential",
    "FastSigmoid",
    "FunctionKernel",
    "Hat",
    "Kernel",
    "Morlet",
    "Population",
    "Readout",
    "Refractory",
    "SlayerExponential",
    "SpikingLayer",
    "SpikingNetwork",
    "Stream",
    "Surrogate",
    "Triangular",
    "VoltageReadout",
]
