package fakestore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
)

// A View reads the store at one moment.
type View struct {
	store *Store
	// Guarded by store.mu.
	at      time.Time
	settled time.Time // of the journal
}

var _ store.View = (*View)(nil)

// View opens a view.
func (s *Store) View() store.View { return &View{store: s} }

// ViewAt opens a view of an old moment. It needs Options.History.
func (s *Store) ViewAt(at time.Time) store.View { return &View{store: s, at: at} }

// Lookup answers the keys at the view's moment.
func (v *View) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	s := v.store
	answer, err := s.begin(ctx, Lookup, nil)
	if err != nil {
		return nil, err
	}
	if len(keys) > s.opts.Keys {
		return nil, s.overLimit("keys in a look-up", len(keys), s.opts.Keys)
	}
	var values []store.Value
	err = s.do(ctx, answer, func() error {
		values = v.lookup(keys)
		return nil
	})
	return values, err
}

func (v *View) lookup(keys []store.Key) []store.Value {
	s := v.store
	s.mu.Lock()
	s.counts.Lookups++
	n, deferred := s.counts.Lookups, s.opts.Defer
	s.mu.Unlock()
	values := make([]store.Value, len(keys))
	if deferred != nil {
		for i, key := range keys {
			values[i].Deferred = deferred(n, key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := v.pinLocked()
	for i, key := range keys {
		if !values[i].Deferred {
			values[i] = s.valueLocked(key, at)
			s.counts.KeysRead++
		}
	}
	return values
}

func (s *Store) valueLocked(key store.Key, at time.Time) store.Value {
	if key.Shard == store.RecordKey {
		r, _ := s.records[key.Counter].at(at)
		return store.Value{Exists: r.exists, Shards: int(r.shards), Reset: r.reset(), Remainder: r.remainder}
	}
	sum, ok := s.shards[shardKey{key.Counter, key.Shard}].at(at)
	bucketed, _ := s.bucketed[shardKey{key.Counter, key.Shard}].at(at)
	return store.Value{Exists: ok, Count: sum, Bucketed: bucketed}
}

// List returns records at the view's moment.
func (v *View) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	s := v.store
	answer, err := s.begin(ctx, List, nil)
	if err != nil {
		return nil, err
	}
	var records []store.Record
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := v.pinLocked()
		for counter, h := range s.records {
			r, _ := h.at(at)
			if r.exists && strings.HasPrefix(counter, prefix) && counter > after {
				records = append(records, store.Record{Counter: counter, Shards: int(r.shards), Reset: r.reset(), Remainder: r.remainder})
			}
		}
		slices.SortFunc(records, func(a, b store.Record) int { return strings.Compare(a.Counter, b.Counter) })
		records = records[:min(len(records), max(limit, 0))]
		s.counts.Lists++
		return nil
	})
	return records, err
}

// pinLocked sets the view's moment at the first call, and returns it.
func (v *View) pinLocked() time.Time {
	s := v.store
	if v.at.IsZero() {
		v.at = s.readTimeLocked()
	}
	if v.settled.IsZero() {
		v.settled = s.settledAtLocked(v.at)
	}
	s.views[v] = struct{}{}
	if s.opts.Unpinned {
		return s.last
	}
	return v.at
}

// ReadTime returns the view's moment, or zero before the first call.
func (v *View) ReadTime() time.Time {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	return v.at
}

// Close lets the store drop versions that only this view could see.
func (v *View) Close() {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	delete(v.store.views, v)
}
