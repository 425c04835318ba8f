# The two commands: `make demo` and `make test`. Both set up everything they need and can be repeated.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test long extras lint bench trials meshes score fleet chaos fuzz gpu install parts docs clean

install: $(STAMP)  ## a virtual environment with everything in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "rankscope needs Python 3.11 or newer; hint: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "==> virtual environment in $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@echo "==> packages (torch first, then the rest)" >&2
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch >&2
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' >&2
	@touch $@

parts:  ## Debian packages that tests run for real: a ClickHouse server, Chromium, Alertmanager, Prometheus, iproute2, docker-compose
	@./scripts/install-parts

demo: install  ## train eight ranks in 3D with a slow one among them, and name it
	@$(BIN)/rankscope demo $(DEMO_ARGS)

test: install parts lint  ## everything but what takes minutes each, from unit to real processes to a real browser; two at a time
	@$(BIN)/pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder -m 'not long' $(PYTEST_ARGS)

long: install parts  ## the tests that `make test` leaves out
	@$(BIN)/pytest -m long $(PYTEST_ARGS)

extras: install  ## build a wheel, install it with each extra alone and use it; takes minutes and 5 GB below /tmp
	@EXTRAS_BY=pip $(BIN)/pytest --timeout 900 -m 'long or not long' tests/deploy/test_extras.py

lint: install  ## format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: install  ## the documentation site, in build/site; a warning is an error
	@$(BIN)/python -m mkdocs build --strict --quiet

bench: install  ## every benchmark; rewrites docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks

trials: install  ## real hangs, many of them; rewrites the table in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.hang_trials --write $(TRIAL_ARGS)

meshes: install  ## slow and stopped ranks on meshes that are learned; takes half an hour; rewrites their table in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.mesh_trials --write $(MESH_ARGS)

score: install  ## slow runs whose truth is known, simulated and real; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.score --write $(SCORE_ARGS)
	@$(BIN)/python -m tests.score.sharded --write
	@$(BIN)/python -m tests.score.real --write

fleet: install parts  ## jobs over network namespaces with links that flap, break or slow, and how soon people are told; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.fleet_trials --alerts --write $(FLEET_ARGS)
	@$(BIN)/python -m tests.scenarios.fleet_trials --write $(FLEET_ARGS)

fuzz: install  ## 100,000 bad inputs to all that reads what strangers send, 10,000 damaged files to each reader; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.integration.wire_fuzz --write $(FUZZ_ARGS)
	@$(BIN)/python -m tests.integration.import_fuzz --write
	@$(BIN)/python -m tests.diagnose.source_fuzz

chaos: install parts  ## real processes killed, stopped, cut and out of room; rewrites their table in docs/accuracy.md
	@$(BIN)/python -m tests.integration.chaos --write $(CHAOS_ARGS)

# An interpreter that was named, else the virtual environment's if there is one. Nothing is installed: the machine may
# have no network.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON))
OUT ?= build/gpu

gpu:  ## all checks that need a GPU, on one or on all of the machine; writes OUT/gpu.json
	@$(GPU_PYTHON) -m tests.gpu --out $(OUT)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
