// Package publisher coalesces increments in memory and sends them over a bus, thousands in one
// message. It is a library that services import.
//
//	Add, Counter.Add ──> cells: one sum a counter ─┐  open: at most
//	Publish ───────────> requests ─────────────────┤  MaxEntries, MaxBytes
//	PublishKeyed ──────> requests, cut already ────┘  long ones one after the other
//	                                               │  linger, or a flush, and a free slot
//	                                               v
//	                        flush: sums in wire.Order, cut into parts, packed
//	                                               │  bytes that never change again
//	                                               v
//	                        at most MaxInFlight calls to the bus at once
//
// A long request shares no batch with others. Its messages are small, have a quarter of the calls, and take turns with those of the
// batches: so a request with few increments waits for a part of a long one, and not for all of it.
//
// # The promise
//
// Every accepted increment is in exactly one part, and the publisher sends that part until the
// bus has it. Add never waits. An increment of Add is lost only if the process ends before the
// bus has its batch, or if Close reports it. Publish returns nil when the bus has the increments
// durably.
//
// The publisher repeats a flushed message byte for byte. Its parts keep their ids, so that an
// aggregator counts them once.
//
// # When things fail
//
//	what happens                  Add                 Publish, PublishKeyed
//	an increment is not valid     ErrInvalid          ErrInvalid, nothing of the call is counted
//	the clock of the machine      ErrUnavailable      ErrUnavailable, nothing of the call is counted
//	    cannot be right
//	the bus is slow or down       accepted            waits
//	... until the open batch      ErrOverloaded       ErrOverloaded, nothing of the call is counted
//	    is full
//	the context ends before the   -                   ErrUnavailable: withdrawn whole, never counted
//	    flush
//	the context ends after it     -                   ErrOutcomeUnknown: it is still being sent
//	the bus is closed (its error  accepted, and       ErrOutcomeUnknown
//	    matches ErrClosed)        counted in the errors
//	                              of Flush and Close
//	the key was used before with  -                   ErrConflict, nothing of the call is counted
//	    another body
//	an id was counted before with -                   ErrIDsReused names the increment; all others
//	    another delta, and the bus                    of the call are counted
//	    reports it
//	merged increments were not    accepted, and       ErrOutcomeUnknown, if the call has increments
//	    counted: another part     counted in the      without ids
//	    had their part's id       errors of Flush
//	                              and Close
//	an increment with an id came  -                   ErrOutcomeUnknown: an earlier try may have
//	    to a server after its                         been counted
//	    deduplication window
//	the publisher is closed       ErrClosed           ErrClosed
//	the process ends              lost if not on      the caller has no answer: repeat with ids or
//	                              the bus             a key
//
// # Memory
//
// MaxEntries and MaxBytes bound the open batch by distinct counters, not by increments. The
// publisher flushes a batch only when all messages of the last one are on the bus or in one of the
// MaxInFlight calls. It flushes a long request, of over 5,000 increments that are cut already, by itself in the same way. So
// the messages under way are at most one batch, one long request, and MaxInFlight messages of 512 KiB. The batch has its sums and its encoded bytes, together less than twice MaxBytes.
// Messages that the bus refuses alone (wire.HeldError) wait without a call: at most 512, in at most MaxBytes more. Beyond that they keep their calls, and others wait.
//
// Unused counters stay in memory for a minute or two, so that their next increment needs no
// allocation. There are at most 2*MaxEntries of them, in at most MaxBytes, or a quarter more than
// the open batch if that is larger. The memory of a flush is used again for the next flush.
//
// In the worst case all this is less than seven times MaxBytes. That needs a full open batch behind
// a full flush, after a flood of other names. An Idempotency-Key is remembered as 16 bytes. A call
// that waits counts with its request, but the memory of its goroutine is the caller's.
package publisher
