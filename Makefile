# Sluicegate: every task of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PROTOS := $(shell find protos -name '*.proto' | sort)
GEN = -Iprotos --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)
COMPILE := $(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-options \
	--strip-extras --allow-unsafe
PYTEST_ARGS ?=
UP_ARGS ?=

.PHONY: help up demo test check format gen lint unit bench soak baseline lock clean-data clean

help: ## List the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

up: $(VENV)/.up ## Run everything on this machine (UP_ARGS="--cards 200" passes options on)
	@exec $(BIN)/sluicegate up $(UP_ARGS)

demo: $(VENV)/.up ## Run everything, print what a newcomer wants to try, and stop after a minute
	@exec $(BIN)/sluicegate up --for 60 $(UP_ARGS)

test: $(VENV)/.dev check ## Run the checks and all test layers on real engines
	$(BIN)/python -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

unit: $(VENV)/.dev ## Run the unit tests alone
	$(BIN)/python -m pytest tests/unit -q -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

check: lint ## Lint, types, architecture, protocol and generated code
	$(BIN)/mypy
	$(BIN)/lint-imports
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc $(call GEN,$$tmp); \
	diff -r -x __pycache__ "$$tmp/sluicegate" gen/sluicegate || { echo "gen/ is not what protos/ give: run make gen"; exit 1; }
	@echo "generated code matches protos/"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/baseline.binpb

format: $(VENV)/.dev ## Put the code in its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/buf format -w

gen: $(VENV)/.dev ## Generate the stubs in gen/ from protos/
	rm -rf gen/sluicegate
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc $(call GEN,gen)

baseline: $(VENV)/.dev ## Accept today's protos as what later versions must stay compatible with (on release)
	$(BIN)/buf build --exclude-source-info -o protos/baseline.binpb

bench: $(VENV)/.dev ## Run the benchmarks; each prints ratios measured in one run
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

soak: $(VENV)/.dev ## Run the long and large forms of the tests
	$(BIN)/python -m pytest tests -m soak --timeout 3600 $(PYTEST_ARGS)

lock: $(BIN)/pip-compile ## Pin the dependencies again
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) -o requirements/runtime.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra build --extra engines --extra dev \
		-c requirements/runtime.lock -o requirements/dev.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra build --extra engines \
		-c requirements/dev.lock -o requirements/up.lock pyproject.toml

clean-data: ## Forget what `make up` has stored (engines must be stopped)
	@if [ -x $(BIN)/sluicegate ]; then $(BIN)/sluicegate clean-data --yes; else rm -rf .sluicegate; fi

clean: ## Remove caches and the virtual environment
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/pip-compile: | $(BIN)/python
	$(PIP) install --quiet pip-tools==7.6.2

$(VENV)/.up: requirements/up.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/up.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/dev.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.up
