// Package publisher coalesces increments in memory and sends them over a bus, one
// message for thousands. It is a library that services import.
//
//	Add, Counter.Add ──> cells: one sum a counter ─┐  open: at most
//	Publish ───────────> requests ─────────────────┤  MaxEntries, MaxBytes
//	PublishKeyed ──────> requests, cut already ────┘
//	                                               │  linger, or a flush, and a free slot
//	                                               v
//	                        seal: sums in wire.Order, cut into parts, packed
//	                                               │  bytes that never change again
//	                                               v
//	                        at most MaxInFlight messages on their way to the bus
//
// # The promise
//
// Every increment that was accepted is in exactly one part, and that part is sent
// until the bus has it. Add never waits: what it accepted is lost only if the process
// ends before the bus has its batch, or if Close says so. Publish returns nil when the
// bus has the increments durably.
//
// A sealed message is sent again byte for byte: its parts keep their ids, so that a
// second copy is harmless to whoever folds it.
//
// # When things fail
//
//	what happens                  Add                 Publish, PublishKeyed
//	an increment is not valid     ErrInvalid          ErrInvalid, nothing of the call is counted
//	the clock of the machine      ErrUnavailable      ErrUnavailable, nothing of the call is counted
//	    cannot be right
//	the bus is slow or away       accepted            waits
//	... until the open batch      ErrOverloaded       ErrOverloaded, nothing of the call is counted
//	    is full
//	the context ends before the   -                   ErrUnavailable: withdrawn whole, never counted
//	    seal
//	the context ends after it     -                   ErrOutcomeUnknown: it is still being sent
//	the bus is closed (its error  accepted, and       ErrOutcomeUnknown
//	    matches ErrClosed)        counted in the errors
//	                              of Flush and Close
//	the key was used before with  -                   ErrConflict, nothing of the call is counted
//	    another body
//	an id was counted before with -                   ErrIDsReused names the increment, all others of
//	    another delta, and the bus                    the call are counted
//	    says so
//	the publisher is closed       ErrClosed           ErrClosed
//	the process ends              what was not on     the caller has no answer: repeat with ids or
//	                              the bus is lost     a key
//
// # Memory
//
// The open batch is bounded by distinct counters, not by increments: MaxEntries and
// MaxBytes. A batch is sealed only when everything sealed before it is on the bus or in
// one of MaxInFlight calls to the bus, so what is under way is at most one batch (its
// sums and its encoded bytes, less than twice MaxBytes while they are made) and
// MaxInFlight messages of 512 KiB. Counters at rest are remembered, so that their next
// increment needs no allocation, until they have not been used for a minute or two:
// at most 2*MaxEntries of them, and MaxBytes or, where more are in the open batch, a quarter
// more than that. The memory that a seal was made in is used for the next. All in all: under six times MaxBytes at
// worst, and it takes a full open batch behind a full seal after a flood of other names
// to get there. Idempotency-Keys are remembered as 16 bytes each. Each call that waits counts with
// its request; the memory of its goroutine is the caller's.
package publisher
