"""Laws that every step obeys, over one table of all named variants."""

import math

import literal
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sswim import steps
from sswim.algebra import safe_eigh
from sswim.network.kernels import Hat, Morlet
from sswim.steps import (
    DELAYS,
    EMBEDDINGS,
    METRICS,
    NORMALIZERS,
    SUPPORTS,
    TEMPORAL,
    WEIGHTS,
    Band,
    ClassDistance,
    CorrelationDelays,
    Cosine,
    DistWeights,
    Diverse,
    DotWeights,
    Euclidean,
    FixedDelays,
    FixedSupports,
    Fluctuation,
    GradientPairs,
    IntegrateScale,
    LeakyScale,
    LeakyTimes,
    Magnitude,
    MeanStd,
    Patches,
    Phase,
    PlainDepth,
    PotentialStatistics,
    RandomWeights,
    ResidualDepth,
    SupportSearch,
    TemporalGrid,
    TemporalMemory,
    TemporalShare,
    TemporalSpread,
    VanRossum,
    WidthSupports,
)
from sswim.steps.pairs import lower_triangle

REST = torch.zeros(1, 12, 3)  # signals (senders, steps, samples) that do not matter

VARIANTS = {
    "TEMPORAL": {
        "grid": TemporalGrid,
        "spread": TemporalSpread,
        "share": TemporalShare,
        "memory": TemporalMemory,
        "leaky": LeakyTimes,
    },
    "METRICS": {
        "l2": Euclidean,
        "cosine": Cosine,
        "magnitude": Magnitude,
        "phase": Phase,
        "low": Band,
        "high": Band,
        "class": ClassDistance,
    },
    "PAIRS": {"gradient": GradientPairs, "spread": GradientPairs},
    "WEIGHTS": {"dot": DotWeights, "dist": DistWeights, "random": RandomWeights},
    "NORMALIZERS": {
        "mean-std": MeanStd,
        "fluctuation": Fluctuation,
        "diverse": Diverse,
        "leaky": LeakyScale,
        "integrate": IntegrateScale,
    },
    "PATCHES": {"whitened": Patches, "plain": Patches},
    "DEPTH": {"plain": PlainDepth, "residual": ResidualDepth},
    "DELAYS": {"correlation": CorrelationDelays, "zero": FixedDelays},
    "SUPPORTS": {"search": SupportSearch, "width": WidthSupports, "fixed": FixedSupports},
}


def test_the_table_lists_every_public_variant():
    tables = {name: {k: type(v) for k, v in getattr(steps, name).items()} for name in VARIANTS}
    assert tables == VARIANTS
    listed = {cls.__name__ for table in VARIANTS.values() for cls in table.values()}
    public = {name for name in steps.__all__ if not name.isupper()}
    assert public - listed == {"VanRossum", "PotentialStatistics", "ReceptiveFields"}


# --- temporal parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPORAL)
@pytest.mark.parametrize(("l", "L"), [(1, 1), (1, 2), (2, 2)])
def test_temporal_parameters_are_admissible_and_depend_on_the_arguments_alone(name, l, L, generator):
    step, signals = TEMPORAL[name], torch.randn(3, 20, 15, generator=generator)
    found, again = (step.assign(l, L, neurons=37, window=20, horizon=5, signals=signals) for _ in range(2))
    tau, sigma, varsigma = found
    for value, same in zip(found, again, strict=True):
        assert value.shape == (37,) and value.dtype == torch.float64 and torch.isfinite(value).all()
        assert torch.equal(value, same)
    assert (tau >= 0).all() and (tau < 20).all() and (sigma > 0).all() and (varsigma > 0).all()
    assert len(sigma.unique()) > 5 and (name == "leaky" or len(tau.unique()) > 5), "neurons differ"
    if name != "memory":
        rest = step.assign(l, L, neurons=37, window=20, horizon=5, signals=torch.zeros_like(signals))
        assert all(torch.equal(a, b) for a, b in zip(found, rest, strict=True))


@pytest.mark.parametrize(("window", "longest"), [(15, 9.0), (100, 60.0), (3, 4.0)])
def test_shared_times_are_parts_of_the_window(window, longest):
    step = TemporalShare()
    assert step == TEMPORAL["share"] == TemporalShare(max_delay=0.3, min_support=3.0, max_support=0.6)
    for l, L in [(1, 1), (1, 2), (2, 2)]:  # layers do not matter
        tau, sigma, varsigma = step.assign(l, L, neurons=23, window=window, horizon=1, signals=REST)
        for i in range(23):
            assert tau[i] == pytest.approx(i / 23 * 0.3 * window)
            assert sigma[i] == pytest.approx((i % 10) / 9 * (longest - 3) + 3)  # at least one step more than the least
        assert varsigma.tolist() == [3.0] * 23


