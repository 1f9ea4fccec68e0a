package api

import (
	"github.com/countmill/countmill/store"
	"net/http"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
)

var (
	everywhere      = &role{roles: "any", here: func(*Services) bool { return true }}
	onPublisher     = &role{roles: "publisher", here: func(s *Services) bool { return s.Sender != nil }}
	onBatchReceiver = &role{roles: "publisher", here: func(s *Services) bool { return s.BatchReceiver != nil }}
	onReader        = &role{roles: "reader", here: func(s *Services) bool { return s.Reader != nil }}
	onAdmin         = &role{roles: "reader", here: func(s *Services) bool { return s.Admin != nil }}
	onStore         = &role{"reader or aggregator", func(s *Services) bool { return s.DeadLetters != nil }, true}
	onVerifier      = &role{"reader or aggregator", func(s *Services) bool { return s.Verifier != nil }, true}
	onSequences     = &role{roles: "reader or aggregator", here: func(s *Services) bool { return s.Sequences != nil }}
	onMetrics       = &role{roles: "any", here: func(s *Services) bool { return s.Metrics != nil }}
)

// The needs of callers.
var (
	publish = auth.PerCounter(auth.Publish)
	read    = auth.PerCounter(auth.Read)
	change  = auth.PerCounter(auth.Admin)
	whole   = auth.Whole(auth.Admin)   // the answer may hold any counter
	metrics = auth.Whole(auth.Metrics) // they are of all counters
)

// Guesses: a page of dead letters may have 32 MB, and a page of shards 1000 of them.
const long = 30 * time.Second

// verifying bounds a page of groups, which reads all counters of an index.
const verifying = 10 * time.Minute

// smallBody is the most bytes of a body with a name: one of 500 bytes may be escaped.
const smallBody = 64 << 10

var (
	totalsBody = &body{
		empty: func() any { return new(totalsRequest) }, max: httpserver.MaxBody,
		want: `{"counters": [...], "groups": [...]}, 1 to 1000 strings together`,
	}
	growBody = &body{
		empty: func() any { return new(growRequest) }, max: smallBody,
		want: `{"shards": N}`, fields: map[string]string{"shards": "1 to 999"},
	}
	resetBody = &body{
		empty: func() any { return new(resetRequest) }, max: smallBody,
		want: `{"counter": "...", "id": "..."}, the id only if wanted`, fields: map[string]string{"counter": "1 to 500 bytes"},
	}
	replayBody = &body{
		empty: func() any { return new(replayRequest) }, max: smallBody,
		want: `{"keys": [...], "as_new": false}, 1 to 100 keys`,
	}
	discardBody = &body{
		empty: func() any { return new(discardRequest) }, max: smallBody,
		want: `{"keys": [...]}, 1 to 100 keys`,
	}
	verifyBody = &body{
		empty: func() any { return new(verifyRequest) }, max: smallBody,
		want: `{"prefix": "", "limit": 1000, "page_token": ""}`, fields: map[string]string{"limit": "1 to 1000"},
	}
	ruleBodies = []*body{
		store.KindSeries:  {empty: func() any { return new(ruleRequest) }, max: smallBody, want: `{"pattern": "page:*", "keep": "1m:6h,15m:400d"}`},
		store.KindJournal: {empty: func() any { return new(ruleRequest) }, max: smallBody, want: `{"pattern": "billing:*", "keep": "400d"}`},
	}
	filledBody = &body{
		empty: func() any { return new(filledRequest) }, max: smallBody,
		want: `{"pattern": "page:*", "from": "2026-01-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}`,
	}
	indexBody = &body{
		empty: func() any { return new(indexRequest) }, max: smallBody,
		want: `{"name": "sites", "match": "page:{site}:*", "group": "site:{site}"}`,
	}
	backupBody = &body{
		empty: func() any { return new(backupRequest) }, max: smallBody,
		want: `{"to": "monday"}, a path below the server's --backup-root, or {} for the root itself`,
	}
)

