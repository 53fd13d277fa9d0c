"""The cochlea, and spoken digits through it."""

import numpy as np
import pytest
from scipy.io import wavfile

from sswim.data.cochlea import Cochlea, integrate_and_fire
from sswim.data.events import as_events, is_events
from sswim.datasets import load_fsdd
from sswim.datasets.classified import SPOKEN, classified

RATE = 8000


def tone(frequency, seconds=1.0, rate=RATE):
    return np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


def sound(seed=0, samples=2400):
    """Noise that swells and fades; begins at 0."""
    return np.random.default_rng(seed).standard_normal(samples) * np.sin(np.pi * np.arange(samples) / samples) ** 2


def literal(drive, rate):
    """Return times and channels by going through channels and samples, one spike after the other."""
    spikes = []
    for c in range(drive.shape[0]):
        potential = 0.0
        for k in range(drive.shape[1]):
            now, end, d = k / rate, (k + 1) / rate, drive[c, k]
            while d > 0 and now + (1 - potential) / d <= end:
                now += (1 - potential) / d
                potential = 0.0
                spikes.append((now, c))
            potential += d * (end - now)
    spikes.sort()
    return np.array([t for t, _ in spikes]), np.array([c for _, c in spikes])


@pytest.mark.parametrize("most", [0.3, 3.0, 30.0])
def test_spikes_equal_the_literal_loop(most):
    rng = np.random.default_rng(0)
    drive = rng.uniform(0, most * 100, (5, 400)) * (rng.random((5, 400)) < 0.6)
    drive[2] = 0
    times, channels = integrate_and_fire(drive, 100.0)
    expected, places = literal(drive, 100.0)
    assert len(times) > 100 and times.dtype == np.float64 and channels.dtype == np.int64
    np.testing.assert_array_equal(channels, places)
    np.testing.assert_allclose(times, expected, rtol=0, atol=1e-9)


def test_no_drive_no_spikes():
    times, channels = integrate_and_fire(np.zeros((3, 10)), 10.0)
    assert times.shape == channels.shape == (0,) and times.dtype == np.float64 and channels.dtype == np.int64


@pytest.mark.parametrize("cochlea", [Cochlea(), Cochlea(channels=30, low=150, high=3900, power=0.5)])
def test_a_tone_makes_its_own_channel_fire_most(cochlea):
    assert len(cochlea.frequencies) == cochlea.channels
    np.testing.assert_allclose(cochlea.frequencies[[0, -1]], [cochlea.low, cochlea.high])
    for channel in range(0, cochlea.channels, 7):
        _, channels = cochlea(tone(cochlea.frequencies[channel]), RATE)
        counts = np.bincount(channels, minlength=cochlea.channels)
        assert counts.argmax() == channel and (counts == counts.max()).sum() == 1
        # Filters take a while to answer, and low tones are not smoothed out: the largest value is above the mean.
        assert 0.5 * cochlea.fastest < counts.max() <= cochlea.fastest


def test_a_spread_is_a_gaussian_mean_over_neighbouring_channels():
    options = {"channels": 20, "floor": 0.0, "fastest": 1.0}  # the drive is then a multiple of what channels hear
    alone, spread = (Cochlea(**options, spread=s)._drive(sound(), RATE) for s in (0.0, 1.5))
    at = np.arange(20)
    expected = np.zeros_like(alone)
    for c in at:
        for distance in range(-6, 7):  # four deviations; the edge is a mirror
            there = c + distance
            there = -1 - there if there < 0 else 39 - there if there > 19 else there
            expected[c] += np.exp(-0.5 * (distance / 1.5) ** 2) * alone[there]
    np.testing.assert_allclose(spread, expected / expected.max(), atol=1e-12)


def test_the_rate_of_sampling_hardly_matters():
    cochlea, fine = Cochlea(), np.arange(32000) / 32000
    x = np.sin(2 * np.pi * 500 * fine) + np.sin(2 * np.pi * 1500 * fine) * (fine > 0.5)
    few, many = cochlea(x[::2], 16000)[1], cochlea(x, 32000)[1]
    few, many = (np.bincount(c, minlength=70) for c in (few, many))
    assert np.abs(few - many).max() <= 3 and many.max() > 100


