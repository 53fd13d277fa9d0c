"""What `sswim.bench` measures: a synthetic problem, and the output step of the paper read literally."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from torch import Tensor

from sswim.data.tensors import Windows
from sswim.data.windows import Samples, Subset, batches
from sswim.network.events import dense
from sswim.network.kernels import kernel_taps, toeplitz
from sswim.network.network import SpikingNetwork
from sswim.network.output import VoltageReadout
from sswim.regression import REGULARIZATION, Sums
from sswim.steps import CorrelationDelays, SupportSearch

__all__ = ["literal_output_layer", "synthetic_problem", "synthetic_series"]


def synthetic_series(rows: int, channels: int, seed: int = 0) -> Tensor:
    """Return a series like hourly electricity loads: daily and weekly cycles, slow drift and noise, each channel its own."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None]
    x = np.zeros((rows, channels))
    for period, size in ((24, 1.0), (12, 0.5), (168, 0.6), (8, 0.2)):
        x += size * rng.uniform(0.3, 1, channels) * np.sin(2 * np.pi * (t / period + rng.uniform(0, 1, channels)))
    common = _smooth(rng.standard_normal((rows, 5)), 0.98) @ rng.standard_normal((5, channels))
    x += 0.1 * common + 0.2 * _smooth(rng.standard_normal((rows, channels)), 0.9)
    x += 0.2 * rng.standard_normal((rows, channels))
    x -= x.min(axis=0)
    return torch.from_numpy((x / x.max(axis=0)).astype(np.float32))


def _smooth(noise: np.ndarray, memory: float) -> np.ndarray:
    """Return autoregressive noise of unit variance."""
    from scipy.signal import lfilter

    return lfilter([math.sqrt(1 - memory**2)], [1, -memory], noise, axis=0)


def synthetic_problem(
    train: int, test: int, outputs: int, window: int, horizon: int, seed: int = 0
) -> tuple[Samples, Samples, Samples]:
    """Return training, validation and test windows, one after the other in time."""
    held_out = train // 4
    rows = synthetic_series(window + horizon - 1 + train + held_out + test, outputs, seed)
    windows = Windows([rows], window, horizon)
    cuts = [0, train, train + held_out, train + held_out + test]
    one, two, three = (Subset(windows, torch.arange(a, b)) for a, b in zip(cuts, cuts[1:], strict=False))
    return one, two, three


@torch.no_grad()
def literal_output_layer(network: SpikingNetwork, train: Samples, held_out: Samples, initial: Tensor) -> dict[str, float]:
    """Set the output layer as the paper is written: one design matrix over all steps of all windows for each output.

    The support search factors the stacked design matrix (equation ``eq:sig_design``) by a thin QR, and the weights come
    from one Gram matrix per output. Batches, dtype and matrix products are the library's own. Rounding in float32 decides
    between supports whose residuals differ by a per mille; so that it does not, close calls are decided once more in
    float64, and that is not counted in the literal reading's time.

    Returns
    -------
    dict of str to float
        Seconds of the support search and of the weights.
    """
    H, N, size, filters = network.horizon, network.hidden[-1], 64, network.hidden_filters()
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    begin = time.perf_counter()
    x, y = dense(train.inputs(initial)), train.targets(initial)
    spikes = torch.cat([network.hidden_spikes(x[part], filters)[-1] for part in batches(len(x), size)], dim=2)
    step = CorrelationDelays(work=math.inf)
    lags = step.lags(step.correlate(spikes, y, network.start, network.window))
    search = SupportSearch()
    lag, candidates = search.shared_lag(lags), search.candidates(H)
    residuals = []
    stacked = y.permute(1, 0, 2).reshape(-1, network.outputs)  # (H M, C)
    for sigma in candidates.tolist():
        A = torch.cat([torch.ones(1, len(stacked)), _traces(network, spikes, lag, sigma)]).T  # (H M, N + 1)
        Q, _ = torch.linalg.qr(A)
        residuals.append(stacked.square().sum(dim=0) - (Q.T @ stacked).square().sum(dim=0))
    table = torch.stack(residuals).double()
    seconds = {"supports": time.perf_counter() - begin}
    near = table <= 1.01 * table.min(dim=0).values
    for i in (near & (near.sum(dim=0) > 1)).any(dim=1).nonzero()[:, 0].tolist():
        table[i] = _sharp_residual(_traces(network, spikes, lag, float(candidates[i])), stacked)
    supports = search.choose(candidates, table)
    begin = time.perf_counter()
    sums = [[Sums(N, 1, 1) for _ in range(network.outputs)] for _ in range(2)]
    for samples, of_output in zip((train, held_out), sums, strict=True):
        for part in batches(len(samples), size):
            spikes = network.hidden_spikes(samples.inputs(part), filters)[-1]
            y = samples.targets(part).double().permute(2, 1, 0)  # (C, H, B)
            for i in range(network.outputs):
                rows = _traces(network, spikes, float(lags[i]), float(supports[i]))  # (N, H B)
                of_output[i].update(rows[:, None, :], y[i].reshape(1, 1, -1))
    for equations in sums[0]:
        equations.samples, equations.horizon = equations.samples / H, H  # the penalty counts windows, not rows
    for i in range(network.outputs):
        w, b, _ = REGULARIZATION["paper"].solve(sums[0][i], sums[1][i])
        readout.weights[i], readout.biases[i] = w[:, 0].float(), b[0].float()
    readout.delays.copy_(lags)
    readout.supports.copy_(supports)
    return {**seconds, "weights": time.perf_counter() - begin}


def _sharp_residual(rows: Tensor, y: Tensor) -> Tensor:
    """Return the least squared residuals of targets (rows, outputs) on features (neurons, rows) and a constant."""
    A = torch.cat([torch.ones(1, rows.shape[1]), rows]).T.double()
    Q, R = torch.linalg.qr(A)
    U, s, _ = torch.linalg.svd(R)
    inside = U[:, s > 1e-10 * s[0]].T @ (Q.T @ y.double())
    return y.double().square().sum(dim=0) - inside.square().sum(dim=0)


def _traces(network: SpikingNetwork, spikes: Tensor, lag: float, support: float) -> Tensor:
    """Return the traces of spikes (neurons, steps, batch) at every step of the horizon, (neurons, horizon x batch)."""
    tau, sigma = (torch.tensor([value]) for value in (lag, support))
    readout: VoltageReadout = network.readout  # type: ignore[assignment]
    K = toeplitz(kernel_taps(readout.kernel, tau, sigma, network.steps), network.steps)[0, network.start :]
    return torch.matmul(K, spikes).reshape(len(spikes), -1)
