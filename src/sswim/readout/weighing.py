r"""Models that are weighed against each other on blocks in time, from sums alone.

Normal equations of blocks add up. Leaving one block out costs no pass over the data: the model that has not seen a block is
solved from the sums of all others, and its error on that block follows from the block's own sums. Each model starts from the
weights of a simpler one, down to the window's mean and its last value, and a convex combination of all is what is kept:

.. math:: \min_a \; a^\top E a + \sum_j s_j a_j, \qquad a_j \ge 0, \quad \sum_j a_j = 1 .

`E` holds the mean products of the models' errors on blocks that they have not seen, and :math:`s_j` is the standard error of
how much model `j` gains over the plainest linear one, the mean of a channel's own and that of all channels. The last value, the
window's mean and the plainest linear model pay nothing. A model that gains less than it pays gets exactly nothing, unless its
errors make up for those of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from sswim.algebra import index_of_least
from sswim.machine import on_threads
from sswim.readout.blocks import Part, Solver, total, without

__all__ = ["Model", "Weighed", "stack", "weigh"]

# Penalties that are tried, per row.
LAMBDAS = torch.logspace(-6, 2, 17, dtype=torch.float64)
# Least penalty of a channel's own weights of features that are not in units of the window: they may jump once a channel drifts.
SEVERE = 1e-2
# Sizes of single neurons, traces and covariates compared with lags: a larger size means a smaller penalty.
RATIOS = (0.03, 0.1, 0.3, 1.0)
# How much the error of all channels counts beside a channel's own.
COMPANY = 2.0
# A combination below this share is nothing.
LEAST = 0.005
# The least error of a block that counts, as a part of the mean over blocks.
QUIET = 0.05
# Errors below this part of those of the best naive forecast are rounding errors.
ROUNDING = 1e-8


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
    """

    models: list[Model]
    shares: Tensor
    gains: Tensor
    naive: dict[str, Tensor]
    one: int

    def weights(self, part: Part) -> Tensor:
        """Return the combined weights (C, q, R), solved anew on the sums of some rows."""
        solver, known, total = Solver(partial(without, part, ()), self.one), {}, 0.0  # type: ignore[var-annotated]
        for model, share in zip(self.models, self.shares.T, strict=True):
            if bool((share > 0).any()):
                total = total + share[:, None, None] * model.weights(solver, self.naive, known)
        return total  # type: ignore[return-value]

    def kept(self) -> dict[str, float]:
        """Return the mean share of each model."""
        return {model.name: float(share) for model, share in zip(self.models, self.shares.mean(dim=0), strict=True)}


class _Weighing:
    """Finds models on folds: each leaves one block out."""

    def __init__(
        self, blocks: Sequence[Part], naive: dict[str, Tensor], outputs: Tensor, one: int, gap: int, says: Sequence[float]
    ) -> None:
        self.channels, self.naive = len(blocks[0].gram), {name: w[:, outputs] for name, w in naive.items()}
        self.held = [block.of_outputs(outputs) for block in blocks]
        numbers, whole = range(len(blocks)), total(self.held)
        near = [[part for b, part in enumerate(self.held) if abs(b - left) <= gap] for left in numbers]
        self.train = [Solver(partial(without, whole, left_out), one) for left_out in near]
        # Every block has the same say, however large its errors: they are divided by those of the best naive forecast. But a
        # block in which next to nothing happens, so that naive forecasts make no errors, must not decide alone.
        usual = [min(float(p.errors(w[None]).sum()) for w in self.naive.values()) for p in self.held]
        least = max(QUIET * sum(usual) / len(usual), 1e-300)
        self.say = [say / max(error, least) for say, error in zip(says, usual, strict=True)]
        naive_errors = [torch.stack([p.errors(w[None]) for w in self.naive.values()]).amin(dim=0) for p in self.held]  # (C,)
        self.floor = ROUNDING * sum((say * e for say, e in zip(self.say, naive_errors, strict=True)), torch.zeros(()))
        self.known: list[dict[int, Tensor]] = [{} for _ in numbers]

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
        """Return the sums of products of the models' errors on each block, (blocks, C, models, models)."""

        def product(fold: int) -> Tensor:
            held = self.held[fold]
            w = torch.stack([self.fold_weights(m, fold).expand(self.channels, -1, -1) for m in models], dim=1)  # (C, M, q, R)
            seen = torch.einsum("cfg,cmgr->cmfr", held.gram, w)
            cross = torch.einsum("cfr,cmfr->cm", held.cross, w)
            both = torch.einsum("cmfr,ckfr->cmk", w, seen)
            both += held.energy.sum(dim=1)[:, None, None] - cross[:, :, None] - cross[:, None]
            return self.say[fold] * both

        found = list(on_threads(product, range(len(self.held))))
        # Errors of a series that can be foretold exactly are rounding errors, which may even be below 0.
        floor = (self.floor / len(found))[:, None]
        for both in found:
            errors = both.diagonal(dim1=1, dim2=2)
            errors.copy_(torch.maximum(errors, floor))
        return torch.stack(found)


