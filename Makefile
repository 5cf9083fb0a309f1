# Two commands do everything on a machine with Python 3.11 or newer and make:
#
#   make serve    sets up what serving needs, then serves the bundled models
#   make test     sets up what the tests need, then runs them
#
# The environment lives in .venv and is brought up to date when pyproject.toml, the lock or the kernels change.

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/lock.txt
# What an installation is made from: any change of it installs again.
BUILD := pyproject.toml setup.py model/native/kernels.c model/native/kernels.h model/native/avx512.h \
	model/native/avx2.h model/native/search.c $(LOCK)

# The Python that .venv is made from: the first of these that is new enough, or yours with make PYTHON=...
PYTHON_CANDIDATES := python3.13 python3.12 python3.11 python3

# Set on the command line (make serve HOST=0.0.0.0). HOST is not taken from the environment: shells and compilers use
# that name for the machine's own.
HOST = 127.0.0.1
PORT ?= 8000
# Anything else for `gossamer serve`, for pytest, or for loadtests.run.
ARGS =

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: serve
serve: $(VENV)/.runtime ## Serve the bundled models (HOST=127.0.0.1 PORT=8000 ARGS=)
	$(BIN)/gossamer serve --host $(HOST) --port $(PORT) $(ARGS)

.PHONY: test
test: $(VENV)/.dev ## Run the tests (ARGS= for pytest; -n0: in one process)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --max-worker-restart 0 $(ARGS)

.PHONY: load
load: $(VENV)/.load ## Load a server of its own with all kinds of requests (ARGS=--web for Locust's page)
	$(BIN)/python -m loadtests.run $(ARGS)

.PHONY: check
check: $(VENV)/.dev ## Check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.dev ## Format the code and apply lint's safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: setup
setup: $(VENV)/.dev ## Set up everything for development, run nothing

# Says what pip is at, one line for each package; where it fails, all that pip said.
define install
	@echo "Installing into $(VENV). The first time some hundred megabytes are fetched, which takes minutes:"
	@{ $(BIN)/python -m pip install -c $(LOCK) -e '$(1)' 2>&1; echo $$? >$(VENV)/pip.status; } | tee $(VENV)/pip.log | \
	while read -r word name rest; do case $$word in \
		Collecting) echo "  fetching $$name";; \
		Building) echo "  building $$name $$rest";; \
		Installing) echo "  installing $$(($$(echo "$$rest" | tr -cd , | wc -c) + 1)) packages";; \
	esac; done; \
	if [ "$$(cat $(VENV)/pip.status)" != 0 ]; then cat $(VENV)/pip.log >&2; exit 1; fi
	@echo "Installed."
endef

$(VENV)/.runtime: $(BUILD) | $(BIN)/python
	$(call install,.)
	@touch $@

# The development packages are a superset, so their stamp renews the other one too.
$(VENV)/.dev: $(BUILD) | $(BIN)/python
	$(call install,.[dev])
	@touch $(VENV)/.runtime $@

$(VENV)/.load: $(BUILD) | $(BIN)/python
	$(call install,.[load])
	@touch $(VENV)/.runtime $@

# A candidate counts only if it runs: version managers leave commands on the PATH that merely print an error.
$(BIN)/python:
	@python='$(PYTHON)'; \
	if [ -z "$$python" ]; then \
		for candidate in $(PYTHON_CANDIDATES); do \
			if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
				python=$$candidate; break; \
			fi; \
		done; \
	fi; \
	if [ -z "$$python" ]; then \
		echo "Gossamer needs Python 3.11 or newer; none of these is: $(PYTHON_CANDIDATES)." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python ..." >&2; \
		exit 1; \
	fi; \
	if ! $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Gossamer needs Python 3.11 or newer; $$python is not ($$($$python --version 2>&1))." >&2; \
		exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "$$python cannot make virtual environments; on Debian and Ubuntu, install python3-venv." >&2; \
		exit 1; \
	fi; \
	echo "Making $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV)
