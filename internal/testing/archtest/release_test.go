package archtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// maxReleased is the limit of a binary in a release: docs/evidence/benchmarks.md has the figure.
const maxReleased = 37_000_000

// Two builds from two directories have the same bytes, which say their version. They contain no path of
// this machine, and every linked module has a licence. A second archive has the same bytes.
func TestRelease(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "compiles countmill with the flags of a release")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("there is no GNU tar, or another limit")
	}
	dir, again := t.TempDir(), t.TempDir()
	for _, out := range []string{dir, again} {
		shell(t, root, append(os.Environ(), "TARGETS=linux/amd64"), ".ci/release v0.1.0-test '"+out+"'")
	}
	first, second := contents(t, filepath.Join(dir, "SHA256SUMS")), contents(t, filepath.Join(again, "SHA256SUMS"))
	if !bytes.Equal(first, second) || bytes.Count(first, []byte("\n")) != 3 {
		t.Errorf("two releases have the sums\n%s\nand\n%s", first, second)
	}
	shell(t, dir, nil, "tar -xzf countmill_0.1.0-test_linux_amd64.tar.gz --strip-components 1")
	if got := shell(t, dir, nil, "./countmill version"); !strings.HasPrefix(got, "countmill v0.1.0-test (revision ") {
		t.Errorf("got version %q", got)
	}
	binary := contents(t, filepath.Join(dir, "countmill"))
	t.Logf("the binary has %d bytes", len(binary))
	if len(binary) > maxReleased {
		t.Errorf("the binary has %d bytes, at most %d are allowed", len(binary), maxReleased)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{here + "/command", strings.TrimSpace(shell(t, root, os.Environ(), "go env GOMODCACHE")) + "/"} {
		if bytes.Contains(binary, []byte(path)) {
			t.Errorf("the binary contains the path %s", path)
		}
	}
	for file, want := range map[string]string{
		"LICENSE": "Apache License", "MODULES.txt": "github.com/ThreeDotsLabs/watermill v1.",
		"LICENCES.txt": "==== github.com/cockroachdb/pebble/v2 v",
	} {
		if !bytes.Contains(contents(t, filepath.Join(dir, file)), []byte(want)) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReleaseRefusesVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0/.."} {
		if out, err := exec.Command(filepath.Join(root, ".ci", "release"), version, t.TempDir()).CombinedOutput(); err == nil || !strings.Contains(string(out), "write it as v0.1.0") {
			t.Errorf("version %q: got %q, %v", version, out, err)
		}
	}
}

// pip and npm install the clients from their directories and from the archives of a release, without a network.
func TestClientsInstall(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "runs pip and npm")
	dist := t.TempDir()
	shell(t, root, append(os.Environ(), "TARGETS="), ".ci/release v0.1.0-rc.1 '"+dist+"'")
	clients, err := filepath.Abs(filepath.Join(root, "client"))
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		filepath.Join(clients, "python"):                          "0.0.0 counts",
		filepath.Join(dist, "countmill_0.1.0-rc.1_python.tar.gz"): "0.1.0.dev0+rc.1 counts",
		filepath.Join(clients, "js"):                              "0.0.0 counts",
		filepath.Join(dist, "countmill_0.1.0-rc.1_js.tgz"):        "0.1.0-rc.1 counts",
	} {
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			install, program := installJS, "npm"
			if strings.Contains(from, "python") {
				install, program = installPython, "pip3"
			}
			if _, err := exec.LookPath(program); err != nil {
				if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "scripts") {
					t.Fatalf("there is no %s", program)
				}
				t.Skipf("there is no %s", program)
			}
			dir := t.TempDir()
			env := append(os.Environ(), "FROM="+from, "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir(), "npm_config_cache="+t.TempDir())
			if got := strings.TrimSpace(shell(t, dir, env, install)); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// The output of each is the installed version, and a word.
const (
	installPython = `python3 -m pip install --quiet --no-index --no-deps --no-cache-dir --disable-pip-version-check --target . "$FROM"
python3 -c '
import countmill, importlib.metadata, os
from countmill import aio
assert os.path.dirname(os.path.dirname(countmill.__file__)) == os.path.realpath("."), countmill.__file__
assert os.path.exists(os.path.join(os.path.dirname(countmill.__file__), "py.typed"))
aio.Client("http://127.0.0.1:8080")
print(importlib.metadata.version("countmill"), "counts")'`
	installJS = `npm init --yes >/dev/null
npm install --silent --offline --no-audit --no-fund "$FROM" >/dev/null
node --input-type=module -e '
import { Client } from "countmill";
import { existsSync, readFileSync } from "node:fs";
new Client("http://127.0.0.1:8080");
const installed = JSON.parse(readFileSync("node_modules/countmill/package.json"));
console.log(installed.version, existsSync("node_modules/countmill/" + installed.exports["."].types) ? "counts" : "has no types");'`
)
