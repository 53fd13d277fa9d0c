r"""Convolutions: layers whose neurons look at every place of an image, a cochlea or a camera with the same weights.

A filter is a neuron of definition ``def:ff_snn`` that exists once at each place. It listens to the patch of channels around
that place. The spikes of neighbouring places are added up, *pooled*, and these sums are what the layer puts out. So a layer of
filters is a dense layer whose samples are patches, followed by a sum; this module adds nothing to the dynamics of a neuron.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from sswim.network.events import EventBatch
from sswim.network.kernels import Exponential, Kernel
from sswim.network.layer import SpikingLayer, Workspace, filter_signals
from sswim.options import Options, check_integer, check_positive

__all__ = [
    "Convolution",
    "ConvolutionLayer",
    "Grid",
    "check_hidden",
    "constant_in_time",
    "hidden_layers",
    "hidden_shapes",
    "integrated",
    "split_layout",
    "widths_of",
]

# A support beyond this, in steps, has no leak that a float could show.
NO_LEAK = 1e20


@dataclass(frozen=True)
class Convolution(Options):
    """A hidden layer of filters: each has one set of weights for all places, and its spikes are pooled over regions.

    Parameters
    ----------
    filters : int
        Number of filters.
    size : int or sequence of int, optional
        Length of a patch along each axis, in pixels or channels. Default: about half of the shortest axis, odd, at most 7.
    pool : int or sequence of int, optional
        Number of regions along each axis that spikes are added up over. Several numbers give several sizes of regions at once.
        A further `Convolution` needs one number. Default: the root of the number of places along the axis, at most 5.
    stride : int
        Distance between neighbouring places.
    padding : bool
        Whether patches may reach over the edge, where they see nothing: then there are as many places as channels.
    overlap : float
        Length of a region divided by the distance between regions. 1 is a partition.

    Examples
    --------
    >>> grid = Convolution(10, size=3, pool=2).over(1, (8, 8))
    >>> grid.senders, grid.places, grid.regions
    (9, 64, 4)
    """

    filters: int
    size: int | Sequence[int] | None = None
    pool: int | Sequence[int] | None = None
    stride: int = 1
    padding: bool = True
    overlap: float = 1.6

    def __post_init__(self) -> None:
        check_integer("Convolution: filters", self.filters, 1)
        for size in () if self.size is None else several(self.size):
            check_integer("Convolution: size", size, 1)
        if self.pool is not None and not several(self.pool):
            raise ValueError(f"Convolution: pool must be a number of regions, or several, got {self.pool!r}.")
        for pool in () if self.pool is None else several(self.pool):
            check_integer("Convolution: pool", pool, 1)
        check_integer("Convolution: stride", self.stride, 1)
        if not check_positive("Convolution: overlap", self.overlap) >= 1:
            raise ValueError(f"Convolution: overlap must be at least 1, got {self.overlap!r}.")

    def over(self, maps: int, space: Sequence[int]) -> Grid:
        """Return the places and regions on `maps` maps of channels that are laid out as `space`, such as (28, 28)."""
        return Grid(self, maps, tuple(space))


def several(value: object) -> tuple[int, ...]:
    """Return one or several numbers as a tuple."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)  # type: ignore[return-value]


