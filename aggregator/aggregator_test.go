package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A rig is an aggregator between a test bus and a fake store, in virtual time.
type rig struct {
	*testBus
	store *protocoltest.Store
	agg   *aggregator.Aggregator
	// wait returns the error of Run; finish stops it first.
	wait, finish func() error
}

// run starts an aggregator and stops it when the test ends. It must be called in a
// synctest bubble.
func run(t *testing.T, st *protocoltest.Store, cfg aggregator.Config) *rig {
	t.Helper()
	return runOver(t, st, st, cfg)
}

// runOver wraps the store of the aggregator.
func runOver(t *testing.T, st *protocoltest.Store, seen aggregator.Store, cfg aggregator.Config) *rig {
	t.Helper()
	bus := newBus()
	bus.once = st.Limits().CertainOutcome
	agg, err := aggregator.New(bus, seen, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agg.Run(ctx) }()
	r := &rig{testBus: bus, store: st, agg: agg}
	r.wait = sync.OnceValue(func() error { return <-done })
	r.finish = func() error { cancel(); return r.wait() }
	t.Cleanup(func() { _ = r.finish() })
	synctest.Wait()
	return r
}

func (r *rig) want(t *testing.T, totals map[string]int64) {
	t.Helper()
	if diff := cmp.Diff(totals, r.store.Totals()); diff != "" {
		t.Errorf("totals differ (-want +got):\n%s", diff)
	}
}

func (r *rig) reasons() (reasons []string) {
	for _, d := range r.store.DeadLetters() {
		reasons = append(reasons, d.Reason)
	}
	return reasons
}

// bubble runs f in virtual time, from a time that a clock can show: bubbles begin in the year
// 2000.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	alone(t, f)
}

// alone is a bubble beside which no other test of the package runs.
func alone(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest.Add(store.MaxWindow)))
		f(t)
	})
}

func small(t *testing.T) *protocoltest.Store { return strict(t, protocoltest.Options{Entities: 25}) }
func large(t *testing.T) *protocoltest.Store { return strict(t, protocoltest.Options{}) }

// certain is a store whose outcomes are certain. Its bus delivers once.
func certain(t *testing.T) *protocoltest.Store {
	return strict(t, protocoltest.Options{CertainOutcome: true})
}

// windowed is a store with that deduplication window.
func windowed(t *testing.T, window time.Duration) *protocoltest.Store {
	return strict(t, protocoltest.Options{Window: window})
}

// strict is a store that fails the test if an aggregator breaks a rule of the contract.
func strict(t *testing.T, o protocoltest.Options) *protocoltest.Store {
	o.NeedRecords, o.Exclusive, o.Errorf = true, true, t.Errorf
	return protocoltest.New(o)
}

func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func keyed(t *testing.T, key string, counters, delta int, ids ...string) []wire.Part {
	t.Helper()
	var incs []countmill.Increment
	for i := range counters {
		incs = append(incs, countmill.Increment{Counter: fmt.Sprint("c", i), Delta: int64(delta)})
	}
	for _, id := range ids {
		incs = append(incs, countmill.Increment{Counter: "ids", Delta: int64(delta), ID: id})
	}
	parts, err := wire.CutRequest("", key, incs)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// unlimited is a store that takes commits of any size.
type unlimited struct{ *protocoltest.Store }

func (s unlimited) Limits() store.Limits {
	limits := s.Store.Limits()
	limits.Entities = 0
	return limits
}

// For a minute after the start, when the messages of a dead aggregator come back, markers are
// looked up before the commit. A store without a limit of entities is asked only after it has
// refused a commit.
func TestMarkersAreLookedUpFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		see                    func(*protocoltest.Store) aggregator.Store
		read, collisions       int // in the first minute
		readLater, refusedLate int // and with the parts after it
	}{
		"a limit":  {func(s *protocoltest.Store) aggregator.Store { return s }, 2, 0, 3, 1},
		"no limit": {func(s *protocoltest.Store) aggregator.Store { return unlimited{s} }, 1, 1, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				r := runOver(t, st, tc.see(st), aggregator.Config{})
				check := func(read, collisions int) {
					t.Helper()
					if got := st.Counts(); got.Read["marker"] != read || got.Collisions != collisions {
						t.Errorf("%d markers read and %d commits refused, want %d and %d", got.Read["marker"], got.Collisions, read, collisions)
					}
				}
				p := identified("x", 1)
				r.send(t, p)
				settle(10 * time.Second)
				copied := r.send(t, p)
				settle(10 * time.Second)
				check(tc.read, tc.collisions)
				settle(time.Minute)
				late := r.send(t, p)
				settle(10 * time.Second)
				check(tc.readLater, tc.refusedLate)
				if !acked(copied) || !acked(late) {
					t.Errorf("copies acknowledged: %v and %v", acked(copied), acked(late))
				}
				r.want(t, map[string]int64{"a": 1})
			})
		})
	}
}

