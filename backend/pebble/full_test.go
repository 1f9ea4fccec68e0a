package pebble

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/internal/testing/powertest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// fullFolds is the most folds of a process.
const fullFolds = 150

// drawnMarkers is the marker of the n-th fold of a seed.
func drawnMarkers(seed string, n int) []store.Marker {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s-%d", seed, n))
	return []store.Marker{{ID: wire.PartID(sum[:16]), Fingerprint: 1, Fold: 2, At: time.Now()}}
}

// foldOnAFullDisk folds on a disk that is full at moments drawn from the seed. It prints the number of
// each acknowledged fold.
func foldOnAFullDisk(dir string) {
	seed := os.Getenv(childEnv + "_SEED")
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		panic(err)
	}
	s, err := Open(Config{
		Dir: dir, FS: powertest.Full(vfs.Default, rand.New(rand.NewPCG(n, 0))), Cache: 1 << 20, memTable: 64 << 10,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	filler := strings.Repeat("x", 400)
	for i := range fullFolds {
		adds := []store.ShardDelta{addTo("a", 0, 1), addTo(fmt.Sprint(filler, i), 0, 1)}
		if adds[0].Order > adds[1].Order {
			adds[0], adds[1] = adds[1], adds[0]
		}
		if _, err := s.Fold(testContext, &store.Commit{Markers: drawnMarkers(seed, i), Adds: adds}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
		if i%10 == 0 {
			_, _ = s.Check(testContext) // fails while the disk is full
		}
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The disk is full at a random moment, for a while or for good. It may refuse a log, a table, a
// manifest or a commit count, while the store is open or being opened. The process continues, or exits
// with status 1 and a line with the remedy. Nothing acknowledged is lost.
func TestFullAtAnyMoment(t *testing.T) {
	t.Parallel()
	processes := 12
	if *powerCuts > 0 {
		processes = *powerCuts
	}
	seed := *powerSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	dir, want, ended := t.TempDir(), int64(0), 0
	for n := range processes {
		if n%20 == 0 {
			dir, want = t.TempDir(), 0
		}
		text := fmt.Sprint(seed + uint64(n))
		cmd := child(t, "full-drawn", dir)
		cmd.Env = append(cmd.Env, childEnv+"_SEED="+text)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		switch code := cmd.ProcessState.ExitCode(); {
		case code == 1 && strings.Contains(stderr.String(), "free space") && strings.Contains(stderr.String(), dir):
			ended++
		case code != 0:
			t.Fatalf("seed %s: %v; want exit 0, or 1 and the remedy; it said:\n%s", text, err, stderr.String())
		}
		s := open(t, Config{Dir: dir, Cache: 1 << 20, memTable: 64 << 10})
		var ids []wire.PartID
		for i := range fullFolds {
			ids = append(ids, drawnMarkers(text, i)[0].ID)
		}
		there := countApplied(t, s, ids)
		if acked := int64(strings.Count(stdout.String(), "\n")); there < acked || there > acked+1 {
			t.Fatalf("seed %s: %d folds are there, %d were acknowledged", text, there, acked)
		}
		if want += there; total(t, s, "a") != want {
			t.Fatalf("seed %s: the total is %d, %d markers are there", text, total(t, s, "a"), want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d processes from seed %d on, %d of them ended by a full disk", processes, seed, ended)
}
