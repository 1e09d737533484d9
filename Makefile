# Every target does its own set-up; `make help` lists them.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN     := bin/spillway
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help build build-dcgm engine demo test test-dcgm race vet lint golden proto dashboards chaos bench check clean

help: ## List the targets.
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/spillway.
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/spillway

# NVIDIA's libraries are looked up when they are called: bound at the start, as hardened compilers have it, they would have
# to be there. Their header warns of calls that nobody makes.
WITH_DCGM := CGO_ENABLED=1 CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations'
LAZY      := -extldflags=-Wl,-z,lazy

build-dcgm: ## Build bin/spillway with the readers of DCGM and NVML (needs a C compiler, not the libraries).
	$(WITH_DCGM) $(GO) build -tags dcgm -trimpath -ldflags '$(LDFLAGS) $(LAZY)' -o $(BIN) ./cmd/spillway

demo: build ## Run all stages on this machine with a simulated NVL72 fleet; Ctrl-C ends it, the next start resumes.
	$(BIN) demo

engine: build ## Fetch the embedded ClickHouse once (177 MB, checked) into the cache.
	$(BIN) engine fetch

test: engine test-dcgm ## Run all tests on the real engines.
	$(GO) test -timeout 25m ./...

test-dcgm: ## Run the tests of the readers of DCGM and NVML, on libraries that stand for theirs (needs a C compiler).
	@if command -v gcc >/dev/null || [ -n "$$SPILLWAY_REQUIRE_SERVICES" ]; then \
	  $(WITH_DCGM) $(GO) test -tags dcgm -ldflags '$(LAZY)' -timeout 5m ./ingest/collect/dcgm ./ingest/collect/fabric && \
	  $(WITH_DCGM) $(GO) build -tags dcgm -ldflags '$(LAZY)' -o bin/spillway-dcgm ./cmd/spillway && bin/spillway-dcgm --version; \
	else echo 'no C compiler: the readers of DCGM and NVML are not tested'; fi

race: engine ## Run all tests under the race detector (needs a C compiler).
	CGO_ENABLED=1 $(GO) test -race -timeout 25m ./...

vet: ## Check formatting, and vet every module of the tree.
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'run gofmt -w on the files above'; exit 1; }
	@for module in $$(find . -name go.mod | sort); do echo "vet $$module"; (cd "$$(dirname "$$module")" && $(GO) vet ./...) || exit 1; done

lint: vet ## Check with the linters of .golangci.yml too.
	$(GO) run $(LINT) run ./...

golden: engine ## Regenerate every golden file; read the diff before you commit it.
	SPILLWAY_UPDATE_GOLDEN=1 $(GO) test -timeout 15m ./...

proto: ## Regenerate the contract's Go code from its .proto (needs protoc).
	mkdir -p bin && $(GO) build -o bin/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go
	PATH="$(CURDIR)/bin:$$PATH" $(GO) generate ./schemas/event

dashboards: ## Write the Grafana boards anew.
	cd dashboards/gen && $(GO) run . ..

chaos: engine ## Prove the loading guarantee: 100 rounds of things that break, on Apache Kafka and ClickHouse.
	SPILLWAY_CHAOS_ROUNDS=100 $(GO) test -timeout 90m -run TestChaos -v ./cmd/spillway

bench: build engine ## Measure what BENCHMARKS.md records.
	$(BIN) bench

check: lint test ## What a change must pass.

clean: ## Remove what was built; the engine's cache and data stay.
	rm -rf bin
