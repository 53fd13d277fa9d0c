import literal
import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from sswim.network.kernels import KERNELS, Hat
from sswim.network.layer import Workspace
from sswim.readout.traces import ASSEMBLIES, Assembly, Trace
from sswim.regression import REGULARIZATION, FixedLambda, LambdaSearch, Sums

START, HORIZON = 10, 6


def spikes_and_targets(generator, samples=40, neurons=7, outputs=3, rate=0.3):
    steps = START + HORIZON
    spikes = (torch.rand(samples, steps, neurons, generator=generator) < rate).double()
    targets = 5 + torch.randn(samples, HORIZON, outputs, generator=generator, dtype=torch.float64)
    return spikes, targets


def accumulate(trace, spikes, targets, parts, dtype=torch.float64):
    equations = Sums(spikes.shape[2], targets.shape[2], HORIZON)
    for part in parts:
        equations.update(trace.features(spikes[part].permute(2, 1, 0).to(dtype)), *trace.targets(targets[part]))
    return equations


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_least_squares_on_the_stacked_design_matrix(kernel, generator):
    k = KERNELS[kernel]
    spikes, targets = spikes_and_targets(generator)
    trace = Trace(k, 2.0, 3.0, START, HORIZON)
    equations = accumulate(trace, spikes, targets, torch.arange(40).split(9))
    A, y = literal.design(k, 2.0, 3.0, spikes, START, HORIZON), targets.reshape(-1, 3).numpy()
    solution, _, rank, _ = np.linalg.lstsq(A, y, rcond=None)
    assert rank == A.shape[1]
    weights, bias = equations.solve(0.0)
    np.testing.assert_allclose(bias, solution[0], rtol=1e-8)
    np.testing.assert_allclose(weights, solution[1:], atol=1e-8)
    residual = ((A @ solution - y) ** 2).sum(axis=0)
    np.testing.assert_allclose(equations.squared_error(weights, bias), residual, rtol=1e-8)
    least, sharp = equations.least_residual()
    assert sharp
    np.testing.assert_allclose(least, residual, rtol=1e-8)
    Q = np.linalg.qr(A)[0]
    np.testing.assert_allclose(least, (y**2).sum(axis=0) - ((Q.T @ y) ** 2).sum(axis=0), rtol=1e-8)


def test_equals_sklearn_ridge(generator):
    spikes, targets = spikes_and_targets(generator)
    trace = Trace(Hat(), 2.0, 3.0, START, HORIZON)
    equations = accumulate(trace, spikes, targets, [slice(None)])
    A = literal.design(Hat(), 2.0, 3.0, spikes, START, HORIZON)[:, 1:]
    ridge = Ridge(alpha=0.3 * len(spikes)).fit(A, targets.reshape(-1, 3).numpy())
    weights, bias = equations.solve(0.3)
    np.testing.assert_allclose(weights, ridge.coef_.T, rtol=1e-8)
    np.testing.assert_allclose(bias, ridge.intercept_, rtol=1e-8)


@pytest.mark.parametrize("lambda_", [1e-3, 0.3, 20.0])
def test_a_penalised_bias_is_a_weight_like_any_other(lambda_, generator):
    spikes, targets = spikes_and_targets(generator)
    train, held_out = spikes_and_targets(generator, samples=30)
    trace = Trace(Hat(), 2.0, 3.0, START, HORIZON)
    equations = accumulate(trace, spikes, targets, torch.arange(40).split(9))
    A, y = literal.design(Hat(), 2.0, 3.0, spikes, START, HORIZON), targets.reshape(-1, 3).numpy()
    expected = np.linalg.solve(A.T @ A + 40 * lambda_ * np.eye(A.shape[1]), A.T @ y)
    weights, bias, _ = FixedLambda(lambda_, penalize_bias=True).solve(equations, equations)
    np.testing.assert_allclose(np.vstack([bias, weights]), expected, rtol=1e-7, atol=1e-10)
    values = np.linalg.eigvalsh(A.T @ A + 40 * lambda_ * np.eye(A.shape[1]))
    condition = equations.with_constant().condition(torch.tensor([lambda_], dtype=torch.float64))
    np.testing.assert_allclose(condition, values[-1] / values[0], rtol=1e-6)
    # The paper's bound, which only counts spikes.
    counts = (spikes.sum(dim=1) ** 2).sum()
    assert float(condition) <= 1 + (HORIZON + trace.energy * counts / 40) / lambda_
    # Sums that grow forget what was derived from them.
    equations.update(trace.features(train.permute(2, 1, 0).clone()), *trace.targets(held_out))
    both = accumulate(trace, torch.cat([spikes, train]), torch.cat([targets, held_out]), [slice(None)])
    torch.testing.assert_close(equations.with_constant().gram, both.with_constant().gram)


