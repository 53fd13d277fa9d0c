"""Spiking neural networks trained without gradients and without epochs."""

from sswim._version import __version__
from sswim.classifier import Classifier
from sswim.data.encoder import Scaling
from sswim.forecaster import Forecaster
from sswim.gradient import FromScratch, Gradient, finetune, initialize
from sswim.network.network import SpikingNetwork
from sswim.readout import Counts, Direct, Spikes, Trajectory, Voltage
from sswim.regression import FixedLambda, LambdaSearch
from sswim.sampling import Steps, sample
from sswim.spiking import sample_spikes

__all__ = [
    "Classifier",
    "Counts",
    "Direct",
    "FixedLambda",
    "Forecaster",
    "FromScratch",
    "Gradient",
    "LambdaSearch",
    "Scaling",
    "SpikingNetwork",
    "Spikes",
    "Steps",
    "Trajectory",
    "Voltage",
    "__version__",
    "finetune",
    "initialize",
    "sample",
    "sample_spikes",
]
