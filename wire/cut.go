package wire

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// CutIdentified makes the part of one increment that has an id.
func CutIdentified(inc countmill.Increment) Part {
	return Part{
		ID:      IncrementID(inc.Counter, inc.ID),
		Kind:    Identified,
		Event:   inc.ID,
		Time:    inc.Time,
		Entries: []Entry{{Counter: inc.Counter, Delta: inc.Delta}},
	}
}

// CutAnonymous cuts sorted entries (SortEntries) into parts of at most MaxEntries, with numbered ids from
// random (RandomID). The parts share the array of entries.
func CutAnonymous(random io.Reader, entries []Entry) []Part {
	parts := make([]Part, 0, (len(entries)+MaxEntries-1)/MaxEntries)
	id := RandomID(random, AnonymousClass)
	for chunk := range slices.Chunk(entries, MaxEntries) {
		parts = append(parts, Part{ID: id.numbered(len(parts)), Kind: Anonymous, Entries: chunk})
	}
	return parts
}

// CutRequest cuts a request with an Idempotency-Key. The result is frozen: the same request gives
// the same parts in every version and on every machine, at any time. A repeat that was cut in
// another way would be lost or counted twice where the cuts differ.
//
// Increments without ids are summed by the minute of their event time and by counter. The sums of a
// minute are sorted as by SortEntries, and cut every MaxEntries. Increments without a time are of the
// newest minute in the request. Each increment with an id is a part of its own. The first part is the
// head, even if it has no entries.
//
// The time of the parts is the newest event time in the request, or zero if there is none. An increment
// with an id and a time has its own minute and time: if it had the time of younger increments, it would
// look younger than its marker.
//
// The error is a *FieldError: a sum left +-MaxSum, or one id was used twice with different
// deltas.
func CutRequest(principal, key string, incs []countmill.Increment) ([]Part, error) {
	newest := newestOf(incs)
	return cutRequest(Key{principal, key}, newest, incs, func(inc *countmill.Increment) Minute {
		if inc.Time.IsZero() && !newest.IsZero() {
			return MinuteOf(newest)
		}
		return atItsTime(inc)
	})
}

// CutPast is CutRequest for a request whose increments all count at one minute.
func CutPast(minute Minute, principal, key string, incs []countmill.Increment) ([]Part, error) {
	parts, err := cutRequest(Key{principal, key}, newestOf(incs), incs, func(*countmill.Increment) Minute { return 0 })
	for i := range parts {
		parts[i].Minute = minute
	}
	return parts, err
}

func cutRequest(key Key, newest time.Time, incs []countmill.Increment, at func(*countmill.Increment) Minute) ([]Part, error) {
	sums, err := sumAnonymous(incs, at)
	if err != nil {
		return nil, err
	}
	ids, err := Distinct(incs)
	if err != nil {
		return nil, err
	}
	parts := cutSums(key, sums, newest)
	parts[0].Kind, parts[0].Key, parts[0].Number = Head, &key, int32(len(parts)-1)
	for _, inc := range ids {
		p := CutIdentified(inc)
		if p.Kind = IdentifiedFollower; p.Time.IsZero() {
			p.Time = newest
		}
		parts = append(parts, p)
	}
	request := fingerprintRequest(sums, ids)
	for i := range parts {
		parts[i].Request = request
	}
	return parts, nil
}

// cutSums makes the numbered parts of a request. There is at least one.
func cutSums(key Key, sums []minuteSums, newest time.Time) (parts []Part) {
	id := KeyID(key.Principal, key.Key, 0)
	for _, s := range sums {
		for chunk := range slices.Chunk(s.entries, MaxEntries) {
			n := len(parts)
			p := Part{Kind: Follower, ID: id.numbered(n), Number: int32(n), Time: newest, Minute: s.minute, Entries: chunk}
			if s.minute == MinuteOf(newest) {
				p.Minute = 0 // that of its time
			}
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, Part{ID: id, Time: newest})
	}
	return parts
}

// CutMessage cuts a message that another program published on the topic. brokerID is the broker's
// message id, from which the ids of its parts are computed, and published is the broker's publish
// time. Increments with ids are parts of their own; the others are summed by minute and counter.
func CutMessage(topic, brokerID string, published time.Time, incs []countmill.Increment) (*Batch, error) {
	sums, err := sumAnonymous(incs, atItsTime)
	if err != nil {
		return nil, err
	}
	ids, err := Distinct(incs)
	if err != nil {
		return nil, err
	}
	var parts []Part
	id := MessageID(topic, brokerID, 0)
	for _, s := range sums {
		for chunk := range slices.Chunk(s.entries, MaxEntries) {
			parts = append(parts, Part{ID: id.numbered(len(parts)), Kind: Foreign, Minute: s.minute, Entries: chunk})
		}
	}
	for _, inc := range ids {
		parts = append(parts, CutIdentified(inc))
	}
	return &Batch{Time: published.Truncate(time.Microsecond), Parts: parts}, nil
}

// minuteSums are the sums of one minute, sorted by Order, then by name.
type minuteSums struct {
	minute  Minute
	entries []Entry
}