def test_a_known_answer_is_found(generator):
    """Features and targets built from an SVD, so that the solution is known."""
    U = torch.linalg.qr(torch.randn(60, 5, generator=generator, dtype=torch.float64))[0]
    U = torch.linalg.qr(U - U.mean(dim=0))[0]  # orthonormal and mean-free
    V = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))[0]
    s = torch.tensor([10.0, 3.0, 1.0, 0.1, 0.01], dtype=torch.float64)
    A = U * s @ V.T + 7
    c = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    y = U @ c + 3
    equations = Sums(5, 2)
    equations.update(A.T[:, None, :].clone(), y.T[:, None, :])
    weights, bias = equations.solve(0.01)
    expected = V @ ((s / (s**2 + 60 * 0.01))[:, None] * c)
    torch.testing.assert_close(weights, expected, atol=1e-9, rtol=1e-7)
    torch.testing.assert_close(bias, 3 - 7 * expected.sum(dim=0), atol=1e-8, rtol=1e-7)


@pytest.mark.parametrize("order", [1, -1])
def test_batches_in_any_order_and_merging_equal_the_whole(order, generator):
    spikes, targets = spikes_and_targets(generator)
    trace = Trace(Hat(), 1.0, 4.0, START, HORIZON)
    whole = accumulate(trace, spikes, targets, [slice(None)])
    parts = list(torch.arange(40).split(7))[::order]
    pieces = accumulate(trace, spikes, targets, parts)
    merged = accumulate(trace, spikes, targets, parts[:2])
    merged.merge(accumulate(trace, spikes, targets, parts[2:]))
    merged.merge(Sums(7, 3, HORIZON))
    for other in (pieces, merged):
        assert other.samples == 40
        for name in ("gram", "cross", "energy", "feature_mean", "target_mean"):
            torch.testing.assert_close(getattr(other, name), getattr(whole, name))


def test_merge_refuses_other_shapes():
    with pytest.raises(ValueError, match="merge: both must have the same number of features"):
        Sums(3, 1).merge(Sums(4, 1))


def test_large_means_lose_nothing_in_float32(generator):
    spikes, targets = spikes_and_targets(generator, samples=200)
    trace = Trace(Hat(), 2.0, 3.0, START, HORIZON)
    parts = torch.arange(200).split(50)
    plain, _ = accumulate(trace, spikes, targets, parts).solve(1e-3)
    shifted, bias = accumulate(trace, spikes, targets + 1e4, parts, torch.float32).solve(1e-3)
    torch.testing.assert_close(shifted, plain, atol=1e-4, rtol=1e-3)
    assert bias.mean() == pytest.approx(1e4, rel=1e-2)


@pytest.mark.parametrize("horizon", [1, 2, 6, 24])
@pytest.mark.parametrize("support", [0.5, 3.0, 40.0])
def test_basis_is_orthonormal_and_starts_with_the_constant(horizon, support):
    basis = Trace(Hat(), 3.0, support, 30, horizon).basis
    torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
    torch.testing.assert_close(basis[:, 0], torch.full((horizon,), horizon**-0.5, dtype=torch.float64))


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_dependent_and_silent_neurons_add_nothing(generator, dtype, rtol):
    spikes, targets = spikes_and_targets(generator)
    trace = Trace(Hat(), 2.0, 3.0, START, HORIZON)
    expected, sharp = accumulate(trace, spikes, targets, [slice(None)]).least_residual()
    assert sharp
    silent = torch.cat([spikes, torch.zeros_like(spikes[:, :, :2])], dim=2)
    residual, sharp = accumulate(trace, silent, targets, [slice(None)], dtype).least_residual()
    assert sharp
    torch.testing.assert_close(residual, expected, rtol=rtol, atol=0)
    twins = torch.cat([spikes, spikes[:, :, :2], spikes[:, :, :1]], dim=2)
    residual, sharp = accumulate(trace, twins, targets, [slice(None)], dtype).least_residual()
    assert sharp == (dtype == torch.float64)
    torch.testing.assert_close(residual, expected, rtol=rtol, atol=0)
    A = literal.design(Hat(), 2.0, 3.0, twins, START, HORIZON)
    y = targets.reshape(-1, 3).numpy()
    literal_residual = ((A @ np.linalg.lstsq(A, y, rcond=None)[0] - y) ** 2).sum(axis=0)
    np.testing.assert_allclose(residual, literal_residual, rtol=rtol)


