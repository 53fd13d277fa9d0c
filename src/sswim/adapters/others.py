"""Weights for networks of snnTorch, SpikingJelly and Norse: S-SWIM as their initialisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sswim.adapters.foreign import Foreign, Forward, Kept
from sswim.adapters.head import READOUTS, solve_readout
from sswim.adapters.layers import LayerSampler
from sswim.options import Mistakes, Run, Seed, check_choice, check_integer, resolve_kind
from sswim.report import LayerReport
from sswim.sampling import STEPS, Steps
from sswim.steps import Diverse

__all__ = ["SampledInto", "sample_into"]

# Firing rates were chosen on held-out training samples of the digits and of FSDD, see docs/others.md.
RATES = Diverse(low=0.03, high=0.3, cost=1.0)
LABELS = Steps(input_metric="l2", deeper_metric="l2", output_metric="class", pairs="spread", normalizer=RATES)
VALUES = LABELS.replace(output_metric="l2")


@dataclass(frozen=True)
class SampledInto:
    """What `sample_into` did.

    Attributes
    ----------
    layers : dict of str to LayerReport
        Pairs and firing rates of every sampled layer, by the name of its weights; of convolutions, of every channel.
    steps : int
        Number of time steps that the network was run for.
    readout : str
        What became of the last layer.
    score : float or None
        If the last layer was solved: the part of held-out samples that it classifies correctly; for values, the part of their
        variance that it explains.
    """

    layers: dict[str, LayerReport]
    steps: int
    readout: str
    score: float | None

    @property
    def silent(self) -> int:
        """Number of neurons that never fired."""
        return sum(report.silent for report in self.layers.values())


def sample_into(
    model: nn.Module,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    repeat: int | None = None,
    forward: Forward = "auto",
    readout: str = "ridge",
    steps: str | Steps | None = None,
    memory: str | int = "1GB",
    random_state: Seed = None,
    verbose: int = 0,
) -> SampledInto:
    r"""Set the weights of a network of snnTorch, SpikingJelly or Norse from data: a start for its training, or an end.

    Layer after layer, each neuron gets a pair of samples that look alike and have different targets, and the weights that
    separate the potentials of the two (`sswim.steps`). Weights and biases are scaled to a healthy firing rate, and the last
    layer is solved for by a ridge regression. The network's own modules simulate the spikes that reach the next layer, and the
    response of a neuron to its input is measured on the module itself. Nothing but weights and biases of Linear and
    Conv2d layers changes, and of batch normalisations between them and their neurons, with the statistics of the latter.

    Parameters
    ----------
    model : nn.Module
        Linear or Conv2d layers, each followed by spiking neurons; the last may have none. Poolings, dropout and the like may
        stand in between.
    X : array or Tensor of shape (samples, time, features...)
        Training samples; (samples, features...) if `repeat` is given, or if `forward` takes static samples.
    y : array or Tensor
        Class labels (samples,), whole numbers from 0 on; or real values of shape (samples, outputs).
    repeat : int, optional
        Show static samples for this many steps.
    forward : {"auto", "step", "time-first", "batch-first"} or callable
        How the model is called: once per step with (batch, features...), or once with (time, batch, features...) or (batch,
        time, features...), or as ``forward(model, samples)``, which runs all steps. Default: ``"time-first"`` if a module of
        the model wants it, else ``"step"``. States are reset before.
    readout : {"ridge", "keep", "sample"}
        Whether the last layer is solved for, left as it is, or sampled as the others are. Solved, its output's mean over time
        fits the targets; for labels it is scaled for training with the cross entropy. If spiking neurons follow, their spike
        counts do.
    steps : str or Steps, optional
        Metrics, pairs, weights, normalizer and initial batch are taken from it. Default: Euclidean distances, classes that
        differ, and `Diverse` rates.
    memory : str or int
        Bounds the samples that are kept for pairs.
    random_state : int, optional
        Same seed, same weights.
    verbose : int
        1 shows progress bars, 0 nothing.

    Returns
    -------
    SampledInto

    Notes
    -----
    With :math:`k` the measured response, the potential between spikes is :math:`v(t) = \sum_s k(s) (W x + b)(t - s)`. So a bias
    is a ramp :math:`b \sum_{s \le t} k(s)`, whose mean takes the place of the paper's bias. A spike costs the threshold, in
    the paper :math:`|\gamma|`: potentials are divided by that, which leaves the spikes of `Normalizer` as they are.
    """
    mistakes = Mistakes()
    mistakes.check(check_choice, "readout", readout, READOUTS)
    if repeat is not None:
        mistakes.check(check_integer, "repeat", repeat, 1)
    with mistakes.collect():
        _check_model(model)
    with mistakes.collect():
        samples, targets, labelled = _check_data(X, y, repeat)
    chosen = mistakes.check(resolve_kind, "steps", LABELS if steps is None else steps, STEPS, Steps)
    mistakes.report()
    if steps is None and not labelled:
        chosen = VALUES
    resolved = chosen.resolved(mistakes)
    mistakes.report()
    if labelled is False and "class" in resolved.output_metrics:
        raise ValueError("steps: output_metric='class' needs labels, but y holds values. Use Steps(output_metric='l2').")
    with Run(memory, random_state, verbose) as run, Kept(model) as kept, torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.random.seed % 2**63)  # for models that draw their own spikes
        network = Foreign(model, samples, forward)
        last = network.links[-1]
        if readout == "sample" and last.neuron is None:
            raise ValueError(f"readout: 'sample' needs neurons behind the last layer {last.name!r}. Use 'ridge' or 'keep'.")
        sampled = network.links if readout == "sample" else network.links[:-1]
        order = torch.randperm(len(samples), generator=run.random("batch"))[: resolved.initial_batch]
        reports = {}
        for l, link in enumerate(sampled, start=1):
            reports[link.name] = LayerSampler(network, link, l, kept, resolved, run).fit(samples, targets, order)
        score = None
        if readout == "ridge":
            kept.changes(last.synapse.weight, last.synapse.bias)
            with run.step("readout"):
                score = solve_readout(network, last, samples, targets, labelled, run.random("batch", 1))
    return SampledInto(reports, network.steps, readout, score)


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}.")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ValueError("model: some layers are lazy and have no weights yet. Run the model once before.")
    if next(model.parameters(), None) is None:
        raise ValueError("model has no parameters, so there are no weights to set.")


def _check_data(X: npt.ArrayLike, y: npt.ArrayLike, repeat: int | None) -> tuple[Tensor, Tensor, bool]:
    """Return samples (samples, time, ...), targets (samples, 1, outputs), and whether these stand for labels."""
    x, t = _as_tensor("X", X), _as_tensor("y", y)
    if x.ndim < 2 or len(x) < 2:
        raise ValueError(f"X must hold two samples at least, of shape (samples, time, features...), got {tuple(x.shape)}.")
    x = x if x.is_floating_point() else x.float()
    if not bool(torch.isfinite(x).all()):
        raise ValueError("X must be finite, but holds NaN or infinite values: fill or drop them first.")
    if len(t) != len(x):
        raise ValueError(f"y must have one target per sample: X has {len(x)} samples, y {len(t)}.")
    if bool((x == x[:1]).all()):
        raise ValueError("X: all samples are the same, so no weights can tell them apart.")
    if repeat is not None:
        x = x[:, None].expand(-1, repeat, *x.shape[1:])
    if t.is_floating_point():
        t = t[:, None] if t.ndim == 1 else t
        if t.ndim != 2 or not bool(torch.isfinite(t).all()):
            raise ValueError(f"y must hold labels (samples,) or finite values (samples, outputs), got shape {tuple(t.shape)}.")
        return x, t.double()[:, None], False
    if t.ndim != 1 or int(t.min()) < 0:
        raise ValueError(f"y: labels must be whole numbers from 0 on, of shape (samples,), got shape {tuple(t.shape)}.")
    if bool((t == t[0]).all()):
        raise ValueError(f"y: all samples have the class {int(t[0])}. Two classes at least are needed.")
    return x, nn.functional.one_hot(t.long()).double()[:, None], True


def _as_tensor(name: str, value: npt.ArrayLike) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}.")
    return torch.as_tensor(array)
