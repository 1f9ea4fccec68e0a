package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// A full is a store with something of everything.
type full struct {
	tested
	index store.Index
	place store.IndexRange
	keys  []engine.Key // of all rows
	time  time.Time
}

func fill(t *testing.T, l engine.Limits) *full {
	t.Helper()
	l.RowBytes = 100_000 // letters have chunks
	s := &full{tested: open(t, l), time: time.Now()}
	s.db.OnCall(func(c *memory.Call) memory.Answer {
		for i := range c.Changes {
			s.keys = append(s.keys, c.Changes[i].Key)
		}
		return memory.Answer{}
	})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: 400 * 24 * time.Hour}})
	ok(err)
	deleted(t, s.tested, "gone")
	set, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "sites:{site}"}}})
	ok(err)
	s.index = *set.Rules.Index("sites")
	s.place = store.IndexRange{Index: s.index.Number, ID: 1, To: math.MaxUint64}
	ok(s.SwapRanges(t.Context(), nil, []store.IndexRange{s.place}))
	ok(s.SetRemainders(t.Context(), &s.place, []store.GroupRemainder{{Group: "=sites:a", Remainder: int128.Of(5)}}))
	grow(t, s, "page:a:1")
	today := wire.MinuteOf(s.time.Add(2 * time.Hour))
	for i := range wire.Minute(70) { // more than a shard keeps
		foldMinutes(t, s, "page:a:1", today-5*store.DayMinutes, today+i)
	}
	_, err = s.Fold(t.Context(), &store.Commit{
		Adds: []store.ShardDelta{store.NewShardDelta("page:a:1", 0, 1)}, Grouped: []store.Grouping{{Indexes: []int64{s.index.Number}}}, Rules: store.AnyRules,
		Markers: []store.Marker{{ID: wire.ResetID("marker", ""), At: s.time, ExpireAt: s.time.Add(time.Hour)}},
		Records: []store.JournalRecord{s.record()}, Rows: []store.JournalRow{{Counter: "a", Place: store.JournalPlace{Key: s.record().Key, Position: 1}, ExpireAt: s.time.Add(time.Hour), Data: []byte("row")}},
	})
	ok(err)
	letter := letterOf("letter", 200_000)
	letter.DeadLetterRefs = []store.DeadLetterRef{{Completion: wire.ResetID("completion", ""), Key: "letter", At: s.time, ExpireAt: s.time.Add(time.Hour)}}
	ok(s.PutDeadLetters(t.Context(), []store.DeadLetter{letter}))
	ok(s.Beat(t.Context(), store.Worker{ID: "w", Expires: s.time}))
	take(t, s.tested, "sequence")
	return s
}

func (s *full) record() store.JournalRecord {
	return store.JournalRecord{Key: store.NewJournalKey(s.time.Add(-time.Hour), 7), ExpireAt: s.time.Add(time.Hour), Data: []byte("record")}
}

func with[T any](_ T, err error) error { return err }

