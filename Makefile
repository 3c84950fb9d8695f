# The project's commands; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# One test worker per core.
WORKERS ?= $(shell nproc)
# Fast tests wait for timers and processes: with three workers on two cores they take a fifth less time.
FAST_WORKERS ?= $(shell echo $$(( $(WORKERS) * 3 / 2 )))
# local: a three-node cluster on this machine. current: the cluster of kubectl's current context.
CLUSTER ?= local
export CLUSTER
# Debian keeps mount helpers, iptables and dpkg's tools in sbin; plain `su` keeps the user's PATH.
export PATH := $(PATH):/usr/sbin:/sbin
# Tests start hundreds of processes; without bytecode files, each would compile all its imports.
unexport PYTHONDONTWRITEBYTECODE

# $(call stage,NAME,COMMAND): run the command and print how long it took.
define stage
@begin=$$(date +%s); printf '\n== %s\n' '$(1)'; $(2); \
 printf '== %s took %s s\n' '$(1)' "$$(( $$(date +%s) - begin ))"
endef

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.ready ## Install Debian packages and create the virtual environment

$(VENV)/.ready: pyproject.toml constraints.txt tools/setup.py
	$(PYTHON) -m tools.setup $(VENV)
	@touch $@

.PHONY: check
check: setup ## Check formatting, lint, types, import rules and tidiness
	$(call stage,ruff format,$(RUN) -m ruff format --check .)
	$(call stage,ruff,$(RUN) -m ruff check .)
	$(call stage,mypy,$(RUN) -m mypy)
	$(call stage,import rules,$(VENV)/bin/lint-imports --no-cache)
	$(call stage,tidy,$(RUN) -m pytest -q tests/test_tidy.py)

.PHONY: fmt
fmt: setup ## Format the code and apply the linter's fixes
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

# Markers say what a test needs (see pyproject.toml). `make check` runs tests/test_tidy.py.
FAST := not apiserver and not group and not local and not storage and not powercut and not storefaults and not spark and not cluster \
  and not simulation and not interop and not fuzz
# Each stage names where its tests are: a collection of all tests takes 15 s. tests/test_stages.py finds what is left out.
GROUP_TESTS := tests/audit/test_real_members.py tests/bench tests/broker tests/client tests/kube/test_authorized_requests.py \
  tests/kube/test_canary.py tests/kube/test_member_remoting.py tests/node
# Tests that are marked `sampled` run in part. The commit chooses the part, or the day where there is none; `all` leaves nothing out.
SAMPLE ?= $(shell git -c safe.directory='*' rev-parse --short=8 HEAD 2>/dev/null || date --utc +%F)
PYTEST := $(RUN) -m pytest -q --sample=$(SAMPLE) --durations=10 --durations-min=5
# The long stages run two fifths of their files, and the end-to-end tests seven tenths, so that `make test` ends within half an hour on two cores.
PART := $(PYTEST) --share=0.4

.PHONY: test-fast
test-fast: setup ## Run the tests that need no cluster, Spark, killed members or campaign (about ten minutes on two cores)
	$(call stage,fast tests,$(PYTEST) -n $(FAST_WORKERS) --dist worksteal -m "$(FAST)" --ignore=tests/test_tidy.py)

.PHONY: test
test: setup programs check ## Run all checks, and a sample of the tests (half an hour); SAMPLE=642dab44 repeats that commit's sample
	@printf '\n== sample %s\n' '$(SAMPLE)'
	$(call stage,fast tests,$(PYTEST) -n $(FAST_WORKERS) --dist worksteal -m "$(FAST)" --ignore=tests/test_tidy.py)
	$(call stage,node group tests,$(PART) -n $(WORKERS) -m group tests/audit tests/bench tests/broker tests/client tests/kube tests/node)
	$(call stage,hostile bytes,$(PYTEST) -n $(WORKERS) -m fuzz tests/fuzz)
	$(call stage,floods,$(PART) -m fuzz tests/broker tests/node)
	$(call stage,power cuts,$(PYTEST) -n $(WORKERS) -m powercut tests/store)
	$(call stage,store faults,$(PYTEST) -n $(WORKERS) -m storefaults tests/store)
	$(MAKE) --jobs=2 --output-sync=line --no-print-directory SAMPLE=$(SAMPLE) spark-tests system-tests
	$(call stage,Java DLedger tests,$(PART) -n $(WORKERS) --dist loadgroup -m interop tests/interop)
	$(MAKE) --jobs=2 --output-sync=line --no-print-directory SAMPLE=$(SAMPLE) end-to-end-tests simulator-tests

.PHONY: test-all
test-all: ## Run all checks and tests, with nothing left out: before a release
	$(MAKE) test SAMPLE=all

# $(call built,COMMAND,NAME): build a program. A machine that cannot skips the tests that need it, unless MUST_RUN is set, as in CI.
built = $(1) || { echo "NO $(2): the tests that need this are skipped, but not with MUST_RUN"; [ -z "$${MUST_RUN:-}" ]; }

.PHONY: programs
programs: setup ## Build the programs that tests need: of the cluster, of Java DLedger and of RocketMQ
	$(call stage,cluster programs,$(call built,$(RUN) -m tools.local_cluster build,CLUSTER PROGRAMS))
	$(call stage,Java DLedger,$(call built,$(RUN) -m tools.java_dledger,JAVA DLEDGER))
	$(call stage,RocketMQ,$(call built,$(RUN) -m tools.java_rocketmq,ROCKETMQ))

# Run at the same time: the system tests mostly wait, and the Spark tests use little over one core.
.PHONY: spark-tests system-tests
spark-tests:
	$(call stage,Spark tests,$(PART) -m spark tests/audit tests/kube)

