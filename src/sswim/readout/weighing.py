r"""Models that are weighed against each other on blocks in time, from sums alone.

Normal equations of blocks add up. Leaving one block out costs no pass over the data: the model that has not seen a block is
solved from the sums of all others, and its error on that block follows from the block's own sums. Each model starts from the
weights of a simpler one, down to the window's mean and its last value, or to what was a period ago (`sswim.readout.seasons`). A
convex combination of all is kept (`sswim.readout.stacking`).

Penalties are chosen on blocks whose neighbours on both sides are known: there are nearly as many rows as in the end. For the
shares each block is forecast twice: by such models, and by models that know one side of it only. The former interpolate: the
mean of what came before and after a block is close to the block, even in a random walk, whose past mean tells nothing. The
latter have fewer rows, and know as little of what comes as a forecast does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from sswim.algebra import index_of_least
from sswim.machine import on_threads
from sswim.readout.blocks import Part, Solver, total, without
from sswim.readout.stacking import QUIET, is_better, stack

__all__ = ["OVERLAP", "USUAL", "Model", "Weighed", "weigh"]

# Penalties that are tried, per row.
LAMBDAS = torch.logspace(-6, 2, 17, dtype=torch.float64)
# Least penalty of a channel's own weights of features that are not in units of the window: they may jump once a channel drifts.
SEVERE = 1e-2
# Sizes of single neurons, traces and covariates compared with lags: a larger size means a smaller penalty.
RATIOS = (0.03, 0.1, 0.3, 1.0)
# Size of the calendar's waves compared with lags.
CLOCK = 0.3
# How much the error of all channels counts beside a channel's own.
COMPANY = 2.0
# Errors below this part of those of the best naive forecast are rounding errors.
ROUNDING = 1e-8
# Part of a block that may overlap with its neighbours.
OVERLAP = 0.25
# The naive forecast that needs to know the series.
USUAL = "the training rows' mean"


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model that adds weights of some features to a simpler model.

    Attributes
    ----------
    name : str
        What it reads, in words.
    base : Model or None
        The simpler model. None: a naive forecast.
    size : Tensor of shape (features,)
        0 where nothing is added, else what the feature is multiplied by before the regression.
    shared : bool
        Whether all channels have the same weights.
    penalty : Tensor of shape (channels,), or (1,) if shared
    """

    name: str
    base: Model | None = None
    size: Tensor = field(default_factory=lambda: torch.zeros(0))
    shared: bool = True
    penalty: Tensor = field(default_factory=lambda: torch.zeros(0))

    def weights(self, solver: Solver, naive: dict[str, Tensor], known: dict[int, Tensor]) -> Tensor:
        """Return the weights (C or 1, q, R) on some rows; `naive` has those of the naive forecasts, (q, R), by name."""
        if id(self) not in known:
            if self.base is None:
                known[id(self)] = naive[self.name][None]
            else:
                start = self.base.weights(solver, naive, known)
                known[id(self)] = solver.solve(self.size, self.shared, start, self.penalty)
        return known[id(self)]


@dataclass(frozen=True)
class Weighed:
    """Models and their shares.

    Attributes
    ----------
    models : list of Model
    shares : Tensor of shape (channels, models)
        None below 0, their sum 1.
    gains : Tensor of shape (models,)
        Mean part of the plainest linear model's error that each model saves on blocks that it has not seen.
    naive : dict of Tensor of shape (features, outputs)
        Weights of the naive forecasts.
    one : int
        The constant feature.
    timeless : Tensor of shape (channels, models), optional
        Shares for windows whose time is not known: models that read the calendar have none. None: there are no such models.
    """

    models: list[Model]
    shares: Tensor
    gains: Tensor
    naive: dict[str, Tensor]
    one: int
    timeless: Tensor | None = None

    def weights(self, part: Part) -> Tensor:
        """Return the combined weights (C, q, R), solved anew on the sums of some rows."""
        return self.solved(part)[0]

    def solved(self, part: Part) -> tuple[Tensor, Tensor | None]:
        """Return the combined weights, and those for windows whose time is not known, if they are others."""
        solver, known = Solver(partial(without, part, ()), self.one), dict[int, Tensor]()

        def combined(shares: Tensor) -> Tensor:
            total = 0.0
            for model, share in zip(self.models, shares.T, strict=True):
                if bool((share > 0).any()):
                    total = total + share[:, None, None] * model.weights(solver, self.naive, known)
            return total  # type: ignore[return-value]

        return combined(self.shares), None if self.timeless is None else combined(self.timeless)

    def kept(self) -> dict[str, float]:
        """Return the mean share of each model."""
        return {model.name: float(share) for model, share in zip(self.models, self.shares.mean(dim=0), strict=True)}


