package datastore

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/wire"
)

// A bucket is a property, in a shard and in the archive alike: m and the minute since 1970, or q and
// the first minute of a quarter hour. Quarter hours are in the archive alone.

// A slot names a bucket.
type slot struct {
	minute  wire.Minute
	quarter bool
}

// property is the name of the bucket's property.
func (s slot) property() string {
	kind := "m"
	if s.quarter {
		kind = "q"
	}
	return kind + strconv.Itoa(int(s.minute))
}

// slotOf returns the bucket of a property; ok is false for other properties.
func slotOf(property string) (s slot, ok bool) {
	if len(property) < 2 || property[0] != 'm' && property[0] != 'q' {
		return s, false
	}
	n, err := strconv.ParseInt(property[1:], 10, 32)
	s = slot{wire.Minute(n), property[0] == 'q'}
	return s, err == nil && n >= 0 && s.property() == property
}

// joined is the quarter hour of the bucket.
func (s slot) joined() slot { return slot{store.QuarterOf(s.minute), true} }

func (s slot) day() seriesDay { return dayOf(s.minute) }

func compareSlots(a, b slot) int {
	order := cmp.Compare(a.minute, b.minute)
	switch {
	case order != 0 || a.quarter == b.quarter:
		return order
	case b.quarter:
		return -1
	}
	return 1
}

// A slotSum is a bucket and its sum.
type slotSum struct {
	slot
	sum int64
}

// bucketsOf returns the buckets of an entity in the order of their slots.
func bucketsOf(e *pb.Entity) (found []slotSum, err error) {
	f := fields{entity: e}
	for property := range e.GetProperties() {
		if s, ok := slotOf(property); ok {
			found = append(found, slotSum{s, f.integer(property)})
		}
	}
	slices.SortFunc(found, func(a, b slotSum) int { return compareSlots(a.slot, b.slot) })
	return found, f.err
}

// A seriesDay is the number of days since 1970 in UTC.
type seriesDay int32

func dayOf(m wire.Minute) seriesDay { return seriesDay(m / store.DayMinutes) }

// first is the first minute of the day.
func (d seriesDay) first() wire.Minute { return wire.Minute(d) * store.DayMinutes }

// archiveRef returns the key of a counter's day in the archive. The days of a counter are neighbours.
func archiveRef(counter string, d seriesDay) ref {
	name := append(hashed(wire.ShardHash(counter, 0), counter, 8), ':')
	return ref{kindSeries, string(d.first().Time().AppendFormat(name, dayFormat))}
}

const dayFormat = "20060102"

// archived returns the counter and the day of a key; ok is false for a key that another program made.
func archived(r ref) (counter string, d seriesDay, ok bool) {
	const before, after = len("HHHHHHHH:"), len(":" + dayFormat)
	if len(r.name) <= before+after {
		return "", 0, false
	}
	counter = r.name[before : len(r.name)-after]
	first, err := time.Parse(dayFormat, r.name[len(r.name)-len(dayFormat):])
	d = dayOf(wire.MinuteOf(first))
	return counter, d, err == nil && archiveRef(counter, d) == r
}

// archiveSpan is the range of keys of a counter's days from first to last. It may have keys of other
// counters, whose names begin with this one's.
func archiveSpan(counter string, first, last seriesDay) span {
	return span{kind: kindSeries, from: archiveRef(counter, first).name, to: archiveRef(counter, last).name + "\x00"}
}

// lastDay is after all days of increments.
var lastDay = dayOf(wire.MinuteOf(wire.MaxTime))

