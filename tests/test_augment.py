"""Augmentation: copies of training samples are those that would be made by hand, and fits are those with all of them."""

import numpy as np
import pytest
import torch

from sswim import Classifier
from sswim.classes import labelled_samples, training_order
from sswim.data import Augmentation, EventBatch, ExactEvents, Mirror, Shifts, StoredEvents, Stretch
from sswim.data.augment import Augmented, Change, Scene, augmented, combine
from sswim.data.events import as_events
from sswim.data.inputs import InputEncoder
from sswim.data.labelled import LabelledSamples
from sswim.data.spikes import Poisson
from sswim.data.windows import Split
from sswim.hidden import changes_of
from sswim.network import Convolution
from sswim.readout import Counts
from sswim.regression import FixedLambda
from sswim.sealed import read_sealed, write_sealed

RANDOM = np.random.default_rng(0)


def shift(image, rows, columns, fill=0):
    """Move an image (rows, columns, ...) with numpy's roll; what comes in from the other side is overwritten."""
    moved = np.roll(image, (rows, columns), axis=(0, 1))
    for axis, by in enumerate((rows, columns)):
        gone = [slice(None)] * image.ndim
        gone[axis] = slice(0, by) if by > 0 else slice(image.shape[axis] + by, None)
        if by:
            moved[tuple(gone)] = fill
    return moved


SHIFTS = [(-1, 0), (0, -1), (0, 1), (1, 0)]
DIAGONAL = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c]


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3), (2, 5, 4)])
@pytest.mark.parametrize("diagonal", [False, True])
def test_a_shifted_image_is_rolled_with_nothing_coming_in(shape, diagonal):
    image = RANDOM.integers(1, 9, shape)
    first = np.moveaxis(image, 0, -1) if shape[0] == 2 else image
    changes = Shifts(1, diagonal=diagonal).changes(Scene(shape, timed=False))
    expected = [shift(first, *by) for by in (DIAGONAL if diagonal else SHIFTS)]
    for change, moved in zip(changes, expected, strict=True):
        moved = np.moveaxis(moved, -1, 0) if shape[0] == 2 else moved
        found = change.values(torch.from_numpy(image).flatten()[None], 0)
        np.testing.assert_array_equal(found.reshape(shape), moved)


