"""Reports: what stands on a page is what the model says, and the page works in a browser."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from typer.testing import CliRunner

pytest.importorskip("altair", reason="reports need `pip install -e '.[report]'`")
pytest.importorskip("vl_convert", reason="reports need `pip install -e '.[report]'`")

from sswim import Classifier, Convolution, Forecaster  # noqa: E402
from sswim.cli import app  # noqa: E402
from sswim.page import Limits, Page, make_page  # noqa: E402
from sswim.page.blocks import Stepper, packed, shown  # noqa: E402
from sswim.page.origins import ClassPairs, SeriesPairs  # noqa: E402
from sswim.page.pictures import Gallery  # noqa: E402

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "link", "input", "br", "hr", "img"}


def frame(rows=400, channels=("north", "south", EVIL)):
    t = np.arange(rows)[:, None]
    waves = 10 + np.sin(2 * np.pi * t / np.array([12, 17, 30])[: len(channels)])
    values = waves + 0.1 * np.random.default_rng(0).standard_normal(waves.shape)
    return pd.DataFrame(values, index=pd.date_range("2024-03-01", periods=rows, freq="h", tz="UTC"), columns=list(channels))


@pytest.fixture(scope="module")
def series():
    return frame()


@pytest.fixture(scope="module")
def forecaster(series):
    return Forecaster(24, 6, hidden=(12,), random_state=0, verbose=0).fit(series.iloc[:300])


@pytest.fixture(scope="module")
def forecasts(forecaster, series):
    return forecaster.report(series.iloc[300:], train=series.iloc[:300])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    names = np.array(["zero", "one", EVIL, "three", "four", "five", "six", "seven", "eight", "nine"])
    return X.reshape(-1, 8, 8)[:600], names[y[:600]]


@pytest.fixture(scope="module")
def classifier(digits):
    X, y = digits
    return Classifier((60, 30), encoder="image", random_state=0, verbose=0).fit(X[:400], y[:400])


@pytest.fixture(scope="module")
def classes(classifier, digits):
    X, y = digits
    return classifier.report(X[400:], y[400:], train=(X[:400], y[:400]))


class Reader(HTMLParser):
    """Reads a page as a browser would: what is open, headings, names, and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.ids, self.loaded, self.tags, self.scripts, self.wrong = [], [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.loaded += [given[k] for k in ("src", "href", "data", "action", "poster") if given.get(k)]
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.scripts += [data] if self.open and self.open[-1] == "script" else []


@pytest.fixture(scope="module", params=["forecasts", "classes"])
def page(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def read(page):
    return Reader(page.html)


def facts_of(page):
    return json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', page.html, re.DOTALL)[1])


def section(page, name):
    return next(s for s in page.sections if s.name == name)


def tables(page, name):
    found = []
    for block in section(page, name).blocks:
        figures = block.figures if isinstance(block, Stepper) else [block]
        found += [b if b.kind == "table" else b.table for b in figures if b.kind in ("table", "figure")]
    return {t.caption: t for t in found if t is not None}


def tiles(page):
    return {name: value for block in section(page, "model").blocks if block.kind == "tiles" for name, value, _ in block.tiles}


# The page as text


def test_the_page_is_well_formed(read):
    assert read.wrong == [] and read.open == []
    assert len(read.ids) == len(set(read.ids))


def test_headings_go_down_one_level_at_a_time(read):
    assert read.headings[0] == 1 and read.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(read.headings, read.headings[1:], strict=False))


def test_nothing_comes_from_a_network(read):
    assert all(address.startswith("#") or address == "data:," for address in read.loaded)
    styles = re.findall(r"@import|url\(", "".join(s for s in read.scripts if "vegaEmbed" not in s))
    assert not styles


def test_links_lead_somewhere(read):
    assert {a[1:] for a in read.loaded if a.startswith("#")} <= set(read.ids)


def test_names_of_channels_and_classes_are_escaped(page, read):
    assert page.html.count("<script") == 3
    assert "&lt;script&gt;alert" in page.html
    assert not any("alert('x')" in script and "figures" not in script for script in read.scripts)


def test_people_who_do_not_see_it_can_use_it(read):
    tags = [tag for tag, _ in read.tags]
    assert all(tags.count(landmark) == 1 for landmark in ("header", "nav", "main", "footer"))
    assert dict(read.tags[0:1]).get("html", {}).get("lang") == "en"
    live = [given for tag, given in read.tags if given.get("aria-live")]
    assert len(live) == tags.count("select") + sum(1 for _, g in read.tags if g.get("role") == "group") - tags.count("select")
    assert all(given.get("aria-label") for tag, given in read.tags if tag == "button")
    assert any(given.get("name") == "viewport" for tag, given in read.tags)


def test_a_notebook_shows_it_in_a_frame(page):
    shown_there = page._repr_html_()
    assert shown_there.startswith("<iframe") and shown_there.endswith("</iframe>")
    assert "<script" not in shown_there  # all of it is inside of an attribute


def test_save_writes_the_page(page, tmp_path):
    page.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == page.html
    assert 0.5e6 < (tmp_path / "r.html").stat().st_size < 4e6
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


# Forecasts


def test_errors_are_those_of_evaluate(forecasts, forecaster, series):
    found = forecaster.evaluate(series.iloc[300:])
    assert tiles(forecasts)["RSE"] == shown(found.rse) and tiles(forecasts)["MAE"] == shown(found.mae)
    assert tiles(forecasts)["RMSE"] == shown(found.rmse)
    assert tiles(forecasts)["Coverage"] == f"{100 * found.coverage:.1f} %"
    steps, channels = tables(forecasts, "errors").values()
    expected = [[str(s), *(shown(float(v)) for v in row)] for s, row in found.per_step.iterrows()]
    assert [list(row[:5]) for row in steps.rows] == expected
    expected = {str(c): [shown(float(v)) for v in row] for c, row in found.per_channel.iterrows()}
    assert {row[0]: list(row[1:]) for row in channels.rows} == expected


def test_the_last_value_is_persistence(forecasts, series):
    from sswim.evaluate import Persistence

    expected = Persistence(24, 6).evaluate(series.iloc[300:]).per_step["rse"]
    steps = tables(forecasts, "errors")["Errors per step ahead"]
    assert [row[-1] for row in steps.rows] == [shown(float(v)) for v in expected]


def test_forecasts_are_those_of_predict(forecasts, forecaster, series):
    data, test = facts_of(forecasts)["steppers"]["forecasts"]["data"], series.iloc[300:]
    for number in (0, 17, len(data["ends"]) - 1):
        at = test.index.get_loc(pd.Timestamp(data["ends"][number], tz="UTC")) + 1
        expected = forecaster.predict(test.iloc[:at])
        low, high = forecaster.predict_interval(test.iloc[:at])
        for c, name in enumerate(data["channels"]):
            forecast, half = np.array(data["forecast"][number][c]), np.array(data["half"][c])
            np.testing.assert_allclose(forecast, expected[name], rtol=1e-4)
            np.testing.assert_allclose(forecast + half, high[name], rtol=1e-4)
            floor = data["floor"][number][c]
            np.testing.assert_allclose(np.maximum(forecast - half, -np.inf if floor is None else floor), low[name], rtol=1e-4)
            np.testing.assert_allclose(data["truth"][number][c], test[name].iloc[at : at + 6], rtol=1e-4)
            np.testing.assert_allclose(data["past"][number][c], test[name].iloc[at - 24 : at], rtol=1e-4)
        start = pd.Timestamp(data["places"][number]["from"], unit="ms", tz="UTC")
        assert start == test.index[at - 24] and data["places"][number]["step"] == 3_600_000


def bits(text, *shape):
    return np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))[: int(np.prod(shape))].reshape(shape)


