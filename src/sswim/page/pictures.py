"""How a sample, or weights over its inputs, become a small picture."""

from __future__ import annotations

import math

import numpy as np
import torch

from sswim.classes import ClassModel
from sswim.data.events import ExactEvents
from sswim.data.labelled import LabelledSamples
from sswim.network.events import dense
from sswim.page.blocks import packed
from sswim.report import Facts

__all__ = ["Gallery", "signed_picture", "smaller"]

# Rows and columns of a picture at most, and inputs that are shown as bars.
SIDE, WIDE, BARS = 48, 96, 24


def smaller(picture: np.ndarray, rows: int = SIDE, columns: int = SIDE) -> np.ndarray:
    """Return a picture with means over blocks, if it has more than `rows` rows or `columns` columns.

    Examples
    --------
    >>> smaller(np.arange(16.0).reshape(4, 4), 2, 4).tolist()
    [[2.0, 3.0, 4.0, 5.0], [10.0, 11.0, 12.0, 13.0]]
    """
    for axis, most in ((0, rows), (1, columns)):
        length = picture.shape[axis]
        if length > most:
            starts = np.unique(np.linspace(0, length, most + 1).astype(int)[:-1])
            sizes = np.diff([*starts, length])
            picture = np.add.reduceat(picture, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return picture


class Gallery:
    """Pictures of samples.

    Attributes
    ----------
    kind : {"image", "signal", "values"}
        An image; channels over time; or a few numbers without an order.
    shape : tuple of int
        Rows and columns of a picture.
    """

    def __init__(self, model: ClassModel) -> None:
        inputs = model.inputs
        self._model, self._layout = model, inputs.layout
        timed = inputs.encoder is None or isinstance(inputs.encoder, ExactEvents)
        flat = len(inputs.layout) == 1
        self.kind = "signal" if timed else "values" if flat and inputs.channels <= BARS else "image"
        if timed:
            self.shape = min(inputs.channels, SIDE), min(inputs.steps, WIDE)
        else:
            rows, columns = self._sides()
            self.shape = (min(rows, SIDE), min(columns, SIDE)) if self.kind == "image" else (1, inputs.channels)

    def _sides(self) -> tuple[int, int]:
        """Return rows and columns of an image: those of its layout, a square, or one row."""
        layout, channels = self._layout, self._model.inputs.channels
        if len(layout) >= 2:
            return layout[0], layout[1]
        side = math.isqrt(channels)
        return (side, side) if side * side == channels else (1, channels)

    def values(self, samples: LabelledSamples, number: int) -> np.ndarray:
        """Return a sample as rows and columns of numbers."""
        one = torch.tensor([number])
        if self.kind == "signal":
            return smaller(dense(samples.inputs(one))[0].T.cpu().numpy(), SIDE, WIDE)
        found = samples.X[one] if isinstance(samples.X, torch.Tensor) else samples.X.batch(one)
        return self.laid_out(np.asarray(found)[0])

    def laid_out(self, channels: np.ndarray) -> np.ndarray:
        """Return numbers of all channels as rows and columns."""
        if self.kind == "values":
            return channels.reshape(1, -1)
        rows, columns = self._sides()
        return smaller(channels.reshape(rows, columns, -1).mean(axis=2))

    def picture(self, samples: LabelledSamples, number: int) -> str:
        """Return a sample as bytes, from 0 to 255, as text."""
        values, scale = self.values(samples, number), self._model.inputs.scale
        low, high = (float(values.min()), float(values.max())) if scale is None else scale
        return packed((np.clip((values - low) / max(high - low, 1e-300), 0, 1) * 255).round().astype(np.uint8))


def signed_picture(values: np.ndarray) -> Facts:
    """Return numbers of either sign as bytes, 128 standing for 0, and the largest size."""
    most = float(np.abs(values).max())
    return {
        "bytes": packed((values / max(most, 1e-300) * 127 + 128).round().astype(np.uint8)),
        "most": most,
        "shape": values.shape,
    }