def test_temporal_parameters_follow_the_formula():
    step, N, O, H = TEMPORAL["grid"], 23, 30, 7
    for l, L in [(1, 1), (1, 2), (2, 2)]:
        tau, sigma, varsigma = step.assign(l, L, neurons=N, window=O, horizon=H, signals=REST)
        for i in range(1, N + 1):
            assert tau[i - 1] == pytest.approx((i - 1) / N * l * (O / 2) / L)
            assert sigma[i - 1] == pytest.approx(((i - 1) % 10) / 9 * 45 + 5)
        assert varsigma.tolist() == [5.0] * N


def test_delays_that_do_not_grow_with_depth():
    alone = TemporalGrid().assign(1, 1, neurons=7, window=30, horizon=7, signals=REST)[0]
    for layer in (1, 2):
        assert torch.equal(
            TemporalGrid(growing=False).assign(layer, 2, neurons=7, window=30, horizon=7, signals=REST)[0], alone
        )


def test_longest_delay_is_the_horizon_where_that_exceeds_the_window():
    tau, _, _ = TemporalGrid().assign(1, 1, neurons=1000, window=12, horizon=96, signals=REST)
    assert tau.max() == pytest.approx(96 * 0.999)
    _, sigma, _ = TemporalGrid(cycle=1).assign(1, 1, neurons=3, window=12, horizon=96, signals=REST)
    assert sigma.tolist() == [5.0] * 3


