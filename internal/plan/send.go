package plan

import (
	"math"
	"time"

	"github.com/countmill/countmill/wire"
)

// Of publisher.Config: half of MaxEntries or MaxBytes ends a linger.
const (
	openEntries = 2_000_000 / 2
	openBytes   = 256 << 20 / 2
	entryCost   = 128 // bytes of the open batch for an entry, beside its name
)

// A batch is what a publisher sends after a linger, on average: one message, and more where
// it does not fit one.
type batch struct {
	every      float64 // seconds
	increments float64 // all in all
	ids        float64 // of them with ids: a part each
	parts      float64 // a marker each
	entries    float64
	messages   float64
	bytes      float64 // of all messages, as the publisher encodes them
	full       bool    // before the linger was over
}

// send is what each publisher does.
//
// A batch begins with an increment, publishers/rate after the last one was sealed, and
// gathers for the linger. With --count-within all publishers seal at the same moments, each of
// them that has something.
func (l Load) send(of []class) batch {
	gap := float64(l.Publishers) / l.Rate
	n := (l.Linger.Seconds() + gap) / gap
	if l.CountWithin > 0 {
		n = l.within() / gap / -math.Expm1(-l.within()/gap)
	}
	b := l.batch(of, n)
	if b.fits(l) {
		return b
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
	return b
}

// What --count-within may be (package publisher).
const (
	minStaleness = 100 * time.Millisecond
	maxStaleness = time.Minute
)

// within is how long batches wait with --count-within, in seconds: all of it but a twentieth, and
// 150 ms for the way and the commit.
func (l Load) within() float64 {
	return (l.CountWithin - l.CountWithin/20 - min(l.CountWithin, time.Second)*3/20).Seconds()
}

// fits reports whether the open batch lasts for the linger.
func (b batch) fits(l Load) bool {
	return b.entries <= openEntries && b.entries*float64(entryCost+l.NameBytes) <= openBytes
}

// batch is one of n increments.
func (l Load) batch(of []class, n float64) batch {
	b := batch{every: n * float64(l.Publishers) / l.Rate, increments: n, ids: n * l.IDs}
	coalesced := n - b.ids
	sums, stray := distinct(of, coalesced)
	if coalesced < 1 && coalesced > 0 { // a batch may have none
		sums, stray = coalesced, 0
	}
	cut := min(pieces(sums, stray, wire.MaxEntries), coalesced)
	b.parts, b.entries = cut+b.ids, sums+b.ids
	b.bytes = 12 + cut*21 + sums*l.entryBytes(coalesced/max(sums, 1e-9)) + b.ids*(23+l.entryBytes(1))
	b.messages = math.Ceil(b.bytes / wire.MaxBatch)
	return b
}

// entryBytes is an entry on the wire (wire/encode.go): two tags and two lengths, the name,
// and a delta of 7 bits a byte, one of which is its sign.
func (l Load) entryBytes(delta float64) float64 {
	digits := math.Ceil((math.Log2(max(delta, 1)) + 1.001) / 7)
	lengths := 2.0
	if l.NameBytes > 120 {
		lengths = 4
	}
	return 3 + lengths - 1 + float64(l.NameBytes) + digits
}
