// Package client talks to a running countmill over HTTP.
//
//	c, err := client.New("http://127.0.0.1:8080")
//	err = c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"})
//	t, err := c.Total(ctx, "orders")
//
// # Errors
//
// Every error matches one sentinel of package countmill with errors.Is. The sentinel says whether
// the increments were counted and whether a repeat is safe:
//
//	countmill.ErrInvalid         nothing was counted; correct the request first
//	countmill.ErrConflict        nothing was counted; the key came with another body before
//	countmill.ErrIDsReused       all were counted except the conflicts in *countmill.ConflictsError
//	countmill.ErrOverloaded      nothing was counted; repeat later
//	countmill.ErrUnavailable     nothing was counted, or no total can be given; repeat later
//	countmill.ErrOutcomeUnknown  maybe counted; a repeat is safe with the same ids or key only
//	countmill.ErrOverflow        the total does not fit 64 bits
//	countmill.ErrNotCountedYet   the receipt's increments were not all counted in time; ask again
//	countmill.ErrIDExpired       the time of a NextRequest is before the deduplication window
//	countmill.ErrExhausted       a sequence has fewer values left
//	countmill.ErrReceiptExpired  the receipt is older than the deduplication window
//	countmill.ErrOtherDatabase   the receipt is of another database
//	ErrDeadLettered                  the totals lack increments that are in dead letters
//	ErrDenied                    the token is missing or may not do this; nothing was done
//
// The client repeats a call by itself while that is safe and there is time, by the table in
// docs/reference/retries.md. Do and Events call the routes that have no method.
// An error is the last one. An answer with an error is an *Error, which has the status and the
// problem's type. An answer without a type of countmill comes from another program, perhaps a proxy, and the
// outcome is unknown whatever its status is. A *CallError has the key with which a single call may be repeated.
//
// A Client is safe for concurrent use.
package client