// calls are all calls that read or write. The kinds are those without which a call has no answer.
var calls = map[string]struct {
	kinds string
	call  func(ctx context.Context, s *full) error
}{
	"Fold": {"", func(ctx context.Context, s *full) error {
		return with(s.Fold(ctx, &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("b", 0, 1)}, Rules: store.AnyRules}))
	}},
	"Applied": {"marker", func(ctx context.Context, s *full) error {
		return with(s.Applied(ctx, []wire.PartID{wire.ResetID("marker", "")}))
	}},
	"Shards": {"record", func(ctx context.Context, s *full) error { return with(s.Shards(ctx, []string{"page:a:1"})) }},
	"Grow": {"", func(ctx context.Context, s *full) error {
		return s.Grow(ctx, []store.Growth{{Counter: "b", Shards: 2}})
	}},
	"ResetCounter": {"record", func(ctx context.Context, s *full) error {
		return with(s.ResetCounter(ctx, store.ResetRequest{ID: wire.ResetID("page:a:1", "r"), Counter: "page:a:1", Look: store.Sum{Exists: true, At: time.Now()}, At: s.time, ExpireAt: s.time}))
	}},
	"SweepCounters": {"shard", func(ctx context.Context, s *full) error { return with(s.SweepCounters(ctx, 0)) }},
	"PutDeadLetters": {"", func(ctx context.Context, s *full) error {
		return s.PutDeadLetters(ctx, []store.DeadLetter{letterOf("other", 200_000)})
	}},
	"DeleteDeadLetters": {"letter chunk", func(ctx context.Context, s *full) error { return s.DeleteDeadLetters(ctx, []string{"letter"}) }},
	"GetDeadLetters":    {"letter chunk", func(ctx context.Context, s *full) error { return with(s.GetDeadLetters(ctx, []string{"letter"})) }},
	"ListDeadLetters":   {"letter chunk", func(ctx context.Context, s *full) error { return with(s.ListDeadLetters(ctx, "", 10)) }},
	"DeadLetterRefs": {"letterref", func(ctx context.Context, s *full) error {
		return with(s.DeadLetterRefs(ctx, []wire.PartID{wire.ResetID("completion", "")}))
	}},
	"Beat":      {"", func(ctx context.Context, s *full) error { return s.Beat(ctx, store.Worker{ID: "w"}) }},
	"Workers":   {"worker", func(ctx context.Context, s *full) error { return with(s.Workers(ctx)) }},
	"Check":     {"", func(ctx context.Context, s *full) error { return with(s.Check(ctx)) }},
	"SetWindow": {"meta", func(ctx context.Context, s *full) error { return with(s.SetWindow(ctx, 3*time.Hour)) }},
	"ChangeRules": {"meta", func(ctx context.Context, s *full) error {
		return with(s.ChangeRules(ctx, store.RuleChange{Pattern: "b*", Keep: store.Retention{Quarters: store.MinKeep}}))
	}},
	"List": {"record", func(ctx context.Context, s *full) error {
		v := s.View()
		defer v.Close()
		return with(v.List(ctx, "", "", 10))
	}},
	"Lookup": {"record shard", func(ctx context.Context, s *full) error {
		v := s.View()
		defer v.Close()
		return with(v.Lookup(ctx, []store.Key{{Counter: "page:a:1"}, {Counter: "page:a:1", Shard: store.RecordKey}}))
	}},
	"Series": {"day", func(ctx context.Context, s *full) error {
		v := s.View()
		defer v.Close()
		return with(v.Series(ctx, []store.Record{{Counter: "page:a:1", Shards: 1}}, 0, wire.MinuteOf(wire.MaxTime)))
	}},
	"ShardPage": {"record", func(ctx context.Context, s *full) error { return with(s.ShardPage(ctx, "", "", 100)) }},
	"Sums":      {"record shard", func(ctx context.Context, s *full) error { return s.sums(ctx, &store.SumsQuery{}) }},
	"Sums of minutes": {"record day", func(ctx context.Context, s *full) error {
		return s.sums(ctx, &store.SumsQuery{From: 1, To: wire.MinuteOf(s.time) + store.DayMinutes})
	}},
	"MoveSeries": {"shard", func(ctx context.Context, s *full) error {
		if s.Limits().Ring.Buckets == 0 {
			return errSkipped
		}
		return with(s.MoveSeries(ctx))
	}},
	"SweepSeries": {"", func(ctx context.Context, s *full) error { return s.SweepSeries(ctx) }},
	"Ranges":      {"indexrange", func(ctx context.Context, s *full) error { return with(s.Ranges(ctx, s.index.Number)) }},
	"SwapRanges": {"indexrange", func(ctx context.Context, s *full) error {
		next := s.place
		next.Round++
		return s.SwapRanges(ctx, []store.IndexRange{s.place}, []store.IndexRange{next})
	}},
	"Ungrouped": {"shard", func(ctx context.Context, s *full) error { return with(s.Ungrouped(ctx, &s.index, &s.place, "", 10)) }},
	"SetRemainders": {"indexrange", func(ctx context.Context, s *full) error {
		return s.SetRemainders(ctx, &s.place, []store.GroupRemainder{{Group: "=sites:a", Remainder: int128.Of(7)}})
	}},
	"RemaindersOf": {"remainder", func(ctx context.Context, s *full) error { return with(s.RemaindersOf(ctx, &s.place, "", 10)) }},
	"DropGrouped":  {"shard", func(ctx context.Context, s *full) error { return with(s.DropGrouped(ctx, &s.index, &s.place, "", 10)) }},
	"DropGroups": {"record", func(ctx context.Context, s *full) error {
		if _, err := s.ChangeRules(ctx, store.RuleChange{Index: &store.IndexChange{Step: store.DeleteIndex, Index: s.index}}); err != nil {
			return err
		}
		for range 3 { // groups, and then their remainders
			if _, err := s.DropGroups(ctx, &s.index, 10); err != nil {
				return err
			}
		}
		return nil
	}},
	"JournalRecords": {"", func(ctx context.Context, s *full) error {
		v := s.JournalView()
		defer v.Close()
		return with(v.JournalRecords(ctx, store.JournalQuery{Limit: 10}))
	}},
	"JournalRows": {"", func(ctx context.Context, s *full) error {
		v := s.JournalView()
		defer v.Close()
		return with(v.JournalRows(ctx, "a", store.JournalQuery{Limit: 10, Last: true, Settled: true}))
	}},
	"ReplaceRecord": {"journal", func(ctx context.Context, s *full) error {
		old, next := s.record(), s.record()
		next.Data = []byte("next")
		return s.ReplaceRecord(ctx, &old, &next, nil)
	}},
	"Sweep": {"", func(ctx context.Context, s *full) error { return s.Sweep(ctx) }},
	"NextValues": {"sequence", func(ctx context.Context, s *full) error {
		return with(s.NextValues(ctx, "sequence", []store.Take{{ID: wire.SequenceID("sequence", "x"), Count: 1, At: s.time, ExpireAt: s.time}}))
	}},
	"Sequence":       {"sequence", func(ctx context.Context, s *full) error { return with(s.Sequence(ctx, "sequence")) }},
	"DeleteSequence": {"sequence", func(ctx context.Context, s *full) error { return with(s.DeleteSequence(ctx, "sequence")) }},
	"Open": {"meta", func(ctx context.Context, s *full) error {
		other, err := protocol.Open(ctx, s.db.Open(), s.cfg)
		if err == nil {
			err = other.Close()
		}
		return err
	}},
}

