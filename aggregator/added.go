package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// mostAdded is the most increments of other programs in one commit.
	mostAdded = 10_000
	// addedEvery is the longest pause between two looks at them. Half of it is random.
	addedEvery = 500 * time.Millisecond
)

// takeAdded folds the increments that other programs add to the store (store.Adder), until ctx ends. The commit that counts them removes them.
// So they need no markers, and no attempt is repeated: after any outcome a further look finds exactly the increments not counted yet. Aggregators do not
// divide them. If two take the same one, the commit of one of them applies nothing.
func (a *Aggregator) takeAdded(ctx context.Context, from store.Adder) {
	most, failing := mostAdded, false
	warn := func(text string, err error) { // once, however long they fail
		if !failing {
			a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, text, slog.Any("err", err))
		}
		failing = true
	}
	for ctx.Err() == nil {
		// Another database may have such increments too, and this process remembers records of its own. By old rules it
		// would make records of groups whose index has gone.
		if !a.usable.Load() || a.outdated() {
			clock.Sleep(ctx, addedEvery)
			continue
		}
		added, err := a.added(from, most)
		wrong := err
		if err != nil {
			warn("increments of other programs not read, will try again", err)
		} else if len(added) == 0 {
			failing = false
		}
		pause := addedEvery/2 + a.cfg.env.Jitter(addedEvery/2)
		if err == nil {
			a.stats.waitingAdded(added, a.clock.Now())
		}
		if len(added) > 0 {
			o := a.attempt(a.jobOf(added))
			wrong = o.err
			select {
			case a.folded <- struct{}{}:
			default:
			}
			a.stats.add(&o)
			switch {
			case o.verdict == settled && len(added) == most:
				pause = 0
			case o.verdict == split, o.verdict == refused:
				most, pause = max(1, len(added)/2), 0
			case o.err != nil && o.verdict != alone && o.verdict != superseded:
				warn("increments of other programs not folded, will try again", o.err)
			}
			if o.verdict == settled {
				failing = false
				if len(added) < most {
					a.stats.waitingAdded(nil, time.Time{})
				}
				most = min(2*most, mostAdded)
			} else if o.verdict == refused && len(added) == 1 {
				warn("increment of another program refused, will try again", fmt.Errorf("id %d: %w", added[0].ID, o.err))
				pause = addedEvery
			}
		}
		if !errors.Is(wrong, store.ErrDeployment) && !errors.Is(wrong, store.ErrNotCounted) {
			wrong = nil // others pass
		}
		a.adder.Store(&state{reason: wrong})
		clock.Sleep(ctx, pause)
	}
}

// waitingAdded notes the increments of a look. They wait, and lag includes the oldest.
func (s *stats) waitingAdded(added []store.Added, now time.Time) {
	w := new(wait)
	for i := range added {
		*w = w.over(wait{added[i].At, now, time.Now()})
	}
	s.added.Store(w)
	s.addedWaiting.Store(int64(len(added)))
}

func (a *Aggregator) added(from store.Adder, most int) ([]store.Added, error) {
	ctx, cancel := a.callContext()
	defer cancel()
	return from.Added(ctx, most)
}

// jobOf sums increments by minute and counter.
func (a *Aggregator) jobOf(added []store.Added) *job {
	j := &job{taken: make([]int64, len(added))}
	for i := range added {
		j.taken[i] = added[i].ID
	}
	slices.SortFunc(added, func(x, y store.Added) int {
		return cmp.Or(cmp.Compare(wire.MinuteOf(x.At), wire.MinuteOf(y.At)), strings.Compare(x.Counter, y.Counter))
	})
	holder := new(held)
	var open *part
	for i := range added {
		x := &added[i]
		minute := wire.MinuteOf(x.At)
		if open != nil && open.minute == minute {
			if last := &open.Entries[len(open.Entries)-1]; last.Counter == x.Counter {
				if sum := last.Delta + x.Delta; -wire.MaxSum <= sum && sum <= wire.MaxSum {
					last.Delta, open.Increments = sum, open.Increments+1
					continue
				}
				open = nil // a part has a counter once
			}
		}
		if open == nil || open.minute != minute || len(open.Entries) == wire.MaxEntries {
			open = &part{at: x.At, from: x.At, minute: minute, holder: holder}
			open.ID = wire.RandomID(a.cfg.env, wire.AnonymousClass) // of the journal, which has an id of a minute once
			j.parts = append(j.parts, open)
		}
		open.Entries, open.Increments = append(open.Entries, wire.Entry{Counter: x.Counter, Delta: x.Delta}), open.Increments+1
	}
	return j
}
