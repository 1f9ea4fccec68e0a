package aggregator

import "github.com/countmill/countmill/wire"

// The memory of a message depends on its parts and entries more than on its size: an increment with
// an id is a part of its own, which has 30 bytes on the wire and ten times as many in memory. These
// are bytes on a machine of 64 bits, measured by TestHeldMemory and rounded up.
const (
	// messageMemory is for the envelope, without the memory that a bus needs for its ack.
	messageMemory = 1 << 10
	// partMemory is for a part, its id in known, and its place in a window, in a job or in a
	// dead letter of its own.
	partMemory = 320
	// entryMemory is for an entry and its place in the commit that adds it.
	entryMemory = 64
)

// memoryOf estimates the memory of a message until it is settled: one copy of its bytes, which has
// the names, and its parts and entries. batch is nil for a message that cannot be decoded.
func memoryOf(size int, batch *wire.Batch) int {
	n := messageMemory + size
	if batch != nil {
		n += len(batch.Parts)*partMemory + batch.Entries()*entryMemory
	}
	return n
}
