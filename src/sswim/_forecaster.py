"""From a forecaster's options to its network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sswim._checks import check_fraction, check_integer, parse_memory, parse_seconds
from sswim._estimator import DTYPES, TRAININGS
from sswim.network import SpikingNetwork
from sswim.training import check_gradient

if TYPE_CHECKING:
    from sswim.estimators import Forecaster

__all__ = ["build_network", "check_options"]

CHOICES = {
    "channels": ("joint", "shared"),
    "readout": ("trajectory", "direct"),
    "train": TRAININGS,
    "scaling": ("auto", "channel", "standard", "adaptive", "window", "none"),
}
# How many weighted means over all channels are taken of every feature.
FACTORS = 5


def check_options(model: Forecaster) -> None:
    """Check what `sample` and `SpikingNetwork` do not."""
    check_integer("window", model.window, 1)
    check_integer("horizon", model.horizon, 1)
    check_integer("stride", model.stride, 1)
    check_fraction("validation", model.validation)
    parse_memory(model.memory)
    for name, choices in CHOICES.items():
        if getattr(model, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(model, name)!r}.")
    if model.readout == "direct" and model.stride != 1:
        raise ValueError(f"stride must be 1 with readout='direct', which runs along all rows once, got {model.stride!r}.")
    check_integer("corrections", model.corrections, 0)
    check_integer("common", model.common, 0)
    if check_integer("blocks", model.blocks, 1) > 1 and model.readout != "direct":
        raise ValueError(f"blocks must be 1 unless readout='direct', got {model.blocks!r}.")
    if model.tune is not None:
        parse_seconds("tune", model.tune)
        if model.train != "sample":
            raise ValueError("tune chooses among sampled networks: leave train='sample', or tune away.")
    check_gradient(model.gradient, model.train)
    if model.dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float32' or 'float64', got {model.dtype!r}.")


def build_network(model: Forecaster) -> SpikingNetwork:
    """Return a network of a forecaster's shape, its parameters still to be set."""
    encoder = model._encoder
    channels, shared = len(encoder.channels), model.channels == "shared"
    # Every channel has sums of its own over the features that correct it, and these must fit into memory twice.
    most = int((parse_memory(model.memory) / (64 * channels)) ** 0.5)
    rank = min(model._option("corrections"), most // 2)
    common = min(model._option("common"), most - rank) if channels > 1 else 0
    corrected = shared and model.readout == "direct" and rank + common > 0 and model.train != "gradient"
    return SpikingNetwork(
        inputs=encoder.inputs,
        outputs=1 if shared else channels,
        output=model.readout,
        traces=model.traces,
        skip=model._option("skip"),
        groups=channels if corrected else 0,
        rank=rank if corrected else 0,
        factors=min(FACTORS, channels) if corrected and common else 0,
        common=common if corrected else 0,
        window=model.window,
        horizon=model.horizon,
        hidden=model._option("hidden"),
        kernel=model.kernel,
        deeper_kernel=model.deeper_kernel,
        output_kernel=model.output_kernel,
        dtype=DTYPES[model.dtype],
    ).to(model.device)
