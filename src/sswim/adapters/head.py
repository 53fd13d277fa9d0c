"""The last layer of another library's network, by ridge regression."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sswim.adapters.dialects import Response, dialect_of, measure
from sswim.adapters.foreign import Foreign, Link
from sswim.adapters.rates import filtered
from sswim.readout.likelihood import fit_temperature
from sswim.regression import LambdaSearch, Sums

__all__ = ["READOUTS", "solve_readout"]

READOUTS = ("ridge", "keep", "sample")
# Part of the samples that penalty, temperature and gain are chosen on, and the most that gains are tried on.
HELD_OUT, TRIED = 0.2, 500
# Outputs for the cross entropy are this part of the likeliest ones: if they are too sure of themselves, the gradients of the
# layers before are large, and training destroys more than it learns.
SOFT = 0.2
# Potentials of spiking outputs, in thresholds: of the right class, and of the others.
GAINS = [(high, low) for high in (1.0, 2.0, 4.0, 8.0) for low in (0.0, 0.5)]


def solve_readout(
    network: Foreign, link: Link, samples: Tensor, targets: Tensor, labelled: bool, generator: torch.Generator
) -> float:
    """Solve for the last layer, and return its score on held-out samples.

    Parameters
    ----------
    network : Foreign
    link : Link
        The last layer: its weights are overwritten.
    samples : Tensor of shape (samples, time, ...)
    targets : Tensor of shape (samples, 1, outputs)
        0 and 1 if they stand for labels.
    labelled : bool
    generator : torch.Generator
        Draws the held-out samples.
    """
    y, layer = targets[:, 0], link.synapse
    _check(link, y.shape[1], labelled)
    response = _response(network, link, samples[:2])
    f = _features(network, link, samples, response)  # (M, D)
    order = torch.randperm(len(f), generator=generator)
    held = order[: max(1, round(HELD_OUT * len(f)))]
    rest = order[len(held) :]
    train, validation = (_sums(f[some], y[some], free=layer.bias is not None) for some in (rest, held))
    w, b, lambdas = LambdaSearch().solve(train, validation)
    guess, truth = f[held] @ w + b, y[held]
    spiking = response is not None and not bool(torch.isinf(response.gap).any())
    scale = SOFT / fit_temperature(guess, truth.argmax(dim=1)) if labelled and not spiking else 1.0
    train.merge(validation)
    w, b = train.solve(lambdas)
    ramp = 1.0 if response is None else float(response.ramp.mean())
    if labelled and spiking:
        assert response is not None
        few, gap = held[:TRIED], float(response.gap.mean())
        return _set_gain(network, link, w, b, samples[few], y[few].argmax(dim=1), gap, ramp)
    _set(layer, scale * w, scale * b / ramp)
    if labelled:
        return float((guess.argmax(dim=1) == truth.argmax(dim=1)).double().mean())
    return 1 - float((guess - truth).square().sum() / (truth - truth.mean(dim=0)).square().sum().clamp_min(1e-300))


def _check(link: Link, outputs: int, labelled: bool) -> None:
    if not isinstance(link.synapse, nn.Linear):
        raise ValueError(f"readout: 'ridge' needs a Linear layer last, but {link.name!r} is none. Use 'keep' or 'sample'.")
    if link.norm is not None:
        raise ValueError(f"readout: 'ridge' cannot look past the batch normalisation behind {link.name!r}. Use 'keep'.")
    found = link.synapse.out_features
    if found < outputs or (not labelled and found != outputs):
        what = f"y has labels up to {outputs - 1}" if labelled else f"y has {outputs} values per sample"
        raise ValueError(f"readout: the last layer {link.name!r} has {found} outputs, but {what}. Use 'keep' or 'sample'.")


def _response(network: Foreign, link: Link, few: Tensor) -> Response | None:
    """Return the response of the neurons behind the last layer, if there are any."""
    if link.neuron is None or dialect_of(link.neuron) is None:
        return None
    shape = next(network.record(few, (link.neuron, "input")))[0].shape[2:]
    return measure(link.name, link.neuron, shape, network.steps, network.like)


def _features(network: Foreign, link: Link, samples: Tensor, response: Response | None) -> Tensor:
    """Return what the layer reads of each sample (samples, features): the mean over time of its filtered inputs."""
    found = []
    for (z,) in network.record(samples, (link.synapse, "input")):
        if response is None:
            found.append(z.double().mean(dim=1))
        else:
            common = Response(response.common, response.gap[:1])
            found.append(filtered(z.double(), common).mean(dim=1).T)
    return torch.cat(found).cpu()


def _sums(f: Tensor, y: Tensor, *, free: bool) -> Sums:
    """Return the sums of a regression, with a free bias or without any."""
    sums = Sums(f.shape[1], y.shape[1])
    sums.update(f.T[:, None].clone(), y.T[:, None])
    if free:
        return sums
    whole, plain = sums.with_constant(), Sums(f.shape[1], y.shape[1])
    plain.gram, plain.cross, plain.energy = whole.gram[:-1, :-1].clone(), whole.cross[:-1].clone(), whole.energy
    plain.samples = whole.samples
    return plain


def _set(layer: nn.Linear | nn.Conv2d, w: Tensor, b: Tensor) -> None:
    """Set the weights from (features, outputs); outputs that stand for no class are never the largest."""
    spare = layer.weight.shape[0] - w.shape[1]
    layer.weight.copy_(nn.functional.pad(w.T, (0, 0, 0, spare)))
    if layer.bias is not None:
        layer.bias.copy_(nn.functional.pad(b, (0, spare), value=float(b.min()) - 1.0))


def _set_gain(
    network: Foreign, link: Link, w: Tensor, b: Tensor, samples: Tensor, labels: Tensor, gap: float, ramp: float
) -> float:
    """Set the weights of spiking outputs by the gain whose spike counts classify best, and return that accuracy."""
    assert link.neuron is not None
    scores = []
    for high, low in GAINS:
        _set(link.synapse, gap * (high - low) * w, gap * ((high - low) * b + low) / ramp)
        parts = [s for (s,) in network.record(samples, (link.neuron, "output"))]
        counts = torch.cat(parts).sum(dim=1).cpu()  # (M, C)
        right = counts[torch.arange(len(labels)), labels]
        best = (counts == counts.amax(dim=1, keepdim=True)).sum(dim=1)
        # Of classes with equally many spikes any may be chosen.
        scores.append(float(torch.where(right == counts.amax(dim=1), 1 / best, 0.0).mean()))
    high, low = GAINS[scores.index(max(scores))]
    _set(link.synapse, gap * (high - low) * w, gap * ((high - low) * b + low) / ramp)
    return max(scores)
