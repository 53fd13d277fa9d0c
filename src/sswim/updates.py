"""Fitted models that go on: new rows or samples are added to the sums, models fitted apart are merged; hidden layers stay."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from sswim.classes import ClassModel, SamplesPast, labelled_samples
from sswim.data.augment import Change, augmented
from sswim.data.encoder import SeriesEncoder
from sswim.data.labelled import digests
from sswim.data.past import SeriesPast, cut_windows
from sswim.data.rows import LABELS, after
from sswim.data.series import Series
from sswim.data.windows import Split
from sswim.forecasts import ForecastModel
from sswim.network.network import SOLVED, SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Run, check_positive
from sswim.report import SamplingReport, Solution

__all__ = [
    "Record",
    "check_forget",
    "merge_samples",
    "merge_series",
    "refit_samples",
    "refit_series",
    "update_samples",
    "update_series",
]


class Record(Protocol):
    """The sums that an output was solved from."""

    def emptied(self) -> Record:
        """Return a record of nothing, with the same settings."""
        ...

    def fit(self, network: SpikingNetwork, split: Split, run: Run) -> Solution:
        """Set the output from all samples at once."""
        ...

    def extended(self, network: SpikingNetwork, split: Split, run: Run, *, begins: bool, forget: float | None) -> Record:
        """Return the record with new samples."""
        ...

    def merged(self, other: Record) -> Record:
        """Return the record of these samples and those of another one."""
        ...

    def solve(self, network: SpikingNetwork, run: Run) -> Solution:
        """Set the output from the sums."""
        ...


def check_forget(forget: float | None) -> float | None:
    """Return a half-life, if it is one."""
    if forget is not None and not check_positive("forget", forget) >= 1:
        raise ValueError(f"forget must be a half-life of at least 1, got {forget!r}: less forgets all but the last row.")
    return forget


def _record(solution: Solution, method: str) -> Record:
    """Return the sums of a fitted model, or say why there are none."""
    if solution.record is None:
        reason = "it was trained by gradients: use training=None"
        if solution.training is None:
            reason = "its sums were not kept: fit it with more memory, or save it with save(..., updatable=True)"
        raise ValueError(f"{method}: this model cannot be updated, for {reason}.")
    return solution.record  # type: ignore[return-value]


def _settled(network: SpikingNetwork, report: SamplingReport, solution: Solution, run: Run, new: int) -> SamplingReport:
    """Return the report of a fit that went on with `new` samples; what its end chose on validation samples stays."""
    before, readout = report.solution, network.readout
    if isinstance(readout, VoltageReadout):
        solution = replace(solution, temperature=before.temperature, normalization=before.normalization)
        if before.normalization is not None:
            alpha, beta, _ = before.normalization
            with torch.no_grad():
                readout.weights.mul_(alpha), readout.biases.mul_(alpha).add_(beta)
    return replace(report, solution=solution, samples=report.samples + new, steps=run.records)


class SeriesUpdate:
    """New rows for a fitted forecaster, which follow on what is past, as windows."""

    def __init__(self, model: ForecastModel, series: Series, past: SeriesPast) -> None:
        model.check_times(series, "updates")
        self.encoder = model.encoder.moved(series.rows())
        self.samples, self.past = cut_windows(self.encoder, series, past, model.window, model.horizon, model.memory)
        held_out = torch.from_numpy(past.held_out(sum(self.samples.recordings)))
        self.split = Split.by(self.samples, held_out.repeat_interleave(self.samples.batch))


def refit_series(model: ForecastModel, series: Series, run: Run) -> ForecastModel:
    """Return the model with the same hidden layers and an output solved from these series alone."""
    record, past = _record(model.report.solution, "refit"), _past(model)
    new, network = SeriesUpdate(model, series, past.forgotten()), copy.deepcopy(model.network)
    series.check_length(model.window, model.horizon, sum(new.samples.recordings))
    solution = record.fit(network, new.split, run)
    report = _settled(network, replace(model.report, samples=0), solution, run, len(new.samples))
    return replace(model, encoder=new.encoder, network=network, report=report, past=new.past)


def update_series(model: ForecastModel, series: Series, forget: float | None, run: Run) -> ForecastModel:
    """Return the model with rows that follow on those seen so far."""
    record, past = _record(model.report.solution, "partial_fit"), _past(model)
    if past.follows(series.labels(0, LABELS), model.pace):
        indexes = [past.before(series.indexes[0], len(series.segments[0]), model.pace), *series.indexes[1:]]
        series = replace(series, segments=[after(past.rows, series.segments[0]), *series.segments[1:]], indexes=indexes)
    new, network = SeriesUpdate(model, series, past), copy.deepcopy(model.network)
    if not len(new.samples):  # rows of no whole window yet
        return replace(model, past=new.past)
    half_life = None if forget is None else forget / past.stride
    solution = record.extended(network, new.split, run, begins=False, forget=half_life).solve(network, run)
    report = _settled(network, model.report, solution, run, len(new.samples))
    return replace(model, encoder=new.encoder, network=network, report=report, past=new.past)


def _past(model: ForecastModel) -> SeriesPast:
    assert model.past is not None  # kept with the sums
    return model.past


def merge_series(model: ForecastModel, other: ForecastModel, run: Run) -> ForecastModel:
    """Return the model of the rows of both, which have the same hidden layers."""
    mine, theirs = (_record(m.report.solution, "merge") for m in (model, other))
    _check_same(model.network, other.network)
    _check_encoders(model.encoder, other.encoder)
    network = copy.deepcopy(model.network)
    solution = mine.merged(theirs).solve(network, run)
    report, past = _settled(network, model.report, solution, run, other.report.samples), _past(other)
    past = replace(past, seen=_past(model).seen + past.seen)
    return replace(model, encoder=model.encoder.joined(other.encoder), network=network, report=report, past=past)


@dataclass(frozen=True)
class SamplesUpdate:
    """New samples for a fitted classifier."""

    split: Split
    past: SamplesPast

    @classmethod
    def of(
        cls, model: ClassModel, X: object, y: np.ndarray, name: str, past: SamplesPast, changes: Sequence[Change]
    ) -> SamplesUpdate:
        """Return samples and their classes, checked against those of the fit, with changed copies of training samples."""
        values = model.inputs(X, name)
        if len(values) != len(y):
            raise ValueError(f"X and y must hold equally many samples, got {len(values)} and {len(y)}.")
        place = {label: number for number, label in enumerate(model.classes.tolist())}
        unknown = [label for label in y.tolist() if label not in place]
        if unknown:
            raise ValueError(f"y: {unknown[0]!r} is none of the classes of the fit, {list(place)}. Fit a new model.")
        labels = torch.tensor([place[label] for label in y.tolist()])
        samples = labelled_samples(
            model.inputs, values, labels, len(model.classes), model.readout, past.seed, past.class_weights, first=past.seen
        )
        held_out = digests(values) < past.validation
        return cls(augmented(Split.by(samples, held_out), changes), replace(past, seen=past.seen + len(samples)))


def refit_samples(
    model: ClassModel, X: object, y: np.ndarray, name: str, run: Run, changes: Sequence[Change] = ()
) -> ClassModel:
    """Return the model with the same hidden layers and an output solved from these samples alone."""
    record, past = _record(model.report.solution, "refit"), _samples_past(model)
    new, network = SamplesUpdate.of(model, X, y, name, replace(past, seen=0), changes), copy.deepcopy(model.network)
    if not len(new.split.train) or not len(new.split.held_out):
        raise ValueError(f"X: too few samples, {len(y)}, to choose a regularisation on a part of them. Pass more.")
    solution = record.fit(network, new.split, run)
    report = _settled(network, replace(model.report, samples=0), solution, run, new.split.train.originals)
    return replace(model, network=network, report=report, past=new.past)


def update_samples(
    model: ClassModel,
    X: object,
    y: np.ndarray,
    name: str,
    forget: float | None,
    run: Run,
    changes: Sequence[Change] = (),
) -> ClassModel:
    """Return the model with new samples."""
    record, past = _record(model.report.solution, "partial_fit"), _samples_past(model)
    new, network = SamplesUpdate.of(model, X, y, name, past, changes), copy.deepcopy(model.network)
    if not len(y):
        return model
    solution = record.extended(network, new.split, run, begins=False, forget=forget).solve(network, run)
    report = _settled(network, model.report, solution, run, new.split.train.originals)
    return replace(model, network=network, report=report, past=new.past)


def merge_samples(model: ClassModel, other: ClassModel, run: Run) -> ClassModel:
    """Return the model of the samples of both, which have the same hidden layers."""
    mine, theirs = (_record(m.report.solution, "merge") for m in (model, other))
    _check_same(model.network, other.network)
    if model.classes.tolist() != other.classes.tolist() or model.inputs != other.inputs:
        raise ValueError("merge: the models take other inputs or tell other classes apart, so their sums do not add up.")
    network = copy.deepcopy(model.network)
    solution = mine.merged(theirs).solve(network, run)
    past = _samples_past(model)
    past = replace(past, seen=past.seen + _samples_past(other).seen)
    return replace(
        model, network=network, report=_settled(network, model.report, solution, run, other.report.samples), past=past
    )


def _samples_past(model: ClassModel) -> SamplesPast:
    assert model.past is not None  # kept with the sums
    return model.past


def _check_same(mine: SpikingNetwork, other: SpikingNetwork) -> None:
    """Refuse a network of other hidden layers."""
    found, theirs = mine.state_dict(), other.state_dict()
    for name, tensor in found.items():
        if name in (*SOLVED, "readout.costs"):
            continue
        if name not in theirs or theirs[name].shape != tensor.shape or not torch.equal(theirs[name], tensor):
            raise ValueError(
                f"merge: the models have other hidden layers ({name} differs), so their sums do not add up. Fit one, and let "
                "copies of it refit(...) on the parts."
            )


def _check_encoders(mine: SeriesEncoder, other: SeriesEncoder) -> None:
    """Refuse another scaling."""
    names = "low high offset span covariates known resting moving scaling shared window calendar"
    for name in names.split():
        if not np.array_equal(getattr(mine, name), getattr(other, name)):
            raise ValueError(f"merge: the models scale series in other ways ({name} differs), so their sums do not add up.")