// afterParams are those of the routes that take a receipt.
var afterParams = []string{"max_staleness", "min_as_of", "after", "wait", "format"}

// byName are the parameters that name counters and groups.
var byName = []string{"counter", "group"}

var (
	topParams  = []string{"index", "n", "window", "tz", "of", "format"}
	rankParams = []string{"index", "counter", "window", "tz", "format"}
)

// routes is every route. /openapi.json describes the same ones.
var routes = []route{
	{method: http.MethodPost, path: "/v1/increments", need: publish, role: onPublisher, within: forever, traced: true, once: []string{"return", "format", "at"}, writes: (*API).increments},

	{method: http.MethodPost, path: "/v1/batches", need: publish, role: onBatchReceiver, within: forever, traced: true, writes: (*API).batches},

	{method: http.MethodGet, path: "/v1/totals", need: read, role: onReader, once: afterParams, often: byName, answer: (*API).totals},
	{method: http.MethodPost, path: "/v1/totals", need: read, role: onReader, once: afterParams, body: totalsBody, answer: (*API).manyTotals},
	{method: http.MethodGet, path: "/v1/counters", need: read, role: onReader, once: []string{"prefix", "limit", "page_token", "min_as_of", "format"}, answer: (*API).list},
	{method: http.MethodGet, path: "/v1/counters/{name}", need: read, role: onReader, once: afterParams, answer: (*API).counter},
	{method: http.MethodGet, path: "/v1/watch", need: read, role: onReader, once: []string{"prefix", "limit", "rates", "max_staleness", "min_as_of", "format", "interval"}, often: byName, within: forever, writes: (*API).watch},
	{method: http.MethodGet, path: "/v1/series", need: read, role: onReader, once: []string{"step", "tz", "from", "to", "rate", "compare", "format"}, often: byName, writes: (*API).series},
	{method: http.MethodGet, path: "/v1/top", need: read, role: onReader, once: topParams, answer: (*API).top},
	{method: http.MethodGet, path: "/v1/rank", need: read, role: onReader, once: rankParams, answer: (*API).rank},
	{method: http.MethodGet, path: "/v1/watch/top", need: read, role: onReader, once: topParams, within: forever, writes: (*API).watchTop},
	{method: http.MethodGet, path: "/v1/watch/rank", need: read, role: onReader, once: rankParams, within: forever, writes: (*API).watchRank},
	{method: http.MethodGet, path: "/v1/overview", need: read, role: onReader, answer: (*API).overview},
	{method: http.MethodGet, path: "/metrics/counters", need: read, role: onReader, once: []string{"limit", "max_staleness", "min_as_of"}, often: []string{"match"}, within: forever, writes: (*API).scrapeCounters},

	{method: http.MethodPatch, path: "/v1/counters/{name}", need: change, role: onAdmin, within: forever, body: growBody, answer: (*API).grow},
	{method: http.MethodDelete, path: "/v1/counters/{name}", need: change, role: onAdmin, within: forever, once: []string{"format"}, answer: (*API).delete},
	{method: http.MethodGet, path: "/v1/rules", need: whole, role: onAdmin, within: forever, answer: (*API).rules},
	{method: http.MethodPost, path: "/v1/rules/series", need: whole, role: onAdmin, within: forever, body: ruleBodies[store.KindSeries], answer: addRule(store.KindSeries)},
	{method: http.MethodDelete, path: "/v1/rules/series", need: whole, role: onAdmin, within: forever, once: []string{"pattern"}, answer: removeRule(store.KindSeries)},
	{method: http.MethodPost, path: "/v1/rules/series/filled", need: whole, role: onAdmin, within: forever, body: filledBody, answer: (*API).fillSeriesRule},
	{method: http.MethodGet, path: "/v1/indexes", need: read, role: onAdmin, within: forever, answer: (*API).indexes},
	{method: http.MethodPost, path: "/v1/indexes", need: change, role: onAdmin, within: forever, body: indexBody, answer: (*API).createIndex},
	{method: http.MethodDelete, path: "/v1/indexes", need: change, role: onAdmin, within: forever, once: []string{"name"}, answer: (*API).deleteIndex},
	{method: http.MethodPost, path: "/v1/rules/journal", need: whole, role: onAdmin, within: forever, body: ruleBodies[store.KindJournal], answer: addRule(store.KindJournal)},
	{method: http.MethodDelete, path: "/v1/rules/journal", need: whole, role: onAdmin, within: forever, once: []string{"pattern"}, answer: removeRule(store.KindJournal)},
	{method: http.MethodPost, path: "/v1/reset", need: change, role: onAdmin, within: forever, once: []string{"format"}, body: resetBody, answer: (*API).reset},

	{method: http.MethodPost, path: "/v1/sequences/next", need: publish, role: onSequences, within: forever, body: nextBody, answer: (*API).nextValues},
	{method: http.MethodGet, path: "/v1/sequences", need: read, role: onSequences, once: []string{"sequence"}, answer: (*API).sequence},
	{method: http.MethodDelete, path: "/v1/sequences", need: change, role: onSequences, within: forever, once: []string{"sequence"}, answer: (*API).deleteSequence},

	{method: http.MethodGet, path: "/v1/dead-letters", need: whole, role: onStore, within: long, once: []string{"limit", "page_token"}, answer: (*API).listDeadLetters},
	{method: http.MethodGet, path: "/v1/dead-letters/{name}", need: whole, role: onStore, within: long, answer: (*API).showDeadLetter},
	{method: http.MethodPost, path: "/v1/dead-letters/replay", need: whole, role: onStore, within: long, body: replayBody, answer: (*API).replay},
	{method: http.MethodPost, path: "/v1/dead-letters/discard", need: whole, role: onStore, within: long, body: discardBody, answer: (*API).discard},

	{method: http.MethodGet, path: "/v1/journal", need: change, role: onJournal, within: long, once: []string{"counter", "id", "after", "before", "limit", "format"}, answer: (*API).journal},
	{method: http.MethodPost, path: "/v1/journal/erase", need: whole, role: onJournal, within: long, body: eraseBody, answer: (*API).eraseJournal},
	{method: http.MethodGet, path: "/v1/journal/records", need: whole, role: onJournal, within: long, once: []string{"from", "to", "after", "limit"}, answer: (*API).journalRecords},

	{method: http.MethodGet, path: "/v1/recount", need: whole, role: onRecounter, once: []string{"run"}, answer: (*API).recountProgress},
	{method: http.MethodPost, path: "/v1/recount", need: whole, role: onRecounter, within: recounting, body: recountBody, answer: (*API).recount},

	{method: http.MethodGet, path: "/v1/shards", need: read, role: onVerifier, within: long, once: []string{"counter"}, answer: (*API).shards},
	{method: http.MethodGet, path: "/v1/verify", need: whole, role: onVerifier, within: verifying, once: []string{"prefix", "limit", "page_token"}, answer: (*API).verify},
	{method: http.MethodPost, path: "/v1/verify", need: whole, role: onVerifier, within: verifying, body: verifyBody, answer: (*API).repair},

	{method: http.MethodPost, path: "/v1/backup", need: whole, role: everywhere, within: forever, body: backupBody, answer: (*API).backup},
	{method: http.MethodGet, path: "/badge/{name}", need: auth.Anyone, role: onReader, once: []string{"label"}, writes: (*API).badge},
	// Supervisors and scrapers add parameters of their own, and a refusal would restart the process.
	{method: http.MethodGet, path: "/healthz", need: auth.Anyone, role: everywhere, free: true, answer: (*API).healthz},
	{method: http.MethodGet, path: "/readyz", need: auth.Anyone, role: everywhere, free: true, within: readyTimeout, answer: (*API).readyz},
	{method: http.MethodGet, path: "/openapi.json", need: auth.Anyone, role: everywhere, free: true, within: forever, writes: (*API).openAPI},
	{method: http.MethodGet, path: "/metrics", need: metrics, role: onMetrics, free: true, within: forever, writes: (*API).metrics},
}
