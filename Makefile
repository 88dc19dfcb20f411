# One door to everything. Bare `make` is what you run before every commit.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
# Tests wait for processes as often as they compute, so one more of them than cores.
TESTERS ?= 3
# Tests start hundreds of nodes: whatever this shell says of bytecode, each module is compiled once, and not for each.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode
# A worker that has nothing left takes over some of what another has still to do.
PYTEST := $(BIN)/pytest -q -n $(TESTERS) --dist worksteal
# What the compiled functions could change: run a second time without them.
USES_NATIVE := tests/records tests/wire/test_produce_codec.py tests/broker tests/seams tests/clients \
	$(addprefix tests/log/test_,append_and_read.py cleaner.py following.py producers.py recovery.py transactions_model.py) \
	$(addprefix tests/behaviour/test_,acks.py batches.py idempotence.py markers.py retention.py transactional_produce.py visibility.py)

# Which seeds `make sim` runs, in which mode (safety or liveness).
SEEDS ?= 0-199
MODE ?= safety

.PHONY: check setup format lint types layers fast test spark long sim oracle chaos demo fuzz run messages docs references \
	pictures clean audit bench bench-cluster bench-groups bench-compaction bench-embedding bench-startup bench-gateway \
	bench-hostile bench-spark

check: format lint types layers fast

# Set-up is redone when what it installs has changed, and costs nothing otherwise.
setup: $(READY)

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/ottla/*/_native.c src/ottla/*/*/_native.c src/ottla/*/*.h)
	@echo "setting up $(VENV): Spark, Java and what the tests need are fetched, which takes minutes the first time ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore -c constraints.txt pip setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore -c constraints.txt --no-build-isolation --group dev --editable '.[web,spark,oauth]'
	@touch $@

format: $(READY)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .

lint: $(READY)
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .

types: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports --no-cache

fast: $(READY)
	@$(PYTEST) -m "not slow and not long and not oracle and not spark"

# Whoever fails beside others is asked once more alone, and is to be mended even if that goes well: the first answer is
# in the output. Only tests that failed have this second chance, not a run that broke.
AGAIN = || { [ $$? -eq 1 ] && echo "once more, alone:" && $(BIN)/pytest -q --last-failed --last-failed-no-failures none

test: $(READY) lint types layers
	@$(PYTEST) -m "not oracle and not long and not spark" $(AGAIN) -m "not oracle and not long and not spark"; }
	@$(BIN)/pytest -q -m "spark and not oracle and not long" $(AGAIN) -m "spark and not oracle and not long"; }
	@OTTLA_PURE=1 $(PYTEST) -m "not oracle and not slow and not long" $(USES_NATIVE)
	@$(BIN)/ottla sim --seeds 0-104 --mode safety --jobs $(WORKERS)
	@$(BIN)/ottla sim --seeds 0-59 --mode liveness --jobs $(WORKERS)

# Real Spark against real nodes; one session for all of it, which uses all cores by itself.
spark: $(READY)
	@$(BIN)/pytest -q -m "spark and not oracle and not long"

# Minutes of what `make test` and `make oracle` do in seconds: many more seeds and histories, and every historic bug put
# back and caught. Needs Java and Maven.
long: $(READY)
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m long

# Seeds of the simulator, in parallel. What has passed with this build is not run again.
sim: $(READY)
	@$(BIN)/ottla sim --seeds $(SEEDS) --mode $(MODE) --jobs $(WORKERS) --resume .cache/sim

# Apache Kafka itself as the judge: its tools drive our node and read our files. Needs Java and Maven.
oracle: $(READY)
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m "oracle and not long" $(AGAIN) -m "oracle and not long"; }

# Three real nodes under clients, killed and stopped: `make chaos CHAOS="--kills 50 --pauses 50 --java"`.
chaos: $(READY)
	@$(BIN)/python -m tests.cluster.chaos $(CHAOS)

# What is known of holes in the packages that are pinned. Needs the internet.
audit: $(READY)
	@$(BIN)/python -m tools.audit $(AUDIT)

bench: $(READY)
	@$(BIN)/python -m benchmarks

bench-cluster: $(READY)
	@$(BIN)/python -m benchmarks.cluster

bench-groups: $(READY)
	@$(BIN)/python -m benchmarks.groups

# What a producer feels while its node compacts 1 GiB.
bench-compaction: $(READY)
	@$(BIN)/python -m benchmarks.compaction --check

# What a node costs a test that wants one of its own.
bench-embedding: $(READY)
	@$(BIN)/python -m benchmarks.embedding --check

# What all extras cost the start of `ottla up`.
bench-startup: $(READY)
	@$(BIN)/python -m benchmarks.startup --check

# What a gateway listener costs.
bench-gateway: $(READY)
	@$(BIN)/python -m benchmarks.gateway

# A million hostile requests, ten thousand connections, and what a well-behaved client feels meanwhile.
bench-hostile: $(READY)
	@$(BIN)/python -m benchmarks.hostile --check

# Topics as DataFrames beside Spark's own connector, on one PySpark. Needs Java and Maven.
bench-spark: $(READY)
	@$(BIN)/python -m benchmarks.spark

# Look for bytes that a decoder does not survive: `make fuzz FUZZ="--seconds 3600 request response"`.
fuzz: $(READY)
	@$(BIN)/python -m tools.fuzz $(FUZZ)

run: $(READY)
	@$(BIN)/ottla up

# Orders through three nodes and Spark, into a table and back into a topic, while a leader is killed.
demo: $(READY)
	@$(BIN)/python examples/demo.py $(DEMO)

# Write the protocol's messages anew from the definitions in Apache Kafka's jars. Needs Java and Maven.
messages: $(READY)
	@$(BIN)/python -c "from tests.oracle.apache_kafka import classpath; classpath()"
	@$(BIN)/python -m tools.codegen .cache/oracle/kafka-4.3.1

# The documentation as a site, in build/site; a link that leads nowhere ends it.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Write the reference pages anew from the code's tables.
references: $(READY)
	@$(BIN)/python -m tools.references

# Draw the pictures of "How it works" anew, from runs of the simulator.
pictures: $(READY)
	@$(BIN)/python -m tools.pictures

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info src/ottla/*/*.so src/ottla/*/*/*.so
