"""The page itself: sections become one HTML file, with its charts' library inside."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from sswim.page.blocks import Section, Stepper, plain
from sswim.writing import check_place, whole_file

__all__ = ["Page", "charts_library", "need_report_extra"]


def need_report_extra() -> None:
    """Refuse to go on without the packages that draw charts."""
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ImportError(f"report needs {error.name}: run `pip install 'sswim[report]'`.") from None


@cache
def charts_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed, which draw the charts, as one script."""
    import altair
    import vl_convert

    version = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    if "</script" in script.lower() or "<!--" in script:
        raise RuntimeError("report: this version of vl-convert-python has a script that cannot be put into a page.")
    return script


@dataclass(frozen=True)
class Page:
    """A report on a fitted model. A notebook shows it, and `save` writes it to a file that needs nothing else.

    Attributes
    ----------
    title : str
    words : str
        What the page is about, in a sentence.
    sections : sequence of Section
    """

    title: str
    words: str
    sections: Sequence[Section] = field(repr=False)

    @property
    def html(self) -> str:
        """The page."""
        need_report_extra()
        from jinja2 import Environment, PackageLoader, StrictUndefined

        places = Environment(
            loader=PackageLoader("sswim.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        figures = [figure for section in self.sections for figure in section.figures()]
        steppers = [b for section in self.sections for b in section.blocks if isinstance(b, Stepper)]
        facts = {
            "figures": {f.name: {"spec": f.spec, "canvas": f.canvas} for f in figures},
            "steppers": {s.name: {"script": s.script, "what": s.what, "data": s.data} for s in steppers},
        }
        return places.get_template("page.html").render(
            title=self.title, words=self.words, sections=self.sections, facts=plain(facts, 6), library=charts_library()
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to an HTML file; it appears whole or not at all."""
        place = check_place(path, name="save", endings=(".html", ".htm"))
        text = self.html
        with whole_file(place) as part:
            part.write_text(text, encoding="utf-8")

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a frame of its own: its styles and scripts do not touch the notebook."""
        frame = 'style="width: 100%; height: 45rem; border: 1px solid #8888; border-radius: 6px"'
        return f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.html)}" {frame}></iframe>'
