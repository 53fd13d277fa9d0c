"""A page to look at: what a fitted model is and does, as one HTML file that needs nothing else."""

from __future__ import annotations

from sswim.page.contents import Limits, make_page
from sswim.page.document import Page

__all__ = ["Limits", "Page", "make_page"]
