package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/journal/journaltest"
	"github.com/countmill/countmill/store"
)

// TestExportCost prints the cost of an export in each format, from a journal on Pebble. COUNTMILL_BENCH_ENTRIES is how
// many entries it has; without it the test skips.
func TestExportCost(t *testing.T) {
	text := os.Getenv("COUNTMILL_BENCH_ENTRIES")
	if text == "" {
		t.Skip("COUNTMILL_BENCH_ENTRIES is not set")
	}
	var entries int
	if _, err := fmt.Sscan(text, &entries); err != nil {
		t.Fatal(err)
	}
	s, err := pebble.Open(pebble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	records, all := journaltest.Records(entries)
	total := len(all)
	t.Logf("%d entries in %d records", total, len(records))
	for some := range slices.Chunk(records, 100) {
		if _, err := s.Fold(t.Context(), &store.Commit{Records: some, Adds: []store.ShardDelta{store.NewShardDelta("billing:a", 0, 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	records, all = nil, nil
	runtime.GC()
	server := journaltest.Serve(t, s).URL
	dir := t.TempDir()
	for _, format := range []string{"ndjson", "csv", "parquet"} {
		var log bytes.Buffer
		path := filepath.Join(dir, "day."+format)
		run := exec.Command(os.Args[0], exportArgs(path, server)...)
		run.Env = append(os.Environ(), asProgram+"=1")
		run.Stderr = &log
		began := time.Now()
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- run.Wait() }()
		peak := watchMemory(run.Process.Pid, done, &err)
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		took := time.Since(began)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d entries, %.1f s, %.0f MB of memory at most, %d bytes, %.0f bytes an entry",
			format, total, took.Seconds(), float64(peak)/1024, info.Size(), float64(info.Size())/float64(total))
	}
}

// watchMemory waits for the end of a process, and returns the most memory that it had at a look, in KiB. Its own
// account would begin with the memory of this process.
func watchMemory(pid int, done <-chan error, err *error) (peak int) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case *err = <-done:
			return peak
		case <-look.C:
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may be gone
		for line := range bytes.Lines(status) {
			var kib int
			if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
				peak = max(peak, kib)
			}
		}
	}
}
