r"""Count what a readout with lags does: populations, and the weights that read them.

Directions and weights are two linear maps, one after the other. They are counted multiplied out: as one weight for each lag,
output and channel, and for each neuron of a clock. So a spike of a population or clock adds one weight to every output. What is
no spike any more is multiplied: traces, sums that are limited (what all channels do together), the last row, and the rows
themselves with a skip connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sswim.evaluate.counted_layers import Seen, Setting, active_traces, trace_layer
from sswim.evaluate.operations import LayerCosts
from sswim.readout.lags import LagReadout, lag_bins

__all__ = ["LagCounter"]

PARTS = ("last", "one", "lags", "heights", "extra", "common", "ahead", "clock")


class LagCounter:
    """Counts what a readout with lags does.

    Parameters
    ----------
    readout : LagReadout
    setting : Setting
    """

    def __init__(self, readout: LagReadout, setting: Setting) -> None:
        self.readout, self.setting = readout, setting
        self.bins = len(lag_bins(readout.sizes.window)) - 1
        some = readout.singles > 0 and readout.outputs == 1
        self.chosen = readout.population.spread_out(readout.singles) if some else torch.zeros(0, dtype=torch.long)
        # Sums of the samples of each group (groups,): spikes of populations, those of single neurons among them, of covariates'
        # populations, of those that are known ahead, and traces that are not 0.
        names = ("relative", "absolute", "own", "levels", "covariates", "ahead", "own ahead", "traces")
        self._sums = {name: torch.zeros(readout.sizes.groups, dtype=torch.float64) for name in names}
        # Parts without any weight are not there, for each group.
        self.used = {name: (readout.weights[:, readout.parts[name]] != 0).flatten(1).any(dim=1).cpu() for name in PARTS}
        self.used["heights"] &= readout.heights

    def _add(self, name: str, counts: Tensor) -> None:
        """Add counts (batch,) of samples, or (sets,) of whole sets, to those of their groups."""
        groups = self.readout.sizes.groups
        each = counts.double().cpu().unflatten(0, (-1, groups)) if name not in ("ahead", "own ahead") else counts[:, None].cpu()
        self._sums[name] += each.double().sum(dim=0)

    def _single(self, signal: Tensor) -> Tensor:
        """Return how many spikes of the single neurons a signal (batch, ...) causes."""
        thresholds = self.readout.population.thresholds[self.chosen].to(signal)
        fires = (signal[..., None] >= thresholds) ^ (thresholds < 0)
        return fires.flatten(1).sum(dim=1)

    def add(self, seen: Seen, spikes: Sequence[Tensor]) -> None:
        """Count samples."""
        readout, population = self.readout, self.readout.population
        assert seen.rows is not None and isinstance(seen.inputs, Tensor)
        rows = seen.rows.to(readout.weights).transpose(1, 2)  # (batch, outputs, window)
        signals = {"relative": readout.deviations(rows)} | ({"absolute": rows} if readout.heights else {})
        for name, single in (("relative", "own"), ("absolute", "levels")):
            if name in signals:
                few = self._single(signals[name])
                self._add(single, few)
                self._add(name, few if readout.skip else population.spikes(signals[name]).sum(dim=(1, 2)))
        if readout.sizes.covariates and not readout.skip:
            covariates = seen.inputs[:, :, seen.inputs.shape[2] - readout.sizes.covariates :].to(readout.weights)
            self._add("covariates", population.spikes(covariates).sum(dim=(1, 2)))
        if seen.ahead is not None and readout.sizes.known:
            known = seen.ahead[:, : readout.sizes.known * readout.horizon].to(readout.weights)
            known = known.unflatten(1, (-1, readout.horizon))
            own = self._single(known)
            self._add("own ahead", own)
            self._add("ahead", own * 0 if readout.skip else population.spikes(known).sum(dim=(1, 2)))
        self._add("traces", active_traces([a.to(readout.weights) for a in spikes], readout.constants).sum(dim=0))

    def _mean(self, name: str, samples: int, part: str | None = None) -> float:
        """Return the mean of a count over samples; only those whose group reads a `part` count, if one is named."""
        counts = self._sums[name] if part is None else self._sums[name] * self.used[part]
        return float(counts.sum()) / samples

    def _part(self, name: str) -> float:
        """Return the part of the groups that read something."""
        return float(self.used[name].double().mean())

    def before(self, samples: int) -> list[LayerCosts]:
        """Return the populations. With their inputs' mean and deviation: an addition and a product for each and row."""
        readout, sizes, share = self.readout, self.readout.sizes, self.setting.share
        each = len(self.chosen) if readout.skip else readout.population.neurons
        both, groups = sizes.outputs * (1 + readout.heights), sizes.groups
        covariates = 0 if readout.skip else sizes.covariates
        # What is known ahead is the same for all groups: one population serves them all, and so do clocks.
        updates = each * ((both + covariates) * sizes.window + sizes.known * sizes.horizon / groups)
        clocks = self.setting.clocks if bool(self.used["clock"].any()) else ()
        normalized = 2 * sizes.window * sizes.outputs
        spikes = sum(self._mean(name, samples) for name in ("relative", "absolute", "covariates"))
        ahead = (self._mean("ahead", samples) + readout.skip * self._mean("own ahead", samples)) / groups
        return [
            LayerCosts(
                "populations",
                "encoder",
                each * (both + covariates + sizes.known) + sum(clocks),
                parameters=each,
                state=sizes.window * (sizes.outputs + sizes.covariates),
                spikes=(spikes + ahead + len(clocks) / groups) / share,
                updates=updates / share,
                neuron_accumulates=(updates + normalized) / share,
                neuron_multiply_accumulates=normalized / share,
                bits=self.setting.bits,
                word=self.setting.word,
            )
        ]

    def after(self, samples: int, sent: Sequence[Tensor]) -> list[LayerCosts]:
        """Return the traces of the sampled neurons, and the outputs."""
        readout, sizes, share = self.readout, self.readout.sizes, self.setting.share
        spikes, neurons = float(sum(s.sum() for s in sent)), sum(len(s) for s in sent)
        reads_traces = bool(self.used["extra"].any())
        traces = [trace_layer(neurons, readout.constants, sizes.window, spikes, self.setting)] if reads_traces else []
        rows = sizes.horizon * sizes.outputs
        weights, dense_sources, values = self._weights(), self._sources(), self._values(samples)
        arrived = 0.0 if readout.skip else self._mean("relative", samples, "lags") + self._mean("absolute", samples, "heights")
        arrived += sum(self._mean(name, samples, "extra") for name in ("own", "levels", "covariates"))
        arrived += sum(self._mean(name, samples, "ahead") for name in ("ahead", "own ahead"))
        arrived += self._part("clock") * len(self.setting.clocks)
        binned = 0.0
        if bool(self.used["common"].any()) and not readout.skip:  # each channel's spikes are added up in bins of lags
            binned = self._mean("relative", samples) + self._mean("absolute", samples)
        output = LayerCosts(
            "output",
            "readout",
            rows,
            weights=weights,
            parameters=weights + rows * int(self.used["one"].sum()),
            state=3 * rows + (self.bins + 1) * bool(self.used["common"].any()),
            accumulates=(rows * arrived + binned) / share,
            multiply_accumulates=rows * values / share,
            dense=rows * (dense_sources + self._values(None)) / share,
            updates=rows / share,
            # Three sums for each output: in units of the window's deviation, those that shrink where it rests, and the others.
            neuron_accumulates=3 * rows / share,
            neuron_multiply_accumulates=3 * rows / share,
            bits=self.setting.bits,
            word=self.setting.word,
        )
        return [*traces, output]

    def _values(self, samples: int | None) -> float:
        """Return how many values, no spikes, an output reads on average: those that are not 0, or all if `samples` is None."""
        readout, sizes = self.readout, self.readout.sizes
        traces = sizes.traces * self._part("extra") if samples is None else self._mean("traces", samples, "extra")
        values = self._part("last") * sizes.outputs + traces
        values += self._part("common") * sizes.groups * (self.bins + 1)
        if readout.skip:
            values += self._part("lags") * sizes.window * sizes.outputs + self._part("heights") * sizes.outputs
            values += self._part("extra") * sizes.covariates * self.bins + self._part("ahead") * sizes.known * sizes.horizon
        return values

    def _sources(self) -> float:
        """Return how many spikes would arrive if every neuron fired at every step."""
        readout, sizes = self.readout, self.readout.sizes
        each = 0 if readout.skip else readout.population.neurons
        window, few = sizes.window * sizes.outputs, len(self.chosen) * sizes.window * (1 + readout.heights)
        sources = each * window * (self._part("lags") + readout.heights * self._part("heights"))
        sources += self._part("extra") * (few + each * sizes.covariates * sizes.window)
        sources += self._part("clock") * sum(self.setting.clocks)
        return sources + self._part("ahead") * (each + len(self.chosen)) * sizes.known * sizes.horizon

    def _weights(self) -> int:
        """Return the number of weights of all groups, multiplied out; a population's neurons share theirs."""
        readout, sizes = self.readout, self.readout.sizes
        counts = {
            "last": sizes.outputs,
            "lags": sizes.window * sizes.outputs,
            "heights": sizes.outputs,
            "extra": len(readout.extra_mean),
            "common": sizes.groups * (self.bins + 1),
            "ahead": readout.codes,
            "clock": sum(self.setting.clocks),
        }
        rows = sizes.horizon * sizes.outputs
        return sum(rows * count * int(self.used[name].sum()) for name, count in counts.items())
