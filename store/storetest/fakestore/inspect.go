package fakestore

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// Counts counts applied and read data, including calls whose answer was lost.
type Counts struct {
	Folds, Markers, Adds                       int
	LargestFold                                int // in entities
	Collisions                                 int // folds that got ErrMarkerExists
	Raised, MarkersRead, RecordsRead, KeysRead int
}

func (n *Counts) folded(c *store.Commit, err error) {
	switch {
	case errors.Is(err, store.ErrMarkerExists):
		n.Collisions++
	case err == nil:
		n.Folds, n.Markers, n.Adds = n.Folds+1, n.Markers+len(c.Markers), n.Adds+len(c.Adds)
		n.Raised, n.LargestFold = n.Raised+len(c.Growths), max(n.LargestFold, c.Entities())
	}
}

func (s *Store) count(f func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.counts)
}

// Counts returns the counts so far.
func (s *Store) Counts() (n Counts) {
	s.count(func(c *Counts) { n = *c })
	return n
}

// Calls returns how often op was called, with any result.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// FoldCalls returns how often Fold was called, with any result.
func (s *Store) FoldCalls() int { return s.Calls(fold) }

// must is for reads that nothing disturbs.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// Totals sums the shards of every counter, also shards that its record does not name.
func (s *Store) Totals() map[string]int64 {
	totals := make(map[string]int64)
	for from, more := "", true; more; more = from != "" {
		page := must(s.Store.ShardPage(context.Background(), "", from, math.MaxInt))
		for _, shard := range page.Shards {
			totals[shard.Counter] += int64(shard.Count.Lo) // modulo 2^64
		}
		from = page.Next
	}
	return totals
}

// Total sums the shards of one counter.
func (s *Store) Total(counter string) int64 { return s.Totals()[counter] }

// Record returns a counter's record, also that of a deleted one; the zero record if it has none.
func (s *Store) Record(counter string) store.Record {
	v := s.Store.View()
	defer v.Close()
	for _, r := range must(v.List(context.Background(), counter, "", 1)) {
		if r.Counter == counter {
			return r
		}
	}
	return store.Record{}
}

// Buckets returns the series of a counter.
func (s *Store) Buckets(counter string) []store.Bucket {
	v := s.Store.View()
	defer v.Close()
	return must(v.Series(context.Background(), []store.Record{s.Record(counter)}, 0, wire.MinuteOf(wire.MaxTime)))[0]
}

// Grouped returns the parts of all shards that were folded by an index.
func (s *Store) Grouped(index int64) map[store.Key]int64 {
	v := s.DB.Open().View(time.Time{})
	defer v.Close()
	kind := slices.IndexFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == "shard" })
	fields := protocol.Kinds[kind].Fields
	field := fields[slices.IndexFunc(fields, func(f engine.FieldSpec) bool { return f.Name == "g" })].ID + engine.FieldID(index)
	parts := make(map[store.Key]int64)
	rows := v.Scan(context.Background(), engine.Range{Kind: engine.KindID(kind)}, field)
	for r := rows.Next(); r != nil; r = rows.Next() {
		parts[store.Key{Counter: r.Key.Name, Shard: int(r.Key.Part)}] = r.Int64(field)
	}
	return parts
}

// Marker returns the marker of a part, if it exists.
func (s *Store) Marker(id wire.PartID) (m store.Marker, ok bool) {
	for _, m := range must(s.Store.Applied(context.Background(), []wire.PartID{id})) {
		return m, true
	}
	return m, false
}

// DeadLetters returns all dead letters in the order of their keys.
func (s *Store) DeadLetters() []store.DeadLetter {
	return must(s.Store.ListDeadLetters(context.Background(), "", math.MaxInt))
}

// Journaled returns all records of the journal in the order of their keys.
func (s *Store) Journaled() (records []store.JournalRecord) {
	v := s.Store.JournalView()
	defer v.Close()
	for q := (store.JournalQuery{Limit: math.MaxInt}); ; {
		page := must(v.JournalRecords(context.Background(), q))
		records = append(records, page.Records...)
		if !page.More {
			return records
		}
		q.From = records[len(records)-1].Place().Next()
	}
}

// WriteRecords writes the records and rows of a commit, and nothing else of it.
func (s *Store) WriteRecords(c *store.Commit) {
	for lot := range slices.Chunk(c.Records, 100) {
		must(s.Store.Fold(context.Background(), &store.Commit{Records: lot, Rules: store.AnyRules}))
	}
	for lot := range slices.Chunk(c.Rows, 100) {
		must(s.Store.Fold(context.Background(), &store.Commit{Rows: lot, Rules: store.AnyRules}))
	}
}

// ReadTime is the moment of a view of the present.
func (s *Store) ReadTime() time.Time {
	v := s.Store.View()
	defer v.Close()
	_ = must(v.Lookup(context.Background(), nil))
	return v.ReadTime()
}

// Expire removes all that the store may remove now.
func (s *Store) Expire() {
	if s.DB.Limits.Expires {
		s.DB.Expire(s.Now())
	} else if err := s.Sweep(context.Background()); err != nil {
		panic(err)
	}
}
