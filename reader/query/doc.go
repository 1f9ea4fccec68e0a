// Package query is the read half of the HTTP API: totals, one counter, the list of
// counters, and a stream of totals as they change. /openapi.json describes it.
//
// Promises beyond those of package reader:
//
//   - A request is refused for every parameter and field that is not known, and for
//     every one that stands twice: a mistyped max_staleness must not be ignored.
//   - Totals are exact JSON integers, or strings with format=string for readers whose
//     numbers end at 2^53.
//   - A name in a path is one segment. It is never cleaned: a//b, a/../b and a/b are
//     three counters.
//   - Watchers are bounded in number, get something at least every 15 s, are dropped
//     when they do not read, and end when the handler is closed.
package query
