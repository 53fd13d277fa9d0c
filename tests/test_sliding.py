"""Sums shared by traces that differ by their delay only: the same as each trace's own."""

import pytest
import torch

from sswim import SpikingNetwork, Trajectory, sample
from sswim.network.kernels import KERNELS, Alpha, Exponential, Hat, Morlet
from sswim.network.layer import Workspace
from sswim.readout.sliding import SlidingSums, shiftable
from sswim.readout.traces import Trace
from sswim.regression import Sums

START, HORIZON, NEURONS = 20, 6, 5


@pytest.mark.parametrize("kernel", [Hat(), Morlet(), Alpha(), Exponential()])
@pytest.mark.parametrize("delays", [(4.0, 5.0), (4.25, 7.25, 8.25), (4.0, 9.0, 12.0, 19.0)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_equals_the_sums_of_each_trace(kernel, delays, dtype, tolerance, generator):
    spikes = (torch.rand(NEURONS, START + HORIZON, 40, generator=generator) < 0.3).to(dtype)
    targets = torch.randn(40, HORIZON, 2 * len(delays), generator=generator, dtype=torch.float64) + 7
    members = [torch.tensor([2 * i + 1, 2 * i]) for i in range(len(delays))]
    assert all(shiftable(kernel, delay, 3.5, START + HORIZON) for delay in delays)
    sliding = SlidingSums(kernel, delays, 3.5, START, HORIZON, members, NEURONS)
    for part in torch.arange(40).split(15):
        sliding.update(spikes[:, :, part], targets[part], Workspace())
    for delay, outputs, found in zip(delays, members, sliding.result(), strict=True):
        trace, expected = Trace(kernel, delay, 3.5, START, HORIZON), Sums(NEURONS, 2, HORIZON)
        expected.update(trace.features(spikes), *trace.targets(targets[:, :, outputs]))
        for name in ("gram", "cross", "energy", "feature_mean", "target_mean"):
            torch.testing.assert_close(
                getattr(found, name), getattr(expected, name), rtol=tolerance, atol=tolerance * float(expected.gram.max())
            )
        assert found.samples == expected.samples == 40 and found.noise() == pytest.approx(expected.noise(), rel=1e-3)


@pytest.mark.parametrize("name", KERNELS)
def test_only_kernels_that_are_not_cut_off_shift(name):
    kernel = KERNELS[name]
    one_sided = name in ("exponential", "alpha")
    assert shiftable(kernel, 5.0, 4.0, 30)
    assert shiftable(kernel, 2.0, 4.0, 30) == one_sided  # a kernel that looks both ways loses a part at lag 0


def test_exact_sampling_is_the_same_with_and_without(generator, monkeypatch):
    x = torch.randn(300, 24, 3, generator=generator).cumsum(dim=1) / 5
    y = torch.stack([x[:, -6:, 0], x[:, -9:-3, 1], x[:, -12:-6, 2]], dim=2)
    results = []
    for shared in (True, False):
        if not shared:
            monkeypatch.setattr("sswim.readout.gathered.shiftable", lambda *_: False)
        net = SpikingNetwork(3, 3, window=24, horizon=6, hidden=(25,), output_kernel="exponential", dtype=torch.float64)
        report = sample(net, x, y, readout=Trajectory(assembly="exact", supports="fixed"), random_state=0)
        results.append((net(x).detach(), report))
    assert results[0][1].traces > 1 and results[0][1].solution.sums == "exact"
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-6, atol=1e-6)