system-tests:
	$(call stage,local group tests,$(PART) -m local tests/client)
	$(call stage,storage fault tests,$(PART) -n $(WORKERS) -m storage tests/node)
	$(call stage,API server tests,$(PART) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "apiserver and not spark" tests/kube)

# The cluster leaves two cores partly idle; the simulator runs on the rest at the lowest priority. More at the same time would only make
# tests late that have a time to keep.
# The first end-to-end test waits for the images, which take up to six minutes.
.PHONY: end-to-end-tests simulator-tests
end-to-end-tests:
	$(call stage,end-to-end tests,$(PYTEST) --share=0.7 --timeout=1200 -m cluster tests/e2e)

simulator-tests:
	$(call stage,simulator tests,nice -n 19 $(PYTEST) -n $(WORKERS) -m simulation tests/sim)

# $(call sim,OPTIONS): run the simulator with these options.
sim = PYTHONPATH=tests/lib $(RUN) -m dledger_sim $(1)

.PHONY: sim
sim: setup ## Run the simulator: SEEDS=1000 FIRST_SEED=0, or SEED=7, or TAPE=file; LEDGER=1 COVERAGE=1 STATES=1 ROT=1 FAMILY=load
	$(call sim,$(if $(TAPE),--tape $(TAPE),$(if $(SEED),--seed $(SEED), \
	  --seeds $(or $(SEEDS),1000) --first-seed $(or $(FIRST_SEED),0) \
	  $(if $(LEDGER),--ledger) $(if $(COVERAGE),--coverage) $(if $(STATES),--states) $(if $(ROT),--rot))) $(if $(FAMILY),--family $(FAMILY)) $(if $(EVENTS),--events $(EVENTS)))

.PHONY: sim-mutants
sim-mutants: setup ## Hunt every planted bug and write the table in docs/simulator.md
	PYTHONPATH=tests/lib $(RUN) -m dledger_sim.mutants.hunt $(if $(ONLY),--only $(ONLY))

.PHONY: sim-report
sim-report: setup ## Summarize all campaigns in the simulator's ledger
	$(call sim,--report)

.PHONY: fuzz
fuzz: setup ## Fuzz the decoders for longer: make fuzz INPUTS=10000000 SEED=7
	$(PYTEST) tests/fuzz -s --timeout 0 --fuzz-inputs $(or $(INPUTS),1000000) --fuzz-seed $(or $(SEED),1)

.PHONY: bench
bench: setup ## Measure the store alone and a group of three on loopback
	$(RUN) -m bench.store
	$(RUN) -m bench.append

.PHONY: bench-java
bench-java: setup ## Measure Java DLedger and this node under the same load (needs a JDK and Maven)
	$(RUN) -m tools.java_dledger
	$(RUN) -m bench.java

.PHONY: bench-peers
bench-peers: setup ## Measure this project, Kafka, NATS and etcd in one run (15 minutes; needs a JDK and Maven)
	$(RUN) -m tools.peer_programs || echo "NOT ALL PEERS ARE BUILT: those missing are skipped"
	$(RUN) -m bench.peers

.PHONY: bench-client
bench-client: setup ## Measure the client's own cost per append
	$(RUN) -m bench.client

.PHONY: bench-idle
bench-idle: setup ## Measure what members cost while nothing happens, in each state that may last
	$(RUN) -m bench.idle

.PHONY: bench-failover
bench-failover: setup ## Fail the leader 300 times and measure how long appends pause (needs root)
	$(RUN) -m bench.failover

.PHONY: bench-rocketmq-failover
bench-rocketmq-failover: setup ## Kill the master of a group of brokers 100 times under stock clients (needs a JDK and Maven)
	$(RUN) -m tools.java_rocketmq
	$(RUN) -m bench.rocketmq_failover --kills 100

.PHONY: bench-rocketmq-failover-java
bench-rocketmq-failover-java: setup ## Kill masters of RocketMQ's own brokers and of this project's under stock clients (needs a JDK and Maven)
	$(RUN) -m tools.java_rocketmq
	$(RUN) -m bench.rocketmq_failover_java

.PHONY: bench-rocketmq-java
bench-rocketmq-java: setup ## Measure RocketMQ's own brokers and this project's under the same load (needs a JDK and Maven)
	$(RUN) -m tools.java_rocketmq
	$(RUN) -m bench.rocketmq_java

.PHONY: bench-operator
bench-operator: setup ## Measure an operator with 100 groups on a real API server (needs the cluster's programs)
	PYTHONPATH=tests/lib $(RUN) -m dledger_kube.many_groups

.PHONY: soak
soak: setup ## Everything at once on a real group: make soak MINUTES=25 SEED=1; ends nonzero on a violation
	$(RUN) -m bench.soak --minutes $(or $(MINUTES),25) --seed $(or $(SEED),1)

.PHONY: images
images: setup ## Build the wheel and the three images
	$(RUN) -m tools.local_cluster images

.PHONY: cluster-up
cluster-up: setup ## Start a three-node Kubernetes cluster on this machine
	$(RUN) -m tools.local_cluster up

.PHONY: cluster-down
cluster-down: setup ## Stop the local cluster and remove everything that it created
	$(RUN) -m tools.local_cluster down --purge

.PHONY: demo
demo: setup ## Run the demo: cluster, operator, 336,776 records, a killed leader, an audit
	$(RUN) -m tools.demo

.PHONY: demo-down
demo-down: setup ## Stop the demo's cluster and remove everything that it created
	$(RUN) -m tools.demo down

.PHONY: lock
lock: setup ## Write the installed versions to constraints.txt
	{ head -1 constraints.txt; $(VENV)/bin/pip freeze --exclude-editable | sort -f; } > constraints.new
	mv constraints.new constraints.txt

.PHONY: clean
clean: ## Remove build output (not the cached cluster programs)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
