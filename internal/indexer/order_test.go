package indexer

import (
	"testing"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// The moments of a store on the machine's clock never go back. A clock that was an hour ahead for a while delays
// nothing, whether it was when the index was created or later.
func TestAnIndexIsBuiltAfterTheClockWasSetBack(t *testing.T) {
	for name, ahead := range map[string][2]time.Duration{"at its creation": {time.Hour, time.Hour}, "later": {0, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				began, set := time.Now(), ahead[0]
				opts := kinds["embedded"]
				opts.Clock = func() time.Time { return time.Now().Add(set) }
				opts.Age = func() time.Duration { return time.Since(began) }
				r := newRig(t, opts)
				r.fold(pages(30, 3, 1))
				r.change(store.CreateIndex)
				time.Sleep(time.Second)
				set = ahead[1]
				r.fold(pages(10, 3, 1)) // a moment after Since
				set = 0
				x := New(r.store, clock.With(Config{WorkerID: "worker", Logger: quiet}, &clock.Env{Wall: opts.Clock}))
				steps := 0
				for worked := true; worked && steps < 100; steps++ {
					var err error
					if worked, err = x.Step(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if !r.serves() {
					t.Fatalf("the index does not serve after %d steps", steps)
				}
				r.check("serving", true)
			})
		})
	}
}

// Ranges that are always due keep no index from its end, nor any range from being checked.
func TestChecksThatAreAlwaysDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds["embedded"])
		r.fold(pages(30, 3, 1))
		x := New(r.store, Config{WorkerID: "worker", Logger: quiet, Ranges: 2, Recheck: time.Nanosecond})
		for _, of := range []store.Index{{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}, {Name: "views", Match: "page:{site}:*", Group: "view:{site}"}} {
			r.change(store.CreateIndex, of)
			for range 20 {
				time.Sleep(time.Second)
				if _, err := x.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !r.settings().Rules.Index(of.Name).Finished() {
				t.Fatalf("index %s does not serve", of.Name)
			}
		}
		before := r.settings().Rules
		for range 40 {
			time.Sleep(time.Second)
			if _, err := x.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"sites", "views"} {
			if last, first := r.settings().Rules.Index(name).Checked, before.Index(name).Checked; !last.After(first) {
				t.Errorf("index %s was checked at %s, and not since", name, first)
			}
		}
	})
}
