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

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// The WAL of commits is within 20 % of what the page says, and a counter and a marker are a row each.
func TestWALOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	costs := make(map[string]float64)
	for _, m := range regexp.MustCompile(`(?m)^\| (a commit|a counter in it|a new counter|a marker) \| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		costs[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	if len(costs) != 4 {
		t.Fatalf("the page has the costs %v", costs)
	}
	server := emulator.NewPostgres(t, "full_page_writes = off", "autovacuum = off")
	s := open(t, postgres.Config{URL: server.URL})
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	ask := func(sql string) (n float64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select ("+sql+")::float").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	random := mathrand.New(mathrand.NewPCG(1, 2))
	names, markers := 0.0, 0.0
	for _, load := range []struct{ names, commits, counters, markers int }{
		{1, 1, 1, 0}, {1, 500, 1, 0}, {1, 500, 1, 1}, {5000, 1, 5000, 0}, {5000, 100, 400, 17}, {5000, 200, 40, 100}, {5000, 10, 4000, 0},
	} {
		before := ask("pg_current_wal_lsn() - '0/0'")
		for range load.commits {
			c := new(store.Commit)
			for _, n := range random.Perm(load.names)[:load.counters] {
				c.Adds = append(c.Adds, store.NewShardDelta(fmt.Sprintf("page:/%05d/%04d", n, load.names), 0, 1))
			}
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
		got := ask("pg_current_wal_lsn() - '0/0'") - before
		n := float64(load.commits)
		want := n * (costs["a commit"] + float64(load.markers)*costs["a marker"])
		if fresh := float64(load.names); n == 1 {
			want, names = want+fresh*costs["a new counter"], names+fresh
		} else {
			want += n * float64(load.counters) * costs["a counter in it"]
		}
		markers += n * float64(load.markers)
		t.Logf("%+v: %.0f bytes a commit, and %.0f by the page", load, got/n, want/n)
		if got > 4096 && math.Abs(got-want) > 0.2*want {
			t.Errorf("%+v: %.0f bytes a commit, and %.0f by the page", load, got/n, want/n)
		}
	}
	if got := ask("select count(*) from countmill.shard"); got != names {
		t.Errorf("%.0f rows of shards, want %.0f", got, names)
	}
	if got := ask("select count(*) from countmill.marker"); got != markers {
		t.Errorf("%.0f rows of markers, want %.0f", got, markers)
	}
}
