package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func letter(key string) store.DeadLetter {
	now := time.Now().Truncate(time.Microsecond)
	return store.DeadLetter{
		Key: key, Payload: []byte("payload of " + key + "\x00\xff"), Source: "0123", Time: now.Add(-time.Hour),
		Reason: "beyond the deduplication window: é", Maybe: true, At: now,
	}
}

func dead(t testing.TB, s store.Store, after string, limit int) []store.DeadLetter {
	t.Helper()
	got, err := s.ListDeadLetters(t.Context(), after, limit)
	if err != nil {
		t.Fatalf("Dead(%q, %d): %v", after, limit, err)
	}
	return got
}

func put(t testing.TB, s store.Store, letters ...store.DeadLetter) {
	t.Helper()
	if err := s.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatalf("PutDeadLetters: %v", err)
	}
}

func testPutDeadLettersIsIdempotent(t *testing.T, su *suite) {
	s := su.open(t)
	if got := dead(t, s, "", 10); len(got) != 0 {
		t.Errorf("an empty store has dead letters: %v", got)
	}
	a, b := letter("a"), letter("b")
	b.Maybe, b.Payload, b.Source = false, slices.Repeat([]byte{0, 1, 0xff}, 300_000), ""
	put(t, s, b)
	put(t, s, a, b)
	put(t, s, a)
	put(t, s)
	// The earliest and the latest time of a batch, and no time at all.
	c, d := letter("c"), letter("d")
	c.Time, c.At = time.UnixMicro(0), wire.MaxTime.Add(-time.Microsecond)
	d.Time = time.Time{}
	put(t, s, c, d)
	if diff := cmp.Diff([]store.DeadLetter{a, b, c, d}, dead(t, s, "", 10), sameTimes, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// Letters are listed in pages, found by their keys, and removed, perhaps twice. An aggregator looks for its letters behind all others.
func testDeadLetters(t *testing.T, su *suite) {
	s := su.open(t)
	keys := []string{fmt.Sprintf("%032x", 1), "fff", "other:01:a", "other:01:b", "other:02:a"}
	for _, key := range keys {
		d := letter(key)
		d.Payload = slices.Repeat([]byte{0, 0xff}, wire.MaxBatch/2)
		put(t, s, d)
	}
	keysOf := func(letters []store.DeadLetter) (keys []string) {
		for _, d := range letters {
			keys = append(keys, d.Key)
		}
		return keys
	}
	for at := 0; at < len(keys); at += 2 {
		after := append([]string{""}, keys...)[at]
		if diff := cmp.Diff(keys[at:min(at+2, len(keys))], keysOf(dead(t, s, after, 2))); diff != "" {
			t.Errorf("a page of 2 after %q (-want +got):\n%s", after, diff)
		}
	}
	found, err := s.GetDeadLetters(t.Context(), []string{"nobody's", keys[3], "other:", keys[0]})
	if diff := cmp.Diff([]store.DeadLetter{dead(t, s, keys[2], 1)[0], dead(t, s, "", 1)[0]}, found, sameTimes); err != nil || diff != "" {
		t.Errorf("GetDeadLetters: %v (-list +get):\n%s", err, diff)
	}
	for range 2 {
		if err := s.DeleteDeadLetters(t.Context(), []string{"nobody's", "other:01:b", "fff"}); err != nil {
			t.Fatalf("DeleteDeadLetters: %v", err)
		}
		if diff := cmp.Diff([]string{keys[0], keys[2], keys[4]}, keysOf(dead(t, s, "", 10))); diff != "" {
			t.Errorf("keys after DeleteDeadLetters (-want +got):\n%s", diff)
		}
	}
	put(t, s, letter("other:01:b")) // stored again
	if got := dead(t, s, "other:01:a", 1); len(got) != 1 || got[0].Key != "other:01:b" {
		t.Errorf("after DeleteDeadLetters and PutDeadLetters: %v, want other:01:b", got)
	}
}

// Some calls count a letter while others discard it. All of them, and later ones, return the same decision.
func testDecisionsAreDecidedOnce(t *testing.T, su *suite) {
	s := su.open(t)
	settings := check(t, s).Settings
	for key, first := range map[string]store.Decision{"a": store.DecisionCounted, "other:01:b": store.DecisionDiscarded} {
		for _, want := range []store.Decision{first, store.DecisionCounted, store.DecisionDiscarded} {
			if got, err := store.DecideDeadLetter(t.Context(), s, key, want, time.Now().Add(time.Hour), settings); err != nil || got != first {
				t.Errorf("%s: decided %d, %v, want %d", key, got, err, first)
			}
		}
		decisions, err := store.Decisions(t.Context(), s, []string{"c", key})
		if diff := cmp.Diff([]store.Decision{0, first}, decisions); err != nil || diff != "" {
			t.Errorf("%s: %v, decisions (-want +got):\n%s", key, err, diff)
		}
	}
}
