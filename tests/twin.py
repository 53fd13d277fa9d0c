"""The paper once more: algorithm ``alg:sswim`` for any number of layers, in plain numpy and by its formulas.

It shares no code with the library. All that is random comes as numbers: the order of the samples, one uniform number per pair
of samples and layer, and one sign per neuron, as an eigenvector has none. Inputs are arrays (window, inputs) or events
(times, channels).
"""

import numpy as np


def hat(x):
    return np.maximum(1 - np.abs(x), 0)


def morlet(x):
    return np.where(np.abs(x) <= 1, np.exp(-3 * x**2) * np.cos(2 * np.pi * x), 0)


def refractory(x):
    return np.where(np.abs(x) <= 1, np.exp(-x), 0)


def potentials(kernel, tau, sigma, x, inputs, steps):
    """psi of one neuron for one input: (steps, inputs)."""
    psi = np.zeros((steps, inputs))
    if isinstance(x, tuple):
        for when, channel in zip(*x, strict=True):
            for t in range(steps):
                if t >= when:
                    psi[t, channel] += kernel((t - when - tau) / sigma)
        return psi
    for t in range(steps):
        for s in range(min(t + 1, len(x))):
            psi[t] += kernel((t - s - tau) / sigma) * x[s]
    return psi


def embeddings(x):
    """Every embedding of the appendix, of one mean-free signal (steps, channels)."""
    x = x if len(x) == 1 else x - x.mean(axis=0)
    f = np.fft.fft(x, axis=0, norm="ortho")
    f = np.where(np.abs(f) > 1e-7 * np.linalg.norm(x, axis=0), f, 0)  # noise has a phase too
    k = np.arange(len(x))
    omega = np.minimum(k, len(x) - k)[:, None] / max(len(x) / 2, 1)
    norm = np.linalg.norm(x)
    return {
        "l2": x,
        "cosine": x / norm if norm > 0 else x,
        "magnitude": np.abs(f),
        "phase": np.where(f != 0, f / np.where(f != 0, np.abs(f), 1), 0),
        "low": f * (omega < 0.5),
        "high": f * (omega >= 0.5),
    }


def distances(signals, names, labels=None):
    """d(x_n, x_m) for each name: (samples, samples)."""
    if labels is not None:
        return {"class": (labels[:, None] != labels[None, :]).astype(float)}
    found = [embeddings(x) for x in signals]
    return {name: np.array([[np.linalg.norm(a[name] - b[name]) for b in found] for a in found]) for name in names}


def draw_pairs(d_in, d_out, admissible, neurons, uniform, epsilon=1e-6):
    """Metrics of least entropy, and `neurons` pairs without replacement with probability proportional to P."""
    rows, columns = np.tril_indices(len(admissible), -1)
    fine = admissible[rows] & admissible[columns]
    best = None
    for i, x in d_in.items():
        for o, y in d_out.items():
            p = np.where(fine, y[rows, columns] / (x[rows, columns] + epsilon), 0.0)
            if p.sum() == 0:
                continue
            p = p / p.sum()
            entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
            if best is None or entropy < best[0]:
                best = entropy, i, o, p
    _, i, o, p = best
    with np.errstate(divide="ignore"):
        waiting = -np.log(uniform) / p  # of exponential clocks with rates P, the first to ring
    first = np.argsort(waiting)[:neurons]
    return i, o, np.stack([rows[first], columns[first]], axis=1)


def fire(v, cost, varsigma):
    """zeta: spikes where the voltage reaches 1, each of which inhibits what follows."""
    spikes = np.zeros(len(v))
    for t in range(len(v)):
        fired = np.flatnonzero(spikes)
        if v[t] + (cost * refractory((t - fired) / varsigma)).sum() >= 1:
            spikes[t] = 1
    return spikes


