# Two commands on a fresh machine: `make run` starts the broker, `make test` installs what the tests need and passes them.
# They need Python 3.11+, make and the package index, and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock

.DEFAULT_GOAL := help
.PHONY: help install run cluster test unit check conformance conformance-bounded fuzz bench bench-front bench-long bench-quick compiled clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "$(PYTHON) is older than Python 3.11: make $(MAKECMDGOALS) PYTHON=python3.12, or the image: docs/start.md" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -f $@; exit 1; }

$(VENV)/.installed: pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(LOCK) -e . \
	|| { echo "not installed. Packages are ready for CPython 3.11 to 3.14 on Linux with glibc and on macOS;" \
	"elsewhere use the image: docs/start.md, Platforms" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-tests: pyproject.toml $(LOCK) | $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(LOCK) -e '.[dev,clients,spark,tiered,schemas,delta,iceberg]'
	@touch $@

install: compiled ## the environment alone

compiled: | $(VENV)/.installed ## the hot path as C extensions, where a C compiler is there; nothing to do where they are current
	@$(BIN)/python -m building

run: $(VENV)/.installed ## start a broker on 127.0.0.1:9092, or PORT=n, data in ./data; the first time in plain Python
	@$(BIN)/python -m building --begin
	@$(BIN)/moldau serve $(if $(PORT),--port $(PORT))

cluster: install ## start three nodes on 127.0.0.1:9092 to 9094, data in ./data-cluster
	$(BIN)/moldau cluster --nodes 3

test: $(VENV)/.installed-tests compiled ## every test that needs nothing from outside, in two processes
	$(BIN)/python -m pytest -n 2

unit: $(VENV)/.installed-tests compiled
	$(BIN)/python -m pytest tests/unit tests/transcripts

check: $(VENV)/.installed-tests compiled ## format, lint, types, import contracts, tidiness, unit tests without real processes and slow walks; about a minute and a half on two cores
	@$(MAKE) --no-print-directory -j2 --output-sync=target quick-unit quick-unit-rest static

.PHONY: static quick-unit quick-unit-rest

static:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick-unit:
	$(BIN)/python -m pytest --disable-warnings -m "not processes and not slow" tests/unit/broker tests/unit/protocol tests/transcripts

quick-unit-rest:
	$(BIN)/python -m pytest --disable-warnings -m "not processes and not slow" tests/unit --ignore tests/unit/broker --ignore tests/unit/protocol

conformance: $(VENV)/.installed-tests compiled ## real clients, Kafka's tools, Streams and Connect, on one node and on three; needs Java, Maven, Node, Go
	$(BIN)/python -m tests.conformance --broker both
	$(BIN)/python -m tests.conformance --broker both --nodes 3
	$(BIN)/python -m tests.conformance.acl_decisions
	$(BIN)/python -m tests.conformance.quota_throttling
	$(BIN)/python -m tests.conformance.fault_effects
	$(BIN)/python -m tests.conformance.alert_rules

conformance-bounded: $(VENV)/.installed-tests compiled ## the part of it that needs only what pip gives
	$(BIN)/python -m tests.conformance --broker moldau --bounded

fuzz: $(VENV)/.installed-tests compiled ## a million hostile inputs at a broker, an honest client measured beside them
	$(BIN)/python -m tests.fuzz --inputs 1000000
	$(BIN)/python -m tests.fuzz.logins --inputs 1000000

.PHONY: limits limits-bounded leftovers

leftovers: $(VENV)/.installed-tests compiled ## 200 test runs with clusters, ended by SIGKILL, Ctrl-C and crashes: what they leave behind; about ten minutes
	$(BIN)/python -m tests.leftovers --runs 200

limits: $(VENV)/.installed-tests compiled ## each limit over its edge on a real process, an honest client beside, long lists and storms; about ten minutes
	$(BIN)/python -m tests.limits

limits-bounded: $(VENV)/.installed-tests compiled ## the same without what takes minutes: half a minute
	$(BIN)/python -m tests.limits --quick

bench: $(VENV)/.installed-tests compiled ## every row beside Apache Kafka in one run, and docs/performance.md from it; ONLY=group measures a part
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

bench-front: $(VENV)/.installed-tests compiled ## the groups of the chart's rows alone
	$(BIN)/python -m bench --front

bench-long: $(VENV)/.installed-tests compiled ## the groups that take dozens of minutes each
	$(BIN)/python -m bench --long

bench-quick: $(VENV)/.installed-tests compiled ## a shorter form of the same, under 5 minutes
	$(BIN)/python -m bench --quick

.PHONY: examples

EXAMPLE := MOLDAU=$(CURDIR)/$(BIN)/moldau

examples: install ## a broker for tests in Java, Go and JavaScript; a language that is not installed is left out
	@if command -v mvn; then cd examples/java && $(EXAMPLE) mvn -q -B test; else echo "no Maven: examples/java is left out"; fi
	@if command -v go; then cd examples/go && $(EXAMPLE) go test ./...; else echo "no Go: examples/go is left out"; fi
	@if command -v npm; then cd examples/javascript && npm install --silent --no-audit --no-fund --no-package-lock && $(EXAMPLE) npm test; \
	else echo "no Node: examples/javascript is left out"; fi

.PHONY: lake

lake: $(VENV)/.installed-tests compiled ## a writer of Iceberg tables killed 100 times, at each step of a commit: about ten minutes
	$(BIN)/python -m tests.lake --kills 100

.PHONY: engines

engines: $(VENV)/.installed-tests ## types and traps through pinned engines, each in an environment of its own: docs/engines.md; about 20 minutes, 5 GB
	$(BIN)/python -m tests.engines.matrix

.PHONY: containers

containers: $(VENV)/.installed-tests ## the image under Testcontainers' Kafka modules for Python, Java and Go; needs Docker, and the image built
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(LOCK) testcontainers==4.15.0
	$(BIN)/python -m tests.containers

.PHONY: wheel wheel-pure

wheel: wheel-pure compiled ## dist/: a wheel with the hot path compiled, for this platform, and one in plain Python, for any
	@echo "the wheel with the compiled hot path"
	@PIP_CONSTRAINT=$(LOCK) MOLDAU_WHEEL=compiled $(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	@ls dist

wheel-pure: | $(BIN)/python ## dist/: the wheel in plain Python alone, in some seconds
	@echo "the wheel in plain Python"
	@MOLDAU_WHEEL=pure $(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .

.PHONY: first-command

first-command: $(VENV)/.installed-tests ## the first command in a fresh clone and an empty environment, and both wheels; EXTRAS=1: each extra alone
	$(BIN)/python -m tests.first_command $(if $(EXTRAS),--extras)

clean: ## forget the environment, keep the data
	rm -rf $(VENV) .compiled .mypy_cache .ruff_cache .pytest_cache

.PHONY: sim-power chaos chaos-bounded

sim-power: $(VENV)/.installed-tests compiled ## power loss on the simulated disk, 10,000 seeds: about 20 minutes on two cores
	$(BIN)/python -m tests.simulation.power_campaign --seeds 10000

chaos: $(VENV)/.installed-tests compiled ## kill -9 and SIGTERM on one node; kill -9, SIGSTOP, cuts, transactions, rolling restarts and upgrades on three; restored backups, erasures of a tiered topic: about 70 minutes
	$(BIN)/python -m tests.chaos
	$(BIN)/python -m tests.chaos --nodes 3 --rounds 65 --java
	$(BIN)/python -m tests.chaos --nodes 3 --rounds 100 --transactions --java --rate 600
	$(BIN)/python -m tests.chaos --nodes 3 --rounds 15 --upgrade-from 4.0
	$(BIN)/python -m tests.chaos.restores --rounds 100
	$(BIN)/python -m tests.chaos.restores --rounds 30 --from-directories
	$(BIN)/python -m tests.chaos.erasures --rounds 20

chaos-bounded: $(VENV)/.installed-tests compiled ## two rounds of each on one node, eight rounds on three, three restored backups, an erasure: under five minutes
	$(BIN)/python -m tests.chaos --kills 2 --terms 2 --rate 1000
	$(BIN)/python -m tests.chaos --nodes 3 --rounds 5 --rate 600
	$(BIN)/python -m tests.chaos --nodes 3 --rounds 3 --rate 200 --transactions
	$(BIN)/python -m tests.chaos.restores --nodes 1 --rounds 3
	$(BIN)/python -m tests.chaos.erasures --rounds 1

.PHONY: sim sim-long

sim: $(VENV)/.installed-tests ## whole clusters under faults, half a simulated cluster-hour, or HOURS=n; SEED=n, or kind/n, replays one
	@$(BIN)/python -m building --remove-stale
	$(BIN)/python -m tests.simulation.cluster $(if $(SEED),--seed $(SEED),--hours $(or $(HOURS),0.5) --jobs 2)

sim-long: $(VENV)/.installed-tests ## the same until stopped, from another seed each day, every fourth one harsh
	@$(BIN)/python -m building --remove-stale
	$(BIN)/python -m tests.simulation.cluster --forever --jobs 2 --harsh-every 4 --first $$(date +%Y%m%d000)

.PHONY: sim-mutants sim-untold

sim-mutants: $(VENV)/.installed-tests ## planted bugs, each hunted for at most a minute: a table of who was killed
	$(BIN)/python -m tests.mutants

sim-untold: $(VENV)/.installed-tests ## the same, each hunted by what `make sim` begins with, told nothing
	$(BIN)/python -m tests.mutants --untold
