package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// evidence is a journal, and the objects that its answers should have.
type evidence struct {
	surface
	st      *protocoltest.Store
	keys    []string // of the entries of billing:a, and of the records
	entries []string // of billing:a
	records []string
}

// newEvidence has records from asOf on, one a minute. Each has an increment of billing:a, and one of shop:a.
func newEvidence(t *testing.T, records int) *evidence {
	t.Helper()
	e := &evidence{st: protocoltest.New(protocoltest.Options{Clock: func() time.Time { return asOf.Add(100 * time.Hour) }})}
	c := &store.Commit{}
	for i := range records {
		at := asOf.Add(time.Duration(i) * time.Minute)
		r := store.JournalRecord{Key: store.NewJournalKey(at, 7), ExpireAt: at.Add(24 * time.Hour)}
		id := wire.IncrementID("billing:a", fmt.Sprint("order-", i))
		r.Data = (&journal.Record{Parts: []journal.Part{{ID: id, Sender: "web", Entries: []journal.Entry{
			{Counter: "billing:a", Delta: int64(i + 1)}, {Counter: "shop:a", Delta: -1},
		}}}}).Encode(nil)
		c.Records = append(c.Records, r)
		key := r.Place().String()
		e.keys = append(e.keys, key)
		e.entries = append(e.entries, fmt.Sprintf(`{"key":"%s","time":"%s","counter":"billing:a","delta":%d,"part":"%s","sender":"web"}`, key, micros(at), i+1, id))
		e.records = append(e.records, fmt.Sprintf(`{"key":"%s","expire_at":"%s","data":"%s"}`, key, micros(r.ExpireAt), base64.StdEncoding.EncodeToString(r.Data)))
	}
	e.st.WriteRecords(c)
	e.surface = ask(t, api.Services{Journal: admin.NewJournal(e.st, time.Minute)}, api.Config{})
	return e
}

func lost(int) protocoltest.Answer { return protocoltest.UnknownNotApplied }

