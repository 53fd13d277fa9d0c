"""Data sets of events, in the files they are published in."""

import gzip
import math
import sys

import numpy as np
import pytest
import torch

from sswim import Classifier
from sswim.data import Shifts, Stretch
from sswim.data.aligned import align
from sswim.data.augment import Scene
from sswim.data.events import ExactEvents, StoredEvents, as_events, is_events
from sswim.datasets import from_tonic, load_nmnist, load_shd
from sswim.network import Convolution
from sswim.sealed import read_sealed, write_sealed


def write_shd(folder, part, count, seed=0, times=np.float16, lose=None):
    """Write a file as it is published, and return what is in it. `lose` drops a dataset, or a value of one."""
    h5py = pytest.importorskip("h5py", reason="pip install 'sswim[hdf5]' to run this test")
    rng = np.random.default_rng(seed)
    numbers = [0, *rng.integers(1, 60, count - 1).tolist()]  # one is empty
    all_times = [np.sort(rng.uniform(0, 1.2, n)).astype(times) for n in numbers]
    units = [rng.integers(0, 700, n).astype(np.uint16) for n in numbers]
    labels = rng.integers(0, 20, count).astype(np.uint16)
    with h5py.File(folder / f"shd_{part}.h5", "w") as file:
        for name, values, kind in (("times", all_times, times), ("units", units, np.uint16)):
            data = file.create_dataset(f"spikes/{name}", (count,), dtype=h5py.vlen_dtype(np.dtype(kind)))
            for n, value in enumerate(values):
                data[n] = value[1:] if lose == f"a value of {name}" and n == 2 else value
        file["labels"] = labels[1:] if lose == "a label" else labels
        file["extra/speaker"] = np.zeros(count, dtype=np.uint16)
        file["extra/keys"] = np.array([b"zero", b"one"] * 10)
        if lose is not None and lose in file:
            del file[lose]
        if lose == "a range":
            file["spikes/units"][1] = np.full(numbers[1], 700, dtype=np.uint16)
    return all_times, units, labels


