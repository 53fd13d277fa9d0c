"""Files appear whole or not at all, under names of their own, and never in place of what is read."""

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from sswim import Forecaster
from sswim.writing import PICTURES, check_place, whole_file


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    place = tmp_path / "answer.txt"
    with whole_file(place) as part:
        part.write_text("one")
        assert not place.exists() and part.suffix == ".txt" and part.parent == tmp_path
    assert place.read_text() == "one"
    with pytest.raises(RuntimeError, match="stop"), whole_file(place) as part:
        part.write_text("two")
        raise RuntimeError("stop")
    assert place.read_text() == "one" and os.listdir(tmp_path) == ["answer.txt"]


def test_a_full_disk_is_told_and_loses_nothing(tmp_path):
    place = tmp_path / "answer.txt"
    place.write_text("one")
    told = r"answer.txt: could not be written \(No space left on device\). What was there before is unchanged"
    with pytest.raises(OSError, match=told):
        with whole_file(place):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert place.read_text() == "one" and os.listdir(tmp_path) == ["answer.txt"]


def test_writers_of_one_file_do_not_share_a_part(tmp_path):
    place, start = tmp_path / "answer.txt", threading.Barrier(4)

    def write(text):
        with whole_file(place) as part:
            start.wait()
            part.write_text(text * 1000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place.read_text() in {letter * 1000 for letter in "abcd"} and os.listdir(tmp_path) == ["answer.txt"]


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path):
    place = tmp_path / "answer.txt"
    code = (
        "import os, signal; from sswim.writing import whole_file\n"
        f"with whole_file({str(place)!r}) as part:\n    part.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode != 0
    assert len(os.listdir(tmp_path)) == 1 and not place.exists()
    mine = tmp_path / f".answer.txt.{os.getpid()}.0.part.txt"  # of a process that still runs
    mine.write_text("")
    with whole_file(place) as part:
        part.write_text("whole")
    assert sorted(os.listdir(tmp_path)) == sorted(["answer.txt", mine.name])


def test_a_place_is_looked_at_before_the_work(tmp_path, monkeypatch):
    data = tmp_path / "load.csv"
    data.write_text("1")
    assert check_place(tmp_path / "new.csv", data, None) == tmp_path / "new.csv"
    (tmp_path / "link.csv").symlink_to(data)
    for same in (data, tmp_path / "." / "load.csv", tmp_path / "link.csv"):
        with pytest.raises(ValueError, match="is a file that is read here, and would be lost. Name another."):
            check_place(same, tmp_path / "other.csv", data)
    with pytest.raises(FileNotFoundError, match="--out: the folder .*nowhere does not exist"):
        check_place(tmp_path / "nowhere" / "new.csv")
    with pytest.raises(IsADirectoryError, match="--model: .* is a folder. Name a file in it."):
        check_place(tmp_path, name="--model")

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    with pytest.raises(OSError, match=r"--out: nothing can be written to the folder .* \(Permission denied\)"):
        check_place(tmp_path / "new.csv")
    with pytest.raises(ValueError, match=r"--out: unknown format '.xyz' of .*new.xyz. Use one of .png, .pdf, .svg"):
        check_place(tmp_path / "new.xyz", endings=PICTURES)
    assert sorted(os.listdir(tmp_path)) == ["link.csv", "load.csv"]


forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


def limited(size, work):
    """Return what `work` raises, in a process of its own whose files may have `size` bytes at most, as on a full disk."""

    import resource

    def run(answers):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            work()
            answers.put("")
        except OSError as error:
            answers.put(str(error))

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=run, args=(answers,))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    return answer


@pytest.fixture(scope="module")
def models():
    """Two models, and what they forecast."""
    x = np.random.default_rng(0).standard_normal((200, 2)).cumsum(axis=0)
    fitted = [Forecaster(12, 4, hidden=(10,), random_state=seed, verbose=0).fit(x) for seed in (0, 1)]
    forecasts = [model.predict(x) for model in fitted]
    assert not np.array_equal(*forecasts)
    return x, fitted, forecasts


@forks
def test_a_full_disk_is_found_before_the_work_and_loses_nothing(models, tmp_path, monkeypatch):
    x, (one, other), (before, _) = models
    path = tmp_path / "m.sswim"
    one.save(path)
    told = limited(10_000, lambda: check_place(path))
    assert told == f"--out: nothing can be written to the folder {tmp_path} (File too large)."
    monkeypatch.setattr("sswim.writing.TRIAL", 100)  # there is a little room
    assert path.stat().st_size > 10_000
    told = limited(10_000, lambda: other.save(path))
    assert told == f"{path}: could not be written (File too large). What was there before is unchanged."
    np.testing.assert_array_equal(Forecaster.load(path).predict(x), before)
    assert os.listdir(tmp_path) == ["m.sswim"]


def saving(models, path, go_on=True):
    """Save models by turns, until killed or a few times."""
    for turn in range(10**6 if go_on else 20):
        models[turn % len(models)].save(path)


@forks
def test_kills_during_save_leave_a_whole_file(models, tmp_path):
    x, fitted, forecasts = models
    path, rng = tmp_path / "m[1].sswim", random.Random(0)
    fitted[0].save(path)
    context = multiprocessing.get_context("fork")
    for _ in range(20):
        process = context.Process(target=saving, args=(fitted, path))
        process.start()
        time.sleep(rng.uniform(0.02, 0.08))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = Forecaster.load(path).predict(x)
        assert any(np.array_equal(found, one) for one in forecasts)
    (tmp_path / f".m[1].sswim.{process.pid}.0.part.sswim").write_text("half")
    fitted[0].save(path)
    assert os.listdir(tmp_path) == ["m[1].sswim"]


@forks
def test_processes_that_save_to_one_path_do_not_mix(models, tmp_path):
    x, fitted, forecasts = models
    path = tmp_path / "m.sswim"
    fitted[0].save(path)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=saving, args=([model], path, False)) for model in fitted]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        found = Forecaster.load(path).predict(x)
        assert any(np.array_equal(found, one) for one in forecasts)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0] and os.listdir(tmp_path) == ["m.sswim"]
