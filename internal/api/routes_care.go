package api

import (
	"net/http"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/store"
)

var deadLetterRoutes = []route{
	{
		op: "listDeadLetters", method: http.MethodGet, path: "/v1/dead-letters", role: onStore,
		need: auth.Whole(auth.Admin),
		says: "List dead letters",
		more: "Increments that could not be counted, in the order of their keys. A page can hold fewer than `limit` if they are large: the last page is the one without `next_page_token`.",
		in: []*param{
			{name: "limit", most: admin.MaxDeadLetterPage, fallback: defaultLimit, says: "The most letters of a page."},
			{name: "page_token", says: "The `next_page_token` of the page before."},
		},
		out:   gives("A page.", client.DeadPage{}),
		share: contents, within: long, answer: (*API).listDeadLetters,
	},
	{
		op: "getDeadLetter", method: http.MethodGet, path: "/v1/dead-letters/{name}", role: onStore,
		need: auth.Whole(auth.Admin),
		says: "One dead letter with its content",
		in: []*param{
			{name: "name", in: "path", schema: "DeadKey", says: "The letter's `key`."},
		},
		out:   gives("The letter.", client.DeadLetterShown{}),
		share: contents, within: long, answer: (*API).showDeadLetter,
	},
	{
		op: "replayDeadLetters", method: http.MethodPost, path: "/v1/dead-letters/replay", role: onStore,
		need:  auth.Whole(auth.Admin),
		says:  "Count dead letters after all",
		more:  "Asks aggregators to count the dead letters. Each disappears once it is counted, usually within half a minute, and stays if it cannot be counted. A dead letter keeps its ids and its time: replayed twice it counts once, and not at all if it was counted before. If its ids are forgotten (beyond the deduplication window), lost or taken, or its time is more than 24 h ahead, it is refused, unless `as_new` lets it count as new. All requests for one dead letter count it once together. Every call is safe to repeat.",
		body:  replayBody,
		out:   gives("The outcome for each dead letter, in the order of the request.", client.DeadOutcomes{}),
		fails: fails{504: "OutcomeUnknown"},
		share: contents, within: long, answer: (*API).replay,
	},
	{
		op: "discardDeadLetters", method: http.MethodPost, path: "/v1/dead-letters/discard", role: onStore,
		need:  auth.Whole(auth.Admin),
		says:  "Remove dead letters uncounted",
		more:  "A dead letter that is `discarded` is never counted, also not by an aggregator that has already read it. If an aggregator had begun to count it, it is `removed`: it was counted, or may be within the next minute. Increments that their sender repeats still count. Every call is safe to repeat.",
		body:  discardBody,
		out:   gives("The outcome for each dead letter, in the order of the request.", client.DeadOutcomes{}),
		fails: fails{504: "OutcomeUnknown"},
		share: contents, within: long, answer: (*API).discard,
	},
}