@pytest.mark.parametrize("times", [np.float16, np.float32])
@pytest.mark.parametrize("packed", [False, True])
def test_shd_is_read_back(tmp_path, monkeypatch, times, packed):
    written = [write_shd(tmp_path, part, count, count, times) for part, count in (("train", 8), ("test", 5))]
    if packed:
        for path in list(tmp_path.glob("*.h5")):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    for merge in (10, 1):
        found = load_shd(merge=merge)
        for (all_times, units, labels), events, got in zip(written, found[::2], found[1::2], strict=True):
            assert got.tolist() == labels.tolist() and got.dtype == np.int64 and len(events) == len(labels)
            for (t, c), time, unit in zip(events, all_times, units, strict=True):
                assert t.dtype == np.float64 and t.tolist() == time.astype(np.float64).tolist()
                assert c.dtype == np.int64 and c.tolist() == [int(u) // merge for u in unit]
    assert as_events(load_shd(tmp_path)[0], scale=100, inputs=70).window <= 121


def test_missing_and_damaged_shd(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError,
        match=r"neither shd_train.h5 nor shd_train.h5.gz in .*Get https://zenkelab.org/datasets/shd_train.h5.gz and put",
    ):
        load_shd(tmp_path)
    write_shd(tmp_path, "train", 4)
    with pytest.raises(FileNotFoundError, match="Get https://zenkelab.org/datasets/shd_test.h5.gz and put it there"):
        load_shd(tmp_path)
    write_shd(tmp_path, "test", 4)
    with pytest.raises(ValueError, match="merge must be a whole number >= 1, got 0"):
        load_shd(tmp_path, merge=0)
    for lose, message in (
        ("spikes/units", "must hold spikes/times, spikes/units, labels, but spikes/units is missing"),
        ("labels", "but labels is missing"),
        ("spikes", "but spikes/times, spikes/units is missing"),
        ("a label", "damaged, 4 samples of times, 4 of units and 3 labels"),
        ("a value of times", r"damaged, sample 2 has \d+ times but \d+ units"),
        ("a range", "sample 1 has unit 700, but there are 700, numbered from 0"),
    ):
        write_shd(tmp_path, "test", 4, lose=lose)
        with pytest.raises(ValueError, match=f"shd_test.h5: .*{message}"):
            load_shd(tmp_path)
    path = tmp_path / "shd_test.h5"
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"something", b""):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="shd_test.h5: damaged, it can ?not be read as an HDF5 file .* Fetch it again"):
            load_shd(tmp_path)
    path.unlink()
    (tmp_path / "shd_test.h5.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(ValueError, match="shd_test.h5.gz: damaged"):
        load_shd(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"load_shd needs h5py: run `pip install 'sswim\[hdf5\]'`"):
        load_shd(tmp_path)


def to_bin(x, y, p, t):
    """Return 40 bits per event, a marker wherever time goes beyond a further 2**13 us, and times counted from it."""
    out, markers = bytearray(), 0
    for x_e, y_e, p_e, t_e in zip(x, y, p, t, strict=True):
        while t_e >= (markers + 1) * 2**13:
            out += bytes([0, 240, 0, 0, 0])
            markers += 1
        bits = (int(x_e) << 32) | (int(y_e) << 24) | (int(p_e) << 23) | (int(t_e) - markers * 2**13)
        out += bits.to_bytes(5, "big")
    return bytes(out)


def camera(seed, count=150, last=100_000):
    rng = np.random.default_rng(seed)
    x, y, p = rng.integers(0, 34, count), rng.integers(0, 34, count), rng.integers(0, 2, count)
    return x, y, p, np.sort(rng.integers(0, last, count))


def check_cameras(found, samples, labels, test):
    for events, got, here in ((*found[:2], ~test), (*found[2:], test)):
        assert got.tolist() == labels[here].tolist() and got.dtype == np.int64
        for one, n in zip(events, np.flatnonzero(here), strict=True):
            assert set(one.dtype.names) == {"x", "y", "p", "t"} and one["t"].dtype == np.int64
            for name, value in zip("xypt", samples[n], strict=True):
                np.testing.assert_array_equal(one[name], value)


def test_nmnist_from_either_form(tmp_path, monkeypatch):
    labels, test = np.array([0, 0, 4, 9, 0, 9]), np.array([False] * 4 + [True] * 2)
    samples = [camera(n) for n in range(6)]
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"neither nmnist_small.npz nor N-MNIST/Train/.*Get Train.zip .*SSWIM_DATA"):
        load_nmnist()
    for n, sample in enumerate(samples):
        folder = tmp_path / "N-MNIST" / ("Test" if test[n] else "Train") / str(labels[n])
        if test[n] and n == 4:
            with pytest.raises(FileNotFoundError, match="nor N-MNIST/Test/<digit>"):
                load_nmnist()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:05d}.bin").write_bytes(to_bin(*sample))
    check_cameras(load_nmnist(), samples, labels, test)
    (folder / "00005.bin").write_bytes(to_bin(*samples[5])[:-1])
    with pytest.raises(ValueError, match=r"00005.bin: damaged, its length must be a multiple of 5 bytes, got \d+"):
        load_nmnist()
    x, y, p, t = (np.concatenate(values) for values in zip(*samples, strict=True))
    data = {"px": x.astype(np.uint8), "py": y.astype(np.uint8), "pol": p.astype(np.uint8), "t_us": t.astype(np.uint32)}
    data |= {"n_events": np.full(6, 150), "label": labels.astype(np.int8), "is_test": test}
    path = tmp_path / "nmnist_small.npz"
    np.savez(path, **data)
    check_cameras(load_nmnist(tmp_path), samples, labels, test)
    for change, message in (
        ({"px": data["px"][1:]}, "damaged, unequal lengths"),
        ({"label": labels[1:]}, "damaged, unequal lengths"),
        ({"n_events": np.full(6, 149)}, "damaged, px holds 900 values but should hold 894"),
    ):
        np.savez(path, **{**data, **change})
        with pytest.raises(ValueError, match=message):
            load_nmnist(tmp_path)
    path.write_bytes(b"something")
    with pytest.raises(ValueError, match="damaged, it can ?not be read as an npz file"):
        load_nmnist(tmp_path)


def test_an_event_by_hand(tmp_path):
    for part in ("Train", "Test"):
        folder = tmp_path / "N-MNIST" / part / "7"
        folder.mkdir(parents=True)
        # x 3, y 5, polarity 1, time 0x010203; the marker; x 33, y 0, polarity 0, time 7
        (folder / "a.bin").write_bytes(bytes([3, 5, 0x81, 2, 3, 0, 240, 0, 0, 0, 33, 0, 0, 0, 7]))
    events, labels, _, _ = load_nmnist(tmp_path)
    assert labels.tolist() == [7]
    assert events[0].tolist() == [(3, 5, 0x010203, 1), (33, 0, 7 + 8192, 0)]


