"""Data on its way into a network: series, samples, windows, scaling, and encoders of spikes and events."""

from sswim.data.augment import Augmentation, Mirror, Shifts, Stretch
from sswim.data.cochlea import Cochlea
from sswim.data.events import EventStreams, ExactEvents, StoredEvents, as_events
from sswim.data.rows import RowSource
from sswim.data.scaling import SCALINGS, Scaling
from sswim.data.spikes import ENCODERS, Current, Latency, Poisson, Rate, SpikeEncoder
from sswim.data.stored import open_rows
from sswim.data.tensors import TensorSamples, Windows
from sswim.data.windows import Samples, Subset
from sswim.network.events import EventBatch

__all__ = [
    "ENCODERS",
    "SCALINGS",
    "Augmentation",
    "Cochlea",
    "EventBatch",
    "EventStreams",
    "ExactEvents",
    "Current",
    "Latency",
    "Mirror",
    "Poisson",
    "Rate",
    "RowSource",
    "Samples",
    "Scaling",
    "Shifts",
    "SpikeEncoder",
    "StoredEvents",
    "Stretch",
    "Subset",
    "TensorSamples",
    "Windows",
    "as_events",
    "open_rows",
]
