"""Spiking neural networks trained without gradients and without epochs."""

from sswim._version import __version__
from sswim.classifier import Classifier
from sswim.estimators import Forecaster
from sswim.finetuning import finetune
from sswim.initialization import initialize
from sswim.network import SpikingNetwork
from sswim.sampling import sample
from sswim.spike_targets import sample_spikes

__all__ = ["Classifier", "Forecaster", "SpikingNetwork", "__version__", "finetune", "initialize", "sample", "sample_spikes"]
