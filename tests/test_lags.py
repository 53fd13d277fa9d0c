"""Populations, and the readout that reads a window's spikes through lags: fast paths and their literal versions."""

import copy

import numpy as np
import pytest
import torch

from sswim.network import Population, SpikingNetwork
from sswim.readout import LagReadout
from sswim.readout.lags import LIMIT, LagSizes, lag_bins

WINDOW, HORIZON, GROUPS = 20, 3, 2


@pytest.mark.parametrize("neurons", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_are_those_of_the_simulated_layer(neurons, dtype, generator):
    signal = 3 * torch.randn(1, 40, 7, generator=generator, dtype=dtype)
    population = Population(neurons)
    layer = population.layer().to(dtype)
    spikes = layer.fire(layer.potentials(signal, layer.filters(40, 40)))  # (K, 40, 7)
    assert torch.equal(population.fires(signal[0]), spikes.permute(1, 2, 0).bool())
    assert torch.equal(population.spikes(signal[0]), spikes.sum(dim=0))
    # What is above the thresholds from 0 on, minus what is below the others, is all that the spikes tell.
    above = population.thresholds >= 0
    told = spikes[above].sum(dim=0) - spikes[~above].sum(dim=0)
    assert torch.equal(population.counts(signal[0]), told + neurons // 2)
    torch.testing.assert_close(population.rounded(signal[0]), (told + neurons // 2 - neurons / 2) * population.distance)
    assert torch.equal(population.thresholds.sort().values, population.thresholds)
    inside = signal.abs() < 4
    assert float((population.rounded(signal) - signal)[inside].abs().max()) <= population.distance / 2 + 1e-6


@pytest.mark.parametrize("neurons", [0, -1, 2.5])
def test_a_population_has_neurons(neurons):
    with pytest.raises((ValueError, TypeError), match="population"):
        Population(neurons)


@pytest.mark.parametrize("window", [1, 2, 12, 100, 336])
def test_bins_of_lags_cover_the_window_and_grow(window):
    ends = lag_bins(window)
    widths = np.diff(ends)
    assert ends[0] == 0 and ends[-1] == window and (widths > 0).all()
    assert (np.diff(widths[:-1]) >= 0).all(), "fine near the origin, coarse further back; only the last bin is cut"


def readout(skip=False, covariates=1, traces=6, outputs=1, groups=GROUPS, common=5, window=WINDOW, singles=3, absolute=False):
    sizes = LagSizes(window, HORIZON, outputs, groups, covariates, traces, window, 9, common)
    made = LagReadout(
        sizes,
        constants=(1.0, 4.0),
        population=16,
        singles=singles,
        skip=skip,
        absolute=absolute,
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in (*made.parameters(), *(b for name, b in made.named_buffers() if not name.startswith("_"))):
            value.copy_(torch.rand(value.shape, generator=generator, dtype=torch.float64) + 0.1)
        for found in (made.height_range, made.extra_range, made.common_range):
            found[0] -= 1.2  # from -1.1 to -0.1
    return made


def literal(made, rows, covariates, traces):
    """Return the reduced features of every sample by loops over neurons, lags and bins, from the spikes themselves."""
    thresholds, K = made.population.thresholds.numpy(), made.population.neurons
    chosen = made.population.spread_out(made.singles).numpy()
    ends, found, seen = lag_bins(made.sizes.window), [], []

    def in_bins(values):  # mean of values (window,) in each bin of lags; the last row has lag 0
        return [np.mean([values[len(values) - 1 - lag] for lag in range(a, b)]) for a, b in zip(ends, ends[1:], strict=False)]

    for i, x in enumerate(rows[:, 0].numpy()):
        mean, spread = x.mean(), x.std()
        relative = [[float((v - mean) / spread >= t) for v in x] for t in thresholds]  # spikes (K, W)
        absolute = [[float(v >= t) for v in x] for t in thresholds]
        lags = (np.sum(relative, axis=0) - K / 2) * 8 / K * spread
        height = ((np.sum(absolute, axis=0) - K / 2) * 8 / K).mean()
        if made.skip:
            lags, height = x - mean, np.clip(x, -8, 8).mean()
        extra = []
        for b in range(len(ends) - 1):
            extra += [(in_bins(relative[k])[b] - 0.5) * spread for k in chosen]
        for b in range(len(ends) - 1):
            extra += [in_bins(absolute[k])[b] for k in chosen]
        for c in covariates[i].numpy():
            values = c if made.skip else (np.array([sum(v >= t for t in thresholds) for v in c]) - K / 2) * 8 / K
            extra += in_bins(values)
        extra += traces[i].tolist()
        extra = np.clip(extra, *made.extra_range.numpy())
        height = np.clip(height, *made.height_range[:, i % made.sizes.groups].numpy())
        moving = min(1.0, spread / float(made.spreads[i % made.sizes.groups, 0])) ** 2
        seen.append(np.append(np.clip(in_bins(lags), -LIMIT, LIMIT), height))
        few = (extra - made.extra_mean.numpy()) @ made.extra_directions.numpy()
        parts = [[x[-1] - mean], [moving], lags @ made.lag_directions.numpy(), [height * moving], few * moving]
        found.append((np.concatenate(parts), moving))
    groups = made.sizes.groups
    for first in range(0, len(found), groups):
        together = np.clip(np.concatenate(seen[first : first + groups]), *made.common_range.numpy())
        common = (together - made.common_mean.numpy()) @ made.common_directions.numpy()
        for i in range(first, first + groups):
            found[i] = np.concatenate([found[i][0], common * found[i][1]])
    return np.stack(found)


@pytest.mark.parametrize("skip", [True, False])
def test_features_are_those_of_the_spikes_one_by_one(skip, generator):
    made = readout(skip)
    rows = torch.randn(6, 1, WINDOW, generator=generator, dtype=torch.float64).cumsum(dim=2)
    rows[2] *= 0.01  # hardly moves
    rows[3] *= 50  # far beyond its range
    covariates = torch.randn(6, 1, WINDOW, generator=generator, dtype=torch.float64)
    traces = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    reduced = made.reduced(made.features(rows, covariates, traces))
    free = copy.deepcopy(made)
    free.unbound()
    changed = (free.reduced(free.features(rows, covariates, traces)) != reduced).any(dim=0)
    for name in ("heights", "extra", "common"):
        assert bool(changed[made.parts[name]].all()), "a range that cuts nothing off would test nothing"
    assert not bool(changed[made.parts["lags"]].any())
    np.testing.assert_allclose(reduced.detach().numpy(), literal(made, rows, covariates, traces), rtol=1e-9, atol=1e-9)
    assert reduced.shape[1] == made.parts["common"].stop == made.weights.shape[1]


def test_outputs_are_each_groups_own_weights_times_features(generator):
    made = readout()
    features = torch.randn(6, made.weights.shape[1], generator=generator, dtype=torch.float64)
    expected = torch.stack([f @ made.weights[i % GROUPS] for i, f in enumerate(features)])
    torch.testing.assert_close(made(features), expected)
    with pytest.raises(ValueError, match="one member of each of 2 groups"):
        made(features[:5])


def test_population_spikes_are_counted(generator):
    rows = torch.randn(4, 1, WINDOW, generator=generator, dtype=torch.float64).cumsum(dim=2)
    made = readout()
    z = (rows - rows.mean(dim=2, keepdim=True)) / rows.std(dim=2, keepdim=True, correction=0)
    thresholds = made.population.thresholds
    below = thresholds < 0

    def fire(v, some=slice(None)):  # from a threshold on, or below it
        return torch.where(below[some], v[..., None] < thresholds[some], v[..., None] >= thresholds[some]).sum(dim=(1, 2, 3))

    relative, absolute = fire(z), fire(rows)
    assert torch.equal(made.spikes(rows), (relative + absolute).double())
    assert torch.equal(made.raster(rows).sum(dim=(1, 2, 3)), relative)
    chosen = made.population.spread_out(3)
    few = fire(z, chosen) + fire(rows, chosen)
    assert torch.equal(readout(skip=True).spikes(rows), few.double()), "with a skip, only single neurons are read"


def test_lags_move_and_stretch_with_the_window(generator):
    """The last row and the lags relative to the mean are equivariant: forecasts follow a channel that leaves its range."""
    made = readout(traces=0, covariates=0, singles=0, common=0)
    rows = torch.randn(4, 1, WINDOW, generator=generator, dtype=torch.float64).cumsum(dim=2)
    none = torch.zeros(4, 0, WINDOW, dtype=torch.float64), torch.zeros(4, 0, dtype=torch.float64)
    plain, moved = (made.features(r, *none) for r in (rows, 7 * rows + 1000))
    torch.testing.assert_close(moved.lags, 7 * plain.lags, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(moved.last, 7 * plain.last, rtol=1e-9, atol=1e-9)
    assert float(moved.heights.abs().max()) <= 4


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9, -3e-7])
def test_a_window_that_rests_has_no_features(value):
    made = readout()
    rows = torch.full((2, 1, WINDOW), value, dtype=torch.float64)
    seen = made.features(rows, torch.ones(2, 1, WINDOW, dtype=torch.float64), torch.ones(2, 6, dtype=torch.float64))
    assert float(made.reduced(seen).abs().max()) == 0.0
    torch.testing.assert_close(seen.level, rows[:, :, 0])


@pytest.mark.parametrize("absolute", [True, False])
def test_the_network_reads_its_spikes_and_the_rows(absolute, generator):
    made = readout(covariates=1, traces=4 * 2, absolute=absolute)
    network = SpikingNetwork(2, 1, window=WINDOW, horizon=HORIZON, hidden=(4,), readout=made, dtype=torch.float64)
    with torch.no_grad():
        network.layers[0].weights.normal_(0, 1, generator=generator)
    x = torch.randn(4, WINDOW, 2, generator=generator, dtype=torch.float64)
    past = torch.randn(4, WINDOW, 1, generator=generator, dtype=torch.float64)
    traces = network.trace_reader(made.constants)(x).T
    seen = made.features(past.transpose(1, 2), x[:, :, 1:].transpose(1, 2), traces)
    y = made(made.reduced(seen)).view(4, HORIZON, 1) + (seen.level[:, None] if absolute else 0)
    torch.testing.assert_close(network.predictor()(x, past), y)
    torch.testing.assert_close(network(x, past), y)  # with gradients