var errSkipped = errors.New("skipped")

func (s *full) sums(ctx context.Context, q *store.SumsQuery) error {
	q.Index = &s.index
	return with(s.Store.Sums(ctx, q, func(*store.CounterSum) error { return nil }))
}

// A call says so if the database fails, at whatever step: there is no answer without all of its rows, and no change that was made in part
// only is called made.
func TestCallsReportErrors(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call, c := range calls {
				s := fill(t, l)
				for step, reached := 1, true; reached; step++ {
					n := 0
					reached = false
					s.db.OnCall(func(*memory.Call) (a memory.Answer) {
						if n++; n == step {
							a.Err, reached = errLost, true
						}
						return a
					})
					if err := c.call(t.Context(), s); err == nil && reached && call != "Open" || err != nil && !reached && !errors.Is(err, errSkipped) {
						t.Errorf("%s, whose step %d fails (%t): got %v", call, step, reached, err)
					}
				}
			}
		})
	}
}

// looks are calls that read more than once.
var looks = map[string]func(ctx context.Context, s *full) (any, error){
	"a view": func(ctx context.Context, s *full) (any, error) {
		v := s.JournalView()
		defer v.Close()
		values, err := v.Lookup(ctx, []store.Key{{Counter: "page:a:1"}, {Counter: "page:a:1", Shard: store.RecordKey}})
		buckets, seriesErr := v.Series(ctx, []store.Record{{Counter: "page:a:1", Shards: 1}}, 0, wire.MinuteOf(wire.MaxTime))
		records, listErr := v.List(ctx, "", "", 100)
		page, journalErr := v.JournalRecords(ctx, store.JournalQuery{Limit: 100})
		return []any{values, buckets, records, page.Records}, errors.Join(err, seriesErr, listErr, journalErr)
	},
	"a survey": func(ctx context.Context, s *full) (any, error) {
		page, err := s.ShardPage(ctx, "", "", 100)
		return []any{page.Shards, page.Records}, err
	},
	"sums":           func(ctx context.Context, s *full) (any, error) { return s.sumsOf(ctx, &store.SumsQuery{}) },
	"sums of groups": func(ctx context.Context, s *full) (any, error) { return s.sumsOf(ctx, &store.SumsQuery{Groups: true}) },
	"sums of minutes": func(ctx context.Context, s *full) (any, error) {
		return s.sumsOf(ctx, &store.SumsQuery{From: 1, To: wire.MinuteOf(s.time) + store.DayMinutes})
	},
}