class _Weighing:
    """Finds models on folds: each leaves one block out, and `gap` blocks on either side of it."""

    def __init__(
        self, blocks: Sequence[Part], naive: dict[str, Tensor], outputs: Tensor, one: int, gap: int, says: Sequence[float]
    ) -> None:
        self.channels, self.naive = len(blocks[0].gram), {name: w[:, outputs] for name, w in naive.items()}
        self.held = [block.of_outputs(outputs) for block in blocks]
        numbers, whole = range(len(blocks)), total(self.held)

        def solver(known: Sequence[int]) -> Solver:
            return Solver(partial(without, whole, [part for b, part in enumerate(self.held) if b not in known]), one)

        both = [([b for b in numbers if b < left - gap], [b for b in numbers if b > left + gap]) for left in numbers]
        self.train = [solver(before + after) for before, after in both]
        # Of the two sides, the one with more rows; None if there is one side only, which `train` knows already. The past, if
        # both have as many: rows that are hardly forgotten must not decide.
        rows = [[sum(self.held[b].rows for b in side) for side in sides] for sides in both]
        more = [before if old >= (1 - 1e-6) * new else after for (before, after), (old, new) in zip(both, rows, strict=True)]
        self.one_side = [solver(m) if all(sides) else None for m, sides in zip(more, both, strict=True)]
        # Every block has the same say, however large its errors: they are divided by those of the best naive forecast. But a
        # block in which next to nothing happens, so that naive forecasts make no errors, must not decide alone.
        usual = [min(float(p.errors(w[None]).sum()) for w in self.naive.values()) for p in self.held]
        least = max(QUIET * sum(usual) / len(usual), 1e-300)
        self.say = [say / max(error, least) for say, error in zip(says, usual, strict=True)]
        naive_errors = [torch.stack([p.errors(w[None]) for w in self.naive.values()]).amin(dim=0) for p in self.held]  # (C,)
        self.floor = ROUNDING * sum((say * e for say, e in zip(self.say, naive_errors, strict=True)), torch.zeros(()))
        self.known: list[dict[int, Tensor]] = [{} for _ in numbers]

    def know(self, naive: dict[str, Tensor], outputs: Tensor) -> None:
        """Take in further forecasts that models may start from."""
        self.naive = self.naive | {name: weights[:, outputs] for name, weights in naive.items()}

    def fold_weights(self, model: Model, fold: int) -> Tensor:
        return model.weights(self.train[fold], self.naive, self.known[fold])

    def add(
        self, name: str, base: Model, size: Tensor, *, shared: bool, company: float = COMPANY, least: float = 0.0
    ) -> tuple[float, Model]:
        """Return the model of least error that adds some features to `base`, and that error."""
        lambdas = LAMBDAS[LAMBDAS >= least]

        def try_fold(fold: int) -> tuple[Tensor, Tensor]:
            start = self.fold_weights(base, fold)
            held = self.held[fold].pooled() if shared else self.held[fold]
            path = self._path(self.train[fold], held, size, shared, start, lambdas)
            return self.say[fold] * held.errors(start.expand(len(held.gram), -1, -1)), self.say[fold] * path

        before, total = (torch.stack(v).sum(dim=0) for v in zip(*on_threads(try_fold, range(len(self.train))), strict=True))
        total = torch.maximum(total, self.floor.sum()[None] if shared else self.floor)
        relative = total / before.clamp_min(1e-9 * before.mean().clamp_min(1e-300))
        judged = relative + company * (total.sum(dim=1) / before.sum().clamp_min(1e-300))[:, None]
        best = index_of_least(judged)
        model = Model(name, base, size, shared, lambdas.to(best.device)[best])
        return float(total.gather(0, best[None]).sum()), model

    def best(self, name: str, tried: Iterable[tuple[Model, Tensor]]) -> Model:
        """Return the model of least error, with shared weights, that adds features of some sizes to some base."""
        return min((self.add(name, base, size, shared=True) for base, size in tried), key=lambda t: t[0])[1]

    @staticmethod
    def _path(solver: Solver, held: Part, size: Tensor, shared: bool, start: Tensor, lambdas: Tensor) -> Tensor:
        """Return the errors on held-out rows for every penalty, (penalties, C)."""
        part, (values, basis) = solver.sums(shared), solver.basis(size, shared)
        target, slope = (basis.mT @ (p.cross - p.gram @ start) for p in (part, held))
        curve, errors = basis.mT @ held.gram @ basis, []
        plain = held.errors(start.expand(len(held.gram), -1, -1))
        for lambda_ in lambdas.tolist():
            c = target / (values + lambda_ * part.rows).clamp_min(1e-300)[:, :, None]
            errors.append(plain + (c * (curve @ c - 2 * slope)).sum(dim=(1, 2)))
        return torch.stack(errors)

    def products(self, models: Sequence[Model]) -> Tensor:
        """Return the sums of products of the models' errors on each block, (blocks, C, models, models).

        They are means of two forecasts of the block: by models that know both sides of it, and by models that know one side.
        """

        def product(fold: int, solver: Solver, known: dict[int, Tensor]) -> Tensor:
            held = self.held[fold]
            each = [self._centred(m, solver, m.weights(solver, self.naive, known)) for m in models]
            w = torch.stack([v.expand(self.channels, -1, -1) for v in each], dim=1)  # (C, M, q, R)
            seen = torch.einsum("cfg,cmgr->cmfr", held.gram, w)
            cross = torch.einsum("cfr,cmfr->cm", held.cross, w)
            both = torch.einsum("cmfr,ckfr->cmk", w, seen)
            both += held.energy.sum(dim=1)[:, None, None] - cross[:, :, None] - cross[:, None]
            return self.say[fold] * both

        def mean(fold: int) -> Tensor:
            first, side = product(fold, self.train[fold], self.known[fold]), self.one_side[fold]
            return first if side is None else (first + product(fold, side, {})) / 2

        found = list(on_threads(mean, range(len(self.held))))
        # Errors of a series that can be foretold exactly are rounding errors, which may even be below 0.
        floor = (self.floor / len(found))[:, None]
        for both in found:
            errors = both.diagonal(dim1=1, dim2=2)
            errors.copy_(torch.maximum(errors, floor))
        return torch.stack(found)

    def _centred(self, model: Model, solver: Solver, weights: Tensor) -> Tensor:
        """Return the weights of a model; the rows' mean, as a naive forecast, is that of the rows that a fold knows."""
        if model.base is not None or model.name != USUAL:
            return weights
        part = solver.sums(False)
        left = part.cross[:, solver.one] - (part.gram[:, solver.one, None] @ weights)[:, 0]
        found = weights.repeat(self.channels, 1, 1)
        found[:, solver.one] += left / part.gram[:, solver.one, solver.one, None].clamp_min(max(1e-9 * part.rows, 1e-300))
        return found