@pytest.mark.parametrize("loudness", [2, 0.37, 1e-170, 1e170])
def test_loudness_does_not_matter(loudness):
    times, channels = Cochlea()(sound(), RATE)
    louder, same = Cochlea()(loudness * sound(), RATE)
    assert len(times) > 200
    np.testing.assert_array_equal(same, channels)
    np.testing.assert_allclose(louder, times, rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_shift_of_the_audio_shifts_the_events(offset):
    x = sound() + offset  # what goes before is that it stands still
    times, channels = Cochlea()(x, RATE)
    later, same = Cochlea()(np.concatenate([np.full(801, x[0]), x]), RATE)
    np.testing.assert_array_equal(same, channels)
    np.testing.assert_allclose(later, times + 801 / RATE, rtol=0, atol=1e-9)


def test_what_comes_later_changes_nothing_before():
    """Nothing looks ahead, but for the loudest moment, which is early here."""
    x = np.concatenate([5 * sound(), sound(1)])
    times, channels = Cochlea()(x, RATE)
    first, places = Cochlea()(x[:3000], RATE)
    seen = times < 3000 / RATE
    np.testing.assert_allclose(times[seen], first, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(channels[seen], places)


def test_times_are_sorted_within_the_recording_and_off_the_grid():
    times, channels = Cochlea()(sound(), RATE)
    assert (np.diff(times) >= 0).all() and times[0] >= 0 and times[-1] <= 2400 / RATE
    assert channels.min() >= 0 and channels.max() < 70
    off = times * RATE % 1
    assert ((off > 0.01) & (off < 0.99)).mean() > 0.9
    assert is_events([(times, channels)]) and as_events([(times, channels)], scale=100).window <= 31


@pytest.mark.parametrize("audio", [np.zeros(500), np.full(500, 0.1), np.full(500, 7, dtype=np.int16), [1.0], [0, -1]])
def test_silence_gives_no_events(audio):
    times, channels = Cochlea()(audio, RATE)
    assert len(times) == len(channels) == 0


def test_many_is_one_by_one_and_settings_count():
    recordings = [sound(0), (1000 * sound(1, 1700)).astype(np.int16), np.zeros(30)]
    for one, other in zip(Cochlea().many(recordings, RATE), (Cochlea()(x, RATE) for x in recordings), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert Cochlea().many([], RATE) == []
    count = len(Cochlea()(sound(), RATE)[0])
    assert len(Cochlea(floor=0.6)(sound(), RATE)[0]) < 0.8 * count
    assert len(Cochlea(fastest=2 * Cochlea().fastest)(sound(), RATE)[0]) > 1.8 * count


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"channels": 0}, ValueError, "Cochlea: channels must be a whole number >= 1, got 0"),
        ({"channels": 2.5}, TypeError, "Cochlea: channels must be a whole number"),
        ({"low": 0}, ValueError, "Cochlea: low must be a finite number > 0"),
        ({"low": 500, "high": 400}, ValueError, "Cochlea: low must be below high, got 500 and 400"),
        ({"floor": 1.0}, ValueError, "Cochlea: floor must be below 1"),
        ({"power": 2.0}, ValueError, "Cochlea: power must be at most 1"),
        ({"spread": -1}, ValueError, "Cochlea: spread must be a finite number >= 0"),
        ({"fastest": -1}, ValueError, "Cochlea: fastest must be a finite number > 0"),
    ],
)
def test_bad_cochleas(options, error, message):
    with pytest.raises(error, match=message):
        Cochlea(**options)


@pytest.mark.parametrize(
    "audio, rate, error, message",
    [
        ([0.0, np.nan], RATE, ValueError, "audio must be finite, got nan at sample 1: cut it out"),
        ([np.inf, 0.0], RATE, ValueError, "audio must be finite, got inf at sample 0"),
        ([], RATE, ValueError, "audio must hold at least one sample, got none"),
        (np.zeros((5, 2)), RATE, ValueError, r"audio must have the shape \(samples,\), got \(5, 2\): pass one channel"),
        (0.5, RATE, ValueError, r"audio must have the shape \(samples,\), got \(\)"),
        (["a"], RATE, TypeError, "audio must hold real numbers"),
        ([1j], RATE, TypeError, "audio must hold real numbers, got an array of complex128"),
        ([0.0], 0, ValueError, "rate must be a finite number > 0"),
        ([0.0], -8000.0, ValueError, "rate must be a finite number > 0"),
        ([0.0], "8k", TypeError, "rate must be a number > 0"),
        ([0.0], 100, ValueError, "rate must be at least 200 samples per second, got 100"),
        ([0.0], 7200, ValueError, r"high must be below half the sampling rate, 3600 Hz, got 3600: use Cochlea\(high=3240\)"),
    ],
)
def test_bad_audio(audio, rate, error, message):
    with pytest.raises(error, match=message):
        Cochlea()(audio, rate)


def test_of_many_the_bad_one_is_named():
    with pytest.raises(ValueError, match="audio: recording 1 must be finite"):
        Cochlea().many([[0.0], [np.nan]], RATE)


PEOPLE = ["ann", "bob", "cleo"]


def recordings():
    """Return audio, digits and speakers: three people, two digits, two recordings each, in the order of file names."""
    rng = np.random.default_rng(0)
    who = [(digit, name, number) for digit in (3, 4) for name in PEOPLE for number in (0, 1)]
    audio = [(8000 * sound(n, int(rng.integers(900, 1500)))).astype(np.int16) for n in range(len(who))]
    return audio, who


def write_npz(folder, **changes):
    audio, who = recordings()
    data = {
        "audio": np.concatenate(audio),
        "length": np.array([len(x) for x in audio]),
        "label": np.array([digit for digit, _, _ in who], dtype=np.int8),
        "speaker": np.array([name for _, name, _ in who]),
        "rate": np.array(RATE),
        **changes,
    }
    np.savez(folder / "fsdd_8khz.npz", **{name: value for name, value in data.items() if value is not None})


