"""The shape of the code: imports go one way, modules and functions stay short, one fit walks down one path."""

import ast
import inspect
import re
import sys
from pathlib import Path

import pytest

from sswim import Classifier, Forecaster

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sswim"
sys.path.insert(0, str(ROOT / "tools"))
# From the bottom to the top: a module may import from lower rows, and within its own package.
LAYERS = [
    ["_version", "drawing", "machine", "writing"],
    ["options"],
    ["sealed"],
    ["algebra", "network", "scale"],
    ["regression"],
    ["data", "report"],
    ["steps"],
    ["readout"],
    ["sampling"],
    ["gradient", "evaluate", "profiles"],
    ["spiking", "classes", "forecasts", "hidden"],
    ["contributions", "records", "recordings", "streams", "updates"],
    ["backtests", "page", "schema"],
    ["io"],
    ["estimator", "paper"],
    ["inspection", "updating"],
    ["classifier", "forecaster"],
    ["datasets", "plots"],
    ["adapters", "export"],
    ["demo", "experiments", "bench"],
    ["arguments"],
    ["commands"],
    ["cli"],
    ["__main__"],
]


def modules():
    """Return the syntax tree of every module, by its name without `sswim.`."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(file.read_text())
    return found


def imports(tree, known):
    """Return the modules of the library that a module imports anywhere, in functions and for types alone too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sswim":
            module = node.module.removeprefix("sswim").removeprefix(".")
            for alias in node.names:
                inner = f"{module}.{alias.name}".removeprefix(".")
                yield inner if inner in known else module
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("sswim.") for a in node.names if a.name.startswith("sswim."))


MODULES = modules()
GRAPH = {name: {m for m in imports(tree, MODULES) if m != name} for name, tree in MODULES.items() if name != "__init__"}


def test_every_part_has_a_layer():
    parts = {name.split(".")[0] for name in GRAPH}
    assert parts == {part for layer in LAYERS for part in layer}


@pytest.mark.parametrize("name", sorted(GRAPH))
def test_imports_go_down(name):
    rank = {part: row for row, layer in enumerate(LAYERS) for part in layer}
    part = name.split(".")[0]
    for other in GRAPH[name]:
        below = other.split(".")[0]
        assert below == part or rank[below] < rank[part], f"{name} imports {other}"


def test_no_module_imports_itself_through_others():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            path.append(name)
            for other in sorted(GRAPH.get(name, ())):
                visit(other)
            path.pop()
            done.add(name)

    for name in sorted(GRAPH):
        visit(name)


def test_modules_and_functions_are_short():
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        assert text.count("\n") <= 400, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                doc = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
                assert node.end_lineno - node.lineno + 1 - doc <= 60, f"{file}: {node.name}"


def test_types_are_known():
    uses = [line for file in SOURCE.rglob("*.py") for line in file.read_text().splitlines() if re.search(r"[\[ ]Any\b", line)]
    assert len([line for line in uses if "import" not in line]) <= 42


@pytest.mark.parametrize("estimator", [Forecaster, Classifier])
def test_estimators_have_few_parameters(estimator):
    assert len(inspect.signature(estimator).parameters) <= 20


@pytest.fixture(scope="module")
def walked():
    import map

    return map, map.walks()


def test_one_fit_walks_down_one_path(walked):
    fit = next(iter(walked[1].values()))
    assert next(iter(fit.files)) == "forecaster.py" and "sampling.py" in fit.files
    assert len(fit.files) <= 35  # series, their times and statistics, sums that go on, periods, precision, and chips have rooms
    for walk in walked[1].values():
        done = set()

        def visit(file, path, walk=walk, done=done):
            assert file not in path, f"a way back up: {[*path, file]}"
            if file not in done:
                for above, below in walk.calls:
                    if above == file:
                        visit(below, [*path, file], walk, done)
                done.add(file)

        for file in walk.files:
            visit(file, [])


def test_the_map_in_the_docs_is_the_walk(walked):
    assert (ROOT / "docs" / "map.md").read_text() == walked[0].page(walked[1]), "run `python tools/map.py`"