// An id is remembered for the window after the fold, by the store's clock. A repeat may name a later
// time than the part that was folded, so the part's own time is not enough.
func TestMarkersOutliveTheWindow(t *testing.T) {
	for _, off := range []time.Duration{0, -12 * time.Hour, 12 * time.Hour} {
		t.Run("a clock off by "+off.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := windowed(t, 24*time.Hour)
				var expires []time.Time
				st.OnFold(func(_ int, c *store.Commit) protocoltest.Answer {
					for _, m := range c.Markers {
						expires = append(expires, m.ExpireAt)
					}
					return protocoltest.OK
				})
				r := run(t, st, clock.With(aggregator.Config{}, &clock.Env{Wall: func() time.Time { return time.Now().Add(off) }}))
				now := time.Now()
				r.sendAt(t, now.Add(-time.Hour), anonymous(one("a", 1)))
				settle(time.Second)
				r.sendAt(t, now.Add(3*time.Hour), anonymous(one("a", 1)))
				settle(time.Second)
				for i, from := range []time.Time{now, now.Add(3 * time.Hour)} {
					if got, want := expires[i], from.Add(26*time.Hour); got.Before(want) || got.After(want.Add(time.Second)) {
						t.Errorf("marker %d expires at %s, want max(now, T) + 26 h = %s", i, got, want)
					}
				}
			})
		})
	}
}

func TestAStoreThatDoesNotCountStopsFolding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.NotCounted })
		r := run(t, st, aggregator.Config{DrainTimeout: time.Second})
		m := r.send(t, anonymous(one("a", 1)))
		settle(time.Hour)
		if err := r.agg.Ready(); !errors.Is(err, store.ErrNotCounted) {
			t.Errorf("Ready: %v, want ErrNotCounted", err)
		}
		if acked(m) {
			t.Error("acknowledged what was not counted")
		}
		if got := st.FoldCalls(); got != 1 {
			t.Errorf("%d commits, want 1 and then none", got)
		}
	})
}

// A store with GrowsInFold is never asked for a record. If a fold was not applied, the next one
// has to grow the counter again.
func TestGrowthInFoldsNeedsNoLookUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Entities: 1 << 20, Commits: 1, Shards: 3, GrowsInFold: true})
		st.OnFold(protocoltest.FoldScript(protocoltest.UnknownNotApplied, protocoltest.Deployment))
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("b", 2), one("a", 1)))
		settle(20 * time.Minute)
		r.send(t, anonymous(one("a", 10), one("c", 3)))
		settle(20 * time.Minute)
		r.want(t, map[string]int64{"a": 11, "b": 2, "c": 3})
		if n := st.Calls("get record") + st.Calls("write record"); n != 0 {
			t.Errorf("%d calls for records, want none", n)
		}
		if got, stats := st.Counts().Wrote["record"], r.agg.Stats().RecordsWritten; got != 3 || stats != 3 {
			t.Errorf("wrote %d records and reports %d, want 3", got, stats)
		}
	})
}