def test_rasters_are_those_of_simulate(forecasts, forecaster, series):
    data, test = facts_of(forecasts)["steppers"]["forecasts"]["data"], series.iloc[300:]
    at = test.index.get_loc(pd.Timestamp(data["ends"][5], tz="UTC")) + 1
    spikes = forecaster.simulate(test.iloc[at - 24 : at]).spikes[0][0]  # (channels, steps, neurons)
    order = np.argsort(forecaster.network_.layers[0].delays.detach().numpy(), kind="stable")
    for c in range(3):
        np.testing.assert_array_equal(bits(data["rasters"][5][c][0], 12, 24), spikes[c][:, order].T)


def test_rates_are_counted(forecasts, forecaster, series):
    table = tables(forecasts, "firing")["Firing rates by layer"]
    ends = facts_of(forecasts)["steppers"]["forecasts"]["data"]["ends"]
    spikes = forecaster.simulate(series.iloc[300:])
    shown_here = spikes.labels["window"].isin(pd.to_datetime(ends, utc=True))
    assert table.rows[0][3] == shown(float(spikes.spikes[0][shown_here].mean()), 3)


def test_the_pair_is_the_one_that_made_the_neuron(forecaster, series):
    pairs = SeriesPairs.find(forecaster.model_, series.iloc[:300], None)
    encoder, span = forecaster.model_.encoder, 24 + 6
    for neuron in range(12):
        for k, number in enumerate(pairs.numbers(0, neuron).tolist()):
            window, member = divmod(number, 3)
            column, end = pairs.label(number)
            assert column == encoder.moving[member] and end == f"{series.index[window + 23]:%Y-%m-%d %H:%M}"
            rows = series.iloc[window : window + span, column].to_numpy()
            expected = (rows - rows[:24].mean()) / encoder.span[column]
            np.testing.assert_allclose(pairs.shapes(0, neuron, 0)[k], expected, atol=1e-6)
    # The potentials are those of the network on these windows, and its spikes are where they reach 1.
    neuron, (first, _) = 3, pairs.numbers(0, 3).tolist()
    window, member = divmod(first, 3)
    found = forecaster.simulate(series.iloc[window : window + 24], potentials=True)
    channel = list(found.labels["channel"]).index(series.columns[encoder.moving[member]])
    np.testing.assert_allclose(pairs.potentials(0, [neuron])[0, 0], found.potentials[0][0, channel, :, neuron], atol=1e-5)


