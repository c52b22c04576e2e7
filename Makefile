# Everything here needs only make and Python >= 3.10: `.venv` is made when it is missing, and brought
# up to date when pyproject.toml changes. pip keeps what already satisfies it, so torch is never replaced.

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11 python3.10 python,\
	$(shell $(p) -c 'import sys; sys.version_info >= (3, 10) and print("$(p)")' 2>/dev/null)))
BIN := .venv/bin
JOBS ?= 2
ARGS ?=

# One thread a process: the tests run in JOBS processes, and one thread repeats bit for bit.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test coverage docs lint format types benchmark check-python

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

demo: .venv/.installed  ## learn a graph for Wine and compare it with the fixed one (under a minute)
	$(BIN)/edgewise demo $(ARGS)

test: .venv/.installed-dev  ## lint, type-check, tests and doctests (JOBS=2 processes, ARGS for pytest)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# What Numba compiles leaves no trace, so the kernels run again as plain Python.
COVERED := tests/bilevel tests/graph tests/test_learn.py tests/test_learn_similarity.py \
	tests/test_problem.py tests/test_estimator.py tests/test_induction.py tests/test_batches.py \
	tests/test_persistence.py tests/reliability/test_checkpoint.py
KERNELS := tests/graph/test_kernels.py tests/graph/test_sampled.py tests/graph/test_growing.py \
	tests/bilevel/test_lowrank.py
coverage: .venv/.installed-dev  ## lines and branches of graph, bilevel, learn and estimator (at least 95 %)
	$(BIN)/python -m pytest -q -n $(JOBS) --cov --cov-report= $(COVERED)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n $(JOBS) --cov --cov-append --cov-report= $(KERNELS)
	$(BIN)/coverage report --fail-under=95

docs: .venv/.installed-docs  ## build the documentation into docs/_build (warnings are errors)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

lint: .venv/.installed-dev  ## ruff only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed-dev  ## let ruff mend and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/.installed-dev  ## mypy only
	$(BIN)/mypy

benchmark: .venv/.installed-dev  ## fail if slow compared with bare products and dense LDS (needs EDGEWISE_DATA or the network)
	$(BIN)/python benchmarks/guard.py

# Not a file target of its own, so that an existing .venv, whoever made it, is used.
check-python:
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { \
		echo "Edgewise needs Python >= 3.10, and none was found. Install it, or say which: make PYTHON=..."; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
		echo "$(PYTHON) could not make a virtual environment (on Debian: apt install python3-venv)"; \
		exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip

.venv/.installed: pyproject.toml | check-python
	@echo "Installing Edgewise and what it needs into .venv; the first time takes some minutes."
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.installed-dev: pyproject.toml | check-python
	@echo "Installing Edgewise and what it needs into .venv; the first time takes some minutes."
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ .venv/.installed

.venv/.installed-docs: pyproject.toml | check-python
	@echo "Installing Edgewise and what its documentation needs into .venv."
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ .venv/.installed
