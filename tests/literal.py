"""Slow transcriptions of the definitions, to hold the fast code against."""

import numpy as np
import torch


def simulate_layer(layer, signals, steps):
    """Loop over neurons and steps exactly as definition def:ff_snn is written. `signals` is (senders, steps_in)."""
    W, b, tau, sigma = (p.detach().double().numpy() for p in (layer.weights, layer.biases, layer.delays, layer.supports))
    neurons, senders = W.shape
    if layer.spiking:
        c, varsigma = layer.costs.tolist(), layer.refractory_supports.tolist()
    value = lambda kernel, x: float(kernel(torch.tensor([x], dtype=torch.float64)))  # noqa: E731
    output = np.zeros((neurons, steps))
    for i in range(neurons):
        fired = []
        for t in range(steps):
            v = b[i]
            for j in range(senders):
                for s in range(signals.shape[1]):
                    if t - s >= 0 and signals[j, s] != 0:
                        v += W[i, j] * value(layer.kernel, (t - s - tau[i]) / sigma[i]) * signals[j, s]
            if not layer.spiking:
                output[i, t] = v
                continue
            for f in fired:
                v += c[i] * value(layer.refractory, (t - f) / varsigma[i])
            if v >= 1:
                fired.append(t)
                output[i, t] = 1
    return output


def simulate(network, x):
    """Return the output (steps, outputs) of one sample (window, inputs), and the hidden spikes per layer."""
    signals, spikes = x.double().numpy().T, []
    for layer in network.layers:
        signals = simulate_layer(layer, signals, network.steps)
        spikes.append(signals)
    return simulate_layer(network.readout, signals, network.steps).T, spikes


def design(kernel, delay, support, spikes, start, horizon):
    """Stack the traces of spikes (samples, steps, neurons) on the horizon, with a column of ones: eq:sig_design."""
    rows = []
    for sample in spikes:
        for t in range(start, start + horizon):
            lags = torch.arange(t, -1, -1, dtype=torch.float64)
            k = kernel((lags - delay) / support)
            rows.append(torch.cat([torch.ones(1, dtype=torch.float64), k @ sample[: t + 1].double()]))
    return torch.stack(rows).numpy()


def correlation(spikes, targets, start, lags):
    """Sum |C_ij^n(tau)| over samples and neurons by its definition. Spikes (samples, steps, neurons)."""
    samples, steps, neurons = spikes.shape
    horizon, outputs = targets.shape[1:]
    total = np.zeros((outputs, lags))
    for n in range(samples):
        y = targets[n] - targets[n].mean(axis=0)
        for i in range(outputs):
            for j in range(neurons):
                for tau in range(lags):
                    c = 0.0
                    for s in range(steps):
                        if spikes[n, s, j] and start <= s + tau < start + horizon:
                            c += y[s + tau - start, i]
                    total[i, tau] += abs(c)
    return total
