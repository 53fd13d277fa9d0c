"""What a model file may hold: which classes, the types of their fields, and sizes that fit each other.

Sizes are compared before anything is built from them, so a file cannot ask for more memory than it is long.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_type_hints

import numpy as np
import torch
from torch import Tensor

from sswim import classes, data, forecasts, gradient, network, options, readout, regression, report, sampling, steps
from sswim.classes import ClassModel
from sswim.data import encoder, inputs
from sswim.data.calendar import Calendar
from sswim.data.encoder import SeriesEncoder
from sswim.data.events import ExactEvents
from sswim.data.inputs import InputEncoder
from sswim.data.times import Pace
from sswim.forecasts import ForecastModel
from sswim.network import SpikingNetwork, VoltageReadout
from sswim.network.grid import Convolution, Grid, hidden_shapes, widths_of
from sswim.network.kernels import Kernel
from sswim.network.surrogates import Surrogate
from sswim.options import Options, check_choice, check_constants, check_integer, parse_memory
from sswim.profiles import Profile
from sswim.readout import Counts, LagReadout, TraceReadout
from sswim.readout.lags import LagSizes, lag_bins
from sswim.readout.record import LEVELS
from sswim.records import TABLES
from sswim.report import SamplingReport
from sswim.sealed import Damaged, check_keys, check_type

__all__ = ["CLASSES", "NetworkSettings", "build", "check_model", "file_fields"]


# Tensors that files of earlier versions lack.
LATER = tuple(f"readout.{name}_range" for name in ("height", "extra", "common"))
# Channels, and places times channels of a patch, that a file may ask for.
MOST_PIXELS, MOST_PLACES = 10**8, 10**9


@dataclass(frozen=True)
class VoltageSettings:
    """A `VoltageReadout`, without its tensors."""

    kernel: Kernel
    spiking: bool


@dataclass(frozen=True)
class TraceSettings:
    """A `TraceReadout`, without its tensors."""

    constants: tuple[float, ...]
    roots: bool = field(default=False, metadata={"later": True})


@dataclass(frozen=True)
class LagSettings:
    """A `LagReadout`, without its tensors."""

    sizes: LagSizes
    constants: tuple[float, ...]
    population: int
    singles: int
    skip: bool
    absolute: bool
    heights: bool


@dataclass(frozen=True)
class NetworkSettings:
    """A network, without its tensors."""

    window: int
    horizon: int
    start: int
    kernels: tuple[Kernel, ...]
    refractory: Kernel
    surrogate: Surrogate
    detach_refractory: bool
    checkpoint: bool
    readout: VoltageSettings | LagSettings | TraceSettings
    convolutions: tuple[Convolution | None, ...] = field(default=(), metadata={"later": True})
    layout: tuple[int, ...] | None = field(default=None, metadata={"later": True})

    @classmethod
    def of(cls, network: SpikingNetwork) -> Self:
        """Return the settings of a network."""
        out = network.readout
        read: VoltageSettings | LagSettings | TraceSettings
        if isinstance(out, VoltageReadout):
            read = VoltageSettings(out.kernel, out.spiking)
        elif isinstance(out, LagReadout):
            neurons = out.population.neurons
            read = LagSettings(out.sizes, out.constants, neurons, out.singles, out.skip, out.absolute, out.heights)
        else:
            assert isinstance(out, TraceReadout)
            read = TraceSettings(out.constants, out.roots)
        names = [field.name for field in dataclasses.fields(cls) if field.name != "readout"]
        return cls(**{name: getattr(network, name) for name in names}, readout=read)

    def build(self, state: Mapping[str, Tensor]) -> SpikingNetwork:
        """Return the network of some tensors, if they have the right sizes."""
        if not self.kernels:
            raise Damaged("the network has no hidden layer")
        inputs, hidden = self._hidden(state)
        shapes = hidden_shapes(inputs, hidden, self.layout)
        widths = [inputs, *widths_of(shapes)]
        self._check_senders(state, widths, shapes)
        dtype = state["layers.0.weights"].dtype
        made = self._readout(state, widths, dtype)
        found = SpikingNetwork(
            inputs,
            made.outputs,
            window=self.window,
            horizon=self.horizon,
            hidden=hidden,
            layout=self.layout,
            start=self.start,
            kernel=self.kernels,
            refractory=self.refractory,
            readout=made,
            surrogate=self.surrogate,
            detach_refractory=self.detach_refractory,
            checkpoint=self.checkpoint,
            dtype=dtype,
        )
        wanted = found.state_dict()
        state = {name: wanted[name] for name in LATER if name in wanted} | dict(state)
        check_keys("the network", dict(state), list(wanted))
        for name, tensor in wanted.items():
            _same(f"network.{name}", state[name], tuple(tensor.shape), tensor.dtype)
        found.load_state_dict(dict(state))
        return found

    def _hidden(self, state: Mapping[str, Tensor]) -> tuple[int, list[int | Convolution]]:
        """Return the number of inputs, and the width or convolution of every hidden layer."""
        for name, size in (("window", self.window), ("horizon", self.horizon)):
            check_integer(name, size, 1)
        if self.convolutions and len(self.convolutions) != len(self.kernels):
            raise Damaged(f"there are {len(self.kernels)} layers, and convolutions of {len(self.convolutions)}")
        hidden: list[int | Convolution] = []
        for number, shape in enumerate(self.convolutions or [None] * len(self.kernels)):
            weights = state.get(f"layers.{number}.weights")
            if weights is None or weights.ndim != 2 or 0 in weights.shape:
                raise Damaged(f"the weights of layer {number} are no matrix")
            if shape is not None and shape.filters != weights.shape[0]:
                raise Damaged(f"layer {number} must have {shape.filters} filters, got {weights.shape[0]}")
            hidden.append(weights.shape[0] if shape is None else shape)
        if self.layout is not None and not all(isinstance(n, int) and 0 < n < MOST_PIXELS for n in self.layout):
            raise Damaged(f"channels cannot be laid out as {self.layout}")
        inputs = state["layers.0.weights"].shape[1] if self.layout is None else math.prod(self.layout)
        if inputs > MOST_PIXELS:
            raise Damaged(f"a layout of {self.layout} has {inputs} channels")
        return inputs, hidden

    def _check_senders(self, state: Mapping[str, Tensor], widths: list[int], shapes: list[int | Grid]) -> None:
        """Refuse layers that listen to others than there are, before anything is built."""
        for number, (shape, senders) in enumerate(zip(shapes, widths, strict=False)):
            wanted, found = shape.senders if isinstance(shape, Grid) else senders, state[f"layers.{number}.weights"].shape[1]
            if found != wanted:
                raise Damaged(f"layer {number} listens to {found} neurons, but there are {wanted}")
            if isinstance(shape, Grid) and shape.places * max(shape.senders, shape.regions) > MOST_PLACES:
                raise Damaged(
                    f"layer {number} has {shape.places} places of {shape.senders} channels, and {shape.regions} regions"
                )

    def _readout(
        self, state: Mapping[str, Tensor], widths: list[int], dtype: torch.dtype
    ) -> VoltageReadout | LagReadout | TraceReadout:
        """Return an output of the right sizes, its tensors still to be set."""
        read, out = self.readout, state.get("readout.weights")
        if out is None or out.ndim < 2 or 0 in out.shape:
            raise Damaged("the output has no weights")
        if isinstance(read, LagSettings):
            self._check_lags(read, state, widths, dtype)
            made = {f.name: getattr(read, f.name) for f in dataclasses.fields(read) if f.name != "sizes"}
            return LagReadout(read.sizes, **made, dtype=dtype)
        if isinstance(read, VoltageSettings):
            _same("network.readout.weights", out, (len(out), widths[-1]), dtype)
            return VoltageReadout(
                widths[-1],
                len(out),
                read.kernel,
                self.refractory,
                start=self.start,
                horizon=self.horizon,
                spiking=read.spiking,
                dtype=dtype,
            )
        traces, outputs = sum(widths[1:]) * len(check_constants("constants", read.constants)), len(out) // self.horizon
        _same("network.readout.weights", out, (max(outputs, 1) * self.horizon, traces), dtype)
        return TraceReadout(traces, outputs, self.horizon, constants=read.constants, roots=read.roots, dtype=dtype)

    def _check_lags(self, read: LagSettings, state: Mapping[str, Tensor], widths: list[int], dtype: torch.dtype) -> None:
        """Refuse sizes of a readout with lags that are not those of its tensors."""
        sizes = read.sizes
        for name, size in dataclasses.asdict(sizes).items():
            check_integer(name, size, 1 if name in ("window", "horizon", "outputs", "groups") else 0)
        traces = sum(widths[1:]) * len(check_constants("constants", read.constants))
        if (sizes.window, sizes.horizon, sizes.traces) != (self.window, self.horizon, traces):
            raise Damaged(f"the output is for other sizes than the network: {sizes}")
        neurons = check_integer("singles", read.singles, 0) * (sizes.outputs == 1)
        single = len(network.Population(read.population).spread_out(neurons)) if neurons else 0
        bins = len(lag_bins(sizes.window)) - 1
        extra, common = (2 * single + sizes.covariates) * bins + sizes.traces, sizes.groups * (bins + 1)
        features = (2 + sizes.lags) * sizes.outputs + 1 + sizes.extra + sizes.common + sizes.ahead + sizes.clock
        codes = sizes.known * (1 + single) * sizes.horizon
        shapes = {
            "weights": (sizes.groups, features, sizes.horizon * sizes.outputs),
            "spreads": (sizes.groups, sizes.outputs),
            "lag_directions": (sizes.window, sizes.lags),
            "extra_mean": (extra,),
            "extra_directions": (extra, sizes.extra),
            "common_mean": (common,),
            "common_directions": (common, sizes.common),
        }
        if codes:
            shapes |= {"ahead_mean": (codes,), "ahead_directions": (codes, sizes.ahead)}
        if sizes.clock:
            shapes["timeless"] = (sizes.groups, features - sizes.clock, sizes.horizon * sizes.outputs)
        for name, shape in shapes.items():
            _same(f"network.readout.{name}", state.get(f"readout.{name}"), shape, dtype)


# The only classes that a file can name.
CLASSES: dict[str, type] = {
    name: getattr(module, name)
    for module in (
        classes, data, encoder, forecasts, gradient, inputs, network, options, readout, regression, report, sampling, steps
    )
    for name in module.__all__
    if isinstance(getattr(module, name), type) and dataclasses.is_dataclass(getattr(module, name))
} | {
    made.__name__: made
    for made in (Calendar, LagSizes, LagSettings, NetworkSettings, Pace, Profile, TraceSettings, VoltageSettings, *TABLES)
}  # fmt: skip


def file_fields(kind: type) -> list[str]:
    """Return the fields of a class that a file holds: all but those that are of a process, such as paths."""
    return [field.name for field in dataclasses.fields(kind) if field.metadata.get("in_files", True)]


def build(where: str, name: object, fields: Mapping[str, Any], optional: set[str]) -> object:
    """Return an object of the class of that name, if a file may hold it and its fields are right.

    `optional` are fields that are left to their defaults. Option objects check themselves, as those of users do.
    """
    kind = CLASSES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Damaged(f"{where} is of an unknown class {name!r}")
    # Files of earlier versions lack some fields.
    later = {field.name for field in dataclasses.fields(kind) if field.metadata.get("later")} - set(fields)
    check_keys(where, {**fields, **dict.fromkeys(optional | later)}, file_fields(kind))
    if not issubclass(kind, Options):
        hints = get_type_hints(kind)
        for key, value in fields.items():
            check_type(f"{where}.{key}", value, hints[key])
    return kind(**fields)


def _same(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != dtype:
        got = "none" if tensor is None else f"{tuple(tensor.shape)} of {tensor.dtype}"
        raise Damaged(f"{name} must have the shape {shape} of {dtype}, got {got}")


def check_model(model: ForecastModel | ClassModel) -> None:
    """Refuse a fitted model whose parts do not fit together, or whose numbers are no numbers."""
    found = model.network
    for name, tensor in found.state_dict().items():
        _finite(f"network.{name}", tensor.cpu().numpy())
        if name.endswith("supports") and bool((tensor <= 0).any()):
            raise Damaged(f"network.{name} must be > 0")
    _check_memory(found)
    parse_memory(model.memory)
    if isinstance(model, ForecastModel):
        _check_series(model)
    else:
        _check_inputs(model.inputs)
        if (found.inputs, found.window, found.horizon) != (model.inputs.channels, model.inputs.steps, model.readout.horizon):
            raise Damaged("the network and what enters it have different sizes")
        if isinstance(model.readout, Counts) != isinstance(found.readout, TraceReadout):
            raise Damaged("the network's output is not that of the readout")
        if model.classes.shape != (found.outputs,) or len(set(model.classes.tolist())) < max(found.outputs, 2):
            raise Damaged(f"there must be {found.outputs} different classes, got {model.classes!r}")
    _check_report(found, model.report)


def _check_memory(found: SpikingNetwork) -> None:
    """Refuse a network whose filters take more memory than the machine has."""
    taken = sum(layer.neurons for layer in found.layers) * found.steps**2 * found.readout.weights.element_size()
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return
    if taken > there:
        steps, room = f"{sum(found.hidden)} neurons on {found.steps} steps", f"there are {there / 1e9:.3g} GB"
        raise Damaged(f"{steps} take {taken / 1e9:.3g} GB of memory, and {room}")


def _finite(name: str, value: np.ndarray) -> None:
    if not np.isfinite(value).all():
        raise Damaged(f"{name} must be finite, but holds NaN or infinity")


def _check_series(model: ForecastModel) -> None:
    """Refuse an encoder that is not right, or not the network's."""
    series, found = model.encoder, model.network
    columns = _check_encoder(series)
    outputs = 1 if series.shared else len(series.moving)
    if (found.inputs, found.window, found.outputs) != (series.inputs, series.window, outputs):
        raise Damaged("the network and the encoder have different sizes")
    out = found.readout
    if isinstance(out, LagReadout):
        groups = len(series.moving) if series.shared else 1
        # A network that is trained from scratch has one set of weights for all channels.
        inputs = out.sizes.covariates, out.sizes.known, out.sizes.clock
        waves = 0 if series.calendar is None else series.calendar.features
        if out.sizes.groups not in {groups, 1} or inputs != (len(series.covariates), len(series.known), waves):
            raise Damaged("the network's output and the encoder have different sizes")
    check_choice("missing", model.missing, ("error", "interpolate"))
    if model.columns is not None and len(set(model.columns)) != columns:
        raise Damaged(f"columns must be {columns} different names, got {model.columns!r}")
    quantiles = model.report.solution.quantiles
    if quantiles is not None:
        wanted = (len(LEVELS), found.horizon, len(series.moving))
        if quantiles.dtype.kind != "f" or quantiles.shape != wanted:
            raise Damaged(f"quantiles must be numbers of the shape {wanted}, got {quantiles.shape}")
        _finite("quantiles", quantiles)


