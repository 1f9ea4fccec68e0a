package openapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // the generated client imports it
)

// document is the OpenAPI document as servers have it.
const document = "../../internal/httpserver/openapi.json"

// stepEnd bounds one step. The first one may download modules or packages.
const stepEnd = 10 * time.Minute

// The Go client compiles without a complaint of go vet, and counts.
func TestGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for from, to := range map[string]string{
		"go.mod": "go.mod", "go.sum": "go.sum", "testdata/use.go": "use/main.go", document: "openapi.json",
		"testdata/oapi-codegen.yaml": "oapi-codegen.yaml",
	} {
		copyFile(t, from, filepath.Join(dir, to))
	}
	if err := os.Mkdir(filepath.Join(dir, "countmillapi"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", "openapi.json")
	run(t, dir, "go", "vet", "./...")
	wantUse(t, run(t, dir, "go", "run", "./use", serve(t)))
}

// The TypeScript client compiles with --strict, and counts.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	dir := typescript(t)
	copyFile(t, filepath.Join("typescript", "use.ts"), filepath.Join(dir, "use.ts"))
	copyFile(t, document, filepath.Join(dir, "openapi.json"))
	run(t, dir, "npx", "--no-install", "openapi-typescript", "openapi.json", "--default-non-nullable=false", "-o", "countmill.d.ts")
	run(t, dir, "npx", "--no-install", "tsc", "--strict")
	wantUse(t, run(t, dir, "node", "use.js", serve(t)))
}

// typescript is a directory with the compiler. Without npm the test skips, or fails if COUNTMILL_TEST_REQUIRE has
// "openapi".
func typescript(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json"} {
		copyFile(t, filepath.Join("typescript", name), filepath.Join(dir, name))
	}
	if out, err := try(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		skip(t, fmt.Errorf("npm ci: %w\n%s", err, out))
	}
	return dir
}

// wantUse checks the output of a program that uses a generated client.
func wantUse(t *testing.T, out string) {
	t.Helper()
	const want = "accepted 2\ntotal 9007199254740993\nlisted page:/home\nwatched 9007199254740993\nrefused delta\n"
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func skip(t *testing.T, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "openapi") {
		t.Fatal(why)
	}
	t.Skip(why)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// try runs a command in dir and returns its output.
func try(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepEnd)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err != nil {
		return out.String() + problems.String(), err
	}
	return out.String(), nil
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// serve runs `countmill up` until the test ends and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "countmill")
	run(t, "../..", "go", "build", "-o", binary, "./cmd/countmill")
	cmd := exec.Command(binary, "up", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("countmill up: %v", err)
		}
	})
	line := make([]byte, 4096)
	n, err := said.Read(line)
	base := regexp.MustCompile(`http://\S+`).Find(line[:n])
	if err != nil && !errors.Is(err, io.EOF) || base == nil {
		t.Fatalf("countmill up says %q (%v)", line[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		res, err := http.Get(string(base) + "/readyz")
		if err == nil {
			_ = res.Body.Close()
		}
		if err == nil && res.StatusCode == http.StatusOK {
			return string(base)
		}
		if time.Now().After(deadline) {
			t.Fatalf("countmill up is not ready: %v", err)
		}
	}
}
