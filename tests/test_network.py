import literal
import numpy as np
import pytest
import torch

from sswim import SpikingNetwork
from sswim.network.kernels import KERNELS, Hat, kernel_taps, refractory_taps, toeplitz
from sswim.network.layer import fire
from sswim.readout import TraceReadout


def random_network(generator, **options):
    """A small network with random, irregular parameters that does spike."""
    settings = {
        "inputs": 3,
        "outputs": 2,
        "window": 9,
        "horizon": 4,
        "hidden": (6, 5),
        "dtype": torch.float64,
    } | options
    network = SpikingNetwork(**settings)

    def uniform(low, high, p):
        return low + (high - low) * torch.rand(p.shape, generator=generator, dtype=p.dtype)

    with torch.no_grad():
        for layer in [*network.layers, network.readout]:
            layer.weights.copy_(uniform(-1, 2, layer.weights))
            layer.biases.copy_(uniform(-0.2, 0.6, layer.biases))
            layer.delays.copy_(uniform(0, 3, layer.delays))
            layer.supports.copy_(uniform(0.7, 5, layer.supports))
            if layer.spiking:
                layer.costs.copy_(uniform(-2, -0.3, layer.costs))
                layer.refractory_supports.copy_(uniform(0.5, 6, layer.refractory_supports))
    return network


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spiking_output", [False, True])
def test_simulation_equals_the_double_loop_of_the_definition(kernel, spiking_output, generator):
    network = random_network(generator, kernel=kernel, spiking_output=spiking_output)
    x = torch.rand(3, 9, 3, generator=generator, dtype=torch.float64)
    activity = network.simulate(x)
    fired = 0
    for n in range(len(x)):
        output, spikes = literal.simulate(network, x[n])
        np.testing.assert_allclose(activity.output[n].detach().numpy(), output, atol=1e-12)
        for fast, slow in zip(activity.spikes, spikes, strict=True):
            np.testing.assert_array_equal(fast[n].numpy().T, slow)
            fired += slow.sum()
    assert fired > 20
    torch.testing.assert_close(network(x), activity.output[:, 9:13])


def test_a_user_callable_serves_as_kernel(generator):
    network = random_network(generator, kernel=lambda x: torch.exp(-(x**2)), hidden=(4,))
    x = torch.rand(2, 9, 3, generator=generator, dtype=torch.float64)
    np.testing.assert_allclose(network.simulate(x).output[0].detach().numpy(), literal.simulate(network, x[0])[0])


def test_kernels_are_one_per_layer_and_the_last_one_serves_the_rest(generator):
    names = {
        "alpha": ["alpha", "hat", "hat"],
        ("alpha",): ["alpha", "alpha", "alpha"],
        ("morlet", "exponential"): ["morlet", "exponential", "exponential"],
        ("hat", "alpha", "morlet"): ["hat", "alpha", "morlet"],
    }
    for given, expected in names.items():
        network = random_network(generator, kernel=given, hidden=(4, 3, 2))
        assert [layer.kernel for layer in network.layers] == [KERNELS[name] for name in expected]
    x = torch.rand(2, 9, 3, generator=generator, dtype=torch.float64)
    np.testing.assert_allclose(network.simulate(x).output[0].detach().numpy(), literal.simulate(network, x[0])[0], atol=1e-12)


def test_a_trace_readout_reads_decaying_traces_of_all_layers(generator):
    """By the definition: each spike counts by its age at the window's end. Rows are not read (see test_lags.py for those)."""
    constants = (2.0, 7.0, float("inf"))
    network = random_network(generator)
    readout = TraceReadout(11 * 3, 2, 4, constants=constants, dtype=torch.float64)
    direct = SpikingNetwork(3, 2, window=9, horizon=4, hidden=(6, 5), readout=readout, dtype=torch.float64)
    direct.layers.load_state_dict(network.layers.state_dict())
    with torch.no_grad():
        readout.weights.normal_(generator=generator), readout.biases.normal_(generator=generator)
    x = torch.rand(3, 9, 3, generator=generator, dtype=torch.float64)
    past = torch.rand(3, 9, 2, generator=generator, dtype=torch.float64)
    assert direct.steps == 9
    for n in range(3):
        _, spikes = literal.simulate(network, x[n])
        traces = [
            sum(train[t] * np.exp(-(8 - t) / constant) for t in range(9))
            for layer in spikes
            for train in layer
            for constant in constants
        ]
        np.testing.assert_allclose(direct.trace_reader(constants)(x)[:, n], traces, atol=1e-12)
        expected = (readout.weights @ torch.tensor(traces, dtype=torch.float64) + readout.biases).reshape(4, 2)
        for given in (None, past):
            torch.testing.assert_close(direct(x, given)[n], expected)
    torch.testing.assert_close(direct.trace_reader(constants, depth=1)(x), direct.trace_reader(constants)(x)[: 6 * 3])


def test_refractory_kernel_may_be_any(generator):
    network = random_network(generator, refractory=lambda x: (x < 2).to(x.dtype), hidden=(4,))
    x = torch.rand(2, 9, 3, generator=generator, dtype=torch.float64)
    np.testing.assert_array_equal(network.simulate(x).spikes[0][1].T.numpy(), literal.simulate(network, x[1])[1][0])


