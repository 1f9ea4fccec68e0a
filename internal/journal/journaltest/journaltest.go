// Package journaltest has a journal of made-up entries for tests.
package journaltest

import (
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// Begin is the time of the first record. Each further one is a millisecond later, or in the same microsecond.
var Begin = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// Records returns at least that many entries in records of up to 40, both in the order of keys. They are the same in
// every process. Some entries are erased or are corrections, and not returned.
func Records(entries int) (records []store.JournalRecord, all []client.JournalEntry) {
	random := rand.New(rand.NewPCG(1, 2))
	counters := []string{"billing:a", "billing:b,\"quoted\"", "billing:ünï", "shop:a", "shop:b"}
	at, inMoment := Begin, uint64(0)
	for len(all) < entries {
		inMoment++
		if random.IntN(4) > 0 {
			at, inMoment = at.Add(time.Millisecond), 0
		}
		r := store.JournalRecord{Key: store.NewJournalKey(at, inMoment<<60|random.Uint64()>>4), ExpireAt: at.Add(400 * 24 * time.Hour)}
		var content journal.Record
		if random.IntN(50) == 0 {
			content.Kind = journal.CorrectionKind
		}
		for range 1 + random.IntN(8) {
			p := journal.Part{Sender: []string{"", "web", "shop"}[random.IntN(3)], Minute: wire.MinuteOf(at)}
			for i := range p.ID {
				p.ID[i] = byte(random.Uint32())
			}
			for range 1 + random.IntN(5) {
				p.Entries = append(p.Entries, journal.Entry{Counter: counters[random.IntN(len(counters))], Delta: random.Int64N(2000) - 1000, Erased: random.IntN(50) == 0})
			}
			content.Parts = append(content.Parts, p)
		}
		content.Lines(r.Key, func(l journal.Line) {
			all = append(all, client.JournalEntry{Key: l.Place.String(), Time: at, Counter: l.Entry.Counter, Delta: l.Entry.Delta, Part: l.Part.ID.String(), Sender: l.Part.Sender})
		})
		r.Data = content.Encode(nil)
		records = append(records, r)
	}
	return records, all
}

// Store is a store with records. Its clock is 100 days after Begin.
func Store(records []store.JournalRecord) *protocoltest.Store {
	now := Begin.Add(100 * 24 * time.Hour)
	s := protocoltest.New(protocoltest.Options{Clock: func() time.Time { return now }})
	s.WriteRecords(&store.Commit{Records: records})
	return s
}

// Serve serves the journal of a store over HTTP, and returns the server.
func Serve(tb testing.TB, s store.Store) *httptest.Server {
	tb.Helper()
	a := api.New(api.Services{Journal: admin.NewJournal(s, time.Minute)}, api.Config{})
	routes := httpserver.NewRouter(nil)
	a.Register(routes)
	server := httptest.NewServer(routes)
	tb.Cleanup(server.Close)
	return server
}
