"""How far ONNX files answer as sswim does: ``python benchmarks/onnx_models.py [--out FILE] [--windows N]``.

The default models of the wind farm and of the digits, in both dtypes: errors relative to the data's deviation, answers that
are off by a spike on the edge, spikes that differ, sizes, and times on one thread. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from sklearn.datasets import load_digits

from sswim import Classifier, Forecaster, __version__
from sswim.datasets import load_wind_farm
from sswim.export.onnx import OPSET, initial_state, to_onnx
from sswim.export.plans import plan


def session_of(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def seconds(work, repeats=5):
    work()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


class Spikes(torch.nn.Module):
    """The hidden spikes of a module, (neurons of all layers, steps, batch)."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        """Map what a network sees to its spikes."""
        return torch.cat(self.module.spikes(x))


@torch.no_grad()
def spikes_that_differ(network, module, x, path):
    """Return how many hidden spikes onnxruntime and sswim have, and how many are of one of them only."""
    program = torch.export.export(Spikes(module), (x[:3],), dynamic_shapes=({0: torch.export.Dim("n")},), strict=False)
    torch.onnx.export(program, (), path, input_names=["x"], opset_version=OPSET, external_data=False, verbose=False)
    session, all_, differ = session_of(path), 0, 0
    for part in x.split(512):
        found = session.run(None, {"x": part.numpy()})[0]
        wanted = torch.cat(network.hidden_spikes(part)).numpy()[:, : found.shape[1]]
        all_, differ = all_ + int(wanted.sum()), differ + int((found != wanted).sum())
    return {"spikes": all_, "differ": differ}


def compare(model, inputs, wanted, name, folder, spread):
    found = {}
    for dtype in ("float64", "float32"):
        path = folder / "model.onnx"
        begin = time.perf_counter()
        to_onnx(model, path, dtype=dtype)
        export = time.perf_counter() - begin
        session, x = session_of(path), inputs.astype(dtype)
        answer = np.concatenate([session.run(None, {name: x[i : i + 512]})[0] for i in range(0, len(x), 512)])
        error = (np.abs(answer - wanted) / spread).reshape(len(wanted), -1).max(axis=1)
        one, many = (seconds(partial(session.run, None, {name: x[:n]})) for n in (1, 64))
        found[dtype] = {
            "largest_error": float(error.max()),
            "largest_error_but_those": float(error[error <= 1e-5].max()),
            "off_by_more_than_1e-5": int((error > 1e-5).sum()),
            "of": len(error),
            "bytes": path.stat().st_size,
            "export_seconds": export,
            "milliseconds_of_one": 1e3 * one,
            "milliseconds_of_64": 1e3 * many,
        }
    return found


def wind_farm(folder, windows):
    rows = load_wind_farm().resample("h").mean()
    split = int(0.8 * len(rows))
    model = Forecaster(168, 24, random_state=0, verbose=0).fit(rows.iloc[:split])
    table = rows.to_numpy(dtype=float)
    starts = np.linspace(split, len(table) - 168, windows).astype(int)
    X = np.stack([table[s : s + 168] for s in starts])
    found = compare(model, X, model.predict(X), "rows", folder, table.std(axis=0))
    with torch.no_grad():
        samples = model.model_.last_windows([torch.from_numpy(x) for x in X])
        module, inputs = plan(model, "window", None, None).module.network, samples.inputs(slice(None))
    found["hidden"] = spikes_that_differ(model.network_, module, inputs, folder / "spikes.onnx")
    found["predict_milliseconds_of_one"] = 1e3 * seconds(lambda: model.predict(X[:1]))
    found["predict_milliseconds_of_64"] = 1e3 * seconds(lambda: model.predict(X[:64]))
    found["stream"] = stream(model, table[split:], table.std(axis=0), folder)
    return found


def stream(model, rows, spread, folder):
    """1,000 forecasts, row by row."""
    session = session_of(to_onnx(model, folder / "step.onnx", form="step", batch=1))
    state, at_work = {name: v.numpy() for name, v in initial_state(model).items()}, model.stream()
    error = []
    for row in rows[: 1000 + model.window - 1]:
        forecast, *after = session.run(None, {"row": row[None], **state})
        state, wanted = dict(zip(state, after, strict=True)), at_work(row)
        if wanted is not None:
            error.append(float((np.abs(forecast[0] - wanted) / spread).max()))
    close = [e for e in error if e <= 1e-5]
    off = {"off_by_more_than_1e-5": len(error) - len(close), "largest_error_but_those": max(close)}
    return {"forecasts": len(error), "largest_error": max(error), **off, "largest_error_of_last_100": max(error[-100:])}


def digits(folder):
    X, y = load_digits(return_X_y=True)
    model = Classifier(random_state=0, verbose=0).fit(X[:1200], y[:1200])
    wanted = model.predict_proba(X[1200:])
    found = compare(model, X[1200:], wanted, "samples", folder, 1.0)
    with torch.no_grad():
        module = plan(model, "window", None, None).module
        inputs = module.encoded(torch.from_numpy(X[1200:]))
    found["hidden"] = spikes_that_differ(model.network_, module.network, inputs, folder / "spikes.onnx")
    found["predict_milliseconds_of_one"] = 1e3 * seconds(lambda: model.predict_proba(X[:1]))
    found["predict_milliseconds_of_64"] = 1e3 * seconds(lambda: model.predict_proba(X[:64]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--windows", type=int, default=3000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"sswim": __version__, "torch": torch.__version__, "onnx": onnx.__version__, "onnxruntime": ort.__version__}
    result = {"versions": versions, "opset": OPSET, "cpu": platform.processor() or platform.machine()}
    with tempfile.TemporaryDirectory() as folder:
        result["digits"] = digits(Path(folder))
        result["wind farm"] = wind_farm(Path(folder), given.windows)
    text = json.dumps(result, indent=2)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
