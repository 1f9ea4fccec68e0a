package aggregator_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A machine may be suspended. Wall clocks advance meanwhile, the store's too, but the monotonic
// clock does not.
type laptop struct {
	mu    sync.Mutex
	slept time.Duration
}

func (l *laptop) suspend(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slept += d
}

func (l *laptop) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.slept)
}

func (l *laptop) env() *clock.Env { return &clock.Env{Wall: l.now} }

func (l *laptop) store(t *testing.T, window time.Duration) *fakestore.Store {
	return strict(t, fakestore.Options{Window: window, Clock: l.now})
}

// The settings are from before the suspension, and the marker has expired.
func TestNoCommitWithMarkersByOldSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &laptop{}
		r := run(t, l.store(t, time.Hour), clock.With(aggregator.Config{}, l.env()))
		p, at := anonymous(one("a", 1)), l.now()
		r.sendAt(t, at, p)
		settle(5 * time.Second)
		r.want(t, map[string]int64{"a": 1})
		l.suspend(4 * time.Hour)
		r.store.Expire()
		m := r.sendAt(t, at, p) // its acknowledgement was lost
		settle(500 * time.Millisecond)
		if err := r.agg.Ready(); acked(m) || len(r.reasons()) > 0 {
			t.Errorf("settled before the settings were read again (ready: %v), dead letters %q", err, r.reasons())
		}
		settle(2 * time.Second)
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); len(got) != 1 || !acked(m) || r.agg.Ready() != nil {
			t.Errorf("dead letters %q, acknowledged %v, ready: %v; want one, within seconds", got, acked(m), r.agg.Ready())
		}
	})
}

// The process is suspended between its first look at the settings and its commit.
func TestTheSettingsAreLookedAtRightBeforeTheCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &laptop{}
		st := l.store(t, time.Hour)
		st.On(fakestore.Applied, func(int) fakestore.Answer {
			l.suspend(2 * time.Hour)
			return fakestore.OK
		})
		r := run(t, st, clock.With(aggregator.Config{}, l.env()))
		m := r.sendAt(t, l.now(), anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.FoldCalls(); got != 0 || !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("%d commits, acknowledged %v, dead letters %q", got, acked(m), r.reasons())
		}
	})
}

// The settings are read again while markers are looked up, and then refuse the part.
func TestAPartRefusedMeanwhileIsNotCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := windowed(t, time.Hour)
		st.On(fakestore.Applied, func(int) fakestore.Answer {
			time.Sleep(20 * time.Second)
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{CommitTimeout: time.Minute})
		m := r.sendAt(t, time.Now().Add(-time.Hour+5*time.Second), anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.FoldCalls(); got != 0 || !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("%d commits, acknowledged %v, dead letters %q", got, acked(m), r.reasons())
		}
	})
}

// hanging is a store whose checks a test can delay.
type hanging struct {
	*fakestore.Store
	before, after func()
}

func (s hanging) Check(ctx context.Context) (store.Checked, error) {
	s.before()
	checked, err := s.Store.Check(ctx)
	s.after()
	return checked, err
}

// An answer that arrived before a suspension and is read after it is as old as its question.
func TestAnAnswerIsAsOldAsItsQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &laptop{}
		st := l.store(t, time.Hour)
		p, at := anonymous(one("a", 1)), l.now()
		var suspends atomic.Bool
		seen := hanging{st, func() {}, func() {
			if suspends.CompareAndSwap(true, false) {
				l.suspend(4 * time.Hour)
				st.Expire()
			}
		}}
		r := runOver(t, st, seen, clock.With(aggregator.Config{}, l.env()))
		r.sendAt(t, at, p)
		settle(9 * time.Second)
		r.want(t, map[string]int64{"a": 1})
		suspends.Store(true)
		settle(1500 * time.Millisecond) // the second check was answered, and the machine suspended
		if suspends.Load() {
			t.Fatal("no check")
		}
		m := r.sendAt(t, at, p)
		settle(5 * time.Second)
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); len(got) != 1 || !acked(m) {
			t.Errorf("dead letters %q, acknowledged %v", got, acked(m))
		}
	})
}

// A check hangs for longer than settings may be old.
func TestWhileACheckHangsCommitsWithMarkersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var hangs atomic.Bool
		seen := hanging{st, func() {
			if hangs.Load() {
				time.Sleep(3 * time.Minute)
			}
		}, func() {}}
		r := runOver(t, st, seen, aggregator.Config{CommitTimeout: 5 * time.Minute, Linger: -1})
		settle(time.Second)
		hangs.Store(true)
		settle(50 * time.Second)
		in := r.send(t, anonymous(one("a", 1)))
		settle(8 * time.Second)
		if !acked(in) {
			t.Error("not folded by settings of less than a minute")
		}
		settle(4 * time.Second)
		late := r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if err := r.agg.Ready(); acked(late) || err == nil || !strings.Contains(err.Error(), "settings of the database") {
			t.Errorf("acknowledged %v by settings of two minutes; ready: %v", acked(late), err)
		}
		hangs.Store(false)
		settle(2 * time.Minute)
		if err := r.agg.Ready(); !acked(late) || err != nil {
			t.Errorf("acknowledged %v after the check was answered; ready: %v", acked(late), err)
		}
		r.want(t, map[string]int64{"a": 2})
	})
}

