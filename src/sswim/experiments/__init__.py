"""Experiments that run from one command, go on where they were stopped, and draw their tables from what they wrote."""

from sswim.experiments.catalogue import EXPERIMENTS
from sswim.experiments.experiment import Experiment
from sswim.experiments.forecasting import published
from sswim.experiments.ltsf import published_ltsf
from sswim.experiments.runner import render, run

__all__ = ["EXPERIMENTS", "Experiment", "published", "published_ltsf", "render", "run"]
