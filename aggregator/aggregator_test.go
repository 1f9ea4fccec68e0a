package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A rig is an aggregator between a test bus and a fake store, in virtual time.
type rig struct {
	*testBus
	store *fakestore.Store
	agg   *aggregator.Aggregator
	// wait returns the error of Run; finish stops it first.
	wait, finish func() error
}

// run starts an aggregator and stops it when the test ends. It must be called in a
// synctest bubble.
func run(t *testing.T, st *fakestore.Store, cfg aggregator.Config) *rig {
	t.Helper()
	return runOver(t, st, st, cfg)
}

// runOver wraps the store of the aggregator.
func runOver(t *testing.T, st *fakestore.Store, seen aggregator.Store, cfg aggregator.Config) *rig {
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

func small(t *testing.T) *fakestore.Store { return strict(t, fakestore.Options{Entities: 25}) }
func large(t *testing.T) *fakestore.Store { return strict(t, fakestore.Options{}) }

// certain is a store whose outcomes are certain. Its bus delivers once.
func certain(t *testing.T) *fakestore.Store {
	return strict(t, fakestore.Options{CertainOutcome: true})
}

// windowed is a store with that deduplication window.
func windowed(t *testing.T, window time.Duration) *fakestore.Store {
	return strict(t, fakestore.Options{Window: window})
}

// strict is a store that fails the test if an aggregator breaks a rule of the contract.
func strict(t *testing.T, o fakestore.Options) *fakestore.Store {
	o.NeedRecords, o.Exclusive, o.Errorf = true, true, t.Errorf
	return fakestore.New(o)
}

func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func TestAMessageIsAcknowledgedOnlyAfterItsCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		gate := make(chan struct{})
		st.OnFold(func(int, *store.Commit) fakestore.Answer {
			<-gate
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{CommitTimeout: time.Hour})
		m := r.send(t, anonymous(one("a", 2), one("b", 3)))
		settle(time.Second)
		if acked(m) {
			t.Error("acknowledged while its commit is under way")
		}
		close(gate)
		settle(time.Second)
		if !acked(m) {
			t.Error("not acknowledged after its commit")
		}
		r.want(t, map[string]int64{"a": 2, "b": 3})
		if err := r.finish(); err != nil {
			t.Error(err)
		}
	})
}

func TestAMessageWaitsForAllItsParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := small(t)
		gate := make(chan struct{})
		st.OnFold(func(n int, _ *store.Commit) fakestore.Answer {
			if n > 1 {
				<-gate
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{CommitTimeout: time.Hour, Commits: 1})
		var parts []wire.Part
		for p := range 3 { // each fills a commit of its own
			var entries []wire.Entry
			for c := range wire.MaxEntries {
				entries = append(entries, one(fmt.Sprint(p, "-", c), 1))
			}
			parts = append(parts, anonymous(entries...))
		}
		m := r.send(t, parts...)
		for range 2 {
			settle(time.Second)
			if acked(m) {
				t.Error("acknowledged although a part is not applied")
			}
			select {
			case gate <- struct{}{}:
			default:
			}
		}
		settle(time.Second)
		if !acked(m) {
			t.Error("not acknowledged although all parts are applied")
		}
	})
}

func TestACopyOfAMessageCountsOnce(t *testing.T) {
	for name, between := range map[string]time.Duration{
		"in one window": 0, "after its commit": time.Second, "long after": 7 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				p, now := anonymous(one("a", 2)), time.Now()
				first := r.sendAt(t, now, p)
				settle(between)
				second := r.sendAt(t, now, p, anonymous(one("b", 1)))
				settle(time.Minute)
				if !acked(first) || !acked(second) {
					t.Errorf("acknowledged: %v, %v, want both", acked(first), acked(second))
				}
				r.want(t, map[string]int64{"a": 2, "b": 1})
				if got := r.agg.Stats().Duplicates; got != 1 {
					t.Errorf("%d duplicates counted, want 1", got)
				}
			})
		})
	}
}

func TestACopyWaitsForTheCommitUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		gate := make(chan struct{})
		var open atomic.Int32
		st.OnFold(func(int, *store.Commit) fakestore.Answer {
			if open.Add(1) > 1 {
				t.Error("one part id in two commits at once")
			}
			defer open.Add(-1)
			<-gate
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{Commits: 4, CommitTimeout: time.Hour})
		p := anonymous(one("a", 2))
		r.send(t, p)
		settle(time.Second)
		copy := r.send(t, p)
		settle(time.Second)
		if acked(copy) {
			t.Error("a copy was acknowledged before the part was applied")
		}
		close(gate)
		settle(time.Second)
		if !acked(copy) {
			t.Error("the copy is not acknowledged with the part")
		}
		r.want(t, map[string]int64{"a": 2})
	})
}

// Each row of the table of answers in doc.go, with commits of several parts.
func TestEveryAnswerOfTheStoreCountsOnce(t *testing.T) {
	for name, answer := range map[string]fakestore.Answer{
		"marker exists, none found": fakestore.MarkerExists,
		"deployment":                fakestore.Deployment,
		"not applied":               fakestore.NotApplied,
		"unknown, applied":          fakestore.UnknownApplied,
		"unknown, not applied":      fakestore.UnknownNotApplied,
		"slow, applied":             fakestore.SlowApplied,
		"slow, not applied":         fakestore.SlowNotApplied,
	} {
		for _, times := range []int{1, 2, 5, 20} {
			t.Run(fmt.Sprintf("%s %d times", name, times), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st := small(t)
					st.OnFold(func(n int, _ *store.Commit) fakestore.Answer {
						if n <= times {
							return answer
						}
						return fakestore.OK
					})
					r := run(t, st, aggregator.Config{Commits: 2})
					want := make(map[string]int64)
					for i := range 40 {
						counter := fmt.Sprint("c", i%15)
						r.send(t, anonymous(one(counter, int64(i+1)), one("hot", 1)))
						want[counter] += int64(i + 1)
						want["hot"]++
					}
					settle(time.Hour)
					r.want(t, want)
					if err := r.finish(); err != nil {
						t.Error(err)
					}
					if got := r.reasons(); len(got) > 0 {
						t.Errorf("dead letters: %q", got)
					}
				})
			})
		}
	}
}

func TestOurOwnAmbiguousRetryIsNoDuplicate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(n int, _ *store.Commit) fakestore.Answer {
			if n == 1 {
				return fakestore.UnknownApplied
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("a", 1)))
		settle(time.Hour)
		r.want(t, map[string]int64{"a": 1})
		if got := r.agg.Stats().Duplicates; got != 0 {
			t.Errorf("%d duplicates counted, want 0", got)
		}
	})
}

func TestOnlyThePartThatIsRefusedBecomesADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			for _, a := range c.Adds {
				if a.Counter == "poison" {
					return fakestore.Refused
				}
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		want := make(map[string]int64)
		for i := range 30 {
			r.send(t, anonymous(one(fmt.Sprint("c", i), 1)))
			want[fmt.Sprint("c", i)] = 1
		}
		bad := r.send(t, anonymous(one("poison", 1), one("c1", 100)))
		settle(time.Minute)
		r.want(t, want)
		if got := r.reasons(); len(got) != 1 {
			t.Errorf("dead letters: %q, want one", got)
		}
		if !acked(bad) {
			t.Error("the message of a dead letter is not acknowledged")
		}
	})
}

func TestNothingIsAcknowledgedBeforeItsDeadLetterIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On(fakestore.PutDeadLetters, fakestore.Script(fakestore.UnknownNotApplied, fakestore.UnknownNotApplied))
		r := run(t, st, aggregator.Config{})
		m := r.sendBytes(t, []byte("garbage"))
		synctest.Wait()
		if acked(m) {
			t.Error("acknowledged although the dead letter is not written")
		}
		settle(time.Minute)
		if got := st.DeadLetters(); !acked(m) || len(got) != 1 || string(got[0].Payload) != "garbage" {
			t.Errorf("acknowledged %v, dead letters %v, want the garbage", acked(m), got)
		}
	})
}

func TestDeadLettersAreLimitedInRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 10})
		for i := range 100 {
			r.sendBytes(t, fmt.Appendf(nil, "garbage %d", i))
		}
		settle(2 * time.Second)
		if got := len(r.store.DeadLetters()); got > 31 {
			t.Errorf("%d dead letters after 2 s at 10 a second, burst 10", got)
		}
		r.send(t, anonymous(one("a", 1)))
		settle(time.Second)
		r.want(t, map[string]int64{"a": 1})
		settle(20 * time.Second)
		if got := len(r.store.DeadLetters()); got != 100 {
			t.Errorf("%d dead letters in the end, want 100", got)
		}
	})
}

func TestAnIDReusedIsADeadLetterAndTheFirstWins(t *testing.T) {
	for name, between := range map[string]time.Duration{"together": 0, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				inc := func(delta int64) wire.Part {
					return wire.CutIdentified(countmill.Increment{Counter: "a", Delta: delta, ID: "x"})
				}
				r.send(t, inc(1))
				settle(between)
				second := r.send(t, inc(2))
				settle(time.Hour)
				r.want(t, map[string]int64{"a": 1})
				if got := r.reasons(); len(got) != 1 || !strings.Contains(got[0], "id reused") || !acked(second) {
					t.Errorf("dead letters %q, acknowledged %v, want one: id reused", got, acked(second))
				}
			})
		})
	}
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

// A longer request under a used key has a head that is refused, and followers with new ids.
func TestAKeyReusedForALongerRequestCountsNothingOfIt(t *testing.T) {
	for name, between := range map[string]time.Duration{"together": 0, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				want := make(map[string]int64)
				for i := range 10 {
					want[fmt.Sprint("c", i)] = 1
				}
				r.send(t, keyed(t, "k", 10, 1)...)
				settle(between)
				second := r.send(t, keyed(t, "k", 100, 7, "e1", "e2")...)
				settle(time.Hour)
				r.want(t, want)
				if got := r.reasons(); len(got) != 1 || !acked(second) {
					t.Errorf("dead letters %q, acknowledged %v, want one for the whole request", got, acked(second))
				}
				b, err := wire.Decode(r.store.DeadLetters()[0].Payload)
				if err != nil || b.Entries() != 102 {
					t.Errorf("the dead letter holds %v, %v, want all 102 entries", b, err)
				}
			})
		})
	}
}

func TestARepeatedRequestCountsItsMissingParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := small(t)
		r := run(t, st, aggregator.Config{})
		parts := keyed(t, "k", 100, 3, "e1")
		r.send(t, parts[:2]...) // as if the followers had been in a message that was lost
		settle(time.Minute)
		m := r.send(t, parts...)
		again := r.send(t, parts...)
		settle(time.Minute)
		want := map[string]int64{"ids": 3}
		for i := range 100 {
			want[fmt.Sprint("c", i)] = 3
		}
		r.want(t, want)
		if !acked(m) || !acked(again) {
			t.Error("a repeated request is not acknowledged")
		}
	})
}

func TestBeyondTheWindowIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, windowed(t, 24*time.Hour), aggregator.Config{})
		now := time.Now()
		r.sendAt(t, now.Add(-25*time.Hour), anonymous(one("old", 1)))
		r.sendAt(t, now.Add(-23*time.Hour), anonymous(one("young", 1)))
		r.sendAt(t, now.Add(25*time.Hour), anonymous(one("ahead", 1)))
		late := wire.CutIdentified(countmill.Increment{Counter: "late", Delta: 1, ID: "x", Time: now.Add(-25 * time.Hour)})
		r.sendAt(t, now, late)
		settle(time.Minute)
		r.want(t, map[string]int64{"young": 1})
		if got := r.reasons(); len(got) != 3 {
			t.Errorf("dead letters %q, want 3", got)
		}
	})
}

