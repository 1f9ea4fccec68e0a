package journalfile

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/journal/journaltest"
	"github.com/countmill/countmill/internal/transfer"
)

type silent struct{}

func (silent) Add(int64, int64) {}
func (silent) Wait(string)      {}
func (silent) Stop()            {}

// A source is a server with a journal.
type source struct {
	url      string
	all      []client.JournalEntry
	requests int
}

func newSource(t *testing.T, entries int) *source {
	t.Helper()
	s := &source{}
	records, all := journaltest.Records(entries)
	s.all = all
	inner := journaltest.Serve(t, journaltest.Store(records))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests++
		inner.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s.url = front.URL
	return s
}

// export is an export of nearly all.
func (s *source) export(t *testing.T, counters string) *Export {
	t.Helper()
	c, err := client.New(s.url, client.WithTries(1))
	if err != nil {
		t.Fatal(err)
	}
	last := s.all[len(s.all)-1].Time
	return &Export{
		Client: c, Timeout: time.Minute, Period: Period{journaltest.Begin.Add(5 * time.Millisecond), last.Add(-5 * time.Millisecond), counters},
		Progress: func(string, string, int64) transfer.Progress { return silent{} },
	}
}

// want is the entries that an export should have, by the pages of single counters.
func (s *source) want(t *testing.T, x *Export, counters ...string) (all []client.JournalEntry) {
	t.Helper()
	for _, name := range counters {
		q := client.JournalQuery{Counter: name, Limit: 1000}
		for {
			page, err := x.Client.Journal(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				if !e.Time.Before(x.Period.From) && e.Time.Before(x.Period.To) {
					all = append(all, e)
				}
			}
			if q.After = page.Next; page.Next == "" {
				break
			}
		}
	}
	slices.SortFunc(all, func(a, b client.JournalEntry) int { return strings.Compare(a.Key, b.Key) })
	return all
}
