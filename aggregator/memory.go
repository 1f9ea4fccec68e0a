package aggregator

import "github.com/countmill/countmill/wire"

// What a message takes in memory depends less on its bytes than on what is in it: each increment
// with an id is a part of its own, of 30 bytes on the wire and more than ten times that in process.
// These are the bytes of each thing, as measured with 64 bits by TestHeldMemory and rounded up.
const (
	// messageMemory is an envelope, what the bus backend keeps for its ack left out.
	messageMemory = 1 << 10
	// partMemory is a part, its id among those known, and its place in a window, in a job or
	// in a dead letter of its own.
	partMemory = 320
	// entryMemory is an entry, and its place in the commit that adds it.
	entryMemory = 64
)

// memoryOf estimates what a message of so many bytes takes until it is settled: one copy of its
// bytes, which has the names, and what they were decoded to. batch is nil where they cannot be.
func memoryOf(size int, batch *wire.Batch) int {
	n := messageMemory + size
	if batch != nil {
		n += len(batch.Parts)*partMemory + batch.Entries()*entryMemory
	}
	return n
}
