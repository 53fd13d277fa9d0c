"""Neurons of a forecaster, one by one: kernel, weights, what they fire for, and the pair of windows that made them."""

from __future__ import annotations

import numpy as np

from sswim.forecasts import ForecastModel
from sswim.page import charts
from sswim.page.blocks import Figure, Key, Section, Stepper, Table, Words, plain_facts, shown
from sswim.page.neurons import Watched, by_delay, kernel_figure, time_facts, weights_figure
from sswim.page.origins import SeriesPairs, paired
from sswim.report import Facts

__all__ = ["input_names", "neuron_section"]

# Weights of a neuron that are shown, and the part of the windows that counts as those in which it fires most, or least.
WEIGHTS, PART = 12, 0.1


def input_names(model: ForecastModel) -> list[str]:
    """Return what the inputs of the network are."""
    encoder, columns = model.encoder, model.columns

    def name(column: int) -> str:
        return str(column if columns is None else columns[column])

    of = ["value"] if encoder.shared else [name(c) for c in encoder.moving]
    views = ["", " - mean of the window"] if encoder.scaling.kind == "adaptive" else [""]
    return [f"{channel}{view}" for view in views for channel in of] + [name(c) for c in encoder.covariates]


def neuron_section(
    model: ForecastModel, seen: Watched, past: np.ndarray, truth: np.ndarray, most: int, pairs: SeriesPairs | None
) -> Section:
    """Return the section with neurons one by one; `past` and `truth` are (forecasts, rows, channels)."""
    shapes = _shapes(model, past, truth)  # (samples, channels seen, W + H)
    layers = [
        [_neuron(model, seen, shapes, l, int(i), pairs) for i in by_delay(layer, most)]
        for l, layer in enumerate(model.network.layers)
    ]
    if pairs is not None:
        for l, neurons in enumerate(layers):
            for neuron, v in zip(neurons, pairs.potentials(l, [n["number"] for n in neurons]), strict=True):
                neuron["pair"]["potentials"] = v
    total, here = model.network.hidden, [len(neurons) for neurons in layers]
    words = ["Step through the neurons, from short delays to long ones."]
    if paired(model.report):
        words.append(
            "A neuron was made to tell two training windows apart that look alike but are followed by different values."
        )
    words += (
        []
        if list(total) == here
        else [f"{shown(sum(here))} of {shown(sum(total))} neurons are shown, evenly spread over delays."]
    )
    if pairs is None and paired(model.report):
        words.append(
            "To see the two windows that made each neuron, make this report with the training rows (train=..., --train)."
        )
    data: Facts = {"layers": layers, "window": model.window}
    names = [f"hidden {l + 1}" for l in range(len(layers))]
    figures = _figures(pairs is not None, max(layer.senders for layer in model.network.layers))
    stepper = Stepper("neurons", "neuron", "series_neurons", figures, plain_facts(data, 4), "Layer", names)
    return Section("neurons", "Neurons, one by one", [Words(words), stepper])


def _figures(pair_known: bool, weights: int) -> list[Figure]:
    """Return the figures of one neuron, which has at most `weights` weights."""
    most, least = (
        Key("first", "line", "windows in which it fires most"),
        Key("second", "line", "windows in which it fires least"),
    )
    text = (
        "Mean of the windows shown here in which the neuron fires most and least, and of what came after (right of the line)."
    )
    profile = Figure(
        "profile", charts.lines_of_rows(2, "steps from the last row seen", "deviations from the mean", text, origin=True),
        "What it separates here", text, [most, least], Table("Mean windows", ("step", "fires most", "fires least")),
    )  # fmt: skip
    others = [kernel_figure(), weights_figure(min(weights, WEIGHTS))]
    if not pair_known:
        return [profile, *others]
    keys = [Key("first", "line", "first window"), Key("second", "line", "second window")]
    text = "The two training windows that made the neuron, and what came after (right of the line)."
    pair = Figure(
        "pair", charts.lines_of_rows(2, "steps from the last row seen", "deviations from the mean", text, origin=True),
        "The pair that made it", text, keys, Table("The two windows", ("step", "first window", "second window")),
    )  # fmt: skip
    text = "The neuron's membrane potential on both windows. It fires where the potential reaches the dashed line."
    potentials = Figure(
        "potentials", charts.lines_of_rows(2, "step of the window", "potential", text, threshold=True), "What it makes of them",
        text, keys, Table("Potentials", ("step", "first window", "second window")),
    )  # fmt: skip
    return [pair, potentials, profile, *others]


def _shapes(model: ForecastModel, past: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return windows and what came, relative to the window's mean, in deviations: (samples, channels seen, rows)."""
    encoder = model.encoder
    places = np.searchsorted(encoder.channels, encoder.moving)
    both = np.concatenate([past - past.mean(axis=1, keepdims=True), truth - past.mean(axis=1, keepdims=True)], axis=1)
    both = (both / encoder.span[encoder.channels])[:, :, places].transpose(0, 2, 1)  # (n, moving, W + H)
    return both.reshape(-1, 1, both.shape[2]) if encoder.shared else both


def _neuron(model: ForecastModel, seen: Watched, shapes: np.ndarray, l: int, number: int, pairs: SeriesPairs | None) -> Facts:
    """Return the facts of one neuron."""
    layer, counts = model.network.layers[l], seen.counts[l][:, number]
    weights = layer.weights[number].detach().cpu().numpy()
    names = input_names(model) if l == 0 else [f"hidden {l}, neuron {j}" for j in range(layer.senders)]
    largest = np.argsort(-np.abs(weights), kind="stable")[:WEIGHTS]
    part, order = max(1, int(PART * len(counts))), np.argsort(counts, kind="stable")
    low, high = shapes[order[:part]].mean(axis=0), shapes[order[-part:]].mean(axis=0)  # (channels seen, W + H)
    channel = int(np.abs(high - low).sum(axis=1).argmax())
    facts: Facts = {
        "number": number,
        "rate": seen.rates(l)[number],
        "fit": float(model.report.layers[l].rates[number]),
        **time_facts(layer, number, model.window),
        "weights": [{"name": names[j], "y": weights[j]} for j in largest],
        "senders": layer.senders,
        "profile": [high[channel], low[channel]] if counts.min() < counts.max() else None,
        "counts": [counts[order[-part:]].mean(), counts[order[:part]].mean()],
        "channel": "" if model.encoder.shared else input_names(model)[channel].removesuffix(" - mean of the window"),
    }
    if pairs is not None:
        facts["pair"] = _pair(pairs, l, number, channel)
    return facts


def _pair(pairs: SeriesPairs, l: int, number: int, channel: int) -> Facts:
    """Return the facts of the pair behind a neuron."""
    names = pairs.model.columns
    described = []
    for sample in pairs.numbers(l, number).tolist():
        column, end = pairs.label(sample)
        of = "" if column is None else f"{column if names is None else names[column]}, "
        described.append(f"{of}up to {end}")
    return {"names": described, "alone": described[0] == described[1], "shapes": pairs.shapes(l, number, channel)}
