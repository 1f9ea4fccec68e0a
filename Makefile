# Everything here also works by hand: see CONTRIBUTING.md.
.DEFAULT_GOAL := help
.PHONY: help up test race coverage openapi lint golangci licences vulnerabilities screenshots bench bench-peers bench-cost bench-staleness bench-memory bench-counters bench-hour billion e2e outage overload chaos chaos-nats soak kills fulldisk simulate replay story determinism planted planted-processes powercut fuzz examples identifiers identifiers-google generate release ci full

TMP ?= $(or $(TMPDIR),/tmp)
OUTAGE ?= 10m
CHAOS ?= 15m
NATS ?= 5m
SOAK ?= 8h
SCHEDULES ?= 20000
CUTS ?= 10000
SEED ?= 0
BENCHED ?= .
COUNT ?= 6
BILLION ?= 1e9
LICENCES = Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT,MPL-2.0
FUZZTIME ?= 5m
OVERLOAD ?= 15s
VERSION ?= v0.0.0-dev

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## run everything in one process on http://127.0.0.1:8080, data in ./countmill-data
	go run ./cmd/countmill up

test: ## run all tests
	go test ./...

race: ## run all tests under the race detector
	go test -race ./...

coverage: ## fail if the tests of the roles cover less than 97 % of their statements; half a minute
	.ci/coverage

openapi: ## generate clients for Go and TypeScript from the OpenAPI document, compile and use them; a minute
	go -C tools/openapi test -count 1 -v ./...

lint: ## gofmt, vet, staticcheck, go mod tidy
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt -w $$out"; exit 1; fi
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff
	go -C bench vet ./...
	cd bench && go tool -modfile=../tools/go.mod staticcheck ./...
	go -C bench mod tidy -diff
	go -C cmd/countmill-backup vet ./...
	cd cmd/countmill-backup && go tool -modfile=../../tools/go.mod staticcheck ./...
	go -C cmd/countmill-backup mod tidy -diff

golangci: ## the linters of .golangci.yml, whose first build takes minutes
	go tool -modfile=tools/golangci/go.mod golangci-lint run

licences: ## list the modules and their licences; fails if a licence is not in the list
	go tool -modfile=tools/go.mod go-licenses report ./... 2>/dev/null | awk -F, '{ print $$3 "\t" $$1 }' | sort
	@out=$$(go tool -modfile=tools/go.mod go-licenses check ./... --allowed_licenses=$(LICENCES) 2>&1) || { echo "$$out"; exit 1; }
	@out=$$(cd cmd/countmill-backup && go tool -modfile=../../tools/go.mod go-licenses check ./... --ignore github.com/countmill/countmill --allowed_licenses=$(LICENCES) 2>&1) || { echo "$$out"; exit 1; }

vulnerabilities: ## list known vulnerabilities of the code in use; asks vuln.go.dev, or GOVULNDB
	go tool -modfile=tools/go.mod govulncheck $(if $(GOVULNDB),-db $(GOVULNDB)) ./...

screenshots: ## take the pictures of the page in docs, with Chromium; two minutes
	COUNTMILL_TEST_REQUIRE=browser COUNTMILL_SCREENSHOTS=$(CURDIR)/docs go -C internal/testing/browser test -count 1 -v -run 'TestScreenshots$$' .

bench: ## run all benchmarks (or BENCHED) COUNT (6) times, and show the spread; BASE=REVISION compares with another revision
	go test -run '^$$' -bench '$(BENCHED)' -benchmem -count $(COUNT) ./... >$(TMP)/countmill-bench.txt || { cat $(TMP)/countmill-bench.txt; exit 1; }
	$(if $(BASE),git worktree add --force --detach $(TMP)/countmill-base $(BASE))
	$(if $(BASE),go -C $(TMP)/countmill-base test -run '^$$' -bench '$(BENCHED)' -benchmem -count $(COUNT) ./... >$(TMP)/countmill-base.txt; git worktree remove --force $(TMP)/countmill-base)
	go tool -modfile=tools/go.mod benchstat $(if $(BASE),$(BASE)=$(TMP)/countmill-base.txt) now=$(TMP)/countmill-bench.txt

bench-peers: ## compare countmill with Redis, PostgreSQL and others, for hours; BENCH=-quick for three minutes
	go -C bench run . $(BENCH)
	go -C bench test -run '^$$' -bench . -benchmem $(if $(findstring -quick,$(BENCH)),-benchtime 0.1s,-count 6) ./add

bench-cost: ## measure entities written and read for increments and totals, in virtual time; 30 to 50 minutes
	go -C bench test -count 1 -timeout 2h -v ./cost $(if $(findstring -quick,$(BENCH)),,-args -full)

bench-staleness: ## measure the time from Publish to the total that shows it, embedded and on Google's emulators; an hour, or BENCH=-quick
	go -C bench run . staleness $(BENCH)

bench-memory: ## measure the memory of an aggregator with 1M counters in flight, and bytes on disk; 10 minutes, or BENCH=-quick
	go -C bench run . memory $(BENCH)

bench-counters: ## measure what a counter costs, with 1 and 10 million of them; a quarter of an hour, or BENCH=-quick
	go -C bench run . counters $(BENCH)

bench-hour: ## send increments to 10 million counters with series for an hour, and show times and bytes written; BENCH="-rate N"
	go -C bench run . hour $(BENCH)

billion: ## send BILLION (1e9) increments through `up`, killed every few seconds; every total is compared
	go -C bench run . billion $(if $(findstring -quick,$(BENCH)),,-increments $(BILLION)) $(BENCH)

e2e: ## run the tests that build countmill, run it and kill it
	COUNTMILL_TEST_CHAOS=1m go test -count 1 -v -timeout 20m ./internal/testing/archtest ./internal/testing/e2e ./cmd/... ./examples/...