def _check_encoder(series: SeriesEncoder) -> int:
    """Return the number of columns, if an encoder's numbers are right."""
    columns = series.low.size
    for name in ("low", "high", "offset", "span", "floor", "outliers"):
        value, shape = getattr(series, name), (2, columns) if name == "outliers" else (columns,)
        if value.shape != shape or value.dtype != np.float64 or not columns:
            raise Damaged(f"encoder.{name} must have the shape {shape} of float64, got {value.shape} of {value.dtype}")
        unbounded = name in ("floor", "outliers")  # infinite where there are none, but never NaN
        _finite(f"encoder.{name}", value[~np.isinf(value)] if unbounded else value)
    if (series.span <= 0).any() or (series.low > series.high).any() or (series.floor == np.inf).any():
        raise Damaged("encoder: span must be > 0, low at most high, and floor below infinity")
    seen = series.covariates
    if sorted(set(seen)) != list(seen) or not set(seen) < set(range(columns)):
        raise Damaged(f"covariates must be some of {columns} columns, in order, got {seen!r}")
    if sorted(set(series.resting)) != list(series.resting) or not set(series.resting) < set(series.channels):
        raise Damaged(f"resting must be some of the channels {series.channels!r}, in order, got {series.resting!r}")
    if sorted(series.moving) != [c for c in series.channels if c not in series.resting]:
        raise Damaged(f"moving must be all channels that do not rest, got {series.moving!r}")
    if len(set(series.known)) != len(series.known) or not set(series.known) <= set(seen):
        raise Damaged(f"known must be some of the covariates {seen!r}, got {series.known!r}")
    return columns


