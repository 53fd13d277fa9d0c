"""What classifiers take: intensities, signals in time, or events, checked against what was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_array
from torch import Tensor

from sswim.data.events import EventStreams, ExactEvents, is_events
from sswim.data.labelled import StoredSamples
from sswim.data.rows import RUN, RowSource, check_values
from sswim.data.series import is_stored
from sswim.data.spikes import ENCODERS, SpikeEncoder
from sswim.data.stored import open_array
from sswim.data.windows import MOST, batches
from sswim.options import resolve, warn

__all__ = ["InputEncoder", "Values", "check_encoder"]

Values = Tensor | EventStreams | StoredSamples
# The largest intensity: differences must not overflow.
INTENSITY = 1e150
# Deviations that the mean of a signal may be away from 0 without a warning.
OFFSET = 2.0


@dataclass(frozen=True)
class InputEncoder:
    """How samples become a network's inputs.

    Attributes
    ----------
    encoder : SpikeEncoder, ExactEvents or None
        Turns intensities into spikes, or takes events; None for signals (samples, steps, channels).
    shape : tuple of int
        Of a sample; of events, steps and channels.
    layout : tuple of int
        How channels are laid out, such as height and width of an image.
    scale : tuple of float or None
        Least and largest intensity of the training samples, which are brought to 0 and 1.
    pixels : tuple of int or None
        Numbers of polarities, rows and columns of an event camera.
    names : tuple of str
        Names of the columns of a DataFrame, if these are text. Else none.
    """

    encoder: SpikeEncoder | ExactEvents | None
    shape: tuple[int, ...]
    layout: tuple[int, ...]
    scale: tuple[float, float] | None
    pixels: tuple[int, ...] | None = None
    names: tuple[str, ...] = field(default=(), metadata={"later": True})

    @classmethod
    def fit(cls, X: object, encoder: str | SpikeEncoder | ExactEvents | None) -> tuple[Self, Values]:
        """Return how samples are encoded, and the samples, checked."""
        if isinstance(encoder, ExactEvents) or (encoder == "auto" and is_events(X)):
            events = encoder if isinstance(encoder, ExactEvents) else ExactEvents()
            streams = events.encode(X)  # type: ignore[arg-type]
            if streams.silent:
                raise ValueError(
                    f"X: no sample has an event within the {streams.window} steps, but some must, to tell classes apart. "
                    "Check the times, and scale and steps of ExactEvents."
                )
            return cls(events, (streams.window, streams.inputs), streams.layout, None, streams.pixels), streams
        if is_events(X):
            raise ValueError(f"encoder must be 'auto' or an ExactEvents object where X holds events, got {encoder!r}.")
        array = _array(X)
        if encoder == "auto" and len(array.shape) > 4:
            raise ValueError(
                f"X: an array {array.shape} may be frames in time or images, and 'auto' cannot tell. Pass frames as (samples, "
                "steps, channels), with X.reshape(*X.shape[:2], -1), and images with encoder='image'."
            )
        chosen = (None if len(array.shape) == 3 else "image") if encoder == "auto" else encoder
        if chosen is None and len(array.shape) != 3:
            raise ValueError(f"encoder=None needs X of shape (samples, steps, channels), got {array.shape}.")
        scale = array.range(INTENSITY if chosen is not None else MOST)
        found = None if chosen is None else resolve("encoder", chosen, ENCODERS, "encode")
        if found is not None and scale[0] == scale[1]:
            raise ValueError(f"X: all intensities are the same, {scale[0]:g}, but must differ to tell classes apart.")
        if found is None and scale[0] == scale[1]:
            raise ValueError(f"X: all values are the same, {scale[0]:g}, but must differ to tell classes apart.")
        if found is None:
            array.warn_of_offsets()
        fitted = cls(found, array.shape[1:], array.shape[1:], None if found is None else scale)
        return replace(fitted, names=_names(X)), array.values(flat=found is not None)

    @property
    def channels(self) -> int:
        """Number of inputs of the network."""
        return self.shape[-1] if self.encoder is None or isinstance(self.encoder, ExactEvents) else int(np.prod(self.shape))

    @property
    def features(self) -> int:
        """Number of numbers in a sample, or of channels of events."""
        return self.channels if isinstance(self.encoder, ExactEvents) else int(np.prod(self.shape))

    @property
    def steps(self) -> int:
        """Number of steps of the network."""
        return self.shape[0] if self.encoder is None or isinstance(self.encoder, ExactEvents) else self.encoder.steps

    @property
    def spikes(self) -> SpikeEncoder | None:
        """The encoder of intensities, if there is one."""
        return None if isinstance(self.encoder, ExactEvents) else self.encoder

    def __call__(self, X: object, model: str) -> Values:
        """Return samples, checked against those of the fit; `model` is named in errors."""
        if isinstance(self.encoder, ExactEvents):
            if isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.dtype != object):
                raise ValueError("X must hold events, pairs (times, channels) or structured arrays, as in fit.")
            window, inputs = self.shape
            streams = self.encoder.encode(X, window, inputs, self.pixels)  # type: ignore[arg-type]
            if streams.pixels is not None and self.pixels is None:
                raise ValueError("X: holds events of a camera (x, y, p), but the model was fitted to pairs (times, channels).")
            return streams
        if is_events(X):
            raise ValueError(f"X: samples must have the shape {self.shape} as in fit, got events.")
        array, names = _array(X), _names(X)
        if names and self.names and names != self.names and array.shape[1:] == self.shape:
            came, was = next((a, b) for a, b in zip(names, self.names, strict=True) if a != b)
            raise ValueError(
                f"X: columns must be the same, in the same order, as in fit, but {came!r} came where {was!r} was. Pass "
                "X[model.feature_names_in_]."
            )
        if array.shape[1:] != self.shape:
            if len(array.shape) == 2 and len(self.shape) == 1:
                raise ValueError(
                    f"X has {array.shape[1]} features, but {model} is expecting {self.shape[0]} features as input: pass "
                    "samples of the same shape as to fit."
                )
            raise ValueError(f"X: samples must have the shape {self.shape} as in fit, got {array.shape[1:]}.")
        low, high = array.range(MOST if self.scale is None else INTENSITY)
        if self.scale is not None and (low < self.scale[0] or high > self.scale[1]):
            warn(
                f"X: intensities from {low:g} to {high:g} leave the range of the training samples, {self.scale[0]:g} to "
                f"{self.scale[1]:g}, and are brought back to it. Scale them as these were.",
                stacklevel=4,
            )
        return array.values(flat=self.scale is not None)


def check_encoder(name: str, encoder: object) -> object:
    """Return `encoder` if it is the name of an encoder, an encoder, or None."""
    if encoder is None or encoder == "auto" or isinstance(encoder, ExactEvents):
        return encoder
    return resolve(name, encoder, {"auto": None, **ENCODERS}, "encode")


@dataclass(frozen=True)
class _Array:
    """Samples in memory."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def range(self, most: float) -> tuple[float, float]:
        """Return the least and the largest number; refuse those that would overflow."""
        if not self.array.size:
            return np.inf, -np.inf
        low, high = float(self.array.min()), float(self.array.max())
        if max(-low, high) > most:
            raise ValueError(f"X must lie between -{most:g} and {most:g}, got {max(-low, high):g}: scale it.")
        return low, high

    def warn_of_offsets(self) -> None:
        """Warn of signals (samples, steps, channels) whose mean outweighs what moves; trains of spikes have no such mean."""
        few = self.array[:1000]
        mean, deviation = few.mean(axis=(0, 1), dtype=np.float64), few.std(axis=(0, 1), dtype=np.float64)
        far = np.abs(mean) - OFFSET * deviation
        if far.max() > 0 and (few != np.round(few)).any():
            channel = int(far.argmax())
            warn(
                f"X: channel {channel} has a mean of {mean[channel]:.3g} and a deviation of {deviation[channel]:.3g}. Neurons "
                "see signals as they are, and such an offset hides what moves. Subtract the mean of each channel first.",
                stacklevel=5,
            )

    def values(self, *, flat: bool) -> Tensor:
        """Return a tensor, without a copy if the array can be written to; `flat` with the numbers of a sample side by side."""
        tensor = torch.from_numpy(np.array(self.array, order="C", copy=None if self.array.flags.writeable else True))
        return tensor.flatten(1) if flat else tensor