def weigh(
    blocks: Sequence[Part],
    parts: dict[str, slice],
    naive: dict[str, Tensor],
    *,
    span: float = 0.0,
    height: float = 1.0,
    compared: int = 12,
    says: Sequence[float] | None = None,
    seasons: Callable[[Sequence[Part], Tensor, Sequence[float]], dict[str, Tensor]] | None = None,
) -> Weighed:
    """Find models of the features in `parts`, and how much of each is kept.

    Parameters
    ----------
    blocks : sequence of Part
        Sums of blocks in time.
    parts : dict
        Where the features ``one``, ``lags``, ``heights``, ``extra``, ``common``, ``ahead`` and ``clock`` lie.
    naive : dict of Tensor of shape (features, outputs)
        The weights of naive forecasts, by name.
    span : float
        Length of a window and its horizon, in blocks. Windows of neighbouring blocks overlap; if they overlap much, the
        neighbours of a held-out block are left out too.
    height : float
        Size of the levels compared with lags. With the square root of the window, weights of lags and of the level bear the
        same penalty as weights of absolute rows.
    compared : int
        Number of outputs, evenly spread, that models are compared by.
    says : sequence of float, optional
        How much each block counts, 1 at most. Default: all alike.
    seasons : callable, optional
        Finds forecasts that repeat a period, see `sswim.readout.seasons`. Models on top of them are weighed too.
    """
    (channels, features, outputs), one = blocks[0].cross.shape, parts["one"].start
    device, says = blocks[0].cross.device, [1.0] * len(blocks) if says is None else says
    picked = torch.linspace(0, outputs - 1, min(compared, outputs)).round().long().unique().to(device)
    search = _Weighing(blocks, naive, picked, one, 1 if len(blocks) >= 5 and span >= OVERLAP else 0, says)

    def size(**sizes: float) -> Tensor:
        found = torch.zeros(features, dtype=torch.float64, device=device)
        for name, value in sizes.items():
            found[parts[name]] = value
        return found

    def present(name: str) -> bool:
        return name in parts and parts[name].stop > parts[name].start

    lags, common = size(lags=1.0), size(common=1.0) if present("common") and channels > 1 else None
    models = [Model(name) for name in naive]
    furthest = plain = search.best("population, shared weights", [(model, lags) for model in models])
    start, level = plain.base, size(lags=1.0, heights=height)
    assert start is not None
    models += [plain, search.best("population and level, shared weights", [(model, level) for model in models])]
    if present("extra"):
        begin, sizes = models[-1].base or start, [size(lags=1.0, heights=height, extra=ratio) for ratio in RATIOS]
        furthest = search.best("population and single neurons, shared weights", [(begin, each) for each in sizes])
        models.append(furthest)
    before = {} if seasons is None else seasons(search.held, picked, search.say)
    search.know(before, picked)
    models += _on_periods(search, list(before), lags, level)
    if channels > 1:
        found, furthest = _per_channel(search, plain, furthest, lags, size(extra=1.0), common)
        models += found
    if present("ahead"):
        models += _known_ahead(search, start, size, height, common)
        furthest = models[-1 if common is None else -2]
    combine = partial(stack, plain=models.index(plain), naive=len(naive), span=span, says=says)
    if not present("clock"):
        return Weighed(models, *combine(search.products(models)), naive | before, one)
    timed, twins = (
        _calendar(search, start, furthest, size(lags=1.0, heights=height, clock=clock), common) for clock in (CLOCK, 0.0)
    )
    products, blind = search.products([*models, *timed, *twins]), len(models)
    shares, gains = combine(products[:, :, : -len(twins), : -len(twins)])
    timeless = torch.nn.functional.pad(combine(products[:, :, :blind, :blind])[0], (0, len(timed)))
    # A calendar is for all channels or for none: of many channels, one may seem to follow it by chance. It must be better than
    # all models without it, its own twin among them, which reads the same but the calendar.
    best, other = blind + int(gains[blind:].argmax()), int(gains[:blind].argmax())
    helps = all(is_better(products, best, n, span=span, says=says) for n in (other, best + len(timed)))
    return Weighed([*models, *timed], shares if helps else timeless, gains, naive | before, one, timeless)