simulate: ## run SCHEDULES (20000) simulated schedules from SEED on (default: random), on all processors
	go test -count 1 -v -timeout 0 ./internal/testing/sim -run 'TestSimulate$$' -schedules $(SCHEDULES) -seed $(SEED)

replay: ## print the events in the simulated schedule of SEED
	go test -count 1 -v ./internal/testing/sim -run 'TestReplay$$' -seed $(SEED)

story: ## print the smallest schedule that fails as the one of SEED does, in words
	go test -count 1 -v ./internal/testing/sim -run 'TestStory$$' -seed $(SEED)

determinism: ## run 100 seeds 100 times each: nearly all have one trace
	go test -count 1 -v -timeout 0 ./internal/testing/sim -run 'TestDeterminism$$' -schedules 100 -times 100 -seed $(SEED)

outage: ## make Pub/Sub and Datastore unavailable for OUTAGE (10m), in three ways each; takes some minutes more than OUTAGE
	COUNTMILL_TEST_REQUIRE=emulators COUNTMILL_TEST_OUTAGE=$(OUTAGE) \
		go test -count 1 -v -timeout 0 -parallel 6 -run 'TestPubSubAway|TestDatastoreAway' ./internal/testing/e2e

overload: ## send many times the load that `up` accepts, and bodies of 8 MiB, for OVERLOAD (15s) each
	COUNTMILL_TEST_OVERLOAD=$(OVERLOAD) go test -count 1 -v -timeout 0 -run 'TestOverload' ./internal/testing/e2e

chaos: ## kill, suspend and cut off separate roles under load for CHAOS (15m), seeded by SEED; every total is checked
	exec env COUNTMILL_TEST_REQUIRE=emulators COUNTMILL_TEST_CHAOS=$(CHAOS) COUNTMILL_TEST_SEED=$(SEED) COUNTMILL_TEST_EMULATOR_HEAP=2g \
		go test -count 1 -v -timeout 0 -run 'TestChaos$$' ./internal/testing/e2e

chaos-nats: ## kill and suspend three aggregators, and kill the broker, on NATS and PostgreSQL without Google's modules for NATS (5m), seeded by SEED; every total is checked
	exec env COUNTMILL_TEST_LONG=1 COUNTMILL_TEST_REQUIRE=emulators COUNTMILL_TEST_CHAOS=$(NATS) COUNTMILL_TEST_SEED=$(SEED) \
		go test -count 1 -v -timeout 0 -run 'TestNATS$$' ./internal/testing/e2e

soak: ## run chaos for SOAK (8h)
	$(MAKE) chaos CHAOS=$(SOAK)

kills: ## SIGKILL countmill up KILLS (200) times under load, seeded by SEED; every total is checked
	exec env COUNTMILL_TEST_UP_KILLS=$(or $(KILLS),200) COUNTMILL_TEST_SEED=$(SEED) \
		go test -count 1 -v -timeout 0 -run 'TestKills$$' ./internal/testing/e2e

fulldisk: ## fill the disk of countmill up DISKS (20) times under load, seeded by SEED; every total is checked
	exec env COUNTMILL_TEST_FULL_DISKS=$(or $(DISKS),20) COUNTMILL_TEST_SEED=$(SEED) \
		go test -count 1 -v -timeout 0 -run 'TestFullDisk$$' ./internal/testing/e2e

planted-processes: ## build countmill with planted bugs, one at a time: chaos, kills and full disks must find each
	COUNTMILL_TEST_PLANTED=3 go test -count 1 -v -timeout 2h -run 'TestPlanted$$' ./internal/testing/e2e

planted: ## plant bugs, one at a time: the simulator, the power cuts and the suites must find each in 5 runs of 5
	COUNTMILL_TEST_PLANTED=5 go test -count 1 -v -timeout 2h -run TestPlanted $$(find . -path '*/testdata/*bugs' | sed 's|/testdata/.*||' | sort -u)

powercut: ## cut the power CUTS (10000) times on pebble:, from SEED on
	go test -count 1 -v -timeout 0 -run 'TestPowerCutOfRows$$' ./backend/pebble -cuts $(CUTS) -seed $(SEED)

fuzz: ## run every fuzz target for FUZZTIME (5m), one after the other; ONLY=Decode selects targets by name
	.ci/fuzz $(FUZZTIME) $(ONLY)

examples: ## build and test the examples
	go build -o /dev/null ./examples/webserver
	go build -o /dev/null ./examples/identifiers
	go test ./examples/...

identifiers: ## count the identifiers of Go's source while countmill is killed KILLS (5) times
	go build -o $(TMP)/countmill-identifiers ./cmd/countmill
	go run ./examples/identifiers --kill $(or $(KILLS),5) --binary $(TMP)/countmill-identifiers
	rm $(TMP)/countmill-identifiers

identifiers-google: ## the same with separate roles, on Google's emulators and memcached
	COUNTMILL_TEST_REQUIRE=emulators COUNTMILL_TEST_IDENTIFIERS=0 COUNTMILL_TEST_EMULATOR_HEAP=6g \
		go test -count 1 -v -timeout 30m -run TestAgreesOnGoogle ./examples/identifiers

generate: ## generate wire/internal/batchpb from wire/batch.proto; needs protoc
	go generate ./wire/...

release: ## build the archives of VERSION (v0.0.0-dev) in dist, each binary twice; RELEASE=fresh compiles all twice
	.ci/release '$(VERSION)' dist $(RELEASE)

ci: ## run .ci/run: what must hold before a change goes in; 12 minutes on two idle cores
	.ci/run

full: ## run .ci/full: everything that .ci/run leaves out; an hour and a half on two idle cores
	.ci/full
