"""Sample one small network on the wind farm and draw what every step of the algorithm did.

python examples/algorithm_step_by_step.py [FOLDER]    the pictures go to FOLDER, default: docs/figures
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from sswim import LambdaSearch, SpikingNetwork, Steps, sample
from sswim.data import Windows
from sswim.datasets import load_wind_farm
from sswim.network.kernels import delay_of_lag, kernel_taps, refractory_taps
from sswim.network.layer import filter_signals, fire
from sswim.readout.traces import Trace
from sswim.regression import Sums
from sswim.steps import METRICS, CorrelationDelays, GradientPairs, SupportSearch, TemporalGrid
from sswim.steps.pairs import lower_triangle, mean_free

WINDOW, HORIZON, NEURONS = 48, 24, 100
NAMES = [f"{kind} {turbine}" for kind in ("power", "wind") for turbine in (1, 2, 3, 4)]
BLUE, ORANGE, GREY = "#1f5fa8", "#d9660f", "#8a8f98"
matplotlib.rcParams.update(
    {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10.5, "figure.facecolor": "white"}
)


def load():
    """Return hourly windows and what follows on them, scaled to [0, 1] by the training part, and a way back to kW."""
    hourly = load_wind_farm().resample("h").mean()
    hourly = hourly[sorted(hourly.columns)]  # power of the four turbines, then wind
    rows = torch.from_numpy(hourly.to_numpy(np.float64, copy=True))
    low, high = (getattr(rows[: int(0.8 * len(rows))], name)(dim=0).values for name in ("min", "max"))
    cut = Windows([(rows - low) / (high - low)], WINDOW, HORIZON, stride=12)

    def kilowatts(turbines):
        return turbines * (high - low)[: turbines.shape[-1]] + low[: turbines.shape[-1]]

    return cut.inputs(slice(None)).float(), cut.targets(slice(None)).float(), kilowatts


class Picture:
    """A figure with some panels, saved under its name when the block ends."""

    folder = Path("docs/figures")

    def __init__(self, name, panels, size=(8.2, 3.2), **options):
        self.name, self.figure = name, Figure(figsize=size, layout="constrained")
        self.axes = np.atleast_1d(self.figure.subplots(1, panels, **options)) if isinstance(panels, int) else None
        self.axes = self.figure.subplot_mosaic(panels, **options) if self.axes is None else self.axes

    def __enter__(self):
        return self.axes

    def __exit__(self, *_):
        self.figure.savefig(self.folder / f"{self.name}.png", dpi=105)


def temporal_parameters(layer):
    with Picture("algorithm_temporal", 2) as (left, right):
        left.scatter(layer.delays, layer.supports, s=14, color=BLUE)
        left.set(xlabel="delay τ, hours", ylabel="support σ, hours", title="one dot per neuron")
        taps = kernel_taps(layer.kernel, layer.delays, layer.supports, 80)
        for number, color in zip((2, 45, 87), (BLUE, GREY, ORANGE), strict=True):
            name = f"τ = {float(layer.delays[number]):.1f}, σ = {float(layer.supports[number]):.0f}"
            right.plot(taps[number], color=color, lw=1.6, label=name)
        right.set(xlabel="hours since the input, s", ylabel="kernel k((s - τ) / σ)", title="the kernels of three neurons")
        right.set_ylim(top=1.75)
        right.legend(frameon=False, loc="upper right", fontsize=9)


def distances(x, y, layer_report):
    """Return distances of inputs and targets for every pair of samples, and the log-probability of each pair."""
    d_in = lower_triangle(METRICS[layer_report.input_metric].pairwise(x))
    d_out = lower_triangle(METRICS[layer_report.output_metric].pairwise(y))
    step = GradientPairs()
    ok = step.admissible(torch.linalg.vector_norm(mean_free(x), dim=1), every_channel=layer_report.every_channel)
    return d_in, d_out, step.log_probabilities(d_in, d_out, ok)


def sampling_distribution(x, y, layer_report):
    d_in, d_out, log_p = (value.numpy() for value in distances(x, y, layer_report))
    n, m = layer_report.pairs.sort(dim=1, descending=True).values.T
    drawn = (n * (n - 1) // 2 + m).numpy()  # the pair's place in the lower triangle
    with Picture("algorithm_distribution", 2, size=(8.2, 3.4)) as (left, right):
        cells = left.hexbin(d_in, d_out, gridsize=32, cmap="Greys", mincnt=1, bins="log", linewidths=0)
        left.figure.colorbar(cells, ax=left, label="number of pairs")
        left.scatter(d_in[drawn], d_out[drawn], s=12, color=ORANGE, label=f"the {len(drawn)} drawn pairs")
        left.set(xlabel=f"distance of inputs ({layer_report.input_metric})", title="all pairs of windows")
        left.set(ylabel=f"distance of targets ({layer_report.output_metric})", ylim=(0, 1.22 * d_out.max()))
        left.legend(frameon=False, loc="upper left", fontsize=9)
        order = np.argsort(-log_p)
        share, place = np.exp(log_p[order]).cumsum(), np.arange(1, len(order) + 1) / len(order)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        few = slice(None, None, 200)
        right.plot([0, 100], [0, 100], color=GREY, lw=1, ls="--", label="if all were equally likely")
        right.plot(100 * place[few], 100 * share[few], color=BLUE, lw=1.8, label="by the distribution P")
        right.plot(100 * place[rank[drawn]], 100 * share[rank[drawn]], "|", ms=9, color=ORANGE, label="drawn pairs")
        right.set(xlabel="pairs, most likely first, %", ylabel="probability so far, %", title="how uneven P is")
        right.legend(frameon=False, loc="lower right", fontsize=9)


def entropies(layer_report):
    names = list(dict.fromkeys(name for name, _ in layer_report.entropies))
    table = np.array([[layer_report.entropies[i, o] for o in names] for i in names])
    with Picture("algorithm_entropies", 1, size=(6.8, 4.6)) as (ax,):
        shown = ax.imshow(table, cmap="Blues_r", aspect="auto")
        middle = (table.min() + table.max()) / 2
        for i, o in np.ndindex(*table.shape):
            ax.text(o, i, f"{table[i, o]:.2f}", ha="center", va="center", color="white" if table[i, o] < middle else "black")
        i, o = names.index(layer_report.input_metric), names.index(layer_report.output_metric)
        ax.add_patch(matplotlib.patches.Rectangle((o - 0.47, i - 0.47), 0.94, 0.94, fill=False, ec=ORANGE, lw=2.5))
        ax.set(xticks=range(len(names)), yticks=range(len(names)), xticklabels=names, yticklabels=names)
        ax.set(xlabel="distance of targets", ylabel="distance of inputs", title="the framed pair is taken")
        ax.spines[:].set_visible(False)
        ax.figure.colorbar(shown, ax=ax, label="entropy, nats")


def one_neuron(network, layer_report, x, y, kilowatts):
    """Draw the pair that made a neuron, and what the neuron makes of the pair."""
    layer = network.layers[0]
    filters = layer.filters(WINDOW, network.steps)

    def run(pair):
        v = layer.potentials(x[pair].permute(2, 1, 0), filters)  # (neurons, steps, 2)
        return v.clone(), layer.fire(v)

    # Of all neurons the one whose potentials for its own two windows are most opposed.
    found = [run(pair)[0][i] - layer.biases[i] for i, pair in enumerate(layer_report.pairs)]
    number = int(torch.tensor([torch.corrcoef(v.T)[0, 1] for v in found]).argmin())
    pair = layer_report.pairs[number]
    v, spikes = (part[number] for part in run(pair))

    hours = np.arange(-WINDOW, HORIZON)
    with Picture("algorithm_pair", 2, sharey=True) as axes:
        for ax, k, color in zip(axes, (0, 1), (BLUE, ORANGE), strict=True):
            seen = kilowatts(torch.cat([x[pair[k], :, :4], y[pair[k], :, :4]])).mean(dim=1)
            ax.axvspan(-0.5, HORIZON - 0.5, color="0.94", lw=0)
            ax.plot(hours[:WINDOW], seen[:WINDOW], color=color, lw=1.8)
            ax.plot(hours[WINDOW - 1 :], seen[WINDOW - 1 :], color=color, lw=1.8, ls=":")
            ax.set(xlabel="hours from the start of the forecast", title=f"window {int(pair[k])}", xlim=(-WINDOW, HORIZON - 0.5))
            ax.text(HORIZON / 2, 1.0, "target", transform=ax.get_xaxis_transform(), ha="center", va="top", color="0.35")
        axes[0].set(ylabel="mean power of the turbines, kW", ylim=(0, None))

    panels = [["weights", "kernel"], ["potential", "potential"]]
    with Picture("algorithm_neuron", panels, size=(8.2, 6.0), height_ratios=[1, 1.35]) as axes:
        axes["weights"].barh(NAMES, layer.weights[number].numpy(), color=GREY)
        axes["weights"].invert_yaxis()
        axes["weights"].axvline(0, color="0.3", lw=0.8)
        axes["weights"].set(xlabel="weight", title=f"neuron {number}: its weights")
        axes["kernel"].plot(kernel_taps(layer.kernel, layer.delays, layer.supports, network.steps)[number], color=GREY, lw=1.8)
        delay, support = float(layer.delays[number]), float(layer.supports[number])
        axes["kernel"].set(title=f"its kernel: delay {delay:.1f}, support {support:.0f}", xlabel="hours since the input")
        ax = axes["potential"]
        ax.axhline(1, color="0.3", lw=0.9, ls="--")
        ax.text(-WINDOW + 0.5, 1, "threshold", va="bottom", fontsize=9, color="0.3")
        low = float(v.min()) - 0.4
        for k, color in ((0, BLUE), (1, ORANGE)):
            ax.plot(hours, v[:, k], color=color, lw=1.8, label=f"window {int(pair[k])}")
            times = hours[spikes[:, k].numpy() > 0]
            ax.eventplot(times, lineoffsets=low - 0.3 * k, linelengths=0.24, color=color, lw=2)
        ax.set(xlabel="hours from the start of the forecast", ylabel="potential, spikes below", xlim=(-WINDOW, HORIZON - 0.5))
        ax.set(title="what it makes of its pair", ylim=(low - 0.6, float(v.max()) + 0.9))
        ax.legend(frameon=False, ncols=2, loc="upper right", fontsize=9)


def normalisation(network, x):
    layer = network.layers[0]
    filters, signals = layer.filters(WINDOW, network.steps), x.permute(2, 1, 0).contiguous()
    unit = torch.nn.functional.normalize(layer.weights)  # the directions, before they were scaled
    inhibition = refractory_taps(layer.refractory, layer.refractory_supports, network.steps)
    before = filter_signals(filters, unit, signals)
    after = filter_signals(filters, layer.weights, signals) + layer.biases[:, None, None]
    with Picture("algorithm_normalisation", 2) as (left, right):
        bins = np.linspace(0, 0.15, 31)
        for v, color, name in ((before, GREY, "directions alone"), (after, BLUE, "scaled and shifted")):
            mean, spread = v.mean(dim=(1, 2)), v.std(dim=1).mean(dim=1)
            left.scatter(mean, spread, s=13, color=color)
            rates = fire(v.clone(), layer.costs, inhibition).mean(dim=(1, 2))
            right.hist(rates.numpy(), bins=bins, color=color, alpha=0.75, label=name)
        left.axvline(1, color="0.3", lw=0.9, ls="--")
        left.text(1.03, 3.6, "threshold", va="top", fontsize=9, color="0.3")
        left.text(0.5, 0.38, "scaled\nand shifted", color=BLUE, fontsize=9, ha="center", va="top")
        left.text(0.1, 0.06, "directions alone", color="0.4", fontsize=9, va="center")
        left.set(xlabel="mean of the potential", ylabel="its deviation in time", title="potentials", yscale="log")
        left.set(xlim=(-0.7, 1.5), ylim=(0.03, 4), yticks=[0.1, 0.3, 1, 3], yticklabels=["0.1", "0.3", "1", "3"])
        right.set(xlabel="spikes per hour", ylabel="number of neurons", title="firing rates")
        right.legend(frameon=False, loc="upper right", fontsize=9)


def output_delays(network, spikes, targets, lags):
    found = CorrelationDelays().correlate(spikes, targets, network.start, WINDOW)  # (outputs, lags)
    found = 100 * found / found.amax(dim=1, keepdim=True)
    with Picture("algorithm_delays", 1, size=(7.4, 3.2)) as (ax,):
        for i, color in ((0, BLUE), (4, ORANGE)):
            for turbine in range(4):
                ax.plot(found[i + turbine], color=color, lw=1.2, alpha=0.8, label=NAMES[i].split()[0] if turbine == 0 else None)
            ax.plot(lags[i : i + 4], [100] * 4, "o", color=color, ms=7)
        ax.set(xlabel="lag τ from spike to target, hours", ylabel="correlation, % of the largest", xlim=(0, WINDOW - 1))
        ax.set_title("eight outputs; dots mark the lags that are taken")
        ax.legend(frameon=False, fontsize=9)


def equations(network, spikes, targets, delay, support):
    trace = Trace(network.readout.kernel, delay, support, network.start, HORIZON)
    sums = Sums(NEURONS, targets.shape[2], HORIZON)
    sums.update(trace.features(spikes.double()), *trace.targets(targets))
    return sums


def output_supports(network, spikes, targets, lags):
    step, kernel = SupportSearch(), network.readout.kernel
    candidates, lag = step.candidates(HORIZON), step.shared_lag(lags)
    delays = [float(delay_of_lag(kernel, lag, float(sigma))) for sigma in candidates]
    tried = [equations(network, spikes, targets, d, float(s)) for d, s in zip(delays, candidates, strict=True)]
    residual = torch.stack([sums.least_residual()[0] / sums.energy for sums in tried])  # (candidates, outputs)
    taken = network.readout.supports.double()
    best = (candidates[:, None] - taken).abs().argmin(dim=0)
    with Picture("algorithm_supports", 1, size=(7.4, 3.2)) as (ax,):
        for i, color in ((0, BLUE), (4, ORANGE)):
            here = range(i, i + 4)
            ax.plot(candidates, 100 * residual[:, here], color=color, lw=1.2, alpha=0.8)
            ax.plot(candidates[best[here]], 100 * residual[best[here], here], "o", color=color, ms=7, label=NAMES[i].split()[0])
        ax.set(xlabel="support σ of the output kernel, hours", ylabel="least residual, % of the variance")
        ax.set_title(f"{len(candidates)} supports tried; dots mark those taken")
        ax.legend(frameon=False, fontsize=9)


def regularisation(network, train, held_out, report):
    grid = np.logspace(-5, 3, 60)

    def solve(sums, lambda_):  # the bias is a weight like any other
        weights = sums.with_constant().solve(lambda_)[0]
        return weights[:-1], weights[-1]

    with Picture("algorithm_lambda", 1, size=(7.4, 3.2)) as (ax,):
        for i, color in ((0, BLUE), (4, ORANGE)):
            delay, support = float(network.readout.delays[i]), float(network.readout.supports[i])
            known, later = (equations(network, s, y[:, :, i : i + 1], delay, support) for s, y in (train, held_out))
            for sums, style, name in ((known, ":", "fitted on"), (later, "-", "validation")):
                error = [float((sums.squared_error(*solve(known, lambda_)) / sums.energy).sqrt()) for lambda_ in grid]
                ax.plot(grid, error, style, color=color, lw=1.6, label=f"{NAMES[i]}, {name}")
            chosen = float(report.lambdas[i])
            error = float((later.squared_error(*solve(known, chosen)) / later.energy).sqrt())
            ax.plot(chosen, error, "o", color=color, ms=7)
        ax.axvspan(LambdaSearch().low, LambdaSearch().high, color="0.94", lw=0, zorder=0)
        ax.set(xscale="log", xlabel="λ (shaded: the paper's grid)", ylabel="error, relative", title="dots mark the λ taken")
        ax.legend(frameon=False, fontsize=9, loc="upper left")


def forecast(network, x, y, kilowatts):
    which = int(network(x)[:, :, 0].std(dim=1).argmax())  # the window with the liveliest forecast
    activity, hours = network.simulate(x[which : which + 1]), np.arange(-WINDOW, HORIZON)
    seen, truth = (kilowatts(part[which, :, :1]) for part in (x, y))
    with Picture("algorithm_forecast", [["spikes"], ["power"]], size=(8.2, 4.8), height_ratios=[1, 1.2], sharex=True) as axes:
        step, neuron = np.nonzero(activity.spikes[0][0].numpy())
        axes["spikes"].scatter(step - WINDOW, neuron, s=4, color=BLUE, linewidths=0)
        axes["spikes"].set(ylabel="hidden neuron", title="a validation window: spikes, and what the first output makes of them")
        axes["power"].plot(hours[:WINDOW], seen, color=GREY, lw=1.5, label="window")
        axes["power"].plot(hours[WINDOW:], truth, color="black", lw=1.5, label="truth")
        voltage = kilowatts(activity.output[0, WINDOW:, :1])
        axes["power"].plot(hours[WINDOW:], voltage, color=ORANGE, lw=2, label="output's voltage")
        for ax in axes.values():
            ax.axvspan(-0.5, HORIZON - 0.5, color="0.94", lw=0, zorder=0)
        axes["power"].set(xlabel="hours from the start of the forecast", ylabel="power 1, kW", xlim=(-WINDOW, HORIZON - 0.5))
        axes["power"].set_ylim(0, 2400)
        axes["power"].legend(frameon=False, fontsize=9, loc="upper left", ncols=3)


@torch.no_grad()
def main(folder):
    Picture.folder = Path(folder)
    Picture.folder.mkdir(parents=True, exist_ok=True)
    x, y, kilowatts = load()
    kept = int(0.8 * len(x))
    network = SpikingNetwork(x.shape[2], y.shape[2], window=WINDOW, horizon=HORIZON, hidden=(NEURONS,))
    # The initial batch is the whole training part, so that what is drawn here is just what the algorithm saw.
    report = sample(
        network,
        x[:kept],
        y[:kept],
        validation=(x[kept:], y[kept:]),
        steps=Steps(temporal=TemporalGrid(max_support=30.0), initial_batch=kept),
        random_state=0,
    )
    error = network(x[kept:]) - y[kept:]
    rse = float(error.norm() / (y[kept:] - y[kept:].mean(dim=0)).norm())
    print(f"{kept} windows, {len(x) - kept} for validation, {NEURONS} neurons: validation RSE {rse:.3f}")

    made, train = report.layers[0], (network.hidden_spikes(x[:kept])[-1], y[:kept])
    temporal_parameters(network.layers[0])
    sampling_distribution(x[:kept], y[:kept], made)
    entropies(made)
    one_neuron(network, made, x, y, kilowatts)
    normalisation(network, x[:kept])
    output_delays(network, *train, report.lags)
    output_supports(network, *train, report.lags)
    regularisation(network, train, (network.hidden_spikes(x[kept:])[-1], y[kept:]), report)
    forecast(network, x[kept:], y[kept:], kilowatts)
    print(f"pictures: {Picture.folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/figures")
