"""What classifiers take: intensities, signals in time, or events, checked against what was fitted."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array
from torch import Tensor

from sswim._checks import resolve
from sswim._estimator import Estimator
from sswim.encoders import ENCODERS
from sswim.events import EventStreams, ExactEvents, is_events

__all__ = ["SampleEstimator"]


class SampleEstimator(Estimator):
    """An estimator that takes samples: images through an encoder, signals as they are, or events."""

    encoder: Any
    encoder_: Any
    train: str
    shape_: Any

    def _values(self, X: Any, *, fitting: bool = False) -> Any:
        """Check inputs: intensities (samples, channels), signals (samples, steps, channels), or `EventStreams`."""
        if isinstance(self.encoder, ExactEvents) or (isinstance(self.encoder, str) and self.encoder == "auto" and is_events(X)):
            return self._events(X, fitting=fitting)
        if not fitting and isinstance(self.encoder_, ExactEvents):
            raise ValueError("X must hold events, pairs (times, channels) or structured arrays, as in fit.")
        array = check_array(X.detach().cpu().numpy() if isinstance(X, Tensor) else X, allow_nd=True, input_name="X")
        if fitting:
            self.n_features_in_ = array.shape[1] if array.ndim == 2 else int(np.prod(array.shape[1:]))
            self.shape_ = self._layout = array.shape[1:]
            chosen = self.encoder
            if isinstance(chosen, str) and chosen == "auto":
                chosen = None if array.ndim == 3 else "image"
            self.encoder_ = None if chosen is None else resolve("encoder", chosen, ENCODERS, "encode")
            if self.encoder_ is None and array.ndim != 3:
                raise ValueError(f"encoder=None needs X of shape (samples, steps, channels), got {array.shape}.")
        elif array.shape[1:] != self.shape_:
            if array.ndim == 2 and len(self.shape_) == 1:
                raise ValueError(
                    f"X has {array.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                    "as input: pass samples of the same shape as to fit."
                )
            raise ValueError(f"X: samples must have the shape {self.shape_} as in fit, got {array.shape[1:]}.")
        values = torch.from_numpy(np.array(array, order="C", copy=None if array.flags.writeable else True))
        if self.encoder_ is None:
            return values
        low, high = float(values.min()), float(values.max())
        if fitting:
            self.range_ = (low, high)
            if low == high:
                raise ValueError(f"X: all intensities are the same, {low:g}: there is nothing to tell classes apart by.")
        elif low < self.range_[0] or high > self.range_[1]:
            warnings.warn(
                f"X: intensities from {low:g} to {high:g} leave the range of the training samples, {self.range_[0]:g} to "
                f"{self.range_[1]:g}, and are brought back to it. Scale them as these were.",
                stacklevel=3,
            )
        return values.flatten(1)

    def _events(self, X: Any, *, fitting: bool) -> EventStreams:
        if fitting:
            self.encoder_ = self.encoder if isinstance(self.encoder, ExactEvents) else ExactEvents()
            if self.train != "sample" and self.encoder_.exact:
                raise ValueError("train: gradients need events on whole steps: pass encoder=ExactEvents(exact=False, ...).")
            streams = self.encoder_.encode(X)
            self.shape_, self.n_features_in_ = (streams.window, streams.inputs), streams.inputs
            self._layout = streams.layout
            return streams
        if not isinstance(self.encoder_, ExactEvents):
            raise ValueError(f"X: samples must have the shape {self.shape_} as in fit, got events.")
        return self.encoder_.encode(X, *self.shape_)

    @property
    def _input_shape(self) -> tuple[int, int]:
        """Steps and channels of what enters the network."""
        if self.encoder_ is None or isinstance(self.encoder_, ExactEvents):
            return self.shape_
        return self.encoder_.steps, self.n_features_in_
