"""What the hidden neurons of a fitted model do on data as `fit` takes it, with labels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sswim.classes import ClassModel
from sswim.data.series import Breaks, SeriesLike
from sswim.data.windows import Samples, SeriesWindows, batches
from sswim.forecasts import ForecastModel
from sswim.network.network import SpikingNetwork

__all__ = ["Recording", "record_samples", "record_windows"]


@dataclass(frozen=True)
class Recording:
    """Spikes of the hidden layers, and membrane potentials if asked for.

    Attributes
    ----------
    spikes : list of bool arrays, one per hidden layer
        The axes are those of `axes`: (samples, steps, neurons) of a classifier. Of a forecaster: (windows, steps, neurons) if
        all channels enter one network, and (windows, channels, steps, neurons) if channels share it.
    potentials : list of arrays, or None
        With refractory part. A neuron fires where its potential is at least 1.
    axes : tuple of str
        What the axes are, such as ``("window", "channel", "step", "neuron")``.
    labels : dict
        The labels along each axis. Of windows, those of their last rows; neurons and steps are numbered, and have none.
    """

    spikes: list[np.ndarray]
    potentials: list[np.ndarray] | None
    axes: tuple[str, ...]
    labels: dict[str, pd.Index]

    def events(self, layer: int = 0) -> pd.DataFrame:
        """Return the spikes of one hidden layer as a table, one row each, with a column for each axis."""
        places = dict(zip(self.axes, np.nonzero(self.spikes[layer]), strict=True))
        return pd.DataFrame({axis: self.labels[axis][at] if axis in self.labels else at for axis, at in places.items()})

    def sorted_by(self, order: np.ndarray) -> Recording:
        """Return the same with channels in another order."""
        potentials = None if self.potentials is None else [v[:, order] for v in self.potentials]
        labels = self.labels | {"channel": self.labels["channel"][order]}
        return Recording([v[:, order] for v in self.spikes], potentials, self.axes, labels)


def record_windows(model: ForecastModel, X: SeriesLike, breaks: Breaks = None, *, potentials: bool = False) -> Recording:
    """Return what the hidden neurons do in every window of a series."""
    series, encoder = model.series(X, breaks), model.encoder
    long = [n for n, segment in enumerate(series.segments) if len(segment) >= model.window]
    if not long:
        raise ValueError(f"series: a window takes {model.window} rows without a gap, the longest segment has fewer.")
    ends: list[Hashable] = []
    first = np.cumsum([0, *map(len, series.segments)])
    for n in long:
        index = series.labels(n)
        labels = pd.RangeIndex(first[n], first[n + 1]) if index is None else index
        ends += list(labels[model.window - 1 :])
    encoded = encoder.segments([series.segments[n] for n in long], model.memory)
    samples = SeriesWindows(encoder, encoded, model.window, 0)
    names = encoder.moving if model.columns is None else [model.columns[c] for c in encoder.moving]
    labels_of = {"window": pd.Index(ends), "channel": pd.Index(names)}
    axes = ("window", "channel", "step", "neuron") if encoder.shared else ("window", "step", "neuron")
    what = f"{len(ends)} windows" + f" of {len(names)} channels" * encoder.shared
    found = _record(model.network, samples, model.memory, axes, labels_of, what, "rows", potentials=potentials)
    return found.sorted_by(np.argsort(encoder.moving)) if encoder.shared else found


def record_samples(model: ClassModel, X: object, *, potentials: bool = False) -> Recording:
    """Return what the hidden neurons do in every sample."""
    samples = model.samples(X)
    labels = {"sample": pd.Index(range(len(samples)))}
    axes, what = ("sample", "step", "neuron"), f"{len(samples)} samples"
    return _record(model.network, samples, model.memory, axes, labels, what, "samples", potentials=potentials)


def _record(
    network: SpikingNetwork,
    samples: Samples,
    memory: int,
    axes: tuple[str, ...],
    labels: dict[str, pd.Index],
    what: str,
    fewer: str,
    *,
    potentials: bool,
) -> Recording:
    """Simulate batch by batch, if the result fits into memory."""
    like = network.readout.weights
    each = network.steps * sum(network.hidden) * ((4 if network.convolutions else 1) + like.element_size() * potentials)
    if each * len(samples) > memory:
        raise ValueError(
            f"X: the activity of {what} takes {each * len(samples) / 1e9:.3g} GB, but memory is {memory / 1e9:.3g} GB. Pass "
            f"fewer {fewer}, or fit with a larger memory."
        )
    shape = [len(labels[axis]) for axis in axes if axis in labels]

    def empty(kind: type | np.dtype) -> list[np.ndarray]:
        return [np.empty((len(samples), network.steps, neurons), dtype=kind) for neurons in network.hidden]

    spikes = empty(np.int32 if network.convolutions else bool)  # pooled spikes are sums
    voltages = empty(np.float64 if like.element_size() == 8 else np.float32) if potentials else None
    filters = network.hidden_filters()
    size = max(samples.together, network.batch_size(memory) // samples.together * samples.together)
    for part in batches(len(samples), size, even=False):
        x = samples.inputs(part)
        found = network.hidden_potentials(x, filters) if potentials else network.hidden_spikes(x, filters)
        for layer, values in enumerate(found):
            seen = values.permute(2, 1, 0).cpu().numpy()
            spikes[layer][part] = seen if network.convolutions else seen >= 1
            if voltages is not None:
                voltages[layer][part] = seen

    def shaped(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [v.reshape(*shape, *v.shape[1:]) for v in values]

    kept = {axis: index for axis, index in labels.items() if axis in axes}
    return Recording(shaped(spikes), None if voltages is None else shaped(voltages), axes, kept)