@pytest.mark.parametrize(("l", "L"), [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("window", [12, 168])
def test_spread_delays_and_supports_fill_their_plane_and_stay_in_the_window(l, L, window):
    step = TEMPORAL["spread"]
    tau, sigma, varsigma = step.assign(l, L, neurons=400, window=window, horizon=7, signals=REST)
    longest, widest = 0.6 * window / L, max(0.3 * window / L, 1.0)
    assert 0 <= tau.min() and tau.max() <= longest and sigma.min() >= 1 and sigma.max() <= widest + 1e-9
    u, v = (tau / longest) ** (2 / 3), torch.log(sigma) / max(np.log(widest), 1e-9)
    cells = torch.histogramdd(torch.stack([u, v], dim=1), bins=[4, 4], range=[0.0, 1.0, 0.0, 1.0]).hist
    assert cells.min() >= 20 or widest == 1  # 25 in each of 16 cells, were it perfect
    assert varsigma.tolist() == [3.0] * 400


# --- pseudometrics -------------------------------------------------------------------------------------------------

SIGNALS = arrays(np.float64, (4, 8, 2), elements=st.floats(-10, 10).map(lambda v: round(v, 3)))
LIFTED = {f"van rossum {name}": VanRossum(m, Hat(), 3.0) for name, m in EMBEDDINGS.items()}
ALL_METRICS = {**METRICS, **LIFTED, "band": Band(0.2, 0.7)}


@pytest.mark.parametrize("name", ALL_METRICS)
@given(x=SIGNALS)
@settings(max_examples=25, deadline=None)
def test_pseudometric_axioms(name, x):
    d = ALL_METRICS[name].pairwise(torch.from_numpy(x))
    assert d.shape == (4, 4)
    assert torch.isfinite(d).all()
    assert (d >= 0).all()
    assert (d.diagonal() == 0).all()
    torch.testing.assert_close(d, d.T)
    through = (d[:, :, None] + d[None, :, :]).amin(dim=1)  # shortest way over a third sample
    assert (d <= through + 1e-6).all()


@pytest.mark.parametrize("name", [*EMBEDDINGS, "band"])  # spike trains are not shifted
def test_constant_shifts_do_not_matter(name, generator):
    x = torch.randn(5, 12, 3, generator=generator)
    shifted = x + torch.tensor([4.0, -2.0, 0.5])
    d = ALL_METRICS[name]
    torch.testing.assert_close(d.pairwise(x), d.pairwise(shifted), atol=1e-4, rtol=1e-4)


def full_fourier(x):
    x = x - x.mean(axis=1, keepdims=True)
    return np.fft.fft(x, axis=1, norm="ortho"), np.abs(np.fft.fftfreq(x.shape[1])) * 2


def phases(x):
    f, _ = full_fourier(x)
    size = np.abs(f)
    return np.where(size > 1e-9, f / np.where(size > 1e-9, size, 1), 0)


def band(low, high):
    def embed(x):
        f, omega = full_fourier(x)
        return f * ((omega >= low) & ((omega < high) | (high == 1)))[None, :, None]

    return embed


LITERAL_EMBEDDINGS = {
    "l2": lambda x: x - x.mean(axis=1, keepdims=True),
    "cosine": lambda x: np.stack([v / np.linalg.norm(v) for v in x - x.mean(axis=1, keepdims=True)]),
    "magnitude": lambda x: np.abs(full_fourier(x)[0]),
    "phase": phases,
    "low": band(0, 0.5),
    "high": band(0.5, 1),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("steps_", [7, 12])
def test_distance_equals_its_definition_over_the_whole_spectrum(name, steps_, generator):
    x = torch.randn(6, steps_, 3, generator=generator, dtype=torch.float64)
    e = LITERAL_EMBEDDINGS[name](x.numpy()).reshape(6, -1)
    expected = np.array([[np.linalg.norm(a - b) for b in e] for a in e])
    np.testing.assert_allclose(EMBEDDINGS[name].pairwise(x), expected, atol=1e-7)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_blocks_of_channels_equal_the_whole(name, generator, monkeypatch):
    x = torch.randn(6, 10, 7, generator=generator, dtype=torch.float64)
    whole = EMBEDDINGS[name].pairwise(x)
    monkeypatch.setattr("sswim.steps.pairs.BLOCK_BYTES", 64 * 6 * 10 * 2)  # two channels at a time
    torch.testing.assert_close(EMBEDDINGS[name].pairwise(x), whole)


def test_what_each_embedding_is_blind_to(generator):
    x = torch.randn(1, 16, 2, generator=generator, dtype=torch.float64)
    pair = lambda y: torch.cat([x, y])  # noqa: E731
    assert Cosine().pairwise(pair(3 * x))[0, 1] < 1e-6 < Euclidean().pairwise(pair(3 * x))[0, 1]
    assert Phase().pairwise(pair(3 * x))[0, 1] < 1e-6
    assert Magnitude().pairwise(pair(x.roll(5, dims=1)))[0, 1] < 1e-6 < Phase().pairwise(pair(x.roll(5, dims=1)))[0, 1]
    fast = torch.cos(torch.pi * torch.arange(16.0))[None, :, None].double()
    assert Band(0, 0.5).pairwise(pair(x + fast))[0, 1] < 1e-6 < Band(0.5, 1).pairwise(pair(x + fast))[0, 1]


def test_van_rossum_filters_with_the_kernel(generator):
    spikes = (torch.rand(4, 20, 3, generator=generator) < 0.3).double()
    taps = Morlet()(torch.arange(20, dtype=torch.float64) / 6.0).numpy()
    filtered = np.apply_along_axis(lambda s: np.convolve(s, taps)[:20], 1, spikes.numpy())
    lifted = VanRossum(Euclidean(), Morlet(), 6.0).pairwise(spikes.byte())
    torch.testing.assert_close(lifted, Euclidean().pairwise(torch.from_numpy(filtered)))


def test_noise_of_flat_channels_has_no_phase():
    flat = torch.full((2, 12, 1), 0.1)
    flat[1] += 1e-9
    assert Phase().pairwise(flat)[0, 1] == 0


# --- pairs ---------------------------------------------------------------------------------------------------------


def test_probabilities_sum_to_one_and_follow_the_formula(generator):
    d_in, d_out = torch.rand(2, 15, generator=generator, dtype=torch.float64)
    p = GradientPairs(epsilon=0.1).log_probabilities(d_in, d_out, torch.ones(6, dtype=torch.bool)).exp()
    expected = d_out / (d_in + 0.1)
    torch.testing.assert_close(p, expected / expected.sum())


def test_flat_order_is_that_of_the_lower_triangle(generator):
    matrix = torch.arange(49).reshape(7, 7)
    flat = lower_triangle(matrix)
    pairs = GradientPairs().draw(torch.zeros(21, dtype=torch.float64), 21, generator)
    assert set(map(tuple, pairs.tolist())) == {(n, m) for n in range(7) for m in range(n)}
    one_hot = torch.full((21,), -math.inf, dtype=torch.float64)
    for k in range(21):
        one_hot[k] = 0
        n, m = GradientPairs().draw(one_hot, 1, generator)[0].tolist()
        assert matrix[n, m] == flat[k]
        one_hot[k] = -math.inf


def test_every_admissible_pair_is_reachable_and_no_other(generator):
    ok = torch.tensor([True, True, False, True])
    log_p = GradientPairs().log_probabilities(torch.ones(6), torch.ones(6), ok)
    seen = {tuple(p) for _ in range(60) for p in GradientPairs().draw(log_p, 1, generator).tolist()}
    assert seen == {(1, 0), (3, 0), (3, 1)}


def test_drawing_without_replacement_follows_the_sequential_law(generator):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    draws = [tuple(map(tuple, GradientPairs().draw(p.log(), 2, generator).tolist())) for _ in range(4000)]
    pair = [(1, 0), (2, 0), (2, 1)]
    for a in range(3):
        for b in range(3):
            expected = 0 if a == b else p[a] * p[b] / (1 - p[a])
            assert draws.count((pair[a], pair[b])) / 4000 == pytest.approx(float(expected), abs=0.03)


def test_two_samples_are_enough(generator):
    log_p = GradientPairs().log_probabilities(torch.ones(1), torch.ones(1), torch.ones(2, dtype=torch.bool))
    assert GradientPairs().draw(log_p, 1, generator).tolist() == [[1, 0]]


def test_more_neurons_than_pairs_draw_them_again(generator):
    log_p = torch.tensor([0.0, -math.inf, 0.0], dtype=torch.float64)
    found = GradientPairs().draw(log_p, 5, generator).tolist()
    assert found[:2] == found[2:4] and found[4] == found[0] and sorted(found[:2]) == [[1, 0], [2, 1]]
    none = torch.full((3,), -math.inf, dtype=torch.float64)  # all pairs alike
    assert sorted(GradientPairs().draw(none, 3, generator).tolist()) == [[1, 0], [2, 0], [2, 1]]
    with pytest.raises(ValueError, match="X: at least two training samples are needed to draw a pair."):
        GradientPairs().draw(none[:0], 1, generator)


def test_minimum_norm_rule():
    norms = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert GradientPairs().admissible(norms).tolist() == [True, False, True, False]  # channel 1 is dead everywhere
    assert GradientPairs().admissible(norms, every_channel=False).tolist() == [True, True, True, False]
    assert GradientPairs(minimum_norm=0).admissible(norms).tolist() == [True] * 4


@given(p=arrays(np.float64, 6, elements=st.floats(0.01, 1)))
def test_entropy_lies_between_its_bounds(p):
    entropy = GradientPairs.entropy(torch.from_numpy(p / p.sum()).log())
    assert -1e-9 <= entropy <= math.log(6) + 1e-9


def test_entropy_choice_and_its_guard():
    entropies = {("a", "a"): 3.0, ("a", "b"): 1.0, ("b", "a"): 2.0}
    assert GradientPairs(minimum_entropy=0).choose(entropies, 100) == ("a", "b")
    assert GradientPairs(minimum_entropy=1.5).choose(entropies, 100) == ("b", "a")
    assert GradientPairs().choose({**entropies, ("b", "b"): -math.inf}, 100) == ("a", "b")  # no pair can be drawn by b and b
    assert GradientPairs(minimum_entropy=None).choose(entropies, 10) == ("a", "a")  # log(10) = 2.3
    assert GradientPairs(minimum_entropy=None).choose(entropies, 1000) == ("a", "a")  # none is enough: the widest


# --- weights -------------------------------------------------------------------------------------------------------


def potentials(generator, neurons, senders, steps_):
    return torch.randn(2, neurons, senders, steps_, generator=generator, dtype=torch.float64)


def dot_objective(w, a, b):
    return ((w @ a) * (w @ b)).sum(-1)


def dist_objective(w, a, b):
    return -((w @ a - w @ b) ** 2).sum(-1)


@pytest.mark.parametrize(("name", "objective"), [("dot", dot_objective), ("dist", dist_objective)])
@pytest.mark.parametrize("shape", [(3, 10), (3, 1), (12, 4), (5, 5)])
def test_no_direction_is_better(name, objective, shape, generator):
    a, b = potentials(generator, 6, *shape)
    w = WEIGHTS[name].directions(a, b, generator)
    torch.testing.assert_close(w.norm(dim=1), torch.ones(6, dtype=torch.float64))
    for i in range(6):
        found = objective(w[i], a[i], b[i])
        others = torch.nn.functional.normalize(torch.randn(4000, shape[0], generator=generator, dtype=torch.float64))
        near = torch.nn.functional.normalize(w[i] + 0.01 * others)
        assert found <= min(float(objective(v, a[i], b[i])) for v in torch.cat([others[:400], near[:400]])) + 1e-9


@pytest.mark.parametrize("name", ["dot", "dist"])
def test_directions_are_the_eigenvectors_of_the_definition(name, generator):
    a, b = potentials(generator, 5, 6, 9)
    w = WEIGHTS[name].directions(a, b, generator)
    for i in range(5):
        if name == "dot":
            q = a[i] @ b[i].T
            vector = np.linalg.eigh(((q + q.T) / 2).numpy())[1][:, 0]
        else:
            d = a[i] - b[i]
            vector = np.linalg.eigh((d @ d.T).numpy())[1][:, -1]
        assert abs(float(w[i] @ torch.from_numpy(vector))) == pytest.approx(1, abs=1e-9)


def test_signs_are_random_but_seeded():
    a, b = potentials(torch.Generator().manual_seed(1), 200, 3, 8)
    first, again = (DotWeights().directions(a, b, torch.Generator().manual_seed(2)) for _ in range(2))
    other = DotWeights().directions(a, b, torch.Generator().manual_seed(3))
    assert torch.equal(first, again)
    flipped = (first * other).sum(dim=1) < 0
    assert 60 < int(flipped.sum()) < 140


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("senders", [4, 40])
def test_rank_deficient_potentials_neither_crash_nor_give_nan(name, senders, generator):
    """The case in which the paper's authors saw their eigen-solver fail."""
    steps_ = 8
    base = torch.randn(1, 1, steps_, generator=generator)
    cases = [
        torch.ones(1, senders, steps_),  # all senders alike
        torch.zeros(1, senders, steps_),  # silence
        base * torch.linspace(1, 2, senders)[None, :, None],  # rank one
        1e-30 * torch.randn(1, senders, steps_, generator=generator),
        1e15 * torch.randn(1, senders, steps_, generator=generator),
    ]
    cases = torch.cat(cases)
    w = WEIGHTS[name].directions(cases, cases.flip(0), generator)
    same = WEIGHTS[name].directions(cases, cases, generator)
    for result in (w, same):
        assert torch.isfinite(result).all()
        assert (result.norm(dim=1) > 0.1).all()


def test_dot_stays_in_the_range_of_the_potentials(generator):
    """With equal potentials the matrix has no negative eigenvalue; a direction without any potential must not win."""
    a = torch.zeros(1, 5, 8)
    a[0, :2] = torch.randn(2, 8, generator=generator)
    w = DotWeights().directions(a, a, generator)
    torch.testing.assert_close(w[0, 2:], torch.zeros(3, dtype=torch.float64), atol=1e-9, rtol=0)
    values = torch.linalg.eigvalsh((a[0, :2] @ a[0, :2].T).double())
    assert float(dot_objective(w[0], a[0].double(), a[0].double())) == pytest.approx(float(values[0]))


def test_eigen_solver_falls_back(monkeypatch, generator):
    a = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64)
    a = a + a.mT
    expected = torch.linalg.eigvalsh(a)

    def fail(_):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    values, vectors = safe_eigh(a)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(vectors @ torch.diag_embed(values) @ vectors.mT, a)
    monkeypatch.setattr(torch.linalg, "eigh", lambda a: (torch.full(a.shape[:-1], math.nan), a))
    torch.testing.assert_close(safe_eigh(a)[0], expected)


# --- normalisers ---------------------------------------------------------------------------------------------------


def statistics_of(potentials_, parts=1):
    statistics = PotentialStatistics()
    for part in potentials_.chunk(parts, dim=2):
        statistics.update(part.clone())
    return statistics


def test_statistics_in_one_pass_equal_the_definition(generator):
    v = torch.randn(4, 15, 20, generator=generator, dtype=torch.float64) + 3
    for parts in (1, 3, 20):
        s = statistics_of(v, parts)
        torch.testing.assert_close(s.mean, v.mean(dim=1).mean(dim=1))
        torch.testing.assert_close(s.deviation, v.std(dim=1, correction=0).mean(dim=1))
        torch.testing.assert_close(s.maximum, v.amax(dim=(1, 2)))


@pytest.mark.parametrize("step", [MeanStd(), MeanStd(0.2, 0.7, cost=2), Fluctuation(), Fluctuation(0.5)])
def test_normalised_potentials_have_the_wanted_statistics(step, generator):
    v = 5 * torch.randn(6, 30, 40, generator=generator, dtype=torch.float64) - 2
    alpha, beta, gamma = step.scale(statistics_of(v))
    after = statistics_of(alpha[:, None, None] * v + beta[:, None, None])
    S = after.deviation
    if isinstance(step, MeanStd):
        torch.testing.assert_close(after.mean, torch.full_like(S, step.mean))
        torch.testing.assert_close(S, torch.full_like(S, step.deviation))
        torch.testing.assert_close(gamma, -step.cost * S)
    else:
        assert (alpha == 1).all()
        torch.testing.assert_close(after.mean, 1 - step.distance * S)
        torch.testing.assert_close(gamma, -3 * S)


def test_neurons_that_integrate_use_all_their_steps(generator):
    v = torch.rand(40, 8, 500, generator=generator, dtype=torch.float64).cumsum(dim=1) - 1
    v[0], v[1], v[2] = 0.4, -v[1], 1e-9 * v[2]  # one that never moves, one that nothing excites, one that hardly moves
    alpha, beta, gamma = IntegrateScale().scale(statistics_of(v.clone()))
    counts = (alpha[:, None] * v[:, -1] + beta[:, None]).floor().clamp(0, 8)
    assert ((alpha[:, None] * v.amax(dim=1) + beta[:, None]).amax(dim=1) >= 1).all(), "none is silent"
    assert (counts[2:].amax(dim=1) == 8).all() and (gamma == -1).all()
    silent = (counts[2:] == 0).double().mean(dim=1)
    assert silent.min() < 0.6 and silent.max() > 0.9 and len(silent.unique()) > 20, "neurons differ"


@pytest.mark.parametrize("name", [name for name in NORMALIZERS if name != "integrate"])
def test_no_neuron_stays_silent(name, generator):
    v = torch.rand(5, 20, 10, generator=generator, dtype=torch.float64) * 1e-3  # never near the threshold
    v[0] = 0.4  # and one that never moves
    rarely = {"low": 1e-9, "high": 1e-9}
    low = {"mean-std": {"mean": -50.0}, "fluctuation": {"distance": 50.0}, "diverse": rarely, "leaky": rarely}[name]
    step = type(NORMALIZERS[name])(**low)
    alpha, beta, _ = step.scale(statistics_of(v))
    top = (alpha[:, None, None] * v + beta[:, None, None]).amax(dim=(1, 2))
    torch.testing.assert_close(top, torch.full_like(top, 1 + step.margin))


def test_silence_can_be_corrected_by_the_scale(generator):
    v = torch.randn(5, 20, 10, generator=generator, dtype=torch.float64)
    v[3:] = v[3:].clamp_max(0.1)  # never far above their mean: silent at two deviations below the threshold
    plain, other = MeanStd(0.0, 0.5).scale(statistics_of(v)), MeanStd(0.0, 0.5, silence="scale").scale(statistics_of(v))
    for a, b in zip(plain, other, strict=True):
        torch.testing.assert_close(a[:3], b[:3])  # the first three reach the threshold as they are
    alpha, beta, gamma = other
    after = statistics_of(alpha[:, None, None] * v + beta[:, None, None])
    torch.testing.assert_close(after.mean, torch.zeros_like(beta))  # a larger bias would have lifted the mean
    torch.testing.assert_close(after.maximum[3:], torch.full((2,), 1 + 1e-4, dtype=torch.float64))
    torch.testing.assert_close(gamma, -3 * after.deviation)
    assert (plain[1][3:] + plain[0][3:] * statistics_of(v).mean[3:] > 0.01).all()
    with pytest.raises(ValueError, match="MeanStd: silence must be one of 'bias', 'scale', got 'alpha'"):
        MeanStd(silence="alpha")


def test_diverse_neurons_are_above_the_threshold_in_evenly_spread_parts_of_the_time(generator):
    v = 5 * torch.randn(50, 300, 40, generator=generator, dtype=torch.float64) - 2
    alpha, beta, gamma = Diverse(0.1, 0.5, cost=1.5).scale(statistics_of(v))
    after = alpha[:, None, None] * v + beta[:, None, None]
    torch.testing.assert_close(statistics_of(after.clone()).deviation, torch.ones(50, dtype=torch.float64))
    above = (after >= 1).double().mean(dim=(1, 2)).sort().values
    torch.testing.assert_close(above, torch.linspace(0.104, 0.496, 50, dtype=torch.float64), atol=0.02, rtol=0)
    assert gamma.tolist() == [-1.5] * 50


def test_fluctuation_is_mean_std_in_other_units(generator):
    """Only the distance to the threshold in deviations matters: both fire alike."""
    v = torch.randn(4, 30, 8, generator=generator, dtype=torch.float64)
    a, b, c = MeanStd(0.2, 0.4).scale(statistics_of(v))
    x, y, z = Fluctuation(2.0).scale(statistics_of(v))
    u, w = a[:, None, None] * v + b[:, None, None], x[:, None, None] * v + y[:, None, None]
    ratio = (x / a)[:, None, None]
    torch.testing.assert_close((u - 1) * ratio, w - 1)
    torch.testing.assert_close(c * ratio.flatten(), z)


# --- output delays and supports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "lags"), [(8, 8), (8, 5), (4, 8)])
def test_correlation_equals_the_direct_sum_and_the_fourier_product(start, lags, generator):
    samples, neurons, outputs, horizon = 3, 4, 2, 5
    steps_ = start + horizon
    spikes = (torch.rand(samples, steps_, neurons, generator=generator) < 0.4).double()
    targets = torch.randn(samples, horizon, outputs, generator=generator, dtype=torch.float64)
    fast = CorrelationDelays().correlate(spikes.permute(2, 1, 0), targets, start, lags)
    np.testing.assert_allclose(fast, literal.correlation(spikes.numpy(), targets.numpy(), start, lags), atol=1e-9)

    n = 2 * steps_
    y = torch.zeros(samples, n, outputs, dtype=torch.float64)
    y[:, start:steps_] = targets - targets.mean(dim=1, keepdim=True)
    product = torch.fft.rfft(y, dim=1)[:, :, :, None] * torch.fft.rfft(spikes, n=n, dim=1).conj()[:, :, None, :]
    fourier = torch.fft.irfft(product, n=n, dim=1)[:, :lags].abs().sum(dim=(0, 3)).T
    torch.testing.assert_close(fast, fourier, atol=1e-9, rtol=1e-9)


def test_correlations_add_over_batches(generator):
    spikes = (torch.rand(4, 13, 6, generator=generator) < 0.4).double()
    targets = torch.randn(6, 5, 2, generator=generator, dtype=torch.float64)
    for step in (CorrelationDelays(), CorrelationDelays(neurons=2)):
        whole = step.correlate(spikes, targets, 8, 8)
        parts = [step.correlate(spikes[:, :, p], targets[p], 8, 8, p.start) for p in (slice(0, 3), slice(3, 6))]
        torch.testing.assert_close(sum(parts), whole)


def test_correlation_takes_what_the_work_allows():
    assert CorrelationDelays().within(1000, 300, 8 * 48 * 24) == CorrelationDelays(1000, 300)  # little work: everything
    few = CorrelationDelays().within(1000, 750, 321 * 168 * 96)
    assert (few.samples, few.neurons) == (150, 128)
    some = CorrelationDelays(work=1e9).within(1000, 750, 2500)
    assert some.samples * some.neurons == pytest.approx(4e5, rel=0.01) and some.samples == 533
    everything = CorrelationDelays(work=np.inf).within(1000, 750, 10**9)
    assert (everything.samples, everything.neurons) == (1000, 750)
    assert CorrelationDelays(samples=7, neurons=5).within(1000, 750, 10) == CorrelationDelays(7, 5)


def test_correlation_of_few_neurons_lets_all_take_their_turn(generator):
    spikes = (torch.rand(6, 13, 5, generator=generator) < 0.4).double()  # (samples, steps, neurons)
    targets = torch.randn(6, 5, 2, generator=generator, dtype=torch.float64)
    few = CorrelationDelays(neurons=2).correlate(spikes.permute(2, 1, 0), targets, 8, 8)  # each third neuron
    expected = sum(literal.correlation(spikes[[m], :, m % 3 :: 3].numpy(), targets[[m]].numpy(), 8, 8) for m in range(6))
    np.testing.assert_allclose(few, expected, atol=1e-9)


@pytest.mark.parametrize("name", DELAYS)
def test_delays_are_lags(name, generator):
    spikes = (torch.rand(4, 13, 6, generator=generator) < 0.4).double()
    targets = torch.randn(6, 5, 2, generator=generator, dtype=torch.float64)
    lags = DELAYS[name].lags(DELAYS[name].correlate(spikes, targets, 8, 8))
    assert lags.shape == (2,)
    assert ((lags >= 0) & (lags < 8)).all()


def test_support_candidates_are_power_law_spaced():
    P = SupportSearch().candidates(24)
    assert len(P) == 30 and P[0] == 1 and P[-1] < 48
    np.testing.assert_allclose(np.diff(P.numpy() ** (1 / 1.5)), (48 ** (1 / 1.5) - 1) / 30)


@pytest.mark.parametrize("name", SUPPORTS)
def test_each_output_has_a_support(name, generator):
    correlation, tried = torch.rand(4, 20, generator=generator, dtype=torch.float64), []

    def residuals(candidates, lag):
        tried.append((candidates, lag, torch.rand(len(candidates), 4, generator=generator)))
        return tried[-1][2]

    chosen = SUPPORTS[name].find(correlation, correlation.argmax(dim=1).double(), 6, residuals)
    assert chosen.shape == (4,) and bool((chosen > 0).all()) and bool((chosen <= max(12, 15)).all())
    if name == "search":
        candidates, lag, table = tried[0]
        assert lag == float(correlation.argmax(dim=1).double().median())
        torch.testing.assert_close(chosen, candidates[table.argmin(dim=0)])
    else:
        assert not tried, "nothing is tried where nothing is searched"


def test_lags_are_aggregated_by_median_or_minimum():
    lags = torch.tensor([7.0, 1.0, 3.0])
    assert SupportSearch().shared_lag(lags) == 3
    assert SupportSearch(aggregate="min").shared_lag(lags) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TemporalGrid(min_support=0), "min_support must be a finite number > 0"),
        (lambda: TemporalGrid(min_support=5, max_support=4), "max_support must be >= min_support"),
        (lambda: TemporalGrid(max_delay=-1), "max_delay must be a finite number >= 0"),
        (lambda: GradientPairs(epsilon=0), "epsilon must be a finite number > 0"),
        (lambda: Diverse(low=0.5, high=0.2), "low <= high < 1 must hold, got low=0.5, high=0.2"),
        (lambda: TemporalSpread(max_support=0), "TemporalSpread: max_support must be"),
        (lambda: TemporalShare(max_support=0), "TemporalShare: max_support must be"),
        (lambda: TemporalShare(min_support=-1), "TemporalShare: min_support must be"),
        (lambda: TemporalShare(max_delay=-1), "TemporalShare: max_delay must be"),
        (lambda: TemporalMemory(max_delay=0), "TemporalMemory: max_delay must be"),
        (lambda: MeanStd(mean=1), "mean must be below the threshold 1, got 1"),
        (lambda: MeanStd(deviation=-1), "deviation must be"),
        (lambda: Fluctuation(distance=0), "distance must be"),
        (lambda: SupportSearch(aggregate="mean"), "aggregate must be 'median' or 'min', got 'mean'"),
        (lambda: SupportSearch(count=0), "count must be a whole number >= 1"),
        (lambda: FixedDelays(-1), "value must be"),
        (lambda: FixedSupports(0), "value must be"),
        (lambda: Band(0.5, 0.5), "must satisfy 0 <= low < high <= 1"),
    ],
)
def test_steps_refuse_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- delays and supports from the data ------------------------------------------------------------------------------


