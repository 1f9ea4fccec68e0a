package reader

import (
	"fmt"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A partial is a counter while it is being read. The record decides how many shards it
// has; values of shards that come before the record wait for it.
type partial struct {
	counter  string
	asked    int  // shards 0..asked-1 have been asked for
	known    bool // the record has been read
	exists   bool
	shards   int
	reset    store.ResetState
	sum      sum
	overflow bool
	early    []answer
}

type answer struct {
	shard int
	value store.Value
}

// take notes the answer to a key. The error is that of a record no countmill writes.
func (t *partial) take(shard int, v store.Value) error {
	switch {
	case shard == store.RecordKey:
		return t.takeRecord(v)
	case !t.known:
		t.early = append(t.early, answer{shard, v})
	default:
		t.add(shard, v)
	}
	return nil
}

func (t *partial) takeRecord(v store.Value) error {
	if v.Value < 0 || v.Value > countmill.MaxShards || v.Overflow {
		return fmt.Errorf("the record of counter %q names %d shards, not 0 to %d", t.counter, v.Value, countmill.MaxShards)
	}
	t.known, t.exists = true, v.Exists
	if v.Exists {
		t.shards, t.reset = int(v.Value), v.Reset
	}
	for _, a := range t.early {
		t.add(a.shard, a.value)
	}
	t.early = nil
	return nil
}

// add leaves out shards at or above the record's number. A reader that remembers more
// (the counter was deleted and made anew) must give the same total as one that does not.
func (t *partial) add(shard int, v store.Value) {
	if shard >= t.shards {
		return
	}
	t.overflow = t.overflow || v.Overflow
	t.sum.add(v.Value)
}

// total is the counter's total, or an *OverflowError: what its shards hold beyond what they
// held at the last reset. A deleted counter does not exist until it holds more or less.
func (t *partial) total() (Total, error) {
	since := t.sum
	since.subtract(t.reset.Baseline)
	v, fits := since.int64()
	if !fits || t.overflow {
		return Total{}, &OverflowError{Counter: t.counter}
	}
	if v == 0 && !t.reset.DeletedAt.IsZero() {
		return Total{Counter: t.counter, Source: SourceStore}, nil
	}
	return Total{Counter: t.counter, Total: v, Source: SourceStore, Shards: t.shards, Exists: t.exists}, nil
}
