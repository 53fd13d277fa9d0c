"""Events at exact times."""

import numpy as np
import pytest
import torch

from sswim import Classifier, Counts, Spikes, SpikingNetwork, Voltage, initialize
from sswim.data import ExactEvents, as_events
from sswim.network.events import join_events, project_events
from sswim.network.exact import event_response, filter_events
from sswim.network.kernels import KERNELS, FunctionKernel
from sswim.network.pieces import kernel_pieces


def streams(samples=4, channels=3, window=20, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for n in range(samples):
        count = 0 if n == 1 else int(rng.integers(5, 30))  # one is empty
        found.append((rng.uniform(0, window - 1e-3, count), rng.integers(0, channels, count)))
    found[0][0][:2] = [3.0, 7.0]  # on a step
    return found


def literal(kernel, delays, supports, weights, pairs, steps):
    v = torch.zeros(len(weights), steps, len(pairs), dtype=weights.dtype)
    for b, (times, channels) in enumerate(pairs):
        for t_e, c in zip(times, channels, strict=True):
            for t in range(steps):
                if t >= t_e:
                    v[:, t, b] += weights[:, c] * kernel((t - t_e - delays) / supports)
    return v


@pytest.fixture(params=[0, 10**9], ids=["sparse", "full"])
def sums(request, monkeypatch):
    """Both ways to sum up events."""
    monkeypatch.setattr("sswim.network.exact.FULL", request.param)


@pytest.mark.parametrize("name", ["hat", "morlet", "exponential", "alpha"])
@pytest.mark.parametrize("chunk", [10, 10**6])
def test_response_is_the_kernel_at_exact_lags(name, chunk, generator, monkeypatch, sums):
    monkeypatch.setattr("sswim.network.exact.CHUNK", chunk)
    pairs, n = streams(), 5
    delays = 6 * torch.rand(n, generator=generator, dtype=torch.float64)
    supports = 1 + 5 * torch.rand(n, generator=generator, dtype=torch.float64)
    weights = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    batch = as_events(pairs, inputs=3, window=20).batch(torch.arange(4))
    expected = literal(KERNELS[name], delays, supports, weights, pairs, 25)
    torch.testing.assert_close(event_response(KERNELS[name], delays, supports, weights, batch, 25), expected)


@pytest.mark.parametrize("name", ["hat", "morlet", "exponential", "alpha"])
@pytest.mark.parametrize("chunk", [40, 10**6])
def test_channels_are_filtered_at_exact_lags(name, chunk, generator, monkeypatch):
    monkeypatch.setattr("sswim.network.exact.CHUNK", chunk)
    pairs = streams()
    delays = 6 * torch.rand(4, generator=generator, dtype=torch.float64)
    supports = 1 + 5 * torch.rand(4, generator=generator, dtype=torch.float64)
    batch = as_events(pairs, inputs=3, window=20).batch(torch.arange(4))
    found = filter_events(KERNELS[name], delays, supports, batch, 25)
    for n, pair in enumerate(pairs):
        each = [literal(KERNELS[name], delays[n], supports[n], torch.eye(3).double()[c : c + 1], [pair], 25) for c in range(3)]
        torch.testing.assert_close(found[n], torch.cat(each)[:, :, 0].T)


def test_some_samples_of_a_batch_of_events():
    batch = as_events(streams(), inputs=3, window=20).batch(torch.tensor([2, 0, 1, 3]))
    some = batch.take(torch.tensor([3, 0, 3, 2]))  # one twice, one empty
    assert len(some) == 4
    torch.testing.assert_close(some.dense(), batch.dense()[[3, 0, 3, 2]])
    assert len(batch.take(torch.zeros(0, dtype=torch.long)).times) == 0


def ramp(x):
    """Somebody's own kernel, about which nothing is known."""
    return torch.where((x >= 0) & (x <= 1), x, torch.zeros_like(x))


@pytest.mark.parametrize("kernel", [*KERNELS.values(), FunctionKernel(ramp)], ids=[*KERNELS, "own"])
@pytest.mark.parametrize(
    ("delays", "supports"),
    [([0.0, 1.0, 4.0], [1.0, 2.0, 5.0]), ([0.2, 0.5, 3.3], [0.3, 0.05, 0.7]), ([40.0, 30.0, 0.0], [2.0, 60.0, 1e-3])],
    ids=["breaks on steps", "narrow", "out of reach"],
)
def test_breaks_anywhere(kernel, delays, supports, generator, sums):
    pairs = streams(seed=1)
    batch = as_events(pairs, inputs=3, window=20).batch(torch.arange(4))
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        tau, sigma = torch.tensor(delays, dtype=dtype), torch.tensor(supports, dtype=dtype)
        w = torch.randn(3, 3, generator=generator, dtype=dtype)
        found = event_response(kernel, tau, sigma, w, batch, 22)
        expected = literal(kernel, tau.double(), sigma.double(), w.double(), pairs, 22)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_breaks_in_every_part_of_a_step(name, dtype, generator, monkeypatch, sums):
    for size, value in (("NEURONS", 16), ("SAMPLES", 3), ("BLOCK", 8)):
        monkeypatch.setattr(f"sswim.network.exact.{size}", value)
    pairs, n = streams(seed=2, window=40), 70
    pairs[0][0][:2] += 0.01  # rounding decides about a lag right at a break
    batch = as_events(pairs, inputs=3, window=40).batch(torch.arange(4))
    delays = torch.linspace(0, 3, n, dtype=dtype)
    supports = torch.linspace(1, 12, n, dtype=dtype)[torch.randperm(n, generator=generator)]
    w = torch.randn(n, 3, generator=generator, dtype=dtype)
    found = event_response(KERNELS[name], delays, supports, w, batch, 43)
    expected = literal(KERNELS[name], delays.double(), supports.double(), w.double(), pairs, 43)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("dtype", "terms"), [(torch.float32, 10), (torch.float64, 18)])
