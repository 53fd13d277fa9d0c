"""How much a forecast's error depends on how windows are split: in time, in blocks of time, or at random.

Windows that overlap share rows. If they are drawn at random into training and test part, nearly every test window has
neighbours in the training part that hold its own targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from sswim.data.tensors import Windows
from sswim.data.windows import Samples, Subset, batches
from sswim.datasets.series import SERIES, load_series, series_set
from sswim.drawing import legend_below, marked, over_horizon, panels
from sswim.evaluate.protocol import scale_series
from sswim.experiments.experiment import Experiment, Settings, count_seeds
from sswim.experiments.forecasting import HORIZONS, published
from sswim.experiments.forecasts import ORIGINAL, PARTS, chosen
from sswim.network.kernels import KERNELS
from sswim.network.network import SpikingNetwork
from sswim.paper import Switches
from sswim.regression import LambdaSearch, Sums
from sswim.sampling import sample

__all__ = ["split_numbers", "splits"]

SPLITS = ("time", "blocks", "random")
MODELS = ("paper", "ridge per channel")


def split_numbers(windows: int, length: int, parts: Sequence[float], split: str, seed: int) -> list[Tensor]:
    """Return which windows, numbered in time, are for training, validation and test.

    Parameters
    ----------
    windows : int
    length : int
        Distance in windows from which on two of them share no row.
    parts : sequence of three floats
    split : {"time", "blocks", "random"}
        One part after the other; runs of ten times `length` windows, drawn at random, with a gap after each; or single windows,
        drawn at random.

    Examples
    --------
    >>> [part.tolist() for part in split_numbers(5, 2, (0.6, 0.2, 0.2), "time", seed=0)]
    [[0, 1, 2], [3], [4]]
    """
    generator = torch.Generator().manual_seed(seed)
    unit = 10 * length if split == "blocks" else 1
    units = windows // unit
    order = torch.arange(units) if split == "time" else torch.randperm(units, generator=generator)
    first, second = int(units * parts[0]), int(units * (parts[0] + parts[1]))
    kept = unit - length if split == "blocks" else 1
    found = [
        (part.sort().values[:, None] * unit + torch.arange(kept)).flatten() for part in order.tensor_split((first, second))
    ]
    if not all(len(part) for part in found):
        raise ValueError(f"split: {windows} windows are too few for three parts of {split!r}.")
    return found


def cells(
    data: Sequence[str],
    seeds: int,
    *,
    horizons: Sequence[int] = HORIZONS,
    kernels: Sequence[str] = ("morlet",),
    models: Sequence[str] = MODELS,
    splits: Sequence[str] = SPLITS,
    neurons: int = 750,
    stride: int = 4,
    window: int | None = None,
) -> list[Settings]:
    """Return the settings of all runs. Every `stride`-th window is used, of all parts."""
    return [
        {
            "data": name,
            "model": f"{model}, {kernel}" if model == "paper" else model,
            "split": split,
            "horizon": horizon,
            "neurons": neurons,
            "stride": stride,
            "window": series_set(name).window if window is None else window,
            "seed": seed,
        }
        for seed in range(seeds)
        for name in chosen(data, ORIGINAL, PARTS)
        for model in models
        for kernel in (kernels if model == "paper" else kernels[:1])
        for split in splits
        for horizon in horizons
    ]


@lru_cache(maxsize=1)
def _load(data: str) -> np.ndarray:
    return scale_series(load_series(data), "series")[0].to_numpy(dtype=np.float32, copy=True)


def measure(data: str, model: str, split: str, horizon: int, neurons: int, stride: int, window: int, seed: int) -> Settings:
    """Return the RSE of the paper's network, or of a ridge on each channel's window, with channels in [0, 1]."""
    rows = torch.from_numpy(_load(data))
    windows = Windows([rows], window, horizon, stride)
    parts = split_numbers(len(windows), -(-(window + horizon) // stride), series_set(data).split, split, seed)
    train, held_out, test = (Subset(windows, part) for part in parts)
    if model in MODELS:
        predictions = _ridge(train, held_out, test)
    else:
        kernel, channels = model.split(", ")[1], rows.shape[1]
        network = SpikingNetwork(channels, channels, window=window, horizon=horizon, hidden=(neurons,), kernel=kernel)
        sample(network, train, validation=held_out, readout=Switches().trajectory, random_state=seed)
        predict = network.predictor()
        predictions = torch.cat([predict(test.inputs(part), None) for part in batches(len(test), 256)])
    y = test.targets(slice(None)).double()
    error, spread = (predictions - y).square().sum(), (y - y.mean(dim=0)).square().sum()
    return {"rse": float((error / spread).sqrt()), "train_windows": len(train), "test_windows": len(test)}


def _ridge(train: Samples, held_out: Samples, test: Samples) -> Tensor:
    """Return the forecasts (windows, horizon, channels) of one ridge regression per channel."""
    found = []
    for channel in range(train.inputs(slice(0, 1)).shape[2]):  # type: ignore[union-attr]
        sums = []
        for samples in (train, held_out):
            x, y = samples.inputs(slice(None))[:, :, channel], samples.targets(slice(None))[:, :, channel]  # type: ignore[index]
            one = Sums(x.shape[1], y.shape[1])
            one.update(x.T[:, None].double().clone(), y.T[:, None].double())
            sums.append(one)
        weights, bias, _ = LambdaSearch().solve(sums[0], sums[1])
        found.append(test.inputs(slice(None))[:, :, channel].double() @ weights + bias)  # type: ignore[index]
    return torch.stack(found, dim=2)


def _whole(data: str) -> str:
    """Return the set that a part is of."""
    return next((name for name in ORIGINAL if data.startswith(name)), data)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean RSE over seeds, one row per set, model and split, and the paper's numbers for the whole sets."""
    row = ["data", "model", "split", "seeds"]
    runs = runs.assign(seeds=count_seeds(runs, row[:-1], "horizon"))
    horizons = sorted(set(runs["horizon"]))
    parts, theirs = [], published()
    for name in dict.fromkeys(runs["data"]):
        parts.append(runs[runs["data"] == name].pivot_table("rse", row, "horizon", sort=False).reset_index())
        ours = theirs[(theirs["data"] == _whole(name)) & theirs["model"].str.startswith("SSWIM (")]
        if len(ours):
            wide = ours.pivot_table("rse", "model", "horizon", sort=False).reindex(columns=horizons).reset_index()
            parts.append(wide.assign(data=_whole(name), split="published", seeds="3"))
    whole = pd.concat(parts, ignore_index=True)[[*row, *horizons]]
    return whole.rename(columns={h: f"RSE {h}" for h in horizons})


