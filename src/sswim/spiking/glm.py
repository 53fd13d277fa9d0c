"""Output layers from a Poisson generalised linear model of their spikes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sklearn.linear_model import PoissonRegressor
from torch import Tensor

from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.spiking.projections import Fit, Group, refractory_traces
from sswim.spiking.source import SpikeSource

__all__ = ["fit_glm"]

# Rows that a model is fitted on, and the penalties that are tried.
GLM_ROWS, GLM_ALPHAS = 10_000, (1e-4, 1e-2)


def fit_glm(
    network: SpikingNetwork, source: SpikeSource, groups: Sequence[Group], rate: Tensor, budget: int, generator: torch.Generator
) -> list[Fit]:
    """Fit Poisson models to rows of all samples: with every spike or many, and as many other rows, weighted for the rest."""
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    N = network.hidden[-1]
    limit = min(GLM_ROWS, max(10 * N, int(budget / 4 / (8 * N * network.outputs)))) / 2
    total = len(source) * network.horizon
    # Of each class, a row is kept by so much chance: all spikes, unless there are more than half the limit.
    share = torch.stack([limit / (total * (1 - rate)).clamp_min(1), limit / (total * rate).clamp_min(1)]).clamp_max(1)  # (2, C)
    rows: list[list[Tensor]] = [[] for _ in rate]
    for A, y in source:
        eta = refractory_traces(readout.refractory, readout.refractory_supports, y)
        for group in groups:
            psi = group.psi(A).flatten(1)
            for i in group.outputs.tolist():
                spiking = y[i].flatten()
                chance = torch.where(spiking > 0, share[1, i], share[0, i])
                at = (torch.rand(len(spiking), generator=generator).to(chance) < chance).nonzero()[:, 0]
                own = torch.stack([eta[i].flatten()[at], spiking[at], (1 / chance[at]).to(psi)])
                rows[i].append(torch.cat([psi[:, at], own]))
    fits = []
    for group in groups:
        p = torch.zeros(len(group.outputs), len(GLM_ALPHAS), N + 1, dtype=torch.float64, device=group.means.device)
        c = torch.zeros(len(group.outputs), len(GLM_ALPHAS), dtype=torch.float64, device=group.means.device)
        for k, i in enumerate(group.outputs.tolist()):
            if not 0 < rate[i] < 1:
                continue
            table = torch.cat(rows[i], dim=1).double().cpu()
            x, y_i, weight = table[:-2].T, table[-2], table[-1]  # (rows, N + 1), (rows,), (rows,)
            x[:, :-1] -= group.means.cpu()
            x[:, :-1] /= (size := x[:, :-1].std(dim=0).clamp_min(1e-6))
            for a, alpha in enumerate(GLM_ALPHAS):
                for used in (N + 1, N):  # without the refractory trace if that would excite
                    model = PoissonRegressor(alpha=alpha, solver="newton-cholesky", max_iter=50)
                    model.fit(x[:, :used].numpy(), y_i.numpy(), sample_weight=weight.numpy())
                    w = torch.zeros(N + 1, dtype=torch.float64)
                    w[:used] = torch.from_numpy(model.coef_)
                    if w[-1] <= 0:
                        break
                u = x @ w + model.intercept_
                quiet, active = ((u * weight * at).sum() / (weight * at).sum() for at in (1 - y_i, y_i))
                # The scale is free: spikes hang on the sign of v - 1 alone. This one makes shifts mean the same as elsewhere.
                scale = float((active - quiet) / 2) or 1.0
                p[k, a, :-1], c[k, a] = (w[:-1] / size / scale).to(p), float(w[-1]) / scale
                p[k, a, -1] = (model.intercept_ - float(active + quiet) / 2) / scale
        fits.append(Fit(p.flatten(0, 1), c.flatten()))
    return fits
