// Package ingest takes increments over HTTP: POST /v1/increments.
//
// The body is one object or an array (application/json), or an object per line
// (application/x-ndjson), as wire.DecodeJSON reads them. The whole request is read and
// checked before anything of it is handed on.
//
//	202  {"accepted":N}: all N increments of the request are durable
//	400  a problem with field, limit and, of several, index or line
//	403  a counter is outside the prefixes of the caller's token; the problem says where
//	408  the body did not arrive in time
//	413  the body is over the limit
//	415  Content-Type, charset or Content-Encoding; the problem names what is accepted
//	422  id-reused: the Idempotency-Key was used before with another body
//	422  ids-reused: the increments in conflicts were not counted, all others of the request were
//	429  a bound on memory was reached, or it would wait too long, or the token has reached a
//	     limit of its own (quota); Retry-After
//	503  the bus is away or the process is stopping; Retry-After
//	507  the disk of the counters is nearly full; Retry-After
//	504  outcome-unknown: maybe counted; repeat with ids or a key only
//	500  a fault of countmill; the outcome is unknown as with 504
//
// 400, 403, 408, 413, 415, 429, 503, 507 and id-reused mean that nothing of the request was or will
// be counted.
//
// # Shares
//
// Callers share the capacity of the bus. A caller is the name of a token or, without tokens, a
// connection. Each caller has a line for the requests that wait, and the lines take turns
// (queue). A caller with little under way passes the lines, and so does not wait for callers
// with much. The memory for bodies is shared too. No caller, no share: nothing is kept of a
// caller without requests.
//
// # Idempotency-Key
//
// The header's value, 1 to 128 bytes of UTF-8, names the request: repeats with the
// same key and the same increments count once. It is taken as it stands. The IETF's
// draft wants a quoted string there: quotes are welcome, and part of the key, so "k"
// with quotes and k without are two keys.
//
// Where callers are told apart by tokens, a key is one caller's: the name of the token
// goes into the ids of the parts. So the same key of two callers counts twice, and so
// does a request that is repeated after its token was given another name, or after
// tokens were introduced. Ids of single increments belong to the counter, whoever sends
// them.
package ingest
