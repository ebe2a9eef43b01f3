# What one does with Mooring's sources. "make" alone lists it.

PKG     ?= ./...
# A commit of before: what it wrote, and its processes, go on beside those of now.
OLD     ?= 3361347
FUZZ    ?= 10m
FOR     ?= 10m
SHORT   ?= 5s
PEERS   ?= 4s
NODES   ?= 22 24 26
# Packages tested at once. Many of their tests wait for databases and clocks: one more than there are cores.
JOBS    ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TOOL    := go tool -modfile=.ci/tools.mod
# Runs a command with MOORING_TEST_DATABASE_URL set, starting or installing a Postgres if need be.
PGTEST  := go run ./internal/pgtest/cmd/pgtest --

# SQLite's C, translated, is none of ours, and to watch it takes more time than all the rest: so it is not watched. Nor is
# garbage collected as often as it would be, or a second waited at each process's end. What vet has to say, make lint says.
RACE    := env CGO_ENABLED=1 GOGC=300 GORACE=atexit_sleep_ms=50 \
	go test -race -vet=off '-gcflags=modernc.org/...=-d=checkptr=0 -race=false'

# What Mooring exists for: both protocols, capabilities, ledger, outbox, client, sessions, their store and the server's parts.
# DECIDES starts no goroutines: to watch it for races would take longer, and leave time for a tenth of the random cases.
DECIDES := ./capability ./capnweb/internal/expr ./capnweb/internal/jsontext ./fault ./ledger/... ./migrations/... \
	./outbox/internal/intent ./outbox/internal/machine ./rpc/internal/table ./rpc/internal/wire \
	./internal/server/codec ./internal/server/jsschema ./internal/session/... ./internal/store/authority ./internal/store/dialect \
	./internal/store/reads ./internal/store/upkeep
# What takes longest begins first, so that no core has nothing to do in the end.
RACED   := ./client/... ./outbox ./rpc ./rpc/internal/transport ./capnweb ./capnweb/internal/flow ./capnweb/testserver/... ./bridge \
	./outbox/internal/lease ./outbox/internal/outcomes ./outbox/internal/postgres ./outbox/internal/refs ./outbox/internal/sqlite \
	./outbox/internal/writer ./server ./internal/server/admission ./internal/server/authority ./internal/server/commit \
	./internal/server/fanout ./internal/server/objects ./internal/server/operator ./internal/store/txn \
	./internal/connlimit ./internal/httpkit ./internal/lazytimer ./internal/logdedup ./internal/peerconn ./internal/serialqueue \
	./internal/writequeue ./internal/wsock

# One way to build whatever is not raced, so that it is built once.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

.DEFAULT_GOAL := help
.PHONY: help demo build test test-rest test-slow upgrade bench bench-fanout bench-page bench-rpc generate web api size verify lint interop e2e e2e-nodes e2e-opencode e2e-agents e2e-protocols screenshots linearize fuzz-short fuzz-peers fuzz vulncheck

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## show the whole thing at work: a broken link, a killed server, a revoked share (needs Go alone)
	@go run ./internal/demo

build: ## build bin/mooring
	go build -ldflags='-s -w' -o bin/mooring ./cmd/mooring # no tables for debuggers: 40 MB instead of 56

generate: ## generate the Go code of the schemas (needs the capnp compiler)
	.ci/generate .

web: ## build what browsers load (internal/page/dist) from internal/page/src
	.ci/web internal/page/dist

api: ## write what others can import of this module into docs/api.txt
	go run .ci/api.go >docs/api.txt

size: ## count the shipped Go: files, lines, statements
	@go run .ci/size.go

verify: ## fail if generated code, internal/page/dist, docs/api.txt, formatting or go.mod is stale
	.ci/verify

# What a random test does is the same each time, so that a rare defect fails nobody else's change: SEED=N has other things
# happen, SEED=0 each time. RAPID_SEED is the library rapid's. What is there to find defects (linearize, the fuzz targets) has
# a new one each time.
test test-rest test-slow e2e e2e-nodes: export SEED := $(or $(SEED),1)
# What the tests in JavaScript repeat, they repeat as often as they can with FULL=1 alone (e2e/README.md).
e2e e2e-nodes: export FULL := $(FULL)
test test-rest test-slow: export RAPID_SEED = $(SEED)
# What slow tests repeat, they repeat once in SHARE times.
test-slow: export SHARE := $(or $(SHARE),1)

