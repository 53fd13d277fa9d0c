"""Weights of one layer of another library's network: pairs, directions, and a scale that lets its neurons fire."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sswim.adapters.dialects import Response, measure
from sswim.adapters.foreign import Foreign, Kept, Link
from sswim.adapters.patches import Patches
from sswim.adapters.rates import Pooled, channels, filtered, scales
from sswim.network.kernels import toeplitz
from sswim.options import Run, check_result
from sswim.report import LayerReport
from sswim.sampling import ResolvedSteps
from sswim.steps.pairs import draw_pairs

__all__ = ["LayerSampler"]

# Samples that pairs of patches are drawn from.
PATCHED = 300
# How far above its threshold a neuron that would never fire is lifted.
MARGIN = 0.02


class LayerSampler:
    """Sets weights and biases of one layer."""

    def __init__(self, network: Foreign, link: Link, l: int, kept: Kept, steps: ResolvedSteps, run: Run) -> None:
        assert link.neuron is not None
        self._network, self._link, self._l, self._steps, self._run = network, link, l, steps, run
        self._neuron: nn.Module = link.neuron
        norm = () if link.norm is None else (link.norm.weight, link.norm.bias, link.norm.running_mean, link.norm.running_var)
        kept.changes(link.synapse.weight, link.synapse.bias, *norm)

    def fit(self, samples: Tensor, targets: Tensor, order: Tensor) -> LayerReport:
        """Draw pairs, set weights, scale them, and return what was drawn with the firing rates."""
        link, l, run = self._link, self._l, self._run
        with run.step(f"layer {l}: pairs"):
            some = order[:PATCHED] if isinstance(link.synapse, nn.Conv2d) else order
            z = self._inputs(samples[some])  # (M, T, D) or (M, T, C, H, W)
            seen = next(self._network.record(samples[order[:2]], (self._neuron, "input")))[0]
            response = measure(link.name, self._neuron, seen.shape[2:], self._network.steps, self._network.like)
            if torch.isinf(response.gap).any():
                raise ValueError(f"model: the neurons behind {link.name!r} never fire. Only the last layer may have such.")
            w, report = self._directions(z, targets[some], response)
        self._set(link.synapse.weight, w.reshape(link.synapse.weight.shape))
        if link.synapse.bias is not None:
            link.synapse.bias.zero_()
        self._check_alone(samples[order[:2]])
        with run.step(f"layer {l}: normalisation"):
            self._set_norm(samples[order])
            rates = self._scale(samples[order], response)
        return replace(report, pairs=some[report.pairs], rates=rates)

    def _inputs(self, samples: Tensor) -> Tensor:
        """Return what reaches the weights, as many samples as memory has room for."""
        found: list[Tensor] = []
        for (part,) in self._network.record(samples, (self._link.synapse, "input")):
            found.append(part.cpu())
            if 8 * len(found) * part.numel() * part.element_size() > self._run.budget and sum(map(len, found)) > 1:
                break
        z = torch.cat(found)
        if not bool(torch.isfinite(z).all()):
            raise ValueError(f"model: what reaches {self._link.name!r} is NaN or infinite.")
        if bool((z == z[:1]).all()):
            raise ValueError(f"X: what reaches {self._link.name!r} is the same for all samples: nothing can tell them apart.")
        return z

    def _directions(self, z: Tensor, targets: Tensor, response: Response) -> tuple[Tensor, LayerReport]:
        """Return a unit vector per neuron (neurons, senders), and the pairs."""
        N, l, targets = self._link.neurons, self._l, targets[: len(z)]
        pairs, weights = self._run.random("pairs", l), self._run.random("weights", l)
        if isinstance(self._link.synapse, nn.Linear):
            return self._from_pairs(z, targets, response.taps, N, pairs, weights)
        patches, rows, reports = Patches(self._link.synapse), [], []
        for place in patches.places(z, N, pairs):
            w, report = self._from_pairs(patches.at(z, place), targets, response.common, 1, pairs, weights)
            rows.append(w)
            reports.append(report)
        return torch.cat(rows), replace(reports[0], pairs=torch.cat([report.pairs for report in reports]))

    def _from_pairs(
        self, z: Tensor, targets: Tensor, taps: Tensor, count: int, pairs: torch.Generator, weights: torch.Generator
    ) -> tuple[Tensor, LayerReport]:
        """Draw pairs of z (samples, time, senders) by the distance of their potentials, and separate each pair's potentials."""
        steps, first = self._steps, self._l == 1
        metrics = dict(steps.input_metrics if first else steps.deeper_metrics)
        static = bool((z == z[:, :1]).all())
        seen = z[:, :1] if static else toeplitz(taps.mean(dim=0, keepdim=True), z.shape[1]).to(z) @ z
        report = draw_pairs(seen, targets, metrics, steps.output_metrics, steps.pairs, count, pairs, first=first)
        made = []
        # A multiple of 16, for then torch draws the same normal numbers whatever the chunk.
        chunk = max(16, int(self._run.budget / (96 * z.shape[1] * z.shape[2])) // 16 * 16)
        for drawn, k in zip(report.pairs.split(chunk), taps.expand(count, -1).split(chunk), strict=True):
            psi_1, psi_2 = (toeplitz(k, z.shape[1]) @ z[drawn[:, i]].to(k) for i in (0, 1))  # (n, T, D)
            made.append(check_result("weights", steps.weights.directions(psi_1.mT, psi_2.mT, weights), len(k), z.shape[2]))
        return torch.cat(made), report

    def _check_alone(self, few: Tensor) -> None:
        """Refuse neurons that hear more than these weights, such as a skip connection."""
        weight = self._link.synapse.weight
        kept = weight.detach().clone()
        weight.zero_()
        if self._link.norm is not None:
            self._set_norm(few)
        for (x,) in self._network.record(few, (self._neuron, "input")):
            if bool((x != 0).any()):
                raise ValueError(
                    f"model: the neurons behind {self._link.name!r} get more than its output, by another connection or a "
                    "shift. Only poolings, batch normalisation, dropout and the like may stand in between."
                )
        weight.copy_(kept)

    def _set_norm(self, samples: Tensor) -> None:
        """Give a batch normalisation the mean and variance of these samples, scale 1 and shift 0."""
        norm = self._link.norm
        if norm is None:
            return
        sums = Pooled()
        for (x,) in self._network.record(samples, (norm, "input")):
            sums.update(channels(x))
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.copy_(sums.mean), norm.running_var.copy_(sums.deviation**2)
        norm.weight.fill_(1.0), norm.bias.zero_()

    def _scale(self, samples: Tensor, response: Response) -> Tensor:
        """Scale weights and biases, lift neurons that would not fire, and return the firing rates (neurons,)."""
        link, sums = self._link, Pooled()
        target = link.synapse if link.norm is None else link.norm
        for (x,) in self._network.record(samples, (self._neuron, "input")):
            sums.update(filtered(x, response))
        alpha, b = scales(sums, self._steps.normalizer, response, biased=target.bias is not None)
        shape = (-1, *[1] * (target.weight.ndim - 1))
        self._set(target.weight, target.weight * alpha.reshape(shape).to(target.weight))
        self._set(target.bias, b)
        rates, top = self._fire(samples, response)
        for _ in range(4):
            silent = rates == 0
            if not bool(silent.any()):
                break
            reached = silent & (top > 0)
            factor = torch.where(reached, (1 + MARGIN) * response.gap / top.clamp_min(1e-300), 1.0)
            # Where even the largest potential is below rest, only the weights' other sign, without a bias, can reach it.
            factor = torch.where(silent & ~reached, -1.0, factor)
            self._set(target.weight, target.weight * factor.reshape(shape).to(target.weight))
            if target.bias is not None:
                self._set(target.bias, torch.where(factor < 0, 0.0, target.bias.cpu() * factor))
            rates, top = self._fire(samples, response)
        return rates

    def _fire(self, samples: Tensor, response: Response) -> tuple[Tensor, Tensor]:
        """Return rates (neurons,) and the largest potential without spikes (neurons,)."""
        neuron = self._neuron
        count, spikes, sums = 0, torch.zeros(self._link.neurons, dtype=torch.float64), Pooled()
        for x, s in self._network.record(samples, (neuron, "input"), (neuron, "output")):
            fired = channels(s) != 0
            spikes, count = spikes + fired.sum(dim=(1, 2)).cpu(), count + fired[0].numel()
            sums.update(filtered(x, response))
        return spikes / count, sums.maximum

    def _set(self, parameter: Tensor | None, value: Tensor) -> None:
        if parameter is not None:
            parameter.copy_(check_result(f"model: weights of {self._link.name!r}", value.to(parameter), *parameter.shape))
