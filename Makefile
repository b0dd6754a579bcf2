# `make demo` and `make test` need Python >= 3.11, git and Node; each does its own set-up.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= logical  # as many as there are cores; 0 for tests one after another, in one process
RUN := PYTHONDONTWRITEBYTECODE= $(BIN)/python

.PHONY: demo test test-python test-parity lint soak bench reference clean

demo: .venv/.ready  ## a thread, two consumers with filters, pushes, and what came of them
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: test-python test-parity  ## everything that CI runs, but for lint

test-python: .venv/.ready
	$(RUN) -m pytest -n $(JOBS) --dist worksteal

test-parity: .venv/.ready vitest-parity/node_modules/.ready
	cd vitest-parity && npx vitest run

lint: .venv/.ready vitest-parity/node_modules/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd vitest-parity && npm run lint

soak: .venv/.fuzz  ## what takes too long for a suite; run it before a release
	$(RUN) -m pytest -m soak -n $(JOBS) --dist worksteal

bench: .venv/.bench  ## measures everything, side by side with the raw limit, and writes bench/RESULTS.md
	$(RUN) -m bench

reference: .venv/.ready  ## writes the generated parts of CONTRIBUTING.md, SPEC.md and docs/reference.md
	$(RUN) -m tests.reference

.venv/.ready: pyproject.toml scripts/eventq scripts/thread
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m compileall -q eventq
	touch $@

.venv/.bench: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	touch $@

.venv/.fuzz: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	touch $@

vitest-parity/node_modules/.ready: vitest-parity/package.json vitest-parity/package-lock.json
	@command -v npm > /dev/null || { echo "Node is missing: the black-box suite in vitest-parity/ was left out"; exit 1; }
	cd vitest-parity && npm ci --no-audit --no-fund --loglevel=error
	touch $@

clean:
	rm -rf .venv vitest-parity/node_modules build dist *.egg-info
