# `make` alone prints what there is to do. PYTHON=python3.12 chooses another Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo/1
ENGINE := build/onnxruntime/ort-wasm-simd-threaded.wasm
PYTEST := $(BIN)/pytest -n logical --maxprocesses 4 --dist loadfile
# left out: tests marked nightly, and folders that test no code of the product
GATE := -m "not nightly" --ignore=tests/docs --ignore=tests/deploy --ignore=tests/unit/benchmarks --ignore=tests/unit/lab
COVERAGE := --cov --cov-report=term-missing:skip-covered
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

.DEFAULT_GOAL := help
.PHONY: help demo serve loop test nightly test-all explore check bench chart docs openapi image-test kube-test sbom dist wheel-test clean
.DELETE_ON_ERROR:
# a bundle is published whole or not at all, so an interruption right after it spoils nothing
.PRECIOUS: $(DEMO)/manifest.json

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.training $(DEMO)/manifest.json ## fit on synthetic data (once), serve, rerank one held-out query, stop
	@$(BIN)/python tools/demo.py $(DEMO)

serve: $(VENV)/.service ## keep the service running, with its page: the demo fitted here if there is one, or $LISTWRIGHT_BUNDLE
	@bundle=$${LISTWRIGHT_BUNDLE:-models/demo/1}; \
	if [ -z "$${LISTWRIGHT_BUNDLE:-}" ] && [ -f $(DEMO)/manifest.json ]; then bundle=$(DEMO); fi; \
	scheme=http; if [ -n "$${LISTWRIGHT_TLS_CERT:-}" ]; then scheme=https; fi; \
	echo "serving $$bundle; Ctrl-C stops it"; \
	export LISTWRIGHT_UI=$${LISTWRIGHT_UI:-true} LISTWRIGHT_EXPLAIN=$${LISTWRIGHT_EXPLAIN:-true}; \
	if [ "$$LISTWRIGHT_UI" = true ]; then echo "its page: $$scheme://127.0.0.1:$${LISTWRIGHT_PORT:-8000}/ui/"; fi; \
	LISTWRIGHT_BUNDLE=$$bundle exec $(BIN)/listwright serve

loop: $(VENV)/.loop ## made-up traffic to the real service: log, join, fit, estimate, shadow, interleave, compare, promote; three minutes
	@$(BIN)/python tools/loop

# Where this is set, as in many containers, each process that a test starts would compile every library anew.
test test-all explore: export PYTHONDONTWRITEBYTECODE =

test: check ## the gate: lint, types, walls, and the tests that take little time
	@$(PYTEST) $(GATE) $(PYTEST_ARGS)

nightly: ## all that there is; what fails does not keep the rest from running
	@$(MAKE) --keep-going test-all docs wheel-test image-test kube-test sbom explore

test-all: export CHECK_ANNOTATIONS = 1
test-all: check $(VENV)/.foreign build/axe/axe.min.js build/clients/.fetched $(ENGINE) ## every test: annotations checked, branches of ranking and service counted
	@$(PYTEST) --hypothesis-profile=nightly --timeout=900 -rs $(COVERAGE) $(PYTEST_ARGS)

explore: $(VENV)/.dev ## property tests with examples that no run had before; SEED=N runs those of seed N
	@echo "seed $(SEED): make explore SEED=$(SEED) runs the same examples"
	@$(PYTEST) --timeout=900 -m hypothesis --hypothesis-profile=explore --hypothesis-seed=$(SEED) $(PYTEST_ARGS)

check: $(VENV)/.dev ## lint, types and walls only
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/hadolint Dockerfile deploy/bundle.Dockerfile
	@echo "ruff, mypy, import-linter and hadolint agree"

bench: $(VENV)/.dev ## measure the service, alone and beside others, for benchmarks/results/
	@$(BIN)/python -m benchmarks.load.service
	@$(BIN)/python -m benchmarks.speed.floor
	@$(BIN)/python -m benchmarks.rivals

docs: $(VENV)/.dev $(ENGINE) ## build the site of docs/ into build/site; a dead link, or a page that nothing leads to, is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "$(CURDIR)/build/site/index.html"