def weigh(
    blocks: Sequence[Part],
    parts: dict[str, slice],
    naive: dict[str, Tensor],
    *,
    gap: int = 0,
    height: float = 1.0,
    compared: int = 12,
    says: Sequence[float] | None = None,
) -> Weighed:
    """Find models of the features in `parts`, and how much of each is kept.

    Parameters
    ----------
    blocks : sequence of Part
        Sums of blocks in time.
    parts : dict
        Where the features ``one``, ``lags``, ``heights``, ``extra``, ``common`` and ``ahead`` lie.
    naive : dict of Tensor of shape (features, outputs)
        The weights of naive forecasts, by name.
    gap : int
        Blocks on either side of a held-out one that are left out too: their windows overlap with its own.
    height : float
        Size of the levels compared with lags. With the square root of the window, weights of lags and of the level bear the
        same penalty as weights of absolute rows.
    compared : int
        Number of outputs, evenly spread, that models are compared by.
    says : sequence of float, optional
        How much each block counts, 1 at most. Default: all alike.
    """
    (channels, features, outputs), one = blocks[0].cross.shape, parts["one"].start
    device, says = blocks[0].cross.device, [1.0] * len(blocks) if says is None else says
    picked = torch.linspace(0, outputs - 1, min(compared, outputs)).round().long().unique().to(device)
    search = _Weighing(blocks, naive, picked, one, gap, says)

    def size(**sizes: float) -> Tensor:
        found = torch.zeros(features, dtype=torch.float64, device=device)
        for name, value in sizes.items():
            found[parts[name]] = value
        return found

    def present(name: str) -> bool:
        return name in parts and parts[name].stop > parts[name].start

    lags, extra, common = size(lags=1.0), size(extra=1.0), size(common=1.0)
    models = [Model(name) for name in naive]
    tried = [search.add("population, shared weights", model, lags, shared=True) for model in models]
    plain = min(tried, key=lambda t: t[0])[1]
    start, furthest = plain.base, plain
    assert start is not None
    levels = [
        search.add("population and level, shared weights", model, size(lags=1.0, heights=height), shared=True)
        for model in models
    ]
    models += [plain, min(levels, key=lambda t: t[0])[1]]
    if present("extra"):
        name = "population and single neurons, shared weights"
        begin = models[-1].base or start
        tried = [search.add(name, begin, size(lags=1.0, heights=height, extra=ratio), shared=True) for ratio in RATIOS]
        models.append(min(tried, key=lambda t: t[0])[1])
        furthest = models[-1]
    if channels > 1:
        own = search.add("population, weights per channel", start, lags, shared=False, company=0.0)[1]
        models += [own, search.add("population, shared weights adjusted per channel", plain, lags, shared=False)[1]]
        if furthest is not plain:
            furthest = search.add("single neurons, lags adjusted per channel", furthest, lags, shared=False)[1]
            models.append(furthest)
            furthest = search.add("single neurons, all adjusted per channel", furthest, extra, shared=False, least=SEVERE)[1]
            models.append(furthest)
        else:
            furthest = models[-1]
        if present("common"):
            models.append(search.add("all channels, on top of shared weights", furthest, common, shared=False, least=SEVERE)[1])
            models.append(search.add("all channels, on top of weights per channel", own, common, shared=False, least=SEVERE)[1])
    if present("ahead"):
        models += _known_ahead(search, start, size, height, common if present("common") else None)
    shares, gains = stack(search.products(models), models.index(plain), says=says)
    return Weighed(models, shares, gains, naive, one)


