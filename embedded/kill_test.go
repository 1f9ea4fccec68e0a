package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
	"github.com/countmill/countmill/internal/testing/child"
)

const (
	// childEnv has the directory of the process that is killed.
	childEnv = "COUNTMILL_TEST_EMBEDDED_DIR"

	callers = 4
	kills   = 5
)

// count publishes one increment after the other on a counter of each caller, and prints the name of
// the counter when Publish has confirmed it. It never ends by itself.
func count(dir string) int {
	db, err := embedded.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	for i := range callers {
		name := fmt.Sprint("c", i)
		all.Go(func() {
			for n := 0; ; n++ {
				if err := db.Publish(context.Background(), countmill.Increment{Counter: name, Delta: 1}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				os.Stdout.WriteString(name + "\n") // one write of a few bytes is not divided
			}
		})
	}
	all.Wait()
	return 1
}

// Every increment that Publish has confirmed is in the total after kill -9, and none is there twice:
// besides these, the total has at most the call that each caller had under way.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	totals := make(map[string]int64)
	for kill := range kills {
		confirmed := runUntilKilled(t, dir, 50+100*kill)
		db, err := embedded.Open(dir)
		must(t, err)
		for i := range callers {
			name := fmt.Sprint("c", i)
			total, err := db.Total(t.Context(), name)
			must(t, err)
			if counted := total.Total - totals[name]; counted < confirmed[name] || counted > confirmed[name]+1 {
				t.Errorf("kill %d: %d were counted on %s and %d confirmed, want so many or one more", kill+1, counted, name, confirmed[name])
			}
			totals[name] = total.Total
		}
		must(t, db.Close())
	}
}

// runUntilKilled runs a process that counts, kills it once it has confirmed that many increments, and
// returns how many it has confirmed of each counter.
func runUntilKilled(t *testing.T, dir string, increments int) map[string]int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	guard, err := child.GuardProcess(cmd.Process.Pid)
	must(t, err)
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	counts := make(map[string]int64)
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); { // to the end: each printed increment was confirmed
		counts[lines.Text()]++
		if n++; n == increments {
			must(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	late.Stop()
	guard.End()
	if n < increments || stderr.Len() > 0 {
		t.Fatalf("the process confirmed %d increments and wrote %q, want %d and nothing", n, stderr.String(), increments)
	}
	return counts
}
