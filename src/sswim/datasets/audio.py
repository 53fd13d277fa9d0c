"""Spoken digits, as the spikes of a cochlea."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal, overload

import numpy as np
from scipy.io import wavfile

from sswim.data.cochlea import Cochlea
from sswim.datasets._files import cut, find_folder, read_npz

__all__ = ["load_fsdd"]

Events = list[tuple[np.ndarray, np.ndarray]]
Found = tuple[Events, np.ndarray, Events, np.ndarray]
FoundWithSpeakers = tuple[Events, np.ndarray, Events, np.ndarray, np.ndarray]

FILE, RECORDINGS = "fsdd_8khz.npz", "free-spoken-digit-dataset/recordings"
SOURCE = "https://github.com/Jakobovski/free-spoken-digit-dataset"


@overload
def load_fsdd(
    folder: str | os.PathLike[str] | None = None,
    *,
    test_speakers: Collection[str] = ...,
    cochlea: Cochlea | None = None,
    return_speakers: Literal[False] = False,
) -> Found: ...


@overload
def load_fsdd(
    folder: str | os.PathLike[str] | None = None,
    *,
    test_speakers: Collection[str] = ...,
    cochlea: Cochlea | None = None,
    return_speakers: Literal[True],
) -> FoundWithSpeakers: ...


def load_fsdd(
    folder: str | os.PathLike[str] | None = None,
    *,
    test_speakers: Collection[str] = ("theo", "yweweler"),
    cochlea: Cochlea | None = None,
    return_speakers: bool = False,
) -> Found | FoundWithSpeakers:
    """Return the Free Spoken Digit Dataset as events: training events and labels, and those of speakers held out.

    3,000 recordings of ten digits by six speakers: george, jackson, lucas, nicolas, theo and yweweler. Computing the events
    takes a minute or two.

    Parameters
    ----------
    folder : path, optional
        Where ``fsdd_8khz.npz`` lies, or the original's folder ``free-spoken-digit-dataset``; default: `data_folder()`.
    test_speakers : collection of str
        Who is held out. Default: the last two in alphabetical order, a third of the recordings.
    cochlea : Cochlea, optional
        What turns audio into events.
    return_speakers : bool
        Whether the names of the training recordings' speakers are returned too, for ``Classifier.fit(groups=...)``.

    Returns
    -------
    events : list of pairs (times, channels)
        Times in seconds from the beginning of the recording on.
    labels : array of shape (samples,), int64
        The digits.
    test_events, test_labels
        The same, of the speakers held out.
    speakers : array of shape (samples,), str
        Who speaks in each training recording, if `return_speakers` is set.

    Raises
    ------
    FileNotFoundError
        Says what is missing, where it goes and where to get it.
    """
    cochlea = Cochlea() if cochlea is None else cochlea
    path = find_folder(folder)
    if (path / FILE).is_file():
        audio, labels, speakers, rate = _read_npz(path / FILE)
    elif any((path / RECORDINGS).glob("*.wav")):
        audio, labels, speakers, rate = _read_recordings(path / RECORDINGS)
    else:
        raise FileNotFoundError(
            f"fsdd: neither {FILE} nor {RECORDINGS} in {path}. Clone {SOURCE} there, or set SSWIM_DATA to the folder that "
            "holds one of them."
        )
    there = sorted(set(speakers.tolist()))
    held = {test_speakers} if isinstance(test_speakers, str) else set(test_speakers)
    if not held or not held < set(there):
        raise ValueError(
            f"test_speakers must be some of the speakers {', '.join(map(repr, there))}, but not all, got {sorted(held)}."
        )
    test = np.isin(speakers, sorted(held))
    events = cochlea.many(audio, rate)
    train, rest = ([events[n] for n in np.flatnonzero(some)] for some in (~test, test))
    found = train, labels[~test], rest, labels[test]
    return (*found, speakers[~test]) if return_speakers else found


def _read_npz(path: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, float]:
    data = read_npz(path, ["audio", "length", "label", "speaker", "rate"])
    counts = {name: len(data[name]) for name in ("length", "label", "speaker")}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{path}: damaged, unequal numbers of recordings {counts}. Fetch it again.")
    audio = cut(path, "audio", data["audio"], data["length"])
    return audio, data["label"].astype(np.int64), data["speaker"], float(data["rate"])


def _read_recordings(folder: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, float]:
    """Read files called ``<digit>_<speaker>_<number>.wav``."""
    audio, labels, speakers, rates = [], [], [], {}
    for path in sorted(folder.glob("*.wav")):
        digit, _, rest = path.stem.partition("_")
        speaker, _, number = rest.rpartition("_")
        if not (digit.isdecimal() and speaker and number.isdecimal()):
            raise ValueError(f"{path}: must be called <digit>_<speaker>_<number>.wav. Rename or remove it.")
        try:
            rate, samples = wavfile.read(path)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: damaged, it cannot be read as a wav file ({error}). Fetch it again.") from error
        audio.append(samples)
        labels.append(int(digit))
        speakers.append(speaker)
        rates[rate] = path.name
    if len(rates) > 1:
        raise ValueError(f"{folder}: all recordings must have one sampling rate, got {rates}.")
    return audio, np.array(labels, dtype=np.int64), np.array(speakers), float(next(iter(rates)))
