"""Fitted models and networks as programs of `torch.export`, and as ONNX files."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sswim._version import __version__
from sswim.classifier import Classifier
from sswim.export.plans import Exportable, Facts, Plan, plan
from sswim.forecaster import Forecaster
from sswim.options import check_integer
from sswim.writing import check_place, whole_file

__all__ = ["OPSET", "initial_state", "to_exported", "to_onnx", "write_onnx"]

# Version of ONNX's operators.
OPSET = 18
# A file is refused if half of its outputs are off by this part of their deviation: single ones may be, by a spike on the edge.
OFF = 1e-3


def to_exported(
    model: Exportable, *, form: str = "window", dtype: str | None = None, batch: int | None = None, times: bool = False
) -> torch.export.ExportedProgram:
    """Return a fitted model, or a network, as a program of `torch.export`.

    Parameters
    ----------
    model : Forecaster, Classifier or SpikingNetwork
        Its present parameters become constants.
    form : {"window", "step"}
        ``"window"`` maps whole windows or samples to forecasts, probabilities or outputs. ``"step"`` maps one row and a state
        to the output after this row and the next state; see `initial_state`.
    dtype : {"float64", "float32"}, optional
        Of inputs and outputs, and of everything outside of the hidden layers. Default: ``"float64"`` for estimators, as
        `predict` computes, and the network's own for networks. With ``"float32"``, a value that lies on a neuron's threshold
        may fall on its other side.
    batch : int, optional
        Number of series or samples. Default: any.
    times : bool
        Whether a Forecaster that reads the calendar takes the `time` of each last row as another input: wall-clock time in
        whole seconds since 1970. Default: it forecasts as `predict` does for rows without times.

    Returns
    -------
    torch.export.ExportedProgram
        ``program.module()(rows=...)`` runs it, and ``torch.export.save`` writes it. It has no gradients.

    Examples
    --------
    >>> from sswim import SpikingNetwork
    >>> network = SpikingNetwork(inputs=3, outputs=2, window=10, horizon=4, hidden=(20,))
    >>> to_exported(network).module()(x=torch.zeros(5, 10, 3)).shape
    torch.Size([5, 4, 2])
    """
    return _exported(plan(model, form, dtype, batch, times), batch)


def to_onnx(
    model: Exportable,
    path: str | os.PathLike[str],
    *,
    form: str = "window",
    dtype: str | None = None,
    batch: int | None = None,
    times: bool = False,
) -> Path:
    """Write a fitted model, or a network, to an ONNX file, which appears whole or not at all.

    The other arguments are those of `to_exported`. Shapes, units and names of channels, the window, the horizon and sswim's
    version are in the file's metadata. If onnxruntime is installed, the file is tried out before it takes its place.

    Returns
    -------
    Path
        Where the file is.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"to_onnx needs the package {package}: run `pip install 'sswim[onnx]'`.")
    place = check_place(path, name="path", endings=(".onnx",))
    planned = plan(model, form, dtype, batch, times)
    program, state = _exported(planned, batch), list(planned.state)
    with _quiet():
        found = torch.onnx.export(
            program,
            input_names=[*planned.inputs, *state],
            output_names=[planned.output, *(f"new_{name}" for name in state)],
            dynamic_shapes=None if batch is not None else _shapes(planned, "batch"),
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
        assert found is not None
        for node in found.model.graph.all_nodes():
            node.metadata_props.clear()  # which line of torch made it
        found.model.producer_name, found.model.producer_version = "sswim", __version__
        found.model.metadata_props.update(_metadata(planned, batch))
        with whole_file(place) as part:
            found.save(part, external_data=False)
            if importlib.util.find_spec("onnxruntime") is not None:
                _try_out(part, planned)
    return place


def write_onnx(
    model: Forecaster | Classifier,
    out: Path,
    *,
    form: str = "window",
    dtype: str | None = None,
    batch: int | None = None,
    times: bool = False,
) -> dict[str, object]:
    """Write a fitted model to an ONNX file as `to_onnx` does; return facts about it, for `sswim export`."""
    place = to_onnx(model, out, form=form, dtype=dtype, batch=batch, times=times)
    return {
        "form": form,
        "dtype": dtype or "float64",
        "batch": batch,
        "times": times,
        "opset": OPSET,
        "bytes": place.stat().st_size,
    }


def initial_state(model: Exportable, *, batch: int = 1, dtype: str | None = None) -> dict[str, Tensor]:
    """Return the state that a model exported with ``form="step"`` starts with: 0 everywhere.

    Examples
    --------
    >>> from sswim import SpikingNetwork
    >>> network = SpikingNetwork(inputs=3, outputs=2, window=10, horizon=4, hidden=(20,))
    >>> {name: tuple(value.shape) for name, value in initial_state(network).items()}
    {'layer1_sent': (1, 5, 20), 'layer1_left': (1, 5, 20), 'output_sent': (1, 4, 2)}
    """
    return plan(model, "step", dtype, check_integer("batch", batch, 1)).state


def _shapes(planned: Plan, batch: object) -> Facts:
    """Return which sizes of the arguments are open: the first of each tensor."""
    found: Facts = {name: {0: batch} for name in planned.inputs}
    return found | ({"state": {name: {0: batch} for name in planned.state}} if planned.state else {})


def _exported(planned: Plan, batch: int | None) -> torch.export.ExportedProgram:
    """Return the program of a plan."""
    module, arguments = planned.module.eval(), planned.arguments
    open_ = None if batch is not None else _shapes(planned, torch.export.Dim("batch", min=1))
    with _quiet(), torch.no_grad():
        try:
            program = torch.export.export(module, (), arguments, dynamic_shapes=open_, strict=False)
        except Exception as error:
            why = f"{str(error).splitlines()[0]:.300}" if str(error) else type(error).__name__
            raise ValueError(
                f"model: torch.export {torch.__version__} cannot follow it ({why}). A kernel or an encoder of your own must "
                "consist of tensor operations, and sizes must not depend on values. A batch of any size needs x.shape[0] "
                "instead of len(x) there, or pass batch=..."
            ) from error
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # folders of this machine
    return program


def _metadata(planned: Plan, batch: int | None) -> dict[str, str]:
    """Return what a host should know, as texts."""

    def described(tensors: dict[str, Tensor]) -> Facts:
        first = "batch" if batch is None else batch
        return {name: {"shape": [first, *v.shape[1:]], "dtype": str(v.dtype).split(".")[1]} for name, v in tensors.items()}

    facts = planned.facts | {"inputs": described(planned.inputs), "outputs": [planned.output]}
    if planned.state:
        facts["state"] = described(planned.state)
        facts["next_state"] = {name: f"new_{name}" for name in planned.state}
    facts |= {"opset": OPSET, "version": __version__, "torch": torch.__version__}
    return {f"sswim.{key}": value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}


@torch.no_grad()
def _try_out(file: Path, planned: Plan) -> None:
    """Refuse a file that onnxruntime does not run, or runs otherwise than torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(os.fspath(file), options, providers=["CPUExecutionProvider"])
    given = {name: value.numpy() for name, value in (planned.inputs | planned.state).items()}
    found = session.run([planned.output], given)[0]
    answer = planned.module(**planned.arguments)
    wanted = (answer[0] if planned.state else answer).numpy()
    close = np.isclose(found, wanted, rtol=OFF, atol=OFF * float(np.nan_to_num(wanted).std()), equal_nan=True)
    if found.shape != wanted.shape or close.mean() < 0.5:
        raise RuntimeError(
            f"path: onnxruntime {onnxruntime.__version__} answers otherwise than torch {torch.__version__}, and nothing was "
            "written. This is an error of sswim or of one of them: please report it."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch says about packages that are not needed to itself."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
