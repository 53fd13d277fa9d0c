"""The command line as ``python -m sswim``."""

from sswim.cli import app

app(prog_name="sswim")
