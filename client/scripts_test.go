//go:build unix

package client_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// scriptsEnd bounds one suite, which takes 10 to 20 s on two cores.
const scriptsEnd = 4 * time.Minute

// The clients in python/ and js/ pass their tests, against a scripted server and a countmill that is
// killed. Without Python or Node this skips, or fails if COUNTMILL_TEST_REQUIRE has "scripts".
func TestScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds countmill and kills it for many seconds")
	}
	binary := sync.OnceValues(func() (string, error) {
		path := filepath.Join(t.TempDir(), "countmill")
		out, err := exec.Command("go", "build", "-o", path, "../cmd/countmill").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, err
	})
	for _, suite := range []struct {
		dir, program string
		major, minor int
		args         []string
		passed       *regexp.Regexp // in its output, if no test was skipped
	}{
		{"python", "python3", 3, 9, []string{"-m", "unittest", "-v"}, regexp.MustCompile(`(?m)^Ran [1-9]\d* tests[^\n]*\n\nOK$`)},
		{"js", "node", 20, 3, []string{"--test", "--test-reporter=tap", "countmill.test.mjs"}, regexp.MustCompile(`(?s)# pass [1-9].*# skipped 0\n`)},
	} {
		t.Run(suite.dir, func(t *testing.T) {
			program := find(t, suite.program, suite.major, suite.minor)
			path, err := binary()
			must(t, err)
			readAll(t, suite.dir)
			began := time.Now()
			out, err := runScript(t, suite.dir, path, program, suite.args...)
			if err != nil || !suite.passed.MatchString(out) {
				t.Errorf("%s %s: %v\n%s", suite.program, strings.Join(suite.args, " "), err, out)
			}
			t.Logf("%s: %s", time.Since(began).Round(time.Second), regexp.MustCompile(`\d+ keyed requests and as many adds, \d+ kills.*`).FindString(out))
		})
	}
}

// readAll reads the files of a suite. Without it go test knows nothing of them, and takes the result of before
// their change.
func readAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	})
	must(t, err)
}

// find returns the path of a program that has at least that version.
func find(t *testing.T, name string, major, minor int) string {
	t.Helper()
	path, err := exec.LookPath(name)
	var version []byte
	if err == nil {
		version, err = exec.Command(path, "--version").Output()
	}
	if err == nil {
		got := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(string(version))
		if len(got) == 3 && slices.Compare([]int{number(got[1]), number(got[2])}, []int{major, minor}) >= 0 {
			return path
		}
		err = fmt.Errorf("%s is version %q, and %d.%d or later is needed", path, version, major, minor)
	}
	if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "scripts") {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// runScript runs a suite and returns its output. The processes that it started end with it, and with
// this one.
func runScript(t *testing.T, dir, binary, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptsEnd)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "COUNTMILL_BINARY="+binary, "TMPDIR="+temp, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=default")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // a countmill that it left
	guard, err := child.GuardProcess(-cmd.Process.Pid, temp)
	if err != nil {
		return "", err
	}
	defer guard.End()
	err = cmd.Wait()
	return out.String(), err
}
