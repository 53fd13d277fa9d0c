"""Weighing models on blocks in time: sums of blocks are refits without them, and what does not help gets nothing."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from sswim.forecaster import Forecaster
from sswim.readout.blocks import Part, Solver, total
from sswim.readout.stacking import _doubt, _on_simplex, _standard_error, stack
from sswim.readout.weighing import LAMBDAS, USUAL, Model, _Weighing, weigh

CHANNELS, BLOCKS, ROWS, OUTPUTS = 3, 5, 80, 4
PARTS = {
    "last": slice(0, 1),
    "one": slice(1, 2),
    "lags": slice(2, 6),
    "heights": slice(6, 7),
    "extra": slice(7, 10),
    "common": slice(10, 12),
}
FEATURES = 12
NAMES = ("the last value", "the window's mean", USUAL)


def naive():
    last, mean, usual = torch.zeros(3, FEATURES, OUTPUTS, dtype=torch.float64)
    last[0], usual[6] = 1.0, -1.0
    return dict(zip(NAMES, (last, mean, usual), strict=True))


def data(weights=None, noise=0.3, seed=0, shift=0.0):
    """Return features (blocks, C, rows, F) and targets of a linear truth, (C, F, outputs)."""
    rng = np.random.default_rng(seed)
    f = torch.from_numpy(rng.normal(shift, 1, (BLOCKS, CHANNELS, ROWS, FEATURES)))
    f[..., 1] = 1.0
    weights = torch.zeros(CHANNELS, FEATURES, OUTPUTS, dtype=torch.float64) if weights is None else weights
    y = torch.einsum("bcnf,cfr->bcnr", f, weights) + noise * torch.from_numpy(rng.normal(size=(*f.shape[:3], OUTPUTS)))
    return f, y


def sums_of(f, y):
    """Return the sums of every block, in batches."""
    batches = [slice(first, first + 33) for first in range(0, ROWS, 33)]
    return [total(Part.of(f[b, :, part], y[b, :, part]) for part in batches) for b in range(BLOCKS)]


def rows_of(f, blocks):
    return torch.cat([f[b] for b in blocks], dim=1)  # (C, rows, F)


def test_errors_from_sums_are_those_of_the_rows(generator):
    f, y = data()
    w = torch.randn(CHANNELS, FEATURES, OUTPUTS, generator=generator, dtype=torch.float64)
    part = total(sums_of(f, y)[1::2])
    left = rows_of(y, [1, 3]) - rows_of(f, [1, 3]) @ w
    torch.testing.assert_close(part.errors(w), left.square().sum(dim=(1, 2)))
    torch.testing.assert_close(
        part.pooled().errors(w[:1]), (rows_of(y, [1, 3]) - rows_of(f, [1, 3]) @ w[:1]).square().sum()[None]
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lambda_", [1e-4, 0.1, 10.0])
def test_solutions_are_ridges_on_what_the_simpler_model_leaves(shared, lambda_, generator):
    """The constant bears a ninth of the penalty, and features bear theirs without their mean."""
    start = torch.randn(CHANNELS, FEATURES, OUTPUTS, generator=generator, dtype=torch.float64)
    start = start[:1] if shared else start
    f, y = data(start.expand(CHANNELS, -1, -1) * 0.5, shift=0.7)
    size = torch.zeros(FEATURES, dtype=torch.float64)
    size[PARTS["lags"]], size[PARTS["extra"]] = 1.0, 0.3
    found = Solver(lambda: total(sums_of(f, y)), 1).solve(size, shared, start, torch.full((len(start),), lambda_))
    keep = (size > 0).numpy()
    for c in range(len(start)):
        x, t = (rows_of(v, range(BLOCKS)).flatten(0, 1) if shared else rows_of(v, range(BLOCKS))[c] for v in (f, y))
        left, x = (t - x @ start[c]).numpy(), x.numpy()
        ridge = Ridge(alpha=lambda_ * len(x)).fit(x[:, keep] * size[keep].numpy(), left)
        expected = ridge.coef_.T * size[keep, None].numpy()
        np.testing.assert_allclose((found[c] - start[c])[keep].numpy(), expected, rtol=1e-6, atol=1e-9)
        constant = left.mean(axis=0) * 9 / (9 + lambda_) - x[:, keep].mean(axis=0) @ expected
        np.testing.assert_allclose((found[c] - start[c])[1].numpy(), constant, rtol=1e-6, atol=1e-9)
        untouched = ~keep & (np.arange(FEATURES) != 1)
        assert np.array_equal(found[c][untouched].numpy(), start[c][untouched].numpy())


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("shared", [True, False])
def test_the_error_of_every_penalty_is_that_of_a_refit_without_the_block(gap, shared):
    f, y = data(torch.ones(CHANNELS, FEATURES, OUTPUTS, dtype=torch.float64) * 0.2)
    search = _Weighing(sums_of(f, y), naive(), torch.arange(OUTPUTS), 1, gap, [1.0] * BLOCKS)
    size = torch.zeros(FEATURES, dtype=torch.float64)
    size[PARTS["lags"]] = 1.0
    base, summed = Model(NAMES[0]), 0.0
    for left in range(BLOCKS):
        seen = [b for b in range(BLOCKS) if abs(b - left) > gap]
        solver = Solver(partial(total, [sums_of(f, y)[b] for b in seen]), 1)
        errors = []
        for lambda_ in LAMBDAS:
            w = solver.solve(size, shared, naive()[NAMES[0]][None], torch.full((1 if shared else CHANNELS,), float(lambda_)))
            error = (y[left] - f[left] @ w).square().sum(dim=(1, 2))
            errors.append(error.sum()[None] if shared else error)
        best_naive = min(float((y[left] - f[left] @ w).square().sum()) for w in naive().values())
        summed = summed + torch.stack(errors) / best_naive
    error, model = search.add("m", base, size, shared=shared, company=0.0)
    assert torch.equal(model.penalty, LAMBDAS[summed.argmin(dim=0)])
    assert error == pytest.approx(float(summed.amin(dim=0).sum()), rel=1e-9)


def literal_products(f, y, models, seen_of):
    """Return products of errors on each block, of models refitted on the blocks that `seen_of` says are known."""
    found = []
    for b in range(BLOCKS):
        solver = Solver(partial(total, [sums_of(f, y)[k] for k in seen_of(b)]), 1)
        weights = [m.weights(solver, naive(), {}).expand(CHANNELS, -1, -1).clone() for m in models]
        for m, w in zip(models, weights, strict=True):
            if m.name == USUAL:  # the mean of the rows that are known, whatever the scaling's mean is
                w[:, 1] += (rows_of(y, seen_of(b)) - rows_of(f, seen_of(b)) @ w).mean(dim=1)
        left = torch.stack([y[b] - f[b] @ w for w in weights])  # (M, C, rows, R)
        best_naive = min(float((y[b] - f[b] @ w).square().sum()) for w in naive().values())
        found.append(torch.einsum("mcnr,kcnr->cmk", left, left) / best_naive)
    return torch.stack(found)


@pytest.mark.parametrize("gap", [0, 1])
def test_products_are_those_of_errors_with_both_sides_known_and_with_one(gap):
    f, y = data(torch.ones(CHANNELS, FEATURES, OUTPUTS, dtype=torch.float64) * 0.1, shift=0.4)
    search = _Weighing(sums_of(f, y), naive(), torch.arange(OUTPUTS), 1, gap, [1.0] * BLOCKS)
    size = torch.zeros(FEATURES, dtype=torch.float64)
    size[PARTS["lags"]] = 1.0
    models = [Model(NAMES[1]), Model(USUAL), search.add("m", Model(NAMES[1]), size, shared=False)[1]]

    def one_side(b):
        before, after = range(0, b - gap), range(b + gap + 1, BLOCKS)
        return list(before if len(before) >= len(after) else after)

    both = literal_products(f, y, models, lambda b: [k for k in range(BLOCKS) if abs(k - b) > gap])
    sided = literal_products(f, y, models, one_side)
    assert float((both - sided).abs().max()) > 1e-3 * float(both.max()), "the two must differ, or nothing is tested"
    torch.testing.assert_close(search.products(models), (both + sided) / 2)


def test_shares_lie_on_the_simplex_and_solve_the_problem(generator):
    a = torch.randn(6, 8, 4, generator=generator, dtype=torch.float64)
    energy, price = a.mT @ a, torch.rand(6, 4, generator=generator, dtype=torch.float64)
    shares = _on_simplex(energy, price)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert float(shares.min()) >= 0
    slope = (energy @ shares[:, :, None])[:, :, 0] + price  # equal where a share is above 0, and nowhere less
    for s, g in zip(shares, slope, strict=True):
        assert float(g.min()) >= float(g[s > 1e-6].max()) - 1e-6


def truth(**parts):
    found = torch.zeros(CHANNELS, FEATURES, OUTPUTS, dtype=torch.float64)
    for name, value in parts.items():
        found[:, PARTS[name]] = value
    return found


def kept(weighed):
    return dict(zip([m.name for m in weighed.models], weighed.shares.mean(dim=0).tolist(), strict=True))


def test_a_random_walk_is_left_to_its_last_value():
    """Nothing but the last row tells of the next: everything else gets nothing, or next to it."""
    sums = sums_of(*data(truth(last=1.0), noise=1.0))
    weighed = weigh(sums, PARTS, naive())
    change = weighed.weights(total(sums)) - naive()["the last value"]
    assert float(change.abs().max()) < 0.03, "a ridge without the blocks' say would have weights of 0.1"
    plain = Ridge(alpha=1e-6).fit(rows_of(data(noise=1.0)[0], range(BLOCKS))[0], rows_of(data(noise=1.0)[1], range(BLOCKS))[0])
    assert abs(plain.coef_).max() > 0.1


def test_what_helps_is_found_and_what_does_not_steps_back():
    noise = 0.5
    lags = truth(lags=0.5)
    lags[1] *= -1  # a channel that behaves otherwise
    weighed = weigh(sums_of(*data(lags, noise)), PARTS, naive())
    shares = kept(weighed)
    assert shares["population, weights per channel"] + shares["population, shared weights adjusted per channel"] > 0.5
    f, y = data(lags, noise, seed=9)
    left = rows_of(y, range(BLOCKS)) - rows_of(f, range(BLOCKS)) @ weighed.weights(total(sums_of(*data(lags, noise))))
    assert float(left.square().mean()) < 1.06 * noise**2
    common = kept(weigh(sums_of(*data(truth(lags=0.5, common=0.5), noise)), PARTS, naive()))
    assert sum(share for name, share in common.items() if name.startswith("all channels")) > 0.9
    extra = kept(weigh(sums_of(*data(truth(lags=0.5, extra=0.5), noise)), PARTS, naive()))
    assert sum(share for name, share in extra.items() if "single" in name or "shared weights" in name) > 0.9


def test_random_walks_are_hardly_worse_off_than_with_their_last_value():
    """A block lies between its neighbours. If that were believed, forecasts would lean on a mean that tells nothing."""
    ratios = []
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=(2400, 4)).cumsum(axis=0)
        model = Forecaster(48, 96, random_state=0, verbose=0).fit(x[:1600])
        naive_error = np.mean([np.square(x[i : i + 96] - x[i - 1]).mean() for i in range(1600, len(x) - 95)])
        ratios.append(model.evaluate(x[1600 - 48 :]).rmse ** 2 / naive_error)
    assert np.mean(ratios) < 1.09, "1.06 here; 1.12 if models know both sides of every block"


def test_doubts_are_standard_errors_of_relative_gains(generator):
    errors = 1 + torch.rand(8, 2, 4, generator=generator, dtype=torch.float64)
    reference = errors[:, :, 2]
    own, together, mean = _doubt(errors, reference, torch.ones(8, dtype=torch.float64))
    for m in range(4):
        for c in range(2):
            expected = ((errors[:, c, m] - reference[:, c]) / reference[:, c]).std() / 8**0.5
            torch.testing.assert_close(own[c, m], expected)
        gains = 1 - errors[:, :, m].sum(1) / reference.sum(1)
        torch.testing.assert_close(together[m], gains.std() / 8**0.5)
        torch.testing.assert_close(mean[m], gains.mean())


def test_a_channel_that_rests_in_some_blocks_casts_no_doubt():
    """Its naive forecasts make no error there, so relative gains of the channel are as large as one likes."""
    e = torch.ones(8, 2, 3, dtype=torch.float64)
    e[:, :, 0], e[:, :, 1] = 3.0, 3.0
    e[::2, 1] = torch.tensor([1e-6, 1e-6, 0.1], dtype=torch.float64)
    alike = torch.diag_embed(e) * 0.001 + 0.999 * (e[..., None] * e[..., None, :]).sqrt()
    assert float(stack(alike, plain=2)[0][:, 2].min()) > 0.95


def test_a_linear_model_must_beat_the_naive_one_beyond_its_doubt():
    """A linear model that is ahead by 3 % on average, and by -25 to 31 % block by block, is not believed; a steady one is."""

    def share(linear, **options):
        e = torch.ones(8, 1, 3, dtype=torch.float64)
        e[:, :, 1], e[:, 0, 2] = 3.0, torch.tensor(linear, dtype=torch.float64)
        alike = torch.diag_embed(e) * 0.001 + 0.999 * (e[..., None] * e[..., None, :]).sqrt()
        return float(stack(alike, plain=2, **options)[0][0, 2])

    assert share([0.69, 1.25, 0.72, 1.22, 0.7, 1.24, 0.71, 1.23]) < 0.05
    assert share([0.97, 0.96, 0.98, 0.97, 0.97, 0.96, 0.98, 0.97]) > 0.95
    uneven = [0.9, 0.96, 0.88, 0.98, 0.91, 1.0, 0.9, 0.93]
    assert share(uneven) > share(uneven, span=20.0), "blocks that overlap are fewer than they seem"


def test_a_gain_in_one_block_alone_is_not_believed():
    """Model 2 saves half of one block's error and costs a little everywhere else: one standard error is more than its gain."""
    errors = torch.ones(8, 1, 3, dtype=torch.float64)
    errors[:, :, 0], errors[:, :, 1] = 3.0, 3.0
    plain = torch.cat([errors, errors[:, :, 2:]], dim=2)
    gain = plain.clone()
    gain[:, :, 3] = 1.02
    gain[0, :, 3] = 0.5
    spread = torch.diag_embed(gain) * 0.001 + 0.999 * (gain[..., None] * gain[..., None, :]).sqrt()
    shares, gains = stack(spread, plain=2)
    assert float(shares[0, 3]) < 0.1 and float(gains[3]) > 0
    even = plain.clone()
    even[:, :, 3] = 0.9
    shares, _ = stack(torch.diag_embed(even) * 0.001 + 0.999 * (even[..., None] * even[..., None, :]).sqrt(), plain=2)
    assert float(shares[0, 3]) > 0.9


