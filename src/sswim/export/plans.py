"""What is exported: a module with examples of its inputs, and what a host should know. What cannot be is refused here."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sswim.classes import ClassModel
from sswim.classifier import Classifier
from sswim.data.events import ExactEvents
from sswim.export.estimators import FrozenClasses, FrozenForecasts
from sswim.export.frozen import FrozenNetwork
from sswim.export.steps import ClassStep, ForecastStep, NetworkStep, Stepwise
from sswim.forecaster import Forecaster
from sswim.forecasts import ForecastModel
from sswim.network.network import SpikingNetwork
from sswim.options import check_choice, check_integer
from sswim.readout.lags import LagReadout
from sswim.readout.voltage import Voltage

__all__ = ["FORMS", "Exportable", "Facts", "Plan", "plan"]

Exportable = Forecaster | Classifier | SpikingNetwork
Facts = dict[str, object]  # plain JSON
FORMS = ("window", "step")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Samples of an example batch: torch takes a size of 1 for a constant.
EXAMPLE = 3


@dataclass(frozen=True)
class Plan:
    """A module to be exported.

    Attributes
    ----------
    module : nn.Module
    inputs : dict of Tensor
        Examples of the inputs, by name, without the state.
    output : str
        Name of the output.
    facts : dict
        What a host should know, as plain JSON.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    output: str
    facts: Facts

    @property
    def state(self) -> dict[str, Tensor]:
        """The state before the first row of the examples; empty for whole windows."""
        return self.module.start(len(next(iter(self.inputs.values())))) if isinstance(self.module, Stepwise) else {}

    @property
    def arguments(self) -> Facts:
        """The module's arguments, by name."""
        return self.inputs | ({"state": self.state} if self.state else {})


def _check_filters(network: SpikingNetwork, form: str) -> None:
    """Refuse filters that take one row at a time."""
    if network.convolutions and form == "step":
        raise ValueError(
            "form: 'step' needs dense layers, and this network has a Convolution. Use form='window', or dense layers such as "
            "hidden=(1000,)."
        )


def plan(model: object, form: str, dtype: str | None, batch: int | None, times: bool = False) -> Plan:
    """Check what is to be exported, and return it as a module with examples; `batch` is their number, or None for any."""
    check_choice("form", form, FORMS)
    if dtype is not None:
        check_choice("dtype", dtype, tuple(DTYPES))
    count = EXAMPLE if batch is None else check_integer("batch", batch, 1)
    if isinstance(model, SpikingNetwork):
        own = model.readout.weights.dtype if dtype is None else DTYPES[dtype]
        return _of_network(copy.deepcopy(model).cpu().to(own), form, count)
    if not isinstance(model, (Forecaster, Classifier)):
        raise TypeError(f"model must be a fitted Forecaster or Classifier, or a SpikingNetwork, got {model!r:.200}.")
    check_is_fitted(model)
    network, outer = copy.deepcopy(model.network_).cpu(), DTYPES[dtype or "float64"]
    network = network.float() if dtype == "float32" else network
    if isinstance(model, Forecaster):
        if times and not model.model_.reads_calendar:
            raise ValueError("times: forecasts of this model do not depend on the time of day, week or year. Omit times.")
        fitted = replace(model.model_, network=network)
        return _of_forecaster(fitted if times else fitted.timeless(), form, outer, count)
    return _of_classifier(replace(model.model_, network=network), form, outer, count)


def _of_network(network: SpikingNetwork, form: str, batch: int) -> Plan:
    """Return the plan of a bare network, whose inputs are those of `SpikingNetwork.forward`, or rows of these."""
    _check_filters(network, form)
    readout, generator = network.readout, torch.Generator().manual_seed(0)
    if isinstance(readout, LagReadout) and (readout.sizes.groups > 1 or readout.sizes.known or readout.sizes.clock):
        raise ValueError(
            "model: channels share this network, or covariates or times are known ahead: its batches must be built from "
            "series. Export the Forecaster that the network is of."
        )
    facts: Facts = {"model": "SpikingNetwork", "form": form, "window": network.window, "horizon": network.horizon}
    facts |= {"first_output_step": network.start, "units": "the network's own"}
    shape = (batch, network.inputs) if form == "step" else (batch, network.window, network.inputs)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64).to(readout.weights)
    if form == "step":
        return Plan(NetworkStep(network), {"row": x}, "output", facts)
    return Plan(FrozenNetwork(network), {"x": x}, "output", facts)


