"""Which hidden layers, neurons and encoder suit the inputs of a classifier, as far as its options leave that open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sswim.data.augment import Change, Scene, check_augment, combine
from sswim.data.events import ExactEvents, is_events
from sswim.data.inputs import InputEncoder
from sswim.data.spikes import Current, SpikeEncoder
from sswim.network.grid import Convolution, Grid, check_hidden, hidden_shapes, split_layout, widths_of
from sswim.network.network import KernelName
from sswim.profiles import Neurons
from sswim.readout.base import ClassReadoutOptions
from sswim.readout.counts import Counts
from sswim.sampling import ResolvedSteps
from sswim.steps.fields import ReceptiveFields
from sswim.steps.leaky import IntegrateScale, LeakyTimes
from sswim.steps.residual import PlainDepth
from sswim.steps.weights import RandomWeights

__all__ = [
    "AUTO",
    "Fields",
    "Hidden",
    "changes_of",
    "channel_layout",
    "check_fields",
    "check_layers",
    "event_encoder",
    "suited",
]

Fields = str | Sequence[int] | None
Layers = Sequence[int | Convolution]
EncoderName = str | SpikeEncoder | ExactEvents | None
# Places of a region from which on the roots of its counts are read. Counts of fewer places do not vary much.
LARGE = 16
# What images get, and everything else; and the shortest side of an image.
AUTO, DENSE, SHORTEST = (Convolution(150),), (1000,), 5


@dataclass(frozen=True)
class Hidden:
    """The hidden layers of a classifier.

    Attributes
    ----------
    layers : sequence of int or Convolution
    layout : tuple of int or None
        How the channels that enter them are laid out; None for a row.
    inputs : InputEncoder
    steps : ResolvedSteps
    neurons : Neurons
    roots : bool
        Whether an output that leaves this open reads roots of counts.
    """

    layers: Layers
    layout: tuple[int, ...] | None
    inputs: InputEncoder
    steps: ResolvedSteps
    neurons: Neurons
    roots: bool = False

    def readout(self, readout: ClassReadoutOptions) -> ClassReadoutOptions:
        """Return the output, with what suits the layers where its options leave that open."""
        return readout.replace(roots=self.roots) if isinstance(readout, Counts) and readout.roots == "auto" else readout

    @property
    def shapes(self) -> list[int | Grid]:
        """Widths, and grids of convolutions."""
        return hidden_shapes(self.inputs.channels, self.layers, self.layout)

    @property
    def widths(self) -> list[int]:
        """How many spike trains each layer puts out."""
        return widths_of(self.shapes)


def check_layers(name: str, value: object) -> Layers | None:
    """Return one width or `Convolution` per hidden layer, or None for ``"auto"``."""
    return None if isinstance(value, str) and value == "auto" else check_hidden(name, value)


def check_fields(fields: Fields) -> None:
    """Refuse a layout of channels that is none."""
    if fields is None or fields == "auto":
        return
    layout = [] if isinstance(fields, str) or not isinstance(fields, Iterable) else list(fields)
    if not layout or not all(isinstance(n, (int, np.integer)) and n >= 1 for n in layout):
        raise ValueError(f"fields must be 'auto', None or a layout of channels such as (28, 28), got {fields!r}.")


def event_encoder(X: object, encoder: EncoderName, layers: object) -> EncoderName:
    """Return the encoder to be used: a convolution takes events on whole steps."""
    found = check_layers("hidden", layers)
    convolved = found is not None and any(isinstance(layer, Convolution) for layer in found)
    if convolved and isinstance(encoder, ExactEvents) and encoder.exact:
        raise ValueError("hidden: a Convolution needs events on whole steps: pass encoder=ExactEvents(exact=False, ...).")
    return ExactEvents(exact=False) if convolved and encoder == "auto" and is_events(X) else encoder


def channel_layout(inputs: InputEncoder, fields: Fields) -> tuple[int, ...] | None:
    """Return how channels are laid out, None if that is not known: as `fields` says, or as images and cameras have them."""
    if fields is not None and fields != "auto":
        shape = tuple(int(n) for n in fields)
        if math.prod(shape) != inputs.channels:
            raise ValueError(f"fields: a layout of {shape} has {math.prod(shape)} channels, but X has {inputs.channels}.")
        return shape
    return None if inputs.encoder is None or len(inputs.layout) < 2 else inputs.layout


def changes_of(augment: object, inputs: InputEncoder, fields: Fields) -> tuple[Change, ...]:
    """Return what copies of training samples are changed by, the original first."""
    layout, timed = channel_layout(inputs, fields), inputs.spikes is None
    if layout is None and timed:
        layout = (inputs.channels,)  # neighbours in a row, as those of a cochlea
    return combine(check_augment("augment", augment), Scene(layout, timed))


def suited(
    layers: Layers | str,
    encoder: EncoderName,
    kernel: KernelName | Sequence[KernelName],
    fields: Fields,
    inputs: InputEncoder,
    steps: ResolvedSteps,
    neurons: Neurons,
) -> Hidden:
    """Return the hidden layers for some inputs, with what suits them wherever options say ``"auto"``."""
    layout = channel_layout(inputs, fields)
    found = check_layers("hidden", layers)
    if found is None:
        found = AUTO if layout is not None and inputs.spikes is not None and _roomy(layout) and fields is not None else DENSE
    if isinstance(steps.weights, RandomWeights):
        steps = replace(steps, depth=PlainDepth())  # residuals do not matter to random weights
    if not isinstance(found[0], Convolution):
        if layout is not None and fields is not None:
            steps = replace(steps, weights=ReceptiveFields(layout, steps.weights))
        return Hidden(found, layout, inputs, steps, neurons)
    if inputs.spikes is not None and isinstance(encoder, str) and encoder in ("auto", "image"):
        inputs = replace(inputs, encoder=Current())
    if kernel == "auto" and neurons.profile is None and isinstance(inputs.encoder, Current):
        neurons = replace(neurons, kernel=["exponential"], refractory="exponential")
        steps = replace(steps, temporal=LeakyTimes(low=math.inf), normalizer=IntegrateScale())
    hidden = Hidden(found, layout, inputs, steps, neurons)
    first = hidden.shapes[0]
    large = isinstance(first, Grid) and first.smallest >= LARGE
    return replace(hidden, roots=large and neurons.profile is None and inputs.spikes is not None)


def _roomy(layout: Sequence[int]) -> bool:
    """Return whether channels are laid out as an image that is large enough for patches."""
    return len(layout) < 4 and min(layout[-2:]) > 1 and min(split_layout(layout)[1]) >= SHORTEST
