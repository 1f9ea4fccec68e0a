package api

import (
	"net/http"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
)

var incrementRoutes = []route{
	{
		op: "addIncrements", method: http.MethodPost, path: "/v1/increments", role: onPublisher,
		need: auth.PerCounter(auth.Publish),
		says: "Count",
		more: "One object, an array of objects, or one object per line (application/x-ndjson). The whole request is checked before any of it is counted. 400, 401, 403, 408, 413, 415, 429, 503, 507 and 422 id-reused mean that nothing of it was or will be counted. 422 ids-reused means that the increments in `conflicts` were not counted and all others were: repeat none of them. All of this holds for answers with a problem `type` of countmill. After 504, 500 and any answer without such a type it may have been counted: repeat it only if every increment has an id, or the request an Idempotency-Key.",
		in: []*param{
			{name: "Idempotency-Key", shared: "IdempotencyKey", in: "header", schema: "len 1..128", says: "Names the request: repeats with the same key and the same increments count once. 1 to 128 bytes. Keys belong to the caller: tokens with the same name share them."},
			{name: "at", shared: "At", schema: "date-time", says: "All increments count in series at this minute, not at their times: for rows of the past, also those older than the deduplication window. At most 3660 days ago, and not later than now. A counter without a rule has no series: only its total changes. So does the total alone if the time is older than the counter's rule keeps. It needs the scope admin as well."},
			{name: "return", shared: "Return", oneOf: []string{"totals"}, says: "`totals`: the answer has the totals of the request's counters, each once, in the order of the request, of at most 1,000 counters. The totals contain the increments. It needs `countmill up` with `--bus inproc:`, which folds before it answers; any other server answers 400 and counts nothing. It needs the scope read as well."},
			formatParam,
		},
		takes: []media{{kind: typeJSON, of: "Increments", with: `"examples": {"one": {"value": {"counter": "page:home"}}, "several": {"value": [{"counter": "page:home", "delta": 3}, {"counter": "sales:eur-cent", "delta": -1250, "id": "order-7-refund"}]}}`}, {kind: typeNDJSON, of: "IncrementLines"}}, most: "8 MiB",
		out:    success{status: 202, says: "All increments of the request are durable. With `return=totals` they are in `totals`.", as: []media{{kind: typeJSON, of: client.Accepted{}}}},
		fails:  fails{422: "IdReused", 429: "OverloadedOrQuota", 504: "OutcomeUnknown", 507: "InsufficientStorage"},
		counts: true, within: forever, answer: (*API).increments,
	},
	{
		op: "sendBatch", method: http.MethodPost, path: "/v1/batches", role: onBatchReceiver,
		need:  auth.PerCounter(auth.Publish),
		says:  "Count a flushed batch",
		more:  "One batch of the wire format (wire/batch.proto), as it goes over a bus: for publishers with a buffer of their own, such as the Go package backend/httpbus. Send the same bytes again until the answer is 202: repeats count once within the deduplication window. The whole batch is checked before any of it is counted. 400, 401, 403, 408, 413, 415, 429, 503 and 507 mean that nothing of it was or will be counted by this request. After 504 and 500 it may have been counted. A token that is limited to prefixes has part ids and a flush of its own: no other sender's part or completion marker meets them. The `receipt` names the message with the flush that it was taken with. A head without a principal gets the token's name as its principal; any other principal is refused.",
		takes: []media{{kind: typeBatch, of: "EncodedBatch"}}, most: "512 KiB",
		out:    success{status: 202, says: "All parts of the batch are durable, but for those in `conflicts`.", as: []media{{kind: typeJSON, of: client.AcceptedBatch{}}}},
		fails:  fails{429: "OverloadedOrQuota", 504: "OutcomeUnknown", 507: "InsufficientStorage"},
		counts: true, within: forever, answer: (*API).batches,
	},
}

var sequenceRoutes = []route{
	{
		op: "nextValues", method: http.MethodPost, path: "/v1/sequences/next", role: onSequences,
		need:  auth.PerCounter(auth.Publish),
		says:  "Get the next values of a sequence",
		more:  "A sequence is a named row of integers from 1, without creation, apart from the counter of the same name. No value is given to two requests, and each value is greater than all that were answered before the request. With an `id` a repeat within the deduplication window (8 days) gets the same values, from any sender. With its first `time` too, a later repeat is refused with 410. Without an `id` each call gets new values. A value is left out if the outcome of its request was unknown and nobody repeated it, or if the directory was restored from a backup. Values beyond 2^53 are numbers too.",
		body:  nextBody,
		out:   gives("The value; with `count` the first and the last of so many consecutive values.", client.Values{}),
		fails: fails{409: "NoValues", 410: "IdExpired", 429: "OverloadedOrQuota", 504: "OutcomeUnknown", 507: "InsufficientStorage"},
		share: values, within: forever, answer: (*API).nextValues,
	},
	{
		op: "getSequence", method: http.MethodGet, path: "/v1/sequences", role: onSequences,
		need:  auth.PerCounter(auth.Read),
		says:  "The last value of a sequence",
		more:  "Every value that was answered before the request is at most `last`.",
		in:    []*param{sequenceParam},
		out:   gives("Its state.", client.SequenceState{}),
		share: contents, answer: (*API).sequence,
	},
	{
		op: "deleteSequence", method: http.MethodDelete, path: "/v1/sequences", role: onSequences,
		need:   auth.PerCounter(auth.Admin),
		says:   "Mark a sequence as deleted",
		more:   "Its last value stays, so that no value is given again: the next request gets a higher one, and the sequence exists again. Safe to repeat.",
		in:     []*param{sequenceParam},
		out:    gives("Its state before.", client.SequenceState{}),
		fails:  fails{504: "OutcomeUnknown"},
		within: forever, answer: (*API).deleteSequence,
	},
}
