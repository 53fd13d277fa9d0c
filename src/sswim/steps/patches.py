"""Sample the filters of a convolution: its samples are patches, and pairs are told apart beyond what patches have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.network.convolution import ConvolutionLayer, constant_in_time
from sswim.network.kernels import kernel_taps, toeplitz
from sswim.options import Options, check_integer, check_positive
from sswim.regression import safe_eigh
from sswim.report import LayerReport
from sswim.steps.base import InitialBatch, LayerState, Way

__all__ = ["PATCHES", "ByPatches", "Patches", "patches_of", "whitening"]


@dataclass(frozen=True)
class Patches(Options):
    r"""How the patches are drawn that the filters of a `Convolution` are sampled from. Not in the paper.

    Neighbouring pixels are alike, so differences of patches are smooth, and filters made of them are all alike. Thus distances
    and directions are those of *whitened* patches :math:`Z p`, in which no direction varies more than others:

    .. math:: Z = (C + \lambda \, \tfrac{\operatorname{tr} C}{D} I)^{-1/2}

    with `C` the covariance of patches, filtered by the layer's kernel. A direction `w` of whitened patches is the filter `Z w`.

    Parameters
    ----------
    whitening : float
        :math:`\lambda`. Infinity leaves patches as they are.
    count : int
        Number of patches that covariance and normalisation are computed from.
    compared : int
        Number of them that pairs are drawn from; those that show nothing are not among them.
    same_place : bool
        Whether both patches of a pair lie at the same place.
    """

    whitening: float = 0.1
    count: int = 8000
    compared: int = 1500
    same_place: bool = False

    def __post_init__(self) -> None:
        if self.whitening != float("inf"):
            check_positive("Patches: whitening", self.whitening)
        check_integer("Patches: count", self.count, 2)
        check_integer("Patches: compared", self.compared, 2)


PATCHES: dict[str, Patches] = {"whitened": Patches(), "plain": Patches(whitening=float("inf"))}


@dataclass(frozen=True)
class PatchState(LayerState):
    """Where sampling stands, for a convolution: signals are those of patches, (senders, steps, patches).

    Attributes
    ----------
    places : Tensor of shape (patches,)
        The place of each patch.
    """

    places: Tensor = torch.zeros(0, dtype=torch.long)


def patches_of(state: LayerState, step: Patches) -> LayerState:
    """Return where sampling stands with patches for samples, or the state as it is if the layer is dense."""
    layer = state.layer
    if not isinstance(layer, ConvolutionLayer):
        return state
    signals, run = state.signals, state.run
    samples, places = signals.shape[2], layer.grid.places
    steps = 1 if constant_in_time(signals) else signals.shape[1]
    room = max(256, int(run.budget / 4 / (4 * layer.senders * steps)))
    count = min(step.count, room, samples * places)
    drawn = torch.randperm(samples * places, generator=run.random("patches", state.l))[:count]
    member, place = drawn % samples, drawn // samples
    found = []
    for at in range(places):
        mine = (place == at).nonzero()[:, 0]
        if len(mine):
            found.append((mine, layer.patches(signals[:, :, member[mine]].to(layer.weights), torch.tensor([at]))[:, :, 0]))
    order = torch.cat([mine for mine, _ in found]).argsort()
    seen = torch.cat([patch[:, :steps] for _, patch in found], dim=2)[:, :, order].contiguous()
    seen = seen.expand(-1, signals.shape[1], -1) if constant_in_time(signals) else seen
    batch = InitialBatch(state.batch.order[member], seen, state.batch.targets[member.to(state.batch.targets.device)])
    return PatchState(state.network, state.l, layer, state.filters, seen, batch, state.train, run, None, place)


def whitening(covariance: Tensor, penalty: float) -> Tensor:
    r"""Return :math:`(C + \lambda \operatorname{tr}(C) / D)^{-1/2}` times the root of the mean variance; the identity for infinity.

    Examples
    --------
    >>> whitening(torch.diag(torch.tensor([4.0, 1.0])).double(), 1e-9).diagonal().round(decimals=3)
    tensor([0.7910, 1.5810], dtype=torch.float64)
    """
    level = covariance.diagonal().mean()
    if penalty == float("inf") or float(level) <= 0:
        return torch.eye(len(covariance)).to(covariance)
    values, vectors = safe_eigh(covariance / level)
    return (vectors / (values.clamp_min(0) + penalty).sqrt()) @ vectors.mT


class ByPatches:
    """Samples the filters of one convolution from pairs of whitened patches."""

    def __init__(self, step: Patches, state: LayerState, pairs: Callable[[LayerState], Way]) -> None:
        layer, signals = state.layer, state.signals
        still = constant_in_time(signals)
        x = signals[:, :1] if still else signals  # (senders, steps, patches)
        self._state, self._whiten = state, whitening(_covariance(state, x, still), step.whitening)
        centred = x.double() - x.double().mean(dim=2, keepdim=True)
        active = torch.linalg.vector_norm(torch.einsum("ij,jtm->itm", self._whiten, centred), dim=(0, 1))
        moving = (x.abs().amax(dim=(0, 1)) > 0) & (active > 0.1 * active.max())
        some = moving.nonzero()[:, 0][: step.compared] if int(moving.sum()) > 1 else torch.arange(min(len(moving), step.compared))
        white = torch.einsum("ij,jtm->itm", self._whiten.to(x), x[:, :, some])
        batch = InitialBatch(state.batch.order[some.cpu()], white, state.batch.targets[some])
        filters = layer.filters(white.shape[1], state.network.steps)
        self._way = pairs(replace(LayerState(**_fields(state)), filters=filters, signals=white, batch=batch))

    def draw_pairs(self) -> LayerReport:
        """Draw one pair of patches per filter."""
        return self._way.draw_pairs()

    def set_weights(self) -> None:
        """Set the weights, still to be normalised."""
        self._way.set_weights()
        weights = self._state.layer.weights
        found = weights.double() @ self._whiten
        weights.copy_(found / torch.linalg.vector_norm(found, dim=1, keepdim=True).clamp_min(1e-300))


def _fields(state: LayerState) -> dict[str, object]:
    names = ("network", "l", "layer", "filters", "signals", "batch", "train", "run", "events")
    return {name: getattr(state, name) for name in names}


def _covariance(state: LayerState, x: Tensor, still: bool) -> Tensor:
    """Return the covariance (senders, senders) of patches, float64, filtered by a typical kernel of the layer."""
    seen = x.double()
    if not still:
        layer, steps = state.layer, x.shape[1]
        h = kernel_taps(layer.kernel, torch.zeros(1).double(), layer.supports.double().median()[None].cpu(), steps)
        seen = torch.einsum("ts,jsm->jtm", toeplitz(h, steps)[0].to(seen), seen)
    flat = seen.flatten(1)
    return torch.cov(flat) if len(flat) > 1 else flat.var(dim=1)[:, None]
