# Everything runs in .venv, which is made on first use from constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow fuzz lint docs peers clean

demo: .venv/ready
	$(BIN)/sswim demo --out demo.png

test: .venv/ready lint
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow tests

# Random fits, and damaged files: a table of how they ended, and the seeds of those that ended badly.
fuzz: .venv/ready
	$(BIN)/python -m tests.fuzz.fits --cases 10000
	$(BIN)/python -m tests.fuzz.files --cases 2000

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

# Other libraries to compare with (`.venv-peers/bin/sswim bench simulation`, `bench forecasters`), in an environment of their own.
peers: .venv-peers/ready

.venv-peers/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . \
		spikingjelly snntorch norse reservoirpy h5py ninja lightgbm neuralforecast neurobench pytest
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
		lava-dl==0.6.0 lava-nc==0.10.0
	.venv-peers/bin/python -m pip uninstall --quiet --yes torchvision  # unused here, and often built for another torch
	touch $@

clean:
	rm -rf .venv .venv-peers build src/*.egg-info .pytest_cache .ruff_cache .mypy_cache demo.png demo.sswim demo.csv
