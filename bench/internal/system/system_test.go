package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
)

// TestMain also is the servers that systems start from their own program.
func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "serve-http":
		err = ServeHTTP(context.Background(), args[1], args[2])
	case len(args) == 3 && args[0] == "serve-nats":
		err = ServeNATS(context.Background(), args[1], args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Every system that is installed counts, and its Check sees one increment too few.
func TestCountsAndChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every server")
	}
	loads, small := load.All(2000, 20_000), load.All(2000, 100) // the classic one is slow, and must count some twice
	binary := filepath.Join(t.TempDir(), "countmill")
	build := exec.Command("go", "build", "-o", binary, "./cmd/countmill")
	build.Dir = "../../.."
	if _, err := server.Output(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			if _, err := s.Version(); errors.Is(err, server.ErrMissing) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			among := loads
			if s.Family == "classic" {
				among = small
			}
			at := slices.IndexFunc(among, func(l *load.Load) bool { return l.Name == s.Loads[len(s.Loads)-1] })
			countAndCheck(t, s, among[at], binary)
		})
	}
}

func countAndCheck(t *testing.T, s System, l *load.Load, countmill string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "bench-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	i, err := s.Open(t.Context(), Place{Dir: dir, Load: l, Countmill: countmill, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	goal := load.Goal{Increments: 1000, Least: 100 * time.Millisecond, Most: 10 * time.Second}
	r := load.NewRun(l, goal)
	if err := i.Count(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n, took := r.Done(); n < 1000 || took < goal.Least/2 {
		t.Errorf("got %d increments in %s, want 1000 in %s or more", n, took, goal.Least)
	}
	if err := i.Check(t.Context(), r); err != nil {
		t.Error(err)
	}
	more := r
	switch i := i.(type) { // what goes by its own record, as the generator is another program
	case *redisBenchmark:
		i.sent += 1_000_000
	case *httpServer:
		i.reported += 1_000_000
		more = longer(t, r, i.byWrk)
	default:
		more = longer(t, r, false)
	}
	if err := i.Check(t.Context(), more); !errors.Is(err, load.ErrWrong) {
		t.Errorf("increments are missing: got %v, want %v", err, load.ErrWrong)
	}
}

// longer is a run that sent more than r.
func longer(t *testing.T, r *load.Run, foreign bool) *load.Run {
	n, _ := r.Done()
	more := load.NewRun(r.Load, load.Goal{Increments: n + 1, Most: time.Minute})
	if foreign {
		more.Foreign(n+1, time.Second)
		return more
	}
	err := more.Walk(t.Context(), 1, 1, func(context.Context, int, int, []uint32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	more.Stop()
	return more
}
