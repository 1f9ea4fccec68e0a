package protocol

import (
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// The kinds. Engines store the numbers. A commit writes its rows in this order, so two commits never wait for each other in
// a circle.
const (
	kindMeta engine.KindID = iota
	kindMarker
	kindRecord
	kindShard
	kindDay
	kindJournal
	kindJournalRow
	kindLetterRef
	kindChunk
	kindLetter
	kindWorker
	kindRange
	kindRemainder
	kindSequence
	kindStage
)

// The fields. A number means the same in every kind, so one read may ask for rows of several kinds.
const (
	fieldShards      engine.FieldID = 1 + iota // the number of shards; in a shard the largest that a folder knew
	fieldDeletedAt                             // microseconds since 1970, as all times
	fieldResetAt                               // the moment of the baseline
	fieldBaseline                              // the amount that a reset takes from the sum
	fieldRemainder                             // of a group: the count of its counters without it
	fieldCount                                 // the sum of all deltas
	fieldBucketed                              // the part of count with buckets
	fieldTally                                 // the number of folds
	fieldBuckets                               // about how many minutes the row has
	fieldDue                                   // when a sweep looks, or when the row expires
	fieldFingerprint                           // of a part, or of a payload in chunks
	fieldFold                                  // store.Marker.Fold
	fieldRemoved                               // store.ResetResult.Removed
	fieldAt                                    // store.ResetResult.At
	fieldFirst                                 // store.Given.First
	fieldValues                                // store.Given.Count
	fieldOldest                                // the oldest settings by which a fold is taken; it only rises
	fieldLast                                  // store.SequenceState.Last
	fieldRestores                              // engine.Checked.Restores when the row was written
	fieldForget                                // store.Settings.ForgetBefore

	fieldMinute  engine.FieldID = 1 << 28 // and the minute since 1970: the sum of that minute
	fieldQuarter engine.FieldID = 2 << 28 // and the first minute of a quarter hour: its sum
	fieldGrouped engine.FieldID = 3 << 28 // and the number of an index: the part of count that was folded by it
)

func narrow(id engine.FieldID, name string) engine.FieldSpec {
	return engine.FieldSpec{ID: id, Name: name}
}

func wide(id engine.FieldID, name string) engine.FieldSpec {
	return engine.FieldSpec{ID: id, Name: name, Wide: true}
}

func open(id engine.FieldID, name string) engine.FieldSpec {
	return engine.FieldSpec{ID: id, Name: name, Wide: true, Open: true}
}

var due = narrow(fieldDue, "due")

// Kinds are all kinds. An engine gets them when it is opened.
var Kinds = engine.Kinds{
	// One row "meta": the identity of the database, and its settings (metaRecord). Written by Open and changeSettings, and by Sweep and
	// Close, which only move ForgetBefore. Folds require fieldOldest; sweeps, ranges and removals of groups read it in their transactions.
	kindMeta: {Name: "meta", Class: engine.Docs, Fields: []engine.FieldSpec{narrow(fieldOldest, "oldest"), narrow(fieldForget, "forget")}},
	// By the 16 bytes of an id. Inserted by folds, resets (removed, at) and takes of values (first, values). Due is
	// Marker.ExpireAt with Limits.Clock, and otherwise Marker.At.
	kindMarker: {Name: "marker", Class: engine.Once, Binary: true, Due: fieldDue, Expires: true, Fields: []engine.FieldSpec{
		due, narrow(fieldFingerprint, "fingerprint"), narrow(fieldFold, "fold"), wide(fieldRemoved, "removed"), narrow(fieldAt, "at"),
		narrow(fieldFirst, "first"), narrow(fieldValues, "values"),
	}},
	// By counter. Growths raise shards, and SetRemainders adds to the remainder, both blind; both end a deletion. Resets set the
	// other fields. Sweeps and removals of groups delete it.
	kindRecord: {Name: "record", Class: engine.Sums, ByName: true, Due: fieldDeletedAt, Fields: []engine.FieldSpec{
		narrow(fieldShards, "shards"), narrow(fieldDeletedAt, "deletedat"), narrow(fieldResetAt, "resetat"), wide(fieldBaseline, "baseline"), wide(fieldRemainder, "remainder"),
	}},
	// By counter and number, at Store.place. Folds add to it. Moves take minutes away, and DropGrouped grouped parts. Sweeps and removals
	// of groups delete it.
	kindShard: {Name: "shard", Class: engine.Sums, Places: true, Parts: true, ByName: true, Fields: []engine.FieldSpec{
		narrow(fieldShards, "shards"), wide(fieldCount, "count"), wide(fieldBucketed, "bucketed"), narrow(fieldTally, "tally"), narrow(fieldBuckets, "buckets"),
		open(fieldMinute, "m"), open(fieldGrouped, "g"),
	}},
	// By counter and day, at Store.dayPlace. Folds and moves add minutes; SweepSeries joins them to quarter hours, and
	// deletes the row, as sweeps and removals of groups do. Due, in minutes, is there unless the days are first.
	kindDay: {Name: "day", Class: engine.Sums, Places: true, Parts: true, Due: fieldDue, Fields: []engine.FieldSpec{
		due, open(fieldMinute, "m"), open(fieldQuarter, "q"),
	}},
	// By store.JournalKey. Written by folds; ReplaceRecord replaces its data.
	kindJournal: {Name: "journal", Class: engine.Docs, Places: true, Binary: true, ByName: true, Due: fieldDue, Expires: true, Fields: []engine.FieldSpec{due}},
	// By counter, a zero byte and the 20 bytes of store.JournalPlace. Written by folds, deleted by ReplaceRecord.
	kindJournalRow: {Name: "journalrow", Class: engine.Docs, Places: true, Binary: true, ByName: true, Due: fieldDue, Expires: true, Fields: []engine.FieldSpec{due}},
	// By the 16 bytes of the id of a completion marker and the letter's key. Written by PutDeadLetters. Due is like that of a marker.
	kindLetterRef: {Name: "letterref", Class: engine.Docs, Binary: true, Due: fieldDue, Expires: true, Fields: []engine.FieldSpec{due}},
	// By a hash of the letter's key and the fingerprint: what of a payload is not in the letter's row. Written by PutDeadLetters, deleted by
	// DeleteDeadLetters.
	kindChunk: {Name: "chunk", Class: engine.Docs, Parts: true},
	// By the letter's key, with and after its chunks. The fingerprint is there if it has any.
	kindLetter: {Name: "letter", Class: engine.Docs, Binary: true, Fields: []engine.FieldSpec{narrow(fieldFingerprint, "fingerprint")}},
	// By the worker's id. Written by Beat. Due is a day after Worker.Expires.
	kindWorker: {Name: "worker", Class: engine.Docs, Due: fieldDue, Expires: true, Fields: []engine.FieldSpec{due}},
	// By index and range. Written by SwapRanges; SetRemainders reads it in its transaction; RemoveIndex deletes range 1.
	kindRange: {Name: "indexrange", Class: engine.Docs, Parts: true},
	// By index, range and group (remainderPrefix). Written by SetRemainders, deleted by removals of groups.
	kindRemainder: {Name: "remainder", Class: engine.Docs, Fields: []engine.FieldSpec{wide(fieldRemainder, "remainder")}},
	// By sequence. Written by takes and by deletions.
	kindSequence: {Name: "sequence", Class: engine.Docs, Places: true, Fields: []engine.FieldSpec{narrow(fieldDeletedAt, "deletedat"), narrow(fieldLast, "last"), narrow(fieldRestores, "restores")}},
	// By day, where days are first: how far SweepSeries is.
	kindStage: {Name: "stage", Class: engine.Docs, Parts: true},
}

var metaKey = engine.Key{Kind: kindMeta, Name: "meta"}

func markerKey(id wire.PartID) engine.Key { return engine.Key{Kind: kindMarker, Name: string(id[:])} }

func recordKey(counter string) engine.Key { return engine.Key{Kind: kindRecord, Name: counter} }

// upper are the bits of a hash that a place has. Some engines keep no more.
const upper = 1<<64 - 1<<32

// shardKey returns the key of a shard. The place of a shard is store.IndexRange's.
func (s *Store) shardKey(counter string, shard int) engine.Key {
	return engine.Key{Kind: kindShard, Place: s.shardPlace(counter, shard), Name: counter, Part: uint32(shard)}
}

func (s *Store) shardPlace(counter string, shard int) uint64 {
	if s.limits.Spread {
		return wire.ShardHash(counter, shard) & upper
	}
	return wire.Order(counter)
}

// place keeps the other rows of a counter, or of a sequence, together.
func (s *Store) place(name string) uint64 { return s.shardPlace(name, 0) }

func (s *Store) dayKey(counter string, d day) engine.Key {
	return s.dayKeyAt(counter, s.place(counter), d)
}

// dayKeyAt is dayKey for a caller that has the place of the counter's shard 0.
func (s *Store) dayKeyAt(counter string, place uint64, d day) engine.Key {
	if s.facts.daysFirst {
		place = dayPlace(d) | place>>dayBits
	}
	return engine.Key{Kind: kindDay, Place: place, Name: counter, Part: uint32(d)}
}

// Where days are first, the upper bits of a place are the day.
const dayBits = 20

func dayPlace(d day) uint64 { return uint64(d) << (64 - dayBits) }

// A day is the number of days since 1970 in UTC.
type day int32
