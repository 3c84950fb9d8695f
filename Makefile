# One command for each thing a person wants; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Two workers on two cores; one test run takes what the machine has.
WORKERS ?= $(shell nproc)
# local: three nodes on this machine. current: whatever kubectl points to.
CLUSTER ?= local
export CLUSTER
# Where Debian has mount helpers, iptables and dpkg's tools; plain `su` keeps a user's path.
export PATH := $(PATH):/usr/sbin:/sbin
# Tests start hundreds of processes; each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# $(call stage,NAME,COMMAND): runs the command and says how long it took.
define stage
@begin=$$(date +%s); printf '\n== %s\n' '$(1)'; $(2); \
 printf '== %s took %s s\n' '$(1)' "$$(( $$(date +%s) - begin ))"
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.ready ## Install what is needed: Debian packages, a virtual environment

$(VENV)/.ready: pyproject.toml constraints.txt tools/setup.py
	$(PYTHON) -m tools.setup $(VENV)
	@touch $@

.PHONY: check
check: setup ## Check form: formatting, lint, types, import rules, tidiness
	$(call stage,ruff format,$(RUN) -m ruff format --check .)
	$(call stage,ruff,$(RUN) -m ruff check .)
	$(call stage,mypy,$(RUN) -m mypy)
	$(call stage,import rules,$(VENV)/bin/lint-imports --no-cache)
	$(call stage,tidy,$(RUN) -m pytest -q tests/test_tidy.py)

.PHONY: fmt
fmt: setup ## Format the code and mend what the linter can mend
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

# What a test needs is said by its marks; see pyproject.toml.
# Form is `make check`'s business.
FAST := not apiserver and not group and not local and not storage and not powercut and not storefaults and not spark and not cluster \
  and not simulation and not interop and not fuzz
PYTEST := $(RUN) -m pytest -q

.PHONY: test-fast
test-fast: setup ## Every test that needs no cluster, no Spark, no killed members and no campaign (under a minute)
	$(call stage,fast tests,$(PYTEST) -n $(WORKERS) --dist worksteal -m "$(FAST)" --ignore=tests/test_tidy.py)

.PHONY: test
test: setup check ## Every test: form, units, node groups, API server, Spark, and end to end
	$(call stage,fast tests,$(PYTEST) -n $(WORKERS) --dist worksteal -m "$(FAST)" --ignore=tests/test_tidy.py)
	$(call stage,node group tests,$(PYTEST) -n $(WORKERS) -m group)
	$(call stage,hostile bytes,$(PYTEST) -n $(WORKERS) -m fuzz tests/fuzz)
	$(call stage,floods,$(PYTEST) -m fuzz tests/node)
	$(call stage,power cuts,$(PYTEST) -n $(WORKERS) -m powercut)
	$(call stage,store faults,$(PYTEST) -n $(WORKERS) -m storefaults)
	$(call stage,cluster programs,$(RUN) -m tools.local_cluster build || echo "NO CLUSTER PROGRAMS: what needs them is skipped")
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory spark-tests system-tests
	$(call stage,Java DLedger,$(RUN) -m tools.java_dledger || echo "NO JAVA DLEDGER: what needs it is skipped")
	$(call stage,Java DLedger tests,$(PYTEST) -n $(WORKERS) --dist loadgroup -m interop)
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory end-to-end-tests simulator-tests

# The cluster leaves much of two cores idle, and the simulator takes no more than that.
.PHONY: end-to-end-tests simulator-tests
end-to-end-tests:
	$(call stage,end-to-end tests,$(PYTEST) -m cluster)

simulator-tests:
	$(call stage,simulator tests,nice -n 19 $(PYTEST) -n $(WORKERS) -m simulation)

# These wait more than they work, and Spark's tests use little more than one core: side by side.
.PHONY: spark-tests system-tests
spark-tests:
	$(call stage,Spark tests,$(PYTEST) -m spark)

system-tests:
	$(call stage,local group tests,$(PYTEST) -m local)
	$(call stage,storage fault tests,$(PYTEST) -n $(WORKERS) -m storage)
	$(call stage,API server tests,$(PYTEST) -n $(WORKERS) --dist loadfile -m apiserver)

# $(call sim,OPTIONS): what does not differ between the simulator's commands.
sim = PYTHONPATH=tests/lib $(RUN) -m dledger_sim $(1)

.PHONY: sim
sim: setup ## Run the simulator: SEEDS=1000 FIRST_SEED=0, or SEED=7, or TAPE=file; LEDGER=1 COVERAGE=1 STATES=1 ROT=1
	$(call sim,$(if $(TAPE),--tape $(TAPE),$(if $(SEED),--seed $(SEED), \
	  --seeds $(or $(SEEDS),1000) --first-seed $(or $(FIRST_SEED),0) \
	  $(if $(LEDGER),--ledger) $(if $(COVERAGE),--coverage) $(if $(STATES),--states) $(if $(ROT),--rot))) $(if $(EVENTS),--events $(EVENTS)))

.PHONY: sim-mutants
sim-mutants: setup ## Hunt every planted bug, and write the table of docs/simulator.md
	PYTHONPATH=tests/lib $(RUN) -m dledger_sim.mutants.hunt $(if $(ONLY),--only $(ONLY))

.PHONY: sim-report
sim-report: setup ## Print what all campaigns in the simulator's ledger come to
	$(call sim,--report)

.PHONY: fuzz
fuzz: setup ## Throw more hostile bytes at the decoders: make fuzz INPUTS=10000000 SEED=7
	$(PYTEST) tests/fuzz -s --timeout 0 --fuzz-inputs $(or $(INPUTS),1000000) --fuzz-seed $(or $(SEED),1)

.PHONY: bench
bench: setup ## Measure the store by itself, and a group of three on loopback
	$(RUN) -m bench.store
	$(RUN) -m bench.append

.PHONY: bench-java
bench-java: setup ## The same load on Java DLedger and on this node, in one run (needs a JDK and Maven)
	$(RUN) -m tools.java_dledger
	$(RUN) -m bench.java

.PHONY: bench-client
bench-client: setup ## Measure what an append costs the client alone
	$(RUN) -m bench.client

.PHONY: bench-failover
bench-failover: setup ## Let leaders fail 300 times, and measure how long appends pause (needs root)
	$(RUN) -m bench.failover

.PHONY: images
images: setup ## Build the wheel and the three images
	$(RUN) -m tools.local_cluster images

.PHONY: cluster-up
cluster-up: setup ## Start a three-node Kubernetes on this machine
	$(RUN) -m tools.local_cluster up

.PHONY: cluster-down
cluster-down: setup ## Stop it and remove what it left
	$(RUN) -m tools.local_cluster down --purge

.PHONY: demo
demo: setup ## The whole story: cluster, operator, 336,776 records, a killed leader, an audit
	$(RUN) -m tools.demo

.PHONY: demo-down
demo-down: setup ## Stop the demo's cluster and remove what it left
	$(RUN) -m tools.demo down

.PHONY: lock
lock: setup ## Write the exact versions in use to constraints.txt
	{ head -1 constraints.txt; $(VENV)/bin/pip freeze --exclude-editable | sort -f; } > constraints.new
	mv constraints.new constraints.txt

.PHONY: clean
clean: ## Remove what was built here (not the cache of the cluster's programs)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
