"""Neurons of a classifier, one by one: what they see, which classes they tell apart, and the pair that made them."""

from __future__ import annotations

import numpy as np

from sswim.classes import ClassModel
from sswim.network.convolution import ConvolutionLayer
from sswim.network.layer import SpikingLayer
from sswim.page import charts
from sswim.page.blocks import Figure, Key, Section, Stepper, Table, Words, plain_facts, shown
from sswim.page.neurons import Watched, kernel_figure, spread_out, time_facts, weights_figure
from sswim.page.origins import ClassPairs, paired
from sswim.page.pictures import Gallery, signed_picture
from sswim.report import Facts

__all__ = ["neuron_section"]

# Weights of a neuron that are shown as bars, and classes.
WEIGHTS, CLASSES = 12, 20


def neuron_section(model: ClassModel, seen: Watched, true: np.ndarray | None, most: int, pairs: ClassPairs | None) -> Section:
    """Return the section with neurons one by one; `true` are the classes of the samples that were watched."""
    gallery, layers = Gallery(model), []
    for l in range(len(model.network.layers)):
        counts = seen.counts[l]
        chosen = (
            spread_out(counts.shape[1], most) if true is None else np.argsort(-_separation(counts, true), kind="stable")[:most]
        )
        neurons = [_neuron(model, seen, true, l, int(i), gallery) for i in chosen]
        if pairs is not None:
            for neuron, v in zip(neurons, pairs.potentials(l, [int(i) for i in chosen]), strict=True):
                neuron["pair"] = _pair(pairs, l, neuron["number"], gallery) | {"potentials": v}
        layers.append(neurons)
    total, here = sum(model.network.hidden), sum(map(len, layers))
    words = []
    if paired(model.report):
        words.append("A neuron was made to tell two training samples apart that look alike but are of different classes.")
    order = "evenly spread" if true is None else "those that tell classes apart best, the best first"
    words.append(f"{shown(here)} of {shown(total)} neurons are shown: {order}." if here < total else "The best come first.")
    if pairs is None and paired(model.report):
        words.append(
            "To see the two samples that made each neuron, make this report with the training samples (train=..., --train)."
        )
    data: Facts = {"layers": layers, "classes": [str(c) for c in model.classes], "shape": gallery.shape}
    figures = _figures(gallery, min(len(model.classes), CLASSES), true is not None, pairs is not None)
    names = [f"hidden {l + 1}" for l in range(len(layers))]
    stepper = Stepper("neurons", "neuron", "class_neurons", figures, plain_facts(data, 4), "Layer", names)
    return Section("neurons", "Neurons, one by one", [Words(words), stepper])


def _separation(counts: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return how well each neuron tells classes apart: the part of the variance of its spikes that classes explain."""
    total = counts.var(axis=0)
    mean, between = counts.mean(axis=0), np.zeros(counts.shape[1])
    for c in np.unique(true):
        inside = true == c
        between += inside.mean() * (counts[inside].mean(axis=0) - mean) ** 2
    return between / np.where(total > 0, total, 1)


def _neuron(model: ClassModel, seen: Watched, true: np.ndarray | None, l: int, number: int, gallery: Gallery) -> Facts:
    """Return the facts of one neuron."""
    layer, counts = model.network.layers[l], seen.counts[l][:, number]
    weights = layer.weights[number].detach().double().cpu().numpy()
    facts: Facts = {
        "number": number,
        "rate": seen.rates(l)[number],
        "fit": float(model.report.layers[l].rates[number]),
        **time_facts(layer, number, model.network.window),
    }
    if l == 0 and gallery.kind == "image":
        facts["field"] = signed_picture(gallery.laid_out(_field(layer, weights)))
    else:
        largest = np.argsort(-np.abs(weights), kind="stable")[:WEIGHTS]
        name = "input" if l == 0 else f"hidden {l}, neuron"
        facts["weights"] = [{"name": f"{name} {j}", "y": weights[j]} for j in largest]
    if true is not None:
        there = [c for c in range(len(model.classes)) if (true == c).any()]
        means = np.array([counts[true == c].mean() for c in there])
        kept = np.sort(np.argsort(-np.abs(means - means.mean()), kind="stable")[:CLASSES])
        facts["means"] = {"classes": [there[k] for k in kept], "spikes": means[kept]}
        facts["explained"] = _separation(counts[:, None], true)[0]
    return facts


def _field(layer: SpikingLayer, weights: np.ndarray) -> np.ndarray:
    """Return the weight of each channel; a filter is shown at the place in the middle."""
    if not isinstance(layer, ConvolutionLayer):
        return weights
    channels = np.zeros(layer.inputs + 1)
    channels[layer.index[:, layer.grid.middle].cpu().numpy()] = weights
    return channels[:-1]


def _pair(pairs: ClassPairs, l: int, number: int, gallery: Gallery) -> Facts:
    """Return the facts of the pair behind a neuron."""
    numbers = pairs.numbers(l, number).tolist()
    return {
        "numbers": numbers,
        "alone": numbers[0] == numbers[1],
        "classes": [int(pairs.classes[n]) for n in numbers],
        "pictures": [gallery.picture(pairs.samples, n) for n in numbers],
    }


def _pair_figures(gallery: Gallery) -> list[Figure]:
    """Return the figures of the pair behind a neuron."""
    found = []
    for which, name in enumerate(("first", "second")):
        text = f"The {name} of the two training samples that made the neuron."
        spec = charts.picture_of_rows(text, shape=gallery.shape, square=gallery.kind == "image")
        found.append(Figure(f"pair_{which}", spec, f"Pair: {name} sample", text, canvas=True))
    keys = [Key("first", "line", "first sample"), Key("second", "line", "second sample")]
    text = "The neuron's membrane potential on both samples. It fires where the potential reaches the dashed line."
    spec = charts.lines_of_rows(2, "step", "potential", text, threshold=True)
    table = Table("Potentials", ("step", "first sample", "second sample"))
    return [*found, Figure("potentials", spec, "What it makes of them", text, keys, table)]


def _figures(gallery: Gallery, classes: int, known: bool, pair_known: bool) -> list[Figure]:
    """Return the figures of one neuron."""
    found = _pair_figures(gallery) if pair_known else []
    if known:
        text = "Mean number of spikes on samples of each class."
        spec = charts.bars_of_rows("spikes per sample", text, count=classes)
        table = Table("Spikes by class", ("class", "spikes per sample"))
        found.append(Figure("means", spec, "What it separates here", text, (), table))
    if gallery.kind == "image":
        text = "Weights of the inputs: blue excites, orange inhibits, and elsewhere the neuron sees nothing."
        spec = charts.picture_of_rows(text, shape=gallery.shape, signed=True)
        keys = [Key("first", "dot", "excites"), Key("second", "dot", "inhibits")]
        found.append(Figure("field", spec, "Receptive field", text, keys, canvas=True))
    return [*found, weights_figure(WEIGHTS), kernel_figure()]
