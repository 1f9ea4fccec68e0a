package reader

import (
	"fmt"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// A partial is the total of one counter while it is being read. The record decides how many
// shards the counter has; values of shards that arrive before the record wait for it.
type partial struct {
	counter  string
	asked    int  // shards 0 to asked-1 have been requested
	known    bool // the record has been read
	exists   bool
	shards   int
	reset    store.ResetState
	sum      int128.Int // of the shards, and of a group's remainder
	bucketed int128.Int // the part of sum that series have
	early    []answer
}

type answer struct {
	shard int
	value store.Value
}

// take notes the answer to a key. The error means that the record is corrupt.
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
	if v.Shards < 0 || v.Shards > countmill.MaxShards {
		return fmt.Errorf("the record of counter %q names %d shards (limit: 0 to %d)", t.counter, v.Shards, countmill.MaxShards)
	}
	t.known, t.exists = true, v.Exists
	if v.Exists {
		t.shards, t.reset, t.sum = v.Shards, v.Reset, v.Remainder
	}
	for _, a := range t.early {
		t.add(a.shard, a.value)
	}
	t.early = nil
	return nil
}

// add ignores shards at or above the record's number. A reader that remembers more shards (the
// counter was deleted and made again) must give the same total as a reader that does not.
func (t *partial) add(shard int, v store.Value) {
	if shard >= t.shards {
		return
	}
	t.sum, t.bucketed = t.sum.Add(v.Count), t.bucketed.Add(v.Bucketed)
}

// since is the sum since the last reset.
func (t *partial) since() int128.Int { return t.sum.Sub(t.reset.Baseline) }

// total is the counter's total: the sum of its shards minus the baseline of the last reset. The
// error is an *OverflowError. A deleted counter does not exist while that is 0.
func (t *partial) total() (Total, error) {
	v, fits := t.since().Int64()
	if !fits {
		return Total{}, &OverflowError{Counter: t.counter}
	}
	if v == 0 && !t.reset.DeletedAt.IsZero() {
		return Total{Counter: t.counter, Source: SourceStore}, nil
	}
	return Total{Counter: t.counter, Total: v, Source: SourceStore, Shards: t.shards, Exists: t.exists}, nil
}
