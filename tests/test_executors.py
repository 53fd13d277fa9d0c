"""Sums are the same bit for bit whoever computes them, whatever dies on the way, and few results are held at a time."""

import os
import signal
import subprocess
import sys
import time
import warnings
from itertools import filterfalse
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from hypothesis import given, settings
from hypothesis import strategies as st

from sswim.machine import PIECES
from sswim.scale import Executor, Kept, Processes, Threads, processes, resolve_executor
from sswim.scale.base import MOST, add_up, cut
from sswim.scale.kept import BRANCH

GROUPS = [range(0, 11), range(11, 12), range(12, 45)]
WANTED = [toys.literal(list(group)) for group in GROUPS]


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@given(st.integers(1, 200))
@settings(deadline=None)
def test_the_order_of_additions_depends_on_their_number_alone(count):
    assert toys.same(
        [add_up(count, (toys.Sum(toys.numbers(item)) for item in range(count)))], [toys.literal(list(range(count)))]
    )


@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.integers(1, 40))
@settings(deadline=None)
def test_pieces_are_branches_of_the_tree(lengths, workers):
    groups = [list(range(length)) for length in lengths]
    pieces = cut(groups, workers)
    assert [sum(group, []) for group in pieces] == groups and max(len(p) for group in pieces for p in group) <= MOST
    totals = [add_up(len(group), map(toys.literal, group)) for group in pieces]
    assert toys.same(totals, map(toys.literal, groups))
    sizes = [size for size in (1, 2, 4, 8) if sum(len(group[::size]) for group in groups) >= 4 * workers]
    size = max(sizes, default=1)  # as few results as possible travel, but each worker has four pieces to take
    assert pieces == [[group[i : i + size] for i in range(0, len(group), size)] for group in groups]


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_any_groups_on_any_threads(lengths, number):
    groups, before, calls = [range(7, 7 + length) for length in lengths], torch.get_num_threads(), []
    torch.set_num_threads(number)
    try:
        found = list(Threads().sums(toys.sleepy, groups, 0.3, lambda: calls.append(1)))
    finally:
        torch.set_num_threads(before)
    assert toys.same(found, [toys.literal(list(group), 0.3) for group in groups]) and len(calls) == sum(lengths)


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_processes_equal_threads(workers):
    calls = []
    found = list(Processes(workers).sums(toys.sleepy, GROUPS, 1.0, lambda: calls.append(1)))
    assert toys.same(found, WANTED) and len(calls) == sum(map(len, GROUPS))


@pytest.mark.slow
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_any_groups_in_any_processes(lengths, workers):
    groups = [range(7, 7 + length) for length in lengths]
    assert toys.same(Processes(workers).sums(toys.sleepy, groups, 0.3), [toys.literal(list(g), 0.3) for g in groups])


@pytest.mark.parametrize("work, workers", [(toys.dies_in_work, 2), (toys.dies_in_addition, 1)])
def test_a_killed_worker_costs_only_time(work, workers, tmp_path, caplog):
    mark, calls = tmp_path / "mark", []
    found = list(Processes(workers).sums(work, GROUPS, str(mark), lambda: calls.append(1)))
    assert toys.same(found, WANTED) and len(calls) == sum(map(len, GROUPS))
    assert mark.exists() and int(mark.read_text()) != os.getpid() and "died" in caplog.text


def test_workers_that_always_die_end_in_an_error(monkeypatch):
    assert processes.DEATHS == 5
    monkeypatch.setattr(processes, "DEATHS", 2)
    with pytest.raises(RuntimeError, match="died 2 times in a row. Most often memory ran out: use fewer processes"):
        list(Processes(1).sums(toys.always_dies, [range(3)], None))


@pytest.mark.parametrize("executor", [Threads(), Processes(1)], ids=repr)
def test_an_error_of_the_work_reaches_the_caller_at_once(executor, tmp_path):
    with pytest.raises(ValueError, match="^rows: five is too many$"):
        list(executor.sums(toys.fails, [range(20)], str(tmp_path)))
    assert len([name for name in os.listdir(tmp_path) if name.startswith("5-")]) == 1  # not tried again


def test_an_error_that_cannot_be_sent_is_told():
    with pytest.raises(RuntimeError, match="^Strange: 1 and 2$"):
        list(Processes(1).sums(toys.fails_strangely, [range(3)], None))


def test_few_results_are_alive(threads, tmp_path):
    log = tmp_path / "log"
    list(Threads().sums(toys.counted, [range(200), range(100)], str(log)))
    # Those under way, one for each level of the tree, and the sum that is just made.
    assert max(map(int, log.read_text().split())) <= min(threads, PIECES) + 2 + 8 + 2


