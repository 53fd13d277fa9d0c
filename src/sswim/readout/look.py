"""The windows of a fit as a readout with lags sees them, their sums, and the directions that are taken of what is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from sswim.algebra import safe_eigh
from sswim.data.windows import Index, Samples, SeriesWindows
from sswim.machine import PIECES
from sswim.network.network import Inputs, SpikingNetwork
from sswim.options import Run
from sswim.readout.blocks import Part, total
from sswim.readout.lags import UNBOUNDED, Features, LagReadout

__all__ = ["Source", "principal_directions", "range_of", "separate_directions", "set_directions"]

# Samples (windows of a channel) that directions are found from, and that are summed up in one piece, at most.
LOOKED, PIECE = 60_000, 32_768
# Values, windows, channels and steps ahead at most that the size of populations is found from.
VALUES, SPARSE, MEMBERS, STEPS = 4_000_000, 1500, 64, 12
# Of the directions of lags, the part that is single lags, the most recent ones. The others are principal directions.
RECENT = 0.25
# Features that vary less than this part of the median vary as much as that, when directions are sought.
RARE = 0.1
# Part of the later half of the windows that has to lie beyond the earlier half for a level to trend.
TREND = 0.9
# Part of the windows that move less than usual, and the least deviation that counts as usual.
QUIET, SMALLEST = 0.05, 0.02


class Source:
    """Windows of a series, as a readout with lags sees them.

    Parameters
    ----------
    network : SpikingNetwork
    samples : SeriesWindows
    memory : int
        Budget in bytes.
    """

    kind = Part

    def __init__(self, network: SpikingNetwork, samples: Samples | None, memory: int) -> None:
        if not isinstance(samples, SeriesWindows):
            raise TypeError(
                "Direct reads windows of series: use it through Forecaster, or pass readout=Counts(loss='squared_error') for "
                "samples."
            )
        self.samples, self.memory, self.network = samples, memory, network
        self.readout: LagReadout = network.readout  # type: ignore[assignment]
        self.group = samples.batch
        self.windows = len(samples) // self.group
        each = self.group * (6 * network.window + network.horizon + sum(network.hidden) * network.window + 1000) * 8
        each += 8 * self.readout.codes
        self.chunk = max(1, min(4096 // self.group + 1, memory // PIECES // each))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_traces"}

    def digest(self, groups: Sequence[Sequence[tuple[Tensor, Tensor | None]]]) -> str:
        """Return a text that tells these sums from others: scaling and hidden layers come from the series itself."""
        encoder = self.samples.encoder
        scales = [v.tobytes() for v in (encoder.low, encoder.high, encoder.offset, encoder.span, encoder.outliers)]
        pieces = [[(int(w[0]), int(w[-1]), len(w), c is not None) for w, c in group] for group in groups]
        ends = self.samples.ends
        begin = None if ends is None else (encoder.calendar, ends(torch.zeros(1, dtype=torch.long)).tolist())
        return self.network.digest(scales, encoder.moving, len(self.samples), self.chunk, pieces, begin)

    @cached_property
    def _traces(self) -> Callable[[Inputs], Tensor]:
        return self.network.trace_reader(self.readout.constants)

    def look(self, windows: Tensor) -> tuple[Features, Tensor]:
        """Return what is seen of some windows, and targets (samples, horizon * outputs), relative to the mean."""
        like = self.readout.weights
        samples, every = self.samples.read(windows), slice(None)
        x, past, ahead = samples.inputs(every).to(like), samples.past(every), samples.ahead(every)
        rows = past.to(like).transpose(1, 2)
        covariates = x.transpose(1, 2)[:, x.shape[2] - self.readout.sizes.covariates :]
        seen = self.readout.features(rows, covariates, self._traces(x).T, None if ahead is None else ahead.to(like))
        return seen, self._targets(samples, every, past).flatten(1).to(like)

    def some_rows(self) -> tuple[Tensor, Tensor]:
        """Return some windows in the order of time, (windows, channels, window), and some targets, relative to their mean.

        Targets are (windows, channels, steps), for steps that are spread over the horizon.
        """
        window, horizon = self.network.window, self.network.horizon
        members = _spread(self.group, MEMBERS)
        windows = _spread(self.windows, min(max(VALUES // (len(members) * self.readout.outputs * window), 60), SPARSE))
        index = (windows[:, None] * self.group + members).flatten()
        rows = self.samples.past(index)  # (samples, W, O)
        few = self._targets(self.samples, index, rows)[:, _spread(horizon, STEPS)]
        rows, few = (v.transpose(1, 2).unflatten(0, (len(windows), -1)).flatten(1, 2) for v in (rows, few))
        return rows, few

    def _targets(self, samples: SeriesWindows, index: Index, past: Tensor) -> Tensor:
        """Return targets (samples, horizon, outputs) of windows (samples, window, outputs), relative to their mean."""
        targets = samples.targets(index)
        return targets if samples.relative else targets - past.mean(dim=1, keepdim=True)

    def part(self, windows: Tensor, weights: Tensor | None = None) -> Part:
        """Return the sums of some windows, which count `weights` times."""
        chunks = windows.split(self.chunk)
        counted = [None] * len(chunks) if weights is None else weights.split(self.chunk)
        return total(map(self._chunk, chunks, counted))

    def _chunk(self, windows: Tensor, weights: Tensor | None) -> Part:
        seen, y = self.look(windows)
        groups = len(self.readout.weights)
        f, y = (v.unflatten(0, (-1, groups)).transpose(0, 1).contiguous() for v in (self.readout.reduced(seen), y))
        return Part.of(f, y, None if weights is None else weights.repeat_interleave(f.shape[1] // len(windows)))

    def sums(self, sets: Sequence[Tensor], weights: Sequence[Tensor | None], *, run: Run) -> Iterator[Part]:
        """Yield the sums of several sets of windows, each of which counts `weights` times."""
        size = max(self.chunk, PIECE // self.group // self.chunk * self.chunk)
        groups = []
        for windows, weight in zip(sets, weights, strict=True):
            pieces = windows.split(size)
            groups.append(list(zip(pieces, [None] * len(pieces) if weight is None else weight.split(size), strict=True)))
        return run.sums(_sum_piece, groups, self)


def _spread(count: int, most: int) -> Tensor:
    """Return at most `most` of the numbers 0, ..., count - 1, evenly spread."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def _sum_piece(source: Source, piece: tuple[Tensor, Tensor | None]) -> Part:
    """Return the sums of one piece of work."""
    return source.part(*piece)