class Recorded:
    """As the data sets of tonic are: a length, and items (structured array, label). Sorted by label, as N-MNIST is."""

    def __init__(self, count=30):
        kind = np.dtype([("x", int), ("y", int), ("t", int), ("p", int)])
        self.data, self.targets = [], [n * 3 // count for n in range(count)]
        for n, target in enumerate(self.targets):
            x, y, p, t = camera(n, last=300_000)
            sample = np.zeros(len(x), dtype=kind)
            sample["x"], sample["y"], sample["t"], sample["p"] = x // 3 + 11 * target, y, t, p
            self.data.append(sample)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index], self.targets[index]


def test_tonic_data_sets_as_they_are():
    data = Recorded(60)
    events, labels = from_tonic(data)
    assert labels.tolist() == data.targets and all(a is b for a, b in zip(events, data.data, strict=True))
    assert is_events(events)
    some, few = from_tonic(data, limit=6)
    assert len(some) == 6 and few.tolist() == [0, 0, 1, 1, 2, 2], "spread over the labels"
    assert len(from_tonic(data, limit=1000)[0]) == 60
    encoder = ExactEvents(scale=1e-4, steps=30, inputs=2 * 34 * 34)
    model = Classifier(hidden=(60,), encoder=encoder, random_state=0, verbose=0).fit(events, labels)
    assert model.score(events, labels) > 0.8
    spoken = np.array([(10, 4, 1), (20, 1, 1)], dtype=[("t", int), ("x", int), ("p", int)])  # SHD as tonic has it
    assert as_events(from_tonic([(spoken, 3)])[0], scale=1e-4).inputs == 5


@pytest.mark.parametrize(
    "data, limit, error, message",
    [
        (iter([]), None, TypeError, "dataset must have a length and items, got list_iterator"),
        ([], None, ValueError, "dataset must hold at least one sample"),
        ([3], None, ValueError, r"item 0 must be a pair \(events, label\)"),
        (
            [(np.zeros((4, 2, 34, 34)), 1)],
            None,
            ValueError,
            "item 0 must be a structured array .*got array of float64. Leave out",
        ),
        ([("frames", 1)], None, ValueError, "events of item 0 must be a structured array .* got str"),
        (Recorded(3), 0, ValueError, "limit must be a whole number >= 1, got 0"),
    ],
)
def test_what_is_no_such_data_set(data, limit, error, message):
    with pytest.raises(error, match=message):
        from_tonic(data, limit)


def test_nmnist(real_data):
    if not (real_data / "nmnist_small.npz").is_file():
        pytest.skip(f"nmnist_small.npz is not in {real_data}")
    events, labels, test_events, test_labels = load_nmnist(real_data)
    assert (len(events), len(test_events)) == (len(labels), len(test_labels)) == (1000, 100)
    assert set(labels.tolist()) == set(range(10))
    every = np.concatenate(events)
    assert every["x"].max() == every["y"].max() == 33 and set(np.unique(every["p"]).tolist()) == {0, 1}
    assert 250_000 < every["t"].max() < 400_000 and all((np.diff(one["t"]) >= 0).all() for one in events)


def test_shd(real_data):
    if not any((real_data / name).is_file() for name in ("shd_test.h5", "shd_test.h5.gz")):
        pytest.skip(f"SHD is not in {real_data}: get it from https://zenkelab.org/datasets/")
    events, labels, test_events, test_labels = load_shd(real_data)
    assert (len(events), len(test_events)) == (len(labels), len(test_labels)) == (8156, 2264)
    assert max(int(c.max()) for _, c in events) == 69 and set(labels.tolist()) == set(range(20))


def test_a_stray_event_is_refused_instead_of_filling_the_memory():
    rng = np.random.default_rng(0)
    samples = [(np.sort(rng.uniform(0, 100, 50)), rng.integers(0, 10, 50)) for _ in range(5)]
    stray = [*samples, (np.array([3.0, 1e5]), np.array([1, 2]))]
    with pytest.raises(
        ValueError, match=r"X: events reach step 100000 \(sample 5; half of all come before .*ExactEvents\(steps="
    ):
        as_events(stray)
    assert as_events(stray, window=100).window == 100
    micro = [(times * 1e4, channels) for times, channels in samples]  # microseconds, as cameras have them
    with pytest.raises(ValueError, match=r"Multiply times by a scale, such as ExactEvents\(scale=0.000"):
        as_events(micro)
    with pytest.raises(ValueError, match="X: channel 1000000000 .sample 5. would make 1000000001 channels.*merge="):
        as_events([*samples, (np.array([3.0]), np.array([10**9]))])