def _known_ahead(
    search: _Weighing, start: Model, size: Callable[..., Tensor], height: float, common: Tensor | None
) -> list[Model]:
    """Return models that also read what is known ahead."""
    sizes = [size(lags=1.0, heights=height, extra=ratio, ahead=ratio) for ratio in RATIOS]
    tried = [search.add("known ahead, shared weights", start, s, shared=True) for s in sizes]
    models = [min(tried, key=lambda t: t[0])[1]]
    if search.channels > 1:
        each = size(lags=1.0, heights=height, ahead=1.0)
        own = search.add("known ahead, weights per channel", start, each, shared=False, company=0.0)[1]
        models += [own, search.add("known ahead, adjusted per channel", models[0], each, shared=False)[1]]
        if common is not None:
            models.append(search.add("known ahead, all channels", models[-1], common, shared=False, least=SEVERE)[1])
    return models


def stack(
    products: Tensor, plain: int, company: float = 1.0, caution: float = 1.0, says: Sequence[float] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the shares (C, models) of models and their mean gains (models,), from products of errors (blocks, C, M, M).

    Parameters
    ----------
    products : Tensor
    plain : int
        The model that gains are measured from.
    company : float
        Weight of the errors of all channels beside a channel's own.
    caution : float
        How many standard errors of its gain a model has to pay.
    says : sequence of float, optional
        How much each block counts. Default: all alike.
    """
    say = products.new_tensor([1.0] * len(products) if says is None else says)
    each = products.diagonal(dim1=2, dim2=3)  # (B, C, M)
    usual = each[:, :, plain].mean().clamp_min(1e-300)
    own = each / each[:, :, plain : plain + 1].clamp_min(1e-3 * usual)
    together = each.sum(dim=1) / each[:, :, plain].sum(dim=1).clamp_min(1e-300)[:, None]  # (B, M)
    doubt, all_doubt = (_standard_error(v - v[..., plain : plain + 1], say) for v in (own, together))
    total = products.sum(dim=0)
    least = total.diagonal(dim1=1, dim2=2).amin(dim=1)
    least = least.clamp_min(1e-3 * least.mean().clamp_min(1e-300))
    energy = total / least[:, None, None] + company * total.sum(dim=0) / least.sum()
    price = caution * (doubt + company * all_doubt) / 2
    price[:, [0, 1, plain]] = 0.0  # what is as plain costs nothing
    shares = _on_simplex(energy, price)
    shares = torch.where(shares < LEAST, 0.0, shares)
    shares = shares / shares.sum(dim=1, keepdim=True)
    last = each[:, :, 0].sum(dim=0)
    resting = last <= 1e-12 * last.mean()  # a channel that never moved: the first naive forecast says all
    shares[resting] = torch.nn.functional.one_hot(torch.tensor(0), len(shares.T)).to(shares)
    return shares, 1 - torch.tensordot(say / say.sum(), together, dims=1)


def _standard_error(values: Tensor, weights: Tensor) -> Tensor:
    """Return the standard error of the mean of values (n, ...) that count `weights` (n,) times."""
    part = (weights / weights.sum()).reshape(-1, *[1] * (values.ndim - 1))
    free = (part**2).sum()
    return ((part * (values - (part * values).sum(dim=0)) ** 2).sum(dim=0) * free / (1 - free).clamp_min(1e-12)).sqrt()


def _on_simplex(energy: Tensor, price: Tensor, steps: int = 500) -> Tensor:
    """Minimise half of ``a @ energy @ a`` plus ``price @ a`` over the simplex, for each channel.

    By projected gradients with momentum. Models that are a hundred times as bad as the best one get nothing: they would only
    make the steps small.
    """
    models, errors = energy.shape[-1], energy.diagonal(dim1=1, dim2=2)
    bad = errors > 100 * errors.amin(dim=1, keepdim=True)
    size = errors.masked_fill(bad, 0.0).sum(dim=1, keepdim=True)
    a = ahead = (~bad).to(price) / (~bad).sum(dim=1, keepdim=True)
    count, momentum = torch.arange(1, models + 1, device=price.device), 1.0
    for _ in range(steps):
        step = (ahead - ((energy @ ahead[:, :, None])[:, :, 0] + price) / size).masked_fill(bad, -torch.inf)
        ranked = step.sort(dim=1, descending=True).values
        excess = (ranked.cumsum(dim=1) - 1) / count
        active = (ranked > excess).sum(dim=1, keepdim=True).clamp_min(1)
        new = (step - excess.gather(1, active - 1)).clamp_min(0)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead, a, momentum = new + (momentum - 1) / following * (new - a), new, following
    return a
