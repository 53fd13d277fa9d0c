"""Gradients: against finite differences, plain autograd, and numbers worked out by hand."""

import itertools

import pytest
import torch

from sswim import SpikingNetwork
from sswim.network.autograd import BLOCK, convolve, fire_through
from sswim.network.kernels import Hat, kernel_taps, toeplitz
from sswim.network.layer import filter_signals, fire
from sswim.network.surrogates import SURROGATES, Arctan, FastSigmoid, SlayerExponential, Triangular
from sswim.readout import LagReadout, TraceReadout
from sswim.readout.lags import LagSizes, lag_bins

WINDOW, HORIZON = 11, 4


def network(hidden=(6, 5), *, seed=0, kernel="morlet", inputs=3, outputs=2, window=WINDOW, horizon=HORIZON, **options):
    net = SpikingNetwork(
        inputs, outputs, window=window, horizon=horizon, hidden=hidden, kernel=kernel, dtype=torch.float64, **options
    )
    generator = torch.Generator().manual_seed(seed)

    def uniform(p, low, high):
        p.copy_(low + (high - low) * torch.rand(p.shape, generator=generator, dtype=p.dtype))

    with torch.no_grad():
        for layer in [*net.layers, net.readout]:
            layer.weights.normal_(0, 0.8, generator=generator)
            if hasattr(layer, "biases"):
                uniform(layer.biases, 0.1, 0.5)
            if hasattr(layer, "delays"):
                uniform(layer.delays, 0.1, 3.9), uniform(layer.supports, 1.1, 5.9)
            if hasattr(layer, "costs"):
                uniform(layer.costs, -1.5, -0.5), uniform(layer.refractory_supports, 1.2, 3.8)
    return net


def readout(kind, hidden=(6, 5)):
    """Return options of a network whose output is a voltage, or reads traces, alone or with lags of the rows."""
    traces, options = 2 * sum(hidden), {"constants": (2.0, 9.0), "dtype": torch.float64}
    if kind == "voltage":
        return {}
    if kind == "traces":
        return {"readout": TraceReadout(traces, 2, HORIZON, **options)}
    # As many directions as features: every trace reaches the output.
    bins = len(lag_bins(WINDOW)) - 1
    sizes = LagSizes(WINDOW, HORIZON, 2, 1, covariates=1, traces=traces, lags=WINDOW, extra=bins + traces, common=0)
    return {"readout": LagReadout(sizes, skip=True, **options)}