def test_few_results_are_alive_in_each_process(tmp_path):
    log = tmp_path / "log"
    assert next(Processes(2).sums(toys.counted, [range(200)], str(log))).items == 200
    assert max(map(int, log.read_text().split())) <= 8 + 2


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sums = Processes(1).sums(toys.plain, [range(2)] * 20, 1.0)
    next(sums)
    assert len(os.listdir(tmp_path)) == 1
    sums.close()
    assert os.listdir(tmp_path) == []


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def gone(pid):
    """Whether a process has ended, perhaps without anyone who asked for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def driver(code, **environment):
    """Start a process that uses executors."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, **environment}
    text = f"import toys\nfrom sswim.scale import *\nif __name__ == '__main__':\n    {code}"
    return subprocess.Popen([sys.executable, "-c", text], env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_main_process(how, tmp_path):
    seen, temporary = tmp_path / "seen", tmp_path / "temporary"
    seen.mkdir()
    temporary.mkdir()
    process = driver(f"list(Processes(2).sums(toys.pid_and_sleep, [range(2)], {str(seen)!r}))", TMPDIR=str(temporary))
    try:
        wait_for(lambda: process.poll() is not None or len(os.listdir(seen)) == 2)
        process.send_signal(how)
        process.wait(60)
        wait_for(lambda: all(map(gone, os.listdir(seen))))
        wait_for(lambda: not list(temporary.glob("sswim-*")))  # Python's own folder of a killed process stays
    finally:
        process.kill()
        process.wait()
        for pid in filterfalse(gone, os.listdir(seen)):
            os.kill(int(pid), signal.SIGKILL)


def keeping(folder, log, seconds=0.0, executor=None):
    executor = Kept(executor or Threads(), folder, "toy", toys.Sum)
    return list(executor.sums(toys.noted, GROUPS, (str(log), seconds)))


def test_a_killed_fit_goes_on_where_it_was(tmp_path):
    folder, log, again = tmp_path / "kept", tmp_path / "log", tmp_path / "again"
    code = f"list(Kept(Threads(), {str(folder)!r}, 'toy', toys.Sum).sums(toys.noted, {GROUPS}, ({str(log)!r}, 0.05)))"
    process = driver(code)
    try:
        wait_for(lambda: process.poll() is not None or (log.exists() and len(log.read_text().split()) >= 30))
    finally:
        process.kill()
        process.wait()
    assert toys.same(keeping(folder, again), WANTED)
    assert len(again.read_text().split()) <= 45 - 24  # the branch under way is done again, those before it are not
    again.unlink()
    assert toys.same(keeping(folder, again), WANTED) and not again.exists()
    assert len(os.listdir(folder)) == len(GROUPS)  # branches of a group that is done are not kept


@given(st.integers(1, 100), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_kept_sums_equal_others_wherever_the_work_stops(tmp_path_factory, count, stop):
    folder, calls = tmp_path_factory.mktemp("kept"), []
    executor = Kept(Threads(), folder, "toy", toys.Sum)

    def stops(common, item):
        if item == stop:
            raise KeyboardInterrupt
        return toys.Sum(toys.numbers(item))

    def counts(common, item):
        calls.append(item)
        return toys.Sum(toys.numbers(item))

    groups, advanced = [range(count), range(50, 60)], []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        list(executor.sums(stops, groups, None))
    except KeyboardInterrupt:
        pass
    assert toys.same(executor.sums(counts, groups, None, lambda: advanced.append(1)), [toys.literal(list(g)) for g in groups])
    torch.set_num_threads(before)
    assert len(advanced) == count + 10
    if stop < count:
        assert sorted(i for i in calls[: count - stop // BRANCH * BRANCH]) == list(range(stop // BRANCH * BRANCH, count))
    else:
        assert all(item >= 50 for item in calls)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "folder"])
@pytest.mark.filterwarnings("ignore:.*The sum is not kept")
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    folder, log = tmp_path / "kept", tmp_path / "log"
    keeping(folder, log)
    log.unlink()
    files = sorted(folder.iterdir())
    raw = files[0].read_bytes()
    wrong = {
        "flip": raw[:-1] + bytes([raw[-1] ^ 1]),
        "cut": raw[: len(raw) // 2],
        "empty": b"",
        "foreign": files[1].read_bytes(),
    }
    if damage == "folder":
        files[0].unlink()
        files[0].mkdir()
    else:
        files[0].write_bytes(wrong[damage])
    with pytest.warns(UserWarning, match="this kept sum cannot be used .*computed again"):
        assert toys.same(keeping(folder, log), WANTED)
    assert len(log.read_text().split()) in map(len, GROUPS)
    if damage != "folder":
        log.unlink()
        assert toys.same(keeping(folder, log), WANTED) and not log.exists()


def test_sums_of_another_key_are_not_used(tmp_path):
    one, other = (Kept(Threads(), tmp_path, key, toys.Sum) for key in "ab")
    assert not toys.same(one.sums(toys.plain, GROUPS, 1.0), other.sums(toys.plain, GROUPS, 2.0))


def test_sums_that_cannot_be_kept_are_still_computed(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.warns(UserWarning, match="No space left on device.*The sum is not kept"):
        assert toys.same(keeping(tmp_path / "kept", tmp_path / "log"), WANTED)


def test_processes_keep_sums_too(tmp_path):
    assert toys.same(keeping(tmp_path / "kept", tmp_path / "log", executor=Processes(1)), WANTED)
    (tmp_path / "log").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert toys.same(keeping(tmp_path / "kept", tmp_path / "log"), WANTED) and not (tmp_path / "log").exists()


@pytest.mark.parametrize("executor", [Threads(), Processes(1)], ids=repr)
def test_groups_may_be_none_but_not_empty(executor):
    assert list(executor.sums(toys.plain, [], 1.0)) == []
    with pytest.raises(ValueError, match="groups: each must have at least one item, but group 1 is empty"):
        list(executor.sums(toys.plain, [[1], []], 1.0))


def test_users_name_executors():
    assert resolve_executor(None) == Threads() and resolve_executor(np.int64(3)) == Processes(3)
    kept = Kept(Threads(), "folder", "key", toys.Sum)
    assert resolve_executor(kept) is kept and isinstance(kept, Executor)
    for wrong in (True, 1.5, "two", object):
        with pytest.raises(TypeError, match="executor must be None, a number of processes >= 1, the address of a Dask"):
            resolve_executor(wrong)
    with pytest.raises(ValueError, match="executor must be a whole number >= 1, got 0"):
        resolve_executor(0)


def test_without_dask_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"run `pip install 'sswim\[dask\]'`"):
        resolve_executor("tcp://127.0.0.1:8786")