# Without npm the tests that need it are skipped, and say so.
build/axe/axe.min.js: | $(VENV)/.dev
	@if command -v npm >/dev/null; then $(BIN)/python tools/page_libraries.py --axe >/dev/null; fi

# Without npm the site is built without the page that ranks in the browser.
$(ENGINE): tools/page_libraries.py | $(VENV)/.dev
	@if command -v npm >/dev/null; then $(BIN)/python tools/page_libraries.py --onnxruntime >/dev/null; fi

build/clients/.fetched: tools/client_tools.py client/typescript/package.json | $(VENV)/.dev
	@$(BIN)/python tools/client_tools.py && touch $@

openapi: $(VENV)/.dev ## write openapi.yaml from the app, and the types of the TypeScript client from it
	@$(BIN)/python tools/openapi.py >openapi.yaml.new && mv openapi.yaml.new openapi.yaml
	@$(BIN)/python tools/typescript_types.py

chart: $(VENV)/.dev ## write the Kubernetes chart's rendering, and the schema of its settings from the service
	@$(BIN)/python tools/chart.py

image-test: ## build the image, run it hardened, rerank with it
	@tools/image-smoke.sh

kube-test: $(VENV)/.dev ## two pods of the chart behind haproxy: a rolling restart and killed pods, under load
	@PYTHON=$(BIN)/python tools/kube-smoke.sh

sbom: $(VENV)/.dev ## write build/sbom.cdx.json: what the image holds
	@PYTHON=$(BIN)/python tools/sbom.sh

dist: $(VENV)/.dev ## build source and wheel of listwright, its client and its laboratory, in dist/
	@rm -rf dist
	@$(BIN)/uv build --quiet --out-dir dist . && $(BIN)/uv build --quiet --out-dir dist client && $(BIN)/uv build --quiet --out-dir dist lab && ls dist

wheel-test: dist ## install the wheels into an empty environment, fit there, serve, rerank
	@tools/wheel-smoke.sh

clean: ## remove what was fitted and built here; .venv stays
	@rm -rf build dist

$(DEMO)/manifest.json: | $(VENV)/.training
	@resume=; if [ -d build/demo/.1.partial ]; then resume=--resume; fi; \
	$(BIN)/listwright fit demo --out $(DEMO) $$resume

# One stamp per set of dependencies, each built on the one before, so that `make -j` never installs twice at a time.
$(VENV)/.service: $(VENV)/.installer pyproject.toml setup.py constraints.txt $(wildcard ranking/compiled/*.pyx ranking/compiled/*.h service/wire/*.pyx)
	@$(call install,.,the service)

$(VENV)/.training: $(VENV)/.service
	@$(call install,.[training],the trainer)

$(VENV)/.client: $(VENV)/.training client/pyproject.toml
	@$(call install,./client[fast],the client)

$(VENV)/.loop: $(VENV)/.client
	@$(call install,.[training$(comma)loop],the log of what was served)

$(VENV)/.lab: $(VENV)/.loop lab/pyproject.toml
	@$(call install,./lab,suites and rivals of the papers)

$(VENV)/.dev: $(VENV)/.lab
	@$(call install,.[training$(comma)dev$(comma)docs$(comma)ray],what the tests and the site need)

# --no-deps: a GPU library and two for plots, which nothing here calls, would be half a gigabyte
$(VENV)/.foreign: $(VENV)/.dev
	@echo "installing XGBoost and CatBoost, whose rankers the tests bring along, into $(VENV)"; \
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$${PIP_FIND_LINKS:-}}" $(BIN)/uv pip install --quiet --no-deps \
		--python $(BIN)/python -c constraints.txt catboost onnxmltools xgboost && touch $@

comma := ,
# uv reads UV_FIND_LINKS where pip reads PIP_FIND_LINKS: a folder with a CPU build of torch counts for both.
install = echo "installing $(2) into $(VENV): downloads, a few minutes the first time"; \
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$${PIP_FIND_LINKS:-}}" \
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '$(1)' && touch $@

# An existing environment is kept: it may hold a torch build of the user's own choice.
$(VENV)/.installer:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d, but Listwright needs 3.11 or newer: install one and name it, e.g. make PYTHON=python3.12" % sys.version_info[:2])'
	@[ -x $(BIN)/pip ] || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@touch $@
