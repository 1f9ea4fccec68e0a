package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pip and npm install the clients from their directories and from the archives of a release, without a network.
func TestClients(t *testing.T) {
	t.Parallel()
	r := release{root: "../..", out: t.TempDir(), version: "v0.1.0-rc.1"}
	for _, c := range clients {
		archive, hash, err := c.pack(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := c.pack(r); err != nil || again != hash {
			t.Errorf("two archives for %s differ: %v", c.language, err)
		}
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			directory, err := filepath.Abs(filepath.Join(r.root, "client", c.language))
			if err != nil {
				t.Fatal(err)
			}
			for from, version := range map[string]string{directory: "0.0.0", filepath.Join(r.out, archive): c.version("0.1.0-rc.1")} {
				if got := install[c.language](t, from); got != version+" counts" {
					t.Errorf("%s: got %q, want version %s", from, got, version)
				}
			}
		})
	}
}

// install installs a package, and returns the output of a program that imports it: its version, and a word.
var install = map[string]func(t *testing.T, from string) string{
	"python": func(t *testing.T, from string) string {
		dir := t.TempDir()
		if out, err := run(t, dir, "python3", "-m", "pip", "--version"); err != nil {
			unable(t, "pip", out)
		}
		must(t, dir, "python3", "-m", "pip", "install", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--target", dir, from)
		return must(t, dir, "python3", "-c", `import countmill, importlib.metadata, os
from countmill import aio
assert os.path.dirname(os.path.dirname(countmill.__file__)) == os.path.realpath("."), countmill.__file__
assert os.path.exists(os.path.join(os.path.dirname(countmill.__file__), "py.typed"))
aio.Client("http://127.0.0.1:8080")
print(importlib.metadata.version("countmill"), "counts")`)
	},
	"js": func(t *testing.T, from string) string {
		dir := t.TempDir()
		if out, err := run(t, dir, "npm", "--version"); err != nil {
			unable(t, "npm", out)
		}
		must(t, dir, "npm", "init", "--yes")
		must(t, dir, "npm", "install", "--offline", "--no-audit", "--no-fund", from)
		return must(t, dir, "node", "--input-type=module", "-e", `import { Client } from "countmill";
import { existsSync, readFileSync } from "node:fs";
new Client("http://127.0.0.1:8080");
const installed = JSON.parse(readFileSync("node_modules/countmill/package.json"));
console.log(installed.version, existsSync("node_modules/countmill/" + installed.exports["."].types) ? "counts" : "has no types");`)
	},
}

func unable(t *testing.T, program, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "scripts") {
		t.Fatalf("there is no %s: %s", program, why)
	}
	t.Skipf("there is no %s: %s", program, why)
}

// run runs a program in dir, which is its home too.
func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir(), "npm_config_cache="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := run(t, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}
