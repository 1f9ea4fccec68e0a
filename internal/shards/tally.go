package shards

import "time"

// Epoch is the time after which a tally starts again. Tallies in the store depend on it: all
// aggregators of a deployment must use the same value.
const Epoch = 4 * time.Second

// The lower tallyBits bits of a tally are the count, the others the number of the epoch.
const tallyBits = 24

// Floor is the lower bound of a tally before it is incremented, at the time now of the store.
func Floor(now time.Time) int64 { return now.UnixNano() / int64(Epoch) << tallyBits }

// ahead reports whether the tally's epoch is in the future: an aggregator's clock was far ahead
// once. The tally has no meaning until then.
func ahead(tally int64, now time.Time) bool {
	return tally>>tallyBits*int64(Epoch) > now.Add(Epoch).UnixNano()
}

// readTally returns the number of commits in the tally's epoch, and the time since the epoch
// began.
func readTally(tally int64, now time.Time) (commits int, since time.Duration) {
	began := tally >> tallyBits * int64(Epoch)
	return int(tally & (1<<tallyBits - 1)), max(time.Duration(now.UnixNano()-began), 0)
}