def test_other_training_rows_are_refused(forecaster, series):
    with pytest.raises(
        ValueError, match="train: these are not the rows of the fit. The fit had 271 windows, and these rows have 261"
    ):
        forecaster.report(series.iloc[300:], train=series.iloc[:290])
    with pytest.raises(ValueError, match="their range is another"):
        forecaster.report(series.iloc[300:], train=series.iloc[:300] + 1)


def test_contributions_are_those_of_the_model(forecasts, forecaster, series):
    table = next(t for c, t in tables(forecasts, "sources").items() if c.startswith("Mean size"))
    test, sizes = series.iloc[300:], []
    for end in facts_of(forecasts)["steppers"]["forecasts"]["data"]["ends"]:
        parts = forecaster.contributions(test.loc[:end])
        sizes.append(np.abs(parts["own lags"].to_numpy().reshape(6, 3)) / forecaster.model_.encoder.span)
    column = list(table.columns).index("own lags")
    assert [row[column] for row in table.rows] == [shown(float(v), 3) for v in np.mean(sizes, axis=(0, 2))]


def test_costs_are_those_of_the_model(forecasts, forecaster, classes, classifier, series, digits):
    for page, costs in ((forecasts, forecaster.costs(series.iloc[300:])), (classes, classifier.costs(digits[0][400:]))):
        table = tables(page, "costs")["Layer by layer"]
        spikes = list(table.columns).index("spikes")
        assert [row[0] for row in table.rows] == [*(layer.name for layer in costs.layers), "all"]
        assert [row[spikes] for row in table.rows] == [
            shown(float(v)) for v in (*(k.spikes for k in costs.layers), costs.spikes)
        ]
        assert [row[1] for row in tables(page, "costs")["Energy"].rows] == [str(each) for each in costs.energy]


