# Two commands do everything: `make quickstart` and `make test`. Both need only Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help quickstart test lint types arrows unit fuzz bounds browser browser-needs clean

help:
	@echo "make quickstart   train a digit reader in about three minutes, then stream one digit through it"
	@echo "make test         lint, types, import arrows and all tests"
	@echo "make fuzz         random networks, damaged files and command lines; MINUTES=5 SEED=7, CASE=networks:123"
	@echo "make bounds       the operators' tests in debug mode: every index checked, memory poisoned"
	@echo "make browser      tests of the exported page in Chromium, with screenshots in build/browser"
	@echo "make clean        remove the virtual environment and caches"

quickstart: $(VENV)/.installed-train
	$(BIN)/python examples/quickstart.py

test: lint types arrows unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

arrows: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Two workers with one thread each beat one worker with two threads on tests this small.
unit: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# Whoever names no seed gets a new one, which is printed; a finding is printed with the case that repeats it.
MINUTES ?= 5
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(CASE),--case $(CASE))

# Compiles code of its own the first time, which takes minutes.
bounds: $(VENV)/.installed-dev
	TORCHS4_DEBUG=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" tests/ops

browser: browser-needs $(VENV)/.installed-dev
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser --basetemp build/browser tests/inference

# Says what is missing and installs nothing: a browser is for the machine's owner to decide.
browser-needs:
	@command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || \
		{ echo "make browser needs Chromium and its driver. On Debian: apt-get install chromium chromium-driver"; exit 1; }
	@test -d node_modules/onnxruntime-web || \
		{ echo "make browser needs onnxruntime-web. Get it with: npm install --no-save onnxruntime-web"; exit 1; }

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "torchs4 needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-train: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing torchs4 into $(VENV) (PyTorch is large: a minute or two the first time) …"
	$(PIP_INSTALL) --editable ".[train]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing torchs4 and the development tools into $(VENV) (PyTorch is large: a minute or two the first time) …"
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@ $(VENV)/.installed-train

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
