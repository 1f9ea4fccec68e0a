package protocoltest

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// Counts counts applied and read data, including calls whose answer was lost.
type Counts struct {
	Folds, LargestFold   int            // the latter in rows
	Collisions           int            // folds that got ErrMarkerExists
	Wrote, TxWrote, Read map[string]int // rows of commits, transactions and views by the names of their kinds
}

func (s *Store) count(c *memory.Call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.counts
	for _, key := range c.Keys {
		if c.Op == memory.Get {
			n.Read[protocol.Kinds[key.Kind].Name]++
		}
	}
	if errors.Is(err, engine.ErrExists) {
		n.Collisions++
	}
	if err != nil {
		return
	}
	wrote := map[bool]map[string]int{false: n.Wrote, true: n.TxWrote}[c.Op == memory.Transact]
	for i := range c.Changes {
		wrote[protocol.Kinds[c.Changes[i].Key.Kind].Name]++
	}
	if opOf(c) == fold {
		n.Folds, n.LargestFold = n.Folds+1, max(n.LargestFold, len(c.Changes))
	}
}

// Counts returns the counts so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts
	n.Wrote, n.TxWrote, n.Read = maps.Clone(n.Wrote), maps.Clone(n.TxWrote), maps.Clone(n.Read)
	return n
}

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
		page := must(s.Store.ShardPage(unseen, "", from, math.MaxInt))
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
	for _, r := range must(v.List(unseen, counter, "", 1)) {
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
	return must(v.Series(unseen, []store.Record{s.Record(counter)}, 0, wire.MinuteOf(wire.MaxTime)))[0]
}

// Grouped returns the parts of all shards that were folded by an index.
func (s *Store) Grouped(index int64) map[store.Key]int64 {
	v := s.DB.Open().View()
	defer v.Close()
	kind := slices.IndexFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == "shard" })
	fields := protocol.Kinds[kind].Fields
	field := fields[slices.IndexFunc(fields, func(f engine.FieldSpec) bool { return f.Name == "g" })].ID + engine.FieldID(index)
	parts := make(map[store.Key]int64)
	rows := v.Scan(unseen, engine.Range{Kind: engine.KindID(kind)}, field)
	for r := rows.Next(); r != nil; r = rows.Next() {
		parts[store.Key{Counter: r.Key.Name, Shard: int(r.Key.Part)}] = r.Int64(field)
	}
	return parts
}

// Marker returns the marker of a part, if it exists.
func (s *Store) Marker(id wire.PartID) (m store.Marker, ok bool) {
	for _, m := range must(s.Store.Applied(unseen, []wire.PartID{id})) {
		return m, true
	}
	return m, false
}

// DeadLetters returns all dead letters in the order of their keys.
func (s *Store) DeadLetters() []store.DeadLetter {
	return must(s.Store.ListDeadLetters(unseen, "", math.MaxInt))
}

// Journaled returns all records of the journal in the order of their keys.
func (s *Store) Journaled() (records []store.JournalRecord) {
	v := s.Store.JournalView()
	defer v.Close()
	for q := (store.JournalQuery{Limit: math.MaxInt}); ; {
		page := must(v.JournalRecords(unseen, q))
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
		must(s.Store.Fold(unseen, &store.Commit{Records: lot, Rules: store.AnyRules}))
	}
	for lot := range slices.Chunk(c.Rows, 100) {
		must(s.Store.Fold(unseen, &store.Commit{Rows: lot, Rules: store.AnyRules}))
	}
}

// ReadTime is the moment of a view of the present.
func (s *Store) ReadTime() time.Time {
	v := s.Store.View()
	defer v.Close()
	_ = must(v.Lookup(unseen, nil))
	return v.ReadTime()
}

// Expire removes all that the store may remove now.
func (s *Store) Expire() {
	if s.DB.Limits.Expires {
		s.DB.Expire(s.Now())
	} else if err := s.Sweep(unseen); err != nil {
		panic(err)
	}
}
