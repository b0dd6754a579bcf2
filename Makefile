# `make demo` and `make test` need Python >= 3.11, git and Node; each prepares what it needs.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= logical  # one process per core; 0 for pytest's own process alone
REPORT ?=  # a folder for what tests.verdict reads; none for no report
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUN := PYTHONDONTWRITEBYTECODE= $(BIN)/python

BROWSER := tests/browser/.browser/chromium

.PHONY: demo demo-postgres test test-python test-parity test-browser pictures lint soak bench reference generate dist clean

demo: .venv/.installed  ## show the main job: a thread, three consumers with filters, pushes, their logs
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

demo-postgres: .venv/.ready  ## a thread that machines share, on a real PostgreSQL server: one of two workers is killed
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo-postgres.sh

test:  ## run every test, each part even if another one failed
	@failed=; for part in test-python test-parity; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

test-python: .venv/.ready
	$(RUN) -m pytest -n $(JOBS) --dist worksteal $(if $(REPORT),--results $(abspath $(REPORT))/python.json)

test-parity: .venv/.ready vitest-parity/node_modules/.ready
	cd vitest-parity && npx vitest run $(if $(REPORT),--reporter default --reporter json --outputFile $(abspath $(REPORT))/parity.json \
	|| { touch $(abspath $(REPORT))/parity.failed; exit 1; })

test-browser: .venv/.browser $(BROWSER)  ## try the pages in a real browser, which this installs
	$(RUN) -m pytest -m browser -n $(JOBS) --dist worksteal tests/browser $(if $(REPORT),--results $(abspath $(REPORT))/browser.json)

pictures: .venv/.browser $(BROWSER)  ## make the pictures of docs/images anew
	EVENTQ_PICTURES=$(CURDIR)/docs/images $(RUN) -m pytest -q -m browser tests/browser/test_pictures.py tests/browser/test_story.py

lint: .venv/.ready vitest-parity/node_modules/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd vitest-parity && npm run lint

soak: .venv/.fuzz  ## run what takes too long for a suite; do it before a release
	$(RUN) -m pytest -m "soak or hypothesis" -n $(JOBS) --dist worksteal

bench: .venv/.bench  ## measure everything beside the raw limit; write bench/RESULTS.md
	$(RUN) -m bench

dist: .venv/.release  ## build what a release publishes, and check it
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/twine check --strict dist/*

reference: .venv/.ready  ## write the generated parts of the documents
	$(RUN) -m tests.reference

generate: .venv/.ready  ## write PostgreSQL's text of the statements of the memory
	$(RUN) -m scripts.sqlgen

.venv/.installed: pyproject.toml scripts/eventq scripts/thread
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	$(BIN)/python -m compileall -q eventq
	touch $@

.venv/.ready: .venv/.installed
	$(PIP) 'pip>=25.1'  # the first with --group
	$(PIP) -e '.[mcp,postgres]' --group dev
	touch $@

.venv/.bench: .venv/.ready
	$(PIP) --group bench
	touch $@

.venv/.release: .venv/.ready
	$(PIP) --group release
	touch $@

.venv/.fuzz: .venv/.ready
	$(PIP) --group fuzz
	touch $@

.venv/.browser: .venv/.ready
	$(PIP) --group browser
	touch $@

$(BROWSER): tests/browser/package.json tests/browser/package-lock.json
	@command -v npm > /dev/null || { echo "Node is missing: the pages were not tried in a browser"; exit 1; }
	cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node unpack.mjs .browser

vitest-parity/node_modules/.ready: vitest-parity/package.json vitest-parity/package-lock.json
	@command -v npm > /dev/null || { echo "Node is missing: the black-box suite in vitest-parity/ was left out"; exit 1; }
	cd vitest-parity && npm ci --no-audit --no-fund --loglevel=error
	touch $@

clean:
	rm -rf .venv vitest-parity/node_modules tests/browser/node_modules tests/browser/.browser build dist *.egg-info
