r"""Where training from scratch begins: weights that let fluctuations of the input, not its mean, cause the spikes.

Adapted from Rossbroich, Gygax and Zenke (2022) to spike response neurons, as in the paper's appendix.
"""

from __future__ import annotations

import numpy.typing as npt
import torch
from torch import Tensor

from sswim.network.kernels import kernel_taps
from sswim.network.layer import SpikingLayer
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.options import Randomness, Seed, check_integer, check_positive

__all__ = ["fluctuation_weights", "initialize"]


def fluctuation_weights(
    taps: Tensor, senders: int, rate: float, mean: float, spread: float, *, consistent: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return mean and deviation of the weights, and the bias, that give each neuron's potential a mean and a fluctuation.

    With `n` senders of mean :math:`\nu`, :math:`\epsilon = \sum k` and :math:`\hat\epsilon = \sum k^2` over all lags,

    .. math::
        \mu_w = \frac{\mu}{n \nu \epsilon}, \quad
        \sigma_w^2 = \left(\frac{1 - \mu}{\xi}\right)^2 \frac{1}{n \nu \hat\epsilon} - \mu_w^2

    bring the potential to the mean :math:`\mu`, :math:`\xi` deviations below the threshold. That is defined for
    :math:`\mu < \mu_c = 1 / (\kappa + 1)` with :math:`\kappa = \xi \sqrt{\hat\epsilon} / (\epsilon \sqrt{n \nu})`.
    Otherwise the weights give the mean :math:`\mu' = 2 \mu_c - \mu`, and the paper's bias is :math:`b = \mu' - \mu
    = 2 (\mu_c - \mu)`. The potentials' mean is :math:`\mu` with the other sign, :math:`b = \mu - \mu'`, which `consistent`
    chooses. Where even :math:`\mu'` is not defined, for wavelets whose sum nearly vanishes, :math:`\mu' = 0` and
    :math:`b = \mu`.

    Parameters
    ----------
    taps : Tensor of shape (neurons, lags)
    senders : int
    rate : float
        Mean input :math:`\nu` of a sender.
    mean, spread : float
        :math:`\mu` and :math:`\xi`.
    consistent : bool
        Whether the bias has the sign that makes the mean :math:`\mu`, not the paper's.

    Returns
    -------
    Three tensors of shape (neurons,)
    """
    eps, eps_hat = taps.sum(dim=1), taps.square().sum(dim=1).clamp_min(1e-12)
    drive = senders * rate

    def variance(mu: Tensor) -> Tensor:
        mu_w = torch.where(mu == 0, 0.0, mu / (drive * eps))
        return ((1 - mu) / spread) ** 2 / (drive * eps_hat) - mu_w**2

    mu = torch.full_like(eps, mean)
    mu_c = 1 / (spread * eps_hat.sqrt() / (eps * drive**0.5) + 1)
    mu = torch.where((eps > 0) & (mu < mu_c), mu, 2 * mu_c - mean)
    defined = (eps > 0) & (variance(mu) > 0)
    mu = torch.where(defined, mu, torch.zeros_like(mu))
    bias = torch.where(defined & (not consistent), mu - mean, mean - mu)
    return torch.where(mu == 0, 0.0, mu / (drive * eps)), variance(mu).sqrt(), bias


@torch.no_grad()
def initialize(
    network: SpikingNetwork,
    X: npt.ArrayLike,
    *,
    mean: float = 0.5,
    spread: float = 1.0,
    delays: tuple[float, float] = (0.0, 15.0),
    supports: tuple[float, float] = (5.0, 15.0),
    cost: float = -1.0,
    refractory: float = 5.0,
    consistent: bool = True,
    initial_batch: int = 1000,
    random_state: Seed = None,
) -> None:
    r"""Set all parameters of `network` at random, for training from scratch with gradients.

    Defaults are the paper's, but for `consistent`.

    Parameters
    ----------
    network : SpikingNetwork
        Its parameters are overwritten.
    X : array or Tensor of shape (samples, window, inputs)
        Weights are scaled by their mean size.
    mean, spread : float
        Mean :math:`\mu` of the potentials, and by how many of their deviations :math:`\xi` the threshold lies above it.
    delays, supports : tuple of float
        Ranges of the hidden layers' delays and supports, in steps. The output layer has delay 0 and the longest support.
    cost : float
        Spike costs. The paper's 1 is minus 1 here, where a cost below 0 inhibits.
    refractory : float
        Supports of the refractory kernels, in steps. The paper has them for sampling only, where they are 5.
    consistent : bool
        Which sign the bias has where the weights alone cannot give the mean, see `fluctuation_weights`: the one that brings
        potentials there, or the one in the paper's formula.
    initial_batch : int
        Use at most this many samples.
    random_state : int, optional
        Same seed, same network.

    Examples
    --------
    >>> network = SpikingNetwork(inputs=3, outputs=2, window=40, horizon=5, hidden=(50,))
    >>> x = torch.rand(100, 40, 3, generator=torch.Generator().manual_seed(0))
    >>> initialize(network, x, random_state=0)
    >>> 0.02 < float(network.simulate(x).spikes[0].mean()) < 0.3
    True
    """
    if not 0 < mean < 1:
        raise ValueError(f"mean must lie between 0 and 1, the threshold, got {mean!r}.")
    check_positive("spread", spread), check_positive("refractory", refractory)
    for name, (low, high) in (("delays", delays), ("supports", supports)):
        if not (0 <= low <= high and high > 0):
            raise ValueError(f"{name} must be a range (low, high) with 0 <= low <= high, got {(low, high)}.")
    random = Randomness(random_state)
    x = torch.as_tensor(X)
    x = x[torch.randperm(len(x), generator=random("batch"))[: check_integer("initial_batch", initial_batch, 1)]]
    signals: Tensor = network.signals(x)  # type: ignore[assignment]
    if not bool(torch.isfinite(signals).all()):
        raise ValueError("X must be finite, but holds NaN or infinite values: fill or drop them first.")
    for depth, layer in enumerate(network.layers):
        temporal, weights = random("temporal", depth), random("weights", depth)
        layer.delays.copy_(_uniform(layer.neurons, *delays, temporal))
        layer.supports.copy_(_uniform(layer.neurons, *supports, temporal))
        layer.costs.fill_(cost), layer.refractory_supports.fill_(refractory)
        _set_weights(layer, signals, network.steps, mean, spread, consistent, weights)
        filters = layer.filters(signals.shape[1], network.steps)
        signals = layer.fire(layer.potentials(signals, filters))
    depth = len(network.layers)
    readout = network.readout
    readout.clear()
    if not isinstance(readout, VoltageReadout):
        return
    readout.delays.zero_(), readout.supports.fill_(supports[1])
    _set_weights(readout, signals, network.steps, mean, spread, consistent, random("weights", depth))


def _uniform(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)


def _set_weights(
    layer: SpikingLayer,
    signals: Tensor,
    steps: int,
    mean: float,
    spread: float,
    consistent: bool,
    generator: torch.Generator,
) -> None:
    """Draw the weights of a layer that listens to signals (senders, steps, batch)."""
    taps = kernel_taps(layer.kernel, layer.delays, layer.supports, steps).double()
    rate = float(signals.abs().mean())
    mu, sigma, bias = fluctuation_weights(taps, layer.senders, max(rate, 1e-6), mean, spread, consistent=consistent)
    noise = torch.randn(layer.neurons, layer.senders, generator=generator, dtype=torch.float64).to(mu.device)
    layer.weights.copy_(mu[:, None] + sigma[:, None] * noise)
    layer.biases.copy_(bias)