// sumAnonymous sums the increments without ids by minute (at) and counter, drops sums of 0, and sorts the rest.
// It sorts first, and sums neighbours: a map of names costs twice the time.
func sumAnonymous(incs []countmill.Increment, at func(*countmill.Increment) Minute) ([]minuteSums, error) {
	all := make(map[Minute]*[]place)
	var places *[]place // those of the minute last
	var last Minute
	for i := range incs {
		if incs[i].ID != "" {
			continue
		}
		if m := at(&incs[i]); places == nil || m != last {
			if places, last = all[m], m; places == nil {
				places = new([]place)
				if all[m] = places; len(all) == 1 { // most requests have one minute
					*places = make([]place, 0, len(incs)-i)
				}
			}
		}
		*places = append(*places, place{Order(incs[i].Counter), i})
	}
	var sums []minuteSums
	wrong := len(incs) // the first increment that makes a sum too large
	for _, m := range slices.Sorted(maps.Keys(all)) {
		entries, tooLarge := sumPlaces(incs, sortPlaces(*all[m]))
		if wrong = min(wrong, tooLarge); len(entries) > 0 {
			sums = append(sums, minuteSums{m, entries})
		}
	}
	if wrong < len(incs) {
		return nil, &countmill.FieldError{
			Field: "delta", Index: &wrong, Limit: "-2^62 to 2^62",
			Problem: fmt.Sprintf("makes the sum of counter %q in this request too large", incs[wrong].Counter),
		}
	}
	return sums, nil
}

// sumPlaces sums increments whose places are sorted. tooLarge is the index of the first increment whose sum is too large; len(incs) without one.
func sumPlaces(incs []countmill.Increment, places []place) (entries []Entry, tooLarge int) {
	tooLarge = len(incs)
	orders := 0
	for i := range places {
		if i == 0 || places[i].order != places[i-1].order {
			orders++
		}
	}
	entries = make([]Entry, 0, orders)
	for len(places) > 0 {
		end, collide := 1, false // of one order are the increments of one counter, but for a collision of hashes
		for ; end < len(places) && places[end].order == places[0].order; end++ {
			collide = collide || incs[places[end].index].Counter != incs[places[0].index].Counter
		}
		same := places[:end]
		if places = places[end:]; collide {
			slices.SortStableFunc(same, func(a, b place) int { return strings.Compare(incs[a.index].Counter, incs[b.index].Counter) })
		}
		for i := 0; i < len(same); {
			sum := Entry{Counter: incs[same[i].index].Counter}
			for ; i < len(same) && incs[same[i].index].Counter == sum.Counter; i++ {
				at := same[i].index
				if sum.Delta += incs[at].Delta; sum.Delta > MaxSum || sum.Delta < -MaxSum { // cannot wrap: the terms are at most 2^53
					tooLarge = min(tooLarge, at)
					sum.Delta = 0
				}
			}
			if sum.Delta != 0 {
				entries = append(entries, sum)
			}
		}
	}
	return entries, tooLarge
}

// atItsTime puts each increment into the minute of its own time; 0 if it has none.
func atItsTime(inc *countmill.Increment) Minute {
	if inc.Time.IsZero() {
		return 0
	}
	return MinuteOf(inc.Time)
}

// Distinct returns the increments with ids, each (counter, id) once, ordered by counter and id.
// If one is there several times, it gets the oldest of its times, so that it does not look
// younger than its marker.
func Distinct(incs []countmill.Increment) ([]countmill.Increment, error) {
	type name struct{ counter, id string }
	var ids []countmill.Increment
	var seen map[name]int // its index in ids
	for i, inc := range incs {
		if inc.ID == "" {
			continue
		}
		n := name{inc.Counter, inc.ID}
		if at, ok := seen[n]; ok {
			first := &ids[at]
			if first.Delta != inc.Delta {
				return nil, &countmill.FieldError{Field: "id", Index: &i, Problem: "is used more than once in this request, with different deltas"}
			}
			if first.Time.IsZero() || !inc.Time.IsZero() && inc.Time.Before(first.Time) {
				first.Time = inc.Time
			}
			continue
		}
		if seen == nil {
			seen = make(map[name]int)
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

// fingerprintRequest includes the size of parts and the borders between minutes: a program that cut the
// request in another way would make other parts under the same ids. It does not include the minutes, so a
// client may repeat with new times, as long as the same increments share a minute.
func fingerprintRequest(sums []minuteSums, ids []countmill.Increment) Fingerprint {
	d := newDigest()
	d.entry("entries a part", MaxEntries)
	for i, s := range sums {
		if i > 0 {
			d.field("") // no counter has this name
		}
		for _, e := range s.entries {
			d.entry(e.Counter, e.Delta)
		}
	}
	for _, inc := range ids {
		d.field("id")
		d.field(inc.ID)
		d.entry(inc.Counter, inc.Delta)
	}
	return d.fingerprint()
}

// newestOf returns the newest event time; zero if there is none.
func newestOf(incs []countmill.Increment) (newest time.Time) {
	for i := range incs {
		if t := incs[i].Time; t.After(newest) {
			newest = t
		}
	}
	return newest
}
