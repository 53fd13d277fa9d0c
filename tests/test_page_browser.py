"""Reports in a real browser: nothing fails, charts are drawn, controls work, on a phone and in the dark too."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

playwright = pytest.importorskip("playwright.sync_api", reason="needs `pip install playwright`")
pytest.importorskip("vl_convert", reason="reports need `pip install -e '.[report]'`")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    pytest.skip("needs a browser: install Chromium", allow_module_level=True)

from sswim import Classifier, Forecaster  # noqa: E402

# Without a sandbox, for tests may run as root; and without the browser's own traffic.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
EVIL = '<img src="x" onerror="window.broken = true">'


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Three reports: on a forecaster, on a classifier, and on the paper's forecaster of rows without times."""
    folder = tmp_path_factory.mktemp("reports")
    t = np.arange(360)[:, None]
    values = 1e4 + 1e4 * np.sin(2 * np.pi * t / [12, 17, 30]) + 500 * np.random.default_rng(0).standard_normal((360, 3))
    index = pd.date_range("2024-03-01", periods=360, freq="h")
    frame = pd.DataFrame(values, index=index, columns=["north", "a long name of a channel that needs much room", EVIL])
    model = Forecaster(24, 6, hidden=(12,), random_state=0, verbose=0).fit(frame.iloc[:280])
    model.report(frame.iloc[280:], train=frame.iloc[:280]).save(folder / "series.html")
    plain = Forecaster.paper(24, 6, hidden=(20, 10), random_state=0, verbose=0).fit(values[:280])
    plain.report(values[280:]).save(folder / "paper.html")
    X, y = load_digits(return_X_y=True)
    names = np.array(["zero", "one", EVIL, "three", "four", "five", "six", "seven", "eight", "nine"])[y]
    X = X.reshape(-1, 8, 8)
    classifier = Classifier((60, 30), encoder="image", random_state=0, verbose=0).fit(X[:400], names[:400])
    classifier.report(X[400:700], names[400:700], train=(X[:400], names[:400])).save(folder / "classes.html")
    return folder


class Seen:
    """A page that is open, and everything that it complained of or asked for."""

    def __init__(self, browser, address, **options):
        self.page = browser.new_page(**{"viewport": {"width": 1000, "height": 800}, **options})
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)

    def status(self, stepper):
        return self.page.inner_text(f"#stepper-{stepper} .status")

    def at(self, stepper, number):
        self.page.wait_for_selector(f"#stepper-{stepper}[data-at='{number}']", timeout=20_000)

    def drawing(self, figure):
        """Return what a chart shows, as text. The order of an axis' labels depends on what it has shown before."""
        script = """f => { const p = f.querySelector('.plot'), c = p.querySelector('canvas');
            const drawn = [...p.querySelectorAll('path, line, rect, text')];
            return c ? c.toDataURL() : drawn.map(e => e.outerHTML).sort().join('') }"""
        return self.page.eval_on_selector(f"#figure-{figure}", script)

    def numbers(self, figure):
        return self.page.eval_on_selector(f"#figure-{figure} tbody", "body => body.textContent")


@pytest.fixture
def look(browser, pages):
    opened = []

    def open_(name, **options):
        opened.append(Seen(browser, (pages / f"{name}.html").as_uri(), **options))
        return opened[-1]

    yield open_
    for seen in opened:
        seen.page.close()


@pytest.mark.parametrize("name", ["series", "paper", "classes"])
def test_charts_are_drawn_and_nothing_fails(look, name, pages):
    seen = look(name)
    assert seen.said == []
    assert [address for address in seen.asked if not address.startswith("data:")] == [(pages / f"{name}.html").as_uri()]
    empty = "figures => figures.filter(f => !f.hidden && !f.querySelector('.plot[data-drawn] :is(svg, canvas)')).map(f => f.id)"
    assert seen.page.eval_on_selector_all("figure", empty) == []
    marks = "plots => plots.map(p => p.querySelectorAll('svg path, svg rect, svg text').length).filter(n => n < 8)"
    assert seen.page.eval_on_selector_all("figure:not([hidden]) .plot:has(svg)", marks) == []
    blank = """canvases => canvases.filter(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return new Set(new Uint32Array(d.buffer)).size < 3; }).length"""
    assert seen.page.eval_on_selector_all("figure:not([hidden]) canvas", blank) == 0
    assert seen.page.evaluate("window.broken") is None


