"""The site builds without a warning: every link and anchor leads somewhere, every name of the reference exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
for needed in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
    pytest.importorskip(needed, reason="the site needs `pip install -e '.[docs]'`")


def build(config, folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        place = site / name.parent if name.name == "index" else site / name
        assert (place / "index.html").is_file(), name


def test_nothing_comes_from_the_network(site):
    loaded = re.compile(r"<(?:script|link|img)[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s\">]*", re.IGNORECASE)
    for page in site.rglob("*.html"):
        assert not [tag for tag in loaded.findall(page.read_text()) if 'rel="canonical"' not in tag], page.name


def test_code_fits_into_its_page(site):
    for code in re.findall(r"```(?:python|sh)\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL):
        assert max(map(len, code.splitlines())) <= 80, "the home page shows code without scrolling"
    page, style = (site / "index.html").read_text(), (site / "site.css").read_text()
    assert page.count('class="language-python highlight"') == 1 and "site.css" in page
    phone = style[style.index("@media screen and (max-width") :]
    assert re.search(r"\.language-python pre > code.*?\{[^}]*white-space: pre-wrap", phone)


def test_equations_are_drawn(site):
    for page in ("algorithm", "api/steps"):
        text = (site / page / "index.html").read_text()
        assert text.count("<math") > 15
        assert not re.search(r":math:|\.\. math::|\$`|`\$|language-math", text), page
        drawn = "".join(re.findall(r"<math.*?</math>", text))
        assert "\\" not in drawn, "an equation holds a command that is not understood"


def test_each_parameter_has_its_own_default(site):
    text = re.sub(r"<[^>]*>|\s", "", (site / "api/steps/index.html").read_text())
    assert "min_support(float,default:5.0)" in text and "max_support(float,default:50.0)" in text


@pytest.mark.parametrize(
    "module",
    [
        "sswim",
        "sswim.steps",
        "sswim.evaluate.protocol",
        "sswim.datasets",
        "sswim.experiments",
        "sswim.evaluate.metrics",
        "sswim.plots",
    ],
)
def test_public_names_are_in_the_reference(module, site):
    text = "".join(page.read_text() for page in (site / "api").rglob("index.html"))
    for name in importlib.import_module(module).__all__:
        if not name.isupper() and name != "__version__":
            assert f'id="{module}.{name}"' in text, f"add `::: {module}.{name}` to a page in docs/api"


def test_a_broken_anchor_fails(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# One\n\n[nowhere](#no-such-heading)\n")
    config = (ROOT / "mkdocs.yml").read_text()
    kept = config[config.index("validation:") : config.index("markdown_extensions:")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: one\n{kept}")
    built = build(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert built.returncode != 0 and "no-such-heading" in built.stderr
