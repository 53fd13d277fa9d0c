r"""How much of each model is kept: a convex combination, in which models pay for doubt.

.. math:: \min_a \; a^\top E a + \sum_j s_j a_j, \qquad a_j \ge 0, \quad \sum_j a_j = 1 .

`E` holds the mean products of the models' errors on blocks that they have not seen. :math:`s_j` is what model `j` pays for
doubt, the larger of two prices. One is the standard error of its gain over the plainest linear model, the mean of a channel's
own and that of all channels. The other is `p`, twice the standard error of all channels' gain `g` over the best naive
forecasts, or :math:`p^2 / g` once the gain is more than that: what clearly gains pays next to nothing. (A channel's own
gain over a naive forecast says little: where a channel rests in some blocks, naive forecasts make next to no error there.)
The last value and the window's mean pay nothing. A model that gains less than it pays gets exactly nothing, unless its errors
make up for those of others.

This is done twice. First every block counts as `products` has it. Then blocks are divided by the errors that the first
combination makes there, as if noise had another variance in each block: what is hard to foretell must not decide alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.algebra import index_of_least

__all__ = ["QUIET", "is_better", "stack"]

# A combination below this share is nothing.
LEAST = 0.005
# The least error of a block that counts, as a part of the mean over blocks.
QUIET = 0.05
# Standard errors of its gain that a model pays: over the plainest linear model, and over the best naive forecast.
CAUTION = (1.0, 2.0)


def stack(
    products: Tensor,
    plain: int,
    *,
    naive: int = 2,
    span: float = 0.0,
    company: float = 1.0,
    says: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the shares (C, models) of models and their mean gains (models,), from products of errors (blocks, C, M, M).

    Parameters
    ----------
    products : Tensor
    plain : int
        The model that gains are measured from.
    naive : int
        Number of naive forecasts, the first models.
    span : float
        Length of a window and its horizon, in blocks. Blocks that are shorter are not independent of each other, so their
        standard errors are larger.
    company : float
        Weight of the errors of all channels beside a channel's own.
    says : sequence of float, optional
        How much each block counts. Default: all alike.
    """
    say = products.new_tensor([1.0] * len(products) if says is None else says)
    each = products.diagonal(dim1=2, dim2=3)  # (B, C, M)
    best = index_of_least(each[:, :, :naive].sum(dim=0).T)  # (C,)
    naive_errors = each[:, torch.arange(each.shape[1]), best]  # (B, C)
    # Blocks that are shorter than a window and its horizon are fewer than they seem.
    over_plain, over_naive = (caution * max(1.0, span) ** 0.5 for caution in CAUTION)
    own, together, _ = _doubt(each, each[:, :, plain], say)
    price = over_plain * (own + company * together) / 2
    _, error, gain = _doubt(each, naive_errors, say)
    doubt = over_naive * error  # (M,)
    doubt = torch.where(gain > doubt, doubt * doubt / gain.clamp_min(1e-300), doubt)
    price[:, plain], doubt[:naive] = 0.0, 0.0
    price = torch.maximum(price, doubt)
    price[:, :2] = 0.0  # the plainest forecasts cost nothing
    shares = _combined(products.sum(dim=0), price, company)
    error = torch.einsum("cm,bcmk,ck->b", shares, products, shares) / say.clamp_min(1e-300)
    error = error.clamp_min(QUIET * float(say @ error / say.sum())).clamp_min(1e-300)
    shares = _combined(torch.tensordot(1 / error, products, dims=1), price, company)
    last = each[:, :, 0].sum(dim=0)
    resting = last <= 1e-12 * last.mean()  # a channel that never moved: the first naive forecast says all
    shares[resting] = torch.nn.functional.one_hot(torch.tensor(0), len(shares.T)).to(shares)
    relative = each.sum(dim=1) / each[:, :, plain].sum(dim=1).clamp_min(1e-300)[:, None]  # (B, M)
    return shares, 1 - torch.tensordot(say / say.sum(), relative, dims=1)


def _combined(products: Tensor, price: Tensor, company: float) -> Tensor:
    """Return the shares (C, M) of least error plus price, from products of errors (C, M, M) over all blocks."""
    least = products.diagonal(dim1=1, dim2=2).amin(dim=1)
    least = least.clamp_min(1e-3 * least.mean().clamp_min(1e-300))
    energy = products / least[:, None, None] + company * products.sum(dim=0) / least.sum()
    shares = _on_simplex(energy, price)
    shares = torch.where(shares < LEAST, 0.0, shares)
    return shares / shares.sum(dim=1, keepdim=True)


def is_better(products: Tensor, model: int, other: int, *, span: float = 0.0, says: Sequence[float] | None = None) -> bool:
    """Return whether a model gains over another one, all channels together, by more than the standard error of that gain."""
    say = products.new_tensor([1.0] * len(products) if says is None else says)
    each = products.diagonal(dim1=2, dim2=3)  # (B, C, M)
    _, error, gain = _doubt(each[:, :, [model]], each[:, :, other], say)
    return bool(gain > CAUTION[0] * max(1.0, span) ** 0.5 * error)


def _doubt(each: Tensor, reference: Tensor, say: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standard errors of what models gain over a reference (B, C), as a part of its error.

    Of each channel (C, M), of all channels together (M,), and the mean gain of all together (M,).
    """
    gain = reference[:, :, None] - each
    own = gain / reference.clamp_min(1e-3 * reference.mean().clamp_min(1e-300))[:, :, None]
    together = gain.sum(dim=1) / reference.sum(dim=1).clamp_min(1e-300)[:, None]
    mean = torch.tensordot(say / say.sum(), together, dims=1)
    return _standard_error(own, say), _standard_error(together, say), mean


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
