# Needs GNU make, Python 3.11 or newer and pip. Everything else is installed by the targets that need it.

PYTHON ?= python3
VENV := .venv
INTEROP_VENV := .venv-interop
BIN := $(VENV)/bin
PYTEST_ARGS ?=
TEST_TIMEOUT ?= 120
# At once: most tests wait for servers, so three keep two cores busy.
TEST_JOBS ?= 3

# Stamps that say what an environment holds; what they depend on renews them.
DEMO_SET := $(VENV)/.installed-demo
DEV_SET := $(VENV)/.installed-dev
INTEROP_SET := $(INTEROP_VENV)/.installed

# Tests start hundreds of processes; where nobody may write bytecode, each would compile the package again.
COMPILE = python -m compileall -q oxpull_async

CODE = $(wildcard oxpull_async tests bench scripts docs/examples)

.DEFAULT_GOAL := help
.PHONY: help demo setup fmt check test suite interop soak bench servers docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO_SET) ## see it work on SQLite, in a few seconds
	@$(BIN)/python docs/examples/demo.py

setup: $(DEV_SET) $(INTEROP_SET) ## make both environments for development, install MariaDB if we are root
	@$(BIN)/python -m scripts.ensure_mariadb
	@$(BIN)/python -m scripts.ensure_pgbouncer

fmt: $(DEV_SET) ## format the code and fix what can be fixed by itself
	@$(BIN)/ruff check --fix-only --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

check: $(DEV_SET) ## lint, format, types, completeness of public types, direction of imports
	@echo "== ruff"
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@echo "== mypy"
	@$(BIN)/mypy
	@$(BIN)/mypy tests scripts $(wildcard bench docs/examples)
	@echo "== pyright"
	@report=$$(PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes oxpull_async --ignoreexternal 2>&1) \
		|| { echo "$$report"; exit 1; }; echo "$$report" | grep "completeness score"
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-cache

test: ## check, then the whole suite on every engine here, then with the reference under a newer Python
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory suite

suite: setup
	@echo "== tests"
	@$(BIN)/$(COMPILE)
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal --timeout=$(TEST_TIMEOUT) $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory interop

interop: $(INTEROP_SET)
	@echo "== tests with the reference"
	@if [ -e $(INTEROP_SET) ]; then \
		$(INTEROP_VENV)/bin/$(COMPILE); \
		$(INTEROP_VENV)/bin/python -m pytest -n $(TEST_JOBS) --dist worksteal --timeout=$(TEST_TIMEOUT) $(PYTEST_ARGS) tests/interop \
			tests/joined/test_sqlite_autocommit.py; \
	else \
		echo "*** NOT RUN: the tests with the reference need Python 3.12 or newer. ***"; \
	fi

soak: ## the suite with full counts; takes long
	@OXPULL_TEST_SCALE=full $(MAKE) --no-print-directory suite TEST_TIMEOUT=1800

bench: $(DEV_SET) ## measure speed beside bare drivers and other queues
	@$(BIN)/python -m bench

servers: setup ## run PostgreSQL and MariaDB to play with, until Ctrl-C
	@$(BIN)/python -m tests.servers

docs: $(DEV_SET) ## build the site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python scripts/check_site.py site

clean: ## remove what the other targets made, the environments too
	@rm -rf $(VENV) $(INTEROP_VENV) site build dist .ci-servers
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_SET): pyproject.toml
	@$(PYTHON) scripts/make_venv.py $(VENV) --extras sqlite,cli --stamp $(notdir $@)

$(DEV_SET): pyproject.toml
	@$(PYTHON) scripts/make_venv.py $(VENV) --extras all --groups dev --stamp $(notdir $@)

# On a laptop without a newer Python this makes nothing, says so, and goes on; on CI it fails.
$(INTEROP_SET): pyproject.toml
	@$(PYTHON) scripts/make_venv.py $(INTEROP_VENV) --minimum 3.12 --extras all --groups test interop --stamp $(notdir $@)