def test_smooth_pieces_spare_most_evaluations_of_the_kernel(name, dtype, terms, generator):
    delays, supports = (torch.rand(50, generator=generator, dtype=dtype) for _ in range(2))
    pieces = kernel_pieces(KERNELS[name], 30 * delays, 3 + 22 * supports, 60, 32)
    breaks = len(KERNELS[name].breaks)
    assert pieces.terms <= terms
    assert len(pieces.cells) <= 50 * breaks + 5
    assert pieces.single.sum() <= 1.2 * 50 * breaks


def test_threads_do_not_change_a_response(generator, sums):
    batch = as_events(streams(70, 5, 30), inputs=5, window=30).batch(torch.arange(70))
    delays, supports = 9 * torch.rand(300, generator=generator), 1 + 5 * torch.rand(300, generator=generator)
    w = torch.randn(300, 5, generator=generator)
    usual, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(event_response(KERNELS["morlet"], delays, supports, w, batch, 33))
    torch.set_num_threads(usual)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_equals_a_hundred_times_finer_grid(generator):
    pairs, n, fine = streams(), 5, 100
    delays = 6 * torch.rand(n, generator=generator, dtype=torch.float64)
    supports = 2 + 5 * torch.rand(n, generator=generator, dtype=torch.float64)
    weights = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    found = event_response(KERNELS["hat"], delays, supports, weights, as_events(pairs).batch(torch.arange(4)), 20)
    binned = [(np.round(t * fine) / fine, c) for t, c in pairs]
    other = literal(KERNELS["hat"], delays, supports, weights, binned, 20)
    assert float((found - other).abs().max()) < 0.05 and float((found - other).abs().mean()) < 0.005
    coarse = literal(KERNELS["hat"], delays, supports, weights, [(np.round(t), c) for t, c in pairs], 20)
    assert float((found - coarse).abs().mean()) > 10 * float((found - other).abs().mean())


