# lockquake. `make` prints what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help

GOLANGCI_VERSION := 2.5.0
TOOLS := $(CURDIR)/.tools
LINT := $(TOOLS)/golangci-lint
GREMLINS_VERSION := 0.6.0
GREMLINS := $(TOOLS)/gremlins
COMMIT ?= $(shell git describe --always --dirty --exclude '*' 2>/dev/null)

# The program that tests start as clients and nodes: under `go test` the running program is the test's own.
export LOCKQUAKE_BIN := $(CURDIR)/build/lockquake

# PROVIDER of the demo and of the conformance suite: auto, docker or local.
PROVIDER ?= auto

.PHONY: help
help: ## print this
	@echo "lockquake: benchmarks distributed locks and breaks the world under them"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'
	@echo
	@echo "  make demo PROVIDER=local   the same without a container engine"

.PHONY: build
build: ## build build/lockquake, one static binary
	@mkdir -p build
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/lockquake/lockquake/internal/cli.commit=$(COMMIT)" -o build/lockquake ./cmd/lockquake

.PHONY: demo
demo: build ## five stories on real services and what they found, in a minute or two
	@.ci/demo $(PROVIDER)

.PHONY: images
images: build ## make the images of the nodes (base pulled, or made from Debian's packages)
	@build/lockquake images

.PHONY: compose
compose: build ## write docker-compose.yml anew, out of what the backends say of their nodes
	build/lockquake compose >docker-compose.yml.new && mv docker-compose.yml.new docker-compose.yml

.PHONY: generate
generate: compose ## write anew what lists in the code say: tables in docs/, schema of scenarios, scenarios of the default suite, docker-compose.yml
	go test ./cmd/lockquake -run 'TestTablesInDocs|TestSchemaOfScenariosHoldsWhatShips' -update
	go test ./internal/stories -run TestScenariosStay -update

.PHONY: story-pages
story-pages: ## write docs/stories.md, docs/stories/, and the picture of the README, anew from RUNS=folders of runs
	go run ./internal/storypages $(RUNS)

.PHONY: test
test: build setup ## all tests; what CI runs beside the linters
	@rm -f build/tests-*.jsonl; code=0; \
	$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync test-unit images-of-tests || code=1; \
	$(MAKE) --no-print-directory test-integration || code=1; \
	go run ./internal/testrun -summary build/tests-*.jsonl; exit $$code

.PHONY: setup
setup:
	@.ci/setup redis zookeeper postgres pgbouncer faketime browser python java node

.PHONY: test-all
test-all: export LOCKQUAKE_TEST_ALL = 1
test-all: export LOCKQUAKE_MOMENTS ?= 3
test-all: export LOCKQUAKE_MUTATED ?= 90
test-all: export LOCKQUAKE_MUTATED_RUNS ?= 1000
test-all: export LOCKQUAKE_HAND_MADE ?= 20000
test-all: ## make test with every story and twin, a million mutated frames, 1,000 broken run directories, runs ended at random moments by Ctrl-C, SIGTERM, SIGHUP and kill -9 (LOCKQUAKE_MOMENTS rounds), and make test-swarm; an hour or more
	@code=0; for t in test test-swarm; do $(MAKE) --no-print-directory $$t || code=$$?; done; exit $$code

.PHONY: test-unit
test-unit: ## tests that need neither Docker nor root
	@.ci/setup --optional python java node
	go run ./internal/testrun -o build/tests-unit.jsonl -- -vet=off ./...

# The images of the nodes, and that of the clients in another language that make test has.
.PHONY: images-of-tests
images-of-tests: build
	@build/lockquake images && build/lockquake images python

.PHONY: test-integration
test-integration: setup images-of-tests ## tests against real services, in containers and as processes
	@build/lockquake clean || echo "test: some of what earlier runs left here cannot be removed (see above); the tests of clean tell what is the engine's miscount, and fail for all else"
	@go run ./internal/testrun -o build/tests-integration.jsonl -- $(GO_INTEGRATION) -p 2 -run '^($(INTEGRATION_TESTS))$$' -skip '$(ALONE)' $(INTEGRATION) then $(GO_INTEGRATION) -p 1 -run '$(ALONE)' $(call packages,$(shell grep -lE '^func TestAlone' $(INTEGRATION_FILES)))

