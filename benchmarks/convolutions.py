"""Fashion-MNIST: test accuracy against training time, of sampled networks and of a convolutional spiking network.

    make peers
    SSWIM_DATA=... .venv-peers/bin/python benchmarks/convolutions.py --train spikingjelly  # 30 minutes, and those of testing
    SSWIM_DATA=... .venv-peers/bin/python benchmarks/convolutions.py --train sswim
    .venv-peers/bin/python benchmarks/convolutions.py --draw docs/convolutions.png
    SSWIM_DATA=... .venv-peers/bin/python benchmarks/convolutions.py --try

The convolutional network has the neurons of SpikingJelly or of snnTorch: two layers of 3x3 filters, each with batch
normalisation, max pooling and neurons; a dense layer of neurons; a linear output, averaged over the time steps. Its input is
the image itself, at every step (direct encoding), so the first convolution is computed once. Surrogate gradients, Adam, cross
entropy. Tests use a running average of the weights, which gives at any time what a falling learning rate gives at its end.
Accuracies on all test images are measured at fixed times of training. Neither testing nor loading the data is counted.

`--try` compares settings of the convolutional network on held-out training images, a minute of processor time each.
All runs are in `benchmarks/results/convolutions_*.json`. A run is written after each test, so one that is stopped keeps its
points. A run with the same library, model and seed replaces an earlier one.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sswim import Classifier, Convolution
from sswim.bench.measure import alone, say, setting
from sswim.datasets import load_images
from sswim.drawing import EMPHASIS, axes, legend_above, log_ticks, marked
from sswim.machine import peak_memory
from sswim.writing import check_place, whole_file

RESULTS = Path(__file__).parent / "results"
# Seconds of training at which the convolutional network is tested.
TIMES = (15, 30, 60, 120, 240, 420, 600, 900, 1200, 1800)
# Training images that trials are tested on.
HELD_OUT = 5_000
# One point each. Images have three axes, so the encoder has to be named.
MODELS: dict[str, Callable[..., Classifier]] = {
    "1000": lambda **common: Classifier(hidden=(1000,), encoder="image", **common),
    "25 filters": lambda **common: Classifier([Convolution(25)], encoder="image", **common),
    "100 filters": lambda **common: Classifier([Convolution(100)], encoder="image", **common),
    "400 filters": lambda **common: Classifier([Convolution(400)], encoder="image", memory="3GB", **common),
}
Data = tuple[Tensor, Tensor, Tensor, Tensor]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """The convolutional network and its training."""

    channels: tuple[int, int] = (16, 32)
    hidden: int = 256
    steps: int = 2
    batch: int = 64
    rate: float = 3e-3
    flips: bool = True  # mirror half of the images
    shifts: int = 0  # pixels that a batch is moved by at most
    half: bool = False  # bfloat16 where torch's autocast uses it


# The best of the trials, by accuracy after the same time.
CHOSEN = Settings()
TRIALS = (
    Settings(channels=(16, 32), steps=4, batch=64, rate=1e-3),
    Settings(channels=(16, 32), steps=4, batch=64, rate=3e-3),
    CHOSEN,
    Settings(channels=(32, 64), steps=4, batch=64, rate=1e-3, half=True),
    Settings(channels=(32, 64), steps=4, batch=32, rate=1e-3),
    Settings(channels=(32, 64), steps=2, batch=64, rate=3e-3),
    Settings(channels=(16, 32), steps=2, batch=32, rate=3e-3),
    Settings(channels=(16, 32), steps=2, batch=64, rate=3e-3, shifts=1),
)


# --- the convolutional network ----------------------------------------------------------------------------------------------


def spikingjelly_neurons() -> nn.Module:
    """Return neurons that turn currents (time, batch, ...) into spikes."""
    from spikingjelly.activation_based import neuron, surrogate

    logging.getLogger("spikingjelly").setLevel(logging.ERROR)
    return neuron.LIFNode(tau=2.0, surrogate_function=surrogate.ATan(), detach_reset=True, step_mode="m")


class SnnTorchNeurons(nn.Module):
    """The same with snnTorch's neurons, step by step."""

    def __init__(self) -> None:
        import snntorch
        from snntorch import surrogate

        super().__init__()
        self.neurons = snntorch.Leaky(beta=0.5, spike_grad=surrogate.atan())

    def forward(self, currents: Tensor) -> Tensor:
        """Return spikes (time, batch, ...), of neurons that start at rest."""
        spikes, potential = [], self.neurons.init_leaky()
        for current in currents:
            spike, potential = self.neurons(current, potential)
            spikes.append(spike)
        return torch.stack(spikes)


