package protocol_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

func kindOf(name string) engine.KindID {
	return engine.KindID(slices.IndexFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == name }))
}

func take(t *testing.T, s tested, sequence string) int64 {
	t.Helper()
	id := wire.SequenceID(sequence, rand.Text())
	given, err := s.NextValues(t.Context(), sequence, []store.Take{{ID: id, Count: 1, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	return given[0].First
}

// A database that may have lost its end gives no value again, also of a sequence that it does not know.
func TestSequencesAfterARestore(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	if got := take(t, s, "a"); got != 1 {
		t.Fatalf("the first value is %d", got)
	}
	s.db.Fail(nil, 2)
	s = s.again(t)
	state, err := s.Sequence(t.Context(), "typo")
	before, deleteErr := s.DeleteSequence(t.Context(), "typo")
	if err != nil || deleteErr != nil || state.Exists() || before.Exists() || len(s.stored(t, "sequence")) != 1 {
		t.Errorf("a sequence that nobody used: %+v and %+v, %v, %v", state, before, err, deleteErr)
	}
	for _, tt := range []struct {
		sequence string
		want     int64
	}{{"a", 2 + 2*store.RestoreSkip}, {"a", 3 + 2*store.RestoreSkip}, {"b", 1 + 2*store.RestoreSkip}} {
		if got := take(t, s, tt.sequence); got != tt.want {
			t.Errorf("after two restores %s gives %d, want %d", tt.sequence, got, tt.want)
		}
	}
	s.db.Fail(nil, 3)
	if got, want := take(t, s, "b"), int64(2+3*store.RestoreSkip); got != want {
		t.Errorf("in a transaction after another restore, before the store knows of it, b gives %d, want %d", got, want)
	}
}

// Whoever repeats a take after any answer gets its values, each value once.
func TestTakesWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	s.db.OnCall(func(c *memory.Call) memory.Answer {
		if c.Op == memory.Transact {
			return []memory.Answer{{}, {Err: errLost, Applied: true}, {Err: errLost}, {Err: engine.ErrConflict}}[mathrand.IntN(4)]
		}
		return memory.Answer{}
	})
	var mu sync.Mutex
	var all []int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				takes := []store.Take{{ID: wire.SequenceID("a", rand.Text()), Count: 1, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}}
				given, err := s.NextValues(t.Context(), "a", takes)
				for err != nil && t.Context().Err() == nil {
					given, err = s.NextValues(t.Context(), "a", takes)
				}
				mu.Lock()
				all = append(all, given[0].First)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	for i, value := range all {
		if value != int64(i+1) {
			t.Fatalf("value %d is %d", i, value)
		}
	}
}

func letterOf(key string, size int) store.DeadLetter {
	return store.DeadLetter{Key: key, Payload: bytes.Repeat([]byte(key+"\n\x00"), size/len(key))[:size], At: time.UnixMicro(1)}
}

// A letter has all its chunks, or there is no letter: beside deletions, and if a commit in between fails.
func TestLettersAreWhole(t *testing.T) {
	t.Parallel()
	small := limits["datastore"]
	small.RowBytes = 100_000
	s := open(t, small)
	letters := []store.DeadLetter{letterOf("a", 49_999), letterOf("b", 50_001), letterOf("c", 500_000)}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 50 {
				if err := s.PutDeadLetters(t.Context(), letters); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				if err := s.DeleteDeadLetters(t.Context(), []string{"c", "b", "a"}); err != nil {
					t.Error(err)
				}
				if _, err := s.ListDeadLetters(t.Context(), "", 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetDeadLetters(t.Context(), []string{"c", "d", "b", "a"})
	if err != nil || len(got) != 3 || !bytes.Equal(got[0].Payload, letters[2].Payload) || !bytes.Equal(got[1].Payload, letters[1].Payload) {
		t.Fatalf("got %d letters, %v", len(got), err)
	}
	if err := s.DeleteDeadLetters(t.Context(), []string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	v := s.db.Open().View()
	if row := v.Scan(t.Context(), engine.Range{Kind: kindOf("chunk")}).Next(); row != nil {
		t.Errorf("the chunk %q is left", row.Key.Name)
	}

	// A copy is written in the middle of a deletion.
	if err := s.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	s.db.OnCall(func(c *memory.Call) memory.Answer {
		if c.Op == memory.Commit && c.Changes[0].Op == engine.Delete && c.Changes[0].Key.Kind == kindOf("chunk") {
			if err := s.PutDeadLetters(t.Context(), letters); err != nil {
				t.Error(err)
			}
		}
		return memory.Answer{}
	})
	if err := s.DeleteDeadLetters(t.Context(), []string{"b", "c"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ListDeadLetters(t.Context(), "", 10); err != nil || len(got) == 0 {
		t.Errorf("beside a deletion: %d letters, %v", len(got), err)
	}

	small.Bytes = 200_000 // too few for one commit
	s, lost := open(t, small), errors.New("lost")
	for fails := 1; ; fails++ {
		n := 0
		s.db.OnCall(func(c *memory.Call) memory.Answer {
			if c.Op == memory.Commit {
				if n++; n == fails {
					return memory.Answer{Err: lost}
				}
			}
			return memory.Answer{}
		})
		err := s.PutDeadLetters(t.Context(), letters[2:])
		found, listErr := s.ListDeadLetters(t.Context(), "", 10)
		if listErr != nil || (err == nil) != (len(found) == 1) {
			t.Fatalf("after %v: %d letters, %v", err, len(found), listErr)
		}
		if err == nil {
			if fails < 4 {
				t.Errorf("the letter took %d commits", fails-1)
			}
			return
		}
	}
}

func TestLongReasonsAreCut(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	d := letterOf("a", 900_000)
	d.Reason, d.Source = strings.Repeat("\x01", 1<<20), strings.Repeat("é", 1<<20)+"\xff"
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
		t.Fatal(err)
	}
	got, err := s.ListDeadLetters(t.Context(), "", 1)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Payload, d.Payload) || !strings.HasPrefix(d.Reason, got[0].Reason) || len(got[0].Reason) == 0 {
		t.Errorf("got %d letters, %v", len(got), err)
	}
}

// Each start of a process leaves a row, which goes a day after it has expired.
func TestOldWorkersGo(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		s := open(t, l)
		now := time.Now()
		for i, ago := range []time.Duration{25 * time.Hour, 23 * time.Hour, -time.Minute} {
			if err := s.Beat(t.Context(), store.Worker{ID: fmt.Sprint(i), Expires: now.Add(-ago)}); err != nil {
				t.Fatal(err)
			}
		}
		sweep(t, s)
		if l.Expires {
			s.db.Expire(now)
		}
		if got, err := s.Workers(t.Context()); err != nil || len(got) != 2 || got[0].ID != "1" {
			t.Errorf("%s: the workers are %v, %v", name, got, err)
		}
	}
}

// ForgetBefore in the meta row is not older than the markers that were removed, whatever is lost after it. A process that ends
// before its first sweep leaves its ForgetBefore.
func TestForgetBeforeIsKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, age := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Duration(0)
	cfg := protocol.Config{
		Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
		Age:   func() time.Duration { mu.Lock(); defer mu.Unlock(); return age },
	}
	s := openWith(t, limits["pebble"], cfg)
	set := func(by time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(by) }
	pass := func() store.Settings {
		mu.Lock()
		now, age = now.Add(20*time.Minute), age+20*time.Second
		mu.Unlock()
		checked, err := s.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return checked.Settings
	}
	for _, end := range []func(){func() { sweep(t, s); s.db.CutPower() }, func() { _ = s.Close() }} {
		want := pass().ForgetBefore
		end()
		set(-time.Hour)
		s = s.again(t)
		if checked, err := s.Check(t.Context()); err != nil || checked.Settings.ForgetBefore.Before(want) {
			t.Errorf("ForgetBefore was %s, and is %s, %v", want, checked.Settings.ForgetBefore, err)
		}
		set(time.Hour)
	}
}

// ForgetBefore does not move while a longer window takes effect. A process starts meanwhile, and its clock shows 2040 once: nothing goes too early.
func TestSweepsOfALongerWindow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	start := now
	set := func(at time.Time) { mu.Lock(); defer mu.Unlock(); now = at }
	s := openWith(t, limits["pebble"], protocol.Config{
		Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
		Age:   func() time.Duration { return 0 },
	})
	r := store.JournalRecord{Key: store.NewJournalKey(start, 1), ExpireAt: start.Add(10 * 24 * time.Hour), Data: []byte("x")}
	if _, err := s.Fold(t.Context(), &store.Commit{Records: []store.JournalRecord{r}, Rules: store.AnyRules}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetWindow(t.Context(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_ = s.Close()
		s = s.again(t)
		set(start.AddDate(10, 0, 0))
		sweep(t, s)
		set(start)
		v := s.JournalView()
		page, err := v.JournalRecords(t.Context(), store.JournalQuery{Limit: 10})
		v.Close()
		if err != nil || len(page.Records) != 1 {
			t.Errorf("%d records are left, want 1: %v", len(page.Records), err)
		}
	}
}

// A server whose clock is set back forgets no markers of parts that are taken.
func TestForgetBeforeStaysOnAServer(t *testing.T) {
	t.Parallel()
	s := open(t, limits["postgresql"])
	old := store.Marker{ID: wire.IncrementID("a", "b"), At: time.Now(), ExpireAt: time.Now().Add(10 * 24 * time.Hour)}
	if _, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{old}, Rules: store.AnyRules}); err != nil {
		t.Fatal(err)
	}
	s.off.Store(int64(100 * 24 * time.Hour))
	sweep(t, s)
	s.off.Store(0)
	checked, err := s.again(t).Check(t.Context())
	if err != nil || !checked.Settings.Refuses(old.At) {
		t.Errorf("a part whose marker is gone is taken: ForgetBefore is %s, %v", checked.Settings.ForgetBefore, err)
	}
	if found, err := s.Applied(t.Context(), []wire.PartID{old.ID}); err != nil || len(found) > 0 {
		t.Errorf("the marker stays: %v, %v", found, err)
	}
}

// A process that knows the settings takes a later ForgetBefore from each check: another one, whose clock is ahead, may have removed markers.
func TestForgetBeforeOfAnother(t *testing.T) {
	t.Parallel()
	s, forget := open(t, limits["postgresql"]), time.Now().Truncate(time.Microsecond)
	id := protocol.Kinds[kindOf("meta")].Fields[1].ID
	s.setMeta(t, engine.Change{Op: engine.Update, Set: []engine.Field{{ID: id, Value: engine.IntOf(forget.UnixMicro())}}})
	if checked, err := s.Check(t.Context()); err != nil || !checked.Settings.ForgetBefore.Equal(forget) {
		t.Errorf("ForgetBefore is %s, want %s: %v", checked.Settings.ForgetBefore, forget, err)
	}
}

// A shorter window removes no markers that other processes still rely on.
func TestMarkersOutliveAShorterWindow(t *testing.T) {
	t.Parallel()
	s := open(t, limits["postgresql"])
	old := store.Marker{ID: wire.IncrementID("a", "b"), At: time.Now().Add(-20 * time.Hour)}
	before, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old.ExpireAt = before.Settings.Expiry(before.At, old.At)
	if _, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{old}, Rules: store.AnyRules}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetWindow(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	sweep(t, s)
	if found, err := s.Applied(t.Context(), []wire.PartID{old.ID}); err != nil || len(found) != 1 {
		t.Errorf("the marker of a part that a process with the window before takes: %v, %v", found, err)
	}
}

// A resumed engine notes from which moment it goes on.
type resumed struct {
	engine.Engine
	at time.Time
}

func (r *resumed) Resume(at time.Time) { r.at = at }

func TestMomentsFollowTheJournal(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	at, done := s.JournalMoment(time.Time{})
	defer done()
	r := store.JournalRecord{Key: store.NewJournalKey(at, math.MaxUint64), ExpireAt: at.Add(time.Hour), Data: []byte("x")}
	if _, err := s.Fold(t.Context(), &store.Commit{Records: []store.JournalRecord{r}}); err != nil {
		t.Fatal(err)
	}
	e := &resumed{Engine: s.db.Open()}
	if _, err := protocol.Open(t.Context(), e, s.cfg); err != nil || !e.at.Equal(at) {
		t.Errorf("the engine goes on after %s, and the last record is of %s (%v)", e.at, at, err)
	}
}

// Pages of large records end by their bytes, in both directions, and together have all.
func TestPagesOfTheJournalEndByBytes(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	const records, whole = 10, store.JournalPageBytes / store.MaxJournalRecord
	for range records {
		at, done := s.JournalMoment(time.Time{})
		r := store.JournalRecord{Key: store.NewJournalKey(at, 1), ExpireAt: at.Add(time.Hour), Data: make([]byte, store.MaxJournalRecord)}
		if _, err := s.Fold(t.Context(), &store.Commit{Records: []store.JournalRecord{r}, Rules: store.AnyRules}); err != nil {
			t.Fatal(err)
		}
		done()
	}
	for _, last := range []bool{false, true} {
		q := store.JournalQuery{Limit: 100, Last: last}
		for _, want := range []int{whole, records - whole} {
			v := s.JournalView()
			page, err := v.JournalRecords(t.Context(), q)
			v.Close()
			if err != nil || len(page.Records) != want || page.More != (want == whole) {
				t.Fatalf("last %t: a page of %d records, more %t, %v; want %d", last, len(page.Records), page.More, err, want)
			}
			if q.From = page.Records[want-1].Place().Next(); last {
				q.From, q.To = store.JournalPlace{}, page.Records[0].Place()
			}
		}
	}
}

// A late engine does something after the first read of a view.
type late struct {
	engine.Engine
	do func()
}

func (e *late) View() engine.View { return &lateView{e.Engine.View(), e} }

type lateView struct {
	engine.View
	of *late
}

func (v *lateView) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	rows, err := v.View.Get(ctx, keys, fields...)
	if do := v.of.do; do != nil {
		v.of.do = nil
		do()
	}
	return rows, err
}

// What a view calls settled has no further records in later views.
func TestViewsHaveWhatIsSettled(t *testing.T) {
	t.Parallel()
	e := &late{Engine: open(t, limits["pebble"]).db.Open()}
	s, err := protocol.Open(t.Context(), e, protocol.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var at time.Time
	e.do = func() {
		var done func()
		at, done = s.JournalMoment(time.Time{})
		defer done()
		r := store.JournalRecord{Key: store.NewJournalKey(at, 1), ExpireAt: at.Add(time.Hour), Data: []byte("x")}
		if _, err := s.Fold(t.Context(), &store.Commit{Records: []store.JournalRecord{r}, Rules: store.AnyRules}); err != nil {
			t.Error(err)
		}
	}
	v := s.JournalView()
	defer v.Close()
	page, err := v.JournalRecords(t.Context(), store.JournalQuery{Limit: 10})
	if err != nil || len(page.Records) > 0 || at.IsZero() || !page.SettledUntil.Before(at) {
		t.Errorf("a view with %d records is settled until %s, and a record of %s came after it, %v", len(page.Records), page.SettledUntil, at, err)
	}
}

// A shard at a wrong place, or an unreadable shard, is listed as bad.
func TestSurveyListsBadShards(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	for place, name := range []string{"a", "b"} {
		s.db.Damage(engine.Key{Kind: kindOf("shard"), Place: uint64(place), Name: name, Part: 1}, "torn")
	}
	e := s.db.Open()
	lost := engine.Change{Key: engine.Key{Kind: kindOf("shard"), Place: 5, Name: "c"}}
	if _, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(lost)}); err != nil {
		t.Fatal(err)
	}
	page, err := s.ShardPage(t.Context(), "", "", 10)
	var bad []string
	for _, shard := range page.Shards {
		bad = append(bad, fmt.Sprintf("%s/%d %t", shard.Counter, shard.Number, shard.Bad != ""))
	}
	if want := []string{"a/1 true", "a/0 false", "b/1 true", "c/0 true"}; err != nil || !slices.Equal(bad, want) {
		t.Errorf("got %q, %v, want %q", bad, err, want)
	}
}

// Where one process has the database, the aggregators of before its start have ended. Elsewhere they may be alive.
func TestWorkersOfBefore(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"pebble": 0, "postgresql": 1} {
		s := open(t, limits[name])
		if err := s.Beat(t.Context(), store.Worker{ID: "killed", Expires: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		got, err := s.again(t).Workers(t.Context())
		if err != nil || len(got) != want {
			t.Errorf("%s: %d aggregators of before the start, error %v, want %d", name, len(got), err, want)
		}
	}
}
