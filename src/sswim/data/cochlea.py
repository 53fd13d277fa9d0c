r"""A cochlea: from audio to spikes with exact times.

A bank of band-pass filters, as in the inner ear; each one's output is rectified, compressed and smoothed, and drives a neuron
that fires whenever the integral of its drive passes a whole number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter1d
from scipy.signal import iirpeak, lfilter, sosfilt

from sswim.options import check_integer, check_positive

__all__ = ["Cochlea", "integrate_and_fire"]

# Resonators in a row per channel: with four their impulse response has the envelope of a gammatone filter.
ORDER = 4
# The lowest sampling rate that the width of a resonator, at least 50 Hz, fits into well.
LEAST_RATE = 200


def _erb_number(frequency: float) -> float:
    return 21.4 * np.log10(1 + 0.00437 * frequency)


@lru_cache(maxsize=8)
def _bank(frequencies: tuple[float, ...], rate: float) -> np.ndarray:
    """Return second-order sections (channels, ORDER, 6) of resonators with gain 1 at `frequencies`."""
    sections = []
    for frequency in frequencies:
        width = 2 * 1.019 * 24.7 * (1 + 0.00437 * frequency)  # of a single resonator; ORDER of them make it 0.9 ERB
        sections.append([np.concatenate(iirpeak(frequency, frequency / width, fs=rate))] * ORDER)
    return np.array(sections)


def integrate_and_fire(drive: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Fire whenever the integral of the drive passes a whole number: :math:`\int_0^t d_c(s)\, ds = 1, 2, \dots`.

    Parameters
    ----------
    drive : array of shape (channels, samples)
        Not negative, in spikes per second; constant between one sample and the next, so that times are exact.
    rate : float
        Samples per second.

    Returns
    -------
    times : array of shape (events,), float64
        In seconds, sorted; at equal times lower channels come first.
    channels : array of shape (events,), int64

    Examples
    --------
    >>> integrate_and_fire(np.array([[0.0, 4.0, 4.0], [0.0, 0.0, 2.5]]), rate=2.0)
    (array([0.75, 1.  , 1.25, 1.4 , 1.5 ]), array([0, 0, 0, 1, 0]))
    """
    step = drive / rate
    total = np.cumsum(step, axis=1)
    levels = [np.arange(1, int(last) + 1) for last in total[:, -1]]  # passed by each channel
    channel = np.repeat(np.arange(len(drive)), [len(level) for level in levels])
    level = np.concatenate(levels)
    sample = np.concatenate([np.searchsorted(row, some) for row, some in zip(total, levels, strict=True)])
    part = 1 - (total[channel, sample] - level) / step[channel, sample]  # of the sample that has gone by
    times = (sample + np.clip(part, 0, 1)) / rate
    order = np.lexsort((channel, times))
    return times[order], channel[order]