NEURONS: dict[str, Callable[[], nn.Module]] = {"spikingjelly": spikingjelly_neurons, "snntorch": SnnTorchNeurons}
NAMES = {"spikingjelly": "SpikingJelly", "snntorch": "snnTorch"}


class Convolutions(nn.Module):
    """Two convolutions and a dense layer, each with spiking neurons, and a linear output."""

    def __init__(self, library: str, settings: Settings) -> None:
        super().__init__()
        first, second = settings.channels
        neurons = NEURONS[library]
        self.steps = settings.steps
        self.filters = nn.ModuleList([_filters(1, first), _filters(first, second)])
        self.dense = nn.Linear(7 * 7 * second, settings.hidden)
        self.neurons = nn.ModuleList([neurons(), neurons(), neurons()])
        self.output = nn.Linear(settings.hidden, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return a score for each class (B, 10) from images (B, 1, 28, 28)."""
        self.forget()
        x = self.filters[0](images)  # (B, C1, 14, 14)
        s = self.neurons[0](x.expand(self.steps, *x.shape))  # (T, B, C1, 14, 14)
        x = self.filters[1](s.flatten(0, 1)).unflatten(0, s.shape[:2])  # (T, B, C2, 7, 7)
        s = self.neurons[1](x).flatten(2)  # (T, B, 49 C2)
        s = self.neurons[2](self.dense(s))  # (T, B, H)
        return self.output(s.mean(dim=0))  # the mean output: it is linear in the spikes

    def forget(self) -> None:
        """Reset SpikingJelly's neurons, which keep their state. Those of snnTorch start anew by themselves."""
        for neurons in self.neurons:
            if not isinstance(neurons, SnnTorchNeurons):
                neurons.reset()


def _filters(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.MaxPool2d(2))


class Average:
    """A running average of a network's weights, over about the last tenth of all steps."""

    def __init__(self, network: nn.Module, every: int = 10) -> None:
        self.network, self.every, self.count = copy.deepcopy(network).eval(), every, 0

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Take the weights after a step into the average."""
        if step % self.every:
            return
        self.count += 1
        part = min(1.0, 10 / (self.count + 9))
        for old, new in zip(self.network.state_dict().values(), network.state_dict().values(), strict=True):
            if old.is_floating_point():
                old.lerp_(new, part)


# --- training it ------------------------------------------------------------------------------------------------------------


def load(held_out: int = 0) -> Data:
    """Return images (samples, 1, 28, 28) in [0, 1] and labels of training and test.

    With `held_out`, the last training images are the test, and the test images are not used.
    """
    images, labels, test_images, test_labels = map(torch.from_numpy, load_images("fashion-mnist"))
    if held_out:
        images, test_images = images[:-held_out], images[-held_out:]
        labels, test_labels = labels[:-held_out], labels[-held_out:]
    return images[:, None] / 255, labels.long(), test_images[:, None] / 255, test_labels.long()


def batches(images: Tensor, labels: Tensor, settings: Settings, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end, epoch after epoch, each in a new order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for some in torch.randperm(len(images), generator=generator).split(settings.batch):
            x = images[some]
            if settings.flips:
                half = torch.rand(len(some), generator=generator) < 0.5
                x[half] = x[half].flip(-1)
            if settings.shifts:
                width = 2 * settings.shifts + 1
                down, right = (torch.randint(width, (2,), generator=generator)).tolist()
                x = nn.functional.pad(x, (settings.shifts,) * 4)[:, :, down : down + 28, right : right + 28]
            yield x, labels[some]


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the part of the images that a network in evaluation mode classifies correctly."""
    correct = [network(x).argmax(dim=1) == y for x, y in zip(images.split(100), labels.split(100), strict=True)]
    return float(torch.cat(correct).float().mean())


def train(
    library: str, settings: Settings, data: Data, seed: int, times: list[float], clock: Clock
) -> Iterator[dict[str, Any]]:
    """Train until the last of `times`, and yield the accuracies at each of them."""
    images, labels, test_images, test_labels = data
    begin, testing, step = clock(), 0.0, 0
    torch.manual_seed(seed)
    network = Convolutions(library, settings)
    average = Average(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.rate)
    waiting = sorted(times)
    for x, y in batches(images, labels, settings, seed):
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.half):
            scores = network(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores.float(), y).backward()
        optimizer.step()
        average.update(network, step)
        step += 1
        seconds = clock() - begin - testing
        if seconds < waiting[0]:
            continue
        point = {
            "seconds": seconds,
            "epochs": step * settings.batch / len(images),
            "accuracy": accuracy(average.network, test_images, test_labels),
            "peak_memory": peak_memory(),
        }
        yield point
        waiting = [other for other in waiting if other > seconds]
        if not waiting:
            return
        testing = clock() - begin - seconds


