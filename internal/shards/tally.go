package shards

import "time"

// Epoch is how long a tally counts. It is part of what is stored: all aggregators of a
// deployment have the same.
const Epoch = 4 * time.Second

// tallyBits of a tally are for the count, the others for the epoch's number.
const tallyBits = 24

// Floor is what a tally is at least, before it is incremented, at that moment of the
// store's time.
func Floor(now time.Time) int64 { return now.UnixNano() / int64(Epoch) << tallyBits }

// ahead reports whether the epoch is yet to come: somebody's clock was far ahead once, and the
// tally says nothing until that time.
func ahead(tally int64, now time.Time) bool {
	return tally>>tallyBits*int64(Epoch) > now.Add(Epoch).UnixNano()
}

// readTally returns how many commits the shard has had in the tally's epoch, and how long
// ago that began.
func readTally(tally int64, now time.Time) (commits int, since time.Duration) {
	began := tally >> tallyBits * int64(Epoch)
	return int(tally & (1<<tallyBits - 1)), max(time.Duration(now.UnixNano()-began), 0)
}