// The window is checked before every attempt, not only on receipt.
func TestAPartThatWaitsPastTheWindowIsNotTried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := windowed(t, time.Hour)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.UnknownNotApplied })
		r := run(t, st, aggregator.Config{})
		m := r.send(t, anonymous(one("a", 1)))
		settle(59 * time.Minute)
		if got := r.reasons(); len(got) != 0 || acked(m) {
			t.Fatalf("within the window: dead letters %q, acknowledged %v", got, acked(m))
		}
		settle(2 * time.Minute)
		st.OnFold(nil)
		settle(time.Hour)
		letters := st.DeadLetters()
		if len(letters) != 1 || !letters[0].Maybe || !acked(m) {
			t.Errorf("dead letters %+v, acknowledged %v, want one with Maybe", letters, acked(m))
		}
		r.want(t, map[string]int64{})
	})
}

// unlimited is a store that takes commits of any size.
type unlimited struct{ *fakestore.Store }

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
		see                    func(*fakestore.Store) aggregator.Store
		read, collisions       int // in the first minute
		readLater, refusedLate int // and with the parts after it
	}{
		"a limit":  {func(s *fakestore.Store) aggregator.Store { return s }, 2, 0, 3, 1},
		"no limit": {func(s *fakestore.Store) aggregator.Store { return unlimited{s} }, 1, 1, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				r := runOver(t, st, tc.see(st), aggregator.Config{})
				check := func(read, collisions int) {
					t.Helper()
					if got := st.Counts(); got.MarkersRead != read || got.Collisions != collisions {
						t.Errorf("%d markers read and %d commits refused, want %d and %d", got.MarkersRead, got.Collisions, read, collisions)
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
				st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
					for _, m := range c.Markers {
						expires = append(expires, m.ExpireAt)
					}
					return fakestore.OK
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

func TestWhileTheDeploymentIsWrongNothingIsLostOrTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.Deployment })
		r := run(t, st, aggregator.Config{})
		m := r.send(t, anonymous(one("a", 1)))
		settle(10 * time.Second)
		if r.agg.Ready() == nil {
			t.Error("ready although the store refuses the deployment")
		}
		select {
		case r.out <- nil:
			t.Error("takes messages although the store refuses the deployment")
		default:
		}
		settle(24 * time.Hour)
		st.OnFold(nil)
		settle(time.Minute)
		if !acked(m) || len(st.DeadLetters()) > 0 {
			t.Errorf("acknowledged %v, dead letters %v, want the increment counted", acked(m), st.DeadLetters())
		}
		r.want(t, map[string]int64{"a": 1})
		if err := r.agg.Ready(); err != nil {
			t.Errorf("not ready after recovery: %v", err)
		}
	})
}

func TestAStoreThatDoesNotCountStopsFolding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.NotCounted })
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

func TestAStopWaitsForTheCommitUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer {
			time.Sleep(5 * time.Second)
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		first := r.send(t, anonymous(one("a", 1)))
		settle(time.Second)
		second := r.send(t, anonymous(one("a", 1)))
		if err := r.finish(); err != nil {
			t.Error(err)
		}
		if !acked(first) || !acked(second) {
			t.Errorf("acknowledged %v, %v, want both", acked(first), acked(second))
		}
		r.want(t, map[string]int64{"a": 2})
	})
}

func TestADrainEndsInTimeAndGivesTheRestBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.SlowNotApplied })
		r := run(t, st, aggregator.Config{DrainTimeout: 3 * time.Second})
		m := r.send(t, anonymous(one("a", 1)))
		started := time.Now()
		err := r.finish()
		if took := time.Since(started); err == nil || took > 4*time.Second {
			t.Errorf("Run returned %v after %s, want an error after 3 s", err, took)
		}
		if acked(m) || !nacked(m) {
			t.Error("the message was not given back")
		}
	})
}

