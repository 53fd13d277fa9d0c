"""A slice of `make fuzz`, and its own judgement: it must tell clear errors from others."""

import numpy as np
import pytest

from sswim import Forecaster
from tests.fuzz import fits
from tests.fuzz.problems import Problem, problem


def test_some_random_problems_end_well():
    counts, offenders = fits.run(range(40), lambda seed: fits.judged(problem(seed)))
    assert not offenders, "\n".join(f"{problem(seed)}\n{outcome}: {text}" for seed, outcome, text in offenders)
    assert counts["ok"] >= 15


def test_a_seed_is_a_problem():
    assert [str(problem(seed)) for seed in range(30)] == [str(problem(seed)) for seed in range(30)]


def raised(error):
    def solve():
        raise error

    return solve


def refused():
    Forecaster(window=0).fit(np.zeros((50, 1)))


@pytest.mark.parametrize(
    ("solve", "wrong", "outcome"),
    [
        (lambda: {"a": np.zeros(3)}, "", "ok"),
        (lambda: {"a": np.zeros(3)}, "window", "accepted a mistake"),
        (lambda: {"a": [np.zeros(3), np.array([1.0, np.nan])]}, "", "not finite"),
        (refused, "window", "clear error"),
        (raised(ValueError("window must be a whole number")), "window", "unclear error"),  # not raised by the library
        (raised(RuntimeError("window must be a whole number")), "window", "unclear error"),
        (raised(MemoryError()), "", "memory"),
    ],
)
def test_outcomes_are_told_apart(solve, wrong, outcome):
    assert fits.judged(Problem(0, wrong=wrong, solve=solve))[0] == outcome


@pytest.mark.parametrize(
    ("text", "good"), [("window must be a whole number >= 1, got 0.", True), ("bad value", False), ("", False)]
)
def test_a_clear_error_names_an_argument_and_a_rule(text, good, monkeypatch):
    monkeypatch.setattr(fits, "LIBRARY", __file__)
    assert (fits.judged(Problem(0, solve=raised(ValueError(text))))[0] == "clear error") is good
