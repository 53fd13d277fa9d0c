r"""The readout with lags: each step ahead reads the spikes of a whole window, through delays.

Every channel of a window has two populations of neurons (`sswim.network.Population`). One sees the channel relative to the
window's mean, in units of the window's deviation. The other sees the channel in units of the training rows. The output reads

- the first population's spikes, summed over its neurons, at every lag of the window: one weight per lag, tied over neurons,
- the second population's spikes, summed over neurons and lags: the channel's level,
- single neurons of both populations, in bins of lags that are fine near the origin and coarse further back,
- traces of the sampled neurons, and covariates,
- what all channels do together: the populations of all channels, in bins of lags,
- populations of covariates that are known ahead, and single neurons of these, at every step ahead,
- clock neurons, which tell the time of day, week and year (`sswim.data.calendar`).

Spikes of the first population count in units of the window's deviation, so a forecast follows a channel that leaves its
range. Levels, single neurons, traces, covariates and other channels do not: what is read of them stays between the least
and the largest value of the training windows. A weight that was found there may be wrong beyond, the more the further.
Only a level that kept leaving its range in training may go on.
All these features reach the output through few directions, the leading ones. A window that does not move is forecast to
stay where it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sswim.network.layer import SpikingLayer, decays
from sswim.network.output import Reader
from sswim.network.population import REACH, Population
from sswim.readout.lag_sizes import Features, LagSizes, lag_bins

__all__ = ["Features", "LagReadout", "LagSizes", "lag_bins"]

# Deviations from a window's mean that other channels see, at most.
LIMIT = 5.0
# Ranges of features, before any window is seen, are without bounds. Files hold finite numbers only.
UNBOUNDED = 1e30


class LagReadout(nn.Module):
    """Read a window's spikes through lags, with separate weights for each step ahead and each group.

    Parameters
    ----------
    sizes : LagSizes
    constants : sequence of float
        Time constants of the sampled neurons' traces, in steps.
    population : int
        Neurons of each population.
    singles : int
        Number of neurons of each population that also have weights of their own. Only where channels share the network.
    skip : bool
        Whether the window's rows are read themselves, instead of the population's spikes.
    absolute : bool
        Whether outputs contain the window's mean, or are relative to it.
    heights : bool
        Whether the population that sees rows in units of the training rows is read. Without, forecasts move along with the
        series.

    Attributes
    ----------
    weights : Parameter of shape (groups, features, horizon * outputs)
        For features as `reduced` returns them.
    spreads : Tensor of shape (groups, outputs)
        Deviation that nearly all training windows of a channel have at least.
    height_range, extra_range, common_range : Tensor of shape (2, features)
        Least and largest level of each channel, and least and largest value of each feature, of training windows.
    lag_directions : Tensor of shape (window, lags)
    extra_mean, extra_directions : Tensor of shape (all extra features,) and (all extra features, extra)
    common_mean, common_directions : Tensor of shape (groups * (bins + 1),) and (groups * (bins + 1), common)
    ahead_mean, ahead_directions : Tensor of shape (codes,) and (codes, ahead)
        If anything is known ahead.
    timeless : Tensor of shape (groups, features - clock, horizon * outputs)
        Weights for windows whose time is not known, if there is a clock.
    """

    weights: nn.Parameter
    spreads: Tensor
    height_range: Tensor
    extra_range: Tensor
    common_range: Tensor
    lag_directions: Tensor
    extra_mean: Tensor
    extra_directions: Tensor
    common_mean: Tensor
    common_directions: Tensor
    ahead_mean: Tensor
    ahead_directions: Tensor
    timeless: Tensor
    _fires: Tensor
    _bin: Tensor
    _share: Tensor
    _binning: Tensor

    def __init__(
        self,
        sizes: LagSizes,
        *,
        constants: Sequence[float],
        population: int = 64,
        singles: int = 8,
        skip: bool = False,
        absolute: bool = False,
        heights: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.sizes, self.skip, self.absolute, self.singles, self.heights = sizes, skip, absolute, singles, heights
        self.constants, bins = tuple(float(c) for c in constants), lag_bins(sizes.window)
        self.outputs, self.horizon, self._bins = sizes.outputs, sizes.horizon, len(bins) - 1
        self.resize(population)

        def fixed(name: str, value: Tensor, keep: bool = False) -> None:
            self.register_buffer(name, value if value.dtype == torch.long else value.to(dtype), persistent=keep)

        number = torch.bucketize(torch.arange(sizes.window - 1, -1, -1), torch.tensor(bins[1:]), right=True)  # bin of each row
        width = torch.tensor(bins[1:]) - torch.tensor(bins[:-1])
        fixed("_bin", number * (self._chosen + 1))
        fixed("_share", 1 / width[number].double())
        fixed("_binning", torch.nn.functional.one_hot(number, self._bins).double() / width)  # (W, bins)
        extra = 2 * self._chosen * self._bins + sizes.covariates * self._bins + sizes.traces
        common = sizes.groups * (self._bins + 1)
        fixed("spreads", torch.ones(sizes.groups, sizes.outputs), True)
        for name, count in (("height", sizes.groups * sizes.outputs), ("extra", extra), ("common", common)):
            fixed(f"{name}_range", torch.zeros(2, count), True)
        fixed("lag_directions", torch.eye(sizes.window, sizes.lags).flip(0), True)
        fixed("extra_mean", torch.zeros(extra), True)
        fixed("extra_directions", torch.eye(extra, sizes.extra), True)
        fixed("common_mean", torch.zeros(common), True)
        fixed("common_directions", torch.eye(common, sizes.common), True)
        if sizes.known:
            fixed("ahead_mean", torch.zeros(self.codes), True)
            fixed("ahead_directions", torch.eye(self.codes, sizes.ahead), True)
        self.unbound()
        rows = sizes.horizon * sizes.outputs
        self.weights = nn.Parameter(torch.zeros(sizes.groups, self.parts["clock"].stop, rows, dtype=dtype))
        if sizes.clock:
            fixed("timeless", torch.zeros(sizes.groups, self.parts["clock"].start, rows), True)

    def resize(self, population: int) -> None:
        """Set the number of neurons of each population, before anything is read."""
        self.population = Population(population)
        chosen = self.population.spread_out(self.singles if self.sizes.outputs == 1 else 0)
        self._chosen = len(chosen)
        fires = torch.searchsorted(chosen, torch.arange(population + 1), right=False)  # of the chosen, by a count
        self.register_buffer("_fires", fires.to(next(self.buffers(), fires).device), persistent=False)

    @torch.no_grad()
    def unbound(self) -> None:
        """Let features have any value, until training windows tell their ranges."""
        for found in (self.height_range, self.extra_range, self.common_range):
            found[0], found[1] = -UNBOUNDED, UNBOUNDED

    @property
    def parts(self) -> dict[str, slice]:
        """Where the features of each kind lie among those of `reduced`."""
        found, at, s = {}, 0, self.sizes
        counts = {"last": s.outputs, "one": 1, "lags": s.lags * s.outputs, "heights": s.outputs, "extra": s.extra}
        for name, count in (counts | {"common": s.common, "ahead": s.ahead, "clock": s.clock}).items():
            found[name] = slice(at, at + count)
            at += count
        return found

    @property
    def covariates(self) -> slice:
        """Where covariates, in bins of lags, lie among the extra features."""
        first = 2 * self._chosen * self._bins
        return slice(first, first + self.sizes.covariates * self._bins)

    @property
    def codes(self) -> int:
        """Number of codes of what is known ahead, before directions are taken."""
        return self.sizes.known * (1 + self._chosen) * self.horizon

    def features(self, rows: Tensor, covariates: Tensor, traces: Tensor, ahead: Tensor | None = None) -> Features:
        """Return what is seen of windows.

        Parameters
        ----------
        rows : Tensor of shape (batch, outputs, window)
            Scaled, not clipped.
        covariates : Tensor of shape (batch, covariates, window)
        traces : Tensor of shape (batch, traces)
        ahead : Tensor of shape (sets, known * horizon + waves), optional
            What is known ahead, and the calendar's waves, the same for all members of a set; no waves if the time is not known.
        """
        level, relative, unit, moves = _apart(rows)
        usual = self.spreads.repeat(rows.shape[0] // self.sizes.groups, 1)  # (batch, outputs)
        moving = (unit[:, :, 0] / usual).clamp(max=1.0).square() * moves[:, :, 0]
        deviations, heights = relative / unit, rows.clamp(-2 * REACH, 2 * REACH)
        counts, absolute = self.population.counts(deviations), self.population.counts(heights)
        values = self.population.values
        lags, shown = (relative, heights) if self.skip else (values(counts) * unit, values(absolute))
        low, high = self.height_range.unflatten(1, (self.sizes.groups, -1)).repeat(1, rows.shape[0] // self.sizes.groups, 1)
        height = (shown.mean(dim=2) * self.heights).clamp(low, high)
        seen = covariates if self.skip else self.population.rounded(covariates)
        extra = torch.cat([(seen @ self._binning).flatten(1), traces], dim=1)
        if self._chosen:
            own = self._single(counts[:, 0]) - 0.5
            extra = torch.cat([own * unit[:, 0] * moves[:, 0], self._single(absolute[:, 0]) * self.heights, extra], dim=1)
        extra, together = extra.clamp(*self.extra_range), extra[:0]
        if self.sizes.common:
            limited = torch.cat([(lags[:, 0] @ self._binning).clamp(-LIMIT, LIMIT), height], dim=1)
            together = limited.unflatten(0, (-1, self.sizes.groups)).flatten(1).clamp(*self.common_range)
        known = self.sizes.known * self.horizon
        clock = extra[:0, :0] if ahead is None else ahead[:, known:]
        coded = self._ahead(ahead[:, :known].unflatten(1, (-1, self.horizon))) if known and ahead is not None else extra[:0]
        moving = moving.amax(dim=1, keepdim=True)
        return Features(level[:, :, 0], moving, relative[:, :, -1], lags, height, extra, together, coded, clock)

    def _ahead(self, ahead: Tensor) -> Tensor:
        """Return the codes (sets, codes) of what is known ahead: its value, as a population shows it, and single neurons."""
        fires = self._fires[self.population.counts(ahead).long()][..., None] > torch.arange(self._chosen, device=ahead.device)
        shown = ahead if self.skip else self.population.rounded(ahead)
        return torch.cat([shown.flatten(1), fires.to(shown).flatten(1)], dim=1)

    def deviations(self, rows: Tensor) -> Tensor:
        """Return windows (batch, outputs, window) relative to their mean and in units of their deviation; 0 where they rest."""
        _, relative, unit, _ = _apart(rows)
        return relative / unit

    def raster(self, rows: Tensor) -> Tensor:
        """Return the spikes of the populations that see windows relative to their mean, (batch, outputs, window, neurons)."""
        return self.population.fires(self.deviations(rows))

    def spikes(self, rows: Tensor) -> Tensor:
        """Return how many spikes the populations fire in windows (batch, outputs, window): (batch,).

        With a skip connection only those of the single neurons count: nothing else is read. Nor do those of populations that
        see rows in units of the training rows, where these are not read.
        """
        signals = torch.cat([self.deviations(rows), rows], dim=1) if self.heights else self.deviations(rows)
        if not self.skip:
            return self.population.spikes(signals).sum(dim=(1, 2)).double()
        reached, silent = self._fires[self.population.counts(signals).long()], self._fires[self.population.neurons // 2]
        return (reached - silent).abs().sum(dim=(1, 2)).double()

    def _single(self, counts: Tensor) -> Tensor:
        """Return the share of steps at which each chosen neuron fires in each bin, (batch, bins * chosen), by the counts."""
        index = self._fires[counts.long()] + self._bin  # (batch, window)
        sizes = counts.new_zeros(counts.shape[0], self._bins * (self._chosen + 1))
        sizes.scatter_add_(1, index, self._share.expand_as(counts))
        by_number = sizes.unflatten(1, (self._bins, -1))  # how often exactly 0, 1, ... of the chosen neurons fire
        return by_number.flip(2).cumsum(dim=2).flip(2)[:, :, 1:].flatten(1)

    def reduced(self, seen: Features) -> Tensor:
        """Return few features (batch, features), which the weights are for."""
        one = torch.ones_like(seen.moving)
        lags = (seen.lags @ self.lag_directions).flatten(1)
        heights, extra = seen.heights, (seen.extra - self.extra_mean) @ self.extra_directions
        # What does not shrink with the window's deviation must not outweigh a window that hardly moves.
        parts = [seen.last, one * seen.moving, lags, heights * seen.moving, extra * seen.moving]
        if self.sizes.common:
            common = (seen.together - self.common_mean) @ self.common_directions
            parts.append(common.repeat_interleave(self.sizes.groups, dim=0) * seen.moving)
        if self.sizes.ahead:
            # A channel at rest may well move once what it follows does.
            ahead = (seen.ahead - self.ahead_mean) @ self.ahead_directions
            parts.append(ahead.repeat_interleave(self.sizes.groups, dim=0))
        if seen.clock.shape[1]:
            parts.append(seen.clock.repeat_interleave(self.sizes.groups, dim=0) * seen.moving)
        return torch.cat(parts, dim=1)

    def forward(self, reduced: Tensor) -> Tensor:
        """Map reduced features (batch, features) to outputs (batch, horizon * outputs).

        A batch holds one member of each group, in order, or several such sets one after the other. Features without waves of
        the calendar have weights of their own.
        """
        groups = self.sizes.groups
        if reduced.shape[0] % groups:
            raise ValueError(f"x: a batch must hold one member of each of {groups} groups, in order, got {reduced.shape[0]}.")
        each = reduced.unflatten(0, (-1, groups)).transpose(0, 1)  # (groups, sets, features)
        weights = self.weights if each.shape[2] == self.weights.shape[1] else self.timeless
        return torch.bmm(each, weights).transpose(0, 1).flatten(0, 1)

    @torch.no_grad()
    def without_clock(self) -> LagReadout:
        """Return the output for windows whose time is not known."""
        found = copy.deepcopy(self)
        if self.sizes.clock:
            found.sizes, found.weights = replace(self.sizes, clock=0), nn.Parameter(self.timeless.to(self.weights))
            del found.timeless
        return found

    def read(self, spikes: Sequence[Tensor], rows: Tensor | None, ahead: Tensor | None = None) -> Tensor:
        """Return the output (batch, horizon, outputs).

        From spikes (neurons, window, batch), rows (batch, window, inputs), and what is known ahead, as `features` takes it.
        """
        if rows is None:
            raise TypeError("x: a readout with lags needs rows (batch, window, inputs), got events.")
        if self.sizes.known and ahead is None:
            raise TypeError("x: this readout needs what is known ahead: use Forecaster.predict.")
        seen = self.look(spikes, rows, ahead)
        y = self(self.reduced(seen)).unflatten(1, (self.horizon, -1))
        return y + seen.level[:, None] if self.absolute else y

    def look(self, spikes: Sequence[Tensor], rows: Tensor, ahead: Tensor | None = None) -> Features:
        """Return what is seen of windows (batch, window, inputs) and of sampled neurons' spikes (neurons, window, batch)."""
        age = torch.arange(rows.shape[1] - 1, -1, -1)
        decay = decays(torch.tensor(self.constants), age).to(self.weights)  # (K, W)
        traces = torch.cat([torch.matmul(decay, a.to(decay)).flatten(0, 1) for a in spikes]).T  # (batch, N K)
        each = rows.to(self.weights).transpose(1, 2)
        known = None if ahead is None else ahead.to(self.weights)
        return self.features(each[:, : self.outputs], each[:, each.shape[1] - self.sizes.covariates :], traces, known)

    def simulated(self, window: int) -> int:
        """Return how many steps of the hidden layers matter: those of the window."""
        return window

    def reader(self, window: int, start: int | None = None) -> tuple[int, Reader]:
        """Return how many steps have to be simulated, and a function that reads them."""
        return window, self.read

    def read_through(
        self, spikes: Sequence[Tensor], rows: Tensor | None, fire: Callable[[SpikingLayer, Tensor], Tensor]
    ) -> Tensor:
        """Return the output (batch, horizon, outputs) with gradients."""
        return self.read(spikes, rows)

    def clear(self) -> None:
        """Set the weights to 0, before training from scratch."""
        self.weights.zero_()


def _apart(rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, relative values, deviation (1 at rest) and motion (0 at rest, else 1) of windows (batch, outputs, rows)."""
    level = rows.mean(dim=2, keepdim=True)
    relative = rows - level
    spread = relative.square().mean(dim=2, keepdim=True).sqrt()
    moves = spread > 64 * torch.finfo(rows.dtype).eps * (level.abs() + 1e-3)
    return level, relative * moves, torch.where(moves, spread, torch.ones_like(spread)), moves.to(rows)
