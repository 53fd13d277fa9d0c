"""Experiments that run from one command, go on where they were stopped, and draw their tables from what they wrote."""

from sswim.experiments.classification import classification
from sswim.experiments.runner import EXPERIMENTS, Experiment, render, run

__all__ = ["EXPERIMENTS", "Experiment", "classification", "render", "run"]