# --- runs -------------------------------------------------------------------------------------------------------------------


def run_convolutions(library: str, settings: Settings, seed: int, minutes: float) -> None:
    """Train the convolutional network, and write its points as they come."""
    times = [float(t) for t in TIMES if t < 60 * minutes] + [60 * minutes]
    name = " and ".join(map(str, settings.channels))
    facts = {"model": name, "seed": seed, "settings": dataclasses.asdict(settings), **about(library)}
    points: list[dict[str, Any]] = []
    for point in train(library, settings, load(), seed, times, time.perf_counter):
        points.append(point)
        say(f"{library} {name}: {described(point)}")
        keep(library, {**facts, "points": points})


def run_sampled(seed: int, threads: int, only: str) -> None:
    """Fit each of the models in a process of its own."""
    for name in MODELS:
        if only in name:
            point = alone(fit_sampled, {"name": name, "seed": seed, "threads": threads})
            say(f"sswim {name}: {described(point)}")
            keep("sswim", {"model": name, "seed": seed, **about("sswim"), "points": [point]})


def fit_sampled(name: str, seed: int, threads: int) -> dict[str, Any]:
    """Return seconds of a fit, the test accuracy, and the peak memory of the fit."""
    torch.set_num_threads(threads)
    images, labels, test_images, test_labels = load_images("fashion-mnist")
    model = MODELS[name](random_state=seed, verbose=0)
    begin = time.perf_counter()
    model.fit(images, labels)
    seconds, memory = time.perf_counter() - begin, peak_memory()
    return {"seconds": seconds, "accuracy": float(model.score(test_images, test_labels)), "peak_memory": memory}


def run_trials(library: str, seed: int, seconds: float, only: str) -> None:
    """Train with each of the settings, or those of one number, on a part of the training images, and test on the others."""
    data = load(HELD_OUT)
    for number, settings in enumerate(TRIALS):
        if only not in ("", str(number)):
            continue
        points = list(train(library, settings, data, seed, [seconds], time.process_time))
        say(f"{settings}: {'; '.join(map(described, points))}")
        facts = {"model": f"{library} {number}", "seed": seed, "settings": dataclasses.asdict(settings), **about(library)}
        keep("trials", {**facts, "points": points})


def described(point: dict[str, Any]) -> str:
    """Return a point in words."""
    memory = f"{point['peak_memory'] / 2**30:.1f} GiB" if point["peak_memory"] else "memory unknown"
    return f"{point['seconds']:.0f} s, {point['accuracy']:.2%}, {memory}"


