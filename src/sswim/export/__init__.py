"""Fitted models for other programs: simulators, chips, and runtimes."""

from sswim.export.files import read_nir, write_nir
from sswim.export.host import lag_line, read_spikes
from sswim.export.imported import from_nir
from sswim.export.interpreter import run_nir
from sswim.export.nir import to_nir
from sswim.export.onnx import initial_state, to_exported, to_onnx

__all__ = [
    "from_nir",
    "initial_state",
    "lag_line",
    "read_nir",
    "read_spikes",
    "run_nir",
    "to_exported",
    "to_nir",
    "to_onnx",
    "write_nir",
]