def test_labels_of_axes_are_not_cut_off(look):
    seen = look("series")
    cut = """plots => plots.flatMap(p => { const box = p.getBoundingClientRect();
        return [...p.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
            return b.width && (b.left < box.left - 1.5 || b.right > box.right + 1.5); }).map(t => t.textContent); })"""
    assert seen.page.eval_on_selector_all(".plot:has(svg)", cut) == []


@pytest.mark.parametrize(
    ("name", "stepper", "figures"),
    [
        ("series", "forecasts", ["fan", "raster"]),
        ("series", "neurons", ["pair", "potentials", "profile", "kernel", "weights"]),
        ("classes", "samples", ["sample", "probabilities", "raster"]),
        ("classes", "neurons", ["pair_0", "pair_1", "potentials", "means", "field", "kernel"]),
    ],
)
def test_stepping_changes_charts_tables_and_words(look, name, stepper, figures):
    seen = look(name)
    place = f"#stepper-{stepper}"

    def everything():
        return seen.status(stepper), *(seen.drawing(f) for f in figures)

    first = everything()
    assert " 1 of " in first[0]
    assert seen.page.is_disabled(f"{place} [data-move='-1']")
    seen.page.click(f"{place} [data-move='1']")
    seen.at(stepper, 1)
    second = everything()
    assert " 2 of " in second[0] and all(a != b for a, b in zip(first, second, strict=True))
    seen.page.click(f"{place} [data-move='-1']")
    seen.at(stepper, 0)
    assert everything() == first
    # The keyboard: arrows on a button, and on the slider.
    seen.page.focus(f"{place} [data-move='1']")
    seen.page.keyboard.press("ArrowRight")
    seen.at(stepper, 1)
    assert everything() == second
    seen.page.focus(f"{place} input")
    seen.page.keyboard.press("End")
    count = int(seen.page.get_attribute(f"{place} input", "max"))
    seen.at(stepper, count - 1)
    assert f" {count} of {count}" in seen.status(stepper) and seen.page.is_disabled(f"{place} [data-move='1']")
    assert seen.page.get_attribute(f"{place} input", "aria-valuetext").endswith(f"{count} of {count}")
    assert seen.said == []


def test_the_table_has_what_the_chart_shows(look):
    seen = look("series")
    facts = seen.page.evaluate("JSON.parse(document.getElementById('facts').textContent).steppers.forecasts.data")
    rows = seen.page.eval_on_selector_all(
        "#figure-fan tbody tr", "rows => rows.map(r => [...r.children].map(c => c.textContent))"
    )
    assert [row[0] for row in rows][0] == "2024-03-13 16:00" and len(rows) == 6
    for row, forecast, truth in zip(rows, facts["forecast"][0][0], facts["truth"][0][0], strict=True):
        assert float(row[1].replace(",", "")) == pytest.approx(forecast, abs=0.5, rel=1e-3)
        assert float(row[-1].replace(",", "")) == pytest.approx(truth, abs=0.5, rel=1e-3)


def test_a_channel_is_chosen(look):
    seen = look("series")
    before = seen.drawing("fan"), seen.drawing("raster"), seen.numbers("fan")
    seen.page.select_option("#stepper-forecasts select", "2")
    seen.page.wait_for_function("document.querySelector('#stepper-forecasts .status').textContent.includes('window.broken')")
    seen.page.wait_for_timeout(200)
    after = seen.drawing("fan"), seen.drawing("raster"), seen.numbers("fan")
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert seen.page.evaluate("window.broken") is None and seen.said == []


def test_mistakes_only(look):
    seen = look("classes")
    seen.page.select_option("#stepper-samples select", "1")
    seen.page.wait_for_function("document.querySelector('#stepper-samples .status').textContent.includes('wrong')")
    count = int(seen.page.get_attribute("#stepper-samples input", "max"))
    for number in range(count):
        seen.at("samples", number)
        assert "That is wrong" in seen.status("samples")
        if number + 1 < count:
            seen.page.click("#stepper-samples [data-move='1']")