def split_layout(layout: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return the number of maps and the axes in space of a layout of channels.

    One axis and two axes are space. Of three axes the shortest one, which must be the first or the last, numbers the maps, such
    as colours or polarities.

    Examples
    --------
    >>> split_layout((28, 28)), split_layout((32, 32, 3)), split_layout((2, 34, 34))
    ((1, (28, 28)), (3, (32, 32)), (2, (34, 34)))
    """
    axes = tuple(int(n) for n in layout)
    if len(axes) < 3:
        return 1, axes
    if len(axes) > 3 or axes[1] < min(axes[0], axes[2]) or axes[0] == axes[1] == axes[2]:
        raise ValueError(
            "hidden: a Convolution takes channels laid out along 1 or 2 axes, and a short first or last axis of maps "
            f"(colours, polarities), got {axes}."
        )
    return (axes[0], axes[1:]) if axes[0] <= axes[2] else (axes[2], axes[:2])


class Grid:
    """Where the filters of a `Convolution` look, and what is added up.

    Parameters
    ----------
    shape : Convolution
    maps : int
    space : tuple of int
        How the channels of a map are laid out.
    last : bool
        Whether maps are numbered along the last axis of the layout, as colours often are.

    Attributes
    ----------
    size : tuple of int
        Length of a patch along each axis.
    pools : tuple of int
        Numbers of regions along each axis.
    pooled : tuple of int or None
        How regions are laid out; None if they have several sizes.
    """

    def __init__(self, shape: Convolution, maps: int, space: tuple[int, ...], *, last: bool = False) -> None:
        self.shape, self.maps, self.space, self._last = shape, maps, space, last
        self.size = _patch(shape, space)
        starts = [range(0, (n if shape.padding else n - s + 1), shape.stride) for n, s in zip(space, self.size, strict=True)]
        self._starts = [np.asarray(r) for r in starts]
        self.across = tuple(len(r) for r in starts)
        usual = max(1, min(5, round(min(self.across) ** 0.5)))
        self.pools = (usual,) if shape.pool is None else several(shape.pool)
        for pool in self.pools:
            if pool > min(self.across):
                raise ValueError(
                    f"hidden: Convolution(pool={pool}) asks for {pool} regions along an axis of {min(self.across)} places. Use "
                    "fewer regions."
                )
        self.pooled = (self.pools[0],) * len(space) if len(self.pools) == 1 else None

    @property
    def senders(self) -> int:
        """Number of channels in a patch."""
        return self.maps * math.prod(self.size)

    @property
    def channels(self) -> int:
        """Number of channels of all maps."""
        return self.maps * math.prod(self.space)

    @property
    def places(self) -> int:
        """Number of places."""
        return math.prod(self.across)

    @property
    def regions(self) -> int:
        """Number of regions, of all sizes."""
        return sum(pool ** len(self.space) for pool in self.pools)

    @property
    def middle(self) -> int:
        """Number of the place in the middle."""
        return int(np.ravel_multi_index([n // 2 for n in self.across], self.across))

    def patches(self) -> Tensor:
        """Return the channels (senders, places) of the patch at each place; beyond the edge it is the number of channels."""
        numbers = np.arange(self.channels).reshape((*self.space, self.maps) if self._last else (self.maps, *self.space))
        numbers = np.moveaxis(numbers, -1, 0) if self._last else numbers
        before = [(s - 1) // 2 if self.shape.padding else 0 for s in self.size]
        at = []
        for number, (starts, size, first) in enumerate(zip(self._starts, self.size, before, strict=True)):
            along = starts[None, :] - first + np.arange(size)[:, None]  # (size, places along the axis)
            shape = [1] * (2 * len(self.size))
            shape[number], shape[len(self.size) + number] = along.shape
            at.append(along.reshape(shape))
        inside = np.ones([*self.size, *self.across], dtype=bool)
        flat = np.zeros([*self.size, *self.across], dtype=np.int64)
        for along, length in zip(at, self.space, strict=True):
            inside &= (along >= 0) & (along < length)
            flat = flat * length + along.clip(0, length - 1)
        found = numbers.reshape(self.maps, -1)[:, flat]  # (maps, *size, *across)
        found = np.where(inside, found, self.channels)
        return torch.from_numpy(found.reshape(self.senders, self.places))

    def regions_of_places(self) -> Tensor:
        """Return which places belong to which regions: (regions, places), 1 inside and 0 outside."""
        found = []
        for pool in self.pools:
            along = [_intervals(length, pool, self.shape.overlap) for length in self.across]
            for rows in product(*along):
                box = torch.ones(1)
                for inside in rows:
                    box = (box[:, None] * inside).flatten()
                found.append(box)
        return torch.stack(found)


def _patch(shape: Convolution, space: tuple[int, ...]) -> tuple[int, ...]:
    """Return the length of a patch along each axis."""
    usual = max(3, min(7, min(space) // 4 * 2 + 1))
    given = (min(usual, *space),) if shape.size is None else several(shape.size)
    size = given * len(space) if len(given) == 1 else given
    if len(size) != len(space) or any(s > n for s, n in zip(size, space, strict=False)):
        raise ValueError(
            f"hidden: Convolution(size={shape.size!r}) does not fit channels laid out as {space}. Give one size, or one along "
            "each axis, at most as long as the axis."
        )
    return size


def _intervals(length: int, count: int, overlap: float) -> Tensor:
    """Return `count` intervals of equal length that cover an axis: (count, length), 1 inside and 0 outside."""
    distance = length / (count - 1 + overlap)
    width = min(length, max(1, round(overlap * distance)))
    at, found = torch.arange(length), []
    for i in range(count):
        first = round(i * (length - width) / max(count - 1, 1))
        found.append(((at >= first) & (at < first + width)).float())
    return torch.stack(found)


def constant_in_time(signals: Tensor | EventBatch) -> bool:
    """Return whether signals (senders, steps, batch) are one step that was expanded: the same at all times."""
    return isinstance(signals, Tensor) and signals.shape[1] > 1 and signals.stride(1) == 0


def integrated(current: Tensor, biases: Tensor, steps: int) -> Tensor:
    r"""Count the spikes of integrate-and-fire neurons whose input does not change.

    Without a leak, and with spikes that cost 1, the potential before inhibition is :math:`v(t) = b + u t` at the steps
    :math:`t = 1, \dots, T`, with :math:`b < 1`. A neuron fires at most once a step, from the first step on with
    :math:`v(t) \ge 1`, so that it fires

    .. math:: n = \min\big(\lfloor b + u T \rfloor,\ T + 1 - \lceil (1 - b) / u \rceil\big)

    times if :math:`u > 0` and that is above 0, and never otherwise.

    Parameters
    ----------
    current : Tensor of shape (neurons, any)
        `u`. Overwritten by the result.
    biases : Tensor of shape (neurons,)
        `b`.

    Examples
    --------
    >>> integrated(torch.tensor([[-1.0, 0.1, 0.25, 0.5, 3.0]]), torch.tensor([0.0]), 4)
    tensor([[0., 0., 1., 2., 4.]])
    """
    b = biases[:, None]
    u = current.clamp_(min=1e-30)
    late = ((1 - b) / u).ceil_()
    u.mul_(steps).add_(b).floor_()
    return torch.minimum(u, late.neg_().add_(steps + 1), out=u).clamp_(min=0)


class ConvolutionLayer(SpikingLayer):
    r"""Filters over all places, and the sums of their spikes over regions.

    Signals have the shape (channels, steps, batch). Potentials are those of every filter at every place, with places and
    samples side by side: (filters, steps, places * batch). What comes out are pooled spikes: (filters * regions, steps, batch).

    Parameters
    ----------
    grid : Grid
    kernel, refractory : Kernel
    """

    index: Tensor
    regions: Tensor

    def __init__(self, grid: Grid, kernel: Kernel, refractory: Kernel, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(grid.senders, grid.shape.filters, kernel, refractory, dtype=dtype)
        self.grid = grid
        self.register_buffer("index", grid.patches(), persistent=False)  # (senders, P)
        self.register_buffer("regions", grid.regions_of_places().to(dtype), persistent=False)  # (R, P)

    @property
    def inputs(self) -> int:
        """Number of channels that it takes."""
        return self.grid.channels

    @property
    def outputs(self) -> int:
        """Number of pooled spike trains that it puts out."""
        return self.neurons * self.grid.regions

    @property
    def places(self) -> int:
        """Number of places: each filter is a neuron at each of them."""
        return self.grid.places

    def arrivals(self, active: Tensor) -> Tensor:
        """Return how often synapses of each sender get an input at all places, from how often channels are active."""
        return torch.cat([active, active.new_zeros(1)])[self.index.cpu()].sum(dim=1)

    def per_neuron(self, spikes: Tensor) -> Tensor:
        """Return spikes (filters, steps, batch) of each filter at all places, from pooled ones: exact but for overlaps."""
        each = spikes.unflatten(0, (self.neurons, -1)).sum(dim=1)
        return each * (self.places / float(self.regions.sum()))

    def fired(self, signals: Tensor | EventBatch, filters: Tensor, spikes: Tensor) -> Tensor:
        """Return how many spikes each filter makes at all places, (filters,), float64."""
        return super().fire(self.potentials(signals, filters)).sum(dim=(1, 2)).double().cpu()

    def charge(self, potentials: Tensor) -> Tensor:
        """Refuse: what a convolution puts out are pooled spikes, which have no potential."""
        raise ValueError("potentials: a Convolution puts out pooled spikes, which have no membrane potential of their own.")

    def forward(self, x: Tensor) -> Tensor:
        """Map values or spikes (batch, time, channels) to pooled spikes (batch, time, filters * regions), without gradients."""
        if x.ndim != 3 or x.shape[2] != self.inputs:
            raise ValueError(f"x must have shape (batch, time, channels={self.inputs}), got {tuple(x.shape)}.")
        with torch.no_grad():
            signals = x.to(self.weights).permute(2, 1, 0)
            return self.fire(self.potentials(signals, self.filters(x.shape[1], x.shape[1]))).permute(2, 1, 0)

    def respond(self, signals: Tensor, steps: int, start: int = 0) -> Tensor:
        """Refuse: a convolution has no gradients."""
        raise NotImplementedError("a Convolution is sampled and has no gradients: use torch.no_grad().")

    def numbers(self, steps: int) -> int:
        """Return how many numbers a sample takes while the layer is simulated."""
        return (self.senders + 3 * self.neurons) * self.grid.places * steps + self.outputs * steps

    @property
    def spike_dtype(self) -> torch.dtype:
        """Integers that hold the pooled spikes of a step."""
        return torch.int32 if self.grid.places > 2**15 else torch.int16

    def rates(self, spikes: Tensor) -> Tensor:
        """Return spikes per step of each filter at a place, (filters,), from pooled ones. Places in two regions count twice."""
        each = spikes.unflatten(0, (self.neurons, -1)).sum(dim=(1, 2, 3), dtype=torch.float64)
        return (each / (float(self.regions.sum()) * spikes[0].numel())).cpu()

    def patches(self, signals: Tensor, places: Tensor | None = None) -> Tensor:
        """Return what filters see of signals (channels, steps, batch): (senders, steps, places, batch). Default: all places."""
        if constant_in_time(signals):
            return self.patches(signals[:, :1], places).expand(-1, signals.shape[1], -1, -1)
        channels, steps, batch = signals.shape
        index = self.index if places is None else self.index[:, places]
        index = index if not self.grid.shape.padding else index.clamp(max=channels)
        rows = signals.reshape(channels * steps, batch)
        if self.grid.shape.padding:
            rows = torch.cat([rows, rows.new_zeros(steps, batch)])
        at = index[:, None] * steps + torch.arange(steps, device=index.device)[:, None]  # (senders, steps, P)
        return rows[at.flatten()].view(*at.shape, batch)

    def potentials(self, signals: Tensor | EventBatch, filters: Tensor, work: Workspace | None = None) -> Tensor:
        """Return response plus bias, without refractory part, of shape (filters, steps, places * batch)."""
        signals = self._dense(signals)[:, : filters.shape[2]]
        if constant_in_time(signals):
            u = self.currents(signals)  # (K, P B)
            reached = filters.sum(dim=2)  # (K, S), the response to a constant 1
            return torch.addcmul(self.biases[:, None, None], reached[:, :, None], u[:, None])
        seen = self.patches(signals.to(self.weights)).flatten(2)  # (senders, I, P B)
        return filter_signals(filters, self.weights, seen, work).add_(self.biases[:, None, None])

    def currents(self, signals: Tensor) -> Tensor:
        """Return the weighted input (filters, places * batch) of signals that are constant in time."""
        return self.weights @ self.patches(signals[:, :1].to(self.weights)).flatten(1)

    def fire(self, potentials: Tensor) -> Tensor:
        """Return the pooled spikes, of shape (filters * regions, steps, batch). Overwrites `potentials`."""
        return self.pool(super().fire(potentials))

    def pool(self, spikes: Tensor) -> Tensor:
        """Add up spikes (filters, steps, places * batch) over regions: (filters * regions, steps, batch)."""
        each = spikes.unflatten(2, (self.grid.places, -1))  # (K, S, P, B)
        return torch.matmul(self.regions.to(each), each).transpose(1, 2).flatten(0, 1)

    def counts(self, signals: Tensor | EventBatch, filters: Tensor) -> Tensor | None:
        """Return how often neurons fire at all steps, pooled, (filters * regions, batch), if that needs no simulation."""
        steps = filters.shape[1]
        if not isinstance(signals, Tensor) or not (constant_in_time(signals[:, : filters.shape[2]]) and self.integrates()):
            return None
        n = integrated(self.currents(signals), self.biases, steps).view(self.neurons, self.grid.places, -1)
        return torch.matmul(self.regions, n).flatten(0, 1)

    def integrates(self) -> bool:
        """Return whether the neurons integrate without a leak, and each spike subtracts the threshold 1."""
        kernels = isinstance(self.kernel, Exponential) and isinstance(self.refractory, Exponential)
        return kernels and bool(
            (self.supports > NO_LEAK).all()
            and (self.refractory_supports > NO_LEAK).all()
            and (self.costs == -1).all()
            and (self.delays == 0).all()
            and (self.biases < 1).all()
        )

    def _dense(self, signals: Tensor | EventBatch) -> Tensor:
        """Return signals (channels, steps, batch); events go to their nearest steps."""
        if isinstance(signals, EventBatch):
            return signals.dense().permute(2, 1, 0).to(self.weights).contiguous()
        return signals

    def extra_repr(self) -> str:
        """Describe the layer in the module's repr."""
        size, space = "x".join(map(str, self.grid.size)), "x".join(map(str, self.grid.space))
        return f"{self.neurons} filters of {size} over {self.grid.maps} maps of {space}, {self.grid.regions} regions"


def check_hidden(name: str, value: object) -> tuple[int | Convolution, ...]:
    """Return one width or `Convolution` per hidden layer."""
    given = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ()
    if not given:
        raise ValueError(f"{name} must list one width per hidden layer, such as (750,), got {value!r}.")
    return tuple(item if isinstance(item, Convolution) else check_integer(name, item, 1) for item in given)


def hidden_shapes(inputs: int, hidden: Sequence[int | Convolution], layout: Sequence[int] | None) -> list[int | Grid]:
    """Return the width of each dense layer and the grid of each convolution.

    `inputs` channels are laid out as `layout`. Default: in a row.
    """
    here: tuple[int, ...] | None = (inputs,) if layout is None else tuple(layout)
    if layout is not None and math.prod(layout) != inputs:
        raise ValueError(f"layout: {tuple(layout)} has {math.prod(layout)} channels, but there are {inputs}.")
    found: list[int | Grid] = []
    maps = 0
    for number, shape in enumerate(check_hidden("hidden", hidden), start=1):
        if not isinstance(shape, Convolution):
            found.append(shape)
            here = None
            continue
        if here is None:
            reason = "follows a dense layer, or one with regions of several sizes"
            raise ValueError(f"hidden: layer {number} is a Convolution but {reason}: its inputs have no places.")
        if number == 1:
            maps, space = split_layout(here)
            grid = Grid(shape, maps, space, last=len(here) == 3 and space == here[:2])
        else:
            grid = Grid(shape, maps, here)
        found.append(grid)
        here, maps = grid.pooled, shape.filters
    return found


def widths_of(shapes: Sequence[int | Grid]) -> list[int]:
    """Return how many spike trains each hidden layer puts out."""
    return [shape.shape.filters * shape.regions if isinstance(shape, Grid) else shape for shape in shapes]


def hidden_layers(
    inputs: int, shapes: Sequence[int | Grid], kernels: Sequence[Kernel], refractory: Kernel, dtype: torch.dtype
) -> list[SpikingLayer]:
    """Return hidden layers, their parameters still to be set."""
    layers: list[SpikingLayer] = []
    for shape, kernel, senders in zip(shapes, kernels, [inputs, *widths_of(shapes)], strict=False):
        if isinstance(shape, Grid):
            layers.append(ConvolutionLayer(shape, kernel, refractory, dtype=dtype))
        else:
            layers.append(SpikingLayer(senders, shape, kernel, refractory, dtype=dtype))
    return layers
