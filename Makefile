# The whole contributor interface. Everything runs in the project's own .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# One more than there are cores: tests of a fleet wait for leases and kills, while the others compute.
PROCESSES ?= $(shell expr `nproc 2>/dev/null || echo 2` + 1)

# Where the tests keep their files: in memory where that can be had. They kill processes, not machines, so that nothing they
# write has to reach a disk; and what power cuts leave is tested on a disk of their own (tests/io_faults/disk.py).
export PYTEST_DEBUG_TEMPROOT ?= $(shell test -w /dev/shm && echo /dev/shm)

.PHONY: setup setup-servers demo demo-fleet test test-postgres test-postgres-matrix test-long test-pythons sim fuzz mutants check format bench bench-quick bench-compare instructions fixtures faults clean chaos chaos-failover chaos-servers
.DEFAULT_GOAL := help

help: ## say what each command does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: $(STAMP) ## make the .venv that everything else uses

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $@

demo: $(STAMP) ## a fleet of orders, a kill -9 in the middle, and nothing lost
	$(BIN)/perdure demo

demo-fleet: $(STAMP) ## three workers on a PostgreSQL that it starts: one is killed, one stopped; who had which run when
	@PYTHONPATH=tests $(BIN)/python -m support.demo_fleet

test: $(STAMP) ## the suite in memory, on SQLite and in part on PostgreSQL, with a fleet; then what the fast path has a part in, without it
	PERDURE_TEST_STORES=memory,sqlite,postgres PERDURE_TEST_POSTGRES_EVERY=20 $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -q -m "not long"
	PERDURE_TEST_STORES=memory,sqlite PERDURE_FASTLANE=off $(BIN)/python -m pytest -n auto --dist worksteal -q -m "not long" tests/steps tests/races tests/children

test-postgres: $(STAMP) ## every test of behaviour on PostgreSQL too, which the tests start by themselves; and a fleet
	PERDURE_TEST_STORES=postgres $(BIN)/python -m pytest -n auto --dist worksteal -q -m "not long" -k "postgres or fleet or chaos" tests

test-postgres-matrix: $(STAMP) ## the store suite on PostgreSQL 18, 16 and 15, direct and through PgBouncer: VERSIONS="16"
	@PYTHONPATH=tests $(BIN)/python -m support.matrix $(VERSIONS)

setup-servers: $(STAMP) ## install the servers of the tests that no wheel brings (PostgreSQL 15 and PgBouncer, by apt)
	@PYTHONPATH=tests $(BIN)/python -m support.setup_servers

test-long: $(STAMP) ## the tests that take minutes (200 real kills and the like)
	$(BIN)/python -m pytest -q -m long --ignore=tests/chaos

chaos-servers: ## install what `make chaos-failover` needs from Debian (patroni, etcd, pgbouncer, faketime), or say what is missing
	@tests/chaos/failover/install.sh

chaos-failover: $(STAMP) ## leaders, standbys, connections and poolers that are lost while workers work; prints its figures
	$(BIN)/python -m pytest -q -s -m long tests/chaos/failover

test-pythons: $(STAMP) ## what depends on the Python, on each one of this machine from 3.11 on: GROUPS="auto kernel"
	@cd tests && ../$(BIN)/python -m support.pythons $(GROUPS)

chaos: $(STAMP) ## a fleet under fire for three minutes, 20 times: SEEDS=3-5 SECONDS=60 RUNS=500, or one: SEED=7
	@PYTHONPATH=tests $(BIN)/python -m chaos seeds="$(SEEDS)" seed="$(SEED)" seconds="$(SECONDS)" runs="$(RUNS)"

sim: $(STAMP) ## simulated worlds of every kind: SEEDS=1000, or one: SEED=58 PLAN="..."; STORE=sqlite, MORE=hosts,odd
	@PYTHONPATH=tests $(BIN)/python -m sim seeds="$(SEEDS)" seed="$(SEED)" plan="$(PLAN)" store="$(STORE)" more="$(MORE)"

fuzz: $(STAMP) ## random programs and hostile values, until something breaks: COUNT=10000 SEED=0
	@PYTHONPATH=tests $(BIN)/python -m fuzz programs $(or $(COUNT),10000) $(or $(SEED),0)
	@PYTHONPATH=tests $(BIN)/python -m fuzz values $(or $(COUNT),10000) $(or $(SEED),0)

mutants: $(STAMP) ## each condition of each fence in the SQL, weakened, and each planted bug of a fleet, must be caught
	@PYTHONPATH=tests $(BIN)/python -m mutations.sql $(STORE) $(STATEMENTS)
	$(if $(STORE)$(STATEMENTS),,PERDURE_ALL_MUTATIONS=1 $(BIN)/python -m pytest -q -n auto tests/mutations/test_mutations.py -k suite_catches)

check: $(STAMP) ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright --warnings

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## perdure beside its limits and other systems; writes bench/RESULTS.md (takes half an hour)
	$(BIN)/python -m bench --save

bench-quick: $(STAMP) ## perdure and the limits only, in under a minute
	$(BIN)/python -m bench --quick

bench-compare: $(STAMP) ## this checkout beside another one, by turns: WITH=../other, WORKLOADS="seq many", ROUNDS=5, STORES=postgresql
	$(BIN)/python -m bench.compare $(WITH) $(WORKLOADS) --rounds $(or $(ROUNDS),5) $(if $(STORES),--stores $(STORES))

instructions: $(STAMP) ## count the bytecodes of two kernels, and make that the budget of the tests
	$(BIN)/python -m bench.instructions --renew

fixtures: $(STAMP) ## journals of this version, to be replayed by every later one
	$(BIN)/python tests/fixtures/journals/record.py

faults: $(STAMP) ## the page of faults, from the docstrings of the tests
	cd tests && ../$(BIN)/python -m support.faults

clean: ## remove what the other commands made
	rm -rf .venv .venvs .mypy_cache .ruff_cache .pytest_cache
