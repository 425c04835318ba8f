# The two commands: `make demo` and `make test`. Both install what they need and can be repeated.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Kept bytecode shortens the start of processes, of which tests start many.
export PYTHONDONTWRITEBYTECODE :=

FRAMEWORKS := accelerate datasets lightning pytorch-lightning transformers trl
FRAMEWORKS += deepspeed megatron-core 'ray[train]' torchft-nightly
FRAMEWORKS_PYTHON = $(CURDIR)/build/adapters/bin/python

.PHONY: demo test long cluster extras lint bench trials meshes score fleet chaos fuzz gpu install parts docs clean adapters frameworks attach-trials

install: $(STAMP)  ## create a virtual environment with all packages

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "rankscope needs Python 3.11 or newer; hint: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "==> virtual environment in $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@echo "==> packages (torch first, then the rest)" >&2
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch >&2
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' >&2
	@touch $@

parts:  ## install Debian packages for tests: a ClickHouse server, Chromium, Alertmanager, Prometheus, iproute2, docker-compose, shellcheck
	@./scripts/install-parts

demo: install  ## train eight ranks in 3D, one of them slow, and name the slow rank
	@$(BIN)/rankscope demo $(DEMO_ARGS)

# Threads of one operation wait for each other, and use the processors that other tests need.
test long: export OMP_NUM_THREADS := 1

# pytest-xdist can wait forever for the tests of a dead worker. So the run ends when a worker dies, and after this time.
TEST_LIMIT := 50m
PYTEST_IN = timeout --foreground --signal INT --kill-after 60 $(TEST_LIMIT) $(BIN)/pytest --max-worker-restart 0 --dist loadgroup --no-loadscope-reorder -m 'not long and not cluster'

# A rank that waits for a core looks like a slow rank. So tests that fail beside others run once more, alone: status 1
# means that all tests ran and some failed.
test: install parts lint  ## run all checks and tests except those that take minutes; three at a time
	@$(PYTEST_IN) --numprocesses 3 $(PYTEST_ARGS) || { status=$$?; \
	  [ $$status = 1 ] && [ -z "$(PYTEST_ARGS)" ] || exit $$status; \
	  echo "==> the tests that failed, once more and alone" >&2; \
	  $(PYTEST_IN) --numprocesses 1 --last-failed --last-failed-no-failures none -rp; }

long: install parts  ## run the tests that `make test` omits
	@$(BIN)/pytest -m long $(PYTEST_ARGS)

cluster: install  ## run the tests that need a cluster of ClickHouse servers; they start one on this machine
	@./scripts/install-parts cluster
	@$(BIN)/pytest -m cluster $(PYTEST_ARGS)

frameworks: install  ## install the frameworks of adapters into their own virtual environment; takes minutes, and 4 GB in build
	@$(PYTHON) -m venv build/adapters
	@build/adapters/bin/pip install --quiet torch==$$($(BIN)/python -c 'import torch; print(torch.__version__.split("+")[0])') $(FRAMEWORKS)
	@build/adapters/bin/pip install --quiet --no-deps axolotl addict peft  # its plugins need no more

adapters: frameworks  ## run the adapters with the real frameworks; takes minutes
	@RANKSCOPE_ADAPTERS_PYTHON=$(FRAMEWORKS_PYTHON) $(BIN)/pytest -m 'long or not long' tests/telemetry/attach/adapters

extras: install  ## build a wheel, install it with each extra alone and use it; takes minutes, and 5 GB in /tmp
	@EXTRAS_BY=pip $(BIN)/pytest --timeout 900 -m 'long or not long' tests/deploy/test_extras.py

lint: install  ## format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: install  ## build the documentation site in build/site; a warning is an error
	@$(BIN)/python -m mkdocs build --strict --quiet

bench: install  ## run every benchmark; rewrites docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks

trials: install  ## run many real hangs; rewrites the table in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.hang_trials --write $(TRIAL_ARGS)

meshes: install  ## slow and stop ranks on learned meshes; takes half an hour; rewrites their table in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.mesh_trials --write $(MESH_ARGS)

attach-trials: frameworks  ## slow and stop a rank of each framework without code changes; takes half an hour; rewrites their table in docs/accuracy.md
	@RANKSCOPE_ADAPTERS_PYTHON=$(FRAMEWORKS_PYTHON) $(BIN)/python -m tests.scenarios.attach_trials --write $(ATTACH_ARGS)

score: install  ## measure the accuracy on simulated and real slow runs and hangs; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.score --write $(SCORE_ARGS)
	@$(BIN)/python -m tests.score.sharded --write
	@rm -rf build/hangs && $(BIN)/python -m tests.scenarios.hang_trials --count 7 --out build/hangs
	@$(BIN)/python -m tests.score.hangs --trials build/hangs --write
	@$(BIN)/python -m tests.score.real --write

fleet: install parts  ## run jobs in network namespaces with faulty links, and measure when alerts arrive; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.scenarios.fleet_trials --alerts --write $(FLEET_ARGS)
	@$(BIN)/python -m tests.scenarios.fleet_trials --write $(FLEET_ARGS)

fuzz: install  ## send 100,000 bad inputs to the collector and to readers of untrusted data, and read 10,000 damaged files of each format; rewrites their tables in docs/accuracy.md
	@$(BIN)/python -m tests.integration.wire_fuzz --write $(FUZZ_ARGS)
	@$(BIN)/python -m tests.integration.import_fuzz --write
	@$(BIN)/python -m tests.diagnose.source_fuzz

chaos: install parts  ## kill, stop, disconnect real processes, and fill their disks; rewrites their table in docs/accuracy.md
	@$(BIN)/python -m tests.integration.chaos --write $(CHAOS_ARGS)

# The interpreter in PYTHON, otherwise that of the virtual environment if it exists. Nothing is installed, because the
# machine may have no network.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON))
OUT ?= build/gpu

gpu:  ## run all checks that need a GPU, on one GPU or on all of the machine; writes OUT/gpu.json
	@$(GPU_PYTHON) -m tests.gpu --out $(OUT)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
