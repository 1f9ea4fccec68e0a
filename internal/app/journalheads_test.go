package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// Each hour is logged once it is settled, and no hour is left out.
func TestHeadsOfTheJournal(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 10, 30, 0, 0, time.UTC)
	st := fakestore.New(fakestore.Options{Clock: func() time.Time { return now }})
	fold := func(at time.Time) {
		t.Helper()
		c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}}
		r := journal.Record{}
		c.Records = []store.JournalRecord{{Key: store.NewJournalKey(at, uint64(at.UnixNano())), ExpireAt: at.Add(time.Hour), Data: r.Encode(nil)}}
		if _, err := st.Fold(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	h := &heads{store: st, log: slog.New(slog.NewTextHandler(&log, nil))}
	want := func(records ...int) {
		t.Helper()
		if err := h.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []int
		for line := range strings.Lines(log.String()) {
			head, ok, err := journal.ParseHead(line)
			if !ok || err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			got = append(got, head.Records)
		}
		if len(got) != len(records) {
			t.Fatalf("at %s: heads of %v records, want %v", now, got, records)
		}
		for i := range got {
			if got[i] != records[i] {
				t.Errorf("at %s: heads of %v records, want %v", now, got, records)
			}
		}
	}
	for i := range 5 {
		fold(now.Add(-time.Hour + time.Duration(i)*time.Minute)) // between 9 and 10
	}
	fold(now)
	want(5)
	now = now.Add(33 * time.Minute) // 11:03: the hour may still get records
	want(5)
	now = now.Add(10 * time.Minute)
	want(5, 1)
	fold(now)
	now = now.Add(2 * time.Hour)
	want(5, 1, 1, 0)
}

// The heartbeats of aggregators with different keys differ, and do not have the key.
func TestHeartbeatsNameTheJournalKey(t *testing.T) {
	t.Parallel()
	name := func(key string) string {
		t.Helper()
		cfg := Config{Logger: slog.New(slog.DiscardHandler)}
		if key != "" {
			cfg.JournalKey = filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(cfg.JournalKey, []byte(key), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := aggregatorConfig(cfg, new(backends), nil)
		if err := setJournalKey(&c, cfg); err != nil {
			t.Fatal(err)
		}
		return c.Setup["journal-key"]
	}
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	if got := name(""); got != "none" {
		t.Errorf("without a key: %q", got)
	}
	if name(a) != name(a+"\n") || name(a) == name(b) || len(name(a)) != 8 || strings.Contains(name(a), "aaaa") {
		t.Errorf("the names of three keys, two of them the same: %q, %q and %q", name(a), name(a+"\n"), name(b))
	}
}

func TestJournalKeyFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	for text, ok := range map[string]bool{strings.Repeat("k", 32) + "\n": true, strings.Repeat("k", 31) + "\n": false, "": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := readJournalKey(Config{JournalKey: file})
		if ok != (err == nil) || ok && len(key) != 32 {
			t.Errorf("a key of %d bytes: got %q, %v", len(text), key, err)
		}
	}
	if _, err := readJournalKey(Config{JournalKey: file + "-none"}); err == nil {
		t.Error("a file that does not exist is taken")
	}
	if key, err := readJournalKey(Config{}); key != nil || err != nil {
		t.Errorf("without the flag: %q, %v", key, err)
	}
}