# vet is one of the linters.
GO_INTEGRATION = -tags integration -vet=off -count 1 -timeout 150m

packages = $(sort $(patsubst %/,%,$(dir $(1))))

# The packages with integration tests, that of the program first, for it takes longest; and the names of these tests, for the unit tests of the same
# packages have run before.
INTEGRATION_FILES = $(shell grep -rlE '^//go:build .*integration' --include='*_test.go' .)
INTEGRATION = ./cmd/lockquake $(filter-out ./cmd/lockquake,$(call packages,$(INTEGRATION_FILES)))
INTEGRATION_TESTS = $(shell grep -hoE '^func Test[A-Za-z0-9_]+' $(INTEGRATION_FILES) | cut -d ' ' -f 2 | sort -u | paste -sd '|')

# Tests that look at what dead runs left on this machine as a whole, or count what it has: they would find each other's. All others look at their own
# runs alone, and run side by side: most of the time they wait for a lease to end.
ALONE = ^TestAlone

.PHONY: suite-quick
suite-quick: build ## the quick suite of the default locks of five services (SUITE=others), within five minutes on two cores
	@if [ "$(PROVIDER)" = docker ] || { [ "$(PROVIDER)" = auto ] && .ci/engine; }; then build/lockquake images; else .ci/setup redis zookeeper postgres; fi
	build/lockquake suite $(SUITE) --quick --budget 5m --provider $(PROVIDER)

SUITE ?= redis redlock etcd zookeeper postgres

.PHONY: test-swarm
test-swarm: build ## stories, faults, a capacity point, doctor and clean on a Docker Swarm of three engines in containers of this machine; one that is up already stays (LOCKQUAKE_SWARM_ROUNDS: how often the stories and the judge's locks; some twenty minutes)
	@set -o pipefail; case "$$DOCKER_HOST" in unix:///var/lib/lockquake-swarm*) unset DOCKER_HOST ;; esac; \
		build/lockquake images && build/lockquake images python || exit; \
		was=$$(.ci/swarm status); at=$$(.ci/swarm up | tail -n 1); code=$$?; \
		if [ $$code = 0 ]; then \
			env "$$at" go test -tags "integration swarm" -count 1 -v -timeout 60m -run '^TestSwarm' ./cmd/lockquake; code=$$?; \
		fi; \
		case "$$was" in "no swarm"*) .ci/swarm down ;; esac; exit $$code

.PHONY: test-netem
test-netem: build ## the faults that shape links by the kernel's netem, in a User-Mode Linux (a minute or two; no root, no KVM)
	@.ci/netem

# MANAGERS of the swarm: 1 or 3 of its three engines.
MANAGERS ?= 1

.PHONY: swarm-up
swarm-up: build ## a Docker Swarm of three engines on this machine, in containers (MANAGERS=3: all of them managers); needs root
	@case "$$DOCKER_HOST" in unix:///var/lib/lockquake-swarm*) unset DOCKER_HOST ;; esac; build/lockquake images
	@.ci/swarm up --managers $(MANAGERS)

.PHONY: swarm-down
swarm-down: ## remove that swarm, with all that is in it
	@.ci/swarm down

.PHONY: conformance
conformance: build ## every lock on its real service, with PROVIDER=docker (as make test has it) or local
	@if [ "$(PROVIDER)" = local ]; then .ci/setup redis etcd34 zookeeper postgres; else build/lockquake images; fi
	LOCKQUAKE_TEST_PROVIDER=$(PROVIDER) go test -tags integration -count 1 -p 1 -timeout 20m -run Conformance ./backends/...

.PHONY: race
race: ## the unit tests under the race detector (needs a C compiler)
	@.ci/setup compiler
	go test -race ./...

.PHONY: hunt-bench
hunt-bench: build ## the guided hunt against random scripts, on locks whose faults are known; at most a day, resumes where it was interrupted (HUNT="-only PATTERN -budget 2m")
	@.ci/setup --optional redis zookeeper postgres faketime
	go run ./internal/huntbench $(HUNT)

.PHONY: soak
soak: build ## write docs/track-record.md: takes hours, resumes where it was interrupted; SOAK=-quick runs most rows once, SOAK="-only PATTERN" some rows
	@.ci/setup --optional redis zookeeper postgres etcd34 faketime
	@build/lockquake images
	$(if $(SOAK),,@$(MAKE) injections judges)
	go run ./internal/soak $(SOAK)

