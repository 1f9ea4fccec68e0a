package admin_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// BenchmarkJournalPages reads pages of 50 entries at three depths, of one counter of two, with rows and
// without. COUNTMILL_BENCH_ENTRIES is how many entries each counter has; by default few. Page 100,000 needs
// 5,000,000.
func BenchmarkJournalPages(b *testing.B) {
	entries := 50_000
	if text := os.Getenv("COUNTMILL_BENCH_ENTRIES"); text != "" {
		if _, err := fmt.Sscan(text, &entries); err != nil {
			b.Fatal(err)
		}
	}
	for _, keep := range []string{"30d,paged", "30d"} {
		b.Run(keep, func(b *testing.B) {
			s, err := pebble.Open(pebble.Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			keys := fillJournal(b, s, keep, entries)
			j := admin.NewJournal(s, time.Minute)
			for _, page := range []int{1, 1000, 100_000} {
				if page > len(keys) {
					continue
				}
				b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
					q := admin.JournalQuery{Counter: "c0", Limit: 50, After: keys[page-1]}
					for b.Loop() {
						got, err := j.Page(b.Context(), q)
						if err != nil || len(got.Entries) != 50 {
							b.Fatalf("%d entries, %v", len(got.Entries), err)
						}
					}
				})
			}
		})
	}
}

// fillJournal writes records of 20 entries of two counters, and returns the keys before the pages of c0;
// empty for the first.
func fillJournal(b *testing.B, s store.Store, keep string, entries int) (keys []string) {
	b.Helper()
	change, err := store.ParseRetention(store.KindJournal, keep)
	if err != nil {
		b.Fatal(err)
	}
	set, err := s.ChangeRules(b.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "c0", Keep: change})
	if err != nil {
		b.Fatal(err)
	}
	keys = append(keys, "")
	for n := 0; n < entries; {
		c := &store.Commit{Rules: set.Version}
		at, done := s.JournalMoment(time.Now())
		for range 100 { // records of one batch, so that filling is not bound by syncs
			r := store.JournalRecord{Key: store.NewJournalKey(at, uint64(len(c.Records))<<40|rand.Uint64()>>32), ExpireAt: at.Add(change.Entries)}
			var content journal.Record
			for range 10 {
				p := journal.Part{ID: wire.PartID{byte(n)}, Sender: "shop"}
				for k := range 2 {
					p.Entries = append(p.Entries, journal.Entry{Counter: fmt.Sprint("c", k), Delta: 1})
				}
				content.Parts = append(content.Parts, p)
			}
			content.Lines(r.Key, func(l journal.Line) {
				if change.Paged && l.Entry.Counter == "c0" {
					c.Rows = append(c.Rows, store.JournalRow{Counter: l.Entry.Counter, Place: l.Place, ExpireAt: r.ExpireAt, Data: journal.EncodeRow(nil, l.Part, l.Entry)})
				}
				if l.Entry.Counter != "c0" {
					return
				}
				if n++; n%50 == 0 && n+50 <= entries {
					keys = append(keys, l.Place.String())
				}
			})
			r.Data = content.Encode(nil)
			c.Records = append(c.Records, r)
		}
		c.Adds = []store.ShardDelta{store.NewShardDelta("c0", 0, 1)}
		_, err := s.Fold(b.Context(), c)
		if done(); err != nil {
			b.Fatal(err)
		}
	}
	return keys
}
