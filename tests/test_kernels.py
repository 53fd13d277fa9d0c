import math

import pytest
import torch

from sswim.network.kernels import (
    KERNELS,
    REFRACTORY_KERNELS,
    Alpha,
    Exponential,
    FunctionKernel,
    Hat,
    Morlet,
    Refractory,
    delay_of_lag,
    resolve_kernel,
)

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
    assert x[KERNELS[name](x).argmax()].item() == pytest.approx(KERNELS[name].peak, abs=2e-3)


@pytest.mark.parametrize("kernel", [Morlet(), Exponential(), Alpha(), Refractory()])
def test_gradients_stay_finite_far_outside(kernel):
    x = torch.tensor([-1e4, -2.0, 0.3, 1e4], requires_grad=True)
    kernel(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_refractory_kernel_is_cut():
    x = torch.tensor([-0.1, 0.0, 1.0, 1.0001])
    torch.testing.assert_close(Refractory()(x), torch.tensor([0.0, 1.0, math.exp(-1), 0.0]))


def test_unknown_kernel_lists_the_names():
    with pytest.raises(ValueError, match=r"kernel: unknown name 'hatt'. Did you mean 'hat'\? Valid names: 'hat', 'morlet'"):
        resolve_kernel("hatt")
    with pytest.raises(ValueError, match=r"kernel: unknown name 'gauss'. Valid names: 'hat', 'morlet'"):
        resolve_kernel("gauss")
    with pytest.raises(TypeError, match="kernel must be a name or a kernel object"):
        resolve_kernel(Hat)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), *REFRACTORY_KERNELS.values()])
def test_a_kernel_is_smooth_between_its_breaks(kernel):
    ends = [-4.0, *kernel.breaks, 4.0]
    assert list(kernel.breaks) == sorted(kernel.breaks)
    h = 1e-3
    for low, high in zip(ends, ends[1:], strict=False):
        x = torch.linspace(low + 2 * h, high - 2 * h, 200, dtype=torch.float64)
        bend = (kernel(x + h) - 2 * kernel(x) + kernel(x - h)) / h**2
        assert float(bend.abs().max()) < 100, "a kink would bend by about 1 / h"


def test_a_function_is_wrapped():
    def bump(x):
        return torch.exp(-((x - 0.5) ** 2))

    wrapped = resolve_kernel(bump)
    assert wrapped == FunctionKernel(bump, peak=0.0, breaks=None)
    own = FunctionKernel(bump, peak=0.5, breaks=())
    assert resolve_kernel(own) is own
    x = torch.linspace(-2, 2, 9)
    assert torch.equal(wrapped(x), bump(x)) and torch.equal(own(x), bump(x))


def test_the_peak_lies_at_the_lag():
    lags, supports = torch.tensor([7.0, 3.0, 1.0]), torch.tensor([2.0, 3.0, 4.0])
    assert delay_of_lag(Hat(), lags, supports).tolist() == [7.0, 3.0, 1.0]
    assert delay_of_lag(Alpha(), lags, supports).tolist() == [5.0, 0.0, 0.0]  # one support earlier, and never below 0
    assert float(delay_of_lag(FunctionKernel(torch.cos, peak=0.5), 7.0, 2.0)) == 6.0


def test_morlet_refuses_a_negative_decay():
    with pytest.raises(ValueError, match="decay must be a finite number >= 0, got -1"):
        Morlet(decay=-1)
