"""Where neurons come from: the pair of training samples that made each, found again in the training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import column_or_1d

from sswim.classes import ClassModel, labelled_samples, samples_seed, training_order
from sswim.data.labelled import LabelledSamples
from sswim.data.series import Breaks, Series, SeriesLike
from sswim.data.starts import Starts
from sswim.data.windows import Samples, SeriesWindows
from sswim.forecasts import ForecastModel
from sswim.report import SamplingReport

__all__ = ["ClassPairs", "SeriesPairs", "class_numbers", "paired", "row_label", "row_name"]


def paired(report: SamplingReport) -> bool:
    """Return whether pairs of samples made the neurons; where training began from random parameters, none did."""
    return all(len(layer.pairs) == len(layer.rates) for layer in report.layers)


def _check_paired(report: SamplingReport) -> None:
    if not paired(report):
        raise ValueError("train: training began from random parameters, so no pairs of samples made the neurons. Omit train.")


class _Pairs:
    """Pairs of training samples, and what neurons make of them."""

    model: ForecastModel | ClassModel
    samples: Samples

    def numbers(self, layer: int, neuron: int) -> torch.Tensor:
        """Return the numbers of the two samples within the training samples."""
        return self.model.report.layers[layer].pairs[neuron]

    @cached_property
    def _filters(self) -> list[torch.Tensor]:
        return self.model.network.hidden_filters(steps=self.model.network.window)

    def potentials(self, layer: int, neurons: Sequence[int]) -> np.ndarray:
        """Return the membrane potentials (neurons, 2, steps) of some neurons on the two samples that made each."""
        numbers = torch.stack([self.numbers(layer, n) for n in neurons]).flatten()  # (2 n,)
        v = self.model.network.hidden_potentials(self.samples.inputs(numbers), self._filters[: layer + 1])[layer]  # (N, S, 2 n)
        each = torch.arange(len(neurons))
        return torch.stack([v[list(neurons), :, 2 * each + k] for k in (0, 1)], dim=1).cpu().numpy()


@dataclass
class SeriesPairs(_Pairs):
    """Pairs of windows. `series` are the rows of the fit."""

    model: ForecastModel
    series: Series
    samples: SeriesWindows

    @classmethod
    def find(cls, model: ForecastModel, train: SeriesLike, breaks: Breaks) -> Self:
        """Return the pairs of a model that was fitted to these rows; refuse others."""
        _check_paired(model.report)
        series, report = model.series(train, breaks), model.report
        lengths, span = [len(s) for s in series.segments], model.window + model.horizon
        batch = len(model.encoder.moving) if model.encoder.shared else 1
        wanted, most = (report.samples + report.validation_samples) // batch, len(Starts(lengths, span))
        stride = next((s for s in range(1, 2 + most // max(wanted, 1)) if len(Starts(lengths, span, s)) == wanted), None)
        if stride is None:
            raise ValueError(
                f"train: these are not the rows of the fit. The fit had {wanted:,} windows, and these rows have {most:,}. "
                "Pass the rows that were given to fit, and the same breaks."
            )
        samples = SeriesWindows(
            model.encoder, model.encoder.segments(series.segments, model.memory, trim=True), model.window, model.horizon, stride
        )
        found = cls(model, series, samples)
        found._check_range(Starts(lengths, span, stride), report.samples // batch)
        return found

    def _check_range(self, starts: Starts, kept: int) -> None:
        """Refuse rows whose range is not that of the rows of the fit."""
        encoder, low, high = self.model.encoder, [], []
        for number, first, last in starts.covered(kept):
            rows = encoder.without_outliers(torch.from_numpy(self.series.segments[number][first:last]))
            low.append(rows.amin(dim=0).numpy())
            high.append(rows.amax(dim=0).numpy())
        same = np.allclose(np.min(low, axis=0), encoder.low, rtol=1e-6) and np.allclose(
            np.max(high, axis=0), encoder.high, rtol=1e-6
        )
        if not same:
            raise ValueError(
                "train: these are not the rows of the fit, their range is another. Pass the rows that were given to fit."
            )

    def label(self, number: int) -> tuple[int | None, str]:
        """Return the column of a sample, None for all columns, and the name of its window's last row."""
        window, member = divmod(number, self.samples.batch)
        start = int(self.samples.starts[torch.tensor([window])][0])
        column = self.model.encoder.moving[member] if self.model.encoder.shared else None
        return column, row_label(self.series, start + self.model.window - 1)

    def shapes(self, layer: int, neuron: int, channel: int) -> np.ndarray:
        """Return both windows and what followed (2, window + horizon), scaled, relative to the window's mean."""
        numbers = self.numbers(layer, neuron)
        past, ahead, level = self.samples.past(numbers), self.samples.targets(numbers), self.samples.level(numbers)
        mean = past.mean(dim=1, keepdim=True)
        return torch.cat([past - mean, ahead + level - mean], dim=1)[:, :, channel].numpy()


