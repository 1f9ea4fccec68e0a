package admin_test

import (
	"context"
	"crypto/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A postOffice is a store, its letters and aggregators, in virtual time.
type postOffice struct {
	t       *testing.T
	store   *fakestore.Store
	letters *admin.DeadLetters
}

func inPostOffice(t *testing.T, f func(t *testing.T, p *postOffice)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &postOffice{t: t, store: fakestore.New(fakestore.Options{NeedRecords: true, Errorf: t.Errorf})}
		p.letters = admin.NewDeadLetters(p.store)
		f(t, p)
	})
}

// aggregate starts an aggregator, and returns what ends it in good order.
func (p *postOffice) aggregate() (stop func()) {
	bus, err := inproc.New(inproc.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := aggregator.New(bus, p.store, aggregator.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("aggregator: %v", err)
		}
		_ = bus.Close()
	}
	p.t.Cleanup(stop)
	return stop
}

func (p *postOffice) bury(d store.DeadLetter, parts ...wire.Part) {
	p.t.Helper()
	d.At = time.Now()
	d.Payload = wire.Append(nil, &wire.Batch{Time: d.Time, Parts: parts})
	if err := p.store.PutDeadLetters(p.t.Context(), []store.DeadLetter{d}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *postOffice) replay(asNew bool, key string) admin.DeadLetterOutcome {
	p.t.Helper()
	done, err := p.letters.Replay(p.t.Context(), []string{key}, asNew)
	if err != nil || len(done) != 1 || done[0].Result != admin.ResultAsked {
		p.t.Fatalf("replay of %s, as new %t: %+v, %v; want it asked for", key, asNew, done, err)
	}
	return done[0]
}

func (p *postOffice) want(total int64, why string) {
	p.t.Helper()
	if got := p.store.Totals()["a"]; got != total {
		p.t.Errorf("%s: the total is %d, want %d", why, got, total)
	}
}

func partOf(delta int64) wire.Part {
	return wire.CutAnonymous(rand.Reader, []wire.Entry{{Counter: "a", Delta: delta}})[0]
}

// However a letter is asked for, by its ids or as new, in whatever order and whatever became of
// the request before: it counts once.
func TestAReplayAndOneAsNewCountOnce(t *testing.T) {
	for name, age := range map[string]time.Duration{"young": 0, "at the end of the window": countmill.DefaultDedupWindow - time.Minute} {
		for _, order := range [][2]bool{{false, true}, {true, false}, {true, true}} {
			t.Run(name, func(t *testing.T) {
				inPostOffice(t, func(t *testing.T, p *postOffice) {
					// Counted, and the letter cannot be removed for a while.
					p.store.On(fakestore.DeleteDeadLetters, func(n int) fakestore.Answer {
						if n <= 20 {
							return fakestore.UnknownNotApplied
						}
						return fakestore.OK
					})
					part := partOf(7)
					p.bury(store.DeadLetter{Key: "k", Source: part.ID.String(), Reason: "refused", Time: time.Now().Add(-age)}, part)
					p.aggregate()
					p.replay(order[0], "k")
					time.Sleep(40 * time.Second)
					p.want(7, "after the first replay")
					time.Sleep(time.Minute) // beyond the window, maybe
					done, err := p.letters.Replay(t.Context(), []string{"k"}, order[1])
					if err != nil || len(done) != 1 {
						t.Fatal(done, err)
					}
					if o := done[0]; o.New && !o.Twice {
						t.Errorf("as new: %+v, and it was counted before", o)
					}
					time.Sleep(time.Hour)
					p.want(7, "after the second")
					// The window may have passed before it could be removed. Then there is a new
					// letter, which says that it may have been counted.
					for _, d := range p.store.DeadLetters() {
						if !d.Maybe {
							t.Errorf("a letter is left that was counted, and says that it was not: %s, %s", d.Key, d.Reason)
						}
						p.replay(true, d.Key)
					}
					time.Sleep(time.Minute)
					p.want(7, "after a replay of what was left")
					if n := len(p.store.DeadLetters()); n > 0 {
						t.Errorf("%d letters are left", n)
					}
				})
			})
		}
	}
}

// A letter that was discarded before an aggregator took it is not counted, even if it was read
// before or comes back. After an aggregator took it, the answer is another one.
func TestADiscardIsTrue(t *testing.T) {
	inPostOffice(t, func(t *testing.T, p *postOffice) {
		discard := func(key, want string) {
			t.Helper()
			done, err := p.letters.Discard(t.Context(), []string{key})
			if err != nil || len(done) != 1 || done[0].Result != want {
				t.Errorf("discard of %s: %+v, %v; want %s", key, done, err, want)
			}
		}
		early, late := store.DeadLetter{Key: "early", Reason: "r", Time: time.Now()}, store.DeadLetter{Key: "late", Reason: "r", Time: time.Now()}
		part := partOf(1)
		p.bury(early, part)
		p.bury(late, partOf(10))
		p.replay(false, early.Key)
		p.replay(false, late.Key)
		discard(early.Key, admin.ResultDiscarded)
		p.store.On(fakestore.DeleteDeadLetters, func(int) fakestore.Answer { return fakestore.UnknownNotApplied })
		p.aggregate()
		time.Sleep(time.Minute)
		p.want(10, "after one of two was discarded")
		p.store.On(fakestore.DeleteDeadLetters, nil)
		discard(late.Key, admin.ResultRemoved)
		discard(late.Key, admin.ResultGone)
		p.bury(early, part) // its message is delivered again
		done, err := p.letters.Replay(t.Context(), []string{early.Key}, true)
		if err != nil || done[0].Result != admin.ResultRefused {
			t.Errorf("replay of what was discarded: %+v, %v; want it refused", done, err)
		}
		time.Sleep(time.Minute)
		p.want(10, "after it came back")
		discard(early.Key, admin.ResultDiscarded)
	})
}