func micros(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func TestPagesOfTheJournal(t *testing.T) {
	t.Parallel()
	e := newEvidence(t, 3)
	page := func(rest string, entries ...string) string {
		return `{"entries":[` + strings.Join(entries, ",") + `],` + rest + `"settled_until":"2026-11-25T`
	}
	for query, want := range map[string]string{
		"":                             page("", e.entries...),
		"&limit=1":                     page(`"next":"`+e.keys[0]+`",`, e.entries[0]),
		"&limit=1&before=" + e.keys[2]: page(`"next":"`+e.keys[1]+`","previous":"`+e.keys[1]+`",`, e.entries[1]),
		"&after=" + e.keys[1]:          page("", e.entries[2]),
		"&id=order-1":                  page("", e.entries[1]),
		"&id=order-9":                  page(""),
		"&after=" + e.keys[2]:          page(""),
		"&after=" + e.keys[1] + "&id=" + "order-1": page(""),
		"&format=string&id=order-2":                page("", strings.Replace(e.entries[2], `"delta":3`, `"delta":"3"`, 1)),
	} {
		e.of(t, "billing:").want(t, "GET", "/v1/journal?counter=billing:a"+query, "", 200, want)
	}
	for query, want := range map[string]string{
		"?counter=a&id=":     "id is empty (limit: leave it out)",
		"?counter=a&after=":  "after is empty (limit: leave it out)",
		"?counter=a&before=": "before is empty (limit: leave it out)",
		"?counter=a&after=x": `"field":"after","limit":"40 digits`,
		"?counter=a&after=" + e.keys[0] + "&before=" + e.keys[0]: `"field":"before","limit":"one of both"`,
	} {
		e.want(t, "GET", "/v1/journal"+query, "", 400, want)
	}
	e.of(t, "billing:").want(t, "GET", "/v1/journal?counter=shop:a", "", 403, `"field":"counter","limit":"billing:*"`)
	ask(t, api.Services{}, api.Config{}).want(t, "GET", "/v1/journal?counter=a", "", 404, "is served by the role reader or aggregator")
	e.st.On("scan journal", lost)
	e.want(t, "GET", "/v1/journal?counter=a", "", 503, ":unavailable")
}

// Records are as the store has them. The later one of from and after is the beginning.
func TestRecordsOfTheJournal(t *testing.T) {
	t.Parallel()
	e := newEvidence(t, 3)
	for query, want := range map[string]struct{ first, last int }{
		"":                           {0, 3},
		"?limit=2":                   {0, 2},
		"?limit=3":                   {0, 3},
		"?from=2026-11-21T04:05:00Z": {1, 3},
		"?from=2026-11-21&to=2026-11-21T05:05:30%2B01:00": {0, 2},
		"?to=2026-11-21":                                     {0, 0},
		"?after=" + e.keys[0]:                                {1, 3},
		"?after=" + e.keys[0] + "&limit=1":                   {1, 2},
		"?after=" + e.keys[0] + "&from=2026-11-21T04:06:00Z": {2, 3},
		"?after=" + e.keys[1] + "&from=2026-11-21T04:04:00Z": {2, 3},
	} {
		next := ""
		if strings.Contains(query, "limit") && want.last < 3 {
			next = `"next":"` + e.keys[want.last-1] + `",`
		}
		e.want(t, "GET", "/v1/journal/records"+query, "", 200, `{"records":[`+strings.Join(e.records[want.first:want.last], ",")+`],`+next+`"settled_until":"2026-11-25T`)
	}
	for query, want := range map[string]string{
		"?from=yesterday":                "from is not a time (limit: 2006-01-02T15:04:05Z or 2006-01-02",
		"?to=":                           "to is not a time (limit: 2006-01-02T15:04:05Z or 2006-01-02",
		"?after=":                        `"field":"after","limit":"40 digits`,
		"?from=2026-11-22&to=2026-11-22": `"field":"to","limit":"a time after from"`,
		"?to=1969-12-31":                 `"field":"to","limit":"a time after from"`,
	} {
		e.want(t, "GET", "/v1/journal/records"+query, "", 400, want)
	}
	e.st.On("scan journal", lost)
	e.want(t, "GET", "/v1/journal/records", "", 503, ":unavailable")
}

// An erased counter is in no page, and the others stay. A call goes over 2,000 records.
func TestErasingFromTheJournal(t *testing.T) {
	t.Parallel()
	const path, all = "/v1/journal/erase", 2001
	e := newEvidence(t, all)
	for body, want := range map[string]string{
		`{"counter":""}`:              `"field":"counter"`,
		`{"counter":"a","after":""}`:  "after is empty (limit: a key of an earlier answer)",
		`{"counter":"a","after":"x"}`: `"field":"after","limit":"40 digits`,
	} {
		e.want(t, "POST", path, body, 400, want)
	}
	e.st.On("scan journal", lost)
	e.want(t, "POST", path, `{"counter":"billing:a"}`, 503, ":unavailable")
	e.st.On("scan journal", nil)
	e.st.On("tx journal", protocoltest.Script(protocoltest.UnknownNotApplied))
	e.want(t, "POST", path, `{"counter":"billing:a"}`, 504, "this was maybe done: repeat it")
	last := e.keys[all-2]
	e.want(t, "POST", path, `{"counter":"billing:a"}`, 200, `{"erased":2000,"next":"`+last+`","settled_until":"2026-11-25T`)
	e.want(t, "POST", path, `{"counter":"billing:a","after":"`+last+`"}`, 200, `{"erased":1,"settled_until":"2026-11-25T`)
	e.want(t, "GET", "/v1/journal?counter=billing:a", "", 200, `{"entries":[],`)
	if _, text, _ := e.call(t, "GET", "/v1/journal?limit=1000&counter=shop:a", ""); strings.Count(text, `"counter":"shop:a","delta":-1`) != 1000 {
		t.Errorf("the entries of another counter are gone: %.500s", text)
	}
}
