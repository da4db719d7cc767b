# What can be done here. The text behind two hashes is the help.

.DEFAULT_GOAL := help
.PHONY: help venv check test test-fast demo bench requirements crash-matrix transfers constraints
.NOTPARALLEL:

# What is installed beside txsaga: extras of pyproject.toml, separated by commas.
EXTRAS ?= dev
# Further words for the command behind a target: make test ARGS="-k batcher"
ARGS ?=

py := .venv/bin/python
stamp := .venv/.ready-$(EXTRAS)
sources := txsaga tests $(wildcard examples)

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

venv: $(stamp) ## build .venv with everything that the others need

$(stamp): pyproject.toml .ci/constraints.txt .ci/venv
	.ci/venv "$(EXTRAS)"
	@touch $@

check: venv ## format, lint, types, import contracts, dependencies, requirement lists
	$(py) -m ruff format --check .
	$(py) -m ruff check .
	$(py) -m mypy $(sources)
	.venv/bin/lint-imports --no-logo
	$(py) -m deptry .
	$(py) -m tests.requirements --lists-only

test: venv ## every test; installs the services that tests drive where it may
	.ci/packages
	$(py) -m pytest $(ARGS)

test-fast: venv ## tests without long runs, at most three minutes
	$(py) -m pytest -m "not slow" $(ARGS)

demo: venv ## a bank transfer from start to end, on a database of its own
	$(py) examples/bank_transfer.py $(ARGS)

bench: venv ## every workload beside its baselines; one of them: make bench ARGS=W1
	$(py) -m tests.bench $(ARGS)

requirements: venv ## requirement ids and the tests that carry them
	$(py) -m tests.requirements $(ARGS)

crash-matrix: venv ## kill at every fact, just before and just after
	$(py) -m pytest -m kill --full-matrix tests/chaos $(ARGS)

transfers: venv ## 500 transfers while producer, checker, engine and consumer are killed; TXSAGA_TRANSFER_SEED replays
	TXSAGA_TRANSFERS=500 $(py) -m pytest -s tests/chaos/test_transfers.py $(ARGS)

constraints: ## compile .ci/constraints.txt again (needs uv)
	uv pip compile pyproject.toml --extra all --extra dev --python-version 3.11 --universal --no-emit-index-url --no-header --no-annotate -o .ci/constraints.txt
