"""Which parameters of a spiking output come nearest to given trains, by simulation with the output's own spikes fed back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sswim.data.windows import batches
from sswim.network.kernels import Hat, kernel_taps, refractory_taps, toeplitz
from sswim.network.layer import fire
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.spiking.projections import Fit, Group

__all__ = ["Judge"]

# Shifts of the voltage, in margins, and factors of the spike cost that are tried on validation samples.
SHIFTS, FACTORS = torch.linspace(-2, 1, 25), torch.tensor([0.5, 1.0, 2.0])
FINE_SHIFTS, FINE_FACTORS = torch.linspace(-0.1, 0.1, 9), torch.tensor([0.7, 0.85, 1.0, 1.2, 1.4])
# Numbers that trains are simulated with at once.
CHUNK = 4_000_000


class Judge:
    """Compares candidates by the trains that they really put out on validation samples, and keeps each output's best.

    Parameters
    ----------
    network : SpikingNetwork
        Its output's temporal parameters are used, those that are fitted are not.
    source : iterable of pairs
        Hidden spikes (neurons, steps, batch) and trains (outputs, horizon, batch), gone through many times.
    groups : sequence of Group

    Attributes
    ----------
    least : Tensor of shape (outputs,)
        Square of each output's least distance so far, relative to that of silence.
    best : list of Fit
        Of each group, one candidate per output.
    candidate, round : Tensor of shape (outputs,)
        Which of the candidates that was, and of which round.
    plain, shifted : Tensor of shape (outputs,)
        Relative distances of the first candidate of round 0: as it stands, and with shift and spike cost chosen.
    """

    def __init__(self, network: SpikingNetwork, source: Iterable[tuple[Tensor, Tensor]], groups: Sequence[Group]) -> None:
        self._network, self._source, self._groups = network, source, groups
        self._readout: VoltageReadout = network.readout  # type: ignore[assignment]
        like, outputs = network.readout.weights, network.outputs
        zero, support = like.new_zeros(1), like.new_full((1,), 5.0)
        self._h = toeplitz(kernel_taps(Hat(), zero, support, network.horizon), network.horizon)[0]
        self.least = torch.full((outputs,), torch.inf, dtype=torch.float64, device=like.device)
        self.candidate, self.round = torch.zeros(2, outputs, dtype=torch.int64, device=like.device)
        self.best: list[Fit] = []
        self._first: list[Fit] = []
        self.plain = self.shifted = self.least

    def distances(self, fits: Sequence[Fit], shifts: Tensor, factors: Tensor) -> list[Tensor]:
        """Return the squared van Rossum distances (V, shifts * factors) relative to silence, per group."""
        network, readout = self._network, self._readout
        shift, factor = (grid.flatten() for grid in torch.meshgrid(shifts.to(self._h), factors.to(self._h), indexing="ij"))
        found = [torch.zeros(len(fit.c), len(shift), dtype=torch.float64, device=self._h.device) for fit in fits]
        energy = torch.zeros_like(self.least)
        for A, y in self._source:
            energy += torch.matmul(self._h, y).double().square().sum(dim=(1, 2))
            for group, fit, total in zip(self._groups, fits, found, strict=True):
                u = group.respond(fit.p, A, whole=True)  # (V, S, B)
                output = group.outputs.repeat_interleave(len(fit.c) // len(group.outputs))
                for part in batches(len(u), max(1, CHUNK // (len(shift) * u[0].numel()))):
                    v = (1 + u[part, None] + shift[:, None, None]).flatten(0, 1)
                    costs = (fit.c[part, None].to(factor) * factor).flatten()
                    of = output[part]
                    taps = refractory_taps(readout.refractory, readout.refractory_supports[of], network.steps)
                    fired = fire(v, costs, taps.repeat_interleave(len(shift), dim=0))[:, network.start :]
                    apart = fired.unflatten(0, (-1, len(shift))) - y[of, None]
                    total[part] += torch.matmul(self._h, apart).square().sum(dim=(2, 3)).double()
        return [
            total / energy[group.outputs].clamp_min(1e-9).repeat_interleave(len(total) // len(group.outputs))[:, None]
            for group, total in zip(self._groups, found, strict=True)
        ]

    def _choose(self, fits: Sequence[Fit], shifts: Tensor, factors: Tensor) -> list[tuple[Tensor, Tensor, Fit]]:
        """Return each group's least distance, its candidate, and the parameters with shift and factor applied."""
        chosen = []
        for group, fit, far in zip(self._groups, fits, self.distances(fits, shifts, factors), strict=True):
            outputs = len(group.outputs)
            least, at = far.view(outputs, -1).min(dim=1)
            candidate, place = at // far.shape[1], at % far.shape[1]
            rows = torch.arange(outputs, device=at.device) * (len(fit.c) // outputs) + candidate
            p = fit.p[rows].clone()
            p[:, -1] += shifts.to(p)[place // len(factors)]
            chosen.append((least, candidate, Fit(p, fit.c[rows] * factors.to(p)[place % len(factors)])))
        return chosen

    def compare(self, round_: int, fits: Sequence[Fit]) -> None:
        """Take in the candidates of one round."""
        chosen = self._choose(fits, SHIFTS, FACTORS)
        if not self.best:
            each = [len(fit.c) // len(group.outputs) for group, fit in zip(self._groups, fits, strict=True)]
            first = [Fit(fit.p[::k], fit.c[::k]) for fit, k in zip(fits, each, strict=True)]
            none, whole = torch.zeros(1), torch.ones(1)
            self.plain = self._spread([far[:, 0] for far in self.distances(first, none, whole)]).sqrt()
            self._first = [fit for _, _, fit in self._choose(first, SHIFTS, FACTORS)]
            self.best = [fit for _, _, fit in chosen]
        for group, best, (least, candidate, fit) in zip(self._groups, self.best, chosen, strict=True):
            better = least < self.least[group.outputs]
            of = group.outputs[better]
            self.least[of], self.candidate[of], self.round[of] = least[better], candidate[better], round_
            best.p[better], best.c[better] = fit.p[better], fit.c[better]

    def refine(self) -> None:
        """Search shifts and costs again, near the best and more finely."""
        first, best = (self._choose(fits, FINE_SHIFTS, FINE_FACTORS) for fits in (self._first, self.best))
        self.shifted = self._spread([least for least, _, _ in first]).sqrt()
        self.best = [fit for _, _, fit in best]

    def _spread(self, values: Sequence[Tensor]) -> Tensor:
        """Return groups' values as one tensor (outputs,)."""
        result = torch.empty_like(self.least)
        for group, value in zip(self._groups, values, strict=True):
            result[group.outputs] = value
        return result