@pytest.mark.parametrize("stored", [False, True])
def test_aligned_samples_begin_and_end_at_the_same_steps(stored):
    rng = np.random.default_rng(0)
    samples = [(start + length * np.sort(rng.uniform(0, 1, 41)), rng.integers(0, 3, 41)) for start, length in ((0, 1), (5, 3))]
    samples += [(np.zeros(0), np.zeros(0, dtype=int)), (np.array([7.0]), np.array([2]))]
    given = samples
    if stored:
        ends = np.cumsum([len(times) for times, _ in samples])
        given = StoredEvents(*(np.concatenate([sample[k] for sample in samples]) for k in (0, 1)), ends)
    streams = ExactEvents(steps=40, inputs=3, align=0.1).encode(given)
    batch = streams.batch(torch.arange(4))
    for number, (times, channels) in enumerate(samples[:2]):
        begin, end = times[4], times[36]  # a tenth of the 40 gaps from either end
        expected = 2 + 36 * (times - begin) / (end - begin)
        inside = (expected >= 0) & (expected < 40)
        np.testing.assert_allclose(batch.times[batch.samples == number], expected[inside], atol=1e-9)
        np.testing.assert_array_equal(batch.channels[batch.samples == number], channels[inside])
    assert batch.times[batch.samples == 3].tolist() == [2.0] and not bool((batch.samples == 2).any())
    shorter = streams.batch(torch.arange(4), stretch=torch.full((4,), 0.5, dtype=torch.float64))
    assert shorter.times[shorter.samples == 3].tolist() == [1.0]  # stretched after it was aligned


@pytest.mark.parametrize("later", ["align", "folds"])
def test_files_of_earlier_versions_know_no_later_options(tmp_path, later):
    rng = np.random.default_rng(0)
    events = [(np.sort(rng.uniform(0, 9, 12)), rng.integers(0, 4, 12)) for _ in range(24)]
    encoder = ExactEvents(steps=10, exact=False)
    model = Classifier((6,), encoder=encoder, random_state=0, verbose=0).fit(events, np.arange(24) % 2)
    model.save(tmp_path / "now")
    file = read_sealed(tmp_path / "now", "sswim")
    del file.header["model"]["fields"]["inputs"]["fields"]["encoder"]["fields"][later]
    del file.header["params"]["encoder"]["fields"][later]
    write_sealed(tmp_path / "earlier", "sswim", {k: v for k, v in file.header.items() if k != "checksum"}, file.tensors)
    again = Classifier.load(tmp_path / "earlier")
    assert again.encoder == encoder
    np.testing.assert_array_equal(again.decision_function(events), model.decision_function(events))


@pytest.mark.parametrize("value", [0.5, -0.1, "all"])
def test_bad_alignments_are_refused(value):
    with pytest.raises((TypeError, ValueError), match="ExactEvents: align"):
        ExactEvents(align=value)


