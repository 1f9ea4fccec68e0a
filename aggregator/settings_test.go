package aggregator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// hanging is a store whose checks a test can delay.
type hanging struct {
	*protocoltest.Store
	before, after func()
}

func (s hanging) Check(ctx context.Context) (store.Checked, error) {
	s.before()
	checked, err := s.Store.Check(ctx)
	s.after()
	return checked, err
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
		st := strict(t, protocoltest.Options{})
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
		st.On("check", func(int) protocoltest.Answer { return protocoltest.SlowNotApplied })
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
	for name, opts := range map[string]protocoltest.Options{"asks": {}, "grows in folds": {GrowsInFold: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts.Errorf = t.Errorf
				r := run(t, protocoltest.New(opts), aggregator.Config{})
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