func (s *full) sumsOf(ctx context.Context, q *store.SumsQuery) (map[string]int64, error) {
	q.Index = &s.index
	found := make(map[string]int64)
	_, err := s.Store.Sums(ctx, q, func(c *store.CounterSum) error { found[string(c.Counter)] = c.Sum; return nil })
	return found, err
}

// count grows and folds to an old and to a new counter, with a record.
func (s *full) count(t *testing.T, n int) {
	fresh := fmt.Sprintf("page:a:new %d", n)
	if err := s.Grow(t.Context(), []store.Growth{{Counter: fresh, Shards: 1}, {Counter: "page:a:1", Shards: n}}); err != nil {
		t.Error(err)
	}
	foldMinutes(t, s, fresh, wire.MinuteOf(s.time))
	foldMinutes(t, s, "page:a:1", wire.MinuteOf(s.time)-9*store.DayMinutes, wire.MinuteOf(s.time))
	fold(t, s, "=sites:a", 1)
	r := s.record()
	r.Key[15] += byte(n)
	if _, err := s.Fold(t.Context(), &store.Commit{Records: []store.JournalRecord{r}, Rules: store.AnyRules}); err != nil {
		t.Error(err)
	}
}

// A look shows one moment: folds between any two of its reads are in the next look, and in none before.
func TestLooksAreOfOneMoment(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, look := range looks {
				s := fill(t, l)
				for step, reached := 2, true; reached && step < 10; step++ { // each count makes the next look longer
					s.db.Around(nil)
					want, err := look(t.Context(), s)
					n := 0
					reached = false
					s.db.OnCall(func(*memory.Call) memory.Answer {
						if n++; n == step {
							reached = true
							s.count(t, step)
						}
						return memory.Answer{}
					})
					got, lookErr := look(t.Context(), s)
					s.db.Around(nil)
					if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(store.Shard{}, "Updated")); diff != "" || err != nil || lookErr != nil {
						t.Errorf("%s, before its read %d: %v, %v (-want +got):\n%s", what, step, err, lookErr, diff)
					}
				}
			}
		})
	}
}

// A row that cannot be read is an error of every call that needs it.
func TestCallsReportDamage(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call, c := range calls {
				for _, kind := range strings.Fields(c.kinds) {
					s := fill(t, l)
					for _, key := range s.keys {
						if key.Kind == kindOf(kind) {
							s.db.Damage(key, "a flipped bit")
						}
					}
					if kind == "meta" {
						s.db.Damage(engine.Key{Kind: kindOf("meta"), Name: "meta"}, "a flipped bit")
					}
					s.db.Around(nil)
					if err := c.call(t.Context(), s); err == nil {
						t.Errorf("%s, with rows of kind %s that are damaged: no error", call, kind)
					}
				}
			}
		})
	}
}

