// Package morgue makes a letters.Store of a store of aggregators: it shows their dead letters,
// and writes requests for replays.
package morgue

import (
	"context"
	"time"

	"github.com/countmill/countmill/admin/letters"
	"github.com/countmill/countmill/store"
)

// A Store is the part of a store that a Morgue uses.
type Store interface {
	store.Folder
	store.DeadLetters
	GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error)
	Check(ctx context.Context) (store.Checked, error)
}

// A Morgue is a store as package letters sees it: the copies by which replays are asked for are
// no letters there.
type Morgue struct {
	Store Store
	// Explain is what becomes of the store's errors. nil leaves them as they are.
	Explain func(error) error
}

var _ letters.Store = Morgue{}

func (m Morgue) explain(err error) error {
	if err == nil || m.Explain == nil {
		return err
	}
	return m.Explain(err)
}

// Page returns letters in the order of their keys.
func (m Morgue) Page(ctx context.Context, after string, limit int) ([]letters.Letter, error) {
	var page []letters.Letter
	for {
		dead, err := m.Store.ListDeadLetters(ctx, after, limit-len(page))
		if err != nil {
			return nil, m.explain(err)
		}
		copies := 0
		for _, d := range dead {
			if _, asked := store.ReplayOf(d.Key); asked {
				copies++
				continue
			}
			page = append(page, letterOf(d))
		}
		if copies == 0 || len(dead) == 0 {
			return m.markAsked(ctx, page)
		}
		after = max(store.ReplayKeysEnd, dead[len(dead)-1].Key)
	}
}

// Find returns letters by their keys.
func (m Morgue) Find(ctx context.Context, keys []string) ([]letters.Letter, error) {
	var plain []string
	for _, key := range keys {
		if _, asked := store.ReplayOf(key); !asked {
			plain = append(plain, key)
		}
	}
	dead, err := m.Store.GetDeadLetters(ctx, plain)
	if err != nil {
		return nil, m.explain(err)
	}
	found, keys := make([]letters.Letter, len(dead)), make([]string, len(dead))
	for i, d := range dead {
		found[i], keys[i] = letterOf(d), d.Key
	}
	fates, err := store.Fates(ctx, m.Store, keys)
	if err != nil {
		return nil, m.explain(err)
	}
	for i := range found {
		found[i].Discarded = fates[i] == store.FateDiscarded
	}
	return m.markAsked(ctx, found)
}

func letterOf(d store.DeadLetter) letters.Letter {
	return letters.Letter{
		Key: d.Key, Payload: d.Payload, Source: d.Source, Time: d.Time, Reason: d.Reason, Maybe: d.Maybe, Taken: d.IDTaken(), At: d.At,
	}
}

// markAsked looks up which letters a replay was asked for.
func (m Morgue) markAsked(ctx context.Context, page []letters.Letter) ([]letters.Letter, error) {
	keys := make([]string, len(page))
	for i := range page {
		keys[i] = store.ReplayKey(page[i].Key)
	}
	copies, err := m.Store.GetDeadLetters(ctx, keys)
	if err != nil {
		return nil, m.explain(err)
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

// Ask writes the copy by which an aggregator is asked.
func (m Morgue) Ask(ctx context.Context, l letters.Letter) error {
	return m.explain(m.Store.PutDeadLetters(ctx, []store.DeadLetter{{
		Key: store.ReplayKey(l.Key), Payload: l.Payload, Source: l.Source, Time: l.Time, Reason: l.Reason, Maybe: l.Maybe, At: l.At,
	}}))
}

// Discard first makes sure that no aggregator counts the letter: one may have read it, or the
// copy of it.
func (m Morgue) Discard(ctx context.Context, key string, latest time.Time, s store.Settings) (uncounted bool, err error) {
	fate, err := store.DecideFate(ctx, m.Store, key, store.FateDiscarded, latest, s)
	if err != nil {
		return false, m.explain(err)
	}
	err = m.Store.DeleteDeadLetters(ctx, []string{store.ReplayKey(key), key})
	return fate == store.FateDiscarded, m.explain(err)
}

// Settings are those in effect.
func (m Morgue) Settings(ctx context.Context) (store.Settings, error) {
	checked, err := m.Store.Check(ctx)
	return checked.Settings, m.explain(err)
}