def hidden_layer(l, L, kernel, N, settings, x, inputs, y, O, H, uniform, signs, spiking, labels):
    """Lines 3 to 15 for one layer. Returns its parameters and the spikes (samples, steps, N)."""
    i = np.arange(1, N + 1)
    low, high, cycle = settings["min_support"], settings["max_support"], settings["cycle"]
    tau_max = settings["max_delay"] or (H if H > O else O / 2)
    tau = (i - 1) / N * l * tau_max / L  # op_t
    sigma = ((i - 1) % cycle) / (cycle - 1) * (high - low) + low
    S = O + H
    h = np.sort(sigma)[(N - 1) // 2]
    if spiking or l > 1:  # van Rossum, eq:metr_ind
        compared = [potentials(kernel, 0.0, h, a, inputs, S) for a in x]
    else:
        compared = [np.concatenate([a, np.zeros((S - len(a), inputs))]) for a in x]
    norms = np.array([np.linalg.norm(a - a.mean(axis=0), axis=0) for a in compared])
    moving = norms >= 1e-6
    admissible = moving.any(axis=1) if l > 1 else (moving | ~moving.any(axis=0)).all(axis=1)
    d_in = distances(compared, settings["metrics"])
    d_out = distances(y, settings["metrics"], labels)
    metric_in, metric_out, pairs = draw_pairs(d_in, d_out, admissible, N, uniform)
    W, b, c, spikes = np.zeros((N, inputs)), np.zeros(N), np.zeros(N), np.zeros((len(x), S, N))
    for n in range(N):
        psi = [potentials(kernel, tau[n], sigma[n], a, inputs, S) for a in x]
        one, two = psi[pairs[n, 0]], psi[pairs[n, 1]]
        values, vectors = np.linalg.eigh(0.5 * (one.T @ two + two.T @ one))  # op_w_dot
        w = vectors[:, np.argmin(values)]
        w = signs[n] * w * np.sign(w[np.argmax(np.abs(w))])
        v = np.array([a @ w for a in psi])  # (samples, steps)
        mean, deviation = v.mean(axis=1).mean(), v.std(axis=1).mean()
        alpha = 0.5 / deviation  # op_n_ms with mu_t = s_t = 0.5
        beta = 0.5 - alpha * mean
        top = alpha * v.max() + beta
        beta += (1 + 1e-4) - top if top < 1 else 0.0
        W[n], b[n], c[n] = alpha * w, beta, -3 * 0.5 / refractory(0.0)
        spikes[:, :, n] = [fire(alpha * a + beta, c[n], low) for a in v]
    found = {"delays": tau, "supports": sigma, "weights": W, "biases": b, "costs": c, "varsigma": np.full(N, low)}
    return {**found, "pairs": pairs, "metrics": (metric_in, metric_out)}, spikes


def simulate(kernel, layer, x, inputs, S):
    """Spikes (samples, steps, N) of a layer whose parameters are known."""
    spikes = np.zeros((len(x), S, len(layer["biases"])))
    for n in range(spikes.shape[2]):
        for m, a in enumerate(x):
            v = potentials(kernel, layer["delays"][n], layer["supports"][n], a, inputs, S) @ layer["weights"][n]
            spikes[m, :, n] = fire(v + layer["biases"][n], layer["costs"][n], layer["varsigma"][n])
    return spikes


def least(errors, margin):
    """Number of the least error; of several that rounding could exchange the last, which is the smoothest."""
    errors = np.asarray(errors)
    return np.flatnonzero(errors <= errors.min() * (1 + margin))[-1]


def design(tau, sigma, spikes, O, H):
    """A(sigma), eq:sig_design: rows of all samples and steps of [T, T + H), the ones first."""
    neurons = spikes.shape[2]
    rows = [potentials(hat, tau, sigma, a, neurons, O + H)[O:] for a in spikes]
    return np.concatenate([np.concatenate([np.ones((H, 1)), r], axis=1) for r in rows])


def output_layer(spikes, y, all_spikes, all_y, held_spikes, held_y, O, H, delays):
    """Lines 16 to 18, from the initial batch's spikes and targets, those of all samples, and of the validation samples."""
    C, M = y[0].shape[1], len(all_y)
    if delays == "correlation":  # op_c, eq:corr_agg
        C_abs = np.zeros((C, O))
        for a, target in zip(spikes, y, strict=True):
            target = target - target.mean(axis=0)
            for lag in range(O):
                shifted = np.zeros((O + H, C))  # the target seen from a spike at s: y(s + lag)
                inside = np.arange(max(O - lag, 0), O + H - lag)
                shifted[inside] = target[inside + lag - O]
                C_abs[:, lag] += np.abs(a.T @ shifted).sum(axis=0)
        tau = C_abs.argmax(axis=1).astype(float)
    else:
        tau = np.zeros(C)
    m = np.arange(1, 31)
    candidates = ((1 - (m - 1) / 30) * 1 ** (1 / 1.5) + (m - 1) / 30 * (2 * H) ** (1 / 1.5)) ** 1.5
    shared = np.sort(tau)[(C - 1) // 2]
    residual = np.zeros((30, C))
    stacked = np.concatenate(y)
    for k, sigma in enumerate(candidates):  # op_sig
        A = design(shared, sigma, spikes, O, H)
        U, s, _ = np.linalg.svd(A, full_matrices=False)
        Q = U[:, s > 1e-10 * s[0]]
        residual[k] = (stacked**2).sum(axis=0) - ((Q.T @ stacked) ** 2).sum(axis=0)
    sigma = candidates[[least(column, 1e-5) for column in residual.T]]
    grid = np.logspace(-5, np.log10(0.5), 32)
    W, b, lambdas = np.zeros((C, spikes.shape[2])), np.zeros(C), np.zeros(C)
    for i in range(C):  # eq:l2_system_mult
        A, held = (design(tau[i], sigma[i], a, O, H) for a in (all_spikes, held_spikes))
        target, held_target = np.concatenate(all_y)[:, i], np.concatenate(held_y)[:, i]
        solve = lambda lam, A=A, target=target: np.linalg.solve(A.T @ A + M * lam * np.eye(A.shape[1]), A.T @ target)  # noqa: E731
        errors = [((held @ solve(lam) - held_target) ** 2).sum() for lam in grid]
        lambdas[i] = grid[least(errors, 1e-6)]
        p = solve(lambdas[i])
        b[i], W[i] = p[0], p[1:]
    return {"delays": tau, "supports": sigma, "weights": W, "biases": b, "lambdas": lambdas}


def sswim(
    x, y, held_x, held_y, *, inputs, O, H, hidden, kernels, order, batch, uniforms, signs, spiking, delays, labels, **settings
):
    """Algorithm ``alg:sswim``. Returns the layers, the output, and the spikes of the last layer on the initial batch."""
    first = order[:batch]
    seen, targets = [x[n] for n in first], [y[n] for n in first]
    labels = None if labels is None else labels[first]
    layers, signals, senders = [], seen, inputs
    for l, (N, kernel) in enumerate(zip(hidden, kernels, strict=True), start=1):
        layer, spikes = hidden_layer(
            l, len(hidden), kernel, N, settings, signals, senders, targets, O, H, uniforms[l - 1], signs[l - 1], spiking, labels
        )  # fmt: skip
        layers.append(layer)
        signals, senders = spikes, N

    def through(samples):
        a, senders = samples, inputs
        for layer, kernel in zip(layers, kernels, strict=True):
            a, senders = simulate(kernel, layer, a, senders, O + H), len(layer["biases"])
        return a

    output = output_layer(signals, targets, through(x), y, through(held_x), held_y, O, H, delays)
    return layers, output, signals
