// Package api is the HTTP API: every route, as one table (routes.go). A line of the table
// has the method, the path, the scope that callers need, the parameters, the body and the
// function that answers. /openapi.json describes the same routes for clients.
//
//	request --> httpserver.Router: token and scope
//	        --> httpserver.Query: no unknown or repeated parameter
//	        --> body.decode: no unknown, repeated or null field
//	        --> the route's function --> Services (the roles)
//	        --> httpserver.WriteJSON, or httpserver.WriteError: a problem with field and limit
//
// A process serves the routes of its roles. For any other route it answers 404 and names the
// role that has it. The body is checked before a counter is looked up.
//
// Promises beyond those of the roles:
//
//   - A request is refused for every parameter and field that is unknown or given twice: a
//     mistyped max_staleness must not be ignored.
//   - Totals are exact JSON integers, or strings with format=string for readers whose
//     numbers end at 2^53.
//   - A name in a path is one segment. It is never cleaned: a//b, a/../b and a/b are
//     three counters.
//   - Watchers are bounded in number, get an event or a comment at least every 15 s, are
//     dropped when they do not read, and end with CloseStreams.
//   - All watchers of a prefix share one read a second (feed). A slow watcher delays neither
//     the read nor other watchers, and holds a few KiB.
//   - Bodies are bounded in bytes, one by one and all together (budget). A caller with few
//     bytes is served beside callers with many.
//
// # GET /v1/watch
//
//	watch.go        parameters, and the life of a stream
//	watch_feed.go   a feed reads counters for all watchers with the same prefix
//	watch_snapshot.go  a snapshot is the counters after a read; each watcher keeps its last one
//	watch_event.go  an event is the difference, written in chunks of 16 KiB
//
// # POST /v1/increments
//
// The body is one object or an array (application/json), or an object per line
// (application/x-ndjson), as wire.DecodeJSON reads them. The whole request is read and
// checked before anything of it is handed on. 400, 403, 408, 413, 415, 429, 503, 507 and
// id-reused mean that nothing of the request was or will be counted. After 504 and 500 the
// outcome is unknown: repeat the request only with ids or a key.
//
// Callers share the capacity of the bus. A caller is the name of a token or, without tokens, a
// connection. Each caller has a line for the requests that wait, and the lines take turns
// (queue). A caller with little under way passes the lines, and so does not wait for callers
// with much. Nothing is kept of a caller without requests.
//
// With return=totals the answer has the totals of the request's counters, as GET /v1/totals gives
// them, each once. They contain the increments. That needs a process that folds before it answers.
// Any other one refuses the parameter before it reads the body. A caller needs the scope read too.
//
// The header Idempotency-Key, 1 to 128 bytes of UTF-8, names the request: repeats with the
// same key and the same increments count once. The value is taken unchanged. The IETF's
// draft wants a quoted string there: quotes are welcome, and part of the key, so "k"
// with quotes and k without are two keys.
//
// If callers have tokens, a key is one caller's: the name of the token goes into the ids of
// the parts. So the same key of two callers counts twice. A request that is repeated after its
// token got another name, or after tokens were introduced, counts twice too. Ids of single
// increments belong to the counter, for all callers.
package api