// Series sums the rings of the counters' shards and their days in the archive, at one moment.
func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	ctx, cancel, err := v.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if v.asOf.IsZero() {
		when, err := v.store.moment(ctx)
		if err != nil {
			return nil, v.store.explain("read series", err)
		}
		v.when, v.asOf = when, when.AsTime()
	}
	r := &seriesRead{view: v, of: of, sums: make([]*slotSums, len(of))}
	for i := range of {
		r.sums[i] = newSlotSums(from, to)
	}
	last := min(to, wire.MinuteOf(v.asOf.Add(archiveAhead))) - 1
	if err := r.run(ctx, dayOf(max(from, 0)), dayOf(last)); err != nil {
		return nil, err
	}
	found := make([][]store.Bucket, len(of))
	for i, sums := range r.sums {
		found[i] = sums.buckets()
	}
	return found, v.store.confirm(ctx, "read series")
}

// A seriesRead reads the series of counters in a view.
type seriesRead struct {
	*view
	of   []store.Record
	sums []*slotSums // of each
}

// daysByKey is the most days that are looked up together with the shards: those of a month. A look-up of a day that does not exist
// costs a read, so more days are queried, with a call for each counter.
const daysByKey = 32

func (r *seriesRead) run(ctx context.Context, first, last seriesDay) error {
	byKey := last-first < daysByKey
	var refs []ref
	var whose []*slotSums
	for i := range r.of {
		counter := r.of[i].Counter
		for n := range r.of[i].Shards {
			refs = append(refs, readerRef(store.Key{Counter: counter, Shard: n}))
		}
		for d := first; byKey && d <= last; d++ {
			refs = append(refs, archiveRef(counter, d))
		}
		whose = append(whose, slices.Repeat(r.sums[i:i+1], len(refs)-len(whose))...)
	}
	err := r.store.eachFound(ctx, r.when, refs, nil, func(i int, e *pb.Entity) error { return whose[i].gather(e) })
	if err != nil || byKey {
		return err
	}
	// The archive at the moment of the rings: a move between two would show its sums twice or not at all.
	for i, sums := range r.sums {
		counter := r.of[i].Counter
		_, err := r.store.query(ctx, r.when, archiveSpan(counter, first, last), math.MaxInt32, func(e *pb.Entity) error {
			if of, _, ok := archived(refOf(e.GetKey())); !ok || of != counter {
				return nil
			}
			return sums.gather(e)
		})
		if err != nil {
			return r.store.explain("read series", err)
		}
	}
	return nil
}

// slotSums are sums by bucket, of the buckets that begin at from or later and before to.
type slotSums struct {
	from, to wire.Minute
	sums     map[slot]wide
}

func newSlotSums(from, to wire.Minute) *slotSums {
	return &slotSums{from: from, to: to, sums: make(map[slot]wide)}
}

// gather adds the buckets of a shard or of a day.
func (s *slotSums) gather(e *pb.Entity) error {
	buckets, err := bucketsOf(e)
	for _, b := range buckets {
		if b.minute >= s.from && b.minute < s.to {
			s.sums[b.slot] = s.sums[b.slot].plus(b.sum)
		}
	}
	return err
}

// buckets returns the sums in the order of their slots, without those of 0.
func (s *slotSums) buckets() []store.Bucket {
	found := make([]store.Bucket, 0, len(s.sums))
	for at, sum := range s.sums {
		if sum == (wide{}) {
			continue
		}
		b := store.Bucket{Minute: at.minute, Quarter: at.quarter, Sum: exact(sum.total())}
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b store.Bucket) int {
		return compareSlots(slot{a.Minute, a.Quarter}, slot{b.Minute, b.Quarter})
	})
	return found
}

// A wide is a sum of 128 bits.
type wide struct {
	hi    int64
	lo    uint64
	stuck bool // one of its terms is no sum
}

func (w wide) plus(n int64) wide {
	lo, carry := bits.Add64(w.lo, uint64(n), 0)
	return wide{w.hi + n>>63 + int64(carry), lo, w.stuck || saturated(n)}
}

// clamped returns the sum as an increment that saturates would leave it.
func (w wide) clamped() int64 {
	switch sum, overflow := w.total(); {
	case !overflow:
		return sum
	case w.hi < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

func (w wide) total() (sum int64, overflow bool) {
	return int64(w.lo), w.stuck || w.hi != int64(w.lo)>>63
}
