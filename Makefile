# What one does with Mooring's sources. "make" alone lists it.

PKG     ?= ./...
FUZZ    ?= 10m
SHORT   ?= 5s
TOOL    := go tool -modfile=.ci/tools.mod
# Runs a command with MOORING_TEST_DATABASE_URL set, starting or installing a Postgres if need be.
PGTEST  := go run ./internal/pgtest/cmd/pgtest --

# One way to build whatever is not raced, so that it is built once.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

.DEFAULT_GOAL := help
.PHONY: help demo build test test-slow bench generate verify lint fuzz-short fuzz vulncheck

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## show the whole thing at work: a broken link, a killed server, a revoked share (needs Go alone)
	@go run ./internal/demo

build: ## build bin/mooring
	go build -o bin/mooring ./cmd/mooring

generate: ## generate capnp/wire from the schemas (needs the capnp compiler)
	.ci/generate capnp/wire

verify: ## fail if generated code, formatting or go.mod is stale
	.ci/verify

test: ## run all tests with the race detector, on SQLite and Postgres (PKG=./... narrows)
	@.ci/need cc
	$(PGTEST) env CGO_ENABLED=1 go test -race -timeout 10m $(PKG)

# The tests that only the crash tag brings; make test runs the others.
SLOW = $(shell sed -n 's/^func \(Test[A-Za-z0-9]*\).*/\1/p' internal/*/*_slow_test.go | paste -sd '|' -)

test-slow: ## run the crash and soak tests, minutes long
	@.ci/need cc
	@test -n '$(SLOW)'
	$(PGTEST) env CGO_ENABLED=1 go test -race -timeout 20m -tags crash -run '^($(SLOW))$$' ./internal/e2e ./internal/bench

bench: ## measure against a bare program on the same databases (docs/benchmarks.md)
	$(PGTEST) go run ./internal/bench

lint: ## go vet and staticcheck (what is off, and why: staticcheck.conf)
	go vet -tags crash $$(go list $(PKG) | grep -v /capnp/wire) # generated: unkeyed fields
	$(TOOL) staticcheck -tags crash $(PKG)

fuzz-short: ## fuzz every target for a few seconds (SHORT=5s each)
	$(PGTEST) .ci/fuzz $(SHORT) $(PKG)

fuzz: ## fuzz every target for long (FUZZ=10m each)
	$(PGTEST) .ci/fuzz $(FUZZ) $(PKG)

vulncheck: ## look for known vulnerabilities (needs vuln.go.dev)
	$(TOOL) govulncheck $(PKG)
