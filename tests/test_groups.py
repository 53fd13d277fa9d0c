"""Groups of samples that stay together: splits by groups, and penalties chosen by leaving groups out."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut

from sswim import Classifier, Counts, LambdaSearch
from sswim.classes import check_groups, training_order
from sswim.data import Shifts
from sswim.data.windows import Split
from sswim.options import Run
from sswim.readout.leaving import best_penalty, leave_groups_out
from sswim.readout.leaving import parts_of as parts_by_group
from sswim.regression import Sums

X, Y = load_digits(return_X_y=True)
X, Y = X[:400], Y[:400]
GROUPS = np.arange(400) // 100
SPEAKERS = np.array(["ann", "bob", "cleo", "dan"])[GROUPS]


def classifier(**options):
    readout = Counts(loss="squared_error", regularization=options.pop("regularization", "search"))
    return Classifier(**{"hidden": (40,), "readout": readout, "random_state": 0, "verbose": 0, **options})


def parts_of(features, targets, groups):
    """Return the sums of each group."""
    found = []
    for group in np.unique(groups):
        sums, mine = Sums(features.shape[1], targets.shape[1]), groups == group
        sums.update(torch.from_numpy(features[mine].T[:, None].copy()), torch.from_numpy(targets[mine].T[:, None].copy()))
        found.append(sums)
    return found


def literal_errors(features, targets, groups, penalties):
    """Return the squared error on groups that are left out, for each penalty: a ridge regression for each of both."""
    errors = []
    for penalty in penalties:
        error = 0.0
        for train, test in LeaveOneGroupOut().split(features, targets, groups):
            ridge = Ridge(alpha=len(train) * penalty).fit(features[train], targets[train])
            error += ((ridge.predict(features[test]) - targets[test]) ** 2).sum()
        errors.append(error)
    return np.array(errors)


@pytest.mark.parametrize("validation", [0.01, 1 / 6, 0.5, 0.99])
def test_whole_groups_are_held_out(validation):
    group = check_groups(SPEAKERS, len(Y))
    order, kept = training_order(torch.from_numpy(X), torch.from_numpy(Y), validation, 3, group)
    train, held_out = set(SPEAKERS[order[:kept]]), set(SPEAKERS[order[kept:]])
    assert sorted(order.tolist()) == list(range(len(Y)))
    assert train and held_out and not train & held_out
    assert len(held_out) == {0.01: 1, 1 / 6: 1, 0.5: 2, 0.99: 3}[validation], "as many groups as it takes, never all"


def test_the_split_without_groups_is_as_before():
    values, labels = torch.from_numpy(X), torch.from_numpy(Y)
    one, two = (training_order(values, labels, 1 / 6, 5, *rest) for rest in ((), (None,)))
    assert torch.equal(one[0], two[0]) and one[1] == two[1]


@pytest.mark.parametrize("scale", [0.02, 1.0, 30.0], ids=["small features", "middling ones", "large ones"])
def test_the_penalty_is_that_of_the_literal_double_loop(scale):
    rng = np.random.default_rng(0)
    groups = rng.integers(4, size=120)
    features = scale * (rng.normal(size=(120, 6)) + 2 * rng.normal(size=(4, 6))[groups])
    targets = features @ rng.normal(size=(6, 3)) / scale + rng.normal(size=(120, 3)) + rng.normal(size=(4, 3))[groups]
    search = LambdaSearch(low=1e-3, high=0.5, count=9)
    found = best_penalty(parts_of(features, targets, groups), search).value
    ratio = (search.high / search.low) ** (1 / 8)
    grid = search.low * ratio ** np.arange(-20, 40)
    errors = literal_errors(features, targets, groups, grid)
    inside = np.flatnonzero((grid > 0.999e-3) & (grid < 0.5001))
    best = inside[errors[inside].argmin()]
    for way in (1, -1):  # past the end while the error falls
        while best in (inside[0], inside[-1]) or best not in inside:
            if errors[best + way] >= (1 - 1e-6) * errors[best] or not 1e-8 <= grid[best + way] <= 1e6:
                break
            best += way
    assert found == pytest.approx(grid[best], rel=1e-9)


def test_a_search_that_may_not_be_extended_stays_on_its_grid():
    rng = np.random.default_rng(1)
    groups, targets = np.arange(60) % 3, rng.normal(size=(60, 2))
    parts = parts_of(rng.normal(size=(60, 4)), targets, groups)  # noise alone: the larger, the better
    assert best_penalty(parts, LambdaSearch(extend=False)).value == pytest.approx(0.5)
    assert best_penalty(parts, LambdaSearch()).value > 1


def test_parts_hold_whole_groups_and_all_samples():
    samples = classifier().fit(X, Y).model_.samples(X)
    samples._groups = check_groups(SPEAKERS, len(Y))
    parts = parts_by_group(Split.at(samples, 250), 3)
    assert [sorted(set(SPEAKERS[part.index])) for part in parts] == [["ann", "dan"], ["bob"], ["cleo"]]
    assert sorted(torch.cat([part.index for part in parts]).tolist()) == list(range(len(Y)))


def test_a_fit_takes_the_penalty_for_groups_left_out():
    """The literal way: features of all samples, and a ridge regression for each penalty and each group left out."""
    model = classifier().fit(X, Y, groups=SPEAKERS)
    samples = model.model_.samples(X)
    with torch.no_grad():
        features = model.network_.trace_reader(model.network_.readout.constants)(samples.inputs(slice(None)))
    targets = 2.0 * (2 * np.eye(10)[Y] - 1)
    ratio = (1e-5 / 0.5) ** (1 / 31)
    grid = 0.5 * ratio ** np.arange(-20, 32)  # that of `LambdaSearch`, and past its upper end
    errors = literal_errors(features.double().T.numpy(), targets, GROUPS, grid)
    chosen = model.report_.solution.lambdas
    assert len(set(chosen.tolist())) == 1
    assert float(chosen[0]) == pytest.approx(grid[errors.argmin()], rel=1e-6)
    assert model.report_.validation_samples == 100


def test_penalties_grow_where_groups_differ():
    """Each group has a level of its own in all pixels, and within a group that level tells the class."""
    rng = np.random.default_rng(0)
    groups = np.arange(600) // 100
    y = rng.integers(2, size=600)
    direction = rng.normal(size=(6, 20))
    seen = 0.3 * rng.normal(size=(600, 20)) + 0.3 * y[:, None] * np.ones(20) + y[:, None] * direction[groups]
    plain, grouped = (classifier(fields=None).fit(seen, y, groups=some) for some in (None, groups))
    assert float(grouped.report_.solution.lambdas[0]) > 3 * float(plain.report_.solution.lambdas.max())


@pytest.mark.parametrize("options", [{"readout": "direct"}, {"readout": "voltage"}, {"augment": Shifts(1), "fields": (8, 8)}])
def test_groups_go_with_other_options(options, tmp_path):
    model = classifier(**options).fit(X, Y, groups=SPEAKERS)
    model.save(tmp_path / "model.sswim")
    loaded = Classifier.load(tmp_path / "model.sswim")
    np.testing.assert_array_equal(loaded.decision_function(X[:50]), model.decision_function(X[:50]))
    again = classifier(**options).fit(X, Y, groups=SPEAKERS)
    np.testing.assert_array_equal(again.decision_function(X[:50]), model.decision_function(X[:50]))


def test_class_weights_count_in_the_choice():
    plain, weighted = (classifier(class_weight=w).fit(X, Y, groups=SPEAKERS) for w in (None, {0: 30.0}))
    assert not np.array_equal(plain.decision_function(X), weighted.decision_function(X))


def test_updates_keep_the_penalty():
    model = classifier().fit(X[:300], Y[:300], groups=SPEAKERS[:300])
    before = model.report_.solution.lambdas.clone()
    model.partial_fit(X[300:], Y[300:])
    assert torch.equal(model.report_.solution.lambdas, before)


def test_little_memory_looks_at_the_groups_held_out():
    samples = classifier().fit(X, Y).model_.samples(X)
    samples._groups = check_groups(SPEAKERS, len(Y))
    with Run("1GB", 0, 0) as run:
        run.budget = 1000
        assert leave_groups_out(Split.at(samples, 250), 40, LambdaSearch(), None, run) == LambdaSearch()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (SPEAKERS[:-1], r"groups must hold one label per sample, of shape \(400,\), got the shape \(399,\)"),
        (SPEAKERS[:, None], r"groups must hold one label per sample, of shape \(400,\), got the shape \(400, 1\)"),
        (np.full(400, "ann"), "groups must hold at least two groups, got one: .*ann.*Omit groups"),
        (np.where(GROUPS == 0, np.nan, GROUPS), "groups must name a group for each sample, got missing values"),
        (np.where(GROUPS == 0, None, SPEAKERS), "groups must name a group for each sample, got missing values"),
        (3, r"groups must hold one label per sample, of shape \(400,\), got the shape \(\)"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, Y, groups=groups)


def test_groups_of_one_class_each_are_refused():
    with pytest.raises(ValueError, match="holds one class only.*groups of several classes"):
        classifier().fit(X[Y < 2], Y[Y < 2], groups=Y[Y < 2])