test: ## test the core, on SQLite and Postgres, with the race detector (PKG=./internal/web: that package instead, all of it raced)
	@.ci/need cc
ifneq ($(PKG),./...)
	$(PGTEST) $(RACE) -p $(JOBS) -timeout 20m $(PKG)
else
	$(PGTEST) $(RACE) -p $(JOBS) -timeout 20m $(RACED)
	$(PGTEST) go test -p $(JOBS) -timeout 20m -run '^TestConformance$$' ./internal/store/postgres ./internal/store/sqlite
	$(PGTEST) go test -p $(JOBS) -timeout 20m $(DECIDES)
endif

# The whole server, the HTTP API, pages and other protocols are raced as the core is; the command, and servers and agents as processes, are not.
test-rest: ## test the rest: what is one database's alone, the whole server, the command, the HTTP API, pages, agents and other protocols
	@.ci/need cc
	$(PGTEST) go test -p $(JOBS) -timeout 20m ./cmd/...
	$(PGTEST) go test -parallel 6 -timeout 20m ./internal/e2e # alone: it has the most processes
	$(PGTEST) $(RACE) -p $(JOBS) -timeout 20m ./internal/server/node ./internal/store/sqlite ./internal/web ./internal/httpapi ./internal/share \
		$$(go list ./... | grep -vxF "$$(go list $(RACED) $(DECIDES) ./cmd/... ./internal/e2e)")

# Tests of sizes, which the race detector would only multiply; those of the command are run without it anyway.
UNRACEDFILES = $(filter-out ./cmd/%,$(patsubst %,./%,$(shell grep -l '^//go:build.*!race' $(wildcard */*_test.go */*/*_test.go */*/*/*_test.go */*/*/*/*_test.go))))
UNRACED = $(shell sed -n 's/^func \(Test[A-Za-z0-9]*\).*/\1/p' $(UNRACEDFILES) | paste -sd '|' -)

# The tests that only the crash tag brings; make test and make test-rest run the others.
SLOW = $(shell sed -n 's/^func \(Test[A-Za-z0-9]*\).*/\1/p' internal/*/*_slow_test.go internal/*/*/*_slow_test.go client/*_slow_test.go outbox/*_slow_test.go cmd/*/*_slow_test.go | paste -sd '|' -)

# Without the race detector: what these do is raced by the other two, in smaller numbers, and it would take them four times as long.
test-slow: ## run the crash and soak tests, minutes long, those of sizes, all cases of what make test samples, and the benchmarks' own module
	@PATH="$$PATH:/usr/sbin" .ci/need cc pgbouncer
	@test -n '$(SLOW)'
	$(PGTEST) go test -count=1 -timeout 20m -tags crash -run '^($(SLOW))$$' ./internal/e2e ./cmd/mooring ./internal/bench ./internal/server/node ./internal/store/postgres ./internal/benchfanout ./client ./outbox
	go test -count=1 ./internal/server/fanout # all cases of what is raced with a part of them (internal/seed),
	$(PGTEST) go test -count=1 -run '^Test(MachineStories|RandomGroups|CodesAtStatements|ExactlyOnceInOrder|ErrorsOfVerbs|ARetryOverTheOtherWireIsADuplicate|PayloadsAreKeptByteForByte|RecordingsOverCapnWeb)$$' ./outbox ./internal/server/node ./internal/share
	$(PGTEST) go test -run '^($(UNRACED))$$' $(sort $(dir $(UNRACEDFILES)))
	go test ./internal/socket # the race detector has it read and write in another way
	go test -count=1 -tags plainsockets ./internal/socket ./internal/wsock ./rpc # without the system calls past the scheduler
	cd internal/benchrpc && go test ./...

upgrade: build ## an older binary (OLD=COMMIT) and this one at work on one Postgres, with clients of either
	.ci/old $(OLD) bin/mooring-old
	MOORING_OLD_BINARY=$(CURDIR)/bin/mooring-old $(PGTEST) go test -count=1 -tags upgrade -run '^Test(ReplicasOfTwoVersions|NewOpsWaitForTheUpgrade|ReachAtAnOlderServer|LargeForksBesideAnOlderServer)$$' ./internal/e2e

