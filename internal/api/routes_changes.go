package api

import (
	"net/http"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/store"
)

var changeRoutes = []route{
	{
		op: "growCounter", method: http.MethodPatch, path: "/v1/counters/{name}", role: onAdmin,
		need:   auth.PerCounter(auth.Admin),
		says:   "Give a counter more shards",
		more:   "A number of shards is never lowered: 409 if the counter has more; the number that it has is accepted. A counter that nobody has incremented is created. Aggregators use the new shards within an hour; totals are right meanwhile. Safe to repeat.",
		in:     []*param{nameParam},
		body:   growBody,
		out:    gives("The counter has that many shards.", client.Grown{}),
		fails:  fails{409: "Lower", 504: "OutcomeUnknown"},
		within: forever, answer: (*API).grow,
	},
	{
		op: "deleteCounter", method: http.MethodDelete, path: "/v1/counters/{name}", role: onAdmin,
		need:   auth.PerCounter(auth.Admin),
		says:   "Set a counter back to 0 and hide it",
		more:   "Afterwards the counter does not exist and is in no list, until it is incremented again, from 0. Its record and shards are removed a day later. Older totals in a cache are still served to callers that accept their age. Safe to repeat; a counter that does not exist is accepted.",
		in:     []*param{nameParam, formatParam},
		out:    gives("The amount removed.", client.Removed{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: (*API).delete,
	},
	{
		op: "resetCounter", method: http.MethodPost, path: "/v1/reset", role: onAdmin,
		need:   auth.PerCounter(auth.Admin),
		says:   "Set a counter back to 0",
		more:   "Removes every increment folded by one moment, the answer's `as_of`; later ones count. Of several resets, each increment is in the `removed` of exactly one. With an id a repeat within the deduplication window (8 days) changes nothing and gets the same answer. Without one a repeat is another reset. Older totals in a cache are still served to callers that accept their age.",
		in:     []*param{formatParam},
		body:   resetBody,
		out:    gives("The amount removed.", client.Removed{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: (*API).reset,
	},
	{
		op: "listRules", method: http.MethodGet, path: "/v1/rules", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "The rules",
		more:   "Rules say which counters keep a series, which is sums over time, and of which counters the increments stay as evidence, in the journal. If several of one kind match a counter, its name wins over prefixes, and a longer prefix over a shorter one. A rule with `ended` takes no more increments; its series stays for as long as it promised.",
		out:    gives("The rules in force, and those whose series stay.", client.Rules{}),
		within: forever, answer: (*API).rules,
	},
	{
		op: "addSeriesRule", method: http.MethodPost, path: "/v1/rules/series", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "Keep a series of the counters of a pattern",
		more:   "Aggregators go by the rule within a minute. A rule with the same pattern gets the new retention and goes on without a gap. Safe to repeat.",
		body:   ruleBodies[store.KindSeries],
		out:    gives("All rules.", client.Rules{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: addRule(store.KindSeries),
	},
	{
		op: "removeSeriesRule", method: http.MethodDelete, path: "/v1/rules/series", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "End a rule for series",
		more:   "Increments after this call count without a series. Its sums stay readable for the promised time. 404 no-rule: there is no rule with this pattern. Safe to repeat.",
		in:     []*param{patternParam},
		out:    gives("All rules.", client.Rules{}),
		fails:  fails{404: "NoRule", 504: "OutcomeUnknown"},
		within: forever, answer: removeRule(store.KindSeries),
	},
	{
		op: "fillSeriesRule", method: http.MethodPost, path: "/v1/rules/series/filled", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "Say that an import filled a period",
		more:   "Rows of the period are no longer partial. It holds for all counters of the rule, and takes the place of an earlier period. 404 no-rule: there is no rule with this pattern. Safe to repeat.",
		body:   filledBody,
		out:    gives("All rules.", client.Rules{}),
		fails:  fails{404: "NoRule", 504: "OutcomeUnknown"},
		within: forever, answer: (*API).fillSeriesRule,
	},
	{
		op: "addJournalRule", method: http.MethodPost, path: "/v1/rules/journal", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "Keep the increments of the counters of a pattern as evidence",
		more:   "Each commit of such a counter writes the parts that it applies (GET /v1/journal). Aggregators go by the rule within a minute. A rule with the same pattern gets the new retention, for later records, and goes on without a gap. Safe to repeat.",
		body:   ruleBodies[store.KindJournal],
		out:    gives("All rules.", client.Rules{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: addRule(store.KindJournal),
	},
	{
		op: "removeJournalRule", method: http.MethodDelete, path: "/v1/rules/journal", role: onAdmin,
		need:   auth.Whole(auth.Admin),
		says:   "End a rule for the journal",
		more:   "Increments after this call count without evidence. Entries stay for the promised time. 404 no-rule: no rule has this pattern. Safe to repeat.",
		in:     []*param{patternParam},
		out:    gives("All rules.", client.Rules{}),
		fails:  fails{404: "NoRule", 504: "OutcomeUnknown"},
		within: forever, answer: removeRule(store.KindJournal),
	},
	{
		op: "createIndex", method: http.MethodPost, path: "/v1/indexes", role: onAdmin,
		need:   auth.PerCounter(auth.Admin),
		says:   "Put counters into groups",
		more:   "Each increment of a counter that `match` has is added to its group too, in the same commit. Earlier increments are added while everything runs; until then the index is `building`, and its groups cannot be read. A token that is limited to prefixes must have the prefix of `match` and that of the groups, with `=` before it. Safe to repeat.",
		body:   indexBody,
		out:    gives("The indexes that the token may read.", client.Indexes{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: (*API).createIndex,
	},
	{
		op: "deleteIndex", method: http.MethodDelete, path: "/v1/indexes", role: onAdmin,
		need: auth.PerCounter(auth.Admin),
		says: "Delete an index and its groups",
		more: "The groups get no more increments, and this process no longer serves them. Others stop within a minute. Then the groups are removed, and the index. 404 no-index: there is no such index, or the token may not see it. Safe to repeat.",
		in: []*param{
			{name: "name", required: true, schema: "IndexName", says: "The name of the index."},
		},
		out:    gives("The indexes that the token may read.", client.Indexes{}),
		fails:  fails{404: "NoIndex", 504: "OutcomeUnknown"},
		within: forever, answer: (*API).deleteIndex,
	},
}
