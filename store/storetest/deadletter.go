package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
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

func testListDeadLettersPages(t *testing.T, su *suite) {
	s := su.open(t)
	var want []string
	for i := range 11 {
		want = append(want, fmt.Sprintf("%064x", i*i))
		put(t, s, letter(want[i]))
	}
	var got []string
	after := ""
	for page := dead(t, s, after, 4); len(page) > 0; page = dead(t, s, after, 4) {
		if len(page) > 4 {
			t.Fatalf("a page of %d, limit 4", len(page))
		}
		for _, d := range page {
			got = append(got, d.Key)
		}
		after = got[len(got)-1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of all pages (-want +got):\n%s", diff)
	}
}

// An aggregator deletes the letters that it has counted, maybe after another one has done so. It looks
// for its letters behind all others.
func testDeleteDeadLettersRemoves(t *testing.T, su *suite) {
	s := su.open(t)
	keys := []string{fmt.Sprintf("%032x", 1), "fff", "other:01:a", "other:01:b", "other:02:a"}
	for _, key := range keys {
		d := letter(key)
		d.Payload = slices.Repeat([]byte{0, 0xff}, wire.MaxBatch/2)
		put(t, s, d)
	}
	discard := func(keys ...string) {
		t.Helper()
		if err := s.DeleteDeadLetters(t.Context(), keys); err != nil {
			t.Fatalf("Discard(%q): %v", keys, err)
		}
	}
	discard()
	discard("nobody's")
	for range 2 {
		discard("other:01:b", "fff")
		var got []string
		for _, d := range dead(t, s, "other:", 10) {
			got = append(got, d.Key)
		}
		if diff := cmp.Diff([]string{"other:01:a", "other:02:a"}, got); diff != "" {
			t.Errorf("keys after DeleteDeadLetters (-want +got):\n%s", diff)
		}
	}
	if got := dead(t, s, "", 10); len(got) != 3 || got[0].Key != keys[0] {
		t.Errorf("%d letters are left, want 3 beginning with %s", len(got), keys[0])
	}
	put(t, s, letter("other:01:b")) // stored again
	if got := dead(t, s, "other:01:a", 1); len(got) != 1 || got[0].Key != "other:01:b" {
		t.Errorf("after DeleteDeadLetters and PutDeadLetters: %v, want other:01:b", got)
	}
}

// Some calls count a letter while others discard it. All of them, and later ones, return the same decision.
func testDecisionsAreDecidedOnce(t *testing.T, su *suite) {
	s := su.open(t)
	latest, settings := time.Now().Add(time.Hour), check(t, s).Settings
	keys := []string{"a", "other:01:b", "c"}
	got := make([]store.Decision, 2*4)
	for _, key := range keys[:2] {
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				want := []store.Decision{store.DecisionCounted, store.DecisionDiscarded}[i%2]
				for tries := 0; ; tries++ { // a commit may fail because of contention
					var err error
					if got[i], err = store.DecideDeadLetter(t.Context(), s, key, want, latest, settings); err == nil {
						return
					}
					if tries == 20 {
						t.Errorf("%s: not decided: %v", key, err)
						return
					}
				}
			})
		}
		all.Wait()
		for _, decision := range got {
			if decision != got[0] || decision == 0 {
				t.Errorf("%s: decisions %v, want one", key, got)
				break
			}
		}
		decisions, err := store.Decisions(t.Context(), s, []string{"c", key})
		if diff := cmp.Diff([]store.Decision{0, got[0]}, decisions); err != nil || diff != "" {
			t.Errorf("%s: %v, decisions (-want +got):\n%s", key, err, diff)
		}
	}
}

// A person names letters by their keys. Some of the letters no longer exist.
func testGetDeadLettersFinds(t *testing.T, su *suite) {
	s := su.open(t)
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("%032x", i*i))
		put(t, s, letter(keys[i]))
	}
	find := func(keys ...string) []store.DeadLetter {
		t.Helper()
		found, err := s.GetDeadLetters(t.Context(), keys)
		if err != nil {
			t.Fatalf("DeadByKey(%q): %v", keys, err)
		}
		return found
	}
	if got := find(); len(got) != 0 {
		t.Errorf("GetDeadLetters of nothing: %v", got)
	}
	var got []string
	for _, d := range find(slices.Concat([]string{"nobody's"}, keys[3:], []string{keys[0], "other:"})...) {
		got = append(got, d.Key)
	}
	if diff := cmp.Diff(append(slices.Clone(keys[3:]), keys[0]), got); diff != "" {
		t.Errorf("keys found (-want +got):\n%s", diff)
	}
	want := dead(t, s, "", 1)
	if diff := cmp.Diff(want, find(want[0].Key), sameTimes); diff != "" {
		t.Errorf("GetDeadLetters differs from ListDeadLetters (-list +get):\n%s", diff)
	}
}
