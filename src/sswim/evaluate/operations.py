"""What one layer does in one forecast or sample: spikes, operations, parameters, state, and bytes moved."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LayerCosts", "dense_layer"]


@dataclass(frozen=True)
class LayerCosts:
    """Counts of one layer. Those of operations are means over forecasts or samples.

    Attributes
    ----------
    name : str
    kind : {"encoder", "spiking", "readout", "dense"}
        Whether its neurons turn values into spikes, take and send spikes, put out values, or know no spikes at all.
    neurons : int
    weights, zero_weights : int
        Number of weights, and how many of them are 0.
    parameters : int
        All parameters, weights included.
    state : int
        Numbers that must be remembered from step to step.
    spikes : float
        Spikes that its neurons send.
    accumulates : float
        Additions of a weight: spikes that arrive, times the neurons that each of them reaches.
    multiply_accumulates : float
        Products of a weight and a value that is no spike, which are added up.
    dense : float
        Number of both if every input were active at every step and no weight 0.
    updates : float
        Neurons times steps.
    neuron_accumulates, neuron_multiply_accumulates : float
        What the updates take: thresholds and resets, decays and the taps of kernels.
    bits, word : int
        Bits of a weight, and of all other numbers.
    chip_neurons : bool
        Whether neuromorphic chips have its neurons: LIF or CubaLIF.
    """

    name: str
    kind: str
    neurons: int
    weights: int = 0
    zero_weights: int = 0
    parameters: int = 0
    state: int = 0
    spikes: float = 0.0
    accumulates: float = 0.0
    multiply_accumulates: float = 0.0
    dense: float = 0.0
    updates: float = 0.0
    neuron_accumulates: float = 0.0
    neuron_multiply_accumulates: float = 0.0
    bits: int = 32
    word: int = 32
    chip_neurons: bool = False

    @property
    def parameter_bits(self) -> int:
        """Bits of all parameters."""
        return self.weights * self.bits + (self.parameters - self.weights) * self.word

    @property
    def state_bits(self) -> int:
        """Bits of the state."""
        return self.state * self.word

    @property
    def footprint(self) -> float:
        """Bytes of parameters and state."""
        return (self.parameter_bits + self.state_bits) / 8

    @property
    def synaptic_operations(self) -> float:
        """Accumulates and multiply-accumulates of weights."""
        return self.accumulates + self.multiply_accumulates

    @property
    def traffic(self) -> float:
        """Bytes that are read and written, if nothing but the operands of one operation is at hand.

        An accumulate reads a weight and its target, and writes the target. A multiply-accumulate reads a weight and a value. A
        neuron update reads and writes one number, and a multiply-accumulate in it reads two.
        """
        moved = self.accumulates * (self.bits + 2 * self.word) + self.multiply_accumulates * (self.bits + self.word)
        moved += 2 * self.word * (self.updates + self.neuron_multiply_accumulates)
        return moved / 8


def dense_layer(
    name: str, inputs: int, outputs: int, *, share: float = 1.0, copies: int = 1, bits: int = 32, word: int = 32
) -> LayerCosts:
    """Return the costs of a dense layer with biases that sees `inputs` values at once, as one of `share` parts.

    `copies` such layers are stored, of which one is used: a channel's own. Weights have `bits` bits, all else `word` bits.

    Examples
    --------
    >>> layer = dense_layer("output", 10, 4)
    >>> layer.multiply_accumulates, layer.parameters, layer.traffic
    (40.0, 44, 320.0)
    """
    weights = inputs * outputs
    return LayerCosts(
        name,
        "dense",
        outputs,
        weights=copies * weights,
        parameters=copies * (weights + outputs),
        multiply_accumulates=weights / share,
        dense=weights / share,
        bits=bits,
        word=word,
    )