def test_one_trajectory_by_hand():
    """Input 1 at step 0 through Hat(delay 1, support 2) with weight 2.2: potential 1.1, 2.2, 1.1, 0.

    The spike at 0 costs e^{-1/2} at 1 and e^{-1} at 2, that at 1 costs e^{-1/2} at 2: 1.1, 1.59, 0.13, -0.37.
    """
    network = SpikingNetwork(1, 1, window=1, horizon=4, start=0, hidden=(1,), kernel="hat", dtype=torch.float64)
    layer = network.layers[0]
    with torch.no_grad():
        layer.weights.fill_(2.2)
        layer.delays.fill_(1)
        layer.supports.fill_(2)
        layer.costs.fill_(-1)
        layer.refractory_supports.fill_(2)
    filters = layer.filters(1, 4)
    v = layer.potentials(torch.ones(1, 1, 1, dtype=torch.float64), filters)
    torch.testing.assert_close(v.flatten(), torch.tensor([1.1, 2.2, 1.1, 0.0], dtype=torch.float64))
    assert layer.fire(v).flatten().tolist() == [1, 1, 0, 0]


def test_a_predictor_is_the_network(generator):
    for spiking_output in (False, True):
        network = random_network(generator, spiking_output=spiking_output)
        predict = network.predictor()
        for batch in (4, 1, 7):
            x = torch.rand(batch, 9, 3, generator=generator, dtype=torch.float64)
            torch.testing.assert_close(predict(x), network(x))


def test_threshold_is_reached_at_exactly_one():
    v = torch.tensor([[[1.0], [0.999999]]])
    assert fire(v, torch.zeros(1), torch.zeros(1, 0)).flatten().tolist() == [1, 0]


def test_batches_do_not_mix(generator):
    network = random_network(generator)
    x = torch.rand(5, 9, 3, generator=generator, dtype=torch.float64)
    whole = network(x)
    for n in range(5):
        torch.testing.assert_close(network(x[n : n + 1])[0], whole[n])


def test_output_does_not_look_ahead(generator):
    network = random_network(generator, start=0, horizon=13)
    x = torch.rand(1, 9, 3, generator=generator, dtype=torch.float64)
    changed = x.clone()
    changed[:, 6:] += 1
    before, after = network(x), network(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_float32_agrees_with_float64(generator):
    network = random_network(generator, hidden=(40,))
    x = torch.rand(4, 9, 3, generator=generator, dtype=torch.float64)
    single = random_network(generator, hidden=(40,), dtype=torch.float32)
    single.load_state_dict(network.state_dict())
    assert single(x).dtype == torch.float32
    torch.testing.assert_close(single(x).double(), network(x), atol=1e-4, rtol=1e-4)


def test_gradients_reach_the_output_layer(generator):
    network = random_network(generator)
    network(torch.rand(4, 9, 3, generator=generator)).square().sum().backward()
    for name in ("weights", "biases", "delays", "supports"):
        assert getattr(network.readout, name).grad.abs().sum() > 0


def test_refractory_taps_stop_where_the_kernel_does():
    taps = refractory_taps(KERNELS["exponential"], torch.tensor([2.0]), 6)
    assert taps.shape == (1, 5)
    cut = refractory_taps(lambda x: (x <= 1).to(x.dtype), torch.tensor([1.0, 3.0]), 10)
    assert cut.tolist() == [[1, 0, 0], [1, 1, 1]]


def test_toeplitz_convolves():
    taps = kernel_taps(Hat(), torch.tensor([2.0]), torch.tensor([3.0]), 12)
    x = torch.rand(7)
    full = np.convolve(taps[0].numpy(), x.numpy())[:12]
    np.testing.assert_allclose((toeplitz(taps, 7)[0] @ x).numpy(), full, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number >= 1, got 0"),
        ({"hidden": 750}, r"hidden must list one width per hidden layer, such as \(750,\), got 750"),
        ({"hidden": ()}, "hidden must list one width"),
        ({"hidden": (5, 0)}, "hidden must be a whole number >= 1, got 0"),
        ({"start": 1, "horizon": 2}, "start \\+ horizon must reach the end of the window"),
        ({"kernel": ()}, "kernel: needs at least one kernel, got an empty sequence"),
        ({"kernel": "hot"}, "kernel: unknown name 'hot'. Did you mean 'hat'"),
        ({"kernel": ("hat", "morlet", "alpha")}, "kernel lists 3 kernels for . hidden layers: list at most one per layer"),
        ({"output_kernel": "hot"}, "output_kernel: unknown name 'hot'"),
        ({"dtype": torch.float16}, "dtype must be torch.float32 or torch.float64"),
        ({"refractory": "morlet"}, "refractory: unknown name 'morlet'. Valid names: 'exponential-cut', 'exponential'"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SpikingNetwork(**{"inputs": 2, "outputs": 1, "window": 5, "horizon": 3} | options)


def test_wrong_input_shape_is_named():
    network = SpikingNetwork(2, 1, window=5, horizon=3, hidden=(4,))
    with pytest.raises(ValueError, match=r"x must have shape \(batch, window=5, inputs=2\), got \(1, 5, 3\)"):
        network(torch.zeros(1, 5, 3))