def _of_forecaster(model: ForecastModel, form: str, dtype: torch.dtype, batch: int) -> Plan:
    """Return the plan of a forecaster, from rows to forecasts in the data's own units."""
    encoder, module = model.encoder, FrozenForecasts(model, dtype)
    names: Sequence[Hashable] = range(encoder.columns) if model.columns is None else model.columns
    facts: Facts = {"model": "Forecaster", "form": form, "window": model.window, "horizon": model.horizon}
    facts |= {"columns": _plain(names), "channels": _plain([names[c] for c in encoder.channels])}
    facts |= {"units": "those of the data that the model was fitted to, for rows and forecasts"}
    facts |= {"missing": "fill missing values before; a window that holds NaN or infinity has forecasts of NaN"}
    random = np.random.default_rng(0)

    def rows(count: int, columns: list[int]) -> Tensor:
        low, high = encoder.low[columns], encoder.high[columns]
        return torch.from_numpy(low + (high - low) * random.random((batch, count, len(columns)))).to(dtype)

    ahead = {}
    if encoder.known:
        facts["known"] = _plain([names[c] for c in encoder.known])
        ahead = {"future": rows(model.horizon, list(encoder.known))}
    if encoder.calendar is not None:
        facts["time"] = "wall-clock time of the last row, in whole seconds since 1970-01-01 00:00"
        ahead["time"] = torch.arange(batch) * 5000 + 1_700_000_000
    every = rows(model.window, list(range(encoder.columns)))
    if form == "step":
        facts["warm_up"] = f"forecasts are NaN until {model.window} rows have come"
        return Plan(ForecastStep(module), {"row": every[:, -1], **ahead}, "forecast", facts)
    return Plan(module, {"rows": every, **ahead}, "forecast", facts)


def _of_classifier(model: ClassModel, form: str, dtype: torch.dtype, batch: int) -> Plan:
    """Return the plan of a classifier, from samples to probabilities."""
    _check_filters(model.network, form)
    inputs, encoder = model.inputs, model.inputs.encoder
    events = isinstance(encoder, ExactEvents)
    if isinstance(encoder, ExactEvents) and encoder.exact:
        raise ValueError(
            "model: it takes events at exact times, and tensors have none. Fit it with encoder=ExactEvents(exact=False, ...), "
            "and let the host count events on whole steps."
        )
    if encoder is not None and not events and inputs.spikes is not None and inputs.spikes.draws:
        raise ValueError(
            f"model: its encoder, {encoder}, draws spikes at random, and an exported model does not. Fit it with "
            "encoder='image' or 'rate', or export its network_ and let the host draw."
        )
    if form == "step" and encoder is not None and not events:
        raise ValueError(
            "form: 'step' needs samples with a time of their own, (samples, steps, channels), but this model encodes a whole "
            "sample. Use form='window', or export its network_, whose rows are spikes."
        )
    if form == "step" and isinstance(model.readout, Voltage):
        raise ValueError(
            "form: 'step' needs readout='direct': a voltage is integrated after the sample's end. Use form='window', or export "
            "the model's network_, whose output is the voltage at every step."
        )
    facts: Facts = {"model": "Classifier", "form": form, "classes": _plain(model.classes.tolist()), "window": inputs.steps}
    facts |= {"sample_shape": list(inputs.shape), "encoder": str(encoder)}
    facts |= {"units": "numbers of events per step and channel" if events else "those of the samples of the fit"}
    facts |= {"missing": "a sample that holds NaN or infinity has probabilities of NaN"}
    low, high = (0.0, 1.0) if inputs.scale is None else inputs.scale
    random = torch.rand(batch, *inputs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples = (low + (high - low) * random).to(dtype)
    if form == "step":
        return Plan(ClassStep(model, dtype), {"row": samples[:, 0]}, "probabilities", facts)
    return Plan(FrozenClasses(model, dtype), {"samples": samples}, "probabilities", facts)


def _plain(names: Sequence[Hashable]) -> list[str | int | float | bool]:
    """Return names as JSON has them."""
    return [name if isinstance(name, (str, int, float, bool)) else str(name) for name in names]