def test_large_data_make_no_large_page():
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((700, 90)).cumsum(axis=0)
    model = Forecaster(48, 12, hidden=(8,), random_state=0, verbose=0).fit(wide[:350])
    page = model.report(wide[350:])
    data = facts_of(page)["steppers"]["forecasts"]["data"]
    assert len(data["channels"]) == 40 and len(data["ends"]) <= 60
    assert len(page.html) < 6e6
    assert "40 of 90 channels" in page.html and "of 291 forecasts" in page.html
    few = make_page(model.model_, {}, wide[350:], limits=Limits(items=3, channels=2, rows=10, neurons=4, values=1000))
    data = facts_of(few)["steppers"]["forecasts"]["data"]
    assert (len(data["ends"]), len(data["channels"]), len(data["past"][0][0])) == (3, 2, 10)


@pytest.mark.parametrize("kind", ["paper", "joint", "skip", "known", "one channel", "gaps", "array"])
def test_every_kind_of_forecaster_has_a_page(kind, series):
    data = series.rename(columns={EVIL: "west"})
    options = {"hidden": (8,), "random_state": 0, "verbose": 0}
    make, given = Forecaster, {}
    if kind == "paper":
        make, options["hidden"] = Forecaster.paper, (20, 10)
    elif kind == "joint":
        given = {"channels": "joint", "covariates": ["west"]}
    elif kind == "skip":
        given = {"readout__skip": True}
    elif kind == "known":
        given = {"known": ["west"]}
    elif kind == "one channel":
        data = data[["north"]]
    elif kind == "gaps":
        data = pd.concat([data.iloc[:150], data.iloc[160:350], data.iloc[360:]])
    elif kind == "array":
        data = data.to_numpy()
    rows = data.iloc if isinstance(data, pd.DataFrame) else data
    model = make(24, 6, **options).set_params(**given).fit(rows[:280])
    page = model.report(rows[280:], train=rows[:280])
    assert tiles(page)["RMSE"] == shown(model.evaluate(rows[280:]).rmse)
    assert len(page.html) > 1e5


# Classes


def test_accuracy_and_confusions_are_those_of_the_model(classes, classifier, digits):
    X, y = digits[0][400:], digits[1][400:]
    assert tiles(classes)["Accuracy"] == f"{100 * classifier.score(X, y):.1f} %"
    assert tiles(classes)["Mistakes"] == shown(int((classifier.predict(X) != y).sum()))
    table = tables(classes, "confusions")["Confusion matrix"]
    expected = confusion_matrix(y, classifier.predict(X), labels=classifier.classes_)
    assert [[int(v) for v in row[1:]] for row in table.rows] == expected.tolist()


def test_samples_are_those_of_predict(classes, classifier, digits):
    X, y = digits[0][400:], digits[1][400:]
    data = facts_of(classes)["steppers"]["samples"]["data"]
    p, said = classifier.predict_proba(X), classifier.predict(X)
    assert len(data["items"]) == 60
    wrong = [item["number"] for item in data["items"] if item["said"] != item["true"]]
    assert set(wrong) <= set(np.flatnonzero(said != y)) and len(wrong) == min(30, int((said != y).sum()))
    spikes = classifier.simulate(X).spikes
    order = np.argsort(classifier.network_.layers[0].delays.detach().numpy(), kind="stable")
    for item in data["items"][::7]:
        n = item["number"]
        assert data["classes"][item["said"]] == said[n] and data["classes"][item["true"]] == y[n]
        np.testing.assert_allclose(item["p"], p[n][item["classes"]], atol=1e-4)
        image = np.frombuffer(base64.b64decode(item["picture"]), dtype=np.uint8).reshape(8, 8)
        np.testing.assert_allclose(image, X[n] / 16 * 255, atol=0.51)
        np.testing.assert_array_equal(bits(item["rasters"][1], 60, spikes[0].shape[1]), spikes[0][n][:, order].T)


def test_neurons_tell_classes_apart(classes, classifier, digits):
    X, y = digits[0][400:], digits[1][400:]
    spikes = classifier.simulate(X).spikes
    for layer, neurons in enumerate(facts_of(classes)["steppers"]["neurons"]["data"]["layers"]):
        counts = spikes[layer].sum(axis=1)
        assert [n["explained"] for n in neurons] == sorted((n["explained"] for n in neurons), reverse=True)
        for neuron in neurons[:5]:
            expected = [counts[y == classifier.classes_[c], neuron["number"]].mean() for c in neuron["means"]["classes"]]
            np.testing.assert_allclose(neuron["means"]["spikes"], expected, rtol=1e-3)


