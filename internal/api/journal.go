package api

import (
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/store"
)

// onJournal is the processes that read the journal.
var onJournal = &role{"reader or aggregator", func(s *Services) bool { return s.Journal != nil }}

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
	return c.formatted(journalPageOf(&page)), err
}

func journalPageOf(page *admin.JournalPage) client.JournalPage {
	out := client.JournalPage{Entries: make([]client.JournalEntry, len(page.Entries)), Next: page.Next, Previous: page.Previous, SettledUntil: page.SettledUntil}
	for i := range page.Entries {
		e := &page.Entries[i]
		out.Entries[i] = client.JournalEntry{Key: e.Key, Time: e.Time, Counter: e.Counter, Delta: e.Delta, Part: e.Part.String(), Sender: e.Sender}
	}
	return out
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
	out := client.JournalRecords{Records: make([]client.JournalRecord, len(page.Records)), SettledUntil: page.SettledUntil}
	for i := range page.Records {
		r := &page.Records[i]
		out.Records[i] = client.JournalRecord{Key: r.Place().String(), ExpireAt: r.ExpireAt, Data: r.Data}
	}
	if n := len(out.Records); page.More && n > 0 {
		out.Next = out.Records[n-1].Key
	}
	return out, nil
}

var eraseBody = takes[eraseRequest]("EraseRequest", `{"counter": "...", "after": "..."}, after only for a further call`, map[string]string{"counter": "1 to 500 bytes", "after": "a key of an earlier answer"})

// An eraseRequest names a counter, and where to go on.
type eraseRequest struct {
	Counter text `json:"counter" schema:"CounterName"`
	After   text `json:"after,omitzero" schema:"JournalKey"`
}

// eraseJournal needs the right to all counters: it ends the recounts of all (docs/adr/040).
func (a *API) eraseJournal(c call) (any, error) {
	request := c.body.(*eraseRequest)
	if err := countmill.CheckCounter(request.Counter.value); err != nil {
		return nil, err
	}
	if request.After.given && request.After.value == "" {
		return nil, eraseBody.wrong("after", "is empty")
	}
	done, err := a.services.Journal.Erase(c.ctx, request.Counter.value, request.After.value)
	return client.Erased{Erased: done.Erased, Others: done.Others, Next: done.Next, SettledUntil: done.SettledUntil}, err
}