@dataclass(frozen=True)
class Cochlea:
    """Turns audio into spike events.

    Each channel's filter is four equal resonators in a row, whose widths and distances are those of the ear (the ERB scale).
    Their output is rectified, compressed by a power, smoothed by two low-passes, and divided by the largest value of the
    recording: how loud a recording is does not matter, and silence before or after it neither. What is above the `floor` is
    integrated by `integrate_and_fire`.

    Parameters
    ----------
    channels : int
        Number of channels, from low frequencies to high ones.
    low, high : float
        Frequencies of the first and of the last channel in Hz; `high` must be below half the sampling rate.
    power : float
        Of the compression, at most 1. Default: the cube root.
    cutoff : float
        Of each smoothing low-pass, in Hz.
    floor : float
        What no channel fires below, as a share of the largest value, in [0, 1). With the cube root, 0.1 is 60 dB below it.
    fastest : float
        Spikes per second of a channel at the largest value.
    spread : float
        How far a channel hears its neighbours, too: the deviation, in channels, of a Gaussian mean over them. It blurs the
        harmonics of a voice and leaves its formants, so that new speakers sound more alike. Default: 0, not at all.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    >>> cochlea = Cochlea()
    >>> times, channels = cochlea(tone, rate=8000)
    >>> float(cochlea.frequencies[np.bincount(channels).argmax()].round())
    436.0
    """

    channels: int = 70
    low: float = 80.0
    high: float = 3600.0
    power: float = 1 / 3
    cutoff: float = 50.0
    floor: float = 0.1
    fastest: float = 200.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        check_integer("Cochlea: channels", self.channels, 1)
        for name in ("low", "high", "power", "cutoff", "fastest"):
            check_positive(f"Cochlea: {name}", getattr(self, name))
        check_positive("Cochlea: spread", self.spread, zero=True)
        if check_positive("Cochlea: floor", self.floor, zero=True) >= 1:
            raise ValueError(f"Cochlea: floor must be below 1, the largest value, got {self.floor!r}.")
        if self.power > 1:
            raise ValueError(f"Cochlea: power must be at most 1, which compresses nothing, got {self.power!r}.")
        if self.low >= self.high:
            raise ValueError(f"Cochlea: low must be below high, got {self.low!r} and {self.high!r}.")

    @property
    def frequencies(self) -> np.ndarray:
        """Frequencies (channels,) in Hz that the channels answer most to."""
        numbers = np.linspace(_erb_number(self.low), _erb_number(self.high), self.channels)
        return (10 ** (numbers / 21.4) - 1) / 0.00437

    def __call__(self, audio: npt.ArrayLike, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the events of one recording.

        Parameters
        ----------
        audio : array of shape (samples,)
            In any unit, whole numbers or not. Before its first sample it is taken to have stood still.
        rate : float
            Samples per second.

        Returns
        -------
        times : array of shape (events,), float64
            In seconds from the first sample on, sorted.
        channels : array of shape (events,), int64
        """
        drive = self._drive(_check_audio("audio", audio), self._check_rate(rate))
        return integrate_and_fire(drive, rate)

    def many(self, audio: Iterable[npt.ArrayLike], rate: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the events of several recordings, each as a pair (times, channels)."""
        self._check_rate(rate)
        checked = [_check_audio(f"audio: recording {number}", one) for number, one in enumerate(audio)]
        return [integrate_and_fire(self._drive(one, rate), rate) for one in checked]

    def _drive(self, audio: np.ndarray, rate: float) -> np.ndarray:
        """Return what the neurons integrate, (channels, samples), in spikes per second."""
        drive = np.zeros((self.channels, len(audio)))
        if not audio.any():
            return drive
        memory = np.exp(-2 * np.pi * self.cutoff / rate)
        for row, sections in zip(drive, _bank(tuple(self.frequencies.tolist()), rate), strict=True):
            heard = np.maximum(sosfilt(sections, audio), 0)
            row[:] = np.cbrt(heard) if self.power == 1 / 3 else heard**self.power
        drive = lfilter([(1 - memory) ** 2], [1, -2 * memory, memory**2], drive)
        if self.spread:
            drive = gaussian_filter1d(drive, self.spread, axis=0)
        largest = drive.max()
        if largest == 0:  # what there is, all channels have rectified away
            return drive
        drive *= self.fastest / (1 - self.floor) / largest
        drive -= self.floor * self.fastest / (1 - self.floor)
        return np.maximum(drive, 0, out=drive)

    def _check_rate(self, rate: float) -> float:
        if check_positive("rate", rate) < LEAST_RATE:
            raise ValueError(f"rate must be at least {LEAST_RATE} samples per second, got {rate!r}.")
        if self.high >= rate / 2:
            raise ValueError(
                f"Cochlea: high must be below half the sampling rate, {rate / 2:g} Hz, got {self.high:g}: "
                f"use Cochlea(high={0.45 * rate:g}), or audio with a higher rate."
            )
        return rate


def _check_audio(name: str, audio: npt.ArrayLike) -> np.ndarray:
    """Return a recording as float64, beginning at 0."""
    audio = np.asarray(audio)
    if audio.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold real numbers, got an array of {audio.dtype}.")
    if audio.ndim != 1:
        raise ValueError(
            f"{name} must have the shape (samples,), got {audio.shape}: pass one channel at a time, or their mean."
        )
    if not len(audio):
        raise ValueError(f"{name} must hold at least one sample, got none.")
    audio = audio.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(audio))
    if len(bad):
        raise ValueError(f"{name} must be finite, got {audio[bad[0]]} at sample {bad[0]}: cut it out or fill it.")
    return audio - audio[0]  # the filters pass no constant, but would answer to its beginning
