# Every target sets up .venv as needed. The only prerequisite is Python 3.10 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WARM := .venv/.warm

.PHONY: run serve tour test test-slow test-browser test-install test-lowest dist docs examples fuzz faults bench bench-models reproduce lint format clean
.DELETE_ON_ERROR:

# The tests start many processes, which should share compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@# A new pip installs faster. Skip compilation: most installed modules are never imported.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt torch --editable '.[dev]'
	@touch $@

# Collect the tests once in one process to compile all modules; otherwise every test process would compile them itself.
$(WARM): $(READY)
	@$(BIN)/python -m pytest --collect-only --quiet --quiet > /dev/null || true
	@touch $@

run: $(READY)  ## which rule, which loss, which output layer: three comparisons and a report, in under 3 minutes
	$(BIN)/shortlist compare ambiguous --config examples/ambiguous.yaml --output out/ambiguous
	$(BIN)/shortlist compare ambiguous --config examples/noisy.yaml --output out/noisy
	$(BIN)/shortlist compare pubmed --config examples/pubmed.yaml --output out/pubmed
	$(BIN)/shortlist report out/ambiguous out/noisy out/pubmed --output out/report.html

PORT ?= 8000
serve: $(READY)  ## the models of `make run` in the browser; reads PORT=8000
	@test -f out/pubmed/comparison.json || $(MAKE) run
	$(BIN)/shortlist serve out/ambiguous out/noisy out/pubmed --port $(PORT)

tour: $(READY)  ## a short tour of projections, argmaxability and set rules, with figures
	$(BIN)/python examples/tour.py

# Tests and benchmarks run here. On cuda: the tests of tensors, and the measurements of operators.
DEVICE ?= cpu

test: $(WARM)  ## the test suite and the doctests, one single-threaded process per core; reads DEVICE=cuda
ifeq ($(DEVICE),cpu)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses auto --dist worksteal
else
	SHORTLIST_DEVICE=$(DEVICE) $(BIN)/python -m pytest -m "not slow" $(addprefix tests/,functional nn sets metrics)
endif

test-slow: $(READY)  ## statistical and heavy tests
	$(BIN)/python -m pytest -m slow

test-install: $(READY)  ## each extra alone in a fresh environment, with the commands that ask for it; reads EXTRAS="cli hf"
	$(BIN)/python -m tests.install.extras_alone $(EXTRAS)

test-lowest: $(READY)  ## the lowest versions that pyproject.toml allows
	$(BIN)/python -m tests.install.lowest

dist: $(READY)  ## wheel and sdist in dist/: built, checked, installed afresh
	$(BIN)/python -m tests.install.distribution

docs: $(READY)  ## the site in out/site, warnings are errors; open index.html, or serve the folder to search it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

PAGES ?= $(wildcard docs/start/*.md docs/understand/*.md docs/index.md)
examples: $(READY)  ## run the examples of PAGES and write what they print below them; pictures and notebooks, too
	$(BIN)/python -m website.pictures
	$(BIN)/python -m website.examples $(PAGES)

AXE := .venv/browser/node_modules/axe-core/axe.min.js
$(AXE):
	npm install --silent --no-audit --no-fund --prefix .venv/browser axe-core@4.14.0

# Chromium comes from the system; on Debian and Ubuntu it is installed if it is missing.
test-browser: $(READY) $(AXE)  ## the report, the service and the site in Chromium, with axe; needs npm
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { apt-get update -qq && apt-get install -y -qq chromium; }
	SHORTLIST_AXE=$(AXE) $(BIN)/python -m pytest -m browser tests/journeys tests/report tests/serve tests/test_site.py

MINUTES ?= 10
SEED ?= 0
fuzz: $(READY)  ## fuzz parsers (guided by coverage), operators, metrics, rules, audits; goes on in out/fuzz; reads MINUTES=10, SEED=0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]' torch \
		|| echo "atheris cannot be installed here: files are mutated blindly."
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) --folder out/fuzz

MOMENTS ?= 50
faults: $(READY)  ## kill, interrupt and starve every command at random moments; reads MOMENTS=50 per command, SEED=0
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --moments $(MOMENTS) --seed $(SEED)

bench: $(READY)  ## speed and memory as ratios, next to their goals; reads DEVICE=cuda
ifneq ($(DEVICE),cpu)
	$(BIN)/python -m benchmarks.accelerator --device $(DEVICE)
	$(BIN)/shortlist bench --device $(DEVICE)
else
	$(BIN)/python -m benchmarks.projections
	$(BIN)/python -m benchmarks.losses
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.sets
	$(BIN)/python -m benchmarks.set_rules
	$(BIN)/python -m benchmarks.metrics
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.cost_check
	$(BIN)/python -m benchmarks.accelerator
	$(BIN)/python -m benchmarks.scale_tables
	$(BIN)/python -m benchmarks.serve
endif

DATA_ROOT ?= data
# An interpreter with fasttext-numpy2-wheel, napkinxc and libmultilabel, which need an environment of their own.
PEERS ?=
bench-models: $(READY)  ## models beside those of other libraries; reads DATA_ROOT=FOLDER, PEERS=PYTHON
	$(BIN)/python -m benchmarks.models --data-root $(DATA_ROOT) $(if $(PEERS),--peers $(PEERS))

reproduce: $(READY)  ## test the published claims at small scale; reads DATA_ROOT=FOLDER, writes docs/evidence.md
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
