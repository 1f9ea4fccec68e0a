package postgres_test

import (
	"cmp"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// Rows, WAL, changed pages and flushes of hot, Zipf and uniform loads are within 20 % of the costs on the page.
func TestCostsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	wal, rows, table, index := make(map[string]float64), make(map[string]float64), make(map[string]float64), make(map[string]float64)
	for _, m := range regexp.MustCompile(`(?m)^\| (a .*?) \| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \|$`).FindAllSubmatch(page, -1) {
		for i, costs := range []map[string]float64{wal, rows, table, index} {
			costs[string(m[1])], _ = strconv.ParseFloat(string(regexp.MustCompile(",").ReplaceAll(m[2+i], nil)), 64)
		}
	}
	if len(wal) != 5 {
		t.Fatalf("the page has the costs %v", wal)
	}

	const pageBytes, names = 8192, 10_000
	// The WAL writer flushes nothing of its own.
	server := emulator.NewPostgres(t, "autovacuum = off", "checkpoint_timeout = '1h'", "wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'")
	session := newSession(t, server.URL)
	ask := func(sql string) (n float64) {
		t.Helper()
		if err := session.QueryRow(t.Context(), "select ("+sql+")::float").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if ask("select count(*) from pg_available_extensions where name = 'pg_buffercache'") == 0 {
		t.Skip("no pg_buffercache, which counts the pages of a checkpoint")
	}
	session.do("create extension pg_buffercache")
	random := mathrand.New(mathrand.NewPCG(1, 2))
	zipf := mathrand.NewZipf(random, 1.1, 1, names-1)
	order := random.Perm(names)
	next := 0
	fresh := func() int { next++; return next - 1 }
	oldMarkers, newRows := 0.0, 0.0
	for _, load := range []struct {
		what                     string
		commits, draws, markers  int
		draw                     func() int
		counters, pages, newRows float64 // of the load: in commits if they are known, and the pages that it changes
	}{
		{"new names", names / 400, 400, 0, fresh, 0, 0, names},
		{"hot", 1000, 1, 1, func() int { return 0 }, 1000, 1, 0},
		{"zipf", 40, 400, 9, func() int { return int(zipf.Uint64()) }, 0, math.Inf(1), 0},
		{"uniform", 100, 400, 17, func() int { return random.IntN(names) }, 0, math.Inf(1), 0},
		{"uniform, many markers", 100, 40, 100, func() int { return random.IntN(names) }, 0, math.Inf(1), 0},
	} {
		s := open(t, postgres.Config{URL: server.URL})
		session.do("checkpoint")
		before, flushes := ask("pg_current_wal_lsn() - '0/0'"), ask("select wal_sync from pg_stat_wal")
		counters := 0.0
		for range load.commits {
			c, sums := new(store.Commit), make(map[int]int64)
			for range load.draws {
				sums[order[load.draw()]]++
			}
			for n, sum := range sums {
				c.Adds = append(c.Adds, store.NewShardDelta(fmt.Sprintf("page:/%05d/%04d", n, n%7), 0, sum))
			}
			counters += float64(len(sums))
			slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
				return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Counter, b.Counter))
			})
			for range load.markers {
				m := store.Marker{Fold: random.Uint64(), At: time.Now()}
				for i := range m.ID {
					m.ID[i] = byte(random.Uint32())
				}
				c.Markers = append(c.Markers, m)
			}
			if _, err := s.Fold(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Close()
		for ended := time.Now().Add(time.Minute); ask("select count(*) from pg_stat_activity where backend_type = 'client backend'") > 1; {
			if time.Now().After(ended) { // a session has counted its flushes when it has ended
				t.Fatal("sessions do not end")
			}
		}
		commits, markers := float64(load.commits), float64(load.commits*load.markers)
		compare := func(of string, got, want, free float64) {
			t.Helper()
			t.Logf("%s: %.0f %s, %.0f by the page", load.what, got, of, want)
			if math.Abs(got-want) > 0.2*want+free {
				t.Errorf("%s: %.0f %s, %.0f by the page", load.what, got, of, want)
			}
		}
		// Markers come to any page of their index, and to the end of their table.
		first := min(load.pages, names*table["a new counter"]/pageBytes) + oldMarkers*index["a marker"]/pageBytes
		want := commits*wal["a commit"] + counters*wal["a counter in it"] + markers*wal["a marker"] + first*wal["a page that has not changed since the last checkpoint"]
		if load.newRows > 0 {
			want = commits*wal["a commit"] + load.newRows*wal["a new counter"]
		}
		compare("bytes of WAL", ask("pg_current_wal_lsn() - '0/0'")-before, want, 0)
		compare("flushes", ask("select wal_sync from pg_stat_wal")-flushes, commits, 0)
		oldMarkers, newRows = oldMarkers+markers, newRows+load.newRows
		changed := first + markers*(table["a marker"]+index["a marker"])/pageBytes + load.newRows*(table["a new counter"]+index["a new counter"])/pageBytes
		if load.newRows > 0 {
			changed -= first
		}
		const others = 40 // catalogs, maps of free space, first pages of indexes, and pages of rows that left their page
		compare("changed pages", ask("select count(*) from pg_buffercache where isdirty"), changed, others)
	}
	if got := ask("select count(*) from countmill.shard"); got != newRows*rows["a new counter"] {
		t.Errorf("%.0f rows of shards, want %.0f", got, newRows*rows["a new counter"])
	}
	if got := ask("select count(*) from countmill.marker"); got != oldMarkers*rows["a marker"] {
		t.Errorf("%.0f rows of markers, want %.0f", got, oldMarkers*rows["a marker"])
	}
}