def test_dropped_singular_values_are_bounded_by_the_tolerance(generator):
    spikes = (torch.rand(5, START + 24, 30, generator=generator) < 0.3).double()
    full = Trace(Hat(), 2.0, 20.0, START, 24)
    psi = torch.einsum("hr,nrb->nhb", full.basis, full.features(spikes))
    for tolerance in (1e-3, 1e-2, 1e-1):
        thin = Trace(Hat(), 2.0, 20.0, START, 24, tolerance)
        assert thin.basis.shape[1] <= full.basis.shape[1]
        error = psi - torch.einsum("hr,nrb->nhb", thin.basis, thin.features(spikes))
        largest = torch.linalg.matrix_norm(full.basis @ full._matrix, 2)
        assert (error.norm(dim=1) <= tolerance * largest * spikes.norm(dim=1) + 1e-9).all()
    assert thin.basis.shape[1] < full.basis.shape[1] / 2


def test_a_workspace_changes_nothing_but_where_things_lie(generator):
    spikes = (torch.rand(5, START + HORIZON, 30, generator=generator) < 0.3).double()
    work, trace = Workspace(), Trace(Hat(), 2.0, 3.0, START, HORIZON)
    for part in (spikes, spikes[:, :, :7].contiguous()):
        torch.testing.assert_close(trace.features(part, work), trace.features(part))
    assert work.take("features", spikes, 3).data_ptr() == work.take("features", spikes, 2, 2).data_ptr()
    assert work.take("features", spikes.float(), 3).dtype == torch.float32


def test_representatives_are_few_and_near():
    lags = torch.tensor([10.0, 10.0, 11.0, 40.0, 41.0, 41.0])
    supports = torch.tensor([5.0, 5.0, 5.0, 20.0, 20.0, 20.0])
    two = Assembly(traces=2).representatives(lags, supports).tolist()
    assert two in ([[10.0, 5.0], [40.0, 20.0]], [[10.0, 5.0], [41.0, 20.0]])  # one of each cluster, the frequent one near
    everything = torch.stack([lags, supports], dim=1).unique(dim=0)
    assert torch.equal(ASSEMBLIES["exact"].representatives(lags, supports), everything)
    assert torch.equal(Assembly(traces=4).representatives(lags, supports), everything)
    assert len(Assembly(traces=1).representatives(lags, supports)) == 1


@pytest.mark.parametrize("bad", [{"tolerance": -1}, {"tolerance": 1}, {"traces": 0}, {"skip": 0}])
def test_assembly_refuses(bad):
    with pytest.raises(ValueError, match="Assembly"):
        Assembly(**bad)


def test_lambda_search_equals_a_loop_over_ridge(generator):
    spikes, targets = spikes_and_targets(generator, samples=80)
    targets[:, :, 0] += 0.5 * spikes[:, -HORIZON:, 0]
    trace = Trace(Hat(), 0.0, 2.0, START, HORIZON)
    train = accumulate(trace, spikes[:50], targets[:50], [slice(None)])
    held_out = accumulate(trace, spikes[50:], targets[50:], [slice(None)])
    weights, bias, chosen = LambdaSearch(1e-4, 10, 9, extend=False).solve(train, held_out)
    A = literal.design(Hat(), 0.0, 2.0, spikes, START, HORIZON)[:, 1:]
    y, cut = targets.reshape(-1, 3).numpy(), 50 * HORIZON
    grid = np.logspace(-4, 1, 9)
    for i in range(3):
        fits = [Ridge(alpha=50 * lam).fit(A[:cut], y[:cut, i]) for lam in grid]
        errors = [((fit.predict(A[cut:]) - y[cut:, i]) ** 2).sum() for fit in fits]
        best = int(np.argmin(errors))
        assert float(chosen[i]) == pytest.approx(grid[best])
        np.testing.assert_allclose(weights[:, i], fits[best].coef_, atol=1e-8)
        np.testing.assert_allclose(float(bias[i]), fits[best].intercept_, rtol=1e-8)


