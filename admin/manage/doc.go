// Package manage is the half of the HTTP API that changes counters: it raises their number
// of shards, resets and deletes them. /openapi.json describes it.
//
//	PATCH  /v1/counters/{name}  {"shards":40}        200 {"counter","shards"}
//	DELETE /v1/counters/{name}                       200 {"counter","removed","as_of"}
//	POST   /v1/reset            {"counter","id"?}    200 {"counter","removed","as_of"}
//
// removed is what was taken off the total: all that was folded by as_of, less what was taken
// off before. Of several calls each increment is in one.
//
//	400  a problem with field and limit
//	401, 403  no token, or one without the scope admin, or a counter that is not its own
//	404  the name is not one path segment
//	408, 413, 415  the body
//	409  lower: the counter has more shards; limit is what would be right
//	500  overflow: the total does not fit 64 bits, nothing was done; or a fault of countmill
//	503  the store is away or refuses: nothing was done; Retry-After
//	504  outcome-unknown: a raise and a delete may be repeated, a reset with the same id
package manage