// Nothing repeats a part without a marker, so its age does not matter. But the rules of old settings
// may have changed, so the settings are read again first.
func TestWithoutMarkersOldSettingsAreReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &laptop{}
		st := strict(t, fakestore.Options{Window: time.Hour, Clock: l.now, CertainOutcome: true})
		r := run(t, st, clock.With(aggregator.Config{Linger: -1}, l.env()))
		settle(time.Second)
		held := r.sendAt(t, l.now(), anonymous(one("a", 1)))
		l.suspend(9 * 24 * time.Hour)
		m := r.sendAt(t, l.now(), anonymous(one("a", 1)))
		settle(100 * time.Millisecond)
		if acked(m) {
			t.Error("folded by settings from before the suspension")
		}
		settle(2 * time.Second)
		r.want(t, map[string]int64{"a": 2})
		if !acked(held) || !acked(m) {
			t.Errorf("acknowledged %v and %v", acked(held), acked(m))
		}
	})
}

// Markers expire by the window of the meta record, also if it is set while the aggregator runs.
func TestMarkersFollowTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := windowed(t, 24*time.Hour)
		var stay []time.Duration
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			for _, m := range c.Markers {
				stay = append(stay, time.Until(m.ExpireAt).Round(time.Minute))
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		for _, window := range []time.Duration{24 * time.Hour, time.Hour, 240 * time.Hour} {
			if _, err := st.SetWindow(t.Context(), window); err != nil {
				t.Fatal(err)
			}
			settle(11 * time.Second)
			r.send(t, anonymous(one("a", 1)))
			settle(6 * time.Second)
			if workers, err := st.Workers(t.Context()); err != nil || len(workers) != 1 || workers[0].Settings != r.agg.Settings().Version {
				t.Errorf("workers %+v, %v; want one with version %d", workers, err, r.agg.Settings().Version)
			}
		}
		if diff := cmp.Diff([]time.Duration{26 * time.Hour, 3 * time.Hour, 242 * time.Hour}, stay); diff != "" {
			t.Errorf("markers stay for other than two hours longer than the window (-want +got):\n%s", diff)
		}
		if got := r.agg.Settings(); got.Version != 3 || got.Window != 240*time.Hour {
			t.Errorf("goes by version %d with a window of %s", got.Version, got.Window)
		}
	})
}

// With a longer window, an earlier delivery of the message may have been counted.
func TestAMessageBeyondTheWindowMayHaveBeenCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, windowed(t, 24*time.Hour), aggregator.Config{})
		for id, counter := range map[string]string{"1": `"a"`, "2": `""`} {
			old := time.Now().Add(-25 * time.Hour).Format(time.RFC3339)
			m := message.NewMessage(id, []byte(`{"counter":`+counter+`,"id":"x","time":"`+old+`"}`))
			m.Metadata.Set(wire.MetaBrokerID, id)
			m.Metadata.Set(wire.MetaPublished, time.Now().Format(time.RFC3339Nano))
			r.out <- m
			settle(time.Minute)
			if !acked(m) {
				t.Errorf("message %s is not acknowledged", id)
			}
		}
		for _, d := range r.store.DeadLetters() {
			if d.Maybe != strings.Contains(d.Reason, "time") {
				t.Errorf("maybe applied: %v, %s", d.Maybe, d.Reason)
			}
		}
		if got := len(r.store.DeadLetters()); got != 2 {
			t.Errorf("%d dead letters, want 2", got)
		}
	})
}

// A rule that came just now decides about the increments that come after ReadSettings.
func TestReadSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, fakestore.Options{})
		r := run(t, st, aggregator.Config{})
		settle(time.Second)
		keep := store.Retention{Quarters: 400 * 24 * time.Hour}
		set, err := st.ChangeRules(t.Context(), store.RuleChange{Pattern: "a", Keep: keep})
		if err != nil || r.agg.Settings().Version == set.Version {
			t.Fatalf("version %d, %v; want one that the aggregator does not know", set.Version, err)
		}
		began := time.Now()
		r.agg.ReadSettings(t.Context())
		if got := r.agg.Settings(); got.Version != set.Version || time.Since(began) > 0 {
			t.Errorf("got version %d after %s, want %d at once", got.Version, time.Since(began), set.Version)
		}
		// A store that does not answer: the caller goes on when its context ends.
		st.On(fakestore.Check, func(int) fakestore.Answer { return fakestore.SlowNotApplied })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 { // during the check, and before it
			r.agg.ReadSettings(ctx)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("returned after %s, want the second of its context", got)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
		r.agg.ReadSettings(t.Context())
	})
}

// A standby is promoted that lacks a record. The aggregator remembers that record, and was not told.
func TestARestoredDatabaseLacksRecords(t *testing.T) {
	for name, opts := range map[string]fakestore.Options{"asks": {}, "grows in folds": {GrowsInFold: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts.Errorf = t.Errorf
				r := run(t, fakestore.New(opts), aggregator.Config{})
				r.send(t, anonymous(one("a", 1)))
				settle(5 * time.Second)
				r.want(t, map[string]int64{"a": 1})
				for id, kind := range protocol.Kinds {
					if key := (engine.Key{Kind: engine.KindID(id), Name: "a"}); kind.Name == "record" {
						if _, err := r.store.DB.Open().Commit(t.Context(), &engine.Commit{Changes: engine.Changes(engine.Change{Key: key, Op: engine.Delete})}); err != nil {
							t.Fatal(err)
						}
					}
				}
				r.store.DB.Fail(nil, 1)
				m := r.send(t, anonymous(one("a", 2)))
				settle(5 * time.Second)
				if n := r.store.Record("a").Shards; n != 1 || !acked(m) {
					t.Errorf("the record names %d shards, want 1; acknowledged: %t", n, acked(m))
				}
			})
		})
	}
}
