// Package httpserver has the common parts of countmill's HTTP surfaces: errors as problem+json, a
// router that never redirects and checks the rights of callers, strict queries, bounded
// bodies, and a server with limits.
//
// # Problems
//
// Every error is an RFC 9457 problem with type, title, status and detail. If they help, it
// also has field, limit, index (position in an array, from 0) and line (of NDJSON, from 1).
// Types are URNs, urn:countmill:problem: and one of the words below. They are names for
// programs to compare. They never change, and lead nowhere.
//
//	invalid                 400  the request can never succeed: fix it
//	id-reused               422  an Idempotency-Key was used with another body
//	ids-reused              422  the increments in "conflicts" (position in the request, from 0, and
//	                             id) were not counted, all others were; repeat none of them
//	lower                   409  a counter's number of shards is never lowered
//	overloaded              429  nothing was done, repeat after Retry-After
//	quota                   429  a limit of the token; field names it; repeat after Retry-After
//	insufficient-storage    507  the disk is nearly full; nothing was done, repeat after Retry-After
//	unavailable             503  nothing was done, repeat after Retry-After
//	closed                  503  this process is stopping: repeat after Retry-After
//	outcome-unknown         504  maybe done: repeat only if a repeat cannot double anything
//	overflow                500  a total does not fit 64 bits; never a number
//	internal                500  the log has the text; the outcome is unknown
//	unauthorized            401  no token, or an invalid one
//	forbidden               403  a token that may not do this; nothing was done
//	not-found               404  no such path
//	method-not-allowed      405  Allow has the methods
//	timeout                 408  the body did not arrive in time; nothing was done
//	too-large               413  the body is over the limit; nothing was done
//	unsupported-media-type  415  Accept has the types
//	not-counted-yet         409  increments of the receipt in after are not counted; ask again after Retry-After
//	receipt-expired         410  the receipt is older than the deduplication window
//	other-database          410  the receipt is of another database
//
// net/http itself answers requests that are not HTTP, and headers over the limit, in
// plain text.
package httpserver
