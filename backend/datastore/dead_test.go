package datastore

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

func payload(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// The largest message of Pub/Sub has 10 MB; an entity has at most 1 MiB.
func TestDeadLettersInChunks(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	var want []store.DeadLetter
	for i, size := range []int{0, 1, maxPayload, maxPayload + 1, 2 * maxPayload, 10_000_000} {
		want = append(want, store.DeadLetter{Key: string(rune('a' + i)), Payload: payload(size), Reason: "because", Time: now(), At: now()})
	}
	for range 2 { // the write may be repeated
		if err := s.PutDeadLetters(t.Context(), want); err != nil {
			t.Fatalf("PutDeadLetters: %v", err)
		}
	}
	got, err := s.ListDeadLetters(t.Context(), "", 100)
	if err != nil || len(got) != len(want) {
		t.Fatalf("Dead: %d letters, %v; want %d", len(got), err, len(want))
	}
	for i := range want {
		if got[i].Key != want[i].Key || !bytes.Equal(got[i].Payload, want[i].Payload) {
			t.Errorf("letter %q of %d bytes came back as %q of %d", want[i].Key, len(want[i].Payload), got[i].Key, len(got[i].Payload))
		}
	}
	if n := rows(t, s, kindChunk); n != 2+2+11 {
		t.Errorf("%d chunks, want 15", n)
	}
	if err := s.DeleteDeadLetters(t.Context(), []string{"d", "e", "f", "nobody's"}); err != nil {
		t.Fatalf("Discard: %v", err)
	}
	if left, n := rows(t, s, kindDead), rows(t, s, kindChunk); left != 3 || n != 0 {
		t.Errorf("%d letters and %d chunks after a discard, want 3 and none", left, n)
	}
}

// A letter without all its chunks is an error; a part of it is never returned.
func TestDeadLetterWithoutAChunk(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	d := store.DeadLetter{Key: "k", Payload: payload(maxPayload + 1), Time: now(), At: now()}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
		t.Fatal(err)
	}
	chunks, _ := s.letter(&d)
	if _, err := s.commitOnce(t.Context(), []*pb.Mutation{{Operation: &pb.Mutation_Delete{Delete: chunks[1].GetUpsert().GetKey()}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ListDeadLetters(t.Context(), "", 10); err == nil {
		t.Errorf("got %d letters and no error", len(got))
	}
}

// If a process ends while it stores or discards letters, every existing letter still has all its
// chunks.
func TestDeadLettersOfAKilledProcess(t *testing.T) {
	t.Parallel()
	calls := &tap{}
	cfg := fresh(t)
	cfg.DialOptions = append(cfg.DialOptions, calls.option())
	s := openStore(t, cfg)
	s.lot = 1     // so that the process may end between any two
	const all = 7 // letters and chunks
	for commits := range all + 1 {
		keys := []string{fmt.Sprint("a", commits), fmt.Sprint("b", commits), fmt.Sprint("c", commits)}
		letters := make([]store.DeadLetter, len(keys))
		for i, key := range keys {
			letters[i] = store.DeadLetter{Key: key, Payload: payload(maxPayload + 1 - i%2), At: now()}
		}
		bury := func() error { return s.PutDeadLetters(t.Context(), letters) }
		calls.endAfter(commits, bury)
		left, err := s.GetDeadLetters(t.Context(), keys)
		if err != nil || (len(left) == len(keys)) != (commits == all) {
			t.Errorf("after %d commits of a PutDeadLetters there are %d letters; %v", commits, len(left), err)
		}
		if err := bury(); err != nil {
			t.Fatal(err)
		}
		calls.endAfter(commits, func() error { return s.DeleteDeadLetters(t.Context(), keys) })
		left, err = s.GetDeadLetters(t.Context(), keys)
		if err != nil || (len(left) == 0) != (commits >= all-2) {
			t.Errorf("after %d commits of a discard there are %d letters; %v", commits, len(left), err)
		}
	}
}

// endAfter ends a call after some commits, as if its process were killed.
func (p *tap) endAfter(commits int, call func() error) {
	p.set(func(method string, _, _ any) (bool, error) {
		if method == "/google.datastore.v1.Datastore/Commit" {
			commits--
		}
		return commits < 0, statusOf("Unavailable")
	})
	_ = call()
	p.set(nil)
}

// A process that only reads totals may still handle dead letters.
func TestDeadLettersOfAReader(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	openStore(t, cfg)
	cfg.ReadOnly = true
	s := openStore(t, cfg)
	d := store.DeadLetter{Key: "k", Payload: payload(2 * maxPayload), Time: now(), At: now()}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
		t.Fatalf("PutDeadLetters: %v", err)
	}
	if got, err := s.GetDeadLetters(t.Context(), []string{"k", "x"}); err != nil || len(got) != 1 || !bytes.Equal(got[0].Payload, d.Payload) {
		t.Fatalf("DeadByKey: %d letters, %v; want the one", len(got), err)
	}
	if decision, err := store.DecideDeadLetter(t.Context(), s, "k", store.DecisionDiscarded, now(), store.NewSettings(time.Hour, now())); decision != store.DecisionDiscarded || err != nil {
		t.Errorf("decided %d, %v; want it discarded", decision, err)
	}
	if err := s.DeleteDeadLetters(t.Context(), []string{"k"}); err != nil {
		t.Fatalf("Discard: %v", err)
	}
	if n := rows(t, s, kindDead) + rows(t, s, kindChunk); n != 0 {
		t.Errorf("%d letters and chunks are left, want none", n)
	}
}

// Text that Datastore refuses must not keep a letter from being stored.
func TestDeadLetterWithOddText(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	d := store.DeadLetter{Key: "k", Source: "\xff\x00", Reason: strings.Repeat("é", 1<<20) + "\xff", Payload: payload(maxPayload), At: now()}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
		t.Fatalf("PutDeadLetters: %v", err)
	}
	got, err := s.ListDeadLetters(t.Context(), "", 10)
	if err != nil || len(got) != 1 || got[0].Source != "\ufffd\x00" || !strings.HasPrefix(got[0].Reason, "éé") || !got[0].Time.IsZero() {
		t.Errorf("Dead: %v", err)
	}
}
