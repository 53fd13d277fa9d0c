"""What a model is in words, its settings, its costs, and the versions of everything."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from sswim._version import __version__
from sswim.classes import ClassModel
from sswim.evaluate.costs import COLUMNS, Costs
from sswim.forecasts import ForecastModel
from sswim.network.convolution import NO_LEAK, ConvolutionLayer
from sswim.network.output import VoltageReadout
from sswim.options import Options
from sswim.page.blocks import Section, Table, Words, shown
from sswim.page.origins import paired
from sswim.readout.lags import LagReadout

__all__ = ["about_classifier", "about_forecaster", "cost_section", "fit_section", "settings_section"]

# Packages that a report depends on.
PACKAGES = ("torch", "numpy", "pandas", "scikit-learn", "altair", "vl-convert-python")


def _layers(model: ForecastModel | ClassModel) -> str:
    """Return the hidden layers in words."""
    parts = []
    for layer in model.network.layers:
        leak = ", no leak" if bool((layer.supports >= NO_LEAK).all()) else ""
        what = "filters" if isinstance(layer, ConvolutionLayer) else "neurons"
        parts.append(f"{shown(layer.neurons)} {what} ({str(layer.kernel).partition('(')[0]} kernel{leak})")
    return " and then ".join(parts)


def _how(model: ForecastModel | ClassModel, units: str) -> str:
    report = model.report
    seconds = sum(step.seconds for step in report.steps)
    training = report.solution.training
    how = "sampled from data, without gradients" if training is None else "trained further by surrogate gradients"
    return (
        f"Its hidden layers were {how}. The fit took {shown(seconds, 3)} s and used "
        f"{shown(report.samples + report.validation_samples)} {units}."
    )


def about_forecaster(model: ForecastModel) -> list[str]:
    """Return what a forecaster is."""
    encoder, readout = model.encoder, model.network.readout
    channels = len(encoder.channels)
    first = (
        f"This is a spiking neural network that looks at the last {shown(model.window)} rows of a series and forecasts the "
        f"next {shown(model.horizon)} rows of {shown(channels)} channel{'s' * (channels != 1)}."
    )
    if encoder.covariates:
        first += f" It also sees {len(encoder.covariates)} covariates, {len(encoder.known)} of them known ahead."
    share = "Each channel goes through the same network of" if encoder.shared else "All channels enter one network of"
    second = f"{share} {_layers(model)}."
    if isinstance(readout, LagReadout):
        second += (
            f" Besides these sampled neurons, two populations of {shown(readout.population.neurons)} neurons carry each "
            "channel's values as spikes. The output has separate weights for each step ahead"
        )
        second += ", which read the rows of the window and spikes." if readout.skip else ", which read spikes and nothing else."
    elif isinstance(readout, VoltageReadout):
        second += " The voltages of output neurons draw the forecast over time, as in the paper."
    return [first, second, _how(model, "windows of one channel" if encoder.shared else "windows")]


def about_classifier(model: ClassModel) -> list[str]:
    """Return what a classifier is."""
    inputs, network = model.inputs, model.network
    shape = " x ".join(map(str, inputs.shape))
    encoder = "signals in time" if inputs.encoder is None else f"spikes ({type(inputs.encoder).__name__} encoder)"
    first = (
        f"This is a spiking neural network that tells {len(model.classes)} classes apart. A sample has the shape {shape} and "
        f"enters as {encoder}, over {shown(network.window)} steps."
    )
    second = f"The hidden layers have {_layers(model)}."
    if isinstance(network.readout, VoltageReadout):
        second += " The class is that of the output neuron with the largest voltage or the most spikes."
    else:
        second += " The output reads how often each hidden neuron fired, and nothing else."
    return [first, second, _how(model, "samples")]


def cost_section(costs: Costs) -> Section:
    """Return the section on costs: of each layer, on several kinds of hardware, and of other models for the same job."""
    names = tuple(COLUMNS)
    layers = [(layer.name, *(shown(float(getattr(layer, COLUMNS[n]))) for n in names)) for layer in costs.layers]
    total = ("all", *(shown(float(getattr(costs, COLUMNS[n]))) for n in names))
    energy = [(each.hardware, str(each), "yes" if each.memory else "no") for each in costs.energy]
    others = [(m.title, *(shown(float(getattr(m, COLUMNS[n]))) for n in names)) for m in costs.compare().models]
    words = f"What one {costs.unit} takes, on average over {shown(costs.samples)} of them. {costs}."
    note = "Energies are ranges from published figures."
    return Section(
        "costs",
        "Costs",
        [
            Words([words]),
            Table("Layer by layer", ("layer", *names), [*layers, total]),
            Table("Energy", ("hardware", f"energy per {costs.unit}", "with access to memory"), energy, note),
            Table("Other models for the same job", ("model", *names), others),
        ],
    )


def fit_section(model: ForecastModel | ClassModel) -> Section:
    """Return the section on how the model was fitted."""
    steps = model.report.steps
    rows = [(s.name, f"{s.seconds:.2f}", "-" if s.peak_memory is None else f"{s.peak_memory / 2**20:,.0f}") for s in steps]
    rows.append(("all", f"{sum(s.seconds for s in steps):.2f}", ""))
    metrics = [
        (f"hidden {l + 1}", report.input_metric or "-", report.output_metric or "-")
        for l, report in enumerate(model.report.layers)
    ]
    words = "A pair of training samples makes a neuron: pairs with similar inputs and different targets are likely."
    if not paired(model.report):
        words = "Training by gradients began from random parameters."
    return Section(
        "fit",
        "How it was fitted",
        [
            Words([words]),
            Table("Distances that pairs were drawn by", ("layer", "between inputs", "between targets"), metrics),
            Table("Steps of the fit", ("step", "seconds", "peak memory, MiB"), rows),
        ],
    )


def _setting(value: object) -> str:
    if isinstance(value, Options):
        inside = ", ".join(f"{name}={_setting(inner)}" for name, inner in value.get_params().items())
        return f"{type(value).__name__}({inside})"
    return str(value) if isinstance(value, str) else repr(value)


def settings_section(params: Mapping[str, object], data: str) -> Section:
    """Return the section on settings and versions."""
    rows = [(name, _setting(value)[:400]) for name, value in params.items()]
    versions = [("sswim", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            versions.append((name, version(name)))
        except PackageNotFoundError:
            continue
    made = f"Made on {datetime.now().astimezone():%Y-%m-%d %H:%M %Z} from {data}."
    return Section(
        "settings",
        "Settings and versions",
        [
            Table("Settings of the estimator", ("setting", "value"), rows),
            Table("Versions", ("package", "version"), versions),
            Words([made]),
        ],
    )
