"""Spike trains as targets: output layers that spike like given trains."""

from sswim.spiking.targets import SpikeReport, sample_spikes

__all__ = ["SpikeReport", "sample_spikes"]
