package aggregator

import "github.com/countmill/countmill/wire"

// The memory of a message depends on its parts and entries more than on its size. An increment
// with an id is a part of its own, which has 30 bytes on the wire and ten times as many in
// memory. These constants are bytes on a 64-bit machine, measured by TestHeldMemory and rounded
// up.
const (
	// messageMemory covers the envelope, but not the memory that a bus needs to acknowledge it.
	messageMemory = 1 << 10
	// partMemory covers a part, its id in loop.known, and its place in a window, in a job or in a
	// dead letter of its own.
	partMemory = 320
	// entryMemory covers an entry and its place in the commit that adds it.
	entryMemory = 64
)

// memoryOf estimates the memory of a message until it is settled: one copy of its bytes, which
// holds the names, and its parts and entries. batch is nil if the message cannot be decoded.
func memoryOf(size int, batch *wire.Batch) int {
	n := messageMemory + size
	if batch != nil {
		n += len(batch.Parts)*partMemory + batch.Entries()*entryMemory
	}
	return n
}
