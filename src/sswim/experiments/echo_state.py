"""An echo state network of reservoirpy as a forecaster, tuned as well as ours: what a reservoir without spikes reaches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from sswim.data.statistics import standard_scales
from sswim.data.windows import kept_for_training
from sswim.evaluate.metrics import Evaluation, ForecastErrors
from sswim.regression import LambdaSearch, Sums

__all__ = ["EchoState"]


class EchoState:
    """One reservoir that all channels enter, running along the series, with separate readout weights per step ahead.

    Spectral radius, leak and input scaling are chosen on the last part of the windows with a smaller reservoir, the ridge
    penalty of every output with the full one. The readout sees the current input too.

    Parameters
    ----------
    window, horizon : int
        Forecasts begin `window` rows into a stretch, as those of the other models do.
    units : int
    validation : float
        Part of the windows that everything is chosen on.
    seed : int
    options : dict, optional
        Spectral radius, leak and input scaling, if they are known already.
    """

    def __init__(
        self,
        window: int,
        horizon: int,
        *,
        units: int = 750,
        validation: float = 0.2,
        seed: int = 0,
        options: dict[str, float] | None = None,
    ) -> None:
        self.window, self.horizon, self.units, self.validation, self.seed = window, horizon, units, validation, seed
        self.options = options

    def _features(self, rows: np.ndarray, units: int, options: dict[str, float]) -> np.ndarray:
        from reservoirpy.nodes import Reservoir

        z = (np.clip(rows, self.low, self.high) - self.mean) / self.spread
        listened = max(0.1 * z.shape[1], 1.0)  # to that many channels does a unit listen
        scaling = options["scaling"] / listened**0.5
        reservoir = Reservoir(units, sr=options["radius"], lr=options["leak"], input_scaling=scaling, seed=self.seed)
        return np.concatenate([reservoir.run(z), z], axis=1)

    def _origins(self, stretches: list[np.ndarray], units: int, options: dict[str, float]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features (origins, features) and targets (origins, horizon, channels) of each stretch."""
        for rows in stretches:
            count = len(rows) - self.window - self.horizon + 1
            if count > 0:
                f = self._features(rows, units, options)[self.window - 1 : self.window - 1 + count]
                y = torch.from_numpy(rows[self.window :]).unfold(0, self.horizon, 1).mT[:count]
                yield torch.from_numpy(np.ascontiguousarray(f)), y

    def _sums(self, stretches: list[np.ndarray], units: int, options: dict[str, float], every: int = 1) -> list[Sums]:
        """Return the sums of training and of validation rows, for every `every`-th step ahead."""
        channels, ahead = stretches[0].shape[1], -(-self.horizon // every)
        total = sum(max(len(rows) - self.window - self.horizon + 1, 0) for rows in stretches)
        kept = kept_for_training(total, self.validation)
        sums = [Sums(units + channels, ahead * channels) for _ in range(2)]
        first = 0
        for f, y in self._origins(stretches, units, options):
            y = (y[:, ::every] - self.mean) / self.spread
            cut = min(max(kept - first, 0), len(f))
            for equations, part in ((sums[0], slice(0, cut)), (sums[1], slice(cut, len(f)))):
                for a, b in zip(f[part].split(512), y[part].split(512), strict=True):
                    equations.update(a.T[:, None].contiguous(), b.flatten(1).T[:, None])
            first += len(f)
        return sums

    def fit(self, stretches: list[np.ndarray]) -> EchoState:
        """Tune and fit on several stretches (rows, channels)."""
        rows = np.concatenate(stretches)
        seen = rows[: int(len(rows) * (1 - self.validation))]
        mean, spread = standard_scales(torch.from_numpy(seen))
        self.mean, self.spread, self.low, self.high = mean.numpy(), spread.numpy(), seen.min(axis=0), seen.max(axis=0)
        search = LambdaSearch(1e-5, 1e3, 9, extend=False)
        if self.options is None:
            self.options = self._tuned(stretches, search)
        train, held_out = self._sums(stretches, self.units, self.options)
        _, _, lambdas = search.solve(train, held_out)
        train.merge(held_out)
        self.weights, self.biases = train.solve(lambdas)
        return self

    def _tuned(self, stretches: list[np.ndarray], search: LambdaSearch) -> dict[str, float]:
        """Return the best of twelve reservoirs, judged by a few steps ahead."""
        best, least = {}, np.inf
        for radius, leak, scaling in itertools.product((0.8, 1.1), (0.1, 0.3, 1.0), (0.1, 1.0)):
            options = {"radius": radius, "leak": leak, "scaling": scaling}
            train, held_out = self._sums(stretches, min(200, self.units), options, max(1, self.horizon // 4))
            weights, biases, _ = search.solve(train, held_out)
            error = float(held_out.squared_error(weights, biases).sum())
            if error < least:
                best, least = options, error
        return best

    def evaluate(self, stretches: list[np.ndarray]) -> Evaluation:
        """Return the errors over every window of several stretches."""
        errors = ForecastErrors()
        for features, truth in self._origins(stretches, self.units, self.options or {}):
            for f, y in zip(features.split(512), truth.split(512), strict=True):
                forecast = (f @ self.weights + self.biases).view(y.shape).numpy() * self.spread + self.mean
                errors.update(y.numpy(), forecast)
        return errors.result()
