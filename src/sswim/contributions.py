r"""What a forecast is made of: how much each source of a direct readout adds to it.

The output of a readout with lags is linear in its features, so a forecast is a sum over the sources that features come from.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sswim.data.future import Ahead, Future
from sswim.data.series import SeriesLike, is_several
from sswim.data.times import continue_index
from sswim.forecasts import ForecastModel
from sswim.readout.lags import Features, LagReadout

__all__ = ["SOURCES", "contributions", "contributions_of"]

SOURCES = (
    "level",
    "last value",
    "own lags",
    "single neurons",
    "sampled neurons",
    "covariates",
    "known ahead",
    "calendar",
    "other channels",
    "constant",
    "floor",
)


def contributions(model: ForecastModel, X: SeriesLike, future: Future = None) -> pd.DataFrame | list[pd.DataFrame]:
    """Return how much each source adds to the forecasts that follow on one or several series, in the data's own units."""
    series, rows, ahead = model.last(X, future)
    tables = contributions_of(model, rows, ahead, [part.indexes[-1] for part in series])
    return tables if is_several(X) else tables[0]


@torch.no_grad()
def contributions_of(
    model: ForecastModel, rows: Sequence[Tensor], ahead: Ahead, indexes: Sequence[pd.Index | None]
) -> list[pd.DataFrame]:
    """Return how much each source adds to the forecasts that follow on rows (rows, columns) with some labels."""
    readout = model.network.readout
    if not isinstance(readout, LagReadout):
        raise ValueError("contributions needs a Forecaster fitted with readout='direct'.")
    samples, encoder = model.last_windows(rows, ahead), model.encoder
    readout = copy.deepcopy(readout).double()
    everything = slice(0, len(samples))
    x = samples.inputs(everything)
    spikes = model.network.hidden_spikes(x, model.network.hidden_filters(steps=model.window))
    seen = readout.look(spikes, model.rows_read(samples, everything, x), samples.ahead(everything))
    moving, last = list(encoder.moving), torch.stack([r[-1, encoder.channels] for r in rows]).numpy()
    span = encoder.span[moving]
    level = seen.level.reshape(len(rows), 1, -1).cpu().numpy() * span + encoder.offset[moving]
    found = {}
    for name, output in _parts(readout, seen).items():
        found[name] = encoder.spread(_by_channel(output, samples.batch, readout.horizon).cpu().numpy() * span)
    found["level"] = found["level"] + encoder.spread(level, last[:, None])  # a channel that rests stays where it is
    total = sum(found.values())
    found["floor"] = np.maximum(total, model.floors(rows)[:, None]) - total
    names = encoder.channels if model.columns is None else [model.columns[c] for c in encoder.channels]
    tables = []
    for n, labels in enumerate(indexes):
        index = pd.RangeIndex(model.horizon) if labels is None else continue_index(labels, model.horizon, model.pace)
        both = pd.MultiIndex.from_product([index, names], names=["row", "channel"])
        tables.append(pd.DataFrame({name: found[name][n].ravel() for name in SOURCES}, index=both))
    return tables


def _by_channel(output: Tensor, members: int, horizon: int) -> Tensor:
    """Bring outputs (batch, horizon * outputs) to the shape (series, horizon, channels)."""
    each = output.unflatten(0, (-1, members)).unflatten(2, (horizon, -1))  # (n, members, H, outputs)
    return each.transpose(1, 2).flatten(2)


def _parts(readout: LagReadout, seen: Features) -> dict[str, Tensor]:
    """Return what each source adds to the outputs, (batch, horizon * outputs)."""
    reduced, at = readout.reduced(seen), readout.parts

    def output(name: str, values: Tensor | None = None) -> Tensor:
        """Return what features of one kind add, or other values in their place."""
        only = torch.zeros_like(reduced)
        only[:, at[name]] = reduced[:, at[name]] if values is None else values
        return readout(only)

    timed = bool(seen.clock.shape[1])
    own = {name: _own(readout, reduced, name) for name in ("last", "lags", "heights")}
    others = sum((output(name) - mine for name, mine in own.items()), torch.zeros_like(own["last"]))
    found = {"level": own["heights"], "last value": own["last"], "own lags": own["lags"], "constant": output("one")}
    first, last = readout.covariates.start, readout.covariates.stop
    centred = (seen.extra - readout.extra_mean) * seen.moving
    for name, inside in (
        ("single neurons", slice(0, first)),
        ("covariates", slice(first, last)),
        ("sampled neurons", slice(last, None)),
    ):
        found[name] = output("extra", centred[:, inside] @ readout.extra_directions[inside])
    if readout.sizes.common:
        groups = readout.sizes.groups
        together = (seen.together - readout.common_mean).unflatten(1, (groups, -1))  # (sets, groups, bins + 1)
        each = together[:, :, :, None] * readout.common_directions.unflatten(0, (groups, -1))
        lags, height = (v.sum(dim=2).flatten(0, 1) * seen.moving for v in (each[:, :, :-1], each[:, :, -1:]))
        lags, height = output("common", lags), output("common", height)
        found["own lags"], found["level"] = found["own lags"] + lags, found["level"] + height
        others = others + output("common") - lags - height
    found["other channels"] = others
    found["known ahead"], found["calendar"] = output("ahead"), output("clock") if timed else torch.zeros_like(others)
    return found


def _own(readout: LagReadout, reduced: Tensor, name: str) -> Tensor:
    """Return what each channel's own features of one kind add to its own outputs, (batch, horizon * outputs)."""
    outputs, at = readout.outputs, readout.parts[name]
    each, found = (at.stop - at.start) // outputs, torch.zeros(len(reduced), readout.horizon * outputs).to(reduced)
    for c in range(outputs):
        only, mine = torch.zeros_like(reduced), slice(at.start + c * each, at.start + (c + 1) * each)
        only[:, mine] = reduced[:, mine]
        found[:, c::outputs] = readout(only)[:, c::outputs]
    return found
