package api

import (
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

// onJournal is the processes that read the journal.
var onJournal = &role{"reader or aggregator", func(s *Services) bool { return s.Journal != nil }, true}

// journalPage is some entries as clients see them.
type journalPage struct {
	Entries      []journalEntry `json:"entries"`
	Next         string         `json:"next,omitempty"`
	Previous     string         `json:"previous,omitempty"`
	SettledUntil string         `json:"settled_until"`
}

type journalEntry struct {
	Key     string `json:"key"`
	Time    string `json:"time"`
	Counter string `json:"counter"`
	Delta   any    `json:"delta"`
	Part    string `json:"part"`
	Sender  string `json:"sender,omitempty"`
}

func (a *API) journal(c call) (any, error) {
	q := admin.JournalQuery{Counter: c.params.Get("counter"), ID: c.params.Get("id"), After: c.params.Get("after"), Before: c.params.Get("before")}
	if err := countmill.CheckCounter(q.Counter); err != nil {
		return nil, err
	}
	if err := c.caller().Check(q.Counter); err != nil {
		return nil, err
	}
	for _, name := range []string{"id", "after", "before"} {
		if c.params.Has(name) && c.params.Get(name) == "" {
			return nil, &countmill.FieldError{Field: name, Problem: "is empty", Limit: "leave it out"}
		}
	}
	q.Limit = c.number("limit")
	page, err := a.services.Journal.Page(c.ctx, q)
	if err != nil {
		return nil, err
	}
	return journalPageOf(&page, c.quoted()), nil
}

func journalPageOf(page *admin.JournalPage, quoted bool) journalPage {
	out := journalPage{Entries: make([]journalEntry, len(page.Entries)), Next: page.Next, Previous: page.Previous, SettledUntil: httpserver.FormatTime(page.SettledUntil)}
	for i := range page.Entries {
		e := &page.Entries[i]
		out.Entries[i] = journalEntry{Key: e.Key, Time: httpserver.FormatTime(e.Time), Counter: e.Counter, Delta: e.Delta, Part: e.Part.String(), Sender: e.Sender}
		if quoted {
			out.Entries[i].Delta = strconv.FormatInt(e.Delta, 10)
		}
	}
	return out
}

// journalRecords is records as the store has them.
type journalRecords struct {
	Records      []journalRecord `json:"records"`
	Next         string          `json:"next,omitempty"`
	SettledUntil string          `json:"settled_until"`
}

type journalRecord struct {
	Key      string `json:"key"`
	ExpireAt string `json:"expire_at"`
	Data     []byte `json:"data"`
}

// journalRecords answers with the records from a time on, or from a key on, before a time.
func (a *API) journalRecords(c call) (any, error) {
	q := store.JournalQuery{}
	from, err := timeOf(c.params, "from", time.UnixMicro(0).UTC())
	if err != nil {
		return nil, err
	}
	q.From = store.JournalAt(from)
	if c.params.Has("to") {
		to, err := timeOf(c.params, "to", time.Time{}.UTC())
		if err != nil {
			return nil, err
		}
		if !to.After(from) {
			return nil, &countmill.FieldError{Field: "to", Problem: "is not after from", Limit: "a time after from"}
		}
		q.To = store.JournalAt(to)
	}
	if c.params.Has("after") {
		after, err := store.ParseJournalPlace("after", c.params.Get("after"))
		if err != nil {
			return nil, err
		}
		if next := after.Next(); next.Compare(q.From) > 0 {
			q.From = next
		}
	}
	q.Limit = c.number("limit")
	page, err := a.services.Journal.Records(c.ctx, q)
	if err != nil {
		return nil, err
	}
	out := journalRecords{Records: make([]journalRecord, len(page.Records)), SettledUntil: httpserver.FormatTime(page.SettledUntil)}
	for i := range page.Records {
		r := &page.Records[i]
		out.Records[i] = journalRecord{Key: r.Place().String(), ExpireAt: httpserver.FormatTime(r.ExpireAt), Data: r.Data}
	}
	if n := len(out.Records); page.More && n > 0 {
		out.Next = out.Records[n-1].Key
	}
	return out, nil
}

var eraseBody = &body{
	name: "EraseRequest", empty: func() any { return new(eraseRequest) }, max: smallBody,
	want: `{"counter": "...", "after": "..."}, after only for a further call`, fields: map[string]string{"counter": "1 to 500 bytes", "after": "a key of an earlier answer"},
}

// An eraseRequest names a counter, and where to go on.
type eraseRequest struct {
	Counter text `json:"counter"`
	After   text `json:"after"`
}

// erasedPage is the result of a call as clients see it.
type erasedPage struct {
	Erased       int    `json:"erased"`
	Others       int    `json:"others,omitempty"`
	Next         string `json:"next,omitempty"`
	SettledUntil string `json:"settled_until"`
}

// eraseJournal needs the right to all counters: it ends the recounts of all (docs/adr/040).
func (a *API) eraseJournal(c call) (any, error) {
	request := c.body.(*eraseRequest)
	if !request.Counter.given {
		return nil, eraseBody.missing("counter")
	}
	if err := countmill.CheckCounter(request.Counter.value); err != nil {
		return nil, err
	}
	if request.After.given && request.After.value == "" {
		return nil, eraseBody.wrong("after", "is empty")
	}
	done, err := a.services.Journal.Erase(c.ctx, request.Counter.value, request.After.value)
	if err != nil {
		return nil, asChange(err)
	}
	return erasedPage{done.Erased, done.Others, done.Next, httpserver.FormatTime(done.SettledUntil)}, nil
}