@dataclass
class ClassPairs(_Pairs):
    """Pairs of labelled samples. `classes` are the numbers of the samples' classes, in the order of the fit."""

    model: ClassModel
    samples: LabelledSamples
    classes: np.ndarray

    @classmethod
    def find(cls, model: ClassModel, train: object, params: Mapping[str, object]) -> Self:
        """Return the pairs of a model that was fitted to these samples `(X, y)`; refuse others."""
        _check_paired(model.report)
        if model.network.convolutions:
            raise ValueError("train: the filters of a Convolution are made of patches, and these are not shown. Omit train.")
        if not isinstance(train, (tuple, list)) or len(train) != 2:
            raise TypeError(f"train must be a pair (X, y) for a Classifier, got {type(train).__name__}.")
        X, y = train
        values, report = model.inputs(X, "Classifier"), model.report
        labels = class_numbers(model, y, len(values), "train: y")
        seed, validation = _fit_facts(model, params)
        order, kept = training_order(values, torch.from_numpy(labels), validation, seed)
        total = report.samples + report.validation_samples
        if len(values) != total or kept != report.samples:
            raise ValueError(
                f"train: these are not the samples of the fit. The fit had {total:,} samples, {report.samples:,} of them for "
                f"training; here there are {len(values):,}, {kept:,} for training. Pass the samples that were given to fit. "
                "A model that was fitted with groups does not show its pairs."
            )
        shuffled = torch.from_numpy(labels)[order]
        samples = labelled_samples(model.inputs, values[order], shuffled, len(model.classes), model.readout, seed)
        first = report.layers[0]
        if first.output_metric == "class" and bool((shuffled[first.pairs[:, 0]] == shuffled[first.pairs[:, 1]]).any()):
            raise ValueError(
                "train: these are not the samples of the fit, or not in their order, for a pair must be of two classes and "
                "some are of one. Pass the samples that were given to fit, in the same order."
            )
        return cls(model, samples, shuffled.numpy())


def _fit_facts(model: ClassModel, params: Mapping[str, object]) -> tuple[int, float]:
    """Return the seed and the part for validation, which decide about the order of samples in the fit."""
    if model.past is not None:
        return model.past.seed, model.past.validation
    seed, validation = params.get("random_state"), params.get("validation")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not isinstance(validation, float):
        raise ValueError(
            f"train: the order of the training samples cannot be found again, for random_state was {seed!r} and a model file "
            "does not hold it. Fit with a number as random_state, save with updatable=True, or omit train."
        )
    return samples_seed(int(seed)), validation


def class_numbers(model: ClassModel, y: object, count: int, name: str) -> np.ndarray:
    """Return the numbers of the classes of `count` labels; refuse labels that the model does not know."""
    labels = column_or_1d(y)
    if len(labels) != count:
        raise ValueError(f"{name} must hold one label per sample, got {len(labels)} labels for {count} samples.")
    known = {label: number for number, label in enumerate(model.classes.tolist())}
    written = {str(label): number for label, number in known.items()}
    found = [known.get(label, written.get(str(label))) for label in labels.tolist()]
    if None in found:
        stranger = labels[found.index(None)]
        raise ValueError(f"{name}: the model does not know the class {stranger!s}. Its classes: {', '.join(written)}.")
    return np.asarray(found)


def row_label(series: Series, row: int) -> str:
    """Return the name of a row, counted over all segments: its time, or its number."""
    number = int(np.searchsorted(np.cumsum([len(s) for s in series.segments]), row, side="right"))
    before = sum(len(s) for s in series.segments[:number])
    index = series.labels(number)
    return f"row {row}" if index is None else row_name(index[row - before])


def row_name(label: object) -> str:
    """Return a row's label in words; of a time, without seconds and without its zone if that says nothing.

    Examples
    --------
    >>> row_name(pd.Timestamp("2024-03-01 05:00:00+00:00")), row_name(7)
    ('2024-03-01 05:00', '7')
    """
    whole = isinstance(label, pd.Timestamp) and label == label.floor("min")
    return f"{label:%Y-%m-%d %H:%M}" if whole else str(label)
