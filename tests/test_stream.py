"""Streams: the same as simulating from the first row, whatever the chunks."""

import pytest
import torch

from sswim.network import SpikingNetwork, Stream

ROWS, BATCH, WINDOW = 60, 3, 30


def network(hidden=(7,), kernel="morlet", inputs=2, window=ROWS, dtype=torch.float64):
    net = SpikingNetwork(inputs, 1, window=window, horizon=1, start=window - 1, hidden=hidden, kernel=kernel, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in net.layers:
            layer.weights.normal_(0, 1.5, generator=generator)
            layer.biases.uniform_(0, 0.6, generator=generator)
            layer.delays.uniform_(0, 6, generator=generator)
            layer.supports.uniform_(1, 8, generator=generator)
            layer.refractory_supports.uniform_(1, 4, generator=generator)
    return net


def literal_traces(net, x, constants):
    """Traces of all layers from the simulator of whole windows: (features, rows, batch)."""
    spikes = torch.cat(net.simulate(x).spikes, dim=2)  # (B, T, N)
    t = torch.arange(spikes.shape[1], dtype=torch.float64)
    lag = t[:, None] - t
    kept = [torch.where(lag >= 0, torch.exp(-lag.clamp_min(0) / c), 0.0) for c in constants]
    return torch.stack([torch.einsum("ts,bsn->ntb", K, spikes.double()) for K in kept], dim=1).flatten(0, 1)


@pytest.mark.parametrize("kernel", ["morlet", "hat", "exponential", "alpha"])
@pytest.mark.parametrize("hidden", [(7,), (6, 5)])
def test_equals_the_windowed_simulation_from_the_same_first_row(kernel, hidden, generator):
    net = network(hidden, kernel)
    x = torch.randn(BATCH, ROWS, 2, generator=generator, dtype=torch.float64)
    expected = literal_traces(net, x, (1.5, 6.0))
    assert 0.02 < float((torch.cat(net.simulate(x).spikes, dim=2)).mean()) < 0.5
    stream = Stream(net.layers, (1.5, 6.0), reach=ROWS, batch=BATCH)
    torch.testing.assert_close(stream.advance(x.permute(2, 1, 0)), expected)
    assert stream.features == len(expected)


@pytest.mark.parametrize("chunks", [[1] * ROWS, [2, 3, 1, 30, 24], [59, 1]])
@pytest.mark.parametrize("hidden", [(7,), (6, 5)])
def test_chunks_change_nothing(chunks, hidden, generator):
    net = network(hidden)
    rows = torch.randn(2, ROWS, BATCH, generator=generator, dtype=torch.float64)
    whole = Stream(net.layers, (1.5, 6.0), reach=ROWS, batch=BATCH).advance(rows)
    stream = Stream(net.layers, (1.5, 6.0), reach=ROWS, batch=BATCH)
    torch.testing.assert_close(torch.cat([stream.advance(part) for part in rows.split(chunks, dim=1)], dim=1), whole)


def test_a_window_forgets_what_lies_before_it(generator):
    """The stated boundary effect: after the kernels' reach plus some time constants nothing of the past is left."""
    net = network()
    x = torch.randn(BATCH, ROWS, 2, generator=generator, dtype=torch.float64)
    whole = Stream(net.layers, (1.5,), reach=ROWS, batch=BATCH).advance(x.permute(2, 1, 0))[:, -1]
    late = Stream(net.layers, (1.5,), reach=ROWS, batch=BATCH).advance(x[:, -ROWS + 15 :].permute(2, 1, 0))[:, -1]
    assert (whole - late).abs().max() < 1e-6  # reach 14, refractoriness 4, then 27 steps of decay
    short = Stream(net.layers, (1.5,), reach=ROWS, batch=BATCH).advance(x[:, -8:].permute(2, 1, 0))[:, -1]
    assert (whole - short).abs().max() > 1e-3


def test_without_refractoriness(generator):
    net = network()
    with torch.no_grad():
        net.layers[0].refractory_supports.fill_(0.5)  # over before the next step
    x = torch.randn(BATCH, ROWS, 2, generator=generator, dtype=torch.float64)
    stream = Stream(net.layers, (2.0,), reach=ROWS, batch=BATCH)
    parts = [stream.advance(part) for part in x.permute(2, 1, 0).split(7, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), literal_traces(net, x, (2.0,)))
