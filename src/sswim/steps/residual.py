"""Sample deeper layers from the residuals of a regression on the earlier layers. Not in the paper."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sswim.algebra import gram, safe_eigh
from sswim.data.windows import Samples, Subset, batches
from sswim.network.network import SpikingNetwork
from sswim.options import Options, Run, check_fraction, check_integer, check_positive, check_result
from sswim.report import LayerReport
from sswim.steps.base import Depth, LayerState
from sswim.steps.weights import fix_signs

__all__ = ["DEPTH", "PlainDepth", "ResidualDepth", "cross_fitted_residuals"]

# Centres whose neighbours are found at once.
CHUNK = 128


def cross_fitted_residuals(features: Tensor, targets: Tensor) -> Tensor:
    r"""Return what of each sample a ridge regression on the *other half* of the samples leaves unexplained.

    Parameters
    ----------
    features : Tensor of shape (samples, features)
    targets : Tensor of shape (samples, outputs)

    Returns
    -------
    Tensor of shape (samples, outputs), float64
    """
    halves = [slice(0, None, 2), slice(1, None, 2)]
    left = targets.double() - targets.double().mean(dim=0)
    deviation = features.std(dim=0)
    moving = deviation > 1e-6
    x = features[:, moving] / deviation[moving]
    for seen, other in (halves, halves[::-1]):
        mean, level = x[seen].mean(dim=0), targets[seen].double().mean(dim=0)
        a, y = x[seen] - mean, targets[seen].double() - level
        G, b, eye = gram(a.T).double(), a.T.double() @ y, torch.eye(a.shape[1], dtype=torch.float64, device=x.device)
        best = torch.inf
        for penalty in torch.logspace(-3, 1, 5, dtype=torch.float64).tolist() if len(G) else ():
            w = torch.cholesky_solve(b, torch.linalg.cholesky(G + penalty * len(a) * eye))
            found = targets[other].double() - level - ((x[other] - mean) @ w.to(x)).double()
            if (error := float(found.square().sum())) < (1 - 1e-6) * best:
                best, left[other] = error, found
    return left


@dataclass(frozen=True)
class PlainDepth(Options):
    """As in the paper: deeper layers are sampled as the first one is."""

    def way(self, state: LayerState) -> None:
        """Return None: deeper layers are sampled by pairs too."""


@dataclass(frozen=True)
class ResidualDepth(Options):
    r"""Deeper layers of a readout of all layers are sampled for what the layers before leave unexplained.

    Let :math:`r_m` be what is left of a sample's target after a regression, fitted on other samples, from the traces of the
    layers before, and :math:`x_m` its spike counts in the layer before. A neuron draws a sample with a probability
    proportional to :math:`|r_m|^p`, and looks at its surroundings `U`, the samples of the nearest counts. Its weights are the
    direction along which :math:`r_m` changes there: those of a ridge regression

    .. math:: w = (S + \lambda \operatorname{tr}(S) / N)^{-1} \sum_{m \in U} (x_m - \bar x) \, u \cdot (r_m - \bar r)

    with `S` the covariance of the counts, and `u` the direction in which :math:`r_m` varies most, both within `U`. All of it
    is computed within the leading principal components of the counts; beyond them counts vary so little that the penalty
    leaves nothing.

    Parameters
    ----------
    power : float
        `p`.
    share : float
        Part of the samples that a neuron's surroundings hold.
    shrinkage : float
        :math:`\lambda`.
    samples : int
        Number of samples that are looked at.
    components : int
        Number of principal components.
    """

    power: float = 1.0
    share: float = 0.1
    shrinkage: float = 1.0
    samples: int = 15_000
    components: int = 300

    def __post_init__(self) -> None:
        check_positive("ResidualDepth: power", self.power, zero=True)
        check_fraction("ResidualDepth: share", self.share)
        check_positive("ResidualDepth: shrinkage", self.shrinkage)
        check_integer("ResidualDepth: samples", self.samples, 2)
        check_integer("ResidualDepth: components", self.components, 1)

    def way(self, state: LayerState) -> ByResiduals | None:
        """Return how this step samples one layer; None for a readout that does not read all layers."""
        return ByResiduals(self, state) if state.network.readout.constants else None

    def draw(self, left: Tensor, neurons: int, generator: torch.Generator) -> Tensor:
        """Return the sample of each neuron (neurons,), drawn by what is left (samples, outputs).

        No sample is drawn twice before all that have anything left were drawn.
        """
        size = torch.linalg.vector_norm(left.double(), dim=1)
        probability = (size / size.max().clamp_min(1e-300)).clamp_min(1e-12).pow(self.power).cpu()
        rounds = [
            torch.multinomial(probability, min(neurons - n, len(left)), generator=generator)
            for n in range(0, neurons, len(left))
        ]
        return torch.cat(rounds)

    def directions(self, counts: Tensor, left: Tensor, centres: Tensor, generator: torch.Generator) -> Tensor:
        """Return unit vectors (neurons, senders) with random signs.

        Parameters
        ----------
        counts : Tensor of shape (samples, senders)
            Spikes of the layer before.
        left : Tensor of shape (samples, outputs)
            What the layers before leave unexplained.
        centres : Tensor of shape (neurons,)
            The sample that each neuron looks at.
        """
        counts, r = counts.double(), left.double()  # so that rounding does not choose the neighbours
        basis = _principal_directions(counts, self.components, generator)  # (N, k)
        x = (counts - counts.mean(dim=0)) @ basis
        near = min(max(round(self.share * len(x)), 32), len(x))
        lift = self.shrinkage / counts.shape[1]  # the trace is of all senders: what the components miss is little
        made = []
        for U in _neighbours(x, centres, near):
            a, t = x[U] - x[U].mean(dim=0), r[U] - r[U].mean(dim=0)
            S, (_, vectors) = a.T @ a / near, safe_eigh(t.T @ t)
            penalty = (lift * S.trace()).clamp_min(1e-12)
            made.append(torch.linalg.solve(S + penalty * torch.eye(len(S)).to(S), a.T @ (t @ vectors[:, -1])))
        w = fix_signs(torch.stack(made) @ basis.T)
        signs = torch.where(torch.rand(len(w), 1, generator=generator, dtype=torch.float64) < 0.5, -1.0, 1.0)
        return w * signs.to(w.device)


class ByResiduals:
    """Samples one deeper layer by a `ResidualDepth`."""

    def __init__(self, step: ResidualDepth, state: LayerState) -> None:
        self._step, self._state = step, state

    def draw_pairs(self) -> LayerReport:
        """Draw the sample whose surroundings each neuron looks at."""
        network, l, batch, run = self._state.network, self._state.l, self._state.batch, self._state.run
        neurons = self._state.layer.neurons
        with run.step(f"layer {l}: pairs"):
            each = 40 * sum(network.hidden[:-1]) * len(network.readout.constants)  # traces of a sample, and copies of them
            room = max(len(batch.targets), run.budget // max(each, 1))
            seen = Subset(self._state.train, batch.order[: min(self._step.samples, room)])
            self._counts, self._left = _left_unexplained(network, seen, l - 1, run)
            self._centres = check_result("depth", self._step.draw(self._left, neurons, run.random("pairs", l)), neurons)
        pairs = batch.order[self._centres.cpu()][:, None].expand(-1, 2).contiguous()
        return LayerReport("l2", "residual", {}, pairs, torch.empty(0), every_channel=False)

    def set_weights(self) -> None:
        """Set the weights, still to be normalised."""
        layer, l, run = self._state.layer, self._state.l, self._state.run
        with run.step(f"layer {l}: weights"):
            w = self._step.directions(self._counts, self._left, self._centres, run.random("weights", l))
            layer.weights.copy_(check_result("depth", w, layer.neurons, layer.senders))


def _left_unexplained(network: SpikingNetwork, samples: Samples, depth: int, run: Run) -> tuple[Tensor, Tensor]:
    """Return spike counts in layer `depth` (samples, neurons), and what all layers up to it leave of the targets.

    The latter has the shape (samples, horizon * outputs).
    """
    constants, width = network.readout.constants, network.layers[depth - 1].outputs
    seen = [*constants, *([] if math.inf in constants else [math.inf])]  # the trace that never fades is the count
    look, counts, traces, targets = network.trace_reader(seen, depth), [], [], []
    for part in run.count(batches(len(samples), network.batch_size(run.budget))):
        found = look(samples.inputs(part)).unflatten(0, (-1, len(seen)))  # (N, K, B)
        counts.append(found[-width:, seen.index(math.inf)].T)
        traces.append(found[:, : len(constants)].flatten(0, 1).T)
        targets.append(samples.targets(part).flatten(1).to(found))
    return torch.cat(counts), cross_fitted_residuals(torch.cat(traces), torch.cat(targets))


def _neighbours(x: Tensor, centres: Tensor, count: int) -> Iterator[Tensor]:
    """Yield for each centre the numbers of the `count` nearest of x (samples, features)."""
    size = x.square().sum(dim=1)
    for some in centres.split(CHUNK):
        squared = size[:, None] - 2 * x @ x[some].T  # up to a constant per centre
        yield from squared.topk(count, dim=0, largest=False).indices.T


def _principal_directions(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return orthonormal directions (features, count) in which x (samples, features) varies most; all if there are few."""
    x = x - x.mean(dim=0)
    if x.shape[1] <= count:
        return torch.eye(x.shape[1]).to(x)
    # Some steps of subspace iteration from random directions, with few to spare, are near enough.
    start = torch.randn(x.shape[1], count + 16, generator=generator, dtype=torch.float64).to(x)
    for _ in range(3):
        start = torch.linalg.qr(x.T @ (x @ start)).Q
    projected = x @ start
    _, vectors = safe_eigh(projected.T @ projected)
    return start @ vectors[:, -count:]


DEPTH: dict[str, Depth] = {"plain": PlainDepth(), "residual": ResidualDepth()}
