package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A job is a running command that ends by itself.
type job struct {
	cmd         *exec.Cmd
	out, errOut *bytes.Buffer
	ended       chan error
}

func startJob(t *testing.T, args ...string) *job {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	j := &job{cmd: exec.Command(binary, args...), out: new(bytes.Buffer), errOut: new(bytes.Buffer), ended: make(chan error, 1)}
	j.cmd.Stdout, j.cmd.Stderr = j.out, j.errOut
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.cmd.Process.Kill() })
	go func() { j.ended <- j.cmd.Wait() }()
	return j
}

func (j *job) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-j.ended:
		return j.cmd.ProcessState.ExitCode()
	case <-time.After(2 * patience):
		t.Fatalf("it does not end:\n%s", j.errOut)
		return 0
	}
}

// bigImport is a file of n rows on 1,000 counters, and what their totals are.
func bigImport(t *testing.T, n int) (path string, want map[string]int64) {
	t.Helper()
	want = make(map[string]int64)
	var b strings.Builder
	b.WriteString("id,counter,delta\n")
	for i := range n {
		counter, delta := fmt.Sprintf("c%d", i%1000), int64(i%7-3)
		if delta == 0 {
			delta = 11
		}
		id := ""
		if i%50 == 0 {
			id = fmt.Sprintf("i%d", i)
		}
		fmt.Fprintf(&b, "%s,%s,%d\n", id, counter, delta)
		want[counter] += delta
	}
	return importFile(t, "big.csv", b.String()), want
}

func checkTotals(t *testing.T, p *process, want map[string]int64) {
	t.Helper()
	names := []string{"get", "--server", p.url}
	for counter := range want {
		names = append(names, counter)
	}
	got := try(t, nil, names...)
	if got.code != 0 {
		t.Fatalf("get: %+v", got)
	}
	wrong := 0
	for line := range strings.Lines(got.out) {
		var total int64
		var counter string
		if _, err := fmt.Sscanf(line, "%d\t%s", &total, &counter); err != nil {
			t.Fatalf("get printed %q: %v", line, err)
		}
		if total != want[counter] {
			if wrong++; wrong < 5 {
				t.Errorf("%s is %d, want %d", counter, total, want[counter])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d totals are wrong", wrong, len(want))
	}
}

// Ctrl-C, and SIGKILL, end an import in its middle; the next run counts the rest.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()
	for rows := 300_000; !importGoesOn(t, rows); rows *= 4 {
		if rows > 10_000_000 {
			t.Fatalf("the import of %d rows had ended before Ctrl-C", rows)
		}
	}
}

// importGoesOn reports whether it came to interrupting the import before that had ended.
func importGoesOn(t *testing.T, rows int) bool {
	t.Helper()
	p := up(t, t.TempDir())
	path, want := bigImport(t, rows)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGKILL} {
		j := startJob(t, "import", path, "--server", p.url)
		before := totalOf(t, p, "c1")
		waitFor(t, "the import to have begun", func() bool { return totalOf(t, p, "c1") != before || len(j.ended) > 0 || sig == syscall.SIGKILL })
		j.cmd.Process.Signal(sig)
		code := j.wait(t)
		if sig == syscall.SIGINT && code == 0 {
			return false
		}
		if said := j.errOut.String(); sig == syscall.SIGINT && (code != 1 || !strings.Contains(said, fmt.Sprintf("of %d rows are counted", rows)) || !strings.Contains(said, "interrupted. Run it again")) {
			t.Errorf("Ctrl-C ended the import with %d: %s", code, said)
		}
	}
	for range 2 {
		if got := try(t, nil, "import", path, "--server", p.url); got.code != 0 || !strings.Contains(got.out, "was not counted again") {
			t.Errorf("next run: got %+v", got)
		}
		checkTotals(t, p, want)
	}
	return true
}

// A server may remember for less than --dedup-window. It refuses rows that it may have forgotten.
func TestImportIsRefusedByTheServerToo(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir(), "--dedup-window", "1h")
	path := importFile(t, "a.csv", "counter,delta\na,1\n")
	if got := try(t, nil, "import", path, "--server", p.url); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	beganAt(t, path, time.Now().Add(-2*time.Hour))
	try(t, nil, "import", path, "--server", p.url).wantError(t, 1, "nothing was counted: the request of line 2 was refused: line 1: time is beyond the deduplication window (limit: at most 1h0m0s ago)")
	if got := totalOf(t, p, "a"); got != 1 {
		t.Errorf("a is %d, want 1", got)
	}
}