@dataclass(frozen=True)
class _Stored:
    """Samples outside of memory."""

    source: RowSource

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape[0], *self.source.row_shape

    def range(self, most: float) -> tuple[float, float]:
        """Return the least and the largest number; refuse those that are not finite or would overflow."""
        low, high, (count, each) = np.inf, -np.inf, self.source.shape
        for part in batches(count, max(1, RUN // each)):
            values = self.source.read(part.start, part.stop)
            check_values(values, part.start, None, "X", most)
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        return low, high

    def warn_of_offsets(self) -> None:
        """Do nothing: that would take one more pass over the samples."""

    def values(self, *, flat: bool) -> StoredSamples:
        """Return samples that batches are read from; `flat` with the numbers of a sample side by side."""
        return StoredSamples(self.source, self.source.shape[1:] if flat else self.source.row_shape)


def _array(X: object) -> _Array | _Stored:
    """Return samples as finite numbers, none of them empty."""
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # some sparse matrices are dictionaries too
        raise TypeError(f"X must be an array, a table, or a list of events, got a {type(X).__name__}.")
    source = open_array(X, "X") if is_stored(X) else None
    if source is not None:
        if not source.row_shape or not source.shape[1]:
            shape = (source.shape[0], *source.row_shape)
            raise ValueError(f"X must have the shape (samples, channels), or more dimensions, got {shape}.")
        return _Stored(source)
    if np.ma.is_masked(X):
        raise ValueError("X: some values are masked. Fill them first, as by X.filled(0).")
    try:
        array = check_array(X.detach().cpu().numpy() if isinstance(X, Tensor) else X, allow_nd=True, input_name="X")
    except (TypeError, ValueError) as error:
        uneven = "inhomogeneous" in str(error)
        text = "samples must all have the same shape, or be events (times, channels)." if uneven else str(error)
        raise type(error)(f"X: {text}") from None
    if not array[:1].size:
        raise ValueError(f"X: samples must hold at least one number, got 0 feature(s) (shape={array.shape}).")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"X: values must be numbers, got {array.dtype}.")
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    return _Array(array.astype(np.float64 if wide else array.dtype.newbyteorder("="), copy=False))


def _names(X: object) -> tuple[str, ...]:
    """Return the names of a DataFrame's columns, if all are text."""
    columns = list(X.columns) if isinstance(X, pd.DataFrame) else []
    return tuple(columns) if all(isinstance(name, str) for name in columns) else ()
