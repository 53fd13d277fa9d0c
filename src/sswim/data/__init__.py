"""Data on its way into a network: series, samples, windows, scaling, and encoders of spikes and events."""

from sswim.data.cochlea import Cochlea
from sswim.data.encoder import SCALINGS, Scaling
from sswim.data.events import EventStreams, ExactEvents, as_events
from sswim.data.spikes import ENCODERS, Latency, Poisson, Rate, SpikeEncoder
from sswim.data.windows import Samples, Subset, TensorSamples, Windows
from sswim.network.events import EventBatch

__all__ = [
    "ENCODERS",
    "SCALINGS",
    "Cochlea",
    "EventBatch",
    "EventStreams",
    "ExactEvents",
    "Latency",
    "Poisson",
    "Rate",
    "Samples",
    "Scaling",
    "SpikeEncoder",
    "Subset",
    "TensorSamples",
    "Windows",
    "as_events",
]