def test_pairs_are_of_two_classes_and_in_the_order_of_the_fit(classifier, digits):
    X, y = digits[0][:400], digits[1][:400]
    pairs = ClassPairs.find(classifier.model_, (X, y), {})
    made = classifier.report_.layers[0].pairs
    assert all(pairs.classes[a] != pairs.classes[b] for a, b in made.tolist())
    gallery = Gallery(classifier.model_)
    images = {gallery.values(pairs.samples, n).tobytes(): pairs.classes[n] for n in range(400)}
    for image, label in zip(X, y, strict=True):
        assert classifier.classes_[images[image.tobytes()]] == label


def test_a_file_shows_the_same_pairs(classifier, digits, tmp_path):
    X, y = digits[0][:400], digits[1][:400]
    classifier.save(tmp_path / "m.sswim")
    loaded = Classifier.load(tmp_path / "m.sswim")
    assert loaded.model_.past is None
    found = ClassPairs.find(loaded.model_, (X, y), loaded.get_params(deep=False))
    np.testing.assert_array_equal(found.classes, ClassPairs.find(classifier.model_, (X, y), {}).classes)
    with pytest.raises(ValueError, match="random_state was None"):
        ClassPairs.find(loaded.model_, (X, y), {"random_state": None, "validation": 0.2})
    with pytest.raises(ValueError, match="a pair must be of two classes"):
        ClassPairs.find(loaded.model_, (X, y), {"random_state": 1, "validation": loaded.validation})


def test_other_training_samples_are_refused(classifier, digits):
    X, y = digits
    with pytest.raises(ValueError, match="not the samples of the fit. The fit had 400 samples"):
        classifier.report(X[400:], y[400:], train=(X[:300], y[:300]))
    with pytest.raises(ValueError, match="a pair must be of two classes"):
        classifier.report(X[400:], y[400:], train=(X[:400], np.roll(y[:400], 1)))
    with pytest.raises(TypeError, match="train must be a pair"):
        classifier.report(X[400:], y[400:], train=X[:400])


def test_what_layers_bring_is_their_accuracy(classes, classifier, digits):
    X, y = digits[0][400:], digits[1][400:]
    rows = dict(tables(classes, "sources")["What each layer brings"].rows)
    assert rows["all layers"] == f"{100 * classifier.score(X, y):.1f} %"
    assert set(rows) == {"all layers", "without hidden 1", "without hidden 2", "without any spikes"}
    constant = classifier.classes_[int(classifier.network_.readout.biases.argmax())]
    assert rows["without any spikes"] == f"{100 * (y == constant).mean():.1f} %"


def test_without_labels_nothing_is_said_of_mistakes(classifier, digits):
    page = classifier.report(digits[0][400:420])
    assert "Accuracy" not in tiles(page) and "confusions" not in [s.name for s in page.sections]
    assert all(item["true"] is None for item in facts_of(page)["steppers"]["samples"]["data"]["items"])
    assert len(page.html) > 1e5


@pytest.mark.parametrize("kind", ["events", "signal", "values", "paper", "two classes"])
def test_every_kind_of_classifier_has_a_page(kind, digits):
    rng, options = np.random.default_rng(0), {"random_state": 0, "verbose": 0}
    y = np.arange(60) % 3
    if kind == "events":
        X = [(np.sort(rng.uniform(0, 20, 15)), rng.integers(0, 5 + label, 15)) for label in y]
        model = Classifier((20,), **options)
    elif kind == "signal":
        X = rng.standard_normal((60, 30, 4)) + y[:, None, None]
        model = Classifier((20,), **options)
    elif kind == "values":
        X = rng.standard_normal((60, 5)) + 2 * y[:, None]
        model = Classifier((20,), **options)
    elif kind == "paper":
        X, y = digits[0][:60], digits[1][:60]
        model = Classifier.paper((20,), **options)
    else:
        y = y % 2
        X = rng.standard_normal((60, 6, 6)) + 2 * y[:, None, None]
        model = Classifier((20,), encoder="image", **options)
    model.fit(X, y)
    page = model.report(X, y, train=(X, y))
    assert tiles(page)["Accuracy"] == f"{100 * model.score(X, y):.1f} %"
    assert len(page.html) > 1e5


