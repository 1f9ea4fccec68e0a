package wire

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// Identified is how one increment with an id becomes a part.
func CutIdentified(inc countmill.Increment) Part {
	return Part{
		ID:      IncrementID(inc.Counter, inc.ID),
		Kind:    Identified,
		Time:    inc.Time,
		Entries: []Entry{{Counter: inc.Counter, Delta: inc.Delta}},
	}
}

// CutAnonymous cuts sorted entries (SortEntries) into parts of at most MaxEntries with
// ids from random (see RandomIDs). The parts share the array of entries.
func CutAnonymous(random io.Reader, entries []Entry) []Part {
	parts := make([]Part, 0, (len(entries)+MaxEntries-1)/MaxEntries)
	for chunk := range slices.Chunk(entries, MaxEntries) {
		parts = append(parts, Part{Kind: Anonymous, Entries: chunk})
	}
	ids := make([]PartID, len(parts))
	RandomIDs(random, ids)
	for i := range parts {
		parts[i].ID = ids[i]
	}
	return parts
}

// CutRequest cuts a request with an Idempotency-Key. The result is frozen: the same
// request gives the same parts in every version and on every machine, whatever times
// its increments carry, because a repeat that was cut in another way would be lost or
// counted twice where the cuts differ. Increments without ids are summed by counter,
// put in hash order and cut every MaxEntries; each increment with an id is a part of
// its own. The first part is the head, even where it has no entries.
//
// A part's time is the newest event time in the request, or zero when no increment has
// one. A part with an id has its own where the increment has one: beside younger ones it
// must not look younger than its marker. The error is a *FieldError: a sum left +-MaxSum,
// or one id was used twice with different deltas.
func CutRequest(principal, key string, incs []countmill.Increment) ([]Part, error) {
	sums, err := sumAnonymous(incs)
	if err != nil {
		return nil, err
	}
	ids, err := identified(incs)
	if err != nil {
		return nil, err
	}
	request, newest := fingerprintRequest(sums, ids), newestTime(incs)
	parts := cutNumbered(sums, func(n int) PartID { return KeyID(principal, key, n) })
	if len(parts) == 0 {
		parts = append(parts, Part{ID: KeyID(principal, key, 0)})
	}
	for i := range parts {
		parts[i].Kind, parts[i].Request, parts[i].Time = Rest, request, newest
	}
	parts[0].Kind = Head
	for _, inc := range ids {
		p := CutIdentified(inc)
		if p.Kind, p.Request = IdentifiedRest, request; p.Time.IsZero() {
			p.Time = newest
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// CutMessage cuts a message that another language put on the topic. Its identity is
// the broker's message id; published is the broker's publish time. Increments with ids
// are parts of their own.
func CutMessage(topic, brokerID string, published time.Time, incs []countmill.Increment) (*Batch, error) {
	sums, err := sumAnonymous(incs)
	if err != nil {
		return nil, err
	}
	ids, err := identified(incs)
	if err != nil {
		return nil, err
	}
	parts := cutNumbered(sums, func(n int) PartID { return MessageID(topic, brokerID, n) })
	for i := range parts {
		parts[i].Kind = Anonymous
	}
	for _, inc := range ids {
		parts = append(parts, CutIdentified(inc))
	}
	return &Batch{Time: published.Truncate(time.Microsecond), Parts: parts}, nil
}

func cutNumbered(sums []Entry, id func(int) PartID) []Part {
	var parts []Part
	for chunk := range slices.Chunk(sums, MaxEntries) {
		parts = append(parts, Part{ID: id(len(parts)), Entries: chunk})
	}
	return parts
}

// sumAnonymous sums the increments without ids by counter, drops what sums to 0 and
// puts the rest in hash order.
func sumAnonymous(incs []countmill.Increment) ([]Entry, error) {
	sums := make(map[string]int64)
	for i, inc := range incs {
		if inc.ID != "" {
			continue
		}
		sum := sums[inc.Counter] + inc.Delta // cannot wrap: +-2^62 and +-2^53
		if sum > MaxSum || sum < -MaxSum {
			return nil, &countmill.FieldError{
				Field: "delta", Index: &i, Limit: "-2^62 to 2^62",
				Problem: fmt.Sprintf("makes the sum of counter %q in this request too large", inc.Counter),
			}
		}
		sums[inc.Counter] = sum
	}
	entries := make([]Entry, 0, len(sums))
	for counter, sum := range sums {
		if sum != 0 {
			entries = append(entries, Entry{counter, sum})
		}
	}
	SortEntries(entries)
	return entries, nil
}

// identified is the increments with ids, each (counter, id) once, ordered by counter
// and id. One that stands there several times has the oldest of its times, in whatever order they
// come: it must not look younger than its marker.
func identified(incs []countmill.Increment) ([]countmill.Increment, error) {
	type name struct{ counter, id string }
	var ids []countmill.Increment
	seen := make(map[name]int) // where it is in ids
	for i, inc := range incs {
		if inc.ID == "" {
			continue
		}
		n := name{inc.Counter, inc.ID}
		if at, ok := seen[n]; ok {
			first := &ids[at]
			if first.Delta != inc.Delta {
				return nil, &countmill.FieldError{Field: "id", Index: &i, Problem: "stands twice in this request with different deltas"}
			}
			if first.Time.IsZero() || !inc.Time.IsZero() && inc.Time.Before(first.Time) {
				first.Time = inc.Time
			}
			continue
		}
		seen[n] = len(ids)
		ids = append(ids, inc)
	}
	slices.SortStableFunc(ids, func(a, b countmill.Increment) int {
		if c := strings.Compare(a.Counter, b.Counter); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return ids, nil
}

func fingerprintRequest(sums []Entry, ids []countmill.Increment) Fingerprint {
	d := newDigest()
	for _, e := range sums {
		d.entry(e.Counter, e.Delta)
	}
	for _, inc := range ids {
		d.field("id")
		d.field(inc.ID)
		d.entry(inc.Counter, inc.Delta)
	}
	return d.fingerprint()
}

func newestTime(incs []countmill.Increment) time.Time {
	var newest time.Time
	for _, inc := range incs {
		if inc.Time.After(newest) {
			newest = inc.Time
		}
	}
	return newest
}
