package admin

import (
	"context"
	"time"

	"github.com/countmill/countmill/store"
)

// waiting is the dead letters of a store. The copies by which replays are asked for are none.
type waiting struct{ DeadLetterStore }

// page returns dead letters in the order of their keys.
func (w waiting) page(ctx context.Context, after string, limit int) ([]DeadLetter, error) {
	var page []DeadLetter
	for {
		dead, err := w.ListDeadLetters(ctx, after, limit-len(page))
		if err != nil {
			return nil, err
		}
		copies := 0
		for _, d := range dead {
			if _, asked := store.ReplayOf(d.Key); asked {
				copies++
				continue
			}
			page = append(page, DeadLetter{DeadLetter: d})
		}
		if copies == 0 || len(dead) == 0 {
			return w.markAsked(ctx, page)
		}
		after = max(store.ReplayKeysEnd, dead[len(dead)-1].Key)
	}
}

// find returns the dead letters with these keys, in the order asked; absent ones are left out.
func (w waiting) find(ctx context.Context, keys []string) ([]DeadLetter, error) {
	var plain []string
	for _, key := range keys {
		if _, asked := store.ReplayOf(key); !asked {
			plain = append(plain, key)
		}
	}
	dead, err := w.GetDeadLetters(ctx, plain)
	if err != nil {
		return nil, err
	}
	found, keys := make([]DeadLetter, len(dead)), make([]string, len(dead))
	for i, d := range dead {
		found[i].DeadLetter, keys[i] = d, d.Key
	}
	decisions, err := store.Decisions(ctx, w, keys)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Discarded = decisions[i] == store.DecisionDiscarded
	}
	return w.markAsked(ctx, found)
}

// markAsked looks up for which dead letters a replay was asked.
func (w waiting) markAsked(ctx context.Context, page []DeadLetter) ([]DeadLetter, error) {
	keys := make([]string, len(page))
	for i := range page {
		keys[i] = store.ReplayKey(page[i].Key)
	}
	copies, err := w.GetDeadLetters(ctx, keys)
	if err != nil {
		return nil, err
	}
	asked := make(map[string]bool, len(copies))
	for _, d := range copies {
		asked[d.Key] = true
	}
	for i := range page {
		page[i].Asked = asked[keys[i]]
	}
	return page, nil
}

// ask has aggregators count the contents of d, as they are given here, and then remove the
// dead letter of that key. It may be repeated; the last request counts.
func (w waiting) ask(ctx context.Context, d store.DeadLetter) error {
	d.Key = store.ReplayKey(d.Key)
	return w.PutDeadLetters(ctx, []store.DeadLetter{d})
}

// discard removes a dead letter and its replay request. Before that it makes sure that no
// aggregator counts the dead letter: one may have read it, or the copy of it. uncounted is false
// if an aggregator has taken it to count it. The store remembers the decision for as long as a
// part of the time latest, by the settings s. It may be repeated.
func (w waiting) discard(ctx context.Context, key string, latest time.Time, s store.Settings) (uncounted bool, err error) {
	decision, err := store.DecideDeadLetter(ctx, w, key, store.DecisionDiscarded, latest, s)
	if err != nil {
		return false, err
	}
	err = w.DeleteDeadLetters(ctx, []string{store.ReplayKey(key), key})
	return decision == store.DecisionDiscarded, changing("removing it", err, true) // it is decided already
}