def folded(samples, steps, inputs, folds, *, exact, merge=1, aligned=None, stretch=1.0):
    """The definition, event by event: (times, channels) of each sample, in order."""
    length, channels = math.ceil(steps / folds), math.ceil(inputs / merge)
    found = []
    for times, places in samples:
        if aligned is not None:
            times = align(torch.from_numpy(times), torch.zeros(len(times), dtype=torch.long), 1, steps, aligned).numpy()
        mine = []
        for t, c in zip(times * stretch, places, strict=True):
            if 0 <= t < steps:
                t = t if exact else min(round(t), steps - 1)
                mine.append((t % length, c // merge + int(t // length) * channels))
        found.append(mine)
    return found


def some_events(count=5, seed=0, channels=7, longest=11.0):
    rng = np.random.default_rng(seed)
    samples = [(rng.uniform(0, longest, 30), rng.integers(0, channels, 30)) for _ in range(count)]
    return [*samples, (np.zeros(0), np.zeros(0, dtype=int))]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("merge", "aligned", "stretch", "folds"), [(1, None, 1.0, 3), (2, 0.1, 1.0, 4), (3, None, 0.7, 10)])
def test_folded_samples_are_the_literal_ones(exact, stored, merge, aligned, stretch, folds):
    samples = some_events()
    given = samples
    if stored:
        ends = np.cumsum([len(times) for times, _ in samples])
        given = StoredEvents(*(np.concatenate([sample[k] for sample in samples]) for k in (0, 1)), ends)
    encoder = ExactEvents(steps=10, inputs=7, exact=exact, merge=merge, align=aligned, folds=folds)
    streams = encoder.encode(given)
    channels = math.ceil(7 / merge)
    assert streams.layout == (folds, 1, channels)
    assert (streams.window, streams.inputs) == (math.ceil(10 / folds), folds * channels)
    index = torch.tensor([4, 0, 5, 2])
    batch = streams.batch(index, torch.full((4,), stretch, dtype=torch.float64))
    expected = folded(samples, 10, 7, folds, exact=exact, merge=merge, aligned=aligned, stretch=stretch)
    for place, number in enumerate(index.tolist()):
        mine = batch.samples == place
        found = list(zip(batch.times[mine].tolist(), batch.channels[mine].tolist(), strict=True))
        np.testing.assert_allclose(found, expected[number], atol=1e-9) if found else None
        assert len(found) == len(expected[number])
    assert bool((batch.times < batch.window).all()) and bool((batch.channels < batch.inputs).all())


def test_an_event_just_before_a_stretch_ends_stays_in_it():
    batch = ExactEvents(steps=21, inputs=1, folds=3).encode([([np.nextafter(14.0, 0), 14.0], [0, 0])]).batch(torch.tensor([0]))
    assert batch.channels.tolist() == [1, 2] and 6.9 < float(batch.times[0]) < 7 and float(batch.times[1]) == 0


def test_a_folded_camera_has_a_map_for_each_polarity_and_stretch():
    pixels = np.array([(0, 1, 2, 0), (5, 3, 8, 1)], dtype=[("t", "f8"), ("x", "i4"), ("y", "i4"), ("p", "i4")])
    more = np.array([(1, 8, 0, 0)], dtype=pixels.dtype)
    streams = ExactEvents(steps=6, exact=False, folds=2).encode([pixels, more])
    assert streams.layout == (4, 9, 9) and streams.window == 3
    batch = streams.batch(torch.tensor([0]))
    numbers = np.arange(4 * 9 * 9).reshape(4, 9, 9)
    assert batch.channels.tolist() == [numbers[0, 2, 1], numbers[2 + 1, 8, 3]] and batch.times.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"folds=5 makes 10 maps of 9 x 9 pixels.*Use fewer folds"):
        ExactEvents(steps=6, folds=5).encode([pixels, more])


@pytest.mark.parametrize("steps", [None, 10])
@pytest.mark.parametrize(
    ("hidden", "exact", "augment"),
    [((8,), True, None), ((8,), False, [Shifts(1), Stretch((0.8,))]), ((Convolution(5, 3, pool=2), 6), False, Shifts(2))],
)
def test_models_of_folded_samples_predict_and_are_read_back(tmp_path, steps, hidden, exact, augment):
    samples, labels = some_events(count=39), np.arange(40) % 2
    encoder = ExactEvents(steps=steps, exact=exact, folds=3)
    model = Classifier(hidden, encoder=encoder, augment=augment, random_state=0, verbose=0).fit(samples, labels)
    window, inputs = model.model_.inputs.shape
    assert (window, inputs) == (4, 21)
    early = [(times[times < 5], channels[times < 5] // 2) for times, channels in samples]  # fewer steps and channels
    expected = model.decision_function(early)
    assert np.allclose(expected[:3], model.decision_function(early[:3])) and model.model_.samples(early).X.inputs == 21
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(Classifier.load(tmp_path / "model").decision_function(early), expected)
    with pytest.raises(ValueError, match="X: channel 7 is out of range: there are 7 channels"):
        model.predict([(np.array([1.0]), np.array([7]))])


def test_shifts_stay_within_a_stretch():
    changes = Shifts(1).changes(Scene((2, 1, 3), timed=True))
    assert [change.source.tolist() for change in changes] == [[1, 2, -1, 4, 5, -1], [-1, 0, 1, -1, 3, 4]]


def test_more_folds_than_steps_are_refused():
    with pytest.raises(ValueError, match="ExactEvents: folds must be at most the number of steps, 4, got 5"):
        ExactEvents(steps=4, folds=5).encode(some_events())
    with pytest.raises(ValueError, match="ExactEvents: folds"):
        ExactEvents(folds=0)
