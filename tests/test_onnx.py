"""Exported models answer as sswim does: as plain torch modules, as programs of torch.export, and in onnxruntime."""

import copy
import dataclasses
import importlib.util
import json
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from torch import nn
from typer.testing import CliRunner

from sswim import Classifier, Convolution, Forecaster, SpikingNetwork
from sswim.cli import app
from sswim.data import ExactEvents
from sswim.export import onnx as exporter
from sswim.export.frozen import FrozenFilters
from sswim.export.onnx import OPSET, initial_state, to_exported, to_onnx, write_onnx
from sswim.export.plans import plan
from sswim.network import Exponential, Hat, SpikingLayer
from sswim.network.convolution import ConvolutionLayer
from sswim.network.layer import fire
from sswim.network.plain import fire_steps
from sswim.readout import Counts, Direct, LagReadout, TraceReadout, Voltage
from sswim.readout.lags import LagSizes

ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'sswim[onnx]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'sswim[onnx]'")

# A column that rests is part of the laws.
pytestmark = pytest.mark.filterwarnings("ignore:series. 1 of 9 channels are constant")
# Samples in which a potential may lie so close to the threshold that rounding decides: other CPUs, other spikes.
ON_THE_EDGE = 0.02


def errors(found, wanted):
    """The largest error of each sample, relative to the deviation of all of them."""
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    assert found.shape == wanted.shape and np.isfinite(found).all()
    return np.abs(found - wanted).reshape(len(wanted), -1).max(axis=1) / wanted.std()


def agree(found, wanted, tolerance):
    return (errors(found, wanted) > tolerance).mean() <= ON_THE_EDGE


def windows_of(rows, window, step=5):
    return np.stack([rows[i : i + window] for i in range(0, len(rows) - window, step)])


def network_of(readout=None, seed=0, hidden=(20, 10), **options):
    """A network whose neurons fire now and then."""
    network = SpikingNetwork(3, 2, window=15, horizon=4, hidden=hidden, readout=readout, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in network.layers:
            layer.weights.normal_(0, 0.6, generator=generator)
            layer.biases.uniform_(0, 0.5, generator=generator)
            layer.delays.uniform_(0, 4, generator=generator)
            layer.supports.uniform_(1, 6, generator=generator)
        network.readout.weights.normal_(0, 0.5, generator=generator)
    return network


def signals_of(count, steps=15, seed=1):
    return torch.randn(count, steps, 3, generator=torch.Generator().manual_seed(seed))


def traces():
    return TraceReadout(30 * 2, 2, 4, constants=(2.0, math.inf))


def lags():
    sizes = LagSizes(15, 4, 2, 1, 1, 60, 8, 5, 0)
    return LagReadout(sizes, constants=(1.0, 4.0), population=16, singles=0, absolute=True)


NETWORKS = {
    "voltage": lambda: network_of(),
    "spiking": lambda: network_of(spiking_output=True),
    "exponential": lambda: network_of(kernel="exponential", refractory="exponential"),
    "traces": lambda: network_of(traces()),
    "lags": lambda: network_of(lags()),
    "float64": lambda: network_of(dtype=torch.float64),
}


@pytest.fixture(scope="module")
def rows(wind):
    """Hourly rows: power that is never below 0, wind, and a column that rests."""
    table = wind.iloc[:1000].clip(lower=0)
    table["rest"] = 3.5
    return table


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600], X[600:]


def forecaster(**options):
    return Forecaster(**{"window": 24, "horizon": 6, "hidden": (10,), "random_state": 0, "verbose": 0} | options)


@pytest.fixture(scope="module")
def default(rows):
    return forecaster().fit(rows)


@pytest.fixture(scope="module")
def classifier(digits):
    return Classifier(hidden=(50,), random_state=0, verbose=0).fit(*digits[:2])


