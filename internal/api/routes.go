package api

import (
	"slices"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

var (
	everywhere      = &role{roles: "any", here: func(*Services) bool { return true }}
	onPublisher     = &role{roles: "publisher", here: func(s *Services) bool { return s.Sender != nil }}
	onBatchReceiver = &role{roles: "publisher", here: func(s *Services) bool { return s.BatchReceiver != nil }}
	onReader        = &role{roles: "reader", here: func(s *Services) bool { return s.Reader != nil }}
	onAdmin         = &role{roles: "reader", here: func(s *Services) bool { return s.Admin != nil }}
	onStore         = &role{"reader or aggregator", func(s *Services) bool { return s.DeadLetters != nil }}
	onVerifier      = &role{"reader or aggregator", func(s *Services) bool { return s.Verifier != nil }}
	onSequences     = &role{roles: "reader or aggregator", here: func(s *Services) bool { return s.Sequences != nil }}
	onMetrics       = &role{roles: "any", here: func(s *Services) bool { return s.Metrics != nil }}
)

// Routes are all of them, for tests.
func Routes() (all []httpserver.Route) {
	for i := range routes {
		all = append(all, httpserver.Route{Method: routes[i].method, Pattern: routes[i].path, Need: routes[i].need})
	}
	return all
}

// Guesses: a page of dead letters may have 32 MB, and a page of shards 1000 of them.
const long = 30 * time.Second

// verifying bounds a page of groups, which reads all counters of an index.
const verifying = 10 * time.Minute

// smallBody is the most bytes of a body with a name: one of 500 bytes may be escaped.
const smallBody = 64 << 10

var (
	totalsBody = &body{
		name: "CountersRequest", empty: func() any { return new(totalsRequest) }, max: httpserver.MaxBody,
		want: `{"counters": [...], "groups": [...]}, 1 to 1000 strings together`,
	}
	growBody    = takes[growRequest]("Grow", `{"shards": N}`, map[string]string{"shards": "1 to 999"})
	resetBody   = takes[resetRequest]("Reset", `{"counter": "...", "id": "..."}, the id only if wanted`, map[string]string{"counter": "1 to 500 bytes"})
	replayBody  = takes[replayRequest]("DeadReplay", `{"keys": [...], "as_new": false}, 1 to 100 keys`, nil)
	discardBody = takes[discardRequest]("DeadKeys", `{"keys": [...]}, 1 to 100 keys`, nil)
	verifyBody  = takes[verifyRequest]("VerifyRequest", `{"prefix": "", "limit": 1000, "page_token": ""}`, map[string]string{"limit": "1 to 1000"})
	ruleBodies  = []*body{
		store.KindSeries:  takes[ruleRequest]("SeriesRuleRequest", `{"pattern": "page:*", "keep": "1m:6h,15m:400d"}`, nil),
		store.KindJournal: takes[journalRuleRequest]("JournalRuleRequest", `{"pattern": "billing:*", "keep": "400d"}`, nil),
	}
	filledBody = takes[filledRequest]("FilledRequest", `{"pattern": "page:*", "from": "2026-01-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}`, nil)
	indexBody  = takes[indexRequest]("IndexRequest", `{"name": "sites", "match": "page:{site}:*", "group": "site:{site}"}`, nil)
	backupBody = takes[backupRequest]("BackupRequest", `{"to": "monday"}, a path below the server's --backup-root, or {} for the root itself`, nil)
)

// The parameters of several routes.
var (
	formatParam    = &param{name: "format", shared: "Format", oneOf: []string{"number", "string"}, fallback: "number", says: "`string` if your language loses digits past 2^53."}
	countersParam  = &param{name: "counter", shared: "Counters", often: true, schema: "CounterName", says: "A counter's name; with `group` 1 to 100 times."}
	groupsParam    = &param{name: "group", shared: "Groups", often: true, schema: "GroupName", says: "A group without the `=` of its name, beside `counter` or instead of it."}
	stalenessParam = &param{name: "max_staleness", shared: "MaxStaleness", schema: "Duration", says: "How old a total may be. With 0 it is read from the store after the request has arrived. Default: the server's, 0 with pebble and 2s with Datastore."}
	minAsOfParam   = &param{name: "min_as_of", shared: "MinAsOf", schema: "date-time", says: "No total is of a moment before this one: pass the `as_of` of an earlier answer and the counter never goes back, or the `counted_as_of` of a 202 and the total has its increments. A cached total that is younger will do; otherwise the store is read. More than 1 s ahead of the store's time is refused with 400."}
	afterParam     = &param{name: "after", shared: "After", schema: "len 1..4096", says: "The `receipt` of a 202, or `message:TIME:TOPIC:ID` for a message in JSON that another program has published (TIME in seconds since 1970, TOPIC the topic's full name, ID the broker's message id). The totals contain every increment of it, but for those in the dead letters that `dead_letters` names. They are read from the store."}
	waitParam      = &param{name: "wait", shared: "Wait", schema: "Duration", says: "With `after`: how long to wait until the increments are counted, 0s to 5s. If it is over, the answer is 409 not-counted-yet. Default 0s."}
	prefixParam    = &param{name: "prefix", schema: "len ..500", says: "The first characters of the names, up to 500 bytes."}
	nameParam      = &param{name: "name", shared: "Name", in: "path", schema: "CounterName", says: "The counter's name as one path segment: write `/` in it as %2F. Any other form is a 404, never a redirect to another counter."}
	sequenceParam  = &param{name: "sequence", required: true, schema: "CounterName", says: "Its name."}
	patternParam   = &param{name: "pattern", required: true, schema: "Pattern", says: "The pattern of the rule."}
	indexParam     = &param{name: "index", shared: "BoardIndex", required: true, schema: "IndexName", says: "The name of an index."}
	topParam       = &param{name: "n", most: reader.MaxTop, fallback: 10, says: "The most counters."}
	windowParam    = &param{name: "window", shared: "Window", schema: "=today|this-week|this-month|1h", says: "The time in place of totals: the calendar day, week (from Monday) or month in `tz`, or the last hour by whole minutes."}
	zoneParam      = &param{name: "tz", shared: "WindowZone", schema: "default UTC like Asia/Kolkata", says: "The zone of a calendar window, by its name in the IANA database. Only with `window`."}
	ofParam        = &param{name: "of", oneOf: []string{"counters", "groups"}, fallback: "counters", says: "`groups` orders the groups of the index in place of its counters."}
	memberParam    = &param{name: "counter", required: true, schema: "CounterName", says: "A counter or a group of the index."}
	counterParam   = &param{name: "counter", required: true, schema: "CounterName", says: "Its name."}
)

// routes is every route, under the headings of the document.
var routes = slices.Concat(
	under("increments", incrementRoutes), under("totals", totalRoutes), under("changes", changeRoutes), under("sequences", sequenceRoutes),
	under("dead letters", deadLetterRoutes), under("care", careRoutes), under("operations", operationRoutes),
)

// under completes routes: it lists their parameters as package httpserver checks them.
func under(tag string, some []route) []route {
	for i := range some {
		to := &some[i]
		to.tag = tag
		for _, p := range to.in {
			switch {
			case p.in != "":
			case p.often:
				to.often = append(to.often, p.name)
			default:
				to.once = append(to.once, p.name)
			}
		}
	}
	return some
}