def test_delays_lie_where_a_series_remembers_itself():
    t = torch.arange(60, dtype=torch.float64)
    phase = torch.arange(50, dtype=torch.float64)
    signals = torch.sin(2 * torch.pi * (t[:, None] + phase) / 20)[None]  # (1, 60, 50), a period of 20
    step = TemporalMemory(max_delay=0.9)
    memory, period = step.observe(signals)
    assert period == pytest.approx(20)
    x = signals[0] - signals[0].mean(dim=0)
    literal = torch.stack([(x[: 60 - k] * x[k:]).sum() for k in range(60)])
    torch.testing.assert_close(memory, (literal / literal[0]).abs())
    tau, sigma, _ = step.assign(1, 1, neurons=400, window=60, horizon=5, signals=signals)
    assert sigma.max() <= 10 and sigma.min() >= 1 and tau.max() < 54
    counts = torch.bincount(tau.long(), minlength=54).double()
    torch.testing.assert_close(counts / 400, memory[:54] / memory[:54].sum(), atol=1 / 400, rtol=0)
    assert counts[10] > 3 * counts[5]  # half a period back it remembers, a quarter back not


def test_signals_that_rest_have_delays_nevertheless():
    tau, sigma, _ = TemporalMemory().assign(1, 1, neurons=8, window=10, horizon=2, signals=torch.zeros(2, 10, 5))
    assert torch.isfinite(sigma).all() and tau.tolist() == list(range(8)), "spread evenly"


@pytest.mark.parametrize(("mean", "deviation"), [(0.5, 0.5), (0.2, 0.4), (-1.0, 1.5)])
def test_fluctuation_and_mean_std_make_the_same_spikes(mean, deviation):
    """Where the distance to the threshold is as many deviations: one is the other in other units."""
    g = torch.Generator().manual_seed(0)
    potentials = 3 * torch.randn(7, 40, 25, generator=g, dtype=torch.float64) + torch.randn(7, 1, 1, generator=g)
    statistics = PotentialStatistics()
    statistics.update(potentials.clone())
    spikes = []
    for step in (MeanStd(mean, deviation), Fluctuation((1 - mean) / deviation)):
        alpha, beta, gamma = step.scale(statistics)
        v = alpha[:, None, None] * potentials + beta[:, None, None]
        past, fired = torch.zeros(7, 25), []
        for t in range(40):  # a spike costs gamma, of which half is left in each further step
            now = (v[:, t] + gamma[:, None] * past >= 1).double()
            past = 0.5 * (past + now)
            fired.append(now)
        spikes.append(torch.stack(fired))
    assert 0.01 < spikes[0].mean() < 0.5
    assert torch.equal(spikes[0], spikes[1])
