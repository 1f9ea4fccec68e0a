package plan

import (
	"math"
	"time"

	"github.com/countmill/countmill/wire"
)

// Limits of publisher.Config: half of MaxEntries or MaxBytes ends a linger.
const (
	openEntries = 2_000_000 / 2
	openBytes   = 256 << 20 / 2
	entryCost   = 128 // bytes of an entry in the open batch, without its name
)

// A batch is the average batch of a publisher: one message, or several if it does not fit one.
type batch struct {
	every       float64 // seconds
	increments  float64 // number of increments
	ids         float64 // increments with ids, each a part
	parts       float64 // each with a marker
	completions float64 // markers of whole messages
	entries     float64
	messages    float64
	bytes       float64 // encoded bytes of all messages
	full        bool    // flushed before the end of the linger
	groups      []group // that its counters are in
}

// send computes the batch of each publisher.
//
// A batch begins with an increment, publishers/rate after the last batch was flushed, and gathers
// for the linger. With CountWithin all publishers that have increments flush at the same moments.
func (l Load) send(of []class) batch {
	gap := float64(l.Publishers) / l.Rate
	n := (l.Linger.Seconds() + gap) / gap
	if l.CountWithin > 0 {
		n = l.within() / gap / -math.Expm1(-l.within()/gap)
	}
	b := l.batch(of, n)
	if b.fits(l) {
		return b.overMinutes(gap)
	}
	least, most := 1.0, b.increments
	for most-least > 0.5 {
		middle := (least + most) / 2
		if b = l.batch(of, middle); b.fits(l) {
			least = middle
		} else {
			most = middle
		}
	}
	b = l.batch(of, least)
	b.full = true
	return b.overMinutes(gap)
}

// overMinutes divides a batch that is open when a minute ends. It then has one part more, and a completion marker if it
// had none. gap is the time in seconds between two increments of a publisher.
func (b batch) overMinutes(gap float64) batch {
	ends := max(b.every-gap, 0) / 60 // of minutes, while it is open
	b.parts += min(ends, max(b.increments-b.parts, 0))
	b.completions += (b.messages - b.completions) * min(ends, 1)
	return b
}

// The range of CountWithin (package publisher).
const (
	minStaleness = 100 * time.Millisecond
	maxStaleness = time.Minute
)

// within is how long batches wait with CountWithin, in seconds (package publisher, lingerWithin).
func (l Load) within() float64 {
	return (l.CountWithin - l.CountWithin/20 - min(l.CountWithin, time.Second)*3/20).Seconds()
}

// fits reports whether the open batch has room for a whole linger.
func (b batch) fits(l Load) bool {
	return b.entries <= openEntries && b.entries*float64(entryCost+l.NameBytes) <= openBytes
}

// batch computes a batch of n increments. Its messages have completion markers, except a message that is one
// part of increments without ids. If a batch has between one part and two on average, some have one.
func (l Load) batch(of []class, n float64) batch {
	b := batch{every: n * float64(l.Publishers) / l.Rate, increments: n, ids: n * l.IDs}
	coalesced := n - b.ids
	sums, stray := distinct(of, coalesced)
	if coalesced < 1 && coalesced > 0 { // fewer than one increment on average
		sums, stray = coalesced, 0
	}
	cut := min(ranges(sums, stray, wire.MaxEntries), coalesced)
	b.parts, b.entries = cut+b.ids, sums+b.ids
	b.bytes = 12 + cut*21 + sums*l.entryBytes(coalesced/max(sums, 1e-9)) + b.ids*(23+l.entryBytes(1))
	b.messages = math.Ceil(b.bytes / wire.MaxBatch)
	b.completions = b.messages * (1 - math.Exp(-b.ids)*max(2-max(cut, 1), 0))
	b.groups = l.groupsOf(of, coalesced)
	return b
}

// entryBytes is the size of an entry on the wire (wire/encode.go): two tags, two lengths, the
// name, and a delta with 7 bits in a byte, one of which is its sign.
func (l Load) entryBytes(delta float64) float64 {
	digits := math.Ceil((math.Log2(max(delta, 1)) + 1.001) / 7)
	lengths := 2.0
	if l.NameBytes > 120 {
		lengths = 4
	}
	return 3 + lengths - 1 + float64(l.NameBytes) + digits
}