bench: bench-fanout ## measure against a bare program on the same databases (docs/benchmarks.md), and bench-fanout
	$(PGTEST) go run ./internal/bench

bench-fanout: ## measure how events reach many followers, against a bare server of the same bytes
	$(PGTEST) go run ./internal/benchfanout

bench-page: build ## measure when a page of 10,000 parts has settled in Chromium, beside one of 1,000
	@.ci/need node npm chromium
	cd clients/js && npm ci --silent && npm run build --silent
	cd e2e && npm ci --silent && MOORING_BIN=$(CURDIR)/bin/mooring node bench.js $(ROUNDS)

# A module of its own: what package rpc is compared with is no dependency of Mooring's.
bench-rpc: ## measure package rpc against go-capnp, gRPC and a raw echo, capnweb against the npm package, and idle connections
	@.ci/need node npm
	cd internal/benchrpc && go run .

# vet compiles, tests included: so what does not compile where there are 32 bits, or no Unix, is found here.
lint: ## go vet and staticcheck (what is off, and why: staticcheck.conf)
	go vet -tags crash,interop,soak,linear,unlocked,lockgap,curl,nginx,node,upgrade $(PKG)
	go run -modfile=.ci/tools.mod .ci/typecheck.go $(PKG) # for 32 bits, and for Windows
	$(TOOL) staticcheck -tags crash,interop,soak,linear,unlocked,lockgap,curl,nginx,node,upgrade $(PKG)
	cd internal/benchrpc && go vet ./... && go tool -modfile=../../.ci/tools.mod staticcheck ./...

interop: ## speak with the C++ implementation, go-capnp and the npm package capnweb, both ways (docs/interop.md)
	@.ci/need cc c++ pkg-config libcapnp capnp node npm
	$(RACE) -count=1 -timeout 15m -tags interop ./internal/interop ./internal/interop/npm

# A failure prints what to run again: a seed (SEED=N, clients/js/test/seed.ts), or a test alone (e2e/run.js).
e2e: build ## the JavaScript client and the page for people, in Node and Chromium, the curl lines of docs/http.md, nginx and HAProxy; both clients in programs of their own (FULL=1 repeats more)
	@.ci/need node npm chromium
	cd clients/js && npm ci --silent && MOORING_BIN=$(CURDIR)/bin/mooring npm test --silent
	.ci/pack
	.ci/module
	cd e2e && npm ci --silent && MOORING_BIN=$(CURDIR)/bin/mooring npm test --silent
	@PATH="$$PATH:/usr/sbin" .ci/need curl nginx haproxy
	go test -count=1 -tags curl -run '^TestCurl$$' ./internal/httpapi
	PATH="$$PATH:/usr/sbin" $(PGTEST) go test -count=1 -tags nginx,node -run '^Test(Nginx|BalancedReplicas|HistoriesWithJavaScript)$$' ./internal/e2e

e2e-nodes: build ## the JavaScript client's tests on newer Nodes, from npm (NODES="22 24 26")
	@.ci/need node npm
	cd clients/js && npm ci --silent && npm run build --silent
	MOORING_BIN=$(CURDIR)/bin/mooring .ci/nodes $(NODES)

# npm install and not ci: the lock file has the binaries of Linux on x64 alone, and ci wants every platform's. The package's
# own script puts the right one of them in its place; npm may be set not to run such, so it is run here.
e2e-opencode: build ## the real opencode (180 MB, from npm) with a scripted model, sharing to the real server
	@.ci/need node npm
	cd clients/js && npm ci --silent && npm run build --silent
	cd e2e/opencode && npm install --silent --no-save --ignore-scripts && node node_modules/opencode-ai/postinstall.mjs
	cd e2e/opencode && MOORING_BIN=$(CURDIR)/bin/mooring node ../run.js opencode.test.js relay.test.js