def test_a_block_that_is_hard_to_foretell_does_not_decide_alone():
    """Model 3 is better in one block with large errors, worse by as large a part in the seven others."""
    errors = torch.ones(8, 1, 4, dtype=torch.float64)
    errors[:, :, 0], errors[:, :, 1] = 3.0, 3.0
    errors[:, :, 3] = 1.1

    def share(size):
        hard = errors.clone()
        hard[0] *= size
        hard[0, :, 3] = 0.9 * size
        alike = torch.diag_embed(hard) * 0.001 + 0.999 * (hard[..., None] * hard[..., None, :]).sqrt()
        return float(stack(alike, plain=2)[0][0, 3])

    assert share(1.0) == share(1000.0) == 0.0


def test_a_resting_channel_keeps_its_last_value():
    f, y = data(truth(lags=0.5))
    f[:, 2, :, :], y[:, 2] = 0.0, 0.0
    weighed = weigh(sums_of(f, y), PARTS, naive())
    assert weighed.shares[2].tolist() == [1.0] + [0.0] * (len(weighed.models) - 1)
    assert torch.isfinite(weighed.weights(total(sums_of(f, y)))).all()


def test_one_channel_has_no_own_weights_and_blocks_add_up():
    f, y = data(truth(lags=0.5))
    one = [Part.of(f[b, :1], y[b, :1]) for b in range(BLOCKS)]
    assert not any("own" in model.name or "all" in model.name for model in weigh(one, PARTS, naive()).models)
    whole = total(one)
    assert isinstance(whole, Part) and whole.rows == BLOCKS * ROWS
    torch.testing.assert_close(whole.gram, sum(p.gram for p in one))


def test_blocks_that_are_forgotten_decide_nothing():
    """Blocks that count next to nothing leave the choice to the others, whatever they say."""
    f, y = data(truth(lags=0.5))
    f[:2], y[:2] = data(truth(extra=2.0), seed=1)[0][:2], data(truth(extra=2.0), seed=1)[1][:2]
    says = [1e-9, 1e-9, 1.0, 1.0, 1.0]
    parts = [part.scaled(say) for part, say in zip(sums_of(f, y), says, strict=True)]
    few, all_ = weigh(parts[2:], PARTS, naive()), weigh(parts, PARTS, naive(), says=says)
    torch.testing.assert_close(few.shares, all_.shares, rtol=1e-4, atol=1e-4)


def test_standard_errors_are_those_of_the_mean(generator):
    values = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(_standard_error(values, torch.ones(7).double()), values.std(dim=0) / 7**0.5)
    torch.testing.assert_close(
        _standard_error(values, torch.tensor([2.0, 2, 2, 2, 2, 1e-14, 1e-14]).double()), values[:5].std(dim=0) / 5**0.5
    )
