"""Sample the filters of a convolution: its samples are patches, and pairs are told apart beyond what patches have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sswim.algebra import safe_eigh
from sswim.network.convolution import ConvolutionLayer, constant_in_time
from sswim.network.kernels import kernel_taps, toeplitz
from sswim.options import Options, check_integer, check_positive
from sswim.report import LayerReport
from sswim.steps.base import InitialBatch, LayerState, Metric, Way

__all__ = ["PATCHES", "ByPatches", "Patches", "SamePlace", "patches_of", "whitening"]

Lift = Callable[[Metric], Metric]
# Places that patches are drawn at where pairs lie at the same place.
SHARED = 30
# A patch shows something if its whitened norm is at least this part of the largest.
LEAST = 0.1


@dataclass(frozen=True)
class Patches(Options):
    r"""How the patches are drawn that the filters of a `Convolution` are sampled from. Not in the paper.

    Neighbouring pixels are alike, so differences of patches are smooth, and filters made of them are all alike. Thus distances
    and directions are those of *whitened* patches :math:`Z p`, in which no direction varies more than others:

    .. math:: Z = (C / c + \lambda)^{-1/2}

    with `C` the covariance of patches, filtered by the layer's kernel, and `c` their mean variance. A direction `w` of whitened
    patches is the filter :math:`Z w`.

    Parameters
    ----------
    whitening : float
        :math:`\lambda`. Infinity leaves patches as they are.
    count : int
        Number of patches that covariance and normalisation are computed from.
    compared : int
        Number of them that pairs are drawn from. Patches that show nothing are not among them.
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
class SamePlace:
    """A distance between targets of patches that is 0 where they lie at different places: such pairs are never drawn.

    Attributes
    ----------
    metric : Metric
    places : Tensor of shape (patches,)
    """

    metric: Metric
    places: Tensor

    def pairwise(self, x: Tensor) -> Tensor:
        """Return the distances (patches, patches) between targets (patches, time, outputs)."""
        return self.metric.pairwise(x) * (self.places[:, None] == self.places[None, :])


def patches_of(state: LayerState, layer: ConvolutionLayer, step: Patches) -> LayerState:
    """Return where the sampling of a convolution stands, with patches for samples."""
    signals, run = state.signals, state.run
    still, samples = constant_in_time(signals), signals.shape[2]
    steps = 1 if still else signals.shape[1]
    room = max(256, int(run.budget / 4 / (4 * layer.senders * steps)))
    generator = run.random("patches", state.l)
    few = torch.randperm(layer.grid.places, generator=generator)[: SHARED if step.same_place else None]
    drawn = torch.randperm(samples * len(few), generator=generator)[: min(step.count, room)]
    drawn = drawn[(drawn // samples).argsort(stable=True)]  # place by place
    member, number = drawn % samples, drawn // samples
    found = []
    for at, mine in zip(few.tolist(), member.split(torch.bincount(number, minlength=len(few)).tolist()), strict=True):
        if len(mine):
            patch = layer.patches(signals[:, :steps, mine].to(layer.weights), torch.tensor([at]))  # (senders, steps, 1, n)
            found.append(patch[:, :, 0])
    order = torch.randperm(len(drawn), generator=generator)
    seen = torch.cat(found, dim=2)[:, :, order].contiguous()
    seen, member = seen.expand(-1, signals.shape[1], -1) if still else seen, member[order]
    batch = InitialBatch(state.batch.order[member], seen, state.batch.targets[member.to(state.batch.targets.device)])
    return replace(state, signals=seen, batch=batch, events=None, places=few[number[order]])


def whitening(covariance: Tensor, penalty: float) -> Tensor:
    r"""Return :math:`(C / c + \lambda)^{-1/2}`, with `c` the mean variance; the identity if :math:`\lambda` is infinite.

    Examples
    --------
    >>> whitening(torch.diag(torch.tensor([4.0, 1.0])).double(), 1e-9).diagonal().numpy().round(3).tolist()
    [0.791, 1.581]
    """
    level = covariance.diagonal().mean()
    if penalty == float("inf") or float(level) <= 0:
        return torch.eye(len(covariance)).to(covariance)
    values, vectors = safe_eigh(covariance / level)
    return (vectors / (values.clamp_min(0) + penalty).sqrt()) @ vectors.mT


class ByPatches:
    """Samples the filters of one convolution from pairs of whitened patches.

    Parameters
    ----------
    step : Patches
    state : LayerState
        From `patches_of`.
    pairs : callable
        Returns how neurons are sampled by pairs, from a state and from what the distances between targets go through.
    """

    def __init__(self, step: Patches, state: LayerState, pairs: Callable[[LayerState, Lift], Way]) -> None:
        layer, signals, still = state.layer, state.signals, constant_in_time(state.signals)
        x = signals[:, :1] if still else signals  # (senders, steps, patches)
        self._weights, self._whiten = layer.weights, whitening(_covariance(state, x, still), step.whitening)
        white = torch.einsum("ij,jtm->itm", self._whiten.to(x), x)
        size = torch.linalg.vector_norm(white - white.mean(dim=2, keepdim=True), dim=(0, 1))
        some = ((x != 0).any(dim=0).any(dim=0) & (size > LEAST * size.max())).nonzero()[:, 0]
        some = (some if len(some) > 1 else torch.arange(len(size)))[: step.compared]
        batch = InitialBatch(state.batch.order[some.cpu()], white[:, :, some], state.batch.targets[some])
        seen = replace(
            state, filters=layer.filters(x.shape[1], state.network.steps), signals=batch.signals, batch=batch, places=None
        )
        places = state.places[some.cpu()] if step.same_place and state.places is not None else None
        self._way = pairs(seen, lambda metric: metric if places is None else SamePlace(metric, places))

    def draw_pairs(self) -> LayerReport:
        """Draw one pair of patches per filter."""
        return self._way.draw_pairs()

    def set_weights(self) -> None:
        """Set the weights, still to be normalised."""
        self._way.set_weights()
        found = self._weights.double() @ self._whiten
        self._weights.copy_(torch.nn.functional.normalize(found, eps=1e-300))


def _covariance(state: LayerState, x: Tensor, still: bool) -> Tensor:
    """Return the covariance (senders, senders) of patches, float64, filtered by a typical kernel of the layer."""
    seen = x.double()
    if not still:
        layer, steps = state.layer, x.shape[1]
        h = kernel_taps(layer.kernel, torch.zeros(1).double(), layer.supports.double().median()[None].cpu(), steps)
        seen = torch.einsum("ts,jsm->jtm", toeplitz(h, steps)[0].to(seen), seen)
    return torch.cov(seen.flatten(1)).reshape(len(x), len(x))