@pytest.mark.parametrize("window", [20, 14])
def test_whole_events_are_projected_as_their_dense_counts(window, generator):
    exact = as_events(streams(), inputs=3, window=window)
    exact.exact = False
    batch = exact.batch(torch.tensor([2, 0, 3, 0]))
    assert batch.whole and torch.equal(batch.times, batch.times.round()) and batch.times.max() < window
    w = torch.randn(5, 3, generator=generator)
    torch.testing.assert_close(project_events(w, batch), torch.einsum("nd,btd->ntb", w, batch.dense()))
    net = SpikingNetwork(inputs=3, outputs=2, window=window, horizon=4, hidden=(6, 4))
    initialize(net, batch.dense(), random_state=0)
    for events, plain in zip(net.simulate(batch).spikes, net.simulate(batch.dense()).spikes, strict=True):
        assert torch.equal(events, plain) and events.sum() > 0
    torch.testing.assert_close(net(batch), net(batch.dense()))


def test_whole_events_on_so_many_steps_and_channels_that_32_bits_do_not_number_them(generator):
    window, inputs = 2**20, 2**10
    pairs = [(np.array([3, 3, window - 1]), np.array([5, 1023, 7])), (np.array([window - 2.0]), np.array([0]))]
    events = as_events(pairs, inputs=inputs, window=window)
    events.exact = False
    w = torch.randn(2, inputs, generator=generator)
    found, expected = project_events(w, events.batch(torch.tensor([0, 1, 0]))), torch.zeros(2, window, 3)
    expected[:, 3, [0, 2]] = w[:, 5, None] + w[:, 1023, None]
    expected[:, -1, [0, 2]] = w[:, 7, None]
    expected[:, -2, 1] = w[:, 0]
    torch.testing.assert_close(found, expected)


def test_batches_keep_samples_apart_and_drop_what_is_too_late():
    pairs = streams()
    events = as_events(pairs, inputs=3, window=10)
    batch = events.batch(torch.tensor([3, 0]))
    for place, number in ((0, 3), (1, 0)):
        times, channels = pairs[number]
        here = batch.samples == place
        assert batch.times[here].tolist() == times[times < 10].tolist()
        assert batch.channels[here].tolist() == channels[times < 10].tolist()
    dense = batch.dense()
    assert dense.shape == (2, 10, 3) and float(dense.sum()) == len(batch.times)
    assert events.batch(torch.tensor([1])).dense().sum() == 0


@pytest.mark.parametrize("exact", [True, False])
def test_joined_batches_hold_the_samples_of_all_in_order(exact):
    events = as_events(streams(), inputs=3, window=20)
    events.exact = exact
    joined = join_events([events.batch(torch.tensor(index)) for index in ([2, 0], [1], [3])])
    assert len(joined) == 4 and joined.whole is not exact
    assert torch.equal(joined.dense(), events.batch(torch.tensor([2, 0, 1, 3])).dense())


