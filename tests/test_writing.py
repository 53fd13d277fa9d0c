"""Files appear whole or not at all, under names of their own, and never in place of what is read."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from sswim.writing import check_place, whole_file


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

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(OSError, match=r"--out: nothing can be written to the folder .* \(Permission denied\)"):
        check_place(tmp_path / "new.csv")
    assert sorted(os.listdir(tmp_path)) == ["link.csv", "load.csv"]