@pytest.mark.parametrize("hidden", [(20,), (Convolution(10), 8)])
def test_neurons_without_a_leak_have_no_support(hidden, digits, tmp_path):
    X, y = digits[0][:300], digits[1][:300]
    model = Classifier(hidden, encoder="image", profile="speck", random_state=0, verbose=0).fit(X, y)
    page = model.report(X[:150], y[:150])
    facts = facts_of(page)
    neurons = [n for layer in facts["steppers"]["neurons"]["data"]["layers"] for n in layer]
    assert neurons and all(n["support"] is None for n in neurons)
    found = tables(page, "kernels")
    assert {row[-1] for table in found.values() for row in table.rows} == {"no leak"}
    assert (
        "kernels" in facts["figures"]
        and "delays" not in facts["figures"]
        and "no leak)" in section(page, "model").blocks[0].paragraphs[1]
    )
    text = re.sub(r"<script.*?</script>", "", page.html, flags=re.DOTALL)
    assert "1e+30" not in text and "000,000,000,000" not in text and "1e+30" not in json.dumps(facts)
    assert "Neurons without a leak have no support" in text
    costs = model.costs(X[:150])
    assert [row[1] for row in tables(page, "costs")["Energy"].rows] == [str(each) for each in costs.energy]  # of 8 bits
    assert {row[2] for row in found["Ranges"].rows} == {"0 to 0"}
    assert "1e+30" not in str(model.summary()) and "1e+30" not in json.dumps(model.summary().to_dict())


# Wrong input


def test_wrong_data_are_refused(forecaster, classifier, series, digits):
    X, y = digits
    with pytest.raises(ValueError, match="too short to test on"):
        forecaster.report(series.iloc[:20])
    with pytest.raises(ValueError, match="features"):
        forecaster.report(series.iloc[:, :2])
    with pytest.raises(ValueError, match="y is for classifiers"):
        forecaster.report(series, y[:10])
    with pytest.raises(ValueError, match="breaks is for forecasters"):
        classifier.report(X, y, breaks=3)
    with pytest.raises(ValueError, match="one label per sample"):
        classifier.report(X, y[:-1])
    with pytest.raises(ValueError, match="does not know the class ten"):
        classifier.report(X[:2], ["zero", "ten"])
    with pytest.raises(ValueError, match="shape"):
        classifier.report(X[:, :5], y)
    with pytest.raises(ValueError, match="items must be"):
        Limits(items=0)