def test_structured_arrays_as_cameras_and_tonic_have_them():
    kind = np.dtype([("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "i2")])
    sample = np.array([(0, 0, 0, 0), (2, 1, 1500, 1), (1, 0, 3000, 0)], dtype=kind)
    events = as_events([sample], scale=1e-3)
    assert events.inputs == 2 * 2 * 3 - 0 and events.window == 4
    batch = events.batch(torch.tensor([0]))
    assert batch.channels.tolist() == [0, (1 * 2 + 1) * 3 + 2, 1] and batch.times.tolist() == [0.0, 1.5, 3.0]
    spoken = np.array([(0.1, 4), (0.2, 1)], dtype=[("t", "f4"), ("x", "i4")])
    assert as_events([spoken], scale=100).batch(torch.tensor([0])).channels.tolist() == [4, 1]


@pytest.mark.parametrize(
    "X, options, message",
    [
        ([], {}, "at least one sample of events"),
        ([([0.0, -1.0], [0, 0])], {}, "times of sample 0 must be finite and >= 0"),
        ([([0.0], [0]), ([np.nan], [0])], {}, "times of sample 1 must be finite"),
        ([([0.0], [-1])], {}, "channels of sample 0 must be whole numbers >= 0"),
        ([([0.0], [0.5])], {}, "channels of sample 0 must be whole numbers"),
        ([([0.0, 1.0], [0])], {}, "sample 0 has 2 times but 1 channels"),
        ([3], {}, r"sample 0 must be a pair \(times, channels\)"),
        ([([0.0], [5])], {"inputs": 3}, "channel 5 is out of range: there are 3 channels"),
        ([np.zeros(2, dtype=[("x", "i4")])], {}, "must have the fields 't' and 'x'"),
        ([([0.0], [0])], {"scale": 0.0}, "scale must be a finite number > 0"),
    ],
)
def test_bad_events(X, options, message):
    with pytest.raises(ValueError, match=message):
        as_events(X, **options)


def spoken(count=160, seed=0):
    """Two classes: channels fire one after the other, upwards or downwards, at jittered times; one sample is silent."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    X = []
    for label in y:
        channels = np.arange(8) if label else np.arange(8)[::-1]
        X.append((rng.uniform(0, 0.03) + 0.02 * np.arange(8) + rng.uniform(0, 0.01, 8), channels.copy()))
    X[3] = (np.zeros(0), np.zeros(0, dtype=int))
    return X, np.array(["down", "up"])[y]


@pytest.mark.parametrize("readout", [Counts(), Voltage(horizon=5), Spikes(horizon=5)], ids=["direct", "voltage", "spikes"])
def test_events_are_classified(readout, tmp_path):
    X, y = spoken()
    encoder = ExactEvents(scale=100.0, steps=30)
    model = Classifier(hidden=(40,), readout=readout, encoder=encoder, random_state=0, verbose=0).fit(X[:120], y[:120])
    assert model.score(X[120:], y[120:]) > 0.9
    model.save(tmp_path / "m.sswim")
    loaded = Classifier.load(tmp_path / "m.sswim")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with pytest.raises(ValueError, match="channel 8 is out of range: there are 8 channels"):
        model.predict([([0.1], [8])])
    with pytest.raises(ValueError, match="X must hold events, pairs"):
        model.predict(np.zeros((2, 30, 8)))
    with pytest.raises(ValueError, match=r"sample 1 must be a pair \(times, channels\)"):
        model.predict([([0.1], [0]), 3])
    assert len(model.predict([(np.zeros(0), np.zeros(0)), ([0.1, 99.0], [0, 1])])) == 2, "nothing, and too late"


@pytest.mark.parametrize("readout", [Counts(), Voltage(horizon=5), Spikes(horizon=5)], ids=["direct", "voltage", "spikes"])
def test_most_samples_may_hold_no_event(readout, sums):
    X, y = spoken(60)
    nothing = np.zeros(0), np.zeros(0, dtype=int)
    X = [pair if n % 5 == 0 else nothing for n, pair in enumerate(X)]
    encoder = ExactEvents(scale=100.0, steps=30)
    model = Classifier.paper((20,), readout=readout, encoder=encoder, random_state=0, verbose=0).fit(X, y)
    alone = model.decision_function([nothing])
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(model.decision_function(X)[1], alone[0], rtol=1e-5)


def test_samples_without_any_event_at_all():
    nothing = [(np.zeros(0), np.zeros(0, dtype=int))] * 40
    with pytest.raises(ValueError, match="X: no sample has an event within the 30 steps"):
        Classifier.paper((20,), encoder=ExactEvents(scale=100.0, steps=30), verbose=0).fit(nothing, [0, 1] * 20)


def test_events_are_recognised_and_channels_merged():
    X, y = spoken()
    X = [(100 * t, c) for t, c in X]
    model = Classifier(hidden=(30,), random_state=0, verbose=0).fit(X, y)
    assert isinstance(model.model_.inputs.encoder, ExactEvents) and model.network_.inputs == 8
    merged = Classifier(hidden=(30,), encoder=ExactEvents(merge=3), random_state=0, verbose=0).fit(X, y)
    assert merged.network_.inputs == 3 and merged.score(X, y) > 0.9
    with pytest.raises(ValueError, match="training: gradients need events on whole steps"):
        Classifier(hidden=(30,), training="gradient", verbose=0).fit(X, y)
    with pytest.raises(ValueError, match="X must hold events"):
        model.predict(np.zeros((2, 30, 8)))


@pytest.mark.parametrize("kind", ["lists", "object array"])
def test_whatever_fit_takes_as_events_is_predicted(kind):
    pairs, y = spoken(60)
    X = [[t.tolist(), c.tolist()] for t, c in pairs]
    if kind == "object array":
        X = np.empty(60, dtype=object)
        X[:] = pairs
    encoder = ExactEvents(scale=100.0, steps=30)
    model, same = (Classifier((20,), encoder=encoder, random_state=0, verbose=0).fit(Z, y) for Z in (X, pairs))
    np.testing.assert_array_equal(model.decision_function(X), same.decision_function(pairs))


def test_the_network_takes_events_at_exact_times():
    X, _ = spoken(6)
    events = as_events([(100 * t, c) for t, c in X], inputs=8, window=30)
    model = Classifier(hidden=(20, 10), random_state=0, verbose=0, encoder=ExactEvents(scale=100.0, steps=30)).fit(*spoken(60))
    net, batch = model.network_, events.batch(torch.arange(6))
    layer = net.layers[0]
    v = event_response(layer.kernel, layer.delays, layer.supports, layer.weights, batch, net.steps).detach()
    spikes = layer.fire(v + layer.biases.detach()[:, None, None])
    activity = net.simulate(batch)
    assert torch.equal(activity.spikes[0], spikes.permute(2, 1, 0))
    counts = torch.cat([a.sum(dim=1) for a in activity.spikes], dim=1)
    torch.testing.assert_close(net.trace_reader((float("inf"),))(batch), counts.T)
    with torch.no_grad():
        assert torch.equal(net(batch), activity.output)
    with pytest.raises(TypeError, match="gradients need events on whole steps"):
        net.activity(batch)
    with pytest.raises(ValueError, match=r"events must be on \(window, inputs\) = \(30, 8\), got \(30, 9\)"):
        net.simulate(as_events([([0.0], [8])], window=30).batch(torch.tensor([0])))


def camera(count, seed=0, width=10, height=6):
    """Return samples of a camera's events, and their classes: the left or the right half of the picture."""
    rng = np.random.default_rng(seed)
    samples, labels = [], rng.integers(0, 2, count)
    for label in labels:
        events = np.zeros(30, dtype=[("t", float), ("x", int), ("y", int), ("p", int)])
        events["t"], events["p"] = np.sort(rng.uniform(0, 15, 30)), rng.integers(0, 2, 30)
        events["x"], events["y"] = rng.integers(0, width // 2, 30) + label * (width // 2), rng.integers(0, height, 30)
        samples.append(events)
    return samples, labels


@pytest.mark.parametrize(
    "encoder", ["auto", ExactEvents(merge=2), ExactEvents(inputs=500), ExactEvents(inputs=120), ExactEvents(exact=False)]
)
def test_a_pixel_is_the_same_channel_whatever_other_samples_hold(encoder):
    samples, labels = camera(60)
    model = Classifier((30,), encoder=encoder, random_state=0, verbose=0).fit(samples, labels)
    together = model.decision_function(samples)
    alone = np.concatenate([model.decision_function([sample]) for sample in samples])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-5 * np.abs(together).max())  # float32 sums of other batches
    assert model.score(samples, labels) > 0.9
    outside = samples[0].copy()
    outside["x"] += 40
    with pytest.raises(ValueError, match=r"pixels must lie within \(polarities, rows, columns\) = \(2, 6, 10\), got"):
        model.predict([outside])


def test_rounding_loses_no_event():
    streams = ExactEvents(exact=False).encode([([0.2, 14.6], [0, 1])])
    batch = streams.batch(torch.tensor([0]))
    assert streams.window == 15 and batch.times.tolist() == [0.0, 14.0] and batch.channels.tolist() == [0, 1]