def check_fsdd(found):
    events, labels, test_events, test_labels = found
    audio, who = recordings()
    for got, digits, people in ((events, labels, ["ann", "bob"]), (test_events, test_labels, ["cleo"])):
        here = [n for n, (_, name, _) in enumerate(who) if name in people]
        assert digits.tolist() == [who[n][0] for n in here] and digits.dtype == np.int64
        for (times, channels), n in zip(got, here, strict=True):
            expected = Cochlea(channels=8)(audio[n], RATE)
            np.testing.assert_array_equal(times, expected[0])
            np.testing.assert_array_equal(channels, expected[1])


def test_fsdd_from_either_form(tmp_path, monkeypatch):
    options = {"test_speakers": ["cleo"], "cochlea": Cochlea(channels=8)}
    with pytest.raises(FileNotFoundError, match=r"neither fsdd_8khz.npz nor .*recordings in .*Clone https://.*SSWIM_DATA"):
        load_fsdd(tmp_path, **options)
    folder = tmp_path / "free-spoken-digit-dataset" / "recordings"
    folder.mkdir(parents=True)
    audio, who = recordings()
    for x, (digit, name, number) in zip(audio, who, strict=True):
        wavfile.write(folder / f"{digit}_{name}_{number}.wav", RATE, x)
    check_fsdd(load_fsdd(tmp_path, **options))
    wavfile.write(folder / "5_ann_0.wav", 2 * RATE, audio[0])
    with pytest.raises(ValueError, match="all recordings must have one sampling rate"):
        load_fsdd(tmp_path, **options)
    (folder / "5_ann_0.wav").write_bytes(b"something")
    with pytest.raises(ValueError, match="5_ann_0.wav: damaged, it can ?not be read as a wav file"):
        load_fsdd(tmp_path, **options)
    (folder / "5_ann_0.wav").rename(folder / "x.wav")
    with pytest.raises(ValueError, match="must be called <digit>_<speaker>_<number>.wav"):
        load_fsdd(tmp_path, **options)
    write_npz(tmp_path)
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path))
    check_fsdd(load_fsdd(**options))
    *found, speakers = load_fsdd(**{**options, "test_speakers": "cleo"}, return_speakers=True)
    check_fsdd(found)
    assert speakers.tolist() == [name for _, name, _ in who if name != "cleo"]


@pytest.mark.parametrize("speakers", [["dan"], [], PEOPLE, ["ann", "dan"]])
def test_speakers_that_cannot_be_held_out(tmp_path, speakers):
    write_npz(tmp_path)
    with pytest.raises(ValueError, match="test_speakers must be some of the speakers 'ann', 'bob', 'cleo', but not all, got"):
        load_fsdd(tmp_path, test_speakers=speakers)


def test_damaged_fsdd(tmp_path):
    write_npz(tmp_path, speaker=None)
    with pytest.raises(ValueError, match="must hold the arrays audio, .* but speaker is missing"):
        load_fsdd(tmp_path)
    write_npz(tmp_path, label=np.zeros(3))
    with pytest.raises(ValueError, match="damaged, unequal numbers of recordings"):
        load_fsdd(tmp_path)
    write_npz(tmp_path, audio=np.zeros(7))
    with pytest.raises(ValueError, match="damaged, audio holds 7 values but should hold"):
        load_fsdd(tmp_path)
    path = tmp_path / "fsdd_8khz.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged, it can ?not be read as an npz file .* Fetch it again"):
        load_fsdd(tmp_path)


def test_options_of_dense_layers_do_not_leak_into_those_that_suit_spoken_digits():
    """The kernel and the penalty were chosen together: a search, or another kernel, is another model."""
    source = classified("fsdd")
    used = {**source.ours, **source.suited}  # as `sswim classify` and the experiment put them together
    assert used == SPOKEN and source.ours["kernel"] == "morlet-wide"
    assert used["kernel"] == "hat" and used["readout"].regularization.value == 30.0 and used["hidden"][0].pool == 8


def test_spoken_digits(real_data):
    """A few recordings of each digit: the channels' counts alone tell digits of known speakers apart."""
    if not (real_data / "fsdd_8khz.npz").is_file():
        pytest.skip(f"fsdd_8khz.npz is not in {real_data}")
    with np.load(real_data / "fsdd_8khz.npz") as data:
        audio = np.split(data["audio"], np.cumsum(data["length"])[:-1])
        some = np.flatnonzero((data["index"] < 6) & np.isin(data["speaker"], ["george", "theo"]))
        labels, rate = data["label"][some], float(data["rate"])
        length = data["length"][some] / rate
    events = Cochlea().many([audio[n] for n in some], rate)
    assert len(events) == 120 and all(len(t) > 50 and t[-1] <= s for (t, _), s in zip(events, length, strict=True))
    thirds = [np.digitize(t / s, [1 / 3, 2 / 3]) for (t, _), s in zip(events, length, strict=True)]
    X = np.array([np.bincount(70 * t + c, minlength=210) for t, (_, c) in zip(thirds, events, strict=True)]) ** 0.5
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2) + np.diag(np.full(len(X), np.inf))
    assert (labels[near.argmin(axis=1)] == labels).mean() > 0.7
