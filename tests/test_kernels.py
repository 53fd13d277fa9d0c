import math

import pytest
import torch
from sswim.kernels import KERNELS, Alpha, Exponential, Hat, Morlet, Refractory, kernel_peak, resolve_kernel

FORMULAS = {
    "hat": lambda x: max(1 - abs(x), 0),
    "morlet": lambda x: math.exp(-3 * x * x) * math.cos(2 * math.pi * x) if abs(x) <= 1 else 0,
    "morlet-wide": lambda x: math.exp(-x * x) * math.cos(2 * math.pi * x) if abs(x) <= 1 else 0,
    "exponential": lambda x: math.exp(-x) if x >= 0 else 0,
    "alpha": lambda x: x * math.exp(1 - x) if x >= 0 else 0,
}


def test_every_named_kernel_has_a_formula_here():
    assert set(FORMULAS) == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_equals_its_formula(name):
    x = torch.linspace(-3, 3, 241, dtype=torch.float64)
    expected = torch.tensor([FORMULAS[name](v) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(KERNELS[name](x), expected)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_largest_at_its_peak(name):
    x = torch.linspace(-3, 3, 6001, dtype=torch.float64)
    assert x[KERNELS[name](x).argmax()].item() == pytest.approx(kernel_peak(KERNELS[name]), abs=2e-3)


@pytest.mark.parametrize("kernel", [Morlet(), Exponential(), Alpha(), Refractory()])
def test_gradients_stay_finite_far_outside(kernel):
    x = torch.tensor([-1e4, -2.0, 0.3, 1e4], requires_grad=True)
    kernel(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_refractory_kernel_is_cut():
    x = torch.tensor([-0.1, 0.0, 1.0, 1.0001])
    torch.testing.assert_close(Refractory()(x), torch.tensor([0.0, 1.0, math.exp(-1), 0.0]))


def test_unknown_kernel_lists_the_names():
    with pytest.raises(ValueError, match=r"kernel: unknown name 'hatt'. Choose one of 'hat', 'morlet'"):
        resolve_kernel("hatt")
    with pytest.raises(TypeError, match="kernel must be a name or a kernel object"):
        resolve_kernel(Hat)


def test_morlet_refuses_a_negative_decay():
    with pytest.raises(ValueError, match="decay must be >= 0, got -1"):
        Morlet(decay=-1)