def _check_inputs(found: InputEncoder) -> None:
    """Refuse sizes of samples that are none."""
    for name, value in (("shape", found.shape), ("layout", found.layout), ("pixels", found.pixels or (1,))):
        if not value or not all(0 < size < 2**31 for size in value):
            raise Damaged(f"inputs.{name} must be whole numbers >= 1, got {value!r}")
    if (found.encoder is None or isinstance(found.encoder, ExactEvents)) and len(found.shape) != 2:
        raise Damaged(f"inputs.shape must be steps and channels, got {found.shape!r}")
    if found.pixels is not None and len(found.pixels) != 3:
        raise Damaged(f"inputs.pixels must be polarities, rows and columns, got {found.pixels!r}")
    intensities = found.encoder is not None and not isinstance(found.encoder, ExactEvents)
    if intensities != (found.scale is not None):
        raise Damaged(f"inputs.scale must be there for intensities only, got {found.scale!r}")
    if found.scale is not None and not -math.inf < found.scale[0] < found.scale[1] < math.inf:
        raise Damaged(f"inputs.scale must be two finite numbers, the lower one first, got {found.scale!r}")


def _check_report(found: SpikingNetwork, made: SamplingReport) -> None:
    """Refuse a report that is not the network's."""
    solution = made.solution
    if len(made.layers) != len(found.hidden):
        raise Damaged(f"the report tells of {len(made.layers)} layers, the network has {len(found.hidden)}")
    for neurons, layer in zip([layer.neurons for layer in found.layers], made.layers, strict=True):
        if tuple(layer.rates.shape) != (neurons,) or not layer.rates.is_floating_point() or layer.pairs.ndim != 2:
            raise Damaged(f"the report of a layer of {neurons} neurons is of another")
    if not solution.lambdas.numel() or not solution.lambdas.is_floating_point():
        raise Damaged("the report has no lambdas")
    if not 0 < solution.temperature < math.inf:
        raise Damaged(f"temperature must be a finite number > 0, got {solution.temperature!r}")
    if (solution.kept is None) != (solution.gains is None) or set(solution.kept or ()) != set(solution.gains or ()):
        raise Damaged("the report's shares and gains are of different models")
    trained = solution.training
    if trained is not None and not 0 <= trained.best_epoch < len(trained.records):
        raise Damaged(f"best_epoch must be one of {len(trained.records)} epochs, got {trained.best_epoch}")
