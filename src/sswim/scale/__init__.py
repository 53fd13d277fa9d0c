"""Sums over more data than one process can take: computed by threads, processes or a Dask cluster, with the same result."""

from sswim.scale.base import Executor, Summand
from sswim.scale.cluster import Dask
from sswim.scale.executors import Threads, resolve_executor
from sswim.scale.kept import Kept
from sswim.scale.processes import Processes

__all__ = ["Dask", "Executor", "Kept", "Processes", "Summand", "Threads", "resolve_executor"]