def test_nothing_is_half_written(forecasts, tmp_path, monkeypatch):
    old = tmp_path / "r.html"
    old.write_text("old")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        forecasts.save(tmp_path / "nowhere" / "r.html")
    with pytest.raises(ValueError, match="unknown format '.pdf'"):
        forecasts.save(tmp_path / "r.pdf")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="could not be written .No space left on device."):
        forecasts.save(old)
    assert old.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_a_missing_package_is_named(forecaster, series, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(ImportError, match=r"report needs altair: run `pip install 'sswim\[report\]'`"):
        forecaster.report(series)


# The command


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_command_reports_on_a_series(forecaster, series, tmp_path):
    model, data, train, out = (tmp_path / name for name in ("m.sswim", "test.csv", "train.csv", "r.html"))
    forecaster.save(model)
    series.iloc[300:].to_csv(data, index_label="time"), series.iloc[:300].to_csv(train, index_label="time")
    assert "Open it in a browser" in run("report", model, "--data", data, "--out", out, "--train", train).output
    assert out.read_text().count("<script") == 3
    answer = json.loads(run("report", model, "--data", data, "--out", out, "--json").output)
    assert answer["bytes"] == out.stat().st_size
    out.unlink()
    series.iloc[300:, :2].to_csv(data, index_label="time")
    assert "has no column" in run("report", model, "--data", data, "--out", out, code=2).output
    assert "no such file" in run("report", model, "--data", tmp_path / "no.csv", "--out", out, code=2).output
    assert "for classifiers" in run("report", model, "--data", train, "--out", out, "--label", "a", code=2).output
    assert "does not exist" in run("report", model, "--data", train, "--out", tmp_path / "no" / "r.html", code=2).output
    assert "would be lost" in run("report", model, "--data", train, "--out", model, code=2).output
    assert not out.exists()


def test_the_command_reports_on_samples(classifier, digits, tmp_path):
    X, y = digits
    model, out = tmp_path / "m.sswim", tmp_path / "r.html"
    classifier.save(model)
    table = pd.DataFrame(X.reshape(len(X), -1)).rename(columns=str)
    table["label"] = y
    table.iloc[400:].to_csv(tmp_path / "test.csv", index=False)
    table.iloc[:400].to_parquet(tmp_path / "train.parquet")
    np.savez(tmp_path / "test.npz", X=X[400:], y=y[400:])
    run("report", model, "--data", tmp_path / "test.csv", "--out", out, "--train", tmp_path / "train.parquet")
    accuracy = f"{100 * classifier.score(X[400:], y[400:]):.1f} %"
    assert accuracy in out.read_text()
    run("report", model, "--data", tmp_path / "test.npz", "--out", out)
    assert accuracy in out.read_text()
    out.unlink()
    assert "neither a data set" in run("report", model, "--data", "cats", "--out", out, code=2).output
    assert (
        "has no column 'kind'"
        in run("report", model, "--data", tmp_path / "test.csv", "--label", "kind", "--out", out, code=2).output
    )
    table.drop(columns="1").to_csv(tmp_path / "few.csv", index=False)
    assert "shape" in run("report", model, "--data", tmp_path / "few.csv", "--out", out, code=2).output
    (tmp_path / "bad.npz").write_text("no")
    assert "not a readable npz" in run("report", model, "--data", tmp_path / "bad.npz", "--out", out, code=2).output
    assert not out.exists()


def test_bits_are_packed_row_by_row():
    given = torch.rand(7, 11, generator=torch.Generator().manual_seed(0)).numpy() > 0.5
    np.testing.assert_array_equal(bits(packed(given), 7, 11), given)


def test_a_page_of_nothing_but_words():
    page = Page("title & more", "words", [])
    assert "title &amp; more" in page.html


def test_many_classes_make_no_large_page():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 3)
    X = rng.standard_normal((300, 12)) + 3 * rng.standard_normal((100, 12))[y]
    model = Classifier((40,), random_state=0, verbose=0).fit(X, y)
    page = model.report(X, y)
    assert "40 of 100 classes" in page.html and len(page.html) < 3e6
    found = confusion_matrix(y, model.predict(X))
    wrong = found.sum(axis=0) + found.sum(axis=1) - 2 * np.diag(found)
    listed = [int(row[0]) for row in tables(page, "confusions")["Classes"].rows]
    assert wrong[listed].min() >= np.delete(wrong, listed).max()


def test_one_step_ahead_of_one_row_has_a_page():
    walk = np.random.default_rng(0).standard_normal((60, 1)).cumsum(axis=0)
    model = Forecaster(1, 1, hidden=(3,), random_state=0, verbose=0).fit(walk[:40])
    assert tiles(model.report(walk[40:], train=walk[:40]))["MAE"] == shown(model.evaluate(walk[40:]).mae)


def test_a_file_of_another_kind_is_refused(classifier, tmp_path):
    classifier.save(tmp_path / "m.sswim")
    with pytest.raises(ValueError, match="holds a Classifier, not a Forecaster"):
        Forecaster.load(tmp_path / "m.sswim")


def test_neurons_that_no_pair_made(series):
    data = series.rename(columns={EVIL: "west"})
    options = {"hidden": (8,), "random_state": 0, "verbose": 0, "training": "gradient"}
    model = Forecaster(12, 3, **options).set_params(training__epochs=1).fit(data.iloc[:200])
    page = model.report(data.iloc[200:300])
    assert "began from random parameters" in page.html and "was made to tell" not in page.html
    with pytest.raises(ValueError, match="no pairs of samples made the neurons"):
        model.report(data.iloc[200:300], train=data.iloc[:200])
