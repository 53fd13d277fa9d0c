"""Work for executors. Workers import this module, so it is one of its own."""

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Sum:
    """A few numbers whose sum depends on the order of additions."""

    values: torch.Tensor
    items: int = 1

    def __add__(self, other):
        return Sum(self.values + other.values, self.items + other.items)

    def tensors(self):
        return {"values": self.values, "items": torch.tensor(self.items)}

    @classmethod
    def from_tensors(cls, tensors):
        return cls(tensors["values"], int(tensors["items"]))


def numbers(item):
    return torch.randn(3, generator=torch.Generator().manual_seed(item)) * 10 ** (item % 7)


def plain(common, item):
    assert torch.get_num_threads() == 1
    return Sum(numbers(item) * common)


def sleepy(common, item):
    """Finish in an order that nobody knows."""
    time.sleep(random.random() / 200)
    return plain(common, item)


def literal(items, common=1.0):
    """The sum as its definition says: the first part is the largest power of two that leaves something."""
    if len(items) == 1:
        return Sum(numbers(items[0]) * common)
    half = 1
    while 2 * half < len(items):
        half *= 2
    return literal(items[:half], common) + literal(items[half:], common)


def same(found, wanted):
    """Whether sums are equal bit for bit."""
    return [(s.values.numpy().tobytes(), s.items) for s in found] == [(s.values.numpy().tobytes(), s.items) for s in wanted]


def die_once(mark):
    """Kill this process, unless `mark` says that this was done before."""
    mark = Path(mark)
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Mortal(Sum):
    """A sum in whose addition a worker may be killed."""

    mark: str = ""

    def __add__(self, other):
        if self.items + other.items >= 4:
            die_once(self.mark)
        return Mortal(self.values + other.values, self.items + other.items, self.mark)


def dies_in_work(common, item):
    if item == 9:
        die_once(common)
    return Sum(numbers(item))


def dies_in_addition(common, item):
    return Mortal(numbers(item), 1, common)


def always_dies(common, item):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(common, item):
    Path(common, f"{item}-{time.time_ns()}").touch()
    if item == 5:
        raise ValueError("rows: five is too many")
    return Sum(numbers(item))


class Strange(Exception):
    """An error that cannot be made from its text alone."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def fails_strangely(common, item):
    raise Strange(1, 2)


@dataclass(frozen=True)
class Counted(Sum):
    """A sum that tells how many of its kind are alive in this process."""

    log: str = ""
    alive = 0

    def __post_init__(self):
        Counted.alive += 1
        with open(self.log, "a") as file:
            file.write(f"{Counted.alive}\n")

    def __del__(self):
        Counted.alive -= 1

    def __add__(self, other):
        return Counted(self.values + other.values, self.items + other.items, self.log)

    def __reduce__(self):
        return Counted, (self.values, self.items, self.log)


def counted(common, item):
    return Counted(numbers(item), 1, common)


def noted(common, item):
    """Note which items were worked on, slowly enough to be stopped in between."""
    time.sleep(common[1])
    with open(common[0], "a") as file:
        file.write(f"{item}\n")
    return Sum(numbers(item))


def pid_and_sleep(common, item):
    Path(common, str(os.getpid())).touch()
    time.sleep(600)