def test_a_deeper_layer_is_chosen(look):
    seen = look("classes")
    seen.page.select_option("#stepper-neurons select", "1")
    seen.page.wait_for_function("document.querySelector('#stepper-neurons .status').textContent.includes('hidden layer 2')")
    seen.page.wait_for_selector("#figure-weights .plot[data-drawn] svg")
    assert seen.page.is_hidden("#figure-field") and "hidden 1, neuron" in seen.numbers("weights")
    seen.page.select_option("#stepper-neurons select", "0")
    seen.page.wait_for_selector("#figure-field", state="visible")
    assert seen.page.is_hidden("#figure-weights") and seen.said == []


@pytest.mark.parametrize("name", ["series", "paper", "classes"])
@pytest.mark.parametrize("width", [320, 390, 1400])
def test_a_page_has_no_sideways_scroll(look, name, width):
    seen = look(name, viewport={"width": width, "height": 700})
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    over = f"figures => figures.filter(f => f.getBoundingClientRect().right > {width}).map(f => f.id)"
    assert seen.page.eval_on_selector_all("figure, .plot > *", over) == []


def test_charts_follow_the_width(look):
    seen = look("series")
    seen.page.set_viewport_size({"width": 400, "height": 700})
    seen.page.wait_for_function("document.querySelector('#figure-steps svg').getBoundingClientRect().width < 380")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 400


def contrast(first, second):
    def light(color):
        parts = [int(v) / 255 for v in color.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(first), light(second)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_lines_stand_out(look, scheme):
    seen = look("series", color_scheme=scheme)
    script = """names => { const probe = document.createElement('p'); document.body.append(probe);
        return names.map(n => { probe.style.color = `var(--${n})`; return getComputedStyle(probe).color; }); }"""
    names = ["ink", "muted", "focus", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
    colors = dict(zip(names, seen.page.evaluate(script, names), strict=True))
    card = seen.page.eval_on_selector("section", "s => getComputedStyle(s).backgroundColor")
    for name in names:
        assert contrast(colors[name], card) >= (4.5 if name in ("ink", "muted", "focus") else 3), name


def test_dark_mode_changes_page_and_charts(look):
    seen = look("series", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = seen.page.evaluate(paper), seen.drawing("steps"), seen.drawing("raster")
    seen.page.emulate_media(color_scheme="dark")
    seen.page.wait_for_function("document.querySelector('#figure-steps .plot').innerHTML.includes('#6cbdf0')")
    seen.page.wait_for_timeout(300)
    after = seen.page.evaluate(paper), seen.drawing("steps"), seen.drawing("raster")
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert seen.said == []


def test_focus_goes_down_the_page_and_can_be_seen(look):
    seen = look("classes")
    places = []
    for _ in range(16):
        seen.page.keyboard.press("Tab")
        places.append(seen.page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
    assert places[0].startswith('<a class="skip"') and len(set(places)) == len(places)
    tops = seen.page.evaluate("[...document.querySelectorAll('a, button, input, select, summary')].map(e => e.tabIndex)")
    assert set(tops) == {0}
    assert seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_notebook_frame_shows_the_page(browser, tmp_path):
    values = np.random.default_rng(0).standard_normal((200, 2)).cumsum(axis=0)
    model = Forecaster(12, 3, hidden=(5,), random_state=0, verbose=0).fit(values[:150])
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{model.report(values[150:])._repr_html_()}</body>", "utf-8")
    page = browser.new_page()
    try:
        page.goto((tmp_path / "notebook.html").as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready=yes]").wait_for(timeout=60_000)
        assert frame.locator("#stepper-forecasts .status").inner_text().startswith("Forecast 1 of 36")
    finally:
        page.close()


@pytest.mark.skipif("SSWIM_SHOTS" not in os.environ, reason="set SSWIM_SHOTS to a folder to write screenshots")
@pytest.mark.parametrize("name", ["series", "paper", "classes"])
def test_screenshots(look, name):
    for scheme, width in (("light", 1000), ("dark", 1000), ("dark", 390)):
        seen = look(name, color_scheme=scheme, viewport={"width": width, "height": 900})
        seen.page.screenshot(path=f"{os.environ['SSWIM_SHOTS']}/{name}-{scheme}-{width}.png", full_page=True)
