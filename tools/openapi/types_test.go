package openapi

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

const clientJS = "../../client/js"

var update = flag.Bool("update", false, "write the types of client/js again")

// The types of client/js are those of its doc comments, which hold for all of its code. A program with strict
// types uses the package.
func TestTypesOfTheClient(t *testing.T) {
	t.Parallel()
	dir := typescript(t)
	types := filepath.Join(clientJS, "countmill.d.mts")
	copyFile(t, filepath.Join(clientJS, "countmill.mjs"), filepath.Join(dir, "countmill.mjs"))
	strict := []string{"--no-install", "tsc", "--strict", "--target", "ES2022", "--module", "NodeNext", "--moduleResolution", "NodeNext",
		"--lib", "ES2022,DOM,DOM.AsyncIterable", "--types", "node"}
	run(t, dir, "npx", append(strict, "--declaration", "--emitDeclarationOnly", "--allowJs", "--checkJs", "countmill.mjs")...)
	if *update {
		copyFile(t, filepath.Join(dir, "countmill.d.mts"), types)
	}
	got, err := os.ReadFile(types)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, "countmill.d.mts"))
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is out of date (%v): go -C tools/openapi test -run TestTypesOfTheClient -update", types, err)
	}
	packed, err := filepath.Abs(clientJS)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "npm", "install", "--offline", "--no-save", "--install-links", "--no-audit", "--no-fund", packed)
	copyFile(t, filepath.Join("typescript", "client.ts"), filepath.Join(dir, "client.ts"))
	run(t, dir, "npx", append(strict, "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "client.ts")...)
	if got := run(t, dir, "node", "client.js", serve(t)); got != "5n\n" {
		t.Errorf("the program prints %q, want 5n", got)
	}
}
