"""Networks that chips can run: leaky integrate-and-fire neurons, weights of few bits, and limits of size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from sswim.network.kernels import Alpha, Exponential, resolve_kernel
from sswim.network.network import KernelName, SpikingNetwork
from sswim.options import Mistakes, Options, check_choice, resolve_kind
from sswim.readout import Counts, Direct, TraceReadout, Traces, Voltage
from sswim.sampling import Steps
from sswim.steps.leaky import DECAYS, LeakyScale, LeakyTimes, check_bits, rounded_times

__all__ = ["PROFILES", "Neurons", "Profile", "bits_of", "neurons_of"]

R = TypeVar("R")
# Time constant of the traces that a classifier reads, in steps: nearly a count.
LONG = 200.0


@dataclass(frozen=True)
class Profile(Options):
    """What a chip, or a format that simulators read, can hold. A limit that is None is none.

    Parameters
    ----------
    kernels : tuple of str
        ``"exponential"`` for leaky integrate-and-fire neurons, ``"alpha"`` for those with a synapse that fades too. The first
        one is used if ``kernel="auto"``.
    leak : bool
        Whether potentials fade.
    bits : int, optional
        Of each weight.
    inputs, hidden, width, layers, outputs, fan_in, weights : int, optional
        Most channels, hidden neurons in all and of one layer, hidden layers, outputs, senders of a neuron, and weights. A
        network has as many outputs as it has numbers to put out, times the traces that each of them reads.
    source : str
        Where the limits come from.
    decays : {"any", "shift", "12 bits"}
        What potentials, and the traces that are read, may be multiplied by at each step, see
        `sswim.steps.leaky.rounded_times`. Time constants are rounded before weights are scaled and the output is solved.
    """

    kernels: tuple[str, ...] = ("exponential", "alpha")
    leak: bool = True
    bits: int | None = None
    inputs: int | None = None
    hidden: int | None = None
    width: int | None = None
    layers: int | None = None
    outputs: int | None = None
    fan_in: int | None = None
    weights: int | None = None
    source: str = ""
    decays: str = field(default="any", metadata={"later": True})

    def __post_init__(self) -> None:
        check_bits("Profile: bits", self.bits)
        check_choice("Profile: decays", self.decays, DECAYS)
        if not self.kernels or any(kernel not in ("exponential", "alpha") for kernel in self.kernels):
            raise ValueError(f"Profile: kernels must be 'exponential', 'alpha' or both, got {self.kernels!r}.")

    def check(self, network: SpikingNetwork, name: str) -> None:
        """Refuse a network that breaks limits, and tell by how much."""
        constants = len(network.readout.constants) if isinstance(network.readout, TraceReadout) else 1
        outputs = len(network.readout.weights) * constants
        senders = [layer.senders for layer in network.layers]
        found = {
            "inputs": (network.inputs, "channels"),
            "hidden": (sum(layer.neurons * layer.places for layer in network.layers), "hidden neurons"),
            "width": (max(layer.neurons for layer in network.layers), "neurons in a layer, or filters"),
            "layers": (len(network.hidden), "hidden layers"),
            "outputs": (outputs, "outputs (numbers to put out, times traces)"),
            "fan_in": (max(senders), "senders of a neuron"),
            "weights": (sum(layer.weights.numel() for layer in network.layers) + network.readout.weights.numel(), "weights"),
        }  # fmt: skip
        broken = []
        for limit, (count, what) in found.items():
            most = getattr(self, limit)
            if most is not None and count > most:
                broken.append(f"{count:,} {what}, {count - most:,} more than the {most:,} there are")
        if broken:
            raise ValueError(f"profile: {name} has no room for this network: {'; '.join(broken)}.")


PROFILES: dict[str, Profile] = {
    "nir": Profile(source="Neuromorphic Intermediate Representation 1.0: LIF and CubaLIF nodes, no limits"),
    "xylo": Profile(
        bits=8,
        inputs=16,
        hidden=1000,
        outputs=8,
        weights=64_000,
        decays="shift",
        source="SynSense Xylo Audio 2 (SYNS61201), Rockpool's documentation, 'Overview of the Xylo family'; decays by shifts "
        "of bits, as in Rockpool's LIFBitshiftTorch",
    ),
    "speck": Profile(
        kernels=("exponential",),
        leak=False,
        bits=8,
        width=1024,
        layers=9,
        fan_in=1024,
        source="SynSense Speck, Richter et al. 2023 (arXiv 2304.06793) and the documentation of sinabs: integrate-and-fire, "
        "9 convolutional layers of up to 1,024 maps; a dense layer is a convolution that covers the whole map",
    ),
    "loihi": Profile(
        bits=8,
        hidden=131_072,
        fan_in=4096,
        decays="12 bits",
        source="Intel Loihi, Davies et al. 2018 (IEEE Micro 38): 128 cores of 1,024 neurons, 4,096 input axons of a core; "
        "decays of 12 bits, as in Lava's bit-accurate model of LIF",
    ),
}


@dataclass(frozen=True)
class Neurons:
    """The hidden neurons of a network: their kernels, and the profile whose limits they keep."""

    kernel: KernelName | Sequence[KernelName]
    refractory: str = "exponential-cut"
    profile: Profile | None = None
    name: str = ""

    def check(self, network: SpikingNetwork) -> SpikingNetwork:
        """Return a network, if it keeps the limits. The traces that it reads fade as its profile allows."""
        if self.profile is not None:
            self.profile.check(network, self.name)
            if isinstance(network.readout, TraceReadout):
                times = torch.tensor(network.readout.constants)  # float32, in which traces are computed
                network.readout.constants = tuple(rounded_times(times, self.profile.decays).tolist())
        return network

    def steps(self, steps: Steps) -> Steps:
        """Return the steps that sample such neurons: with a profile, times and scales are those of leaky neurons."""
        if self.profile is None:
            return steps
        times = steps.temporal if isinstance(steps.temporal, LeakyTimes) else LeakyTimes()
        scale = steps.normalizer if isinstance(steps.normalizer, LeakyScale) else LeakyScale()
        lead = int(isinstance(resolve_kernel(self.kernel[0]), Alpha))  # type: ignore[index]
        decays = times.decays if self.profile.decays == "any" else self.profile.decays
        times = replace(times, lead=lead, low=times.low if self.profile.leak else math.inf, decays=decays)
        return steps.replace(temporal=times, normalizer=replace(scale, bits=_fewer(scale.bits, self.profile.bits)))

    def readout(self, readout: R, named: bool) -> R:
        """Return the readout of such neurons: with a profile, one of traces alone. `named` says that it was given by name."""
        if self.profile is None:
            return readout
        if named and isinstance(readout, Direct):
            readout = Traces()  # type: ignore[assignment]
        elif named and isinstance(readout, Counts):
            readout = Counts((LONG,))  # type: ignore[assignment]
        if isinstance(readout, (Counts, Traces)):
            return readout.replace(bits=_fewer(readout.bits, self.profile.bits))  # type: ignore[return-value]
        wanted = "Counts(...)" if isinstance(readout, Voltage) else "Traces(...)"
        raise ValueError(f"readout: a profile needs 'direct' or {wanted}, which read traces alone, got {readout!r}.")


def neurons_of(
    profile: str | Profile | None,
    kernel: KernelName | Sequence[KernelName],
    usual: KernelName,
    training: object,
    mistakes: Mistakes,
) -> Neurons:
    """Return the hidden neurons that options ask for; what is wrong goes to `mistakes`.

    `usual` is the kernel without a profile if ``kernel="auto"``.
    """
    automatic = isinstance(kernel, str) and kernel == "auto"
    if profile is None:
        return Neurons(usual if automatic else kernel)
    found = mistakes.check(resolve_kind, "profile", profile, PROFILES, Profile)
    if not isinstance(found, Profile):
        return Neurons(usual)
    name = f"{profile!r}" if isinstance(profile, str) else "this profile"
    chosen = found.kernels[0] if automatic else kernel
    kinds = {"exponential": Exponential, "alpha": Alpha}
    with mistakes.collect():
        single = isinstance(chosen, str) or callable(chosen)
        if not single or type(resolve_kernel(chosen)) not in [kinds[k] for k in found.kernels]:  # type: ignore[arg-type]
            chosen = found.kernels[0]
            wanted = " or ".join(repr(k) for k in ("auto", *found.kernels))
            raise ValueError(f"kernel: {name} has leaky integrate-and-fire neurons, which need {wanted}, got {kernel!r}.")
    with mistakes.collect():
        if training is not None:
            raise ValueError(f"training: {name} needs training=None, for gradients change more of a neuron than its weights.")
    return Neurons([chosen], "exponential", found, name)  # type: ignore[list-item]


def bits_of(profile: object) -> int | None:
    """Return the bits of a weight in a network that was fitted with the option `profile`; None if they are not limited.

    Examples
    --------
    >>> bits_of("xylo"), bits_of(Profile(bits=4)), bits_of("nir"), bits_of(None)
    (8, 4, None, None)
    """
    return None if profile is None else resolve_kind("profile", profile, PROFILES, Profile).bits


def _fewer(one: int | None, other: int | None) -> int | None:
    """Return the smaller one of two numbers of bits; None stands for no limit."""
    return min((b for b in (one, other) if b is not None), default=None)
