"""Spiking neural networks trained without gradients and without epochs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sswim._version import __version__

if TYPE_CHECKING:
    from sswim.adapters import sample_into
    from sswim.classifier import Classifier
    from sswim.data.scaling import Scaling
    from sswim.forecaster import Forecaster
    from sswim.gradient import FromScratch, Gradient, finetune, initialize
    from sswim.network.grid import Convolution
    from sswim.network.network import SpikingNetwork
    from sswim.readout import Counts, Direct, Spikes, Traces, Trajectory, Voltage
    from sswim.regression import FixedLambda, LambdaSearch
    from sswim.sampling import Steps, sample
    from sswim.spiking import sample_spikes

__all__ = [
    "Classifier",
    "Convolution",
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
    "Traces",
    "Trajectory",
    "Voltage",
    "__version__",
    "finetune",
    "initialize",
    "sample",
    "sample_into",
    "sample_spikes",
]

# Where public names live. They are imported when they are first asked for: torch alone takes seconds.
_HOMES = {
    **dict.fromkeys(("Counts", "Direct", "Spikes", "Traces", "Trajectory", "Voltage"), "sswim.readout"),
    **dict.fromkeys(("FromScratch", "Gradient", "finetune", "initialize"), "sswim.gradient"),
    **dict.fromkeys(("FixedLambda", "LambdaSearch"), "sswim.regression"),
    **dict.fromkeys(("Steps", "sample"), "sswim.sampling"),
    "Classifier": "sswim.classifier",
    "Convolution": "sswim.network.grid",
    "Forecaster": "sswim.forecaster",
    "Scaling": "sswim.data.scaling",
    "SpikingNetwork": "sswim.network.network",
    "sample_into": "sswim.adapters",
    "sample_spikes": "sswim.spiking",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(_HOMES[name]), name)
    elif not name.startswith("_") and find_spec(f"sswim.{name}") is not None:
        value = import_module(f"sswim.{name}")
    else:
        raise AttributeError(f"module 'sswim' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