def test_a_mirrored_image_is_flipped():
    image = RANDOM.integers(1, 9, (5, 4, 3))
    (change,) = Mirror().changes(Scene(image.shape, timed=False))
    found = change.values(torch.from_numpy(image).flatten()[None], 0)
    np.testing.assert_array_equal(found.reshape(image.shape), image[:, ::-1])


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3])
def test_a_stretched_signal_is_interpolated(factor):
    signal, at = RANDOM.normal(size=(9, 2)), np.arange(9) / factor
    found = Change(stretch=factor).values(torch.from_numpy(signal)[None], 0)[0]
    expected = np.stack([np.interp(at, np.arange(9), column) for column in signal.T], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_augmentations_are_combined_in_all_ways():
    scene = Scene((4, 3), timed=True)
    changes = combine([Shifts(1), Mirror(), Stretch((0.9, 1.1))], scene)
    assert len(changes) == 5 * 2 * 3 and changes[0].source is None and changes[0].stretch == 1
    image = RANDOM.integers(1, 9, (4, 3))
    made = [image, *(shift(image, *by) for by in SHIFTS)]
    expected = {(tuple(one.ravel()), f) for f in (1.0, 0.9, 1.1) for m in made for one in (m, m[:, ::-1])}
    x = torch.from_numpy(image).flatten()[None]
    found = {(tuple(Change(change.source).values(x, 0)[0].tolist()), change.stretch) for change in changes}
    assert found == expected


def dense_events(events, channels, factor=1.0, by=0, steps=20):
    """Count events on steps, one by one."""
    found = np.zeros((steps, channels))
    for time, channel in zip(*events, strict=True):
        if time * factor < steps and 0 <= channel + by < channels:
            found[min(int(np.round(time * factor)), steps - 1), channel + by] += 1
    return found


@pytest.mark.parametrize("stored", [False, True])
def test_events_are_changed_before_they_are_put_on_steps(stored):
    samples = [(np.sort(RANDOM.uniform(0, 24, n)), RANDOM.integers(0, 6, n)) for n in (30, 0, 17)]
    if stored:
        ends = np.cumsum([len(t) for t, _ in samples])
        given = StoredEvents(*(np.concatenate([s[k] for s in samples]) for k in (0, 1)), ends)
    else:
        given = samples
    streams = as_events(given, inputs=6, window=20)
    streams.exact = False
    changes = combine([Shifts(2), Stretch((0.7,))], Scene((6,), timed=True))
    source = Augmented(LabelledSamples(streams, torch.tensor([0, 1, 2]), 3, 1, 2.0), torch.tensor([2, 0, 1]), changes)
    batch = source.inputs(slice(None))
    assert isinstance(batch, EventBatch) and batch.whole and len(source) == 30 and source.originals == 3
    labels = source.targets(slice(None))[:, 0].argmax(dim=1).tolist()
    found = {(label, one.numpy().tobytes()) for label, one in zip(labels, batch.dense(), strict=True)}
    expected = {
        (number, dense_events(sample, 6, factor, by).astype(np.float32).tobytes())
        for number, sample in enumerate(samples)
        for by in (0, -2, -1, 1, 2)
        for factor in (1.0, 0.7)
    }
    assert found == expected
    some = torch.tensor([7, 2, 28])
    np.testing.assert_array_equal(source.inputs(some).dense(), batch.dense()[some])


def test_originals_come_first_and_any_run_of_copies_is_fair():
    X = torch.arange(10.0)[:, None] * 100 + torch.arange(1, 10)
    changes = combine([Shifts(1, diagonal=True)], Scene((3, 3), timed=False))
    source = Augmented(LabelledSamples(X, torch.arange(10), 10, 1, 2.0), torch.arange(10), changes)
    every = source.inputs(slice(None))
    np.testing.assert_array_equal(every[:10], X)
    assert len({tuple(one.tolist()) for one in every}) == len(source) == 90
    which = source._find(slice(10, 90))[1].reshape(8, 10)  # one row for each round of all samples
    np.testing.assert_array_equal(which[:, :8].sort(dim=1).values, torch.arange(1, 9).expand(8, -1))


def test_copies_draw_spikes_of_their_own():
    x = torch.full((2, 9), 0.5)
    samples = LabelledSamples(x, torch.tensor([0, 1]), 2, 1, 2.0, encoder=Poisson(steps=30), seed=3)
    still = (Change(), Change(), Change())
    source = Augmented(samples, torch.arange(2), still)
    spikes = source.inputs(slice(None)).dense()
    np.testing.assert_array_equal(spikes[:2], samples.inputs(slice(None)).dense())
    assert len({one.numpy().tobytes() for one in spikes}) == 6
    np.testing.assert_array_equal(source.inputs(torch.tensor([4])).dense(), spikes[4:5])


def images(count=160, side=6):
    """Return images of two classes."""
    y = np.arange(count) % 2
    X = RANDOM.uniform(0, 1, (count, side, side))
    X[y == 1, 1:4, 2:4] += 1.0
    X[:, 0, 0], X[:, 0, 1] = 0.0, 2.0  # all have the same range
    return X, y


CASES = {
    "squares": (Counts(loss="squared_error", regularization=FixedLambda(1e-3)), {}),
    "class weights": (Counts(loss="squared_error", regularization=FixedLambda(1e-3)), {"class_weight": {0: 1.0, 1: 3.0}}),
    "processes": (Counts(loss="squared_error", regularization=FixedLambda(1e-3)), {"executor": 2}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hidden", [(20,), (Convolution(6, 3, pool=2),)])
def test_sums_are_those_of_all_copies_made_by_hand(name, hidden):
    X, y = images()
    readout, options = CASES[name]
    options = {"dtype": "float64", **options}
    model = Classifier(hidden, encoder="image", readout=readout, augment=Shifts(1), random_state=0, verbose=0, **options)
    model.fit(X, y)
    plain = Classifier(hidden, encoder="image", readout=readout, random_state=0, verbose=0, **options).fit(X, y)
    for one, two in zip(model.network_.layers, plain.network_.layers, strict=True):
        assert torch.equal(one.weights, two.weights)  # originals alone decide about hidden layers
    train, held_out = model.report_.solution.record.sums
    fitted, low = plain.model_, float(X.min())
    values, labels = fitted.inputs(X, "Classifier"), torch.from_numpy(y)
    order, kept = training_order(values, labels, model.validation, fitted.past.seed)
    mine = order[:kept].numpy()
    copies = np.concatenate([X[mine], *(np.stack([shift(x, *by, fill=low) for x in X[mine]]) for by in SHIFTS)])
    again = labelled_samples(
        fitted.inputs,
        fitted.inputs(copies, "Classifier"),
        labels[mine].repeat(5),
        2,
        readout,
        class_weights=fitted.past.class_weights,
    )
    look = plain.network_.trace_reader(plain.network_.readout.constants)
    with torch.no_grad():
        features = plain.network_.readout.features(look(again.inputs(slice(None)))).double()
    weights = again.weights(slice(None))
    weights = torch.ones(len(again), dtype=torch.float64) if weights is None else weights
    centred = features - (features * weights).sum(dim=1, keepdim=True) / weights.sum()
    assert train.samples == pytest.approx(float(weights.sum())) and model.report_.samples == kept
    np.testing.assert_allclose(train.gram, (centred * weights) @ centred.T, rtol=1e-8, atol=1e-8 * float(train.gram.max()))
    np.testing.assert_allclose(held_out.gram, plain.report_.solution.record.sums[1].gram, rtol=1e-12)


@pytest.mark.parametrize("memory", ["1GB", "1MB"])
def test_the_log_loss_takes_copies_within_memory(memory):
    X, y = images(400)
    options = {"encoder": "image", "random_state": 0, "verbose": 0, "memory": memory}
    model = Classifier((20,), augment=[Shifts(1), Mirror()], **options).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.9
    again = Classifier((20,), augment=[Shifts(1), Mirror()], **options).fit(X[:300], y[:300])
    np.testing.assert_array_equal(again.decision_function(X[300:]), model.decision_function(X[300:]))


def test_shifts_of_training_samples_help_with_shifted_samples():
    X, y = images(300, 8)
    moved = np.stack([shift(x, 1, 0) for x in X[150:]])
    options = {"encoder": "image", "random_state": 0, "verbose": 0, "readout": Counts(loss="squared_error")}
    plain = Classifier((100,), **options).fit(X[:150], y[:150]).score(moved, y[150:])
    assert Classifier((100,), augment=Shifts(1), **options).fit(X[:150], y[:150]).score(moved, y[150:]) > plain


@pytest.mark.parametrize("kind", ["images", "memmap", "signals", "events", "exact"])
def test_all_kinds_of_samples_are_augmented(kind, tmp_path):
    X, y = images(60)
    options = {"augment": Shifts(1), "encoder": "image"}
    if kind == "memmap":
        np.save(tmp_path / "x.npy", X)
        inputs = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "images":
        inputs = X
    elif kind == "signals":
        inputs, options = X, {"augment": [Shifts(1), Stretch((0.8, 1.2))]}
    else:
        inputs = [tuple(np.nonzero(x > 0.6)) for x in X]
        encoder = ExactEvents(steps=6, inputs=6, exact=kind == "exact")
        options = {"augment": [Shifts(1), Stretch((0.8, 1.2))], "encoder": encoder}
    options |= {"readout": Counts(loss="squared_error"), "random_state": 0, "verbose": 0}
    model = Classifier((20,), **options).fit(inputs, y)
    copies = 5 if kind in ("images", "memmap") else 9
    assert model.report_.solution.record.sums[0].samples == copies * model.report_.samples
    assert model.score(inputs, y) > 0.8
    if kind == "memmap":
        np.testing.assert_array_equal(
            model.decision_function(inputs), Classifier((20,), **options).fit(X, y).decision_function(X)
        )


def test_updates_get_copies_too():
    X, y = images(200)
    options = {
        "encoder": "image",
        "augment": Shifts(1),
        "readout": Counts(loss="squared_error", regularization=FixedLambda(1e-3)),
        "dtype": "float64",
        "random_state": 0,
        "verbose": 0,
    }
    model = Classifier((15,), **options).fit(X[:120], y[:120])
    whole = Classifier((15,), **options).fit(X[:120], y[:120]).refit(X, y)
    model.partial_fit(X[120:], y[120:])
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-5)
    assert model.report_.samples == whole.report_.samples
    assert model.report_.solution.record.sums[0].samples == 5 * model.report_.samples
    model.partial_fit(X[:50], y[:50], forget=20.0)


def test_gradients_see_copies():
    X, y = images(60)
    model = Classifier((8,), encoder="rate", augment=Mirror(), training="sample+gradient", random_state=0, verbose=0)
    assert model.set_params(training__epochs=1).fit(X, y).training_ is not None


def test_files_hold_augmentations_and_earlier_files_load(tmp_path):
    X, y = images(60)
    augment = [Shifts(1, diagonal=True), Mirror()]
    model = Classifier((8,), encoder="image", augment=augment, random_state=0, verbose=0).fit(X, y)
    model.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.augment == augment
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    stretched = Classifier((8,), augment=Stretch((0.9, 1.2)), random_state=0, verbose=0).fit(X, y)
    stretched.save(tmp_path / "stretched")
    assert Classifier.load(tmp_path / "stretched").augment == Stretch((0.9, 1.2))
    file = read_sealed(tmp_path / "model", "sswim")
    del file.header["params"]["augment"]
    write_sealed(tmp_path / "earlier", "sswim", {k: v for k, v in file.header.items() if k != "checksum"}, file.tensors)
    assert Classifier.load(tmp_path / "earlier").augment is None


class UpsideDown(Augmentation):
    """An augmentation of a user's own: one copy, upside down."""

    def changes(self, scene):
        numbers = scene.numbers("UpsideDown")
        return [Change(torch.from_numpy(numbers[0, ::-1].ravel().copy()))]


def test_a_checkpoint_of_other_copies_is_not_used(tmp_path):
    X, y = images(60)
    options = {"encoder": "image", "readout": Counts(loss="squared_error"), "random_state": 0, "verbose": 0}
    found = []
    for augment in (Mirror(), UpsideDown()):
        model = Classifier((8,), augment=augment, **options).fit(X, y, checkpoint=tmp_path / "sums")
        found.append(model.report_.solution.record.sums[0].gram)
    assert not torch.equal(*found)


@pytest.mark.parametrize(
    "augment, options, message",
    [
        (Mirror(), {"flat": True}, "augment: Mirror must know how channels are laid out"),
        (Shifts(1), {"flat": True}, "augment: Shifts must know how channels are laid out"),
        (Mirror(), {"flat": True, "fields": (36,)}, "augment: Mirror needs an image with rows and columns"),
        (Shifts(6), {}, r"augment: Shifts\(6\) moves everything out of an axis of 6 channels"),
        (Stretch(), {}, "augment: Stretch needs samples with a time of their own"),
        ("shifts", {}, r"augment must be None, an object such as Shifts\(1\)"),
        ([Shifts(1), 3], {}, "augment must be None.* got 3"),
        (Mirror, {}, "augment must be None"),
        (Shifts(1), {"fields": (2, 3, 3, 2)}, "augment: Shifts takes channels laid out along 1 or 2 axes"),
    ],
)
def test_errors_name_augment(augment, options, message):
    X, y = images(20)
    X = X.reshape(20, -1) if options.pop("flat", False) else X
    with pytest.raises((TypeError, ValueError), match=message):
        Classifier((5,), encoder="rate", augment=augment, verbose=0, **options).fit(X, y)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Shifts(0), "Shifts: reach"),
        (lambda: Stretch(()), "Stretch: factors must hold at least one number"),
        (lambda: Stretch(0.9), "Stretch: factors must hold at least one number"),
        (lambda: Stretch((0.9, -1.0)), "Stretch: factors"),
    ],
)
def test_augmentations_check_their_settings(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_no_augmentation_leaves_a_split_as_it_is():
    samples = LabelledSamples(torch.rand(4, 4), torch.tensor([0, 1, 0, 1]), 2, 1, 2.0)
    split = Split.at(samples, 3)
    inputs = InputEncoder(None, (2, 4), (2, 4), None)
    assert augmented(split, changes_of(None, inputs, None)) is split
    assert len(augmented(split, changes_of(Shifts(1), inputs, None)).train) == 9
