package datastore

import (
	"context"
	"errors"
	"math"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// View opens a view. It costs nothing until the first call.
func (s *Store) View() store.View { return &view{store: s} }

// A view reads at one moment. It holds no resources: the service keeps the past for an hour.
type view struct {
	store *Store
	when  *timestamppb.Timestamp // nil before the first call
	asOf  time.Time
	done  bool
}

func (v *view) call(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if v.done {
		return nil, nil, errors.New("the view is closed")
	}
	return v.store.call(ctx)
}

// pin sets the view's moment to the time of its first answer.
func (v *view) pin(when *timestamppb.Timestamp) error {
	if !v.asOf.IsZero() {
		return nil
	}
	if err := v.store.timed(when); err != nil {
		return err
	}
	v.when, v.asOf = when, when.AsTime()
	return nil
}

// ofTotals are the properties of records and shards that totals need. The buckets of a series and grouped
// parts stay in the server.
var ofTotals = []string{"shards", "baseline", "reset_at", "deleted_at", remainderLow, remainderHigh, "count", "bucketed"}

// Lookup makes one call.
func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	ctx, cancel, err := v.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if len(keys) > maxKeys {
		return nil, tooManyKeys(len(keys))
	}
	refs := make([]ref, len(keys))
	for i, k := range keys {
		refs[i] = readerRef(k)
	}
	found, deferred, resp, err := v.store.lookup(ctx, at(v.when), refs, ofTotals...)
	if err != nil {
		return nil, v.store.explain("look up", err)
	}
	if err := v.pin(resp.GetReadTime()); err != nil {
		return nil, err
	}
	if err := v.store.confirm(ctx, "look up"); err != nil {
		return nil, err
	}
	later := make(map[ref]bool, len(deferred))
	for _, r := range deferred {
		later[r] = true
	}
	values := make([]store.Value, len(keys))
	for i, r := range refs {
		if later[r] {
			values[i].Deferred = true
			continue
		}
		if values[i], err = valueOf(r, found[r]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// saturated reports whether n is at an end of int64, where increments have no effect: it is not a sum.
func saturated(n int64) bool { return n == math.MaxInt64 || n == math.MinInt64 }

// exact returns a sum that is not known, because it left int64, as a number far beyond int64.
func exact(n int64, overflow bool) int128.Int {
	if overflow {
		return int128.Int{Hi: 1 << 40}
	}
	return int128.Of(n)
}

// near is the opposite of exact.
func near(sum int128.Int) int64 {
	n, fits := sum.Int64()
	if !fits {
		return math.MaxInt64
	}
	return n
}

// valueOf reads a record or a shard.
func valueOf(r ref, e *pb.Entity) (store.Value, error) {
	if e == nil {
		return store.Value{}, nil
	}
	f := fields{entity: e}
	if r.kind == kindCounter {
		rec, err := recordOf(e)
		return store.Value{Exists: true, Shards: int(rec.shards), Reset: rec.reset(), Remainder: exact(rec.remainder, rec.overflow)}, err
	}
	count := f.integer("count")
	v := store.Value{Exists: true, Count: exact(count, saturated(count))}
	if f.has("bucketed") {
		v.Bucketed = int128.Of(f.integer("bucketed"))
	}
	return v, f.err
}

// List queries the keys of records.
func (v *view) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	ctx, cancel, err := v.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	sp, some := prefixSpan(prefix, after)
	if limit <= 0 || !some {
		return nil, nil
	}
	var records []store.Record
	when, err := v.store.query(ctx, v.when, sp, min(limit, math.MaxInt32), func(e *pb.Entity) error {
		rec, err := recordOf(e)
		records = append(records, store.Record{
			Counter: refOf(e.GetKey()).name, Shards: int(rec.shards), Reset: rec.reset(), Remainder: exact(rec.remainder, rec.overflow),
		})
		return err
	})
	if err != nil {
		return nil, v.store.explain("list", err)
	}
	return records, v.pin(when)
}

// prefixSpan returns the range of counters that begin with prefix and come after after. If one of the
// two is not UTF-8 there are none, because names are UTF-8.
func prefixSpan(prefix, after string) (sp span, some bool) {
	if !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return span{}, false
	}
	sp = span{kind: kindCounter, to: successor(prefix)}
	if after >= prefix {
		sp.past = after
	} else {
		sp.from = prefix
	}
	return sp, sp.to == "" || after < sp.to
}

// successor returns the first string after all that begin with prefix, or "" if there is none. It is
// UTF-8: the last character that has a successor is replaced by it.
func successor(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if r == utf8.MaxRune {
			continue
		}
		if r++; r == 0xd800 {
			r = 0xe000 // the numbers in between are not characters
		}
		return prefix + string(r)
	}
	return ""
}

// ReadTime returns the view's moment, or zero before the first call.
func (v *view) ReadTime() time.Time { return v.asOf }

// Close ends the view.
func (v *view) Close() { v.done = true }
