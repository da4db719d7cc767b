# What can be done here. The text behind two hashes is the help.

.DEFAULT_GOAL := help
.PHONY: soak jars help venv check test test-fast demo demo-stop bench requirements crash-matrix airflow-matrix mutants transfers catalog-reads constraints pictures docs
.NOTPARALLEL:

# What is installed beside txsaga: extras of pyproject.toml, separated by commas.
EXTRAS ?= dev,docs,asyncio,spark,lake,airflow,gate,catalog,console,gateway
# How many processes share the tests: each has servers of its own.
JOBS ?= 2
# The version of the npm package that draws the diagrams of the site.
mermaid := 12.3.0
# Further words for the command behind a target: make test ARGS="-k batcher"
ARGS ?=
# The page that `make bench` writes its figures into.
PAGE ?=

py := .venv/bin/python
stamp := .venv/.ready-$(EXTRAS)
sources := txsaga tests $(wildcard docs/site examples dags plugins spark_jobs)

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

venv: $(stamp) ## create .venv with everything that the other commands need

$(stamp): pyproject.toml .ci/constraints.txt .ci/venv
	.ci/venv "$(EXTRAS)"
	@touch $@

check: venv ## format, lint, types, import contracts, dependencies, requirement lists, plain words
	$(py) -m ruff format --check .
	$(py) -m ruff check .
	$(py) -m mypy $(sources)
	.venv/bin/lint-imports --no-logo
	$(py) -m deptry .
	$(py) -m tests.requirements --lists-only
	$(py) -m pytest -q tests/docs/test_words.py

test: venv ## every test; installs the services that tests drive where it may
	.ci/packages
	-.ci/jars
	-.ci/clients
	-.ci/iceberg-kit
	-.ci/rocketmq
	$(py) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-fast: venv ## tests without long runs, of those that need a server the core, at most three minutes
	$(py) -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

demo: venv ## a bank transfer on the library, then as a DAG in an Airflow that keeps running: good, failing, killed
	$(py) examples/bank_transfer.py
	$(py) examples/airflow_demo.py $(ARGS)

demo-stop: ## stop the Airflow and the database of the demo
	-$(py) -m txsaga.cli airflow down
	-$(py) -m txsaga.cli db stop

bench: venv ## every workload and its baselines; one of them: make bench ARGS=W1; into a page: PAGE=docs/reference/performance.md
	$(py) -m tests.bench $(ARGS) $(if $(PAGE),--page $(PAGE))

jars: ## what Spark needs to open the catalog, into .jars (needs Maven); export TXSAGA_SPARK_JARS=$$PWD/.jars
	.ci/jars

requirements: venv ## requirement ids and the tests that carry them
	$(py) -m tests.requirements $(ARGS)

crash-matrix: venv ## kill at every fact, just before and just after
	$(py) -m pytest -n $(JOBS) --dist worksteal -m kill --full-matrix tests/chaos tests/flows/machine tests/resources/files/test_dying.py --ignore-glob 'tests/chaos/test_airflow*' $(ARGS)

airflow-matrix: venv ## kill each part of an Airflow at each of nine events of a transfer, and at each fact of a lake
	$(py) -m pytest --full-matrix tests/chaos/test_airflow_kills.py tests/chaos/test_airflow_lake_kills.py $(ARGS)

mutants: venv ## a fault in the engine for each rule of the protocol, and the test that catches it; one rule: make mutants ARGS=R7
	JOBS=$(JOBS) $(py) -m tests.mutants $(ARGS)

transfers: venv ## 500 transfers while everybody is killed, also by RocketMQ's client; TXSAGA_TRANSFER_SEED replays
	TXSAGA_TRANSFERS=500 $(py) -m pytest -s tests/chaos/test_transfers.py tests/chaos/test_gateway_kills.py $(ARGS)

catalog-reads: venv ## 100,000 reads beside commits of three tables while everybody is killed; TXSAGA_CATALOG_READS sets them
	TXSAGA_CATALOG_READS=$${TXSAGA_CATALOG_READS:-100000} $(py) -m pytest -s tests/chaos/test_catalog_kills.py $(ARGS)

soak: venv ## two writers of the same tables for ten minutes while every process is killed; TXSAGA_SOAK sets the seconds
	TXSAGA_SOAK=$${TXSAGA_SOAK:-600} $(py) -m pytest -s tests/chaos/test_soak.py $(ARGS)

pictures: venv ## pictures of Airflow's pages and the console for docs/pictures (needs Chromium)
	TXSAGA_PICTURES=$$PWD/docs/pictures $(py) -m pytest tests/airflow_host/test_pages.py tests/console/test_browser.py $(ARGS)

docs: venv build/mermaid-$(mermaid).js ## the site of the documentation, into build/docs (needs npm and Chromium for its diagrams)
	$(py) -m sphinx --fail-on-warning --quiet -d build/doctrees -c docs/site -D mermaid=$(lastword $^) docs build/docs

build/mermaid-$(mermaid).js:
	@command -v npm >/dev/null || { echo "npm fetches what draws the diagrams: apt-get install npm" >&2; exit 1; }
	mkdir -p build/npm
	cd build/npm && npm pack --silent mermaid@$(mermaid)
	tar xzOf build/npm/mermaid-$(mermaid).tgz package/dist/mermaid.min.js >$@.part
	mv $@.part $@

constraints: ## compile .ci/constraints.txt again (needs uv)
	uv pip compile pyproject.toml --extra all --extra dev --extra docs --python-version 3.11 --universal --no-emit-index-url --no-header --no-annotate -o .ci/constraints.txt