// A call after its context's end, or after Close, is an error.
func TestCallsAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		s := fill(t, l)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{ended, t.Context()} {
			for call, c := range calls {
				if call != "Open" && !(l.Expires && strings.HasPrefix(call, "Sweep")) {
					if err := c.call(ctx, s); err == nil {
						t.Errorf("%s: %s: no error", name, call)
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// setMeta changes the meta row as another program would.
func (s tested) setMeta(t *testing.T, c engine.Change) {
	t.Helper()
	c.Key = engine.Key{Kind: kindOf("meta"), Name: "meta"}
	if _, err := s.db.Open().Transact(t.Context(), false, func(tx engine.Tx) error { tx.Change(&c); return nil }); err != nil {
		t.Fatal(err)
	}
}

// A process whose database is replaced below it notices. A process that finds rows of another format does not open them.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	s, other := open(t, limits["postgresql"]), open(t, limits["postgresql"])
	v := other.db.Open().View()
	defer v.Close()
	rows, err := v.Get(t.Context(), []engine.Key{{Kind: kindOf("meta"), Name: "meta"}}, engine.All)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]engine.Change{"gone": {Op: engine.Delete}, "another": {Set: rows[0].Fields, Data: rows[0].Data}} {
		s.setMeta(t, c)
		if _, err := s.Check(t.Context()); !errors.Is(err, store.ErrOtherDatabase) {
			t.Errorf("Check of a database that is %s: got %v", name, err)
		}
		if _, err := s.SetWindow(t.Context(), 3*time.Hour); !errors.Is(err, store.ErrOtherDatabase) {
			t.Errorf("SetWindow of a database that is %s: got %v", name, err)
		}
	}
	for from, to := range map[string]string{`"format":`: `"format":1`, `"window":`: `"window":-`, `"id":"`: `"id":"","name":"`, `"version":1`: `"version":0`} {
		s.setMeta(t, engine.Change{Data: []byte(strings.Replace(string(rows[0].Data), from, to, 1))})
		if _, err := protocol.Open(t.Context(), s.db.Open(), s.cfg); !errors.Is(err, store.ErrDeployment) {
			t.Errorf("opened a database with %s: got %v", to, err)
		}
	}
}

// A database that can only be read opens, and says so.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	s.db.Fail(engine.ErrReadOnly, 0)
	s = s.again(t)
	if checked, err := s.Check(t.Context()); !errors.Is(err, store.ErrReadOnly) || checked.Settings.Version != 1 {
		t.Errorf("Check: got %+v, %v", checked, err)
	}
	s.db.Fail(engine.ErrOtherDatabase, 0)
	if _, err := protocol.Open(t.Context(), s.db.Open(), s.cfg); !errors.Is(err, store.ErrOtherDatabase) {
		t.Errorf("Open of another database: got %v", err)
	}
}

// A transaction that always meets others ends, and has changed nothing.
func TestConflictsEnd(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	n := 0
	s.db.OnCall(func(c *memory.Call) (a memory.Answer) {
		if c.Op == memory.Transact {
			n++
			a.Err = engine.ErrConflict
		}
		return a
	})
	if _, err := s.SetWindow(t.Context(), 3*time.Hour); !errors.Is(err, store.ErrContended) || !errors.Is(err, countmill.ErrUnavailable) || n < 2 {
		t.Errorf("after %d conflicts: got %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.SetWindow(ctx, 3*time.Hour); err == nil {
		t.Error("no error after the end of a caller")
	}
}

// An error of a read in a transaction says once that nothing was applied.
func TestNotAppliedIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := open(t, limits["postgresql"])
	ctx, cancel := context.WithCancel(t.Context())
	s.db.OnCall(func(c *memory.Call) (a memory.Answer) {
		if c.Op == memory.TxGet {
			cancel()
			a.Err = fmt.Errorf("%w: no connection: %w", engine.ErrNotApplied, ctx.Err())
		}
		return a
	})
	_, err := s.SetWindow(ctx, 3*time.Hour)
	if want := "not applied: no connection: context canceled"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A view begins after the moments before it.
func TestMoments(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	fold(t, s, "a", 1)
	if at := s.Moment(); !look(t, s, "a").At.After(at) {
		t.Errorf("a view is not after the moment %s before it", at)
	}
}

// A call that waits for a change of rules, and a change that waits for folds, end with their callers.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	for _, held := range []memory.Op{memory.Transact, memory.Commit} {
		s := open(t, limits["pebble"])
		inside, goOn := make(chan struct{}), make(chan struct{})
		s.db.OnCall(func(c *memory.Call) memory.Answer {
			if c.Op == held {
				close(inside)
				<-goOn
			}
			return memory.Answer{}
		})
		change := store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: store.MinKeep}}
		done := make(chan error, 1)
		go func() {
			if held == memory.Transact {
				done <- with(s.ChangeRules(t.Context(), change))
				return
			}
			done <- with(s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}, Rules: store.AnyRules}))
		}()
		<-inside
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := s.ChangeRules(ctx, change); !errors.Is(err, store.ErrNotApplied) {
			t.Errorf("a change of rules: got %v", err)
		}
		if held == memory.Transact {
			if _, err := s.Fold(ctx, &store.Commit{Rules: store.AnyRules}); !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("a fold during a change of rules: got %v", err)
			}
			if _, err := s.Check(ctx); err == nil {
				t.Error("a check during a change of rules: no error")
			}
		}
		cancel()
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
