# Every target sets the project up first, once: see .ci/setup.
#
#   make demo           survive an outage, end to end; KEEP=1 leaves everything running,
#                       KILL=driver, KILL=task or KILL=syphon kills that as well,
#                       YEAR=1 publishes a whole year (413,007 messages) and drains the backlog with Spark
#   make demo-stop      stop what `make demo KEEP=1` left running
#   make test           run the quick tests; ARGS="tests/core/send -k divert" selects some
#   make test-all       run all tests, including those of more than 20 seconds each, and properties with all examples
#   make test-public-sdk  run the quick tests of the core through the public interface of azure-servicebus only
#   make compatibility  import, parse and survive an outage on each minor version of Airflow and each Python, run Airflow's
#                       quick tests once on each of them, and the data source's on each one of Spark, in environments of
#                       their own; ONLY=3.1-py3.12 or ONLY=spark selects some, ARGS=--walk is without Airflow's tests,
#                       ARGS=--all runs them in all nine
#   make conformance    run the Azure SDK's own live tests and clients of other makes against the embedded Service Bus
#                       (20 minutes); ARGS="--admin" runs those of the administration client only (1 minute),
#                       ARGS="--clients" the clients of other makes (5 minutes)
#   make simulate       years of outages, faults and kills in simulated time; HOURS=24 or YEARS=1, SEED=1,
#                       ORDERING=session, or SPOOL=1: both namespaces are down at times
#   make chaos          kill, freeze and reset senders, syphons and namespaces; SECONDS=60 SEED=1 ORDERING=session,
#                       or SPOOL=1: both namespaces are down at times
#   make mutants        mutate modules and report which mutants their tests miss; PATHS=provider/.../delivery.py COUNT=50
#   make check          lint, check types and import contracts
#   make bench          run the benchmarks; GROUP=emulator selects one group, GROUP=peers compares with RabbitMQ's Shovel
#   make constraints    resolve constraints.txt anew for every supported Python that is installed
#   make clean          remove everything that these targets created

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-stop test test-all test-public-sdk compatibility conformance bench chaos simulate mutants check lint types contracts constraints clean

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@.ci/setup

demo: setup
	@.ci/within python -m tests.system.demo $(if $(KEEP),--keep) $(if $(KILL),--kill $(KILL)) $(if $(YEAR),--year)

demo-stop: setup
	@.ci/within python -m tests.system.demo --stop

# Each worker would rewrite all asserts itself, which takes it six seconds on a clean clone; what fails is run once more,
# with its values shown.
plain = --assert=plain --showlocals
# Eight workers on two cores: most tests wait for links, locks and time-outs. tests/shares.py decides who runs what.
quick = $(plain) --numprocesses 8 --dist loadfile --no-loadscope-reorder
# Slow tests start whole Airflows and clusters, which leave no processor for tests with time limits.
slow = $(plain) --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: setup
	@.ci/within python -m tests.retry $(quick) -- -m "not slow" $(ARGS)

test-all: export BROWSER = 1
test-all: export THOROUGH = 1
test-all: test
	@.ci/within python -m tests.retry $(slow) -- -m "slow and not exploring" $(ARGS)

test-public-sdk: export SERVICEBUS_PAIR_SDK_PATH = public
test-public-sdk: setup
	@.ci/within python -m tests.retry $(quick) -- -m "not slow" tests/core $(ARGS)

bench: setup
	@.ci/within python -m tests.benchmarks $(GROUP) $(if $(MESSAGES),--messages $(MESSAGES))

compatibility: setup
	@.ci/within python -m tests.compatibility $(if $(ONLY),--only $(ONLY)) $(ARGS)

conformance: setup
	@.ci/within python -m tests.conformance $(ARGS)

chaos: setup
	@.ci/within python -m tests.system.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) \
		$(if $(ORDERING),--ordering $(ORDERING)) $(if $(SPOOL),--spool)

simulate: setup
	@.ci/within python -m tests.simulation $(if $(YEARS),--years $(YEARS),--hours $(or $(HOURS),24)) \
		$(if $(SEED),--seed $(SEED)) $(if $(ORDERING),--ordering $(ORDERING)) $(if $(SPOOL),--spool) $(ARGS)

mutants: setup
	@.ci/within python -m tests.mutants $(PATHS) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

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
	rm -rf .venv .demo .compat .conformance build dist provider/*/build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info provider/*.egg-info
