"""The readout of traces, and corrections of it: each channel's own weights, on few directions of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sswim.network.layer import SpikingLayer, decays
from sswim.network.output import Reader
from sswim.regression import Sums, index_of_least, safe_eigh

__all__ = [
    "Corrections",
    "TraceReadout",
    "check_memory",
    "common_directions",
    "leading_directions",
    "loadings",
    "search_penalties",
]

# Penalties that are tried.
LAMBDAS = torch.logspace(-3, 3, 19, dtype=torch.float64).tolist()


def check_memory(features: int, budget: int, remedy: str) -> None:
    """Refuse to sum up products of more features than memory has room for."""
    if 24 * features**2 > budget:
        need = f"{24 * features**2 / 1e9:.1f} GB"
        raise ValueError(f"memory: the sums of {features:,} features take {need}, got {budget / 1e9:g} GB. {remedy}")


class TraceReadout(nn.Module):
    r"""Read features at one step, the window's end, with separate weights for each step ahead.

    Features are the traces of all hidden layers' spikes (see `sswim.network.Stream`) and, with a skip connection, the
    window's own rows. Several groups, such as channels that share a network, share the weights. Each may have a correction
    of its own, on few directions of its features and of what all groups do together: their features, pooled.

    Parameters
    ----------
    traces, outputs, horizon : int
        Number of traces, of outputs, and of steps ahead.
    constants : sequence of float
        Time constants of the traces, in steps.
    lags : int
        Number of features, the last ones, that are input rows: all rows of the first `outputs` inputs, which are the outputs'
        past then, and the last row of any further inputs. 0 without a skip connection.
    groups, rank : int
        Number of groups, and of directions of a group's features that its correction is made of.
    factors, common : int
        How many weighted means over all groups are taken of every feature, and how many directions of these enter the
        corrections.

    Attributes
    ----------
    weights : Parameter of shape (horizon * outputs, features)
    biases : Parameter of shape (horizon * outputs,)
    directions : Parameter of shape (features, rank)
    pool : Parameter of shape (groups, factors)
    common_directions : Parameter of shape (features * factors, common)
    own_weights : Parameter of shape (groups, rank + common, horizon * outputs)
    own_biases : Parameter of shape (groups, horizon * outputs)
    """

    def __init__(
        self,
        traces: int,
        outputs: int,
        horizon: int,
        *,
        constants: Sequence[float],
        lags: int = 0,
        groups: int = 0,
        rank: int = 0,
        factors: int = 0,
        common: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.outputs, self.horizon, self.lags = outputs, horizon, lags
        self.constants = tuple(float(c) for c in constants)
        rows, features = horizon * outputs, traces + lags
        rank = min(rank, features)

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape, dtype=dtype))

        self.weights, self.biases = zeros(rows, features), zeros(rows)
        self.directions = zeros(features, rank)
        self.pool, self.common_directions = zeros(groups, factors), zeros(features * factors, common)
        self.own_weights, self.own_biases = zeros(groups, rank + common, rows), zeros(groups, rows)

    def simulated(self, window: int) -> int:
        """Return how many steps of the hidden layers matter: those of the window."""
        return window

    def reader(self, window: int, start: int | None = None) -> tuple[int, Reader]:
        """Return how many steps have to be simulated, and a function that reads them."""
        return window, self._read

    def read_through(
        self, spikes: Sequence[Tensor], rows: Tensor | None, fire: Callable[[SpikingLayer, Tensor], Tensor]
    ) -> Tensor:
        """Return the output (batch, horizon, outputs) with gradients."""
        return self._read(spikes, rows)

    def _read(self, spikes: Sequence[Tensor], rows: Tensor | None) -> Tensor:
        """Return the output (batch, horizon, outputs) from spikes (neurons, window, batch) and rows (batch, window, inputs)."""
        age = torch.arange(spikes[0].shape[1] - 1, -1, -1)
        decay = decays(torch.tensor(self.constants), age).to(spikes[0])  # (K, O)
        features = torch.cat([torch.matmul(decay, a).flatten(0, 1) for a in spikes])  # (N K, B)
        if self.lags:
            if rows is None:
                raise TypeError("x: a skip connection needs rows (batch, window, inputs), got events.")
            own = rows[:, :, : self.outputs].to(features).permute(2, 1, 0).flatten(0, 1)
            features = torch.cat([features, own, rows[:, -1, self.outputs :].to(features).T])
        return self(features[:, None])[:, 0].T.reshape(-1, self.horizon, self.outputs)

    def clear(self) -> None:
        """Set weights and biases to 0, before training from scratch."""
        self.weights.zero_(), self.biases.zero_()

    def shared(self, features: Tensor) -> Tensor:
        """Return the outputs (horizon * outputs, steps, batch) without corrections."""
        return torch.addmm(self.biases[:, None], self.weights, features.flatten(1)).view(-1, *features.shape[1:])

    def pooled(self, features: Tensor) -> Tensor:
        """Return the weighted means (features * factors, steps, 1) of features (features, steps, groups)."""
        return (features @ self.pool).permute(0, 2, 1).flatten(0, 1)[:, :, None]

    def own_features(self, features: Tensor) -> Tensor:
        """Return what corrections are made of, (rank + common, steps, groups), from features (features, steps, groups)."""
        _, steps, batch = features.shape
        few = (self.directions.T @ features.flatten(1)).view(-1, steps, batch)
        if not self.common_directions.shape[1]:
            return few
        together = self.common_directions.T @ self.pooled(features)[:, :, 0]  # (common, T)
        return torch.cat([few, together[:, :, None].expand(-1, -1, batch)])

    def forward(self, features: Tensor) -> Tensor:
        """Map features (features, steps, batch) to outputs (horizon * outputs, steps, batch).

        With corrections, a batch holds one member of each group, in order, or several such sets one after the other.
        """
        y, known = self.shared(features), len(self.own_weights)
        if not known:
            return y
        if features.shape[2] % known:
            raise ValueError(f"x: a batch must hold one member of each of {known} groups, in order, got {features.shape[2]}.")
        sets = [self.own_features(f).permute(2, 1, 0) for f in features.split(known, dim=2)]
        own = [torch.bmm(f, self.own_weights) + self.own_biases[:, None] for f in sets]  # (B, T, H O)
        return y + torch.cat(own).permute(2, 1, 0)


@dataclass(frozen=True)
class Corrections:
    """How each channel's own weights are regularised.

    Attributes
    ----------
    split : int
        Number of first features, which are solved for first; the others explain what these leave.
    penalties : list of two Tensor of shape (channels,)
    lively : Tensor of shape (channels,), bool
        Channels that moved in training. One that rested has shown too little of itself to be corrected.
    """

    split: int
    penalties: list[Tensor]
    lively: Tensor

    @classmethod
    def search(cls, train: Sums, held_out: Sums, split: int, rows: Tensor) -> Corrections:
        """Choose penalties on validation rows; `rows` (rows, channels) are the scaled training rows."""
        spread = rows.std(dim=0, correction=0)
        lively = spread > 0.2 * spread.median()
        return cls(split, search_penalties(train, held_out, split, LAMBDAS), lively.to(train.gram.device))

    def solve(self, sums: Sums) -> tuple[Tensor, Tensor]:
        """Return weights (channels, features, outputs) and biases (channels, outputs)."""
        first, _ = sums.part(slice(0, self.split)).solve(self.penalties[0])
        second, _ = sums.after(first).solve(self.penalties[1])
        weights = torch.cat([first, second], dim=1)
        return weights * self.lively[:, None, None], sums.bias(weights) * self.lively[:, None]


def search_penalties(train: Sums, validation: Sums, split: int, lambdas: Sequence[float], company: float = 2.0) -> list[Tensor]:
    """Choose each group's penalties for `Corrections.solve` by the error on validation rows, those of the first features first.

    A group's own error is uncertain, so the error of all groups counts too, with the weight `company`. Infinity, so no
    weights at all, is always a candidate.

    Returns
    -------
    list of two Tensor of shape (groups,)
    """
    grid = torch.tensor([*lambdas, torch.inf], dtype=torch.float64, device=train.gram.device)
    first, sums, chosen = train.cross[:, :0], train.part(slice(0, split)), []
    for part in (slice(0, split), slice(split, None)):
        errors = []
        for lambda_ in grid:
            weights = torch.zeros_like(train.cross)
            weights[:, : first.shape[1]] = first
            if torch.isfinite(lambda_):
                weights[:, part] = sums.solve(lambda_)[0]
            errors.append(validation.squared_error(weights, train.bias(weights)).sum(dim=1))
        error = torch.stack(errors)  # (lambdas, groups)
        usual = error[-1].mean().clamp_min(1e-300)
        relative = error / error[-1].clamp_min(1e-6 * usual)
        judged = relative + company * (error.sum(dim=1) / error[-1].sum().clamp_min(1e-300))[:, None]
        chosen.append(grid[index_of_least(judged)])
        if len(chosen) == 1:
            first, _ = sums.solve(chosen[0])
            sums = train.after(first)
    return chosen


def loadings(rows: Tensor, factors: int) -> Tensor:
    """Return weights (channels, factors) of the channels' principal components, from scaled rows (rows, channels)."""
    few = rows[:: max(1, len(rows) // 2000)].double().clamp(-5, 5)
    vectors = torch.linalg.svd(few - few.mean(dim=0), full_matrices=False)[2][:factors].T
    return torch.nn.functional.pad(vectors, (0, factors - vectors.shape[1]))


def leading_directions(sums: Sums, rank: int, last: int) -> Tensor:
    """Return the directions (features, rank) in which features vary most, among the `last` ones if that is not 0.

    Traces of different neurons have different scales, and are divided by their deviation first; rows have the same scale.
    """
    gram = sums.gram / max(sums.samples, 1)
    size = gram.diagonal().clamp_min(0).sqrt()
    size = torch.where(size > 1e-6 * size.max(), size, torch.inf)
    if last:
        size = torch.where(torch.arange(len(size), device=size.device) < len(size) - last, torch.inf, torch.ones_like(size))
    _, vectors = safe_eigh(gram / size[:, None] / size)
    return vectors[:, vectors.shape[1] - rank :] / size[:, None]


def common_directions(pooled: Tensor, count: int) -> Tensor:
    """Return directions (features, count) in which pooled features (rows, features) vary most.

    They are scaled between what principal components have, where the first outweighs all, and equal deviations.
    """
    pooled = pooled.double() - pooled.double().mean(dim=0)
    size = pooled.square().mean(dim=0).sqrt()
    size = torch.where(size > 1e-6 * size.max(), size, torch.inf)
    unit = pooled / size
    values, left = safe_eigh(unit @ unit.T)  # a row each: fewer than features
    values, left = values.flip(0)[:count], left.flip(1)[:, :count]
    values, left = values[values > 1e-6 * values[0]], left[:, values > 1e-6 * values[0]]
    # Principal directions are unit.T @ left / values ** (1 / 2), with the deviation (values / rows) ** (1 / 2).
    directions = (unit.T @ left) / values**0.5 * (len(unit) / values) ** 0.25 / size[:, None]
    return torch.nn.functional.pad(directions, (0, count - directions.shape[1]))
