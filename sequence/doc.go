// Package sequence gives out the values of sequences: named rows of integers from 1. An [Issuer] gives
// each value once.
//
//	Next ──> queue of the sequence: calls in order ──┐
//	Next ──> queue of another one ───────────────────┤  queues take turns,
//	                                                v  at most Transactions at once
//	             one transaction: the sequence's last value
//	             and a marker for each call's id
//
// Calls for one sequence wait in its queue, and one transaction answers up to store.MaxTakes of them. So
// callers of one sequence do not contend for its entity, and callers of many sequences do not wait for
// each other.
//
// # Promise
//
//   - No value of a sequence is given to two requests.
//   - A value is greater than every value of the same sequence that an answer had before the request
//     began.
//   - A request with an ID gets the same values each time within the deduplication window, from any
//     process. A repeat with its first Time never gets other values: after the window it is refused.
//   - A gap means one of two things: a request ended with an unknown outcome and was never repeated with
//     its ID, for example because the process was killed; or the directory was restored from a backup.
//
// # Failures
//
//	failure                            answer to the caller
//	---------------------------------  ---------------------------------------------------
//	the request is wrong               countmill.ErrInvalid: nothing was given
//	the ID came with another Count     countmill.ErrConflict: nothing was given
//	the Time is before the window      countmill.ErrIDExpired: nothing was given
//	fewer values are left              countmill.ErrExhausted: nothing was given
//	too many calls wait                countmill.ErrOverloaded: nothing was given
//	the store refuses, or its settings countmill.ErrUnavailable: nothing was given
//	cannot be read
//	a transaction, or its answer, is   nothing: it is repeated with the same markers. After Timeout
//	lost                               countmill.ErrOutcomeUnknown
//	the caller's context ends          countmill.ErrUnavailable if no transaction had the call, else
//	                                   countmill.ErrOutcomeUnknown
//	the process freezes and its ids    countmill.ErrOutcomeUnknown, if a transaction had the call before
//	are forgotten
//
// # Memory
//
// MaxCalls bounds the calls that wait, and MaxCallsOfOne those of one sequence. A queue exists only while
// it has calls.
package sequence
