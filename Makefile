# Everything here sets the project up first, by itself, and does that once: see .ci/setup.
#
#   make demo           an outage survived, end to end; KEEP=1 leaves everything running
#                       KILL=driver, KILL=task or KILL=syphon lets that die too
#                       YEAR=1 publishes the whole year, 413,007 messages, and brings the backlog home in Spark
#   make demo-stop      stops what `make demo KEEP=1` left running
#   make test           the tests but for the slow ones; ARGS="tests/core -k envelope" chooses among them
#   make test-all       all tests, those too that take longer than 20 seconds each
#   make explore        looks for sequences of events that lose or disorder messages, new ones each time
#   make conformance    the Azure SDK's own live tests against the embedded Service Bus: a quarter of an hour
#                       ARGS="--admin" for those of administration alone, in a minute; see tests/conformance
#   make chaos          kills, freezes and resets senders, syphons and namespaces; SECONDS=60 SEED=1
#   make check          lint, types and contracts
#   make bench          what things cost; GROUP=emulator chooses one group
#   make constraints    resolves constraints.txt anew, for every supported Python that is found
#   make clean          removes all that was made here

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-stop test test-all explore conformance bench chaos check lint types contracts constraints clean

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@.ci/setup

demo: setup
	@.ci/within python -m tests.system.demo $(if $(KEEP),--keep) $(if $(KILL),--kill $(KILL)) $(if $(YEAR),--year)

demo-stop: setup
	@.ci/within python -m tests.system.demo --stop

# Eight at a time on two cores: most tests wait for links to open, locks to end and time to pass.
# Who takes what, and in which order, is said by tests/shares.py.
at_once = --dist loadfile --no-loadscope-reorder
# Bounds in seconds may be missed beside seven others. A fault of the code fails alone, too.
alone = test $$? -eq 1 && echo "What failed beside others runs once more, alone." && \
	.ci/within pytest --last-failed --last-failed-no-failures none

test: setup
	@.ci/within pytest --numprocesses 8 $(at_once) -m "not slow" $(ARGS) || { $(alone) -m "not slow" $(ARGS); }

# The slow ones start whole Airflows and clusters, which leave no processor for the bounds of the others.
slow = slow and not exploring
test-all: test
	@.ci/within pytest --numprocesses 3 $(at_once) -m "$(slow)" $(ARGS) || { $(alone) -m "$(slow)" $(ARGS); }

explore: setup
	@.ci/within pytest -m exploring $(ARGS)

bench: setup
	@.ci/within python -m tests.benchmarks $(GROUP) $(if $(MESSAGES),--messages $(MESSAGES))

conformance: setup
	@.ci/within python -m tests.conformance $(ARGS)

chaos: setup
	@.ci/within python -m tests.system.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

check: lint types contracts

lint: setup
	@.ci/within ruff check .
	@.ci/within ruff format --check .

types: setup
	@.ci/within mypy

contracts: setup
	@.ci/within lint-imports

constraints: setup
	@.ci/within python .ci/constraints.py

clean: demo-stop
	rm -rf .venv .demo .conformance build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info provider/*.egg-info
