PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-models check format lint types clean

# Sets up and runs the main job: a five-mode session over real servers.
demo: $(VENV)/.base
	$(BIN)/roster demo

# Sets up and passes the tests.
test: $(VENV)/.dev
	$(BIN)/python -m pytest

# The same with torch and sentence-transformers: the general encoder, training, and the notebook on tuning.
test-models: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e ".[dev,eval,build]"
	$(BIN)/python -m pytest

check: format lint types test

format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

$(VENV)/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roster needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV): about a minute ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Setting up what the tests need: about a minute ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,eval]"
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
