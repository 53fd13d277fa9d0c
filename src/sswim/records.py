"""The sums of a fit as tables of tensors, for files of models that can be updated, and whether they are those of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sswim.classes import ClassModel, SamplesPast
from sswim.data.past import SeriesPast
from sswim.forecasts import ForecastModel
from sswim.network.network import SpikingNetwork
from sswim.readout.blocks import Part
from sswim.readout.counts import LOSSES, CountsRecord
from sswim.readout.gathered import TraceSource, VoltageRecord
from sswim.readout.lags import LagReadout
from sswim.readout.ledger import Block, Ledger
from sswim.readout.likelihood import KeptFeatures
from sswim.readout.record import LagRecord, naive_weights
from sswim.readout.seasons import season_named
from sswim.readout.traces import Assembly
from sswim.readout.weighing import Model, Weighed
from sswim.regression import Regularization, Sums
from sswim.sealed import Damaged
from sswim.steps.leaky import BITS

__all__ = ["TABLES", "SavedUpdates", "pack", "unpack"]


@dataclass(frozen=True)
class WeighedTable:
    """A `Weighed`: models by name, each on top of one before it, or of none (-1)."""

    names: tuple[str, ...]
    bases: tuple[int, ...]
    sizes: tuple[Tensor, ...]
    shared: tuple[bool, ...]
    penalties: tuple[Tensor, ...]
    shares: Tensor
    gains: Tensor
    timeless: Tensor | None = field(default=None, metadata={"later": True})


@dataclass(frozen=True)
class LagTable:
    """A `LagRecord`."""

    ledger: Ledger
    held_out: float
    weighed: WeighedTable
    errors: Tensor
    every: int


@dataclass(frozen=True)
class SumsTable:
    """A `Sums`."""

    horizon: int
    samples: float
    epsilon: float
    gram: Tensor
    cross: Tensor
    energy: Tensor
    feature_mean: Tensor
    target_mean: Tensor


@dataclass(frozen=True)
class VoltageTable:
    """A `VoltageRecord`."""

    lags: Tensor
    supports: Tensor
    assembly: Assembly
    regularization: Regularization
    train: tuple[SumsTable, ...]
    held_out: tuple[SumsTable, ...]
    squared_counts: float


@dataclass(frozen=True)
class KeptTable:
    """A `KeptFeatures`: features (features, samples), classes, and how much samples count."""

    limit: int
    features: Tensor
    labels: Tensor
    weights: Tensor | None
    precise: bool


@dataclass(frozen=True)
class CountsTable:
    """A `CountsRecord`."""

    loss: str
    regularization: Regularization
    sums: tuple[SumsTable, ...]
    kept: tuple[KeptTable, ...]
    temperature: float
    bits: int | None
    errors: Tensor


@dataclass(frozen=True)
class SavedUpdates:
    """What a model needs to be updated."""

    record: LagTable | VoltageTable | CountsTable
    past: SeriesPast | SamplesPast


# The classes that a file of an updatable model may name, too.
TABLES = (
    Block, CountsTable, KeptTable, LagTable, Ledger, Part, SamplesPast, SavedUpdates, SeriesPast, SumsTable, VoltageTable,
    WeighedTable,
)  # fmt: skip


def pack(model: ForecastModel | ClassModel) -> SavedUpdates:
    """Return the sums of a fitted model as tables."""
    record, past = model.report.solution.record, model.past
    if past is None or not isinstance(record, (LagRecord, VoltageRecord, CountsRecord)):
        raise ValueError(
            "save: this model has no sums to be updated from. Fit it with more memory and with training=None, or save it "
            "without updatable=True."
        )
    if isinstance(record, LagRecord):
        assert record.weighed is not None
        table = _pack_weighed(record.weighed)
        return SavedUpdates(LagTable(record.ledger, record.held_out, table, record.errors, record.every), past)
    if isinstance(record, VoltageRecord):
        train, held_out = (tuple(map(_pack_sums, sums)) for sums in (record.train, record.held_out))
        steps = record.lags, record.supports, record.assembly, record.regularization
        return SavedUpdates(VoltageTable(*steps, train, held_out, record.squared_counts), past)
    kept, sums = tuple(map(_pack_kept, record.kept)), tuple(map(_pack_sums, record.sums))
    counts = CountsTable(record.loss, record.regularization, sums, kept, record.temperature, record.bits, record.errors)
    return SavedUpdates(counts, past)


def _pack_weighed(weighed: Weighed) -> WeighedTable:
    models = weighed.models
    bases = tuple(-1 if m.base is None else next(i for i, b in enumerate(models) if b is m.base) for m in models)
    names, sizes = tuple(m.name for m in models), tuple(m.size for m in models)
    shared, penalties = tuple(m.shared for m in models), tuple(m.penalty for m in models)
    return WeighedTable(names, bases, sizes, shared, penalties, weighed.shares, weighed.gains, weighed.timeless)


def _pack_sums(s: Sums) -> SumsTable:
    return SumsTable(s.horizon, s.samples, s.epsilon, s.gram, s.cross, s.energy, s.feature_mean, s.target_mean)


def _pack_kept(kept: KeptFeatures) -> KeptTable:
    return KeptTable(kept.limit, *kept.joint(), kept.dtype == torch.float64)


def unpack(saved: SavedUpdates, model: ForecastModel | ClassModel) -> LagRecord | VoltageRecord | CountsRecord:
    """Return the sums that `pack` gave, if they are those of a model."""
    table, network = saved.record, model.network
    if isinstance(saved.past, SeriesPast) != isinstance(model, ForecastModel):
        raise Damaged("the sums are of another kind of model")
    if isinstance(saved.past, SeriesPast) and isinstance(model, ForecastModel):
        _check_past(saved.past, model.encoder.columns)
    if isinstance(table, LagTable):
        return _unpack_lags(table, network)
    if isinstance(table, VoltageTable):
        return _unpack_voltage(table, network)
    return _unpack_counts(table, network)


def _check_past(past: SeriesPast, columns: int) -> None:
    if past.rows.ndim != 2 or past.rows.shape[1] != columns or past.rows.dtype.kind != "f":
        raise Damaged(f"the past must have {columns} columns, got {past.rows.shape}")
    if not 0 < past.kept <= past.period or past.seen < 0 or past.stride < 1:
        raise Damaged(f"the past has impossible numbers of windows: {past.seen}, {past.period}, {past.kept}, {past.stride}")


def _check(**shaped: tuple[Tensor, tuple[int, ...]]) -> None:
    """Refuse tensors that are not of float64, or of another shape, or not finite."""
    for name, (tensor, shape) in shaped.items():
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
            raise Damaged(f"{name} must have the shape {shape} of float64, got {tuple(tensor.shape)} of {tensor.dtype}")
        if not bool(torch.isfinite(tensor).all()):
            raise Damaged(f"{name} must be finite, but holds NaN or infinity")


def _unpack_lags(table: LagTable, network: SpikingNetwork) -> LagRecord:
    readout, ledger = network.readout, table.ledger
    if not isinstance(readout, LagReadout):
        raise Damaged("the sums are of another kind of output")
    C, q, R = readout.weights.shape
    if ledger.whole is None or not ledger.recordings or min(ledger.recordings) < 0 or len(ledger.blocks) > 4 * ledger.count:
        raise Damaged("the sums have no windows, or too many blocks")
    if min(ledger.count, ledger.stride, ledger.step) < 1 or ledger.first < ledger.count * ledger.stride:
        raise Damaged("the layout of blocks is impossible")
    parts = [*(block.sums for block in ledger.blocks), ledger.whole, *([] if ledger.tail is None else [ledger.tail])]
    for part in parts:
        _check(gram=(part.gram, (C, q, q)), cross=(part.cross, (C, q, R)), energy=(part.energy, (C, R)))
        if not 0 < part.rows < math.inf:
            raise Damaged(f"sums must be of rows, got {part.rows!r}")
    for block in ledger.blocks:
        if block.windows < 1 or not 0 <= block.recording < len(ledger.recordings) or not 0 <= block.fade <= 1:
            raise Damaged("a block is impossible")
    channels = network.horizon, network.outputs * C
    if table.errors.ndim != 3 or tuple(table.errors.shape[1:]) != channels or not bool(torch.isfinite(table.errors).all()):
        raise Damaged(f"errors must be finite, of the shape (windows, {channels[0]}, {channels[1]})")
    if not len(table.errors) or table.every < 1:
        raise Damaged("there are no errors of past forecasts")
    return LagRecord(ledger, table.held_out, _unpack_weighed(table.weighed, readout), table.errors, table.every)


def _unpack_weighed(table: WeighedTable, readout: LagReadout) -> Weighed:
    (channels, features, _), count = readout.weights.shape, len(table.names)
    naive, models = naive_weights(readout), list[Model]()
    if any(len(column) != count for column in (table.bases, table.sizes, table.shared, table.penalties)):
        raise Damaged("the models that were weighed are incomplete")
    rows = zip(table.names, table.bases, table.sizes, table.shared, table.penalties, strict=True)
    for name, base, size, shared, penalty in rows:
        if base == -1 and name not in naive and (repeated := season_named(readout, name)) is not None:
            naive[name] = repeated
        if base == -1 and name in naive:
            models.append(Model(name))
            continue
        if not 0 <= base < len(models):
            raise Damaged(f"the model {name[:100]!r} is on top of none")
        _check(sizes=(size, (features,)), penalties=(penalty, (1 if shared else channels,)))
        models.append(Model(name, models[base], size, shared, penalty))
    _check(shares=(table.shares, (channels, count)), gains=(table.gains, (count,)))
    if (table.timeless is None) != (readout.sizes.clock == 0):
        raise Damaged("shares for windows without times belong to models that read the calendar")
    if table.timeless is not None:
        _check(timeless=(table.timeless, (channels, count)))
    return Weighed(models, table.shares, table.gains, naive, readout.parts["one"].start, table.timeless)


def _unpack_sums(table: SumsTable, features: int, outputs: int, horizon: int) -> Sums:
    found = Sums(features, outputs, horizon)
    for name in ("gram", "cross", "energy", "feature_mean", "target_mean"):
        _check(**{name: (getattr(table, name), tuple(getattr(found, name).shape))})
        setattr(found, name, getattr(table, name))
    if table.horizon != horizon or not 0 < table.samples < math.inf or not 0 < table.epsilon < 1:
        raise Damaged("sums must be of samples, with the network's horizon")
    found.samples, found.epsilon = table.samples, table.epsilon
    return found


def _unpack_voltage(table: VoltageTable, network: SpikingNetwork) -> VoltageRecord:
    for name, value in (("lags", table.lags), ("supports", table.supports)):
        if tuple(value.shape) != (network.outputs,) or not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise Damaged(f"{name} must be {network.outputs} finite numbers")
    if bool((table.supports <= 0).any()):
        raise Damaged("supports must be > 0")
    members = TraceSource(network, table.lags, table.supports, table.assembly, 10**9).members

    def sums(tables: Sequence[SumsTable]) -> tuple[Sums, ...]:
        if len(tables) != len(members):
            raise Damaged(f"there must be sums of {len(members)} traces, got {len(tables)}")
        pairs = zip(tables, members, strict=True)
        return tuple(_unpack_sums(t, network.hidden[-1], len(m), network.horizon) for t, m in pairs)

    steps = table.lags, table.supports, table.assembly, table.regularization
    return VoltageRecord(*steps, sums(table.train), sums(table.held_out), table.squared_counts)


def _unpack_counts(table: CountsTable, network: SpikingNetwork) -> CountsRecord:
    outputs, features = network.readout.weights.shape
    if table.loss not in (*LOSSES, "forecast") or not 0 < table.temperature < math.inf:
        raise Damaged(f"the loss must be known, got {table.loss!r}, with a temperature above 0")
    if len(table.sums) != 2 or len(table.kept) != 2:
        raise Damaged("the sums must be of training and of validation samples")
    if table.bits is not None and table.bits not in BITS:
        raise Damaged(f"weights cannot have {table.bits} bits")
    if len(table.errors) and (table.errors.ndim != 3 or not bool(torch.isfinite(table.errors).all())):
        raise Damaged("errors must be finite, for windows, steps ahead and channels")
    kept = []
    for part in table.kept:
        samples = len(part.labels)
        right = part.features.dtype == torch.float16 and tuple(part.features.shape) in {(features, samples), (0, 0)}
        counted = part.weights is None or tuple(part.weights.shape) == (samples,)
        if not right or not counted or part.labels.dtype != torch.long or part.labels.ndim != 1 or part.limit < samples:
            raise Damaged("the traces that were kept are not those of samples")
        if samples and not 0 <= int(part.labels.min()) <= int(part.labels.max()) < outputs:
            raise Damaged(f"kept samples must be of {outputs} classes")
        if not bool(torch.isfinite(part.features).all()) or not (part.weights is None or bool((part.weights >= 0).all())):
            raise Damaged("the traces that were kept must be finite")
        found = KeptFeatures(part.limit)
        if samples:
            found.add(part.features.to(torch.float64 if part.precise else torch.float32), part.labels, part.weights)
        kept.append(found)
    sums = tuple(_unpack_sums(t, features, outputs, 1) for t in table.sums)
    return CountsRecord(table.loss, table.regularization, sums, tuple(kept), table.temperature, table.bits, table.errors)
