"""Spiking neural networks trained without gradients, in one pass over the data."""

from sswim.network import SpikingNetwork
from sswim.sampling import sample

__all__ = ["SpikingNetwork", "sample"]
__version__ = "0.1.0"
