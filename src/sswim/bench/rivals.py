"""Forecasters of other libraries for `sswim bench forecasters`. What is not installed fails as usual."""

from __future__ import annotations

import logging
import warnings
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from sswim.data.series import Breaks, SeriesLike
from sswim.data.tensors import Windows
from sswim.data.windows import batches, kept_for_training
from sswim.evaluate.baselines import Baseline
from sswim.report import Facts

__all__ = ["TREES", "BoostedTrees", "DeepNetwork"]

# LightGBM's parameters. Its defaults are made for small tables: these learn slower, with larger leaves.
TREES: Facts = {
    "objective": "regression",
    "learning_rate": 0.05,
    "num_leaves": 63,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.5,
    "deterministic": True,
    "verbosity": -1,
}


class BoostedTrees(Baseline):
    """LightGBM on lags: a few models, each for several steps ahead of all channels.

    A row of a model's table is a window of one channel and one step ahead. Its features are the window's values relative to
    its last value, that last value, the channel's number and the step. Its target is relative to the last value, too. The
    rows are a random sample of all rows. The number of trees is the best one on the last windows. The trees are then grown
    again on a sample of all windows.

    Parameters
    ----------
    window, horizon : int
    block : int
        Steps ahead that share a model.
    rows : int
        Rows that a model is fitted to at most; a quarter of that to choose the number of trees.
    trees : int
        Trees of a model at most.
    patience : int
        Trees without a gain after which no more are tried.
    validation : float
        Part of the windows on which the number of trees is chosen.
    seed : int
    """

    def __init__(
        self,
        window: int,
        horizon: int,
        *,
        block: int = 24,
        rows: int = 200_000,
        trees: int = 500,
        patience: int = 30,
        validation: float = 0.2,
        seed: int = 0,
    ) -> None:
        super().__init__(window, horizon)
        self.block, self.rows, self.trees, self.patience = block, rows, trees, patience
        self.validation, self.seed = validation, seed

    def fit(self, series: SeriesLike, *, breaks: Breaks = None) -> Self:
        """Fit the models to a sample of the windows of `series`."""
        import lightgbm

        windows, rng = self.windows(series, breaks), np.random.default_rng(self.seed)
        kept = kept_for_training(len(windows), self.validation)
        parameters = {**TREES, "seed": self.seed}

        def table(first: int, last: int, steps: range, rows: int) -> Any:
            x, y = self._table(windows, first, last, steps, rows, rng)
            return lightgbm.Dataset(x, y, categorical_feature=[self.window + 1], params={"verbosity": -1})

        self.models = []
        for begin in range(0, self.horizon, self.block):
            steps = range(begin, min(begin + self.block, self.horizon))
            train = table(0, kept, steps, self.rows)
            held_out = table(kept, len(windows), steps, self.rows // 4)
            stop = lightgbm.early_stopping(self.patience, verbose=False)
            trial = lightgbm.train(parameters, train, self.trees, valid_sets=[held_out], callbacks=[stop])
            count = max(trial.best_iteration, 1)
            self.models.append(lightgbm.train(parameters, table(0, len(windows), steps, self.rows), count))
        return self

    def _table(
        self, windows: Windows, first: int, last: int, steps: range, rows: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return features (rows, window + 3) and targets (rows,) of a sample of the windows ``[first, last)``."""
        shape = (last - first, windows.rows.shape[1], len(steps))
        total = int(np.prod(shape))
        drawn = np.arange(total) if total <= rows else rng.integers(total, size=rows)
        window, channel, step = np.unravel_index(drawn, shape)
        values, start = windows.rows.numpy(), windows.starts.numpy()[first + window]
        lags = np.stack([values[start + t, channel] for t in range(self.window)], axis=1, dtype=np.float32, casting="same_kind")
        target = values[start + self.window + steps.start + step, channel].astype(np.float32)
        return self._features(lags, channel, steps.start + step), target - lags[:, -1]

    def _features(self, lags: np.ndarray, channel: np.ndarray, step: np.ndarray | int) -> np.ndarray:
        """Return features (rows, window + 3) of windows of one channel (rows, window)."""
        last = lags[:, -1:]
        steps = np.broadcast_to(step, channel.shape)
        return np.column_stack([lags - last, last, channel, steps]).astype(np.float32, copy=False)

    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        count, window, channels = x.shape
        lags = x.transpose(0, 2, 1).reshape(-1, window).astype(np.float32)  # (B C, W)
        features = self._features(lags, np.tile(np.arange(channels), count), 0)
        ahead = np.empty((self.horizon, count * channels))
        for step in range(self.horizon):
            features[:, -1] = step
            ahead[step] = self.models[step // self.block].predict(features) + lags[:, -1]
        return ahead.reshape(self.horizon, count, channels).transpose(1, 0, 2)


class DeepNetwork(Baseline):
    """A network of neuralforecast with the library's own settings, but squared errors, as all others here minimise.

    It is trained for a fixed number of steps, without early stopping, on all rows that it is given: there is nothing to
    choose on validation rows. Forecasts are the network's own output for each window, batch by batch.

    Parameters
    ----------
    window, horizon : int
    kind : str
        Name of a model of neuralforecast: "NHITS", "PatchTST" or "TSMixer".
    steps : int
        Training steps.
    seed : int
    """

    def __init__(self, window: int, horizon: int, *, kind: str, steps: int, seed: int = 0) -> None:
        super().__init__(window, horizon)
        self.kind, self.steps, self.seed = kind, steps, seed

    def fit(self, series: SeriesLike, *, breaks: Breaks = None) -> Self:
        """Train the network on one series without gaps."""
        from neuralforecast import NeuralForecast, models
        from neuralforecast.losses.pytorch import MSE

        for name in ("pytorch_lightning", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)
        rows = self.windows(series, breaks).rows.numpy()
        kind = getattr(models, self.kind)
        quiet = {name: False for name in ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")}
        options: Facts = {"n_series": rows.shape[1]} if kind.MULTIVARIATE else {}
        network = kind(
            h=self.horizon,
            input_size=self.window,
            max_steps=self.steps,
            loss=MSE(),
            random_seed=self.seed,
            accelerator="cpu",
            **options,
            **quiet,
        )
        self.library = NeuralForecast(models=[network], freq=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the libraries tell each other
            self.library.fit(long_table(rows))
        self.network = self.library.models[0].eval()
        return self

    @torch.no_grad()
    def forecast(self, x: np.ndarray) -> np.ndarray:
        """Return (windows, horizon, channels) from (windows, window, channels)."""
        count, window, channels = x.shape
        z = torch.from_numpy(np.ascontiguousarray(x)).float()
        if not self.network.MULTIVARIATE:
            z = z.permute(0, 2, 1).reshape(-1, window, 1)  # (B C, W, 1)
        none = dict.fromkeys(("futr_exog", "hist_exog", "stat_exog"))
        parts = [
            self.network({"insample_y": z[part], "insample_mask": torch.ones_like(z[part]), **none})
            for part in batches(len(z), 1024)
        ]
        y = torch.cat(parts)
        if not self.network.MULTIVARIATE:
            y = y.reshape(count, channels, self.horizon).permute(0, 2, 1)
        return y.reshape(count, self.horizon, channels).double().numpy()


def long_table(rows: np.ndarray) -> pd.DataFrame:
    """Return rows (rows, channels) as neuralforecast wants them: one line for each value, channel after channel."""
    count, channels = rows.shape
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(channels), count),
            "ds": np.tile(np.arange(count), channels),
            "y": rows.T.reshape(-1).astype(np.float32),
        }
    )
