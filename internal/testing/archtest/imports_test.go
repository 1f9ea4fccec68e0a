package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/countmill/countmill"

// An arrow is a forbidden dependency: no package under from may depend on one under deps.
//
// from and deps are import paths; "/x" is short for module + "/x". A trailing "/..." of from means the
// package and all below it; deps always mean that.
type arrow struct {
	from, why string
	deps      []string
	// direct is true if only a direct import is forbidden, and a dependency through another package is
	// right.
	direct bool
	// below is true if deps themselves are allowed, and only the packages below them are forbidden.
	below bool
}

var (
	roles     = []string{"/publisher", "/aggregator", "/reader", "/admin", "/sequence"}
	telemetry = []string{"github.com/prometheus", "go.opentelemetry.io"}
	cloudSDKs = []string{"cloud.google.com/go", "google.golang.org/api", "google.golang.org/grpc", "github.com/bradfitz/gomemcache", "github.com/nats-io"}
	stores    = []string{"github.com/cockroachdb/pebble", "github.com/jackc/pgx"}
)

// forbidden is the picture in CONTRIBUTING.md, arrow by arrow.
func forbidden() []arrow {
	const wires = "internal/app wires; nothing below it knows it"
	arrows := []arrow{
		{from: "/wire/...", deps: append([]string{"/backend", "/internal"}, roles...), why: "the wire format stands on the root package alone"},
		{from: "/store/...", deps: append([]string{"/backend"}, roles...), why: "the contract is below the roles, and knows no technology"},
		{from: "/cmd/...", deps: append([]string{"/internal", "/backend"}, roles...), direct: true, why: "package command is the whole command line"},
		{from: "/command/...", deps: roles, direct: true, why: "internal/app composes the roles, for commands and for tests alike"},
		{from: "/command/...", deps: []string{"/backend"}, direct: true, below: true, why: "internal/app is the one place where backends are chosen"},
		{from: "/command/...", deps: []string{"/embedded"}, why: "internal/app composes the roles; package embedded and package command are beside each other"},
		{from: "/embedded/...", deps: []string{"/command"}, why: "internal/app composes the roles; package embedded and package command are beside each other"},
		{from: "/command/cli/...", deps: []string{"/internal/app", "/client"}, why: "package cli is a command line of any program"},
		{from: "/internal/app/...", deps: []string{"/command"}, why: "internal/app has the configuration; package command reads it from flags"},
		{from: "/internal/app/...", deps: []string{"/embedded"}, why: "package embedded is internal/app for other programs"},
		{from: "/internal/transfer", deps: []string{"/backend"}, why: "files are moved over HTTP, like every caller's increments"},
		{from: "/internal/transfer/...", deps: append([]string{"/internal/app"}, roles...), why: "files are moved over HTTP, like every caller's increments"},
		{from: "/internal/transfer/journalfile/...", deps: []string{"/backend"}, below: true, why: "a file knows the form of a format, and no technology"},
		{from: "/client/...", deps: []string{"/internal", "/wire", "/backend"}, why: "a client is a small dependency: the root package and the standard library"},
		{from: "/internal/webui/...", deps: []string{"/internal/httpserver", "/internal/api"}, why: "the page is files for browsers, which call the API"},
		{from: "/internal/httpserver/...", deps: append([]string{"/backend", "/internal/app", "/internal/api"}, roles...), why: "the server and the router know no route, no role and no backend"},
		{from: "/internal/api/...", deps: []string{"/backend"}, why: "a route calls roles, which have the store"},
		{from: "/internal/api/...", deps: []string{"/internal/app"}, why: wires},
		{from: "/backend/...", deps: []string{"/internal/app"}, why: wires},
		{from: "/backend/...", deps: roles, why: "a backend implements package store; it knows no role"},
		{from: "/internal/backup/...", deps: []string{"/internal/app"}, why: wires},
		{from: "/internal/backup/...", deps: []string{"/backend"}, below: true, why: "backups know a directory and a bucket, and no technology"},
	}
	for _, role := range roles {
		others := slices.DeleteFunc(slices.Clone(roles), func(other string) bool { return other == role })
		arrows = append(arrows,
			arrow{from: role + "/...", deps: others, why: "roles meet on the wire and in the store, never in Go"},
			arrow{from: role + "/...", deps: []string{"/backend"}, why: "package store has the contract; backends implement it"},
			arrow{from: role + "/...", deps: []string{"/internal/app"}, why: wires},
			arrow{from: role + "/...", deps: []string{"net/http", "/internal/api", "/internal/httpserver"}, why: "internal/api has every route: what a role does is the same over HTTP and in Go"},
			arrow{from: role + "/...", deps: []string{"/internal/auth"}, why: "tokens are checked before a role is called"},
			arrow{from: role + "/...", deps: slices.Concat(cloudSDKs, stores), why: "a technology belongs behind a role, in its backend"},
			arrow{from: role + "/...", deps: telemetry, why: "roles expose Stats(); services that import one choose their own metrics client"},
		)
	}
	return arrows
}