def draw(runs: pd.DataFrame) -> Figure:
    """Draw the error over the horizon, a panel per set; the paper's numbers for the whole set in grey."""
    names, models = list(dict.fromkeys(runs["data"])), list(dict.fromkeys(runs["model"]))
    figure, axes = panels(len(names))
    theirs = published()
    for ax, name in zip(axes, names, strict=True):
        for model, part in theirs[theirs["data"] == _whole(name)].groupby("model", sort=False):
            if str(model).startswith("SSWIM ("):
                ax.plot(part["horizon"], part["rse"], color="0.6", lw=3, alpha=0.6, label="published, whole set")
        for (model, split), part in runs[runs["data"] == name].groupby(["model", "split"], sort=False):
            mean = part.groupby("horizon")["rse"].mean()
            style = ("-", "--", ":")[models.index(model) % 3]
            ax.plot(mean.index, mean, ls=style, ms=4, label=f"{model}, {split}", **marked(SPLITS.index(str(split))))
        ax.set_title(name)
        over_horizon(ax, runs["horizon"])
    axes[0].set_ylabel("test RSE, channels in [0, 1]")
    legend_below(figure, axes)
    return figure


splits = Experiment(
    cells,
    measure,
    table,
    draw,
    order={"data": list(SERIES), "model": None, "split": SPLITS, "horizon": None, "seed": None},
    quick={"data": ("wind-farm",), "seeds": 1, "neurons": 60, "horizons": (6, 24), "stride": 8},
    choices={"kernels": list(KERNELS), "models": MODELS, "splits": SPLITS},
)
