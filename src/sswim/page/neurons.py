"""What is shown of neurons, whatever they are for: rates, silent ones, kernels, delays, weights, and the pair behind each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sswim.data.windows import Samples, batches
from sswim.network.convolution import NO_LEAK
from sswim.network.kernels import kernel_taps
from sswim.network.layer import SpikingLayer
from sswim.network.network import SpikingNetwork
from sswim.page import charts
from sswim.page.blocks import Block, Figure, Key, Section, Table, Words, plain_rows, shown
from sswim.report import Facts, LayerReport

__all__ = [
    "Watched",
    "by_delay",
    "firing",
    "kernel_figure",
    "kernel_section",
    "spread_out",
    "support_words",
    "time_facts",
    "watch",
    "weights_figure",
]

# Kernels that are drawn, dots per layer, and lags of a kernel that are kept.
KERNELS, DOTS, LAGS = 8, 600, 400


@dataclass(frozen=True)
class Watched:
    """What hidden neurons did on some samples.

    Attributes
    ----------
    counts : list of arrays of shape (samples, neurons)
        Spikes of each sample, one array per layer.
    rasters : list of bool arrays of shape (samples, neurons shown, steps)
    shown : list of arrays
        Numbers of the neurons in the rasters.
    steps : int
    """

    counts: list[np.ndarray]
    rasters: list[np.ndarray]
    shown: list[np.ndarray]
    steps: int

    def rates(self, layer: int) -> np.ndarray:
        """Return spikes per step (neurons,)."""
        return self.counts[layer].mean(axis=0) / self.steps


def spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0, ..., count - 1, evenly spread.

    Examples
    --------
    >>> spread_out(9, 3).tolist(), spread_out(2, 5).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def by_delay(layer: SpikingLayer, most: int) -> np.ndarray:
    """Return the numbers of at most `most` neurons, from short delays to long ones."""
    order = np.argsort(layer.delays.detach().cpu().numpy(), kind="stable")
    return order[spread_out(len(order), most)]


@torch.no_grad()
def watch(network: SpikingNetwork, samples: Samples, memory: int, most: int, rows: int) -> Watched:
    """Return what the hidden neurons do on samples; rasters are of `most` neurons per layer, on the last `rows` of a window."""
    picked = [by_delay(layer, most) for layer in network.layers]
    filters = network.hidden_filters(steps=network.window)
    size = max(samples.together, network.batch_size(memory) // samples.together * samples.together)
    counts: list[list[np.ndarray]] = [[] for _ in picked]
    rasters: list[list[np.ndarray]] = [[] for _ in picked]
    for part in batches(len(samples), size, even=False):
        for l, put_out in enumerate(network.hidden_spikes(samples.inputs(part), filters)):
            a = network.layers[l].per_neuron(put_out)  # (N, S, B)
            counts[l].append(a.sum(dim=1).T.double().cpu().numpy())
            rasters[l].append((a[picked[l]][:, -rows:] > 0).permute(2, 0, 1).cpu().numpy())
    joined = [np.concatenate(c) for c in counts], [np.concatenate(r) for r in rasters]
    return Watched(*joined, picked, network.window)


def firing(network: SpikingNetwork, made: Sequence[LayerReport], seen: Watched, unit: str) -> Section:
    """Return the section on firing rates and silent neurons."""
    rows, table = [], []
    for l, (layer, report) in enumerate(zip(network.layers, made, strict=True)):
        before, now = report.rates.numpy() * layer.places, seen.rates(l)
        table.append(
            (
                f"hidden {l + 1}",
                shown(layer.neurons),
                shown(float(before.mean()), 3),
                shown(float(now.mean()), 3),
                shown(report.silent),
                shown(int((now == 0).sum())),
                shown(int((now > 0.5).sum())),
                shown(float(seen.counts[l].sum(axis=1).mean())),
            )
        )
        for i in spread_out(layer.neurons, DOTS):
            rows.append({"x": before[i], "y": now[i], "layer": l, "note": f"hidden {l + 1}, neuron {i}"})
    columns = (
        "layer", "neurons", "spikes per step, in the fit", "spikes per step, here", "silent in the fit", "silent here",
        "saturated here", f"spikes per {unit}",
    )  # fmt: skip
    text = "Each dot is a neuron. Dots far from the diagonal fire more or less often on these data than they did in the fit."
    largest = max((max(float(r["x"]), float(r["y"])) for r in rows), default=1.0)
    spec = charts.dots(
        plain_rows(rows),
        "spikes per step, in the fit",
        "spikes per step, on these data",
        text,
        diagonal=largest,
        layers=len(made),
    )
    keys = (
        [Key(charts.COLORS[l % 8].removeprefix("@"), "dot", f"hidden {l + 1}") for l in range(len(made))]
        if len(made) > 1
        else []
    )
    note = "Silent: never fires. Saturated: fires in more than half of all steps."
    silent = sum(int((seen.rates(l) == 0).sum()) for l in range(len(made)))
    total = sum(network.hidden)
    words = f"{shown(silent)} of {shown(total)} hidden neurons are silent on the {unit}s shown here."
    figure = Figure("rates", spec, "Firing rates", text, keys, Table("Firing rates by layer", columns, table, note))
    return Section("firing", "Firing rates and silent neurons", [Words([words]), figure])


def support_words(supports: np.ndarray) -> str:
    """Return supports in words: a number, a range, or that potentials do not leak.

    Examples
    --------
    >>> [support_words(np.array(v)) for v in ([2.0], [2.0, 8.0], [1e30], [2.0, 8.0, 1e30])]
    ['2', '2 to 8', 'no leak', '2 to 8, some no leak']
    """
    leaky = supports[supports < NO_LEAK]
    if not len(leaky):
        return "no leak"
    low, high = shown(float(leaky.min())), shown(float(leaky.max()))
    ends = ", some no leak" if len(leaky) < len(supports) else ""
    return (low if len(supports) == 1 else f"{low} to {high}") + ends


def time_facts(layer: SpikingLayer, neuron: int, steps: int) -> Facts:
    """Return the delay, support and kernel of one neuron; the support is None without a leak."""
    one = slice(neuron, neuron + 1)
    taps = kernel_taps(layer.kernel, layer.delays[one].detach(), layer.supports[one].detach(), min(steps, LAGS))[0]
    used = torch.nonzero(taps.abs() > 1e-3)
    last = min(len(taps), int(used.max()) + 2 if len(used) else 2)
    support = float(layer.supports.detach()[neuron])
    return {
        "delay": float(layer.delays.detach()[neuron]),
        "support": support if support < NO_LEAK else None,
        "kernel": taps[:last].cpu().numpy(),
    }


def kernel_figure() -> Figure:
    """Return the figure of one neuron's kernel."""
    text = "How strongly an input counts, by its age."
    spec = charts.lines_of_rows(1, "steps since the input", "kernel", text)
    return Figure("kernel", spec, "Kernel", text, (), Table("Kernel", ("steps since the input", "kernel")))