var careRoutes = []route{
	{
		op: "listJournal", method: http.MethodGet, path: "/v1/journal", role: onJournal,
		need: auth.PerCounter(auth.Admin),
		says: "The increments of one counter, one by one",
		more: "Entries of a counter under a rule for the journal, in ascending order of `key`; keys compare as strings. Without `after` or `before` a page begins at the oldest entry. Pages of entries that existed at the first call never repeat and never skip an entry. To follow the end, ask again after the last key. A page may be short although `next` is there: a counter whose rule has no `paged` is found among the records of all counters, of which one page reads some 2,000. An entry is one increment, or several of one sender that were sent together.",
		in: []*param{
			counterParam,
			{name: "id", schema: "len 1..128", says: "Only the increment with this id."},
			{name: "after", schema: "JournalKey", says: "The `limit` entries just after this key."},
			{name: "before", schema: "JournalKey", says: "The `limit` entries just before this key. Not beside `after`."},
			{name: "limit", most: admin.MaxJournalPage, fallback: 50, says: "The most entries of a page."},
			formatParam,
		},
		out:   gives("A page.", client.JournalPage{}),
		share: contents, within: long, answer: (*API).journal,
	},
	{
		op: "eraseJournal", method: http.MethodPost, path: "/v1/journal/erase", role: onJournal,
		need:  auth.Whole(auth.Admin),
		says:  "Remove a counter's name and deltas from the journal",
		more:  "Goes over at most 2,000 records of all counters; repeat it with `after` until `next` is absent. Entries after `settled_until` are not erased: end the rule first. A token that is limited to prefixes may not call this, because recounts of all counters need an opening balance afterwards. Safe to repeat.",
		body:  eraseBody,
		out:   gives("The numbers of erased entries.", client.Erased{}),
		fails: fails{504: "OutcomeUnknown"},
		share: contents, within: long, answer: (*API).eraseJournal,
	},
	{
		op: "listJournalRecords", method: http.MethodGet, path: "/v1/journal/records", role: onJournal,
		need: auth.Whole(auth.Admin),
		says: "The records of the journal as they are stored",
		more: "For exports and checks: `countmill journal export` reads them if it has several counters. In ascending order of keys. A page also ends after 4 MiB.",
		in: []*param{
			{name: "from", says: "The first time, or a date (UTC)."},
			{name: "to", says: "Records are of earlier times. After `from`."},
			{name: "after", schema: "JournalKey", says: "Records after this key."},
			{name: "limit", most: admin.MaxJournalPage, fallback: 1000, says: "The most records of a page."},
		},
		out:   gives("A page.", client.JournalRecords{}),
		share: contents, within: long, answer: (*API).journalRecords,
	},
	{
		op: "recountCounters", method: http.MethodPost, path: "/v1/recount", role: onRecounter,
		need:   auth.Whole(auth.Admin),
		says:   "Compare totals and series with the journal",
		more:   "Computes the sums of one range of the counters from the journal, in one view with the stored sums, and with `repair` corrects the stored ones. Repeat it with `range` until `next` is absent. Counters that the journal does not cover are counted in `not_covered`, and are never changed. Increments may be counted meanwhile. Safe to repeat. It takes up to an hour.",
		body:   recountBody,
		out:    gives("The sums of the range that differ; those with `fixed` were corrected.", client.Recounted{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: recounting, answer: (*API).recount,
	},
	{
		op: "listShards", method: http.MethodGet, path: "/v1/shards", role: onVerifier,
		need:  auth.PerCounter(auth.Read),
		says:  "The shards of one counter",
		more:  "A reset or delete changes no shard: the total is the sum of the counts, less the amounts removed.",
		in:    []*param{counterParam},
		out:   gives("The shards, all of one moment.", client.Shards{}),
		share: contents, within: long, answer: (*API).shards,
	},
	{
		op: "verifyCounters", method: http.MethodGet, path: "/v1/verify", role: onVerifier,
		need: auth.Whole(auth.Admin),
		says: "Check that the stored counters are consistent",
		more: "Checks a page of shards with the records of their counters, all of one moment, after the last of them pages of the totals in this process's cache, and then a page for each index that serves. A page may be empty: the last page is the one without `next_page_token`. Increments may be counted meanwhile.",
		in: []*param{
			prefixParam,
			{name: "limit", most: store.MaxSurveyPage, fallback: 1000, says: "The most shards of a page."},
			{name: "page_token", schema: "len 1..", says: "The `next_page_token` of the page before, with the same prefix."},
		},
		out:   gives("The problems found on the page.", client.Verified{}),
		share: contents, within: verifying, answer: (*API).verify,
	},
	{
		op: "fixCounters", method: http.MethodPost, path: "/v1/verify", role: onVerifier,
		need:  auth.Whole(auth.Admin),
		says:  "Check, and repair where that is safe",
		more:  "Records are raised to cover the existing shards. Safe to repeat.",
		body:  verifyBody,
		out:   gives("The problems found on the page; those with `fixed` were repaired.", client.Verified{}),
		fails: fails{504: "OutcomeUnknown"},
		share: contents, within: verifying, answer: (*API).repair,
	},
}
