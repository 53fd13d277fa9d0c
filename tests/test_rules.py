"""Signs, ties and close calls are decided by rules, not by what a solver or a processor happens to return."""

import pytest
import torch

from sswim.algebra import index_of_least, safe_eigh
from sswim.regression import LambdaSearch, Sums
from sswim.steps import CorrelationDelays, DistWeights, DotWeights, GradientPairs, SupportSearch
from sswim.steps import weights as weight_steps


def another_solver(seed):
    """Return an eigensolver that is as right as the usual one: other signs, and other bases where eigenvalues are equal."""
    generator = torch.Generator().manual_seed(seed)

    def solve(a):
        values, vectors = safe_eigh(a)
        flips = torch.where(torch.rand(values.shape, generator=generator) < 0.5, -1.0, 1.0).double()
        vectors = vectors * flips[:, None]
        for n, value in enumerate(values):
            scale = float(value.abs().max().clamp_min(1e-300))
            first = 0
            for last in range(1, len(value) + 1):
                if last == len(value) or value[last] - value[last - 1] > 1e-10 * scale:
                    turn = torch.linalg.qr(torch.randn(last - first, last - first, generator=generator, dtype=torch.float64)).Q
                    vectors[n, :, first:last] = vectors[n, :, first:last] @ turn
                    first = last
        return values, vectors

    return solve


def pairs(case):
    """Return potentials of pairs (neurons, senders, steps)."""
    g = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 20, 6, 9, generator=g, dtype=torch.float64)
    if case == "equal eigenvalues":  # three senders that respond alike, orthogonal to each other in time
        first, second = torch.zeros(2, 20, 6, 9, dtype=torch.float64)
        for k in range(3):
            first[:, k, k], second[:, k, k] = 1.0, -1.0
        first[:, 3:, 6:], second[:, 3:, 6:] = 0.3 * torch.randn(2, 20, 3, 3, generator=g, dtype=torch.float64)
    if case == "no negative eigenvalue":
        second = first.clone()
    if case == "many senders":
        first, second = torch.randn(2, 20, 40, 5, generator=g, dtype=torch.float64)
    return first, second


@pytest.mark.parametrize("step", [DotWeights(), DistWeights()])
@pytest.mark.parametrize("case", ["generic", "equal eigenvalues", "no negative eigenvalue", "many senders"])
def test_weights_do_not_depend_on_the_solver(step, case, monkeypatch):
    first, second = pairs(case)
    expected = step.directions(first, second, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.linalg.vector_norm(expected, dim=1), torch.ones(20, dtype=torch.float64))
    for seed in range(3):
        monkeypatch.setattr(weight_steps, "safe_eigh", another_solver(seed))
        found = step.directions(first, second, torch.Generator().manual_seed(0))
        # Eigenvectors of float64 matrices, with gaps that are not small.
        torch.testing.assert_close(found, expected, atol=1e-8, rtol=0)


def test_neurons_of_an_eigenspace_differ():
    first, second = pairs("equal eigenvalues")
    w = DotWeights().directions(first, second, torch.Generator().manual_seed(0))
    alike = (w @ w.T).abs().fill_diagonal_(0)
    assert torch.linalg.vector_norm(w[:, :3], dim=1).min() > 0.99  # within the eigenspace
    assert alike.max() < 1 - 1e-6 and alike.median() < 0.9


def test_signs_are_random_and_of_the_seed():
    first, second = pairs("generic")
    w = DotWeights().directions(first, second, torch.Generator().manual_seed(0))
    largest = w.gather(1, w.abs().argmax(dim=1, keepdim=True))[:, 0]
    assert 3 < int((largest > 0).sum()) < 17
    torch.testing.assert_close(weight_steps.fix_signs(w), weight_steps.fix_signs(-w))
    parts = torch.Generator().manual_seed(0)
    in_parts = torch.cat([DotWeights().directions(first[p], second[p], parts) for p in (slice(0, 16), slice(16, 20))])
    torch.testing.assert_close(in_parts, w, atol=1e-12, rtol=0)


def test_equally_good_candidates():
    noise = torch.tensor([1.0, 1 + 1e-9, 1 - 1e-9, 2.0])[:, None].double()
    assert index_of_least(noise).tolist() == index_of_least(noise.flip(0).flip(0)).tolist() == [2]
    assert index_of_least(torch.tensor([3.0, 1.0, 2.0])).item() == 1
    assert index_of_least(torch.tensor([-1.0, -2.0, -2.0, 5.0])).item() == 2  # rounding may make an error negative
    assert index_of_least(torch.full((3,), torch.inf)).item() == 2


@pytest.mark.parametrize("change", [0.0, 1e-8, -1e-8])
def test_rounding_does_not_choose(change):
    correlation = torch.tensor([[1.0, 5.0, 5.0 + change, 2.0]], dtype=torch.float64)
    assert CorrelationDelays().lags(correlation).tolist() == [1.0]
    residuals = torch.tensor([[2.0], [1.0 + change], [1.0], [3.0]], dtype=torch.float64)
    candidates = torch.arange(1.0, 5.0)
    assert SupportSearch().choose(candidates, residuals).tolist() == [3.0]
    entropies = {("l2", "l2"): 3.0 + change * 1e-3, ("l2", "phase"): 3.0, ("phase", "l2"): 4.0}
    assert GradientPairs(minimum_entropy=0.0).choose(entropies, 10) == ("l2", "l2")


def test_of_equally_good_penalties_the_largest_is_taken():
    train, held_out = Sums(1, 1), Sums(1, 1)
    for sums in (train, held_out):  # a feature that says nothing: every penalty is as good
        sums.update(torch.zeros(1, 1, 10), torch.arange(10.0, dtype=torch.float64).reshape(1, 1, 10))
    _, _, chosen = LambdaSearch(1e-3, 1.0, 4, extend=False).solve(train, held_out)
    assert chosen.item() == pytest.approx(1.0)
