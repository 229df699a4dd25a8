# Every target sets up what it needs in .venv; nothing has to be installed beforehand but Python 3.10 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WARM := .venv/.warm

.PHONY: run tour test test-slow bench reproduce lint format clean
.DELETE_ON_ERROR:

# The tests start many processes, none of which should compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@# A new pip installs faster. Modules are compiled when they are first imported: most of what is installed never is.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt torch --editable '.[dev]'
	@touch $@

# Two processes that test would both compile every module for themselves; one that only looks for tests does it once.
$(WARM): $(READY)
	@$(BIN)/python -m pytest --collect-only --quiet --quiet > /dev/null || true
	@touch $@

run: $(READY)  ## the two jobs, one true label and several, and their report
	$(BIN)/shortlist compare ambiguous --config examples/ambiguous.yaml --output out/ambiguous
	$(BIN)/shortlist compare pubmed --config examples/pubmed.yaml --output out/pubmed
	$(BIN)/shortlist report out/ambiguous out/pubmed --output out/report.html

tour: $(READY)  ## projections, argmaxability and set rules on a few numbers, with pictures
	$(BIN)/python examples/tour.py

test: $(WARM)  ## the test suite and the doctests, a process with one thread for each core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses auto --dist worksteal

test-slow: $(READY)  ## statistical and heavy tests
	$(BIN)/python -m pytest -m slow

bench: $(READY)  ## speed and memory as ratios, with the goal beside the result
	$(BIN)/python -m benchmarks.projections
	$(BIN)/python -m benchmarks.losses
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.sets
	$(BIN)/python -m benchmarks.metrics
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.cost_check
	$(BIN)/python -m benchmarks.scale_tables

DATA_ROOT ?= data
reproduce: $(READY)  ## the published claims at small scale, and docs/evidence.md: DATA_ROOT=FOLDER says where data are
	$(BIN)/shortlist reproduce --all --scale small --data-root $(DATA_ROOT)

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv out .pytest_cache .ruff_cache .hypothesis
