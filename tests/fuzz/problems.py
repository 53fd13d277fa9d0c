"""Random problems for the estimators and `sample`, each from a seed: valid, borderline and invalid ones."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from sswim import (
    Classifier,
    Counts,
    Direct,
    Forecaster,
    FromScratch,
    Gradient,
    Scaling,
    Spikes,
    SpikingNetwork,
    Steps,
    Trajectory,
    Voltage,
    sample,
)
from sswim.data import ExactEvents, Latency, Poisson, Rate
from sswim.options import parse_memory
from sswim.sampling import STEPS

KERNELS = ["hat", "morlet", "morlet-wide", "exponential", "alpha"]
HUGE = [1e-320, 1e-300, 1e-160, 1e-38, 1e-12, 1e-3, 1.0, 1.0, 1.0, 1e3, 1e12, 1e38, 1e160, 1e300]
NAN, INF = float("nan"), float("inf")
# Values that no fit may accept, for parameters of both estimators.
WRONG = {
    "hidden": [0, (), (0,), (-3,), (2.5,), "20", None, ("a",), 5, (NAN,), {}, (10, 0)],
    "kernel": ["hatt", 3, None, (), ("hat", "hat", "hat"), ("hat", 3), object()],
    "validation": [0, 1, -0.5, 2.0, "0.2", None, NAN, [0.2], INF],
    "dtype": ["float16", "int", None, 32, float],
    "device": ["tpu", "cuda", "cuda:7", "meta", "mps", "", 3.5, None, [], "xla"],
    "memory": ["2XB", "", "GB", -1, 0, None, "1KB", NAN, INF, [], "-2GB", "nanGB", "infGB"],
    "random_state": ["a", -1, 1.5, NAN, [], {}],
    "training": ["grad", 5, [], Gradient, "None"],
    "steps": ["papers", None, 3, Steps, {}],
}
WRONG_FORECASTS = WRONG | {
    "window": [0, -1, 2.5, "8", None, NAN, True, [8]],
    "horizon": [0, -1, 2.5, "3", None, NAN, True, (3,)],
    "readout": ["directt", None, 3, Direct, "voltage", Counts()],
    "channels": ["both", None, 1, True],
    "covariates": [None, "a", 3, ["absent"], [99], [-1], [0, 0], [0.5], [None], [[0]]],
    "scaling": ["standrd", None, 1, Scaling, True],
    "missing": ["drop", None, 0, True],
}
WRONG_CLASSES = WRONG | {
    "readout": ["directt", None, 3, Voltage, "trajectory", Direct()],
    "encoder": ["imag", 3, Poisson, object()],
    "fields": ["8x8", 3, (3, 1000), (0,), (-2, -2), ("a",), (2.5,), ()],
    "class_weight": ["balancedd", 3, {"absent": -1.0, "other": NAN}, []],
}
# Option objects that must refuse to be made.
WRONG_OPTIONS = [
    (Direct, {"population": [0, -2, 2.5, None, "64"], "singles": [-1, 2.5, None, "8"], "blocks": [0, 1, 2.5, None]}),
    (Direct, {"traces": [0, -1.0, (), (-1.0,), (NAN,), "a", ("a",), [[1.0]], {}]}),
    (Trajectory, {"stride": [0, -1, 2.5, None], "delays": ["none", 3], "supports": ["x", 3], "regularization": ["x", 3]}),
    (Trajectory, {"kernel": ["hatt", 3, None], "assembly": ["x", 3]}),
    (Scaling, {"kind": ["x", None, 3]}),
    (Counts, {"traces": [0, -1.0, (), (NAN,), "a"], "loss": ["x", None], "regularization": ["x", 3]}),
    (Voltage, {"horizon": [0, 2.5, None], "delta": [-1.0, NAN, "a", None], "integrate": ["x", None], "kernel": ["x", 3]}),
    (
        Gradient,
        {"epochs": [0, -1, 2.5, None], "learning_rate": [0, -1.0, NAN, "a"], "batch_size": [0, 2.5], "surrogate": ["x", 3]},
    ),
    (Poisson, {"steps": [0, 2.5, None], "rate": [-1.0, NAN, "a", None]}),
    (Rate, {"steps": [0, 2.5], "rate": [-1.0, NAN, "a"]}),
    (ExactEvents, {"steps": [0, 2.5, "a"], "scale": [0, -1.0, NAN, "a"], "merge": [0, 2.5], "inputs": [0, 2.5, "a"]}),
]
WRONG_STEPS = {
    "temporal": ["x", 3, None],
    "input_metric": ["x", 3, (), None],
    "output_metric": ["x", 3, ()],
    "deeper_metric": ["x", 3, ()],
    "pairs": ["x", 3, None],
    "weights": ["x", 3, None],
    "normalizer": ["x", 3],
    "span": ["x", 3, None],
    "depth": ["x", 3],
    "initial_batch": [0, 1, 2.5, None, "a"],
}
WRONG_SERIES = [
    "text",
    None,
    3.0,
    {"a": [1.0, 2.0]},
    {1, 2},
    object(),
    [[1.0], [1.0, 2.0]],
    [["a", "b"]] * 40,
    [],
    b"bytes",
    Ellipsis,
]


@dataclass
class Problem:
    """One problem: `solve` fits, predicts, and returns everything that must be finite, by name."""

    seed: int
    kind: str = ""
    options: dict = field(default_factory=dict)
    data: str = ""
    wrong: str = ""  # the argument that is not valid, if any
    memory: int = 2_000_000_000
    solve: object = None

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind}({self.options}) on {self.data}" + (f", wrong {self.wrong}" if self.wrong else "")


def pick(rng, values):
    """Return one of several values of any type."""
    return values[int(rng.integers(len(values)))]


def problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    rng = np.random.default_rng([20, seed])
    made = Problem(seed)
    part = rng.random()
    (_forecast if part < 0.6 else _classify if part < 0.85 else _sample if part < 0.95 else _object)(rng, made)
    return made


# series


def _column(rng, rows: int) -> tuple[str, np.ndarray]:
    """Return one channel, and what it is called."""
    t = np.arange(rows)
    noise = rng.standard_normal(rows)
    columns = {
        "wave": lambda: np.sin(2 * np.pi * t / rng.uniform(3, 40)) + rng.choice([0.0, 0.1, 1.0]) * noise,
        "walk": lambda: noise.cumsum(),
        "noise": lambda: noise,
        "trend": lambda: 1.0 * t,
        "constant": lambda: np.full(rows, rng.choice([0.0, 1.0, -7.3, 1e9])),
        "dead": lambda: np.where(t < rows // 2, 0.0, np.sin(t)) if rng.random() < 0.5 else np.where(t > rows // 2, 0.0, noise),
        "heavy": lambda: rng.standard_cauchy(rows),
        "spike": lambda: np.where(t == rng.integers(max(rows, 1)), 1e6, 0.1 * noise),
        "counts": lambda: rng.poisson(0.7, rows).astype(float),
        "steps": lambda: np.sign(np.sin(t / 5)),
        "level": lambda: 1e8 + 1e-3 * noise,
        "exact": lambda: np.sin(2 * np.pi * t / 12),
    }
    name = pick(rng, list(columns))
    return name, columns[name]()


def _values(rng, rows: int, channels: int) -> tuple[str, np.ndarray]:
    names, columns = zip(*(_column(rng, rows) for _ in range(channels)), strict=True)
    values, text = np.stack(columns, axis=1), "+".join(names)
    if rng.random() < 0.15:
        scale = pick(rng, HUGE)
        with np.errstate(over="ignore"):
            values, text = values * scale, f"{scale:g} x ({text})"
    return text, values


def _index(rng, rows: int) -> tuple[str, pd.Index]:
    """Return labels of rows, regular or not."""
    start, kind = (
        "2024-03-29 20:00",
        pick(rng, ["hours", "gap", "gaps", "zone", "autumn", "days", "months", "period", "numbers", "text"]),
    )
    if kind == "zone":
        return kind, pd.date_range(start, periods=rows, freq="h", tz="Europe/Berlin")
    if kind == "autumn":
        there = pd.date_range("2024-10-26", periods=rows, freq="h", tz="Europe/Berlin")
        return kind, pd.Index([t.isoformat() for t in there]) if rng.random() < 0.5 else there.tz_localize(None)
    if kind in ("days", "months"):
        return kind, pd.date_range("2000-01-31", periods=rows, freq={"days": "B", "months": "ME"}[kind])
    if kind == "period":
        return kind, pd.period_range("2000-01", periods=rows, freq="M")
    if kind == "numbers":
        return kind, pd.Index(np.arange(rows) * pick(rng, [1, 5, 0.5]))
    hours = pd.date_range(start, periods=rows + 60, freq="h")
    if kind == "text":
        return kind, pd.Index(hours[:rows].astype(str)) if rng.random() < 0.7 else pd.Index([f"row {i}" for i in range(rows)])
    kept = np.ones(len(hours), dtype=bool)
    for _ in range({"hours": 0, "gap": 1, "gaps": 6}[kind]):
        kept[int(rng.integers(1, max(rows, 2)))] = False
    return kind, hours[kept][:rows]


def _frame(rng, values: np.ndarray) -> tuple[str, pd.DataFrame]:
    kind, index = _index(rng, len(values))
    names = [f"c{i}" for i in range(values.shape[1])] if rng.random() < 0.9 else list(range(10, 10 + values.shape[1]))
    return kind, pd.DataFrame(values, index=index, columns=names)


def _spoiled(rng, values: np.ndarray) -> tuple[str, np.ndarray]:
    """Return values with something absent."""
    values = values.copy()
    if rng.random() < 0.8:
        values[rng.random(values.shape) < rng.choice([0.01, 0.2, 0.9])] = np.nan
        return "NaN", values
    values[len(values) // 2 : len(values) // 2 + 1, 0] = pick(rng, [np.inf, -np.inf])
    return "infinity", values


def _series(rng, rows: int, channels: int) -> tuple[str, object]:
    """Return what a user may pass as a series."""
    text, values = _values(rng, rows, channels)
    if rng.random() < 0.08:
        more, values = _spoiled(rng, values)
        text = f"{text} with {more}"
    form = pick(
        rng, ["array", "array", "array", "frame", "frame", "frame", "list", "stack", "torch", "float32", "ints", "series"]
    )
    if form == "frame":
        more, found = _frame(rng, values)
        return f"frame {values.shape} by {more} of {text}", found
    if form == "list":
        cuts = sorted(rng.integers(0, max(rows, 1), 2))
        parts, mixed = np.split(values, cuts), rng.random() < 0.1
        return f"list {[len(p) for p in parts]} x {channels} of {text}", [
            pd.DataFrame(p) if mixed and p is parts[0] else p for p in parts
        ]
    if form == "stack":
        return f"stack {values.shape} of {text}", np.stack([values, values[::-1]])
    if form == "ints":
        with np.errstate(all="ignore"):
            return f"ints {values.shape} of {text}", np.nan_to_num(values * 10).clip(-1e9, 1e9).astype(np.int64)
    if form == "series":
        return f"series {rows} of {text}", pd.Series(values[:, 0])
    with np.errstate(all="ignore"):
        cast = {"torch": torch.tensor, "float32": lambda v: v.astype(np.float32)}.get(form, lambda v: v)
        return f"{form} {values.shape} of {text}", cast(values)


def _mistake(rng, made: Problem, options: dict, table: dict) -> None:
    """Make one parameter invalid."""
    made.wrong = pick(rng, sorted(table))
    options[made.wrong] = pick(rng, table[made.wrong])


def _readout(rng, channels: str):
    return pick(
        rng,
        [
            "direct",
            "direct",
            Direct(skip=True),
            Direct(population=int(rng.integers(1, 20)) * 2, singles=int(rng.integers(0, 20)), common=bool(rng.integers(2))),
            Direct(traces=pick(rng, [1.0, (1e-3, 1e9), INF, (2, 3, 4, 5)]), blocks=int(rng.integers(2, 20))),
            "trajectory",
            Trajectory(stride=int(rng.integers(1, 9)), kernel=pick(rng, KERNELS)),
            Trajectory(
                delays=pick(rng, ["zero", "correlation"]), supports=pick(rng, ["fixed", "search"]), regularization="fixed"
            ),
            Trajectory(assembly=pick(rng, ["exact", "fast", "auto"])),
        ],
    )


def _steps(rng, base: str) -> Steps:
    return STEPS[base].replace(
        temporal=pick(rng, ["grid", "spread", "share", "memory"]),
        input_metric=pick(rng, ["l2", "cosine", "magnitude", "phase", "low", "high", "entropy", ("l2", "phase")]),
        pairs=pick(rng, ["gradient", "spread"]),
        weights=pick(rng, ["dot", "dist", "random"]),
        normalizer=pick(rng, ["mean-std", "fluctuation", "diverse"]),
        initial_batch=int(pick(rng, [2, 3, 20, 1000])),
        span=pick(rng, ["all", "window"]),
    )


def _forecast(rng, made: Problem) -> None:
    tiny = rng.random() < 0.1
    rows, channels = int(rng.integers(0, 25) if tiny else rng.integers(40, 200)), int(rng.integers(1, 5))
    window, horizon = int(rng.integers(1, 25)), int(rng.integers(1, 9))
    if rng.random() < 0.05:
        window, horizon = pick(rng, [(1, 1), (1, 30), (60, 1), (rows, 1), (rows - 3, 1), (1, rows), (10**9, 1), (3, 10**9)])
    paper = rng.random() < 0.2
    options = {
        "window": window,
        "horizon": horizon,
        "hidden": tuple(rng.integers(1, 15, size=1 + (rng.random() < 0.2)).tolist()),
    }
    options |= {"random_state": int(rng.integers(1000)), "verbose": 0}
    choices = {
        "channels": lambda: pick(rng, ["shared", "joint"]),
        "kernel": lambda: pick(rng, [*KERNELS, ("hat",), ["morlet"]]),
        "steps": lambda: pick(rng, ["forecast", "paper", _steps(rng, "forecast")]),
        "scaling": lambda: pick(rng, ["adaptive", "window", "standard", "channel", "none", _scaling(rng)]),
        "validation": lambda: pick(rng, [0.01, 0.1, 0.5, 0.9, 0.99, 1e-9]),
        "dtype": lambda: pick(rng, ["float32", "float64"]),
        "memory": lambda: pick(rng, ["1MB", "5MB", "100MB", "2GB", 10**7, "1.5 GiB"]),
        "missing": lambda: pick(rng, ["error", "interpolate", "interpolate"]),
        "readout": lambda: _readout(rng, options.get("channels", "shared")),
        "covariates": lambda: pick(
            rng, [[0] if channels > 1 else [], [channels - 1] if channels > 1 else (), ["c0"], (), list(range(channels - 1))]
        ),
        "training": lambda: pick(rng, [Gradient(epochs=1), FromScratch(epochs=1)]),
    }
    rare = {"covariates": 0.12, "training": 0.04}
    for name, choose in choices.items():
        if rng.random() < rare.get(name, 0.3):
            options[name] = choose()
    made.data, X = _series(rng, rows, channels)
    breaks = (
        pick(rng, [int(rng.integers(1, 80)), [rows // 2], np.array([rows // 3, rows // 2])]) if rng.random() < 0.08 else None
    )
    trouble = rng.random()
    if trouble < 0.07:
        _mistake(rng, made, options, WRONG_FORECASTS)
    elif trouble < 0.085:
        made.wrong, made.data, X = "X", "nonsense", pick(rng, WRONG_SERIES)
    elif trouble < 0.095:
        made.wrong, breaks = (
            "breaks",
            pick(rng, ["a", [1.5], ["a"], [[1, 2]], {5: 1}, NAN, 2.5, -1, True, [0], [10**9], object(), ""]),
        )
    elif trouble < 0.11:
        made.wrong = "steps"
        name = pick(rng, sorted(WRONG_STEPS))
        options["steps"] = STEPS["forecast"].replace(**{name: pick(rng, WRONG_STEPS[name])})
    if paper:
        options = {k: v for k, v in options.items() if k not in ("channels", "scaling", "steps", "readout") or k == made.wrong}
        options |= {"assembly": pick(rng, ["exact", "fast"])} if made.wrong != "readout" and rng.random() < 0.3 else {}
    made.kind, made.options = "Forecaster.paper" if paper else "Forecaster", options
    made.memory = _budget(options)

    def solve() -> dict:
        model = (Forecaster.paper if paper else Forecaster)(**options).fit(X, breaks=breaks)
        found = dict(model.network_.state_dict())
        found["predict"] = model.predict(X)
        last = X[-1] if isinstance(X, (list, tuple)) else X
        if isinstance(last, (np.ndarray, pd.DataFrame)) and np.ndim(last) == 2 and len(last) >= model.window + model.horizon:
            found["windows"] = model.predict_windows(last)[-3:]
            found["score"] = model.score(last)
        if model.model_.has_intervals:
            found["low"], found["high"] = model.predict_interval(X)
        model.summary()
        return found

    made.solve = solve


def _scaling(rng) -> Scaling:
    kind = pick(rng, ["adaptive", "window", "standard", "channel", "none"])
    return Scaling(kind, *(bool(b) for b in rng.integers(0, 2, 3)))


def _budget(options: dict) -> int:
    try:
        return parse_memory(options.get("memory", "2GB"))
    except (TypeError, ValueError):
        return 2_000_000_000


# classes


def _labels(rng, samples: int, classes: int) -> np.ndarray:
    y = rng.integers(0, classes, samples)
    names = [
        np.arange(classes),
        np.array([f"class {i}" for i in range(classes)]),
        np.arange(classes) * 1.0 - 1,
        np.arange(classes) > 0,
    ]
    names += [np.array([f"o{i}" for i in range(classes)], dtype=object), np.arange(classes).astype(np.uint8)]
    return pick(rng, names)[y]


def _spike_trains(rng, samples: int, y: np.ndarray) -> list:
    found = []
    for label in np.unique(y, return_inverse=True)[1]:
        n = int(rng.integers(0, 15))
        found.append((np.sort(rng.uniform(0, 12, n)), (rng.integers(0, 3, n) + label) % 5))
    return found


def _camera(rng, samples: int, y: np.ndarray) -> list:
    kind = np.dtype([("t", "f8"), ("x", "i4"), ("y", "i4"), ("p", "i4")])
    found = []
    for label in np.unique(y, return_inverse=True)[1]:
        n = int(rng.integers(1, 15))
        events = np.zeros(n, dtype=kind)
        events["t"], events["x"] = np.sort(rng.uniform(0, 10, n)), rng.integers(0, 3, n)
        events["y"], events["p"] = (rng.integers(0, 2, n) + label) % 4, rng.integers(0, 2, n)
        found.append(events)
    return found


def _samples(rng, samples: int, y: np.ndarray) -> tuple[str, object]:
    """Return what a user may classify."""
    shape = pick(
        rng, ["flat", "flat", "images", "images", "colour", "signals", "signals", "events", "camera", "frames", "spikes"]
    )
    if shape == "events":
        return shape, _spike_trains(rng, samples, y)
    if shape == "camera":
        return shape, _camera(rng, samples, y)
    size = {
        "flat": (0 if rng.random() < 0.05 else int(rng.integers(1, 12)),),
        "images": (0 if rng.random() < 0.05 else int(rng.integers(1, 6)), int(rng.integers(1, 6))),
        "colour": (3, 4, 4),
        "signals": (int(rng.integers(1, 20)), int(rng.integers(1, 4))),
        "spikes": (12, 3),
        "frames": (5, 2, 3, 3),
    }[shape]
    label = np.unique(y, return_inverse=True)[1].reshape(-1, *(1,) * len(size))
    values = rng.standard_normal((samples, *size)) + label * rng.choice([0.0, 1.0, 5.0])
    if shape == "spikes":
        values = (values > 0.5).astype(float)
    kind = pick(rng, ["plain"] * 6 + ["scaled", "constant", "nan", "float32", "ints", "torch", "same"])
    if kind == "scaled":
        scale = pick(rng, HUGE)
        return f"{shape} {values.shape} x {scale:g}", values * scale
    if kind == "constant":
        values[...] = 3.0
    if kind == "same" and values.size:
        values[:] = values[:1]
    if kind == "nan" and values.size:
        values.flat[0] = pick(rng, [np.nan, np.inf])
    cast = {"float32": np.float32, "ints": np.int64}.get(kind, np.float64)
    found = values.astype(cast) if kind != "torch" else torch.tensor(values)
    return f"{shape} {values.shape} {kind}", found


def _classify(rng, made: Problem) -> None:
    samples = int(rng.integers(0, 12) if rng.random() < 0.15 else rng.integers(12, 60))
    classes = 1 if rng.random() < 0.05 else int(rng.integers(2, 6))
    y = _labels(rng, samples, classes)
    made.data, X = _samples(rng, samples, y)
    paper = rng.random() < 0.2
    options = {"hidden": tuple(rng.integers(1, 15, size=1 + (rng.random() < 0.25)).tolist()), "verbose": 0}
    options["random_state"] = int(rng.integers(1000))
    choices = {
        "encoder": lambda: pick(
            rng,
            ["auto", "image", "rate", "poisson", "latency", None, Poisson(8, rate=0.5), Latency(6), ExactEvents(exact=False)],
        ),
        "fields": lambda: pick(rng, ["auto", None, None, (2, 2), (np.shape(X)[1:] if not isinstance(X, list) else (5,))]),
        "kernel": lambda: pick(rng, KERNELS),
        "readout": lambda: pick(
            rng,
            [
                "direct",
                "voltage",
                "spikes",
                Counts(loss="squared_error", traces=(INF, 5.0)),
                Counts(regularization="fixed"),
                Voltage(horizon=int(rng.integers(1, 9)), integrate=pick(rng, ["horizon", "all"])),
                Spikes(normalize=bool(rng.integers(2)), horizon=5),
            ],
        ),
        "steps": lambda: pick(rng, ["classify", "paper", _steps(rng, "classify")]),
        "class_weight": lambda: pick(rng, ["balanced", {c: 1.0 + i for i, c in enumerate(np.unique(y).tolist())}]),
        "validation": lambda: pick(rng, [0.01, 0.5, 0.9, 0.99]),
        "dtype": lambda: pick(rng, ["float32", "float64"]),
        "memory": lambda: pick(rng, ["1MB", "20MB", "2GB"]),
        "training": lambda: pick(rng, [Gradient(epochs=1), FromScratch(epochs=1)]),
    }
    rare = {"class_weight": 0.08, "training": 0.05, "fields": 0.2}
    for name, choose in choices.items():
        if rng.random() < rare.get(name, 0.3):
            options[name] = choose()
    trouble = rng.random()
    if trouble < 0.08:
        _mistake(rng, made, options, WRONG_CLASSES)
        if made.wrong == "class_weight":
            options.pop("readout", None), options.pop("training", None)
    elif trouble < 0.1:
        made.wrong, y = (
            "y",
            pick(rng, [None, y[:-1] if samples else [0], "abc", rng.standard_normal(samples), np.zeros((samples, 2)), 3]),
        )
    elif trouble < 0.12:
        made.wrong, made.data, X = (
            "X",
            "nonsense",
            pick(rng, ["text", None, 3.0, {"a": 1}, [[1.0], [1.0, 2.0]], [], [("a", "b")] * 9, [([0], [1.5])]]),
        )
    if paper:
        options = {
            k: v for k, v in options.items() if k not in ("encoder", "fields", "steps", "class_weight") or k == made.wrong
        }
    made.kind, made.options, made.memory = "Classifier.paper" if paper else "Classifier", options, _budget(options)

    def solve() -> dict:
        model = (Classifier.paper if paper else Classifier)(**options).fit(X, y)
        few = X[:7]
        proba = model.predict_proba(few)
        assert np.allclose(proba.sum(axis=1), 1), "probabilities must sum to 1"
        assert set(np.asarray(model.predict(few)).tolist()) <= set(model.classes_.tolist()), "an unknown class was predicted"
        model.summary()
        return dict(model.network_.state_dict()) | {"proba": proba, "decision": model.decision_function(few)}

    made.solve = solve


# the layer beneath


def _sample(rng, made: Problem) -> None:
    inputs, outputs, window, horizon = (int(n) for n in rng.integers(1, [4, 4, 15, 6]))
    samples = int(pick(rng, [0, 1, 2, 3])) if rng.random() < 0.1 else int(pick(rng, [5, 10, 40, 60]))
    x = (
        np.stack([_values(rng, max(window, 1), inputs)[1] for _ in range(samples)])
        if samples
        else np.zeros((0, window, inputs))
    )
    y = rng.standard_normal((samples, horizon, outputs)) * pick(rng, HUGE)
    kind = pick(rng, ["plain"] * 5 + ["huge", "nan", "shape", "float32", "constant"])
    with np.errstate(all="ignore"):
        x = x * (1e38 if kind == "huge" else 1.0)
    if kind == "nan" and x.size:
        x.flat[0], made.wrong = np.nan, "X"
    if kind == "shape":
        y, made.wrong = y[:, :, :-1], "Y"
    if kind == "constant":
        x[...] = 2.0
    if kind == "float32":
        with np.errstate(all="ignore"):
            x, y = x.astype(np.float32), y.astype(np.float32)
    layers = dict(inputs=inputs, outputs=outputs, window=window, horizon=horizon)
    layers |= {"hidden": tuple(rng.integers(1, 12, size=1 + (rng.random() < 0.3)).tolist()), "kernel": pick(rng, KERNELS)}
    layers["dtype"] = pick(rng, [torch.float32, torch.float64])
    options = {"random_state": int(rng.integers(100))}
    if rng.random() < 0.4:
        options["steps"] = pick(rng, ["paper", "forecast", _steps(rng, "paper")])
    if rng.random() < 0.3:
        options["memory"] = pick(rng, ["1MB", "1GB"])
    if not made.wrong and rng.random() < 0.15:
        made.wrong = pick(rng, ["steps", "memory", "random_state", "validation"])
        options[made.wrong] = pick(rng, WRONG[made.wrong])
    made.kind, made.options, made.data = "sample", layers | options, f"X {x.shape}, Y {y.shape} {kind}"
    made.memory = _budget({"memory": "1GB"} | options)

    def solve() -> dict:
        network = SpikingNetwork(**layers)
        sample(network, x, y, **options)
        with torch.no_grad():
            return dict(network.state_dict()) | {"output": network(torch.as_tensor(x[:5]).to(layers["dtype"]))}

    made.solve = solve


def _object(rng, made: Problem) -> None:
    """Make an option object with one wrong setting."""
    kind, table = pick(rng, WRONG_OPTIONS)
    name = pick(rng, sorted(table))
    value = pick(rng, table[name])
    made.kind, made.options, made.data, made.wrong = kind.__name__, {name: value}, "nothing", name
    made.solve = lambda: {"made": 0 * len(str(kind(**{name: value})))}
