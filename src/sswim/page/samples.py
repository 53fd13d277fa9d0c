"""What is shown of a classifier: samples one by one, confusions, and what its neurons tell apart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import confusion_matrix

from sswim.classes import ClassModel
from sswim.data.labelled import LabelledSamples
from sswim.data.windows import Subset
from sswim.network.events import dense
from sswim.page import charts
from sswim.page.blocks import Block, Figure, Key, Section, Stepper, Table, Words, packed, plain_facts, plain_rows, shown
from sswim.page.class_neurons import neuron_section
from sswim.page.limits import Found, Limits
from sswim.page.neurons import firing, kernel_section, spread_out, watch
from sswim.page.origins import ClassPairs, class_numbers
from sswim.page.pictures import Gallery
from sswim.page.words import cost_section
from sswim.profiles import bits_of
from sswim.readout.decaying import TraceReadout
from sswim.report import Facts

__all__ = ["class_sections"]

# Classes of a sample and in the confusion matrix, samples that rates and that costs are taken of, and inputs in a raster.
CLASSES, CONFUSED, WATCHED, COSTED, INPUTS = 12, 40, 1000, 200, 40


@dataclass(frozen=True)
class Tested:
    """Samples and what the model says of them.

    Attributes
    ----------
    model : ClassModel
    samples : LabelledSamples
    decisions, probabilities : array of shape (samples, classes)
    said : array of shape (samples,)
        Numbers of the classes that the model says.
    true : array of shape (samples,), or None
        Numbers of the true classes, if they are known.
    """

    model: ClassModel
    samples: LabelledSamples
    decisions: np.ndarray
    probabilities: np.ndarray
    said: np.ndarray
    true: np.ndarray | None

    @property
    def names(self) -> list[str]:
        """Names of the classes."""
        return [str(c) for c in self.model.classes]

    @property
    def wrong(self) -> np.ndarray:
        """Numbers of the samples whose class is another than what the model says, those that it is surest of first."""
        if self.true is None:
            return np.zeros(0, dtype=int)
        found = np.flatnonzero(self.said != self.true)
        return found[np.argsort(-self.probabilities[found].max(axis=1), kind="stable")]


def _test(model: ClassModel, X: object, y: object) -> Tested:
    """Classify samples."""
    samples = model.samples(X)
    if not len(samples):
        raise ValueError("X must hold at least one sample, got none.")
    true = None if y is None else class_numbers(model, y, len(samples), "y")
    decisions = model.decisions(samples)
    said = decisions.argmax(dim=1)
    if len(model.classes) == 2:  # as in `Classifier.predict`: the first of two equal ones
        said = (decisions[:, 1] > decisions[:, 0]).long()
    probabilities = torch.softmax(decisions / model.report.solution.temperature, dim=1)
    return Tested(model, samples, decisions.numpy(), probabilities.numpy(), said.numpy(), true)


def class_sections(model: ClassModel, X: object, y: object, train: object, params: Mapping[str, object], most: Limits) -> Found:
    """Return what is shown of a classifier on some samples."""
    pairs = None if train is None else ClassPairs.find(model, train, params)
    found = _test(model, X, y)
    watched = spread_out(len(found.samples), WATCHED)
    seen = watch(model.network, Subset(found.samples, torch.from_numpy(watched)), model.memory, 1, model.network.window)
    true = None if found.true is None else found.true[watched]
    few = Subset(found.samples, torch.from_numpy(watched[spread_out(len(watched), COSTED)]))
    sections = [
        _one_by_one(found, most),
        *([] if found.true is None else [_confusions(found)]),
        firing(model.network, model.report.layers, seen, "sample"),
        neuron_section(model, seen, true, most.one_by_one(model.network.window), pairs),
        kernel_section(model.network),
        _bring(found),
        cost_section(model.costs(few, bits_of(params.get("profile")))),
    ]
    right = None if found.true is None else float((found.said == found.true).mean())
    tiles = [] if right is None else [("Accuracy", f"{100 * right:.1f} %", "of the samples are classified right")]
    if found.true is not None:
        p = found.probabilities[np.arange(len(found.true)), found.true]
        tiles.append(("Mistakes", shown(len(found.wrong)), "samples are classified wrong"))
        tiles.append(
            ("Log loss", shown(float(-np.log(np.maximum(p, 1e-15)).mean()), 3), "0 is perfect; large if sure and wrong")
        )
    tiles.append(("Samples", shown(len(found.samples)), "were tested"))
    notes = []
    if len(found.samples) > most.items:
        notes.append(
            f"{most.items} of {shown(len(found.samples))} samples are shown one by one: up to half of them mistakes, the "
            "others evenly spread. Accuracy and confusions are those of all."
        )
    if len(watched) < len(found.samples):
        notes.append(f"Firing rates are those of {shown(len(watched))} samples.")
    return Found(sections, tiles, notes, f"{shown(len(found.samples))} samples of {len(model.classes)} classes")


def _picked(found: Tested, most: int) -> np.ndarray:
    """Return the samples that are shown: mistakes, up to half of them, and others, evenly spread."""
    if len(found.samples) <= most:
        return np.arange(len(found.samples))
    wrong = found.wrong[: most // 2]
    others = np.setdiff1d(np.arange(len(found.samples)), found.wrong)
    return np.sort(np.concatenate([wrong, others[spread_out(len(others), most - len(wrong))]]).astype(int))


def _one_by_one(found: Tested, most: Limits) -> Section:
    """Return the section with samples one by one."""
    model, gallery, picked = found.model, Gallery(found.model), _picked(found, most.items)
    few = Subset(found.samples, torch.from_numpy(picked))
    drawn = most.in_rasters(len(picked) * model.network.window * len(model.network.layers))
    seen = watch(model.network, few, model.memory, drawn, model.network.window)
    spikes = dense(few.inputs(slice(None))).cpu().numpy()  # (n, S, D)
    inputs = spread_out(spikes.shape[2], INPUTS) if found.samples.spiking else np.zeros(0, dtype=int)
    groups = [(f"hidden {l + 1}", len(s)) for l, s in enumerate(seen.shown)]
    groups = ([("input", len(inputs))] if len(inputs) else []) + groups
    items = []
    for n, number in enumerate(picked):
        p = found.probabilities[number]
        top = np.sort(np.argsort(-p, kind="stable")[:CLASSES])
        rasters = [packed(r[n]) for r in seen.rasters]
        items.append({
            "number": int(number),
            "said": int(found.said[number]),
            "true": None if found.true is None else int(found.true[number]),
            "classes": top,
            "p": p[top],
            "sure": p[found.said[number]],
            "picture": gallery.picture(found.samples, int(number)),
            "rasters": ([packed(spikes[n][:, inputs].T > 0)] if len(inputs) else []) + rasters,
        })  # fmt: skip
    data: Facts = {
        "items": items,
        "classes": found.names,
        "shape": gallery.shape,
        "groups": groups,
        "steps": model.network.window,
    }
    choice = ("Show", ["all samples", "mistakes only"]) if len(np.intersect1d(picked, found.wrong)) else ("", [])
    words = "Step through samples with the buttons, the slider or the arrow keys."
    stepper = Stepper("samples", "sample", "samples", _figures(found, gallery, groups), plain_facts(data), *choice)
    return Section("samples", "Samples, one by one", [Words([words]), stepper])


def _figures(found: Tested, gallery: Gallery, groups: list[tuple[str, int]]) -> list[Figure]:
    """Return the figures of one sample; `groups` of neurons are in its raster."""
    text = {
        "image": "What the network sees, before it becomes spikes.",
        "signal": "Channels from top to bottom, time from left to right.",
        "values": "The numbers of the sample, from small (pale) to large.",
    }
    axis = "time" if gallery.kind == "signal" else ""
    spec = charts.picture_of_rows(text[gallery.kind], shape=gallery.shape, square=gallery.kind == "image", x=axis)
    picture = Figure("sample", spec, "The sample", text[gallery.kind], canvas=True)
    words = "How likely each class is, by the model."
    shown_classes = min(len(found.names), CLASSES)
    keys = [Key("second", "bar", "true class"), Key("first", "bar", "other classes")] if found.true is not None else []
    p = Figure(
        "probabilities", charts.bars_of_rows("probability", words, count=shown_classes, most=1), "Probabilities", words, keys,
        Table("Probabilities", ("class", "probability")),
    )  # fmt: skip
    words = "Each dot is a spike, each line a neuron; those with short delays are at the bottom of their layer."
    dots = [
        Key(charts.COLORS[g % 8].removeprefix("@"), "dot", f"{name}, {count} shown") for g, (name, count) in enumerate(groups)
    ]
    raster = Figure(
        "raster", charts.raster(words, time=False, title="step"), "Spikes", words, dots,
        Table("Spikes of this sample", ("group", "neurons shown", "spikes")), canvas=True,
    )  # fmt: skip
    return [picture, p, raster]


def _confusions(found: Tested) -> Section:
    """Return the section on which classes are taken for which: of many classes, those with most mistakes."""
    assert found.true is not None
    whole = confusion_matrix(found.true, found.said, labels=np.arange(len(found.names)))
    right, said, there = np.diag(whole), whole.sum(axis=0), whole.sum(axis=1)
    kept = np.sort(np.argsort(2 * right - said - there, kind="stable")[:CONFUSED])
    names, table = [found.names[c] for c in kept], whole[np.ix_(kept, kept)]
    share = table / np.maximum(there[kept, None], 1)
    rows = [
        {
            "true": a,
            "said": b,
            "count": int(table[i, j]),
            "share": share[i, j],
            "note": f"{table[i, j]} of class {a} are said to be {b}",
        }
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    ]
    text = "Rows are true classes, columns what the model says. A strong colour marks a large part of a class."
    if len(kept) < len(found.names):
        text += f" The {len(kept)} of {len(found.names)} classes with most mistakes are shown."
    numbers = [(name, *(shown(int(v)) for v in row)) for name, row in zip(names, table, strict=True)]
    matrix = Table("Confusion matrix", ("true class", *(f"said {n}" for n in names)), numbers)
    spec = charts.confusion(plain_rows(rows), names, text)
    classes = Table(
        "Classes",
        ("class", "samples", "found (recall)", "right when said (precision)"),
        [(found.names[c], shown(int(there[c])), _part(right[c], there[c]), _part(right[c], said[c])) for c in kept],
    )
    return Section("confusions", "Confusions", [Figure("confusion", spec, "Confusion matrix", text, (), matrix), classes])


def _part(some: int, all_: int) -> str:
    return "-" if all_ == 0 else f"{100 * some / all_:.1f} %"


def _bring(found: Tested) -> Section:
    """Return the section on what the spikes of each layer bring."""
    model, blocks = found.model, list[Block]()
    readout = model.network.readout
    if not isinstance(readout, TraceReadout):
        words = "The output neurons read the spikes of the last hidden layer and nothing else: there is no linear part."
        return Section("sources", "What spikes bring", [Words([words])])
    blocks.append(
        Words(["The output reads spikes and nothing else: there is no linear part. Without spikes, only constants are left."])
    )
    if found.true is None:
        return Section("sources", "What spikes bring", blocks)
    rows = [("all layers", _accuracy(found, model))]
    ends = np.cumsum([0, *(n * len(readout.constants) for n in model.network.hidden)])
    if len(ends) > 2:
        rows += [
            (f"without hidden {l + 1}", _accuracy(found, _without(model, ends[l], ends[l + 1]))) for l in range(len(ends) - 1)
        ]
    rows.append(("without any spikes", _accuracy(found, _without(model, 0, ends[-1]))))
    columns = ("what is read", "accuracy, the other weights as they are")
    blocks.append(Table("What each layer brings", columns, [(name, f"{100 * a:.1f} %") for name, a in rows]))
    return Section("sources", "What spikes bring", blocks)


def _without(model: ClassModel, first: int, last: int) -> ClassModel:
    """Return a model whose output does not read some features."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        network.readout.weights[:, first:last] = 0
    return replace(model, network=network)


def _accuracy(found: Tested, model: ClassModel) -> float:
    return float((model.decisions(found.samples).argmax(dim=1).numpy() == found.true).mean())