def test_validation_in_the_basis_of_all_candidates_chooses_the_same(generator):
    spikes = (torch.rand(120, START + HORIZON, 90, generator=generator) < 0.3).double()
    targets = spikes[:, -HORIZON:, :1] + 0.3 * torch.randn(120, HORIZON, 1, generator=generator, dtype=torch.float64)
    trace = Trace(Hat(), 0.0, 2.0, START, HORIZON)
    train = accumulate(trace, spikes[:80], targets[:80], [slice(None)])
    held_out = accumulate(trace, spikes[80:], targets[80:], [slice(None)])
    search = LambdaSearch()
    basis = search.basis(train)
    assert basis.shape[1] < 0.3 * 90
    torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
    for lambda_ in torch.logspace(-8, 6, 9, dtype=torch.float64).tolist():  # candidates lie in its span
        w, _ = train.solve(lambda_)
        assert (w - basis @ (basis.T @ w)).norm() <= 1e-8 * w.norm()
    few = Sums(basis.shape[1], 1, HORIZON)
    features = trace.features(spikes[80:].permute(2, 1, 0).contiguous())
    few.update(torch.einsum("nf,nrb->frb", basis, features), *trace.targets(targets[80:]))
    for mine, expected in zip(search.solve(train, few, basis), search.solve(train, held_out), strict=True):
        torch.testing.assert_close(mine, expected)
    many = accumulate(trace, spikes[:80], targets[:80].expand(-1, -1, 40), [slice(None)])
    assert search.basis(many) is None  # a Gram matrix is cheaper


def test_lambda_grid_is_extended_only_at_its_ends(generator):
    spikes, targets = spikes_and_targets(generator, samples=80)
    trace = Trace(Hat(), 0.0, 2.0, START, HORIZON)
    train = accumulate(trace, spikes[:50], targets[:50], [slice(None)])
    held_out = accumulate(trace, spikes[50:], targets[50:], [slice(None)])
    _, _, kept = LambdaSearch(extend=False).solve(train, held_out)
    assert kept.max() == pytest.approx(0.5)  # pure noise wants more regularisation than the grid offers
    weights, bias, extended = LambdaSearch().solve(train, held_out)
    assert extended.max() > 0.5
    error, less = held_out.squared_error(weights, bias), LambdaSearch(extend=False).solve(train, held_out)[:2]
    assert (error <= held_out.squared_error(*less) + 1e-9).all()


def test_an_output_chooses_alone_as_in_company(generator):
    spikes, targets = spikes_and_targets(generator, samples=80)
    targets[:, :, 0] += 2.0 * spikes[:, -HORIZON:, 0]
    targets[:, :, 1] += 0.1 * spikes[:, -HORIZON:, 1]
    trace = Trace(Hat(), 0.0, 2.0, START, HORIZON)
    parts = [(spikes[:50], targets[:50]), (spikes[50:], targets[50:])]
    train, held_out = (accumulate(trace, s, y, [slice(None)]) for s, y in parts)
    together = LambdaSearch().solve(train, held_out)
    assert len(together[2].unique()) > 1
    for i in range(3):
        alone = LambdaSearch().solve(*(accumulate(trace, s, y[:, :, [i]], [slice(None)]) for s, y in parts))
        for mine, expected in zip(alone, together, strict=True):
            torch.testing.assert_close(mine[..., 0], expected[..., i])


def test_no_lambda_below_rounding(generator):
    spikes, targets = spikes_and_targets(generator, samples=80)
    targets = spikes[:, -HORIZON:, :3].double()  # without noise: the less penalty the better
    trace = Trace(Hat(), 0.0, 0.6, START, HORIZON)
    for dtype in (torch.float32, torch.float64):
        sums = [accumulate(trace, spikes[p], targets[p], [slice(None)], dtype) for p in (slice(50), slice(50, 80))]
        chosen = LambdaSearch(low=1e-9).solve(*sums)[2]
        floor = torch.finfo(dtype).eps * torch.linalg.eigvalsh(sums[0].gram).max() / 50
        assert chosen.min() >= floor
        assert (chosen.min() > 1e-7) == (dtype == torch.float32)


def test_fixed_lambda_does_not_search(generator):
    spikes, targets = spikes_and_targets(generator)
    trace = Trace(Hat(), 0.0, 2.0, START, HORIZON)
    train = accumulate(trace, spikes, targets, [slice(None)])
    weights, bias, chosen = FixedLambda(0.2).solve(train, train)
    torch.testing.assert_close(weights, train.solve(0.2)[0])
    assert chosen.tolist() == [0.2] * 3
    assert FixedLambda(0.2).basis(train).shape == (len(train.gram), 0)


def test_every_named_variant_is_tested_here():
    kinds = {k: type(v) for k, v in REGULARIZATION.items()}
    assert kinds == {"search": LambdaSearch, "paper": LambdaSearch, "fixed": FixedLambda}


@pytest.mark.parametrize("bad", [{"low": 0}, {"low": 1, "high": 0.1}, {"count": 0}])
def test_lambda_search_refuses(bad):
    with pytest.raises(ValueError, match="LambdaSearch"):
        LambdaSearch(**bad)
