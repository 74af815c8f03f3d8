# `make` or `make help` lists the targets. Choose an interpreter with: PYTHON=python3.12 make install

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
VENV := .venv
BENCH_VENV := .venv-bench
DOPAMINE_VENV := .venv-dopamine
JAX_PEERS_VENV := .venv-jax-peers
PACKAGES_VENV := .venv-packages
BIN := $(VENV)/bin
# Nothing is compiled beforehand: most of what is installed is never imported.
PIP_FLAGS := -qq --disable-pip-version-check --no-compile

# Shell code that sets $$python: the one named by PYTHON, or the first on PATH that the locks are tested with.
define find_python
	python=''; \
	if [ -n '$(PYTHON)' ]; then \
		if '$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python='$(PYTHON)'; \
		else echo "tremble needs Python 3.11 or newer, but PYTHON=$(PYTHON) is older or cannot be run." >&2; exit 1; fi; \
	else \
		for candidate in python3 python3.13 python3.12 python3.11; do \
			if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
			then python=$$candidate; break; fi; \
		done; \
		if [ -z "$$python" ]; then \
			echo "tremble needs Python 3.11, 3.12 or 3.13, and none of python3, python3.13, python3.12, python3.11 is one." >&2; \
			echo "(python3 here: $$(python3 --version 2>&1 || true))" >&2; \
			echo "Install one, or name it: PYTHON=/path/to/python make install" >&2; exit 1; \
		fi; \
	fi
endef

.PHONY: help install demo test test-slow test-long test-grid test-packages test-safety test-sweeps lint format lock bench wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## create .venv with the pinned dependencies and tremble itself

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(find_python); \
	if [ ! -x $(BIN)/python ]; then "$$python" -m venv $(VENV); fi
	@echo "installing pinned dependencies into $(VENV), about a minute"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements.lock
	@$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation -e .
	@touch $@

demo: install ## a first look: train, compare and draw, into runs/demo
	@$(BIN)/tremble demo --out runs/demo

# Compiling is most of what tests do, and programs that are not optimised compile in half the time. The long tests run
# what users run.
QUICK_COMPILING := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true

test: export XLA_FLAGS = $(QUICK_COMPILING)
test: export JAX_PLATFORMS = cpu
test: lint ## lint, types, import contract and the tests that take moments
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long and not grid and not packages" --durations 10 --durations-min 4

test-slow: export XLA_FLAGS = $(QUICK_COMPILING)
test-slow: export JAX_PLATFORMS = cpu
test-slow: install ## the tests that take seconds each: whole runs, snippets of the docs, every command
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not long and not grid and not packages" --durations 10 --durations-min 4

test-long: export JAX_PLATFORMS = cpu
test-long: install ## the tests that take minutes: fifty kills, every combination of improvements
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

test-grid: export JAX_PLATFORMS = cpu
test-grid: install ## every combination of representation, criterion and improvement; resumable, writes runs/grid
	$(BIN)/python -m tests.grid

test-packages: export JAX_PLATFORMS = cpu
test-packages: $(PACKAGES_VENV)/.installed ## environments of three packages that are not ours, in an environment of its own
	$(PACKAGES_VENV)/bin/python -m pytest -n 2 -m packages tests/test_packages.py

test-safety: export JAX_PLATFORMS = cpu
test-safety: install ## 2,000 hostile run directories, and runs interrupted at every moment: an hour
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.kills

test-sweeps: export JAX_PLATFORMS = cpu
test-sweeps: install ## one sweep by every engine, and faults injected into sweeps, every file compared: an hour
	$(BIN)/python -m tests.sweep_engines --out docs/results/sweep-engines
	$(BIN)/python -m tests.sweep_faults --out docs/results/sweep-faults

lint: install ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install ## let ruff sort imports, fix what it can and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Resolve with the oldest supported Python: what fits it fits the newer ones too.
# The extra dev names tremble's other extras by way of tremble itself, which must not end up among the pins.
# A build label of torch (such as +cpu) is dropped, so that the pin fits every build of that version.
PIP_COMPILE = CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --annotation-style=line \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

lock: install ## pin the newest versions that fit: requirements.lock and requirements-bench.lock
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make lock wants a .venv made with Python 3.11")'
	$(PIP_COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	sed -i.bak -E '/^tremble @ /d; s/ tremble, (tremble \(pyproject)/ \1/; s/ tremble$$/ tremble (pyproject.toml)/' requirements.lock && rm requirements.lock.bak
	grep -vE '^(pandas|filelock)==' requirements.lock > bench-constraints.txt  # Tianshou wants older ones
	$(PIP_COMPILE) --extra box2d --extra atari --constraint bench-constraints.txt --output-file requirements-bench.lock pyproject.toml requirements-bench.in
	sed -i.bak -E 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/' requirements-bench.lock && rm requirements-bench.lock.bak bench-constraints.txt

bench: $(BENCH_VENV)/.installed $(DOPAMINE_VENV)/.installed $(JAX_PEERS_VENV)/.installed ## speed beside other libraries, in an environment of its own (ARGS=--help)
	@$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

$(BENCH_VENV)/.installed: requirements-bench.lock pyproject.toml
	@$(find_python); \
	if [ ! -x $(BENCH_VENV)/bin/python ]; then "$$python" -m venv $(BENCH_VENV); fi
	@echo "installing pinned dependencies into $(BENCH_VENV) (PyTorch among them), some minutes"
	@$(BENCH_VENV)/bin/python -m pip install $(PIP_FLAGS) -r requirements-bench.lock
	@$(BENCH_VENV)/bin/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation -e .
	@touch $@

$(DOPAMINE_VENV)/.installed: requirements-dopamine.lock
	@$(find_python); \
	if [ ! -x $(DOPAMINE_VENV)/bin/python ]; then "$$python" -m venv $(DOPAMINE_VENV); fi
	@echo "installing Dopamine and an older JAX into $(DOPAMINE_VENV) (TensorFlow among them), some minutes"
	@$(DOPAMINE_VENV)/bin/python -m pip install $(PIP_FLAGS) --no-deps -r requirements-dopamine.lock
	@touch $@

$(JAX_PEERS_VENV)/.installed: requirements-jax-peers.lock
	@$(find_python); \
	if [ ! -x $(JAX_PEERS_VENV)/bin/python ]; then "$$python" -m venv $(JAX_PEERS_VENV); fi
	@echo "installing rejax, gymnax and sbx into $(JAX_PEERS_VENV) (PyTorch among them), some minutes"
	@$(JAX_PEERS_VENV)/bin/python -m pip install $(PIP_FLAGS) -r requirements-jax-peers.lock
	@touch $@

$(PACKAGES_VENV)/.installed: requirements.lock requirements-packages.in pyproject.toml
	@$(find_python); \
	if [ ! -x $(PACKAGES_VENV)/bin/python ]; then "$$python" -m venv $(PACKAGES_VENV); fi
	@echo "installing packages with environments into $(PACKAGES_VENV), about a minute"
	@$(PACKAGES_VENV)/bin/python -m pip install $(PIP_FLAGS) -r requirements.lock -r requirements-packages.in
	@$(PACKAGES_VENV)/bin/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation -e .
	@touch $@

wheel: install ## build the source distribution and the wheel into dist/
	$(BIN)/python -m build --no-isolation

clean: ## remove build products and caches (environments and runs/ stay)
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
