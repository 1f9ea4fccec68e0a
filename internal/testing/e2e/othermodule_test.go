package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	api "github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/testing/child"
)

// buildNotebook builds the program in testdata as a module of its own, as a user would.
func buildNotebook(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	dir, version := t.TempDir(), regexp.MustCompile(`(?m)^go .*$`).Find(mod)
	if err := os.CopyFS(dir, os.DirFS("testdata/notebook")); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"go.mod":  fmt.Sprintf("module example.com/notebook\n\n%s\n", version),
		"go.work": fmt.Sprintf("%s\n\nuse (\n\t.\n\t%q\n)\n", version, root),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "notebook", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "notebook")
}

// A store of another module runs `up` under a scheme of its own: no file of this module knows it.
func TestAStoreOfAnotherModule(t *testing.T) {
	t.Parallel()
	binary := buildNotebook(t)
	out, err := exec.Command(binary, "up", "--store", "notebook:x?shards=no").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--store: parameter shards must be an integer from 1") {
		t.Errorf("a wrong parameter: %v, %s", err, out)
	}
	out, err = exec.Command(binary, "reader", "--store", "notebook:x").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "lives within one process") {
		t.Errorf("a store of one process for a reader: %v, %s", err, out)
	}
	out, err = exec.Command(binary, "up", "--store", "paper:x").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pebble:DIR") || !strings.Contains(string(out), "notebook:NAME") {
		t.Errorf("an unknown scheme: %v, %s; want all schemes named", err, out)
	}
	c := startOther(t, binary)
	for range 3 {
		if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 2, ID: "once"}); err != nil {
			t.Fatal(err)
		}
		if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Total(t.Context(), "a", api.WithMaxStaleness(0)); err != nil || got.Total != 32 || got.Shards != 4 {
		t.Errorf("got %+v, %v, want a total of 32 in 4 shards", got, err)
	}
}

// startOther runs the program and returns a client of it.
func startOther(t *testing.T, binary string) *api.Client {
	t.Helper()
	cmd := exec.Command(binary, "up", "--listen", "127.0.0.1:0", "--store", "notebook:x?shards=4")
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	guard, err := child.GuardProcess(cmd.Process.Pid)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("notebook up: %v", err)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Error("notebook up does not end")
			<-ended
		}
		if guard != nil {
			guard.End()
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "listens on "); ok {
			c, openErr := api.New(url)
			if err := errors.Join(err, openErr); err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	t.Fatalf("notebook up printed no address: %v", lines.Err())
	return nil
}
