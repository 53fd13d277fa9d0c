"""Blocks in time: however windows come, they go to the same blocks, and every sum is that of their rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sswim.readout.blocks import Part
from sswim.readout.ledger import Ledger

CHANNELS, FEATURES, OUTPUTS = 2, 3, 2


def rows_of(recording, windows):
    """Return features and targets of some windows, which their numbers alone determine."""
    t = torch.as_tensor(windows, dtype=torch.float64)[:, None] + 1000 * recording
    f = torch.cat([torch.sin(t), torch.cos(0.7 * t), torch.ones_like(t)], dim=1).expand(CHANNELS, -1, -1)
    y = torch.cat([torch.sin(t + 1), t % 7], dim=1).expand(CHANNELS, -1, -1)
    return f.contiguous(), y.contiguous()


class Recordings:
    """Recordings that windows are asked of by their place among the new ones."""

    def __init__(self, stretches):
        self.places = [(r, w) for r, first, last in stretches for w in range(first, last)]

    def sums(self, sets, weights):
        for windows, weight in zip(sets, weights, strict=True):
            chosen = [self.places[w] for w in windows.tolist()]
            f, y = (torch.cat(v, dim=1) for v in zip(*(rows_of(r, [w]) for r, w in chosen), strict=True))
            yield Part.of(f, y, weight)


def add(ledger, stretches, forget=None):
    """Add stretches (recording, first, last, begins) of windows."""
    lengths = [(begins, last - first) for _, first, last, begins in stretches]
    return ledger.extended(lengths, Recordings([s[:3] for s in stretches]).sums, forget)


def assert_equal(one, two):
    assert (one.step, one.recordings, one.tail_windows) == (two.step, two.recordings, two.tail_windows)
    assert [(b.windows, b.recording) for b in one.blocks] == [(b.windows, b.recording) for b in two.blocks]
    parts = [(a.part, b.part) for a, b in zip(one.blocks, two.blocks, strict=True)]
    parts += [(one.whole, two.whole)] + [(one.tail, two.tail)] * (one.tail is not None)
    for a, b in parts:
        for x, y in zip(a._sums(), b._sums(), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-9)
        assert a.rows == pytest.approx(b.rows)


ledgers = st.builds(Ledger, st.integers(30, 200), st.integers(2, 9), st.integers(1, 3))
HALF_LIVES = st.one_of(st.none(), st.floats(3, 500))


@settings(max_examples=60, deadline=None)
@given(ledger=ledgers, total=st.integers(30, 900), cuts=st.lists(st.floats(0.01, 0.99), max_size=5), forget=HALF_LIVES)
def test_it_does_not_matter_in_how_many_parts_a_recording_comes(ledger, total, cuts, forget):
    ends = [0, *sorted({int(c * total) for c in cuts} - {0}), total]
    step_by_step = ledger
    for first, last in zip(ends, ends[1:], strict=False):
        step_by_step = add(step_by_step, [(0, first, last, first == 0)], forget)
    assert_equal(step_by_step, add(ledger, [(0, 0, total, True)], forget))


@settings(max_examples=40, deadline=None)
@given(ledger=ledgers, lengths=st.lists(st.integers(201, 600), min_size=2, max_size=4))
def test_merged_is_one_recording_after_the_other(ledger, lengths):
    apart = [add(ledger, [(r, 0, n, True)]) for r, n in enumerate(lengths)]
    merged = apart[0]
    for other in apart[1:]:
        merged = merged.merged(other)
    assert_equal(merged, add(ledger, [(r, 0, n, True) for r, n in enumerate(lengths)]))
    assert len(merged.blocks) <= 2 * ledger.count


@settings(max_examples=40, deadline=None)
@given(ledger=ledgers, total=st.integers(30, 900), forget=HALF_LIVES)
def test_sums_are_those_of_the_windows_that_count(ledger, total, forget):
    found = add(ledger, [(0, 0, total, True)], forget)
    used = torch.arange(0, total, ledger.stride)
    weights = torch.ones(len(used)).double() if forget is None else 2 ** (-(total - 1 - used.double()) / forget)
    f, y = rows_of(0, used)
    torch.testing.assert_close(found.whole.gram[0], (f[0] * weights[:, None]).T @ f[0])
    torch.testing.assert_close(found.whole.cross[0], (f[0] * weights[:, None]).T @ y[0])
    assert found.whole.rows == pytest.approx(float(weights.sum()))
    inside = sum(block.windows for block in found.blocks) + found.tail_windows
    assert inside == len(used) and found.windows == total
    assert all(0 < say <= 1 + 1e-12 for say in found.says)


def test_the_first_fit_has_its_number_of_blocks_and_nothing_left_over():
    ledger = add(Ledger(571, 12), [(0, 0, 571, True)])
    assert [b.windows for b in ledger.blocks] == [571 * (b + 1) // 12 - 571 * b // 12 for b in range(12)]
    assert ledger.tail is None and ledger.says == [1.0] * 12


def test_short_recordings_go_on_in_one_block_and_long_ones_begin_their_own():
    short = add(Ledger(100, 4), [(r, 0, 10, True) for r in range(7)])
    assert short.recordings == (30, 30, 10)
    long = add(Ledger(100, 4), [(0, 0, 60, True), (1, 0, 60, True)])
    assert long.recordings == (60, 60) and [b.recording for b in long.blocks] == [0, 0, 1, 1]


def test_sums_of_another_layout_are_refused():
    with pytest.raises(ValueError, match="must come from one fit"):
        add(Ledger(100, 4), [(0, 0, 60, True)]).merged(add(Ledger(90, 4), [(0, 0, 60, True)]))


def test_what_decides_grows_by_a_quarter_at_a_time():
    ledger, decided = Ledger(80, 8), []
    for first in range(0, 160, 10):
        ledger = add(ledger, [(0, first, first + 10, first == 0)])
        decided.append(ledger.decided)
    assert decided == [1, 2, 3, 4, 5, 6, 7, 8, 8, 10, 10, 12, 12, 12, 15, 15]
    few = add(Ledger(20, 2), [(0, 0, 35, True)])
    assert few.decided == 3, "two blocks grow, too"