@torch.no_grad()
def set_directions(readout: LagReadout, source: Source, run: Run) -> None:
    """Set the directions of lags, extra features, what all channels do together, and what is known ahead, from some windows."""
    sizes, window = readout.sizes, readout.sizes.window
    wanted = min(max(LOOKED // source.group, 400), 1500, source.windows)
    numbers = torch.linspace(0, source.windows - 1, wanted).round().long().unique()
    gram = torch.zeros(window, window, dtype=torch.float64)
    extra, together, ahead, spreads = [], [], [], []
    heights, ends = [], []
    readout.unbound()
    # All samples share these directions, so a part of many is enough: every few windows, with all their channels.
    features, done = max(len(readout.extra_mean), 1), 0
    most = 2000 if features > 2000 else min(20_000, 2**24 // features)
    every = max(1, -(-len(numbers) * source.group // most))
    for seen, _ in run.map(source.look, numbers.split(source.chunk)):
        windows = torch.arange(done, done + len(seen.extra) // source.group)
        few, done = (windows % every == 0).repeat_interleave(source.group).to(seen.extra.device), done + len(windows)
        lags = seen.lags[few].flatten(0, 1).double().cpu()
        gram += lags.T @ lags
        extra.append((seen.extra * seen.moving)[few].double().cpu())
        together.append(seen.together.double().cpu())
        heights.append(seen.heights.double().cpu().unflatten(0, (-1, source.group)).flatten(1))
        ends.append(torch.stack(torch.aminmax(seen.extra, dim=0)))
        ahead.append(seen.ahead.double().cpu())
        spreads.append(seen.lags.double().square().mean(dim=2).sqrt().cpu().unflatten(0, (-1, source.group)))
    readout.height_range.copy_(range_of(torch.cat(heights)))
    readout.extra_range.copy_(range_of(torch.cat(ends), trends=False))
    if sizes.common:
        readout.common_range.copy_(range_of(torch.cat(together)))
    least = torch.quantile(torch.cat(spreads), QUIET, dim=0)
    readout.spreads.copy_(least.clamp_min(SMALLEST))
    if sizes.lags < window:
        recent = round(RECENT * sizes.lags)
        older = window - recent
        _, vectors = safe_eigh(gram[:older, :older])
        found = torch.zeros(window, sizes.lags, dtype=torch.float64)
        found[:older, : sizes.lags - recent] = _signed(vectors[:, older - (sizes.lags - recent) :])
        found[older:, sizes.lags - recent :] = torch.eye(recent, dtype=torch.float64)
        readout.lag_directions.copy_(found)
    values_ahead = slice(sizes.known * sizes.horizon)  # before single neurons
    for name, values, own in (
        ("extra", extra, readout.covariates),
        ("common", together, slice(0)),
        ("ahead", ahead, values_ahead),
    ):
        wanted = getattr(sizes, name)
        if wanted:
            mean, directions = separate_directions(torch.cat(values), wanted, own)
            getattr(readout, f"{name}_mean").copy_(mean)
            getattr(readout, f"{name}_directions").copy_(directions)


def range_of(values: Tensor, *, trends: bool = True) -> Tensor:
    """Return the least and the largest of values (rows, features) in the order of time, (2, features).

    With `trends`, there is no bound on a side where nearly all of the second half lie beyond all of the first: a level that
    kept rising goes on.
    """
    found, half = torch.stack(torch.aminmax(values, dim=0)), (len(values) + 1) // 2
    before, after = values[:half], values[half:]
    if trends and len(after):
        found[0, (after < before.amin(dim=0)).double().mean(dim=0) >= TREND] = -UNBOUNDED
        found[1, (after > before.amax(dim=0)).double().mean(dim=0) >= TREND] = UNBOUNDED
    return found


def _signed(vectors: Tensor) -> Tensor:
    """Return vectors (n, k) with signs by a rule: the largest entry is positive."""
    at = vectors.abs().argmax(dim=0)
    return vectors * vectors.gather(0, at[None]).sign()


def principal_directions(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the mean, and directions (features, count) in which values (rows, features) vary most.

    Features are divided by their deviation first, or by `RARE` times the median deviation if theirs is less: what is hardly
    ever seen must not outweigh all else once it comes. Directions are scaled between what principal components have, where the
    first outweighs all, and equal deviations.
    """
    mean = values.mean(dim=0)
    size = (values - mean).square().mean(dim=0).sqrt()
    moving = size > 1e-6 * size.max().clamp_min(1e-300)
    usual = size[moving].median() if bool(moving.any()) else size.new_tensor(1.0)
    size = torch.where(moving, size.clamp_min(RARE * usual), torch.inf)
    unit = (values - mean) / size
    few = len(unit) < unit.shape[1]
    square, vectors = safe_eigh(unit @ unit.T if few else unit.T @ unit)
    square, vectors = square.flip(0)[:count], vectors.flip(1)[:, :count]
    keep = square > 1e-6 * square[:1].clamp_min(1e-300)
    square, vectors = square[keep], vectors[:, keep]
    if few:
        vectors = unit.T @ vectors / square**0.5
    directions = _signed(vectors) * (len(unit) / square) ** 0.25 / size[:, None]
    return mean, torch.nn.functional.pad(directions, (0, count - directions.shape[1]))


def separate_directions(values: Tensor, count: int, own: slice) -> tuple[Tensor, Tensor]:
    """Return `principal_directions` in which the features `own` have directions for themselves, up to half of all.

    Covariates are few. What they know would else be lost among the many other features, which vary together.
    """
    inside = torch.zeros(values.shape[1], dtype=torch.bool)
    inside[own] = True
    first = min(int(inside.sum()), count if bool(inside.all()) else max(1, count // 2))
    directions = torch.zeros(len(inside), count, dtype=values.dtype)
    if first:
        directions[inside, :first] = principal_directions(values[:, inside], first)[1]
    if first < count and not bool(inside.all()):
        directions[~inside, first:] = principal_directions(values[:, ~inside], count - first)[1]
    return values.mean(dim=0), directions