def weights_figure(count: int) -> Figure:
    """Return the figure of one neuron's weights, `count` of them at most."""
    text = "How strongly each input counts: the largest weights."
    spec = charts.bars_of_rows("weight", text, count=count)
    return Figure("weights", spec, "Weights", text, (), Table("Weights", ("input", "weight")))


def kernel_section(network: SpikingNetwork) -> Section:
    """Return the section on kernels and delays."""
    words = "A neuron sees its inputs through a kernel. It is placed by the neuron's delay, and stretched by its support."
    if any(bool((layer.supports >= NO_LEAK).any()) for layer in network.layers):
        words += " Neurons without a leak have no support: an input counts as much however old it is."
    return Section("kernels", "Kernels and delays", [Words([words]), _kernels(network), _delays(network)])


def _kernels(network: SpikingNetwork) -> Figure:
    """Return the figure of some kernels of the first layer."""
    first, kernels = network.layers[0], []
    drawn = by_delay(first, KERNELS)
    delays, supports = first.delays.detach(), first.supports.detach().cpu().numpy()
    for line, i in enumerate(drawn):
        taps = time_facts(first, int(i), network.steps)["kernel"]
        kernels += [{"x": s, "y": float(v), "line": line} for s, v in enumerate(taps)]
    text = f"How strongly an input counts, by its age, for {len(drawn)} neurons of the first layer."
    names = [f"neuron {i}, delay {shown(float(delays[i]), 3)}" for i in drawn]
    keys = [Key(charts.COLORS[n].removeprefix("@"), "line", words) for n, words in enumerate(names)]
    own = Table("Delays and supports of the drawn neurons", ("neuron", "delay, steps", "support, steps"), [
        (str(i), shown(float(delays[i])), support_words(supports[[i]])) for i in drawn
    ])  # fmt: skip
    spec = charts.lines(plain_rows(kernels), names, "steps since the input", "kernel", text)
    return Figure("kernels", spec, "Kernels", text, keys, own)


def _delays(network: SpikingNetwork) -> Block:
    """Return the figure of all delays and supports; a table alone where no neuron has a support."""
    rows, table = [], []
    for l, layer in enumerate(network.layers):
        delays, supports = layer.delays.detach().cpu().numpy(), layer.supports.detach().cpu().numpy()
        for i in spread_out(layer.neurons, DOTS):
            if supports[i] < NO_LEAK:
                rows.append({"x": delays[i], "y": supports[i], "layer": l, "note": f"hidden {l + 1}, neuron {i}"})
        between = f"{shown(float(delays.min()))} to {shown(float(delays.max()))}"
        table.append((f"hidden {l + 1}", str(layer.kernel).partition("(")[0], between, support_words(supports)))
    ranges = Table("Ranges", ("layer", "kernel", "delays, steps", "supports, steps"), table)
    if not rows:
        return ranges
    text = "Each dot is a neuron: when it listens (delay), and for how long (support)."
    spec = charts.dots(plain_rows(rows), "delay, steps", "support, steps", text, layers=len(network.layers))
    layers = [Key(charts.COLORS[l % 8].removeprefix("@"), "dot", f"hidden {l + 1}") for l in range(len(network.layers))]
    return Figure("delays", spec, "Delays and supports", text, layers if len(layers) > 1 else [], ranges)