e2e-agents: build ## the real opencode, as mooring run, acp and attach have it, and Claude Code with its SDK, with scripted models; what Claude Code and Codex write, imported (1.4 GB from npm)
	@.ci/need node npm
	cd clients/js && npm ci --silent && npm run build --silent
	cd e2e/opencode && npm install --silent --no-save --ignore-scripts && node node_modules/opencode-ai/postinstall.mjs
	cd e2e/claude && npm ci --silent --ignore-scripts
	cd e2e/claude-store && npm ci --silent --ignore-scripts
	cd e2e/transcripts && npm install --silent --no-save --ignore-scripts
	cd e2e/opencode && MOORING_BIN=$(CURDIR)/bin/mooring node ../run.js attach.test.js agent.test.js example.test.js storm.test.js editor.test.js listen.test.js ../claude/claude.test.js ../claude-store/claude-store.test.js ../claude-store/mcp.test.js ../transcripts/transcripts.test.js

# npm install for the AI SDK, as for opencode above: of what Vite needs on other platforms the lock file has a part.
e2e-protocols: build ## others' protocols with their own clients and suites from npm: the AI SDK (70 MB), in Node and Chromium, the Model Context Protocol, and A2A
	@.ci/need node npm chromium
	cd clients/js && npm ci --silent && npm run build --silent
	cd e2e && npm ci --silent
	cd e2e/aisdk && npm install --silent --no-save --ignore-scripts
	cd e2e/mcp && npm ci --silent --ignore-scripts
	cd e2e/a2a && npm ci --silent --ignore-scripts
	cd e2e/aisdk && MOORING_BIN=$(CURDIR)/bin/mooring node ../run.js .
	cd e2e/mcp && MOORING_BIN=$(CURDIR)/bin/mooring node ../run.js .
	cd e2e/a2a && MOORING_BIN=$(CURDIR)/bin/mooring node ../run.js .

screenshots: build ## make the README's pictures (docs/images)
	@.ci/need node npm chromium
	cd clients/js && npm ci --silent && npm run build --silent
	cd e2e && npm ci --silent && MOORING_BIN=$(CURDIR)/bin/mooring npm run screenshots --silent

# A failure prints the seed to run it again with (SEED=N): internal/linear/doc.go.
linearize: ## check recorded histories of appends, shares, reverts and revocations with Porcupine (FOR=10m)
	$(PGTEST) go test -tags linear -run '^Test(Histories|WithoutTheLock)$$' -count 1 -v -timeout 0 ./internal/linear \
		-for $(FOR)

fuzz-short: ## fuzz every target for a few seconds (SHORT=5s each)
	$(PGTEST) .ci/fuzz $(SHORT) $(PKG)

# Wild peers by the thousand: rpc/soak_test.go, capnweb/soak_test.go. A failure prints the seed to run it again with.
SOAK := -tags soak -run '^TestHostilePeers$$' -count 1 -v -timeout 0 ./rpc
SOAKWEB := -tags soak -run '^TestSoakPeers$$' -count 1 -v -timeout 0 ./capnweb

fuzz-peers: ## hostile peers: bytes, and messages to what lives, a part of it raced (PEERS=4s each)
	@.ci/need cc
	ONLY='FuzzConn|FuzzDecode|FuzzPeer|FuzzMessage|FuzzParse|FuzzBatch' .ci/fuzz $(PEERS) ./rpc ./rpc/internal/wire ./capnweb ./capnweb/internal/jsontext
	go test $(SOAK) -for $(PEERS)
	$(RACE) $(SOAK) -for $(PEERS)
	go test $(SOAKWEB) -for $(PEERS)
	$(RACE) $(SOAKWEB) -for $(PEERS)

fuzz: ## fuzz every target for long (FUZZ=10m each), then 5,000,000 messages of hostile peers for either protocol, and stories
	$(PGTEST) .ci/fuzz $(FUZZ) $(PKG)
	go test $(SOAK) -messages 5000000 -connections 200000
	go test $(SOAKWEB) -messages 5000000
	go test -run '^TestOrderThroughOtherVats$$' -timeout 0 -count 1 ./rpc -worlds 1000000
	go test -run '^TestOrderOverBothProtocols$$' -timeout 0 -count 1 ./bridge -chains 100000
	go test -run '^TestMachineStories$$' -timeout 0 -count 1 ./outbox -stories 1000000
	go test -run '^TestHubStories$$' -timeout 0 -count 1 ./internal/server/fanout -stories 200000

vulncheck: ## look for known vulnerabilities (needs vuln.go.dev)
	$(TOOL) govulncheck $(PKG)