def session_of(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# The loop over time


class Loop(nn.Module):
    def forward(self, potentials, cost):
        return fire_steps(potentials, cost)


@pytest.mark.parametrize("steps, reach", [(1, 3), (7, 0), (7, 1), (7, 4), (7, 6), (7, 20)])
def test_the_loop_is_the_literal_loop(steps, reach):
    generator = torch.Generator().manual_seed(steps + reach)
    v = 2 * torch.randn(5, steps, 500, generator=generator)
    cost = -torch.rand(5, reach, generator=generator)
    program = torch.export.export(Loop(), (v, cost), strict=False)
    assert torch.equal(program.module()(v, cost), fire(v.clone(), torch.ones(5), cost))


# Networks


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_can_be_exported_as_it_is(name):
    network, x = NETWORKS[name](), signals_of(6)
    with torch.no_grad():
        wanted = network(x)
    open_ = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(network, (x[:2],), dynamic_shapes=open_, strict=False)
    with torch.no_grad():
        assert agree(program.module()(x), wanted, 1e-5)


def test_layers_can_be_exported_in_a_network_of_others():
    layer, x = network_of().layers[0], signals_of(6)
    model = nn.Sequential(layer, nn.Linear(20, 5)).requires_grad_(False)
    with torch.no_grad():
        wanted = model(x)
        assert float(layer(x).mean()) > 0.02
        found = torch.export.export(model, (x,), strict=False).module()(x)
    assert agree(found, wanted, 1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_frozen_network_is_the_network(name):
    network, x = NETWORKS[name](), signals_of(50)
    module = plan(network, "window", None, None).module
    with torch.no_grad():
        assert agree(module(x.to(network.readout.weights)), network(x), 1e-5)
    assert not [p for p in module.parameters() if p.requires_grad]
    spikes = network.hidden_spikes(x)
    for frozen, wanted in zip(module.spikes(x), spikes, strict=True):
        steps = frozen.shape[1]
        assert float((frozen != wanted[:, :steps]).float().mean()) < 1e-4


def stepped(module, rows, state):
    """Outputs (batch, steps, ...) of rows (batch, steps, inputs), one after the other."""
    found = []
    with torch.no_grad():
        for row in rows.unbind(dim=1):
            y, state = module(row, state)
            found.append(y)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("name", ["voltage", "spiking", "exponential", "float64"])
def test_steps_are_a_simulation(name):
    network = NETWORKS[name]()
    x = signals_of(8).to(network.readout.weights)
    x = torch.cat([x, x.new_zeros(8, network.steps - 15, 3)], dim=1)
    module = plan(network, "step", None, 8).module
    wanted = network.simulate(x[:, :15]).output
    assert agree(stepped(module, x, module.start(8)), wanted, 1e-5)


def test_a_thousand_steps_are_a_stream(tmp_path):
    network, x = network_of(traces()), signals_of(2, 1000)
    stream, wanted = network.stream(2), []
    with torch.no_grad():
        for row in x.unbind(dim=1):
            z = stream.advance(row.T[:, None])
            wanted.append(network.readout(z)[:, 0].T.reshape(2, 4, 2))
    wanted = torch.stack(wanted)
    session = session_of(to_onnx(network, tmp_path / "step.onnx", form="step", batch=2))
    state = {name: value.numpy() for name, value in initial_state(network, batch=2).items()}
    found = []
    for row in x.unbind(dim=1):
        y, *after = session.run(None, {"row": row.numpy(), **state})
        state = dict(zip(state, after, strict=True))
        found.append(y)
    assert [o.name for o in session.get_outputs()] == ["output", *(f"new_{name}" for name in state)]
    off = errors(found, wanted) > 1e-5
    assert off.mean() <= ON_THE_EDGE
    if not off.any():  # spikes are the same, so counts are
        assert np.array_equal(state["traces"][:, :, 1], stream._traces[:, 1].T.numpy())


def test_a_step_at_the_end_of_a_window_reads_what_the_window_reads():
    network, x = network_of(traces()), signals_of(20)
    module = plan(network, "step", None, 20).module
    with torch.no_grad():
        assert agree(stepped(module, x, module.start(20))[:, -1], network(x), 1e-5)


# Forecasters

FORECASTERS = {
    "default": {},
    "deep": {"hidden": (10, 5)},
    "covariates": {"covariates": ["wind_R80711"]},
    "known": {"known": ["wind_R80721"], "covariates": ["wind_R80711"]},
    "skip": {"readout": Direct(skip=True, common=False)},
    "no singles": {"readout": Direct(singles=0, population=16)},
    "joint": {"channels": "joint", "covariates": ["wind_R80711"]},
    "trajectory": {"readout": "trajectory"},
    "window": {"scaling": "window"},
    "standard": {"scaling": "standard"},
    "float64": {"dtype": "float64"},
    "nir": {"profile": "nir"},
}


@pytest.mark.parametrize("name", FORECASTERS)
def test_a_frozen_forecaster_is_the_forecaster(rows, name):
    model = forecaster(**FORECASTERS[name]).fit(rows.iloc[:700])
    table = rows.to_numpy()
    X = windows_of(table[:-6], 24, 9)
    X[-1] *= 3  # beyond the training range
    X[-2, :, -1] += np.arange(24)  # a column that rested moves
    X[-20:-2, :, 0] -= 3000  # below what was a floor
    assert (model.model_.encoder.floor > -np.inf).any() and model.model_.encoder.resting
    inputs = [torch.from_numpy(X)]
    options = {}
    if "known" in FORECASTERS[name]:
        ahead = windows_of(table[24:], 6, 9)[: len(X), :, [5]]
        options["future"] = ahead
        inputs.append(torch.from_numpy(ahead))
    wanted = model.predict(X, **options)
    with torch.no_grad():
        found = plan(model, "window", None, None).module(*inputs)
        single = plan(model, "window", "float32", None).module(*(v.float() for v in inputs))
    assert agree(found, wanted, 1e-6 if name == "trajectory" else 1e-9)
    assert np.array_equal(found[:, :, -1], wanted[:, :, -1])  # of the column that rests
    assert single.dtype == torch.float32
    assert agree(single[:-20], wanted[:-20], 1e-4)


@pytest.mark.parametrize("channels", ["shared", "joint"])
def test_a_forecaster_that_reads_traces(rows, channels):
    model = forecaster(dtype="float64", channels=channels, covariates=["wind_R80711"]).fit(rows.iloc[:400])
    fitted, generator = model.model_, torch.Generator().manual_seed(0)
    readout = TraceReadout(10 * 2, fitted.network.outputs, 6, constants=(2.0, 9.0), dtype=torch.float64)
    with torch.no_grad():
        readout.weights.normal_(0, 0.1, generator=generator)
    network = copy.deepcopy(fitted.network)
    network.readout = readout
    model.model_ = dataclasses.replace(fitted, network=network)
    X = windows_of(rows.to_numpy(), 24, 11)
    with torch.no_grad():
        assert agree(plan(model, "window", None, None).module(torch.from_numpy(X)), model.predict(X), 1e-9)


def test_the_papers_forecaster(rows):
    model = Forecaster.paper(24, 6, hidden=(40,), random_state=0, verbose=0).fit(rows.iloc[:600])
    X = windows_of(rows.to_numpy(), 24, 11)
    with torch.no_grad():
        assert agree(plan(model, "window", None, None).module(torch.from_numpy(X)), model.predict(X), 1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_onnx_forecasts_as_predict_does(default, rows, tmp_path, dtype):
    path = to_onnx(default, tmp_path / "wind.onnx", dtype=dtype)
    session, X = session_of(path), windows_of(rows.to_numpy(), 24).astype(dtype)
    found = session.run(["forecast"], {"rows": X})[0]
    assert found.dtype == dtype
    assert agree(found, default.predict(X.astype(float)), {"float64": 1e-9, "float32": 1e-5}[dtype])
    one = session.run(None, {"rows": X[3:4]})[0]  # any batch
    assert np.allclose(one, found[3:4], rtol=1e-5, atol=1e-5 * found.std())


def test_the_command_writes_what_a_host_needs(default, tmp_path):
    default.save(tmp_path / "wind.sswim")
    path = tmp_path / "wind.onnx"
    command = ["export", str(tmp_path / "wind.sswim"), "--to", "onnx", "--out", str(path), "--set", "form=step", "--json"]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 0 and json.loads(answer.stdout)["bytes"] == path.stat().st_size
    session = session_of(path)
    meta = {k.removeprefix("sswim."): v for k, v in session.get_modelmeta().custom_metadata_map.items()}
    from sswim import __version__

    assert (meta["model"], meta["form"], meta["window"], meta["horizon"]) == ("Forecaster", "step", "24", "6")
    assert meta["version"] == __version__ and meta["opset"] == str(OPSET)
    assert json.loads(meta["columns"]) == list(default.feature_names_in_)
    assert json.loads(meta["inputs"]) == {"row": {"shape": ["batch", 9], "dtype": "float64"}}
    state = json.loads(meta["state"])
    assert state == {"past": {"shape": ["batch", 24, 9], "dtype": "float64"}, "rows": {"shape": ["batch", 1], "dtype": "int64"}}
    assert json.loads(meta["next_state"]) == {"past": "new_past", "rows": "new_rows"}
    assert [tuple(i.shape) for i in session.get_inputs()] == [("batch", 9), ("batch", 24, 9), ("batch", 1)]
    assert session.get_modelmeta().producer_name == "sswim"
    assert not any(word in path.read_bytes() for word in (b"site-packages", b".py", b"/src/"))  # nothing of this machine


def test_a_thousand_rows_are_a_forecast_stream(walk, tmp_path):
    walk = np.concatenate([walk, walk[::-1], walk])
    model = forecaster(window=12, horizon=3, hidden=(8,), known=[1]).fit(walk[:300])
    session, stream = session_of(to_onnx(model, tmp_path / "step.onnx", form="step", batch=1)), model.stream()
    assert [i.name for i in session.get_inputs()] == ["row", "future", "past", "rows"]
    state, found, wanted = {name: v.numpy() for name, v in initial_state(model).items()}, [], []
    for t in range(1000):
        row, future = walk[t], walk[t + 1 : t + 4, [1]]
        y, *after = session.run(None, {"row": row[None], "future": future[None], **state})
        state, forecast = dict(zip(state, after, strict=True)), stream(row, future=future)
        if t < 11:
            assert forecast is None and np.isnan(y).all()
        else:
            found.append(y[0]), wanted.append(forecast)
    assert agree(found, wanted, 1e-9)
    assert np.array_equal(state["past"][0], stream.past) and state["rows"].tolist() == [[12]]


def test_a_window_with_nan_has_no_forecast_and_the_others_have(default, rows):
    X = torch.from_numpy(windows_of(rows.to_numpy(), 24)[:4].copy())
    X[1, 5, 2], X[2, 0, 0] = math.nan, math.inf
    with torch.no_grad():
        found = plan(default, "window", None, None).module(X)
    assert found[1:3].isnan().all()
    assert agree(found[[0, 3]], default.predict(X[[0, 3]].numpy()), 1e-9)


@pytest.mark.parametrize("form", ["window", "step"])
def test_a_program_can_be_written_and_read(default, rows, tmp_path, form):
    program = to_exported(default, form=form)
    torch.export.save(program, tmp_path / "wind.pt2")
    again = torch.export.load(tmp_path / "wind.pt2").module()
    X = torch.from_numpy(windows_of(rows.to_numpy(), 24))
    if form == "window":
        found = again(rows=X)
        assert torch.equal(found, program.module()(rows=X))
    else:
        state = initial_state(default, batch=len(X))
        for row in X.unbind(dim=1):
            found, state = again(row=row, state=state)
    assert agree(found, default.predict(X.numpy()), 1e-9)


def test_exporting_changes_nothing(default, rows):
    before = {name: v.clone() for name, v in default.network_.state_dict().items()}
    to_exported(default, dtype="float32")
    after = default.network_.state_dict()
    assert all(torch.equal(before[name], after[name]) and after[name].dtype == v.dtype for name, v in before.items())


# Classifiers

CLASSIFIERS = {
    "image": {},
    "voltage": {"readout": "voltage"},
    "spikes": {"readout": "spikes"},
    "all steps": {"readout": Voltage(integrate="all")},
    "latency": {"encoder": "latency", "readout": Counts(traces=(3.0, 10.0))},
    "nir": {"profile": "nir"},
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_frozen_classifier_is_the_classifier(digits, name):
    X, y, new = digits
    model = Classifier(hidden=(40,), random_state=0, verbose=0, **CLASSIFIERS[name]).fit(X[:400], y[:400])
    wanted = model.predict_proba(new[:300])
    with torch.no_grad():
        assert agree(plan(model, "window", None, None).module(torch.from_numpy(new[:300])), wanted, 1e-6)
        single = plan(model, "window", "float32", None).module(torch.from_numpy(new[:300]).float())
    assert agree(single, wanted, 1e-4)


def test_onnx_classifies_as_predict_proba_does(classifier, digits, tmp_path):
    facts = write_onnx(classifier, tmp_path / "digits.onnx", dtype="float32")
    assert facts["form"] == "window" and facts["bytes"] == (tmp_path / "digits.onnx").stat().st_size
    session, X = session_of(tmp_path / "digits.onnx"), digits[2]
    found = session.run(["probabilities"], {"samples": X.astype(np.float32)})[0]
    assert agree(found, classifier.predict_proba(X), 1e-5)
    assert (classifier.classes_[found.argmax(axis=1)] == classifier.predict(X)).mean() > 1 - ON_THE_EDGE
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["sswim.classes"]) == list(range(10)) and json.loads(meta["sswim.sample_shape"]) == [64]


FILTERS = {
    "no leak": ([Convolution(12)], {}),
    "speck": ([Convolution(12, size=3, pool=(1, 3)), 15], {"profile": "speck"}),
    "nir": ([Convolution(12, size=4, padding=False, stride=2, pool=2)], {"profile": "nir"}),
    "filters, filters": ([Convolution(8, pool=4), Convolution(10, size=2, pool=2)], {}),
    "hat": ([Convolution(12, size=3)], {"kernel": "hat"}),
    "voltage": ([Convolution(12, size=3)], {"kernel": "hat", "readout": "voltage"}),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_frozen_network_with_filters_is_the_network(digits, name):
    X, y, new = digits
    hidden, options = FILTERS[name]
    model = Classifier(hidden, fields=(8, 8), random_state=0, verbose=0, **options).fit(X[:400], y[:400])
    module = plan(model, "window", None, None).module
    x = model.model_.samples(new[:100]).inputs(slice(None))
    with torch.no_grad():
        network = model.network_
        for layer, frozen, wanted in zip(network.layers, module.network.spikes(x), network.hidden_spikes(x), strict=True):
            assert frozen.shape[0] == layer.outputs and float(frozen.mean()) > 0.01
            assert float((frozen != wanted[:, : frozen.shape[1]]).float().mean()) < 1e-4
        # `predict_proba` adds up many pooled spikes in float32, the module in float64.
        assert agree(module(torch.from_numpy(new[:100])), model.predict_proba(new[:100]), 1e-5)


def test_filters_see_and_pool_as_literal_loops_do():
    grid = Convolution(3, size=(3, 2), pool=(1, 2), stride=2).over(2, (5, 4))
    layer = ConvolutionLayer(grid, Hat(), Exponential()).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    layer.weights.normal_(0, 0.8, generator=generator), layer.supports.fill_(3.0), layer.costs.fill_(-1.0)
    signals = torch.randn(40, 9, 2, generator=generator)
    padded, dense = torch.cat([signals, torch.zeros(1, 9, 2)]), SpikingLayer(grid.senders, 3, Hat(), Exponential())
    dense.load_state_dict({name: value for name, value in layer.state_dict().items() if name in dense.state_dict()})
    with torch.no_grad():
        each = [dense.spikes(padded[grid.patches()[:, place]], dense.filters(9, 9)) for place in range(grid.places)]
    regions = grid.regions_of_places()
    wanted = torch.stack([sum(regions[r, p] * each[p][k] for p in range(grid.places)) for k in range(3) for r in range(5)])
    found = FrozenFilters(layer, 9, 9)(signals)
    assert float(found.sum()) > 20 and torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_onnx_classifies_with_filters_as_predict_proba_does(digits, tmp_path, dtype):
    X, y, new = digits
    model = Classifier([Convolution(20)], fields=(8, 8), random_state=0, verbose=0).fit(X[:600], y[:600])
    model.save(tmp_path / "m.sswim")
    place, out = str(tmp_path / "m.sswim"), str(tmp_path / "m.onnx")
    result = CliRunner().invoke(app, ["export", place, "--to", "onnx", "--out", out, "--set", f"dtype={dtype}"])
    assert result.exit_code == 0, result.output
    for count in (1, 7, len(new)):  # the batch is open
        found = session_of(out).run(["probabilities"], {"samples": new[:count].astype(dtype)})[0]
        assert agree(found, model.predict_proba(new[:count]), 1e-5)
    with pytest.raises(
        ValueError, match="form: 'step' needs dense layers, and this network has a Convolution. Use form='window'"
    ):
        to_exported(model.network_, form="step")


def timed(samples=60, steps=12, channels=4):
    random = np.random.default_rng(0)
    y = np.arange(samples) % 2
    X = random.random((samples, steps, channels)) < np.where(y, 0.2, 0.5)[:, None, None]
    return X.astype(float), y


def test_steps_of_a_classifier_end_where_windows_do():
    X, y = timed()
    model = Classifier(hidden=(20,), random_state=0, verbose=0).fit(X, y)
    module = plan(model, "step", None, len(X)).module
    found = stepped(module, torch.from_numpy(X), module.start(len(X)))
    assert agree(found[:, -1], model.predict_proba(X), 1e-6)
    broken = torch.from_numpy(X)
    broken[0, 3, 0] = math.nan
    found = stepped(module, broken, module.start(len(X)))
    assert found[0, 3:].isnan().all() and found[0, :3].isfinite().all() and found[1:].isfinite().all()


def test_events_on_whole_steps_are_counts():
    X, y = timed()
    events = [np.nonzero(sample) for sample in X]
    model = Classifier(hidden=(20,), encoder=ExactEvents(steps=12, inputs=4, exact=False), random_state=0, verbose=0)
    model.fit(events, y)
    with torch.no_grad():
        assert agree(plan(model, "window", None, None).module(torch.from_numpy(X)), model.predict_proba(events), 1e-6)


# Mistakes


def test_a_file_appears_whole_or_not_at_all(classifier, tmp_path, monkeypatch):
    place = tmp_path / "digits.onnx"
    place.write_text("before")

    def fail(file, planned):
        assert file.stat().st_size > 1000
        raise RuntimeError("no")

    monkeypatch.setattr(exporter, "_try_out", fail)
    with pytest.raises(RuntimeError, match="no"):
        to_onnx(classifier, place)
    assert place.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["digits.onnx"]


def test_a_file_that_answers_otherwise_is_refused(tmp_path):
    network, other = network_of(), network_of(seed=5)
    path = to_onnx(network, tmp_path / "one.onnx")
    exporter._try_out(path, plan(network, "window", None, None))
    with pytest.raises(RuntimeError, match="answers otherwise"):
        exporter._try_out(path, plan(other, "window", None, None))


@pytest.mark.parametrize(
    "name, error, text",
    [
        ("nowhere/m.onnx", FileNotFoundError, "path: the folder .*nowhere does not exist"),
        (".", IsADirectoryError, "path: .* is a folder"),
        ("m.txt", ValueError, r"path: unknown format '.txt' .* Use one of .onnx"),
    ],
)
def test_places_that_cannot_be_written_to(tmp_path, name, error, text):
    with pytest.raises(error, match=text):
        to_onnx(network_of(), tmp_path / name)


def test_packages_that_are_missing(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with pytest.raises(ImportError, match=r"to_onnx needs the package onnxscript: run `pip install 'sswim\[onnx\]'`"):
        to_onnx(network_of(), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "options, text",
    [
        ({"form": "windows"}, "form must be"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"batch": 0}, "batch must be"),
        ({"batch": 1.5}, "batch must be"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        to_exported(network_of(), **options)


class Halving:
    """An encoder whose number of samples is fixed by `len`."""

    steps, draws = 4, False

    def encode(self, intensity, generator):
        return torch.zeros(len(intensity), 4, intensity.shape[1]) + intensity[:, None] / 2


def test_what_cannot_be_exported_says_why(digits, classifier):
    X, y, _ = digits
    with pytest.raises(NotFittedError):
        to_exported(Forecaster())
    with pytest.raises(TypeError, match="model must be a fitted Forecaster or Classifier, or a SpikingNetwork"):
        to_exported(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="form: 'step' needs samples with a time of their own"):
        to_exported(classifier, form="step")
    with pytest.raises(ValueError, match="form: 'step' needs a network whose output is a voltage or traces"):
        to_exported(network_of(lags()), form="step")
    poisson = Classifier(hidden=(10,), encoder="poisson", random_state=0, verbose=0).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="draws spikes at random.*encoder='image'"):
        to_exported(poisson)
    own = Classifier(hidden=(10,), encoder=Halving(), random_state=0, verbose=0).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match=r"cannot follow it .*x.shape\[0\] instead of len\(x\) there, or pass batch"):
        to_exported(own)
    with torch.no_grad():
        assert agree(to_exported(own, batch=50).module()(samples=torch.from_numpy(X[:50])), own.predict_proba(X[:50]), 1e-5)


def test_events_and_voltages_that_cannot_be_exported(default):
    X, y = timed()
    events = [np.nonzero(sample) for sample in X]
    exact = Classifier(hidden=(10,), encoder=ExactEvents(steps=12, inputs=4), random_state=0, verbose=0).fit(events, y)
    with pytest.raises(ValueError, match=r"events at exact times.*ExactEvents\(exact=False"):
        to_exported(exact)
    voltage = Classifier(hidden=(10,), readout="voltage", random_state=0, verbose=0).fit(X, y)
    with pytest.raises(ValueError, match="form: 'step' needs readout='direct'"):
        to_exported(voltage, form="step")
    with pytest.raises(ValueError, match="channels share this network.*Export the Forecaster"):
        to_exported(default.network_)


def test_the_command_refuses_as_the_function_does(classifier, tmp_path):
    classifier.save(tmp_path / "digits.sswim")
    place = tmp_path / "digits.onnx"
    command = ["export", str(tmp_path / "digits.sswim"), "--to", "onnx", "--out", str(place), "--set", "form=step"]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code != 0 and "needs samples with a time of their own" in " ".join(answer.output.split())
    assert not place.exists()


def test_wrong_shapes_are_refused_at_a_run(default):
    module = to_exported(default, batch=2).module()
    with pytest.raises((AssertionError, RuntimeError)):
        module(rows=torch.zeros(2, 23, 9, dtype=torch.float64))