// A listed is the output of `go list` for a package. Imports and Deps exclude tests.
type listed struct {
	ImportPath, Name, Doc string
	Imports, Deps         []string
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Imports,Deps", module+"/...")
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportArrows(t *testing.T) {
	t.Parallel()
	pkgs := list(t)
	for _, a := range forbidden() {
		if !slices.ContainsFunc(pkgs, func(p listed) bool { return under(p.ImportPath, a.from) }) {
			t.Errorf("no package is under %s: correct the table", a.from)
		}
	}
	for _, problem := range violations(pkgs, forbidden()) {
		t.Error(problem)
	}
}

// violations returns every forbidden arrow of pkgs, with the reason.
func violations(pkgs []listed, arrows []arrow) []string {
	var problems []string
	complain := func(p listed, dep, why string) {
		problems = append(problems, fmt.Sprintf("%s depends on %s: %s", p.ImportPath, dep, why))
	}
	for _, p := range pkgs {
		for _, a := range arrows {
			deps := p.Deps
			if a.direct {
				deps = p.Imports
			}
			if !under(p.ImportPath, a.from) {
				continue
			}
			for _, dep := range deps {
				for _, no := range a.deps {
					if under(dep, no+"/...") && !(a.below && dep == module+no) {
						complain(p, dep, a.why)
					}
				}
			}
		}
		for _, dep := range p.Deps {
			if why := broken(p.ImportPath, dep); why != "" {
				complain(p, dep, why)
			}
		}
		if slices.Contains(p.Imports, "testing") && !servesTests(p.ImportPath) {
			complain(p, "testing", "only tests and packages that serve tests (names that end in test, and those below internal/testing) do")
		}
	}
	return problems
}

func servesTests(path string) bool {
	return strings.HasSuffix(path, "test") || strings.Contains(path, "/internal/testing/")
}

// forTests are packages that only tests import, and programs outside the module.
var forTests = []string{"/internal/testing/bugtest/...", "/internal/testing/emulator/...", "/internal/testing/faultproxy/...", "/internal/testing/powertest/...", "/internal/testing/longtest/...", "/internal/testing/sim/..."}

// broken returns why from must not depend on dep, for the rules that no table has.
func broken(from, dep string) string {
	switch {
	case from == module && (strings.Contains(first(dep), ".")):
		return "the root package has words only: it imports the standard library, nothing else"
	case under(dep, "/command/...") && !under(from, "/cmd/...") && !under(from, "/command/..."):
		return "the command line is above all libraries: only cmd imports it"
	case under(dep, "/cmd/...") || under(dep, "/examples/...") || under(dep, "/internal/testing/archtest/..."):
		return "commands, examples and tests are the top: nothing imports them"
	case under(dep, "/wire/internal/batchpb") && from != dep:
		return "protoc's code is for tests of package wire: countmill reads and writes batches with package wire"
	case under(dep, "/store/storetest") && !under(from, "/store/storetest/...") || under(dep, "/store/engine/enginetest") || under(dep, "/backend/bustest"):
		return "conformance suites are for tests"
	case under(from, "/store/engine/...") && under(dep, module+"/...") && !under(dep, "/store/engine/...") && !under(dep, "/store/int128"):
		return "an engine knows rows and no counters"
	case slices.ContainsFunc(forTests, func(p string) bool { return under(dep, p) && !under(from, p) }):
		return "emulators, faults, planted bugs and the simulator are for tests: countmill never needs one"
	case backend(from) != "" && under(from, "/backend/...") && under(dep, "/backend/...") && backend(from) != backend(dep) && backend(dep) != "":
		return "one technology per package: backends know nothing of each other"
	}
	return ""
}

// under reports whether path matches pattern, or is below it if pattern ends in "/...".
func under(path, pattern string) bool {
	if strings.HasPrefix(pattern, "/") {
		pattern = module + pattern
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func first(path string) string { return strings.Split(path, "/")[0] }

// backend returns the X of module/backend/X and everything below it.
func backend(path string) string {
	return first(strings.TrimPrefix(strings.TrimPrefix(path, module+"/backend"), "/"))
}

func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, dep string
		want      bool
	}{
		{"", "github.com/google/uuid", true},
		{"", "strings", false},
		{"/wire", "/wire/internal/batchpb", true},
		{"/publisher", "/aggregator", true},
		{"/publisher/part", "/reader", true},
		{"/reader", "net/http", true},
		{"/publisherx", "/aggregator", false},
		{"/reader", "cloud.google.com/go/datastore", true},
		{"/backend/pebble", "/aggregator", true},
		{"/backend/pebble", "/backend/memory", true},
		{"/backend/pebble", "/backend/pebble/internal/key", false},
		{"/backend/pebble", "/store/storetest", true},
		{"/store/engine/memory", "/wire", true},
		{"/store/engine", "", true},
		{"/store/storetest", "testing", false},
		{"/backend/pebble", "testing", true},
		{"/internal/app", "/internal/testing/emulator", true},
		{"/internal/app", "/cmd/countmill", true},
		{"/cmd/countmill", "/internal/app", true},
		{"/command", "/backend/pebble", true},
		{"/command", "/backend", false},
		{"/internal/app", "/command", true},
		{"/publisher", "/command", true},
	} {
		dep := tt.dep
		if dep == "" || dep[0] == '/' {
			dep = module + dep
		}
		p := listed{ImportPath: module + tt.from, Imports: []string{dep}, Deps: []string{dep}}
		if got := violations([]listed{p}, forbidden()); (len(got) > 0) != tt.want {
			t.Errorf("%q importing %q: got %q, want a violation: %t", tt.from, tt.dep, got, tt.want)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: got package comment %q, want one that begins with %q", p.ImportPath, p.Doc, want)
		}
	}
}