.PHONY: judges
judges: ## the judge against the second one: a million random histories, a million of correct locks, and 100,000 of two hosts (half an hour)
	RAPID_CHECKS=1000000 go test -count 1 -timeout 120m -run 'TestBothJudgesAgree|TestCorrectLocksAreNotAccused' ./internal/oracle
	RAPID_CHECKS=100000 go test -count 1 -timeout 120m -run TestTwoHosts ./internal/oracle

.PHONY: injections
injections: build ## 200 random injections over all backends: nothing may be left on this machine
	@.ci/setup --optional redis postgres
	@build/lockquake images
	go test -tags soak -count 1 -v -run TestRandomInjections -timeout 90m ./cmd/lockquake

.PHONY: mutants
mutants: $(GREMLINS) ## wrong variants of what decides a verdict: the tests must kill 95 % of the list (hours; resumes where it was interrupted)
	go run ./internal/mutants
	go run ./internal/mutants -gremlins $(GREMLINS) history results internal/engine $(patsubst %/,%,$(wildcard internal/engine/*/))

$(GREMLINS): Makefile
	GOBIN=$(TOOLS) CGO_ENABLED=0 go install github.com/go-gremlins/gremlins/cmd/gremlins@v$(GREMLINS_VERSION)
	@touch $(GREMLINS)

.PHONY: bench
bench: build ## how fast the generator is beside bare loops, how late an open loop begins, and etcd's own benchmark where ETCD_BENCHMARK names it, and what recording costs (50 turns of 200 ms each), how fast the judge is, how exact faults are and what slow-disk costs, start-up beside compose
	@.ci/setup --optional redis postgres
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./results/...
	go test -tags "bench integration" -count 1 -v -run TestShapingCost -timeout 10m ./internal/agent/links
	go test -tags bench -count 1 -v -run TestSyncHoldCost -timeout 10m ./internal/agent/disk
	go test -tags bench -count 1 -v -run TestGeneratorCost -timeout 60m ./cmd/lockquake
	go test -tags bench -count 1 -v -run TestOpenLoopLag -timeout 20m ./cmd/lockquake
	go test -tags bench -count 1 -v -run TestEtcdGeneratorCost -timeout 20m ./cmd/lockquake
	go test -tags bench -count 1 -v -run TestCapacityFindsKnownFigures -timeout 20m ./cmd/lockquake
	go test -tags bench -count 1 -v -run "TestFaultPrecision|TestQueueCost" -timeout 60m ./cmd/lockquake
	@.ci/setup --optional compose; if .ci/engine; then build/lockquake images; fi
	go test -tags bench -count 1 -v -run 'TestStartUp|TestFirstGrant' -timeout 60m ./cmd/lockquake

.PHONY: lint
lint: $(LINT) ## the linters, with the rules of who may import whom, and a build for macOS
	@schema="$$(go env GOMODCACHE)/github.com/golangci/golangci-lint/v2@v$(GOLANGCI_VERSION)/jsonschema/golangci.next.jsonschema.json"; \
		if [ -f "$$schema" ]; then $(LINT) config verify --schema "$$schema"; fi
	$(LINT) run ./...
	@for m in $(MODULES); do (cd $$m && $(LINT) run ./...) || exit 1; done
	GOOS=darwin CGO_ENABLED=0 go build -o /dev/null ./cmd/lockquake

.PHONY: fmt
fmt: $(LINT) ## format the tree (gofumpt)
	$(LINT) fmt ./...
	@for m in $(MODULES); do (cd $$m && $(LINT) fmt ./...) || exit 1; done

# The modules of clients in Go, which ./... does not name.
MODULES := $(patsubst %/go.mod,%,$(wildcard clients/go/go.mod clients/go/*/go.mod))

$(LINT): Makefile
	@if [ "$$($(LINT) version --short 2>/dev/null)" != "$(GOLANGCI_VERSION)" ]; then \
		echo "installing golangci-lint $(GOLANGCI_VERSION) into .tools (a minute or two)"; \
		GOBIN=$(TOOLS) CGO_ENABLED=0 go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION); \
	fi
	@touch $(LINT)

.PHONY: clean
clean: ## remove what dead runs left behind, and build/
	@if [ -x build/lockquake ]; then build/lockquake clean; fi
	rm -rf build