def inputs(batch=3, seed=1, window=WINDOW, channels=3):
    return torch.randn(batch, window, channels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "steps, seen, start", [(9, 9, 0), (9, 6, 5), (2 * BLOCK + 7, 2 * BLOCK + 7, 0), (200, 150, 130), (3, 150, 0)]
)
def test_convolution_is_that_of_its_matrix_with_the_same_gradients(steps, seen, start, generator):
    taps = torch.randn(4, steps, generator=generator, dtype=torch.float64)
    taps[:, steps // 2 :] = 0
    signals = torch.randn(4, seen, 3, generator=generator, dtype=torch.float64)
    taps.requires_grad_(), signals.requires_grad_()
    one = torch.bmm(toeplitz(taps, seen)[:, start:], signals)
    direction = torch.randn(one.shape, generator=generator, dtype=torch.float64)
    by_taps, by_signals = torch.autograd.grad((one * direction).sum(), [taps, signals])
    other = convolve(taps, signals, start)
    torch.testing.assert_close(other, one)
    found_taps, found_signals = torch.autograd.grad((other * direction).sum(), [taps, signals])
    torch.testing.assert_close(found_signals, by_signals)
    # Where no kernel reaches, the gradient is left out: its taps have no parameters there.
    near = slice(0, steps // 2)
    torch.testing.assert_close(found_taps[:, near], by_taps[:, near])


@pytest.mark.parametrize("name", SURROGATES)
def test_a_surrogate_is_the_derivative_of_its_smooth_step(name):
    surrogate = SURROGATES[name]
    v = torch.linspace(-3, 5, 1000, dtype=torch.float64).requires_grad_()  # without the kink at 1
    (slope,) = torch.autograd.grad(surrogate.smooth(v).sum(), v)
    torch.testing.assert_close(slope, surrogate.derivative(v.detach()))
    assert surrogate.smooth(torch.tensor(1.0)) == 0.5
    fine = torch.linspace(-2000, 2002, 4_000_001, dtype=torch.float64)
    assert float(torch.trapezoid(surrogate.derivative(fine), fine)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("cls", [SlayerExponential, Triangular, Arctan, FastSigmoid])
def test_width_and_scale_of_a_surrogate(cls):
    v = torch.linspace(0, 2, 11, dtype=torch.float64)
    torch.testing.assert_close(cls(width=0.2, scale=3.0).derivative(1 + v), 3 / 0.2 * cls(width=1.0).derivative(1 + v / 0.2))
    for bad in ({"width": 0}, {"scale": -1.0}):
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            cls(**bad)
    with pytest.raises(ValueError, match="surrogate: unknown name 'arctn'. Did you mean 'arctan'"):
        SpikingNetwork(1, 1, window=3, horizon=1, surrogate="arctn")


@pytest.mark.parametrize("kernel", ["morlet", "hat", "exponential", "alpha"])
@pytest.mark.parametrize("output", ["voltage", "traces and lags"])
def test_gradients_of_all_parameters_are_finite_differences_with_a_smooth_threshold(kernel, output):
    net = network(kernel=kernel, surrogate=SlayerExponential(width=0.7), **readout(output))
    net.soft = True
    x = inputs()
    y = torch.randn(3, HORIZON, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def loss():
        return ((net(x) - y) ** 2).mean()

    parameters = {name: p for name, p in net.named_parameters() if p.numel()}
    gradients = torch.autograd.grad(loss(), parameters.values())
    for (name, p), found in zip(parameters.items(), gradients, strict=True):
        expected = torch.zeros_like(p)
        with torch.no_grad():
            for i in itertools.product(*map(range, p.shape)):
                kept, h = p[i].item(), 1e-6
                p[i] = kept + h
                up = float(loss())
                p[i] = kept - h
                expected[i] = (up - float(loss())) / (2 * h)
                p[i] = kept
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
        assert float(found.abs().max()) > 0, name


def test_three_steps_by_hand():
    """One neuron, potentials 1.2, 0.9, 1.4; a spike costs 0.5 one step later and 0.25 two steps later."""
    p = torch.tensor([1.2, 0.9, 1.4], dtype=torch.float64).reshape(1, 3, 1).requires_grad_()
    cost = torch.tensor([-0.5], dtype=torch.float64).requires_grad_()
    inhibition = torch.tensor([[1.0, 0.5]], dtype=torch.float64).requires_grad_()
    rho = Triangular(width=1.0)
    a = fire_through(p.clone(), cost, inhibition, rho)
    # v = 1.2, 0.9 - 0.5, 1.4 - 0.25: fires, is silent, fires.
    assert a.flatten().tolist() == [1, 0, 1]
    a.backward(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).reshape(1, 3, 1))
    # rho = 1 - |v - 1| = 0.8, 0.4, 0.85. From the last step to the first:
    third = 0.85 * 3
    second = 0.4 * (2 - 0.5 * third)
    first = 0.8 * (1 - 0.5 * second - 0.25 * third)
    assert p.grad.flatten().tolist() == pytest.approx([first, second, third])
    # Only the first spike has steps after it: lag 1 meets the second step, lag 2 the third.
    assert cost.grad.tolist() == pytest.approx([second * 1.0 + third * 0.5])
    assert inhibition.grad[0].tolist() == pytest.approx([-0.5 * second, -0.5 * third])


@pytest.mark.parametrize("reach", [0, 1, 5, 70])
@pytest.mark.parametrize("detach", [False, True])
def test_firing_has_the_gradients_of_plain_autograd(reach, detach, generator):
    """The literal twin: a loop over steps that autograd records, the surrogate's step in place of the threshold."""
    n, steps, batch, rho = 3, 150, 4, Arctan(width=0.4)
    v = (0.8 * torch.randn(n, steps, batch, generator=generator, dtype=torch.float64) + 0.6).requires_grad_()
    costs = torch.tensor([-0.3, -1.0, -2.0], dtype=torch.float64).requires_grad_()
    inhibition = torch.rand(n, reach, generator=generator, dtype=torch.float64).requires_grad_()
    direction = torch.randn(n, steps, batch, generator=generator, dtype=torch.float64)

    def literal():
        spikes = []
        for t in range(steps):
            now = v[:, t]
            for r in range(1, min(reach, t) + 1):
                before = spikes[t - r].detach() if detach else spikes[t - r]
                now = now + (costs * inhibition[:, r - 1])[:, None] * before
            spikes.append(rho.smooth(now))
        return torch.stack(spikes, dim=1)

    expected, found = literal(), fire_through(v.clone(), costs, inhibition, rho, detach=detach, soft=True)
    torch.testing.assert_close(found, expected)
    wanted = [v, costs, inhibition] if reach else [v]
    ours = torch.autograd.grad((found * direction).sum(), wanted)
    for one, other in zip(ours, torch.autograd.grad((expected * direction).sum(), wanted), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("output", ["voltage", "traces", "traces and lags"])
@pytest.mark.parametrize("hidden", [(6,), (6, 5)])
def test_with_gradients_the_network_puts_out_the_same(output, hidden):
    net, x = network(hidden, **readout(output, hidden)), inputs()
    with torch.no_grad():
        expected = net(x)
    found = net(x)
    assert found.requires_grad
    torch.testing.assert_close(found.detach(), expected)
    for one, other in zip(net.activity(x).spikes, net.simulate(x).spikes, strict=True):
        assert torch.equal(one, other) and 0.02 < float(one.mean().detach()) < 0.9


def test_a_spiking_output_has_gradients_too():
    net, x = network(spiking_output=True), inputs()
    with torch.no_grad():
        expected = net(x)
    found = net(x)
    assert torch.equal(found, expected) and 0 < float(found.detach().mean()) < 1
    found.sum().backward()
    assert all(float(p.grad.abs().max()) > 0 for p in net.parameters())


def test_firing_equals_the_simulator(generator):
    v = torch.randn(5, 80, 6, generator=generator) + 0.5
    costs, inhibition = -torch.rand(5, generator=generator), torch.rand(5, 7, generator=generator)
    assert torch.equal(fire_through(v.clone(), costs, inhibition, Arctan()), fire(v.clone(), costs, inhibition))


def test_detached_refractoriness_changes_gradients_only():
    attached, detached, x = network(), network(detach_refractory=True), inputs()
    one, other = attached(x), detached(x)
    assert torch.equal(one, other)
    one.sum().backward(), other.sum().backward()
    assert not torch.allclose(attached.layers[0].weights.grad, detached.layers[0].weights.grad)
    assert float(detached.layers[1].costs.grad.abs().max()) > 0


def test_checkpointing_changes_memory_only():
    plain, frugal, x = network(), network(checkpoint=True), inputs()
    for net in (plain, frugal):
        net(x).square().sum().backward()
    for one, other in zip(plain.parameters(), frugal.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("window", [100, 400])
def test_memory_of_a_step_is_linear_in_the_window(window):
    """What autograd keeps, per step of the window, is the same for a window four times as long."""
    net, kept = network((20,), window=window), {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage, storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        net(inputs(window=window, batch=16))
    assert sum(size for _, size in kept.values()) < 8 * 16 * (window + HORIZON) * (20 * 4 + 10)


def test_hat_has_the_documented_subgradient():
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0], requires_grad=True)
    Hat()(x).sum().backward()
    assert x.grad.tolist() == [1, 0, -1, 0]


def test_input_has_gradients():
    net, x = network(), inputs().requires_grad_()
    net(x).sum().backward()
    assert float(x.grad.abs().max()) > 0


def test_a_plain_training_loop_with_any_optimiser():
    net, x = network((20,), outputs=1), inputs(64)
    y = x[:, -HORIZON:, :1].cumsum(dim=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_compiled():
    net, x = network(), inputs()
    compiled = torch.compile(net, backend="aot_eager")
    torch.testing.assert_close(compiled(x), net(x))
    compiled(x).sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    for one, p in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad)


def test_a_frozen_network_takes_the_fast_path():
    net, x = network().requires_grad_(False), inputs()
    assert not net(x).requires_grad


def test_response_equals_the_filters(generator):
    """Whatever lies before the reach of all kernels is left out, and changes nothing."""
    layer = network((6,)).readout
    signals = torch.randn(6, 30, 4, generator=generator, dtype=torch.float64)
    taps = kernel_taps(layer.kernel, layer.delays, layer.supports, 34)
    for start in (0, 7, 30):
        expected = filter_signals(toeplitz(taps, 30)[:, start:], layer.weights, signals) + layer.biases[:, None, None]
        torch.testing.assert_close(layer.respond(signals, 34, start), expected)
