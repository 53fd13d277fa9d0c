"""A slice of the fuzzing of files: damaged files are read as they were, or refused by an error that says why."""

import random

import numpy as np
import pytest
from fuzz import files


def test_damaged_files_are_refused_or_the_same():
    told = []
    counts = files.count(120, seed=0, tell=told.append)
    assert not told
    assert sum(sum(kind.values()) for kind in counts.values()) == 120
    assert {"model", "model, sealed anew", "checkpoint", "run", "table"} <= set(counts)
    assert counts["model"]["clear error"] > 20 and counts["table"]["ok"] > 3


@pytest.mark.parametrize("name", sorted(files.WRONG))
def test_wrong_tables_are_refused(name):
    for line in (1, 2, 30, 59):
        data = files.WRONG[name](files.table_text(), line)
        case = files.Case("table", name, ".csv", data, files.read_table, files.table_answer(), must_fail=True)
        assert files.outcome(case)[0] == "clear error"


@pytest.mark.parametrize("name", sorted(files.SAME))
def test_odd_tables_are_the_same(name):
    for line in (1, 2, 30, 59):
        data = files.SAME[name](files.table_text(), line)
        assert files.outcome(files.Case("table", name, ".csv", data, files.read_table, files.table_answer())) == ("ok", "")


def test_the_counts_can_be_bad(monkeypatch):
    def fail(error):
        def read(path):
            raise error

        return read

    def found(read, **settings):
        return files.outcome(files.Case("x", "x", ".csv", b"1", read, [np.ones(2)], **settings))[0]

    assert found(lambda path: [np.ones(2)]) == "ok"
    assert found(lambda path: [np.zeros(2)]) == "silently different"
    assert found(lambda path: [np.zeros(2)], may_differ=True) == "another"
    assert found(lambda path: [np.ones(2)], must_fail=True) == "silently different"
    for error in (KeyError("a"), RuntimeError("b"), ValueError("list index out of range"), TypeError("c")):
        assert found(fail(error)) == "unclear error"
    monkeypatch.setattr("sswim.sealed.is_whole", lambda header, tensors=None: True)
    rng, data, (_, read) = random.Random(0), files.models()[0][0], files.models()[0]
    results = set()
    for _ in range(20):  # of the numbers, which nothing else protects
        at = rng.randrange(len(data) - 4000, len(data))
        harmed = data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :]
        results.add(files.outcome(files.Case("model", "flip", ".sswim", harmed, read, files.model_answer(0)))[0])
    assert "silently different" in results
