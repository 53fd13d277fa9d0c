r"""What the site needs besides MkDocs: equations as MathML, and the right default of each parameter.

Browsers draw MathML by themselves: no script, nothing from the network. Equations are `.. math::` and ``:math:`x` `` in
docstrings, and ```` ```math ```` and ``$`x`$`` in pages, as on GitHub.
"""

import re

from griffe import Extension as DocstringExtension
from latex2mathml.converter import convert
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

FENCE = re.compile(r"^```math\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^( *)\.\. math::[ ]*(.*(?:\n(?:\1[ ]+\S.*|[ ]*(?=\n\1[ ]+\S)))*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`|\$`([^`]+)`\$")
# What the converter does not know, or knows under another name.
KNOWN = [
    (re.compile(r"\\arg\s*\\(max|min)"), r"\\operatorname{arg\\,\1}"),
    (re.compile(r"\\[Bb]igg?l?\s*\\\{"), r"\\left\\{"),
    (re.compile(r"\\[Bb]igg?r?\s*\\\}"), r"\\right\\}"),
]
# `first, second : type` and what is indented below it.
GROUP = re.compile(r"^( *)(\w+(?:, \w+)+)( : .*)?\n((?:\1 +\S.*(?:\n|$)|[ ]*\n(?=\1 +\S))*)", re.MULTILINE)


def mathml(latex, display):
    """Return an equation as MathML."""
    latex = " ".join(latex.split())
    for pattern, known in KNOWN:
        latex = pattern.sub(known, latex)
    return convert(latex, display=display)


class Equations(Preprocessor):
    """Replace equations by MathML before Markdown looks at them."""

    def run(self, lines):
        """Return the lines with equations stored away."""

        def store(latex, display):
            return self.md.htmlStash.store(mathml(latex, display))

        text = FENCE.sub(lambda found: f"\n\n{store(found[1], 'block')}\n\n", "\n".join(lines))
        text = DIRECTIVE.sub(lambda found: f"\n\n{store(found[2], 'block')}\n\n", text)
        return INLINE.sub(lambda found: store(found[1] or found[2], "inline"), text).split("\n")


class EquationExtension(Extension):
    """Makes `Equations` a step of Markdown."""

    def extendMarkdown(self, md):  # noqa: N802
        """Register it."""
        # After line ends are made alike (30), before fenced code (25) and HTML (20) are looked for.
        md.preprocessors.register(Equations(md), "equations", 28)


class GroupedParameters(DocstringExtension):
    """Write parameters that share a description one by one: each would be shown with the default of the first."""

    def on_instance(self, *, obj, **_):
        """Look at the `Parameters` of a docstring."""
        docstring = obj.docstring
        if docstring is None or "\nParameters\n---" not in docstring.value:
            return
        before, rule, after = docstring.value.partition("\nParameters\n----------\n")
        end = re.search(r"\n\n\w+\n---", after)
        parameters, rest = (after[: end.start()] + "\n", after[end.start() + 1 :]) if end else (after + "\n", "")

        def apart(found):
            return "".join(f"{found[1]}{name}{found[3] or ''}\n{found[4]}" for name in found[2].split(", "))

        docstring.value = before + rule + GROUP.sub(apart, parameters) + rest


def on_config(config):
    """Add equations to the pages' Markdown, and so to the docstrings'."""
    config.markdown_extensions.append(EquationExtension())
    return config