func TestWithoutMarkersAnUnknownOutcomeEndsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := certain(t)
		st.OnFold(func(_ int, c *store.Commit) protocoltest.Answer {
			if len(c.Markers) > 0 {
				t.Error("a marker for an anonymous part")
			}
			return protocoltest.UnknownApplied
		})
		r := run(t, st, aggregator.Config{})
		m := r.send(t, anonymous(one("a", 1)))
		if err := r.wait(); err == nil {
			t.Error("Run goes on after an unknown outcome without a marker")
		}
		if acked(m) {
			t.Error("a message with an unknown outcome was acknowledged")
		}
	})
}

func TestAClosedBusEndsRunWithAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		r.close()
		if err := r.wait(); !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("Run returned %v, want ErrClosed", err)
		}
	})
}

// sendJSON delivers JSON from another program, with the metadata that a broker adds.
func (r *rig) sendJSON(t *testing.T, id, body string, published time.Time) *message.Message {
	t.Helper()
	m := message.NewMessage("", []byte(body))
	m.Metadata.Set(wire.MetaBrokerID, id)
	m.Metadata.Set(wire.MetaPublished, published.Format(time.RFC3339Nano))
	r.out <- m
	return m
}

func TestJSONOnTheTopicCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		now := time.Now()
		body := `[{"counter":"a","delta":2},{"counter":"a"},{"counter":"b","delta":-5,"id":"x"},{"counter":"gone"},{"counter":"gone","delta":-1}]`
		for range 3 {
			r.sendJSON(t, "m1", body, now)
			settle(time.Second)
		}
		r.sendJSON(t, "m2", body, now) // another message: b's increment has an id
		settle(time.Second)
		r.want(t, map[string]int64{"a": 6, "b": -5})
		if m := r.sendJSON(t, "m3", `[{"counter":"a"},{"counter":"a","delta":-1}]`, now); m != nil { // no parts are left
			if settle(time.Second); !acked(m) {
				t.Error("a message whose increments cancel out is not acknowledged")
			}
		}
	})
}

func TestBadJSONOnTheTopicIsOneDeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		now := time.Now()
		bad := []string{
			`[{"counter":"a"},{"counter":"a","delta":0}]`, `{"counter":"a"}{"counter":"b"}`, `{"count":"a"}`, `[]`,
		}
		for i, body := range bad {
			if m := r.sendJSON(t, fmt.Sprint(i), body, now); m != nil {
				settle(time.Second)
				if !acked(m) {
					t.Errorf("%s: not acknowledged", body)
				}
			}
		}
		r.sendBytes(t, []byte(`{"counter":"a"}`)) // without a broker's id
		for _, empty := range []string{"", " \n"} {
			r.sendJSON(t, "empty"+empty, empty, now)
		}
		settle(time.Second)
		r.want(t, map[string]int64{})
		if got := r.reasons(); len(got) != len(bad)+3 {
			t.Errorf("dead letters %q, want %d", got, len(bad)+3)
		}
	})
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	for budget, want := range map[time.Duration]bool{
		0: true, aggregator.MinCountWithin: true, aggregator.MaxCountWithin: true,
		-1: false, aggregator.MinCountWithin - 1: false, aggregator.MaxCountWithin + 1: false,
	} {
		_, err := aggregator.New(newBus(), large(t), aggregator.Config{CountWithin: budget})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "CountWithin must be from 100ms to 1m0s") {
			t.Errorf("%s: got %v, want it taken: %v", budget, err, want)
		}
	}
	if _, err := aggregator.New(newBus(), large(t), aggregator.Config{Linger: time.Second, CountWithin: time.Second}); err != nil {
		t.Errorf("a linger beside a budget: %v", err)
	}
	_, err := aggregator.New(newBus(), large(t), aggregator.Config{Shards: 1000, WindowMessages: -1, CommitTimeout: -1})
	for _, want := range []string{"Shards", "WindowMessages", "CommitTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}