def _on_periods(search: _Weighing, names: Sequence[str], lags: Tensor, level: Tensor) -> list[Model]:
    """Return forecasts that repeat a period, and the models of least error on top of one of them."""
    models = [Model(name) for name in names]
    tops = {"population, on top of a period": lags, "population and level, on top of a period": level} if models else {}
    return models + [search.best(name, [(model, size) for model in models]) for name, size in tops.items()]


def _per_channel(
    search: _Weighing, plain: Model, furthest: Model, lags: Tensor, extra: Tensor, common: Tensor | None
) -> tuple[list[Model], Model]:
    """Return models in which channels have weights of their own, and the one that reads most of a channel itself."""
    assert plain.base is not None
    own = search.add("population, weights per channel", plain.base, lags, shared=False, company=0.0)[1]
    models = [own, search.add("population, shared weights adjusted per channel", plain, lags, shared=False)[1]]
    if furthest is not plain:
        models.append(search.add("single neurons, lags adjusted per channel", furthest, lags, shared=False)[1])
        name = "single neurons, all adjusted per channel"
        models.append(search.add(name, models[-1], extra, shared=False, least=SEVERE)[1])
    furthest = models[-1]
    if common is not None:
        models.append(search.add("all channels, on top of shared weights", furthest, common, shared=False, least=SEVERE)[1])
        models.append(search.add("all channels, on top of weights per channel", own, common, shared=False, least=SEVERE)[1])
    return models, furthest


def _known_ahead(
    search: _Weighing, start: Model, size: Callable[..., Tensor], height: float, common: Tensor | None
) -> list[Model]:
    """Return models that also read what is known ahead."""
    sizes = [size(lags=1.0, heights=height, extra=ratio, ahead=ratio) for ratio in RATIOS]
    models = [search.best("known ahead, shared weights", [(start, s) for s in sizes])]
    if search.channels > 1:
        each = size(lags=1.0, heights=height, ahead=1.0)
        own = search.add("known ahead, weights per channel", start, each, shared=False, company=0.0)[1]
        models += [own, search.add("known ahead, adjusted per channel", models[0], each, shared=False)[1]]
        if common is not None:
            models.append(search.add("known ahead, all channels", models[-1], common, shared=False, least=SEVERE)[1])
    return models


def _calendar(search: _Weighing, start: Model, furthest: Model, size: Tensor, common: Tensor | None) -> list[Model]:
    """Return models that also read the time of day, week and year, from nothing and on top of the furthest model."""
    one = search.channels == 1
    name = "calendar" if one else "calendar, weights per channel"
    models = [search.add(name, start, size, shared=one, company=0.0)[1]]
    models.append(search.add("calendar, on top of single neurons", furthest, size, shared=one)[1])
    if common is not None:
        models.append(search.add("calendar, all channels", models[-1], common, shared=False, least=SEVERE)[1])
    return models