// A store with GrowsInFold is never asked for a record. If a fold was not applied, the next one
// has to grow the counter again.
func TestGrowthInFoldsNeedsNoLookUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, fakestore.Options{Entities: 1 << 20, Commits: 1, Shards: 3, GrowsInFold: true})
		st.OnFold(fakestore.FoldScript(fakestore.UnknownNotApplied, fakestore.Deployment))
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("b", 2), one("a", 1)))
		settle(20 * time.Minute)
		r.send(t, anonymous(one("a", 10), one("c", 3)))
		settle(20 * time.Minute)
		r.want(t, map[string]int64{"a": 11, "b": 2, "c": 3})
		if n := st.Calls(fakestore.Shards) + st.Calls(fakestore.Grow); n != 0 {
			t.Errorf("%d calls for records, want none", n)
		}
		if got, stats := st.Counts().Raised, r.agg.Stats().RecordsWritten; got != 3 || stats != 3 {
			t.Errorf("wrote %d records and reports %d, want 3", got, stats)
		}
	})
}

func TestWithoutMarkersAnUnknownOutcomeEndsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := certain(t)
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			if len(c.Markers) > 0 {
				t.Error("a marker for an anonymous part")
			}
			return fakestore.UnknownApplied
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

func TestWithoutMarkersIdentifiedPartsStillHaveThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, certain(t), aggregator.Config{})
		p := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 1, ID: "x"})
		r.send(t, p, anonymous(one("a", 10)))
		settle(time.Hour)
		r.send(t, p, anonymous(one("a", 10)))
		settle(time.Hour)
		r.want(t, map[string]int64{"a": 21})
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

func TestAnotherDatabaseStopsFoldingUntilItIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var out bytes.Buffer
		r := run(t, st, aggregator.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		st.On(fakestore.Check, func(int) fakestore.Answer { return fakestore.Deployment })
		settle(15 * time.Second)
		if r.agg.Ready() == nil {
			t.Error("ready although the database is another one")
		}
		if n := strings.Count(out.String(), "folding paused"); n != 1 {
			t.Errorf("the log says %d times that folding is paused, want once:\n%s", n, out.String())
		}
		st.On(fakestore.Check, nil)
		settle(11 * time.Second)
		m := r.send(t, anonymous(one("a", 1)))
		settle(time.Second)
		if err := r.agg.Ready(); err != nil || !acked(m) {
			t.Errorf("after recovery: Ready %v, acknowledged %v", err, acked(m))
		}
		if !strings.Contains(out.String(), "folding resumed") {
			t.Errorf("the log does not say that folding is resumed:\n%s", out.String())
		}
	})
}

func TestLagIsTheAgeOfTheOldestHeldIncrement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		gate := make(chan struct{})
		st.OnFold(func(int, *store.Commit) fakestore.Answer { <-gate; return fakestore.OK })
		r := run(t, st, aggregator.Config{CommitTimeout: time.Hour, WorkerID: "w"})
		r.sendAt(t, time.Now().Add(-30*time.Second), anonymous(one("a", 1)))
		settle(10 * time.Second)
		worker := func() store.Worker {
			workers, err := st.Workers(t.Context())
			if err != nil || len(workers) != 1 {
				t.Fatalf("got workers %v, %v, want one", workers, err)
			}
			return workers[0]
		}
		if got := worker().Lag; got < 34*time.Second || got > 42*time.Second {
			t.Errorf("reported lag %s, want about 40 s", got)
		}
		close(gate)
		settle(10 * time.Second)
		if got := worker(); got.Lag != 0 || got.Entries != 1 || !got.Expires.After(time.Now()) {
			t.Errorf("after the commit: %+v, want no lag, one entry, not expired", got)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
		if got := worker(); got.Expires.After(time.Now()) {
			t.Errorf("after a stop the record expires at %s, want at once", got.Expires)
		}
	})
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := aggregator.New(newBus(), large(t), aggregator.Config{Shards: 1000, WindowMessages: -1, CommitTimeout: -1})
	for _, want := range []string{"Shards", "WindowMessages", "CommitTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
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

// A message of JSON whose increments cancel out has no parts.
func TestJSONThatCancelsOutIsAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		m := r.sendJSON(t, "m1", `[{"counter":"a"},{"counter":"a","delta":-1}]`, time.Now())
		settle(time.Second)
		if !acked(m) {
			t.Error("not acknowledged")
		}
	})
}