def about(library: str) -> dict[str, Any]:
    """Return what a run depends on: its command, versions, commit and hardware."""
    versions = {} if library == "sswim" else {library: version(library)}
    return {"command": " ".join(["python", *sys.argv]), "setting": {**setting(), **versions}}


# --- results ----------------------------------------------------------------------------------------------------------------


def runs_of(name: str) -> list[dict[str, Any]]:
    """Return the runs that are there."""
    path = RESULTS / f"convolutions_{name}.json"
    return json.loads(path.read_text())["runs"] if path.exists() else []


def keep(name: str, run: dict[str, Any]) -> None:
    """Write a run, in the place of one of the same model and seed."""
    others = [other for other in runs_of(name) if (other["model"], other["seed"]) != (run["model"], run["seed"])]
    with whole_file(RESULTS / f"convolutions_{name}.json") as path:
        path.write_text(json.dumps({"runs": [*others, run]}, indent=1) + "\n")


def draw(place: Path) -> None:
    """Draw accuracies against seconds, one line for each library and seed."""
    ax = axes(None, (7, 4))
    trained = [(label, run) for library, label in NAMES.items() for run in runs_of(library)]
    names = [f"{label}, {run['model']} channels" for label, run in trained]
    kinds = list(dict.fromkeys(names))
    for i, (name, (_, run)) in enumerate(zip(names, trained, strict=True)):
        _line(ax, run["points"], label=None if name in names[:i] else name, **marked(kinds.index(name)))
    sampled = runs_of("sswim")
    for label, marker, filters in (("sampled filters", "o", True), ("1,000 sampled neurons", "s", False)):
        mine = [run for run in sampled if ("filters" in run["model"]) == filters]
        for i, seed in enumerate(sorted({run["seed"] for run in mine})):
            points = [point for run in mine if run["seed"] == seed for point in run["points"]]
            _line(ax, points, label=None if i else label, **{**EMPHASIS, "marker": marker})
    if not ax.lines:
        raise SystemExit(f"There are no runs in {RESULTS}: use --train first.")
    ax.set(xlabel="seconds of training", ylabel="test accuracy, %")
    log_ticks(ax, "x")
    ax.grid(color="0.9")
    legend_above(ax)
    ax.get_figure(root=True).savefig(place, dpi=150)


def _line(ax: Any, points: list[dict[str, Any]], **style: Any) -> None:
    ordered = sorted(points, key=lambda point: point["seconds"])
    ax.plot([p["seconds"] for p in ordered], [100 * p["accuracy"] for p in ordered], **style)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--train", choices=[*NEURONS, "sswim"])
    what.add_argument("--try", dest="trial", action="store_true", help="compare settings on held-out training images")
    what.add_argument("--draw", type=Path, metavar="PICTURE", help="draw the results")
    parser.add_argument("--library", choices=NEURONS, default="spikingjelly", help="for --try")
    parser.add_argument("--minutes", type=float, help="of training. Default: 30, and 1 for each of --try")
    parser.add_argument(
        "--only", default="", help="fit models of sswim whose names contain this; with --try, the number of a trial"
    )
    parser.add_argument("--channels", type=int, nargs=2, default=CHOSEN.channels, help="of the two convolutions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.minutes is not None and args.minutes <= 0:
        parser.error(f"--minutes must be positive, got {args.minutes}.")
    if args.draw:
        draw(check_place(args.draw, name="--draw"))
    elif args.trial:
        run_trials(args.library, args.seed, 60 * (args.minutes or 1), args.only)
    elif args.train == "sswim":
        run_sampled(args.seed, args.threads, args.only)
    else:
        settings = dataclasses.replace(CHOSEN, channels=tuple(args.channels))
        run_convolutions(args.train, settings, args.seed, args.minutes or 30)


if __name__ == "__main__":
    main()
